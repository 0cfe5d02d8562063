// Device library, part 68: tiles of 64 columns on warpgroups (sm_90a; strategy "tile" of lib/plan/tile.h): the weight, transposed, is the 64-row operand of wgmma, rows of the other operand are its columns, so D is
// (columns of the weight) x (rows) and thread t of a warpgroup holds item (row tile j, warp, lane) of 41_stream.cuh at d[4 j ..]. Sources: PTX ISA 9.7.15 (wgmma, matrix descriptors, register fragments).
#pragma once
#include "41_stream.cuh"
#include "60_wgmma.cuh"
#include "67_wgmma_wide.cuh"

namespace mo {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// ---- D += A B over 16 elements of the reduction (8 for TF32). A: a weight's tile in shared memory, lines across the reduction (TA 1) or along it (TA 0); or fragments of it in registers. B: rows of the
// other operand in shared memory, 2 R of them, lines along the reduction (TB 0) or across it (TB 1)
#define MO_L8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define MO_L16 MO_L8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define MO_L24 MO_L16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define MO_L32 MO_L24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define MO_L40 MO_L32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define MO_L48 MO_L40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define MO_L56 MO_L48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define MO_L64 MO_L56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define MO_E8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define MO_E16(i) MO_E8(i), MO_E8(i + 8)
#define MO_E24(i) MO_E16(i), MO_E8(i + 16)
#define MO_E32(i) MO_E16(i), MO_E16(i + 16)
#define MO_E40(i) MO_E32(i), MO_E8(i + 32)
#define MO_E48(i) MO_E32(i), MO_E16(i + 32)
#define MO_E56(i) MO_E32(i), MO_E24(i + 32)
#define MO_E64(i) MO_E32(i), MO_E32(i + 32)
template <class T, int TA, int TB = 0> MO_FN void wgmma_weight(float (&d)[8], uint64_t a, uint64_t b) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {" MO_L8 "}, %8, %9, p, 1, 1, %10, %11;}" : MO_E8(0) : "l"(a), "l"(b), "n"(TA), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {" MO_L8 "}, %8, %9, p, 1, 1, %10, %11;}" : MO_E8(0) : "l"(a), "l"(b), "n"(TA), "n"(TB));
}
template <class T, int TA, int TB = 0> MO_FN void wgmma_weight(float (&d)[16], uint64_t a, uint64_t b) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" MO_L16 "}, %16, %17, p, 1, 1, %18, %19;}" : MO_E16(0) : "l"(a), "l"(b), "n"(TA), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {" MO_L16 "}, %16, %17, p, 1, 1, %18, %19;}" : MO_E16(0) : "l"(a), "l"(b), "n"(TA), "n"(TB));
}
template <class T, int TA, int TB = 0> MO_FN void wgmma_weight(float (&d)[24], uint64_t a, uint64_t b) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n48k16.f32.bf16.bf16 {" MO_L24 "}, %24, %25, p, 1, 1, %26, %27;}" : MO_E24(0) : "l"(a), "l"(b), "n"(TA), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n48k16.f32.f16.f16 {" MO_L24 "}, %24, %25, p, 1, 1, %26, %27;}" : MO_E24(0) : "l"(a), "l"(b), "n"(TA), "n"(TB));
}
template <class T, int TA, int TB = 0> MO_FN void wgmma_weight(float (&d)[32], uint64_t a, uint64_t b) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" MO_L32 "}, %32, %33, p, 1, 1, %34, %35;}" : MO_E32(0) : "l"(a), "l"(b), "n"(TA), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" MO_L32 "}, %32, %33, p, 1, 1, %34, %35;}" : MO_E32(0) : "l"(a), "l"(b), "n"(TA), "n"(TB));
}
template <class T, int TA, int TB = 0> MO_FN void wgmma_weight(float (&d)[40], uint64_t a, uint64_t b) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {" MO_L40 "}, %40, %41, p, 1, 1, %42, %43;}" : MO_E40(0) : "l"(a), "l"(b), "n"(TA), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n80k16.f32.f16.f16 {" MO_L40 "}, %40, %41, p, 1, 1, %42, %43;}" : MO_E40(0) : "l"(a), "l"(b), "n"(TA), "n"(TB));
}
template <class T, int TA, int TB = 0> MO_FN void wgmma_weight(float (&d)[48], uint64_t a, uint64_t b) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {" MO_L48 "}, %48, %49, p, 1, 1, %50, %51;}" : MO_E48(0) : "l"(a), "l"(b), "n"(TA), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {" MO_L48 "}, %48, %49, p, 1, 1, %50, %51;}" : MO_E48(0) : "l"(a), "l"(b), "n"(TA), "n"(TB));
}
template <class T, int TA, int TB = 0> MO_FN void wgmma_weight(float (&d)[56], uint64_t a, uint64_t b) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n112k16.f32.bf16.bf16 {" MO_L56 "}, %56, %57, p, 1, 1, %58, %59;}" : MO_E56(0) : "l"(a), "l"(b), "n"(TA), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n112k16.f32.f16.f16 {" MO_L56 "}, %56, %57, p, 1, 1, %58, %59;}" : MO_E56(0) : "l"(a), "l"(b), "n"(TA), "n"(TB));
}
template <class T, int TA, int TB = 0> MO_FN void wgmma_weight(float (&d)[64], uint64_t a, uint64_t b) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" MO_L64 "}, %64, %65, p, 1, 1, %66, %67;}" : MO_E64(0) : "l"(a), "l"(b), "n"(TA), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" MO_L64 "}, %64, %65, p, 1, 1, %66, %67;}" : MO_E64(0) : "l"(a), "l"(b), "n"(TA), "n"(TB));
}
MO_FN void wgmma_weight_tf32(float (&d)[8], const uint32_t (&a)[4], uint64_t b) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n16k8.f32.tf32.tf32 {" MO_L8 "}, {%8, %9, %10, %11}, %12, p, 1, 1;}" : MO_E8(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
MO_FN void wgmma_weight_tf32(float (&d)[16], const uint32_t (&a)[4], uint64_t b) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n32k8.f32.tf32.tf32 {" MO_L16 "}, {%16, %17, %18, %19}, %20, p, 1, 1;}" : MO_E16(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
MO_FN void wgmma_weight_tf32(float (&d)[24], const uint32_t (&a)[4], uint64_t b) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n48k8.f32.tf32.tf32 {" MO_L24 "}, {%24, %25, %26, %27}, %28, p, 1, 1;}" : MO_E24(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
MO_FN void wgmma_weight_tf32(float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {" MO_L32 "}, {%32, %33, %34, %35}, %36, p, 1, 1;}" : MO_E32(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
MO_FN void wgmma_weight_tf32(float (&d)[40], const uint32_t (&a)[4], uint64_t b) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n80k8.f32.tf32.tf32 {" MO_L40 "}, {%40, %41, %42, %43}, %44, p, 1, 1;}" : MO_E40(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
MO_FN void wgmma_weight_tf32(float (&d)[48], const uint32_t (&a)[4], uint64_t b) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n96k8.f32.tf32.tf32 {" MO_L48 "}, {%48, %49, %50, %51}, %52, p, 1, 1;}" : MO_E48(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
MO_FN void wgmma_weight_tf32(float (&d)[56], const uint32_t (&a)[4], uint64_t b) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n112k8.f32.tf32.tf32 {" MO_L56 "}, {%56, %57, %58, %59}, %60, p, 1, 1;}" : MO_E56(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
MO_FN void wgmma_weight_tf32(float (&d)[64], const uint32_t (&a)[4], uint64_t b) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {" MO_L64 "}, {%64, %65, %66, %67}, %68, p, 1, 1;}" : MO_E64(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
#undef MO_L8
#undef MO_E8
#undef MO_L16
#undef MO_E16
#undef MO_L24
#undef MO_E24
#undef MO_L32
#undef MO_E32
#undef MO_L40
#undef MO_E40
#undef MO_L48
#undef MO_E48
#undef MO_L56
#undef MO_E56
#undef MO_L64
#undef MO_E64

