// Slices of what a program computes or is given packed: taken before the computation, and behind reshapes. Runs in front of folding
// (mirage/ir/fold.h).
#pragma once
#include <optional>

#include "mirage/ir/graph.h"

namespace mirage {

/// `g` with slices where they cost nothing. A product of few rows, or one whose equal parts are only put together elementwise, that nothing
/// reads but slices of its columns becomes products by slices of the weights (queries, keys and values, gate and up from one packed
/// projection). A slice of an input that is reshaped becomes a slice of the reshaped input, which cuts a dimension instead of a product of
/// several (packed heads). nullopt where there is nothing of the kind. Inputs, results and their shapes are g's. Requires primitives only,
/// no calls.
/// kept: Program::kept of g (or empty), which becomes that of the result. to: per value of g, the result's value in its place, -1: it has
/// none.
std::optional<Graph> settled_slices(const Graph& g, std::vector<DType>* kept = nullptr, std::vector<ValueId>* to = nullptr);

}  // namespace mirage
