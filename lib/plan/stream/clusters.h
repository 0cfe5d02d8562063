// How many clusters a device holds at once: what plans whose clusters meet, or come in one wave, ask. Read by plan/attend/,
// plan/tile/tile.cc and the cost models of streams and tiles.
#pragma once
#include <cstdint>

#include "mirage/ir/target.h"

namespace mirage {

/// How many clusters of n blocks an H100 or H200 holds at one block per multiprocessor (cudaOccupancyMaxActiveClusters: GPCs hold 16 or 18
/// multiprocessors, one of them fewer).
inline int64_t clusters_that_fit(int n, const Target& t) {
  return n == 1 ? t.num_sms : n == 2 ? t.num_sms / 2 : n == 4 ? 30 : n == 8 ? 15 : n == 16 ? 7 : 0;
}

/// The same with more blocks per multiprocessor, where what is left of a group of multiprocessors is not lost.
inline int64_t resident_clusters(int n, int blocks_per_sm, const Target& t) {
  return blocks_per_sm * (blocks_per_sm > 1 ? t.num_sms / n : clusters_that_fit(n, t));
}

}  // namespace mirage
