// fp64 numbers with a bound on what rounding has done to them: what is the noise of one element and what is a difference? Each local error
// is the exact one where it can be had (sums, products, quotients, roots), so that integers and dyadic fractions stay exact and ties stay
// ties.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "mirage/ir/eval.h"

namespace mirage::verify {

/// A double and a bound on its distance from the real number; an infinite bound: rounding, or the range of doubles, decides what it is.
struct Bounded {
  double v = 0, e = 0;
};

struct BoundedAlgebra {
  using Value = Bounded;
  static constexpr double kUnit = 0x1p-53, kTiny = 0x1p-1074, kSmall = 0x1p-960, kInf = std::numeric_limits<double>::infinity();

  /// r is what operands with bounds that add up to `carried` give, itself off by at most `local`. Of finite operands what is not finite has
  /// left the range: nothing is known of it.
  static Bounded made(double r, double carried, double local, bool from_finite = true) {
    if (!std::isfinite(r)) return {r, from_finite ? kInf : 0};
    if (carried > 0 && carried < kSmall) carried += kTiny;   // it may have been rounded down, to 0 even
    const double e = carried + local;
    return {r, std::isnan(e) ? kInf : e};
  }
  static bool finite(Bounded x, Bounded y) { return std::isfinite(x.v) && std::isfinite(y.v); }
  static bool lost(Bounded x) { return x.e == kInf; }
  static Bounded unknown(double r) { return {r, kInf}; }

