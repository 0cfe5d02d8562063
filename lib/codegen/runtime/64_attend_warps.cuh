// Device library, part 6d: the loop of attention for up to 16 queries per key set (see 61_attend.cuh): the queries are the 16-row operand of mma.m16n8k16, every warp has rings and chunks of its own.
#pragma once
#include "61_attend.cuh"

namespace mo {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// ---- up to 16 queries per key set: the queries are the 16-row operand of mma.m16n8k16, every warp has rings and chunks of its own, and no barrier stands in the loop

template <class P> MO_FN void attend_warp_loop(const typename P::Args& a, const AttendPlace& at, const AttendMemory<P>& mem, AttendState<P>& t, const AttendGains<P>& gains, int warp) {
  const int lane = lane_id(), i8 = lane & 7, part = lane >> 3;
  uint32_t q[P::kFeatures / 16][4];
#pragma unroll
  for (int k = 0; k < P::kFeatures / 16; k++) load_matrix_x4(q[k], attend_line(mem.smem, (part & 1) * 8 + i8, 2 * k + (part >> 1), 2048));
  if constexpr (P::kQueryGains) {
#pragma unroll
    for (int r = 0; r < 2; r++) attend_gain<P>(t, r, AttendScaled<P>::value ? gains.most(q, r) : 1.0f, [&](float up) { gains.apply(q, r, up); });
  }
  const int mine = P::kEvenChunks > 0 ? P::kEvenChunks : (at.chunks - warp + P::kKeyGroups - 1) / P::kKeyGroups;
#pragma unroll 1
  for (int i = 0; i < mine; i++) {
    const int s = i % P::kStages, parity = (i / P::kStages) & 1, chunk = i * P::kKeyGroups + warp, next = i + P::kStages, key0 = attend_key<P>(at.first + chunk);
    mbarrier_wait(mem.k_full(s), parity);
#pragma unroll
    for (int j = 0; j < P::kChunk / 2; j++) t.S[j] = 0;
#pragma unroll
    for (int k = 0; k < P::kFeatureSteps; k++)
#pragma unroll
      for (int n = 0; n < P::kChunk / 16; n++) {
        uint32_t x[4];
        load_matrix_x4(x, attend_line(mem.smem + mem.k_offset(s), n * 16 + (part >> 1) * 8 + i8, 2 * k + (part & 1), P::kChunk * 128));
        attend_mma<typename P::T>(t.S + 8 * n, q[k], x[0], x[1]);
        attend_mma<typename P::T>(t.S + 8 * n + 4, q[k], x[2], x[3]);
      }
    if constexpr (P::kKeyKnown > 0) {
#pragma unroll
      for (int r = lane; r < P::kChunk; r += 32) P::key_values(a, at, attend_known_row<P, P::kFeatures, P::kKeySquares, 16 * P::kFeatureSteps>(mem.smem + mem.k_offset(s), r), key0 + r, mem.k_values(s), r);
    }
    warp_barrier();
    if (lane == 0 && next < mine) attend_copy_k<P>(a, at, mem, next, next * P::kKeyGroups + warp);
    attend_softmax<P>(a, at, t, key0, mem.k_values(s));
    if (i + 1 < mine) attend_fetch<P>(a, at, t, attend_key<P>(at.first + chunk + P::kKeyGroups));
    attend_rescale<P>(t);
    mbarrier_wait(mem.v_full(s), parity);
    if constexpr (P::kValueKnown > 0) {
#pragma unroll
      for (int r = lane; r < P::kChunk; r += 32) P::value_values(a, at, attend_known_row<P, P::kColumns, P::kValueSquares, P::kUsedColumns>(mem.smem + mem.v_offset(s), r), key0 + r, mem.v_values(s), r);
      warp_barrier();
    }
    attend_weights<P>(a, at, t, key0, mem.v_values(s));
#pragma unroll
    for (int k = 0; k < P::kChunk / 16; k++)
#pragma unroll
      for (int n = 0; n < P::kUsedColumns / 16; n++) {
        uint32_t x[4];
        load_matrix_x4_transposed(x, attend_line(mem.smem + mem.v_offset(s), k * 16 + (part & 1) * 8 + i8, 2 * n + (part >> 1), P::kChunk * 128));
        attend_mma<typename P::T>(t.O + 8 * n, t.W + 4 * k, x[0], x[1]);
        attend_mma<typename P::T>(t.O + 8 * n + 4, t.W + 4 * k, x[2], x[3]);
      }
    warp_barrier();
    if (lane == 0 && next < mine) attend_copy_v<P>(a, at, mem, next, next * P::kKeyGroups + warp);
  }
  attend_settle<P>(t);
}
template <class P> MO_FN void attend_warp_prologue(const typename P::Args& a, const AttendPlace& at, const AttendMemory<P>& mem, int warp) {
  if (lane_id() == 0) {
#pragma unroll
    for (int s = 0; s < P::kStages; s++) { mbarrier_init(mem.k_full(s), 1); mbarrier_init(mem.v_full(s), 1); }
    if (warp == 0) {
      mbarrier_init(mem.q_full(), 1);
      mbarrier_init(mem.received(), 1);
      if constexpr (P::kCluster > 1) mbarrier_expect(mem.received(), P::kCluster * P::kRows * P::kRecordBytes);
    }
    mbarrier_publish();
    if (warp == 0) {
      mbarrier_expect(mem.q_full(), 16 * P::kFeatures * 2);
      if constexpr (!P::kEarly) P::copy_q(a, at, mem.base, mem.q_full());
    }
#pragma unroll
    for (int s = 0; s < P::kStages; s++)
      if (s * P::kKeyGroups + warp < at.chunks) { attend_copy_k<P>(a, at, mem, s, s * P::kKeyGroups + warp); attend_copy_v<P>(a, at, mem, s, s * P::kKeyGroups + warp); }
  }
  warp_barrier();
  if constexpr (P::kCluster > 1) cluster_arrive_relaxed();
  barrier();
  if constexpr (P::kEarly) {   // keys and values are under way; everything else may come from the kernel ahead
    await_previous();
    if (warp == 0 && lane_id() == 0) P::copy_q(a, at, mem.base, mem.q_full());
    warp_barrier();
  }
}

#endif

}  // namespace mo
