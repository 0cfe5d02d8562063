// What rides along beside weights, on the CPU: low ranks that warps add up beside wgmma (TileRank, TileRankSum of 68_tile.cuh) in every
// layout and number of rows, and rows that become the products' operand once (StreamPlan::prepared, Prepared of 41_stream.cuh). Extents
// that nothing divides, both types.
#include <set>
#include <variant>

#include <fmt/format.h>

#include "mirage/plan/alternatives.h"
#include "mirage/plan/bound.h"
#include "emulate/helpers.h"
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

std::string tensor(const std::string& name, const std::string& dims, const std::string& dtype) {
  return fmt::format(R"("{}": {{"shape": [{}], "dtype": "{}"}})", name, dims, dtype);
}
std::string spec(const std::string& inputs, const std::string& nodes, const std::string& output) {
  return fmt::format(R"({{"version": "1.0", "name": "along", "inputs": {{{}}}, "outputs": {{{}}}, "nodes": [{}]}})", inputs, output, nodes);
}

/// A program and the kernel graph that is to be planned for it.
struct Case { std::string name; Program program; };
Case case_with(const std::string& name, const std::string& text, const std::string& graph) {
  const auto g = parse_graph(graph);
  INFO(name << ": " << (g ? "" : g.errors()[0].text));
  REQUIRE(g);
  Case c{name, program_of(text, name)};
  c.program.graph = *g;
  return c;
}

/// x w + (x a) b; a with lines along the reduction if `turned`.
Case adapter(int m, int k, int n, int rank, bool turned, const char* t) {
  const std::string half = t == std::string("float16") ? "f16" : "bf16";
  const std::string text = spec(
      tensor("x", fmt::format("{}, {}", m, k), t) + "," + tensor("w", fmt::format("{}, {}", k, n), t) + "," +
          tensor("a", turned ? fmt::format("{}, {}", rank, k) : fmt::format("{}, {}", k, rank), t) + "," +
          tensor("b", fmt::format("{}, {}", rank, n), t),
      fmt::format(
          R"({{"op": "matmul", "inputs": ["x", "w"], "output": "p"}}, {{"op": "matmul", "inputs": ["x", "a"], "output": "d", "attrs": {{"transpose_b": {}}}}}, {{"op": "matmul", "inputs": ["d", "b"], "output": "u"}},
                {{"op": "add", "inputs": ["p", "u"], "output": "y"}})",
          turned),
      tensor("y", fmt::format("{}, {}", m, n), t));
  std::string g = fmt::format(
      "kernel along {{\n %x = input 0 : {0}[{1},{2}]\n %w = input 1 : {0}[{2},{3}]\n %a = input 2 : {0}[{5}]\n %b = input 3 : "
      "{0}[{4},{3}]\n",
      half, m, k, n, rank, turned ? fmt::format("{},{}", rank, k) : fmt::format("{},{}", k, rank));
  if (turned) g += " %t = transpose (1,0) %a\n";
  g += fmt::format(
      " %y = call grid({6},1,1) loop({7}) (%x, %w, %{5}, %b) {{\n  %p = input 0 grid(-,-,-) loop(1) : {0}[{1},8]\n  %q = input 1 "
      "grid(1,-,-) loop(0) : {0}[8,8]\n  %r = input 2 grid(-,-,-) loop(0) : {0}[8,{4}]\n  %s = input 3 grid(1,-,-) : {0}[{4},8]\n"
      "  %d = add (accum.sum (matmul %p %q)) (matmul (accum.sum (matmul %p %r)) %s)\n  output 0 %d grid(1,-,-) : {0}\n }}\n output 0 %y : "
      "{0}\n}}\n",
      half, m, k, n, rank, turned ? "t" : "a", n / 8, k / 8);
  return case_with(fmt::format("{} x {} x {}, rank {}, {}{}", m, k, n, rank, t, turned ? ", lines along the reduction" : ""), text, g);
}

/// Layer norm with gain and shift, then a linear layer; its rows are reduced before the loop.
Case normed(int m, int k, int n, const char* t) {
  const std::string half = t == std::string("float16") ? "f16" : "bf16";
  const std::string text = spec(
      tensor("x", fmt::format("{}, {}", m, k), t) + "," + tensor("g", std::to_string(k), t) + "," + tensor("s", std::to_string(k), t) +
          "," + tensor("w", fmt::format("{}, {}", k, n), t),
      R"({"op": "layer_norm", "inputs": ["x", "g", "s"], "output": "h", "attrs": {"axis": -1, "eps": 1e-5}}, )"
      R"({"op": "matmul", "inputs": ["h", "w"], "output": "y"})",
      tensor("y", fmt::format("{}, {}", m, n), t));
  return case_with(
      fmt::format("{} x {} x {}, {}", m, k, n, t), text,
      fmt::format(
          "kernel normed {{\n %x = input 0 : {0}[{1},{2}]\n %g = input 1 : {0}[{2}]\n %s = input 2 : {0}[{2}]\n %w = input 3 : "
          "{0}[{2},{3}]\n %y = call grid({4},1,1) loop({5}) (%x, %g, %s, %w) {{\n  %a = input 0 grid(-,-,-) loop(-) : {0}[{1},{2}]\n"
          "  %b = input 0 grid(-,-,-) loop(1) : {0}[{1},8]\n  %c = input 1 grid(-,-,-) loop(0) : {0}[8]\n  %d = input 2 grid(-,-,-) "
          "loop(0) : {0}[8]\n  %e = input 3 grid(1,-,-) loop(0) : {0}[8,8]\n  %n = const {2} extent 0.1\n"
          "  %mean = div (reduce.sum 1 %a) %n\n  %var = div (reduce.sum 1 (square (sub %a %mean))) %n\n  %h = add %d (mul %c (div (sub %b "
          "%mean) (sqrt (add %var 1e-05))))\n  %o = accum.sum (matmul %h %e)\n  output 0 %o grid(1,-,-) : {0}\n }}\n"
          " output 0 %y : {0}\n}}\n",
          half, m, k, n, n / 8, k / 8));
}

