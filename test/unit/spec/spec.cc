// Whole specs: forms of every key, names, warnings, the normal form, and what the graph looks like.
#include <filesystem>
#include <fstream>
#include <sstream>
#include "helpers.h"

using namespace mirage;
using namespace mirage::spec_test;
namespace fs = std::filesystem;

namespace {

std::string read_file(const fs::path& p) {
  std::ifstream f(p, std::ios::binary);
  std::stringstream s;
  s << f.rdbuf();
  return s.str();
}

std::vector<fs::path> shipped_specs() {
  std::vector<fs::path> out;
  for (const auto& e : fs::directory_iterator(fs::path(MIRAGE_SOURCE_DIR) / "specs"))
    if (e.path().extension() == ".json") out.push_back(e.path());
  std::sort(out.begin(), out.end());
  return out;
}

int count_forms(const Graph& g, size_t index) {
  int n = 0;
  for (const Node& node : g.nodes()) n += node.op.index() == index;
  return n;
}
const size_t kReshapeIndex = Op(Reshape{}).index(), kRepeatIndex = Op(Repeat{}).index();

}  // namespace

TEST_CASE("shipped specs read without warnings and have a normal form") {
  CHECK(shipped_specs().size() >= 13);
  for (const fs::path& path : shipped_specs()) {
    INFO(path);
    std::string text = read_file(path);
    auto r = read_spec({path.string(), text});
    if (!r) FAIL(rendered(r.errors(), text));
    CHECK(r->warnings.empty());
    CHECK(r->program.name == path.stem());
    CHECK_FALSE(r->program.description.empty());
    CHECK_FALSE(check_laws(r->program.graph));
    if (text.find("\"reshape\"") == std::string::npos)   // composites desugar without either
      CHECK(count_forms(r->program.graph, kReshapeIndex) + count_forms(r->program.graph, kRepeatIndex) == 0);
    Program again = must_parse(r->program.canonical);
    CHECK(again.canonical == r->program.canonical);
    CHECK(again.graph == r->program.graph);
  }
}

TEST_CASE("axes, expressions, strides, ranges, numerics, free keys") {
  Program p = must_parse(
      R"--({"version": "1.0", "$schema": "x", "x-note": {"a": [1]}, "description": "d", "tags": ["t"], "op_type": "gemm", "reference": "def run(): pass", "constraints": ["K == 4*H", "len == n.item()"],
    "axes": {"H": {"type": "const", "value": 3, "description": "heads"}, "K": 12},
    "inputs": [{"name": "a", "shape": ["H", "(K + 2*H) / 9", "K/H-1"], "dtype": "bf16", "strides": [1, "3*H", 3], "range": [-1, 2.5], "x-y": 0, "description": "in"}, {"name": "s", "shape": [], "dtype": "f32"}],
    "outputs": {"y": {"shape": ["H", 2, 3], "dtype": "f16", "strides": [8, 4, 1]}}, "numerics": {"rtol": 0.001, "atol": 1, "tf32": true},
    "nodes": [{"op": "mul", "inputs": ["a", "s"], "outputs": ["y"], "description": "n", "attrs": null, "x-z": 1}]})--",
      "dir/my-spec.v2.json");
  CHECK(p.name == "my_spec_v2");
  CHECK(p.description == "d");
  CHECK(to_string(p.inputs[0].type) == "bf16[3,2,3]");
  CHECK(p.inputs[0].strides == Dims{1, 9, 3});
  CHECK(p.inputs[0].range == std::pair(-1.0, 2.5));
  CHECK(to_string(p.inputs[1].type) == "f32[]");
  CHECK(p.outputs[0].strides == Dims{8, 4, 1});
  CHECK(p.numerics.rtol == 0.001);
  CHECK(p.numerics.atol == 1.0);
  CHECK(p.numerics.tf32);
  Program again = must_parse(p.canonical);
  CHECK(again.canonical == p.canonical);
  CHECK(again.inputs[0].strides == p.inputs[0].strides);
  CHECK(again.outputs[0].strides == p.outputs[0].strides);
  CHECK(again.inputs[0].range == p.inputs[0].range);
  CHECK(again.numerics.rtol == p.numerics.rtol);
  CHECK(again.numerics.tf32);
}

