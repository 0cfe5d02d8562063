// The numeric check: overflow, cancellation, rounding of intermediates, promised ranges.
#include <catch2/catch.hpp>

#include "unit/verify/graphs.h"

using namespace mirage;
using namespace mirage::test;

namespace {
template <class F> Graph net(F&& f) {
  Net n;
  f(n);
  return n.done();
}
const NumericCase& of(const NumericReport& r, const std::string& name) {
  for (const NumericCase& c : r.cases) if (c.distribution == name) return c;
  FAIL("no case " << name);
  return r.cases[0];
}
Graph softmax(bool shifted, double scale) {
  return net([&](Net& g) {
    auto s = g.mul(g.in(0, {4, 32}), g.c(scale));
    if (shifted) s = g.sub(s, g.rmax(s, 1));
    auto e = g.exp(s);
    g.out(g.div(e, g.sum(e, 1)));
  });
}
}  // namespace

TEST_CASE("the reference itself passes, with a smaller error than node by node in half precision") {
  Graph g = net([](Net& g) {
    auto x = g.in(0, {8, 64}), w = g.in(1, {64, 16});
    auto n = g.div(x, g.sqrt(g.add(g.div(g.sum(g.square(x), 1), g.c(64)), g.c(1e-6))));
    g.out(g.mm(n, w));
  });
  NumericReport r = check_numerics(g, g, Program{}, 1);
  CHECK(r.ok);
  CHECK(r.cases.size() == 6);
  CHECK(of(r, "normal").error > 0);
  CHECK(of(r, "normal").error < of(r, "normal").baseline_error);
  CHECK(of(r, "normal").error < 2e-3);
}

TEST_CASE("a softmax without its shift overflows where the program does not") {
  NumericReport r = check_numerics(softmax(true, 8), softmax(false, 8), Program{}, 1);
  CHECK_FALSE(r.ok);
  CHECK_FALSE(of(r, "large").nan_agree);
  CHECK(of(r, "small").ok);
  CHECK(r.reason.find("large") == 0);
  CHECK(check_numerics(softmax(true, 8), softmax(true, 8), Program{}, 1).ok);
  CHECK(check_numerics(softmax(false, 8), softmax(true, 8), Program{}, 1).ok);   // better than the program is fine
}

TEST_CASE("cancellation is seen: E[x^2] - E[x]^2 with a large mean, in float32") {
  auto variance = [](bool one_pass) {
    return net([&](Net& g) {
      auto x = g.add(g.in(0, {4, 64}, DType::kF32), g.c(4096));
      auto mean = g.div(g.sum(x, 1), g.c(64));
      g.out(one_pass ? g.sub(g.div(g.sum(g.square(x), 1), g.c(64)), g.square(mean)) : g.div(g.sum(g.square(g.sub(x, mean)), 1), g.c(64)),
            DType::kF32);
    });
  };
  REQUIRE(equal(variance(false), variance(true), 1).kind == kEqual);
  CHECK_FALSE(check_numerics(variance(false), variance(true), Program{}, 1).ok);
  CHECK(check_numerics(variance(true), variance(false), Program{}, 1).ok);
}

TEST_CASE("an intermediate stored in half precision overflows, one in float32 does not") {
  Graph reference = net([](Net& g) { auto x = g.in(0, {4, 64}); g.out(g.div(x, g.sqrt(g.sum(g.square(x), 1)))); });
  auto split = [](DType stored) {
    Net first(Level::kBlock, {{2, 1, 1}, 1});
    auto x = first.in(0, {2, 64}, DType::kF16, grid_x(0));
    first.out(first.sum(first.square(x), 1), stored, grid_x(0));
    Net k;
    auto input = k.in(0, {4, 64});
    k.out(k.div(input, k.sqrt(k.call(first.done(), {input}))));
    return k.done();
  };
  REQUIRE(equal(reference, split(DType::kReal), 1).kind == kEqual);
  CHECK(equal(reference, split(DType::kF16), 1).kind == Verdict::Kind::kDifferent);   // not the same function of real numbers
  NumericReport wide = check_numerics(reference, split(DType::kReal), Program{}, 1),
                narrow = check_numerics(reference, split(DType::kF16), Program{}, 1);
  CHECK(wide.ok);
  CHECK(of(wide, "large").error < 1e-3);
  CHECK(of(narrow, "normal").error > of(wide, "normal").error);
}

