// Attention that is started while the kernel ahead of it still runs (plan/overlap.cc) on the CPU: its form for few queries, that for many,
// and the wide one; keys and values are inputs, queries are computed by the kernel ahead.
#include <variant>

#include <fmt/format.h>

#include "emulate/helpers.h"
#include "emulate/run_all.h"
#include "plan/attend/attend_plan.h"
#include "plan/block/block_plan.h"
#include "mirage/spec/text.h"
#include "unit/plan/plan_in.h"

using namespace mirage;
using namespace mirage::test;

namespace {

/// softmax(x w k^T) v per head; as the block graph that the search finds, behind the projection.
struct Attention { int64_t heads, queries, depth, keys, features, columns; };

std::string spec_of(const Attention& a) {
  return fmt::format(
      R"({{"version": "1.0", "name": "early", "inputs": {{"x": {{"shape": [{0}, {1}, {2}], "dtype": "float16"}}, "w": {{"shape": [{0}, {2}, {4}], "dtype": "float16"}}, "k": {{"shape": [{0}, {3}, {4}], "dtype": "float16"}},
    "v": {{"shape": [{0}, {3}, {5}], "dtype": "float16"}}}}, "outputs": {{"y": {{"dtype": "float16"}}}}, "nodes": [{{"op": "matmul", "inputs": ["x", "w"], "output": "p"}}, {{"op": "cast", "inputs": ["p"], "output": "q", "attrs": {{"dtype": "float16"}}}},
    {{"op": "matmul", "inputs": ["q", "k"], "output": "s", "attrs": {{"transpose_b": true}}}}, {{"op": "mul", "inputs": ["s", 0.125], "output": "t"}}, {{"op": "softmax", "inputs": ["t"], "output": "e"}}, {{"op": "matmul", "inputs": ["e", "v"], "output": "y"}}]}})",
      a.heads, a.queries, a.depth, a.keys, a.features, a.columns);
}

std::string graph_of(const Attention& a) {
  return fmt::format(R"(kernel early {{
  %0 = input 0 : f16[{0},{1},{2}]
  %1 = input 1 : f16[{0},{2},{4}]
  %2 = input 2 : f16[{0},{3},{4}]
  %3 = input 3 : f16[{0},{3},{5}]
  %4 = matmul %0 %1
  %5 = cast_f16 %4
  %6 = transpose (0,2,1) %2
  %7 = call grid({0},1,1) loop({6}) (%5, %6, %3) {{
    %0 = input 0 grid(0,-,-) loop(-) : f16[1,{1},{4}]
    %1 = input 1 grid(0,-,-) loop(2) : f16[1,{4},64]
    %2 = input 2 grid(0,-,-) loop(1) : f16[1,64,{5}]
    %3 = const 0.125
    %4 = matmul %0 %1
    %5 = mul %3 %4
    %6 = reduce.max 2 %5
    %7 = running %6
    %8 = sub %5 %7
    %9 = exp %8
    %10 = reduce.sum 2 %9
    %11 = matmul %9 %2
    %12 = accum.sum rescaled 1 %10 %7
    %13 = accum.sum rescaled 1 %11 %7
    %14 = div %13 %12
    output 0 %14 grid(0,-,-) : f16
  }}
  output 0 %7 : f16
}})", a.heads, a.queries, a.depth, a.keys, a.features, a.columns, a.keys / 64);
}

}  // namespace

TEST_CASE("attention that starts early asks for keys and values first") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> all;
  std::vector<std::string> names;
  for (const Attention& a : {Attention{2, 4, 32, 256, 64, 64}, Attention{2, 64, 32, 192, 64, 64}, Attention{1, 128, 16, 256, 128, 64},
                             Attention{1, 16, 32, 256, 320, 256}}) {
    const Program program = program_of(spec_of(a), "early");
    const auto graph = parse_graph(graph_of(a));
    INFO(graph_of(a) << (graph ? "" : graph.errors()[0].text));
    REQUIRE(graph);
    const Planned planned = make_plan(program, *graph, target);
    INFO(planned.reason);
    REQUIRE(planned.plan);
    INFO(print(*planned.plan));
    bool early = false;
    std::string text;
    for (const KernelPlan& k : planned.plan->kernels)
      if (holds<AttendPlan>(k.body))
        early = k.early, text = emit_kernel(k, *planned.plan, target).source;
    CHECK(early);
    CHECK(text.find("kEarly = true") != std::string::npos);
    all.push_back(case_of(program, *planned.plan, target, fmt::format("a{}_", all.size())));
    names.push_back(fmt::format("{} queries of {} features", a.queries, a.features));
  }
  check_emulations(all, names, compiler, 1.0, false);
}

// Attention whose sums and results lag behind the running maximum (kAttendLags in runtime/61_attend.cuh), on the CPU: scores of ordinary
// size, and so far apart that the maximum is raised again and again; many chunks, where a vote says whether neighbours' maxima are asked
// for, and few; also with the logarithm of the sum, which sees the maximum itself (a field's maximum is another after scaling, so such
// results are compared in floats only).

namespace {
constexpr const char* kLogarithm =
    R"(, {"op": "max", "inputs": ["s"], "output": "m", "attrs": {"axis": -1, "keepdim": true}}, {"op": "sub", "inputs": ["s", "m"], "output": "d"}, {"op": "exp", "inputs": ["d"], "output": "x"},
    {"op": "sum", "inputs": ["x"], "output": "l", "attrs": {"axis": -1, "keepdim": true}}, {"op": "log", "inputs": ["l"], "output": "g"}, {"op": "add", "inputs": ["m", "g"], "output": "e"})";
}

