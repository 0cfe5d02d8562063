// Device library, part 2: what emitted region kernels (elementwise regions, row and column reductions, data movement) call. A kernel is right for the number of threads it was planned for;
// orders of combination are fixed, so results repeat bit for bit.

namespace mo {

using real = float;   // what values are computed in
using index32 = uint32_t;
using index64 = uint64_t;

template <class I> MO_FN real from_index(I i) { return static_cast<real>(i); }

// ---- vectors of consecutive elements, aligned to their size (at most 16 bytes at a time)
template <int BYTES> struct VectorWord;
template <> struct VectorWord<1> { using type = uint8_t; };
template <> struct VectorWord<2> { using type = uint16_t; };
template <> struct VectorWord<4> { using type = uint32_t; };
template <> struct VectorWord<8> { using type = uint2; };
template <> struct VectorWord<16> { using type = uint4; };

template <int N, class S> struct ElementVector {
  static constexpr int kWordBytes = N * sizeof(S) > 16 ? 16 : N * sizeof(S);
  static constexpr int kWords = N * sizeof(S) / kWordBytes;
  using Bits = typename VectorWord<kWordBytes>::type;
  union { Bits words[kWords]; S elements[N]; };
  MO_FN ElementVector() {}
};

template <int N, class S> MO_FN void load_vector(real (&to)[N], const S* from) {
  ElementVector<N, S> pack;
#pragma unroll
  for (int w = 0; w < ElementVector<N, S>::kWords; w++) pack.words[w] = reinterpret_cast<const typename ElementVector<N, S>::Bits*>(from)[w];
#pragma unroll
  for (int i = 0; i < N; i++) to[i] = load(pack.elements[i]);
}
template <int N, class S> MO_FN void store_vector(S* to, const real (&from)[N]) {
  ElementVector<N, S> pack;
#pragma unroll
  for (int i = 0; i < N; i++) pack.elements[i] = store<S>(from[i]);
#pragma unroll
  for (int w = 0; w < ElementVector<N, S>::kWords; w++) reinterpret_cast<typename ElementVector<N, S>::Bits*>(to)[w] = pack.words[w];
}
/// Lane `lane` of N vectors, as N neighbours, PIECE at once.
template <int PIECE, int N, int WIDTH, class S> MO_FN void store_along(S* to, const real (&from)[N][WIDTH], int lane) {
#pragma unroll
  for (int first = 0; first < N; first += PIECE) {
    real x[PIECE];
#pragma unroll
    for (int i = 0; i < PIECE; i++) x[i] = from[first + i][lane];
    store_vector(to + first, x);
  }
}
/// The first `valid` of N elements; the rest of `to` is 0.
template <int N, class S> MO_FN void load_vector(real (&to)[N], const S* from, int valid) {
  if (valid >= N) return load_vector(to, from);
#pragma unroll
  for (int i = 0; i < N; i++) to[i] = i < valid ? load(from[i]) : constant(0.0f);
}
/// N elements of a tensor of `size`, as far as there are so many; the rest of `to` is 0. offset: a multiple of N, over `size` before the tensor.
template <int N, class S, class I> MO_FN void load_within(real (&to)[N], const S* from, I offset, I size) {
  if (offset < size) return load_vector(to, from + offset, size - offset < static_cast<I>(N) ? static_cast<int>(size - offset) : N);
#pragma unroll
  for (int i = 0; i < N; i++) to[i] = constant(0.0f);
}
/// The same where the tensor ends with a whole vector, which stands for those beyond the tensor: nobody asks what is in these.
template <int N, class S, class I> MO_FN void load_near(real (&to)[N], const S* from, I offset, I size) {
  load_vector(to, from + (offset < size ? offset : size - static_cast<I>(N)));
}
template <int N, class S> MO_FN void store_vector(S* to, const real (&from)[N], int valid) {
  if (valid >= N) return store_vector(to, from);
#pragma unroll
  for (int i = 0; i < N; i++)
    if (i < valid) to[i] = store<S>(from[i]);
}

// ---- vectors that a thread asks for long before it uses them: they stay as stored, half the registers of what they become
template <int N, class S> MO_FN void hold(ElementVector<N, S>& to, const S* from) {
  using Bits = typename ElementVector<N, S>::Bits;
#pragma unroll
  for (int w = 0; w < ElementVector<N, S>::kWords; w++) {
    if constexpr (sizeof(Bits) == 16) to.words[w] = read_now(reinterpret_cast<const uint4*>(from) + w);
    else to.words[w] = reinterpret_cast<const Bits*>(from)[w];
  }
}
/// The same for what this thread alone reads.
template <int N, class S> MO_FN void hold_once(ElementVector<N, S>& to, const S* from) {
  using Bits = typename ElementVector<N, S>::Bits;
#pragma unroll
  for (int w = 0; w < ElementVector<N, S>::kWords; w++) {
    if constexpr (sizeof(Bits) == 16) to.words[w] = read_once_now(reinterpret_cast<const uint4*>(from) + w);
    else to.words[w] = reinterpret_cast<const Bits*>(from)[w];
  }
}
/// The first `valid` of N elements; the rest is 0.
template <int N, class S> MO_FN void hold(ElementVector<N, S>& to, const S* from, int valid) {
  if (valid >= N) return hold(to, from);
#pragma unroll
  for (int i = 0; i < N; i++) to.elements[i] = i < valid ? from[i] : store<S>(constant(0.0f));
}
template <int N, class S> MO_FN void unpack(real (&to)[N], const ElementVector<N, S>& from) {
#pragma unroll
  for (int i = 0; i < N; i++) to[i] = load(from.elements[i]);
}

template <class R, int N> MO_FN void clear(real (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) x[i] = R::identity();
}
/// Combines the N lanes of one thread.
template <class R, int N> MO_FN real fold(const real (&x)[N]) {
  real y[N];
#pragma unroll
  for (int i = 0; i < N; i++) y[i] = x[i];
#pragma unroll
  for (int half = N / 2; half > 0; half /= 2)
#pragma unroll
    for (int i = 0; i < half; i++) y[i] = R::combine(y[i], y[i + half]);
  return y[0];
}
/// One more element of a reduction (largest so far: `best`), and of another one beside it, x: of what stands where the largest is, else `otherwise`.
template <class R> MO_FN void follow(real& x, real best, real next, real value, real otherwise) {
  const real now = R::combine(best, next);
  x = R::combine(select(equal(best, now), x, otherwise), select(equal(next, now), value, otherwise));
}
template <int N> MO_FN void copy_lanes(real (&to)[N], const real (&from)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) to[i] = from[i];
}
/// What a thread's part of the second says once the largest of all parts is known.
template <int N> MO_FN void keep_where(real (&x)[N], const real (&own)[N], real best, real otherwise) {
#pragma unroll
  for (int i = 0; i < N; i++) x[i] = select(equal(own[i], best), x[i], otherwise);
}
template <int N> MO_FN void keep_where(real (&x)[N], const real (&own)[N], const real (&best)[N], real otherwise) {
#pragma unroll
  for (int i = 0; i < N; i++) x[i] = select(equal(own[i], best[i]), x[i], otherwise);
}

