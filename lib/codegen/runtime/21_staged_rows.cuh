// Device library, part 2b: rows that wait in shared memory (kernels of 20_region.cuh). Every thread copies the vectors that it works on itself, and nobody else reads them: no barriers.
#pragma once
#include "10_tile.cuh"
#include "20_region.cuh"

namespace mo {

/// Where a thread's vectors lie: words of a block's threads beside each other, one vector's words behind each other.
template <int THREADS, int N, class S> struct Staged {
  using Vector = ElementVector<N, S>;
  static constexpr int kLine = THREADS * Vector::kWordBytes, kBytes = Vector::kWords * kLine, kEach = Vector::kWordBytes / (int)sizeof(S);
  static MO_FN unsigned char* at(unsigned char* smem, int k) { return smem + k * kBytes + thread_id() * Vector::kWordBytes; }
};

/// Asks for vector k of this thread: the first `valid` of its N elements; the rest becomes 0.
template <int THREADS, int N, class S> MO_FN void stage(unsigned char* smem, int k, const S* from, int valid = N) {
  using T = Staged<THREADS, N, S>;
#pragma unroll
  for (int w = 0; w < T::Vector::kWords; w++) {
    const int left = valid - w * T::kEach, bytes = (left < 0 ? 0 : left > T::kEach ? T::kEach : left) * (int)sizeof(S);
    copy_async<T::Vector::kWordBytes>(T::at(smem, k) + w * T::kLine, bytes > 0 ? from + w * T::kEach : from, bytes);
  }
}
MO_FN void staged() {   // this thread's copies have arrived
  copy_commit();
  copy_wait<0>();
}
template <int THREADS, class S, int N> MO_FN void unstage(real (&to)[N], unsigned char* smem, int k) {
  using T = Staged<THREADS, N, S>;
  typename T::Vector pack;
#pragma unroll
  for (int w = 0; w < T::Vector::kWords; w++) pack.words[w] = *reinterpret_cast<const typename T::Vector::Bits*>(T::at(smem, k) + w * T::kLine);
  unpack(to, pack);
}

}  // namespace mo
