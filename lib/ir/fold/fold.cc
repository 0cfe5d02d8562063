// Folding adjacent dimensions; see the header. Which pairs of neighbours are joined says fold_groups.h. Here the graph is built anew over
// the joined dimensions; extents of 1 stand where an operator needs them, so a value may get a reshape that only adds or drops them. What
// the folded graph's results are called in the caller's shapes: unfold.cc.
#include "mirage/ir/fold.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "ir/fold/borders.h"
#include "ir/fold/concats.h"
#include "ir/fold/fold_groups.h"
#include "ir/fold/scores.h"
#include "ir/fold/slices.h"
#include "ir/fold/sums.h"
#include "ir/fold/transposes.h"
#include "ir/fold/unrepeat.h"
#include "ir/fold/widened.h"

namespace mirage {
namespace {

using folding::Chains;
using folding::Groups;
using Layout = std::vector<int>;   ///< of a new value, per dimension: which group of the old value's axes it is, -1: extent 1

/// Whether a product of one row each has a batch that its second operand lacks: then these are its rows.
bool batch_as_rows(const Graph& g, NodeId n) {
  if (!g.form<MatMul>(n)) return false;
  const Dims &r = g.dims(g.node(n).first_value), &b = g.dims(g.node(n).operands[1]);
  if (r[r.rank() - 2] != 1) return false;
  for (int d = r.rank() - 3; d >= 0; d--) if (r[d] > 1) return b[d] == 1;
  return false;
}

constexpr int64_t kFewOfInputs = int64_t{1} << 16;   // elements that may be computed in two shapes

/// The elementwise functions that make x of inputs, positions and constants, x's the last; none if it is made of anything else, of many,
/// or large.
/// They are given extents of 1 in the place of their result (batch norm's sqrt(variance + eps) for each channel): kernels of products have
/// no load to which a reshape of something computed belongs.
std::set<ValueId> maps_of_inputs(const Graph& g, ValueId x) {
  constexpr size_t kMost = 16;
  std::set<ValueId> out;
  if (g.dims(x).elements() > kFewOfInputs) return {};
  std::vector<ValueId> open{x};
  while (!open.empty()) {
    ValueId v = open.back();
    open.pop_back();
    if (g.def_form<Map>(v)) {
      if (out.size() >= kMost) return {};
      if (out.insert(v).second) open.insert(open.end(), g.def(v).operands.begin(), g.def(v).operands.end());
      continue;
    }
    while (g.def_form<Reshape>(v)) v = g.def(v).operands[0];
    if (!g.def_form<Input>(v) && !g.def_form<Const>(v) && !g.def_form<Iota>(v)) return {};
  }
  return out;
}
/// Whether these are functions of positions and numbers alone: a mask has whatever extents of 1 its reader wants.
bool are_positions(const Graph& g, const std::set<ValueId>& maps) {
  return std::all_of(maps.begin(), maps.end(), [&](ValueId v) {
    const auto& read = g.def(v).operands;
    return std::all_of(read.begin(), read.end(), [&](ValueId o) { return maps.count(o) || g.def_form<Iota>(o) || g.def_form<Const>(o); });
  });
}

/// Per dimension of `to`, the one of `from` that it is, -1: an extent of 1; none if they differ in others, or (unless `leading`) in leading
/// ones only.
std::vector<int> places(const Dims& from, const Dims& to, bool leading = false) {
  std::vector<int> out;
  int d = 0;
  for (int64_t e : to) {
    while (d < from.rank() && from[d] == 1) d++;
    if (e == 1) { out.push_back(-1); continue; }
    if (d >= from.rank() || from[d] != e) return {};
    out.push_back(d++);
  }
  while (d < from.rank() && from[d] == 1) d++;
  const auto first = std::find_if(out.begin(), out.end(), [](int k) { return k >= 0; });
  return d == from.rank() && (leading || std::count(first, out.end(), -1) > 0) ? out : std::vector<int>{};
}

/// Whether a reshape puts extents of 1 behind dimensions of what maps_of_inputs() has.
bool places_computed(const Graph& g, NodeId n) {
  const auto* r = g.form<Reshape>(n);
  if (!r || r->dims.rank() == 0 || r->dims[r->dims.rank() - 1] != 1) return false;
  const ValueId x = g.node(n).operands[0];
  return !places(g.dims(x), r->dims).empty() && !maps_of_inputs(g, x).empty();
}

/// Builds the folded graph. Forms are asked for what fits as it is, so that only what would not broadcast or contract gets a reshape.
class Lowering {
 public:
  Lowering(const Graph& g, const Chains& chains, const Groups& groups, std::vector<Layout> inputs)
      : g_(g),
        chains_(chains),
        groups_(groups),
        inputs_(std::move(inputs)),
        b_(Level::kKernel),
        at_(static_cast<size_t>(g.num_values()), -1),
        layout_(at_.size()) {}

