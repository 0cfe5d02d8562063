// Stream kernels that prepare their rows in shared memory (StreamPlan::prepared) and once read them at other places than their weights.
#include <variant>

#include "emulate/helpers.h"
#include "mirage/plan/alternatives.h"
#include "mirage/plan/stream.h"
#include "mirage/spec/text.h"

using namespace mirage;
using namespace mirage::test;

namespace {

/// exp(x - max x) w + (exp(x - max x) a) b over one loop: the rows are prepared, and a low rank makes blocks start at different chunks.
constexpr const char* kGraph =
    "kernel k {\n  %x = input 0 : f16[8,4096]\n  %w = input 1 : f16[4096,512]\n  %a = input 2 : f16[4096,16]\n  %b = input 3 : f16[16,512]\n"
    "  %y = call grid(32,1,1) loop(64) (%x, %w, %a, %b) {\n    %all = input 0 grid(-,-,-) loop(-) : f16[8,4096]\n    %p = input 0 grid(-,-,-) loop(1) : f16[8,64]\n    %q = input 1 grid(1,-,-) loop(0) : f16[64,16]\n"
    "    %r = input 2 grid(-,-,-) loop(0) : f16[64,16]\n    %s = input 3 grid(1,-,-) : f16[16,16]\n    %e = exp (sub %p (reduce.max 1 %all))\n"
    "    %d = add (accum.sum (matmul %e %q)) (matmul (accum.sum (matmul %e %r)) %s)\n    output 0 %d grid(1,-,-) : f16\n  }\n  output 0 %y : f16\n}\n";
constexpr const char* kSpec = R"({"version": "1.0", "name": "rows", "inputs": {"x": {"shape": [8, 4096], "dtype": "float16"}, "w": {"shape": [4096, 512], "dtype": "float16"}, "a": {"shape": [4096, 16], "dtype": "float16"},
  "b": {"shape": [16, 512], "dtype": "float16"}}, "outputs": {"y": {"shape": [8, 512], "dtype": "float16"}},
  "nodes": [{"op": "max", "inputs": ["x"], "output": "m", "attrs": {"axis": -1, "keepdim": true}}, {"op": "sub", "inputs": ["x", "m"], "output": "c"}, {"op": "exp", "inputs": ["c"], "output": "e"},
            {"op": "matmul", "inputs": ["e", "w"], "output": "p"}, {"op": "matmul", "inputs": ["e", "a"], "output": "t"}, {"op": "matmul", "inputs": ["t", "b"], "output": "q"}, {"op": "add", "inputs": ["p", "q"], "output": "y"}]})";

}  // namespace

TEST_CASE("prepared rows are read from where the block's weights start", "[bugs]") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  const auto g = parse_graph(kGraph);
  REQUIRE(g);
  const Program p = program_of(kSpec, "rows");
  const Planned planned = make_plan(p, *g, target);
  REQUIRE(planned.plan);
  REQUIRE(planned.plan->kernels.size() == 1);
  Plan plan = *planned.plan;
  const auto prepared = [](const KernelPlan& k) {
    const auto* s = std::get_if<std::shared_ptr<const StreamPlan>>(&k.body);
    return s && (*s)->prepared && (*s)->staggered;
  };
  const std::vector<KernelPlan> all = kernel_alternatives(plan.kernels[0], target, {DType::kF16, false}, 1 << 20);
  const auto one = std::find_if(all.begin(), all.end(), prepared);
  REQUIRE(one != all.end());
  plan.kernels[0] = *one;
  const EmulationCase c = case_of(p, plan, target, "rows_");
  const EmulationLibrary lib = build_emulation({&c}, compiler, emulation_folder());
  INFO(lib.error);
  REQUIRE(lib.error.empty());
  for (EmulationMode m : {EmulationMode::kField, EmulationMode::kFloat}) {
    const EmulationOutcome o = run_emulation(c, lib.path, m, 1);
    INFO(mode_name(m) << ": " << o.reason);
    CHECK(o.ok);
  }
}