TEST_CASE("operands of contractions are rounded to the other operand's 16-bit type") {
  auto chain = [](double big) {
    return net([&](Net& g) { g.out(g.mm(g.mul(g.in(0, {4, 8}), g.c(big)), g.in(1, {8, 4})), DType::kF32); });
  };
  NumericReport r = check_numerics(chain(1), chain(1), Program{}, 1);
  CHECK(of(r, "normal").error < 1e-6);    // exact in half precision
  r = check_numerics(chain(1.0 / 3), chain(1.0 / 3), Program{}, 1);
  CHECK(of(r, "normal").error > 1e-5);    // the quotient is rounded on its way into the contraction
  CHECK(of(r, "normal").error < 1e-3);
}

TEST_CASE("promised ranges are kept") {
  Graph log = net([](Net& g) { g.out(g.map(MapFn::kLog, {g.in(0, {16})})); });
  Program p;
  p.inputs.push_back({"x", {DType::kF16, {16}}, {1}, std::pair{1.0, 4.0}});
  NumericReport r = check_numerics(log, log, p, 1);
  CHECK(r.ok);
  for (const NumericCase& c : r.cases) { CHECK(c.nan_agree); CHECK(c.error < 1e-2); CHECK(c.error > 0); }
}

TEST_CASE("a wrong candidate has a large error") {
  Graph a = net([](Net& g) { g.out(g.mm(g.in(0, {4, 8}), g.in(1, {8, 4}))); });
  Graph b = net([](Net& g) { auto x = g.in(0, {4, 8}), w = g.in(1, {8, 4}); g.out(g.mm(x, g.mul(w, g.c(1.1)))); });
  CHECK_FALSE(check_numerics(a, b, Program{}, 1).ok);
}

TEST_CASE("where a softmax is all but a choice, chance does not decide against a candidate") {
  // Both operands have gains: as good as node by node, but with large inputs now one, now the other chooses a wrong key.
  const Graph logits = net([](Net& g) {
    const ValueId q = g.in(0, {64, 16}, DType::kBF16), k = g.in(1, {16, 200}, DType::kBF16), a = g.in(2, {1, 16}, DType::kBF16),
                  b = g.in(3, {16, 1}, DType::kBF16);
    const ValueId s = g.mm(g.mul(q, a), g.mul(k, b)), e = g.exp(g.sub(s, g.rmax(s, 1)));
    g.out(g.div(e, g.sum(e, 1)), DType::kBF16);
  });
  const auto scaled = [](double up, double down) {  // rounded at other places; with other quotients, wrong by its making
    return net([&](Net& g) {
      const ValueId q = g.in(0, {64, 16}, DType::kBF16), k = g.in(1, {16, 200}, DType::kBF16), a = g.in(2, {1, 16}, DType::kBF16),
                    b = g.in(3, {16, 1}, DType::kBF16);
      const ValueId s = g.div(g.mm(g.mul(g.mul(q, a), g.c(up)), g.mul(k, b)), g.c(down)), e = g.exp(g.sub(s, g.rmax(s, 1)));
      g.out(g.div(e, g.sum(e, 1)), DType::kBF16);
    });
  };
  int refused = 0, chance = 0;
  for (uint64_t seed = 1; seed <= 20; seed++) {
    const NumericReport r = check_numerics(logits, scaled(3, 3), Program{}, seed);
    refused += !r.ok;
    for (const NumericCase& c : r.cases) chance += c.ok && c.error > 1.25 * c.baseline_error + 0x1p-8;
  }
  CHECK(chance > 0);   // one draw would have refused it
  CHECK(refused == 0);
  // logits of a tenth more: wrong by their making
  for (uint64_t seed = 1; seed <= 5; seed++) CHECK_FALSE(check_numerics(logits, scaled(3.3, 3), Program{}, seed).ok);
}

TEST_CASE("one rare draw in which rounding chooses the other key does not decide against a candidate") {
  // Queries scaled before their product, eight keys: nearly every draw is the same choice for all, so node by node is hardly ever the worse
  // one.
  const Graph scaled = net([](Net& g) {
    const ValueId s = g.mm(g.mul(g.in(0, {60, 12}), g.c(0.158113883)), g.in(1, {12, 8})), e = g.exp(g.sub(s, g.rmax(s, 1)));
    g.out(g.div(g.mm(e, g.in(2, {8, 14})), g.sum(e, 1)), DType::kF16);
  });
  int refused = 0, chance = 0;
  for (const uint64_t seed : {212, 223, 397, 406, 416}) {   // of 1000 seeds, ten were refused
    const NumericReport r = check_numerics(scaled, scaled, Program{}, seed);
    refused += !r.ok;
    for (const NumericCase& c : r.cases) chance += c.ok && c.error > 1.25 * c.baseline_error + 0x1p-11;
  }
  CHECK(chance > 0);
  CHECK(refused == 0);
}
