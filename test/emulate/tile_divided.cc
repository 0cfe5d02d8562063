// Large tiles whose reduction the blocks of a cluster divide (68_tile.cuh, tile_deal), and whose results and residuals pass through shared
// memory as whole lines, on the CPU: uneven shares, sums received over the finished ring, extents that nothing divides, both types.
// What the tail needs of a row beside its sums (functions of its statistics), made once for each row (StreamText::made_): quotients by
// roots, by what is bounded from below, by what is not, two values of two statistics, results of 16 and 32 bits.
#include <algorithm>
#include <variant>

#include <fmt/format.h>

#include "emulate/helpers.h"
#include "emulate/run_all.h"
#include "mirage/plan/alternatives.h"
#include "plan/tile/tile_plan.h"
#include "mirage/spec/text.h"
#include "plan/tile/tile_internal.h"
#include "unit/plan/plan_in.h"

using namespace mirage;
using namespace mirage::test;

namespace {

std::string tensor(const std::string& name, const std::string& dims, const std::string& dtype) {
  return fmt::format(R"("{}": {{"shape": [{}], "dtype": "{}"}})", name, dims, dtype);
}

struct Divided { int m, k, n; const char* dtype; bool gated; TileChoice choice; };

/// x w (times x v) plus a bias plus a residual, in one kernel.
Program program(const Divided& d) {
  const std::string half = d.dtype == std::string("float16") ? "f16" : "bf16", x = fmt::format("{}, {}", d.m, d.k),
                    w = fmt::format("{}, {}", d.k, d.n), y = fmt::format("{}, {}", d.m, d.n);
  std::string inputs = tensor("x", x, d.dtype) + "," + tensor("w", w, d.dtype) + "," + tensor("b", std::to_string(d.n), d.dtype) + "," +
                       tensor("r", y, d.dtype);
  if (d.gated) inputs += "," + tensor("v", w, d.dtype);
  const std::string nodes = fmt::format(
      R"({{"op": "matmul", "inputs": ["x", "w"], "output": "p"}}, {}{{"op": "add", "inputs": ["{}", "b"], "output": "c"}}, )"
      R"({{"op": "add", "inputs": ["r", "c"], "output": "y"}})",
      d.gated ? R"({"op": "matmul", "inputs": ["x", "v"], "output": "q"}, {"op": "mul", "inputs": ["p", "q"], "output": "s"}, )" : "",
      d.gated ? "s" : "p");
  Program p = program_of(fmt::format(R"({{"version": "1.0", "name": "divided", "inputs": {{{}}}, "outputs": {{{}}}, "nodes": [{}]}})",
                                     inputs, tensor("y", y, d.dtype), nodes),
                         "divided");
  std::string g = fmt::format(
      "kernel divided {{\n %x = input 0 : {0}[{1},{2}]\n %w = input 1 : {0}[{2},{3}]\n %b = input 2 : {0}[{3}]\n %r = input 3 : "
      "{0}[{1},{3}]\n",
      half, d.m, d.k, d.n);
  if (d.gated) g += fmt::format(" %v = input 4 : {}[{},{}]\n", half, d.k, d.n);
  g += fmt::format(" %y = call grid({},1,1) loop({}) (%x, %w, %b, %r{}) {{\n", (d.n + 7) / 8, (d.k + 7) / 8, d.gated ? ", %v" : "");
  g += fmt::format(
      "  %xt = input 0 grid(-,-,-) loop(1) : {0}[{1},8]\n  %wt = input 1 grid(1,-,-) loop(0) : {0}[8,8]\n  %bt = input 2 grid(0,-,-) "
      "loop(-) : {0}[8]\n  %rt = input 3 grid(1,-,-) loop(-) : {0}[{1},8]\n",
      half, d.m);
  if (d.gated) g += fmt::format("  %vt = input 4 grid(1,-,-) loop(0) : {0}[8,8]\n", half);
  g +=
      fmt::format("  %s = add %rt (add {} %bt)\n  output 0 %s grid(1,-,-) : {}\n }}\n output 0 %y : {}\n}}\n",
                  d.gated ? "(mul (accum.sum (matmul %xt %wt)) (accum.sum (matmul %xt %vt)))" : "(accum.sum (matmul %xt %wt))", half, half);
  const auto graph = parse_graph(g);
  INFO((graph ? "" : graph.errors()[0].text) << "\n" << g);
  REQUIRE(graph);
  p.graph = *graph;
  return p;
}

}  // namespace

