// The pool against axioms.def: terms that the axioms equate have one id, and whatever is a sub-expression by construction is found, after
// any rewriting.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <set>
#include "unit/expr/terms.h"

using namespace mirage;
using namespace mirage::expr_test;

namespace {

int num_cases(const char* variable, int usual) {
  const char* s = std::getenv(variable);
  return s ? std::atoi(s) : usual;
}

constexpr int kMaxSize = 90;   // nodes of a term under rewriting

TermPtr rewritten(TermPtr t, int steps, Rng& rng) {
  for (int i = 0; i < steps; ++i) {
    const TermPtr r = rewrite_somewhere(t, rng);
    if (r->size <= kMaxSize) t = r;
  }
  return t;
}

}  // namespace

TEST_CASE("both sides of every axiom have one id") {
  ExprPool pool;
  Rng rng(1);
  std::set<int> seen;
  for (const Axiom& a : axioms()) {
    for (int i = 0; i < 40; ++i) {
      // Patterns are matched against themselves: an instance is built by rewriting a term that has the left side's shape.
      const auto instance = [&](const auto& self, const Pattern& p, std::map<std::string, TermPtr>& vars,
                                std::map<char, std::vector<int>>& ext) -> TermPtr {
        if (p.op == "x" || p.op == "y" || p.op == "z") {
          TermPtr& v = vars[p.op];
          if (!v) v = random_term(2, rng);
          return v;
        }
        if (p.args.empty()) return leaf(p.op);
        std::vector<int> extents;
        for (char c : p.extents) {
          if (c == '1') continue;
          if (!ext.count(c)) ext[c] = {static_cast<int>(rng.below(3)), static_cast<int>(rng.below(3))};
          extents.insert(extents.end(), ext[c].begin(), ext[c].end());
        }
        std::vector<TermPtr> args;
        for (const Pattern& q : p.args) args.push_back(self(self, q, vars, ext));
        return node(p.op, std::move(args), std::move(extents));
      };
      std::map<std::string, TermPtr> vars;
      std::map<char, std::vector<int>> ext;
      const TermPtr l = instance(instance, a.lhs, vars, ext), r = instance(instance, a.rhs, vars, ext);
      INFO("axiom " << a.number << ": " << text(l) << " = " << text(r));
      if (reduces_one(l, pool) || reduces_one(r, pool)) continue;
      REQUIRE(to_pool(l, pool) == to_pool(r, pool));
      seen.insert(a.number);
    }
  }
  CHECK(seen.size() == axioms().size());
  CHECK(pool.num_capped() == 0);
}

TEST_CASE("what is inside by construction is found, after any axiom steps") {
  const int cases = num_cases("MIRAGE_EXPR_CASES", 20000);
  Rng rng(2024);
  auto pool = std::make_unique<ExprPool>();
  int wrapped = 0, changed = 0, capped = 0, outside = 0;
  for (int i = 0; i < cases; ++i) {
    if (i % 500 == 0) pool = std::make_unique<ExprPool>();
    const TermPtr e = random_term(1 + static_cast<int>(rng.below(3)), rng);
    TermPtr plain = e, t = e;   // the same contexts, without and with rewriting between them
    for (uint64_t n = 1 + rng.below(5); n > 0; --n) {
      t = rewritten(t, static_cast<int>(rng.below(4)), rng);
      Rng same = rng;
      const TermPtr around = random_context(t, rng);
      if (around->size > kMaxSize) continue;
      plain = random_context(plain, same);
      t = around;
    }
    const TermPtr u = rewritten(t, 40, rng), f = rewritten(e, 10, rng);
    const ExprId ep = to_pool(plain, *pool), et = to_pool(t, *pool), eu = to_pool(u, *pool), ee = to_pool(e, *pool), ef = to_pool(f, *pool);
    INFO("case " << i << "\n e " << text(e) << "\n f " << text(f) << "\n t " << text(t) << "\n u " << text(u) << "\n   " << pool->print(ee)
                 << "\n   " << pool->print(eu));
    const int64_t before = pool->num_capped();
    REQUIRE(pool->subexpr(ee, ep));
    if (reduces_one(plain, *pool) || reduces_one(u, *pool) || reduces_one(f, *pool)) { ++outside; continue; }
    REQUIRE(pool->subexpr(ef, eu));
    if (pool->num_capped() != before) { ++capped; continue; }
    REQUIRE(ee == ef);
    REQUIRE(ep == eu);
    wrapped += t != e;
    changed += !equal(t, u);
    if (!reduces_one(t, *pool)) REQUIRE(et == eu);
  }
  CHECK(outside < cases / 5);
  CHECK(wrapped > cases * 7 / 10);
  CHECK(changed > cases * 7 / 10);
  CHECK(capped < cases / 50);
}

TEST_CASE("random pairs are mostly no sub-expressions") {
  Rng rng(7);
  ExprPool pool;
  int yes = 0, one_way = 0;
  constexpr int kPairs = 5000;
  for (int i = 0; i < kPairs; ++i) {
    const ExprId a = to_pool(random_term(3, rng), pool), b = to_pool(random_term(4, rng), pool);
    const bool ab = pool.subexpr(a, b), ba = pool.subexpr(b, a);
    yes += ab;
    one_way += ab != ba;
    if (ab && ba) REQUIRE(a == b);   // without cancellation the relation is an order
  }
  CHECK(yes < kPairs / 2);
  CHECK(one_way > 0);
}
