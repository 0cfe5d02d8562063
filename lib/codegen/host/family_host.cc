// The host half of a library that serves several programs (a family): a table of points, each with its tensors, its workspace and the
// function that starts its kernels; NAME_dims chooses one. What it has in common with the host half of one program stands in abi.cc.
#include <algorithm>

#include "codegen/host/abi_parts.h"
#include "codegen/names.h"

namespace mirage {
namespace {

constexpr const char* kFamilyPoints = R"~(constexpr int kMaxSharedBytes = @SMEM@;
@SLOTS@
// One combination of values of the axes (@AXES@): its tensors, its workspace, and what starts its kernels.
struct Point {
  int64_t values[@COUNT@];
  uint64_t workspace_bytes;
  int (*enqueue)(const void* const* t, char* w, cudaStream_t stream);
  TensorFacts tensors[kNumTensors];
};
@DECLARATIONS@constexpr Point kPoints[] = {
@POINTS@};
)~";

constexpr const char* kPointOf = R"~(// nullptr: other values than this library serves.
inline const Point* point_of(const @NAME@_dims* dims) {
  if (dims == nullptr || dims->struct_size != sizeof(@NAME@_dims) || dims->reserved != 0) return nullptr;
  for (const Point& p : kPoints)
    if (@SAME@) return &p;
  return nullptr;
})~";

constexpr const char* kFamilyLaunch =
    R"~(@ENQUEUES@inline int launch(const Point& point, const void* const* t, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  if (const int bad = check_pointers(point, t, workspace, workspace_bytes)) return bad;
  if (const int bad = prepare_device()) return bad;
  return point.enqueue(t, static_cast<char*>(workspace), stream);
}
)~";

constexpr const char* kFamilyDlpack = R"~(inline bool serves(const Point& point, const DlTensor* const* tensors) {
  for (int i = 0; i < kNumTensors; i++)
    if (check_dlpack(*tensors[i], point.tensors[i]) != kSuccess) return false;
  return true;
}

// The shapes choose the point.
inline int launch_dlpack(const DlTensor* const* tensors, int count, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  constexpr int32_t kDlCuda = 2, kDlCudaManaged = 13;
  if (tensors == nullptr) return kNullPointer;
  if (count != kNumTensors) return kBadTensor;
  const void* t[kNumTensors];
  for (int i = 0; i < kNumTensors; i++) {
    if (tensors[i] == nullptr || tensors[i]->data == nullptr) return kNullPointer;
    t[i] = static_cast<const char*>(tensors[i]->data) + tensors[i]->byte_offset;
  }
  const Point* point = nullptr;
  for (const Point& p : kPoints)
    if (point == nullptr && serves(p, tensors)) point = &p;
  if (point == nullptr) return kBadTensor;
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  for (int i = 0; i < kNumTensors; i++) {
    const DlDevice where = tensors[i]->device;
@VALUES_TOO@    if ((where.type != kDlCuda || where.id != device) && where.type != kDlCudaManaged) return kWrongDevice;
  }
  return launch(*point, t, workspace, workspace_bytes, stream);
}
)~";

constexpr const char* kFamilyFunctions = R"~(MIRAGE_API int @NAME@_workspace_size(const @NAME@_dims* dims, size_t* bytes) {
  const mirage_@NAME@::Point* point = mirage_@NAME@::point_of(dims);
  if (point == nullptr) return mirage_@NAME@::kBadDims;
  if (bytes == nullptr) return mirage_@NAME@::kNullPointer;
  *bytes = point->workspace_bytes;
  return mirage_@NAME@::kSuccess;
}

@INIT@

MIRAGE_API int @NAME@_launch(const @NAME@_dims* dims, @PARAMETERS@void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  const mirage_@NAME@::Point* point = mirage_@NAME@::point_of(dims);
  if (point == nullptr) return mirage_@NAME@::kBadDims;
@ROUNDED@  const void* const tensors[] = {@POINTERS@};
  return mirage_@NAME@::launch(*point, tensors, workspace, workspace_bytes, stream);
}

MIRAGE_API int @NAME@_supported(int device, const @NAME@_dims* dims) {
  if (mirage_@NAME@::point_of(dims) == nullptr) return mirage_@NAME@::kBadDims;
  return mirage_@NAME@::check_device(device);
}
)~";

// Without dims: slots lie at the begin of every workspace, whatever it is used for next. A workspace of no bytes is one of points that need
// none.
constexpr const char* kInitSlots =
    R"~(// Blocks hand sums to each other in slots of the workspace. A launch finds them empty (all ones) and leaves them empty; after one that was ended by force this must be called again.
