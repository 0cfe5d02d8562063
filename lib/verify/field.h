// The verifier's algebra: pairs in Z_p x Z_q (OSDI'25 table 3), with infinities, exact small integers, and keyed random functions for what
// fields cannot say. docs/verification.md tells which laws each operator satisfies here and why a value carries the marks it does.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "mirage/ir/eval.h"
#include "verify/modulus.h"

namespace mirage::verify {

/// A residue pair with marks in the spare upper bits. Marks are knowledge about the real number that the value stands for; two values are
/// equal if their residues and kinds are.
struct FieldValue {
  uint64_t p = 0;   ///< 0..60 residue mod p (Montgomery); 61 kExact; 62-63 sign
  uint64_t q = 0;   ///< 0..57 residue mod q (Montgomery); 58-59 storage; 60 kKeyed; 61 kNoQ; 62-63 kind
};
static_assert(sizeof(FieldValue) == 16);

inline constexpr uint64_t kPMask = (1ull << 61) - 1, kQMask = (1ull << 58) - 1;
/// the real number is the integer of least magnitude with this residue, below 2^52
inline constexpr uint64_t kExact = 1ull << 61;
/// sign of the real number unless it is 0; none: not known
inline constexpr uint64_t kPositive = 1ull << 62, kNegative = 1ull << 63, kSignMask = kPositive | kNegative;
/// representable in f16, bf16, f32
inline constexpr uint64_t kStored16 = 1ull << 58, kStoredB16 = 2ull << 58, kStored32 = 3ull << 58, kStoredMask = 3ull << 58;
inline constexpr uint64_t kKeyed = 1ull << 60;                        ///< an uninterpreted function or a random power took part
inline constexpr uint64_t kNoQ = 1ull << 61;                          ///< the q part is not defined: behind an exponential
inline constexpr uint64_t kFinite = 0, kMinusInf = 1ull << 62, kPlusInf = 2ull << 62, kUndefined = 3ull << 62, kKindMask = 3ull << 62;

inline uint64_t residue_p(const FieldValue& x) { return x.p & kPMask; }
inline uint64_t residue_q(const FieldValue& x) { return x.q & kQMask; }
inline uint64_t kind(const FieldValue& x) { return x.q & kKindMask; }
inline bool is_keyed(const FieldValue& x) { return x.q & kKeyed; }

/// How a trial treats what has no field meaning.
struct FieldMode {
  bool sqrt_power = false;   ///< sqrt(x) = x^e with a secret e (multiplicative) instead of a keyed function
  bool even_power = false;   ///< parity of e: x^e maps -1 to 1 or to -1, and only what holds for both is a law
  bool bits = false;         ///< conditions are random bits instead of field elements (needed where they choose an infinity)
};

/// Names of what was uninterpreted, in the order of the bits of FieldAlgebra::used().
enum class Uninterpreted : uint8_t {
  kSqrt,
  kMax,
  kTanh,
  kErf,
  kSin,
  kCos,
  kFloor,
  kNearest,
  kLog,
  kPow,
  kLess,
  kEqual,
  kRound,
  kNestedExp,
  kBool,
  kRunning,
  kNum
};
const char* uninterpreted_name(Uninterpreted);

/// One trial's algebra. All randomness comes from the key.
class FieldAlgebra {
 public:
  using Value = FieldValue;
  FieldAlgebra(Primes primes, uint64_t key, FieldMode mode);

  Value constant(double);
  Value input(DType stored, uint64_t index);      ///< the random value number `index` of this trial; bools as the mode says
  Value bit_input(bool);                          ///< a bool input whose value the caller drew (mode.bits)
  /// a random value unlike any before in this trial: one of a running maximum, whose value must not matter
  Value arbitrary();
  Value add(Value, Value);
  Value sub(Value x, Value y) { return add(x, neg(y)); }
  Value mul(Value, Value);
  Value div(Value, Value);
  Value neg(Value);
  Value exp(Value);
  Value log(Value);
  Value sqrt(Value);
  Value abs(Value);
  Value tanh(Value x) { return odd(Uninterpreted::kTanh, x); }
  Value erf(Value x) { return odd(Uninterpreted::kErf, x); }
  Value sin(Value);
  Value cos(Value);
  Value floor(Value x) { return whole(Uninterpreted::kFloor, x); }
  Value nearest(Value x) { return whole(Uninterpreted::kNearest, x); }
  Value max(Value, Value);
  Value min(Value x, Value y) { return neg(max(neg(x), neg(y))); }
  Value pow(Value, Value);
  Value equal(Value, Value);
  Value less(Value, Value);
  Value select(Value, Value, Value);
  Value round(Value, DType);
  /// dst (m,n) = x (m,k) times y (k,n), row-major.
  void gemm(int64_t m, int64_t n, int64_t k, const Value* x, const Value* y, Value* dst);

  bool same(const Value& x, const Value& y) const;             ///< both defined
  std::string show(const Value&) const;
  uint32_t used() const { return used_; }                      ///< bit per Uninterpreted that mattered in this trial
  bool zero_denominator() const { return zero_denominator_; }  ///< some division by zero, 0 * infinity, infinity - infinity happened
  bool unknown_sign() const { return unknown_sign_; }          ///< an infinity was multiplied by a value of unknown sign
  bool needs_bits() const { return needs_bits_; }              ///< a field-valued condition chose an infinity

 private:
  struct Leaf { uint64_t p; bool exact; int64_t value; };
  using Leaves = std::vector<Leaf>;

  Value finite(uint64_t p, uint64_t q, uint64_t marks_p, uint64_t marks_q) const { return {p | marks_p, q | marks_q}; }
  Value infinite(uint64_t kind, uint64_t marks) const { return {0, kind | (marks & kKeyed)}; }
  Value undefined(uint64_t marks) const { return {0, kUndefined | (marks & kKeyed)}; }
  Value integer(int64_t v, uint64_t marks);
  int64_t integer_of(const Value&) const;
  Value keyed(Uninterpreted fn, uint64_t attribute, uint64_t x, uint64_t y);
  Value odd(Uninterpreted fn, Value x);
  Value whole(Uninterpreted fn, Value x);
  Value add_special(Value, Value);
  Value mul_special(Value, Value);
  Value root_power(uint64_t e);                                 ///< w^e
  Value scaled_pow(Value x, int64_t e);
  uint64_t permute(uint64_t p) const;
  uint64_t unpermute(uint64_t h) const;
  Leaves leaves_of(const Value&) const;
  bool bit(uint64_t fn, uint64_t p) const { return hash_combine(hash_combine(key_, fn), p) >> 63; }
  void note(Uninterpreted u) { used_ |= 1u << static_cast<int>(u); }

  Modulus p_, q_;
  uint64_t key_;
  FieldMode mode_;
  uint64_t sqrt_p_ = 0, sqrt_q_ = 0;                            ///< the secret exponents
  std::array<std::array<uint64_t, 256>, 8> root_;               ///< w^(i*256^j): exp by eight products
  int half_bits_;                                               ///< Feistel half width
  std::unordered_map<uint64_t, Value> constants_;
  std::unordered_map<uint64_t, Leaves> sets_;                   ///< maxima of this trial, by residue: what they are the maximum of
  size_t stored_leaves_ = 0;
  uint64_t arbitrary_ = 0;                                      ///< how many there were
  uint32_t used_ = 0;
  bool zero_denominator_ = false, unknown_sign_ = false, needs_bits_ = false;
};

}  // namespace mirage::verify
