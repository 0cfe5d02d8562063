// What the host halves of a library for one program (abi.cc) and of one for a family (family_host.cc) have in common. Private to codegen.
#pragma once
#include <string>
#include <vector>
#include "codegen/module_parts.h"

namespace mirage {

std::string tensor_table(const ModuleFacts&);                               ///< a row of TensorFacts per tensor
bool has_maps(const std::vector<KernelText>&);
std::string launches(
    const ModuleFacts&,
    bool has_dependents);  ///< starts the plan's kernels, one after another; has_dependents: start() lets kernels begin early
std::string alone_start(const std::vector<KernelText>&);
std::string cooperative_start(const std::vector<KernelText>&);
std::string attributes(const std::vector<KernelText>&);
int64_t max_smem(const std::vector<KernelText>&);
std::string pointer_list(const ModuleFacts&);

/// What differs: texts with nothing left to expand.
struct HostParts {
  bool is_family = false;     ///< checks take the point whose tensors and workspace they look at
  std::string dims_fields, facts, check_dims, launch, launch_dlpack, functions, info, tvm_ffi;   ///< tvm_ffi: empty where the sizes are not of one program
};
/// The host half from the parts and `kernels`, which is all of the library.
std::string host_text(const ModuleFacts&, const std::vector<KernelText>& kernels, const HostParts&);

}  // namespace mirage
