// Small operands that lack a dimension of a product's batch: repeated along it. Runs in front of folding (mirage/ir/fold.h).
#pragma once
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "mirage/ir/graph.h"

namespace mirage {

/// `g` with the operands of these elementwise operators that have some of these dimensions of the result repeated along the others:
/// elementwise functions below them are computed of repeated operands, up to inputs and positions, which are repeated from extent 1.
/// kept: Program::kept of g (or empty), which becomes that of the result. to: per value of g, the result's value in its place.
std::optional<Graph> with_widened(const Graph& g, const std::map<NodeId, std::set<int>>& partial, std::vector<DType>* kept,
                                  std::vector<ValueId>* to);

}  // namespace mirage
