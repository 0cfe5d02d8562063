// Normal forms of abstract expressions modulo axioms.def, hash-consed: construction, product, exact quotient. expr.cc builds them,
// subexpr.cc decides with them (docs/pruning.md).
//
// A polynomial is a multiset of monomials. A monomial is
//     sum_K( F1 * ... * Fn * exp(E) * sqrt(Q) / D )
// with K a multiset of reduction extents, F a multiset of plain factors (inputs, literals, extents, -1, uninterpreted symbols of
// polynomials), and E, Q, D polynomials again. E is ONE exponent (arguments of multiplied exps added), Q ONE radicand and D ONE
// denominator, both multiplied out: factoring is not unique, x/((a+b)c) = x/(ac+bc). Without cancellation and with every generator free,
// monomials are a cancellative torsion-free commutative monoid; so polynomials with multiplicities as coefficients have unique exact
// quotients, found by leading terms in an order that products preserve.
#pragma once
#include <cstdint>
#include <span>
#include <vector>
#include "expr/tables.h"

namespace mirage::expr_internal {

using PolyId = int32_t;
using MonoId = int32_t;
using FactorId = int32_t;
using SeqId = int32_t;

constexpr int32_t kNone = -1;     ///< over the size cap, or no quotient
constexpr PolyId kZero = 0;       ///< no monomials: the absent exponent. Never an expression by itself
constexpr PolyId kOne = 1;        ///< the unit monomial alone: the absent radicand or denominator, and the literal 1
constexpr MonoId kUnit = 0;
constexpr int kMaxMonomials = 1024;    ///< per polynomial
constexpr int kMaxWeight = 1 << 20;   ///< symbols and monomials of a polynomial, nested ones included

enum class FactorKind : int32_t { kInput, kLiteral, kMinusOne, kExtent, kMap, kReduceMax, kConcat };

struct Monomial { SeqId k = 0, f = 0; PolyId e = kZero, q = kOne, d = kOne; };

/// What is known of a polynomial without looking inside. `signature` is a Bloom set of the symbols anywhere within: a sub-expression's is a
/// subset, its weight not larger.
struct PolyInfo { int weight; uint64_t signature; };

struct Factor { FactorKind kind; uint64_t payload; SeqId extents; std::span<const PolyId> args; };

class NormalForms {
 public:
  NormalForms();

  // Every polynomial operation returns kNone over the cap, and for an operand kNone. A sub-expression never exceeds the cap where the whole
  // does not (weights only grow), so which expressions are capped does not depend on the way they were built.
  PolyId symbol(FactorKind kind, uint64_t payload, std::span<const int> extents, std::span<const PolyId> args);
  PolyId add(PolyId x, PolyId y);
  PolyId mul(PolyId x, PolyId y);
  PolyId div(PolyId x, PolyId y);
  PolyId neg(PolyId x);
  PolyId exp(PolyId x);
  PolyId sqrt(PolyId x);
  PolyId constant(double c);
  PolyId extent(std::span<const int> symbols);
  PolyId sum(PolyId x, std::span<const int> extents);      ///< of the bare literal 1: extent(extents)
  PolyId reduce_max(PolyId x, std::span<const int> extents);

  MonoId mul_mono(MonoId a, MonoId b);
  /// the m with b * m = a whose radicand and denominator can be built (are not sum(i, 1) alone), or kNone
  MonoId div_mono(MonoId a, MonoId b);
  PolyId div_exact(PolyId p, PolyId d);         ///< the r with d * r = p, or kNone

  std::span<const MonoId> monomials(PolyId p) const { return polys_[p]; }     ///< leading first
  const Monomial& monomial(MonoId m) const { return monos_[static_cast<size_t>(m)]; }
  const PolyInfo& info(PolyId p) const { return poly_info_[static_cast<size_t>(p)]; }
  Factor factor(FactorId f) const;
  std::span<const int32_t> sequence(SeqId s) const { return seqs_[s]; }       ///< of extents or factors, descending
  int num_polys() const { return polys_.size(); }
  /// monomials of polynomials, symbols of monomials: what they take in time and memory
  int64_t elements() const { return seqs_.elements() + polys_.elements(); }
  bool single_factor(PolyId p, FactorId* f) const;                            ///< p is one plain factor and nothing else

 private:
  MonoId intern_mono(const Monomial& m);
  PolyId intern_poly(std::span<const MonoId> sorted);
  PolyId single(MonoId m) { return m == kNone ? kNone : intern_poly({&m, 1}); }
  PolyId times(PolyId p, MonoId m);                     ///< order is kept: no sorting
  bool is_count(PolyId p) const;                        ///< sum(i, 1) for some i not empty
  SeqId merge(SeqId a, SeqId b);                        ///< multiset sum
  SeqId difference(SeqId a, SeqId b);                   ///< multiset difference, kNone if b is not included in a
  PolyId poly_difference(PolyId a, PolyId b);
  int compare_seq(SeqId a, SeqId b) const;
  int compare_mono(MonoId a, MonoId b) const;           ///< a total order that products preserve
  int compare_poly(PolyId a, PolyId b) const;           ///< the same, preserved by sums and products
  PolyId mul_slow(PolyId x, PolyId y);
  PolyId div_slow(PolyId p, PolyId d);

  Sequences seqs_;       // extents and factors of monomials
  Sequences factors_;    // kind, payload (2), extents, args...
  Sequences mono_keys_;  // the five parts of a monomial
  Sequences polys_;
  std::vector<Monomial> monos_;
  struct MonoInfo { int weight; uint64_t signature; };
  std::vector<MonoInfo> mono_info_;
  std::vector<MonoInfo> factor_info_;
  std::vector<PolyInfo> poly_info_;
  FlatMap add_memo_, mul_memo_, div_memo_, mul_mono_memo_, div_mono_memo_;
  FactorId minus_one_ = 0;
};

}  // namespace mirage::expr_internal
