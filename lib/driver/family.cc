// compile_family(): every point is decided as one program is (decide_program.cc), the hints' first; then one module, one report and one
// certificate with a part per point. See the header.
#include "driver/family.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "driver/toolchain/build.h"
#include "driver/emulation/emulation.h"
#include "driver/output/family_files.h"
#include "driver/output/outputs.h"
#include "driver/report/report.h"
#include "driver/evidence/reuse.h"
#include "driver/evidence/remembered.h"
#include "driver/gate/self_test.h"
#include "driver/toolchain/toolchain.h"
#include "driver/output/write_result.h"
#include "mirage/ir/prefix.h"
#include "mirage/spec/json_text.h"
#include "mirage/support/worker_pool.h"

namespace mirage {

namespace {

/// What is known of a point; a run that ends early has some that were not reached.
struct Reached {
  const Decided* decided = nullptr;
  const Found* found = nullptr;
  const Choices* choices = nullptr;
  std::shared_ptr<const Decision> decision;
};

/// The straightforward library of a point that was not reached.
std::unique_ptr<Decided> not_reached(const Program& program, const Target& target) {
  auto d = std::make_unique<Decided>();
  d->folding = fold_verified(program);
  d->straightforward = make_plan(d->folding.program, d->folding.program.graph, target);
  d->found = interrupted_search();
  d->decision.why = "the straightforward kernels: interrupted";
  d->decision.gates = {"not emulated: interrupted"};
  return d;
}

class FamilyCompiler {
 public:
  FamilyCompiler(const Family& family, const DecideRun& run, const Source& source, std::optional<OutputFolder>& folder, Trace& trace,
                 const Listener& listener)
      : family_(family),
        run_(run),
        source_(source),
        folder_(folder),
        trace_(trace),
        listener_(listener),
        decided_(family.points.size()),
        reached_(family.points.size()) {}

  CompileResult compile(CompileResult result) {
    if (run_.options.alternatives > 0) return failed({one_value("--alternatives")}, std::move(result));
    if (listener_.best && folder_)   // whoever writes in the last two seconds of a run has no time to plan
      for (const SpecPoint& p : family_.points) unreached_.push_back(not_reached(p.program, run_.target));
    if (Diagnostics errors = decide_all(); !errors.empty()) return failed(errors, std::move(result));
    for (size_t p = 0; p < decided_.size(); p++) {
      for (Diagnostic d : decided_[p]->warnings) {
        d.notes.push_back({{}, "with " + point_text(family_.axes, family_.points[p].values)});
        result.diagnostics.push_back(std::move(d));
      }
      result.exit = more_severe(result.exit, decided_[p]->exit);
    }
    if (run_.options.self_test) self_test();
    std::vector<ResultOfPoint> points;
    for (size_t p = 0; p < decided_.size(); p++) {
      const Decided& d = *decided_[p];
      points.push_back(
          {family_.points[p].values, d.folding, d.found, d.choices, d.decision, *d.straightforward.plan, d.measured, d.not_done,
           d.remembered ? &*d.remembered : nullptr});
    }
    const FamilyCounts counts = counts_of_searches();
    CompileResult written =
        write_family(std::move(result), run_.options, source_, {family_.axes, is_padded(), points, family_.hint, run_.target, counts},
                     folder_, trace_, listener_);
    for (size_t p = 0; p < decided_.size(); p++)
      if (decided_[p]->is_whole && !run_.options.frozen)
        for (const Diagnostic& e : keep(decided_[p]->folding.program, options_of_point(p), decided_[p]->key, written.certificates[p],
                                        told_of_point(p, written.report, counts))) {
          if (e.severity == Severity::kError) return failed({e}, std::move(written));
          written.diagnostics.push_back(e);
        }
    return written;
  }

