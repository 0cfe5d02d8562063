// Witness extents: distinct where they may be, equal where they must be, no literal of the program.
#include "search/problem/witness.h"
#include <set>

#include <fmt/format.h>

#include "helpers.h"

using namespace mirage;
using namespace helpers;

TEST_CASE("witness extents are distinct, follow ties, avoid literals") {
  const Program p = parse(
      R"({"version": "1.0", "name": "t", "inputs": {"x": {"shape": [16, 16], "dtype": "float16"}, "w": {"shape": [16, 16], "dtype": "float16"}, "b": {"shape": [16], "dtype": "float16"}},
    "outputs": {"y": {"shape": [16, 16], "dtype": "float16"}},
    "nodes": [{"op": "matmul", "inputs": ["x", "w"], "output": "m"}, {"op": "add", "inputs": ["m", "b"], "output": "a"}, {"op": "mul", "inputs": ["a", 4], "output": "c"}, {"op": "mul", "inputs": ["c", 7], "output": "y"}]})");
  for (int variant : {0, 1}) {
    const Witness w = make_witness(p, variant);
    REQUIRE(w.refusal.empty());
    const Dims &x = w.params[0].dims, &weights = w.params[1].dims, &b = w.params[2].dims;
    CHECK(x[1] == weights[0]);
    CHECK(weights[1] == b[0]);
    const std::set<int64_t> all = {x[0], x[1], weights[1]};
    CHECK(all.size() == 3);   // M = N = K in the program, three extents in the witness
    CHECK(all.count(4) == 0);
    CHECK(all.count(7) == 0);
    for (int64_t e : all) CHECK(e % 2 == variant);
    CHECK(w.graph.num_nodes() == p.graph.num_nodes());
  }
}

TEST_CASE("witness: a mean counts the witness's elements") {
  const Program p = spec("rms_norm_linear");
  const Witness w = make_witness(p, 0);
  bool seen = false;
  for (const Node& n : w.graph.nodes())
    if (const auto* c = std::get_if<Const>(&n.op); c && !c->extent_of.empty()) {
      CHECK(c->value == static_cast<double>(w.params[0].dims[1]));
      seen = true;
    }
  CHECK(seen);
}

TEST_CASE("witness: extents of 1 stay, results of one shape stay of one shape") {
  const Program p = parse(
      R"({"version": "1.0", "name": "t", "inputs": {"x": {"shape": [1, 64], "dtype": "float16"}, "v": {"shape": [64, 32], "dtype": "float16"}, "w": {"shape": [64, 32], "dtype": "float16"}},
    "outputs": {"y": {"shape": [1, 32], "dtype": "float16"}, "z": {"shape": [1, 32], "dtype": "float16"}},
    "nodes": [{"op": "matmul", "inputs": ["x", "v"], "output": "y"}, {"op": "matmul", "inputs": ["x", "w"], "output": "z"}]})");
  const Witness w = make_witness(p, 0);
  CHECK(w.params[0].dims[0] == 1);
  CHECK(w.params[1].dims[1] == w.params[2].dims[1]);
}

namespace {

Program one_input(const std::string& nodes, const std::string& shape) {
  return parse(R"({"version": "1.0", "name": "t", "inputs": {"x": {"shape": [8, 6], "dtype": "float16"}}, "outputs": {"y": {"shape": )" +
               shape + R"(, "dtype": "float16"}}, "nodes": [)" + nodes + "]}");
}

}  // namespace

TEST_CASE("witness: what ties extents together in no simple way is refused, with the reason") {
  CHECK(
      make_witness(
          one_input(
              R"({"op": "reshape", "inputs": ["x"], "output": "r", "attrs": {"shape": [4, 12]}}, )"
              R"({"op": "exp", "inputs": ["r"], "output": "y"})",
              "[4, 12]"),
          0)
          .refusal == "reshape that splits and joins dimensions at once");
  CHECK(
      make_witness(
          one_input(
              R"({"op": "slice", "inputs": ["x"], "output": "r", "attrs": {"axis": 0, "start": 0, "stop": 5, "step": 2}}, )"
              R"({"op": "exp", "inputs": ["r"], "output": "y"})",
              "[3, 6]"),
          0)
          .refusal == "slice with a step that does not divide its dimension");
  CHECK(
      make_witness(
          one_input(
              R"({"op": "repeat", "inputs": ["x"], "output": "r", "attrs": {"axis": 0, "count": 2}}, )"
              R"({"op": "exp", "inputs": ["r"], "output": "y"})",
              "[16, 6]"),
          0)
          .refusal == "repeat");
}

