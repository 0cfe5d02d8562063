#include "mirage/support/round.h"

#include <catch2/catch.hpp>
#include <limits>

using namespace mirage;

TEST_CASE("a number is whole only where int64_t has it") {
  CHECK(whole_number(-3.0) == -3);
  CHECK(whole_number(0x1p62) == int64_t{1} << 62);
  CHECK(whole_number(-0x1p63) == std::numeric_limits<int64_t>::min());
  for (double x : {0.5, 0x1p63, 1e300, -1e300, double{INFINITY}, -double{INFINITY}, double{NAN}}) CHECK_FALSE(whole_number(x));
}
