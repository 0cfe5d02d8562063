// Witness extents; see witness.h.
#include "search/witness.h"
#include <algorithm>
#include <numeric>
#include <set>

namespace mirage {
namespace search {
namespace {

/// Union-find over the dimensions of all values.
class Ties {
 public:
  explicit Ties(const Graph& g) : graph_(g) {
    int n = 0;
    for (ValueId v = 0; v < g.num_values(); v++) { first_.push_back(n); n += g.dims(v).rank(); }
    parent_.resize(static_cast<size_t>(n));
    std::iota(parent_.begin(), parent_.end(), 0);
  }
  int find(int x) { while (parent_[static_cast<size_t>(x)] != x) x = parent_[static_cast<size_t>(x)] = parent_[static_cast<size_t>(parent_[static_cast<size_t>(x)])]; return x; }
  int at(ValueId v, int d) { return find(first_[static_cast<size_t>(v)] + d); }
  /// Ties two dimensions unless one has extent 1.
  void tie(ValueId a, int da, ValueId b, int db) {
    if (graph_.dims(a)[da] == 1 || graph_.dims(b)[db] == 1) return;
    const int x = at(a, da), y = at(b, db);
    parent_[static_cast<size_t>(std::max(x, y))] = std::min(x, y);
  }

 private:
  const Graph& graph_;
  std::vector<int> first_, parent_;
};

/// Ties what the node forces equal; a refusal if its extents cannot be chosen freely.
std::string tie_node(const Graph& g, NodeId n, Ties& ties) {
  const Node& node = g.node(n);
  if (node.first_value < 0) return "";
  const ValueId r = node.first_value;
  const int rank = g.dims(r).rank();
  if (g.form<Map>(n)) {
    for (ValueId v : node.operands)
      for (int d = 0; d < g.dims(v).rank(); d++) ties.tie(v, d, r, d + rank - g.dims(v).rank());
  } else if (g.form<MatMul>(n)) {
    for (ValueId v : node.operands)
      for (int d = 0; d < rank - 2; d++) ties.tie(v, d, r, d);
    ties.tie(node.operands[0], rank - 2, r, rank - 2);
    ties.tie(node.operands[1], rank - 1, r, rank - 1);
    ties.tie(node.operands[0], rank - 1, node.operands[1], rank - 2);
  } else if (const auto* red = g.form<Reduce>(n)) {
    const ValueId x = node.operands[0];
    if (red->group != 0 && red->group != g.dims(x)[red->dim]) return "reduction over groups of a dimension";
    for (int d = 0; d < rank; d++) if (d != red->dim) ties.tie(x, d, r, d);
  } else if (const auto* t = g.form<Transpose>(n)) {
    for (int d = 0; d < rank; d++) ties.tie(node.operands[0], t->perm[static_cast<size_t>(d)], r, d);
  } else if (const auto* s = g.form<Reshape>(n)) {
    const Dims& from = g.dims(node.operands[0]);
    const auto kept = unit_reshape(from, s->dims);
    if (!kept || !(*kept == s->dims)) return "reshape that splits or joins dimensions";
    for (int i = 0, j = 0; i < from.rank(); i++) {
      if (from[i] == 1) continue;
      while (s->dims[j] == 1) j++;
      ties.tie(node.operands[0], i, r, j++);
    }
  } else if (!g.form<Input>(n) && !g.form<Const>(n)) {
    return form_name(node.op);
  }
  return "";
}

std::set<int64_t> literals(const Graph& g) {
  std::set<int64_t> out;
  for (const Node& n : g.nodes())
    if (const auto* c = std::get_if<Const>(&n.op); c && c->extent_of.empty() && c->value == static_cast<double>(static_cast<int64_t>(c->value))) out.insert(static_cast<int64_t>(c->value));
  return out;
}

}  // namespace

std::optional<Dims> unit_reshape(const Dims& operand, const Dims& pattern) {
  Dims out;
  int i = 0;
  auto skip = [&] { while (i < operand.rank() && operand[i] == 1) i++; };
  for (int64_t p : pattern) {
    if (p == 1) { out.push_back(1); continue; }
    skip();
    if (i == operand.rank()) return std::nullopt;
    out.push_back(operand[i++]);
  }
  skip();
  if (i != operand.rank()) return std::nullopt;
  return out;
}

std::optional<Dims> unit_reshape(const Dims& from, const Dims& to, const Dims& operand) {
  if (from.rank() != operand.rank()) return std::nullopt;
  Dims out;
  int i = 0;
  for (int64_t p : to) {
    if (p == 1) { out.push_back(1); continue; }
    while (i < from.rank() && from[i] == 1) i++;
    if (i == from.rank() || from[i] != p) return std::nullopt;
    out.push_back(operand[i++]);
  }
  while (i < from.rank() && from[i] == 1) i++;
  if (i != from.rank() || out.elements() != operand.elements()) return std::nullopt;
  return out;
}

double extent_value(const Const& c, const std::vector<Type>& params) {
  double v = 1;
  for (auto [param, dim] : c.extent_of) v *= static_cast<double>(params[static_cast<size_t>(param)].dims[dim]);
  return v;
}

/// Functions whose value says which of two numbers is larger, or how fine a number is: of extents that is another answer at every size.
static bool depends_on_size(MapFn fn) {
  switch (fn) {
    case MapFn::kLess: case MapFn::kGreater: case MapFn::kEqual: case MapFn::kMax: case MapFn::kMin: case MapFn::kClamp: case MapFn::kRelu: case MapFn::kAbs:
    case MapFn::kGelu: case MapFn::kGeluTanh: case MapFn::kTanh: case MapFn::kPow: case MapFn::kWhere: case MapFn::kCastF16: case MapFn::kCastBF16: case MapFn::kCastF32: return true;
    default: return false;
  }
}

DimClasses dim_classes(const Graph& g) {
  DimClasses out;
  Ties ties(g);
  std::vector<bool> constant(static_cast<size_t>(g.num_values())), sized(constant.size());   // made of constants only; an extent is among them
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    out.refusal = tie_node(g, n, ties);
    if (!out.refusal.empty()) return out;
    const Node& node = g.node(n);
    if (node.first_value < 0 || g.form<Input>(n)) continue;
    bool all = true, any = false;
    for (ValueId v : node.operands) { all = all && constant[static_cast<size_t>(v)]; any = any || sized[static_cast<size_t>(v)]; }
    if (const auto* c = g.form<Const>(n)) any = !c->extent_of.empty();
    if (g.form<Reduce>(n) || g.form<MatMul>(n)) any = true;   // sums of constants count elements
    constant[static_cast<size_t>(node.first_value)] = all;
    sized[static_cast<size_t>(node.first_value)] = all && any;
    if (const auto* m = g.form<Map>(n); m && all && any && depends_on_size(m->fn)) {
      out.refusal = "comparison or rounding of extents";
      return out;
    }
  }
  const std::vector<NodeId> outputs = g.outputs();   // results of one shape stay results of one shape, so that they can share a grid
  for (NodeId a : outputs)
    for (NodeId b : outputs) {
      const ValueId x = g.node(a).operands[0], y = g.node(b).operands[0];
      if (a < b && g.dims(x) == g.dims(y)) for (int d = 0; d < g.dims(x).rank(); d++) ties.tie(x, d, y, d);
    }
  std::vector<std::pair<int, int>> names;   // root, class: in order of first occurrence
  for (ValueId v = 0; v < g.num_values(); v++) {
    auto& of = out.of.emplace_back();
    for (int d = 0; d < g.dims(v).rank(); d++) {
      if (g.dims(v)[d] == 1) { of.push_back(-1); continue; }
      const int root = ties.at(v, d);
      auto it = std::find_if(names.begin(), names.end(), [&](const auto& n) { return n.first == root; });
      if (it == names.end()) { names.push_back({root, out.count++}); it = names.end() - 1; }
      of.push_back(it->second);
    }
  }
  return out;
}

std::optional<Graph> with_types(const Graph& g, const std::vector<Type>& params) {
  Builder b(g.level(), g.launch());
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    if (const auto* in = g.form<Input>(n)) {
      if (in->param < 0 || static_cast<size_t>(in->param) >= params.size()) return std::nullopt;
      b.add_input(in->param, params[static_cast<size_t>(in->param)], in->part);
      continue;
    }
    Op op = node.op;
    if (auto* c = std::get_if<Const>(&op); c && !c->extent_of.empty()) c->value = extent_value(*c, params);
    if (auto* r = std::get_if<Reduce>(&op); r && r->group == g.dims(node.operands[0])[r->dim]) r->group = 0;
    if (auto* s = std::get_if<Reshape>(&op)) {
      auto d = unit_reshape(b.graph().dims(node.operands[0]), s->dims);
      if (!d) return std::nullopt;
      s->dims = *d;
    }
    if (!b.try_add(std::move(op), node.operands)) return std::nullopt;
  }
  return std::move(b).finish();
}

}  // namespace search

