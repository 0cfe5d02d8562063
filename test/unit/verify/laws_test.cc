// Laws of logarithms, powers, sigmoid and tanh, casts, and maxima met twice: what is proved, and next to each what looks like it and is
// another function, or is undefined where the program is not.
#include <catch2/catch.hpp>
#include <string>

#include "mirage/spec/text.h"
#include "mirage/verify/proof.h"
#include "unit/verify/graphs.h"

using namespace mirage;
using namespace mirage::test;

namespace {

/// Inputs x, y, z: f32[4,6], h: f16[4,6], n: f32[4,6] that only appears under square; m: bool[4,6].
Graph kernel(const std::string& result) {
  const std::string text =
      "kernel { %x = input 0 : f32[4,6] %y = input 1 : f32[4,6] %z = input 2 : f32[4,6] %h = input 3 : f16[4,6] %m = input 4 : bool[4,6]\n "
      "output 0 (" +
      result + ") : f32 }";
  auto g = parse_graph(text, result);
  INFO(text << (g ? "" : g.errors()[0].text));
  REQUIRE(g);
  return *g;
}

struct Law { const char *left, *right; };

void check(const Graph& a, const Graph& b, bool expected, const std::string& what) {
  for (const bool swapped : {false, true}) {
    const Proof p = swapped ? prove(b, a) : prove(a, b);
    INFO(what << (swapped ? " (the other way round)" : "") << ": " << to_string(p));
    CHECK(p.proved == expected);
  }
}
void holds(std::initializer_list<Law> laws) {
  for (const Law& l : laws) check(kernel(l.left), kernel(l.right), true, std::string(l.left) + "  =  " + l.right);
}
void open(std::initializer_list<Law> laws) {
  for (const Law& l : laws) check(kernel(l.left), kernel(l.right), false, std::string(l.left) + "  /=  " + l.right);
}

Graph whole(const std::string& text) {
  auto g = parse_graph(text, "test");
  INFO(text << (g ? "" : g.errors()[0].text));
  REQUIRE(g);
  REQUIRE_FALSE(check_laws(*g));
  return *g;
}

}  // namespace

