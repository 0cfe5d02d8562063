// Shifts of exponentials: which cancel, where they come back, what is left alone.
#include <catch2/catch.hpp>
#include <cmath>

#include "mirage/ir/eval.h"
#include "mirage/ir/stabilize.h"
#include "mirage/spec/text.h"
#include "mirage/support/hash.h"

using namespace mirage;

namespace {

Graph graph(const std::string& text) {
  auto g = parse_graph(text, "test");
  REQUIRE(g);
  REQUIRE_FALSE(check_laws(*g));
  return *g;
}

template <class F> int count_in(const Graph& g, F&& f) {
  int n = 0;
  for (const Node& node : g.nodes()) {
    n += f(node.op);
    if (const auto* c = std::get_if<Call>(&node.op)) n += count_in(*c->body, f);
  }
  return n;
}
int maxima(const Graph& g) {
  return count_in(g, [](const Op& op) {
    const auto* r = std::get_if<Reduce>(&op);
    return r && r->fn == ReduceFn::kMax;
  });
}
int runnings(const Graph& g) { return count_in(g, [](const Op& op) { return std::holds_alternative<Running>(op); }); }
int rescaled(const Graph& g, int degree) {
  return count_in(g, [&](const Op& op) {
    const auto* a = std::get_if<Accum>(&op);
    return a && a->degree == degree;
  });
}

std::vector<Tensor<double>> run(const Graph& g, double scale) {
  Rng rng(5);
  std::vector<Tensor<double>> in(static_cast<size_t>(g.num_params()));
  for (NodeId n : g.inputs()) {
    Tensor<double> t(g.dims(g.node(n).first_value), 0);
    for (double& x : t.data) x = (rng.uniform() * 2 - 1) * scale;
    in[static_cast<size_t>(g.form<Input>(n)->param)] = t;
  }
  DoubleAlgebra a;
  return evaluate(g, std::span<const Tensor<double>>(in), a);
}

/// The same results, and finite ones where g overflows.
void check_stable(const Graph& g, const Graph& stable) {
  const auto x = run(g, 1), y = run(stable, 1), z = run(stable, 200);
  REQUIRE(x.size() == y.size());
  for (size_t r = 0; r < x.size(); r++) {
    REQUIRE(x[r].dims == y[r].dims);
    for (size_t i = 0; i < x[r].data.size(); i++) CHECK(y[r].data[i] == Approx(x[r].data[i]).epsilon(1e-9));
    for (double v : z[r].data) CHECK(std::isfinite(v));
  }
}

const char* kSoftmax = R"(kernel { %x = input 0 : f16[2,3,5] %v = input 1 : f16[2,5,4]
  %e = exp (sub %x (reduce.max 2 %x))
  output 0 (matmul (div %e (reduce.sum 2 %e)) %v) : f16 })";

std::string flash(const std::string& body, const std::string& outputs = "output 0 %y : f16", const std::string& e = "exp %s") {
  return "kernel { %q = input 0 : f16[3,4] %k = input 1 : f16[4,7] %v = input 2 : f16[7,5] %y = call grid(1,1,1) loop(3) (%q, %k, %v) {\n"
         "%q = input 0 grid(-,-,-) loop(-) : f16[3,4] %k = input 1 grid(-,-,-) loop(1) : f16[4,3] %v = input 2 grid(-,-,-) loop(0) : "
         "f16[3,5] %s = matmul %q %k %e = " +
         e + "\n" + body + " } " + outputs + " }";
}

}  // namespace

TEST_CASE("unshift drops a softmax's maximum and nothing that matters", "[stabilize]") {
  const Graph g = graph(kSoftmax), u = unshift(g);
  CHECK(maxima(u) == 0);
  const auto x = run(g, 1), y = run(u, 1);
  for (size_t i = 0; i < x[0].data.size(); i++) CHECK(y[0].data[i] == Approx(x[0].data[i]));
  // The maximum is a result itself, or does not cancel: it stays.
  CHECK(maxima(unshift(graph("kernel { %x = input 0 : f16[3,5] output 0 (exp (sub %x (reduce.max 1 %x))) : f16 }"))) == 1);
  CHECK(maxima(unshift(graph(
            "kernel { %x = input 0 : f16[3,5] %e = exp (sub %x (reduce.max 1 %x)) output 0 (div %e (add 1 (reduce.sum 1 %e))) : f16 }"))) ==
        1);
  CHECK(maxima(unshift(graph("kernel { %x = input 0 : f16[3,5] %m = reduce.max 1 %x %e = exp (sub %x %m) output 0 (div %e (reduce.sum 1 "
                             "%e)) : f16 output 1 %m : f16 }"))) == 1);
  CHECK(unshift(graph("kernel { %x = input 0 : f16[3,5] %m = reduce.max 1 %x %e = exp (sub %x %m) output 0 (div %e (reduce.sum 1 %e)) : "
                      "f16 output 1 %m : f16 }")) == graph("kernel { %x = input 0 : f16[3,5] %m = reduce.max 1 %x %e = exp %x output 0 "
                                                           "(div %e (reduce.sum 1 %e)) : f16 output 1 %m : f16 }"));
}

