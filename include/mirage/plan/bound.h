// Where the operands and results of a kernel lie that runs a block graph: what its emitter takes of a plan besides the program that says
// how it runs (docs/schedule.md).
#pragma once
#include <span>

#include "mirage/plan/plan.h"

namespace mirage {

/// The kernel's call, then those beside it; empty for kernels that run no block graph.
std::span<const KernelCall> bound_calls(const KernelPlan&);

}  // namespace mirage