  bool run() {
    for (NodeId n = 0; n < g_.num_nodes(); n++) if (!lower(n)) return false;
    return true;
  }
  /// Without reshapes that others have looked through. kept: Program::kept, which becomes that of the result.
  Graph finish(std::vector<DType>& kept, std::vector<ValueId>& place) const {
    std::vector<ValueId> to;
    Graph out = remove_dead(b_.graph(), &to);
    place.clear();
    for (ValueId v : at_) place.push_back(v >= 0 ? to[static_cast<size_t>(v)] : -1);
    if (kept.empty()) return out;
    std::vector<DType> now(static_cast<size_t>(out.num_values()), DType::kReal);
    for (size_t v = 0; v < at_.size(); v++)
      if (at_[v] >= 0 && to[static_cast<size_t>(at_[v])] >= 0) {
        DType& t = now[static_cast<size_t>(to[static_cast<size_t>(at_[v])])];
        if (is16(kept[v])) t = kept[v];   // a view that was the identity has the same value as what it shows
      }
    kept = std::move(now);
    return out;
  }
  const Layout& layout(ValueId v) const { return layout_[static_cast<size_t>(v)]; }
  ValueId at(ValueId v) const { return at_[static_cast<size_t>(v)]; }
  const Graph& graph() const { return b_.graph(); }

  /// All groups of v and no extents of 1.
  Layout squeezed(ValueId v) const {
    Layout l(groups(v).size());
    std::iota(l.begin(), l.end(), 0);
    return l;
  }
  /// Folded dimensions that an input's constants may name.
  static std::vector<std::pair<int, int>> fold_extents(const std::vector<std::pair<int, int>>& of,
                                                       const std::vector<std::vector<std::vector<int>>>& factors) {
    std::vector<std::pair<int, int>> out;
    for (auto [param, dim] : of) {
      const auto& joined = factors[static_cast<size_t>(param)];
      // the others of a group are named as often
      for (size_t d = 0; d < joined.size(); d++) if (!joined[d].empty() && joined[d][0] == dim) out.push_back({param, static_cast<int>(d)});
    }
    return out;
  }
  std::vector<std::vector<int>> factors(ValueId input) const {
    std::vector<std::vector<int>> out;
    for (int k : layout(input)) out.push_back(k < 0 ? std::vector<int>{} : groups(input)[static_cast<size_t>(k)]);
    return out;
  }

