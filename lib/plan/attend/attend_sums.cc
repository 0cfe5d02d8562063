// Scores that are a sum of two products, each over features of its own (latents and a rotated part; content and positions), as one product
// over both: q a + p b = [q p] [a b]. Nothing is copied: the features of the joined operands lie in two parts (Access::second).
#include <algorithm>
#include <optional>

#include "mirage/ir/rewrite.h"
#include "plan/attend/attend_internal.h"

namespace mirage {
namespace {

/// An operand of a product as it lies in memory.
struct Side { NodeId input = -1; bool is_turned = false; };

class Joiner {
 public:
  Joiner(const Graph& body, const std::vector<Access>& operands) : g_(body), operands_(operands), users_(body.users()) {}

  void run(Graph& body, std::vector<Access>& operands) {
    for (ValueId v = 0; v < g_.num_values(); v++)
      if (find_sum(v)) return join(v, body, operands);
  }

 private:
  struct Joined { Type type; Partition part; Access access; };

  bool find_sum(ValueId v) {
    const Map* m = g_.def_form<Map>(v);
    if (!m || m->fn != MapFn::kAdd) return false;
    const std::vector<ValueId>& o = g_.def(v).operands;
    for (ValueId x : o) if (!g_.def_form<MatMul>(x) || users_[static_cast<size_t>(x)].size() != 1) return false;
    if (o[0] == o[1] || g_.dims(o[0]) != g_.dims(v) || g_.dims(o[1]) != g_.dims(v)) return false;
    for (size_t i = 0; i < 2; i++) {
      const auto first = side(g_.def(o[0]).operands[i]), second = side(g_.def(o[1]).operands[i]);
      if (!first || !second) return false;
      const auto made = joined(*first, *second, i == 0);
      if (!made) return false;
      sides_[i] = *first;
      joined_[i] = *made;
    }
    return joined_[0].access.second.first == joined_[1].access.second.first;
  }

  std::optional<Side> side(ValueId v) const {
    Side s;
    for (; const Transpose* t = g_.def_form<Transpose>(v); v = g_.def(v).operands[0]) {
      const int rank = g_.dims(v).rank();
      for (int d = 0; d + 2 < rank; d++) if (t->perm[static_cast<size_t>(d)] != d) return std::nullopt;
      s.is_turned ^= t->perm[static_cast<size_t>(rank - 1)] != rank - 1;
    }
    if (!g_.def_form<Input>(v)) return std::nullopt;
    s.input = g_.value(v).node;
    return s;
  }
  const Access& access(const Side& s) const { return operands_[static_cast<size_t>(g_.form<Input>(s.input)->param)]; }

  /// Both operands as one, whose features are those of a and behind them those of b. is_left: of the product.
  std::optional<Joined> joined(const Side& a, const Side& b, bool is_left) const {
    const auto is_plain = [](const Access& x) {
      return x.buffer >= 0 && x.position < 0 && x.run == 0 && !x.by_value && x.second.buffer < 0;
    };
    const Access &x = access(a), &y = access(b);
    const Type &of = g_.type(g_.node(a.input).first_value), &also = g_.type(g_.node(b.input).first_value);
    const int rank = of.dims.rank();
    if (!is_plain(x) || !is_plain(y) || x.dtype != y.dtype || of.dtype != also.dtype || also.dims.rank() != rank || x.dims.rank() != rank ||
        y.dims.rank() != rank)
      return std::nullopt;
    const int feature = is_left != a.is_turned ? rank - 1 : rank - 2;
    const auto there = [&](int d) { return a.is_turned == b.is_turned || d < rank - 2 ? d : 2 * rank - 3 - d; };   // of b
    const Partition &p = g_.form<Input>(a.input)->part, &q = g_.form<Input>(b.input)->part;
    Joined j{of, p, x};
    j.access.second = {y.buffer, y.offset, y.strides, feature, x.dims[feature]};
    for (int d = 0; d < rank; d++) {
      const int e = there(d);
      j.access.second.strides[d] = y.dims[e] == 1 && d != feature ? 0 : y.strides[e];
      if (d == feature) {
        j.type.dims[d] += also.dims[e];
        j.access.dims[d] += y.dims[e];
        if (cut(p, d) || cut(q, e)) return std::nullopt;
      } else if (x.dims[d] == 1 && y.dims[e] > 1) {   // the first is the same for all
        j.type.dims[d] = also.dims[e];
        j.access.dims[d] = y.dims[e];
        j.access.strides[d] = 0;
        take(j.part, d, q, e);
      } else if (y.dims[e] != 1 && (x.dims[d] != y.dims[e] || !same(p, d, q, e))) return std::nullopt;
    }
    return j;
  }
  static bool cut(const Partition& p, int d) { return p.loop == d || std::count(p.grid.begin(), p.grid.end(), d) > 0; }
  static bool same(const Partition& p, int d, const Partition& q, int e) {
    bool is_same = (p.loop == d) == (q.loop == e);
    for (size_t x = 0; x < 3; x++) is_same = is_same && (p.grid[x] == d) == (q.grid[x] == e);
    return is_same;
  }
  static void take(Partition& to, int d, const Partition& q, int e) {
    for (size_t x = 0; x < 3; x++) if (q.grid[x] == e) to.grid[x] = static_cast<int8_t>(d);
    if (q.loop == e) to.loop = static_cast<int8_t>(d);
  }

