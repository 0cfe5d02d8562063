// driver/gate/reduce: a reduced plan is the full plan over other extents: the same kernels, one for one, with the same numbers and the same
// arithmetic.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "unit/plan/plan_in.h"
#include "mirage/plan/bound.h"
#include "driver/gate/gate.h"
#include "driver/gate/reduce.h"
#include "plan/attend/attend_plan.h"
#include "plan/block/block_plan.h"
#include "mirage/plan/cublas.h"
#include "mirage/plan/region.h"
#include "plan/stream/stream_plan.h"
#include "plan/tile/tile_plan.h"
#include "mirage/spec/spec.h"
#include "mirage/support/file.h"

using namespace mirage;
using namespace mirage::test;

namespace {

Program spec_named(const std::string& name) {
  const std::string path = std::string(MIRAGE_SOURCE_DIR) + "/specs/" + name + ".json";
  auto p = parse_spec({path, *read_file(path)});
  REQUIRE(p);
  return *p;
}

void check_alike(const BlockPlan& a, const BlockPlan& b) {
  CHECK(a.threads == b.threads);
  CHECK(a.cluster == b.cluster);
  CHECK(a.loop_warps == b.loop_warps);
  CHECK(a.stages == b.stages);
  CHECK(a.rule.narrow == b.rule.narrow);
  CHECK(a.rule.tf32 == b.rule.tf32);
  REQUIRE(a.steps.size() == b.steps.size());
  for (size_t i = 0; i < a.steps.size(); i++) {
    CHECK(a.steps[i].kind == b.steps[i].kind);
    CHECK(a.steps[i].type == b.steps[i].type);
    CHECK(a.steps[i].tensor == b.steps[i].tensor);
  }
}
void check_alike(const StreamPlan& a, const StreamPlan& b) {
  CHECK(std::array{a.warps, a.stages, a.chunk, a.cluster, a.blocks_per_sm} ==
        std::array{b.warps, b.stages, b.chunk, b.cluster, b.blocks_per_sm});
  REQUIRE(a.contractions.size() == b.contractions.size());
  for (size_t i = 0; i < a.contractions.size(); i++) CHECK(a.contractions[i].type == b.contractions[i].type);
}
void check_alike(const TilePlan& a, const TilePlan& b) {
  CHECK(std::array{a.row_groups, a.group_rows, a.column_groups, a.stages, a.chunk, a.cluster, a.blocks_per_sm} ==
        std::array{b.row_groups, b.group_rows, b.column_groups, b.stages, b.chunk, b.cluster, b.blocks_per_sm});
  CHECK(a.rule.tf32 == b.rule.tf32);
}
void check_alike(const CublasPlan& a, const CublasPlan& b) {
  CHECK(a.type == b.type);
  CHECK(a.first.transposed == b.first.transposed);
  CHECK(a.second.transposed == b.second.transposed);
}

void check_alike(const AttendPlan& a, const AttendPlan& b) {
  CHECK(std::array{a.query_groups, a.key_groups, a.chunk, a.stages, a.cluster, a.helpers} ==
        std::array{b.query_groups, b.key_groups, b.chunk, b.stages, b.cluster, b.helpers});
  CHECK(a.producer == b.producer);
  CHECK(a.features == b.features);
}
void check_alike(const RegionPlan& a, const RegionPlan& b) {
  CHECK(a.shape == b.shape);
  CHECK(std::array{a.width, a.threads, a.team, a.columns} == std::array{b.width, b.threads, b.team, b.columns});
  CHECK((a.held > 0) == (b.held > 0));
  CHECK(a.passes.size() == b.passes.size());
}

/// Kinds of plans that both kernels are of.
int check_bodies(const KernelBody& a, const KernelBody& b, const Target& target) {
  int kinds = 0;
  const auto planned = [&]<class P>(P*) {
    const auto x = plan_in<P>(a, target), y = plan_in<P>(b, target);
    if (x && y) kinds++, check_alike(**x, **y);
  };
  planned(static_cast<BlockPlan*>(nullptr));
  planned(static_cast<StreamPlan*>(nullptr));
  planned(static_cast<TilePlan*>(nullptr));
  planned(static_cast<AttendPlan*>(nullptr));
  const auto own = [&]<class P>(P*) {
    const auto *x = std::get_if<std::shared_ptr<const P>>(&a), *y = std::get_if<std::shared_ptr<const P>>(&b);
    if (x && y) kinds++, check_alike(**x, **y);
  };
  own(static_cast<RegionPlan*>(nullptr));
  own(static_cast<CublasPlan*>(nullptr));
  return kinds;
}

}  // namespace

TEST_CASE("a reduced plan has the full plan's kernels, numbers and arithmetic") {
  for (const char* target_name : {"sm_90a", "sm_80"})
    for (const char* name :
         {"rms_norm_linear", "gated_mlp", "lora", "odd", "layer_norm_linear", "causal_attention", "mla", "llama_layer", "n_trans"}) {
      const Program p = spec_named(name);
      const Target target = *find_target(target_name);
      const Planned full = make_plan(p, p.graph, target);
      REQUIRE(full.plan);
      for (Tails tails : {Tails::kOwn, Tails::kRagged}) {
        const Reduced r = reduce_plan(p, *full.plan, target, tails);
        INFO(name << " " << target_name << ": " << r.refusal << r.differs);
        REQUIRE(r.plan);
        CHECK(r.differs.empty());
        REQUIRE(r.plan->kernels.size() == full.plan->kernels.size());
        int64_t before = 0, after = 0;
        for (const TensorInfo& t : p.inputs) before += t.type.dims.elements();
        for (const TensorInfo& t : r.program->inputs) after += t.type.dims.elements();
        CHECK(after <= before);
        for (size_t k = 0; k < r.plan->kernels.size(); k++) {
          const KernelPlan &a = full.plan->kernels[k], &b = r.plan->kernels[k];
          INFO(a.name);
          CHECK(a.nodes == b.nodes);
          REQUIRE(strategy_id(a) == strategy_id(b));
          CHECK(check_bodies(a.body, b.body, target) == 1);
        }
      }
    }
}