 private:
  const std::vector<std::vector<int>>& groups(ValueId v) const { return groups_[static_cast<size_t>(v)]; }
  /// The group of v that holds this dimension, -1: it has extent 1.
  int group_of(ValueId v, int dim) const {
    for (size_t k = 0; k < groups(v).size(); k++)
      if (std::find(groups(v)[k].begin(), groups(v)[k].end(), dim) != groups(v)[k].end()) return static_cast<int>(k);
    return -1;
  }
  Dims dims_of(ValueId v, const Layout& l) const {
    Dims out;
    for (int k : l) {
      int64_t extent = 1;
      if (k >= 0) for (int d : groups(v)[static_cast<size_t>(k)]) extent *= g_.dims(v)[d];
      out.push_back(extent);
    }
    return out;
  }
  /// The new value of v with these dimensions: itself, what it is a reshape of, or a reshape.
  ValueId fit(ValueId v, const Dims& dims) { return fitted(at(v), dims); }
  ValueId fitted(ValueId x, const Dims& dims) {
    while (!(b_.graph().dims(x) == dims) && b_.graph().def_form<Reshape>(x)) x = b_.graph().def(x).operands[0];
    if (b_.graph().dims(x) == dims) return x;
    if (const auto* i = b_.graph().def_form<Iota>(x); i && i->dims[i->dim] == i->dims.elements()) {
      const int place = static_cast<int>(std::find(dims.begin(), dims.end(), dims.elements()) - dims.begin());
      if (place < dims.rank()) return once(Iota{place, dims}, {});
    } else if (i) {
      const std::vector<int> from = places(i->dims, dims, true);
      if (const auto place = std::find(from.begin(), from.end(), i->dim); place != from.end())
        return once(Iota{static_cast<int>(place - from.begin()), dims}, {});
    }
    if (const std::set<ValueId> maps = maps_of_inputs(b_.graph(), x); !maps.empty() && b_.graph().dims(x).rank() > 0)
      if (const std::vector<int> from = places(b_.graph().dims(x), dims, are_positions(b_.graph(), maps)); !from.empty())
        return mapped(maps, from);
    return once(Reshape{dims}, {x});
  }
  /// The last one of functions of inputs, with its dimensions at other places.
  ValueId mapped(const std::set<ValueId>& maps, const std::vector<int>& from) {
    const int rank = b_.graph().dims(*maps.rbegin()).rank();
    std::map<ValueId, ValueId> made;
    for (ValueId v : maps) {   // operands first
      const Node node = b_.graph().def(v);
      std::vector<ValueId> operands;
      for (ValueId o : node.operands) {
        if (maps.count(o)) { operands.push_back(made.at(o)); continue; }
        const Dims of = b_.graph().dims(o);
        Dims dims;
        for (int d : from) dims.push_back(d >= rank - of.rank() ? of[d - (rank - of.rank())] : 1);
        operands.push_back(of.rank() == 0 ? o : fitted(o, dims));
      }
      made[v] = once(node.op, operands);
    }
    return made.rbegin()->second;
  }
  ValueId once(const Op& op, std::vector<ValueId> operands) {
    for (const Node& n : b_.graph().nodes())
      if (n.op == op && n.operands == operands) return n.first_value;
    return b_.add(op, std::move(operands));
  }
  bool add(NodeId n, Op op, std::vector<ValueId> operands, Layout layout) {
    const ValueId r = g_.node(n).first_value;
    const auto value = b_.try_add(std::move(op), std::move(operands));
    if (!value || !(b_.graph().dims(*value) == dims_of(r, layout))) return false;
    set(r, *value, std::move(layout));
    return true;
  }
  void set(ValueId r, ValueId value, Layout layout) {
    at_[static_cast<size_t>(r)] = value;
    layout_[static_cast<size_t>(r)] = std::move(layout);
  }
  /// x's layout in groups of r, dimension d of x being d + shift of r; what r has not, or with extent 1, is -1.
  Layout in_groups_of(ValueId r, ValueId x, int shift) const {
    Layout out;
    for (int k : layout(x)) out.push_back(k < 0 ? -1 : group_of(r, groups(x)[static_cast<size_t>(k)][0] + shift));
    return out;
  }
  /// Several layouts beside each other, aligned at the right: nullopt if two differ in a column, or the groups are not `all` of them in
  /// order.
  static std::optional<Layout> merged(const std::vector<Layout>& layouts, const Layout& all) {
    size_t rank = 0;
    for (const Layout& l : layouts) rank = std::max(rank, l.size());
    Layout out(rank, -1), seen;
    for (const Layout& l : layouts)
      for (size_t i = 0; i < l.size(); i++) {
        int& k = out[rank - l.size() + i];
        if (l[i] >= 0 && k >= 0 && k != l[i]) return std::nullopt;
        k = std::max(k, l[i]);
      }
    std::copy_if(out.begin(), out.end(), std::back_inserter(seen), [](int k) { return k >= 0; });
    return seen == all ? std::optional(out) : std::nullopt;
  }
  /// All groups of v, and its extents of 1 between and behind them.
  Layout placed(ValueId v) const {
    Layout out;
    for (int d = 0; d < g_.dims(v).rank(); d++) {
      const int k = group_of(v, d);
      if (k < 0 || groups(v)[static_cast<size_t>(k)][0] == d) out.push_back(k);
    }
    return trimmed(out);
  }
  /// The groups `all` of r as x has them, dimension d of x being d + shift of r.
  Layout aligned(ValueId r, ValueId x, int shift, const Layout& all) const {
    Layout out;
    for (int k : all) {
      if (k < 0) { out.push_back(-1); continue; }
      const int d = groups(r)[static_cast<size_t>(k)][0] - shift;
      out.push_back(d >= 0 ? group_of(x, d) : -1);
    }
    return out;
  }
  static Layout trimmed(Layout l) {
    l.erase(l.begin(), std::find_if(l.begin(), l.end(), [](int k) { return k >= 0; }));
    return l;
  }

