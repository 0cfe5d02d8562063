// Programs with dimensions that no small example can have (repetitions, groups of a reduction, reshapes that split and join): the others
// are reduced, these keep their extents, and the gate runs the kernels. Shapes that would take minutes, or all memory, are not begun.
#include <chrono>

#include <fmt/format.h>

#include "driver/gate/gate.h"
#include "driver/toolchain/toolchain.h"
#include "emulate/helpers.h"
#include "mirage/plan/region.h"
#include "mirage/search/extents.h"
#include "mirage/search/search.h"

using namespace mirage;
using namespace mirage::test;

namespace {

struct Pinned { std::string name, inputs, shape, nodes, refusal; bool smaller = true; };

const std::vector<Pinned> kPinned = {
    {"repeat", R"("x": {"shape": [64, 40, 1000], "dtype": "float16"}, "m": {"shape": [16, 40, 1000], "dtype": "float16"})", "64, 40, 1000",
     R"({"op": "repeat", "inputs": ["m"], "output": "r", "attrs": {"axis": 0, "count": 4}}, )"
     R"({"op": "add", "inputs": ["x", "r"], "output": "t"}, {"op": "softmax", "inputs": ["t"], "output": "y", "attrs": {"axis": -1}})",
     "repeat"},
    {"step", R"("x": {"shape": [3000, 96], "dtype": "float16"}, "w": {"shape": [48, 2048], "dtype": "float16"})", "3000, 2048",
     R"({"op": "slice", "inputs": ["x"], "output": "a", "attrs": {"axis": 1, "start": 1, "stop": 96, "step": 2}}, )"
     R"({"op": "silu", "inputs": ["a"], "output": "b"}, {"op": "matmul", "inputs": ["b", "w"], "output": "y"})",
     ""},
    {"one_row", R"("x": {"shape": [64, 12, 1024], "dtype": "float16"}, "w": {"shape": [1024, 4096], "dtype": "float16"})", "64, 1, 4096",
     R"({"op": "slice", "inputs": ["x"], "output": "a", "attrs": {"axis": 1, "start": 11, "stop": 12}}, )"
     R"({"op": "rms_norm", "inputs": ["a"], "output": "b"}, {"op": "matmul", "inputs": ["b", "w"], "output": "y"})",
     ""},
    {"class_token", R"("x": {"shape": [4, 49, 4096], "dtype": "float16"}, "c": {"shape": [4, 1, 4096], "dtype": "float16"})", "4, 50, 4096",
     R"({"op": "concat", "inputs": ["c", "x"], "output": "a", "attrs": {"axis": 1}}, {"op": "layer_norm", "inputs": ["a"], "output": "y"})",
     ""},
    {"split_and_join", R"("x": {"shape": [4096, 12, 40], "dtype": "float16"})", "4096, 10, 48",
     R"({"op": "softmax", "inputs": ["x"], "output": "a", "attrs": {"axis": -1}}, )"
     R"({"op": "reshape", "inputs": ["a"], "output": "b", "attrs": {"shape": [4096, 10, 48]}}, )"
     R"({"op": "softmax", "inputs": ["b"], "output": "y", "attrs": {"axis": -1}})",
     "reshape that splits and joins dimensions at once"},
    {"two_ways", R"("x": {"shape": [4096, 48], "dtype": "float16"}, "g": {"shape": [48], "dtype": "float16"})", "4096, 8, 6",
     R"({"op": "reshape", "inputs": ["x"], "output": "a", "attrs": {"shape": [4096, 4, 12]}}, {"op": "softmax", "inputs": ["a"], "output": "b", "attrs": {"axis": -1}}, {"op": "reshape", "inputs": ["b"], "output": "c", "attrs": {"shape": [4096, 48]}},
        {"op": "mul", "inputs": ["c", "g"], "output": "e"}, {"op": "reshape", "inputs": ["e"], "output": "d", "attrs": {"shape": [4096, 8, 6]}}, {"op": "softmax", "inputs": ["d"], "output": "y", "attrs": {"axis": -1}})",
     "a dimension that is split in two ways"},
};

Program of(const Pinned& c) {
  return program_of(
      fmt::format(
          R"({{"version": "1.0", "name": "pinned", "inputs": {{{}}}, "outputs": {{"y": {{"shape": [{}], "dtype": "float16"}}}}, )"
          R"("nodes": [{}]}})",
          c.inputs, c.shape, c.nodes),
      c.name);
}

int64_t elements_of(const Program& p) {
  int64_t n = 0;
  for (const TensorInfo& t : p.inputs) n += t.type.dims.elements();
  return n;
}

}  // namespace

TEST_CASE("dimensions without a small example keep their extents, the others are reduced, and the kernels run") {
  for (const char* target_name : {"sm_90a", "sm_80"}) {
    const Target target = *find_target(target_name);
    for (const Pinned& c : kPinned) {
      INFO(c.name << " " << target_name);
      const Program p = of(c);
      CHECK(search::dim_classes(p.graph).refusal == c.refusal);
      const Planned full = make_plan(p, p.graph, target);
      REQUIRE(full.plan);
      const Reduced r = reduce_plan(p, *full.plan, target, Tails::kOwn);
      INFO(r.refusal);
      REQUIRE(r.plan);
      CHECK(elements_of(*r.program) < elements_of(p));
      const GateResult g = emulation_gate(p, *full.plan, target, find_host_compiler(), 7);
      INFO(g.text);
      CHECK(g.kind == GateResult::Kind::kPassed);
    }
  }
}

