// Device library, part 0: elements, arithmetic and the exchange between threads. Everything that emitted kernels do to a value is one of these functions, generic in the element type
// where it can be, so that a kernel's text can be instantiated over other elements and its primitives replaced by host twins. Inline PTX stands only in such small functions.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

// A read through the cache for constants. With dependent launches the compiler would move it in front of the wait for the kernel that writes: then it is an ordinary one.
#ifdef MO_ORDERED_LOADS
#define MO_LDG(p) (*(p))
#else
#define MO_LDG(p) __ldg(p)
#endif

namespace mo {

#define MO_FN __device__ __forceinline__

// ---- elements: storage types and the type values are computed in
using f16 = __half;
using bf16 = __nv_bfloat16;
using f32 = float;
using b8 = unsigned char;   // bool: 0 or 1
struct tf32 { uint32_t bits; };   // a float32 with 10 bits of mantissa, the other 13 zero: an operand of tensor cores

/// To the nearest TF32 number, ties away from zero (PTX ISA: cvt.rna.tf32.f32).
MO_FN uint32_t round_tf32(float x) { uint32_t r; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x)); return r; }

MO_FN float load(f16 x) { return __half2float(x); }
MO_FN float load(bf16 x) { return __bfloat162float(x); }
MO_FN float load(float x) { return x; }
MO_FN float load(b8 x) { return x ? 1.0f : 0.0f; }
MO_FN float load(tf32 x) { return __int_as_float((int)x.bits); }
template <class T> MO_FN T store(float x);   // to the nearest, ties to even
template <> MO_FN f16 store<f16>(float x) { return __float2half_rn(x); }
template <> MO_FN bf16 store<bf16>(float x) { return __float2bfloat16_rn(x); }
template <> MO_FN float store<float>(float x) { return x; }
template <> MO_FN b8 store<b8>(float x) { return x != 0.0f; }
template <> MO_FN tf32 store<tf32>(float x) { return {round_tf32(x)}; }

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
MO_FN float sin(float x) { return ::sinf(x); }
MO_FN float cos(float x) { return ::cosf(x); }
MO_FN float floor(float x) { return ::floorf(x); }
MO_FN float nearest(float x) { return ::rintf(x); }
MO_FN float log1p(float x) { return ::log1pf(x); }
MO_FN float expm1(float x) { return ::expm1f(x); }
MO_FN float pow(float x, float y) { return ::powf(x, y); }
#ifdef __CUDA_ARCH__   // NaN wins, as in the reference
MO_FN float max(float x, float y) { float r; asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y)); return r; }
MO_FN float min(float x, float y) { float r; asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y)); return r; }
#else
MO_FN float max(float x, float y) { return x != x || y != y ? x + y : ::fmaxf(x, y); }
MO_FN float min(float x, float y) { return x != x || y != y ? x + y : ::fminf(x, y); }
#endif
MO_FN float equal(float x, float y) { return x == y ? 1.0f : 0.0f; }
MO_FN float less(float x, float y) { return x < y ? 1.0f : 0.0f; }
MO_FN float select(float c, float x, float y) { return c != 0.0f ? x : y; }
// Divisors from 1 up (past 2^126 a quotient is 0, which is as near): two units in the last place instead of a half, and no subroutine, whose branches keep neighbours from overlapping (silu: 100 cycles each).
MO_FN float sigmoid(float x) { return __fdividef(1.0f, 1.0f + ::expf(-x)); }
MO_FN float silu(float x) { return __fdividef(x, 1.0f + ::expf(-x)); }
/// e^x for results that are stored in 16 bits: half the instructions of expf, a few units in the last place of float32 for every power of two in the result.
#ifdef __CUDA_ARCH__
MO_FN float exp_narrow(float x) { float y; asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f)); return y; }
#else
MO_FN float exp_narrow(float x) { return ::expf(x); }
#endif
MO_FN float fma(float x, float y, float z) { return ::fmaf(x, y, z); }
template <class T> MO_FN float round_to(float x) { return load(store<T>(x)); }
MO_FN float infinity() { return __int_as_float(0x7f800000); }

