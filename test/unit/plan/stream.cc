// Stream plans: what is recognised and what is refused, places in shared memory, and the cost model's order of variants that were measured
// on an H200.
#include "plan/stream/stream_plan.h"

#include <set>

#include <catch2/catch.hpp>

#include "unit/plan/linear.h"

using namespace mirage;
using namespace mirage::test;

namespace {

const DType kHalf = DType::kF16;
Target target() { return *find_target("sm_90a"); }
Access row_major(Type t) { return {0, 0, t.dims, row_major_strides(t.dims), t.dtype == DType::kReal ? DType::kF32 : t.dtype}; }

using Case = LinearCase;
StreamPlanned plan(const Case& c, ContractRule rule = {kHalf, false}) { return plan_stream(c.body, c.operands, c.results, target(), rule); }

Case linear(int64_t m, int64_t k, int64_t n, int weights = 1, bool rms = false, int64_t rank = 0, DType t = kHalf) {
  return linear_case({m, k, n, weights, rms, false, rank, t});
}

/// The variants with the model's times, in the order measured. Pairs that differ by more than 6 % must stand in the right order, and the
/// model's favourite must be within 5 % of the best.
void check_order(const MeasuredLinear<StreamChoice>& table) {
  const Case c = linear_case(table.of);
  const auto& variants = table.rows;
  std::string reason;
  const auto matched = match_stream(c.body, c.operands, c.results, {kHalf, false}, kMaxStreamRows, reason);
  REQUIRE(matched);
  std::vector<double> model;
  for (const auto& [choice, us] : variants) {
    StreamPlan p = stream_plan(*matched);
    INFO(choice.warps << " warps, " << choice.stages << " stages, chunk " << choice.chunk << ", cluster " << choice.cluster << ": "
                      << reason);
    REQUIRE(divide_stream(p, choice, target(), reason));
    model.push_back(estimate(p, target()).us);
  }
  size_t favourite = 0, best = 0;
  for (size_t i = 0; i < variants.size(); i++) {
    if (model[i] < model[favourite]) favourite = i;
    if (variants[i].second < variants[best].second) best = i;
    CAPTURE(i, model[i], variants[i].second);
    CHECK(model[i] == Approx(variants[i].second).epsilon(0.12).margin(0.7));
    for (size_t j = 0; j < variants.size(); j++)
      if (variants[i].second * 1.06 < variants[j].second) { CAPTURE(j, model[j], variants[j].second); CHECK(model[i] < model[j]); }
  }
  CHECK(variants[favourite].second <= 1.05 * variants[best].second);
}

}  // namespace

TEST_CASE("weights that stream are recognised with everything that rides along") {
  const StreamPlanned p = plan(linear(8, 512, 1024, 2, true, 16));
  REQUIRE(p.plan);
  CHECK(p.plan->rows == 8);
  CHECK(p.plan->cols == 1024);
  CHECK(p.plan->depth == 512);
  CHECK(p.plan->weights.size() == 3);
  CHECK(p.plan->contractions.size() == 3);
  CHECK(p.plan->statistics.size() == 1);
  CHECK(p.plan->products.size() == 1);
  CHECK(p.plan->sums.size() == 3);   // silu and the product keep them apart
  CHECK(p.plan->steps == 2);
  const StreamPlanned q = plan(linear(8, 512, 1024, 1, false, 16));
  REQUIRE(q.plan);
  CHECK(q.plan->sums.size() == 1);   // x w + (x a) b is one sum
  CHECK(q.plan->sums[0].contractions.size() == 1);
  CHECK(q.plan->sums[0].products.size() == 1);
}

