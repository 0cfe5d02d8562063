// Leaves out repetitions that only serve the batch of a product, and joins of dimensions that a product sums over; see the header. Each
// value is built anew with some of its dimensions taken apart into factors, of which those that a repetition made are not there: their
// extent is 1, and whatever reads the value broadcasts. What an operator cannot take in this form it gets as the program has it.
#include "ir/fold/unrepeat.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace mirage {
namespace {

/// Part of a dimension. source: the repetition that made it and that is left out, so that the new value has extent 1 there; -1: it is
/// there.
struct Factor {
  int64_t extent = 1;
  NodeId source = -1;
  int64_t here() const { return source < 0 ? extent : 1; }
};
/// Rows up to which a product is divided over groups: with more of them what is computed of weights is worth a kernel of its own.
constexpr int64_t kFewRowsBeside = 64;
using Factors = std::vector<Factor>;   ///< of one dimension, outermost first; none: extent 1
using Shape = std::vector<Factors>;    ///< per dimension of the old value

class Spread {
 public:
  /// skipped: the repetitions that may be left out and the reshapes that need not join what they join, as nodes of g.
  Spread(const Graph& g, std::set<NodeId> skipped)
      : g_(g), skipped_(std::move(skipped)), b_(Level::kKernel), spread_(static_cast<size_t>(g.num_values())), plain_(spread_.size(), -1) {}

  bool run() {
    for (NodeId n = 0; n < g_.num_nodes(); n++) {
      const Node& node = g_.node(n);
      if (const auto* in = g_.form<Input>(n)) plain_[at(node.first_value)] = b_.add_input(in->param, g_.type(node.first_value));
      else if (const auto* out = g_.form<Output>(n)) b_.add_output(out->result, plain(node.operands[0]), out->dtype);
      else if (std::optional<Form> f = wants_spread(n) ? make(n) : std::nullopt) spread_[at(node.first_value)] = std::move(f);
    }
    return !failed_;
  }
  Graph finish(std::vector<DType>* kept, std::vector<ValueId>* place) const {
    std::vector<ValueId> to;
    Graph out = remove_dead(b_.graph(), &to);
    if (place) {
      place->assign(plain_.size(), -1);
      for (size_t v = 0; v < plain_.size(); v++) {
        if (plain_[v] >= 0) (*place)[v] = to[at(plain_[v])];
        if ((*place)[v] < 0 && spread_[v]) (*place)[v] = to[at(spread_[v]->value)];
      }
    }
    if (!kept || kept->empty()) return out;
    std::vector<DType> now(static_cast<size_t>(out.num_values()), DType::kReal);
    const auto keep = [&](size_t v, ValueId made) {
      if (made >= 0 && to[at(made)] >= 0) now[at(to[at(made)])] = (*kept)[v];
    };
    for (size_t v = 0; v < plain_.size(); v++) {
      keep(v, plain_[v]);
      if (spread_[v]) keep(v, spread_[v]->value);
    }
    *kept = std::move(now);
    return out;
  }
  /// Repetitions that a product would have read, and reshapes whose factors it sums over one after the other.
  const std::set<NodeId>& used() const { return used_; }

 private:
  /// joins: the nodes of `skipped` that tell apart what a dimension of the value is a product of.
  struct Form {
    ValueId value = -1;
    Shape shape;
    std::set<NodeId> joins{};
  };

  static size_t at(ValueId v) { return static_cast<size_t>(v); }
  bool wants_spread(NodeId n) const {
    const auto& operands = g_.node(n).operands;
    return skipped_.count(n) || std::any_of(operands.begin(), operands.end(), [&](ValueId v) { return spread_[at(v)].has_value(); });
  }

