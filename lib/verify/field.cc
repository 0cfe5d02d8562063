// Meaning of each operator in Z_p x Z_q with marks. Every rule depends on values only, never on the graph that computed them, so equal
// functions get equal values wherever the laws that relate them hold here; a lost law costs an Unknown, an invented one would cost
// soundness, so each rule below states a law that holds for real numbers too.
#include "verify/field.h"

#include <bit>
#include <cmath>
#include <numeric>

namespace mirage::verify {
namespace {
constexpr int64_t kExactLimit = 1ll << 52;
// beyond: maxima are taken as maxima of disjoint sets (a lost law, not an invented one)
constexpr size_t kMaxLeaves = 512, kMaxStoredLeaves = 1u << 22;
uint64_t stored_mark(DType t) { return t == DType::kF16 ? kStored16 : t == DType::kBF16 ? kStoredB16 : t == DType::kF32 ? kStored32 : 0; }
}  // namespace

const char* uninterpreted_name(Uninterpreted u) {
  static constexpr const char* kNames[] = {"sqrt",        "maximum",
                                           "tanh",        "erf",
                                           "sin",         "cos",
                                           "floor",       "round to whole",
                                           "log",         "pow",
                                           "less",        "equal",
                                           "round",       "exp beneath exp",
                                           "bool values", "running maximum"};
  static_assert(std::size(kNames) == static_cast<size_t>(Uninterpreted::kNum));
  return kNames[static_cast<size_t>(u)];
}

FieldAlgebra::FieldAlgebra(Primes primes, uint64_t key, FieldMode mode) : p_(primes.p), q_(primes.q), key_(mix64(key)), mode_(mode) {
  Rng rng(hash_combine(key_, 1));
  auto exponent = [&](uint64_t order) {   // coprime to the group's order, so that x^e is a bijection; doubled for the even kind
    for (;;) {
      const uint64_t e = rng.below(order - 3) + 2;
      if (std::gcd(e, order) == 1) return mode.even_power ? static_cast<uint64_t>(static_cast<u128>(2) * e % order) : e;
    }
  };
  sqrt_p_ = exponent(primes.p - 1);
  sqrt_q_ = exponent(primes.q - 1);
  uint64_t w = p_.one();   // uniform among the q-th roots of unity but 1
  while (w == p_.one()) w = p_.pow(p_.from(rng.below(primes.p - 1) + 1), (primes.p - 1) / primes.q);
  for (auto& row : root_) {
    row[0] = p_.one();
    for (size_t i = 1; i < 256; i++) row[i] = p_.mul(row[i - 1], w);
    w = p_.mul(row[255], w);
  }
  half_bits_ = (std::bit_width(primes.p) + 1) / 2;
}

FieldValue FieldAlgebra::integer(int64_t v, uint64_t marks) {
  const uint64_t m = static_cast<uint64_t>(v < 0 ? -v : v);
  const uint64_t p = p_.from(m), q = q_.from(m);
  return finite(v < 0 ? p_.neg(p) : p, v < 0 ? q_.neg(q) : q, kExact | (v > 0 ? kPositive : v < 0 ? kNegative : 0), marks & kKeyed);
}

int64_t FieldAlgebra::integer_of(const Value& x) const {
  const uint64_t r = p_.to(residue_p(x));
  return r > p_.value() / 2 ? -static_cast<int64_t>(p_.value() - r) : static_cast<int64_t>(r);
}

FieldValue FieldAlgebra::constant(double c) {
  if (std::isnan(c)) return undefined(0);
  if (std::isinf(c)) return infinite(c < 0 ? kMinusInf : kPlusInf, 0);
  if (c == std::trunc(c) && std::fabs(c) < static_cast<double>(kExactLimit)) return integer(static_cast<int64_t>(c), 0);
  auto [it, fresh] = constants_.try_emplace(std::bit_cast<uint64_t>(c));
  if (fresh) {   // exactly m * 2^e in both fields, never a rounded integer
    int e;
    const auto m = static_cast<int64_t>(std::ldexp(std::frexp(c, &e), 53));
    e -= 53;
    const Value v = integer(m, 0);   // only its residues are used
    const uint64_t k = static_cast<uint64_t>(e < 0 ? -e : e);
    uint64_t sp = p_.pow(p_.from(2), k), sq = q_.pow(q_.from(2), k);
    if (e < 0) { sp = p_.inverse(sp); sq = q_.inverse(sq); }
    const uint64_t stored = round_to(c, DType::kF16) == c    ? kStored16
                            : round_to(c, DType::kBF16) == c ? kStoredB16
                            : round_to(c, DType::kF32) == c  ? kStored32
                                                             : 0;
    it->second = finite(p_.mul(residue_p(v), sp), q_.mul(residue_q(v), sq), c < 0 ? kNegative : kPositive, stored);
  }
  return it->second;
}

FieldValue FieldAlgebra::input(DType stored, uint64_t index) {
  const uint64_t k = hash_combine(hash_combine(key_, 2), index);
  if (stored == DType::kBool) {
    note(Uninterpreted::kBool);
    if (mode_.bits) return integer(static_cast<int64_t>(mix64(k) >> 63), kKeyed);
  }
  const uint64_t a = mix64(k ^ 0x11), b = mix64(k ^ 0x22), c = mix64(k ^ 0x33), d = mix64(k ^ 0x44);
  return finite(p_.fold(a, b), q_.fold(c, d), 0, stored == DType::kBool ? kKeyed : stored_mark(stored));
}

FieldValue FieldAlgebra::bit_input(bool bit) {
  note(Uninterpreted::kBool);
  return integer(bit, kKeyed);
}

FieldValue FieldAlgebra::arbitrary() {
  note(Uninterpreted::kRunning);
  const uint64_t k = hash_combine(hash_combine(key_, 5), arbitrary_++);
  return finite(p_.fold(mix64(k ^ 0x11), mix64(k ^ 0x22)), q_.fold(mix64(k ^ 0x33), mix64(k ^ 0x44)), 0, kKeyed);
}

FieldValue FieldAlgebra::add(Value x, Value y) {
  const uint64_t marks = (x.q | y.q) & (kKindMask | kKeyed | kNoQ);
  if (marks & kKindMask) return add_special(x, y);
  if (x.p & kExact && residue_p(x) == 0) { y.q |= marks; return y; }   // x + 0 keeps what is known of x
  if (y.p & kExact && residue_p(y) == 0) { x.q |= marks; return x; }
  if (x.p & y.p & kExact) {
    const int64_t s = integer_of(x) + integer_of(y);
    if (std::llabs(s) < kExactLimit) return integer(s, marks);
  }
  return finite(p_.add(residue_p(x), residue_p(y)), q_.add(residue_q(x), residue_q(y)), x.p & y.p & kSignMask, marks);
}

FieldValue FieldAlgebra::add_special(Value x, Value y) {
  const uint64_t marks = x.q | y.q;
  if (kind(x) == kUndefined || kind(y) == kUndefined) return undefined(marks);
  if (kind(x) == kFinite) return infinite(kind(y), marks);
  if (kind(y) == kFinite || kind(x) == kind(y)) return infinite(kind(x), marks);
  zero_denominator_ = true;
  return undefined(marks);
}

FieldValue FieldAlgebra::neg(Value x) {
  const uint64_t sign = x.p & kPositive ? kNegative : x.p & kNegative ? kPositive : 0;
  switch (kind(x)) {
    case kMinusInf: return infinite(kPlusInf, x.q);
    case kPlusInf: return infinite(kMinusInf, x.q);
    case kUndefined: return x;
    default: return finite(p_.neg(residue_p(x)), q_.neg(residue_q(x)), (x.p & kExact) | sign, x.q & ~kQMask);
  }
}

static uint64_t sign_of_product(const FieldValue& x, const FieldValue& y) {
  const uint64_t a = x.p & kSignMask, b = y.p & kSignMask;
  return !a || !b ? 0 : a == b ? kPositive : kNegative;
}

FieldValue FieldAlgebra::mul(Value x, Value y) {
  const uint64_t marks = (x.q | y.q) & (kKindMask | kKeyed | kNoQ);
  if (marks & kKindMask) return mul_special(x, y);
  if ((x.p | y.p) & kExact) {
    if (x.p & y.p & kExact) {
      const __int128 s = static_cast<__int128>(integer_of(x)) * integer_of(y);
      if (s < kExactLimit && s > -kExactLimit) return integer(static_cast<int64_t>(s), marks);
    } else if (residue_p(x.p & kExact ? x : y) == 0) {
      return integer(0, marks);   // zero is zero, also in the q part of what has none
    }
  }
  const uint64_t sign = (x.p & kPMask) == (y.p & kPMask) ? kPositive : sign_of_product(x, y);   // equal residues: a square
  return finite(p_.mul(residue_p(x), residue_p(y)), q_.mul(residue_q(x), residue_q(y)), sign, marks);
}

FieldValue FieldAlgebra::mul_special(Value x, Value y) {
  const uint64_t marks = x.q | y.q;
  if (kind(x) == kUndefined || kind(y) == kUndefined) return undefined(marks);
  auto sign = [&](const Value& v) -> int {   // 2: not known
    if (kind(v) != kFinite) return kind(v) == kPlusInf ? 1 : -1;
    if (residue_p(v) == 0) return 0;
    return v.p & kPositive ? 1 : v.p & kNegative ? -1 : 2;
  };
  const int a = sign(x), b = sign(y);
  if (a == 0 || b == 0) { zero_denominator_ = true; return undefined(marks); }
  if (a == 2 || b == 2) { unknown_sign_ = true; return undefined(marks); }
  return infinite(a * b > 0 ? kPlusInf : kMinusInf, marks);
}

FieldValue FieldAlgebra::div(Value x, Value y) {
  uint64_t marks = (x.q | y.q) & (kKeyed | kNoQ);
  if (kind(x) == kUndefined || kind(y) == kUndefined) return undefined(marks);
  if (kind(y) != kFinite) {
    if (kind(x) == kFinite) return integer(0, marks);
    zero_denominator_ = true;
    return undefined(marks);
  }
  if (residue_p(y) == 0) { zero_denominator_ = true; return undefined(marks); }
  if (kind(x) != kFinite) return mul_special(x, y);   // infinity over y has the sign of infinity times y
  if (x.p & kExact) {
    const int64_t a = integer_of(x);
    if (a == 0) return integer(0, marks);
    if (y.p & kExact) {
      const int64_t b = integer_of(y);
      if (a % b == 0) return integer(a / b, marks);
    }
  }
  if (residue_q(y) == 0) marks |= kNoQ;
  return finite(p_.mul(residue_p(x), p_.inverse(residue_p(y))), marks & kNoQ ? 0 : q_.mul(residue_q(x), q_.inverse(residue_q(y))),
                sign_of_product(x, y), marks);
}

FieldValue FieldAlgebra::root_power(uint64_t e) {
  uint64_t r = p_.one();
  for (size_t j = 0; j < 8; j++, e >>= 8) r = p_.mul(r, root_[j][e & 255]);
  return finite(r, 0, kPositive, kNoQ);
}

FieldValue FieldAlgebra::exp(Value x) {
  if (kind(x) == kUndefined || kind(x) == kPlusInf) return x;
  if (kind(x) == kMinusInf) return integer(0, x.q);
  if (residue_p(x) == 0 && ((x.q & kNoQ) || residue_q(x) == 0)) return integer(1, x.q);
  if (x.q & kNoQ) {   // an exponential beneath another: only the p part is left to depend on
    Value r = keyed(Uninterpreted::kNestedExp, 0, residue_p(x), 0);
    r.p |= kPositive;
    return r;
  }
  Value r = root_power(q_.to(residue_q(x)));
  r.q |= x.q & kKeyed;
  return r;
}

FieldValue FieldAlgebra::keyed(Uninterpreted fn, uint64_t attribute, uint64_t x, uint64_t y) {
  note(fn);
  const uint64_t h = hash_combine(hash_combine(hash_combine(hash_combine(key_, 16 + static_cast<uint64_t>(fn)), attribute), x), y);
  return finite(p_.fold(mix64(h ^ 0x55), mix64(h ^ 0x66)), q_.fold(mix64(h ^ 0x77), mix64(h ^ 0x88)), 0, kKeyed);
}

/// An uninterpreted odd function with limits +-1, as tanh and erf are.
FieldValue FieldAlgebra::odd(Uninterpreted fn, Value x) {
  if (kind(x) == kUndefined) return x;
  if (kind(x) != kFinite) return integer(kind(x) == kPlusInf ? 1 : -1, x.q);
  if (residue_p(x) == 0) return integer(0, x.q);
  return sub(keyed(fn, 0, residue_p(x), 0), keyed(fn, 0, p_.neg(residue_p(x)), 0));
}

FieldValue FieldAlgebra::sin(Value x) { return kind(x) == kFinite ? odd(Uninterpreted::kSin, x) : undefined(x.q); }

FieldValue FieldAlgebra::cos(Value x) {   // even
  if (kind(x) != kFinite) return undefined(x.q);
  if (residue_p(x) == 0) return integer(1, x.q);
  return add(keyed(Uninterpreted::kCos, 0, residue_p(x), 0), keyed(Uninterpreted::kCos, 0, p_.neg(residue_p(x)), 0));
}

/// An uninterpreted function that keeps whole numbers and infinities.
FieldValue FieldAlgebra::whole(Uninterpreted fn, Value x) {
  return kind(x) != kFinite || (x.p & kExact) ? x : keyed(fn, 0, residue_p(x), 0);
}

FieldValue FieldAlgebra::log(Value x) {
  if (kind(x) == kUndefined || kind(x) == kPlusInf) return x;
  if (kind(x) == kMinusInf) return undefined(x.q);
  if (residue_p(x) == 0) {
    if (x.p & kExact) return infinite(kMinusInf, x.q);
    zero_denominator_ = true;   // a zero by accident or by cancellation
    return undefined(x.q);
  }
  if (residue_p(x) == p_.one()) return integer(0, x.q);
  return keyed(Uninterpreted::kLog, 0, residue_p(x), 0);
}

FieldValue FieldAlgebra::sqrt(Value x) {
  if (kind(x) == kUndefined || kind(x) == kPlusInf) return x;
  if (kind(x) == kMinusInf || (x.p & kNegative && residue_p(x) != 0)) return undefined(x.q);
  if (residue_p(x) == 0) return integer(0, x.q);
  if (residue_p(x) == p_.one()) return integer(1, x.q);
  if (!mode_.sqrt_power) {
    if (x.p & kExact) {
      const int64_t v = integer_of(x), r = std::llround(std::sqrt(static_cast<double>(v)));
      if (r * r == v) return integer(r, x.q);
    }
    Value r = keyed(Uninterpreted::kSqrt, 0, residue_p(x), 0);
    r.p |= kPositive;
    return r;
  }
  note(Uninterpreted::kSqrt);
  return finite(p_.pow(residue_p(x), sqrt_p_), x.q & kNoQ ? 0 : q_.pow(residue_q(x), sqrt_q_), kPositive, kKeyed | (x.q & kNoQ));
}

FieldValue FieldAlgebra::abs(Value x) {
  if (kind(x) == kUndefined) return x;
  if (kind(x) != kFinite) return infinite(kPlusInf, x.q);
  if (residue_p(x) == 0 || x.p & kPositive) return x;
  if (x.p & kNegative) return neg(x);
  Value r = max(x, neg(x));
  r.p |= kPositive;
  return r;
}

/// A keyed permutation of Z_p (Feistel, cycle walking). The maximum of a set S is the x with permute(x) = sum over S of permute:
/// associative, commutative, and injective in S up to collisions, where an order by hash would hide every element that does not win.
uint64_t FieldAlgebra::permute(uint64_t x) const {
  const uint64_t mask = (1ull << half_bits_) - 1;
  do {
    uint64_t l = x >> half_bits_, r = x & mask;
    for (uint64_t i = 0; i < 4; i++) { const uint64_t t = l ^ (mix64(key_ ^ mix64(r + (i << 40))) & mask); l = r; r = t; }
    x = l << half_bits_ | r;
  } while (x >= p_.value());
  return x;
}

uint64_t FieldAlgebra::unpermute(uint64_t x) const {
  const uint64_t mask = (1ull << half_bits_) - 1;
  do {
    uint64_t l = x >> half_bits_, r = x & mask;
    for (uint64_t i = 4; i-- > 0;) { const uint64_t t = r ^ (mix64(key_ ^ mix64(l + (i << 40))) & mask); r = l; l = t; }
    x = l << half_bits_ | r;
  } while (x >= p_.value());
  return x;
}

FieldAlgebra::Leaves FieldAlgebra::leaves_of(const Value& x) const {
  if (auto it = sets_.find(residue_p(x)); it != sets_.end()) return it->second;
  return {{residue_p(x), (x.p & kExact) != 0, x.p & kExact ? integer_of(x) : 0}};
}

FieldValue FieldAlgebra::max(Value x, Value y) {
  const uint64_t marks = (x.q | y.q) & kKeyed;
  if (kind(x) == kUndefined || kind(y) == kUndefined) return undefined(marks);
  if (kind(x) == kPlusInf || kind(y) == kPlusInf) return infinite(kPlusInf, marks);
  if (kind(x) == kMinusInf) { y.q |= marks; return y; }
  if (kind(y) == kMinusInf) { x.q |= marks; return x; }
  if (residue_p(x) == residue_p(y)) { Value& r = x.p & kExact ? x : y; r.q |= marks; return r; }
  if (x.p & y.p & kExact) { Value& r = integer_of(x) < integer_of(y) ? y : x; r.q |= marks; return r; }
  note(Uninterpreted::kMax);
  const Leaves a = leaves_of(x), b = leaves_of(y);
  const uint64_t positive = (x.p | y.p) & kPositive;
  auto result = [&](uint64_t sum) {
    const uint64_t r = unpermute(sum), h = hash_combine(hash_combine(key_, 3), r);
    return finite(r, q_.fold(mix64(h ^ 0x77), mix64(h ^ 0x88)), positive, kKeyed);
  };
  if (a.size() + b.size() > kMaxLeaves || stored_leaves_ > kMaxStoredLeaves)
    return result(p_.add(permute(residue_p(x)), permute(residue_p(y))));
  Leaves all;
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(all), [](const Leaf& s, const Leaf& t) { return s.p < t.p; });
  all.erase(std::unique(all.begin(), all.end(), [](const Leaf& s, const Leaf& t) { return s.p == t.p; }), all.end());
  int64_t largest = INT64_MIN;   // of known integers only the largest counts
  for (const Leaf& l : all) if (l.exact) largest = std::max(largest, l.value);
  std::erase_if(all, [&](const Leaf& l) { return l.exact && l.value != largest; });
  auto is_all = [&](const Leaves& s) {
    return s.size() == all.size() && std::equal(s.begin(), s.end(), all.begin(), [](const Leaf& u, const Leaf& v) { return u.p == v.p; });
  };
  if (is_all(a)) { x.q |= marks; return x; }
  if (is_all(b)) { y.q |= marks; return y; }
  uint64_t sum = 0;
  for (const Leaf& l : all) sum = p_.add(sum, permute(l.p));
  Value r = result(sum);
  if (auto [it, fresh] = sets_.try_emplace(residue_p(r), all); fresh) stored_leaves_ += all.size();
  return r;
}

