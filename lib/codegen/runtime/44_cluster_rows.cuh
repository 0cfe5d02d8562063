// Device library, part 4e: rows that the blocks of a cluster share (kernels of 20_region.cuh; sm_90 and later).
#pragma once
#include "20_region.cuh"
#include "40_async.cuh"

namespace mo {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/// THREADS threads of each of CLUSTER blocks work on one row. Each of REDUCTIONS has a barrier and a place for every warp's value in every block: warps send theirs to all blocks, which add them up in the same order.
/// smem: kBytes, 16-byte aligned. All threads call begin, then ready, then every reduce once.
template <int THREADS, int CLUSTER, int REDUCTIONS> struct ClusterTeam {
  static constexpr int kWarps = THREADS / 32, kAll = CLUSTER * kWarps, kBytes = REDUCTIONS * (16 + kAll * 4);
  static MO_FN int lane() { return cluster_rank() * THREADS + thread_id(); }
  template <class I> static MO_FN I first() { return static_cast<I>(blockIdx.x) / CLUSTER; }
  static MO_FN void begin(unsigned char* smem) {
    if (thread_id() == 0) {
      const uint32_t bars = shared_address(smem);
#pragma unroll
      for (int r = 0; r < REDUCTIONS; r++) mbarrier_init(bars + 16 * r, 1);
      mbarrier_publish();
#pragma unroll
      for (int r = 0; r < REDUCTIONS; r++) mbarrier_expect(bars + 16 * r, kAll * 4);
    }
    warp_barrier();
    cluster_arrive();
  }
  static MO_FN void ready() {   // every block of the cluster has its barriers
    warp_barrier();
    cluster_wait();
  }
  template <class R, int WHICH> static MO_FN real reduce(unsigned char* smem, real x) {
    const uint32_t bar = shared_address(smem) + 16 * WHICH, values = shared_address(smem) + REDUCTIONS * 16 + WHICH * (kAll * 4);
    x = lanes_reduce<R, 32>(x);
    if (lane_id() < CLUSTER) store_async(remote_address(values + (cluster_rank() * kWarps + warp_id()) * 4, lane_id()), x, remote_address(bar, lane_id()));
    mbarrier_wait_cluster(bar, 0);
    warp_barrier();   // lanes may have left the wait one after another, and would exchange values singly
    const real* const all = reinterpret_cast<const real*>(smem + REDUCTIONS * 16) + WHICH * kAll;
    if constexpr (kAll <= 32) return lanes_reduce<R, kAll>(all[lane_id() % kAll]);
    real y = all[lane_id()];
#pragma unroll
    for (int i = 32; i < kAll; i += 32) y = R::combine(y, all[i + lane_id()]);
    return lanes_reduce<R, 32>(y);
  }
};

#endif

}  // namespace mo
