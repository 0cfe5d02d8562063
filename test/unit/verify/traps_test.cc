// Known soundness traps of finite-field verification, each as a pair that a weaker checker accepts: what must never be Equal.
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
/// Unary chain on one input of shape [n].
template <class F> Graph unary(F&& f, int64_t n = 4) {
  return net([&](Net& g) { g.out(f(g, g.in(0, {n}))); });
}
}  // namespace

TEST_CASE("inputs are random: rows are not affine in their index (ramp inputs)") {
  Graph sum = net([](Net& g) { auto x = g.in(0, {3, 4}); g.out(g.slice(x, 0, 2, 3)); });
  Graph extrapolated = net([](Net& g) { auto x = g.in(0, {3, 4}); g.out(g.sub(g.mul(g.c(2), g.slice(x, 0, 1, 2)), g.slice(x, 0, 0, 1))); });
  CHECK_VERDICT(sum, extrapolated, kDifferent);
}

TEST_CASE("equal-shaped weights swapped, or one used twice") {
  auto mlp = [](int first, int second) {
    return net([&](Net& g) {
      auto x = g.in(0, {2, 3});
      std::array w{g.in(1, {3, 3}), g.in(2, {3, 3})};
      g.out(g.mul(g.silu(g.mm(x, w[static_cast<size_t>(first)])), g.mm(x, w[static_cast<size_t>(second)])));
    });
  };
  CHECK_VERDICT(mlp(0, 1), mlp(1, 0), kDifferent);
  CHECK_VERDICT(mlp(0, 1), mlp(0, 0), kDifferent);
}

TEST_CASE("silu is not x e^x, gelu is not x e^2x, clamp has bounds") {
  CHECK_VERDICT(unary([](Net& g, ValueId x) { return g.silu(x); }), unary([](Net& g, ValueId x) { return g.mul(x, g.exp(x)); }),
                kDifferent);
  CHECK_VERDICT(unary([](Net& g, ValueId x) { return g.map(MapFn::kGelu, {x}); }),
                unary([](Net& g, ValueId x) { return g.mul(x, g.exp(g.mul(g.c(2), x))); }), kDifferent);
  CHECK_VERDICT(unary([](Net& g, ValueId x) { return g.map(MapFn::kGelu, {x}); }),
                unary([](Net& g, ValueId x) { return g.map(MapFn::kGeluTanh, {x}); }), kDifferent);
  auto clamp = [](double lo, double hi) {
    return unary([=](Net& g, ValueId x) { return g.map(MapFn::kClamp, {x, g.c(lo), g.c(hi)}); }, 64);
  };
  CHECK_VERDICT(clamp(-2, 3), clamp(-1, 1), kDifferent);
  CHECK_VERDICT(clamp(-2, 3), clamp(-2, 3), kEqual);
  CHECK_VERDICT(unary([](Net& g, ValueId x) { return g.map(MapFn::kRelu, {g.mul(g.c(2), x)}); }),
                unary([](Net& g, ValueId x) { return g.map(MapFn::kRelu, {x}); }), kDifferent);
}

TEST_CASE("signs under square roots are seen") {
  auto root = [](bool minus_in, bool minus_out) {
    return unary([=](Net& g, ValueId x) {
      auto r = g.sqrt(minus_in ? g.neg(x) : x);
      return minus_out ? g.neg(r) : r;
    });
  };
  CHECK_VERDICT(root(false, false), root(true, false), kDifferent);
  CHECK_VERDICT(root(false, false), root(true, true), kDifferent);
  CHECK_VERDICT(root(false, false), root(false, true), kDifferent);
  // |x|
  CHECK_VERDICT(unary([](Net& g, ValueId x) { return g.sqrt(g.square(x)); }), unary([](Net& g, ValueId x) { return x; }), kDifferent);
  // multiplicative in the field, undefined for two negative numbers in reality, and the same where both are defined
  Graph whole = net([](Net& g) { g.out(g.sqrt(g.mul(g.in(0, {9}), g.in(1, {9})))); });
  Graph split = net([](Net& g) { g.out(g.mul(g.sqrt(g.in(0, {9})), g.sqrt(g.in(1, {9})))); });
  CHECK_VERDICT(whole, split, kUnknown);
}

