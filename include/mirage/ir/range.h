// Between which numbers the values of a graph lie, for finite inputs.
#pragma once
#include <limits>
#include <map>
#include <vector>
#include "mirage/ir/graph.h"

namespace mirage {

struct Range {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool positive = false;   ///< above zero
};

class Ranges {
 public:
  /// most: per parameter, the largest absolute number that its type has.
  Ranges(const Graph& g, std::vector<double> most) : g_(g), most_(std::move(most)) {}
  Range of(ValueId v) const;

 private:
  Range find(ValueId v) const;
  Range of_map(const Map& m, ValueId v) const;
  bool is_weight(ValueId v) const;
  ValueId operand(ValueId v, size_t i = 0) const { return g_.def(v).operands[i]; }

  const Graph& g_;
  std::vector<double> most_;
  mutable std::map<ValueId, Range> known_;
};

/// The largest absolute number of a type, of those that inputs may have; infinity where it is float32's.
inline double largest(DType t) { return t == DType::kF16 ? 65504.0 : std::numeric_limits<double>::infinity(); }

}  // namespace mirage
