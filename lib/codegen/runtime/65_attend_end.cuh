// Device library, part 6e: the end of attention (see 61_attend.cuh): groups of a block merge through shared memory, blocks of a cluster by asynchronous stores, then what follows the accumulators.
#pragma once
#include "61_attend.cuh"

namespace mo {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Groups (warpgroups, or warps with rings of their own) with the same queries: each adds up its own kColumns / kKeyGroups columns over all of them, into H.
template <class P, int N> MO_FN void attend_merge(const AttendMemory<P>& mem, AttendState<P>& t, float (&H)[N], int group, int group_q, int group_k) {
  constexpr int kPieces = P::kColumns / 8, kStats = (2 + 2 * P::kSums + 3) / 4, kThreads = P::kGroupThreads, kRecord = (kPieces + kStats) * kThreads;   // float4, one per thread of a group
  constexpr int kRing = P::kStages * (P::kKeyBytes + P::kValueBytes) / 16;
  constexpr bool kOwn = P::kWarpRings && kRing >= kRecord;   // a warp's own ring is free when the warp is through
  constexpr int kNext = kOwn ? kRing : kRecord;
  const int thread = thread_id() % kThreads;
  if constexpr (kOwn) warp_barrier();
  else named_barrier(1, kThreads * P::kGroups);   // the ring is free
  float4* const x = reinterpret_cast<float4*>(mem.smem + P::kRingAt) + group * kNext + thread;
#pragma unroll
  for (int j = 0; j < kPieces; j++)   // but those that it adds up itself
    if (j / (N / 4) != group_k) x[j * kThreads] = make_float4(t.O[4 * j], t.O[4 * j + 1], t.O[4 * j + 2], t.O[4 * j + 3]);
  float stats[4 * kStats] = {t.m[0], t.m[1]};
#pragma unroll
  for (int k = 0; k < P::kSums; k++) { stats[2 + 2 * k] = t.sums[k][0]; stats[3 + 2 * k] = t.sums[k][1]; }
#pragma unroll
  for (int i = 0; i < kStats; i++) x[(kPieces + i) * kThreads] = make_float4(stats[4 * i], stats[4 * i + 1], stats[4 * i + 2], stats[4 * i + 3]);
  named_barrier(1, kThreads * P::kGroups);
  const float4* const y = reinterpret_cast<const float4*>(mem.smem + P::kRingAt) + group_q * kNext + thread;
  float w[P::kKeyGroups][2], all[P::kKeyGroups][4 * kStats];
#pragma unroll
  for (int g = 0; g < P::kKeyGroups; g++)
#pragma unroll
    for (int i = 0; i < kStats; i++) {
      const float4 f = y[g * P::kQueryGroups * kNext + (kPieces + i) * kThreads];
      all[g][4 * i] = f.x; all[g][4 * i + 1] = f.y; all[g][4 * i + 2] = f.z; all[g][4 * i + 3] = f.w;
    }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    t.m[r] = kLowest;
#pragma unroll
    for (int g = 0; g < P::kKeyGroups; g++) t.m[r] = ::fmaxf(t.m[r], all[g][r]);
#pragma unroll
    for (int g = 0; g < P::kKeyGroups; g++) w[g][r] = exp2_fast(all[g][r] - t.m[r]);
#pragma unroll
    for (int k = 0; k < P::kSums; k++) {
      t.sums[k][r] = 0;
#pragma unroll
      for (int g = 0; g < P::kKeyGroups; g++) t.sums[k][r] += w[g][r] * all[g][2 + 2 * k + r];
    }
  }
#pragma unroll
  for (int j = 0; j < N / 4; j++) {
    H[4 * j] = H[4 * j + 1] = H[4 * j + 2] = H[4 * j + 3] = 0;
#pragma unroll
    for (int g = 0; g < P::kKeyGroups; g++) {
      float4 f;
      if (g == group_k) f = make_float4(t.O[g * N + 4 * j], t.O[g * N + 4 * j + 1], t.O[g * N + 4 * j + 2], t.O[g * N + 4 * j + 3]);
      else f = y[g * P::kQueryGroups * kNext + (group_k * (N / 4) + j) * kThreads];
      H[4 * j] += w[g][0] * f.x;
      H[4 * j + 1] += w[g][0] * f.y;
      H[4 * j + 2] += w[g][1] * f.z;
      H[4 * j + 3] += w[g][1] * f.w;
    }
  }
}

