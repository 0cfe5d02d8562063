// Convolutions of one channel each, on the CPU: rows and columns apart, several rows to a thread, lines of places, taps that lie beside
// each other in lanes that are apart, a norm and a mean behind them in one kernel of rows, and what is padded stored before it is.
#include <deque>

#include <fmt/format.h>

#include "emulate/regions/rows.h"

using namespace mirage;
using namespace mirage::test;

namespace {

struct Conv { int batch, channels, height, width, kernel; std::string attrs, dtype; int out_height, out_width; };

/// `around`: nodes behind the convolution, from "c" to "y"; `extra`: more inputs.
std::string conv(const Conv& c, const std::string& around = R"({"op": "relu", "inputs": ["c"], "output": "y"})",
                 const std::string& extra = "", const std::string& shape = "") {
  return fmt::format(
      R"({{"version": "1.0", "name": "depthwise", "inputs": {{"x": {{"shape": [{0}, {1}, {2}, {3}], "dtype": "{4}"}}, )"
      R"("w": {{"shape": [{1}, 1, {5}, {5}], "dtype": "{4}"}}{6}}}, "outputs": {{"y": {{"shape": [{7}], "dtype": "{4}"}}}}, "nodes": [)"
      R"({{"op": "conv", "inputs": ["x", "w"], "output": "c", "attrs": {{"groups": {1}, {8}}}}}, {9}]}})",
      c.batch, c.channels, c.height, c.width, c.dtype, c.kernel, extra,
      shape.empty() ? fmt::format("{}, {}, {}, {}", c.batch, c.channels, c.out_height, c.out_width) : shape, c.attrs, around);
}

struct Built : Divisions {
  /// As planned for its own extents, at reduced ones.
  const RegionPlan& add_reduced(const std::string& what, const std::string& text, size_t kernels = 1) {
    const Program p = program_of(text, "depthwise");
    const Planned full = make_plan(p, p.graph, target);
    INFO(what << ": " << full.reason);
    REQUIRE(full.plan);
    REQUIRE(full.plan->kernels.size() == kernels);
    for (bool tails : {false, true}) {
      const Reduced small = reduce_plan(p, *full.plan, target, tails);
      INFO(small.refusal << small.differs);
      REQUIRE(small.plan);
      add(*small.program, *small.plan, what);
    }
    kept.push_back(*full.plan);
    return region(kept.back().kernels[0]);
  }
  std::deque<Plan> kept;
};

}  // namespace

TEST_CASE("a norm over channels that lie apart stores them beside each other") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) {
    WARN("skipped: there is no host compiler");
    return;
  }
  Built cases;
  for (const auto& [channels, held] : {std::pair{128, 8}, {96, 6}, {64, 8}, {80, 5}}) {
    const std::string what = fmt::format("{} channels", channels);
    const std::string text = fmt::format(
        R"({{"version": "1.0", "name": "depthwise", "inputs": {{"x": {{"shape": [4, {0}, 28, 28], "dtype": "float16"}}, )"
        R"("g": {{"shape": [{0}, 1, 1], "dtype": "float16"}}}}, "outputs": {{"y": {{"dtype": "float16"}}}}, "nodes": [)"
        R"({{"op": "mean", "inputs": ["x"], "output": "m", "attrs": {{"axis": 1, "keepdim": true}}}}, )"
        R"({{"op": "sub", "inputs": ["x", "m"], "output": "d"}}, {{"op": "square", "inputs": ["d"], "output": "q"}}, )"
        R"({{"op": "mean", "inputs": ["q"], "output": "v", "attrs": {{"axis": 1, "keepdim": true}}}}, )"
        R"({{"op": "add", "inputs": ["v", 1e-06], "output": "e"}}, {{"op": "sqrt", "inputs": ["e"], "output": "r"}}, )"
        R"({{"op": "div", "inputs": ["d", "r"], "output": "n"}}, {{"op": "mul", "inputs": ["n", "g"], "output": "t"}}, )"
        R"({{"op": "transpose", "inputs": ["t"], "output": "y", "attrs": {{"perm": [0, 2, 3, 1]}}}}]}})",
        channels);
    const RegionPlan& p = cases.add_reduced(what, text);
    const std::map<std::string, std::string> files = emit_module(program_of(text, what), cases.kept.back(), cases.target, {}).files;
    INFO(what);
    CHECK(p.shape == RegionPlan::Shape::kColumn);
    CHECK(p.held == held);
    CHECK((files.at("depthwise.cu").find("store_along<") != std::string::npos) == (held != 5));
  }
  check_emulations(cases.all, cases.names, compiler, 1.0, true);
}