FieldValue FieldAlgebra::scaled_pow(Value x, int64_t e) {
  Value r = integer(1, 0);
  for (uint64_t k = static_cast<uint64_t>(e < 0 ? -e : e); k; k >>= 1) {
    if (k & 1) r = mul(r, x);
    if (k > 1) x = mul(x, x);
  }
  return e < 0 ? div(integer(1, 0), r) : r;
}

FieldValue FieldAlgebra::pow(Value x, Value y) {
  const uint64_t marks = (x.q | y.q) & kKeyed;
  if (kind(x) == kUndefined || kind(y) != kFinite) return undefined(marks);
  if (y.p & kExact && std::llabs(integer_of(y)) <= 64) { Value r = scaled_pow(x, integer_of(y)); r.q |= marks; return r; }
  if (kind(x) != kFinite) return undefined(marks);
  const Value half = constant(0.5);
  if (residue_p(y) == residue_p(half)) return sqrt(x);
  if (residue_p(y) == p_.neg(residue_p(half))) return div(integer(1, 0), sqrt(x));
  return keyed(Uninterpreted::kPow, 0, residue_p(x), residue_p(y));
}

FieldValue FieldAlgebra::equal(Value x, Value y) {
  const uint64_t marks = x.q | y.q;
  if (kind(x) == kUndefined || kind(y) == kUndefined) return undefined(marks);
  if (kind(x) != kFinite || kind(y) != kFinite) return integer(kind(x) == kind(y), marks);
  if (residue_p(x) == residue_p(y)) return integer(1, marks);
  if (x.p & y.p & kExact) return integer(0, marks);
  const uint64_t a = std::min(residue_p(x), residue_p(y)), b = std::max(residue_p(x), residue_p(y));
  if (!mode_.bits) return keyed(Uninterpreted::kEqual, 0, a, b);
  note(Uninterpreted::kEqual);
  return integer(bit(4, hash_combine(a, b)), kKeyed);
}

