// What elementwise kernels read from L2, and compute. Private to lib/plan.
#pragma once
#include "mirage/plan/region.h"

namespace mirage {

/// What the threads of an elementwise kernel bring and do beside what device memory has to bring.
struct RegionTraffic {
  /// Bytes that blocks bring from L2 and take there: of each block the sectors that its threads read, once each (they meet in L1), and what
  /// they write. Tensors that L1 keeps beside all else are left out. 0: about what the tensors have
  double l2_bytes = 0;
  double half_written = 0;   ///< bytes of results whose sectors are written in two stores each
  double instructions = 0;   ///< of all elements
};
/// bytes: of device memory. Nothing where the kernel is not elementwise.
RegionTraffic traffic_of(const RegionPlan&, int64_t bytes);

}  // namespace mirage
