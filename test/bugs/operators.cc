// Operators of models at the whole way: compiled as a user would, their kernels emulated. Each that is read by index never leaves its
// tensor, whatever the index is.
#include <catch2/catch.hpp>

#include "mirage/driver/compile.h"
#include "mirage/plan/plan.h"
#include "mirage/spec/spec.h"

using namespace mirage;

namespace {

/// The straightforward kernels pass the emulation gate.
CompileResult emulated(const std::string& inputs, const std::string& nodes, const std::string& dtype) {
  const std::string text =
      R"({"name": "op", "inputs": {)" + inputs + R"(}, "outputs": {"y": {"dtype": ")" + dtype + R"("}}, "nodes": [)" + nodes + "]}";
  Options o;
  o.states = 0;
  o.gate = "emulate";
  Trace trace;
  const CompileResult r = compile(o, {"op.json", text}, trace);
  for (const Diagnostic& d : r.diagnostics) UNSCOPED_INFO(render(d, text));
  CHECK(r.exit == ExitCode::kOk);
  return r;
}

std::string text_of(const std::string& inputs, const std::string& nodes, const std::string& dtype) {
  const auto p = parse_spec({"op.json", R"({"name": "op", "inputs": {)" + inputs + R"(}, "outputs": {"y": {"dtype": ")" + dtype +
                                            R"("}}, "nodes": [)" + nodes + "]}"});
  REQUIRE(p.ok());
  const Planned planned = make_plan(*p, p->graph, *find_target("sm_90a"));
  REQUIRE(planned.plan);
  return print(*planned.plan);
}

const char* const kTable = R"("i": {"shape": [3, 5], "dtype": "int64", "range": [-2, 45]}, "t": {"shape": [40, 24], "dtype": "float16"})";

}  // namespace

TEST_CASE("reads by index are loads, and an index outside reads nothing", "[bugs]") {
  emulated(kTable, R"({"op": "embedding", "inputs": ["i", "t"], "output": "y"})", "float16");
  const std::string plan = text_of(kTable, R"({"op": "embedding", "inputs": ["i", "t"], "output": "y"})", "float16");
  INFO(plan);
  CHECK(plan.find("loaded < 41") != std::string::npos);      // no loop over the 40 entries
  CHECK(plan.find("reduce.sum") == std::string::npos);
  emulated(R"("x": {"shape": [6, 7], "dtype": "float32"}, "i": {"shape": [6, 3], "dtype": "int32", "range": [-1, 7]})",
           R"({"op": "exp", "inputs": ["x"], "output": "e"}, {"op": "gather", "inputs": ["e", "i"], "output": "y", "attrs": {"axis": 1}})",
           "float32");
}

TEST_CASE("a flipped tensor is read from its end", "[bugs]") {
  const char* const x = R"("x": {"shape": [6, 40], "dtype": "float16"})";
  emulated(x, R"({"op": "flip", "inputs": ["x"], "output": "y"})", "float16");
  const std::string plan = text_of(x, R"({"op": "flip", "inputs": ["x"], "output": "y", "attrs": {"axis": 1}})", "float16");
  INFO(plan);
  CHECK(plan.find("reduce.sum") == std::string::npos);
  emulated(x, R"({"op": "pad", "inputs": ["x"], "output": "y", "attrs": {"before": [1, 3], "after": [2, 0], "mode": "reflect"}})",
           "float16");
}

TEST_CASE("an axis whose elements squared are too many is flipped in its factors", "[bugs]") {
  const char* const x = R"("x": {"shape": [1048576, 2], "dtype": "float16"})";
  const char* const flip = R"({"op": "flip", "inputs": ["x"], "output": "y", "attrs": {"axis": 0}})";
  emulated(x, flip, "float16");
  CHECK(text_of(x, flip, "float16").find("reduce.sum") == std::string::npos);
}

