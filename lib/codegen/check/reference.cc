// The program's reference graph as naive fp64 CUDA text, one launch per stored value. NAME_check.cu runs it: slow, but each form is a few
// obvious lines, and the elementwise functions are the formulas of maps.def applied to an algebra of texts.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include "codegen/module_parts.h"

namespace mirage {
namespace {

/// CUDA text of double expressions; the helpers (f_max, round_f16, ...) stand in check_harness.cc.
struct TextAlgebra {
  using Value = std::string;
  Value constant(double c) {
    if (std::isnan(c)) return "f_nan()";
    if (std::isinf(c)) return c > 0 ? "f_inf()" : "(-f_inf())";
    char b[40];
    std::snprintf(b, sizeof b, "%.17g", c);
    std::string s = b;
    if (s.find_first_of(".e") == std::string::npos) s += ".0";
    return c < 0 ? "(" + s + ")" : s;
  }
  static Value call(const char* f, const Value& x) { return std::string(f) + "(" + x + ")"; }
  static Value call(const char* f, const Value& x, const Value& y) { return std::string(f) + "(" + x + ", " + y + ")"; }
  static Value infix(const char* op, const Value& x, const Value& y) { return "(" + x + " " + op + " " + y + ")"; }
  Value add(const Value& x, const Value& y) { return infix("+", x, y); }
  Value sub(const Value& x, const Value& y) { return infix("-", x, y); }
  Value mul(const Value& x, const Value& y) { return infix("*", x, y); }
  Value div(const Value& x, const Value& y) { return infix("/", x, y); }
  Value neg(const Value& x) { return "(-" + x + ")"; }
  Value exp(const Value& x) { return call("exp", x); }
  Value log(const Value& x) { return call("log", x); }
  Value sqrt(const Value& x) { return call("sqrt", x); }
  Value abs(const Value& x) { return call("fabs", x); }
  Value tanh(const Value& x) { return call("tanh", x); }
  Value erf(const Value& x) { return call("erf", x); }
  Value sin(const Value& x) { return call("sin", x); }
  Value cos(const Value& x) { return call("cos", x); }
  Value floor(const Value& x) { return call("floor", x); }
  Value nearest(const Value& x) { return call("rint", x); }
  Value max(const Value& x, const Value& y) { return call("f_max", x, y); }
  Value min(const Value& x, const Value& y) { return call("f_min", x, y); }
  Value pow(const Value& x, const Value& y) { return call("pow", x, y); }
  Value equal(const Value& x, const Value& y) { return "(" + x + " == " + y + " ? 1.0 : 0.0)"; }
  Value less(const Value& x, const Value& y) { return "(" + x + " < " + y + " ? 1.0 : 0.0)"; }
  Value select(const Value& c, const Value& x, const Value& y) { return "(" + c + " != 0.0 ? " + x + " : " + y + ")"; }
  Value round(const Value& x, DType t) {
    switch (t) {
      case DType::kF16: return call("round_f16", x);
      case DType::kBF16: return call("round_bf16", x);
      case DType::kF32: return call("round_f32", x);
      case DType::kBool: return "(" + x + " != 0.0 ? 1.0 : 0.0)";
      case DType::kReal: case DType::kI32: case DType::kI64: return x;
    }
    return x;
  }
};

using Texts = std::vector<std::string>;

std::string num(int64_t x) { return std::to_string(x) + "LL"; }

/// The index along each dimension of element number `i` (row-major); "0" where the extent is 1.
Texts decompose(const Dims& dims, const std::string& i) {
  Texts out(static_cast<size_t>(dims.rank()));
  int64_t below = 1;
  int first = 0;
  while (first < dims.rank() && dims[first] == 1) first++;
  for (int d = dims.rank() - 1; d >= 0; d--) {
    std::string e = below == 1 ? i : "(" + i + " / " + num(below) + ")";
    if (d > first && dims[d] != 1) e = "(" + e + " % " + num(dims[d]) + ")";
    out[static_cast<size_t>(d)] = dims[d] == 1 ? "0" : e;
    below *= dims[d];
  }
  return out;
}

std::string linear(const Dims& dims, const Dims& strides, const Texts& index) {
  std::string out;
  for (int d = 0; d < dims.rank(); d++) {
    const std::string& e = index[static_cast<size_t>(d)];
    if (dims[d] == 1 || e == "0") continue;
    out += (out.empty() ? "" : " + ") + (strides[d] == 1 ? e : e + " * " + num(strides[d]));
  }
  return out.empty() ? "0LL" : "(" + out + ")";
}

/// The number of the element at `index` of a value of shape `dims`.
std::string at(const Dims& dims, const Texts& index) { return linear(dims, row_major_strides(dims), index); }

/// A value of graph as text. Sums and maxima (MatMul, Reduce) have a term and a length, everything else a formula for element i.
struct Formula { std::string body; int64_t length = 0; bool is_max = false; };

class Reference {
 public:
  Reference(const Program& p, int64_t store_limit) : program_(p), g_(p.graph), store_limit_(store_limit), users_(g_.users()) {}

