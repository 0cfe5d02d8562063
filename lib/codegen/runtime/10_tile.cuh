// Device library, part 1: tiles in shared memory, how they are filled from device memory, and elementwise work on them.
#pragma once
#include "00_base.cuh"

namespace mo {

// ---- asynchronous copies to shared memory (PTX ISA: cp.async). bytes: how many of the N bytes exist; the rest becomes zero.
template <int N> MO_FN void copy_async(void* dst, const void* src, int bytes) {
  static_assert(N == 16 || N == 8 || N == 4, "cp.async moves 4, 8 or 16 bytes");
  if constexpr (N == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(dst)), "l"(src), "r"(bytes) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(dst)), "l"(src), "n"(N), "r"(bytes) : "memory");
}
MO_FN void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> MO_FN void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

MO_FN int clip(int64_t left, int tile) { return left < 0 ? 0 : left < tile ? (int)left : tile; }   // how much of a tile exists

/// B matrices of R x C elements of T. Lines are rows (COL: columns) of LD elements; with SWZ the 16-byte chunks of a line are permuted by XOR with the line number, which makes
/// column-wise access of 16-byte chunks conflict free. Elements beyond the tensor are zero.
template <class T, int B, int R, int C, bool COL, int LD, bool SWZ> struct Tile {
  using Element = T;
  static constexpr int kB = B, kR = R, kC = C, kLD = LD, kLines = COL ? C : R, kLength = COL ? R : C, kChunk = 16 / (int)sizeof(T);
  static constexpr bool kCol = COL, kSwizzled = SWZ;
  static_assert(LD >= kLength, "lines overlap");
  static_assert(!SWZ || LD % (8 * kChunk) == 0, "a swizzled line is a multiple of 128 bytes");
  using Transposed = Tile<T, B, C, R, !COL, LD, SWZ>;
  T* p;
  static MO_FN int offset(int b, int line, int at) {
    if constexpr (SWZ) return (b * kLines + line) * LD + ((at / kChunk) ^ (line & 7)) * kChunk + at % kChunk;
    else return (b * kLines + line) * LD + at;
  }
  MO_FN T* at(int b, int line, int pos) const { return p + offset(b, line, pos); }
  MO_FN float operator()(int b, int r, int c) const { return load(*(COL ? at(b, c, r) : at(b, r, c))); }
  /// W neighbours along c: c is a multiple of W, lines start at multiples of 16 bytes.
  template <int W> MO_FN auto read(Width<W> w, int b, int r, int c) const {
    static_assert(!SWZ || COL || W <= kChunk, "neighbours beyond a chunk lie elsewhere in a swizzled line");
    if constexpr (!COL || W == 1) return load_pack(COL ? at(b, c, r) : at(b, r, c), w);
    else {
      Pack<W> x;
#pragma unroll
      for (int i = 0; i < W; i++) x.v[i] = load(*at(b, c + i, r));
      return x;
    }
  }
  /// W neighbours along r.
  template <int W> MO_FN auto down(Width<W> w, int b, int r, int c) const { return transposed().read(w, b, c, r); }
  MO_FN void put(int b, int r, int c, float v) const { *(COL ? at(b, c, r) : at(b, r, c)) = store<T>(v); }
  MO_FN Transposed transposed() const { return {p}; }
};