/// Of one value: evaluating candidates shall take microseconds to milliseconds.
static constexpr int64_t kMaxElements = 100'000;

Witness make_witness(const Program& program, int variant) {
  Witness out;
  const Graph& g = program.graph;
  const search::DimClasses classes = search::dim_classes(g);
  if (!classes.refusal.empty()) { out.refusal = classes.refusal; return out; }
  // Frequent classes get small extents. Variant 0: even, so that halves are even splits; what is summed can be halved twice, by the grid and the loop. Variant 1: odd, so that tiles
  // of half, rounded up, leave a tail and no empty block.
  std::vector<bool> summed(static_cast<size_t>(classes.count));
  auto note = [&](ValueId v, int d) { if (const int c = classes.of[static_cast<size_t>(v)][static_cast<size_t>(d)]; c >= 0) summed[static_cast<size_t>(c)] = true; };
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    if (g.form<MatMul>(n)) note(g.node(n).operands[0], g.dims(g.node(n).operands[0]).rank() - 1);
    if (const auto* r = g.form<Reduce>(n)) note(g.node(n).operands[0], r->dim);
  }
  std::vector<std::pair<int, int>> by_use(static_cast<size_t>(classes.count));
  for (size_t c = 0; c < by_use.size(); c++) by_use[c] = {0, static_cast<int>(c)};
  for (const auto& of : classes.of)
    for (int c : of) if (c >= 0) by_use[static_cast<size_t>(c)].first--;
  std::sort(by_use.begin(), by_use.end());
  const std::set<int64_t> taken = search::literals(g);
  std::vector<int64_t> extent(by_use.size());
  int64_t next_summed = variant == 0 ? 8 : 7, next_other = variant == 0 ? 6 : 5;
  for (auto [uses, c] : by_use) {
    int64_t& next = summed[static_cast<size_t>(c)] ? next_summed : next_other;
    while (taken.count(next)) next += 4;
    extent[static_cast<size_t>(c)] = next;
    next += 4;
  }
  for (ValueId v = 0; v < g.num_values(); v++) {
    int64_t elements = 1;
    for (int c : classes.of[static_cast<size_t>(v)]) if (c >= 0 && elements <= kMaxElements) elements *= extent[static_cast<size_t>(c)];
    if (elements > kMaxElements) { out.refusal = "too many dimensions: even a small example of a value would have over " + std::to_string(kMaxElements) + " elements"; return out; }
  }
  out.params.resize(program.inputs.size());
  for (size_t i = 0; i < program.inputs.size(); i++) out.params[i] = program.inputs[i].type;
  for (NodeId n : g.inputs()) {
    const ValueId v = g.node(n).first_value;
    Type t = g.type(v);
    for (int d = 0; d < t.dims.rank(); d++)
      if (const int c = classes.of[static_cast<size_t>(v)][static_cast<size_t>(d)]; c >= 0) t.dims[d] = extent[static_cast<size_t>(c)];
    out.params[static_cast<size_t>(g.form<Input>(n)->param)] = t;
  }
  auto w = search::with_types(g, out.params);
  if (!w) { out.refusal = "the program does not follow a change of its extents"; return out; }
  out.graph = std::move(*w);
  return out;
}

}  // namespace mirage