// ---- packs: W neighbouring elements of one thread. Every function above also takes packs, mixed with single values, which count for all W.
template <int W> struct Width {};
template <int W> struct Pack { float v[W]; };
template <class T> struct WidthOf { static constexpr int value = 0; };
template <int W> struct WidthOf<Pack<W>> { static constexpr int value = W; };
template <int W> struct PackIf { using type = Pack<W>; };
template <> struct PackIf<0> {};   // no packs: the overload is not considered
constexpr __host__ __device__ int widest(int a, int b, int c = 0) { return a > b ? (a > c ? a : c) : (b > c ? b : c); }
template <class... T> struct Packed;
template <class A> struct Packed<A> : PackIf<WidthOf<A>::value> {};
template <class A, class B> struct Packed<A, B> : PackIf<widest(WidthOf<A>::value, WidthOf<B>::value)> {};
template <class A, class B, class C> struct Packed<A, B, C> : PackIf<widest(WidthOf<A>::value, WidthOf<B>::value, WidthOf<C>::value)> {};
MO_FN float element(float x, int) { return x; }
template <int W> MO_FN float element(const Pack<W>& x, int i) { return x.v[i]; }
#define MO_PACK1(f) template <class A> MO_FN typename Packed<A>::type f(A x) { typename Packed<A>::type r; _Pragma("unroll") for (int i = 0; i < WidthOf<A>::value; i++) r.v[i] = f(x.v[i]); return r; }
#define MO_PACK2(f) template <class A, class B> MO_FN typename Packed<A, B>::type f(A x, B y) { using R = typename Packed<A, B>::type; R r; _Pragma("unroll") for (int i = 0; i < WidthOf<R>::value; i++) r.v[i] = f(element(x, i), element(y, i)); return r; }
#define MO_PACK3(f) template <class A, class B, class C> MO_FN typename Packed<A, B, C>::type f(A x, B y, C z) { using R = typename Packed<A, B, C>::type; R r; _Pragma("unroll") for (int i = 0; i < WidthOf<R>::value; i++) r.v[i] = f(element(x, i), element(y, i), element(z, i)); return r; }
MO_PACK1(neg) MO_PACK1(exp) MO_PACK1(log) MO_PACK1(sqrt) MO_PACK1(rsqrt) MO_PACK1(abs) MO_PACK1(tanh) MO_PACK1(erf) MO_PACK1(sigmoid) MO_PACK1(silu)
MO_PACK1(sin) MO_PACK1(cos) MO_PACK1(floor) MO_PACK1(nearest) MO_PACK1(log1p) MO_PACK1(expm1)
MO_PACK2(add) MO_PACK2(sub) MO_PACK2(mul) MO_PACK2(div) MO_PACK2(pow) MO_PACK2(max) MO_PACK2(min) MO_PACK2(equal) MO_PACK2(less)
MO_PACK3(select) MO_PACK3(fma)
/// x / y for many x and one y, within three units in the last place: two products each, no branch. The scale keeps the reciprocal a normal number: a quotient that float32 holds does not get lost on the way.
struct Divisor { float scale, inverse; };
MO_FN Divisor divisor(float y) {
  const float a = ::fabsf(y), scale = a < 5.421010862427522e-20f ? 18446744073709551616.0f : a > 18446744073709551616.0f ? 5.421010862427522e-20f : 1.0f;   // 2^64
  return {scale, __fdividef(1.0f, y * scale)};   // of 2^-85 .. 2^64, 0 and infinity
}
MO_FN float divide(float x, Divisor d) { return x * d.scale * d.inverse; }
/// As above, as near as a division: what a quotient leaves is divided, too. Of a divisor that is 0 or infinite nothing is left.
struct NearDivisor { float scale, inverse, scaled; };
MO_FN NearDivisor near_divisor(float y) {
  const Divisor d = divisor(y);
  const float scaled = y * d.scale, left = ::fmaf(-scaled, d.inverse, 1.0f);
  const bool ordinary = scaled != 0.0f && ::fabsf(scaled) < infinity();
  return {d.scale, ordinary ? ::fmaf(d.inverse, left, d.inverse) : d.inverse, ordinary ? scaled : 0.0f};
}
MO_FN float divide(float x, NearDivisor d) {
  const float dividend = x * d.scale, quotient = dividend * d.inverse;
  const float nearer = ::fmaf(::fmaf(-quotient, d.scaled, dividend), d.inverse, quotient);
  return ::fabsf(quotient) < infinity() && d.scaled != 0.0f ? nearer : quotient;
}
template <int W, class D> struct DivisorPack { D d[W]; };
template <int W> MO_FN DivisorPack<W, Divisor> divisor(Pack<W> y) {
  DivisorPack<W, Divisor> r;
#pragma unroll
  for (int i = 0; i < W; i++) r.d[i] = divisor(y.v[i]);
  return r;
}
template <int W> MO_FN DivisorPack<W, NearDivisor> near_divisor(Pack<W> y) {
  DivisorPack<W, NearDivisor> r;
#pragma unroll
  for (int i = 0; i < W; i++) r.d[i] = near_divisor(y.v[i]);
  return r;
}
template <int W> MO_FN Pack<W> divide(Pack<W> x, Divisor d) {
  Pack<W> r;
#pragma unroll
  for (int i = 0; i < W; i++) r.v[i] = divide(x.v[i], d);
  return r;
}
template <int W> MO_FN Pack<W> divide(Pack<W> x, NearDivisor d) {
  Pack<W> r;
#pragma unroll
  for (int i = 0; i < W; i++) r.v[i] = divide(x.v[i], d);
  return r;
}
template <int W, class D, class A> MO_FN Pack<W> divide(A x, const DivisorPack<W, D>& d) {
  Pack<W> r;
#pragma unroll
  for (int i = 0; i < W; i++) r.v[i] = divide(element(x, i), d.d[i]);
  return r;
}
template <class T, class A> MO_FN typename Packed<A>::type round_to(A x) { typename Packed<A>::type r; _Pragma("unroll") for (int i = 0; i < WidthOf<A>::value; i++) r.v[i] = round_to<T>(x.v[i]); return r; }
/// W neighbouring elements in memory, with the alignment of one access.
template <class T, int W> struct alignas(sizeof(T) * W > 16 ? 16 : sizeof(T) * W) Vector { T v[W]; };
template <class T> MO_FN float load_pack(const T* p, Width<1>) { return load(*p); }
template <class T, int W> MO_FN Pack<W> load_pack(const T* p, Width<W>) {   // p is a multiple of the vector's alignment
  const Vector<T, W> u = *reinterpret_cast<const Vector<T, W>*>(p);
  Pack<W> r;
#pragma unroll
  for (int i = 0; i < W; i++) r.v[i] = load(u.v[i]);
  return r;
}
template <int W, class T, class A> MO_FN void store_pack(T* p, A x) {
  Vector<T, W> u;
#pragma unroll
  for (int i = 0; i < W; i++) u.v[i] = store<T>(element(x, i));
  *reinterpret_cast<Vector<T, W>*>(p) = u;
}