/// Starts the copy of a tile: lines of `length` existing elements each (the rest up to the tile's extents is filled with zeros). BYTES: unit of copy; the source and every stride are multiples of it.
/// BYTES below 4 copies synchronously, element by element.
template <int THREADS, int BYTES, class TILE>
MO_FN void load_tile(TILE t, const typename TILE::Element* src, int64_t batch_stride, int64_t line_stride, int batches, int lines, int length) {
  using T = typename TILE::Element;
  constexpr int kPer = BYTES / (int)sizeof(T), kUnits = (TILE::kLength + kPer - 1) / kPer, kTotal = TILE::kB * TILE::kLines * kUnits;
  static_assert(kUnits * kPer <= TILE::kLD, "padding holds the last unit");
#pragma unroll(BYTES >= 4 ? 16 : 8)
  for (int first = 0; first < kTotal; first += THREADS) {
    const int i = first + member<THREADS>();
    if (kTotal % THREADS != 0 && i >= kTotal) break;
    const int unit = i % kUnits, line = i / kUnits % TILE::kLines, b = i / kUnits / TILE::kLines;
    const int there = b < batches && line < lines ? clip(length - unit * kPer, kPer) : 0;
    const T* from = src + (there > 0 ? b * batch_stride + line * line_stride + unit * kPer : 0);
    if constexpr (BYTES >= 4) copy_async<BYTES>(t.at(b, line, unit * kPer), from, there * (int)sizeof(T));
    else *t.at(b, line, unit) = there > 0 ? *from : store<T>(0.0f);
  }
}
/// The same for a source whose contiguous direction is not the tile's (or has none): element by element, synchronously. Strides in elements along b, r, c.
template <int THREADS, class TILE>
MO_FN void load_tile_strided(TILE t, const typename TILE::Element* src, int64_t sb, int64_t sr, int64_t sc, int batches, int rows, int cols) {
  constexpr int kTotal = TILE::kB * TILE::kR * TILE::kC;
  for (int i = member<THREADS>(); i < kTotal; i += THREADS) {
    const int c = i % TILE::kC, r = i / TILE::kC % TILE::kR, b = i / TILE::kC / TILE::kR;
    *(TILE::kCol ? t.at(b, c, r) : t.at(b, r, c)) = b < batches && r < rows && c < cols ? src[b * sb + r * sr + c * sc] : store<typename TILE::Element>(0.0f);
  }
}

/// PARTS partial results of a reduction or contraction, in float32; reading combines them in a fixed order.
template <class RED, int PARTS, int B, int R, int C, int LD> struct Parts {
  static constexpr int kStride = B * R * LD;
  float* p;
  MO_FN void put(int part, int b, int r, int c, float v) const { p[part * kStride + (b * R + r) * LD + c] = v; }
  template <int W> MO_FN auto get(Width<W> w, int i) const {   // W = 1, or i and W multiples of 4
    auto v = load_pack(p + i, w);
#pragma unroll
    for (int k = 1; k < PARTS; k++) {
      const auto u = load_pack(p + i + k * kStride, w);
      if constexpr (W == 1) v = RED::combine(v, u);
      else {
#pragma unroll
        for (int e = 0; e < W; e++) v.v[e] = RED::combine(v.v[e], u.v[e]);
      }
    }
    return v;
  }
  MO_FN float operator()(int b, int r, int c) const { return get(Width<1>(), (b * R + r) * LD + c); }
  template <int W> MO_FN auto read(Width<W> w, int b, int r, int c) const {
    const int i = (b * R + r) * LD + c;
    if constexpr (W == 1 || W % 4 == 0) return get(w, i);
    else {
      Pack<W> x;
#pragma unroll
      for (int k = 0; k < W; k++) x.v[k] = get(Width<1>(), i + k);
      return x;
    }
  }
  template <int W> MO_FN auto down(Width<W> w, int b, int r, int c) const {
    if constexpr (W == 1) return read(w, b, r, c);
    else {
      Pack<W> x;
#pragma unroll
      for (int k = 0; k < W; k++) x.v[k] = read(Width<1>(), b, r + k, c);
      return x;
    }
  }
  /// Combines the parts and writes the result as part number `rank` of `to` in every block of the cluster; to is read behind the next cluster barrier.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  template <int THREADS, int RANKS> MO_FN void exchange(Parts<RED, RANKS, B, R, C, LD> to, int rank) const {
    static_assert(kStride % 4 == 0, "lines are padded to 16 bytes");
    for (int i = member<THREADS>() * 4; i < kStride; i += THREADS * 4) {
      const Pack<4> v = get(Width<4>(), i);
#pragma unroll
      for (int other = 0; other < RANKS; other++) store_remote(to.p + rank * kStride + i, other, v);
    }
  }
