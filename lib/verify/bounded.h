// Doubles that carry a bound on how far rounding may have taken them from the real number they stand for: what tells a difference from noise, for each value by itself.
#pragma once
#include "mirage/ir/types.h"

namespace mirage::verify {

/// |the real number - value| <= error, to first order. An infinite error: nothing is known (an overflow, a comparison that rounding decides). A value that is not finite with a finite error is so in real numbers, too.
struct Bounded { double value = 0, error = 0; };

/// Real numbers as ir/eval.h wants them.
struct BoundedAlgebra {
  using Value = Bounded;
  Bounded constant(double c) { return {c, 0}; }
  Bounded add(Bounded x, Bounded y);
  Bounded sub(Bounded x, Bounded y) { return add(x, neg(y)); }
  Bounded mul(Bounded, Bounded);
  Bounded div(Bounded, Bounded);
  Bounded neg(Bounded x) { return {-x.value, x.error}; }
  Bounded exp(Bounded);
  Bounded log(Bounded);
  Bounded sqrt(Bounded);
  Bounded abs(Bounded x) { return {x.value < 0 ? -x.value : x.value, x.error}; }
  Bounded tanh(Bounded);
  Bounded erf(Bounded);
  Bounded max(Bounded, Bounded);
  Bounded min(Bounded x, Bounded y) { return neg(max(neg(x), neg(y))); }
  Bounded pow(Bounded, Bounded);
  Bounded equal(Bounded, Bounded);
  Bounded less(Bounded, Bounded);
  Bounded select(Bounded c, Bounded x, Bounded y);
  Bounded round(Bounded, DType);
};

/// Whether y is another number than x, by far more than both errors, or not finite where x is. False where rounding cannot tell, and where x is not finite.
bool clearly_differ(const Bounded& x, const Bounded& y);

}  // namespace mirage::verify
