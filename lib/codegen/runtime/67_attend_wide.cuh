// Device library, part 6g: attention for up to 16 queries per key set and up to some hundred features and columns (latent attention: one stored row is key and value).
//   prologue   boxes of 64 columns of this block's keys, each issued by a warp of its own together with the same columns of q
//   chunk      S: warps split keys x features (mma, partial sums in shared memory); softmax: 16 lanes per row; O: every warp has its own columns, so nothing is merged inside the block
//   end        columns are dealt to the blocks of the cluster (st.async), each adds up its own; clusters with the same queries meet in device memory: each of them owns a part and gets the others' of it
// P is the struct of 61_attend.cuh with kBoxes, kValueBoxes (0: the values are columns of the keys' boxes, from kValueBox on), kMeets (clusters with the same queries).
#pragma once
#include "61_attend.cuh"
#include "64_attend_warps.cuh"
#include "65_attend_end.cuh"

namespace mo {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Places in shared memory.
template <class P> struct WideMemory {
  static constexpr int kAll = P::kBoxes + P::kValueBoxes, kBox = P::kChunk * 128, kScoreLine = P::kChunk + 8, kWeightLine = P::kChunk * 2 + 16, kSlice = P::kColumns / P::kCluster, kPart = P::kNarrowParts ? 2 : 4;
  unsigned char* smem;
  uint32_t base;
  MO_FN WideMemory(unsigned char* s) : smem(s), base(shared_address(s)) {}
  MO_FN uint32_t bar(int s, int box) const { return base + P::kBarsAt + 8 * (s * kAll + box); }
  MO_FN uint32_t received() const { return base + P::kBarsAt + 8 * P::kStages * kAll; }
  MO_FN int box(int s, int b) const { return P::kRingAt + (s * kAll + b) * kBox; }
  MO_FN int value_box(int s, int b) const { return box(s, P::kValueBoxes > 0 ? P::kBoxes + b : P::kValueBox + b); }
  MO_FN uint32_t value_bar(int s, int b) const { return bar(s, P::kValueBoxes > 0 ? P::kBoxes + b : P::kValueBox + b); }
  MO_FN float* scores(int part, int row) const { return reinterpret_cast<float*>(smem + P::kScoresAt) + (part * 16 + row) * kScoreLine; }
  MO_FN unsigned char* weights(int row) const { return smem + P::kWeightsAt + row * kWeightLine; }
  MO_FN float* statistics() const { return reinterpret_cast<float*>(smem + P::kStatisticsAt); }   // 16 maxima, sums, factors of this chunk
  MO_FN AttendRow<typename P::T, P::kFeatures, 8> q_row(int row, int part) const { return {smem + row * 128, 2048, row, part}; }
};

/// A warp's boxes of one chunk; with_q: the same columns of q come along.
template <class P> MO_FN void wide_copy(const typename P::Args& a, const AttendPlace& at, const WideMemory<P>& mem, int warp, int c, bool with_q) {
  const int s = c % P::kStages, key = attend_key<P>(at.first + c);
#pragma unroll 1
  for (int b = warp; b < mem.kAll; b += 8) {
    mbarrier_expect(mem.bar(s, b), mem.kBox + (with_q && b < P::kBoxes ? 2048 : 0));
    if (b < P::kBoxes) P::copy_k(a, at, mem.base + mem.box(s, b), b, key, mem.bar(s, b));
    else P::copy_v(a, at, mem.base + mem.box(s, b), b - P::kBoxes, key, mem.bar(s, b));
    if (with_q && !P::kEarly && b < P::kBoxes) P::copy_q(a, at, mem.base + b * 2048, b, mem.bar(s, b));
  }
}
/// The boxes of q that wide_copy left to come from the kernel ahead.
template <class P> MO_FN void wide_copy_q(const typename P::Args& a, const AttendPlace& at, const WideMemory<P>& mem, int warp) {
#pragma unroll 1
  for (int b = warp; b < P::kBoxes; b += 8) P::copy_q(a, at, mem.base + b * 2048, b, mem.bar(0, b));
}

/// What a warp multiplies with the keys of every chunk: 16 columns of each box of q.
template <class P> struct WideQuery { uint32_t of[P::kBoxes][4]; };

/// Until boxes first to last - 1 are there: each lane waits for one of them.
template <class P> MO_FN void wide_wait(const WideMemory<P>& mem, int s, int parity, int first, int last) {
  static_assert(P::kBoxes <= 32, "a lane for each box");
  const int box = first + lane_id();
  if (box < last) mbarrier_wait(mem.bar(s, box), parity);
  warp_barrier();
}
/// A warp has half of the keys, and of each box of 64 features the 16 of its quarter, so that all places are known when a chunk begins. FIRST: boxes come one after the other, q with them; of later chunks the second half is waited for when
/// the first has been multiplied.
template <class P, bool FIRST> MO_FN void wide_scores(const WideMemory<P>& mem, WideQuery<P>& q, int warp, int s, int parity) {
  constexpr int kTiles = P::kChunk / 32, kTogether = FIRST ? 1 : (P::kBoxes + 1) / 2;
  const int lane = lane_id(), i8 = lane & 7, part = lane >> 3, half = warp & 1, quarter = warp >> 1;
  const unsigned char* const of_q = attend_line(mem.smem, (part & 1) * 8 + i8, 2 * quarter + (part >> 1), 2048);
  const unsigned char* const of_k = attend_line(mem.smem + mem.box(s, 0), half * (P::kChunk / 2) + (part >> 1) * 8 + i8, 2 * quarter + (part & 1), mem.kBox);
  float S[16 * kTiles / 2];
#pragma unroll
  for (int i = 0; i < 8 * kTiles; i++) S[i] = 0;
#pragma unroll
  for (int from = 0; from < P::kBoxes; from += kTogether) {
    if constexpr (FIRST) {
      mbarrier_wait(mem.bar(s, from), parity);
      load_matrix_x4(q.of[from], of_q + from * 2048);
    } else {
      wide_wait<P>(mem, s, parity, from, from + kTogether < P::kBoxes ? from + kTogether : P::kBoxes);
    }
#pragma unroll
    for (int b = from; b < from + kTogether; b++) {
      if (b >= P::kBoxes) break;
#pragma unroll
      for (int t = 0; t < kTiles; t++) {
        uint32_t x[4];
        load_matrix_x4(x, of_k + b * mem.kBox + t * 2048);
        attend_mma<typename P::T>(S + 8 * t, q.of[b], x[0], x[1]);
        attend_mma<typename P::T>(S + 8 * t + 4, q.of[b], x[2], x[3]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float* const to = mem.scores(quarter, (lane >> 2) + 8 * r) + half * (P::kChunk / 2) + 2 * (lane & 3);
#pragma unroll
    for (int n = 0; n < 2 * kTiles; n++) *reinterpret_cast<float2*>(to + 8 * n) = make_float2(S[4 * n + 2 * r], S[4 * n + 2 * r + 1]);
  }
}

/// 16 lanes per row. m runs over the chunks, sum is each lane's own until the last of them; statistics() gets both, and by what earlier results must be multiplied.
template <class P> MO_FN void wide_softmax(const typename P::Args& a, const AttendPlace& at, const WideMemory<P>& mem, const typename P::Row& of_row, float scale, int key0, bool last, float& m, float& sum) {
  constexpr int kPairs = P::kChunk / 32;
  const int row = thread_id() >> 4, lane = thread_id() & 15, query = at.tile * 16 + row;
  float x[2 * kPairs];
  float most = -infinity();
#pragma unroll
  for (int e = 0; e < kPairs; e++) {
    const int col = 2 * lane + 32 * e;
    float2 s = make_float2(0, 0);
#pragma unroll
    for (int part = 0; part < 4; part++) {
      const float2 t = *reinterpret_cast<const float2*>(mem.scores(part, row) + col);
      s.x += t.x;
      s.y += t.y;
    }
    x[2 * e] = s.x;
    x[2 * e + 1] = s.y;
#pragma unroll
    for (int c = 0; c < 2; c++) {
      float& y = x[2 * e + c];
      if constexpr (!P::kPlainLogit) y = P::logit(a, at, y, of_row, nullptr, typename P::Fetched(), 0, query, key0 + col + c);
      if (AttendKeys<P>::kTail && key0 + col + c >= AttendKeys<P>::end(key0)) y = -infinity();
      most = ::fmaxf(most, y);
    }
  }
#pragma unroll
  for (int mask = 8; mask > 0; mask /= 2) most = ::fmaxf(most, shuffle_xor(most, mask));
  const AttendShift shift = attend_shift<P::kHugeLogits>(m, most, scale);
  const float factor = exp2_fast(m - shift.m);
  float total = 0;
#pragma unroll
  for (int e = 0; e < kPairs; e++) {
    float w[2];
#pragma unroll
    for (int c = 0; c < 2; c++) {
      const int key = key0 + 2 * lane + 32 * e + c;
      w[c] = exp2_fast(::fmaf(x[2 * e + c], shift.factor, shift.offset));
      total += w[c];
      if constexpr (!P::kPlainWeight) {
        w[c] = P::weight(a, at, w[c], of_row, nullptr, query, key);
        if (AttendKeys<P>::kTail && key >= AttendKeys<P>::end(key0)) w[c] = 0;
      }
    }
    *reinterpret_cast<uint32_t*>(mem.weights(row) + (2 * lane + 32 * e) * 2) = pack_pair<typename P::T>(w[0], w[1]);
  }
  sum = sum * factor + total;
  m = shift.m;
  if (last) {
    sum = lanes_reduce<Sum, 16>(sum);
    if (lane == 0) mem.statistics()[16 + row] = sum;
  }
  if (lane == 0) { mem.statistics()[row] = m; mem.statistics()[32 + row] = factor; }
}

/// Where a lane finds a warp's columns in the first chunk's boxes.
template <class P> struct WideColumns {
  static constexpr int kWide = P::kColumns / 8;
  int of[kWide / 16];
  MO_FN WideColumns(const WideMemory<P>& mem, int warp) {
    const int lane = lane_id(), part = lane >> 3;
#pragma unroll
    for (int n = 0; n < kWide / 16; n++)
      of[n] = mem.value_box(0, 0) + static_cast<int>(attend_line(mem.smem, (part & 1) * 8 + (lane & 7), warp * kWide / 8 + 2 * n + (part >> 1), mem.kBox) - mem.smem);
  }
};
template <class P, int N> MO_FN void wide_results(const WideMemory<P>& mem, const WideColumns<P>& columns, float (&O)[N], int warp, int s, int parity, bool first) {
  constexpr int kWide = P::kColumns / 8;
  const int lane = lane_id(), i8 = lane & 7, part = lane >> 3, column = warp * kWide;
  if (!first) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const float f = mem.statistics()[32 + (lane >> 2) + 8 * r];
#pragma unroll
      for (int j = 0; j < N / 4; j++) { O[4 * j + 2 * r] *= f; O[4 * j + 2 * r + 1] *= f; }
    }
  }
  if constexpr (P::kValueBoxes > 0) {   // keys' boxes were waited for
#pragma unroll
    for (int b = column / 64; b <= (column + kWide - 1) / 64; b++) mbarrier_wait(mem.value_bar(s, b), parity);
  }
#pragma unroll
  for (int k = 0; k < P::kChunk / 16; k++) {
    uint32_t w[4];
    load_matrix_x4(w, mem.weights((part & 1) * 8 + i8) + (2 * k + (part >> 1)) * 16);
#pragma unroll
    for (int n = 0; n < kWide / 16; n++) {
      uint32_t x[4];
      load_matrix_x4_transposed(x, mem.smem + columns.of[n] + s * mem.kAll * mem.kBox + k * 2048);
      attend_mma<typename P::T>(O + 8 * n, w, x[0], x[1]);
      attend_mma<typename P::T>(O + 8 * n + 4, w, x[2], x[3]);
    }
  }
}

/// Sends this block's results and statistics to the blocks that own the columns.
template <class P, int N> MO_FN void wide_send(const AttendPlace& at, const WideMemory<P>& mem, float (&O)[N], int warp) {
  constexpr int kWide = P::kColumns / 8;
  const int lane = lane_id(), quad = lane & 3;
  if (thread_id() < 16 * P::kCluster) {
    const int row = thread_id() & 15, to = thread_id() >> 4;
    store_async(remote_address(mem.base + P::kReceivedAt + P::kCluster * 16 * mem.kSlice * mem.kPart + (at.rank * 16 + row) * 8, to), Pack<2>{{mem.statistics()[row], mem.statistics()[16 + row]}}, remote_address(mem.received(), to));
  }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int row = (lane >> 2) + 8 * r;
    const auto place = [&](int column) { return remote_address(mem.base + P::kReceivedAt + ((at.rank * 16 + row) * mem.kSlice + column % mem.kSlice) * mem.kPart, column / mem.kSlice); };
    const auto bar = [&](int column) { return remote_address(mem.received(), column / mem.kSlice); };
    if constexpr (P::kNarrowParts) {   // divided by its own sum a part fits the operands' type
      const float inverse = part_inverse(mem.statistics()[16 + row]);
      uint32_t w[N / 4];
#pragma unroll
      for (int j = 0; j < N / 4; j++) w[j] = pack_pair<typename P::T>(O[4 * j + 2 * r] * inverse, O[4 * j + 2 * r + 1] * inverse);
      if constexpr (kWide % 32 == 0) {
#pragma unroll
        for (int j = 0; j < N / 4; j += 4) {
          uint32_t v[4] = {w[j], w[j + 1], w[j + 2], w[j + 3]};
          quad_transpose(v, quad);
          const int column = warp * kWide + 8 * (j + quad);
          store_async(place(column), Pack<4>{{__uint_as_float(v[0]), __uint_as_float(v[1]), __uint_as_float(v[2]), __uint_as_float(v[3])}}, bar(column));
        }
      } else {
#pragma unroll
        for (int j = 0; j < N / 4; j++) store_async(place(warp * kWide + 8 * j + 2 * quad), __uint_as_float(w[j]), bar(warp * kWide + 8 * j));
      }
    } else {
#pragma unroll
      for (int j = 0; j < N / 4; j++) store_async(place(warp * kWide + 8 * j + 2 * quad), Pack<2>{{O[4 * j + 2 * r], O[4 * j + 2 * r + 1]}}, bar(warp * kWide + 8 * j));
    }
  }
}

/// Sums of several sources, all relative to their common maximum.
template <class P> MO_FN MeetSum wide_received(const WideMemory<P>& mem, int row, int column) {
  MeetSum all{kLowest, 0, {0, 0, 0, 0}};
  float2 of[P::kCluster];
#pragma unroll
  for (int k = 0; k < P::kCluster; k++) {
    of[k] = *reinterpret_cast<const float2*>(mem.smem + P::kReceivedAt + P::kCluster * 16 * mem.kSlice * mem.kPart + (k * 16 + row) * 8);
    all.m = ::fmaxf(all.m, of[k].x);
  }
#pragma unroll
  for (int k = 0; k < P::kCluster; k++) {
    const unsigned char* const from = mem.smem + P::kReceivedAt + ((k * 16 + row) * mem.kSlice + column) * mem.kPart;
    const float w = exp2_fast(of[k].x - all.m);
    all.sum += w * of[k].y;
    if constexpr (P::kNarrowParts) {
      const uint2 u = *reinterpret_cast<const uint2*>(from);
      const Pack<2> lo = unpack_pair<typename P::T>(u.x), hi = unpack_pair<typename P::T>(u.y);
      const float f = w * part_factor(of[k].y);
      all.x[0] += f * lo.v[0]; all.x[1] += f * lo.v[1]; all.x[2] += f * hi.v[0]; all.x[3] += f * hi.v[1];
    } else {
      const float4 f = *reinterpret_cast<const float4*>(from);
      all.x[0] += w * f.x; all.x[1] += w * f.y; all.x[2] += w * f.z; all.x[3] += w * f.w;
    }
  }
  return all;
}

/// Clusters with the same queries meet (65_attend_end.cuh); false: this item is another one's, who has it now.
template <class P> MO_FN bool wide_meet(const typename P::Args& a, const AttendPlace& at, int item, MeetSum& mine) {
  constexpr SlotKind kKind = P::kNarrowParts ? kSlotNumbers : kSlotPairs;
  constexpr int kItems = 4 * P::kColumns / P::kCluster, kSlots = P::kNarrowParts ? 1 : 2, kStep = P::kCluster * kItems * kSlots;   // 16 rows of four columns
  uint4* const slots = reinterpret_cast<uint4*>(a.slots) + (int64_t(at.batch * P::kTiles + at.tile) * (P::kMeets - 1)) * kStep + (at.rank * kSlots) * kItems + item;
  const int owner = item / (kItems / P::kMeets);
  if (owner != at.group) {
    meet_post<kKind, typename P::T>(slots + meet_source<P>(at.group, owner) * kStep, kItems, mine);
    return false;
  }
  // Others post now: asked for at once their slots are empty, and that costs a round trip. mla 6.38 us without a pause, 6.46 with 450 cycles, 6.24 to 6.28 with 600 to 760, 6.33 with 850.
  pause(640);
  meet_take<kKind, typename P::T, P::kMeets - 1>(slots, kStep, kItems, mine);
  return true;
}

template <class P> MO_FN void attend_wide(const typename P::Args& a, unsigned char* smem) {
  const int warp = warp_uniform(warp_id()), lane = lane_id(), row = thread_id() >> 4;
  const WideMemory<P> mem(smem);
  const AttendPlace at = P::place();
  if (lane == 0) {
    for (int b = warp; b < P::kStages * mem.kAll; b += 8) mbarrier_init(mem.bar(b / mem.kAll, b % mem.kAll), 1);   // the first chunk's copies are started by those who made their barriers
    if (warp == 7 && P::kCluster > 1) {
      mbarrier_init(mem.received(), 1);
      mbarrier_expect(mem.received(), P::kCluster * 16 * (mem.kSlice * mem.kPart + 8));
    }
    mbarrier_publish();
    wide_copy<P>(a, at, mem, warp, 0, true);
  }
  warp_barrier();
  if constexpr (P::kCluster > 1) cluster_arrive_relaxed();
  barrier();
  if (lane == 0)
    for (int c = 1; c < P::kStages; c++)
      if (c < at.chunks) wide_copy<P>(a, at, mem, warp, c, false);
  if constexpr (P::kEarly) {   // keys and values are under way; everything else may come from the kernel ahead
    await_previous();
    if (lane == 0) wide_copy_q<P>(a, at, mem, warp);
  }
  warp_barrier();
  float O[P::kColumns / 16], m = kLowest, sum = 0, scale = 1;
#pragma unroll
  for (int i = 0; i < P::kColumns / 16; i++) O[i] = 0;
  typename P::Row of_row{};
  WideQuery<P> q;
  const WideColumns<P> columns(mem, warp);
#pragma unroll 1
  for (int c = 0; c < at.chunks; c++) {
    const int s = c % P::kStages, parity = (c / P::kStages) & 1;
    if (c == 0) wide_scores<P, true>(mem, q, warp, s, parity);
    else wide_scores<P, false>(mem, q, warp, s, parity);
    barrier();
    if (c == 0) {   // all of q is there: every box of the first chunk was waited for
      of_row = P::row(a, at, mem.q_row(row, thread_id() & 7), at.tile * 16 + row);
      scale = P::scale(of_row) * kLog2E;
    }
    wide_softmax<P>(a, at, mem, of_row, scale, attend_key<P>(at.first + c), c + 1 == at.chunks, m, sum);
    barrier();
    wide_results<P>(mem, columns, O, warp, s, parity, c == 0);
    if (P::kRefills && c + P::kStages < at.chunks) {
      barrier();
      if (lane == 0) wide_copy<P>(a, at, mem, warp, c + P::kStages, false);
      warp_barrier();
    }
  }
  if constexpr (P::kCluster == 1) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int mine = (lane >> 2) + 8 * r, query = at.tile * 16 + mine;
      const float sums[1][1] = {{mem.statistics()[16 + mine]}};
      typename P::After after(a, at, P::row(a, at, AttendRow<typename P::T, P::kFeatures, 1>{mem.smem + mine * 128, 2048, mine, 0}, query), mem.statistics()[mine], sums, 0, query);
      if (query >= P::kQueries) continue;
      if (warp == 0 && (lane & 3) == 0) after.store_row(a, at, query);
#pragma unroll
      for (int j = 0; j < P::kColumns / 64; j++) after.store_pair(a, at, O[4 * j + 2 * r], O[4 * j + 2 * r + 1], query, warp * (P::kColumns / 8) + 8 * j + 2 * (lane & 3));
    }
  } else {
    cluster_wait();   // every block of the cluster runs
    wide_send<P>(at, mem, O, warp);
    mbarrier_wait_cluster(mem.received(), 0);
#pragma unroll
    for (int i = thread_id(); i < 4 * mem.kSlice; i += 256) {
      const int item = P::kMeets > 1 ? meet_item<P>(i, 4 * mem.kSlice, at.group) : i, mine = item / (mem.kSlice / 4), column = item % (mem.kSlice / 4) * 4, query = at.tile * 16 + mine;
      MeetSum all = wide_received<P>(mem, mine, column);
      if constexpr (P::kMeets > 1) {
        if (!wide_meet<P>(a, at, item, all)) continue;
      }
      if (query >= P::kQueries) continue;
      const float sums[1][1] = {{all.sum}};
      typename P::After after(a, at, P::row(a, at, AttendRow<typename P::T, P::kFeatures, 1>{mem.smem + mine * 128, 2048, mine, 0}, query), all.m, sums, 0, query);
      if (at.rank == 0 && column == 0) after.store_row(a, at, query);
      after.store_pair(a, at, all.x[0], all.x[1], query, at.rank * mem.kSlice + column);
      after.store_pair(a, at, all.x[2], all.x[3], query, at.rank * mem.kSlice + column + 2);
    }
  }
}

#endif

}  // namespace mo