  /// Per value, whether anything needs it when the sum is the joined product.
  std::vector<bool> read(ValueId sum) const {
    std::vector<bool> out(static_cast<size_t>(g_.num_values()), false);
    for (NodeId n = g_.num_nodes() - 1; n >= 0; n--) {
      const Node& node = g_.node(n);
      const bool is_needed = node.num_values == 0 || out[static_cast<size_t>(node.first_value)];
      if (is_needed && node.first_value != sum) for (ValueId o : node.operands) out[static_cast<size_t>(o)] = true;
    }
    return out;
  }
  /// Operands that nothing needs any more are gone, the others numbered anew.
  void join(ValueId sum, Graph& body, std::vector<Access>& operands) const {
    const std::vector<bool> is_read = read(sum);
    std::vector<int> number(operands_.size(), -1);
    for (NodeId n : g_.inputs())
      if (is_read[static_cast<size_t>(g_.node(n).first_value)]) number[static_cast<size_t>(g_.form<Input>(n)->param)] = 0;
    operands.clear();
    for (size_t i = 0; i < operands_.size(); i++)
      if (number[i] == 0) { number[i] = static_cast<int>(operands.size()); operands.push_back(operands_[i]); }
    Builder b(Level::kBlock, g_.launch());
    std::vector<ValueId> to;
    rewrite(g_, b, to, [&](NodeId n, const std::vector<ValueId>&) -> ValueId {
      const ValueId v = g_.node(n).first_value;
      if (v >= 0 && !is_read[static_cast<size_t>(v)]) return kNoValue;
      if (const Input* in = g_.form<Input>(n)) return b.add_input(number[static_cast<size_t>(in->param)], g_.type(v), in->part);
      return v != sum || v < 0 ? kCopy : product(b, static_cast<int>(operands.size()));
    });
    for (const Joined& j : joined_) operands.push_back(j.access);
    body = std::move(b).finish();
  }
  ValueId product(Builder& b, int param) const {
    std::vector<ValueId> factors;
    for (size_t i = 0; i < 2; i++) {
      const Joined& j = joined_[i];
      const int rank = j.type.dims.rank();
      ValueId v = b.add_input(param + static_cast<int>(i), j.type, j.part);
      Transpose turn;
      for (int d = 0; d < rank; d++) turn.perm[static_cast<size_t>(d)] = static_cast<int8_t>(d < rank - 2 ? d : 2 * rank - 3 - d);
      factors.push_back(sides_[i].is_turned ? b.add(turn, {v}) : v);
    }
    return b.add(MatMul{}, std::move(factors));
  }

  const Graph& g_;
  const std::vector<Access>& operands_;
  std::vector<std::vector<NodeId>> users_;
  Side sides_[2];
  Joined joined_[2];
};

}  // namespace

void join_products(Graph& body, std::vector<Access>& operands) {
  const Graph from = body;
  const std::vector<Access> of = operands;
  Joiner(from, of).run(body, operands);
}

}  // namespace mirage
