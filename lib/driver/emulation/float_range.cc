// A running bound over the spec's graph: see the header. Each value carries the most that it may be off; the only sources are values near
// the ends of a type's range.
#include "driver/emulation/float_range.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace mirage {

namespace {

constexpr double kNoBound = std::numeric_limits<double>::infinity();

/// The ends of the range that kernels have for sure, with room for what they compute in another order than the graph does (a reciprocal, a
/// product before a quotient).
struct FloatRange {
  double lowest;    ///< what is smaller may become 0
  double precise;   ///< what is larger has the type's relative precision
  double highest;   ///< what is larger may become infinite
};
constexpr FloatRange kFloat32{0x1p-100, 0x1p-76, 0x1p120};
constexpr FloatRange kFloat16{0x1p-24, 0x1p-13, 3e4};

/// x with the most that it may be off. An exact 0 (a masked element) stays exact.
struct Bounded { double x = 0, e = 0; };

struct RangeAlgebra {
  using Value = Bounded;
  FloatRange range;
  DoubleAlgebra fp64;

  static double product(double x, double y) { return x == 0 || y == 0 ? 0 : x * y; }
  static bool is_zero(Value v) { return v.x == 0 && v.e == 0; }
  /// `is_new`: all operands are finite, so that infinity or NaN comes of this operation.
  Value settled(double x, double e, bool is_new) const {
    if (std::isnan(e) || (is_new && !std::isfinite(x)) || (std::isfinite(x) && std::fabs(x) > range.highest)) e = kNoBound;
    if (std::fabs(x) < range.precise) e += range.lowest;
    return {x, e};
  }
  bool finite(Value x, Value y) const { return std::isfinite(x.x) && std::isfinite(y.x); }

  Value constant(double c) { return c == 0 || !std::isfinite(c) ? Value{c, 0} : settled(c, 0, false); }
  Value sum(Value x, Value y, double r) {
    if (is_zero(x)) return {r, y.e};
    if (is_zero(y)) return {r, x.e};
    return settled(r, x.e + y.e, finite(x, y));
  }
  Value add(Value x, Value y) { return sum(x, y, x.x + y.x); }
  Value sub(Value x, Value y) { return sum(x, y, x.x - y.x); }
  Value mul(Value x, Value y) {
    if ((is_zero(x) && std::isfinite(y.x) && std::isfinite(y.e)) || (is_zero(y) && std::isfinite(x.x) && std::isfinite(x.e))) return {};
    return settled(x.x * y.x, product(std::fabs(x.x), y.e) + product(x.e, std::fabs(y.x)) + product(x.e, y.e), finite(x, y));
  }
  Value div(Value x, Value y) {
    const double q = x.x / y.x;
    if (is_zero(y)) return {q, x.e > 0 ? kNoBound : 0};   // 0/0 is NaN for everybody
    if (!(std::fabs(y.x) > 2 * y.e) || std::fabs(y.x) < range.lowest) return {q, kNoBound};   // the reciprocal may be infinite
    if (is_zero(x)) return {};
    return settled(q, (x.e + product(std::fabs(q), y.e)) / (std::fabs(y.x) - y.e), finite(x, y));
  }
  /// A monotone function is farthest off at the ends.
  template <class F> Value monotone(Value x, F&& f, double low, double high) {
    const double y = f(x.x);
    if (x.e == 0) return settled(y, 0, std::isfinite(x.x) && y != 0);
    if (!std::isfinite(x.e)) return {y, kNoBound};
    return settled(y, std::max(std::fabs(f(std::clamp(x.x + x.e, low, high)) - y), std::fabs(f(std::clamp(x.x - x.e, low, high)) - y)),
                   std::isfinite(x.x));
  }
  Value exp(Value x) {
    Value y = monotone(x, [this](double v) { return fp64.exp(v); }, -kNoBound, kNoBound);
    if (y.x == 0 && x.x == -kNoBound && x.e == 0) y.e = 0;   // a mask, which is 0 in every type
    return y;
  }
  Value log(Value x) {
    if (x.e > 0 && !(x.x > 2 * x.e)) return {fp64.log(x.x), kNoBound};
    return monotone(x, [this](double v) { return fp64.log(v); }, 0, kNoBound);
  }
  Value sqrt(Value x) {
    if (x.x < 0 || is_zero(x)) return {fp64.sqrt(x.x), 0};
    return monotone(x, [this](double v) { return fp64.sqrt(v); }, 0, kNoBound);
  }
  Value neg(Value x) { return {-x.x, x.e}; }
  Value abs(Value x) { return {std::fabs(x.x), x.e}; }
  Value tanh(Value x) { return is_zero(x) ? x : monotone(x, [this](double v) { return fp64.tanh(v); }, -kNoBound, kNoBound); }
  Value erf(Value x) { return is_zero(x) ? x : monotone(x, [this](double v) { return fp64.erf(v); }, -kNoBound, kNoBound); }
  /// Of a wave: as far off as its operand, and never more than from one crest to the other.
  Value wave(double y, Value x) { return settled(y, std::isfinite(x.x) ? std::min(x.e, 2.0) : 0, std::isfinite(x.x)); }
  Value sin(Value x) { return is_zero(x) ? x : wave(fp64.sin(x.x), x); }
  Value cos(Value x) { return wave(fp64.cos(x.x), x); }
  Value floor(Value x) { return is_zero(x) ? x : monotone(x, [this](double v) { return fp64.floor(v); }, -kNoBound, kNoBound); }
  Value nearest(Value x) { return is_zero(x) ? x : monotone(x, [this](double v) { return fp64.nearest(v); }, -kNoBound, kNoBound); }
  Value max(Value x, Value y) { return {fp64.max(x.x, y.x), std::max(x.e, y.e)}; }
  Value min(Value x, Value y) { return {fp64.min(x.x, y.x), std::max(x.e, y.e)}; }
  Value pow(Value x, Value y) {
    const double p = fp64.pow(x.x, y.x);
    if (x.e == 0 && y.e == 0) return settled(p, 0, finite(x, y) && p != 0);
    if (!std::isfinite(x.e) || !std::isfinite(y.e) || std::fabs(x.x) <= 2 * x.e) return {p, kNoBound};
    double e = 0;
    for (double dx : {-x.e, x.e})
      for (double dy : {-y.e, y.e}) e = std::max(e, std::fabs(fp64.pow(x.x + dx, y.x + dy) - p));
    return settled(p, e, finite(x, y));
  }
  /// Whether one is less, or equal, may turn out otherwise where they are near each other.
  Value truth(bool is, Value x, Value y) {
    const double e = x.e + y.e;
    return {is ? 1.0 : 0.0, e > 0 && !(std::fabs(x.x - y.x) > e) ? 1.0 : 0.0};
  }
  Value equal(Value x, Value y) { return truth(x.x == y.x, x, y); }
  Value less(Value x, Value y) { return truth(x.x < y.x, x, y); }
  Value select(Value c, Value x, Value y) {
    const Value r = c.x != 0 ? x : y;
    if (c.e == 0) return r;
    const double apart = std::fabs(x.x - y.x);
    return {r.x, std::isnan(apart) ? (x.x == y.x ? std::max(x.e, y.e) : kNoBound) : apart + std::max(x.e, y.e)};
  }
  Value round(Value x, DType t) { return {fp64.round(x.x, t), x.e}; }