/// Sums of one weight over a warpgroup's 8 TILES rows.
template <int TILES> struct TileSum {
  float d[4 * TILES];
  MO_FN void clear() {
#pragma unroll
    for (int i = 0; i < 4 * TILES; i++) d[i] = 0.0f;
  }
  MO_FN void add_scaled(const TileSum& x, float factor) {
#pragma unroll
    for (int i = 0; i < 4 * TILES; i++) d[i] = fma(x.d[i], factor, d[i]);
  }
  MO_FN Pack<4> item(int j) const { return {{d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]}}; }
};

/// A stage's chunk of a weight: 64 columns of it, as tensor copies with 128-byte swizzle leave them. DEPTH_MAJOR: boxes of 64 along the reduction, one behind the other.
template <class T, bool DEPTH_MAJOR> struct TileWeight {
  using Element = T;
  static constexpr int kTransposed = DEPTH_MAJOR ? 0 : 1;
  const unsigned char* base;   // in shared memory, a multiple of 1024
  MO_FN uint64_t descriptor(int k16) const { return wgmma_tile(shared_address(base), 16) + (DEPTH_MAJOR ? (k16 >> 2) * 512 + 2 * (k16 & 3) : 128 * k16); }
  /// The warp's 16 columns over 16 of the reduction, as mma.m16n8k16 has its 16-row operand.
  MO_FN void fragment(uint32_t (&a)[4], int k16) const {
    const int l = lane_id(), columns = (warp_id() & 3) * 2 + (l >> 3 & 1);
    if constexpr (DEPTH_MAJOR) load_matrix_x4(a, base + (k16 >> 2) * 8192 + (columns * 8 + (l & 7)) * 128 + (((k16 & 3) * 2 + (l >> 4)) ^ (l & 7)) * 16);
    else load_matrix_x4_transposed(a, base + (k16 * 16 + (l >> 4) * 8 + (l & 7)) * 128 + (columns ^ (l & 7)) * 16);
  }
  /// The same 16 elements, elements q and q + 4 of each eight in a word of lane q: two 16-row operands of 8 in TF32, once widened. Not DEPTH_MAJOR.
  MO_FN void fragment_in_order(uint32_t (&a)[4], int k16) const {
    const int l = lane_id(), columns = (warp_id() & 3) * 2 + (l >> 3 & 1), k = (l & 7) / 2 + (l & 1) * 4;
    load_matrix_x4_transposed(a, base + (k16 * 16 + (l >> 4) * 8 + k) * 128 + (columns ^ k) * 16);
  }
};

