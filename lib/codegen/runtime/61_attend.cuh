// Device library, part 6b: attention on warpgroups (sm_90a). softmax(Q K^T) V for 64 and more queries per key set, with whatever the block graph does to scores, weights and results in between.
//   prologue   one thread sets up the barriers; three warps start the tensor copies of K, Q and V
//   loop       a warpgroup owns 64 queries times every kKeyGroups-th chunk of keys: S = Q K^T, running maximum, exponentials, O += P V; the next S runs while this one's exponentials are made
//   end        warpgroups with the same queries merge in shared memory, the blocks of a cluster by asynchronous stores to each other; what follows the accumulators runs once
// What is particular to a kernel is a struct P that the emitter writes: numbers of the plan (kChunk ...) and functions for the elementwise parts of the block graph.
// Sources: FlashAttention-3 (arXiv 2407.08608) for the overlap, PTX ISA 9.7.13 and 9.7.15.
#pragma once
#include "30_contract.cuh"
#include "60_wgmma.cuh"

namespace mo {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

[[maybe_unused]] constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;
[[maybe_unused]] constexpr float kLowest = -3.0e38f;   // the maximum of no scores: finite, so that a chunk of nothing but -inf gives weights of 0

MO_FN float exp2_fast(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
template <class T> MO_FN uint32_t pack_pair(float lo, float hi);   // two neighbours as one word
template <> MO_FN uint32_t pack_pair<f16>(float lo, float hi) { const __half2 h = __floats2half2_rn(lo, hi); return *reinterpret_cast<const uint32_t*>(&h); }
template <> MO_FN uint32_t pack_pair<bf16>(float lo, float hi) { const __nv_bfloat162 h = __floats2bfloat162_rn(lo, hi); return *reinterpret_cast<const uint32_t*>(&h); }
MO_FN uint32_t mul_pairs(uint32_t x, uint32_t y) { const __half2 h = __hmul2(*reinterpret_cast<const __half2*>(&x), *reinterpret_cast<const __half2*>(&y)); return *reinterpret_cast<const uint32_t*>(&h); }   // float16
template <class T> MO_FN Pack<2> unpack_pair(uint32_t u);
template <> MO_FN Pack<2> unpack_pair<f16>(uint32_t u) { const float2 f = __half22float2(*reinterpret_cast<const __half2*>(&u)); return {{f.x, f.y}}; }
template <> MO_FN Pack<2> unpack_pair<bf16>(uint32_t u) { const float2 f = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&u)); return {{f.x, f.y}}; }
/// 4x4 transpose of words inside every group of four lanes: lane q ends with word q of lanes 0 to 3.
MO_FN void quad_transpose(uint32_t (&w)[4], int q) {
  uint32_t s = (q & 1) ? w[0] : w[1], t = (q & 1) ? w[2] : w[3];
  s = __shfl_xor_sync(0xffffffffu, s, 1);
  t = __shfl_xor_sync(0xffffffffu, t, 1);
  if (q & 1) { w[0] = s; w[2] = t; } else { w[1] = s; w[3] = t; }
  s = (q & 2) ? w[0] : w[2];
  t = (q & 2) ? w[1] : w[3];
  s = __shfl_xor_sync(0xffffffffu, s, 2);
  t = __shfl_xor_sync(0xffffffffu, t, 2);
  if (q & 2) { w[0] = s; w[1] = t; } else { w[2] = s; w[3] = t; }
}
MO_FN void store_async(uint32_t to, Pack<2> x, uint32_t bar) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to), "f"(x.v[0]), "f"(x.v[1]), "r"(bar) : "memory");
}

/// Where a block stands: which of the blocks that share its queries, which tile of queries, which batch; and its chunks of keys, from `first`, `chunks` of them.
struct AttendPlace { int rank, tile, batch, first, chunks; };

/// Row sums and whole rows of a swizzled tile in shared memory, lines along the row (128 bytes of each of WIDTH / 64 boxes of `box` bytes). LANES threads share a row.
template <class T, int WIDTH, int LANES> struct AttendRow {
  const unsigned char* line;   // of the first box
  int box, row, part;          // row: number of the line in its box; part: which of the LANES threads this is
  /// The i-th 16 bytes of this thread's share. In which order a row is read does not matter, so where a thread has a whole row its neighbours start elsewhere: eight rows, eight banks.
  MO_FN Vector<T, 8>* piece(int i) const {
    const int at = LANES == 1 ? (i & ~7) | ((i + row) & 7) : i * LANES + part;
    return const_cast<Vector<T, 8>*>(reinterpret_cast<const Vector<T, 8>*>(line + (at >> 3) * box + ((at & 7) << 4)));
  }
  template <class R, class F> MO_FN float reduce(F f) const {
    float x[2] = {R::identity(), R::identity()};
#pragma unroll
    for (int i = 0; i < WIDTH / 8 / LANES; i++) {
      const Vector<T, 8> v = *piece(i);
#pragma unroll
      for (int e = 0; e < 8; e++) x[e & 1] = R::combine(x[e & 1], f(load(v.v[e])));
    }
    return lanes_reduce<R, LANES>(R::combine(x[0], x[1]));
  }
  MO_FN void scale(float f) const {
#pragma unroll
    for (int i = 0; i < WIDTH / 8 / LANES; i++) {
      Vector<T, 8>* const p = piece(i);
      Vector<T, 8> v = *p;
#pragma unroll
      for (int e = 0; e < 8; e++) v.v[e] = store<T>(load(v.v[e]) * f);
      *p = v;
    }
  }
};