  Shape plain_shape(ValueId v) const {
    Shape out;
    for (int64_t e : g_.dims(v)) out.push_back(e > 1 ? Factors{{e, -1}} : Factors{});
    return out;
  }
  static Dims dims_of(const Shape& s) {
    Dims out;
    for (const Factors& f : s) {
      for (const Factor& x : f) out.push_back(x.here());
      if (f.empty()) out.push_back(1);
    }
    return out;
  }
  static int rank_of(const Shape& s) {
    size_t rank = 0;
    for (const Factors& f : s) rank += std::max<size_t>(f.size(), 1);
    return static_cast<int>(rank);
  }
  static bool is_simple(const Factors& f) { return f.empty() || (f.size() == 1 && f[0].source < 0); }

  Form form(ValueId v) { return spread_[at(v)] ? *spread_[at(v)] : Form{plain(v), plain_shape(v)}; }

  /// The value as the program has it.
  ValueId plain(ValueId v) {
    ValueId& out = plain_[at(v)];
    if (out >= 0) return out;
    if (const auto& f = spread_[at(v)]; f && std::all_of(f->shape.begin(), f->shape.end(), [](const Factors& x) {
                                          return std::all_of(x.begin(), x.end(), [](const Factor& y) { return y.source < 0; });
                                        }))
      return out = dims_of(f->shape) == g_.dims(v) ? f->value : b_.add(Reshape{g_.dims(v)}, {f->value});
    std::vector<ValueId> operands;
    for (ValueId o : g_.def(v).operands) operands.push_back(plain(o));
    const auto made = b_.try_add(g_.def(v).op, operands);
    failed_ = failed_ || !made;
    return out = made.value_or(0);
  }

  ValueId fit(ValueId v, const Dims& dims) { return b_.graph().dims(v) == dims ? v : b_.add(Reshape{dims}, {v}); }

  std::optional<Form> added(Op op, const std::vector<ValueId>& operands, Shape shape) {
    if (rank_of(shape) > kMaxRank) return std::nullopt;
    const auto v = b_.try_add(std::move(op), operands);
    if (!v || !(b_.graph().dims(*v) == dims_of(shape))) return std::nullopt;
    return Form{*v, std::move(shape)};
  }

  std::optional<Form> make(NodeId n) {
    const Node& node = g_.node(n);
    if (skipped_.count(n) && !g_.form<Reshape>(n)) return repeat(n);
    if (g_.form<Map>(n)) return broadcast(n, 0);
    if (g_.form<MatMul>(n)) return is_factored(n) ? product_by_groups(n) : broadcast(n, 2);
    Form x = form(node.operands[0]);
    if (const auto* r = g_.form<Reduce>(n)) {
      Shape shape = x.shape;
      Factors& f = shape[static_cast<size_t>(r->dim)];
      if (!is_simple(f)) return std::nullopt;
      const int place = rank_of({shape.begin(), shape.begin() + r->dim});
      const int64_t behind = g_.dims(node.first_value)[r->dim];
      f = behind > 1 ? Factors{{behind, -1}} : Factors{};
      return added(Reduce{r->fn, place, r->group}, {x.value}, std::move(shape));
    }
    std::optional<Form> out;
    if (const auto* t = g_.form<Transpose>(n)) out = transpose(*t, x);
    if (g_.form<Reshape>(n)) out = reshape(g_.dims(node.first_value), x);
    if (out) out->joins = x.joins;
    if (out && skipped_.count(n)) out->joins.insert(n);
    return out;
  }

  std::optional<Form> repeat(NodeId n) {
    const Node& node = g_.node(n);
    const auto* r = g_.form<Repeat>(n);
    const auto dim = static_cast<size_t>(r ? r->dim : g_.form<Concat>(n)->dim);
    Form x = form(node.operands[0]);
    Factors& f = x.shape[dim];
    f.insert(f.begin(), Factor{r ? r->count : static_cast<int64_t>(node.operands.size()), n});
    if (rank_of(x.shape) > kMaxRank) return std::nullopt;
    return Form{fit(x.value, dims_of(x.shape)), std::move(x.shape)};
  }

