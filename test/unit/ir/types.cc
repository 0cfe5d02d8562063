// The table of element types: what evaluation, readers and bounds take from it.
#include <catch2/catch.hpp>
#include <cmath>

#include "mirage/ir/eval.h"

using namespace mirage;

TEST_CASE("element types have names, sizes and ends of their own") {
  for (DType t : {DType::kF16, DType::kBF16, DType::kF32, DType::kBool, DType::kReal}) {
    INFO(dtype_name(t));
    CHECK(parse_dtype(dtype_name(t)) == t);
    CHECK(parse_dtype(dtype_long_name(t)) == t);
    CHECK(is16(t) == (dtype_bytes(t) == 2));
    if (t == DType::kReal || t == DType::kBool) continue;
    const TypeInfo& info = type_info(t);
    CHECK(round_to(info.largest, t) == info.largest);
    CHECK(std::isinf(round_to(info.largest * (1 + 2 * unit_roundoff(t)), t)));
    const double least = std::ldexp(1.0, info.least_exponent - 1);
    CHECK(round_to(least, t) == least);
    CHECK(round_to(1 + 2 * unit_roundoff(t), t) == 1 + 2 * unit_roundoff(t));
    CHECK(round_to(1 + unit_roundoff(t), t) == 1);   // half an ulp: to even
  }
  CHECK(unit_roundoff(DType::kBool) == 0);
  CHECK(type_info(DType::kF16).largest == 65504);
}
