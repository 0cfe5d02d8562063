// The build stage. Everything here depends on tools that may be missing: what was asked for by name is then an error, the rest a remark in
// the report.
#include "driver/toolchain/build.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "driver/evidence/cache_folder.h"
#include "mirage/spec/json_text.h"

namespace mirage {

namespace {

constexpr size_t kMostLookedAt = 256 << 10;              ///< bytes of all kernels' texts that are compiled to see what registers they take
constexpr double kLookSeconds = 30;                      ///< for that
constexpr int64_t kCompilerMemory = int64_t{24} << 30;   ///< of one process of a compiler: a runaway must not take the machine

/// What nvcc adds to its command line by itself, a line per variable: libraries and facts depend on it.
std::string nvcc_environment() {
  std::string out;
  for (const char* name : {"NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN"})
    if (const char* value = std::getenv(name)) out += "\n" + std::string(name) + "=" + value;
  return out;
}

class Builds {
 public:
  Builds(const CudaModule& module, const Target& target, const Options& o, const std::set<Emit>& wanted, OutputFolder& folder,
         const Toolchain& tools, const std::atomic<bool>* interrupted)
      : module_(module), target_(target), o_(o), wanted_(wanted), folder_(folder), tools_(tools) {
    limits_.interrupted = interrupted;
    limits_.timeout_s = o.tool_timeout;
    limits_.max_memory = kCompilerMemory;
  }

  Built run() {
    if (!is_interrupted()) build();
    if (is_interrupted()) out_.not_done.push_back("nothing was compiled: interrupted");
    return std::move(out_);
  }

 private:
  void build() {
    read_resources();
    device_code(Emit::kPtx, DeviceCode::kPtx, module_.name + ".ptx");
    device_code(Emit::kCubin, DeviceCode::kCubin, module_.name + ".cubin");
    if (o_.measure || wanted_.contains(Emit::kSo)) library();
    if (o_.measure && out_.errors.empty()) measure();
  }

  const std::string& cu() const { return module_.files.at(module_.name + ".cu"); }

  bool is_interrupted() const { return limits_.interrupted && limits_.interrupted->load(); }

  void fail(const Diagnostics& errors) {
    if (is_interrupted()) return;   // the tool was killed by us
    for (const Diagnostic& d : errors) {
      out_.errors.push_back(d);
      out_.exit = more_severe(out_.exit, exit_code_of(d.code));
    }
  }

  /// Registers and spills, from NVRTC where it is there (fast), else from nvcc. Only said, never decided upon: results must not depend on
  /// which CUDA is installed.
  void read_resources() {
    if (!tools_.has_nvrtc() && !tools_.has_nvcc()) {
      out_.not_done.push_back("registers and spills are not known: there is neither NVRTC nor nvcc");
      return;
    }
    if (!wanted_.contains(Emit::kReport) && !wanted_.contains(Emit::kHtml) && o_.report.empty()) return;
    if (const size_t bytes = cu().size() - std::min(cu().size(), cu().find("// ======== kernels ========")); bytes > kMostLookedAt) {
      out_.not_done.push_back(
          fmt::format("registers and spills are not known: the kernels' texts have {} kB, and at most {} are compiled to see", bytes >> 10,
                      kMostLookedAt >> 10));
      return;
    }
    const std::string key =
        content_key(cu() + "\n" + target_.nvrtc_arch + "\n" + (tools_.has_nvrtc() ? tools_.nvrtc : nvcc_environment()) + "\n" + compiler());
    if (const auto known = from_cache(o_, "facts", key)) {
      if (const auto report = read_facts(*known)) return use_resources(*report);
    }
    ProcessLimits look = limits_;
    look.timeout_s = std::min(look.timeout_s, kLookSeconds);
    Result<Compiled> c = tools_.has_nvrtc() ? compile_with_nvrtc_apart(tools_, cu(), target_, DeviceCode::kCubin, look)
                                            : compile_with_nvcc(tools_, cu(), target_, DeviceCode::kCubin, look);
    // an NVRTC older than the target
    if (!c && tools_.has_nvrtc() && tools_.has_nvcc() && !c.errors()[0].text.ends_with(" s"))
      c = compile_with_nvcc(tools_, cu(), target_, DeviceCode::kCubin, look);
    if (!c && look.timeout_s < limits_.timeout_s && c.errors()[0].text.ends_with(" s")) {
      out_.not_done.push_back("registers and spills are not known: " + c.errors()[0].text);
      return;
    }
    if (!c) return fail(c.errors());
    put_into_cache(o_, "facts", key, facts_text(c->ptxas));
    use_resources(c->ptxas);
  }

