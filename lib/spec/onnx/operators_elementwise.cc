// Elementwise operators, comparisons, casts, reductions.
#include <cmath>
#include "spec/onnx/importer.h"

namespace mirage::onnx {

namespace {

using Results = std::vector<Value>;

/// Broadcasting of two or three operands as in NumPy. A one-element constant may have more dimensions than the result of the numbers that
/// stand for it.
Results spread(const OpCall& c, const char* name, std::vector<Value> operands, int type) {
  size_t rank = 0;
  for (const Value& v : operands) rank = std::max(rank, v.dims.size());
  Value y = c.op(name, operands);
  if (y.dims.size() < rank) {
    Shape dims(rank - y.dims.size(), 1);
    dims.insert(dims.end(), y.dims.begin(), y.dims.end());
    y = c.reshape(y, dims);
  }
  return {c.typed(y, type)};
}

Results two(const OpCall& c, const char* name) { return spread(c, name, {c.in(0), c.in(1)}, c.type()); }
Results compare(const OpCall& c, const char* name) { return spread(c, name, {c.in(0), c.in(1)}, kBoolean); }

Value towards_zero(const OpCall& c, const Value& x) { return c.op("mul", {c.op("sign", {x}), c.op("floor", {c.op("abs", {x})})}); }

Results divide(const OpCall& c) {
  if (const auto by = c.known(1); by && !c.known(0) && by->dims.empty() && by->data[0] == kSqrt2)
    return {c.op("mul", {c.in(0), OpCall::number(kSqrtHalf)})};  // as gelu is written
  Results y = two(c, "div");
  if (is_whole_type(c.type())) y[0] = towards_zero(c, y[0]);
  return y;
}

/// x - y floor(x / y), or with fmod the sign of x.
Results modulo(const OpCall& c) {
  const Value q = c.op("div", {c.in(0), c.in(1)});
  const Value whole = c.integer("fmod", 0) ? towards_zero(c, q) : c.op("floor", {q});
  return {c.op("sub", {c.in(0), c.op("mul", {c.in(1), whole})})};
}

Results several(const OpCall& c, const char* name) {
  Value y = c.in(0);
  for (size_t i = 1; i < c.size(); ++i) y = spread(c, name, {y, c.in(i)}, c.type())[0];
  return {y};
}

Results mean_of_several(const OpCall& c) { return {c.op("div", {several(c, "add")[0], OpCall::number(static_cast<double>(c.size()))})}; }

Results clip(const OpCall& c) {
  Value y = c.in(0);
  if (c.has(1)) y = c.op("maximum", {y, c.in(1)});
  if (c.has(2)) y = c.op("minimum", {y, c.in(2)});
  return {y};
}

/// x where x > 0, else slope x; a slope per channel broadcasts to x.
Results prelu(const OpCall& c) {
  return {c.op("where", {c.op("greater", {c.in(0), OpCall::number(0)}), c.in(0), c.op("mul", {c.in(0), c.in(1)})})};
}

Results leaky_relu(const OpCall& c) { return {c.op("leaky_relu", {c.in(0)}, {{"slope", c.real("alpha", 0.01)}})}; }
Results elu(const OpCall& c) { return {c.op("elu", {c.in(0)}, {{"alpha", c.real("alpha", 1)}})}; }

Results celu(const OpCall& c) {
  const double a = c.real("alpha", 1);
  return {c.op("mul", {c.op("elu", {c.op("div", {c.in(0), OpCall::number(a)})}), OpCall::number(a)})};
}

Results selu(const OpCall& c) {
  return {c.op("mul", {c.op("elu", {c.in(0)}, {{"alpha", c.real("alpha", 1.67326319217681884765625)}}),
                       OpCall::number(c.real("gamma", 1.05070102214813232421875))})};
}

Results hard_sigmoid(const OpCall& c) {
  const Value y = c.op("add", {c.op("mul", {c.in(0), OpCall::number(c.real("alpha", 0.2))}), OpCall::number(c.real("beta", 0.5))});
  return {c.op("clamp", {y}, {{"min", 0.0}, {"max", 1.0}})};
}

Results thresholded_relu(const OpCall& c) {
  return {c.op("where", {c.op("greater", {c.in(0), OpCall::number(c.real("alpha", 1))}), c.in(0), OpCall::number(0)})};
}
Results softsign(const OpCall& c) { return {c.op("div", {c.in(0), c.op("add", {OpCall::number(1), c.op("abs", {c.in(0)})})})}; }
Results gelu(const OpCall& c) {
  const std::string how = c.text("approximate", "none");
  if (how != "none" && how != "tanh") c.refuse("an approximation that is neither 'none' nor 'tanh'");
  return {c.op("gelu", {c.in(0)}, {{"approximate", how}})};
}
Results swish(const OpCall& c) {
  const double a = c.real("alpha", 1);
  return {a == 1 ? c.op("silu", {c.in(0)}) : c.op("mul", {c.in(0), c.op("sigmoid", {c.op("mul", {c.in(0), OpCall::number(a)})})})};
}

Results shrink(const OpCall& c) {
  const double bias = c.real("bias", 0), l = c.real("lambd", 0.5);
  const Value x = c.in(0),
              low = c.op("where", {c.op("less", {x, OpCall::number(-l)}), c.op("add", {x, OpCall::number(bias)}), OpCall::number(0)});
  return {c.op("where", {c.op("greater", {x, OpCall::number(l)}), c.op("sub", {x, OpCall::number(bias)}), low})};
}

Results power(const OpCall& c) {
  if (auto e = c.known(1); e && e->data.size() == 1 && e->dims.size() <= c.dims().size())
    return {c.op("pow", {c.in(0)}, {{"exponent", e->data[0]}})};
  return two(c, "pow");
}

Results select(const OpCall& c) { return spread(c, "where", {c.in(0), c.in(1), c.in(2)}, c.in(1).type); }
Results cast(const OpCall& c) {
  const auto to = static_cast<int>(c.integer("to", kFloat));
  if (is_whole_type(c.type()) && is_whole_type(to)) return {c.typed(c.in(0), to)};  // specs compute with whole numbers of any width
  return {c.cast(c.in(0), to)};
}
Results cast_like(const OpCall& c) { return {c.cast(c.in(0), c.in(1).type)}; }
Results as_it_is(const OpCall& c) { return {c.in(0)}; }
/// Of inference; its mask is not computed.
Results dropout(const OpCall& c) {
  if (c.has(2) && c.known_number(2, "a mode") != 0 && !(c.has(1) && c.known_number(1, "a ratio") == 0)) c.refuse("random numbers");
  return {c.in(0)};
}
Results tangent(const OpCall& c) { return {c.op("div", {c.op("sin", {c.in(0)}), c.op("cos", {c.in(0)})})}; }

Value half(const OpCall& c, const Value& x) { return c.op("mul", {x, OpCall::number(0.5)}); }
Results cosh(const OpCall& c) { return {half(c, c.op("add", {c.op("exp", {c.in(0)}), c.op("exp", {c.op("neg", {c.in(0)})})}))}; }
Results sinh(const OpCall& c) { return {half(c, c.op("sub", {c.op("expm1", {c.in(0)}), c.op("expm1", {c.op("neg", {c.in(0)})})}))}; }

Results is_nan(const OpCall& c) { return {c.typed(c.op("not_equal", {c.in(0), c.in(0)}), kBoolean)}; }
Results is_inf(const OpCall& c) {
  const bool low = c.integer("detect_negative", 1), high = c.integer("detect_positive", 1);
  const Value x = low && high ? c.op("abs", {c.in(0)}) : c.in(0);
  if (!low && !high) return {c.typed(c.op("less", {x, x}), kBoolean)};
  return {c.typed(c.op("equal", {x, OpCall::number(high ? HUGE_VAL : -HUGE_VAL)}), kBoolean)};
}

Results exclusive_or(const OpCall& c) { return compare(c, "not_equal"); }

/// Softmax over one axis since version 13.
Results along(const OpCall& c, const char* name) { return {c.op(name, {c.in(0)}, {{"axis", c.axis(c.integer("axis", -1), c.rank())}})}; }

Results cumsum(const OpCall& c) {
  return {c.op("cumsum", {c.in(0)},
               {{"axis", c.axis(to_int64(c.known_number(1, "an axis")), c.rank())},
                {"reverse", c.integer("reverse", 0) != 0},
                {"exclusive", c.integer("exclusive", 0) != 0}})};
}

/// Axes of a reduction: an attribute, later an operand. nullopt: nothing is reduced.
std::optional<Shape> reduced_axes(const OpCall& c) {
  Shape axes;
  if (auto given = c.integers("axes")) axes = *given;
  else if (c.has(1)) axes = c.known_integers(1, "axes");
  if (axes.empty() && c.integer("noop_with_empty_axes", 0)) return std::nullopt;
  if (axes.empty())
    for (int64_t i = 0; i < c.rank(); ++i) axes.push_back(i);
  for (int64_t& a : axes) a = c.axis(a, c.rank());
  return axes;
}

Results reduce_of(const OpCall& c, const char* name, const Value& x) {
  const auto axes = reduced_axes(c);
  if (!axes || axes->empty()) return {x};
  return {c.op(name, {x}, {{"axis", *axes}, {"keepdim", c.integer("keepdims", 1) != 0}})};
}
Results reduce(const OpCall& c, const char* name) { return reduce_of(c, name, c.in(0)); }

Results extreme_place(const OpCall& c, const char* name) {
  if (c.integer("select_last_index", 0)) c.refuse("the last of equal extremes: the first is computed");
  return {c.typed(c.op(name, {c.in(0)}, {{"axis", c.axis(c.integer("axis", 0), c.rank())}, {"keepdim", c.integer("keepdims", 1) != 0}}),
                  kInt64)};
}

#define SAME(onnx, spec)                                                       \
  {                                                                            \
#onnx, [](const OpCall& c) -> Results { return {c.op(#spec, {c.in(0)})}; } \
  }
#define TWO(onnx, spec)                                  \
  {                                                      \
#onnx, [](const OpCall& c) { return two(c, #spec); } \
  }
#define COMPARE(onnx, spec)                                  \
  {                                                          \
#onnx, [](const OpCall& c) { return compare(c, #spec); } \
  }
#define SEVERAL(onnx, spec)                                  \
  {                                                          \
#onnx, [](const OpCall& c) { return several(c, #spec); } \
  }
#define REDUCE(onnx, spec)                                  \
  {                                                         \
#onnx, [](const OpCall& c) { return reduce(c, #spec); } \
  }

}  // namespace

const Rows& elementwise_rows() {
  static const Rows rows = {
      SAME(Abs, abs),
      SAME(Ceil, ceil),
      SAME(Cos, cos),
      SAME(Erf, erf),
      SAME(Exp, exp),
      SAME(Floor, floor),
      SAME(HardSwish, hardswish),
      SAME(Log, log),
      SAME(Mish, mish),
      SAME(Neg, neg),
      SAME(Reciprocal, reciprocal),
      SAME(Relu, relu),
      SAME(Round, round),
      SAME(Sigmoid, sigmoid),
      SAME(Sign, sign),
      SAME(Sin, sin),
      SAME(Softplus, softplus),
      SAME(Sqrt, sqrt),
      SAME(Tanh, tanh),
      TWO(Add, add),
      TWO(Sub, sub),
      TWO(Mul, mul),
      {"Div", divide},
      {"Mod", modulo},
      {"Pow", power},
      SEVERAL(Sum, add),
      SEVERAL(Max, maximum),
      SEVERAL(Min, minimum),
      {"Mean", mean_of_several},
      COMPARE(Equal, equal),
      COMPARE(Less, less),
      COMPARE(LessOrEqual, less_equal),
      COMPARE(Greater, greater),
      COMPARE(GreaterOrEqual, greater_equal),
      COMPARE(And, and),
      COMPARE(Or, or),
      {"Xor", exclusive_or},
      {"Not", [](const OpCall& c) -> Results { return {c.typed(c.op("not", {c.in(0)}), kBoolean)}; }},
      {"Where", select},
      {"Clip", clip},
      {"PRelu", prelu},
      {"LeakyRelu", leaky_relu},
      {"Elu", elu},
      {"Celu", celu},
      {"Selu", selu},
      {"HardSigmoid", hard_sigmoid},
      {"ThresholdedRelu", thresholded_relu},
      {"Softsign", softsign},
      {"Gelu", gelu},
      {"Swish", swish},
      {"Shrink", shrink},
      {"Cast", cast},
      {"CastLike", cast_like},
      {"Identity", as_it_is},
      {"Dropout", dropout},
      {"Tan", tangent},
      {"Cosh", cosh},
      {"Sinh", sinh},
      {"IsNaN", is_nan},
      {"IsInf", is_inf},
      {"Softmax", [](const OpCall& c) { return along(c, "softmax"); }},
      {"LogSoftmax", [](const OpCall& c) { return along(c, "log_softmax"); }},
      {"CumSum", cumsum},
      REDUCE(ReduceSum, sum),
      REDUCE(ReduceMean, mean),
      REDUCE(ReduceMax, max),
      REDUCE(ReduceMin, min),
      REDUCE(ReduceProd, prod),
      REDUCE(ReduceLogSumExp, logsumexp),
      {"ReduceSumSquare", [](const OpCall& c) { return reduce_of(c, "sum", c.op("square", {c.in(0)})); }},
      {"ReduceL1", [](const OpCall& c) { return reduce_of(c, "sum", c.op("abs", {c.in(0)})); }},
      {"ReduceL2", [](const OpCall& c) -> Results { return {c.op("sqrt", {reduce_of(c, "sum", c.op("square", {c.in(0)}))[0]})}; }},
      {"ReduceLogSum", [](const OpCall& c) -> Results { return {c.op("log", {reduce(c, "sum")[0]})}; }},
      {"ArgMax", [](const OpCall& c) { return extreme_place(c, "argmax"); }},
      {"ArgMin", [](const OpCall& c) { return extreme_place(c, "argmin"); }},
  };
  return rows;
}

}  // namespace mirage::onnx
