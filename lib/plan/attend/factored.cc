// See the header.
#include "plan/attend/factored.h"

#include <algorithm>
#include <optional>

#include "mirage/ir/rewrite.h"
#include "mirage/ir/walk.h"
#include "mirage/schedule/words.h"

namespace mirage::schedule {
namespace {

class Refactorer {
 public:
  Refactorer(const KernelProgram& p, const Graph& erased) : p_(p), g_(erased), b_(Level::kBlock, erased.launch()) {
    for (ValueId v = 0; v < g_.num_values() && product_ < 0; v++) if (g_.def_form<MatMul>(v)) product_ = v;
    for (const Stage& s : p.stages) {
      if (s.kind != Stage::Kind::kCompute || s.unit != UnitId::kNone || place(s.to).deferred) continue;
      const ValueId v = place(s.to).value;
      if (const ValueId x = base(v); scores_ < 0 && x >= 0 && x != v) scores_ = v;
      if (is16(place(s.to).dtype) && is_multiplied(s, v)) share_ = v;
    }
  }

  Graph run() {
    const bool is_softmax = std::any_of(g_.nodes().begin(), g_.nodes().end(), [](const Node& n) { return is<Running>(n.op); });
    if (!is_softmax) return g_;
    std::vector<ValueId> to;
    const bool fits = try_rewrite(g_, b_, to, [&](NodeId n, const std::vector<ValueId>& operands) {
      const ValueId v = g_.node(n).first_value;
      if (v >= 0 && v == scores_) return scores(to);
      if (v >= 0 && v == share_) return operands[0];
      if (!g_.form<MatMul>(n)) return kCopy;
      if (share_ >= 0 && g_.node(n).operands[0] == share_)
        return add(MatMul{}, {operands[0], of_rows(operands[1], operand(share_, 1), to)});
      const bool is_first = v == product_;
      return is_first ? add(MatMul{}, {with_gains(g_.node(n).operands[0], to), operands[1]}) : kCopy;
    });
    return fits ? remove_dead(b_.graph()) : g_;
  }

