// Calls beside each other in one stream kernel (plan/passes/beside.cc) on the CPU, at widths that differ: which tensor maps, pointers,
// widths and strides a block takes. Ragged widths, both types, biases, residuals, norms, weights with lines along the reduction, results
// and biases that begin behind others in one tensor.
#include <tuple>
#include <set>
#include <variant>

#include <fmt/format.h>

#include "mirage/plan/alternatives.h"
#include "emulate/run_all.h"
#include "emulate/helpers.h"
#include "mirage/plan/replan.h"
#include "plan/stream/stream_plan.h"
#include "mirage/spec/text.h"
#include "unit/plan/plan_in.h"

using namespace mirage;
using namespace mirage::test;

namespace {

struct Form { bool norm = false, bias = false, residual = false, lines = false; };

std::string tensor(const std::string& name, const std::string& dims, const std::string& dtype) {
  return fmt::format(R"("{}": {{"shape": [{}], "dtype": "{}"}})", name, dims, dtype);
}

/// Linear layers of one input: y_i = x w_i, or rms_norm(x) w_i, and what Form says is added.
Program layers(int m, int k, const std::vector<int>& widths, const char* t, Form f) {
  const std::string half = t == std::string("float16") ? "f16" : "bf16";
  std::string inputs = tensor("x", fmt::format("{}, {}", m, k), t), outputs, nodes,
              graph = fmt::format("kernel beside {{\n %x = input 0 : {}[{},{}]\n", half, m, k), results;
  int param = 1;
  for (size_t i = 0; i < widths.size(); i++) {
    const int n = widths[i];
    std::string value = "x", call = "%x", body = fmt::format("  %a = input 0 grid(-,-,-) loop(1) : {}[{},8]\n", half, m);
    if (f.norm && i == 0) nodes += R"({"op": "rms_norm", "inputs": ["x"], "output": "h"},)";
    if (f.norm) value = "h";
    inputs += "," + tensor(fmt::format("w{}", i), f.lines ? fmt::format("{}, {}", n, k) : fmt::format("{}, {}", k, n), t);
    graph +=
        fmt::format(" %w{} = input {} : {}[{}]\n", i, param++, half, f.lines ? fmt::format("{},{}", n, k) : fmt::format("{},{}", k, n));
    if (f.lines) graph += fmt::format(" %t{0} = transpose (1,0) %w{0}\n", i);
    call += fmt::format(", %{}{}", f.lines ? "t" : "w", i);
    body += fmt::format("  %b = input 1 grid(1,-,-) loop(0) : {}[8,8]\n  %s = accum.sum (matmul %a %b)\n", half);
    std::string sum = "%s";
    nodes += fmt::format(R"({{"op": "matmul", "inputs": ["{}", "w{}"], "output": "p{}", "attrs": {{"transpose_b": {}}}}},)", value, i, i,
                         f.lines);
    std::string last = fmt::format("p{}", i);
    if (f.norm) {
      body +=
          fmt::format("  %q = accum.sum (reduce.sum 1 (square %a))\n  %r = div %s (sqrt (add (div %q (const {} extent 0.1)) 1e-06))\n", k);
      sum = "%r";
    }
    if (f.bias) {
      inputs += "," + tensor(fmt::format("b{}", i), std::to_string(n), t);
      graph += fmt::format(" %b{} = input {} : {}[{}]\n", i, param++, half, n);
      call += fmt::format(", %b{}", i);
      body += fmt::format("  %c = input 2 grid(0,-,-) : {}[8]\n  %d = add {} %c\n", half, sum);
      sum = "%d";
      nodes += fmt::format(R"({{"op": "add", "inputs": ["{}", "b{}"], "output": "d{}"}},)", last, i, i);
      last = fmt::format("d{}", i);
    }
    if (f.residual) {
      inputs += "," + tensor(fmt::format("r{}", i), fmt::format("{}, {}", m, n), t);
      graph += fmt::format(" %r{} = input {} : {}[{},{}]\n", i, param++, half, m, n);
      call += fmt::format(", %r{}", i);
      body += fmt::format("  %e = input {} grid(1,-,-) : {}[{},8]\n  %f = add {} %e\n", f.bias ? 3 : 2, half, m, sum);
      sum = "%f";
      nodes += fmt::format(R"({{"op": "add", "inputs": ["{}", "r{}"], "output": "e{}"}},)", last, i, i);
      last = fmt::format("e{}", i);
    }
    outputs += (i ? "," : "") + tensor(last, fmt::format("{}, {}", m, n), t);
    graph += fmt::format(" %y{} = call grid({},1,1) loop({}) ({}) {{\n{}  output 0 {} grid(1,-,-) : {}\n }}\n", i, n / 8, k / 8, call, body,
                         sum, half);
    results += fmt::format(" output {} %y{} : {}\n", i, i, half);
  }
  nodes.pop_back();
  Program p = program_of(
      fmt::format(R"({{"version": "1.0", "name": "beside", "inputs": {{{}}}, "outputs": {{{}}}, "nodes": [{}]}})", inputs, outputs, nodes),
      "beside");
  const auto g = parse_graph(graph + results + "}\n");
  INFO(graph << results << (g ? "" : g.errors()[0].text));
  REQUIRE(g);
  p.graph = *g;
  return p;
}

}  // namespace

