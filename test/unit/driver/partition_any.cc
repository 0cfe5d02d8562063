// Partitioning refuses no program: operators without a small form stand alone, pieces are verified and proved one by one, and the cuts of
// wide and of long programs end.
#include <catch2/catch.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "driver/pieces/cuts.h"
#include "driver/pieces/partition.h"
#include "driver/pieces/reduced.h"
#include "mirage/driver/compile.h"
#include "mirage/driver/modes.h"
#include "mirage/spec/spec.h"

using namespace mirage;

namespace {

Program read(const std::string& text) {
  auto p = parse_spec({"test.json", text});
  if (!p) FAIL(p.errors().front().text);
  return *p;
}

/// rms norm, product, bias and gelu of `x`, which `front` makes of input i of this shape.
Source around(const std::string& shape, const std::string& front) {
  return {
      "around.json",
      fmt::format(
          R"({{"version": "1.0", "name": "around", "inputs": {{"i": {{"shape": {}, "dtype": "float16"}}, "o": {{"shape": [8, 1], "dtype": "float16"}}, "w": {{"shape": [512, 2048], "dtype": "float16"}}, "b": {{"shape": [2048], "dtype": "float16"}}}},
    "outputs": {{"y": {{"shape": [8, 2048], "dtype": "float16"}}}}, "nodes": [{}, {{"op": "rms_norm", "inputs": ["x"], "output": "n"}}, {{"op": "matmul", "inputs": ["n", "w"], "output": "m"}},
    {{"op": "add", "inputs": ["m", "b"], "output": "c"}}, {{"op": "gelu", "inputs": ["c"], "output": "y"}}]}})",
          shape, front)};
}

CompileResult result_of(const Source& s, int64_t states = 400'000) {
  Options o;
  o.gate = "none";
  o.emit = {"certificate", "report"};
  o.states = states;
  Trace trace;
  return compile(o, s, trace);
}

/// N products with relu between them, and weights that are all alike.
std::string chain(int n) {
  std::string in = R"("x": {"shape": [16, 256], "dtype": "float16"})", nodes;
  for (int i = 0; i < n; i++) {
    in += fmt::format(R"(, "w{}": {{"shape": [256, 256], "dtype": "float16"}})", i);
    nodes += fmt::format(
        R"({}{{"op": "matmul", "inputs": ["{}", "w{}"], "output": "m{}"}}, {{"op": "relu", "inputs": ["m{}"], "output": "{}"}})",
        i ? ", " : "", i ? fmt::format("r{}", i - 1) : "x", i, i, i, i + 1 < n ? fmt::format("r{}", i) : "y");
  }
  return R"({"version": "1.0", "name": "chain", "inputs": {)" + in +
         R"(}, "outputs": {"y": {"shape": [16, 256], "dtype": "float16"}}, "nodes": [)" + nodes + "]}";
}

}  // namespace

TEST_CASE("an operator without a small form stands alone, and what is behind it is one kernel") {
  const std::vector<std::pair<std::string, std::string>> fronts = {
      {"[2, 512]", R"({"op": "repeat", "inputs": ["i"], "output": "x", "attrs": {"axis": 0, "count": 4}})"},
      {"[8, 511]", R"({"op": "concat", "inputs": ["i", "o"], "output": "x", "attrs": {"axis": 1}})"},
  };
  for (const auto& [shape, front] : fronts) {
    const Source s = around(shape, front);
    const CompileResult r = result_of(s);
    INFO(front << "\n" << r.summary << "\n" << r.explanation);
    REQUIRE(r.exit == ExitCode::kOk);
    const auto report = nlohmann::json::parse(r.report);
    CHECK(report["result"]["kernels"].size() == 2);   // the operator; norm, product, bias and gelu
    CHECK(report["result"]["why"].get<std::string>().find("not searched") == std::string::npos);
    CHECK(report["proof"]["proved"] == true);
    CHECK(!report["partition"]["notes"].empty());
    CHECK(check_certificate(Source{"c.json", r.files.at("certificate.json")}, {s}, Options{}).exit == ExitCode::kOk);
  }
}

