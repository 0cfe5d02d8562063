// Results in runs (plan/passes/runs.cc) on the CPU: products whose columns are heads, stored head by head by streams and tiles of every
// division, alone and beside each other.
#include <variant>

#include <fmt/format.h>

#include "emulate/run_all.h"
#include "mirage/plan/alternatives.h"
#include "plan/stream/stream_plan.h"
#include "plan/tile/tile_plan.h"
#include "mirage/spec/text.h"
#include "mirage/plan/bound.h"
#include "unit/plan/plan_in.h"

using namespace mirage;
using namespace mirage::test;

namespace {

struct Heads { int batch, rows, depth, heads, width; bool bias, lines; const char* type; };

/// y = x w [+ b] with columns as heads, heads first: [M, H * D] as [H, M, D]; of a batch of programs [B, M, H * D] as [B, H, M, D].
Program program(const Heads& h, int products = 1) {
  const auto tensor = [&](const std::string& name, const std::string& dims) {
    return fmt::format(R"("{}": {{"shape": [{}], "dtype": "{}"}})", name, dims, h.type);
  };
  const std::string lead = h.batch > 1 ? fmt::format("{}, ", h.batch) : "";
  const int columns = h.heads * h.width;
  std::string inputs = tensor("x", fmt::format("{}{}, {}", lead, h.rows, h.depth)), outputs, nodes;
  for (int i = 0; i < products; i++) {
    const std::string w = h.lines ? fmt::format("{}, {}", columns, h.depth) : fmt::format("{}, {}", h.depth, columns);
    inputs += "," + tensor(fmt::format("w{}", i), h.batch > 1 ? lead + w : w);
    nodes += fmt::format(R"({{"op": "matmul", "inputs": ["x", "w{}"], "output": "p{}", "attrs": {{"transpose_b": {}}}}},)", i, i, h.lines);
    if (h.bias) {
      inputs += "," + tensor(fmt::format("b{}", i), std::to_string(columns));
      nodes += fmt::format(R"({{"op": "add", "inputs": ["p{0}", "b{0}"], "output": "s{0}"}},)", i);
    }
    nodes += fmt::format(R"({{"op": "reshape", "inputs": ["{}{}"], "output": "r{}", "attrs": {{"shape": [{}{}, {}, {}]}}}},)",
                         h.bias ? "s" : "p", i, i, lead, h.rows, h.heads, h.width);
    nodes += fmt::format(R"({{"op": "transpose", "inputs": ["r{0}"], "output": "y{0}", "attrs": {{"perm": [{1}]}}}},)", i,
                         h.batch > 1 ? "0, 2, 1, 3" : "1, 0, 2");
    outputs += (i ? "," : "") + tensor(fmt::format("y{}", i), fmt::format("{}{}, {}, {}", lead, h.heads, h.rows, h.width));
  }
  nodes.pop_back();
  return program_of(
      fmt::format(R"({{"version": "1.0", "name": "runs", "inputs": {{{}}}, "outputs": {{{}}}, "nodes": [{}]}})", inputs, outputs, nodes),
      "runs");
}

/// y = x w + (x a) b with columns as heads: the low rank that rows on wgmma's 64-row side are for.
Program low_rank() {
  Program p = program_of(
      R"({"version": "1.0", "name": "runs", "inputs": {"x": {"shape": [128, 256], "dtype": "float16"}, "w": {"shape": [256, 256], "dtype": "float16"}, "a": {"shape": [256, 16], "dtype": "float16"},
    "b": {"shape": [16, 256], "dtype": "float16"}}, "outputs": {"y": {"shape": [4, 128, 64], "dtype": "float16"}}, "nodes": [{"op": "matmul", "inputs": ["x", "w"], "output": "p"}, {"op": "matmul", "inputs": ["x", "a"], "output": "d"},
    {"op": "matmul", "inputs": ["d", "b"], "output": "u"}, {"op": "add", "inputs": ["p", "u"], "output": "s"}, {"op": "reshape", "inputs": ["s"], "output": "r", "attrs": {"shape": [128, 4, 64]}},
    {"op": "transpose", "inputs": ["r"], "output": "y", "attrs": {"perm": [1, 0, 2]}}]})",
      "runs");
  const auto g = parse_graph(
      "kernel runs {\n %x = input 0 : f16[128,256]\n %w = input 1 : f16[256,256]\n %a = input 2 : f16[256,16]\n %b = input 3 : "
      "f16[16,256]\n"
      " %y = call grid(32,1,1) loop(32) (%x, %w, %a, %b) {\n  %p = input 0 grid(-,-,-) loop(1) : f16[128,8]\n  %i = input 1 grid(1,-,-) "
      "loop(0) : f16[8,8]\n  %j = input 2 grid(-,-,-) loop(0) : f16[8,16]\n"
      "  %f = input 3 grid(1,-,-) : f16[16,8]\n  %o = add (accum.sum (matmul %p %i)) (matmul (accum.sum (matmul %p %j)) %f)\n  output 0 %o "
      "grid(1,-,-) : f16\n }\n"
      " %r = reshape [128,4,64] %y\n %t = transpose (1,0,2) %r\n output 0 %t : f16\n}\n");
  INFO((g ? "" : g.errors()[0].text));
  REQUIRE(g);
  p.graph = *g;
  return p;
}