#endif
};

/// tile(b,r,c) = f(b,r,c) where that exists (batches x rows x cols), zero in the padding. W: neighbours along c evaluated together (1 unless lines are rows).
template <int THREADS, int W, class TILE, class F> MO_FN void fill_tile(TILE t, int batches, int rows, int cols, F f) {
  constexpr int kInner = (TILE::kCol ? TILE::kR : TILE::kC) / W, kTotal = TILE::kB * TILE::kLines * kInner;
  static_assert(W == 1 || (!TILE::kCol && TILE::kC % W == 0 && (!TILE::kSwizzled || W <= TILE::kChunk)), "packs lie in lines");
#pragma unroll 4
  for (int i = member<THREADS>(); i < kTotal; i += THREADS) {
    const int x = i % kInner * W, y = i / kInner;
    const int c = TILE::kCol ? y % TILE::kC : x, r = TILE::kCol ? x : y % TILE::kR, b = y / TILE::kLines;
    const bool line = b < batches && r < rows;
    if (W > 1 && line && c + W <= cols) {
      store_pack<W>(t.at(b, r, c), f(Width<W>(), b, r, c));
    } else {
#pragma unroll
      for (int k = 0; k < W; k++) t.put(b, r, c + k, line && c + k < cols ? element(f(Width<1>(), b, r, c + k), 0) : 0.0f);
    }
  }
}
/// The same for a matrix whose lines are whole packs, with what else is made of its elements on the way: f(w, u, r, c) is called for a thread's u-th pack. A thread has the same columns in all of
/// its packs where packs of a line divide the threads.
template <int THREADS, int W, class TILE, class F> MO_FN void fill_lines(TILE t, int rows, F f) {
  constexpr int kInner = TILE::kC / W, kTotal = TILE::kR * kInner;
  static_assert(TILE::kB == 1 && !TILE::kCol && TILE::kC % W == 0 && (!TILE::kSwizzled || W <= TILE::kChunk), "packs lie in lines");
#pragma unroll
  for (int u = 0; u < (kTotal + THREADS - 1) / THREADS; u++) {
    const int i = member<THREADS>() + u * THREADS;
    if (kTotal % THREADS != 0 && i >= kTotal) break;
    const int c = i % kInner * W, r = i / kInner;
    if (r < rows) store_pack<W>(t.at(0, r, c), f(Width<W>(), u, r, c));
    else {
#pragma unroll
      for (int k = 0; k < W; k++) t.put(0, r, c + k, 0.0f);
    }
  }
}
/// tile = RED(tile, f) where f exists; `first` starts it. For accumulators of values that no contraction or reduction makes.
template <int THREADS, class RED, class TILE, class F> MO_FN void accumulate_tile(TILE t, bool first, int batches, int rows, int cols, F f) {
  constexpr int kTotal = TILE::kB * TILE::kR * TILE::kC;
  for (int i = member<THREADS>(); i < kTotal; i += THREADS) {
    const int c = i % TILE::kC, r = i / TILE::kC % TILE::kR, b = i / TILE::kC / TILE::kR;
    const bool there = b < batches && r < rows && c < cols;
    const float old = first ? RED::identity() : t(b, r, c);
    t.put(b, r, c, there ? RED::combine(old, f(Width<1>(), b, r, c)) : old);
  }
}

