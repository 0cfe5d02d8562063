// __tvm_ffi_NAME: the library as a TVM-FFI function (inputs, then outputs), which FlashInfer-Bench, jax-tvm-ffi, Hugging Face kernels and
// apache-tvm-ffi call. The ABI is stated here in plain C: the text needs no header of theirs and the library is not linked with theirs. Its
// functions are looked up when the function is first called, by those who are there: weak references, and where the library was loaded
// before the runtime, dlsym.
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

@CHECK@inline int launch_tvm(const DlTensor* const* tensors, @BYTES_PARAMETER@cudaStream_t stream, DlDevice device) {
  void* workspace = nullptr;
  char* memory = nullptr;
  if (@BYTES@ != 0) {   // the framework's allocator: its memory is free again in the order of the stream
    static auto* const allocate = find_tvm(&TVMFFIEnvTensorAlloc, "TVMFFIEnvTensorAlloc");
    if (allocate == nullptr) return raise_tvm("RuntimeError", "", "this TVM-FFI runtime has no TVMFFIEnvTensorAlloc", "");
    int64_t bytes = static_cast<int64_t>(@BYTES@) + 256, one = 1;
    DlTensor prototype = {nullptr, device, 1, {1, 8, 1}, &bytes, &one, 0};
    if (const int bad = allocate(&prototype, &workspace)) return bad;
    memory = static_cast<char*>(reinterpret_cast<DlTensor*>(static_cast<char*>(workspace) + kTvmObjectHeader)->data);
    memory += (256 - reinterpret_cast<uintptr_t>(memory) % 256) % 256;
  }
  int status = @BYTES@ != 0 ? @NAME@_workspace_init(memory, @BYTES@, stream) : kSuccess;
  if (status == kSuccess) status = launch_dlpack(tensors, kNumTensors, memory, @BYTES@, stream);
  if (workspace != nullptr) {
    static auto* const release = find_tvm(&TVMFFIObjectDecRef, "TVMFFIObjectDecRef");
    if (release != nullptr) release(workspace);
  }
  return status == kSuccess ? 0 : raise_tvm(status < 0 && status != kWrongDevice ? "ValueError" : "RuntimeError", "", status_string(status), "");
}

inline int call_tvm(const TvmAny* args, int32_t count) {
  if (count != kNumTensors) return raise_tvm("TypeError", "", "takes @TENSORS@ @WHAT@: @SIGNATURE@", "");
  const DlTensor* tensors[kNumTensors];
@VALUES@  for (int i = 0; i < kNumTensors; i++) {
    const TvmAny& a = args[i];
@TAKE_VALUE@    if (a.type_index != kTvmTensorView && a.type_index != kTvmTensor) return raise_tvm("TypeError", kTensorNames[i], "is not a tensor, expected ", kTensorTypes[i]);
    tensors[i] = reinterpret_cast<const DlTensor*>(static_cast<char*>(a.pointer) + (a.type_index == kTvmTensor ? kTvmObjectHeader : 0));
@CHECK_EACH@  }
@CHECK_ALL@  for (int i = 0; i < kNumTensors; i++)
    if (@NO_VALUE@tensors[i]->device.type != 2 && tensors[i]->device.type != 13) return raise_tvm("ValueError", kTensorNames[i], "is not on a CUDA device", "");
  static auto* const current_stream = find_tvm(&TVMFFIEnvGetStream, "TVMFFIEnvGetStream");
  const DlDevice device = tensors[@FIRST@]->device;
  const cudaStream_t stream = current_stream == nullptr ? nullptr : static_cast<cudaStream_t>(current_stream(device.type, device.id));
  int before = 0;
  cudaError_t error = cudaGetDevice(&before);
  if (error == cudaSuccess && before != device.id) error = cudaSetDevice(device.id);
  if (error != cudaSuccess) return raise_tvm("RuntimeError", "", status_string(error), "");
  const int result = launch_tvm(tensors, @BYTES_ARGUMENT@stream, device);
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

constexpr const char* kCheckOne = R"~(// What is wrong with a tensor, as a Python exception.
inline int check_tvm(const DlTensor& x, int i) {
  const TensorFacts& want = kTensors[i];
  if (x.dtype.code != want.dl_code || x.dtype.bits != want.dl_bits || x.dtype.lanes != 1) return raise_tvm("TypeError", kTensorNames[i], "has another dtype, expected ", kTensorTypes[i]);
  bool same = x.ndim == want.rank;
  for (int d = 0; same && d < want.rank; d++) same = x.shape[d] == want.shape[d];
  if (!same) return raise_tvm("ValueError", kTensorNames[i], "has another shape, expected ", kTensorTypes[i]);
  if (check_dlpack(x, want) != kSuccess) return raise_tvm("ValueError", kTensorNames[i], "has other strides than expected of ", kTensorTypes[i]);
  return 0;
}

)~";

constexpr const char* kCheckFamily = R"~(// Whose tensors these are; nullptr: none, and the exception is raised.
inline const Point* point_tvm(const DlTensor* const* tensors) {
  for (const Point& p : kPoints)
    if (serves(p, tensors)) return &p;
  for (int i = 0; i < kNumTensors; i++) {
    const TensorFacts& want = kPoints[0].tensors[i];
    const DlDtype is = tensors[i]->dtype;
    if (is.code == want.dl_code && is.bits == want.dl_bits && is.lanes == 1) continue;
    raise_tvm("TypeError", kTensorNames[i], "has another dtype, expected ", kTensorTypes[i]);
    return nullptr;
  }
  raise_tvm("ValueError", "", "no size of this library has tensors of these shapes and strides: it has ", @SIZES@);
  return nullptr;
}

)~";

