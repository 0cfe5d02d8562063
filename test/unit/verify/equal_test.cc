// Known equalities: what the verifier must recognise as one function.
#include <catch2/catch.hpp>
#include <array>
#include <cmath>
#include <limits>

#include "unit/verify/graphs.h"

using namespace mirage;
using namespace mirage::test;

namespace {

template <class F> Graph net(F&& f) {
  Net n;
  f(n);
  return n.done();
}

/// rms_norm(x) w with a fully fused block graph over K, grid over N; ragged where the sizes do not divide.
Graph rms_linear(int64_t m, int64_t k, int64_t n) {
  return net([&](Net& g) {
    auto x = g.in(0, {m, k}), w = g.in(1, {k, n});
    auto ms = g.div(g.sum(g.square(x), 1), g.c(static_cast<double>(k)));
    g.out(g.mm(g.div(x, g.sqrt(g.add(ms, g.c(1e-6)))), w));
  });
}
Graph rms_linear_fused(int64_t m, int64_t k, int64_t n, int64_t tk, int64_t tn) {
  Net b(Level::kBlock, {{(n + tn - 1) / tn, 1, 1}, (k + tk - 1) / tk});
  auto x = b.in(0, {m, tk}, DType::kF16, loop_over(1)), w = b.in(1, {tk, tn}, DType::kF16, part(1, -1, -1, 0));
  auto acc = b.accum(b.mm(x, w)), sq = b.accum(b.sum(b.square(x), 1));
  b.out(b.div(acc, b.sqrt(b.add(b.div(sq, b.c(static_cast<double>(k))), b.c(1e-6)))), DType::kF16, grid_x(1));
  return kernel_of(b.done(), {{m, k}, {k, n}});
}

Graph softmax_v(int64_t m, int64_t d, int64_t n, bool shifted, bool late_division) {
  return net([&](Net& g) {
    auto q = g.in(0, {m, d}), k = g.in(1, {d, n}), v = g.in(2, {n, d});
    auto s = g.mul(g.mm(q, k), g.c(0.125));
    if (shifted) s = g.sub(s, g.rmax(s, 1));
    auto e = g.exp(s);
    auto z = g.sum(e, 1);
    g.out(late_division ? g.div(g.mm(e, v), z) : g.mm(g.div(e, z), v));
  });
}

}  // namespace

TEST_CASE("products are associative and distribute") {
  auto shape = [](Net& g) { return std::array{g.in(0, {3, 5}), g.in(1, {5, 4}), g.in(2, {4, 6})}; };
  Graph left = net([&](Net& g) { auto [a, b, c] = shape(g); g.out(g.mm(g.mm(a, b), c)); });
  Graph right = net([&](Net& g) { auto [a, b, c] = shape(g); g.out(g.mm(a, g.mm(b, c))); });
  CHECK_VERDICT(left, right, kEqual);
  Graph sum_first = net([](Net& g) { auto a = g.in(0, {3, 5}), b = g.in(1, {3, 5}), c = g.in(2, {5, 4}); g.out(g.mm(g.add(a, b), c)); });
  Graph sum_last = net([](Net& g) {
    auto a = g.in(0, {3, 5}), b = g.in(1, {3, 5}), c = g.in(2, {5, 4});
    g.out(g.add(g.mm(a, c), g.mm(b, c)));
  });
  Verdict v = equal(sum_first, sum_last, 1);
  CHECK(v.kind == kEqual);
  CHECK(v.evidence.is_lax);
  CHECK(v.evidence.uninterpreted.empty());
  CHECK(v.evidence.degree == 2);
  CHECK(v.evidence.log2_bound < -110);   // 2/p per trial, two trials
}