/// += step k16 of a chunk of a weight times rows in its own type. `rows`: the address of the warpgroup's first row; boxes of 64 along the reduction lie `box` bytes apart.
template <class W, int TILES> MO_FN void tile_add(TileSum<TILES>& x, const W& w, uint32_t rows, int box, int k16) {
  wgmma_weight<typename W::Element, W::kTransposed>(x.d, w.descriptor(k16), wgmma_tile(rows, 16) + (k16 >> 2) * (box >> 4) + 2 * (k16 & 3));
}
/// The same for rows whose lines lie across the reduction: 64 rows of a chunk, `box` bytes apart.
template <class W, int TILES> MO_FN void tile_add_across(TileSum<TILES>& x, const W& w, uint32_t rows, int box, int k16) {
  wgmma_weight<typename W::Element, W::kTransposed, 1>(x.d, w.descriptor(k16), wgmma_tile(rows, box) + 128 * k16);
}
/// The same for rows in TF32 (put_piece_tf32), boxes of 32: the weight's fragment a, widened, goes through registers.
template <class W> MO_FN void tile_widen(uint32_t (&low)[4], uint32_t (&high)[4], const W& w, int k16) {
  uint32_t a[4];
  w.fragment(a, k16);
#pragma unroll
  for (int e = 0; e < 4; e++) { low[e] = tf32_low(a[e], typename W::Element()); high[e] = tf32_high(a[e], typename W::Element()); }
}
/// The same with the reduction in its own order, for rows that a tensor copy brought. Lines of the weight lie across the reduction.
template <class W> MO_FN void tile_widen_in_order(uint32_t (&low)[4], uint32_t (&high)[4], const W& w, int k16) {
  uint32_t a[4];
  w.fragment_in_order(a, k16);
  using T = typename W::Element;
#pragma unroll
  for (int e = 0; e < 2; e++) {
    low[e] = tf32_low(a[e], T());
    low[e + 2] = tf32_high(a[e], T());
    high[e] = tf32_low(a[e + 2], T());
    high[e + 2] = tf32_high(a[e + 2], T());
  }
}
template <int TILES> MO_FN void tile_add_tf32(TileSum<TILES>& x, const uint32_t (&low)[4], const uint32_t (&high)[4], uint32_t rows, int box, int k16) {
  const uint64_t b = wgmma_tile(rows, 16) + (k16 >> 1) * (box >> 4) + 4 * (k16 & 1);
  wgmma_weight_tf32(x.d, low, b);
  wgmma_weight_tf32(x.d, high, b + 2);
}