/// Reads now: neither the compiler nor the assembler moves it behind a later barrier, where it would wait for device memory a second time.
MO_FN uint4 read_now(const uint4* p) { uint4 r; asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p) : "memory"); return r; }
/// The same for what no other thread of the multiprocessor reads: no place in its cache (64 rows of three tensors: 2.82 to 2.74 us).
MO_FN uint4 read_once_now(const uint4* p) { uint4 r; asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p) : "memory"); return r; }
MO_FN unsigned read_now(const unsigned* p) { unsigned r; asm volatile("ld.global.u32 %0, [%1];" : "=r"(r) : "l"(p) : "memory"); return r; }
MO_FN uint2 read_now(const uint2* p) { uint2 r; asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(r.x), "=r"(r.y) : "l"(p) : "memory"); return r; }

// ---- a thread's place
MO_FN int thread_id() { return threadIdx.x; }
MO_FN int lane_id() { return threadIdx.x & 31; }
MO_FN int warp_id() { return threadIdx.x >> 5; }
/// A thread's number among THREADS that work together: a warp (32) or the whole block.
template <int THREADS> MO_FN int member() { return THREADS == 32 ? lane_id() : thread_id(); }
MO_FN int block_id() { return blockIdx.x; }
MO_FN int batch_id() { return blockIdx.y; }   // of kernels whose products stand beside each other
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
template <class R> MO_FN float reduce_pack(float x) { return x; }
template <class R> MO_FN float reduce_pack(Pack<2> x) { return R::combine(x.v[0], x.v[1]); }
template <class R> MO_FN float reduce_pack(Pack<4> x) { return R::combine(R::combine(x.v[0], x.v[1]), R::combine(x.v[2], x.v[3])); }
template <class R> MO_FN float reduce_pack(Pack<8> x) {
  return R::combine(R::combine(R::combine(x.v[0], x.v[1]), R::combine(x.v[2], x.v[3])), R::combine(R::combine(x.v[4], x.v[5]), R::combine(x.v[6], x.v[7])));
}
/// Combines over groups of LANES consecutive lanes (a power of two, at most 32); every lane has the result.
template <class R, int LANES> MO_FN float lanes_reduce(float x) {
#pragma unroll
  for (int mask = LANES / 2; mask > 0; mask /= 2) x = R::combine(x, shuffle_xor(x, mask));
  return x;
}

// ---- clusters (PTX ISA: barrier.cluster, mapa, st.shared::cluster): the blocks of a cluster write to each other's shared memory
MO_FN uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
MO_FN int cluster_rank() { uint32_t r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return (int)r; }
MO_FN void cluster_arrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }   // releases this block's writes
MO_FN void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }       // acquires the others'
/// Writes to the same place of shared memory in block `rank` of the cluster; p is a multiple of 16 bytes.
MO_FN void store_remote(const float* p, int rank, Pack<4> v) {
  uint32_t a;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(a) : "r"(shared_address(p)), "r"(rank));
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(a), "f"(v.v[0]), "f"(v.v[1]), "f"(v.v[2]), "f"(v.v[3]) : "memory");
}
#endif

}  // namespace mo
