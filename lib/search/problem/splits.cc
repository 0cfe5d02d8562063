// Index analysis and the choices of grid axes and loop; see splits.h.
#include "search/problem/splits.h"
#include <algorithm>
#include <bit>
#include <cstddef>
#include <map>
#include <numeric>
#include <optional>

namespace mirage::search {
namespace {

constexpr int kMaxAxes = 3;
constexpr size_t kMaxUses = 500;   // of what one kernel loads
// of one problem, loads of all splits together: a program with hundreds of layers has a reduction of its own in each, and pairs of them
constexpr size_t kMaxSplits = 20'000, kMaxLoads = 1'000'000;

/// An index per dimension of a value, -1: of extent 1.
class IndexList {
 public:
  void push_back(int i) { at_[size_++] = i; }
  size_t size() const { return size_; }
  int operator[](size_t d) const { return at_[d]; }
  const int* begin() const { return at_.data(); }
  const int* end() const { return at_.data() + size_; }
 private:
  std::array<int, kMaxRank> at_{};
  size_t size_ = 0;
};

/// Indices of einsum notation: each use of a leaf brings fresh ones, operators join them.
class Indices {
 public:
  Indices(const Graph& g, const DimClasses& classes, const Problem& p, bool recompute) : graph_(g), classes_(classes) {
    leaf_.resize(static_cast<size_t>(g.num_values()));
    for (ValueId v : p.leaves) leaf_[static_cast<size_t>(v)] = true;
    of_.resize(static_cast<size_t>(g.num_values()));
    summed_by_.resize(static_cast<size_t>(g.num_nodes()), -1);
    if (!recompute)
      for (NodeId n : p.inside)
        of_[static_cast<size_t>(g.node(n).first_value)] = visit(n, [&](ValueId v) { return of_[static_cast<size_t>(v)]; });
    else for (ValueId t : p.targets) of_[static_cast<size_t>(t)] = expand(t);
    for (ValueId t : p.targets)
      for (int i : of_[static_cast<size_t>(t)]) if (i >= 0) kept_[static_cast<size_t>(i)] = true;
    close();
  }
  struct Use { ValueId leaf; IndexList index; };
  const std::vector<Use>& uses() const { return uses_; }
  const IndexList& of(ValueId v) const { return of_[static_cast<size_t>(v)]; }
  int find(int i) const { while (parent_[static_cast<size_t>(i)] != i) i = parent_[static_cast<size_t>(i)]; return i; }
  int class_of(int i) const { return class_[static_cast<size_t>(i)]; }
  bool summed(int i) const { return summed_[static_cast<size_t>(find(i))]; }
  bool kept(int i) const { return kept_[static_cast<size_t>(find(i))]; }
  int count() const { return static_cast<int>(parent_.size()); }
  /// the index that a matmul or a reduction sums over, -1: none
  int summed_by(NodeId n) const { return summed_by_[static_cast<size_t>(n)]; }
  bool is_too_large() const { return visits_ > kMaxVisits; }

