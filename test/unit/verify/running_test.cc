// Running maxima in the verifier: what telescopes is Equal whatever the maxima are; a dropped rescale, a wrong degree, another maximum, a
// lost shift are Different.
#include <algorithm>
#include <catch2/catch.hpp>

#include "mirage/spec/text.h"
#include "mirage/ir/program.h"
#include "unit/verify/graphs.h"

using namespace mirage;
using namespace mirage::test;

namespace {

Graph graph(std::string text, const std::string& from = "", const std::string& to = "") {
  if (!from.empty()) {
    REQUIRE(text.find(from) != std::string::npos);
    text.replace(text.find(from), from.size(), to);
  }
  auto g = parse_graph(text, "test");
  REQUIRE(g);
  REQUIRE_FALSE(check_laws(*g));
  return *g;
}

const std::string kReference = R"(kernel { %q = input 0 : f16[3,4] %k = input 1 : f16[4,7] %v = input 2 : f16[7,5]
  %s = matmul %q %k
  %e = exp (sub %s (reduce.max 1 %s))
  output 0 (matmul (div %e (reduce.sum 1 %e)) %v) : f16
  output 1 (div (reduce.sum 1 (square %e)) (square (reduce.sum 1 %e))) : f16
})";

const std::string kFlash = R"(kernel { %q = input 0 : f16[3,4] %k = input 1 : f16[4,7] %v = input 2 : f16[7,5]
  %o, %p = call grid(1,1,1) loop(3) (%q, %k, %v) {
    %q = input 0 grid(-,-,-) loop(-) : f16[3,4] %k = input 1 grid(-,-,-) loop(1) : f16[4,3] %v = input 2 grid(-,-,-) loop(0) : f16[3,5]
    %s = matmul %q %k
    %m = running (reduce.max 1 %s)
    %e = exp (sub %s %m)
    %a = accum.sum rescaled 1 (matmul %e %v) %m
    %l = accum.sum rescaled 1 (reduce.sum 1 %e) %m
    %z = accum.sum rescaled 2 (reduce.sum 1 (square %e)) %m
    output 0 (div %a %l)
    output 1 (div %z (square %l))
  }
  output 0 %o : f16 output 1 %p : f16
})";

/// Keys split over three blocks; each gives its sums at its own maximum, the second kernel brings them to the common one.
const std::string kSplit = R"(kernel { %q = input 0 : f16[3,4] %k = input 1 : f16[4,7] %v = input 2 : f16[7,5]
  %o, %l, %m = call grid(2,1,1) loop(2) (%q, %k, %v) {
    %q = input 0 grid(-,-,-) loop(-) : f16[3,4] %k = input 1 grid(1,-,-) loop(1) : f16[4,2] %v = input 2 grid(0,-,-) loop(0) : f16[2,5]
    %s = matmul %q %k
    %m = running (reduce.max 1 %s)
    %e = exp (sub %s %m)
    output 0 (reshape [1,3,5] (accum.sum rescaled 1 (matmul %e %v) %m)) grid(0,-,-)
    output 1 (reshape [1,3,1] (accum.sum rescaled 1 (reduce.sum 1 %e) %m)) grid(0,-,-)
    output 2 (reshape [1,3,1] (accum.max %m)) grid(0,-,-)
  }
  %c = call grid(1,1,1) loop(1) (%o, %l, %m) {
    %o = input 0 : real[2,3,5] %l = input 1 : real[2,3,1] %m = input 2 : real[2,3,1]
    %f = exp (sub %m (reduce.max 0 %m))
    output 0 (reshape [3,5] (div (reduce.sum 0 (mul %o %f)) (reduce.sum 0 (mul %l %f))))
  }
  output 0 %c : f16
})";

const std::string kSoftmaxV = R"(kernel { %q = input 0 : f16[3,4] %k = input 1 : f16[4,7] %v = input 2 : f16[7,5]
  %s = matmul %q %k
  %e = exp (sub %s (reduce.max 1 %s))
  output 0 (matmul (div %e (reduce.sum 1 %e)) %v) : f16
})";

auto kind_of(const Graph& a, const Graph& b) { return equal(a, b, 11).kind; }

}  // namespace

TEST_CASE("a stable flash loop equals the softmax, whatever its running maximum is") {
  const Verdict v = equal(graph(kReference), graph(kFlash), 3);
  REQUIRE(v.kind == Verdict::Kind::kEqual);
  CHECK(std::find(v.evidence.uninterpreted.begin(), v.evidence.uninterpreted.end(), "running maximum") != v.evidence.uninterpreted.end());
}

TEST_CASE("a running maximum of something else is not trusted to be defined") {
  for (const char* other : {"running (reduce.sum 1 %s)", "running (rsqrt (reduce.max 1 %s))", "running (reduce.max 1 (sqrt %s))"})
    CHECK(kind_of(graph(kReference), graph(kFlash, "running (reduce.max 1 %s)", other)) != Verdict::Kind::kEqual);
}

