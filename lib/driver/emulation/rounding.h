// What rounding may do to a program's results: the bound that emulated kernels are judged by where the field does not judge them
// (docs/emulation.md, "Floats"). By Monte Carlo arithmetic (Parker, Pierce, Eggert 2000): the graph is evaluated in fp64 a few times with
// every operation's result moved at random by at most the rounding of what computes it; how far results move is what rounding alone
// explains.
#pragma once
#include <vector>
#include "mirage/ir/eval.h"
#include "mirage/ir/program.h"

namespace mirage {

/// Of the coarsest floating type among the tensors of a program, TF32 where its products may be rounded to that: what its kernels may hold
/// any value in.
double coarsest_roundoff(const Program&);

/// The largest magnitude among all values of a graph (of calls: their results), in fp64; infinity where one is not finite. Masks (minus
/// infinity) do not count.
double largest_value(const Graph&, const std::vector<Tensor<double>>& inputs);

inline constexpr int kRoundings = 8;   ///< draws, where not said

/// Standard deviations, per result and element; infinity: rounding alone may leave no number there. A bool's is the share of draws in which
/// it was another one.
struct RoundingSpread { std::vector<double> each; double mean = 0; };   ///< mean: the root mean square of those of finite results
std::vector<RoundingSpread> rounding_spread(const Program&, const std::vector<Tensor<double>>& inputs,
                                            const std::vector<Tensor<double>>& want, uint64_t seed, int draws = kRoundings);

}  // namespace mirage
