// Random well-typed specs: one function per operator of lib/spec/operators.def chooses operands and attributes; the spec reader itself says whether they fit and what comes out, so there is no second opinion on shapes here.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mirage/ir/eval.h"
#include "mirage/spec/spec.h"
#include "mirage/support/hash.h"
#include "random/spec.h"

namespace mirage::test {

namespace {

using Extents = std::vector<int64_t>;

std::string shape_text(const std::map<std::string, int64_t>& axes, const Extents& dims) {
  std::vector<std::string> out;
  for (int64_t e : dims) {
    std::string word = std::to_string(e);
    for (const auto& [name, extent] : axes)
      if (extent == e && e > 1) { word = "\"" + name + "\""; break; }
    out.push_back(word);
  }
  return fmt::format("{}", fmt::join(out, ", "));
}

bool is_name(const std::string& operand) { return std::isalpha(static_cast<unsigned char>(operand[0])) != 0; }

}  // namespace

std::string RandomSpec::text() const {
  std::string a, in, out, body;
  for (const auto& [axis, extent] : axes) a += fmt::format("{}\"{}\": {{\"type\": \"const\", \"value\": {}}}", a.empty() ? "" : ", ", axis, extent);
  for (const Input& x : inputs) in += fmt::format("{}\"{}\": {{\"shape\": [{}], \"dtype\": \"{}\"{}}}", in.empty() ? "" : ",\n            ", x.name, shape_text(axes, x.dims), x.dtype, x.more);
  for (const Output& o : outputs) {
    const std::string strides = o.strides.empty() ? "" : fmt::format(", \"shape\": [{}], \"strides\": [{}]", shape_text(axes, o.dims), fmt::join(o.strides, ", "));
    out += fmt::format("{}\"{}\": {{\"dtype\": \"{}\"{}}}", out.empty() ? "" : ", ", o.name, o.dtype, strides);
  }
  for (const Node& n : nodes) {
    std::vector<std::string> operands;
    for (const std::string& o : n.operands) operands.push_back(is_name(o) ? "\"" + o + "\"" : o);
    body += fmt::format("{}{{\"op\": \"{}\", \"inputs\": [{}], \"output\": \"{}\"{}}}", body.empty() ? "" : ",\n           ", n.op, fmt::join(operands, ", "), n.output, n.attrs.empty() ? "" : ", \"attrs\": {" + n.attrs + "}");
  }
  return fmt::format("{{\"version\": \"1.0\", \"name\": \"{}\",{}\n \"axes\": {{{}}},\n \"inputs\": {{{}}},\n \"outputs\": {{{}}},\n \"nodes\": [{}]}}\n", name,
                     rtol > 0 ? fmt::format(" \"numerics\": {{\"rtol\": {}}},", rtol) : "", a, in, out, body);
}

namespace {

/// A value that can be an operand, and what it is on the drawn inputs: exactly, and with every value so far rounded as coarsely as kernels may.
struct Value {
  std::string name;
  Dims dims;
  bool is_bool = false, exact = false, masked = false, positive = false;   ///< exact: no kernel rounds it, so that comparisons have one answer
  Tensor<double> sample, rough;
  int rank() const { return dims.rank(); }
  int64_t elements() const { return dims.elements(); }
};

constexpr int64_t kMaxElements = 24'000, kMaxWork = 3'000'000;   // per value; multiplications of one contraction

class Generator {
 public:
  explicit Generator(uint64_t seed);
  RandomSpec take();
  static const std::map<std::string, void (Generator::*)()>& table();

 private:
  // choices
  uint64_t below(uint64_t n) { return rng_.below(n); }
  bool one_in(uint64_t n) { return rng_.below(n) == 0; }
  template <class T> const T& pick(const std::vector<T>& v) { return v[below(v.size())]; }
  std::string pick(std::initializer_list<const char*> v) { return *(v.begin() + below(v.size())); }
  int64_t any_extent() { return pick(extents_); }
  Value any(int min_rank = 0, bool allow_masked = false);
  std::string constant() { return pick({"0.5", "-1.25", "2", "0.125", "1", "-0.75", "3"}); }
  std::string axes_attr(int rank, bool keepdim_too);

  // the program
  Value input(const Extents& dims, const std::string& kind = "");
  std::optional<Value> node(const std::string& op, std::vector<std::string> operands, const std::string& attrs = "");
  const Value* find(const std::string& name) const;
  Extents dims_of(const Value& v) const { return Extents(v.dims.begin(), v.dims.end()); }
  Value partner(const Value& x);      ///< something that broadcasts with x
  Value positive(const Value& x);     ///< from x, at least about a quarter
  std::optional<Value> exact_value(); ///< for comparisons
  std::optional<Value> condition(const Value& like);

