// Scores joined for one softmax: keys are joined instead, the numbers stay.
#include <catch2/catch.hpp>

#include "ir/fold/scores.h"
#include "mirage/ir/fold.h"
#include "mirage/spec/text.h"
#include "mirage/support/hash.h"
#include "unit/ir/alike.h"
#include "unit/ir/fold_programs.h"

using namespace mirage;
using namespace mirage::test;

namespace {

Graph graph_of(const std::string& body) {
  const auto g = parse_graph("kernel k { " + body + " }");
  INFO((g ? "" : g.errors().front().text) << body);
  REQUIRE(g.ok());
  return *g;
}
std::string joined(const std::string& body) {
  const auto out = joined_scores(graph_of(body));
  return out ? print(*out, "k") : "";
}
std::string as_it_is(const std::string& body) { return print(graph_of(body), "k"); }

/// Attention over several blocks of keys, the way round that a seed says.
class Attention {
 public:
  explicit Attention(uint64_t seed) : rng_(seed), b_(Level::kKernel) {}
  Graph make() {
    turned_ = rng_.below(2) != 0;
    batch_ = rng_.below(2) ? Dims{2} : Dims{};
    stored_ = rng_.below(2) != 0, doubled_ = rng_.below(3) == 0;
    const int axis = batch_.rank() + (turned_ ? 0 : 1);
    const ValueId q = input(3, 4), bias = input(3, 1);
    std::vector<ValueId> parts, values;
    for (uint64_t left = 2 + rng_.below(3); left > 0; left--) parts.push_back(scores(q, bias, 1 + static_cast<int64_t>(rng_.below(4))));
    const ValueId all = b_.add(Concat{axis}, parts);
    const int64_t n = b_.graph().dims(all)[axis];
    ValueId s = rng_.below(2) ? b_.add(Map{MapFn::kAdd}, {all, input(3, n)}) : all;
    const ValueId m = b_.add(Reduce{ReduceFn::kMax, axis, 0}, {s});
    const ValueId e = b_.add(Map{MapFn::kExp}, {b_.add(Map{MapFn::kSub}, {s, m})});
    const ValueId z = b_.add(Reduce{ReduceFn::kSum, axis, 0}, {e});
    const bool late = rng_.below(2) != 0;
    const ValueId y = product(late ? e : b_.add(Map{MapFn::kDiv}, {e, z}), input(n, 2));
    b_.add_output(0, late ? b_.add(Map{MapFn::kDiv}, {y, z}) : y, DType::kF32);
    return b_.graph();
  }

 private:
  /// Rows by columns; the other way round if the program is.
  ValueId input(int64_t rows, int64_t columns) {
    Dims d = batch_;
    d.push_back(turned_ ? columns : rows);
    d.push_back(turned_ ? rows : columns);
    return b_.add_input(params_++, {DType::kF32, d});
  }
  ValueId product(ValueId a, ValueId b) { return turned_ ? b_.add(MatMul{}, {b, a}) : b_.add(MatMul{}, {a, b}); }
  ValueId transposed(ValueId v) { return b_.add(batch_.rank() == 0 ? Transpose{{1, 0}} : Transpose{{0, 2, 1}}, {v}); }
  ValueId scores(ValueId q, ValueId bias, int64_t n) {
    const ValueId s = product(q, stored_ ? transposed(input(n, 4)) : input(4, n));
    if (!doubled_) return s;
    return b_.add(Map{MapFn::kAdd}, {b_.add(Map{MapFn::kMul}, {s, b_.constant(0.5)}), bias});
  }

  Rng rng_;
  Builder b_;
  Dims batch_;
  bool turned_ = false, stored_ = false, doubled_ = false;
  int params_ = 0;
};

const std::string kTwoBlocks = "%q = input 0 : f16[8,16] %k = input 1 : f16[16,32] %l = input 2 : f16[16,96] ";
const std::string kOverColumns = "%m = reduce.max 1 %s %e = exp (sub %s %m) %p = div %e (reduce.sum 1 %e) ";
const std::string kWithValues = "%v = input 3 : f16[128,16] output 0 (matmul %p %v) : f16 ";

}  // namespace