/// Addresses in shared memory.
template <class P> struct AttendMemory {
  unsigned char* smem;
  uint32_t base, bars;
  int ring;   // which ring, where warps have one each
  MO_FN AttendMemory(unsigned char* s, int ring) : smem(s), base(shared_address(s)), bars(base + P::kBarsAt + ring * P::kStages * 16), ring(ring) {}
  MO_FN int k_offset(int s) const { return P::kRingAt + (ring * P::kStages + s) * (P::kKeyBytes + P::kValueBytes); }
  MO_FN int v_offset(int s) const { return k_offset(s) + P::kKeyBytes; }
  MO_FN uint32_t k(int s) const { return base + k_offset(s); }
  MO_FN uint32_t v(int s) const { return base + v_offset(s); }
  MO_FN uint32_t k_full(int s) const { return bars + 8 * s; }
  MO_FN uint32_t v_full(int s) const { return bars + 8 * (P::kStages + s); }
  MO_FN uint32_t k_empty(int s) const { return bars + 8 * (2 * P::kStages + s); }
  MO_FN uint32_t v_empty(int s) const { return bars + 8 * (3 * P::kStages + s); }
  MO_FN uint32_t k_known(int s) const { return bars + 8 * (4 * P::kStages + s); }   // per-key values are there
  MO_FN uint32_t v_known(int s) const { return bars + 8 * (5 * P::kStages + s); }
  MO_FN uint32_t q_full() const { return base + P::kBarsAt + 8 * P::kStages * (P::kWarpRings ? 2 * P::kGroups : 6); }
  MO_FN uint32_t received() const { return q_full() + 8; }
  MO_FN float* k_values(int s) const { return reinterpret_cast<float*>(smem + P::kKnownAt) + (ring * P::kStages + s) * P::kChunk * (P::kKeyKnown + P::kValueKnown); }
  MO_FN float* v_values(int s) const { return k_values(s) + P::kChunk * P::kKeyKnown; }
  /// Row `row` of this block's queries; LANES threads share it.
  template <int LANES> MO_FN AttendRow<typename P::T, P::kFeatures, LANES> q_row(int row, int part) const {
    return {smem + row / P::kGroupRows * (P::kFeatures * P::kGroupRows * 2) + row % P::kGroupRows * 128, P::kGroupRows * 128, row, part};
  }
};
/// The n-th chunk of a ring, chunk c of the block.
template <class P> MO_FN void attend_copy_k(const typename P::Args& a, const AttendPlace& at, const AttendMemory<P>& mem, int n, int c) {
  const int s = n % P::kStages;
  mbarrier_expect(mem.k_full(s), P::kKeyBytes);
  P::copy_k(a, at, mem.k(s), (at.first + c) * P::kChunk, mem.k_full(s));
}
/// The n-th chunk of a ring, chunk c of the block.
template <class P> MO_FN void attend_copy_v(const typename P::Args& a, const AttendPlace& at, const AttendMemory<P>& mem, int n, int c) {
  const int s = n % P::kStages;
  mbarrier_expect(mem.v_full(s), P::kValueBytes);
  P::copy_v(a, at, mem.v(s), (at.first + c) * P::kChunk, mem.v_full(s));
}

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
        mbarrier_init(mem.v_empty(s), 4 * P::kQueryGroups + (P::kValueKnown ? P::kHelpers : 0));
      }
      if constexpr (P::kHelpers > 0) { mbarrier_init(mem.k_known(s), P::kHelpers); mbarrier_init(mem.v_known(s), P::kHelpers); }
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

template <class P> MO_FN void attend_produce(const typename P::Args& a, const AttendPlace& at, const AttendMemory<P>& mem) {
  if (lane_id() == 0)
    for (int c = P::kStages; c < at.chunks; c++) {
      const int s = c % P::kStages, turn = c / P::kStages;
      mbarrier_wait(mem.k_empty(s), (turn - 1) & 1);
      attend_copy_k<P>(a, at, mem, c, c);
      mbarrier_wait(mem.v_empty(s), (turn - 1) & 1);
      attend_copy_v<P>(a, at, mem, c, c);
    }
  warp_barrier();
}

