// Computed operands as kernels of their own: the same function, only where a call computes them from its inputs alone.
#include <algorithm>

#include <catch2/catch.hpp>

#include "mirage/ir/eval.h"
#include "mirage/plan/plan.h"
#include "plan/passes/hoist.h"

using namespace mirage;

namespace {

const DType kHalf = DType::kF16;

/// silu(x g w) in one kernel, divided by the norm of x if `norm`; x: [m, k].
Graph linear(int64_t m, int64_t k, int64_t n, bool gain, bool norm) {
  Builder b(Level::kBlock, {{n / 32, m / 16, 1}, k / 16});
  const ValueId x = b.add_input(0, {kHalf, {16, 16}}, {{-1, 0, -1}, 1}), w = b.add_input(1, {kHalf, {16, 32}}, {{1, -1, -1}, 0});
  const ValueId taken = gain ? b.map(MapFn::kMul, {x, b.add_input(2, {kHalf, {16}}, {{-1, -1, -1}, 0})}) : x;
  ValueId y = b.add(Accum{}, {b.add(MatMul{}, {taken, w})});
  if (norm)
    y = b.map(MapFn::kDiv, {y, b.map(MapFn::kSqrt, {b.add(Accum{}, {b.add(Reduce{ReduceFn::kSum, 1, 0}, {b.map(MapFn::kSquare, {x})})})})});
  b.add_output(0, b.map(MapFn::kSilu, {y}), kHalf, {{1, 0, -1}, -1});
  Builder top(Level::kKernel);
  const ValueId xs = top.add_input(0, {kHalf, {m, k}}), ws = top.add_input(1, {kHalf, {k, n}});
  std::vector<ValueId> operands{xs, ws};
  if (gain) operands.push_back(top.add_input(2, {kHalf, {k}}));
  top.add_output(0, top.add(Call{std::make_shared<const Graph>(std::move(b).finish())}, operands), kHalf);
  return std::move(top).finish();
}

int calls(const Graph& g) {
  int n = 0;
  for (const Node& x : g.nodes()) n += std::holds_alternative<Call>(x.op);
  return n;
}

}  // namespace

TEST_CASE("an operand that every block computes becomes a value of the kernel level") {
  for (bool norm : {false, true}) {
    const Graph g = linear(64, 64, 64, true, norm);
    const auto h = hoist_operands(g);
    REQUIRE(h);
    CHECK(!check_laws(*h));
    CHECK(calls(*h) == 1);
    CHECK(h->num_nodes() == g.num_nodes() + 1);   // x times g
    for (NodeId n = 0; n < h->num_nodes(); n++)
      if (const auto* call = h->form<Call>(n)) {
        CHECK(h->node(n).operands.size() == (norm ? 3u : 2u));   // w, what was computed, and x for the norm
        for (ValueId v = 0; v < call->body->num_values(); v++)
          if (const auto* m = call->body->def_form<Map>(v)) CHECK(m->fn != MapFn::kMul);
      }
  }
}

