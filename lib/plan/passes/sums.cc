// separate_sums: a sum over the loop of a linear combination becomes that combination of sums, so that every contraction and reduction of
// it can accumulate in registers (plan/block/block_tiles.cc). Runs before planning; the graph that was verified stays as it is. Behind the
// loop, what scales rows before a product scales them after it.
#include <vector>

#include "mirage/plan/block.h"

namespace mirage {
namespace {

class Separator {
 public:
  explicit Separator(const Graph& g)
      : g_(g), b_(Level::kBlock, g.launch()), users_(g.users()), phase_(phases(g)), to_(static_cast<size_t>(g.num_values()), -1) {}

  Graph run() {
    for (const Node& n : g_.nodes()) {
      std::vector<ValueId> operands;
      for (ValueId o : n.operands) operands.push_back(to_[static_cast<size_t>(o)]);
      const auto* accum = std::get_if<Accum>(&n.op);
      ValueId v;
      if (const auto* in = std::get_if<Input>(&n.op)) v = b_.add_input(in->param, g_.type(n.first_value), in->part);
      else if (accum && accum->fn == ReduceFn::kSum && operands.size() == 1 &&
               (g_.def_form<Map>(n.operands[0]) || linear_factor(n.operands[0]) >= 0) && is_linear(n.operands[0]))
        v = sum_of(n.operands[0]);
      else v = b_.add(n.op, operands);
      for (int i = 0; i < n.num_values; i++) to_[static_cast<size_t>(n.first_value + i)] = v + i;
    }
    return remove_dead(b_.graph());   // the maps that were taken apart have no use
  }

 private:
  const std::vector<ValueId>& operands(ValueId v) const { return g_.def(v).operands; }
  bool is_constant(ValueId v) const { return g_.def_form<Const>(v) != nullptr; }

  /// Whether v, which nothing else reads, is a linear combination of contractions and sums that the loop changes.
  bool is_linear(ValueId v) const {
    if (users_[static_cast<size_t>(v)].size() != 1 || phase_[static_cast<size_t>(v)] != Phase::kLoop) return false;
    if (g_.def_form<MatMul>(v)) return true;
    if (const auto* r = g_.def_form<Reduce>(v)) return r->fn == ReduceFn::kSum;
    const auto* m = g_.def_form<Map>(v);
    if (!m) return false;
    const auto& o = operands(v);
    if (m->fn == MapFn::kNeg) return is_linear(o[0]);
    if (m->fn == MapFn::kAdd || m->fn == MapFn::kSub) return o[0] != o[1] && is_linear(o[0]) && is_linear(o[1]);
    if (m->fn == MapFn::kMul) return (is_constant(o[0]) && is_linear(o[1])) || (is_constant(o[1]) && is_linear(o[0]));
    return m->fn == MapFn::kDiv && is_constant(o[1]) && is_linear(o[0]);
  }

  /// The operand of contraction v that is linear while the other is the same in every iteration, so that the sum can go before the
  /// contraction; -1: none.
  int linear_factor(ValueId v) const {
    if (!g_.def_form<MatMul>(v)) return -1;
    for (int i = 0; i < 2; i++)
      if (phase_[static_cast<size_t>(operands(v)[static_cast<size_t>(1 - i)])] == Phase::kInvariant &&
          is_linear(operands(v)[static_cast<size_t>(i)]))
        return i;
    return -1;
  }

  ValueId sum_of(ValueId v) {
    const auto* m = g_.def_form<Map>(v);
    if (const int i = linear_factor(v); i >= 0) {
      std::vector<ValueId> factors;
      for (ValueId o : operands(v)) factors.push_back(to_[static_cast<size_t>(o)]);
      factors[static_cast<size_t>(i)] = sum_of(operands(v)[static_cast<size_t>(i)]);
      return b_.add(MatMul{}, factors);
    }
    if (!m) return b_.add(Accum{ReduceFn::kSum}, {to_[static_cast<size_t>(v)]});
    std::vector<ValueId> parts;
    for (ValueId o : operands(v)) parts.push_back(is_constant(o) ? to_[static_cast<size_t>(o)] : sum_of(o));
    return b_.map(m->fn, parts);
  }

