// See the header.
#include "plan/stream/stream_body.h"

#include <algorithm>

#include "plan/stream/shape_names.h"
#include "mirage/schedule/words.h"

namespace mirage::schedule {
namespace {

class Joiner {
 public:
  Joiner(const Writer& w, const StreamPlan& p) : old_(w.body()), of_(w.p.index_of), p_(p), to_(at(old_.num_values()), -1) {}

  StreamPlan run(Writer& w) {
    for (NodeId n = 0; n < old_.num_nodes(); n++) node(n);
    std::vector<ValueId> alive;
    StreamPlan q = p_;
    q.body = remove_dead(b_.graph(), &alive);
    std::vector<std::vector<IndexId>> index_of(at(q.body.num_values()));
    for (size_t v = 0; v < alive.size(); v++) if (alive[v] >= 0) index_of[at(alive[v])] = made_[v];
    for (auto* of : {&to_, &joined_}) for (ValueId& v : *of) v = v < 0 ? -1 : alive[at(v)];
    q.axes.assign(at(q.body.num_values()), {});
    for (size_t v = 0; v < to_.size(); v++) if (to_[v] >= 0) q.axes[at(to_[v])] = p_.axes[v];
    rename(q);
    w.set_body(q.body, std::move(index_of));
    return q;
  }

 private:
  // ---- nodes
  ValueId add(const Op& op, const std::vector<ValueId>& operands) {
    std::vector<Type> types;
    std::vector<std::vector<IndexId>> of;
    for (ValueId v : operands) types.push_back(b_.graph().type(v)), of.push_back(made_[at(v)]);
    const auto v = b_.try_add(op, operands);
    if (!v) throw Undescribed{"sums that do not join: " + b_.last_error()};
    if (b_.graph().num_values() > static_cast<int>(made_.size()))
      made_.push_back(result_indices(op, types, of, b_.graph().dims(*v).rank()));
    return *v;
  }
  void node(NodeId n) {
    const Node& node = old_.node(n);
    const ValueId v = node.first_value;
    if (const Input* in = old_.form<Input>(n)) {
      Partition part = in->part;
      for (size_t d = 0; d < p_.axes[at(v)].size(); d++)
        if (p_.axes[at(v)][d] == StreamAxis::kSecond) part.loop = static_cast<int8_t>(d);
      to_[at(v)] = b_.add_input(in->param, old_.type(v), part);
      made_.push_back(of_[at(v)]);
      return;
    }
    if (const Output* out = old_.form<Output>(n)) {
      b_.add_output(out->result, to_[at(node.operands[0])], out->dtype, out->part);
      return;
    }
    if (const ValueId both = sum_of_parts(v); both >= 0) to_[at(v)] = both;
    else if (const ValueId all = sum_of_groups(n); all >= 0) to_[at(v)] = all;
    else {
      std::vector<ValueId> operands;
      for (ValueId o : node.operands) operands.push_back(to_[at(o)]);
      to_[at(v)] = add(node.op, operands);
    }
  }
  /// The product of the second part's rows and the weight in whose place it stands.
  ValueId second_product(int weight) const {
    const auto of = std::find_if(p_.weights.begin(), p_.weights.end(), [&](const StreamWeight& x) { return x.instead_of == weight; });
    for (NodeId n = 0; of != p_.weights.end() && n < old_.num_nodes(); n++) {
      if (!old_.form<MatMul>(n)) continue;
      const NodeId x = stored_behind(old_, old_.node(n).operands[0]), y = stored_behind(old_, old_.node(n).operands[1]);
      if ((x == p_.second_input && y == of->input) || (y == p_.second_input && x == of->input)) return old_.node(n).first_value;
    }
    throw Undescribed{"a second part of the reduction without its product"};
  }
  /// x w + h u: one accumulator of both products, whatever was added up in front of and behind the loop. -1: v is no such sum.
  ValueId sum_of_parts(ValueId v) {
    const auto s = std::find_if(p_.sums.begin(), p_.sums.end(), [&](const StreamSum& x) { return p_.second && x.value == v; });
    if (s == p_.sums.end()) return -1;
    const auto [c, factor] = s->contractions.at(0);
    const StreamContraction& of = p_.contractions[at(c)];
    const ValueId first = old_.node(of.node).first_value, other = second_product(of.weight);
    const ValueId sum = add(Accum{ReduceFn::kSum, 0}, {add(Map{MapFn::kAdd}, {to_[at(first)], to_[at(other)]})});
    joined_[at(c)] = sum;
    return factor == 1 ? sum : add(Map{MapFn::kMul}, {sum, add(Const{factor, {}}, {})});
  }
  /// What is accumulated by group and added up behind the loop is added up in it. -1: v is no such sum.
  ValueId sum_of_groups(NodeId n) {
    const auto* r = old_.form<Reduce>(n);
    if (!p_.group || !r) return -1;
    const Node& sum = old_.def(old_.node(n).operands[0]);
    const auto* a = std::get_if<Accum>(&sum.op);
    if (!a || a->fn != r->fn || a->degree || p_.axes[at(old_.node(n).operands[0])][at(r->dim)] != StreamAxis::kGroup) return -1;
    return add(*a, {add(*r, {to_[at(sum.operands[0])]})});
  }

  // ---- names of the plan
  void rename(StreamPlan& q) const {
    const auto value = [&](ValueId& v) { if (v >= 0) v = to_[at(v)]; };
    const auto node = [&](NodeId& n) { if (n >= 0) n = q.body.value(to_[at(old_.node(n).first_value)]).node; };
    for (StreamWeight& x : q.weights) node(x.input);
    for (size_t c = 0; c < q.contractions.size(); c++) {
      StreamContraction& x = q.contractions[c];
      node(x.node), value(x.small), value(x.made), value(x.factored), value(x.sum);
      if (joined_[c] >= 0) x.sum = joined_[c];
    }
    for (auto* of : {&q.statistics, &q.early}) for (StreamStatistic& x : *of) value(x.result), value(x.of);
    for (StreamProduct& x : q.products) {
      value(x.value), node(x.input);
      for (NodeId& n : x.gains) node(n);
    }
    for (StreamSum& x : q.sums) value(x.value);
    node(q.second_input);
  }

  const Graph& old_;
  const std::vector<std::vector<IndexId>>& of_;
  const StreamPlan& p_;
  Builder b_{Level::kBlock, old_.launch()};
  std::vector<ValueId> to_;                         // per old value: the new one
  std::vector<std::vector<IndexId>> made_;          // per new value
  std::vector<ValueId> joined_ = std::vector<ValueId>(p_.contractions.size(), -1);   // per contraction: the accumulator of both parts
};

}  // namespace

StreamPlan with_joined_sums(Writer& w, const StreamPlan& p) {
  if (!p.second && !p.group) return p;
  return Joiner(w, p).run(w);
}

}  // namespace mirage::schedule
