// Stream kernels that prepare their rows in shared memory (StreamPlan::prepared): rows were read at other places than weights, or held in
// an order that was not theirs.
#include <variant>

#include "emulate/helpers.h"
#include "mirage/plan/alternatives.h"
#include "plan/stream/stream_plan.h"
#include "mirage/spec/text.h"
#include "unit/codegen/module_fixture.h"
#include "unit/plan/plan_in.h"

using namespace mirage;
using namespace mirage::test;

namespace {

/// Emulates the first plan of the graph's one kernel that prepares rows and is `wanted`.
void check(const std::string& graph, const std::string& spec, const std::string& name, bool (*wanted)(const StreamPlan&)) {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  const auto g = parse_graph(graph);
  REQUIRE(g);
  const Program p = program_of(spec, name);
  const Planned planned = make_plan(p, *g, target);
  REQUIRE(planned.plan);
  REQUIRE(planned.plan->kernels.size() == 1);
  Plan plan = *planned.plan;
  const std::vector<KernelPlan> all = kernel_alternatives(plan.kernels[0], target, {DType::kF16, false}, 1 << 20);
  const auto one = std::find_if(all.begin(), all.end(), [&](const KernelPlan& k) {
    const auto s = plan_in<StreamPlan>(k.body);
    return s && wanted(**s);
  });
  REQUIRE(one != all.end());
  plan.kernels[0] = *one;
  const EmulationCase c = case_of(p, plan, target, name + "_");
  const EmulationLibrary lib = build_emulation({&c}, compiler, emulation_folder());
  INFO(lib.error);
  REQUIRE(lib.error.empty());
  for (EmulationMode m : {EmulationMode::kField, EmulationMode::kFloat}) {
    const EmulationOutcome o = run_emulation(c, lib.path, m, 1);
    INFO(mode_name(m) << ": " << o.reason);
    CHECK(o.ok);
  }
}

}  // namespace

TEST_CASE("prepared rows are read from where the block's weights start", "[bugs]") {
  // exp(x - max x) w + (exp(x - max x) a) b over one loop: a low rank makes blocks start at different chunks of the weights.
  check(
      "kernel k {\n  %x = input 0 : f16[8,4096]\n  %w = input 1 : f16[4096,512]\n  %a = input 2 : f16[4096,16]\n  %b = input 3 : "
      "f16[16,512]\n"
      "  %y = call grid(32,1,1) loop(64) (%x, %w, %a, %b) {\n    %all = input 0 grid(-,-,-) loop(-) : f16[8,4096]\n    %p = input 0 "
      "grid(-,-,-) loop(1) : f16[8,64]\n    %q = input 1 grid(1,-,-) loop(0) : f16[64,16]\n"
      "    %r = input 2 grid(-,-,-) loop(0) : f16[64,16]\n    %s = input 3 grid(1,-,-) : f16[16,16]\n    %e = exp (sub %p (reduce.max 1 "
      "%all))\n"
      "    %d = add (accum.sum (matmul %e %q)) (matmul (accum.sum (matmul %e %r)) %s)\n    output 0 %d grid(1,-,-) : f16\n  }\n  output 0 "
      "%y : f16\n}\n",
      R"({"version": "1.0", "name": "rows", "inputs": {"x": {"shape": [8, 4096], "dtype": "float16"}, "w": {"shape": [4096, 512], "dtype": "float16"}, "a": {"shape": [4096, 16], "dtype": "float16"},
          "b": {"shape": [16, 512], "dtype": "float16"}}, "outputs": {"y": {"shape": [8, 512], "dtype": "float16"}},
          "nodes": [{"op": "max", "inputs": ["x"], "output": "m", "attrs": {"axis": -1, "keepdim": true}}, {"op": "sub", "inputs": ["x", "m"], "output": "c"}, {"op": "exp", "inputs": ["c"], "output": "e"},
                    {"op": "matmul", "inputs": ["e", "w"], "output": "p"}, {"op": "matmul", "inputs": ["e", "a"], "output": "t"}, {"op": "matmul", "inputs": ["t", "b"], "output": "q"},
                    {"op": "add", "inputs": ["p", "q"], "output": "y"}]})",
      "rows", [](const StreamPlan& s) { return s.prepared && s.staggered; });
}

TEST_CASE("rows that are longer than the reduction are reduced whole beside prepared ones", "[bugs]") {
  // exp(x - max x - max z) w where z has twice as many columns: they were held in the order of x's chunks, the first half twice and the
  // second not at all.
  check(
      "kernel k {\n  %x = input 0 : f16[8,2048]\n  %w = input 1 : f16[2048,512]\n  %z = input 2 : f16[8,4096]\n"
      "  %y = call grid(32,1,1) loop(32) (%x, %w, %z) {\n    %all = input 0 grid(-,-,-) loop(-) : f16[8,2048]\n    %p = input 0 "
      "grid(-,-,-) loop(1) : f16[8,64]\n    %q = input 1 grid(1,-,-) loop(0) : f16[64,16]\n"
      "    %l = input 2 grid(-,-,-) loop(-) : f16[8,4096]\n    %e = exp (sub %p (add (reduce.max 1 %all) (reduce.max 1 %l)))\n    output 0 "
      "(accum.sum (matmul %e %q)) grid(1,-,-) : f16\n  }\n  output 0 %y : f16\n}\n",
      R"({"version": "1.0", "name": "long_rows", "inputs": {"x": {"shape": [8, 2048], "dtype": "float16"}, "w": {"shape": [2048, 512], "dtype": "float16"}, "z": {"shape": [8, 4096], "dtype": "float16"}},
          "outputs": {"y": {"shape": [8, 512], "dtype": "float16"}},
          "nodes": [{"op": "max", "inputs": ["x"], "output": "m", "attrs": {"axis": -1, "keepdim": true}}, {"op": "max", "inputs": ["z"], "output": "n", "attrs": {"axis": -1, "keepdim": true}},
                    {"op": "add", "inputs": ["m", "n"], "output": "o"}, {"op": "sub", "inputs": ["x", "o"], "output": "c"}, {"op": "exp", "inputs": ["c"], "output": "e"}, {"op": "matmul", "inputs": ["e", "w"], "output": "y"}]})",
      "long_rows", [](const StreamPlan& s) { return s.hold_early; });
}

TEST_CASE("a kernel whose dynamic and static shared memory pass 48 KB together asks for it", "[bugs]") {
  // KernelBench's level2_28 on an H200: a row kernel with 49152 bytes and the scratch of its reductions was refused by each launch.
  fixture::Made made = fixture::two_kernels();
  made.kernels[0].smem_bytes = 48 * 1024;
  const std::string cu = fixture::assemble(made).files.at("demo.cu");
  CHECK(cu.find("&map_0), cudaFuncAttributeMaxDynamicSharedMemorySize, 49152") != std::string::npos);
}