TEST_CASE("the normal form knows names of tensors, not of nodes, nor their order") {
  auto spec = [](const std::string& nodes) { return spec_text({{{4, 8}, {}, "float16"}, {{4, 8}, {}, "float16"}}, nodes); };
  std::string one =
      must_parse(
          spec(
              R"({"op": "exp", "inputs": ["x0"], "output": "a"}, {"op": "neg", "inputs": ["x1"], "output": "b"}, )"
              R"({"op": "sub", "inputs": ["a", "b"], "output": "y"})"))
          .canonical;
  std::string two =
      must_parse(
          spec(
              R"({"op": "sub", "inputs": ["v1", "v0"], "output": "y"}, {"op": "neg", "inputs": ["x1"], "output": "v0"}, )"
              R"({"op": "exp", "inputs": ["x0"], "output": "v1"}, {"op": "log", "inputs": ["x0"], "output": "dead"})"))
          .canonical;
  CHECK(one == two);
  std::string shared =
      must_parse(
          spec(
              R"({"op": "exp", "inputs": ["x0"], "output": "a"}, {"op": "exp", "inputs": ["x0"], "output": "b"}, )"
              R"({"op": "mul", "inputs": ["a", "b"], "output": "y"})"))
          .canonical;
  std::string once =
      must_parse(spec(R"({"op": "exp", "inputs": ["x0"], "output": "a"}, {"op": "mul", "inputs": ["a", "a"], "output": "y"})")).canonical;
  CHECK(shared == once);
  CHECK(one != once);
  std::string other =
      must_parse(
          spec(
              R"({"op": "exp", "inputs": ["x1"], "output": "a"}, {"op": "neg", "inputs": ["x0"], "output": "b"}, )"
              R"({"op": "sub", "inputs": ["a", "b"], "output": "y"})"))
          .canonical;
  CHECK(one != other);
}

TEST_CASE("outputs that share a value, and values named v0") {
  std::string text =
      R"({"inputs": {"v0": {"shape": [3], "dtype": "f32"}}, "outputs": {"v1": {"dtype": "f16"}, "v3": {"dtype": "f32"}, "w": {"dtype": "f32"}},
    "nodes": [{"op": "exp", "inputs": ["v0"], "output": "v1"}, {"op": "exp", "inputs": ["v0"], "output": "v3"}, {"op": "reshape", "inputs": ["v0"], "output": "w", "attrs": {"shape": [3]}}]})";
  Program p = must_parse(text);
  CHECK(p.graph.num_nodes() == 5);   // input, exp, three outputs; w shows the input itself
  Program again = must_parse(p.canonical);
  CHECK(again.graph == p.graph);
  CHECK(again.canonical == p.canonical);
  auto out = run_program(p, {{{3}, {0, 1, 2}, "f32"}});
  CHECK(out[2].data == std::vector<double>{0, 1, 2});
  CHECK(out[0].data == out[1].data);
}

TEST_CASE("divisors of means know the extents they come from") {
  auto extents = [](const std::string& text) {
    Program p = must_parse(text);
    std::vector<std::pair<int, int>> of;
    for (const Node& n : p.graph.nodes())
      if (const auto* c = std::get_if<Const>(&n.op)) of.insert(of.end(), c->extent_of.begin(), c->extent_of.end());
    return of;
  };
  using Of = std::vector<std::pair<int, int>>;
  std::vector<In> ins{{{4, 6}, {}, "float16"}, {{6, 10}, {}, "float16"}};
  CHECK(extents(spec_text(ins, R"({"op": "mean", "inputs": ["x0"], "output": "y", "attrs": {"axis": 1}})")) == Of{{0, 1}});
  CHECK(extents(spec_text(ins, R"({"op": "mean", "inputs": ["x0"], "output": "y"})")) == Of{{0, 0}, {0, 1}});
  CHECK(extents(
            spec_text(ins, R"({"op": "matmul", "inputs": ["x0", "x1"], "output": "p"}, {"op": "mean", "inputs": ["p"], "output": "y"})")) ==
        Of{{0, 0}, {1, 1}});
  CHECK(
      extents(spec_text(
          ins,
          R"({"op": "transpose", "inputs": ["x0"], "output": "t"}, {"op": "exp", "inputs": ["t"], "output": "e"}, )"
          R"({"op": "mean", "inputs": ["e"], "output": "y", "attrs": {"axis": 0}})")) ==
      Of{{0, 1}});
  CHECK(
      extents(spec_text(
          ins,
          R"({"op": "reshape", "inputs": ["x0"], "output": "t", "attrs": {"shape": [24]}}, )"
          R"({"op": "mean", "inputs": ["t"], "output": "y"})")) ==
      Of{{0, 0}, {0, 1}});
  CHECK(
      extents(
          spec_text(
              ins,
              R"({"op": "reshape", "inputs": ["x0"], "output": "t", "attrs": {"shape": [2, 12]}}, )"
              R"({"op": "mean", "inputs": ["t"], "output": "y", "attrs": {"axis": 1}})"))
          .empty());
  CHECK(
      extents(
          spec_text(
              ins,
              R"({"op": "slice", "inputs": ["x0"], "output": "t", "attrs": {"axis": 1, "stop": 5}}, )"
              R"({"op": "mean", "inputs": ["t"], "output": "y", "attrs": {"axis": 1}})"))
          .empty());
}