  std::optional<Form> transpose(const Transpose& t, const Form& x) {
    Shape shape;
    Transpose out;
    size_t place = 0;
    for (size_t i = 0; i < x.shape.size(); i++) {
      const auto from = t.perm[i];
      shape.push_back(x.shape[static_cast<size_t>(from)]);
      const int first = rank_of({x.shape.begin(), x.shape.begin() + from});
      for (size_t k = 0; k < std::max<size_t>(shape.back().size(), 1); k++)
        out.perm[place++] = static_cast<int8_t>(first + static_cast<int>(k));
    }
    return added(out, {x.value}, std::move(shape));
  }

  /// The same factors in other dimensions; one that a border cuts is taken apart.
  std::optional<Form> reshape(const Dims& dims, const Form& x) {
    Factors all;
    for (const Factors& f : x.shape) all.insert(all.end(), f.begin(), f.end());
    Shape shape;
    size_t next = 0;
    for (int64_t e : dims) {
      shape.emplace_back();
      while (e > 1) {
        if (next == all.size()) return std::nullopt;
        Factor& f = all[next];
        if (e % f.extent == 0) { shape.back().push_back(f); e /= f.extent; next++; }
        else if (f.extent % e == 0) { shape.back().push_back({e, f.source}); f.extent /= e; e = 1; }
        else return std::nullopt;
      }
    }
    if (rank_of(shape) > kMaxRank) return std::nullopt;
    return Form{fit(x.value, dims_of(shape)), std::move(shape)};
  }

  /// The factors of one dimension of a result, from those of operands that have it: equal ones, or one that is taken apart as another has
  /// it.
  static std::optional<Factors> common(const std::vector<Factors>& all) {
    Factors out;
    for (const Factors& f : all) if (f.size() > out.size()) out = f;
    for (const Factors& f : all) {
      int64_t product = 1;
      for (const Factor& x : out) product *= x.extent;
      if (f.empty() || (f.size() == 1 && f[0].source < 0 && f[0].extent == product)) continue;
      if (f.size() != out.size()) return std::nullopt;
      for (size_t i = 0; i < f.size(); i++) if (f[i].extent != out[i].extent) return std::nullopt;
    }
    for (size_t i = 0; i < out.size(); i++)
      for (const Factors& f : all) if (!f.empty() && (f.size() != out.size() || f[i].source < 0)) out[i].source = -1;
    return out;
  }
  /// One dimension of an operand among these factors.
  static Dims beside(const Factors& own, const Factors& result) {
    Dims out;
    for (size_t i = 0; i < std::max<size_t>(result.size(), 1); i++)
      out.push_back(own.empty() ? 1 : own.size() == result.size() ? own[i].here() : result[i].extent);
    return out;
  }

  /// Elementwise functions, and products with as many last dimensions as `own`, which each operand has for itself.
  std::optional<Form> broadcast(NodeId n, size_t own) {
    const Node& node = g_.node(n);
    std::vector<Form> operands;
    for (ValueId v : node.operands) operands.push_back(form(v));
    const auto rank = static_cast<size_t>(g_.dims(node.first_value).rank());
    Shape shape(rank);
    for (size_t d = 0; d + own < rank; d++) {
      std::vector<Factors> all;
      for (const Form& f : operands) if (d + f.shape.size() >= rank) all.push_back(f.shape[d + f.shape.size() - rank]);
      const auto factors = common(all);
      if (!factors) return std::nullopt;
      shape[d] = *factors;
    }
    for (const Form& f : operands)
      for (size_t d = f.shape.size() - std::min(own, f.shape.size()); d < f.shape.size(); d++)
        if (!is_simple(f.shape[d])) return std::nullopt;
    if (own == 2) shape[rank - 2] = operands[0].shape[rank - 2], shape[rank - 1] = operands[1].shape[rank - 1];
    if (rank_of(shape) > kMaxRank) return std::nullopt;
    std::vector<ValueId> values;
    std::set<NodeId> saved, joins;
    for (const Form& f : operands) {
      joins.insert(f.joins.begin(), f.joins.end());
      Dims dims;
      for (size_t d = 0; d < f.shape.size(); d++) {
        const Factors& of = f.shape[d];
        const size_t in_result = d + rank - f.shape.size();
        for (int64_t e : in_result + own < rank ? beside(of, shape[in_result]) : Dims{of.empty() ? 1 : of[0].extent}) dims.push_back(e);
        for (const Factor& x : of) if (x.source >= 0) saved.insert(x.source);
      }
      values.push_back(fit(f.value, dims));
    }
    if (own == 0) {  // a factor of the result: another operand differs along what this one repeats
      joins.insert(saved.begin(), saved.end());
      for (const Factors& f : shape)
        for (const Factor& x : f) joins.erase(x.source);
    }
    auto out = added(node.op, values, std::move(shape));
    if (out && own == 2) used_.insert(saved.begin(), saved.end());
    if (out) out->joins = std::move(joins);
    return out;
  }

