// Device library, part 4b: weights that stream through rings of tensor copies into tensor cores (sm_90 and later; strategy "stream" of lib/plan/stream.h). The weight is the 16-row operand of
// mma, the other operand's rows its 8 columns, so D is (columns of the weight) x (rows of the small operand).
//
// A warp works on units of 32 elements of the reduction. Lane (g, q) = (lane / 4, lane % 4) holds elements 8 q .. 8 q + 7 of row g of the small operand: four pairs. The tensor core takes pair c of
// lane q as k = 2 q, 2 q + 1 of its half-step c; which elements these are does not matter as long as the weight's fragments agree. From lines along the reduction (depth-major) a lane reads
// the same 8 elements of its columns. From lines along columns, ldmatrix.trans gathers rows; pair c of lane q is then q XOR c, which puts its eight rows into eight different columns of the swizzle.
#pragma once
#include "30_contract.cuh"
#include "40_async.cuh"

namespace mo {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

MO_FN uint32_t transpose_8x8(uint32_t x) { uint32_t r; asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(x)); return r; }   // pairs of rows into pairs of columns

// ---- the small operand: eight neighbours of one row
/// Eight elements at p, or zeros where they do not exist. p is a multiple of 16 bytes.
template <class T> MO_FN Vector<T, 8> load_eight(const T* p, bool exists) {
  Vector<T, 8> r;
  uint4* words = reinterpret_cast<uint4*>(&r);
#pragma unroll
  for (int i = 0; i < (int)(sizeof(r) / 16); i++) words[i] = exists ? MO_LDG(reinterpret_cast<const uint4*>(p) + i) : make_uint4(0u, 0u, 0u, 0u);
  return r;
}
/// The same, asked for here and not later.
template <class T> MO_FN Vector<T, 8> load_eight_now(const T* p, bool exists) {
  Vector<T, 8> r;
  uint4* words = reinterpret_cast<uint4*>(&r);
#pragma unroll
  for (int i = 0; i < (int)(sizeof(r) / 16); i++) {
    words[i] = make_uint4(0u, 0u, 0u, 0u);
    if (exists) words[i] = read_now(reinterpret_cast<const uint4*>(p) + i);
  }
  return r;
}
template <class T> MO_FN Pack<8> to_pack(const Vector<T, 8>& x) {
  Pack<8> r;
#pragma unroll
  for (int i = 0; i < 8; i++) r.v[i] = load(x.v[i]);
  return r;
}
/// As pairs of the weight's type (computed elements, a Pack, are rounded), or as TF32.
template <class T> struct Small { uint32_t pair[4]; };
struct SmallTf32 { uint32_t low[4], high[4]; };
template <class T> MO_FN Small<T> small_operand(const Vector<T, 8>& x) {
  const uint4 u = *reinterpret_cast<const uint4*>(&x);
  return {{u.x, u.y, u.z, u.w}};
}
template <class T> MO_FN Small<T> small_operand(const Pack<8>& x) {
  Vector<T, 8> r;
#pragma unroll
  for (int i = 0; i < 8; i++) r.v[i] = store<T>(x.v[i]);
  return small_operand<T>(r);
}
MO_FN SmallTf32 small_operand(const Pack<8>& x) {
  SmallTf32 r;
#pragma unroll
  for (int c = 0; c < 4; c++) { r.low[c] = tf32_bits(x.v[2 * c]); r.high[c] = tf32_bits(x.v[2 * c + 1]); }
  return r;
}
MO_FN void rotate_pairs(uint32_t (&x)[4]) {   // pair c becomes pair c XOR (lane % 4)
  const int q = lane_id() & 3;
  if (q & 1) { uint32_t t = x[0]; x[0] = x[1]; x[1] = t; t = x[2]; x[2] = x[3]; x[3] = t; }
  if (q & 2) { uint32_t t = x[0]; x[0] = x[2]; x[2] = t; t = x[1]; x[1] = x[3]; x[3] = t; }
}
template <class T> MO_FN Small<T> rotated(Small<T> x) { rotate_pairs(x.pair); return x; }
MO_FN SmallTf32 rotated(SmallTf32 x) { rotate_pairs(x.low); rotate_pairs(x.high); return x; }

