// Folding of adjacent dimensions: the same numbers at the same addresses, whatever the program does with its dimensions; and what is joined
// in programs people write.
#include <cmath>
#include <map>

#include <catch2/catch.hpp>

#include "ir/fold/borders.h"
#include "mirage/ir/eval.h"
#include "mirage/ir/fold.h"
#include "mirage/spec/text.h"
#include "unit/ir/fold_programs.h"

using namespace mirage;
using namespace mirage::test;

namespace {

template <class F> void places(const TensorInfo& t, F f) {
  eval_detail::walk<1>(t.type.dims, {t.strides}, [&](const std::array<int64_t, 1>& at) { f(at[0]); });
}

using Memory = std::map<int64_t, double>;

/// The graph's results as they lie in memory, from inputs that lie in memory.
std::vector<Memory> run(const Program& p, const Graph& g, const std::vector<Memory>& inputs) {
  std::vector<Tensor<double>> params;
  for (size_t i = 0; i < p.inputs.size(); i++) {
    params.emplace_back();
    params.back().dims = p.inputs[i].type.dims;
    places(p.inputs[i], [&](int64_t at) { params.back().data.push_back(inputs[i].at(at)); });
  }
  DoubleAlgebra a;
  const auto results = evaluate(g, std::span<const Tensor<double>>(params), a);
  std::vector<Memory> out;
  for (size_t r = 0; r < results.size(); r++) {
    REQUIRE(results[r].dims == p.outputs[r].type.dims);
    out.emplace_back();
    size_t i = 0;
    places(p.outputs[r], [&](int64_t at) { out.back()[at] = results[r].data[i++]; });
  }
  return out;
}

bool same(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= 1e-9 * std::max({1.0, std::fabs(a), std::fabs(b)});
}

Folded folded(const std::string& text) {
  auto g = parse_graph(text);
  INFO((g ? "" : g.errors().front().text));
  REQUIRE(g.ok());
  return fold(program_around(*g, nullptr));
}
/// Extents of the inputs, then of the outputs.
std::string shapes(const Program& p) {
  std::string out;
  for (const auto* list : {&p.inputs, &p.outputs}) for (const TensorInfo& t : *list) out += to_string(t.type.dims);
  return out;
}

}  // namespace

/// The folded program's results at the addresses of p's; how many elements.
static int compare(const Program& p, const Folded& f, Rng& rng) {
  int compared = 0;
  std::vector<Memory> inputs;
  for (const TensorInfo& t : p.inputs) {
    inputs.emplace_back();
    places(t, [&](int64_t at) { inputs.back()[at] = 4 * rng.uniform() - 2; });
  }
  const std::vector<Memory> want = run(p, p.graph, inputs), got = run(f.program, f.program.graph, inputs);
  REQUIRE(want.size() == got.size());
  for (size_t r = 0; r < want.size(); r++) {
    REQUIRE(want[r].size() == got[r].size());
    for (auto a = want[r].begin(), b = got[r].begin(); a != want[r].end(); a++, b++) {
      INFO("result " << r << " at " << a->first << ": " << a->second << " became " << b->second << " at " << b->first);
      const bool equal = a->first == b->first && same(a->second, b->second);
      REQUIRE(equal);
      compared++;
    }
  }
  const Graph back = f.unfold(f.program.graph);
  REQUIRE_FALSE(check_laws(back));
  REQUIRE_FALSE(check_extents(back));
  const auto again = f.refold(back);
  REQUIRE(again);
  REQUIRE(*again == f.program.graph);
  return compared;
}

TEST_CASE("a folded program computes the same at the same addresses") {
  int folds = 0, strided = 0, compared = 0;
  for (uint64_t seed = 0; seed < 2500; seed++) {
    const Graph g = FoldPrograms(seed).make();
    Rng rng(seed);
    const Program p = program_around(g, &rng);
    const Folded f = fold(p);
    INFO("seed " << seed << "\n" << print(g) << (f.folds ? print(f.program.graph) : ""));
    if (!f.folds) {
      REQUIRE(f.program.graph == g);
      continue;
    }
    folds++;
    REQUIRE_FALSE(check_laws(f.program.graph));
    REQUIRE_FALSE(check_extents(f.program.graph));
    for (const TensorInfo& t : p.inputs) strided += !(t.strides == row_major_strides(t.type.dims));
    compared += compare(p, f, rng);
  }
  INFO(folds << " fold, " << strided << " strided inputs, " << compared << " elements");
  REQUIRE(folds > 500);
  REQUIRE(strided > 120);
}

