// Two graphs over real numbers, in fp64 on a few random inputs: the third opinion that turns a field mismatch into a witness, or a field match into doubt.
#pragma once
#include <optional>

#include "mirage/ir/graph.h"
#include "mirage/verify/verify.h"

namespace mirage::verify {

/// Shape and dtype of each program input, from the graphs' Input nodes; entries of params that neither graph has are rank 0.
std::vector<Type> input_types(const Graph& a, const Graph& b);

/// A place where b clearly differs from a: by far more than rounding explains, or not finite where a is. Places where a is not finite do not count: fp64 cannot
/// tell an overflow, or the sign of a zero denominator, from a value that is infinite.
std::optional<Counterexample> real_difference(const Graph& a, const Graph& b, const std::vector<Type>& inputs, uint64_t seed);

std::string place(int result, const Dims& dims, int64_t element);   ///< "output 0 [3,17]"

}  // namespace mirage::verify
