// A program, a plan and kernels written by hand, so that module assembly is tested without search, planning or the emitters.
#pragma once
#include "codegen/module_parts.h"

namespace mirage::fixture {

struct Made { Program program; Plan plan; std::vector<KernelText> kernels; Target target; };

inline TensorInfo tensor(const std::string& name, DType dtype, Dims dims, std::optional<Dims> strides = {}) {
  return {name, {dtype, dims}, strides ? *strides : row_major_strides(dims), {}};
}

/// s = silu(stream * w) over f16[4,6] (first operand with row stride 8) and m = the row sums of s as f32[4,1] (stride 2 between elements):
/// two kernels, the first leaves s in the workspace.
inline Made two_kernels(const std::string& target = "sm_90a", const std::string& name = "demo") {
  Made m;
  m.target = *find_target(target);
  m.program.name = name;
  m.program.inputs = {tensor("stream", DType::kF16, {4, 6}, Dims{8, 1}), tensor("w", DType::kF32, {6})};
  m.program.outputs = {tensor("y", DType::kF16, {4, 6}), tensor("m", DType::kF32, {4, 1}, Dims{2, 1})};
  Builder b(Level::kKernel);
  const ValueId x = b.add_input(0, m.program.inputs[0].type), w = b.add_input(1, m.program.inputs[1].type);
  const ValueId s = b.map(MapFn::kSilu, {b.map(MapFn::kMul, {x, w})});
  b.add_output(0, s, DType::kF16);
  b.add_output(1, b.add(Reduce{ReduceFn::kSum, 1, 0}, {s}), DType::kF32);
  m.program.graph = std::move(b).finish();
  m.program.canonical = "by hand";
  m.plan.graph = m.program.graph;
  const auto buffer = [](Buffer::Kind kind, int index, const TensorInfo& t, int64_t offset) {
    return Buffer{kind, index, t.type.dtype, t.type.dims, t.strides, offset};
  };
  m.plan.buffers = {buffer(Buffer::Kind::kInput, 0, m.program.inputs[0], 0), buffer(Buffer::Kind::kInput, 1, m.program.inputs[1], 0),
                    buffer(Buffer::Kind::kOutput, 0, m.program.outputs[0], 0), buffer(Buffer::Kind::kOutput, 1, m.program.outputs[1], 0),
                    buffer(Buffer::Kind::kWorkspace, 0, tensor("s", DType::kF32, {4, 6}), 256)};
  m.plan.workspace_bytes = 512;
  KernelText k;
  k.name = "map_0";
  k.source = R"(__global__ void map_0(const void* __restrict__ x, const void* __restrict__ w, void* __restrict__ y, void* __restrict__ s) {
  const int i = threadIdx.x / 6, j = threadIdx.x % 6;
  const float v = __half2float(static_cast<const __half*>(x)[i * 8 + j]) * static_cast<const float*>(w)[j];
  const float r = v / (1.0f + expf(-v));
  static_cast<__half*>(y)[threadIdx.x] = __float2half(r);
  static_cast<float*>(s)[threadIdx.x] = r;
}
)";
  k.args = {0, 1, 2, 4};
  k.written = {false, false, true, true};
  k.threads = 24;
  k.smem_bytes = 64 * 1024;   // not used by the kernel: it makes the launcher set the attribute
  m.kernels.push_back(k);
  k = KernelText{};
  k.name = "sum_1";
  k.source = R"(__global__ void sum_1(const void* __restrict__ s, void* __restrict__ m) {
  float sum = 0.0f;
  for (int j = 0; j < 6; j++) sum += static_cast<const float*>(s)[threadIdx.x * 6 + j];
  static_cast<float*>(m)[threadIdx.x * 2] = sum;
}
)";
  k.args = {4, 3};
  k.written = {false, true};
  k.threads = 4;
  m.kernels.push_back(k);
  return m;
}

inline CudaModule assemble(const Made& m) { return assemble_module(m.program, m.plan, m.target, {"--seed 7", "0.0-test"}, m.kernels); }

}  // namespace mirage::fixture
