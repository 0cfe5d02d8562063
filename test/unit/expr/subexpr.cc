// What is and is not a sub-expression, by hand: the negatives that pruning lives on.
#include <catch2/catch.hpp>
#include <initializer_list>
#include "mirage/expr/expr.h"

using namespace mirage;

namespace {

/// Short names over one pool.
struct Terms {
  ExprPool p;
  ExprId in(int i) { return p.input(i); }
  ExprId m(MapFn f, ExprId x) { return p.map(f, std::vector<ExprId>{x}); }
  ExprId m(MapFn f, ExprId x, ExprId y) { return p.map(f, std::vector<ExprId>{x, y}); }
  ExprId add(ExprId x, ExprId y) { return m(MapFn::kAdd, x, y); }
  ExprId sub(ExprId x, ExprId y) { return m(MapFn::kSub, x, y); }
  ExprId mul(ExprId x, ExprId y) { return m(MapFn::kMul, x, y); }
  ExprId div(ExprId x, ExprId y) { return m(MapFn::kDiv, x, y); }
  ExprId neg(ExprId x) { return m(MapFn::kNeg, x); }
  ExprId exp(ExprId x) { return m(MapFn::kExp, x); }
  ExprId sqrt(ExprId x) { return m(MapFn::kSqrt, x); }
  ExprId silu(ExprId x) { return m(MapFn::kSilu, x); }
  ExprId c(double v) { return p.constant(v); }
  ExprId n(std::vector<int> s) { return p.extent(s); }
  ExprId sum(std::vector<int> s, ExprId x) { return p.sum(x, s); }
  ExprId max(std::vector<int> s, ExprId x) { return p.max(x, s); }
  ExprId mm(std::vector<int> s, ExprId x, ExprId y) { return p.matmul(x, y, s); }
  bool sub_of(ExprId e, ExprId t) { return p.subexpr(e, t); }
};

}  // namespace

TEST_CASE("simple sub-expressions and what is none") {
  Terms t;
  const ExprId x = t.in(0), y = t.in(1), z = t.in(2);
  CHECK(t.sub_of(x, x));
  CHECK(t.sub_of(x, t.add(x, y)));
  CHECK(t.sub_of(x, t.exp(x)));
  CHECK(t.sub_of(y, t.div(x, y)));
  CHECK(t.sub_of(t.mul(x, z), t.mul(t.add(x, y), z)));
  CHECK(t.sub_of(x, t.silu(x)));
  CHECK(t.sub_of(x, t.m(MapFn::kPow, x, y)));
  CHECK_FALSE(t.sub_of(x, y));
  CHECK_FALSE(t.sub_of(x, t.exp(y)));
  CHECK_FALSE(t.sub_of(t.exp(x), x));
  CHECK_FALSE(t.sub_of(t.exp(x), t.exp(y)));
  CHECK_FALSE(t.sub_of(t.exp(t.exp(x)), t.exp(x)));
  CHECK_FALSE(t.sub_of(t.add(x, x), t.add(x, y)));
  CHECK_FALSE(t.sub_of(t.div(x, y), t.div(y, x)));
  CHECK_FALSE(t.sub_of(t.div(x, y), t.mul(x, y)));
  CHECK_FALSE(t.sub_of(t.sqrt(x), t.mul(x, x)));
  CHECK_FALSE(t.sub_of(t.neg(x), x));
  CHECK_FALSE(t.sub_of(t.sub(x, y), t.add(x, y)));
  CHECK_FALSE(t.sub_of(t.m(MapFn::kSigmoid, x), t.silu(x)));
  CHECK(t.sub_of(x, t.neg(x)));
  CHECK(t.sub_of(x, t.sub(y, x)));
  CHECK(t.sub_of(x, t.add(x, t.c(2.5))));
  CHECK(t.sub_of(x, t.mul(x, t.c(0.5))));
  CHECK(t.sub_of(x, t.div(x, t.n({3, 4}))));
  CHECK(t.sub_of(t.n({3}), t.div(x, t.n({3, 4}))));
  CHECK_FALSE(t.sub_of(t.n({5}), t.div(x, t.n({3, 4}))));
  CHECK_FALSE(t.sub_of(t.mul(x, t.c(0.25)), t.mul(x, t.c(0.5))));
}

TEST_CASE("powers count") {
  Terms t;
  const ExprId x = t.in(0), w = t.in(1), xx = t.mul(x, x), xxx = t.mul(xx, x);
  const ExprId program = t.div(t.mm({0}, x, w), t.sqrt(t.add(t.div(t.sum({0}, xx), t.n({0})), t.c(1e-5))));
  CHECK(t.sub_of(xx, program));
  CHECK_FALSE(t.sub_of(xxx, program));
  CHECK_FALSE(t.sub_of(t.mul(xx, w), program));
  CHECK_FALSE(t.sub_of(t.mul(w, w), program));
  CHECK_FALSE(t.sub_of(t.sum({0}, w), t.sum({1}, w)));
  CHECK_FALSE(t.sub_of(t.sum({0, 0}, xx), program));
  CHECK_FALSE(t.sub_of(t.sum({1}, x), program));
  CHECK(t.sub_of(t.sum({0}, x), program));
  CHECK_FALSE(t.sub_of(t.add(x, w), program));
  CHECK_FALSE(t.sub_of(t.exp(x), program));
}

