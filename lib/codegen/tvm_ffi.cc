// __tvm_ffi_NAME: the library as a TVM-FFI function (inputs, then outputs), which FlashInfer-Bench, jax-tvm-ffi, Hugging Face kernels and apache-tvm-ffi call. The ABI is stated here in plain C:
// the text needs no header of theirs and the library is not linked with theirs. Its functions are looked up when the function is first called, by those who are there: weak references,
// and where the library was loaded before the runtime, dlsym.
#include "codegen/module_parts.h"
#include "codegen/names.h"

namespace mirage {
namespace {

constexpr const char* kTvmFfi = R"~(
// ======== TVM-FFI: the same library for frameworks that call __tvm_ffi_@NAME@(inputs..., outputs...) ========
#if defined(__GNUC__) && !defined(_WIN32)
extern "C" {
__attribute__((weak)) void* TVMFFIEnvGetStream(int32_t device_type, int32_t device_id);
__attribute__((weak)) int TVMFFIEnvTensorAlloc(mirage_@NAME@::DlTensor* prototype, void** out);
__attribute__((weak)) int TVMFFIObjectDecRef(void* object);
__attribute__((weak)) void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message);
void* dlsym(void*, const char*) noexcept;
}

namespace mirage_@NAME@ {

struct TvmAny { int32_t type_index; uint32_t padding; union { int64_t number; void* pointer; }; };
constexpr int kTvmTensorView = 7, kTvmTensor = 70;   // a DlTensor*, and an object with a DlTensor behind its header
constexpr size_t kTvmObjectHeader = 24;
constexpr const char* kTensorNames[kNumTensors] = {@TENSOR_NAMES@};
constexpr const char* kTensorTypes[kNumTensors] = {@TENSOR_TYPES@};

// A library that was loaded before the runtime has empty weak references, for good.
template <class F> F* find_tvm(F* weak, const char* name) { return weak != nullptr ? weak : reinterpret_cast<F*>(dlsym(nullptr, name)); }

inline int raise_tvm(const char* kind, const char* tensor, const char* what, const char* expected) {
  static auto* const set_raised = find_tvm(&TVMFFIErrorSetRaisedFromCStr, "TVMFFIErrorSetRaisedFromCStr");
  char message[512];
  snprintf(message, sizeof message, "@NAME@: %s%s%s%s", tensor, tensor[0] != 0 ? " " : "", what, expected);
  if (set_raised != nullptr) set_raised(kind, message);
  return -1;
}

// What is wrong with a tensor, as a Python exception.
inline int check_tvm(const DlTensor& x, int i) {
  const TensorFacts& want = kTensors[i];
  if (x.dtype.code != want.dl_code || x.dtype.bits != want.dl_bits || x.dtype.lanes != 1) return raise_tvm("TypeError", kTensorNames[i], "has another dtype, expected ", kTensorTypes[i]);
  bool same = x.ndim == want.rank;
  for (int d = 0; same && d < want.rank; d++) same = x.shape[d] == want.shape[d];
  if (!same) return raise_tvm("ValueError", kTensorNames[i], "has another shape, expected ", kTensorTypes[i]);
  if (check_dlpack(x, want) != kSuccess) return raise_tvm("ValueError", kTensorNames[i], "has other strides than expected of ", kTensorTypes[i]);
  return 0;
}

inline int launch_tvm(const DlTensor* const* tensors, cudaStream_t stream, DlDevice device) {
  void* workspace = nullptr;
  char* memory = nullptr;
  if (kWorkspaceBytes != 0) {   // the framework's allocator: its memory is free again in the order of the stream
    static auto* const allocate = find_tvm(&TVMFFIEnvTensorAlloc, "TVMFFIEnvTensorAlloc");
    if (allocate == nullptr) return raise_tvm("RuntimeError", "", "this TVM-FFI runtime has no TVMFFIEnvTensorAlloc", "");
    int64_t bytes = static_cast<int64_t>(kWorkspaceBytes) + 256, one = 1;
    DlTensor prototype = {nullptr, device, 1, {1, 8, 1}, &bytes, &one, 0};
    if (const int bad = allocate(&prototype, &workspace)) return bad;
    memory = static_cast<char*>(reinterpret_cast<DlTensor*>(static_cast<char*>(workspace) + kTvmObjectHeader)->data);
    memory += (256 - reinterpret_cast<uintptr_t>(memory) % 256) % 256;
  }
  int status = kWorkspaceBytes != 0 ? @NAME@_workspace_init(memory, kWorkspaceBytes, stream) : kSuccess;
  if (status == kSuccess) status = launch_dlpack(tensors, kNumTensors, memory, kWorkspaceBytes, stream);
  if (workspace != nullptr) {
    static auto* const release = find_tvm(&TVMFFIObjectDecRef, "TVMFFIObjectDecRef");
    if (release != nullptr) release(workspace);
  }
  return status == kSuccess ? 0 : raise_tvm(status < 0 && status != kWrongDevice ? "ValueError" : "RuntimeError", "", status_string(status), "");
}

inline int call_tvm(const TvmAny* args, int32_t count) {
  if (count != kNumTensors) return raise_tvm("TypeError", "", "takes @TENSORS@ tensors: @SIGNATURE@", "");
  const DlTensor* tensors[kNumTensors];
  for (int i = 0; i < kNumTensors; i++) {
    const TvmAny& a = args[i];
    if (a.type_index != kTvmTensorView && a.type_index != kTvmTensor) return raise_tvm("TypeError", kTensorNames[i], "is not a tensor, expected ", kTensorTypes[i]);
    tensors[i] = reinterpret_cast<const DlTensor*>(static_cast<char*>(a.pointer) + (a.type_index == kTvmTensor ? kTvmObjectHeader : 0));
    if (const int bad = check_tvm(*tensors[i], i)) return bad;
  }
  for (int i = 0; i < kNumTensors; i++)
    if (tensors[i]->device.type != 2 && tensors[i]->device.type != 13) return raise_tvm("ValueError", kTensorNames[i], "is not on a CUDA device", "");
  static auto* const current_stream = find_tvm(&TVMFFIEnvGetStream, "TVMFFIEnvGetStream");
  const DlDevice device = tensors[0]->device;
  const cudaStream_t stream = current_stream == nullptr ? nullptr : static_cast<cudaStream_t>(current_stream(device.type, device.id));
  int before = 0;
  cudaError_t error = cudaGetDevice(&before);
  if (error == cudaSuccess && before != device.id) error = cudaSetDevice(device.id);
  if (error != cudaSuccess) return raise_tvm("RuntimeError", "", status_string(error), "");
  const int result = launch_tvm(tensors, stream, device);
  if (before != device.id) cudaSetDevice(before);
  return result;
}

}  // namespace mirage_@NAME@

MIRAGE_API int __tvm_ffi_@NAME@(void*, const void* args, int32_t count, void* result) {
  mirage_@NAME@::TvmAny* const none = static_cast<mirage_@NAME@::TvmAny*>(result);
  none->type_index = 0;
  none->padding = 0;
  none->number = 0;
  return mirage_@NAME@::call_tvm(static_cast<const mirage_@NAME@::TvmAny*>(args), count);
}
#endif
)~";

}  // namespace

std::string emit_tvm_ffi(const ModuleFacts& f) {
  std::string names, types, signature;
  for (const AbiTensor& t : f.tensors) {
    names += (names.empty() ? "" : ", ") + c_literal(t.info->name);
    types += (types.empty() ? "" : ", ") + c_literal(to_string(t.info->type));
    signature += (signature.empty() ? "" : ", ") + t.c_name;
  }
  return expand(kTvmFfi, {{"NAME", f.name}, {"TENSORS", std::to_string(f.num_tensors())}, {"TENSOR_NAMES", names}, {"TENSOR_TYPES", types}, {"SIGNATURE", signature}});
}

}  // namespace mirage
