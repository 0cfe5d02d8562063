// Every "yes" of the decision comes with the expression around e, and a checker that knows only axioms.def replays a rewriting chain from
// that expression, with e put in, to the program's: 2 500 positives by construction, 100 000 with MIRAGE_FULL=1.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <memory>
#include "unit/expr/derive.h"

using namespace mirage;
using namespace mirage::expr_test;

namespace {

constexpr int kMaxSize = 60;        // nodes of a term
constexpr int kMaxNormal = 4000;    // nodes of a normal form that is written out; over it a case counts as too large

/// What the checker made of one yes.
enum class Checked { kReplayed, kTooLarge, kWrong };

int weight(const ExprTerm& t) {
  int n = 1;
  for (const ExprTerm& a : t.args) n += weight(a);
  return n;
}

/// e in t, both as trees without reductions of the literal 1. Requires the pool to say yes.
Checked check(const TermPtr& e, const TermPtr& t, ExprPool& pool, int64_t* steps) {
  const ExprId it = to_pool(t, pool);
  if (pool.num_capped() || weight(pool.term(it)) > kMaxNormal) return Checked::kTooLarge;
  return yes_replays(e, t, pool, steps) ? Checked::kReplayed : Checked::kWrong;
}

TermPtr in(int i) { return leaf("in", i); }
TermPtr sum(std::vector<int> k, TermPtr x) { return node("sum", {std::move(x)}, std::move(k)); }

}  // namespace

TEST_CASE("chains replay, and forged ones do not") {
  const TermPtr t = node("mul", {node("add", {in(0), in(1)}), node("div", {in(2), in(0)})});
  std::vector<Link> chain = to_normal_form(t);
  int64_t steps = 0;
  const TermPtr end = replay(t, chain, &steps);
  REQUIRE(end);
  CHECK(steps >= 3);
  CHECK(equal(end, replay(t, chain, &steps)));
  CHECK_FALSE(replay(node("mul", {node("add", {in(0), in(1)}), node("div", {in(2), in(1)})}), chain, &steps));
  for (size_t i = 0; i < chain.size(); ++i) {
    std::vector<Link> forged = chain;
    if (forged[i].kind == Link::Kind::kBelow) continue;
    forged[i].number = forged[i].number % 26 + 1;
    CHECK_FALSE(replay(t, forged, &steps));
    forged = chain;
    forged[i].to = node("add", {forged[i].to, in(0)});
    CHECK_FALSE(replay(t, forged, &steps));
  }
  // Equations that look like axioms and are none.
  const auto claims = [&](int number, const TermPtr& from, const TermPtr& to) {
    return replay(from, {{Link::Kind::kAxiom, number, true, to, {}}}, &steps) != nullptr;
  };
  CHECK(claims(10, sum({0}, sum({1}, in(0))), sum({0, 1}, in(0))));
  CHECK_FALSE(claims(10, sum({0}, sum({1}, in(0))), sum({0}, in(0))));
  CHECK_FALSE(claims(10, sum({0}, sum({0}, in(0))), sum({0}, in(0))));
  CHECK(claims(12, sum({0}, node("mul", {in(0), in(1)})), node("mul", {sum({0}, in(0)), in(1)})));
  CHECK_FALSE(claims(12, sum({0}, node("mul", {in(0), in(1)})), node("mul", {sum({0}, in(0)), sum({0}, in(1))})));
  CHECK_FALSE(claims(5, node("add", {node("mul", {in(0), in(1)}), node("mul", {in(0), in(2)})}),
                     node("mul", {node("add", {in(0), in(0)}), in(1)})));
  CHECK_FALSE(claims(15, node("mul", {node("sqrt", {in(0)}), node("sqrt", {in(0)})}), in(0)));
  CHECK_FALSE(replay(node("add", {in(0), in(1)}), {{Link::Kind::kReorder, 3, true, node("add", {in(0), in(0)}), {}}}, &steps));
  CHECK_FALSE(replay(node("sub", {in(0), in(1)}), {{Link::Kind::kReorder, 3, true, node("sub", {in(1), in(0)}), {}}}, &steps));
  CHECK_FALSE(filled(in(0), in(1)));
  CHECK_FALSE(filled(node("add", {leaf("hole"), leaf("hole")}), in(1)));
}

TEST_CASE("contexts of single cases") {
  ExprPool pool;
  const auto around = [&](const TermPtr& e, const TermPtr& t) {
    const auto c = pool.context(to_pool(e, pool), to_pool(t, pool));
    return c ? text(from_pool(*c)) : "none";
  };
  CHECK(around(in(0), in(0)) == "hole");
  CHECK(around(in(0), in(1)) == "none");
  CHECK(around(leaf("one"), in(1)) == "mul(hole, in1)");
  CHECK(around(sum({0}, in(0)), sum({0, 1}, in(0))) == "sum{1,}(hole)");
  CHECK(around(node("max", {in(0)}, {0}), node("exp", {node("max", {in(0)}, {0, 1})})) == "exp(max{1,}(hole))");
  CHECK(
      around(node("add", {in(0), in(1)}), node("div", {in(2), node("add", {node("mul", {in(0), in(3)}), node("mul", {in(1), in(3)})})})) ==
      "div(in2, mul(hole, in3))");
  CHECK(around(in(0), node("where", {in(1), in(2), node("log", {in(0)})})) == "where(in1, in2, log(hole))");
}

TEST_CASE("what is inside by construction has a context that replays") {
  const int cases = std::getenv("MIRAGE_FULL") ? 100'000 : 2500;
  Rng rng(4096);
  auto pool = std::make_unique<ExprPool>();
  int replayed = 0, large = 0, deep = 0;
  int64_t steps = 0;
  for (int i = 0; replayed < cases;) {
    if (i % 200 == 0) pool = std::make_unique<ExprPool>();
    const TermPtr e = with_counts(random_term(1 + static_cast<int>(rng.below(3)), rng), *pool);
    TermPtr t = e;
    int levels = 0;
    for (uint64_t n = 1 + rng.below(5); n > 0; --n) {
      for (uint64_t k = rng.below(4); k > 0; --k)
        if (const TermPtr r = rewrite_somewhere(t, rng); r->size <= kMaxSize && !reduces_one(r, *pool)) t = r;
      const TermPtr around = random_context(t, rng);
      if (around->size > kMaxSize || reduces_one(around, *pool)) continue;
      t = around;
      ++levels;
    }
    if (levels == 0) continue;
    for (int k = 0; k < 20; ++k)
      if (const TermPtr r = rewrite_somewhere(t, rng); r->size <= kMaxSize && !reduces_one(r, *pool)) t = r;
    ++i;
    INFO("case " << i << "\n e " << text(e) << "\n t " << text(t));
    REQUIRE(pool->subexpr(to_pool(e, *pool), to_pool(t, *pool)));
    const Checked c = check(e, t, *pool, &steps);
    if (c == Checked::kWrong) {
      const auto context = pool->context(to_pool(e, *pool), to_pool(t, *pool));
      INFO("context " << (context ? text(from_pool(*context)) : "none"));
      FAIL("a yes without a context that replays");
    }
    (c == Checked::kReplayed ? replayed : large)++;
    deep += levels > 2;
  }
  INFO(replayed << " replayed, " << large << " too large, " << deep << " more than two operators deep, " << steps << " equations");
  if (std::getenv("MIRAGE_FULL"))
    WARN(replayed << " replayed, " << large << " too large, " << deep << " more than two operators deep, " << steps << " equations");
  CHECK(large < cases / 50);
  CHECK(deep > cases / 3);
  CHECK(steps > 5 * cases);
}
