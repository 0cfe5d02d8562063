// The algebra of fingerprints (docs/search.md): values in Z_p x Z_q, q | p-1, p of 61 bits, so that exp(x) = g^x turns sums into products.
// The search compares values by it; the verifier has an algebra of its own and judges anew, so a collision here costs time only. Other
// functions are keyed random functions; a maximum is an associative one.
#pragma once
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>
#include "mirage/ir/types.h"
#include "mirage/support/hash.h"

namespace mirage::search {

/// Montgomery arithmetic modulo an odd n below 2^61. Numbers are kept as x * 2^64 mod n, one representation each.
class Modulus {
 public:
  explicit constexpr Modulus(uint64_t n) : n_(n) {
    uint64_t inv = n;
    for (int i = 0; i < 6; i++) inv *= 2 - n * inv;
    neg_inv_ = ~inv + 1;
    one_ = static_cast<uint64_t>((static_cast<unsigned __int128>(1) << 64) % n);
    r2_ = static_cast<uint64_t>(static_cast<unsigned __int128>(one_) * one_ % n);
  }
  uint64_t n() const { return n_; }
  uint64_t one() const { return one_; }
  uint64_t reduce(unsigned __int128 t) const {   ///< t < n * 2^64
    const uint64_t m = static_cast<uint64_t>(t) * neg_inv_;
    const uint64_t r = static_cast<uint64_t>((t + static_cast<unsigned __int128>(m) * n_) >> 64);
    return r >= n_ ? r - n_ : r;
  }
  uint64_t from(uint64_t x) const { return mul(x % n_, r2_); }
  uint64_t to(uint64_t x) const { return reduce(x); }
  uint64_t mul(uint64_t x, uint64_t y) const { return reduce(static_cast<unsigned __int128>(x) * y); }
  uint64_t add(uint64_t x, uint64_t y) const { const uint64_t s = x + y; return s >= n_ ? s - n_ : s; }
  uint64_t sub(uint64_t x, uint64_t y) const { return x >= y ? x - y : x + n_ - y; }
  uint64_t pow(uint64_t x, uint64_t e) const {
    uint64_t r = one_;
    for (; e; e >>= 1, x = mul(x, x)) if (e & 1) r = mul(r, x);
    return r;
  }
  uint64_t inverse(uint64_t x) const { return pow(x, n_ - 2); }   ///< 0 for 0

 private:
  uint64_t n_, neg_inv_ = 0, one_ = 0, r2_ = 0;
};

class FieldAlgebra {
 public:
  /// q is kNone above an exponential, whose value modulo q is not defined: only then do exp(x - m) / exp(y - m) and exp(x) / exp(y) agree.
  struct Value { uint64_t p = 0, q = 0; friend bool operator==(const Value&, const Value&) = default; };
  static constexpr uint64_t kP = 2305843009213691579ull, kQ = 1152921504606845789ull;   // kP = 2 kQ + 1, both prime; 4 has order kQ

  explicit FieldAlgebra(uint64_t seed)
      : p_(kP),
        q_(kQ),
        key_(mix64(seed)),
        root_p_(mix64(key_ ^ 1) | 1),
        root_q_(mix64(key_ ^ 2) | 1),
        origin_{p_.from(mix64(key_ ^ 11)), q_.from(mix64(key_ ^ 12))} {}

  static constexpr uint64_t kNone = ~uint64_t{0};
  Value random(Rng& rng) const { return {p_.from(rng.next()), q_.from(rng.next())}; }
  Value constant(double c);
  Value add(Value x, Value y) const { return {p_.add(x.p, y.p), both(x, y) ? q_.add(x.q, y.q) : kNone}; }
  Value sub(Value x, Value y) const { return {p_.sub(x.p, y.p), both(x, y) ? q_.sub(x.q, y.q) : kNone}; }
  Value mul(Value x, Value y) const { return {p_.mul(x.p, y.p), both(x, y) ? q_.mul(x.q, y.q) : kNone}; }
  Value div(Value x, Value y) {
    if (y.p == 0 || y.q == 0) zero_division_ = true;
    // rows are often divided by one value
    if (!(y == last_divisor_)) { last_divisor_ = y; last_inverse_ = {p_.inverse(y.p), y.q == kNone ? kNone : q_.inverse(y.q)}; }
    return mul(x, last_inverse_);
  }
  Value neg(Value x) const { return sub({}, x); }
  // one beneath another is a keyed function
  Value exp(Value x) const { return {power_of_generator(x.q == kNone ? hash_combine(key_, x.p) : q_.to(x.q)), kNone}; }
  // multiplicative, as the axioms say
  Value sqrt(Value x) const { return {p_.pow(x.p, root_p_ % (kP - 1)), x.q == kNone ? kNone : q_.pow(x.q, root_q_ % (kQ - 1))}; }
  Value log(Value x) const { return keyed(3, x); }
  Value abs(Value x) const { return keyed(4, x.p < neg(x).p ? neg(x) : x); }
  Value tanh(Value x) const { return keyed(5, x); }
  Value erf(Value x) const { return keyed(6, x); }
  Value sin(Value x) const { return keyed(17, x); }
  Value cos(Value x) const { return keyed(18, x); }
  Value floor(Value x) const { return keyed(19, x); }
  Value nearest(Value x) const { return keyed(20, x); }
  /// (x^e + y^e)^(1/e) around a secret origin: commutative and associative, as splitting a maximum needs, and otherwise without relations.
  /// (A maximum under a random order would be too often the same operand in all of the few rows of a witness.)
  Value max(Value x, Value y) const { return join(x, y, origin_); }
  Value min(Value x, Value y) const { return join(x, y, mul(origin_, origin_)); }
  Value pow(Value x, Value y) const { return keyed(7, keyed(8, x), y); }
  Value equal(Value x, Value y) const { return x == y ? Value{p_.one(), q_.one()} : add(keyed(15, x, y), keyed(15, y, x)); }
  Value less(Value x, Value y) const { return keyed(16, x, y); }
  Value select(Value c, Value x, Value y) const { return add(y, mul(c, sub(x, y))); }   // right for 0 and 1, and linear in between
  Value round(Value x, DType t) const { return t == DType::kReal ? x : keyed(9 + static_cast<uint64_t>(t), x); }
  /// (m,k) x (k,n), row-major; products are summed before they are reduced.
  void gemm(int64_t m, int64_t n, int64_t k, const Value* x, const Value* y, Value* out) const;
  bool zero_division() const { return zero_division_; }
  void clear_zero_division() { zero_division_ = false; }

