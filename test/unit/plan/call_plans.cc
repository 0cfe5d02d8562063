// What planning keeps of calls.
#include "mirage/plan/call_plans.h"

#include <catch2/catch.hpp>

using namespace mirage;

namespace {

Graph block_of(int64_t rows) {
  Builder b(Level::kBlock, Launch{});
  const ValueId x = b.add_input(0, {DType::kF16, {rows, 16}}, {{-1, -1, -1}, -1});
  b.add_output(0, x, DType::kReal, {{-1, -1, -1}, -1});
  return std::move(b).finish();
}

}  // namespace

TEST_CASE("a product of the same types and strides is made once") {
  CallPlans known;
  const Type x{DType::kF16, {32, 64}}, y{DType::kF16, {64, 16}}, wide{DType::kF32, {64, 16}};
  const Dims rows[] = {{64, 1}, {16, 1}}, turned[] = {{64, 1}, {1, 64}};
  int made = 0;
  const auto ask = [&](const Type& a, const Type& b, std::span<const Dims> strides) {
    return known.product(a, b, strides, [&] { return block_of(++made); });
  };
  const auto first = ask(x, y, rows);
  CHECK(ask(x, y, rows) == first);
  CHECK(made == 1);
  CHECK(ask(x, y, turned) != first);
  CHECK(ask(x, wide, rows) != first);
  CHECK(ask(y, x, rows) != first);
  CHECK(made == 4);
  CHECK(ask(x, y, turned)->dims(0)[0] == 2);
}
