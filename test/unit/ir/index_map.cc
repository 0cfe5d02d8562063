// Index maps say where elements go: every element of a result is where the map says, for forms that move elements as they are; sums and
// products are told apart dimension by dimension.
#include <catch2/catch.hpp>

#include "mirage/ir/eval.h"
#include "mirage/ir/index_map.h"
#include "mirage/support/hash.h"

using namespace mirage;

namespace {

using Kind = DimLink::Kind;

Dims place(const Dims& d, int64_t linear) {
  Dims out = d;
  for (int i = d.rank() - 1; i >= 0; i--) out[i] = linear % d[i], linear /= d[i];
  return out;
}
int64_t linear(const Dims& d, const Dims& at) {
  int64_t out = 0;
  for (int i = 0; i < d.rank(); i++) out = out * d[i] + at[i];
  return out;
}

/// The result of a form that moves elements, element by element, against its map.
void check_moves(const Op& op, const std::vector<Dims>& shapes) {
  Builder b(Level::kKernel);
  std::vector<ValueId> operands;
  std::vector<Type> types;
  std::vector<Tensor<double>> inputs;
  double next = 1;
  for (size_t k = 0; k < shapes.size(); k++) {
    types.push_back({DType::kF32, shapes[k]});
    operands.push_back(b.add_input(static_cast<int>(k), types.back()));
    inputs.emplace_back(shapes[k], 0.0);
    for (double& x : inputs.back().data) x = next++;
  }
  const ValueId y = b.add(op, operands);
  const Dims result = b.graph().dims(y);
  b.add_output(0, y, DType::kF32);
  const Graph g = std::move(b).finish();
  DoubleAlgebra a;
  const auto out = evaluate(g, std::span<const Tensor<double>>(inputs), a);
  const IndexMap map = index_map(op, types);
  INFO(print(g, "g"));
  for (int64_t e = 0; e < result.elements(); e++) {
    int found = 0;
    for (size_t k = 0; k < shapes.size(); k++)
      if (const auto at = element_of(map, k, shapes[k], result, place(result, e))) {
        found++;
        CHECK(inputs[k].data[static_cast<size_t>(linear(shapes[k], *at))] == out[0].data[static_cast<size_t>(e)]);
      }
    CHECK(found == 1);
  }
}

}  // namespace

TEST_CASE("elements are where the map says") {
  check_moves(Repeat{1, 3}, {{2, 4, 3}});
  check_moves(Repeat{0, 1}, {{2, 4}});
  check_moves(Slice{1, 1, 7, 2}, {{3, 8, 2}});
  check_moves(Concat{1}, {{2, 3}, {2, 1}, {2, 4}});
  check_moves(Transpose{{2, 0, 1}}, {{2, 3, 5}});
  for (const auto& [x, r] : std::vector<std::pair<Dims, Dims>>{{{2, 3, 4}, {6, 4}}, {{12, 5}, {3, 4, 5}}, {{6, 4}, {4, 6}},
                                                               {{1, 6, 1, 5}, {2, 3, 5, 1}}, {{1}, {1, 1, 1}}, {{4, 1, 3}, {4, 3}},
                                                               {{2, 2, 3, 5, 7}, {4, 15, 7}}})
    check_moves(Reshape{r}, {x});
}

TEST_CASE("random reshapes keep every element") {
  Rng rng(5);
  for (int round = 0; round < 60; round++) {
    std::vector<int64_t> primes;
    for (int i = 0; i < 5; i++) primes.push_back(static_cast<int64_t>(1 + rng.below(3)));
    const auto grouped = [&] {
      Dims d;
      for (size_t i = 0; i < primes.size(); i++) {
        if (i == 0 || rng.below(2)) d.push_back(primes[i]);
        else d[d.rank() - 1] *= primes[i];
      }
      return d;
    };
    const Dims x = grouped(), r = grouped();
    check_moves(Reshape{r}, {x});
  }
}

TEST_CASE("a reshape is cut where both shapes have a border") {
  const std::vector<Type> x = {{DType::kF32, {8, 6, 5, 1}}};
  const IndexMap map = index_map(Reshape{{2, 4, 30}}, x);
  REQUIRE(map.runs.size() == 2);
  CHECK((map.runs[0].count == 1 && map.runs[0].result_count == 2));
  CHECK((map.runs[1].first == 1 && map.runs[1].count == 3 && map.runs[1].result_first == 2));
  const IndexMap part = index_map(Reshape{{8, 2, 3, 5}}, x);
  CHECK(part.operands[0][0] == DimLink{Kind::kAligned, 0});
  CHECK(part.operands[0][1].kind == Kind::kRegrouped);
  CHECK(part.operands[0][2].kind == Kind::kRegrouped);   // with the 1 behind it
}

TEST_CASE("what is summed, broadcast or grouped") {
  const std::vector<Type> product = {{DType::kF32, {4, 1, 8, 16}}, {DType::kF32, {4, 3, 16, 5}}};
  const IndexMap m = index_map(MatMul{}, product);
  CHECK(m.operands[0][0] == DimLink{Kind::kAligned, 0});
  CHECK(m.operands[0][1] == DimLink{Kind::kBroadcast, 1});
  CHECK(m.operands[1][1] == DimLink{Kind::kAligned, 1});
  CHECK(m.operands[0][2] == DimLink{Kind::kAligned, 2});
  CHECK(m.operands[0][3].kind == Kind::kSummed);
  CHECK(m.operands[1][2].kind == Kind::kSummed);
  CHECK(m.operands[1][3] == DimLink{Kind::kAligned, 3});
  const std::vector<Type> one = {{DType::kF32, {4, 6}}};
  CHECK(index_map(Reduce{ReduceFn::kSum, 1, 0}, one).operands[0][1].kind == Kind::kSummed);
  CHECK(index_map(Reduce{ReduceFn::kSum, 1, 3}, one).operands[0][1] == DimLink{Kind::kGrouped, 1, 0, 3});
  const std::vector<Type> bias = {{DType::kF32, {4, 6}}, {DType::kF32, {6}}};
  CHECK(index_map(Map{MapFn::kAdd}, bias).operands[1][0] == DimLink{Kind::kAligned, 1});
}