  // operators
  void unary(const std::string& op) { node(op, {any().name}); }
  void binary(const std::string& op);
  void reduction(const std::string& op) { const Value x = any(1, op == "max"); node(op, {x.name}, axes_attr(x.rank(), true)); }
  void comparison(const std::string& op);
  void norm(const std::string& op, const std::string& eps);
  void matmul();
  void einsum();
  void add() { binary("add"); }
  void sub() { binary("sub"); }
  void mul() { binary("mul"); }
  void maximum() { binary("maximum"); }
  void minimum() { binary("minimum"); }
  void div();
  void pow();
  void neg() { unary("neg"); }
  void exp() { const Value x = any(0, true); if (x.masked || one_in(2)) node("exp", {x.name}); else if (auto t = node("tanh", {x.name})) node("exp", {t->name}); }
  void log() { node("log", {positive(any()).name}); }
  void sqrt() { node("sqrt", {positive(any()).name}); }
  void rsqrt() { node("rsqrt", {positive(any()).name}); }
  void square() { unary("square"); }
  void abs() { unary("abs"); }
  void sigmoid() { node("sigmoid", {any(0, true).name}); }
  void silu() { unary("silu"); }
  void gelu() { node("gelu", {any().name}, one_in(2) ? "\"approximate\": \"tanh\"" : ""); }
  void relu() { node("relu", {any(0, true).name}); }
  void tanh() { unary("tanh"); }
  void clamp();
  void equal() { comparison("equal"); }
  void less() { comparison("less"); }
  void greater() { comparison("greater"); }
  void where();
  void sum() { reduction("sum"); }
  void mean() { reduction("mean"); }
  void max() { reduction("max"); }
  void softmax() { const Value x = any(1, true); node("softmax", {x.name}, axes_attr(x.rank(), false)); }
  void rms_norm() { norm("rms_norm", "1e-3"); }
  void layer_norm() { norm("layer_norm", "1e-3"); }
  void group_norm();
  void batch_norm();
  void l2_norm() { const Value x = any(1); node("l2_norm", {x.name}, axes_attr(x.rank(), false)); }
  void transpose();
  void reshape();
  void repeat() { const Value x = any(1, true); node("repeat", {x.name}, fmt::format("\"axis\": {}, \"count\": {}", below(static_cast<uint64_t>(x.rank())), 1 + below(3))); }
  void concat();
  void slice();
  void cast();
  void causal_mask();
  void iota();
  void extent();

  // programs people write
  void attention(bool large = false);
  void small_attention() { attention(); }
  void gated();
  void adapters();
  void few_rows();

