// From cuts to a stitched program: what each piece costs, the cheapest way through the states, and which of them hold in the whole
// (stitch.cc). See the header.
#include "driver/pieces/partition.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "driver/memory_end.h"
#include "driver/pieces/piece_program.h"
#include "driver/pieces/reduced.h"
#include "mirage/ir/contraction.h"
#include "mirage/ir/stabilize.h"
#include "mirage/support/worker_pool.h"
#include "mirage/plan/call_plans.h"
#include "mirage/plan/passes.h"

namespace mirage {

namespace {

constexpr double kNoTime = std::numeric_limits<double>::infinity();
constexpr size_t kMaxForms = 1000;       // distinct pieces, each planned at least
constexpr size_t kMaxSearched = 400;     // of these, searched: those that may gain most
constexpr size_t kAtOnce = 8;            // pieces that are searched longer before it is asked again which
constexpr int64_t kLonger = 4;           // times as long
constexpr int kIdleRounds = 2;           // of such pieces in a row after which no way through all of them is cheaper: more bring nothing
constexpr int64_t kMinStates = 20'000;   // of one piece
constexpr int64_t kManyOperators = 24;   // the search of a whole that finds something with more finds it early: its parts are alike
constexpr double kMayGain = 0.02;        // of its straightforward time, at least, if a piece took no longer than its bytes and products do
constexpr size_t kOthers = 3;            // other ways through two steps that are planned with the whole
constexpr double kNearUs = 1.5;          // what they may cost more by themselves
constexpr double kBesideUs = 2.5;        // launch, prologue and tail of a weight stream, which calls beside each other have once
constexpr double kMostOfOne = 1.5;       // of the straightforward kernels' time: what a structure of one kernel may cost by itself
constexpr double kLeastGainUs = 0.5;     // of a whole
// what a structure must cost at most of the straightforward kernels: less is the cost model's noise
constexpr double kWorthwhile = 0.96;

/// A structure with its numbers, and what its plan costs.
struct Numbered {
  Structure structure;
  std::vector<CallNumbers> numbers;
  double us = kNoTime;
};

/// What is known of one distinct piece.
struct Evaluated {
  double straightforward_us = kNoTime, us = kNoTime;
  int kernels = 0, straightforward_kernels = 0;
  std::optional<Structure> structure;   ///< faster than the straightforward kernels
  std::vector<CallNumbers> numbers;
  /// the cheapest structure that is one kernel, whether it pays by itself or not: beside others of its kind it may
  std::optional<Numbered> one;
  std::vector<Candidate> candidates;    ///< verified, their claims dropped
  SearchReport search;
  std::string refusal;                  ///< why it was not searched, if it was to be
  double may_gain_us = 0;               ///< over the time that its bytes and products take
  bool thorough = false;                ///< its numbers were chosen with more plans
};

/// Few plans per piece while the cut is looked for; the pieces of the cheapest one get what a whole program gets.
constexpr int64_t kWholePlans = 1000;
constexpr NumberLimits kQuick{24, 96}, kThorough{};

/// What is known of calls of pieces: whoever searches one again, or with more plans, asks for much that was planned.
class PieceCalls {
 public:
  CallPlans& of(const Program& p) {
    const ContractRule rule = contract_rule(p);
    std::lock_guard lock(mutex_);
    return by_rule_[{rule.narrow, rule.tf32}];
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<DType, bool>, CallPlans> by_rule_;
};

/// Numbers for the verified structures of a piece: the cheapest that pays and holds, and the cheapest of one kernel.
void choose(Evaluated& e, const Program& planned, const Program& program, const Witnesses& witnesses, const Target& target,
            const NumberLimits& limits, int threads, uint64_t seed, Trace& trace, PieceCalls& calls) {
  const Choices choices = choose_numbers(e.candidates, planned, target, limits, threads, trace, &calls.of(planned));
  for (const Choice& c : choices.best) {
    const double us = c.plan.predicted_us;
    // the plan may have made rows a kernel of their own
    const bool pays = us <= kWorthwhile * e.straightforward_us && us < e.us,
               is_one = e.candidates[c.candidate].structure.kernels == 1 && (!e.one || us < e.one->us);
    if (us > kMostOfOne * e.straightforward_us) break;
    if (!pays && !is_one) continue;
    const Structure& s = e.candidates[c.candidate].structure;
    if (!verify_instance(s, c.numbers, program, witnesses, seed).refusal.empty()) continue;
    if (is_one) e.one = {s, c.numbers, us};
    if (!pays) continue;
    e.us = us;
    e.kernels = static_cast<int>(c.plan.kernels.size());
    e.structure = s;
    e.numbers = c.numbers;
    if (e.one) break;
  }
}

Evaluated plan_piece(const PiecePrograms& programs, const Piece& piece, const Target& target, PieceCalls& calls) {
  Evaluated out;
  const Program planned = programs.of(piece, false);
  Planned plain = make_plan(planned, planned.graph, target, {}, calls.of(planned));
  MIRAGE_ASSERT(plain.plan) << "a piece always has a straightforward plan: " << plain.reason;
  out.straightforward_us = out.us = plain.plan->predicted_us;
  out.kernels = out.straightforward_kernels = static_cast<int>(plain.plan->kernels.size());
  double bytes = 0, flops = 0;
  for (const auto* list : {&planned.inputs, &planned.outputs})
    for (const TensorInfo& t : *list) bytes += static_cast<double>(t.type.dims.elements() * dtype_bytes(t.type.dtype));
  for (const KernelPlan& k : plain.plan->kernels) flops += k.flops;
  const double floor = target.launch_us + std::max(bytes / target.dram_bytes_per_us, flops / target.tensor_flops_per_us);
  out.may_gain_us = std::max(0.0, out.straightforward_us - floor);
  return out;
}

/// Verified structures of a piece, from the memory or by a search. memory: with the round; may be null.
std::vector<Candidate> piece_candidates(Evaluated& out, const Program& program, const Witnesses& witnesses, const Target& target,
                                        const SearchOptions& options, uint64_t seed, SearchMemory* memory, int round) {
  Program unshifted = program;   // as compile() does for whole programs
  unshifted.graph = unshift(program.graph);
  const std::string problem = memory ? SearchMemory::problem_of(program, witnesses, round) : "";
  if (auto known = memory ? memory->find(problem, program, unshifted) : std::nullopt) {
    out.search = std::move(known->report);
    return std::move(known->candidates);
  }
  std::vector<Candidate> candidates;
  out.search = enumerate(unshifted, target, options, [&](const Structure& s) {
    if (options.stop && options.stop->load()) return SinkVerdict::kUnknown;
    Examined e = examine_quickly(s, witnesses, seed);   // choose() examines what is chosen
    if (e.verdict == SinkVerdict::kVerified) candidates.push_back(std::move(e.candidate));
    return e.verdict;
  });
  if (memory) memory->keep(problem, program, candidates, out.search);
  return candidates;
}

void search_piece(Evaluated& out, const PiecePrograms& programs, const Piece& piece, const Target& target, const SearchOptions& options,
                  uint64_t seed, Trace& trace, SearchMemory* memory, int round, PieceCalls& calls) {
  const Program program = programs.of(piece, true), planned = programs.of(piece, false);
  const Witnesses witnesses = make_witnesses(program);
  out.refusal = witnesses.refusal;
  if (!out.refusal.empty()) return;
  out.candidates = piece_candidates(out, program, witnesses, target, options, seed, memory, round);
  choose(out, planned, program, witnesses, target, kQuick, 1, seed, trace, calls);
}

/// The operators of a piece in words.
std::string describe(const Graph& g) {
  std::map<std::string, int> seen;
  std::string out;
  for (const Node& n : g.nodes()) {
    if (std::holds_alternative<Input>(n.op) || std::holds_alternative<Output>(n.op) || std::holds_alternative<Const>(n.op)) continue;
    const auto* map = std::get_if<Map>(&n.op);
    out += (out.empty() ? "" : ", ") + std::string(map ? map_info(map->fn).name : form_name(n.op));
  }
  return out;
}

void add_to(SearchReport& sum, const SearchReport& r) {
  sum.states += r.states, sum.effort += r.effort, sum.candidates += r.candidates, sum.verified += r.verified, sum.rejected += r.rejected,
      sum.unknown += r.unknown;
  for (size_t g = 0; g < sum.gates.size(); g++) {
    if (sum.gates[g].closed == 0) sum.gates[g].first_example = r.gates[g].first_example;
    sum.gates[g].closed += r.gates[g].closed;
  }
  sum.complete = sum.complete && r.complete;
  sum.seconds += r.seconds;
  sum.max_block_ops_used = std::max(sum.max_block_ops_used, r.max_block_ops_used);
  sum.peak_bytes = std::max(sum.peak_bytes, r.peak_bytes);
}

std::vector<std::vector<CallNumbers>> numbers_of(const std::vector<Replaced>& pieces) {
  std::vector<std::vector<CallNumbers>> out;
  for (const Replaced& r : pieces) out.push_back(r.numbers);
  return out;
}

/// Everything of one program on its way through the states.
class Partitioner {
 public:
  Partitioner(const Program& program, const Target& target, const Plan& straightforward, const SearchOptions& options, uint64_t seed,
              Trace& trace, const std::function<void(const std::string&)>& tell, bool is_searched, SearchMemory* memory,
              Spreading spreading)
      : program_(program),
        programs_(program),
        g_(program.graph),
        target_(target),
        piece_target_(without(target, Pass::kShort)),
        straightforward_(straightforward),
        options_(options),
        seed_(seed),
        trace_(trace),
        tell_(tell),
        is_searched_(is_searched),
        memory_(memory),
        spreading_(spreading) {}

