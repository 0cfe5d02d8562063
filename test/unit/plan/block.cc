// Block plans: shared memory never holds two living tiles in one place, every hazard has its barrier, loads are aligned as they claim,
// layouts are optimal.
#include "plan/block/block_plan.h"

#include <catch2/catch.hpp>
#include <map>

#include "mirage/support/hash.h"
#include "plan/block/block_internal.h"
#include "plan/block/layout.h"

using namespace mirage;

namespace {

Access row_major(Type t) { return {0, 0, t.dims, row_major_strides(t.dims), t.dtype == DType::kReal ? DType::kF32 : t.dtype}; }
int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Case { Graph body; std::vector<Access> operands, results; };

/// (x g) w / rms(x), with a low-rank side product and a residual by choice: loops, reductions, fills and contractions behind the loop.
Case linear_case(Rng& rng) {
  const int64_t m = 1 + static_cast<int64_t>(rng.below(40)), k = 16 + static_cast<int64_t>(rng.below(600)),
                n = 8 + static_cast<int64_t>(rng.below(300)), rank = 4 + static_cast<int64_t>(rng.below(30));
  const int64_t tn = std::min<int64_t>(n, 8 << rng.below(4)), tk = std::min<int64_t>(k, 16 << rng.below(4));
  const DType t = rng.below(3) == 0 ? DType::kF32 : rng.below(2) ? DType::kF16 : DType::kBF16;
  Builder b(Level::kBlock, {{ceil_div(n, tn), 1, 1}, ceil_div(k, tk)});
  const ValueId x = b.add_input(0, {t, {m, tk}}, {{-1, -1, -1}, 1}), w = b.add_input(1, {t, {tk, tn}}, {{1, -1, -1}, 0});
  Case c{Graph(), {row_major({t, {m, k}}), row_major({t, {k, n}})}, {row_major({t, {m, n}})}};
  int params = 2;
  ValueId left = x;
  if (rng.below(2)) {
    left = b.map(MapFn::kMul, {x, b.add_input(params++, {t, {tk}}, {{-1, -1, -1}, 0})});
    c.operands.push_back(row_major({t, {k}}));
  }
  ValueId y = b.add(Accum{}, {b.add(MatMul{}, {left, w})});
  if (rng.below(2)) {
    const ValueId a = b.add_input(params++, {t, {tk, rank}}, {{-1, -1, -1}, 0}),
                  bb = b.add_input(params++, {t, {rank, tn}}, {{1, -1, -1}, -1});
    c.operands.push_back(row_major({t, {k, rank}}));
    c.operands.push_back(row_major({t, {rank, n}}));
    y = b.map(MapFn::kAdd, {y, b.add(MatMul{}, {b.add(Accum{}, {b.add(MatMul{}, {x, a})}), bb})});
  }
  if (rng.below(2))
    y = b.map(MapFn::kDiv, {y, b.map(MapFn::kSqrt, {b.add(Accum{}, {b.add(Reduce{ReduceFn::kSum, 1, 0}, {b.map(MapFn::kSquare, {x})})})})});
  if (rng.below(2)) {
    y = b.map(MapFn::kAdd, {b.add_input(params++, {t, {m, tn}}, {{1, -1, -1}, -1}), y});
    c.operands.push_back(row_major({t, {m, n}}));
  }
  b.add_output(0, y, t, {{1, -1, -1}, -1});
  c.body = std::move(b).finish();
  return c;
}

/// What a step reads, by walking the maps above its operands independently of the planner.
void leaves(const BlockPlan& p, ValueId v, std::vector<int>& out) {
  const int t = p.tile_of[static_cast<size_t>(v)];
  if (t >= 0) { out.push_back(t); return; }
  for (ValueId o : p.body.def(v).operands) leaves(p, o, out);
}

/// Runs the steps over a map of bytes: a byte that was written (read) since the last barrier must not be read (written) by another step.
void check_hazards(const BlockPlan& p) {
  for (Phase phase : {Phase::kInvariant, Phase::kLoop, Phase::kAfter}) {
    std::vector<bool> read(static_cast<size_t>(p.smem_bytes) / 128 + 1), written(read.size());
    auto any = [&](const std::vector<bool>& set, int tile) {
      const SmemTile& t = p.tiles[static_cast<size_t>(tile)];
      for (int64_t b = t.offset / 128; b < (t.offset + t.bytes) / 128; b++) if (set[static_cast<size_t>(b)]) return true;
      return false;
    };
    auto mark = [&](std::vector<bool>& set, int tile) {
      const SmemTile& t = p.tiles[static_cast<size_t>(tile)];
      for (int64_t b = t.offset / 128; b < (t.offset + t.bytes) / 128; b++) set[static_cast<size_t>(b)] = true;
    };
    for (const Step& s : p.steps) {
      if (s.phase != phase) continue;
      if (s.barrier_before) { read.assign(read.size(), false); written.assign(written.size(), false); }
      std::vector<int> in;
      if (s.kind == Step::Kind::kContract) in = {s.x, s.y};
      else if (s.kind == Step::Kind::kReduce) leaves(p, p.body.node(s.node).operands[0], in);
      else leaves(p, s.value, in);
      for (int t : in) CHECK_FALSE(any(written, t));
      if (s.tile >= 0 && !s.accumulates) { CHECK_FALSE(any(read, s.tile)); CHECK_FALSE(any(written, s.tile)); }
      for (int t : in) mark(read, t);
      if (s.tile >= 0 && !s.accumulates) mark(written, s.tile);
    }
  }
}

void check_memory(const BlockPlan& p, const Target& target) {
  CHECK(p.smem_bytes <= target.smem_per_block);
  for (size_t i = 0; i < p.tiles.size(); i++)
    for (size_t j = 0; j < i; j++) {
      const SmemTile &a = p.tiles[i], &b = p.tiles[j];
      if (a.bytes == 0 || b.bytes == 0 || a.last < b.first || b.last < a.first) continue;
      CHECK((a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset));
    }
}

void check_loads(const BlockPlan& p) {
  for (const Load& l : p.loads) {
    if (l.unit == 0) continue;
    const Input& in = *p.body.form<Input>(l.input);
    const Access& a = p.operands[static_cast<size_t>(in.param)];
    const SmemTile& t = p.tiles[static_cast<size_t>(l.tile)];
    const Dims& tile = p.body.dims(p.body.node(l.input).first_value);
    const int size = dtype_bytes(a.dtype), line_dim = dim_of(tile, t.col ? 1 : 2);
    CHECK(a.offset * size % l.unit == 0);
    for (int d = 0; d < tile.rank(); d++) {
      bool split = in.part.loop == d;
      for (int8_t g : in.part.grid) split |= g == d;
      if (split && d == line_dim) CHECK(tile[d] * a.strides[d] * size % l.unit == 0);
      if (d != line_dim && (split || tile[d] > 1)) CHECK(a.strides[d] * size % l.unit == 0);
    }
    CHECK(t.ld * size % 16 == 0);
  }
}

}  // namespace

