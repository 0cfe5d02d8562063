// Programs whose values are read more than once, in sequence: walks over their graphs that forget where they have been take 2^n steps. Each
// ends at once, or the alarm ends the test.
#include <catch2/catch.hpp>

#include <algorithm>
#include <sstream>
#include <string>
#include <unistd.h>

#include "mirage/codegen/module.h"
#include "mirage/driver/compile.h"
#include "mirage/ir/stabilize.h"
#include "mirage/plan/plan.h"
#include "mirage/spec/spec.h"
#include "mirage/spec/text.h"

using namespace mirage;

namespace {

struct Alarm {
  explicit Alarm(unsigned seconds) { alarm(seconds); }
  ~Alarm() { alarm(0); }
};

struct SpecNode { std::string op, inputs, output, attrs = ""; };

/// A spec of [64, 256] tensors x, z, and of w [256, 256] and g [256].
Source spec(const std::vector<SpecNode>& nodes, const std::string& dtype = "float16") {
  std::string text = R"({"name": "grows", "inputs": {)";
  for (const char* name : {"x", "z"}) text += "\"" + std::string(name) + R"(": {"shape": [64, 256], "dtype": ")" + dtype + "\"}, ";
  text += R"("w": {"shape": [256, 256], "dtype": ")" + dtype + R"("}, "g": {"shape": [256], "dtype": ")" + dtype + R"("}}, "outputs": {")" +
          nodes.back().output + R"(": {"dtype": ")" + dtype + R"("}}, "nodes": [)";
  for (size_t i = 0; i < nodes.size(); i++)
    text += (i ? ", " : "") + std::string(R"({"op": ")") + nodes[i].op + R"(", "inputs": [)" + nodes[i].inputs + R"(], "output": ")" +
            nodes[i].output + "\"" + (nodes[i].attrs.empty() ? "" : ", \"attrs\": " + nodes[i].attrs) + "}";
  return {"grows.json", text + "]}"};
}

std::string quoted(const std::string& a, const std::string& b) { return "\"" + a + "\", \"" + b + "\""; }

CompileResult compiled(const Source& source, int64_t states = 3000) {
  Options o;
  o.jobs = 1;
  o.no_cache = true;
  o.states = states;
  Trace trace;
  return compile(o, source, trace);
}

/// h = h + f(h), the given f in turn.
std::vector<SpecNode> residuals(int steps, const std::vector<SpecNode>& ways) {
  std::vector<SpecNode> out;
  std::string h = "x";
  for (int i = 0; i < steps; i++) {
    const SpecNode& way = ways[static_cast<size_t>(i) % ways.size()];
    const std::string f = "f" + std::to_string(i), next = "h" + std::to_string(i);
    out.push_back({way.op, way.inputs.empty() ? "\"" + h + "\"" : way.inputs == "h" ? quoted(h, h) : quoted(h, way.inputs), f});
    out.push_back({"add", quoted(h, f), next});
    h = next;
  }
  return out;
}

}  // namespace

TEST_CASE("chains of residuals and squares are planned in time that grows with their length") {
  const Alarm alarm(100);
  CHECK(compiled(spec(residuals(60, {{"tanh", "", ""}}))).exit == ExitCode::kOk);
  std::vector<SpecNode> squares;
  for (int i = 0; i < 40; i++)
    squares.push_back(
        {"mul", i == 0 ? quoted("x", "x") : quoted("q" + std::to_string(i - 1), "q" + std::to_string(i - 1)), "q" + std::to_string(i)});
  CHECK(compiled(spec(squares)).exit == ExitCode::kOk);
}

TEST_CASE("residuals around products, norms and squares are planned in time that grows with their length") {
  const Alarm alarm(100);
  CHECK(compiled(spec(residuals(6, {{"rms_norm", "g", ""}, {"mul", "h", ""}, {"silu", "", ""}, {"mul", "z", ""}}))).exit == ExitCode::kOk);
  std::vector<SpecNode> mixed = residuals(40, {{"tanh", "", ""}, {"mul", "h", ""}, {"silu", "", ""}, {"mul", "z", ""}});
  mixed.push_back({"matmul", quoted(mixed.back().output, "w"), "y"});
  CHECK(compiled(spec(mixed)).exit == ExitCode::kOk);   // operands of a product with 2^40 paths behind them
}