/// Helper warps: what depends on one key alone (its norm, its bias), a lane per key.
template <class P> MO_FN void attend_help(const typename P::Args& a, const AttendPlace& at, const AttendMemory<P>& mem, int helper) {
  for (int c = 0; c < at.chunks; c++) {
    const int s = c % P::kStages, turn = (c / P::kStages) & 1, key0 = (at.first + c) * P::kChunk;
    if constexpr (P::kKeyKnown > 0) {
      mbarrier_wait(mem.k_full(s), turn);
#pragma unroll
      for (int r = helper * 32 + lane_id(); r < P::kChunk; r += 32 * P::kHelpers) {
        const AttendRow<typename P::T, P::kFeatures, 1> row{mem.smem + mem.k_offset(s) + r * 128, P::kChunk * 128, r, 0};
        P::key_values(a, at, row, key0 + r, mem.k_values(s), r);
      }
      warp_barrier();
      if (lane_id() == 0) { mbarrier_arrive(mem.k_known(s)); if (P::kProducer) mbarrier_arrive(mem.k_empty(s)); }
    }
    if constexpr (P::kValueKnown > 0) {
      mbarrier_wait(mem.v_full(s), turn);
#pragma unroll
      for (int r = helper * 32 + lane_id(); r < P::kChunk; r += 32 * P::kHelpers) {
        const AttendRow<typename P::T, P::kColumns, 1> row{mem.smem + mem.v_offset(s) + r * 128, P::kChunk * 128, r, 0};
        P::value_values(a, at, row, key0 + r, mem.v_values(s), r);
      }
      warp_barrier();
      if (lane_id() == 0) { mbarrier_arrive(mem.v_known(s)); if (P::kProducer) mbarrier_arrive(mem.v_empty(s)); }
    }
  }
}
/// A factor of float16 weights that could exceed their range, or lift the rounding of the smallest of them, moves into the row that it belongs to, by a power of two: such rows hold values near the smallest there are, and the move is exact.
template <class ROW> MO_FN float attend_bound_factor(const ROW& row, float f) {
  if (!(f > 2048.0f) || f > 1.7e38f) return f;
  float up = 1.0f;
  while (f > 2048.0f) { f *= 0.5f; up *= 2.0f; }
  row.scale(up);
  fence_async_proxy();
  return f;
}

/// What a thread of a consumer warpgroup holds: two rows (g and g + 8 of its warp's 16) of scores, weights and results.
template <class P> struct AttendState {
  float S[P::kChunk / 2], O[P::kColumns / 2];
  uint32_t W[P::kChunk / 4];
  float m[2], scale[2], alpha[2], sums[P::kSums][2];
  typename P::Row row[2];
  int query[2];    // of the batch
  bool active;     // whether this warp has a query at all
};

template <class P> MO_FN void attend_issue_scores(AttendState<P>& t, uint32_t q, uint32_t k) {
  constexpr bool kAcross = P::kKeyLinesAlongKeys;
  const uint64_t dq = wgmma_tile(q, 16), dk = wgmma_tile(k, kAcross ? P::kFeatures * 128 : 16);
#pragma unroll
  for (int i = 0; i < P::kFeatures / 16; i++)
    wgmma_shared<typename P::T, kAcross>(t.S, dq + (((i >> 2) * 8192 + (i & 3) * 32) >> 4), dk + ((kAcross ? i * 2048 : (i >> 2) * P::kChunk * 128 + (i & 3) * 32) >> 4), i > 0);
  wgmma_commit();
}
template <class P> MO_FN void attend_issue_results(AttendState<P>& t, uint32_t v) {
  constexpr bool kAcross = !P::kValueLinesAlongKeys;
  const uint64_t dv = wgmma_tile(v, kAcross ? P::kChunk * 128 : 16);
#pragma unroll
  for (int i = 0; i < P::kChunk / 16; i++)
    wgmma_registers<typename P::T, kAcross>(t.O, t.W[4 * i], t.W[4 * i + 1], t.W[4 * i + 2], t.W[4 * i + 3], dv + ((kAcross ? i * 2048 : (i >> 2) * P::kColumns * 128 + (i & 3) * 32) >> 4), 1);
  wgmma_commit();
}