struct Batch {
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  void add(const Program& p, const Plan& plan, const Target& target, const std::string& name) {
    cases.push_back(case_of(p, plan, target, fmt::format("r{}_", cases.size())));
    names.push_back(name);
  }
  void run(const std::string& compiler) const {
    std::vector<const EmulationCase*> all;
    for (const EmulationCase& c : cases) all.push_back(&c);
    const EmulationLibrary library = build_emulation(all, compiler, emulation_folder());
    INFO(library.error);
    REQUIRE(library.error.empty());
    for (size_t i = 0; i < cases.size(); i++)
      for (EmulationMode mode : {EmulationMode::kField, EmulationMode::kFloat}) {
        const EmulationOutcome o = run_emulation(cases[i], library.path, mode, 3, {});
        INFO(names[i] << ", " << mode_name(mode) << ": " << o.reason << (o.findings.empty() ? "" : "; " + o.findings.front().kind));
        CHECK(o.ok);
        CHECK(o.compared * 2 >= o.elements);
      }
  }
};

}  // namespace

TEST_CASE("low ranks beside wgmma are right on the CPU") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  Batch batch;
  struct Wanted { Case c; int group_rows, padded; bool packed; };
  const std::vector<Wanted> wanted = {
      {adapter(70, 192, 136, 16, false, "float16"), 80, 16, true},
      {adapter(40, 200, 72, 16, false, "bfloat16"), 48, 16, true},      // a ragged reduction
      {adapter(33, 136, 72, 24, false, "float16"), 48, 32, false},
      {adapter(120, 192, 136, 32, false, "bfloat16"), 128, 32, true},
      {adapter(20, 192, 72, 64, false, "float16"), 32, 64, true},
      {adapter(60, 200, 136, 8, true, "bfloat16"), 64, 16, false},
      {adapter(24, 128, 72, 40, true, "float16"), 32, 64, false},
  };
  for (const auto& [c, group_rows, padded, packed] : wanted) {
    INFO(c.name);
    const Planned planned = make_plan(c.program, c.program.graph, target);
    REQUIRE(planned.plan);
    int divided = 0;
    for (size_t i = 0; i < planned.plan->kernels.size(); i++) {
      const std::span<const KernelCall> calls = bound_calls(planned.plan->kernels[i]);
      if (calls.empty()) continue;
      const TileCandidates all = tile_candidates(calls[0].body, calls[0].operands, calls[0].results, target, contract_rule(c.program));
      std::set<std::tuple<int, int, int>> seen;
      for (const TilePlan& t : all.plans) {
        // the one asked for, few rows, and two columns of warpgroups
        const bool wants = t.group_rows == group_rows ? t.cluster == 1 : t.group_rows == 16 || t.column_groups == 2;
        if (!wants || t.blocks_per_sm > 1 || divided == 3 || !seen.insert({t.group_rows, t.column_groups, t.cluster}).second) continue;
        for (const StreamWeight& w : t.weights) if (w.free == StreamAxis::kRank) CHECK((w.padded == padded && w.packed == packed));
        Plan plan = *planned.plan;
        plan.kernels[i].body = body_with<TilePlan>(t);
        batch.add(c.program, plan, target, c.name + "\n" + division_text(plan.kernels[i]));
        divided++;
      }
    }
    CHECK(divided == 3);
  }
  batch.run(compiler);
}

TEST_CASE("rows that become the products' operand once are right on the CPU") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  Batch batch;
  for (const Case& c : {normed(5, 1024, 72, "float16"), normed(8, 1024, 136, "bfloat16"), normed(13, 512, 72, "float16")}) {
    INFO(c.name);
    const Planned planned = make_plan(c.program, c.program.graph, target);
    REQUIRE(planned.plan);
    REQUIRE(planned.plan->kernels.size() == 1);
    const auto stream = plan_in<StreamPlan>(planned.plan->kernels[0].body);
    REQUIRE(stream);
    std::set<std::tuple<int, int, int>> seen;
    for (const StreamPlan& s :
         stream_candidates((*stream)->body, (*stream)->operands, (*stream)->results, target, contract_rule(c.program)).plans) {
      if (!s.prepared || s.stages > 2 || !seen.insert({s.warps, s.chunk, s.cluster}).second) continue;
      Plan plan = *planned.plan;
      plan.kernels[0].body = body_with<StreamPlan>(s);
      batch.add(c.program, plan, target, c.name + "\n" + division_text(plan.kernels[0]));
    }
    CHECK(seen.size() >= 2);
  }
  batch.run(compiler);
}