  /// As products and sums one by one, in one pass over lines.
  void gemm(int64_t m, int64_t n, int64_t k, const Value* x, const Value* y, Value* out) {
    std::vector<double> value(static_cast<size_t>(n)), error(static_cast<size_t>(n)), size(static_cast<size_t>(n));
    for (int64_t i = 0; i < m; i++) {
      std::fill(value.begin(), value.end(), 0.0), std::fill(error.begin(), error.end(), 0.0), std::fill(size.begin(), size.end(), 0.0);
      bool is_finite = true;
      for (int64_t l = 0; l < k; l++) {
        const Value a = x[i * k + l];
        const double ax = std::fabs(a.x);
        is_finite = is_finite && std::isfinite(a.x);
        for (int64_t j = 0; j < n; j++) {
          const Value b = y[l * n + j];
          const size_t s = static_cast<size_t>(j);
          value[s] += a.x * b.x, size[s] += ax * std::fabs(b.x), error[s] += ax * b.e + a.e * (std::fabs(b.x) + b.e);
        }
      }
      for (int64_t j = 0; j < n; j++) {
        const size_t s = static_cast<size_t>(j);
        if (size[s] == 0 && error[s] == 0) out[i * n + j] = {value[s], 0};
        else out[i * n + j] = settled(value[s], size[s] > range.highest ? kNoBound : error[s], is_finite && std::isfinite(size[s]));
      }
    }
  }
};

}  // namespace

std::vector<std::vector<double>> range_error(const Program& p, const std::vector<Tensor<double>>& inputs) {
  bool has_half = false;
  for (const std::vector<TensorInfo>* list : {&p.inputs, &p.outputs})
    for (const TensorInfo& t : *list) has_half = has_half || t.type.dtype == DType::kF16;
  RangeAlgebra a{has_half ? kFloat16 : kFloat32, {}};
  std::vector<Tensor<Bounded>> in;
  for (const Tensor<double>& t : inputs) {
    in.emplace_back(t.dims, Bounded{});
    for (size_t i = 0; i < t.data.size(); i++) in.back().data[i].x = t.data[i];   // inputs are values of their types
  }
  std::vector<std::vector<double>> out;
  for (const Tensor<Bounded>& t : evaluate(p.graph, std::span<const Tensor<Bounded>>(in), a, true)) {
    out.emplace_back();
    for (const Bounded& b : t.data) out.back().push_back(b.e);
  }
  return out;
}

}  // namespace mirage
