// Rows that a kernel stores in float16, scaled by line, and multiplied back behind the product (plan/passes/narrow.cc): emulated in the
// field, with floats, and with products beyond float16's range.
#include <fmt/format.h>
#include <variant>
#include <tuple>
#include <set>
#include <algorithm>

#include "mirage/plan/bound.h"
#include "mirage/spec/text.h"
#include "plan/stream/stream_plan.h"
#include "plan/block/block_plan.h"
#include "emulate/run_all.h"
#include "emulate/helpers.h"
#include "unit/plan/plan_in.h"

using namespace mirage;
using namespace mirage::test;

TEST_CASE("float16 rows with a factor per line give the program's results", "[emulate]") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Program p = program_of(
      R"({"version": "1.0", "name": "lines", "inputs": {"x": {"shape": [72, 520], "dtype": "float16"}, "g": {"shape": [520], "dtype": "float16"}, "w": {"shape": [520, 136], "dtype": "float16"}},
      "outputs": {"y": {"shape": [72, 136], "dtype": "float16"}}, "nodes": [{"op": "mul", "inputs": ["x", "g"], "output": "s"}, {"op": "matmul", "inputs": ["s", "w"], "output": "y"}]})",
      "lines");
  const Planned planned = make_plan(p, p.graph, *find_target("sm_90a"));
  REQUIRE(planned.plan);
  CHECK(std::count_if(planned.plan->buffers.begin(), planned.plan->buffers.end(),
                      [](const Buffer& b) { return b.kind == Buffer::Kind::kWorkspace && b.dtype == DType::kF16; }) == 1);
  const EmulationCase c = case_of(p, *planned.plan, *find_target("sm_90a"), "lines_");
  const EmulationLibrary lib = build_emulation({&c}, compiler, emulation_folder());
  INFO(lib.error);
  REQUIRE(lib.error.empty());
  for (EmulationMode m : {EmulationMode::kField, EmulationMode::kFloat, EmulationMode::kLarge}) {
    const EmulationOutcome o = run_emulation(c, lib.path, m, 1);
    INFO(mode_name(m) << ": " << o.reason);
    CHECK(o.ok);
  }
}

