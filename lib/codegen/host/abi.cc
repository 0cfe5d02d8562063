// The host half of NAME.cu: tables of tensors and kernels, the checks of each call, the launcher, and the exported C functions (design:
// interface.md "C ABI").
#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "codegen/host/abi_parts.h"
#include "codegen/kernels/cuda_text.h"
#include "codegen/names.h"
#include "mirage/plan/cublas.h"

namespace mirage {
namespace {

// DLPack's type codes: kDLInt 0, kDLFloat 2, kDLBfloat 4, kDLBool 6.
int dlpack_code(DType t) { return t == DType::kBF16 ? 4 : t == DType::kBool ? 6 : is_whole(t) ? 0 : 2; }

std::string int64_list(const Dims& d) {
  std::string out;
  for (int64_t x : d) out += (out.empty() ? "" : ", ") + std::to_string(x);
  return "{" + (d.rank() == 0 ? std::string("0") : out) + "}";
}

}  // namespace

std::string tensor_table(const ModuleFacts& f) {
  std::string out;
  for (const AbiTensor& t : f.tensors) {
    const Type& type = t.info->type;
    out += "    {" + std::to_string(type.dims.rank()) + ", " + std::to_string(dlpack_code(type.dtype)) + ", " +
           std::to_string(8 * dtype_bytes(type.dtype)) + ", " + std::to_string(t.span_bytes()) + "u, " + int64_list(type.dims) + ", " +
           int64_list(t.info->strides) + "},   // " + t.c_name + ": " + to_string(type) + "\n";
  }
  return out;
}

namespace {

std::string argument(const ModuleFacts& f, int buffer, bool written) {
  const Buffer& b = f.plan.buffers[static_cast<size_t>(buffer)];
  std::string pointer;
  switch (b.kind) {
    // of what is passed by value: where the caller's value lies
    case Buffer::Kind::kInput: pointer = "t[" + std::to_string(b.index) + "]"; break;
    case Buffer::Kind::kOutput: pointer = "t[" + std::to_string(f.num_inputs() + b.index) + "]"; break;
    case Buffer::Kind::kWorkspace:
      return std::string(written ? "static_cast<void*>" : "static_cast<const void*>") + "(w + " + std::to_string(b.offset_bytes) + ")";
  }
  if (b.by_value) return "*static_cast<const " + std::string(f.device_namespace) + (storage_type(b.dtype) + 2) + "*>(" + pointer + ")";
  return written ? "const_cast<void*>(" + pointer + ")" : pointer;
}

std::string list(const std::vector<int64_t>& x) {
  std::string out;
  for (int64_t i : x) out += (out.empty() ? "" : ", ") + std::to_string(i);
  return "{" + (x.empty() ? std::string("0") : out) + "}";
}

/// Encodes the tensor map `name` for the pointers of this launch.
std::string encode(const ModuleFacts& f, const TensorMapText& m, const std::string& name) {
  const std::string type_of_map = std::string(f.device_namespace) + "::TensorMap",
                    map = f.device_namespace == "mo" ? name : "reinterpret_cast<mo::TensorMap&>(" + name + ")";
  const char* type = m.dtype == DType::kF16    ? "FLOAT16"
                     : m.dtype == DType::kBF16 ? "BFLOAT16"
                     : m.dtype == DType::kF32  ? "FLOAT32"
                                               : "UINT8";
  std::string out = "  " + type_of_map + " " + name + ";\n  if ((error = encode_map(" + map + ", static_cast<const char*>(" +
                    argument(f, m.buffer, false) + ") + " + std::to_string(m.offset_bytes) + ", CU_TENSOR_MAP_DATA_TYPE_" + type + ", " +
                    std::to_string(m.dims.size()) + "u, " + list(m.dims) + ", " + list(m.strides) + ", " +
                    list(std::vector<int64_t>(m.box.begin(), m.box.end())) + ", CU_TENSOR_MAP_SWIZZLE_" +
                    (m.swizzle ? std::to_string(m.swizzle) + "B" : "NONE") + ")) != cudaSuccess) return error;\n";
  return out;
}

}  // namespace

bool has_maps(const std::vector<KernelText>& kernels) {
  return std::any_of(kernels.begin(), kernels.end(), [](const KernelText& k) { return !k.maps.empty(); });
}

namespace {

/// A call of cuBLASLt in place of kernel k.
std::string multiply(const ModuleFacts& f, const KernelText& k, int number) {
  const CublasPlan& p = *k.cublas;
  std::string out = "  if ((error = multiply(" + std::to_string(number);
  for (const CublasMatrix* m : {&p.first, &p.second, &p.result}) {
    const auto at = static_cast<size_t>(m->access);
    const bool written = m == &p.result;
    const std::string base = argument(f, k.args[at], written), type = written ? "char*" : "const char*",
                      bytes = std::to_string(m->offset * dtype_bytes(written ? p.result_type : p.type));
    out += ", " + (m->offset == 0 ? base : "static_cast<" + type + ">(" + base + ") + " + bytes);
  }
  return out + ", w + " + std::to_string(f.plan.scratch_at) + ", stream)) != cudaSuccess) return error;\n";
}

}  // namespace

/// A launch each.
static std::vector<std::string> launch_lines(const ModuleFacts& f, const std::vector<KernelText>& kernels) {
  std::vector<std::string> lines;
  const bool has_dependents = any_dependent(kernels);
  for (size_t n = 0; n < f.kernels.size(); n++) {
    const KernelText& k = f.kernels[n];
    std::string& out = lines.emplace_back();
    if (k.cublas) { out = multiply(f, k, product_number(k.name, kernels)); continue; }
    std::vector<std::string> maps;
    for (size_t i = 0; i < k.maps.size(); i++) {
      maps.push_back("map" + std::to_string(n) + "_" + std::to_string(i));
      out += encode(f, k.maps[i], maps.back());
    }
    out += std::string("  if ((error = ") +
           (k.cooperative                    ? "start_cooperative("
            : has_dependents && !k.dependent ? "start_alone("
                                             : "start(") +
           k.name + ", dim3(" + std::to_string(k.grid[0]) + "u, " + std::to_string(k.grid[1]) + "u, " + std::to_string(k.grid[2]) + "u), " +
           std::to_string(k.threads) + "u, " + std::to_string(k.smem_bytes) + "u, stream";
    for (const std::string& m : maps) out += ", " + m;
    for (size_t i = 0; i < k.args.size(); i++) out += ", " + argument(f, k.args[i], k.written[i]);
    out += ")) != cudaSuccess) return error;\n";
  }
  return lines;
}

std::string launches(const ModuleFacts& f, const std::vector<KernelText>& kernels) {
  std::string out;
  for (const std::string& line : launch_lines(f, kernels)) out += line;
  return out;
}

namespace {

/// Launches in functions of kMostLaunches, and the calls of these: host compilers take time that grows with the square of a function.
struct LaunchSteps { std::string functions, calls; };
LaunchSteps launch_steps(const ModuleFacts& f) {
  constexpr size_t kMostLaunches = 64;
  const std::vector<std::string> lines = launch_lines(f, f.kernels);
  LaunchSteps out;
  if (lines.size() <= kMostLaunches) {
    for (const std::string& line : lines) out.calls += line;
    return out;
  }
  for (size_t at = 0; at < lines.size(); at += kMostLaunches) {
    const std::string name = "launch_from_" + std::to_string(at);
    out.functions += "__noinline__ static cudaError_t " + name + "(const void* const* t, char* const w, cudaStream_t stream) {\n" +
                     "  (void)t, (void)w;\n  cudaError_t error = cudaSuccess;\n";
    for (size_t i = at; i < std::min(at + kMostLaunches, lines.size()); i++) out.functions += lines[i];
    out.functions += "  return error;\n}\n";
    out.calls += "  if ((error = " + name + "(t, w, stream)) != cudaSuccess) return error;\n";
  }
  return out;
}

}  // namespace

/// For kernels that take no part in dependent launches, and the first one of a library where --pdl does not say otherwise: as any launch,
/// behind all that is ahead of them.
std::string alone_start(const std::vector<KernelText>& kernels) {
  if (!any_dependent(kernels) ||
      std::all_of(kernels.begin(), kernels.end(), [](const KernelText& k) { return k.dependent || k.cooperative; }))
    return "";
  return R"~(
template <class... P, class... A> cudaError_t start_alone(void (*kernel)(P...), dim3 grid, unsigned threads, size_t shared_bytes, cudaStream_t stream, A... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads, 1u, 1u);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, args...);
}
)~";
}

