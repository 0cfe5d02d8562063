// Small extents for whole programs: union-find over dimensions whose classes may be products of other classes (OSDI'25 has no counterpart;
// its extents are concrete).
#include "driver/pieces/reduced.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "mirage/search/extents.h"
#include "mirage/search/search.h"
#include "mirage/support/round.h"

namespace mirage {

namespace {

constexpr int64_t kMaxElements = 500'000;   // of one value: evaluations shall take a fraction of a second

/// Dimensions of all values in classes. A class is an atom or the product of the classes of its factors.
class Extents {
 public:
  explicit Extents(const Graph& g) : graph_(g) {
    for (ValueId v = 0; v < g.num_values(); v++) {
      first_.push_back(static_cast<int>(nodes_.size()));
      for (int64_t e : g.dims(v)) add(e);
    }
  }
  int at(ValueId v, int d) { return find(first_[static_cast<size_t>(v)] + d); }
  int find(int x) {
    while (nodes_[static_cast<size_t>(x)].parent != x) x = nodes_[static_cast<size_t>(x)].parent;
    return x;
  }
  /// Dimensions that broadcast are not tied.
  bool tie(ValueId a, int da, ValueId b, int db) {
    const int x = at(a, da), y = at(b, db);
    return nodes_[static_cast<size_t>(x)].extent == 1 || nodes_[static_cast<size_t>(y)].extent == 1 || unify(x, y);
  }
  bool tie_shapes(ValueId a, ValueId b) {
    std::vector<int> x, y;
    for (int d = 0; d < graph_.dims(a).rank(); d++) x.push_back(at(a, d));
    for (int d = 0; d < graph_.dims(b).rank(); d++) y.push_back(at(b, d));
    return match(x, y);
  }

  /// Small extents for all atoms: the most frequent get the smallest.
  void settle(int variant, const std::set<int64_t>& taken) {
    std::vector<std::pair<int, int>> atoms(nodes_.size());
    for (size_t i = 0; i < atoms.size(); i++) atoms[i] = {0, static_cast<int>(i)};
    for (size_t i = 0; i < nodes_.size(); i++) count(static_cast<int>(i), atoms);
    std::sort(atoms.begin(), atoms.end());
    int64_t next = variant == 0 ? 4 : 5;
    for (auto [uses, x] : atoms) {
      if (uses == 0) break;
      while (taken.count(next)) next += 2;
      nodes_[static_cast<size_t>(x)].small = next;
      next += 2;
    }
  }
  int64_t small(ValueId v, int d) { return product(at(v, d)); }

 private:
  struct Node { int parent = 0; int64_t extent = 1; std::vector<int> factors; int64_t small = 0; };

  int add(int64_t extent, std::vector<int> factors = {}) {
    nodes_.push_back({static_cast<int>(nodes_.size()), extent, std::move(factors), 0});
    return static_cast<int>(nodes_.size()) - 1;
  }
  Node& node(int x) { return nodes_[static_cast<size_t>(x)]; }

  bool unify(int a, int b) {
    const int x = find(a), y = find(b);
    if (x == y) return true;
    if (node(x).extent != node(y).extent) return false;
    if (!node(x).factors.empty() && !node(y).factors.empty() && !match(node(x).factors, node(y).factors)) return false;
    const int from = find(x), to = find(y);   // matching factors may have moved them
    if (from == to) return true;
    if (node(to).factors.empty()) node(to).factors = node(from).factors;
    node(from).parent = to;
    return true;
  }

  /// Two lists of dimensions of one row-major order: runs of equal product are tied, one dimension to a product of several. Several to
  /// several: none of them is a class of the other's.
  bool match(std::vector<int> a, std::vector<int> b) {
    auto drop_ones = [&](std::vector<int>& l) { std::erase_if(l, [&](int x) { return node(find(x)).extent == 1; }); };
    drop_ones(a), drop_ones(b);
    for (size_t i = 0, j = 0; i < a.size() || j < b.size();) {
      if (i >= a.size() || j >= b.size()) return false;
      std::vector<int> x{find(a[i])}, y{find(b[j])};
      int64_t p = node(x[0]).extent, q = node(y[0]).extent;
      for (i++, j++; p != q;) {
        if (p < q && i < a.size()) p *= node(find(a[i])).extent, x.push_back(find(a[i++]));
        else if (q < p && j < b.size()) q *= node(find(b[j])).extent, y.push_back(find(b[j++]));
        else return false;
      }
      if (x.size() > 1 && y.size() > 1) return false;
      const bool swap = x.size() > 1;
      const std::vector<int>& one = swap ? y : x;
      const std::vector<int>& many = swap ? x : y;
      if (!unify(one[0], many.size() == 1 ? many[0] : add(p, many))) return false;
    }
    return true;
  }

