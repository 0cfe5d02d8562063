// CublasPlan: a plain product that the library gives to cuBLASLt, only with --allow-cublas (docs/decisions.md, "Products by cuBLASLt"). No
// kernel of ours runs: the launcher calls cublasLtMatmul, with float32 sums (of float32 operands float32 products, not TF32) that are
// rounded once. Made by plan/cublas/cublas.cc, read by codegen/kernels/cublas.cc (what the emulator runs) and codegen/host/cublas.cc (the
// call).
#pragma once
#include <string>
#include <vector>

#include "mirage/plan/block.h"

namespace mirage {

/// A matrix of a product as cuBLAS takes it: column by column.
struct CublasMatrix {
  int access = 0;              ///< operands first, then results
  int64_t offset = 0;          ///< of the first element, in elements
  bool transposed = false;     ///< it enters the product transposed
  int64_t rows = 0, columns = 0;
  int64_t line = 0;            ///< elements between columns
  int64_t batch_stride = 0;    ///< elements between matrices
  friend bool operator==(const CublasMatrix&, const CublasMatrix&) = default;
};

struct CublasPlan : KernelCall {
  ContractRule rule;
  int64_t batch = 1, rows = 0, columns = 0, depth = 0;   ///< of the product as the program has it
  CublasMatrix first, second, result;                    ///< result = first second, which may be the program's transposed
  DType type = DType::kF16, result_type = DType::kF16;   ///< in memory
  int alignment = 16;                                    ///< bytes that every matrix's place is a multiple of
  int64_t scratch_bytes = 0;                             ///< of the workspace, while it runs
  Cost cost;
};

std::string print(const CublasPlan&);

}  // namespace mirage
