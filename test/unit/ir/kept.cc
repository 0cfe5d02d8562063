// Values of a program found in other graphs of it: made of the same operators at kernel level, tile by tile in a block graph, or known by
// origin.
#include <catch2/catch.hpp>

#include <algorithm>

#include "mirage/ir/kept.h"
#include "mirage/spec/spec.h"
#include "mirage/spec/text.h"

using namespace mirage;

namespace {

/// silu(x w) v, and the gain of x in front.
Program program() {
  const auto p = parse_spec({"s.mg", R"(kernel s {
    %x = input 0 : f16[32,64]  %w = input 1 : f16[64,48]  %v = input 2 : f16[48,16]
    %n = div %x (sqrt (reduce.sum 1 (square %x)))
    %h = matmul %n %w   %a = silu %h   %y = matmul %a %v
    output 0 %y : f16 })"});
  REQUIRE(p);
  return *p;
}

Graph graph(const char* text) {
  const auto g = parse_graph(text);
  REQUIRE(g);
  return *g;
}

int casts(const Graph& g) {
  int out = 0;
  for (const Node& n : g.nodes()) {
    if (const auto* m = std::get_if<Map>(&n.op)) out += m->fn == MapFn::kCastF16;
    if (const auto* c = std::get_if<Call>(&n.op)) out += casts(*c->body);
  }
  return out;
}

/// x w in one call, with the norm's division behind the sum, or its silu too; then the product with v.
const char* const kHeadOfCall = R"(kernel {
    %x = input 0 : f16[32,64]  %w = input 1 : f16[64,48]  %v = input 2 : f16[48,16]
    %h = call grid(2,1,1) loop(4) (%x, %w) {
      %a = input 0 grid(0,-,-) loop(1) : f16[16,16]  %b = input 1 grid(-,-,-) loop(0) : f16[16,48]
      %c = accum.sum (matmul %a %b)  %d = accum.sum (reduce.sum 1 (square %a)) )";

}  // namespace

TEST_CASE("a program's own graph keeps the results of its nodes") {
  const Program p = program();
  const KeptValues kept(p.graph, p.kept);
  CHECK(kept.of(p.graph) == p.kept);
  CHECK(std::count(p.kept.begin(), p.kept.end(), DType::kF16) == 4);   // n, h, a, y
  const auto g = kept.rounded(p.graph, KeptValues::Where::kMemory);
  REQUIRE(g);
  CHECK(casts(*g) == 3);   // the output is rounded in any case
  CHECK_FALSE(check_laws(*g));
  CHECK(KeptValues(p.graph, {}).empty());
  CHECK_FALSE(KeptValues(p.graph, {}).rounded(p.graph, KeptValues::Where::kMemory));
}