TEST_CASE("a low-rank sum may have gains along its rank, and one constant; nothing that is not linear") {
  const auto lora = [](auto&& between) {
    const DType t = kHalf;
    Builder b(Level::kBlock, {{32, 1, 1}, 32});
    Case c{Graph(),
           {row_major({t, {8, 512}}), row_major({t, {512, 1024}}), row_major({t, {512, 24}}), row_major({t, {24, 1024}}),
            row_major({t, {24}}), row_major({DType::kReal, {1, 24}})}, {row_major({t, {8, 1024}})}};
    const ValueId x = b.add_input(0, {t, {8, 16}}, {{-1, -1, -1}, 1}), w = b.add_input(1, {t, {16, 32}}, {{1, -1, -1}, 0}),
                  a = b.add_input(2, {t, {16, 24}}, {{-1, -1, -1}, 0});
    const ValueId f = b.add_input(3, {t, {24, 32}}, {{1, -1, -1}, -1}), g = b.add_input(4, {t, {24}}, {{-1, -1, -1}, -1}),
                  h = b.add_input(5, {DType::kF32, {1, 24}}, {{-1, -1, -1}, -1});
    const ValueId rank = between(b, b.add(Accum{}, {b.add(MatMul{}, {x, a})}), g, h);
    b.add_output(0, b.map(MapFn::kAdd, {b.add(Accum{}, {b.add(MatMul{}, {x, w})}), b.add(MatMul{}, {rank, f})}), t, {{1, -1, -1}, -1});
    c.body = std::move(b).finish();
    return plan(c);
  };
  const auto both = [](Builder& b, ValueId r, ValueId g, ValueId h) { return b.map(MapFn::kMul, {h, b.map(MapFn::kMul, {r, g})}); };
  const StreamPlanned p = lora([&](Builder& b, ValueId r, ValueId g, ValueId h) {
    return b.map(MapFn::kNeg, {b.map(MapFn::kMul, {both(b, r, g, h), b.constant(0.3)})});
  });
  REQUIRE(p.plan);
  REQUIRE(p.plan->products.size() == 1);
  CHECK(p.plan->products[0].scale == -0.3);
  CHECK(p.plan->products[0].gains.size() == 2);
  const auto refused = [&](auto&& between) {
    return lora([&](Builder& b, ValueId r, ValueId g, ValueId h) { return between(b, both(b, r, g, h)); }).plan == nullptr;
  };
  // their product would be rounded
  CHECK(refused([](Builder& b, ValueId r) { return b.map(MapFn::kMul, {b.map(MapFn::kMul, {r, b.constant(0.3)}), b.constant(0.7)}); }));
  CHECK(refused([](Builder& b, ValueId r) { return b.map(MapFn::kMul, {r, r}); }));
  CHECK(refused([](Builder& b, ValueId r) { return b.map(MapFn::kSilu, {r}); }));
  CHECK(lora([](Builder& b, ValueId r, ValueId g, ValueId h) {
          return b.map(MapFn::kMul, {b.map(MapFn::kAdd, {r, g}), h});
        }).plan == nullptr);
}

TEST_CASE("the plan does not depend on the body's tiles") {
  const Case c = linear(8, 1024, 1024);
  Builder b(Level::kBlock, {{8, 2, 1}, 2});   // rows on the grid, too
  const ValueId x = b.add_input(0, {kHalf, {4, 512}}, {{-1, 0, -1}, 1}), w = b.add_input(1, {kHalf, {512, 128}}, {{1, -1, -1}, 0});
  b.add_output(0, b.add(Accum{}, {b.add(MatMul{}, {x, w})}), kHalf, {{1, 0, -1}, -1});
  const StreamPlanned p = plan(c), q = plan({std::move(b).finish(), c.operands, c.results});
  REQUIRE(p.plan);
  REQUIRE(q.plan);
  CHECK(p.cost.us == q.cost.us);
}

TEST_CASE("two weights whose products never meet share the columns that the grid splits") {
  Builder b(Level::kBlock, {{16, 1, 1}, 8});
  const ValueId x = b.add_input(0, {kHalf, {4, 64}}, {{-1, -1, -1}, 1});
  for (int i = 0; i < 2; i++)
    b.add_output(i, b.add(Accum{}, {b.add(MatMul{}, {x, b.add_input(1 + i, {kHalf, {64, 64}}, {{1, -1, -1}, 0})})}), kHalf,
                 {{1, -1, -1}, -1});
  const Type w{kHalf, {512, 1024}}, y{kHalf, {4, 1024}};
  const StreamPlanned p =
      plan({std::move(b).finish(), {row_major({kHalf, {4, 512}}), row_major(w), row_major(w)}, {row_major(y), row_major(y)}});
  REQUIRE(p.plan);
  CHECK(p.plan->weights.size() == 2);
}

