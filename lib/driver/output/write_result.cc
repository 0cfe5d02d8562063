// Files of a result; see the header.
#include "driver/output/write_result.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "driver/toolchain/build.h"
#include "driver/evidence/certificate_file.h"
#include "driver/report/figures.h"
#include "driver/output/outputs.h"
#include "driver/output/own_files.h"
#include "driver/report/report.h"
#include "driver/toolchain/toolchain.h"
#include "mirage/driver/dump.h"
#include "mirage/plan/alternatives.h"
#include "mirage/plan/passes.h"
#include "mirage/support/file.h"

namespace mirage {

namespace {

bool is_foreign(const OutputFolder& folder, const std::string& file, const std::string& name) {
  return !is_own_file((std::filesystem::path(folder.path()) / file).string(), name);
}

/// Files without the program's name in theirs are often somebody else's: a Makefile in a folder that mirage-opt did not fill is left alone,
/// and that is said.
bool is_shared_name(const std::string& file) {
  // a program may be called Make, or report
  static const std::set<std::string> shared = {"Makefile",    "CMakeLists.txt", "certificate.json",
                                               "report.json", "report.html",    "build.toml"};
  return shared.contains(file);
}

/// Files of an earlier run that are not of the program whose sources are about to be written; what is somebody else's stays. What this run
/// writes takes itself off the list again.
void remove_stale(OutputFolder& folder, const std::string& name, const std::string& cu, std::vector<std::string>& notes) {
  const std::string source = (std::filesystem::path(folder.path()) / (name + ".cu")).string();
  std::error_code error;
  if (!std::filesystem::is_regular_file(source, error)) return;
  const auto old = read_file(source);
  if (!old || *old == cu) return;
  for (const std::string& file :
       {"lib" + name + ".so", name + ".ptx", name + ".cubin", name + "_check", name + ".cu", name + ".h", name + ".py", name + ".map",
        name + ".pc", name + "_check.cu", name + ".graph", name + ".dot", name + ".solution.json", name + "_kernelbench.py",
        std::string("build.toml"), "tvm-ffi-ext/" + name + "/__init__.py", std::string("certificate.json"), std::string("report.json"),
        std::string("report.html")}) {
    if (!is_foreign(folder, file, name)) folder.remove_on_commit(file);
    else if (!is_shared_name(file))
      notes.push_back(fmt::format("{} in {} is not of this result, and stays: mirage-opt did not make it", file, folder.path()));
  }
}

/// Where -MD writes; "": nowhere.
std::string deps_path(const Options& o, const std::string& name) {
  if (!o.write_deps) return "";
  return o.deps_file.empty() ? (std::filesystem::path(o.output) / (name + ".d")).string() : o.deps_file;
}

/// Whether a text is what dependency_rule() writes: a rule in one line, then (-MP) sources as targets without a recipe. It has no mark of
/// ours, because ninja reads no comments there.
bool is_dependency_rule(std::string_view text) {
  const size_t end = text.find('\n'), colon = text.substr(0, end).find(": ");
  if (end == std::string_view::npos || colon == std::string_view::npos) return false;
  const std::string_view sources = text.substr(colon + 2, end - colon - 2);
  for (size_t at = end + 1, next; at < text.size(); at = next + 1) {
    next = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, next - at);
    if (!line.empty() && (!line.ends_with(':') || sources.find(line.substr(0, line.size() - 1)) == std::string_view::npos)) return false;
  }
  return true;
}

/// Files of the user's that have the names of what is to be written: nothing is then.
Diagnostics foreign_files(const OutputFolder& folder, const std::string& name, const std::string& deps) {
  Diagnostics errors;
  const auto refuse = [&](const std::string& path, const char* remedy) {
    errors.push_back({Severity::kError,
                      DiagCode::kFileUnwritable,
                      {path, 0, 0, 1},
                      "mirage-opt did not make this file, and does not replace it: nothing was written",
                      {{{}, remedy}}});
  };
  for (const std::string& file : folder.written())
    if (is_foreign(folder, file, name))
      refuse((std::filesystem::path(folder.path()) / file).string(),
             "choose another folder with -o, another \"name\" in the spec, or move the file away");
  std::error_code error;
  if (std::filesystem::is_regular_file(deps, error)) {
    const auto text = read_file(deps);
    if (!text || !(text->empty() || is_dependency_rule(*text))) refuse(deps, "choose another file with -MF, or move the file away");
  }
  return errors;
}

/// --alternatives: the cases as sources that build beside the result's header and version script.
void add_alternatives(std::map<std::string, std::string>& files, const Measured& measured, const Options& o, const Program& program,
                      const Target& target, const CudaModule& module) {
  std::vector<std::pair<std::string, double>> rows;
  for (const MeasureCase& c : measured.cases) {
    const std::string file = fmt::format("{}.alternative-{:02}.cu", module.name, rows.size());
    files[file] = emit_module(program, c.plan, target, module_options(o)).files.at(module.name + ".cu");
    rows.emplace_back(c.what, c.plan.predicted_us);
  }
  files[module.name + ".alternatives.json"] = alternatives_list(module.name, rows);
}

std::vector<std::string> divisions_of(const Plan& plan) {
  std::vector<std::string> out;
  for (const KernelPlan& k : plan.kernels) out.push_back(division_text(k));
  return out;
}

}  // namespace

