// find_selection, find_at_largest: see the header.
#include "plan/passes/selection.h"

#include <algorithm>
#include <cmath>

#include "plan/region/region.h"

namespace mirage {
namespace {

bool moves(const Graph& g, ValueId v) { return is_view(g.def(v).op) || g.def_form<Repeat>(v); }

bool is_zero(const Graph& g, ValueId v) {
  const Const* c = g.def_form<Const>(v);
  return c && c->value == 0 && c->extent_of.empty();
}

bool is_position(const Graph& g, ValueId v) {
  constexpr int kMostNodes = 64;
  int left = kMostNodes;
  const auto ok = [&](const auto& self, ValueId x) -> bool {
    if (left-- <= 0) return false;
    if (g.def_form<Iota>(x)) return true;
    if (const Const* c = g.def_form<Const>(x))
      return c->extent_of.empty() && c->value == std::floor(c->value) && std::fabs(c->value) < 0x1p40;
    if (moves(g, x)) return self(self, g.def(x).operands[0]);
    const Map* m = g.def_form<Map>(x);
    if (!m || (m->fn != MapFn::kAdd && m->fn != MapFn::kSub && m->fn != MapFn::kNeg)) return false;
    const auto& operands = g.def(x).operands;
    return std::all_of(operands.begin(), operands.end(), [&](ValueId o) { return self(self, o); });
  };
  return ok(ok, v);
}

bool depends(const VarTable& t, const Affine& a, int var) {
  return std::any_of(a.terms.begin(), a.terms.end(),
                     [&](const auto& term) { return term.first == var || depends(t, t.vars[static_cast<size_t>(term.first)].arg, var); });
}

/// The comparison behind a condition's views, and the place there.
ValueId comparison(const Graph& g, VarTable& t, ValueId condition, Index& at) {
  at = operand_index(g, condition, at);
  for (; moves(g, condition); condition = g.def(condition).operands[0]) at = source_index(g, t, condition, at);
  return condition;
}

/// Whether an index is one that a kernel has, and the same for all elements along a dimension.
bool is_index(const Graph& g, VarTable& t, ValueId v, Index at, int along) {
  if (index_input(g, v) < 0) return is_position(g, v) && !depends(t, position(g, t, v, at), along);
  for (; moves(g, v); v = g.def(v).operands[0]) at = source_index(g, t, v, at);
  return std::none_of(at.begin(), at.end(), [&](const Affine& a) { return depends(t, a, along); });
}

}  // namespace

Index operand_index(const Graph& g, ValueId operand, const Index& at) {
  const Dims& d = g.dims(operand);
  Index out;
  for (int k = 0; k < d.rank(); k++) out.push_back(d[k] == 1 ? Affine{} : at[at.size() - static_cast<size_t>(d.rank() - k)]);
  return out;
}

Index source_index(const Graph& g, VarTable& t, ValueId v, const Index& at) {
  const Node& n = g.def(v);
  const Dims& from = g.dims(n.operands[0]);
  if (std::get_if<Reshape>(&n.op)) return t.reshape(at, from, g.dims(v));
  Index to = at;
  if (auto* turn = std::get_if<Transpose>(&n.op))
    for (size_t i = 0; i < at.size(); i++) to[static_cast<size_t>(turn->perm[i])] = at[i];
  if (auto* s = std::get_if<Slice>(&n.op)) to[static_cast<size_t>(s->dim)] = at[static_cast<size_t>(s->dim)] * s->step + affine(s->start);
  if (auto* r = std::get_if<Repeat>(&n.op))
    to[static_cast<size_t>(r->dim)] = t.mod(at[static_cast<size_t>(r->dim)], from[r->dim], g.dims(v)[r->dim]);
  return to;
}

ValueId index_input(const Graph& g, ValueId v) {
  while (moves(g, v)) v = g.def(v).operands[0];
  return g.def_form<Input>(v) && is_whole(g.type(v).dtype) ? v : -1;
}

Affine position(const Graph& g, VarTable& t, ValueId v, const Index& at) {
  const Node& n = g.def(v);
  if (auto* i = std::get_if<Iota>(&n.op)) return at[static_cast<size_t>(i->dim)];
  if (auto* c = std::get_if<Const>(&n.op)) return affine(static_cast<int64_t>(c->value));
  if (moves(g, v)) return position(g, t, n.operands[0], source_index(g, t, v, at));
  const auto operand = [&](size_t i) { return position(g, t, n.operands[i], operand_index(g, n.operands[i], at)); };
  const MapFn fn = std::get<Map>(n.op).fn;
  return fn == MapFn::kNeg ? operand(0) * -1 : fn == MapFn::kAdd ? operand(0) + operand(1) : operand(0) + operand(1) * -1;
}

std::optional<Selection> find_selection(const Graph& g, ValueId v) {
  const Reduce* r = g.def_form<Reduce>(v);
  if (!r || r->fn != ReduceFn::kSum) return std::nullopt;
  const ValueId chosen = g.def(v).operands[0];
  const Map* where = g.def_form<Map>(chosen);
  const Dims& d = g.dims(chosen);
  if (!where || where->fn != MapFn::kWhere || d[r->dim] == 1 || (r->group && r->group != d[r->dim]) ||
      !is_zero(g, g.def(chosen).operands[2]))
    return std::nullopt;
  VarTable t;
  Index at;
  for (int64_t extent : d) at.push_back(extent == 1 ? Affine{} : affine_var(t.add_loop(extent)));
  const int along = at[static_cast<size_t>(r->dim)].terms[0].first;
  const ValueId condition = g.def(chosen).operands[0];
  Index here = at;
  const ValueId equal = comparison(g, t, condition, here);
  const Map* m = g.def_form<Map>(equal);
  if (!m || m->fn != MapFn::kEqual) return std::nullopt;
  for (size_t side = 0; side < 2; side++) {
    const ValueId place = g.def(equal).operands[side], index = g.def(equal).operands[1 - side];
    if (!is_position(g, place) || !(position(g, t, place, operand_index(g, place, here)) == affine_var(along))) continue;
    if (is_index(g, t, index, operand_index(g, index, here), along))
      return Selection{condition, index, g.def(chosen).operands[1], r->dim, d[r->dim]};
  }
  return std::nullopt;
}

std::optional<AtLargest> find_at_largest(const Graph& g, const std::map<ValueId, ReduceInfo>& reduces, ValueId v) {
  const auto own = reduces.find(v);
  if (own == reduces.end() || own->second.fn != ReduceFn::kMax || own->second.group) return std::nullopt;
  const ValueId chosen = own->second.base;
  const Map* where = g.def_form<Map>(chosen);
  if (!where || where->fn != MapFn::kWhere) return std::nullopt;
  const auto& operands = g.def(chosen).operands;
  const Dims& d = g.dims(chosen);
  VarTable t;
  Index at, row;
  for (int i = 0; i < d.rank(); i++) {
    at.push_back(d[i] == 1 ? Affine{} : affine_var(t.add_loop(d[i])));
    row.push_back(own->second.reduced[static_cast<size_t>(i)] ? Affine{} : at.back());
  }
  if (!is_position(g, operands[1]) || !is_position(g, operands[2])) return std::nullopt;
  const Affine otherwise = position(g, t, operands[2], operand_index(g, operands[2], at));
  if (!otherwise.terms.empty() || t.min_of(position(g, t, operands[1], operand_index(g, operands[1], at))) < otherwise.constant)
    return std::nullopt;
  Index here = at;
  const ValueId equal = comparison(g, t, operands[0], here);
  const Map* m = g.def_form<Map>(equal);
  if (!m || m->fn != MapFn::kEqual) return std::nullopt;
  /// What an operand of the comparison shows, behind views and repetitions, and which element.
  const auto shown = [&](ValueId x, Index place, const auto& is_end) {
    for (; !is_end(x) && moves(g, x); x = g.def(x).operands[0]) place = source_index(g, t, x, place);
    return std::pair{x, place};
  };
  for (size_t side = 0; side < 2; side++) {
    const ValueId a = g.def(equal).operands[side], b = g.def(equal).operands[1 - side];
    const auto [largest, place] = shown(b, operand_index(g, b, here), [&](ValueId x) { return reduces.count(x) > 0; });
    const auto found = reduces.find(largest);
    if (found == reduces.end() || found->second.fn != ReduceFn::kMax || found->second.group || place != row ||
        found->second.reduced != own->second.reduced || !(g.dims(found->second.base) == d))
      continue;
    const auto never = [](ValueId) { return false; };
    if (shown(a, operand_index(g, a, here), never) == shown(found->second.base, at, never))
      return AtLargest{largest, operands[1], static_cast<double>(otherwise.constant)};
  }
  return std::nullopt;
}

Index index_place(const Graph& g, VarTable& t, const Selection& s, const Index& at) {
  Index here = at;
  comparison(g, t, s.condition, here);
  return operand_index(g, s.index, here);
}

}  // namespace mirage