TEST_CASE("a call's result is the value that its tiles make up, if they make it by the same operators") {
  Program p = program();
  const KeptValues kept(p.graph, p.kept);
  // The division has moved behind the product: another operator makes the same value, which only its origin tells.
  const Graph moved = graph((std::string(kHeadOfCall) + R"(output 0 (div %c (sqrt %d)) grid(0,-,-) }
    %s = silu %h  %y = matmul %s %v  output 0 %y : f16 })").c_str());
  const auto result = [&](const Graph& g) {
    for (NodeId n = 0; n < g.num_nodes(); n++) if (g.form<Call>(n)) return g.node(n).first_value;
    return -1;
  };
  const auto made_by_matmul = [&] {
    for (ValueId v = 0; v < p.graph.num_values(); v++) if (p.graph.def_form<MatMul>(v)) return v;
    return -1;
  };
  CHECK(kept.of(moved)[static_cast<size_t>(result(moved))] == DType::kReal);
  std::vector<ValueId> origin(static_cast<size_t>(moved.num_values()), -1);
  origin[static_cast<size_t>(result(moved))] = made_by_matmul();
  CHECK(kept.of(moved, origin)[static_cast<size_t>(result(moved))] == DType::kF16);
  CHECK(kept.rounded(moved, KeptValues::Where::kMemory, origin));
  CHECK_FALSE(kept.rounded(moved, KeptValues::Where::kMemory));

  const auto plain = parse_spec({"s.mg",
                                 "kernel s { %x = input 0 : f16[32,64]  %w = input 1 : f16[64,48]  %h = matmul %x %w  %s = silu %h  output "
                                 "0 %s : f16 output 1 %h : f16 }"});
  REQUIRE(plain);
  const KeptValues of_plain(plain->graph, plain->kept);
  const auto call = [&](const char* split, const char* accum) {
    return graph((std::string("kernel { %x = input 0 : f16[32,64] %w = input 1 : f16[64,48] %h = call ") + split +
                  " } output 0 (silu %h) : f16 output 1 %h : f16 }" + accum)
                     .c_str());
  };
  const Graph tiled = call(
      "grid(2,1,1) loop(4) (%x, %w) { %a = input 0 grid(0,-,-) loop(1) : f16[16,16] %b = input 1 grid(-,-,-) loop(0) : f16[16,48] output 0 "
      "(accum.sum (matmul %a %b)) grid(0,-,-)",
      "");
  CHECK(of_plain.of(tiled)[static_cast<size_t>(result(tiled))] == DType::kF16);
  const Graph largest = call(
      "grid(2,1,1) loop(4) (%x, %w) { %a = input 0 grid(0,-,-) loop(1) : f16[16,16] %b = input 1 grid(-,-,-) loop(0) : f16[16,48] output 0 "
      "(accum.max (matmul %a %b)) grid(0,-,-)",
      "");
  CHECK(of_plain.of(largest)[static_cast<size_t>(result(largest))] == DType::kReal);   // no sum of the parts
}

TEST_CASE("what is known of a view holds for what it shows: attention's result before its heads are put side by side") {
  const auto p = parse_spec({"s.mg",
                             "kernel s { %x = input 0 : f16[4,8,16]  %w = input 1 : f16[4,16,16]  %v = input 2 : f16[64,16]  %h = matmul "
                             "%x %w  %t = transpose (1,0,2) %h  %r = reshape [8,64] %t  %y = matmul %r %v  output 0 %y : f16 }"});
  REQUIRE(p);
  const KeptValues kept(p->graph, p->kept);
  // A call makes h by operators of its own; only that r is the program's is known.
  const Graph found = graph(
      "kernel { %x = input 0 : f16[4,8,16] %w = input 1 : f16[4,16,16] %v = input 2 : f16[64,16] %h = call grid(4,1,1) loop(1) (%x, %w) { "
      "%a = input 0 grid(0,-,-) loop(-) : f16[1,8,16]"
      " %b = input 1 grid(0,-,-) loop(-) : f16[1,16,16] output 0 (neg (neg (matmul %a %b))) grid(0,-,-) } %t = transpose (1,0,2) %h  %r = "
      "reshape [8,64] %t  %y = matmul %r %v  output 0 %y : f16 }");
  std::vector<ValueId> origin(static_cast<size_t>(found.num_values()), -1);
  const auto joined = [](const Graph& g) {
    for (ValueId v = 0; v < g.num_values(); v++) if (g.def_form<Reshape>(v)) return v;
    return -1;
  };
  origin[static_cast<size_t>(joined(found))] = joined(p->graph);
  const std::vector<DType> types = kept.of(found, origin);
  for (ValueId v = 0; v < found.num_values(); v++) if (found.def_form<Call>(v)) CHECK(types[static_cast<size_t>(v)] == DType::kF16);
  const auto g = kept.rounded(found, KeptValues::Where::kMemory, origin);
  REQUIRE(g);
  CHECK(casts(*g) >= 1);
  CHECK_FALSE(kept.rounded(found, KeptValues::Where::kMemory));   // nothing is known of it
}

