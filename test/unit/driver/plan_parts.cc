// driver/plan_parts, and the gate that emulates long plans kernel by kernel: parts are the kernels that ship, each once, at shapes of their
// own.
#include <catch2/catch.hpp>

#include <set>

#include "driver/gate/gate.h"
#include "driver/gate/plan_parts.h"
#include "driver/gate/reduce.h"
#include "mirage/spec/spec.h"

using namespace mirage;

namespace {

Program parsed(const std::string& text) {
  auto p = parse_spec({"test.json", text});
  REQUIRE(p);
  return *p;
}

/// `layers` equal layers: product, softmax, residual.
Program layers(int layers) {
  std::string nodes, inputs = R"("x": {"shape": [24, 96], "dtype": "bfloat16"}, "w": {"shape": [96, 96], "dtype": "bfloat16"})", x = "x";
  for (int i = 0; i < layers; i++) {
    const std::string n = std::to_string(i);
    nodes += R"({"op": "matmul", "inputs": [")" + x + R"(", "w"], "output": "m)" + n + R"("}, {"op": "softmax", "inputs": ["m)" + n +
             R"("], "output": "s)" + n + R"("},)" + R"({"op": "add", "inputs": ["s)" + n + R"(", ")" + x + R"("], "output": "y)" + n +
             R"("},)";
    x = "y" + n;
  }
  nodes.pop_back();
  return parsed(R"({"name": "layers", "inputs": {)" + inputs + R"(}, "outputs": {")" + x + R"(": {"dtype": "bfloat16"}}, "nodes": [)" +
                nodes + "]}");
}

std::vector<KernelText> texts_of(const Plan& plan, const Target& target) {
  std::vector<KernelText> out;
  for (const KernelPlan& k : plan.kernels) out.push_back(emit_kernel(k, plan, target));
  return out;
}

}  // namespace

TEST_CASE("a dimension that a roll cuts in places that do not agree keeps its extent, and the program has a reduced shape all the same") {
  // rows of a rolled value are added to the rows themselves: cut at 8 and at 16, whose segments no other extents fit
  const Program p = parsed(
      R"({"name": "roll", "inputs": {"x": {"shape": [24, 512], "dtype": "bfloat16"}}, "outputs": {"y": {"dtype": "bfloat16"}}, "nodes": [
    {"op": "slice", "inputs": ["x"], "output": "a", "attrs": {"axis": 0, "start": 8, "stop": 24}}, {"op": "slice", "inputs": ["x"], "output": "b", "attrs": {"axis": 0, "start": 0, "stop": 8}},
    {"op": "concat", "inputs": ["a", "b"], "output": "r", "attrs": {"axis": 0}}, {"op": "add", "inputs": ["x", "r"], "output": "y"}]})");
  const Target target = *find_target("sm_90a");
  const Planned plan = make_plan(p, p.graph, target);
  REQUIRE(plan.plan);
  const Reduced r = reduce_plan(p, *plan.plan, target, Tails::kOwn);
  INFO(r.refusal);
  CHECK(r.plan);
}

TEST_CASE("parts of a plan have its kernels' texts, and equal layers are one part") {
  const Program p = layers(9);
  const Target target = *find_target("sm_90a");
  const Planned planned = make_plan(p, p.graph, target);
  REQUIRE(planned.plan);
  const Plan& plan = *planned.plan;
  const std::vector<KernelText> texts = texts_of(plan, target);
  REQUIRE(plan.kernels.size() == 18);
  CHECK(misplaced(plan, texts).empty());
  const PartReducer reducer(p, plan, target);
  REQUIRE(reducer.refusal().empty());
  std::set<std::string> keys;
  for (const PlanPart& part : parts_of(p, plan, texts)) {
    INFO(texts[part.kernels[0]].name);
    CHECK(part.refusal.empty());
    keys.insert(part_key(p, plan, part, texts));
    std::optional<Plan> own;
    const Reduced r = reducer.reduce(part, Tails::kRagged, own);
    INFO(r.refusal);
    REQUIRE(r.plan);
    for (size_t k = 0; k < part.kernels.size(); k++) own->kernels[k].early = plan.kernels[part.kernels[k]].early;
    CHECK(part_differs(plan, part, texts, *own, target) == "");
    std::vector<KernelText> changed = texts;   // other kernels than those that were planned again are told from them
    changed[part.kernels[0]].source += " ";
    CHECK(part_differs(plan, part, changed, *own, target) != "");
  }
  CHECK(keys.size() <= 4);   // the first layer's input and the last layer's result are of other kinds
}

