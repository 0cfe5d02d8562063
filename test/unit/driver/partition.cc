// Partitioning: cut points, states, pieces as programs, the stitched graph against the program as written, certificates of it.
#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include "driver/evidence/certificate_file.h"
#include "driver/pieces/cuts.h"
#include "driver/pieces/partition.h"
#include "driver/pieces/reduced.h"
#include "mirage/driver/compile.h"
#include "mirage/driver/modes.h"
#include "mirage/spec/spec.h"
#include "mirage/support/hash.h"

using namespace mirage;

namespace {

/// A decoder layer in miniature: shared norm, grouped heads by reshapes, residuals read twice, results beside the main one.
std::string layer(int rows, int layers, const std::string& dtype = "float16") {
  std::ostringstream in, nodes;
  auto tensor = [&](const std::string& name, const std::string& shape) {
    in << (in.tellp() > 0 ? "," : "") << '"' << name << R"(": {"shape": )" << shape << R"(, "dtype": ")" << dtype << "\"}";
  };
  auto node = [&](const std::string& text) { nodes << (nodes.tellp() > 0 ? "," : "") << text; };
  tensor("x", "[" + std::to_string(rows) + ",96]");
  std::string x = "x", out;
  for (int l = 0; l < layers; l++) {
    const std::string n = std::to_string(l);
    for (const char* t : {"g", "h"}) tensor(t + n, "[96]");
    tensor("wq" + n, "[96,64]"), tensor("wk" + n, "[96,32]"), tensor("wo" + n, "[64,96]"), tensor("c" + n, "[2,48,16]"),
        tensor("wa" + n, "[96,160]"), tensor("wb" + n, "[96,160]"), tensor("wd" + n, "[160,96]");
    auto op = [&](const std::string& name, const std::string& inputs, const std::string& output, const std::string& attrs = "") {
      node(R"({"op": ")" + name + R"(", "inputs": [)" + inputs + R"(], "output": ")" + output + "\"" +
           (attrs.empty() ? "" : R"(, "attrs": {)" + attrs + "}") + "}");
    };
    auto q = [&](const std::string& s) { return "\"" + s + n + "\""; };
    op("rms_norm", "\"" + x + "\"," + q("g"), "n" + n);
    op("matmul", q("n") + "," + q("wq"), "q" + n);
    op("matmul", q("n") + "," + q("wk"), "k" + n);
    op("reshape", q("q"), "q4" + n, R"("shape": [)" + std::to_string(rows) + ",2,2,16]");
    op("transpose", q("q4"), "qt" + n, R"("perm": [1,0,2,3])");
    op("reshape", q("qt"), "qg" + n, R"("shape": [2,)" + std::to_string(2 * rows) + ",16]");
    op("matmul", q("qg") + "," + q("c"), "s" + n, R"("transpose_b": true)");
    op("softmax", q("s"), "p" + n);
    op("matmul", q("p") + "," + q("c"), "a" + n);
    op("reshape", q("a"), "a4" + n, R"("shape": [2,)" + std::to_string(rows) + ",2,16]");
    op("transpose", q("a4"), "at" + n, R"("perm": [1,0,2,3])");
    op("reshape", q("at"), "ar" + n, R"("shape": [)" + std::to_string(rows) + ",64]");
    op("matmul", q("ar") + "," + q("wo"), "o" + n);
    op("add", "\"" + x + "\"," + q("o"), "r" + n);
    op("rms_norm", q("r") + "," + q("h"), "m" + n);
    op("matmul", q("m") + "," + q("wa"), "u" + n);
    op("silu", q("u"), "v" + n);
    op("matmul", q("m") + "," + q("wb"), "w" + n);
    op("mul", q("v") + "," + q("w"), "t" + n);
    op("matmul", q("t") + "," + q("wd"), "d" + n);
    op("add", q("r") + "," + q("d"), "y" + n);
    x = "y" + n;
    out += R"("k)" + n + R"(": {"shape": [)" + std::to_string(rows) + R"(,32], "dtype": ")" + dtype + "\"},";
  }
  return R"({"name": "layer", "inputs": {)" + in.str() + R"(}, "outputs": {)" + out + "\"" + x + R"(": {"shape": [)" +
         std::to_string(rows) + R"(,96], "dtype": ")" + dtype + R"("}}, "nodes": [)" + nodes.str() + "]}";
}

const char* const kBoth =
    R"({"name": "both", "inputs": {"x": {"shape": [4, 64], "dtype": "float16"}, "w": {"shape": [64, 96], "dtype": "float16"}, "v": {"shape": [96, 64], "dtype": "float16"},
      "b": {"shape": [96], "dtype": "float16"}},
    "outputs": {"h": {"shape": [4, 96], "dtype": "float16"}, "y": {"shape": [4, 64], "dtype": "float16"}},
    "nodes": [{"op": "matmul", "inputs": ["x", "w"], "output": "a"}, {"op": "add", "inputs": ["a", "b"], "output": "c"}, {"op": "gelu", "inputs": ["c"], "output": "h"},
              {"op": "matmul", "inputs": ["h", "v"], "output": "d"}, {"op": "tanh", "inputs": ["d"], "output": "y"}]})";