std::string cooperative_start(const std::vector<KernelText>& kernels) {
  if (std::none_of(kernels.begin(), kernels.end(), [](const KernelText& k) { return k.cooperative; })) return "";
  return R"~(
// Blocks of such a kernel wait for each other: the device must run all of them at once, or refuse the launch (cudaErrorCooperativeLaunchTooLarge).
template <class... P, class... A> cudaError_t start_cooperative(void (*kernel)(P...), dim3 grid, unsigned threads, size_t shared_bytes, cudaStream_t stream, A... args) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads, 1u, 1u);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, args...);
}
)~";
}

namespace {

/// NAME_workspace_init: slots are empty, all ones, before the first launch.
std::string workspace_init(const ModuleFacts& f) {
  std::string fills;
  for (const Buffer& b : f.plan.buffers)
    if (b.slots)
      fills += "  if (const cudaError_t error = cudaMemsetAsync(static_cast<char*>(workspace) + " + std::to_string(b.offset_bytes) +
               ", 0xff, " + std::to_string(b.bytes()) + "u, stream); error != cudaSuccess) return error;\n";
  const std::string name = "MIRAGE_API int " + f.name + "_workspace_init(void* workspace, size_t workspace_bytes, cudaStream_t";
  const std::string check = "mirage_" + f.name + "::check_workspace(workspace, workspace_bytes)";
  const std::string prepare = "  if (const int bad = mirage_" + f.name + "::prepare_device()) return bad;\n";
  if (fills.empty() && any_cublas(f.kernels))
    return "// What cuBLASLt needs on this device is made here, so that no launch has to.\n" + name + ") {\n  if (const int bad = " +
           check + ") return bad;\n" + prepare + "  return mirage_" + f.name + "::kSuccess;\n}";
  if (fills.empty())
    return "// No kernel of this library reads what an earlier launch left in the workspace, so there is nothing to initialise.\n" + name +
           ") { return " + check + "; }";
  return "// Blocks hand sums to each other in slots of the workspace. A launch finds them empty (all ones) and leaves them empty; after "
         "one that was ended by force this must be called again.\n" +
         name + " stream) {\n  if (const int bad = " + check + ") return bad;\n" + (any_cublas(f.kernels) ? prepare : "") + fills +
         "  return mirage_" + f.name + "::kSuccess;\n}";
}

// Above this, dynamic shared memory is asked for, per kernel and device: a launch without that has 48 KB, less the kernel's static
// arrays (scratch of reductions, at most some KB).
constexpr int64_t kPlainSharedBytes = 40 * 1024;

}  // namespace