/// Results of a stream or a tile kernel, and where it stores.
const std::vector<Access>* results_of(const KernelPlan& k) {
  return holds<StreamPlan>(k.body) || holds<TilePlan>(k.body) ? &bound_calls(k)[0].results : nullptr;
}

}  // namespace

TEST_CASE("columns that are heads are stored where the output has them") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  int streams = 0, tiles = 0, turned = 0, large = 0;
  const Heads all[] = {{1, 5, 256, 3, 32, false, false, "float16"}, {1, 16, 512, 4, 64, false, true, "bfloat16"},
                       {1, 24, 128, 2, 96, false, false, "float16"}, {1, 100, 192, 3, 64, false, false, "float16"},
                       {1, 130, 128, 2, 128, false, true, "bfloat16"}, {2, 40, 128, 2, 64, false, false, "float16"},
                       {1, 512, 128, 4, 64, false, false, "float16"},
                       // the last: more rows than columns, which may be the side that streams
                       {1, 640, 512, 2, 32, false, true, "float16"}};
  const auto add = [&](const Program& p, const std::string& what, int width) {
    const Planned planned = make_plan(p, p.graph, target);
    INFO(what);
    REQUIRE(planned.plan);
    CHECK(planned.plan->kernels.size() == 1);
    const KernelPlan& k = planned.plan->kernels[0];
    REQUIRE(results_of(k));
    CHECK((*results_of(k))[0].run == width);
    const bool spelled =
        std::any_of(p.graph.nodes().begin(), p.graph.nodes().end(), [](const Node& n) { return std::holds_alternative<Call>(n.op); });
    for (bool tails : {false, true}) {   // what the gate emulates stores runs as well
      if (spelled) continue;
      const Reduced small = reduce_plan(p, *planned.plan, target, tails);
      INFO(small.refusal << small.differs);
      REQUIRE(small.plan);
      REQUIRE(results_of(small.plan->kernels[0]));
      CHECK((*results_of(small.plan->kernels[0]))[0].run > 0);
      CHECK(small.plan->kernels.size() == 1);
    }
    std::set<std::string> seen;
    for (const KernelPlan& a : kernel_alternatives(k, target, contract_rule(p), 200)) {
      const std::vector<Access>* r = results_of(a);
      REQUIRE(r);   // no other strategy stores runs
      CHECK((*r)[0].run == width);
      const auto t = plan_in<TilePlan>(a.body);
      const auto s = plan_in<StreamPlan>(a.body);
      const std::string kind = t ? fmt::format("tile {} {} {}", (*t)->turned > 0, (*t)->large, (*t)->cluster > 1)
                                 : fmt::format("stream {} {} {}", (*s)->registers, (*s)->columns, (*s)->cluster > 1);
      if (!seen.insert(kind).second) continue;
      (t ? (*t)->turned ? turned : (*t)->large ? large : tiles : streams)++;
      Plan plan = *planned.plan;
      plan.kernels[0].body = a.body;
      cases.push_back(case_of(p, plan, target, fmt::format("c{}_", cases.size())));
      names.push_back(what + ", " + kind);
    }
  };
  for (const Heads& h : all) add(program(h), fmt::format("{} x {} x {} x {} x {}", h.batch, h.rows, h.depth, h.heads, h.width), h.width);
  add(low_rank(), "low rank", 64);
  // Queries, keys and values of one input: three calls in one kernel.
  const Program three = program({1, 8, 256, 2, 64, false, false, "float16"}, 3);
  const Planned beside = make_plan(three, three.graph, target);
  REQUIRE(beside.plan);
  CHECK(beside.plan->kernels.size() == 1);
  cases.push_back(case_of(three, *beside.plan, target, "beside_"));
  names.push_back("beside each other");
  CHECK(streams > 3);
  CHECK(tiles > 3);
  CHECK(large > 0);
  CHECK(turned > 0);
  check_emulations(cases, names, compiler, 1.0, true);
}

