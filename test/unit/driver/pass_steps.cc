// Rewrites of a plan are compared step by step: the right ones hold, a wrong one is seen.
#include <catch2/catch.hpp>

#include "driver/proof/pass_steps.h"
#include "mirage/driver/compile.h"
#include "mirage/spec/spec.h"

using namespace mirage;

namespace {

constexpr const char* kSpec =
    R"({"version": "1.0", "name": "gated", "numerics": {"intermediates": "exact"}, "inputs": {"x": {"shape": [512, 2048], "dtype": "float16"}, "g": {"shape": [512, 2048], "dtype": "float16"}, "w": {"shape": [2048, 4096], "dtype": "float16"}},
  "outputs": {"y": {"shape": [512, 4096], "dtype": "float16"}}, "nodes": [{"op": "silu", "inputs": ["x"], "output": "s"}, {"op": "mul", "inputs": ["s", "g"], "output": "a"}, {"op": "matmul", "inputs": ["a", "w"], "output": "y"}]})";

}  // namespace

TEST_CASE("what a rewrite leaves is shown and compared") {
  const auto p = parse_spec({"gated.json", kSpec});
  REQUIRE(p);
  const Target t = *find_target("sm_90a");
  const Planned planned = make_plan(*p, p->graph, t);
  REQUIRE(planned.plan);
  std::string shown;
  Trace trace({{"pass:narrow"}, false, true, [&](const std::string& text) { shown += text; }});
  show_passes(*p, p->graph, *planned.plan, t, 7, trace);
  CHECK(shown.find("// after pass:narrow: gated.graph\nkernel gated {") == 0);
  CHECK(shown.find("reduce.max") != std::string::npos);   // of each line
}

#ifdef MIRAGE_CHECKED
TEST_CASE("a rewrite that makes another function is seen") {
  const auto p = parse_spec({"gated.json", kSpec});
  REQUIRE(p);
  Builder b(Level::kKernel);
  for (const Node& n : p->graph.nodes()) {
    if (const auto* in = std::get_if<Input>(&n.op)) b.add_input(in->param, p->graph.type(n.first_value), in->part);
    else if (const auto* m = std::get_if<Map>(&n.op); m && m->fn == MapFn::kMul && n.operands.size() == 2)
      b.add(Map{MapFn::kAdd}, n.operands);
    else b.add(n.op, n.operands);
  }
  const auto wrong = broken_step(p->graph, {"wrong", std::move(b).finish()}, 7);
  REQUIRE(wrong);
  CHECK(wrong->starts_with("another function than before: "));
  CHECK(!broken_step(p->graph, {"same", p->graph}, 7));
}
#endif