std::string attributes(const std::vector<KernelText>& kernels) {
  std::string out;
  std::map<std::string_view, int64_t> most;   // a kernel may be launched several times
  for (const KernelText& k : kernels) most[k.name] = std::max(most[k.name], k.smem_bytes);
  for (const KernelText& k : kernels) {
    const int64_t bytes = std::exchange(most[k.name], 0);
    if (bytes <= kPlainSharedBytes) continue;
    out += "  if ((error = cudaFuncSetAttribute(reinterpret_cast<const void*>(&" + k.name +
           "), cudaFuncAttributeMaxDynamicSharedMemorySize, " + std::to_string(bytes) + ")) != cudaSuccess) return error;\n";
  }
  return out.empty() ? "  // no kernel needs more than 40 KB of dynamic shared memory\n" : "  cudaError_t error = cudaSuccess;\n" + out;
}

int64_t max_smem(const std::vector<KernelText>& kernels) {
  int64_t most = 0;
  for (const KernelText& k : kernels) most = std::max(most, k.smem_bytes);
  return most;
}

namespace {

// Architecture-specific code runs on that compute capability only, other machine code on later minor versions too, and where the library
// holds PTX on every later device.
std::string capability_rule(const Target& t) {
  const std::string major = std::to_string(t.sm / 10), minor = std::to_string(t.sm % 10);
  if (t.name.ends_with('a')) return "major == " + major + " && minor == " + minor;
  const bool has_ptx =
      t.gencode.find("code=[") != std::string::npos && t.gencode.find("compute_", t.gencode.find("code=[")) != std::string::npos;
  return has_ptx ? "10 * major + minor >= " + std::to_string(t.sm) : "major == " + major + " && minor >= " + minor;
}

}  // namespace

