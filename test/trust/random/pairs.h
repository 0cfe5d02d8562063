// Random pairs of graphs with known truth: a random program, and the same after rewritings that keep it, or after one change that breaks
// it. What is called different is shown to be by inputs on which an evaluator that shares nothing with lib/ finds two finite values that
// are far apart.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "trust/pairs.h"
#include "trust/random/terms.h"

namespace mirage::test {

/// kSmall: evaluated whole in no time. kLarge: rows of 4096. kHuge: beyond what --verify evaluates, where only a proof may say Equal.
enum class Size { kSmall, kLarge, kHuge };
RandomProgram random_program(Rng& rng, Size size);

struct RandomPair {
  Truth truth = Truth::kEqual;
  std::array<std::string, 2> graphs;
  std::vector<std::string> laws;   ///< rewritings taken, in order
  std::string change;              ///< kDifferent: what was broken
  std::string shown;               ///< kDifferent: where the two differ, for which inputs
  Size size = Size::kSmall;
};
/// nullopt: nothing came of this seed (no difference was found, or a graph does not read).
std::optional<RandomPair> random_pair(uint64_t seed);

/// Inputs on which two graphs of the same signature clearly differ, in words; nullopt: none was found in so many draws. The draws:
/// magnitudes on both sides of every literal, zeros and ties, and masks with structure.
std::optional<std::string> difference(const Graph& a, const Graph& b, uint64_t seed, int draws);
/// The same of single elements, for graphs without calls that are too large to be evaluated.
std::optional<std::string> difference_of_large(const Graph& a, const Graph& b, uint64_t seed, int elements);

}  // namespace mirage::test