  bool map(NodeId n) {
    const Node& node = g_.node(n);
    const ValueId r = node.first_value;
    std::vector<Layout> as_is;
    for (ValueId x : node.operands) as_is.push_back(in_groups_of(r, x, g_.dims(r).rank() - g_.dims(x).rank()));
    std::vector<ValueId> operands;
    const std::optional<Layout> together = merged(as_is, squeezed(r));
    const bool is_placed = std::any_of(as_is.begin(), as_is.end(), [](const Layout& x) {
      const Layout t = trimmed(x);
      return std::count(t.begin(), t.end(), -1) > 0;
    });
    Layout l = together ? *together : is_placed ? placed(r) : squeezed(r);
    if (together && only_positions_lead(node.operands, l)) l = trimmed(l);
    for (ValueId x : node.operands) {
      const bool as_it_is = together && layout(x).size() <= l.size();
      operands.push_back(as_it_is ? at(x) : fit(x, dims_of(x, trimmed(aligned(r, x, g_.dims(r).rank() - g_.dims(x).rank(), l)))));
    }
    return add(n, node.op, operands, l);
  }
  /// Whether only positions have l's leading extents of 1, which are no dimensions of what they meet.
  bool only_positions_lead(const std::vector<ValueId>& operands, const Layout& l) const {
    const size_t rank = trimmed(l).size();
    return rank > 0 && std::all_of(operands.begin(), operands.end(), [&](ValueId x) {
      const auto* i = b_.graph().def_form<Iota>(at(x));
      return layout(x).size() <= rank || (i && i->dims[i->dim] == i->dims.elements());
    });
  }

  bool matmul(NodeId n) {
    const Node& node = g_.node(n);
    const ValueId a = node.operands[0], b = node.operands[1], r = node.first_value;
    const int rank = g_.dims(r).rank(), columns = group_of(r, rank - 1), k_of_a = group_of(a, rank - 1), k_of_b = group_of(b, rank - 2);
    int rows = group_of(r, rank - 2), rows_of_a = group_of(a, rank - 2);
    Layout batch;
    for (int k : squeezed(r)) if (k != rows && k != columns) batch.push_back(k);
    if (batch_as_rows(g_, n)) {
      rows = batch.back();
      rows_of_a = group_of(a, groups(r)[static_cast<size_t>(rows)][0]);
      batch.pop_back();
    }
    auto side = [](Layout l, int second, int last) {
      l.push_back(second);
      l.push_back(last);
      return l;
    };
    const int columns_of_b = group_of(b, rank - 1);
    const Layout &la = layout(a), &lb = layout(b);
    if (la.size() == lb.size() && la.size() >= 2 && la.end()[-2] == rows_of_a && la.back() == k_of_a && lb.end()[-2] == k_of_b &&
        lb.back() == columns_of_b) {
      Layout x = in_groups_of(r, a, 0), y = in_groups_of(r, b, 0);
      x.resize(x.size() - 2);
      y.resize(y.size() - 2);
      if (const auto l = merged({x, y}, batch)) return add(n, MatMul{}, {at(a), at(b)}, side(*l, rows, columns));
    }
    return add(n, MatMul{}, {fit(a, dims_of(a, side(aligned(r, a, 0, batch), rows_of_a, k_of_a))),
                fit(b, dims_of(b, side(aligned(r, b, 0, batch), k_of_b, columns_of_b)))},
               side(batch, rows, columns));
  }

