// Tiles whose rows are the 64-row operand of wgmma (plan/tile/tile_turned.cc, runtime/69_turned.cuh), on the CPU: ranks whose lines lie as
// plain bytes, with gaps and along the reduction, weights either way, extents that nothing divides, gains along the rank, a bias, a number
// per row and a residual behind the sums, a batch; every division.
#include <variant>

#include <fmt/format.h>

#include "mirage/plan/alternatives.h"
#include "mirage/plan/bound.h"
#include "emulate/run_all.h"
#include "plan/attend/attend_plan.h"
#include "plan/block/block_plan.h"
#include "mirage/plan/cublas.h"
#include "mirage/plan/region.h"
#include "plan/stream/stream_plan.h"
#include "plan/tile/tile_plan.h"
#include "mirage/spec/text.h"
#include "unit/plan/plan_in.h"

using namespace mirage;
using namespace mirage::test;

namespace {

struct Turned {
  int m, k, n, rank;
  bool rank_turned, weight_turned, rides, batch;
  const char* type;
  int columns, row_groups, column_groups;
};

/// y = x w + 2 ((x a) g) b, and (y + bias) r + residual if `rides`.
Program program(const Turned& c) {
  const bool half = c.type == std::string("float16");
  const std::string t = half ? "f16" : "bf16", z = c.batch ? "2," : "";
  const auto tensor = [&](const char* name, const std::string& dims) {
    return fmt::format(R"("{}": {{"shape": [{}], "dtype": "{}"}})", name, dims, c.type);
  };
  const std::string w = c.weight_turned ? fmt::format("{}{},{}", z, c.n, c.k) : fmt::format("{}{},{}", z, c.k, c.n),
                    a = c.rank_turned ? fmt::format("{}{},{}", z, c.rank, c.k) : fmt::format("{}{},{}", z, c.k, c.rank);
  std::string inputs = tensor("x", fmt::format("{}{},{}", z, c.m, c.k)) + "," + tensor("w", w) + "," + tensor("a", a) + "," +
                       tensor("b", fmt::format("{}{},{}", z, c.rank, c.n)) + "," + tensor("g", std::to_string(c.rank));
  std::string nodes = fmt::format(
      R"({{"op": "matmul", "inputs": ["x", "w"], "output": "p", "attrs": {{"transpose_b": {}}}}}, {{"op": "matmul", "inputs": ["x", "a"], "output": "d", "attrs": {{"transpose_b": {}}}}},
    {{"op": "mul", "inputs": ["d", "g"], "output": "e"}}, {{"op": "matmul", "inputs": ["e", "b"], "output": "u"}}, {{"op": "mul", "inputs": ["u", 2.0], "output": "v"}}, {{"op": "add", "inputs": ["p", "v"], "output": "{}"}})",
      c.weight_turned, c.rank_turned, c.rides ? "s" : "y");
  if (c.rides) {
    inputs += "," + tensor("h", std::to_string(c.n)) + "," + tensor("r", fmt::format("{},1", c.m)) + "," +
              tensor("q", fmt::format("{},{}", c.m, c.n));
    nodes +=
        R"(, {"op": "add", "inputs": ["s", "h"], "output": "s1"}, {"op": "mul", "inputs": ["s1", "r"], "output": "s2"}, )"
        R"({"op": "add", "inputs": ["s2", "q"], "output": "y"})";
  }
  Program p = program_of(fmt::format(R"({{"version": "1.0", "name": "turned", "inputs": {{{}}}, "outputs": {{{}}}, "nodes": [{}]}})",
                                     inputs, tensor("y", fmt::format("{}{},{}", z, c.m, c.n)), nodes),
                         "turned");
  const std::string perm = c.batch ? "(0,2,1)" : "(1,0)", in = c.batch ? "grid(-,0,-)" : "grid(-,-,-)",
                    wide = c.batch ? "grid(2,0,-)" : "grid(1,-,-)", y = c.batch ? "1," : "";
  const int tile = c.n % 8 == 0 ? 8 : 4, depth = c.batch ? 1 : 0;
  std::string g = fmt::format(
      "kernel turned {{\n %x = input 0 : {0}[{1}{2},{3}]\n %w = input 1 : {0}[{4}]\n %a = input 2 : {0}[{5}]\n %b = input 3 : "
      "{0}[{1}{6},{7}]\n %g = input 4 : {0}[{6}]\n",
      t, z, c.m, c.k, w, a, c.rank, c.n);
  if (c.rides) g += fmt::format(" %h = input 5 : {0}[{1}]\n %r = input 6 : {0}[{2},1]\n %q = input 7 : {0}[{2},{1}]\n", t, c.n, c.m);
  if (c.weight_turned) g += fmt::format(" %wt = transpose {} %w\n", perm);
  if (c.rank_turned) g += fmt::format(" %at = transpose {} %a\n", perm);
  g += fmt::format(" %y = call grid({},{},1) loop({}) (%x, %{}, %{}, %b, %g{}) {{\n", c.n / tile, c.batch ? 2 : 1, c.k / 8,
                   c.weight_turned ? "wt" : "w", c.rank_turned ? "at" : "a", c.rides ? ", %h, %r, %q" : "");
  g += fmt::format(
      "  %p = input 0 {0} loop({1}) : {2}[{3}{4},8]\n  %i = input 1 {5} loop({6}) : {2}[{3}8,{7}]\n  %j = input 2 {0} loop({6}) : "
      "{2}[{3}8,{8}]\n  %f = input 3 {5} : {2}[{3}{8},{7}]\n  %e = input 4 grid(-,-,-) : {2}[{8}]\n",
      in, depth + 1, t, y, c.m, wide, depth, tile, c.rank);
  g += "  %o = add (accum.sum (matmul %p %i)) (mul 2 (matmul (mul (accum.sum (matmul %p %j)) %e) %f))\n";
  if (c.rides) {
    g += fmt::format(
        "  %k = input 5 grid(0,-,-) : {0}[{1}]\n  %l = input 6 grid(-,-,-) : {0}[{2},1]\n  %n = input 7 grid(1,-,-) : {0}[{2},{1}]\n  %z = "
        "add (mul (add %o %k) %l) %n\n",
        t, tile, c.m);
  }
  g += fmt::format("  output 0 %{} {} : {}\n }}\n output 0 %y : {}\n}}\n", c.rides ? "z" : "o", wide, t, t);
  const auto graph = parse_graph(g);
  INFO(g << (graph ? "" : graph.errors()[0].text));
  REQUIRE(graph);
  p.graph = *graph;
  return p;
}

}  // namespace