TEST_CASE("threads of a window take rows, and lanes lie in one of them") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) {
    WARN("skipped: there is no host compiler");
    return;
  }
  Built cases;
  const auto rows = [&](const std::string& what, const Conv& c, int64_t own_rows, bool windows = true) {
    const RegionPlan& p = cases.add_reduced(what, conv(c));
    INFO(what);
    CHECK(p.windows.empty() != windows);
    CHECK((p.unrolled >= 0 ? p.length : 0) == own_rows);
    if (own_rows > 0) CHECK(p.lane_extent == c.out_width);
  };
  rows("3 x 3", {8, 576, 28, 28, 3, R"("padding": 1)", "bfloat16", 28, 28}, 4);
  rows("3 x 3 of 56", {8, 144, 56, 56, 3, R"("padding": 1)", "float16", 56, 56}, 4);
  rows("7 x 7", {4, 192, 28, 28, 7, R"("padding": 3)", "bfloat16", 28, 28}, 2);
  rows("one line of places", {8, 672, 14, 14, 5, R"("padding": 2)", "bfloat16", 14, 14}, 0);
  rows("every second", {8, 576, 28, 28, 3, R"("padding": 1, "stride": 2)", "bfloat16", 14, 14}, 0);
  rows("every second of 112", {4, 96, 112, 112, 3, R"("padding": 1, "stride": 2)", "float16", 56, 56}, 2);
  rows("apart", {8, 288, 32, 32, 3, R"("padding": 2, "dilation": 2)", "bfloat16", 32, 32}, 4);
  rows("float32", {8, 144, 56, 56, 3, R"("padding": 1)", "float32", 56, 56}, 4);
  rows("even", {8, 288, 33, 33, 2, R"("padding": 0)", "bfloat16", 32, 32}, 0, false);
  check_emulations(cases.all, cases.names, compiler, 1.0, true);
}

TEST_CASE("windows in kernels of rows, and what is padded is stored before it is") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) {
    WARN("skipped: there is no host compiler");
    return;
  }
  Built cases;
  const Conv c{8, 576, 28, 28, 3, R"("padding": 1)", "bfloat16", 28, 28};
  const RegionPlan& p = cases.add_reduced("mean", conv(c, R"({"op": "silu", "inputs": ["c"], "output": "s"}, )"
                                                          R"({"op": "mean", "inputs": ["s"], "output": "y", "attrs": {"axis": [2, 3]}})",
                                                       "", "8, 576"));
  CHECK(p.shape == RegionPlan::Shape::kRow);
  CHECK(p.windows.size() == 3);
  // a function that takes long ahead of the window: once per element, not once per tap or for the zeros around them
  const std::string text = conv(c, R"({"op": "relu", "inputs": ["c"], "output": "y"})");
  std::string silu = text;
  silu.replace(silu.find(R"({"op": "conv", "inputs": ["x")"), 29,
               R"({"op": "silu", "inputs": ["x"], "output": "h"}, {"op": "conv", "inputs": ["h")");
  const RegionPlan& first = cases.add_reduced("silu", silu, 2);
  CHECK(first.rows * first.width == int64_t{8} * 576 * 28 * 28);
  CHECK(region(cases.kept.back().kernels[1]).windows.size() == 3);
  check_emulations(cases.all, cases.names, compiler, 1.0, false);
}

TEST_CASE("windows of passes that read none, and of sides that no row takes") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) {
    WARN("skipped: there is no host compiler");
    return;
  }
  Built cases;
  // a pass that only adds up what an earlier one kept declares no loop for windows
  const std::string row = R"({"version": "1.0", "name": "row", "inputs": {"x": {"shape": [256, 4096], "dtype": "float32"}, )"
                          R"("z": {"shape": [256, 4096], "dtype": "float32"}, "w": {"shape": [1, 1, 3], "dtype": "float32"}}, )"
                          R"("outputs": {"y": {"shape": [256, 4096], "dtype": "float32"}}, "nodes": [)"
                          R"({"op": "reshape", "inputs": ["x"], "output": "r", "attrs": {"shape": [256, 1, 4096]}}, )"
                          R"({"op": "conv", "inputs": ["r", "w"], "output": "c", "attrs": {"padding": 1}}, )"
                          R"({"op": "reshape", "inputs": ["c"], "output": "d", "attrs": {"shape": [256, 4096]}}, )"
                          R"({"op": "add", "inputs": ["d", "z"], "output": "s"}, )"
                          R"({"op": "softmax", "inputs": ["s"], "output": "y", "attrs": {"axis": -1}}]})";
  const RegionPlan& p = cases.add_reduced("softmax", row);
  CHECK(!p.windows.empty());
  CHECK(p.kept > 0);
  // an image of four rows, of which the second reads what the others have zeros for
  cases.add_reduced("four rows",
                    R"({"version": "1.0", "name": "rows", "inputs": {"x": {"shape": [64, 512, 4, 64], "dtype": "bfloat16"}, )"
                    R"("b": {"shape": [64, 512, 2, 64], "dtype": "bfloat16"}, "w": {"shape": [512, 1, 3, 3], "dtype": "bfloat16"}, )"
                    R"("v": {"shape": [512, 1, 1, 3], "dtype": "bfloat16"}}, "outputs": {"y": {"shape": [64, 512, 4, 64], )"
                    R"("dtype": "bfloat16"}}, "nodes": [)"
                    R"({"op": "conv", "inputs": ["x", "w"], "output": "c", "attrs": {"padding": 1, "groups": 512}}, )"
                    R"({"op": "repeat", "inputs": ["b"], "output": "b2", "attrs": {"axis": 2, "count": 2}}, )"
                    R"({"op": "slice", "inputs": ["b2"], "output": "b3", "attrs": {"axis": 2, "start": 0, "stop": 3}}, )"
                    R"({"op": "pad", "inputs": ["b3"], "output": "b4", "attrs": {"before": [0, 0, 1, 0], "after": [0, 0, 0, 0]}}, )"
                    R"({"op": "conv", "inputs": ["b4", "v"], "output": "d", "attrs": {"padding": [0, 1], "groups": 512}}, )"
                    R"({"op": "add", "inputs": ["c", "d"], "output": "y"}]})");
  check_emulations(cases.all, cases.names, compiler, 1.0, false);
}
