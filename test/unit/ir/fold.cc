// Folding of adjacent dimensions: the same numbers at the same addresses, whatever the program does with its dimensions; and what is joined
// in programs people write.
#include <cmath>
#include <map>

#include <catch2/catch.hpp>

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
    std::vector<Memory> inputs;
    for (const TensorInfo& t : p.inputs) {
      inputs.emplace_back();
      places(t, [&](int64_t at) { inputs.back()[at] = 4 * rng.uniform() - 2; });
    }
    const std::vector<Memory> want = run(p, g, inputs), got = run(f.program, f.program.graph, inputs);
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
