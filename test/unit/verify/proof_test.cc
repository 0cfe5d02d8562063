// Proofs in index notation: what is proved, what must never be, and how large it gets. The known traps of published checkers stand here a
// second time, against the prover.
#include <catch2/catch.hpp>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>

#include "mirage/verify/proof.h"
#include "unit/verify/graphs.h"

using namespace mirage;
using namespace mirage::test;

namespace {
template <class F> Graph net(F&& f) {
  Net n;
  f(n);
  return n.done();
}
template <class F> Graph unary(F&& f, int64_t n = 4) {
  return net([&](Net& g) { g.out(f(g, g.in(0, {n}))); });
}
template <class F> Graph binary(F&& f, Dims d = {3, 4}) {
  return net([&](Net& g) { auto x = g.in(0, d), y = g.in(1, d); g.out(f(g, x, y)); });
}
#define CHECK_PROVED(a, b)                     \
  do {                                         \
    const Graph a_ = a, b_ = b;                \
    const Proof proof_ = prove(a_, b_);        \
    INFO(to_string(proof_));                   \
    CHECK(proof_.proved);                      \
    CHECK(prove(b_, a_).proved);               \
  } while (false)
#define CHECK_OPEN(a, b)                       \
  do {                                         \
    const Graph a_ = a, b_ = b;                \
    const Proof proof_ = prove(a_, b_);        \
    INFO(to_string(proof_));                   \
    CHECK_FALSE(proof_.proved);                \
    CHECK_FALSE(prove(b_, a_).proved);         \
    CHECK_FALSE(proof_.reason.empty());        \
  } while (false)
constexpr double kInf = std::numeric_limits<double>::infinity();
}  // namespace

TEST_CASE("a factor leaves a sum only if it is free of its index") {
  Graph inside = net([](Net& g) { auto x = g.in(0, {3, 4}), y = g.in(1, {3, 1}), w = g.in(2, {4, 5}); g.out(g.mm(g.mul(x, y), w)); });
  Graph outside = net([](Net& g) { auto x = g.in(0, {3, 4}), y = g.in(1, {3, 1}), w = g.in(2, {4, 5}); g.out(g.mul(y, g.mm(x, w))); });
  CHECK_PROVED(inside, outside);
  Graph bound = net([](Net& g) { auto x = g.in(0, {4, 4}), y = g.in(1, {1, 4}), w = g.in(2, {4, 4}); g.out(g.mm(g.mul(x, y), w)); });
  Graph wrong = net([](Net& g) { auto x = g.in(0, {4, 4}), y = g.in(1, {1, 4}), w = g.in(2, {4, 4}); g.out(g.mul(y, g.mm(x, w))); });
  CHECK_OPEN(bound, wrong);
  // sum(x) sum(y) is not sum(xy): the sum-sum law of abstract expressions
  CHECK_OPEN(binary([](Net& g, ValueId x, ValueId y) { return g.mul(g.sum(x, 1), g.sum(y, 1)); }),
             binary([](Net& g, ValueId x, ValueId y) { return g.sum(g.mul(x, y), 1); }));
  CHECK_OPEN(binary([](Net& g, ValueId x, ValueId y) { return g.mul(g.sum(x, 1), g.sum(y, 1)); }),
             binary([](Net& g, ValueId x, ValueId y) { return g.mul(g.sum(x, 1), g.sum(x, 1)); }));
}

