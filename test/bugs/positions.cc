// Positions that are computed and lie before the first element: numbers of kernels have no sign, so that "below 0" was never true, and what
// lies before the tensor was read.
#include <fmt/format.h>

#include "emulate/run_all.h"

using namespace mirage;
using namespace mirage::test;

namespace {

/// x by positions that are `before` ahead of where they stand, of `extent` elements.
std::string shifted(int extent, int before, int count, const std::string& behind) {
  return fmt::format(
      R"({{"version": "1.0", "name": "shifted", "inputs": {{"x": {{"shape": [64, {0}], "dtype": "float32"}}, )"
      R"("z": {{"shape": [64, {2}], "dtype": "float32"}}}}, "outputs": {{"y": {{"shape": [64, {2}], "dtype": "float32"}}}}, "nodes": [)"
      R"({{"op": "iota", "inputs": [], "output": "i", "attrs": {{"shape": [{2}], "axis": 0}}}}, )"
      R"({{"op": "sub", "inputs": ["i", {1}], "output": "j"}}, )"
      R"({{"op": "index_select", "inputs": ["x", "j"], "output": "t", "attrs": {{"axis": 1}}}}, {3}]}})",
      extent, before, count, behind);
}

}  // namespace

TEST_CASE("positions before the first element are zeros") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) {
    WARN("skipped: there is no host compiler");
    return;
  }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  for (const auto& [extent, before, count] : {std::tuple{512, 1, 512}, {512, 3, 516}, {512, 8, 600}, {100, 3, 50}}) {
    const Program p = program_of(shifted(extent, before, count, R"({"op": "mul", "inputs": ["t", "z"], "output": "y"})"), "shifted");
    const Planned planned = make_plan(p, p.graph, target);
    REQUIRE(planned.plan);
    cases.push_back(case_of(p, *planned.plan, target, fmt::format("c{}_", cases.size())));
    names.push_back(fmt::format("{} of {} from {} before", count, extent, before));
  }
  check_emulations(cases, names, compiler, 1.0, true);
}