/// A stage's chunk of a low rank: RANK columns. Lines across the reduction are narrow and lie as a copy with their own swizzle leaves them, or PACKED, several in a line of 128 bytes, with
/// that line's; or along it (DEPTH_MAJOR), boxes of 64.
template <class T, int RANK, bool DEPTH_MAJOR, bool PACKED> struct TileRank {
  using Element = T;
  const unsigned char* base;   // in shared memory, a multiple of 1024
  /// Ranks 16 i .. 16 i + 15 over 16 of the reduction, as two 8-column operands.
  MO_FN void fragment(uint32_t (&b)[2][2], int i, int k16) const {
    const int l = lane_id();
    uint32_t r[4];
    if constexpr (DEPTH_MAJOR) {
      const int rank = 16 * i + (l >> 4) * 8 + (l & 7);
      load_matrix_x4(r, base + (k16 >> 2) * (RANK * 128) + rank * 128 + ((((k16 & 3) * 2 + (l >> 3 & 1)) ^ (rank & 7)) << 4));
    } else {
      constexpr int kLine = RANK * 2, kSwizzle = PACKED ? 7 : RANK / 8 - 1;
      const int at = (k16 * 16 + (l & 15)) * kLine + (2 * i + (l >> 4)) * 16;
      load_matrix_x4_transposed(r, base + (at ^ (((at >> 7) & kSwizzle) << 4)));
    }
    b[0][0] = r[0]; b[0][1] = r[1]; b[1][0] = r[2]; b[1][1] = r[3];
  }
};

/// A low-rank sum over ROWS rows that WARPS warps share (one warpgroup, or those with neighbouring columns), a warp for every sixteen of them, beside the products of wgmma: rows on the 16-row side. wgmma would take 64 columns for a few, and copies as wide.
template <int ROWS, int RANK, int WARPS = 4> struct TileRankSum {
  static constexpr int kTiles = (ROWS / 16 + WARPS - 1) / WARPS, kTurns = RANK > 16 ? 1 : 2;   // two sums in turn: a product waits for the one before it
  float d[kTurns][kTiles][RANK / 8][4];
  MO_FN void clear() {
#pragma unroll
    for (int s = 0; s < kTurns; s++)
#pragma unroll
      for (int t = 0; t < kTiles; t++)
#pragma unroll
        for (int j = 0; j < RANK / 8; j++)
#pragma unroll
          for (int e = 0; e < 4; e++) d[s][t][j][e] = 0.0f;
  }
  static MO_FN int tile_of(int t) { return WARPS * t + warp_id() % WARPS; }
  /// 64 rows' sums, in the fragment order of a wgmma with these as its 64-row operand.
  MO_FN void total(TileSum<RANK / 8>& x) const {
    static_assert(ROWS == 64 && WARPS == 4, "a warp has sixteen rows there");
#pragma unroll
    for (int j = 0; j < RANK / 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) x.d[4 * j + e] = kTurns == 2 ? mo::add(d[0][0][j][e], d[kTurns - 1][0][j][e]) : d[0][0][j][e];
  }
  /// += a chunk of STEPS times 16 of the reduction. rows: the warpgroup's first row in shared memory, as for tile_add. All reads of some steps before their products.
  template <int STEPS, class W> MO_FN void add(const W& w, const unsigned char* rows, int box) {
    constexpr int kAtOnce = RANK > 32 ? 1 : RANK > 16 ? 2 : 4;
    const int l = lane_id();
    if (ROWS % (16 * WARPS) && tile_of(0) * 16 >= ROWS) return;
#pragma unroll
    for (int k0 = 0; k0 < STEPS; k0 += kAtOnce) {
      uint32_t b[kAtOnce][RANK / 16][2][2];
#pragma unroll
      for (int k = 0; k < kAtOnce; k++)
#pragma unroll
        for (int i = 0; i < RANK / 16; i++) w.fragment(b[k][i], i, k0 + k);
#pragma unroll
      for (int t = 0; t < kTiles; t++) {
        if (ROWS % (16 * WARPS) && tile_of(t) * 16 >= ROWS) break;
        const int row = tile_of(t) * 16 + (l & 15);
        uint32_t a[kAtOnce][4];
#pragma unroll
        for (int k = 0; k < kAtOnce; k++) load_matrix_x4(a[k], rows + ((k0 + k) >> 2) * box + row * 128 + (((((k0 + k) & 3) * 2 + (l >> 4)) ^ (row & 7)) << 4));
#pragma unroll
        for (int k = 0; k < kAtOnce; k++)
#pragma unroll
          for (int j = 0; j < RANK / 8; j++) mma_16x8x16(d[(k0 + k) % kTurns][t][j], a[k], b[k][j / 2][j % 2][0], b[k][j / 2][j % 2][1], typename W::Element());
      }
    }
  }
};