// ---- the small operand in shared memory, a row's elements one after the other: eight at element k of a line. TF32: the even ones of each eight first, so that both halves are pairs' words
struct PreparedTf32 {
  static MO_FN void put(unsigned char* line, int k, const Pack<8>& x) {
    uint4* const to = reinterpret_cast<uint4*>(line + k * 4);
    to[0] = make_uint4(tf32_bits(x.v[0]), tf32_bits(x.v[2]), tf32_bits(x.v[4]), tf32_bits(x.v[6]));
    to[1] = make_uint4(tf32_bits(x.v[1]), tf32_bits(x.v[3]), tf32_bits(x.v[5]), tf32_bits(x.v[7]));
  }
  static MO_FN SmallTf32 take(const unsigned char* line, int k) {
    const uint4 *const from = reinterpret_cast<const uint4*>(line + k * 4), low = from[0], high = from[1];
    return {{low.x, low.y, low.z, low.w}, {high.x, high.y, high.z, high.w}};
  }
};
template <class T> struct Prepared {
  static MO_FN void put(unsigned char* line, int k, const Pack<8>& x) {
    const Small<T> s = small_operand<T>(x);
    *reinterpret_cast<uint4*>(line + k * 2) = make_uint4(s.pair[0], s.pair[1], s.pair[2], s.pair[3]);
  }
  static MO_FN Small<T> take(const unsigned char* line, int k) {
    const uint4 u = *reinterpret_cast<const uint4*>(line + k * 2);
    return {{u.x, u.y, u.z, u.w}};
  }
};

// ---- a chunk of a weight in shared memory, as a tensor copy with its swizzle left it
/// COLS columns (64: lines of 128 bytes; 32, 16: a low rank) x CHUNK of the reduction. DEPTH_MAJOR: boxes of 64 along the reduction, one behind the other. EVEN_FIRST: of each eight of their lines the even columns come
/// first, so that the two columns that eight lanes read at once are in different banks.
template <class T, int COLS, int CHUNK, bool DEPTH_MAJOR, bool EVEN_FIRST = false> struct StreamTile {
  using Element = T;
  const unsigned char* base;   // in shared memory, a multiple of 1024 bytes
  static constexpr int kLine = COLS * 2, kSwizzle = COLS / 8 - 1;
  static MO_FN int row_of(int i, int c) { return 8 * (i >> 1) + 2 * ((i >> 1) ^ c) + (i & 1); }
  static MO_FN uint32_t place(int row, int column16) { return row * kLine + ((column16 ^ ((row * kLine >> 7) & kSwizzle)) << 4); }
  /// Four pairs of one column along the reduction: the lane's own elements of unit u.
  MO_FN uint4 four_pairs(int column, int u) const {
    const int line = EVEN_FIRST ? (column & ~7) | (column & 1) << 2 | (column & 7) >> 1 : column;
    return *reinterpret_cast<const uint4*>(base + (u / 2) * (COLS * 128) + line * 128 + ((((u & 1) * 4 + (lane_id() & 3)) ^ (line & 7)) << 4));
  }
  /// Both 16-deep steps of unit u for columns 16 i .. 16 i + 15, as the 16-row operand.
  MO_FN void as_rows(uint32_t (&a)[2][4], int i, int u) const {
    if constexpr (DEPTH_MAJOR) {
      const uint4 x = four_pairs(16 * i + lane_id() / 4, u), y = four_pairs(16 * i + 8 + lane_id() / 4, u);
      a[0][0] = x.x; a[0][1] = y.x; a[0][2] = x.y; a[0][3] = y.y;
      a[1][0] = x.z; a[1][1] = y.z; a[1][2] = x.w; a[1][3] = y.w;
    } else {
      const int l = lane_id();
#pragma unroll
      for (int s = 0; s < 2; s++) load_matrix_x4_transposed(a[s], base + u * (32 * kLine) + place(row_of(l & 7, 2 * s + (l >> 4)), 2 * i + ((l >> 3) & 1)));
    }
  }
  /// Both steps of unit u for columns 16 i .. 16 i + 15, as two 8-column operands: b[step][columns / 8][half].
  MO_FN void as_columns(uint32_t (&b)[2][2][2], int i, int u) const {
    if constexpr (DEPTH_MAJOR) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const uint4 x = four_pairs(16 * i + 8 * h + lane_id() / 4, u);
        b[0][h][0] = x.x; b[0][h][1] = x.y; b[1][h][0] = x.z; b[1][h][1] = x.w;
      }
    } else {
      const int l = lane_id();
#pragma unroll
      for (int s = 0; s < 2; s++) {
        uint32_t r[4];
        load_matrix_x4_transposed(r, base + u * (32 * kLine) + place(row_of(l & 7, 2 * s + ((l >> 3) & 1)), 2 * i + (l >> 4)));
        b[s][0][0] = r[0]; b[s][0][1] = r[1]; b[s][1][0] = r[2]; b[s][1][1] = r[3];
      }
    }
  }
};