// Streams whose weights are scaled in the loop (runtime/43_stream_lines.cuh) on the CPU, in every division that fits: sums of groups times
// a scale for each column, weights that the loop computes, scales of several types and layouts, zero points, groups smaller and larger than
// a chunk, lines in both orders, statistics and several products beside them.
namespace by_groups {

/// x [rows, groups * size] times w [groups, size, columns], or [columns, groups, size]. body: %o of %a (x), %b (w), %s and %t (by group and
/// column) in the loop. nodes: of the spec, from x (as [groups, rows, size]: "a") and w ("b") to "y" [1, rows, columns].
struct Grouped {
  const char* name;
  const char* type;
  const char* scale;
  int rows, groups, size, columns;
  bool lines;  ///< along the reduction
  const char *body, *nodes;
  bool factored;
};

constexpr const char* kTimes =
    R"({"op": "matmul", "inputs": ["a", "b"], "output": "p"}, {"op": "mul", "inputs": ["p", "s"], "output": "q"}, )"
    R"({"op": "sum", "inputs": ["q"], "output": "y", "attrs": {"axis": 0, "keepdim": true}})";
constexpr const char* kMade = R"({"op": "sub", "inputs": ["b", "t"], "output": "d"}, {"op": "mul", "inputs": ["d", "s"], "output": "e"}, )"
                              R"({"op": "matmul", "inputs": ["a", "e"], "output": "p"}, )"
                              R"({"op": "sum", "inputs": ["p"], "output": "y", "attrs": {"axis": 0, "keepdim": true}})";
constexpr const char* kNorm =
    R"({"op": "matmul", "inputs": ["a", "b"], "output": "p"}, {"op": "mul", "inputs": ["p", "s"], "output": "q"}, )"
    R"({"op": "sum", "inputs": ["q"], "output": "z", "attrs": {"axis": 0, "keepdim": true}}, )"
    R"({"op": "square", "inputs": ["a"], "output": "c"}, )"
    R"({"op": "sum", "inputs": ["c"], "output": "d", "attrs": {"axis": 2, "keepdim": true}}, )"
    R"({"op": "sum", "inputs": ["d"], "output": "e", "attrs": {"axis": 0, "keepdim": true}}, )"
    R"({"op": "add", "inputs": ["e", 1.0], "output": "f"}, )"
    R"({"op": "div", "inputs": ["z", "f"], "output": "y"})";

constexpr const char* kTimesBody = "%o = accum.sum (reduce.sum 0 (mul (matmul %a %b) %s))";
constexpr const char* kMadeBody = "%o = accum.sum (reduce.sum 0 (matmul %a (mul (sub %b %t) %s)))";

const std::vector<Grouped> kPrograms = {
    {"a scale for each group", "float16", "float16", 4, 8, 64, 72, false, kTimesBody, kTimes, true},
    {"of float32, by groups of 32", "bfloat16", "float32", 1, 12, 32, 80, false, kTimesBody, kTimes, true},
    {"summed behind the loop", "float16", "float16", 3, 4, 128, 64, false, "%o = reduce.sum 0 (accum.sum (mul (matmul %a %b) %s))", kTimes,
     true},
    {"lines along the reduction, many rows", "float16", "bfloat16", 20, 6, 128, 72, true, kTimesBody, kTimes, true},
    {"scale and zero point", "bfloat16", "bfloat16", 5, 8, 64, 72, false, kMadeBody, kMade, false},
    {"the same along the reduction", "bfloat16", "float32", 17, 4, 128, 104, true, kMadeBody, kMade, false},
    {"with groups of 32", "bfloat16", "bfloat16", 2, 16, 32, 64, false, kMadeBody, kMade, false},
    {"beside a statistic of rows", "float16", "float16", 7, 8, 64, 72, false,
     "%e = accum.sum (reduce.sum 0 (reduce.sum 2 (square %a)))\n    %o = div (accum.sum (reduce.sum 0 (mul (matmul %a %b) %s))) (add %e "
     "1.0)",
     kNorm, true},
};

std::string short_name(const std::string& type) { return type == "float16" ? "f16" : type == "bfloat16" ? "bf16" : "f32"; }

Program program(const Grouped& u, const Target&) {
  const std::string w =
      u.lines ? fmt::format("{}, {}, {}", u.columns, u.groups, u.size) : fmt::format("{}, {}, {}", u.groups, u.size, u.columns);
  const std::string first = R"({"op": "reshape", "inputs": ["x"], "output": "x3", "attrs": {"shape": [)" +
                            fmt::format("{}, {}, {}", u.rows, u.groups, u.size) +
                            R"(]}}, {"op": "transpose", "inputs": ["x3"], "output": "a", "attrs": {"perm": [1, 0, 2]}}, )" +
                            (u.lines ? R"({"op": "transpose", "inputs": ["w"], "output": "b", "attrs": {"perm": [1, 2, 0]}}, )"
                                     : R"({"op": "mul", "inputs": ["w", 1.0], "output": "b"}, )");
  const bool zeros = std::string(u.body).find("%t") != std::string::npos;
  Program p = program_of(
      fmt::format(
          R"({{"version": "1.0", "name": "grouped", "inputs": {{"x": {{"shape": [{0}, {1}], "dtype": "{2}"}}, )"
          R"("w": {{"shape": [{3}], "dtype": "{2}"}}, "s": {{"shape": [{4}, 1, {5}], "dtype": "{6}"}}{9}}}, )"
          R"("outputs": {{"y": {{"shape": [1, {0}, {5}], "dtype": "{2}"}}}}, )"
          R"("nodes": [{7}{8}]}})",
          u.rows, u.groups * u.size, u.type, w, u.groups, u.columns, u.scale, first, u.nodes,
          zeros ? fmt::format(R"(, "t": {{"shape": [{}, 1, {}], "dtype": "{}"}})", u.groups, u.columns, u.scale) : ""),
      u.name);
  const std::string f = short_name(u.type), h = short_name(u.scale),
                    tile = u.lines ? fmt::format("[8,1,{}]", u.size) : fmt::format("[1,{},8]", u.size);
  const auto g = parse_graph(
      fmt::format("kernel grouped {{\n  %x = input 0 : {0}[{2},{3}]\n  %w = input 1 : {0}[{4}]\n  %g = input 2 : {1}[{5},1,{6}]\n"
                  "{11}  %v = transpose (1,0,2) (reshape [{2},{5},{7}] %x)\n  %y = call grid({8},1,1) loop({5}) (%v, {9}, %g{12}) {{\n    "
                  "%a = input 0 grid(-,-,-) loop(0) : {0}[1,{2},{7}]\n    %b = input 1 grid(2,-,-) loop(0) : {0}[1,{7},8]\n    %s = input "
                  "2 grid(2,-,-) "
                  "loop(0) : {1}[1,1,8]\n{13}    {10}\n    output 0 %o grid(2,-,-) : {0}\n  }}\n  output 0 "
                  "%y : {0}\n}}\n",
                  f, h, u.rows, u.groups * u.size,
                  u.lines ? fmt::format("{},{},{}", u.columns, u.groups, u.size) : fmt::format("{},{},{}", u.groups, u.size, u.columns),
                  u.groups, u.columns, u.size, u.columns / 8, u.lines ? "(transpose (1,2,0) %w)" : "%w", u.body,
                  zeros ? fmt::format("  %z = input 3 : {}[{},1,{}]\n", h, u.groups, u.columns) : "", zeros ? ", %z" : "",
                  zeros ? fmt::format("    %t = input 3 grid(2,-,-) loop(0) : {}[1,1,8]\n", h) : ""));
  INFO((g ? "" : g.errors()[0].text));
  REQUIRE(g);
  p.graph = *g;
  return p;
}

/// What a kernel computes, as streams: in every division.
std::vector<StreamPlan> streams_of(const KernelPlan& k, const Target& target, const ContractRule& rule) {
  StreamCandidates out;
  if (holds<StreamPlan>(k.body) || holds<BlockPlan>(k.body)) {
    const KernelCall& call = bound_calls(k)[0];
    out = stream_candidates(call.body, call.operands, call.results, target, rule);
  }
  UNSCOPED_INFO(out.reason);
  return std::move(out.plans);
}

}  // namespace by_groups

