// The parts that emit_module puts together, each a function from the same facts (ModuleFacts) to a text. Private to codegen.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include "mirage/codegen/module.h"

namespace mirage {

/// One tensor of the C ABI.
struct AbiTensor {
  const TensorInfo* info = nullptr;
  std::string c_name;            ///< parameter name in C and Python
  bool is_output = false;
  int64_t span_elements = 0;     ///< from the first to the last element, inclusive
  int64_t span_bytes() const { return span_elements * dtype_bytes(info->type.dtype); }
  bool by_value() const { return !is_output && info->by_value; }
};

/// The C type in which an input of this type is passed by value: C has no 16-bit floating-point number, such ones are rounded from a float.
inline const char* c_value_type(DType t) {
  return t == DType::kI32 ? "int32_t" : t == DType::kI64 ? "int64_t" : t == DType::kBool ? "uint8_t" : "float";
}

/// What every part needs to know. References outlive the call of assemble_module only.
struct ModuleFacts {
  const Program& program;
  const Plan& plan;
  const Target& target;
  const ModuleOptions& options;
  const std::vector<KernelText>& kernels;
  std::string name;                   ///< C identifier
  std::string spec_id;                ///< 16 hex digits
  std::vector<AbiTensor> tensors;     ///< inputs, then outputs
  std::string_view device_namespace = "mo";   ///< of the device library that the kernels are compiled with
  int num_inputs() const { return static_cast<int>(program.inputs.size()); }
  int num_tensors() const { return static_cast<int>(tensors.size()); }
  bool has_values() const { return std::any_of(tensors.begin(), tensors.end(), [](const AbiTensor& t) { return t.by_value(); }); }
};

/// Whether some kernel is started while the one ahead of it still runs.
inline bool any_dependent(const std::vector<KernelText>& kernels) {
  return std::any_of(kernels.begin(), kernels.end(), [](const KernelText& k) { return k.dependent; });
}

/// NAME.h says so of a library that calls cuBLASLt.
inline constexpr const char* kCublasHeaderLine = " * cuBLASLt: ";

/// Whether some kernel is a product of cuBLASLt.
inline bool any_cublas(const std::vector<KernelText>& kernels) {
  return std::any_of(kernels.begin(), kernels.end(), [](const KernelText& k) { return k.cublas != nullptr; });
}

/// A library for several programs, which differ in extents: what each would be alone, and what they have together.
struct FamilyFacts {
  const std::vector<FamilyAxis>& axes;
  std::vector<std::string> c_axes;           ///< fields of NAME_dims
  std::vector<std::vector<int64_t>> values;  ///< per point, one per axis
  std::vector<ModuleFacts> points;           ///< with the family's names of kernels and its workspace
  size_t hint = 0;
  std::vector<KernelText> kernels;           ///< those of all points, equal ones once; shared memory is the most that a point wants
  std::vector<bool> ordered;                 ///< per kernel: compiled with MO_ORDERED_LOADS
  int64_t slot_bytes = 0;                    ///< at the begin of every workspace: slots, which all points use alike
  const ModuleFacts& hinted() const { return points[hint]; }
};

/// How an extent or stride of a tensor follows the axes, as text: "M", "8 * M", "1024"; where it is no such product its values, "{8, 16,
/// 24}".
std::string axis_text(const FamilyFacts&, const std::vector<int64_t>& per_point);
/// "float16[M, 4096]", "float32 by value".
std::string type_text(const FamilyFacts&, size_t tensor);

/// The parts of a library that serves one program, from its tensors and plan.
ModuleFacts module_facts(const Program&, const Plan&, const Target&, const ModuleOptions&, const std::vector<KernelText>& kernels);

/// Everything behind the kernels: all of CudaModule but the emission of kernels. emit_module calls it; tests call it with kernels of their
/// own.
CudaModule assemble_module(const Program&, const Plan&, const Target&, const ModuleOptions&, std::vector<KernelText> kernels);

std::string c_parameters(const ModuleFacts&);              ///< abi.cc: the tensors of the C function, "const void* x, void* y, "
std::string emit_host(const ModuleFacts&);                 ///< abi.cc: launcher and C ABI of NAME.cu
std::string emit_info_json(const ModuleFacts&);            ///< abi_info.cc: what NAME_info_json returns
std::string emit_info_json(const FamilyFacts&);
std::string emit_host(const FamilyFacts&);                 ///< family_host.cc
std::string emit_c_header(const FamilyFacts&);             ///< abi_header.cc
std::string emit_check(const FamilyFacts&);                ///< family_check.cc
std::string emit_python(const FamilyFacts&);               ///< family_python.cc
std::string emit_c_header(const ModuleFacts&);             ///< abi_header.cc: NAME.h
// module_build_files.cc; links_cublas: of the whole library
std::string emit_makefile(const ModuleFacts&, bool links_cublas);
std::string emit_cmake(const ModuleFacts&, bool links_cublas);
std::string emit_pkg_config(const ModuleFacts&, bool links_cublas);
std::string emit_version_script(const ModuleFacts&);
std::string emit_check(const ModuleFacts&);                ///< check.cc: NAME_check.cu
/// Its fixed parts in their order: kernels (before the reference), host code (after it), main up to where it has a stream, one run with the
/// comparison, what is printed of it.
enum class HarnessPart : uint8_t { kDevice, kHost, kMain, kRun, kVerdict };
std::string check_harness(HarnessPart);                    ///< check_harness.cc
std::string check_tensor_rows(const ModuleFacts&);         ///< check.cc: rows of its table of tensors
/// How the check calls the library: values are fetched from where they were drawn once per `point` (a C expression).
struct CheckCall {
  std::string before, arguments;
  std::string definition(const std::string& dims) const {
    const std::string head = "static int launch(void* const* t, void* workspace, size_t bytes, cudaStream_t stream) {",
                      call = "return g_library.launch(" + dims + ", " + arguments + "workspace, bytes, stream);";
    return before.empty() ? head + " " + call + " }\n"
                          : "static void cuda(cudaError_t error, const char* what);\n" + head + "\n" + before + "  " + call + "\n}\n";
  }
};
CheckCall check_call(const ModuleFacts&, const std::string& point);
std::string check_library(const ModuleFacts&);             ///< check.cc: the library that the check calls, and how another one is opened
std::string check_top(const ModuleFacts&, int num_values); ///< check.cc: what stands before the harness
std::string emit_python(const ModuleFacts&);               ///< python.cc: NAME.py
std::string emit_solution(const ModuleFacts&, const std::string& cu, bool links_cublas);      ///< exchange.cc: FlashInfer-Bench
std::string emit_hub_build(const ModuleFacts&);            ///< build.toml of Hugging Face's kernel-builder
std::string emit_hub_package(const ModuleFacts&);          ///< the Python package that it installs
std::string emit_kernelbench(const ModuleFacts&, const std::string& cu, const std::string& py, bool links_cublas);
std::string emit_tvm_ffi(const ModuleFacts&);              ///< tvm_ffi.cc: __tvm_ffi_NAME of NAME.cu
std::string emit_tvm_ffi(const FamilyFacts&);

/// reference.cc: the program's reference graph as fp64 CUDA text: one struct per value with its element formula, and the body of a function
/// that runs it in order. A value of more than `store_limit` elements (1 GB) that one elementwise or moving node reads once is computed
/// where it is read instead of being stored.
struct ReferenceText { std::string definitions; std::string run; int num_values = 0; };
ReferenceText emit_reference(const Program&, int64_t store_limit = int64_t{1} << 27);

/// `text` with each "@KEY@" replaced; an unknown key is our bug.
std::string expand(std::string_view text, const std::vector<std::pair<std::string_view, std::string>>& keys);

/// `text` with the name `from`, and names that begin with it, beginning with `to` instead.
std::string renamed(const std::string& text, const std::string& from, const std::string& to);
/// Text and launch of a kernel without its name: kernels of one form can be one function, which is launched with other arguments.
std::string kernel_form(const KernelText&);
void name_equal_kernels(std::vector<KernelText>&);         ///< all of a form get the name of the first
std::string hex64(uint64_t);                               ///< module_assemble.cc: 16 digits
std::string as_comment(const std::string& text);
KernelText emit_with_schedule(const KernelPlan&, const Plan&, const Target&);   ///< emit_kernel, and its schedule
/// The module's namespace with these kernels; schedules: with comments, which what the device library is looked through for has not. Where
/// that library (its text) is there only with the features of sm_90a, so are the kernels, and ones that fail stand in for them.
std::string kernel_section(const ModuleFacts&, const std::vector<const KernelText*>&, bool schedules, std::string_view device_library);
/// of NAME.cu; graphs: as they are printed; kernels: all of the library
std::string header_comment(const ModuleFacts&, const std::string& graphs, const std::vector<KernelText>& kernels);
void check_module(const ModuleFacts&);                     ///< asserts on kernels and buffers

/// The embedded device library by file name (generated by embed.cmake).
std::vector<std::pair<std::string, std::string>> runtime_files();
std::string runtime_preamble();                            ///< integers for NVRTC, which has no <stdint.h>
std::string without_includes(const std::string& body);     ///< runtime_closure.cc: a file of the device library in one text with the others

}  // namespace mirage
