// Device library, part 6b: attention (sm_90a): softmax(Q K^T) V with whatever the block graph does to scores, weights and results in between. Here: what its forms share.
//   63_attend_groups  64 and more queries per key set: a warpgroup owns 64 queries times every kKeyGroups-th chunk of keys: S = Q K^T, running maximum, exponentials, O += P V (wgmma); the next S runs while
//                     this one's exponentials are made
//   64_attend_warps   up to 16 queries: every warp has a ring and chunks of its own (mma.sync)
//   65_attend_end     groups with the same queries merge in shared memory, the blocks of a cluster by asynchronous stores to each other; what follows the accumulators runs once
//   66_attend_kernel  who does what of these
//   67_attend_wide    up to 16 queries, several hundred features and columns: a kernel of its own
// What is particular to a kernel is a struct P that the emitter writes: numbers of the plan (kChunk ...) and functions for the elementwise parts of the block graph.
// Sources: FlashAttention-3 (arXiv 2407.08608) for the overlap, PTX ISA 9.7.13 and 9.7.15.
#pragma once
#include "30_contract.cuh"
#include "60_wgmma.cuh"

namespace mo {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

[[maybe_unused]] constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;
[[maybe_unused]] constexpr float kLowest = -3.4028234663852886e38f;   // the maximum of no scores: finite, so that a chunk of nothing but -inf gives weights of 0

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

// Partial results travel divided by their own sum and are multiplied by it again. A sum of 0 belongs to results of 0 (no key that counts), a NaN stays one.
MO_FN float part_inverse(float sum) {   // host twin
  float y;
  asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(sum));   // within one unit in the last place; a division is a dozen instructions and two branches
  return sum == 0 ? 0.0f : y;
}
MO_FN float part_factor(float sum) { return sum; }   // host twin

/// Whether chunks that masks by positions remove may be left out: where positions are numbers.
MO_FN bool masks_skip() { return true; }   // host twin
/// A maximum in units of log2, as logits are.
MO_FN float attend_natural(float m) { return m * kLn2; }   // host twin

/// Where a block stands: which of the blocks that share its queries, which tile of queries, which batch; which of the clusters that share
/// its queries; and its chunks of keys, from `first`, `chunks` of them.
struct AttendPlace { int rank, tile, batch, group, first, chunks; };

/// Where chunks of keys begin and end. A loop goes along in steps of kStep per chunk from start(its first chunk); key(): the first key there. kTail: whether a chunk may have fewer keys than it has room for; end(): behind
/// the last key of the chunk whose first key is key0.
template <class P, class = void> struct AttendKeys {
  static constexpr bool kTail = P::kKeys % P::kChunk != 0;
  static constexpr int kStep = P::kChunk;
  static MO_FN int start(int chunk) { return chunk * P::kChunk; }
  static MO_FN int key(int at) { return at; }
  static MO_FN int end(int) { return P::kKeys; }
};
/// Keys in two parts, the second one from kFirstKeys on: no chunk has keys of both. key0 is the number of a key among all.
template <class P> struct AttendKeys<P, decltype(void(P::kFirstKeys))> {
  static constexpr int kFirstChunks = (P::kFirstKeys + P::kChunk - 1) / P::kChunk;
  static constexpr bool kTail = P::kFirstKeys % P::kChunk != 0 || (P::kKeys - P::kFirstKeys) % P::kChunk != 0;
  static constexpr int kStep = 1;
  static MO_FN int start(int chunk) { return chunk; }
  static MO_FN int key(int at) { return at < kFirstChunks ? at * P::kChunk : P::kFirstKeys + (at - kFirstChunks) * P::kChunk; }
  static MO_FN int end(int key0) { return key0 < P::kFirstKeys ? P::kFirstKeys : P::kKeys; }
};
/// The first key of a chunk.
template <class P> MO_FN int attend_key(int chunk) { return AttendKeys<P>::key(AttendKeys<P>::start(chunk)); }

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
  MO_FN float squares() const { return this->template reduce<Sum>([](float x) { return x * x; }); }
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

