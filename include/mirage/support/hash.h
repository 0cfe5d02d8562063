// 64-bit hashing (xxHash) and deterministic random numbers. Nothing here depends on addresses, time or std::hash.
#pragma once
#include <cstdint>
#include <string_view>

namespace mirage {

uint64_t hash_bytes(const void* data, size_t size, uint64_t seed = 0);
inline uint64_t hash_text(std::string_view s, uint64_t seed = 0) { return hash_bytes(s.data(), s.size(), seed); }

/// A bijective mixer (splitmix64 finaliser).
inline uint64_t mix64(uint64_t z) {
  z += 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}
inline uint64_t hash_combine(uint64_t h, uint64_t x) { return mix64(h ^ mix64(x)); }

/// splitmix64: the same sequence for the same seed on every machine.
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}
  uint64_t next() { return mix64(state_++ * 0x9E3779B97F4A7C15ull); }
  /// uniform in [0, n), n > 0
  uint64_t below(uint64_t n) { return static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * n) >> 64); }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }                                            ///< [0, 1)
 private:
  uint64_t state_;
};

}  // namespace mirage
