// Values whose elements are their own index along a dimension, or part of it: what Iota makes, behind repeats, transposes and reshapes.
#pragma once
#include <optional>

#include "mirage/ir/graph.h"

namespace mirage {

/// Element i of the value is (i[dim] / div) % period; period 0: i[dim] / div.
struct Position { int dim = 0; int64_t div = 1, period = 0; };

/// Of v, if that is what its elements are.
std::optional<Position> position_of(const Graph&, ValueId v);

}  // namespace mirage