TEST_CASE("random linear block graphs: memory, barriers and loads of every plan", "[block]") {
  int planned = 0;
  for (uint64_t seed = 1; seed <= 60; seed++) {
    Rng rng(seed);
    Case c = linear_case(rng);
    for (const char* name : {"sm_80", "sm_90a"}) {
      const Target target = *find_target(name);
      for (BlockChoice choice :
           {BlockChoice{128, 3, 1, false}, BlockChoice{256, 2, 1, true}, BlockChoice{256, 3, 2, true}, BlockChoice{128, 2, 2, false}}) {
        if (choice.cluster > 1 && !target.has_cluster) continue;
        INFO("seed " << seed << " threads " << choice.threads << " stages " << choice.stages << " cluster " << choice.cluster << " divided "
                     << choice.divide_warps << "\n"
                     << print(c.body));
        std::string reason;
        auto p = plan_block_as(c.body, c.operands, c.results, target, choice, reason);
        if (!p) { CHECK_FALSE(reason.empty()); continue; }
        planned++;
        check_memory(*p, target);
        check_hazards(*p);
        check_loads(*p);
      }
    }
  }
  CHECK(planned > 200);
}

TEST_CASE("accumulators stay in registers and memory is reused behind the loop", "[block]") {
  Builder b(Level::kBlock, {{4, 1, 1}, 8});
  const ValueId x = b.add_input(0, {DType::kF16, {16, 128}}, {{-1, -1, -1}, 1}),
                w = b.add_input(1, {DType::kF16, {128, 64}}, {{1, -1, -1}, 0});
  b.add_output(0, b.add(Accum{}, {b.add(MatMul{}, {x, w})}), DType::kF16, {{1, -1, -1}, -1});
  std::string reason;
  auto p = plan_block_as(std::move(b).finish(), {row_major({DType::kF16, {16, 1024}}), row_major({DType::kF16, {1024, 256}})},
                         {row_major({DType::kF16, {16, 256}})}, *find_target("sm_90a"), {256, 4, 1, false}, reason);
  REQUIRE(p);
  REQUIRE(p->steps.size() == 2);
  CHECK(p->steps[0].accumulates);
  // 64 columns take the 16-row side, 16 rows the other: no padding either way, the longer one wins
  CHECK(p->steps[0].swap);
  CHECK(p->steps[0].wi * p->steps[0].wj * p->steps[0].wk == 8);
  const SmemTile& parts = p->tiles[static_cast<size_t>(p->steps[0].tile)];
  CHECK(parts.offset + parts.bytes <= p->smem_bytes);
  CHECK(p->smem_bytes < 4 * (16 * 136 + 128 * 72) * 2 + 4096);   // the accumulators lie over the finished ring
  for (const Load& l : p->loads) CHECK(l.unit == 16);
}

