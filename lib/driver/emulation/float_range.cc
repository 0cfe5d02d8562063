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

/// x, and between which values what kernels have for it lies. `unknown`: that may be anything, NaN too. An exact 0 (a masked element) stays
/// exact. One end alone may be infinite: what may be 0 is never negative, so that 1 over it is large, and a sigmoid of that is near 1.
struct Bounded {
  double x = 0, low = 0, high = 0;
  bool unknown = false;
  double error() const { return unknown ? kNoBound : std::max(x == low ? 0 : x - low, x == high ? 0 : high - x); }
};

struct RangeAlgebra {
  using Value = Bounded;
  FloatRange range;
  DoubleAlgebra fp64;

  static Value exactly(double x) { return {x, x, x}; }
  static Value anything(double x) { return {x, -kNoBound, kNoBound, true}; }
  static bool is_exact(Value v) { return !v.unknown && (std::isnan(v.x) || v.error() == 0); }
  static bool is_zero(Value v) { return v.x == 0 && v.error() == 0; }
  static bool is_bounded(Value v) { return !v.unknown && std::isfinite(v.low) && std::isfinite(v.high); }
  /// `is_new`: all operands are finite, so that infinity or NaN comes of this operation.
  Value settled(double x, double low, double high, bool is_new) const {
    if (std::isnan(x) && !is_new) return std::isnan(low) && std::isnan(high) ? exactly(x) : anything(x);
    if (std::isnan(low) || std::isnan(high) || (is_new && !std::isfinite(x)) || (std::isfinite(x) && std::fabs(x) > range.highest))
      return anything(x);
    if (std::fabs(x) < range.precise) {   // what underflows keeps its sign
      low = x > 0 && low >= 0 ? std::max(0.0, low - range.lowest) : low - range.lowest;
      high = x < 0 && high <= 0 ? std::min(0.0, high + range.lowest) : high + range.lowest;
    }
    return {x, low, high};
  }
  bool finite(Value x, Value y) const { return std::isfinite(x.x) && std::isfinite(y.x); }