TEST_CASE("products of three matrices, transposes, and chains") {
  Graph left = net([](Net& g) { auto a = g.in(0, {3, 4}), b = g.in(1, {4, 5}), c = g.in(2, {5, 6}); g.out(g.mm(g.mm(a, b), c)); });
  Graph right = net([](Net& g) { auto a = g.in(0, {3, 4}), b = g.in(1, {4, 5}), c = g.in(2, {5, 6}); g.out(g.mm(a, g.mm(b, c))); });
  Graph turned = net([](Net& g) {
    auto a = g.in(0, {3, 4}), b = g.in(1, {4, 5}), c = g.in(2, {5, 6});
    g.out(g.swap(g.mm(g.swap(c), g.mm(g.swap(b), g.swap(a)))));
  });
  CHECK_PROVED(left, right);
  CHECK_PROVED(left, turned);
  auto square = [](int variant) {
    return net([&](Net& g) {
      auto a = g.in(0, {4, 4}), b = g.in(1, {4, 4});
      g.out(variant == 0 ? g.mm(a, b) : variant == 1 ? g.mm(a, g.swap(b)) : variant == 2 ? g.mm(b, a) : g.swap(g.mm(g.swap(b), g.swap(a))));
    });
  };
  CHECK_OPEN(square(0), square(1));
  CHECK_OPEN(square(0), square(2));
  CHECK_PROVED(square(0), square(3));
  // a trace: bound indices that look alike
  auto trace = [](bool turned_around) {
    return net([&](Net& g) {
      auto a = g.in(0, {4, 4}), b = g.in(1, {4, 4});
      g.out(g.sum(g.sum(turned_around ? g.mul(g.swap(a), b) : g.mul(a, g.swap(b)), 0), 1));
    });
  };
  CHECK_PROVED(trace(false), trace(true));
}

TEST_CASE("variance in two forms, exponentials, fractions") {
  auto variance = [](bool two_pass) {
    return unary([=](Net& g, ValueId x) {
      auto mean = [&](ValueId v) { return g.div(g.sum(v, 0), g.c(7)); };
      return two_pass ? mean(g.square(g.sub(x, mean(x)))) : g.sub(mean(g.square(x)), g.square(mean(x)));
    }, 7);
  };
  CHECK_PROVED(variance(true), variance(false));
  CHECK_PROVED(binary([](Net& g, ValueId x, ValueId y) { return g.mul(g.exp(x), g.exp(g.neg(y))); }),
               binary([](Net& g, ValueId x, ValueId y) { return g.exp(g.sub(x, y)); }));
  CHECK_PROVED(unary([](Net& g, ValueId x) { return g.silu(x); }),
               unary([](Net& g, ValueId x) { return g.div(g.mul(x, g.exp(x)), g.add(g.c(1), g.exp(x))); }));
  CHECK_PROVED(unary([](Net& g, ValueId x) {
                 auto e = g.exp(x);
                 return g.sum(g.div(e, g.sum(e, 0)), 0);
               }),
               unary([](Net& g, ValueId x) { return g.div(g.sum(x, 0), g.sum(x, 0)); }));
  CHECK_PROVED(binary([](Net& g, ValueId x, ValueId y) { return g.div(g.c(1), g.add(g.div(g.c(1), x), g.div(g.c(1), y))); }),
               binary([](Net& g, ValueId x, ValueId y) { return g.div(g.mul(x, y), g.add(x, y)); }));
  CHECK_PROVED(binary([](Net& g, ValueId x, ValueId y) {
                 auto s = g.add(x, y);
                 return g.add(g.div(x, s), g.div(y, s));
               }),
               binary([](Net& g, ValueId x, ValueId y) {
                 auto s = g.sub(x, y);
                 return g.div(s, s);
               }));
  // beyond what random testing knows: an exponential of an exponential
  CHECK_PROVED(binary([](Net& g, ValueId x, ValueId y) { return g.mul(g.exp(g.neg(g.exp(x))), g.exp(g.neg(g.exp(y)))); }),
               binary([](Net& g, ValueId x, ValueId y) { return g.exp(g.neg(g.add(g.exp(x), g.exp(y)))); }));
  CHECK_OPEN(unary([](Net& g, ValueId x) { return g.silu(x); }), unary([](Net& g, ValueId x) { return g.mul(x, g.exp(x)); }));
  CHECK_OPEN(unary([](Net& g, ValueId x) { return g.exp(g.mul(g.c(3072), x)); }), unary([](Net& g, ValueId x) { return g.exp(x); }));
}

