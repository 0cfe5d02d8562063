// The evaluator against hand-made loops: block graphs with loops, ragged tails and split dimensions mean what their kernel-level form
// means.
#include "mirage/ir/eval.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "mirage/support/hash.h"

using namespace mirage;

namespace {

Tensor<double> random_tensor(Dims d, uint64_t seed) {
  Rng rng(seed);
  Tensor<double> t(d, 0);
  for (double& x : t.data) x = rng.uniform() * 2 - 1;
  return t;
}

double difference(const Tensor<double>& a, const Tensor<double>& b) {
  REQUIRE(a.dims == b.dims);
  double d = 0;
  for (size_t i = 0; i < a.data.size(); i++) d = std::max(d, std::fabs(a.data[i] - b.data[i]));
  return d;
}

/// A number that counts how many of it there are.
struct Counted {
  static inline int64_t alive = 0, most = 0;
  double x = 0;
  Counted(double v = 0) : x(v) { count(); }
  Counted(const Counted& o) : x(o.x) { count(); }
  Counted& operator=(const Counted&) = default;
  ~Counted() { alive--; }
  operator double() const { return x; }
  static void count() { most = std::max(most, ++alive); }
};
struct CountedAlgebra : DoubleAlgebra { using Value = Counted; };

/// x (m,k) times w (k,n), divided by the root of the row's mean square: one fused block graph with tiles that need not divide.
Graph fused_rms_linear(int64_t m, int64_t k, int64_t n, int64_t tile_n, int64_t tile_k) {
  Builder body(Level::kBlock, {{(n + tile_n - 1) / tile_n, 1, 1}, (k + tile_k - 1) / tile_k});
  const ValueId a = body.add_input(0, {DType::kF16, {m, tile_k}}, {{-1, -1, -1}, 1});
  const ValueId b = body.add_input(1, {DType::kF16, {tile_k, tile_n}}, {{1, -1, -1}, 0});
  const ValueId c = body.add(Accum{ReduceFn::kSum}, {body.add(MatMul{}, {a, b})});
  const ValueId s = body.add(Accum{ReduceFn::kSum}, {body.add(Reduce{ReduceFn::kSum, 1, 0}, {body.map(MapFn::kSquare, {a})})});
  const ValueId mean = body.map(MapFn::kDiv, {s, body.add(Const{static_cast<double>(k), {{0, 1}}}, {})});
  body.add_output(0, body.map(MapFn::kDiv, {c, body.map(MapFn::kSqrt, {mean})}), DType::kF16, {{1, -1, -1}, -1});
  Builder g(Level::kKernel);
  const ValueId x = g.add_input(0, {DType::kF16, {m, k}}), w = g.add_input(1, {DType::kF16, {k, n}});
  g.add_output(0, g.add(Call{std::make_shared<Graph>(std::move(body).finish())}, {x, w}), DType::kF16);
  return std::move(g).finish();
}

}  // namespace

TEST_CASE("a fused block graph equals the plain loops, exact and ragged", "[eval]") {
  for (auto [tile_n, tile_k] : {std::pair<int64_t, int64_t>{5, 4}, {3, 5}, {15, 12}, {4, 7}}) {
    const int64_t m = 3, k = 12, n = 15;
    Graph g = fused_rms_linear(m, k, n, tile_n, tile_k);
    REQUIRE_FALSE(check_laws(g));
    REQUIRE(g.dims(g.node(2).first_value) == Dims{m, n});
    auto x = random_tensor({m, k}, 1), w = random_tensor({k, n}, 2);
    DoubleAlgebra a;
    std::vector<Tensor<double>> in{x, w};
    auto out = evaluate(g, std::span<const Tensor<double>>(in), a);
    Tensor<double> expected({m, n}, 0);
    for (int64_t i = 0; i < m; i++) {
      double s = 0;
      for (int64_t l = 0; l < k; l++) s += x.data[i * k + l] * x.data[i * k + l];
      for (int64_t j = 0; j < n; j++) {
        double c = 0;
        for (int64_t l = 0; l < k; l++) c += x.data[i * k + l] * w.data[l * n + j];
        expected.data[i * n + j] = c / std::sqrt(s / static_cast<double>(k));
      }
    }
    REQUIRE(difference(out[0], expected) < 1e-12);
  }
}