  ReferenceText emit() {
    decide_stored();
    for (NodeId n = 0; n < g_.num_nodes(); n++) define(n);
    out_.num_values = g_.num_values();
    std::string maps;
    for (MapFn fn : maps_) maps += map_function(fn);
    out_.definitions = maps + "\n" + out_.definitions;
    return std::move(out_);
  }

 private:
  void decide_stored() {
    stored_.assign(static_cast<size_t>(g_.num_values()), true);
    last_use_.assign(static_cast<size_t>(g_.num_values()), -1);
    for (ValueId v = 0; v < g_.num_values(); v++) {
      const Op& op = g_.def(v).op;
      const bool leaf = std::holds_alternative<Input>(op) || std::holds_alternative<Const>(op) || std::holds_alternative<Iota>(op);
      const bool folds = std::holds_alternative<MatMul>(op) || std::holds_alternative<Reduce>(op);
      const auto& users = users_[static_cast<size_t>(v)];
      const bool read_once = users.size() == 1 &&
                             std::count(g_.node(users[0]).operands.begin(), g_.node(users[0]).operands.end(), v) == 1 &&
                             !g_.form<MatMul>(users[0]) && !g_.form<Repeat>(users[0]) && g_.dims(v).elements() >= num_elements_of(users[0]);
      stored_[static_cast<size_t>(v)] = !leaf && (folds || !(read_once && g_.dims(v).elements() > store_limit_));
    }
    // A value that is computed in place reads its operands when its reader runs: the operands live as long.
    for (NodeId n = g_.num_nodes() - 1; n >= 0; n--) {
      const Node& node = g_.node(n);
      NodeId when = n;
      if (node.first_value >= 0 && !stored_[static_cast<size_t>(node.first_value)])
        when = std::max(n, last_use_[static_cast<size_t>(node.first_value)]);
      for (ValueId v : node.operands) last_use_[static_cast<size_t>(v)] = std::max(last_use_[static_cast<size_t>(v)], when);
    }
  }

  int64_t num_elements_of(NodeId n) const {
    const Node& node = g_.node(n);
    if (const Reduce* r = g_.form<Reduce>(n); r != nullptr) return 1;   // reads each element once whatever it keeps
    return g_.dims(node.first_value >= 0 ? node.first_value : node.operands[0]).elements();
  }

  static std::string map_function(MapFn fn) {
    TextAlgebra a;
    const std::string x = "x", y = "y", z = "z";
    const int arity = map_info(fn).arity;
    return "__device__ __forceinline__ double map_" + std::string(map_info(fn).name) + "(double x" + (arity > 1 ? ", double y" : "") +
           (arity > 2 ? ", double z" : "") + ") { return " + apply_map(fn, a, x, y, z) + "; }\n";
  }

  std::string read(ValueId v, const std::string& index) const { return "V" + std::to_string(v) + "::at(" + index + ")"; }

