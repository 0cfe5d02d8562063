// The rule of contractions: which arithmetic for which operands, and how each operand is rounded.
#include "mirage/ir/contraction.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "mirage/ir/eval.h"
#include "mirage/support/hash.h"

using namespace mirage;

TEST_CASE("contractions round what the kernel computed, and never lose the range of float32", "[contraction]") {
  constexpr DType h = DType::kF16, b = DType::kBF16, f = DType::kF32, r = DType::kReal, o = DType::kBool;
  struct Row { DType x, y, narrow; bool tf32; ContractType want; };
  using C = ContractType;
  for (const Row& row : {Row{h, h, h, false, C::kF16}, {b, b, b, false, C::kBF16}, {h, b, h, false, C::kTF32},
                         {r, h, h, false, C::kTF32}, {r, b, b, false, C::kBF16}, {r, b, h, false, C::kBF16},
                         {r, r, h, false, C::kTF32}, {r, r, b, false, C::kBF16}, {r, r, r, false, C::kF32}, {r, r, r, true, C::kTF32},
                         {f, h, h, false, C::kF32}, {f, h, h, true, C::kTF32}, {f, f, r, false, C::kF32}, {f, f, r, true, C::kTF32},
                         {f, r, h, false, C::kF32}, {o, h, h, false, C::kF32}}) {
    const ContractRule rule{row.narrow, row.tf32};
    INFO(dtype_name(row.x) << " x " << dtype_name(row.y));
    CHECK(contract_type(row.x, row.y, rule) == row.want);
    CHECK(contract_type(row.y, row.x, rule) == row.want);
  }
}

TEST_CASE("TF32 holds every 16-bit number and rounds others to the nearest", "[contraction]") {
  for (uint32_t bits = 0; bits < 0x10000; bits++) {
    const int e = static_cast<int>(bits >> 10 & 31), m = static_cast<int>(bits & 1023);
    if (e == 31) continue;
    const float x = std::ldexp(static_cast<float>(e == 0 ? m : m + 1024), (e == 0 ? 1 : e) - 25) * (bits & 0x8000 ? -1.f : 1.f);
    REQUIRE(contract_operand(x, ContractType::kTF32) == x);
    REQUIRE(contract_operand(x, ContractType::kF16) == x);
  }
  Rng rng(7);
  for (int i = 0; i < 10000; i++) {
    const float x = static_cast<float>(std::ldexp(rng.uniform() - 0.5, static_cast<int>(rng.below(200)) - 100)),
                t = contract_operand(x, ContractType::kTF32);
    REQUIRE(std::fabs(t - x) <= std::fabs(x) * 0x1p-11f);
    REQUIRE(contract_operand(t, ContractType::kTF32) == t);
  }
  CHECK(contract_operand(1.f + 0x1p-11f, ContractType::kTF32) == 1.f + 0x1p-10f);   // ties away from zero
  CHECK(contract_operand(90000.f, ContractType::kTF32) == Approx(90000.f).epsilon(0x1p-11));
  CHECK(std::isinf(contract_operand(90000.f, ContractType::kF16)));
  CHECK(std::isnan(contract_operand(NAN, ContractType::kTF32)));
  CHECK(contract_operand(-INFINITY, ContractType::kTF32) == -INFINITY);
}
