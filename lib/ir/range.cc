// See the header.
#include "mirage/ir/range.h"

#include <algorithm>
#include <cmath>

namespace mirage {
namespace {

double a_number(double x, double otherwise) { return x == x ? x : otherwise; }

}  // namespace

Range Ranges::of(ValueId v) const {
  if (const auto it = known_.find(v); it != known_.end()) return it->second;
  return known_[v] = find(v);
}

/// Whether v is exp(x - the running maximum of x's rows).
bool Ranges::is_weight(ValueId v) const {
  const Map *e = g_.def_form<Map>(v), *minus = e && e->fn == MapFn::kExp ? g_.def_form<Map>(operand(v)) : nullptr;
  if (!minus || minus->fn != MapFn::kSub || !g_.def_form<Running>(operand(operand(v), 1))) return false;
  const ValueId most = operand(operand(operand(v), 1));
  const Reduce* r = g_.def_form<Reduce>(most);
  return r && r->fn == ReduceFn::kMax && operand(most) == operand(operand(v));
}

Range Ranges::find(ValueId v) const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (const Const* c = g_.def_form<Const>(v)) return {c->value, c->value, c->value > 0};
  if (is_weight(v)) return {0, 1, false};
  if (const Input* in = g_.def_form<Input>(v)) {
    const double most = static_cast<size_t>(in->param) < most_.size() ? most_[static_cast<size_t>(in->param)] : kInfinity;
    return {-most, most, false};
  }
  if (g_.def_form<Transpose>(v)) return of(operand(v));
  if (const Reduce* r = g_.def_form<Reduce>(v)) {
    const Range x = of(operand(v));
    const double n = r->fn == ReduceFn::kSum ? static_cast<double>(g_.dims(operand(v))[r->dim]) : 1.0;
    return {x.low * n, x.high * n, x.positive};
  }
  const Map* m = g_.def_form<Map>(v);
  return m ? of_map(*m, v) : Range{};
}

Range Ranges::of_map(const Map& m, ValueId v) const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Range x = of(operand(v)), y = g_.def(v).operands.size() > 1 ? of(operand(v, 1)) : Range{};
  const double most = std::max(std::fabs(x.low), std::fabs(x.high));
  switch (m.fn) {
    case MapFn::kSquare: return {0, most * most, x.positive};
    case MapFn::kAbs: return {x.low > 0 ? x.low : 0, most, x.positive};
    case MapFn::kSqrt: return x.low >= 0 ? Range{std::sqrt(x.low), std::sqrt(x.high), x.positive} : Range{0, kInfinity, false};
    case MapFn::kRsqrt:
      return x.low >= 0 ? Range{x.high < kInfinity ? 1 / std::sqrt(x.high) : 0, x.low > 0 ? 1 / std::sqrt(x.low) : kInfinity, true}
                        : Range{0, kInfinity, false};
    case MapFn::kExp: return {0, kInfinity, true};
    case MapFn::kSigmoid: return {0, 1, true};
    case MapFn::kAdd: return {x.low + y.low, x.high + y.high, (x.positive && y.low >= 0) || (y.positive && x.low >= 0)};
    case MapFn::kMax: return {std::max(x.low, y.low), std::max(x.high, y.high), x.positive || y.positive};
    case MapFn::kMul:
      if (operand(v, 0) == operand(v, 1)) return {0, most * most, x.positive};
      return x.low >= 0 && y.low >= 0 ? Range{a_number(x.low * y.low, 0), a_number(x.high * y.high, kInfinity), x.positive && y.positive}
                                      : Range{};
    case MapFn::kDiv:
      return x.low >= 0 && y.low >= 0
                 ? Range{y.high < kInfinity && y.high > 0 ? x.low / y.high : 0, y.low > 0 ? x.high / y.low : kInfinity, x.positive}
                 : Range{};
    default: return {};
  }
}

}  // namespace mirage