// ---- sums in registers. StreamSum: (16 TILES columns) x (8 ROWS rows), d[row tile][column tile][fragment]
template <int ROWS, int TILES = 4> struct StreamSum {
  float d[ROWS][TILES][4];
  MO_FN void clear() {
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) d[r][i][e] = 0.0f;
  }
  /// += unit u of w times the small operand's rows.
  template <class W, class T> MO_FN void add(const W& w, int u, const Small<T> (&x)[ROWS]) {
    uint32_t a[TILES][2][4];   // all reads first: they overlap
#pragma unroll
    for (int i = 0; i < TILES; i++) w.as_rows(a[i], i, u);
    if constexpr (ROWS * TILES <= 2) {   // both steps beside each other: the second would wait for the first
#pragma unroll
      for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
          float second[4] = {0.0f, 0.0f, 0.0f, 0.0f};
          mma_16x8x16(d[r][i], a[i][0], x[r].pair[0], x[r].pair[1], T());
          mma_16x8x16(second, a[i][1], x[r].pair[2], x[r].pair[3], T());
#pragma unroll
          for (int e = 0; e < 4; e++) d[r][i][e] += second[e];
        }
      return;
    }
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
      for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int r = 0; r < ROWS; r++) mma_16x8x16(d[r][i], a[i][s], x[r].pair[2 * s], x[r].pair[2 * s + 1], T());
  }
  /// The same with fewer registers: a step of 16 columns at a time.
  template <class W, class T> MO_FN void add_by_steps(const W& w, int u, const Small<T> (&x)[ROWS]) {
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
      for (int i = 0; i < TILES; i++) {
        uint32_t a[4];
        w.as_rows(a, i, u, s);
#pragma unroll
        for (int r = 0; r < ROWS; r++) mma_16x8x16(d[r][i], a, x[r].pair[2 * s], x[r].pair[2 * s + 1], T());
      }
  }
  template <class W> MO_FN void add(const W& w, int u, const SmallTf32 (&x)[ROWS]) {
    using T = typename W::Element;
#pragma unroll
    for (int i = 0; i < TILES; i++) {
      uint32_t a[2][4];
      w.as_rows(a, i, u);
#pragma unroll
      for (int s = 0; s < 2; s++) {
        uint32_t low[4], high[4];
#pragma unroll
        for (int e = 0; e < 4; e++) { low[e] = tf32_low(a[s][e], T()); high[e] = tf32_high(a[s][e], T()); }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
          mma_16x8x8(d[r][i], low, x[r].low[2 * s], x[r].low[2 * s + 1]);
          mma_16x8x8(d[r][i], high, x[r].high[2 * s], x[r].high[2 * s + 1]);
        }
      }
    }
  }
  /// += factor times another sum; a sum without rows counts for all.
  MO_FN void add_scaled(const StreamSum& x, float factor) {
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) d[r][i][e] = fma(x.d[r][i][e], factor, d[r][i][e]);
  }
};

/// A low-rank sum, (8 ROWS rows) x RANK with the rows on the 16-row side: d[pair of row tiles][8 ranks][fragment].
template <int ROWS, int RANK> struct RankSum {
  static constexpr int kPairs = (ROWS + 1) / 2;
  float d[kPairs][RANK / 8][4];
  MO_FN void clear() {
#pragma unroll
    for (int p = 0; p < kPairs; p++)
#pragma unroll
      for (int j = 0; j < RANK / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) d[p][j][e] = 0.0f;
  }
  template <class W, class T> MO_FN void add(const W& w, int u, const Small<T> (&x)[ROWS]) {
#pragma unroll
    for (int i = 0; i < RANK / 16; i++) {
      uint32_t b[2][2][2];
      w.as_columns(b, i, u);
#pragma unroll
      for (int s = 0; s < 2; s++)
#pragma unroll
        for (int p = 0; p < kPairs; p++) {
          const bool full = 2 * p + 1 < ROWS;
          const uint32_t a[4] = {x[2 * p].pair[2 * s], full ? x[full ? 2 * p + 1 : 0].pair[2 * s] : 0u, x[2 * p].pair[2 * s + 1], full ? x[full ? 2 * p + 1 : 0].pair[2 * s + 1] : 0u};
#pragma unroll
          for (int h = 0; h < 2; h++) mma_16x8x16(d[p][2 * i + h], a, b[s][h][0], b[s][h][1], T());
        }
    }
  }
  template <class W> MO_FN void add(const W& w, int u, const SmallTf32 (&x)[ROWS]) {
    using T = typename W::Element;
#pragma unroll
    for (int i = 0; i < RANK / 16; i++) {
      uint32_t b[2][2][2];
      w.as_columns(b, i, u);
#pragma unroll
      for (int s = 0; s < 2; s++)
#pragma unroll
        for (int p = 0; p < kPairs; p++) {
          const bool full = 2 * p + 1 < ROWS;
          const int o = full ? 2 * p + 1 : 0;
          const uint32_t low[4] = {x[2 * p].low[2 * s], full ? x[o].low[2 * s] : 0u, x[2 * p].low[2 * s + 1], full ? x[o].low[2 * s + 1] : 0u};
          const uint32_t high[4] = {x[2 * p].high[2 * s], full ? x[o].high[2 * s] : 0u, x[2 * p].high[2 * s + 1], full ? x[o].high[2 * s + 1] : 0u};
#pragma unroll
          for (int h = 0; h < 2; h++) {
            mma_16x8x8(d[p][2 * i + h], low, tf32_low(b[s][h][0], T()), tf32_low(b[s][h][1], T()));
            mma_16x8x8(d[p][2 * i + h], high, tf32_high(b[s][h][0], T()), tf32_high(b[s][h][1], T()));
          }
        }
    }
  }
};

