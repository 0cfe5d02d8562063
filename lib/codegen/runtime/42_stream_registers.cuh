// Device library, part 4c: weights that go straight from device memory to registers, for kernels whose whole slice of a weight fits there (strategy "stream" of lib/plan/stream.h with its register loader).
// Nothing passes through shared memory and there is no barrier before the sums: everything is asked for at once and multiplied when it arrives. Source: kernels.md R9; PTX ISA, mma.m16n8k16 and movmatrix.
//
// Lane (g, q) = (lane / 4, lane % 4) holds elements 8 q .. 8 q + 7 of the reduction, as in part 4b, with pairs in their natural order. Of a weight with lines along columns it reads COLS / 8 neighbouring
// columns of these eight lines; two of them are rows g and g + 8 of the 16-row operand, so an item's columns are neighbours (STEP 1 instead of 8).
// WHOLE: everything asked for exists. Conditions and their addresses are three quarters of the code before the first product otherwise, and code is fetched cold (16 x 256 x 4096 with rank 16: 3.86 instead of 3.1 us).
#pragma once
#include "41_stream.cuh"

namespace mo {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

MO_FN uint32_t low_pair(uint32_t x, uint32_t y) { return (x & 0xffffu) | y << 16; }
MO_FN uint32_t high_pair(uint32_t x, uint32_t y) { return x >> 16 | (y & 0xffff0000u); }

/// Some 16-bit words of one line, read now: COLS / 8 columns as pairs.
template <int WORDS> MO_FN void read_words(uint32_t (&to)[WORDS], const void* p) {
  if constexpr (WORDS == 4) {
    const uint4 x = read_now((const uint4*)p);
    to[0] = x.x; to[1] = x.y; to[2] = x.z; to[3] = x.w;
  } else {
    const uint2 x = read_now((const uint2*)p);
    to[0] = x.x; to[1] = x.y;
  }
}

/// COLS columns (64 or 32) x UNITS units of 32 elements of the reduction.
template <class T, int COLS, int UNITS, bool DEPTH_MAJOR> struct RegisterTile {
  using Element = T;
  static constexpr int kStep = DEPTH_MAJOR ? 8 : 1, kEach = COLS / 8, kLines = DEPTH_MAJOR ? kEach : 8, kWords = DEPTH_MAJOR ? 4 : kEach / 2;
  uint32_t word[UNITS][kLines][kWords];   // lines along columns: [line][pair of columns]; along the reduction: [column][pair]
  /// p: the first element; depth, columns: how many exist from there (whole vectors do or do not). line: elements between lines.
  template <bool WHOLE> MO_FN void fetch(const T* p, int64_t line, int depth, int columns) {
    const int g = lane_id() / 4, q = lane_id() & 3;
    const T* const mine = DEPTH_MAJOR ? p + g * line + q * 8 : p + q * 8 * line + g * kEach;
#pragma unroll
    for (int u = 0; u < UNITS; u++)
#pragma unroll
      for (int j = 0; j < kLines; j++) {
        const int k = u * 32 + q * 8 + (DEPTH_MAJOR ? 0 : j), c = DEPTH_MAJOR ? j * 8 + g : g * kEach;
        if constexpr (!WHOLE)
#pragma unroll
          for (int i = 0; i < kWords; i++) word[u][j][i] = 0u;
        if (WHOLE || (k < depth && c < columns)) read_words(word[u][j], DEPTH_MAJOR ? mine + j * 8 * line + u * 32 : mine + (u * 32 + j) * line);
      }
  }
  /// Both 16-deep steps of unit u for sixteen columns, as the 16-row operand.
  MO_FN void as_rows(uint32_t (&a)[2][4], int i, int u) const {
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        if constexpr (DEPTH_MAJOR) {
          a[s][2 * h] = word[u][2 * i][2 * s + h];
          a[s][2 * h + 1] = word[u][2 * i + 1][2 * s + h];
        } else {
          const uint32_t x = word[u][4 * s + 2 * h][i], y = word[u][4 * s + 2 * h + 1][i];
          a[s][2 * h] = low_pair(x, y);
          a[s][2 * h + 1] = high_pair(x, y);
        }
      }
  }
};