TEST_CASE("laws: logarithms of exponentials, products, quotients and powers") {
  holds({
      {"log (exp %x)", "%x"},
      {"log (mul (exp %x) (exp %y))", "add %x %y"},
      {"log (div (exp %x) (exp %y))", "sub %x %y"},
      {"log (mul 2 (exp %x))", "add (log 2) %x"},
      {"log 12", "add (mul 2 (log 2)) (log 3)"},
      {"log (sqrt (exp %x))", "mul 0.5 %x"},
      {"log (mul %x (exp %y))", "add (log %x) %y"},  // both are defined where x > 0
      {"log (div %x (exp %y))", "sub (log %x) %y"},
      {"log (mul 4 %x)", "add (mul 2 (log 2)) (log %x)"},
      {"log (mul %x (mul %x %x))", "mul 3 (log %x)"},
      {"log (square (square %x))", "mul 2 (log (square %x))"},
      {"log (mul (square %x) %y)", "add (log (square %x)) (log %y)"},  // x = 0 is a set of measure zero
      {"log (div (exp %x) (reduce.sum 1 (exp %x)))", "sub %x (log (reduce.sum 1 (exp %x)))"},
      {"log (div (exp %x) (reduce.sum 1 (exp %x)))",
       "sub (sub %x (reduce.max 1 %x)) (log (reduce.sum 1 (exp (sub %x (reduce.max 1 %x)))))"},
      {"add (log (reduce.sum 1 (exp (sub %x (reduce.max 1 %x))))) (reduce.max 1 %x)", "log (reduce.sum 1 (exp %x))"},
      {"log (add 1 (exp %x))", "add %x (log (add 1 (exp (neg %x))))"},
      {"log (sigmoid %x)", "sub %x (log (add 1 (exp %x)))"},
      {"log (sigmoid %x)", "neg (log (add 1 (exp (neg %x))))"},
      {"log (mul (add 1 (square %x)) (add 1 (square %y)))", "add (log (add 1 (square %x))) (log (add 1 (square %y)))"},
      {"mul %z (log (div (add 1 (square %x)) (add 2 (square %y))))",
       "sub (mul %z (log (add 1 (square %x)))) (mul %z (log (add 2 (square %y))))"},
      {"exp (mul 3 (log (add 1 (exp %x))))", "mul (add 1 (exp %x)) (square (add 1 (exp %x)))"},
      {"exp (neg (log (add 1 (exp (neg %x)))))", "sigmoid %x"},
      {"exp (mul 0.5 (log (add 1 (square %x))))", "sqrt (add 1 (square %x))"},
  });
  open({
      {"log (mul %x %y)", "add (log %x) (log %y)"},  // both negative: only the left is defined
      {"log (div %x %y)", "sub (log %x) (log %y)"},
      {"log (square %x)", "mul 2 (log %x)"},
      {"exp (log %x)", "%x"},  // undefined for x < 0
      {"mul (exp (log %x)) %y", "mul %x %y"},
      {"log (exp (log %x))", "sub %x (sub %x (log %y))"},
      {"log (add (exp %x) (exp %y))", "add %x %y"},
      {"log (neg %x)", "neg (log %x)"},
      {"log (mul %x (exp %y))", "mul (log %x) %y"},
      {"log (mul -1 (exp %x))", "%x"},
      {"log (exp (exp %x))", "%x"},
      {"log (mul 3 (exp %x))", "add (log 2) %x"},
      {"log (mul (square (relu %x)) %y)", "log (mul (square %x) %y)"},
      {"mul (div %z (log (silu %x))) (log (silu %x))", "%z"},  // undefined for x < 0
      {"mul (div %z (add (log %x) %y)) (add %y (log %x))", "%z"},
      {"exp (log (relu %x))", "relu %x"},  // minus infinity for half of all x
      {"sub (add %x (log (sub %y 100))) (log (sub %y 100))", "%x"},
      {"log (reduce.sum 1 (exp %x))", "reduce.sum 1 %x"},
      {"log (mul (relu %x) %y)", "add (log (relu %x)) (log %y)"},     // relu(x) = 0 and y < 0
      {"sqrt (mul (relu %x) %x)", "mul (sqrt (relu %x)) (sqrt %x)"},  // 0, and undefined
      {"add (log (add 1 (square %x))) (log %y)", "log (mul (add 2 (square %x)) %y)"},
      // the logarithm of z goes
      {"add (mul (log %z) (log (mul (add 1 (square %x)) (add 1 (square %y))))) (sub %x (mul (log %z) (add (log (add 1 (square %x))) (log "
       "(add 1 (square %y))))))",
       "%x"},
  });
}