TEST_CASE("one of every two columns, and one matrix of a stack, are read where they lie or by one copy") {
  const std::vector<std::pair<std::string, std::string>> fronts = {
      {"[16, 512]", R"({"op": "slice", "inputs": ["i"], "output": "x", "attrs": {"axis": 0, "start": 1, "stop": 16, "step": 2}})"},
      {"[3, 8, 512]",
       R"({"op": "slice", "inputs": ["i"], "output": "j", "attrs": {"axis": 0, "start": 2, "stop": 3}}, )"
       R"({"op": "reshape", "inputs": ["j"], "output": "x", "attrs": {"shape": [8, 512]}})"},
  };
  for (const auto& [shape, front] : fronts) {
    const CompileResult r = result_of(around(shape, front));
    INFO(front << "\n" << r.summary);
    REQUIRE(r.exit == ExitCode::kOk);
    CHECK(nlohmann::json::parse(r.report)["result"]["kernels"].size() == 1);
  }
}

TEST_CASE("attention whose keys and values lie as [tokens, heads x features] is one piece") {
  const Source s{
      "own.json",
      R"({"version": "1.0", "name": "own", "inputs": {"x": {"shape": [577, 1024], "dtype": "bfloat16"}, "wq": {"shape": [1024, 1024], "dtype": "bfloat16"}, "k": {"shape": [577, 1024], "dtype": "bfloat16"},
    "wv": {"shape": [1024, 1024], "dtype": "bfloat16"}}, "outputs": {"y": {"shape": [577, 1024], "dtype": "bfloat16"}},
    "nodes": [{"op": "matmul", "inputs": ["x", "wq"], "output": "q0"}, {"op": "cast", "inputs": ["q0"], "output": "q1", "attrs": {"dtype": "bfloat16"}}, {"op": "reshape", "inputs": ["q1"], "output": "q2", "attrs": {"shape": [577, 16, 64]}},
    {"op": "transpose", "inputs": ["q2"], "output": "q", "attrs": {"perm": [1, 0, 2]}}, {"op": "reshape", "inputs": ["k"], "output": "k2", "attrs": {"shape": [577, 16, 64]}}, {"op": "transpose", "inputs": ["k2"], "output": "kt", "attrs": {"perm": [1, 0, 2]}},
    {"op": "matmul", "inputs": ["x", "wv"], "output": "v0"}, {"op": "cast", "inputs": ["v0"], "output": "v1", "attrs": {"dtype": "bfloat16"}}, {"op": "reshape", "inputs": ["v1"], "output": "v2", "attrs": {"shape": [577, 16, 64]}},
    {"op": "transpose", "inputs": ["v2"], "output": "vt", "attrs": {"perm": [1, 0, 2]}}, {"op": "matmul", "inputs": ["q", "kt"], "output": "s", "attrs": {"transpose_b": true}}, {"op": "mul", "inputs": ["s", 0.125], "output": "t"}, {"op": "softmax", "inputs": ["t"], "output": "p"},
    {"op": "matmul", "inputs": ["p", "vt"], "output": "o"}, {"op": "transpose", "inputs": ["o"], "output": "o1", "attrs": {"perm": [1, 0, 2]}}, {"op": "reshape", "inputs": ["o1"], "output": "y", "attrs": {"shape": [577, 1024]}}]})"};
  const CompileResult r = result_of(s, 20'000'000);
  INFO(r.summary << "\n" << r.explanation);
  REQUIRE(r.exit == ExitCode::kOk);
  const auto report = nlohmann::json::parse(r.report);
  bool attends = false;
  for (const auto& k : report["result"]["kernels"]) attends = attends || k["name"].get<std::string>().find("_attend") != std::string::npos;
  CHECK(attends);
  CHECK(report["proof"]["proved"] == true);
}

TEST_CASE("what stands behind a reshape is cut before what it can be one piece with, in whatever order the program names them") {
  const Program p = read(
      R"({"version": "1.0", "name": "late", "inputs": {"x": {"shape": [48, 64], "dtype": "bfloat16"}, "k": {"shape": [4, 48, 16], "dtype": "bfloat16"}, "z": {"shape": [48, 64], "dtype": "bfloat16"}, "w": {"shape": [64, 64], "dtype": "bfloat16"}},
    "outputs": {"y": {"shape": [4, 48, 16], "dtype": "bfloat16"}}, "nodes": [{"op": "reshape", "inputs": ["x"], "output": "q1", "attrs": {"shape": [48, 4, 16]}}, {"op": "transpose", "inputs": ["q1"], "output": "q", "attrs": {"perm": [1, 0, 2]}},
    {"op": "matmul", "inputs": ["q", "k"], "output": "s", "attrs": {"transpose_b": true}}, {"op": "softmax", "inputs": ["s"], "output": "p"}, {"op": "matmul", "inputs": ["z", "w"], "output": "v0"},
    {"op": "reshape", "inputs": ["v0"], "output": "v1", "attrs": {"shape": [48, 4, 16]}}, {"op": "transpose", "inputs": ["v1"], "output": "v", "attrs": {"perm": [1, 0, 2]}}, {"op": "matmul", "inputs": ["p", "v"], "output": "y"}]})");
  const Cuts cuts = find_cuts(p.graph);
  for (size_t u = 0; u < cuts.units.size(); u++)
    for (const auto* list : {&cuts.units[u].direct, &cuts.units[u].through})
      for (int w : *list) CHECK(w < static_cast<int>(u));
  const CutGraph g = enumerate_cuts(cuts, p.graph, {});
  CHECK(std::any_of(g.cuts.begin(), g.cuts.end(), [&](const Cut& c) {  // scores, softmax and the second product
    return c.units.size() == 3 &&
           std::count_if(c.units.begin(), c.units.end(), [&](int u) { return cuts.units[static_cast<size_t>(u)].contracts; }) == 2;
  }));
}

