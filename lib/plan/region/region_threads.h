// From loops to threads (region_threads.cc), for region.cc, which knows where the loops come from. Private to lib/plan.
#pragma once
#include <set>
#include <vector>

#include "plan/region/region.h"

namespace mirage {

/// Loops that a form depends on, through divisions too.
void loops_of(const RegionPlan&, const Affine&, std::set<int>& out);

/// Rows, length, and the threads that the rules of docs/planning.md ("Rows") give them.
void choose_threads(RegionPlan&, const Target&);
/// Those, and every other way that costs decide about: clusters, shared memory, other teams.
std::vector<RegionPlan> with_threads(RegionPlan, const Target&);
/// Threads as at another shape.
void take_threads(RegionPlan&, const RegionNumbers&, const Target&);
/// So many threads in a block, each with the work that it had; false: another block would be another kernel (whose rows are a block each).
bool take_block(RegionPlan&, int threads, const Target&);
/// bytes: of device memory; flops: of the whole kernel.
Cost cost_of(const Target&, const RegionPlan&, int64_t bytes, double flops);

}  // namespace mirage