  Bounded constant(double c) { return {c, 0}; }
  Bounded add(Bounded x, Bounded y) {
    const double s = x.v + y.v, t = s - x.v;
    if (lost(x) || lost(y)) return unknown(s);
    return made(s, x.e + y.e, std::fabs((x.v - (s - t)) + (y.v - t)), finite(x, y));   // TwoSum: the error is a double
  }
  Bounded neg(Bounded x) { return {-x.v, x.e}; }
  Bounded sub(Bounded x, Bounded y) { return add(x, neg(y)); }
  Bounded mul(Bounded x, Bounded y) {
    const double r = x.v * y.v, local = std::fabs(std::fma(x.v, y.v, -r));
    if (lost(x) || lost(y)) return unknown(r);
    const bool small = std::fabs(r) < kSmall && x.v != 0 && y.v != 0;   // the residue itself may be too small to be seen
    const bool noisy = (x.e > 0 && (y.v != 0 || y.e > 0)) || (y.e > 0 && (x.v != 0 || x.e > 0));
    return made(r, noisy ? carried(x, y.e) + carried(y, x.e) + x.e * y.e + kTiny : 0, local + (small ? kTiny : 0), finite(x, y));
  }
  Bounded div(Bounded x, Bounded y) {
    const double r = x.v / y.v;
    if (lost(x) || lost(y) || (y.e > 0 && std::fabs(y.v) <= y.e)) return unknown(r);   // by what may be 0
    if (!std::isfinite(r) || y.v == 0) return made(r, 0, 0, finite(x, y) && y.v != 0);
    if (!std::isfinite(y.v)) return {r, 0};
    const double least = std::fabs(y.v) - y.e, local = std::fabs(std::fma(-r, y.v, x.v)) / std::fabs(y.v);
    return made(r, x.e > 0 || y.e > 0 ? (x.e + std::fabs(r) * y.e) / least + kTiny : 0,
                local + (std::fabs(r) < kSmall && x.v != 0 ? kTiny : 0));
  }
  Bounded exp(Bounded x) {
    const double r = std::exp(x.v);
    if (lost(x)) return unknown(r);
    if (!std::isfinite(x.v)) return {r, 0};
    if (r == 0) return {0, std::exp(x.v + x.e) + kTiny};
    return made(r, x.e == 0 ? 0 : r * std::expm1(x.e), x.v == 0 && x.e == 0 ? 0 : 2 * kUnit * r + (r < kSmall ? kTiny : 0));
  }
  Bounded log(Bounded x) {
    const double r = std::log(x.v);
    if (lost(x) || (x.e > 0 && x.v <= x.e && x.v >= -x.e)) return unknown(r);
    if (!std::isfinite(r)) return {r, 0};
    return made(r, std::max(std::log(x.v + x.e) - r, r - std::log(x.v - x.e)), x.v == 1 && x.e == 0 ? 0 : 2 * kUnit * std::fabs(r));
  }
  Bounded sqrt(Bounded x) {
    const double r = std::sqrt(x.v);
    if (lost(x) || (x.e > 0 && x.v < x.e && x.v >= -x.e)) return unknown(r);
    if (!std::isfinite(r) || r == 0) return {r, 0};
    return made(r, r - std::sqrt(std::max(x.v - x.e, 0.0)), std::fabs(std::fma(-r, r, x.v)) / r);
  }
  Bounded abs(Bounded x) { return {std::fabs(x.v), x.e}; }
  Bounded tanh(Bounded x) { return made(std::tanh(x.v), x.e, x.v == 0 ? 0 : 4 * kUnit, std::isfinite(x.v)); }
  Bounded erf(Bounded x) { return made(std::erf(x.v), 1.13 * x.e, x.v == 0 ? 0 : 4 * kUnit, std::isfinite(x.v)); }
  Bounded sin(Bounded x) { return made(std::sin(x.v), std::min(x.e, 2.0), x.v == 0 ? 0 : 2 * kUnit, std::isfinite(x.v)); }
  Bounded cos(Bounded x) { return made(std::cos(x.v), std::min(x.e, 2.0), x.v == 0 ? 0 : 2 * kUnit, std::isfinite(x.v)); }
  /// A step function: as far off as it grows on the way from x - e to x + e.
  template <class F> static Bounded steps(F f, Bounded x) {
    const double r = f(x.v);
    if (lost(x)) return unknown(r);
    return {r, x.e == 0 || !std::isfinite(x.v) ? 0 : std::max(f(x.v + x.e) - r, r - f(x.v - x.e))};
  }
  Bounded floor(Bounded x) { return steps([](double v) { return std::floor(v); }, x); }
  Bounded nearest(Bounded x) { return steps([](double v) { return std::nearbyint(v); }, x); }
  Bounded max(Bounded x, Bounded y) {
    DoubleAlgebra d;
    return {d.max(x.v, y.v), std::max(x.e, y.e)};
  }
  Bounded min(Bounded x, Bounded y) { return neg(max(neg(x), neg(y))); }
  Bounded pow(Bounded x, Bounded y) {
    const double r = std::pow(x.v, y.v);
    if (lost(x) || lost(y)) return unknown(r);
    if (!std::isfinite(x.v) || !std::isfinite(y.v)) return {r, 0};
    if (x.e > 0 && std::fabs(x.v) <= x.e && (y.v < 0 || y.e > 0 || y.v != std::nearbyint(y.v))) return unknown(r);
    if (!std::isfinite(r)) return made(r, 0, 0, x.v > 0 || (x.v < 0 && y.v == std::nearbyint(y.v)));
    double off = 0;   // monotone in each operand on either side of 0: the corners are the extremes
    for (double dx : {-x.e, x.e})
      for (double dy : {-y.e, y.e})
        if (dx != 0 || dy != 0) off = std::max(off, std::fabs(std::pow(x.v + dx, y.v + dy) - r));
    const bool exact = x.e == 0 && y.e == 0 && (y.v == 0 || y.v == 1 || x.v == 1 || x.v == 0);
    return made(r, off, exact ? 0 : 2 * kUnit * std::fabs(r) + kTiny);
  }
  /// A comparison that rounding decides is 0 or 1 with a bound of 1.
  Bounded decided(bool holds, Bounded x, Bounded y) const {
    const double noise = x.e + y.e;
    const bool open = lost(x) || lost(y) || (finite(x, y) && noise > 0 && std::fabs(x.v - y.v) <= noise);
    return {holds ? 1.0 : 0.0, open ? 1.0 : 0.0};
  }
  Bounded equal(Bounded x, Bounded y) { return decided(x.v == y.v, x, y); }
  Bounded less(Bounded x, Bounded y) { return decided(x.v < y.v, x, y); }
  Bounded select(Bounded c, Bounded x, Bounded y) {
    const Bounded chosen = c.v != 0 ? x : y;
    if (!lost(c) && !(c.e > 0 && std::fabs(c.v) <= c.e)) return chosen;
    if (lost(c) || !finite(x, y)) return unknown(chosen.v);
    return {chosen.v, std::fabs(x.v - y.v) + x.e + y.e};
  }
  Bounded round(Bounded x, DType t) {
    const double r = round_to(x.v, t);
    if (lost(x)) return unknown(r);
    if (x.e == 0 || !std::isfinite(x.v)) return {r, 0};
    const double off = std::max(round_to(x.v + x.e, t) - r, r - round_to(x.v - x.e, t));
    return std::isfinite(r) && std::isfinite(off) ? Bounded{r, off} : unknown(r);
  }
  void gemm(int64_t m, int64_t n, int64_t k, const Bounded* x, const Bounded* y, Bounded* dst);

 private:
  static double carried(Bounded x, double e) { return e == 0 ? 0 : std::fabs(x.v) * e; }   // 0 times infinity is no noise
};

}  // namespace mirage::verify
