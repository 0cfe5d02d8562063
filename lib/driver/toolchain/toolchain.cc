// Finding nvcc and its library, building results with it, and reading what ptxas says.
#include "driver/toolchain/toolchain.h"
#include <cstdlib>
#include <cxxabi.h>
#include <dlfcn.h>
#include <filesystem>
#include <sstream>
#include <unistd.h>
#include "mirage/codegen/module.h"
#include "mirage/support/file.h"
#include "mirage/support/warden.h"

namespace mirage {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_executable(const fs::path& p) {
  std::error_code error;
  return fs::is_regular_file(p, error) && access(p.c_str(), X_OK) == 0;
}

std::string find_on_path(const std::string& program) {
  std::istringstream folders(environment("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path p = fs::path(folder.empty() ? "." : folder) / program;
    if (is_executable(p)) return p.string();
  }
  return "";
}

/// Toolkit folders, the most wanted first: of the nvcc on PATH, then the environment's, then the usual place.
std::vector<std::string> toolkit_roots(const std::string& nvcc_on_path) {
  std::vector<std::string> roots;
  std::error_code error;
  if (!nvcc_on_path.empty()) {
    const fs::path real = fs::canonical(nvcc_on_path, error);   // /usr/local/bin/nvcc is often a link
    if (!error) roots.push_back(real.parent_path().parent_path().string());
  }
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const std::string root = environment(name); !root.empty()) roots.push_back(root);
  roots.emplace_back("/usr/local/cuda");
  return roots;
}

std::string find_include_dir(const std::vector<std::string>& roots) {
  std::error_code error;
  for (const std::string& root : roots)
    for (const char* sub : {"include", "targets/x86_64-linux/include", "targets/sbsa-linux/include"})
      if (fs::exists(fs::path(root) / sub / "cuda_fp16.h", error)) return (fs::path(root) / sub).string();
  if (fs::exists("/usr/include/cuda_fp16.h", error)) return "/usr/include";   // Debian's nvidia-cuda-toolkit
  return "";
}

std::string find_nvrtc(const std::vector<std::string>& roots) {
  std::vector<std::string> candidates;
  for (const char* file : {"libnvrtc.so.13", "libnvrtc.so.12"}) {
    for (const std::string& root : roots)
      for (const char* sub : {"lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib", "lib"})
        candidates.push_back((fs::path(root) / sub / file).string());
    candidates.emplace_back(file);
  }
  std::error_code error;
  for (const std::string& c : candidates) {
    if (c[0] == '/' && !fs::exists(c, error)) continue;
    if (dlopen(c.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) return c;   // stays open: compile_with_nvrtc finds it again
  }
  return "";
}

Diagnostic diagnostic(DiagCode code, std::string text, const std::string& log = "") {
  Diagnostic d;
  d.code = code;
  d.text = std::move(text);
  constexpr size_t kMaxNotes = 40;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line) && d.notes.size() < kMaxNotes;)
    if (!line.empty() && line.find("ptxas info") == std::string::npos && line.find("spill stores") == std::string::npos)
      d.notes.push_back({{}, line});
  return d;
}

Diagnostic missing_nvcc() {
  return diagnostic(DiagCode::kToolMissing, "nvcc was not found on PATH, in CUDA_HOME, CUDA_PATH or /usr/local/cuda");
}

Result<Compiled> run_nvcc(const Toolchain& tools, std::vector<std::string> arguments, const std::string& folder,
                          const ProcessLimits& limits, const std::string& what) {
  if (!tools.has_nvcc()) return missing_nvcc();
  arguments.insert(arguments.begin(), tools.nvcc);
  const ProcessResult r = run_process(arguments, folder, limits);
  if (!r.started) return diagnostic(DiagCode::kToolFailed, r.output);
  if (r.timed_out)
    return diagnostic(DiagCode::kToolFailed,
                      "nvcc did not finish " + what + " within " + std::to_string(static_cast<int>(limits.timeout_s)) + " s", r.output);
  if (!r.ok() && r.output.find("No space left on device") != std::string::npos)
    return diagnostic(DiagCode::kFileUnwritable, "the disk is full: nvcc could not write " + what + ": No space left on device");
  const auto says = [&](const char* words) { return r.output.find(words) != std::string::npos; };
  if (!r.ok() && (says("cublasLt.h: No such file") || says("cannot find -lcublasLt")))
    return diagnostic(DiagCode::kToolFailed,
                      "nvcc could not build " + what + ": cublasLt.h or libcublasLt is not beside nvcc: install cuBLAS (libcublas-dev of "
                      "the same CUDA version), or leave --allow-cublas out",
                      r.output);
  if (r.interrupted) return diagnostic(DiagCode::kToolFailed, "nvcc was interrupted while building " + what, r.output);
  if (!r.ok())
    return diagnostic(DiagCode::kToolFailed,
                      "nvcc failed to build " + what + (r.signal ? " (signal " + std::to_string(r.signal) + ")" : ""), r.output);
  return Compiled{"", r.output, parse_ptxas(r.output)};
}

/// "_ZN6mirage5map_0EPKv" -> "map_0".
std::string kernel_name(const std::string& symbol) {
  int status = 0;
  char* text = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
  std::string out = status == 0 && text != nullptr ? text : symbol;
  std::free(text);
  for (size_t open; (open = out.find("(anonymous namespace)::")) != std::string::npos;) out.erase(open, 23);
  const size_t parameters = out.find('(');
  if (parameters != std::string::npos) out.resize(parameters);
  const size_t template_arguments = out.find('<');
  const size_t colon = out.rfind("::", template_arguments);
  out = colon == std::string::npos ? out : out.substr(colon + 2);
  const size_t space = out.rfind(' ', out.find('<'));   // a template's result type stands in front
  return space == std::string::npos ? out : out.substr(space + 1);
}

