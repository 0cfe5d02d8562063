// Folding as compile() uses it: verified against the program, and everything that a caller sees speaks of the caller's program.
#include <catch2/catch.hpp>

#include "driver/evidence/certificate_file.h"
#include "driver/proof/fold_steps.h"
#include "driver/proof/folding.h"
#include "mirage/driver/compile.h"
#include "mirage/driver/modes.h"
#include "mirage/spec/text.h"
#include "unit/ir/fold_programs.h"

using namespace mirage;
using namespace mirage::test;

namespace {

const Source kGrouped{"gqa.json", R"({"version": "1.0", "name": "gqa", "axes": {"B": 2, "G": 2, "R": 4, "Q": 16, "S": 512, "D": 64},
  "inputs": {"q": {"shape": ["B", "G", "R", "Q", "D"], "dtype": "float16"}, "k": {"shape": ["B", "G", 1, "S", "D"], "dtype": "float16"}, "v": {"shape": ["B", "G", 1, "S", "D"], "dtype": "float16"}},
  "outputs": {"o": {"shape": ["B", "G", "R", "Q", "D"], "dtype": "float16"}},
  "nodes": [{"op": "matmul", "inputs": ["q", "k"], "output": "s", "attrs": {"transpose_b": true}}, {"op": "softmax", "inputs": ["s"], "output": "p"}, {"op": "matmul", "inputs": ["p", "v"], "output": "o"}]})"};

/// A product, its rows as two dimensions, and batch norm with the statistics of the batch.
const Source kBatchNorm{"bn.json", R"({"version": "1.0", "name": "bn", "axes": {"N": 8, "L": 16, "K": 64, "C": 32},
  "inputs": {"x": {"shape": ["N*L", "K"], "dtype": "float16"}, "w": {"shape": ["K", "C"], "dtype": "float16"}}, "outputs": {"o": {"shape": ["N", "L", "C"], "dtype": "float16"}},
  "nodes": [{"op": "matmul", "inputs": ["x", "w"], "output": "y"}, {"op": "reshape", "inputs": ["y"], "output": "z", "attrs": {"shape": ["N", "L", "C"]}},
            {"op": "mean", "inputs": ["z"], "output": "mu", "attrs": {"axis": [0, 1], "keepdim": true}}, {"op": "sub", "inputs": ["z", "mu"], "output": "d"}, {"op": "square", "inputs": ["d"], "output": "d2"},
            {"op": "mean", "inputs": ["d2"], "output": "var", "attrs": {"axis": [0, 1], "keepdim": true}}, {"op": "add", "inputs": ["var", 1e-5], "output": "ve"}, {"op": "rsqrt", "inputs": ["ve"], "output": "r"},
            {"op": "mul", "inputs": ["d", "r"], "output": "o"}]})"};

/// One query per head over cached keys, which repeat_kv repeats for the heads of a group.
const Source kRepeated{"repeat_kv.json", R"({"version": "1.0", "name": "repeat_kv", "axes": {"B": 1, "H": 4, "G": 4, "S": 1024, "D": 64},
  "inputs": {"q": {"shape": ["B", "H*G", 1, "D"], "dtype": "float16"}, "k": {"shape": ["B", "H", "S", "D"], "dtype": "float16"}, "v": {"shape": ["B", "H", "S", "D"], "dtype": "float16"}},
  "outputs": {"o": {"shape": ["B", "H*G", 1, "D"], "dtype": "float16"}},
  "nodes": [{"op": "reshape", "inputs": ["k"], "output": "k1", "attrs": {"shape": ["B", "H", 1, "S", "D"]}}, {"op": "repeat", "inputs": ["k1"], "output": "k2", "attrs": {"axis": 2, "count": 4}},
            {"op": "reshape", "inputs": ["k2"], "output": "kr", "attrs": {"shape": ["B", "H*G", "S", "D"]}},
            {"op": "reshape", "inputs": ["v"], "output": "v1", "attrs": {"shape": ["B", "H", 1, "S", "D"]}}, {"op": "repeat", "inputs": ["v1"], "output": "v2", "attrs": {"axis": 2, "count": 4}},
            {"op": "reshape", "inputs": ["v2"], "output": "vr", "attrs": {"shape": ["B", "H*G", "S", "D"]}},
            {"op": "matmul", "inputs": ["q", "kr"], "output": "s", "attrs": {"transpose_b": true}}, {"op": "mul", "inputs": ["s", 0.125], "output": "t"}, {"op": "softmax", "inputs": ["t"], "output": "p"},
            {"op": "matmul", "inputs": ["p", "vr"], "output": "o"}]})"};

