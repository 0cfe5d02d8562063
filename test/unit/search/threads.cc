// Any number of threads: the same structures in the same order, and the same counts; also where a budget of states or of memory ends the
// search.
#include "helpers.h"
#include "search/growth/split_search.h"

using namespace mirage;
using namespace helpers;

namespace {

/// Everything that a search leaves but its seconds.
std::string text_of(const Found& f) {
  const SearchReport& r = f.report;
  std::string out = r.stop_reason + (r.complete ? " complete" : " cut") + " " + std::to_string(r.states) + " " + std::to_string(r.effort) +
                    " " + std::to_string(r.candidates) + " " + std::to_string(r.peak_bytes) + "\n";
  for (size_t g = 0; g < r.gates.size(); g++)
    out += std::string(gate_name(static_cast<Gate>(g))) + " " + std::to_string(r.gates[g].closed) + " " + r.gates[g].first_example + "\n";
  for (const Structure& s : f.structures) out += std::to_string(s.rank) + " " + std::to_string(s.kernels) + "\n" + print(s.graph);
  return out;
}

std::string run_with(const Program& p, SearchOptions o, int threads) {
  o.threads = threads;
  return text_of(find(p, o));
}

}  // namespace

TEST_CASE("threads: whole searches are the same for any number of threads") {
  for (const char* name : {"rms_norm_linear", "n_trans", "lora", "layer_norm_linear", "up_gate_down"}) {
    INFO(name);
    const Program p = spec(name);
    const std::string one = run_with(p, {}, 1);
    CHECK(one.find("exhausted complete") == 0);
    for (int threads : {2, 5}) CHECK(run_with(p, {}, threads) == one);
  }
}

TEST_CASE("threads: a budget of states cuts at the same place for any number of threads, and says so") {
  const Program p = spec("rms_norm_linear");
  for (int64_t states : {100, 3'000, 20'000, 60'000}) {
    SearchOptions o;
    o.max_states = states;
    o.dominance = false;
    const std::string one = run_with(p, o, 1);
    INFO(states);
    CHECK(one.find("states cut") == 0);
    for (int threads : {2, 4}) CHECK(run_with(p, o, threads) == one);
  }
}

TEST_CASE("threads: a limit of memory gives up the same splits for any number of threads, and says so") {
  const Program p = spec("layer_norm_linear");
  SearchOptions o;
  const Found whole = find(p, o);
  REQUIRE(whole.report.peak_bytes > 1'000'000);
  o.max_bytes = whole.report.peak_bytes / 4;
  const Found cut = find(p, o);
  CHECK(cut.report.stop_reason == "memory");
  CHECK_FALSE(cut.report.complete);
  CHECK(cut.report.peak_bytes <= whole.report.peak_bytes);
  for (int threads : {2, 4}) CHECK(run_with(p, o, threads) == text_of(cut));
  o.max_bytes = 2 * whole.report.peak_bytes;   // three quarters of it are for steps in their turn
  CHECK(text_of(find(p, o)) == text_of(whole));
  // what had less room ahead of its turn, and could not remember all it had visited, is done again
  for (int threads : {2, 4}) CHECK(run_with(p, o, threads) == text_of(whole));
}

TEST_CASE("threads: a step that had less room than it wanted does not stand for one that has it") {
  search::Outcome o;
  o.peak_bytes = 1000;   // asked for at its highest, and refused: what it had visited was not remembered, and visited again
  CHECK_FALSE(o.holds_within({50, 900}, {50, 2000}));
  CHECK(o.holds_within({50, 1000}, {50, 2000}));
  CHECK(o.holds_within({50, 900}, {50, 900}));
}

TEST_CASE("threads: an interrupt ends them all") {
  std::atomic<bool> stop{false};
  SearchOptions o;
  o.threads = 3;
  o.stop = &stop;
  o.dominance = o.expression_gate = false;
  o.max_states = int64_t{1} << 50;
  int64_t seen = 0;
  const SearchReport r = enumerate(spec("rms_norm_linear"), target(), o, [&](const Structure&) {
    if (++seen == 3) stop = true;
    return SinkVerdict::kVerified;
  });
  CHECK(r.stop_reason == "interrupted");
  CHECK(r.verified >= 3);
  o.stop = nullptr;
  o.max_seconds = 0.05;
  CHECK(enumerate(spec("rms_norm_linear"), target(), o, [](const Structure&) { return SinkVerdict::kVerified; }).stop_reason == "time");
}