TEST_CASE("roots keep signs and domains") {
  CHECK_OPEN(unary([](Net& g, ValueId x) { return g.sqrt(g.square(x)); }), unary([](Net&, ValueId x) { return x; }));
  CHECK_PROVED(unary([](Net& g, ValueId x) { return g.sqrt(g.square(x)); }), unary([](Net& g, ValueId x) {
                 return g.map(MapFn::kMax, {g.sqrt(g.square(x)), g.c(-1)});
               }));
  // undefined for x < 0
  CHECK_OPEN(unary([](Net& g, ValueId x) { return g.square(g.sqrt(x)); }), unary([](Net&, ValueId x) { return x; }));
  CHECK_OPEN(binary([](Net& g, ValueId x, ValueId y) { return g.sqrt(g.mul(x, y)); }),
             binary([](Net& g, ValueId x, ValueId y) { return g.mul(g.sqrt(x), g.sqrt(y)); }));
  CHECK_PROVED(binary([](Net& g, ValueId x, ValueId y) { return g.sqrt(g.mul(g.exp(x), g.square(g.exp(y)))); }),
               binary([](Net& g, ValueId x, ValueId y) { return g.mul(g.sqrt(g.exp(x)), g.exp(y)); }));
  CHECK_PROVED(unary([](Net& g, ValueId x) { return g.mul(g.sqrt(g.c(8)), x); }),
               unary([](Net& g, ValueId x) { return g.mul(x, g.mul(g.c(2), g.sqrt(g.c(2)))); }));
  CHECK_OPEN(unary([](Net& g, ValueId x) { return g.sqrt(x); }), unary([](Net& g, ValueId x) { return g.neg(g.sqrt(g.neg(x))); }));
  CHECK_PROVED(unary([](Net& g, ValueId x) { return g.square(g.map(MapFn::kAbs, {x})); }),
               unary([](Net& g, ValueId x) { return g.square(x); }));
}

TEST_CASE("maxima: merged over parts, scaled by what is positive, never by what is not") {
  auto rmax = [](bool split) {
    return unary([=](Net& g, ValueId x) { return split ? g.reshape(g.rmax(g.rmax(g.reshape(x, {3, 4}), 1), 0), {1}) : g.rmax(x, 0); }, 12);
  };
  CHECK_PROVED(rmax(false), rmax(true));
  auto relu = [](MapFn f, double a, double b) {
    return unary([=](Net& g, ValueId x) { return g.mul(g.c(b), g.map(f, {g.mul(g.c(a), x)})); });
  };
  CHECK_PROVED(relu(MapFn::kRelu, 2, 1), relu(MapFn::kRelu, 1, 2));
  CHECK_OPEN(relu(MapFn::kRelu, -1, 1), relu(MapFn::kRelu, 1, -1));
  CHECK_PROVED(relu(MapFn::kTanh, -1, 1), relu(MapFn::kTanh, 1, -1));
  CHECK_PROVED(binary([](Net& g, ValueId x, ValueId y) {
                 return g.map(MapFn::kMin, {x, y});
               }),
               binary([](Net& g, ValueId x, ValueId y) { return g.neg(g.max(g.neg(y), g.neg(x))); }));
  CHECK_OPEN(binary([](Net& g, ValueId x, ValueId y) {
               return g.map(MapFn::kMin, {x, y});
             }),
             binary([](Net& g, ValueId x, ValueId y) { return g.max(x, y); }));
  CHECK_OPEN(unary([](Net& g, ValueId x) { return g.rmax(x, 0); }, 8),
             unary([](Net& g, ValueId x) { return g.rmax(g.slice(x, 0, 0, 7), 0); }, 8));
  CHECK_OPEN(unary([](Net& g, ValueId x) { return g.map(MapFn::kGelu, {x}); }),
             unary([](Net& g, ValueId x) { return g.map(MapFn::kGeluTanh, {x}); }));
}

