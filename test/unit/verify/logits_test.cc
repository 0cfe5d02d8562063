// Softmaxes whose logits are exactly 10^4 and -10^4, in float16 and bfloat16: the stable form of a loop over keys computes them as well as
// the program does, the unshifted one does not.
#include <catch2/catch.hpp>
#include <cmath>

#include "unit/verify/graphs.h"

using namespace mirage;
using namespace mirage::test;

namespace {

constexpr int64_t kRows = 3, kKeys = 8, kWidth = 5, kTile = 4;

/// softmax(where(sign, 10^4, -10^4) + x) v
Graph program(DType t) {
  Net g;
  auto sign = g.in(0, {kRows, kKeys}, DType::kBool), x = g.in(1, {kRows, kKeys}, t), v = g.in(2, {kKeys, kWidth}, t);
  auto s = g.add(g.where(sign, g.c(1e4), g.c(-1e4)), x), e = g.exp(g.sub(s, g.rmax(s, 1)));
  g.out(g.mm(g.div(e, g.sum(e, 1)), v), t);
  return g.done();
}

Graph kernel(DType t, bool stable) {
  Net b(Level::kBlock, {{1, 1, 1}, kKeys / kTile});
  auto sign = b.in(0, {kRows, kTile}, DType::kBool, loop_over(1)), x = b.in(1, {kRows, kTile}, t, loop_over(1)),
       v = b.in(2, {kTile, kWidth}, t, loop_over(0));
  auto s = b.add(b.where(sign, b.c(1e4), b.c(-1e4)), x);
  if (stable) {
    auto m = b.b.add(Running{}, {b.rmax(s, 1)}), e = b.exp(b.sub(s, m));
    b.out(b.div(b.b.add(Accum{ReduceFn::kSum, 1}, {b.mm(e, v), m}), b.b.add(Accum{ReduceFn::kSum, 1}, {b.sum(e, 1), m})), t);
  } else {
    auto e = b.exp(s);
    b.out(b.div(b.accum(b.mm(e, v)), b.accum(b.sum(e, 1))), t);
  }
  const Graph body = b.done();
  Net k;
  std::vector<ValueId> in{k.in(0, {kRows, kKeys}, DType::kBool), k.in(1, {kRows, kKeys}, t), k.in(2, {kKeys, kWidth}, t)};
  k.out(k.call(body, in), t);
  return k.done();
}

}  // namespace

TEST_CASE("logits of exactly 10^4 and -10^4") {
  for (DType t : {DType::kF16, DType::kBF16}) {
    INFO(dtype_name(t));
    const Graph reference = program(t), stable = kernel(t, true), plain = kernel(t, false);
    CHECK(equal(reference, stable, 1).kind == kEqual);
    Program p;
    p.inputs.resize(3);
    for (NodeId n : reference.inputs())
      p.inputs[static_cast<size_t>(reference.form<Input>(n)->param)].type = reference.type(reference.node(n).first_value);
    p.inputs[1].range = {{0, 0}};   // logits are +-10^4 and nothing else
    const NumericReport good = check_numerics(reference, stable, p, 5), bad = check_numerics(reference, plain, p, 5);
    INFO(good.reason);
    CHECK(good.ok);
    CHECK(good.cases.size() >= 7);
    for (const NumericCase& c : good.cases) {
      INFO(c.distribution << ": " << c.error << ", node by node " << c.baseline_error);
      CHECK(c.error <= (t == DType::kF16 ? 0x1p-11 : 0x1p-8));   // one rounding of the result
    }
    CHECK_FALSE(bad.ok);   // e^10000 is infinite in float32
    // In float16 or bfloat16, computed directly from the kernel's definition in doubles: equal weights on the keys with 10^4.
    Tensor<double> sign({kRows, kKeys}, 0.0), x({kRows, kKeys}, 0.0), v({kKeys, kWidth}, 0.0);
    for (size_t i = 0; i < sign.data.size(); i++) sign.data[i] = i % 3 == 0;
    for (size_t i = 0; i < v.data.size(); i++) v.data[i] = round_to(std::sin(static_cast<double>(i)), t);
    DoubleAlgebra d;
    const std::vector<Tensor<double>> in{sign, x, v};
    const auto want = evaluate<DoubleAlgebra>(reference, in, d)[0], got = evaluate<DoubleAlgebra>(stable, in, d)[0];
    for (size_t i = 0; i < want.data.size(); i++) CHECK(std::fabs(want.data[i] - got.data[i]) < 1e-14);
  }
}
