// Rounding errors to first order, operation by operation.
#include "verify/bounded.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "mirage/ir/eval.h"

namespace mirage::verify {
namespace {
constexpr double kUlp = 0x1p-52, kUnknown = std::numeric_limits<double>::infinity(), kLeast = 0x1p-1060;

/// `value` computed from `from` with the operands' errors worth `error`: its own rounding is added, and what is not finite is told apart: an overflow of finite operands, or what the operands were already.
Bounded computed(double value, double error, std::initializer_list<Bounded> from, double ulps = 1) {
  bool is_finite = true, is_known = true;
  for (const Bounded& x : from) { is_finite = is_finite && std::isfinite(x.value); is_known = is_known && x.error != kUnknown; }
  if (!is_known) return {value, kUnknown};
  if (!std::isfinite(value)) return {value, is_finite ? kUnknown : 0};
  if (!is_finite) return {value, 0};   // exp(-inf), a maximum with it: nothing is rounded
  const double all = error + ulps * kUlp * std::fabs(value) + (error > 0 || value != std::trunc(value) ? kLeast : 0);
  return {value, std::isnan(all) ? kUnknown : all};
}
}  // namespace

Bounded BoundedAlgebra::add(Bounded x, Bounded y) {
  const double r = x.value + y.value;
  const bool is_exact = r - x.value == y.value && r - y.value == x.value;
  return computed(r, x.error + y.error, {x, y}, is_exact ? 0 : 1);
}

Bounded BoundedAlgebra::mul(Bounded x, Bounded y) {
  if ((x.value == 0 && x.error == 0 && std::isfinite(y.value)) || (y.value == 0 && y.error == 0 && std::isfinite(x.value))) return {0, 0};
  const double r = x.value * y.value;
  return computed(r, std::fabs(x.value) * y.error + std::fabs(y.value) * x.error + x.error * y.error, {x, y}, std::fma(x.value, y.value, -r) == 0 ? 0 : 1);
}

Bounded BoundedAlgebra::div(Bounded x, Bounded y) {
  const double r = x.value / y.value;
  if (y.value == 0 && y.error == 0) return {r, x.error == kUnknown ? kUnknown : 0};
  if (std::fabs(y.value) <= y.error) return {r, kUnknown};
  return computed(r, (x.error + std::fabs(r) * y.error) / (std::fabs(y.value) - y.error), {x, y});
}

Bounded BoundedAlgebra::exp(Bounded x) {
  const double r = std::exp(x.value);
  return computed(r, r * std::expm1(x.error), {x}, x.value == 0 && x.error == 0 ? 0 : 2);
}

Bounded BoundedAlgebra::log(Bounded x) {
  const double r = std::log(x.value);
  if (x.error > 0 && std::fabs(x.value) <= x.error) return {r, kUnknown};
  if (!(x.value > 0)) return {r, x.error == kUnknown ? kUnknown : 0};
  return computed(r, x.error / (x.value - x.error), {x}, 2);
}

Bounded BoundedAlgebra::sqrt(Bounded x) {
  const double r = std::sqrt(x.value);
  if (x.error > 0 && std::fabs(x.value) <= x.error) return {r, kUnknown};   // it may be negative
  if (x.value < 0) return {r, x.error == kUnknown ? kUnknown : 0};
  return computed(r, x.value > 0 ? x.error / r : 0, {x}, std::fma(r, r, -x.value) == 0 ? 0 : 1);
}

Bounded BoundedAlgebra::tanh(Bounded x) {
  if (std::isinf(x.value) && x.error == 0) return {x.value < 0 ? -1.0 : 1.0, 0};
  return computed(std::tanh(x.value), x.error, {x}, 2);
}

Bounded BoundedAlgebra::erf(Bounded x) {
  if (std::isinf(x.value) && x.error == 0) return {x.value < 0 ? -1.0 : 1.0, 0};
  return computed(std::erf(x.value), 1.2 * x.error, {x}, 2);
}

Bounded BoundedAlgebra::max(Bounded x, Bounded y) {
  if (std::isnan(x.value) || std::isnan(y.value)) return {x.value + y.value, std::max(x.error, y.error)};
  return {std::max(x.value, y.value), x.value > y.value + y.error + x.error ? x.error : y.value > x.value + x.error + y.error ? y.error : std::max(x.error, y.error)};
}

Bounded BoundedAlgebra::pow(Bounded x, Bounded y) {
  const double r = std::pow(x.value, y.value);
  if (x.error > 0 && std::fabs(x.value) <= 2 * x.error) return {r, kUnknown};
  if (x.value < 0 && y.error > 0) return {r, kUnknown};
  if (std::isnan(r)) return {r, x.error == kUnknown || y.error == kUnknown ? kUnknown : 0};
  const double by_x = x.error > 0 ? std::fabs(y.value * r / x.value) * x.error * 2 : 0, by_y = y.error > 0 ? std::fabs(r * std::log(x.value)) * y.error * 2 : 0;
  if (x.value == 0 && x.error == 0 && std::isinf(r)) return {r, 0};
  return computed(r, by_x + by_y, {x, y}, 4);
}

Bounded BoundedAlgebra::equal(Bounded x, Bounded y) {
  const bool is_decided = x.error + y.error == 0 || std::fabs(x.value - y.value) > x.error + y.error;
  return {x.value == y.value ? 1.0 : 0.0, is_decided ? 0.0 : 1.0};
}

Bounded BoundedAlgebra::less(Bounded x, Bounded y) {
  const bool is_decided = x.error + y.error == 0 || std::fabs(x.value - y.value) > x.error + y.error;
  return {x.value < y.value ? 1.0 : 0.0, is_decided ? 0.0 : 1.0};
}

Bounded BoundedAlgebra::select(Bounded c, Bounded x, Bounded y) {
  const Bounded r = c.value != 0 ? x : y;
  if (c.error == 0) return r;
  const double gap = std::fabs(x.value - y.value);
  return {r.value, std::isnan(gap) ? kUnknown : gap + x.error + y.error};
}

Bounded BoundedAlgebra::round(Bounded x, DType t) {
  const double r = round_to(x.value, t);
  if (x.error == 0) return {r, 0};
  if (x.error == kUnknown) return {r, kUnknown};
  const double low = round_to(x.value - x.error, t), high = round_to(x.value + x.error, t);
  const double error = std::max(r - low, high - r);
  return {r, std::isfinite(error) ? error : low == high ? 0 : kUnknown};
}

bool clearly_differ(const Bounded& x, const Bounded& y) {
  if (!std::isfinite(x.value) || x.error == kUnknown || y.error == kUnknown) return false;
  if (!std::isfinite(y.value)) return true;
  return std::fabs(x.value - y.value) > 4 * (x.error + y.error) + 1e-300 && std::fabs(x.value - y.value) > 1e-13 * std::max(std::fabs(x.value), std::fabs(y.value));
}

}  // namespace mirage::verify
