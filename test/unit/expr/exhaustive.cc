// All small terms: equality and sub-expression as closure of the axioms over a finite universe, by union-find and transitive closure, against the pool's answers.
#include <catch2/catch.hpp>
#include <algorithm>
#include <unordered_map>
#include "unit/expr/terms.h"

using namespace mirage;
using namespace mirage::expr_test;

namespace {

/// Terms up to `max_size` nodes over two inputs, closed under the axioms as far as both sides are in the universe.
class Universe {
 public:
  explicit Universe(int max_size) {
    by_size_.resize(static_cast<size_t>(max_size) + 1);
    for (int i = 0; i < 2; ++i) insert(leaf("in", i));
    for (int n = 2; n <= max_size; ++n) {
      for (size_t i = 0; i < by_size_[n - 1].size(); ++i) {
        const TermPtr x = terms_[static_cast<size_t>(by_size_[n - 1][i])];
        for (const char* op : {"exp", "sqrt"}) insert(node(op, {x}));
        insert(node("sum", {x}, {0}));
      }
      for (int a = 1; a + 1 < n; ++a)
        for (int x : by_size_[a])
          for (int y : by_size_[n - 1 - a])
            for (const char* op : {"add", "mul", "div"}) insert(node(op, {terms_[static_cast<size_t>(x)], terms_[static_cast<size_t>(y)]}));
    }
    close();
  }
  int size() const { return static_cast<int>(terms_.size()); }
  const TermPtr& term(int i) const { return terms_[static_cast<size_t>(i)]; }
  int find(int i) const {
    while (parent_[static_cast<size_t>(i)] != i) i = parent_[static_cast<size_t>(i)];
    return i;
  }
  int num_rounds() const { return rounds_; }
  /// Per class, the classes of what is inside, itself included; ordered so that bit tests are cheap.
  std::vector<std::vector<bool>> insides() const {
    std::vector<std::vector<bool>> in(terms_.size());
    std::vector<std::vector<int>> children(terms_.size());
    for (int i = 0; i < size(); ++i)
      for (const TermPtr& a : term(i)->args) children[static_cast<size_t>(find(i))].push_back(find(index_.at(text(a))));
    for (int i = 0; i < size(); ++i) {
      if (find(i) != i) continue;
      std::vector<bool>& mine = in[static_cast<size_t>(i)];
      mine.assign(terms_.size(), false);
      std::vector<int> todo{i};
      mine[static_cast<size_t>(i)] = true;
      while (!todo.empty()) {
        const int c = todo.back();
        todo.pop_back();
        for (int k : children[static_cast<size_t>(c)])
          if (!mine[static_cast<size_t>(k)]) {
            mine[static_cast<size_t>(k)] = true;
            todo.push_back(k);
          }
      }
    }
    return in;
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
    Rng rng(1);   // the axioms' only choice, how to split a union of extents, does not arise here
    for (int i = 0; i < size(); ++i)
      for (const Axiom& a : axioms())
        for (bool forward : {true, false}) {
          const TermPtr r = rewrite_root(term(i), forward ? a.lhs : a.rhs, forward ? a.rhs : a.lhs, rng);
          if (!r) continue;
          const auto it = index_.find(text(r));
          if (it != index_.end()) unite(i, it->second);
        }
    for (bool again = true; again; ++rounds_) {   // congruence
      again = false;
      std::unordered_map<std::string, int> of;
      for (int i = 0; i < size(); ++i) {
        if (term(i)->args.empty()) continue;
        std::string key = term(i)->op;
        for (const TermPtr& a : term(i)->args) key += "," + std::to_string(find(index_.at(text(a))));
        const auto [it, fresh] = of.emplace(key, i);
        if (!fresh && unite(i, it->second)) again = true;
      }
    }
  }
  std::vector<TermPtr> terms_;
  std::vector<std::vector<int>> by_size_;
  std::unordered_map<std::string, int> index_;
  std::vector<int> parent_;
  int rounds_ = 0;
};

}  // namespace

TEST_CASE("all small terms: equality and sub-expression agree with exhaustive rewriting") {
  const Universe u(6);
  const auto inside = u.insides();
  ExprPool pool;
  std::vector<ExprId> id;
  for (int i = 0; i < u.size(); ++i) id.push_back(to_pool(u.term(i), pool));
  int64_t equal_pairs = 0, equal_beyond = 0, yes = 0, yes_beyond = 0, no = 0;
  std::string beyond;
  // Pairs (e, t) with t up to 5 nodes: their derivations may use the terms of 6.
  for (int t = 0; t < u.size() && u.term(t)->size <= 5; ++t)
    for (int e = 0; e < u.size() && u.term(e)->size <= 5; ++e) {
      const bool same = u.find(e) == u.find(t), derived = inside[static_cast<size_t>(u.find(t))][static_cast<size_t>(u.find(e))];
      const bool same_id = id[static_cast<size_t>(e)] == id[static_cast<size_t>(t)], decided = pool.subexpr(id[static_cast<size_t>(e)], id[static_cast<size_t>(t)]);
      if ((same && !same_id) || (derived && !decided)) {
        INFO(text(u.term(e)) << " in " << text(u.term(t)));
        FAIL("the pool misses what the axioms say");
      }
      equal_pairs += same;
      equal_beyond += same_id && !same;
      yes += derived;
      no += !decided;
      if (decided && !derived && yes_beyond++ % 40 == 0) beyond += text(u.term(e)) + "  in  " + text(u.term(t)) + "\n";
    }
  INFO(u.size() << " terms; equal pairs " << equal_pairs << " (+" << equal_beyond << "), yes " << yes << " (+" << yes_beyond << "), no " << no << "\n" << beyond);
  // What the pool says beyond these derivations needs larger terms on the way: sqrt(a) in sqrt(a / sum(b)) is sqrt(a) * sqrt(1 / sum(b)).
  CHECK(equal_beyond <= 8);
  CHECK(yes_beyond <= 172);
  CHECK(yes > 7000);
  CHECK(no > 100 * yes);
}