TEST_CASE("weights that are scaled in the loop are right on the CPU") {
  using namespace by_groups;
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) {
    WARN("skipped: there is no host compiler");
    return;
  }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  for (const Grouped& u : kPrograms) {
    INFO(u.name);
    const Program p = program(u, target);
    const Planned planned = make_plan(p, p.graph, target);
    INFO(planned.reason);
    REQUIRE(planned.plan);
    std::set<std::tuple<int, bool, bool>> seen;
    for (size_t i = 0; i < planned.plan->kernels.size(); i++)
      for (const StreamPlan& s : streams_of(planned.plan->kernels[i], target, contract_rule(p))) {
        CHECK(s.group == u.size);
        CHECK((s.contractions[0].factored >= 0) == u.factored);
        if (!seen.emplace(s.chunk, s.stages > 1, s.cluster > 1).second) continue;
        Plan one = *planned.plan;
        one.kernels[i].body = body_with<StreamPlan>(s);
        names.push_back(fmt::format("{}: {} warps, {} stages, chunk {}, cluster {}", u.name, s.warps, s.stages, s.chunk, s.cluster));
        cases.push_back(case_of(p, one, target, fmt::format("g{}_", cases.size())));
      }
    CHECK(seen.size() >= 2);
  }
  check_emulations(cases, names, compiler, 0.95, true);
}
