// Rows that a weight stream computes for float16 products, each times a power of two that follows what has been seen of the row
// (StreamContraction::scaled, runtime/43_stream_lines.cuh), on the CPU: ordinary rows, rows whose magnitude grows by forty orders along the
// reduction, beside a low rank and with two weights, reductions that end inside a chunk.
#include <algorithm>
#include <variant>

#include <fmt/format.h>

#include "emulate/run_all.h"
#include "mirage/plan/alternatives.h"
#include "plan/stream/stream_plan.h"
#include "mirage/spec/text.h"
#include "unit/plan/plan_in.h"

using namespace mirage;
using namespace mirage::test;

namespace {

/// y = (x e^(grow v)) w [+ ((x e^(grow v)) a) b] of float32, in plans that are `wanted`.
struct Kind { const char* name; int rows, depth, grow; bool rank; bool (*wanted)(const StreamPlan&); };

EmulationCase make(const Kind& k, const Target& target, int number) {
  const std::string low = k.rank ? "    %r = input 3 grid(-,-,-) loop(0) : f16[8,16]\n    %s = input 4 grid(1,-,-) : f16[16,8]\n" : "";
  const std::string sum = "(accum.sum (matmul %e %q))", y = k.rank ? "(add " + sum + " (matmul (accum.sum (matmul %e %r)) %s))" : sum;
  const auto g = parse_graph(
      fmt::format("kernel rows {{\n  %x = input 0 : f16[{0},{1}]\n  %v = input 1 : f16[{1}]\n  %w = input 2 : f16[{1},136]\n{2}  %y = call "
                  "grid(17,1,1) loop({3}) (%x, %v, %w{4}) {{\n    %p = input 0 grid(-,-,-) loop(1) : f16[{0},8]\n"
                  "    %u = input 1 grid(-,-,-) loop(0) : f16[8]\n    %q = input 2 grid(1,-,-) loop(0) : f16[8,8]\n{5}    %e = mul %p (exp "
                  "(mul %u {6}.0))\n    %d = {7}\n    output 0 %d grid(1,-,-) : f32\n  }}\n  output 0 %y : f32\n}}\n",
                  k.rows, k.depth, k.rank ? fmt::format("  %a = input 3 : f16[{},16]\n  %b = input 4 : f16[16,136]\n", k.depth) : "",
                  k.depth / 8, k.rank ? ", %a, %b" : "", low, k.grow, y));
  INFO((g ? "" : g.errors()[0].text));
  REQUIRE(g);
  const std::string more =
      k.rank ? fmt::format(R"(, "a": {{"shape": [{}, 16], "dtype": "float16"}}, "b": {{"shape": [16, 136], "dtype": "float16"}})", k.depth)
             : "";
  const std::string nodes =
      k.rank
          ? R"({"op": "matmul", "inputs": ["e", "w"], "output": "m"}, {"op": "matmul", "inputs": ["e", "a"], "output": "t"}, )"
            R"({"op": "matmul", "inputs": ["t", "b"], "output": "n"}, {"op": "add", "inputs": ["m", "n"], "output": "y"})"
          : R"({"op": "matmul", "inputs": ["e", "w"], "output": "y"})";
  Program p = program_of(
      fmt::format(
          R"({{"version": "1.0", "name": "rows", "inputs": {{"x": {{"shape": [{0}, {1}], "dtype": "float16"}}, "v": {{"shape": [{1}], "dtype": "float16"}}, "w": {{"shape": [{1}, 136], "dtype": "float16"}}{2}}},
      "outputs": {{"y": {{"shape": [{0}, 136], "dtype": "float32"}}}}, "nodes": [{{"op": "mul", "inputs": ["v", {3}.0], "output": "s"}}, {{"op": "exp", "inputs": ["s"], "output": "g"}}, {{"op": "mul", "inputs": ["x", "g"], "output": "e"}}, {4}]}})",
          k.rows, k.depth, more, k.grow, nodes),
      "rows");
  p.graph = *g;
  const Planned planned = make_plan(p, *g, target);
  REQUIRE(planned.plan);
  REQUIRE(planned.plan->kernels.size() == 1);
  Plan plan = *planned.plan;
  const std::vector<KernelPlan> all = kernel_alternatives(plan.kernels[0], target, {DType::kF16, false}, 1 << 20);
  const auto one = std::find_if(all.begin(), all.end(), [&](const KernelPlan& a) {
    const auto s = plan_in<StreamPlan>(a.body);
    return s && (*s)->contractions[0].scaled && k.wanted(**s);
  });
  REQUIRE(one != all.end());
  plan.kernels[0] = *one;
  return case_of(p, plan, target, fmt::format("r{}_", number));
}

}  // namespace

TEST_CASE("rows in float16 follow their magnitude through a weight stream", "[emulate]") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  const Kind kinds[] = {
      {"ordinary", 9, 288, 1, false, [](const StreamPlan& s) { return !s.registers && s.warps == 1 && s.cluster == 2 && s.chunk == 64; }},
      {"growing", 9, 288, 20, false, [](const StreamPlan& s) { return !s.registers && s.warps == 1 && s.cluster == 1 && s.chunk == 32; }},
      {"growing, low rank", 20, 288, 20, true,
       [](const StreamPlan& s) { return !s.registers && s.warps == 2 && s.cluster == 1 && s.chunk == 32; }},
      {"straight to registers", 5, 256, 20, true, [](const StreamPlan& s) { return s.registers; }},
  };
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  for (const Kind& k : kinds) {
    INFO(k.name);
    cases.push_back(make(k, target, static_cast<int>(cases.size())));
    names.push_back(k.name);
  }
  check_emulations(cases, names, compiler, 1, true);
}