Program program(const std::string& text) {
  auto p = parse_spec({"test.json", text});
  if (!p) FAIL(p.errors().front().text);
  return *p;
}

Target target() { return *find_target("sm_90a"); }

Partitioned cut(const Program& p, int threads = 1) {
  Trace trace;
  SearchOptions o;
  o.threads = threads;
  return partition_program(p, target(), *make_plan(p, p.graph, target()).plan, o, 7, trace, {});
}

std::vector<Tensor<double>> inputs(const Program& p, uint64_t seed) {
  Rng rng(seed);
  std::vector<Tensor<double>> out;
  for (const TensorInfo& t : p.inputs) {
    Tensor<double> x(t.type.dims, 0.0);
    for (double& v : x.data) v = round_to(rng.uniform() - 0.5, t.type.dtype);
    out.push_back(std::move(x));
  }
  return out;
}

/// The largest difference of two graphs of one program in exact arithmetic, relative to the largest value.
double difference(const Program& p, const Graph& a, const Graph& b) {
  DoubleAlgebra reals;
  const auto x = inputs(p, 3);
  const auto u = evaluate<DoubleAlgebra>(a, x, reals), v = evaluate<DoubleAlgebra>(b, x, reals);
  double worst = 0, most = 0;
  for (size_t r = 0; r < u.size(); r++) {
    REQUIRE(u[r].dims == v[r].dims);
    for (size_t i = 0; i < u[r].data.size(); i++)
      worst = std::max(worst, std::fabs(u[r].data[i] - v[r].data[i])), most = std::max(most, std::fabs(u[r].data[i]));
  }
  return worst / most;
}

}  // namespace

TEST_CASE("a layer has cut points at contractions, residuals and norms") {
  const Program p = program(layer(3, 1));
  const Cuts cuts = find_cuts(p.graph);
  int contractions = 0, copyable = 0;
  for (const Unit& u : cuts.units) contractions += u.contracts, copyable += u.copyable;
  CHECK(contractions == 8);
  CHECK(copyable == 3);   // the norms, each read by two products, and the residual between them
  // softmax, both residuals, silu with its product; transposes are read by whoever reads what they turn
  CHECK(cuts.units.size() == 8 + 2 + 4);
  for (size_t u = 0; u < cuts.units.size(); u++)
    for (int w : cuts.units[u].direct) CHECK(w < static_cast<int>(u));
}

