// How many clusters a device holds at once: what plans whose clusters meet, or come in one wave, ask. Read by plan/attend*.cc and plan/tile.cc.
#pragma once
#include <cstdint>

#include "mirage/ir/target.h"

namespace mirage {

/// How many clusters of n blocks an H100 or H200 holds at one block per multiprocessor (cudaOccupancyMaxActiveClusters: GPCs hold 16 or 18 multiprocessors, one of them fewer).
inline int64_t clusters_that_fit(int n, const Target& t) { return n == 1 ? t.num_sms : n == 2 ? t.num_sms / 2 : n == 4 ? 30 : n == 8 ? 15 : n == 16 ? 7 : 0; }

}  // namespace mirage
