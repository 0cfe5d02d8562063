// compile(): the figure. A spec is read; muGraphs that may compute the same are searched, each verified; the verified ones get their numbers from the cost model; the best plan, never worse than the
// straightforward one, becomes a library (OSDI'25 figure 1).
#include "mirage/driver/compile.h"

#include <chrono>
#include <filesystem>
#include <mutex>
#include <set>

#include <fmt/format.h>

#include "driver/build.h"
#include "driver/candidates.h"
#include "driver/certificate_file.h"
#include "driver/checkpoint.h"
#include "driver/emulation.h"
#include "driver/folding.h"
#include "driver/gate.h"
#include "driver/measure.h"
#include "driver/numbers.h"
#include "driver/outputs.h"
#include "driver/partition.h"
#include "driver/report.h"
#include "driver/reuse.h"
#include "driver/search_options.h"
#include "driver/self_test.h"
#include "driver/z3_judge.h"
#include "mirage/ir/stabilize.h"
#include "mirage/plan/hints.h"
#include "mirage/support/file.h"
#include "mirage/support/hash.h"
#include "mirage/support/worker_pool.h"

#ifndef MIRAGE_VERSION
#define MIRAGE_VERSION "0.1.0"
#endif

namespace mirage {

SearchOptions search_options(const Options& o, const Listener& listener) {
  SearchOptions s;
  s.max_kernel_ops = static_cast<int>(o.max_kernel_ops);
  s.max_block_ops = static_cast<int>(o.max_block_ops);
  s.max_ideas = static_cast<int>(o.max_ideas);
  s.max_states = o.states;
  s.max_bytes = o.memory << 20;
  s.max_seconds = o.budget;
  s.seed = static_cast<uint64_t>(o.seed);
  s.threads = num_threads(o.jobs);
  s.merge = !o.no_merge;
  s.dominance = !o.no_dominance;
  s.expression_gate = o.prune != "off";
  s.stop = listener.interrupted;
  return s;
}

namespace {

void tell(const std::function<void(const std::string&)>& f, const std::string& s) {
  if (f) f(s);
}

bool is_interrupted(const Listener& l) { return l.interrupted && l.interrupted->load(); }

CompileResult failed(const Diagnostics& all, CompileResult r) {
  for (const Diagnostic& d : all) {
    r.diagnostics.push_back(d);
    if (d.severity == Severity::kError) r.exit = more_severe(r.exit, exit_code_of(d.code));
  }
  r.timed_report = failure_report(r.name, r.exit, r.diagnostics);
  return r;
}

/// Never the seed that the search's own fingerprints came from.
uint64_t verification_seed(const Program& p, const Options& o) { return hash_combine(hash_text(p.canonical, 0x56657269), static_cast<uint64_t>(o.seed)); }

struct Found {
  SearchReport report;
  Witnesses witnesses;
  std::vector<Candidate> candidates;         ///< verified, in the order of the search
  std::string judge;                         ///< what --prune=z3 asked
  std::vector<std::string> dropped;          ///< why candidates were rejected or have no verdict, the first few
};

/// Searches, and verifies every candidate as it comes.
Found search_and_verify(const Program& program, const Target& target, const Options& o, Checkpoint* checkpoint, Trace& trace, const Listener& listener) {
  Found f;
  f.witnesses = make_witnesses(program);
  if (o.states == 0 || !f.witnesses.refusal.empty()) {
    f.report.complete = false;
    f.report.stop_reason = o.states == 0 ? "not searched: --states 0" : "not searched: " + f.witnesses.refusal;
    return f;
  }
  std::mutex mutex;
  const auto start = std::chrono::steady_clock::now();
  auto sink = [&](const Structure& s) {
    std::lock_guard lock(mutex);
    if (is_interrupted(listener)) return SinkVerdict::kUnknown;
    Examined e = trace.stage("verify", [&] { return examine_stable(s, program, f.witnesses, verification_seed(program, o)); });
    trace.count(Stat::kCandidates);
    trace.count(e.verdict == SinkVerdict::kVerified ? Stat::kVerified : e.verdict == SinkVerdict::kRejected ? Stat::kRejected : Stat::kUnknown);
    if (e.numeric) trace.count(Stat::kNumericDropped);
    if (e.verdict == SinkVerdict::kVerified) {
      trace.product("verify", fmt::format("{}.graph", s.rank), [&] { return print(e.candidate.structure.graph, fmt::format("structure_{}", s.rank)); });
      e.candidate.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      f.candidates.push_back(std::move(e.candidate));
      tell(listener.live, fmt::format("search: {} verified, at best {} kernels", f.candidates.size(), f.candidates.back().structure.kernels));
    } else if (f.dropped.size() < 8) {
      f.dropped.push_back(fmt::format("structure {}: {}", s.rank, e.reason));
    }
    return e.verdict;
  };
  Program unshifted = program;   // the search's algebra has no use for maxima that cancel; what it finds is compared with the program itself
  unshifted.graph = unshift(program.graph);
  SearchOptions options = search_options(o, listener);
  if (checkpoint) checkpoint->connect(options);
  Z3Judge z3;
  if (o.prune == "z3") {
    z3 = make_z3_judge();
    options.judge = z3.judge;
  }
  f.report = enumerate(unshifted, target, options, sink);
  if (z3.counts) f.judge = fmt::format("--prune=z3: {} questions: {} proved, {} refuted, {} without an answer and kept", z3.counts->asked, z3.counts->proved, z3.counts->refuted, z3.counts->open);
  return f;
}

void count_search(const SearchReport& r, Trace& trace, const Listener& listener) {
  int64_t closed = 0;
  for (const GateCount& g : r.gates) closed += g.closed;
  trace.count(Stat::kStates, r.states);
  trace.count(Stat::kClosed, closed);
  trace.count(Stat::kSearchBytes, r.peak_bytes);
  tell(listener.progress, fmt::format("search: {} states{}, {} closed, {} candidates: {} verified, {} rejected, {} unknown ({})", r.states,
                                      r.seconds > 0.01 ? fmt::format(" ({:.0f}/s)", static_cast<double>(r.states) / r.seconds) : "", closed, r.candidates, r.verified, r.rejected, r.unknown, r.stop_reason));
}

/// What is emitted: a chosen structure with its numbers, or the reference itself.
struct Decision {
  const Choice* choice = nullptr;            ///< nullptr: the straightforward library, or pieces
  std::vector<Claim> claims;
  Proof proof;                               ///< that the chosen graph is the program, at the sizes of the program
  std::string why;
  std::vector<std::string> gates;            ///< what the kernels passed, or why they were not asked
  std::optional<Partitioned> partition;        ///< where the search of the whole led to nothing
  std::optional<Plan> tuned;                 ///< the plan with its kernels divided as measurement found fastest
  const Stitched* stitched() const { return partition && partition->result ? &*partition->result : nullptr; }
  const Graph& graph(const Program& p) const { return choice ? choice->graph : stitched() ? stitched()->graph : p.graph; }
  const Plan& plan(const Plan& straightforward) const { return tuned ? *tuned : choice ? choice->plan : stitched() ? stitched()->plan : straightforward; }
};

/// Whether kernels are run on the CPU before they may win.
bool wants_emulation(const Options& o) { return o.gate == "emulate" || (o.gate == "auto" && !o.output.empty()); }

/// Whether the kernels of a plan may win; what they passed is noted in the decision.
/// `gated`: what was run before, since what measuring finds fastest is often the model's own plan.
GateResult run_gate(const Program& program, const Plan& plan, const Target& target, const Options& o, Decision& d, std::vector<std::string>& not_done, std::map<std::string, GateResult>& gated) {
  if (!wants_emulation(o)) return {};
  const auto [it, fresh] = gated.try_emplace(gate_key(program, plan, target));
  GateResult& r = it->second;
  if (fresh) r = emulation_gate(program, plan, target, find_host_compiler(), verification_seed(program, o));
  if (r.kind != GateResult::Kind::kFailed) {   // what an earlier plan passed says nothing of this one
    d.gates.clear();
    if (!r.text.empty()) d.gates.push_back(r.text);
  }
  if (fresh && r.kind == GateResult::Kind::kNotRun && !r.text.empty()) not_done.push_back(r.text);
  return r;
}
using PlanGate = std::function<GateResult(const Plan&, Decision&)>;

/// Predicted time of the plan's generic block kernels.
double generic_us(const Plan& p) {
  double us = 0;
  for (const KernelPlan& k : p.kernels) if (std::holds_alternative<std::shared_ptr<const BlockPlan>>(k.body)) us += k.predicted_us;
  return us;
}
/// Whether a plan is predicted to be faster by more than the model is off by for generic block kernels (measured against predicted over the programs of test/generality: 0.85 to 1.12; kernels of the other strategies
/// are fitted closer). Where the straightforward plan has such kernels, too, the model is off alike for both. If it is not faster by that alone, `what` was not used, which is said.
bool surely_faster(const Plan& p, const Plan& straightforward, const std::string& what, std::vector<std::string>& not_done) {
  if (p.predicted_us >= straightforward.predicted_us) return false;
  if (generic_us(straightforward) > 0 || p.predicted_us + 0.15 * generic_us(p) < straightforward.predicted_us) return true;
  not_done.push_back(fmt::format("{} was not used: {:.2f} us predicted instead of {:.2f}, which is within what the model is off by for generic block kernels", what, p.predicted_us, straightforward.predicted_us));
  return false;
}

/// The cheapest choice that beats the straightforward plan and holds when it is verified once more with its own tails.
Decision decide(const Choices& choices, Found& found, const Folding& folding, const Plan& straightforward, const PlanGate& gate, const Options& o, std::vector<std::string>& not_done) {
  Decision d;
  std::string refused;   // of what is predicted to be faster: the best, and why it was not used
  const auto refuse = [&](const Choice& c, const std::string& why) {
    not_done.push_back(fmt::format("structure {} with {} was not used: {}", found.candidates[c.candidate].structure.rank, numbers_text(c.numbers), why));
    if (refused.empty()) refused = fmt::format("{:.2f} us: {}", c.plan.predicted_us, why);
  };
  const Program& program = folding.program;
  for (const Choice& c : choices.best) {
    if (c.plan.predicted_us >= straightforward.predicted_us) break;
    if (!surely_faster(c.plan, straightforward, fmt::format("structure {} with {}", found.candidates[c.candidate].structure.rank, numbers_text(c.numbers)), not_done)) {
      if (refused.empty()) refused = fmt::format("{:.2f} us: within what the model is off by", c.plan.predicted_us);
      continue;
    }
    MIRAGE_ASSERT(!check_laws(c.graph)) << *check_laws(c.graph) << "\n" << print(c.graph);
    const Structure& s = found.candidates[c.candidate].structure;
    Instance instance = verify_instance(s, c.numbers, program, found.witnesses, verification_seed(program, o));
    if (!instance.refusal.empty()) { refuse(c, instance.refusal); continue; }
    if (const GateResult g = gate(c.plan, d); g.kind == GateResult::Kind::kFailed) { refuse(c, g.text); continue; }
    d.choice = &c;
    d.claims = std::move(instance.claims);
    d.proof = prove_found(folding, c.graph);
    d.why = fmt::format("{} kernel{} instead of {}: {:.2f} us predicted, {:.2f} us straightforward ({})", c.plan.kernels.size(), c.plan.kernels.size() == 1 ? "" : "s", straightforward.kernels.size(),
                        c.plan.predicted_us, straightforward.predicted_us, numbers_text(c.numbers));
    return d;
  }
  const std::string kernels = fmt::format("the straightforward {} kernel{}, {:.2f} us predicted", straightforward.kernels.size(), straightforward.kernels.size() == 1 ? "" : "s", straightforward.predicted_us);
  if (found.report.stop_reason.starts_with("not searched")) d.why = kernels + ": " + found.report.stop_reason;
  else if (found.candidates.empty()) d.why = kernels + fmt::format(": the search verified no other graph ({})", found.report.stop_reason);
  else if (choices.best.empty()) d.why = kernels + fmt::format(": none of the {} verified graphs fits the target", found.candidates.size());
  else if (!refused.empty()) d.why = kernels + fmt::format(": no verified graph that is predicted to be faster was used (the best, {})", refused);
  else d.why = kernels + fmt::format(": no verified graph that holds is predicted to be faster (the best: {:.2f} us)", choices.best.front().plan.predicted_us);
  return d;
}

RunHints run_hints(const Options& o) { return {o.cold, o.warm, o.pdl}; }

/// What may be timed, and what came of it.
struct Measured {
  std::vector<MeasureCase> cases;
  std::optional<Measurement> result;
};

Measured measure(const Decision& d, const Choices& choices, const Plan& straightforward, const Program& program, const Target& target, const Options& o, Trace& trace, const Listener& listener) {
  Measured m;
  const int64_t most = o.measure ? o.measure_cases : o.alternatives;   // cut by measure_cases, which never leaves out the straightforward plan
  if (most == 0 || is_interrupted(listener)) return m;
  m.cases = measure_cases(choices, straightforward, d.stitched() ? &d.stitched()->plan : nullptr, program, target, static_cast<size_t>(most));
  for (MeasureCase& c : m.cases) c.plan = with_hints(std::move(c.plan), run_hints(o));
  const Toolchain tools = o.measure ? find_toolchain() : Toolchain{};
  if (!o.measure || !tools.has_nvcc() || !detect_device().device) return m;   // the build stage says what is missing
  MeasureLimits limits;
  const MeasureJob job{program, target, {result_options_line(o), MIRAGE_VERSION}, num_threads(o.jobs), o.warm, listener.interrupted};
  m.result = trace.stage("measure", [&] { return measure_cases_on_device(m.cases, job, tools, limits); });
  tell(listener.progress, fmt::format("measure: {} of {} plans in {:.0f} s{}", std::count_if(m.result->rows.begin(), m.result->rows.end(), [](const MeasureRow& r) { return r.ok; }), m.cases.size(), m.result->seconds,
                                      m.result->order.empty() ? "" : fmt::format(", the best: {:.2f} us", m.result->rows[m.result->order[0]].final_us)));
  return m;
}

/// The fastest measured library that also passes what any library must pass replaces the model's decision.
void decide_by_measurement(Decision& d, const Measured& m, const Choices& choices, Found& found, const Folding& folding, const PlanGate& gate, const Options& o, std::vector<std::string>& not_done) {
  if (!m.result) return;
  const Program& program = folding.program;
  for (size_t i = 0; i < m.cases.size(); i++)
    if (const MeasureRow& row = m.result->rows[i]; !row.ok && row.reason != "not timed") not_done.push_back(fmt::format("not used, as measured: {}: {}", row.what, row.reason));
  for (size_t i : m.result->order) {
    const MeasureCase& c = m.cases[i];
    const Choice* choice = c.choice >= 0 ? &choices.best[static_cast<size_t>(c.choice)] : nullptr;
    Instance instance;
    if (choice && choice != d.choice) {
      instance = verify_instance(found.candidates[choice->candidate].structure, choice->numbers, program, found.witnesses, verification_seed(program, o));
      if (!instance.refusal.empty()) {
        not_done.push_back(fmt::format("measured fastest and not used: {}: {}", c.what, instance.refusal));
        continue;
      }
    }
    if (const GateResult g = gate(c.plan, d); g.kind == GateResult::Kind::kFailed) {
      not_done.push_back(fmt::format("measured fastest and not used: {}: {}", c.what, g.text));
      continue;
    }
    if (choice && choice != d.choice) {
      d.claims = std::move(instance.claims);
      d.proof = prove_found(folding, choice->graph);
    } else if (c.choice == kStraightforward) {
      d.claims.clear();
      d.proof = {};
    }
    d.choice = choice;
    if (c.choice != kPieces && d.partition) d.partition->result.reset();
    d.tuned = c.plan;
    d.why = fmt::format("{} kernel{}, {:.2f} us measured, the best of {} plans ({})", c.plan.kernels.size(), c.plan.kernels.size() == 1 ? "" : "s", m.result->rows[i].final_us,
                        std::count_if(m.result->rows.begin(), m.result->rows.end(), [](const MeasureRow& r) { return r.ok; }), c.what);
    return;
  }
}

Diagnostic not_decided(const Program& program, const Options& o) {
  std::vector<std::string> where;
  if (!o.lock.empty()) where.push_back("the lock " + o.lock);
  if (!o.cache.empty() && !o.no_cache) where.push_back("the cache " + o.cache);
  return {Severity::kError, DiagCode::kNotDecided, {}, fmt::format("--frozen: '{}' is not decided by {}", program.name, where.empty() ? "anything: give --lock or --cache" : fmt::format("{}", fmt::join(where, " or "))), {}};
}

/// A decision from lock or cache in the place of a search.
Found found_before(const Recalled& r, const Program& program) {
  Found f;
  f.witnesses = make_witnesses(program);
  f.candidates = r.candidates;
  f.report.stop_reason = "not searched: decided by " + r.from;
  return f;
}

void use_pieces(Decision& d, Stitched stitched, const Plan& straightforward, const PlanGate& gate, std::vector<std::string>& not_done) {
  if (d.partition) d.partition->result.reset();
  if (!surely_faster(stitched.plan, straightforward, "a cut into pieces", not_done)) return;
  if (const GateResult g = gate(stitched.plan, d); g.kind == GateResult::Kind::kFailed) {
    not_done.push_back("the pieces were not used: " + g.text);
    return;
  }
  if (!d.partition) d.partition.emplace();
  d.claims = stitched.claims;
  d.proof = stitched.proof;
  d.why = fmt::format("{} kernel{} instead of {}: {:.2f} us predicted, {:.2f} us straightforward (cut into pieces, {} of them searched)", stitched.plan.kernels.size(), stitched.plan.kernels.size() == 1 ? "" : "s", straightforward.kernels.size(),
                      stitched.plan.predicted_us, straightforward.predicted_us, stitched.pieces.size());
  d.partition->result = std::move(stitched);
}

/// Cuts the program into pieces where the search of the whole led to nothing.
void try_pieces(Decision& d, const Folding& folding, const Target& target, const Plan& straightforward, const PlanGate& gate, const Options& o, Checkpoint* checkpoint, std::vector<std::string>& not_done, Trace& trace, const Listener& listener) {
  if (d.choice || o.states == 0 || is_interrupted(listener)) return;
  const Program& program = folding.program;
  SearchOptions search = search_options(o, listener);
  if (checkpoint) checkpoint->connect(search);
  d.partition = partition_program(program, target, straightforward, search, verification_seed(program, o), trace, [&](const std::string& s) { tell(listener.live, s); });
  const Partitioned& p = *d.partition;
  not_done.insert(not_done.end(), p.not_done.begin(), p.not_done.end());
  if (!p.refusal.empty()) return;
  tell(listener.progress, fmt::format("partition: {} cut points, {} possible pieces, {} distinct: {} states, {} verified", p.units, p.cuts, p.distinct, p.search.states, p.search.verified));
  if (!p.result) return;
  Stitched stitched = *p.result;
  stitched.proof = prove_found(folding, stitched.graph);
  use_pieces(d, std::move(stitched), straightforward, gate, not_done);
}

/// Files without the program's name in theirs may be somebody else's: a Makefile in a folder that mirage-opt did not fill is left alone, and that is said.
bool is_foreign(const OutputFolder& folder, const std::string& file) {
  static const std::set<std::string> shared = {"Makefile", "CMakeLists.txt", "certificate.json", "report.json", "report.html"};   // a program may be called Make, or report
  if (!shared.contains(file)) return false;
  const auto old = read_file((std::filesystem::path(folder.path()) / file).string());
  return old && old->find("mirage-opt") == std::string::npos;
}

/// Files of an earlier run that are not of the program whose sources are about to be written. What this run writes takes itself off the list again.
void remove_stale(OutputFolder& folder, const std::string& name, const std::string& cu) {
  const auto old = read_file((std::filesystem::path(folder.path()) / (name + ".cu")).string());
  if (!old || *old == cu) return;
  for (const std::string& file : {"lib" + name + ".so", name + ".ptx", name + ".cubin", name + "_check", name + ".cu", name + ".h", name + ".py", name + ".map", name + ".pc", name + "_check.cu", name + ".graph", name + ".dot"})
    folder.remove_on_commit(file);
  for (const std::string file : {"certificate.json", "report.json", "report.html"})
    if (!is_foreign(folder, file)) folder.remove_on_commit(file);
}

/// --alternatives: the cases as sources that build beside the result's header and version script.
void add_alternatives(std::map<std::string, std::string>& files, const Measured& measured, const Options& o, const Program& program, const Target& target, const CudaModule& module) {
  std::vector<std::pair<std::string, double>> rows;
  for (const MeasureCase& c : measured.cases) {
    const std::string file = fmt::format("{}.alternative-{:02}.cu", module.name, rows.size());
    files[file] = emit_module(program, c.plan, target, {result_options_line(o), MIRAGE_VERSION}).files.at(module.name + ".cu");
    rows.emplace_back(c.what, c.plan.predicted_us);
  }
  files[module.name + ".alternatives.json"] = alternatives_list(module.name, rows);
}

/// For the certificate: the pieces' graph as the caller sees it.
Stitched unfolded(Stitched s, const Graph& graph) {
  s.graph = graph;
  return s;
}

/// Builds, reports, certifies and writes.
CompileResult write_result(CompileResult r, const Options& o, const Source& source, const Folding& folding, const Target& target, const Found& found, const Choices& choices, const Decision& decision,
                           const Plan& straightforward, const Measured& measured, const CudaModule& module, std::vector<std::string> not_done, std::optional<OutputFolder>& folder, Trace& trace, const Listener& listener) {
  const std::set<Emit> wanted = wanted_outputs(o);
  const Plan& plan = decision.plan(straightforward);
  const Program& program = folding.whole;   // what the caller sees
  const Graph graph = folding.unfold(decision.graph(folding.program));
  Built built;
  if (folder) {
    built = trace.stage("build", [&] { return build_outputs(module, target, o, wanted, *folder, find_toolchain(), listener.interrupted); });
    not_done.insert(not_done.end(), built.not_done.begin(), built.not_done.end());
  }
  const ReportData data{program, target, o, found.report, found.candidates, choices, decision.choice, decision.claims, decision.proof, decision.gates, plan, straightforward.predicted_us, straightforward.kernels.size(),
                        decision.why, module, built.facts, not_done, r.diagnostics, decision.partition ? &*decision.partition : nullptr, measured.result ? &*measured.result : nullptr};
  const std::string graph_text = print(graph, module.name);
  r.report = report_json(data);
  r.files = select_texts(module.files, module.name, wanted);
  if (wanted.contains(Emit::kGraph)) r.files[module.name + ".graph"] = graph_text;
  if (wanted.contains(Emit::kDot)) r.files[module.name + ".dot"] = dot(graph, module.name);
  if (wanted.contains(Emit::kReport)) r.files["report.json"] = r.report;
  if (wanted.contains(Emit::kHtml)) r.files["report.html"] = report_html(r.report, graph_text, print(plan));
  r.certificate = decision.stitched() ? write_certificate(program, unfolded(*decision.stitched(), graph), decision.gates)
                                      : write_certificate(program, decision.choice ? &found.candidates[decision.choice->candidate].structure : nullptr,
                                                          decision.choice ? decision.choice->numbers : std::vector<CallNumbers>{}, graph, decision.claims, decision.proof, decision.gates);
  if (wanted.contains(Emit::kCertificate)) r.files["certificate.json"] = with_source(r.certificate, module.name + ".cu", module.files.at(module.name + ".cu"));
  if (o.alternatives > 0) add_alternatives(r.files, measured, o, program, target, module);
  r.timed_report = report_json(data, &trace, built.measured);
  r.notes.insert(r.notes.end(), not_done.begin(), not_done.end());
  r.summary = fmt::format("{}: {}", module.name, decision.why);
  r.explanation = explain_folding(folding) + explain_search(found.report) + explain_winner(data) + explain_support(data);
  if (decision.partition) r.explanation += explain_partition(*decision.partition);
  for (const std::string& d : found.dropped) r.explanation += "dropped: " + d + "\n";
  if (!folder) return r;

  if (built.exit == ExitCode::kCheckFailed) {   // what its own check found wrong is not left where somebody may load it
    r.exit = built.exit;
    r.notes.push_back(fmt::format("nothing was written to {}: the library does not pass its check", o.output));
    return failed(built.errors, r);
  }
  if (auto held = folder->lock(); !held.empty()) return failed(held, r);
  remove_stale(*folder, module.name, module.files.at(module.name + ".cu"));
  Diagnostics errors = built.errors;
  for (const auto& [file, text] : r.files) {
    if (is_foreign(*folder, file)) {
      r.notes.push_back(fmt::format("{} was not written: there is one in {} that mirage-opt did not make", file, o.output));
      continue;
    }
    Diagnostics d = folder->write(file, text);
    errors.insert(errors.end(), d.begin(), d.end());
    if (!d.empty()) return failed(errors, r);
  }
  if (o.write_deps) {
    const std::string path = o.deps_file.empty() ? (std::filesystem::path(o.output) / (module.name + ".d")).string() : o.deps_file;
    std::vector<std::string> targets;
    for (const auto& [file, text] : r.files) targets.push_back((std::filesystem::path(o.output) / file).string());
    for (const Diagnostic& d : write_file(path, dependency_rule(targets, {source.name}))) errors.push_back(d);
  }
  for (const Diagnostic& d : folder->commit("certificate.json")) errors.push_back(d);
  r.exit = more_severe(r.exit, built.exit);
  if (!errors.empty()) return failed(errors, r);
  if (is_interrupted(listener)) r.notes.push_back("interrupted: this is the best that was verified until then");
  return r;
}

}  // namespace

const std::vector<std::string>& stage_names() {
  static const std::vector<std::string> names = {"parse", "search", "verify", "choose", "partition", "measure", "plan", "emit", "build"};
  return names;
}

ExitCode more_severe(ExitCode a, ExitCode b) {
  static const ExitCode order[] = {ExitCode::kOk,          ExitCode::kNothingFound, ExitCode::kBudget,      ExitCode::kFrozenMiss, ExitCode::kRegression,  ExitCode::kNotEqual,   ExitCode::kUnsupported,
                                   ExitCode::kInvalidSpec, ExitCode::kUsage,        ExitCode::kToolchain,   ExitCode::kIo,         ExitCode::kCheckFailed, ExitCode::kInterrupted, ExitCode::kTerminated,
                                   ExitCode::kBug};
  auto rank = [](ExitCode x) { return std::find(std::begin(order), std::end(order), x) - std::begin(order); };
  return rank(a) >= rank(b) ? a : b;
}

CompileResult compile(const Options& options, const Source& source, Trace& trace, const Listener& listener) {
  CompileResult result;
  std::vector<std::string> not_done;
  Result<Target> target = resolve_target(options.target);
  if (!target) return failed(target.errors(), result);
  Options o = options;
  o.target = target->name;
  if (o.gate != "auto" && o.gate != "emulate" && o.gate != "device" && o.gate != "none")
    return failed({{Severity::kError, DiagCode::kUsage, {}, fmt::format("--gate {}: there are emulate, device, none and auto", o.gate), {}}}, result);
  if (o.gate == "emulate" && find_host_compiler().empty())
    return failed({{Severity::kError, DiagCode::kToolMissing, {}, "--gate emulate: there is no C++ compiler (CXX, g++, clang++)", {}}}, result);
  if (o.gate == "device") o.measure = true;
  if (o.pdl && target->sm < 90) return failed({{Severity::kError, DiagCode::kUsage, {}, fmt::format("--pdl: {} has no programmatic dependent launch; sm_90a and later have", target->name), {}}}, result);
  if (o.cold && o.warm) return failed({{Severity::kError, DiagCode::kUsage, {}, "--cold and --warm exclude each other", {}}}, result);
  if (o.prune != "decided" && o.prune != "z3" && o.prune != "off")
    return failed({Diagnostic{Severity::kError, DiagCode::kUsage, {}, fmt::format("--prune: there is no way '{}'; decided, z3, off", o.prune), {}}}, result);

  Result<Parsed> parsed = trace.stage("parse", [&] { return read_spec(source); });
  if (!parsed) return failed(parsed.errors(), result);
  const Folding folding = trace.stage("parse", [&] { return fold_verified(parsed->program); });
  const Program& whole = folding.whole;
  const Program& program = folding.program;   // dimensions that go together are one: what is searched, planned and emulated
  result.name = whole.name;
  result.diagnostics = parsed->warnings;
  trace.count(Stat::kSpecNodes, whole.graph.num_nodes());
  trace.product("parse", whole.name + ".graph", [&] { return print(whole.graph, whole.name); }, [&] { return check_laws(whole.graph); });

  std::optional<OutputFolder> folder;        // opened before the long work: an unwritable folder is known at once
  if (!o.output.empty()) {
    Result<OutputFolder> opened = OutputFolder::open(o.output);
    if (!opened) return failed(opened.errors(), result);
    folder.emplace(std::move(*opened));
  }

  Planned straightforward = trace.stage("plan", [&] { return make_plan(program, program.graph, *target); });
  MIRAGE_ASSERT(straightforward.plan) << "the straightforward program always has a plan: " << straightforward.reason;
  const std::string key = decision_key(program, o, MIRAGE_VERSION);
  Result<std::optional<Recalled>> recalled = trace.stage("verify", [&] { return recall(whole, *target, o, key, verification_seed(program, o)); });
  if (!recalled) return failed(recalled.errors(), result);
  if (!*recalled && o.frozen) return failed({not_decided(program, o)}, result);
  std::optional<Checkpoint> checkpoint;
  if (!o.checkpoint.empty()) {
    Result<Checkpoint> opened = Checkpoint::open(o.checkpoint, key);
    if (!opened) return failed(opened.errors(), result);
    checkpoint.emplace(std::move(*opened));
  }
  Checkpoint* const kept = checkpoint ? &*checkpoint : nullptr;
  Found found = *recalled ? found_before(**recalled, program) : trace.stage("search", [&] { return search_and_verify(program, *target, o, kept, trace, listener); });
  count_search(found.report, trace, listener);
  if (!found.judge.empty()) not_done.push_back(found.judge);
  trace.product("search", program.name + ".txt", [&] { return explain_search(found.report); });

  Choices choices = *recalled ? std::move((*recalled)->choices) : trace.stage("choose", [&] { return choose_numbers(found.candidates, program, *target, {}, num_threads(o.jobs), trace); });
  std::map<std::string, GateResult> gated;
  const auto gate = [&](const Plan& plan, Decision& d) { return run_gate(program, run_hints(o).any() ? with_hints(plan, run_hints(o)) : plan, *target, o, d, not_done, gated); };
  Decision decision = trace.stage("verify", [&] { return decide(choices, found, folding, *straightforward.plan, gate, o, not_done); });
  if (*recalled && (*recalled)->stitched) use_pieces(decision, std::move(*(*recalled)->stitched), *straightforward.plan, gate, not_done);
  else if (!*recalled) trace.stage("partition", [&] { try_pieces(decision, folding, *target, *straightforward.plan, gate, o, kept, not_done, trace, listener); });
  if (kept)
    for (const Diagnostic& d : kept->write()) {
      result.diagnostics.push_back(d);
      result.exit = more_severe(result.exit, exit_code_of(d.code));
    }
  if (!decision.choice && !decision.stitched())
    if (const GateResult g = trace.stage("verify", [&] { return gate(*straightforward.plan, decision); }); g.kind == GateResult::Kind::kFailed)
      return failed({{Severity::kError, DiagCode::kEmulation, {}, "the straightforward kernels are wrong: " + g.text, {}}}, result);
  const Measured measured = measure(decision, choices, *straightforward.plan, whole, *target, o, trace, listener);
  decide_by_measurement(decision, measured, choices, found, folding, gate, o, not_done);
  if (run_hints(o).any()) decision.tuned = with_hints(decision.plan(*straightforward.plan), run_hints(o));
  const Graph& graph = decision.graph(program);
  const Plan& plan = decision.plan(*straightforward.plan);
  if (decision.partition) trace.product("partition", program.name + ".txt", [&] { return explain_partition(*decision.partition); });
  trace.product("choose", program.name + ".graph", [&] { return print(graph, program.name); }, [&] { return check_laws(graph); });
  trace.product("plan", program.name + ".txt", [&] { return print(plan); });
  tell(listener.progress, fmt::format("plan: {} plans of {} verified graphs; {} kernel{}, {:.2f} us predicted", trace.counted(Stat::kPlans), found.candidates.size(), plan.kernels.size(), plan.kernels.size() == 1 ? "" : "s", plan.predicted_us));

  if (o.self_test) tell(listener.print, to_string(trace.stage("self-test", [&] { return run_self_test(program, plan, *target, find_host_compiler(), 48, verification_seed(program, o)); })));

  CudaModule module = trace.stage("emit", [&] { return emit_module(whole, plan, *target, {result_options_line(o), MIRAGE_VERSION}); });
  trace.count(Stat::kKernels, static_cast<int64_t>(plan.kernels.size()));
  trace.count(Stat::kSourceBytes, static_cast<int64_t>(module.files.at(module.name + ".cu").size()));
  trace.product("emit", module.name + ".cu", [&] { return module.files.at(module.name + ".cu"); });
  const bool is_whole = !*recalled && !is_interrupted(listener) && found.report.stop_reason != "time" && !(decision.partition && decision.partition->search.stop_reason == "time");
  CompileResult written = write_result(std::move(result), o, source, folding, *target, found, choices, decision, *straightforward.plan, measured, module, std::move(not_done), folder, trace, listener);
  if (is_whole)   // what a clock cut short is not kept
    for (const Diagnostic& d : keep(program, o, key, written.certificate)) {
      if (d.severity == Severity::kError) return failed({d}, std::move(written));
      written.diagnostics.push_back(d);
    }
  return written;
}

}  // namespace mirage
