// Certificates: a recorded Equal replays; a forged one does not.
#include "mirage/verify/certificate.h"

#include <catch2/catch.hpp>

#include "unit/verify/graphs.h"

using namespace mirage;
using namespace mirage::test;

namespace {
Graph product(bool left, double c = 1) {
  Net g;
  auto x = g.in(0, {3, 4}), y = g.in(1, {4, 5}), z = g.in(2, {5, 2});
  g.out(g.mul(g.c(c), left ? g.mm(g.mm(x, y), z) : g.mm(x, g.mm(y, z))));
  return g.done();
}
}  // namespace

TEST_CASE("evidence replays") {
  Graph a = product(true), b = product(false);
  Verdict v = equal(a, b, 5);
  REQUIRE(v.kind == kEqual);
  Program p;
  p.canonical = "text";
  Certificate c = make_certificate(p, a, b, v, check_numerics(a, b, p, 5));
  CHECK(c.version == kCertificateVersion);
  CHECK(c.numerics.ok);
  CHECK(c.reference == print(a, "reference"));
  Verdict again = recheck(a, b, c.evidence);
  INFO(to_string(again));
  CHECK(again.kind == kEqual);
  CHECK(to_string(again) == to_string(v));
}

TEST_CASE("forged evidence does not") {
  Graph a = product(true), b = product(false);
  const Evidence good = equal(a, b, 5).evidence;
  CHECK(recheck(a, product(false, 2), good).kind == kDifferent);
  auto forged = [&](auto&& change) { Evidence e = good; change(e); return recheck(a, b, e); };
  CHECK(forged([](Evidence& e) { e.p = 167; e.q = 83; }).kind == kUnknown);
  CHECK(forged([](Evidence& e) { e.q -= 2; }).kind == kUnknown);
  CHECK(forged([](Evidence& e) { e.trials = 0; }).kind == kUnknown);
  CHECK(forged([](Evidence& e) { e.log2_bound *= 2; }).kind == kUnknown);
  CHECK(forged([](Evidence& e) { e.uninterpreted = {"sqrt"}; }).kind == kUnknown);
  CHECK(forged([](Evidence& e) { e.is_lax = false; }).kind == kUnknown);
  CHECK(forged([](Evidence& e) { e.degree = 1; }).kind == kUnknown);
}