 private:
  static constexpr int kMaxVisits = 400;
  IndexList expand(ValueId v) {
    if (++visits_ > kMaxVisits) return fresh(v);
    return visit(graph_.value(v).node, [&](ValueId x) { return expand(x); });
  }
  IndexList fresh(ValueId v) {
    IndexList out;
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
  void join(int a, int b) {
    if (a >= 0 && b >= 0) {
      a = find(a);
      b = find(b);
      parent_[static_cast<size_t>(std::max(a, b))] = std::min(a, b);
    }
  }
  /// The indices of a node's value; `of` gives those of operands that are no leaves.
  template <class F> IndexList visit(NodeId n, F&& indices_of) {
    const Node& node = graph_.node(n);
    std::vector<IndexList> in;
    in.reserve(node.operands.size());
    for (ValueId v : node.operands) {
      if (leaf_[static_cast<size_t>(v)]) { in.push_back(fresh(v)); uses_.push_back({v, in.back()}); }
      else in.push_back(indices_of(v));
    }
    const IndexList out = fresh(node.first_value);
    const int rank = static_cast<int>(out.size());
    const auto at = [](const IndexList& x, int d) { return d < 0 ? -1 : x[static_cast<size_t>(d)]; };
    if (graph_.form<Map>(n)) {
      for (auto& x : in) for (int d = 0; d < rank; d++) join(at(out, d), at(x, d - (rank - static_cast<int>(x.size()))));
    } else if (graph_.form<MatMul>(n)) {
      for (auto& x : in) for (int d = 0; d < rank - 2; d++) join(at(out, d), at(x, d));
      join(at(out, rank - 2), at(in[0], rank - 2));
      join(at(out, rank - 1), at(in[1], rank - 1));
      join(at(in[0], rank - 1), at(in[1], rank - 2));
      summed_by_[static_cast<size_t>(n)] = at(in[0], rank - 1);
      if (const int k = at(in[0], rank - 1); k >= 0) summed_[static_cast<size_t>(k)] = true;
    } else if (const auto* r = graph_.form<Reduce>(n)) {
      for (int d = 0; d < rank; d++) if (d != r->dim) join(at(out, d), at(in[0], d));
      summed_by_[static_cast<size_t>(n)] = at(in[0], r->dim);
      if (const int k = at(in[0], r->dim); k >= 0) summed_[static_cast<size_t>(k)] = true;
    } else if (const auto* t = graph_.form<Transpose>(n)) {
      for (int d = 0; d < rank; d++) join(at(out, d), at(in[0], t->perm[static_cast<size_t>(d)]));
    } else if (graph_.form<Reshape>(n)) {
      const auto runs = reshape_runs(graph_.dims(node.operands[0]), graph_.dims(node.first_value));
      for (const Run& run : *runs) {
        if (run.from.size() == 1 && run.to.size() == 1) { join(at(out, run.to[0]), at(in[0], run.from[0])); continue; }
        for (int d : run.from) keep_whole(at(in[0], d));
        for (int d : run.to) keep_whole(at(out, d));
      }
    } else {
      for (auto& x : in)   // slices, concatenations: what they cut stays whole
        for (int d = 0; d < rank; d++) {
          if (graph_.dims(node.operands[static_cast<size_t>(&x - in.data())])[d] == graph_.dims(node.first_value)[d]) {
            join(at(out, d), at(x, d));
            continue;
          }
          keep_whole(at(x, d));
          keep_whole(at(out, d));
        }
    }
    return out;
  }
  void keep_whole(int i) { if (i >= 0) summed_[static_cast<size_t>(i)] = kept_[static_cast<size_t>(i)] = true; }
  void close() {   // flags to the roots
    for (int i = 0; i < count(); i++) {
      if (summed_[static_cast<size_t>(i)]) summed_[static_cast<size_t>(find(i))] = true;
      if (kept_[static_cast<size_t>(i)]) kept_[static_cast<size_t>(find(i))] = true;
    }
  }
  const Graph& graph_;
  const DimClasses& classes_;
  std::vector<bool> leaf_;
  std::vector<IndexList> of_;
  std::vector<Use> uses_;
  std::vector<int> parent_, class_, summed_by_;
  std::vector<bool> summed_, kept_;
  int visits_ = 0;
};

/// Roots of indices; there may be thousands, one of each layer.
class Roots {
 public:
  void add(int i) {
    if (sorted_.empty()) first_ = i;
    sorted_.insert(std::upper_bound(sorted_.begin(), sorted_.end(), i), i);
  }
  bool has(int i) const { return std::binary_search(sorted_.begin(), sorted_.end(), i); }
  int first() const { return first_; }                          ///< the one that was added first
  size_t size() const { return sorted_.size(); }
  int operator[](size_t k) const { return sorted_[k]; }
 private:
  int first_ = -1;
  std::vector<int> sorted_;
};

/// One grid axis: a dimension of each target, and the indices on it.
struct Axis { int cls; std::vector<int> dims; Roots roots; };

/// Summed indices of one extent that no target has, to be split together by the loop or by a grid axis.
struct Group { int cls; Roots roots; bool is_all = true; };

constexpr size_t kMaxApart = 4;   // indices of one extent whose subsets are tried

std::vector<Group> reduction_groups(const Indices& ix, const SplitOptions& options, Splits& out) {
  std::vector<Group> all;
  for (int i = 0; i < ix.count(); i++) {
    if (!ix.summed(i) || ix.find(i) != i ||
        (!options.loops_over_whole && std::count(options.whole.begin(), options.whole.end(), ix.class_of(i))))
      continue;
    if (ix.kept(i)) {
      if (out.index_closed++ == 0) out.index_example = "loop over an index that is summed and that an output has too";
      continue;
    }
    auto it = std::find_if(all.begin(), all.end(), [&](const Group& g) { return g.cls == ix.class_of(i); });
    if (it == all.end()) it = all.insert(all.end(), Group{ix.class_of(i), {}, true});
    it->roots.add(i);
  }
  std::vector<Group> some;
  for (const Group& g : all) {
    if (g.roots.size() < 2 || g.roots.size() > kMaxApart) continue;
    for (unsigned mask = (1u << g.roots.size()) - 2; mask > 0; mask--) {
      Group part{g.cls, {}, false};
      for (size_t r = 0; r < g.roots.size(); r++) if (mask >> r & 1) part.roots.add(g.roots[r]);
      some.push_back(part);
    }
  }
  all.insert(all.end(), some.begin(), some.end());
  return all;
}

/// Axes that may be split, last dimension of the first target first: it is the one that memory is contiguous in and the longest grid axis
/// x.
std::vector<Axis> candidate_axes(const Indices& ix, const Problem& p, Splits& out) {
  std::vector<Axis> axes;
  const IndexList& first = ix.of(p.targets[0]);
  for (int d = static_cast<int>(first.size()) - 1; d >= 0; d--) {
    if (first[static_cast<size_t>(d)] < 0) continue;
    Axis a{ix.class_of(first[static_cast<size_t>(d)]), {}, {}};
    bool good = true;
    for (ValueId t : p.targets) {
      const IndexList& of = ix.of(t);
      int found = -1;
      for (int e = static_cast<int>(of.size()) - 1; e >= 0; e--) {
        const int i = of[static_cast<size_t>(e)];
        if (i >= 0 && ix.class_of(i) == a.cls && !ix.summed(i) && (t != p.targets[0] || e == d) && found < 0) found = e;
      }
      if (found < 0) { good = false; break; }
      a.dims.push_back(found);
      a.roots.add(ix.find(of[static_cast<size_t>(found)]));
    }
    if (good) { axes.push_back(a); continue; }
    if (out.index_closed++ == 0)
      out.index_example =
          "grid axis on dimension " + std::to_string(d) + " of the first output: it is also summed, or not every output has it";
  }
  return axes;
}

/// nullopt if a group splits nothing. `uses`: roots, by leaf, in the problem's order, each leaf's as they were met.
std::optional<Split> make_split(const Problem& p, const std::vector<Indices::Use>& uses, const std::vector<const Axis*>& axes,
                                const Group* partial, const Group* loop) {
  Split s;
  s.axes = static_cast<int>(axes.size()) + (partial != nullptr);
  s.stores.resize(p.targets.size());
  for (size_t a = 0; a < axes.size(); a++) {
    s.axis_class[a] = axes[a]->cls;
    for (size_t t = 0; t < p.targets.size(); t++) s.stores[t].grid[a] = static_cast<int8_t>(axes[a]->dims[t]);
  }
  if (partial) {
    s.partial_axis = static_cast<int>(axes.size());
    s.axis_class[axes.size()] = partial->cls;
  }
  bool looped = false, parted = false;
  size_t own = 0;   // loads of the use's leaf begin there: uses come by leaf
  for (const auto& use : uses) {
    if (s.loads.empty() || s.loads.back().leaf != use.leaf) own = s.loads.size();
    Load l{use.leaf, {}};
    for (size_t d = 0; d < use.index.size(); d++) {
      const int i = use.index[d];
      if (i < 0) continue;
      for (size_t a = 0; a < axes.size(); a++)
        if (axes[a]->roots.has(i)) l.part.grid[a] = static_cast<int8_t>(d);
      if (partial && l.part.grid[axes.size()] < 0 && partial->roots.has(i)) {
        l.part.grid[axes.size()] = static_cast<int8_t>(d);
        parted = true;
      }
      if (loop && l.part.loop < 0 && loop->roots.has(i)) { l.part.loop = static_cast<int8_t>(d); looped = true; }
    }
    if (std::find(s.loads.begin() + static_cast<std::ptrdiff_t>(own), s.loads.end(), l) == s.loads.end()) s.loads.push_back(l);
  }
  if (loop) s.loop_class = loop->cls;
  if ((loop && !looped) || (partial && !parted)) return std::nullopt;
  return s;
}

/// Uses with the roots of their indices.
std::vector<Indices::Use> uses_by_leaf(const Indices& ix, const Problem& p) {
  std::map<ValueId, size_t> place;
  for (size_t l = 0; l < p.leaves.size(); l++) place.try_emplace(p.leaves[l], l);
  std::vector<Indices::Use> uses;
  for (const Indices::Use& u : ix.uses()) {
    uses.push_back({u.leaf, {}});
    for (int i : u.index) uses.back().index.push_back(i < 0 ? i : ix.find(i));
  }
  std::stable_sort(uses.begin(), uses.end(),
                   [&](const Indices::Use& a, const Indices::Use& b) { return place.at(a.leaf) < place.at(b.leaf); });
  return uses;
}

/// What splits would cost at plausible tiles. Numbers of the program itself, not of the witness; only to decide what is searched first.
class Estimate {
 public:
  Estimate(const Graph& g, const Indices& ix, const Problem& p, const SplitOptions& o, const std::vector<Axis>& axes,
           const std::vector<Group>& groups)
      : g_(g),
        o_(o),
        axes_(axes),
        groups_(groups),
        extent_(static_cast<size_t>(ix.count()), 1),
        multiplied_(extent_.size()),
        factors_(axes.size() + groups.size()),
        part_bytes_(groups.size(), -1) {
    note_extents(ix, p);
    for (const auto& use : ix.uses()) loads_.push_back({dtype_bytes(g.type(use.leaf).dtype), roots_of(ix, use.index)});
    for (NodeId n : p.inside) note_node(ix, n);
    tile_ = extent_;
  }
  void judge(std::vector<Split>& all) {
    std::vector<double> work;
    std::vector<int64_t> blocks;
    int64_t most = 1;
    const double least = work_of({});
    for (Split& s : all) {
      const std::vector<size_t> chosen = choices(s);
      const int64_t memory = memory_of(s, chosen);
      work.push_back(work_of(chosen));
      blocks.push_back(blocks_of(chosen));
      s.cost = cost_of(s, work.back(), blocks.back());
      const bool other_loop = s.partial_group >= 0 && s.loop_group >= 0 && s.loop_group != s.partial_group;
      s.is_good = s.partial_group < 0 && work.back() <= 1.5 * least && memory <= o_.shared;
      if (s.partial_group < 0) most = std::max(most, blocks.back());
      s.is_poor = work.back() > 3 * least || memory > o_.memory || other_loop ||
                  (s.partial_group >= 0 && part_bytes(static_cast<size_t>(s.partial_group)) > 4 * bytes_);
    }
    std::map<std::pair<int, int>, double> least_of;   // by loop and partial axis, where not all axes find room
    for (size_t i = 0; i < all.size(); i++) {
      all[i].is_good = all[i].is_good && blocks[i] >= std::min<int64_t>(32, most);
      if (all[i].axes != kMaxAxes) continue;
      double& w = least_of.try_emplace({all[i].loop_group, all[i].partial_group}, work[i]).first->second;
      w = std::min(w, work[i]);
    }
    for (size_t i = 0; i < all.size(); i++)   // those that repeat the least work
      if (all[i].axes == kMaxAxes && work[i] > 1.25 * least_of.at({all[i].loop_group, all[i].partial_group})) all[i].is_poor = true;
  }

