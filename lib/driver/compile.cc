// compile(): the figure. A spec is read; muGraphs that may compute the same are searched, each verified; the verified ones get their
// numbers from the cost model; the best plan, never worse than the straightforward one, becomes a library (OSDI'25 figure 1). The stages of
// one program stand in decide_program.cc; a spec whose axes have several values is decided at each and becomes one library (family.cc).
#include "mirage/driver/compile.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "driver/evidence/certificate_file.h"
#include "driver/compile_from.h"
#include "driver/decide/decide_program.h"
#include "driver/emulation/emulation.h"
#include "driver/family.h"
#include "driver/output/outputs.h"
#include "driver/evidence/remembered.h"
#include "driver/evidence/reuse.h"
#include "driver/gate/self_test.h"
#include "driver/toolchain/toolchain.h"
#include "driver/output/write_result.h"
#include "mirage/plan/passes.h"
#include "mirage/plan/plan.h"
#include "mirage/spec/json_text.h"
#include "mirage/support/file.h"

namespace mirage {

namespace {

namespace fs = std::filesystem;

/// What the options ask for and cannot have; nullopt: nothing.
std::optional<Diagnostic> refused_option(const Options& o, const Target& target, const std::string& spec) {
  const auto usage = [](std::string text) { return Diagnostic{Severity::kError, DiagCode::kUsage, {}, std::move(text), {}}; };
  if (o.gate != "auto" && o.gate != "emulate" && o.gate != "device" && o.gate != "none")
    return usage(fmt::format("--gate {}: there are emulate, device, none and auto", o.gate));
  if (o.gate == "emulate" && find_host_compiler().empty())
    return Diagnostic{Severity::kError, DiagCode::kToolMissing, {}, "--gate emulate: there is no C++ compiler (CXX, g++, clang++)", {}};
  if (o.write_deps) {
    std::vector<std::string> paths = dependencies(o, spec);
    paths.push_back(o.output);
    paths.push_back(o.deps_target);
    for (const std::string& path : paths)
      if (const std::string what = hostile_to_make(path); !what.empty())
        return usage(fmt::format("-MD: make reads {} in '{}' as something else than a part of a name; write the file under another one",
                                 what, path));
  } else if (!o.deps_file.empty() || !o.deps_target.empty() || o.deps_phony) {
    return usage("-MF, -MT and -MP say how -MD writes its rule: give -MD too");
  }
  if (o.pdl && target.sm < 90)
    return usage(fmt::format("--pdl: {} has no programmatic dependent launch; sm_90a and later have", target.name));
  if (o.cold && o.warm) return usage("--cold and --warm exclude each other");
  if (o.prune != "decided" && o.prune != "z3" && o.prune != "off")
    return usage(fmt::format("--prune: there is no way '{}'; decided, z3, off", o.prune));
  return std::nullopt;
}

}  // namespace

const std::vector<std::string>& stage_names() {
  static const std::vector<std::string> names = {"parse", "search", "verify", "choose", "partition", "measure", "plan", "emit", "build"};
  return names;
}

const std::vector<std::string>& printed_stages() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out = stage_names();
    out.insert(std::find(out.begin(), out.end(), "emit"), "schedule");
    out.push_back("pass:lower");
    for (const PassInfo& p : pass_table()) out.push_back("pass:" + p.name);
    return out;
  }();
  return names;
}

ExitCode more_severe(ExitCode a, ExitCode b) {
  static const ExitCode order[] = {ExitCode::kOk,          ExitCode::kNothingFound, ExitCode::kBudget,      ExitCode::kFrozenMiss,
                                   ExitCode::kRegression,  ExitCode::kNotEqual,     ExitCode::kUnsupported, ExitCode::kInvalidSpec,
                                   ExitCode::kUsage,       ExitCode::kToolchain,    ExitCode::kIo,          ExitCode::kCheckFailed,
                                   ExitCode::kInterrupted, ExitCode::kTerminated,   ExitCode::kBug};
  auto rank = [](ExitCode x) { return std::find(std::begin(order), std::end(order), x) - std::begin(order); };
  return rank(a) >= rank(b) ? a : b;
}

namespace {

/// A run that adds its decision to a lock changes nothing for whoever depends on the lock already: it leaves the file's time as it was, or
/// gives a new one the time at which the run began. Else each new decision would have make build all others again.
class LockTime {
 public:
  explicit LockTime(const std::string& lock) : lock_(lock), began_(fs::file_time_type::clock::now()), before_(began_) {
    std::error_code error;
    if (lock_.empty()) return;
    if (const auto time = fs::last_write_time(lock_, error); !error) before_ = std::min(time, began_);
    text_ = text();
  }
  ~LockTime() {
    std::error_code ignored;
    if (!lock_.empty() && text() != text_) fs::last_write_time(lock_, before_, ignored);
  }
  LockTime(const LockTime&) = delete;
  LockTime& operator=(const LockTime&) = delete;

