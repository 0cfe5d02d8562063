// Reads of elementwise kernels that overlap between a thread's elements. Private to lib/plan.
#pragma once
#include "plan/region/region_index.h"

namespace mirage {

/// Whether there is a load in it, under branches too.
bool reads(const std::vector<RegionInstr>& code);

/// Finds the plan's windows, and marks the loads that read them. After the width has been chosen.
void find_windows(RegionPlan&, const VarTable&);

}  // namespace mirage