  bool reduce(NodeId n, const Reduce& red) {
    if (chains_.is_inner[static_cast<size_t>(n)]) return true;
    const ValueId r = g_.node(n).first_value;
    const auto chain = chains_.last.find(n);
    if (chain == chains_.last.end()) return one_dim(n, red.dim, [&](int place) { return Op{Reduce{red.fn, place, red.group}}; });
    const ValueId x = chain->second.base;
    const Layout l = in_groups_of(r, x, 0);
    ValueId value = at(x);
    for (int dim : chain->second.dims)
      for (size_t i = 0; i < l.size(); i++) {
        const int k = layout(x)[i];
        if (k < 0 || groups(x)[static_cast<size_t>(k)][0] != dim) continue;   // once per group
        const auto next = b_.try_add(Reduce{red.fn, static_cast<int>(i), 0}, {value});
        if (!next) return false;
        value = *next;
      }
    if (!(b_.graph().dims(value) == dims_of(r, l))) return false;
    set(r, value, l);
    return true;
  }

  /// An operator that changes one dimension, at its place in the layout; where that has extent 1 before and behind it is the identity.
  template <class Make> bool one_dim(NodeId n, int dim, Make make) {
    const ValueId x = g_.node(n).operands[0], r = g_.node(n).first_value;
    const int before = group_of(x, dim), behind = group_of(r, dim);
    if (before < 0 && behind < 0) {
      set(r, at(x), in_groups_of(r, x, 0));
      return true;
    }
    if (before < 0) {   // an extent of 1 that grows: it needs a place
      const Layout all = squeezed(r);
      return add(n, make(static_cast<int>(std::find(all.begin(), all.end(), behind) - all.begin())),
                 {fit(x, dims_of(x, aligned(r, x, 0, all)))}, all);
    }
    const auto place = std::find(layout(x).begin(), layout(x).end(), before) - layout(x).begin();
    return add(n, make(static_cast<int>(place)), {at(x)}, in_groups_of(r, x, 0));
  }

  /// One element along a dimension that is joined with others: repeated while they are apart.
  bool repeat(NodeId n, const Repeat& rep) {
    const ValueId x = g_.node(n).operands[0], r = g_.node(n).first_value;
    const int joined = group_of(r, rep.dim);
    if (joined < 0 || g_.dims(x)[rep.dim] > 1 || groups(r)[static_cast<size_t>(joined)].size() == 1)
      return one_dim(n, rep.dim, [&](int place) { return Op{Repeat{place, rep.count}}; });
    Dims before;
    int place = -1;
    for (int k = 0; k < static_cast<int>(groups(r).size()); k++) {
      if (k != joined) { before.push_back(dims_of(r, {k})[0]); continue; }
      for (int d : groups(r)[static_cast<size_t>(k)]) {
        if (d == rep.dim) place = before.rank();
        before.push_back(d == rep.dim ? 1 : g_.dims(r)[d]);
      }
    }
    const auto apart = b_.try_add(Repeat{place, rep.count}, {fit(x, before)});
    if (!apart) return false;
    set(r, b_.add(Reshape{dims_of(r, placed(r))}, {*apart}), placed(r));
    return true;
  }

  bool concat(NodeId n, int dim) {
    const Node& node = g_.node(n);
    const ValueId r = node.first_value;
    if (node.operands.size() == 1) {
      set(r, at(node.operands[0]), in_groups_of(r, node.operands[0], 0));
      return true;
    }
    const Layout all = squeezed(r);
    std::vector<ValueId> operands;
    for (ValueId x : node.operands) operands.push_back(fit(x, dims_of(x, aligned(r, x, 0, all))));
    return add(n, Concat{static_cast<int>(std::find(all.begin(), all.end(), group_of(r, dim)) - all.begin())}, operands, all);
  }

