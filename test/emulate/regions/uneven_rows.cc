// Rows that begin where no vector does (edges), rows that wait in shared memory, and what one pass computes and keeps for later ones, on
// the CPU: every division of many programs. Concatenations of many reads, each place of which has code of its own.
#include <tuple>

#include "emulate/regions/rows.h"
#include "mirage/codegen/module.h"

using namespace mirage;
using namespace mirage::test;

namespace {

struct Cases : Divisions {
  /// A plan for many rows, at few: costs choose edges where there are many rows. What the gate emulates has the plan's kernel.
  Reduced reduced(const std::string& what, const std::string& text) {
    const Program p = program_of(text, "rows");
    const Plan full = plan(p, what);
    check_reduced(p, full, what);
    return reduce_plan(p, full, target, false);
  }
  void check_reduced(const Program& p, const Plan& plan, const std::string& what) {
    for (bool tails : {false, true}) {
      const Reduced small = reduce_plan(p, plan, target, tails);
      INFO(what << ": " << small.refusal << small.differs);
      REQUIRE(small.plan);
      CHECK(small.differs == "");
      const RegionPlan &full = region(plan.kernels[0]), &reduced = region(small.plan->kernels[0]);
      CHECK(reduced.staged == full.staged);
      if (reduced.staged) CHECK(reduced.length > reduced.team);   // some threads have more than one vector
      CHECK(reduced.team == full.team);
      CHECK(reduced.width == full.width);
      CHECK(reduced.cluster == full.cluster);
      if (!tails) CHECK(reduced.uneven == full.uneven);
    }
  }
};

std::string softmax(const std::string& in, const std::string& out, const std::string& type) {
  return fmt::format(
      R"({{"version": "1.0", "name": "rows", "inputs": {{"x": {{{0}, "dtype": "{2}"}}}}, )"
      R"("outputs": {{"y": {{"shape": [{1}], "dtype": "{2}"}}}}, "nodes": [{{"op": "softmax", "inputs": ["x"], )"
      R"("output": "y", "attrs": {{"axis": -1}}}}]}})",
      in, out, type);
}

/// Three reductions with functions between them that take long.
std::string chain(const std::string& shape, int axis, const std::string& dtype) {
  const auto node = [&](const std::string& out, const std::string& op, const std::string& in, const std::string& attrs) {
    return fmt::format(R"({{"op": "{}", "inputs": [{}], "output": "{}"{}}}, )", op, in, out,
                       attrs.empty() ? "" : R"(, "attrs": {"axis": )" + std::to_string(axis) + attrs + "}");
  };
  std::string nodes = node("s", "add", R"("x", "b")", "") + node("t", "tanh", R"("s")", "") +
                      node("m", "mean", R"("t")", R"(, "keepdim": true)") + node("c", "sub", R"("t", "m")", "") +
                      node("u", "tanh", R"("c")", "") + node("p", "softmax", R"("u")", " ") + node("g", "sigmoid", R"("p")", "") +
                      node("n", "max", R"("g")", R"(, "keepdim": true)") + node("d", "sub", R"("g", "n")", "") +
                      node("y", "add", R"("d", "u")", "");
  nodes.resize(nodes.size() - 2);
  return fmt::format(R"({{"version": "1.0", "name": "kept", "inputs": {{"x": {{"shape": [{0}], "dtype": "{1}"}}, )"
                     R"("b": {{"shape": [{0}], "dtype": "{1}"}}}}, )"
                     R"("outputs": {{"y": {{"shape": [{0}], "dtype": "{1}"}}}}, "nodes": [{2}]}})",
                     shape, dtype, nodes);
}

/// The 3 x 3 neighbours of each element of images beside each other, every `step`-th of them.
std::string windows(int images, int side, int step, const std::string& in, const std::string& out, const std::string& last) {
  std::string nodes, parts;
  for (int i = 0; i < 9; i++) {
    nodes += fmt::format(
        R"({{"op": "slice", "inputs": ["x"], "output": "r{0}", "attrs": {{"axis": 2, "start": {1}, "stop": {2}, "step": {3}}}}}, )"
        R"({{"op": "slice", "inputs": ["r{0}"], "output": "p{0}", "attrs": {{"axis": 3, "start": {4}, "stop": {5}, "step": {3}}}}}, )",
        i, i / 3, i / 3 + (side - 1) * step + 1, step, i % 3, i % 3 + (side - 1) * step + 1);
    parts += fmt::format("{}\"p{}\"", i ? ", " : "", i);
  }
  const int whole = (side - 1) * step + 3;
  return fmt::format(
      R"({{"version": "1.0", "name": "windows", "inputs": {{"x": {{"shape": [{0}, 1, {1}, {1}], "dtype": "{2}"}}}}, )"
      R"("outputs": {{"y": {{"shape": [{0}, 9, {3}, {3}], "dtype": "{4}"}}}}, "nodes": [{5})"
      R"({{"op": "concat", "inputs": [{6}], "output": "c", "attrs": {{"axis": 1}}}}, {{"op": "{7}", "inputs": ["c"], "output": "y"}}]}})",
      images, whole, in, side, out, nodes, parts, last);
}

}  // namespace