TEST_CASE("attention that lags behind its maximum is right on the CPU") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> cases, sums;
  std::vector<std::string> names;
  const auto add = [&](bool sum, int queries, int keys, double scale, int chunk, int cluster, int key_groups) {
    const auto g = parse_graph(
        fmt::format("kernel lags {{\n  %q = input 0 : f16[2,{0},64]\n  %k = input 1 : f16[2,{1},64]\n  %v = input 2 : f16[2,{1},64]\n  %t "
                    "= transpose (0,2,1) %k\n"
                    "  %o{4} = call grid(2,1,1) loop({2}) (%q, %t, %v) {{\n    %a = input 0 grid(0,-,-) : f16[1,{0},64]\n    %b = input 1 "
                    "grid(0,-,-) loop(2) : f16[1,64,32]\n    %w = input 2 grid(0,-,-) loop(1) : f16[1,32,64]\n"
                    "    %s = mul (matmul %a %b) {3}\n    %m = running (reduce.max 2 %s)\n    %p = exp (sub %s %m)\n    %l = accum.sum "
                    "rescaled 1 (reduce.sum 2 %p) %m\n    %r = accum.sum rescaled 1 (matmul %p %w) %m\n"
                    "    output 0 (div %r %l) grid(0,-,-) : f16\n{5}  }}\n  output 0 %o : f16\n{6}}}\n",
                    queries, keys, (keys + 31) / 32, scale, sum ? ", %e" : "",
                    sum ? "    output 1 (add (accum.max %m) (log %l)) grid(0,-,-) : f32\n" : "", sum ? "  output 1 %e : f32\n" : ""));
    INFO((g ? "" : g.errors()[0].text));
    REQUIRE(g);
    Program p = program_of(
        fmt::format(
            R"({{"version": "1.0", "name": "lags", "axes": {{"Q": {{"type": "const", "value": {}}}, "S": {{"type": "const", "value": {}}}}},
      "inputs": {{"q": {{"shape": [2, "Q", 64], "dtype": "float16"}}, "k": {{"shape": [2, "S", 64], "dtype": "float16"}}, "v": {{"shape": [2, "S", 64], "dtype": "float16"}}}},
      "outputs": {{"o": {{"shape": [2, "Q", 64], "dtype": "float16"}}{}}},
      "nodes": [{{"op": "matmul", "inputs": ["q", "k"], "output": "u", "attrs": {{"transpose_b": true}}}}, {{"op": "mul", "inputs": ["u", {}], "output": "s"}}, {{"op": "softmax", "inputs": ["s"], "output": "p", "attrs": {{"axis": -1}}}},
        {{"op": "matmul", "inputs": ["p", "v"], "output": "o"}}{}]}})",
            queries, keys, sum ? R"(, "e": {"shape": [2, "Q", 1], "dtype": "float32"})" : "", scale, sum ? kLogarithm : ""),
        "lags");
    p.graph = *g;
    const Planned planned = make_plan(p, *g, target);
    REQUIRE(planned.plan);
    REQUIRE(planned.plan->kernels.size() == 1);
    const auto chosen = plan_in<AttendPlan>(planned.plan->kernels[0].body);
    REQUIRE(chosen);
    CHECK((*chosen)->shape.plain);
    for (const AttendPlan& a : attend_candidates((*chosen)->body, (*chosen)->operands, (*chosen)->results, target).plans)
      if (a.chunk == chunk && a.cluster == cluster && a.meets == 1 && a.key_groups == key_groups && a.blocks_per_sm == 1 && !a.warp_rings &&
          a.query_groups == 1) {
        Plan plan = *planned.plan;
        plan.kernels[0].body = body_with<AttendPlan>(a);
        (sum ? sums : cases).push_back(case_of(p, plan, target, fmt::format("c{}_", cases.size() + sums.size())));
        if (!sum)
          names.push_back(fmt::format("{} queries, {} keys, scale {}, chunk {}, cluster {}, {} groups", queries, keys, scale, chunk,
                                      cluster, key_groups));
        return;
      }
    FAIL("no such division");
  };
  for (bool sum : {false, true}) {
    add(sum, 64, 640, 0.125, 64, 1, 1);   // votes
    add(sum, 64, 640, 16, 64, 1, 1);
    add(sum, 50, 1100, 16, 64, 1, 2);     // keys that end inside a chunk
    add(sum, 64, 384, 16, 64, 2, 2);      // few chunks
    add(sum, 64, 512, 4, 128, 2, 1);
  }
  check_emulations(cases, names, compiler, 0.5, true);
  std::vector<const EmulationCase*> all;
  for (const EmulationCase& c : sums) all.push_back(&c);
  const EmulationLibrary lib = build_emulation(all, compiler, emulation_folder());
  REQUIRE(lib.error.empty());
  for (size_t i = 0; i < sums.size(); i++)
    for (EmulationMode m : {EmulationMode::kFloat, EmulationMode::kLarge}) {
      const EmulationOutcome o = run_emulation(sums[i], lib.path, m, 1);
      INFO(names[i] << " and the sum, " << mode_name(m) << ": " << o.reason);
      CHECK(o.ok);
      CHECK(o.compared * 2 >= o.elements);
    }
}
