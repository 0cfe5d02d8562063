// Device library, part 3: contractions of tiles in shared memory into float32 accumulators in registers, on tensor cores (mma.sync) or on the float32 units.
#pragma once
#include "10_tile.cuh"

namespace mo {

// ---- PTX: ldmatrix, mma.m16n8k16 and mma.m16n8k8 (PTX ISA, warp-level matrix instructions)
MO_FN void load_matrix_x4(uint32_t (&r)[4], const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)) : "memory");
}
MO_FN void load_matrix_x4_transposed(uint32_t (&r)[4], const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)) : "memory");
}
MO_FN void load_matrix_x2(uint32_t (&r)[2], const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(shared_address(p)) : "memory");
}
MO_FN void load_matrix_x2_transposed(uint32_t (&r)[2], const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(shared_address(p)) : "memory");
}
MO_FN void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, f16) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
MO_FN void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bf16) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// One k8 step in TF32: a = rows g and g + 8 at slot q, then at slot q + 4; b = slots q and q + 4 of column g (g: lane / 4, q: lane % 4).
MO_FN void mma_16x8x8(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ---- operands of TF32: what is stored in 16 bits is exact, float32 is rounded
template <class T> struct Is16 { static constexpr bool value = false; };
template <> struct Is16<f16> { static constexpr bool value = true; };
template <> struct Is16<bf16> { static constexpr bool value = true; };
template <class T, class U> struct Same { static constexpr bool value = false; };
template <class T> struct Same<T, T> { static constexpr bool value = true; };
MO_FN uint32_t tf32_bits(float x) { return round_tf32(x); }
MO_FN uint32_t tf32_bits(tf32 x) { return x.bits; }
/// The low and the high of two neighbours in one register.
MO_FN uint32_t tf32_low(uint32_t pair, f16) { return __float_as_uint(__half2float(__ushort_as_half((unsigned short)pair))); }
MO_FN uint32_t tf32_high(uint32_t pair, f16) { return __float_as_uint(__half2float(__ushort_as_half((unsigned short)(pair >> 16)))); }
MO_FN uint32_t tf32_low(uint32_t pair, bf16) { return pair << 16; }   // host twin
MO_FN uint32_t tf32_high(uint32_t pair, bf16) { return pair & 0xffff0000u; }   // host twin
/// Elements (line, at) and (line, at + 1); ALONG: lines lie along the pair, else across it ((at, line) and (at + 1, line) then). at is even.
template <bool ALONG, class TILE> MO_FN void read_pair(uint32_t& low, uint32_t& high, TILE t, int b, int line, int at) {
  if constexpr (ALONG) {
    const auto u = *reinterpret_cast<const Vector<typename TILE::Element, 2>*>(t.at(b, line, at));
    low = tf32_bits(u.v[0]);
    high = tf32_bits(u.v[1]);
  } else {
    low = tf32_bits(*t.at(b, at, line));
    high = tf32_bits(*t.at(b, at + 1, line));
  }
}

/// D (B x I x J) += X (B x I x K) Y (B x K x J) on tensor cores: in X's type if both are of one 16-bit type, else in TF32. I is a multiple of 16 * WI, J of 8 * WJ, K of 16. WI x WJ x WK warps share the work; the WK parts along K stay apart until
/// finish. With EACH_WARP every warp contracts tiles of its own (WI = WJ = WK = 1). X and Y: Tiles of either direction (ldmatrix transposes), of B batches or 1.
template <class X, class Y, int WI, int WJ, int WK, bool EACH_WARP = false> struct TensorContract {
  static constexpr int kB = X::kB > Y::kB ? X::kB : Y::kB, kI = X::kR / 16 / WI, kJ = Y::kC / 8 / WJ, kK = X::kC / 16;
  static_assert(kI * 16 * WI == X::kR && kJ * 8 * WJ == Y::kC && kK * 16 == X::kC && X::kC == Y::kR, "extents divide over the warps");
  using XE = typename X::Element;
  using YE = typename Y::Element;
  static constexpr bool kTf32 = !Is16<XE>::value || !Same<XE, YE>::value;
  float d[kB][kI][kJ][4];
  MO_FN void clear() {
#pragma unroll
    for (int b = 0; b < kB; b++)
#pragma unroll
      for (int i = 0; i < kI; i++)
#pragma unroll
        for (int j = 0; j < kJ; j++)
#pragma unroll
          for (int e = 0; e < 4; e++) d[b][i][j][e] = 0.0f;
  }
  static MO_FN void load_x(uint32_t (&a)[4], X x, int b, int i, int k) {
    const int l = lane_id();
    if constexpr (X::kCol) load_matrix_x4_transposed(a, x.at(b, k + l / 16 * 8 + l % 8, i + l / 8 % 2 * 8));
    else load_matrix_x4(a, x.at(b, i + l % 16, k + l / 16 * 8));
  }
  static MO_FN void load_y_pair(uint32_t (&r)[4], Y y, int b, int k, int j) {   // columns j..j+15: (k low, k high) of the first 8, then of the second
    const int l = lane_id();
    if constexpr (Y::kCol) load_matrix_x4(r, y.at(b, j + l / 16 * 8 + l % 8, k + l / 8 % 2 * 8));
    else load_matrix_x4_transposed(r, y.at(b, k + l / 8 % 2 * 8 + l % 8, j + l / 16 * 8));
  }
  static MO_FN void load_y(uint32_t (&r)[2], Y y, int b, int k, int j) {
    const int l = lane_id() % 16;
    if constexpr (Y::kCol) load_matrix_x2(r, y.at(b, j + l % 8, k + l / 8 * 8));
    else load_matrix_x2_transposed(r, y.at(b, k + l, j));
  }
  // A k16 step in TF32 is two k8 steps: slot s of step h is k = 8 h + 2 (s % 4) + s / 4 in both operands, so that a thread's two slots are neighbours, as ldmatrix gives them for 16-bit elements.
  static MO_FN void load_x_tf32(uint32_t (&a)[2][4], X x, int b, int i, int k) {
    if constexpr (Is16<XE>::value) {
      uint32_t r[4];
      load_x(r, x, b, i, k);
#pragma unroll
      for (int h = 0; h < 2; h++)
#pragma unroll
        for (int u = 0; u < 2; u++) {
          a[h][u] = tf32_low(r[2 * h + u], XE());
          a[h][u + 2] = tf32_high(r[2 * h + u], XE());
        }
    } else {
      const int g = lane_id() / 4, q = lane_id() % 4;
#pragma unroll
      for (int h = 0; h < 2; h++)
#pragma unroll
        for (int u = 0; u < 2; u++) read_pair<!X::kCol>(a[h][u], a[h][u + 2], x, b, i + g + 8 * u, k + 8 * h + 2 * q);
    }
  }
  static MO_FN void load_y_tf32(uint32_t (&r)[2][2], Y y, int b, int k, int j) {
    if constexpr (Is16<YE>::value) {
      uint32_t u[2];
      load_y(u, y, b, k, j);
#pragma unroll
      for (int h = 0; h < 2; h++) {
        r[h][0] = tf32_low(u[h], YE());
        r[h][1] = tf32_high(u[h], YE());
      }
    } else {
      const int g = lane_id() / 4, q = lane_id() % 4;
#pragma unroll
      for (int h = 0; h < 2; h++) read_pair<Y::kCol>(r[h][0], r[h][1], y, b, j + g, k + 8 * h + 2 * q);
    }
  }
  /// One k16 step of all of the warp's results.
  MO_FN void step(X x, Y y, int xb, int yb, int b, int row, int col, int k) {
    if constexpr (kTf32) {
      uint32_t a[kI][2][4];
#pragma unroll
      for (int i = 0; i < kI; i++) load_x_tf32(a[i], x, xb, row + i * 16, k);
#pragma unroll
      for (int j = 0; j < kJ; j++) {
        uint32_t r[2][2];
        load_y_tf32(r, y, yb, k, col + j * 8);
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
          for (int i = 0; i < kI; i++) mma_16x8x8(d[b][i][j], a[i][h], r[h][0], r[h][1]);
      }
    } else {
      uint32_t a[kI][4];
#pragma unroll
      for (int i = 0; i < kI; i++) load_x(a[i], x, xb, row + i * 16, k);
#pragma unroll
      for (int j = 0; j < kJ; j += 2) {
        uint32_t r[4];
        if (j + 1 < kJ) {
          load_y_pair(r, y, yb, k, col + j * 8);
        } else {
          uint32_t h[2];
          load_y(h, y, yb, k, col + j * 8);
          r[0] = h[0];
          r[1] = h[1];
        }
#pragma unroll
        for (int i = 0; i < kI; i++) {
          mma_16x8x16(d[b][i][j], a[i], r[0], r[1], XE());
          if (j + 1 < kJ) mma_16x8x16(d[b][i][j + 1], a[i], r[2], r[3], XE());
        }
      }
    }
  }
  MO_FN void add(X x, Y y) {
    const int w = EACH_WARP ? 0 : warp_id(), wi = w % WI, wj = w / WI % WJ, wk = w / WI / WJ;
    if (wk >= WK) return;   // spare warps
#pragma unroll
    for (int b = 0; b < kB; b++)
#pragma unroll
      for (int s = 0; s < (kK + WK - 1) / WK; s++) {
        const int k = (s * WK + wk) * 16;
        if (kK % WK != 0 && k >= kK * 16) break;
        step(x, y, X::kB > 1 ? b : 0, Y::kB > 1 ? b : 0, b, wi * kI * 16, wj * kJ * 8, k);
      }
  }
  /// Multiplies every result by factor(b, i, j).
  template <class F> MO_FN void rescale(F factor) {
    const int w = EACH_WARP ? 0 : warp_id(), wi = w % WI, wj = w / WI % WJ, g = lane_id() / 4, q = lane_id() % 4;
#pragma unroll
    for (int b = 0; b < kB; b++)
#pragma unroll
      for (int i = 0; i < kI; i++)
#pragma unroll
        for (int j = 0; j < kJ; j++)
#pragma unroll
          for (int e = 0; e < 4; e++) d[b][i][j][e] *= factor(b, (wi * kI + i) * 16 + g + e / 2 * 8, (wj * kJ + j) * 8 + 2 * q + e % 2);
  }
  /// put(part, b, i, j, value) for every element that this thread holds.
  template <class F> MO_FN void finish(F put) {
    const int w = EACH_WARP ? 0 : warp_id(), wi = w % WI, wj = w / WI % WJ, wk = w / WI / WJ, g = lane_id() / 4, q = lane_id() % 4;
    if (wk >= WK) return;
#pragma unroll
    for (int b = 0; b < kB; b++)
#pragma unroll
      for (int i = 0; i < kI; i++)
#pragma unroll
        for (int j = 0; j < kJ; j++)
#pragma unroll
          for (int e = 0; e < 4; e++) put(wk, b, (wi * kI + i) * 16 + g + e / 2 * 8, (wj * kJ + j) * 8 + 2 * q + e % 2, d[b][i][j][e]);
  }
};

/// The same on the float32 units, for any element types and any extents. K is divided over KW teams; of a team's threads TJ (a power of two) lie
/// along J, the others along I; a warp's 32 lie as 4 x 8 where there are as many, so that what they read of X and of Y are few different words.
template <class X, class Y, int THREADS, int TJ, int KW = 1> struct FloatContract {
  static constexpr int group(int extent, int each) { return extent % 4 == 0 && each >= 4 ? 4 : extent % 2 == 0 && each >= 2 ? 2 : 1; }
  static constexpr int kB = X::kB > Y::kB ? X::kB : Y::kB, kTeam = THREADS / KW, TI = kTeam / TJ;
  static constexpr int LJ = TI >= 4 ? (TJ < 8 ? TJ : 8) : 32 / TI, LI = 32 / LJ;   // a warp's lanes
  // Rows and columns of a thread that lie beside each other in lines across the contraction: read together.
  static constexpr int VI = X::kCol ? group(X::kR, (X::kR + TI - 1) / TI) : 1, VJ = Y::kCol ? 1 : group(Y::kC, (Y::kC + TJ - 1) / TJ);
  static constexpr int kI = (X::kR + TI * VI - 1) / (TI * VI) * VI, kJ = (Y::kC + TJ * VJ - 1) / (TJ * VJ) * VJ;
  static_assert(X::kC == Y::kR, "inner extents are equal");
  static_assert(kTeam % 32 == 0 && THREADS % KW == 0 && (TI & (TI - 1)) == 0 && (TJ & (TJ - 1)) == 0 && LJ <= TJ, "warps are rectangles");
  float d[kB][kI][kJ];
  MO_FN void clear() {
#pragma unroll
    for (int b = 0; b < kB; b++)
#pragma unroll
      for (int i = 0; i < kI; i++)
#pragma unroll
        for (int j = 0; j < kJ; j++) d[b][i][j] = 0.0f;
  }
  static MO_FN int team() { return KW > 1 ? member<THREADS>() / kTeam : 0; }
  static MO_FN int row(int i) {
    const int t = KW > 1 ? member<THREADS>() % kTeam : member<THREADS>(), first = t / 32 / (TJ / LJ) * LI + t % 32 / LJ;
    return (first + i / VI * TI) * VI + i % VI;
  }
  static MO_FN int col(int j) {
    const int t = KW > 1 ? member<THREADS>() % kTeam : member<THREADS>(), first = t / 32 % (TJ / LJ) * LJ + t % LJ;
    return (first + j / VJ * TJ) * VJ + j % VJ;
  }
  /// W neighbours along k of this thread's rows, or of its columns, from lines along k.
  template <bool ROWS, int W, int N, class T> static MO_FN void along(float (&to)[N][W], T x, int b, int k) {
#pragma unroll
    for (int i = 0; i < N; i++) {
      const int line = ROWS ? row(i) : col(i);
      const auto p = line < T::kR ? x.read(Width<W>(), b, line, k) : decltype(x.read(Width<W>(), b, 0, 0)){};
#pragma unroll
      for (int w = 0; w < W; w++) to[i][w] = element(p, w);
    }
  }
  /// This thread's rows, or its columns, at one k, from lines across it.
  template <bool ROWS, int V, int N, class T> static MO_FN void across(float (&to)[N], T x, int b, int k) {
#pragma unroll
    for (int i = 0; i < N; i += V) {
      const int line = ROWS ? row(i) : col(i);
      const auto p = line < T::kC ? x.read(Width<V>(), b, k, line) : decltype(x.read(Width<V>(), b, 0, 0)){};
#pragma unroll
      for (int e = 0; e < V; e++) to[i + e] = element(p, e);
    }
  }
  template <int W> MO_FN void step(X x, Y y, int b, int k) {
    float u[kI][W], v[kJ][W];   // of lines along k: all W at once
    const int bx = X::kB > 1 ? b : 0, by = Y::kB > 1 ? b : 0;
    if constexpr (!X::kCol) along<true>(u, x, bx, k);
    if constexpr (Y::kCol) along<false>(v, y.transposed(), by, k);
#pragma unroll
    for (int w = 0; w < W; w++) {
      float s[kI], t[kJ];
      if constexpr (X::kCol) across<true, VI>(s, x.transposed(), bx, k + w);
      if constexpr (!Y::kCol) across<false, VJ>(t, y, by, k + w);
#pragma unroll
      for (int i = 0; i < kI; i++)
#pragma unroll
        for (int j = 0; j < kJ; j++) d[b][i][j] = fma(X::kCol ? s[i] : u[i][w], Y::kCol ? v[j][w] : t[j], d[b][i][j]);
    }
  }
  MO_FN void add(X x, Y y) {
    static_assert(KW == 1, "teams divide terms: each_term");
    constexpr int W = !X::kCol && Y::kCol ? 2 : 4, kWhole = X::kC / W * W;   // of both operands four neighbours at a time would take too many registers
#pragma unroll
    for (int b = 0; b < kB; b++) {
#pragma unroll 2
      for (int k = 0; k < kWhole; k += W) step<W>(x, y, b, k);
#pragma unroll
      for (int k = kWhole; k < X::kC; k++) step<1>(x, y, b, k);
    }
  }
  /// The terms k to k + W of every batch: what each_term calls.
  template <int W> MO_FN void term(Width<W>, X x, Y y, int k) {
#pragma unroll
    for (int b = 0; b < kB; b++) step<W>(x, y, b, k);
  }
  template <class F> MO_FN void rescale(F factor) {
#pragma unroll
    for (int b = 0; b < kB; b++)
#pragma unroll
      for (int i = 0; i < kI; i++)
#pragma unroll
        for (int j = 0; j < kJ; j++)
          if (row(i) < X::kR && col(j) < Y::kC) d[b][i][j] *= factor(b, row(i), col(j));
  }
  template <class F> MO_FN void finish(F put) {
#pragma unroll
    for (int b = 0; b < kB; b++)
#pragma unroll
      for (int i = 0; i < kI; i++)
#pragma unroll
        for (int j = 0; j < kJ; j++)
          if (row(i) < X::kR && col(j) < Y::kC) put(team(), b, row(i), col(j), d[b][i][j]);
  }
};

/// The K terms of a product, or of several that read one X, which then is read once and whose chains of additions hide each other's latency: f(width, k) for W at a time,
/// dealt to KW teams; the last team has what is left over.
template <int K, int W, int KW, class F> MO_FN void each_term(int team, F f) {
  constexpr int kRuns = K / W;
  const int first = KW > 1 ? kRuns * team / KW : 0, last = KW > 1 ? kRuns * (team + 1) / KW : kRuns;
#pragma unroll 2
  for (int run = first; run < last; run++) f(Width<W>(), run * W);
  if (K % W != 0 && team == KW - 1)
#pragma unroll
    for (int k = kRuns * W; k < K; k++) f(Width<1>(), k);
}

}  // namespace mo
