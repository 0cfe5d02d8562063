// Repeated operands of batched products: what a program repeats along heads only so that a product has equal batches is broadcast instead.
// Runs in front of folding (mirage/ir/fold.h).
#pragma once
#include <optional>

#include "mirage/ir/graph.h"

namespace mirage {

/// `g` with repetitions (`repeat`, or a concatenation of one value with itself) that reach the batch of a product left out: keys and values
/// that PyTorch's repeat_kv writes as reshape, repeat, reshape are read where they lie, and the dimension of heads that they meet is two,
/// head and group. Inputs, results and their shapes are g's. nullopt where nothing is repeated for a product. Requires primitives only, no
/// calls.
/// Where a product of up to 64 rows sums over a dimension of its weights, the larger operand, that a reshape or a repetition makes of two,
/// groups and what is in a group (weights [groups, 128, n] times scales [groups, 1, n], or scales repeated along the rows of the weights),
/// it is a product for each group and a sum over groups. kept: Program::kept of g (or empty), which becomes that of the result. to: per
/// value of g, the result's value in its place (with fewer elements, if it is repeated less), -1: it has none.
std::optional<Graph> without_repeats(const Graph& g, std::vector<DType>* kept = nullptr, std::vector<ValueId>* to = nullptr);

}  // namespace mirage