TEST_CASE("views are index arithmetic") {
  auto grouped = [](int variant) {
    return net([&](Net& g) {
      auto x = g.in(0, {2, 12});
      g.out(variant == 0   ? g.sum(x, 1, 3)
            : variant == 1 ? g.reshape(g.sum(g.reshape(x, {2, 3, 4}), 1), {2, 4})
                           : g.reshape(g.sum(g.reshape(x, {2, 4, 3}), 2), {2, 4}));
    });
  };
  CHECK_PROVED(grouped(0), grouped(2));
  CHECK_OPEN(grouped(0), grouped(1));
  // heads: reshape and transpose to heads, a sum over a head, and back to one axis
  Graph heads = net([](Net& g) { auto x = g.in(0, {4, 6}); g.out(g.sum(g.sum(g.square(g.reshape(x, {4, 2, 3})), 2), 1)); });
  Graph flat = net([](Net& g) { auto x = g.in(0, {4, 6}); g.out(g.reshape(g.sum(g.square(x), 1), {4, 1, 1})); });
  CHECK_PROVED(heads, flat);
  // concat and slice undo each other; a matmul over a concat is two
  Graph both = net([](Net& g) { auto x = g.in(0, {3, 4}), y = g.in(1, {3, 5}), w = g.in(2, {9, 2}); g.out(g.mm(g.concat({x, y}, 1), w)); });
  Graph parts = net([](Net& g) {
    auto x = g.in(0, {3, 4}), y = g.in(1, {3, 5}), w = g.in(2, {9, 2});
    g.out(g.add(g.mm(x, g.slice(w, 0, 0, 4)), g.mm(y, g.slice(w, 0, 4, 9))));
  });
  CHECK_PROVED(both, parts);
  Graph shifted = net([](Net& g) {
    auto x = g.in(0, {3, 4}), y = g.in(1, {3, 5}), w = g.in(2, {9, 2});
    g.out(g.add(g.mm(x, g.slice(w, 0, 5, 9)), g.mm(y, g.slice(w, 0, 0, 5))));
  });
  CHECK_OPEN(both, shifted);
  Graph cut = net([](Net& g) { auto x = g.in(0, {3, 4}), y = g.in(1, {3, 5}); g.out(g.slice(g.concat({x, y}, 1), 1, 4, 9)); });
  CHECK_PROVED(cut, net([](Net& g) { g.in(0, {3, 4}); g.out(g.in(1, {3, 5})); }));
  CHECK_PROVED(unary([](Net& g, ValueId x) { return g.sum(g.repeat(x, 0, 3), 0); }),
               unary([](Net& g, ValueId x) { return g.mul(g.c(3), g.sum(x, 0)); }));
  CHECK_PROVED(unary([](Net& g, ValueId x) { return g.repeat(g.exp(x), 0, 3); }),
               unary([](Net& g, ValueId x) { return g.exp(g.repeat(x, 0, 3)); }));
  CHECK_OPEN(unary([](Net& g, ValueId x) { return g.repeat(x, 0, 3); }), unary([](Net& g, ValueId x) {
               return g.reshape(g.repeat(g.reshape(x, {4, 1}), 1, 3), {12});
             }));
}

TEST_CASE("masks over indices, strict or not, transposed, and rows that are minus infinity") {
  auto causal = [](int variant, bool with_max) {
    return net([&](Net& g) {
      auto s = g.in(0, {4, 4});
      auto i = g.iota(0, {4, 4}), j = g.iota(1, {4, 4});
      auto hidden = variant == 0   ? g.less(i, j)
                    : variant == 1 ? g.less(j, i)
                    : variant == 2 ? g.less(g.add(i, g.c(1)), j)
                                   : g.map(MapFn::kGreater, {j, i});
      auto m = g.where(hidden, g.c(-kInf), s);
      auto e = g.exp(with_max ? g.sub(m, g.rmax(m, 1)) : m);
      g.out(g.div(e, g.sum(e, 1)));
    });
  };
  CHECK_PROVED(causal(0, true), causal(0, false));
  CHECK_PROVED(causal(0, false), causal(3, true));
  CHECK_OPEN(causal(0, false), causal(1, false));
  CHECK_OPEN(causal(0, true), causal(2, true));
  Graph where = binary([](Net& g, ValueId x, ValueId y) { return g.exp(g.where(g.less(x, y), x, y)); });
  CHECK_PROVED(where, binary([](Net& g, ValueId x, ValueId y) { auto c = g.less(x, y); return g.exp(g.where(c, x, y)); }));
}

