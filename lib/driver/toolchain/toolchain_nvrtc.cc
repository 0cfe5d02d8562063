// NVRTC and the NVIDIA driver through dlopen, with the few declarations that are needed: the build does not depend on CUDA's headers.
#include <cstdlib>
#include <dlfcn.h>
#include <sstream>
#include "driver/toolchain/toolchain.h"

namespace mirage {
namespace {

struct Program_;
using NvrtcProgram = Program_*;

/// The functions of libnvrtc, from nvrtc.h (12 and 13).
struct Nvrtc {
  int (*create)(NvrtcProgram*, const char* source, const char* name, int headers, const char* const* header_texts,
                const char* const* header_names) = nullptr;
  int (*destroy)(NvrtcProgram*) = nullptr;
  int (*compile)(NvrtcProgram, int options, const char* const* option) = nullptr;
  int (*log_size)(NvrtcProgram, size_t*) = nullptr;
  int (*log)(NvrtcProgram, char*) = nullptr;
  int (*cubin_size)(NvrtcProgram, size_t*) = nullptr;
  int (*cubin)(NvrtcProgram, char*) = nullptr;
  int (*ptx_size)(NvrtcProgram, size_t*) = nullptr;
  int (*ptx)(NvrtcProgram, char*) = nullptr;
  const char* (*error_string)(int) = nullptr;
};

template <class F> bool load(void* library, const char* name, F& f) {
  f = reinterpret_cast<F>(dlsym(library, name));
  return f != nullptr;
}

std::optional<Nvrtc> open_nvrtc(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::nullopt;
  Nvrtc n;
  const bool ok = load(library, "nvrtcCreateProgram", n.create) && load(library, "nvrtcDestroyProgram", n.destroy) &&
                  load(library, "nvrtcCompileProgram", n.compile) && load(library, "nvrtcGetProgramLogSize", n.log_size) &&
                  load(library, "nvrtcGetProgramLog", n.log) && load(library, "nvrtcGetCUBINSize", n.cubin_size) &&
                  load(library, "nvrtcGetCUBIN", n.cubin) && load(library, "nvrtcGetPTXSize", n.ptx_size) &&
                  load(library, "nvrtcGetPTX", n.ptx) && load(library, "nvrtcGetErrorString", n.error_string);
  return ok ? std::optional<Nvrtc>(n) : std::nullopt;   // the library stays open
}

std::string fetch(int (*size_of)(NvrtcProgram, size_t*), int (*copy)(NvrtcProgram, char*), NvrtcProgram program) {
  size_t size = 0;
  if (size_of(program, &size) != 0 || size == 0) return "";
  std::string out(size, '\0');
  return copy(program, out.data()) == 0 ? out : "";
}

std::string without_nul(std::string s) {
  while (!s.empty() && s.back() == '\0') s.pop_back();
  return s;
}

Diagnostic failed(std::string text, const std::string& log) {
  Diagnostic d;
  d.code = DiagCode::kToolFailed;
  d.text = std::move(text);
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line) && d.notes.size() < 40;)
    if (!line.empty()) d.notes.push_back({{}, line});
  return d;
}

}  // namespace

Result<Compiled> compile_with_nvrtc(const Toolchain& tools, const std::string& text, const Target& target, DeviceCode kind) {
  if (!tools.has_nvrtc()) {
    Diagnostic d;
    d.code = DiagCode::kToolMissing;
    d.text = tools.nvrtc.empty() ? "libnvrtc.so was not found in the linker's places, beside nvcc or in /usr/local/cuda/lib64"
                                 : "the CUDA headers that NVRTC needs (cuda_fp16.h) were not found";
    return d;
  }
  const std::optional<Nvrtc> n = open_nvrtc(tools.nvrtc);
  if (!n) return failed(tools.nvrtc + " lacks a function that NVRTC 12 and later have", "");
  const bool cubin = kind == DeviceCode::kCubin;
  const std::string arch =
      "--gpu-architecture=" + (cubin ? target.nvrtc_arch : "compute_" + target.nvrtc_arch.substr(target.nvrtc_arch.find('_') + 1));
  const std::string include = "--include-path=" + tools.include_dir;
  // Lambdas inside kernels have no annotation; nvcc takes the space of the function around them, NVRTC must be told.
  std::vector<const char*> options = {arch.c_str(), include.c_str(), "--std=c++17", "--device-as-default-execution-space"};
  if (cubin) options.push_back("--ptxas-options=-v");
  NvrtcProgram program = nullptr;
  if (const int error = n->create(&program, text.c_str(), "kernel.cu", 0, nullptr, nullptr); error != 0)
    return failed(std::string("NVRTC: ") + n->error_string(error), "");
  const int error = n->compile(program, static_cast<int>(options.size()), options.data());
  Compiled out;
  out.log = without_nul(fetch(n->log_size, n->log, program));
  if (error == 0) out.bytes = cubin ? fetch(n->cubin_size, n->cubin, program) : without_nul(fetch(n->ptx_size, n->ptx, program));
  n->destroy(&program);
  if (error != 0) return failed(std::string("NVRTC rejected the code: ") + n->error_string(error), out.log);
  if (out.bytes.empty()) return failed("NVRTC gave no machine code", out.log);
  out.ptxas = parse_ptxas(out.log);
  return out;
}

