// A slice of the random pairs with known truth (random_pairs judges thousands): no verdict is wrong, and most of what is equal is Equal.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "mirage/ir/eval.h"
#include "mirage/spec/text.h"
#include "trust/random/judge.h"

using namespace mirage;
using namespace mirage::test;

TEST_CASE("random pairs with known truth", "[random]") {
  const int count = std::getenv("MIRAGE_FULL") ? 1000 : 30;
  PairTally t;
  for (uint64_t seed = 1; t.pairs < count; seed++)
    judge(seed, t, [](const std::string& text) { std::fputs((text + "\n").c_str(), stderr); });
  if (t.wrong) std::fputs(t.table().c_str(), stderr);
  CHECK(t.wrong == 0);
  CHECK(t.unreadable == 0);
  CHECK(t.none < count);
}

TEST_CASE("the evaluator that judges pairs and the library's agree on random graphs", "[random]") {
  int compared = 0;
  for (uint64_t seed = 5000; compared < 60; seed++) {
    const auto p = random_pair(seed);
    if (!p || p->change == "unreadable" || p->size != Size::kSmall) continue;
    compared++;
    const Graph g = *parse_graph(p->graphs[1]);
    std::vector<Tensor<double>> x(static_cast<size_t>(g.num_params()));
    std::vector<Array<double>> y(x.size());
    Rng rng(seed);
    for (NodeId n : g.inputs()) {
      const Type& t = g.type(g.node(n).first_value);
      const auto param = static_cast<size_t>(g.form<Input>(n)->param);
      x[param] = Tensor<double>(t.dims, 0.0);
      for (double& v : x[param].data)
        v = t.dtype == DType::kBool ? static_cast<double>(rng.below(2)) : round_to(3 * rng.uniform() - 1, t.dtype);
      y[param] = {extents_of(t.dims), x[param].data};
    }
    DoubleAlgebra d;
    const std::vector<double> a = evaluate<DoubleAlgebra>(g, x, d)[0].data, b = OwnEvaluator<double>::run(g, y)[0].data;
    INFO("seed " << seed);
    REQUIRE(a.size() == b.size());
    int apart = 0;
    for (size_t i = 0; i < a.size(); i++) apart += std::isfinite(a[i]) && !(std::fabs(a[i] - b[i]) <= 1e-6 * (1 + std::fabs(a[i])));
    CHECK(apart == 0);
  }
}

TEST_CASE("the evaluator that judges pairs finds a difference that is there, and none that is not", "[random]") {
  const RandomProgram p{{input(0, {2, 4}, "f32"), input(1, {2, 4}, "bool")}, nullptr};
  const P x = p.inputs[0], m = p.inputs[1], e = map("exp", {where(m, x, constant(-INFINITY))});
  const auto graph = [&](const P& result) { return *parse_graph(text_of({p.inputs, result})); };
  const Graph safe = graph(where(map("equal", {sum(1, where(m, constant(1), constant(0))), constant(0)}), constant(0), sum(1, e)));
  CHECK_FALSE(difference(graph(sum(1, e)), safe, 1, 54));   // a row that is masked as a whole sums to 0
  CHECK(difference(
      graph(sum(1, e)),
      graph(sum(1, e) + where(map("equal", {sum(1, where(m, constant(1), constant(0))), constant(0)}), constant(1), constant(0))), 1, 54));
  CHECK(difference(graph(x), graph(where(map("greater", {x, constant(6e4)}), constant(0), x)), 1, 54));
  CHECK(difference(graph(map("square", {map("sqrt", {x - constant(100)})})), graph(map("square", {map("sqrt", {constant(100) - x})})), 1,
                   54));
}
