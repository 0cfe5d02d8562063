// Device library, part 62: two contractions with a running softmax between them, on mma.sync, without shared memory in between: scores, weights and results of a warp stay in its registers (FlashAttention-2).
#pragma once
#include "30_contract.cuh"

namespace mo {

template <class T> MO_FN uint32_t two_of(float low, float high);   // neighbours of a matrix operand
template <> MO_FN uint32_t two_of<f16>(float low, float high) { const __half2 h = __floats2half2_rn(low, high); return *reinterpret_cast<const uint32_t*>(&h); }
template <> MO_FN uint32_t two_of<bf16>(float low, float high) { const __nv_bfloat162 h = __floats2bfloat162_rn(low, high); return *reinterpret_cast<const uint32_t*>(&h); }

/// O (R x C) += exp(logit(X Y) - m) V, m the running maximum of every row's logits; and the sums of the exponentials. X (R x K), Y (K x S keys), V (S x C): tiles of one 16-bit type. WI warps have 16 rows each,
/// WK warps share the keys of an iteration: each has maxima of its own, which finish brings to the common one.
template <class X, class Y, class V, int WI, int WK> struct SoftmaxContract {
  using T = typename X::Element;
  static constexpr int kRows = X::kR, kFeatures = X::kC / 16, kKeys = Y::kC / WK, kS = kKeys / 8, kC = V::kC / 8;
  static_assert(WI * 16 == kRows && kKeys * WK == Y::kC && kKeys % 16 == 0 && V::kR == Y::kC && X::kC == Y::kR && V::kC % 16 == 0, "extents divide over the warps");
  using Scores = TensorContract<X, Y, 1, 1, 1>;
  using Values = TensorContract<typename V::Transposed, V, 1, 1, 1>;
  float d[kC][4], m[2], sum[2];
  MO_FN void clear() {
#pragma unroll
    for (int j = 0; j < kC; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) d[j][e] = 0.0f;
#pragma unroll
    for (int h = 0; h < 2; h++) { m[h] = -3.4028234663852886e38f; sum[h] = 0.0f; }
  }
  static MO_FN int first_row() { return warp_id() % WI * 16 + lane_id() / 4; }
  static MO_FN int part() { return warp_id() / WI; }
  /// One iteration. keys: how many exist; logit(row, key, score).
  template <class F> MO_FN void add(X x, Y y, V v, int keys, F logit) {
    const int row = warp_id() % WI * 16, key0 = part() * kKeys, q = lane_id() % 4;
    float s[kS][4];
#pragma unroll
    for (int j = 0; j < kS; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) s[j][e] = 0.0f;
#pragma unroll
    for (int k = 0; k < kFeatures; k++) {
      uint32_t a[4];
      Scores::load_x(a, x, 0, row, k * 16);
#pragma unroll
      for (int j = 0; j < kS; j += 2) {
        uint32_t r[4];
        Scores::load_y_pair(r, y, 0, k * 16, key0 + j * 8);
        mma_16x8x16(s[j], a, r[0], r[1], T());
        mma_16x8x16(s[j + 1], a, r[2], r[3], T());
      }
    }
    float now[2] = {m[0], m[1]};
#pragma unroll
    for (int j = 0; j < kS; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int key = key0 + j * 8 + 2 * q + e % 2;
        s[j][e] = key < keys ? logit(first_row() + e / 2 * 8, key, s[j][e]) : -infinity();
        now[e / 2] = Max::combine(now[e / 2], s[j][e]);
      }
#pragma unroll
    for (int h = 0; h < 2; h++) {
      now[h] = Max::combine(now[h], shuffle_xor(now[h], 1));
      now[h] = Max::combine(now[h], shuffle_xor(now[h], 2));
      const float factor = exp(m[h] - now[h]);
      m[h] = now[h];
      sum[h] *= factor;
#pragma unroll
      for (int j = 0; j < kC; j++) {
        d[j][2 * h] *= factor;
        d[j][2 * h + 1] *= factor;
      }
    }
#pragma unroll
    for (int j = 0; j < kS; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        s[j][e] = exp(s[j][e] - m[e / 2]);
        sum[e / 2] += s[j][e];
      }
#pragma unroll
    for (int k = 0; k < kS / 2; k++) {
      const uint32_t a[4] = {two_of<T>(s[2 * k][0], s[2 * k][1]), two_of<T>(s[2 * k][2], s[2 * k][3]), two_of<T>(s[2 * k + 1][0], s[2 * k + 1][1]), two_of<T>(s[2 * k + 1][2], s[2 * k + 1][3])};
#pragma unroll
      for (int j = 0; j < kC; j += 2) {
        uint32_t r[4];
        Values::load_y_pair(r, v, 0, key0 + k * 16, j * 8);
        mma_16x8x16(d[j], a, r[0], r[1], T());
        mma_16x8x16(d[j + 1], a, r[2], r[3], T());
      }
    }
  }
  /// put(part, row, maximum): behind a barrier they are what `most` of finish reads.
  template <class F> MO_FN void put_maxima(F put) {
    if (lane_id() % 4 == 0) {
#pragma unroll
      for (int h = 0; h < 2; h++) put(part(), first_row() + 8 * h, m[h]);
    }
  }
  /// most(row): the maximum over all parts. put(part, row, column, value) and put_sum(part, row, value): shares of results that add up.
  template <class M, class F, class G> MO_FN void finish(M most, F put, G put_sum) {
    const int q = lane_id() % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int row = first_row() + 8 * h;
      const float factor = exp(m[h] - most(row));
      float total = sum[h] * factor;
      total += shuffle_xor(total, 1);
      total += shuffle_xor(total, 2);
      if (q == 0) put_sum(part(), row, total);
#pragma unroll
      for (int j = 0; j < kC; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) put(part(), row, j * 8 + 2 * q + e, d[j][2 * h + e] * factor);
    }
  }
};

}  // namespace mo