 private:
  template <class Form> static bool is(const Op& op) { return std::holds_alternative<Form>(op); }
  /// kGiveUp where it does not fit.
  ValueId add(Op op, std::vector<ValueId> operands) {
    if (std::any_of(operands.begin(), operands.end(), [](ValueId v) { return v < 0; })) return kGiveUp;
    return b_.try_add(std::move(op), std::move(operands)).value_or(kGiveUp);
  }
  const Place& place(PlaceId x) const { return p_.places[at(x)]; }
  ValueId operand(ValueId v, size_t i = 0) const { return g_.def(v).operands[i]; }
  const Map* product(ValueId v) const {
    const auto* m = g_.def_form<Map>(v);
    return m && (m->fn == MapFn::kMul || m->fn == MapFn::kDiv) ? m : nullptr;
  }
  bool is_deferred(ValueId v) const {
    return std::any_of(p_.places.begin(), p_.places.end(), [&](const Place& x) { return x.value == v && x.deferred; });
  }
  /// The product of two matrices, or that with deferred factors, which v is a multiple of; -1: it is none.
  ValueId base(ValueId v) const {
    while (!g_.def_form<MatMul>(v) && !is_deferred(v)) {
      if (!product(v)) return -1;
      const auto& of = p_.index_of[at(operand(v, 1))];
      if (!of.empty() && of.back() >= 0 && !is_known(operand(v, 1))) return -1;
      v = operand(v);
    }
    return v;
  }
  /// Whether v is a product of factors and nothing else, as it is made of each key ahead: 1 times them.
  bool is_known(ValueId v) const {
    for (v = untransposed(v); product(v); v = operand(v)) {}
    return g_.def_form<Const>(v) != nullptr;
  }
  /// Whether a stage rounds the product of what it reads for a unit, and does not only move it there.
  bool is_multiplied(const Stage& s, ValueId v) const {
    const auto has = [&](ValueId x) {
      return std::any_of(s.reads.begin(), s.reads.end(), [&](PlaceId r) { return place(r).value == x; });
    };
    return product(v) && !has(v) && has(operand(v)) && has(operand(v, 1)) && is_known(operand(v, 1)) &&
           p_.body.type(v).dtype == DType::kReal && place(s.to).section < 0;
  }
  ValueId untransposed(ValueId v) const {
    while (g_.def_form<Transpose>(v)) v = operand(v);
    return v;
  }
  struct Factor { ValueId value; MapFn fn; };
  std::vector<Factor> chain(ValueId v) const {   // the outermost first
    std::vector<Factor> out;
    for (const Map* m; !is_deferred(v) && (m = product(v)); v = operand(v)) out.push_back({operand(v, 1), m->fn});
    return out;
  }
  /// A value with its last two dimensions in each other's place.
  ValueId turned(ValueId v, const std::vector<ValueId>& to) {
    const auto* t = g_.def_form<Transpose>(v);
    const int rank = g_.dims(v).rank();
    if (t && t->perm[at(rank - 1)] != rank - 1) return to[at(operand(v))];
    Transpose turn;
    for (int d = 0; d < rank; d++) turn.perm[at(d)] = static_cast<int8_t>(d < rank - 2 ? d : 2 * rank - 3 - d);
    return add(turn, {to[at(v)]});
  }
  ValueId times(ValueId x, const std::vector<Factor>& all, bool is_turned, const std::vector<ValueId>& to) {
    for (const Factor& f : all) x = add(Map{f.fn}, {x, is_turned ? turned(f.value, to) : to[at(f.value)]});
    return x;
  }
  /// Rows of x times what is known of each; or, of columns, these.
  ValueId of_rows(ValueId x, ValueId known, const std::vector<ValueId>& to, bool is_rows = true) {
    return times(x, chain(untransposed(known)), (untransposed(known) != known) != is_rows, to);
  }
  /// Gains of an operand's columns are read from the outermost in.
  ValueId with_gains(ValueId v, const std::vector<ValueId>& to) {
    const std::vector<Factor> gains = chain(v);
    for (size_t i = 0; i < gains.size(); i++) v = operand(v);
    return times(to[at(v)], gains, false, to);
  }
  /// The product anew: all that its factors are made of is there by now.
  ValueId scores(const std::vector<ValueId>& to) {
    ValueId z = base(scores_), known = -1;
    std::vector<Factor> rows, rest;
    for (const Factor& f : chain(scores_)) {
      const auto& of = p_.index_of[at(f.value)];
      if (!of.empty() && of.back() >= 0) known = f.value;
      else rows.push_back(f);
    }
    for (; !g_.def_form<MatMul>(z); z = operand(z)) rest.push_back({operand(z, 1), g_.def_form<Map>(z)->fn});
    std::reverse(rest.begin(), rest.end());
    const ValueId q = times(times(with_gains(operand(z), to), rows, false, to), rest, false, to), k = operand(z, 1);
    if (known < 0) return add(MatMul{}, {q, to[at(k)]});
    const auto* turn = untransposed(known) == known ? nullptr : g_.def_form<Transpose>(k);   // below it, where factors of rows stand
    if (!turn) return add(MatMul{}, {q, of_rows(to[at(k)], known, to, false)});
    const ValueId lines = of_rows(to[at(operand(k))], known, to);
    return add(MatMul{}, {q, lines < 0 ? kGiveUp : add(*turn, {lines})});
  }

  const KernelProgram& p_;
  const Graph& g_;
  Builder b_;
  ValueId product_ = -1, scores_ = -1, share_ = -1;   // the first product; that with factors; the second one's first operand with them
};

}  // namespace

Graph with_factors_on_operands(const KernelProgram& p, const Graph& erased) { return Refactorer(p, erased).run(); }

}  // namespace mirage::schedule
