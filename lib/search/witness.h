// Classes of dimensions that must have equal extents, and the reference over small witness extents (docs/search.md). First step of the search.
#pragma once
#include <optional>
#include <string>
#include <vector>
#include "mirage/ir/graph.h"
#include "mirage/search/search.h"

namespace mirage::search {

/// Per value and dimension a class, dense from 0; -1 for extent 1.
struct DimClasses {
  std::vector<std::vector<int>> of;
  int count = 0;
  std::string refusal;   ///< not empty: an operator ties extents together in a way that has no witness form
};
DimClasses dim_classes(const Graph& reference);

/// The same graph, node by node and value by value, over other input extents: reshapes that only add or drop ones and constants that stand for extents follow. nullopt where infer
/// refuses.
std::optional<Graph> with_types(const Graph& g, const std::vector<Type>& params);

/// dims of `operand`, in order, with ones where `pattern` has ones. nullopt if the numbers of other dimensions differ.
std::optional<Dims> unit_reshape(const Dims& operand, const Dims& pattern);

/// The result's dims where an operand of these dims, instead of `from` that was reshaped to `to`, is reshaped so: dimensions that are 1 in `from` and `to` may be dropped and brought.
std::optional<Dims> unit_reshape(const Dims& from, const Dims& to, const Dims& operand);

/// The product of the extents that a constant stands for.
double extent_value(const Const& c, const std::vector<Type>& params);

}  // namespace mirage::search