  // ---- products over a dimension of factors: a sum of products over its last factor
  bool is_factored(NodeId n) {
    const auto& o = g_.node(n).operands;
    const Form x = form(o[0]), y = form(o[1]);
    return !is_simple(x.shape.back()) || !is_simple(y.shape[y.shape.size() - 2]);
  }
  /// Elements of y for each of the reduction and each matrix of x: the rows of a product of weights x.
  int64_t rows_beside(ValueId x, ValueId y, int64_t depth) const {
    int64_t batch = 1;
    for (int d = 0; d + 2 < g_.dims(x).rank(); d++) batch *= g_.dims(x)[d];
    return g_.dims(y).elements() / depth / batch;
  }
  /// x, [batch, own dimensions] with dimension `at` of `all` factors, as [all factors but the last, batch, own dimensions with the last],
  /// with `rank` dimensions of batch.
  ValueId groups_first(const Form& x, size_t at, const Factors& all, size_t rank) {
    Dims dims;
    for (size_t d = x.shape.size(); d < rank + 2; d++) dims.push_back(1);
    const size_t first = static_cast<size_t>(dims.rank()) + at, leading = all.size() - 1;
    for (size_t d = 0; d < x.shape.size(); d++)
      for (int64_t e : d == at ? beside(x.shape[d], all) : dims_of({x.shape[d]})) dims.push_back(e);
    Transpose t;
    size_t place = 0;
    for (size_t i = 0; i < leading; i++) t.perm[place++] = static_cast<int8_t>(first + i);
    for (size_t i = 0; i < static_cast<size_t>(dims.rank()); i++)
      if (i < first || i >= first + leading) t.perm[place++] = static_cast<int8_t>(i);
    const ValueId v = fit(x.value, dims);
    return first == 0 ? v : b_.add(t, {v});
  }
  std::optional<Form> product_by_groups(NodeId n) {
    const Node& node = g_.node(n);
    const Form x = form(node.operands[0]), y = form(node.operands[1]);
    const size_t at_x = x.shape.size() - 1, at_y = y.shape.size() - 2;
    const auto all = common({x.shape[at_x], y.shape[at_y]});
    const auto there = [](const Factor& f) { return f.source < 0; };
    if (!all || all->size() < 2 || !std::all_of(all->begin(), all->end(), there)) return std::nullopt;
    std::set<NodeId> joins = x.joins;
    joins.insert(y.joins.begin(), y.joins.end());
    const int64_t depth = g_.dims(node.operands[0])[static_cast<int>(at_x)];
    // the joined operand is the larger one: a row that was normed by groups is not worth a product for each
    const auto is_weight = [&](const Form& f, size_t own) {
      const ValueId weight = node.operands[own], rows = node.operands[1 - own];
      return !f.joins.empty() && g_.dims(weight).elements() >= g_.dims(rows).elements() &&
             rows_beside(weight, rows, depth) <= kFewRowsBeside;
    };
    const bool few = is_weight(y, 1) || is_weight(x, 0);
    if (joins.empty() || !few) return std::nullopt;
    for (size_t d = 0; d < x.shape.size(); d++)
      if (d != at_x && !is_simple(x.shape[d])) return std::nullopt;
    for (size_t d = 0; d < y.shape.size(); d++)
      if (d != at_y && !is_simple(y.shape[d])) return std::nullopt;
    const size_t rank = std::max(x.shape.size(), y.shape.size()) - 2, leading = all->size() - 1;
    if (rank + 2 + leading > static_cast<size_t>(kMaxRank)) return std::nullopt;
    auto v = b_.try_add(MatMul{}, {groups_first(x, at_x, *all, rank), groups_first(y, at_y, *all, rank)});
    for (size_t i = 0; v && i < leading; i++) v = b_.try_add(Reduce{ReduceFn::kSum, static_cast<int>(i), 0}, {*v});
    if (!v) return std::nullopt;
    used_.insert(joins.begin(), joins.end());
    Shape shape = plain_shape(node.first_value);  // with what the sums leave in front: a reshape in the middle would keep kernels apart
    Factors& first = shape.front();
    if (first.empty()) first.push_back({});
    first.insert(first.begin(), leading, Factor{});
    return Form{fit(*v, dims_of(shape)), std::move(shape)};
  }

