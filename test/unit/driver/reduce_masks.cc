// Masks of attention with several batch dimensions have a reduced shape: rows and columns, as long as each other or as the depth, stay
// apart when the batches are folded.
#include <catch2/catch.hpp>
#include <fmt/format.h>
#include "driver/proof/folding.h"
#include "driver/gate/reduce.h"
#include "mirage/plan/plan.h"
#include "mirage/spec/spec.h"

using namespace mirage;

TEST_CASE("causal attention of several rows has a reduced shape, with several batches or with grouped heads") {
  struct Case {
    int batch, heads, groups, rows, keys, depth;
  };
  for (const Case& c : {Case{1, 8, 2, 64, 64, 32}, Case{2, 4, 4, 64, 64, 32}}) {
    const std::string at =
        fmt::format("batch {}, {} heads over {}, {} rows, {} keys, depth {}", c.batch, c.heads, c.groups, c.rows, c.keys, c.depth);
    INFO(at);
    const std::string kv = fmt::format("{{\"shape\": [{}, {}, {}, {}], \"dtype\": \"float16\"}}", c.batch, c.groups, c.keys, c.depth);
    const auto program = parse_spec(
        {"p.json",
         fmt::format(
             R"({{"name": "p", "inputs": {{"q": {{"shape": [{}, {}, {}, {}], "dtype": "float16"}}, "k": {}, "v": {}}}, "outputs": {{"y": {{"dtype": "float16"}}}},
      "nodes": [{{"op": "attention", "inputs": ["q", "k", "v"], "output": "y", "attrs": {{"causal": true}}}}]}})",
             c.batch, c.heads, c.rows, c.depth, kv, kv)});
    REQUIRE(program);
    const Folding folded = fold_verified(*program);
    const Target target = *find_target("sm_90a");
    const Planned planned = make_plan(folded.program, folded.program.graph, target);
    REQUIRE(planned.plan);
    const Reduced r = reduce_plan(folded.program, *planned.plan, target, Tails::kOwn);
    INFO(r.refusal);
    CHECK(r.plan.has_value());
  }
}
