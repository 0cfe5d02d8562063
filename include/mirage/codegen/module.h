// From a plan to files: kernels as text, then the self-contained .cu with its launcher and C ABI, and everything a user builds and calls it
// with.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>
#include "mirage/ir/program.h"
#include "mirage/ir/target.h"
#include "mirage/plan/plan.h"

namespace mirage {

/// A tensor map (PTX ISA 5.5, "Tensors"): how TMA copies cut boxes out of a buffer. The launcher encodes it at every launch, from the
/// pointer that it is given, into a parameter `const __grid_constant__ mo::TensorMap`. Dimensions are innermost first; coordinates beyond
/// them read as zero.
struct TensorMapText {
  int buffer = -1;                 ///< of the plan
  int64_t offset_bytes = 0;        ///< of the first element, a multiple of 16
  DType dtype = DType::kF16;
  std::vector<int64_t> dims;       ///< elements, 1 to 5 of them
  std::vector<int64_t> strides;    ///< bytes between neighbours of dims[1], dims[2], ...: one fewer than dims, multiples of 16
  std::vector<int> box;            ///< elements per copy, each at most 256; the innermost at most `swizzle` bytes if that is not 0
  int swizzle = 0;                 ///< bytes of a swizzled line: 0 (none), 32, 64 or 128
  bool is_stored = false;          ///< the kernel stores by it: the buffer is among its arguments, too
};

/// One __global__ function as text (it may use everything of codegen/runtime) and how it is launched. Clusters and blocks per
/// multiprocessor stand in the text (__cluster_dims__, __launch_bounds__).
struct KernelText {
  std::string name;
  /// the definition; parameters are the tensor maps in the order of `maps`, then `const void*` / `void*` in the order of `args`,
  /// __restrict__, or elements by value
  std::string source;
  std::vector<TensorMapText> maps;
  std::vector<int> args;           ///< buffers of the plan, base pointers
  std::vector<bool> written;       ///< per arg: whether the kernel writes it
  /// per arg: where the parameter is the element itself, `const __grid_constant__ T`, its type T ("mo::f32"); else "". Empty: all are
  /// pointers
  std::vector<std::string> values;
  std::array<int64_t, 3> grid{1, 1, 1};
  int threads = 0;
  int64_t smem_bytes = 0;          ///< dynamic shared memory
  bool dependent = false;          ///< may be started while what is ahead on the stream still runs, and waits for it itself (--pdl)
  /// blocks wait for others outside their cluster: all must be resident, and the launch fails where they cannot be
  bool cooperative = false;
  /// null: the kernel is launched. Else the library calls cuBLASLt in its place, and the text, which is in no library, says what of:
  /// emulations run it
  std::shared_ptr<const CublasPlan> cublas = nullptr;
  /// how it runs (docs/schedule.md), as a comment that stands in front of it in NAME.cu; "" where the language has no program for it
  std::string schedule = {};
};
// codegen/kernels/NAME.cc
#define MIRAGE_STRATEGY(Name, name, help) KernelText emit_##name##_kernel(const KernelPlan&, const Plan&, const Target&);
#include "mirage/plan/strategies.def"
KernelText emit_kernel(const KernelPlan&, const Plan&, const Target&);          ///< the emitter of the kernel's kind

/// The device library (lib/codegen/runtime/*.cuh, embedded) as one include-free piece: what kernels are emulated with.
std::string runtime_text();
/// The part of it that a text of kernels and host code uses, in the same order: what precedes them in NAME.cu (codegen/runtime_closure.cc).
/// Kernels compile to the same machine code with either.
std::string runtime_text_for(std::string_view text);

struct ModuleOptions {
  std::string options_line;        ///< the options that change the result, for the header comment
  std::string version;             ///< tool version
};

/// The C identifier that a program of this name gets: the prefix of its files and functions, and CudaModule::name.
std::string module_name(std::string_view program);

/// All files of a result by name, texts only (the library is built from them): NAME.cu, NAME.h, NAME_check.cu, NAME.py, Makefile,
/// CMakeLists.txt, NAME.pc, NAME.map (version script), NAME.solution.json, build.toml with tvm-ffi-ext/NAME/__init__.py,
/// NAME_kernelbench.py.
struct CudaModule {
  std::string name;                                ///< C identifier derived from the program's name
  std::map<std::string, std::string> files;
  std::vector<KernelText> kernels;
  bool links_cublas = false;                       ///< some of them are products of cuBLASLt
};
CudaModule emit_module(const Program&, const Plan&, const Target&, const ModuleOptions&);

/// An axis of NAME_dims.
struct FamilyAxis {
  std::string name;                ///< as in the spec
  std::vector<int64_t> values;
  int64_t hint = 0;
  /// a tensor may be filled with zeros along it up to the next value: what is cut back is what it would be without (mirage/ir/prefix.h)
  bool is_padded = false;
};
/// The program at one combination of values, and its plan. References outlive emit_family's result.
struct FamilyMember {
  std::vector<int64_t> values;     ///< one per axis
  const Program& program;
  const Plan& plan;
};
/// One library that serves all members: equal kernels are emitted once, NAME_dims chooses.
struct FamilyModule {
  CudaModule module;                             ///< its kernels are those of all members
  std::vector<std::vector<KernelText>> points;   ///< per member its kernels, by the names that they have in the module
};
/// members: in the order of `axes`, the first slowest; hint: the member of all hints; spec_id: of the whole family.
FamilyModule emit_family(const std::vector<FamilyAxis>& axes, const std::vector<FamilyMember>& members, size_t hint,
                         const std::string& spec_id, const Target&, const ModuleOptions&);

/// Whether the library that a NAME.cu or NAME.h stands for has products of cuBLASLt (CudaModule::links_cublas).
bool mentions_cublas(std::string_view text);
/// The arguments of nvcc, without nvcc itself, that build lib<name>.so in the folder of <name>.cu and <name>.map: the Makefile's and the
/// driver's one source of flags.
/// links_cublas: CudaModule::links_cublas.
std::vector<std::string> nvcc_library_arguments(const std::string& name, const Target&, bool links_cublas = false);
/// The same for <name>_check, from <name>_check.cu, <name>.h and lib<name>.so.
std::vector<std::string> nvcc_check_arguments(const std::string& name, const Target&, bool links_cublas = false);

}  // namespace mirage