  Partitioned run() {
    if (options_.max_seconds > 0)
      deadline_ = std::chrono::steady_clock::now() +
                  std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(options_.max_seconds));
    classes_ = extent_classes(g_);
    cuts_ = find_cuts(g_, spreading_);
    out_.units = static_cast<int>(cuts_.units.size());
    if (out_.units < (is_searched_ ? 2 : 1)) return refuse("there is nothing to cut");
    for (CutLimits limits;; limits.sets = std::max(1, limits.sets / 2)) {   // very wide programs have too many sets
      graph_ = enumerate_cuts(cuts_, g_, limits);
      if (find_forms() <= kMaxForms || limits.sets == 1) break;
    }
    out_.cuts = static_cast<int>(graph_.cuts.size());
    out_.states = static_cast<int>(graph_.steps.size());
    evaluate();
    if (is_stopped()) return refuse("interrupted");
    settle();
    return std::move(out_);
  }

 private:
  Partitioned refuse(const std::string& why) {
    out_.refusal = why;
    return std::move(out_);
  }
  bool is_stopped() const { return options_.stop && options_.stop->load(); }
  bool is_late() const { return deadline_ && std::chrono::steady_clock::now() > *deadline_; }

  /// Makes the pieces; how many distinct ones there are.
  size_t find_forms() {
    pieces_.clear(), form_.clear(), first_.clear();
    std::map<std::string, size_t> known;
    for (size_t c = 0; c < graph_.cuts.size(); c++) {
      pieces_.push_back(make_piece(cuts_, graph_.cuts[c], g_, classes_));
      const auto [at, is_new] = known.try_emplace(programs_.of(pieces_[c], false).canonical, first_.size());
      if (is_new) first_.push_back(c);
      form_.push_back(at->second);
    }
    return first_.size();
  }