TEST_CASE("rows that are heads are read where they lie") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  // norm: none, with sums of the loop, with rows that are whole before the loop
  struct Rows { int rows, heads, width, columns; const char *norm, *type; };
  int streams = 0, prepared = 0;
  for (const Rows& r : {Rows{5, 8, 32, 128, "", "float16"}, Rows{16, 4, 128, 192, "", "bfloat16"}, Rows{40, 8, 64, 128, "", "float16"},
                        Rows{8, 4, 128, 256, "loop", "float16"}, Rows{16, 8, 64, 64, "loop", "bfloat16"},
                        Rows{6, 16, 64, 128, "whole", "float16"}, Rows{16, 4, 128, 128, "whole", "bfloat16"}}) {
    const int depth = r.heads * r.width;
    const bool normed = r.norm[0] != 0, whole = r.norm == std::string("whole");
    const std::string t = r.type == std::string("float16") ? "f16" : "bf16",
                      what = fmt::format("{} x {} x {} x {}, norm: {}", r.rows, r.heads, r.width, r.columns, r.norm);
    const auto tensor = [&](const std::string& name, const std::string& dims) {
      return fmt::format(R"("{}": {{"shape": [{}], "dtype": "{}"}})", name, dims, r.type);
    };
    Program p = program_of(
        fmt::format(
            R"({{"version": "1.0", "name": "runs", "inputs": {{{}, {}, {}}}, "outputs": {{{}}}, "nodes": [{{"op": "transpose", "inputs": ["a"], "output": "t", "attrs": {{"perm": [1, 0, 2]}}}},
      {{"op": "reshape", "inputs": ["t"], "output": "x", "attrs": {{"shape": [{}, {}]}}}}, {}{{"op": "matmul", "inputs": ["{}", "w"], "output": "p"}}, {{"op": "add", "inputs": ["p", "r"], "output": "y"}}]}})",
            tensor("a", fmt::format("{}, {}, {}", r.heads, r.rows, r.width)), tensor("w", fmt::format("{}, {}", depth, r.columns)),
            tensor("r", fmt::format("{}, {}", r.rows, r.columns)), tensor("y", fmt::format("{}, {}", r.rows, r.columns)), r.rows, depth,
            normed ? R"({"op": "rms_norm", "inputs": ["x"], "output": "n"},)" : "", normed ? "n" : "x"),
        what);
    for (bool tails : {false, true}) {   // what the gate emulates reads runs as well
      const Planned straight = make_plan(p, p.graph, target);
      REQUIRE(straight.plan);
      const auto reads_runs = [](const Plan& plan) {
        return std::any_of(plan.kernels.begin(), plan.kernels.end(), [](const KernelPlan& k) {
          const auto s = plan_in<StreamPlan>(k.body);
          return s && std::any_of((*s)->operands.begin(), (*s)->operands.end(), [](const Access& x) { return x.run > 0; });
        });
      };
      const Reduced small = reduce_plan(p, *straight.plan, target, tails);
      INFO(what << small.refusal << small.differs);
      REQUIRE(small.plan);
      CHECK(reads_runs(*straight.plan) == !normed);   // straightforward, a norm's kernel makes the rows
      CHECK(reads_runs(*small.plan) == !normed);
    }
    std::string text = fmt::format(
        "kernel runs {{\n %a = input 0 : {0}[{1},{2},{3}]\n %w = input 1 : {0}[{4},{5}]\n %r = input 2 : {0}[{2},{5}]\n %t = transpose "
        "(1,0,2) %a\n %x = reshape [{2},{4}] %t\n"
        " %y = call grid({6},1,1) loop({7}) (%x, %w, %r) {{\n  %i = input 0 grid(-,-,-) loop(1) : {0}[{2},8]\n  %j = input 1 grid(1,-,-) "
        "loop(0) : {0}[8,8]\n  %k = input 2 grid(1,-,-) : {0}[{2},8]\n",
        t, r.heads, r.rows, r.width, depth, r.columns, r.columns / 8, depth / 8);
    const std::string size = fmt::format("(sqrt (add (div %q (const {} extent 0.1)) 1e-06))", depth);
    if (whole)
      text +=
          fmt::format("  %h = input 0 grid(-,-,-) : {}[{},{}]\n  %q = reduce.sum 1 (square %h)\n  %o = accum.sum (matmul (div %i {}) %j)\n",
                      t, r.rows, depth, size);
    else if (normed) text += fmt::format("  %q = accum.sum (reduce.sum 1 (square %i))\n  %o = div (accum.sum (matmul %i %j)) {}\n", size);
    else text += "  %o = accum.sum (matmul %i %j)\n";
    text += fmt::format("  %z = add %o %k\n  output 0 %z grid(1,-,-) : {0}\n }}\n output 0 %y : {0}\n}}\n", t);
    const auto g = parse_graph(text);
    INFO(what << "\n" << text << (g ? "" : g.errors()[0].text));
    REQUIRE(g);
    p.graph = *g;
    const Planned planned = make_plan(p, p.graph, target);
    REQUIRE(planned.plan);
    INFO(print(*planned.plan));
    CHECK(planned.plan->kernels.size() == 1);
    for (const KernelPlan& a : kernel_alternatives(planned.plan->kernels[0], target, contract_rule(p), 6)) {
      const auto s = plan_in<StreamPlan>(a.body);
      REQUIRE(s);   // no other strategy reads runs
      CHECK(std::any_of((*s)->operands.begin(), (*s)->operands.end(), [&](const Access& x) { return x.run == r.width; }));
      prepared += (*s)->prepared;
      streams++;
      cases.push_back(case_of(p, with_kernel(*planned.plan, 0, a), target, fmt::format("r{}_", cases.size())));
      names.push_back(what + ", " + division_text(a));
    }
  }
  CHECK(streams > 20);
  CHECK(prepared > 0);
  check_emulations(cases, names, compiler, 1.0, false);
}