TEST_CASE("calls beside each other are one kernel, right on the CPU at widths that differ") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  const std::vector<Program> programs = {
      layers(16, 1024, {256, 72, 136}, "float16", {}),
      layers(5, 1024, {64, 192}, "bfloat16", {.bias = true, .residual = true}),
      layers(16, 1032, {136, 64, 8, 64}, "float16", {.residual = true}),
      layers(7, 1024, {192, 64, 64}, "bfloat16", {.norm = true}),
      layers(20, 1024, {72, 136}, "float16", {.bias = true, .lines = true}),
      layers(8, 2048, {128, 64}, "float16", {.norm = true, .bias = true, .residual = true}),
  };
  for (const Program& p : programs) {
    const Planned planned = make_plan(p, p.graph, target);
    REQUIRE(planned.plan);
    INFO(print(*planned.plan));
    REQUIRE(planned.plan->kernels.size() == 1);
    const auto stream = plan_in<StreamPlan>(planned.plan->kernels[0].body);
    REQUIRE(stream);
    REQUIRE((*stream)->beside.size() + 1 == p.outputs.size());
    const Planned again = replan(p, *planned.plan, p, planned.plan->graph, target);
    INFO(again.reason);
    REQUIRE(again.plan);
    REQUIRE(print(*again.plan) == print(*planned.plan));
    cases.push_back(case_of(p, *planned.plan, target, fmt::format("b{}_", cases.size())));
    names.push_back(print(*planned.plan));
  }
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
      CHECK(o.compared == o.elements);
    }
}

TEST_CASE("calls are not one kernel where one needs the other, or rows differ") {
  const Target target = *find_target("sm_90a");
  const auto kernels = [&](const std::string& inputs, const std::string& nodes, const std::string& outputs) {
    const Program p = program_of(
        fmt::format(R"({{"version": "1.0", "name": "apart", "inputs": {{{}}}, "outputs": {{{}}}, "nodes": [{}]}})", inputs, outputs, nodes),
        "apart");
    const Planned planned = make_plan(p, p.graph, target);
    REQUIRE(planned.plan);
    return planned.plan->kernels.size();
  };
  const std::string x = tensor("x", "16, 1024", "float16"), w = tensor("w", "1024, 1024", "float16"),
                    v = tensor("v", "1024, 512", "float16"), y = tensor("y", "16, 1024", "float16"), z = tensor("z", "16, 512", "float16");
  const std::string first = R"({"op": "matmul", "inputs": ["x", "w"], "output": "y"})";
  CHECK(kernels(x + "," + w + "," + v, first + R"(, {"op": "matmul", "inputs": ["x", "v"], "output": "z"})", y + "," + z) == 1);
  CHECK(kernels(x + "," + w + "," + v, first + R"(, {"op": "matmul", "inputs": ["y", "v"], "output": "z"})", y + "," + z) == 2);
  CHECK(kernels(x + "," + w + "," + v + "," + tensor("u", "16, 1024", "float16"),
                first + R"(, {"op": "matmul", "inputs": ["u", "v"], "output": "z"})", y + "," + z) == 2);
  // they share the weights, and one needs the other
  CHECK(kernels(x + "," + w, first + R"(, {"op": "matmul", "inputs": ["y", "w"], "output": "z"})",
                y + "," + tensor("z", "16, 1024", "float16")) == 2);
}

