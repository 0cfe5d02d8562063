// Classes of dimensions that must have equal extents, and the reference over small witness extents (docs/search.md). First step of the search.
#pragma once
#include <optional>
#include <string>
#include <vector>
#include "mirage/ir/graph.h"
#include "mirage/search/search.h"

namespace mirage::search {

/// Per value and dimension a class, dense from 0; -1 for extent 1. Extents are terms over atoms (docs/search.md): an atom itself; a sum of atoms, one after another, where slices and
/// concatenations cut; a product of other classes where a reshape joins dimensions.
struct DimClasses {
  struct Class { std::vector<int> segments; std::vector<int64_t> cuts; std::vector<int> factors; };   ///< atoms, and where in the program each but the first begins; or classes, outermost first
  std::vector<std::vector<int>> of;
  int count = 0;
  std::vector<Class> classes;
  int atoms = 0;
  std::string refusal;   ///< not empty: an operator ties extents together in a way that has no witness form
  int64_t extent(int cls, const std::vector<int64_t>& atom_extents) const;
  bool is_simple(int cls) const { return classes[static_cast<size_t>(cls)].segments.size() == 1; }   ///< one atom
};
DimClasses dim_classes(const Graph& reference);

/// Where a reshape joins or splits: runs of dimensions above 1 of either side with equal products, by position. nullopt if a run has several on both sides.
struct Run { std::vector<int> from, to; };
std::optional<std::vector<Run>> reshape_runs(const Dims& from, const Dims& to);

/// The same graph, node by node and value by value, over other extents of the atoms: all that names an extent follows. nullopt where infer refuses.
std::optional<Graph> with_extents(const Graph& g, const DimClasses& classes, const std::vector<int64_t>& atom_extents);

/// dims of `operand`, in order, with ones where `pattern` has ones. nullopt if the numbers of other dimensions differ.
std::optional<Dims> unit_reshape(const Dims& operand, const Dims& pattern);

/// The result's dims where an operand of these dims, instead of `from` that was reshaped to `to`, is reshaped so: dimensions that are 1 in `from` and `to` may be dropped and brought.
std::optional<Dims> unit_reshape(const Dims& from, const Dims& to, const Dims& operand);

/// The product of the extents that a constant stands for.
double extent_value(const Const& c, const std::vector<Type>& params);

}  // namespace mirage::search