TEST_CASE("block graphs: tiles, ragged tails, loops, splits over blocks") {
  const Launch launch{{2, 1, 1}, 3};
  auto body = [&](int64_t tk, int64_t tn) {
    Net b(Level::kBlock, launch);
    auto x = b.in(0, {3, tk}, DType::kF16, loop_over(1)), w = b.in(1, {tk, tn}, DType::kF16, part(1, -1, -1, 0));
    auto y = b.accum(b.mm(x, w)), s = b.accum(b.sum(b.square(x), 1));
    b.out(b.div(y, b.sqrt(b.add(s, b.c(0.5)))), DType::kF16, grid_x(1));
    return b.done();
  };
  auto reference = [](int64_t k, int64_t n) {
    return net([&](Net& g) {
      auto x = g.in(0, {3, k}), w = g.in(1, {k, n});
      g.out(g.mm(g.div(x, g.sqrt(g.add(g.sum(g.square(x), 1), g.c(0.5)))), w));
    });
  };
  CHECK_PROVED(reference(12, 8), kernel_of(body(4, 4), {{3, 12}, {12, 8}}));
  CHECK_PROVED(reference(11, 7), kernel_of(body(4, 4), {{3, 11}, {11, 7}}));
  CHECK_PROVED(reference(9, 5), kernel_of(body(4, 4), {{3, 9}, {9, 5}}));
  // a mean of means over ragged tiles is none
  Net m(Level::kBlock, {{1, 1, 1}, 2});
  m.out(m.div(m.accum(m.div(m.sum(m.in(0, {2, 3}, DType::kF16, loop_over(1)), 1), m.c(3))), m.c(2)));
  const Graph means = kernel_of(m.done(), {{2, 5}});
  CHECK_OPEN(net([](Net& g) { g.out(g.div(g.sum(g.in(0, {2, 5}), 1), g.c(5))); }), means);
  // a value that the loop does not split is added once per iteration
  Net inv(Level::kBlock, {{1, 1, 1}, 2});
  auto x = inv.in(0, {3, 2}, DType::kF16, loop_over(1)), y = inv.in(1, {3, 1});
  inv.out(inv.accum(inv.add(inv.sum(x, 1), y)));
  const Graph fused = kernel_of(inv.done(), {{3, 4}, {3, 1}});
  CHECK_OPEN(net([](Net& g) { auto u = g.in(0, {3, 4}), v = g.in(1, {3, 1}); g.out(g.add(g.sum(u, 1), v)); }), fused);
  CHECK_PROVED(net([](Net& g) { auto u = g.in(0, {3, 4}), v = g.in(1, {3, 1}); g.out(g.add(g.sum(u, 1), g.mul(g.c(2), v))); }), fused);
}

TEST_CASE("split keys: partial sums of every block, combined by a second kernel") {
  auto split = [](bool ragged) {
    const int64_t keys = ragged ? 21 : 24;
    Net b(Level::kBlock, {{2, 1, 1}, 3});   // two blocks, three iterations of four keys
    auto q = b.in(0, {3, 5}), k = b.in(1, {5, 4}, DType::kF16, part(1, -1, -1, 1)), v = b.in(2, {4, 5}, DType::kF16, part(0, -1, -1, 0));
    auto e = b.exp(b.mm(q, k));
    b.out(b.reshape(b.accum(b.mm(e, v)), {1, 3, 5}), DType::kReal, grid_x(0))
        .out(b.reshape(b.accum(b.sum(e, 1)), {1, 3, 1}), DType::kReal, grid_x(0));
    const Graph body = b.done();
    Net g;
    auto x = g.in(0, {3, 5}), y = g.in(1, {5, keys}), z = g.in(2, {keys, 5});
    const ValueId first = g.call(body, {x, y, z});
    g.out(g.div(g.reshape(g.sum(first, 0), {3, 5}), g.reshape(g.sum(first + 1, 0), {3, 1})));
    return std::pair{g.done(), net([&](Net& n) {
      auto a = n.in(0, {3, 5}), c = n.in(1, {5, keys}), d = n.in(2, {keys, 5});
      auto s = n.mm(a, c), u = n.exp(n.sub(s, n.rmax(s, 1)));
      n.out(n.mm(n.div(u, n.sum(u, 1)), d));
    })};
  };
  for (bool ragged : {false, true}) {
    auto [two, one] = split(ragged);
    INFO(print(two));
    CHECK_PROVED(one, two);
  }
}

