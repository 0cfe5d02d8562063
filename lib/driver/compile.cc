// compile(): the figure. A spec is read; muGraphs that may compute the same are searched, each verified; the verified ones get their numbers from the cost model; the best plan, never worse than the
// straightforward one, becomes a library (OSDI'25 figure 1).
#include "mirage/driver/compile.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "driver/candidates.h"
#include "driver/checkpoint.h"
#include "driver/compile_from.h"
#include "driver/decide.h"
#include "driver/emulation.h"
#include "driver/folding.h"
#include "driver/memory_end.h"
#include "driver/outputs.h"
#include "driver/pass_steps.h"
#include "driver/report.h"
#include "driver/reuse.h"
#include "driver/search_options.h"
#include "driver/self_test.h"
#include "driver/write_result.h"
#include "driver/z3_judge.h"
#include "mirage/ir/stabilize.h"
#include "mirage/support/file.h"
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

constexpr int64_t kCandidateNodes = 8000;   // of all candidates of a search together: each takes as long to verify as it has nodes

/// Searches, and verifies every candidate as it comes.
Found search_and_verify(const Program& program, const Target& target, const Options& o, Checkpoint* checkpoint, Trace& trace, const Listener& listener) {
  Found f;
  f.witnesses = make_witnesses(program);
  if (o.states == 0 || !f.witnesses.refusal.empty()) {
    f.report.complete = false;
    f.report.stop_reason = o.states == 0 ? "not searched: --states 0" : kInPieces + f.witnesses.refusal;
    return f;
  }
  std::mutex mutex;
  const auto start = std::chrono::steady_clock::now();
  auto sink = [&](const Structure& s) {
    std::lock_guard lock(mutex);
    if (is_interrupted(listener)) return SinkVerdict::kUnknown;
    Examined given_up;
    given_up.reason = kMemoryEnded;
    Examined e = trace.stage("verify", [&] { return unless_memory_ends([&] { return examine_stable(s, program, f.witnesses, verification_seed(program, o)); }, std::move(given_up)); });
    trace.count(Stat::kCandidates);
    trace.count(e.verdict == SinkVerdict::kVerified ? Stat::kVerified : e.verdict == SinkVerdict::kRejected ? Stat::kRejected : Stat::kUnknown);
    if (e.numeric) trace.count(Stat::kNumericDropped);
    if (e.verdict == SinkVerdict::kVerified) {
      trace.product("verify", fmt::format("{}.graph", s.rank), [&] { return print(e.candidate.structure.graph, fmt::format("structure_{}", s.rank)); });
      e.candidate.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      f.candidates.push_back(std::move(e.candidate));
      tell(listener.live, fmt::format("search: {} verified, at best {} kernels", f.candidates.size(), f.candidates.front().structure.kernels));
    } else if (f.dropped.size() < 8) {
      f.dropped.push_back(fmt::format("structure {}: {}", s.rank, e.reason));
    }
    return e.verdict;
  };
  Program unshifted = program;   // the search's algebra has no use for maxima that cancel; what it finds is compared with the program itself
  unshifted.graph = unshift(program.graph);
  SearchOptions options = search_options(o, listener);
  options.max_candidates = std::clamp<int64_t>(kCandidateNodes / program.graph.num_nodes(), 100, options.max_candidates);
  options.max_states = states_of_whole(program.graph, options.max_states);
  if (checkpoint) checkpoint->connect(options);
  Z3Judge z3;
  if (o.prune == "z3") {
    z3 = make_z3_judge();
    options.judge = z3.judge;
  }
  SearchReport ended;
  ended.complete = false;
  ended.stop_reason = "memory";
  f.report = unless_memory_ends([&] { return enumerate(unshifted, target, options, sink); }, std::move(ended));
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

Diagnostic not_decided(const Program& program, const Options& o) {
  std::vector<std::string> where;
  if (!o.lock.empty()) where.push_back("the lock " + o.lock);
  if (!o.cache.empty() && !o.no_cache) where.push_back("the cache " + o.cache);
  Diagnostic d{Severity::kError, DiagCode::kNotDecided, {}, fmt::format("--frozen: '{}' is not decided by {}", program.name, where.empty() ? "anything: give --lock or --cache" : fmt::format("{}", fmt::join(where, " or "))), {}};
  const std::string own = result_options_line(o);
  for (const std::string& other : options_in_lock(program, o))
    d.notes.push_back({{}, fmt::format("the lock has '{}' with {}, this run is with {}", program.name, other.empty() ? "no options" : other, own.empty() ? "none" : own)});
  return d;
}

/// A decision from lock or cache in the place of a search.
Found found_before(const Recalled& r, const Program& program) {
  Found f;
  f.witnesses = make_witnesses(program);
  f.candidates = r.candidates;
  f.report.stop_reason = "not searched: decided by " + r.from;
  return f;
}

Result<std::optional<Recalled>> decided_before(Result<Recalled> r) {
  if (!r) return r.errors();
  r->from = "the certificate";
  return std::optional(std::move(*r));
}

/// What the options ask for and cannot have; nullopt: nothing.
std::optional<Diagnostic> refused_option(const Options& o, const Target& target, const std::string& spec) {
  const auto usage = [](std::string text) { return Diagnostic{Severity::kError, DiagCode::kUsage, {}, std::move(text), {}}; };
  if (o.gate != "auto" && o.gate != "emulate" && o.gate != "device" && o.gate != "none") return usage(fmt::format("--gate {}: there are emulate, device, none and auto", o.gate));
  if (o.gate == "emulate" && find_host_compiler().empty()) return Diagnostic{Severity::kError, DiagCode::kToolMissing, {}, "--gate emulate: there is no C++ compiler (CXX, g++, clang++)", {}};
  if (o.write_deps)
    for (const std::string& path : {o.output, spec})
      if (const std::string what = hostile_to_make(path); !what.empty()) return usage(fmt::format("-MD: make reads {} in '{}' as something else than a part of a name; write the file under another one", what, path));
  if (o.pdl && target.sm < 90) return usage(fmt::format("--pdl: {} has no programmatic dependent launch; sm_90a and later have", target.name));
  if (o.cold && o.warm) return usage("--cold and --warm exclude each other");
  if (o.prune != "decided" && o.prune != "z3" && o.prune != "off") return usage(fmt::format("--prune: there is no way '{}'; decided, z3, off", o.prune));
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
    out.push_back("pass:lower");
    for (const PassInfo& p : pass_table()) out.push_back("pass:" + p.name);
    return out;
  }();
  return names;
}