MIRAGE_API int @NAME@_workspace_init(void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  using namespace mirage_@NAME@;
  if (workspace == nullptr) return workspace_bytes == 0 ? kSuccess : kNullPointer;
  if (misaligned(workspace, 256)) return kMisaligned;
  if (less(workspace_bytes, kSlotBytes)) return kWorkspaceTooSmall;
@PREPARE@  return cudaMemsetAsync(workspace, 0xff, kSlotBytes, stream);
})~";

constexpr const char* kInitNothing =
    R"~(// No kernel of this library reads what an earlier launch left in the workspace, so there is nothing to initialise.
MIRAGE_API int @NAME@_workspace_init(void* workspace, size_t workspace_bytes, cudaStream_t) {
@PREPARE@  if (workspace == nullptr) return workspace_bytes == 0 ? mirage_@NAME@::kSuccess : mirage_@NAME@::kNullPointer;
  return mirage_@NAME@::misaligned(workspace, 256) ? mirage_@NAME@::kMisaligned : mirage_@NAME@::kSuccess;
})~";

std::string joined(const std::vector<std::string>& parts, const char* between) {
  std::string out;
  for (const std::string& p : parts) out += (out.empty() ? "" : between) + p;
  return out;
}

std::string values_list(const std::vector<int64_t>& values) {
  std::vector<std::string> parts;
  for (int64_t v : values) parts.push_back(std::to_string(v));
  return "{" + joined(parts, ", ") + "}";
}

std::string enqueue_name(size_t point) { return "enqueue_" + std::to_string(point); }

}  // namespace

std::string emit_host(const FamilyFacts& f) {
  const ModuleFacts& hint = f.hinted();
  std::string declarations, points, enqueues, same, fields;
  for (size_t p = 0; p < f.points.size(); p++) {
    declarations += "inline int " + enqueue_name(p) + "(const void* const* t, char* w, cudaStream_t stream);\n";
    points += "  {" + values_list(f.values[p]) + ", " + std::to_string(f.points[p].plan.workspace_bytes) + "u, &" + enqueue_name(p) +
              ", {\n" + tensor_table(f.points[p]) + "  }},\n";
    enqueues += "inline int " + enqueue_name(p) +
                "(const void* const* t, char* w, cudaStream_t stream) {\n  (void)t, (void)w;\n  cudaError_t error = cudaSuccess;\n" +
                launches(f.points[p], f.kernels) + "  return error;\n}\n\n";
  }
  for (size_t a = 0; a < f.c_axes.size(); a++) {
    same += (a ? " && " : "") + ("p.values[" + std::to_string(a) + "] == dims->" + f.c_axes[a]);
    fields += " int64_t " + f.c_axes[a] + ";";
  }
  std::string slots;   // nothing where no kernel has any: compilers warn of constants that nobody reads
  if (f.slot_bytes)
    slots = "constexpr uint64_t kSlotBytes = " + std::to_string(f.slot_bytes) +
            "u;   // at the begin of every workspace: slots, which all points use alike\n";
  std::string prepare;
  if (any_cublas(f.kernels))
    prepare = "  if (const int bad = mirage_" + hint.name + "::prepare_device()) return bad;   // what cuBLASLt needs\n";
  const std::vector<std::pair<std::string_view, std::string>> keys = {
      {"NAME", hint.name},
      {"SMEM", std::to_string(max_smem(f.kernels))},
      {"SLOTS", slots},
      {"AXES", joined(f.c_axes, ", ")},
      {"COUNT", std::to_string(f.axes.size())},
      {"DECLARATIONS", declarations},
      {"POINTS", points},
      {"SAME", same},
      {"ENQUEUES", enqueues},
      {"PARAMETERS", c_parameters(hint)},
      {"POINTERS", pointer_list(hint)},
      {"ROUNDED", rounded_values(hint)},
      {"VALUES_TOO", hint.has_values() ? kDlpackValue : ""},
      {"INIT", expand(f.slot_bytes ? kInitSlots : kInitNothing, {{"NAME", hint.name}, {"PREPARE", prepare}})}};
  HostParts parts;
  parts.is_family = true;
  parts.dims_fields = fields;
  parts.facts = expand(kFamilyPoints, keys);
  parts.check_dims = expand(kPointOf, keys);
  parts.launch = expand(kFamilyLaunch, keys);
  parts.launch_dlpack = expand(kFamilyDlpack, keys);
  parts.functions = expand(kFamilyFunctions, keys);
  parts.info = emit_info_json(f);
  parts.tvm_ffi = emit_tvm_ffi(f);
  return host_text(hint, f.kernels, parts);
}

}  // namespace mirage
