// Streams of lines that begin anywhere (runtime/45_stream_uneven.cuh) on the CPU, in every division that fits: weights in both orders whose
// lines begin in any of eight places, rows and reductions that end within a vector, even weights beside uneven ones, computed operands and
// statistics, low ranks, many rows, batches, padded lines.
#include <set>
#include <tuple>
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

/// weights: their lines are uneven, not only those of x
struct Uneven {
  std::string name, type;
  int rows, depth, columns;
  bool lines;
  std::string nodes, inputs;
  bool weights = true;
  int pitch = 0;
};

const char* const kPlain = R"({"op": "matmul", "inputs": ["x", "w"], "output": "y", "attrs": {"transpose_b": TB}})";

std::vector<Uneven> programs() {
  const std::string bias =
      R"({"op": "matmul", "inputs": ["x", "w"], "output": "p", "attrs": {"transpose_b": TB}}, )"
      R"({"op": "add", "inputs": ["p", "c"], "output": "q"}, {"op": "add", "inputs": ["q", "r"], "output": "y"})";
  const std::string two =
      R"({"op": "matmul", "inputs": ["x", "w"], "output": "p"}, {"op": "matmul", "inputs": ["x", "v"], )"
      R"("output": "q", "attrs": {"transpose_b": true}}, {"op": "silu", "inputs": ["p"], "output": "s"}, )"
      R"({"op": "mul", "inputs": ["s", "q"], "output": "y"})";
  const std::string rank =
      R"({"op": "matmul", "inputs": ["x", "w"], "output": "p"}, {"op": "matmul", "inputs": ["x", "a"], "output": "d"}, )"
      R"({"op": "matmul", "inputs": ["d", "b"], "output": "u"}, {"op": "add", "inputs": ["p", "u"], "output": "y"})";
  return {
      {"odd columns", "float16", 5, 136, 77, false, kPlain, ""},
      {"columns by fours, bias and residual", "bfloat16", 11, 72, 100, false, bias,
       R"("c": {"shape": [100], "dtype": "bfloat16"}, "r": {"shape": [11, 100], "dtype": "bfloat16"})"},
      {"columns by twos, reduction by fours", "float16", 3, 100, 66, false, kPlain, ""},
      {"all odd", "bfloat16", 17, 91, 129, false, kPlain, ""},
      {"odd reduction, even columns", "float16", 9, 131, 72, false, kPlain, "", false},
      {"lines along the reduction", "float16", 7, 203, 70, true, bias,
       R"("c": {"shape": [70], "dtype": "float16"}, "r": {"shape": [7, 70], "dtype": "float16"})"},
      {"lines along the reduction, by twos", "bfloat16", 16, 330, 65, true, kPlain, ""},
      {"an even weight beside an uneven one", "float16", 13, 99, 72, false, two, R"("v": {"shape": [72, 99], "dtype": "float16"})"},
      {"low rank", "float16", 4, 150, 71, false, rank,
       R"("a": {"shape": [150, 16], "dtype": "float16"}, "b": {"shape": [16, 71], "dtype": "float16"})"},
      {"many rows", "float16", 52, 104, 69, false, kPlain, ""},
      {"padded lines", "float16", 5, 96, 64, false, kPlain, "", true, 67},
  };
}

Program program(const Uneven& u) {
  std::string nodes = u.nodes;
  for (size_t at; (at = nodes.find("TB")) != std::string::npos;) nodes.replace(at, 2, u.lines ? "true" : "false");
  const int lines = u.lines ? u.columns : u.depth, length = u.lines ? u.depth : u.columns;
  const std::string strides = u.pitch ? fmt::format(R"(, "strides": [{}, 1])", u.pitch) : "";
  return program_of(
      fmt::format(
          R"({{"version": "1.0", "name": "uneven", "inputs": {{"x": {{"shape": [{0}, {1}], "dtype": "{4}"}}, "w": {{"shape": [{2}, )"
          R"({3}], "dtype": "{4}"{5}}}{6}{7}}}, "outputs": {{"y": {{"shape": [{0}, {8}], "dtype": "{4}"}}}}, "nodes": [{9}]}})",
          u.rows, u.depth, lines, length, u.type, strides, u.inputs.empty() ? "" : ", ", u.inputs, u.columns, nodes),
      u.name);
}

}  // namespace

TEST_CASE("streams of lines that begin anywhere are right on the CPU") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  for (const Uneven& u : programs()) {
    INFO(u.name);
    const Program p = program(u);
    std::set<std::tuple<int, int, bool, int>> seen;
    bool uneven = false;   // some weight is
    for (const NamedPlan& n : plans_of(p, target, 20000))
      for (size_t i = 0; i < n.plan.kernels.size(); i++)
        for (const KernelPlan& a : kernel_alternatives(n.plan.kernels[i], target, contract_rule(p), 400)) {
          const auto s = plan_in<StreamPlan>(a.body);
          if (!s || !(*s)->beside.empty()) continue;
          const StreamPlan& plan = **s;
          CHECK_FALSE(
              (plan.registers && std::any_of(plan.weights.begin(), plan.weights.end(), [](const StreamWeight& w) { return w.uneven; })));
          if (!seen.emplace(plan.chunk, std::min(plan.stages, 2), plan.cluster > 1, static_cast<int>(plan.weights.size())).second) continue;
          if (std::any_of(plan.weights.begin(), plan.weights.end(), [](const StreamWeight& w) { return w.uneven; }))
            CHECK(std::all_of(plan.weights.begin(), plan.weights.end(),
                              [](const StreamWeight& w) { return w.uneven == (w.free == StreamAxis::kCol); }));
          uneven = uneven || std::any_of(plan.weights.begin(), plan.weights.end(), [](const StreamWeight& w) { return w.uneven; });
          Plan one = n.plan;
          one.kernels[i].body = a.body;
          names.push_back(fmt::format("{}, {}: {} warps, {} stages, chunk {}, cluster {}", u.name, n.name, plan.warps, plan.stages,
                                      plan.chunk, plan.cluster));
          cases.push_back(case_of(p, one, target, fmt::format("u{}_", cases.size())));
        }
    CHECK(seen.size() >= 2);
    CHECK(uneven == u.weights);
  }
  check_emulations(cases, names, compiler, 0.95, true);
}

