// plan_attend: which block graphs are attention, what is read from them, and what a plan promises about memory and chunks.
#include <cmath>
#include <catch2/catch.hpp>
#include <fmt/format.h>
#include "mirage/plan/attend.h"
#include "mirage/spec/text.h"

using namespace mirage;

namespace {

struct Case {
  int64_t batches = 2, queries = 256, keys = 4096;
  int features = 64, columns = 64;
  std::string dtype = "f16";
  std::string q = "%a", k = "%b", v = "%c", scores = "%x", after = "div %r %l", sum = "%p";
  std::string degree = "1";
};

/// The plan of an attention graph with operands q (b, m, d), k (b, d, n) stored as (b, n, d), v (b, n, e); %x are the scores, %r and %l the accumulators.
AttendCandidates plan(const Case& c, const std::string& target = "sm_90a") {
  const int64_t tile = std::min<int64_t>(c.queries, 64);
  const std::string text = fmt::format(
      "block grid({},{},1) loop({}) {{\n"
      "  %a = input 0 grid(0,1,-) : {}[1,{},{}]  %b = input 1 grid(0,-,-) loop(2) : {}[1,{},64]  %c = input 2 grid(0,-,-) loop(1) : {}[1,64,{}]\n"
      "  %x = matmul {} {}\n  %s = {}\n  %m = running (reduce.max 2 %s)\n  %p = exp (sub %s %m)\n"
      "  %l = accum.sum rescaled {} (reduce.sum 2 {}) %m\n  %r = accum.sum rescaled {} (matmul %p {}) %m\n  output 0 ({}) grid(0,1,-) : {}\n}}\n",
      c.batches, (c.queries + tile - 1) / tile, (c.keys + 63) / 64, c.dtype, tile, c.features, c.dtype, c.features, c.dtype, c.columns, c.q, c.k, c.scores == "%x" ? "mul %x 1" : c.scores, c.degree, c.sum, c.degree, c.v, c.after, c.dtype);
  auto g = parse_graph(text);
  if (!g) UNSCOPED_INFO(text << g.errors()[0].text);
  REQUIRE(g);
  const DType t = *parse_dtype(c.dtype);
  const std::vector<Access> operands = {{0, 0, {c.batches, c.queries, c.features}, {c.queries * c.features, c.features, 1}, t},
                                        {1, 0, {c.batches, c.features, c.keys}, {c.keys * c.features, 1, c.features}, t},
                                        {2, 0, {c.batches, c.keys, c.columns}, {c.keys * c.columns, c.columns, 1}, t}};
  const std::vector<Access> results = {{3, 0, {c.batches, c.queries, c.columns}, {c.queries * c.columns, c.columns, 1}, t}};
  return attend_candidates(*g, operands, results, *find_target(target));
}

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
  const auto reason = [](const Case& c, const std::string& target = "sm_90a") { const AttendCandidates a = plan(c, target); CHECK(a.plans.empty()); return a.reason; };
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
  for (const AttendPlan& p : plan({.batches = 32, .queries = 5}).plans) {   // blocks that meet without a cluster have a slot for four columns of each of a warp's 16 rows
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
  const AttendShape negative = plan({.scores = "mul %x -0.125"}).plans.front().shape;   // the maximum of negated scores is not the negated maximum
  CHECK_FALSE(negative.plain);
  CHECK(negative.scale.empty());
  const AttendShape normed = plan({.q = "(div %a (sqrt (div (reduce.sum 2 (square %a)) 64)))", .scores = "mul %x 0.125"}).plans.front().shape;
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
  for (const Case& c : {Case{}, Case{.batches = 16}, Case{.batches = 3, .queries = 100, .keys = 333}, Case{.batches = 64, .queries = 1, .features = 128, .columns = 128},
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

/// A variant that was measured on an H200 (cold, microseconds; docs/planning.md): rings per warp, groups along queries and keys, keys per chunk, cluster, stages, blocks per multiprocessor; clusters that meet.
struct Measured { bool warp_rings; int query_groups, key_groups, chunk, cluster, stages, blocks_per_sm; double us; int meets = 1; };

bool is(const AttendPlan& p, const Measured& m) {
  return p.warp_rings == m.warp_rings && p.query_groups == m.query_groups && p.key_groups == m.key_groups && p.chunk == m.chunk && p.cluster == m.cluster && p.stages == m.stages && p.blocks_per_sm == m.blocks_per_sm && p.meets == m.meets;
}
/// Whether the model's first is within 5 % of the best measured (the issue asks this of one of its first three).
bool ranks(const Case& c, const std::vector<Measured>& table) {
  const std::vector<AttendPlan> plans = plan(c).plans;
  double best = 1e9;
  for (const Measured& m : table) best = std::min(best, m.us);
  for (size_t i = 0; i < plans.size() && i < 1; i++)
    for (const Measured& m : table) if (is(plans[i], m) && m.us <= 1.05 * best) return true;
  for (size_t i = 0; i < plans.size() && i < 3; i++) UNSCOPED_INFO(print(plans[i]) << plans[i].cost.us);
  return false;
}

}  // namespace

TEST_CASE("the cost model ranks measured variants") {
  const std::string rms_q = "(div %a (sqrt (div (reduce.sum 2 (square %a)) 64)))", rms_v = "(div %c (sqrt (div (reduce.sum 2 (square %c)) 64)))";
  CHECK(ranks({.batches = 2}, {{false, 1, 2, 128, 8, 4, 1, 6.16}, {false, 1, 2, 64, 8, 8, 1, 6.19}, {false, 1, 4, 64, 8, 8, 1, 6.44}, {false, 1, 1, 128, 8, 4, 1, 6.50}}));
  CHECK(ranks({.batches = 16}, {{false, 1, 4, 64, 2, 8, 1, 13.75}, {false, 1, 2, 128, 2, 4, 1, 14.39}, {false, 1, 2, 128, 2, 6, 1, 15.00}, {false, 1, 2, 64, 2, 8, 1, 15.68}, {false, 1, 1, 128, 2, 4, 1, 17.60}}));
  CHECK(ranks({.batches = 32}, {{false, 1, 4, 64, 1, 8, 1, 22.65}, {false, 1, 2, 128, 1, 4, 1, 23.22}, {false, 1, 2, 128, 1, 6, 1, 23.08}, {false, 1, 1, 128, 2, 2, 2, 23.67}, {false, 2, 1, 128, 2, 4, 1, 26.29}}));
  CHECK(ranks({.batches = 2, .q = rms_q, .v = rms_v}, {{false, 1, 2, 128, 8, 4, 1, 6.97}, {false, 1, 2, 64, 8, 8, 1, 7.72}, {false, 1, 1, 128, 8, 4, 1, 7.52}}));
  CHECK(ranks({.batches = 16, .q = rms_q, .v = rms_v}, {{false, 1, 2, 128, 2, 4, 1, 17.29}, {false, 1, 2, 128, 2, 6, 1, 17.53}, {false, 1, 2, 64, 2, 8, 1, 19.28}, {false, 1, 1, 128, 2, 3, 1, 20.71}}));
  CHECK(ranks({.batches = 32, .q = rms_q, .v = rms_v}, {{false, 1, 2, 128, 1, 4, 1, 27.88}, {false, 2, 1, 128, 2, 3, 1, 28.52}, {false, 2, 1, 128, 2, 4, 1, 28.81}, {false, 2, 1, 128, 2, 2, 1, 32.06}, {false, 2, 1, 64, 2, 3, 1, 33.58}}));
  CHECK(ranks({.batches = 1, .queries = 1024}, {{false, 1, 1, 128, 8, 2, 2, 8.55}, {false, 1, 1, 64, 8, 4, 2, 8.97}, {false, 1, 1, 64, 8, 3, 2, 8.88}, {false, 1, 4, 64, 4, 8, 1, 8.96}, {false, 1, 2, 128, 4, 4, 1, 9.31}, {false, 2, 2, 64, 8, 8, 1, 9.57}}));
  CHECK(std::abs(plan({.batches = 1, .queries = 1024}).plans.front().cost.us - 8.55) < 0.4);   // sixteen clusters of eight: one finds no multiprocessors of its own
  CHECK(ranks({.batches = 64, .queries = 1, .features = 128, .columns = 128},
              {{true, 1, 4, 64, 2, 1, 1, 31.69}, {true, 1, 8, 32, 2, 1, 1, 32.07}, {true, 1, 4, 32, 2, 1, 1, 32.08}, {true, 1, 4, 32, 2, 2, 1, 31.91}, {false, 1, 1, 64, 2, 4, 1, 32.85}, {false, 1, 1, 128, 2, 3, 1, 32.74}}));
  CHECK(ranks({.batches = 32, .queries = 16}, {{true, 1, 4, 64, 4, 1, 2, 10.77}, {true, 1, 4, 32, 4, 2, 2, 11.12}, {true, 1, 8, 32, 4, 1, 2, 11.33}, {true, 1, 8, 64, 2, 1, 1, 10.86}, {true, 1, 4, 64, 2, 2, 1, 10.82},
                                               {true, 1, 4, 32, 4, 3, 2, 13.15}, {true, 1, 4, 64, 2, 3, 1, 12.06}, {false, 1, 1, 128, 4, 3, 2, 13.85}, {false, 1, 2, 128, 2, 4, 1, 14.92},
                                               {true, 1, 8, 32, 1, 1, 1, 10.39, 4}, {true, 1, 8, 64, 1, 1, 1, 10.60, 4}, {true, 1, 4, 64, 1, 1, 1, 11.09, 4}, {true, 1, 4, 32, 1, 2, 1, 10.98, 4}}));   // blocks that meet: another run, by what 4 x 64 in clusters of four took in both
  CHECK(ranks({.batches = 32, .queries = 1024, .keys = 1024, .scores = "mul %x 0.125"}, {{false, 1, 1, 128, 1, 2, 2, 23.39}, {false, 1, 1, 128, 1, 3, 2, 23.85}, {false, 2, 1, 64, 1, 6, 2, 25.66}, {false, 2, 1, 128, 1, 4, 1, 27.31},
                                                                                         {false, 1, 2, 64, 1, 6, 2, 26.97}, {false, 1, 2, 128, 1, 4, 1, 30.47}, {false, 1, 4, 64, 1, 8, 1, 34.92}}));
  CHECK(ranks({.batches = 32, .queries = 1024, .keys = 1024, .features = 128, .columns = 128},
              {{false, 2, 1, 128, 1, 2, 1, 38.66}, {false, 2, 1, 128, 1, 3, 1, 39.44}, {false, 2, 1, 64, 1, 4, 1, 41.04}, {false, 1, 1, 64, 1, 2, 2, 39.79}, {false, 1, 2, 64, 1, 4, 1, 47.71}}));
}
