// emulation_gate: see the header.
#include "driver/gate/gate.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "driver/emulation/emulation.h"
#include "driver/emulation/emulation_library.h"
#include "driver/gate/plan_parts.h"
#include "driver/gate/reduce.h"
#include "mirage/support/worker_pool.h"

namespace mirage {

namespace {

namespace fs = std::filesystem;
using Kind = GateResult::Kind;

constexpr size_t kSeeds = 4;                 ///< in the field, over all shapes
constexpr double kMaxSeconds = 30;           ///< of one run; slower ones have no verdict
constexpr double kSmallWork = 2e7;           ///< multiplications that are emulated without reducing the shape
constexpr double kMostFlops = 2e9;             ///< floating point operations of one run: up to 30 s, of six of which a verdict is made
constexpr double kFewFlops = 1e9;              ///< of all seeds in the field together
constexpr double kWholeFlops = 2e7;            ///< of one run of a plan that can be taken apart
constexpr double kMostBytes = 1.4e9;          ///< while they are emulated
constexpr double kElementBytes = 24;         ///< of a value: as it should be, and in the field
constexpr double kByteBytes = 21;            ///< of a byte that kernels write: itself, and who touched it (emulate/shadow.h)

std::string shapes(const Program& p) {
  std::string out;
  for (const TensorInfo& t : p.inputs) out += (out.empty() ? "" : " ") + to_string(t.type.dims);
  return out;
}

EmulationCase case_of(const Program& program, const Plan& plan, const Target& target, const std::string& prefix) {
  std::vector<KernelText> kernels;
  for (const KernelPlan& k : plan.kernels) kernels.push_back(emit_kernel(k, plan, target));
  return make_emulation_case(program, plan, kernels, prefix);
}

double flops_of(const Plan& plan) {
  double flops = 1;
  for (const KernelPlan& k : plan.kernels) flops += k.flops;
  return flops;
}

/// Bytes of memory while it is emulated.
double emulation_bytes(const Program& p, const Plan& plan) {
  double bytes = 0;
  for (ValueId v = 0; v < p.graph.num_values(); v++) bytes += kElementBytes * static_cast<double>(p.graph.dims(v).elements());
  for (const Buffer& b : plan.buffers)
    if (b.kind != Buffer::Kind::kInput) bytes += kByteBytes * static_cast<double>(b.bytes());
  return bytes;
}

/// Runs of the cases of one library: which, and what became of them.
class Runs {
 public:
  struct Run { size_t of; EmulationMode mode; uint64_t seed; };
  struct Verdict { GateResult::Kind kind = Kind::kNotRun; std::string text; bool loaded = true; };

  Runs(const std::vector<EmulationCase>& cases, const std::string& library, int jobs) : cases_(cases), library_(library) {
    options_.seconds = kMaxSeconds;
    double bytes = 1, flops = 1;
    for (const EmulationCase& c : cases) {
      bytes = std::max(bytes, emulation_bytes(c.program, c.plan));
      flops = std::max(flops, flops_of(c.plan));
    }
    // beside each other where there is room for them (also beside those of another point of a family), and where sharing a core makes none
    // of them too slow
    const double own = std::max(1.0, static_cast<double>(jobs) / ++running());
    threads_ = flops > kFewFlops ? 1 : static_cast<int>(std::clamp(kMostBytes / bytes, 1.0, own));
  }
  ~Runs() { --running(); }
  Runs(const Runs&) = delete;
  Runs& operator=(const Runs&) = delete;

  /// nullopt: all are right. Else what the first of these says that is not, in their order.
  std::optional<Verdict> run(const std::vector<Run>& runs) {
    std::vector<std::optional<EmulationOutcome>> outcomes(runs.size());
    std::atomic<size_t> failed = runs.size();   // the first of those that are not right so far
    parallel_for(threads_, static_cast<int64_t>(runs.size()), [&](int64_t n) {
      const auto i = static_cast<size_t>(n);
      if (i > failed) return;
      outcomes[i] = run_emulation(cases_[runs[i].of], library_, runs[i].mode, runs[i].seed, options_);
      if (outcomes[i]->ok) return;
      for (size_t known = failed; i < known && !failed.compare_exchange_weak(known, i);) {}
    });
    for (size_t i = 0; i < runs.size(); i++) {   // all ahead of the first that is not right have run
      if (!outcomes[i]->ok) return verdict(runs[i], *outcomes[i]);
      note(runs[i], *outcomes[i]);
    }
    return std::nullopt;
  }
  bool is_carried(size_t c) const { return !foreign_ && !undefined_.count(c); }
  bool is_judged(size_t c) const { return judged_.count(c) > 0; }
  int64_t left_out() const { return left_out_; }