TEST_CASE("rows that a stream of uneven lines computes and reduces end where they end") {   // what is computed of nothing is not zero
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  struct Computed { const char *name, *type, *nodes, *row, *finish; int columns; bool even; };
  const std::string exps =
      R"({"op": "exp", "inputs": ["x"], "output": "e"}, {"op": "sum", "inputs": ["e"], )"
      R"("output": "z", "attrs": {"axis": -1, "keepdim": true}}, {"op": "matmul", "inputs": ["e", "w"], "output": "p"}, )"
      R"({"op": "div", "inputs": ["p", "z"], "output": "y"})";
  const std::string most =
      R"({"op": "neg", "inputs": ["x"], "output": "f"}, {"op": "sub", "inputs": ["f", 9.0], "output": "e"}, )"
      R"({"op": "max", "inputs": ["e"], "output": "z", "attrs": {"axis": -1, "keepdim": true}}, )"
      R"({"op": "matmul", "inputs": ["e", "w"], "output": "p"}, {"op": "sub", "inputs": ["p", "z"], "output": "y"})";
  const Computed all[] = {
      {"exponentials and their sum", "bfloat16", exps.c_str(), "%e = exp %a\n    %z = accum.sum (reduce.sum 1 %e)", "div", 67, false},
      {"exponentials and their sum, scaled by row", "float16", exps.c_str(), "%e = exp %a\n    %z = accum.sum (reduce.sum 1 %e)", "div", 67,
       false},
      {"exponentials and their sum, an even weight", "float16", exps.c_str(), "%e = exp %a\n    %z = accum.sum (reduce.sum 1 %e)", "div",
       72, true},
      {"numbers below zero and their maximum", "bfloat16", most.c_str(), "%e = sub (neg %a) 9.0\n    %z = accum.max (reduce.max 1 %e)",
       "sub", 67, false}};
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  int scaled = 0;
  for (const Computed& c : all) {
    INFO(c.name);
    const std::string f = std::string(c.type) == "float16" ? "f16" : "bf16";
    Program p = program({c.name, c.type, 6, 141, c.columns, false, c.nodes, ""});
    const auto g = parse_graph(
        fmt::format("kernel uneven {{\n  %x = input 0 : {0}[6,141]\n  %w = input 1 : {0}[141,{1}]\n  %y = call grid({2},1,1) loop(18) (%x, "
                    "%w) {{\n    %a = input 0 grid(-,-,-) loop(1) : {0}[6,8]\n    %b = input 1 grid(1,-,-) loop(0) : {0}[8,8]\n    {3}\n"
                    "    %o = {4} (accum.sum (matmul %e %b)) %z\n    output 0 %o grid(1,-,-) : {0}\n  }}\n  output 0 %y : {0}\n}}\n",
                    f, c.columns, (c.columns + 7) / 8, c.row, c.finish));
    INFO((g ? "" : g.errors()[0].text));
    REQUIRE(g);
    p.graph = *g;
    const Planned planned = make_plan(p, p.graph, target);
    INFO(planned.reason);
    REQUIRE(planned.plan);
    const size_t before = cases.size();
    std::set<int> chunks;
    for (const KernelPlan& a : kernel_alternatives(planned.plan->kernels[0], target, contract_rule(p), 400)) {
      const auto s = plan_in<StreamPlan>(a.body);
      if (!s || !chunks.insert((*s)->chunk).second) continue;
      CHECK((*s)->weights[0].uneven != c.even);
      CHECK((*s)->statistics.size() == 1);
      scaled += (*s)->contractions[0].scaled;
      Plan one = *planned.plan;
      one.kernels[0].body = a.body;
      cases.push_back(case_of(p, one, target, fmt::format("r{}_", cases.size())));
      names.push_back(fmt::format("{}, chunk {}", c.name, (*s)->chunk));
    }
    CHECK(cases.size() > before);
  }
  CHECK(scaled > 0);
  check_emulations(cases, names, compiler, 0.95, false);
}

TEST_CASE("a batch of products whose weights begin anywhere") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  const Program p = program_of(
      R"({"version": "1.0", "name": "uneven", "inputs": {"x": {"shape": [3, 9, 91], "dtype": "float16"}, "w": {"shape": [3, 91, 45], "dtype": "float16"}}, "outputs": {"y": {"shape": [3, 9, 45], "dtype": "float16"}},
    "nodes": [{"op": "matmul", "inputs": ["x", "w"], "output": "y"}]})",
      "uneven");
  const Planned planned = make_plan(p, p.graph, target);
  REQUIRE(planned.plan);
  std::vector<EmulationCase> cases;
  for (const KernelPlan& a : kernel_alternatives(planned.plan->kernels[0], target, contract_rule(p), 400))
    if (holds<StreamPlan>(a.body) && cases.size() < 4) {
      Plan one = *planned.plan;
      one.kernels[0].body = a.body;
      cases.push_back(case_of(p, one, target, fmt::format("b{}_", cases.size())));
    }
  REQUIRE(!cases.empty());
  check_emulations(cases, {}, compiler, 0.95, true);
}
