// Computed operands of a kernel's contractions as kernels of their own. Private to lib/plan; make_plan compares both.
#pragma once
#include <optional>

#include "mirage/ir/graph.h"

namespace mirage {

/// g (kernel level, contractions are calls) where every elementwise operand that a call computes for a contraction inside its loop, from
/// its inputs and from reductions of whole inputs alone, is a value of g that the call reads: computed once, not by every block that needs
/// it. The same function. nullopt if no call has such an operand.
/// statistics: what the loop adds up beside such an operand from inputs alone (the squares of a row, for its norm) leaves the call with it;
/// nullopt if there is nothing of the kind.
std::optional<Graph> hoist_operands(const Graph& g, bool statistics = false);

}  // namespace mirage
