// "Never slower" for small programs whose sizes no tile divides: where one kernel was measured faster than the straightforward ones, the
// model must not choose those, and where it was slower not it. Measured on an H200 (cold, graphs of more than 20 launches over 200 MB of
// inputs, microseconds): one kernel, straightforward. The table is what generic block kernels cost outside their loops
// (lib/plan/block/cost.cc); programs where the model is still wrong are in docs/measurements/blocks.md.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "mirage/driver/compile.h"
#include "mirage/support/file.h"

using namespace mirage;

namespace {

enum class Kind { kRms, kLayerNorm, kGated, kGainBias };
struct Small { Kind kind; int rows, depth, columns; double fused, plain; };
constexpr Small kMeasured[] = {
    {Kind::kLayerNorm, 5, 1000, 1000, 4.13, 6.37}, {Kind::kLayerNorm, 3, 100, 200, 4.12, 5.14},
    {Kind::kLayerNorm, 20, 520, 264, 6.12, 6.64}, {Kind::kRms, 5, 1000, 1000, 4.99, 5.46},
    {Kind::kRms, 33, 333, 555, 8.25, 10.10},
    {Kind::kRms, 1, 1000, 1000, 4.61, 5.19},
    {Kind::kGated, 7, 300, 500, 3.36, 7.50},
    {Kind::kGated, 17, 513, 257, 7.43, 14.63},
    {Kind::kGated, 5, 1001, 1003, 7.67, 15.48},
    // the fused one read the rows' squares beside the ring, chunk by chunk, each as late as L2 answers
    {Kind::kGainBias, 200, 2000, 3072, 29.11, 17.20},
};

std::string spec(const Small& s) {
  const char* extra[] = {
      "",
      R"(, "g": {"shape": ["K"], "dtype": "float16"}, "b": {"shape": ["K"], "dtype": "float16"}, )"
      R"("c": {"shape": ["N"], "dtype": "float16"})",
      R"(, "v": {"shape": ["K", "N"], "dtype": "float16"})",
      R"(, "g": {"shape": ["K"], "dtype": "float16"}, "c": {"shape": ["N"], "dtype": "float16"})"};
  const char* nodes[] = {
      R"({"op": "rms_norm", "inputs": ["x"], "output": "n", "attrs": {"axis": -1, "eps": 1e-5}}, )"
      R"({"op": "matmul", "inputs": ["n", "w"], "output": "y"})",
      R"({"op": "layer_norm", "inputs": ["x", "g", "b"], "output": "n", "attrs": {"axis": -1, "eps": 1e-5}}, )"
      R"({"op": "matmul", "inputs": ["n", "w"], "output": "p"}, {"op": "add", "inputs": ["p", "c"], "output": "y"})",
      R"({"op": "matmul", "inputs": ["x", "v"], "output": "a"}, {"op": "silu", "inputs": ["a"], "output": "s"}, )"
      R"({"op": "matmul", "inputs": ["x", "w"], "output": "u"}, {"op": "mul", "inputs": ["s", "u"], "output": "y"})",
      R"({"op": "rms_norm", "inputs": ["x", "g"], "output": "n", "attrs": {"axis": -1, "eps": 1e-5}}, )"
      R"({"op": "matmul", "inputs": ["n", "w"], "output": "p"}, {"op": "add", "inputs": ["p", "c"], "output": "y"})"};
  const auto k = static_cast<size_t>(s.kind);
  return fmt::format(
      R"({{"version": "1.0", "name": "small", "axes": {{"M": {{"type": "const", "value": {}}}, "K": {{"type": "const", "value": {}}}, "N": {{"type": "const", "value": {}}}}},
"inputs": {{"x": {{"shape": ["M", "K"], "dtype": "float16"}}, "w": {{"shape": ["K", "N"], "dtype": "float16"}}{}}}, "outputs": {{"y": {{"shape": ["M", "N"], "dtype": "float16"}}}}, "nodes": [{}]}})",
      s.rows, s.depth, s.columns, extra[k], nodes[k]);
}

}  // namespace

TEST_CASE("small ragged programs: predicted order is measured order", "[small]") {
  for (const Small& s : kMeasured) {
    INFO(spec(s));
    Options o;
    o.emit = {"report"};
    Trace trace;
    const CompileResult r = compile(o, {"small.json", spec(s)}, trace);
    REQUIRE(r.exit == ExitCode::kOk);
    INFO(r.summary);
    if (s.fused < s.plain) CHECK(r.summary.find(" instead of ") != std::string::npos);
    else CHECK(r.summary.find(": 1 kernel instead of ") == std::string::npos);
  }
}

TEST_CASE("a state that is read, updated and stored is one kernel", "[small]") {
  // 320 states of 64 x 64, H200, 2026-11-29: two kernels, which read them twice, 8.6 us; one of blocks without a loop 6.6, of columns 5.3
  const std::string path = std::string(MIRAGE_SOURCE_DIR) + "/test/real/rwkv6_step.json";
  Options o;
  o.gate = "none";
  o.emit = {"report"};
  Trace trace;
  const CompileResult r = compile(o, {path, *read_file(path)}, trace);
  REQUIRE(r.exit == ExitCode::kOk);
  INFO(r.summary);
  CHECK(r.summary.find(" 1 kernel of the program rewritten by dots, ") != std::string::npos);
  o.disable_pass = {"dots"};
  const CompileResult block = compile(o, {path, *read_file(path)}, trace);
  INFO(block.summary);
  CHECK(block.summary.find(": 1 kernel instead of ") != std::string::npos);
}
