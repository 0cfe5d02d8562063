// Operands that the kernel level computes for float16 contractions, in float16 of their own row's scale. Private to lib/plan; make_plan
// compares both.
#pragma once
#include <optional>

#include "mirage/ir/contraction.h"
#include "mirage/ir/graph.h"

namespace mirage {

/// g (kernel level, contractions are calls) where every elementwise value that only TF32 contractions with float16 partners read is stored
/// in float16, each line along the reduction divided by what brings its largest magnitude to float16's largest number, and multiplied back
/// behind the sums. The same function up to the rounding that docs/decisions.md describes. nullopt if g has no such value.
std::optional<Graph> narrow_operands(const Graph& g, const ContractRule& rule);

}  // namespace mirage