TEST_CASE("laws: powers") {
  holds({
      {"pow %x 65", "mul %x (square (square (square (square (square (square %x))))))"},
      {"pow %x 128", "square (pow %x 64)"},
      {"pow %x 1000", "mul (pow %x 600) (pow %x 400)"},
      {"pow 1 %x", "add 1 (mul 0 %x)"},
      {"pow (add 1 (mul 0 %y)) %x", "add 1 (sub %y %y)"},
      {"pow (pow %x 10) 10", "pow %x 100"},
      {"pow (neg %x) 101", "neg (pow %x 101)"},
      {"pow (mul 2 %x) 70", "square (pow (mul 2 %x) 35)"},
      {"pow (exp %x) %y", "exp (mul %x %y)"},
      {"mul (pow (exp %x) %y) (pow (exp %x) %z)", "pow (exp %x) (add %y %z)"},
      {"pow (pow (exp %x) %y) %z", "exp (mul %x (mul %y %z))"},
      {"pow 2 (add %x 3)", "mul 8 (pow 2 %x)"},
      {"pow (add 1 (square %x)) 0.5", "sqrt (add 1 (square %x))"},
      {"pow (add 1 (square %x)) -0.5", "rsqrt (add 1 (square %x))"},
      {"mul (pow %x 0.3) (pow %x 0.4)", "mul (pow %x 0.4) (pow %x 0.3)"},
      {"pow (add 1 (exp %x)) 0.3", "exp (mul 0.3 (log (add 1 (exp %x))))"},
      {"mul (pow (add 1 (exp %x)) 0.7) (pow (add 1 (exp %x)) -0.7)", "add 1 (mul 0 %x)"},
      {"mul (sqrt (square %x)) (sqrt (square %y))", "sqrt (square (mul %x %y))"},
      {"pow %x 0.25", "sqrt (sqrt %x)"},
  });
  open({
      {"pow %x 65", "pow %x 64"},
      {"pow (neg %x) 101", "pow %x 101"},
      {"pow (pow %x 0.5) 2", "%x"},                                      // undefined for x < 0
      {"mul (pow %x 0.25) (pow %x 0.75)", "%x"},
      {"pow (pow %x 0.3333333333333333) 3", "%x"},
      {"pow (square %x) 0.5", "%x"},
      {"pow %x %y", "pow %y %x"},
      {"pow 1 (log %x)", "add 1 (mul 0 %x)"},
      {"mul (pow %x %y) (pow %x %z)", "pow %x (add %y %z)"},             // x < 0 and y = z = 1/2, or whole numbers
      {"pow (relu %x) 0.3", "exp (mul 0.3 (log (relu %x)))"},
      {"pow (mul 2 %x) 70", "mul 2 (pow %x 70)"},
      {"pow 2 (add %x 3)", "mul 6 (pow 2 %x)"},
      {"mul (sqrt (square (relu %x))) (sqrt %y)", "sqrt (mul (square (relu %x)) %y)"},
      {"mul (sqrt (relu %x)) (sqrt %y)", "sqrt (mul (relu %x) %y)"},   // relu(x) = 0 and y < 0
      {"mul (sqrt (relu %x)) (sqrt (add %y %z))", "sqrt (add (mul (relu %x) %y) (mul (relu %x) %z))"},
      {"square (pow %x 0.25)", "square (sqrt %x)"},
      {"pow (sqrt %x) 4", "square %x"},
  });
}

TEST_CASE("laws: sigmoid and tanh are exponentials") {
  holds({
      {"tanh %x", "sub (mul 2 (sigmoid (mul 2 %x))) 1"},
      {"tanh %x", "div (sub 1 (exp (mul -2 %x))) (add 1 (exp (mul -2 %x)))"},
      {"tanh %x", "div (sub (exp %x) (exp (neg %x))) (add (exp %x) (exp (neg %x)))"},
      {"tanh %x", "div (sub (exp (mul 2 %x)) 1) (add (exp (mul 2 %x)) 1)"},
      {"sigmoid (neg %x)", "sub 1 (sigmoid %x)"},
      {"sigmoid %x", "mul 0.5 (add 1 (tanh (mul 0.5 %x)))"},
      {"silu %x", "mul (mul 0.5 %x) (add 1 (tanh (mul 0.5 %x)))"},
      {"sub 1 (square (tanh %x))", "mul 4 (mul (sigmoid (mul 2 %x)) (sigmoid (mul -2 %x)))"},
      {"tanh (neg (add %x %y))", "sub 1 (mul 2 (sigmoid (mul 2 (add %x %y))))"},
      {"gelu_tanh %x", "mul %x (sigmoid (mul 2 (mul 0.79788456080286535588 (add %x (mul 0.044715 (mul %x (mul %x %x)))))))"},
      {"reduce.sum 1 (mul %y (tanh %x))", "sub (mul 2 (reduce.sum 1 (mul %y (sigmoid (mul 2 %x))))) (reduce.sum 1 %y)"},
      {"sub (div (sigmoid %x) (sigmoid (neg %x))) (exp %x)", "mul 0 %x"},
  });
  open({
      {"tanh %x", "sub (mul 2 (sigmoid %x)) 1"},
      {"tanh %x", "sub 1 (mul 2 (sigmoid (mul 2 %x)))"},
      {"tanh %x", "div (add 1 (exp (mul -2 %x))) (sub 1 (exp (mul -2 %x)))"},
      {"sigmoid (neg %x)", "neg (sigmoid %x)"},
      {"gelu_tanh %x", "mul %x (sigmoid (mul 1.702 %x))"},
      {"silu %x", "mul %x (add 1 (tanh (mul 0.5 %x)))"},
  });
}

