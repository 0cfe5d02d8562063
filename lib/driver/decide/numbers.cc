// Coordinate descent over tile sizes from a few starts per structure; every point is a whole plan, so the cost model is asked and nothing
// is guessed beside it.
#include "driver/decide/numbers.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "mirage/ir/walk.h"
#include "mirage/plan/strategy.h"
#include "mirage/support/worker_pool.h"

namespace mirage {

namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

/// A tile per axis of every call: grid x, y, z, loop, call by call. 0: the axis is not split.
using Point = std::vector<int64_t>;

Point flatten(const std::vector<CallNumbers>& numbers) {
  Point p;
  for (const CallNumbers& n : numbers) p.insert(p.end(), {n.grid_tile[0], n.grid_tile[1], n.grid_tile[2], n.loop_tile});
  return p;
}

std::vector<CallNumbers> unflatten(const Point& p) {
  std::vector<CallNumbers> out(p.size() / 4);
  for (size_t c = 0; c < out.size(); c++) out[c] = {{p[4 * c], p[4 * c + 1], p[4 * c + 2]}, p[4 * c + 3]};
  return out;
}

/// The search for one structure's numbers.
class Descent {
 public:
  Descent(const Structure& s, const Program& program, const Target& target, int64_t budget, CallPlans* known)
      : structure_(s),
        program_(program),
        target_(target),
        params_(param_types(program)),
        extents_(flatten(split_extents(s, params_))),
        budget_(budget),
        known_(known) {
    for (size_t a = 0; a < extents_.size(); a++)
      choices_.push_back(extents_[a] > 0 ? tile_choices(extents_[a], target.num_sms) : std::vector<int64_t>{0});
  }

  void run() {
    if (const auto p = one_each()) descend(make_fit(*p));
    for (int64_t blocks : {target_.num_sms, 2 * target_.num_sms})
      for (int64_t loop_tile : {64, 256}) descend(make_fit(start(blocks, loop_tile)));
  }

  /// One point beyond the budget.
  void try_point(const Point& p) {
    budget_ = tried() + 1;
    cost(p);
  }

  double best_us() const { return best_us_; }
  const Point& best() const { return best_; }
  int64_t tried() const { return static_cast<int64_t>(seen_.size()); }
  const std::string& reason() const { return reason_; }
  /// What the strategies said of calls that did not fit, the most frequent first.
  std::vector<std::pair<std::pair<std::string, std::string>, int64_t>> refusals() const {
    std::vector<std::pair<std::pair<std::string, std::string>, int64_t>> out;
    for (const auto& [key, said] : refusals_) out.push_back({{key.first, said.first}, said.second});
    std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    return out;
  }

  /// The plan of a point that fits.
  std::optional<std::pair<Graph, Plan>> plan(const Point& p, std::string* why = nullptr, std::vector<Refusal>* refusals = nullptr) const {
    std::optional<Graph> graph = instantiate(structure_, params_, unflatten(p));
    if (!graph) {
      if (why) *why = "the tiles do not fit the extents";
      return std::nullopt;
    }
    Planned planned = known_ ? make_plan(program_, *graph, target_, {}, *known_) : make_plan(program_, *graph, target_);
    if (!planned.plan) {
      if (why) *why = planned.reason;
      if (refusals) *refusals = std::move(planned.refusals);
      return std::nullopt;
    }
    return std::pair{std::move(*graph), std::move(*planned.plan)};
  }

 private:
  bool is_loop(size_t axis) const { return axis % 4 == 3; }

  /// Reasons that differ in numbers only ("shared memory: 288768 bytes of 232448") are one, in the words of the first.
  void count(Refusal r) {
    std::string form = r.reason;
    std::erase_if(form, [](char c) { return c >= '0' && c <= '9'; });
    const auto at = refusals_.try_emplace({r.strategy, form}, std::pair(std::move(r.reason), 0)).first;
    at->second.second++;
  }