  void define(NodeId n) {
    const Node& node = g_.node(n);
    if (const Output* o = g_.form<Output>(n)) {
      const TensorInfo& info = program_.outputs[static_cast<size_t>(o->result)];
      TextAlgebra a;
      out_.definitions += "struct R" + std::to_string(o->result) + " {\n  static __device__ double compute(long long i) { return " +
                          a.round(read(node.operands[0], "i"), info.type.dtype) + "; }\n};\n";
      out_.run += "  each<R" + std::to_string(o->result) + ">(result(" + std::to_string(o->result) + ", " + num(info.type.dims.elements()) +
                  "), " + num(info.type.dims.elements()) + ");\n";
      release(n);
      return;
    }
    const ValueId v = node.first_value;
    const bool stored = stored_[static_cast<size_t>(v)];
    const std::string id = std::to_string(v);
    const Formula f = formula(n, v);
    std::string& d = out_.definitions;
    d += "struct V" + id + " {   // " + form_name(node.op) + " " + to_string(g_.type(v)) + "\n";
    if (f.length > 0) {
      d += "  static constexpr bool kIsMax = " + std::string(f.is_max ? "true" : "false") + ";\n";
      d += "  static __device__ double term(long long i, long long k) { return " + f.body + "; }\n";
    } else {
      d += "  static __device__ double compute(long long i) { return " + f.body + "; }\n";
    }
    d += "  static __device__ double at(long long i) { return " + (stored ? "g_value[" + id + "][i]" : std::string("compute(i)")) +
         "; }\n};\n";
    const int64_t elements = g_.dims(v).elements();
    if (stored && f.length > 0)
      out_.run += "  fold<V" + id + ">(define(" + id + ", " + num(elements) + "), " + num(elements) + ", " + num(f.length) + ");\n";
    else if (stored) out_.run += "  each<V" + id + ">(define(" + id + ", " + num(elements) + "), " + num(elements) + ");\n";
    release(n);
  }

  void release(NodeId n) {
    for (ValueId v = 0; v < g_.num_values(); v++)
      if (stored_[static_cast<size_t>(v)] && last_use_[static_cast<size_t>(v)] == n) out_.run += "  release(" + std::to_string(v) + ");\n";
  }

  Formula formula(NodeId n, ValueId v) {
    const Node& node = g_.node(n);
    const Dims& dims = g_.dims(v);
    const Texts index = decompose(dims, "i");
    return std::visit([&](const auto& op) -> Formula { return write(op, node, dims, index); }, node.op);
  }