FieldValue FieldAlgebra::less(Value x, Value y) {
  const uint64_t marks = x.q | y.q;
  if (kind(x) == kUndefined || kind(y) == kUndefined) return undefined(marks);
  if (kind(x) != kFinite || kind(y) != kFinite) return integer(kind(x) != kind(y) && (kind(x) == kMinusInf || kind(y) == kPlusInf), marks);
  if (residue_p(x) == residue_p(y)) return integer(0, marks);
  if (x.p & y.p & kExact) return integer(integer_of(x) < integer_of(y), marks);
  if (!mode_.bits) return keyed(Uninterpreted::kLess, 0, residue_p(x), residue_p(y));
  note(Uninterpreted::kLess);
  return integer(permute(residue_p(x)) < permute(residue_p(y)), kKeyed);   // a random total order
}

FieldValue FieldAlgebra::select(Value c, Value x, Value y) {
  auto pick = [&](Value v) { v.q |= c.q & kKeyed; return v; };
  if (kind(c) == kUndefined) return undefined(c.q);
  if (kind(c) != kFinite) return pick(x);
  if (residue_p(c) == 0) return pick(y);
  if (c.p & kExact || residue_p(c) == p_.one()) return pick(x);
  note(Uninterpreted::kBool);
  if (mode_.bits) return bit(5, residue_p(c)) ? pick(x) : pick(y);
  // right for 0 and 1, and a polynomial in between: no value of c hides a branch
  if (kind(x) == kFinite && kind(y) == kFinite) return pick(add(y, mul(c, sub(x, y))));
  if (kind(x) == kind(y)) return pick(x);
  if (kind(x) != kUndefined && kind(y) != kUndefined) needs_bits_ = true;
  return undefined(c.q | x.q | y.q);
}