/// Self-attention over heads that lie packed behind each other, and gate and up from one packed projection.
const Source kPacked{
    "packed.json",
    R"({"version": "1.0", "name": "packed", "axes": {"S": 256, "H": 4, "D": 64}, "inputs": {"y": {"shape": ["S", 768], "dtype": "float16"}}, "outputs": {"o": {"shape": ["S", 256], "dtype": "float16"}},
  "nodes": [{"op": "slice", "inputs": ["y"], "output": "q0", "attrs": {"axis": 1, "start": 0, "stop": 256}}, {"op": "reshape", "inputs": ["q0"], "output": "q1", "attrs": {"shape": ["S", "H", "D"]}}, {"op": "transpose", "inputs": ["q1"], "output": "q", "attrs": {"perm": [1, 0, 2]}},
            {"op": "slice", "inputs": ["y"], "output": "k0", "attrs": {"axis": 1, "start": 256, "stop": 512}}, {"op": "reshape", "inputs": ["k0"], "output": "k1", "attrs": {"shape": ["S", "H", "D"]}}, {"op": "transpose", "inputs": ["k1"], "output": "k", "attrs": {"perm": [1, 0, 2]}},
            {"op": "slice", "inputs": ["y"], "output": "v0", "attrs": {"axis": 1, "start": 512, "stop": 768}}, {"op": "reshape", "inputs": ["v0"], "output": "v1", "attrs": {"shape": ["S", "H", "D"]}}, {"op": "transpose", "inputs": ["v1"], "output": "v", "attrs": {"perm": [1, 0, 2]}},
            {"op": "matmul", "inputs": ["q", "k"], "output": "s", "attrs": {"transpose_b": true}}, {"op": "mul", "inputs": ["s", 0.125], "output": "t"}, {"op": "softmax", "inputs": ["t"], "output": "p"},
            {"op": "matmul", "inputs": ["p", "v"], "output": "a"}, {"op": "transpose", "inputs": ["a"], "output": "b", "attrs": {"perm": [1, 0, 2]}}, {"op": "reshape", "inputs": ["b"], "output": "o", "attrs": {"shape": ["S", 256]}}]})"};
const Source kPackedGate{
    "gate.json",
    R"({"version": "1.0", "name": "gate", "inputs": {"x": {"shape": [8, 1024], "dtype": "float16"}, "w": {"shape": [1024, 2048], "dtype": "float16"}}, "outputs": {"o": {"shape": [8, 1024], "dtype": "float16"}},
  "nodes": [{"op": "matmul", "inputs": ["x", "w"], "output": "y"}, {"op": "slice", "inputs": ["y"], "output": "a", "attrs": {"axis": 1, "start": 0, "stop": 1024}}, {"op": "slice", "inputs": ["y"], "output": "b", "attrs": {"axis": 1, "start": 1024, "stop": 2048}},
            {"op": "silu", "inputs": ["a"], "output": "s"}, {"op": "mul", "inputs": ["s", "b"], "output": "o"}]})"};

/// Decoding with a sink: a column of the softmax that has no value, as PyTorch code writes it.
const Source kSink{"sink.json", R"({"version": "1.0", "name": "sink", "axes": {"B": 2, "H": 4, "G": 4, "S": 500, "D": 64},
  "inputs": {"q": {"shape": ["B", "H", "G", "D"], "dtype": "float16"}, "k": {"shape": ["B", "H", "S", "D"], "dtype": "float16"}, "v": {"shape": ["B", "H", "S", "D"], "dtype": "float16"}, "t": {"shape": [1, "H", "G", 1], "dtype": "float16"}},
  "outputs": {"o": {"shape": ["B", "H", "G", "D"], "dtype": "float16"}},
  "nodes": [{"op": "matmul", "inputs": ["q", "k"], "output": "s", "attrs": {"transpose_b": true}}, {"op": "expand", "inputs": ["t"], "output": "u", "attrs": {"shape": ["B", "H", "G", 1]}},
            {"op": "concat", "inputs": ["s", "u"], "output": "c", "attrs": {"axis": -1}}, {"op": "softmax", "inputs": ["c"], "output": "p"},
            {"op": "slice", "inputs": ["p"], "output": "w", "attrs": {"axis": 3, "start": 0, "stop": -1}}, {"op": "matmul", "inputs": ["w", "v"], "output": "o"}]})"};

CompileResult compiled(const Source& s) {
  Options o;
  o.gate = "none";
  Trace trace;
  return compile(o, s, trace);
}

}  // namespace

