// The kernel level of the enumeration: graph-defined operators over available values until all results are there, fewest kernels first
// (OSDI'25 algorithm 1).
#pragma once
#include <chrono>
#include <map>
#include <tuple>
#include <vector>
#include "mirage/search/search.h"
#include "search/growth/ahead.h"

namespace mirage::search {

class Enumerator {
 public:
  /// parts > 0: the program is what is left to do behind a split reduction; its last `parts` inputs are these, whose first dimension is not
  /// split, and one kernel has to do.
  Enumerator(const Program& program, const Target& target, const SearchOptions& options, const CandidateSink& sink, int parts = 0);
  SearchReport run() &&;

 private:
  /// A kernel graph in the making, at the even witness.
  struct State {
    Builder builder{Level::kKernel};
    std::vector<ValueId> at;           ///< by value of the reference: the value here, -1: not there yet
    int kernels = 0;
    bool is_good = true;               ///< all its splits are
    Problem last;                      ///< of the operator that was added last
  };
  /// A complete block graph for a problem, the split that it is under, and, behind a split reduction, the kernel that puts the parts
  /// together: at the even witness, its params those of the tail.
  struct Solution { Split split; BlockCandidate block; std::optional<Graph> second; };
  using SolutionSink = std::function<void(const Solution&)>;

  void grow(State& s, int kernels_left);
  std::vector<std::vector<ValueId>> target_choices(const State& s, int kernels_left) const;
  bool is_complete(const State& s) const;
  bool is_out_of_order(const State& s, const std::vector<ValueId>& targets) const;
  ValueId input_value(int param) const;
  ValueId add_stores(State& s, ValueId v);
  void deliver(State& s);
  /// Complete block graphs for the problem, as they are found: splits in turn for each number of ideas. Remembered: a problem is searched
  /// once.
  void solve(const Problem& problem, const SolutionSink& found);
  void search_splits(const Problem& problem, SplitOptions which, std::vector<Solution>& all, const SolutionSink& sink);
  /// A split in the queue: its next step is the one with so many ideas.
  /// is_last: something was found, and this step is made because with one idea more less may be computed in the loop.
  struct Queued { std::shared_ptr<SplitSearch> search; int ideas = 0; bool apart = false, is_last = false; };
  void enqueue(const Problem& problem, const SplitOptions& which, std::vector<Queued>& queue);
  bool is_open(const Queued& q) const;
  bool waits(const Queued& q, const std::vector<Queued>& queue) const;
  Queued* next_of(std::vector<Queued>& queue) const;
  bool is_superfluous(const Queued& q, const std::vector<Queued>& queue) const;
  bool computes_larger_operand(const BlockCandidate& c) const;
  bool all_compute_larger_operand(const std::vector<BlockCandidate>& all) const;
  /// The splits of a problem that are searched, and what closes the others.
  struct Opened { Splits splits; std::vector<Split> too_large; int max_block_ops = 0; std::vector<std::shared_ptr<SplitSearch>> searches; };
  Opened open(const Problem& problem, const SplitOptions& which) const;
  void prepare(const Problem& problem);   ///< lets other threads begin with a problem that will be solved
  Limits limits(const SplitSearch* s) const;
  Outcome take(const std::shared_ptr<SplitSearch>& s, int ideas, StepKind kind);
  void settle(const std::shared_ptr<SplitSearch>& s);
  /// Graphs, one kernel each, for the tail of a split reduction.
  const std::vector<Graph>& solve_tail(const Tail& tail);
  /// Adds a solution's kernels; false if they do not fit, and nothing was added.
  bool add(State& s, const std::vector<ValueId>& targets, const Solution& solution);
  bool holds_at_ragged_witness(const Structure& s);
  std::vector<ValueId> available(const State& s) const;
  bool stopped();
  double seconds() const;
  void count(Gate gate, const std::string& example, int64_t times = 1);

  const Program& program_;
  const Target& target_;
  const SearchOptions& options_;
  const CandidateSink& sink_;
  SearchReport report_;
  Reference ref_;
  std::vector<ValueId> outputs_;     ///< values behind the results: before the transposes and reshapes that only say how they are stored
  std::shared_ptr<const Worlds> worlds_;
  std::vector<int> whole_;           ///< classes of dimensions that nothing splits
  bool is_tail_ = false, poor_now_ = false;
  std::map<std::string, std::vector<Graph>> tails_;   ///< by the text of their graph
  int64_t good_ = 0;                 ///< structures of good splits that were verified: no more kernels are tried
  uint64_t id_ = 0;                  ///< of the program and the seed, in checkpoints
  int64_t next_rank_ = 0, effort_limit_ = 0, problem_limit_ = INT64_MAX;
  int64_t held_ = 0;                 ///< bytes of the searches that are not settled
  int kernels_now_ = 1;
  bool cut_short_ = false;           ///< the effort limit ended the search for this number of kernels
  bool out_of_memory_ = false;       ///< some step was refused memory
  std::chrono::steady_clock::time_point start_;
  Deadline deadline_;
  using ProblemKey = std::tuple<std::vector<ValueId>, std::vector<ValueId>, bool>;   ///< leaves, targets, and whether of poor splits
  std::map<ProblemKey, std::vector<Solution>> solved_;
  std::map<ProblemKey, Opened> prepared_;
  Ahead ahead_;                      ///< last: its threads end before what they read
};

}  // namespace mirage::search