  /// Whether a search of a distinct piece may lead to something: it contracts, it is not what was searched before, and it takes longer than
  /// its bytes and products do.
  bool is_worth_searching(size_t form) const {
    const Cut& cut = graph_.cuts[first_[form]];
    const bool contracts =
        std::any_of(cut.units.begin(), cut.units.end(), [&](int u) { return cuts_.units[static_cast<size_t>(u)].contracts; });
    const Evaluated& e = evaluated_[form];
    const bool is_known = is_searched_ && cut.units.size() == cuts_.units.size() && alone().empty();
    return contracts && !is_known && e.may_gain_us > kMayGain * e.straightforward_us;
  }
  /// The operators that no search takes, and how often: what is around them is less than the whole.
  std::map<std::string, int> alone() const {
    std::map<std::string, int> out;
    for (NodeId n = 0; n < g_.num_nodes(); n++)
      if (cuts_.unit_of[static_cast<size_t>(n)] < 0 && !cuts_.is_free[static_cast<size_t>(n)] &&
          !cuts_.is_constant[static_cast<size_t>(n)] && !g_.form<Output>(n) && !g_.form<Iota>(n))
        out[form_name(g_.node(n).op)]++;
    return out;
  }

  /// Every distinct piece once: equal layers cost once. Planned first; then searched, those that may gain most at first, and longer.
  void evaluate() {
    evaluated_.resize(first_.size());
    out_.distinct = static_cast<int>(first_.size());
    parallel_for(options_.threads, static_cast<int64_t>(first_.size()), [&](int64_t i) {
      evaluated_[static_cast<size_t>(i)] = plan_piece(programs_, pieces_[first_[static_cast<size_t>(i)]], piece_target_, piece_calls_);
    });
    std::vector<size_t> worth;
    for (size_t f = 0; f < first_.size(); f++)
      if (is_worth_searching(f)) worth.push_back(f);
    most_first(worth);
    worth.resize(std::min(worth.size(), kMaxSearched));
    const int64_t all = options_.max_states;
    longest_.assign(first_.size(), std::clamp(all / 2 / std::max<int64_t>(1, static_cast<int64_t>(worth.size())), std::min(kMinStates, all),
                                              std::max(kMinStates, all / 32)));
    spent_.assign(first_.size(), 0);
    search_forms(worth, 1);
    search_longer(worth);
    note_refusals();
    out_.search.stop_reason = is_late() ? "time" : "exhausted";
    for (const Evaluated& e : evaluated_) {
      add_to(out_.search, e.search);
      if (!e.search.stop_reason.empty() && e.search.stop_reason != "exhausted" && out_.search.stop_reason == "exhausted")
        out_.search.stop_reason = e.search.stop_reason;
    }
  }
  /// Once more, and longer, those that were cut short: each gets effort in proportion to what it may still gain for its size (a large piece
  /// may gain what its parts do), as far as `max_states` for all of them goes.
  void search_longer(std::vector<size_t> forms) {
    const int64_t all = options_.max_states, most = std::max(kMinStates, all / 8);
    int64_t left = all;
    for (size_t f : forms) left -= spent_[f];
    const auto turn = [&](size_t f) {
      return may_still_gain(f) / static_cast<double>(graph_.cuts[first_[f]].units.size()) / static_cast<double>(spent_[f] + 1);
    };
    double way_us = cheapest_us();
    for (int round = 2, idle = 0; left > 0 && idle < kIdleRounds && !is_late() && !is_stopped(); round++) {
      std::erase_if(forms, [&](size_t f) {
        return evaluated_[f].search.stop_reason != "states" || longest_[f] >= most || may_still_gain(f) <= kMayGain * evaluated_[f].us;
      });
      std::stable_sort(forms.begin(), forms.end(), [&](size_t a, size_t b) { return turn(a) > turn(b); });
      std::vector<size_t> now;
      for (size_t f : forms) {
        if (now.size() >= kAtOnce || left <= 0) break;
        longest_[f] = std::min(most, kLonger * longest_[f]);
        left -= longest_[f];
        now.push_back(f);
      }
      if (now.empty()) return;
      const auto sum = [&] { int64_t n = 0; for (size_t f : now) n += spent_[f]; return n; };
      const int64_t before = sum();
      search_forms(now, round);
      for (size_t f : now) left += longest_[f];
      left -= sum() - before;
      const double us = cheapest_us();
      idle = us < way_us ? 0 : idle + 1;
      way_us = us;
    }
  }
  /// What stood alone, once each, and which pieces were planned and not searched.
  void note_refusals() {
    std::map<std::string, int> refused;
    for (const auto& [form, times] : alone())
      out_.notes.push_back(fmt::format("{} {} searched around: {} of its own where no kernel reads it as a view", times, form,
                                       times == 1 ? "a kernel" : "kernels"));
    for (const Evaluated& e : evaluated_)
      if (!e.refusal.empty()) refused[e.refusal]++;
    for (const auto& [why, times] : refused)
      out_.notes.push_back(fmt::format("{} distinct piece{} planned and not searched: {}", times, times == 1 ? "" : "s", why));
  }
  /// What was known of a piece before it was searched.
  static Evaluated plan_only(const Evaluated& e) {
    Evaluated out;
    out.straightforward_us = out.us = e.straightforward_us;
    out.kernels = e.straightforward_kernels;
    out.straightforward_kernels = e.straightforward_kernels;
    out.may_gain_us = e.may_gain_us;
    return out;
  }
  double may_still_gain(size_t f) const { return evaluated_[f].may_gain_us - (evaluated_[f].straightforward_us - evaluated_[f].us); }
  /// Those first that may still gain most.
  void most_first(std::vector<size_t>& forms) const {
    std::stable_sort(forms.begin(), forms.end(), [&](size_t a, size_t b) { return may_still_gain(a) > may_still_gain(b); });
  }
  void search_forms(const std::vector<size_t>& forms, int round) {
    std::mutex mutex;
    size_t done = 0;
    parallel_for(options_.threads, static_cast<int64_t>(forms.size()), [&](int64_t i) {
      if (!is_late() && !is_stopped()) search_form(forms[static_cast<size_t>(i)], round, forms.size());
      std::lock_guard lock(mutex);
      if (tell_) tell_(fmt::format("partition: {} of {} pieces", ++done, forms.size()));
    });
  }
  void search_form(size_t f, int round, size_t searched) {
    SearchOptions each = options_;
    each.threads = 1;
    each.max_bytes = options_.max_bytes / 16;   // many run at once, and how many must not matter
    each.max_states = longest_[f];
    if (options_.max_seconds > 0) each.max_seconds = options_.max_seconds / static_cast<double>(searched);
    std::optional<Evaluated> e = unless_memory_ends([&] {
      Evaluated found = plan_only(evaluated_[f]);
      search_piece(found, programs_, pieces_[first_[f]], piece_target_, each, seed_, trace_, memory_, round, piece_calls_);
      return std::optional(std::move(found));
    }, std::optional<Evaluated>());
    if (e) spent_[f] += e->search.effort;
    if (e && (!evaluated_[f].structure || e->us <= evaluated_[f].us)) evaluated_[f] = std::move(*e);
  }