  const Graph& g_;
  std::set<NodeId> skipped_, used_;
  Builder b_;
  std::vector<std::optional<Form>> spread_;   // of values that have factors
  std::vector<ValueId> plain_;
  bool failed_ = false;
};

}  // namespace

namespace {

/// Whether an elementwise function below v reads something that is the same along some of its dimensions from `first` to `last`, and not
/// along all of them: weights times a scale per group.
bool is_told_apart(const Graph& g, ValueId v, int first, int last) {
  const int rank = g.dims(v).rank();
  const auto along = [&](ValueId o) {  // of the dimensions that are not 1 in v: how many o has
    int n = 0;
    for (int d = first; d <= last; d++) {
      const int e = d - (rank - g.dims(o).rank());
      n += g.dims(v)[d] > 1 && e >= 0 && g.dims(o)[e] > 1;
    }
    return n;
  };
  const auto* m = g.def_form<Map>(v);
  if (!m) return false;
  const int all = along(v);
  return std::any_of(g.def(v).operands.begin(), g.def(v).operands.end(), [&](ValueId o) {
    const int n = along(o);
    return (n > 0 && n < all) || (n == all && g.dims(o).rank() == rank && is_told_apart(g, o, first, last));
  });
}

/// A reshape that makes one dimension of several of a computed value which tells them apart.
bool is_join(const Graph& g, NodeId n) {
  if (!g.form<Reshape>(n)) return false;
  const ValueId of = g.node(n).operands[0];
  const Dims &from = g.dims(of), &to = g.dims(g.node(n).first_value);
  int d = 0;
  for (int64_t e : to) {
    const int first = d;
    int64_t product = 1;
    while (d < from.rank() && product < e) product *= from[d++];
    if (product != e) return false;
    if (d > first + 1 && is_told_apart(g, of, first, d - 1)) return true;
  }
  return false;
}

}  // namespace

std::optional<Graph> without_repeats(const Graph& g, std::vector<DType>* kept, std::vector<ValueId>* to) {
  std::set<NodeId> all;
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const auto& of = g.node(n).operands;
    if (const auto* r = g.form<Repeat>(n); r && r->count > 1) all.insert(n);
    if (is_join(g, n)) all.insert(n);
    if (g.form<Concat>(n) && of.size() > 1 && std::all_of(of.begin(), of.end(), [&](ValueId v) { return v == of[0]; })) all.insert(n);
  }
  if (all.empty()) return std::nullopt;
  Spread every(g, all);
  if (!every.run() || every.used().empty()) return std::nullopt;
  Spread some(g, every.used());   // what only other operators read is left as it is
  if (!some.run()) return std::nullopt;
  return some.finish(kept, to);
}

}  // namespace mirage
