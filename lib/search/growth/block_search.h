// The block level of the enumeration: grows block graphs operator by operator, in increasing rank, under one split (OSDI'25 algorithm 1,
// docs/search.md).
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>
#include "search/growth/rank.h"
#include "search/growth/universe.h"

namespace mirage::search {

/// What is left to do behind the sums over blocks of a split reduction: another kernel's part of the program, at its true extents.
/// Everything has one leading dimension more.
struct Tail {
  /// inputs: those of the whole program, then `leaves` that are none, then the parts, one leading dimension for the blocks that made them
  Program program;
  std::vector<ValueId> leaves;       ///< values of the reference behind the inputs of the whole program
  std::vector<Type> parts;           ///< of the last inputs, at the even witness, where two blocks make them
};

/// A complete block graph at the even witness, and what it costs there.
struct BlockCandidate {
  Graph body;
  std::vector<ValueId> operands;     ///< values of the reference, by param
  /// with a partial axis: body's operands and results have a leading dimension of extent 1, which the partial axis splits in the results
  std::optional<Tail> tail;
  int64_t work = 0;      ///< element operations of a block, over its iterations
  int64_t memory = 0;    ///< elements of loaded tiles and accumulators
  int ideas = 0;
  bool beats(const BlockCandidate& o) const { return work <= o.work && memory <= o.memory; }
};

class BlockSearch {
 public:
  /// output_dtypes: per target, what the stores round to.
  BlockSearch(const Reference& ref, const Problem& problem, const Split& split, BlockValues& values, const SearchOptions& options,
              std::vector<DType> output_dtypes, int max_block_ops, Meter& meter);
  /// All complete graphs with at most `ideas` ideas, the meter asked before each state; at most `limit`. With dominance, only those that no
  /// other of them beats.
  /// concat: those that multiply concatenations, else those that do not; neither beats the other kind.
  std::vector<BlockCandidate> run(const Universe& universe, int ideas, bool dominance, bool concat, size_t limit);
  /// The same with these derivations only; targets: value ids.
  std::vector<BlockCandidate> run_on(std::vector<Derivation> derivations, std::vector<int> targets, int ideas, bool dominance, bool concat,
                                     size_t limit);

 private:
  struct Step { Rank rank; int derivation; };
  /// A prefix: values in the order of their operators. The loads and the constants come first.
  struct State {
    std::vector<int> ids;                ///< by position
    std::vector<int> derivation;         ///< by position, -1: load or constant
    std::vector<int> uses;               ///< by position
    int concats = 0;
    int ideas = 0, counted = 0;          ///< counted: forms that the bound counts, without regions
    int64_t work = 0, memory = 0;
    Rank last;
  };
  void grow(State& s);
  std::vector<Step> steps(const State& s);
  std::optional<Gate> first_closed(const State& s, const Step& step);
  void apply(State& s, const Step& step);
  void rollback(State& s, const Rank& last);
  bool is_complete(const State& s) const;
  bool can_finish(const State& s);
  bool is_merged(const State& s);
  bool is_beaten(int64_t work, int64_t memory) const;
  void accept(const State& s);
  bool build(const State& s, BlockCandidate& c) const;
  bool stores_all_axes(const State& s, const std::vector<bool>& wanted, const std::vector<size_t>& parts) const;
  Graph build_body(const State& s, const std::vector<bool>& wanted, const std::vector<size_t>& results, bool extended,
                   std::vector<ValueId>& operands) const;
  Tail build_tail(const State& s, const std::vector<bool>& wanted, const std::vector<size_t>& parts) const;
  ValueId add_step(Builder& b, const State& s, size_t position, const std::vector<ValueId>& at, bool extended) const;
  Rank rank_of(const Derivation& d) const;
  void close(Gate gate, const Step& step);
  bool is_counted(int op) const;

  const Reference& ref_;
  const Problem& problem_;
  const Split& split_;
  BlockValues& values_;
  const SearchOptions& options_;
  std::vector<DType> dtypes_;
  int max_block_ops_;
  Meter& meter_;
  std::vector<Derivation> derivations_;
  std::vector<std::vector<int>> uses_of_;      ///< by value id: derivations
  std::vector<uint8_t> distinct_operands_;     ///< by derivation
  std::vector<int> position_;                  ///< by value id; -1: not in the state
  std::vector<int> targets_;
  int ideas_ = 0;
  bool dominance_ = true, concat_ = false;
  size_t limit_ = 0;
  std::map<std::vector<int>, std::pair<Rank, int64_t>> visited_;
  int64_t scratch_bytes_ = 0;
  std::vector<BlockCandidate> found_;
  // Scratch of can_finish, kept to spare allocations: by value id, by derivation, and a queue of value ids.
  std::vector<char> there_;
  std::vector<uint8_t> missing_;
  std::vector<int> queue_;
};

/// What the bound counts of a graph: inputs, contractions, reductions, accumulators, outputs, and connected elementwise regions.
int count_block_ops(const Graph& body);

}  // namespace mirage::search
