// The finite field of field mode: pairs in Z_359 x Z_179 (179 divides 358, OSDI'25 table 3), small enough that a pair fits two bytes.
// Included by the compiler's side, which evaluates the muGraph over it, and embedded as text in front of emulated kernels, so that both
// compute with the same functions. No includes beyond <stdint.h>, nothing but integer arithmetic.
//
// A value is 32 bits: p | q << 16, or the bits of a float infinity or NaN. q = kNoQ: the second part is not defined (behind an
// exponential). A 2-byte storage type holds p * 180 + q. What fields cannot say (maxima, tanh, ...) are fixed scrambling functions of the
// value: equal operands give equal results, and maximum is a total order's.
#pragma once
#include <stdint.h>

namespace mirage_field {

constexpr uint32_t kP = 359, kQ = 179, kNoQ = 179, kRoot = 4;   // 4 has order 179 modulo 359
constexpr uint32_t kPlusInf = 0x7f800000u, kMinusInf = 0xff800000u, kNan = 0x7fc00000u;
constexpr uint16_t kPlusInf16 = 0xfffe, kMinusInf16 = 0xfffd, kNan16 = 0xffff;

/// What happened while computing: bits of the caller's word.
constexpr uint32_t kZeroDenominator = 1, kNestedExponent = 2;

inline uint32_t make(uint32_t p, uint32_t q) { return p | q << 16; }
inline uint32_t part_p(uint32_t x) { return x & 0xffff; }
inline uint32_t part_q(uint32_t x) { return x >> 16; }
inline bool is_element(uint32_t x) { return part_p(x) < kP && part_q(x) <= kNoQ; }
inline bool is_nan(uint32_t x) { return !is_element(x) && x != kPlusInf && x != kMinusInf; }

inline uint32_t scramble(uint32_t x) {   // a bijection of 32 bits
  x ^= x >> 16; x *= 0x7feb352du; x ^= x >> 15; x *= 0x846ca68bu; x ^= x >> 16;
  return x;
}
inline uint32_t from_hash(uint32_t h) { return make(h % kP, (h >> 12) % kQ); }

constexpr uint32_t power(uint32_t base, uint32_t e, uint32_t m) {
  uint32_t r = 1;
  for (base %= m; e; e >>= 1, base = base * base % m)
    if (e & 1) r = r * base % m;
  return r;
}
constexpr uint32_t inverse(uint32_t x, uint32_t m) { return power(x, m - 2, m); }   // m is prime
struct Tables {
  uint16_t inverse_p[kP] = {}, inverse_q[kQ] = {}, exp_p[kQ] = {};
  constexpr Tables() {
    for (uint32_t i = 0; i < kP; i++) inverse_p[i] = static_cast<uint16_t>(inverse(i, kP));
    for (uint32_t i = 0; i < kQ; i++)
      inverse_q[i] = static_cast<uint16_t>(inverse(i, kQ)), exp_p[i] = static_cast<uint16_t>(power(kRoot, i, kP));
  }
};
inline constexpr Tables kTables{};

inline uint32_t neg(uint32_t x) {
  if (!is_element(x)) return is_nan(x) ? kNan : x ^ 0x80000000u;
  const uint32_t p = part_p(x), q = part_q(x);
  return make(p ? kP - p : 0, q == kNoQ || q == 0 ? q : kQ - q);
}
inline uint32_t add(uint32_t x, uint32_t y) {
  if (!is_element(x) || !is_element(y)) {
    if (is_nan(x) || is_nan(y)) return kNan;
    if (is_element(x)) return y;
    return is_element(y) || x == y ? x : kNan;
  }
  uint32_t p = part_p(x) + part_p(y), q = part_q(x) + part_q(y);
  if (p >= kP) p -= kP;
  if (part_q(x) == kNoQ || part_q(y) == kNoQ) q = kNoQ;
  else if (q >= kQ) q -= kQ;
  return make(p, q);
}
inline uint32_t sub(uint32_t x, uint32_t y) { return add(x, neg(y)); }
inline uint32_t mul(uint32_t x, uint32_t y) {
  if (!is_element(x) || !is_element(y)) {   // an infinity keeps its sign: what it is multiplied with is a scale
    if (is_nan(x) || is_nan(y)) return kNan;
    if (is_element(x)) return part_p(x) == 0 ? kNan : y;
    if (is_element(y)) return part_p(y) == 0 ? kNan : x;
    return x == y ? kPlusInf : kMinusInf;
  }
  const uint32_t qx = part_q(x), qy = part_q(y);   // what is not known times nothing is nothing
  return make(part_p(x) * part_p(y) % kP, qx == 0 || qy == 0 ? 0 : qx == kNoQ || qy == kNoQ ? kNoQ : qx * qy % kQ);
}
inline uint32_t div(uint32_t x, uint32_t y, uint32_t& happened) {
  if (is_nan(y)) return kNan;
  if (!is_element(y)) return is_element(x) ? 0 : kNan;
  if (part_p(y) == 0) { happened |= kZeroDenominator; return kNan; }
  const Tables& t = kTables;
  const uint32_t q = part_q(y) == kNoQ || part_q(y) == 0 ? kNoQ : t.inverse_q[part_q(y)];
  return mul(x, make(t.inverse_p[part_p(y)], q));
}
/// w^q: exp(x + y) = exp(x) exp(y) as long as the q parts are there. exp(-inf) is the exact zero (0, 0), which no sum of exponentials is by
/// chance.
inline uint32_t exp(uint32_t x, uint32_t& happened) {
  if (!is_element(x)) return x == kMinusInf ? 0 : x;
  if (part_q(x) == kNoQ) { happened |= kNestedExponent; return make(scramble(part_p(x) + 0x1234567u) % kP, kNoQ); }
  return make(kTables.exp_p[part_q(x)], kNoQ);
}
inline uint32_t keyed(uint32_t function, uint32_t x, uint32_t y = 0) {
  if (is_nan(x) || is_nan(y)) return kNan;
  const uint32_t r = from_hash(scramble(scramble(x + function * 0x9E3779B9u) + y));
  return is_element(x) && part_q(x) == kNoQ ? make(part_p(r), kNoQ) : r;
}
inline uint32_t log(uint32_t x) { return keyed(1, x); }
inline uint32_t tanh(uint32_t x) { return keyed(2, x); }
inline uint32_t erf(uint32_t x) { return keyed(3, x); }
inline uint32_t sin(uint32_t x) { return keyed(7, x); }
inline uint32_t cos(uint32_t x) { return keyed(8, x); }
inline uint32_t floor(uint32_t x) { return keyed(9, x); }
inline uint32_t nearest(uint32_t x) { return keyed(10, x); }
inline uint32_t pow(uint32_t x, uint32_t y) { return keyed(4, x, y); }
inline uint32_t sqrt(uint32_t x) {   // neither part is zero but at zero: most square roots are denominators
  const uint32_t r = keyed(5, x);
  if (x == 0 || is_nan(r)) return x == 0 ? 0 : kNan;
  return make(part_p(r) ? part_p(r) : 1, part_q(r) ? part_q(r) : 1);
}
inline uint32_t abs(uint32_t x) { const uint32_t y = neg(x); return keyed(6, x < y ? x : y); }
/// A sum behind an exponential that is zero by chance: the real one never is. Who asks whether it is zero goes another way than the numbers
/// do.
inline bool is_chance_zero(uint32_t x) { return x == make(0, kNoQ); }
/// Equality of what is known of two values.
inline bool same(uint32_t x, uint32_t y) {
  if (!is_element(x) || !is_element(y)) return x == y && !is_nan(x);
  return part_p(x) == part_p(y) && (part_q(x) == part_q(y) || part_q(x) == kNoQ || part_q(y) == kNoQ);
}
inline bool is_zero(uint32_t x) { return part_p(x) == 0 && (part_q(x) == 0 || part_q(x) == kNoQ); }
/// The whole number of least magnitude that is this element; what is none has a number that is no place of anything.
inline long long whole_of(uint32_t x) {
  if (!is_element(x) || part_q(x) == kNoQ) return -(1LL << 40);
  static_assert(kP % kQ == 1, "the remainder below");
  const long long n = part_p(x) + static_cast<long long>(kP) * ((part_q(x) + kQ - part_p(x) % kQ) % kQ);
  return n > static_cast<long long>(kP) * kQ / 2 ? n - static_cast<long long>(kP) * kQ : n;
}
/// A total order in which minus infinity is least, then zero (what guards a sum of exponentials asks whether it is above zero), and
/// infinity greatest.
inline bool less(uint32_t x, uint32_t y) {
  if (x == kMinusInf || y == kPlusInf) return x != y;
  if (y == kMinusInf || x == kPlusInf) return false;
  if (is_zero(x) || is_zero(y)) return is_zero(x) && !is_zero(y);
  return scramble(x) < scramble(y);
}
inline uint32_t max(uint32_t x, uint32_t y) { return is_nan(x) || is_nan(y) ? kNan : less(x, y) ? y : x; }
inline uint32_t min(uint32_t x, uint32_t y) { return is_nan(x) || is_nan(y) ? kNan : less(x, y) ? x : y; }

/// The element of a float, whose bits are given: mantissa times a power of two, so that sums and products of literals agree.
inline uint32_t from_float_bits(uint32_t bits) {
  if ((bits & 0x7fffffffu) == 0) return 0;
  if (bits == 0x3f800000u) return make(1, 1);
  const uint32_t exponent = bits >> 23 & 255, fraction = bits & 0x7fffffu;
  if (exponent == 255) return fraction ? kNan : bits;
  const uint32_t m = exponent ? fraction | 0x800000u : fraction;
  const int e = (exponent ? static_cast<int>(exponent) : 1) - 150;
  uint32_t parts[2];
  const uint32_t modulus[2] = {kP, kQ};
  for (int i = 0; i < 2; i++)
    parts[i] = m % modulus[i] * power(e >= 0 ? 2 : inverse(2, modulus[i]), static_cast<uint32_t>(e >= 0 ? e : -e), modulus[i]) % modulus[i];
  const uint32_t x = make(parts[0], parts[1]);
  return bits >> 31 ? neg(x) : x;
}

inline uint16_t to16(uint32_t x) {
  if (is_element(x)) return static_cast<uint16_t>(part_p(x) * (kQ + 1) + part_q(x));
  return x == kPlusInf ? kPlusInf16 : x == kMinusInf ? kMinusInf16 : kNan16;
}
inline uint32_t from16(uint16_t x) {
  if (x < kP * (kQ + 1)) return make(x / (kQ + 1), x % (kQ + 1));
  return x == kPlusInf16 ? kPlusInf : x == kMinusInf16 ? kMinusInf : kNan;
}

}  // namespace mirage_field