TEST_CASE("windows follow a change of extents: what is too large to be emulated is reduced") {
  // overlapping slices of one extent, of what padding or zeros between elements made longer, and of what was left out at the end
  const std::string x = R"("x": {"shape": [{}], "dtype": "float16"})", w = R"(, "w": {"shape": [{}], "dtype": "float16"})";
  const std::string conv = R"({"op": "conv", "inputs": ["x", "w"], "output": "y", "attrs": )";
  const auto with = [](std::string text, const std::string& shape) { return text.replace(text.find("{}"), 2, shape); };
  const Pinned all[] = {
      {"conv", with(x, "2, 64, 700, 702") + with(w, "8, 64, 3, 3"), "2, 8, 698, 700", conv + "{}}", ""},
      {"padded", with(x, "8, 8, 40001") + with(w, "8, 8, 3"), "8, 8, 40001", conv + R"({"padding": 1}})", ""},
      {"strided", with(x, "4, 64, 70001") + with(w, "8, 64, 5"), "4, 8, 23333", conv + R"({"stride": 3}})", ""},
      {"transposed", with(x, "2, 64, 130, 131") + with(w, "64, 8, 3, 3"), "2, 8, 261, 263",
       conv + R"({"stride": 2, "transposed": true}})", ""},
      {"pooled", with(x, "2, 64, 700, 702"), "2, 64, 349, 350",
       R"({"op": "max_pool", "inputs": ["x"], "output": "y", "attrs": {"kernel": 3, "stride": 2}})", ""},
      {"apart", with(x, "4, 64, 1410, 1412"), "4, 64, 128, 128",
       R"({"op": "avg_pool", "inputs": ["x"], "output": "y", "attrs": {"kernel": 11}})", ""},
      {"dropped", with(x, "256, 20500, 12"), "256, 1863, 12",
       R"({"op": "slice", "inputs": ["x"], "output": "a", "attrs": {"axis": 1, "stop": 20493}}, )"
       R"({"op": "reshape", "inputs": ["a"], "output": "b", "attrs": {"shape": [256, 1863, 11, 12]}}, )"
       R"({"op": "sum", "inputs": ["b"], "output": "y", "attrs": {"axis": 2}})",
       ""},
  };
  const Target target = *find_target("sm_90a");
  for (const Pinned& c : all) {
    INFO(c.name);
    const Program p = of(c);
    CHECK(search::dim_classes(p.graph, 0, search::Tied::kPinned).refusal.empty());
    const Planned full = make_plan(p, p.graph, target);
    REQUIRE(full.plan);
    CHECK_FALSE(too_large_to_emulate(p, *full.plan).empty());
    const GateResult g = emulation_gate(p, *full.plan, target, find_host_compiler(), 7);
    INFO(g.text);
    CHECK(g.kind == GateResult::Kind::kPassed);
  }
}

TEST_CASE("neighbours that a thread's elements have in common are read within the tensor, and are the right ones") {
  const Target target = *find_target("sm_90a");
  const auto pool = [](const char* name, const char* x, const char* y, const char* attrs) {
    return Pinned{name, fmt::format(R"("x": {{"shape": [{}], "dtype": "float16"}})", x), y,
                  fmt::format(R"({{"op": "avg_pool", "inputs": ["x"], "output": "y", "attrs": {{"stride": 1, {}}}}})", attrs), ""};
  };
  for (const Pinned& c : {pool("eight", "16, 128, 512", "16, 128, 513", R"("kernel": 8, "padding": 4)"),
                          pool("three", "16, 128, 516", "16, 128, 516", R"("kernel": 3, "padding": 1)"),
                          pool("five", "16, 128, 1026", "16, 128, 1026", R"("kernel": 5, "padding": 2)"),
                          pool("four", "16, 128, 516", "16, 128, 513", R"("kernel": 4)")}) {
    INFO(c.name);
    const Program p = of(c);
    const Planned full = make_plan(p, p.graph, target);
    REQUIRE(full.plan);
    REQUIRE(full.plan->kernels.size() == 1);
    const Reduced reduced = reduce_plan(p, *full.plan, target, Tails::kOwn);   // what the gate runs, unless the whole is small enough
    for (const Plan* plan : {&*full.plan, reduced.plan ? &*reduced.plan : &*full.plan})
      CHECK_FALSE(std::get<std::shared_ptr<const RegionPlan>>(plan->kernels[0].body)->windows.empty());
    const GateResult g = emulation_gate(p, *full.plan, target, find_host_compiler(), 7);
    INFO(g.text);
    CHECK(g.kind == GateResult::Kind::kPassed);
  }
}

