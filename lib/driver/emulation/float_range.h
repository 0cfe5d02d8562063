// What the range of its types may do to a program's results, as rounding.h says what rounding may do: a probability of e^-97 is a number in
// fp64 and none in float32, and a quotient of two such is 0/0.
#pragma once
#include <vector>
#include "mirage/ir/eval.h"
#include "mirage/ir/program.h"

namespace mirage {

/// Per result and element: how far it may be off because values on its way are too small or too large for the types that kernels hold them
/// in, by a running bound on the graph in fp64; infinity: no bound. 0 where nothing leaves the range. Rounding is not part of it.
std::vector<std::vector<double>> range_error(const Program&, const std::vector<Tensor<double>>& inputs);

}  // namespace mirage