TEST_CASE("a product is stored as the next one reads it, heads behind each other") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  for (const auto& [type, rows, width] : {std::tuple{"float16", 40, 32}, std::tuple{"bfloat16", 12, 24}, std::tuple{"bfloat16", 130, 64}}) {
    const int heads = 4, depth = heads * width;
    const Program p = program_of(
        fmt::format(
            R"({{"version": "1.0", "name": "runs", "inputs": {{"x": {{"shape": [{0}, {1}, 64], "dtype": "{2}"}}, "w": {{"shape": [{0}, 64, {3}], "dtype": "{2}"}}, "v": {{"shape": [{4}, 96], "dtype": "{2}"}}}},
      "outputs": {{"y": {{"shape": [{1}, 96], "dtype": "{2}"}}}}, "nodes": [{{"op": "matmul", "inputs": ["x", "w"], "output": "o"}}, {{"op": "transpose", "inputs": ["o"], "output": "t", "attrs": {{"perm": [1, 0, 2]}}}},
      {{"op": "reshape", "inputs": ["t"], "output": "r", "attrs": {{"shape": [{1}, {4}]}}}}, {{"op": "matmul", "inputs": ["r", "v"], "output": "y"}}]}})",
            heads, rows, type, width, depth),
        "runs");
    const Planned planned = make_plan(p, p.graph, target);
    REQUIRE(planned.plan);
    INFO(print(*planned.plan));
    CHECK(planned.plan->kernels.size() == 2);
    for (bool tails : {false, true}) {
      const Reduced small = reduce_plan(p, *planned.plan, target, tails);
      INFO(small.refusal << small.differs);
      REQUIRE(small.plan);
      CHECK(small.plan->kernels.size() == 2);
      cases.push_back(case_of(*small.program, *small.plan, target, fmt::format("m{}_", cases.size())));
      names.push_back(fmt::format("{} {} {}, reduced", type, rows, width));
    }
    for (const KernelPlan& a : kernel_alternatives(planned.plan->kernels[0], target, contract_rule(p), 6)) {
      cases.push_back(case_of(p, with_kernel(*planned.plan, 0, a), target, fmt::format("m{}_", cases.size())));
      names.push_back(fmt::format("{} {} {}, {}", type, rows, width, division_text(a)));
    }
  }
  check_emulations(cases, names, compiler, 1.0, false);
}

TEST_CASE("heads that kernels cannot tell apart are moved by a kernel of their own") {
  const Target target = *find_target("sm_90a");
  // columns that are stored at once would belong to two heads
  for (const Heads& h : {Heads{1, 16, 256, 4, 40, false, false, "float16"}, Heads{1, 16, 256, 8, 20, false, false, "float16"}}) {
    const Program p = program(h);
    const Planned planned = make_plan(p, p.graph, target);
    REQUIRE(planned.plan);
    CHECK(planned.plan->kernels.size() == 2);
  }
}
