// Device library, part 67b: wgmma with a weight as its 64-row operand (68_tile.cuh) and 144 to 256 rows of the other one at once; tensor copies that go to several blocks of a cluster, and barriers that they share
// (sm_90a; compute-bound tiles of lib/plan/tile.h). Sources: PTX ISA 9.7.15 (wgmma), 9.7.9 (cp.async.bulk.tensor, .multicast::cluster), 9.7.13 (mbarrier.arrive on another block's barrier).
#pragma once
#include "60_wgmma.cuh"

namespace mo {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Registers by groups of 16: placeholders, and operands.
#define MO_W0 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define MO_W16 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define MO_W32 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define MO_W48 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define MO_W64 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define MO_W80 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define MO_W96 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define MO_W112 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define MO_X64 "%64, %65, %66, %67, %68, %69, %70, %71"
#define MO_X80 "%80, %81, %82, %83, %84, %85, %86, %87"
#define MO_X96 "%96, %97, %98, %99, %100, %101, %102, %103"
#define MO_X112 "%112, %113, %114, %115, %116, %117, %118, %119"
#define MO_V8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define MO_V16(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7]), "+f"(d[i + 8]), "+f"(d[i + 9]), "+f"(d[i + 10]), "+f"(d[i + 11]), "+f"(d[i + 12]), "+f"(d[i + 13]), "+f"(d[i + 14]), "+f"(d[i + 15])
template <class T, int TA, int TB = 0> MO_FN void wgmma_weight(float (&d)[72], uint64_t a, uint64_t b) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n144k16.f32.bf16.bf16 {" MO_W0 ", " MO_W16 ", " MO_W32 ", " MO_W48 ", " MO_X64 "}, %72, %73, p, 1, 1, %74, %75;}" : MO_V16(0), MO_V16(16), MO_V16(32), MO_V16(48), MO_V8(64) : "l"(a), "l"(b), "n"(TA), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n144k16.f32.f16.f16 {" MO_W0 ", " MO_W16 ", " MO_W32 ", " MO_W48 ", " MO_X64 "}, %72, %73, p, 1, 1, %74, %75;}" : MO_V16(0), MO_V16(16), MO_V16(32), MO_V16(48), MO_V8(64) : "l"(a), "l"(b), "n"(TA), "n"(TB));
}
template <class T, int TA, int TB = 0> MO_FN void wgmma_weight(float (&d)[80], uint64_t a, uint64_t b) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n160k16.f32.bf16.bf16 {" MO_W0 ", " MO_W16 ", " MO_W32 ", " MO_W48 ", " MO_W64 "}, %80, %81, p, 1, 1, %82, %83;}" : MO_V16(0), MO_V16(16), MO_V16(32), MO_V16(48), MO_V16(64) : "l"(a), "l"(b), "n"(TA), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n160k16.f32.f16.f16 {" MO_W0 ", " MO_W16 ", " MO_W32 ", " MO_W48 ", " MO_W64 "}, %80, %81, p, 1, 1, %82, %83;}" : MO_V16(0), MO_V16(16), MO_V16(32), MO_V16(48), MO_V16(64) : "l"(a), "l"(b), "n"(TA), "n"(TB));
}
template <class T, int TA, int TB = 0> MO_FN void wgmma_weight(float (&d)[88], uint64_t a, uint64_t b) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n176k16.f32.bf16.bf16 {" MO_W0 ", " MO_W16 ", " MO_W32 ", " MO_W48 ", " MO_W64 ", " MO_X80 "}, %88, %89, p, 1, 1, %90, %91;}" : MO_V16(0), MO_V16(16), MO_V16(32), MO_V16(48), MO_V16(64), MO_V8(80) : "l"(a), "l"(b), "n"(TA), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n176k16.f32.f16.f16 {" MO_W0 ", " MO_W16 ", " MO_W32 ", " MO_W48 ", " MO_W64 ", " MO_X80 "}, %88, %89, p, 1, 1, %90, %91;}" : MO_V16(0), MO_V16(16), MO_V16(32), MO_V16(48), MO_V16(64), MO_V8(80) : "l"(a), "l"(b), "n"(TA), "n"(TB));
}
template <class T, int TA, int TB = 0> MO_FN void wgmma_weight(float (&d)[96], uint64_t a, uint64_t b) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" MO_W0 ", " MO_W16 ", " MO_W32 ", " MO_W48 ", " MO_W64 ", " MO_W80 "}, %96, %97, p, 1, 1, %98, %99;}" : MO_V16(0), MO_V16(16), MO_V16(32), MO_V16(48), MO_V16(64), MO_V16(80) : "l"(a), "l"(b), "n"(TA), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {" MO_W0 ", " MO_W16 ", " MO_W32 ", " MO_W48 ", " MO_W64 ", " MO_W80 "}, %96, %97, p, 1, 1, %98, %99;}" : MO_V16(0), MO_V16(16), MO_V16(32), MO_V16(48), MO_V16(64), MO_V16(80) : "l"(a), "l"(b), "n"(TA), "n"(TB));
}
template <class T, int TA, int TB = 0> MO_FN void wgmma_weight(float (&d)[104], uint64_t a, uint64_t b) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n208k16.f32.bf16.bf16 {" MO_W0 ", " MO_W16 ", " MO_W32 ", " MO_W48 ", " MO_W64 ", " MO_W80 ", " MO_X96 "}, %104, %105, p, 1, 1, %106, %107;}" : MO_V16(0), MO_V16(16), MO_V16(32), MO_V16(48), MO_V16(64), MO_V16(80), MO_V8(96) : "l"(a), "l"(b), "n"(TA), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n208k16.f32.f16.f16 {" MO_W0 ", " MO_W16 ", " MO_W32 ", " MO_W48 ", " MO_W64 ", " MO_W80 ", " MO_X96 "}, %104, %105, p, 1, 1, %106, %107;}" : MO_V16(0), MO_V16(16), MO_V16(32), MO_V16(48), MO_V16(64), MO_V16(80), MO_V8(96) : "l"(a), "l"(b), "n"(TA), "n"(TB));
}
template <class T, int TA, int TB = 0> MO_FN void wgmma_weight(float (&d)[112], uint64_t a, uint64_t b) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n224k16.f32.bf16.bf16 {" MO_W0 ", " MO_W16 ", " MO_W32 ", " MO_W48 ", " MO_W64 ", " MO_W80 ", " MO_W96 "}, %112, %113, p, 1, 1, %114, %115;}" : MO_V16(0), MO_V16(16), MO_V16(32), MO_V16(48), MO_V16(64), MO_V16(80), MO_V16(96) : "l"(a), "l"(b), "n"(TA), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n224k16.f32.f16.f16 {" MO_W0 ", " MO_W16 ", " MO_W32 ", " MO_W48 ", " MO_W64 ", " MO_W80 ", " MO_W96 "}, %112, %113, p, 1, 1, %114, %115;}" : MO_V16(0), MO_V16(16), MO_V16(32), MO_V16(48), MO_V16(64), MO_V16(80), MO_V16(96) : "l"(a), "l"(b), "n"(TA), "n"(TB));
}
template <class T, int TA, int TB = 0> MO_FN void wgmma_weight(float (&d)[120], uint64_t a, uint64_t b) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n240k16.f32.bf16.bf16 {" MO_W0 ", " MO_W16 ", " MO_W32 ", " MO_W48 ", " MO_W64 ", " MO_W80 ", " MO_W96 ", " MO_X112 "}, %120, %121, p, 1, 1, %122, %123;}" : MO_V16(0), MO_V16(16), MO_V16(32), MO_V16(48), MO_V16(64), MO_V16(80), MO_V16(96), MO_V8(112) : "l"(a), "l"(b), "n"(TA), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n240k16.f32.f16.f16 {" MO_W0 ", " MO_W16 ", " MO_W32 ", " MO_W48 ", " MO_W64 ", " MO_W80 ", " MO_W96 ", " MO_X112 "}, %120, %121, p, 1, 1, %122, %123;}" : MO_V16(0), MO_V16(16), MO_V16(32), MO_V16(48), MO_V16(64), MO_V16(80), MO_V16(96), MO_V8(112) : "l"(a), "l"(b), "n"(TA), "n"(TB));
}
template <class T, int TA, int TB = 0> MO_FN void wgmma_weight(float (&d)[128], uint64_t a, uint64_t b) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" MO_W0 ", " MO_W16 ", " MO_W32 ", " MO_W48 ", " MO_W64 ", " MO_W80 ", " MO_W96 ", " MO_W112 "}, %128, %129, p, 1, 1, %130, %131;}" : MO_V16(0), MO_V16(16), MO_V16(32), MO_V16(48), MO_V16(64), MO_V16(80), MO_V16(96), MO_V16(112) : "l"(a), "l"(b), "n"(TA), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" MO_W0 ", " MO_W16 ", " MO_W32 ", " MO_W48 ", " MO_W64 ", " MO_W80 ", " MO_W96 ", " MO_W112 "}, %128, %129, p, 1, 1, %130, %131;}" : MO_V16(0), MO_V16(16), MO_V16(32), MO_V16(48), MO_V16(64), MO_V16(80), MO_V16(96), MO_V16(112) : "l"(a), "l"(b), "n"(TA), "n"(TB));
}
#undef MO_W0
#undef MO_W16
#undef MO_W32
#undef MO_W48
#undef MO_W64
#undef MO_W80
#undef MO_W96
#undef MO_W112
#undef MO_V16
#undef MO_X64
#undef MO_X80
#undef MO_X96
#undef MO_X112
#undef MO_V8

/// The box of `map` at (x, y) into the shared memory of every block of the cluster in `blocks` (a bit each), at the same place as `to` here; its bytes complete on each one's `bar`.
MO_FN void copy_box_to(uint32_t to, const TensorMap& map, int x, int y, uint32_t bar, int blocks) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to), "l"(&map), "r"(x), "r"(y), "r"(bar), "h"((unsigned short)blocks)
               : "memory");
}
MO_FN void copy_box_to(uint32_t to, const TensorMap& map, int x, int y, int z, uint32_t bar, int blocks) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to), "l"(&map), "r"(x), "r"(y), "r"(z), "r"(bar),
               "h"((unsigned short)blocks)
               : "memory");
}
/// Arrives at another block's barrier: `bar` is a remote_address. What it lets go was read by the asynchronous proxy, which has finished; no order of ordinary accesses is asked for (release.cluster costs half a microsecond).
MO_FN void mbarrier_arrive_cluster(uint32_t bar) { asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory"); }

#endif

}  // namespace mo
