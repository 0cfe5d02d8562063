// One problem of the enumeration: a queue of steps, best first; see enumerator.h.
#include <algorithm>
#include "search/enumerator.h"
#include "search/problem/open_problem.h"
#include "search/remembered.h"

namespace mirage::search {

void Enumerator::solve(const Problem& problem, const SolutionSink& sink) {
  const auto key = std::tuple{problem.leaves, problem.targets, poor_now_};
  if (const auto it = solved_.find(key); it != solved_.end()) {
    const std::vector<Solution> again = it->second;   // a copy: what the sink does may add problems
    for (const Solution& s : again) sink(s);
    return;
  }
  // Where several kernels are tried, one hopeless problem may not use up the budget of the others; what the sink searches on its own
  // account is not counted.
  const int64_t outer_limit = problem_limit_;
  if (kernels_now_ > 1) problem_limit_ = report_.effort + options_.max_states / 32;
  const SolutionSink uncounted = [&](const Solution& s) {
    const int64_t before = report_.effort, limit = problem_limit_;
    sink(s);
    problem_limit_ = limit + (report_.effort - before);
  };
  std::vector<Solution> all;
  SplitOptions which = split_options(options_, target_, is_tail_, kernels_now_, whole_);
  search_splits(problem, which, all, uncounted);
  if (all.empty() || !options_.dominance) {   // what computes values again, only where nothing else leads anywhere
    which.recompute = true;
    search_splits(problem, which, all, uncounted);
  }
  problem_limit_ = outer_limit;
  solved_[key] = std::move(all);
}

Enumerator::Opened Enumerator::open(const Problem& problem, const SplitOptions& which) const {
  Opened out;
  out.splits = enumerate_splits(ref_.graph(), ref_.classes, problem, which);
  for (const Split& s : out.splits.all) {
    if (s.is_poor != poor_now_) continue;
    if (!fits_memory(ref_.graph(), s, target_)) { out.too_large.push_back(s); continue; }
    const int max_block_ops = std::max(options_.max_block_ops, block_ops_needed(ref_.graph(), problem, s));
    out.max_block_ops = std::max(out.max_block_ops, max_block_ops);
    out.searches.push_back(std::make_shared<SplitSearch>(ref_, problem, s, options_, stored_dtypes(ref_.graph(), outputs_, problem),
                                                         max_block_ops, deadline_));
    SplitSearch& search = *out.searches.back();
    search.name = search_name(id_, problem, which, poor_now_, out.searches.size());
    while (options_.remembered && search.known <= options_.max_ideas && options_.remembered(step_key(search.name, search.known)))
      search.known++;
  }
  return out;
}

void Enumerator::prepare(const Problem& problem) {
  const auto key = std::tuple{problem.leaves, problem.targets, poor_now_};
  if (options_.threads <= 1 || problem.inside.empty() || solved_.count(key) || prepared_.count(key)) return;
  Opened o = open(problem, split_options(options_, target_, is_tail_, kernels_now_, whole_));
  ahead_.expect(o.searches, options_.max_ideas, limits(nullptr).effort);
  prepared_.emplace(key, std::move(o));
}

Limits Enumerator::limits(const SplitSearch* s) const {
  Limits l{std::min(effort_limit_, problem_limit_) - report_.effort, kNoLimit};
  // a quarter is for steps ahead of their turn, if there are any
  if (options_.max_bytes > 0) l.bytes = options_.max_bytes - options_.max_bytes / 4 - held_ + (s ? s->committed : 0);
  return l;
}

Outcome Enumerator::take(const std::shared_ptr<SplitSearch>& s, int ideas, StepKind kind) {
  const Limits l = limits(s.get());
  Outcome o;
  bool is_remembered = false;
  if (options_.remembered)
    if (const auto text = options_.remembered(step_key(s->name, ideas, kind)))
      if (const auto r = read_outcome(*text); r && r->outcome.holds_within(r->had, l)) { o = r->outcome; is_remembered = true; }
  if (!is_remembered) {
    o = ahead_.take(s, ideas, kind, l);
    if (const auto text = options_.remember ? write_outcome(o, l) : std::nullopt) options_.remember(step_key(s->name, ideas, kind), *text);
  }
  report_.states += o.report.states;
  report_.effort += o.report.effort;
  s->spent += o.report.effort;
  for (size_t g = 0; g < o.report.gates.size(); g++) count(static_cast<Gate>(g), o.report.gates[g].first_example, o.report.gates[g].closed);
  report_.peak_bytes = std::max(report_.peak_bytes, held_ - s->committed + o.peak_bytes);
  held_ += o.held_bytes - s->committed;
  s->committed = o.held_bytes;
  if (o.end == End::kMemory) out_of_memory_ = true;
  if (o.end == End::kStates) cut_short_ = true;
  if (o.capped) report_.complete = false;
  if (!o.fits) count(Gate::kType, "more than 8 dimensions with blocks and iterations");
  if (o.end == End::kMemory || o.capped || !o.fits) settle(s);
  return o;
}

void Enumerator::settle(const std::shared_ptr<SplitSearch>& s) {
  s->settled = true;
  held_ -= s->committed;
  s->committed = 0;
  ahead_.drop(s);
}

constexpr int64_t kFreeLoads = 50'000;

/// The splits of a problem join the queue, and other threads may begin with them.
void Enumerator::enqueue(const Problem& problem, const SplitOptions& which, std::vector<Queued>& queue) {
  const auto key = std::tuple{problem.leaves, problem.targets, poor_now_};
  const auto ready = which.apart || which.recompute ? prepared_.end() : prepared_.find(key);
  const Opened opened = ready != prepared_.end() ? std::move(ready->second) : open(problem, which);
  if (ready != prepared_.end()) prepared_.erase(ready);
  else ahead_.expect(opened.searches, options_.max_ideas, limits(nullptr).effort);
  count(Gate::kIndex, opened.splits.index_example, opened.splits.index_closed);
  int64_t loads = 0;
  for (const Split& s : opened.splits.all) loads += static_cast<int64_t>(s.loads.size());
  if (loads > kFreeLoads) report_.effort += loads / 5;   // what finding them took, where a program has hundreds of layers
  for (const Split& s : opened.too_large)
    count(Gate::kMemory,
          "tiles of at least " + std::to_string(least_bytes(ref_.graph(), s)) + " bytes" + (s.loop_class < 0 ? " without a loop" : ""));
  report_.max_block_ops_used = std::max(report_.max_block_ops_used, opened.max_block_ops);
  for (const auto& s : opened.searches) queue.push_back({s, 0, which.apart});
}

bool Enumerator::is_open(const Queued& q) const { return !q.search->settled && q.ideas <= options_.max_ideas; }

/// What has fewer axes and is the same otherwise comes when the other is through, unless instances are wanted for themselves.
bool Enumerator::waits(const Queued& q, const std::vector<Queued>& queue) const {
  return options_.dominance && std::any_of(queue.begin(), queue.end(), [&](const Queued& o) {
           return o.apart == q.apart && is_open(o) && q.search->split.is_coarser_than(o.search->split);
         });
}

/// nullptr: all have been searched. Ties: the first, which has more axes.
Enumerator::Queued* Enumerator::next_of(std::vector<Queued>& queue) const {
  Queued* best = nullptr;
  const auto turn = [](const Queued& q) { return turn_of(q.search->split, q.search->spent); };
  for (Queued& q : queue)
    if (is_open(q) && !waits(q, queue) && (!best || turn(q) < turn(*best))) best = &q;
  return best;
}

/// Whether what was found makes a split superfluous: one that it is an instance of led to something, or it loads a tensor twice and there
/// is something that streams without.
bool Enumerator::is_superfluous(const Queued& q, const std::vector<Queued>& queue) const {
  return options_.dominance && std::any_of(queue.begin(), queue.end(), [&](const Queued& o) {
           return o.search->found && ((o.apart == q.apart && o.search != q.search && q.search->split.is_instance_of(o.search->split)) ||
                                      (q.apart && !o.apart && o.search->split.loop_class >= 0));
         });
}

/// Whether a product's larger operand (at the program's own sizes) is computed from loads in the loop: a factor of it may commute with the
/// sum, or belong to the smaller operand, and what is left streams.
bool Enumerator::computes_larger_operand(const BlockCandidate& c) const {
  const Graph& body = c.body;
  if (body.launch().loop <= 1) return false;
  /// Of a value that maps and views make of loads: the elements of the largest one (0: another value), and whether a map joins two values.
  struct Made { int64_t largest = 0; bool joins = false; };
  std::vector<Made> made(static_cast<size_t>(body.num_values()));
  for (NodeId n = 0; n < body.num_nodes(); n++) {
    const Node& node = body.node(n);
    if (node.first_value < 0) continue;
    Made& m = made[static_cast<size_t>(node.first_value)];
    const auto of = [&](size_t i) { return made[static_cast<size_t>(node.operands[i])]; };
    if (const auto* in = body.form<Input>(n)) {
      m.largest = ref_.graph().dims(c.operands[static_cast<size_t>(in->param)]).elements();
    } else if (body.form<Const>(n)) {
      m.largest = 1;
    } else if (body.form<Map>(n) || is_view(node.op)) {
      m.joins = node.operands.size() > 1;
      for (size_t i = 0; i < node.operands.size(); i++) {
        if (of(i).largest == 0) { m = {}; break; }
        m = {std::max(m.largest, of(i).largest), m.joins || of(i).joins};
      }
    } else if (body.form<MatMul>(n)) {
      const Made x = of(0), y = of(1);
      if ((x.joins && x.largest > y.largest) || (y.joins && y.largest > x.largest)) return true;
    }
  }
  return false;
}

bool Enumerator::all_compute_larger_operand(const std::vector<BlockCandidate>& all) const {
  return std::all_of(all.begin(), all.end(), [&](const BlockCandidate& c) { return computes_larger_operand(c); });
}

void Enumerator::search_splits(const Problem& problem, SplitOptions which, std::vector<Solution>& all, const SolutionSink& sink) {
  std::vector<Queued> queue;
  enqueue(problem, which, queue);
  // by its hash, solutions with such a body: the first of each, a structure may have several second kernels
  std::map<uint64_t, std::vector<size_t>> by_body;
  for (size_t i = 0; i < all.size(); i++) by_body[all[i].block.body.hash()].push_back(i);
  auto hand_out = [&](const SplitSearch& s, std::vector<BlockCandidate> more) {
    for (BlockCandidate& c : more) {
      const auto same = [&](const Solution& o) {
        return o.block.body == c.body && o.block.tail.has_value() == c.tail.has_value() &&
               (!c.tail || o.block.tail->program.canonical == c.tail->program.canonical);
      };
      std::vector<size_t>& alike = by_body[c.body.hash()];
      // under both kinds of indices, or with fewer ideas
      if (std::any_of(alike.begin(), alike.end(), [&](size_t i) { return same(all[i]); })) continue;
      std::vector<Graph> seconds;
      if (c.tail) seconds = solve_tail(*c.tail);
      if (!c.tail || !seconds.empty()) alike.push_back(all.size());
      if (!c.tail) { all.push_back({s.split, std::move(c), {}}); sink(Solution(all.back())); }
      for (Graph& g : seconds) { all.push_back({s.split, c, std::move(g)}); sink(Solution(all.back())); }
    }
  };
  const auto streams = [](const Queued& q) { return q.search->found && q.search->split.loop_class >= 0; };
  const auto leads = [&](const Queued& q) {
    return q.search->split.is_good && is_open(q) &&
           std::none_of(queue.begin(), queue.end(), [&](const Queued& o) { return q.search->split.is_coarser_than(o.search->split); });
  };
  bool apart_came = which.recompute;
  while (!stopped()) {
    Queued* const next = next_of(queue);
    // what loads a tensor twice, only where no good split led to something that streams what it sums
    if (!apart_came && (!next || std::none_of(queue.begin(), queue.end(), leads))) {
      apart_came = which.apart = true;
      if (!options_.dominance || std::none_of(queue.begin(), queue.end(), streams)) enqueue(problem, which, queue);
      continue;
    }
    if (!next) break;
    const std::shared_ptr<SplitSearch>& s = next->search;
    if (is_superfluous(*next, queue)) { s->found = true; settle(s); continue; }
    const int ideas = next->ideas++;   // more ideas only where fewer did not lead anywhere
    Outcome o = take(s, ideas, StepKind::kIdeas);
    if (!o.reached && !next->is_last) continue;
    const int64_t before = report_.verified;
    const bool may_improve = !next->is_last && all_compute_larger_operand(o.candidates);
    hand_out(*s, std::move(o.candidates));
    // what was beaten by graphs that did not pass
    if (options_.dominance && kernels_now_ == 1 && report_.verified == before && !s->settled && !stopped())
      hand_out(*s, take(s, ideas, StepKind::kSecondChances).candidates);
    s->found |= kernels_now_ > 1 || is_tail_ || report_.verified > before;
    if (!options_.dominance || !s->found || s->settled) continue;
    next->is_last = may_improve && report_.verified > before;
    if (!next->is_last) settle(s);
  }
  for (const Queued& q : queue) if (!q.search->settled) settle(q.search);
}

}  // namespace mirage::search
