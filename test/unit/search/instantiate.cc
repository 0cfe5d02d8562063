// Numbers for structures: chunks, ragged tails, what does not fit.
#include "helpers.h"
#include "search/problem/witness.h"

using namespace mirage;
using namespace helpers;

namespace {

/// Row sums of x (M, K): rows on x, K on the grid's y (if split) and in the loop.
Structure row_sums() {
  Builder b(Level::kBlock, {{2, 1, 1}, 2});
  const ValueId x = b.add_input(0, {DType::kF32, {4, 4}}, {{0, -1, -1}, 1});
  const ValueId sum = b.add(Accum{ReduceFn::kSum}, {b.add(Reduce{ReduceFn::kSum, 1, 0}, {x})});
  b.add_output(0, sum, DType::kF32, {{0, -1, -1}, -1});
  Builder k(Level::kKernel);
  const ValueId in = k.add_input(0, {DType::kF32, {8, 8}});
  k.add_output(0, k.add(Call{std::make_shared<const Graph>(std::move(b).finish())}, {in}), DType::kF32);
  return {std::move(k).finish(), 0, 1, true, {}};
}

}  // namespace

TEST_CASE("split extents are those of the operands") {
  const std::vector<CallNumbers> e = split_extents(row_sums(), {{DType::kF32, {100, 70}}});
  REQUIRE(e.size() == 1);
  CHECK(e[0].grid_tile == std::array<int64_t, 3>{100, 0, 0});
  CHECK(e[0].loop_tile == 70);
}

TEST_CASE("tiles give grid and loop extents, rounded up") {
  const std::vector<Type> params = {{DType::kF32, {100, 70}}};
  CallNumbers n;
  n.grid_tile[0] = 32;
  n.loop_tile = 16;
  const auto g = instantiate(row_sums(), params, {n});
  REQUIRE(g);
  CHECK(body(*g).launch().grid == std::array<int64_t, 3>{4, 1, 1});
  CHECK(body(*g).launch().loop == 5);
  CHECK(body(*g).dims(0) == Dims{32, 16});
  CHECK(g->dims(g->node(g->outputs()[0]).operands[0]) == Dims{100, 1});
  Builder r(Level::kKernel);
  r.add_output(0, r.add(Reduce{ReduceFn::kSum, 1, 0}, {r.add_input(0, params[0])}), DType::kF32);
  CHECK(difference(r.graph(), *g, params, 1) < 1e-12);
}

TEST_CASE("tiles larger than the tensor are one tile; 0 is the whole extent") {
  CallNumbers n;
  n.grid_tile[0] = 1000;
  const auto g = instantiate(row_sums(), {{DType::kF32, {100, 70}}}, {n});
  REQUIRE(g);
  CHECK(body(*g).launch().blocks() == 1);
  CHECK(body(*g).launch().loop == 1);
  CHECK(body(*g).dims(0) == Dims{100, 70});
}

TEST_CASE("what does not fit is refused") {
  CHECK_FALSE(instantiate(row_sums(), {{DType::kF32, {100, 70}}}, {}));   // a call without numbers
  CHECK_FALSE(instantiate(row_sums(), {}, {CallNumbers{}}));              // no such parameter
}

TEST_CASE("a dimension that a grid axis and the loop both split is walked chunk by chunk") {
  Builder b(Level::kBlock, {{2, 1, 1}, 2});
  const ValueId x = b.add_input(0, {DType::kF32, {2}}, {{0, -1, -1}, 0});
  b.add_output(0, b.add(Accum{ReduceFn::kSum}, {x}), DType::kF32, {{0, -1, -1}, -1});
  Builder k(Level::kKernel);
  const ValueId in = k.add_input(0, {DType::kF32, {8}});
  k.add_output(0, k.add(Call{std::make_shared<const Graph>(std::move(b).finish())}, {in}), DType::kF32);
  const Structure s{std::move(k).finish(), 0, 1, true, {}};
  CallNumbers n;
  n.grid_tile[0] = 32;
  n.loop_tile = 8;
  const auto g = instantiate(s, {{DType::kF32, {96}}}, {n});
  REQUIRE(g);
  CHECK(body(*g).launch().grid[0] == 3);
  CHECK(body(*g).launch().loop == 4);
  CHECK(body(*g).dims(0) == Dims{8});
  n.loop_tile = 12;   // a chunk of 32 is no whole number of these
  CHECK_FALSE(instantiate(s, {{DType::kF32, {96}}}, {n}));
}