TEST_CASE("positions, slices and joined extents follow a reduction") {
  const Target target = *find_target("sm_90a");
  {
    const Program p = spec_named("causal_attention");
    const Reduced r = reduce_plan(p, *make_plan(p, p.graph, target).plan, target, Tails::kOwn);
    REQUIRE(r.program);
    for (NodeId n = 0; n < r.program->graph.num_nodes(); n++)   // positions over the extents of queries and keys
      if (const auto* i = r.program->graph.form<Iota>(n))
        CHECK(std::count_if(i->dims.begin(), i->dims.end(), [&](int64_t e) {
                return e == 1 || e == r.program->inputs[0].type.dims[1] || e == r.program->inputs[1].type.dims[1];
              }) == i->dims.rank());
  }
  {
    const Program p = spec_named("mla");
    const Reduced r = reduce_plan(p, *make_plan(p, p.graph, target).plan, target, Tails::kRagged);
    REQUIRE(r.program);
    CHECK(r.program->outputs[0].type.dims[1] < r.program->inputs[1].type.dims[1]);   // the values are a slice of the latents
  }
  {
    const Program p = spec_named("llama_layer");
    const Reduced r = reduce_plan(p, *make_plan(p, p.graph, target).plan, target, Tails::kOwn);
    REQUIRE(r.program);
    const Dims cache = r.program->inputs[5].type.dims;
    // columns of wq: groups x queries of a group x features
    CHECK(r.program->inputs[2].type.dims[1] % (cache[0] * cache[2]) == 0);
  }
}

TEST_CASE("transposed convolutions have shapes small enough to be emulated") {
  struct Case { const char *x, *w, *attrs, *y, *why; };
  const Case cases[] = {
      {"16, 32, 256, 256", "32, 16, 3, 3", R"("output_padding": 1)", "16, 16, 512, 512", "factors of factors, padding"},
      {"16, 32, 16, 32, 32", "32, 16, 3, 3, 3", R"("output_padding": 1)", "16, 16, 32, 64, 64", "windows smaller than a line of eight"},
      {"16, 32, 128, 256", "32, 16, 3, 3", R"("groups": 4)", "16, 64, 255, 511", "as many matrices as filters"},
  };
  const Target target = *find_target("sm_90a");
  for (const Case& c : cases) {
    INFO(c.why);
    const std::string text = fmt::format(
        R"({{"version": "1.0", "name": "t", "inputs": {{"x": {{"shape": [{}], "dtype": "float32"}}, "w": {{"shape": [{}], "dtype": "float32"}}}},
      "outputs": {{"y": {{"shape": [{}], "dtype": "float32"}}}},
      "nodes": [{{"op": "conv", "inputs": ["x", "w"], "output": "y", "attrs": {{"transposed": true, "stride": 2, "padding": 1, {}}}}}]}})",
        c.x, c.w, c.y, c.attrs);
    const auto p = parse_spec({"t.json", text});
    REQUIRE(p);
    const Planned full = make_plan(*p, p->graph, target);
    REQUIRE(full.plan);
    const Reduced r = reduce_plan(*p, *full.plan, target, Tails::kOwn);
    INFO(r.refusal);
    REQUIRE(r.plan);
    CHECK(too_large_to_emulate(*r.program, *r.plan).empty());
    CHECK(r.plan->kernels.size() == full.plan->kernels.size());
  }
}

TEST_CASE("of many rows that have a block each a few are emulated, and those whole, where all of them would take long") {
  std::string nodes;
  for (int i = 0; i < 30; i++)
    nodes += fmt::format(R"({}{{"op": "softmax", "inputs": ["v{}"], "output": "v{}", "attrs": {{"axis": 1}}}})", i ? ", " : "", i, i + 1);
  const auto p = parse_spec({"t.json", R"({"version": "1.0", "name": "t", "inputs": {"v0": {"shape": [96, 1024], "dtype": "float32"}},
      "outputs": {"v30": {"shape": [96, 1024], "dtype": "float32"}}, "nodes": [)" + nodes + "]}"});
  REQUIRE(p);
  const Target target = *find_target("sm_90a");
  const Planned full = make_plan(*p, p->graph, target);
  REQUIRE(full.plan);
  const auto& region = *std::get<std::shared_ptr<const RegionPlan>>(full.plan->kernels[0].body);
  REQUIRE(region.team == region.threads);   // a row each
  REQUIRE(full.plan->kernels[0].flops > 2e7);
  const Reduced r = reduce_plan(*p, *full.plan, target, Tails::kOwn);
  INFO(r.refusal);
  REQUIRE(r.plan);
  CHECK(r.program->inputs[0].type.dims == Dims{3, 1024});
  REQUIRE(r.plan->kernels.size() == full.plan->kernels.size());
  check_alike(region, *std::get<std::shared_ptr<const RegionPlan>>(r.plan->kernels[0].body));
}