/// No cluster: what follows the accumulators, and the stores. H: this thread's two rows of columns 8 * (first + j) ...
template <class P, int N> MO_FN void attend_finish(const typename P::Args& a, const AttendPlace& at, AttendState<P>& t, float (&H)[N], int first, bool leader) {
  const int quad = lane_id() & 3;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    typename P::After after(a, at, t.row[r], t.m[r], t.sums, r, t.query[r]);
    if (leader && quad == 0 && t.query[r] < P::kQueries) after.store_row(a, at, t.query[r]);
    if constexpr (P::kVectorStores && N >= 16) {
#pragma unroll
      for (int j = 0; j < N / 4; j += 4) {
        uint32_t w[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int col = 8 * (first + j + i) + 2 * quad;
          const Pack<2> x = {{H[4 * (j + i) + 2 * r], H[4 * (j + i) + 2 * r + 1]}};
          w[i] = pack_pair<typename P::Out>(after.column(a, at, x.v[0], t.query[r], col), after.column(a, at, x.v[1], t.query[r], col + 1));
        }
        quad_transpose(w, quad);
        if (t.query[r] < P::kQueries) P::store_vector(a, at, t.query[r], 8 * (first + j + quad), make_uint4(w[0], w[1], w[2], w[3]));
      }
    } else {
#pragma unroll
      for (int j = 0; j < N / 4; j++) {
        const int col = 8 * (first + j) + 2 * quad;
        if (t.query[r] < P::kQueries) after.store_pair(a, at, H[4 * j + 2 * r], H[4 * j + 2 * r + 1], t.query[r], col);
      }
    }
  }
}

