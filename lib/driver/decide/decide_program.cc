// decide_program(); see the header. The stages in their order, for one program.
#include "driver/decide/decide_program.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "driver/decide/candidates.h"
#include "driver/evidence/checkpoint.h"
#include "driver/emulation/emulation.h"
#include "driver/memory_end.h"
#include "driver/proof/pass_steps.h"
#include "driver/report/report.h"
#include "driver/evidence/reuse.h"
#include "driver/decide/unsettled.h"
#include "driver/decide/search_options.h"
#include "driver/decide/z3_judge.h"
#include "mirage/ir/stabilize.h"
#include "mirage/plan/describe.h"
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

/// Verifies what the search hands out, and enters it into `f`.
SinkVerdict take_structure(const Structure& s, const Program& program, const Options& o, std::chrono::steady_clock::time_point start,
                           Found& f, Trace& trace, const Listener& listener) {
  Examined given_up;
  given_up.reason = kMemoryEnded;
  Examined e = trace.stage("verify", [&] {
    return unless_memory_ends([&] { return examine_stable(s, program, f.witnesses, verification_seed(program, o)); }, std::move(given_up));
  });
  trace.count(Stat::kCandidates);
  trace.count(e.verdict == SinkVerdict::kVerified   ? Stat::kVerified
              : e.verdict == SinkVerdict::kRejected ? Stat::kRejected
                                                    : Stat::kUnknown);
  if (e.numeric) trace.count(Stat::kNumericDropped);
  if (e.verdict == SinkVerdict::kVerified) {
    trace.product("verify", fmt::format("{}.graph", s.rank),
                  [&] { return print(e.candidate.structure.graph, fmt::format("structure_{}", s.rank)); });
    e.candidate.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    f.candidates.push_back(std::move(e.candidate));
    tell(listener.live,
         fmt::format("search: {} verified, at best {} kernels", f.candidates.size(), f.candidates.front().structure.kernels));
  } else if (f.dropped.size() < 8) {
    f.dropped.push_back(fmt::format("structure {}: {}", s.rank, e.reason));
  }
  return e.verdict;
}

/// Searches, and verifies every candidate as it comes; or has what is known (memory, which may be null).
Found search_and_verify(const Program& program, const Target& target, const Options& o, Checkpoint* checkpoint, SearchMemory* memory,
                        Trace& trace, const Listener& listener) {
  Found f;
  f.witnesses = make_witnesses(program);
  if (o.states == 0 || !f.witnesses.refusal.empty()) {
    f.report.complete = false;
    f.report.stop_reason = o.states == 0 ? "not searched: --states 0" : kInPieces + f.witnesses.refusal;
    return f;
  }
  Program unshifted = program;  // the search's algebra has no use for maxima that cancel; what it finds is compared with the program itself
  unshifted.graph = unshift(program.graph);
  const std::string problem = memory ? SearchMemory::problem_of(program, f.witnesses, 0) : "";
  if (auto known = memory ? memory->find(problem, program, unshifted) : std::nullopt) {
    f.candidates = std::move(known->candidates);
    f.report = std::move(known->report);
    return f;
  }
  std::mutex mutex;
  const auto start = std::chrono::steady_clock::now();
  const auto sink = [&](const Structure& s) {
    std::lock_guard lock(mutex);
    if (is_interrupted(listener)) return SinkVerdict::kUnknown;
    return take_structure(s, program, o, start, f, trace, listener);
  };
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
  if (memory) memory->keep(problem, program, f.candidates, f.report);
  if (z3.counts)
    f.judge = fmt::format("--prune=z3: {} questions: {} proved, {} refuted, {} without an answer and kept", z3.counts->asked,
                          z3.counts->proved, z3.counts->refuted, z3.counts->open);
  return f;
}

void count_search(const SearchReport& r, Trace& trace, const Listener& listener) {
  int64_t closed = 0;
  for (const GateCount& g : r.gates) closed += g.closed;
  trace.count(Stat::kStates, r.states);
  trace.count(Stat::kClosed, closed);
  trace.count(Stat::kSearchBytes, r.peak_bytes);
  tell(listener.progress, fmt::format("search: {} states{}, {} closed, {} candidates: {} verified, {} rejected, {} unknown ({})", r.states,
                                      r.seconds > 0.01 ? fmt::format(" ({:.0f}/s)", static_cast<double>(r.states) / r.seconds) : "", closed,
                                      r.candidates, r.verified, r.rejected, r.unknown, r.stop_reason));
}