TEST_CASE("places of extremes are stored as whole numbers", "[bugs]") {
  emulated(R"("x": {"shape": [6, 40], "dtype": "float16"})", R"({"op": "argmax", "inputs": ["x"], "output": "y", "attrs": {"axis": 1}})",
           "int64");
  emulated(R"("x": {"shape": [6, 40], "dtype": "bfloat16"})", R"({"op": "argmin", "inputs": ["x"], "output": "y", "attrs": {"axis": 0}})",
           "int32");
}

TEST_CASE("windows, functions and splits hold when they are emulated", "[bugs]") {
  emulated(R"("x": {"shape": [2, 4, 9, 8], "dtype": "float16"}, "w": {"shape": [6, 4, 3, 3], "dtype": "float16"})",
           R"({"op": "conv", "inputs": ["x", "w"], "output": "y", "attrs": {"padding": 1, "stride": [2, 1]}})", "float16");
  emulated(
      R"("x": {"shape": [2, 4, 9, 8], "dtype": "float32"})",
      R"({"op": "max_pool", "inputs": ["x"], "output": "m", "attrs": {"kernel": 3, "stride": 2, "padding": 1}}, {"op": "floor", "inputs": ["m"], "output": "f"},
    {"op": "sin", "inputs": ["m"], "output": "s"}, {"op": "mish", "inputs": ["s"], "output": "t"}, {"op": "elu", "inputs": ["f"], "output": "g"}, {"op": "add", "inputs": ["t", "g"], "output": "y"})",
      "float32");
  emulated(R"("x": {"shape": [4, 24], "dtype": "float16"}, "c": {"shape": [4, 4], "dtype": "float16"})",
           R"({"op": "split", "inputs": ["x"], "outputs": ["a", "b", "d"]}, {"op": "rope", "inputs": ["b", "c", "c"], "output": "r"},
    {"op": "stack", "inputs": ["a", "r", "d"], "output": "y", "attrs": {"axis": 1}})",
           "float16");
}

TEST_CASE("a scalar is passed by value wherever it stands", "[bugs]") {
  const std::string x = R"("x": {"shape": [16, 512], "dtype": "float16"}, "w": {"shape": [512, 512], "dtype": "float16"}, )";
  const std::string values =
      R"("s": {"shape": null, "dtype": "float16"}, "n": {"shape": null, "dtype": "int32", "range": [0, 40]}, )"
      R"("b": {"shape": null, "dtype": "bool"})";
  // A factor behind a product, a bound of positions, a condition, an operand that is joined to others, and one that is multiplied as a
  // matrix.
  const std::string nodes =
      R"({"op": "matmul", "inputs": ["x", "w"], "output": "p"}, {"op": "mul", "inputs": ["p", "s"], "output": "q"}, {"op": "iota", "inputs": [], "output": "i", "attrs": {"axis": 1, "shape": [16, 512]}},
    {"op": "less", "inputs": ["i", "n"], "output": "m"}, {"op": "where", "inputs": ["m", "q", 0], "output": "r"}, {"op": "where", "inputs": ["b", "r", "x"], "output": "t"}, {"op": "reshape", "inputs": ["s"], "output": "one", "attrs": {"shape": [1, 1]}},
    {"op": "sum", "inputs": ["t"], "output": "u", "attrs": {"axis": 1, "keepdim": true}}, {"op": "matmul", "inputs": ["u", "one"], "output": "v"}, {"op": "concat", "inputs": ["v", "one"], "output": "y", "attrs": {"axis": 0}})";
  const CompileResult r = emulated(x + values, nodes, "float16");
  const std::string &cu = r.files.at("op.cu"), &h = r.files.at("op.h");
  for (const char* type : {"f16", "i32", "b8"})
    CHECK(cu.find(std::string("const __grid_constant__ mo::") + type + " ") != std::string::npos);
  CHECK(h.find("const void* x, const void* w, float s, int32_t n, uint8_t b, void* y, ") != std::string::npos);
  CHECK(cu.find("const __half s__ = __float2half_rn(s);") != std::string::npos);
  CHECK(cu.find("constexpr bool kByValue[kNumTensors] = {false, false, true, true, true, false};") != std::string::npos);
}