// ---- slots: 16 bytes in device memory, from a block to one that waits for it. Empty while a word is all ones, which no conversion or arithmetic yields; whoever takes a slot empties it for the next launch
MO_FN uint4 slot_peek(const uint4* p) { uint4 v; asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory"); return v; }
MO_FN void slot_post(uint4* p, uint4 v) { asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory"); }
MO_FN bool slot_empty(const uint4& v) { return v.x == 0xffffffffu || v.y == 0xffffffffu || v.z == 0xffffffffu || v.w == 0xffffffffu; }
/// A word of a slot: a NaN of all ones, which inputs may bring along, becomes another one.
MO_FN uint32_t slot_word(uint32_t x) { return x == 0xffffffffu ? 0x7fffffffu : x; }
/// N slots, `step` apart. Every round asks for all that are missing: one after another they would cost a round trip each.
template <int N> MO_FN void slots_wait(uint4 (&v)[N], const uint4* p, int step) {
  bool wait;
#pragma unroll
  for (int i = 0; i < N; i++) v[i].x = 0xffffffffu;
  do {
#pragma unroll
    for (int i = 0; i < N; i++)
      if (slot_empty(v[i])) v[i] = slot_peek(p + i * step);
    wait = false;
#pragma unroll
    for (int i = 0; i < N; i++) wait |= slot_empty(v[i]);
  } while (wait);
}
/// Cycles of the multiprocessor go by.
MO_FN void pause(uint32_t cycles) {   // host twin
  uint32_t from, now;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(from)::"memory");
  do asm volatile("mov.u32 %0, %%clock;" : "=r"(now)::"memory");
  while (now - from < cycles);
}
template <int N> MO_FN void slots_clear(uint4* p, int step) {
#pragma unroll
  for (int i = 0; i < N; i++) slot_post(p + i * step, make_uint4(0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu));
}

// Clusters with the same queries meet: what a cluster has is dealt to all of them in equal parts, each posts what others own and then takes its own. A thread posts all that it posts before it waits for
// anything, so nobody waits for a post that waits.
/// The number, among those who post to `owner`, of the cluster `group`.
template <class P> MO_FN int meet_source(int group, int owner) { return group < owner ? group + P::kMeets - 1 - owner : group - owner - 1; }
/// The order in which a cluster goes through its n items: those that it owns come last. Its own are the group-th part.
template <class P> MO_FN int meet_item(int i, int n, int group) { const int item = i + (group + 1) * (n / P::kMeets); return item < n ? item : item - n; }

/// Four neighbouring columns of a row: relative to the maximum m, and the sum of the weights.
struct MeetSum { float m, sum, x[4]; };
/// How a slot holds four columns. kSlotParts: in the operands' type, divided by their own sum. kSlotNumbers: so divided, as 16-bit multiples of a power of two that they share, within 2^-14 of the largest: where a cluster's parts
/// were rounded already, a second rounding to the operands' type made 1.26 to 1.37 times the error of node by node. kSlotPairs: two columns in float32, so two slots.
enum SlotKind { kSlotParts, kSlotNumbers, kSlotPairs };
// Numbers: the sum gives its last eight bits for the power's exponent.
/// The biased exponent of the largest of four, or 255: one of them is no number, and they travel in the operands' type.
MO_FN uint32_t slot_power(const float (&x)[4]) {   // host twin
  const auto bits = [&](int i) { return __float_as_int(x[i]) & 0x7fffffff; };
  return widest(widest(bits(0), bits(1), bits(2)), bits(3), 14 << 23) >> 23;
}
MO_FN uint32_t slot_sum(float sum, uint32_t power) { return (__float_as_uint(sum) & 0xffffff00u) | power; }   // host twin
MO_FN uint32_t slot_power(uint32_t word) { return word & 255; }   // host twin
MO_FN float slot_sum(uint32_t word) { return __uint_as_float(word & 0xffffff00u); }   // host twin
/// 2^(140 - power), which brings what is below 2^(power - 126) to within 2^14; and its inverse.
MO_FN float slot_up(uint32_t power) { return __uint_as_float((267 - power) << 23); }
MO_FN float slot_down(uint32_t power) { return __uint_as_float((power - 13) << 23); }
/// Two numbers of magnitude 2^14 or less, rounded to whole ones, and 2^15 more; never all ones.
MO_FN uint32_t slot_pair(float lo, float hi) { return (__float_as_uint(lo + 12615680.0f) & 0xffffu) | (__float_as_uint(hi + 12615680.0f) << 16); }
MO_FN float slot_number(uint32_t u) { return __uint_as_float(0x4b000000u | u) - 8421376.0f; }
MO_FN Pack<4> slot_numbers(const uint4& v) { return {{slot_number(v.x & 0xffffu), slot_number(v.x >> 16), slot_number(v.y & 0xffffu), slot_number(v.y >> 16)}}; }
template <class T> MO_FN Pack<4> slot_parts(const uint4& v) {
  const Pack<2> lo = unpack_pair<T>(v.x), hi = unpack_pair<T>(v.y);
  return {{lo.v[0], lo.v[1], hi.v[0], hi.v[1]}};
}
template <class T> MO_FN uint4 slot_of_parts(const float (&x)[4], float m, uint32_t sum) {
  return make_uint4(slot_word(pack_pair<T>(x[0], x[1])), slot_word(pack_pair<T>(x[2], x[3])), slot_word(__float_as_uint(m)), slot_word(sum));
}

/// Posts them as one slot, or as two, `half` slots apart.
template <SlotKind KIND, class T> MO_FN void meet_post(uint4* to, int half, const MeetSum& mine) {
  if constexpr (KIND == kSlotPairs) {
#pragma unroll
    for (int h = 0; h < 2; h++) slot_post(to + h * half, make_uint4(slot_word(__float_as_uint(mine.x[2 * h])), slot_word(__float_as_uint(mine.x[2 * h + 1])), slot_word(__float_as_uint(mine.m)), slot_word(__float_as_uint(mine.sum))));
  } else {
    float x[4] = {mine.x[0], mine.x[1], mine.x[2], mine.x[3]};
    const float inverse = part_inverse(KIND == kSlotNumbers ? slot_sum(slot_sum(mine.sum, 0)) : mine.sum);   // of what travels
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] *= inverse;
    if constexpr (KIND == kSlotParts) {
      slot_post(to, slot_of_parts<T>(x, mine.m, __float_as_uint(mine.sum)));
    } else {
      const uint32_t power = slot_power(x), sum = slot_sum(mine.sum, power);
      uint4 v;
      if (power < 255) v = make_uint4(slot_pair(x[0] * slot_up(power), x[1] * slot_up(power)), slot_pair(x[2] * slot_up(power), x[3] * slot_up(power)), slot_word(__float_as_uint(mine.m)), slot_word(sum));
      else v = slot_of_parts<T>(x, mine.m, sum);
      slot_post(to, v);
    }
  }
}
/// Adds what the others have posted, `step` slots apart.
template <SlotKind KIND, class T, int SOURCES> MO_FN void meet_take(uint4* from, int step, int half, MeetSum& mine) {
  constexpr int kSlots = KIND == kSlotPairs ? 2 : 1;
  uint4 v[kSlots][SOURCES];
#pragma unroll
  for (int h = 0; h < kSlots; h++) slots_wait(v[h], from + h * half, step);
  float m = mine.m;
#pragma unroll
  for (int g = 0; g < SOURCES; g++) m = ::fmaxf(m, __uint_as_float(v[0][g].z));
  const float own = exp2_fast(mine.m - m);
  mine.m = m;
  mine.sum *= own;
#pragma unroll
  for (int i = 0; i < 4; i++) mine.x[i] *= own;
  const auto add = [&](float f, const Pack<4>& x) {
#pragma unroll
    for (int i = 0; i < 4; i++) mine.x[i] += f * x.v[i];
  };
  int most = 0;
  if constexpr (KIND == kSlotNumbers)
#pragma unroll
    for (int g = 0; g < SOURCES; g++) most = widest(most, static_cast<int>(slot_power(v[0][g].w)));
  if (KIND == kSlotNumbers && most == 255) {   // hardly ever: read again, so that this stands here once
#pragma unroll 1
    for (int g = 0; g < SOURCES; g++) {
      const uint4 u = slot_peek(from + g * step);
      const float sum = slot_sum(u.w), f = exp2_fast(__uint_as_float(u.z) - m) * part_factor(sum);
      mine.sum += exp2_fast(__uint_as_float(u.z) - m) * sum;
      if (slot_power(u.w) == 255) add(f, slot_parts<T>(u));
      else add(f * slot_down(slot_power(u.w)), slot_numbers(u));
    }
  } else {
#pragma unroll
    for (int g = 0; g < SOURCES; g++) {
      const float w = exp2_fast(__uint_as_float(v[0][g].z) - m), sum = KIND == kSlotNumbers ? slot_sum(v[0][g].w) : __uint_as_float(v[0][g].w);
      mine.sum += w * sum;
      if constexpr (KIND == kSlotPairs) {
#pragma unroll
        for (int h = 0; h < 2; h++) { mine.x[2 * h] += w * __uint_as_float(v[h][g].x); mine.x[2 * h + 1] += w * __uint_as_float(v[h][g].y); }
      } else if constexpr (KIND == kSlotParts) {
        add(w * part_factor(sum), slot_parts<T>(v[0][g]));
      } else {
        add(w * part_factor(sum) * slot_down(slot_power(v[0][g].w)), slot_numbers(v[0][g]));
      }
    }
  }
#pragma unroll
  for (int h = 0; h < kSlots; h++) slots_clear<SOURCES>(from + h * half, step);
}

