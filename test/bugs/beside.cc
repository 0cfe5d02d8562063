// Calls beside each other in one stream kernel (plan/passes/beside.cc), whose text is that of one of them: what the text fixes must be the
// same for all.
#include <catch2/catch.hpp>

#include "driver/emulation/emulation.h"
#include "mirage/driver/compile.h"

using namespace mirage;

namespace {

/// Two linear layers of one input, 64 and 128 wide; `y`, `z`: what is said of their results.
CompileResult two_layers(const std::string& y, const std::string& z) {
  Options o;
  o.states = 0;
  o.gate = "emulate";
  Trace trace;
  const Source s{
      "two.json",
      R"({"name": "two", "inputs": {"x": {"shape": [8, 512], "dtype": "float16"}, "w": {"shape": [512, 64], "dtype": "float16"}, "v": {"shape": [512, 128], "dtype": "float16"}},
    "outputs": {"y": {"shape": [8, 64], "dtype": "float16")" +
          y + R"(}, "z": {"shape": [8, 128], "dtype": "float16")" + z + R"(}},
    "nodes": [{"op": "matmul", "inputs": ["x", "w"], "output": "y"}, {"op": "matmul", "inputs": ["x", "v"], "output": "z"}]})"};
  return compile(o, s, trace);
}

bool is_one_kernel(const CompileResult& r) { return r.files.at("two.cu").find("two_k1_") == std::string::npos; }

}  // namespace

TEST_CASE("results with different steps from column to column are no calls beside each other", "[bugs]") {
  if (find_host_compiler().empty()) { WARN("skipped: there is no host compiler"); return; }
  // Both were stored with the first one's step: the gate refused the straightforward kernels, and nothing was compiled.
  for (const auto& [y, z] : {std::pair<std::string, std::string>{"", R"(, "strides": [1, 8])"}, {R"(, "strides": [128, 2])", ""}}) {
    const CompileResult r = two_layers(y, z);
    for (const Diagnostic& d : r.diagnostics) INFO(d.text);
    CHECK(r.exit == ExitCode::kOk);
  }
  const CompileResult padded = two_layers("", R"(, "strides": [136, 1])");   // rows of any distance are
  CHECK(padded.exit == ExitCode::kOk);
  CHECK(is_one_kernel(padded));
}