  const Evaluated& of_cut(int c) const { return evaluated_[form_[static_cast<size_t>(c)]]; }

  /// Dynamic programme over the states, which are numbered upwards. Ties: fewer kernels, then the first way.
  /// What pieces that may stand beside each other (plan/passes/beside.cc) are counted too dear, each by itself: nothing, kBesideUs for
  /// those that compute again what others compute for themselves, too (a norm in front of several linear layers), kBesideUs for all (linear
  /// layers of one input, each with a bias of its own).
  enum class Beside { kNone, kCopies, kAll };
  struct Taken { int state, cut; };   // a step of a way, from this state; cut -1: the next unit is left to its readers
  std::vector<Taken> cheapest_way(Beside beside) const {
    struct Best { double us = kNoTime; int kernels = 0, from = -1, cut = -1; };
    std::vector<Best> best(graph_.steps.size());
    best[0].us = 0;
    for (size_t s = 0; s < graph_.steps.size(); s++) {
      if (best[s].us == kNoTime) continue;
      for (const CutStep& step : graph_.steps[s]) {
        Best b{best[s].us, best[s].kernels, static_cast<int>(s), step.cut};
        if (step.cut >= 0)
          b.us += of_cut(step.cut).us - (may_stand_beside(step.cut, beside) ? kBesideUs : 0.0), b.kernels += of_cut(step.cut).kernels;
        Best& at = best[static_cast<size_t>(step.to)];
        if (std::pair(b.us, b.kernels) < std::pair(at.us, at.kernels)) at = b;
      }
    }
    std::vector<Taken> way;
    for (int s = graph_.end; s > 0; s = best[static_cast<size_t>(s)].from)
      way.push_back({best[static_cast<size_t>(s)].from, best[static_cast<size_t>(s)].cut});
    std::reverse(way.begin(), way.end());
    return way;
  }
  double cheapest_us() const {
    double us = 0;
    for (const Taken& t : cheapest_way(Beside::kNone)) us += t.cut < 0 ? 0.0 : of_cut(t.cut).us;
    return us;
  }
  static std::vector<int> cuts_of(const std::vector<Taken>& steps) {
    std::vector<int> out;
    for (const Taken& t : steps) if (t.cut >= 0) out.push_back(t.cut);
    return out;
  }
  /// One kernel of one contraction.
  bool may_stand_beside(int c, Beside beside) const {
    const Cut& cut = graph_.cuts[static_cast<size_t>(c)];
    if (beside == Beside::kNone || (beside == Beside::kCopies && cut.copies.empty())) return false;
    return of_cut(c).structure && of_cut(c).kernels == 1 &&
           std::count_if(cut.units.begin(), cut.units.end(), [&](int u) { return cuts_.units[static_cast<size_t>(u)].contracts; }) == 1;
  }

