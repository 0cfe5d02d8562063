// Decides whether the axioms entail subexpr(e, t), on normal forms (docs/pruning.md gives the argument). One per pool.
#pragma once
#include <optional>
#include <vector>
#include "expr/normal_form.h"

namespace mirage::expr_internal {

/// Why e is a sub-expression of t: a way from t down to a polynomial u, and how e lies in u. expr.cc writes it as the expression around e.
struct Surroundings {
  enum class Part : uint8_t { kExponent, kRadicand, kDenominator, kArgument };
  /// From a polynomial into its `mono`-th monomial: the exponent, radicand or denominator there, or argument `arg` of factor `factor`.
  struct Descent { PolyId from; int mono; Part part; int factor = 0, arg = 0; };
  std::vector<Descent> path;           ///< t first
  PolyId u = kOne;                     ///< where the path ends
  /// e = max(J, x) and factor `factor` of u's monomial `mono` is max(IJ, x); else e * q is included in u
  bool in_maximum = false;
  MonoId q = kUnit;
  std::vector<int> taken;              ///< the monomials of u that are e * q, by position
  int mono = 0, factor = 0;
};

class SubexprDecider {
 public:
  explicit SubexprDecider(NormalForms& forms) : forms_(forms) {}
  bool operator()(PolyId e, PolyId t);
  /// The surroundings of e in t if the answer is yes; requires that e is neither t nor the literal 1. By the same inclusion, along a way of
  /// its own.
  std::optional<Surroundings> explain(PolyId e, PolyId t);

 private:
  /// Everything from which t can be reached by wrapping: t and all exponents, radicands, denominators and arguments within, each once; and
  /// the maxima met on the way.
  struct Inside { std::vector<PolyId> polys; std::vector<FactorId> maxima; };
  const Inside& inside(PolyId t);
  bool included(PolyId e, PolyId u, Surroundings* how = nullptr);   ///< a monomial q exists with e * q included in u
  bool within(FactorId small, FactorId big) const;                  ///< max(J, x) and max(IJ, x)
  bool decide(PolyId e, PolyId t);

  NormalForms& forms_;
  FlatMap memo_, inside_index_;
  std::vector<Inside> inside_;
};

}  // namespace mirage::expr_internal