TEST_CASE("attention with groups of heads is attention over their products") {
  const Folded f = folded(R"(kernel gqa {
    %q = input 0 : f16[2,2,4,8,16]    %k = input 1 : f16[2,2,1,32,16]    %v = input 2 : f16[2,2,1,32,16]
    %s = matmul %q (transpose (0,1,2,4,3) %k)
    %e = exp (sub %s (reduce.max 4 %s))
    output 0 (matmul (div %e (reduce.sum 4 %e)) %v) : f16 })");
  REQUIRE(f.folds);
  REQUIRE(shapes(f.program) == "[4,32,16][4,32,16][4,32,16][4,32,16]");
  REQUIRE(f.program.graph == *parse_graph(R"(kernel gqa {
    %q = input 0 : f16[4,32,16]    %k = input 1 : f16[4,32,16]    %v = input 2 : f16[4,32,16]
    %s = matmul %q (transpose (0,2,1) %k)
    %e = exp (sub %s (reduce.max 2 %s))
    output 0 (matmul (div %e (reduce.sum 2 %e)) %v) : f16 })"));
}

TEST_CASE("what tells two dimensions apart keeps them apart") {
  auto shape = [](const std::string& body) {
    const Folded f = folded("kernel k { " + body + " }");
    return f.folds ? shapes(f.program) : "";
  };
  CHECK(shape("%x = input 0 : f16[2,3,4] output 0 (exp %x) : f16") == "[24][24]");
  CHECK(shape("%x = input 0 : f16[2,3,4] output 0 (reduce.sum 2 %x) : f16") == "[6,4][6,1]");
  CHECK(shape("%x = input 0 : f16[2,3,4] output 0 (reduce.sum 1 %x) : f16") == "");
  CHECK(shape("%x = input 0 : f16[2,3,4] output 0 (reduce.sum 2 (reduce.sum 1 %x)) : f16") == "[2,12][2,1]");
  // somebody else reads what lies between
  CHECK(shape("%x = input 0 : f16[2,3,4] %s = reduce.sum 1 %x output 0 (reduce.sum 2 %s) : f16 output 1 (exp %s) : f16") == "");
  CHECK(shape("%x = input 0 : f16[2,3,4] output 0 (reduce.sum 2 (reduce.max 1 %x)) : f16") == "");
  CHECK(shape("%x = input 0 : f16[2,3,4] output 0 (slice 1 0:2 %x) : f16") == "");
  CHECK(shape("%x = input 0 : f16[2,3,4] output 0 (slice 2 0:2 %x) : f16") == "[6,4][6,2]");
  CHECK(shape("%x = input 0 : f16[2,3,4] output 0 (add %x (iota 1 [2,3,4])) : f16") == "");
  CHECK(shape("%x = input 0 : f16[2,3,4] output 0 (add %x (iota 2 [2,3,4])) : f16") == "[6,4][6,4]");
  CHECK(shape("%x = input 0 : f16[2,3,4] %y = input 1 : f16[3,4] output 0 (add %x %y) : f16") == "[2,12][12][2,12]");
  CHECK(shape("%x = input 0 : f16[2,3,4] %y = input 1 : f16[3,1] output 0 (add %x %y) : f16") == "");
  CHECK(shape("%x = input 0 : f16[2,3,4] output 0 (transpose (2,0,1) %x) : f16") == "[6,4][4,6]");
  CHECK(shape("%x = input 0 : f16[2,3,4] output 0 (transpose (1,0,2) %x) : f16") == "");
  CHECK(shape("%x = input 0 : f16[2,3,4] %w = input 1 : f16[1,4,5] output 0 (matmul %x %w) : f16") == "[6,4][4,5][6,5]");
  CHECK(shape("%x = input 0 : f16[2,3,4] %w = input 1 : f16[2,4,5] output 0 (matmul %x %w) : f16") == "");
  CHECK(shape("%x = input 0 : f16[6,4] %w = input 1 : f16[4,5] %y = reshape [2,3,5] (matmul %x %w) output 0 (exp %y) : f16") ==
        "[6,4][4,5][6,5]");
  CHECK(shape("%x = input 0 : f16[2,3,4] output 0 (mul (reduce.sum 2 %x) (const 3 extent 0.1)) : f16") == "");
  CHECK(shape("%x = input 0 : f16[2,3,4] output 0 (mul (reduce.sum 2 %x) (const 6 extent 0.0*0.1)) : f16") == "[6,4][6,1]");
  CHECK(shape("%x = input 0 : f16[65536,65536] output 0 (exp %x) : f16") == "");   // longer than kernels count
}

