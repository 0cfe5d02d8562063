// Shape arithmetic: nodes of known whole numbers (and single numbers of any type) are computed here, so that a reshape knows its extents.
#include <algorithm>
#include <cmath>
#include <functional>
#include "spec/onnx/importer.h"

namespace mirage::onnx {

namespace {

using Two = double (*)(double, double);
using One = double (*)(double);

double truth(bool x) { return x ? 1 : 0; }

const std::map<std::string, Two, std::less<>>& functions_of_two() {
  static const std::map<std::string, Two, std::less<>> table = {{"Add", [](double a, double b) { return a + b; }},
                                                                {"Sub", [](double a, double b) { return a - b; }},
                                                                {"Mul", [](double a, double b) { return a * b; }},
                                                                {"Div", [](double a, double b) { return a / b; }},
                                                                {"Max", [](double a, double b) { return std::max(a, b); }},
                                                                {"Min", [](double a, double b) { return std::min(a, b); }},
                                                                {"Pow", [](double a, double b) { return std::pow(a, b); }},
                                                                {"Mod", [](double a, double b) { return a - b * std::floor(a / b); }},
                                                                {"Equal", [](double a, double b) { return truth(a == b); }},
                                                                {"Less", [](double a, double b) { return truth(a < b); }},
                                                                {"Greater", [](double a, double b) { return truth(a > b); }},
                                                                {"LessOrEqual", [](double a, double b) { return truth(a <= b); }},
                                                                {"GreaterOrEqual", [](double a, double b) { return truth(a >= b); }},
                                                                {"And", [](double a, double b) { return truth(a != 0 && b != 0); }},
                                                                {"Or", [](double a, double b) { return truth(a != 0 || b != 0); }}};
  return table;
}

const std::map<std::string, One, std::less<>>& functions_of_one() {
  static const std::map<std::string, One, std::less<>> table = {{"Neg", [](double a) { return -a; }},
                                                                {"Abs", [](double a) { return std::fabs(a); }},
                                                                {"Sqrt", [](double a) { return std::sqrt(a); }},
                                                                {"Reciprocal", [](double a) { return 1 / a; }},
                                                                {"Floor", [](double a) { return std::floor(a); }},
                                                                {"Ceil", [](double a) { return std::ceil(a); }},
                                                                {"Not", [](double a) { return truth(a == 0); }},
                                                                {"Identity", [](double a) { return a; }}};
  return table;
}

Value vector_of(std::vector<double> data, int type) {
  const auto n = static_cast<int64_t>(data.size());
  return OpCall::constant({{n}, std::move(data)}, type);
}

/// Both of one length, or one of them of one element.
std::optional<Value> fold_two(const OpCall& c, const std::vector<Constant>& in, Two f, bool is_comparison) {
  const size_t n = std::max(in[0].data.size(), in[1].data.size());
  Constant out{in[0].dims.size() >= in[1].dims.size() ? in[0].dims : in[1].dims, {}};
  if (in[0].data.empty() || in[1].data.empty() || (in[0].data.size() != n && in[0].data.size() != 1) ||
      (in[1].data.size() != n && in[1].data.size() != 1))
    return std::nullopt;
  if (!out.dims.empty()) out.dims = {static_cast<int64_t>(n)};
  for (size_t i = 0; i < n; ++i) {
    double x = f(in[0].data[in[0].data.size() == 1 ? 0 : i], in[1].data[in[1].data.size() == 1 ? 0 : i]);
    if (c.node().op == "Div" && is_whole_type(c.type())) x = std::trunc(x);
    if (!std::isfinite(x) && c.node().op != "Add" && c.node().op != "Mul") return std::nullopt;
    out.data.push_back(x);
  }
  return OpCall::constant(std::move(out), is_comparison ? int{kBoolean} : c.type());
}

std::optional<Value> fold_gather(const OpCall& c, const std::vector<Constant>& in) {
  if (in[0].dims.size() != 1) return std::nullopt;
  const auto n = static_cast<double>(in[0].data.size());
  Constant out{in[1].dims, {}};
  for (double p : in[1].data) {
    if (p < -n || p >= n) c.invalid("an index outside of the tensor");
    out.data.push_back(in[0].data[static_cast<size_t>(p < 0 ? p + n : p)]);
  }
  return OpCall::constant(std::move(out), c.type());
}

std::optional<Value> fold_slice(const OpCall& c, const std::vector<Constant>& in) {
  if (in[0].dims.size() != 1 || in[1].data.size() != 1 || in[2].data.size() != 1) return std::nullopt;
  const auto n = static_cast<double>(in[0].data.size());
  const double step = in.size() > 4 && !in[4].data.empty() ? in[4].data[0] : 1;
  if (step == 0) return std::nullopt;
  const auto place = [&](double i) { return i < 0 ? i + n : i; };
  const double low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
  const double from = std::clamp(place(in[1].data[0]), low, high),
               to = std::clamp(in[2].data[0] < -n ? -1 : place(in[2].data[0]), low, high);
  std::vector<double> out;
  for (double i = from; step > 0 ? i < to : i > to; i += step) out.push_back(in[0].data[static_cast<size_t>(i)]);
  return vector_of(std::move(out), c.type());
}

std::optional<Value> fold_select(const std::vector<Constant>& in, int type) {
  const size_t n = std::max({in[0].data.size(), in[1].data.size(), in[2].data.size()});
  for (const Constant& k : in)
    if (k.data.size() != n && k.data.size() != 1) return std::nullopt;
  const auto at = [&](const Constant& k, size_t i) { return k.data[k.data.size() == 1 ? 0 : i]; };
  std::vector<double> out;
  for (size_t i = 0; i < n; ++i) out.push_back(at(in[0], i) != 0 ? at(in[1], i) : at(in[2], i));
  Value v = vector_of(std::move(out), type);
  if (in[0].dims.empty() && in[1].dims.empty() && in[2].dims.empty()) v.dims = v.known->dims = {};
  return v;
}

std::optional<Value> fold_moves(const OpCall& c, const std::vector<Constant>& in) {
  const std::string& op = c.node().op;
  const auto shaped = [&](Shape dims) -> std::optional<Value> {
    if (dims.size() > 1 || elements_of(dims) != static_cast<int64_t>(in[0].data.size())) return std::nullopt;
    return OpCall::constant({dims, in[0].data}, c.type());
  };
  const auto n = static_cast<int64_t>(in[0].data.size());
  if (op == "Gather" && in.size() == 2) return fold_gather(c, in);
  if (op == "Slice" && in.size() >= 3) return fold_slice(c, in);
  if (op == "Unsqueeze" && in[0].dims.empty()) return shaped({1});
  if (op == "Squeeze" && n == 1 && in[0].dims.size() == 1) return shaped({});
  if (op == "Reshape" && in.size() == 2 && in[1].data.size() <= 1) return shaped(in[1].data.empty() ? Shape{} : Shape{n});
  if (op == "Concat") {
    std::vector<double> all;
    for (const Constant& k : in) all.insert(all.end(), k.data.begin(), k.data.end());
    return vector_of(std::move(all), c.type());
  }
  if (op == "Expand" && in.size() == 2 && n == 1 && in[1].data.size() == 1 && in[1].data[0] <= 64)
    return vector_of(std::vector<double>(static_cast<size_t>(in[1].data[0]), in[0].data[0]), c.type());
  if (op == "ReduceProd" || op == "ReduceSum" || op == "ReduceMax" || op == "ReduceMin") {
    if (in[0].data.empty()) return std::nullopt;
    double x = in[0].data[0];
    for (size_t i = 1; i < in[0].data.size(); ++i)
      x = op == "ReduceProd"  ? x * in[0].data[i]
          : op == "ReduceSum" ? x + in[0].data[i]
          : op == "ReduceMax" ? std::max(x, in[0].data[i])
                              : std::min(x, in[0].data[i]);
    return OpCall::constant({c.integer("keepdims", 1) && !in[0].dims.empty() ? Shape{1} : Shape{}, {x}}, c.type());
  }
  return std::nullopt;
}

}  // namespace

std::optional<Value> fold_shapes(const OpCall& c) {
  if (c.size() == 0) return std::nullopt;
  for (size_t i = 0; i < c.size(); ++i) {
    if (!c.has(i) || c.in(i).made >= 0 || c.in(i).dims.size() > 1) return std::nullopt;
    const bool counts = is_whole_type(c.in(i).type) || c.in(i).type == kBoolean;
    if (!counts && !c.in(i).dims.empty() && (c.in(i).initializer >= 0 || elements_of(c.in(i).dims) > 1))
      return std::nullopt;  // weights are inputs, not constants
  }
  std::vector<Constant> in;
  for (size_t i = 0; i < c.size(); ++i) {
    auto k = c.known(i);
    if (!k) return std::nullopt;
    in.push_back(std::move(*k));
  }
  const std::string& op = c.node().op;
  if (const auto at = functions_of_two().find(op); at != functions_of_two().end() && in.size() == 2) {
    static const std::string arithmetic = " Add Sub Mul Div Max Min Pow Mod ";
    return fold_two(c, in, at->second, arithmetic.find(" " + op + " ") == std::string::npos);
  }
  if (const auto at = functions_of_one().find(op); at != functions_of_one().end() && in.size() == 1) {
    Constant out = in[0];
    for (double& x : out.data) x = at->second(x);
    if (std::all_of(out.data.begin(), out.data.end(), [](double x) { return std::isfinite(x); }))
      return OpCall::constant(std::move(out), op == "Not" ? int{kBoolean} : c.type());
    return std::nullopt;
  }
  if (op == "Cast") {
    const auto to = static_cast<int>(c.integer("to", kFloat));
    if (!dtype_of(to) && to != kDouble) return std::nullopt;  // float64 of a known number is only a step on its way
    Constant out = in[0];
    for (double& x : out.data) x = is_whole_type(to) ? std::trunc(x) : to == kBoolean ? truth(x != 0) : x;
    return OpCall::constant(std::move(out), to);
  }
  if (op == "Where" && in.size() == 3) return fold_select(in, c.in(1).type);
  return fold_moves(c, in);
}

}  // namespace mirage::onnx
