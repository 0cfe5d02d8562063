// Device library, part 4d: computed operands of float16 products in a weight stream, in float16 scaled by line (docs/decisions.md, "Computed operands in float16, scaled by line"). A computed operand has float32's range; a power of
// two per row brings it into float16's, and sums are multiplied back behind the loop. It follows what has been seen of the row: where more of it is larger, the power becomes smaller and the sums so far with it, exactly.
#pragma once
#include "41_stream.cuh"

namespace mo {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

[[maybe_unused]] constexpr float kMostLineScale = 0x1p100f, kLargestHalf = 65504.0f, kLargestFloat = 3.4028234663852886e38f;
/// The power of two that brings `most` to 2^10 .. 2^11, which leaves room for more and holds what is 2^-24 of it in full; not under 1 where float16 holds the number as it is, at most kMostLineScale.
MO_FN float line_scale(float most) {   // host twin
  const uint32_t exponent = __float_as_uint(most) >> 23, wanted = 264u - exponent;
  return most <= kLargestHalf && exponent > 137u ? 1.0f : exponent < 37u ? kMostLineScale : __uint_as_float(wanted << 23);
}
MO_FN float largest(const Pack<8>& x) { return reduce_pack<Max>(abs(x)); }
MO_FN Pack<8> scaled(const Pack<8>& x, float s) { return mul(x, s); }

/// Of rows 8 r + lane / 4 of a warp's own sums.
template <int ROWS> struct LineScale {
  float scale[ROWS];
  MO_FN void start() {
#pragma unroll
    for (int r = 0; r < ROWS; r++) scale[r] = kMostLineScale;
  }
  /// Whether some lane of the warp holds more than its row's scale brings into float16. most: the largest magnitudes of this lane, finite or not.
  MO_FN bool outgrown(const float (&most)[ROWS]) const {
    bool over = false;
#pragma unroll
    for (int r = 0; r < ROWS; r++) over = over || most[r] * scale[r] > kLargestHalf;
    return __any_sync(0xffffffffu, over);
  }
  /// Follows them; change: what sums so far are to be multiplied by, in the lanes of their rows. An infinity stays one under the smallest scale there is.
  MO_FN void follow(const float (&most)[ROWS], float (&change)[ROWS]) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const float all = min(lanes_reduce<Max, 4>(most[r]), kLargestFloat), next = all * scale[r] > kLargestHalf ? line_scale(all) : scale[r];
      change[r] = next / scale[r];
      scale[r] = next;
    }
  }
  /// What brings sums back.
  MO_FN void inverse(float (&back)[ROWS]) const {
#pragma unroll
    for (int r = 0; r < ROWS; r++) back[r] = 1.0f / scale[r];
  }
};

/// sum *= factor, which the lanes of a row hold.
template <int ROWS, int TILES> MO_FN void scale_rows(StreamSum<ROWS, TILES>& sum, const float (&factor)[ROWS]) {
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const float f = __shfl_sync(0xffffffffu, factor[r], ((lane_id() & 3) * 2 + e) * 4);
#pragma unroll
      for (int i = 0; i < TILES; i++) { sum.d[r][i][e] *= f; sum.d[r][i][e + 2] *= f; }
    }
}
template <int ROWS, int RANK> MO_FN void scale_rows(RankSum<ROWS, RANK>& sum, const float (&factor)[ROWS]) {
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int j = 0; j < RANK / 8; j++)
#pragma unroll
      for (int e = 0; e < 2; e++) sum.d[r / 2][j][r % 2 * 2 + e] *= factor[r];
}

// ---- weights that are scaled in the loop, by column and by group of the reduction (quantised weights with a scale for each 128 of it): a
// lane reads what its own columns are scaled by a chunk ahead; it multiplies sums of a group, or the weight's fragments before their
// products
/// One number for each column that a lane has in its fragments: 16 i + lane / 4 and the one eight above it.
template <class T, int TILES = 4>
struct ColumnFactors {
  T v[TILES][2];
  /// The first column's at p; columns: how many exist.
  MO_FN void fetch(const T* p, int64_t stride, int columns) {
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int c = 16 * i + 8 * h + lane_id() / 4;
        v[i][h] = c < columns ? p[c * stride] : store<T>(0.0f);
      }
  }
  MO_FN Pack<2> pair(int i) const { return {{load(v[i][0]), load(v[i][1])}}; }
  MO_FN float one(int i, int h) const { return load(v[i][h]); }
};

/// A weight's fragments as an elementwise function of what is stored: f(two neighbours along the reduction, column tile, which of its two
/// columns).
template <class W, class F>
struct MadeTile {
  using Element = typename W::Element;
  const W& stored;
  F f;
  MO_FN void as_rows(uint32_t (&a)[2][4], int i, int u) const {
    stored.as_rows(a, i, u);
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const Vector<Element, 2> x = *reinterpret_cast<const Vector<Element, 2>*>(&a[s][e]);
        Vector<Element, 2> y;
        store_pack<2>(y.v, f(to_pack2(x), i, e & 1));
        a[s][e] = *reinterpret_cast<const uint32_t*>(&y);
      }
  }
  static MO_FN Pack<2> to_pack2(const Vector<Element, 2>& x) { return {{load(x.v[0]), load(x.v[1])}}; }
};
template <class W, class F>
MO_FN MadeTile<W, F> made_tile(const W& stored, F f) {
  return {stored, f};
}

/// The sum of one group for the rows and one tile of columns.
template <int ROWS>
struct GroupSum {
  float d[ROWS][4];
  MO_FN void clear() {
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int e = 0; e < 4; e++) d[r][e] = 0.0f;
  }
  /// += unit u of w, column tile i, times the small operand's rows.
  template <class W, class T>
  MO_FN void add(const W& w, int i, int u, const Small<T> (&x)[ROWS]) {
    uint32_t a[2][4];
    w.as_rows(a, i, u);
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
      for (int r = 0; r < ROWS; r++) mma_16x8x16(d[r], a[s], x[r].pair[2 * s], x[r].pair[2 * s + 1], T());
  }
  template <class W>
  MO_FN void add(const W& w, int i, int u, const SmallTf32 (&x)[ROWS]) {
    using T = typename W::Element;
    uint32_t a[2][4];
    w.as_rows(a, i, u);
#pragma unroll
    for (int s = 0; s < 2; s++) {
      uint32_t low[4], high[4];
#pragma unroll
      for (int e = 0; e < 4; e++) {
        low[e] = tf32_low(a[s][e], T());
        high[e] = tf32_high(a[s][e], T());
      }
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        mma_16x8x8(d[r], low, x[r].low[2 * s], x[r].low[2 * s + 1]);
        mma_16x8x8(d[r], high, x[r].high[2 * s], x[r].high[2 * s + 1]);
      }
    }
  }
  /// sum's column tile i += this times a factor for each of the lane's columns.
  template <int TILES>
  MO_FN void add_to(StreamSum<ROWS, TILES>& sum, int i, Pack<2> factor) const {
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int e = 0; e < 4; e++) sum.d[r][i][e] = fma(d[r][e], factor.v[e / 2], sum.d[r][i][e]);
  }
  template <int TILES>
  MO_FN void add_to(StreamSum<ROWS, TILES>& sum, int i, float factor) const {
    add_to(sum, i, Pack<2>{{factor, factor}});
  }
};

#endif

}  // namespace mo