/// No cluster, but blocks with the same queries that meet: each column of eight belongs to one of them. H: this thread's two rows of columns 8 * (first + j) ...; row0: the first row of its warp's 16 in the tile.
template <class P, int N> MO_FN void attend_share(const typename P::Args& a, const AttendPlace& at, const AttendState<P>& t, const float (&H)[N], int row0, int first) {
  constexpr SlotKind kKind = P::kNarrowParts ? kSlotParts : kSlotPairs;
  constexpr int kEighths = P::kColumns / 8, kSlots = P::kNarrowParts ? 1 : 2, kStep = P::kGroupRows * P::kQueryGroups * (P::kColumns / 4) * kSlots;
  const int lane = lane_id(), quad = lane & 3;
  const bool odd = lane & 1;   // lanes in pairs: the even one has four columns of the upper row then, the odd one of the lower
  uint4* const slots = reinterpret_cast<uint4*>(a.slots) + int64_t(at.batch * P::kTiles + at.tile) * (P::kMeets - 1) * kStep + ((row0 >> 4) * kEighths + first) * (32 * kSlots) + lane;
  const int query = odd ? t.query[1] : t.query[0];
  MeetSum mine[N / 4];
#pragma unroll
  for (int j = 0; j < N / 4; j++) {
    const float x = shuffle_xor(odd ? H[4 * j] : H[4 * j + 2], 1), y = shuffle_xor(odd ? H[4 * j + 1] : H[4 * j + 3], 1);
    mine[j] = {odd ? t.m[1] : t.m[0], odd ? t.sums[0][1] : t.sums[0][0], {odd ? x : H[4 * j], odd ? y : H[4 * j + 1], odd ? H[4 * j + 2] : x, odd ? H[4 * j + 3] : y}};
  }
  if (query >= P::kQueries) return;
#pragma unroll
  for (int j = 0; j < N / 4; j++) {
    const int owner = (first + j) * P::kMeets / kEighths;
    if (owner != at.group) meet_post<kKind, typename P::T>(slots + meet_source<P>(at.group, owner) * kStep + j * (32 * kSlots), 32, mine[j]);
  }
#pragma unroll
  for (int j = 0; j < N / 4; j++) {
    if ((first + j) * P::kMeets / kEighths != at.group) continue;
    meet_take<kKind, typename P::T, P::kMeets - 1>(slots + j * (32 * kSlots), kStep, 32, mine[j]);
    const float sums[1][1] = {{mine[j].sum}};
    const int column = 8 * (first + j) + 4 * (quad >> 1);
    typename P::After after(a, at, odd ? t.row[1] : t.row[0], mine[j].m, sums, 0, query);
    if (column == 0) after.store_row(a, at, query);
    after.store_pair(a, at, mine[j].x[0], mine[j].x[1], query, column);
    after.store_pair(a, at, mine[j].x[2], mine[j].x[3], query, column + 2);
  }
}

