// Builds small programs, plans them, and runs their region kernels on the host (region_host_cuda.inc) against the reference evaluator.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mirage/codegen/module.h"
#include "mirage/ir/eval.h"
#include "mirage/plan/region.h"

namespace mirage::test {

/// A program in the making.
class Maker {
 public:
  explicit Maker(std::string name) : b(Level::kKernel) { program.name = std::move(name); }
  ValueId input(DType t, Dims dims, Dims strides = {}) {
    TensorInfo info;
    info.name = "x" + std::to_string(program.inputs.size());
    info.type = {t, dims};
    info.strides = strides.empty() ? row_major_strides(dims) : strides;
    program.inputs.push_back(info);
    return b.add_input(static_cast<int>(program.inputs.size()) - 1, info.type);
  }
  void output(ValueId v, DType t, Dims strides = {}) {
    TensorInfo info;
    info.name = "y" + std::to_string(program.outputs.size());
    info.type = {t, b.graph().dims(v)};
    info.strides = strides.empty() ? row_major_strides(info.type.dims) : strides;
    program.outputs.push_back(info);
    b.add_output(static_cast<int>(program.outputs.size()) - 1, v, t);
  }
  Program finish() {
    program.graph = std::move(b).finish();
    return std::move(program);
  }
  Builder b;
  Program program;
};

struct Case {
  Program program;
  Plan plan;
  std::vector<KernelText> kernels;
};
Case make_case(Program program);

/// Compiles all kernels of the cases with the host compiler and runs each case on random inputs; one line per disagreement, empty if all
/// agree.
std::vector<std::string> run_on_host(const std::vector<Case>& cases, const std::string& name);

/// What a C function of no arguments says, in a text that stands behind the device library of region kernels.
std::string call_on_host(const std::string& function, const std::string& text, const std::string& name);

/// Compiles all kernels as one .cu with nvcc for sm_90a; its messages, "absent" if there is no nvcc, "" if there is nothing to say.
std::string compile_with_nvcc(const std::vector<Case>& cases, const std::string& name);

/// The matrix of operators x dtypes x shapes.
std::vector<Program> operator_programs(DType t, bool aligned);
/// Chains that people write: softmax, norms, attention-like masks, rotary embedding, statistics over several axes.
std::vector<Program> chain_programs(DType t, bool aligned);

}  // namespace mirage::test
