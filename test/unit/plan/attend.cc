// plan_attend: which block graphs are attention, what is read from them, and what a plan promises about memory and chunks.
#include <cmath>
#include <catch2/catch.hpp>
#include "unit/plan/attention.h"

using namespace mirage;
using namespace mirage::test;

namespace {

using Case = AttentionCase;
AttendCandidates plan(const Case& c, const std::string& target = "sm_90a") { return attention_plans(c, target); }

}  // namespace

TEST_CASE("attention is found, whatever stands around it") {
  CHECK(!plan({}).plans.empty());
  CHECK(!plan({.dtype = "bf16"}).plans.empty());
  CHECK(!plan({.queries = 100, .keys = 1000}).plans.empty());
  CHECK(!plan({.queries = 1, .features = 128, .columns = 128}).plans.empty());
  CHECK(!plan({.scores = "mul %x 0.125", .after = "add (div %r %l) 1"}).plans.empty());
  CHECK(!plan({.features = 32, .columns = 96}).plans.empty());
}

TEST_CASE("what is not attention, or too large, is refused with a reason") {
  const auto reason = [](const Case& c, const std::string& target = "sm_90a") {
    const AttendCandidates a = plan(c, target);
    CHECK(a.plans.empty());
    return a.reason;
  };
  CHECK(reason({}, "sm_80") == "warpgroup attention is written for sm_90a");
  CHECK(reason({.features = 512, .k = "(div %b 2)", .scores = "mul %x (reduce.max 1 %b)"}) != "");   // per-key values of many features
  CHECK(reason({.features = 2048}) == "more than 128 features or columns, and no division that fits");
  CHECK(reason({.dtype = "f32"}) == "operands that are not 16-bit");
  CHECK(reason({.degree = "2"}) == "an accumulator that is not rescaled once");
  CHECK(reason({.sum = "(square %p)"}) == "an accumulator of something else than the weights' sum");
  CHECK(reason({.q = "(exp %a)"}) == "an operand of a contraction that is not an input times factors");
}

TEST_CASE("many features: whole rows of some keys per block, and clusters that meet are all resident") {
  const Target target = *find_target("sm_90a");
  const AttendCandidates all = plan({.batches = 1, .queries = 16, .keys = 4096, .features = 576, .columns = 512});
  REQUIRE(!all.plans.empty());
  for (const AttendPlan& p : all.plans) {
    CHECK(p.wide);
    CHECK(p.smem_bytes <= target.smem_per_block);
    CHECK(p.chunks_per_block * p.chunk * p.cluster * p.meets >= 4096);
    CHECK((p.meets == 1 || p.blocks() <= target.num_sms));
    CHECK((p.slot_bytes > 0) == (p.meets > 1));
    CHECK(p.value_boxes == 8);   // an input of its own
  }
  CHECK(all.plans.front().meets > 1);
  CHECK(plan({.batches = 64, .queries = 16, .keys = 4096, .features = 576, .columns = 512}).plans.front().meets == 1);
  // blocks that meet without a cluster have a slot for four columns of each of a warp's 16 rows
  for (const AttendPlan& p : plan({.batches = 32, .queries = 5}).plans) {
    if (p.meets == 1 || p.cluster > 1) continue;
    CHECK(p.warp_rings);
    CHECK(p.blocks() <= target.num_sms);
    CHECK(p.slot_bytes == 32 * (p.meets - 1) * 16 * (64 / 4) * 16);
  }
  CHECK(!plan({.queries = 100, .keys = 500, .features = 136, .columns = 264, .dtype = "bf16"}).plans.empty());
}

TEST_CASE("positive factors of the scores become their scale, others stay") {
  const AttendShape scaled = plan({.scores = "mul %x 0.125"}).plans.front().shape;
  CHECK(scaled.plain);
  CHECK(scaled.scale.size() == 1);
  // the maximum of negated scores is not the negated maximum
  const AttendShape negative = plan({.scores = "mul %x -0.125"}).plans.front().shape;
  CHECK_FALSE(negative.plain);
  CHECK(negative.scale.empty());
  const AttendShape normed =
      plan({.q = "(div %a (sqrt (div (reduce.sum 2 (square %a)) 64)))", .scores = "mul %x 0.125"}).plans.front().shape;
  CHECK(normed.plain);
  CHECK(normed.scale.size() == 2);
  const AttendShape unsure = plan({.q = "(div %a (reduce.sum 2 %a))"}).plans.front().shape;   // a sum may be negative
  CHECK_FALSE(unsure.plain);
  CHECK(unsure.q.factors.size() == 1);
}

