// Z3 for what uninterpreted equality leaves open: maxima of sets, conditions, comparisons, over one element (docs/verification.md).
#pragma once
#include "verify/proof/proof_terms.h"

namespace mirage::verify {

/// Whether x = y for all real values of the atoms that have no meaning here (inputs, sums, exponentials above 0, ...), where denominators
/// are not 0. Quantifier-free real arithmetic with a deterministic resource limit; false also if neither holds a maximum or a condition, or
/// Z3 gives up.
bool z3_equal(Terms& terms, PolyId x, PolyId y);

}  // namespace mirage::verify