  Value constant(double c) { return c == 0 || !std::isfinite(c) ? exactly(c) : settled(c, c, c, false); }
  Value add(Value x, Value y) {
    const double r = x.x + y.x;
    if (x.unknown || y.unknown) return anything(r);
    if (is_zero(x)) return {r, y.low, y.high};
    if (is_zero(y)) return {r, x.low, x.high};
    if ((x.high == kNoBound && y.low == -kNoBound) || (x.low == -kNoBound && y.high == kNoBound))   // infinity less infinity
      return is_exact(x) && is_exact(y) ? exactly(r) : anything(r);
    return settled(r, x.low + y.low, x.high + y.high, finite(x, y));
  }
  Value sub(Value x, Value y) { return add(x, neg(y)); }
  Value mul(Value x, Value y) {
    if ((is_zero(x) && std::isfinite(y.x) && is_bounded(y)) || (is_zero(y) && std::isfinite(x.x) && is_bounded(x))) return {};
    const double r = x.x * y.x;
    if (is_zero(x) || is_zero(y)) return settled(r, r, r, finite(x, y));
    if (x.unknown || y.unknown) return anything(r);
    const auto [low, high] = corners(x, y, [](double p, double q) { return p * q; });
    return settled(r, low, high, finite(x, y));
  }
  /// The ends of a function of two values that is monotone in each; NaN where one of the corners is.
  template <class F> static std::pair<double, double> corners(Value x, Value y, F&& f) {
    const double at[] = {f(x.low, y.low), f(x.low, y.high), f(x.high, y.low), f(x.high, y.high)};
    for (double v : at) if (std::isnan(v)) return {v, v};
    return {*std::min_element(std::begin(at), std::end(at)), *std::max_element(std::begin(at), std::end(at))};
  }
  Value div(Value x, Value y) {
    const double q = x.x / y.x;
    if (is_zero(y)) return x.error() > 0 ? anything(q) : exactly(q);   // 0/0 is NaN for everybody
    if (x.unknown || y.unknown) return anything(q);
    const double least = y.low > 0 ? y.low : -y.high;
    const bool is_large = least >= std::fabs(y.x) / 2 || (least > 0 && !is_bounded(y));
    if (is_zero(x) && is_large && std::fabs(y.x) >= range.lowest) return {};
    // the reciprocal may be infinite, or the quotient
    if (!is_large || std::fabs(y.x) < range.lowest || std::fabs(q) > range.highest) return by_nothing(x, y, q);
    const auto [low, high] = corners(x, y, [](double p, double d) { return p / d; });
    return settled(q, low, high, finite(x, y));
  }
  /// A quotient that may be infinite, of a divisor of one sign: at least so much, if the dividend is not 0 too.
  static Value by_nothing(Value x, Value y, double q) {
    const double least = x.low > 0 ? x.low : -x.high, most = y.low >= 0 ? y.high : -y.low;
    if (!(least > 0) || !is_bounded(x) || (y.low < 0 && y.high > 0) || !std::isfinite(q)) return anything(q);
    return (x.low > 0) == (y.low >= 0) ? Value{q, least / most, kNoBound} : Value{q, -kNoBound, -least / most};
  }
  /// A monotone function is farthest off at the ends.
  template <class F> Value monotone(Value x, F&& f, double low, double high) {
    const double y = f(x.x);
    if (x.unknown) return anything(y);
    if (x.error() == 0) return settled(y, y, y, std::isfinite(x.x) && y != 0);
    return settled(y, f(std::clamp(x.low, low, high)), f(std::clamp(x.high, low, high)), std::isfinite(x.x));
  }
  Value exp(Value x) {
    const Value y = monotone(x, [this](double v) { return fp64.exp(v); }, -kNoBound, kNoBound);
    return y.x == 0 && x.x == -kNoBound && x.error() == 0 ? exactly(0) : y;   // a mask, which is 0 in every type
  }
  Value log(Value x) {
    if (x.error() > 0 && !(x.low > x.x / 2)) return anything(fp64.log(x.x));
    return monotone(x, [this](double v) { return fp64.log(v); }, 0, kNoBound);
  }
  Value sqrt(Value x) {
    if (x.x < 0 || is_zero(x)) return exactly(fp64.sqrt(x.x));
    return monotone(x, [this](double v) { return fp64.sqrt(v); }, 0, kNoBound);
  }
  Value neg(Value x) { return {-x.x, -x.high, -x.low, x.unknown}; }
  Value abs(Value x) {
    if (x.low >= 0 || !(x.high > 0)) return x.low >= 0 ? x : neg(x);
    return {std::fabs(x.x), 0, std::max(-x.low, x.high), x.unknown};
  }
  Value tanh(Value x) { return is_zero(x) ? x : monotone(x, [this](double v) { return fp64.tanh(v); }, -kNoBound, kNoBound); }
  Value erf(Value x) { return is_zero(x) ? x : monotone(x, [this](double v) { return fp64.erf(v); }, -kNoBound, kNoBound); }
  /// Of a wave: as far off as its operand, and never more than from one crest to the other.
  Value wave(double y, Value x) {
    if (x.unknown && !std::isfinite(x.x)) return anything(y);
    const double e = std::isfinite(x.x) ? std::min(x.error(), 2.0) : 0;
    return settled(y, y - e, y + e, std::isfinite(x.x));
  }
  Value sin(Value x) { return is_zero(x) ? x : wave(fp64.sin(x.x), x); }
  Value cos(Value x) { return wave(fp64.cos(x.x), x); }
  Value floor(Value x) { return is_zero(x) ? x : monotone(x, [this](double v) { return fp64.floor(v); }, -kNoBound, kNoBound); }
  Value nearest(Value x) { return is_zero(x) ? x : monotone(x, [this](double v) { return fp64.nearest(v); }, -kNoBound, kNoBound); }
  Value max(Value x, Value y) {
    const double r = fp64.max(x.x, y.x);
    return x.unknown || y.unknown ? anything(r) : Value{r, fp64.max(x.low, y.low), fp64.max(x.high, y.high)};
  }
  Value min(Value x, Value y) {
    const double r = fp64.min(x.x, y.x);
    return x.unknown || y.unknown ? anything(r) : Value{r, fp64.min(x.low, y.low), fp64.min(x.high, y.high)};
  }
  Value pow(Value x, Value y) {
    const double p = fp64.pow(x.x, y.x);
    if (x.unknown || y.unknown) return anything(p);
    if (is_exact(x) && is_exact(y)) return settled(p, p, p, finite(x, y) && p != 0);
    const auto [low, high] = corners(x, y, [this](double v, double e) { return fp64.pow(v, e); });
    if (std::fabs(x.x) > 2 * x.error()) return settled(p, low, high, finite(x, y));
    if (!(x.low >= 0) || !is_exact(y)) return anything(p);
    return y.x < 0 && std::isfinite(p) ? Value{p, low, kNoBound} : settled(p, low, high, finite(x, y));
  }
  /// Whether one is less, or equal, may turn out otherwise where they are near each other.
  Value truth(bool is, Value x, Value y) {
    const double r = is ? 1.0 : 0.0;
    if (is_exact(x) && is_exact(y)) return exactly(r);
    return !x.unknown && !y.unknown && (x.high < y.low || y.high < x.low) ? exactly(r) : Value{r, 0, 1};
  }
  Value equal(Value x, Value y) { return truth(x.x == y.x, x, y); }
  Value less(Value x, Value y) { return truth(x.x < y.x, x, y); }
  Value select(Value c, Value x, Value y) {
    const Value r = c.x != 0 ? x : y;
    if (c.error() == 0) return r;
    if (x.unknown || y.unknown || std::isnan(x.x) || std::isnan(y.x)) return anything(r.x);
    return {r.x, std::min(x.low, y.low), std::max(x.high, y.high)};
  }
  Value round(Value x, DType t) {
    const double r = fp64.round(x.x, t), e = x.error();
    if (x.unknown || is_exact(x)) return x.unknown ? anything(r) : exactly(r);
    if (t == DType::kBool || is_whole(t)) return {r, r - e, r + e};
    return {r, fp64.round(x.low, t), fp64.round(x.high, t)};
  }