TEST_CASE("operands of float16 products within a call may be rounded, those that overflow elsewhere may not") {
  const auto p = parse_spec({"s.mg",
                             "kernel s { %x = input 0 : f16[32,64]  %g = input 1 : f16[1,64]  %w = input 2 : f16[64,48]  %h = mul %x %g  "
                             "%y = matmul %h %w  output 0 %y : f16 }"});
  REQUIRE(p);
  const KeptValues kept(p->graph, p->kept);
  const auto call = [&](const char* rows) {
    return graph(
        (std::string(
             "kernel { %x = input 0 : f16[32,64] %g = input 1 : f16[1,64] %w = input 2 : f16[64,48] %y = call grid(2,1,1) loop(4) (%x, %g, "
             "%w) { %a = input 0 grid(0,-,-) loop(1) : f16[16,16]"
             " %b = input 1 grid(-,-,-) loop(1) : f16[1,16] %c = input 2 grid(-,-,-) loop(0) : f16[16,48] output 0 (accum.sum (matmul ") +
         rows + " %c)) grid(0,-,-) } output 0 %y : f16 }")
            .c_str());
  };
  const auto same = kept.rounded(call("(mul %a %b)"), KeptValues::Where::kMemoryAndBodies);
  REQUIRE(same);
  CHECK(casts(*same) == 1);
  CHECK_FALSE(kept.rounded(call("(mul %a %b)"), KeptValues::Where::kMemory));
  CHECK_FALSE(kept.rounded(call("(mul (square %a) %b)"), KeptValues::Where::kMemoryAndBodies));
}

TEST_CASE("chains of views, and values that several readers wait for, keep one cast") {
  const auto p = parse_spec({"s.mg", R"(kernel s { %x = input 0 : f16[32,64]  %w = input 1 : f16[64,64]
    %h = matmul %x %w  %r = reshape [4,8,64] %h  %t = transpose (1,0,2) %r  %u = reshape [32,64] %t  %y = matmul %u %w  %z = add %h %y  output 0 %z : f16 })"});
  REQUIRE(p);
  const KeptValues kept(p->graph, p->kept);
  const auto g = kept.rounded(p->graph, KeptValues::Where::kMemory);
  REQUIRE(g);
  CHECK(casts(*g) == 2);   // h and y
}

TEST_CASE("what moves elements is as exact as they are: padding and the windows of a convolution") {
  // the type of the windows, where silu's result is known to be kept, or nothing is
  const auto type = [](const std::string& inputs, const std::string& padded, bool knows) {
    const Graph g = graph(("kernel { %x = input 0 : f16[8,16] " + inputs + " %y = " + padded + R"(
      %a = slice 1 0:16 %y   %b = slice 1 2:18 %y   %c = concat 0 %a %b   output 0 %c : f16 })").c_str());
    std::vector<DType> kept(static_cast<size_t>(g.num_values()), DType::kReal);
    for (ValueId v = 0; v < g.num_values() && knows; v++)
      if (const auto* m = g.def_form<Map>(v); m && m->fn == MapFn::kSilu) kept[static_cast<size_t>(v)] = DType::kF16;
    const std::vector<DType> of = KeptValues(g, kept).of(g);
    for (ValueId v = g.num_values() - 1; v >= 0; v--) if (g.def_form<Concat>(v)) return of[static_cast<size_t>(v)];
    return DType::kBool;
  };
  const std::string zero = "(repeat 0 8 (reshape [1,1] (const 0)))", tenth = "(repeat 0 8 (reshape [1,1] (const 0.1)))";
  CHECK(type("", "concat 1 " + zero + " %x " + zero, false) == DType::kF16);
  CHECK(type("", "concat 1 " + zero + " (silu %x) " + zero, true) == DType::kF16);
  CHECK(type("", "concat 1 " + zero + " (silu %x) " + zero, false) == DType::kReal);   // it is not known to be a node's result
  CHECK(type("", "concat 1 " + tenth + " %x " + tenth, false) == DType::kReal);        // 0.1 is no number of float16
  CHECK(type("%z = input 1 : bf16[8,2]", "concat 1 %x %z", false) == DType::kReal);    // two types
  CHECK(type("", "concat 1 (square %x) (slice 1 0:2 %x)", false) == DType::kReal);
}
