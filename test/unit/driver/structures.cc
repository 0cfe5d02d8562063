// Programs people write around the published ones: each becomes the kernels that one would write by hand, and is proved.
#include <catch2/catch.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mirage/driver/compile.h"
#include "mirage/driver/modes.h"

using namespace mirage;

namespace {

struct Row { std::string name, inputs, outputs; std::vector<std::string> nodes; std::string found; };

Source spec(const Row& r) {
  return {r.name + ".json", fmt::format(R"({{"version": "1.0", "name": "{}", "inputs": {{{}}}, "outputs": {{{}}}, "nodes": [{}]}})", r.name,
                                        r.inputs, r.outputs, fmt::join(r.nodes, ", "))};
}
std::string tensor(const std::string& name, const std::string& dims) {
  return fmt::format(R"("{}": {{"shape": [{}], "dtype": "float16"}})", name, dims);
}
std::string node(const std::string& op, const std::string& inputs, const std::string& output, const std::string& attrs = "") {
  return fmt::format(R"({{"op": "{}", "inputs": [{}], "output": "{}", "attrs": {{{}}}}})", op, inputs, output, attrs);
}

/// Rotary embedding as Llama has it: x cos + (-x2, x1) sin, stored as what attention reads.
std::vector<std::string> rotary(const std::string& x, const std::string& rows, const std::string& out) {
  const std::string one = x + "_1", two = x + "_2", turned = x + "_turned", c = x + "_c", s = x + "_s";
  auto names = [](const std::string& a, const std::string& b) { return fmt::format(R"("{}", "{}")", a, b); };
  auto name = [](const std::string& a) { return fmt::format(R"("{}")", a); };
  return {node("slice", name(x), one, R"("axis": 2, "start": 0, "stop": 32)"),
          node("slice", name(x), two, R"("axis": 2, "start": 32)"),
          node("neg", name(two), x + "_neg"),
          node("concat", names(x + "_neg", one), turned, R"("axis": 2)"),
          node("mul", names(x, "c" + rows), c),
          node("mul", names(turned, "s" + rows), s),
          node("add", names(c, s), x + "_sum"),
          node("cast", name(x + "_sum"), out, R"("dtype": "float16")")};
}

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<Row> rows() {
  const std::string qkv = tensor("q", "4, 16, 64") + "," + tensor("k", "4, 512, 64") + "," + tensor("v", "4, 512, 64");
  const std::vector<std::string> attention = {node("matmul", R"("qn", "kn")", "t", R"("transpose_b": true)"),
                                              node("mul", R"("t", 0.125)", "u"), node("softmax", R"("u")", "p"),
                                              node("matmul", R"("p", "v")", "o")};
  const std::string lora =
      tensor("x", "16, 1024") + "," + tensor("w", "1024, 1024") + "," + tensor("a", "1024, 16") + "," + tensor("b", "16, 1024");
  const std::vector<std::string> adapter = {node("matmul", R"("n", "w")", "p"), node("matmul", R"("n", "a")", "d"),
                                            node("matmul", R"("d", "b")", "e"), node("add", R"("p", "e")", "o")};
  return {
      {"qwen", qkv + "," + tensor("gq", "64") + "," + tensor("gk", "64"), tensor("o", "4, 16, 64"),
       std::vector{node("rms_norm", R"("q", "gq")", "qn"), node("rms_norm", R"("k", "gk")", "kn")} + attention, ": 1 kernel instead of"},
      {"rms_lora", lora, tensor("o", "16, 1024"), std::vector{node("rms_norm", R"("x")", "n")} + adapter, ": 1 kernel instead of"},
      {"rms_gain_lora", lora + "," + tensor("g", "1024"), tensor("o", "16, 1024"),
       std::vector{node("rms_norm", R"("x", "g")", "n")} + adapter, ": 1 kernel instead of"},
      {"rope",
       qkv + "," + tensor("cq", "16, 64") + "," + tensor("sq", "16, 64") + "," + tensor("ck", "512, 64") + "," + tensor("sk", "512, 64"),
       tensor("o", "4, 16, 64"), rotary("q", "q", "qn") + rotary("k", "k", "kn") + attention, ": 2 kernels instead of"},
  };
}

}  // namespace

TEST_CASE("programs around the published ones become the kernels one would write") {
  for (const Row& row : rows()) {
    Options o;
    o.gate = "none";
    Trace trace;
    const CompileResult r = compile(o, spec(row), trace);
    INFO(row.name << ": " << r.summary << "\n" << r.explanation);
    REQUIRE(r.exit == ExitCode::kOk);
    CHECK(r.summary.find(row.found) != std::string::npos);
    CHECK(r.explanation.find("proved equal to the program") != std::string::npos);
    CHECK(check_certificate(Source{"c.json", r.files.at("certificate.json")}, {spec(row)}, Options{}).exit == ExitCode::kOk);
  }
}
