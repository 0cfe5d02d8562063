// Every DAG has exactly one order of strictly increasing rank, among those whose operators differ.
#include "search/growth/rank.h"
#include <catch2/catch.hpp>
#include <algorithm>
#include <numeric>
#include <set>
#include <vector>
#include "mirage/support/hash.h"

using namespace mirage;
using mirage::search::make_rank;
using mirage::search::Rank;

namespace {

struct Op { std::vector<int> in; int kind; };   // in: < 0 is input ~x, else the operator of that number

/// Counts the topological orders of `ops` whose ranks strictly increase. Operators of one kind take ordered inputs.
int count_orders(const std::vector<Op>& ops, int inputs, std::vector<int>& position, int done, const Rank& last) {
  if (done == static_cast<int>(ops.size())) return 1;
  int n = 0;
  for (size_t i = 0; i < ops.size(); i++) {
    if (position[i] >= 0) continue;
    std::vector<int> at;
    bool ready = true;
    for (int x : ops[i].in) {
      if (x >= 0 && position[static_cast<size_t>(x)] < 0) { ready = false; break; }
      at.push_back(x < 0 ? ~x : position[static_cast<size_t>(x)]);
    }
    if (!ready) continue;
    const Rank r = make_rank(at, ops[i].kind);
    if (!(r > last)) continue;
    position[i] = inputs + done;
    n += count_orders(ops, inputs, position, done + 1, r);
    position[i] = -1;
  }
  return n;
}

/// A random DAG without two equal operators: an equal value is not built twice.
std::vector<Op> random_dag(Rng& rng, int inputs, int size) {
  std::vector<Op> ops;
  std::set<std::pair<std::vector<int>, int>> seen;
  while (static_cast<int>(ops.size()) < size) {
    Op o;
    const int arity = 1 + static_cast<int>(rng.below(3));
    for (int a = 0; a < arity; a++) {
      const int x = static_cast<int>(rng.below(static_cast<uint64_t>(inputs) + ops.size()));
      o.in.push_back(x < inputs ? ~x : x - inputs);
    }
    o.kind = static_cast<int>(rng.below(3));
    if (seen.insert({o.in, o.kind}).second) ops.push_back(o);
  }
  return ops;
}

}  // namespace

TEST_CASE("every DAG has exactly one canonical order") {
  Rng rng(7);
  for (int i = 0; i < 100000; i++) {
    const int inputs = 1 + static_cast<int>(rng.below(3));
    const std::vector<Op> ops = random_dag(rng, inputs, 2 + static_cast<int>(rng.below(6)));
    std::vector<int> position(ops.size(), -1);
    INFO("dag " << i);
    REQUIRE(count_orders(ops, inputs, position, 0, Rank{}) == 1);
  }
}

TEST_CASE("ascending input lists, as the paper writes them, lose graphs") {
  // x * exp(w): inputs 0 = x, 1 = w. exp(w) has inputs (1), the product (0, 2): descending (1) < (2, 0); ascending (0, 2) < (1).
  const std::vector<Op> ops = {{{~1}, 0}, {{~0, 0}, 1}};
  std::vector<int> position(2, -1);
  CHECK(count_orders(ops, 2, position, 0, Rank{}) == 1);
  CHECK(std::vector<int>{0, 2} < std::vector<int>{1});
}

TEST_CASE("a list is below its extensions, newest input first") {
  auto r = [](std::vector<int> in, int op) { return make_rank(in, op); };
  CHECK(r({3}, 9) < r({3, 0}, 0));
  CHECK(r({0, 3}, 5) < r({3, 0}, 0));
  CHECK(r({0, 3}, 1) < r({0, 3}, 2));
  CHECK(r({2, 2}, 9) < r({3}, 0));
  CHECK_FALSE(r({1, 2}, 4) < r({1, 2}, 4));
}