std::string pointer_list(const ModuleFacts& f) {
  std::string out;
  for (const AbiTensor& t : f.tensors)
    out += (out.empty() ? "" : ", ") + (!t.by_value() ? t.c_name : "&" + t.c_name + (is16(t.info->type.dtype) ? "__" : ""));
  return out;
}

std::string rounded_values(const ModuleFacts& f) {
  std::string out;
  for (const AbiTensor& t : f.tensors)   // no tensor's name ends in two underscores: names.cc
    if (t.by_value() && is16(t.info->type.dtype))
      out += t.info->type.dtype == DType::kF16 ? "  const __half " + t.c_name + "__ = __float2half_rn(" + t.c_name + ");\n"
                                               : "  const __nv_bfloat16 " + t.c_name + "__ = __float2bfloat16_rn(" + t.c_name + ");\n";
  return out;
}

namespace {

// cuTensorMapEncodeTiled comes from the driver that is there: nothing of libcuda is linked. Only pointers change between launches, and
// encoding is arithmetic on the host. Every launch may begin before what is ahead of it on the stream has finished; the kernels wait by
// themselves.
constexpr const char* kDependentLaunch = R"~(  cudaLaunchAttribute dependent = {};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &dependent;
  config.numAttrs = 1;
)~";

constexpr const char* kEncodeMap = R"~(
struct MapNumbers { uint64_t v[5]; };

inline cudaError_t encode_map(mo::TensorMap& out, const void* base, CUtensorMapDataType type, uint32_t rank, MapNumbers dims, MapNumbers strides, MapNumbers box, CUtensorMapSwizzle swizzle) {
  static void* const entry = [] {
    void* p = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &p, 12000, cudaEnableDefault, &found);
#else
    const cudaError_t error = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &p, cudaEnableDefault, &found);
#endif
    return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? p : nullptr;
  }();
  if (entry == nullptr) return cudaErrorNotSupported;
  cuuint64_t d[5], s[5];
  cuuint32_t b[5], step[5];
  for (int i = 0; i < 5; i++) { d[i] = dims.v[i]; s[i] = strides.v[i]; b[i] = static_cast<cuuint32_t>(box.v[i]); step[i] = 1; }
  CUtensorMap map;
  const CUresult result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(&map, type, rank, const_cast<void*>(base), d, s, b, step, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                                                                     CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  static_assert(sizeof(out) == sizeof(map), "a tensor map is 128 bytes");
  std::memcpy(&out, &map, sizeof(map));
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}
)~";

constexpr const char* kHostTop = R"~(#ifndef __CUDACC_RTC__
// ======== launcher and C ABI: @NAME@.h says what each function requires ========
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
@INCLUDES@#include <cuda_runtime.h>

extern "C" {
typedef struct @NAME@_dims { uint32_t struct_size; uint32_t reserved;@DIMS_FIELDS@ } @NAME@_dims;
}