TEST_CASE("reshapes that broadcasting does not need are not there") {
  std::vector<In> x{{{3, 4}, {}, "float32"}};
  auto reshapes = [&](const std::string& nodes) { return count_forms(must_parse(spec_text(x, nodes)).graph, kReshapeIndex); };
  CHECK(
      reshapes(
          R"({"op": "sum", "inputs": ["x0"], "output": "s", "attrs": {"axis": 0}}, {"op": "div", "inputs": ["x0", "s"], "output": "y"})") ==
      0);
  CHECK(
      reshapes(
          R"({"op": "sum", "inputs": ["x0"], "output": "s", "attrs": {"axis": 1}}, )"
          R"({"op": "reshape", "inputs": ["s"], "output": "r", "attrs": {"shape": [3, 1]}}, )"
          R"({"op": "div", "inputs": ["x0", "r"], "output": "y"})") ==
      0);
  CHECK(
      reshapes(
          R"({"op": "sum", "inputs": ["x0"], "output": "s", "attrs": {"axis": 1, "keepdim": true}}, )"
          R"({"op": "div", "inputs": ["x0", "s"], "output": "y"})") ==
      0);
  CHECK(reshapes(R"({"op": "sum", "inputs": ["x0"], "output": "y", "attrs": {"axis": 0}})") == 1);
  CHECK(reshapes(
            R"({"op": "sum", "inputs": ["x0"], "output": "s", "attrs": {"axis": 0}}, {"op": "exp", "inputs": ["s"], "output": "y"})") == 1);
}

TEST_CASE("warnings") {
  auto warnings = [](const std::string& text) {
    auto r = read_spec({"w.json", text});
    REQUIRE(r.ok());
    return rendered(r->warnings, "");
  };
  CHECK(
      warnings(
          R"({"name": "float", "inputs": {"stream": {"shape": [2], "dtype": "f32"}, "z": {"shape": [2], "dtype": "f32"}}, )"
          R"("outputs": {"__y": {"dtype": "f32"}}, "nodes": [{"op": "neg", "inputs": ["stream"], "output": "__y"}]})") ==
      "w.json:1:10: warning: name 'float' is taken in C, CUDA or the ABI; generated code uses another [W0121]\n"
      "w.json:1:30: warning: input name 'stream' is taken in C, CUDA or the ABI; generated code uses another [W0121]\n"
      "w.json:1:72: warning: input 'z' has no influence on any output [W0120]\n"
      "w.json:1:122: warning: output name '__y' is taken in C, CUDA or the ABI; generated code uses another [W0121]\n");
  CHECK(
      warnings(
          R"({"version": "1.3", "inputs": {"x": {"shape": [2], "dtype": "f32"}}, "outputs": {"y": {"dtype": "f32"}}, )"
          R"("nodes": [{"op": "neg", "inputs": ["x"], "output": "y"}]})") ==
      "w.json:1:13: warning: version 1.3 is newer than 1.0; what it adds is not known here [E0108]\n");
  const std::string scaled = warnings(
      R"({"inputs": {"x": {"shape": [2], "dtype": "f32"}}, "outputs": {"y": {"dtype": "f32"}}, "nodes": [{"op": "mul", "inputs": ["x", -1e300], "output": "a"}, {"op": "mul", "inputs": ["a", 1e-300], "output": "b"},
 {"op": "mul", "inputs": ["b", 3.4e38], "output": "c"}, {"op": "maximum", "inputs": ["c", "-inf"], "output": "y"}]})");
  CHECK(scaled ==
        "w.json:1:127: warning: float32 has no -1e+300: kernels take minus infinity in its place [E0107]\nw.json:1:182: warning: float32 "
        "has no 1e-300: kernels take 0 in its place [E0107]\n");
  const std::string decode =
      R"({"version": "1.0", "name": "decode", "inputs": {"s": {"shape": [1, 16777218], "dtype": "float16"}}, )"
      R"("outputs": {"y": {"dtype": "float16"}}, "nodes": [{"op": "causal_mask", "inputs": ["s"], "output": "y", )"
      R"("attrs": {"offset": 9}}]})";
  CHECK(warnings(decode).find("positions up to 16777217: float32 has not every whole number beyond 16777216") != std::string::npos);
  CHECK(warnings(std::string(decode).replace(decode.find("16777218"), 8, "16777217")).empty());   // counting from 0
  CHECK(warnings("kernel k {\n  %x = input 0 : f32[2]\n  output 0 (mul %x 1e39) : f32\n}\n")
            .find("float32 has no 1e+39: kernels take infinity in its place [E0107]") != std::string::npos);
}