TEST_CASE("what reports say of residuals is as long as they are") {   // their schedules were trees of 2^16 words
  const Alarm alarm(100);
  const CompileResult r = compiled(spec(residuals(16, {{"gelu", "", ""}, {"relu", "", ""}, {"tanh", "", ""}, {"silu", "", ""}})), 20000);
  CHECK(r.exit == ExitCode::kOk);
  CHECK(r.report.size() < 100'000);
}

TEST_CASE("as many products stand beside each other as a kernel's parameters have room for") {
  const Alarm alarm(100);
  std::string inputs = R"("x": {"shape": [16, 64], "dtype": "float16"})", nodes, sum;
  for (int i = 0; i < 260; i++) {
    const std::string n = std::to_string(i);
    inputs += R"(, "w)" + n + R"(": {"shape": [64, 64], "dtype": "float16"})";
    nodes += (i ? ", " : "") + std::string(R"({"op": "matmul", "inputs": ["x", "w)") + n + R"("], "output": "p)" + n + "\"}";
    if (i > 0) nodes += R"(, {"op": "add", "inputs": [")" + sum + R"(", "p)" + n + R"("], "output": "s)" + n + "\"}";
    sum = (i ? "s" : "p") + n;
  }
  const CompileResult r = compiled({"many.json", R"({"name": "many", "inputs": {)" + inputs + R"(}, "outputs": {")" + sum +
                                                     R"(": {"dtype": "float16"}}, "nodes": [)" + nodes + "]}"});
  REQUIRE(r.exit == ExitCode::kOk);
  std::istringstream text(r.files.at("many.cu"));
  size_t most = 0;
  for (std::string line; std::getline(text, line);) {
    size_t maps = 0;
    for (size_t at = 0; (at = line.find("__grid_constant__", at)) != std::string::npos; at++) maps++;
    most = std::max(most, maps);
  }
  CHECK(most > 100);
  CHECK(most <= 200);
}

TEST_CASE("a slice of a chain of squares is taken once") {
  const Alarm alarm(100);
  std::vector<SpecNode> squares = {{"matmul", quoted("x", "w"), "q"}};
  for (int i = 0; i < 40; i++) squares.push_back({"mul", quoted(squares.back().output, squares.back().output), "q" + std::to_string(i)});
  const std::string last = "\"" + squares.back().output + "\"";
  squares.push_back({"slice", last, "a", R"({"axis": 1, "start": 0, "stop": 128})"});
  squares.push_back({"slice", last, "b", R"({"axis": 1, "start": 128, "stop": 256})"});
  squares.push_back({"add", quoted("a", "b"), "y"});
  CHECK(compiled(spec(squares)).exit == ExitCode::kOk);
}

TEST_CASE("what is doubled again and again is no sum of 2^n parts, nor walked once per path where it could be repeated along a batch") {
  const Alarm alarm(60);   // each of 8 x 16 rows a factor that lacks the batch
  std::string text = "kernel doubled { %x = input 0 : f16[8,16,64]  %w = input 1 : f16[8,64,32]  %v0 = input 2 : f16[16,1] ";
  for (int i = 0; i < 40; i++) {
    const std::string v = "%v" + std::to_string(i);
    text += "%v" + std::to_string(i + 1) + " = add " + v + " " + v + " ";
  }
  const CompileResult r = compiled({"doubled.mg", text + "output 0 (matmul (mul %x %v40) %w) : f16 }"}, 0);
  CHECK(r.exit == ExitCode::kOk);
}

// Lifetimes of shared memory were looked for along every path to what a step makes again.
TEST_CASE("values of a block that are read twice, one behind another, are walked once") {
  const Alarm alarm(20);
  std::string text =
      "kernel twice { %x = input 0 : f32[32,64] %w = input 1 : f32[64,32] %y = call grid(2,1,1) loop(4) (%x, %w) { "
      "%p = input 0 grid(-,-,-) loop(1) : f32[32,16] %q = input 1 grid(1,-,-) loop(0) : f32[16,16] "
      "%v0 = accum.sum (matmul %p %q) %v1 = square %v0 ";
  for (int i = 2; i <= 60; i++) {
    const auto v = [](int n) { return "%v" + std::to_string(n); };
    text += v(i) + (i % 2 ? " = maximum " : " = add ") + v(i - 1) + " " + v(i - 2) + " ";
  }
  const auto g = parse_graph(text + "output 0 %v60 grid(1,-,-) : f32 } output 0 %y : f32 }");
  REQUIRE(g);
  auto p = parse_spec({"twice.json", R"({"name": "twice", "inputs": {"x": {"shape": [32, 64], "dtype": "float32"},
 "w": {"shape": [64, 32], "dtype": "float32"}}, "outputs": {"y": {"dtype": "float32"}},
 "nodes": [{"op": "matmul", "inputs": ["x", "w"], "output": "y"}]})"});
  REQUIRE(p);
  const Target target = *find_target("sm_90a");
  const Planned planned = make_plan(*p, *g, target);
  REQUIRE(planned.plan);
  CHECK(emit_kernel(planned.plan->kernels[0], *planned.plan, target).smem_bytes > 0);
}

// 18 softmaxes one behind another never ended: where the maximum is over one element, e^(x - x) was looked at as one that is to be shifted.
TEST_CASE("an exponential whose maximum is over one element is shifted once") {
  const Alarm alarm(20);
  Builder b(Level::kKernel);
  const ValueId e = b.map(MapFn::kExp, {b.add_input(0, {DType::kF32, {64, 1}})});
  b.add_output(0, b.map(MapFn::kDiv, {e, b.add(Reduce{ReduceFn::kSum, 1, 0}, {e})}), DType::kF32);
  const std::optional<Graph> stable = stabilize(std::move(b).finish());
  REQUIRE(stable);
  CHECK(stable->num_nodes() < 12);
}
