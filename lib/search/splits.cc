// Index analysis and the choices of grid axes and loop; see splits.h.
#include "search/splits.h"
#include <algorithm>
#include <map>
#include <numeric>

namespace mirage::search {
namespace {

constexpr int kMaxAxes = 3;

/// Indices of einsum notation: each use of a leaf brings fresh ones, operators join them.
class Indices {
 public:
  Indices(const Graph& g, const DimClasses& classes, const Problem& p, bool recompute) : graph_(g), classes_(classes) {
    leaf_.resize(static_cast<size_t>(g.num_values()));
    for (ValueId v : p.leaves) leaf_[static_cast<size_t>(v)] = true;
    of_.resize(static_cast<size_t>(g.num_values()));
    if (!recompute) for (NodeId n : p.inside) of_[static_cast<size_t>(g.node(n).first_value)] = visit(n, [&](ValueId v) { return of_[static_cast<size_t>(v)]; });
    else for (ValueId t : p.targets) of_[static_cast<size_t>(t)] = expand(t);
    for (ValueId t : p.targets)
      for (int i : of_[static_cast<size_t>(t)]) if (i >= 0) kept_[static_cast<size_t>(i)] = true;
    close();
  }
  struct Use { ValueId leaf; std::vector<int> index; };
  const std::vector<Use>& uses() const { return uses_; }
  const std::vector<int>& of(ValueId v) const { return of_[static_cast<size_t>(v)]; }
  int find(int i) const { while (parent_[static_cast<size_t>(i)] != i) i = parent_[static_cast<size_t>(i)]; return i; }
  int class_of(int i) const { return class_[static_cast<size_t>(i)]; }
  bool summed(int i) const { return summed_[static_cast<size_t>(find(i))]; }
  bool kept(int i) const { return kept_[static_cast<size_t>(find(i))]; }
  int count() const { return static_cast<int>(parent_.size()); }
  bool is_too_large() const { return visits_ > kMaxVisits; }