TEST_CASE("a running shift telescopes whatever it is, also over ragged tails; another degree does not") {
  auto stable = [](int degree, int64_t keys) {
    Net b(Level::kBlock, {{1, 1, 1}, (keys + 3) / 4});
    auto q = b.in(0, {3, 5}), k = b.in(1, {5, 4}, DType::kF16, loop_over(1)), v = b.in(2, {4, 5}, DType::kF16, loop_over(0));
    auto s = b.mm(q, k), m = b.b.add(Running{}, {b.rmax(s, 1)}), e = b.exp(b.sub(s, m));
    b.out(b.div(b.b.add(Accum{ReduceFn::kSum, degree}, {b.mm(e, v), m}), b.b.add(Accum{ReduceFn::kSum, 1}, {b.sum(e, 1), m})));
    return kernel_of(b.done(), {{3, 5}, {5, keys}, {keys, 5}});
  };
  auto reference = [](int64_t keys) {
    return net([&](Net& n) {
      auto a = n.in(0, {3, 5}), c = n.in(1, {5, keys}), d = n.in(2, {keys, 5});
      auto s = n.mm(a, c), u = n.exp(n.sub(s, n.rmax(s, 1)));
      n.out(n.mm(n.div(u, n.sum(u, 1)), d));
    });
  };
  CHECK_PROVED(reference(12), stable(1, 12));
  CHECK_PROVED(reference(11), stable(1, 11));
  CHECK_PROVED(reference(9), stable(1, 9));
  CHECK_OPEN(reference(12), stable(2, 12));
}

TEST_CASE("equal-shaped weights swapped, outputs swapped, QK-norm with a row sum") {
  auto mlp = [](int first, int second) {
    return net([&](Net& g) {
      auto x = g.in(0, {2, 3});
      std::array w{g.in(1, {3, 3}), g.in(2, {3, 3})};
      g.out(g.mul(g.silu(g.mm(x, w[static_cast<size_t>(first)])), g.mm(x, w[static_cast<size_t>(second)])));
    });
  };
  CHECK_OPEN(mlp(0, 1), mlp(1, 0));
  CHECK_OPEN(mlp(0, 1), mlp(0, 0));
  auto two = [](bool swapped) {
    return net([&](Net& g) {
      auto x = g.in(0, {4});
      auto a = g.square(x), b = g.exp(x);
      g.out(swapped ? b : a).out(swapped ? a : b);
    });
  };
  CHECK_OPEN(two(false), two(true));
  auto attention = [](bool wrong) {
    return net([&](Net& g) {
      auto q = g.in(0, {3, 4}), k = g.in(1, {4, 5}), v = g.in(2, {5, 4});
      auto nq = g.div(q, g.sqrt(g.sum(g.square(q), 1)));
      auto e = g.exp(wrong ? g.mul(g.sum(nq, 1), g.slice(k, 0, 0, 1)) : g.mm(nq, k));
      g.out(g.div(g.mm(e, v), g.sum(e, 1)));
    });
  };
  CHECK_OPEN(attention(false), attention(true));
  // 0 / 0
  CHECK_OPEN(unary([](Net& g, ValueId x) { return g.div(x, g.sub(x, x)); }),
             unary([](Net& g, ValueId x) { return g.div(x, g.mul(g.c(0), x)); }));
}

