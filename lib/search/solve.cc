// One problem of the enumeration: splits in turn for each number of ideas; see enumerator.h.
#include <algorithm>
#include "search/enumerator.h"
#include "search/open_problem.h"
#include "search/remembered.h"

namespace mirage::search {

void Enumerator::solve(const Problem& problem, const SolutionSink& sink) {
  const auto key = std::tuple{problem.leaves, problem.targets, poor_now_};
  if (const auto it = solved_.find(key); it != solved_.end()) {
    const std::vector<Solution> again = it->second;   // a copy: what the sink does may add problems
    for (const Solution& s : again) sink(s);
    return;
  }
  // Where several kernels are tried, one hopeless problem may not use up the budget of the others; what the sink searches on its own account is not counted.
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
  // What loads a tensor twice, or computes values again, only where nothing else streams what it sums.
  const auto streams = [](const Solution& s) { return s.split.loop_class >= 0; };
  if (std::none_of(all.begin(), all.end(), streams) || !options_.dominance) {
    which.apart = true;
    search_splits(problem, which, all, uncounted);
  }
  if (all.empty() || !options_.dominance) {
    which.apart = false;
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
    out.searches.push_back(std::make_shared<SplitSearch>(ref_, problem, s, options_, stored_dtypes(ref_.graph(), outputs_, problem), max_block_ops, deadline_));
    SplitSearch& search = *out.searches.back();
    search.name = search_name(id_, problem, which, poor_now_, out.searches.size());
    while (options_.remembered && search.known <= options_.max_ideas && options_.remembered(step_key(search.name, search.known))) search.known++;
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
  if (options_.max_bytes > 0) l.bytes = options_.max_bytes - options_.max_bytes / 4 - held_ + (s ? s->committed : 0);   // a quarter is for steps ahead of their turn, if there are any
  return l;
}

Outcome Enumerator::take(const std::shared_ptr<SplitSearch>& s, int ideas, StepKind kind) {
  const Limits l = limits(s.get());
  Outcome o;
  bool is_remembered = false;
  if (options_.remembered && kind == StepKind::kIdeas)
    if (const auto text = options_.remembered(step_key(s->name, ideas)))
      if (const auto r = read_outcome(*text); r && r->outcome.holds_within(r->had, l)) { o = r->outcome; is_remembered = true; }
  if (!is_remembered) {
    o = ahead_.take(s, ideas, kind, l);
    if (const auto text = kind == StepKind::kIdeas && options_.remember ? write_outcome(o, l) : std::nullopt) options_.remember(step_key(s->name, ideas), *text);
  }
  report_.states += o.report.states;
  report_.effort += o.report.effort;
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

void Enumerator::search_splits(const Problem& problem, const SplitOptions& which, std::vector<Solution>& all, const SolutionSink& sink) {
  const auto key = std::tuple{problem.leaves, problem.targets, poor_now_};
  const auto ready = which.apart || which.recompute ? prepared_.end() : prepared_.find(key);
  const Opened opened = ready != prepared_.end() ? std::move(ready->second) : open(problem, which);
  if (ready != prepared_.end()) prepared_.erase(ready);
  else ahead_.expect(opened.searches, options_.max_ideas, limits(nullptr).effort);
  count(Gate::kIndex, opened.splits.index_example, opened.splits.index_closed);
  for (const Split& s : opened.too_large)
    count(Gate::kMemory, "tiles of at least " + std::to_string(least_bytes(ref_.graph(), s)) + " bytes" + (s.loop_class < 0 ? " without a loop" : ""));
  report_.max_block_ops_used = std::max(report_.max_block_ops_used, opened.max_block_ops);
  const auto& searches = opened.searches;
  std::map<uint64_t, std::vector<size_t>> by_body;   // by its hash, solutions with such a body: the first of each, a structure may have several second kernels
  for (size_t i = 0; i < all.size(); i++) by_body[all[i].block.body.hash()].push_back(i);
  auto hand_out = [&](const SplitSearch& s, std::vector<BlockCandidate> more) {
    for (BlockCandidate& c : more) {
      const auto same = [&](const Solution& o) { return o.block.body == c.body && o.block.tail.has_value() == c.tail.has_value() && (!c.tail || o.block.tail->program.canonical == c.tail->program.canonical); };
      std::vector<size_t>& alike = by_body[c.body.hash()];
      if (std::any_of(alike.begin(), alike.end(), [&](size_t i) { return same(all[i]); })) continue;   // under both kinds of indices, or with fewer ideas
      std::vector<Graph> seconds;
      if (c.tail) seconds = solve_tail(*c.tail);
      if (!c.tail || !seconds.empty()) alike.push_back(all.size());
      if (!c.tail) { all.push_back({s.split, std::move(c), {}}); sink(Solution(all.back())); }
      for (Graph& g : seconds) { all.push_back({s.split, c, std::move(g)}); sink(Solution(all.back())); }
    }
  };
  for (int ideas = 0; ideas <= options_.max_ideas && !stopped(); ideas++)
    for (const auto& s : searches) {
      if (stopped() || s->settled) continue;   // more ideas only where fewer did not lead anywhere
      if (options_.dominance && std::any_of(searches.begin(), searches.end(), [&](const auto& o) { return o != s && o->found && s->split.is_instance_of(o->split); })) { s->found = true; settle(s); continue; }
      Outcome o = take(s, ideas, StepKind::kIdeas);
      if (!o.reached) continue;
      const int64_t before = report_.verified;
      hand_out(*s, std::move(o.candidates));
      if (options_.dominance && kernels_now_ == 1 && report_.verified == before && !s->settled && !stopped()) hand_out(*s, take(s, ideas, StepKind::kSecondChances).candidates);   // what was beaten by graphs that did not pass
      s->found = kernels_now_ > 1 || is_tail_ || report_.verified > before;
      if (options_.dominance && s->found && !s->settled) settle(s);
    }
  for (const auto& s : searches) if (!s->settled) settle(s);
}

}  // namespace mirage::search