TEST_CASE("what a contraction's result becomes is a cut point where it is summed and read again") {
  const auto p = parse_spec({"s.mg", R"(kernel s { %x = input 0 : f16[64,32]  %w = input 1 : f16[32,48]  %b = input 2 : f16[48]
    %h = gelu (add (matmul %x %w) %b)  %n = sqrt (reduce.sum 0 (square %h))  %y = mul %h (div %n (add (reduce.sum 1 %n) 1))  output 0 %y : f16 })"});
  REQUIRE(p);
  const Cuts cuts = find_cuts(p->graph);
  CHECK(cuts.units.size() == 3);   // the product; bias and gelu; the rest
  const auto unit_of = [&](auto&& wanted) {
    for (NodeId n = 0; n < p->graph.num_nodes(); n++) if (wanted(n)) return cuts.unit_of[static_cast<size_t>(n)];
    return -1;
  };
  const auto map = [&](MapFn fn) { return unit_of([&](NodeId n) { const auto* m = p->graph.form<Map>(n); return m && m->fn == fn; }); };
  CHECK(map(MapFn::kGelu) != map(MapFn::kSquare));
  CHECK(map(MapFn::kSquare) == map(MapFn::kMul));
  CHECK(cuts.units[static_cast<size_t>(map(MapFn::kGelu))].elements == 64 * 48);
}

TEST_CASE("the taps of a depthwise convolution are one unit, and what a product or a second reader takes is none of theirs") {
  std::string taps, sum = "(mul (slice 0 0:32:1 %x) %t0)";
  for (int i = 0; i < 9; i++) taps += fmt::format("%t{} = input {} : f16[32,48] ", i, i + 1);
  for (int i = 1; i < 9; i++) sum = fmt::format("(add {} (mul (slice 0 {}:{}:1 %x) %t{}))", sum, i, i + 32, i);
  const auto units = [&](const std::string& rest) {
    const std::string head = "kernel s { %x = input 0 : f16[40,48] " + taps + "%w = input 10 : f16[48,16] %h = gelu ";
    const auto p = parse_spec({"s.mg", head + sum + " " + rest + " }"});
    INFO((p ? "" : p.errors()[0].text));
    REQUIRE(p);
    return find_cuts(p->graph).units.size();
  };
  CHECK(units("%y = matmul %h %w output 0 %y : f16") == 2);
  CHECK(units("%y = matmul %h %w output 0 %y : f16 output 1 %h : f16") == 2);
  CHECK(units("%y = matmul %h %w %z = mul %h (reduce.sum 1 %h) output 0 %y : f16 output 1 %z : f16") == 3);
}

TEST_CASE("every way through the states computes every unit once, in an order that respects what it reads") {
  const Program p = program(layer(2, 1));
  const Cuts cuts = find_cuts(p.graph);
  const CutGraph g = enumerate_cuts(cuts, p.graph, {});
  REQUIRE(g.end == static_cast<int>(g.steps.size()) - 1);
  Rng rng(5);
  for (int walk = 0; walk < 300; walk++) {
    std::set<int> there;
    for (int s = 0; s != g.end;) {
      REQUIRE(!g.steps[static_cast<size_t>(s)].empty());
      const CutStep& step = g.steps[static_cast<size_t>(s)][rng.below(g.steps[static_cast<size_t>(s)].size())];
      CHECK(step.to > s);
      if (step.cut >= 0) {
        const Cut& c = g.cuts[static_cast<size_t>(step.cut)];
        for (int u : c.units) {
          for (int w : cuts.units[static_cast<size_t>(u)].through) CHECK(there.count(w));   // not inside the same piece
          for (int w : cuts.units[static_cast<size_t>(u)].direct)
            CHECK((there.count(w) || std::count(c.units.begin(), c.units.end(), w) || std::count(c.copies.begin(), c.copies.end(), w)));
        }
        for (int u : c.units) CHECK(there.insert(u).second);
      }
      s = step.to;
    }
    for (size_t u = 0; u < cuts.units.size(); u++) CHECK((there.count(static_cast<int>(u)) || cuts.units[u].copyable));
  }
}

