// Degrees of small graphs, and which theorem the bound comes from.
#include "verify/degree.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "unit/verify/graphs.h"

using namespace mirage;
using namespace mirage::test;
using namespace mirage::verify;

namespace {
template <class F> GraphDegree degree(F&& f) {
  Net n;
  f(n);
  return degree_of(n.done());
}
const Primes kPrimes = draw_primes(1);
}  // namespace

TEST_CASE("degrees add in products, not in sums") {
  GraphDegree d = degree([](Net& g) { auto x = g.in(0, {2, 5}), y = g.in(1, {5, 2}); g.out(g.mm(g.add(g.square(x), x), y)); });
  CHECK(d.worst.num == 3);
  CHECK(d.worst.den == 0);
  CHECK(d.worst.exponent == 0);
  CHECK(d.keyed_calls == 0);
  CHECK(d.is_lax);
  Bound b = bound_of_trial(d, d, kPrimes, false, false);
  CHECK(b.degree == 3);
  CHECK(std::fabs(b.log2 - std::log2(3.0 / static_cast<double>(kPrimes.p))) < 1e-9);
  CHECK(bound_of_trial(d, d, kPrimes, true, false).log2 == 0);
  CHECK(bound_of_trial(d, d, kPrimes, false, true).log2 == 0);
}

TEST_CASE("sums of fractions multiply denominators out") {
  GraphDegree d = degree([](Net& g) { auto x = g.in(0, {1, 5}), y = g.in(1, {1, 5}); g.out(g.sum(g.div(x, y), 1)); });
  CHECK(d.worst.num == 5);   // one of x, four others of y
  CHECK(d.worst.den == 5);
}

TEST_CASE("exponentials count terms; keyed functions count calls, in every block and iteration") {
  GraphDegree d = degree([](Net& g) { g.out(g.silu(g.in(0, {3}))); });
  CHECK(d.worst.bottom == 2);
  CHECK(d.worst.exponent == 1);
  CHECK(bound_of_trial(d, d, kPrimes, false, false).reason.find("k = 4 ") != std::string::npos);
  CHECK(degree([](Net& g) { g.out(g.exp(g.exp(g.in(0, {3})))); }).is_lax == false);
  Net b(Level::kBlock, {{2, 1, 1}, 3});
  auto x = b.in(0, {2, 4}, DType::kF16, part(0, -1, -1, 1));
  b.out(b.accum(b.sum(b.map(MapFn::kTanh, {x}), 1)), DType::kF16, grid_x(0));
  d = degree_of(kernel_of(b.done(), {{4, 12}}));
  CHECK(d.keyed_calls == 48);
  CHECK_FALSE(d.is_lax);
  CHECK(bound_of_trial(d, d, kPrimes, false, false).log2 < -40);
}

TEST_CASE("where theory says nothing, nothing is claimed") {
  GraphDegree d = degree([](Net& g) { auto e = g.exp(g.in(0, {2, 64})); g.out(g.div(e, g.sum(e, 1))); });
  CHECK(bound_of_trial(d, d, kPrimes, false, false).log2 == 0);
  d = degree([](Net& g) { g.out(g.map(MapFn::kTanh, {g.exp(g.in(0, {2}))})); });
  Bound b = bound_of_trial(d, d, kPrimes, false, false);
  CHECK(b.log2 == 0);
  CHECK(b.reason.find("no bound") == 0);
}
