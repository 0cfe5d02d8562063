// What threads write to shared memory the ordinary way, and wgmma or tensor copies touch: without the fence between, the emulator says so
// (docs/emulation.md, "missing proxy fence"). Attention's is in attend_gains.cc.
#include "emulate/helpers.h"
#include "plan/tile/tile_plan.h"
#include "mirage/spec/text.h"
#include "unit/plan/plan_in.h"

using namespace mirage;
using namespace mirage::test;

TEST_CASE("a fence for the asynchronous proxy that is dropped is missed") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  const Program p = program_of(
      R"({"version": "1.0", "name": "gained", "inputs": {"x": {"shape": [70, 200], "dtype": "float16"}, "g": {"shape": [200], "dtype": "float16"}, "w": {"shape": [200, 136], "dtype": "float16"}},
      "outputs": {"y": {"shape": [70, 136], "dtype": "float16"}}, "nodes": [{"op": "mul", "inputs": ["x", "g"], "output": "u"}, {"op": "matmul", "inputs": ["u", "w"], "output": "y"}]})",
      "gained");
  const Graph g = *parse_graph(
      "kernel gained {\n  %x = input 0 : f16[70,200]\n  %g = input 1 : f16[200]\n  %w = input 2 : f16[200,136]\n  %y = call grid(3,1,1) "
      "loop(4) (%x, %g, %w) {\n    %a = input 0 grid(-,-,-) loop(1) : f16[70,64]\n"
      "    %b = input 1 grid(-,-,-) loop(0) : f16[64]\n    %c = input 2 grid(1,-,-) loop(0) : f16[64,64]\n    %s = accum.sum (matmul (mul "
      "%a %b) %c)\n    output 0 %s grid(1,-,-) : f16\n  }\n  output 0 %y : f16\n}\n");
  Planned planned = make_plan(p, g, target);
  REQUIRE(planned.plan);
  REQUIRE(planned.plan->kernels.size() == 1);
  KernelPlan& k = planned.plan->kernels[0];
  const auto tile = plan_in<TilePlan>(k.body);
  REQUIRE(tile);
  for (const TilePlan& t : tile_candidates((*tile)->body, (*tile)->operands, (*tile)->results, target, contract_rule(p)).plans)
    if (t.computes() && t.cluster == 1) { k.body = body_with<TilePlan>(t); break; }
  const EmulationCase c = case_of(p, *planned.plan, target, "f_");
  REQUIRE(c.kernels[0].source.find("fence_async_proxy();") != std::string::npos);
  CHECK(found_without(c, "__global__", "", compiler).empty());                                                      // as it is
  // wgmma reads the rows that threads have made
  CHECK(found_without(c, "__global__", "fence_async_proxy();", compiler) == "missing proxy fence");
  // tensor copies complete on what threads have set up
  CHECK(found_without(c, "__global__", "mbarrier_publish();", compiler) == "missing proxy fence");
}