TEST_CASE("small extents follow reshapes that split and join") {
  const Program p = program(layer(3, 1));
  for (int variant : {0, 1}) {
    const ReducedProgram small = reduce_extents(p.graph, variant);
    REQUIRE(small.refusal.empty());
    CHECK(small.graph.num_nodes() == p.graph.num_nodes());
    CHECK(!check_laws(small.graph));
    CHECK(!check_extents(small.graph));
    for (ValueId v = 0; v < p.graph.num_values(); v++)
      for (int d = 0; d < p.graph.dims(v).rank(); d++) CHECK((p.graph.dims(v)[d] == 1) == (small.graph.dims(v)[d] == 1));
  }
  auto sliced = [](const std::string& step) {
    return program(
        R"({"name": "s", "inputs": {"x": {"shape": [8, 8], "dtype": "float16"}}, "outputs": {"y": {"shape": [8, 4], "dtype": "float16"}},
      "nodes": [{"op": "slice", "inputs": ["x"], "output": "y", "attrs": {"axis": 1, "start": 0, "stop": )" +
        step + "}}]}");
  };
  for (int variant : {0, 1}) {   // a sum of two parts, as the search's witnesses have it
    const Program p4 = sliced("4");
    const ReducedProgram small = reduce_extents(p4.graph, variant);
    REQUIRE(small.refusal.empty());
    CHECK(!check_laws(small.graph));
    const Dims x = small.graph.dims(small.graph.node(small.graph.inputs()[0]).first_value),
               y = small.graph.dims(small.graph.node(small.graph.outputs()[0]).operands[0]);
    CHECK((x[0] == y[0] && y[1] < x[1]));
  }
  const ReducedProgram stepped = reduce_extents(sliced("8, \"step\": 2").graph, 0);
  CHECK(stepped.refusal.empty());
  CHECK(!check_laws(stepped.graph));
}

/// What constants of this value count, in kernels too.
std::set<std::vector<std::pair<int, int>>> constants_of(const Graph& g, double value) {
  std::set<std::vector<std::pair<int, int>>> out;
  for (const Node& n : g.nodes()) {
    if (const auto* c = std::get_if<Const>(&n.op); c && c->value == value) out.insert(c->extent_of);
    if (const auto* c = std::get_if<Call>(&n.op)) out.merge(constants_of(*c->body, value));
  }
  return out;
}

TEST_CASE("a stitched layer is the layer, for rows that broadcast and rows that do not") {
  for (const auto& [rows, dtype] : {std::pair{1, "bfloat16"}, std::pair{3, "float16"}}) {
    const Program p = program(layer(rows, 1, dtype));
    const Partitioned r = cut(p, 2);
    INFO(dtype << " " << rows << " " << r.refusal);
    REQUIRE(r.result);
    CHECK(r.result->pieces.size() >= 2);
    CHECK(r.result->plan.predicted_us < make_plan(p, p.graph, target()).plan->predicted_us);
    CHECK(!check_laws(r.result->graph));
    CHECK(difference(p, p.graph, r.result->graph) < 1e-12);
    CHECK(r.result->claims.size() > 2);   // of the whole, then of each piece
    // Norms divide by the length of a row, which is 96 in this program alone: at other extents the gate runs what the program means there.
    CHECK(constants_of(r.result->graph, 96) == std::set<std::vector<std::pair<int, int>>>{{{0, 1}}});
  }
}

TEST_CASE("equal layers have equal pieces") {
  auto forms = [](int layers) {
    const Program p = program(layer(3, layers));
    const Cuts cuts = find_cuts(p.graph);
    const CutGraph g = enumerate_cuts(cuts, p.graph, {3, 3, 4000, 2000});
    REQUIRE(g.end >= 0);
    const auto classes = extent_classes(p.graph);
    std::set<std::string> out;
    for (const Cut& c : g.cuts) out.insert(print(make_piece(cuts, c, p.graph, classes).graph));
    return out;
  };
  const auto three = forms(3), four = forms(4);   // a first layer, one between, a last one; then two between
  CHECK(three.size() > forms(1).size());
  INFO(three.size() << " and " << four.size());
  CHECK(four.size() == three.size());
}

TEST_CASE("a value that is a result and is read goes both ways") {
  const Program p = program(kBoth);
  const Partitioned r = cut(p);
  REQUIRE(r.result);
  CHECK(difference(p, p.graph, r.result->graph) < 1e-12);
}

TEST_CASE("threads change nothing") {
  const Program p = program(kBoth);
  const Partitioned one = cut(p), two = cut(p, 2);
  REQUIRE(one.result);
  REQUIRE(two.result);
  CHECK(one.result->graph == two.result->graph);
  CHECK(one.search.states == two.search.states);
}

TEST_CASE("the certificate of a stitched program holds, and tampered ones do not") {
  Options o;
  o.emit = {"certificate"};
  o.states = 300'000;
  Trace trace;
  const Source spec{"layer.json", layer(2, 1)};
  const std::string good = compile(o, spec, trace).files.at("certificate.json");
  REQUIRE(nlohmann::json::parse(good)["kind"] == "partitioned");
  auto check = [&](const std::string& json) { return check_certificate(Source{"c.json", json}, {spec}, Options{}).diagnostics; };
  CHECK(check(good).empty());
  auto tampered = [&](const std::function<void(nlohmann::ordered_json&)>& change) {
    auto j = nlohmann::ordered_json::parse(good);
    change(j);
    return check(j.dump()).empty();
  };
  CHECK(!tampered([](auto& j) { j["pieces"].erase(0); }));
  CHECK(!tampered([](auto& j) { j["claims"].erase(1); }));
  CHECK(!tampered([](auto& j) { j["claims"][0]["candidate"] = j["claims"][0]["reference"]; }));
  CHECK(!tampered([](auto& j) { j["pieces"][0]["leaves"][0] = j["pieces"][0]["results"][0]; }));   // needs itself
  CHECK(!tampered([](auto& j) { j["pieces"][0]["leaves"][0] = 100000; }));
  CHECK(!tampered([](auto& j) { j["pieces"][0]["results"] = nlohmann::ordered_json::array(); }));
  CHECK(!tampered([](auto& j) { j["program_hash"] = "0x0000000000000001"; }));
}

TEST_CASE("compile() cuts a program that its search refuses, and never makes it slower") {
  Options o;
  o.emit = {"cu", "graph", "certificate", "report"};
  o.states = 300'000;
  Trace trace;
  const CompileResult r = compile(o, {"layer.json", layer(2, 1)}, trace);
  REQUIRE(r.exit == ExitCode::kOk);
  const auto report = nlohmann::json::parse(r.report);
  CHECK(report["result"]["kind"] == "partitioned");
  CHECK(report["result"]["predicted_us"].get<double>() < report["result"]["straightforward_us"].get<double>());
  REQUIRE(report.contains("partition"));
  CHECK(report["partition"]["used"] == true);
  CHECK(!report["evidence"].empty());
  CHECK(r.explanation.find("cut points") != std::string::npos);
}

TEST_CASE("a norm in front of linear layers of different widths is computed by each of them, in one kernel") {
  const Source spec{
      "heads.json",
      R"({"version": "1.0", "name": "heads", "inputs": {"x": {"shape": [16, 2048], "dtype": "bfloat16"}, "wq": {"shape": [2048, 2048], "dtype": "bfloat16"}, "wk": {"shape": [2048, 512], "dtype": "bfloat16"},
    "wv": {"shape": [2048, 512], "dtype": "bfloat16"}}, "outputs": {"q": {"shape": [16, 2048], "dtype": "bfloat16"}, "k": {"shape": [16, 512], "dtype": "bfloat16"}, "v": {"shape": [16, 512], "dtype": "bfloat16"}},
    "nodes": [{"op": "rms_norm", "inputs": ["x"], "output": "n"}, {"op": "matmul", "inputs": ["n", "wq"], "output": "q"}, {"op": "matmul", "inputs": ["n", "wk"], "output": "k"}, {"op": "matmul", "inputs": ["n", "wv"], "output": "v"}]})"};
  Options o;
  o.gate = "none";
  Trace trace;
  const CompileResult r = compile(o, spec, trace);
  INFO(r.summary << "\n" << r.explanation);
  REQUIRE(r.exit == ExitCode::kOk);
  CHECK(r.summary.find("1 kernel instead of 2") != std::string::npos);
  CHECK(r.explanation.find("proved equal to the program") != std::string::npos);
  CHECK(check_certificate(Source{"c.json", r.files.at("certificate.json")}, {spec}, Options{}).exit == ExitCode::kOk);
}

