// NAME_check.cu: the stand-alone program that compares a library with the fp64 reference on a GPU and times it. Here are the tables that
// depend on the program; the fixed text is in check_harness.cc, the reference's kernels in reference.cc.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include "codegen/module_parts.h"
#include "codegen/names.h"

namespace mirage {
namespace {

std::string number(double x) {
  if (!std::isfinite(x)) return std::isnan(x) ? "NAN" : x < 0 ? "-HUGE_VAL" : "HUGE_VAL";
  char b[40];
  std::snprintf(b, sizeof b, "%.17g", x);
  std::string s = b;
  return s.find_first_of(".e") == std::string::npos ? s + ".0" : s;
}

std::string c_list(const Dims& d) {
  std::string out;
  for (int64_t x : d) out += (out.empty() ? "" : ", ") + std::to_string(x) + "LL";
  return "{" + (d.rank() == 0 ? std::string("0") : out) + "}";
}

/// How an input is drawn so that the program's values stay ordinary: see Draw in the harness.
struct Distribution { bool positive = false; double scale = 0.5; };

/// Follows `v` back through views, casts, repeats and, if `shift`, additions of constants, to an input; -1 if something else is in between.
int source_input(const Graph& g, ValueId v, bool shift) {
  for (;;) {
    const Node& node = g.def(v);
    if (const Input* in = std::get_if<Input>(&node.op)) return in->param;
    const Map* map = std::get_if<Map>(&node.op);
    const bool cast = map != nullptr && (map->fn == MapFn::kCastF16 || map->fn == MapFn::kCastBF16 || map->fn == MapFn::kCastF32);
    const bool adds = map != nullptr && shift && map->fn == MapFn::kAdd;
    if (is_view(node.op) || std::holds_alternative<Repeat>(node.op) || cast) {
      v = node.operands[0];
    } else if (adds && std::holds_alternative<Const>(g.def(node.operands[1]).op)) {
      v = node.operands[0];
    } else if (adds && std::holds_alternative<Const>(g.def(node.operands[0]).op)) {
      v = node.operands[1];
    } else {
      return -1;
    }
  }
}

std::vector<Distribution> distributions(const Program& p) {
  std::vector<Distribution> out(p.inputs.size());
  const Graph& g = p.graph;
  const auto positive = [&](ValueId v) { if (const int i = source_input(g, v, true); i >= 0) out[static_cast<size_t>(i)].positive = true; };
  for (const Node& node : g.nodes()) {
    if (std::holds_alternative<MatMul>(node.op)) {   // right operands as weights: sums over the fan-in keep the size of the left operand
      const int i = source_input(g, node.operands[1], false);
      if (i >= 0) out[static_cast<size_t>(i)].scale = 1.0 / std::sqrt(static_cast<double>(g.dims(node.operands[0]).back()));
    } else if (const Map* m = std::get_if<Map>(&node.op)) {   // roots, logarithms, bases and divisors of ordinary size
      if (m->fn == MapFn::kSqrt || m->fn == MapFn::kRsqrt || m->fn == MapFn::kLog || m->fn == MapFn::kLog1p || m->fn == MapFn::kPow)
        positive(node.operands[0]);
      if (m->fn == MapFn::kDiv) positive(node.operands[1]);
    }
  }
  return out;
}

}  // namespace

std::string check_tensor_rows(const ModuleFacts& f) {
  const std::vector<Distribution> draws = distributions(f.program);
  std::string out;
  for (size_t i = 0; i < f.tensors.size(); i++) {
    const AbiTensor& t = f.tensors[i];
    const Type& type = t.info->type;
    const int dtype = type.dtype == DType::kF16    ? 0
                      : type.dtype == DType::kBF16 ? 1
                      : type.dtype == DType::kBool ? 3
                      : type.dtype == DType::kI32  ? 4
                      : type.dtype == DType::kI64  ? 5
                                                   : 2;
    const Distribution d = t.is_output ? Distribution{} : draws[i];
    const bool ranged = !t.is_output && t.info->range.has_value();
    out += "    {" + c_literal(t.info->name) + ", " + std::to_string(dtype) + ", " + std::to_string(dtype_bytes(type.dtype)) + ", " +
           std::to_string(type.dims.elements()) + "LL, " + std::to_string(t.span_bytes()) + "LL, {" + std::to_string(type.dims.rank()) +
           ", " + c_list(type.dims) + ", " + c_list(t.info->strides) + "}, " +
           (ranged       ? "1"
            : d.positive ? "2"
                         : "0") +
           ", " + number(d.scale) + ", " + number(ranged ? t.info->range->first : 0.0) + ", " +
           number(ranged ? t.info->range->second : 0.0) + "},\n";
  }
  return out;
}

namespace {

bool has_16_bit(const Program& p) {
  const auto is_16 = [](const TensorInfo& t) { return is16(t.type.dtype); };
  return std::any_of(p.inputs.begin(), p.inputs.end(), is_16) || std::any_of(p.outputs.begin(), p.outputs.end(), is_16) ||
         std::any_of(p.graph.nodes().begin(), p.graph.nodes().end(), [](const Node& n) {
           const Map* m = std::get_if<Map>(&n.op);
           return m != nullptr && (m->fn == MapFn::kCastF16 || m->fn == MapFn::kCastBF16);
         });
}

constexpr const char* kTop =
    R"~(// @NAME@_check.cu: compares lib@NAME@.so with an fp64 reference that is computed here, naively, on the same GPU, and times it. Generated by mirage-opt (spec id @SPEC@);
// free of licence conditions. Build and run: make check
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>
#include <dlfcn.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include "@NAME@.h"

static const char* const kName = "@NAME@";
constexpr int kNumInputs = @INPUTS@, kNumTensors = @TENSORS@, kNumValues = @VALUES@;
constexpr double kRelativeTolerance = @RTOL@, kAbsoluteTolerance = @ATOL@;   // of an output's Frobenius norm; of an element, where the spec allows one (-1: it does not)
)~";

constexpr const char* kLibrary = R"~(// The library that is called: the linked one, or that of --against.
struct Library {
  decltype(&@NAME@_workspace_size) workspace_size = @NAME@_workspace_size;
  decltype(&@NAME@_workspace_init) workspace_init = @NAME@_workspace_init;
  decltype(&@NAME@_launch) launch = @NAME@_launch;
};
static Library g_library;
static bool open_library(const char* file, Library& out) {
#ifdef RTLD_DEEPBIND
  const int own = RTLD_DEEPBIND;   // its functions call each other, not the linked library's of the same names
#else
  const int own = 0;
#endif
  void* const so = dlopen(file, RTLD_NOW | RTLD_LOCAL | own);
  if (so == nullptr) return false;
  out.workspace_size = reinterpret_cast<decltype(out.workspace_size)>(dlsym(so, "@NAME@_workspace_size"));
  out.workspace_init = reinterpret_cast<decltype(out.workspace_init)>(dlsym(so, "@NAME@_workspace_init"));
  out.launch = reinterpret_cast<decltype(out.launch)>(dlsym(so, "@NAME@_launch"));
  return out.workspace_size && out.workspace_init && out.launch;
}
)~";

