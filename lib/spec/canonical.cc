// The normal form of a program: JSON in primitives whose hash is the spec id. What the reader would share, leave out or reorder is already
// so in the graph.
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include "mirage/spec/spec.h"
#include "spec/storage_types.h"

namespace mirage {
namespace {

/// The shortest text that reads back as the same double; infinities as the strings that the reader takes for constants.
std::string number(double v) {
  if (std::isinf(v)) return v < 0 ? "\"-inf\"" : "\"+inf\"";
  char buf[40];
  auto end = std::to_chars(buf, buf + sizeof buf, v).ptr;
  return std::string(buf, end);
}

template <class List> std::string list(const List& items) {
  std::string s = "[";
  for (auto x : items) s += (s.size() > 1 ? "," : "") + std::to_string(x);
  return s + "]";
}

std::string tensor(const TensorInfo& t) {
  std::string s = fmt::format("\"{}\": {{\"shape\": {}, \"dtype\": \"{}\"", t.name, t.by_value ? "null" : list(t.type.dims),
                              dtype_long_name(t.type.dtype));
  if (!(t.strides == row_major_strides(t.type.dims))) s += ", \"strides\": " + list(t.strides);
  if (t.range) s += ", \"range\": [" + number(t.range->first) + ", " + number(t.range->second) + "]";
  return s + "}";
}

std::string tensors(const std::vector<TensorInfo>& list) {
  std::string s;
  for (const TensorInfo& t : list) s += (s.empty() ? "\n    " : ",\n    ") + tensor(t);
  return s;
}

/// Operator name and attributes of a primitive as the reader knows it.
struct Spelling { std::string op, attrs; };

Spelling spell(const Graph& g, const Node& node) {
  if (const auto* m = std::get_if<Map>(&node.op)) {
    switch (m->fn) {
      case MapFn::kGelu: return {"gelu", ""};
      case MapFn::kGeluTanh: return {"gelu", "\"approximate\": \"tanh\""};
      case MapFn::kCastF16: return {"cast", "\"dtype\": \"float16\""};
      case MapFn::kCastBF16: return {"cast", "\"dtype\": \"bfloat16\""};
      case MapFn::kCastF32: return {"cast", "\"dtype\": \"float32\""};
      default: return {map_info(m->fn).name, ""};
    }
  }
  if (std::holds_alternative<MatMul>(node.op)) return {"matmul", ""};
  if (const auto* r = std::get_if<Reduce>(&node.op))
    return {r->fn == ReduceFn::kSum ? "sum" : "max", fmt::format("\"axis\": {}, \"keepdim\": true", r->dim)};
  if (const auto* r = std::get_if<Repeat>(&node.op)) return {"repeat", fmt::format("\"axis\": {}, \"count\": {}", r->dim, r->count)};
  if (const auto* r = std::get_if<Reshape>(&node.op)) return {"reshape", "\"shape\": " + list(r->dims)};
  if (const auto* c = std::get_if<Concat>(&node.op)) return {"concat", fmt::format("\"axis\": {}", c->dim)};
  if (const auto* s = std::get_if<Slice>(&node.op))
    return {"slice", fmt::format("\"axis\": {}, \"start\": {}, \"stop\": {}, \"step\": {}", s->dim, s->start, s->stop, s->step)};
  if (const auto* i = std::get_if<Iota>(&node.op)) return {"iota", fmt::format("\"axis\": {}, \"shape\": {}", i->dim, list(i->dims))};
  if (const auto* t = std::get_if<Transpose>(&node.op)) {
    std::vector<int> perm(t->perm.begin(), t->perm.begin() + g.dims(node.operands[0]).rank());
    return {"transpose", "\"perm\": " + list(perm)};
  }
  if (const auto* c = std::get_if<Const>(&node.op)) {
    std::string of;
    for (auto [param, dim] : c->extent_of) of += fmt::format("{}[{},{}]", of.empty() ? "" : ",", param, dim);
    return {"extent", "\"of\": [" + of + "]"};
  }
  MIRAGE_ASSERT(false) << "a program has primitives only, not " << form_name(node.op);
  return {};
}

}  // namespace

std::string canonicalize(const Program& p) {
  const Graph& g = p.graph;
  // Nodes that compute outputs carry the outputs' names, inputs theirs; the others count up, leaving out names that are taken.
  std::vector<std::string> names(static_cast<size_t>(g.num_values()));
  std::vector<std::string> taken;
  for (NodeId n : g.inputs())
    names[static_cast<size_t>(g.node(n).first_value)] = p.inputs[static_cast<size_t>(g.form<Input>(n)->param)].name;
  for (const auto* list : {&p.inputs, &p.outputs}) for (const TensorInfo& t : *list) taken.push_back(t.name);
  int counter = 0;
  auto fresh = [&] {
    for (;;) {
      std::string name = "v" + std::to_string(counter++);
      if (std::find(taken.begin(), taken.end(), name) == taken.end()) return name;
    }
  };
  std::string nodes;
  auto write = [&](const std::string& op, const std::string& inputs, const std::string& output, const std::string& attrs, bool exact) {
    nodes +=
        (nodes.empty() ? "\n    " : ",\n    ") + fmt::format("{{\"op\": \"{}\", \"inputs\": [{}], \"output\": \"{}\"", op, inputs, output);
    nodes += fmt::format("{}{}}}", attrs.empty() ? "" : ", \"attrs\": {" + attrs + "}", exact ? ", \"exact\": true" : "");
  };
  const std::vector<DType> types = p.numerics.exact ? std::vector<DType>{} : spec::StorageTypes::types_in_primitives(g);
  const auto is_exact = [&](ValueId v) {   // although a node of its own would be kept in its type
    const Op& op = g.def(v).op;
    const bool shows = std::holds_alternative<Reshape>(op) || std::holds_alternative<Transpose>(op);
    return !types.empty() && is16(types[static_cast<size_t>(v)]) && g.type(v).dtype == DType::kReal && !shows &&
           (p.kept.empty() || p.kept[static_cast<size_t>(v)] == DType::kReal);
  };
  for (NodeId n = 0; n < g.num_nodes(); ++n) {
    const Node& node = g.node(n);
    if (std::holds_alternative<Input>(node.op) || std::holds_alternative<Output>(node.op)) continue;
    std::string& name = names[static_cast<size_t>(node.first_value)];
    if (const auto* c = std::get_if<Const>(&node.op); c && c->extent_of.empty()) {
      name = number(c->value);   // stands where it is used
      continue;
    }
    std::string inputs;
    for (ValueId v : node.operands) {
      bool literal = g.def_form<Const>(v) && g.def_form<Const>(v)->extent_of.empty();
      const std::string& operand = names[static_cast<size_t>(v)];
      inputs += (inputs.empty() ? "" : ", ") + (literal ? operand : "\"" + operand + "\"");
    }
    name = fresh();
    Spelling s = spell(g, node);
    write(s.op, inputs, name, s.attrs, is_exact(node.first_value));
  }
  // An output is a copy under its own name: two outputs may show one value, and an output may show an input or a constant.
  for (size_t r = 0; r < p.outputs.size(); ++r) {
    ValueId v = g.node(g.outputs()[r]).operands[0];
    bool literal = g.def_form<Const>(v) && g.def_form<Const>(v)->extent_of.empty();
    const std::string& operand = names[static_cast<size_t>(v)];
    write("reshape", literal ? operand : "\"" + operand + "\"", p.outputs[r].name, "\"shape\": " + list(p.outputs[r].type.dims), false);
  }
  std::string numerics;
  if (p.numerics.rtol) numerics += ", \"rtol\": " + number(*p.numerics.rtol);
  if (p.numerics.atol) numerics += ", \"atol\": " + number(*p.numerics.atol);
  if (p.numerics.tf32) numerics += ", \"tf32\": true";
  if (p.numerics.exact) numerics += ", \"intermediates\": \"exact\"";
  std::string out = fmt::format("{{\n  \"version\": \"1.0\", \"name\": \"{}\",\n", p.name);
  if (!numerics.empty()) out += "  \"numerics\": {" + numerics.substr(2) + "},\n";
  out += "  \"inputs\": {" + tensors(p.inputs) + "\n  },\n  \"outputs\": {" + tensors(p.outputs) + "\n  },\n  \"nodes\": [" + nodes +
         "\n  ]\n}\n";
  return out;
}

}  // namespace mirage