TEST_CASE("linear layers of different widths with biases are one kernel, where the search of the whole finds two or none") {
  const auto spec = [](int depth, int wide, int narrow) {
    std::string in = fmt::format(R"("x": {{"shape": [16, {}], "dtype": "float16"}})", depth), out, nodes;
    for (int i = 0; i < 3; i++) {
      const int columns = i == 0 ? wide : narrow;
      in += fmt::format(R"(, "w{}": {{"shape": [{}, {}], "dtype": "float16"}}, "b{}": {{"shape": [{}], "dtype": "float16"}})", i, depth,
                        columns, i, columns);
      out += fmt::format(R"({}"y{}": {{"shape": [16, {}], "dtype": "float16"}})", i ? ", " : "", i, columns);
      nodes += fmt::format(
          R"({}{{"op": "matmul", "inputs": ["x", "w{}"], "output": "m{}"}}, {{"op": "add", "inputs": ["m{}", "b{}"], "output": "y{}"}})",
          i ? ", " : "", i, i, i, i, i);
    }
    return Source{"qkv.json",
                  R"({"version": "1.0", "name": "qkv", "inputs": {)" + in + R"(}, "outputs": {)" + out + R"(}, "nodes": [)" + nodes + "]}"};
  };
  for (const Source& s : {spec(3584, 3584, 512), spec(512, 200, 40)}) {
    Options o;
    o.gate = "none";
    o.emit = {"certificate", "report"};
    Trace trace;
    const CompileResult r = compile(o, s, trace);
    INFO(r.summary << "\n" << r.explanation);
    REQUIRE(r.exit == ExitCode::kOk);
    CHECK(r.summary.find(": 1 kernel instead of 2") != std::string::npos);
    CHECK(check_certificate(Source{"c.json", r.files.at("certificate.json")}, {s}, Options{}).exit == ExitCode::kOk);
  }
}

