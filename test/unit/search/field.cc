// Laws of the fingerprint algebra: what rewriting relies on holds, what it must not rely on does not.
#include "search/problem/field.h"
#include <catch2/catch.hpp>
#include "mirage/ir/eval.h"

using namespace mirage;
using mirage::search::FieldAlgebra;
using V = FieldAlgebra::Value;

TEST_CASE("field: rational functions") {
  FieldAlgebra a(1);
  Rng rng(2);
  for (int i = 0; i < 50; i++) {
    const V x = a.random(rng), y = a.random(rng), z = a.random(rng);
    CHECK(a.mul(x, a.add(y, z)) == a.add(a.mul(x, y), a.mul(x, z)));
    CHECK(a.mul(a.div(x, y), y) == x);
    CHECK(a.sub(x, y) == a.add(x, a.neg(y)));
    CHECK_FALSE(a.mul(x, y) == a.add(x, y));
  }
  CHECK_FALSE(a.zero_division());
  a.div(a.constant(1), a.constant(0));
  CHECK(a.zero_division());
}

TEST_CASE("field: constants are exact") {
  FieldAlgebra a(3);
  CHECK(a.add(a.constant(0.5), a.constant(0.25)) == a.constant(0.75));
  CHECK(a.mul(a.constant(-3), a.constant(7)) == a.constant(-21));
  CHECK(a.mul(a.constant(0.1), a.constant(8)) == a.constant(0.8));
  CHECK(a.constant(4096) == a.mul(a.constant(64), a.constant(64)));
  CHECK(a.div(a.constant(1), a.constant(1e300)) == a.div(a.constant(1), a.constant(1e300)));
}

TEST_CASE("field: exp turns sums into products, sqrt is multiplicative, maxima split") {
  FieldAlgebra a(5);
  Rng rng(6);
  for (int i = 0; i < 20; i++) {
    const V x = a.random(rng), y = a.random(rng), z = a.random(rng);
    CHECK(a.exp(a.add(x, y)) == a.mul(a.exp(x), a.exp(y)));
    CHECK(a.div(a.exp(a.sub(x, z)), a.exp(a.sub(y, z))) == a.div(a.exp(x), a.exp(y)));   // a softmax does not see its shift
    CHECK(a.sqrt(a.mul(x, y)) == a.mul(a.sqrt(x), a.sqrt(y)));
    CHECK(a.max(x, a.max(y, z)) == a.max(a.max(z, x), y));
    CHECK_FALSE(a.max(x, y) == x);
    CHECK_FALSE(a.max(x, y) == y);
    CHECK_FALSE(a.max(x, y) == a.min(x, y));
    CHECK_FALSE(a.exp(a.mul(x, y)) == a.mul(a.exp(x), a.exp(y)));
    CHECK(a.select(a.constant(1), x, y) == x);
    CHECK(a.select(a.constant(0), x, y) == y);
    CHECK(a.abs(a.neg(x)) == a.abs(x));
    CHECK_FALSE(a.less(x, y) == a.less(y, x));
  }
}

TEST_CASE("field: gemm is the sum of products") {
  FieldAlgebra a(8);
  Rng rng(9);
  const int64_t m = 3, n = 4, k = 19;
  std::vector<V> x, y, out(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m * k; i++) x.push_back(a.random(rng));
  for (int64_t i = 0; i < k * n; i++) y.push_back(a.random(rng));
  a.gemm(m, n, k, x.data(), y.data(), out.data());
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      V sum{};
      for (int64_t l = 0; l < k; l++) sum = a.add(sum, a.mul(x[static_cast<size_t>(i * k + l)], y[static_cast<size_t>(l * n + j)]));
      CHECK(out[static_cast<size_t>(i * n + j)] == sum);
    }
}
