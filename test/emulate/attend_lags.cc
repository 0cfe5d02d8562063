// Attention whose sums and results lag behind the running maximum (kAttendLags in runtime/61_attend.cuh), on the CPU: scores of ordinary
// size, and so far apart that the maximum is raised again and again; many chunks, where a vote says whether neighbours' maxima are asked
// for, and few; also with the logarithm of the sum, which sees the maximum itself (a field's maximum is another after scaling, so such
// results are compared in floats only).
#include <variant>

#include <fmt/format.h>

#include "emulate/run_all.h"
#include "mirage/plan/attend.h"
#include "mirage/plan/block_plan.h"
#include "mirage/spec/text.h"

using namespace mirage;
using namespace mirage::test;

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
    const auto* chosen = std::get_if<std::shared_ptr<const AttendPlan>>(&planned.plan->kernels[0].body);
    REQUIRE(chosen);
    CHECK((*chosen)->shape.plain);
    for (const AttendPlan& a : attend_candidates((*chosen)->body, (*chosen)->operands, (*chosen)->results, target).plans)
      if (a.chunk == chunk && a.cluster == cluster && a.meets == 1 && a.key_groups == key_groups && a.blocks_per_sm == 1 && !a.warp_rings &&
          a.query_groups == 1) {
        Plan plan = *planned.plan;
        plan.kernels[0].body = std::make_shared<const AttendPlan>(a);
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
