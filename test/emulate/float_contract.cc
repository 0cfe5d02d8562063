// Products on the float32 units: lines along and across the contraction, extents that groups of four do not divide, elements of 16 bits
// beside float32. And tiles that block kernels compute for products.
#include <fmt/format.h>

#include "emulate/helpers.h"
#include "emulate/run_all.h"
#include "mirage/plan/strategy.h"
#include "mirage/spec/text.h"

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

namespace {

/// tanh(x a + h c) + (x b) (h d): x is whole, h comes in a loop that the warps of a block divide. computed: e^x and e^h instead of them.
struct Cell { int rows, depth, length, columns, wide, step; bool turned; const char* dtype; bool computed = false; };

std::string graph_of(const Cell& c) {
  const std::string weight = c.turned ? "{1},{0}" : "{0},{1}";
  const auto whole = [&](int k) { return fmt::format(fmt::runtime(weight), k, c.columns); };
  const char* t = std::string(c.dtype) == "float32" ? "f32" : "f16";
  std::string out =
      fmt::format("kernel cell {{\n  %x = input 0 : f32[{0},{1}]\n  %h = input 1 : f32[{0},{2}]\n", c.rows, c.depth, c.length);
  for (int i = 0; i < 4; i++) out += fmt::format("  %w{} = input {} : {}[{}]\n", i, i + 2, t, whole(i < 2 ? c.depth : c.length));
  std::string names = "%x, %h";
  for (int i = 0; i < 4; i++) {
    if (c.turned) out += fmt::format("  %v{0} = transpose (1,0) %w{0}\n", i);
    names += fmt::format(", %{}{}", c.turned ? 'v' : 'w', i);
  }
  out += fmt::format("  %y = call grid({},1,1) loop({}) ({}) {{\n    %p = input 0 grid(-,-,-) loop(-) : f32[{},{}]\n",
                     (c.columns + c.wide - 1) / c.wide, (c.length + c.step - 1) / c.step, names, c.rows, c.depth);
  out += fmt::format("    %q = input 1 grid(-,-,-) loop(1) : f32[{},{}]\n", c.rows, c.step);
  for (int i = 0; i < 4; i++)
    out += fmt::format("    %r{} = input {} grid(1,-,-) loop({}) : {}[{},{}]\n", i, i + 2, i < 2 ? "-" : "0", t,
                       i < 2 ? c.depth : c.step, c.wide);
  out += c.computed ? "    %f = exp %p\n    %g = exp %q\n" : "";
  out +=
      "    %e = tanh (add (matmul %p %r0) (accum.sum (matmul %q %r2)))\n    %o = add %e (mul (matmul %p %r1) (accum.sum (matmul %q "
      "%r3)))\n    output 0 %o grid(1,-,-) : f32\n  }\n  output 0 %y : f32\n}\n";
  for (const auto& [from, to] : {std::pair("matmul %p", "matmul %f"), {"matmul %q", "matmul %g"}})
    for (size_t at = 0; c.computed && (at = out.find(from)) != std::string::npos;) out.replace(at, 9, to);
  return out;
}

Program program_of_cell(const Cell& c) {
  std::string inputs = fmt::format(R"("x": {{"shape": [{0}, {1}], "dtype": "float32"}}, "h": {{"shape": [{0}, {2}], "dtype": "float32"}})",
                                   c.rows, c.depth, c.length);
  std::string nodes;
  if (c.computed) nodes = R"({"op": "exp", "inputs": ["x"], "output": "ex"}, {"op": "exp", "inputs": ["h"], "output": "eh"}, )";
  for (int i = 0; i < 4; i++) {
    const int k = i < 2 ? c.depth : c.length;
    inputs += fmt::format(R"(, "w{}": {{"shape": [{}, {}], "dtype": "{}"}})", i, c.turned ? c.columns : k, c.turned ? k : c.columns,
                          c.dtype);
    nodes += fmt::format(R"({{"op": "matmul", "inputs": ["{}{}", "w{}"], "output": "m{}", "attrs": {{"transpose_b": {}}}}}, )",
                         c.computed ? "e" : "", i < 2 ? 'x' : 'h', i, i, c.turned);
  }
  nodes += R"({"op": "add", "inputs": ["m0", "m2"], "output": "s"}, {"op": "tanh", "inputs": ["s"], "output": "e"},
              {"op": "mul", "inputs": ["m1", "m3"], "output": "q"}, {"op": "add", "inputs": ["e", "q"], "output": "y"})";
  return program_of(fmt::format(R"({{"version": "1.0", "name": "cell", "inputs": {{{}}}, "outputs": {{"y": {{"dtype": "float32"}}}}, )"
                                R"("nodes": [{}]}})",
                                inputs, nodes),
                    "cell");
}

}  // namespace

