// The tables of the operator matrix. Operands are chosen so that every value is ordinary: divisors, bases, roots and logarithms get inputs
// that the check program draws positive (it sees what they are used for), sums that come out as one number get positive terms, and
// comparisons read inputs as they are, so that a bool has one right value.
#include "gpu/operator_spec.h"

#include <fmt/format.h>

namespace mirage::test {

namespace {

using Names = std::vector<std::string>;

/// Writes a spec, tensor by tensor and node by node.
class Writer {
 public:
  Writer(std::string name, std::string dtype) : name_(std::move(name)), dtype_(std::move(dtype)) {}

  std::string input(const std::string& name, const std::string& shape, const std::string& dtype = "", const std::string& more = "") {
    inputs_ += fmt::format("{}    \"{}\": {{\"shape\": [{}], \"dtype\": \"{}\"{}}}", inputs_.empty() ? "" : ",\n", name, shape,
                           dtype.empty() ? dtype_ : dtype, more);
    return name;
  }

  /// An intermediate; operands that begin with a letter are names, others constants.
  std::string node(const std::string& op, const Names& operands, const std::string& attrs = "") {
    return add(op, operands, attrs, fmt::format("v{}", count_++));
  }

  /// A result of its own, named after its operator.
  void result(const std::string& op, const Names& operands, const std::string& attrs = "", const std::string& dtype = "") {
    static const std::set<std::string> kComparisons = {"equal",         "not_equal", "less", "less_equal", "greater",
                                                       "greater_equal", "and",       "or",   "not"};
    const bool is_comparison = kComparisons.count(op) > 0;
    const std::string name = add(op, operands, attrs, fmt::format("{}_{}", op, count_++));
    outputs_ += fmt::format("{}    \"{}\": {{\"dtype\": \"{}\"}}", outputs_.empty() ? "" : ",\n", name,
                            !dtype.empty()  ? dtype
                            : is_comparison ? "bool"
                                            : dtype_);
    spec_.outputs++;
  }

  /// The second of a split's two parts is a result.
  void split(const std::string& x, const std::string& attrs) {
    const std::string first = fmt::format("v{}", count_++), second = fmt::format("split_{}", count_++);
    nodes_ += fmt::format(",\n    {{\"op\": \"split\", \"inputs\": [\"{}\"], \"outputs\": [\"{}\", \"{}\"], \"attrs\": {{{}}}}}", x, first,
                          second, attrs);
    outputs_ += fmt::format(",\n    \"{}\": {{\"dtype\": \"{}\"}}", second, dtype_);
    spec_.operators.insert("split");
    spec_.outputs++;
  }

  OperatorSpec finish() {
    spec_.name = name_;
    spec_.text = fmt::format(
        "{{\n  \"version\": \"1.0\",\n  \"name\": \"{}\",\n  \"inputs\": {{\n{}\n  }},\n  \"outputs\": {{\n{}\n  }},\n  \"nodes\": [\n{}\n "
        " ]\n}}\n",
        name_, inputs_, outputs_, nodes_);
    return std::move(spec_);
  }

 private:
  std::string add(const std::string& op, const Names& operands, const std::string& attrs, const std::string& name) {
    std::string list;
    for (const std::string& o : operands)
      list += (list.empty() ? "" : ", ") + (std::isalpha(static_cast<unsigned char>(o[0])) ? "\"" + o + "\"" : o);
    nodes_ += fmt::format("{}    {{\"op\": \"{}\", \"inputs\": [{}], \"output\": \"{}\"{}}}", nodes_.empty() ? "" : ",\n", op, list, name,
                          attrs.empty() ? "" : fmt::format(", \"attrs\": {{{}}}", attrs));
    spec_.operators.insert(op);
    return name;
  }

