// The judge that may stand in for the decision: what it is shown, and that it is asked once for each pair.
#include <catch2/catch.hpp>
#include <algorithm>
#include "unit/expr/terms.h"

using namespace mirage;
using namespace mirage::expr_test;

namespace {
/// A term of the pool as a tree of the tests, whose leaves are named as axioms.def has them.
ExprId back(const ExprTerm& t, ExprPool& pool) {
  if (t.op == "in") return pool.input(static_cast<int>(t.id));
  if (t.op == "ext") return pool.extent(std::vector<int>{static_cast<int>(t.id)});
  if (t.op == "one") return pool.constant(1);
  if (t.op == "minus_one") return pool.constant(-1);
  if (t.op == "lit") return pool.constant(__builtin_bit_cast(double, t.id));
  std::vector<ExprId> args;
  for (const ExprTerm& a : t.args) args.push_back(back(a, pool));
  if (t.op == "sum") return pool.sum(args[0], t.extents);
  if (t.op == "max") return pool.max(args[0], t.extents);
  if (t.op == "concat") return pool.concat(args);
  return pool.map(parse_map_fn(t.op).value(), args);
}
/// sum(i, x + 1) has the monomial sum(i, 1), which by itself would be read as the constant extent(i).
bool counts(const ExprTerm& t) { return (t.op == "sum" && t.args[0].op == "one") || std::any_of(t.args.begin(), t.args.end(), counts); }
}  // namespace

TEST_CASE("terms written out read back as the same expression") {
  Rng rng(5);
  ExprPool pool;
  int tried = 0;
  for (int i = 0; i < 2000; i++) {
    const TermPtr t = random_term(4, rng);
    if (reduces_one(t, pool)) continue;
    const ExprId e = to_pool(t, pool);
    if (e >= 1 << 30 || counts(pool.term(e))) continue;
    INFO(text(t) << "  " << pool.print(e));
    REQUIRE(back(pool.term(e), pool) == e);
    tried++;
  }
  CHECK(tried > 1000);
}

TEST_CASE("a judge is asked once for each pair, and its answer is taken") {
  ExprPool pool;
  const ExprId x = pool.input(0), y = pool.input(1);
  int asked = 0;
  bool answer = true;
  pool.set_judge([&](const ExprTerm& e, const ExprTerm& t) { asked++; CHECK(e.op == "in"); CHECK(t.op == "in"); return answer; });
  CHECK(pool.subexpr(x, y));
  CHECK(pool.subexpr(x, y));
  CHECK(pool.subexpr(x, x));
  CHECK(asked == 1);
  answer = false;
  CHECK(pool.subexpr(x, y));
  CHECK_FALSE(pool.subexpr(y, x));
  CHECK(asked == 2);
  pool.set_judge({});
  CHECK_FALSE(pool.subexpr(x, y));
}
