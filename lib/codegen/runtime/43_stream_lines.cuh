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

#endif

}  // namespace mo