TEST_CASE("attention on projected queries is one kernel, between two products, in bfloat16") {
  // What products in bfloat16 read is stored so, in a piece as in the whole; in float32 no attention kernel took it, and the softmax had
  // kernels of its own.
  const Source spec{
      "block.json",
      R"({"version": "1.0", "name": "block", "inputs": {"x": {"shape": [16, 1024], "dtype": "bfloat16"}, "wq": {"shape": [1024, 1024], "dtype": "bfloat16"}, "k": {"shape": [16, 1024, 64], "dtype": "bfloat16"},
    "v": {"shape": [16, 1024, 64], "dtype": "bfloat16"}, "wo": {"shape": [1024, 1024], "dtype": "bfloat16"}}, "outputs": {"y": {"shape": [16, 1024], "dtype": "bfloat16"}},
    "nodes": [{"op": "matmul", "inputs": ["x", "wq"], "output": "q0"}, {"op": "reshape", "inputs": ["q0"], "output": "q1", "attrs": {"shape": [16, 16, 64]}}, {"op": "transpose", "inputs": ["q1"], "output": "q", "attrs": {"perm": [1, 0, 2]}},
    {"op": "matmul", "inputs": ["q", "k"], "output": "s", "attrs": {"transpose_b": true}}, {"op": "mul", "inputs": ["s", 0.125], "output": "t"}, {"op": "softmax", "inputs": ["t"], "output": "p"}, {"op": "matmul", "inputs": ["p", "v"], "output": "o"},
    {"op": "transpose", "inputs": ["o"], "output": "o1", "attrs": {"perm": [1, 0, 2]}}, {"op": "reshape", "inputs": ["o1"], "output": "o2", "attrs": {"shape": [16, 1024]}}, {"op": "matmul", "inputs": ["o2", "wo"], "output": "p2"},
    {"op": "add", "inputs": ["p2", "x"], "output": "y"}]})"};
  Options o;
  o.gate = "none";
  o.emit = {"cu", "certificate", "report"};
  Trace trace;
  const CompileResult r = compile(o, spec, trace);
  INFO(r.summary << "\n" << r.explanation);
  REQUIRE(r.exit == ExitCode::kOk);
  CHECK(r.summary.find(": 3 kernels instead of 6") != std::string::npos);
  CHECK(r.files.at("block.cu").find("block_k1_attend") != std::string::npos);
  CHECK(check_certificate(Source{"c.json", r.files.at("certificate.json")}, {spec}, Options{}).exit == ExitCode::kOk);
}

