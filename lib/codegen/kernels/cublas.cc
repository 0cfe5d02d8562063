// The text of a product that cuBLASLt computes (plan/cublas.h). No library has it: it is what emulations run in place of the call, so that
// the gate sees the strides, transposes and offsets that the call is given. An element per thread, its sum in float32, rounded once.
#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "codegen/kernels/cuda_text.h"
#include "mirage/codegen/module.h"
#include "mirage/plan/cublas.h"

namespace mirage {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 65535;

/// The place of an element of a factor: `row` of the product's side that it has, `k` of the reduction.
std::string place(const CublasMatrix& m, const char* row, const char* column) {
  return fmt::format("{} + batch * int64_t{{{}}} + {} + {} * int64_t{{{}}}", m.offset, m.batch_stride, m.transposed ? column : row,
                     m.transposed ? row : column, m.line);
}

}  // namespace

KernelText emit_cublas_kernel(const KernelPlan& k, const Plan&, const Target&) {
  const auto& body = std::get<std::shared_ptr<const CublasPlan>>(k.body);
  const CublasPlan& p = *body;
  KernelText out;
  out.name = k.name;
  out.cublas = body;
  std::string parameters;
  for (const auto* list : {&p.operands, &p.results})
    for (const Access& a : *list) {
      const bool written = list == &p.results;
      parameters += fmt::format("{}{}void* __restrict__ a{}", out.args.empty() ? "" : ", ", written ? "" : "const ", out.args.size());
      out.args.push_back(a.buffer);
      out.written.push_back(written);
    }
  const int64_t all = p.result.rows * p.result.columns * p.batch, blocks = std::min((all + kThreads - 1) / kThreads, kMostBlocks);
  out.grid = {blocks, 1, 1};
  out.threads = kThreads;
  out.source = fmt::format(
      "// cuBLASLt: {} of {} x {} x {}, {} to {}, places are multiples of {} bytes, {} bytes of scratch\n"
      "__global__ void __launch_bounds__({}) {}({}) {{\n"
      "  using namespace mo;\n"
      "  for (int64_t i = block_id() * int64_t{{{}}} + thread_id(); i < {}; i += int64_t{{{}}}) {{\n"
      "    const int64_t row = i % {}, column = i / {} % {}, batch = i / {};\n"
      "    float sum = constant(0.0f);\n"
      "    for (int64_t k = 0; k < {}; k++)\n"
      "      sum = fma(load(static_cast<const {}*>(a{})[{}]), load(static_cast<const {}*>(a{})[{}]), sum);\n"
      "    static_cast<{}*>(a{})[{}] = store<{}>(sum);\n"
      "  }}\n"
      "}}\n",
      p.batch, p.result.rows, p.depth, p.result.columns, dtype_name(p.type), dtype_name(p.result_type), p.alignment, p.scratch_bytes,
      kThreads, k.name, parameters, kThreads, all, blocks * kThreads, p.result.rows, p.result.rows, p.result.columns,
      p.result.rows * p.result.columns, p.depth, cuda_type(p.type), p.first.access, place(p.first, "row", "k"), cuda_type(p.type),
      p.second.access, place(p.second, "k", "column"), cuda_type(p.result_type), p.result.access, place(p.result, "row", "column"),
      cuda_type(p.result_type));
  return out;
}

}  // namespace mirage