TEST_CASE("rows as the 64-row operand of wgmma are right on the CPU") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  const std::vector<Turned> wanted = {
      {64, 128, 128, 16, false, false, false, false, "float16", 128, 1, 1},   // nothing ragged
      {34, 72, 72, 16, false, false, true, false, "bfloat16", 64, 1, 2},      // plain bytes of the rank that end within a chunk
      // everything along the reduction; results that are no whole lines
      {66, 72, 76, 24, true, true, true, false, "float16", 64, 2, 1},
      {20, 72, 104, 64, false, true, false, true, "bfloat16", 64, 1, 2},      // a batch
  };
  for (const Turned& c : wanted) {
    const std::string name = fmt::format("{} x {} x {}, rank {}, {}, {} columns, {} x {} warpgroups", c.m, c.k, c.n, c.rank, c.type,
                                         c.columns, c.row_groups, c.column_groups);
    INFO(name);
    const Program p = program(c);
    const Planned planned = make_plan(p, p.graph, target);
    REQUIRE(planned.plan);
    bool found = false;
    std::string reasons;
    for (size_t i = 0; i < planned.plan->kernels.size() && !found; i++) {
      const std::span<const KernelCall> calls = bound_calls(planned.plan->kernels[i]);
      if (calls.empty()) continue;
      const TileCandidates all = tile_candidates(calls[0].body, calls[0].operands, calls[0].results, target, contract_rule(p));
      reasons += all.reason + "; ";
      for (const TilePlan& t : all.plans) {
        if (t.turned) reasons += fmt::format("{} {} {}, ", t.turned, t.row_groups, t.column_groups);
        if (t.turned != c.columns || t.row_groups != c.row_groups || t.column_groups != c.column_groups) continue;
        Plan plan = *planned.plan;
        plan.kernels[i].body = body_with<TilePlan>(t);
        cases.push_back(case_of(p, plan, target, fmt::format("t{}_", cases.size())));
        names.push_back(name + "\n" + division_text(plan.kernels[i]));
        found = true;
        break;
      }
    }
    INFO(reasons);
    CHECK(found);
  }
  check_emulations(cases, names, compiler, 0.5, true);
}
