// Device library, part 6: warpgroup matrix instructions of sm_90a (PTX ISA 9.7.15 wgmma) and what surrounds them. Four warps that start at a multiple of four form a warpgroup; every function is called by
// all of its threads together. D is 64 x N in float32: thread t holds rows 16*(t/32) + (t%32)/4 + 8*r, columns 8*j + 2*(t%4) + c, at d[4*j + 2*r + c].
#pragma once
#include "00_base.cuh"
#include "40_async.cuh"

namespace mo {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// ---- order: accumulators and A registers are handed to the asynchronous proxy by fence, groups are closed by commit, wait<N> leaves the N youngest groups running
MO_FN void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
MO_FN void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> MO_FN void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
/// Nothing may move a use of d across this point: the compiler does not know that wgmma writes registers later.
template <int R> MO_FN void wgmma_pin(float (&d)[R]) {
#pragma unroll
  for (int i = 0; i < R; i++) asm volatile("" : "+f"(d[i])::"memory");
}
/// Ordinary writes to shared memory are seen by tensor copies and wgmma that a barrier orders behind this.
MO_FN void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
/// Registers per thread of the calling warpgroup, a multiple of 8; the kernel's own number times its threads is what all can have together.
template <int N> MO_FN void registers_grow() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> MO_FN void registers_shrink() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
/// Named barriers 1 to 15 of a block, over `threads` threads (0 is barrier()).
MO_FN void named_barrier(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
MO_FN void named_barrier_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
/// Tells the compiler that x is the same in all lanes.
MO_FN int warp_uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

// ---- operands in shared memory: lines of 128 bytes, swizzled as tensor copies with 128-byte swizzle write them, tiles at multiples of 1024 bytes. PTX ISA 9.7.15.5.1, matrix descriptor.
/// next: bytes from one run of 64 columns to the next where the lines lie across the contraction (transposed); not read otherwise.
MO_FN uint64_t wgmma_tile(uint32_t address, int next) {
  return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)((next >> 4) & 0x3fff) << 16 | (uint64_t)64 << 32 | (uint64_t)1 << 62;
}

// ---- D (+)= A B over 16 elements of the contraction. T: f16 or bf16; A from shared memory (lines along the contraction) or from registers as mma.m16n8k16 has it, four words;
// B from shared memory: lines along the contraction (TB 0) or across it (TB 1). add 0: D is overwritten.
#define MO_R32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define MO_R64 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define MO_D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define MO_D32(i) MO_D8(i), MO_D8(i + 8), MO_D8(i + 16), MO_D8(i + 24)
#define MO_D64(i) MO_D32(i), MO_D32(i + 32)
template <class T> struct WgmmaIsBf16 { static constexpr bool value = false; };
template <> struct WgmmaIsBf16<bf16> { static constexpr bool value = true; };
template <class T, int TB> MO_FN void wgmma_shared(float (&d)[32], uint64_t a, uint64_t b, int add) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" MO_R32 "}, %32, %33, p, 1, 1, 0, %35;}" : MO_D32(0) : "l"(a), "l"(b), "r"(add), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" MO_R32 "}, %32, %33, p, 1, 1, 0, %35;}" : MO_D32(0) : "l"(a), "l"(b), "r"(add), "n"(TB));
}
template <class T, int TB> MO_FN void wgmma_registers(float (&d)[32], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, int add) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, %37, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" MO_R32 "}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;}" : MO_D32(0) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, %37, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" MO_R32 "}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;}" : MO_D32(0) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add), "n"(TB));
}
template <class T, int TB> MO_FN void wgmma_shared(float (&d)[64], uint64_t a, uint64_t b, int add) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, %66, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" MO_R64 "}, %64, %65, p, 1, 1, 0, %67;}" : MO_D64(0) : "l"(a), "l"(b), "r"(add), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, %66, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" MO_R64 "}, %64, %65, p, 1, 1, 0, %67;}" : MO_D64(0) : "l"(a), "l"(b), "r"(add), "n"(TB));
}
template <class T, int TB> MO_FN void wgmma_registers(float (&d)[64], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, int add) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, %69, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" MO_R64 "}, {%64, %65, %66, %67}, %68, p, 1, 1, %70;}" : MO_D64(0) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, %69, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" MO_R64 "}, {%64, %65, %66, %67}, %68, p, 1, 1, %70;}" : MO_D64(0) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add), "n"(TB));
}
#undef MO_R32
#undef MO_R64
#undef MO_D8
#undef MO_D32
#undef MO_D64

// ---- further tensor copies: boxes of tensors with four and five dimensions

#endif

}  // namespace mo
