// Reads by index. A program says "the sum over k of x where k is the index" (lib/spec: desugar_indices.cc); a region loads the one element.
// Private to lib/plan.
#pragma once
#include <map>
#include <optional>
#include "mirage/ir/graph.h"
#include "plan/region/region_index.h"

namespace mirage {

struct ReduceInfo;   // plan/region/region.h

/// reduce.sum over `dim` of where(condition, x, 0); the condition is, behind views, the comparison of the element's place along dim with an
/// index.
struct Selection {
  ValueId condition = -1, index = -1, x = -1;
  int dim = 0;
  int64_t extent = 1;           ///< of the sum
};

/// Whether v is a read by an index that a kernel can compute with: a stored whole number, or a position. nullopt: a sum like any other.
std::optional<Selection> find_selection(const Graph&, ValueId v);

/// reduce.max of where(x equals `largest`, value, otherwise), `largest` being reduce.max of x over the same dimensions; `otherwise` is no
/// larger than any value. One walk finds both: parts without an element that is the largest may say `otherwise`, however many they are.
struct AtLargest { ValueId largest = -1, value = -1; double otherwise = 0; };

std::optional<AtLargest> find_at_largest(const Graph&, const std::map<ValueId, ReduceInfo>& reduces, ValueId v);

/// The comparison's index operand at an element of the sum, whose place along its dimension does not matter.
Index index_place(const Graph&, VarTable&, const Selection&, const Index& at);

/// The input (of whole numbers) that an index shows, through views and repetitions; -1: none.
ValueId index_input(const Graph&, ValueId index);

/// The value of an index that is computed of positions and whole constants by sums and differences, at an element.
Affine position(const Graph&, VarTable&, ValueId index, const Index& at);

/// The place of an operand's element, given that of the result that it broadcasts to.
Index operand_index(const Graph&, ValueId operand, const Index& at);
/// Where the operand of a view or a repetition has the element at `at`.
Index source_index(const Graph&, VarTable&, ValueId v, const Index& at);

}  // namespace mirage