TEST_CASE("attention over a cache and new keys is one kernel, and one of positions with a mask") {
  // No search takes the concatenations. All that is around them was not searched either, as if it had been with the whole; and positions
  // were stored by a kernel of their own (2.0 us) where attention that computes them takes 0.8 us longer. The mask knows the query of a
  // head; repeated for the heads that share keys, its positions are no index of one dimension and still stored, 20 of them, by a kernel
  // that attention starts beside.
  const auto spec = [](bool masked) {
    return Source{
        "cached.json",
        fmt::format(
            R"({{"version": "1.0", "name": "cached", "inputs": {{"q": {{"shape": [8, 4, 5, 128], "dtype": "bfloat16"}}, "kc": {{"shape": [8, 1, 3001, 128], "dtype": "bfloat16"}}, "vc": {{"shape": [8, 1, 3001, 128], "dtype": "bfloat16"}},
    "kn": {{"shape": [8, 1, 5, 128], "dtype": "bfloat16"}}, "vn": {{"shape": [8, 1, 5, 128], "dtype": "bfloat16"}}}}, "outputs": {{"y": {{"dtype": "bfloat16"}}}},
    "nodes": [{{"op": "concat", "inputs": ["kc", "kn"], "output": "k", "attrs": {{"axis": 2}}}}, {{"op": "concat", "inputs": ["vc", "vn"], "output": "v", "attrs": {{"axis": 2}}}},
    {{"op": "matmul", "inputs": ["q", "k"], "output": "s", "attrs": {{"transpose_b": true}}}}, {{"op": "mul", "inputs": ["s", 0.088], "output": "t"}}, {}
    {{"op": "softmax", "inputs": ["{}"], "output": "p", "attrs": {{"axis": -1}}}}, {{"op": "matmul", "inputs": ["p", "v"], "output": "y"}}]}})",
            masked ? R"({"op": "causal_mask", "inputs": ["t"], "output": "u", "attrs": {"offset": 3001}},)" : "", masked ? "u" : "t")};
  };
  for (bool masked : {false, true}) {
    Options o;
    o.gate = "none";
    o.emit = {"cu", "report"};
    Trace trace;
    const CompileResult r = compile(o, spec(masked), trace);
    INFO(r.summary << "\n" << r.explanation);
    REQUIRE(r.exit == ExitCode::kOk);
    CHECK(r.summary.find(": 1 kernel instead of 5") != std::string::npos);
    CHECK(r.files.at("cached.cu").find("cached_k0_attend") != std::string::npos);
  }
}