  std::optional<Plan> plan(const std::vector<Replaced>& pieces, Graph* graph = nullptr) const {
    std::vector<ValueId> origin;
    auto whole = stitch(g_, pieces, numbers_of(pieces), &origin);
    if (!whole) return std::nullopt;
    Planned p = make_plan(program_, *whole, target_, origin, call_plans_);
    if (graph) *graph = std::move(*whole);
    return std::move(p.plan);
  }

  PieceOutcome outcome(int c) const {
    const Evaluated& e = of_cut(c);
    return {describe(pieces_[static_cast<size_t>(c)].graph),
            1,
            e.kernels,
            e.straightforward_us,
            e.us,
            e.structure.has_value(),
            e.search.states,
            e.search.verified,
            e.structure ? e.structure->states : 0};
  }

  /// A way with its structures, stitched and planned as a whole, without those that do not pay in their surroundings.
  /// chosen: per cut
  struct Way { std::vector<int> cuts; std::vector<Replaced> kept; std::vector<PieceOutcome> chosen; std::optional<Plan> plan; };
  Way along(const std::vector<int>& cuts) {
    Way out{cuts, {}, {}, {}};
    std::vector<size_t> forms;   // of the kept
    for (int c : cuts) {
      Evaluated& e = evaluated_[form_[static_cast<size_t>(c)]];
      if (!std::exchange(e.thorough, true) && !e.candidates.empty() && !is_late() && !is_stopped()) {
        const Program program = programs_.of(pieces_[static_cast<size_t>(c)], true),
                      planned = programs_.of(pieces_[static_cast<size_t>(c)], false);
        choose(e, planned, program, make_witnesses(program), piece_target_, kThorough, options_.threads, seed_, trace_, piece_calls_);
      }
      out.chosen.push_back(outcome(c));
      if (e.structure)
        out.kept.push_back({pieces_[static_cast<size_t>(c)], *e.structure, e.numbers}), forms.push_back(form_[static_cast<size_t>(c)]);
    }
    if (out.kept.empty()) return out;
    out.plan = plan(out.kept);
    const std::set<size_t> distinct(forms.begin(), forms.end());
    // the straightforward kernels around a piece may fuse better without it
    for (auto f = distinct.rbegin(); f != distinct.rend() && !is_stopped() && plans_left_ > 0; ++f, plans_left_--) {
      std::vector<Replaced> fewer;
      std::vector<size_t> their_forms;
      for (size_t i = 0; i < out.kept.size(); i++)
        if (forms[i] != *f) fewer.push_back(out.kept[i]), their_forms.push_back(forms[i]);
      std::optional<Plan> p = plan(fewer);
      if (p && (!out.plan || p->predicted_us <= out.plan->predicted_us))
        out.plan = std::move(p), out.kept = std::move(fewer), forms = std::move(their_forms);
    }
    return out;
  }

