// Masks by positions: which columns of a matrix they leave to a row.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include "mirage/ir/graph.h"

namespace mirage {

struct Band {
  std::optional<int64_t> last, first;   ///< columns above row + last, or below row + first, are removed: -inf stands there
  bool only = true;                     ///< nothing else was done to what is left
};

enum class Counts : uint8_t { kNeither, kRows, kColumns };

struct BandQuestion {
  ValueId from = -1, down_to = -1;                  ///< the masked matrix, and what it was
  /// Positions beyond what a comparison in float32 has exactly are not read.
  int64_t rows = 1, columns = 1;
  std::function<ValueId(ValueId)> past;             ///< what a value is read as: another one, or -1 for itself
  std::function<Counts(ValueId)> counts;            ///< whether an input's elements are the numbers of rows or columns
};

/// The masks that stand above each other from `from` down to `down_to`. What is removed weighs exp(-inf), which is 0, whatever else is
/// there.
Band read_band(const Graph& g, const BandQuestion& q);

}  // namespace mirage
