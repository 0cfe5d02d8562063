// Whether a program may be padded along an axis: whether the first rows of its results come from the first rows of its inputs, whatever
// stands behind them.
#pragma once
#include <cstdint>
#include "mirage/ir/graph.h"

namespace mirage {

/// Two graphs of one program, with `few` and with more (`many`) steps of an axis; both kernel level, in primitives. True: whatever the
/// inputs hold beyond what belongs to fewer steps, the results' parts that belong to these steps are what the program with fewer computes.
/// Dimensions that follow the axis are those whose extents differ. False where that is not seen: a sum or a maximum over the axis, a slice
/// or a concatenation along it, a constant that depends on it, graphs that differ in more than extents.
bool keeps_prefix(const Graph& few, int64_t few_steps, const Graph& many, int64_t many_steps);

}  // namespace mirage