TEST_CASE("division by zero is never defined") {
  Graph zero = unary([](Net& g, ValueId x) { return g.div(x, g.sub(x, x)); });
  Graph same = unary([](Net& g, ValueId x) { return g.div(x, g.mul(g.c(0), x)); });
  Verdict v = equal(zero, same, 1);
  CHECK(v.kind == kUnknown);
  CHECK(v.reason.find("zero denominator") != std::string::npos);
  CHECK_VERDICT(unary([](Net&, ValueId x) { return x; }), unary([](Net& g, ValueId x) {
                  auto z = g.sub(x, x);
                  return g.mul(g.div(x, z), z);
                }),
                kDifferent);
  Graph a = net([](Net& g) { auto x = g.in(0, {4}), y = g.in(1, {4}); g.out(g.div(g.mul(x, y), y)); });
  CHECK_VERDICT(a, net([](Net& g) { auto x = g.in(0, {4}); g.in(1, {4}); g.out(x); }), kEqual);   // (x*y)/y = x where defined
}

TEST_CASE("constants do not collide beneath exponentials") {
  auto scaled = [](double c) { return unary([=](Net& g, ValueId x) { return g.exp(g.mul(g.c(c), x)); }); };
  const std::pair<double, double> pairs[] = {{3072, 1}, {384, 11008}, {896, 32768}, {6144, 27392}, {720, 6144}, {704, 36864}};
  for (auto [s, t] : pairs) CHECK_VERDICT(scaled(s), scaled(t), kDifferent);
  Graph mean = net([](Net& g) { g.out(g.exp(g.div(g.sum(g.in(0, {84}), 0), g.c(84)))); });
  Graph sum = net([](Net& g) { g.out(g.exp(g.sum(g.in(0, {84}), 0))); });
  CHECK_VERDICT(mean, sum, kDifferent);   // 84 = 1 modulo 83
}

TEST_CASE("constants are exact, never rounded to integers") {
  auto times = [](double c) { return unary([=](Net& g, ValueId x) { return g.mul(g.c(c), x); }); };
  CHECK_VERDICT(times(0.125), unary([](Net& g, ValueId x) { return g.div(x, g.c(8)); }), kEqual);
  CHECK_VERDICT(times(0.1), times(0.1 + 1e-18), kEqual);   // the same double
  CHECK_VERDICT(times(0.1), times(std::nextafter(0.1, 1)), kDifferent);
  CHECK_VERDICT(times(1e-6), times(1e-5), kDifferent);
  CHECK_VERDICT(times(1e300), times(1.5e300), kDifferent);
  CHECK_VERDICT(times(5e-324), times(1e-323), kDifferent);
  CHECK_VERDICT(times(0x1p60), unary([](Net& g, ValueId x) { return g.mul(g.mul(g.c(0x1p30), x), g.c(0x1p30)); }), kEqual);
}

TEST_CASE("with M = N = K a transposed operand is seen") {
  Graph plain = net([](Net& g) { auto a = g.in(0, {4, 4}), b = g.in(1, {4, 4}); g.out(g.mm(a, b)); });
  CHECK_VERDICT(plain, net([](Net& g) { auto a = g.in(0, {4, 4}), b = g.in(1, {4, 4}); g.out(g.mm(a, g.swap(b))); }), kDifferent);
  CHECK_VERDICT(plain, net([](Net& g) { auto a = g.in(0, {4, 4}), b = g.in(1, {4, 4}); g.out(g.mm(b, a)); }), kDifferent);
  CHECK_VERDICT(plain, net([](Net& g) {
                  auto a = g.in(0, {4, 4}), b = g.in(1, {4, 4});
                  g.out(g.swap(g.mm(g.swap(b), g.swap(a))));
                }),
                kEqual);
}