/// The same for a sum that factor(b,r,c) rescales first, whether f exists or not.
template <int THREADS, class RED, class TILE, class F, class G> MO_FN void accumulate_tile(TILE t, bool first, int batches, int rows, int cols, F f, G factor) {
  constexpr int kTotal = TILE::kB * TILE::kR * TILE::kC;
  for (int i = member<THREADS>(); i < kTotal; i += THREADS) {
    const int c = i % TILE::kC, r = i / TILE::kC % TILE::kR, b = i / TILE::kC / TILE::kR;
    const bool there = b < batches && r < rows && c < cols;
    const float old = first ? RED::identity() : t(b, r, c) * factor(b, r, c);
    t.put(b, r, c, there ? RED::combine(old, f(Width<1>(), b, r, c)) : old);
  }
}
/// A running maximum: m = max(m, f) where f exists, and factor = e^(previous m - m). It starts at the lowest float, so that e^(-inf - m) is 0 where all has been masked so far.
template <int THREADS, class TILE, class F> MO_FN void running_tile(TILE m, TILE factor, bool first, int batches, int rows, int cols, F f) {
  constexpr int kTotal = TILE::kB * TILE::kR * TILE::kC;
  for (int i = member<THREADS>(); i < kTotal; i += THREADS) {
    const int c = i % TILE::kC, r = i / TILE::kC % TILE::kR, b = i / TILE::kC / TILE::kR;
    const float old = first ? -3.4028234663852886e38f : m(b, r, c);
    const float now = b < batches && r < rows && c < cols ? Max::combine(old, f(Width<1>(), b, r, c)) : old;
    m.put(b, r, c, now);
    factor.put(b, r, c, exp(old - now));
  }
}
template <int N> MO_FN float power(float x) {
  float r = x;
#pragma unroll
  for (int i = 1; i < N; i++) r *= x;
  return r;
}

/// Writes f(b,r,c) for every existing element of a tile of B x R x C. V elements at a time along c, whose stride is 1; the address of every unit is a multiple of its size.
/// share of shares: the blocks of a cluster divide the units.
template <int THREADS, int V, int B, int R, int C, class T, class F>
MO_FN void store_tile(T* dst, int64_t batch_stride, int64_t line_stride, int batches, int rows, int cols, int share, int shares, F f) {
  constexpr int kUnits = (C + V - 1) / V, kTotal = B * R * kUnits;
  for (int i = member<THREADS>() + share * THREADS; i < kTotal; i += THREADS * shares) {
    const int at = i % kUnits * V, line = i / kUnits % R, b = i / kUnits / R;
    if (b >= batches || line >= rows || at >= cols) continue;
    T* to = dst + b * batch_stride + line * line_stride + at;
    if (V > 1 && at + V <= cols) store_pack<V>(to, f(Width<V>(), b, line, at));
    else for (int k = 0; k < V && at + k < cols; k++) to[k] = store<T>(element(f(Width<1>(), b, line, at + k), 0));
  }
}
/// The same for results without a contiguous direction.
template <int THREADS, int B, int R, int C, class T, class F>
MO_FN void store_tile_strided(T* dst, int64_t sb, int64_t sr, int64_t sc, int batches, int rows, int cols, int share, int shares, F f) {
  for (int i = member<THREADS>() + share * THREADS; i < B * R * C; i += THREADS * shares) {
    const int c = i % C, r = i / C % R, b = i / C / R;
    if (b < batches && r < rows && c < cols) dst[b * sb + r * sr + c * sc] = store<T>(element(f(Width<1>(), b, r, c), 0));
  }
}