TEST_CASE("calls follow a change of extents where operators of the program look alike, or are the planner's own") {
  const Target target = *find_target("sm_90a");
  const Pinned all[] = {
      // queries and keys of one shape, and so their reshapes; how many there are of each may differ
      {"heads", R"("q": {"shape": [2, 197, 512], "dtype": "float16"}, "k": {"shape": [2, 197, 512], "dtype": "float16"})", "2, 8, 197, 197",
       R"({"op": "reshape", "inputs": ["q"], "output": "a", "attrs": {"shape": [2, 197, 8, 64]}}, {"op": "transpose", "inputs": ["a"], "output": "b", "attrs": {"perm": [0, 2, 1, 3]}}, {"op": "reshape", "inputs": ["k"], "output": "c", "attrs": {"shape": [2, 197, 8, 64]}},
          {"op": "transpose", "inputs": ["c"], "output": "d", "attrs": {"perm": [0, 2, 1, 3]}}, {"op": "matmul", "inputs": ["b", "d"], "output": "s", "attrs": {"transpose_b": true}}, {"op": "softmax", "inputs": ["s"], "output": "y"})",
       ""},
      // two dimensions of batches become one
      {"batches", R"("x": {"shape": [4, 12, 200, 64], "dtype": "float16"}, "w": {"shape": [4, 12, 64, 96], "dtype": "float16"})",
       "4, 12, 200, 96", R"({"op": "matmul", "inputs": ["x", "w"], "output": "u"}, {"op": "gelu", "inputs": ["u"], "output": "y"})", ""},
      // keys that are the same for a group of heads
      {"groups", R"("q": {"shape": [4, 2, 8, 200, 64], "dtype": "float16"}, "k": {"shape": [4, 2, 1, 96, 64], "dtype": "float16"})",
       "4, 2, 8, 200, 96",
       R"({"op": "matmul", "inputs": ["q", "k"], "output": "s", "attrs": {"transpose_b": true}}, )"
       R"({"op": "softmax", "inputs": ["s"], "output": "y"})",
       ""},
      // one of three parts of a row
      {"third", R"("x": {"shape": [64, 512], "dtype": "float16"}, "w": {"shape": [512, 1536], "dtype": "float16"})", "64, 1, 8, 64",
       R"({"op": "matmul", "inputs": ["x", "w"], "output": "u"}, {"op": "reshape", "inputs": ["u"], "output": "r", "attrs": {"shape": [64, 3, 8, 64]}}, {"op": "slice", "inputs": ["r"], "output": "s", "attrs": {"axis": 1, "start": 1, "stop": 2}},
          {"op": "gelu", "inputs": ["s"], "output": "y"})",
       ""}};
  for (const Pinned& c : all) {
    INFO(c.name);
    const Program p = of(c);
    const Planned full = make_plan(p, p.graph, target);
    REQUIRE(full.plan);
    const Reduced r = reduce_plan(p, *full.plan, target, Tails::kOwn);
    INFO(r.refusal << r.differs);
    REQUIRE(r.plan);
    CHECK(r.differs.empty());
    CHECK(elements_of(*r.program) < elements_of(p));
    const GateResult g = emulation_gate(p, *full.plan, target, find_host_compiler(), 7);
    INFO(g.text);
    CHECK(g.kind == GateResult::Kind::kPassed);
  }
}

TEST_CASE("a slice in a pinned dimension stands where it stood") {
  const Program p = of(kPinned[2]);
  const Witness w = make_witness(p, 0, 0, search::Tied::kPinned);
  REQUIRE(w.refusal.empty());
  const int64_t extent = w.params[0].dims[1];
  int slices = 0;
  for (NodeId n = 0; n < w.graph.num_nodes(); n++)
    if (const auto* s = w.graph.form<Slice>(n)) {
      slices++;
      CHECK(s->start == extent - 1);
      CHECK(s->stop == extent);
    }
  CHECK(slices == 1);
  CHECK(w.params[0].dims[2] < 1024);
}

TEST_CASE("what would take all memory is not emulated, and that is said at once") {
  const Program p = program_of(
      R"({"version": "1.0", "name": "large", "inputs": {"x": {"shape": [4, 20000, 60000], "dtype": "float16"}}, "outputs": {"y": {"shape": [4, 40000, 120000], "dtype": "float16"}}, "nodes": [
    {"op": "repeat", "inputs": ["x"], "output": "a", "attrs": {"axis": 2, "count": 2}}, {"op": "exp", "inputs": ["a"], "output": "b"}, {"op": "repeat", "inputs": ["b"], "output": "y", "attrs": {"axis": 1, "count": 2}}]})",
      "large");
  const Target target = *find_target("sm_90a");
  const Planned full = make_plan(p, p.graph, target);
  REQUIRE(full.plan);
  const auto begin = std::chrono::steady_clock::now();
  const GateResult g = emulation_gate(p, *full.plan, target, find_host_compiler(), 7);
  INFO(g.text);
  CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < 30);
  CHECK(g.kind == GateResult::Kind::kNotRun);
  CHECK(g.text.find("it takes too much memory at [3,20000,60000]") != std::string::npos);
}