/// Scores become exp(logit - running maximum); sums follow, O must later be multiplied by alpha. key0: the chunk's first key; known: per-key values.
template <class P> MO_FN void attend_softmax(const typename P::Args& a, const AttendPlace& at, AttendState<P>& t, int key0, const float* known) {
  const int quad = lane_id() & 3;
  if constexpr (!P::kPlainLogit) {
#pragma unroll
    for (int j = 0; j < P::kChunk / 8; j++)
#pragma unroll
      for (int c = 0; c < 2; c++) {
        const int col = 8 * j + 2 * quad + c;
        float values[P::kKeyKnown > 0 ? P::kKeyKnown : 1];
#pragma unroll
        for (int k = 0; k < P::kKeyKnown; k++) values[k] = known[k * P::kChunk + col];
#pragma unroll
        for (int r = 0; r < 2; r++) t.S[4 * j + 2 * r + c] = P::logit(a, at, t.S[4 * j + 2 * r + c], t.row[r], values, t.query[r], key0 + col);
      }
  }
  if constexpr (P::kKeys % P::kChunk != 0) {
    if (key0 + P::kChunk > P::kKeys) {
#pragma unroll
      for (int i = 0; i < P::kChunk / 2; i++)
        if (key0 + 8 * (i >> 2) + 2 * quad + (i & 1) >= P::kKeys) t.S[i] = -infinity();
    }
  }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float x = t.S[2 * r], y = t.S[2 * r + 1];
#pragma unroll
    for (int j = 1; j < P::kChunk / 8; j++) { x = ::fmaxf(x, t.S[4 * j + 2 * r]); y = ::fmaxf(y, t.S[4 * j + 2 * r + 1]); }
    x = ::fmaxf(x, y);
    x = ::fmaxf(x, shuffle_xor(x, 1));
    x = ::fmaxf(x, shuffle_xor(x, 2));
    const float m = ::fmaxf(t.m[r], x * t.scale[r]);
    t.alpha[r] = exp2_fast(t.m[r] - m);
    t.m[r] = m;
    float sum[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < P::kChunk / 8; j++)
#pragma unroll
      for (int c = 0; c < 2; c++) {
        float& s = t.S[4 * j + 2 * r + c];
        s = exp2_fast(::fmaf(s, t.scale[r], -m));
        sum[c] += s;
      }
    t.sums[0][r] = t.sums[0][r] * t.alpha[r] + (sum[0] + sum[1]);
  }
}
/// Weights of V from the exponentials, as the A operand of the next contraction. known: per-key values.
template <class P> MO_FN void attend_weights(const typename P::Args& a, const AttendPlace& at, AttendState<P>& t, int key0, const float* known) {
  const int quad = lane_id() & 3;
#pragma unroll
  for (int j = 0; j < P::kChunk / 8; j++) {
    float w[4] = {t.S[4 * j], t.S[4 * j + 1], t.S[4 * j + 2], t.S[4 * j + 3]};
    if constexpr (!P::kPlainWeight && !P::kPairFactors) {
      float values[2][P::kValueKnown > 0 ? P::kValueKnown : 1];
#pragma unroll
      for (int k = 0; k < P::kValueKnown; k++) {
        const float2 f = *reinterpret_cast<const float2*>(known + k * P::kChunk + 8 * j + 2 * quad);
        values[0][k] = f.x;
        values[1][k] = f.y;
      }
#pragma unroll
      for (int i = 0; i < 4; i++) w[i] = P::weight(a, at, w[i], t.row[i >> 1], values[i & 1], t.query[i >> 1], key0 + 8 * j + 2 * quad + (i & 1));
      if constexpr (P::kKeys % P::kChunk != 0) {
#pragma unroll
        for (int i = 0; i < 4; i++)
          if (key0 + 8 * j + 2 * quad + (i & 1) >= P::kKeys) w[i] = 0;
      }
    }
    uint32_t x = pack_pair<typename P::T>(w[0], w[1]), y = pack_pair<typename P::T>(w[2], w[3]);
    if constexpr (P::kPairFactors) {
      const uint32_t f = reinterpret_cast<const uint32_t*>(known)[4 * j + quad];
      x = mul_pairs(x, f);
      y = mul_pairs(y, f);
    }
    t.W[4 * (j >> 1) + 2 * (j & 1)] = x;
    t.W[4 * (j >> 1) + 2 * (j & 1) + 1] = y;
  }
}