TEST_CASE("large tiles with a divided reduction, and lines gathered before they are stored, are right on the CPU") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  const Divided all[] = {
      {100, 712, 200, "bfloat16", false, {1, 112, 64, 3, 4, 1, true, 2, true}},          // 14 tiles of 8 rows: 4, 4, 4 and 2
      {90, 456, 136, "float16", true, {1, 96, 64, 3, 2, 1, true, 2, true, 1, true}},     // two sums, received over the ring
      {208, 584, 72, "float16", false, {1, 208, 64, 3, 3, 1, true, 1, true, 1, true}},   // 26 tiles: 9, 9 and 8
      {150, 328, 328, "bfloat16", false, {2, 80, 64, 3, 1, 1, true, 2, true}},           // not divided; warpgroups share rows and columns
      // over the ring, since there is no room beside it; registers of the copying warps go to the others
      {90, 328, 192, "float16", true, {1, 96, 64, 3, 2, 1, true, 3, true}},
      {300, 264, 104, "float16", false, {1, 176, 64, 3, 1, 1, true, 2, true, 2}},        // blocks that share rows
  };
  std::vector<EmulationCase> cases;
  for (const Divided& d : all) {
    const Program p = program(d);
    Planned planned = make_plan(p, p.graph, target);
    REQUIRE(planned.plan);
    REQUIRE(planned.plan->kernels.size() == 1);
    const auto tile = plan_in<TilePlan>(planned.plan->kernels[0].body);
    REQUIRE(tile);
    TilePlan t = **tile;
    std::string reason;
    INFO(d.m << " x " << d.k << " x " << d.n << ": " << reason);
    const bool fits = divide_tile(t, d.choice, target, reason);
    INFO(reason);
    REQUIRE(fits);
    CHECK(staged_at(t, t.body.outputs()[0]) >= 0);
    CHECK(t.overlaid >= d.choice.overlaid);
    t.cost = estimate(t, target);
    planned.plan->kernels[0].body = body_with<TilePlan>(std::move(t));
    cases.push_back(case_of(p, *planned.plan, target, fmt::format("d{}_", cases.size())));
  }
  std::vector<const EmulationCase*> pointers;
  for (const EmulationCase& c : cases) pointers.push_back(&c);
  const EmulationLibrary library = build_emulation(pointers, compiler, emulation_folder());
  INFO(library.error);
  REQUIRE(library.error.empty());
  for (size_t i = 0; i < cases.size(); i++)
    for (EmulationMode mode : {EmulationMode::kField, EmulationMode::kFloat}) {
      const EmulationOutcome o = run_emulation(cases[i], library.path, mode, 3, {});
      INFO(all[i].m << " x " << all[i].k << " x " << all[i].n << ", " << mode_name(mode) << ": " << o.reason
                    << (o.findings.empty() ? "" : "; " + o.findings.front().kind));
      CHECK(o.ok);
      CHECK(o.compared * 2 >= o.elements);
    }
}

