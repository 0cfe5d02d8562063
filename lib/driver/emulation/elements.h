// Elements of tensors in memory: where they are, and the bits of a value of each type (of whole numbers the lower 32). For emulations
// (emulation.cc, emulation_floats.cc).
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include "mirage/ir/program.h"
#include "mirage/support/hash.h"

namespace mirage {

inline int64_t place_of(const Dims& dims, const Dims& strides, int64_t linear) {
  int64_t at = 0;
  for (int d = dims.rank() - 1; d >= 0; d--) at += linear % dims[d] * strides[d], linear /= dims[d];
  return at;
}

inline void put_bits(unsigned char* p, DType t, uint32_t bits) {
  if (t == DType::kBool) { *p = static_cast<unsigned char>(bits); return; }
  if (dtype_bytes(t) == 2) { const uint16_t x = static_cast<uint16_t>(bits); memcpy(p, &x, 2); return; }
  if (t == DType::kI64) { const int64_t x = static_cast<int32_t>(bits); memcpy(p, &x, 8); return; }
  memcpy(p, &bits, 4);
}
inline uint32_t get_bits(const unsigned char* p, DType t) {
  if (t == DType::kBool) return *p;
  if (dtype_bytes(t) == 2) { uint16_t x; memcpy(&x, p, 2); return x; }
  uint32_t x;
  memcpy(&x, p, 4);
  return x;
}
/// x is a value of t.
inline uint32_t bits_of(double x, DType t) {
  if (t == DType::kBool) return x != 0;
  if (is_whole(t)) return static_cast<uint32_t>(static_cast<int32_t>(x));
  const uint32_t w = std::bit_cast<uint32_t>(static_cast<float>(x));
  if (t == DType::kF32 || t == DType::kReal) return w;
  if (t == DType::kBF16 || x == 0) return w >> 16;
  if (std::isinf(x)) return x < 0 ? 0xfc00 : 0x7c00;
  if (std::isnan(x)) return 0x7e00;
  int e = 0;
  std::frexp(std::fabs(x), &e);
  const int q = std::max(e - 11, -24), n = static_cast<int>(std::ldexp(std::fabs(x), -q));
  return static_cast<uint32_t>((x < 0 ? 0x8000 : 0) | (q == -24 ? n : ((q + 25) << 10) + n - 1024));
}
inline double value_of(uint32_t u, DType t) {
  if (t == DType::kBool) return u != 0;
  if (is_whole(t)) return static_cast<int32_t>(u);
  if (t == DType::kF32 || t == DType::kReal) return std::bit_cast<float>(u);
  if (t == DType::kBF16) return std::bit_cast<float>(u << 16);
  const int e = u >> 10 & 31, m = u & 1023;
  const double x = e == 31 ? (m ? NAN : INFINITY) : e ? std::ldexp(1024 + m, e - 25) : std::ldexp(m, -24);
  return u >> 15 ? -x : x;
}

/// A whole number within an input's range, mostly of its first places: a reduced shape has no more.
inline double draw_whole(const TensorInfo& t, Rng& rng) {
  constexpr double kFirst = 32;
  const double low = t.range ? t.range->first : 0, high = t.range ? t.range->second : 1,
               most = rng.below(4) ? std::min(high, low + kFirst) : high;
  return std::floor(low + (most - low + 1) * rng.uniform());
}

inline std::string place_text(const Dims& dims, int64_t linear) {
  std::string out;
  for (int d = dims.rank() - 1; d >= 0; d--) { out = std::to_string(linear % dims[d]) + (out.empty() ? "" : ",") + out; linear /= dims[d]; }
  return "[" + out + "]";
}

}  // namespace mirage
