// Sums of products and other things: the products first. Runs in front of folding (mirage/ir/fold.h).
#pragma once
#include <optional>

#include "mirage/ir/graph.h"

namespace mirage {

/// `g` with sums of several products of inputs and of biases regrouped, so that the products are added up before anything else is: x w + b
/// + (h u + c) as (x w + h u) + (b + c). One kernel adds such products up in one place. nullopt where there is nothing of the kind. Inputs,
/// results and their shapes are g's. Requires primitives only, no calls. kept: Program::kept of g (or empty), which becomes that of the
/// result. to: per value of g, the result's value in its place, -1: it has none.
std::optional<Graph> settled_sums(const Graph& g, std::vector<DType>* kept = nullptr, std::vector<ValueId>* to = nullptr);

}  // namespace mirage