/// The loop of one warpgroup: group_q-th 64 queries, chunks group_k, group_k + kKeyGroups ...
template <class P> MO_FN void attend_loop(const typename P::Args& a, const AttendPlace& at, const AttendMemory<P>& mem, AttendState<P>& t, int group_q, int group_k, int warp) {
  const int mine = P::kEvenChunks > 0 ? P::kEvenChunks : (at.chunks - group_k + P::kKeyGroups - 1) / P::kKeyGroups;
  const bool leader = lane_id() == 0;
  const uint32_t q = mem.base + group_q * (P::kFeatures * 128);
  const auto stage = [](int c) { return c % P::kStages; };
  const auto parity = [](int c) { return (c / P::kStages) & 1; };
  const auto softmax = [&](int c) {
    if constexpr (P::kKeyKnown > 0) mbarrier_wait(mem.k_known(stage(c)), parity(c));
    if (t.active) attend_softmax<P>(a, at, t, (at.first + c) * P::kChunk, mem.k_values(stage(c)));
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
    if (P::kProducer && leader) mbarrier_arrive(mem.k_empty(s));
    softmax(group_k);
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
    if (P::kProducer && leader) mbarrier_arrive(mem.k_empty(s));
    softmax(c);
    wgmma_wait<0>();
    wgmma_pin(t.O);
    if (P::kProducer && leader) mbarrier_arrive(mem.v_empty(before));
#pragma unroll
    for (int j = 0; j < P::kColumns / 2; j++) t.O[j] *= t.alpha[(j >> 1) & 1];
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

/// Groups (warpgroups, or warps with rings of their own) with the same queries: each adds up its own kColumns / kKeyGroups columns over all of them, into H.
template <class P, int N> MO_FN void attend_merge(const AttendMemory<P>& mem, AttendState<P>& t, float (&H)[N], int group, int group_q, int group_k) {
  constexpr int kPieces = P::kColumns / 8, kStats = (2 + 2 * P::kSums + 3) / 4, kThreads = P::kGroupThreads, kRecord = (kPieces + kStats) * kThreads;   // float4, one per thread of a group
  const int thread = thread_id() % kThreads;
  named_barrier(1, kThreads * P::kGroups);   // the ring is free
  float4* const x = reinterpret_cast<float4*>(mem.smem + P::kRingAt) + group * kRecord + thread;
#pragma unroll
  for (int j = 0; j < kPieces; j++) x[j * kThreads] = make_float4(t.O[4 * j], t.O[4 * j + 1], t.O[4 * j + 2], t.O[4 * j + 3]);
  float stats[4 * kStats] = {t.m[0], t.m[1]};
#pragma unroll
  for (int k = 0; k < P::kSums; k++) { stats[2 + 2 * k] = t.sums[k][0]; stats[3 + 2 * k] = t.sums[k][1]; }
#pragma unroll
  for (int i = 0; i < kStats; i++) x[(kPieces + i) * kThreads] = make_float4(stats[4 * i], stats[4 * i + 1], stats[4 * i + 2], stats[4 * i + 3]);
  named_barrier(1, kThreads * P::kGroups);
  const float4* const y = reinterpret_cast<const float4*>(mem.smem + P::kRingAt) + group_q * kRecord + thread;
  float w[P::kKeyGroups][2], all[P::kKeyGroups][4 * kStats];
#pragma unroll
  for (int g = 0; g < P::kKeyGroups; g++)
#pragma unroll
    for (int i = 0; i < kStats; i++) {
      const float4 f = y[g * P::kQueryGroups * kRecord + (kPieces + i) * kThreads];
      all[g][4 * i] = f.x; all[g][4 * i + 1] = f.y; all[g][4 * i + 2] = f.z; all[g][4 * i + 3] = f.w;
    }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    t.m[r] = kLowest;
#pragma unroll
    for (int g = 0; g < P::kKeyGroups; g++) t.m[r] = ::fmaxf(t.m[r], all[g][r]);
#pragma unroll
    for (int g = 0; g < P::kKeyGroups; g++) w[g][r] = exp2_fast(all[g][r] - t.m[r]);
#pragma unroll
    for (int k = 0; k < P::kSums; k++) {
      t.sums[k][r] = 0;
#pragma unroll
      for (int g = 0; g < P::kKeyGroups; g++) t.sums[k][r] += w[g][r] * all[g][2 + 2 * k + r];
    }
  }
#pragma unroll
  for (int j = 0; j < N / 4; j++) {
    H[4 * j] = H[4 * j + 1] = H[4 * j + 2] = H[4 * j + 3] = 0;
#pragma unroll
    for (int g = 0; g < P::kKeyGroups; g++) {
      const float4 f = y[g * P::kQueryGroups * kRecord + (group_k * (N / 4) + j) * kThreads];
      H[4 * j] += w[g][0] * f.x;
      H[4 * j + 1] += w[g][0] * f.y;
      H[4 * j + 2] += w[g][1] * f.z;
      H[4 * j + 3] += w[g][1] * f.w;
    }
  }
}

/// No cluster: what follows the accumulators, and the stores. H: this thread's two rows of columns 8 * (first + j) ...
template <class P, int N> MO_FN void attend_finish(const typename P::Args& a, const AttendPlace& at, AttendState<P>& t, float (&H)[N], int first, bool leader) {
  const int quad = lane_id() & 3;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    typename P::After after(a, at, t.row[r], t.m[r], t.sums, r, t.query[r]);
    if (leader && quad == 0 && t.query[r] < P::kQueries) after.store_row(a, at, t.query[r]);
    if constexpr (P::kVectorStores && N >= 16) {
#pragma unroll
      for (int j = 0; j < N / 4; j += 4) {
        uint32_t w[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int col = 8 * (first + j + i) + 2 * quad;
          const Pack<2> x = {{H[4 * (j + i) + 2 * r], H[4 * (j + i) + 2 * r + 1]}};
          w[i] = pack_pair<typename P::Out>(after.column(a, at, x.v[0], t.query[r], col), after.column(a, at, x.v[1], t.query[r], col + 1));
        }
        quad_transpose(w, quad);
        if (t.query[r] < P::kQueries) P::store_vector(a, at, t.query[r], 8 * (first + j + quad), make_uint4(w[0], w[1], w[2], w[3]));
      }
    } else {
#pragma unroll
      for (int j = 0; j < N / 4; j++) {
        const int col = 8 * (first + j) + 2 * quad;
        if (t.query[r] < P::kQueries) after.store_pair(a, at, H[4 * j + 2 * r], H[4 * j + 2 * r + 1], t.query[r], col);
      }
    }
  }
}

