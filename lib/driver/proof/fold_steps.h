// The folding of a long program (mirage/ir/fold.h), proved value by value.
#pragma once
#include "mirage/ir/fold.h"
#include "mirage/verify/proof.h"

namespace mirage {

/// That the folded program is the whole one at the whole's sizes, in linear time: each value of the whole that has one in its place is
/// that, if those before it are. Equals in the places of equals make equal results. Not proved where a step is not, or results have none in
/// their places.
Proof prove_fold(const Folded&);

}  // namespace mirage
