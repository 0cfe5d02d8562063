// emulation_gate: see the header.
#include "driver/gate.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "driver/emulation.h"
#include "driver/emulation_library.h"
#include "driver/reduce.h"

namespace mirage {

namespace {

namespace fs = std::filesystem;

constexpr size_t kSeeds = 4;                 ///< in the field, over all shapes
constexpr double kMaxSeconds = 30;           ///< of one run; slower ones have no verdict
constexpr double kSmallWork = 2e7;           ///< multiplications that are emulated without reducing the shape
constexpr double kMaxWork = 2e9;             ///< floating point operations of one run: some seconds, of eight of which a verdict is made
constexpr double kMaxElements = 1e8;         ///< of all values together: some 24 bytes each while they are emulated

std::string shapes(const Program& p) {
  std::string out;
  for (const TensorInfo& t : p.inputs) out += (out.empty() ? "" : " ") + to_string(t.type.dims);
  return out;
}

/// Why a shape is not emulated: not reduced, or with dimensions that keep their extents, it may be any size. Empty: it is.
std::string too_large(const Program& p, const Plan& plan) {
  double work = 0, elements = 0;
  for (const KernelPlan& k : plan.kernels) work += k.flops;
  for (ValueId v = 0; v < p.graph.num_values(); v++) elements += static_cast<double>(p.graph.dims(v).elements());
  if (elements > kMaxElements) return fmt::format("it takes too much memory at {}", shapes(p));
  return work > kMaxWork ? fmt::format("it takes too long at {}", shapes(p)) : "";
}

EmulationCase case_of(const Program& program, const Plan& plan, const Target& target, const std::string& prefix) {
  std::vector<KernelText> kernels;
  for (const KernelPlan& k : plan.kernels) kernels.push_back(emit_kernel(k, plan, target));
  return make_emulation_case(program, plan, kernels, prefix);
}

/// Every case in every mode. `loaded`: false if the library cannot be used. What cannot run has no verdict.
GateResult run_all(const std::vector<EmulationCase>& cases, const std::string& library, const std::string& at, uint64_t seed, bool& loaded) {
  using Kind = GateResult::Kind;
  EmulateOptions options;
  options.seconds = kMaxSeconds;
  std::string how = "field and floats";
  int64_t left_out = 0;
  const size_t each = kSeeds / cases.size();
  for (size_t i = 0; i < cases.size(); i++) {
    const EmulationCase& c = cases[i];
    bool carried = true, judged = false;
    const auto run = [&](EmulationMode mode, uint64_t s) -> std::optional<GateResult> {
      const EmulationOutcome o = run_emulation(c, library, mode, s, options);
      if (mode == EmulationMode::kField && o.ok && (!o.carried || o.undefined)) carried = false;
      if (mode != EmulationMode::kField) judged = judged || o.compared > 0, left_out += o.left_out;
      if (o.ok) return std::nullopt;
      loaded = o.loaded;
      if (!o.ran) return GateResult{Kind::kNotRun, "not emulated: " + o.reason};
      if (!o.findings.empty() && o.findings.front().kind == "too slow") return GateResult{Kind::kNotRun, "not emulated: it takes too long at " + shapes(c.program)};
      return GateResult{Kind::kFailed, fmt::format("emulated at {}, {} mode: {}", shapes(c.program), mode_name(mode), o.reason)};
    };
    for (size_t s = 0; s < each && carried; s++)
      if (auto r = run(EmulationMode::kField, seed + i * each + s)) return *r;
    if (auto r = run(EmulationMode::kFloat, seed)) return *r;   // what the field knows nothing of: the values of constants' exponents, infinities, rounding
    if (carried) continue;
    how = "floats and small integers";
    if (auto r = run(EmulationMode::kInteger, seed)) return *r;
    if (!judged) return {Kind::kNotRun, fmt::format("not emulated: whatever the inputs, its values leave the range of their types at {}", shapes(c.program))};
  }
  return {Kind::kPassed, fmt::format("emulated in {} at {}{}", how, at, left_out ? fmt::format("; {} elements that leave the range of their types were not compared in floats", left_out) : "")};
}

}  // namespace

std::string emulation_cache() {
  // What is in the folder is loaded: only one that is ours, and that nobody else may write, will do.
  const auto usable = [](const fs::path& p) {
    struct stat info {};
    mkdir(p.c_str(), 0700);
    return lstat(p.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && is_ours_alone(info) && access(p.c_str(), W_OK) == 0;
  };
  const auto variable = [](const char* name) { const char* v = std::getenv(name); return std::string(v ? v : ""); };
  const std::string own = fmt::format("mirage-opt-{}", getuid());   // in a folder that several people share each has one of these
  std::error_code error;
  for (const auto& [name, below] : {std::pair("MIRAGE_CACHE", ""), std::pair("XDG_CACHE_HOME", "mirage-opt"), std::pair("HOME", ".cache/mirage-opt")}) {
    if (variable(name).empty()) continue;
    fs::path p = (fs::path(variable(name)) / below).lexically_normal();
    if (!p.has_filename()) p = p.parent_path();
    fs::create_directories(p.parent_path(), error);
    mkdir(p.c_str(), 0700);
    if (const fs::path real = fs::canonical(p, error); !error) p = real;   // a link to a folder of ours is one
    if (usable(p)) return p.string();
    if (usable(p / own)) return (p / own).string();
  }
  const fs::path temporary = fs::temp_directory_path(error) / own;   // everybody may make a folder of this name there
  return usable(temporary) ? temporary.string() : "";
}

std::string gate_key(const Program& program, const Plan& plan, const Target& target) {
  std::string out = print(plan.graph, program.name) + print(plan);
  for (const KernelPlan& k : plan.kernels) out += emit_kernel(k, plan, target).source;
  return out;
}

GateResult emulation_gate(const Program& program, const Plan& plan, const Target& target, const std::string& compiler, uint64_t seed) {
  if (compiler.empty()) return {GateResult::Kind::kNotRun, "not emulated: there is no C++ compiler on this machine (CXX, g++, clang++)"};
  const std::string folder = emulation_cache();
  if (folder.empty()) return {GateResult::Kind::kNotRun, "not emulated: no folder for compiled emulations can be written"};
  std::vector<EmulationCase> cases;
  std::string refusal, at;
  for (bool tails : {false, true}) {
    const Reduced r = reduce_plan(program, plan, target, tails);
    if (!r.plan) { refusal = "no reduced shape (" + r.refusal + ")"; continue; }
    if (const std::string why = too_large(*r.program, *r.plan); !why.empty()) { refusal = why; continue; }
    if (!cases.empty() && shapes(*r.program) == shapes(cases.back().program)) continue;
    cases.push_back(case_of(*r.program, *r.plan, target, fmt::format("r{}_", cases.size())));
    at += (at.empty() ? "" : " and ") + shapes(*r.program);
  }
  if (cases.empty()) {
    double work = 0;
    for (const KernelPlan& k : plan.kernels) work += k.flops + static_cast<double>(k.bytes);
    if (work > kSmallWork || !too_large(program, plan).empty()) return {GateResult::Kind::kNotRun, "not emulated: " + refusal + ", and the shape itself is large"};
    cases.push_back(case_of(program, plan, target, "r0_"));
    at = shapes(program);
  }
  std::vector<const EmulationCase*> all;
  for (const EmulationCase& c : cases) all.push_back(&c);
  prune_libraries(folder);
  ProcessLimits limits;
  limits.timeout_s = 120;
  std::error_code error;
  EmulationLibrary library = build_emulation(all, compiler, folder, limits);
  if (!library.error.empty()) return {GateResult::Kind::kNotRun, "not emulated: " + library.error};
  bool loaded = true;
  GateResult result = run_all(cases, library.path, at, seed, loaded);
  if (loaded || !library.was_there) return result;
  fs::remove(library.path, error);   // it cannot be loaded (made for another libc, perhaps): made anew, once
  library = build_emulation(all, compiler, folder, limits);
  if (!library.error.empty()) return {GateResult::Kind::kNotRun, "not emulated: " + library.error};
  return run_all(cases, library.path, at, seed, loaded);
}

}  // namespace mirage