TEST_CASE("a norm commutes past a product, blocks, loops and ragged tails") {
  CHECK_VERDICT(rms_linear(4, 12, 10), rms_linear_fused(4, 12, 10, 4, 5), kEqual);
  CHECK_VERDICT(rms_linear(4, 13, 11), rms_linear_fused(4, 13, 11, 5, 4), kEqual);
  CHECK_VERDICT(rms_linear(1, 1, 1), rms_linear_fused(1, 1, 1, 1, 1), kEqual);
  Verdict v = equal(rms_linear(4, 13, 11), rms_linear_fused(4, 13, 11, 5, 4), 3);
  CHECK(v.evidence.is_lax);
  CHECK(v.evidence.uninterpreted == std::vector<std::string>{"sqrt"});
  CHECK(v.evidence.log2_bound < -60);
}

TEST_CASE("softmax with and without a row shift, dividing early or late") {
  for (bool late : {false, true}) CHECK_VERDICT(softmax_v(3, 4, 5, true, false), softmax_v(3, 4, 5, false, late), kEqual);
  Verdict v = equal(softmax_v(3, 4, 5, true, false), softmax_v(3, 4, 5, true, true), 1);
  CHECK(v.kind == kEqual);
  CHECK(v.evidence.uninterpreted == std::vector<std::string>{"maximum"});
  CHECK(v.evidence.log2_bound == 0);   // too many exponential terms for theorem 2
}

TEST_CASE("flash attention as a block graph over keys, two kernels for split keys") {
  const int64_t m = 3, d = 4, n = 7, t = 4;
  Net b(Level::kBlock, {{1, 1, 1}, 2});
  auto q = b.in(0, {m, d}), k = b.in(1, {d, t}, DType::kF16, loop_over(1)), v = b.in(2, {t, d}, DType::kF16, loop_over(0));
  auto e = b.exp(b.mul(b.mm(q, k), b.c(0.125)));
  b.out(b.div(b.accum(b.mm(e, v)), b.accum(b.sum(e, 1))));
  CHECK_VERDICT(softmax_v(m, d, n, true, false), kernel_of(b.done(), {{m, d}, {d, n}, {n, d}}), kEqual);
}

TEST_CASE("a running maximum over tiles is the maximum") {
  Graph whole = net([](Net& g) { g.out(g.rmax(g.in(0, {3, 7}), 1)); });
  Net b(Level::kBlock, {{1, 1, 1}, 3});
  auto x = b.in(0, {3, 3}, DType::kF16, loop_over(1));
  b.out(b.accum(b.rmax(x, 1), ReduceFn::kMax));
  CHECK_VERDICT(whole, kernel_of(b.done(), {{3, 7}}), kEqual);
  Graph twice = net([](Net& g) { auto x = g.in(0, {3, 7}); g.out(g.rmax(g.concat({x, g.slice(x, 1, 2, 5)}, 1), 1)); });
  CHECK_VERDICT(whole, twice, kEqual);   // idempotent
  Graph relu = net([](Net& g) { g.out(g.map(MapFn::kRelu, {g.in(0, {3})})); });
  Graph relu2 = net([](Net& g) { g.out(g.map(MapFn::kRelu, {g.map(MapFn::kRelu, {g.in(0, {3})})})); });
  CHECK_VERDICT(relu, relu2, kEqual);
  Graph abs = net([](Net& g) { g.out(g.map(MapFn::kAbs, {g.in(0, {3})})); });
  Graph abs_neg = net([](Net& g) { g.out(g.map(MapFn::kAbs, {g.neg(g.in(0, {3}))})); });
  CHECK_VERDICT(abs, abs_neg, kEqual);
  Graph min = net([](Net& g) { g.out(g.map(MapFn::kMin, {g.in(0, {3}), g.in(1, {3})})); });
  CHECK_VERDICT(min, net([](Net& g) { auto x = g.in(0, {3}), y = g.in(1, {3}); g.out(g.neg(g.max(g.neg(y), g.neg(x)))); }), kEqual);
}