 private:
  /// Of a run that recalls all points: what was counted when they were decided, which the hint's decision keeps.
  FamilyCounts counts_of_searches() const {
    const auto is_recalled = [](const std::unique_ptr<Decided>& d) { return d->remembered.has_value(); };
    if (std::all_of(decided_.begin(), decided_.end(), is_recalled)) {
      const nlohmann::ordered_json& told = decided_[family_.hint]->remembered->told;
      const auto count = [&](const char* key) {
        return told.contains(key) && told[key].is_number_integer() ? told[key].get<int64_t>() : int64_t{0};
      };
      return {count("family_searches"), count("family_carried_over")};
    }
    return {memory_.searched(), memory_.shared()};
  }
  nlohmann::ordered_json told_of_point(size_t p, const std::string& report, const FamilyCounts& counts) const {
    if (decided_[p]->remembered) return decided_[p]->remembered->told;
    if (report.empty()) return nullptr;
    nlohmann::ordered_json told = told_of(own_json(report)["points"][p], decided_[p]->not_done);
    if (p != family_.hint) return told;
    told["family_searches"] = counts.searched;
    told["family_carried_over"] = counts.shared;
    return told;
  }

  Diagnostic one_value(const char* flag) const {
    const VarAxis& axis = family_.axes.front();
    return {Severity::kError,
            DiagCode::kAxisValues,
            axis.where,
            fmt::format("{} works with one value of axis '{}', which has {}", flag, axis.name, axis.values.size()),
            {{{}, fmt::format("choose it: --bind {}={}", axis.name, axis.hint)}}};
  }

  /// Of the program at the point: its decision is that of a spec whose axes are constants, so that lock and cache are shared with it.
  Options options_of_point(size_t p) const {
    Options o = run_.options;
    o.bind.clear(), o.values.clear();
    if (!o.checkpoint.empty()) o.checkpoint += "." + point_label(family_.axes, family_.points[p].values);
    return o;
  }

  /// The hints first, which fills the memory; then the first point of each other kind that has several, one after another, since what it
  /// finds is for the rest; then all others, at once.
  Diagnostics decide_all() {
    std::vector<size_t> leaders = {family_.hint}, others;
    std::map<std::string, std::vector<size_t>> kinds;
    std::vector<std::string> kind;
    for (size_t p = 0; p < family_.points.size(); p++) kinds[kind.emplace_back(kind_of(p))].push_back(p);
    for (size_t p = 0; p < family_.points.size(); p++) {
      const std::vector<size_t>& same = kinds[kind[p]];
      if (p != family_.hint) (same.size() > 1 && same.front() == p && kind[p] != kind[family_.hint] ? leaders : others).push_back(p);
    }
    errors_.resize(family_.points.size());
    for (size_t p : leaders) {
      decide(p, trace_, true);
      memory_.next_program();
      if (!errors_[p].empty()) return errors_[p];
    }
    memory_.close();
    const bool looks_inside = !run_.options.print_after.empty() || !run_.options.dump_dir.empty();
    if (looks_inside) {
      for (size_t p : others) decide(p, trace_, true);
    } else {
      trace_.stage("others", [&] {
        parallel_for(num_threads(run_.options.jobs), static_cast<int64_t>(others.size()), [&](int64_t i) {
          Trace own;
          decide(others[static_cast<size_t>(i)], own, false);
          for (size_t s = 0; s < static_cast<size_t>(Stat::kNumStats); s++)
            trace_.count(static_cast<Stat>(s), own.counted(static_cast<Stat>(s)));
        });
      });
    }
    for (const Diagnostics& e : errors_)
      if (!e.empty()) return e;
    return {};
  }

  /// Points of one kind have the same program at witness extents, so that their searches, and those of most of their pieces, are one.
  std::string kind_of(size_t p) const {
    const Program& program = family_.points[p].program;
    const Witnesses w = make_witnesses(program);
    return w.refusal.empty() ? SearchMemory::problem_of(program, w, 0) : w.refusal;
  }

  void decide(size_t p, Trace& trace, bool tells) {
    const std::string at = point_text(family_.axes, family_.points[p].values);
    const Options o = options_of_point(p);
    Options gates = o;
    gates.gate = run_.gates.gate, gates.no_cache = run_.gates.no_cache;
    Given given = run_.given;
    if (given.points) given.certificate = &(*given.points)[p];
    SearchMemory own(&memory_);
    const DecideRun run{o, gates, run_.target, run_.source, given, &own};
    Listener listener;
    listener.interrupted = listener_.interrupted;
    listener.print = listener_.print;
    if (listener_.progress) listener.progress = [this, at](const std::string& s) { listener_.progress(at + ": " + s); };
    if (tells && listener_.live) listener.live = [this, at](const std::string& s) { listener_.live(at + ": " + s); };
    const BetterSink better = [this, p](const Decided& d, const Found& found, const Choices& choices, const Decision& decision) {
      best_is(p, {&d, &found, &choices, std::make_shared<const Decision>(decision)});
    };
    auto decided = decide_program(family_.points[p].program, run, trace, listener, better);
    if (decided) {
      decided_[p] = std::move(*decided);
    } else {
      best_is(p, {});
      errors_[p] = decided.errors();
      for (Diagnostic& d : errors_[p]) d.notes.push_back({{}, "with " + at});
    }
  }

