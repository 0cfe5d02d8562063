// Laws of the verifier's algebra, value by value: what must hold for real numbers' sake, and what must not.
#include "verify/field.h"

#include <catch2/catch.hpp>
#include <limits>

using namespace mirage;
using namespace mirage::verify;

namespace {
constexpr double kInf = std::numeric_limits<double>::infinity();
const Primes kPrimes = draw_primes(11);
struct Fixture {
  FieldAlgebra a;
  FieldValue x, y, z;
  explicit Fixture(FieldMode mode = {}, uint64_t key = 3)
      : a(kPrimes, key, mode), x(a.input(DType::kF16, 0)), y(a.input(DType::kF16, 1)), z(a.input(DType::kF16, 2)) {}
};
}  // namespace

TEST_CASE("ring and field laws, exponentials turn sums into products") {
  Fixture f;
  auto& a = f.a;
  CHECK(a.same(a.mul(f.x, a.add(f.y, f.z)), a.add(a.mul(f.x, f.y), a.mul(f.x, f.z))));
  CHECK(a.same(a.mul(a.div(f.x, f.y), f.y), f.x));
  CHECK(a.same(a.mul(a.exp(f.x), a.exp(f.y)), a.exp(a.add(f.x, f.y))));
  CHECK(a.same(a.mul(a.exp(f.x), a.exp(a.neg(f.x))), a.constant(1)));
  CHECK_FALSE(a.same(a.exp(f.x), a.exp(f.y)));
  CHECK(a.same(a.exp(a.sub(f.x, f.x)), a.constant(1)));
  CHECK(a.used() == 0);
  CHECK_FALSE(is_keyed(a.exp(f.x)));
  CHECK(is_keyed(a.exp(a.exp(f.x))));
}

TEST_CASE("constants are exact dyadic numbers") {
  Fixture f;
  auto& a = f.a;
  CHECK(a.same(a.mul(a.constant(0.375), a.constant(8)), a.constant(3)));
  CHECK(a.same(a.add(a.constant(-2.5), a.constant(2.5)), a.constant(0)));
  CHECK(a.same(a.mul(a.constant(0.1), a.constant(0x1p55)), a.constant(0.1 * 0x1p55)));
  CHECK(a.same(a.add(a.constant(0x1p53), a.constant(1)), a.add(a.constant(1), a.constant(0x1p53))));
  CHECK_FALSE(a.same(a.add(a.constant(0x1p53), a.constant(1)), a.constant(0x1p53)));   // doubles would lose the 1
}

TEST_CASE("infinities") {
  Fixture f;
  auto& a = f.a;
  const auto minus = a.constant(-kInf), plus = a.constant(kInf);
  CHECK(kind(a.add(f.x, minus)) == kMinusInf);
  CHECK(kind(a.add(plus, minus)) == kUndefined);
  CHECK(a.same(a.exp(minus), a.constant(0)));
  CHECK(kind(a.exp(plus)) == kPlusInf);
  CHECK(a.same(a.max(minus, f.x), f.x));
  CHECK(kind(a.max(plus, f.x)) == kPlusInf);
  CHECK(kind(a.min(minus, f.x)) == kMinusInf);
  CHECK(kind(a.mul(minus, a.constant(-0.125))) == kPlusInf);
  CHECK(kind(a.mul(minus, a.exp(f.x))) == kMinusInf);   // exponentials are positive
  CHECK_FALSE(a.unknown_sign());
  CHECK(kind(a.mul(minus, f.x)) == kUndefined);
  CHECK(a.unknown_sign());
  CHECK(kind(a.mul(minus, a.constant(0))) == kUndefined);
  CHECK(a.same(a.div(f.x, plus), a.constant(0)));
  CHECK(kind(a.div(f.x, a.sub(f.y, f.y))) == kUndefined);
  CHECK(a.zero_denominator());
  CHECK(a.same(a.less(minus, f.x), a.constant(1)));
  CHECK(a.same(a.equal(minus, minus), a.constant(1)));
  CHECK(kind(a.constant(std::numeric_limits<double>::quiet_NaN())) == kUndefined);
}

TEST_CASE("maxima form a semilattice that hides nothing") {
  Fixture f;
  auto& a = f.a;
  const auto xy = a.max(f.x, f.y);
  CHECK(a.same(xy, a.max(f.y, f.x)));
  CHECK(a.same(a.max(xy, f.z), a.max(f.x, a.max(f.y, f.z))));
  CHECK(a.same(a.max(xy, f.x), xy));
  CHECK(a.same(a.max(f.x, f.x), f.x));
  CHECK_FALSE(a.same(xy, f.x));
  CHECK_FALSE(a.same(xy, f.y));
  CHECK_FALSE(a.same(a.max(xy, f.z), xy));
  CHECK(a.same(a.max(a.max(f.x, a.constant(3)), a.constant(5)), a.max(f.x, a.constant(5))));
  CHECK(a.same(a.max(a.constant(-3), a.constant(2)), a.constant(2)));
  CHECK(a.same(a.max(xy, f.z), a.max(a.max(xy, f.z), a.max(f.z, f.x))));
}