TEST_CASE("LoRA as one product over concatenated operands") {
  Graph plain = net([](Net& g) {
    auto x = g.in(0, {4, 6}), w = g.in(1, {6, 5}), a = g.in(2, {6, 2}), b = g.in(3, {2, 5});
    g.out(g.add(g.mm(x, w), g.mm(g.mm(x, a), b)));
  });
  Graph concat = net([](Net& g) {
    auto x = g.in(0, {4, 6}), w = g.in(1, {6, 5}), a = g.in(2, {6, 2}), b = g.in(3, {2, 5});
    g.out(g.mm(g.concat({x, g.mm(x, a)}, 1), g.concat({w, b}, 0)));
  });
  CHECK_VERDICT(plain, concat, kEqual);
}

TEST_CASE("gated MLP in one block graph") {
  Graph plain = net([](Net& g) {
    auto x = g.in(0, {3, 6}), a = g.in(1, {6, 5}), b = g.in(2, {6, 5});
    g.out(g.mul(g.silu(g.mm(x, a)), g.mm(x, b)));
  });
  Net b(Level::kBlock, {{3, 1, 1}, 2});
  auto x = b.in(0, {3, 4}, DType::kF16, loop_over(1)), w1 = b.in(1, {4, 2}, DType::kF16, part(1, -1, -1, 0)),
       w2 = b.in(2, {4, 2}, DType::kF16, part(1, -1, -1, 0));
  b.out(b.mul(b.silu(b.accum(b.mm(x, w1))), b.accum(b.mm(x, w2))), DType::kF16, grid_x(1));
  Verdict v = equal(plain, kernel_of(b.done(), {{3, 6}, {6, 5}, {6, 5}}), 1);
  INFO(to_string(v));
  CHECK(v.kind == kEqual);
  CHECK(v.evidence.log2_bound <= -40);   // theorem 2 with four terms says a little per trial: so there are more of them
  CHECK(v.evidence.log2_bound > -45);
  CHECK(v.evidence.trials == 12);
}

TEST_CASE("causal masks: known integers compare exactly, masked scores vanish") {
  const int64_t m = 5, d = 3;
  auto scores = [&](Net& g) { return g.mm(g.in(0, {m, d}), g.in(1, {d, m})); };
  auto future = [&](Net& g) { return g.less(g.iota(0, {m, m}), g.iota(1, {m, m})); };
  const double inf = std::numeric_limits<double>::infinity();
  Graph shifted = net([&](Net& g) {
    auto s = scores(g), v = g.in(2, {m, d});
    s = g.where(future(g), g.c(-inf), s);
    auto e = g.exp(g.sub(s, g.rmax(s, 1)));
    g.out(g.mm(g.div(e, g.sum(e, 1)), v));
  });
  Graph zeroed = net([&](Net& g) {
    auto s = scores(g), v = g.in(2, {m, d});
    auto e = g.where(future(g), g.c(0), g.exp(s));
    g.out(g.div(g.mm(e, v), g.sum(e, 1)));
  });
  Graph additive = net([&](Net& g) {
    auto s = scores(g), v = g.in(2, {m, d});
    s = g.add(s, g.mul(g.c(0.5), g.where(future(g), g.c(-inf), g.c(0))));
    auto e = g.exp(s);
    g.out(g.mm(g.div(e, g.sum(e, 1)), v));
  });
  Graph unmasked = net([&](Net& g) {
    auto s = scores(g), v = g.in(2, {m, d});
    auto e = g.exp(s);
    g.out(g.mm(g.div(e, g.sum(e, 1)), v));
  });
  CHECK_VERDICT(shifted, zeroed, kEqual);
  CHECK_VERDICT(shifted, additive, kEqual);
  CHECK_VERDICT(shifted, unmasked, kDifferent);
}

TEST_CASE("a mask that is an input chooses infinities: conditions become bits") {
  auto build = [](bool zeroed, bool swapped) {
    return net([&](Net& g) {
      auto s = g.mm(g.in(0, {3, 4}), g.in(1, {4, 5})), mask = g.in(2, {3, 5}, DType::kBool), v = g.in(3, {5, 2});
      const double inf = std::numeric_limits<double>::infinity();
      ValueId e;
      if (zeroed) e = swapped ? g.where(mask, g.c(0), g.exp(s)) : g.where(mask, g.exp(s), g.c(0));
      else e = g.exp(g.where(mask, s, g.c(-inf)));
      g.out(g.mm(g.div(e, g.sum(e, 1)), v));
    });
  };
  CHECK_VERDICT(build(false, false), build(true, false), kEqual);
  CHECK_VERDICT(build(false, false), build(true, true), kDifferent);
}