TEST_CASE("laws refuse what has no meaning", "[laws]") {
  Builder body(Level::kBlock, {{2, 1, 1}, 2});
  const ValueId a = body.add_input(0, {DType::kF16, {4, 8}}, {{0, -1, -1}, 1});
  body.add_output(0, body.map(MapFn::kExp, {a}), DType::kF16, {{0, -1, -1}, -1});
  auto broken = check_laws(body.graph());
  REQUIRE(broken);
  REQUIRE(broken->find("law 4") == 0);

  Builder whole(Level::kBlock, {{2, 1, 1}, 1});
  const ValueId b = whole.add_input(0, {DType::kF16, {4, 8}}, {{0, -1, -1}, -1});
  whole.add_output(0, whole.map(MapFn::kExp, {b}), DType::kF16, {{-1, -1, -1}, -1});
  const Type operand{DType::kF16, {8, 8}};
  REQUIRE(check_laws(whole.graph(), std::span(&operand, 1))->find("law 5") == 0);
  const Type too_small{DType::kF16, {4, 8}};
  REQUIRE(check_laws(whole.graph(), std::span(&too_small, 1))->find("empty") != std::string::npos);
}

TEST_CASE("data movement and broadcasting", "[eval]") {
  Builder g(Level::kKernel);
  const ValueId x = g.add_input(0, {DType::kF32, {2, 3}});
  Transpose t;
  t.perm = {1, 0};
  const ValueId y = g.add(t, {x});                                       // (3,2)
  const ValueId z = g.add(Slice{0, 0, 3, 2}, {y});                       // rows 0, 2
  const ValueId c = g.add(Concat{1}, {z, g.add(Repeat{1, 2}, {z})});     // (2,6)
  g.add_output(0, g.map(MapFn::kAdd, {c, g.add(Iota{0, {2, 1}}, {})}), DType::kF32);
  Graph graph = std::move(g).finish();
  Tensor<double> in({2, 3}, 0);
  in.data = {1, 2, 3, 4, 5, 6};
  DoubleAlgebra a;
  auto out = evaluate(graph, std::span<const Tensor<double>>(&in, 1), a);
  REQUIRE(out[0].data == std::vector<double>{1, 4, 1, 4, 1, 4, 4, 7, 4, 7, 4, 7});
}

TEST_CASE("rounding to 16 bits is that of scaled whole numbers, at every magnitude") {
  Rng rng(11);
  for (DType t : {DType::kF16, DType::kBF16}) {
    const TypeInfo& info = type_info(t);
    for (int i = 0; i < 20000; i++) {
      const int e = static_cast<int>(rng.below(360)) - 180;
      // ties, too
      const double x = std::ldexp(2 * rng.uniform() - 1, i % 4 ? e % 40 : e),
                   half = i % 3 ? x : std::ldexp(std::nearbyint(x * 0x1p12), -12);
      for (double v : {x, half}) {
        int of;
        std::frexp(v, &of);
        const int ulp = std::max(of - info.digits, info.least_exponent - info.digits);
        const double r = v == 0 ? v : std::ldexp(std::nearbyint(std::ldexp(v, -ulp)), ulp),
                     want = std::fabs(r) > info.largest ? std::copysign(INFINITY, v) : r;
        REQUIRE(round_to(v, t) == want);
        REQUIRE(std::signbit(round_to(v, t)) == std::signbit(want));
      }
    }
  }
}

TEST_CASE("rounding to storage types", "[round]") {
  REQUIRE(round_to(1.0 + 0x1p-11, DType::kF16) == 1.0);                  // tie to even
  REQUIRE(round_to(1.0 + 3 * 0x1p-11, DType::kF16) == 1.0 + 0x1p-9);
  REQUIRE(round_to(65519.0, DType::kF16) == 65504.0);
  REQUIRE(std::isinf(round_to(65520.0, DType::kF16)));
  REQUIRE(round_to(0x1p-24, DType::kF16) == 0x1p-24);                    // smallest denormal
  REQUIRE(round_to(0x1p-26, DType::kF16) == 0.0);
  REQUIRE(round_to(1.0 + 0x1p-8, DType::kBF16) == 1.0);
  REQUIRE(round_to(1.0 + 0x1p-7, DType::kBF16) == 1.0 + 0x1p-7);
}

TEST_CASE("the values of a long chain are not alive together", "[eval]") {
  Builder g(Level::kKernel);
  ValueId h = g.add_input(0, {DType::kF32, {8, 8}});
  for (int i = 0; i < 200; i++)
    h = g.map(MapFn::kAdd, {h, i % 2 ? g.add_input(1 + i / 2, {DType::kF32, {8, 8}}) : g.map(MapFn::kTanh, {h})});
  g.add_output(0, h, DType::kF32);
  g.add_output(1, h, DType::kF32);
  const Graph graph = std::move(g).finish();
  std::vector<Tensor<Counted>> params(static_cast<size_t>(graph.num_params()), Tensor<Counted>({8, 8}, 0.5));
  CountedAlgebra a;
  const int64_t before = Counted::most = Counted::alive;
  const auto out = evaluate(graph, std::span<const Tensor<Counted>>(params), a);
  CHECK(Counted::most - before < 6 * 64);   // 300 values of 64 elements, 101 inputs
  REQUIRE(out.size() == 2);
  CHECK(out[0].data == out[1].data);
  CHECK(out[0].data[0].x > 50);
}