/// A cluster: rows are dealt to its blocks, every block sends its part of a row to the owner, which adds the parts up, goes on as the block graph says, and stores.
template <class P, int N> MO_FN void attend_exchange(const typename P::Args& a, const AttendPlace& at, const AttendMemory<P>& mem, AttendState<P>& t, float (&H)[N], int group_q, int group_k, int warp) {
  const int lane = lane_id(), quad = lane & 3, first = group_k * (N / 4);
  cluster_wait();   // every block of the cluster runs
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int row = group_q * P::kGroupRows + (P::kWarpRings ? 0 : (warp & 3) * 16) + (lane >> 2) + 8 * r;
    const int owner = row / P::kRows;
    const bool live = row < P::kRows * P::kCluster;
    const uint32_t to = remote_address(mem.base + P::kReceiveAt + (at.rank * P::kRows + row % P::kRows) * P::kRecordPitch, live ? owner : 0), bar = remote_address(mem.received(), live ? owner : 0);
    if constexpr (P::kNarrowParts) {   // divided by its own sum a part fits the operands' type, and its rounding is weighted like the part itself
      const float inverse = t.sums[0][r] > 0 ? 1.0f / t.sums[0][r] : (t.sums[0][r] == 0 ? 0.0f : t.sums[0][r]);
      uint32_t w[N / 4];
#pragma unroll
      for (int j = 0; j < N / 4; j++) w[j] = pack_pair<typename P::T>(H[4 * j + 2 * r] * inverse, H[4 * j + 2 * r + 1] * inverse);
      if constexpr (N >= 16) {
#pragma unroll
        for (int j = 0; j < N / 4; j += 4) {
          uint32_t v[4] = {w[j], w[j + 1], w[j + 2], w[j + 3]};
          quad_transpose(v, quad);
          if (live) store_async(to + 16 * (first + j + quad), Pack<4>{{__uint_as_float(v[0]), __uint_as_float(v[1]), __uint_as_float(v[2]), __uint_as_float(v[3])}}, bar);
        }
      } else {
#pragma unroll
        for (int j = 0; j < N / 4; j++)
          if (live) store_async(to + 16 * (first + j) + 4 * quad, __uint_as_float(w[j]), bar);
      }
    } else {
#pragma unroll
      for (int j = 0; j < N / 4; j++)
        if (live) store_async(to + 32 * (first + j) + 8 * quad, Pack<2>{{H[4 * j + 2 * r], H[4 * j + 2 * r + 1]}}, bar);
    }
    if (live && group_k == 0 && quad == 0) {
      constexpr int kAt = P::kColumns * (P::kNarrowParts ? 2 : 4);
      store_async(to + kAt, Pack<2>{{t.m[r], t.sums[0][r]}}, bar);
#pragma unroll
      for (int k = 1; k < P::kSums; k++) store_async(to + kAt + 4 + 4 * k, t.sums[k][r], bar);
    }
  }
  mbarrier_wait_cluster(mem.received(), 0);