/// Two columns of a cluster that meets others (attend_exchange); false: this one is somebody else's. item: of the block's.
template <class P> MO_FN bool attend_meet(const typename P::Args& a, const AttendPlace& at, int item, Pack<2>& x, float& m, float& sum) {
  constexpr int kItems = P::kRows * (P::kColumns / 2), kStep = P::kCluster * kItems;
  const int owner = item / (kItems / P::kMeets);
  uint4* const slots = reinterpret_cast<uint4*>(a.slots) + (int64_t(at.batch * P::kTiles + at.tile) * (P::kMeets - 1)) * kStep + at.rank * kItems + item;
  const auto word = [](float f) { return slot_word(__float_as_uint(f)); };
  if (owner != at.group) {
    slot_post(slots + meet_source<P>(at.group, owner) * kStep, make_uint4(word(x.v[0]), word(x.v[1]), word(m), word(sum)));
    return false;
  }
  uint4 v[P::kMeets - 1];
  slots_wait(v, slots, kStep);
  slots_clear<P::kMeets - 1>(slots, kStep);
  float most = m;
#pragma unroll
  for (int g = 0; g < P::kMeets - 1; g++) most = ::fmaxf(most, __uint_as_float(v[g].z));
  const float own = exp2_fast(m - most);
  x = {{x.v[0] * own, x.v[1] * own}};
  sum *= own;
  m = most;
#pragma unroll
  for (int g = 0; g < P::kMeets - 1; g++) {
    const float w = exp2_fast(__uint_as_float(v[g].z) - most);
    x.v[0] += w * __uint_as_float(v[g].x);
    x.v[1] += w * __uint_as_float(v[g].y);
    sum += w * __uint_as_float(v[g].w);
  }
  return true;
}