namespace mirage_@NAME@ {

enum Status : int { kSuccess = 0, kBadDims = -1, kNullPointer = -2, kMisaligned = -3, kWorkspaceTooSmall = -4, kWrongDevice = -5, kBadTensor = -6, kAliasing = -7@CUBLAS_STATUS@ };

struct TensorFacts { int rank; uint8_t dl_code; uint8_t dl_bits; uint64_t span_bytes; int64_t shape[8]; int64_t strides[8]; };
constexpr int kNumInputs = @INPUTS@;
constexpr int kNumTensors = @TENSORS@;
@FACTS@
// The parts of dlpack.h (version 0.8) that are read here, with its layout.
struct DlDevice { int32_t type; int32_t id; };
struct DlDtype { uint8_t code; uint8_t bits; uint16_t lanes; };
struct DlTensor { void* data; DlDevice device; int32_t ndim; DlDtype dtype; int64_t* shape; int64_t* strides; uint64_t byte_offset; };

inline bool misaligned(const void* p, uintptr_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes != 0; }

inline bool overlap(const void* a, uint64_t a_bytes, const void* b, uint64_t b_bytes) {
  const uintptr_t x = reinterpret_cast<uintptr_t>(a), y = reinterpret_cast<uintptr_t>(b);
  return x <= y ? y - x < a_bytes : x - y < b_bytes;
}

inline bool less(uint64_t a, uint64_t b) { return a < b; }   // a function: compilers warn of constants that nothing is less than

@CHECK_DIMS@

inline int check_workspace(@POINT@const void* workspace, size_t bytes) {
  if (@BYTES@ == 0) return kSuccess;
  if (workspace == nullptr) return kNullPointer;
  if (misaligned(workspace, 256)) return kMisaligned;
  return less(bytes, @BYTES@) ? kWorkspaceTooSmall : kSuccess;
}

inline int check_pointers(@POINT@const void* const* t, const void* workspace, size_t workspace_bytes) {
  for (int i = 0; i < kNumTensors; i++)
    if (t[i] == nullptr) return kNullPointer;
  for (int i = 0; i < kNumTensors; i++)
    if (@TENSOR_I@misaligned(t[i], 16)) return kMisaligned;
  if (const int bad = check_workspace(@POINT_ARGUMENT@workspace, workspace_bytes)) return bad;
  for (int i = kNumInputs; i < kNumTensors; i++)
    for (int k = 0; k < i; k++)
      if (@TENSOR_K@overlap(t[i], @TENSOR_FACTS@[i].span_bytes, t[k], @TENSOR_FACTS@[k].span_bytes)) return kAliasing;
  for (int i = 0; @BYTES@ != 0 && i < kNumTensors; i++)
    if (@TENSOR_I@overlap(t[i], @TENSOR_FACTS@[i].span_bytes, workspace, @BYTES@)) return kAliasing;
  return kSuccess;
}

// Whether the machine code in this library (@TARGET@) runs on the device.
inline int check_device(int device) {
  int major = 0, minor = 0, shared = 0;
  cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error != cudaSuccess) return error;
  return @CAPABILITY_RULE@ && shared >= kMaxSharedBytes ? kSuccess : kWrongDevice;
}

inline int set_attributes() {
@ATTRIBUTES@  return kSuccess;
}

@CUBLAS@// Checks the current device and sets its attributes, once each. Two threads may both do it, which is harmless.
inline int prepare_device() {
  static std::atomic<uint64_t> prepared{0};
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  const uint64_t bit = device < 64 ? uint64_t{1} << device : 0;
  if (prepared.load(std::memory_order_acquire) & bit) return kSuccess;
  if (const int bad = check_device(device)) return bad;
  if (const int bad = set_attributes()) return bad;
@CUBLAS_READY@  prepared.fetch_or(bit, std::memory_order_release);
  return kSuccess;
}

template <class... P, class... A> cudaError_t start(void (*kernel)(P...), dim3 grid, unsigned threads, size_t shared_bytes, cudaStream_t stream, A... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads, 1u, 1u);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
@PDL@  return cudaLaunchKernelEx(&config, kernel, args...);
}
@COOPERATIVE@@ENCODE@
)~";

constexpr const char* kLaunch =
    R"~(inline int launch(const @NAME@_dims* dims, const void* const* t, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  if (const int bad = check_dims(dims)) return bad;
  if (const int bad = check_pointers(t, workspace, workspace_bytes)) return bad;
  if (const int bad = prepare_device()) return bad;
  char* const w = static_cast<char*>(workspace);
  (void)w;
  cudaError_t error = cudaSuccess;
@LAUNCHES@  return error;
}
)~";

constexpr const char* kHostTensors = R"~(
// Dimensions of extent 1 may have any stride; no strides at all means row-major.
inline int check_dlpack(const DlTensor& x, const TensorFacts& want) {
  if (x.dtype.code != want.dl_code || x.dtype.bits != want.dl_bits || x.dtype.lanes != 1 || x.ndim != want.rank) return kBadTensor;
  if (want.rank > 0 && x.shape == nullptr) return kBadTensor;
  int64_t row_major = 1;
  for (int d = want.rank - 1; d >= 0; d--) {
    if (x.shape[d] != want.shape[d]) return kBadTensor;
    if (want.shape[d] != 1 && (x.strides != nullptr ? x.strides[d] : row_major) != want.strides[d]) return kBadTensor;
    row_major *= want.shape[d];
  }
  return kSuccess;
}

)~";

