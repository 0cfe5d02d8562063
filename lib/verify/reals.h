// Two graphs over real numbers, in fp64 with error bounds on random inputs: the third opinion that turns a field mismatch into a witness,
// or a field match into doubt.
#pragma once
#include <optional>
#include <string>

#include "mirage/ir/graph.h"
#include "mirage/verify/verify.h"
#include "verify/bounded.h"

namespace mirage::verify {

/// Shape and dtype of each program input, from the graphs' Input nodes; entries of params that neither graph has are rank 0.
std::vector<Type> input_types(const Graph& a, const Graph& b);

/// What fp64 shows. Elements count where rounding leaves something of them: each has an error bound of its own.
struct RealReport {
  std::optional<Counterexample> difference;   ///< both are finite, and apart by far more than their error bounds
  /// one is finite and the other is not, and neither because a number left the range of doubles on the way
  std::optional<Counterexample> undefined;
  /// a result where that is so in draw after draw, and of which no draw made any element the same number, other than 0, in both
  bool disjoint = false;
  /// the first element that no draw compared: never finite in both, or too noisy to tell; "": all were
  std::string uncompared;
  bool noisy = false;                         ///< `uncompared` was finite in both, but lost to rounding
};

/// Few draws of moderate size where many graphs are compared; all kinds (draws.h), in turn with all patterns of masks, where a verdict is
/// to be believed.
RealReport compare_reals(const Graph& a, const Graph& b, const std::vector<Type>& inputs, uint64_t seed, Draws draws);

/// Whether both are finite, and apart by far more than their error bounds.
bool clearly_differ(const Bounded& x, const Bounded& y);

std::string place(int result, const Dims& dims, int64_t element);   ///< "output 0 [3,17]"

/// Scalar operations of one evaluation, roughly.
double evaluation_work(const Graph& g);

}  // namespace mirage::verify