TEST_CASE("a kernel that moves elements, and a product that is stored as it is read, are parts as they ship") {
  // a bias of pairs, [i, j, head], is read by heads; what the product behind it reads is joined across a transposition
  const Program p = parsed(R"({"name": "pairs", "inputs": {"z": {"shape": [128, 128, 64], "dtype": "bfloat16"},
    "w": {"shape": [64, 8], "dtype": "bfloat16"}, "s": {"shape": [4, 8, 128, 128], "dtype": "bfloat16"},
    "v": {"shape": [32, 128, 64], "dtype": "bfloat16"}}, "outputs": {"y": {"dtype": "bfloat16"}, "o": {"dtype": "bfloat16"}}, "nodes": [
    {"op": "matmul", "inputs": ["z", "w"], "output": "b"}, {"op": "transpose", "inputs": ["b"], "output": "h", "attrs": {"perm": [2, 0, 1]}},
    {"op": "add", "inputs": ["s", "h"], "output": "c"}, {"op": "softmax", "inputs": ["c"], "output": "y", "attrs": {"axis": -1}},
    {"op": "transpose", "inputs": ["s"], "output": "t", "attrs": {"perm": [1, 0, 3, 2]}},
    {"op": "reshape", "inputs": ["t"], "output": "r", "attrs": {"shape": [32, 128, 128]}},
    {"op": "matmul", "inputs": ["r", "v"], "output": "o"}]})");
  const Target target = *find_target("sm_90a");
  const Plan plan = *make_plan(p, p.graph, target).plan;
  INFO(print(plan));
  const auto lies_otherwise = [&](const View& at) {
    return at.buffer >= 0 && at.strides.rank() == 3 && plan.buffers[static_cast<size_t>(at.buffer)].kind == Buffer::Kind::kWorkspace &&
           at.strides[2] == 128 && at.strides[1] == 1;
  };
  CHECK(std::any_of(plan.views.begin(), plan.views.end(), lies_otherwise));
  const std::vector<KernelText> texts = texts_of(plan, target);
  const PartReducer reducer(p, plan, target);
  REQUIRE(reducer.refusal().empty());
  for (const PlanPart& part : parts_of(p, plan, texts)) {
    INFO(texts[part.kernels[0]].name);
    std::optional<Plan> own;
    const Reduced r = reducer.reduce(part, Tails::kOwn, own);
    INFO(r.refusal);
    REQUIRE(r.plan);
    for (size_t k = 0; k < part.kernels.size(); k++) own->kernels[k].early = plan.kernels[part.kernels[k]].early;
    CHECK(part_differs(plan, part, texts, *own, target) == "");
  }
}

TEST_CASE("dimensions that another kernel makes equal are not in a part alone") {
  // rows times all rows, by channels: both are one dimension of the input, and tiles of 128 rows asked for as many matrices
  const Program p = parsed(R"({"name": "triangle", "inputs": {"z": {"shape": [128, 128, 64], "dtype": "bfloat16"},
    "w": {"shape": [64, 64], "dtype": "bfloat16"}}, "outputs": {"y": {"dtype": "bfloat16"}}, "nodes": [
    {"op": "matmul", "inputs": ["z", "w"], "output": "a"}, {"op": "sigmoid", "inputs": ["a"], "output": "b"},
    {"op": "einsum", "inputs": ["b", "z"], "output": "c", "attrs": {"equation": "ikc,jkc->ijc"}},
    {"op": "softmax", "inputs": ["c"], "output": "y", "attrs": {"axis": -1}}]})");
  const Target target = *find_target("sm_90a");
  const Plan plan = *make_plan(p, p.graph, target).plan;
  INFO(print(plan));
  const std::vector<KernelText> texts = texts_of(plan, target);
  const PartReducer reducer(p, plan, target);
  REQUIRE(reducer.refusal().empty());
  int products = 0;
  for (const PlanPart& part : parts_of(p, plan, texts)) {
    std::optional<Plan> own;
    const Reduced r = reducer.reduce(part, Tails::kOwn, own);
    INFO(texts[part.kernels[0]].name << ": " << r.refusal);
    REQUIRE(r.plan);
    const Graph& g = plan.graph;
    if (!g.form<Call>(plan.kernels[part.kernels[0]].nodes.back())) continue;
    products++;
    for (const TensorInfo& t : r.program->inputs) CHECK(t.type.dims.elements() <= 4 * 128 * 128);
    CHECK(without_calls(g));
  }
  CHECK(products > 0);
}

TEST_CASE("a workspace value in the place of one that is still read is found") {
  const Program p = layers(9);
  const Target target = *find_target("sm_90a");
  Plan plan = *make_plan(p, p.graph, target).plan;
  const std::vector<KernelText> texts = texts_of(plan, target);
  for (Buffer& b : plan.buffers)
    if (b.kind == Buffer::Kind::kWorkspace) b.offset_bytes = 0;
  CHECK(misplaced(plan, texts) != "");
}

TEST_CASE("what a kernel stores by a tensor map is not read of the workspace") {
  // blocks that stay store by tensor copies; the library was refused as one that reads what nobody stored
  const Program p = parsed(R"({"name": "stays", "inputs": {"p": {"shape": [384, 96, 96], "dtype": "bfloat16"},
    "v": {"shape": [384, 96, 32], "dtype": "bfloat16"}}, "outputs": {"y": {"dtype": "bfloat16"}}, "nodes": [
    {"op": "matmul", "inputs": ["p", "v"], "output": "o"}, {"op": "sigmoid", "inputs": ["o"], "output": "y"}]})");
  const Target target = *find_target("sm_90a");
  const Plan plan = *make_plan(p, p.graph, target).plan;
  INFO(print(plan));
  const std::vector<KernelText> texts = texts_of(plan, target);
  REQUIRE(texts.size() == 2);
  REQUIRE(texts[0].maps.size() == 3);   // of both operands and of the result
  CHECK(misplaced(plan, texts) == "");
}

TEST_CASE("a long plan passes the gate kernel by kernel") {
  const Program p = layers(9);
  const Target target = *find_target("sm_90a");
  const GateResult g = emulation_gate(p, *make_plan(p, p.graph, target).plan, target, "g++", 1);
  INFO(g.text);
  CHECK(g.kind == GateResult::Kind::kPassed);
  CHECK(g.text.find("one by one") != std::string::npos);
}
