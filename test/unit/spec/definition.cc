// FlashInfer-Bench definitions without nodes: the published kinds are read as they are, anything near them is refused.
#include <catch2/catch.hpp>
#include <fmt/format.h>
#include "mirage/spec/spec.h"

using namespace mirage;

namespace {

std::string norm_reference(const std::string& parameters, const std::string& x, const std::string& gain, const std::string& eps = "1e-5") {
  return "import torch\\n\\n@torch.no_grad()\\ndef run(" + parameters +
         "):\\n    batch_size, hidden_size = hidden_states.shape\\n    # Check constants\\n    assert hidden_size == 64\\n\\n    EPS = " +
         eps + "\\n\\n    x = " + x + "\\n    inv_rms = torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + EPS)\\n    y = (x * inv_rms) * " +
         gain + ".to(torch.float32)\\n    return y.to(hidden_states.dtype)";
}

std::string definition(const std::string& inputs, const std::string& output, const std::string& rest) {
  return fmt::format(R"({{"name": "d", "op_type": "x", "axes": {{"M": 4, "H": 64, "N": 32}}, "inputs": {{{}}}, "outputs": {{{}}}, {}}})",
                     inputs, output, rest);
}

std::string tensor(const std::string& name, const std::string& shape, const std::string& dtype = "bfloat16") {
  return fmt::format(R"("{}": {{"shape": {}, "dtype": "{}"}})", name, shape, dtype);
}

const std::string kRows = R"(["M", "H"])", kGain = R"(["H"])";
const std::string kNormInputs = tensor("hidden_states", kRows) + ", " + tensor("weight", kGain),
                  kFusedInputs = tensor("hidden_states", kRows) + ", " + tensor("residual", kRows) + ", " + tensor("weight", kGain);

std::string canonical(const std::string& text) {
  const auto spec = parse_spec({"d.json", text});
  REQUIRE(spec.ok());
  return canonicalize(*spec);
}

bool is_refused(const std::string& text) { return !parse_spec({"d.json", text}).ok(); }

std::string by_reference(const std::string& inputs, const std::string& output, const std::string& reference) {
  return definition(inputs, output, "\"reference\": \"" + reference + "\"");
}

}  // namespace

TEST_CASE("published definitions mean what nodes say") {
  CHECK(canonical(by_reference(kNormInputs, tensor("output", kRows),
                               norm_reference("hidden_states, weight", "hidden_states.to(torch.float32)", "weight"))) ==
        canonical(definition(
            kNormInputs, tensor("output", kRows),
            R"("nodes": [{"op": "rms_norm", "inputs": ["hidden_states", "weight"], "output": "output", "attrs": {"eps": 1e-5}}])")));
  CHECK(canonical(by_reference(kFusedInputs, tensor("output", kRows),
                               norm_reference("hidden_states, residual, weight",
                                              "hidden_states.to(torch.float32) + residual.to(torch.float32)", "weight", "1e-06"))) ==
        canonical(definition(kFusedInputs, tensor("output", kRows),
                             R"("nodes": [{"op": "add", "inputs": ["hidden_states", "residual"], "output": "s", "exact": true},
                                                                             {"op": "rms_norm", "inputs": ["s", "weight"], "output": "output", "attrs": {"eps": 1e-6}}])")));
  const std::string product = tensor("A", kRows) + ", " + tensor("B", R"(["N", "H"])");
  for (const char* reference :
       {"import torch\\n\\ndef run(A, B):\\n    C = torch.matmul(A, B.T)\\n    return C", "def run(A, B):\\n    return A @ B.T"})
    CHECK(canonical(by_reference(product, tensor("C", R"(["M", "N"])"), reference)) ==
          canonical(
              definition(product, tensor("C", R"(["M", "N"])"), R"("nodes": [{"op": "linear", "inputs": ["A", "B"], "output": "C"}])")));
}

TEST_CASE("a reference that is another one is refused, whatever its op_type") {
  const std::string out = tensor("output", kRows),
                    good = norm_reference("hidden_states, weight", "hidden_states.to(torch.float32)", "weight");
  REQUIRE_FALSE(is_refused(by_reference(kNormInputs, out, good)));
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"pow(2)", "pow(3)"}, {"dim=-1", "dim=0"}, {"(x * inv_rms)", "(x + inv_rms)"},
                                                        {"EPS = 1e-5", "EPS = 1e-5 * 2"},
                                                        {"    EPS = 1e-5", "    EPS = 1e-5\\n    EPS = 1e-4"},
                                                        {"import torch", "import math"},
                                                        {"run(hidden_states, weight)", "run(weight, hidden_states)"},
                                                        {"return y", "y = y + 1\\n    return y"},
                                                        {"weight.to", "(1 + weight).to"}}) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    INFO(text);
    CHECK(is_refused(by_reference(kNormInputs, out, text)));
  }
  CHECK(is_refused(by_reference(kNormInputs, tensor("output", kRows, "float32"), good)));   // it returns the input's dtype
  CHECK(is_refused(by_reference(kNormInputs, out, "")));
}