constexpr const char* kLaunchDlpack =
    R"~(inline int launch_dlpack(const DlTensor* const* tensors, int count, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  constexpr int32_t kDlCuda = 2, kDlCudaManaged = 13;
  if (tensors == nullptr) return kNullPointer;
  if (count != kNumTensors) return kBadTensor;
  const void* t[kNumTensors];
  for (int i = 0; i < kNumTensors; i++) {
    if (tensors[i] == nullptr || tensors[i]->data == nullptr) return kNullPointer;
    if (const int bad = check_dlpack(*tensors[i], kTensors[i])) return bad;
    t[i] = static_cast<const char*>(tensors[i]->data) + tensors[i]->byte_offset;
  }
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  for (int i = 0; i < kNumTensors; i++) {
    const DlDevice where = tensors[i]->device;
@VALUES_TOO@    if ((where.type != kDlCuda || where.id != device) && where.type != kDlCudaManaged) return kWrongDevice;
  }
  return launch(nullptr, t, workspace, workspace_bytes, stream);
}
)~";

constexpr const char* kHostStatus = R"~(
inline const char* status_string(int status) {
  switch (status) {
    case kSuccess: return "success";
    case kBadDims: return "bad dims";
    case kNullPointer: return "null pointer";
    case kMisaligned: return "misaligned pointer (tensors: 16 bytes, workspace: 256 bytes)";
    case kWorkspaceTooSmall: return "workspace too small";
    case kWrongDevice: return "wrong device (this library is for @TARGET@)";
    case kBadTensor: return "shape, stride or dtype of a tensor";
    case kAliasing: return "an output or the workspace overlaps another tensor";
@CUBLAS_STRING@    default: return status > 0 ? cudaGetErrorString(static_cast<cudaError_t>(status)) : "unknown status";
  }
}

}  // namespace mirage_@NAME@

#if defined(_WIN32)
#define MIRAGE_API extern "C" __declspec(dllexport)
#else
#define MIRAGE_API extern "C" __attribute__((visibility("default")))
#endif

)~";

constexpr const char* kFunctions = R"~(MIRAGE_API int @NAME@_workspace_size(const @NAME@_dims* dims, size_t* bytes) {
  if (const int bad = mirage_@NAME@::check_dims(dims)) return bad;
  if (bytes == nullptr) return mirage_@NAME@::kNullPointer;
  *bytes = mirage_@NAME@::kWorkspaceBytes;
  return mirage_@NAME@::kSuccess;
}

@INIT@

MIRAGE_API int @NAME@_launch(const @NAME@_dims* dims, @PARAMETERS@void* workspace, size_t workspace_bytes, cudaStream_t stream) {
@ROUNDED@  const void* const tensors[] = {@POINTERS@};
  return mirage_@NAME@::launch(dims, tensors, workspace, workspace_bytes, stream);
}

MIRAGE_API int @NAME@_supported(int device, const @NAME@_dims* dims) {
  if (const int bad = mirage_@NAME@::check_dims(dims)) return bad;
  return mirage_@NAME@::check_device(device);
}
)~";

constexpr const char* kHostEnd = R"~(
MIRAGE_API int @NAME@_launch_dlpack(const mirage_@NAME@::DlTensor* const* tensors, int count, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  return mirage_@NAME@::launch_dlpack(tensors, count, workspace, workspace_bytes, stream);
}

MIRAGE_API const char* @NAME@_status_string(int status) { return mirage_@NAME@::status_string(status); }

MIRAGE_API const char* @NAME@_info_json(void) {
  return @INFO@;
}

MIRAGE_API unsigned @NAME@_abi_version(void) { return 1u; }
@TVM_FFI@
#undef MIRAGE_API
#endif  // __CUDACC_RTC__
)~";

constexpr const char* kFacts = R"~(constexpr uint64_t kWorkspaceBytes = @WORKSPACE@u;
constexpr int kMaxSharedBytes = @SMEM@;
constexpr TensorFacts kTensors[kNumTensors] = {
@TABLE@};
)~";

constexpr const char* kCheckDims =
    R"~(inline int check_dims(const @NAME@_dims* dims) { return dims == nullptr || (dims->struct_size == sizeof(@NAME@_dims) && )~"
    R"~(dims->reserved == 0) ? kSuccess : kBadDims; })~";

}  // namespace

std::string c_parameters(const ModuleFacts& f) {
  std::string out;
  for (const AbiTensor& t : f.tensors)
    out += (t.is_output ? "void* " : t.by_value() ? std::string(c_value_type(t.info->type.dtype)) + " " : "const void* ") + t.c_name + ", ";
  return out;
}