TEST_CASE("random programs are folded only where that is proved or tested, and it always is") {
  int folds = 0, proved = 0;
  for (uint64_t seed = 10'000; seed < 10'600; seed++) {
    const Graph g = FoldPrograms(seed).make();
    Rng rng(seed);
    const Program p = program_around(g, &rng);
    const Folded f = fold(p);
    if (!f.folds) continue;
    INFO("seed " << seed << "\n" << print(g) << print(f.program.graph));
    const Graph back = f.unfold(f.program.graph);
    const Verdict v = equal(g, back, seed);   // small as they are, at their own sizes
    INFO(to_string(v));
    REQUIRE(v.kind != Verdict::Kind::kDifferent);
    const Folding verified = fold_verified(p);
    folds++;
    proved += verified.proof.proved;
  }
  INFO(folds << " fold, " << proved << " proved");
  REQUIRE(folds > 120);
  REQUIRE(proved * 10 > folds * 9);
}

TEST_CASE("programs over dimensions that go together are one kernel, and their results speak of the caller's program") {
  std::map<std::string, CompileResult> results;
  for (const Source& s : {kGrouped, kBatchNorm, kRepeated, kPacked, kPackedGate}) {
    const CompileResult& r = results[s.name] = compiled(s);
    INFO(s.name << ": " << r.summary << "\n" << r.explanation);
    REQUIRE(r.exit == ExitCode::kOk);
    REQUIRE(r.summary.find(": 1 kernel instead of") != std::string::npos);
    if (s.name != "gate.json") REQUIRE(r.explanation.find("dimensions that go together are one") != std::string::npos);
    REQUIRE(r.explanation.find("proved equal to the program") != std::string::npos);
    const Source graph{"found.graph", r.files.at(r.name + ".graph")};
    REQUIRE(verify_two(graph, s, Options{}).exit == ExitCode::kOk);
    REQUIRE(why_not_graph(graph, {s}, Options{}, {}).exit == ExitCode::kOk);
    REQUIRE(check_certificate(Source{"c.json", r.files.at("certificate.json")}, {s}, Options{}).exit == ExitCode::kOk);
    // the ABI has the caller's shapes
    REQUIRE(r.files.at(r.name + ".h")
                .find(s.name == "gqa.json"      ? "[2,2,4,16,64]"
                      : s.name == "bn.json"     ? "[8,16,32]"
                      : s.name == "packed.json" ? "[256,768]"
                      : s.name == "gate.json"   ? "[1024,2048]"
                                                : "[1,16,1,64]") != std::string::npos);
  }
  REQUIRE(results[kRepeated.name].explanation.find("repetitions that only products read are left out") != std::string::npos);
  REQUIRE(results[kPackedGate.name].explanation.find("slices are taken of weights instead of products") != std::string::npos);
  // a certificate of the one is none of a program with the dimensions joined by hand
  const std::string joined =
      R"({"version": "1.0", "name": "gqa", "inputs": {"q": {"shape": [4, 64, 64], "dtype": "float16"}, "k": {"shape": [4, 512, 64], "dtype": "float16"}, "v": {"shape": [4, 512, 64], "dtype": "float16"}},
    "outputs": {"o": {"shape": [4, 64, 64], "dtype": "float16"}},
    "nodes": [{"op": "matmul", "inputs": ["q", "k"], "output": "s", "attrs": {"transpose_b": true}}, {"op": "softmax", "inputs": ["s"], "output": "p"}, {"op": "matmul", "inputs": ["p", "v"], "output": "o"}]})";
  const CompileResult &five = results[kGrouped.name], three = compiled({"gqa.json", joined});
  REQUIRE(check_certificate(Source{"c.json", five.files.at("certificate.json")}, {{"gqa.json", joined}}, Options{}).exit != ExitCode::kOk);
  // and the kernels are the same
  auto kernels = [](const CompileResult& r) {
    const std::string& cu = r.files.at("gqa.cu");
    const size_t from = cu.find("gqa_k0_attend_parts"), to = cu.find("launcher and C ABI");
    REQUIRE((from != std::string::npos && to > from));
    return cu.substr(from, to - from);
  };
  REQUIRE(kernels(five) == kernels(three));
}