// Streams whose reduction has two parts, x w + h u (StreamShape::second), on the CPU, in every division that fits: lines in both orders,
// one and two sums, one row and many, ragged columns, a tail that reads what else there is.
namespace two_parts {

/// x [rows, first], h [rows, depth], w and v of x, u and z of h: x w + h u, or sigmoid of that times x v + h z.
struct Parts {
  const char *name, *type;
  int rows, first, depth, columns;
  bool lines, gated;
};

const std::vector<Parts> kPrograms = {
    {"lines along the reduction", "float16", 9, 128, 256, 72, true, false},
    {"lines along columns, many rows", "bfloat16", 32, 192, 128, 64, false, false},
    {"two sums", "float16", 5, 64, 192, 104, true, true},
    {"one row, two sums", "bfloat16", 1, 256, 128, 72, false, true},
};

std::string tensor(const char* name, const std::string& shape, const char* type) {
  return fmt::format(R"("{}": {{"shape": [{}], "dtype": "{}"}})", name, shape, type);
}

Program program(const Parts& u) {
  const auto shape = [&](int depth) { return u.lines ? fmt::format("{}, {}", u.columns, depth) : fmt::format("{}, {}", depth, u.columns); };
  std::string inputs, nodes;
  const char* const names[] = {"x", "h", "w", "u", "v", "z"};
  const std::string shapes[] = {fmt::format("{}, {}", u.rows, u.first),
                                fmt::format("{}, {}", u.rows, u.depth),
                                shape(u.first),
                                shape(u.depth),
                                shape(u.first),
                                shape(u.depth)};
  for (int i = 0; i < (u.gated ? 6 : 4); i++) inputs += tensor(names[i], shapes[i], u.type) + ", ";
  const char* turned = u.lines ? "true" : "false";
  const auto product = [&](const char* a, const char* b, const char* to) {
    return fmt::format(R"({{"op": "matmul", "inputs": ["{}", "{}"], "output": "{}", "attrs": {{"transpose_b": {}}}}}, )", a, b, to, turned);
  };
  nodes = product("x", "w", "p") + product("h", "u", "q") + R"({"op": "add", "inputs": ["p", "q"], "output": "s"}, )";
  if (u.gated)
    nodes += product("x", "v", "c") + product("h", "z", "d") +
             R"({"op": "add", "inputs": ["c", "d"], "output": "e"}, )"
             R"({"op": "relu", "inputs": ["s"], "output": "f"}, )"
             R"({"op": "mul", "inputs": ["e", "f"], "output": "g"}, )";
  nodes += fmt::format(R"({{"op": "add", "inputs": ["{}", "b"], "output": "y"}})", u.gated ? "g" : "s");
  Program p =
      program_of(fmt::format(R"({{"version": "1.0", "name": "parts", "inputs": {{{}"b": {{"shape": [{}], "dtype": "{}"}}}}, "outputs": )"
                             R"({{"y": {{"shape": [{}, {}], "dtype": "{}"}}}}, "nodes": [{}]}})",
                             inputs, u.columns, u.type, u.rows, u.columns, u.type, nodes),
                 u.name);
  const std::string t = std::string(u.type) == "float16" ? "f16" : "bf16";
  std::string outer, tiles, operands, body;
  const auto weight = [&](const char* name, int i, int depth, bool looped) {
    outer += fmt::format("  %{} = input {} : {}[{}]\n", name, i, t, shape(depth));
    operands += fmt::format(", {}", u.lines ? fmt::format("(transpose (1,0) %{})", name) : fmt::format("%{}", name));
    tiles += fmt::format("    %t{0} = input {0} grid(1,-,-) loop({1}) : {2}[{3},8]\n", i, looped ? "0" : "-", t, looped ? 16 : depth);
  };
  outer = fmt::format("  %x = input 0 : {0}[{1},{2}]\n  %h = input 1 : {0}[{1},{3}]\n", t, u.rows, u.first, u.depth);
  tiles = fmt::format("    %t0 = input 0 grid(-,-,-) loop(-) : {0}[{1},{2}]\n    %t1 = input 1 grid(-,-,-) loop(1) : {0}[{1},16]\n", t,
                      u.rows, u.first);
  weight("w", 2, u.first, false);
  weight("u", 3, u.depth, true);
  if (u.gated) weight("v", 4, u.first, false), weight("z", 5, u.depth, true);
  const int bias = u.gated ? 6 : 4;
  outer += fmt::format("  %b = input {} : {}[{}]\n", bias, t, u.columns);
  operands += ", %b";
  tiles += fmt::format("    %t{0} = input {0} grid(0,-,-) loop(-) : {1}[8]\n", bias, t);
  body = u.gated ? fmt::format(
                       "add (mul (add (matmul %t0 %t4) (accum.sum (matmul %t1 %t5))) (relu (add (matmul %t0 %t2) (accum.sum (matmul %t1 "
                       "%t3))))) %t{}",
                       bias)
                 : fmt::format("add (add (matmul %t0 %t2) (accum.sum (matmul %t1 %t3))) %t{}", bias);
  const auto g = parse_graph(
      fmt::format("kernel parts {{\n{}  %y = call grid({},1,1) loop({}) (%x, %h{}) {{\n{}    output 0 ({}) grid(1,-,-) : {}\n  }}\n  "
                  "output 0 %y : {}\n}}\n",
                  outer, u.columns / 8, u.depth / 16, operands, tiles, body, t, t));
  INFO((g ? "" : g.errors()[0].text));
  REQUIRE(g);
  p.graph = *g;
  return p;
}

}  // namespace two_parts