TEST_CASE("a chain of twenty-four products is proved piece by piece") {
  const CompileResult r = result_of({"chain.json", chain(24)});
  INFO(r.summary << "\n" << r.explanation);
  REQUIRE(r.exit == ExitCode::kOk);
  const auto report = nlohmann::json::parse(r.report);
  CHECK(report["result"]["kernels"].size() == 24);
  CHECK(report["proof"]["proved"] == true);
  CHECK(report["proof"]["terms"] < 100);   // those of one piece: of the whole there would be more than anybody multiplies out
}

TEST_CASE("cuts of wide programs end, and those that keep most inside come first") {
  std::string in = R"("x": {"shape": [16, 64], "dtype": "float16"})", nodes, last;
  for (int i = 0; i < 48; i++) {   // each with a width of its own: no two are alike
    in += fmt::format(R"(, "w{}": {{"shape": [64, {}], "dtype": "float16"}}, "v{}": {{"shape": [{}, 32], "dtype": "float16"}})", i,
                      64 + 8 * i, i, 64 + 8 * i);
    nodes += fmt::format(
        R"({}{{"op": "matmul", "inputs": ["x", "w{}"], "output": "m{}"}}, {{"op": "gelu", "inputs": ["m{}"], "output": "g{}"}}, )"
        R"({{"op": "matmul", "inputs": ["g{}", "v{}"], "output": "o{}"}})",
        i ? ", " : "", i, i, i, i, i, i, i);
    const std::string sum = i == 47 ? "y" : fmt::format("s{}", i);
    if (i > 0) nodes += fmt::format(R"(, {{"op": "add", "inputs": ["{}", "o{}"], "output": "{}"}})", last, i, sum);
    last = i == 0 ? "o0" : sum;
  }
  const Program p = read(R"({"version": "1.0", "name": "wide", "inputs": {)" + in +
                         R"(}, "outputs": {"y": {"shape": [16, 32], "dtype": "float16"}}, "nodes": [)" + nodes + "]}");
  const Cuts cuts = find_cuts(p.graph);
  REQUIRE(cuts.units.size() > 100);
  const CutGraph g = enumerate_cuts(cuts, p.graph, {});
  CHECK(g.end == static_cast<int>(g.steps.size()) - 1);
  CHECK(g.end >= static_cast<int>(cuts.units.size()) / 6);
  CHECK(static_cast<int>(g.cuts.size()) <= CutLimits{}.cuts + static_cast<int>(cuts.units.size()));
  for (size_t s = 0; s + 1 < g.steps.size(); s++) CHECK(!g.steps[s].empty());
}

TEST_CASE("pieces are read back from their leaves and results, and nothing else") {
  const Program p = read(chain(3));
  const Cuts cuts = find_cuts(p.graph);
  const auto classes = extent_classes(p.graph);
  for (const Cut& c : enumerate_cuts(cuts, p.graph, {}).cuts) {
    const Piece made = make_piece(cuts, c, p.graph, classes);
    const auto read = piece_between(p.graph, made.leaves, made.results, classes);
    REQUIRE(read);
    CHECK(read->graph == made.graph);
    std::vector<ValueId> fewer(made.leaves.begin(), made.leaves.end() - 1);
    // needs an input that is not named, or computes more: the last leaf is an input
    CHECK(!piece_between(p.graph, fewer, made.results, classes).has_value());
    CHECK(!piece_between(p.graph, made.results, made.results, classes).has_value());
  }
}