/// A low rank, RANK columns that every block needs whole.
template <class T, int RANK, int UNITS, bool DEPTH_MAJOR> struct RegisterRank {
  using Element = T;
  uint32_t word[UNITS][4][RANK / 8];   // [pair of the lane's eight][eight ranks]
  template <bool WHOLE> MO_FN void fetch(const T* p, int64_t line, int depth, int ranks) {
    const int g = lane_id() / 4, q = lane_id() & 3;
    const T* const mine = DEPTH_MAJOR ? p + g * line + q * 8 : p + (8 * (g / 2) + g % 2) * line + 2 * q;
#pragma unroll
    for (int u = 0; u < UNITS; u++)
#pragma unroll
      for (int j = 0; j < RANK / 8; j++) {
        if constexpr (DEPTH_MAJOR) {
          const int k = u * 32 + q * 8, r = 8 * j + g;
          uint4 x = make_uint4(0u, 0u, 0u, 0u);
          if (WHOLE || (k < depth && r < ranks)) x = read_now((const uint4*)(mine + j * 8 * line + u * 32));
          word[u][0][j] = x.x; word[u][1][j] = x.y; word[u][2][j] = x.z; word[u][3][j] = x.w;
        } else {
#pragma unroll
          for (int c = 0; c < 4; c++) {   // an 8 x 8 matrix: its rows are what the four lanes of a group call pair c
            const int k = u * 32 + 8 * (g / 2) + 2 * c + g % 2, r = 8 * j + 2 * q;
            word[u][c][j] = 0u;
            if (WHOLE || (k < depth && r < ranks)) word[u][c][j] = read_now((const unsigned*)(mine + (u * 32 + 2 * c) * line + 8 * j));
          }
        }
      }
  }
  /// Both steps of unit u for ranks 16 i .. 16 i + 15, as two 8-column operands: b[step][ranks / 8][half].
  MO_FN void as_columns(uint32_t (&b)[2][2][2], int i, int u) const {
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
      for (int h = 0; h < 2; h++)
#pragma unroll
        for (int e = 0; e < 2; e++) b[s][h][e] = DEPTH_MAJOR ? word[u][2 * s + e][2 * i + h] : transpose_8x8(word[u][2 * s + e][2 * i + h]);
  }
};

/// The second factor of a low-rank product for columns as RegisterTile has them (STEP), ranks 2 q and 2 q + 1 of each eight as a pair.
template <class T, int RANK, int TILES, int STEP> struct RegisterFactor {
  uint32_t pair[TILES][RANK / 8][2];   // [16 columns][8 ranks][g, g + 8]
  MO_FN void fetch(const T* p, int64_t rank_stride, int64_t column_stride, int ranks, int columns) {
    const int g = lane_id() / 4, q = lane_id() & 3;
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
      for (int j = 0; j < RANK / 8; j++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const int c = STEP == 8 ? 16 * i + 8 * h + g : 2 * TILES * g + 2 * i + h, r = 8 * j + 2 * q;
          const uint32_t low = c < columns && r < ranks ? bits(p[r * rank_stride + c * column_stride]) : 0u, high = c < columns && r + 1 < ranks ? bits(p[(r + 1) * rank_stride + c * column_stride]) : 0u;
          pair[i][j][h] = low | high << 16;
        }
  }
  /// The same from lines along columns, a lane's columns of a line at once: lines, the place of p and the columns are multiples of 2 TILES.
  template <bool WHOLE> MO_FN void fetch_lines(const T* p, int64_t rank_stride, int ranks, int columns) {
    const int c = 2 * TILES * (lane_id() / 4), q = lane_id() & 3;
    const T* const mine = p + 2 * q * rank_stride + c;
#pragma unroll
    for (int j = 0; j < RANK / 8; j++) {
      uint32_t line[2][TILES];
#pragma unroll
      for (int e = 0; e < 2; e++) {
#pragma unroll
        for (int i = 0; i < TILES; i++) line[e][i] = 0u;
        if (WHOLE || (8 * j + 2 * q + e < ranks && c < columns)) read_words(line[e], mine + (8 * j + e) * rank_stride);
      }
#pragma unroll
      for (int i = 0; i < TILES; i++) { pair[i][j][0] = low_pair(line[0][i], line[1][i]); pair[i][j][1] = high_pair(line[0][i], line[1][i]); }
    }
  }
  static MO_FN uint32_t bits(T x) { return (uint32_t)*reinterpret_cast<unsigned short*>(&x); }
  template <int ROWS, class Gain> MO_FN void multiply(StreamSum<ROWS, TILES>& sum, const RankSum<ROWS, RANK>& x, float factor, const Gain& gain) const { add_product<T>(sum, pair, x, factor, gain); }
};

#endif

}  // namespace mo