TEST_CASE("what does not stream is refused with a reason") {
  CHECK(plan(linear(128, 512, 1024)).reason == "more than 64 rows");
  CHECK(plan(linear(8, 512, 1024, 1, false, 0, DType::kF32)).reason == "no product of a stored 16-bit tensor in the loop");
  CHECK(!plan(linear(8, 512, 1024, 1, false, 72)).plan);   // rank over 64
  Case odd = linear(8, 512, 1024, 1, false, 24);
  odd.operands[2].strides = {27, 1};     // a low rank comes by tensor copies only
  CHECK(plan(odd).reason == "a weight whose lines are no multiples of 16 bytes");
  Case across = linear(8, 512, 1024);
  across.operands[0].strides = {1, 8};
  CHECK(plan(across).reason == "a small operand without lines along the reduction");
  Case runs = linear(8, 512, 1024);   // runs are followed by whole vectors
  runs.operands[0].run = 64;
  runs.operands[0].offset = 4;
  CHECK(plan(runs).reason == "a small operand in runs that would be read in pieces");
  CHECK(!plan_stream(odd.body, odd.operands, odd.results, *find_target("sm_80")).plan);
}

TEST_CASE("lines that begin anywhere stream, but not by tensor copies and not straight to registers") {
  Case padded = linear(8, 512, 4096);
  padded.operands[1].strides = {4100, 1};
  Case moved = linear(8, 512, 4096);
  moved.operands[0].offset = 4;
  const StreamPlanned even = plan(linear(8, 512, 4096)), lines = plan(padded), rows = plan(moved);
  REQUIRE((even.plan && lines.plan && rows.plan));
  CHECK(lines.plan->weights[0].uneven);
  CHECK_FALSE(rows.plan->weights[0].uneven);
  CHECK(stream_row_unit(*rows.plan, rows.plan->body.inputs()[0]) == 4);
  CHECK(stream_row_unit(*lines.plan, lines.plan->body.inputs()[0]) == 8);
  CHECK(even.cost.us < rows.cost.us);
  CHECK(rows.cost.us < lines.cost.us);
  for (const StreamPlan& p : stream_candidates(padded.body, padded.operands, padded.results, *find_target("sm_90a")).plans)
    CHECK_FALSE(p.registers);
}

TEST_CASE("computed operands of float16 products are float16 scaled by row, of bfloat16 bfloat16") {
  for (DType t : {kHalf, DType::kBF16}) {
    Builder b(Level::kBlock, {{16, 1, 1}, 8});
    const ValueId x = b.add_input(0, {t, {4, 64}}, {{-1, -1, -1}, 1}), g = b.add_input(1, {t, {64}}, {{-1, -1, -1}, 0}),
                  w = b.add_input(2, {t, {64, 64}}, {{1, -1, -1}, 0});
    b.add_output(0, b.add(Accum{}, {b.add(MatMul{}, {b.map(MapFn::kMul, {x, g}), w})}), t, {{1, -1, -1}, -1});
    const StreamPlanned p = plan({std::move(b).finish(),
                                  {row_major({t, {4, 512}}), row_major({t, {512}}), row_major({t, {512, 1024}})},
                                  {row_major({t, {4, 1024}})}}, {t, false});
    REQUIRE(p.plan);
    CHECK(p.plan->contractions[0].type == (t == kHalf ? ContractType::kF16 : ContractType::kBF16));
    CHECK(p.plan->contractions[0].scaled == (t == kHalf));
  }
}

TEST_CASE("places in shared memory do not overlap and fit") {
  for (const Case& c : {linear(16, 4096, 6144, 1, true), linear(3, 1000 / 16 * 16, 96, 2, true, 64), linear(32, 256, 64)}) {
    std::string reason;
    const auto matched = match_stream(c.body, c.operands, c.results, {kHalf, false}, kMaxStreamRows, reason);
    REQUIRE(matched);
    int fit = 0;
    for (int warps : {1, 4, 8}) for (int stages : {1, 2, 3}) for (int cluster : {1, 2, 4}) {
      StreamPlan p = stream_plan(*matched);
      if (!divide_stream(p, {warps, stages, 64, cluster, 1, true}, target(), reason)) continue;
      fit++;
      const int64_t items = p.row_tiles * 128 * 16 * static_cast<int64_t>(p.sums.size());
      CHECK(p.ring_bytes % 1024 == 0);
      CHECK(p.ring_bytes >= p.stages * p.stage_bytes);
      CHECK(p.ring_bytes >= items);
      CHECK(p.received_at >= p.warps * p.ring_bytes);
      CHECK(p.statistics_at >= p.received_at + (cluster > 1 ? items : 0));
      CHECK(p.barriers_at % 8 == 0);
      CHECK(p.smem_bytes <= target().smem_per_block);
    }
    CHECK(fit > 0);
  }
}

