// Arithmetic modulo an odd number below 2^61 in Montgomery form, and the search for the two primes of the verifier (OSDI'25 section 5.2: q
// divides p-1).
#pragma once
#include <cstdint>

#include "mirage/support/hash.h"

namespace mirage::verify {

using u128 = unsigned __int128;

/// Residues are kept in Montgomery form x*2^64 mod m; equality of forms is equality of residues. Requires m odd, 3 <= m < 2^61.
class Modulus {
 public:
  Modulus() = default;
  explicit Modulus(uint64_t m);
  uint64_t value() const { return m_; }
  uint64_t one() const { return one_; }
  uint64_t add(uint64_t x, uint64_t y) const { const uint64_t s = x + y; return s >= m_ ? s - m_ : s; }
  uint64_t sub(uint64_t x, uint64_t y) const { return x >= y ? x - y : x + m_ - y; }
  uint64_t neg(uint64_t x) const { return x ? m_ - x : 0; }
  uint64_t mul(uint64_t x, uint64_t y) const { return reduce(static_cast<u128>(x) * y); }
  /// t * 2^-64 mod m; requires t < m * 2^64.
  uint64_t reduce(u128 t) const {
    const uint64_t u = static_cast<uint64_t>(t) * inverse_;
    const uint64_t r = static_cast<uint64_t>((t + static_cast<u128>(u) * m_) >> 64);
    return r >= m_ ? r - m_ : r;
  }
  uint64_t from(uint64_t x) const { return mul(x % m_, square_); }   ///< an integer into Montgomery form
  uint64_t to(uint64_t x) const { return reduce(x); }                ///< and back, in [0, m)
  uint64_t pow(uint64_t x, uint64_t e) const;                        ///< x in Montgomery form
  uint64_t inverse(uint64_t x) const { return pow(x, m_ - 2); }      ///< m prime, x != 0
  /// A residue from 128 random bits, uniform up to 2^-59.
  uint64_t fold(uint64_t a, uint64_t b) const {
    return reduce((static_cast<u128>(static_cast<uint64_t>((static_cast<u128>(a) * m_) >> 64)) << 64) | b);
  }

 private:
  uint64_t m_ = 0, inverse_ = 0, one_ = 0, square_ = 0;
};

bool is_prime(uint64_t n);   ///< deterministic Miller-Rabin, n < 2^61

struct Primes { uint64_t p = 0, q = 0; };
/// q of 58 bits and p = k*q + 1 < 2^61 with k in {2, 4, 6}, the same for the same seed.
Primes draw_primes(uint64_t seed);
/// Whether p and q are primes of at least 50 bits with q | p-1, as a certificate must have them.
bool are_valid(Primes);

}  // namespace mirage::verify
