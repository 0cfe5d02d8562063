// Functions, comparisons, logic and reductions that are made of other operators (formulas in operators.def).
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include "spec/operators/desugar.h"

namespace mirage::spec {
namespace {

/// A bool's opposite. Its number is 0 or 1, so this holds where a comparison was false because of a NaN, too.
ValueId opposite(Emitter& e, ValueId b) { return e.map(MapFn::kEqual, {e.number(b), e.constant(0)}); }

/// x and y, x or y: of numbers, whether they are not 0.
ValueId both(Emitter& e, ValueId x, ValueId y) {
  return e.map(MapFn::kGreater, {e.map(MapFn::kMul, {e.boolean(x), e.boolean(y)}), e.constant(0)});
}
ValueId either(Emitter& e, ValueId x, ValueId y) {
  return e.map(MapFn::kGreater, {e.map(MapFn::kMax, {e.boolean(x), e.boolean(y)}), e.constant(0)});
}

/// x < y or x == y. Whole numbers (positions) need one comparison, with the next number; others may be NaN, where both are false.
ValueId at_most(Emitter& e, ValueId x, ValueId y) {
  if (e.is_whole(x) && e.is_whole(y)) return e.map(MapFn::kLess, {x, e.map(MapFn::kAdd, {y, e.constant(1)})});
  return either(e, e.map(MapFn::kLess, {x, y}), e.map(MapFn::kEqual, {x, y}));
}

/// The two halves of the last axis, or two operands: of a gated activation, the gate first unless the attribute says otherwise.
std::pair<ValueId, ValueId> gate_and_value(NodeContext& node) {
  Emitter& e = node.emit;
  std::pair<ValueId, ValueId> out;
  if (node.operands.size() == 2) {
    out = {node.operands[0], node.operands[1]};
  } else {
    node.need_rank(1);
    const int last = e.rank(node.x()) - 1;
    const int64_t n = e.dims(node.x())[last];
    if (n % 2) node.fail_operand(0, DiagCode::kShape, fmt::format("the last extent, {}, is odd: it has no halves", n));
    out = {e.slice(node.x(), last, 0, n / 2, 1), e.slice(node.x(), last, n / 2, n, 1)};
  }
  if (node.attr("gate")->text == "second") std::swap(out.first, out.second);
  return out;
}

ValueId softplus(Emitter& e, ValueId x) {   // max(x, 0) + log(1 + exp(-|x|)): nothing overflows
  x = e.number(x);
  ValueId tail = e.map(MapFn::kExp, {e.map(MapFn::kNeg, {e.map(MapFn::kAbs, {x})})});
  return e.map(MapFn::kAdd, {e.map(MapFn::kRelu, {x}), e.map(MapFn::kLog1p, {tail})});
}

ValueId variance(NodeContext& node, ValueId x, const std::vector<int>& axes) {
  Emitter& e = node.emit;
  double count = 1;
  for (int axis : axes) count *= static_cast<double>(e.dims(x)[axis]);
  const int64_t correction = node.attr("correction")->integer;
  if (correction < 0 || static_cast<double>(correction) >= count)
    node.fail_attr("correction", fmt::format("correction {} of {} elements: at least 0, and less than them", correction, count));
  ValueId square = e.map(MapFn::kSquare, {e.map(MapFn::kSub, {x, e.mean(x, axes)})});
  if (correction == 0) return e.mean(square, axes);
  ValueId sum = e.reduce(ReduceFn::kSum, square, axes);
  const double divisor = count - static_cast<double>(correction);
  return divisor == 1 ? sum : e.map(MapFn::kDiv, {sum, e.constant(divisor)});
}

}  // namespace

ValueId build_not_equal(NodeContext& node) { return opposite(node.emit, node.emit.map(MapFn::kEqual, node.operands)); }
ValueId build_less_equal(NodeContext& node) { return at_most(node.emit, node.operands[0], node.operands[1]); }
ValueId build_greater_equal(NodeContext& node) { return at_most(node.emit, node.operands[1], node.operands[0]); }
ValueId build_and(NodeContext& node) { return both(node.emit, node.operands[0], node.operands[1]); }
ValueId build_or(NodeContext& node) { return either(node.emit, node.operands[0], node.operands[1]); }
ValueId build_not(NodeContext& node) { return opposite(node.emit, node.emit.boolean(node.x())); }
ValueId build_reciprocal(NodeContext& node) { return node.emit.map(MapFn::kDiv, {node.emit.constant(1), node.x()}); }

ValueId build_leaky_relu(NodeContext& node) {
  Emitter& e = node.emit;
  ValueId x = e.number(node.x());
  const double slope = node.attr("slope")->number;
  ValueId low = e.map(MapFn::kMul, {x, e.constant(slope)});
  if (slope >= 0 && slope <= 1) return e.map(MapFn::kMax, {x, low});
  return e.map(MapFn::kWhere, {e.map(MapFn::kLess, {x, e.constant(0)}), low, x});
}

ValueId build_elu(NodeContext& node) {   // the exponential of what is above 0 is not taken: it may overflow
  Emitter& e = node.emit;
  ValueId x = e.number(node.x());
  ValueId low = e.map(MapFn::kExpm1, {e.map(MapFn::kMin, {x, e.constant(0)})});
  const double alpha = node.attr("alpha")->number;
  if (alpha != 1) low = e.map(MapFn::kMul, {low, e.constant(alpha)});
  return e.map(MapFn::kAdd, {e.map(MapFn::kRelu, {x}), low});
}

ValueId build_softplus(NodeContext& node) {
  Emitter& e = node.emit;
  const double beta = node.attr("beta")->number;
  if (!(beta > 0) || !std::isfinite(beta)) node.fail_attr("beta", "must be positive");
  if (beta == 1) return softplus(e, node.x());
  return e.map(MapFn::kDiv, {softplus(e, e.map(MapFn::kMul, {node.x(), e.constant(beta)})), e.constant(beta)});
}

ValueId build_hardtanh(NodeContext& node) {
  Emitter& e = node.emit;
  const double low = node.attr("min")->number, high = node.attr("max")->number;
  if (low > high) node.fail_attr("max", fmt::format("max {} is less than min {}", high, low));
  return e.map(MapFn::kClamp, {node.x(), e.constant(low), e.constant(high)});
}

ValueId build_hardswish(NodeContext& node) {
  Emitter& e = node.emit;
  ValueId x = e.number(node.x());
  ValueId gate = e.map(MapFn::kClamp, {e.map(MapFn::kAdd, {x, e.constant(3)}), e.constant(0), e.constant(6)});
  return e.map(MapFn::kDiv, {e.map(MapFn::kMul, {x, gate}), e.constant(6)});
}

ValueId build_mish(NodeContext& node) {
  Emitter& e = node.emit;
  ValueId x = e.number(node.x());
  return e.map(MapFn::kMul, {x, e.map(MapFn::kTanh, {softplus(e, x)})});
}

ValueId build_swiglu(NodeContext& node) {
  auto [gate, value] = gate_and_value(node);
  return node.emit.map(MapFn::kMul, {node.emit.map(MapFn::kSilu, {gate}), value});
}

ValueId build_geglu(NodeContext& node) {
  auto [gate, value] = gate_and_value(node);
  return node.emit.map(MapFn::kMul,
                       {node.emit.map(node.attr("approximate")->text == "tanh" ? MapFn::kGeluTanh : MapFn::kGelu, {gate}), value});
}

ValueId build_min(NodeContext& node) {
  Emitter& e = node.emit;
  auto axes = node.axes(e.rank(node.x()));
  ValueId largest = e.reduce(ReduceFn::kMax, e.map(MapFn::kNeg, {node.x()}), axes);
  return node.reduced(e.map(MapFn::kNeg, {largest}), axes);
}

/// Halves multiplied with each other: as many products as the extent has binary digits, each over half of what is left. What an odd extent
/// leaves over is multiplied at the end.
ValueId build_prod(NodeContext& node) {
  Emitter& e = node.emit;
  ValueId x = e.number(node.x());
  auto axes = node.axes(e.rank(x));
  for (int axis : axes) {
    ValueId left = -1;
    for (int64_t n = e.dims(x)[axis]; n > 1; n /= 2) {
      const int64_t half = n / 2;
      if (n % 2) {
        ValueId last = e.slice(x, axis, n - 1, n, 1);
        left = left < 0 ? last : e.map(MapFn::kMul, {left, last});
      }
      x = e.map(MapFn::kMul, {e.slice(x, axis, 0, half, 1), e.slice(x, axis, half, 2 * half, 1)});
    }
    if (left >= 0) x = e.map(MapFn::kMul, {x, left});
  }
  return node.reduced(x, axes);
}

ValueId build_var(NodeContext& node) {
  ValueId x = node.emit.number(node.x());
  auto axes = node.axes(node.emit.rank(x));
  return node.reduced(variance(node, x, axes), axes);
}

ValueId build_std(NodeContext& node) {
  ValueId x = node.emit.number(node.x());
  auto axes = node.axes(node.emit.rank(x));
  return node.reduced(node.emit.map(MapFn::kSqrt, {variance(node, x, axes)}), axes);
}

ValueId build_logsumexp(NodeContext& node) {
  Emitter& e = node.emit;
  ValueId x = e.number(node.x());
  auto axes = node.axes(e.rank(x));
  ValueId largest = e.reduce(ReduceFn::kMax, x, axes);
  ValueId sum = e.reduce(ReduceFn::kSum, e.map(MapFn::kExp, {e.map(MapFn::kSub, {x, largest})}), axes);
  return node.reduced(e.map(MapFn::kAdd, {largest, e.map(MapFn::kLog, {sum})}), axes);
}

ValueId build_log_softmax(NodeContext& node) {
  node.need_rank(1);
  Emitter& e = node.emit;
  ValueId x = e.number(node.x());
  auto axes = node.axes(e.rank(x));
  ValueId d = e.map(MapFn::kSub, {x, e.reduce(ReduceFn::kMax, x, axes)});
  return e.map(MapFn::kSub, {d, e.map(MapFn::kLog, {e.reduce(ReduceFn::kSum, e.map(MapFn::kExp, {d}), axes)})});
}

}  // namespace mirage::spec