 private:
  static constexpr int kMaxVisits = 400;
  std::vector<int> expand(ValueId v) {
    if (++visits_ > kMaxVisits) return fresh(v);
    return visit(graph_.value(v).node, [&](ValueId x) { return expand(x); });
  }
  std::vector<int> fresh(ValueId v) {
    std::vector<int> out;
    for (int c : classes_.of[static_cast<size_t>(v)]) {
      if (c < 0) { out.push_back(-1); continue; }
      out.push_back(count());
      parent_.push_back(count());
      class_.push_back(c);
      summed_.push_back(false);
      kept_.push_back(false);
    }
    return out;
  }
  void join(int a, int b) { if (a >= 0 && b >= 0) { a = find(a); b = find(b); parent_[static_cast<size_t>(std::max(a, b))] = std::min(a, b); } }
  /// The indices of a node's value; `of` gives those of operands that are no leaves.
  template <class F> std::vector<int> visit(NodeId n, F&& indices_of) {
    const Node& node = graph_.node(n);
    std::vector<std::vector<int>> in;
    for (ValueId v : node.operands) {
      if (leaf_[static_cast<size_t>(v)]) { in.push_back(fresh(v)); uses_.push_back({v, in.back()}); }
      else in.push_back(indices_of(v));
    }
    std::vector<int> out = fresh(node.first_value);
    const int rank = static_cast<int>(out.size());
    auto at = [](std::vector<int>& x, int d) { return d < 0 ? -1 : x[static_cast<size_t>(d)]; };
    if (graph_.form<Map>(n)) {
      for (auto& x : in) for (int d = 0; d < rank; d++) join(at(out, d), at(x, d - (rank - static_cast<int>(x.size()))));
    } else if (graph_.form<MatMul>(n)) {
      for (auto& x : in) for (int d = 0; d < rank - 2; d++) join(at(out, d), at(x, d));
      join(at(out, rank - 2), at(in[0], rank - 2));
      join(at(out, rank - 1), at(in[1], rank - 1));
      join(at(in[0], rank - 1), at(in[1], rank - 2));
      if (const int k = at(in[0], rank - 1); k >= 0) summed_[static_cast<size_t>(k)] = true;
    } else if (const auto* r = graph_.form<Reduce>(n)) {
      for (int d = 0; d < rank; d++) if (d != r->dim) join(at(out, d), at(in[0], d));
      if (const int k = at(in[0], r->dim); k >= 0) summed_[static_cast<size_t>(k)] = true;
    } else if (const auto* t = graph_.form<Transpose>(n)) {
      for (int d = 0; d < rank; d++) join(at(out, d), at(in[0], t->perm[static_cast<size_t>(d)]));
    } else if (graph_.form<Reshape>(n)) {
      size_t i = 0;
      for (int d = 0; d < rank; d++) {
        if (at(out, d) < 0) continue;
        while (in[0][i] < 0) i++;
        join(at(out, d), in[0][i++]);
      }
    }
    return out;
  }
  void close() {   // flags to the roots
    for (int i = 0; i < count(); i++) {
      if (summed_[static_cast<size_t>(i)]) summed_[static_cast<size_t>(find(i))] = true;
      if (kept_[static_cast<size_t>(i)]) kept_[static_cast<size_t>(find(i))] = true;
    }
  }
  const Graph& graph_;
  const DimClasses& classes_;
  std::vector<bool> leaf_;
  std::vector<std::vector<int>> of_;
  std::vector<Use> uses_;
  std::vector<int> parent_, class_;
  std::vector<bool> summed_, kept_;
  int visits_ = 0;
};

/// One grid axis: a dimension of each target, and the indices on it.
struct Axis { int cls; std::vector<int> dims; std::vector<int> roots; };

/// Axes that may be split, last dimension of the first target first: it is the one that memory is contiguous in and the longest grid axis x.
std::vector<Axis> candidate_axes(const Indices& ix, const Problem& p, Splits& out) {
  std::vector<Axis> axes;
  const std::vector<int>& first = ix.of(p.targets[0]);
  for (int d = static_cast<int>(first.size()) - 1; d >= 0; d--) {
    if (first[static_cast<size_t>(d)] < 0) continue;
    Axis a{ix.class_of(first[static_cast<size_t>(d)]), {}, {}};
    bool good = true;
    for (ValueId t : p.targets) {
      const std::vector<int>& of = ix.of(t);
      int found = -1;
      for (int e = static_cast<int>(of.size()) - 1; e >= 0; e--) {
        const int i = of[static_cast<size_t>(e)];
        if (i >= 0 && ix.class_of(i) == a.cls && !ix.summed(i) && (t != p.targets[0] || e == d) && found < 0) found = e;
      }
      if (found < 0) { good = false; break; }
      a.dims.push_back(found);
      a.roots.push_back(ix.find(of[static_cast<size_t>(found)]));
    }
    if (good) { axes.push_back(a); continue; }
    if (out.index_closed++ == 0) out.index_example = "grid axis on dimension " + std::to_string(d) + " of the first output: it is also summed, or not every output has it";
  }
  return axes;
}

Split make_split(const Indices& ix, const Problem& p, const std::vector<Axis>& axes, int loop_class) {
  Split s;
  s.axes = static_cast<int>(axes.size());
  s.stores.resize(p.targets.size());
  for (size_t a = 0; a < axes.size(); a++) {
    s.axis_class[a] = axes[a].cls;
    for (size_t t = 0; t < p.targets.size(); t++) s.stores[t].grid[a] = static_cast<int8_t>(axes[a].dims[t]);
  }
  bool looped = false;
  for (ValueId leaf : p.leaves)
    for (const auto& use : ix.uses()) {
      if (use.leaf != leaf) continue;
      Load l{leaf, {}};
      for (size_t d = 0; d < use.index.size(); d++) {
        const int i = use.index[d];
        if (i < 0) continue;
        for (size_t a = 0; a < axes.size(); a++)
          if (std::count(axes[a].roots.begin(), axes[a].roots.end(), ix.find(i))) l.part.grid[a] = static_cast<int8_t>(d);
        if (ix.class_of(i) == loop_class && ix.summed(i) && !ix.kept(i) && l.part.loop < 0) { l.part.loop = static_cast<int8_t>(d); looped = true; }
      }
      if (std::find(s.loads.begin(), s.loads.end(), l) == s.loads.end()) s.loads.push_back(l);
    }
  if (looped) s.loop_class = loop_class;
  return s;
}

}  // namespace

Problem make_problem(const Graph& g, std::vector<ValueId> leaves, std::vector<ValueId> targets) {
  Problem p{std::move(leaves), std::move(targets), {}};
  std::vector<bool> done(static_cast<size_t>(g.num_values())), need(static_cast<size_t>(g.num_nodes()));
  for (ValueId v : p.leaves) done[static_cast<size_t>(v)] = true;
  for (ValueId t : p.targets) {
    if (done[static_cast<size_t>(t)]) return p;
    need[static_cast<size_t>(g.value(t).node)] = true;
  }
  for (NodeId n = g.num_nodes() - 1; n >= 0; n--) {
    if (!need[static_cast<size_t>(n)]) continue;
    for (ValueId v : g.node(n).operands) if (!done[static_cast<size_t>(v)]) need[static_cast<size_t>(g.value(v).node)] = true;
  }
  for (NodeId n = 0; n < g.num_nodes(); n++) if (need[static_cast<size_t>(n)]) p.inside.push_back(n);
  return p;
}

Splits enumerate_splits(const Graph& g, const DimClasses& classes, const Problem& p, bool recompute) {
  Splits out;
  const Indices ix(g, classes, p, recompute);
  if (ix.is_too_large()) return out;
  const std::vector<Axis> axes = candidate_axes(ix, p, out);
  std::vector<std::vector<Axis>> grids;
  for (unsigned mask = 1; mask < 1u << axes.size(); mask++) {
    std::vector<Axis> chosen;
    for (size_t a = 0; a < axes.size(); a++) if (mask >> a & 1) chosen.push_back(axes[a]);
    if (chosen.size() <= kMaxAxes) grids.push_back(chosen);
  }
  std::stable_sort(grids.begin(), grids.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  if (grids.empty()) grids.push_back({});   // one block: a grid of extent 1 is an instance of any other structure
  std::vector<int> loops{-1};
  for (int i = 0; i < ix.count(); i++) {
    if (!ix.summed(i)) continue;
    if (ix.kept(i)) { if (out.index_closed++ == 0) out.index_example = "loop over an index that is summed and that an output has too"; continue; }
    if (!std::count(loops.begin(), loops.end(), ix.class_of(i))) loops.push_back(ix.class_of(i));
  }
  for (const auto& grid : grids)
    for (int loop : loops) {
      Split s = make_split(ix, p, grid, loop);
      if (loop < 0 || s.loop_class >= 0) out.all.push_back(std::move(s));
    }
  return out;
}

}  // namespace mirage::search
