// Which programs may be padded along an axis: seen from two sizes of it.
#include <catch2/catch.hpp>
#include <fmt/format.h>
#include "mirage/ir/prefix.h"
#include "mirage/spec/spec.h"

using namespace mirage;

namespace {

/// The graph of a program whose axis M has this value.
Graph graph_at(const std::string& inputs, const std::string& nodes, int64_t m) {
  auto p = parse_spec(
      {"t.json", fmt::format(R"({{"axes": {{"M": {}}}, "inputs": {{{}}}, "outputs": {{"y": {{"dtype": "float32"}}}}, "nodes": [{}]}})", m,
                             inputs, nodes)});
  if (!p) FAIL(p.errors()[0].text);
  return p->graph;
}

bool is_kept(const std::string& inputs, const std::string& nodes) {
  return keeps_prefix(graph_at(inputs, nodes, 4), 4, graph_at(inputs, nodes, 6), 6);
}

const std::string kX = R"("x": {"shape": ["M", 8], "dtype": "float32"})";
const std::string kXW = kX + R"(, "w": {"shape": [8, 16], "dtype": "float32"})";

}  // namespace

TEST_CASE("rows that do not see each other keep their prefix") {
  CHECK(is_kept(kXW, R"({"op": "rms_norm", "inputs": ["x"], "output": "n"}, {"op": "matmul", "inputs": ["n", "w"], "output": "y"})"));
  CHECK(is_kept(
      kXW,
      R"({"op": "matmul", "inputs": ["x", "w"], "output": "h"}, {"op": "softmax", "inputs": ["h"], "output": "s", "attrs": {"axis": -1}}, )"
      R"({"op": "transpose", "inputs": ["s"], "output": "y"})"));
  CHECK(is_kept(
      kX,
      R"({"op": "reshape", "inputs": ["x"], "output": "r", "attrs": {"shape": ["M", 2, 4]}}, )"
      R"({"op": "sum", "inputs": ["r"], "output": "y", "attrs": {"axis": 1}})"));
  CHECK(is_kept(
      kX,
      R"({"op": "reshape", "inputs": ["x"], "output": "r", "attrs": {"shape": ["M*2", 4]}}, )"
      R"({"op": "max", "inputs": ["r"], "output": "y", "attrs": {"axis": 1}})"));
  CHECK(is_kept(kX, R"({"op": "slice", "inputs": ["x"], "output": "y", "attrs": {"axis": 1, "start": 2, "stop": 6}})"));
  CHECK(is_kept(kX, R"({"op": "concat", "inputs": ["x", "x"], "output": "y", "attrs": {"axis": 1}})"));
  CHECK(is_kept(
      kX + R"(, "b": {"shape": ["M", 8, 8], "dtype": "float32"})",
      R"({"op": "reshape", "inputs": ["x"], "output": "r", "attrs": {"shape": ["M", 1, 8]}}, )"
      R"({"op": "matmul", "inputs": ["r", "b"], "output": "y"})"));
}

TEST_CASE("what sees other rows does not") {
  CHECK_FALSE(is_kept(kX, R"({"op": "sum", "inputs": ["x"], "output": "y", "attrs": {"axis": 0}})"));
  CHECK_FALSE(is_kept(kX, R"({"op": "softmax", "inputs": ["x"], "output": "y", "attrs": {"axis": 0}})"));
  CHECK_FALSE(is_kept(kX, R"({"op": "sum", "inputs": ["x"], "output": "y"})"));
  // two dimensions follow the axis
  CHECK_FALSE(is_kept(kX + R"(, "k": {"shape": ["M", 8], "dtype": "float32"})",
                      R"({"op": "matmul", "inputs": ["x", "k"], "output": "y", "attrs": {"transpose_b": true}})"));
  CHECK_FALSE(is_kept(
      R"("q": {"shape": [3, 8], "dtype": "float32"}, "k": {"shape": ["M", 8], "dtype": "float32"})",
      R"({"op": "matmul", "inputs": ["q", "k"], "output": "s", "attrs": {"transpose_b": true}}, )"
      R"({"op": "softmax", "inputs": ["s"], "output": "y"})"));
  // rows of another length
  CHECK_FALSE(is_kept(R"("x": {"shape": [8, "M"], "dtype": "float32"})",
                      R"({"op": "reshape", "inputs": ["x"], "output": "y", "attrs": {"shape": ["8*M"]}})"));
  CHECK_FALSE(is_kept(kX, R"({"op": "concat", "inputs": ["x", "x"], "output": "y", "attrs": {"axis": 0}})"));
  CHECK_FALSE(is_kept(kX, R"({"op": "slice", "inputs": ["x"], "output": "y", "attrs": {"axis": 0, "start": 1, "stop": 4}})"));
  CHECK_FALSE(is_kept(kX, R"({"op": "repeat", "inputs": ["x"], "output": "y", "attrs": {"axis": 0, "count": 2}})"));
}