  double cost(const Point& p) {
    auto at = seen_.find(p);
    if (at != seen_.end()) return at->second;
    if (tried() >= budget_) return kNone;
    std::string why;
    std::vector<Refusal> refusals;
    auto planned = plan(p, &why, &refusals);
    for (Refusal& r : refusals) count(std::move(r));
    const double us = planned ? planned->second.predicted_us : kNone;
    if (!planned && reason_.empty()) reason_ = why;
    seen_.emplace(p, us);
    if (us < best_us_) best_us_ = us, best_ = p;
    return us;
  }

  /// The largest choice that does not exceed `wish`.
  int64_t at_most(size_t axis, int64_t wish) const {
    int64_t best = choices_[axis].front();
    for (int64_t t : choices_[axis])
      if (t <= wish) best = t;
    return best;
  }

  /// About `blocks` blocks per call: axes are halved in turn, the widest first, but none below 16 as long as another can be (tensor cores
  /// want 16, memory wants 128 bytes).
  Point start(int64_t blocks, int64_t loop_tile) const {
    Point p = extents_;
    for (size_t c = 0; c * 4 < p.size(); c++) {
      p[4 * c + 3] = at_most(4 * c + 3, loop_tile);
      for (size_t a = 4 * c; a < 4 * c + 3; a++) p[a] = at_most(a, extents_[a]);
      for (;;) {
        int64_t count = 1;
        size_t widest = 4 * c;
        for (size_t a = 4 * c; a < 4 * c + 3; a++) {
          if (p[a] > 0) count *= (extents_[a] + p[a] - 1) / p[a];
          if (p[a] > p[widest]) widest = a;
        }
        if (count >= blocks || p[widest] <= 16) break;
        p[widest] = at_most(widest, p[widest] - 1);
      }
    }
    return p;
  }

  /// A matrix of a batch for each block, if there are enough of them: where all that calls read has an axis of the grid, larger tiles along
  /// it save nothing.
  std::optional<Point> one_each() const {
    Point p = extents_;
    size_t call = 0;
    bool any = false;
    for (const Node& n : structure_.graph.nodes()) {
      const auto* c = std::get_if<Call>(&n.op);
      if (!c) continue;
      for (size_t a = 0; a < 3; a++) {
        const size_t axis = 4 * call + a;
        if (p[axis] < target_.num_sms / 2 || !all_have(n, *c->body, a)) continue;
        p[axis] = choices_[axis].front();
        any = true;
      }
      p[4 * call + 3] = at_most(4 * call + 3, 64);
      call++;
    }
    return any ? std::optional(p) : std::nullopt;
  }
  /// Whether all operands that are computed of the program's inputs have an axis of the grid.
  bool all_have(const Node& call, const Graph& body, size_t axis) const {
    for (NodeId n : body.inputs()) {
      const Input& in = *body.form<Input>(n);
      const bool is_read = find_below(structure_.graph, call.operands[static_cast<size_t>(in.param)],
                                      [&](ValueId v) { return structure_.graph.def_form<Input>(v) ? Look::kFound : Look::kInto; });
      if (is_read && in.part.grid[axis] < 0) return false;
    }
    return true;
  }

  /// Smaller tiles until a plan fits: loops first, they cost nothing but iterations.
  Point make_fit(Point p) {
    while (cost(p) == kNone && tried() < budget_) {
      size_t widest = p.size();
      for (int pass = 0; pass < 2 && widest == p.size(); pass++)
        for (size_t a = 0; a < p.size(); a++)
          if (is_loop(a) == (pass == 0) && p[a] > (pass == 0 ? 16 : choices_[a].front()) && (widest == p.size() || p[a] > p[widest]))
            widest = a;
      if (widest == p.size()) break;
      p[widest] = at_most(widest, p[widest] - 1);
    }
    return p;
  }

  /// One axis after another moves to its best neighbour, up to three choices away, until none does; then two axes at once, by one choice
  /// each.
  void descend(Point p) {
    double us = cost(p);
    if (us == kNone) return;
    for (bool moved = true; moved && tried() < budget_;) {
      moved = false;
      move_one(p, us, moved);
      if (!moved) move_two(p, us, moved);
    }
  }

