// Two graphs with the same inputs as one that computes both, and apart again: so that both can be brought to the same small sizes.
#pragma once
#include "mirage/ir/graph.h"

namespace mirage {

/// y's results come after x's. Inputs are shared by param; those that both have are of equal types.
Graph joined(const Graph& x, const Graph& y);

/// The part of g that computes `count` results from number `first` on, numbered from 0.
Graph results_from(const Graph& g, int first, int count);

}  // namespace mirage
