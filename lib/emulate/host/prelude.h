// What stands in front of an emulated kernel: CUDA's words for a host compiler. Float is the type that kernels call float: the same four
// bytes, holding a float or, in field mode, a field element (field.h). Every access to memory is reported by the compiler's own
// instrumentation (-fsanitize=thread, whose functions are defined here) to the engine behind the table emu (api.h).
#include <stddef.h>

#define EMU_QUIET __attribute__((no_sanitize("thread")))
#define EMU_PC __builtin_return_address(0)
// What the engine sets: the table; whether values are field elements; what happened to them (field.h); the running thread, written anew
// whenever another one runs. The constant ones are so for every single thread, and their reads need no report.
extern "C" {
__attribute__((visibility("default"))) const EmuApi* emu;
__attribute__((visibility("default"))) uint32_t emu_happened;
extern const uint32_t emu_field;
extern const EmuThread emu_thread;
}
asm(".data\n.globl emu_field\n.balign 16\nemu_field: .zero 16\n.globl emu_thread\nemu_thread: .zero 64\n.text\n");

// ---- the compiler's hooks
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}
#define EMU_ACCESS(bytes) \
  EMU_QUIET void __tsan_read##bytes(void* p) { emu->access(p, bytes, 0, EMU_PC); } \
  EMU_QUIET void __tsan_write##bytes(void* p) { emu->access(p, bytes, 1, EMU_PC); } \
  EMU_QUIET void __tsan_unaligned_read##bytes(void* p) { emu->access(p, bytes, 0, EMU_PC); } \
  EMU_QUIET void __tsan_unaligned_write##bytes(void* p) { emu->access(p, bytes, 1, EMU_PC); } \
  EMU_QUIET void __tsan_volatile_read##bytes(void* p) { emu->access(p, bytes, 0, EMU_PC); } \
  EMU_QUIET void __tsan_volatile_write##bytes(void* p) { emu->access(p, bytes, 1, EMU_PC); } \
  EMU_QUIET void __tsan_read_write##bytes(void* p) { emu->access(p, bytes, 0, EMU_PC); emu->access(p, bytes, 1, EMU_PC); } \
  EMU_QUIET void __tsan_unaligned_read_write##bytes(void* p) { emu->access(p, bytes, 0, EMU_PC); emu->access(p, bytes, 1, EMU_PC); }
EMU_ACCESS(1) EMU_ACCESS(2) EMU_ACCESS(4) EMU_ACCESS(8) EMU_ACCESS(16)
EMU_QUIET void __tsan_read_range(void* p, unsigned long n) { emu->access(p, n, 0, EMU_PC); }
EMU_QUIET void __tsan_write_range(void* p, unsigned long n) { emu->access(p, n, 1, EMU_PC); }
EMU_QUIET void* __tsan_memcpy(void* to, const void* from, unsigned long n) {
  emu->access(from, n, 0, EMU_PC);
  emu->access(to, n, 1, EMU_PC);
  return __builtin_memcpy(to, from, n);
}
EMU_QUIET void* __tsan_memset(void* to, int c, unsigned long n) { emu->access(to, n, 1, EMU_PC); return __builtin_memset(to, c, n); }
EMU_QUIET void* __tsan_memmove(void* to, const void* from, unsigned long n) {
  emu->access(from, n, 0, EMU_PC);
  emu->access(to, n, 1, EMU_PC);
  return __builtin_memmove(to, from, n);
}
struct EmuPlace { const char* file; uint32_t line, column; };
struct EmuMismatch { EmuPlace place; const void* type; unsigned char log_align, kind; };
EMU_QUIET void __ubsan_handle_type_mismatch_v1(EmuMismatch* what, unsigned long p) {
  char text[96];
  __builtin_snprintf(text, sizeof text, "address ends in 0x%02lx where a multiple of %d belongs", p & 255, 1 << what->log_align);
  emu->fail("misaligned access", text, EMU_PC);
}
struct EmuOutOfBounds { EmuPlace place; const void *array, *index; };
EMU_QUIET void __ubsan_handle_out_of_bounds(EmuOutOfBounds*, unsigned long i) {
  char text[64];
  __builtin_snprintf(text, sizeof text, "index %ld of an array of registers", static_cast<long>(i));
  emu->fail("out of bounds", text, EMU_PC);
}
}