TEST_CASE("reductions of two parts are right on the CPU") {
  using namespace two_parts;
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) {
    WARN("skipped: there is no host compiler");
    return;
  }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  for (const Parts& u : kPrograms) {
    INFO(u.name);
    const Program p = program(u);
    const Planned planned = make_plan(p, p.graph, target);
    INFO(planned.reason);
    REQUIRE(planned.plan);
    std::set<std::tuple<int, bool, bool>> seen;
    for (size_t i = 0; i < planned.plan->kernels.size(); i++)
      for (const KernelPlan& a : kernel_alternatives(planned.plan->kernels[i], target, contract_rule(p), 400)) {
        const auto s = plan_in<StreamPlan>(a.body);
        if (!s) continue;
        CHECK((*s)->second == u.first);
        CHECK((*s)->steps == (u.gated ? 2 : 1));
        if (!seen.emplace((*s)->chunk, (*s)->stages > 1, (*s)->cluster > 1).second) continue;
        Plan one = *planned.plan;
        one.kernels[i].body = a.body;
        names.push_back(
            fmt::format("{}: {} warps, {} stages, chunk {}, cluster {}", u.name, (*s)->warps, (*s)->stages, (*s)->chunk, (*s)->cluster));
        cases.push_back(case_of(p, one, target, fmt::format("p{}_", cases.size())));
      }
    CHECK(seen.size() >= 2);
  }
  check_emulations(cases, names, compiler, 0.95, true);
}
