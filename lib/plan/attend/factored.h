// Programs of attention multiply products by what stands at their operands in the graphs that strategies read.
#pragma once
#include "mirage/schedule/program.h"

namespace mirage::schedule {

/// `erased`, what erase() makes of p, with the factors that a place of its own adds to a product at that product's operands: rows' factors
/// at the first, columns' at the second. What is rounded for a second product has those of the second operand's rows. Without such
/// places: `erased`.
Graph with_factors_on_operands(const KernelProgram& p, const Graph& erased);

}  // namespace mirage::schedule