TEST_CASE("what stands below a second non-linearity is seen") {
  auto build = [](int variant) {
    return net([&](Net& g) {
      auto a = g.in(0, {4}), b = g.in(1, {4});
      g.out(g.silu(variant == 0   ? g.mul(g.silu(a), b)
                   : variant == 1 ? g.mul(g.silu(b), a)
                   : variant == 2 ? g.mul(g.exp(a), b)
                                  : g.mul(b, g.silu(a))));
    });
  };
  CHECK_VERDICT(build(0), build(1), kDifferent);
  CHECK_VERDICT(build(0), build(2), kDifferent);
  CHECK_VERDICT(build(0), build(3), kEqual);
  CHECK_FALSE(equal(build(0), build(3), 1).evidence.is_lax);
  CHECK_VERDICT(unary([](Net& g, ValueId x) { return g.exp(g.exp(x)); }),
                unary([](Net& g, ValueId x) { return g.exp(g.exp(g.mul(g.c(2), x))); }), kDifferent);
  // beyond what the fields know of nested exponentials: settled by a proof
  Graph product = net([](Net& g) {
    auto a = g.exp(g.in(0, {4})), b = g.exp(g.in(1, {4}));
    g.out(g.mul(g.exp(g.neg(a)), g.exp(g.neg(b))));
  });
  Graph sum = net([](Net& g) { auto a = g.exp(g.in(0, {4})), b = g.exp(g.in(1, {4})); g.out(g.exp(g.neg(g.add(a, b)))); });
  CHECK_VERDICT(product, sum, kEqual);
  CHECK(equal(product, sum, 1).evidence.proof.method == "normal forms");
}

TEST_CASE("QK-norm: a row sum of nQ times a row of K is not nQ K") {
  auto attention = [](bool wrong) {
    return net([&](Net& g) {
      auto q = g.in(0, {3, 4}), k = g.in(1, {4, 5}), v = g.in(2, {5, 4});
      auto nq = g.div(q, g.sqrt(g.sum(g.square(q), 1)));
      auto s = wrong ? g.mul(g.sum(nq, 1), g.slice(k, 0, 0, 1)) : g.mm(nq, k);
      auto e = g.exp(s);
      g.out(g.div(g.mm(e, v), g.sum(e, 1)));
    });
  };
  CHECK_VERDICT(attention(false), attention(true), kDifferent);
}

TEST_CASE("runs and strides of a grouped sum differ") {
  Graph runs = net([](Net& g) { g.out(g.sum(g.in(0, {2, 12}), 1, 3)); });
  Graph strided = net([](Net& g) { g.out(g.reshape(g.sum(g.reshape(g.in(0, {2, 12}), {2, 3, 4}), 1), {2, 4})); });
  Graph right = net([](Net& g) { g.out(g.reshape(g.sum(g.reshape(g.in(0, {2, 12}), {2, 4, 3}), 2), {2, 4})); });
  CHECK_VERDICT(runs, strided, kDifferent);
  CHECK_VERDICT(runs, right, kEqual);
}

TEST_CASE("outputs are matched by number") {
  auto two = [](bool swapped) {
    return net([&](Net& g) {
      auto x = g.in(0, {4});
      auto a = g.square(x), b = g.exp(x);
      g.out(swapped ? b : a).out(swapped ? a : b);
    });
  };
  CHECK_VERDICT(two(false), two(true), kDifferent);
}

