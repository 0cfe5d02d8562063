// What signs show at once: that a graph is defined for almost all inputs.
#include <catch2/catch.hpp>

#include <limits>

#include "unit/verify/graphs.h"
#include "verify/total.h"

using namespace mirage;
using namespace mirage::test;

namespace {

template <class F> bool is_total_of(F&& f) {
  Net g;
  const ValueId x = g.in(0, {3, 4}), y = g.in(1, {3, 4});
  g.out(f(g, x, y), DType::kF32);
  return verify::is_total(remove_dead(std::move(g).done()));
}

ValueId variance(Net& g, ValueId x) {
  const ValueId apart = g.sub(x, g.div(g.sum(x, 1), g.c(4)));
  return g.div(g.sum(g.square(apart), 1), g.c(4));
}

}  // namespace

TEST_CASE("signs show where roots, logarithms and quotients are defined") {
  CHECK(is_total_of([](Net& g, ValueId x, ValueId) { return g.div(x, g.sqrt(g.add(variance(g, x), g.c(1e-5)))); }));
  CHECK(is_total_of([](Net& g, ValueId x, ValueId) { return g.div(g.exp(x), g.sum(g.exp(x), 1)); }));
  CHECK(is_total_of([](Net& g, ValueId x, ValueId) { return g.sqrt(g.mul(x, x)); }));
  CHECK(is_total_of([](Net& g, ValueId x, ValueId y) { return g.div(x, y); }));
  CHECK(is_total_of([](Net& g, ValueId x, ValueId) { return g.map(MapFn::kLog, {g.sum(g.exp(g.sub(x, g.rmax(x, 1))), 1)}); }));
  CHECK(is_total_of([](Net& g, ValueId x, ValueId y) { return g.add(x, g.sqrt(g.max(y, g.c(0)))); }));
}

TEST_CASE("what signs do not show is not total") {
  CHECK_FALSE(is_total_of([](Net& g, ValueId x, ValueId) { return g.sqrt(x); }));
  CHECK_FALSE(is_total_of([](Net& g, ValueId x, ValueId y) { return g.sqrt(g.mul(x, y)); }));
  CHECK_FALSE(is_total_of([](Net& g, ValueId x, ValueId) { return g.sqrt(g.sub(g.sum(g.square(x), 1), g.square(g.sum(x, 1)))); }));
  CHECK_FALSE(is_total_of([](Net& g, ValueId x, ValueId) { return g.map(MapFn::kLog, {x}); }));
  CHECK_FALSE(is_total_of([](Net& g, ValueId x, ValueId) { return g.map(MapFn::kLog, {g.square(x)}); }));
  CHECK_FALSE(is_total_of([](Net& g, ValueId x, ValueId y) { return g.map(MapFn::kPow, {x, y}); }));
  CHECK_FALSE(is_total_of([](Net& g, ValueId x, ValueId y) { return g.div(y, g.max(x, g.c(0))); }));
  CHECK_FALSE(is_total_of([](Net& g, ValueId x, ValueId y) { return g.div(y, g.sub(x, x)); }));
  // a row that is masked as a whole has a sum of 0
  CHECK_FALSE(is_total_of([](Net& g, ValueId x, ValueId y) {
    const ValueId e = g.exp(g.where(g.less(y, g.c(0)), x, g.c(-std::numeric_limits<double>::infinity())));
    return g.div(e, g.sum(e, 1));
  }));
}

// What is right may still lose a root: these are looked at by algebra, as before.
TEST_CASE("a root of what may be negative must not cancel") {
  Net given, other;
  given.out(given.in(0, {3, 4}), DType::kF32);
  const ValueId x = other.in(0, {3, 4}), r = other.sqrt(other.sum(x, 1));
  other.out(other.sub(other.add(x, r), r), DType::kF32);
  const Verdict v = equal(std::move(given).done(), std::move(other).done(), 7);
  CHECK(v.kind != kEqual);
}