  /// For every unit that reads this cheap one, the cut that computes it again and has one kernel; empty if a reader has none.
  std::vector<int> cuts_that_copy(int unit) const {
    std::vector<int> out;
    for (int r = 0; r < static_cast<int>(cuts_.units.size()); r++) {
      const Unit& reader = cuts_.units[static_cast<size_t>(r)];
      if (!std::count(reader.direct.begin(), reader.direct.end(), unit) && !std::count(reader.through.begin(), reader.through.end(), unit))
        continue;
      const auto at = std::find(graph_.cuts.begin(), graph_.cuts.end(), Cut{{r}, {unit}});
      const int c = static_cast<int>(at - graph_.cuts.begin());
      if (at == graph_.cuts.end() || !of_cut(c).one) return {};
      out.push_back(c);
    }
    return out;
  }
  /// The way with these cuts in place of what it has for their units. as_one: with their structures of one kernel.
  Way with(const Way& way, const std::vector<int>& cuts, bool as_one) const {
    std::set<int> units;
    std::set<NodeId> nodes;
    for (int c : cuts)
      for (int u : graph_.cuts[static_cast<size_t>(c)].units) {
        units.insert(u);
        nodes.insert(cuts_.units[static_cast<size_t>(u)].nodes.begin(), cuts_.units[static_cast<size_t>(u)].nodes.end());
      }
    Way out;
    const auto is_new = [&](const auto& list, const auto& of) {
      return std::any_of(list.begin(), list.end(), [&](int x) { return of.count(x) > 0; });
    };
    for (size_t i = 0; i < way.cuts.size(); i++)
      if (!is_new(graph_.cuts[static_cast<size_t>(way.cuts[i])].units, units))
        out.cuts.push_back(way.cuts[i]), out.chosen.push_back(way.chosen[i]);
    for (const Replaced& r : way.kept)
      if (!is_new(r.piece.nodes, nodes)) out.kept.push_back(r);
    for (int c : cuts) {
      const Evaluated& e = of_cut(c);
      out.cuts.push_back(c);
      out.chosen.push_back(outcome(c));
      if (!as_one && e.structure) out.kept.push_back({pieces_[static_cast<size_t>(c)], *e.structure, e.numbers});
      if (!as_one) continue;
      PieceOutcome& said = out.chosen.back();
      said.kernels = 1, said.predicted_us = e.one->us, said.searched = true, said.found_after = e.one->structure.states;
      out.kept.push_back({pieces_[static_cast<size_t>(c)], e.one->structure, e.one->numbers});
    }
    if (!out.kept.empty()) out.plan = plan(out.kept);
    return out;
  }

