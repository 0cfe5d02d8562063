// What the grid and the loop may split: index occurrences, not sizes.
#include "search/problem/splits.h"
#include <algorithm>
#include "helpers.h"

using namespace mirage;
using namespace mirage::search;
using namespace helpers;

namespace {

Splits splits_of(const Program& p, const SplitOptions& options = {}) {
  std::vector<ValueId> leaves, targets;
  for (NodeId n = 0; n < p.graph.num_nodes(); n++) {
    ValueId v = p.graph.node(n).first_value;
    if (v < 0) continue;
    ValueId source = v;
    while (is_view(p.graph.def(source).op)) source = p.graph.def(source).operands[0];
    if (p.graph.def_form<Input>(source)) leaves.push_back(v);
  }
  for (NodeId n : p.graph.outputs()) targets.push_back(p.graph.node(n).operands[0]);
  return enumerate_splits(p.graph, dim_classes(p.graph), make_problem(p.graph, leaves, targets), options);
}

Program matmul_program(const std::string& x, const std::string& y, const std::string& nodes, const std::string& out) {
  return parse(R"({"version": "1.0", "name": "t", "inputs": {)" + x + (y.empty() ? "" : ", " + y) + R"(}, "outputs": {"y": {"shape": )" +
               out + R"(, "dtype": "float32"}}, "nodes": [)" + nodes + "]}");
}

}  // namespace

TEST_CASE("splits: a linear layer has rows and columns on the grid and the contraction in the loop") {
  const Splits s =
      splits_of(matmul_program(R"("x": {"shape": [16, 32], "dtype": "float16"})", R"("w": {"shape": [32, 64], "dtype": "float16"})",
                               R"({"op": "matmul", "inputs": ["x", "w"], "output": "y"})", "[16, 64]"));
  REQUIRE(s.all.size() == 6);   // {N, M}, {N}, {M}, each with and without a loop over K
  const Split& first = s.all.front();   // most axes, with a loop: the others are instances of it
  CHECK(first.axes == 2);
  REQUIRE(first.loads.size() == 2);
  CHECK(first.loads[0].part == Partition{{-1, 0, -1}, 1});
  CHECK(first.loads[1].part == Partition{{1, -1, -1}, 0});
  CHECK(first.stores[0] == Partition{{1, 0, -1}, -1});
  for (const Split& o : s.all) CHECK(o.is_instance_of(first));
}

TEST_CASE("splits: a grid axis may split what is summed; then the results are parts") {
  SplitOptions options;
  options.partial = true;
  const Splits s =
      splits_of(matmul_program(R"("x": {"shape": [16, 32], "dtype": "float16"})", R"("w": {"shape": [32, 64], "dtype": "float16"})",
                               R"({"op": "matmul", "inputs": ["x", "w"], "output": "y"})", "[16, 64]"),
                options);
  const auto it = std::find_if(s.all.begin(), s.all.end(), [](const Split& p) { return p.partial_axis >= 0; });
  REQUIRE(it != s.all.end());
  CHECK(it->partial_axis == 2);
  REQUIRE(it->loads.size() == 2);
  CHECK(it->loads[0].part == Partition{{-1, 0, 1}, 1});   // the loop walks through the block's chunk
  CHECK(it->loads[1].part == Partition{{1, -1, 0}, 0});
  CHECK(it->stores[0] == Partition{{1, 0, -1}, -1});
}