TEST_CASE("piecewise functions of one element: Z3 settles them, and refutes nothing that is false") {
  auto check = [](bool expected, auto&& f, auto&& g) {
    const Graph a = binary(f), b = binary(g);
    const Proof p = prove(a, b);
    INFO(to_string(p));
    CHECK(p.proved == expected);
    if (expected) CHECK(p.method == "normal forms and Z3");
    CHECK(p == prove(a, b));
  };
  using V = ValueId;
  check(true, [](Net& g, V x, V y) { return g.max(x, y); }, [](Net& g, V x, V y) { return g.where(g.less(x, y), y, x); });
  check(false, [](Net& g, V x, V y) { return g.max(x, y); }, [](Net& g, V x, V y) { return g.where(g.less(x, y), x, y); });
  check(
      true,
      [](Net& g, V x, V y) {
        return g.add(g.max(x, y), g.map(MapFn::kMin, {x, y}));
      },
      [](Net& g, V x, V y) { return g.add(x, y); });
  check(
      true, [](Net& g, V x, V y) { return g.map(MapFn::kAbs, {g.sub(x, y)}); },
      [](Net& g, V x, V y) {
        return g.sub(g.max(x, y), g.map(MapFn::kMin, {x, y}));
      });
  check(
      true, [](Net& g, V x, V y) { return g.max(g.add(x, y), g.add(y, g.c(1))); },
      [](Net& g, V x, V y) { return g.add(g.max(x, g.c(1)), y); });
  check(
      true,
      [](Net& g, V x, V) {
        return g.map(MapFn::kClamp, {x, g.c(-2), g.c(3)});
      },
      [](Net& g, V x, V) {
        return g.max(g.c(-2), g.map(MapFn::kMin, {g.c(3), x}));
      });
  check(
      false,
      [](Net& g, V x, V) {
        return g.map(MapFn::kClamp, {x, g.c(-2), g.c(3)});
      },
      [](Net& g, V x, V) {
        return g.map(MapFn::kClamp, {x, g.c(-1), g.c(1)});
      });
  check(
      true, [](Net& g, V x, V) { return g.sub(g.map(MapFn::kRelu, {x}), g.map(MapFn::kRelu, {g.neg(x)})); },
      [](Net&, V x, V) { return x; });
  check(
      true, [](Net& g, V x, V y) { return g.map(MapFn::kRelu, {g.mul(g.exp(y), x)}); },
      [](Net& g, V x, V y) {
        return g.mul(g.exp(y), g.where(g.map(MapFn::kGreater, {x, g.c(0)}), x, g.c(0)));
      });
}

TEST_CASE("a hundred operators take seconds at most, at real sizes") {
  auto tower = [](bool swapped) {   // blocks of norm, projection, gate and residual
    return net([&](Net& g) {
      auto x = g.in(0, {16, 4096});
      for (int l = 0; l < 8; l++) {
        auto w1 = g.in(1 + 3 * l, {4096, 4096}), w2 = g.in(2 + 3 * l, {4096, 4096}), gain = g.in(3 + 3 * l, {4096});
        auto r = g.sqrt(g.add(g.div(g.sum(g.square(x), 1), g.c(4096)), g.c(1e-5)));
        auto a = swapped ? g.div(g.mm(g.mul(x, gain), w1), r) : g.mm(g.mul(g.div(x, r), gain), w1);
        auto b = swapped ? g.div(g.mm(g.mul(gain, x), w2), r) : g.mm(g.mul(g.div(x, r), gain), w2);
        x = swapped ? g.add(g.mul(b, g.silu(a)), x) : g.add(x, g.mul(g.silu(a), b));
      }
      g.out(x);
    });
  };
  const Graph a = tower(false), b = tower(true);
  CHECK(a.num_nodes() > 100);
  const auto start = std::chrono::steady_clock::now();
  const Proof p = prove(a, b);
  INFO(to_string(p) << ", " << std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() << " s");
  CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < 20);
  CHECK(p.proved);
}

