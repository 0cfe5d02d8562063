// Random well-typed specs: one function per operator of lib/spec/operators/operators.def chooses operands and attributes; the spec reader
// itself says whether they fit and what comes out, so there is no second opinion on shapes here.
#include "random/generator.h"

#include <algorithm>
#include <cstdlib>
#include <cmath>
#include <span>

#include "mirage/spec/spec.h"

namespace mirage::test {

namespace {

constexpr int64_t kMaxElements = 24'000, kMaxWork = 3'000'000;   // per value; multiplications of one contraction

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

}  // namespace

std::string RandomSpec::text() const {
  std::string a, in, out, body;
  for (const auto& [axis, extent] : axes)
    a += fmt::format("{}\"{}\": {{\"type\": \"const\", \"value\": {}}}", a.empty() ? "" : ", ", axis, extent);
  for (const Input& x : inputs)
    in += fmt::format("{}\"{}\": {{\"shape\": [{}], \"dtype\": \"{}\"{}}}", in.empty() ? "" : ",\n            ", x.name,
                      shape_text(axes, x.dims), x.dtype, x.more);
  for (const Output& o : outputs) {
    const std::string strides =
        o.strides.empty() ? "" : fmt::format(", \"shape\": [{}], \"strides\": [{}]", shape_text(axes, o.dims), fmt::join(o.strides, ", "));
    out += fmt::format("{}\"{}\": {{\"dtype\": \"{}\"{}}}", out.empty() ? "" : ", ", o.name, o.dtype, strides);
  }
  for (const Node& n : nodes) {
    std::vector<std::string> operands;
    for (const std::string& o : n.operands) operands.push_back(is_name(o) ? "\"" + o + "\"" : o);
    body += fmt::format("{}{{\"op\": \"{}\", \"inputs\": [{}], \"output\": \"{}\"{}}}", body.empty() ? "" : ",\n           ", n.op,
                        fmt::join(operands, ", "), n.output, n.attrs.empty() ? "" : ", \"attrs\": {" + n.attrs + "}");
  }
  return fmt::format(
      "{{\"version\": \"1.0\", \"name\": \"{}\",{}\n \"axes\": {{{}}},\n \"inputs\": {{{}}},\n \"outputs\": {{{}}},\n \"nodes\": [{}]}}\n",
      name, rtol > 0 ? fmt::format(" \"numerics\": {{\"rtol\": {}}},", rtol) : "", a, in, out, body);
}

Generator::Generator(uint64_t seed) : rng_(hash_combine(seed, 0x52616e64)) {
  spec_.name = fmt::format("r{}", seed);
  draws_models_ = seed % 4 == 3;
  next_model_ = seed / 4;
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
  else if (rank > 1 && one_in(3)) {
    const int a = axis(), b = ((a + rank) % rank + 1) % rank;
    out = fmt::format("\"axis\": [{}, {}]", a, b);
  }
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
  const bool is_index = kind.starts_with("index ");   // of one of so many
  const int64_t places = is_index ? std::atoll(kind.c_str() + 6) : 0;
  const std::string dtype = is_index ? "int64" : v.is_bool ? "bool" : one_in(12) && dtype_ != "float32" ? "float32" : dtype_;
  const double low = kind == "positive" ? 0.25 : kind == "small" ? -0.5 : -2, high = kind == "positive" ? 2 : kind == "small" ? 0.5 : 2;
  std::string more = is_index                                ? fmt::format(", \"range\": [0, {}]", places - 1)
                     : kind == "positive" || kind == "small" ? fmt::format(", \"range\": [{}, {}]", low, high)
                                                             : "";
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
    v.sample.data[i] = v.rough.data[i] = is_index    ? static_cast<double>(below(static_cast<uint64_t>(places)))
                                         : v.is_bool ? static_cast<double>(below(2))
                                                     : round_to(low + (high - low) * rng_.uniform(), type);
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
    else if (dtype_ == "float16" && std::isfinite(r) && r != 0) {
      int e = 0;
      const double m = std::frexp(r, &e);
      r = std::ldexp(std::nearbyint(std::ldexp(m, 11)), e - 11);
    } else r = round_to(r, DType::kF32);
    if (x == -INFINITY && r == -INFINITY) { out.masked = true; out.positive = false; continue; }
    if (!std::isfinite(x) || !std::isfinite(r) || std::fabs(x) > 300) return std::nullopt;
    out.positive = out.positive && x > 0.2;
    off += (x - r) * (x - r), squares += x * x;
  }
  const double scale = std::sqrt(squares / static_cast<double>(out.sample.data.size()));
  for (size_t i = 0; i < out.sample.data.size(); i++)
    if (std::isfinite(out.sample.data[i]))
      worst = std::max(worst, std::fabs(out.sample.data[i] - out.rough.data[i]) / (std::fabs(out.sample.data[i]) + scale + 1e-30));
  if (std::sqrt(off) > unit_ / 4 * std::sqrt(squares) || worst > unit_) return std::nullopt;
  if (scale < 1e-3 && scale > 0) return std::nullopt;   // differences that cancel; float16 has no room there either
  static const std::vector<std::string> keeps = {"neg",    "abs",   "relu", "maximum", "minimum", "clamp", "transpose", "reshape", "repeat",
                                                 "concat", "slice", "max",  "where",   "iota",    "equal", "less",      "greater"};
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
  // x is broadcast
  if (one_in(10) && static_cast<int>(dims.size()) == x.rank() && x.rank() < 5) dims.insert(dims.begin(), pick(Extents{1, 2, 3}));
  return input(dims);
}

