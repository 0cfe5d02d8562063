// See the header.
#include "codegen/program/matrix_stages.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "mirage/ir/walk.h"
#include "mirage/support/assert.h"

namespace mirage::schedule {

MatrixStages::MatrixStages(const KernelProgram& p) : p_(p), g_(p.body) {
  find_indices();
  find_products();
  find_weights();
  find_totals();
}

// ---- indices

void MatrixStages::find_indices() {
  for (const Split& s : p_.splits) {
    if (s.reduced) (s.behind < 0 ? reduced_ : second_) = s.index;
    if (s.reduced && s.outer >= 0) group_ = s.outer;
    if (s.reduced) continue;
    if (columns_ < 0) columns_ = s.index;
    else if (s.tile == 1) batch_ = s.index;
  }
}

int64_t MatrixStages::depth() const { return extent(reduced_) * extent(group_) + (second_ < 0 ? 0 : extent(second_)); }

bool MatrixStages::has(ValueId v, IndexId i) const {
  const auto& of = p_.index_of[at(v)];
  return i >= 0 && std::find(of.begin(), of.end(), i) != of.end();
}

IndexId MatrixStages::whole(ValueId v) const {
  for (IndexId i : p_.index_of[at(v)])
    for (const Stage* s : early_)
      if (i >= 0 && has(reduced_by(*s), i) && !has(made(*s), i)) return i;
  return -1;
}

IndexId MatrixStages::free(const Stage& weight) const {
  for (IndexId i : p_.index_of[at(made(weight))]) if (i >= 0 && i != rows_ && i != batch_ && !is_summed(i)) return i;
  return -1;
}

// ---- stages

void MatrixStages::find_products() {
  for (const Stage& s : p_.stages) {
    if (s.kind != Stage::Kind::kCompute || operand(s, made(s))) continue;   // not one that moves what another has made
    if (std::holds_alternative<Accum>(def(s))) (s.unit == UnitId::kNone ? statistics_ : products_).push_back(&s);
    if (std::holds_alternative<Reduce>(def(s))) early_.push_back(&s);
  }
  std::sort(products_.begin(), products_.end(), [&](const Stage* a, const Stage* b) { return product(*a) < product(*b); });
  for (auto* of : {&statistics_, &early_})
    std::sort(of->begin(), of->end(), [&](const Stage* a, const Stage* b) { return order(*a) < order(*b); });
  for (const Stage* s : products_)
    for (IndexId i : p_.index_of[at(made(*s))]) if (is_wide(*s) && i >= 0 && i != columns_ && i != batch_) rows_ = i;
  for (NodeId n = 0; n < g_.num_nodes(); n++)
    if (g_.form<MatMul>(n) && !is_summed(p_.index_of[at(g_.node(n).operands[0])].back())) second_factors_.push_back(n);
}

/// In the order in which the products that they are part of stand in the body.
void MatrixStages::find_weights() {
  for (NodeId n = 0; n < g_.num_nodes(); n++) {
    if (!g_.form<MatMul>(n) || !is_summed(p_.index_of[at(g_.node(n).operands[0])].back())) continue;
    for (ValueId v : g_.node(n).operands)
      if (const Stage* w = weight_below(v); w && number(weights_, w) < 0) weights_.push_back(w);
  }
}

const Stage* MatrixStages::weight_below(ValueId v) const {
  const Stage* out = nullptr;
  find_below(g_, v, [&](ValueId x) {
    if (!g_.def_form<Input>(x)) return Look::kInto;
    const Stage* copy = copy_of(g_.value(x).node);
    if (!copy || free(*copy) < 0 || (!has(x, reduced_) && !has(x, second_))) return Look::kPast;
    out = copy;
    return Look::kFound;
  });
  return out;
}

/// Matrices of sums that something is made of which is none.
void MatrixStages::find_totals() {
  const auto is_matrix = [&](PlaceId x) {
    return x >= 0 && (place(x).layout == LayoutId::kSyncAcc || place(x).layout == LayoutId::kWgmmaAcc) && place(x).section < 0;
  };
  for (const Stage& s : p_.stages) {
    if (s.kind != Stage::Kind::kCompute || !is_matrix(s.to) || !is_wide(s)) continue;
    const bool is_total = std::any_of(p_.stages.begin(), p_.stages.end(), [&](const Stage& r) {
      return std::find(r.reads.begin(), r.reads.end(), s.to) != r.reads.end() && !is_matrix(r.to);
    });
    if (is_total) totals_.push_back(&s);
  }
  std::sort(totals_.begin(), totals_.end(), [&](const Stage* a, const Stage* b) { return order(*a) < order(*b); });
}

PlaceId MatrixStages::order(const Stage& s) const {
  const Stage* fold = fold_of(s);
  return fold && !fold->through.empty() ? fold->through[0] : s.to;
}

const Stage* MatrixStages::copy_of(NodeId input) const {
  for (const Stage& s : p_.stages)
    if (s.kind == Stage::Kind::kCopy && made(s) == g_.node(input).first_value) return &s;
  return nullptr;
}

const Stage* MatrixStages::fold_of(const Stage& made) const {
  for (const Stage& s : p_.stages)
    if (s.kind == Stage::Kind::kFold && std::find(s.reads.begin(), s.reads.end(), made.to) != s.reads.end()) return &s;
  return nullptr;
}

int MatrixStages::number(const std::vector<const Stage*>& list, const Stage* s) {
  const auto i = std::find(list.begin(), list.end(), s);
  return i == list.end() ? -1 : static_cast<int>(i - list.begin());
}

bool MatrixStages::is_known(ValueId v) const {
  for (const auto* list : {&totals_, &statistics_, &early_})
    for (const Stage* s : *list) if (made(*s) == v) return true;
  return false;
}

// ---- a product of the loop

NodeId MatrixStages::product(const Stage& s) const {
  NodeId out = -1;
  find_below(g_, made(s), [&](ValueId x) {
    if (!g_.def_form<MatMul>(x)) return Look::kInto;
    if (p_.index_of[at(g_.def(x).operands[0])].back() != reduced_) return Look::kPast;
    out = g_.value(x).node;
    return Look::kFound;
  });
  MIRAGE_ASSERT(out >= 0) << "a sum of no product";
  return out;
}

size_t MatrixStages::side(const Stage& s) const { return weight_below(g_.node(product(s)).operands[1]) ? 1 : 0; }
const Stage& MatrixStages::weight(const Stage& s) const { return *weight_below(g_.node(product(s)).operands[side(s)]); }
ValueId MatrixStages::small(const Stage& s) const { return g_.node(product(s)).operands[1 - side(s)]; }

ValueId MatrixStages::made_weight(const Stage& s) const {
  const ValueId v = g_.node(product(s)).operands[side(s)];
  return stored(v) < 0 ? v : -1;
}

ValueId MatrixStages::scaled_groups(const Stage& s) const {
  const auto* r = group_ < 0 ? nullptr : g_.def_form<Reduce>(g_.def(made(s)).operands[0]);
  if (!r) return -1;
  const ValueId v = g_.def(g_.def(made(s)).operands[0]).operands[0];
  return v == g_.node(product(s)).first_value ? -1 : v;
}

const Place* MatrixStages::operand(const Stage& s, ValueId v) const {
  for (PlaceId x : s.reads) if (place(x).value == v) return &place(x);
  return nullptr;
}

// ---- a product behind the loop

const Stage* MatrixStages::sum_at(ValueId v) const {
  for (const Stage* s : products_) if (made(*s) == v) return s;
  return nullptr;
}

/// The low-rank sum behind transposes and factors that are the same for all rows, which go to `out`; null: v is something else.
const Stage* MatrixStages::gained_sum(ValueId v, Gained& out) const {
  for (;;) {
    if (const Stage* s = sum_at(v)) return s;
    const auto& o = g_.def(v).operands;
    if (g_.def_form<Transpose>(v)) { v = o[0]; continue; }
    const auto* m = g_.def_form<Map>(v);
    if (m && m->fn == MapFn::kNeg) { out.scale = -out.scale; v = o[0]; continue; }
    if (!m || m->fn != MapFn::kMul) return nullptr;
    size_t factor = 2;
    for (size_t i = 0; i < 2 && factor == 2; i++) {
      const NodeId n = stored(o[i]);
      if (const auto* c = g_.def_form<Const>(o[i])) out.scale *= c->value;
      else if (n >= 0 && !has(o[i], rows_)) out.gains.push_back(n);
      else continue;
      factor = i;
    }
    if (factor == 2) return nullptr;
    v = o[1 - factor];
  }
}

MatrixStages::Gained MatrixStages::gained(NodeId second_factor) const {
  const auto& o = g_.node(second_factor).operands;
  for (size_t side = 0; side < 2; side++) {
    Gained out;
    out.sum = gained_sum(o[side], out);
    out.factor = stored(o[1 - side]);
    if (out.sum && !is_wide(*out.sum) && out.factor >= 0) return out;
  }
  MIRAGE_ASSERT(false) << "a product behind the loop of no low rank";
  return {};
}

// ---- totals

std::vector<MatrixStages::Term> MatrixStages::terms(ValueId total) const {
  using Terms = std::map<std::pair<bool, int>, double>;   // (behind the loop, number) -> factor
  std::vector<std::optional<Terms>> of(at(total) + 1);    // of what is linear, operands first
  const auto times = [&](ValueId v, double f) {
    std::optional<Terms> t = of[at(v)];
    if (t) for (auto& term : *t) term.second *= f;
    return t;
  };
  const auto number_behind = [&](ValueId v) {
    const auto i = std::find(second_factors_.begin(), second_factors_.end(), g_.value(v).node);
    return i == second_factors_.end() ? -1 : static_cast<int>(i - second_factors_.begin());
  };
  for (ValueId v = 0; v <= total; v++) {
    const auto* m = g_.def_form<Map>(v);
    const auto& o = g_.def(v).operands;
    if (const Stage* s = sum_at(v)) {
      if (is_wide(*s)) of[at(v)] = Terms{{{false, number(products_, s)}, 1.0}};
    } else if (g_.def_form<MatMul>(v) && number_behind(v) >= 0) {
      of[at(v)] = Terms{{{true, number_behind(v)}, 1.0}};
    } else if (m && m->fn == MapFn::kNeg) {
      of[at(v)] = times(o[0], -1);
    } else if (m && (m->fn == MapFn::kAdd || m->fn == MapFn::kSub) && of[at(o[0])] && of[at(o[1])]) {
      of[at(v)] = of[at(o[0])];
      for (auto [k, f] : *of[at(o[1])]) (*of[at(v)])[k] += m->fn == MapFn::kSub ? -f : f;
    } else if (m && m->fn == MapFn::kMul) {
      if (const auto* c = g_.def_form<Const>(o[0])) of[at(v)] = times(o[1], c->value);
      else if (const auto* d = g_.def_form<Const>(o[1])) of[at(v)] = times(o[0], d->value);
    }
  }
  MIRAGE_ASSERT(of[at(total)]) << "a total that is not added up";
  std::vector<Term> out;
  for (auto [k, f] : *of[at(total)]) out.push_back({k.first, k.second, f});
  return out;
}

int MatrixStages::uses(const Stage& product) const {
  int n = 0;
  for (const Stage* s : totals_)
    for (const Term& t : terms(made(*s))) n += !t.is_behind && t.number == number(products_, &product);
  return n;
}

// ---- expressions

NodeId MatrixStages::stored(ValueId v) const {
  while (g_.def_form<Transpose>(v)) v = g_.def(v).operands[0];
  return g_.def_form<Input>(v) ? g_.value(v).node : -1;
}

void MatrixStages::leaves(ValueId v, std::set<NodeId>& out) const {
  find_below(g_, v, [&](ValueId x) {
    if (g_.def_form<Input>(x)) out.insert(g_.value(x).node);
    return is_known(x) ? Look::kPast : Look::kInto;
  });
}

std::set<NodeId> MatrixStages::loop_leaves() const {
  std::set<NodeId> out;
  for (const Stage* s : products_) leaves(small(*s), out);
  for (const Stage* s : statistics_) leaves(reduced_by(*s), out);
  return out;
}

std::set<NodeId> MatrixStages::tail_leaves() const {
  std::set<NodeId> out;
  for (NodeId n : g_.outputs()) leaves(g_.node(n).operands[0], out);
  return out;
}

ValueId MatrixStages::reduced_by(const Stage& s) const {
  ValueId v = std::holds_alternative<Accum>(def(s)) ? g_.def(made(s)).operands[0] : made(s);
  for (bool is_group = true; is_group;) {   // what is reduced in each group, and over them
    const auto* r = g_.def_form<Reduce>(v);
    MIRAGE_ASSERT(r) << "a statistic that reduces nothing";
    const ValueId o = g_.def(v).operands[0];
    is_group = group_ >= 0 && p_.index_of[at(o)][at(r->dim)] == group_;
    v = o;
  }
  return v;
}

ReduceFn MatrixStages::function(const Stage& s) const {
  const auto* a = std::get_if<Accum>(&def(s));
  return a ? a->fn : std::get<Reduce>(def(s)).fn;
}

}  // namespace mirage::schedule