  /// What an interrupted run writes: the best of each point, the straightforward kernels where none was reached.
  void best_is(size_t p, Reached reached) {
    std::lock_guard lock(best_mutex_);
    reached_[p] = std::move(reached);
    if (!listener_.best || !folder_) return;
    listener_.best([this, all = reached_](const Listener& l) {
      std::vector<ResultOfPoint> points;
      for (size_t i = 0; i < all.size(); i++) {
        const std::vector<int64_t>& values = family_.points[i].values;
        if (const Reached& r = all[i]; r.decided) {
          points.push_back(
              {values, r.decided->folding, *r.found, *r.choices, *r.decision, *r.decided->straightforward.plan, no_measure_, {}});
          continue;
        }
        const Decided& d = *unreached_[i];
        points.push_back({values, d.folding, d.found, d.choices, d.decision, *d.straightforward.plan, no_measure_, {}});
      }
      return write_best_family(run_.options, source_,
                               {family_.axes, std::vector<bool>(family_.axes.size()), points, family_.hint, run_.target, {}}, l);
    });
  }

  void self_test() {
    for (size_t p = 0; p < decided_.size(); p++) {
      const Decided& d = *decided_[p];
      const SelfTest t = trace_.stage("self-test", [&] {
        return run_self_test(d.folding.program, d.plan(), run_.target, find_host_compiler(), 48,
                             verification_seed(d.folding.program, run_.options));
      });
      tell(listener_.print, point_text(family_.axes, family_.points[p].values) + ":\n" + to_string(t));
    }
  }

  /// Per axis whether results may be padded along it: seen at its two largest values, or where it has one of them only, at the extent
  /// below. The others at their hints.
  std::vector<bool> is_padded() const {
    std::vector<bool> out;
    for (size_t a = 0; a < family_.axes.size(); a++) {
      const std::vector<int64_t>& values = family_.axes[a].values;
      const int64_t many = values.back(), few = values.size() > 1 && values[values.size() - 2] > 1 ? values[values.size() - 2] : many - 1;
      const std::optional<Program> with_many = program_with(a, many), with_few = few >= 1 ? program_with(a, few) : std::nullopt;
      out.push_back(with_many && with_few && keeps_prefix(with_few->graph, few, with_many->graph, many));
    }
    return out;
  }
  std::optional<Program> program_with(size_t axis, int64_t value) const {
    auto choice = read_axis_choice(run_.options.bind, run_.options.values);
    if (!choice) return std::nullopt;
    for (size_t a = 0; a < family_.axes.size(); a++) choice->bind[family_.axes[a].name] = a == axis ? value : family_.axes[a].hint;
    auto program = parse_spec(source_, *choice);
    return program ? std::optional(std::move(*program)) : std::nullopt;
  }

  const Family& family_;
  const DecideRun& run_;
  const Source& source_;
  std::optional<OutputFolder>& folder_;
  Trace& trace_;
  const Listener& listener_;
  SearchMemory memory_;
  std::vector<std::unique_ptr<Decided>> decided_;
  std::vector<Diagnostics> errors_;
  std::mutex best_mutex_;
  std::vector<Reached> reached_;
  std::vector<std::unique_ptr<Decided>> unreached_;   ///< the straightforward libraries, for a run that is interrupted
  const Measured no_measure_;
};

}  // namespace

CompileResult compile_family(const Family& family, const DecideRun& run, const Source& source, std::optional<OutputFolder>& folder,
                             CompileResult result, Trace& trace, const Listener& listener) {
  return FamilyCompiler(family, run, source, folder, trace, listener).compile(std::move(result));
}

}  // namespace mirage
