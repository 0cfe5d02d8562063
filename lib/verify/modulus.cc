// Montgomery constants, Miller-Rabin, and the draw of the verifier's primes.
#include "verify/modulus.h"

#include "mirage/support/assert.h"

namespace mirage::verify {

Modulus::Modulus(uint64_t m) : m_(m) {
  MIRAGE_ASSERT((m & 1) && m >= 3 && m < (1ull << 61)) << "modulus " << m;
  uint64_t inv = m;   // Newton: right to 3 bits at first, doubled five times
  for (int i = 0; i < 5; i++) inv *= 2 - m * inv;
  inverse_ = 0 - inv;
  one_ = static_cast<uint64_t>((static_cast<u128>(1) << 64) % m);
  square_ = static_cast<uint64_t>(static_cast<u128>(one_) * one_ % m);
}

uint64_t Modulus::pow(uint64_t x, uint64_t e) const {
  uint64_t r = one_;
  for (; e; e >>= 1, x = mul(x, x))
    if (e & 1) r = mul(r, x);
  return r;
}

bool is_prime(uint64_t n) {
  if (n < 2) return false;
  static constexpr uint64_t kBases[] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};   // enough below 3.3e24 (Sorenson, Webster 2015)
  for (uint64_t b : kBases) if (n % b == 0) return n == b;
  const Modulus m(n);
  uint64_t d = n - 1;
  int twos = 0;
  for (; !(d & 1); d >>= 1) twos++;
  for (uint64_t b : kBases) {
    uint64_t x = m.pow(m.from(b), d);
    if (x == m.one() || x == m.neg(m.one())) continue;
    bool composite = true;
    for (int i = 1; i < twos && composite; i++) {
      x = m.mul(x, x);
      composite = x != m.neg(m.one());
    }
    if (composite) return false;
  }
  return true;
}

Primes draw_primes(uint64_t seed) {
  Rng rng(mix64(seed ^ 0x7072696D65730000ull));
  for (;;) {
    const uint64_t q = (1ull << 57) | (rng.next() >> 7) | 1;   // 58 bits, odd
    if (!is_prime(q)) continue;
    for (uint64_t k = 2; k <= 6; k += 2)
      if (is_prime(k * q + 1)) return {k * q + 1, q};
  }
}

bool are_valid(Primes s) {
  return s.q >= (1ull << 50) && s.q < (1ull << 58) && s.p > s.q && s.p < (1ull << 61) && (s.p - 1) % s.q == 0 && is_prime(s.p) &&
         is_prime(s.q);
}

}  // namespace mirage::verify
