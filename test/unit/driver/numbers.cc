// The choice of numbers against trying all of them: the descent may miss the best by little only.
#include <catch2/catch.hpp>
#include <filesystem>
#include <limits>
#include "driver/decide/numbers.h"
#include "mirage/spec/spec.h"
#include "mirage/support/file.h"

using namespace mirage;

namespace {

/// The best plan over every combination of tile choices, for structures with one call that splits at most three axes.
double exhaustive_us(const Structure& s, const Program& p, const Target& target, int64_t& plans) {
  const std::vector<Type> params = param_types(p);
  const std::vector<CallNumbers> extents = split_extents(s, params);
  REQUIRE(extents.size() == 1);
  auto choices = [&](int64_t extent) { return extent > 0 ? tile_choices(extent, target.num_sms) : std::vector<int64_t>{0}; };
  double best = std::numeric_limits<double>::infinity();
  for (int64_t x : choices(extents[0].grid_tile[0]))
    for (int64_t y : choices(extents[0].grid_tile[1]))
      for (int64_t loop : choices(extents[0].loop_tile)) {
        auto g = instantiate(s, params, {{{x, y, 0}, loop}});
        if (!g) continue;
        plans++;
        if (auto planned = make_plan(p, *g, target); planned.plan) best = std::min(best, planned.plan->predicted_us);
      }
  return best;
}

}  // namespace

TEST_CASE("the descent comes close to trying everything") {
  const Target target = *find_target("sm_90a");
  for (const char* name : {"rms_norm_linear", "gated_mlp", "lora_4k", "odd"}) {
    const auto p = parse_spec({name, read_file(std::string(MIRAGE_SOURCE_DIR) + "/specs/" + name + ".json").value()});
    REQUIRE(p.ok());
    const Witnesses w = make_witnesses(*p);
    std::vector<Candidate> candidates;
    SearchOptions all;
    all.dominance = false;   // graphs with few axes, too, so that all tiles can be tried
    all.max_states = 500'000;
    enumerate(*p, target, all, [&](const Structure& s) {
      Examined e = examine(s, *p, w, 1);
      const auto extents = split_extents(s, param_types(*p));
      if (e.verdict == SinkVerdict::kVerified && extents.size() == 1 && extents[0].grid_tile[1] == 0 && extents[0].chunk_axis < 0 &&
          candidates.size() < 2)
        candidates.push_back(e.candidate);
      return e.verdict;
    });
    REQUIRE(!candidates.empty());
    Trace trace;
    const Choices c = choose_numbers(candidates, *p, target, {}, 1, trace);
    for (size_t i = 0; i < candidates.size(); i++) {
      int64_t plans = 0;
      const double best = exhaustive_us(candidates[i].structure, *p, target, plans);
      INFO(name << " structure " << i << ": " << c.alternatives[i].plans << " plans of " << plans << ", best " << best);
      if (best == std::numeric_limits<double>::infinity()) continue;
      REQUIRE(c.alternatives[i].predicted_us);
      CHECK(*c.alternatives[i].predicted_us <= 1.03 * best);
      CHECK(c.alternatives[i].plans <= NumberLimits{}.plans_per_candidate);
    }
  }
}

TEST_CASE("candidates beyond the budget are named, the best comes first") {
  const Target target = *find_target("sm_90a");
  const auto p = parse_spec({"lora", read_file(std::string(MIRAGE_SOURCE_DIR) + "/specs/lora.json").value()});
  REQUIRE(p.ok());
  const Witnesses w = make_witnesses(*p);
  std::vector<Candidate> candidates;
  enumerate(*p, target, SearchOptions{}, [&](const Structure& s) {
    Examined e = examine(s, *p, w, 1);
    if (e.verdict == SinkVerdict::kVerified) candidates.push_back(e.candidate);
    return e.verdict;
  });
  REQUIRE(candidates.size() >= 3);
  Trace trace;
  const Choices c = choose_numbers(candidates, *p, target, {96, 48}, 2, trace);
  REQUIRE(c.alternatives.size() == candidates.size());
  for (size_t i = 1; i < c.best.size(); i++) CHECK(c.best[i - 1].plan.predicted_us <= c.best[i].plan.predicted_us);
  int unplanned = 0;
  for (const Alternative& a : c.alternatives) unplanned += a.reason.find("not planned") == 0;
  CHECK(unplanned == static_cast<int>(candidates.size()) - 2);
  CHECK(choose_numbers({}, *p, target, {}, 1, trace).best.empty());
}
