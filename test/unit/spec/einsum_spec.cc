// --einsum lines.
#include "helpers.h"

using namespace mirage;
using namespace mirage::spec_test;

TEST_CASE("an einsum line is the program that the spec says") {
  auto r = read_einsum("mk,kn->mn m=4 k=8 n=2 bf16");
  REQUIRE(r.ok());
  Program p = must_parse(
      R"({"name": "einsum", "inputs": {"x0": {"shape": [4, 8], "dtype": "bfloat16"}, "x1": {"shape": [8, 2], "dtype": "bfloat16"}}, "outputs": {"y": {"dtype": "bfloat16"}},
                             "nodes": [{"op": "matmul", "inputs": ["x0", "x1"], "output": "y"}]})");
  CHECK(r->program.canonical == p.canonical);
  REQUIRE(read_einsum("ij->ji  i=2 j=3").ok());
}

TEST_CASE("wrong einsum lines say what is missing") {
  auto error = [](const std::string& line) {
    auto r = read_einsum(line);
    REQUIRE_FALSE(r.ok());
    return r.errors()[0].text;
  };
  CHECK(error("mk,kn->mn m=4 k=8") == "--einsum: the extent of 'n' is missing: n=...");
  CHECK(error("mk,kn->mn m=4 k=8 n=0") == "--einsum: 'n=0' is no extent such as m=16 and no dtype");
  CHECK(error("mk,kn->mn m=4 k=8 n=99999999999999999999") == "--einsum: 'n=99999999999999999999' is no extent such as m=16 and no dtype");
  CHECK(error("m\"k m=4 k=8").find("has letters") != std::string::npos);
  CHECK(error("mk,kn->mz m=4 k=8 n=2").find("'z' of the result is in no operand") != std::string::npos);
  CHECK(error("").empty() == false);
  CHECK(error("a,b,c->abc a=1 b=1 c=1").find("einsum takes 1 or 2 inputs") != std::string::npos);
}