/// What multiplies a low-rank sum before its second factor, one number per rank, fetched early: ranks 8 j + STEP q and the one SECOND above it, as a lane's fragments of the sum have them.
template <int RANK, int STEP, int SECOND> struct RankGain {
  float v[RANK / 8][2];
  MO_FN void set(float x) {
#pragma unroll
    for (int j = 0; j < RANK / 8; j++)
#pragma unroll
      for (int h = 0; h < 2; h++) v[j][h] = x;
  }
  template <class T> MO_FN void times(const T* p, int64_t stride, int ranks) {
#pragma unroll
    for (int j = 0; j < RANK / 8; j++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int r = 8 * j + STEP * (lane_id() & 3) + h * SECOND;
        v[j][h] = mul(v[j][h], r < ranks ? load(p[r * stride]) : 0.0f);
      }
  }
};
/// No gain.
struct NoGain {};
MO_FN float gained(float x, const NoGain&, int, int) { return x; }
template <int RANK, int STEP, int SECOND> MO_FN float gained(float x, const RankGain<RANK, STEP, SECOND>& gain, int j, int h) { return mul(x, gain.v[j][h]); }

/// sum += factor * pairs' (x gain)', on TF32. pairs: [16 columns][8 ranks][8 columns] of the second factor, ranks 2 q, 2 q + 1 of a column each.
template <class T, int TILES, int EIGHTS, int ROWS, class Gain>
MO_FN void add_product(StreamSum<ROWS, TILES>& sum, const uint32_t (&pair)[TILES][EIGHTS][2], const RankSum<ROWS, 8 * EIGHTS>& x, float factor, const Gain& gain) {
#pragma unroll
  for (int i = 0; i < TILES; i++)
#pragma unroll
    for (int j = 0; j < EIGHTS; j++) {
      const uint32_t a[4] = {tf32_low(pair[i][j][0], T()), tf32_low(pair[i][j][1], T()), tf32_high(pair[i][j][0], T()), tf32_high(pair[i][j][1], T())};
#pragma unroll
      for (int r = 0; r < ROWS; r++) mma_16x8x8(sum.d[r][i], a, tf32_bits(gained(mul(x.d[r / 2][j][r % 2 * 2], factor), gain, j, 0)), tf32_bits(gained(mul(x.d[r / 2][j][r % 2 * 2 + 1], factor), gain, j, 1)));
    }
}