  /// As products and sums one by one, in one pass over lines.
  void gemm(int64_t m, int64_t n, int64_t k, const Value* x, const Value* y, Value* out) {
    std::vector<double> value(static_cast<size_t>(n)), error(static_cast<size_t>(n)), size(static_cast<size_t>(n)), errors;
    errors.reserve(static_cast<size_t>(k * n));
    for (int64_t i = 0; i < k * n; i++) errors.push_back(y[i].error());
    for (int64_t i = 0; i < m; i++) {
      std::fill(value.begin(), value.end(), 0.0), std::fill(error.begin(), error.end(), 0.0), std::fill(size.begin(), size.end(), 0.0);
      bool is_finite = true;
      for (int64_t l = 0; l < k; l++) {
        const Value a = x[i * k + l];
        const double ax = std::fabs(a.x), ae = a.error();
        is_finite = is_finite && std::isfinite(a.x);
        for (int64_t j = 0; j < n; j++) {
          const double b = y[l * n + j].x, be = errors[static_cast<size_t>(l * n + j)];
          const size_t s = static_cast<size_t>(j);
          value[s] += a.x * b, size[s] += ax * std::fabs(b), error[s] += ax * be + ae * (std::fabs(b) + be);
        }
      }
      for (int64_t j = 0; j < n; j++) {
        const size_t s = static_cast<size_t>(j);
        const double v = value[s], e = error[s];
        if (size[s] == 0 && e == 0) out[i * n + j] = exactly(v);
        else if (size[s] > range.highest || !std::isfinite(e)) out[i * n + j] = anything(v);
        else out[i * n + j] = settled(v, v - e, v + e, is_finite && std::isfinite(size[s]));
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
    for (size_t i = 0; i < t.data.size(); i++) in.back().data[i] = RangeAlgebra::exactly(t.data[i]);   // values of their types
  }
  std::vector<std::vector<double>> out;
  for (const Tensor<Bounded>& t : evaluate(p.graph, std::span<const Tensor<Bounded>>(in), a, true)) {
    out.emplace_back();
    for (const Bounded& b : t.data) out.back().push_back(RangeAlgebra::is_exact(b) ? 0 : b.error());
  }
  return out;
}

}  // namespace mirage
