// Specs that hold every operator at once, for test/gpu/operator_matrix.cc: each operator in several forms (attributes, broadcasts, axes),
// each form an output of its own. Made from tables, so that what is tested can be compared with --list-ops.
#pragma once
#include <set>
#include <string>
#include <vector>

namespace mirage::test {

struct OperatorSpec {
  std::string name;                    ///< of the program
  std::string text;                    ///< the spec as JSON
  std::set<std::string> operators;     ///< that it has nodes of
  int outputs = 0;
};

/// {float16, bfloat16, float32} x {aligned, odd, large} extents, each with all operators; last the mixed one ("matrix_mixed": every dtype
/// as input and as output, bool inputs, rounding in the middle). A program has one dtype but for the last, because one 16-bit tensor makes
/// the check judge all outputs by the limits of 16 bits. large: extents at which kernels load vectors and loop.
std::vector<OperatorSpec> operator_matrix();

}  // namespace mirage::test