#pragma unroll
  for (int item = thread_id(); item < P::kRows * (P::kColumns / 2); item += P::kGroupThreads * P::kGroups) {
    const int row = item / (P::kColumns / 2), pair = item % (P::kColumns / 2);
    const unsigned char* const from = mem.smem + P::kReceiveAt + row * P::kRecordPitch;
    float m = kLowest, sums[P::kSums][1], part_m[P::kCluster];
    Pack<2> x = {{0, 0}};
#pragma unroll
    for (int b = 0; b < P::kCluster; b++) { part_m[b] = *reinterpret_cast<const float*>(from + b * P::kRows * P::kRecordPitch + P::kColumns * (P::kNarrowParts ? 2 : 4)); m = ::fmaxf(m, part_m[b]); }
#pragma unroll
    for (int k = 0; k < P::kSums; k++) sums[k][0] = 0;
#pragma unroll
    for (int b = 0; b < P::kCluster; b++) {
      const unsigned char* const part = from + b * P::kRows * P::kRecordPitch;
      const float* const stats = reinterpret_cast<const float*>(part + P::kColumns * (P::kNarrowParts ? 2 : 4)) + 1;
      float w = exp2_fast(part_m[b] - m);
#pragma unroll
      for (int k = 0; k < P::kSums; k++) sums[k][0] += w * stats[k];
      Pack<2> y;
      if constexpr (P::kNarrowParts) { y = unpack_pair<typename P::T>(*reinterpret_cast<const uint32_t*>(part + 4 * pair)); w *= stats[0]; }
      else { const float2 f = *reinterpret_cast<const float2*>(part + 8 * pair); y = {{f.x, f.y}}; }
      x.v[0] += w * y.v[0];
      x.v[1] += w * y.v[1];
    }
    const int in_block = at.rank * P::kRows + row, query = at.tile * (P::kGroupRows * P::kQueryGroups) + in_block;
    if (query < P::kQueries) {
      typename P::After after(a, at, P::row(a, at, mem.template q_row<1>(in_block, 0), query), m, sums, 0, query);
      if (pair == 0) after.store_row(a, at, query);
      after.store_pair(a, at, x.v[0], x.v[1], query, 2 * pair);
    }
  }
}

// ---- up to 16 queries per key set: the queries are the 16-row operand of mma.m16n8k16, every warp has rings and chunks of its own, and no barrier stands in the loop

/// Four neighbouring accumulators of a flat fragment.
template <class T> MO_FN void attend_mma(float* d, const uint32_t* a, uint32_t b0, uint32_t b1) {
  float x[4] = {d[0], d[1], d[2], d[3]};
  const uint32_t w[4] = {a[0], a[1], a[2], a[3]};
  mma_16x8x16(x, w, b0, b1, T());
#pragma unroll
  for (int i = 0; i < 4; i++) d[i] = x[i];
}
/// The address of 16 bytes in a swizzled tile: line, and which eight columns; box: bytes of 64 columns.
MO_FN const unsigned char* attend_line(const unsigned char* tile, int line, int eighth, int box) { return tile + (eighth >> 3) * box + line * 128 + (((eighth & 7) ^ (line & 7)) << 4); }

template <class P> MO_FN void attend_warp_loop(const typename P::Args& a, const AttendPlace& at, const AttendMemory<P>& mem, AttendState<P>& t, int warp) {
  const int lane = lane_id(), i8 = lane & 7, part = lane >> 3;
  uint32_t q[P::kFeatures / 16][4];
#pragma unroll
  for (int k = 0; k < P::kFeatures / 16; k++) load_matrix_x4(q[k], attend_line(mem.smem, (part & 1) * 8 + i8, 2 * k + (part >> 1), 2048));
  const int mine = P::kEvenChunks > 0 ? P::kEvenChunks : (at.chunks - warp + P::kKeyGroups - 1) / P::kKeyGroups;
#pragma unroll 1
  for (int i = 0; i < mine; i++) {
    const int s = i % P::kStages, parity = (i / P::kStages) & 1, chunk = i * P::kKeyGroups + warp, next = i + P::kStages, key0 = (at.first + chunk) * P::kChunk;
    mbarrier_wait(mem.k_full(s), parity);
#pragma unroll
    for (int j = 0; j < P::kChunk / 2; j++) t.S[j] = 0;
#pragma unroll
    for (int k = 0; k < P::kFeatures / 16; k++)
#pragma unroll
      for (int n = 0; n < P::kChunk / 16; n++) {
        uint32_t x[4];
        load_matrix_x4(x, attend_line(mem.smem + mem.k_offset(s), n * 16 + (part >> 1) * 8 + i8, 2 * k + (part & 1), P::kChunk * 128));
        attend_mma<typename P::T>(t.S + 8 * n, q[k], x[0], x[1]);
        attend_mma<typename P::T>(t.S + 8 * n + 4, q[k], x[2], x[3]);
      }
    if constexpr (P::kKeyKnown > 0) {
#pragma unroll
      for (int r = lane; r < P::kChunk; r += 32) P::key_values(a, at, AttendRow<typename P::T, P::kFeatures, 1>{mem.smem + mem.k_offset(s) + r * 128, P::kChunk * 128, r, 0}, key0 + r, mem.k_values(s), r);
    }
    warp_barrier();
    if (lane == 0 && next < mine) attend_copy_k<P>(a, at, mem, next, next * P::kKeyGroups + warp);
    attend_softmax<P>(a, at, t, key0, mem.k_values(s));
#pragma unroll
    for (int j = 0; j < P::kColumns / 2; j++) t.O[j] *= t.alpha[(j >> 1) & 1];
    mbarrier_wait(mem.v_full(s), parity);
    if constexpr (P::kValueKnown > 0) {
#pragma unroll
      for (int r = lane; r < P::kChunk; r += 32) P::value_values(a, at, AttendRow<typename P::T, P::kColumns, 1>{mem.smem + mem.v_offset(s) + r * 128, P::kChunk * 128, r, 0}, key0 + r, mem.v_values(s), r);
      warp_barrier();
    }
    attend_weights<P>(a, at, t, key0, mem.v_values(s));
#pragma unroll
    for (int k = 0; k < P::kChunk / 16; k++)
#pragma unroll
      for (int n = 0; n < P::kColumns / 16; n++) {
        uint32_t x[4];
        load_matrix_x4_transposed(x, attend_line(mem.smem + mem.v_offset(s), k * 16 + (part & 1) * 8 + i8, 2 * n + (part >> 1), P::kChunk * 128));
        attend_mma<typename P::T>(t.O + 8 * n, t.W + 4 * k, x[0], x[1]);
        attend_mma<typename P::T>(t.O + 8 * n + 4, t.W + 4 * k, x[2], x[3]);
      }
    warp_barrier();
    if (lane == 0 && next < mine) attend_copy_v<P>(a, at, mem, next, next * P::kKeyGroups + warp);
  }
#pragma unroll
  for (int k = 0; k < P::kSums; k++)
#pragma unroll
    for (int r = 0; r < 2; r++) { t.sums[k][r] += shuffle_xor(t.sums[k][r], 1); t.sums[k][r] += shuffle_xor(t.sums[k][r], 2); }
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
      P::copy_q(a, at, mem.base, mem.q_full());
    }
