// Concatenations of scores before the products that made them; see the header.
#include "ir/fold/scores.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "ir/fold/finished.h"
#include "mirage/ir/rewrite.h"

namespace mirage {
namespace {

class Scores {
 public:
  explicit Scores(const Graph& g) : g_(g), users_(g.users()) {
    for (NodeId n = 0; n < g.num_nodes(); n++)
      if (const auto* c = g.form<Concat>(n); c && of_products(g.node(n).operands, c->dim) && attended(n, c->dim)) joins_.push_back(n);
  }
  bool any() const { return !joins_.empty(); }

  /// nullopt where the new graph could not be built.
  std::optional<Graph> run(std::vector<DType>* kept, std::vector<ValueId>* to) {
    Builder b(Level::kKernel);
    std::vector<ValueId> made;
    const bool is_made = try_rewrite(g_, b, made, [&](NodeId n, std::vector<ValueId>&) -> ValueId {
      if (!std::binary_search(joins_.begin(), joins_.end(), n)) return kCopy;
      return joined(b, g_.node(n).operands, g_.form<Concat>(n)->dim, made).value_or(kGiveUp);
    });
    if (!is_made) return std::nullopt;
    std::vector<std::pair<ValueId, ValueId>> beside;   // of parts that are kept alike
    for (const auto& [parts, value] : pushed_) {
      const auto type = [&](ValueId p) { return kept && !kept->empty() ? (*kept)[at(p)] : DType::kReal; };
      const bool same = std::all_of(parts.begin(), parts.end(), [&](ValueId p) { return type(p) == type(parts[0]); });
      if (same) beside.emplace_back(parts[0], value);
    }
    return finished(b.graph(), made, beside, kept, to);
  }

 private:
  static size_t at(int64_t i) { return static_cast<size_t>(i); }
  using Values = std::vector<ValueId>;

  /// Whether all are computed by the same operator, and nobody else reads them.
  bool alike(const Values& parts) const {
    const Node& first = g_.def(parts[0]);
    return std::all_of(parts.begin(), parts.end(), [&](ValueId v) {
      return g_.def(v).op == first.op && g_.def(v).operands.size() == first.operands.size() && users_[at(v)].size() == 1;
    });
  }
  Values operand(const Values& parts, size_t i) const {
    Values out;
    for (ValueId v : parts) out.push_back(g_.def(v).operands[i]);
    return out;
  }
  /// The same value for all, or the same number.
  bool shared(const Values& parts) const {
    return std::all_of(parts.begin(), parts.end(), [&](ValueId v) {
      return v == parts[0] || (g_.def_form<Const>(v) && g_.def(v).op == g_.def(parts[0]).op);
    });
  }
  /// The dimension of operand v that stands for dimension `dim` of `of`; negative: v has none.
  int own(ValueId v, ValueId of, int dim) const { return dim - g_.dims(of).rank() + g_.dims(v).rank(); }
  /// Whether these operands of the parts are the same for all of dimension dim.
  bool is_broadcast(const Values& some, const Values& parts, int dim) const {
    const int d = own(some[0], parts[0], dim);
    return shared(some) && (d < 0 || g_.dims(some[0])[d] == 1);
  }
  /// The operand of these products that is concatenated, if theirs is their concatenation along dim. -1: they share none.
  int factor(const Values& parts, int dim) const {
    const int rank = g_.dims(parts[0]).rank();
    for (int i : {0, 1}) {
      const Values some = operand(parts, static_cast<size_t>(i)), same = operand(parts, static_cast<size_t>(1 - i));
      if (dim != rank - 2 + i || !shared(same)) continue;
      const auto fits = [&](ValueId v) { return g_.dims(v).rank() == g_.dims(some[0]).rank(); };
      if (std::all_of(some.begin(), some.end(), fits) && !shared(some)) return i;
    }
    return -1;
  }
  /// Whether the concatenation of these is a product of a concatenation, with equal functions behind it or none.
  bool of_products(const Values& parts, int dim) const {
    if (!alike(parts)) return false;
    const Op& op = g_.def(parts[0]).op;
    if (std::holds_alternative<MatMul>(op)) return factor(parts, dim) >= 0;
    if (const auto* t = std::get_if<Transpose>(&op)) return of_products(operand(parts, 0), t->perm[at(dim)]);
    if (!std::holds_alternative<Map>(op)) return false;
    int products = 0;
    for (size_t i = 0; i < g_.def(parts[0]).operands.size(); i++) {
      const Values some = operand(parts, i);
      if (is_broadcast(some, parts, dim)) continue;
      const int d = own(some[0], parts[0], dim);
      for (size_t k = 0; k < parts.size(); k++)
        if (own(some[k], parts[k], dim) != d || d < 0 || g_.dims(some[k])[d] != g_.dims(parts[k])[dim]) return false;
      if (!of_products(some, d)) return false;
      products++;
    }
    return products > 0;
  }

