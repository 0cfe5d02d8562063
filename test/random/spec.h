// A random spec in pieces, so that the reducer can take some away, and the generator that draws one from a seed. Used by test_emulate
// ("random*") and by the program random_programs.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace mirage::test {

struct RandomSpec {
  /// more: `, "strides": [..]`, `, "range": [..]`
  struct Input { std::string name; std::vector<int64_t> dims; std::string dtype, more; };
  struct Node { std::string op, attrs, output; std::vector<std::string> operands; };        ///< operands: names, or numbers
  struct Output { std::string name, dtype; std::vector<int64_t> dims, strides; };           ///< strides empty: row-major
  std::string name;
  std::map<std::string, int64_t> axes;   ///< extents of inputs by name; equal extents may share one
  std::vector<Input> inputs;
  std::vector<Node> nodes;
  std::vector<Output> outputs;
  double rtol = 0;                       ///< of NAME_check; 0: the default

  std::string text() const;              ///< as JSON; extents of inputs are written as axes
};

/// Grows a program value by value. Every value is tried on drawn inputs before it is kept: finite (masks aside), of moderate size, and not
/// so sensitive to rounding that kernels in the program's types could not be judged. The same spec for the same seed on every machine.
RandomSpec random_spec(uint64_t seed);
/// A program whose values spread over more orders of magnitude than its types have (spread.cc).
RandomSpec spread_spec(uint64_t seed);

/// The operators of the table that the generator draws, and those that it leaves out on purpose with the reason. Together they are the
/// operator table: test/emulate/random.cc compares.
std::vector<std::string> drawn_operators();
std::map<std::string, std::string> excluded_operators();

}  // namespace mirage::test
