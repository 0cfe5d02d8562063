// ONNX models (test/data/onnx, written by make_models.py) against the specs that torch.export makes of the same modules, and what is said
// of models that are no spec.
#include <catch2/catch.hpp>
#include <unistd.h>
#include <filesystem>
#include <fstream>
#include "mirage/driver/models.h"
#include "mirage/driver/modes.h"
#include "mirage/spec/onnx.h"
#include "mirage/support/file.h"

using namespace mirage;

#ifdef MIRAGE_NO_ONNX

TEST_CASE("a build without ONNX says so") {
  const auto r = spec_of_model({"m.onnx", "\x08\x01"}, {});
  REQUIRE(!r.ok());
  CHECK(r.errors()[0].text.find("built without ONNX") != std::string::npos);
}

#else

namespace {

namespace fs = std::filesystem;
const fs::path kModels = fs::path(MIRAGE_SOURCE_DIR) / "test/data/onnx";

Result<Source> model_spec(const std::string& name, const Options& o = {}) {
  auto bytes = read_file((kModels / name).string());
  if (!bytes) return bytes.errors();
  return spec_of_model({(kModels / name).string(), std::move(*bytes)}, o);
}

// Protocol buffers by hand: a model of one node, with an input x.
std::string wire_field(int id, const std::string& bytes) {
  return std::string{static_cast<char>(id << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}
std::string wire_number(int id, int value) { return {static_cast<char>(id << 3), static_cast<char>(value)}; }
std::string wire_tensor(const std::string& name, int type, const std::vector<std::string>& dims) {
  std::string shape;
  for (const std::string& d : dims) shape += wire_field(1, d);
  return wire_field(1, name) + wire_field(2, wire_field(1, wire_number(1, type) + wire_field(2, shape)));
}
struct OnnxPart {
  std::string op, inputs = "x", output = "y", more = {};
};
std::string onnx_bytes(const std::vector<OnnxPart>& nodes, int opset = 20, const std::string& extent = wire_number(1, 4),
                       const std::string& initializers = "") {
  std::string graph;
  for (const OnnxPart& n : nodes) {
    std::string bytes;
    for (size_t at = 0; at < n.inputs.size(); ++at) bytes += wire_field(1, n.inputs.substr(at, 1));
    graph += wire_field(1, bytes + wire_field(2, n.output) + wire_field(3, "the_" + n.op) + wire_field(4, n.op) + n.more);
  }
  graph += wire_field(11, wire_tensor("x", 1, {extent, wire_number(1, 6)})) + wire_field(12, wire_tensor("y", 1, {})) + initializers;
  const std::string long_graph = {static_cast<char>(7 << 3 | 2), static_cast<char>(0x80 | (graph.size() & 127)),
                                  static_cast<char>(graph.size() >> 7)};
  return wire_number(1, 8) + wire_field(8, wire_field(1, "") + wire_number(2, opset)) + long_graph + graph;
}
Result<Source> read_onnx(const std::string& bytes, const Options& o = {}, const std::string& path = "m.onnx") {
  return spec_of_model({path, bytes}, o);
}
std::string said_of(const Result<Source>& r) { return r ? "no error" : r.errors()[0].text; }

}  // namespace

TEST_CASE("ONNX models at three operator sets are the programs that torch.export gives") {
  for (const auto& [name, least] : std::vector<std::pair<std::string, int>>{{"rms_norm_linear", 17},
                                                                            {"gated_mlp", 17},
                                                                            {"lora", 17},
                                                                            {"layer_norm_linear", 17},
                                                                            {"attention_block", 17},
                                                                            {"softmax_attention", 17},
                                                                            {"causal_block", 23}, {"norm_rope", 23}}) {
    const auto wanted = read_file((kModels / (name + ".json")).string());
    REQUIRE(wanted);
    for (int opset : {17, 20, 23}) {
      if (opset < least) continue;
      INFO(name << " " << opset);
      const auto spec = model_spec(name + "_" + std::to_string(opset) + ".onnx");
      REQUIRE(said_of(spec) == "no error");
      const ModeResult r = verify_two(*spec, {name + ".json", *wanted}, Options{});
      INFO(r.text);
      CHECK(r.exit == ExitCode::kOk);
    }
  }
}

TEST_CASE("an ONNX model that is not the program is told apart") {
  const auto a = model_spec("gated_mlp_20.onnx");
  auto b = read_file((kModels / "gated_mlp.json").string());
  REQUIRE((a && b));
  const size_t at = b->find("\"silu\"");
  REQUIRE(at != std::string::npos);
  b->replace(at, 6, "\"relu\"");
  CHECK(verify_two(*a, {"b.json", *b}, Options{}).exit == ExitCode::kNotEqual);
}

TEST_CASE("what is wrong with an ONNX model is said with its node") {
  CHECK(said_of(read_onnx(onnx_bytes({{"Relu"}}))) == "no error");
  CHECK(said_of(read_onnx("")).find("it is no ONNX model") == 0);
  CHECK(said_of(read_onnx("\x08")).find("it is no ONNX model") == 0);
  const std::string whole = onnx_bytes({{"Relu"}});
  for (size_t n = 0; n < whole.size(); ++n) CHECK(!read_onnx(whole.substr(0, n)));  // cut anywhere
  CHECK(said_of(read_onnx(onnx_bytes({{"TopK"}}))) == "TopK x1: sorting (first at node 'the_TopK')");
  CHECK(said_of(read_onnx(onnx_bytes({{"Unheard", "x", "a"}, {"Unheard", "a"}}))) ==
        "Unheard x2: no operator of a spec for it (first at node 'the_Unheard')");
  CHECK(said_of(read_onnx(onnx_bytes({{"Relu", "z"}}))).find("reads 'z', which nothing before it computes") != std::string::npos);
  CHECK(said_of(read_onnx(onnx_bytes({{"MatMul", "xx"}}))).find("node 'the_MatMul' (MatMul): matmul: ") == 0);
  CHECK(said_of(read_onnx(onnx_bytes({{"Relu"}}, 12))).find("operator set 12: 13 to 23 are read") == 0);
  CHECK(said_of(read_onnx(onnx_bytes({{"Relu"}}, 24))).find("operator set 24") == 0);
  CHECK(exit_code_of(read_onnx(onnx_bytes({{"TopK"}})).errors()[0].code) == ExitCode::kUnsupported);
}

TEST_CASE("a named dimension of an ONNX model takes its extent from --bind") {
  const std::string bytes = onnx_bytes({{"Relu"}}, 20, wire_field(2, "batch"));
  const auto missing = read_onnx(bytes);
  REQUIRE(!missing);
  CHECK(missing.errors()[0].text == "dimension 0 of input 'x' is 'batch' and has no value");
  CHECK(missing.errors()[0].notes[0].text == "give it one: --bind batch=16; or several: --values batch=1,8,64");
  Options o;
  o.bind = {"batch=7"};
  const auto bound = read_onnx(bytes, o);
  REQUIRE(bound);
  CHECK(bound->text.find("[7, 6]") != std::string::npos);
  CHECK(check_spec(*bound, o).exit == ExitCode::kOk);
}

TEST_CASE("a named dimension of an ONNX model with several values is an axis of the spec") {
  // Shape(x) + reshape: [batch, 6] as [2 * batch, 3], and a sum over the batch, whose mean divides by it.
  const std::string bytes = onnx_bytes({{"Relu", "x", "a"}, {"ReduceMean", "a", "y"}}, 20, wire_field(2, "batch"));
  Options o;
  o.values = {"batch=2", "8"};
  const auto spec = read_onnx(bytes, o);
  INFO(said_of(spec));
  REQUIRE(spec);
  INFO(spec->text);
  CHECK(spec->text.find("\"batch\"") != std::string::npos);
  CHECK(check_spec(*spec, o).exit == ExitCode::kOk);
  for (int batch : {2, 8}) {   // at each value it is what --bind gives
    Options bound;
    bound.bind = {"batch=" + std::to_string(batch)};
    const auto one = read_onnx(bytes, bound);
    REQUIRE(one);
    CHECK(canonicalize_spec(*spec, bound).text == canonicalize_spec(*one, bound).text);
  }
  o.values = {"bath=2"};
  const auto wrong = read_onnx(bytes, o);
  REQUIRE(!wrong);
  CHECK(wrong.errors()[0].text == "--values: no input of the model has a dimension 'bath'");
  CHECK(wrong.errors()[0].notes[0].text == "its named dimensions: batch");
  o.values = {"batch=2"};
  CHECK(said_of(read_onnx(onnx_bytes({{"Relu"}}), o)) == "--values: no input of the model has a dimension 'batch'");
}

TEST_CASE("a model that a spec cannot say is divided") {
  // a = x summed, r = TopK(a), b = r summed, c = x b: TopK is left, its result stands as an input where the file says its shape.
  const std::vector<OnnxPart> nodes = {{"ReduceSum", "x", "a"}, {"TopK", "a", "r"},      {"ReduceMax", "r", "b"},
                                       {"Mul", "xb", "c"},      {"ReduceMin", "c", "y"}, {"Neg", "x", "n"}};
  const auto parts_of = [&](const std::string& shapes) {
    auto parts = onnx_parts(onnx_bytes(nodes, 17, wire_number(1, 4), shapes), "folder/m.onnx");
    INFO((parts ? "" : parts.errors()[0].text));
    REQUIRE(parts);
    return *parts;
  };
  const OnnxParts known = parts_of(wire_field(13, wire_tensor("r", 1, {wire_number(1, 4), wire_number(1, 2)})));
  INFO(known.report);
  REQUIRE(known.specs.size() == 2);
  CHECK(known.report.starts_with("4 of 6 operators (66 %) in 2 parts\n  m_0: 1 operators (sum) -> "));
  CHECK(known.report.find("  left: TopK x1: sorting (first at node 'the_TopK')\n") != std::string::npos);
  CHECK(known.specs[1].text.find("\"r\": {\"shape\": [4, 2], \"dtype\": \"float32\"}") != std::string::npos);
  for (const Source& s : known.specs) CHECK(check_spec(s, Options{}).exit == ExitCode::kOk);
  const OnnxParts unknown = parts_of("");
  INFO(unknown.report);
  CHECK(unknown.specs.size() == 1);
  CHECK(unknown.report.find(
            "  left: ReduceMax x1: it reads what is left, of a shape that the file does not say (first at node 'the_ReduceMax')\n") !=
        std::string::npos);
}

TEST_CASE("a model that a spec can say whole is one part") {   // an end of a slice beyond int64 became the least int64
  for (const char* name : {"causal_block_23.onnx", "attention_block_17.onnx", "gated_mlp_20.onnx"}) {
    INFO(name);
    const std::string bytes = *read_file((kModels / name).string());
    const auto parts = onnx_parts(bytes, name);
    REQUIRE(parts.ok());
    REQUIRE(parts->specs.size() == 1);
    const auto part = parse_spec(parts->specs[0]), whole = parse_spec(*onnx_spec(bytes, name));
    REQUIRE(part.ok());
    REQUIRE(whole.ok());
    CHECK(part->inputs.size() == whole->inputs.size());
    REQUIRE(part->outputs.size() == whole->outputs.size());
    CHECK(part->outputs[0].type == whole->outputs[0].type);
  }
}

TEST_CASE("external data of an ONNX model is read below its folder only, and only where values matter") {
  const fs::path folder = fs::temp_directory_path() / ("onnx_external_" + std::to_string(getpid()));
  fs::create_directories(folder / "in");
  const auto shape_at = [](const std::string& where) {  // int64[2] that a Reshape needs
    return wire_field(5, wire_number(1, 2) + wire_number(2, 7) + wire_field(8, "s") +
                             wire_field(13, wire_field(1, "location") + wire_field(2, where)) + wire_number(14, 1));
  };
  const auto reshaped = [&](const std::string& where) {
    return read_onnx(onnx_bytes({{"Reshape", "xs"}}, 20, wire_number(1, 4), shape_at(where)), {}, (folder / "in" / "m.onnx").string());
  };
  const int64_t shape[2] = {6, 4};
  for (const fs::path& p : {folder / "s.bin", folder / "in" / "s.bin"})
    std::ofstream(p, std::ios::binary).write(reinterpret_cast<const char*>(shape), sizeof shape);
  fs::create_symlink(folder, folder / "in" / "up");
  CHECK(said_of(reshaped("s.bin")) == "no error");
  CHECK(said_of(reshaped("../s.bin")).find("outside of the model's folder") != std::string::npos);
  CHECK(said_of(reshaped((folder / "s.bin").string())).find("outside of the model's folder") != std::string::npos);
  CHECK(said_of(reshaped("x/../../s.bin")).find("outside of the model's folder") != std::string::npos);
  CHECK(said_of(reshaped("up/s.bin")).find("leads out of the model's folder") != std::string::npos);
  CHECK(said_of(reshaped("none.bin")).find("which is no file") != std::string::npos);
  // A weight is an input: nobody asks for its data.
  const std::string weight = wire_field(5, wire_number(1, 6) + wire_number(1, 5) + wire_number(2, 1) + wire_field(8, "w") +
                                               wire_field(13, wire_field(1, "location") + wire_field(2, "../s.bin")) + wire_number(14, 1));
  CHECK(said_of(read_onnx(onnx_bytes({{"MatMul", "xw"}}, 20, wire_number(1, 4), weight), {}, (folder / "in" / "m.onnx").string())) ==
        "no error");
  fs::remove_all(folder);
}

#endif
