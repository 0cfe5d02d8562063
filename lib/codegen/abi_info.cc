// What NAME_info_json returns: a description of the library for programs that load it without its header.
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
  return "{\"name\":" + json_string(t.info->name) + ",\"c_name\":" + json_string(t.c_name) + ",\"dtype\":" + json_string(dtype_long_name(t.info->type.dtype)) + ",\"shape\":" +
         list(t.info->type.dims) + ",\"strides\":" + list(t.info->strides) + ",\"span_bytes\":" + std::to_string(t.span_bytes()) + "}";
}

}  // namespace

std::string emit_info_json(const ModuleFacts& f) {
  std::string out = "{\"schema\":1,\"name\":" + json_string(f.name) + ",\"program\":" + json_string(f.program.name) + ",\"tool\":\"mirage-opt\",\"version\":" + json_string(f.options.version) +
                    ",\"spec_id\":" + json_string(f.spec_id) + ",\"target\":" + json_string(f.target.name) + ",\"abi_version\":1,\"workspace_bytes\":" + std::to_string(f.plan.workspace_bytes);
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
  out += ",\"kernels\":[";
  for (size_t i = 0; i < f.kernels.size(); i++) {
    const KernelText& k = f.kernels[i];
    out += std::string(i ? "," : "") + "{\"name\":" + json_string(k.name) + ",\"grid\":[" + std::to_string(k.grid[0]) + "," + std::to_string(k.grid[1]) + "," + std::to_string(k.grid[2]) +
           "],\"threads\":" + std::to_string(k.threads) + ",\"smem_bytes\":" + std::to_string(k.smem_bytes) + "}";
  }
  return out + "]}";
}

}  // namespace mirage