TEST_CASE("a unary operator's input used again, accumulators of invariants, lost iterations") {
  Graph again = net([](Net& g) { auto x = g.in(0, {3, 4}); g.out(g.add(g.exp(x), x)); });
  CHECK_VERDICT(again, net([](Net& g) { auto x = g.exp(g.in(0, {3, 4})); g.out(g.add(x, x)); }), kDifferent);
  // sum over k of (x + y): y is loop-invariant, so it is added once per iteration
  Net b(Level::kBlock, {{1, 1, 1}, 2});
  auto x = b.in(0, {3, 2}, DType::kF16, loop_over(1)), y = b.in(1, {3, 1});
  b.out(b.accum(b.add(b.sum(x, 1), y)));
  Graph fused = kernel_of(b.done(), {{3, 4}, {3, 1}});
  CHECK_VERDICT(net([](Net& g) { auto u = g.in(0, {3, 4}), v = g.in(1, {3, 1}); g.out(g.add(g.sum(u, 1), v)); }), fused, kDifferent);
  CHECK_VERDICT(net([](Net& g) {
                  auto u = g.in(0, {3, 4}), v = g.in(1, {3, 1});
                  g.out(g.add(g.sum(u, 1), g.mul(g.c(2), v)));
                }),
                fused, kEqual);
}

TEST_CASE("a masked tail contributes nothing: exponentials and counts") {
  // sum over a ragged 5 = 3 + 2 of exp(x); a mean over tiles of 3 counts 6 elements
  Net b(Level::kBlock, {{1, 1, 1}, 2});
  auto x = b.in(0, {2, 3}, DType::kF16, loop_over(1));
  b.out(b.accum(b.sum(b.exp(x), 1)));
  CHECK_VERDICT(net([](Net& g) { g.out(g.sum(g.exp(g.in(0, {2, 5})), 1)); }), kernel_of(b.done(), {{2, 5}}), kEqual);
  Net m(Level::kBlock, {{1, 1, 1}, 2});
  auto u = m.in(0, {2, 3}, DType::kF16, loop_over(1));
  m.out(m.div(m.accum(m.div(m.sum(u, 1), m.c(3))), m.c(2)));
  CHECK_VERDICT(net([](Net& g) { g.out(g.div(g.sum(g.in(0, {2, 5}), 1), g.c(5))); }), kernel_of(m.done(), {{2, 5}}), kDifferent);
}

TEST_CASE("functions with few values hide nothing: maxima, comparisons, masks") {
  // one of many elements left out of a maximum, in a scalar output: an order by hash would miss it almost always
  for (int64_t n : {64, 600})
    for (uint64_t seed = 0; seed < 4; seed++)
      CHECK(equal(net([&](Net& g) {
                    g.out(g.rmax(g.in(0, {1, n}), 1));
                  }),
                  net([&](Net& g) {
                    g.out(g.rmax(g.slice(g.in(0, {1, n}), 1, 0, n - 1), 1));
                  }),
                  seed)
                .kind != kEqual);
  for (uint64_t seed = 0; seed < 40; seed++) {   // single elements: a coin per trial would be caught here
    Graph a = net([](Net& g) { auto x = g.in(0, {1}), y = g.in(1, {1}), z = g.in(2, {1}); (void)z; g.out(g.where(g.less(x, y), x, y)); });
    Graph b = net([](Net& g) { auto x = g.in(0, {1}), y = g.in(1, {1}), z = g.in(2, {1}); g.out(g.where(g.less(x, z), x, y)); });
    Graph r = net([](Net& g) { auto x = g.in(0, {1}); g.in(1, {1}); g.in(2, {1}); g.out(g.map(MapFn::kRelu, {x})); });
    Graph id = net([](Net& g) { auto x = g.in(0, {1}); g.in(1, {1}); g.in(2, {1}); g.out(x); });
    CHECK(equal(a, b, seed).kind != kEqual);
    CHECK(equal(r, id, seed).kind != kEqual);
  }
  Graph m1 = net([](Net& g) {
    auto m = g.in(0, {1}, DType::kBool), n = g.in(1, {1}, DType::kBool);
    (void)n;
    auto x = g.in(2, {1});
    g.out(g.where(m, x, g.c(0)));
  });
  Graph m2 = net([](Net& g) {
    auto m = g.in(0, {1}, DType::kBool), n = g.in(1, {1}, DType::kBool);
    (void)m;
    auto x = g.in(2, {1});
    g.out(g.where(n, x, g.c(0)));
  });
  for (uint64_t seed = 0; seed < 20; seed++) CHECK(equal(m1, m2, seed).kind != kEqual);
  CHECK_VERDICT(net([](Net& g) {
                  auto x = g.in(0, {4}), y = g.in(1, {4});
                  g.out(g.max(x, y));
                }),
                net([](Net& g) {
                  auto x = g.in(0, {4}), y = g.in(1, {4});
                  g.out(g.map(MapFn::kMin, {x, y}));
                }),
                kDifferent);
  CHECK_VERDICT(net([](Net& g) {
                  auto x = g.in(0, {4}), y = g.in(1, {4});
                  g.out(g.max(g.neg(x), g.neg(y)));
                }),
                net([](Net& g) {
                  auto x = g.in(0, {4}), y = g.in(1, {4});
                  g.out(g.neg(g.max(x, y)));
                }),
                kDifferent);
  // true for the larger of two, known to no rule of the fields: settled by Z3
  CHECK_VERDICT(net([](Net& g) {
                  auto x = g.in(0, {4}), y = g.in(1, {4});
                  g.out(g.max(x, y));
                }),
                net([](Net& g) {
                  auto x = g.in(0, {4}), y = g.in(1, {4});
                  g.out(g.where(g.less(x, y), y, x));
                }),
                kEqual);
}