 private:
  /// `size`: products of a matmul; bytes of an element of what is loaded or made. `roots`: of its indices.
  struct Product { double size; std::vector<int> roots; };
  struct Tile { int64_t size; std::vector<int> roots; };
  struct Sum { double elements; int root; };

  static std::vector<int> roots_of(const Indices& ix, const IndexList& of) {
    std::vector<int> out;
    for (int i : of) if (i >= 0) out.push_back(ix.find(i));
    return out;
  }
  void note_extents(const Indices& ix, const Problem& p) {
    const auto note = [&](ValueId v, const IndexList& of) {
      for (size_t d = 0; d < of.size(); d++)
        if (of[d] >= 0) extent_[static_cast<size_t>(ix.find(of[d]))] = g_.dims(v)[static_cast<int>(d)];
    };
    for (const auto& use : ix.uses()) {
      note(use.leaf, use.index);
      bytes_ += static_cast<double>(g_.dims(use.leaf).elements() * dtype_bytes(g_.type(use.leaf).dtype));
    }
    for (NodeId n : p.inside) note(g_.node(n).first_value, ix.of(g_.node(n).first_value));
    for (ValueId t : p.targets) {
      bytes_ += static_cast<double>(g_.dims(t).elements() * 4);
      stored_ += static_cast<double>(g_.dims(t).elements() * dtype_bytes(g_.type(t).dtype));
    }
  }
  void note_node(const Indices& ix, NodeId n) {
    const bool is_matmul = g_.form<MatMul>(n);
    const ValueId v = g_.node(n).first_value;
    const auto elements = static_cast<double>(g_.dims(v).elements());
    if (const int k = ix.summed_by(n); k >= 0) sums_.push_back({elements, ix.find(k)});
    if (!is_matmul && !g_.form<Reduce>(n)) return;
    results_.push_back({4, roots_of(ix, ix.of(v))});
    if (!is_matmul) return;
    for (size_t k : {ix.of(v).size() - 1, ix.of(v).size() - 2})
      if (const int i = ix.of(v)[k]; i >= 0) multiplied_[static_cast<size_t>(ix.find(i))] = true;
    Product m{elements * static_cast<double>(g_.dims(g_.node(n).operands[0]).back()), results_.back().roots};
    if (const int k = ix.summed_by(n); k >= 0) m.roots.push_back(ix.find(k));
    products_.push_back(std::move(m));
  }