TEST_CASE("a flash loop gets a running maximum and rescaled accumulators", "[stabilize]") {
  const Graph g = graph(flash("output 0 (div (accum.sum (matmul %e %v)) (accum.sum (reduce.sum 1 %e)))"));
  const auto s = stabilize(g);
  REQUIRE(s);
  CHECK(runnings(*s) == 1);
  CHECK(rescaled(*s, 1) == 2);
  check_stable(g, *s);
  CHECK_FALSE(stabilize(*s));   // nothing is left to do
}

TEST_CASE("a loop's sum that meets another exponential behind the loop is shifted with it", "[stabilize]") {
  // a sink: one logit more for each row, which has no value; its row may be far above all others or far below
  const Graph g = graph(
      "kernel { %q = input 0 : f16[3,4] %k = input 1 : f16[4,7] %v = input 2 : f16[7,5] %t = input 3 : f32[3,1] "
      "%y = call grid(1,1,1) loop(3) (%q, %k, %v, %t) { %q = input 0 : f16[3,4] %k = input 1 loop(1) : f16[4,3] "
      "%v = input 2 loop(0) : f16[3,5] %t = input 3 : f32[3,1] %e = exp (matmul %q %k) "
      "output 0 (div (accum.sum (matmul %e %v)) (add (exp %t) (accum.sum (reduce.sum 1 %e)))) } output 0 %y : f16 }");
  const auto s = stabilize(g);
  REQUIRE(s);
  CHECK(runnings(*s) == 1);
  CHECK(rescaled(*s, 1) == 2);
  CHECK(maxima(*s) == 1);   // of what has one element none is taken
  check_stable(g, *s);
  CHECK_FALSE(stabilize(*s));
  // 1 is an exponential of nothing that could be shifted
  CHECK_FALSE(stabilize(graph(flash("output 0 (div (accum.sum (matmul %e %v)) (add (const 1) (accum.sum (reduce.sum 1 %e))))"))));
}

TEST_CASE("a maximum may be either operand of the one that is subtracted", "[stabilize]") {
  for (const char* m : {"maximum (reduce.max 1 %x) %t", "maximum %t (reduce.max 1 %x)"}) {
    const Graph g = graph("kernel { %x = input 0 : f16[3,5] %t = input 1 : f16[3,1] %m = " + std::string(m) +
                          " %e = exp (sub %x %m) output 0 (div %e (add (exp (sub %t %m)) (reduce.sum 1 %e))) : f16 }");
    CHECK(maxima(unshift(g)) == 0);
  }
}

TEST_CASE("degrees: squares, what is free of the exponential, what is not homogeneous", "[stabilize]") {
  const Graph squares =
      graph(flash("%z = accum.sum (reduce.sum 1 (square %e)) %l = accum.sum (reduce.sum 1 %e) %n = accum.sum (reduce.sum 1 %s) output 0 "
                  "(mul (add (div %z (square %l)) %n) (div (accum.sum (matmul %e %v)) %l))"));
  const auto s = stabilize(squares);
  REQUIRE(s);
  CHECK(rescaled(*s, 1) == 2);
  CHECK(rescaled(*s, 2) == 1);
  CHECK(rescaled(*s, 0) == 1);
  check_stable(squares, *s);
  // degree 1 leaves the program
  CHECK_FALSE(stabilize(graph(flash("output 0 (accum.sum (matmul %e %v))"))));
  // 1 does not scale
  CHECK_FALSE(stabilize(graph(flash("output 0 (div (accum.sum (matmul %e %v)) (accum.sum (reduce.sum 1 (add %e 1))))"))));
  // one maximum for all rows will do
  CHECK(stabilize(graph(flash("output 0 (div (accum.sum (reduce.sum 0 (matmul %e %v))) (reduce.sum 0 (accum.sum (reduce.sum 1 %e))))")))
            .has_value());
  // degree -1
  CHECK_FALSE(stabilize(graph(flash("output 0 (div (accum.sum (matmul %e %v)) (accum.sum (reduce.sum 1 (square %e))))"))));
}

