// Specs that hold every operator at once, for test/gpu/operator_matrix.cc: each operator in several forms (attributes, broadcasts, axes), each form an output of its own. Made from tables, so that
// what is tested can be compared with --list-ops.
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

/// All operators over one dtype ("float16", "bfloat16", "float32") at aligned or odd extents. No library has two dtypes here, because a program with one 16-bit tensor is judged by the limits of 16 bits.
OperatorSpec operator_spec(const std::string& dtype, bool odd);

/// The operators for which operands of different dtypes, bool inputs and rounding in the middle matter, with every dtype as input and as output.
OperatorSpec mixed_spec();

/// What a full matrix consists of: {three dtypes} x {aligned, odd}, and the mixed one.
std::vector<OperatorSpec> operator_matrix();

}  // namespace mirage::test
