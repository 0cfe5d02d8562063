// Programs whose adjacent dimensions were joined (mirage/ir/fold.h), on the CPU: the kernels of the folded program against the caller's
// graph, in the caller's memory. Ragged sizes, broadcasting, gaps between lines.
#include <fmt/format.h>

#include "driver/proof/folding.h"
#include "emulate/helpers.h"

using namespace mirage;
using namespace mirage::test;

namespace {

struct Case { std::string name, text; size_t kernels; };

const std::vector<Case> kCases = {
    {"attention with groups of heads",
     R"({"version": "1.0", "name": "grouped", "inputs": {"q": {"shape": [2, 2, 3, 7, 64], "dtype": "float16"}, "k": {"shape": [2, 2, 1, 72, 64], "dtype": "float16", "strides": [9728, 4864, 4864, 64, 1]},
        "v": {"shape": [2, 2, 1, 72, 64], "dtype": "float16"}}, "outputs": {"o": {"shape": [2, 2, 3, 7, 64], "dtype": "float16"}},
        "nodes": [{"op": "matmul", "inputs": ["q", "k"], "output": "s", "attrs": {"transpose_b": true}}, {"op": "softmax", "inputs": ["s"], "output": "p"}, {"op": "matmul", "inputs": ["p", "v"], "output": "o"}]})",
     1},
    {"a linear layer of three dimensions",
     R"({"version": "1.0", "name": "linear3", "inputs": {"x": {"shape": [3, 5, 72], "dtype": "bfloat16", "strides": [400, 80, 1]}, "g": {"shape": [1, 1, 72], "dtype": "bfloat16"},
        "w": {"shape": [72, 104], "dtype": "bfloat16"}, "r": {"shape": [3, 5, 1], "dtype": "float32"}}, "outputs": {"y": {"shape": [3, 5, 104], "dtype": "bfloat16", "strides": [560, 112, 1]}},
        "nodes": [{"op": "rms_norm", "inputs": ["x", "g"], "output": "n"}, {"op": "matmul", "inputs": ["n", "w"], "output": "z"}, {"op": "mul", "inputs": ["z", "r"], "output": "y"}]})",
     1},
    {"batch norm of rows that were reshaped",
     R"({"version": "1.0", "name": "batch", "inputs": {"x": {"shape": [21, 40], "dtype": "float16"}, "w": {"shape": [40, 24], "dtype": "float16"}}, "outputs": {"y": {"shape": [3, 7, 24], "dtype": "float32"}},
        "nodes": [{"op": "matmul", "inputs": ["x", "w"], "output": "p"}, {"op": "reshape", "inputs": ["p"], "output": "z", "attrs": {"shape": [3, 7, 24]}}, {"op": "mean", "inputs": ["z"], "output": "mu", "attrs": {"axis": [0, 1], "keepdim": true}},
            {"op": "sub", "inputs": ["z", "mu"], "output": "d"}, {"op": "square", "inputs": ["d"], "output": "d2"}, {"op": "mean", "inputs": ["d2"], "output": "var", "attrs": {"axis": [0, 1], "keepdim": true}},
            {"op": "add", "inputs": ["var", 1e-3], "output": "ve"}, {"op": "rsqrt", "inputs": ["ve"], "output": "rs"}, {"op": "mul", "inputs": ["d", "rs"], "output": "y"}]})",
     1},
};

}  // namespace

TEST_CASE("kernels over joined dimensions are right in the caller's memory") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  for (const Case& c : kCases) {
    const Folding f = fold_verified(program_of(c.text, c.name));
    INFO(c.name);
    REQUIRE(f.folds);
    REQUIRE(f.proof.proved);
    const std::vector<NamedPlan> plans = plans_of(f.program, target, 300'000, 0, true);
    REQUIRE(plans.size() == 2);
    REQUIRE(plans[1].plan.kernels.size() == c.kernels);
    for (const NamedPlan& n : plans) {
      cases.push_back(case_of(f.program, n.plan, target, fmt::format("f{}_", cases.size())));
      EmulationCase& whole = cases.back();   // the kernels as they are, judged by the caller's graph over the caller's tensors
      whole.program = f.whole;
      whole.plan.graph = f.unfold(whole.plan.graph);
      for (Buffer& b : whole.plan.buffers) {
        if (b.kind == Buffer::Kind::kWorkspace) continue;
        const TensorInfo& t = (b.kind == Buffer::Kind::kInput ? f.whole.inputs : f.whole.outputs)[static_cast<size_t>(b.index)];
        const int64_t bytes = b.bytes();
        b.dims = t.type.dims;
        b.strides = t.strides;
        REQUIRE(b.bytes() == bytes);
      }
      names.push_back(c.name + ", " + n.name);
    }
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