TEST_CASE("attention over blocks of keys is attention over joined keys") {
  for (uint64_t seed = 0; seed < 400; seed++) {
    const Graph g = Attention(seed).make();
    const auto out = joined_scores(g);
    INFO("seed " << seed << "\n" << print(g) << (out ? print(*out) : ""));
    REQUIRE(out);
    REQUIRE_FALSE(check_laws(*out));
    const auto products = [](const Graph& x) {
      return std::count_if(x.nodes().begin(), x.nodes().end(), [](const Node& n) { return std::holds_alternative<MatMul>(n.op); });
    };
    REQUIRE(products(*out) == 2);
    require_alike(g, *out, seed);
    const Folded f = fold(program_around(g, nullptr));
    REQUIRE(f.folds);
    require_alike(g, f.unfold(f.program.graph), seed);
  }
}

TEST_CASE("what becomes of scores, and of what was rounded") {
  CHECK(joined(kTwoBlocks + "%s = concat 1 (matmul %q %k) (matmul %q %l) " + kOverColumns + kWithValues) ==
        as_it_is(kTwoBlocks + "%s = matmul %q (concat 1 %k %l) " + kOverColumns + kWithValues));
  // Equal functions of both are applied once; keys stored by rows are joined by rows.
  const std::string rows = "%q = input 0 : f16[8,16] %k = input 1 : f16[32,16] %l = input 2 : f16[96,16] ";
  CHECK(joined(rows + "%a = mul 0.5 (matmul %q (transpose (1,0) %k)) %b = mul 0.5 (matmul %q (transpose (1,0) %l)) %s = concat 1 %a %b " +
               kOverColumns + kWithValues) ==
        as_it_is(rows + "%s = mul 0.5 (matmul %q (transpose (1,0) (concat 0 %k %l))) " + kOverColumns + kWithValues));
  const Graph g = graph_of(kTwoBlocks + "%s = concat 1 (matmul %q %k) (matmul %q %l) " + kOverColumns + kWithValues);
  std::vector<DType> kept;
  for (NodeId n = 0; n < g.num_nodes(); n++)
    if (g.node(n).first_value >= 0)
      kept.push_back(g.form<MatMul>(n) || g.form<Concat>(n) ? DType::kF16 : DType::kReal);
  const auto out = joined_scores(g, &kept);
  REQUIRE(out);
  REQUIRE(static_cast<int64_t>(kept.size()) == out->num_values());
  for (ValueId v = 0; v < out->num_values(); v++)
    CHECK((kept[static_cast<size_t>(v)] == DType::kF16) == (out->def_form<MatMul>(v) != nullptr));
}

TEST_CASE("concatenations that no attention is behind stay") {
  const std::string s = "%s = concat 1 (matmul %q %k) (matmul %q %l) ";
  CHECK(joined(kTwoBlocks + s + "output 0 %s : f16").empty());
  CHECK(joined(kTwoBlocks + s + "%v = input 3 : f16[128,16] output 0 (matmul %s %v) : f16").empty());   // no exponential
  CHECK(joined(kTwoBlocks + s + kOverColumns + "output 0 %p : f16").empty());                                // no product
  CHECK(joined(kTwoBlocks + s + kOverColumns + "%v = input 3 : f16[8,16] output 0 (matmul (transpose (1,0) %p) %v) : f16")
            .empty());   // over rows
  // Something else reads a product, or they share nothing.
  CHECK(joined(kTwoBlocks + "%a = matmul %q %k %s = concat 1 %a (matmul %q %l) output 1 %a : f16 " + kOverColumns + kWithValues).empty());
  CHECK(joined(kTwoBlocks + "%r = input 4 : f16[8,16] %s = concat 1 (matmul %q %k) (matmul %r %l) " + kOverColumns + kWithValues).empty());
  CHECK(joined(kTwoBlocks + "%s = concat 1 (mul 0.5 (matmul %q %k)) (mul 0.25 (matmul %q %l)) " + kOverColumns + kWithValues).empty());
  CHECK(joined(kTwoBlocks + "%s = concat 1 (exp (matmul %q %k)) (matmul %q %l) " + kOverColumns + kWithValues).empty());
}
