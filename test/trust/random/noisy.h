// A number with a bound of its rounding error, for OwnEvaluator: what two graphs must differ by before they count as different. A second
// precision is no such bound: log(exp(1e-100)) is 0 in any.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>

#include "mirage/ir/types.h"

namespace mirage::test {

struct Noisy {
  long double v = 0, e = 0;   ///< the exact value lies within e of v; infinite or NaN e: nothing is known

  Noisy() = default;
  Noisy(long double value) : v(value) {}   // NOLINT: numbers are exact
  Noisy(long double value, long double error) : v(value), e(error) {}
  explicit operator double() const { return static_cast<double>(v); }
  bool operator==(const Noisy& o) const { return v == o.v; }
  bool operator!=(const Noisy& o) const { return v != o.v; }
};

/// Set where a number left the range on the way, upward or to 0: what is not finite then says nothing of the reals.
inline bool& left_range() {
  thread_local bool has = false;
  return has;
}
inline long double in_range(long double v, bool may_be_zero, bool of_finite) {
  if (of_finite && (std::isinf(v) || (v == 0 && !may_be_zero))) left_range() = true;
  return v;
}

/// A result that was rounded once, a few units in the last place; what underflows is off by as much as the smallest number.
inline Noisy rounded(long double v, long double e) { return {v, e + std::fabs(v) * 0x1p-61L + 1e-4900L}; }
/// Of a function that grows or falls on the way from x - e to x + e: the farther end.
template <class F> Noisy monotonic(const Noisy& x, F f) {
  const long double v = f(x.v);
  return rounded(v, std::max(std::fabs(f(x.v + x.e) - v), std::fabs(f(x.v - x.e) - v)));
}

inline Noisy operator+(const Noisy& a, const Noisy& b) {
  const long double s = in_range(a.v + b.v, true, std::isfinite(a.v) && std::isfinite(b.v)), part = s - a.v;
  const bool is_exact = (a.v - (s - part)) + (b.v - part) == 0;   // counts are
  return is_exact ? Noisy{s, a.e + b.e} : rounded(s, a.e + b.e);
}
inline Noisy operator-(const Noisy& a, const Noisy& b) { return a + Noisy{-b.v, b.e}; }
inline Noisy operator-(const Noisy& a) { return {-a.v, a.e}; }
inline Noisy operator*(const Noisy& a, const Noisy& b) {
  const auto part = [](long double value, long double error) { return error == 0 ? 0 : std::fabs(value) * error; };
  const long double p = in_range(a.v * b.v, a.v == 0 || b.v == 0, std::isfinite(a.v) && std::isfinite(b.v)),
                    e = part(a.v, b.e) + part(b.v, a.e) + part(a.e, b.e);
  return std::isfinite(p) && std::fma(a.v, b.v, -p) == 0 && (p != 0 || a.v == 0 || b.v == 0) ? Noisy{p, e} : rounded(p, e);
}
inline Noisy operator/(const Noisy& a, const Noisy& b) {
  if (b.e > 0 && std::fabs(b.v) <= b.e) return {a.v / b.v, INFINITY};
  const long double r = a.v / b.v;
  return rounded(r, (a.e + (b.e == 0 ? 0 : std::fabs(r) * b.e)) / (std::fabs(b.v) - b.e));
}
inline Noisy& operator+=(Noisy& a, const Noisy& b) { return a = a + b; }
inline Noisy& operator*=(Noisy& a, const Noisy& b) { return a = a * b; }
/// Of a comparison that the errors could turn round: 0 or 1, unknown which.
inline Noisy compared(bool is, const Noisy& a, const Noisy& b) {
  return {is ? 1.0L : 0.0L, std::fabs(a.v - b.v) <= a.e + b.e && a.e + b.e > 0 ? 1.0L : 0.0L};
}

inline Noisy exp(const Noisy& x) {
  in_range(std::exp(x.v), false, std::isfinite(x.v));
  return monotonic(x, [](long double t) { return std::exp(t); });
}
inline Noisy log(const Noisy& x) {
  return x.e > 0 && x.v <= x.e ? Noisy{std::log(x.v), INFINITY} : monotonic(x, [](long double t) { return std::log(t); });
}
inline Noisy sqrt(const Noisy& x) {
  return x.e > 0 && x.v < x.e ? Noisy{std::sqrt(x.v), INFINITY} : monotonic(x, [](long double t) { return std::sqrt(t); });
}
inline Noisy tanh(const Noisy& x) { return monotonic(x, [](long double t) { return std::tanh(t); }); }
inline Noisy erf(const Noisy& x) { return monotonic(x, [](long double t) { return std::erf(t); }); }
inline Noisy log1p(const Noisy& x) {
  return x.e > 0 && 1 + x.v <= x.e ? Noisy{std::log1p(x.v), INFINITY} : monotonic(x, [](long double t) { return std::log1p(t); });
}
inline Noisy expm1(const Noisy& x) {
  in_range(std::expm1(x.v), true, std::isfinite(x.v));
  return monotonic(x, [](long double t) { return std::expm1(t); });
}
inline Noisy sin(const Noisy& x) { return rounded(std::sin(x.v), std::min(x.e, 2.0L)); }
inline Noisy cos(const Noisy& x) { return rounded(std::cos(x.v), std::min(x.e, 2.0L)); }
inline Noisy fabs(const Noisy& x) { return {std::fabs(x.v), x.e}; }
inline Noisy pow(const Noisy& x, const Noisy& y) {
  const long double v = in_range(std::pow(x.v, y.v), true, std::isfinite(x.v) && x.v != 0 && std::isfinite(y.v));
  if (x.e == 0 && y.e == 0) return rounded(v, 0);
  if (x.v <= x.e) return {v, INFINITY};
  const long double slope = std::fabs(y.v) * x.e / (x.v - x.e) + std::fabs(std::log(x.v)) * y.e;
  return rounded(v, slope < 0.5L ? 2 * std::fabs(v) * slope : static_cast<long double>(INFINITY));
}

}  // namespace mirage::test
