// Puts primitives into the reference graph: shares equal nodes, leaves out nodes that change nothing (identity reshapes, transposes,
// casts), keeps track of where extents come from. The desugaring of every operator is written with these calls; they throw BuildError where
// shapes or dtypes do not fit.
#pragma once
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>
#include "mirage/ir/graph.h"
#include "spec/report.h"

namespace mirage::spec {

inline constexpr int64_t kMaxElements = int64_t{1} << 40;

using ExtentOf = std::vector<std::pair<int, int>>;   ///< {param, dim} of program inputs; the extent is their product

/// Elements of a shape, or nullopt over kMaxElements.
std::optional<int64_t> count_elements(const Dims&);

class Emitter {
 public:
  Emitter() : builder_(Level::kKernel) {}
  const Graph& graph() const { return builder_.graph(); }
  const Dims& dims(ValueId v) const { return graph().dims(v); }
  int rank(ValueId v) const { return dims(v).rank(); }
  bool is_bool(ValueId v) const { return graph().type(v).dtype == DType::kBool; }
  std::optional<double> constant_of(ValueId v) const;   ///< the value of a literal
  bool is_integral(ValueId v) const { return facts(v).integral; }   ///< whole numbers, infinity or NaN
  /// its elements are whole numbers (positions and what is computed of them), never NaN
  bool is_whole(ValueId v) const { return facts(v).whole; }

  ValueId input(int param, const Type&);
  ValueId constant(double);
  ValueId extent(ExtentOf, double value);
  ValueId iota(int dim, const Dims&);
  /// NumPy broadcasting. bool operands of arithmetic count as 0 and 1; pow with an exponent of 2, 1, 0.5, -0.5 or -1 becomes what that is.
  ValueId whole_power(ValueId x, int n);   ///< n >= 1
  ValueId map(MapFn, std::vector<ValueId>);
  ValueId number(ValueId);                               ///< the value, bools as 0 and 1
  ValueId boolean(ValueId);                              ///< x != 0 as a bool
  ValueId cast(ValueId, DType);                          ///< to a whole number: towards zero, as C and PyTorch do
  ValueId matmul(ValueId a, ValueId b);                  ///< (...,M,K) x (...,K,N), ranks at least 2; batch dimensions broadcast
  ValueId reduce(ReduceFn, ValueId, const std::vector<int>& axes);   ///< reduced dimensions stay with extent 1
  ValueId mean(ValueId, const std::vector<int>& axes);               ///< the same; divides by an extent constant
  ValueId drop(ValueId, const std::vector<int>& axes);               ///< removes dimensions of extent 1
  ValueId reshape(ValueId, const Dims&);
  ValueId transpose(ValueId, const std::vector<int>& perm);
  ValueId slice(ValueId, int dim, int64_t start, int64_t stop, int64_t step);
  ValueId concat(const std::vector<ValueId>&, int dim);
  ValueId repeat(ValueId, int dim, int64_t count);
  ValueId softmax(ValueId, const std::vector<int>& axes);
  /// Adds any operator as it is (sharing equal ones).
  ValueId add(Op, std::vector<ValueId>);

  /// The finished graph with these outputs: no dead nodes, inputs first, then nodes as a depth-first walk from the outputs meets them, so
  /// that the order in the file does not matter.
  /// at: per value of graph(), its value there; -1: it is not there.
  Graph finish(const std::vector<std::pair<ValueId, DType>>& outputs, std::vector<ValueId>& at) const;
  /// Values that were added, or found again in the place of equal ones, since this was asked last.
  std::vector<ValueId> take_touched() { return std::exchange(touched_, {}); }

 private:
  /// What is known of a value beside its type.
  struct Facts {
    bool whole = false;                                  ///< every element is a whole number
    bool integral = false;                               ///< where it is finite
    uint8_t exact_in = 0;                                ///< bit per DType: every value fits it without rounding
    std::vector<std::optional<ExtentOf>> extents;        ///< per dimension, where its extent comes from
  };
  bool makes_whole(const Op&, const std::vector<ValueId>& operands, bool Facts::*fact) const;
  Facts facts_of(const Op&, const std::vector<ValueId>& operands, const Dims& result) const;
  void trace_reshape(ValueId x, const Dims& to, Facts&) const;
  ValueId strip_reshape(ValueId v, const std::vector<ValueId>& all) const;
  const Facts& facts(ValueId v) const { return facts_[static_cast<size_t>(v)]; }

  Builder builder_;
  std::vector<Facts> facts_;                             ///< by value
  std::unordered_map<uint64_t, std::vector<NodeId>> shared_;   ///< nodes by hash; never iterated
  std::vector<ValueId> touched_;
};

}  // namespace mirage::spec