 private:
  static std::atomic<int>& running() {
    static std::atomic<int> gates = 0;
    return gates;
  }
  void note(const Run& r, const EmulationOutcome& o) {
    if (r.mode != EmulationMode::kField) {
      if (o.compared > 0) judged_.insert(r.of);
      left_out_ += o.left_out;
    } else {
      foreign_ = foreign_ || !o.carried;
      if (o.undefined) undefined_.insert(r.of);
    }
  }
  Verdict verdict(const Run& r, const EmulationOutcome& o) const {
    const Program& p = cases_[r.of].program;
    if (!o.ran) return {Kind::kNotRun, "not emulated: " + o.reason, o.loaded};
    if (!o.findings.empty() && o.findings.front().kind == "too slow")
      return {Kind::kNotRun, "not emulated: it takes too long at " + shapes(p), o.loaded};
    return {Kind::kFailed, fmt::format("emulated at {}, {} mode: {}", shapes(p), mode_name(r.mode), o.reason), o.loaded};
  }
  const std::vector<EmulationCase>& cases_;
  const std::string& library_;
  EmulateOptions options_;
  int threads_ = 1;
  std::set<size_t> undefined_, judged_;
  bool foreign_ = false;   ///< the program has what the field does not know, at whatever shape
  int64_t left_out_ = 0;
};

/// Every case in every mode, with so many seeds in the field over all of them. `loaded`: false if the library cannot be used. What cannot
/// run has no verdict.
GateResult run_all(const std::vector<EmulationCase>& cases, const std::string& library, const std::string& at, uint64_t seed, size_t seeds,
                   int jobs, bool& loaded) {
  Runs all(cases, library, jobs);
  GateResult result;
  const auto fails = [&](const std::vector<Runs::Run>& runs) {
    const auto v = all.run(runs);
    if (v) result = {v->kind, v->text}, loaded = v->loaded;
    return v.has_value();
  };
  const auto seeds_of = [&](size_t c) {   // what is large has many elements to tell
    const auto affordable = static_cast<size_t>(std::min(64.0, kFewFlops / flops_of(cases[c].plan)));
    return std::clamp<size_t>(seeds / cases.size(), 1, std::max<size_t>(1, affordable));
  };
  for (size_t c = 0; c < cases.size(); c++) {
    std::vector<Runs::Run> first;
    if (all.is_carried(c)) first.push_back({c, EmulationMode::kField, seed + c * seeds_of(c)});
    // what the field knows nothing of: the values of constants' exponents, infinities, rounding
    first.push_back({c, EmulationMode::kFloat, seed});
    if (fails(first)) return result;
  }
  std::vector<Runs::Run> more, whole;
  for (size_t c = 0; c < cases.size(); c++)
    for (size_t s = 1; s < seeds_of(c) && all.is_carried(c); s++) more.push_back({c, EmulationMode::kField, seed + c * seeds_of(c) + s});
  if (fails(more)) return result;
  for (size_t c = 0; c < cases.size(); c++)
    if (!all.is_carried(c)) whole.push_back({c, EmulationMode::kInteger, seed});
  if (fails(whole)) return result;
  for (size_t c = 0; c < cases.size(); c++)
    if (!all.is_carried(c) && !all.is_judged(c))
      return {Kind::kNotRun,
              fmt::format("not emulated: whatever the inputs, its values leave the range of their types at {}", shapes(cases[c].program))};
  return {Kind::kPassed,
          fmt::format("emulated in {} at {}{}", whole.empty() ? "field and floats" : "floats and small integers", at,
                      all.left_out() ? fmt::format("; {} elements that leave the range of their types were not compared in floats",
                                                   all.left_out())
                                     : "")};
}

}  // namespace

std::string too_large_to_emulate(const Program& p, const Plan& plan, double most_flops) {
  if (emulation_bytes(p, plan) > kMostBytes) return fmt::format("it takes too much memory at {}", shapes(p));
  return flops_of(plan) > 1 + (most_flops > 0 ? most_flops : kMostFlops) ? fmt::format("it takes too long at {}", shapes(p)) : "";
}

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
  for (const auto& [name, below] :
       {std::pair("MIRAGE_CACHE", ""), std::pair("XDG_CACHE_HOME", "mirage-opt"), std::pair("HOME", ".cache/mirage-opt")}) {
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

namespace {

constexpr size_t kPartSeeds = 2;            ///< of one part
constexpr size_t kWholeKernels = 16;         ///< of a plan that is emulated as a whole, if it can be
constexpr size_t kCasesTogether = 12;        ///< of parts: in one library
struct Emulator { const Target& target; const std::string& compiler; const std::string& folder; uint64_t seed; int jobs; };

/// Builds the library of some cases and has them run by `run(library path, loaded)`.
template <class F> GateResult with_library(const std::vector<const EmulationCase*>& cases, const Emulator& e, F&& run) {
  GateResult result;
  const std::string error = with_emulation(cases, e.compiler, e.folder, UnsetFill::kPattern, [&](const std::string& path) {
    bool loaded = true;
    result = run(path, loaded);
    return loaded;
  });
  return error.empty() ? result : GateResult{Kind::kNotRun, "not emulated: " + error};
}

/// The plan as a whole at reduced shapes; with very many kernels at one of them, which has tails if any has.
GateResult gate_whole(const Program& program, const Plan& plan, const Emulator& e, double most_flops = kMostFlops) {
  std::vector<EmulationCase> cases;
  std::string refusal, at;
  const bool is_long = plan.kernels.size() > kWholeKernels;
  for (bool tails : {is_long, !is_long}) {
    if (is_long && !cases.empty()) break;
    const Reduced r = reduce_plan(program, plan, e.target, tails);
    if (!r.plan) { refusal = "no reduced shape (" + r.refusal + ")"; continue; }
    if (const std::string why = too_large_to_emulate(*r.program, *r.plan, most_flops); !why.empty()) { refusal = why; continue; }
    if (!cases.empty() && shapes(*r.program) == shapes(cases.back().program)) continue;
    cases.push_back(case_of(*r.program, *r.plan, e.target, fmt::format("r{}_", cases.size())));
    at += (at.empty() ? "" : " and ") + shapes(*r.program);
  }
  if (cases.empty()) {
    double work = 0;
    for (const KernelPlan& k : plan.kernels) work += k.flops + static_cast<double>(k.bytes);
    if (work > kSmallWork || !too_large_to_emulate(program, plan).empty())
      return {Kind::kNotRun, "not emulated: " + refusal + ", and the shape itself is large"};
    cases.push_back(case_of(program, plan, e.target, "r0_"));
    at = shapes(program);
  }
  std::vector<const EmulationCase*> all;
  for (const EmulationCase& c : cases) all.push_back(&c);
  return with_library(all, e, [&](const std::string& library, bool& loaded) {
    return run_all(cases, library, at, e.seed, kSeeds, e.jobs, loaded);
  });
}

/// A part at its reduced shapes.
struct PartCases { std::string name; std::vector<EmulationCase> cases; };

/// Reduced shapes of one part, in `cases`; or why it has none.
std::string reduce_part(const PartReducer& reducer, const Plan& plan, const PlanPart& part, const std::vector<KernelText>& texts,
                        const Emulator& e, size_t number, PartCases& out) {
  out.name = texts[part.kernels[0]].name;
  if (!part.refusal.empty()) return part.refusal;
  std::string refusal;
  for (Tails tails : {Tails::kOwn, Tails::kRagged}) {
    std::optional<Plan> own;
    Reduced r = reducer.reduce(part, tails, own);
    for (size_t k = 0; r.plan && k < part.kernels.size(); k++)   // what is started early is text of its own
      if (own->kernels.size() == part.kernels.size())
        own->kernels[k].early = r.plan->kernels[k].early = plan.kernels[part.kernels[k]].early;
    if (!r.plan) { refusal = "no reduced shape (" + r.refusal + ")"; continue; }
    if (const std::string why = part_differs(plan, part, texts, *own, e.target); !why.empty()) return why;
    if (const std::string why = too_large_to_emulate(*r.program, *r.plan); !why.empty()) { refusal = why; continue; }
    if (!out.cases.empty() && shapes(*r.program) == shapes(out.cases.back().program)) continue;
    out.cases.push_back(case_of(*r.program, *r.plan, e.target, fmt::format("p{}_{}_", number, out.cases.size())));
  }
  return out.cases.empty() ? refusal : "";
}

/// Part i, or where it is nothing by itself (it moves what its neighbour reads in runs), with the ones around it: `cases`, or why not.
std::string reduce_some(const PartReducer& reducer, const Program& program, const Plan& plan, const std::vector<PlanPart>& parts, size_t i,
                        const std::vector<KernelText>& texts, const Emulator& e, size_t number, PartCases& out) {
  const std::string why = reduce_part(reducer, plan, parts[i], texts, e, number, out);
  if (why.empty()) return why;
  for (const auto& [before, behind] : {std::pair<size_t, size_t>{1, 0}, {0, 1}, {1, 1}, {2, 0}, {0, 2}}) {
    if (before > i || i + behind >= parts.size()) continue;
    std::vector<size_t> kernels;
    for (size_t p = i - before; p <= i + behind; p++) kernels.insert(kernels.end(), parts[p].kernels.begin(), parts[p].kernels.end());
    PartCases joined;
    if (!reduce_part(reducer, plan, part_of(program, plan, texts, std::move(kernels)), texts, e, number, joined).empty()) continue;
    joined.name = out.name + " with its neighbours";
    out = std::move(joined);
    return "";
  }
  return why;
}

/// Runs parts whose cases share a library.
GateResult run_parts(const std::vector<PartCases>& parts, const Emulator& e, int64_t& in_floats) {
  std::vector<const EmulationCase*> all;
  for (const PartCases& p : parts) for (const EmulationCase& c : p.cases) all.push_back(&c);
  return with_library(all, e, [&](const std::string& library, bool& loaded) {
    in_floats = 0;
    for (const PartCases& p : parts) {
      GateResult r = run_all(p.cases, library, "", e.seed, kPartSeeds, e.jobs, loaded);
      if (r.kind != Kind::kPassed) { r.text = p.name + " alone: " + r.text; return r; }
      in_floats += r.text.find("in field") == std::string::npos;
    }
    return GateResult{Kind::kPassed, ""};
  });
}

/// Kernel by kernel, equal ones once; that each reads what the ones ahead of it stored is seen from the plan.
GateResult gate_parts(const Program& program, const Plan& plan, const Emulator& e) {
  std::vector<KernelText> texts;
  for (const KernelPlan& k : plan.kernels) texts.push_back(emit_kernel(k, plan, e.target));
  if (const std::string why = misplaced(plan, texts); !why.empty()) return {Kind::kFailed, why};
  const PartReducer reducer(program, plan, e.target);
  if (!reducer.refusal().empty()) return {Kind::kNotRun, "not emulated: no reduced shape (" + reducer.refusal() + ")"};
  std::set<std::string> known;
  std::vector<PartCases> together;
  size_t cases = 0;
  int64_t in_floats = 0;
  const auto run = [&] {
    int64_t some = 0;
    GateResult r = together.empty() ? GateResult{Kind::kPassed, ""} : run_parts(together, e, some);
    in_floats += some;
    together.clear();
    cases = 0;
    return r;
  };
  const std::vector<PlanPart> parts = parts_of(program, plan, texts);
  for (size_t i = 0; i < parts.size(); i++) {
    const PlanPart& part = parts[i];
    if (part.refusal.empty() && !known.insert(part_key(program, plan, part, texts)).second) continue;
    PartCases p;
    if (const std::string why = reduce_some(reducer, program, plan, parts, i, texts, e, known.size(), p); !why.empty())
      return {Kind::kNotRun, fmt::format("not emulated: {} alone: {}", p.name, why)};
    cases += p.cases.size();
    together.push_back(std::move(p));
    if (cases < kCasesTogether) continue;
    if (GateResult r = run(); r.kind != Kind::kPassed) return r;
  }
  if (GateResult r = run(); r.kind != Kind::kPassed) return r;
  return {Kind::kPassed, fmt::format("emulated one by one, each at reduced shapes of its own: {} distinct of {}, {} in field and floats, "
                                     "{} in floats and small integers",
                                     known.size(), texts.size(), static_cast<int64_t>(known.size()) - in_floats, in_floats)};
}

}  // namespace

GateResult emulation_gate(const Program& program, const Plan& plan, const Target& target, const std::string& compiler, uint64_t seed,
                          int jobs) {
  if (compiler.empty()) return {Kind::kNotRun, "not emulated: there is no C++ compiler on this machine (CXX, g++, clang++)"};
  const std::string folder = emulation_cache();
  if (folder.empty()) return {Kind::kNotRun, "not emulated: no folder for compiled emulations can be written"};
  prune_libraries(folder);
  const Emulator e{target, compiler, folder, seed, jobs};
  const bool is_long = plan.kernels.size() > kWholeKernels;
  GateResult first =
      is_long ? gate_parts(program, plan, e) : gate_whole(program, plan, e, plan.kernels.size() > 1 ? kWholeFlops : kMostFlops);
  if (first.kind != Kind::kNotRun) return first;
  GateResult second = is_long ? gate_whole(program, plan, e) : gate_parts(program, plan, e);
  if (second.kind == Kind::kNotRun && !is_long && plan.kernels.size() > 1) first = gate_whole(program, plan, e);
  if (first.kind != Kind::kNotRun) return first;
  if (second.kind == Kind::kNotRun) first.text += "; " + second.text.substr(second.text.find(": ") + 2);
  return second.kind == Kind::kNotRun ? first : second;
}

}  // namespace mirage