TEST_CASE("softmax over scores and a sink is attention with a sink") {
  const CompileResult r = compiled(kSink);
  INFO(r.summary << "\n" << r.explanation);
  REQUIRE(r.exit == ExitCode::kOk);
  CHECK(r.summary.find(": 2 kernels instead of") != std::string::npos);   // one repeats the sinks
  CHECK(r.explanation.find("concatenations that are only mapped, reduced and sliced are computed part by part") != std::string::npos);
  CHECK(r.explanation.find("proved equal to the program") != std::string::npos);
  CHECK(verify_two({"found.graph", r.files.at("sink.graph")}, kSink, Options{}).exit == ExitCode::kOk);
  CHECK(check_certificate(Source{"c.json", r.files.at("certificate.json")}, {kSink}, Options{}).exit == ExitCode::kOk);
}

/// Layers of attention over [batch, heads, tokens, features], long enough that the folding is proved value by value; `scale`: of the scores
/// of the last one.
static Program long_attention(int layers, const std::string& scale) {
  std::string nodes, x = "x";
  for (int i = 0; i < layers; i++) {
    const std::string n = std::to_string(i);
    nodes += R"({"op": "transpose", "inputs": [")" + x + R"("], "output": "t)" + n +
             R"(", "attrs": {"perm": [0, 1, 3, 2]}}, {"op": "matmul", "inputs": [")" + x + R"(", "t)" + n + R"("], "output": "s)" + n +
             R"("}, {"op": "mul", "inputs": ["s)" + n + R"(", )" + (i + 1 == layers ? scale : "0.125") + R"(], "output": "c)" + n +
             R"("}, {"op": "softmax", "inputs": ["c)" + n + R"("], "output": "p)" + n + R"("}, {"op": "matmul", "inputs": ["p)" + n +
             R"(", ")" + x + R"("], "output": "o)" + n + R"("}, {"op": "greater", "inputs": ["o)" + n + R"(", 0.0], "output": "b)" + n +
             R"("}, {"op": "where", "inputs": ["b)" + n + R"(", "o)" + n + R"(", ")" + x + R"("], "output": "y)" + n + R"("},)";
    x = "y" + n;
  }
  nodes.pop_back();
  auto p = parse_spec({"long.json", R"({"name": "long", "inputs": {"x": {"shape": [2, 4, 24, 16], "dtype": "float32"}}, "outputs": {")" +
                                        x + R"(": {"dtype": "float32"}}, "nodes": [)" + nodes + "]}"});
  REQUIRE(p);
  return *p;
}

/// Layers of softmax over the features and a column of their own, which is sliced off again.
static Program long_sinks(int layers) {
  std::string nodes, x = "x";
  for (int i = 0; i < layers; i++) {
    const std::string n = std::to_string(i);
    nodes += R"({"op": "concat", "inputs": [")" + x + R"(", "t"], "output": "c)" + n + R"("}, {"op": "softmax", "inputs": ["c)" + n +
             R"("], "output": "p)" + n + R"("}, {"op": "slice", "inputs": ["p)" + n + R"("], "output": "s)" + n +
             R"(", "attrs": {"axis": 1, "start": 0, "stop": 16}}, {"op": "matmul", "inputs": ["s)" + n + R"(", "w"], "output": "y)" + n +
             R"("},)";
    x = "y" + n;
  }
  nodes.pop_back();
  auto p = parse_spec({"long.json", R"({"name": "long", "inputs": {"x": {"shape": [8, 16], "dtype": "float32"}, "t": {"shape": [8, 1], "dtype":
                      "float32"}, "w": {"shape": [16, 16], "dtype": "float32"}}, "outputs": {")" +
                                        x + R"(": {"dtype": "float32"}}, "nodes": [)" + nodes + "]}"});
  REQUIRE(p);
  return *p;
}

TEST_CASE("concatenations that are left out of a long program are proved step by step") {
  const Folded f = fold(long_sinks(20));
  REQUIRE(f.folds);
  const Proof proof = prove_fold(f);
  INFO(proof.reason);
  CHECK(proof.proved);
}

TEST_CASE("the folding of a long program is proved value by value, and another program's is not") {
  const Program p = long_attention(20, "0.125");
  const Folded f = fold(p);
  REQUIRE(f.folds);
  const Proof proof = prove_fold(f);
  INFO(proof.reason);
  CHECK(proof.proved);
  CHECK(fold_verified(p).folds);
  Folded other = f;
  other.program = fold(long_attention(20, "0.25")).program;   // the same values but for one
  CHECK_FALSE(prove_fold(other).proved);
  Folded shifted = f;   // values that are not in the places given
  for (ValueId& v : shifted.to)
    if (v > 8) v--;
  CHECK_FALSE(prove_fold(shifted).proved);
}