  void use_resources(const PtxasReport& ptxas) {
    for (const KernelResources& k : ptxas.kernels) {
      out_.facts[k.name] = {k.registers, k.spill_store_bytes + k.spill_load_bytes, k.static_smem_bytes};
      if (k.spills())
        out_.not_done.push_back(
            fmt::format("kernel {} spills registers: {} bytes stored, {} bytes loaded", k.name, k.spill_store_bytes, k.spill_load_bytes));
    }
    for (const std::string& a : ptxas.advisories) out_.not_done.push_back("ptxas: " + a);
  }

  /// Asked once: it is a process.
  const std::string& compiler() {
    if (!compiler_) compiler_ = compiler_version(tools_);
    return *compiler_;
  }

  static std::string facts_text(const PtxasReport& r) {
    nlohmann::ordered_json kernels = nlohmann::ordered_json::array();
    for (const KernelResources& k : r.kernels)
      kernels.push_back({k.name, k.registers, k.stack_bytes, k.spill_store_bytes, k.spill_load_bytes, k.static_smem_bytes});
    return nlohmann::ordered_json{{"kernels", kernels}, {"advisories", r.advisories}}.dump(
        -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }

  static std::optional<PtxasReport> read_facts(const std::string& text) {
    try {
      const auto j = read_json_text(text, "", DiagCode::kToolFailed);
      if (!j) return std::nullopt;
      PtxasReport r;
      for (const auto& k : j->at("kernels")) r.kernels.push_back({k.at(0), k.at(1), k.at(2), k.at(3), k.at(4), k.at(5)});
      r.advisories = j->at("advisories").get<std::vector<std::string>>();
      return r;
    } catch (const std::exception&) {   // another form: as if it were not there
      return std::nullopt;
    }
  }

  void device_code(Emit kind, DeviceCode code, const std::string& file) {
    if (!wanted_.contains(kind)) return;
    const auto is_product = [](const KernelText& k) { return k.cublas != nullptr; };
    if (!module_.kernels.empty() && std::all_of(module_.kernels.begin(), module_.kernels.end(), is_product)) {
      out_.not_done.push_back(fmt::format("{} was not written: cuBLASLt computes all of it", file));
      return;
    }
    if (!tools_.has_nvrtc() && !tools_.has_nvcc()) return fail({missing(file, "neither nvcc nor NVRTC was found")});
    Result<Compiled> c = tools_.has_nvcc() ? compile_with_nvcc(tools_, cu(), target_, code, limits_)
                                           : compile_with_nvrtc_apart(tools_, cu(), target_, code, limits_);
    if (!c) return fail(c.errors());
    fail(folder_.write(file, c->bytes));
    for (const KernelText& k : module_.kernels)
      if (k.cublas) out_.not_done.push_back(fmt::format("{} has no {}: cuBLASLt computes it", file, k.name));
    if (tools_.has_nvcc()) out_.compiler = compiler();
  }

  Diagnostic missing(const std::string& file, const std::string& why) const {
    return {Severity::kError,
            DiagCode::kToolMissing,
            {},
            fmt::format("{} cannot be built: {}", file, why),
            {{{}, "install the CUDA Toolkit, put nvcc on PATH or set CUDA_HOME; every other file was written"}}};
  }

  void library() {
    const std::string file = "lib" + module_.name + ".so";
    if (!tools_.has_nvcc()) {
      const std::string why = "there is no nvcc on PATH, in CUDA_HOME, CUDA_PATH or /usr/local/cuda";
      if (is_explicit(o_, Emit::kSo) || o_.measure) fail({missing(file, why)});
      else
        out_.not_done.push_back(
            fmt::format("{} was not built: {}; build it with 'make' in the output folder where CUDA is installed", file, why));
      return;
    }
    std::string made_from = cu() + "\n" + module_.files.at(module_.name + ".map") + "\n" + compiler();
    for (const std::string& a : nvcc_library_arguments(module_.name, target_, module_.links_cublas)) made_from += "\n" + a;
    made_from += nvcc_environment();
    const std::string key = content_key(made_from), place = (std::filesystem::path(folder_.staging()) / file).string();
    // a compiler that does not say what it is may be another one
    const auto known = compiler().empty() ? std::nullopt : from_cache(o_, "lib", key);
    for (const char* suffix : {".cu", ".map", ".h", "_check.cu"})
      if (auto errors = write_file((std::filesystem::path(folder_.staging()) / (module_.name + suffix)).string(),
                                   module_.files.at(module_.name + suffix));
          !errors.empty())
        return fail(errors);
    if (known) {
      if (auto errors = write_file(place, *known, true); !errors.empty()) return fail(errors);
    } else {
      Result<Compiled> c = build_library(tools_, module_.name, target_, folder_.staging(), limits_);
      if (!c) return fail(c.errors());
      for (const std::string& a : c->ptxas.advisories) out_.not_done.push_back("ptxas: " + a);
      if (const auto bytes = read_file(place); bytes && c->ptxas.advisories.empty() && !compiler().empty())
        put_into_cache(o_, "lib", key, *bytes);
    }
    if (wanted_.contains(Emit::kSo)) {
      folder_.keep(file);
      out_.compiler = compiler();
    }
  }

  void measure() {
    if (const DetectedDevice found = detect_device(); !found.device) {
      out_.exit = more_severe(out_.exit, ExitCode::kToolchain);
      out_.errors.push_back({Severity::kError,
                             DiagCode::kToolMissing,
                             {},
                             "--measure: " + found.error,
                             {{{}, "leave --measure out, or run it on a machine with the GPU"}}});
      return;
    }
    if (Result<Compiled> c = build_check(tools_, module_.name, target_, folder_.staging(), limits_); !c) return fail(c.errors());
    ProcessLimits limits = limits_;
    limits.max_memory = 0;   // CUDA reserves address space by the hundred gigabytes
    const ProcessResult r = run_process({"./" + module_.name + "_check", "--json"}, folder_.staging(), limits);
    out_.measured = r.output;
    if (r.ok()) return;
    const std::string how = !r.started    ? r.output
                            : r.signal    ? fmt::format("it ended by signal {}", r.signal)
                            : r.timed_out ? "it did not end in time"
                                          : fmt::format("exit code {}", r.exit_code);
    // it says itself when it cannot try
    const DiagCode code =
        r.started && r.exit_code == static_cast<int>(ExitCode::kToolchain) && !r.signal ? DiagCode::kToolMissing : DiagCode::kDeviceCheck;
    out_.errors.push_back({Severity::kError, code, {}, fmt::format("{}_check: {}", module_.name, how), {{{}, r.output}}});
    out_.exit = more_severe(out_.exit, exit_code_of(code));
  }

  const CudaModule& module_;
  const Target& target_;
  const Options& o_;
  const std::set<Emit>& wanted_;
  OutputFolder& folder_;
  const Toolchain& tools_;
  ProcessLimits limits_;
  std::optional<std::string> compiler_;
  Built out_;
};

}  // namespace

std::string compiler_version(const Toolchain& tools) {
  if (!tools.has_nvcc()) return "";
  ProcessLimits limits;
  limits.timeout_s = 20;
  const ProcessResult r = run_process({tools.nvcc, "--version"}, "", limits);
  if (!r.ok()) return "";
  std::string last;   // "Build cuda_13.0.r13.0/compiler.36424714_0"
  for (size_t at = 0; at < r.output.size();) {
    const size_t end = std::min(r.output.find('\n', at), r.output.size());
    if (end > at) last = r.output.substr(at, end - at);
    at = end + 1;
  }
  return last.size() < 200 ? last : "";
}

Built build_outputs(const CudaModule& module, const Target& target, const Options& o, const std::set<Emit>& wanted, OutputFolder& folder,
                    const Toolchain& tools, const std::atomic<bool>* interrupted) {
  return Builds(module, target, o, wanted, folder, tools, interrupted).run();
}

}  // namespace mirage
