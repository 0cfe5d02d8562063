// What is asked of two graphs before they are compared (signature.h).
#include "verify/signature.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace mirage::verify {

std::string signature_mismatch(const Graph& a, const Graph& b) {
  if (a.level() != Level::kKernel || b.level() != Level::kKernel) return "both graphs must be kernel graphs";
  std::vector<Type> types(static_cast<size_t>(std::max(a.num_params(), b.num_params())), Type{DType::kReal, {}});
  std::vector<bool> seen(types.size());
  for (NodeId n : a.inputs()) {
    types[static_cast<size_t>(a.form<Input>(n)->param)] = a.type(a.node(n).first_value);
    seen[static_cast<size_t>(a.form<Input>(n)->param)] = true;
  }
  for (NodeId n : b.inputs()) {
    const auto i = static_cast<size_t>(b.form<Input>(n)->param);
    if (seen[i] && !(types[i] == b.type(b.node(n).first_value)))
      return "input " + std::to_string(i) + " is " + to_string(types[i]) + " in one graph and " + to_string(b.type(b.node(n).first_value)) +
             " in the other";
  }
  if (a.num_results() != b.num_results())
    return "the graphs have " + std::to_string(a.num_results()) + " and " + std::to_string(b.num_results()) + " results";
  const std::vector<NodeId> oa = a.outputs(), ob = b.outputs();
  for (size_t r = 0; r < oa.size(); r++) {
    const Type &x = a.type(a.node(oa[r]).operands[0]), &y = b.type(b.node(ob[r]).operands[0]);
    if (!(x.dims == y.dims))
      return "result " + std::to_string(r) + " is " + to_string(x.dims) + " in one graph and " + to_string(y.dims) + " in the other";
    if (a.form<Output>(oa[r])->dtype != b.form<Output>(ob[r])->dtype) return "result " + std::to_string(r) + " has different dtypes";
  }
  return "";
}

Graph say_roundings(const Graph& g) {
  const auto users = g.users();
  // Whether all that reads v, perhaps through views, are outputs of that very type.
  const auto is_stored_so = [&](const auto& self, ValueId v, DType t) -> bool {
    const auto& read = users[static_cast<size_t>(v)];
    return std::all_of(read.begin(), read.end(), [&](NodeId n) {
      if (const auto* o = g.form<Output>(n)) return o->dtype == t;
      return is_view(g.node(n).op) && self(self, g.node(n).first_value, t);
    });
  };
  const auto cast = [&](ValueId v) -> std::optional<MapFn> {
    const DType t = g.type(v).dtype;
    if (!g.def_form<Call>(v) || t == DType::kReal || t == DType::kBool) return std::nullopt;
    if (is_stored_so(is_stored_so, v, t)) return std::nullopt;
    return t == DType::kF16 ? MapFn::kCastF16 : t == DType::kBF16 ? MapFn::kCastBF16 : MapFn::kCastF32;
  };
  bool any = false;
  for (ValueId v = 0; v < g.num_values(); v++) any = any || cast(v);
  if (!any) return g;
  Builder b(g.level(), g.launch());
  std::vector<ValueId> to(static_cast<size_t>(g.num_values()), -1);
  for (const Node& node : g.nodes()) {
    std::vector<ValueId> operands;
    for (ValueId o : node.operands) operands.push_back(to[static_cast<size_t>(o)]);
    const auto* in = std::get_if<Input>(&node.op);
    const ValueId first = in ? b.add_input(in->param, g.type(node.first_value), in->part) : b.add(node.op, operands);
    for (int i = 0; i < node.num_values; i++) to[static_cast<size_t>(node.first_value + i)] = first + i;
    for (int i = 0; i < node.num_values; i++)
      if (const auto fn = cast(node.first_value + i)) to[static_cast<size_t>(node.first_value + i)] = b.map(*fn, {first + i});
  }
  return std::move(b).finish();
}

std::string loose_running(const Graph& g) {
  auto views_of = [&](const Graph& body, ValueId v, bool through_max) {
    while (true) {
      const Op& op = body.def(v).op;
      const auto* r = std::get_if<Reduce>(&op);
      const bool step =
          std::holds_alternative<Reshape>(op) || std::holds_alternative<Transpose>(op) || (through_max && r && r->fn == ReduceFn::kMax);
      if (!step) return v;
      v = body.def(v).operands[0];
    }
  };
  for (const Node& node : g.nodes()) {
    if (const auto* c = std::get_if<Call>(&node.op))
      if (std::string s = loose_running(*c->body); !s.empty()) return s;
    if (!std::holds_alternative<Running>(node.op)) continue;
    const ValueId source = views_of(g, node.operands[0], true);
    const bool used = std::any_of(g.nodes().begin(), g.nodes().end(), [&](const Node& n) {
      const auto* m = std::get_if<Map>(&n.op);
      return m && m->fn == MapFn::kSub && views_of(g, n.operands[0], false) == source &&
             views_of(g, n.operands[1], false) == node.first_value;
    });
    if (!used)
      return "value " + std::to_string(node.first_value) +
             " is a running maximum of something else than what it is subtracted from, and might be undefined where the program is not";
  }
  return "";
}

}  // namespace mirage::verify