TEST_CASE("a program that the planner cannot run is refused with a reason", "[block]") {
  Builder b(Level::kBlock, {{2, 1, 1}, 1});
  const ValueId x = b.add_input(0, {DType::kF16, {8, 64}}, {{0, -1, -1}, -1});
  b.add_output(0, b.add(Slice{1, 0, 8, 1}, {x}), DType::kF16, {{0, -1, -1}, -1});
  BlockPlanned p =
      plan_block(std::move(b).finish(), {row_major({DType::kF16, {16, 64}})}, {row_major({DType::kF16, {16, 8}})}, *find_target("sm_90a"));
  CHECK_FALSE(p.plan);
  CHECK(p.reason.find("slice") != std::string::npos);
}

TEST_CASE("the layout program: conflicts cost, capacity binds, the optimum is found", "[layout]") {
  const std::vector<LayoutOption> tile{
      {LayoutKind::kPlain, 64, 8192, 700}, {LayoutKind::kPadded, 72, 9216, 0}, {LayoutKind::kSwizzled, 64, 8192, 50}};
  LayoutAssignment free = assign_layouts({tile, tile}, 1 << 20);
  REQUIRE(free.optimal);
  CHECK(free.option == std::vector<size_t>{1, 1});
  LayoutAssignment tight = assign_layouts({tile, tile}, 8192 + 9216);   // one of the two may be padded
  REQUIRE(tight.optimal);
  CHECK(tight.cost == 50);
  LayoutAssignment tighter = assign_layouts({tile, tile}, 2 * 8192);
  CHECK(tighter.cost == 100);
  CHECK_FALSE(assign_layouts({tile, tile}, 10000).optimal);
  Rng rng(7);
  for (int round = 0; round < 30; round++) {   // against exhaustive search
    std::vector<std::vector<LayoutOption>> options;
    for (uint64_t t = 0; t < 1 + rng.below(4); t++) {
      options.emplace_back();
      for (uint64_t k = 0; k < 1 + rng.below(3); k++)
        options.back().push_back(
            {LayoutKind::kPlain, 0, static_cast<int64_t>(128 * (1 + rng.below(50))), static_cast<int64_t>(rng.below(1000))});
    }
    const int64_t capacity = static_cast<int64_t>(128 * (1 + rng.below(150)));
    int64_t best = -1;
    std::vector<size_t> pick(options.size());
    for (bool more = true; more;) {
      int64_t bytes = 0, cost = 0;
      for (size_t t = 0; t < options.size(); t++) { bytes += options[t][pick[t]].bytes; cost += options[t][pick[t]].cost; }
      if (bytes <= capacity && (best < 0 || cost < best)) best = cost;
      more = false;
      for (size_t t = 0; t < options.size() && !more; t++) { if (++pick[t] < options[t].size()) more = true; else pick[t] = 0; }
    }
    LayoutAssignment a = assign_layouts(options, capacity);
    CHECK(a.optimal == (best >= 0));
    if (best >= 0) CHECK(a.cost == best);
  }
}
