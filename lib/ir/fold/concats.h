// Concatenations that are only mapped, reduced and sliced back: computed part by part. Runs in front of folding (mirage/ir/fold.h).
#pragma once
#include <optional>

#include "mirage/ir/graph.h"

namespace mirage {

/// `g` with concatenations left out whose readers can be had part by part: elementwise functions (other operands broadcast along the
/// concatenated dimension, or are sliced likewise), reductions (over that dimension: of each part, then of those), slices, and views that
/// leave the dimension's borders alone. Scores and a sink joined for one softmax, and the scores sliced off again, are softmax's functions
/// of the scores and the sink. Where anything else reads what a concatenation is part of (a product, a result), it stays, and so do those
/// that it meets on the way. So do those that no product is made of or makes: a row that one kernel normalises would be a kernel for each
/// part (layer norm of 64 rows of 512 + 256: 4.6 us and 6.0 predicted). nullopt where there is nothing of the kind. Inputs, results and
/// their shapes are g's. Requires primitives only, no calls. kept: Program::kept of g (or empty), which becomes that of the result. to: per
/// value of g, the result's value in its place, -1: it has none.
std::optional<Graph> without_concats(const Graph& g, std::vector<DType>* kept = nullptr, std::vector<ValueId>* to = nullptr);

}  // namespace mirage