  bool transpose(NodeId n, const Transpose& t) {
    const ValueId x = g_.node(n).operands[0], r = g_.node(n).first_value;
    const ValueId from = fit(x, dims_of(x, squeezed(x)));
    Transpose out;
    bool is_identity = true;
    for (size_t i = 0; i < groups(r).size(); i++) {
      const int k = group_of(x, t.perm[static_cast<size_t>(groups(r)[i][0])]);
      out.perm[i] = static_cast<int8_t>(k);
      is_identity = is_identity && k == static_cast<int>(i);
    }
    if (!is_identity) return add(n, out, {from}, squeezed(r));
    set(r, from, squeezed(r));
    return true;
  }

  /// Dimensions of extent 1 behind others keep their places: rows and columns of a mask, as long as each other, are told apart by them at
  /// other extents.
  bool iota(NodeId n, const Iota& i) {
    const ValueId r = g_.node(n).first_value;
    Layout l;
    int place = -1;
    for (int d = 0; d < g_.dims(r).rank(); d++) {
      const int k = group_of(r, d);
      if (d == i.dim) place = static_cast<int>(l.size());
      if (d == i.dim || k < 0 || groups(r)[static_cast<size_t>(k)][0] == d) l.push_back(k);
    }
    const auto leading = std::min<std::ptrdiff_t>(place, std::find_if(l.begin(), l.end(), [](int k) { return k >= 0; }) - l.begin());
    l.erase(l.begin(), l.begin() + leading);
    return add(n, Iota{place - static_cast<int>(leading), dims_of(r, l)}, {}, l);
  }

  bool lower(NodeId n) {
    const Node& node = g_.node(n);
    const ValueId r = node.first_value;
    if (const auto* in = g_.form<Input>(n)) {
      const Layout& l = inputs_[static_cast<size_t>(in->param)];
      set(r, b_.add_input(in->param, {g_.type(r).dtype, dims_of(r, l)}), l);
      return true;
    }
    if (const auto* out = g_.form<Output>(n)) {
      b_.add_output(out->result, at(node.operands[0]), out->dtype);
      return true;
    }
    if (const auto* c = g_.form<Const>(n)) return add(n, Const{c->value, fold_extents(c->extent_of, input_factors())}, {}, {});
    if (g_.form<Map>(n)) return map(n);
    if (g_.form<MatMul>(n)) return matmul(n);
    if (const auto* red = g_.form<Reduce>(n)) return reduce(n, *red);
    if (const auto* rep = g_.form<Repeat>(n)) return repeat(n, *rep);
    if (const auto* s = g_.form<Slice>(n))
      return one_dim(n, s->dim, [&](int place) { return Op{Slice{place, s->start, s->stop, s->step}}; });
    if (const auto* c = g_.form<Concat>(n)) return concat(n, c->dim);
    if (const auto* t = g_.form<Transpose>(n)) return transpose(n, *t);
    if (const auto* i = g_.form<Iota>(n)) return iota(n, *i);
    if (g_.form<Reshape>(n)) {
      set(r, fit(node.operands[0], dims_of(r, squeezed(r))), squeezed(r));
      return true;
    }
    return false;
  }

  std::vector<std::vector<std::vector<int>>> input_factors() const {
    std::vector<std::vector<std::vector<int>>> out(inputs_.size());
    for (NodeId n : g_.inputs()) {
      const ValueId v = g_.node(n).first_value;
      for (int k : inputs_[static_cast<size_t>(g_.form<Input>(n)->param)])
        out[static_cast<size_t>(g_.form<Input>(n)->param)].push_back(k < 0 ? std::vector<int>{} : groups(v)[static_cast<size_t>(k)]);
    }
    return out;
  }

