// The reference over small witness extents, and reshapes between them (docs/search.md). First step of the search.
#pragma once
#include <optional>
#include <string>
#include <vector>
#include "mirage/ir/graph.h"
#include "mirage/search/extents.h"
#include "mirage/search/search.h"

namespace mirage::search {

/// Where a reshape joins or splits: runs of dimensions above 1 of either side with equal products, by position. nullopt if a run has
/// several on both sides.
struct Run { std::vector<int> from, to; };
std::optional<std::vector<Run>> reshape_runs(const Dims& from, const Dims& to);

/// dims of `operand`, in order, with ones where `pattern` has ones. nullopt if the numbers of other dimensions differ.
std::optional<Dims> unit_reshape(const Dims& operand, const Dims& pattern);

/// The result's dims where an operand of these dims, instead of `from` that was reshaped to `to`, is reshaped so: dimensions that are 1 in
/// `from` and `to` may be dropped and brought.
std::optional<Dims> unit_reshape(const Dims& from, const Dims& to, const Dims& operand);

/// The product of the extents that a constant stands for.
double extent_value(const Const& c, const std::vector<Type>& params);

}  // namespace mirage::search
