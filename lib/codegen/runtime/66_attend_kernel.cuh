// Device library, part 6f: the attention kernel (see 61_attend.cuh): who does what.
#pragma once
#include "63_attend_groups.cuh"
#include "64_attend_warps.cuh"
#include "65_attend_end.cuh"

namespace mo {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <class P> MO_FN void attend(const typename P::Args& a, unsigned char* smem) {
  const int warp = warp_uniform(warp_id());   // roles are the same in all lanes of a warp, and the compiler must know
  const AttendMemory<P> mem(smem, P::kWarpRings ? warp : 0);
  const AttendPlace at = P::place();
  if constexpr (P::kWarpRings) attend_warp_prologue<P>(a, at, mem, warp);
  else attend_prologue<P>(a, at, mem, warp);
  if (!P::kWarpRings && warp >= 4 * P::kGroups) {
    if constexpr (P::kGrow > 0) registers_shrink<P::kShrink>();
    const int other = warp - 4 * P::kGroups;
    if constexpr (P::kHelpers == 0) {
      if (other < P::kProducers) attend_produce<P>(a, at, mem, other);
    } else {
      if (P::kProducer && other == 0) attend_help<P, true>(a, at, mem, other);
      else if (other < attend_helpers<P>()) attend_help<P, false>(a, at, mem, other);
    }
    if constexpr (P::kCluster > 1) cluster_wait();
    return;
  }
  if constexpr (P::kGrow > 0) registers_grow<P::kGrow>();
  const int group = P::kWarpRings ? warp : warp >> 2, group_q = group % P::kQueryGroups, group_k = group / P::kQueryGroups;
  AttendState<P> t;
#pragma unroll
  for (int i = 0; i < P::kColumns / 2; i++) t.O[i] = 0;
#pragma unroll
  for (int i = 0; i < P::kChunk / 4; i++) t.W[i] = 0;
  constexpr int kTile = P::kGroupRows * P::kQueryGroups;
  const int row0 = P::kWarpRings ? 0 : group_q * 64 + (warp & 3) * 16;
  t.grown = false;
  t.active = P::kQueries % kTile == 0 || at.tile * kTile + row0 < P::kQueries;
  const AttendGains<P> gains(a, at);
#pragma unroll
  for (int r = 0; r < 2; r++) t.query[r] = at.tile * kTile + row0 + (lane_id() >> 2) + 8 * r;
  attend_fetch<P>(a, at, t, attend_key<P>(at.first + group_k));
  mbarrier_wait(mem.q_full(), 0);
#pragma unroll
  for (int r = 0; r < 2; r++) {
    t.row[r] = P::row(a, at, mem.template q_row<4>(row0 + (lane_id() >> 2) + 8 * r, lane_id() & 3), t.query[r]);
    t.scale[r] = P::scale(t.row[r]) * kLog2E;
    t.m[r] = t.top[r] = kLowest;
    t.alpha[r] = 1;
#pragma unroll
    for (int k = 0; k < P::kSums; k++) t.sums[k][r] = 0;
  }
  if constexpr (P::kWarpRings) attend_warp_loop<P>(a, at, mem, t, gains, warp);
  else attend_loop<P>(a, at, mem, t, gains, group_q, group_k, warp);
  float H[P::kColumns / 2 / P::kKeyGroups];
  if constexpr (P::kKeyGroups > 1) attend_merge<P>(mem, t, H, group, group_q, group_k);
  else {
#pragma unroll
    for (int i = 0; i < P::kColumns / 2; i++) H[i] = t.O[i];
  }
  if constexpr (P::kCluster > 1) attend_exchange<P>(a, at, mem, t, H, group_q, group_k, warp);
  else if constexpr (P::kMeets > 1) attend_share<P>(a, at, t, H, row0, group_k * (P::kColumns / 8 / P::kKeyGroups));
  else attend_finish<P>(a, at, t, H, group_k * (P::kColumns / 8 / P::kKeyGroups), group_k == 0);
}

#endif

}  // namespace mo