TEST_CASE("rows that are summed share a maximum", "[stabilize]") {
  const Graph g = graph(
      "kernel { %x = input 0 : f16[3,6] %y = call grid(1,1,1) loop(1) (%x) { %x = input 0 : f16[3,6] %e = exp %x output 0 (div %e "
      "(reduce.sum 0 (reduce.sum 1 %e))) } output 0 %y : f16 }");
  const auto s = stabilize(g);
  REQUIRE(s);
  CHECK(maxima(*s) == 2);
  check_stable(g, *s);
}

TEST_CASE("partial results leave a kernel with their maximum", "[stabilize]") {
  const char* combine_in_call =
      R"(%c = call grid(1,1,1) loop(1) (%o, %l) { %o = input 0 : real[2,3,5] %l = input 1 : real[2,3,1] output 0 (div (reduce.sum 0 %o) )"
      R"((reduce.sum 0 %l)) } output 0 %c : f16 })";
  const char* combine_in_loop =
      R"(%c = call grid(1,1,1) loop(2) (%o, %l) { %o = input 0 loop(0) : real[1,3,5] %l = input 1 loop(0) : real[1,3,1] output 0 (div )"
      R"((accum.sum %o) (accum.sum %l)) } output 0 %c : f16 })";
  const char* combine_outside = R"(output 0 (div (reduce.sum 0 %o) (reduce.sum 0 %l)) : f16 })";
  for (const char* combine : {combine_in_call, combine_in_loop, combine_outside}) {
    const Graph g = graph(std::string(R"(kernel { %q = input 0 : f16[3,4] %k = input 1 : f16[4,7] %v = input 2 : f16[7,5]
      %o, %l = call grid(2,1,1) loop(2) (%q, %k, %v) {
        %q = input 0 grid(-,-,-) loop(-) : f16[3,4] %k = input 1 grid(1,-,-) loop(1) : f16[4,2] %v = input 2 grid(0,-,-) loop(0) : f16[2,5]
        %e = exp (matmul %q %k)
        output 0 (reshape [1,3,5] (accum.sum (matmul %e %v))) grid(0,-,-)
        output 1 (reshape [1,3,1] (accum.sum (reduce.sum 1 %e))) grid(0,-,-)
      }
      )") + combine);
    const auto s = stabilize(g);
    REQUIRE(s);
    CHECK(runnings(*s) == 1 + (combine == combine_in_loop));
    check_stable(g, *s);
  }
}

TEST_CASE("exponentials that are added share a shift", "[stabilize]") {
  const Graph g = graph(
      "kernel { %x = input 0 : f16[3,6] %z = input 1 : f16[3,6] %y = call grid(1,1,1) loop(3) (%x, %z) { %a = input 0 loop(1) : f16[3,2] "
      "%b = input 1 loop(1) : f16[3,2] %e = exp %a %f = exp %b "
      "output 0 (div (accum.sum (reduce.sum 1 %e)) (accum.sum (reduce.sum 1 (add %e %f)))) } output 0 %y : f16 }");
  const auto s = stabilize(g);
  REQUIRE(s);
  CHECK(runnings(*s) == 1);
  CHECK(rescaled(*s, 1) == 2);
  check_stable(g, *s);
}

TEST_CASE("causal masks: rows that are masked in the first tiles", "[stabilize]") {
  const Graph g = graph(flash("output 0 (div (accum.sum (matmul %e %v)) (accum.sum (reduce.sum 1 %e)))", "output 0 %y : f16",
                              "exp (where (less %s 0) -inf %s)"));
  const auto s = stabilize(g);
  REQUIRE(s);
  const auto out = run(*s, 1);
  const auto want = run(g, 1);
  for (size_t i = 0; i < out[0].data.size(); i++) {
    if (std::isnan(want[0].data[i])) CHECK(std::isnan(out[0].data[i]));
    else CHECK(out[0].data[i] == Approx(want[0].data[i]));
  }
}
