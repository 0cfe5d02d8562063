// separate_sums: the same function, and sums that registers can hold.
#include <catch2/catch.hpp>

#include "mirage/ir/eval.h"
#include "mirage/plan/block.h"
#include "mirage/support/hash.h"

using namespace mirage;

namespace {

int accumulators(const Graph& g) {
  int n = 0;
  for (const Node& node : g.nodes()) n += std::holds_alternative<Accum>(node.op);
  return n;
}

/// Every accumulator sums a contraction or a reduction that nothing else reads.
bool in_registers(const Graph& g) {
  const auto users = g.users();
  for (const Node& node : g.nodes())
    if (std::holds_alternative<Accum>(node.op) && ((!g.def_form<MatMul>(node.operands[0]) && !g.def_form<Reduce>(node.operands[0])) ||
                                                   users[static_cast<size_t>(node.operands[0])].size() != 1))
      return false;
  return true;
}

void check_same(const Graph& a, const Graph& b, const std::vector<Dims>& operands) {
  Rng rng(3);
  std::vector<Tensor<double>> values;
  std::vector<const Tensor<double>*> args;
  for (const Dims& d : operands) {
    values.emplace_back(d, 0.0);
    for (double& x : values.back().data) x = static_cast<double>(rng.below(9)) - 4;   // exact
  }
  for (const auto& v : values) args.push_back(&v);
  DoubleAlgebra reals;
  CHECK(evaluate_call(a, args, reals)[0].data == evaluate_call(b, args, reals)[0].data);
}

}  // namespace

TEST_CASE("a sum of contractions over the loop becomes a sum of sums", "[sums]") {
  // accum(x w1 - 3 (x w2) + (x a) b): a ragged loop, a low rank behind it
  Builder b(Level::kBlock, {{2, 1, 1}, 3});
  const ValueId x = b.add_input(0, {DType::kF16, {4, 8}}, {{-1, -1, -1}, 1}), w1 = b.add_input(1, {DType::kF16, {8, 6}}, {{1, -1, -1}, 0}),
                w2 = b.add_input(2, {DType::kF16, {8, 6}}, {{1, -1, -1}, 0});
  const ValueId low = b.add_input(3, {DType::kF16, {8, 5}}, {{-1, -1, -1}, 0}),
                up = b.add_input(4, {DType::kF16, {5, 6}}, {{1, -1, -1}, -1});
  const ValueId scaled = b.map(MapFn::kMul, {b.constant(3), b.add(MatMul{}, {x, w2})}),
                product = b.add(MatMul{}, {b.add(MatMul{}, {x, low}), up});
  const ValueId sum = b.map(MapFn::kAdd, {b.map(MapFn::kSub, {b.add(MatMul{}, {x, w1}), scaled}), product});
  b.add_output(0, b.add(Accum{}, {sum}), DType::kReal, {{1, -1, -1}, -1});
  const Graph before = std::move(b).finish(), after = separate_sums(before);
  CHECK(accumulators(after) == 3);
  CHECK(in_registers(after));
  CHECK_FALSE(check_laws(after));
  check_same(before, after, {{4, 20}, {20, 12}, {20, 12}, {20, 5}, {5, 12}});
}

TEST_CASE("sums that are read twice, not linear, or maxima stay", "[sums]") {
  for (int kind = 0; kind < 4; kind++) {
    Builder b(Level::kBlock, {{1, 1, 1}, 4});
    const ValueId x = b.add_input(0, {DType::kF32, {4, 8}}, {{-1, -1, -1}, 1}),
                  w = b.add_input(1, {DType::kF32, {8, 6}}, {{-1, -1, -1}, 0});
    const ValueId m = b.add(MatMul{}, {x, w});
    ValueId sum = kind == 0   ? b.map(MapFn::kAdd, {m, m})
                  : kind == 1 ? b.map(MapFn::kExp, {m})
                  : kind == 2 ? b.map(MapFn::kMul, {m, b.add(MatMul{}, {x, w})})
                              : b.map(MapFn::kNeg, {m});
    b.add_output(0, b.add(Accum{kind == 3 ? ReduceFn::kMax : ReduceFn::kSum}, {sum}), DType::kReal, {});
    const Graph before = std::move(b).finish(), after = separate_sums(before);
    INFO(kind);
    CHECK(after == before);
  }
}