  /// Other cuts, two at most, between two states, the cheapest first; none that costs over kNearUs more than the cuts there are.
  std::vector<std::vector<Taken>> others_between(const Taken& first, const Taken& second, int end) const {
    const auto us = [&](int c) { return c < 0 ? 0.0 : of_cut(c).us; };
    std::vector<std::pair<double, std::vector<Taken>>> found;
    for (const CutStep& a : graph_.steps[static_cast<size_t>(first.state)]) {
      if (a.to == end) found.push_back({us(a.cut), {{first.state, a.cut}}});
      else if (a.to < end)
        for (const CutStep& b : graph_.steps[static_cast<size_t>(a.to)])
          if (b.to == end && (a.cut != first.cut || b.cut != second.cut))
            found.push_back({us(a.cut) + us(b.cut), {{first.state, a.cut}, {a.to, b.cut}}});
    }
    std::stable_sort(found.begin(), found.end(), [](const auto& x, const auto& y) { return x.first < y.first; });
    std::vector<std::vector<Taken>> out;
    for (auto& [cost, steps] : found)
      if (out.size() < kOthers && cost <= us(first.cut) + us(second.cut) + kNearUs) out.push_back(std::move(steps));
    return out;
  }
  /// What the programme adds up is not all: kernels that start early, or stand beside others, gain what only the plan of the whole knows.
  /// So neighbours are cut otherwise where the whole is cheaper then.
  void refine(Way& way, std::vector<Taken> steps) {
    for (size_t i = 0; i + 1 < steps.size(); i++) {
      const int end = i + 2 < steps.size() ? steps[i + 2].state : graph_.end;
      for (const std::vector<Taken>& other : others_between(steps[i], steps[i + 1], end)) {
        if (is_stopped() || is_late() || plans_left_-- <= 0) return;
        Way next = with(way, cuts_of(other), false);
        if (!next.plan || !way.plan || next.plan->predicted_us >= way.plan->predicted_us) continue;
        way = std::move(next);
        steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(i), steps.begin() + static_cast<std::ptrdiff_t>(i + 2));
        steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(i), other.begin(), other.end());
        break;
      }
    }
  }
  /// A cheap unit that several linear layers read (a norm) becomes theirs, all at once, where that is cheaper: one by one each of them
  /// would compute it beside the kernel that the others still need.
  void absorb(Way& way) {
    double us = way.plan ? way.plan->predicted_us : straightforward_.predicted_us;
    for (int u = 0; u < static_cast<int>(cuts_.units.size()) && !is_stopped() && !is_late() && plans_left_ > 0; u++) {
      if (!cuts_.units[static_cast<size_t>(u)].copyable || cuts_.units[static_cast<size_t>(u)].contracts) continue;
      const std::vector<int> cuts = cuts_that_copy(u);
      if (cuts.size() < 2) continue;
      plans_left_--;
      Way other = with(way, cuts, true);
      if (!other.plan || other.plan->predicted_us >= us) continue;
      us = other.plan->predicted_us;
      way = std::move(other);
    }
  }

  /// What is predicted to gain less is as likely to lose (19.1 us measured where 18.5 were to be beaten, predicted 17.6 and 18.1).
  bool pays(const Plan& p) const {
    return p.predicted_us <= straightforward_.predicted_us - std::min(kLeastGainUs, (1 - kWorthwhile) * straightforward_.predicted_us);
  }

  /// Keeps the cheapest way's pieces if they are faster than nothing, and of these what holds in the whole.
  void settle() {
    Way way;
    std::vector<Taken> steps;
    std::vector<std::vector<int>> ways;
    for (Beside b : {Beside::kNone, Beside::kCopies, Beside::kAll}) {
      std::vector<Taken> taken = cheapest_way(b);
      const std::vector<int> cuts = cuts_of(taken);
      if (std::find(ways.begin(), ways.end(), cuts) != ways.end() || (b != Beside::kNone && is_stopped())) continue;
      ways.push_back(cuts);
      Way other = along(cuts);
      if (b == Beside::kNone ||
          (other.plan && !other.kept.empty() && (!way.plan || way.kept.empty() || other.plan->predicted_us < way.plan->predicted_us)))
        way = std::move(other), steps = std::move(taken);
    }
    refine(way, std::move(steps));
    absorb(way);
    out_.chosen = std::move(way.chosen);
    std::vector<Replaced> kept = std::move(way.kept);
    const std::optional<Plan> best = std::move(way.plan);
    if (!best || kept.empty() || !pays(*best)) return;
    Instance instance = verify_stitched(program_, kept, seed_);
    if (!instance.refusal.empty()) instance = keep_what_holds(kept, instance.refusal);
    if (kept.empty() || !instance.refusal.empty()) return;
    Stitched s{kept, {}, {}, {}, std::move(instance.claims)};
    auto final_plan = plan(kept, &s.graph);
    if (!final_plan || !pays(*final_plan)) return;
    s.plan = std::move(*final_plan);
    out_.result = std::move(s);
  }