#pragma unroll
    for (int s = 0; s < P::kStages; s++)
      if (s * P::kKeyGroups + warp < at.chunks) { attend_copy_k<P>(a, at, mem, s, s * P::kKeyGroups + warp); attend_copy_v<P>(a, at, mem, s, s * P::kKeyGroups + warp); }
  }
  warp_barrier();
  if constexpr (P::kCluster > 1) cluster_arrive_relaxed();
  barrier();
}

template <class P> MO_FN void attend(const typename P::Args& a, unsigned char* smem) {
  const int warp = warp_uniform(warp_id());   // roles are the same in all lanes of a warp, and the compiler must know
  const AttendMemory<P> mem(smem, P::kWarpRings ? warp : 0);
  const AttendPlace at = P::place();
  if constexpr (P::kWarpRings) attend_warp_prologue<P>(a, at, mem, warp);
  else attend_prologue<P>(a, at, mem, warp);
  if (!P::kWarpRings && warp >= 4 * P::kGroups) {
    if constexpr (P::kGrow > 0) registers_shrink<P::kShrink>();
    const int other = warp - 4 * P::kGroups;
    if (P::kProducer && other == 0) attend_produce<P>(a, at, mem);
    else if (P::kHelpers > 0 && other - P::kProducer < P::kHelpers) attend_help<P>(a, at, mem, other - P::kProducer);
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
  t.active = P::kQueries % kTile == 0 || at.tile * kTile + row0 < P::kQueries;
  mbarrier_wait(mem.q_full(), 0);
#pragma unroll
  for (int r = 0; r < 2; r++) {
    t.query[r] = at.tile * kTile + row0 + (lane_id() >> 2) + 8 * r;
    t.row[r] = P::row(a, at, mem.template q_row<4>(row0 + (lane_id() >> 2) + 8 * r, lane_id() & 3), t.query[r]);
    t.scale[r] = P::scale(t.row[r]) * kLog2E;
    t.m[r] = kLowest;
    t.alpha[r] = 1;
#pragma unroll
    for (int k = 0; k < P::kSums; k++) t.sums[k][r] = 0;
  }
  if constexpr (P::kWarpRings) attend_warp_loop<P>(a, at, mem, t, warp);
  else attend_loop<P>(a, at, mem, t, group_q, group_k, warp);
  float H[P::kColumns / 2 / P::kKeyGroups];
  if constexpr (P::kKeyGroups > 1) attend_merge<P>(mem, t, H, group, group_q, group_k);
  else {
#pragma unroll
    for (int i = 0; i < P::kColumns / 2; i++) H[i] = t.O[i];
  }
  if constexpr (P::kCluster > 1) attend_exchange<P>(a, at, mem, t, H, group_q, group_k, warp);
  else attend_finish<P>(a, at, t, H, group_k * (P::kColumns / 8 / P::kKeyGroups), group_k == 0);
}

#endif

}  // namespace mo
