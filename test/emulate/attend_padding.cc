// Attention on the CPU whose features and columns are no multiple of 64 (matrix instructions leave their padding out:
// AttendPlan::used_features), with a bias per query and key, which threads ask for in pairs ahead of the scores (attend_fetch), or one by
// one where pairs do not lie at multiples of their size.
#include <variant>

#include <fmt/format.h>

#include "emulate/run_all.h"
#include "plan/attend/attend_plan.h"
#include "plan/block/block_plan.h"
#include "mirage/spec/text.h"
#include "unit/plan/plan_in.h"

using namespace mirage;
using namespace mirage::test;

TEST_CASE("attention with padding and a bias per score is right on the CPU") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  const auto add = [&](const char* type, int queries, int keys, int features, int columns, bool warps, bool pairs) {
    const std::string text = fmt::format(
        "kernel biased {{\n  %q = input 0 : {5}[2,{0},{2}]\n  %k = input 1 : {5}[2,{1},{2}]\n  %v = input 2 : {5}[2,{1},{3}]\n  %b = input "
        "3 : {5}[2,{0},{1}]\n  %t = transpose (0,2,1) %k\n"
        "  %o = call grid(2,1,1) loop({4}) (%q, %t, %v, %b) {{\n    %a = input 0 grid(0,-,-) : {5}[1,{0},{2}]\n    %c = input 1 "
        "grid(0,-,-) loop(2) : {5}[1,{2},32]\n    %w = input 2 grid(0,-,-) loop(1) : {5}[1,32,{3}]\n"
        "    %x = input 3 grid(0,-,-) loop(2) : {5}[1,{0},32]\n    %s = mul (matmul %a %c) 0.125\n    %z = add %s %x\n    %m = running "
        "(reduce.max 2 %z)\n"
        "    %p = exp (sub %z %m)\n    %l = accum.sum rescaled 1 (reduce.sum 2 %p) %m\n    %r = accum.sum rescaled 1 (matmul %p %w) %m\n   "
        " output 0 (div %r %l) grid(0,-,-) : {5}\n  }}\n  output 0 %o : {5}\n}}\n",
        queries, keys, features, columns, (keys + 31) / 32, type);
    const auto g = parse_graph(text);
    INFO(text << (g ? "" : g.errors()[0].text));
    REQUIRE(g);
    Program p = program_of(
        fmt::format(
            R"({{"version": "1.0", "name": "biased", "inputs": {{"q": {{"shape": [2, {0}, {2}], "dtype": "{4}"}}, "k": {{"shape": [2, {1}, {2}], "dtype": "{4}"}}, "v": {{"shape": [2, {1}, {3}], "dtype": "{4}"}},
      "b": {{"shape": [2, {0}, {1}], "dtype": "{4}"}}}}, "outputs": {{"o": {{"shape": [2, {0}, {3}], "dtype": "{4}"}}}},
      "nodes": [{{"op": "matmul", "inputs": ["q", "k"], "output": "s", "attrs": {{"transpose_b": true}}}}, {{"op": "mul", "inputs": ["s", 0.125], "output": "t"}}, {{"op": "add", "inputs": ["t", "b"], "output": "u"}},
        {{"op": "softmax", "inputs": ["u"], "output": "p", "attrs": {{"axis": -1}}}}, {{"op": "matmul", "inputs": ["p", "v"], "output": "o"}}]}})",
            queries, keys, features, columns, type[0] == 'b' ? "bfloat16" : "float16"),
        "biased");
    p.graph = *g;
    const Planned planned = make_plan(p, *g, target);
    REQUIRE(planned.plan);
    REQUIRE(planned.plan->kernels.size() == 1);
    const auto chosen = plan_in<AttendPlan>(planned.plan->kernels[0].body);
    REQUIRE(chosen);
    CHECK((*chosen)->used_features() == (features + 15) / 16 * 16);
    CHECK((*chosen)->used_columns() == (columns + 15) / 16 * 16);
    for (const AttendPlan& a : attend_candidates((*chosen)->body, (*chosen)->operands, (*chosen)->results, target).plans)
      if (a.warp_rings == warps && a.chunk == 64 - 32 * warps && a.cluster == 1 && a.meets == 1 && a.blocks_per_sm == 1 &&
          a.query_groups == 1 && a.stages == 1 + !warps && a.key_groups == (warps ? 4 : 1)) {
        Plan plan = *planned.plan;
        plan.kernels[0].body = body_with<AttendPlan>(a);
        cases.push_back(case_of(p, plan, target, fmt::format("c{}_", cases.size())));
        names.push_back(fmt::format("{} queries, {} keys, {} features, {} columns", queries, keys, features, columns));
        CHECK((cases.back().kernels[0].source.find("kFetches = true") != std::string::npos) == pairs);
        return;
      }
    FAIL("no such division");
  };
  add("f16", 70, 200, 40, 72, false, true);
  add("bf16", 9, 136, 80, 24, true, true);
  add("f16", 70, 133, 96, 8, false, false);   // an odd number of keys
  check_emulations(cases, names, compiler, 0.5, true);
}
