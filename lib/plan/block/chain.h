// A running softmax between two contractions, as one step of a block plan.
#pragma once
#include <optional>
#include <vector>

#include "mirage/ir/graph.h"

namespace mirage {

/// What of a block graph the step computes. Its results are accumulators: exp(logit - running maximum) times values, its row sums, the last
/// maximum (-1: not used).
struct Chain {
  NodeId scores = -1, contract = -1;     ///< the two contractions
  ValueId logit = -1, weights = -1;      ///< what the maximum is taken of; exp(logit - maximum)
  ValueId running = -1;
  ValueId result = -1, sum = -1, last = -1;
  std::vector<bool> inside;              ///< per node: the step does it, or it belongs to a region that only the step evaluates
};
/// The one chain of a body, if all that its loop does is this.
std::optional<Chain> find_chain(const Graph& body);

}  // namespace mirage
