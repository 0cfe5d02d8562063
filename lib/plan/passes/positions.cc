#include "plan/passes/positions.h"

namespace mirage {
namespace {

int64_t elements_behind(const Dims& dims, int d) {
  int64_t n = 1;
  for (int i = d + 1; i < dims.rank(); i++) n *= dims[i];
  return n;
}

/// In the dimensions behind a reshape: the number changes along one of them only, or it is no position.
std::optional<Position> reshaped(const Position& p, const Dims& from, const Dims& to) {
  const int64_t extent = from[p.dim], period = p.period ? p.period : (extent + p.div - 1) / p.div, inside = elements_behind(from, p.dim);
  if (period == 1) return Position{to.rank() - 1, 1, 1};   // zero everywhere
  if (inside * extent < from.elements() && extent % (p.div * period) != 0) return std::nullopt;
  // Of the tensor's elements in order, number x is (x / div) % period.
  const int64_t div = inside * p.div;
  for (int d = 0; d < to.rank(); d++) {
    const int64_t own = elements_behind(to, d), end = own * to[d];
    if (div % own != 0 || div >= end || (end < to.elements() && end % (div * period) != 0)) continue;
    return Position{d, div / own, to[d] <= div / own * period ? 0 : period};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Position> position_of(const Graph& g, ValueId v) {
  if (const auto* iota = g.def_form<Iota>(v)) return Position{iota->dim};
  const Node& n = g.def(v);
  const bool is_moved = g.def_form<Repeat>(v) || g.def_form<Transpose>(v) || g.def_form<Reshape>(v);
  std::optional<Position> p = is_moved ? position_of(g, n.operands[0]) : std::nullopt;
  if (!p) return p;
  const Dims& from = g.dims(n.operands[0]);
  if (const auto* r = g.def_form<Repeat>(v)) {
    if (r->dim != p->dim || r->count == 1) return p;
    if (from[p->dim] % p->div != 0) return std::nullopt;
    if (!p->period) p->period = from[p->dim] / p->div;
    return from[p->dim] % (p->div * p->period) == 0 ? p : std::nullopt;
  }
  if (const auto* t = g.def_form<Transpose>(v)) {
    for (int d = 0; d < from.rank(); d++)
      if (t->perm[static_cast<size_t>(d)] == p->dim) return Position{d, p->div, p->period};
    return std::nullopt;
  }
  return reshaped(*p, from, g.dims(v));
}

}  // namespace mirage