  void count(int x, std::vector<std::pair<int, int>>& atoms) {
    x = find(x);
    if (node(x).extent == 1) return;
    if (node(x).factors.empty()) atoms[static_cast<size_t>(x)].first--;
    for (int f : node(x).factors) count(f, atoms);
  }

  int64_t product(int x) {
    x = find(x);
    if (node(x).extent == 1) return 1;
    if (node(x).factors.empty()) return node(x).small;
    int64_t p = 1;
    for (int f : node(x).factors) p = std::min(p * product(f), int64_t{1} << 40);
    return p;
  }

  const Graph& graph_;
  std::vector<int> first_;
  std::vector<Node> nodes_;
};

bool tie_node(const Graph& g, NodeId n, Extents& extents) {
  const Node& node = g.node(n);
  if (node.first_value < 0 || g.form<Input>(n) || g.form<Const>(n)) return true;
  const ValueId r = node.first_value;
  const int rank = g.dims(r).rank();
  bool ok = true;
  if (g.form<Map>(n)) {
    for (ValueId v : node.operands)
      for (int d = 0; d < g.dims(v).rank(); d++) ok = ok && extents.tie(v, d, r, d + rank - g.dims(v).rank());
  } else if (g.form<MatMul>(n)) {
    for (ValueId v : node.operands)
      for (int d = 0; d < rank - 2; d++) ok = ok && extents.tie(v, d, r, d);
    ok = ok && extents.tie(node.operands[0], rank - 2, r, rank - 2) && extents.tie(node.operands[1], rank - 1, r, rank - 1) &&
         extents.tie(node.operands[0], rank - 1, node.operands[1], rank - 2);
  } else if (const auto* red = g.form<Reduce>(n); red && (red->group == 0 || red->group == g.dims(node.operands[0])[red->dim])) {
    for (int d = 0; d < rank; d++)
      if (d != red->dim) ok = ok && extents.tie(node.operands[0], d, r, d);
  } else if (const auto* t = g.form<Transpose>(n)) {
    for (int d = 0; d < rank; d++) ok = ok && extents.tie(node.operands[0], t->perm[static_cast<size_t>(d)], r, d);
  } else if (g.form<Reshape>(n)) {
    ok = extents.tie_shapes(node.operands[0], r);
  } else {
    ok = false;
  }
  return ok;
}

std::set<int64_t> literals(const Graph& g) {
  std::set<int64_t> out;
  for (const Node& n : g.nodes())
    if (const auto* c = std::get_if<Const>(&n.op); c && c->extent_of.empty())
      if (const auto i = whole_number(c->value)) out.insert(*i);
  return out;
}

/// Whether a comparison, rounding or other non-arithmetic function is taken of extents alone: its answer at small extents says nothing
/// about the real ones.
bool judges_extents(const Graph& g) {
  // made of constants only; an extent is among them
  std::vector<bool> constant(static_cast<size_t>(g.num_values())), sized(constant.size());
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    if (node.first_value < 0 || g.form<Input>(n)) continue;
    bool all = true, any = g.form<Reduce>(n) || g.form<MatMul>(n);   // sums of constants count elements
    for (ValueId v : node.operands) all = all && constant[static_cast<size_t>(v)], any = any || sized[static_cast<size_t>(v)];
    if (const auto* c = g.form<Const>(n)) any = !c->extent_of.empty();
    constant[static_cast<size_t>(node.first_value)] = all;
    sized[static_cast<size_t>(node.first_value)] = all && any;
    if (const auto* m = g.form<Map>(n); m && all && any && map_info(m->fn).cls == MapClass::kAtomic) return true;
  }
  return false;
}

/// g with every value in the dimensions that `dims` gives; nullopt where infer disagrees.
std::optional<Graph> with_dims(const Graph& g, const std::vector<Dims>& dims) {
  Builder b(Level::kKernel);
  std::vector<const Dims*> params(static_cast<size_t>(g.num_params()), nullptr);
  for (NodeId n : g.inputs()) params[static_cast<size_t>(g.form<Input>(n)->param)] = &dims[static_cast<size_t>(g.node(n).first_value)];
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    if (const auto* in = g.form<Input>(n)) {
      b.add_input(in->param, {g.type(node.first_value).dtype, dims[static_cast<size_t>(node.first_value)]}, in->part);
      continue;
    }
    Op op = node.op;
    if (auto* c = std::get_if<Const>(&op); c && !c->extent_of.empty()) {
      c->value = 1;
      for (auto [param, dim] : c->extent_of) c->value *= static_cast<double>((*params[static_cast<size_t>(param)])[dim]);
    }
    if (auto* r = std::get_if<Reduce>(&op)) r->group = 0;
    if (auto* s = std::get_if<Reshape>(&op)) s->dims = dims[static_cast<size_t>(node.first_value)];
    if (!b.try_add(std::move(op), node.operands)) return std::nullopt;
    if (node.first_value >= 0 && !(b.graph().dims(node.first_value) == dims[static_cast<size_t>(node.first_value)])) return std::nullopt;
  }
  return std::move(b).finish();
}