namespace {

/// Which tensors are values; nothing where none is.
std::string value_table(const ModuleFacts& f) {
  if (!f.has_values()) return "";
  std::string out;
  for (const AbiTensor& t : f.tensors) out += std::string(out.empty() ? "" : ", ") + (t.by_value() ? "true" : "false");
  return "constexpr bool kByValue[kNumTensors] = {" + out + "};   // passed by value: their pointers are the host's\n";
}

}  // namespace

constexpr const char* kNoCublasString =
    "    case kNoCublas: return \"cuBLASLt cannot start on this device, or has no algorithm for a product (the first call on a device must "
    "not be captured)\";\n";

std::string host_text(const ModuleFacts& f, const std::vector<KernelText>& kernels, const HostParts& parts) {
  const bool maps = has_maps(kernels);
  const std::string products = cublas_text(f.name, kernels);
  const std::vector<std::pair<std::string_view, std::string>> keys = {
      {"NAME", f.name}, {"INPUTS", std::to_string(f.num_inputs())}, {"TENSORS", std::to_string(f.num_tensors())},
      {"DIMS_FIELDS", parts.dims_fields}, {"FACTS", value_table(f) + parts.facts}, {"TENSOR_I", f.has_values() ? "!kByValue[i] && " : ""},
      {"TENSOR_K", f.has_values() ? "!kByValue[k] && " : ""}, {"CHECK_DIMS", parts.check_dims},
      {"POINT", parts.is_family ? "const Point& point, " : ""}, {"POINT_ARGUMENT", parts.is_family ? "point, " : ""},
      {"BYTES", parts.is_family ? "point.workspace_bytes" : "kWorkspaceBytes"},
      {"TENSOR_FACTS", parts.is_family ? "point.tensors" : "kTensors"}, {"COOPERATIVE", cooperative_start(kernels) + alone_start(kernels)},
      {"TARGET", f.target.name},
      {"PDL", any_dependent(kernels) ? kDependentLaunch : ""},
      {"INCLUDES", std::string(maps || f.has_values() ? "#include <cstring>\n" : "") + (maps ? "#include <cuda.h>\n" : "") +
                       cublas_includes(kernels)},
      {"ENCODE", maps ? kEncodeMap : ""},
      {"CAPABILITY_RULE", capability_rule(f.target)}, {"ATTRIBUTES", attributes(kernels)}, {"INFO", c_literal(parts.info)},
      {"TVM_FFI", parts.tvm_ffi},
      {"CUBLAS", products.empty() ? "" : products + "\n"},
      {"CUBLAS_STATUS", products.empty() ? "" : ", kNoCublas = -8"},
      {"CUBLAS_READY", products.empty() ? "" : "  if (product_device() == nullptr) return kNoCublas;\n"},
      {"CUBLAS_STRING", products.empty() ? "" : kNoCublasString}};
  return expand(kHostTop, keys) + parts.launch + expand(kHostTensors, keys) + parts.launch_dlpack + expand(kHostStatus, keys) +
         parts.functions + expand(kHostEnd, keys);
}

std::string emit_host(const ModuleFacts& f) {
  const LaunchSteps steps = launch_steps(f);
  const std::vector<std::pair<std::string_view, std::string>> keys = {{"NAME", f.name},
                                                                      {"WORKSPACE", std::to_string(f.plan.workspace_bytes)},
                                                                      {"SMEM", std::to_string(max_smem(f.kernels))},
                                                                      {"TABLE", tensor_table(f)},
                                                                      {"LAUNCHES", steps.calls},
                                                                      {"INIT", workspace_init(f)},
                                                                      {"PARAMETERS", c_parameters(f)}, {"POINTERS", pointer_list(f)},
                                                                      {"ROUNDED", rounded_values(f)},
                                                                      {"VALUES_TOO", f.has_values() ? kDlpackValue : ""}};
  HostParts parts;
  parts.facts = expand(kFacts, keys);
  parts.check_dims = expand(kCheckDims, keys);
  parts.launch = steps.functions + expand(kLaunch, keys);
  parts.launch_dlpack = expand(kLaunchDlpack, keys);
  parts.functions = expand(kFunctions, keys);
  parts.info = emit_info_json(f);
  parts.tvm_ffi = emit_tvm_ffi(f);
  return host_text(f, f.kernels, parts);
}

}  // namespace mirage
