// Attention whose masks are comparisons of positions, on the CPU: positions are computed in the kernel, chunks that the mask removes are
// not looked at. Causal, and a window before and behind each query.
#include <variant>

#include <fmt/format.h>

#include "emulate/run_all.h"
#include "plan/attend/attend_plan.h"
#include "plan/block/block_plan.h"
#include "mirage/spec/text.h"
#include "unit/plan/plan_in.h"

using namespace mirage;
using namespace mirage::test;

TEST_CASE("masked attention is right on the CPU") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  const auto add = [&](int queries, int keys, const std::string& mask, int64_t last, int64_t first, int chunk, int cluster,
                       int key_groups) {
    const std::string text = fmt::format(
        "kernel masked {{\n  %q = input 0 : f16[2,{0},64]\n  %k = input 1 : f16[2,{1},64]\n  %v = input 2 : f16[2,{1},64]\n  %i = iota 1 "
        "[1,{1}]\n  %j = iota 0 [{0},1]\n  %t = transpose (0,2,1) %k\n"
        "  %o = call grid(2,1,1) loop({2}) (%q, %t, %v, %i, %j) {{\n    %a = input 0 grid(0,-,-) : f16[1,{0},64]\n    %b = input 1 "
        "grid(0,-,-) loop(2) : f16[1,64,32]\n    %w = input 2 grid(0,-,-) loop(1) : f16[1,32,64]\n"
        "    %x = input 3 grid(-,-,-) loop(1) : real[1,32]\n    %y = input 4 grid(-,-,-) : real[{0},1]\n    %n = const -inf\n    %s = mul "
        "(matmul %a %b) 0.125\n    %z = {3}\n    %m = running (reduce.max 2 %z)\n"
        "    %p = exp (sub %z %m)\n    %l = accum.sum rescaled 1 (reduce.sum 2 %p) %m\n    %r = accum.sum rescaled 1 (matmul %p %w) %m\n   "
        " output 0 (div %r %l) grid(0,-,-) : f16\n  }}\n  output 0 %o : f16\n}}\n",
        queries, keys, (keys + 31) / 32, mask);
    const auto g = parse_graph(text);
    INFO(text << (g ? "" : g.errors()[0].text));
    REQUIRE(g);
    Program p = program_of(
        fmt::format(
            R"({{"version": "1.0", "name": "masked", "axes": {{"Q": {{"type": "const", "value": {}}}, "S": {{"type": "const", "value": {}}}}},
      "inputs": {{"q": {{"shape": [2, "Q", 64], "dtype": "float16"}}, "k": {{"shape": [2, "S", 64], "dtype": "float16"}}, "v": {{"shape": [2, "S", 64], "dtype": "float16"}}}}, "outputs": {{"o": {{"shape": [2, "Q", 64], "dtype": "float16"}}}},
      "nodes": [{{"op": "matmul", "inputs": ["q", "k"], "output": "s", "attrs": {{"transpose_b": true}}}}, {{"op": "softmax", "inputs": ["s"], "output": "p", "attrs": {{"axis": -1}}}}, {{"op": "matmul", "inputs": ["p", "v"], "output": "o"}}]}})",
            queries, keys),
        "masked");
    p.graph = *g;
    const Planned planned = make_plan(p, *g, target);
    REQUIRE(planned.plan);
    REQUIRE(planned.plan->kernels.size() == 1);   // nobody stores the positions
    const auto chosen = plan_in<AttendPlan>(planned.plan->kernels[0].body);
    REQUIRE(chosen);
    CHECK((*chosen)->shape.last.value_or(-1000) == last);
    CHECK((*chosen)->shape.first.value_or(-1000) == first);
    CHECK((*chosen)->shape.only_masks == (mask.rfind("where") == 0));   // below a second mask the scale stays where it is
    CHECK((*chosen)->key_known.empty());
    for (const AttendPlan& a : attend_candidates((*chosen)->body, (*chosen)->operands, (*chosen)->results, target).plans)
      if (a.chunk == chunk && a.cluster == cluster && a.key_groups == key_groups && a.blocks_per_sm == 1 && !a.warp_rings &&
          a.query_groups == 1) {
        Plan plan = *planned.plan;
        plan.kernels[0].body = body_with<AttendPlan>(a);
        cases.push_back(case_of(p, plan, target, fmt::format("c{}_", cases.size())));
        names.push_back(fmt::format("{} queries, {} keys, {}, chunk {}, cluster {}", queries, keys, mask, chunk, cluster));
        return;
      }
    FAIL("no such division: " << mask);
  };
  add(200, 200, "where (greater %x %y) %n %s", 0, -1000, 64, 1, 1);
  add(130, 260, "where (less (add %y 130) %x) %n %s", 130, -1000, 64, 2, 1);
  add(200, 200, "where (less %x (sub %y 40)) %n (where (greater %x %y) %n %s)", 0, -40, 64, 1, 2);
  check_emulations(cases, names, compiler, 0.5, false);   // a row that loses all its keys is undefined in the field
}