std::string what_was_written(const Decision& d, const Options& o, size_t files, bool has_library) {
  const bool found = d.choice || d.stitched();
  const bool passed = std::any_of(d.gates.begin(), d.gates.end(), [](const std::string& g) { return g.starts_with("emulated"); });
  return fmt::format("interrupted: {} has {} ({} files), {}", o.output,
                     !found   ? "the straightforward kernels; nothing better was verified and had passed its gate by then"
                     : passed ? "the best kernels that had passed the gate by then"
                              : "the best kernels that were verified by then",
                     files, has_library ? "and the library, which was built already" : "without a library, which was not built yet");
}

CompileResult failed(const Diagnostics& all, CompileResult r) {
  for (const Diagnostic& d : all) {
    r.diagnostics.push_back(d);
    if (d.severity == Severity::kError) r.exit = more_severe(r.exit, exit_code_of(d.code));
  }
  r.timed_report = failure_report(r.name, r.exit, r.diagnostics);
  return r;
}

Told tell_of(const Options& o, const ResultFacts& facts, const Built& built, const std::vector<std::string>& not_done,
             const Diagnostics& warnings, const Trace& trace, const std::string& measured) {
  const Folding& folding = facts.folding;
  const Decision& decision = facts.decision;
  const Found& found = facts.found;
  const Plan& plan = decision.plan(facts.straightforward);
  const Program& program = folding.whole;   // what the caller sees
  const Graph graph = folding.unfold(decision.graph(folding.program));
  const std::set<Emit> wanted = wanted_outputs(o);
  const bool is_told = wanted.contains(Emit::kReport) || wanted.contains(Emit::kHtml) || o.explain_result || !o.report.empty();
  const std::vector<AlgebraStep> steps =
      is_told ? algebra_steps(folding.program, decision.graph(folding.program), plan, facts.target) : std::vector<AlgebraStep>{};
  const bool is_straightforward = !decision.choice && !(decision.partition && decision.partition->result);
  const Planned apart = is_straightforward ? make_plan(program, program.graph, without_passes(facts.target)) : Planned{};
  const ReportData data{program,
                        facts.target,
                        o,
                        found.report,
                        found.candidates,
                        facts.choices,
                        decision.refused,
                        decision.choice,
                        decision.claims,
                        decision.support,
                        decision.gates,
                        plan,
                        facts.straightforward.predicted_us,
                        facts.straightforward.kernels.size(),
                        decision.why,
                        facts.module,
                        built.facts,
                        not_done,
                        warnings,
                        decision.partition ? &*decision.partition : nullptr,
                        steps,
                        facts.remembered,
                        facts.measured.result ? &*facts.measured.result : nullptr,
                        apart.plan ? &*apart.plan : nullptr};
  Told out;
  out.report = report_json(data);
  out.timed_report = report_json(data, &trace, measured);
  out.certificate =
      write_certificate(program, o,
                        {decision.choice ? &found.candidates[decision.choice->candidate].structure : nullptr,
                         decision.choice ? decision.choice->numbers : std::vector<CallNumbers>{},
                         decision.stitched() ? &decision.stitched()->pieces : nullptr, graph, decision.claims, decision.support,
                         decision.is_divided ? divisions_of(plan) : std::vector<std::string>{}, decision.gates});
  out.explanation = explain_folding(folding) + explain_search(found.report) + explain_winner(data) + explain_support(data);
  if (decision.partition) out.explanation += explain_partition(*decision.partition);
  for (const std::string& d : found.dropped) out.explanation += "dropped: " + d + "\n";
  out.graph = print(graph, facts.module.name);
  out.plan = print(plan);
  if (o.explain_result) out.steps = to_string(steps);
  if (wanted.contains(Emit::kHtml)) out.figure = mugraph_figure(plan, folding.program);
  return out;
}

