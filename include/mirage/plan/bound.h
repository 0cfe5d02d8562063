// Where the operands and results of a kernel lie that runs a block graph: what its emitter takes of a plan besides the program that says
// how it runs (docs/schedule.md).
#pragma once
#include <vector>

#include "mirage/plan/plan.h"

namespace mirage {

/// Of one call, by parameter and by result.
struct BoundCall { const std::vector<Access>&operands, &results; };
/// The kernel's call, then those beside it. References into the plan; empty for kernels that run no block graph.
std::vector<BoundCall> bound_calls(const KernelPlan&);

}  // namespace mirage
