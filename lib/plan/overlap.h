// Kernels of a library that are started while the one ahead of them still runs. Private to plan; read by planner_kernels.cc.
#pragma once
#include "mirage/ir/contraction.h"
#include "mirage/ir/target.h"
#include "mirage/plan/plan.h"

namespace mirage {

/// Marks them (KernelPlan::early) and takes what they gain from the predicted time of the plan, not of its kernels. Kernels and buffers are
/// final.
void start_early(Plan& plan, const Target& target);

/// Attention and streams that are divided so that they take part in early starts, where the plan is cheaper for it than with the division
/// that is cheapest by itself. Before start_early.
void make_room(Plan& plan, const Target& target, const ContractRule& rule);

}  // namespace mirage
