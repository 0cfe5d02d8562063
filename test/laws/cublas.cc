// Products that a library gives to cuBLASLt (plan/cublas.h): the matrices of the call as its text multiplies them, for operands and results
// that lie either way, with gaps, in batches that broadcast, of extent 1, and beside kernels of ours.
#include <fmt/format.h>

#include "emulate/run_all.h"
#include "mirage/plan/cublas.h"
#include "mirage/plan/strategy.h"
#include "unit/plan/programs.h"

using namespace mirage;
using namespace mirage::test;

namespace {

/// A target on which every product that can be is cuBLASLt's.
Target willing() {
  Target t = *find_target("sm_90a");
  t.allow_cublas = true;
  t.cublas_us = -1e6;
  return t;
}

const CublasPlan* cublas_of(const KernelPlan& k) {
  const auto* p = std::get_if<std::shared_ptr<const CublasPlan>>(&k.body);
  return p ? p->get() : nullptr;
}

struct Layout { Dims x, x_strides, y, y_strides, z_strides; bool y_transposed = false; };

Program product(const Layout& l, DType in, DType out) {
  Sketch s;
  const ValueId x = s.input(in, l.x, l.x_strides);
  ValueId y = s.input(in, l.y, l.y_strides);
  if (l.y_transposed) {
    Transpose t;
    const int rank = l.y.rank();
    for (int d = 0; d < rank; d++) t.perm[static_cast<size_t>(d)] = static_cast<int8_t>(d < rank - 2 ? d : 2 * rank - 3 - d);
    y = s.b.add(t, {y});
  }
  s.output(s.b.add(MatMul{}, {x, y}), out, l.z_strides);
  return s.finish();
}

}  // namespace

TEST_CASE("products by cuBLASLt are given the matrices that the program has") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Layout layouts[] = {
      {{24, 40}, {}, {40, 56}, {}, {}},
      {{24, 40}, {}, {56, 40}, {}, {}, true},                                    // [out, in]
      {{24, 40}, {48, 1}, {40, 56}, {72, 1}, {80, 1}},                           // gaps behind lines
      {{24, 40}, {1, 32}, {40, 56}, {1, 48}, {}},                                // columns one behind another
      {{24, 40}, {}, {40, 56}, {}, {1, 24}},                                     // so the result
      {{24, 40}, {1, 24}, {56, 40}, {}, {1, 24}, true},
      {{1, 40}, {}, {40, 56}, {}, {}},
      {{24, 40}, {}, {40, 1}, {}, {}},
      {{24, 1}, {}, {1, 56}, {}, {}},
      {{1, 40}, {9999, 1}, {40, 1}, {}, {}},
      {{3, 24, 40}, {}, {3, 40, 56}, {}, {}},
      {{3, 24, 40}, {}, {1, 40, 56}, {}, {}},                                    // one weight for all
      {{1, 3, 24, 40}, {}, {1, 3, 56, 40}, {}, {}, true},
      {{3, 24, 40}, {40, 120, 1}, {3, 40, 56}, {2240, 1, 40}, {56, 168, 1}},     // heads beside each other
  };
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  const Target target = willing();
  for (size_t i = 0; i < std::size(layouts); i++)
    for (const auto& [in, out] : {std::pair{DType::kF16, DType::kF16}, {DType::kBF16, DType::kF32}, {DType::kF32, DType::kF32}}) {
      const Program p = product(layouts[i], in, out);
      const Planned planned = make_plan(p, p.graph, target);
      INFO("layout " << i << " " << planned.reason);
      REQUIRE(planned.plan);
      REQUIRE(planned.plan->kernels.size() == 1);
      REQUIRE(cublas_of(planned.plan->kernels[0]));
      names.push_back(fmt::format("layout {} {}", i, dtype_name(in)));
      cases.push_back(case_of(p, *planned.plan, target, fmt::format("l{}_{}_", i, dtype_name(in))));
    }
  check_emulations(cases, names, compiler, 1, true);
  // A wrong matrix does not pass.
  EmulationCase wrong = cases[1];
  std::string& text = wrong.kernels[0].source;
  const size_t at = text.find("int64_t{40}");
  REQUIRE(at != std::string::npos);
  text.replace(at, 11, "int64_t{41}");
  const EmulationLibrary lib = build_emulation({&wrong}, compiler, emulation_folder());
  REQUIRE(lib.error.empty());
  CHECK(!run_emulation(wrong, lib.path, EmulationMode::kField, 1).ok);
}

TEST_CASE("products by cuBLASLt stand beside kernels of ours, one after another in the same scratch, and follow reduced shapes") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = willing();
  const Program p = program_of(R"({"version": "1.0", "name": "two", "inputs": {"x": {"shape": [640, 512], "dtype": "float32"},
    "w": {"shape": [512, 768], "dtype": "float32"}, "v": {"shape": [256, 768], "dtype": "float32"}},
    "outputs": {"y": {"shape": [640, 256], "dtype": "float32"}},
    "nodes": [{"op": "matmul", "inputs": ["x", "w"], "output": "a"}, {"op": "relu", "inputs": ["a"], "output": "b"},
      {"op": "transpose", "inputs": ["v"], "output": "t", "attrs": {"perm": [1, 0]}},
      {"op": "matmul", "inputs": ["b", "t"], "output": "c"}, {"op": "rms_norm", "inputs": ["c"], "output": "y"}]})",
                               "two");
  const Planned planned = make_plan(p, p.graph, target);
  REQUIRE(planned.plan);
  const auto products = [](const Plan& plan) {
    return std::count_if(plan.kernels.begin(), plan.kernels.end(), [](const KernelPlan& k) { return cublas_of(k) != nullptr; });
  };
  CHECK(products(*planned.plan) == 2);
  CHECK(planned.plan->scratch_bytes == 32 << 20);
  CHECK(planned.plan->scratch_at + planned.plan->scratch_bytes == planned.plan->workspace_bytes);
  for (const Buffer& b : planned.plan->buffers)
    if (b.kind == Buffer::Kind::kWorkspace) CHECK(b.offset_bytes + b.bytes() <= planned.plan->scratch_at);
  for (const KernelPlan& k : planned.plan->kernels)
    if (cublas_of(k)) CHECK(!k.early);
  const Reduced small = reduce_plan(p, *planned.plan, target, Tails::kOwn);
  REQUIRE(small.plan);
  CHECK(products(*small.plan) == 2);
  check_emulations({case_of(*small.program, *small.plan, target, "two_")}, {"two"}, compiler, 1, false);
}
