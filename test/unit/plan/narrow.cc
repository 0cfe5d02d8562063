// Computed operands in float16, scaled by line: the same function for lines of any magnitude, only where contractions beside float16 alone
// read them.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "mirage/ir/eval.h"
#include "mirage/plan/plan.h"
#include "plan/passes/hoist.h"
#include "plan/passes/narrow.h"

using namespace mirage;

namespace {

const ContractRule kHalfRule{DType::kF16, false};

/// (x g) w, x: [m, k], as a value of the kernel level and a call; `left`: as (w g x), so that the computed operand is the second one. Both:
/// the result also adds the computed operand's own sum.
Graph product(int64_t m, int64_t k, int64_t n, DType type, bool left = false) {
  Builder b(Level::kBlock, {{n / 16, m / 16, 1}, k / 16});
  const Partition across{{-1, 0, -1}, 1}, down{{1, -1, -1}, 0};
  if (!left) {
    const ValueId x = b.add_input(0, {DType::kReal, {16, 16}}, across), w = b.add_input(1, {type, {16, 16}}, down);
    b.add_output(0, b.add(Accum{}, {b.add(MatMul{}, {x, w})}), type, {{1, 0, -1}, -1});
  } else {
    const ValueId x = b.add_input(0, {DType::kReal, {16, 16}}, {{1, -1, -1}, 0}), w = b.add_input(1, {type, {16, 16}}, {{-1, 0, -1}, 1});
    b.add_output(0, b.add(Accum{}, {b.add(MatMul{}, {w, x})}), type, {{1, 0, -1}, -1});
  }
  Builder top(Level::kKernel);
  const ValueId x = top.add_input(0, {type, left ? Dims{k, n} : Dims{m, k}}), w = top.add_input(1, {type, left ? Dims{m, k} : Dims{k, n}}),
                g = top.add_input(2, {DType::kF32, {1}});
  const ValueId scaled = top.map(MapFn::kMul, {x, g});
  top.add_output(0, top.add(Call{std::make_shared<const Graph>(std::move(b).finish())}, {scaled, w}), DType::kF32);
  return std::move(top).finish();
}

Tensor<double> drawn(const Dims& d, uint64_t seed) {
  Tensor<double> t(d, 0.0);
  for (double& v : t.data) v = static_cast<double>((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 40) / 0x1p23 - 1;
  return t;
}

int casts(const Graph& g) {
  int n = 0;
  for (const Node& x : g.nodes()) if (const auto* m = std::get_if<Map>(&x.op)) n += m->fn == MapFn::kCastF16;
  return n;
}

}  // namespace

TEST_CASE("lines of any magnitude keep float16's precision and float32's range") {
  for (bool left : {false, true}) {
    const Graph g = product(32, 48, 64, DType::kF16, left);
    const auto narrow = narrow_operands(g, kHalfRule);
    REQUIRE(narrow);
    CHECK(!check_laws(*narrow));
    CHECK(casts(*narrow) == 1);
    for (double magnitude : {1.0, 1e-25, 1e30, 7e4, 1e37, 3.4e38}) {
      DoubleAlgebra reals;
      std::vector<Tensor<double>> inputs{drawn(left ? Dims{48, 64} : Dims{32, 48}, 1), drawn(left ? Dims{32, 48} : Dims{48, 64}, 2),
                                         Tensor<double>(Dims{1}, magnitude)};
      const auto x = evaluate(g, std::span<const Tensor<double>>(inputs), reals),
                 y = evaluate(*narrow, std::span<const Tensor<double>>(inputs), reals);
      REQUIRE(x[0].data.size() == y[0].data.size());
      double error = 0, norm = 0;
      for (size_t i = 0; i < x[0].data.size(); i++) {
        error += std::pow((x[0].data[i] - y[0].data[i]) / magnitude, 2);
        norm += std::pow(x[0].data[i] / magnitude, 2);
      }
      CHECK(std::sqrt(error / norm) < 0x1p-11);
      CHECK(error > 0);   // it was rounded
    }
  }
}

TEST_CASE("lines of zeros are zero, infinities and what is no number stay in their line") {
  const Graph g = product(32, 16, 16, DType::kF16), narrow = *narrow_operands(g, kHalfRule);
  DoubleAlgebra reals;
  std::vector<Tensor<double>> inputs{drawn({32, 16}, 3), Tensor<double>(Dims{16, 16}, 1.0), Tensor<double>(Dims{1}, 1.0)};
  for (int64_t k = 0; k < 16; k++) inputs[0].data[static_cast<size_t>(k)] = 0;
  inputs[0].data[16 + 3] = std::numeric_limits<double>::infinity();
  inputs[0].data[32 + 5] = std::numeric_limits<double>::quiet_NaN();
  const auto y = evaluate(narrow, std::span<const Tensor<double>>(inputs), reals);
  for (size_t n = 0; n < 16; n++) {
    CHECK(y[0].data[n] == 0);
    CHECK(y[0].data[16 + n] == std::numeric_limits<double>::infinity());
    CHECK(std::isnan(y[0].data[32 + n]));
    CHECK(std::isfinite(y[0].data[48 + n]));
  }
}

TEST_CASE("bfloat16 has the range, and what others read stays as it is") {
  CHECK(!narrow_operands(product(16, 32, 32, DType::kF16), kHalfRule));   // few lines
  CHECK(!narrow_operands(product(32, 32, 32, DType::kBF16), {DType::kBF16, false}));
  CHECK(!narrow_operands(product(32, 32, 32, DType::kF32), {DType::kReal, true}));
  const Graph g = product(32, 32, 32, DType::kF16);
  Builder b(g);
  for (ValueId v = 0; v < g.num_values(); v++)
    if (g.def_form<Map>(v)) b.add_output(1, v, DType::kF32);
  CHECK(!narrow_operands(std::move(b).finish(), kHalfRule));
}