TEST_CASE("float16 weights must stay in range") {
  const std::string mean = "(div (reduce.sum 2 (square %c)) 64)";
  const AttendPlan normed = plan({.v = "(div %c (sqrt " + mean + "))"}).plans.front();
  CHECK(normed.shape.parts_bounded);
  CHECK(normed.value_known.size() == 1);
  CHECK(normed.narrow_parts);
  CHECK(plan({.v = "(mul %c 1000000)"}).reason == "factors of values that could exceed the range of float16");
  CHECK(plan({.v = "(div %c " + mean + ")"}).reason == "factors of values that could exceed the range of float16");
  CHECK(!plan({.dtype = "bf16", .v = "(mul %c 1000000)"}).plans.empty());
}

TEST_CASE("every plan fits, covers all keys and leaves nobody without work") {
  const Target t = *find_target("sm_90a");
  for (const Case& c : {Case{}, Case{.batches = 16}, Case{.batches = 3, .queries = 100, .keys = 333},
                        Case{.batches = 64, .queries = 1, .features = 128, .columns = 128},
                        Case{.q = "(div %a (sqrt (reduce.sum 2 (square %a))))", .v = "(div %c (sqrt (reduce.sum 2 (square %c))))"}}) {
    const AttendCandidates all = plan(c);
    REQUIRE(!all.plans.empty());
    for (const AttendPlan& p : all.plans) {
      const int64_t chunks = (c.keys + p.chunk - 1) / p.chunk;
      CHECK(p.smem_bytes <= t.smem_per_block);
      CHECK(p.chunks_per_block * p.cluster * p.meets >= chunks);
      CHECK(p.chunks_per_block * (p.cluster * p.meets - 1) < chunks);
      CHECK(p.chunks_per_block >= p.key_groups);
      CHECK((p.warp_rings || p.producer || p.stages >= p.chunks_per_block));
      CHECK((!p.producer || p.stages % p.key_groups == 0));   // a stage stays with one warpgroup, else a phase could be missed
      CHECK((!p.warp_rings || c.queries <= 16));
      CHECK(p.ring_at % 1024 == 0);
      CHECK((p.chunk * p.features * 2) % 1024 == 0);
      CHECK(p.rows * p.cluster >= std::min<int64_t>(c.queries, p.group_rows() * p.query_groups));
      CHECK((p.cluster == 1 || p.blocks() <= t.num_sms * p.blocks_per_sm));
      CHECK(p.threads <= 1024);
      if (p.grow) CHECK(p.grow * 128 * p.query_groups * p.key_groups + p.shrink * 128 <= 65536);
    }
    for (size_t i = 1; i < all.plans.size(); i++) CHECK(all.plans[i - 1].cost.us <= all.plans[i].cost.us);
  }
}

namespace {

/// Whether the model's first is within 5 % of the best measured (the issue asks this of one of its first three).
bool ranks(const AttentionTable& t) {
  const auto& [c, table] = t;
  const std::vector<AttendPlan> plans = plan(c).plans;
  double best = 1e9;
  for (const MeasuredAttention& m : table) best = std::min(best, m.us);
  for (size_t i = 0; i < plans.size() && i < 1; i++)
    for (const MeasuredAttention& m : table) if (is_division(plans[i], m) && m.us <= 1.05 * best) return true;
  for (size_t i = 0; i < plans.size() && i < 3; i++) UNSCOPED_INFO(plans[i].chunk << " keys of a chunk: " << plans[i].cost.us);
  return false;
}

}  // namespace

TEST_CASE("the cost model ranks measured variants") {
  for (const AttentionTable& table : measured_attentions()) CHECK(ranks(table));
  // sixteen clusters of eight: one finds no multiprocessors of its own
  CHECK(std::abs(plan({.batches = 1, .queries = 1024}).plans.front().cost.us - 8.55) < 0.4);
}