TEST_CASE("laws: casts are odd and monotone, and choose where their operand is chosen") {
  holds({
      {"cast_bf16 (neg %x)", "neg (cast_bf16 %x)"},
      {"cast_f16 (sub %x %y)", "neg (cast_f16 (sub %y %x))"},
      {"cast_bf16 (maximum %x %y)", "maximum (cast_bf16 %x) (cast_bf16 %y)"},
      {"cast_bf16 (minimum %x %y)", "minimum (cast_bf16 %x) (cast_bf16 %y)"},
      {"cast_bf16 (reduce.max 1 %x)", "reduce.max 1 (cast_bf16 %x)"},
      {"cast_f16 (reduce.max 1 (mul 3 %x))", "reduce.max 1 (cast_f16 (mul 3 %x))"},
      {"cast_f16 (add (mul 2 (reduce.sum 1 %y)) (reduce.max 1 %x))", "reduce.max 1 (cast_f16 (add %x (mul 2 (reduce.sum 1 %y))))"},
      {"cast_f16 (relu %x)", "relu (cast_f16 %x)"},
      {"cast_f16 (abs %x)", "abs (cast_f16 %x)"},
      {"cast_f16 (clamp %x -1 1)", "clamp (cast_f16 %x) -1 1"},
      {"cast_f16 (reduce.max 1 %h)", "reduce.max 1 %h"},
      {"cast_bf16 (where %m %x %y)", "where %m (cast_bf16 %x) (cast_bf16 %y)"},
      {"cast_bf16 (where (less (iota 1 [4,6]) 3) %x 0)", "where (less (iota 1 [4,6]) 3) (cast_bf16 %x) 0"},
      {"cast_bf16 (concat 1 %x %y)", "concat 1 (cast_bf16 %x) (cast_bf16 %y)"},
      {"cast_f16 (cast_f16 (neg (maximum %x %y)))", "minimum (cast_f16 (neg %x)) (neg (cast_f16 %y))"},
  });
  open({
      {"cast_bf16 (add %x %y)", "add (cast_bf16 %x) (cast_bf16 %y)"},
      {"cast_bf16 (mul 3 %x)", "mul 3 (cast_bf16 %x)"},
      {"cast_bf16 (maximum %x %y)", "maximum (cast_bf16 %x) (cast_f16 %y)"},
      {"cast_bf16 (minimum %x %y)", "maximum (cast_bf16 %x) (cast_bf16 %y)"},
      {"cast_bf16 (maximum %x %y)", "maximum %x %y"},
      {"cast_bf16 (add (maximum %x %y) (maximum %y %z))",
       "add (maximum (cast_bf16 %x) (cast_bf16 %y)) (maximum (cast_bf16 %y) (cast_bf16 %z))"},
      {"cast_bf16 (reduce.max 1 %x)", "cast_bf16 (reduce.max 0 %x)"},
      {"cast_bf16 (where %m %x %y)", "where %m (cast_bf16 %x) %y"},
      {"cast_bf16 (where (less (iota 1 [4,6]) 3) %x 0)", "where (less (iota 1 [4,6]) 4) (cast_bf16 %x) 0"},
      {"cast_bf16 (mul %z (maximum %x %y))", "maximum (cast_bf16 (mul %z %x)) (cast_bf16 (mul %z %y))"},  // z may be negative
      {"cast_bf16 (neg (maximum %x %y))", "maximum (cast_bf16 (neg %x)) (cast_bf16 (neg %y))"},
  });
}