  /// Whether what is made of the concatenation n is summed over its dimension in a product, as exponentials.
  bool attended(NodeId n, int dim) const {
    struct Place { int dim; bool is_exponential; };
    std::map<ValueId, Place> found{{g_.node(n).first_value, {dim, false}}};
    for (NodeId m = n + 1; m < g_.num_nodes(); m++) {
      const Node& node = g_.node(m);
      for (size_t i = 0; i < node.operands.size(); i++) {
        const auto it = found.find(node.operands[i]);
        if (it == found.end()) continue;
        const Dims& from = g_.dims(it->first);
        const Place p = it->second;
        if (g_.form<MatMul>(m) && p.is_exponential && p.dim == from.rank() - (i == 0 ? 1 : 2)) return true;
        const int d = followed(m, from, p.dim);
        if (d < 0) continue;
        const auto* map = g_.form<Map>(m);
        const auto [known, fresh] = found.emplace(node.first_value, Place{d, p.is_exponential});
        known->second.is_exponential |= p.is_exponential || (map && map->fn == MapFn::kExp);
        if (!fresh && known->second.dim != d) { found.erase(known); break; }
      }
    }
    return false;
  }
  /// Where a dimension of an operand is in node m's value; -1: not there, or not alone.
  int followed(NodeId m, const Dims& from, int dim) const {
    const Node& node = g_.node(m);
    if (node.first_value < 0) return -1;
    const Dims& to = g_.dims(node.first_value);
    if (g_.form<Map>(m)) return dim + to.rank() - from.rank();
    if (const auto* r = g_.form<Reduce>(m)) return r->dim == dim ? -1 : dim;
    if (const auto* s = g_.form<Slice>(m)) return s->dim == dim ? -1 : dim;
    if (const auto* r = g_.form<Repeat>(m)) return r->dim == dim ? -1 : dim;
    if (const auto* t = g_.form<Transpose>(m)) return static_cast<int>(std::find(t->perm.begin(), t->perm.end(), dim) - t->perm.begin());
    if (!g_.form<Reshape>(m)) return -1;
    const auto inner = [](const Dims& d, int of) {
      int64_t out = 1;
      for (int i = of + 1; i < d.rank(); i++) out *= d[i];
      return out;
    };
    for (int d = 0; d < to.rank(); d++)
      if (to[d] == from[dim] && inner(to, d) == inner(from, dim)) return d;
    return -1;
  }

  /// of_products(): the value in their concatenation's place.
  std::optional<ValueId> joined(Builder& b, const Values& parts, int dim, const std::vector<ValueId>& made) {
    const Node& first = g_.def(parts[0]);
    std::vector<ValueId> operands;
    for (size_t i = 0; i < first.operands.size(); i++) {
      const Values some = operand(parts, i);
      std::optional<ValueId> v;
      if (g_.def_form<MatMul>(parts[0])) {
        const int rank = g_.dims(some[0]).rank();
        v = static_cast<int>(i) == factor(parts, dim) ? side_by_side(b, some, i == 0 ? rank - 2 : rank - 1, made) : made[at(some[0])];
      } else if (const auto* t = g_.def_form<Transpose>(parts[0])) {
        v = joined(b, some, t->perm[at(dim)], made);
      } else {
        v = is_broadcast(some, parts, dim) ? made[at(some[0])] : joined(b, some, own(some[0], parts[0], dim), made);
      }
      if (!v) return std::nullopt;
      operands.push_back(*v);
    }
    const auto out = b.try_add(first.op, operands);
    if (out) pushed_.emplace_back(parts, *out);
    return out;
  }
  /// Factors in one: of transposed ones what is transposed is joined, where it lies.
  std::optional<ValueId> side_by_side(Builder& b, const Values& parts, int dim, const std::vector<ValueId>& made) {
    const auto* t = g_.def_form<Transpose>(parts[0]);
    const bool all = t && std::all_of(parts.begin(), parts.end(), [&](ValueId v) { return g_.def(v).op == g_.def(parts[0]).op; });
    std::optional<ValueId> out;
    if (all) {
      const auto inner = side_by_side(b, operand(parts, 0), t->perm[at(dim)], made);
      out = inner ? b.try_add(*t, {*inner}) : std::nullopt;
    } else {
      std::vector<ValueId> operands;
      for (ValueId v : parts) operands.push_back(made[at(v)]);
      out = b.try_add(Concat{dim}, operands);
    }
    if (out) pushed_.emplace_back(parts, *out);
    return out;
  }

  const Graph& g_;
  const std::vector<std::vector<NodeId>> users_;
  std::vector<NodeId> joins_;                       ///< concatenations that go, ascending
  std::vector<std::pair<Values, ValueId>> pushed_;  ///< values of g, their concatenation in the new graph
};

}  // namespace

std::optional<Graph> joined_scores(const Graph& g, std::vector<DType>* kept, std::vector<ValueId>* to) {
  Scores s(g);
  return s.any() ? s.run(kept, to) : std::nullopt;
}

}  // namespace mirage