TEST_CASE("factors hide in products that were multiplied out") {
  Terms t;
  const ExprId x = t.in(0), a = t.in(1), b = t.in(2), c = t.in(3);
  const ExprId sum = t.add(a, b);
  CHECK(t.div(x, t.mul(sum, c)) == t.div(x, t.add(t.mul(a, c), t.mul(b, c))));
  CHECK(t.sub_of(t.div(x, sum), t.div(x, t.add(t.mul(a, c), t.mul(b, c)))));
  CHECK(t.sub_of(t.sqrt(sum), t.sqrt(t.mul(sum, c))));
  CHECK_FALSE(t.sub_of(t.sqrt(t.add(a, c)), t.sqrt(t.mul(sum, c))));
  CHECK(t.sub_of(t.exp(a), t.exp(t.add(t.add(a, b), c))));
  CHECK(t.sub_of(t.div(x, sum), t.div(x, t.mul(sum, sum))));
  CHECK(t.sub_of(t.div(x, t.mul(sum, t.add(a, c))), t.div(x, t.mul(t.mul(sum, t.add(b, c)), t.add(a, c)))));
  CHECK_FALSE(t.sub_of(t.div(x, t.mul(sum, sum)), t.div(x, sum)));
}

TEST_CASE("reducing the literal 1 gives an extent, and partial sums stay out of denominators and roots") {
  Terms t;
  const ExprId x = t.in(0), y = t.in(1), one = t.c(1);
  CHECK(t.sum({1, 2}, one) == t.n({2, 1}));
  CHECK(t.sum({}, one) == one);
  CHECK_FALSE(t.sub_of(t.div(x, t.sum({1}, y)), t.div(x, t.sum({1, 2}, y))));
  CHECK_FALSE(t.sub_of(t.sqrt(y), t.sqrt(t.sum({2}, y))));
  CHECK_FALSE(t.sub_of(t.div(one, t.sqrt(y)), t.div(x, t.sqrt(t.sum({2}, y)))));
  CHECK(t.sub_of(t.div(x, y), t.div(x, t.mul(y, t.sum({2}, one)))));
  CHECK(t.sub_of(t.div(x, y), t.div(x, t.sum({2}, t.mul(y, y)))));        // y * sum(y)
  CHECK(t.sub_of(t.div(x, y), t.div(x, t.sum({2}, t.add(y, t.mul(y, y))))));  // y * sum(1 + y)
  CHECK(t.sub_of(t.sum({1}, y), t.div(x, t.sum({1, 2}, y))));
}

TEST_CASE("literals") {
  Terms t;
  const ExprId x = t.in(0);
  CHECK(t.mul(t.c(1), x) == x);
  CHECK(t.div(x, t.c(1)) == x);
  CHECK(t.mul(t.c(-1), x) == t.neg(x));
  CHECK(t.add(x, t.c(-2)) == t.sub(x, t.c(2)));
  CHECK(t.c(0.0) == t.c(-0.0));
  CHECK(t.c(__builtin_nan("1")) == t.c(__builtin_nan("2")));
  CHECK(t.mul(t.c(2), t.c(3)) != t.c(6));
  CHECK(t.neg(t.neg(x)) != x);
  CHECK(t.add(x, t.c(0)) != x);
  CHECK_FALSE(t.sub_of(t.in(1), t.mul(t.c(0), x)));
  CHECK(t.div(t.mul(x, t.in(1)), t.in(1)) != x);
  CHECK(t.sub(x, x) != t.c(0));
}

TEST_CASE("maxima over extents") {
  Terms t;
  const ExprId x = t.in(0), all = t.max({1, 2, 3}, x);
  CHECK(t.max({1}, t.max({3, 2}, x)) == all);
  CHECK(t.max({}, x) == x);
  CHECK(t.sub_of(t.max({1, 3}, x), all));
  CHECK(t.sub_of(t.max({2}, x), t.exp(t.sub(x, all))));
  CHECK_FALSE(t.sub_of(t.max({4}, x), all));
  CHECK_FALSE(t.sub_of(t.max({1, 1}, x), all));
  CHECK_FALSE(t.sub_of(t.max({1}, t.mul(x, x)), t.mul(all, all)));
  CHECK_FALSE(t.sub_of(t.sum({1}, x), all));
}

TEST_CASE("over the cap nothing is pruned, and that is counted") {
  Terms t;
  ExprId p = t.add(t.in(0), t.in(1));
  const ExprId small = p;
  for (int i = 0; i < 12; ++i) p = t.mul(p, p);
  CHECK(t.sub_of(t.exp(t.in(7)), p));
  CHECK(t.sub_of(t.exp(t.in(7)), t.silu(t.sum({1}, t.m(MapFn::kMax, p, t.in(1))))));
  CHECK(t.p.num_capped() == 2);
  CHECK_FALSE(t.sub_of(p, small));
  CHECK(t.sub_of(p, p));
  ExprId again = small;
  for (int i = 0; i < 12; ++i) again = t.mul(again, again);
  CHECK(again == p);
  CHECK(t.add(p, t.in(2)) == t.add(t.in(2), p));
  ExprId deep = t.in(0);
  for (int i = 0; i < 40; ++i) deep = t.div(deep, t.exp(t.mul(deep, deep)));
  CHECK(t.sub_of(t.in(9), deep));
}
