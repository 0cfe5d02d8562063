// Transposes of weights that are computed: moved to what they are computed from. Runs in front of folding (mirage/ir/fold.h).
#pragma once
#include <optional>

#include "mirage/ir/graph.h"

namespace mirage {

/// `g` with transposes that products read taken before the elementwise functions of inputs that they show (scaled or masked weights stored
/// [out, in]): a transposed input is read where it lies, a transposed computed value belongs to no load. nullopt where there is nothing of
/// the kind. Inputs, results and their shapes are g's. Requires primitives only, no calls.
/// kept: Program::kept of g (or empty), which becomes that of the result. to: per value of g, the result's value in its place, -1: it has
/// none.
std::optional<Graph> settled_transposes(const Graph& g, std::vector<DType>* kept = nullptr, std::vector<ValueId>* to = nullptr);

}  // namespace mirage
