// Which values of a spec may be kept in 16 bits: results of its nodes where tensors of one 16-bit type make them, and nothing else.
#include <catch2/catch.hpp>

#include <algorithm>
#include <string>

#include "mirage/spec/spec.h"

using namespace mirage;

namespace {

Program program(const std::string& nodes, const std::string& outputs, const std::string& more = "") {
  const auto p = parse_spec(
      {"s.json",
       R"({"name": "s", "inputs": {"x": {"shape": [4, 8], "dtype": "float16"}, "w": {"shape": [8, 8], "dtype": "float16"}, "f": {"shape": [4, 8], "dtype": "float32"},
    "b": {"shape": [4, 8], "dtype": "bfloat16"}, "m": {"shape": [4, 8], "dtype": "bool"}}, )" +
           more + "\"outputs\": {" + outputs + "}, \"nodes\": [" + nodes + "]}"});
  REQUIRE(p);
  return *p;
}

std::string node(const std::string& op, const std::string& inputs, const std::string& output, const std::string& rest = "") {
  return R"({"op": ")" + op + R"(", "inputs": [)" + inputs + R"(], "output": ")" + output + "\"" + rest + "}";
}

int64_t kept(const Program& p, DType t = DType::kF16) { return std::count(p.kept.begin(), p.kept.end(), t); }

/// The normal form says the same.
void reads_back(const Program& p) {
  const auto again = parse_spec({"s.json", p.canonical});
  REQUIRE(again);
  CHECK(again->graph == p.graph);
  CHECK(again->kept == p.kept);
  CHECK(again->canonical == p.canonical);
}

const std::string kLast = node("matmul", R"("t", "w")", "y"), kHalf = R"("y": {"dtype": "float16"})";

}  // namespace

TEST_CASE("results of nodes may be kept in the type of the tensors that make them") {
  for (const char* inputs : {R"("x", 2.5)", R"("x", "x")"}) {
    const Program p = program(node("mul", inputs, "t") + "," + kLast, kHalf);
    CHECK(kept(p) == 2);   // t and y
    reads_back(p);
  }
  CHECK(kept(program(node("where", R"("m", "x", "-inf")", "t") + "," + kLast, kHalf)) == 2);   // bools and numbers have no say
  CHECK(kept(program(node("mul", R"("b", 2)", "t") + "," + node("neg", R"("t")", "y"), R"("y": {"dtype": "bfloat16"})"), DType::kBF16) ==
        2);
}

TEST_CASE("mixed and float32 operands, comparisons and positions stay exact") {
  for (const std::string& t :
       {node("mul", R"("x", "f")", "t"), node("mul", R"("x", "b")", "t"), node("neg", R"("f")", "t"),
        node("mul", R"("x", "i")", "t") + "," + node("iota", "", "i", R"(, "attrs": {"axis": 1, "shape": [4, 8]})")}) {
    const Program p = program(t + "," + kLast, kHalf);
    CHECK(kept(p) == 0);   // and what is made of it is exact, too
    reads_back(p);
  }
  CHECK(kept(program(node("less", R"("x", 0)", "c") + "," + node("where", R"("c", 1, 2)", "t") + "," + node("add", R"("t", "x")", "y"),
                     kHalf)) == 1);
}

TEST_CASE("what an operator is made of stays exact") {
  for (const char* op : {"softmax", "rms_norm", "layer_norm", "gelu", "mean", "l2_norm"}) {
    const Program p = program(
        node(op, R"("x")", "t", std::string(op) == "mean" ? R"(, "attrs": {"axis": 0, "keepdim": true})" : "") + "," + kLast, kHalf);
    INFO(op);
    CHECK(kept(p) == 2);
    reads_back(p);
  }
  // A value that is both: inside a norm it is read as it is.
  const Program both = program(
      node("square", R"("x")", "q") + "," + node("rms_norm", R"("x")", "n") + "," + node("add", R"("q", "n")", "t") + "," + kLast, kHalf);
  CHECK(kept(both) == 3);
  reads_back(both);
}

TEST_CASE("a cast says in what type a value goes on") {
  const Program wide = program(node("cast", R"("x")", "t", R"(, "attrs": {"dtype": "float32"})") + "," + node("mul", R"("t", "t")", "u") +
                                   "," + node("neg", R"("u")", "y"),
                               kHalf);
  CHECK(kept(wide) == 0);
  reads_back(wide);
  const Program narrow =
      program(node("exp", R"("f")", "e") + "," + node("cast", R"("e")", "t", R"(, "attrs": {"dtype": "float16"})") + "," + kLast, kHalf);
  CHECK(kept(narrow) == 1);   // the product; the cast is rounded already
  reads_back(narrow);
}

TEST_CASE("an output that is wider than its operands is exact") {
  const Program p = program(node("mul", R"("x", 3)", "t") + "," + kLast, R"("y": {"dtype": "float32"})");
  CHECK(kept(p) == 1);
  reads_back(p);
}

TEST_CASE("numerics and nodes can forbid it") {
  const std::string nodes = node("mul", R"("x", 3)", "t") + "," + kLast;
  const Program none = program(nodes, kHalf, R"("numerics": {"intermediates": "exact"}, )");
  CHECK(none.kept.empty());
  reads_back(none);
  CHECK(kept(program(nodes, kHalf, R"("numerics": {"intermediates": "stored"}, )")) == 2);
  CHECK(kept(program(node("mul", R"("x", 3)", "t", R"(, "exact": true)") + "," + kLast, kHalf)) == 1);
  const auto text = [](const std::string& header) {
    return parse_spec({"s.mg", "kernel s " + header + "{ %x = input 0 : f16[4,8] %t = mul %x 3 output 0 (exp (add %t 1)) : f16 }"});
  };
  REQUIRE(text(""));
  CHECK(kept(*text("")) == 1);   // what has a name; the rest is within an expression
  REQUIRE(text("intermediates(exact) "));
  CHECK(text("intermediates(exact) ")->kept.empty());
  CHECK_FALSE(text("intermediates(exakt) "));
}

TEST_CASE("a misspelt kind of intermediates is answered with what was meant") {
  const auto p = parse_spec(
      {"s.json",
       R"({"inputs": {"x": {"shape": [4], "dtype": "float16"}}, "outputs": {"y": {"dtype": "float16"}}, "numerics": {"intermediates": "exat"},
    "nodes": [{"op": "neg", "inputs": ["x"], "output": "y"}]})"});
  REQUIRE_FALSE(p);
  REQUIRE(p.errors().size() == 1);
  REQUIRE(p.errors()[0].notes.size() == 1);
  CHECK(p.errors()[0].notes[0].text.find("exact") != std::string::npos);
}
