// Decides whether the axioms entail subexpr(e, t), on normal forms (docs/pruning.md gives the argument). One per pool.
#pragma once
#include <vector>
#include "expr/normal_form.h"

namespace mirage::expr_internal {

class SubexprDecider {
 public:
  explicit SubexprDecider(NormalForms& forms) : forms_(forms) {}
  bool operator()(PolyId e, PolyId t);

 private:
  /// Everything from which t can be reached by wrapping: t and all exponents, radicands, denominators and arguments within, each once; and the maxima met on the way.
  struct Inside { std::vector<PolyId> polys; std::vector<FactorId> maxima; };
  const Inside& inside(PolyId t);
  bool included(PolyId e, PolyId u);    ///< a monomial q exists with e * q included in u
  bool decide(PolyId e, PolyId t);

  NormalForms& forms_;
  FlatMap memo_, inside_index_;
  std::vector<Inside> inside_;
};

}  // namespace mirage::expr_internal