/// Slices and concatenations tie extents as sums, which the search's own witnesses follow (search/problem/witness.cc): the same graph, node
/// by node, at their extents.
ReducedProgram by_witness(const Graph& g, int variant, const std::vector<std::vector<ValueId>>& alike) {
  Program p;
  p.inputs.resize(static_cast<size_t>(g.num_params()));
  for (NodeId n : g.inputs()) p.inputs[static_cast<size_t>(g.form<Input>(n)->param)].type = g.type(g.node(n).first_value);
  p.graph = g;
  Witness w = make_witness(p, variant);
  if (w.refusal.empty())
    for (const auto& values : alike)
      for (ValueId v : values)
        if (!(w.graph.dims(v) == w.graph.dims(values[0]))) w.refusal = "results of one kernel cannot have one shape";
  return w.refusal.empty() ? ReducedProgram{std::move(w.graph), ""} : ReducedProgram{{}, w.refusal};
}

}  // namespace

bool is_searchable(const Graph& g, NodeId n) {
  const Node& node = g.node(n);
  if (const auto* r = g.form<Reduce>(n)) return r->group == 0 || r->group == g.dims(node.operands[0])[r->dim];
  if (const auto* s = g.form<Reshape>(n)) {   // ones may come and go
    std::vector<int64_t> from, to;
    for (int64_t e : g.dims(node.operands[0])) if (e != 1) from.push_back(e);
    for (int64_t e : s->dims) if (e != 1) to.push_back(e);
    return from == to;
  }
  return g.form<Map>(n) || g.form<MatMul>(n) || g.form<Transpose>(n) || g.form<Input>(n) || g.form<Const>(n) || g.form<Output>(n);
}

std::vector<std::vector<int>> extent_classes(const Graph& g) {
  Extents extents(g);
  for (NodeId n = 0; n < g.num_nodes(); n++)
    if (!tie_node(g, n, extents)) {
      const search::DimClasses classes = search::dim_classes(g);
      return classes.refusal.empty() ? classes.of : std::vector<std::vector<int>>{};
    }
  std::vector<std::vector<int>> out(static_cast<size_t>(g.num_values()));
  for (ValueId v = 0; v < g.num_values(); v++)
    for (int d = 0; d < g.dims(v).rank(); d++) out[static_cast<size_t>(v)].push_back(extents.at(v, d));
  return out;
}

ReducedProgram reduce_extents(const Graph& g, int variant, const std::vector<std::vector<ValueId>>& alike) {
  ReducedProgram out;
  Extents extents(g);
  for (NodeId n = 0; n < g.num_nodes(); n++)
    if (!tie_node(g, n, extents)) {
      out = by_witness(g, variant, alike);
      if (!out.refusal.empty()) out.refusal = fmt::format("no small extents for {} (node {}): {}", form_name(g.node(n).op), n, out.refusal);
      return out;
    }
  for (const auto& values : alike)
    for (ValueId v : values)
      if (g.dims(v) == g.dims(values[0]) && !extents.tie_shapes(values[0], v)) {
        out.refusal = "results of one kernel cannot have one shape";
        return out;
      }
  if (judges_extents(g)) {
    out.refusal = "comparison or rounding of extents";
    return out;
  }
  extents.settle(variant, literals(g));
  std::vector<Dims> dims(static_cast<size_t>(g.num_values()));
  for (ValueId v = 0; v < g.num_values(); v++) {
    int64_t elements = 1;
    for (int d = 0; d < g.dims(v).rank(); d++) {
      dims[static_cast<size_t>(v)].push_back(extents.small(v, d));
      elements = std::min(elements * extents.small(v, d), kMaxElements + 1);
    }
    if (elements > kMaxElements) {
      out.refusal = fmt::format("even a small example of value {} has over {} elements", v, kMaxElements);
      return out;
    }
  }
  auto graph = with_dims(g, dims);
  if (!graph) {
    out.refusal = "the program does not follow a change of its extents";
    return out;
  }
  out.graph = std::move(*graph);
  return out;
}

}  // namespace mirage