TEST_CASE("splits: of hundreds of layers, which have a contraction each, and pairs of them, a bounded number is made, and that is said") {
  const auto layers = [](int count) {
    std::string inputs = R"("x0": {"shape": [16, 32], "dtype": "float16"})", nodes;
    for (int i = 0; i < count; i++) {
      const auto name = [&](const char* what, int k = 0) { return "\"" + std::string(what) + std::to_string(i + k) + "\""; };
      inputs +=
          ", " + name("a") + R"(: {"shape": [32, 64], "dtype": "float16"}, )" + name("b") + R"(: {"shape": [64, 32], "dtype": "float16"})";
      nodes += (i ? ", " : "") + std::string(R"({"op": "matmul", "inputs": [)") + name("x") + ", " + name("a") + R"(], "output": )" +
               name("u") + R"(}, {"op": "relu", "inputs": [)" + name("u") + R"(], "output": )" + name("r") +
               R"(}, {"op": "matmul", "inputs": [)" + name("r") + ", " + name("b") + R"(], "output": )" +
               (i + 1 < count ? name("x", 1) : "\"y\"") + "}";
    }
    return parse(R"({"version": "1.0", "name": "t", "inputs": {)" + inputs +
                 R"(}, "outputs": {"y": {"shape": [16, 32], "dtype": "float32"}}, "nodes": [)" + nodes + "]}");
  };
  SplitOptions options;
  options.partial = true;
  for (const int count : {3, 150, 400}) {
    const Splits s = splits_of(layers(count), options);
    size_t loads = 0;
    for (const Split& o : s.all) loads += o.loads.size();
    CHECK(loads < 1'001'000);
    CHECK((s.index_example.find("more splits than") != std::string::npos) == (count == 150));
    if (count == 400) CHECK(s.all.empty());
  }
}

TEST_CASE("splits: two uses of one tensor have indices of their own") {
  const Splits s = splits_of(matmul_program(
      R"("x": {"shape": [256, 64], "dtype": "float16"})", "",
      R"({"op": "matmul", "inputs": ["x", "x"], "output": "s", "attrs": {"transpose_b": true}}, {"op": "exp", "inputs": ["s"], "output": "e"},
                                               {"op": "matmul", "inputs": ["e", "x"], "output": "y"})",
      "[256, 64]"));
  // Query rows on the grid, key rows in the loop, although they have one extent.
  CHECK(std::any_of(s.all.begin(), s.all.end(), [](const Split& p) {
    bool query = false, keys = false;
    for (const Load& l : p.loads) { query |= l.part.grid[0] == 0 && l.part.loop < 0; keys |= l.part.loop >= 0 && l.part.grid[0] < 0; }
    return p.axes == 1 && query && keys;
  }));
}

TEST_CASE("splits: an index that is summed and kept stays whole") {
  const Splits s = splits_of(spec("n_trans"));
  CHECK(s.index_closed > 0);
  for (const Split& p : s.all)
    for (const Partition& store : p.stores) CHECK(store == Partition{{0, -1, -1}, -1});   // rows only
}

TEST_CASE("splits: a value that is computed again may be split otherwise") {
  const Program p = matmul_program(
      R"("x": {"shape": [16, 64], "dtype": "float16"})", R"("w": {"shape": [64, 64], "dtype": "float16"})",
      R"({"op": "rms_norm", "inputs": ["x"], "output": "n"}, {"op": "matmul", "inputs": ["n", "w"], "output": "m"}, )"
      R"({"op": "add", "inputs": ["m", "n"], "output": "y"})",
      "[16, 64]");
  auto columns = [](const Splits& s) {
    return std::any_of(s.all.begin(), s.all.end(), [](const Split& p) { return p.stores[0].grid[0] == 1; });
  };
  CHECK_FALSE(columns(splits_of(p)));
  CHECK(columns(splits_of(p, {true, false, false, {}})));
}

TEST_CASE("splits: every axis splits every output") {
  const Splits s = splits_of(parse(
      R"({"version": "1.0", "name": "t", "inputs": {"x": {"shape": [16, 32], "dtype": "float16"}}, "outputs": {"y": {"shape": [16, 32], "dtype": "float16"}, "z": {"shape": [16, 1], "dtype": "float32"}},
    "nodes": [{"op": "exp", "inputs": ["x"], "output": "y"}, {"op": "sum", "inputs": ["x"], "output": "z", "attrs": {"axis": 1, "keepdim": true}}]})"));
  REQUIRE_FALSE(s.all.empty());
  for (const Split& p : s.all)
    for (const Partition& store : p.stores) CHECK(store.grid[0] == 0);
}
