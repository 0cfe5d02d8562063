// Values of a region that later passes need again (region_kept.cc). Private to lib/plan.
#pragma once
#include <functional>

#include "plan/region/region.h"

namespace mirage {

/// What a read, or a number from an index, is to the threads of a row.
enum class RegionLoadKind : uint8_t {
  kOfRow,       ///< the same for all elements
  kNeighbours,  ///< threads beside each other read beside each other
  kScattered,   ///< each in a sector of its own
};
using RegionLoad = std::function<RegionLoadKind(const RegionInstr&)>;

/// Fills `work`, `again` and `live` of a plan: what its passes take, the values that some pass computes and later ones would compute again,
/// in the order in which they are worth keeping (`saved` of each counts on those before it), and what a thread holds with so many of them
/// kept.
void find_kept(RegionPlan&, const RegionLoad&);

}  // namespace mirage
