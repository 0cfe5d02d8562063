// One kernel of a given muGraph, walked through the search's engine operator by operator: which split it is under, the gate that closes it,
// what beats it. The part of --why-not (why_not.cc) that knows block graphs.
#pragma once
#include <functional>
#include <string>
#include <vector>
#include "search/problem/open_problem.h"
#include "search/growth/split_search.h"

namespace mirage::search {

/// One kernel of the graph: what it computes, of what, and where it stands.
struct Kernel {
  const Graph* body = nullptr;
  std::vector<std::vector<ValueId>> leaves;   ///< by param: values of the reference that the operand is
  Problem problem;
};

struct Answer { bool is_open = false; bool is_found = false; std::string text; };   // of one kernel

/// Asked for what is left to do behind sums over blocks: is the rest of the given graph a kernel that the search finds for it? order: by
/// part of the tail, the number of the first kernel's result.
using AskSecond = std::function<Answer(const Tail& tail, const std::vector<size_t>& order)>;

inline bool same_tensor(const FieldTensor& a, const FieldTensor& b) { return a.dims == b.dims && a.data == b.data; }

class KernelWalk {
 public:
  KernelWalk(const Reference& ref, const Target& target, const SearchOptions& options, const std::vector<ValueId>& outputs,
             SplitOptions which);
  /// A kernel whose results are the problem's targets.
  Answer explain(const Kernel& k);
  /// A kernel that leaves parts of sums, one leading dimension more in its operands and results, whose values are given; what puts them
  /// together is asked of `second`.
  Answer explain_parts(const Kernel& k, const std::vector<FieldTensor>& results, const AskSecond& second);

 private:
  struct Engine;
  struct Walked { std::vector<Derivation> steps; std::vector<int> results; };   ///< results: value ids
  Splits splits(const Kernel& k, int way) const;
  bool matches(const Kernel& k, const Split& split, std::vector<size_t>& load_of) const;
  bool matches_parts(const Kernel& k, int axis_of_parts, const Split& split, std::vector<size_t>& load_of) const;
  Answer under(const Kernel& k, const Split& split, const std::vector<size_t>& load_of);
  Answer under_parts(const Kernel& k, const Split& split, const std::vector<size_t>& load_of, const std::vector<FieldTensor>& results,
                     const AskSecond& second);
  bool same_results(const BlockCandidate& c, const std::vector<FieldTensor>& results, std::vector<size_t>& order) const;
  bool is_among_best(const Kernel& k, const Split& split, const BlockCandidate& mine, int ideas, int max_block_ops,
                     std::string& text) const;
  Answer against_others(Engine& e, const BlockCandidate& mine, int ideas, bool concat, std::string text);
  bool walk(const Kernel& k, Engine& e, const std::vector<size_t>& load_of, Walked& out, std::string& text);
  int step(Engine& e, const Graph& b, NodeId n, std::vector<int> operands, std::vector<Derivation>& steps);
  const Reference& ref_;
  const Target& target_;
  const SearchOptions& options_;
  SearchOptions loose_;                       ///< the same without merging and dominance
  const std::vector<ValueId>& outputs_;
  const SplitOptions which_;
};

}  // namespace mirage::search
