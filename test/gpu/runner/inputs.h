// Inputs of packed cases, element by element from a seed: both who packs and who runs a pack make them, so that a pack need not hold them.
// No includes of the project.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>

namespace device_inputs {

inline uint32_t mix(uint32_t x) { x ^= x >> 16; x *= 0x7feb352du; x ^= x >> 15; x *= 0x846ca68bu; return x ^ x >> 16; }
inline uint32_t float_bits(float x) { uint32_t b; memcpy(&b, &x, 4); return b; }

/// float16, to the nearest, of a number below 65520.
inline uint32_t half_bits(float x) {
  const uint32_t b = float_bits(x), sign = b >> 16 & 0x8000u;
  const float a = x < 0 ? -x : x;
  // subnormal: in units of 2^-24 (a tie is nothing to a random number)
  if (a < 6.103515625e-05f) return sign | static_cast<uint32_t>(a * 16777216.0f + 0.5f);
  uint32_t m = b & 0x7fffffffu;
  m += 0xfffu + (m >> 13 & 1);
  return sign | (m - 0x38000000u) >> 13;
}

/// Bits of element `e`: uniform between low and high, rounded to the type ("f16", "bf16", "f32", "b8").
inline uint32_t bits(const std::string& type, uint32_t seed, int64_t e, float low, float high) {
  const uint32_t h = mix(seed * 2654435761u + mix(static_cast<uint32_t>(e) + 0x9e3779b9u));
  if (type == "b8") return h & 1;
  const float x = low + (high - low) * (static_cast<float>(h >> 8) * 0x1p-24f);
  if (type == "f32") return float_bits(x);
  if (type == "f16") return half_bits(x);
  const uint32_t b = float_bits(x);
  return (b + 0x7fffu + (b >> 16 & 1)) >> 16;
}

}  // namespace device_inputs