CompileResult write_files(CompileResult r, const Options& o, const Source& source, const CudaModule& module, const Built& built,
                          OutputFolder& folder, const Listener& listener,
                          const std::function<std::string(size_t files, bool has_library)>& interrupted) {
  if (built.exit == ExitCode::kCheckFailed) {   // what its own check found wrong is not left where somebody may load it
    r.exit = built.exit;
    r.notes.push_back(fmt::format("nothing was written to {}: the library does not pass its check", o.output));
    return failed(built.errors, r);
  }
  if (listener.before_writing) listener.before_writing();
  if (auto held = folder.lock(); !held.empty()) return failed(held, r);
  remove_stale(folder, module.name, module.files.at(module.name + ".cu"), r.notes);
  Diagnostics errors = built.errors;
  for (const auto& [file, text] : r.files) {
    if (is_shared_name(file) && is_foreign(folder, file, module.name)) {
      r.notes.push_back(fmt::format("{} was not written: there is one in {} that mirage-opt did not make", file, o.output));
      continue;
    }
    Diagnostics d = folder.write(file, text);
    errors.insert(errors.end(), d.begin(), d.end());
    if (!d.empty()) return failed(errors, r);
  }
  if (Diagnostics foreign = foreign_files(folder, module.name, deps_path(o, module.name)); !foreign.empty()) {
    errors.insert(errors.end(), foreign.begin(), foreign.end());
    return failed(errors, r);
  }
  if (const std::string path = deps_path(o, module.name); !path.empty()) {
    std::vector<std::string> targets;
    if (!o.deps_target.empty()) targets.push_back(o.deps_target);
    else
      for (const auto& [file, text] : r.files) targets.push_back((std::filesystem::path(o.output) / file).string());
    for (const Diagnostic& d : write_file(path, dependency_rule(targets, dependencies(o, source.name), o.deps_phony))) errors.push_back(d);
  }
  for (const Diagnostic& d : folder.commit("certificate.json")) errors.push_back(d);
  r.exit = more_severe(r.exit, built.exit);
  if (!errors.empty()) return failed(errors, r);
  if (is_interrupted(listener))
    r.interrupted =
        interrupted(r.files.size(), wanted_outputs(o).contains(Emit::kSo) && built.errors.empty() &&
                                        std::filesystem::exists(std::filesystem::path(o.output) / ("lib" + module.name + ".so")));
  return r;
}

CompileResult write_result(CompileResult r, const Options& o, const Source& source, const ResultFacts& facts,
                           std::vector<std::string> not_done, std::optional<OutputFolder>& folder, Trace& trace, const Listener& listener) {
  const CudaModule& module = facts.module;
  const std::set<Emit> wanted = wanted_outputs(o);
  Built built;
  if (folder) {
    built = trace.stage("build",
                        [&] { return build_outputs(module, facts.target, o, wanted, *folder, find_toolchain(), listener.interrupted); });
    not_done.insert(not_done.end(), built.not_done.begin(), built.not_done.end());
  }
  Told told = tell_of(o, facts, built, not_done, r.diagnostics, trace, built.measured);
  r.files = select_texts(module.files, module.name, wanted);
  if (wanted.contains(Emit::kGraph)) r.files[module.name + ".graph"] = told.graph;
  if (wanted.contains(Emit::kDot))
    r.files[module.name + ".dot"] =
        "// generated by mirage-opt\n" + dot(facts.folding.unfold(facts.decision.graph(facts.folding.program)), module.name);
  if (wanted.contains(Emit::kReport)) r.files["report.json"] = told.report;
  if (wanted.contains(Emit::kHtml)) r.files["report.html"] = report_html(told.report, {told.part()});
  if (wanted.contains(Emit::kCertificate))
    r.files["certificate.json"] = built.compiler.empty() ? told.certificate : with_compiler(told.certificate, built.compiler);
  if (o.alternatives > 0) add_alternatives(r.files, facts.measured, o, facts.folding.whole, facts.target, module);
  r.report = std::move(told.report);
  r.certificate = std::move(told.certificate);
  r.timed_report = std::move(told.timed_report);
  r.notes.insert(r.notes.end(), not_done.begin(), not_done.end());
  r.summary = fmt::format("{}: {}", module.name, facts.decision.why);
  r.explanation = std::move(told.explanation);
  r.steps = std::move(told.steps);
  if (!folder) return r;
  return write_files(std::move(r), o, source, module, built, *folder, listener,
                     [&](size_t files, bool has_library) { return what_was_written(facts.decision, o, files, has_library); });
}

Diagnostics write_dump(const std::string& path, const std::vector<std::pair<std::string, std::string>>& products) {
  auto folder = OutputFolder::open(path);
  if (!folder) return folder.errors();
  if (auto held = folder->lock(); !held.empty()) return held;
  Diagnostics errors;
  for (const auto& [name, text] : products) {
    const std::string file = (std::filesystem::path(path) / name).string();
    if (!is_own_file(file, ""))
      errors.push_back({Severity::kError,
                        DiagCode::kFileUnwritable,
                        {file, 0, 0, 1},
                        "mirage-opt did not make this file, and does not replace it",
                        {{{}, "choose another folder with --dump-dir, or move the file away"}}});
    else if (auto bad = folder->write(name, (name.ends_with(".cu") ? "" : "# generated by mirage-opt --dump-dir\n") + text); !bad.empty())
      return bad;
  }
  return errors.empty() ? folder->commit() : errors;
}

CompileResult write_best(const Options& o, const Source& source, const Target& target, const Folding& folding, const Plan& straightforward,
                         const BestSoFar& best, const Listener& listener) {
  Trace trace;
  CompileResult r;
  r.name = folding.whole.name;
  Result<OutputFolder> opened = OutputFolder::open(o.output);
  if (!opened) return failed(opened.errors(), r);
  std::optional<OutputFolder> folder(std::move(*opened));
  const CudaModule module = emit_module(folding.whole, best.decision.plan(straightforward), target, module_options(o));
  const Measured measured;
  return write_result(std::move(r), o, source,
                      {target, folding, best.found, best.choices, best.decision, straightforward, measured, module}, {}, folder, trace,
                      listener);
}

}  // namespace mirage
