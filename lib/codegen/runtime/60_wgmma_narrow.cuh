// Device library, part 60b: wgmma with its 64-row operand in registers and 16 to 112 columns that are no multiple of 64: heads of 40, 72, 80 or 96 columns in attention (63_attend_groups.cuh), which would multiply their padding.
// Source: PTX ISA 9.7.15 (wgmma; N is any multiple of 8).
#pragma once
#include "60_wgmma.cuh"

namespace mo {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// What the asm text calls the sums, by groups of eight, and the sums.
#define MO_P0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define MO_P8 "%8, %9, %10, %11, %12, %13, %14, %15"
#define MO_P16 "%16, %17, %18, %19, %20, %21, %22, %23"
#define MO_P24 "%24, %25, %26, %27, %28, %29, %30, %31"
#define MO_P32 "%32, %33, %34, %35, %36, %37, %38, %39"
#define MO_P40 "%40, %41, %42, %43, %44, %45, %46, %47"
#define MO_P48 "%48, %49, %50, %51, %52, %53, %54, %55"
#define MO_Q8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
template <class T, int TB> MO_FN void wgmma_registers(float (&d)[8], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, int add) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, %13, 0;\nwgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {" MO_P0 "}, {%8, %9, %10, %11}, %12, p, 1, 1, %14;}" : MO_Q8(0) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, %13, 0;\nwgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {" MO_P0 "}, {%8, %9, %10, %11}, %12, p, 1, 1, %14;}" : MO_Q8(0) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add), "n"(TB));
}
template <class T, int TB> MO_FN void wgmma_registers(float (&d)[16], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, int add) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, %21, 0;\nwgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" MO_P0 ", " MO_P8 "}, {%16, %17, %18, %19}, %20, p, 1, 1, %22;}" : MO_Q8(0), MO_Q8(8) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, %21, 0;\nwgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {" MO_P0 ", " MO_P8 "}, {%16, %17, %18, %19}, %20, p, 1, 1, %22;}" : MO_Q8(0), MO_Q8(8) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add), "n"(TB));
}
template <class T, int TB> MO_FN void wgmma_registers(float (&d)[24], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, int add) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, %29, 0;\nwgmma.mma_async.sync.aligned.m64n48k16.f32.bf16.bf16 {" MO_P0 ", " MO_P8 ", " MO_P16 "}, {%24, %25, %26, %27}, %28, p, 1, 1, %30;}" : MO_Q8(0), MO_Q8(8), MO_Q8(16) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, %29, 0;\nwgmma.mma_async.sync.aligned.m64n48k16.f32.f16.f16 {" MO_P0 ", " MO_P8 ", " MO_P16 "}, {%24, %25, %26, %27}, %28, p, 1, 1, %30;}" : MO_Q8(0), MO_Q8(8), MO_Q8(16) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add), "n"(TB));
}
template <class T, int TB> MO_FN void wgmma_registers(float (&d)[40], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, int add) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, %45, 0;\nwgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {" MO_P0 ", " MO_P8 ", " MO_P16 ", " MO_P24 ", " MO_P32 "}, {%40, %41, %42, %43}, %44, p, 1, 1, %46;}" : MO_Q8(0), MO_Q8(8), MO_Q8(16), MO_Q8(24), MO_Q8(32) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, %45, 0;\nwgmma.mma_async.sync.aligned.m64n80k16.f32.f16.f16 {" MO_P0 ", " MO_P8 ", " MO_P16 ", " MO_P24 ", " MO_P32 "}, {%40, %41, %42, %43}, %44, p, 1, 1, %46;}" : MO_Q8(0), MO_Q8(8), MO_Q8(16), MO_Q8(24), MO_Q8(32) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add), "n"(TB));
}
template <class T, int TB> MO_FN void wgmma_registers(float (&d)[48], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, int add) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, %53, 0;\nwgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {" MO_P0 ", " MO_P8 ", " MO_P16 ", " MO_P24 ", " MO_P32 ", " MO_P40 "}, {%48, %49, %50, %51}, %52, p, 1, 1, %54;}" : MO_Q8(0), MO_Q8(8), MO_Q8(16), MO_Q8(24), MO_Q8(32), MO_Q8(40) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, %53, 0;\nwgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {" MO_P0 ", " MO_P8 ", " MO_P16 ", " MO_P24 ", " MO_P32 ", " MO_P40 "}, {%48, %49, %50, %51}, %52, p, 1, 1, %54;}" : MO_Q8(0), MO_Q8(8), MO_Q8(16), MO_Q8(24), MO_Q8(32), MO_Q8(40) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add), "n"(TB));
}
template <class T, int TB> MO_FN void wgmma_registers(float (&d)[56], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, int add) {
  if constexpr (WgmmaIsBf16<T>::value) asm volatile("{.reg .pred p; setp.ne.b32 p, %61, 0;\nwgmma.mma_async.sync.aligned.m64n112k16.f32.bf16.bf16 {" MO_P0 ", " MO_P8 ", " MO_P16 ", " MO_P24 ", " MO_P32 ", " MO_P40 ", " MO_P48 "}, {%56, %57, %58, %59}, %60, p, 1, 1, %62;}" : MO_Q8(0), MO_Q8(8), MO_Q8(16), MO_Q8(24), MO_Q8(32), MO_Q8(40), MO_Q8(48) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add), "n"(TB));
  else asm volatile("{.reg .pred p; setp.ne.b32 p, %61, 0;\nwgmma.mma_async.sync.aligned.m64n112k16.f32.f16.f16 {" MO_P0 ", " MO_P8 ", " MO_P16 ", " MO_P24 ", " MO_P32 ", " MO_P40 ", " MO_P48 "}, {%56, %57, %58, %59}, %60, p, 1, 1, %62;}" : MO_Q8(0), MO_Q8(8), MO_Q8(16), MO_Q8(24), MO_Q8(32), MO_Q8(40), MO_Q8(48) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add), "n"(TB));
}
#undef MO_P0
#undef MO_P8
#undef MO_P16
#undef MO_P24
#undef MO_P32
#undef MO_P40
#undef MO_P48
#undef MO_Q8

#endif

}  // namespace mo
