// All small terms: equality and sub-expression as closure of the axioms over a finite universe, by union-find and transitive closure,
// against the pool's answers. What the closure derives the pool must know, so every "no" agrees with exhaustive rewriting; what the pool
// says beyond it (derivations through larger terms) must have a context that replays. MIRAGE_FULL=1: terms of up to 7 nodes, rewritten
// among those of up to 8.
#include <catch2/catch.hpp>
#include <algorithm>
#include <cstdlib>
#include <unordered_map>
#include "unit/expr/derive.h"

using namespace mirage;
using namespace mirage::expr_test;

namespace {

struct Language {
  std::vector<TermPtr> leaves;
  std::vector<const char*> unary, binary;
  std::vector<std::pair<const char*, std::vector<int>>> reductions;
};

/// Terms of a language up to `max_size` nodes, closed under the axioms as far as both sides are in the universe.
class Universe {
 public:
  Universe(const Language& l, int max_size, ExprPool& pool) {
    by_size_.resize(static_cast<size_t>(max_size) + 1);
    for (const TermPtr& x : l.leaves) insert(x);
    for (int n = 2; n <= max_size; ++n) {
      for (size_t i = 0; i < by_size_[n - 1].size(); ++i) {
        const TermPtr x = terms_[static_cast<size_t>(by_size_[n - 1][i])];
        for (const char* op : l.unary) insert(node(op, {x}));
        for (const auto& [op, extents] : l.reductions)
          // reducing the literal 1 gives an extent
          if (!(op == std::string("sum") && to_pool(x, pool) == pool.constant(1))) insert(node(op, {x}, extents));
      }
      for (int a = 1; a + 1 < n; ++a)
        for (int x : by_size_[a])
          for (int y : by_size_[n - 1 - a])
            for (const char* op : l.binary) insert(node(op, {terms_[static_cast<size_t>(x)], terms_[static_cast<size_t>(y)]}));
    }
    children_.resize(terms_.size());
    for (int i = 0; i < size(); ++i)
      for (const TermPtr& a : term(i)->args) children_[static_cast<size_t>(i)].push_back(index_.at(text(a)));
    close();
  }
  int size() const { return static_cast<int>(terms_.size()); }
  const TermPtr& term(int i) const { return terms_[static_cast<size_t>(i)]; }
  int find(int i) {
    while (parent_[static_cast<size_t>(i)] != i)
      i = parent_[static_cast<size_t>(i)] = parent_[static_cast<size_t>(parent_[static_cast<size_t>(i)])];
    return i;
  }
  /// Per class, the classes of its members' operands.
  std::vector<std::vector<int>> operands() {
    std::vector<std::vector<int>> out(terms_.size());
    for (int i = 0; i < size(); ++i)
      for (int c : children_[static_cast<size_t>(i)]) out[static_cast<size_t>(find(i))].push_back(find(c));
    for (auto& v : out) {
      std::sort(v.begin(), v.end());
      v.erase(std::unique(v.begin(), v.end()), v.end());
    }
    return out;
  }