/// A reduction to OUTS results by groups of GROUP threads (a power of two that divides THREADS). Partial results stay in registers between calls of add, which is how a loop accumulates.
template <class RED, int THREADS, int OUTS, int GROUP> struct Reducer {
  static constexpr int kGroups = THREADS / GROUP, kEach = (OUTS + kGroups - 1) / kGroups, kParts = GROUP > 32 ? GROUP / 32 : 1;
  float partial[kEach];
  MO_FN void clear() {
#pragma unroll
    for (int u = 0; u < kEach; u++) partial[u] = RED::identity();
  }
  /// Combines f(out, k) for k < extent into out's partial result, W neighbours of k at a time; outs: how many results exist.
  template <int W, class F> MO_FN void add(int outs, int extent, F f) {
#pragma unroll
    for (int u = 0; u < kEach; u++) {
      const int out = member<THREADS>() / GROUP + u * kGroups;
      if (out < outs) {
        float v = partial[u];
#pragma unroll 4
        for (int k = member<THREADS>() % GROUP * W; k < extent; k += GROUP * W) {
          if (W == 1 || extent % W == 0 || k + W <= extent) v = RED::combine(v, reduce_pack<RED>(f(Width<W>(), out, k)));
          else for (int e = k; e < extent; e++) v = RED::combine(v, f(Width<1>(), out, e));
        }
        partial[u] = v;
      }
    }
  }
  /// The same for a thread's u-th result, of which x is all that the thread has.
  template <int W> MO_FN void take(int u, Pack<W> x) {
    if (u < kEach) partial[u] = RED::combine(partial[u], reduce_pack<RED>(x));
  }
  /// Multiplies every partial result by factor(out).
  template <class F> MO_FN void rescale(F factor) {
#pragma unroll
    for (int u = 0; u < kEach; u++) {
      const int out = member<THREADS>() / GROUP + u * kGroups;
      if (out < OUTS) partial[u] *= factor(out);
    }
  }
  /// Hands every result's kParts parts to put(part, out, value).
  template <class F> MO_FN void finish(F put) {
#pragma unroll
    for (int u = 0; u < kEach; u++) {
      const int out = member<THREADS>() / GROUP + u * kGroups;
      const float v = lanes_reduce<RED, (GROUP > 32 ? 32 : GROUP)>(partial[u]);
      if (out < OUTS && member<THREADS>() % (GROUP > 32 ? 32 : GROUP) == 0) put(member<THREADS>() % GROUP / 32, out, v);
    }
  }
};

/// A reduction of the lines of a matrix to one of COLS elements: a thread has W neighbours of every line that fill_lines gives it. Partial results stay in registers as those of Reducer do.
template <class RED, int THREADS, int COLS, int W> struct LineReducer {
  static constexpr int kInner = COLS / W, kLines = THREADS / kInner;
  static_assert(COLS % W == 0 && THREADS % kInner == 0 && (32 % kInner == 0 || kInner % 32 == 0), "threads divide lines");
  float partial[W];
  MO_FN void clear() {
#pragma unroll
    for (int e = 0; e < W; e++) partial[e] = RED::identity();
  }
  MO_FN int column() const { return member<THREADS>() % kInner * W; }
  MO_FN void take(int, Pack<W> x) {
#pragma unroll
    for (int e = 0; e < W; e++) partial[e] = RED::combine(partial[e], x.v[e]);
  }
  /// Combines f(column, line) for lines below `extent`.
  template <class F> MO_FN void add(int extent, F f) {
#pragma unroll 4
    for (int k = member<THREADS>() / kInner; k < extent; k += kLines) take(0, f(Width<W>(), column(), k));
  }
  /// Multiplies every partial result by factor(column).
  template <class F> MO_FN void rescale(F factor) {
#pragma unroll
    for (int e = 0; e < W; e++) partial[e] *= factor(column() + e);
  }
  /// Hands the parts of every result to put(part, column, value): one from each warp, or from each line of threads that is longer.
  template <class F> MO_FN void finish(F put) {
#pragma unroll
    for (int lanes = kInner; lanes < 32; lanes *= 2) {
#pragma unroll
      for (int e = 0; e < W; e++) partial[e] = RED::combine(partial[e], shuffle_xor(partial[e], lanes));
    }
    if (kInner < 32 && lane_id() >= kInner) return;
#pragma unroll
    for (int e = 0; e < W; e++) put(member<THREADS>() / (kInner < 32 ? 32 : kInner), column() + e, partial[e]);
  }
};

}  // namespace mo