/// TEAM consecutive threads (a power of two; over 32: the whole block) work on one row.
template <int TEAM> struct RowTeam {
  static MO_FN int lane() { return thread_id() % TEAM; }
  template <class I> static MO_FN I first(I block) { return block * (blockDim.x / TEAM) + thread_id() / TEAM; }   // block: among those of its region
  template <class I> static MO_FN I first() { return first(static_cast<I>(blockIdx.x)); }
  template <class I> static MO_FN I stride() { return static_cast<I>(gridDim.x) * (blockDim.x / TEAM); }
  /// Every thread of the team has the result. All threads of the team must call it. SLOT: 0 and 1 in turn, so that a fast thread does not write where a slow one still reads.
  template <class R, int SLOT> static MO_FN real reduce(real x) {
    if constexpr (TEAM <= 32) {
      const unsigned members = TEAM == 32 ? 0xffffffffu : ((1u << (TEAM & 31)) - 1u) << (lane_id() & ~(TEAM - 1));   // teams of a warp may have different numbers of rows
#pragma unroll
      for (int mask = TEAM / 2; mask > 0; mask /= 2) x = R::combine(x, __shfl_xor_sync(members, x, mask));
      return x;
    } else {
      constexpr int kWarps = TEAM / 32;
      __shared__ __align__(16) real scratch[kWarps];
      x = lanes_reduce<R, 32>(x);
      if (lane_id() == 0) scratch[warp_id()] = x;
      barrier();
      if constexpr (kWarps > 16) return lanes_reduce<R, kWarps>(scratch[lane_id() % kWarps]);   // the same order in every warp
      constexpr int kWord = kWarps < 4 ? kWarps : 4;
      x = reduce_pack<R>(load_pack(scratch, Width<kWord>()));
#pragma unroll
      for (int w = kWord; w < kWarps; w += kWord) x = R::combine(x, reduce_pack<R>(load_pack(scratch + w, Width<kWord>())));
      return x;
    }
  }
};

/// A block as COLUMNS x (THREADS / COLUMNS), COLUMNS at most 32 and THREADS a multiple of 32: neighbours hold neighbouring columns, the second axis shares the rows of a column.
template <int COLUMNS, int THREADS> struct ColumnTeam {
  static constexpr int kDepth = THREADS / COLUMNS;
  static MO_FN int column() { return thread_id() % COLUMNS; }
  static MO_FN int depth() { return thread_id() / COLUMNS; }
  /// Combines over the threads of a column, for each of N lanes; every thread has the result. All threads of the block must call it.
  template <class R, int N> static MO_FN void reduce(real (&x)[N]) {
    if constexpr (kDepth > 1) {
      constexpr int kWarps = THREADS / 32;
#pragma unroll
      for (int mask = COLUMNS; mask < 32; mask *= 2)
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = R::combine(x[i], shuffle_xor(x[i], mask));
      if constexpr (kWarps > 1) {
        __shared__ __align__(16) real scratch[kWarps * COLUMNS * N];
        barrier();
        if (lane_id() < COLUMNS)
#pragma unroll
          for (int i = 0; i < N; i++) scratch[(warp_id() * COLUMNS + lane_id()) * N + i] = x[i];
        barrier();
        if constexpr (kWarps > 2) {   // each sum by one thread: all of them by all threads would be kWarps x THREADS x N reads
          for (int o = thread_id(); o < COLUMNS * N; o += THREADS) {
            real y = scratch[o];
#pragma unroll
            for (int w = 1; w < kWarps; w++) y = R::combine(y, scratch[w * COLUMNS * N + o]);
            scratch[o] = y;
          }
          barrier();
        }
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = scratch[column() * N + i];
        if constexpr (kWarps == 2)
#pragma unroll
          for (int i = 0; i < N; i++) x[i] = R::combine(x[i], scratch[(COLUMNS + column()) * N + i]);
      }
    }
  }
};

}  // namespace mo