  const Graph& g_;
  const Chains& chains_;
  const Groups& groups_;
  const std::vector<Layout> inputs_;   // by param
  Builder b_;
  std::vector<ValueId> at_;
  std::vector<Layout> layout_;
};

/// Layouts of inputs: without extents of 1, or as all that reads one reshapes it to.
std::vector<Layout> input_layouts(const Graph& g, const Lowering& first, const std::vector<Layout>& squeezed) {
  std::vector<Layout> out = squeezed;
  const Graph& made = first.graph();
  const auto users = made.users();
  std::vector<bool> is_read(static_cast<size_t>(made.num_nodes()));
  for (NodeId n = made.num_nodes() - 1; n >= 0; n--) {
    if (made.form<Output>(n)) { is_read[static_cast<size_t>(n)] = true; continue; }
    const auto& readers = users[static_cast<size_t>(made.node(n).first_value)];
    const auto is = [&](NodeId u) { return bool{is_read[static_cast<size_t>(u)]}; };
    is_read[static_cast<size_t>(n)] = std::any_of(readers.begin(), readers.end(), is);
  }
  for (NodeId n : g.inputs()) {
    const auto param = static_cast<size_t>(g.form<Input>(n)->param);
    const ValueId x = first.at(g.node(n).first_value);
    std::optional<Dims> dims;
    bool alike = true;
    for (NodeId u : users[static_cast<size_t>(x)]) {
      const auto* r = made.form<Reshape>(u);
      if (!is_read[static_cast<size_t>(u)]) continue;   // looked through by others
      alike = alike && r && (!dims || *dims == r->dims);
      if (r) dims = r->dims;
    }
    if (!alike || !dims) continue;
    Layout l;
    int k = 0;
    for (int64_t e : *dims) {
      const bool is_next = e > 1 && k < made.dims(x).rank() && made.dims(x)[k] == e;
      if (e > 1 && !is_next) alike = false;
      l.push_back(is_next ? k++ : -1);
    }
    if (alike && k == made.dims(x).rank()) out[param] = l;
  }
  return out;
}

/// Strides along these dimensions of a tensor; where the extent is 1 they do not matter.
TensorInfo joined(const TensorInfo& t, const std::vector<std::vector<int>>& factors) {
  TensorInfo out = t;
  out.type.dims = out.strides = {};
  for (const auto& f : factors) {
    int64_t extent = 1;
    for (int d : f) extent *= t.type.dims[d];
    out.type.dims.push_back(extent);
    out.strides.push_back(f.empty() ? 0 : t.strides[f.back()]);
  }
  int64_t inner = 1;
  for (int d = out.type.dims.rank() - 1; d >= 0; d--) {
    if (factors[static_cast<size_t>(d)].empty()) out.strides[d] = inner;
    inner = out.strides[d] * out.type.dims[d];
  }
  return out;
}

}  // namespace

/// The program with dimensions joined; `folds` is false where nothing could be.
static Folded join_dimensions(const Program& program) {
  Folded out{program, program, false, {}, {}};
  const Graph& g = program.graph;
  if (std::any_of(g.nodes().begin(), g.nodes().end(), [](const Node& n) { return std::holds_alternative<Call>(n.op); })) return out;
  const Chains chains(g);
  const Groups groups = folding::find_groups(program, chains);
  bool changes = false;
  for (NodeId n = 0; n < g.num_nodes(); n++) changes = changes || batch_as_rows(g, n) || places_computed(g, n);
  // An elementwise program, or one all of whose values are joined in the same way, gains nothing; but neither does it lose anything, so
  // there is one rule.
  if (!changes && std::all_of(groups.begin(), groups.end(), [](const auto& of) {
        return std::all_of(of.begin(), of.end(), [](const auto& axes) { return axes.size() == 1; });
      }))
    return out;
  std::vector<Layout> inputs(program.inputs.size());
  for (NodeId n : g.inputs()) {
    Layout& l = inputs[static_cast<size_t>(g.form<Input>(n)->param)];
    l.resize(groups[static_cast<size_t>(g.node(n).first_value)].size());
    std::iota(l.begin(), l.end(), 0);
  }
  Lowering first(g, chains, groups, inputs);
  if (!first.run()) return out;
  Lowering second(g, chains, groups, input_layouts(g, first, inputs));
  if (!second.run()) return out;
  Program folded = program;
  out.factors.resize(program.inputs.size());
  for (NodeId n : g.inputs()) {
    const auto param = static_cast<size_t>(g.form<Input>(n)->param);
    out.factors[param] = second.factors(g.node(n).first_value);
    folded.inputs[param] = joined(program.inputs[param], out.factors[param]);
  }
  for (NodeId n : g.outputs()) {
    const auto result = static_cast<size_t>(g.form<Output>(n)->result);
    folded.outputs[result] = joined(program.outputs[result], second.factors(g.node(n).operands[0]));
  }
  folded.graph = second.finish(folded.kept, out.to);
  out.program = std::move(folded);
  out.folds = true;
  return out;
}

/// The program with small operands repeated so that a product's batch is joined; nullopt where nothing is gained. to: per value of the
/// program, the one in its place.
static std::optional<Program> widened(const Program& program, std::vector<ValueId>& to) {
  const auto partial = folding::find_partial(program, Chains(program.graph));
  if (partial.empty()) return std::nullopt;
  Program out = program;
  auto g = with_widened(program.graph, partial, &out.kept, &to);
  if (!g) return std::nullopt;
  out.graph = *std::move(g);
  const Groups groups = folding::find_groups(out, Chains(out.graph));
  for (const auto& [n, dims] : partial) {
    const ValueId r = to[static_cast<size_t>(program.graph.node(n).first_value)];
    for (const auto& joined : groups[static_cast<size_t>(r)])
      if (joined.size() == 1 && dims.count(joined[0])) return std::nullopt;
  }
  return out;
}

Folded fold(const Program& program) {
  const auto& nodes = program.graph.nodes();
  const bool calls = std::any_of(nodes.begin(), nodes.end(), [](const Node& n) { return std::holds_alternative<Call>(n.op); });
  if (calls) return join_dimensions(program);
  Program p = program;
  std::vector<ValueId> to(static_cast<size_t>(program.graph.num_values())), next;
  std::iota(to.begin(), to.end(), 0);
  const auto follow = [&](const std::vector<ValueId>& further) {
    for (ValueId& v : to) v = v >= 0 ? further[static_cast<size_t>(v)] : -1;
  };
  std::optional<Graph> scores = joined_scores(p.graph, &p.kept, &next);
  if (scores) p.graph = *std::move(scores), follow(next);
  std::optional<Graph> parted = without_concats(p.graph, &p.kept, &next);
  if (parted) p.graph = *std::move(parted), follow(next);
  std::optional<Graph> settled = settled_slices(p.graph, &p.kept, &next);
  if (settled) p.graph = *std::move(settled), follow(next);
  std::optional<Graph> summed = settled_sums(p.graph, &p.kept, &next);
  if (summed) p.graph = *std::move(summed), follow(next);
  std::optional<Graph> broadcast = without_repeats(p.graph, &p.kept, &next);
  if (broadcast) p.graph = *std::move(broadcast), follow(next);
  std::optional<Graph> turned = settled_transposes(p.graph, &p.kept, &next);
  if (turned) p.graph = *std::move(turned), follow(next);
  std::optional<Program> parts = with_borders(p, next);
  if (parts) p = *std::move(parts), follow(next);
  const std::optional<Program> wide = widened(p, next);
  Folded out = join_dimensions(wide ? *wide : p);
  const bool widens = wide && out.folds;
  if (wide && !widens) out = join_dimensions(p);
  if (widens) follow(next);
  if (!scores && !parted && !settled && !summed && !broadcast && !turned && !parts && !widens) return out;
  out.whole = program;
  if (out.folds) follow(out.to);
  out.to = std::move(to);
  if (out.folds) return out;
  out.folds = true;
  for (const TensorInfo& t : program.inputs) {
    out.factors.emplace_back();
    for (int d = 0; d < t.type.dims.rank(); d++)
      out.factors.back().push_back(t.type.dims[d] > 1 ? std::vector<int>{d} : std::vector<int>{});
  }
  return out;
}

}  // namespace mirage
