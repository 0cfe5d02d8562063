// Device library, part 6c: the loop of attention on warpgroups (see 61_attend.cuh): barriers and first copies, the producer warp, helper warps with per-key values, wgmma.
#pragma once
#include "60_wgmma_narrow.cuh"
#include "61_attend.cuh"

namespace mo {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Warps that work on what depends on one key: those that do nothing else, and the producer, so that each of the four schedulers has one.
template <class P> MO_FN constexpr int attend_helpers() { return P::kHelpers + (P::kProducer ? 1 : 0); }

/// Barriers, then the first copies. Issuing a copy costs its thread about 130 clocks, so three warps share them.
template <class P> MO_FN void attend_prologue(const typename P::Args& a, const AttendPlace& at, const AttendMemory<P>& mem, int warp) {
  constexpr int kIssuer = P::kProducer ? 4 * P::kGroups : 0;
  if (warp == kIssuer && lane_id() == 0) {   // one thread: fences of a whole warp cost several times more
#pragma unroll
    for (int s = 0; s < P::kStages; s++) {
      mbarrier_init(mem.k_full(s), 1);
      mbarrier_init(mem.v_full(s), 1);
      if constexpr (P::kProducer) {
        mbarrier_init(mem.k_empty(s), 4 * P::kQueryGroups + (P::kKeyKnown ? P::kHelpers : 0));
        mbarrier_init(mem.v_empty(s), 4 * P::kQueryGroups + (P::kValueKnown > 0 ? P::kHelpers : 0));
      }
      if constexpr (P::kHelpers > 0) { mbarrier_init(mem.k_known(s), attend_helpers<P>()); mbarrier_init(mem.v_known(s), attend_helpers<P>()); }
    }
    mbarrier_init(mem.q_full(), 1);
    mbarrier_init(mem.received(), 1);
    if constexpr (P::kCluster > 1) mbarrier_expect(mem.received(), P::kCluster * P::kRows * P::kRecordBytes);
    mbarrier_publish();
  }
  warp_barrier();
  if constexpr (P::kCluster > 1) cluster_arrive_relaxed();   // the inits are published already; releasing would wait for all that is outstanding
  barrier();
  if (lane_id() == 0) {
    if (warp == kIssuer) {
#pragma unroll
      for (int c = 0; c < P::kStages; c++)
        if (c < at.chunks) attend_copy_k<P>(a, at, mem, c, c);
    } else if (warp == 1) {
      mbarrier_expect(mem.q_full(), P::kQueryGroups * 64 * P::kFeatures * 2);
      P::copy_q(a, at, mem.base, mem.q_full());
    } else if (warp == 2) {
#pragma unroll
      for (int c = 0; c < P::kStages; c++)
        if (c < at.chunks) attend_copy_v<P>(a, at, mem, c, c);
    }
  }
  warp_barrier();
}

/// Chunk c takes the place of chunk c - kStages, once that is free.
template <class P> MO_FN void attend_refill(const typename P::Args& a, const AttendPlace& at, const AttendMemory<P>& mem, int c, bool keys, bool values) {
  const int s = c % P::kStages, turn = c / P::kStages;
  if (keys) { mbarrier_wait(mem.k_empty(s), (turn - 1) & 1); attend_copy_k<P>(a, at, mem, c, c); }
  if (values) { mbarrier_wait(mem.v_empty(s), (turn - 1) & 1); attend_copy_v<P>(a, at, mem, c, c); }
}
/// One warp refills the ring, or two, one with keys and one with values: keys are free a chunk earlier, and need not wait until values are.
template <class P> MO_FN void attend_produce(const typename P::Args& a, const AttendPlace& at, const AttendMemory<P>& mem, int producer) {
  if (lane_id() == 0)
    for (int c = P::kStages; c < at.chunks; c++) attend_refill<P>(a, at, mem, c, P::kProducers == 1 || producer == 0, P::kProducers == 1 || producer == 1);
  warp_barrier();
}

/// Helper warps: what depends on one key alone (its norm, its bias), a lane per key. Units of 32 keys are dealt to them in turn, from chunk to chunk, where their number does not divide.
/// PRODUCES: the warp refills the ring, too. A chunk is let go once the same warpgroup has the scores of its next, kKeyGroups further, and these may need that one's values; so it is refilled behind the work on that one.
template <class P, bool PRODUCES> MO_FN void attend_help(const typename P::Args& a, const AttendPlace& at, const AttendMemory<P>& mem, int helper) {
  for (int c = 0; c < at.chunks; c++) {
    const int s = c % P::kStages, turn = (c / P::kStages) & 1, key0 = (at.first + c) * P::kChunk;
    constexpr int kUnits = P::kChunk / 32, kHelpers = attend_helpers<P>();
    const int mine = (kUnits % kHelpers == 0 ? helper : (helper + kHelpers - c * kUnits % kHelpers) % kHelpers) * 32 + lane_id();
    if constexpr (P::kKeyKnown > 0) {
      mbarrier_wait(mem.k_full(s), turn);
#pragma unroll
      for (int r = mine; r < P::kChunk; r += 32 * kHelpers) {
        const auto row = attend_known_row<P, P::kFeatures, P::kKeySquares, 16 * P::kFeatureSteps>(mem.smem + mem.k_offset(s), r);
        P::key_values(a, at, row, key0 + r, mem.k_values(s), r);
      }
      warp_barrier();
      if (lane_id() == 0) { mbarrier_arrive(mem.k_known(s)); if (P::kProducer && !PRODUCES) mbarrier_arrive(mem.k_empty(s)); }
    }
    if constexpr (P::kValueKnown > 0) {
      mbarrier_wait(mem.v_full(s), turn);
#pragma unroll
      for (int r = mine; r < P::kChunk; r += 32 * kHelpers) {
        const auto row = attend_known_row<P, P::kColumns, P::kValueSquares, P::kUsedColumns>(mem.smem + mem.v_offset(s), r);
        P::value_values(a, at, row, key0 + r, mem.v_values(s), r);
      }
      warp_barrier();
      if (lane_id() == 0) { mbarrier_arrive(mem.v_known(s)); if (P::kProducer && !PRODUCES) mbarrier_arrive(mem.v_empty(s)); }
    }
    if constexpr (PRODUCES) {
      const int next = c - P::kKeyGroups + P::kStages;
      if (lane_id() == 0 && c >= P::kKeyGroups && next < at.chunks) attend_refill<P>(a, at, mem, next, true, true);
      warp_barrier();
    }
  }
}

template <class P> MO_FN void attend_issue_scores(AttendState<P>& t, uint32_t q, uint32_t k) {
  constexpr bool kAcross = P::kKeyLinesAlongKeys;
  const uint64_t dq = wgmma_tile(q, 16), dk = wgmma_tile(k, kAcross ? P::kFeatures * 128 : 16);
#pragma unroll
  for (int i = 0; i < P::kFeatureSteps; i++)
    wgmma_shared<typename P::T, kAcross>(t.S, dq + (((i >> 2) * 8192 + (i & 3) * 32) >> 4), dk + ((kAcross ? i * 2048 : (i >> 2) * P::kChunk * 128 + (i & 3) * 32) >> 4), i > 0);
  wgmma_commit();
}
/// N accumulators from the FIRST on.
template <int FIRST, int N, int R> MO_FN float (&attend_part(float (&d)[R]))[N] { return *reinterpret_cast<float (*)[N]>(&d[FIRST]); }
template <class P> MO_FN void attend_issue_results(AttendState<P>& t, uint32_t v) {
  constexpr bool kAcross = !P::kValueLinesAlongKeys;
  constexpr int kWhole = P::kUsedColumns <= 128 ? 0 : P::kUsedColumns / 128, kRest = P::kUsedColumns - 128 * kWhole, kBox = P::kChunk * 128;   // an instruction has up to 128 columns here
  const uint64_t dv = wgmma_tile(v, kAcross ? kBox : 16);
#pragma unroll
  for (int i = 0; i < P::kChunk / 16; i++) {
    const uint32_t* const w = t.W + 4 * i;
    const uint64_t at = dv + ((kAcross ? i * 2048 : (i >> 2) * P::kColumns * 128 + (i & 3) * 32) >> 4);
    if constexpr (kWhole > 0) wgmma_registers<typename P::T, kAcross>(attend_part<0, 64>(t.O), w[0], w[1], w[2], w[3], at, 1);
    if constexpr (kWhole > 1) wgmma_registers<typename P::T, kAcross>(attend_part<64, 64>(t.O), w[0], w[1], w[2], w[3], at + ((kAcross ? 2 * kBox : 128 * 128) >> 4), 1);
    if constexpr (kRest > 0) wgmma_registers<typename P::T, kAcross>(attend_part<64 * kWhole, kRest / 2>(t.O), w[0], w[1], w[2], w[3], at + (kWhole * (kAcross ? 2 * kBox : 128 * 128) >> 4), 1);
  }
  wgmma_commit();
}

/// The loop of one warpgroup: group_q-th 64 queries, chunks group_k, group_k + kKeyGroups ...
template <class P> MO_FN void attend_loop(const typename P::Args& a, const AttendPlace& at, const AttendMemory<P>& mem, AttendState<P>& t, const AttendGains<P>& gains, int group_q, int group_k, int warp) {
  if constexpr (P::kQueryGains) {   // the warpgroup of the first keys multiplies, after all have read what they need of the rows as they were
    float most[2] = {1.0f, 1.0f};
    const int row0 = group_q * 64 + (warp & 3) * 16 + (lane_id() >> 2), part = lane_id() & 3;
#pragma unroll
    for (int r = 0; r < 2; r++)
      if constexpr (AttendScaled<P>::value) most[r] = gains.most(mem.template q_row<4>(row0 + 8 * r, part));
    named_barrier(1, P::kGroupThreads * P::kGroups);
#pragma unroll
    for (int r = 0; r < 2; r++)
      attend_gain<P>(t, r, most[r], [&](float up) { if (group_k == 0) gains.apply(mem.template q_row<4>(row0 + 8 * r, part), up); });
    fence_async_proxy();
    named_barrier(1, P::kGroupThreads * P::kGroups);
  }
  const int mine = P::kEvenChunks > 0 ? P::kEvenChunks : (at.chunks - group_k + P::kKeyGroups - 1) / P::kKeyGroups;
  const bool leader = lane_id() == 0;
  const uint32_t q = mem.base + group_q * (P::kFeatures * 128);
  const auto stage = [](int c) { return c % P::kStages; };
  const auto parity = [](int c) { return (c / P::kStages) & 1; };
  const auto softmax = [&](int c) {
    if constexpr (P::kKeyKnown > 0) mbarrier_wait(mem.k_known(stage(c)), parity(c));
    if (t.active) attend_softmax<P>(a, at, t, (at.first + c) * P::kChunk, mem.k_values(stage(c)));
  };
  const auto free_keys = [&](int s, bool read) {   // a stage's keys: once the scores are made, or once what is known of its keys was read, too
    if (!P::kProducer || read != (P::kKeyKnown > 0)) return;
    if constexpr (P::kKeyKnown > 0) warp_barrier();
    if (leader) mbarrier_arrive(mem.k_empty(s));
  };
  const auto weights = [&](int c) {
    if constexpr (P::kValueKnown > 0) mbarrier_wait(mem.v_known(stage(c)), parity(c));
    if (t.active) attend_weights<P>(a, at, t, (at.first + c) * P::kChunk, mem.v_values(stage(c)));
  };
  if (mine <= 0) return;
  if (P::kTurns && group_q + P::kQueryGroups * group_k == P::kGroups - 1) named_barrier_arrive(2, 256);
  {
    const int s = stage(group_k);
    mbarrier_wait(mem.k_full(s), 0);
    wgmma_fence();
    attend_issue_scores<P>(t, q, mem.k(s));
    wgmma_wait<0>();
    wgmma_pin(t.S);
    free_keys(s, false);
    softmax(group_k);
    if (mine > 1) attend_fetch<P>(a, at, t, (at.first + group_k + P::kKeyGroups) * P::kChunk);
    free_keys(s, true);
    weights(group_k);
  }
#pragma unroll 1
  for (int i = 1; i < mine; i++) {
    const int c = i * P::kKeyGroups + group_k, s = stage(c), before = stage(c - P::kKeyGroups);
    mbarrier_wait(mem.k_full(s), parity(c));   // both waits stand before the fence: between wgmmas they would serialise them
    mbarrier_wait(mem.v_full(before), parity(c - P::kKeyGroups));
    if constexpr (P::kTurns) named_barrier(2 + group_q + P::kQueryGroups * group_k, 256);   // warpgroups take turns on the tensor cores
    wgmma_pin(t.S);
    wgmma_pin(t.O);
    wgmma_fence();
    attend_issue_scores<P>(t, q, mem.k(s));
    attend_issue_results<P>(t, mem.v(before));
    if constexpr (P::kTurns) named_barrier_arrive(2 + (group_q + P::kQueryGroups * group_k + 1) % P::kGroups, 256);
    wgmma_wait<1>();
    wgmma_pin(t.S);
    free_keys(s, false);
    softmax(c);
    if (i + 1 < mine) attend_fetch<P>(a, at, t, (at.first + c + P::kKeyGroups) * P::kChunk);
    free_keys(s, true);
    wgmma_wait<0>();
    wgmma_pin(t.O);
    if (P::kProducer && leader) mbarrier_arrive(mem.v_empty(before));
#pragma unroll
    for (int j = 0; j < P::kUsedColumns / 2; j++) t.O[j] *= t.alpha[(j >> 1) & 1];
    weights(c);
  }
  const int last = (mine - 1) * P::kKeyGroups + group_k;
  mbarrier_wait(mem.v_full(stage(last)), parity(last));
  wgmma_pin(t.O);
  wgmma_fence();
  attend_issue_results<P>(t, mem.v(stage(last)));
  wgmma_wait<0>();
  wgmma_pin(t.O);
#pragma unroll
  for (int k = 0; k < P::kSums; k++)
#pragma unroll
    for (int r = 0; r < 2; r++) { t.sums[k][r] += shuffle_xor(t.sums[k][r], 1); t.sums[k][r] += shuffle_xor(t.sums[k][r], 2); }
}

#endif

}  // namespace mo
