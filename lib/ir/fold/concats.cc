// Leaves out concatenations whose readers can be had part by part; see the header. A value that is made of one is *cut*: it is there as
// its parts along one dimension. Who needs it in one piece blames the concatenations that it is made of; they stay, and all is made anew.
#include "ir/fold/concats.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace mirage {
namespace {

/// More parts make more of every operator than a kernel less is worth (windows of a padded tensor are cut anywhere).
constexpr size_t kMaxParts = 8;

/// A value as its parts along a dimension. Part i begins at border i, the last border is the extent. from: the concatenations it is made
/// of.
struct Parted {
  int dim = 0;
  std::vector<int64_t> borders;
  std::vector<ValueId> parts;
  std::set<NodeId> from;
};

class Concats {
 public:
  /// open: concatenations to be left out, as nodes of g.
  Concats(const Graph& g, const std::set<NodeId>& open)
      : g_(g), open_(open), b_(Level::kKernel), whole_(at(g.num_values()), -1), cut_(at(g.num_values())), is_loaded_(at(g.num_values())) {}

  /// False where the new graph could not be built.
  bool run() {
    for (NodeId n = 0; n < g_.num_nodes() && !failed_; n++) {
      const Node& node = g_.node(n);
      if (const auto* in = g_.form<Input>(n)) whole_[at(node.first_value)] = b_.add_input(in->param, g_.type(node.first_value));
      else if (const auto* out = g_.form<Output>(n)) b_.add_output(out->result, whole(node.operands[0]), out->dtype);
      else make(n);
      if (node.first_value < 0) continue;
      const bool of_loaded = std::all_of(node.operands.begin(), node.operands.end(), [&](ValueId v) { return bool{is_loaded_[at(v)]}; });
      is_loaded_[at(node.first_value)] = (g_.form<Map>(n) && of_loaded) || node.operands.empty();
    }
    return !failed_;
  }
  /// Those that something needs in one piece.
  const std::set<NodeId>& blamed() const { return blamed_; }
  /// These and those that they meet.
  std::set<NodeId> together(std::set<NodeId> some) const {
    for (size_t before = 0; before != some.size();) {
      before = some.size();
      for (const auto& c : cut_)
        if (c && std::any_of(c->from.begin(), c->from.end(), [&](NodeId n) { return some.count(n) > 0; }))
          some.insert(c->from.begin(), c->from.end());
    }
    return some;
  }

  Graph finish(std::vector<DType>* kept, std::vector<ValueId>* to) const {
    std::vector<ValueId> alive;
    Graph out = remove_dead(b_.graph(), &alive);
    const auto now = [&](ValueId v) { return v >= 0 ? alive[at(v)] : -1; };
    if (kept && !kept->empty()) {
      std::vector<DType> types(at(out.num_values()), DType::kReal);
      const auto keep = [&](size_t old, ValueId made) { if (now(made) >= 0) types[at(now(made))] = (*kept)[old]; };
      for (size_t v = 0; v < whole_.size(); v++) {
        if (!cut_[v]) keep(v, whole_[v]);
        else for (ValueId p : cut_[v]->parts) keep(v, p);
      }
      for (const auto& [key, made] : slices_) keep(at(std::get<0>(key)), made);
      *kept = std::move(types);
    }
    if (to) {
      to->clear();
      for (size_t v = 0; v < whole_.size(); v++) to->push_back(cut_[v] ? -1 : now(whole_[v]));
    }
    return out;
  }

 private:
  static size_t at(int64_t i) { return static_cast<size_t>(i); }

  ValueId add(Op op, std::vector<ValueId> operands) {
    const auto v = b_.try_add(std::move(op), std::move(operands));
    failed_ = failed_ || !v;
    return v.value_or(0);
  }
  ValueId whole(ValueId v) {
    ValueId& out = whole_[at(v)];
    if (out >= 0) return out;
    blame(*cut_[at(v)]);
    return out = add(Concat{cut_[at(v)]->dim}, cut_[at(v)]->parts);
  }
  void blame(const Parted& c) { blamed_.insert(c.from.begin(), c.from.end()); }

  void make(NodeId n) {
    const Node& node = g_.node(n);
    const bool is_cut = std::any_of(node.operands.begin(), node.operands.end(), [&](ValueId v) { return cut_[at(v)].has_value(); });
    std::optional<Parted> c;
    if (open_.count(n)) c = joined(n);
    else if (is_cut && g_.form<Map>(n)) c = mapped(n);
    else if (is_cut && node.operands.size() == 1) c = of_one(n, *cut_[at(node.operands[0])]);
    if (failed_) return;
    if (c && c->parts.size() == 1) {
      whole_[at(node.first_value)] = c->parts[0];
    } else if (c && c->parts.size() <= kMaxParts) {
      cut_[at(node.first_value)] = std::move(c);
    } else {
      if (c) blame(*c);
      std::vector<ValueId> operands;
      for (ValueId v : node.operands) operands.push_back(whole(v));
      if (!failed_) whole_[at(node.first_value)] = add(node.op, operands);
    }
  }

