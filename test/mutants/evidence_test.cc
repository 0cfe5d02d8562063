// The evidence table: every structure that the search finds and random testing calls equal, for every program in specs/, is proved at the
// true sizes with numbers put in, and so is what is emitted (test/golden). What has no proof is listed by name.
#include <catch2/catch.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "driver/decide/candidates.h"
#include "mirage/driver/compile.h"
#include "mirage/ir/stabilize.h"
#include "mirage/spec/spec.h"
#include "mirage/spec/text.h"
#include "mirage/verify/proof.h"

using namespace mirage;
namespace fs = std::filesystem;

namespace {

std::string text_of(const fs::path& path) {
  std::ifstream in(path);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

/// A few tiles along everything that is split, with ragged tails among them.
std::vector<std::vector<CallNumbers>> some_numbers(const std::vector<CallNumbers>& extents) {
  std::vector<std::vector<CallNumbers>> out;
  for (int64_t parts : {2, 3}) {
    std::vector<CallNumbers> n = extents;
    for (CallNumbers& c : n) {
      for (int64_t& t : c.grid_tile) t = (t + parts - 1) / parts;
      c.loop_tile = (c.loop_tile + parts - 1) / parts;
    }
    out.push_back(n);
  }
  out.push_back(halve(extents));
  return out;
}

}  // namespace

TEST_CASE("what is found for the programs in specs/ is proved at true sizes") {
  std::vector<fs::path> specs;
  for (const auto& e : fs::directory_iterator(fs::path(MIRAGE_SOURCE_DIR) / "specs"))
    if (e.path().extension() == ".json") specs.push_back(e.path());
  std::sort(specs.begin(), specs.end());
  const Target target = *resolve_target("sm_90a");
  std::string table, missing;
  int all_proved = 0, all = 0, neither = 0;
  std::set<std::string> proved_specs;
  for (const fs::path& path : specs) {
    auto program = parse_spec({path.string(), text_of(path)});
    REQUIRE(program);
    const std::string name = path.stem().string();
    int structures = 0, instances = 0, proved = 0;
    std::string reason;
    auto check = [&](const Graph& g) {
      const Proof p = prove(program->graph, g);
      instances++;
      proved += p.proved;
      if (!p.proved && reason.empty()) reason = p.reason;
    };
    const Witnesses w = make_witnesses(*program);
    double bound = -1000;   // the worst of all claims; 0: theory says nothing
    Program searched = *program;   // as the driver does it
    searched.graph = unshift(program->graph);
    for (int64_t states : {600'000, 6'000'000}) {
      SearchOptions o;
      o.max_states = states;
      if (w.refusal.empty() && structures == 0)
        enumerate(searched, target, o, [&](const Structure& found) {
          if (structures >= 60) return SinkVerdict::kUnknown;
          const Examined e = examine_stable(found, *program, w, 7);
          if (e.verdict != SinkVerdict::kVerified) return e.verdict;
          const Structure& s = e.candidate.structure;
          structures++;
          for (const Claim& c : e.candidate.claims) bound = std::max(bound, c.verdict.evidence.log2_bound);
          const std::vector<Type> params = param_types(*program);
          for (const std::vector<CallNumbers>& n : some_numbers(split_extents(s, params)))
            if (auto g = instantiate(s, params, n); g && !check_laws(*g)) check(*g);
          return e.verdict;
        });
    }
    bool emitted = true;
    if (auto golden = parse_graph(text_of(fs::path(MIRAGE_SOURCE_DIR) / "test/golden" / (name + ".graph")))) {
      const Proof p = prove(program->graph, *golden);
      emitted = p.proved;
      if (!p.proved) reason = p.reason;
    }
    all += instances;
    all_proved += proved;
    if (emitted && proved == instances) proved_specs.insert(name);
    if (!emitted && bound > -40) neither++;
    char line[200], chance[40] = "";
    if (structures) std::snprintf(chance, sizeof chance, bound < 0 ? "2^%.0f" : "none", bound);
    std::snprintf(line, sizeof line, "| %-20s | %3d | %4d | %4d | %-6s | %6s |\n", name.c_str(), structures, instances, proved,
                  emitted ? "proved" : "open", chance);
    table += line;
    if (!reason.empty()) missing += name + ": " + reason + "\n";
  }
  if (const char* out = std::getenv("MIRAGE_EVIDENCE_TABLE")) std::ofstream(out) << table << missing;
  INFO(table << missing);
  CHECK(all > 0);
  CHECK(all_proved == all);
  CHECK(neither * 10 <= static_cast<int>(specs.size()));
  for (const char* name : {"rms_norm_linear", "gated_mlp", "lora", "n_trans", "gqa", "mha", "mqa", "qk_norm", "softmax_attention",
                           "layer_norm_linear", "mla", "causal_attention", "llama_layer", "moe"}) {
    INFO(name);
    CHECK(proved_specs.contains(name));
  }
}
