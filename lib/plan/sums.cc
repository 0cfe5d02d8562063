// separate_sums: a sum over the loop of a linear combination becomes that combination of sums, so that every contraction and reduction of it can accumulate in registers (plan/block_tiles.cc). Runs before
// planning; the graph that was verified stays as it is.
#include <vector>

#include "mirage/plan/block.h"

namespace mirage {
namespace {

class Separator {
 public:
  explicit Separator(const Graph& g) : g_(g), b_(Level::kBlock, g.launch()), users_(g.users()), phase_(phases(g)), to_(static_cast<size_t>(g.num_values()), -1) {}

  Graph run() {
    for (const Node& n : g_.nodes()) {
      std::vector<ValueId> operands;
      for (ValueId o : n.operands) operands.push_back(to_[static_cast<size_t>(o)]);
      const auto* accum = std::get_if<Accum>(&n.op);
      ValueId v;
      if (const auto* in = std::get_if<Input>(&n.op)) v = b_.add_input(in->param, g_.type(n.first_value), in->part);
      else if (accum && accum->fn == ReduceFn::kSum && operands.size() == 1 && (g_.def_form<Map>(n.operands[0]) || linear_factor(n.operands[0]) >= 0) && is_linear(n.operands[0])) v = sum_of(n.operands[0]);
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

  /// The operand of contraction v that is linear while the other is the same in every iteration, so that the sum can go before the contraction; -1: none.
  int linear_factor(ValueId v) const {
    if (!g_.def_form<MatMul>(v)) return -1;
    for (int i = 0; i < 2; i++)
      if (phase_[static_cast<size_t>(operands(v)[static_cast<size_t>(1 - i)])] == Phase::kInvariant && is_linear(operands(v)[static_cast<size_t>(i)])) return i;
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

}  // namespace

Graph separate_sums(const Graph& body) { return Separator(body).run(); }

}  // namespace mirage
