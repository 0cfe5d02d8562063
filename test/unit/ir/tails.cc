// Law 5: operands of equal tiles whose tensors end at different places. What the last block would add, multiply or contract there has no
// meaning.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "mirage/spec/text.h"

using namespace mirage;

namespace {

/// rows of a and b are cut into tiles of 4 by the grid (columns by the loop, if `loop`).
std::string sum_of(int rows_a, int rows_b, const char* op) {
  return fmt::format(R"(kernel k {{
  %a = input 0 : f16[{},8]
  %b = input 1 : f16[{},8]
  %y = call grid(3,1,1) loop(1) (%a, %b) {{
    %0 = input 0 grid(0,-,-) loop(-) : f16[4,8]
    %1 = input 1 grid(0,-,-) loop(-) : f16[4,8]
    %2 = {} %0 %1
    output 0 %2 grid(0,-,-)
  }}
  output 0 %y : f16
}})", rows_a, rows_b, op);
}

std::string product_of(int depth_a, int depth_b) {
  return fmt::format(R"(kernel k {{
  %a = input 0 : f16[4,{}]
  %b = input 1 : f16[{},8]
  %y = call grid(1,1,1) loop(3) (%a, %b) {{
    %0 = input 0 grid(-,-,-) loop(1) : f16[4,16]
    %1 = input 1 grid(-,-,-) loop(0) : f16[16,8]
    %2 = accum.sum (matmul %0 %1)
    output 0 %2 grid(-,-,-)
  }}
  output 0 %y : f16
}})", depth_a, depth_b);
}

bool is_refused(const std::string& text) {
  const auto g = parse_graph(text);
  if (g.ok()) return false;
  CHECK(g.errors().front().text.find("end at different places") != std::string::npos);
  return true;
}

}  // namespace

TEST_CASE("elementwise operands end at the same place") {
  CHECK_FALSE(is_refused(sum_of(12, 12, "add")));
  CHECK_FALSE(is_refused(sum_of(10, 10, "add")));
  CHECK(is_refused(sum_of(10, 12, "add")));
  CHECK(is_refused(sum_of(9, 10, "mul")));
}

TEST_CASE("a contraction's operands end at the same place") {
  CHECK_FALSE(is_refused(product_of(48, 48)));
  CHECK_FALSE(is_refused(product_of(40, 40)));
  CHECK(is_refused(product_of(40, 48)));
  CHECK(is_refused(product_of(40, 41)));
}