// ---- values
typedef float emu_float;
template <class T> struct EmuIsNumber { static constexpr bool value = false; };
#define EMU_NUMBER(t) template <> struct EmuIsNumber<t> { static constexpr bool value = true; };
EMU_NUMBER(float)
EMU_NUMBER(double) EMU_NUMBER(int) EMU_NUMBER(unsigned) EMU_NUMBER(long) EMU_NUMBER(unsigned long) EMU_NUMBER(long long)
    EMU_NUMBER(unsigned long long) EMU_NUMBER(short) EMU_NUMBER(unsigned short) EMU_NUMBER(bool) EMU_NUMBER(signed char)
        EMU_NUMBER(unsigned char) template <bool B, class T = int>
        struct EmuIf {};
template <class T> struct EmuIf<true, T> { using type = T; };

inline bool emu_is_field() { return emu_field != 0; }
inline uint32_t emu_bits(emu_float x) { return __builtin_bit_cast(uint32_t, x); }
inline emu_float emu_value(uint32_t x) { return __builtin_bit_cast(emu_float, x); }

/// A literal that the compiler computes with (constexpr float).
struct EmuLiteral {
  emu_float v;
  constexpr EmuLiteral(emu_float x) : v(x) {}
};

struct Float {
  uint32_t bits;
  Float() = default;
  Float(EmuLiteral x) : Float(x.v) {}
  template <class T, typename EmuIf<EmuIsNumber<T>::value>::type = 0>
  Float(T x) : bits(emu_bits(static_cast<emu_float>(x))) {
    if (emu_is_field()) bits = mirage_field::from_float_bits(bits);
  }
  static Float of_bits(uint32_t b) { Float r; r.bits = b; return r; }
  static Float of(emu_float x) { return of_bits(emu_bits(x)); }   // float mode
  emu_float value() const { return emu_value(bits); }
  explicit operator bool() const { return *this != Float::of_bits(0); }
  // Narrowing and indexing with a computed number: floats only.
  template <class T, typename EmuIf<EmuIsNumber<T>::value>::type = 0> explicit operator T() const {
    if (emu_is_field()) emu->fail("not a field operation", "a computed number becomes an integer", EMU_PC);
    return static_cast<T>(value());
  }
  friend Float operator+(Float x, Float y) {
    return emu_is_field() ? of_bits(mirage_field::add(x.bits, y.bits)) : of(x.value() + y.value());
  }
  friend Float operator-(Float x, Float y) {
    return emu_is_field() ? of_bits(mirage_field::sub(x.bits, y.bits)) : of(x.value() - y.value());
  }
  friend Float operator*(Float x, Float y) {
    return emu_is_field() ? of_bits(mirage_field::mul(x.bits, y.bits)) : of(x.value() * y.value());
  }
  friend Float operator/(Float x, Float y) {
    return emu_is_field() ? of_bits(mirage_field::div(x.bits, y.bits, emu_happened)) : of(x.value() / y.value());
  }
  Float operator-() const { return emu_is_field() ? of_bits(mirage_field::neg(bits)) : of(-value()); }
  Float operator+() const { return *this; }
  Float& operator+=(Float y) { return *this = *this + y; }
  Float& operator-=(Float y) { return *this = *this - y; }
  Float& operator*=(Float y) { return *this = *this * y; }
  Float& operator/=(Float y) { return *this = *this / y; }
  /// Whether a denominator is zero is asked by comparing it with 0.
  friend void note_zero(Float x, Float y) {
    if ((x.bits == 0 && mirage_field::is_chance_zero(y.bits)) || (y.bits == 0 && mirage_field::is_chance_zero(x.bits)))
      emu_happened |= mirage_field::kZeroDenominator;
  }
  friend bool operator==(Float x, Float y) {
    if (emu_is_field()) note_zero(x, y);
    return emu_is_field() ? mirage_field::same(x.bits, y.bits) : x.value() == y.value();
  }
  friend bool operator!=(Float x, Float y) { return !(x == y); }
  friend bool operator<(Float x, Float y) {
    if (emu_is_field()) note_zero(x, y);
    return emu_is_field() ? mirage_field::less(x.bits, y.bits) : x.value() < y.value();
  }
  friend bool operator>(Float x, Float y) { return y < x; }
  friend bool operator<=(Float x, Float y) {
    if (emu_is_field()) note_zero(x, y);
    return emu_is_field() ? !mirage_field::less(y.bits, x.bits) : x.value() <= y.value();
  }
  friend bool operator>=(Float x, Float y) { return y <= x; }
};
#define EMU_FUNCTION(name, field_text, float_text) \
  inline Float name(Float x) { return emu_is_field() ? Float::of_bits(field_text) : Float::of(float_text); }