  std::string name_, dtype_, inputs_, outputs_, nodes_;
  int count_ = 0;
  OperatorSpec spec_;
};

/// Extents of one third of the matrix. The sum of batch * rows * columns terms below 1 must fit float16.
struct Extents { const char* name; int batch, rows, columns, inner, groups, channels; };
constexpr Extents kExtents[] = {{"aligned", 2, 16, 64, 128, 4, 8}, {"odd", 3, 7, 37, 41, 3, 9}, {"large", 2, 24, 1024, 256, 4, 8}};

/// Names of the inputs that all tables share.
struct Tensors {
  std::string x, y, p, row, column, gain, bias, cube, positive_cube, square;
};

Tensors shared_inputs(Writer& w, const Extents& e) {
  const std::string plane = fmt::format("{}, {}", e.rows, e.columns), cube = fmt::format("{}, {}, {}", e.batch, e.rows, e.columns);
  return {w.input("x", plane),
          w.input("y", plane),
          w.input("p", plane, "", ", \"range\": [0.25, 2.0]"),
          w.input("row", fmt::format("{}", e.columns)),
          w.input("column", fmt::format("{}, 1", e.rows)),
          w.input("gain", fmt::format("{}", e.columns)),
          w.input("bias", fmt::format("{}", e.columns)),
          w.input("cube", cube),
          w.input("positive_cube", cube, "", ", \"range\": [0.25, 1.0]"),
          w.input("wide", fmt::format("{}, {}, {}", e.batch, e.rows, e.rows + 3))};
}

void elementwise(Writer& w, const Tensors& t) {
  for (const char* op : {"neg", "exp", "square", "abs", "sigmoid", "silu", "gelu", "relu", "tanh"}) w.result(op, {t.x});
  for (const char* op : {"log", "sqrt", "rsqrt"}) w.result(op, {t.p});
  w.result("log", {w.node("add", {w.node("square", {t.x}), "1.5"})});
  w.result("gelu", {t.cube}, "\"approximate\": \"tanh\"");
  w.result("clamp", {t.x}, "\"min\": -0.25, \"max\": 0.5");
  w.result("clamp", {t.x}, "\"max\": 0.125");
  w.result("clamp", {t.x, t.row, "1.0"});
  for (const char* op : {"add", "sub", "mul", "maximum", "minimum"}) {
    w.result(op, {t.x, t.y});
    w.result(op, {t.column, t.row});
    w.result(op, {"0.375", t.x});
  }
  w.result("add", {t.x, t.x});
  w.result("mul", {t.cube, t.y});
  w.result("div", {t.x, t.p});
  w.result("div", {t.x, w.node("add", {w.node("square", {t.row}), "1"})});
  w.result("div", {"1.0", t.p});
  w.result("pow", {t.p, t.y});
  for (const char* exponent : {"2", "0.5", "-0.5", "-1", "1.7", "-3"}) w.result("pow", {t.p}, fmt::format("\"exponent\": {}", exponent));
  w.result("equal", {w.node("relu", {t.x}), "0"});
  for (const char* op : {"less", "greater"}) {
    w.result(op, {t.x, t.y});
    w.result(op, {t.column, t.row});
  }
  w.result("where", {w.node("less", {t.x, "0.1"}), t.y, t.row});
  w.result("mul", {w.node("greater", {t.row, "0"}), t.x});   // a bool counts as 0 or 1
}

void reductions(Writer& w, const Tensors& t) {
  for (const char* op : {"sum", "mean", "max"}) {
    for (const char* attrs :
         {"\"axis\": 0", "\"axis\": 1, \"keepdim\": true", "\"axis\": -1", "\"axis\": [0, 2]", "\"axis\": [-1, 1], \"keepdim\": true"})
      w.result(op, {t.cube}, attrs);
    w.result(op, {t.positive_cube});
    w.result(op, {t.positive_cube}, "\"keepdim\": true");
  }
  for (const char* axis : {"-1", "0", "[1, 2]"}) w.result("softmax", {t.cube}, fmt::format("\"axis\": {}", axis));
  for (const char* offset : {"0", "2", "-1"}) w.result("causal_mask", {t.square}, fmt::format("\"offset\": {}", offset));
  w.result("softmax", {w.node("causal_mask", {w.node("mul", {t.square, "0.5"})})});
}

void norms(Writer& w, const Tensors& t, const Extents& e) {
  for (const char* op : {"rms_norm", "layer_norm"}) {
    w.result(op, {t.x});
    w.result(op, {t.x, t.gain});
    w.result(op, {t.cube, t.gain, t.bias}, "\"eps\": 0.01");
    w.result(op, {t.x}, "\"axis\": 0");
    w.result(op, {t.cube}, "\"axis\": [1, 2]");
  }
  w.result("rms_norm", {t.p}, "\"eps\": 0");
  w.result("l2_norm", {t.x});
  w.result("l2_norm", {t.cube}, "\"axis\": 1");
  const std::string channels = fmt::format("{}", e.channels);
  const std::string image = w.input("image", fmt::format("{}, {}, {}, {}", e.batch, e.channels, e.rows, 5)),
                    gain = w.input("channel_gain", channels), bias = w.input("channel_bias", channels);
  const std::string mean = w.input("mean", channels), variance = w.input("variance", channels, "", ", \"range\": [0.25, 2.0]"),
                    groups = fmt::format("\"groups\": {}", e.groups);
  w.result("group_norm", {image}, groups);
  w.result("group_norm", {image, gain}, groups + ", \"eps\": 0.001");
  w.result("group_norm", {image, gain, bias}, "\"groups\": 1");
  w.result("batch_norm", {image, mean, variance});
  w.result("batch_norm", {image, mean, variance, gain});
  w.result("batch_norm", {image, mean, variance, gain, bias}, "\"eps\": 0.001");
}

void movement(Writer& w, const Tensors& t, const Extents& e, const std::string& dtype) {
  w.result("transpose", {t.cube});
  w.result("transpose", {t.cube}, "\"perm\": [1, 2, 0]");
  w.result("transpose", {t.cube}, "\"perm\": [0, 2, 1]");
  w.result("reshape", {t.cube}, "\"shape\": [-1]");
  w.result("reshape", {w.node("exp", {t.cube})}, fmt::format("\"shape\": [{}, {}]", e.columns, e.batch * e.rows));
  w.result("repeat", {t.x}, "\"axis\": 0, \"count\": 3");
  w.result("repeat", {t.x}, "\"count\": 2");
  w.result("concat", {t.x, t.y}, "\"axis\": 0");
  w.result("concat", {t.x, t.column, t.x});
  w.result("concat", {t.cube, w.node("neg", {t.positive_cube})}, "\"axis\": 1");
  w.result("slice", {t.x}, "\"axis\": 1, \"start\": 3, \"stop\": -2, \"step\": 3");
  w.result("slice", {t.cube}, "\"axis\": 1, \"start\": -5");
  w.result("slice", {t.x}, "\"axis\": 0, \"stop\": 1");
  w.result("cast", {w.node("relu", {t.x})}, "\"dtype\": \"bool\"", "bool");
  w.result("cast", {w.node("mul", {t.x, "0.7"})}, fmt::format("\"dtype\": \"{}\"", dtype));
  w.result("iota", {}, fmt::format("\"axis\": 1, \"shape\": [{}, {}]", e.rows, e.columns));
  w.result("add", {t.x, w.node("iota", {}, fmt::format("\"shape\": [{}, 1]", e.rows))});
  w.result("div", {t.x, w.node("extent", {}, "\"of\": [[0, 1]]")});
}

/// The same product written in all ways, batched, broadcast, and at extents over which a loop runs several times.
void products(Writer& w, const Tensors& t, const Extents& e) {
  const int b = e.batch, m = e.rows, k = e.columns, n = e.inner;
  const auto shape = [](std::initializer_list<int> dims) { return fmt::format("{}", fmt::join(dims, ", ")); };
  const std::string right = w.input("right", shape({k, n})), left_t = w.input("left_t", shape({k, m})),
                    right_t = w.input("right_t", shape({n, k}));
  const std::string batch = w.input("batch_right", shape({b, k, n})), batch_t = w.input("batch_right_t", shape({b, n, k})),
                    outer = w.input("outer", shape({2, 1, m, k}));
  const std::string positive = w.input("positive_row", shape({k}), "", ", \"range\": [0.25, 1.0]"),
                    large = w.input("large", shape({m + 1, 9 * k + 8})), tall = w.input("tall", shape({9 * k + 8, n}));
  w.result("matmul", {t.x, right});
  w.result("matmul", {left_t, right}, "\"transpose_a\": true");
  w.result("matmul", {t.y, right_t}, "\"transpose_b\": true");
  w.result("matmul", {left_t, right_t}, "\"transpose_a\": true, \"transpose_b\": true");
  w.result("matmul", {t.cube, batch});
  w.result("matmul", {t.cube, batch_t}, "\"transpose_b\": true");
  w.result("matmul", {t.cube, right});
  w.result("matmul", {outer, batch});
  w.result("matmul", {t.row, right});
  w.result("matmul", {t.cube, t.row});
  w.result("matmul", {positive, positive});
  w.result("matmul", {large, tall});
  w.result("matmul", {w.node("silu", {t.x}), right});
  w.result("matmul", {w.node("softmax", {t.x}), w.node("tanh", {right})});
  for (const char* equation : {"ik,kj->ij", "ik,kj->ji", "ik,kj->i", "ik,lj->ij"})
    w.result("einsum", {t.x, right}, fmt::format("\"equation\": \"{}\"", equation));
  w.result("einsum", {t.cube, batch}, "\"equation\": \"bik,bkj->bij\"");
  w.result("einsum", {t.cube, batch}, "\"equation\": \"bik,bkj->ij\"");
  w.result("einsum", {t.x, t.row}, "\"equation\": \"ik,k->i\"");
  w.result("einsum", {t.x, t.y}, "\"equation\": \"ik,ik->k\"");
  w.result("einsum", {t.column, t.cube}, "\"equation\": \"iz,bik->bki\"");
  w.result("einsum", {t.cube}, "\"equation\": \"bik->kb\"");
  w.result("einsum", {t.cube}, "\"equation\": \"bik->kib\"");
}

/// Operators that are made of others, and those of indices.
void functions(Writer& w, const Tensors& t) {
  for (const char* op : {"expm1", "erf", "sin", "cos", "sign", "leaky_relu", "elu", "softplus", "hardtanh", "hardswish", "mish"})
    w.result(op, {t.x});
  for (const char* op : {"log1p", "reciprocal"}) w.result(op, {t.p});
  for (const char* op : {"floor", "ceil", "round"}) w.result(op, {w.node("mul", {t.x, "4"})});
  w.result("elu", {t.cube}, "\"alpha\": 0.5");
  w.result("leaky_relu", {t.x}, "\"slope\": 1.5");
  for (const char* op : {"swiglu", "geglu"}) {
    w.result(op, {t.x, t.y});
    w.result(op, {w.node("concat", {t.x, t.y})}, "\"gate\": \"second\"");
  }
  for (const char* op : {"less_equal", "greater_equal", "not_equal"}) w.result(op, {t.x, t.y});
  for (const char* op : {"and", "or"}) w.result(op, {w.node("less", {t.x, t.y}), w.node("greater", {t.x, t.row})});
  w.result("not", {w.node("less", {t.x, t.y})});
  for (const char* op : {"min", "var", "std", "logsumexp"}) {
    w.result(op, {t.cube}, "\"axis\": -1");
    w.result(op, {t.cube}, "\"axis\": [0, 1], \"keepdim\": true");
  }
  w.result("prod", {t.positive_cube}, "\"axis\": 0");
  w.result("prod", {t.p}, "\"axis\": 0");
  w.result("log_softmax", {t.cube});
  for (const char* axis : {"-1", "1"}) w.result("cumsum", {t.cube}, fmt::format("\"axis\": {}", axis));
  w.result("cumsum", {t.x}, "\"reverse\": true, \"exclusive\": true");
  w.result("argmax", {t.x}, "\"axis\": -1", "int64");
  w.result("argmin", {t.cube}, "\"axis\": 1, \"keepdim\": true", "int32");
}

void shapes_and_indices(Writer& w, const Tensors& t, const Extents& e) {
  w.result("unsqueeze", {t.x}, "\"axis\": [0, 2]");
  w.result("squeeze", {t.column});
  w.result("expand", {w.node("exp", {t.column})}, fmt::format("\"shape\": [2, -1, {}]", e.columns));
  w.result("stack", {t.x, w.node("neg", {t.y})}, "\"axis\": 1");
  w.split(t.cube, fmt::format("\"axis\": 2, \"sizes\": [5, {}]", e.columns - 5));
  w.result("pad", {t.x}, "\"before\": [1, 3], \"after\": [0, 2], \"value\": 1.5");
  for (const char* mode : {"reflect", "replicate", "circular"})
    w.result("pad", {t.x}, fmt::format("\"before\": [2, 3], \"after\": [1, 4], \"mode\": \"{}\"", mode));
  w.result("flip", {t.cube});
  w.result("flip", {w.node("silu", {t.x})}, "\"axis\": 1");
  const std::string rows = w.input("rows", "5, 2", "int64", fmt::format(", \"range\": [0, {}]", e.rows - 1)),
                    places = w.input("places", fmt::format("{}, 4", e.rows), "int32", fmt::format(", \"range\": [0, {}]", e.columns));
  w.result("embedding", {rows, t.x});
  w.result("index_select", {t.cube, rows}, "\"axis\": 1");
  w.result("gather", {t.x, places}, "\"axis\": 1");
  w.result("rms_norm", {w.node("embedding", {rows, w.node("add", {t.x, t.y})})});
}

void layers(Writer& w, const Tensors& t, const Extents& e) {
  const int c = e.channels, g = e.groups;
  const std::string weight = w.input("linear_weight", fmt::format("9, {}", e.columns)), bias = w.input("linear_bias", "9");
  w.result("linear", {t.cube, weight, bias});
  const std::string picture = w.input("picture", fmt::format("{}, {}, {}, 9", e.batch, c, e.rows)),
                    filter_bias = w.input("filter_bias", "6");
  w.result("conv", {picture, w.input("filters", fmt::format("6, {}, 3, 3", c)), filter_bias}, "\"padding\": 1");
  w.result("conv", {picture, w.input("group_filters", fmt::format("{}, {}, 3, 2", 2 * g, c / g))},
           fmt::format("\"groups\": {}, \"stride\": [2, 1], \"dilation\": [1, 2]", g));
  w.result("conv", {picture, w.input("depth_filters", fmt::format("{}, 1, 3, 3", c))},
           fmt::format("\"groups\": {}, \"padding\": [2, 0]", c));
  w.result("conv", {picture, w.input("turned_filters", fmt::format("{}, 4, 3, 3", c))},
           "\"transposed\": true, \"stride\": 2, \"padding\": 1, \"output_padding\": 1");
  w.result("conv", {t.cube, w.input("line_filters", fmt::format("5, {}, 3", e.rows))}, "\"stride\": 2");
  w.result("max_pool", {picture}, "\"kernel\": 3, \"stride\": 2, \"padding\": 1");
  w.result("max_pool", {t.cube}, "\"kernel\": 2");
  w.result("avg_pool", {picture}, "\"kernel\": 3, \"stride\": 2, \"padding\": 1, \"count_include_pad\": false");
  w.result("avg_pool", {picture}, "\"kernel\": [2, 3], \"stride\": 1, \"ceil_mode\": true");
  const int keys = e.rows + 3;
  const std::string q = w.input("queries", fmt::format("{}, 4, {}, 16", e.batch, e.rows)),
                    k = w.input("keys", fmt::format("{}, 2, {}, 16", e.batch, keys)),
                    v = w.input("values", fmt::format("{}, 2, {}, 16", e.batch, keys));
  w.result("attention", {q, k, v});
  w.result("attention", {q, k, v, w.input("sinks", "4")},
           "\"causal\": true, \"offset\": 3, \"window\": 4, \"softcap\": 20, \"sink\": true");
  w.result("attention", {q, k, v, w.input("seen", fmt::format("{}, 1, 1, {}", e.batch, keys))}, "\"scale\": 0.2");
  const std::string angles = fmt::format("{}, 8", e.rows);
  const std::string cosine = w.input("cosine", angles), sine = w.input("sine", angles);
  w.result("rope", {q, cosine, sine});
  w.result("rope", {q, cosine, sine}, "\"interleaved\": true");
}

OperatorSpec operator_spec(const std::string& dtype, const Extents& e) {
  Writer w(fmt::format("matrix_{}_{}", dtype, e.name), dtype);
  const Tensors t = shared_inputs(w, e);
  elementwise(w, t);
  reductions(w, t);
  norms(w, t, e);
  movement(w, t, e, dtype);
  products(w, t, e);
  functions(w, t);
  shapes_and_indices(w, t, e);
  layers(w, t, e);
  return w.finish();
}

OperatorSpec mixed_spec() {
  Writer w("matrix_mixed", "float32");
  const Names dtypes = {"float16", "bfloat16", "float32"};
  const std::string flag = w.input("flag", "7, 37", "bool"), gate = w.input("gate", "37", "bool");
  Names x, m, p;
  for (const std::string& d : dtypes) {
    x.push_back(w.input("x_" + d, "7, 37", d));
    m.push_back(w.input("m_" + d, "37, 24", d));
    p.push_back(w.input("p_" + d, "37", d, ", \"range\": [0.25, 2.0]"));
  }
  for (size_t i = 0; i < 3; i++) {
    for (size_t j = 0; j < 3; j++) {
      const std::string &to = dtypes[(i + 2 * j + 1) % 3], &other = dtypes[(i + j) % 3];
      w.result("matmul", {x[i], m[j]}, "", to);
      w.result("add", {x[i], p[j]}, "", other);
      w.result("div", {x[i], p[j]}, "", to);
      w.result("where", {flag, x[i], p[j]}, "", other);
      w.result("less", {x[i], p[j]});
      w.result("concat", {x[i], x[j]}, "", to);
      w.result("cast", {x[i]}, fmt::format("\"dtype\": \"{}\"", dtypes[j]), dtypes[j]);
      w.result("exp", {w.node("cast", {w.node("mul", {x[i], "0.7"})}, fmt::format("\"dtype\": \"{}\"", dtypes[j]))}, "", to);
      w.result("layer_norm", {x[i], p[j]}, "", other);
    }
    w.result("softmax", {x[i]}, "", dtypes[(i + 1) % 3]);
    w.result("sum", {x[i]}, "\"axis\": 0", dtypes[(i + 1) % 3]);
    w.result("mul", {flag, x[i]}, "", dtypes[(i + 2) % 3]);
    w.result("cast", {gate}, fmt::format("\"dtype\": \"{}\"", dtypes[i]), dtypes[i]);
  }
  w.result("cast", {w.node("where", {gate, flag, "0"})}, "\"dtype\": \"bool\"", "bool");
  w.result("equal", {flag, gate});
  w.result("sum", {flag}, "\"axis\": -1", "float16");
  w.result("transpose", {flag}, "", "bool");
  w.result("concat", {flag, flag}, "\"axis\": 0", "bool");
  w.result("slice", {flag}, "\"axis\": 1, \"start\": 1, \"step\": 2", "bool");
  return w.finish();
}

}  // namespace

std::vector<OperatorSpec> operator_matrix() {
  std::vector<OperatorSpec> all;
  for (const char* dtype : {"float16", "bfloat16", "float32"})
    for (const Extents& e : kExtents) all.push_back(operator_spec(dtype, e));
  all.push_back(mixed_spec());
  return all;
}

}  // namespace mirage::test