 private:
  /// 4^e: a product for every byte of e.
  static uint64_t power_of_generator(uint64_t e) {
    static const std::array<std::array<uint64_t, 256>, 8> powers = [] {   // of 4^(256^i)
      const Modulus p(kP);
      std::array<std::array<uint64_t, 256>, 8> out{};
      uint64_t base = p.from(4);
      for (auto& row : out) {
        row[0] = p.one();
        for (size_t i = 1; i < row.size(); i++) row[i] = p.mul(row[i - 1], base);
        base = p.mul(row.back(), base);
      }
      return out;
    }();
    static constexpr Modulus p(kP);
    uint64_t r = p.one();
    for (size_t i = 0; e != 0; i++, e >>= 8) r = p.mul(r, powers[i][e & 255]);
    return r;
  }
  static bool both(Value x, Value y) { return x.q != kNone && y.q != kNone; }
  static constexpr uint64_t kRoot = 65537;   // prime to kP - 1 and kQ - 1
  static constexpr uint64_t inverse_mod(uint64_t a, uint64_t m) {
    __int128 t0 = 0, t1 = 1, r0 = m, r1 = a;
    while (r1 != 0) {
      const __int128 k = r0 / r1, t = t0 - k * t1, r = r0 - k * r1;
      t0 = t1; t1 = t; r0 = r1; r1 = r;
    }
    return static_cast<uint64_t>(t0 < 0 ? t0 + m : t0);
  }
  Value join(Value x, Value y, Value origin) const {
    static constexpr uint64_t kBackP = inverse_mod(kRoot, kP - 1), kBackQ = inverse_mod(kRoot, kQ - 1);
    const Value a = add(x, origin), b = add(y, origin);
    const uint64_t p = p_.pow(p_.add(p_.pow(a.p, kRoot), p_.pow(b.p, kRoot)), kBackP);
    return sub({p, both(a, b) ? q_.pow(q_.add(q_.pow(a.q, kRoot), q_.pow(b.q, kRoot)), kBackQ) : kNone}, origin);
  }
  Value keyed(uint64_t tag, Value x) const { return keyed(tag, x, x); }
  Value keyed(uint64_t tag, Value x, Value y) const {
    const uint64_t h = hash_combine(hash_combine(hash_combine(key_, tag), x.p), y.p);
    return {p_.from(h), q_.from(mix64(h))};
  }
  Modulus p_, q_;
  uint64_t key_, root_p_, root_q_;
  Value origin_;
  bool zero_division_ = false;
  Value last_divisor_{}, last_inverse_{};
  std::vector<std::pair<double, Value>> constants_;
};

inline FieldAlgebra::Value FieldAlgebra::constant(double c) {
  if (c == 0) return {};
  for (const auto& [known, v] : constants_) if (known == c) return v;
  Value v;
  if (!std::isfinite(c)) {
    v = keyed(20, {std::bit_cast<uint64_t>(c), 0});
  } else {
    int e = 0;
    const int64_t m = static_cast<int64_t>(std::ldexp(std::frexp(c, &e), 53));
    e -= 53;
    auto scale = [&](const Modulus& f) {
      const uint64_t two = f.add(f.one(), f.one());
      const uint64_t s = e >= 0 ? f.pow(two, static_cast<uint64_t>(e)) : f.inverse(f.pow(two, static_cast<uint64_t>(-e)));
      const uint64_t r = f.mul(f.from(static_cast<uint64_t>(m < 0 ? -m : m)), s);
      return m < 0 ? f.sub(0, r) : r;
    };
    v = {scale(p_), scale(q_)};
  }
  if (constants_.size() < 16) constants_.push_back({c, v});
  return v;
}

inline void FieldAlgebra::gemm(int64_t m, int64_t n, int64_t k, const Value* x, const Value* y, Value* out) const {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      Value total{};
      bool none = false;
      for (int64_t l0 = 0; l0 < k; l0 += 8) {   // 8 products below 2^122 stay below n * 2^64
        unsigned __int128 sp = 0, sq = 0;
        for (int64_t l = l0; l < std::min(k, l0 + 8); l++) {
          sp += static_cast<unsigned __int128>(x[i * k + l].p) * y[l * n + j].p;
          none |= !both(x[i * k + l], y[l * n + j]);
          if (!none) sq += static_cast<unsigned __int128>(x[i * k + l].q) * y[l * n + j].q;
        }
        total = add(total, {p_.reduce(sp), q_.reduce(sq)});
      }
      if (none) total.q = kNone;
      out[i * n + j] = total;
    }
}

}  // namespace mirage::search
