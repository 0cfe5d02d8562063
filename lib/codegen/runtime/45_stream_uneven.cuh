// Device library, part 4f: streams of weights whose lines begin anywhere. A tensor copy's boxes begin at multiples of 16 bytes; so a warp brings the whole vectors that hold a line's 64 elements, nine at
// most, and its first element lies up to seven places into them (docs/planning.md, "Lines that begin anywhere").
#pragma once
#include "20_region.cuh"
#include "41_stream.cuh"

namespace mo {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

[[maybe_unused]] constexpr int kUnevenLine = 144;   // bytes of nine vectors: lines eight apart begin in different banks

/// Starts the copy of LINES lines of 64 elements to shared memory, line i from element first + i * line of p on, a warp's work. lines: how many exist; left: of how many elements; the rest is zero. p: a multiple of 16 bytes.
template <int LINES, class T> MO_FN void fetch_uneven(unsigned char* to, const T* p, int64_t first, int64_t line, int lines, int left) {
  const auto fetch = [&](int i, int64_t begin, int vector) {
    const int64_t at = (begin & ~int64_t(7)) + vector * 8;
    const int bytes = i < lines ? clip(begin + (left < 64 ? left : 64) - at, 8) * 2 : 0;
    copy_async<16>(to + i * kUnevenLine + vector * 16, p + (bytes > 0 ? at : 0), bytes);
  };
  int i = lane_id() / 8;
  int64_t begin = first + i * line;   // from line to line: as many products at once would fill registers
#pragma unroll
  for (int j = 0; j < LINES / 4; j++, i += 4, begin += 4 * line) fetch(i, begin, lane_id() % 8);
  i = lane_id(), begin = first + i * line;
#pragma unroll
  for (int j = 0; j < LINES / 32; j++, i += 32, begin += 32 * line) fetch(i, begin, 8);
}

/// A chunk of such a weight: what StreamTile is, for 64 columns. Line i begins (first + i * line) % 8 places into its vectors. DEPTH_MAJOR: lines of 64 along the reduction, those of 64 columns behind one another.
template <class T, int CHUNK, bool DEPTH_MAJOR> struct UnevenTile {
  using Element = T;
  const unsigned char* base;
  int first, line;
  MO_FN const unsigned char* begin(int i) const { return base + i * kUnevenLine + ((first + i * line) & 7) * 2; }
  static MO_FN uint32_t half(const unsigned char* p) { return *reinterpret_cast<const unsigned short*>(p); }
  /// Pairs 2 s and 2 s + 1 of one column along the reduction, of the lane's own four of unit u.
  MO_FN uint2 two_pairs(int column, int u, int s) const {
    const unsigned char* const p = begin(column) + u / 2 * (64 * kUnevenLine) + (u & 1) * 64 + (lane_id() & 3) * 16 + s * 8;
    const bool odd = (first + column * line) & 1;
    const uint32_t* const w = reinterpret_cast<const uint32_t*>(p - (odd ? 2 : 0));
    const uint32_t x = w[0], y = w[1];
    return odd ? make_uint2(x >> 16 | y << 16, y >> 16 | w[2] << 16) : make_uint2(x, y);
  }
  /// The 16-deep step s of unit u for columns 16 i .. 16 i + 15, as the 16-row operand.
  MO_FN void as_rows(uint32_t (&a)[4], int i, int u, int s) const {
    const int g = lane_id() / 4, q = lane_id() & 3;
    if constexpr (DEPTH_MAJOR) {
      const uint2 x = two_pairs(16 * i + g, u, s), y = two_pairs(16 * i + 8 + g, u, s);
      a[0] = x.x; a[1] = y.x; a[2] = x.y; a[3] = y.y;
    } else {
#pragma unroll
      for (int c = 0; c < 2; c++) {
        const int k = u * 32 + 8 * q + 2 * (q ^ (2 * s + c));
        const unsigned char *const low = begin(k) + 2 * g, *const high = begin(k + 1) + 2 * g;
#pragma unroll
        for (int h = 0; h < 2; h++) a[c * 2 + h] = half(low + 32 * i + 16 * h) | half(high + 32 * i + 16 * h) << 16;
      }
    }
  }
  MO_FN void as_rows(uint32_t (&a)[2][4], int i, int u) const {
#pragma unroll
    for (int s = 0; s < 2; s++) as_rows(a[s], i, u, s);
  }
};

// ---- the small operand where its lines begin anywhere, or end within eight elements
/// Eight elements at p, UNIT at a time (p and what is left are multiples of it); the first `left` exist, the others are zero.
template <int UNIT, class T> MO_FN Vector<T, 8> load_eight(const T* p, int left) {
  using Word = typename VectorWord<UNIT * (int)sizeof(T)>::type;
  static_assert(UNIT < 8, "whole vectors have a function of their own");
  Vector<T, 8> r;
  Word* const words = reinterpret_cast<Word*>(&r);
#pragma unroll
  for (int i = 0; i < 8 / UNIT; i++) words[i] = i * UNIT < left ? MO_LDG(reinterpret_cast<const Word*>(p) + i) : Word{};
  return r;
}
/// The first `left` of x, then `other`.
MO_FN Pack<8> first_of(Pack<8> x, int left, float other) {
#pragma unroll
  for (int i = 0; i < 8; i++) x.v[i] = i < left ? x.v[i] : other;
  return x;
}

#endif

}  // namespace mo