TEST_CASE("split keys: partial sums travel with their maximum") {
  CHECK(kind_of(graph(kSoftmaxV), graph(kSplit)) == Verdict::Kind::kEqual);
  CHECK(kind_of(graph(kSoftmaxV), graph(kSplit, "(mul %o %f)", "%o")) == Verdict::Kind::kDifferent);
  CHECK(kind_of(graph(kSoftmaxV), graph(kSplit, "(mul %l %f)", "%l")) == Verdict::Kind::kDifferent);
  CHECK(kind_of(graph(kSoftmaxV), graph(kSplit, "(sub %m (reduce.max 0 %m))", "(sub (reduce.max 0 %m) %m)")) == Verdict::Kind::kDifferent);
  CHECK(kind_of(graph(kSoftmaxV), graph(kSplit, "(accum.max %m)", "(accum.sum %m)")) == Verdict::Kind::kDifferent);
  // any common shift cancels
  CHECK(kind_of(graph(kSoftmaxV), graph(kSplit, "(reduce.max 0 %m)", "(reduce.sum 0 %m)")) == Verdict::Kind::kEqual);
}

TEST_CASE("the numeric check wants the shift, in float16 and bfloat16") {
  std::string plain = kSplit;   // the same structures without maxima
  for (auto [from, to] : {std::pair{"exp (sub %s %m)", "exp %s"}, {"accum.sum rescaled 1 (matmul %e %v) %m", "accum.sum (matmul %e %v)"},
                          {"accum.sum rescaled 1 (reduce.sum 1 %e) %m", "accum.sum (reduce.sum 1 %e)"},
                          {"%m = running (reduce.max 1 %s)", ""}, {"output 2 (reshape [1,3,1] (accum.max %m)) grid(0,-,-)", ""},
                          {"%o, %l, %m = call", "%o, %l = call"}, {"(%o, %l, %m) {", "(%o, %l) {"},
                          {"%m = input 2 : real[2,3,1]", ""}, {"%f = exp (sub %m (reduce.max 0 %m))", ""}, {"(mul %o %f)", "%o"},
                          {"(mul %l %f)", "%l"}}) {
    REQUIRE(plain.find(from) != std::string::npos);
    plain.replace(plain.find(from), std::string(from).size(), to);
  }
  for (const char* type : {"f16", "bf16"}) {
    auto typed = [&](std::string text) {
      for (size_t i = 0; (i = text.find("f16", i)) != std::string::npos; i += std::string(type).size()) text.replace(i, 3, type);
      return graph(text);
    };
    const Graph reference = typed(kSoftmaxV);
    Program program;
    program.graph = reference;
    for (NodeId n : reference.inputs())
      program.inputs.push_back(
          {"x", reference.type(reference.node(n).first_value), row_major_strides(reference.dims(reference.node(n).first_value)), {}});
    const NumericReport stable = check_numerics(reference, typed(kSplit), program, 1),
                        unstable = check_numerics(reference, typed(plain), program, 1);
    CHECK(stable.reason == "");
    CHECK(stable.ok);
    CHECK(std::any_of(stable.cases.begin(), stable.cases.end(),
                      [](const NumericCase& c) { return c.distribution == "logits" && c.nan_agree; }));
    CHECK_FALSE(unstable.ok);
    CHECK(equal(reference, typed(plain), 1).kind == Verdict::Kind::kEqual);   // only numbers tell them apart
  }
}

TEST_CASE("mutants of a stable loop are Different") {
  const Graph reference = graph(kReference);
  const std::pair<const char*, const char*> mutants[] = {
      {"accum.sum rescaled 1 (matmul %e %v) %m", "accum.sum (matmul %e %v)"},                    // a dropped rescale
      {"accum.sum rescaled 1 (reduce.sum 1 %e) %m", "accum.sum (reduce.sum 1 %e)"},
      {"accum.sum rescaled 2 (reduce.sum 1 (square %e)) %m", "accum.sum (reduce.sum 1 (square %e))"},
      {"rescaled 1 (matmul %e %v)", "rescaled 2 (matmul %e %v)"},                                // a wrong degree
      {"rescaled 1 (reduce.sum 1 %e)", "rescaled 2 (reduce.sum 1 %e)"},
      {"rescaled 2 (reduce.sum 1 (square %e))", "rescaled 1 (reduce.sum 1 (square %e))"},
      {"exp (sub %s %m)", "exp %s"},                                                             // a shift that is not there
      {"exp (sub %s %m)", "exp (add %s %m)"},
      {"exp (sub %s %m)", "exp (sub %s (reduce.max 1 %s))"},                                     // the tile's maximum, not the running one
      {"(square %e)", "(square (exp %s))"},
      {"output 1 (div %z (square %l))", "output 1 (div %z %l)"},                                 // not of degree 0
  };
  for (auto [from, to] : mutants) {
    INFO(from << " -> " << to);
    CHECK(kind_of(reference, graph(kFlash, from, to)) == Verdict::Kind::kDifferent);
  }
}