EMU_FUNCTION(expf, mirage_field::exp(x.bits, emu_happened), __builtin_expf(x.value()))
EMU_FUNCTION(logf, mirage_field::log(x.bits), __builtin_logf(x.value()))
EMU_FUNCTION(tanhf, mirage_field::tanh(x.bits), __builtin_tanhf(x.value()))
EMU_FUNCTION(erff, mirage_field::erf(x.bits), __builtin_erff(x.value()))
EMU_FUNCTION(sinf, mirage_field::sin(x.bits), __builtin_sinf(x.value()))
EMU_FUNCTION(cosf, mirage_field::cos(x.bits), __builtin_cosf(x.value()))
EMU_FUNCTION(floorf, mirage_field::floor(x.bits), __builtin_floorf(x.value()))
EMU_FUNCTION(rintf, mirage_field::nearest(x.bits), __builtin_rintf(x.value()))
EMU_FUNCTION(log1pf, mirage_field::log(mirage_field::add(mirage_field::from_float_bits(0x3f800000u), x.bits)), __builtin_log1pf(x.value()))
EMU_FUNCTION(expm1f, mirage_field::sub(mirage_field::exp(x.bits, emu_happened), mirage_field::from_float_bits(0x3f800000u)),
             __builtin_expm1f(x.value()))
EMU_FUNCTION(fabsf, mirage_field::abs(x.bits), __builtin_fabsf(x.value()))
EMU_FUNCTION(sqrtf, mirage_field::sqrt(x.bits), __builtin_sqrtf(x.value()))
EMU_FUNCTION(__fsqrt_rn, mirage_field::sqrt(x.bits), __builtin_sqrtf(x.value()))
/// 2^x where x was multiplied by log2 e: the field undoes that factor as the float that it is.
EMU_FUNCTION(exp2f, mirage_field::exp(mirage_field::div(x.bits, mirage_field::from_float_bits(0x3fb8aa3bu), emu_happened), emu_happened),
             __builtin_exp2f(x.value()))
inline Float rsqrtf(Float x) { return Float(1.0f) / sqrtf(x); }
inline Float __frcp_rn(Float x) { return Float(1.0f) / x; }
inline Float __fdiv_rn(Float x, Float y) { return x / y; }
inline Float __fdividef(Float x, Float y) { return x / y; }
inline Float __fadd_rn(Float x, Float y) { return x + y; }
inline Float __fmul_rn(Float x, Float y) { return x * y; }
inline Float __fsub_rn(Float x, Float y) { return x - y; }
inline Float __expf(Float x) { return expf(x); }
inline Float __logf(Float x) { return logf(x); }
inline Float powf(Float x, Float y) {
  return emu_is_field() ? Float::of_bits(mirage_field::pow(x.bits, y.bits)) : Float::of(__builtin_powf(x.value(), y.value()));
}
inline Float fmaf(Float x, Float y, Float z) {
  return emu_is_field() ? x * y + z : Float::of(__builtin_fmaf(x.value(), y.value(), z.value()));
}
inline Float __fmaf_rn(Float x, Float y, Float z) { return fmaf(x, y, z); }
/// Of numbers that are equal (zeros of both signs) the greater in sign.
EMU_QUIET inline emu_float emu_max(emu_float x, emu_float y) {
  return x == y ? emu_value(emu_bits(x) & emu_bits(y)) : __builtin_fmaxf(x, y);
}
EMU_QUIET inline emu_float emu_min(emu_float x, emu_float y) {
  return x == y ? emu_value(emu_bits(x) | emu_bits(y)) : __builtin_fminf(x, y);
}
/// Variables without a value hold this (-ftrivial-auto-var-init=pattern); a maximum would drop it as the least number there is.
constexpr uint32_t kEmuUnset = 0xfefefefeu;
inline bool emu_unset(Float x, Float y) { return x.bits == kEmuUnset || y.bits == kEmuUnset; }
inline Float fmaxf(Float x, Float y) {
  if (emu_unset(x, y)) return Float::of_bits(kEmuUnset);
  return emu_is_field() ? Float::of_bits(mirage_field::max(x.bits, y.bits)) : Float::of(emu_max(x.value(), y.value()));
}
inline Float fminf(Float x, Float y) {
  if (emu_unset(x, y)) return Float::of_bits(kEmuUnset);
  return emu_is_field() ? Float::of_bits(mirage_field::min(x.bits, y.bits)) : Float::of(emu_min(x.value(), y.value()));
}
inline Float __int_as_float(int x) { return Float::of_bits(static_cast<uint32_t>(x)); }
inline Float __uint_as_float(unsigned x) { return Float::of_bits(x); }
inline int __float_as_int(Float x) { return static_cast<int>(x.bits); }
inline unsigned __float_as_uint(Float x) { return x.bits; }
inline bool isinf(Float x) { return (x.bits & 0x7fffffffu) == 0x7f800000u; }
inline bool isnan(Float x) { return (x.bits & 0x7fffffffu) > 0x7f800000u; }