  int64_t here(size_t axis, const Point& p) const {
    return std::find(choices_[axis].begin(), choices_[axis].end(), p[axis]) - choices_[axis].begin();
  }

  /// p with an axis moved by `step` choices, if there is such a choice.
  std::optional<Point> moved_by(Point p, size_t axis, int64_t step) const {
    const int64_t to = here(axis, p) + step;
    if (to < 0 || to >= static_cast<int64_t>(choices_[axis].size())) return std::nullopt;
    p[axis] = choices_[axis][static_cast<size_t>(to)];
    return p;
  }

  void move_one(Point& p, double& us, bool& moved) {
    for (size_t a = 0; a < p.size(); a++) {
      const Point from = p;
      for (int64_t step : {-1, 1, -2, 2, -3, 3})
        if (const auto q = moved_by(from, a, step))
          if (const double other = cost(*q); other < us) us = other, p = *q, moved = true;
    }
  }

  /// A smaller tile along one axis may pay only together with a larger one along another: they share memory and registers.
  void move_two(Point& p, double& us, bool& moved) {
    for (size_t a = 0; a < p.size() && !moved; a++)
      for (size_t b = 0; b < p.size() && !moved; b++) {
        if (a == b) continue;
        const auto shrunk = moved_by(p, a, -1), q = shrunk ? moved_by(*shrunk, b, 1) : std::nullopt;
        if (!q) continue;
        if (const double other = cost(*q); other < us) us = other, p = *q, moved = true;
      }
  }

  const Structure& structure_;
  const Program& program_;
  const Target& target_;
  std::vector<Type> params_;
  Point extents_;
  std::vector<std::vector<int64_t>> choices_;
  int64_t budget_;
  CallPlans* known_;
  std::map<Point, double> seen_;
  Point best_;
  double best_us_ = kNone;
  std::string reason_;
  std::map<std::pair<std::string, std::string>, std::pair<std::string, int64_t>> refusals_;   // by strategy and reason without its numbers
};

}  // namespace

std::vector<int64_t> tile_choices(int64_t extent, int num_sms) {
  std::set<int64_t> out{extent};
  for (int64_t t = 1; t < extent && t <= 1024; t *= 2) out.insert(t);
  // Divisors that are multiples of 16 and leave between half a wave and two waves of blocks: 6144 columns on 132 multiprocessors go into
  // 128 pieces of 48.
  for (int64_t t = 16; t < extent && t <= 512; t += 16)
    if (extent % t == 0 && 2 * (extent / t) >= num_sms && extent / t <= 2 * num_sms) out.insert(t);
  // Narrower ones that leave one wave which is nearly whole: 768 columns go into 128 pieces of 6.
  for (int64_t t = 2; t < 16 && t < extent; t += 2)
    if (extent % t == 0 && 10 * (extent / t) >= 9 * num_sms && extent / t <= num_sms) out.insert(t);
  return {out.begin(), out.end()};
}

int64_t most_plans(const Graph& g, int64_t most) {
  constexpr int64_t kWork = 10'000'000;   // nodes squared: some seconds
  const int64_t n = std::max(1, g.num_nodes());
  return std::clamp<int64_t>(kWork / (n * n), std::min<int64_t>(4, most), most);
}

namespace {

/// Candidates in the order in which they get the budget, if there are too many for it (`tried` of them do).
std::vector<size_t> budget_order(const std::vector<Candidate>& candidates, size_t tried) {
  // Good splits and fewer kernels first.
  std::vector<size_t> order(candidates.size());
  for (size_t i = 0; i < order.size(); i++) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const Structure &x = candidates[a].structure, &y = candidates[b].structure;
    return std::tuple(!x.is_good, x.kernels, x.rank) < std::tuple(!y.is_good, y.kernels, y.rank);
  });
  // what is good is a guess at plausible tiles: every second one is the next of fewest kernels, whatever its split
  if (tried >= order.size()) return order;
  std::vector<size_t> fewest(order.size()), mixed;
  for (size_t i = 0; i < fewest.size(); i++) fewest[i] = i;
  std::stable_sort(fewest.begin(), fewest.end(), [&](size_t a, size_t b) {
    const Structure &x = candidates[a].structure, &y = candidates[b].structure;
    return std::tuple(x.kernels, x.rank) < std::tuple(y.kernels, y.rank);
  });
  auto take_next = [&](const std::vector<size_t>& from) {
    for (size_t c : from)
      if (std::find(mixed.begin(), mixed.end(), c) == mixed.end()) { mixed.push_back(c); return; }
  };
  while (mixed.size() < order.size()) take_next(mixed.size() % 2 == 0 ? order : fewest);
  return mixed;
}

