// Tile plans: what is taken and what is refused, places in shared memory, and the cost model's order of variants that were measured on an
// H200.
#include "mirage/plan/bound.h"
#include "plan/tile/tile_plan.h"

#include <catch2/catch.hpp>

#include "mirage/plan/strategy.h"
#include "unit/plan/linear.h"
#include "unit/plan/plan_in.h"

using namespace mirage;
using namespace mirage::test;

namespace {

const DType kHalf = DType::kF16;
Target target() { return *find_target("sm_90a"); }
Access row_major(Type t) { return {0, 0, t.dims, row_major_strides(t.dims), t.dtype}; }

using Case = LinearCase;
TilePlanned plan(const Case& c) { return plan_tile(c.body, c.operands, c.results, target(), {c.operands[0].dtype, false}); }
Case linear(int64_t m, int64_t k, int64_t n, int weights = 1, bool rms = false, bool gain = false, int64_t rank = 0, DType t = kHalf) {
  return linear_case({m, k, n, weights, rms, gain, rank, t});
}

/// Pairs that differ by more than 8 % must stand in the right order, predictions lie within 15 % or 0.7 us, and the model's favourite among
/// the variants is within 5 % of the best.
void check_order(const MeasuredLinear<TileChoice>& table) {
  const Case c = linear_case(table.of);
  const auto& variants = table.rows;
  std::string reason;
  const auto shape = match_stream(c.body, c.operands, c.results, {kHalf, false}, kAnyRows, reason);
  REQUIRE(shape);
  const auto matched = tile_plan(*shape, target(), reason);
  REQUIRE(matched);
  std::vector<double> model;
  for (const auto& [choice, us] : variants) {
    TilePlan p = *matched;
    INFO(choice.row_groups << " warpgroups of " << choice.group_rows << ", " << choice.stages << " stages of " << choice.chunk << ": "
                           << reason);
    REQUIRE(divide_tile(p, choice, target(), reason));
    model.push_back(estimate(p, target()).us);
  }
  size_t favourite = 0, best = 0;
  for (size_t i = 0; i < variants.size(); i++) {
    if (model[i] < model[favourite]) favourite = i;
    if (variants[i].second < variants[best].second) best = i;
    CAPTURE(i, model[i], variants[i].second);
    CHECK(model[i] == Approx(variants[i].second).epsilon(0.15).margin(0.7));
    for (size_t j = 0; j < variants.size(); j++)
      if (variants[i].second * 1.08 < variants[j].second) { CAPTURE(j, model[j], variants[j].second); CHECK(model[i] < model[j]); }
  }
  CHECK(variants[favourite].second <= 1.05 * variants[best].second);
}

}  // namespace

TEST_CASE("weights with more than 16 rows run on warpgroups, with everything that rides along") {
  const TilePlanned p = plan(linear(64, 512, 1024, 2, true, false, 16));
  REQUIRE(p.plan);
  CHECK(p.plan->small.size() == 1);   // x is copied once for three products
  CHECK(p.plan->small[0].input >= 0);
  CHECK(!p.plan->computes());
  CHECK(p.plan->statistics.size() == 1);
  CHECK(p.plan->products.size() == 1);
  CHECK(p.plan->smem_bytes <= target().smem_per_block);
  CHECK(p.plan->received_at % 16 == 0);
}

TEST_CASE("computed rows are TF32 beside float16 weights and bfloat16 beside bfloat16") {
  const TilePlanned p = plan(linear(64, 512, 1024, 1, false, true)), q = plan(linear(64, 512, 1024, 1, false, true, 0, DType::kBF16));
  REQUIRE(p.plan);
  REQUIRE(q.plan);
  CHECK(p.plan->small[0].input < 0);
  CHECK(p.plan->small[0].type == ContractType::kTF32);
  CHECK(p.plan->computed_bytes == int64_t{p.plan->block_rows()} * p.plan->chunk * 4);
  CHECK(q.plan->small[0].type == ContractType::kBF16);
}

TEST_CASE("a low rank is added up beside wgmma, as narrow as it is, unless it is in TF32") {
  for (const int64_t rank : {16, 24, 64}) {
    const TilePlanned p = plan(linear(64, 2048, 1024, 1, false, false, rank));   // a reduction that does not fit shared memory at once
    REQUIRE(p.plan);
    REQUIRE(p.plan->weights.size() == 2);
    const StreamWeight &w = p.plan->weights[1], &wide = p.plan->weights[0];
    CHECK(w.padded == (rank == 24 ? 32 : rank));
    CHECK(w.packed == (rank != 24));
    CHECK(wide.padded == 64);
    CHECK(!wide.packed);
    CHECK(tile_rank(*p.plan, 1));
    CHECK(!tile_rank(*p.plan, 0));
    // what the copies bring and the barrier waits for
    CHECK(p.plan->weight_bytes == 2 * p.plan->chunk * (64 * p.plan->column_groups + w.padded));
    CHECK(w.offset % 1024 == 0);
  }
  const TilePlanned gained = plan(linear(64, 512, 1024, 1, false, true, 16));   // x times a gain beside float16: TF32
  REQUIRE(gained.plan);
  CHECK(gained.plan->weights[1].padded == 64);
  CHECK(!tile_rank(*gained.plan, 1));
}

