// One rule per form for how a common factor of exponentials passes through. A rule that is not sure says "not known"; verification has the
// last word anyway.
#include "ir/shift_degree.h"

#include <algorithm>

namespace mirage::shift {
namespace {

Degree unknown() { Degree d; d.known = false; return d; }
Degree none() { return {}; }
Degree of_degree(int k, const Degree& like) {
  Degree d = like;
  d.zero = false;
  d.degree = k;
  if (k == 0) d.rows.clear();
  return d;
}

/// Of a sum, a maximum, a choice: all alike, zeros apart.
Degree alike(const std::vector<Degree>& x) {
  Degree out;
  out.zero = true;
  for (const Degree& d : x) {
    if (!d.known) return unknown();
    if (d.zero) continue;
    if (out.zero) out = d;
    else if (!(out == d)) return unknown();
  }
  return out;
}

Degree product(const Degree& x, const Degree& y, int sign) {
  if (!x.known || !y.known) return unknown();
  if (x.zero) return x;
  if (y.zero) return sign > 0 ? y : unknown();
  if (x.degree && y.degree && x.rows != y.rows) return unknown();
  return of_degree(x.degree + sign * y.degree, x.degree ? x : y);
}

Degree map_degree(MapFn fn, const std::vector<Degree>& x) {
  switch (fn) {
    case MapFn::kAdd: case MapFn::kSub: case MapFn::kMax: case MapFn::kMin: return alike(x);
    case MapFn::kMul: return product(x[0], x[1], 1);
    case MapFn::kDiv: return product(x[0], x[1], -1);
    case MapFn::kNeg: case MapFn::kAbs: case MapFn::kRelu: return x[0];   // the factor is positive
    case MapFn::kSquare: return product(x[0], x[0], 1);
    case MapFn::kSqrt: return !x[0].known || x[0].degree % 2 ? unknown() : of_degree(x[0].degree / 2, x[0]);
    case MapFn::kRsqrt: return !x[0].known || x[0].degree % 2 ? unknown() : of_degree(-x[0].degree / 2, x[0]);
    case MapFn::kEqual: case MapFn::kLess: case MapFn::kGreater: return alike(x).known ? none() : unknown();
    case MapFn::kWhere: return !x[0].known || x[0].degree ? unknown() : alike({x[1], x[2]});
    default: break;
  }
  for (const Degree& d : x) if (!d.known || d.degree) return unknown();
  return none();
}

/// rows moved by `to` (position -> position, -2: not possible).
template <class F> Degree moved(const Degree& x, F&& to) {
  if (!x.known || x.degree == 0) return x;
  Degree out = x;
  for (int& r : out.rows) {
    if (r < 0) continue;
    r = to(r);
    if (r == -2) return unknown();
  }
  return out;
}

/// Where a row axis of `from` is in `to`, the same elements in row-major order.
int reshaped(const Dims& from, const Dims& to, int row) {
  const int d = dim_at(from, row);
  int64_t right = 1;
  for (int i = d + 1; i < from.rank(); i++) right *= from[i];
  if (from[d] == 1) return -1;
  int64_t r = 1;
  for (int i = to.rank() - 1; i >= 0; r *= to[i], i--)
    if (r == right && to[i] == from[d]) return position(to, i);
  return -2;
}

Degree matmul(const Graph& g, const Node& node, const Degree& x, const Degree& y) {
  // contracted rows would mix their shifts
  const Degree a = moved(x, [&](int r) { return r == 0 && g.dims(node.operands[0]).back() > 1 ? -2 : r; });
  const Degree b = moved(y, [&](int r) { return r == 1 && g.dims(node.operands[1])[dim_at(g.dims(node.operands[1]), 1)] > 1 ? -2 : r; });
  return product(a, b, 1);
}

Degree node_degree(const Graph& g, NodeId n, const Class& c, const std::vector<Degree>& x) {
  const Node& node = g.node(n);
  if (c.exps.contains(n)) return x[0].known && x[0].degree == 0 ? Degree{true, false, 1, c.rows} : unknown();
  if (const auto* k = g.form<Const>(n)) { Degree d; d.zero = k->value == 0 && k->extent_of.empty(); return d; }
  if (const auto* m = g.form<Map>(n)) return map_degree(m->fn, x);
  if (g.form<MatMul>(n)) return matmul(g, node, x[0], x[1]);
  if (node.operands.empty()) return none();
  const Dims& in = g.dims(node.operands[0]);
  if (const auto* r = g.form<Reduce>(n))
    return moved(x[0], [&](int p) { return p == position(in, r->dim) ? (in[r->dim] == 1 ? -1 : -2) : p; });
  if (const auto* r = g.form<Repeat>(n)) return moved(x[0], [&](int p) { return p == position(in, r->dim) && r->count > 1 ? -2 : p; });
  if (const auto* s = g.form<Slice>(n)) return moved(x[0], [&](int p) { return p == position(in, s->dim) ? -2 : p; });
  if (const auto* r = g.form<Reshape>(n)) return moved(x[0], [&](int p) { return reshaped(in, r->dims, p); });
  if (const auto* t = g.form<Transpose>(n))
    return moved(x[0], [&](int p) {
      for (int i = 0; i < in.rank(); i++) if (t->perm[static_cast<size_t>(i)] == dim_at(in, p)) return position(in, i);
      return -2;
    });
  if (const auto* k = g.form<Concat>(n)) return moved(alike(x), [&](int p) { return p == position(in, k->dim) ? -2 : p; });
  if (const auto* a = g.form<Accum>(n); a && !a->degree)
    return a->fn == ReduceFn::kMax && x[0].degree ? unknown() : c.completes && x[0].known ? none() : x[0];
  for (const Degree& d : x) if (!d.known || d.degree) return unknown();   // calls, running maxima, sums that are rescaled already
  return none();
}

}  // namespace

std::vector<Degree> degrees(const Graph& g, const Class& c) {
  std::vector<Degree> out(static_cast<size_t>(g.num_values()));
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    if (node.first_value < 0) continue;
    std::vector<Degree> x;
    for (ValueId v : node.operands) x.push_back(out[static_cast<size_t>(v)]);
    for (int i = 0; i < node.num_values; i++) out[static_cast<size_t>(node.first_value + i)] = node_degree(g, n, c, x);
  }
  return out;
}

}  // namespace mirage::shift