TEST_CASE("dimensions are joined behind what tells them apart, where a product gains") {
  const auto made = [](const std::string& body) {
    const Folded f = folded("kernel k { " + body + " }");
    return f.folds ? shapes(f.program) + " " + print(f.program.graph) : "";
  };
  const auto has = [](const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; };
  // rows of an image that a slice tells apart from its columns, and a linear layer: 60 rows, not 2 x 5 times 6
  const std::string image = "%x = input 0 : f16[2,6,6,8] %y = slice 1 0:5 %x %w = input 1 : f16[1,1,8,16] ";
  CHECK(has(made(image + "output 0 (exp (matmul %y %w)) : f16"), "reshape [60,8]"));
  // and apart again where something behind it needs that
  const std::string both = made(image + "output 0 (slice 2 1:6 (exp (matmul %y %w))) : f16");
  CHECK(has(both, "reshape [60,8]"));
  CHECK(has(both, "reshape [10,6,16]"));
  // as it is: rows that fill their tiles, weights of their own for each row of the image, no product at all
  const auto product = [&](const std::string& x, const std::string& w) {
    return made("%x = input 0 : f16" + x + " %y = slice 1 0:5 %x %w = input 1 : f16" + w + " output 0 (matmul %y %w) : f16");
  };
  CHECK(has(product("[2,6,6,8]", "[1,1,8,16]"), "reshape [60,8]"));
  CHECK_FALSE(has(product("[2,6,64,8]", "[1,1,8,16]"), "reshape"));
  CHECK_FALSE(has(product("[2,6,6,8]", "[2,5,8,16]"), "reshape"));
  CHECK_FALSE(has(made("%x = input 0 : f16[2,6,6,8] %y = slice 1 0:5 %x output 0 (exp %y) : f16"), "reshape"));
}

TEST_CASE("functions of inputs are given the extents of 1 in the place of their results") {
  const Folded f = folded(R"(kernel norm { %x = input 0 : f16[3,5,8]   %v = input 1 : f16[5]   %g = input 2 : f16[5]
    %s = sqrt (add %v (const 0.1))   output 0 (div %x (reshape [5,1] (mul %s %g))) : f16 })");
  REQUIRE(f.folds);
  CHECK(f.program.graph == *parse_graph(R"(kernel norm { %x = input 0 : f16[3,5,8]   %v = input 1 : f16[5,1]   %g = input 2 : f16[5,1]
    %s = sqrt (add %v (const 0.1))   output 0 (div %x (mul %s %g)) : f16 })"));
  // what something else reads as it is stays, too
  const Folded both = folded(R"(kernel norm { %x = input 0 : f16[3,5,8]   %v = input 1 : f16[5]
    %s = sqrt %v   output 0 (div %x (reshape [5,1] %s)) : f16   output 1 %s : f16 })");
  Rng rng(1);
  CHECK(compare(both.whole, both, rng) == 125);
  // a chain that reads each of its values twice is not walked once per path
  std::string chain = "%x = input 0 : f16[3,5,8]   %v0 = input 1 : f16[5] ";
  for (int i = 0; i < 60; i++) chain += "%v" + std::to_string(i + 1) + " = mul %v" + std::to_string(i) + " %v" + std::to_string(i) + " ";
  CHECK(folded("kernel k { " + chain + " output 0 (div %x (reshape [5,1] %v60)) : f16 }").program.graph.num_nodes() < 70);
}

TEST_CASE("programs with borders compute the same") {
  int borders = 0;
  for (uint64_t seed = 0; seed < 6000 && borders < 200; seed++) {
    const Graph g = FoldPrograms(seed).make();
    Rng rng(seed);
    const Program p = program_around(g, &rng);
    std::vector<ValueId> to;
    const auto with = with_borders(p, to);
    if (!with) continue;
    borders++;
    INFO("seed " << seed << "\n" << print(g) << print(with->graph));
    REQUIRE_FALSE(check_laws(with->graph));
    REQUIRE(to.size() == static_cast<size_t>(g.num_values()));
    for (ValueId v = 0; v < g.num_values(); v++)
      if (to[static_cast<size_t>(v)] >= 0) REQUIRE(g.dims(v) == with->graph.dims(to[static_cast<size_t>(v)]));
    std::vector<Memory> inputs;
    for (const TensorInfo& t : p.inputs) {
      inputs.emplace_back();
      places(t, [&](int64_t at) { inputs.back()[at] = 4 * rng.uniform() - 2; });
    }
    const std::vector<Memory> want = run(p, g, inputs), got = run(*with, with->graph, inputs);
    for (size_t r = 0; r < want.size(); r++)
      for (const auto& [at, value] : want[r]) REQUIRE(same(value, got[r].at(at)));
    const Folded f = fold(p);
    REQUIRE(f.folds);
    compare(p, f, rng);
  }
  INFO(borders << " with borders");
  REQUIRE(borders > 60);
}