  Formula write(const Input& op, const Node&, const Dims& dims, const Texts& index) {
    const TensorInfo& info = program_.inputs[static_cast<size_t>(op.param)];
    const char* load = info.type.dtype == DType::kF16    ? "load_f16"
                       : info.type.dtype == DType::kBF16 ? "load_bf16"
                       : info.type.dtype == DType::kBool ? "load_bool"
                       : info.type.dtype == DType::kI32  ? "load_i32"
                       : info.type.dtype == DType::kI64  ? "load_i64"
                                                         : "load_f32";
    return {std::string(load) + "(g_input[" + std::to_string(op.param) + "], " + linear(dims, info.strides, index) + ")"};
  }
  Formula write(const Const& op, const Node&, const Dims&, const Texts&) {
    double value = op.value;
    if (!op.extent_of.empty()) {
      value = 1;
      for (const auto& [param, dim] : op.extent_of)
        value *= static_cast<double>(program_.inputs[static_cast<size_t>(param)].type.dims[dim]);
    }
    return {TextAlgebra().constant(value)};
  }
  Formula write(const Iota& op, const Node&, const Dims&, const Texts& index) {
    return {"static_cast<double>(" + index[static_cast<size_t>(op.dim)] + ")"};
  }
  Formula write(const Map& op, const Node& node, const Dims& dims, const Texts& index) {
    maps_.insert(op.fn);
    std::string out = "map_" + std::string(map_info(op.fn).name) + "(";
    for (size_t k = 0; k < node.operands.size(); k++) {
      const Dims& od = g_.dims(node.operands[k]);
      const Texts tail(index.end() - od.rank(), index.end());
      out += (k ? ", " : "") + read(node.operands[k], od == dims ? "i" : at(od, tail));
    }
    return {out + ")"};
  }
  Formula write(const MatMul&, const Node& node, const Dims& dims, const Texts& index) {
    const Dims& a = g_.dims(node.operands[0]);
    const Dims& b = g_.dims(node.operands[1]);
    const size_t r = static_cast<size_t>(dims.rank());
    Texts ia = index, ib = index;
    ia[r - 1] = "k";
    ib[r - 2] = "k";
    return {read(node.operands[0], at(a, ia)) + " * " + read(node.operands[1], at(b, ib)), a.back(), false};
  }
  Formula write(const Reduce& op, const Node& node, const Dims& dims, const Texts& index) {
    const Dims& d = g_.dims(node.operands[0]);
    const int64_t group = op.group == 0 ? d[op.dim] : op.group;
    Texts from = index;
    std::string& e = from[static_cast<size_t>(op.dim)];
    e = dims[op.dim] == 1 ? "k" : "(" + e + " * " + num(group) + " + k)";
    return {read(node.operands[0], at(d, from)), group, op.fn == ReduceFn::kMax};
  }
  Formula write(const Repeat& op, const Node& node, const Dims&, const Texts& index) {
    const Dims& d = g_.dims(node.operands[0]);
    Texts from = index;
    std::string& e = from[static_cast<size_t>(op.dim)];
    e = d[op.dim] == 1 ? "0" : "(" + e + " % " + num(d[op.dim]) + ")";
    return {read(node.operands[0], at(d, from))};
  }
  Formula write(const Reshape&, const Node& node, const Dims&, const Texts&) { return {read(node.operands[0], "i")}; }
  Formula write(const Concat& op, const Node& node, const Dims&, const Texts& index) {
    const std::string& e = index[static_cast<size_t>(op.dim)];
    std::string out;
    int64_t start = 0;
    for (size_t k = 0; k < node.operands.size(); k++) {
      const Dims& d = g_.dims(node.operands[k]);
      Texts from = index;
      from[static_cast<size_t>(op.dim)] = start == 0 ? e : "(" + e + " - " + num(start) + ")";
      start += d[op.dim];
      const std::string value = read(node.operands[k], at(d, from));
      out += k + 1 < node.operands.size() ? "(" + e + " < " + num(start) + ") ? " + value + " : " : value;
    }
    return {out};
  }
  Formula write(const Slice& op, const Node& node, const Dims&, const Texts& index) {
    const Dims& d = g_.dims(node.operands[0]);
    Texts from = index;
    std::string& e = from[static_cast<size_t>(op.dim)];
    e = "(" + num(op.start) + " + " + e + " * " + num(op.step) + ")";
    return {read(node.operands[0], at(d, from))};
  }
  Formula write(const Transpose& op, const Node& node, const Dims& dims, const Texts& index) {
    Texts from(index.size());
    for (int d = 0; d < dims.rank(); d++) from[static_cast<size_t>(op.perm[static_cast<size_t>(d)])] = index[static_cast<size_t>(d)];
    return {read(node.operands[0], at(g_.dims(node.operands[0]), from))};
  }
  Formula write(const Op& op, const Node&, const Dims&, const Texts&) {   // what is left: no template, which clang 14 leaves undefined
    MIRAGE_ASSERT(false) << "a reference graph has a " << form_name(op);
    return {};
  }

  const Program& program_;
  const Graph& g_;
  int64_t store_limit_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<bool> stored_;
  std::vector<NodeId> last_use_;   ///< by value: the node after whose launch it may be released; -1: never read
  std::set<MapFn> maps_;
  ReferenceText out_;
};

}  // namespace

ReferenceText emit_reference(const Program& program, int64_t store_limit) { return Reference(program, store_limit).emit(); }

}  // namespace mirage