Diagnostic not_decided(const Program& program, const Options& o) {
  std::vector<std::string> where;
  if (!o.lock.empty()) where.push_back("the lock " + o.lock);
  if (!o.cache.empty() && !o.no_cache) where.push_back("the cache " + o.cache);
  Diagnostic d{Severity::kError,
               DiagCode::kNotDecided,
               {},
               fmt::format("--frozen: '{}' is not decided by {}", program.name,
                           where.empty() ? "anything: give --lock or --cache" : fmt::format("{}", fmt::join(where, " or "))),
               {}};
  const std::string own = result_options_line(o);
  for (const std::string& other : options_in_lock(program, o))
    d.notes.push_back({{},
                       fmt::format("the lock has '{}' with {}, this run is with {}", program.name, other.empty() ? "no options" : other,
                                   own.empty() ? "none" : own)});
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

/// The stages for one program, each a step that leaves its product in the Decided.
class Decides {
 public:
  Decides(const DecideRun& run, Trace& trace, const Listener& listener, const BetterSink& better)
      : run_(run), o_(run.options), target_(run.target), trace_(trace), listener_(listener), better_(better) {}

  Result<std::unique_ptr<Decided>> run(const Program& program) {
    d_.folding = trace_.stage("parse", [&] { return fold_verified(program); });
    show_program();
    plan_straightforward();
    if (Diagnostics errors = recall_or_search(); !errors.empty()) return errors;
    if (Diagnostics errors = decide_what_wins(); !errors.empty()) return errors;
    if (Diagnostics errors = measure_and_gate(); !errors.empty()) return errors;
    show_result();
    return std::move(made_);
  }

 private:
  const Program& whole() const { return d_.folding.whole; }
  const Program& program() const {
    return d_.folding.program;
  }  // dimensions that go together are one: what is searched, planned and emulated
  const Plan& straightforward() const { return *d_.straightforward.plan; }
  GateResult gate(const Plan& plan, Decision& d) {
    return run_gate(program(), run_hints(o_).any() ? with_hints(plan, run_hints(o_)) : plan, target_, run_.gates, d, d_.not_done, gated_);
  }
  PlanGate gate() {
    return [this](const Plan& plan, Decision& d) { return gate(plan, d); };
  }
  void best_is(const Decision& d) { if (better_) better_(d_, d_.found, d_.choices, d); }

  void show_program() {
    trace_.count(Stat::kSpecNodes, whole().graph.num_nodes());
    trace_.product(
        "parse", whole().name + ".graph", [&] { return print(whole().graph, whole().name); }, [&] { return check_laws(whole().graph); });
  }

  void plan_straightforward() {
    d_.straightforward = trace_.stage("plan", [&] { return make_plan(program(), program().graph, target_); });
    MIRAGE_ASSERT(d_.straightforward.plan) << "the straightforward program always has a plan: " << d_.straightforward.reason;
    Decision first;
    first.why = fmt::format("the straightforward {} kernels: interrupted", straightforward().kernels.size());
    first.gates = {"not emulated: interrupted"};
    if (better_) better_(d_, d_.no_found, d_.no_choices, first);
  }

  Diagnostics recall_or_search() {
    d_.key = decision_key(program(), o_, MIRAGE_VERSION);
    const Given& given = run_.given;
    Result<std::optional<Recalled>> recalled = trace_.stage("verify", [&] {
      return given.certificate ? decided_before(decide_again(*given.certificate, d_.folding, target_, o_))
                               : recall(d_.folding, target_, o_, d_.key, d_.not_done);
    });
    if (!recalled) return recalled.errors();
    recalled_ = std::move(*recalled);
    d_.was_recalled = recalled_.has_value();
    if (!recalled_ && o_.frozen) return {not_decided(program(), o_)};
    if (!o_.checkpoint.empty()) {
      Result<Checkpoint> opened = Checkpoint::open(o_.checkpoint, d_.key);
      if (!opened) return opened.errors();
      checkpoint_.emplace(std::move(*opened));
    }
    search(run_.memory);
    return {};
  }

  void search(SearchMemory* memory) {
    d_.found = recalled_ ? found_before(*recalled_, program()) : trace_.stage("search", [&] {
      return search_and_verify(program(), target_, o_, checkpoint(), memory, trace_, listener_);
    });
    count_search(d_.found.report, trace_, listener_);
    if (!d_.found.judge.empty()) d_.not_done.push_back(d_.found.judge);
    trace_.product("search", program().name + ".txt", [&] { return explain_search(d_.found.report); });
    d_.choices = recalled_ ? std::move(recalled_->choices) : trace_.stage("choose", [&] {
      return unless_memory_ends([&] { return choose_numbers(d_.found.candidates, program(), target_, {}, num_threads(o_.jobs), trace_); },
                                Choices{});
    });
    d_.decision =
        trace_.stage("verify", [&] { return decide(d_.choices, d_.found, d_.folding, straightforward(), gate(), o_, d_.not_done); });
    if (d_.decision.choice) best_is(d_.decision);
    if (recalled_ && recalled_->stitched) use_pieces(d_.decision, std::move(*recalled_->stitched), straightforward(), gate(), d_.not_done);
    else if (!recalled_)
      trace_.stage("partition", [&] {
        try_pieces(d_.decision, d_.folding, target_, straightforward(), gate(), o_, checkpoint(), d_.not_done, trace_, listener_,
                   d_.found.report, memory);
      });
  }

  Diagnostics decide_what_wins() {
    const bool is_carried = !recalled_ && run_.memory && run_.memory->shared() > 0;
    if (is_carried && !d_.decision.choice && !d_.decision.stitched() &&
        !is_interrupted(listener_)) {  // what was found at other extents does not pay here: a search of its own
      d_.not_done.push_back("nothing that was found for other values pays for these: they were searched for themselves");
      run_.memory->count_search();
      search(nullptr);
    }
    if (checkpoint_)
      for (const Diagnostic& d : checkpoint_->write()) {
        d_.warnings.push_back(d);
        d_.exit = more_severe(d_.exit, exit_code_of(d.code));
      }
    if (recalled_ && recalled_->straightforward) d_.decision.tuned = std::move(recalled_->straightforward), d_.decision.is_divided = true;
    if (!d_.decision.choice && !d_.decision.stitched())
      if (const GateResult g = trace_.stage("verify", [&] { return gate(d_.plan(), d_.decision); }); g.kind == GateResult::Kind::kFailed)
        return {{Severity::kError, DiagCode::kEmulation, {}, "the straightforward kernels are wrong: " + g.text, {}}};
    best_is(d_.decision);
    return {};
  }

  Diagnostics measure_and_gate() {
    Decision& decision = d_.decision;
    if (!run_.given.certificate) d_.measured = measure(decision, d_.choices, straightforward(), whole(), target_, o_, trace_, listener_);
    decide_by_measurement(decision, d_.measured, d_.choices, d_.found, d_.folding, gate(), o_, d_.not_done);
    best_is(decision);
    if (run_.gates.gate == "emulate" &&
        decision.gated != GateResult::Kind::kPassed)  // asked for by name: what nobody emulated is no result
      return {{Severity::kError,
               DiagCode::kGateNotRun,
               {},
               fmt::format("--gate emulate: the kernels were {}", decision.gates.empty() ? "not emulated" : decision.gates.front()),
               {}}};
    if (run_hints(o_).any()) decision.tuned = with_hints(decision.plan(straightforward()), run_hints(o_));
    if (auto warning = unsettled_warning(decision, run_.source)) d_.warnings.push_back(std::move(*warning));
    if (recalled_ && !run_.given.certificate) remember();
    d_.is_whole = !run_.given.certificate && !is_interrupted(listener_) && d_.found.report.stop_reason != "time" &&
                  !(decision.partition && decision.partition->search.stop_reason == "time");
    return {};
  }

  /// What a run that searched said of its decision is said of it again.
  void remember() {
    const auto gate = d_.decision.gated != GateResult::Kind::kPassed ? Remembered::Gate::kNotRun
                      : d_.decision.gated_earlier                    ? Remembered::Gate::kPassedEarlier
                                                                     : Remembered::Gate::kPassed;
    d_.remembered = Remembered{recalled_->from, std::move(recalled_->told), gate};
    const nlohmann::ordered_json& told = d_.remembered->told;
    if (told.is_null() || d_.measured.result) return;
    d_.decision.why = told["why"].get<std::string>();
    d_.not_done = told["not_done"].get<std::vector<std::string>>();
  }

  void show_result() {
    const Decision& decision = d_.decision;
    const Graph& graph = decision.graph(program());
    const Plan& plan = d_.plan();
    const std::string& name = program().name;
    if (decision.partition) trace_.product("partition", name + ".txt", [&] { return explain_partition(*decision.partition); });
    trace_.product("choose", name + ".graph", [&] { return print(graph, name); }, [&] { return check_laws(graph); });
    show_passes(program(), graph, plan, target_, verification_seed(program(), o_), trace_);
    trace_.product("plan", name + ".txt", [&] { return print(plan); });
    trace_.product("schedule", name + ".schedule", [&] {
      std::string text;
      for (const KernelPlan& k : plan.kernels) text += schedule::schedule_text(k, target_);
      return text;
    });
    tell(listener_.progress,
         fmt::format("plan: {} plans of {} verified graphs; {} kernel{}, {:.2f} us predicted", trace_.counted(Stat::kPlans),
                     d_.found.candidates.size(), plan.kernels.size(), plan.kernels.size() == 1 ? "" : "s", plan.predicted_us));
  }

  Checkpoint* checkpoint() { return checkpoint_ ? &*checkpoint_ : nullptr; }

  const DecideRun& run_;
  const Options& o_;
  const Target& target_;
  Trace& trace_;
  const Listener& listener_;
  const BetterSink& better_;
  std::unique_ptr<Decided> made_ = std::make_unique<Decided>();
  Decided& d_ = *made_;
  std::optional<Recalled> recalled_;
  std::optional<Checkpoint> checkpoint_;
  std::map<std::string, GateResult> gated_;
};

}  // namespace

Found interrupted_search() {
  Found none;
  none.report.complete = false;
  none.report.stop_reason = "not searched: interrupted";
  return none;
}

Result<std::unique_ptr<Decided>> decide_program(const Program& program, const DecideRun& run, Trace& trace, const Listener& listener,
                                                const BetterSink& better) {
  return Decides(run, trace, listener, better).run(program);
}

}  // namespace mirage