constexpr const char* kValueOf = R"~(// A number of Python's as the library takes it; false: it is none, or too large.
inline bool value_tvm(const TvmAny& a, const TensorFacts& want, void* to) {
  if (a.type_index < 1 || a.type_index > 3) return false;   // int, bool, float
  double real = 0;
  memcpy(&real, &a.number, sizeof real);
  if (a.type_index != 3) real = static_cast<double>(a.number);
  const float single = static_cast<float>(real);
  const __half half = __float2half_rn(single);
  const __nv_bfloat16 brain = __float2bfloat16_rn(single);
  const int32_t small = static_cast<int32_t>(a.number);
  const uint8_t truth = real != 0;
  if (want.dl_code == 0 && (a.type_index == 3 || (want.dl_bits == 32 && small != a.number))) return false;
  const void* const from = want.dl_code == 4 ? static_cast<const void*>(&brain) : want.dl_code == 6 ? static_cast<const void*>(&truth) : want.dl_code == 0 ? (want.dl_bits == 64 ? static_cast<const void*>(&a.number) : static_cast<const void*>(&small))
                                                                                                                                                   : want.dl_bits == 16 ? static_cast<const void*>(&half) : static_cast<const void*>(&single);
  memcpy(to, from, want.dl_bits / 8);
  return true;
}

)~";

constexpr const char* kTakeValue = R"~(    if (kByValue[i]) {
      const TensorFacts& want = @FACTS@[i];
      if (!value_tvm(a, want, &values[i])) return raise_tvm("TypeError", kTensorNames[i], "is not a number that fits, expected ", kTensorTypes[i]);
      views[i] = {&values[i], {1, 0}, 0, {want.dl_code, want.dl_bits, 1}, nullptr, nullptr, 0};
      tensors[i] = &views[i];
      continue;
    }
)~";

std::string c_list(const std::vector<std::string>& items) {
  std::string out;
  for (const std::string& x : items) out += (out.empty() ? "" : ", ") + c_literal(x);
  return out;
}

/// types: how each tensor's is said; sizes: of a family what it serves.
std::string tvm_text(const ModuleFacts& f, const std::vector<std::string>& types, const std::string& sizes) {
  const bool family = !sizes.empty(), has_values = f.has_values();
  std::vector<std::string> names;
  std::string signature;
  size_t first = 0;
  while (first + 1 < f.tensors.size() && f.tensors[first].by_value()) first++;
  for (const AbiTensor& t : f.tensors) {
    names.push_back(t.info->name);
    signature += (signature.empty() ? "" : ", ") + t.c_name;
  }
  const char* const all = "  const Point* const point = point_tvm(tensors);\n  if (point == nullptr) return -1;\n";
  const std::string check = expand(family ? kCheckFamily : kCheckOne, {{"SIZES", c_literal(sizes)}});
  return expand(kTvmFfi, {{"NAME", f.name}, {"TENSORS", std::to_string(f.num_tensors())}, {"TENSOR_NAMES", c_list(names)},
                          {"TENSOR_TYPES", c_list(types)}, {"SIGNATURE", signature}, {"WHAT", has_values ? "arguments" : "tensors"},
                          {"CHECK", check + (has_values ? kValueOf : "")}, {"BYTES", family ? "needed" : "kWorkspaceBytes"},
                          {"BYTES_PARAMETER", family ? "uint64_t needed, " : ""},
                          {"BYTES_ARGUMENT", family ? "point->workspace_bytes, " : ""},
                          {"CHECK_EACH", family ? "" : "    if (const int bad = check_tvm(*tensors[i], i)) return bad;\n"},
                          {"CHECK_ALL", family ? all : ""},
                          {"VALUES", has_values ? "  DlTensor views[kNumTensors];\n  int64_t values[kNumTensors];\n" : ""},
                          {"NO_VALUE", has_values ? "!kByValue[i] && " : ""},
                          {"TAKE_VALUE", has_values ? expand(kTakeValue, {{"FACTS", family ? "kPoints[0].tensors" : "kTensors"}}) : ""},
                          {"FIRST", std::to_string(first)}});
}

}  // namespace

std::string emit_tvm_ffi(const ModuleFacts& f) {
  std::vector<std::string> types;
  for (const AbiTensor& t : f.tensors)
    types.push_back(t.by_value() ? std::string(dtype_long_name(t.info->type.dtype)) + " by value" : to_string(t.info->type));
  return tvm_text(f, types, "");
}

std::string emit_tvm_ffi(const FamilyFacts& f) {
  std::vector<std::string> types;
  std::string sizes;
  for (size_t t = 0; t < f.hinted().tensors.size(); t++) types.push_back(type_text(f, t));
  for (size_t a = 0; a < f.axes.size(); a++) {
    std::string values;
    for (int64_t v : f.axes[a].values) values += (values.empty() ? "" : " or ") + std::to_string(v);
    sizes += (a ? ", " : "") + f.axes[a].name + " = " + values;
  }
  return tvm_text(f.hinted(), types, sizes);
}

}  // namespace mirage
