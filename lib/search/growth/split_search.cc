// Steps of the search under one split; see split_search.h.
#include "search/growth/split_search.h"
#include <algorithm>

namespace mirage::search {
namespace {

// elements of normal forms that a split begins with and that do not count: those of programs of some hundred operators
constexpr int64_t kSmallSetup = 1 << 14;
constexpr int64_t kEffortOfElement = 8;        // as of a state: it is built, compared and sorted
constexpr size_t kSecondChances = 4;           // graphs of one split that are tried when none of the best was verified

ExprPool make_pool(const SearchOptions& options) {
  ExprPool pool;
  if (options.judge) pool.set_judge(options.judge);
  return pool;
}

}  // namespace

SplitSearch::SplitSearch(const Reference& ref, const Problem& problem, const Split& s, const SearchOptions& options,
                         std::vector<DType> dtypes, int max_block_ops, Deadline deadline)
    : split(s),
      ref_(ref),
      problem_(problem),
      options_(options),
      dtypes_(std::move(dtypes)),
      max_block_ops_(max_block_ops),
      deadline_(deadline) {}

SplitSearch::Parts::Parts(const SplitSearch& s)
    : meter(s.options_.stop, s.deadline_, &s.cancelled, &s.hurried),
      pool(make_pool(s.options_)),
      expressions(s.options_.expression_gate ? reference_expressions(s.ref_, s.problem_, pool)
                                             : std::vector<ExprId>(static_cast<size_t>(s.ref_.graph().num_values()), -1)),
      values(s.ref_, s.problem_, s.split, pool, expressions, s.options_.expression_gate, meter),
      universe(values, s.problem_.targets.size(), s.options_.max_values, meter),
      search(s.ref_, s.problem_, s.split, values, s.options_, s.dtypes_, s.max_block_ops_, meter) {}

void SplitSearch::rewind() { parts_.reset(); }

Outcome SplitSearch::step(int ideas, StepKind kind, const Limits& limits) {
  Outcome out;
  if (parts_ && parts_->closed > ideas) rewind();   // it ran ahead
  if (!parts_) parts_ = std::make_unique<Parts>(*this);
  Parts& p = *parts_;
  if (setup_ < 0) setup_ = p.pool.elements();   // of the program's own expressions: the same whenever it is made
  const bool is_first = kind == StepKind::kIdeas;
  p.meter.begin({});   // what earlier steps did is not counted again
  while (p.closed < ideas - is_first && p.values.fits()) p.universe.close_to(++p.closed);
  if (p.meter.end() == End::kStopped) { out.end = End::kStopped; return out; }
  p.meter.begin(limits);
  if (is_first && ideas == 0 && setup_ > kSmallSetup) p.meter.report.effort += kEffortOfElement * setup_;
  if (setup_ > kSmallSetup && p.meter.done()) {
    out.end = p.meter.end();
    out.report = p.meter.report;
    out.checked_effort = p.meter.checked_effort();
    return out;
  }
  out.fits = p.values.fits();
  if (out.fits) {
    out.reached = is_first ? p.universe.close_to(++p.closed) : true;
    // as many as are handed out at most, and one to show that there were more
    const auto most = static_cast<size_t>(options_.max_candidates) + 1;
    auto grow = [&](bool dominance, bool concat, size_t limit) {
      std::vector<BlockCandidate> more = p.search.run(p.universe, ideas, dominance, concat, limit);
      std::stable_sort(more.begin(), more.end(), [](const BlockCandidate& a, const BlockCandidate& b) { return a.work < b.work; });
      std::move(more.begin(), more.end(), std::back_inserter(out.candidates));
    };
    if (out.reached && kind == StepKind::kSecondChances) grow(false, false, kSecondChances);
    else if (out.reached) grow(options_.dominance, false, options_.dominance ? SIZE_MAX : most);
    // the planner has no concatenations inside blocks: beaten by what it can plan
    if (out.reached && kind == StepKind::kIdeas && !options_.dominance) grow(false, true, most);
  }
  out.capped = p.universe.is_capped();
  out.report = p.meter.report;
  out.end = p.meter.end();
  out.checked_effort = p.meter.checked_effort();
  out.peak_bytes = p.meter.peak();
  out.held_bytes = p.meter.held();
  return out;
}

}  // namespace mirage::search