  /// What a split puts on axes: numbers of axes, then of groups behind them.
  std::vector<size_t> choices(const Split& s) const {
    std::vector<size_t> out;
    for (size_t a = 0; a < axes_.size(); a++) if (s.axis_mask >> a & 1) out.push_back(a);
    if (s.partial_group >= 0) out.push_back(axes_.size() + static_cast<size_t>(s.partial_group));
    return out;
  }
  const Roots& roots(size_t choice) const {
    return choice < axes_.size() ? axes_[choice].roots : groups_[choice - axes_.size()].roots;
  }
  int64_t blocks_of(const std::vector<size_t>& chosen) const {
    int64_t n = 1;
    for (size_t c : chosen) {
      const auto r = static_cast<size_t>(roots(c).first());
      n *= multiplied_[r] ? (extent_[r] + 15) / 16 : extent_[r];
    }
    return n;
  }
  int64_t cost_of(const Split& s, double work, int64_t blocks) {
    double bytes = stored_;
    for (const Load& l : s.loads) bytes += static_cast<double>(g_.dims(l.leaf).elements() * dtype_bytes(g_.type(l.leaf).dtype));
    if (s.partial_group >= 0) bytes += part_bytes(static_cast<size_t>(s.partial_group));
    // the planner may divide a loop over blocks
    const double share = s.loop_group >= 0 ? 1 : std::min(1.0, static_cast<double>(blocks) / static_cast<double>(o_.multiprocessors));
    const double us = std::max(bytes / o_.bytes_per_us, 2 * work / o_.flops_per_us) / share + o_.launch_us * (s.partial_group >= 0 ? 2 : 1);
    return static_cast<int64_t>(us * 1000) + 1;
  }
  /// Products of all blocks: along an axis that does not split it, each of a matmul is made again by every block.
  double work_of(const std::vector<size_t>& chosen) {
    double total = 1;
    for (size_t c : chosen) if (factors_[c].empty()) factors_[c] = factors_of(roots(c));
    for (size_t m = 0; m < products_.size(); m++) {
      double products = products_[m].size;
      for (size_t c : chosen) products *= factors_[c][m];
      total += products;
    }
    return total;
  }
  std::vector<double> factors_of(const Roots& roots) const {
    std::vector<double> out;
    for (const Product& m : products_) {
      const bool splits = std::any_of(m.roots.begin(), m.roots.end(), [&](int r) { return roots.has(r); });
      out.push_back(splits ? 1 : static_cast<double>((extent_[static_cast<size_t>(roots.first())] + 31) / 32));
    }
    return out;
  }
  /// Bytes of a block: its loads, and the largest contraction's or reduction's result.
  int64_t memory_of(const Split& s, const std::vector<size_t>& chosen) {
    const auto each = [&](const Roots& roots, auto&& f) { for (size_t k = 0; k < roots.size(); k++) f(static_cast<size_t>(roots[k])); };
    const Roots* const loop = s.loop_group >= 0 ? &groups_[static_cast<size_t>(s.loop_group)].roots : nullptr;
    if (loop) each(*loop, [&](size_t r) { tile_[r] = std::min<int64_t>(tile_[r], 32); });
    for (size_t a = 0; a < chosen.size(); a++)
      each(roots(chosen[a]), [&](size_t r) {
        tile_[r] = std::min<int64_t>(tile_[r], static_cast<int>(a) == s.partial_axis ? 128 : multiplied_[r] ? 16 : 1);
      });
    const auto bytes_of = [&](const Tile& t) {
      int64_t n = t.size;
      for (int r : t.roots) n *= tile_[static_cast<size_t>(r)];
      return n;
    };
    int64_t loads = 0, largest = 0;
    for (const Tile& t : loads_) loads += bytes_of(t);
    for (const Tile& t : results_) largest = std::max(largest, bytes_of(t));
    const auto restore = [&](size_t r) { tile_[r] = extent_[r]; };
    if (loop) each(*loop, restore);
    for (size_t c : chosen) each(roots(c), restore);
    return loads + largest;
  }
  /// Of what is stored in parts, two of each, written and read.
  double part_bytes(size_t group) {
    double& bytes = part_bytes_[group];
    if (bytes >= 0) return bytes;
    bytes = 0;
    for (const Sum& sum : sums_) if (groups_[group].roots.has(sum.root)) bytes += 16 * sum.elements;
    return bytes;
  }
  const Graph& g_;
  const SplitOptions& o_;
  const std::vector<Axis>& axes_;
  const std::vector<Group>& groups_;
  std::vector<int64_t> extent_, tile_;   // by root; tile_: a split's, while its memory is counted
  std::vector<bool> multiplied_;         // by root: rows or columns of a matmul's result
  std::vector<Product> products_;
  std::vector<Tile> loads_, results_;
  std::vector<Sum> sums_;
  std::vector<std::vector<double>> factors_;   // by choice and product: how often blocks make it again; empty: not asked yet
  std::vector<double> part_bytes_;             // by group; -1: not asked yet
  double bytes_ = 0, stored_ = 0;
};

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

Splits enumerate_splits(const Graph& g, const DimClasses& classes, const Problem& p, const SplitOptions& options) {
  Splits out;
  const Indices ix(g, classes, p, options.recompute);
  if (ix.is_too_large()) return out;
  if (ix.uses().size() > kMaxUses) {
    out.index_closed = 1;
    out.index_example = "one kernel for " + std::to_string(ix.uses().size()) + " uses of its inputs";
    return out;
  }
  std::vector<Axis> axes = candidate_axes(ix, p, out);
  std::erase_if(axes, [&](const Axis& a) { return std::count(options.whole.begin(), options.whole.end(), a.cls) > 0; });
  std::vector<unsigned> grids;   // more axes first: fewer are an instance of them
  for (unsigned mask = 0; mask < 1u << axes.size(); mask++) if (std::popcount(mask) <= kMaxAxes) grids.push_back(mask);
  std::stable_sort(grids.begin(), grids.end(), [](unsigned a, unsigned b) { return std::popcount(a) > std::popcount(b); });
  const std::vector<Group> groups = reduction_groups(ix, options, out);
  const std::vector<Indices::Use> uses = uses_by_leaf(ix, p);
  size_t loads = 0;
  const auto is_full = [&] { return out.all.size() >= kMaxSplits || loads >= kMaxLoads; };
  auto add = [&](unsigned mask, int partial, int loop) {
    if (is_full()) return;
    std::vector<const Axis*> chosen;
    for (size_t a = 0; a < axes.size(); a++) if (mask >> a & 1) chosen.push_back(&axes[a]);
    auto at = [&](int i) { return i < 0 ? nullptr : &groups[static_cast<size_t>(i)]; };
    auto s = make_split(p, uses, chosen, at(partial), at(loop));
    if (!s) return;
    s->axis_mask = mask;
    s->partial_group = partial;
    s->loop_group = loop;
    loads += s->loads.size();
    out.all.push_back(std::move(*s));
  };
  const int count = static_cast<int>(groups.size());
  for (unsigned mask : grids) {   // without a partial axis: a grid of no axes is an instance of any other
    if (mask == 0 && !axes.empty()) continue;
    for (int loop = 0; loop < count; loop++) if (groups[static_cast<size_t>(loop)].is_all != options.apart) add(mask, -1, loop);
    if (!options.apart) add(mask, -1, -1);
  }
  for (unsigned mask : grids) {
    if (!options.partial || std::popcount(mask) == kMaxAxes) continue;
    for (int part = 0; part < count && !is_full(); part++) {
      if (groups[static_cast<size_t>(part)].is_all == options.apart) continue;
      add(mask, part, part);
      add(mask, part, -1);
      for (int loop = 0; loop < count; loop++)
        if (groups[static_cast<size_t>(loop)].cls != groups[static_cast<size_t>(part)].cls && groups[static_cast<size_t>(loop)].is_all)
          add(mask, part, loop);
    }
  }
  if (is_full() && out.index_closed++ == 0)
    out.index_example = "more splits than " + std::to_string(out.all.size()) + ", which have " + std::to_string(loads) + " loads";
  if (!options.recompute) Estimate(g, ix, p, options, axes, groups).judge(out.all);
  return out;
}

}  // namespace mirage::search