TEST_CASE("what scales rows before a product behind the loop scales them after it", "[sums]") {
  // (x w) / r + 3 (((x a) / r) b) - 0.5 ((x w2) / r), r per row: one quotient of one combination of sums
  for (const MapFn fn : {MapFn::kDiv, MapFn::kMul}) {
    Builder b(Level::kBlock, {{2, 1, 1}, 2});
    const ValueId x = b.add_input(0, {DType::kF16, {4, 8}}, {{-1, -1, -1}, 1}),
                  w1 = b.add_input(1, {DType::kF16, {8, 6}}, {{1, -1, -1}, 0}),
                  w2 = b.add_input(2, {DType::kF16, {8, 6}}, {{1, -1, -1}, 0});
    const ValueId low = b.add_input(3, {DType::kF16, {8, 4}}, {{-1, -1, -1}, 0}),
                  up = b.add_input(4, {DType::kF16, {4, 6}}, {{1, -1, -1}, -1});
    const auto sum = [&](ValueId v) { return b.add(Accum{}, {v}); };
    const ValueId r = b.map(MapFn::kAdd, {b.constant(1), sum(b.add(Reduce{ReduceFn::kSum, 1, 0}, {b.map(MapFn::kSquare, {x})}))});
    const ValueId direct = b.map(fn, {sum(b.add(MatMul{}, {x, w1})), r}),
                  rank = b.add(MatMul{}, {b.map(fn, {sum(b.add(MatMul{}, {x, low})), r}), up}),
                  other = b.map(fn, {sum(b.add(MatMul{}, {x, w2})), r});
    b.add_output(0,
                 b.map(MapFn::kSub, {b.map(MapFn::kAdd, {direct, b.map(MapFn::kMul, {b.constant(3), rank})}),
                                     b.map(MapFn::kMul, {b.constant(0.5), other})}),
                 DType::kReal, {{1, -1, -1}, -1});
    const Graph before = std::move(b).finish(), after = separate_sums(before);
    CHECK_FALSE(check_laws(after));
    int scaled = 0;
    for (const Node& node : after.nodes()) {
      if (std::holds_alternative<MatMul>(node.op)) CHECK_FALSE(after.def_form<Map>(node.operands[0]));
      scaled += !node.operands.empty() && std::holds_alternative<Map>(node.op) && std::get<Map>(node.op).fn == fn &&
                after.dims(node.first_value) == Dims{4, 6} && !after.def_form<Const>(node.operands[0]);
    }
    CHECK(scaled == 1);
    Rng rng(5);
    std::vector<Tensor<double>> values;
    std::vector<const Tensor<double>*> args;
    for (const Dims& d : std::vector<Dims>{{4, 16}, {16, 12}, {16, 12}, {16, 4}, {4, 12}}) {
      values.emplace_back(d, 0.0);
      for (double& e : values.back().data) e = static_cast<double>(rng.below(9)) - 4;
    }
    for (const auto& v : values) args.push_back(&v);
    DoubleAlgebra reals;
    const auto want = evaluate_call(before, args, reals)[0].data, got = evaluate_call(after, args, reals)[0].data;
    REQUIRE(want.size() == got.size());
    for (size_t i = 0; i < want.size(); i++) CHECK(got[i] == Approx(want[i]));
  }
  // No product behind the loop: nothing moves. A factor per column stays where it is.
  Builder b(Level::kBlock, {{1, 1, 1}, 2});
  const ValueId x = b.add_input(0, {DType::kF16, {4, 8}}, {{-1, -1, -1}, 1}), w = b.add_input(1, {DType::kF16, {8, 6}}, {{-1, -1, -1}, 0}),
                up = b.add_input(2, {DType::kF16, {6, 6}}, {}), gain = b.add_input(3, {DType::kF16, {1, 6}}, {});
  b.add_output(0, b.add(MatMul{}, {b.map(MapFn::kMul, {b.add(Accum{}, {b.add(MatMul{}, {x, w})}), gain}), up}), DType::kReal, {});
  const Graph before = std::move(b).finish();
  CHECK(separate_sums(before) == before);
}
