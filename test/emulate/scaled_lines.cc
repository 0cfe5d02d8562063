// Rows that a kernel stores in float16, scaled by line, and multiplied back behind the product (plan/passes/narrow.cc): emulated in the
// field, with floats, and with products beyond float16's range.
#include <algorithm>

#include "emulate/helpers.h"

using namespace mirage;
using namespace mirage::test;

TEST_CASE("float16 rows with a factor per line give the program's results", "[emulate]") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Program p = program_of(
      R"({"version": "1.0", "name": "lines", "inputs": {"x": {"shape": [72, 520], "dtype": "float16"}, "g": {"shape": [520], "dtype": "float16"}, "w": {"shape": [520, 136], "dtype": "float16"}},
      "outputs": {"y": {"shape": [72, 136], "dtype": "float16"}}, "nodes": [{"op": "mul", "inputs": ["x", "g"], "output": "s"}, {"op": "matmul", "inputs": ["s", "w"], "output": "y"}]})",
      "lines");
  const Planned planned = make_plan(p, p.graph, *find_target("sm_90a"));
  REQUIRE(planned.plan);
  CHECK(std::count_if(planned.plan->buffers.begin(), planned.plan->buffers.end(),
                      [](const Buffer& b) { return b.kind == Buffer::Kind::kWorkspace && b.dtype == DType::kF16; }) == 1);
  const EmulationCase c = case_of(p, *planned.plan, *find_target("sm_90a"), "lines_");
  const EmulationLibrary lib = build_emulation({&c}, compiler, emulation_folder());
  INFO(lib.error);
  REQUIRE(lib.error.empty());
  for (EmulationMode m : {EmulationMode::kField, EmulationMode::kFloat, EmulationMode::kLarge}) {
    const EmulationOutcome o = run_emulation(c, lib.path, m, 1);
    INFO(mode_name(m) << ": " << o.reason);
    CHECK(o.ok);
  }
}
