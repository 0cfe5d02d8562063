// Running maxima and rescaled accumulators: their meaning in doubles, rows that are masked so far, ragged tails, laws, and the text form.
#include <catch2/catch.hpp>
#include <cmath>

#include "mirage/ir/eval.h"
#include "mirage/spec/text.h"
#include "mirage/support/hash.h"

using namespace mirage;

namespace {

using Real = Tensor<double>;

std::vector<Real> run(const char* text, std::vector<Real> in) {
  auto g = parse_graph(text, "test");
  REQUIRE(g);
  REQUIRE_FALSE(check_laws(*g));
  DoubleAlgebra a;
  return evaluate(*g, std::span<const Real>(in), a);
}

std::string why_not(const char* text) {
  auto g = parse_graph(text, "test");
  if (!g) return g.errors()[0].text;
  return check_laws(*g).value_or("");
}

Real tensor(Dims d, std::vector<double> x) { Real t(d, 0); t.data = std::move(x); return t; }

// Rows of 7 in tiles of 3: sums of exp and of its square, shifted and rescaled, and the maximum; then what they are without a shift.
const char* kSums = R"(kernel {
  %x = input 0 : f32[2,7]
  %s, %q, %m = call grid(1,1,1) loop(3) (%x) {
    %a = input 0 grid(-,-,-) loop(1) : f32[2,3]
    %m = running (reduce.max 1 %a)
    %e = exp (sub %a %m)
    %s = accum.sum rescaled 1 (reduce.sum 1 %e) %m
    %q = accum.sum rescaled 2 (reduce.sum 1 (square %e)) %m
    %l = accum.max %m
    output 0 %s
    output 1 %q
    output 2 %l
  }
  output 0 %s
  output 1 %q
  output 2 %m
})";

}  // namespace

TEST_CASE("a rescaled accumulator is the sum shifted by the last maximum", "[eval]") {
  for (double scale : {1.0, 1e4}) {
    Rng rng(7);
    Real x({2, 7}, 0);
    for (double& v : x.data) v = (rng.uniform() * 2 - 1) * scale;
    const auto out = run(kSums, {x});
    for (int64_t r = 0; r < 2; r++) {
      double m = -INFINITY, s = 0, q = 0;
      for (int64_t i = 0; i < 7; i++) m = std::max(m, x.data[static_cast<size_t>(r * 7 + i)]);
      for (int64_t i = 0; i < 7; i++) { const double e = std::exp(x.data[static_cast<size_t>(r * 7 + i)] - m); s += e; q += e * e; }
      const auto at = static_cast<size_t>(r);
      CHECK(out[0].data[at] == Approx(s).epsilon(1e-12));
      CHECK(out[1].data[at] == Approx(q).epsilon(1e-12));
      CHECK(out[2].data[at] == m);
    }
  }
}

TEST_CASE("what is masked so far is 0, never NaN", "[eval]") {
  const double no = -INFINITY;
  // masked in the first tile; masked altogether
  const auto out = run(kSums, {tensor({2, 7}, {no, no, no, no, -5e4, -5e4 - 1, no, no, no, no, no, no, no, no})});
  CHECK(out[0].data[0] == Approx(1 + std::exp(-1)));
  CHECK(out[2].data[0] == -5e4);
  CHECK(out[0].data[1] == 0);
  CHECK(out[1].data[1] == 0);
  CHECK(out[2].data[1] == kRunningStart);
}

TEST_CASE("ragged tails: elements that the last tile lacks keep their maximum, and are rescaled where their maximum grew", "[eval]") {
  // Columns stay apart: 5 of them in tiles of 3. In the first accumulator each has a maximum of its own, in the second its row's.
  const auto out = run(R"(kernel {
    %x = input 0 : f32[1,5]
    %a, %b = call grid(1,1,1) loop(2) (%x) {
      %t = input 0 grid(-,-,-) loop(1) : f32[1,3]
      %m = running %t
      %r = running (reduce.max 1 %t)
      output 0 (accum.sum rescaled 1 (exp (sub %t %m)) %m)
      output 1 (accum.sum rescaled 1 (exp (sub %t %r)) %r)
    }
    output 0 %a
    output 1 %b
  })", {tensor({1, 5}, {1, 2, 3, 4, 1})});
  CHECK(out[0].data[0] == Approx(std::exp(1 - 4.0) + 1));   // maxima 4, 2, 3
  CHECK(out[0].data[1] == Approx(1 + std::exp(1 - 2.0)));
  CHECK(out[0].data[2] == 1);
  CHECK(out[1].data[0] == Approx(std::exp(1 - 4.0) + 1));   // one maximum of 4
  CHECK(out[1].data[1] == Approx(std::exp(2 - 4.0) + std::exp(1 - 4.0)));
  CHECK(out[1].data[2] == Approx(std::exp(3 - 4.0)));
}

TEST_CASE("laws of running maxima and rescaled accumulators", "[laws]") {
  auto in_body = [](const std::string& body) {
    const std::string text =
        "kernel { %x = input 0 : f32[2,6] %y = call grid(1,1,1) loop(2) (%x) { %a = input 0 grid(-,-,-) loop(1) : f32[2,3] " + body +
        " } output 0 %y }";
    return why_not(text.c_str());
  };
  CHECK(in_body("%m = running (reduce.max 1 %a) output 0 (accum.sum rescaled 1 (reduce.sum 1 %a) %m)") == "");
  CHECK(in_body("%m = running (reduce.max 1 %a) output 0 %m").find("law 4") != std::string::npos);
  CHECK(in_body("%m = reduce.max 1 %a output 0 (accum.sum rescaled 1 (reduce.sum 1 %a) %m)").find("not a running maximum") !=
        std::string::npos);
  CHECK(in_body("%m = running (accum.sum %a) output 0 %m").find("does not split") != std::string::npos);
  CHECK(in_body("%m = running (reduce.max 1 %a) output 0 (accum.max rescaled 1 (reduce.sum 1 %a) %m)").find("only a sum") !=
        std::string::npos);
  CHECK(in_body("%m = running %a output 0 (accum.sum rescaled 1 (reduce.sum 1 %a) %m)").find("does not broadcast") != std::string::npos);
  CHECK(in_body("%m = running (reduce.max 1 %a) output 0 (accum.sum rescaled 0 (reduce.sum 1 %a) %m)") != "");
  CHECK(why_not("kernel { %x = input 0 : f32[2,6] output 0 (running %x) }").find("block graphs only") != std::string::npos);
}

TEST_CASE("the text form of running maxima reads back", "[text]") {
  auto g = parse_graph(kSums, "test");
  REQUIRE(g);
  const std::string text = print(*g);
  CHECK(text.find("= running %1") != std::string::npos);
  CHECK(text.find("= accum.sum rescaled 2 %") != std::string::npos);
  auto back = parse_graph(text, "test");
  REQUIRE(back);
  CHECK(*back == *g);
  Graph other = *g;
  CHECK(other.hash() == g->hash());
  std::string degree = text;
  degree.replace(degree.find("rescaled 2"), 10, "rescaled 1");
  auto changed = parse_graph(degree, "test");
  REQUIRE(changed);
  CHECK_FALSE(*changed == *g);
  CHECK(changed->hash() != g->hash());
  CHECK(dot(*g).find("accum.sum rescaled 2") != std::string::npos);
}
