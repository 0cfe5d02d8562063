// Scores that are joined for one softmax: the keys are joined instead. Runs in front of folding (mirage/ir/fold.h).
#pragma once
#include <optional>

#include "mirage/ir/graph.h"

namespace mirage {

/// `g` with concatenations of products that share a factor, `concat(q k1, q k2)`, as the product of that factor and a concatenation,
/// `q concat(k1, k2)`; equal elementwise functions and transposes between the products and the concatenation are applied once. Only where
/// the sum over what is concatenated is one of exponentials in a product (attention over a prefix and a cache, two blocks of scores): one
/// kernel with a running maximum has both products of joined keys, and reads them where they lie. Products that something else reads stay.
/// nullopt where there is nothing of the kind. Inputs, results and their shapes are g's. Requires primitives only, no calls. kept:
/// Program::kept of g (or empty), which becomes that of the result. to: per value of g, the result's value in its place, -1: it has none.
std::optional<Graph> joined_scores(const Graph& g, std::vector<DType>* kept = nullptr, std::vector<ValueId>* to = nullptr);

}  // namespace mirage
