// Results of kernels that were emulated in floats against fp64 (docs/emulation.md, "Floats"). Part of emulation.cc's work.
#pragma once
#include <vector>
#include "driver/emulation/emulation.h"
#include "mirage/ir/eval.h"

namespace mirage {

inline constexpr double kLargestHalf = 3e4;   ///< what is summed to values beyond may have left float16 on the way

/// `want`: the spec's own graph in fp64 at `inputs`. A result is right if it is within a few unit roundoffs, or else if rounding explains
/// it (rounding.h), or rounding and the range of its types do (float_range.h). Elements of which the range leaves nothing are `left_out` of
/// the outcome, and the caller is to draw inputs at which there are none.
EmulationOutcome compare_floats(const EmulationCase&, const Emulation& run, const std::vector<Tensor<double>>& inputs,
                                const std::vector<Tensor<double>>& want, uint64_t seed, EmulationOutcome out);

/// How many elements of the results would be left out at these inputs.
int64_t beyond_range(const Program&, const std::vector<Tensor<double>>& inputs);

}  // namespace mirage