struct __half { uint16_t bits; };
struct __nv_bfloat16 { uint16_t bits; };
inline uint16_t emu_half_bits(emu_float f) {   // to the nearest, ties to even
  const uint32_t x = emu_bits(f), sign = x >> 16 & 0x8000u;
  uint32_t a = x & 0x7fffffffu;
  if (a > 0x7f800000u) return 0x7fff;
  if (a >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);   // 65536 and more; 65520 and more round up to it below
  if (a < 0x33000000u) return static_cast<uint16_t>(sign);
  if (a < 0x38800000u) {   // subnormal: in units of 2^-24
    const uint32_t shift = 126 - (a >> 23), m = (a & 0x7fffffu) | 0x800000u, low = m & ((1u << shift) - 1), half = 1u << (shift - 1);
    const uint32_t r = m >> shift;
    return static_cast<uint16_t>(sign | (r + (low > half || (low == half && (r & 1)) ? 1 : 0)));
  }
  a += 0xfffu + (a >> 13 & 1);
  return static_cast<uint16_t>(sign | ((a - 0x38000000u) >> 13));
}
inline emu_float emu_half_value(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16, e = h >> 10 & 31, m = h & 1023;
  if (e == 31) return emu_value(m ? 0x7fffffffu : sign | 0x7f800000u);   // the one NaN that conversions make
  if (e) return emu_value(sign | (e + 112) << 23 | m << 13);
  const emu_float v = static_cast<emu_float>(m) * 0x1p-24f;
  return sign ? -v : v;
}
inline uint16_t emu_bfloat_bits(emu_float f) {
  uint32_t x = emu_bits(f);
  if ((x & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  x += 0x7fffu + (x >> 16 & 1);
  return static_cast<uint16_t>(x >> 16);
}
inline Float __half2float(__half h) {
  return emu_is_field() ? Float::of_bits(mirage_field::from16(h.bits)) : Float::of(emu_half_value(h.bits));
}
inline Float __bfloat162float(__nv_bfloat16 h) {
  return emu_is_field() ? Float::of_bits(mirage_field::from16(h.bits)) : Float::of_bits(static_cast<uint32_t>(h.bits) << 16);
}
inline __half __float2half_rn(Float x) {
  __half h;
  h.bits = emu_is_field() ? mirage_field::to16(x.bits) : emu_half_bits(x.value());
  return h;
}
inline __nv_bfloat16 __float2bfloat16_rn(Float x) {
  __nv_bfloat16 h;
  h.bits = emu_is_field() ? mirage_field::to16(x.bits) : emu_bfloat_bits(x.value());
  return h;
}
inline __half __float2half(Float x) { return __float2half_rn(x); }
inline __nv_bfloat16 __float2bfloat16(Float x) { return __float2bfloat16_rn(x); }
inline __half __ushort_as_half(unsigned short x) { __half h; h.bits = x; return h; }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { __nv_bfloat16 h; h.bits = x; return h; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
struct alignas(4) __half2 { __half x, y; };
struct alignas(4) __nv_bfloat162 { __nv_bfloat16 x, y; };
inline __half2 __floats2half2_rn(Float x, Float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
inline __nv_bfloat162 __floats2bfloat162_rn(Float x, Float y) { return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)}; }

struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct int2 { int x, y; };
struct int4 { int x, y, z, w; };
struct alignas(8) float2 { Float x, y; };
struct alignas(16) float4 { Float x, y, z, w; };
inline __half2 __hmul2(__half2 x, __half2 y) {
  return {__float2half_rn(__half2float(x.x) * __half2float(y.x)), __float2half_rn(__half2float(x.y) * __half2float(y.y))};
}
inline __half2 __hadd2(__half2 x, __half2 y) {
  return {__float2half_rn(__half2float(x.x) + __half2float(y.x)), __float2half_rn(__half2float(x.y) + __half2float(y.y))};
}
inline __nv_bfloat162 __hmul2(__nv_bfloat162 x, __nv_bfloat162 y) {
  return {__float2bfloat16_rn(__bfloat162float(x.x) * __bfloat162float(y.x)),
          __float2bfloat16_rn(__bfloat162float(x.y) * __bfloat162float(y.y))};
}
inline __nv_bfloat162 __hadd2(__nv_bfloat162 x, __nv_bfloat162 y) {
  return {__float2bfloat16_rn(__bfloat162float(x.x) + __bfloat162float(y.x)),
          __float2bfloat16_rn(__bfloat162float(x.y) + __bfloat162float(y.y))};
}
inline float2 __half22float2(__half2 h) { return {__half2float(h.x), __half2float(h.y)}; }
inline float2 __bfloat1622float2(__nv_bfloat162 h) { return {__bfloat162float(h.x), __bfloat162float(h.y)}; }
inline float2 make_float2(Float x, Float y) { return {x, y}; }
inline float4 make_float4(Float x, Float y, Float z, Float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// ---- where a thread is, and what threads do together
#define threadIdx (emu_thread.thread)
#define blockIdx (emu_thread.block)
#define blockDim (emu_thread.block_dim)
#define gridDim (emu_thread.grid_dim)
#define __device__
#define __host__
#define __global__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __restrict__
#define __align__(n)
inline void __syncthreads() { emu->barrier(0, 0, 1); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { emu->warp_barrier(mask); }
inline void __threadfence() {}
inline void __threadfence_block() {}
template <class T> T emu_shuffle(unsigned mask, T x, int from) {   // from: a lane, after gather
  int lane;
  const T* all = static_cast<const T*>(emu->gather(mask, &x, sizeof x, &lane));
  return all[from];
}
inline int emu_lane() { return static_cast<int>(emu_thread.thread.x & 31); }
template <class T> T __shfl_xor_sync(unsigned mask, T x, int lanes, int width = 32) {
  const int self = emu_lane(), to = self ^ lanes;
  if (to / width == self / width && !(mask >> to & 1)) emu->fail("shuffle", "reads a lane that does not take part", EMU_PC);
  return emu_shuffle(mask, x, to / width == self / width ? to : self);
}
template <class T>
T __shfl_sync(unsigned mask, T x, int lane, int width = 32) {
  return emu_shuffle(mask, x, emu_lane() / width * width + (lane & (width - 1)));
}
template <class T>
T __shfl_down_sync(unsigned mask, T x, int by, int width = 32) {
  const int s = emu_lane();
  return emu_shuffle(mask, x, s % width + by < width ? s + by : s);
}
template <class T>
T __shfl_up_sync(unsigned mask, T x, int by, int width = 32) {
  const int s = emu_lane();
  return emu_shuffle(mask, x, s % width >= by ? s - by : s);
}
EMU_QUIET inline unsigned __ballot_sync(unsigned mask, int x) {
  int lane;
  const int* all = static_cast<const int*>(emu->gather(mask, &x, sizeof x, &lane));
  unsigned r = 0;
  for (int i = 0; i < 32; i++) if (mask >> i & 1 && all[i]) r |= 1u << i;
  return r;
}
inline int __any_sync(unsigned mask, int x) { return __ballot_sync(mask, x) != 0; }
inline int __all_sync(unsigned mask, int x) { return __ballot_sync(mask, x) == mask; }
inline uint64_t __cvta_generic_to_shared(const void* p) { return emu->shared_address(p); }
template <class T> T __ldg(const T* p) { emu->device(p, EMU_PC); return *p; }
template <class T> EMU_QUIET T atomicAdd(T* p, T x) { emu->atomic(p, sizeof x, EMU_PC); const T old = *p; *p = old + x; return old; }
template <class T> EMU_QUIET T atomicMax(T* p, T x) { emu->atomic(p, sizeof x, EMU_PC); const T old = *p; if (old < x) *p = x; return old; }
template <class T> EMU_QUIET T atomicExch(T* p, T x) { emu->atomic(p, sizeof x, EMU_PC); const T old = *p; *p = x; return old; }
#define float Float
