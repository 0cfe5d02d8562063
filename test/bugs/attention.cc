// Wrong attention kernels that a reading of the matcher and the emitter found. Each spec once had its fused kernel refused by the emulation gate (and emitted, wrong, where there was no compiler to emulate with).
#include <catch2/catch.hpp>

#include <algorithm>

#include "driver/emulation.h"
#include "mirage/driver/compile.h"

using namespace mirage;

namespace {

/// Four heads of 128 queries and 128 keys; `mid` makes m of the scores s, `after` makes o of the result r.
std::string attention(const std::string& mid, const std::string& after) {
  return R"({"version": "1.0", "name": "attention",
 "inputs": {"q": {"shape": [4, 128, 64], "dtype": "float16"}, "k": {"shape": [4, 128, 64], "dtype": "float16"}, "v": {"shape": [4, 128, 64], "dtype": "float16"}},
 "outputs": {"o": {"shape": [4, 128, 64], "dtype": "float16"}},
 "nodes": [{"op": "matmul", "inputs": ["q", "k"], "output": "s", "attrs": {"transpose_b": true}}, )" + mid + R"(,
           {"op": "softmax", "inputs": ["m"], "output": "p", "attrs": {"axis": -1}}, {"op": "matmul", "inputs": ["p", "v"], "output": "r"}, )" + after + "]}";
}

/// The first choice of the cost model holds when it is emulated: one kernel for all.
void is_one_right_kernel(const std::string& text) {
  if (find_host_compiler().empty()) { WARN("skipped: there is no host compiler"); return; }
  Options o;
  o.states = 20'000'000;
  o.gate = "emulate";
  Trace trace;
  const CompileResult r = compile(o, {"attention.json", text}, trace);
  for (const Diagnostic& d : r.diagnostics) UNSCOPED_INFO(render(d, text));
  for (const std::string& n : r.notes) UNSCOPED_INFO(n);
  CHECK(r.exit == ExitCode::kOk);
  CHECK(std::none_of(r.notes.begin(), r.notes.end(), [](const std::string& n) { return n.find("was not used") != std::string::npos; }));
  INFO(r.summary);
  CHECK(r.summary.find("1 kernel instead of") != std::string::npos);
}

}  // namespace

TEST_CASE("a position along heads is the head's number", "[bugs]") {
  // The emitter took a position in a batch dimension for one of the last two: the head's number was 0 everywhere.
  is_one_right_kernel(attention(R"({"op": "iota", "inputs": [], "output": "h", "attrs": {"axis": 0, "shape": [4, 1, 1]}}, {"op": "add", "inputs": ["h", 1.0], "output": "h1"}, {"op": "mul", "inputs": ["s", "h1"], "output": "m"})",
                                R"({"op": "mul", "inputs": ["r", 1.0], "output": "o"})"));
  is_one_right_kernel(attention(R"({"op": "iota", "inputs": [], "output": "h", "attrs": {"axis": 0, "shape": [4, 1, 1]}}, {"op": "iota", "inputs": [], "output": "j", "attrs": {"axis": 2, "shape": [1, 1, 128]}},
           {"op": "mul", "inputs": ["h", "j"], "output": "hj"}, {"op": "mul", "inputs": ["hj", 0.01], "output": "b"}, {"op": "add", "inputs": ["s", "b"], "output": "m"})",
                                R"({"op": "mul", "inputs": ["r", 1.0], "output": "o"})"));
}

TEST_CASE("a position along columns of the result is the column's number", "[bugs]") {
  is_one_right_kernel(attention(R"({"op": "mul", "inputs": ["s", 0.125], "output": "m"})",
                                R"({"op": "iota", "inputs": [], "output": "c", "attrs": {"axis": 2, "shape": [1, 1, 64]}}, {"op": "mul", "inputs": ["r", "c"], "output": "o"})"));
}