TEST_CASE("what the tile strategy leaves to others is refused with a reason") {
  CHECK(plan(linear(16, 512, 1024)).reason == "no more than 16 rows");
  CHECK(!plan(linear(64, 512, 1024, 1, false, false, 0, DType::kF32)).plan);
  Target old = *find_target("sm_80");
  const Case c = linear(64, 512, 1024);
  CHECK(plan_tile(c.body, c.operands, c.results, old, {kHalf, false}).reason == "no warpgroup instructions");
}

TEST_CASE("any number of rows has a plan whose blocks cover it") {
  for (int64_t m : {17, 33, 45, 64, 100, 128, 200, 256, 384, 1000}) {
    const TilePlanned p = plan(linear(m, 512, 1024));
    CAPTURE(m);
    REQUIRE(p.plan);
    CHECK(p.plan->row_blocks * p.plan->block_rows() >= m);
    CHECK((p.plan->row_blocks - 1) * p.plan->block_rows() < m);
    CHECK(p.plan->tail_tiles() * p.plan->cluster >= p.plan->tiles());
    CHECK(p.plan->tail_tiles() * (p.plan->cluster - 1) < p.plan->tiles());   // every block of a cluster finishes something
  }
}

TEST_CASE("a smaller shape is planned as the model plan was") {
  const Case big = linear(64, 4096, 4096, 2), small = linear(48, 896, 128, 2);
  KernelPlan model;
  const Target t = target();
  model.body = told(plan(big).plan);
  const Attempt like = plan_like(model, {small.body, small.operands, small.results, t, {kHalf, false}});
  REQUIRE(like.body);
  const auto a = **plan_in<TilePlan>(model.body);
  const auto b = **plan_in<TilePlan>(*like.body);
  CHECK(a.group_rows == b.group_rows);
  CHECK(a.stages == b.stages);
  CHECK(a.cluster == b.cluster);
  CHECK(b.rows == 48);
}

namespace {

/// x w over a batch; w the same for all if `one_weight`.
Case batched(int64_t batch, int64_t m, int64_t k, int64_t n, bool one_weight = false) {
  Builder b(Level::kBlock, {{n / 32, 1, batch}, k / 16});
  Case c{Graph(),
         {row_major({kHalf, {batch, m, k}}), row_major({kHalf, {one_weight ? 1 : batch, k, n}})}, {row_major({kHalf, {batch, m, n}})}};
  const ValueId x = b.add_input(0, {kHalf, {1, m, 16}}, {{-1, -1, 0}, 2}),
                w = b.add_input(1, {kHalf, {1, 16, 32}}, {{2, -1, static_cast<int8_t>(one_weight ? -1 : 0)}, 1});
  b.add_output(0, b.add(Accum{}, {b.add(MatMul{}, {x, w})}), kHalf, {{2, -1, 0}, -1});
  c.body = std::move(b).finish();
  return c;
}

}  // namespace

TEST_CASE("products beside each other lie along the second axis of the grid") {
  const TilePlanned p = plan(batched(6, 64, 512, 256)), q = plan(batched(6, 64, 512, 256, true));
  REQUIRE(p.plan);
  CHECK(p.plan->batch == 6);
  CHECK(p.plan->rows == 64);
  CHECK(p.plan->weights[0].slice == 512 * 256);
  REQUIRE(q.plan);
  CHECK(q.plan->weights[0].slice == 0);
}

TEST_CASE("blocks that share rows come in whole clusters, and only in large plans") {
  std::string reason;
  const Case c = linear(1024, 512, 64 * 5);
  const auto shape = match_stream(c.body, c.operands, c.results, {kHalf, false}, kAnyRows, reason);
  REQUIRE(shape);
  TilePlan p = *tile_plan(*shape, target(), reason), q = p, r = p;
  REQUIRE(divide_tile(p, {1, 256, 64, 3, 1, 1, true, 2, true, 2}, target(), reason));
  CHECK(p.column_blocks() == 3);
  CHECK(p.blocks() == 4 * 4);
  CHECK(!p.evict_first);
  CHECK(!divide_tile(q, {1, 128, 64, 3, 1, 1, true, 2, false, 2}, target(), reason));
  CHECK(reason == "rows are shared by large plans");
  CHECK(!divide_tile(r, {1, 112, 64, 3, 1, 1, true, 2, true, 4}, target(), reason));   // 28 rows each: a swizzled tile repeats after eight
}