TEST_CASE("small operands that lack a dimension of a batch are repeated along it") {
  const auto attention = [](const std::string& inputs, const std::string& middle) {
    return "kernel k { %q = input 0 : f16[3,4,5,64] %k = input 1 : f16[3,4,64,11] %v = input 2 : f16[3,4,11,64] " + inputs +
           " %s = matmul %q %k %m = " + middle + " %e = exp %m output 0 (matmul (div %e (reduce.sum 3 %e)) %v) : f16 }";
  };
  const auto check = [](const std::string& text, const std::string& want) {
    INFO(text);
    const Folded f = folded(text);
    REQUIRE(f.folds);
    INFO(print(f.program.graph));
    CHECK(shapes(f.program) == want);
    Rng rng(1);
    CHECK(compare(f.whole, f, rng) > 0);
    return f;
  };
  const std::string joined = "[12,5,64][12,64,11][12,11,64]";
  check(attention("%l = input 3 : f32[3,1,1,1]", "where (less (iota 3 [1,1,1,11]) %l) %s (const -inf)"), joined + "[3,1][12,5,64]");
  check(attention("%l = input 3 : f32[4,5,1]", "mul %s %l"), joined + "[1,4,5][12,5,64]");
  check(attention("%l = input 3 : f32[4,1,1]", "add %s (mul (exp %l) (iota 3 [1,1,1,11]))"), joined + "[1,4][12,5,64]");
  check(attention("%l = input 3 : f32[3,1,1,11] %t = input 4 : f32[4,1,1]", "mul (add %s %l) %t"), joined + "[3,1,11][1,4][12,5,64]");
  check(attention("%l = input 3 : f32[3,1,1,1] %t = input 4 : f32[4,1,1]", "add %s (sub %l %t)"), joined + "[3,1][1,4][12,5,64]");
  check(attention("", "mul %s (add (iota 1 [1,4,1,1]) (const 1))"), joined + "[12,5,64]");
  check(attention("%l = input 3 : f32[4,1,1]", "mul %s (repeat 0 3 (reshape [1,4,1,1] %l))"), joined + "[1,4][12,5,64]");
  // the operand itself is read elsewhere, too
  check(attention("%l = input 3 : f32[4,1,1] output 1 (exp %l) : f32", "mul %s (exp %l)"), joined + "[4][12,5,64][4]");
  const Folded f = check(attention("%l = input 3 : f32[4,5,1]", "mul %s %l"), joined + "[1,4,5][12,5,64]");
  CHECK(f.program.graph == *parse_graph(R"(kernel k {
    %q = input 0 : f16[12,5,64] %k = input 1 : f16[12,64,11] %v = input 2 : f16[12,11,64] %l = input 3 : f32[1,4,5]
    %s = matmul %q %k %m = mul %s (reshape [12,5,1] (repeat 0 3 %l)) %e = exp %m
    output 0 (matmul (div %e (reduce.sum 2 %e)) %v) : f16 })"));
  // what is computed in another way, or is long, stays; so does the batch of products of many rows, and of a single one
  CHECK_FALSE(folded(attention("%l = input 3 : f32[4,1,9]", "mul %s (reduce.sum 2 %l)")).folds);
  CHECK_FALSE(folded(attention("%l = input 3 : f32[4,5,11]", "mul %s %l")).folds);
  CHECK_FALSE(folded("kernel k { %q = input 0 : f16[3,4,17,64] %k = input 1 : f16[3,4,64,11] %v = input 2 : f16[3,4,11,64] "
                     "%b = input 3 : f16[4,1,1] output 0 (matmul (exp (mul (matmul %q %k) %b)) %v) : f16 }").folds);
  CHECK_FALSE(folded("kernel k { %x = input 0 : f16[2,3,4,9] %w = input 1 : f16[2,3,9,64] %b = input 2 : f16[3,1,1] "
                     "output 0 (add (matmul %x %w) %b) : f16 }").folds);
}

TEST_CASE("strides permit a dimension to be joined or do not") {
  const Graph g = *parse_graph("kernel k { %x = input 0 : f16[2,3,4] output 0 (exp %x) : f16 }");
  auto shape = [&](Dims in, Dims out) {
    Program p = program_around(g, nullptr);
    p.inputs[0].strides = in;
    p.outputs[0].strides = out;
    const Folded f = fold(p);
    return f.folds ? shapes(f.program) + to_string(f.program.inputs[0].strides) + to_string(f.program.outputs[0].strides) : "";
  };
  CHECK(shape({12, 4, 1}, {12, 4, 1}) == "[24][24][1][1]");
  CHECK(shape({30, 10, 2}, {12, 4, 1}) == "[6,4][6,4][10,2][4,1]");
  CHECK(shape({12, 4, 1}, {20, 4, 1}) == "[2,12][2,12][12,1][20,1]");
  CHECK(shape({4, 8, 1}, {12, 4, 1}) == "");
}