  Rng rng_;
  RandomSpec spec_;
  Extents extents_;
  std::vector<Value> values_;
  std::string dtype_;
  double unit_ = 0;
};

Generator::Generator(uint64_t seed) : rng_(hash_combine(seed, 0x52616e64)) {
  spec_.name = fmt::format("r{}", seed);
  dtype_ = pick({"float16", "bfloat16", "float32"});
  const Extents choices = {16, 32, 64, 8, 24, 7, 13, 33, 40, 96, 1, 128, 2, 3, 5, 48, 100, 72, 65};
  for (int i = 0; i < 4; i++) extents_.push_back(pick(choices));
  for (size_t i = 0; i < extents_.size(); i++) spec_.axes[fmt::format("A{}", i)] = extents_[i];
  unit_ = dtype_ == "float16" ? 4e-3 : dtype_ == "bfloat16" ? 3e-2 : 5e-5;
  spec_.rtol = dtype_ == "bfloat16" ? 3e-2 : dtype_ == "float32" ? 5e-5 : 0;
}

Value Generator::any(int min_rank, bool allow_masked) {
  for (int i = 0; i < 24; i++) {
    const Value& v = one_in(3) ? pick(values_) : values_.back();
    if (v.rank() >= min_rank && (allow_masked || !v.masked) && (!v.is_bool || one_in(4))) return v;
  }
  Extents dims;
  for (int d = 0; d < std::max(min_rank, 1); d++) dims.push_back(any_extent());
  return input(dims);
}

std::string Generator::axes_attr(int rank, bool keepdim_too) {
  std::string out;
  const auto axis = [&] { const auto a = static_cast<int>(below(static_cast<uint64_t>(rank))); return one_in(3) ? a - rank : a; };
  if (one_in(2)) out = fmt::format("\"axis\": {}", one_in(2) ? -1 : axis());
  else if (rank > 1 && one_in(3)) { const int a = axis(), b = ((a + rank) % rank + 1) % rank; out = fmt::format("\"axis\": [{}, {}]", a, b); }
  if (keepdim_too && one_in(2)) out += (out.empty() ? "" : ", ") + std::string("\"keepdim\": true");
  return out;
}

const Value* Generator::find(const std::string& name) const {
  for (const Value& v : values_)
    if (v.name == name) return &v;
  return nullptr;
}

/// kind: "" (-2 to 2), "small" (a weight), "positive", "bool".
Value Generator::input(const Extents& dims, const std::string& kind) {
  Value v;
  v.name = fmt::format("x{}", spec_.inputs.size());
  v.dims = {};
  for (int64_t e : dims) v.dims.push_back(e);
  v.exact = true;
  v.positive = kind == "positive";
  v.is_bool = kind == "bool";
  const std::string dtype = v.is_bool ? "bool" : one_in(12) && dtype_ != "float32" ? "float32" : dtype_;
  const double low = kind == "positive" ? 0.25 : kind == "small" ? -0.5 : -2, high = kind == "positive" ? 2 : kind == "small" ? 0.5 : 2;
  std::string more = kind == "positive" || kind == "small" ? fmt::format(", \"range\": [{}, {}]", low, high) : "";
  if (!dims.empty() && one_in(4)) {   // the dimensions in another order, lines with padding
    std::vector<size_t> order(dims.size());
    for (size_t i = 0; i < order.size(); i++) order[i] = i;
    const uint64_t form = below(3);
    if (form != 0) std::reverse(order.begin(), order.end());
    if (form == 2 && order.size() > 2) std::swap(order[0], order[1]);
    const int64_t padding = form == 1 ? 0 : static_cast<int64_t>(pick(std::vector<int>{0, 1, 3, 8, 16}));
    Extents strides(dims.size());
    int64_t at = 1;
    if (form == 0) std::reverse(order.begin(), order.end());   // innermost first
    for (size_t i = 0; i < order.size(); i++) { strides[order[i]] = at; at = at * dims[order[i]] + (i == 0 ? padding : 0); }
    more += fmt::format(", \"strides\": [{}]", fmt::join(strides, ", "));
  }
  v.sample = v.rough = Tensor<double>(v.dims, 0);
  const DType type = *parse_dtype(dtype);
  for (size_t i = 0; i < v.sample.data.size(); i++)
    v.sample.data[i] = v.rough.data[i] = v.is_bool ? static_cast<double>(below(2)) : round_to(low + (high - low) * rng_.uniform(), type);
  spec_.inputs.push_back({v.name, dims, dtype, more});
  values_.push_back(v);
  return v;
}

/// The node if the reader takes it and its value can be judged.
std::optional<Value> Generator::node(const std::string& op, std::vector<std::string> operands, const std::string& attrs) {
  RandomSpec one;   // this node alone, computed operands as inputs
  one.name = "one";
  one.axes = spec_.axes;
  one.inputs = spec_.inputs;
  for (RandomSpec::Input& x : one.inputs) x.more.clear();
  std::vector<const Value*> of;
  for (const RandomSpec::Input& x : spec_.inputs) of.push_back(find(x.name));
  bool exact = true;
  for (const std::string& o : operands) {
    if (!is_name(o)) continue;
    const Value* v = find(o);
    exact = exact && v->exact;
    if (std::any_of(one.inputs.begin(), one.inputs.end(), [&](const auto& x) { return x.name == o; })) continue;
    one.inputs.push_back({o, dims_of(*v), v->is_bool ? "bool" : "float32", ""});
    of.push_back(v);
  }
  Value out;
  out.name = fmt::format("v{}", spec_.nodes.size());
  one.nodes.push_back({op, attrs, out.name, operands});
  std::optional<Program> program;
  for (const char* dtype : {"bool", "float32"}) {   // a bool output needs a bool value
    one.outputs = {{out.name, dtype, {}, {}}};
    if (auto p = parse_spec({"one", one.text()})) { program = *p; out.is_bool = dtype == std::string("bool"); break; }
  }
  if (!program) return std::nullopt;
  int64_t work = 0;
  const Graph& g = program->graph;
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    if (g.node(n).first_value >= 0 && g.dims(g.node(n).first_value).elements() > 4 * kMaxElements) return std::nullopt;
    if (g.form<MatMul>(n)) work += g.dims(g.node(n).first_value).elements() * g.dims(g.node(n).operands[0]).back();
  }
  if (work > kMaxWork) return std::nullopt;
  std::vector<Tensor<double>> samples, roughs;
  for (const TensorInfo& t : program->inputs)
    for (const Value* v : of)
      if (v->name == t.name) samples.push_back(v->sample), roughs.push_back(v->rough);
  DoubleAlgebra a;
  out.sample = evaluate(g, std::span<const Tensor<double>>(samples), a)[0];
  out.rough = evaluate(g, std::span<const Tensor<double>>(roughs), a)[0];
  out.dims = out.sample.dims;
  if (out.elements() > kMaxElements) return std::nullopt;
  double off = 0, squares = 0, worst = 0;
  out.positive = true;
  for (size_t i = 0; i < out.sample.data.size(); i++) {
    const double x = out.sample.data[i];
    double& r = out.rough.data[i];
    if (dtype_ == "bfloat16") r = round_to(r, DType::kBF16);
    else if (dtype_ == "float16" && std::isfinite(r) && r != 0) { int e = 0; const double m = std::frexp(r, &e); r = std::ldexp(std::nearbyint(std::ldexp(m, 11)), e - 11); }
    else r = round_to(r, DType::kF32);
    if (x == -INFINITY && r == -INFINITY) { out.masked = true; out.positive = false; continue; }
    if (!std::isfinite(x) || !std::isfinite(r) || std::fabs(x) > 300) return std::nullopt;
    out.positive = out.positive && x > 0.2;
    off += (x - r) * (x - r), squares += x * x;
  }
  const double scale = std::sqrt(squares / static_cast<double>(out.sample.data.size()));
  for (size_t i = 0; i < out.sample.data.size(); i++)
    if (std::isfinite(out.sample.data[i])) worst = std::max(worst, std::fabs(out.sample.data[i] - out.rough.data[i]) / (std::fabs(out.sample.data[i]) + scale + 1e-30));
  if (std::sqrt(off) > unit_ / 4 * std::sqrt(squares) || worst > unit_) return std::nullopt;
  if (scale < 1e-3 && scale > 0) return std::nullopt;   // differences that cancel; float16 has no room there either
  static const std::vector<std::string> keeps = {"neg", "abs", "relu", "maximum", "minimum", "clamp", "transpose", "reshape", "repeat", "concat", "slice", "max", "where", "iota", "equal", "less", "greater"};
  out.exact = exact && std::find(keeps.begin(), keeps.end(), op) != keeps.end();
  spec_.nodes.push_back(one.nodes[0]);
  values_.push_back(out);
  return out;
}

Value Generator::partner(const Value& x) {
  if (one_in(6)) return x;
  if (one_in(3))
    for (int i = 0; i < 6; i++) {
      const Value& y = pick(values_);
      if (!y.masked && broadcast(x.dims, y.dims)) return y;
    }
  Extents dims = dims_of(x);
  for (int64_t& e : dims) if (one_in(4)) e = 1;                                   // a row, a column
  while (!dims.empty() && one_in(4)) dims.erase(dims.begin());                    // fewer dimensions, down to a scalar
  if (one_in(10) && static_cast<int>(dims.size()) == x.rank() && x.rank() < 5) dims.insert(dims.begin(), pick(Extents{1, 2, 3}));   // x is broadcast
  return input(dims);
}

Value Generator::positive(const Value& x) {
  if (x.positive) return x;
  if (one_in(3)) return input(dims_of(x), "positive");
  if (auto s = node(pick({"square", "abs", "sigmoid"}), {x.name}))
    if (auto p = node("add", {s->name, pick({"1", "0.5", "2"})})) return *p;
  return input(dims_of(x), "positive");
}

void Generator::binary(const std::string& op) {
  const Value x = any();
  std::vector<std::string> operands = {x.name, one_in(5) ? constant() : partner(x).name};
  if (one_in(3)) std::swap(operands[0], operands[1]);
  node(op, operands);
}

void Generator::div() {
  const Value x = any();
  if (one_in(4)) { node("div", {x.name, pick({"2", "0.75", "-4"})}); return; }
  const Value y = positive(partner(x));
  node("div", {one_in(5) ? "1.5" : x.name, y.name});
}

void Generator::pow() {
  const Value x = one_in(4) ? any() : positive(any());
  if (one_in(3)) { node("pow", {x.name, partner(x).name}); return; }
  node("pow", {x.name}, "\"exponent\": " + pick({"2", "0.5", "-0.5", "-1", "1.7", "1", "3", "-3"}));
}

void Generator::clamp() {
  const Value x = any(0, true);
  switch (below(4)) {
    case 0: node("clamp", {x.name}, "\"min\": -0.25, \"max\": 0.5"); break;
    case 1: node("clamp", {x.name}, "\"max\": 0.125"); break;
    case 2: node("clamp", {x.name}, "\"min\": -0.5"); break;
    default: { const Value y = partner(x); node("clamp", {x.name, y.name, "1.5"}); }
  }
}

std::optional<Value> Generator::exact_value() {
  for (int i = 0; i < 8; i++) {
    const Value& v = pick(values_);
    if (v.exact && !v.masked) return v;
  }
  return values_[0];
}

void Generator::comparison(const std::string& op) {
  const auto x = exact_value(), y = exact_value();
  std::vector<std::string> operands = {x->name, broadcast(x->dims, y->dims) && !one_in(3) ? y->name : pick({"0", "0.5", "-1"})};
  if (op == "equal" && one_in(2))
    if (auto r = node("relu", {x->name})) operands = {r->name, "0"};
  if (one_in(3)) std::swap(operands[0], operands[1]);
  node(op, operands);
}

std::optional<Value> Generator::condition(const Value& like) {
  for (int i = 0; i < 6; i++) {
    const Value& v = pick(values_);
    if (v.is_bool && broadcast(v.dims, like.dims)) return v;
  }
  if (one_in(2)) { Extents dims = dims_of(like); for (int64_t& e : dims) if (one_in(4)) e = 1; return input(dims, "bool"); }
  const auto x = exact_value();
  if (!broadcast(x->dims, like.dims)) return input(dims_of(like), "bool");
  return node(pick({"less", "greater"}), {x->name, pick({"0", "0.25"})});
}

void Generator::where() {
  const Value x = any();
  const auto c = condition(x);
  if (!c) return;
  std::vector<std::string> operands = {c->name, x.name, one_in(3) ? constant() : one_in(6) ? "\"-inf\"" : partner(x).name};
  if (one_in(3)) std::swap(operands[1], operands[2]);
  node("where", operands);
}

void Generator::norm(const std::string& op, const std::string& eps) {
  const Value x = any(1);
  std::vector<std::string> operands = {x.name};
  std::string attrs = one_in(3) ? axes_attr(x.rank(), false) : "";
  if (attrs.empty() && one_in(2)) operands.push_back(input({x.dims.back()}).name);
  if (operands.size() == 2 && one_in(2)) operands.push_back(input({x.dims.back()}).name);
  if (one_in(2)) attrs += (attrs.empty() ? "" : ", ") + ("\"eps\": " + eps);
  node(op, operands, attrs);
}

void Generator::group_norm() {
  Value x = any(2);
  const int64_t channels = x.dims[1];
  Extents divisors;
  for (int64_t d = 1; d <= channels; d++) if (channels % d == 0) divisors.push_back(d);
  std::vector<std::string> operands = {x.name};
  while (operands.size() < 3 && one_in(2)) operands.push_back(input({channels}).name);
  node("group_norm", operands, fmt::format("\"groups\": {}, \"eps\": 0.001", pick(divisors)));
}

void Generator::batch_norm() {
  const Value x = any(2);
  const Extents channels = {x.dims[1]};
  std::vector<std::string> operands = {x.name, input(channels).name, input(channels, "positive").name};
  while (operands.size() < 5 && one_in(2)) operands.push_back(input(channels).name);
  node("batch_norm", operands);
}

void Generator::matmul() {
  const Value x = any(1);
  const int64_t k = x.dims.back(), n = any_extent();
  const bool t = one_in(3);
  switch (below(7)) {
    case 0: case 1: case 2: {   // a weight
      const Value w = input(t ? Extents{n, k} : Extents{k, n}, one_in(4) ? "" : "small");
      if (auto y = node("matmul", {x.name, w.name}, t ? "\"transpose_b\": true" : ""); y && one_in(3)) node("mul", {y->name, "0.125"});
      break;
    }
    case 3: {   // batches, some of them broadcast
      Extents dims = dims_of(x);
      if (dims.size() < 2) return;
      dims.resize(dims.size() - 2);
      for (int64_t& e : dims) if (one_in(4)) e = 1; else if (e == 1 && one_in(2)) e = pick(Extents{2, 3});
      if (dims.empty() && one_in(2)) dims.push_back(pick(Extents{2, 3}));
      for (int64_t e : t ? Extents{n, k} : Extents{k, n}) dims.push_back(e);
      node("matmul", {x.name, input(dims, "small").name}, t ? "\"transpose_b\": true" : "");
      break;
    }
    case 4: {   // two values that are there, one twice maybe
      for (int i = 0; i < 8; i++) {
        const Value y = one_in(3) ? x : pick(values_);
        const bool ta = x.rank() > 1 && one_in(4), tb = y.rank() > 1 && (one_in(2) || y.name == x.name);
        if (y.masked || y.rank() < 1) continue;
        if (auto z = node("matmul", {x.name, y.name}, fmt::format("\"transpose_a\": {}, \"transpose_b\": {}", ta, tb))) { if (one_in(2)) node("mul", {z->name, "0.125"}); return; }
      }
      break;
    }
    case 5: node("matmul", {x.name, input({k}, "small").name}); break;
    default:
      if (x.rank() < 2) return;
      if (t) node("matmul", {input({x.dims[x.rank() - 2], n}, "small").name, x.name}, "\"transpose_a\": true");
      else node("matmul", {input({n, x.dims[x.rank() - 2]}, "small").name, x.name});
  }
}

void Generator::einsum() {
  const Value x = any(1);
  std::string left, right, out;
  Extents dims;
  for (int d = 0; d < x.rank(); d++) left += static_cast<char>('a' + d);
  const bool two = !one_in(4);
  if (two) {
    for (int d = 0; d < x.rank(); d++)
      if (!one_in(3)) right += left[static_cast<size_t>(d)], dims.push_back(x.dims[d]);
    if (one_in(2) || right.empty()) right += 'z', dims.push_back(any_extent());
    if (right.size() > 1 && one_in(3)) std::swap(right[0], right.back()), std::swap(dims[0], dims.back());
  }
  for (char c : left + right)
    if (out.find(c) == std::string::npos && !(two && left.find(c) != std::string::npos && right.find(c) != std::string::npos ? !one_in(3) : one_in(4))) out += c;
  if (out.size() > 1 && one_in(2)) std::swap(out[below(out.size())], out.back());
  std::vector<std::string> operands = {x.name};
  if (two) operands.push_back(input(dims, "small").name);
  if (two && one_in(3)) std::swap(operands[0], operands[1]), std::swap(left, right);
  node("einsum", operands, fmt::format("\"equation\": \"{}{}{}->{}\"", left, two ? "," : "", right, out));
}

void Generator::transpose() {
  const Value x = any(1, true);
  std::vector<int> perm;
  for (int d = 0; d < x.rank(); d++) perm.push_back(d);
  for (size_t i = perm.size(); i > 1; i--) std::swap(perm[i - 1], perm[below(i)]);
  node("transpose", {x.name}, one_in(4) ? "" : fmt::format("\"perm\": [{}]", fmt::join(perm, ", ")));
}

void Generator::reshape() {
  const Value x = any(1, true);
  Extents dims = dims_of(x);
  for (int steps = 1 + static_cast<int>(below(2)); steps > 0; steps--) {
    const size_t at = below(dims.size());
    const int64_t e = dims[at];
    switch (below(4)) {
      case 0:   // join
        if (at + 1 < dims.size()) dims[at] = e * dims[at + 1], dims.erase(dims.begin() + static_cast<int>(at) + 1);
        break;
      case 1: {   // split
        Extents divisors;
        for (int64_t d = 2; d < e; d++) if (e % d == 0) divisors.push_back(d);
        if (divisors.empty() || dims.size() >= 6) break;
        const int64_t d = pick(divisors);
        dims[at] = e / d;
        dims.insert(dims.begin() + static_cast<int>(at) + 1, d);
        break;
      }
      case 2: if (dims.size() < 6) dims.insert(dims.begin() + static_cast<int>(at), 1); break;
      default: if (one_in(2)) dims = {x.elements()};
    }
  }
  if (one_in(4)) dims[below(dims.size())] = -1;
  node("reshape", {x.name}, fmt::format("\"shape\": [{}]", fmt::join(dims, ", ")));
}

void Generator::concat() {
  const Value x = any(1, true);
  const auto axis = static_cast<int>(below(static_cast<uint64_t>(x.rank())));
  std::vector<std::string> operands = {x.name};
  for (int i = 0; i < 3 && (i == 0 || one_in(2)); i++) {
    Extents dims = dims_of(x);
    if (one_in(2)) dims[static_cast<size_t>(axis)] = any_extent();
    std::string other = one_in(3) ? x.name : "";
    for (const Value& v : values_) if (other.empty() && one_in(2) && v.dims == x.dims && !v.is_bool) other = v.name;
    operands.push_back(other.empty() ? input(dims).name : other);
  }
  node("concat", operands, one_in(4) ? "" : fmt::format("\"axis\": {}", one_in(2) ? axis : axis - x.rank()));
}

void Generator::slice() {
  const Value x = any(1, true);
  const auto axis = static_cast<int>(below(static_cast<uint64_t>(x.rank())));
  const auto n = static_cast<uint64_t>(x.dims[axis]);
  const int64_t start = static_cast<int64_t>(below(n)), stop = start + 1 + static_cast<int64_t>(below(n - static_cast<uint64_t>(start)));
  std::string attrs = fmt::format("\"axis\": {}", one_in(3) ? axis - x.rank() : axis);
  if (!one_in(4)) attrs += fmt::format(", \"start\": {}", one_in(3) ? start - x.dims[axis] : start);
  if (one_in(2)) attrs += fmt::format(", \"stop\": {}", one_in(3) && stop < x.dims[axis] ? stop - x.dims[axis] : stop);
  if (one_in(3)) attrs += fmt::format(", \"step\": {}", 1 + below(3));
  node("slice", {x.name}, attrs);
}

void Generator::cast() {
  const std::string to = pick({"float16", "bfloat16", "float32", "bool"});
  if (to == "bool") { node("cast", {exact_value()->name}, "\"dtype\": \"bool\""); return; }
  if (to == "bfloat16" && dtype_ != "bfloat16") return;   // coarser than what results are judged by
  if (to == "float16" && dtype_ == "float32") return;
  node("cast", {any().name}, fmt::format("\"dtype\": \"{}\"", to));
}

void Generator::causal_mask() {
  const Value x = any(2);
  auto m = node("causal_mask", {x.name}, one_in(2) ? "" : fmt::format("\"offset\": {}", static_cast<int>(below(6)) - 1));
  if (m && !one_in(4)) node(pick({"softmax", "softmax", "exp", "sigmoid", "max"}), {m->name});
}

void Generator::iota() {
  Value x = any(1);
  Extents dims = dims_of(x);
  const size_t axis = below(dims.size());
  for (size_t d = 0; d < dims.size(); d++) if (d != axis && one_in(2)) dims[d] = 1;
  const auto i = node("iota", {}, fmt::format("\"axis\": {}, \"shape\": [{}]", axis, fmt::join(dims, ", ")));
  if (!i) return;
  switch (below(4)) {
    case 0: node(pick({"add", "mul", "sub"}), {x.name, i->name}); break;
    case 1: if (auto c = node(pick({"less", "greater"}), {i->name, std::to_string(below(static_cast<uint64_t>(dims[axis]) + 1))})) node("where", {c->name, x.name, pick({"0", "\"-inf\"", "1"})}); break;
    case 2: if (auto s = node("mul", {i->name, "0.03125"})) node("add", {x.name, s->name}); break;
    default: break;
  }
}

void Generator::extent() {
  const Value& first = values_[0];
  if (first.rank() == 0) return;
  const Value x = any();
  if (auto e = node("extent", {}, fmt::format("\"of\": [[0, {}]]", below(static_cast<uint64_t>(first.rank()))))) node(pick({"div", "mul"}), {x.name, e->name});
}

/// softmax(Q K^T) V with or without heads, a mask, a scale.
void Generator::attention(bool large) {
  const int64_t d = pick(large ? Extents{64, 128} : Extents{16, 32, 64, 24, 128}), m = pick(large ? Extents{1, 8, 16, 64, 33} : Extents{1, 2, 7, 8, 16, 33, 64}), n = pick(large ? Extents{128, 256, 192} : Extents{16, 64, 96, 100, 33, 128});
  const int64_t v = one_in(large ? 6 : 3) ? any_extent() : d;
  Extents batch;
  for (uint64_t i = below(3); i > 0; i--) batch.push_back(pick(Extents{1, 2, 3}));
  const auto with = [&](Extents tail) { Extents all = batch; all.insert(all.end(), tail.begin(), tail.end()); return all; };
  const bool t = one_in(2);
  const Value q = input(with({m, d})), k = input(with(t ? Extents{n, d} : Extents{d, n}));
  auto s = node("matmul", {q.name, k.name}, t ? "\"transpose_b\": true" : "");
  if (!s) return;
  if (!one_in(4)) s = node("mul", {s->name, pick({"0.125", "0.25", "0.0625"})});
  if (s && one_in(3)) s = node("causal_mask", {s->name}, fmt::format("\"offset\": {}", n - m));
  else if (s && one_in(3)) s = node("add", {s->name, input(one_in(2) ? Extents{n} : Extents{m, n}).name});
  if (s) s = node("softmax", {s->name});
  if (s) node("matmul", {s->name, one_in(5) && !t && v == d ? k.name : input(with({n, v}), one_in(2) ? "small" : "").name}, "");
}

/// act(X W1) * (X W2), with a norm before it at times.
void Generator::gated() {
  Value x = any(2);
  if (one_in(2)) if (auto y = node(pick({"rms_norm", "layer_norm"}), {x.name})) x = *y;
  const int64_t k = x.dims.back(), n = any_extent();
  const auto a = node("matmul", {x.name, input({k, n}, "small").name}), b = node("matmul", {x.name, input({k, n}, "small").name});
  if (!a || !b) return;
  if (auto s = node(pick({"silu", "gelu", "relu", "sigmoid"}), {a->name})) node(pick({"mul", "add"}), {s->name, b->name});
}

/// X W + (X A) B, a bias at times.
void Generator::adapters() {
  const Value x = any(2);
  const int64_t k = x.dims.back(), n = any_extent(), r = pick(Extents{1, 4, 8, 16});
  const auto w = node("matmul", {x.name, input({k, n}, "small").name}), a = node("matmul", {x.name, input({k, r}, "small").name});
  if (!w || !a) return;
  const auto b = node("matmul", {a->name, input({r, n}, "small").name});
  if (!b) return;
  if (auto s = node("add", {w->name, b->name}); s && one_in(3)) node("add", {s->name, input({n}).name});
}

/// A few rows through long aligned weights: what streams.
void Generator::few_rows() {
  if (dtype_ == "float32") return;
  const int64_t k = pick(Extents{256, 512, 384, 320}), n = pick(Extents{64, 128, 192, 72});
  Value x = input({pick(Extents{1, 2, 4, 7, 8, 16}), k});
  const Value first = x;
  if (one_in(2)) if (auto y = node(pick({"rms_norm", "layer_norm", "silu", "l2_norm"}), {x.name})) x = *y;
  const auto product = [&](const Value& of) {
    const bool t = one_in(3);
    return node("matmul", {of.name, input(t ? Extents{n, k} : Extents{k, n}, "small").name}, t ? "\"transpose_b\": true" : "");
  };
  auto a = product(x);
  if (!a) return;
  switch (below(5)) {
    case 0: break;
    case 1: if (auto b = product(one_in(2) ? x : first)) if (auto s = node(pick({"silu", "sigmoid", "relu"}), {a->name})) node("mul", {s->name, b->name}); break;
    case 2: {
      const int64_t r = pick(Extents{4, 8, 16});
      if (auto low = node("matmul", {first.name, input({k, r}, "small").name}))
        if (auto b = node("matmul", {low->name, input({r, n}, "small").name})) if (auto s = node("mul", {b->name, "0.125"})) node("add", {a->name, s->name});
      break;
    }
    case 3: node("add", {a->name, input({n}).name}); break;
    default: if (auto g = node(pick({"gelu", "tanh"}), {a->name})) node("add", {g->name, input({first.dims[0], n}).name});
  }
}

const std::map<std::string, void (Generator::*)()>& Generator::table() {
#define OP(name) {#name, &Generator::name}
  static const std::map<std::string, void (Generator::*)()> all = {
      OP(matmul), OP(einsum), OP(add), OP(sub), OP(mul), OP(div), OP(pow), OP(neg), OP(exp), OP(log), OP(sqrt), OP(rsqrt), OP(square), OP(abs), OP(sigmoid), OP(silu), OP(gelu), OP(relu), OP(tanh), OP(clamp),
      OP(maximum), OP(minimum), OP(equal), OP(less), OP(greater), OP(where), OP(sum), OP(mean), OP(max), OP(softmax), OP(rms_norm), OP(layer_norm), OP(group_norm), OP(batch_norm), OP(l2_norm), OP(transpose),
      OP(reshape), OP(repeat), OP(concat), OP(slice), OP(cast), OP(causal_mask), OP(iota), OP(extent)};
#undef OP
  return all;
}

RandomSpec Generator::take() {
  Extents dims;
  const uint64_t form = below(10);
  for (uint64_t r = form == 0 ? 1 : form < 6 ? 2 : form < 9 ? 3 : 4; r > 0; r--) dims.push_back(r > 2 ? pick(Extents{1, 2, 3}) : any_extent());
  input(dims);
  using Step = void (Generator::*)();
  std::vector<Step> steps;
  for (const auto& [name, f] : table()) steps.push_back(f);
  const std::vector<Step> frequent = {&Generator::matmul, &Generator::matmul, &Generator::einsum, &Generator::gated, &Generator::adapters, &Generator::small_attention, &Generator::mul, &Generator::add,
                                      &Generator::softmax, &Generator::rms_norm, &Generator::sum};
  const bool flash = dtype_ != "float32" && one_in(14);   // alone: what else is in a program keeps the search from one kernel for it
  if (flash) attention(true);
  else if (one_in(10)) few_rows();
  const size_t wanted = flash && !one_in(4) ? spec_.nodes.size() : 2 + below(7);
  for (int tries = 0; tries < 40 && spec_.nodes.size() < wanted; tries++) (this->*(one_in(3) ? pick(frequent) : pick(steps)))();
  std::erase_if(spec_.inputs, [&](const RandomSpec::Input& x) {   // those of attempts that came to nothing; `extent` names the first by its place
    return x.name != "x0" && std::none_of(spec_.nodes.begin(), spec_.nodes.end(), [&](const auto& n) { return std::find(n.operands.begin(), n.operands.end(), x.name) != n.operands.end(); });
  });
  for (const RandomSpec::Node& n : spec_.nodes) {   // what nobody reads is a result, and now and then what somebody does
    const bool used = std::any_of(spec_.nodes.begin(), spec_.nodes.end(), [&](const auto& m) { return std::find(m.operands.begin(), m.operands.end(), n.output) != m.operands.end(); });
    if (used && !one_in(8)) continue;
    const Value& v = *find(n.output);
    RandomSpec::Output o{n.output, v.is_bool ? "bool" : one_in(4) ? "float32" : dtype_, dims_of(v), {}};
    if (v.rank() > 1 && one_in(5)) {   // transposed, or lines with padding
      int64_t at = 1;
      o.strides.resize(static_cast<size_t>(v.rank()));
      const bool reversed = one_in(2);
      for (int i = 0; i < v.rank(); i++) { const int d = reversed ? i : v.rank() - 1 - i; o.strides[static_cast<size_t>(d)] = at; at = at * v.dims[d] + (i == 0 && !reversed ? pick(Extents{1, 4, 8}) : 0); }
    }
    spec_.outputs.push_back(o);
  }
  return std::move(spec_);
}

}  // namespace

RandomSpec random_spec(uint64_t seed) {
  for (uint64_t again = 0;; again++) {
    RandomSpec s = Generator(hash_combine(seed, again)).take();
    s.name = fmt::format("r{}", seed);
    if (!s.nodes.empty() && parse_spec({s.name, s.text()})) return s;
    if (again == 20) return s;
  }
}

std::vector<std::string> drawn_operators() {
  std::vector<std::string> out;
  for (const auto& [name, f] : Generator::table()) out.push_back(name);
  return out;
}

std::map<std::string, std::string> excluded_operators() { return {}; }

}  // namespace mirage::test