Result<Compiled> compile_with_nvrtc_apart(const Toolchain& tools, const std::string& text, const Target& target, DeviceCode kind,
                                          const ProcessLimits& limits) {
  if (!tools.has_nvrtc()) return compile_with_nvrtc(tools, text, target, kind);
  // "1", the log's length, the log, the bytes; or "0" and the message's lines.
  ProcessLimits whole = limits;
  whole.max_output = size_t{1} << 30;
  const ProcessResult r = run_apart([&] {
    Result<Compiled> c = compile_with_nvrtc(tools, text, target, kind);
    if (c) return "1" + std::to_string(c->log.size()) + "\n" + c->log + c->bytes;
    std::string out = "0" + c.errors().front().text + "\n";
    for (const Note& note : c.errors().front().notes) out += note.text + "\n";
    return out;
  }, whole);
  if (!r.started) return failed("NVRTC: " + r.output, "");
  if (r.timed_out) return failed("NVRTC did not finish within " + std::to_string(static_cast<int>(limits.timeout_s)) + " s", "");
  if (r.interrupted) return failed("NVRTC was interrupted", "");
  const size_t line = r.output.find('\n');
  if (!r.ok() || line == std::string::npos)
    return failed("NVRTC ended without an answer" + (r.signal ? " (signal " + std::to_string(r.signal) + ")" : std::string()), "");
  if (r.output[0] != '1') return failed(r.output.substr(1, line - 1), r.output.substr(line + 1));
  const size_t length = static_cast<size_t>(std::strtoull(r.output.c_str() + 1, nullptr, 10));
  Compiled out;
  out.log = r.output.substr(line + 1, length);
  out.bytes = r.output.substr(std::min(r.output.size(), line + 1 + length));
  out.ptxas = parse_ptxas(out.log);
  return out;
}

DetectedDevice detect_device() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {{}, "there is no NVIDIA driver on this machine (libcuda.so.1)"};
  int (*init)(unsigned) = nullptr;
  int (*count)(int*) = nullptr;
  int (*get)(int*, int) = nullptr;
  int (*attribute)(int*, int, int) = nullptr;
  int (*name)(char*, int, int) = nullptr;
  if (!load(library, "cuInit", init) || !load(library, "cuDeviceGetCount", count) || !load(library, "cuDeviceGet", get) ||
      !load(library, "cuDeviceGetAttribute", attribute) || !load(library, "cuDeviceGetName", name))
    return {{}, "libcuda.so.1 lacks a function of the driver interface"};
  int devices = 0, device = 0;
  if (const int error = init(0); error != 0) return {{}, "the NVIDIA driver did not start (CUDA error " + std::to_string(error) + ")"};
  if (count(&devices) != 0 || devices == 0 || get(&device, 0) != 0) return {{}, "the NVIDIA driver knows no device"};
  constexpr int kMajor = 75, kMinor = 76;   // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
  NativeDevice d;
  char text[256] = "";
  if (attribute(&d.major, kMajor, device) != 0 || attribute(&d.minor, kMinor, device) != 0 || name(text, sizeof text, device) != 0)
    return {{}, "the NVIDIA driver does not describe its device"};
  d.name = text;
  return {d, ""};
}

std::optional<Target> target_for_device(int major, int minor) {
  const int capability = 10 * major + minor;
  std::optional<Target> best;
  for (const Target& t : all_targets()) {
    if (t.sm == capability) return t;
    const bool specific = t.name.ends_with('a');   // runs on its own capability only; the others carry PTX for later devices
    if (!specific && t.sm <= capability && (!best || t.sm > best->sm)) best = t;
  }
  return best;
}

std::optional<Target> target_for_device(const NativeDevice& device) {
  const std::optional<Target> by_capability = target_for_device(device.major, device.minor);
  for (const Target& t : all_machines())
    if (by_capability && t.name == by_capability->name && device.name.find(t.device) != std::string::npos) return t;
  return by_capability;
}

}  // namespace mirage