  /// A concatenation of operands that may be cut along the same dimension themselves.
  Parted joined(NodeId n) {
    Parted out{g_.form<Concat>(n)->dim, {0}, {}, {n}};
    for (ValueId v : g_.node(n).operands) {
      const int64_t before = out.borders.back();
      if (const auto& c = cut_[at(v)]; c && c->dim == out.dim) {
        for (size_t i = 1; i < c->borders.size(); i++) out.borders.push_back(before + c->borders[i]);
        out.parts.insert(out.parts.end(), c->parts.begin(), c->parts.end());
        out.from.insert(c->from.begin(), c->from.end());
      } else {
        out.borders.push_back(before + g_.dims(v)[out.dim]);
        out.parts.push_back(whole(v));
      }
    }
    return out;
  }

  /// An elementwise function: cut at the borders of all its operands. nullopt if they are cut along different dimensions.
  std::optional<Parted> mapped(NodeId n) {
    const Node& node = g_.node(n);
    const int rank = g_.dims(node.first_value).rank();
    Parted out;
    std::set<int64_t> borders;
    for (ValueId v : node.operands) {
      const auto& c = cut_[at(v)];
      if (!c) continue;
      const int dim = c->dim + rank - g_.dims(v).rank();
      if (!borders.empty() && dim != out.dim) return std::nullopt;
      out.dim = dim;
      borders.insert(c->borders.begin(), c->borders.end());
      out.from.insert(c->from.begin(), c->from.end());
    }
    out.borders.assign(borders.begin(), borders.end());
    for (size_t i = 0; i + 1 < out.borders.size(); i++) {
      std::vector<ValueId> operands;
      for (ValueId v : node.operands) {
        const int dim = out.dim - rank + g_.dims(v).rank();
        operands.push_back(dim < 0 || g_.dims(v)[dim] == 1 ? whole(v) : part(v, dim, out.borders[i], out.borders[i + 1]));
      }
      if (failed_) return std::nullopt;
      out.parts.push_back(add(node.op, operands));
    }
    return out;
  }
  /// Elements [from, to) of v, which do not cross a border of it.
  ValueId part(ValueId v, int dim, int64_t from, int64_t to) {
    const auto& c = cut_[at(v)];
    if (!c) return sliced(v, dim, from, to);
    const size_t i = at(std::upper_bound(c->borders.begin(), c->borders.end(), from) - c->borders.begin() - 1);
    if (c->borders[i] == from && c->borders[i + 1] == to) return c->parts[i];
    ValueId& out = slices_.try_emplace({v, dim, from, to}, -1).first->second;
    if (out < 0) out = add(Slice{dim, from - c->borders[i], to - c->borders[i], 1}, {c->parts[i]});
    return out;
  }
  /// Elements [from, to) of v along a dimension. What elementwise functions make of inputs and positions (masks) is computed of their
  /// slices.
  ValueId sliced(ValueId v, int dim, int64_t from, int64_t to) {
    const std::tuple key{v, dim, from, to};
    if (const auto known = slices_.find(key); known != slices_.end()) return known->second;
    ValueId out = -1;
    if (const auto* iota = g_.def_form<Iota>(v)) {
      Iota part = *iota;
      part.dims[dim] = to - from;
      out = add(part, {});
      if (dim == part.dim && from > 0) out = add(Map{MapFn::kAdd}, {out, b_.constant(static_cast<double>(from))});
    } else if (g_.def_form<Map>(v) && is_loaded_[at(v)]) {
      std::vector<ValueId> operands;
      for (ValueId o : g_.def(v).operands) {
        const int own = dim - g_.dims(v).rank() + g_.dims(o).rank();
        operands.push_back(own < 0 || g_.dims(o)[own] == 1 ? whole(o) : sliced(o, own, from, to));
      }
      if (!failed_) out = add(g_.def(v).op, operands);
    } else {
      out = add(Slice{dim, from, to, 1}, {whole(v)});
    }
    return slices_[key] = out;
  }