TEST_CASE("both parities of the random power are multiplicative and disagree about -1") {
  for (bool even : {false, true}) {
    Fixture f({.sqrt_power = true, .even_power = even});
    auto& a = f.a;
    CHECK(a.same(a.sqrt(a.mul(f.x, f.y)), a.mul(a.sqrt(f.x), a.sqrt(f.y))));
    CHECK(a.same(a.sqrt(a.neg(f.x)), a.sqrt(f.x)) == even);
    CHECK(a.same(a.sqrt(a.neg(f.x)), a.neg(a.sqrt(f.x))) == !even);
  }
  Fixture g;
  CHECK(g.a.same(g.a.sqrt(g.a.constant(64)), g.a.constant(8)));
  CHECK_FALSE(g.a.same(g.a.sqrt(g.a.mul(g.x, g.y)), g.a.mul(g.a.sqrt(g.x), g.a.sqrt(g.y))));
}

TEST_CASE("conditions: field elements or bits") {
  Fixture f;
  auto& a = f.a;
  CHECK(a.same(a.select(a.constant(1), f.x, f.y), f.x));
  CHECK(a.same(a.select(a.constant(0), f.x, f.y), f.y));
  const auto c = a.less(f.x, f.y);
  CHECK(a.same(a.select(c, f.z, f.z), f.z));
  CHECK_FALSE(a.same(a.select(c, f.x, f.y), f.x));
  CHECK_FALSE(a.same(a.select(c, f.x, f.y), f.y));
  CHECK(kind(a.select(c, f.x, a.constant(-kInf))) == kUndefined);
  CHECK(a.needs_bits());
  CHECK(a.same(a.less(f.x, f.x), a.constant(0)));
  CHECK(a.same(a.equal(f.x, f.y), a.equal(f.y, f.x)));
  CHECK(a.same(a.less(a.constant(2), a.constant(3)), a.constant(1)));
  Fixture b({.bits = true});
  const auto bit = b.a.less(b.x, b.y);
  CHECK((b.a.same(bit, b.a.constant(0)) || b.a.same(bit, b.a.constant(1))));
  CHECK_FALSE(b.a.same(bit, b.a.less(b.y, b.x)));
}

TEST_CASE("rounding is idempotent and respects inclusion") {
  Fixture f;
  auto& a = f.a;
  const auto v = a.add(f.x, f.y), r = a.round(v, DType::kBF16);
  CHECK_FALSE(a.same(v, r));
  CHECK(a.same(a.round(r, DType::kBF16), r));
  CHECK(a.same(a.round(r, DType::kF32), r));
  CHECK_FALSE(a.same(a.round(r, DType::kF16), r));
  CHECK(a.same(a.round(f.x, DType::kF16), f.x));
  CHECK(a.same(a.round(a.constant(2049), DType::kF16), a.constant(2048)));
}

TEST_CASE("the fast product agrees with sums of products, marks included") {
  Fixture f;
  auto& a = f.a;
  const int64_t m = 3, n = 4, k = 70;
  std::vector<FieldValue> x, y, dst(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m * k; i++)
    x.push_back(i % 7 == 3 ? a.constant(static_cast<double>(i % 5))
                : i < k    ? a.input(DType::kF16, static_cast<uint64_t>(100 + i))
                           : a.exp(a.input(DType::kF16, static_cast<uint64_t>(100 + i))));
  for (int64_t i = 0; i < k * n; i++) y.push_back(a.input(DType::kF16, static_cast<uint64_t>(1000 + i)));
  y[5] = a.constant(-kInf);
  a.gemm(m, n, k, x.data(), y.data(), dst.data());
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      FieldValue s = a.mul(x[static_cast<size_t>(i * k)], y[static_cast<size_t>(j)]);
      for (int64_t l = 1; l < k; l++) s = a.add(s, a.mul(x[static_cast<size_t>(i * k + l)], y[static_cast<size_t>(l * n + j)]));
      const FieldValue& d = dst[static_cast<size_t>(i * n + j)];
      CHECK(kind(d) == kind(s));
      if (kind(s) == kFinite) { CHECK(a.same(d, s)); CHECK((d.q & (kKeyed | kNoQ)) == (s.q & (kKeyed | kNoQ))); }
    }
}