  const Graph& g_;
  Builder b_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<Phase> phase_;
  std::vector<ValueId> to_;
};

/// (x / r) w is (x w) / r where r is one number per row: behind the loop, a low-rank sum meets its second factor as it was summed, and its
/// quotient joins that of other sums, (u / r) + c (v / r) = (u + c v) / r.
class RowFactors {
 public:
  explicit RowFactors(const Graph& g)
      : g_(g), b_(Level::kBlock, g.launch()), phase_(phases(g)), to_(static_cast<size_t>(g.num_values()), -1), scaled_(to_.size()) {}

  /// The body itself where there is no such product.
  Graph run() {
    for (const Node& n : g_.nodes()) {
      std::vector<ValueId> operands;
      for (ValueId o : n.operands) operands.push_back(to_[at(o)]);
      ValueId v = -1;
      if (const auto* in = std::get_if<Input>(&n.op)) v = b_.add_input(in->param, g_.type(n.first_value), in->part);
      else if (n.num_values == 1 && phase_[at(n.first_value)] == Phase::kAfter) v = scaled(n, operands);
      if (v < 0) v = b_.add(n.op, operands);
      for (int i = 0; i < n.num_values; i++) to_[at(n.first_value + i)] = v + i;
    }
    return moved_ ? remove_dead(b_.graph()) : g_;
  }

 private:
  struct Scaled { ValueId of = -1, by = -1; MapFn fn = MapFn::kMul; };   // values of the new graph
  static size_t at(ValueId v) { return static_cast<size_t>(v); }

  ValueId again(ValueId result, ValueId of, const Scaled& like) {
    scaled_[at(result)] = {of, like.by, like.fn};
    return b_.map(like.fn, {of, like.by});
  }
  /// The node with the factor of its rows outside; -1: it has none.
  ValueId scaled(const Node& n, const std::vector<ValueId>& operands) {
    const ValueId v = n.first_value;
    const auto& before = [&](size_t i) -> const Scaled& { return scaled_[at(n.operands[i])]; };
    if (std::holds_alternative<MatMul>(n.op) && before(0).of >= 0) {
      moved_ = true;
      return again(v, b_.add(MatMul{}, {before(0).of, operands[1]}), before(0));
    }
    const auto* m = std::get_if<Map>(&n.op);
    if (!m || operands.size() != 2) return -1;
    const bool product = m->fn == MapFn::kMul;
    for (size_t i = 0; i < (product ? 2u : 1u); i++)
      if ((product || m->fn == MapFn::kDiv) && g_.def_form<Const>(n.operands[1 - i]) && before(i).of >= 0)
        return again(v,
                     b_.map(m->fn, product && i == 1 ? std::vector<ValueId>{operands[0], before(1).of}
                                                     : std::vector<ValueId>{before(0).of, operands[1]}),
                     before(i));
    if ((m->fn == MapFn::kAdd || m->fn == MapFn::kSub) && before(0).of >= 0 && before(1).of >= 0 && before(0).by == before(1).by &&
        before(0).fn == before(1).fn && g_.dims(n.operands[0]) == g_.dims(n.operands[1]))
      return again(v, b_.map(m->fn, {before(0).of, before(1).of}), before(0));
    for (size_t i = 0; i < (product ? 2u : 1u); i++)
      if ((product || m->fn == MapFn::kDiv) && per_row(n.operands[1 - i], n.operands[i])) {
        scaled_[at(v)] = {operands[i], operands[1 - i], m->fn};
        return -1;
      }
    return -1;
  }
  /// Whether r is one number for a row of x.
  bool per_row(ValueId r, ValueId x) const {
    const Dims &d = g_.dims(r), &e = g_.dims(x);
    return !g_.def_form<Const>(r) && d.rank() == e.rank() && d.rank() >= 2 && d[d.rank() - 1] == 1 && e[e.rank() - 1] > 1 &&
           d[d.rank() - 2] == e[e.rank() - 2];
  }

  const Graph& g_;
  Builder b_;
  std::vector<Phase> phase_;
  std::vector<ValueId> to_;
  std::vector<Scaled> scaled_;   // per value of the old graph
  bool moved_ = false;
};

}  // namespace

Graph separate_sums(const Graph& body) {
  const Graph apart = Separator(body).run();
  return RowFactors(apart).run();
}

}  // namespace mirage
