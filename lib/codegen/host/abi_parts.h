// What the host halves of a library for one program (abi.cc) and of one for a family (family_host.cc) have in common. Private to codegen.
#pragma once
#include <string>
#include <vector>
#include "codegen/module_parts.h"

namespace mirage {

std::string tensor_table(const ModuleFacts&);                               ///< a row of TensorFacts per tensor
bool has_maps(const std::vector<KernelText>&);
/// Starts the plan's kernels, one after another, of a library that has all of `kernels`.
std::string launches(const ModuleFacts&, const std::vector<KernelText>& kernels);
std::string alone_start(const std::vector<KernelText>&);
std::string cooperative_start(const std::vector<KernelText>&);
std::string attributes(const std::vector<KernelText>&);
// Products by cuBLASLt (cublas.cc); all texts are "" where there is none.
std::string cublas_includes(const std::vector<KernelText>&);
std::string cublas_text(const std::string& name, const std::vector<KernelText>&);   ///< its functions
int product_number(const std::string& kernel, const std::vector<KernelText>&);      ///< in its table
int64_t max_smem(const std::vector<KernelText>&);
std::string pointer_list(const ModuleFacts&);                               ///< of the tensors, and of what was passed by value
std::string rounded_values(const ModuleFacts&);                             ///< statements that round what C passes as float

/// In launch_dlpack: a value lies where the host reads it.
inline constexpr const char* kDlpackValue = R"~(    if (kByValue[i]) {
      if (where.type != 1 && where.type != 3) return kWrongDevice;   // kDLCPU, kDLCUDAHost
      continue;
    }
)~";

/// What differs: texts with nothing left to expand.
struct HostParts {
  bool is_family = false;     ///< checks take the point whose tensors and workspace they look at
  std::string dims_fields, facts, check_dims, launch, launch_dlpack, functions, info, tvm_ffi;
};
/// The host half from the parts and `kernels`, which is all of the library.
std::string host_text(const ModuleFacts&, const std::vector<KernelText>& kernels, const HostParts&);

}  // namespace mirage