TEST_CASE("witness: joined dimensions are products, cut ones are sums") {
  for (int variant : {0, 1}) {
    const Witness joined = make_witness(
        one_input(
            R"({"op": "reshape", "inputs": ["x"], "output": "r", "attrs": {"shape": [48]}}, {"op": "exp", "inputs": ["r"], "output": "y"})",
            "[48]"),
        variant);
    REQUIRE(joined.refusal.empty());
    CHECK(joined.graph.dims(joined.graph.num_values() - 1) == Dims{joined.params[0].dims.elements()});
    const Witness twice = make_witness(
        one_input(
            R"({"op": "concat", "inputs": ["x", "x"], "output": "r", "attrs": {"axis": 0}}, {"op": "exp", "inputs": ["r"], "output": "y"})",
            "[16, 6]"),
        variant);
    REQUIRE(twice.refusal.empty());
    CHECK(twice.graph.dims(twice.graph.num_values() - 1)[0] == 2 * twice.params[0].dims[0]);
    // [0, 3) and [1, 5) of 8 cut it into 1, 2, 2 and 3.
    const Program p = one_input(
        R"({"op": "slice", "inputs": ["x"], "output": "a", "attrs": {"axis": 0, "start": 0, "stop": 3}}, {"op": "slice", "inputs": ["x"], "output": "b", "attrs": {"axis": 0, "start": 1, "stop": 5}},
      {"op": "sum", "inputs": ["a"], "output": "c", "attrs": {"axis": 0, "keepdim": true}}, {"op": "mul", "inputs": ["b", "c"], "output": "y"})",
        "[4, 6]");
    const search::DimClasses c = search::dim_classes(p.graph);
    CHECK(c.classes[static_cast<size_t>(c.of[0][0])].cuts == std::vector<int64_t>{1, 3, 5});
    const Witness cut = make_witness(p, variant);
    REQUIRE(cut.refusal.empty());
    int64_t start = -1;
    for (const Node& n : cut.graph.nodes())
      if (const auto* s = std::get_if<Slice>(&n.op)) {
        CHECK(s->stop < cut.params[0].dims[0]);
        start = std::max(start, s->start);
      }
    CHECK(start > 0);
  }
}

TEST_CASE("witness: a dimension that is split into more and fewer factors keeps no extent where some may") {
  const Program p = one_input(
      R"({"op": "reshape", "inputs": ["x"], "output": "a", "attrs": {"shape": [8, 2, 3]}}, {"op": "exp", "inputs": ["a"], "output": "b"},
    {"op": "reshape", "inputs": ["b"], "output": "c", "attrs": {"shape": [8, 6]}}, {"op": "sum", "inputs": ["c"], "output": "d", "attrs": {"axis": 1, "keepdim": true}},
    {"op": "mul", "inputs": ["c", "d"], "output": "e"}, {"op": "reshape", "inputs": ["e"], "output": "f", "attrs": {"shape": [48]}},
    {"op": "relu", "inputs": ["f"], "output": "h"}, {"op": "reshape", "inputs": ["h"], "output": "g", "attrs": {"shape": [4, 2, 6]}}, {"op": "exp", "inputs": ["g"], "output": "y"})",
      "[4, 2, 6]");
  const auto is_pinned = [](const search::DimClasses& c) {
    return std::any_of(c.of[0].begin(), c.of[0].end(), [&](int d) { return c.is_pinned(d); });
  };
  CHECK(search::dim_classes(p.graph).refusal == "a dimension that is split in two ways");
  const search::DimClasses c = search::dim_classes(p.graph, 0, search::Tied::kPinned);
  CHECK(c.refusal.empty());
  CHECK(!is_pinned(c));
}

