// The search under one split of a problem, in steps: the closure up to a number of ideas, then the growth of block graphs from it. A step
// is a pure function of the split, the step and its limits, whatever else has been searched; so steps may run ahead of their turn on other
// threads (ahead.h), and what a step gave may be written down and read again (checkpoint.h).
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>
#include "search/growth/block_search.h"
#include "search/growth/meter.h"

namespace mirage::search {

/// Best first: the split whose next step is made is the one with the least of this. Each gets effort in inverse proportion to what its
/// graphs cost at least (those that are not good: to four times that), so what is reached after some effort under its own split is there
/// after about that, times the number of splits that are no dearer. Among splits that have had none: the cheapest.
constexpr int64_t kFirstStep = 8'000;   // effort: about a first step. So one that was begun goes on before a much dearer one begins
struct Turn {
  double spent_on_cost = 0;
  int64_t cost = 0;
  friend auto operator<=>(const Turn&, const Turn&) = default;
};
inline Turn turn_of(const Split& s, int64_t spent) {
  const int64_t cost = s.is_good ? s.cost : 4 * s.cost;
  return {static_cast<double>(spent + kFirstStep) * static_cast<double>(cost), cost};
}

/// kIdeas: graphs with at most so many ideas that no other beats (all, without dominance). kSecondChances: a few that are beaten, for when
/// none of the best passed.
enum class StepKind : uint8_t { kIdeas, kSecondChances };

struct Outcome {
  std::vector<BlockCandidate> candidates;   ///< least work first
  SearchReport report;                      ///< states, effort and gates of this step
  End end = End::kWhole;
  bool reached = false;                     ///< every target can be derived
  bool fits = true;                         ///< false: the witness would need more dimensions than there are; nothing was searched
  bool capped = false;                      ///< the split has more values than one split may have: it is not searched further
  int64_t checked_effort = 0, peak_bytes = 0, held_bytes = 0;
  /// Whether the step would have given the same within these limits, having had others.
  bool holds_within(const Limits& had, const Limits& l) const {
    if (end == End::kStopped) return false;
    if (had.effort == l.effort && had.bytes == l.bytes) return true;
    // a peak above what it had: something was not kept, and states were visited twice
    return end == End::kWhole && checked_effort < l.effort && peak_bytes <= std::min(had.bytes, l.bytes);
  }
};

class SplitSearch {
 public:
  SplitSearch(const Reference& ref, const Problem& problem, const Split& split, const SearchOptions& options, std::vector<DType> dtypes,
              int max_block_ops, Deadline deadline);
  /// The step with `ideas` ideas; those with fewer come before, in order. Steps that were skipped (their outcomes are known) are closed
  /// again without being counted.
  Outcome step(int ideas, StepKind kind, const Limits& limits);
  /// Forgets what is not needed to start again from nothing.
  void rewind();
  int64_t held() const { return parts_ ? parts_->meter.held() : 0; }
  const Problem& problem() const { return problem_; }

  const Split split;
  std::string name;                         ///< of its steps in checkpoints
  int known = 0;                            ///< so many first steps are remembered from an earlier run
  bool settled = false;                     ///< nothing more is to be searched under this split
  bool found = false;                       ///< something under it, or under one that it is an instance of, was verified
  int64_t committed = 0;                    ///< bytes of it that count
  int64_t spent = 0;                        ///< effort of its steps so far
  std::atomic<bool> cancelled{false};       ///< a step that is under way ends soon, and does not count
  std::atomic<bool> hurried{false};         ///< the same for the step that is under way only: its thread has something else to do

 private:
  struct Parts {
    Parts(const SplitSearch& s);
    Meter meter;
    ExprPool pool;
    std::vector<ExprId> expressions;
    BlockValues values;
    Universe universe;
    BlockSearch search;
    int closed = -1;                        ///< ideas that the universe is closed to
  };
  const Reference& ref_;
  const Problem problem_;
  const SearchOptions& options_;
  const std::vector<DType> dtypes_;
  const int max_block_ops_;
  const Deadline deadline_;
  std::unique_ptr<Parts> parts_;            ///< made by the first step
  int64_t setup_ = -1;   ///< elements of the normal forms that it begins with
};

}  // namespace mirage::search
