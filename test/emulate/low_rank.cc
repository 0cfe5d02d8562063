// Gains along a low rank, on the CPU: a low-rank sum times vectors and a constant before its second factor, in stream and in tile kernels
// (plan/stream.h, StreamProduct).
#include <variant>

#include <fmt/format.h>

#include "emulate/run_all.h"
#include "plan/stream/stream_plan.h"
#include "plan/tile/tile_plan.h"
#include "mirage/spec/text.h"
#include "unit/plan/plan_in.h"

using namespace mirage;
using namespace mirage::test;

TEST_CASE("low-rank sums with gains are right on the CPU") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> cases;
  for (const int rows : {9, 40}) {
    const auto g = parse_graph(fmt::format(
        "kernel gains {{\n  %x = input 0 : bf16[{0},288]\n  %w = input 1 : bf16[288,136]\n  %a = input 2 : bf16[288,24]\n  %b = input 3 : "
        "bf16[24,136]\n  %g = input 4 : f32[24]\n  %h = input 5 : bf16[1,24]\n"
        "  %y = call grid(17,1,1) loop(9) (%x, %w, %a, %b, %g, %h) {{\n    %p = input 0 grid(-,-,-) loop(1) : bf16[{0},32]\n    %q = input "
        "1 grid(1,-,-) loop(0) : bf16[32,8]\n    %r = input 2 grid(-,-,-) loop(0) : bf16[32,24]\n"
        "    %s = input 3 grid(1,-,-) : bf16[24,8]\n    %t = input 4 grid(-,-,-) : f32[24]\n    %u = input 5 grid(-,-,-) : bf16[1,24]\n    "
        "%c = mul %u (mul (mul (accum.sum (matmul %p %r)) %t) -0.3)\n"
        "    %d = add (accum.sum (matmul %p %q)) (matmul %c %s)\n    output 0 %d grid(1,-,-) : bf16\n  }}\n  output 0 %y : bf16\n}}\n",
        rows));
    INFO((g ? "" : g.errors()[0].text));
    REQUIRE(g);
    Program p = program_of(
        fmt::format(
            R"({{"version": "1.0", "name": "gains", "inputs": {{"x": {{"shape": [{}, 288], "dtype": "bfloat16"}}, "w": {{"shape": [288, 136], "dtype": "bfloat16"}}, "a": {{"shape": [288, 24], "dtype": "bfloat16"}},
      "b": {{"shape": [24, 136], "dtype": "bfloat16"}}, "g": {{"shape": [24], "dtype": "float32"}}, "h": {{"shape": [1, 24], "dtype": "bfloat16"}}}}, "outputs": {{"y": {{"shape": [{}, 136], "dtype": "bfloat16"}}}},
      "nodes": [{{"op": "matmul", "inputs": ["x", "a"], "output": "t"}}, {{"op": "mul", "inputs": ["t", "g"], "output": "t1"}}, {{"op": "mul", "inputs": ["t1", "h"], "output": "t2"}}, {{"op": "mul", "inputs": ["t2", -0.3], "output": "t3"}},
                {{"op": "matmul", "inputs": ["t3", "b"], "output": "p"}}, {{"op": "matmul", "inputs": ["x", "w"], "output": "m"}}, {{"op": "add", "inputs": ["m", "p"], "output": "y"}}]}})",
            rows, rows),
        "gains");
    p.graph = *g;
    const Planned planned = make_plan(p, *g, target);
    REQUIRE(planned.plan);
    REQUIRE(planned.plan->kernels.size() == 1);
    const auto& body = planned.plan->kernels[0].body;
    CHECK(holds<StreamPlan>(body) == (rows == 9));
    CHECK(holds<TilePlan>(body) == (rows == 40));
    cases.push_back(case_of(p, *planned.plan, target, fmt::format("c{}_", rows)));
  }
  check_emulations(cases, {"9 rows", "40 rows"}, compiler, 1, true);
}