// ---- rows in shared memory, lines of 128 bytes with 128-byte swizzle. A thread works on pieces of 8 elements of one row; threads that share a row have neighbouring pieces each, so that eight of them read
// eight different columns of the swizzle
template <class T> MO_FN Vector<T, 8> tile_piece(const unsigned char* rows, int row, int piece) { return *reinterpret_cast<const Vector<T, 8>*>(rows + row * 128 + ((piece ^ (row & 7)) << 4)); }
/// Puts eight computed neighbours where wgmma expects them: as T, lines of 64.
template <class T> MO_FN void put_piece(unsigned char* rows, int row, int piece, const Pack<8>& x) {
  Vector<T, 8> v;
#pragma unroll
  for (int i = 0; i < 8; i++) v.v[i] = store<T>(x.v[i]);
  *reinterpret_cast<Vector<T, 8>*>(rows + row * 128 + ((piece ^ (row & 7)) << 4)) = v;
}
/// As TF32, lines of 32, `box` bytes from one run of 32 to the next. A fragment of 16 elements of a 16-bit weight widens to their even and their odd ones: two steps of 8, so each 16 are stored in that order.
MO_FN void put_piece_tf32(unsigned char* rows, int box, int row, int piece, const Pack<8>& x) {
  unsigned char* const line = rows + (piece >> 2) * box + row * 128;
  const int at = (piece >> 1 & 1) * 4 + (piece & 1);
  *reinterpret_cast<uint4*>(line + ((at ^ (row & 7)) << 4)) = make_uint4(tf32_bits(x.v[0]), tf32_bits(x.v[2]), tf32_bits(x.v[4]), tf32_bits(x.v[6]));
  *reinterpret_cast<uint4*>(line + (((at + 2) ^ (row & 7)) << 4)) = make_uint4(tf32_bits(x.v[1]), tf32_bits(x.v[3]), tf32_bits(x.v[5]), tf32_bits(x.v[7]));
}

// ---- behind the loop
/// Tile j of those that block `owner` of the cluster finishes.
template <int CLUSTER, int TILES> MO_FN Pack<4> tile_of_owner(const TileSum<TILES>& x, int owner, int j) {
  Pack<4> r = x.item(j);
#pragma unroll
  for (int o = 1; o < CLUSTER; o++) {
    const Pack<4> y = x.item(o * (TILES / CLUSTER) + j);
#pragma unroll
    for (int e = 0; e < 4; e++) r.v[e] = owner == o ? y.v[e] : r.v[e];
  }
  return r;
}
/// Sends every other block of the cluster its tiles and keeps the own ones. `received`: this thread's first place of the sum, [other block][tile], `pitch` bytes between tiles.
template <int CLUSTER, int TILES> MO_FN void tile_exchange(Pack<4> (&own)[TILES / CLUSTER], const TileSum<TILES>& x, int rank, uint32_t received, int pitch, uint32_t met) {
  constexpr int kShare = TILES / CLUSTER;
#pragma unroll
  for (int s = 1; s < CLUSTER; s++) {
    const int owner = (rank + s) % CLUSTER, from = rank > owner ? rank - 1 : rank;
    const uint32_t to = remote_address(received + from * kShare * pitch, owner), bar = remote_address(met, owner);
#pragma unroll
    for (int j = 0; j < kShare; j++) store_async(to + j * pitch, tile_of_owner<CLUSTER>(x, owner, j), bar);
  }
#pragma unroll
  for (int j = 0; j < kShare; j++) own[j] = tile_of_owner<CLUSTER>(x, rank, j);
}
/// The same for any number of tiles, by branches instead of selections: the last block's share is what is left. Every block begins with another one.
template <int CLUSTER, int TILES> MO_FN void tile_deal(Pack<4> (&own)[(TILES + CLUSTER - 1) / CLUSTER], const TileSum<TILES>& x, int rank, uint32_t received, int pitch, uint32_t met) {
  constexpr int kShare = (TILES + CLUSTER - 1) / CLUSTER;
#pragma unroll
  for (int r = 0; r < CLUSTER; r++) {
    if (rank != r) continue;
#pragma unroll
    for (int s = 1; s < CLUSTER; s++) {
      const int owner = (r + s) % CLUSTER, from = r > owner ? r - 1 : r;
      const uint32_t to = remote_address(received + from * kShare * pitch, owner), bar = remote_address(met, owner);
#pragma unroll
      for (int j = 0; j < kShare; j++) if (owner * kShare + j < TILES) store_async(to + j * pitch, x.item(owner * kShare + j), bar);
    }
#pragma unroll
    for (int j = 0; j < kShare; j++) if (r * kShare + j < TILES) own[j] = x.item(r * kShare + j);
  }
}
/// The own part plus what the other blocks sent, `pitch` bytes from one's part to the next one's.
template <int CLUSTER> MO_FN Pack<4> tile_total(Pack<4> own, const unsigned char* received, int pitch) {
#pragma unroll
  for (int s = 0; s + 1 < CLUSTER; s++) own = add(own, *reinterpret_cast<const Pack<4>*>(received + s * pitch));
  return own;
}

