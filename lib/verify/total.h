// Whether a graph is defined for almost all inputs, by signs: seen at once for what programs write, where a proof takes a normal form.
#pragma once
#include "mirage/ir/graph.h"

namespace mirage::verify {

/// Every root is of what is not negative, every logarithm and power of what is positive, every divisor is 0 for almost no inputs. False
/// where signs do not show it. g: a kernel-level graph that obeys the laws, at small extents.
bool is_total(const Graph& g);

}  // namespace mirage::verify