TEST_CASE("the same numbers come out") {
  const Graph g = linear(32, 48, 64, true, true), h = *hoist_operands(g);
  DoubleAlgebra reals;
  std::vector<Tensor<double>> inputs;
  uint64_t seed = 1;
  for (const Dims& d : {Dims{32, 48}, Dims{48, 64}, Dims{48}}) {
    Tensor<double> t(d, 0.0);
    for (double& v : t.data) v = static_cast<double>((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 40) / 0x1p24 + 0.1;
    inputs.push_back(std::move(t));
  }
  const auto x = evaluate(g, std::span<const Tensor<double>>(inputs), reals),
             y = evaluate(h, std::span<const Tensor<double>>(inputs), reals);
  REQUIRE(x.size() == 1);
  REQUIRE(x[0].data.size() == y[0].data.size());
  for (size_t i = 0; i < x[0].data.size(); i++) CHECK(x[0].data[i] == Approx(y[0].data[i]));
}

TEST_CASE("operands of rows that are reduced before the loop become values of the kernel level, too, with their reductions") {
  // (x - mean(x)) w: x whole beside its tiles.
  for (bool whole : {true, false}) {
    Builder b(Level::kBlock, {{2, 2, 1}, 3});
    const ValueId x = b.add_input(0, {kHalf, {16, 16}}, {{-1, 0, -1}, 1}), w = b.add_input(1, {kHalf, {16, 32}}, {{1, -1, -1}, 0});
    // or halves of it, one for each block: another program
    const ValueId all = whole ? b.add_input(0, {kHalf, {16, 48}}, {{-1, 0, -1}, -1}) : b.add_input(0, {kHalf, {16, 24}}, {{1, 0, -1}, -1});
    const ValueId mean = b.map(MapFn::kMul, {b.add(Reduce{ReduceFn::kSum, 1, 0}, {all}), b.constant(1.0 / 48)});
    b.add_output(0, b.add(Accum{}, {b.add(MatMul{}, {b.map(MapFn::kSub, {x, mean}), w})}), kHalf, {{1, 0, -1}, -1});
    Builder top(Level::kKernel);
    const ValueId xs = top.add_input(0, {kHalf, {32, 48}}), ws = top.add_input(1, {kHalf, {48, 64}});
    top.add_output(0, top.add(Call{std::make_shared<const Graph>(std::move(b).finish())}, {xs, ws}), kHalf);
    const Graph g = std::move(top).finish();
    const auto h = hoist_operands(g);
    CHECK(h.has_value() == whole);
    if (!h) continue;
    CHECK(!check_laws(*h));
    DoubleAlgebra reals;
    std::vector<Tensor<double>> inputs;
    uint64_t seed = 5;
    for (const Dims& d : {Dims{32, 48}, Dims{48, 64}}) {
      Tensor<double> t(d, 0.0);
      for (double& v : t.data) v = static_cast<double>((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 40) / 0x1p24;
      inputs.push_back(std::move(t));
    }
    const auto before = evaluate(g, std::span<const Tensor<double>>(inputs), reals),
               after = evaluate(*h, std::span<const Tensor<double>>(inputs), reals);
    for (size_t i = 0; i < before[0].data.size(); i++) CHECK(before[0].data[i] == Approx(after[0].data[i]).margin(1e-9));
  }
}

TEST_CASE("what the loop adds up beside an operand leaves with it where that is asked for") {
  const Graph g = linear(32, 48, 64, true, true), h = *hoist_operands(g, true);
  CHECK(!check_laws(h));
  CHECK(std::count_if(h.nodes().begin(), h.nodes().end(), [](const Node& n) { return std::holds_alternative<Reduce>(n.op); }) == 1);
  for (NodeId n = 0; n < h.num_nodes(); n++)
    if (h.form<Call>(n)) CHECK(h.node(n).operands.size() == 3);   // w, the operand, the sums of squares; x itself no longer
  DoubleAlgebra reals;
  std::vector<Tensor<double>> inputs;
  uint64_t seed = 3;
  for (const Dims& d : {Dims{32, 48}, Dims{48, 64}, Dims{48}}) {
    Tensor<double> t(d, 0.0);
    for (double& v : t.data) v = static_cast<double>((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 40) / 0x1p24 + 0.1;
    inputs.push_back(std::move(t));
  }
  const auto x = evaluate(g, std::span<const Tensor<double>>(inputs), reals),
             y = evaluate(h, std::span<const Tensor<double>>(inputs), reals);
  for (size_t i = 0; i < x[0].data.size(); i++) CHECK(x[0].data[i] == Approx(y[0].data[i]));
  CHECK(!hoist_operands(linear(32, 48, 64, true, false), true));   // nothing is added up
  CHECK(!hoist_operands(linear(32, 48, 64, false, true), true));   // the operand is stored: the ring serves both
}

TEST_CASE("stored operands stay where they are") { CHECK(!hoist_operands(linear(64, 64, 64, false, true))); }