TEST_CASE("laws: maxima of maxima, also of sets, slices and running ones") {
  holds({
      {"reduce.max 1 (maximum %x %y)", "maximum (reduce.max 1 %x) (reduce.max 1 %y)"},
      {"reduce.max 1 (relu %x)", "relu (reduce.max 1 %x)"},
      {"reduce.max 1 (maximum %x (reduce.max 1 %x))", "reduce.max 1 %x"},
      {"reduce.max 1 (maximum (mul 2 %x) (mul 2 %y))", "mul 2 (maximum (reduce.max 1 %y) (reduce.max 1 %x))"},
      {"maximum (reduce.max 1 (slice 1 0:2 %x)) (reduce.max 1 (slice 1 2:6 %x))", "reduce.max 1 %x"},
      {"reduce.max 0 (reduce.max 1 %x)", "reduce.max 1 (reduce.max 0 %x)"},
  });
  open({
      {"reduce.max 1 (minimum %x %y)", "minimum (reduce.max 1 %x) (reduce.max 1 %y)"},
      {"reduce.max 1 (add %x %y)", "add (reduce.max 1 %x) (reduce.max 1 %y)"},
      {"maximum (reduce.max 1 (slice 1 0:2 %x)) (reduce.max 1 (slice 1 3:6 %x))", "reduce.max 1 %x"},
      {"reduce.max 1 (mul %z (maximum %x %y))", "maximum (reduce.max 1 (mul %z %x)) (reduce.max 1 (mul %z %y))"},
  });
  const auto call = [](const std::string& result, const std::string& type = "f16", int64_t keys = 24) {
    const std::string k = std::to_string(keys);
    return whole("kernel { %x = input 0 : " + type + "[3," + k + "]\n %r = call grid(1,1,1) loop(" + std::to_string((keys + 7) / 8) +
                 ") (%x) {\n %x = input 0 grid(-,-,-) loop(1) : " + type + "[3,8]\n" + result + " }\n output 0 %r : real }");
  };
  const auto plain = [](const std::string& result, const std::string& type = "f16", int64_t keys = 24) {
    return whole("kernel { %x = input 0 : " + type + "[3," + std::to_string(keys) + "]\n output 0 (" + result + ") : real }");
  };
  for (int64_t keys : {24, 21}) {
    const Graph reference = plain("reduce.max 1 %x", "f16", keys), once = call("output 0 (accum.max (reduce.max 1 %x))", "f16", keys);
    check(reference, once, true, "accumulated");
    check(reference, call("output 0 (accum.max (running (reduce.max 1 %x)))", "f16", keys), true, "accumulated of a running maximum");
    check(reference, call("output 0 (accum.max (running (running (reduce.max 1 %x))))", "f16", keys), true, "of one of one");
    check(once, call("output 0 (accum.max (running (reduce.max 1 %x)))", "f16", keys), true, "with and without");
    check(reference, call("output 0 (accum.max (running (reduce.max 1 (neg %x))))", "f16", keys), false, "of something else");
    check(reference, call("output 0 (accum.sum (running (reduce.max 1 %x)))", "f16", keys), false, "a sum of a running maximum");
    check(plain("reduce.max 1 (relu %x)", "f16", keys), call("output 0 (accum.max (running (reduce.max 1 (relu %x))))", "f16", keys), true,
          "of what is not negative");
    check(plain("relu (reduce.max 1 %x)", "f16", keys),
          call("%m = running (reduce.max 1 %x)\n output 0 (accum.max (maximum %m 0))", "f16", keys), true, "a bound within the loop");
  }
  // Below the lowest float32 a running maximum stays there: no value of that size is stored, but a product of real numbers may be.
  check(plain("reduce.max 1 (mul %x %x)", "f32"), call("output 0 (accum.max (running (reduce.max 1 (mul %x %x))))", "f32"), true,
        "squares are not negative");
  check(plain("reduce.max 1 (mul %x (mul %x %x))", "f32"),
        call("output 0 (accum.max (running (reduce.max 1 (mul %x (mul %x %x)))))", "f32"), false, "cubes of float32");
}