TEST_CASE("names from sources") {
  auto name_of = [](const std::string& source) {
    return must_parse(
               R"({"inputs": {"x": {"shape": [2], "dtype": "f32"}}, "outputs": {"y": {"dtype": "f32"}}, )"
               R"("nodes": [{"op": "neg", "inputs": ["x"], "output": "y"}]})",
               source)
        .name;
  };
  CHECK(name_of("/a/b.c/op.json") == "op");
  CHECK(name_of("-") == "program");
  CHECK(name_of("3x3.json") == "p3x3");
  CHECK(name_of("\xC3\xA9.json") == "program");
  CHECK(name_of(".json") == "_json");
}

TEST_CASE("places count bytes, over escapes, tabs and a byte order mark") {
  CHECK(errors_of("\xEF\xBB\xBF{\"bad\": 1, \"inputs\": {}}").find("bad.json:1:5: error: unknown key 'bad'") != std::string::npos);
  CHECK(errors_of("{\n\t\"a\\\"\\\\\": 1,\n \"b\": -1.5e3}").find("bad.json:2:2: error: unknown key 'a\"\\'") != std::string::npos);
  CHECK(errors_of("{\"axes\": {\"M\": -12 }}").find("bad.json:1:16: error: the value of axis 'M'") != std::string::npos);
  CHECK(errors_of("{\"axes\": {\"M\": 12.5}}").find("bad.json:1:16: error: an axis must be an object, not a number") != std::string::npos);
  CHECK(errors_of("{\"version\":true}").find("bad.json:1:12: error: version must be a string, not a boolean") != std::string::npos);
}

TEST_CASE("a shape of null is an input that is passed by value") {
  const auto spec = [](const char* in, const char* out) {
    return parse_spec(
        {"value.json", std::string(R"({"name": "value", "inputs": {"x": {"shape": [4], "dtype": "float16"}, "s": {"shape": )") + in +
                           R"(, "dtype": "float32"}}, "outputs": {"y": {"shape": )" + out +
                           R"(, "dtype": "float16"}}, "nodes": [{"op": "mul", "inputs": ["x", "s"], "output": "y"}]})"});
  };
  const auto p = spec("null", "[4]");
  REQUIRE(p.ok());
  CHECK(p->inputs[1].by_value);
  CHECK(p->inputs[1].type.dims.rank() == 0);
  CHECK(!p->inputs[0].by_value);
  CHECK(p->canonical.find(R"("s": {"shape": null, "dtype": "float32"})") != std::string::npos);
  const auto again = parse_spec({"again.json", p->canonical});
  REQUIRE(again.ok());
  CHECK(again->canonical == p->canonical);
  CHECK(spec("[]", "[4]")->canonical != p->canonical);   // another contract
  const auto wrong = spec("[]", "null");
  REQUIRE(!wrong.ok());
  CHECK(wrong.errors()[0].text == "output 'y' has the shape null: only inputs are passed by value; a result of one element has shape []");
}

TEST_CASE("the reader never aborts on a cut or damaged spec") {
  std::string text = read_file(fs::path(MIRAGE_SOURCE_DIR) / "specs/layer_norm_linear.json");
  Rng rng(7);
  for (size_t n = 0; n + 2 < text.size(); n += 3) CHECK_FALSE(read_spec({"cut.json", text.substr(0, n)}).ok());
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = text;
    for (uint64_t k = rng.below(3) + 1; k > 0; --k)
      damaged[rng.below(damaged.size())] = static_cast<char>(rng.below(4) ? 32 + rng.below(95) : rng.below(256));
    auto r = read_spec({"damaged.json", damaged});
    if (!r.ok()) CHECK_FALSE(rendered(r.errors(), damaged).empty());
  }
}