/// Strategies with numbers of their own take a call at the same price whatever the structure's numbers are, and hide what these change
/// for the general one. Where one has taken a call, the numbers that are best without them are one more place to look. How many plans that
/// took.
int64_t descend_alone(Descent& descent, const Structure& s, const Program& program, const Target& target, int64_t budget) {
  if (descent.best_us() == kNone) return 0;
  const auto best = descent.plan(descent.best());
  const std::vector<KernelPlan>& kernels = best->second.kernels;
  if (std::none_of(kernels.begin(), kernels.end(), [](const KernelPlan& k) { return ignores_numbers(strategy_of(k)); })) return 0;
  Target general = target;
  for (const Strategy& x : strategies()) if (ignores_numbers(x)) general = *without_strategy(general, x.name);
  CallPlans calls;   // of another target
  Descent alone(s, program, general, budget, &calls);
  alone.run();
  if (alone.best_us() < descent.best_us()) descent.try_point(alone.best());
  return alone.tried();
}

}  // namespace

Choices choose_numbers(const std::vector<Candidate>& candidates, const Program& program, const Target& target, const NumberLimits& limits,
                       int threads, Trace& trace, CallPlans* known) {
  Choices out;
  const int64_t all = most_plans(program.graph, limits.plans);
  const int64_t each = candidates.empty() ? 0
                                          : std::clamp<int64_t>(all / static_cast<int64_t>(candidates.size()), std::min<int64_t>(24, all),
                                                                limits.plans_per_candidate);
  const size_t tried = std::min(candidates.size(), static_cast<size_t>(each > 0 ? all / each : 0));
  const std::vector<size_t> order = budget_order(candidates, tried);
  out.alternatives.resize(candidates.size());
  std::vector<std::optional<Choice>> found(candidates.size());
  parallel_for(threads, static_cast<int64_t>(tried), [&](int64_t i) {
    const size_t c = order[static_cast<size_t>(i)];
    const Structure& s = candidates[c].structure;
    Descent descent(s, program, target, each, known);
    descent.run();
    Alternative& a = out.alternatives[c];
    a.plans = descent.tried() + descend_alone(descent, s, program, target, each);
    if (descent.best_us() == kNone) {
      a.reason = "does not fit " + target.name + ": " + descent.reason();
      a.refusals = descent.refusals();
      return;
    }
    auto planned = descent.plan(descent.best());
    a.numbers = unflatten(descent.best());
    a.predicted_us = descent.best_us();
    found[c] = Choice{c, a.numbers, std::move(planned->first), std::move(planned->second)};
  });
  for (size_t c = 0; c < candidates.size(); c++) {
    out.alternatives[c].rank = candidates[c].structure.rank;
    out.alternatives[c].kernels = candidates[c].structure.kernels;
    trace.count(Stat::kPlans, out.alternatives[c].plans);
    if (!out.alternatives[c].predicted_us) trace.count(Stat::kUnfit);
    if (found[c]) out.best.push_back(std::move(*found[c]));
    else if (out.alternatives[c].reason.empty())
      out.alternatives[c].reason = fmt::format("not planned: {} structures with fewer kernels or lower rank came first", tried);
  }
  std::stable_sort(out.best.begin(), out.best.end(), [&](const Choice& a, const Choice& b) {
    auto key = [&](const Choice& c) {
      return std::tuple(c.plan.predicted_us, c.plan.kernels.size(), candidates[c.candidate].structure.rank);
    };
    return key(a) < key(b);
  });
  return out;
}

}  // namespace mirage
