// Device library, part 0: elements, arithmetic and the exchange between threads. Everything that emitted kernels do to a value is one of these functions, generic in the element type
// where it can be, so that a kernel's text can be instantiated over other elements and its primitives replaced by host twins. Inline PTX stands only in such small functions.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

namespace mo {

#define MO_FN __device__ __forceinline__

// ---- elements: storage types and the type values are computed in
using f16 = __half;
using bf16 = __nv_bfloat16;
using f32 = float;
using b8 = unsigned char;   // bool: 0 or 1

MO_FN float load(f16 x) { return __half2float(x); }
MO_FN float load(bf16 x) { return __bfloat162float(x); }
MO_FN float load(float x) { return x; }
MO_FN float load(b8 x) { return x ? 1.0f : 0.0f; }
template <class T> MO_FN T store(float x);   // to the nearest, ties to even
template <> MO_FN f16 store<f16>(float x) { return __float2half_rn(x); }
template <> MO_FN bf16 store<bf16>(float x) { return __float2bfloat16_rn(x); }
template <> MO_FN float store<float>(float x) { return x; }
template <> MO_FN b8 store<b8>(float x) { return x != 0.0f; }

// ---- arithmetic: the names that maps.def's formulas become
MO_FN float constant(float c) { return c; }
MO_FN float add(float x, float y) { return x + y; }
MO_FN float sub(float x, float y) { return x - y; }
MO_FN float mul(float x, float y) { return x * y; }
MO_FN float div(float x, float y) { return __fdiv_rn(x, y); }
MO_FN float neg(float x) { return -x; }
MO_FN float exp(float x) { return ::expf(x); }
MO_FN float log(float x) { return ::logf(x); }
MO_FN float sqrt(float x) { return __fsqrt_rn(x); }
MO_FN float rsqrt(float x) { return ::rsqrtf(x); }
MO_FN float abs(float x) { return ::fabsf(x); }
MO_FN float tanh(float x) { return ::tanhf(x); }
MO_FN float erf(float x) { return ::erff(x); }
MO_FN float pow(float x, float y) { return ::powf(x, y); }
MO_FN float max(float x, float y) { return x != x || y != y ? x + y : ::fmaxf(x, y); }   // NaN wins, as in the reference
MO_FN float min(float x, float y) { return x != x || y != y ? x + y : ::fminf(x, y); }
MO_FN float equal(float x, float y) { return x == y ? 1.0f : 0.0f; }
MO_FN float less(float x, float y) { return x < y ? 1.0f : 0.0f; }
MO_FN float select(float c, float x, float y) { return c != 0.0f ? x : y; }
MO_FN float sigmoid(float x) { return 1.0f / (1.0f + ::expf(-x)); }
MO_FN float silu(float x) { return x / (1.0f + ::expf(-x)); }
MO_FN float fma(float x, float y, float z) { return ::fmaf(x, y, z); }
template <class T> MO_FN float round_to(float x) { return load(store<T>(x)); }
MO_FN float infinity() { return __int_as_float(0x7f800000); }

// ---- a thread's place
MO_FN int thread_id() { return threadIdx.x; }
MO_FN int lane_id() { return threadIdx.x & 31; }
MO_FN int warp_id() { return threadIdx.x >> 5; }
MO_FN int block_id() { return blockIdx.x; }
MO_FN void barrier() { __syncthreads(); }
MO_FN void warp_barrier() { __syncwarp(); }
MO_FN float shuffle_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }

// ---- reductions. Sum and Max are (identity, combine); orders are fixed, so results repeat bit for bit.
struct Sum {
  static MO_FN float identity() { return 0.0f; }
  static MO_FN float combine(float x, float y) { return add(x, y); }
};
struct Max {
  static MO_FN float identity() { return -infinity(); }
  static MO_FN float combine(float x, float y) { return max(x, y); }
};
/// Combines over groups of LANES consecutive lanes (a power of two, at most 32); every lane has the result.
template <class R, int LANES> MO_FN float lanes_reduce(float x) {
#pragma unroll
  for (int mask = LANES / 2; mask > 0; mask /= 2) x = R::combine(x, shuffle_xor(x, mask));
  return x;
}
/// Combines over the whole block of any number of threads that is a multiple of 32; every thread has the result. scratch: 32 floats of shared memory.
template <class R> MO_FN float block_reduce(float x, float* scratch) {
  x = lanes_reduce<R, 32>(x);
  barrier();
  if (lane_id() == 0) scratch[warp_id()] = x;
  barrier();
  const int warps = (blockDim.x + 31) / 32;
  x = R::identity();
  for (int w = 0; w < warps; w++) x = R::combine(x, scratch[w]);
  return x;
}

}  // namespace mo