TEST_CASE("masks off by one, transposed, or strict where they should not be") {
  auto causal = [](int variant) {
    return net([&](Net& g) {
      auto s = g.in(0, {4, 4});
      auto i = g.iota(0, {4, 4}), j = g.iota(1, {4, 4});
      auto hidden = variant == 0   ? g.less(i, j)
                    : variant == 1 ? g.less(j, i)
                    : variant == 2 ? g.less(g.add(i, g.c(1)), j)
                                   : g.map(MapFn::kGreater, {j, i});
      auto e = g.exp(g.where(hidden, g.c(-std::numeric_limits<double>::infinity()), s));
      g.out(g.div(e, g.sum(e, 1)));
    });
  };
  CHECK_VERDICT(causal(0), causal(1), kDifferent);
  CHECK_VERDICT(causal(0), causal(2), kDifferent);
  CHECK_VERDICT(causal(0), causal(3), kEqual);
}

TEST_CASE("infinities of unknown sign, and rows with nothing left, are not decided") {
  Graph scaled = net([](Net& g) { auto x = g.in(0, {4}); g.out(g.mul(x, g.c(-std::numeric_limits<double>::infinity()))); });
  Verdict v = equal(scaled, scaled, 1);
  CHECK(v.kind == kUnknown);
  CHECK(v.reason.find("sign") != std::string::npos);
  Graph empty_rows = net([](Net& g) {
    auto s = g.in(0, {3, 3});
    auto e = g.exp(g.where(g.less(g.iota(0, {3, 3}), g.c(1)), g.c(-std::numeric_limits<double>::infinity()), s));
    g.out(g.div(e, g.sum(e, 1)));
  });
  CHECK_VERDICT(empty_rows, empty_rows, kUnknown);
}

TEST_CASE("graphs that cannot be compared") {
  Graph a = unary([](Net&, ValueId x) { return x; }, 4), b = unary([](Net&, ValueId x) { return x; }, 5);
  CHECK_VERDICT(a, b, kDifferent);
  CHECK_VERDICT(a, unary([](Net& g, ValueId x) { return g.sum(x, 0); }, 4), kDifferent);
  Graph two = net([](Net& g) { auto x = g.in(0, {4}); g.out(x).out(x); });
  CHECK_VERDICT(a, two, kDifferent);
  CHECK_VERDICT(a, net([](Net& g) { g.out(g.in(0, {4}, DType::kF32)); }), kDifferent);
}