TEST_CASE("rows of every length begin in every lane") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  Cases cases;
  for (const auto& [type, from, width] : {std::tuple{"float16", 161, 8}, std::tuple{"bfloat16", 49, 8}, std::tuple{"float32", 1025, 4}})
    for (int n = from; n < from + 8; n++) {
      const std::string what = fmt::format("softmax of {} {}", n, type), shape = fmt::format("8000, 9, {}", n);
      const Reduced small = cases.reduced(what, softmax("\"shape\": [" + shape + "]", shape, type));
      INFO(what);
      if (n % 2) CHECK(region(small.plan->kernels[0]).uneven);   // others may be read by twos or fours
      if (n % width == 0) CHECK(!region(small.plan->kernels[0]).uneven);
      cases.add(*small.program, *small.plan, what);
    }
  check_emulations(cases.all, cases.names, compiler, 1.0, false);
}

TEST_CASE("rows with edges, by every division") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  Cases cases;
  const auto add = [&](const std::string& what, const std::string& text) {
    const Reduced small = cases.reduced(what, text);
    INFO(what);
    CHECK(region(small.plan->kernels[0]).uneven);
    CHECK(cases.divide(*small.program, *small.plan, what, [](const RegionPlan& q) {
      return q.cluster > 1 ? "" : fmt::format("teams of {}, {} held{}", q.team, q.held, q.staged ? " in shared memory" : "");
    }) >= 8);
  };
  add("softmax", softmax("\"shape\": [6000, 7, 205]", "6000, 7, 205", "float16"));
  add("a longer row", softmax("\"shape\": [6000, 3, 1063]", "6000, 3, 1063", "bfloat16"));
  add("layer norm with a gain, whose own elements lie elsewhere",
      R"({"version": "1.0", "name": "rows", "inputs": {"x": {"shape": [6000, 5, 333], "dtype": "bfloat16"}, )"
      R"("g": {"shape": [333], "dtype": "bfloat16"}, "b": {"shape": [333], "dtype": "bfloat16"}}, )"
      R"("outputs": {"y": {"shape": [6000, 5, 333], "dtype": "bfloat16"}}, "nodes": [{"op": "layer_norm", "inputs": ["x", "g", "b"], )"
      R"("output": "y"}]})");
  add("a sum, its norm, and the sum itself in float32",
      R"({"version": "1.0", "name": "rows", "inputs": {"x": {"shape": [6000, 5, 117], "dtype": "float16"}, )"
      R"("r": {"shape": [6000, 5, 117], "dtype": "float16"}}, "outputs": {"z": {"shape": [6000, 5, 117], "dtype": "float32"}, )"
      R"("y": {"shape": [6000, 5, 117], "dtype": "float16"}}, "nodes": [{"op": "add", "inputs": ["x", "r"], "output": "z"}, )"
      R"({"op": "rms_norm", "inputs": ["z"], "output": "y"}]})");
  add("scores of a window with a mask that all heads share",
      R"({"version": "1.0", "name": "rows", "inputs": {"x": {"shape": [1000, 3, 51, 51], "dtype": "float16"}, )"
      R"("m": {"shape": [1000, 1, 51, 51], "dtype": "float16"}}, "outputs": {"y": {"shape": [1000, 3, 51, 51], "dtype": "float16"}}, )"
      R"("nodes": [{"op": "add", "inputs": ["x", "m"], "output": "z"}, {"op": "softmax", "inputs": ["z"], )"
      R"("output": "y", "attrs": {"axis": -1}}]})");
  add("rows that lie apart", softmax("\"shape\": [6000, 5, 197], \"strides\": [1015, 203, 1]", "6000, 5, 197", "float16"));
  add("a slice that begins in a vector",
      R"({"version": "1.0", "name": "rows", "inputs": {"x": {"shape": [6000, 6, 211], "dtype": "float16"}}, )"
      R"("outputs": {"y": {"shape": [6000, 6, 205], "dtype": "float16"}}, "nodes": [{"op": "slice", "inputs": ["x"], )"
      R"("output": "s", "attrs": {"axis": 2, "start": 3, "stop": 208}}, {"op": "softmax", "inputs": ["s"], )"
      R"("output": "y", "attrs": {"axis": -1}}]})");
  add("causal scores",
      R"({"version": "1.0", "name": "rows", "inputs": {"x": {"shape": [6000, 67, 67], "dtype": "float16"}}, )"
      R"("outputs": {"y": {"shape": [6000, 67, 67], "dtype": "float16"}}, "nodes": [{"op": "causal_mask", "inputs": ["x"], )"
      R"("output": "z"}, {"op": "softmax", "inputs": ["z"], "output": "y", "attrs": {"axis": -1}}]})");
  add("maps of odd places, with a channel's numbers: no reduction at all",
      R"({"version": "1.0", "name": "rows", "inputs": {"x": {"shape": [640, 16, 27, 27], "dtype": "float16"}, )"
      R"("s": {"shape": [16, 1, 1], "dtype": "float16"}, "t": {"shape": [16, 1, 1], "dtype": "float16"}}, )"
      R"("outputs": {"y": {"shape": [640, 16, 27, 27], "dtype": "float16"}}, )"
      R"("nodes": [{"op": "mul", "inputs": ["x", "s"], "output": "a"}, {"op": "add", "inputs": ["a", "t"], "output": "b"}, )"
      R"({"op": "relu", "inputs": ["b"], "output": "y"}]})");
  check_emulations(cases.all, cases.names, compiler, 1.0, false);
}