TEST_CASE("witness: one element stays one, what it is cut out of or appended to changes; one of every few is a quotient") {
  for (int variant : {0, 1}) {
    const auto row_of = [&](const std::string& attrs, const std::string& shape) {
      return make_witness(one_input(R"({"op": "slice", "inputs": ["x"], "output": "r", "attrs": {)" + attrs +
                                        R"(}}, {"op": "exp", "inputs": ["r"], "output": "y"})",
                                    shape),
                          variant);
    };
    for (int at : {0, 3, 7}) {
      const Witness w = row_of(R"("axis": 0, "start": )" + std::to_string(at) + R"(, "stop": )" + std::to_string(at + 1), "[1, 6]");
      REQUIRE(w.refusal.empty());
      for (const Node& n : w.graph.nodes())
        if (const auto* s = std::get_if<Slice>(&n.op)) {
          CHECK(s->stop == s->start + 1);
          CHECK((at == 0) == (s->start == 0));
          CHECK((at == 7) == (s->stop == w.params[0].dims[0]));
        }
    }
    const Witness odd = row_of(R"("axis": 0, "start": 1, "stop": 8, "step": 2)", "[4, 6]");
    REQUIRE(odd.refusal.empty());
    CHECK(odd.params[0].dims[0] == 2 * odd.graph.dims(odd.graph.num_values() - 1)[0]);
    const Witness grown = make_witness(
        parse(
            R"({"version": "1.0", "name": "t", "inputs": {"k": {"shape": [900, 6], "dtype": "float16"}, "n": {"shape": [1, 6], "dtype": "float16"}},
      "outputs": {"y": {"shape": [901, 6], "dtype": "float16"}}, "nodes": [{"op": "concat", "inputs": ["k", "n"], "output": "c", "attrs": {"axis": 0}}, {"op": "exp", "inputs": ["c"], "output": "y"}]})"),
        variant);
    REQUIRE(grown.refusal.empty());
    CHECK(grown.params[0].dims[0] < 20);
    CHECK(grown.graph.dims(grown.graph.num_values() - 1)[0] == grown.params[0].dims[0] + 1);
  }
}

TEST_CASE("witness: two concatenations of the same lengths, and forty layers in a row") {
  const Program twice = parse(
      R"({"version": "1.0", "name": "t", "inputs": {"a": {"shape": [3001, 64], "dtype": "float16"}, "b": {"shape": [5, 64], "dtype": "float16"}, "c": {"shape": [3001, 64], "dtype": "float16"}, "d": {"shape": [5, 64], "dtype": "float16"}},
    "outputs": {"y": {"shape": [3006, 64], "dtype": "float16"}, "z": {"shape": [3006, 64], "dtype": "float16"}},
    "nodes": [{"op": "concat", "inputs": ["a", "b"], "output": "e", "attrs": {"axis": 0}}, {"op": "exp", "inputs": ["e"], "output": "y"}, {"op": "concat", "inputs": ["c", "d"], "output": "f", "attrs": {"axis": 0}}, {"op": "exp", "inputs": ["f"], "output": "z"}]})");
  std::string in = R"("x": {"shape": [3, 5, 4, 1000], "dtype": "float16"})", nodes;
  for (int l = 0; l < 40; l++) {
    in += fmt::format(R"(, "w{}": {{"shape": [3, 5, {}, {}], "dtype": "float16"}})", l, 1000 + l, 1001 + l);
    nodes += fmt::format(R"({}{{"op": "matmul", "inputs": ["{}", "w{}"], "output": "{}"}})", l ? ", " : "",
                         l ? fmt::format("m{}", l - 1) : "x", l, l < 39 ? fmt::format("m{}", l) : "y");
  }
  const Program deep = parse(R"({"version": "1.0", "name": "t", "inputs": {)" + in +
                             R"(}, "outputs": {"y": {"shape": [3, 5, 4, 1040], "dtype": "float16"}}, "nodes": [)" + nodes + "]}");
  for (int variant : {0, 1})
    for (const Program* p : {&twice, &deep}) {
      const Witness w = make_witness(*p, variant);
      REQUIRE(w.refusal.empty());
      for (ValueId v = 0; v < w.graph.num_values(); v++) CHECK(w.graph.dims(v).elements() < 100'000);
    }
}