std::string between(const std::string& s, const char* open, const char* close) {
  const size_t a = s.find(open);
  if (a == std::string::npos) return "";
  const size_t from = a + std::string(open).size();
  const size_t b = s.find(close, from);
  return b == std::string::npos ? "" : s.substr(from, b - from);
}

/// The number before `unit`: number_before("Used 32 registers, 24 bytes smem", " bytes smem") is 24. 0 if it is not there.
int64_t number_before(const std::string& line, const std::string& unit) {
  const size_t end = line.find(unit);
  if (end == std::string::npos) return 0;
  size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') begin--;
  return begin == end ? 0 : std::strtoll(line.substr(begin, end - begin).c_str(), nullptr, 10);
}

}  // namespace

Toolchain find_toolchain() {
  Toolchain t;
  const std::string on_path = find_on_path("nvcc");
  const std::vector<std::string> roots = toolkit_roots(on_path);
  t.nvcc = on_path;
  for (const std::string& root : roots)
    if (const fs::path p = fs::path(root) / "bin" / "nvcc"; t.nvcc.empty() && is_executable(p)) t.nvcc = p.string();
  std::error_code error;
  if (!t.nvcc.empty())
    if (const fs::path whole = fs::absolute(t.nvcc, error); !error) t.nvcc = whole.string();   // it runs in other folders
  t.include_dir = find_include_dir(roots);
  t.nvrtc = find_nvrtc(roots);
  return t;
}

PtxasReport parse_ptxas(const std::string& log) {
  PtxasReport report;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("(C75") != std::string::npos) report.advisories.push_back(line);
    if (line.find("Compiling entry function") != std::string::npos) {
      report.kernels.emplace_back();
      report.kernels.back().name = kernel_name(between(line, "function '", "'"));
    }
    if (report.kernels.empty()) continue;
    KernelResources& k = report.kernels.back();   // functions that were not inlined into it are counted with it
    if (line.find(" bytes spill stores") != std::string::npos) {
      k.stack_bytes += number_before(line, " bytes stack frame");
      k.spill_store_bytes += number_before(line, " bytes spill stores");
      k.spill_load_bytes += number_before(line, " bytes spill loads");
    }
    if (line.find("Used ") != std::string::npos && line.find(" registers") != std::string::npos) {
      k.registers = static_cast<int>(number_before(line, " registers"));
      k.static_smem_bytes = number_before(line, " bytes smem");
    }
  }
  return report;
}

namespace {

bool has_cublas(const std::string& file) {
  const auto text = read_file(file);
  return text && mentions_cublas(*text);
}

}  // namespace

Result<Compiled> build_library(const Toolchain& tools, const std::string& name, const Target& target, const std::string& folder,
                               const ProcessLimits& limits) {
  const std::string file = "lib" + name + ".so";
  const bool links_cublas = has_cublas(folder + "/" + name + ".cu");
  Result<Compiled> r = run_nvcc(tools, nvcc_library_arguments(name, target, links_cublas), folder, limits, file);
  if (!r) return r;
  const auto bytes = read_file(folder + "/" + file);   // a wrapper may end well and leave nothing
  if (!bytes || !bytes->starts_with("\177ELF"))
    return diagnostic(DiagCode::kToolFailed, "nvcc ended without an error and left no library " + file, r->log);
  return r;
}

Result<Compiled> build_check(const Toolchain& tools, const std::string& name, const Target& target, const std::string& folder,
                             const ProcessLimits& limits) {
  const bool links_cublas = has_cublas(folder + "/" + name + ".h");
  return run_nvcc(tools, nvcc_check_arguments(name, target, links_cublas), folder, limits, name + "_check");
}

Result<Compiled> compile_with_nvcc(const Toolchain& tools, const std::string& text, const Target& target, DeviceCode kind,
                                   const ProcessLimits& limits) {
  if (!tools.has_nvcc()) return missing_nvcc();
  const TemporaryFolder folder;
  if (folder.path().empty()) return diagnostic(DiagCode::kFileUnwritable, "cannot make a temporary folder");
  const bool cubin = kind == DeviceCode::kCubin;
  if (Diagnostics bad = write_file(folder.path() + "/kernel.cu", text); !bad.empty()) return bad;
  const std::string arch = cubin ? target.nvrtc_arch : "compute_" + target.nvrtc_arch.substr(target.nvrtc_arch.find('_') + 1);
  std::vector<std::string> arguments = {"-O3", "-std=c++17", cubin ? "-cubin" : "-ptx", "-arch=" + arch, "-o", "kernel.out", "kernel.cu"};
  if (cubin) arguments.insert(arguments.begin(), {"-Xptxas", "-v"});
  Result<Compiled> r = run_nvcc(tools, arguments, folder.path(), limits, cubin ? "a cubin" : "PTX");
  if (!r) return r;
  Result<std::string> bytes = read_file(folder.path() + "/kernel.out");
  if (!bytes) return diagnostic(DiagCode::kToolFailed, "nvcc left no output", r->log);
  r->bytes = std::move(*bytes);
  return r;
}

}  // namespace mirage
