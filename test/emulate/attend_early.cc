// Attention that is started while the kernel ahead of it still runs (plan/overlap.cc) on the CPU: its form for few queries, that for many,
// and the wide one; keys and values are inputs, queries are computed by the kernel ahead.
#include <fmt/format.h>

#include "emulate/helpers.h"
#include "emulate/run_all.h"
#include "mirage/plan/attend.h"
#include "mirage/spec/text.h"

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
      if (std::holds_alternative<std::shared_ptr<const AttendPlan>>(k.body))
        early = k.early, text = emit_kernel(k, *planned.plan, target).source;
    CHECK(early);
    CHECK(text.find("kEarly = true") != std::string::npos);
    all.push_back(case_of(program, *planned.plan, target, fmt::format("a{}_", all.size())));
    names.push_back(fmt::format("{} queries of {} features", a.queries, a.features));
  }
  check_emulations(all, names, compiler, 1.0, false);
}
