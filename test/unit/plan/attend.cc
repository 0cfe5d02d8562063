// plan_attend: which block graphs are attention, what is read from them, and what a plan promises about memory and chunks.
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
  CHECK(reason({.features = 256}) == "more than 128 features or columns");
  CHECK(reason({.dtype = "f32"}) == "operands that are not 16-bit");
  CHECK(reason({.degree = "2"}) == "an accumulator that is not rescaled once");
  CHECK(reason({.sum = "(square %p)"}) == "an accumulator of something else than the weights' sum");
  CHECK(reason({.q = "(exp %a)"}) == "an operand of a contraction that is not an input times factors");
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
      CHECK(p.chunks_per_block * p.cluster >= chunks);
      CHECK(p.chunks_per_block * (p.cluster - 1) < chunks);
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