// ---- low ranks: a sum whose "columns" are ranks goes to shared memory as float32 [rank][row] and is multiplied by its second factor with mma, each warp for its own 16 columns
template <int PITCH, int TILES> MO_FN void put_ranks(float* to, const TileSum<TILES>& x, int ranks) {
  const int first = (warp_id() & 3) * 16 + lane_id() / 4;
  if ((warp_id() & 3) * 16 >= ranks) return;
#pragma unroll
  for (int j = 0; j < TILES; j++)
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float* const p = to + (first + 8 * r) * PITCH + 8 * j + lane_id() % 4 * 2;
      p[0] = x.d[4 * j + 2 * r];
      p[1] = x.d[4 * j + 2 * r + 1];
    }
}
template <int PITCH, int ROWS, int RANK, int WARPS> MO_FN void put_ranks(float* to, const TileRankSum<ROWS, RANK, WARPS>& x, int ranks) {
  const int m = lane_id() / 4, q = lane_id() % 4 * 2;
#pragma unroll
  for (int t = 0; t < x.kTiles; t++) {
    if (ROWS % (16 * WARPS) && x.tile_of(t) * 16 >= ROWS) break;
#pragma unroll
    for (int j = 0; j < RANK / 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        if (8 * j < ranks) to[(8 * j + q + e % 2) * PITCH + x.tile_of(t) * 16 + m + e / 2 * 8] = x.kTurns == 2 ? add(x.d[0][t][j][e], x.d[x.kTurns - 1][t][j][e]) : x.d[0][t][j][e];
  }
}
template <class T> MO_FN uint32_t half_bits(T x) { return (uint32_t)*reinterpret_cast<unsigned short*>(&x); }
template <class T, int RANK> struct TileFactor {
  uint32_t word[RANK / 8][2];   // ranks q and q + 4 of columns g and g + 8
  MO_FN void fetch(const T* p, int64_t rank_stride, int64_t column_stride, int ranks, int columns) {
    const int c = (warp_id() & 3) * 16 + lane_id() / 4;
#pragma unroll
    for (int j = 0; j < RANK / 8; j++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int r = 8 * j + 4 * h + lane_id() % 4;
        const uint32_t low = c < columns && r < ranks ? half_bits(p[r * rank_stride + c * column_stride]) : 0u, high = c + 8 < columns && r < ranks ? half_bits(p[r * rank_stride + (c + 8) * column_stride]) : 0u;
        word[j][h] = low | high << 16;
      }
  }
  template <int PITCH, int TILES, class Gain> MO_FN void multiply(TileSum<TILES>& sum, const float* x, float factor, const Gain& gain) const {
#pragma unroll
    for (int j = 0; j < RANK / 8; j++) {
      const uint32_t a[4] = {tf32_low(word[j][0], T()), tf32_high(word[j][0], T()), tf32_low(word[j][1], T()), tf32_high(word[j][1], T())};
      const float* const p = x + (8 * j + lane_id() % 4) * PITCH + lane_id() / 4;
#pragma unroll
      for (int t = 0; t < TILES; t++) {
        float d[4] = {sum.d[4 * t], sum.d[4 * t + 1], sum.d[4 * t + 2], sum.d[4 * t + 3]};
        mma_16x8x8(d, a, tf32_bits(gained(mul(p[8 * t], factor), gain, j, 0)), tf32_bits(gained(mul(p[4 * PITCH + 8 * t], factor), gain, j, 1)));
#pragma unroll
        for (int e = 0; e < 4; e++) sum.d[4 * t + e] = d[e];
      }
    }
  }
};

/// An item to a 16-bit tensor whose lines lie along columns: two neighbouring columns of one row at once, after an exchange between lanes, so all lanes of a warp come here together. p: where the warp's 8 rows and
/// 16 columns begin, `rows` and `columns` of them exist. Lines are multiples of two elements.
template <class T> MO_FN void store_item_lines(T* p, int64_t row_stride, int rows, int columns, const Pack<4>& x) {
  const int row = lane_id() / 4, column = lane_id() % 4 * 2;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const uint32_t two = transpose_8x8(half_bits(store<T>(x.v[2 * h])) | half_bits(store<T>(x.v[2 * h + 1])) << 16);
    if (row < rows && 8 * h + column < columns) *reinterpret_cast<uint32_t*>(p + row * row_stride + 8 * h + column) = two;
  }
}
/// Two matrices of 8 x 8 two-byte elements, transposed, to shared memory: lanes 0 to 7 bring where the lines of the first lie, 16 bytes each, lanes 8 to 15 those of the second (PTX ISA, stmatrix).
MO_FN void store_matrix_x2_transposed(void* line, uint32_t first, uint32_t second) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16 [%0], {%1, %2};" ::"r"(shared_address(line)), "r"(first), "r"(second) : "memory");
}
/// An item to a warpgroup's tile of results in shared memory, lines of 64 columns with the swizzle of a tensor copy; its 8 rows are from `row` on. Eight rows go to eight different columns of banks.
template <class T> MO_FN void stage_item(unsigned char* lines, int row, const Pack<4>& x) {
  const int r = lane_id() & 7, h = lane_id() >> 3 & 1;
  store_matrix_x2_transposed(lines + (row + r) * 128 + ((((warp_id() & 3) * 2 + h) ^ r) << 4), half_bits(store<T>(x.v[0])) | half_bits(store<T>(x.v[1])) << 16,
                             half_bits(store<T>(x.v[2])) | half_bits(store<T>(x.v[3])) << 16);
}
/// The same where lines of the result lie along rows: units of 16 bytes, eight rows of a column each, that of row tile t and column n at t * 64 + (n ^ t % 8). What a warp writes at once
/// are eight units beside each other; what eight threads read, eight of one column, lies in eight different columns of banks.
template <class T> MO_FN void stage_item_by_columns(unsigned char* units, int t, const Pack<4>& x) {
  unsigned char* const to = units + (t * 64 + (warp_id() & 3) * 16 + (lane_id() / 4 ^ (t & 7))) * 16 + lane_id() % 4 * 4;
  *reinterpret_cast<uint32_t*>(to) = half_bits(store<T>(x.v[0])) | half_bits(store<T>(x.v[1])) << 16;
  *reinterpret_cast<uint32_t*>(to + 8 * 16) = half_bits(store<T>(x.v[2])) | half_bits(store<T>(x.v[3])) << 16;
}
/// The same in boxes of 64 rows with the swizzle of a tensor copy, a line of 128 bytes for each of 64 columns.
template <class T> MO_FN void stage_item_in_boxes(unsigned char* boxes, int t, const Pack<4>& x) {
  unsigned char* const to = boxes + t / 8 * 8192 + ((warp_id() & 3) * 16 + lane_id() / 4) * 128 + (((t & 7) ^ (lane_id() / 4)) << 4) + lane_id() % 4 * 4;
  *reinterpret_cast<uint32_t*>(to) = half_bits(store<T>(x.v[0])) | half_bits(store<T>(x.v[1])) << 16;
  *reinterpret_cast<uint32_t*>(to + 8 * 128) = half_bits(store<T>(x.v[2])) | half_bits(store<T>(x.v[3])) << 16;
}
/// Stores TILES row tiles of units by columns: `rows` and `columns` of them exist. p, and the pitch of columns, are multiples of 16 bytes. The warpgroup's threads have met.
template <int TILES, class T> MO_FN void store_staged_by_columns(const unsigned char* units, T* p, int64_t pitch, int rows, int columns) {
#pragma unroll
  for (int i = 0; i < (TILES + 1) / 2; i++) {
    const int unit = thread_id() % 128 + 128 * i, n = unit / TILES, t = unit % TILES;
    if (n >= 64 || n >= columns) continue;
    const uint4 x = *reinterpret_cast<const uint4*>(units + (t * 64 + (n ^ (t & 7))) * 16);
    T* const to = p + n * pitch + t * 8;
    if (t * 8 + 8 <= rows) *reinterpret_cast<uint4*>(to) = x;
    else
      for (int e = 0; e < 8; e++)
        if (t * 8 + e < rows) to[e] = reinterpret_cast<const T*>(&x)[e];
  }
}
/// The same where lines begin anywhere: a warp stores 32 neighbours of a column at once.
template <int TILES, class T> MO_FN void store_staged_uneven(const unsigned char* units, T* p, int64_t pitch, int rows, int columns) {
  const int first = warp_id() & 3;
#pragma unroll 4
  for (int n = first; n < 64; n += 4) {
    if (n >= columns) break;
#pragma unroll
    for (int i = 0; i < (TILES + 3) / 4; i++) {
      const int row = lane_id() + 32 * i, t = row / 8;
      if (t < TILES && row < rows) p[n * pitch + row] = reinterpret_cast<const T*>(units + (t * 64 + (n ^ (t & 7))) * 16)[row % 8];
    }
  }
}
/// An item of such a tile of operands (fetch_staged). All lanes of a warp come here together.
template <class T> MO_FN Pack<4> staged_item(const unsigned char* lines, int row) {
  const int r = lane_id() / 4;
  Pack<4> x;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const uint32_t word = transpose_8x8(*reinterpret_cast<const uint32_t*>(lines + (row + r) * 128 + ((((warp_id() & 3) * 2 + h) ^ r) << 4) + lane_id() % 4 * 4));
    Vector<T, 2> two;
    *reinterpret_cast<uint32_t*>(&two) = word;
    x.v[2 * h] = load(two.v[0]);
    x.v[2 * h + 1] = load(two.v[1]);
  }
  return x;
}
/// Brings a warpgroup's tile of an operand there, whole lines at a time, up to 128 rows at once; what does not exist is zero.
template <int ROWS, class T> MO_FN void fetch_staged(unsigned char* lines, const T* p, int64_t pitch, int rows, int columns) {
  constexpr int kEach = ROWS <= 128 ? (ROWS + 15) / 16 : 4;   // more rows leave fewer registers
  const int member = thread_id() % 128, piece = member % 8;
#pragma unroll 1
  for (int first = member / 8; first < ROWS; first += 16 * kEach) {
    uint4 x[kEach];
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      const int row = first + 16 * i;
      x[i] = row < rows && piece * 8 < columns ? MO_LDG(reinterpret_cast<const uint4*>(p + row * pitch + piece * 8)) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      const int row = first + 16 * i;
      if (row < ROWS) *reinterpret_cast<uint4*>(lines + row * 128 + ((piece ^ (row & 7)) << 4)) = x[i];
    }
  }
}
/// Asks for that tile's lines ahead of time: they wait in L2.
MO_FN void prefetch_line(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
template <int ROWS, class T> MO_FN void prefetch_rows(const T* p, int64_t pitch, int rows) {
#pragma unroll
  for (int i = 0; i < (ROWS + 127) / 128; i++)
    if (const int row = thread_id() % 128 + 128 * i; row < rows) prefetch_line(p + row * pitch);
}
/// Stores such a tile, whole lines at a time: `rows` of its ROWS rows and `columns` of its columns exist. p, and the pitch of rows, are multiples of 16 bytes. The warpgroup's threads have met.
template <int ROWS, class T> MO_FN void store_staged(const unsigned char* lines, T* p, int64_t pitch, int rows, int columns) {
  const int member = thread_id() % 128, piece = member % 8;
#pragma unroll
  for (int i = 0; i < (ROWS + 15) / 16; i++) {
    const int row = member / 8 + 16 * i;
    if (row < rows && piece * 8 < columns) *reinterpret_cast<uint4*>(p + row * pitch + piece * 8) = *reinterpret_cast<const uint4*>(lines + row * 128 + ((piece ^ (row & 7)) << 4));
  }
}
/// An item of such a tensor: two neighbouring columns of one row at once, turned between lanes, so all lanes of a warp come here together; what does not exist is zero.
template <class T> MO_FN Pack<4> load_item_lines(const T* p, int64_t row_stride, int rows, int columns) {
  const int row = lane_id() / 4, column = lane_id() % 4 * 2;
  Pack<4> r;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const uint32_t word = row < rows && 8 * h + column < columns ? MO_LDG(reinterpret_cast<const unsigned*>(p + row * row_stride + 8 * h + column)) : 0u;
    Vector<T, 2> two;
    *reinterpret_cast<uint32_t*>(&two) = transpose_8x8(word);
    r.v[2 * h] = load(two.v[0]);
    r.v[2 * h + 1] = load(two.v[1]);
  }
  return r;
}

#endif

}  // namespace mo