constexpr const char* kCalls = R"~(
static const Tensor kTensors[] = {
@ROWS@};
@LIBRARY@static const char* status_string(int code) { return @NAME@_status_string(code); }
static int supported(int device) { return @NAME@_supported(device, nullptr); }
static int workspace_size(size_t* bytes) { return g_library.workspace_size(nullptr, bytes); }
static int workspace_init(void* workspace, size_t bytes, cudaStream_t stream) { return g_library.workspace_init(workspace, bytes, stream); }
@LAUNCH@)~";

}  // namespace

std::string check_library(const ModuleFacts& f) { return expand(kLibrary, {{"NAME", f.name}}); }

std::string check_top(const ModuleFacts& f, int num_values) {
  const double rtol = f.program.numerics.rtol.value_or(has_16_bit(f.program) || f.program.numerics.tf32 ? 5e-3 : 1e-5);
  const double atol = f.program.numerics.atol.value_or(-1.0);
  return expand(kTop, {{"NAME", f.name}, {"SPEC", f.spec_id}, {"INPUTS", std::to_string(f.num_inputs())},
                       {"TENSORS", std::to_string(f.num_tensors())}, {"VALUES", std::to_string(std::max(1, num_values))},
                       {"RTOL", number(rtol)}, {"ATOL", number(atol)}});
}

CheckCall check_call(const ModuleFacts& f, const std::string& point) {
  CheckCall out;
  std::string reads;
  for (size_t i = 0; i < f.tensors.size(); i++) {
    const std::string n = std::to_string(i), value = "v" + n;
    const DType t = f.tensors[i].info->type.dtype;
    out.arguments += (f.tensors[i].by_value() ? value : "t[" + n + "]") + ", ";
    if (!f.tensors[i].by_value()) continue;
    const std::string own = t == DType::kF16 ? "__half" : t == DType::kBF16 ? "__nv_bfloat16" : c_value_type(t);
    const std::string from = t == DType::kF16 ? "__half2float" : t == DType::kBF16 ? "__bfloat162float" : "";
    out.before += "  static " + std::string(c_value_type(t)) + " " + value + " = 0;\n";
    reads += "    " + own + " own" + n + ";\n    cuda(cudaMemcpy(&own" + n + ", t[" + n + "], sizeof own" + n +
             ", cudaMemcpyDeviceToHost), \"a value\");\n    " + value + " = " + from + "(own" + n + ");\n";
  }
  // values were drawn on the device; the first launch of a point fetches them, no later one, so that launches can be captured
  if (reads.empty()) return out;
  out.before =
      "  static int known = -1;\n" + out.before + "  if (known != " + point + ") {\n" + reads + "    known = " + point + ";\n  }\n";
  return out;
}

std::string emit_check(const ModuleFacts& f) {
  const ReferenceText reference = emit_reference(f.program);
  const CheckCall call = check_call(f, "0");
  return check_top(f, reference.num_values) + check_harness(HarnessPart::kDevice) + "\n// ---- the program, one struct per value\n" +
         reference.definitions +
         expand(kCalls, {{"NAME", f.name}, {"ROWS", check_tensor_rows(f)}, {"LIBRARY", check_library(f)},
                         {"LAUNCH", call.definition("nullptr")}}) +
         check_harness(HarnessPart::kHost) + check_harness(HarnessPart::kMain) + check_harness(HarnessPart::kRun) +
         check_harness(HarnessPart::kVerdict) + "\nstatic void run_reference() {\n  unused(define, release);\n" + reference.run + "}\n";
}

}  // namespace mirage