TEST_CASE("a sum that is spread over another tensor is cut from it, and both ways of cutting are tried", "[partition]") {
  // Linear attention: the sum of all keys belongs to the keys' product, what it scales to the queries'.
  const auto p = parse_spec({"l.json", R"({"version": "1.0", "name": "linear", "inputs": {"q": {"shape": [4, 256, 32], "dtype": "float16"},
  "k": {"shape": [4, 256, 32], "dtype": "float16"}, "v": {"shape": [4, 256, 32], "dtype": "float16"}}, "outputs": {"y": {"dtype": "float16"}},
 "nodes": [{"op": "relu", "inputs": ["q"], "output": "a"}, {"op": "relu", "inputs": ["k"], "output": "b"},
  {"op": "matmul", "inputs": ["b", "v"], "output": "kv", "attrs": {"transpose_a": true}},
  {"op": "sum", "inputs": ["b"], "output": "s", "attrs": {"axis": 1, "keepdim": true}}, {"op": "matmul", "inputs": ["a", "kv"], "output": "n"},
  {"op": "mul", "inputs": ["a", "s"], "output": "m"}, {"op": "sum", "inputs": ["m"], "output": "d", "attrs": {"axis": -1, "keepdim": true}},
  {"op": "div", "inputs": ["n", "d"], "output": "y"}]})"});
  REQUIRE(p.ok());
  const auto unit = [&](const Cuts& cuts, bool is_sum) {   // of the first reduction, or of what multiplies by it
    for (NodeId n = 0; n < p->graph.num_nodes(); n++) {
      const auto* r = p->graph.form<Reduce>(n);
      if (!r || r->dim != 1) continue;
      if (is_sum) return cuts.unit_of[static_cast<size_t>(n)];
      return cuts.unit_of[static_cast<size_t>(p->graph.users()[static_cast<size_t>(p->graph.node(n).first_value)][0])];
    }
    return -1;
  };
  const Cuts apart = find_cuts(p->graph), joined = find_cuts(p->graph, Spreading::kJoined);
  REQUIRE(unit(apart, true) >= 0);
  CHECK(unit(apart, true) != unit(apart, false));
  CHECK(unit(joined, true) == unit(joined, false));
}

TEST_CASE("what follows a product stays in its kernel where a norm's kernel makes its rows") {
  // The norm is stored in float16 by line, as the whole's plan does (plan/passes/narrow.h): a piece that took it in float32 was slower than
  // a kernel of its own for bias and activation.
  const Source spec{
      "ffn.json",
      R"({"version": "1.0", "name": "ffn", "inputs": {"x": {"shape": [64, 1024], "dtype": "float16"}, "r": {"shape": [64, 1024], "dtype": "float16"}, "g": {"shape": [1024], "dtype": "float16"}, "b": {"shape": [1024], "dtype": "float16"},
    "w": {"shape": [1024, 4096], "dtype": "float16"}, "c": {"shape": [4096], "dtype": "float16"}}, "outputs": {"h": {"shape": [64, 1024], "dtype": "float16"}, "y": {"shape": [64, 4096], "dtype": "float16"}},
    "nodes": [{"op": "add", "inputs": ["x", "r"], "output": "h"}, {"op": "layer_norm", "inputs": ["h", "g", "b"], "output": "n", "attrs": {"axis": -1}}, {"op": "matmul", "inputs": ["n", "w"], "output": "m"},
    {"op": "add", "inputs": ["m", "c"], "output": "a"}, {"op": "gelu", "inputs": ["a"], "output": "y"}]})"};
  Options o;
  o.gate = "none";
  o.states = 300'000;
  Trace trace;
  const CompileResult r = compile(o, spec, trace);
  INFO(r.summary << "\n" << r.explanation);
  REQUIRE(r.exit == ExitCode::kOk);
  CHECK(r.summary.find(": 2 kernels instead of 3") != std::string::npos);
  CHECK(check_certificate(Source{"c.json", r.files.at("certificate.json")}, {spec}, Options{}).exit == ExitCode::kOk);
}
