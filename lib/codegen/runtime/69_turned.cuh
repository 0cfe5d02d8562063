// Device library, part 69: tiles whose 64 rows are wgmma's 64-row operand (sm_90a; lib/plan/tile_turned.cc): weights are its columns, a low rank some columns more, and its sum is at once a register fragment for the second
// factor. The whole reduction lies in shared memory, so nothing is refilled. Sources: PTX ISA 9.7.15 (wgmma, matrix descriptors, register fragments).
#pragma once
#include "41_stream.cuh"
#include "68_tile.cuh"

namespace mo {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// ---- D += A B over 16 elements of the reduction, for a few columns: lines of B along the reduction (TB 0) or across it (TB 1)
#define MO_L8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define MO_L16 MO_L8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define MO_E8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
template <class T, int TB> MO_FN void wgmma_rows(float (&d)[8], uint64_t a, uint64_t b) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {" MO_L8 "}, %8, %9, p, 1, 1, 0, %10;}" : MO_E8(0) : "l"(a), "l"(b), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {" MO_L8 "}, %8, %9, p, 1, 1, 0, %10;}" : MO_E8(0) : "l"(a), "l"(b), "n"(TB));
}
template <class T, int TB> MO_FN void wgmma_rows(float (&d)[16], uint64_t a, uint64_t b) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" MO_L16 "}, %16, %17, p, 1, 1, 0, %18;}" : MO_E8(0), MO_E8(8) : "l"(a), "l"(b), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {" MO_L16 "}, %16, %17, p, 1, 1, 0, %18;}" : MO_E8(0), MO_E8(8) : "l"(a), "l"(b), "n"(TB));
}
#undef MO_L8
#undef MO_L16
#undef MO_E8
template <class T, int TB> MO_FN void wgmma_rows(float (&d)[32], uint64_t a, uint64_t b) { wgmma_shared<T, TB>(d, a, b, 1); }
template <class T, int TB> MO_FN void wgmma_rows(float (&d)[64], uint64_t a, uint64_t b) { wgmma_shared<T, TB>(d, a, b, 1); }

/// The second factor's fragments from shared memory: RANK lines of 64 columns, swizzled as a tensor copy leaves them, BOX bytes from one run of 64 to the next; `piece`: the first of eight columns.
template <int BOX, class T, int RANK, int TILES> MO_FN void read_factor(RankFactor<T, RANK, TILES>& f, const unsigned char* lines, int piece) {
  const int l = lane_id(), rank = (l & 7) + (l >> 3 & 1) * 8;
#pragma unroll
  for (int j = 0; j < RANK / 16; j++)
#pragma unroll
    for (int i = 0; i < TILES; i++) {
      const int c = piece + 2 * i + (l >> 4);
      uint32_t r[4];
      load_matrix_x4_transposed(r, lines + c / 8 * BOX + (16 * j + rank) * 128 + (((c & 7) ^ (rank & 7)) << 4));
      f.pair[i][2 * j][0] = r[0];
      f.pair[i][2 * j + 1][0] = r[1];
      f.pair[i][2 * j][1] = r[2];
      f.pair[i][2 * j + 1][1] = r[3];
    }
}

/// sum += factor (x gain) b, in TF32: x's fragment as wgmma leaves it, its ranks 2 q and 2 q + 1 as elements q and q + 4 of the reduction; b's fragments as RankFactor has them.
template <class T, int TILES, int RANK, class Gain> MO_FN void add_rows_product(TileSum<TILES>& sum, const RankFactor<T, RANK, TILES / 2>& b, const TileSum<RANK / 8>& x, float factor, const Gain& gain) {
#pragma unroll
  for (int j = 0; j < RANK / 8; j++) {
    uint32_t a[4];
#pragma unroll
    for (int e = 0; e < 4; e++) a[e] = tf32_bits(gained(mul(x.d[4 * j + e % 2 * 2 + e / 2], factor), gain, j, e / 2));
#pragma unroll
    for (int t = 0; t < TILES; t++) {
      float d[4] = {sum.d[4 * t], sum.d[4 * t + 1], sum.d[4 * t + 2], sum.d[4 * t + 3]};
      mma_16x8x8(d, a, tf32_low(b.pair[t / 2][j][t % 2], T()), tf32_high(b.pair[t / 2][j][t % 2], T()));
#pragma unroll
      for (int e = 0; e < 4; e++) sum.d[4 * t + e] = d[e];
    }
  }
}

/// Four neighbouring items, 32 columns of a warp's 16 rows, on their way to a 16-bit result with whole lines: each lane gathers 16 bytes of two rows from the three others of its row.
struct LineItems {
  uint32_t word[2][4];
  template <class T, class A> MO_FN void put(int t, const A& x, T) {
#pragma unroll
    for (int r = 0; r < 2; r++) word[r][t] = half_bits(store<T>(element(x, 2 * r))) | half_bits(store<T>(element(x, 2 * r + 1))) << 16;
  }
  /// p: the lane's row, first of the columns. `rows` and `columns` exist from there; whole pieces of eight columns. All lanes of a warp come here together.
  template <class T> MO_FN void store_all(T* p, int64_t row_stride, int rows, int columns) {
    const int q = lane_id() & 3;
#pragma unroll
    for (int r = 0; r < 2; r++) {
#pragma unroll
      for (int b = 0; b < 2; b++)
#pragma unroll
        for (int j = 0; j < 4; j++) {   // swaps with lane ^ (1 << b): words whose bit b is not the lane's
          if (j >> b & 1) continue;
          const int o = j | 1 << b;
          const bool up = q >> b & 1;
          const uint32_t got = __shfl_xor_sync(0xffffffffu, up ? word[r][j] : word[r][o], 1 << b);
          if (up) word[r][j] = got;
          else word[r][o] = got;
        }
      if (8 * r < rows && 8 * q < columns) *reinterpret_cast<uint4*>(p + 8 * r * row_stride + 8 * q) = make_uint4(word[r][0], word[r][1], word[r][2], word[r][3]);
    }
  }
};

#endif

}  // namespace mo