/// The second factor of a low-rank product, (RANK) x (16 TILES columns), fetched early: pairs of ranks of one column. T: its type; strides in elements.
template <class T, int RANK, int TILES = 4> struct RankFactor {
  uint32_t pair[TILES][RANK / 8][2];   // [16 columns][8 ranks][8 columns]: ranks 2 q, 2 q + 1 of column g
  MO_FN void fetch(const T* p, int64_t rank_stride, int64_t column_stride, int ranks, int columns) {
    const int g = lane_id() / 4, q = lane_id() & 3;
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
      for (int j = 0; j < RANK / 8; j++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const int c = 16 * i + 8 * h + g, r = 8 * j + 2 * q;
          const uint32_t low = c < columns && r < ranks ? bits(p[r * rank_stride + c * column_stride]) : 0u, high = c < columns && r + 1 < ranks ? bits(p[(r + 1) * rank_stride + c * column_stride]) : 0u;
          pair[i][j][h] = low | high << 16;
        }
  }
  /// The same from lines along columns, each pair of columns at once; columns and lines are even.
  MO_FN void fetch_lines(const T* p, int64_t rank_stride, int ranks, int columns) {
    const int g = lane_id() / 4, q = lane_id() & 3;
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
      for (int j = 0; j < RANK / 8; j++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const int c = 16 * i + 8 * h + 2 * q, r = 8 * j + g;
          pair[i][j][h] = c < columns && r < ranks ? MO_LDG(reinterpret_cast<const unsigned*>(p + r * rank_stride + c)) : 0u;
        }
  }
  MO_FN void turn() {   // after fetch_lines
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
      for (int j = 0; j < RANK / 8; j++)
#pragma unroll
        for (int h = 0; h < 2; h++) pair[i][j][h] = transpose_8x8(pair[i][j][h]);
  }
  static MO_FN uint32_t bits(T x) { return (uint32_t)*reinterpret_cast<unsigned short*>(&x); }
  template <int ROWS, class Gain> MO_FN void multiply(StreamSum<ROWS, TILES>& sum, const RankSum<ROWS, RANK>& x, float factor, const Gain& gain) const { add_product<T>(sum, pair, x, factor, gain); }
};

// ---- items: what is left of a sum after the loop. Item (row tile, column tile, lane) is four elements: (column c, row m), (c, m + 1), (c + STEP, m), (c + STEP, m + 1)
template <int TILES = 4, int STEP = 8> MO_FN int item_column(int item) { return STEP == 8 ? item / 32 % TILES * 16 + (item & 31) / 4 : (item & 31) / 4 * (2 * TILES) + item / 32 % TILES * 2; }
template <int TILES = 4> MO_FN int item_row(int item) { return item / (32 * TILES) * 8 + (item & 3) * 2; }
/// Puts a warp's sum at `to`, in fragment order.
template <int ROWS, int TILES> MO_FN void put_items(Pack<4>* to, const StreamSum<ROWS, TILES>& x) {
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int i = 0; i < TILES; i++) to[(r * TILES + i) * 32 + lane_id()] = {{x.d[r][i][0], x.d[r][i][1], x.d[r][i][2], x.d[r][i][3]}};
}
/// Adds up item `item` over COUNT places that lie `stride` items apart.
template <int COUNT> MO_FN Pack<4> add_items(const Pack<4>* from, int stride) {
  Pack<4> r = from[0];
#pragma unroll
  for (int i = 1; i < COUNT; i++) r = add(r, from[i * stride]);
  return r;
}
/// Values of two rows or of two columns at all four elements of an item.
MO_FN Pack<4> along_rows(Pack<2> x) { return {{x.v[0], x.v[1], x.v[0], x.v[1]}}; }
MO_FN Pack<4> along_columns(Pack<2> x) { return {{x.v[0], x.v[0], x.v[1], x.v[1]}}; }
MO_FN Pack<4> along_rows(float x) { return {{x, x, x, x}}; }
MO_FN Pack<4> along_columns(float x) { return {{x, x, x, x}}; }
/// Two neighbours, `stride` apart, from a tensor that ends at `left`; what does not exist is zero.
template <class T> MO_FN Pack<2> load_two(const T* p, int64_t stride, int step, int left) { return {{left > 0 ? load(p[0]) : 0.0f, left > step ? load(p[step * stride]) : 0.0f}}; }
template <int STEP = 8, class T> MO_FN Pack<4> load_item(const T* p, int64_t row_stride, int64_t column_stride, int rows, int columns) {
  Pack<4> r;
#pragma unroll
  for (int e = 0; e < 4; e++) r.v[e] = e % 2 < rows && e / 2 * STEP < columns ? load(p[e % 2 * row_stride + e / 2 * STEP * column_stride]) : 0.0f;
  return r;
}
template <int STEP = 8, class T, class A> MO_FN void store_item(T* p, int64_t row_stride, int64_t column_stride, int rows, int columns, A x) {
#pragma unroll
  for (int e = 0; e < 4; e++)
    if (e % 2 < rows && e / 2 * STEP < columns) p[e % 2 * row_stride + e / 2 * STEP * column_stride] = store<T>(element(x, e));
}
/// The same for neighbouring columns of a result with even lines: each row's two at once.
template <class T, class A> MO_FN void store_item_pairs(T* p, int64_t row_stride, int rows, int columns, A x) {
#pragma unroll
  for (int e = 0; e < 2; e++)
    if (e < rows && columns > 0) store_pack<2>(p + e * row_stride, Pack<2>{{element(x, e), element(x, e + 2)}});
}

#endif

}  // namespace mo