FieldValue FieldAlgebra::round(Value x, DType t) {
  if (t == DType::kReal || t == DType::kBool || kind(x) != kFinite) return x;
  if (x.p & kExact) { Value r = constant(round_to(static_cast<double>(integer_of(x)), t)); r.q |= x.q & kKeyed; return r; }
  if (residue_p(x) == 0) return x;
  const uint64_t stored = x.q & kStoredMask;
  if (stored && (t == DType::kF32 || stored == stored_mark(t))) return x;
  Value r = keyed(Uninterpreted::kRound, static_cast<uint64_t>(t), residue_p(x), 0);
  r.q |= stored_mark(t);
  return r;
}

void FieldAlgebra::gemm(int64_t m, int64_t n, int64_t k, const Value* x, const Value* y, Value* dst) {
  // Columns of y as two dense arrays: the inner loop is two multiply-adds in 128 bits with one conditional subtraction each.
  const auto uk = static_cast<size_t>(k);
  std::vector<uint64_t> yp(uk), yq(uk), xp(static_cast<size_t>(m) * uk), xq(static_cast<size_t>(m) * uk), row_marks(static_cast<size_t>(m));
  std::vector<uint8_t> row_plain(static_cast<size_t>(m), 1);
  for (int64_t i = 0; i < m; i++)
    for (int64_t l = 0; l < k; l++) {
      const Value& v = x[i * k + l];
      const auto at = static_cast<size_t>(i * k + l);
      xp[at] = residue_p(v);
      xq[at] = residue_q(v);
      row_marks[static_cast<size_t>(i)] |= v.q;
      if (v.p & kExact) row_plain[static_cast<size_t>(i)] = 0;
    }
  auto dot = [&](const Modulus& mod, const uint64_t* a, const uint64_t* b) {
    u128 acc = 0;
    const uint64_t md = mod.value();
    for (size_t l = 0; l < uk; l++) {
      acc += static_cast<u128>(a[l]) * b[l];
      const auto high = static_cast<uint64_t>(acc >> 64);
      acc -= static_cast<u128>(high >= md ? md : 0) << 64;   // stays below m * 2^64, as reduce wants
    }
    return mod.reduce(acc);
  };
  for (int64_t j = 0; j < n; j++) {
    uint64_t marks = 0, exact = 0;
    for (int64_t l = 0; l < k; l++) {
      const Value& v = y[l * n + j];
      yp[static_cast<size_t>(l)] = residue_p(v);
      yq[static_cast<size_t>(l)] = residue_q(v);
      marks |= v.q;
      exact |= v.p & kExact;
    }
    for (int64_t i = 0; i < m; i++) {
      const uint64_t all = (marks | row_marks[static_cast<size_t>(i)]) & (kKindMask | kKeyed | kNoQ);
      if ((all & kKindMask) || exact || !row_plain[static_cast<size_t>(i)]) {   // infinities and known integers go the careful way
        Value acc = mul(x[i * k], y[j]);
        for (int64_t l = 1; l < k; l++) acc = add(acc, mul(x[i * k + l], y[l * n + j]));
        dst[i * n + j] = acc;
      } else {
        const size_t at = static_cast<size_t>(i) * uk;
        dst[i * n + j] = finite(dot(p_, &xp[at], yp.data()), all & kNoQ ? 0 : dot(q_, &xq[at], yq.data()), 0, all);
      }
    }
  }
}

bool FieldAlgebra::same(const Value& x, const Value& y) const {
  if (kind(x) != kFinite || kind(y) != kFinite) return kind(x) == kind(y);
  return residue_p(x) == residue_p(y) && (((x.q | y.q) & kNoQ) || residue_q(x) == residue_q(y));
}

std::string FieldAlgebra::show(const Value& x) const {
  switch (kind(x)) {
    case kMinusInf: return "-inf";
    case kPlusInf: return "inf";
    case kUndefined: return "undefined";
    default:
      return std::to_string(p_.to(residue_p(x))) + " mod p" + (x.q & kNoQ ? "" : ", " + std::to_string(q_.to(residue_q(x))) + " mod q");
  }
}

}  // namespace mirage::verify
