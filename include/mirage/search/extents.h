// Classes of dimensions that must have equal extents, and a program over other extents (docs/search.md): what witnesses are made with
// (search/problem/witness.cc), and reduced shapes (driver/gate/reduce).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>
#include "mirage/ir/graph.h"

namespace mirage::search {

/// Per value and dimension a class, dense from 0; -1 for extent 1. Extents are terms over atoms (docs/search.md): an atom itself; a sum of
/// atoms, one after another, where slices and concatenations cut; a product of other classes where a reshape joins dimensions; so many
/// times another class where a slice takes one of every few elements. What a part of one element is cut out of has an atom that is pinned
/// to 1 there. is_shifted: windows are cut from it, or it is one: an atom, so many times, and one that keeps its extent; slices of it begin
/// where they did (search/problem/shifted.h; Tied::kPinned only).
struct DimClasses {
  /// atoms, and where in the program each but the first begins; or `times` classes, outermost first
  struct Class {
    std::vector<int> segments;
    std::vector<int64_t> cuts;
    std::vector<int> factors;
    int64_t times = 1;
    bool is_shifted = false;
  };
  std::vector<std::vector<int>> of;
  int count = 0;
  std::vector<Class> classes;
  int atoms = 0;
  std::vector<int64_t> pinned;   ///< per atom: the extent that it keeps; 0: free
  std::string refusal;   ///< not empty: an operator ties extents together in a way that has no witness form
  int64_t extent(int cls, const std::vector<int64_t>& atom_extents) const;
  bool is_pinned(int cls) const {
    const auto& s = classes[static_cast<size_t>(cls)].segments;
    return s.size() == 1 && pinned[static_cast<size_t>(s[0])] > 0;
  }
  bool is_simple(int cls) const { return classes[static_cast<size_t>(cls)].segments.size() == 1; }   ///< one atom
};
/// Dimensions that an operator ties in a way that has no witness form (a repetition, a slice with a step that divides nothing, groups of a
/// reduction, a reshape that splits and joins at once): refused, which is what a search needs; or pinned: classes of one atom that keep the
/// program's own extent.
enum class Tied : uint8_t { kRefused, kPinned };
/// Dimensions (param, dimension) that something outside the program splits as one, so that they must be equal: lists of them.
using Alike = std::vector<std::vector<std::pair<int, int>>>;
/// parts: so many last params are parts of sums that the same blocks made: their first dimensions are alike.
DimClasses dim_classes(const Graph& reference, int parts = 0, Tied tied = Tied::kRefused, const Alike& alike = {});

/// The same graph, node by node and value by value, over other extents of the atoms: all that names an extent follows. nullopt where infer
/// refuses.
std::optional<Graph> with_extents(const Graph& g, const DimClasses& classes, const std::vector<int64_t>& atom_extents);

}  // namespace mirage::search