TEST_CASE("reshapes as runs of dimensions") {
  using search::reshape_runs;
  const auto join = reshape_runs({4, 1, 6, 5}, {24, 5});
  REQUIRE(join);
  REQUIRE(join->size() == 2);
  CHECK((*join)[0].from == std::vector<int>{0, 2});
  CHECK((*join)[0].to == std::vector<int>{0});
  CHECK((*join)[1].from == std::vector<int>{3});
  CHECK_FALSE(reshape_runs({4, 6}, {8, 3}));
  CHECK(reshape_runs({1, 1}, {1})->empty());
}

TEST_CASE("unit reshapes keep the order of what is longer than 1") {
  using search::unit_reshape;
  CHECK(*unit_reshape({4, 1, 8}, {1, 4, 8}) == Dims{1, 4, 8});
  CHECK(*unit_reshape({12, 20}, {4, 1, 8}) == Dims{12, 1, 20});
  CHECK_FALSE(unit_reshape({12, 20}, {4, 1}));
  CHECK_FALSE(unit_reshape({12}, {4, 8}));
  CHECK(*unit_reshape({1, 1}, {}) == Dims{});
}

TEST_CASE("witness: too many dimensions are refused before anything large is evaluated") {
  const Program p = parse(
      R"({"version": "1.0", "name": "t", "inputs": {"x": {"shape": [2, 3, 2, 2, 5, 2, 2, 8], "dtype": "float16"}}, "outputs": {"y": {"shape": [2, 3, 2, 2, 5, 2, 2, 8], "dtype": "float16"}},
    "nodes": [{"op": "softmax", "inputs": ["x"], "output": "y"}]})");
  CHECK(make_witness(p, 0).refusal.rfind("too many dimensions", 0) == 0);
  CHECK(find(p).report.stop_reason.rfind("not searched: too many dimensions", 0) == 0);
}

TEST_CASE("witness: products of the same factors are one extent, and the search for distinct extents ends") {
  const Program p = parse(
      R"({"version": "1.0", "name": "t", "inputs": {"x": {"shape": [24, 5], "dtype": "float16"}}, "outputs": {"y": {"shape": [24, 5], "dtype": "float16"}},
    "nodes": [{"op": "reshape", "inputs": ["x"], "output": "r", "attrs": {"shape": [4, 6, 5]}}, {"op": "exp", "inputs": ["r"], "output": "e"}, {"op": "reshape", "inputs": ["e"], "output": "y", "attrs": {"shape": [24, 5]}}]})");
  const search::DimClasses c = search::dim_classes(p.graph);
  CHECK(c.of.front()[0] == c.of.back()[0]);
  const Witness w = make_witness(p, 0);
  REQUIRE(w.refusal.empty());
  CHECK(w.params[0].dims == Dims{10 * 14, 6});   // the smallest there are: the one of most uses is 6
}

TEST_CASE("witness: a program whose values take too much memory at small sizes is refused before anything is evaluated") {
  std::string nodes;
  for (int i = 0; i < 3400; i++)
    nodes += fmt::format(R"({}{{"op": "tanh", "inputs": ["{}"], "output": "{}"}})", i ? ", " : "", i ? fmt::format("t{}", i - 1) : "x",
                         i < 3399 ? fmt::format("t{}", i) : "y");
  const Program p = parse(
      R"({"version": "1.0", "name": "t", "inputs": {"x": {"shape": [16, 24, 32, 40], "dtype": "float16"}}, )"
      R"("outputs": {"y": {"shape": [16, 24, 32, 40], "dtype": "float16"}}, "nodes": [)" +
      nodes + "]}");
  CHECK(make_witness(p, 0).params[0].dims.elements() * p.graph.num_values() > 50'000'000);
  CHECK(find(p).report.stop_reason == "not searched: its values take too much memory even at small sizes");
}