 private:
  std::string text() const {
    auto read = read_file(lock_);
    return read ? std::move(*read) : "";
  }
  const std::string lock_;
  const fs::file_time_type began_;
  fs::file_time_type before_;
  std::string text_;
};

}  // namespace

CompileResult compile(const Options& options, const Source& source, Trace& trace, const Listener& listener) {
  const LockTime time(options.frozen ? "" : options.lock);
  return compile_from(options, source, {}, trace, listener);
}

namespace {

/// The one program of a spec without var axes.
CompileResult compile_program(const Program& program, const DecideRun& run, const Source& source, std::optional<OutputFolder>& folder,
                              CompileResult result, Trace& trace, const Listener& listener) {
  const Options& o = run.options;
  const auto better = [&](const Decided& d, const Found& found, const Choices& choices, const Decision& decision) {
    if (listener.best && folder)
      listener.best([&o, &source, &run, &d, best = std::make_shared<const BestSoFar>(BestSoFar{found, choices, decision})](
                        const Listener& l) { return write_best(o, source, run.target, d.folding, *d.straightforward.plan, *best, l); });
  };
  auto decided = decide_program(program, run, trace, listener, better);
  if (!decided) return failed(decided.errors(), std::move(result));
  Decided& d = **decided;
  result.diagnostics.insert(result.diagnostics.end(), d.warnings.begin(), d.warnings.end());
  result.exit = more_severe(result.exit, d.exit);
  const Plan& plan = d.plan();
  if (o.self_test)
    tell(listener.print, to_string(trace.stage("self-test", [&] {
           return run_self_test(d.folding.program, plan, run.target, find_host_compiler(), 48, verification_seed(d.folding.program, o));
         })));
  CudaModule module = trace.stage("emit", [&] { return emit_module(d.whole(), plan, run.target, module_options(o)); });
  trace.count(Stat::kKernels, static_cast<int64_t>(plan.kernels.size()));
  trace.count(Stat::kSourceBytes, static_cast<int64_t>(module.files.at(module.name + ".cu").size()));
  trace.product("emit", module.name + ".cu", [&] { return module.files.at(module.name + ".cu"); });
  const ResultFacts facts{run.target, d.folding,  d.found,
                          d.choices,  d.decision, *d.straightforward.plan,
                          d.measured, module,     d.remembered ? &*d.remembered : nullptr};
  CompileResult written = write_result(std::move(result), o, source, facts, d.not_done, folder, trace, listener);
  if (d.is_whole && !o.frozen)   // what a clock cut short is not kept
    for (const Diagnostic& e : keep(d.folding.program, o, d.key, written.certificate,
                                    d.remembered ? d.remembered->told : told_of(own_json(written.report), d.not_done))) {
      if (e.severity == Severity::kError) return failed({e}, std::move(written));
      written.diagnostics.push_back(e);
    }
  return written;
}

}  // namespace

CompileResult compile_from(const Options& options, const Source& source, const Given& given, Trace& trace, const Listener& listener) {
  CompileResult result;
  Result<Target> target = resolve_target(options);
  if (!target) return failed(target.errors(), result);
  Options o = options;
  o.target = target->name;
  // of "native", too: what was decided for another machine is not for this one
  o.machine = target->machine == find_target(target->name)->machine ? "" : target->machine;
  Options gates = o;   // with the gate that this run asks for
  // to repeat is to run
  if (given.certificate || given.points) gates.gate = given.repeat_gates ? "emulate" : "none", gates.no_cache = true;
  if (auto refused = refused_option(gates, *target, source.name)) return failed({*refused}, result);
  if (o.gate == "device") o.measure = true;

  const Result<Family> family = trace.stage("parse", [&]() -> Result<Family> {
    const Result<AxisChoice> choice = read_axis_choice(o.bind, o.values);
    return choice ? read_family(source, *choice) : choice.errors();
  });
  if (!family) return failed(family.errors(), result);
  result.name = family->points.front().program.name;
  result.diagnostics = family->warnings;
  std::optional<OutputFolder> folder;        // opened before the long work: an unwritable folder is known at once
  if (!o.output.empty()) {
    Result<OutputFolder> opened = OutputFolder::open(o.output);
    if (!opened) return failed(opened.errors(), result);
    folder.emplace(std::move(*opened));
  }
  const bool is_family = !family->axes.empty();
  if ((given.certificate && is_family) || (given.points && given.points->size() != (is_family ? family->points.size() : 0)))
    return failed({broken_certificate((given.certificate ? *given.certificate : given.points->front()).name,
                                      "the decision is of a spec whose axes have other values than this one's")},
                  result);
  if (!is_family)
    for (Options* x : {&o, &gates}) x->bind.clear(), x->values.clear();   // the program says it all: it is that of a spec with constants
  const DecideRun run{o, gates, *target, source.name, given};
  if (!is_family) return compile_program(family->points.front().program, run, source, folder, std::move(result), trace, listener);
  return compile_family(*family, run, source, folder, std::move(result), trace, listener);
}

}  // namespace mirage