/// Sums of squares of 32 lines of a tile, `first` and on, to each lane its own line's: the diagonals of sixteen lines times themselves, on tensor cores. A lane that squares a line takes eight times as long.
template <class T, int WIDTH> MO_FN float attend_squares(const unsigned char* tile, int first, int box) {
  const int lane = lane_id(), i8 = lane & 7, part = lane >> 3;
  const bool second = lane & 4;   // line g of eight is in lane 4 * g + g / 2, its column g % 2
  float of[4];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    float low[4] = {0, 0, 0, 0}, high[4] = {0, 0, 0, 0};
#pragma unroll
    for (int k = 0; k < WIDTH / 16; k++) {
      uint32_t x[4];
      load_matrix_x4(x, attend_line(tile, first + 16 * h + (part & 1) * 8 + i8, 2 * k + (part >> 1), box));
      attend_mma<T>(low, x, x[0], x[2]);
      attend_mma<T>(high, x, x[1], x[3]);
    }
    of[2 * h] = second ? low[1] : low[0];
    of[2 * h + 1] = second ? high[3] : high[2];
  }
#pragma unroll
  for (int j = 0; j < 4; j++) of[j] = __shfl_sync(0xffffffffu, of[j], 4 * i8 + (i8 >> 1));
  return part < 2 ? (part == 0 ? of[0] : of[1]) : part == 2 ? of[2] : of[3];
}
/// A row whose sum of squares is there already.
template <class T, int WIDTH> struct AttendSquaredRow : AttendRow<T, WIDTH, 1> {
  float known;
  MO_FN float squares() const { return known; }
};
/// Row r of a tile of K or V, of which neighbouring lanes have neighbouring rows. USED: the elements behind which there are only zeros.
template <class P, int WIDTH, bool SQUARES, int USED> MO_FN auto attend_known_row(const unsigned char* tile, int r) {
  const AttendRow<typename P::T, WIDTH, 1> row{tile + r * 128, P::kChunk * 128, r, 0};
  if constexpr (SQUARES) return AttendSquaredRow<typename P::T, WIDTH>{row, attend_squares<typename P::T, USED>(tile, r - lane_id(), P::kChunk * 128)};
  else return row;
}

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
  P::copy_k(a, at, mem.k(s), attend_key<P>(at.first + c), mem.k_full(s));
}
/// The n-th chunk of a ring, chunk c of the block.
template <class P> MO_FN void attend_copy_v(const typename P::Args& a, const AttendPlace& at, const AttendMemory<P>& mem, int n, int c) {
  const int s = n % P::kStages;
  mbarrier_expect(mem.v_full(s), P::kValueBytes);
  P::copy_v(a, at, mem.v(s), attend_key<P>(at.first + c), mem.v_full(s));
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

// Gains per feature multiply Q before the scores: those of K, too, whose rows stay as they are. A product of float16 operands could leave their range, so a row is brought near its upper end by a power
// of two, which the scores are divided by again: what is rounded has the eleven bits that TF32 would keep.
/// The power of two that brings `most`, the largest of a row, to [2^14, 2^15); 1 where there is none.
MO_FN float gain_up(float most) {   // host twin
  const uint32_t e = __float_as_uint(most) >> 23 & 255;
  return e == 0 || e == 255 ? 1.0f : __uint_as_float((268 - (e < 15 ? 15 : e)) << 23);
}
MO_FN float gain_down(float most) {   // host twin
  const uint32_t e = __float_as_uint(most) >> 23 & 255;
  return e == 0 || e == 255 ? 1.0f : __uint_as_float(((e < 15 ? 15 : e) - 14) << 23);
}
/// The gains that a thread needs, asked for before Q is there. Of warps with rings of their own: four of every sixteen features, as the 16-row operand of mma.m16n8k16 lies; of warpgroups: eight of every 32.
template <class P> struct AttendGains {
  float g[P::kQueryGains ? P::kFeatures / 4 : 1];
  MO_FN AttendGains(const typename P::Args& a, const AttendPlace& at) {
    if constexpr (P::kQueryGains) {
      const int quad = lane_id() & 3;
#pragma unroll
      for (int i = 0; i < P::kFeatures / 4; i++) g[i] = P::gain(a, at, P::kWarpRings ? 16 * (i >> 2) + 2 * quad + (i & 1) + 8 * (i >> 1 & 1) : 8 * (quad + 4 * (i >> 3)) + (i & 7));
    }
  }
  static MO_FN float most_of(float x) { x = ::fmaxf(x, shuffle_xor(x, 1)); return ::fmaxf(x, shuffle_xor(x, 2)); }
  /// Eight features of a row that four threads share.
  template <class ROW> static MO_FN Vector<typename P::T, 8>* piece(const ROW& row, int i) {
    const int eighth = row.part + 4 * i;
    return const_cast<Vector<typename P::T, 8>*>(reinterpret_cast<const Vector<typename P::T, 8>*>(row.line + (eighth >> 3) * row.box + (((eighth & 7) ^ (row.row & 7)) << 4)));
  }
  /// The largest of a row in shared memory, after the gains; float16 only.
  template <class ROW> MO_FN float most(const ROW& row) const {
    float x = 0;
#pragma unroll
    for (int i = 0; i < P::kFeatures / 32; i++) {
      const Vector<typename P::T, 8> v = *piece(row, i);
#pragma unroll
      for (int e = 0; e < 8; e++) x = ::fmaxf(x, ::fabsf(load(v.v[e]) * g[8 * i + e]));
    }
    return most_of(x);
  }
  template <class ROW> MO_FN void apply(const ROW& row, float up) const {
#pragma unroll
    for (int i = 0; i < P::kFeatures / 32; i++) {
      Vector<typename P::T, 8> v = *piece(row, i);
#pragma unroll
      for (int e = 0; e < 8; e++) v.v[e] = store<typename P::T>(load(v.v[e]) * g[8 * i + e] * up);
      *piece(row, i) = v;
    }
  }
  /// The same of a fragment: word j of q[k] is row (j & 1), features 16 k + 8 (j >> 1) + 2 quad and the next.
  MO_FN float most(const uint32_t (&q)[P::kFeatures / 16][4], int r) const {
    float x = 0;
#pragma unroll
    for (int k = 0; k < P::kFeatures / 16; k++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const Pack<2> v = unpack_pair<typename P::T>(q[k][2 * h + r]);
        x = ::fmaxf(x, ::fmaxf(::fabsf(v.v[0] * g[4 * k + 2 * h]), ::fabsf(v.v[1] * g[4 * k + 2 * h + 1])));
      }
    return most_of(x);
  }
  MO_FN void apply(uint32_t (&q)[P::kFeatures / 16][4], int r, float up) const {
#pragma unroll
    for (int k = 0; k < P::kFeatures / 16; k++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const Pack<2> v = unpack_pair<typename P::T>(q[k][2 * h + r]);
        q[k][2 * h + r] = pack_pair<typename P::T>(v.v[0] * g[4 * k + 2 * h] * up, v.v[1] * g[4 * k + 2 * h + 1] * up);
      }
  }
};
/// Whether rows of Q are scaled with their gains.
template <class P> struct AttendScaled { static constexpr bool value = P::kQueryGains && P::kFloat16; };

/// What a thread of a consumer warpgroup holds: two rows (g and g + 8 of its warp's 16) of scores, weights and results.
template <class P> struct AttendState {
  float S[P::kChunk / 2], O[P::kColumns / 2];
  uint32_t W[P::kChunk / 4];
  float m[2], scale[2], alpha[2], sums[P::kSums][2];
  float top[2];    // kAttendLags: the running maximum of this lane's scores; m, which sums and results are relative to, follows once it is kAttendSlack behind
  bool grown;      // kAttendLags: whether an m of the warp has changed with this chunk, so that results are to be multiplied by alpha
  float down[AttendScaled<P>::value ? 2 : 1];   // what the scores are to be multiplied by: their rows of Q were scaled
  typename P::Row row[2];
  typename P::Fetched fetched[P::kFetches ? P::kChunk / 4 : 1];   // what logits need of memory, two neighbouring keys each: of columns 8 j and on for row r in [2 j + r]
  int query[2];    // of the batch
  bool active;     // whether this warp has a query at all
};

/// Weights of a chunk's logits are exp2(logit * factor + offset), and m is the running maximum behind it, in units of log2.
struct AttendShift { float m, factor, offset; };
MO_FN bool leaves_float(float scaled) { return scaled < -3.0e38f; }   // host twin
/// m: the running maximum before; most: the chunk's largest logit. HUGE: logits may be so low that their product with log2 e leaves float32, as those are that a mask of the lowest bfloat16 or float32 hides. A row that
/// has seen nothing else gives equal weights to the largest ones. Neighbours are 2^100 apart there: a weight is 1 or 0, and m need only keep the order, below every other maximum.
template <bool HUGE> MO_FN AttendShift attend_shift(float m, float most, float scale) {
  const float scaled = most * scale;
  if constexpr (HUGE) {
    if (leaves_float(scaled)) {
      const float low = ::fmaf(most, 0.1f, -3.0e38f);
      return {::fmaxf(m, low), 1.0f, low >= m ? -most : -infinity()};   // -inf hides for good: low is -inf, and m is finite
    }
  }
  const float now = ::fmaxf(m, scaled);
  return {now, scale, -now};
}

/// Multiplies row r by its gains, up to what scaling asks for; `apply(factor)` does it.
template <class P, class F> MO_FN void attend_gain(AttendState<P>& t, int r, float most, F apply) {
  if constexpr (AttendScaled<P>::value) {
    apply(gain_up(most));
    t.down[r] = gain_down(most);
    if constexpr (P::kPlainLogit) t.scale[r] *= t.down[r];
  } else apply(1.0f);
}

/// Asks for the elements of masks and biases that a chunk's logits need, as soon as the last chunk's are used: behind its scores every chunk would wait for L2.
template <class P> MO_FN void attend_fetch(const typename P::Args& a, const AttendPlace& at, AttendState<P>& t, int key0) {
  if constexpr (P::kFetches) {
#pragma unroll
    for (int j = 0; j < P::kChunk / 8; j++)
#pragma unroll
      for (int r = 0; r < 2; r++) P::fetch(a, at, t.fetched[2 * j + r], t.query[r], key0 + 8 * j + 2 * (lane_id() & 3));
  }
}
/// Whether sums and results may lag behind the running maximum by up to kAttendSlack (in units of log2), since most chunks raise it by little or nothing: then no lane needs to know its neighbours' maxima, and nothing is
/// multiplied (FlashAttention-4 leaves the latter out). Weights are up to 16 instead of 1: float16 holds them, times a factor of V of up to 2048 as well; weights of other kinds have factors that are not known.
/// Not where it was slower or brought nothing: masked scores (causal 16 x 2048 x 64 26.5 to 27.1 us), warps with rings of their own.
template <class P> constexpr bool kAttendLags = !P::kWarpRings && !P::kHugeLogits && P::kPlainLogit && (P::kPlainWeight || P::kPairFactors);
template <class P> constexpr float kAttendSlack = 4;   // a template like the rest: nvcc warns of a plain constant that a kernel without attention leaves unused
/// Whether a vote comes before the exponentials, and neighbours' maxima only where it says so. Over few chunks it says so too often (2 heads of 256 queries: 6.17 without, 6.44 with; 32 heads 22.36 and 21.61).
template <class P> constexpr bool kAttendVotes = P::kKeys / (P::kChunk * P::kKeyGroups * P::kCluster * P::kMeets) >= 8;
MO_FN bool attend_grows(float m, float most, float slack) { return most > m + slack; }   // host twin
/// The maximum of a row over the four lanes that share it.
MO_FN float attend_quad_max(float x) { x = ::fmaxf(x, shuffle_xor(x, 1)); return ::fmaxf(x, shuffle_xor(x, 2)); }
/// The largest of this lane's scores in row r.
template <class P> MO_FN float attend_most(const AttendState<P>& t, int r) {
  float x = t.S[2 * r], y = t.S[2 * r + 1];
#pragma unroll
  for (int j = 1; j < P::kChunk / 8; j++) { x = ::fmaxf(x, t.S[4 * j + 2 * r]); y = ::fmaxf(y, t.S[4 * j + 2 * r + 1]); }
  return ::fmaxf(x, y);
}
/// Scores of row r become weights; returns their sum.
template <class P> MO_FN float attend_exponentials(AttendState<P>& t, int r, float factor, float offset) {
  float sum[2] = {0, 0};
#pragma unroll
  for (int j = 0; j < P::kChunk / 8; j++)
#pragma unroll
    for (int c = 0; c < 2; c++) {
      float& s = t.S[4 * j + 2 * r + c];
      s = exp2_fast(::fmaf(s, factor, offset));
      sum[c] += s;
    }
  return sum[0] + sum[1];
}
/// Scores become exp(logit - m); sums follow, O must later be multiplied by alpha (attend_rescale). key0: the chunk's first key; known: per-key values.
template <class P> MO_FN void attend_softmax(const typename P::Args& a, const AttendPlace& at, AttendState<P>& t, int key0, const float* known) {
  const int quad = lane_id() & 3;
  if constexpr (!P::kPlainLogit) {
    const int first = t.query[0] - (lane_id() >> 2);
    if (!P::clear(key0, first, first + 15)) {
#pragma unroll
    for (int j = 0; j < P::kChunk / 8; j++)
#pragma unroll
      for (int c = 0; c < 2; c++) {
        const int col = 8 * j + 2 * quad + c;
        float values[P::kKeyKnown > 0 ? P::kKeyKnown : 1];
#pragma unroll
        for (int k = 0; k < P::kKeyKnown; k++) values[k] = known[k * P::kChunk + col];
#pragma unroll
        for (int r = 0; r < 2; r++) t.S[4 * j + 2 * r + c] = P::logit(a, at, AttendScaled<P>::value ? t.S[4 * j + 2 * r + c] * t.down[AttendScaled<P>::value ? r : 0] : t.S[4 * j + 2 * r + c], t.row[r], values, t.fetched[P::kFetches ? 2 * j + r : 0], c, t.query[r], key0 + col);
      }
    } else if constexpr (AttendScaled<P>::value) {
#pragma unroll
      for (int i = 0; i < P::kChunk / 2; i++) t.S[i] *= t.down[(i >> 1) & 1];
    }
  }
  if constexpr (AttendKeys<P>::kTail) {
    const int end = AttendKeys<P>::end(key0);
    if (key0 + P::kChunk > end) {
#pragma unroll
      for (int i = 0; i < P::kChunk / 2; i++)
        if (key0 + 8 * (i >> 2) + 2 * quad + (i & 1) >= end) t.S[i] = -infinity();
    }
  }
  if constexpr (kAttendLags<P>) {
    float most[2] = {attend_most<P>(t, 0) * t.scale[0], attend_most<P>(t, 1) * t.scale[1]};
    bool grown = true;
    if constexpr (kAttendVotes<P>) grown = __any_sync(0xffffffffu, attend_grows(t.m[0], most[0], kAttendSlack<P>) || attend_grows(t.m[1], most[1], kAttendSlack<P>));
    bool moved = false;
#pragma unroll
    for (int r = 0; r < 2; r++) t.top[r] = ::fmaxf(t.top[r], most[r]);
    if (grown) {
#pragma unroll
      for (int r = 0; r < 2; r++) {
        most[r] = attend_quad_max(most[r]);
        const float now = attend_grows(t.m[r], most[r], kAttendSlack<P>) ? ::fmaxf(t.m[r], most[r]) : t.m[r];
        t.alpha[r] = exp2_fast(t.m[r] - now);
        t.sums[0][r] *= t.alpha[r];
        moved |= now != t.m[r];
        t.m[r] = now;
      }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) t.sums[0][r] += attend_exponentials<P>(t, r, t.scale[r], -t.m[r]);
    t.grown = kAttendVotes<P> ? grown : __any_sync(0xffffffffu, moved);
  } else {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const AttendShift shift = attend_shift<P::kHugeLogits>(t.m[r], attend_quad_max(attend_most<P>(t, r)), t.scale[r]);
      t.alpha[r] = exp2_fast(t.m[r] - shift.m);
      t.m[r] = shift.m;
      t.sums[0][r] = t.sums[0][r] * t.alpha[r] + attend_exponentials<P>(t, r, shift.factor, shift.offset);
    }
  }
}
/// O of what came before, relative to what is now.
template <class P> MO_FN void attend_rescale(AttendState<P>& t) {
  if (kAttendLags<P> && !t.grown) return;
#pragma unroll
  for (int j = 0; j < P::kUsedColumns / 2; j++) t.O[j] *= t.alpha[(j >> 1) & 1];
}
/// Behind the last chunk: sums and results relative to the maximum itself, sums over the four lanes that share a row.
template <class P> MO_FN void attend_settle(AttendState<P>& t) {
  if constexpr (kAttendLags<P>) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const float top = attend_quad_max(t.top[r]);
      t.alpha[r] = exp2_fast(t.m[r] - top);
      t.sums[0][r] *= t.alpha[r];
      t.m[r] = top;
    }
    t.grown = true;
    attend_rescale<P>(t);
  }
#pragma unroll
  for (int k = 0; k < P::kSums; k++)
#pragma unroll
    for (int r = 0; r < 2; r++) { t.sums[k][r] += shuffle_xor(t.sums[k][r], 1); t.sums[k][r] += shuffle_xor(t.sums[k][r], 2); }
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
      if constexpr (AttendKeys<P>::kTail) {
#pragma unroll
        for (int i = 0; i < 4; i++)
          if (key0 + 8 * j + 2 * quad + (i & 1) >= AttendKeys<P>::end(key0)) w[i] = 0;
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

#endif

}  // namespace mo