TEST_CASE("rows that wait in shared memory") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  Cases cases;
  int clusters = 0;
  const auto add = [&](const std::string& what, const std::string& text) {
    const Program p = program_of(text, "rows");
    const Plan plan = cases.plan(p, what);
    CHECK(cases.divide(p, plan, what, [&](const RegionPlan& q) {
      clusters += q.staged && q.cluster > 1;
      return !q.staged ? "" : fmt::format("{} threads in clusters of {}", q.threads, q.cluster);
    }) >= 2);
  };
  for (int n : {4104, 4103, 4098})
    add(fmt::format("softmax of {}", n), softmax(fmt::format("\"shape\": [3, {}]", n), fmt::format("3, {}", n), "float16"));
  add("float32", softmax("\"shape\": [2, 4099]", "2, 4099", "float32"));
  add("long rows", softmax("\"shape\": [2, 16387]", "2, 16387", "bfloat16"));
  add("long rows of whole vectors", softmax("\"shape\": [2, 9000]", "2, 9000", "float16"));
  add("two operands and a gain",
      R"({"version": "1.0", "name": "rows", "inputs": {"x": {"shape": [2, 4112], "dtype": "float16"}, )"
      R"("r": {"shape": [2, 4112], "dtype": "float16"}, "g": {"shape": [4112], "dtype": "float32"}}, )"
      R"("outputs": {"y": {"shape": [2, 4112], "dtype": "float16"}}, "nodes": [{"op": "add", "inputs": ["x", "r"], "output": "z"}, )"
      R"({"op": "rms_norm", "inputs": ["z"], "output": "q"}, {"op": "cast", "inputs": ["q"], )"
      R"("output": "f", "attrs": {"dtype": "float32"}}, {"op": "mul", "inputs": ["f", "g"], "output": "y"}]})");
  CHECK(clusters >= 6);
  check_emulations(cases.all, cases.names, compiler, 1.0, false);
}

TEST_CASE("plans of many long rows") {
  Cases cases;
  const auto add = [&](const std::string& shape, const std::string& type, bool uneven) {
    const Program p = program_of(softmax("\"shape\": [" + shape + "]", shape, type), "rows");
    const Plan plan = cases.plan(p, shape);
    INFO(shape);
    CHECK(region(plan.kernels[0]).staged);
    CHECK(region(plan.kernels[0]).uneven == uneven);
    cases.check_reduced(p, plan, shape);
  };
  add("256, 50257", "float16", true);
  add("1024, 32000", "float16", false);
  add("256, 128256", "bfloat16", false);
  add("512, 65536", "float32", false);
}

TEST_CASE("what a pass computes waits for later ones, in rows, uneven rows, long rows and columns") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  Divisions cases;
  int kept = 0;
  struct Rows { std::string shape; int axis; std::string dtype; };
  for (const Rows& r : {Rows{"40, 192", 1, "float32"}, Rows{"3, 20, 257", 2, "float16"}, Rows{"300, 33", 1, "float32"},
                        Rows{"2, 64, 96", 1, "bfloat16"}, Rows{"2, 8200", 1, "float32"}}) {
    const Program p = program_of(chain(r.shape, r.axis, r.dtype), "kept");
    const Plan plan = cases.plan(p, r.shape);
    INFO(print(plan));
    CHECK(region(plan.kernels[0]).kept > 0);
    cases.divide(p, plan, r.shape, [&](const RegionPlan& q) {
      kept += q.kept > 0;
      return fmt::format("{} threads, {} columns, teams of {}, {} kept, clusters of {}", q.threads, q.columns, q.team, q.kept, q.cluster);
    });
  }
  CHECK(kept > 20);
  check_emulations(cases.all, cases.names, compiler, 1.0, false);
}