namespace {

/// A function of a product %a, of its rows' sum of squares %s and of their sum %t, as a graph and as nodes that end in y; what a row keeps.
struct Kind { const char *name, *graph, *nodes, *kept, *dtype; };

const Kind kKinds[] = {
    {"bounded divisor", "div %a (maximum (sqrt %s) 1e-06)",
     R"({"op": "sqrt", "inputs": ["s"], "output": "r"}, {"op": "maximum", "inputs": ["r", 1e-6], "output": "m"}, )"
     R"({"op": "div", "inputs": ["a", "m"], "output": "y"})",
     "= mo::div(mo::constant(1.0f)", "float16"},
    {"root", "div %a (sqrt (add (mul %s 0.25) 1e-05))",
     R"({"op": "mul", "inputs": ["s", 0.25], "output": "q"}, {"op": "add", "inputs": ["q", 1e-5], "output": "e"}, )"
     R"({"op": "sqrt", "inputs": ["e"], "output": "r"}, {"op": "div", "inputs": ["a", "r"], "output": "y"})",
     "= mo::rsqrt(", "float16"},
    {"root in float32", "div %a (sqrt (add (mul %s 0.25) 1e-05))",
     R"({"op": "mul", "inputs": ["s", 0.25], "output": "q"}, {"op": "add", "inputs": ["q", 1e-5], "output": "e"}, )"
     R"({"op": "sqrt", "inputs": ["e"], "output": "r"}, {"op": "div", "inputs": ["a", "r"], "output": "y"})",
     "= r", "float32"},
    {"unbounded divisor", "div %a (add %s 0.5)",
     R"({"op": "add", "inputs": ["s", 0.5], "output": "e"}, {"op": "div", "inputs": ["a", "e"], "output": "y"})", "= r", "float16"},
    {"two of two", "add (div (sub %a %t) (sqrt (add %s 1.0))) %t",
     R"({"op": "sub", "inputs": ["a", "t"], "output": "d"}, {"op": "add", "inputs": ["s", 1.0], "output": "e"}, )"
     R"({"op": "sqrt", "inputs": ["e"], "output": "r"}, {"op": "div", "inputs": ["d", "r"], "output": "q"}, )"
     R"({"op": "add", "inputs": ["q", "t"], "output": "y"})",
     "= mo::rsqrt(", "bfloat16"},
    {"a function of both", "mul %a (sigmoid (mul %s (tanh %t)))",
     R"({"op": "tanh", "inputs": ["t"], "output": "h"}, {"op": "mul", "inputs": ["s", "h"], "output": "p"}, )"
     R"({"op": "sigmoid", "inputs": ["p"], "output": "g"}, {"op": "mul", "inputs": ["a", "g"], "output": "y"})",
     "= r", "float16"},
};

/// 40 rows of 288 before 136 columns.
EmulationCase make(const Kind& k, const Target& target, int number) {
  const bool is_bf16 = std::string(k.dtype) == "bfloat16", is_wide = std::string(k.dtype) == "float32";
  const char* t = is_bf16 ? "bf16" : "f16";
  std::string text = fmt::format(
      "kernel rows {{\n  %x = input 0 : {0}[40,288]\n  %w = input 1 : {0}[288,136]\n  %y = call grid(17,1,1) loop(18) (%x, %w) {{\n"
      "    %p = input 0 grid(-,-,-) loop(1) : {0}[40,16]\n    %q = input 1 grid(1,-,-) loop(0) : {0}[16,8]\n"
      "    %a = accum.sum (matmul %p %q)\n    %s = accum.sum (reduce.sum 1 (square %p))\n    %t = accum.sum (reduce.sum 1 %p)\n"
      "    %d = {1}\n    output 0 %d grid(1,-,-) : {2}\n  }}\n  output 0 %y : {2}\n}}\n",
      t, k.graph, is_wide ? "f32" : t);
  const std::string nodes = k.nodes;
  const bool has_sum = nodes.find("\"t\"") != std::string::npos, has_squares = nodes.find("\"s\"") != std::string::npos;
  if (!has_sum) text.erase(text.find("    %t"), text.find('\n', text.find("    %t")) + 1 - text.find("    %t"));
  const auto g = parse_graph(text);
  INFO((g ? "" : g.errors()[0].text));
  REQUIRE(g);
  REQUIRE(has_squares);
  Program p = program_of(
      fmt::format(
          R"({{"version": "1.0", "name": "rows", "inputs": {{"x": {{"shape": [40, 288], "dtype": "{0}"}}, )"
          R"("w": {{"shape": [288, 136], "dtype": "{0}"}}}}, )"
          R"("outputs": {{"y": {{"dtype": "{1}"}}}}, "nodes": [{{"op": "matmul", "inputs": ["x", "w"], "output": "a"}}, )"
          R"({{"op": "square", "inputs": ["x"], "output": "xx"}}, )"
          R"({{"op": "sum", "inputs": ["xx"], "output": "s", "attrs": {{"axis": 1, "keepdim": true}}}}, {2}{3}]}})",
          is_bf16 ? "bfloat16" : "float16", k.dtype,
          has_sum ? R"({"op": "sum", "inputs": ["x"], "output": "t", "attrs": {"axis": 1, "keepdim": true}}, )" : "", nodes),
      "rows");
  p.graph = *g;
  const Planned planned = make_plan(p, *g, target);
  INFO(planned.reason);
  REQUIRE(planned.plan);
  REQUIRE(planned.plan->kernels.size() == 1);
  Plan plan = *planned.plan;
  const std::vector<KernelPlan> all = kernel_alternatives(plan.kernels[0], target, {is_bf16 ? DType::kBF16 : DType::kF16, false}, 1 << 20);
  const auto one = std::find_if(all.begin(), all.end(), [&](const KernelPlan& a) {
    const auto tile = plan_in<TilePlan>(a.body);
    return tile && (*tile)->cluster == 1;
  });
  REQUIRE(one != all.end());
  plan.kernels[0] = *one;
  const std::string source = emit_kernel(plan.kernels[0], plan, target).source;
  const size_t kept = source.find("statistics[0 * kBlockRows + row] ");
  REQUIRE(kept != std::string::npos);
  INFO(source.substr(kept, 200));
  const std::string made = source.substr(source.find("if (", kept > 400 ? kept - 400 : 0), 600);
  CHECK(made.find(k.kept) != std::string::npos);
  return case_of(p, plan, target, fmt::format("v{}_", number));
}

}  // namespace

TEST_CASE("what a tile's tail needs of a row is made once for each row", "[emulate]") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  for (const Kind& k : kKinds) {
    INFO(k.name);
    cases.push_back(make(k, target, static_cast<int>(cases.size())));
    names.push_back(k.name);
  }
  check_emulations(cases, names, compiler, 1, true);
}