 private:
  void insert(const TermPtr& t) {
    by_size_[static_cast<size_t>(t->size)].push_back(size());
    index_.emplace(text(t), size());
    parent_.push_back(size());
    terms_.push_back(t);
  }
  bool unite(int a, int b) {
    a = find(a), b = find(b);
    if (a == b) return false;
    parent_[static_cast<size_t>(std::max(a, b))] = std::min(a, b);
    return true;
  }
  void close() {
    for (int i = 0; i < size(); ++i)
      for (const Axiom& a : axioms())
        for (bool forward : {true, false})
          // the axioms' only choice is how to split a union of extents
          for (uint64_t seed = 0; seed < (a.number == 10 || a.number == 24 ? 8 : 1); ++seed) {
            Rng rng(seed);
            const TermPtr r = rewrite_root(term(i), forward ? a.lhs : a.rhs, forward ? a.rhs : a.lhs, rng);
            if (!r) continue;
            const auto it = index_.find(text(r));
            if (it != index_.end()) unite(i, it->second);
          }
    for (bool again = true; again;) {   // congruence
      again = false;
      std::unordered_map<std::string, int> of;
      for (int i = 0; i < size(); ++i) {
        if (term(i)->args.empty()) continue;
        std::string key = term(i)->op;
        for (int k : term(i)->extents) key += "." + std::to_string(k);
        for (int c : children_[static_cast<size_t>(i)]) key += "," + std::to_string(find(c));
        const auto [it, fresh] = of.emplace(key, i);
        if (!fresh && unite(i, it->second)) again = true;
      }
    }
  }
  std::vector<TermPtr> terms_;
  std::vector<std::vector<int>> by_size_, children_;
  std::unordered_map<std::string, int> index_;
  std::vector<int> parent_;
};

struct Counts { int64_t terms = 0, classes = 0, derived = 0, no = 0, beyond = 0, equal_beyond = 0, steps = 0; };

/// All pairs of terms up to `most` nodes, derived among those of up to most + 1.
Counts compare_all(const Language& l, int most) {
  ExprPool pool;
  Universe u(l, most + 1, pool);
  const auto operands = u.operands();
  Counts n;
  n.terms = u.size();
  std::vector<ExprId> id(static_cast<size_t>(u.size()), -1);
  std::vector<int> classes;                        // representatives of terms up to `most` nodes
  std::unordered_map<ExprId, int> first_class;
  for (int i = 0; i < u.size(); ++i) {
    if (u.term(i)->size > most) continue;
    id[static_cast<size_t>(i)] = to_pool(u.term(i), pool);
    if (u.find(i) == i) {
      classes.push_back(i);
      if (!first_class.emplace(id[static_cast<size_t>(i)], i).second) {   // equal for the pool, not within this universe
        n.equal_beyond++;
        INFO(text(u.term(i)));
        REQUIRE(yes_replays(u.term(first_class[id[static_cast<size_t>(i)]]), u.term(i), pool, &n.steps));
      }
    }
    INFO(text(u.term(i)) << " = " << text(u.term(u.find(i))));
    REQUIRE(id[static_cast<size_t>(i)] == id[static_cast<size_t>(u.find(i))]);   // the smaller index is the smaller term
  }
  n.classes = static_cast<int64_t>(classes.size());
  std::vector<int> stamp(static_cast<size_t>(u.size()), -1);
  for (int t : classes) {
    std::vector<int> inside{t};
    stamp[static_cast<size_t>(t)] = t;
    for (size_t i = 0; i < inside.size(); ++i)
      for (int c : operands[static_cast<size_t>(inside[i])])
        if (stamp[static_cast<size_t>(c)] != t) {
          stamp[static_cast<size_t>(c)] = t;
          inside.push_back(c);
        }
    for (int e : classes) {
      const bool derived = stamp[static_cast<size_t>(e)] == t,
                 decided = pool.subexpr(id[static_cast<size_t>(e)], id[static_cast<size_t>(t)]);
      n.derived += derived;
      n.no += !decided;
      if (derived == decided) continue;
      INFO(text(u.term(e)) << " in " << text(u.term(t)));
      if (derived) FAIL("the pool denies what the axioms derive");
      n.beyond++;
      if (!yes_replays(u.term(e), u.term(t), pool, &n.steps)) FAIL("the pool says yes, and no chain replays");
    }
  }
  return n;
}

std::string show(const Counts& n) {
  return std::to_string(n.terms) + " terms, " + std::to_string(n.classes) + " classes; derived " + std::to_string(n.derived) + ", no " +
         std::to_string(n.no) + ", yes beyond the universe " + std::to_string(n.beyond) + " and equal beyond it " +
         std::to_string(n.equal_beyond) + ", all replayed in " + std::to_string(n.steps) + " equations";
}

}  // namespace

TEST_CASE("all small terms of the paper's operators agree with exhaustive rewriting") {
  const bool full = std::getenv("MIRAGE_FULL") != nullptr;
  const Counts n = compare_all({{leaf("in", 0), leaf("in", 1)}, {"exp", "sqrt"}, {"add", "mul", "div"}, {{"sum", {0}}}}, full ? 7 : 5);
  INFO(show(n));
  if (full) WARN(show(n));
  CHECK(n.derived > 2500);
  CHECK(n.no > 50 * n.derived);
  CHECK(n.beyond < n.derived / 10);
}

TEST_CASE("all small terms of the wider table agree with exhaustive rewriting") {
  const Counts n = compare_all({{leaf("in", 0), leaf("one"), leaf("minus_one")}, {"neg", "square", "rsqrt", "sqrt", "exp"},
                                {"sub", "div", "mul", "add", "maximum"},
                                {{"sum", {0}}, {"sum", {0, 1}}, {"sum", {1}}, {"max", {0}}, {"max", {0, 1}}}},
                               4);
  INFO(show(n));
  CHECK(n.derived > 1000);
  CHECK(n.no > 5 * n.derived);
}