TEST_CASE("proof: sums that slices cut are put together, functions and casts of masks") {
  Net a, b;
  {
    auto x = a.in(0, {3, 6}), w = a.in(1, {6, 4});
    a.out(a.div(a.mm(x, w), a.sum(a.square(x), 1)));
  }
  {
    auto x = b.in(0, {3, 6}), w = b.in(1, {6, 4});
    auto part = [&](int64_t from, int64_t to) { return b.mm(b.slice(x, 1, from, to), b.slice(w, 0, from, to)); };
    auto squares = [&](int64_t from, int64_t to) { return b.sum(b.square(b.slice(x, 1, from, to)), 1); };
    b.out(b.div(b.add(part(0, 2), part(2, 6)), b.add(squares(0, 2), squares(2, 6))));
  }
  const Graph whole = a.done(), cut = b.done();
  const Proof p = prove(whole, cut);
  INFO(to_string(p));
  CHECK(p.proved);
  Net c;
  {
    auto x = c.in(0, {3, 6}), w = c.in(1, {6, 4});
    // one index twice
    c.out(c.div(c.add(c.mm(c.slice(x, 1, 0, 2), c.slice(w, 0, 0, 2)), c.mm(c.slice(x, 1, 1, 6), c.slice(w, 0, 1, 6))),
                c.sum(c.square(x), 1)));
  }
  CHECK_FALSE(prove(whole, c.done()).proved);
  // functions of minus infinity
  for (auto [fn, limit] : {std::pair{MapFn::kTanh, -1.0}, std::pair{MapFn::kCastF16, -kInf}, std::pair{MapFn::kSigmoid, 0.0}}) {
    auto masked = [fn = fn](bool inside, double otherwise) {
      Net g;
      auto x = g.in(0, {4, 4}), cond = g.less(g.iota(0, {4, 4}), g.iota(1, {4, 4}));
      g.out(g.exp(inside ? g.map(fn, {g.where(cond, g.c(-INFINITY), g.mul(x, x))})
                         : g.where(cond, g.c(otherwise), g.map(fn, {g.mul(x, x)}))));
      return g.done();
    };
    const Proof q = prove(masked(true, 0), masked(false, limit));
    INFO(to_string(q));
    CHECK(q.proved);
    CHECK_FALSE(prove(masked(true, 0), masked(false, 0.5)).proved);
  }
  for (MapFn fn : {MapFn::kSilu, MapFn::kGelu}) {   // minus infinity times 0 is no number
    Net g;
    auto x = g.in(0, {4, 4}), cond = g.less(g.iota(0, {4, 4}), g.iota(1, {4, 4}));
    g.out(g.map(fn, {g.where(cond, g.c(-INFINITY), x)}));
    const Graph undefined = g.done();
    Net h;
    auto y = h.in(0, {4, 4}), c = h.less(h.iota(0, {4, 4}), h.iota(1, {4, 4}));
    h.out(h.where(c, h.c(0), h.map(fn, {y})));
    CHECK_FALSE(prove(undefined, h.done()).proved);
  }
}

TEST_CASE("a position times a slope in an exponent is one index in parts") {
  // attention with a bias by distance: the loop splits the keys, and the exponent their places
  const auto whole = [](bool wrong) {
    return net([wrong](Net& g) {
      auto x = g.in(0, {3, 12}), slope = g.in(1, {3, 1});
      auto e = g.exp(g.add(x, g.mul(slope, g.iota(1, {1, 12}))));
      g.out(g.sum(wrong ? g.mul(e, e) : e, 1));
    });
  };
  const auto parts = [](double step) {
    return net([step](Net& g) {
      auto x = g.in(0, {3, 12}), slope = g.in(1, {3, 1});
      auto place = g.add(g.mul(g.iota(1, {1, 3, 4}), g.c(step)), g.iota(2, {1, 3, 4}));
      auto e = g.exp(g.add(g.reshape(x, {3, 3, 4}), g.mul(g.reshape(slope, {3, 1, 1}), place)));
      g.out(g.reshape(g.sum(g.sum(e, 2), 1), {3, 1}));
    });
  };
  CHECK_PROVED(whole(false), parts(4));
  CHECK_OPEN(whole(false), parts(3));
  CHECK_OPEN(whole(true), parts(4));
}
