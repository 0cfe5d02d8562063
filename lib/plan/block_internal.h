// What the files of the block planner share.
#pragma once
#include "mirage/plan/block_plan.h"

namespace mirage {

/// The cost model (plan/cost.cc): predicted microseconds of one launch and why. Fills plan.blocks_per_sm.
Cost estimate(BlockPlan& plan, const Target& target);

}  // namespace mirage
