// Products of rich polynomials: multiplied out term by term in any order they are the same, and their factors are found again. This is what
// the order of monomials has to be right for.
#include <catch2/catch.hpp>
#include "unit/expr/terms.h"

using namespace mirage;
using namespace mirage::expr_test;

namespace {

TermPtr fold(const char* op, std::vector<TermPtr> terms, Rng& rng) {
  while (terms.size() > 1) {   // random shape, random order
    const size_t i = rng.below(terms.size());
    std::swap(terms[i], terms.back());
    const TermPtr last = terms.back();
    terms.pop_back();
    TermPtr& into = terms[rng.below(terms.size())];
    into = node(op, {into, last});
  }
  return terms[0];
}

std::vector<TermPtr> rich_terms(int n, int depth, Rng& rng);

/// A product of some of: input, exp, sqrt, reciprocal of a small sum, reduction.
TermPtr rich_monomial(int depth, Rng& rng) {
  TermPtr t = rng.below(3) ? leaf("in", static_cast<int>(rng.below(3))) : leaf("one");
  const auto part = [&] { return fold("add", rich_terms(1 + static_cast<int>(rng.below(3)), depth - 1, rng), rng); };
  if (depth > 0 && rng.below(2)) t = node("mul", {t, node("exp", {part()})});
  if (depth > 0 && rng.below(3) == 0) t = node("mul", {t, node("sqrt", {part()})});
  if (depth > 0 && rng.below(3) == 0) t = node("div", {t, part()});
  if (rng.below(4) == 0) t = node("sum", {t}, {static_cast<int>(rng.below(2))});
  return t;
}

std::vector<TermPtr> rich_terms(int n, int depth, Rng& rng) {
  std::vector<TermPtr> v;
  for (int i = 0; i < n; ++i) v.push_back(rich_monomial(depth, rng));
  return v;
}

std::vector<TermPtr> pairwise(const std::vector<TermPtr>& xs, const std::vector<TermPtr>& ys) {
  std::vector<TermPtr> v;
  for (const TermPtr& x : xs)
    for (const TermPtr& y : ys) v.push_back(node("mul", {x, y}));
  return v;
}

}  // namespace

TEST_CASE("products multiplied out in any order are one expression, and hold their factors") {
  Rng rng(5);
  auto pool = std::make_unique<ExprPool>();
  int compared = 0;
  for (int i = 0; i < 4000; ++i) {
    if (i % 100 == 0) pool = std::make_unique<ExprPool>();
    ExprPool& p = *pool;
    const int depth = i % 3 == 0 ? 2 : 1;
    const auto xs = rich_terms(1 + static_cast<int>(rng.below(4)), depth, rng),
               ys = rich_terms(1 + static_cast<int>(rng.below(4)), depth, rng);
    const TermPtr x = fold("add", xs, rng), y = fold("add", ys, rng), xy = fold("add", pairwise(xs, ys), rng),
                  rest = rich_monomial(depth, rng);
    INFO("case " << i << "\n x " << text(x) << "\n y " << text(y));
    const ExprId product = to_pool(node("mul", {x, y}), p);
    if (p.subexpr(p.input(99), product)) continue;   // over the cap
    ++compared;
    REQUIRE(to_pool(xy, p) == product);
    REQUIRE(p.subexpr(to_pool(x, p), product));
    REQUIRE(p.subexpr(to_pool(y, p), to_pool(node("add", {rest, xy}), p)));
    const ExprId quotient = to_pool(node("div", {node("div", {rest, x}), y}), p);
    REQUIRE(to_pool(node("div", {rest, xy}), p) == quotient);
    REQUIRE(p.subexpr(to_pool(node("div", {leaf("one"), y}), p), quotient));
    REQUIRE(p.subexpr(to_pool(node("div", {rest, x}), p), quotient));
    const ExprId root = to_pool(node("mul", {node("sqrt", {x}), node("sqrt", {y})}), p);
    REQUIRE(to_pool(node("sqrt", {xy}), p) == root);
    REQUIRE(p.subexpr(to_pool(node("sqrt", {y}), p), root));
    // A factor with one more term than x is none: the number of terms multiplies.
    const ExprId more = to_pool(node("sqrt", {node("add", {x, leaf("in", 9)})}), p);
    REQUIRE_FALSE(p.subexpr(more, root));
  }
  CHECK(compared > 3000);
}