ExitCode more_severe(ExitCode a, ExitCode b) {
  static const ExitCode order[] = {ExitCode::kOk,          ExitCode::kNothingFound, ExitCode::kBudget,      ExitCode::kFrozenMiss, ExitCode::kRegression,  ExitCode::kNotEqual,   ExitCode::kUnsupported,
                                   ExitCode::kInvalidSpec, ExitCode::kUsage,        ExitCode::kToolchain,   ExitCode::kIo,         ExitCode::kCheckFailed, ExitCode::kInterrupted, ExitCode::kTerminated,
                                   ExitCode::kBug};
  auto rank = [](ExitCode x) { return std::find(std::begin(order), std::end(order), x) - std::begin(order); };
  return rank(a) >= rank(b) ? a : b;
}

CompileResult compile(const Options& options, const Source& source, Trace& trace, const Listener& listener) { return compile_from(options, source, {}, trace, listener); }

CompileResult compile_from(const Options& options, const Source& source, const Given& given, Trace& trace, const Listener& listener) {
  CompileResult result;
  std::vector<std::string> not_done;
  Result<Target> target = resolve_target(options);
  if (!target) return failed(target.errors(), result);
  Options o = options;
  o.target = target->name;
  o.machine = target->machine == find_target(target->name)->machine ? "" : target->machine;   // of "native", too: what was decided for another machine is not for this one
  Options gates = o;   // with the gate that this run asks for
  if (given.certificate) gates.gate = given.repeat_gates ? "emulate" : "none";
  if (auto refused = refused_option(gates, *target, source.name)) return failed({*refused}, result);
  if (o.gate == "device") o.measure = true;

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
  Found none;   // should the run be told to end before there is anything
  none.report.complete = false;
  none.report.stop_reason = "not searched: interrupted";
  const Choices no_choices;
  const auto best_is = [&](const Decision& d, const Found& f, const Choices& c) {
    if (listener.best && folder) listener.best([&, best = std::make_shared<const BestSoFar>(BestSoFar{f, c, d})](const Listener& l) { return write_best(o, source, *target, folding, *straightforward.plan, *best, l); });
  };
  Decision first;
  first.why = fmt::format("the straightforward {} kernels: interrupted", straightforward.plan->kernels.size());
  first.gates = {"not emulated: interrupted"};
  best_is(first, none, no_choices);
  const std::string key = decision_key(program, o, MIRAGE_VERSION);
  Result<std::optional<Recalled>> recalled = trace.stage("verify", [&] { return given.certificate ? decided_before(decide_again(*given.certificate, folding, *target, o)) : recall(folding, *target, o, key, not_done); });
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

  Choices choices = *recalled ? std::move((*recalled)->choices) : trace.stage("choose", [&] { return unless_memory_ends([&] { return choose_numbers(found.candidates, program, *target, {}, num_threads(o.jobs), trace); }, Choices{}); });
  std::map<std::string, GateResult> gated;
  const auto gate = [&](const Plan& plan, Decision& d) { return run_gate(program, run_hints(o).any() ? with_hints(plan, run_hints(o)) : plan, *target, gates, d, not_done, gated); };
  Decision decision = trace.stage("verify", [&] { return decide(choices, found, folding, *straightforward.plan, gate, o, not_done); });
  if (decision.choice) best_is(decision, found, choices);
  if (*recalled && (*recalled)->stitched) use_pieces(decision, std::move(*(*recalled)->stitched), *straightforward.plan, gate, not_done);
  else if (!*recalled) trace.stage("partition", [&] { try_pieces(decision, folding, *target, *straightforward.plan, gate, o, kept, not_done, trace, listener, found.report); });
  if (kept)
    for (const Diagnostic& d : kept->write()) {
      result.diagnostics.push_back(d);
      result.exit = more_severe(result.exit, exit_code_of(d.code));
    }
  if (*recalled && (*recalled)->straightforward) decision.tuned = std::move((*recalled)->straightforward), decision.is_divided = true;
  if (!decision.choice && !decision.stitched())
    if (const GateResult g = trace.stage("verify", [&] { return gate(decision.plan(*straightforward.plan), decision); }); g.kind == GateResult::Kind::kFailed)
      return failed({{Severity::kError, DiagCode::kEmulation, {}, "the straightforward kernels are wrong: " + g.text, {}}}, result);
  best_is(decision, found, choices);
  const Measured measured = given.certificate ? Measured{} : measure(decision, choices, *straightforward.plan, whole, *target, o, trace, listener);
  decide_by_measurement(decision, measured, choices, found, folding, gate, o, not_done);
  best_is(decision, found, choices);
  if (gates.gate == "emulate" && decision.gated != GateResult::Kind::kPassed)   // asked for by name: what nobody emulated is no result
    return failed({{Severity::kError, DiagCode::kGateNotRun, {}, fmt::format("--gate emulate: the kernels were {}", decision.gates.empty() ? "not emulated" : decision.gates.front()), {}}}, result);
  if (run_hints(o).any()) decision.tuned = with_hints(decision.plan(*straightforward.plan), run_hints(o));
  const Graph& graph = decision.graph(program);
  const Plan& plan = decision.plan(*straightforward.plan);
  if ((decision.choice || decision.stitched()) && decision.support.kind != Verdict::Kind::kEqual)
    result.diagnostics.push_back({Severity::kWarning, DiagCode::kNotSettled, {source.name, 0, 0, 1}, "the result is equal to the program at reduced sizes only: " + decision.support.reason, {}});
  if (decision.partition) trace.product("partition", program.name + ".txt", [&] { return explain_partition(*decision.partition); });
  trace.product("choose", program.name + ".graph", [&] { return print(graph, program.name); }, [&] { return check_laws(graph); });
  show_passes(program, graph, plan, *target, verification_seed(program, o), trace);
  trace.product("plan", program.name + ".txt", [&] { return print(plan); });
  tell(listener.progress, fmt::format("plan: {} plans of {} verified graphs; {} kernel{}, {:.2f} us predicted", trace.counted(Stat::kPlans), found.candidates.size(), plan.kernels.size(), plan.kernels.size() == 1 ? "" : "s", plan.predicted_us));

  if (o.self_test) tell(listener.print, to_string(trace.stage("self-test", [&] { return run_self_test(program, plan, *target, find_host_compiler(), 48, verification_seed(program, o)); })));

  CudaModule module = trace.stage("emit", [&] { return emit_module(whole, plan, *target, module_options(o)); });
  trace.count(Stat::kKernels, static_cast<int64_t>(plan.kernels.size()));
  trace.count(Stat::kSourceBytes, static_cast<int64_t>(module.files.at(module.name + ".cu").size()));
  trace.product("emit", module.name + ".cu", [&] { return module.files.at(module.name + ".cu"); });
  const bool is_whole = !*recalled && !is_interrupted(listener) && found.report.stop_reason != "time" && !(decision.partition && decision.partition->search.stop_reason == "time");
  const ResultFacts facts{*target, folding, found, choices, decision, *straightforward.plan, measured, module};
  CompileResult written = write_result(std::move(result), o, source, facts, std::move(not_done), folder, trace, listener);
  if (is_whole)   // what a clock cut short is not kept
    for (const Diagnostic& d : keep(program, o, key, written.certificate)) {
      if (d.severity == Severity::kError) return failed({d}, std::move(written));
      written.diagnostics.push_back(d);
    }
  return written;
}

}  // namespace mirage
