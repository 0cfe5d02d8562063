// Rewritings of views, reductions, contractions and softmaxes.
#include "trust/random/rewrite.h"

#include <algorithm>

namespace mirage::test {

namespace {

struct At {
  const P& x;
  Rng& rng;
  std::vector<Rewriting>& out;
  const P& a() const { return x->in[0]; }
  const P& b() const { return x->in[1]; }
  void add(const char* law, P now) const {
    if (now->dims == x->dims) out.push_back({law, std::move(now), false});
  }
};

size_t rank(const P& x) { return x->dims.size(); }
P flip(const P& x) { return transpose({1, 0}, x); }

/// Whether x does not change along `dim` of a tensor of rank r that it is broadcast to.
bool is_constant_along(const P& x, size_t dim, size_t r) {
  const size_t shift = r - rank(x);
  return dim < shift || x->dims[dim - shift] == 1;
}

void sums_along(const At& at) {
  const P &x = at.x, &a = at.a();
  const auto dim = static_cast<size_t>(x->n[0]);
  const int d = static_cast<int>(dim);
  const bool is_sum = is(x, "reduce.sum");
  const int64_t extent = a->dims[dim];
  if (x->n[1]) return;
  for (int64_t group : {2, 3, 4, 8})
    if (extent % group == 0 && extent > group) at.add("reduce = reduce of groups", reduce(is_sum, d, reduce(is_sum, d, a, group)));
  if (extent > 1) {
    const int64_t cut = 1 + static_cast<int64_t>(at.rng.below(static_cast<uint64_t>(extent - 1)));
    at.add("reduce = reduce of two slices",
           map(is_sum ? "add" : "maximum", {reduce(is_sum, d, slice(d, 0, cut, a)), reduce(is_sum, d, slice(d, cut, extent, a))}));
    if (extent % 2 == 0)
      at.add("reduce = even and odd elements",
             map(is_sum ? "add" : "maximum", {reduce(is_sum, d, slice(d, 0, extent, a, 2)), reduce(is_sum, d, slice(d, 1, extent, a, 2))}));
  }
  if (rank(x) == 2) at.add("reduce = transposed reduce", flip(reduce(is_sum, 1 - d, flip(a))));
  if (a->is_infinite) return;
  if (is_sum && rank(x) == 2 && d == 1) at.add("sum = x 1", matmul(a, iota(0, {extent, 1}) * constant(0) + constant(1)));
  if (is_sum && (is(a, "add") || is(a, "sub")) && a->in[0]->dims == a->dims && a->in[1]->dims == a->dims)
    at.add("sum(x + y) = sum x + sum y", map(a->op, {sum(d, a->in[0]), sum(d, a->in[1])}));
  if (is_sum && (is(a, "mul") || is(a, "div")))
    for (size_t i : {0U, 1U}) {
      if (is(a, "div") && i == 0) continue;
      if (is_constant_along(a->in[i], dim, rank(a)) && a->in[1 - i]->dims == a->dims)
        at.add("sum(c x) = c sum x", map(a->op, {sum(d, a->in[1 - i]), a->in[i]}));
    }
  if (is_sum && is(a, "square")) at.add("sum x^2 = sum x x", sum(d, a->in[0] * a->in[0]));
  if (!is_sum && (is(a, "add") || is(a, "sub")) && is_constant_along(a->in[1], dim, rank(a)) && a->in[0]->dims == a->dims)
    at.add("max(x + c) = max x + c", map(a->op, {max(d, a->in[0]), a->in[1]}));
  if (!is_sum && is(a, "mul") && is_constant_along(a->in[1], dim, rank(a)) && a->in[0]->dims == a->dims && sign_of(a->in[1]) > 0)
    at.add("max(x p) = p max x", max(d, a->in[0]) * a->in[1]);
}

void contractions(const At& at) {
  const P &a = at.a(), &b = at.b();
  if (rank(a) != 2) return;
  const int64_t k = a->dims[1];
  at.add("x y = (y' x')'", flip(matmul(flip(b), flip(a))));
  if (k > 1) {
    const int64_t cut = 1 + static_cast<int64_t>(at.rng.below(static_cast<uint64_t>(k - 1)));
    at.add("contraction in two parts", matmul(slice(1, 0, cut, a), slice(0, 0, cut, b)) + matmul(slice(1, cut, k, a), slice(0, cut, k, b)));
  }
  if (b->dims[1] > 1) {
    const int64_t n = b->dims[1], cut = n / 2;
    at.add("columns in two parts", concat(1, {matmul(a, slice(1, 0, cut, b)), matmul(a, slice(1, cut, n, b))}));
  }
  if (is(a, "matmul")) at.add("(x y) z = x (y z)", matmul(a->in[0], matmul(a->in[1], b)));
  if (is(b, "matmul")) at.add("x (y z) = (x y) z", matmul(matmul(a, b->in[0]), b->in[1]));
  if (k <= 8 && a->dims[0] * b->dims[1] * k <= 4096)
    at.add("contraction as a sum of products",
           reshape(at.x->dims, sum(1, reshape({a->dims[0], k, 1}, a) * reshape({1, k, b->dims[1]}, b))));
  for (size_t i : {0U, 1U}) {
    const P &m = at.x->in[i], &o = at.x->in[1 - i];
    const auto mm = [&](const P& y) { return i == 0 ? matmul(y, o) : matmul(o, y); };
    if ((is(m, "add") || is(m, "sub")) && m->in[0]->dims == m->dims && m->in[1]->dims == m->dims)
      at.add("(x + y) z = x z + y z, of matrices", map(m->op, {mm(m->in[0]), mm(m->in[1])}));
    const size_t inner = i == 0 ? 1 : 0;
    if ((is(m, "mul") || is(m, "div")) && m->in[0]->dims == m->dims && is_constant_along(m->in[1], inner, 2))
      at.add("(c x) z = c (x z), of matrices", map(m->op, {mm(m->in[0]), m->in[1]}));
  }
}

/// e^u / sum e^u, shifted by what does not depend on the index.
void softmaxes(const At& at) {
  const P& x = at.x;
  if (!is(x, "div") || !is(at.a(), "exp") || !is(at.b(), "reduce.sum") || at.b()->n[1]) return;
  const P &e = at.a(), &u = e->in[0];
  const int d = static_cast<int>(at.b()->n[0]);
  if (!same(at.b()->in[0], e) || u->dims != e->dims) return;
  std::vector<P> shifts{max(d, u)};
  if (!u->is_infinite) shifts.insert(shifts.end(), {max(d, u) * constant(0.5), constant(3), sum(d, u), max(d, map("abs", {u}))});
  const P t = shifts[at.rng.below(shifts.size())];
  const P f = map("exp", {u - t});
  at.add("softmax(x) = softmax(x - t)", f / sum(d, f));
}

void views(const At& at) {
  const P& x = at.x;
  if (is_map(x) && rank(x) == 2) {
    bool whole = true;
    for (const P& y : x->in) whole = whole && (rank(y) == 2 || rank(y) == 0);
    std::vector<P> in;
    for (const P& y : x->in) in.push_back(rank(y) == 2 ? flip(y) : y);
    if (whole && at.rng.below(3) == 0) at.add("f(x) = f(x')'", flip(map(x->op, in)));
    bool full = true;
    for (const P& y : x->in) full = full && (y->dims == x->dims || rank(y) == 0);
    if (full && at.rng.below(3) == 0) {
      std::vector<P> flat, low, high;
      const int64_t n = count_of(x->dims), cols = x->dims[1], cut = cols / 2;
      for (const P& y : x->in) {
        flat.push_back(rank(y) ? reshape({n}, y) : y);
        low.push_back(rank(y) && cut ? slice(1, 0, cut, y) : y);
        high.push_back(rank(y) && cut ? slice(1, cut, cols, y) : y);
      }
      at.add("f(x) = f(flat x)", reshape(x->dims, map(x->op, flat)));
      if (cut) at.add("f(x) = [f(x left), f(x right)]", concat(1, {map(x->op, low), map(x->op, high)}));
    }
  }
  if (is(x, "transpose") && is(at.a(), "transpose") && rank(x) == 2) at.add("x'' = x", at.a()->in[0]);
  if (is(x, "reshape") && is(at.a(), "reshape")) at.add("reshape(reshape x) = reshape x", reshape(x->dims, at.a()->in[0]));
  if (rank(x) == 2 && !is(x, "const") && at.rng.below(10) == 0) {
    at.add("x = x''", flip(flip(x)));
    if (x->dims[1] > 1) at.add("x = [x left, x right]", concat(1, {slice(1, 0, 1, x), slice(1, 1, x->dims[1], x)}));
    if (x->dims[0] > 1)
      at.add("x = [x top; x bottom]", concat(0, {slice(0, 0, x->dims[0] - 1, x), slice(0, x->dims[0] - 1, x->dims[0], x)}));
    at.add("x = reshape(reshape x)", reshape(x->dims, reshape({count_of(x->dims), 1}, x)));
  }
}

}  // namespace

std::vector<Rewriting> movements_of(const P& x, Rng& rng) {
  std::vector<Rewriting> out;
  const At at{x, rng, out};
  if (is(x, "reduce.sum") || is(x, "reduce.max")) sums_along(at);
  if (is(x, "matmul")) contractions(at);
  softmaxes(at);
  views(at);
  return out;
}

}  // namespace mirage::test
