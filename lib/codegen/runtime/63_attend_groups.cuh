// Device library, part 6c: the loop of attention on warpgroups (see 61_attend.cuh): barriers and first copies, the producer warp, helper warps with per-key values, wgmma.
#pragma once
#include "60_wgmma_narrow.cuh"
#include "61_attend.cuh"

namespace mo {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Warps that work on what depends on one key: those that do nothing else, and the producer, so that each of the four schedulers has one.
template <class P> MO_FN constexpr int attend_helpers() { return P::kHelpers + (P::kProducer ? 1 : 0); }

/// Barriers and the first copies. Three threads of as many warps share them, and each asks for the first bytes as soon as the barriers are there that count them: making all would cost 400 cycles before that,
/// and issuing a copy costs its thread about 130.
template <class P> MO_FN void attend_prologue(const typename P::Args& a, const AttendPlace& at, const AttendMemory<P>& mem, int warp) {
  constexpr int kIssuer = P::kProducer ? 4 * P::kGroups : 0;
  constexpr int kReaders = 4 * P::kQueryGroups;   // warps that let go of a stage, besides helpers
  if (lane_id() == 0) {   // one thread: fences of a whole warp cost several times more
    if (warp == kIssuer) {
#pragma unroll
      for (int s = 0; s < P::kStages; s++) mbarrier_init(mem.k_full(s), 1);
      mbarrier_publish();
      if (0 < at.chunks) attend_copy_k<P>(a, at, mem, 0, 0);
#pragma unroll
      for (int s = 0; s < P::kStages; s++) {
        if constexpr (P::kProducer) mbarrier_init(mem.k_empty(s), kReaders + (P::kKeyKnown ? P::kHelpers : 0));
        if constexpr (P::kHelpers > 0) mbarrier_init(mem.k_known(s), attend_helpers<P>());
      }
      mbarrier_publish();
    } else if (warp == 1) {
      mbarrier_init(mem.q_full(), 1);
      mbarrier_publish();
      mbarrier_expect(mem.q_full(), P::kQueryGroups * 64 * P::kFeatures * 2);
      if constexpr (!P::kEarly) P::copy_q(a, at, mem.base, mem.q_full());
      mbarrier_init(mem.received(), 1);
      if constexpr (P::kCluster > 1) mbarrier_expect(mem.received(), P::kCluster * P::kRows * P::kRecordBytes);
      mbarrier_publish();
    } else if (warp == 2) {
#pragma unroll
      for (int s = 0; s < P::kStages; s++) mbarrier_init(mem.v_full(s), 1);
      mbarrier_publish();
      if (0 < at.chunks) attend_copy_v<P>(a, at, mem, 0, 0);
#pragma unroll
      for (int s = 0; s < P::kStages; s++) {
        if constexpr (P::kProducer) mbarrier_init(mem.v_empty(s), kReaders + (P::kValueKnown > 0 ? P::kHelpers : 0));
        if constexpr (P::kHelpers > 0) mbarrier_init(mem.v_known(s), attend_helpers<P>());
      }
      mbarrier_publish();
    }
  }
  warp_barrier();
  if constexpr (P::kCluster > 1) cluster_arrive_relaxed();   // the inits are published already; releasing would wait for all that is outstanding
  barrier();
  if (lane_id() == 0) {
    if (warp == kIssuer) {
#pragma unroll
      for (int c = 1; c < P::kStages; c++)
        if (c < at.chunks) attend_copy_k<P>(a, at, mem, c, c);
    } else if (warp == 2) {
#pragma unroll
      for (int c = 1; c < P::kStages; c++)
        if (c < at.chunks) attend_copy_v<P>(a, at, mem, c, c);
    }
  }
  if constexpr (P::kEarly) {   // keys and values are under way; everything else may come from the kernel ahead
    await_previous();
    if (warp == 1 && lane_id() == 0) P::copy_q(a, at, mem.base, mem.q_full());
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
    const int s = c % P::kStages, turn = (c / P::kStages) & 1, key0 = attend_key<P>(at.first + c);
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
template <int N> using AttendPart = float[N];
template <int FIRST, int N, int R> MO_FN AttendPart<N>& attend_part(float (&d)[R]) { return *reinterpret_cast<AttendPart<N>*>(&d[FIRST]); }
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
  if (mine <= 0) return;
  const bool leader = lane_id() == 0;
  const int turn = group_q + P::kQueryGroups * group_k;
  const uint32_t q = mem.base + group_q * (P::kFeatures * 128);
  // The stage of a chunk, and of the one before: addresses go along with it, since from its number they would be made again in every turn, behind the waits.
  struct Stage {
    uint32_t bars, keys;   // k_full, and the others kStages barriers further each; the stage's keys, its values behind them
    int s, parity, at;   // at: place among the keys, as AttendKeys counts
    MO_FN void next() {
      constexpr int kBytes = P::kKeyBytes + P::kValueBytes;
      s += P::kKeyGroups;
      bars += 8 * P::kKeyGroups;
      keys += kBytes * P::kKeyGroups;
      at += AttendKeys<P>::kStep * P::kKeyGroups;
      if (s >= P::kStages) { s -= P::kStages; bars -= 8 * P::kStages; keys -= kBytes * P::kStages; parity ^= 1; }
    }
    MO_FN int key0() const { return AttendKeys<P>::key(at); }
    MO_FN int next_key0() const { return AttendKeys<P>::key(at + AttendKeys<P>::kStep * P::kKeyGroups); }
    MO_FN uint32_t bar(int kind) const { return bars + 8 * P::kStages * kind; }
    MO_FN uint32_t values() const { return keys + P::kKeyBytes; }
  };
  enum { kKeysFull, kValuesFull, kKeysEmpty, kValuesEmpty, kKeysKnown, kValuesKnown };   // as in AttendMemory
  Stage now{mem.k_full(group_k), mem.k(group_k), group_k, 0, AttendKeys<P>::start(at.first + group_k)};
  const auto softmax = [&](const Stage& x) {
    if constexpr (P::kKeyKnown > 0) mbarrier_wait(x.bar(kKeysKnown), x.parity);
    if (t.active) attend_softmax<P>(a, at, t, x.key0(), mem.k_values(x.s));
  };
  const auto free_keys = [&](const Stage& x, bool read) {   // a stage's keys: once the scores are made, or once what is known of its keys was read, too
    if (!P::kProducer || read != (P::kKeyKnown > 0)) return;
    if constexpr (P::kKeyKnown > 0) warp_barrier();
    if (leader) mbarrier_arrive(x.bar(kKeysEmpty));
  };
  const auto weights = [&](const Stage& x) {
    if constexpr (P::kValueKnown > 0) mbarrier_wait(x.bar(kValuesKnown), x.parity);
    if (t.active) attend_weights<P>(a, at, t, x.key0(), mem.v_values(x.s));
  };
  if (P::kTurns && turn == P::kGroups - 1) named_barrier_arrive(2, 256);
  mbarrier_wait(now.bar(kKeysFull), 0);
  wgmma_fence();
  attend_issue_scores<P>(t, q, now.keys);
  wgmma_wait<0>();
  wgmma_pin(t.S);
  free_keys(now, false);
  softmax(now);
  if (mine > 1) attend_fetch<P>(a, at, t, now.next_key0());
  free_keys(now, true);
  weights(now);
#pragma unroll 1
  for (int i = 1; i < mine; i++) {
    const Stage before = now;
    now.next();
    mbarrier_wait(now.bar(kKeysFull), now.parity);   // both waits stand before the fence: between wgmmas they would serialise them
    mbarrier_wait(before.bar(kValuesFull), before.parity);
    if constexpr (P::kTurns) named_barrier(2 + turn, 256);   // warpgroups take turns on the tensor cores
    wgmma_pin(t.S);
    wgmma_pin(t.O);
    wgmma_fence();
    attend_issue_scores<P>(t, q, now.keys);
    attend_issue_results<P>(t, before.values());
    if constexpr (P::kTurns) named_barrier_arrive(2 + (turn + 1) % P::kGroups, 256);
    wgmma_wait<1>();
    wgmma_pin(t.S);
    free_keys(now, false);
    softmax(now);
    if (i + 1 < mine) attend_fetch<P>(a, at, t, now.next_key0());
    free_keys(now, true);
    wgmma_wait<0>();
    wgmma_pin(t.O);
    if (P::kProducer && leader) mbarrier_arrive(before.bar(kValuesEmpty));
    attend_rescale<P>(t);
    weights(now);
  }
  mbarrier_wait(now.bar(kValuesFull), now.parity);
  wgmma_pin(t.O);
  wgmma_fence();
  attend_issue_results<P>(t, now.values());
  wgmma_wait<0>();
  wgmma_pin(t.O);
  attend_settle<P>(t);
}

#endif

}  // namespace mo