// docs/measurements/tiles.md: emitted kernels, one H200, cold.
TEST_CASE("no plan has wgmma with more accumulators than ptxas lets a thread have at its launch") {
  std::string reason;
  const Case c = linear(2048, 256, 2048);   // four warpgroups of 160 rows: 80 accumulators and 26 more where 640 threads leave 96 (C7602)
  const auto shape = match_stream(c.body, c.operands, c.results, {kHalf, false}, kAnyRows, reason);
  REQUIRE(shape);
  const auto matched = tile_plan(*shape, target(), reason);
  REQUIRE(matched);
  int taken = 0, refused = 0;
  for (int groups : {1, 2, 4})
    for (int rows = 16; rows <= 256; rows += 16) {
      TilePlan p = *matched;
      TileChoice choice{1, rows, 64, 3, 1, 1};
      choice.column_groups = groups;
      choice.large = true;
      if (!divide_tile(p, choice, target(), reason)) { refused++; continue; }
      taken++;
      INFO(groups << " warpgroups of " << rows << " rows, " << p.threads() << " threads");
      CHECK(p.group_rows / 2 + 26 <= 65536 / ((p.threads() + 127) / 128 * 128) / 8 * 8);
    }
  CHECK(taken > 10);
  CHECK(refused > 0);
}

TEST_CASE(
    "blocks that divide the reduction of a large tile: uneven shares, and sums received over the ring where there is no room beside it") {
  std::string reason;
  const Case c = linear(200, 2048, 3072);
  const auto shape = match_stream(c.body, c.operands, c.results, {kHalf, false}, kAnyRows, reason);
  REQUIRE(shape);
  const TilePlan matched = *tile_plan(*shape, target(), reason);
  TilePlan p = matched, q = matched, r = matched, s = matched;
  REQUIRE(divide_tile(p, {1, 208, 64, 4, 4, 1, true, 2, true}, target(), reason));
  CHECK(p.tiles() == 26);
  CHECK(p.tail_tiles() == 7);   // 7, 7, 7 and 5
  CHECK(p.overlaid);
  CHECK(p.received_at == 0);
  CHECK(p.ranks_at >= p.stages * p.stage_bytes);
  CHECK(p.ranks_at >= 3 * p.share_bytes());
  CHECK(staged_at(p, p.body.outputs()[0]) == 3 * p.share_bytes());   // behind what is received
  REQUIRE(divide_tile(q, {1, 112, 64, 6, 2, 1, true, 2, true}, target(), reason));
  CHECK(!q.overlaid);
  CHECK(q.received_at == q.stages * q.stage_bytes);
  CHECK(staged_at(q, q.body.outputs()[0]) == 0);
  // ten tiles of eight rows, two each: nothing is left for the last three
  CHECK(!divide_tile(r, {1, 80, 64, 3, 8, 1, true, 2, true}, target(), reason));
  CHECK(!divide_tile(s, {1, 112, 64, 4, 2, 1, true, 2, true, 2}, target(), reason));
  CHECK(reason == "blocks that share rows and divide the reduction");
}

TEST_CASE("blocks that stay: where there are more tiles than multiprocessors, of a short reduction too") {
  std::string reason;
  const TilePlanned p = plan(linear(4096, 4096, 4096)), q = plan(linear(8192, 64, 8192)), few = plan(linear(512, 4096, 1024));
  REQUIRE((p.plan && q.plan && few.plan));
  for (const TilePlan* t : {&*p.plan, &*q.plan}) {
    CHECK(t->held_tiles > 0);
    CHECK(t->launched() <= int64_t{target().num_sms} * t->blocks_per_sm);
    CHECK(t->launched() % t->sharing == 0);
    const int64_t at = staged_at(*t, t->body.outputs()[0]);
    CHECK(at == t->stages * t->stage_bytes);
    CHECK(at + 2 * t->staged_bytes() <= t->barriers_at);
    CHECK(t->smem_bytes <= target().smem_per_block);
  }
  CHECK(q.plan->passing);    // 134 MB
  CHECK(!p.plan->passing);   // 34 MB
  CHECK(few.plan->held_tiles == 0);
  const Case odd = linear(4096, 4096, 4100);   // results whose lines are no multiples of 16 bytes
  const auto shape = match_stream(odd.body, odd.operands, odd.results, {kHalf, false}, kAnyRows, reason);
  if (!shape) return;
  auto matched = tile_plan(*shape, target(), reason);
  REQUIRE(matched);
  CHECK(!divide_tile(*matched, staying(1, 256, 2, 4, 1, 8), target(), reason));
}

TEST_CASE("the model's order of tiles is the measured one") {
  for (const MeasuredLinear<TileChoice>& table : measured_tiles()) check_order(table);
}
TEST_CASE("a low rank beside a short reduction: rows first") {
  CHECK(plan(linear(256, 256, 4096, 1, false, false, 16)).plan->turned == 128);   // the best of the others 5.41
  const TilePlanned p = plan(linear(128, 256, 4096, 1, false, false, 16)), q = plan(linear(128, 256, 4096, 1, true, false, 16)),
                    r = plan(linear(128, 4096, 4096, 1, false, false, 16));
  REQUIRE(p.plan);
  CHECK(p.plan->turned == 64);
  CHECK(p.plan->smem_bytes <= target().smem_per_block);
  REQUIRE(q.plan);
  CHECK(q.plan->turned == 0);   // statistics of its rows
  REQUIRE(r.plan);
  CHECK(r.plan->turned == 0);   // a reduction that does not fit
}