TEST_CASE("a value that is kept is computed in one pass only") {
  Divisions cases;
  const Program p = program_of(chain("40, 192", 1, "float32"), "kept");
  const Plan plan = cases.plan(p, "row");
  const std::string text = emit_kernel(plan.kernels[0], plan, cases.target).source;
  size_t tanhs = 0;
  for (size_t at = text.find("mo::tanh("); at != std::string::npos; at = text.find("mo::tanh(", at + 1)) tanhs++;
  CHECK(tanhs == 2);
}

TEST_CASE("each value of an unrolled loop has its own code") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) {
    WARN("skipped: there is no host compiler");
    return;
  }
  Divisions cases;
  const auto add = [&](const std::string& what, const std::string& text, bool vectors) {
    const Program p = program_of(text, "windows");
    const Plan full = cases.plan(p, what);
    INFO(what);
    CHECK(region(full.kernels[0]).unrolled >= 0);
    CHECK(region(full.kernels[0]).length == 9);
    CHECK((region(full.kernels[0]).width > 1) == vectors);
    const Reduced small = reduce_plan(p, full, cases.target, false);  // what the gate emulates has the plan's kernel
    INFO(small.refusal << small.differs);
    REQUIRE(small.plan);
    CHECK(region(small.plan->kernels[0]).unrolled >= 0);
    cases.add(*small.program, *small.plan, what);
  };
  add("vectors", windows(256, 64, 1, "bfloat16", "bfloat16", "relu"), true);
  add("float32, of twos", windows(512, 50, 1, "float32", "float16", "neg"), true);
  add("lines of odd length", windows(512, 49, 1, "float16", "float16", "silu"), false);
  // a window of neighbours of its own for each place
  std::string neighbours = windows(256, 64, 1, "bfloat16", "bfloat16", "relu");
  neighbours.replace(neighbours.find(R"("dtype": "bfloat16"}}, "outputs")"), 22,
                     R"("dtype": "bfloat16"}, "u": {"shape": [256, 9, 64, 72], "dtype": "bfloat16"}}, )");
  std::string sums, last = "c";
  for (int i = 0; i < 5; i++) {
    sums += fmt::format(R"({{"op": "slice", "inputs": ["u"], "output": "u{0}", "attrs": {{"axis": 3, "start": {0}, "stop": {1}}}}}, )"
                        R"({{"op": "add", "inputs": ["{2}", "u{0}"], "output": "d{0}"}}, )", i, i + 64, last);
    last = fmt::format("d{}", i);
  }
  const std::string end = R"({"op": "relu", "inputs": ["c"])";
  neighbours.replace(neighbours.find(end), end.size(), sums + R"({"op": "relu", "inputs": ["d4"])");
  add("windows at each place", neighbours, true);
  add("every second", windows(512, 48, 2, "bfloat16", "float32", "relu"), true);
  check_emulations(cases.all, cases.names, compiler, 1.0, false);
}

TEST_CASE("few elements and few places leave a loop as it is") {
  Divisions cases;
  for (const auto& [images, side] : {std::pair{16, 32}, std::pair{1, 520}}) {
    const Program p = program_of(windows(images, side, 1, "bfloat16", "bfloat16", "relu"), "windows");
    CHECK((region(cases.plan(p, "windows").kernels[0]).unrolled >= 0) == (images == 1));
  }
  const Program halves =
      program_of(R"({"version": "1.0", "name": "halves", "inputs": {"x": {"shape": [64, 64, 1024], "dtype": "float16"}, )"
                 R"("z": {"shape": [64, 64, 1024], "dtype": "float16"}}, "outputs": {"y": {"shape": [64, 64, 1024], "dtype": "float16"}}, )"
                 R"("nodes": [{"op": "slice", "inputs": ["x"], "output": "a", "attrs": {"axis": 1, "start": 0, "stop": 32}}, )"
                 R"({"op": "slice", "inputs": ["z"], "output": "b", "attrs": {"axis": 1, "start": 32, "stop": 64}}, )"
                 R"({"op": "concat", "inputs": ["a", "b"], "output": "y", "attrs": {"axis": 1}}]})",
                 "halves");
  CHECK(region(cases.plan(halves, "halves").kernels[0]).unrolled < 0);
}
