// What is known of values without running them: their ranges, and the bands that masks by positions leave.
#include <catch2/catch.hpp>

#include <cmath>
#include <string>

#include "mirage/ir/band.h"
#include "mirage/ir/range.h"
#include "mirage/spec/text.h"

using namespace mirage;

namespace {

/// A block graph of x f16[8,16] and y f32[8,16]; `of`: its result.
Graph graph_with(const std::string& of) {
  const std::string inputs = "%x = input 0 : f16[8,16]  %y = input 1 : f32[8,16]  %u = mul %x %y\n";
  const auto g = parse_graph("block grid(1,1,1) loop(1) {\n" + inputs + "%z = add " + of + " (mul 0 %u)\n  output 0 %z : f32\n}\n");
  INFO(of << (g ? "" : g.errors()[0].text));
  REQUIRE(g);
  return *g;
}

/// That of the first operand of the graph's sum.
Range range_of_first(const std::string& of) {
  const Graph g = graph_with(of);
  const ValueId sum = g.node(g.outputs()[0]).operands[0];
  return Ranges(g, {largest(DType::kF16), largest(DType::kF32)}).of(g.def(sum).operands[0]);
}

}  // namespace

TEST_CASE("ranges of values follow from their types and maps", "[range]") {
  const Range x = range_of_first("%x"), squared = range_of_first("(square %x)"),
              norm = range_of_first("(sqrt (add (reduce.sum 1 (square %x)) 0.5))");
  CHECK(x.low == -65504);
  CHECK(x.high == 65504);
  CHECK(!x.positive);
  CHECK(squared.low == 0);
  CHECK(squared.high == 65504.0 * 65504.0);
  CHECK(!squared.positive);
  CHECK(norm.positive);
  CHECK(norm.high == std::sqrt(16 * squared.high + 0.5));
  CHECK(std::isinf(range_of_first("%y").high));
  CHECK(range_of_first("(exp %y)").positive);
  CHECK(range_of_first("(mul %x %x)").low == 0);                 // the same number twice
  CHECK(std::isinf(range_of_first("(mul %x 2)").low));           // nothing is known of products of both signs
  const auto weight = [](const std::string& of) {
    const auto g = parse_graph("block grid(1,1,1) loop(4) {\n%y = input 0 loop(1) : f32[8,4]  %m = running (reduce.max 1 %y)\n"
                               "%p = exp (sub " + of + " %m)\n%l = accum.sum rescaled 1 (reduce.sum 1 %p) %m\noutput 0 %l : f32\n}\n");
    INFO(of << (g ? "" : g.errors()[0].text));
    REQUIRE(g);
    return Ranges(*g, {}).of(g->def(g->def(g->node(g->outputs()[0]).operands[0]).operands[0]).operands[0]);
  };
  CHECK(weight("%y").high == 1);
  CHECK(std::isinf(weight("(add %y 1)").high));            // of another value than the maximum is taken of
}

TEST_CASE("masks by positions leave a band", "[range]") {
  const auto band = [](const std::string& of, int64_t columns = 16) {
    const std::string inputs = "%x = input 0 : f32[8,16]  %i = input 1 : real[8,1]  %j = input 2 : real[1,16]\n";
    const auto g = parse_graph("block grid(1,1,1) loop(1) {\n" + inputs + "%z = " + of +
                               "\n  output 0 (add %z (mul 0 (add %i %j))) : f32\n}\n");
    INFO(of << (g ? "" : g.errors()[0].text));
    REQUIRE(g);
    const ValueId masked = g->def(g->node(g->outputs()[0]).operands[0]).operands[0];
    const auto past = [&](ValueId v) {   // factors
      const Map* m = g->def_form<Map>(v);
      return m && m->fn == MapFn::kMul ? g->def(v).operands[0] : ValueId{-1};
    };
    const auto counts = [&](ValueId v) { return g->def_form<Input>(v)->param == 1 ? Counts::kRows : Counts::kColumns; };
    return read_band(*g, {masked, g->node(g->inputs()[0]).first_value, 8, columns, past, counts});
  };
  const Band causal = band("where (less %i %j) -inf %x"), window = band("where (greater (sub %i %j) 3) -inf (where (less %i %j) -inf %x)");
  CHECK(causal.last == 0);
  CHECK(!causal.first);
  CHECK(causal.only);
  CHECK(window.last == 0);
  CHECK(window.first == -3);
  CHECK(band("where (less (add %i 2) %j) -inf (mul %x 2)").last == 2);
  const Band below = band("add (where (less %i %j) -inf %x) 1"), above = band("where (less %i %j) -inf (add %x 1)");
  CHECK(!below.last);                                                 // what stands above a mask is not looked through
  CHECK(above.last == 0);
  CHECK(!above.only);
  CHECK(!band("where (less %i %j) 0 %x").last);                       // nothing is removed
  CHECK(!band("where (less (mul 0.5 %i) %j) -inf %x").last);
  CHECK(!band("where (less (add %i 0.5) %j) -inf %x").last);          // between two positions
  CHECK(!band("where (less %i %j) -inf %x", 1 << 23).last);           // beyond what float32 counts
}