  /// Pieces one after another, as long as the whole holds.
  Instance keep_what_holds(std::vector<Replaced>& kept, const std::string& why) {
    out_.not_done.push_back("all pieces together were not used: " + why);
    std::vector<Replaced> good;
    Instance last{{}, why};
    for (const Replaced& r : kept) {
      std::vector<Replaced> more = good;
      more.push_back(r);
      Instance i = verify_stitched(program_, more, seed_);
      if (i.refusal.empty()) good = std::move(more), last = std::move(i);
      else out_.not_done.push_back(fmt::format("piece ({}) was not used: {}", describe(r.piece.graph), i.refusal));
    }
    kept = std::move(good);
    return last;
  }

  const Program& program_;
  const PiecePrograms programs_;
  const Graph& g_;
  const Target& target_;
  const Target piece_target_;   ///< of all products of the stitched graph become slices, or of none
  const Plan& straightforward_;
  SearchOptions options_;
  std::optional<std::chrono::steady_clock::time_point> deadline_;   // of --budget
  uint64_t seed_;
  Trace& trace_;
  const std::function<void(const std::string&)>& tell_;
  bool is_searched_;               // the whole was searched before
  SearchMemory* memory_;
  Spreading spreading_;
  std::vector<std::vector<int>> classes_;
  Cuts cuts_;
  CutGraph graph_;
  std::vector<Piece> pieces_;      // per cut
  std::vector<size_t> form_;       // per cut, its distinct piece
  std::vector<size_t> first_;      // per distinct piece, a cut that makes it
  std::vector<Evaluated> evaluated_;
  std::vector<int64_t> longest_, spent_;   // per distinct piece, effort: that its next search may spend, and of all its searches
  mutable CallPlans call_plans_;   // of the whole, cut in one way or another
  PieceCalls piece_calls_;
  int64_t plans_left_ = most_plans(g_, kWholePlans);   // of the whole
  Partitioned out_;
};

}  // namespace

int64_t states_of_whole(const Graph& g, int64_t states) {
  const int64_t contractions =
      std::count_if(g.nodes().begin(), g.nodes().end(), [](const Node& n) { return std::holds_alternative<MatMul>(n.op); });
  const auto has_no_form = [&](const Node& n) {
    if (std::holds_alternative<Concat>(n.op) || std::holds_alternative<Repeat>(n.op)) return true;
    if (!std::holds_alternative<Slice>(n.op)) return false;
    ValueId v = n.operands[0];
    while (is_view(g.def(v).op)) v = g.def(v).operands[0];
    return !g.def_form<Input>(v) && !g.def_form<Iota>(v);
  };
  const bool around = std::any_of(g.nodes().begin(), g.nodes().end(), has_no_form);
  const int64_t operators = std::count_if(g.nodes().begin(), g.nodes().end(), [](const Node& n) {
    return !std::holds_alternative<Input>(n.op) && !std::holds_alternative<Output>(n.op) && !std::holds_alternative<Const>(n.op) &&
           !is_view(n.op);
  });
  const int64_t fewer = around                                        ? states / 16
                        : contractions > CutLimits{}.contractions + 1 ? states / 8
                        : operators > kManyOperators                  ? states / 4
                                                                      : states;
  return std::max(fewer, std::min<int64_t>(states, kMinStates));
}

Partitioned partition_program(const Program& program, const Target& target, const Plan& straightforward, const SearchOptions& options,
                              uint64_t seed, Trace& trace, const std::function<void(const std::string&)>& tell, bool is_searched,
                              SearchMemory* memory) {
  const auto begun = std::chrono::steady_clock::now();
  const auto cut = [&](Spreading spreading, const SearchOptions& with) {
    return Partitioner(program, target, straightforward, with, seed, trace, tell, is_searched, memory, spreading).run();
  };
  Partitioned apart = cut(Spreading::kApart, options);
  if (find_cuts(program.graph, Spreading::kJoined).unit_of == find_cuts(program.graph, Spreading::kApart).unit_of) return apart;
  SearchOptions rest = options;
  if (options.max_seconds > 0) {
    rest.max_seconds -= std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    if (rest.max_seconds <= 0) return apart;
  }
  Partitioned joined = cut(Spreading::kJoined, rest);
  const auto us = [](const Partitioned& p) { return p.result ? p.result->plan.predicted_us : std::numeric_limits<double>::infinity(); };
  return us(joined) < us(apart) ? std::move(joined) : std::move(apart);
}

}  // namespace mirage
