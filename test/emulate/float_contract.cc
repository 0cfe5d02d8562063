// Products on the float32 units: lines along and across the contraction, extents that groups of four do not divide, elements of 16 bits
// beside float32.
#include <fmt/format.h>

#include "emulate/helpers.h"
#include "emulate/run_all.h"

using namespace mirage;
using namespace mirage::test;

namespace {

struct Product { int64_t batch, rows, inner, columns; bool x_turned, y_turned; const char *x, *y; };

std::string spec_of(const Product& p) {
  const auto shape = [&](int64_t r, int64_t c, bool turned) {
    const std::string dims = turned ? fmt::format("{}, {}", c, r) : fmt::format("{}, {}", r, c);
    return p.batch > 1 ? fmt::format("[{}, {}]", p.batch, dims) : fmt::format("[{}]", dims);
  };
  const char* perm = p.batch > 1 ? "[0, 2, 1]" : "[1, 0]";
  std::string nodes, x = "a", y = "b";
  const auto turn = [&](std::string& name, const char* to) {
    nodes += fmt::format(R"({{"op": "transpose", "inputs": ["{}"], "output": "{}", "attrs": {{"perm": {}}}}}, )", name, to, perm);
    name = to;
  };
  if (p.x_turned) turn(x, "at");
  if (p.y_turned) turn(y, "bt");
  return fmt::format(
      R"({{"version": "1.0", "name": "product", "inputs": {{"a": {{"shape": {}, "dtype": "{}"}}, "b": {{"shape": {}, "dtype": "{}"}}}},
    "outputs": {{"y": {{"shape": {}, "dtype": "float32"}}}}, "nodes": [{}{{"op": "matmul", "inputs": ["{}", "{}"], "output": "y"}}]}})",
      shape(p.rows, p.inner, p.x_turned), p.x, shape(p.inner, p.columns, p.y_turned), p.y, shape(p.rows, p.columns, false), nodes, x, y);
}

}  // namespace

TEST_CASE("products on the float32 units in every direction") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> all;
  std::vector<std::string> names;
  const auto add = [&](const Product& p) {
    const Program program = program_of(spec_of(p), "product");
    const Planned planned = make_plan(program, program.graph, target);
    REQUIRE(planned.plan);
    std::string text;
    for (const KernelPlan& k : planned.plan->kernels) text += emit_kernel(k, *planned.plan, target).source;
    CHECK(text.find("FloatContract<") != std::string::npos);
    all.push_back(case_of(program, *planned.plan, target, fmt::format("p{}_", all.size())));
    names.push_back(fmt::format("{} x {} x {} x {}{}{} {} {}", p.batch, p.rows, p.inner, p.columns, p.x_turned ? ", a turned" : "",
                                p.y_turned ? ", b turned" : "", p.x, p.y));
  };
  for (bool x : {false, true})
    for (bool y : {false, true}) {
      add({1, 128, 64, 256, x, y, "float32", "float32"});
      add({1, 37, 30, 53, x, y, "float32", "float32"});
      add({3, 20, 33, 18, x, y, "float32", "float32"});
      add({1, 64, 48, 72, x, y, "float16", "float32"});
    }
  add({1, 1, 77, 5, false, true, "float32", "float32"});
  add({1, 300, 8, 1, false, false, "float32", "float32"});
  add({1, 2, 130, 515, false, false, "float32", "bfloat16"});
  for (bool turned : {false, true}) {   // a large one's kernel, at few blocks
    const Program large = program_of(spec_of({1, 4096, 4096, 4096, false, turned, "float32", "float32"}), "product");
    const Planned planned = make_plan(large, large.graph, target);
    REQUIRE(planned.plan);
    const Reduced small = reduce_plan(large, *planned.plan, target, true);
    INFO(small.refusal << small.differs);
    REQUIRE(small.plan);
    all.push_back(case_of(*small.program, *small.plan, target, fmt::format("large{}_", turned)));
    names.push_back(turned ? "large, b turned" : "large");
  }
  check_emulations(all, names, compiler, 1.0, false);
}