TEST_CASE("blocks of fewer columns are divisions where each has a multiprocessor") {
  const auto narrow = [](const Case& c) {   // widths of rings below 64 columns
    std::set<int> widths;
    for (const StreamPlan& p : stream_candidates(c.body, c.operands, c.results, target(), {kHalf, false}).plans) {
      if (p.registers || p.columns == 64) continue;
      widths.insert(p.columns);
      CHECK(p.column_blocks() * p.cluster <= target().num_sms);
      CHECK((p.cluster <= 2 || p.cols <= p.columns));
      CHECK(p.depth / p.chunk % (p.warps * p.cluster) == 0);
      CHECK(p.weights[0].padded == p.columns);
      CHECK(p.ring_bytes >= p.row_tiles * int64_t{p.columns} * 32);
    }
    return widths;
  };
  Case lines = linear(8, 1536, 1024);
  CHECK(narrow(lines) == std::set<int>{32});            // 64 bytes of a line at least
  lines.operands[1].strides = {1, 1536};                // lines along the reduction
  CHECK(narrow(lines) == std::set<int>{16, 32});
  CHECK(narrow(linear(8, 1536, 4096)).empty());         // 64 columns leave no multiprocessor without work
  CHECK(narrow(linear(8, 1536, 1024, 1, false, 16)).empty());   // second factors have 64 columns
  const Case few = linear(24, 4096, 32);                        // 64 would have no use for half of theirs: of any cluster
  CHECK(narrow(few) == std::set<int>{32});
  const StreamPlanned best = plan(few);
  REQUIRE(best.plan);
  CHECK(best.plan->columns == 32);
  CHECK(best.plan->cluster == 8);
}

TEST_CASE("the model's order of streams is the measured one") {
  for (const MeasuredLinear<StreamChoice>& table : measured_streams()) check_order(table);
}

TEST_CASE("whole rows are reduced before the loop") {
  Builder b(Level::kBlock, {{16, 1, 1}, 8});   // ((x - sum x) / max x) w
  const ValueId whole = b.add_input(0, {kHalf, {4, 512}}, {{-1, -1, -1}, -1}), x = b.add_input(0, {kHalf, {4, 64}}, {{-1, -1, -1}, 1}),
                w = b.add_input(1, {kHalf, {64, 64}}, {{1, -1, -1}, 0});
  const ValueId sum = b.add(Reduce{ReduceFn::kSum, 1, 0}, {whole}),
                most = b.add(Reduce{ReduceFn::kMax, 1, 0}, {b.map(MapFn::kSub, {whole, sum})});
  const ValueId left = b.map(MapFn::kDiv, {b.map(MapFn::kSub, {x, sum}), most});
  b.add_output(0, b.add(Accum{}, {b.add(MatMul{}, {left, w})}), kHalf, {{1, -1, -1}, -1});
  const StreamPlanned p =
      plan({std::move(b).finish(), {row_major({kHalf, {4, 512}}), row_major({kHalf, {512, 1024}})}, {row_major({kHalf, {4, 1024}})}});
  REQUIRE(p.plan);
  REQUIRE(p.plan->early.size() == 2);
  CHECK(p.plan->early[0].result == sum);
  CHECK(p.plan->early[1].fn == ReduceFn::kMax);
  CHECK(p.plan->contractions[0].scaled);
  // Rows that are held become the operand once, in shared memory of its own; a block's share of the reduction is whole units of 256.
  const StreamCandidates all = stream_candidates(p.plan->body, p.plan->operands, p.plan->results, target(), {kHalf, false});
  int prepared = 0;
  for (const StreamPlan& s : all.plans) {
    if (s.prepared) {
      prepared++;
      CHECK(s.hold_early);
      CHECK(s.warps * s.chunk % 256 == 0);
      CHECK(512 % (s.warps * s.chunk * s.cluster) == 0);
      CHECK(s.prepared_at >= s.barriers_at + 8 * (s.warps * s.stages + 1));
      CHECK(s.prepared_pitch >= 512 / s.cluster * 2);
      CHECK(s.prepared_at + 8 * (s.prepared_pitch + 4) <= s.smem_bytes);
      CHECK(s.smem_bytes <= target().smem_per_block);
    } else {
      CHECK(s.prepared_at == 0);
    }
  }
  CHECK(prepared > 0);
}
