// Plans one kernel as another one was planned: the same threads, pipeline and division of the loop over other extents. For emulation at reduced shapes (driver/reduce).
#pragma once
#include "mirage/plan/plan.h"

namespace mirage {

/// Gives `kernel` the numbers of `model` where both are block graphs planned by plan_block, or model is a tile plan and the kernel has its structure, and the numbers fit; else leaves it as it is. True if it has them now.
bool replan_like(const KernelPlan& model, KernelPlan& kernel, const Target& target);

}  // namespace mirage