TEST_CASE("products that read one operand are computed term by term together, by teams in front of the loop") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  int teams = 0, meetings = 0;
  for (const Cell& c : {Cell{32, 300, 768, 48, 8, 16, true, "float32"}, Cell{20, 37, 200, 24, 6, 16, true, "float32"},
                        Cell{7, 130, 96, 30, 6, 8, false, "float32"}, Cell{33, 72, 500, 40, 8, 16, true, "float16"},
                        Cell{20, 37, 96, 24, 6, 16, true, "float32", true}, Cell{9, 16, 40, 24, 8, 8, false, "float32", true}}) {
    const auto g = parse_graph(graph_of(c));
    INFO((g ? "" : g.errors()[0].text));
    REQUIRE(g);
    Program p = program_of_cell(c);
    p.graph = *g;
    const Planned planned = make_plan(p, *g, target);
    INFO(planned.reason);
    REQUIRE(planned.plan);
    REQUIRE(planned.plan->kernels.size() == 1);
    const std::string text = emit_kernel(planned.plan->kernels[0], *planned.plan, target).source;
    const size_t at = text.find("each_term<"), end = text.find(";\n", text.find("});", at));
    REQUIRE(at != std::string::npos);
    const std::string terms = text.substr(at, end - at);
    CHECK(terms.find(".term(") != terms.rfind(".term("));   // two of them
    teams += !text.substr(at, text.find('>', at) - at).ends_with(", 1");
    cases.push_back(case_of(p, *planned.plan, target, fmt::format("cell{}_", cases.size())));
    names.push_back(fmt::format("{} x {} and {} to {}", c.rows, c.depth, c.length, c.columns));
    const size_t met = text.find("\n    barrier();\n", at);
    if (met == std::string::npos || met > text.find("finish(", at)) continue;   // results lie where operands lay: all have read before
    CHECK(found_without(cases.back(), "each_term<", "barrier();", compiler) != "");
    meetings++;
  }
  CHECK(teams > 0);
  CHECK(meetings > 0);
  check_emulations(cases, names, compiler, 1.0, true);
}

TEST_CASE("tiles that are filled along lines or columns, with reductions on the way, are right on the CPU") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  Target target = *find_target("sm_90a");
  for (const char* s : {"stream", "tile", "attend"}) target = *without_strategy(target, s);
  const auto spec = [](int64_t n, int64_t k, int64_t d, const char* type, const char* nodes) {
    return fmt::format(R"({{"version": "1.0", "name": "filled", "inputs": {{
 "q": {{"shape": [{0}, {1}, {2}], "dtype": "{3}"}}, "k": {{"shape": [{0}, {1}, {2}], "dtype": "{3}"}},
 "v": {{"shape": [{0}, {1}, 32], "dtype": "{3}"}}, "w": {{"shape": [{0}, {2}, 32], "dtype": "{3}"}},
 "g": {{"shape": [{0}, {1}, 1], "dtype": "{3}"}}}},
 "outputs": {{"y": {{"dtype": "{3}"}}, "z": {{"dtype": "{3}"}}}}, "nodes": [{4}]}})",
                       n, k, d, type, nodes);
  };
  // a sum over the product's reduction, a factor per line, a sum along lines beside the product, a largest, and what needs exact functions
  const char* forms[] = {
      R"({"op": "relu", "inputs": ["k"], "output": "e"}, {"op": "matmul", "inputs": ["e", "v"], "output": "y", "attrs": {"transpose_a": true}},
 {"op": "sum", "inputs": ["e"], "output": "z", "attrs": {"axis": 1, "keepdim": true}})",
      R"({"op": "mul", "inputs": ["k", "g"], "output": "e"},
 {"op": "matmul", "inputs": ["e", "v"], "output": "y", "attrs": {"transpose_a": true}},
 {"op": "max", "inputs": ["e"], "output": "z", "attrs": {"axis": 1, "keepdim": true}})",
      R"({"op": "silu", "inputs": ["q"], "output": "e"}, {"op": "matmul", "inputs": ["e", "w"], "output": "y"},
 {"op": "mul", "inputs": ["e", "k"], "output": "f"}, {"op": "sum", "inputs": ["f"], "output": "z", "attrs": {"axis": -1, "keepdim": true}})",
      R"({"op": "exp", "inputs": ["q"], "output": "e"}, {"op": "sum", "inputs": ["e"], "output": "z", "attrs": {"axis": -1, "keepdim": true}},
 {"op": "div", "inputs": ["e", "z"], "output": "f"}, {"op": "matmul", "inputs": ["f", "w"], "output": "y"})"};
  std::vector<EmulationCase> all;
  std::vector<std::string> names;
  std::string text;
  for (const char* form : forms)
    for (const auto& [n, k, d, type] :
         {std::tuple(2, 128, 64, "float16"), std::tuple(3, 100, 32, "bfloat16"), std::tuple(2, 72, 40, "float16"),
          std::tuple(264, 48, 32, "bfloat16"), std::tuple(1, 96, 64, "float32")}) {
      const Program program = program_of(spec(n, k, d, type, form), "filled");
      for (const NamedPlan& p : plans_of(program, target, 120'000)) {
        for (const KernelPlan& kernel : p.plan.kernels) text += emit_kernel(kernel, p.plan, target).source;
        all.push_back(case_of(program, p.plan, target, fmt::format("p{}_", all.size())));
        names.push_back(fmt::format("{} x {} x {} {}: {} ({})", n, k, d, type, form, p.name));
      }
    }
  for (const char* word : {"fill_lines<", "LineReducer<", ".transposed(), ", "take(u, "}) {
    INFO(word);
    CHECK(text.find(word) != std::string::npos);
  }
  check_emulations(all, names, compiler, 0.9, false);
}