Value Generator::positive(const Value& x) {
  if (x.positive) return x;
  if (one_in(3)) return input(dims_of(x), "positive");
  if (auto s = node(pick({"square", "abs", "sigmoid"}), {x.name}))
    if (auto p = node("add", {s->name, pick({"1", "0.5", "2"})})) return *p;
  return input(dims_of(x), "positive");
}

const std::map<std::string, void (Generator::*)()>& Generator::table() {
#define OP(name) {#name, &Generator::name}
  static const std::map<std::string, void (Generator::*)()> all = {
      OP(matmul),  OP(einsum), OP(add),     OP(sub),      OP(mul),        OP(div),         OP(pow),        OP(neg),     OP(exp),
      OP(log),     OP(sqrt),   OP(rsqrt),   OP(square),   OP(abs),        OP(sigmoid),     OP(silu),       OP(gelu),    OP(relu),
      OP(tanh),    OP(clamp),  OP(maximum), OP(minimum),  OP(equal),      OP(less),        OP(greater),    OP(where),   OP(sum),
      OP(mean),    OP(max),    OP(softmax), OP(rms_norm), OP(layer_norm), OP(group_norm),  OP(batch_norm), OP(l2_norm), OP(transpose),
      OP(reshape), OP(repeat), OP(concat),  OP(slice),    OP(cast),       OP(causal_mask), OP(iota),       OP(extent)};
#undef OP
  return all;
}

RandomSpec Generator::take() {
  Extents dims;
  const uint64_t form = below(10);
  for (uint64_t r = form == 0 ? 1 : form < 6 ? 2 : form < 9 ? 3 : 4; r > 0; r--)
    dims.push_back(r > 2 ? pick(Extents{1, 2, 3}) : any_extent());
  input(dims);
  using Step = void (Generator::*)();
  std::vector<Step> steps;
  for (const auto& [name, f] : table()) steps.push_back(f);
  const std::vector<Step> frequent = {&Generator::matmul,   &Generator::matmul,          &Generator::einsum, &Generator::gated,
                                      &Generator::adapters, &Generator::small_attention, &Generator::mul,    &Generator::add,
                                      &Generator::softmax,  &Generator::rms_norm,        &Generator::sum};
  const bool flash = dtype_ != "float32" && one_in(14);   // alone: what else is in a program keeps the search from one kernel for it
  if (flash) attention(true);
  else if (one_in(10)) few_rows();
  const size_t wanted = flash && !one_in(4) ? spec_.nodes.size() : 2 + below(7);
  for (int tries = 0; tries < 8 && draws_models_ && spec_.nodes.empty(); tries++) {   // each operator begins some program
    next_model_ -= tries > 0;
    model_step();
  }
  for (int tries = 0; tries < 40 && spec_.nodes.size() < wanted; tries++) {
    if (draws_models_ && one_in(2)) { model_step(); continue; }
    (this->*(one_in(3) ? pick(frequent) : pick(steps)))();
  }
  // those of attempts that came to nothing; `extent` names the first by its place
  std::erase_if(spec_.inputs, [&](const RandomSpec::Input& x) {
    return x.name != "x0" && std::none_of(spec_.nodes.begin(), spec_.nodes.end(), [&](const auto& n) {
             return std::find(n.operands.begin(), n.operands.end(), x.name) != n.operands.end();
           });
  });
  for (const RandomSpec::Node& n : spec_.nodes) {   // what nobody reads is a result, and now and then what somebody does
    const bool used = std::any_of(spec_.nodes.begin(), spec_.nodes.end(), [&](const auto& m) {
      return std::find(m.operands.begin(), m.operands.end(), n.output) != m.operands.end();
    });
    if (used && !one_in(8)) continue;
    const Value& v = *find(n.output);
    RandomSpec::Output o{n.output, v.is_bool ? "bool" : one_in(4) ? "float32" : dtype_, dims_of(v), {}};
    if (v.rank() > 1 && one_in(5)) {   // transposed, or lines with padding
      int64_t at = 1;
      o.strides.resize(static_cast<size_t>(v.rank()));
      const bool reversed = one_in(2);
      for (int i = 0; i < v.rank(); i++) {
        const int d = reversed ? i : v.rank() - 1 - i;
        o.strides[static_cast<size_t>(d)] = at;
        at = at * v.dims[d] + (i == 0 && !reversed ? pick(Extents{1, 4, 8}) : 0);
      }
    }
    spec_.outputs.push_back(o);
  }
  return std::move(spec_);
}

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
  for (const auto& [name, f] : Generator::models()) out.push_back(name);
  return out;
}

std::map<std::string, std::string> excluded_operators() {
  return {{"split", "it has several results, a node here has one; it is slices, which are drawn"}};
}

}  // namespace mirage::test
