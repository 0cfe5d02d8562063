// What NAME_info_json returns: a description of the library for programs that load it without its header.
#include <algorithm>

#include "codegen/module_parts.h"
#include "codegen/names.h"

namespace mirage {
namespace {

std::string list(const Dims& d) {
  std::string out;
  for (int64_t x : d) out += (out.empty() ? "" : ",") + std::to_string(x);
  return "[" + out + "]";
}

std::string tensor(const AbiTensor& t) {
  return "{\"name\":" + json_string(t.info->name) + ",\"c_name\":" + json_string(t.c_name) +
         ",\"dtype\":" + json_string(dtype_long_name(t.info->type.dtype)) + ",\"shape\":" + list(t.info->type.dims) +
         ",\"strides\":" + list(t.info->strides) + ",\"span_bytes\":" + std::to_string(t.span_bytes()) +
         (t.by_value() ? ",\"by_value\":true}" : "}");
}

/// Inputs and outputs.
std::string tensor_lists(const ModuleFacts& f) {
  std::string out;
  for (const bool outputs : {false, true}) {
    out += outputs ? ",\"outputs\":[" : ",\"inputs\":[";
    bool first = true;
    for (const AbiTensor& t : f.tensors) {
      if (t.is_output != outputs) continue;
      out += (first ? "" : ",") + tensor(t);
      first = false;
    }
    out += "]";
  }
  return out;
}

std::string kernel_list(const std::vector<KernelText>& kernels) {
  std::string out = ",\"kernels\":[";
  for (size_t i = 0; i < kernels.size(); i++) {
    const KernelText& k = kernels[i];
    if (k.cublas) {
      out += std::string(i ? "," : "") + "{\"name\":" + json_string(k.name) + ",\"library\":\"cuBLASLt\"}";
      continue;
    }
    out += std::string(i ? "," : "") + "{\"name\":" + json_string(k.name) + ",\"grid\":[" + std::to_string(k.grid[0]) + "," +
           std::to_string(k.grid[1]) + "," + std::to_string(k.grid[2]) + "],\"threads\":" + std::to_string(k.threads) +
           ",\"smem_bytes\":" + std::to_string(k.smem_bytes) + "}";
  }
  return out + "]";
}

std::string about(const ModuleFacts& f, int64_t workspace_bytes) {
  return "{\"schema\":1,\"name\":" + json_string(f.name) + ",\"program\":" + json_string(f.program.name) +
         ",\"tool\":\"mirage-opt\",\"version\":" + json_string(f.options.version) + ",\"spec_id\":" + json_string(f.spec_id) +
         ",\"target\":" + json_string(f.target.name) + ",\"abi_version\":1,\"workspace_bytes\":" + std::to_string(workspace_bytes);
}

std::string number_list(const std::vector<int64_t>& values) {
  std::string out;
  for (int64_t x : values) out += (out.empty() ? "" : ",") + std::to_string(x);
  return "[" + out + "]";
}

}  // namespace

std::string emit_info_json(const ModuleFacts& f) {
  return about(f, f.plan.workspace_bytes) + tensor_lists(f) + kernel_list(f.kernels) + "}";
}

/// What a library for one program says stands for the hints; the workspace is the largest, "points" has the rest.
std::string emit_info_json(const FamilyFacts& f) {
  int64_t most = 0;
  for (const ModuleFacts& p : f.points) most = std::max(most, p.plan.workspace_bytes);
  std::string out = about(f.hinted(), most) + ",\"axes\":[", points;
  for (size_t a = 0; a < f.axes.size(); a++)
    out += std::string(a ? "," : "") + "{\"name\":" + json_string(f.axes[a].name) + ",\"c_name\":" + json_string(f.c_axes[a]) +
           ",\"values\":" + number_list(f.axes[a].values) + ",\"hint\":" + std::to_string(f.axes[a].hint) + "}";
  for (size_t p = 0; p < f.points.size(); p++) {
    std::string dims;
    for (size_t a = 0; a < f.axes.size(); a++) dims += (a ? "," : "") + json_string(f.axes[a].name) + ":" + std::to_string(f.values[p][a]);
    points += std::string(p ? "," : "") + "{\"dims\":{" + dims +
              "},\"workspace_bytes\":" + std::to_string(f.points[p].plan.workspace_bytes) + tensor_lists(f.points[p]) +
              kernel_list(f.points[p].kernels) + "}";
  }
  return out + "]" + tensor_lists(f.hinted()) + kernel_list(f.hinted().kernels) + ",\"points\":[" + points + "]}";
}

}  // namespace mirage