/// A cluster: rows are dealt to its blocks, every block sends its part of a row to the owner, which adds the parts up, goes on as the block graph says, and stores.
template <class P, int N> MO_FN void attend_exchange(const typename P::Args& a, const AttendPlace& at, const AttendMemory<P>& mem, AttendState<P>& t, float (&H)[N], int group_q, int group_k, int warp) {
  const int lane = lane_id(), quad = lane & 3, first = group_k * (N / 4);
  cluster_wait();   // every block of the cluster runs
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int row = group_q * P::kGroupRows + (P::kWarpRings ? 0 : (warp & 3) * 16) + (lane >> 2) + 8 * r;
    const int owner = row / P::kRows;
    const bool live = row < P::kRows * P::kCluster;
    const uint32_t to = remote_address(mem.base + P::kReceiveAt + (at.rank * P::kRows + row % P::kRows) * P::kRecordPitch, live ? owner : 0), bar = remote_address(mem.received(), live ? owner : 0);
    if constexpr (P::kNarrowParts) {   // divided by its own sum a part fits the operands' type, and its rounding is weighted like the part itself
      const float inverse = part_inverse(t.sums[0][r]);
      uint32_t w[N / 4];
#pragma unroll
      for (int j = 0; j < N / 4; j++) w[j] = pack_pair<typename P::T>(H[4 * j + 2 * r] * inverse, H[4 * j + 2 * r + 1] * inverse);
      if constexpr (N >= 16) {
#pragma unroll
        for (int j = 0; j < N / 4; j += 4) {
          uint32_t v[4] = {w[j], w[j + 1], w[j + 2], w[j + 3]};
          quad_transpose(v, quad);
          if (live) store_async(to + 16 * (first + j + quad), Pack<4>{{__uint_as_float(v[0]), __uint_as_float(v[1]), __uint_as_float(v[2]), __uint_as_float(v[3])}}, bar);
        }
      } else {
#pragma unroll
        for (int j = 0; j < N / 4; j++)
          if (live) store_async(to + 16 * (first + j) + 4 * quad, __uint_as_float(w[j]), bar);
      }
    } else {
#pragma unroll
      for (int j = 0; j < N / 4; j++)
        if (live) store_async(to + 32 * (first + j) + 8 * quad, Pack<2>{{H[4 * j + 2 * r], H[4 * j + 2 * r + 1]}}, bar);
    }
    if (live && group_k == 0 && quad == 0) {
      constexpr int kAt = P::kColumns * (P::kNarrowParts ? 2 : 4);
      store_async(to + kAt, Pack<2>{{t.m[r], t.sums[0][r]}}, bar);
#pragma unroll
      for (int k = 1; k < P::kSums; k++) store_async(to + kAt + 4 + 4 * k, t.sums[k][r], bar);
    }
  }
  mbarrier_wait_cluster(mem.received(), 0);
#pragma unroll
  for (int i = thread_id(); i < P::kRows * (P::kColumns / 2); i += P::kGroupThreads * P::kGroups) {
    const int item = P::kMeets > 1 ? meet_item<P>(i, P::kRows * (P::kColumns / 2), at.group) : i, row = item / (P::kColumns / 2), pair = item % (P::kColumns / 2);
    const unsigned char* const from = mem.smem + P::kReceiveAt + row * P::kRecordPitch;
    float m = kLowest, sums[P::kSums][1], part_m[P::kCluster];
    Pack<2> x = {{0, 0}};
#pragma unroll
    for (int b = 0; b < P::kCluster; b++) { part_m[b] = *reinterpret_cast<const float*>(from + b * P::kRows * P::kRecordPitch + P::kColumns * (P::kNarrowParts ? 2 : 4)); m = ::fmaxf(m, part_m[b]); }
#pragma unroll
    for (int k = 0; k < P::kSums; k++) sums[k][0] = 0;
#pragma unroll
    for (int b = 0; b < P::kCluster; b++) {
      const unsigned char* const part = from + b * P::kRows * P::kRecordPitch;
      const float* const stats = reinterpret_cast<const float*>(part + P::kColumns * (P::kNarrowParts ? 2 : 4)) + 1;
      float w = exp2_fast(part_m[b] - m);
#pragma unroll
      for (int k = 0; k < P::kSums; k++) sums[k][0] += w * stats[k];
      Pack<2> y;
      if constexpr (P::kNarrowParts) { y = unpack_pair<typename P::T>(*reinterpret_cast<const uint32_t*>(part + 4 * pair)); w *= part_factor(stats[0]); }
      else { const float2 f = *reinterpret_cast<const float2*>(part + 8 * pair); y = {{f.x, f.y}}; }
      x.v[0] += w * y.v[0];
      x.v[1] += w * y.v[1];
    }
    if constexpr (P::kMeets > 1) {
      if (!attend_meet<P>(a, at, item, x, m, sums[0][0])) continue;
    }
    const int in_block = at.rank * P::kRows + row, query = at.tile * (P::kGroupRows * P::kQueryGroups) + in_block;
    if (query < P::kQueries) {
      typename P::After after(a, at, P::row(a, at, mem.template q_row<1>(in_block, 0), query), m, sums, 0, query);
      if (pair == 0) after.store_row(a, at, query);
      after.store_pair(a, at, x.v[0], x.v[1], query, 2 * pair);
    }
  }
}

#endif

}  // namespace mo