TEST_CASE("uninterpreted functions of equal arguments are equal") {
  for (MapFn fn : {MapFn::kTanh, MapFn::kGelu, MapFn::kGeluTanh, MapFn::kLog, MapFn::kRelu, MapFn::kCastF16, MapFn::kSigmoid, MapFn::kRsqrt,
                   MapFn::kExp}) {
    Graph a = net([&](Net& g) {
      auto x = g.in(0, {2, 3}), y = g.in(1, {2, 3}), z = g.in(2, {2, 3});
      g.out(g.map(fn, {g.mul(g.add(x, y), z)}));
    });
    Graph b = net([&](Net& g) {
      auto x = g.in(0, {2, 3}), y = g.in(1, {2, 3}), z = g.in(2, {2, 3});
      g.out(g.map(fn, {g.add(g.mul(y, z), g.mul(x, z))}));
    });
    INFO(map_info(fn).name);
    CHECK_VERDICT(a, b, kEqual);
  }
}

TEST_CASE("powers: integers are products, halves are roots") {
  Graph cube = net([](Net& g) { g.out(g.map(MapFn::kPow, {g.in(0, {4}), g.c(3)})); });
  Graph product = net([](Net& g) { auto x = g.in(0, {4}); g.out(g.mul(x, g.square(x))); });
  CHECK_VERDICT(cube, product, kEqual);
  Graph half = net([](Net& g) { g.out(g.map(MapFn::kPow, {g.in(0, {4}), g.c(-0.5)})); });
  Graph rsqrt = net([](Net& g) { g.out(g.map(MapFn::kRsqrt, {g.in(0, {4})})); });
  CHECK_VERDICT(half, rsqrt, kEqual);
}

TEST_CASE("roots multiply where real roots do") {
  Graph a = net([](Net& g) { auto x = g.square(g.in(0, {4})), y = g.exp(g.in(1, {4})); g.out(g.sqrt(g.mul(x, y))); });
  Graph b = net([](Net& g) { auto x = g.square(g.in(0, {4})), y = g.exp(g.in(1, {4})); g.out(g.mul(g.sqrt(x), g.sqrt(y))); });
  Verdict v = equal(a, b, 1);
  INFO(to_string(v));
  CHECK(v.kind == kEqual);
  CHECK(v.evidence.log2_bound == 0);
}

TEST_CASE("casts of what is stored in that type do nothing") {
  Graph cast = net([](Net& g) {
    auto x = g.in(0, {2, 3}), w = g.in(1, {3, 2});
    g.out(g.mm(g.map(MapFn::kCastF32, {x}), g.map(MapFn::kCastF16, {w})));
  });
  Graph plain = net([](Net& g) { auto x = g.in(0, {2, 3}), w = g.in(1, {3, 2}); g.out(g.mm(x, w)); });
  CHECK_VERDICT(cast, plain, kEqual);
  Graph rounded = net([](Net& g) { auto x = g.in(0, {2, 3}), w = g.in(1, {3, 2}); g.out(g.map(MapFn::kCastBF16, {g.mm(x, w)})); });
  CHECK_VERDICT(rounded, plain, kDifferent);
}

TEST_CASE("the same seed gives the same verdict, and a certificate can be replayed") {
  Graph a = rms_linear(4, 13, 11), b = rms_linear_fused(4, 13, 11, 5, 4);
  Verdict v = equal(a, b, 42), w = equal(a, b, 42);
  REQUIRE(v.kind == kEqual);
  CHECK(v.evidence.p == w.evidence.p);
  CHECK(v.evidence.seed == w.evidence.seed);
  CHECK(equal(a, b, 43).evidence.p != v.evidence.p);
  CHECK(to_string(v) == to_string(w));
}