  /// Operators of one operand, which is cut.
  std::optional<Parted> of_one(NodeId n, const Parted& x) {
    const Node& node = g_.node(n);
    if (const auto* r = g_.form<Reduce>(n)) return reduced(*r, x);
    if (const auto* s = g_.form<Slice>(n); s && s->dim == x.dim) return cut_off(*s, x);
    if (const auto* r = g_.form<Reshape>(n)) return reshaped(g_.dims(node.operands[0]), r->dims, x);
    if (const auto* r = g_.form<Repeat>(n); r && r->dim == x.dim) return std::nullopt;
    if (!g_.form<Slice>(n) && !g_.form<Repeat>(n) && !g_.form<Transpose>(n)) return std::nullopt;
    Parted out = x;
    if (const auto* t = g_.form<Transpose>(n))
      out.dim = static_cast<int>(std::find(t->perm.begin(), t->perm.end(), x.dim) - t->perm.begin());
    for (ValueId& p : out.parts) p = add(node.op, {p});
    return out;
  }
  std::optional<Parted> reduced(const Reduce& r, const Parted& x) {
    Parted out = x;
    if (r.dim == x.dim && r.group > 0) {
      for (int64_t& b : out.borders) {
        if (b % r.group) return std::nullopt;
        b /= r.group;
      }
    }
    const bool ends = r.dim == x.dim && r.group == 0;
    for (ValueId& p : out.parts)
      if (!ends || b_.graph().dims(p)[r.dim] > 1) p = add(r, {p});
    if (!ends || failed_) return out;
    ValueId all = out.parts[0];
    for (size_t i = 1; i < out.parts.size(); i++) all = add(Map{r.fn == ReduceFn::kSum ? MapFn::kAdd : MapFn::kMax}, {all, out.parts[i]});
    out.parts = {all};
    return out;
  }
  /// A slice along the dimension that is cut: of the parts in which it has elements.
  Parted cut_off(const Slice& s, const Parted& x) {
    Parted out{x.dim, {0}, {}, x.from};
    const auto elements_before = [&](int64_t place) {
      return std::max<int64_t>(0, (std::min(place, s.stop) - s.start + s.step - 1) / s.step);
    };
    for (size_t i = 0; i < x.parts.size(); i++) {
      const int64_t first = elements_before(x.borders[i]), end = elements_before(x.borders[i + 1]);
      const int64_t extent = x.borders[i + 1] - x.borders[i];
      if (first == end) continue;
      const int64_t start = s.start + first * s.step - x.borders[i], last = start + (end - first - 1) * s.step;
      out.borders.push_back(end);
      out.parts.push_back(end - first == extent ? x.parts[i] : add(Slice{s.dim, start, last + 1, s.step}, {x.parts[i]}));
    }
    return out;
  }
  /// The same elements in other dimensions, one of which begins where the cut one does and is divided by its borders.
  std::optional<Parted> reshaped(const Dims& from, const Dims& to, const Parted& x) {
    const auto before = [](const Dims& d, int dim) {
      int64_t n = 1;
      for (int i = 0; i < dim; i++) n *= d[i];
      return n;
    };
    int dim = 0;
    while (dim < to.rank() && (to[dim] == 1 || before(to, dim) != before(from, x.dim))) dim++;
    if (dim == to.rank()) return std::nullopt;
    const int64_t inner = before(from, from.rank()) / before(from, x.dim + 1), inner_now = before(to, to.rank()) / before(to, dim + 1);
    Parted out = x;
    out.dim = dim;
    for (int64_t& b : out.borders) {
      if (b * inner % inner_now) return std::nullopt;
      b = b * inner / inner_now;
    }
    for (size_t i = 0; i < x.parts.size(); i++) {
      Dims dims = to;
      dims[dim] = out.borders[i + 1] - out.borders[i];
      out.parts[i] = add(Reshape{dims}, {x.parts[i]});
    }
    return out;
  }

  const Graph& g_;
  const std::set<NodeId>& open_;
  Builder b_;
  std::vector<ValueId> whole_;
  std::vector<std::optional<Parted>> cut_;
  std::vector<bool> is_loaded_;   ///< inputs, constants and positions, and what elementwise functions make of them
  std::map<std::tuple<ValueId, int, int64_t, int64_t>, ValueId> slices_;   ///< by value, dimension, start and stop
  std::set<NodeId> blamed_;
  bool failed_ = false;
};

}  // namespace

/// Those of these concatenations that are made of a product, or that a product is made of.
static std::set<NodeId> beside_products(const Graph& g, const std::set<NodeId>& concats) {
  const auto all = static_cast<size_t>(g.num_values());
  std::vector<bool> made_of(all), part_of(all);
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    bool any = g.form<MatMul>(n) != nullptr;
    for (ValueId v : node.operands) any = any || made_of[static_cast<size_t>(v)];
    if (node.first_value >= 0) made_of[static_cast<size_t>(node.first_value)] = any;
  }
  for (NodeId n = g.num_nodes() - 1; n >= 0; n--) {
    const Node& node = g.node(n);
    const bool goes_on = g.form<MatMul>(n) || (node.first_value >= 0 && part_of[static_cast<size_t>(node.first_value)]);
    if (goes_on)
      for (ValueId v : node.operands) part_of[static_cast<size_t>(v)] = true;
  }
  std::set<NodeId> out;
  for (NodeId n : concats)
    if (const auto v = static_cast<size_t>(g.node(n).first_value); made_of[v] || part_of[v]) out.insert(n);
  return out;
}

std::optional<Graph> without_concats(const Graph& g, std::vector<DType>* kept, std::vector<ValueId>* to) {
  std::set<NodeId> open;
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const auto& operands = g.node(n).operands;
    const bool repeats = std::all_of(operands.begin(), operands.end(), [&](ValueId v) { return v == operands[0]; });
    if (g.form<Concat>(n) && !repeats) open.insert(n);   // repetitions are unrepeat.h's
  }
  while (!open.empty()) {
    Concats c(g, open);
    if (!c.run()) return std::nullopt;
    if (!c.blamed().empty()) {
      for (NodeId n : c.blamed()) open.erase(n);
      continue;
    }
    std::set<NodeId> worth = c.together(beside_products(g, open));
    if (worth == open) return c.finish(kept, to);
    open = std::move(worth);
  }
  return std::nullopt;
}

}  // namespace mirage
