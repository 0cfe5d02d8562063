// The row of tiles on warpgroups in the table of strategies.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "mirage/schedule/words.h"
#include "plan/strategy_internal.h"
#include "plan/stream/stream_internal.h"
#include "plan/tile/tile_internal.h"

namespace mirage {

namespace {

Attempt match_tile(const Work& w) { return attempt(plan_tile(w.body, w.operands, w.results, w.target, w.rule)); }

std::vector<KernelPlan> all_tiles(const KernelPlan& of, const Work& w) {
  std::vector<KernelPlan> out;
  for (TilePlan& p : tile_candidates(w.body, w.operands, w.results, w.target, w.rule).plans) out.push_back(with_body(of, std::move(p)));
  return out;
}

int number(int64_t n) { return static_cast<int>(std::min<int64_t>(n, 1 << 20)); }

/// The indices that are free in a product: columns, which the grid cuts first, and rows; null: a program of another kind.
struct Sides { const schedule::Split *columns = nullptr, *rows = nullptr; };
Sides sides_of(const schedule::KernelProgram& p) {
  Sides out;
  for (const schedule::Split& s : p.splits) {
    if (s.reduced) continue;
    if (!out.columns) out.columns = &s;
    else if (s.tile > 1 && !out.rows) out.rows = &s;   // of a batch, a block has one element
  }
  return out;
}

TileChoice tile_choice(const schedule::KernelProgram& p, const Sides& sides) {
  using namespace schedule;
  const Split& k = *p.reduced();
  TileChoice c;
  c.row_groups = p.parts(*sides.rows, AxisKind::kGroup);
  c.group_rows = number(sides.rows->tile);
  c.column_groups = p.parts(*sides.columns, AxisKind::kGroup);
  c.sharing = p.parts(*sides.columns, AxisKind::kCluster);
  c.chunk = number(k.tile);
  c.stages = p.slots();
  c.cluster = p.parts(k, AxisKind::kCluster);
  c.blocks_per_sm = p.per_sm;
  c.large = p.throughput;
  c.evict_first = false;
  bool swapped = false;
  for (const Stage& s : p.stages) {
    swapped |= s.kind == Stage::Kind::kCompute && s.swap;
    c.evict_first |= s.kind == Stage::Kind::kCopy && s.evict_first;
    c.overlaid |= s.kind == Stage::Kind::kFold && !s.through.empty() && p.places[at(s.through[0])].over;
    if (s.kind != Stage::Kind::kStore || p.stay == 0 || s.through.empty()) continue;
    if (const auto& box = p.places[at(s.through[0])].box; box.size() > 1) c.held_tiles = number(box[box.size() - 2] / 8);
  }
  if (!swapped) c.turned = number(sides.columns->tile);
  return c;
}

/// Which operands are weights, in a program and in a graph.
std::set<int> weights_of(const schedule::KernelProgram& p, schedule::IndexId columns) {
  using namespace schedule;
  std::set<int> out;
  for (const Stage& s : p.stages) {
    if (s.kind != Stage::Kind::kCopy || s.path != PathId::kTma) continue;
    const ValueId v = p.places[at(s.to)].value;
    const auto has = [&](IndexId i) { return std::count(p.index_of[at(v)].begin(), p.index_of[at(v)].end(), i) > 0; };
    if (has(columns) && has(p.reduced()->index)) out.insert(p.body.def_form<Input>(v)->param);
  }
  return out;
}
std::set<int> weights_of(const StreamShape& s) {
  std::set<int> out;
  for (const StreamWeight& w : s.weights) if (w.free == StreamAxis::kCol) out.insert(s.body.form<Input>(w.input)->param);
  return out;
}

Attempt like_tile(const schedule::KernelProgram& model, const Work& w) {
  const Sides sides = sides_of(model);
  if (!model.reduced() || !sides.rows) return refusal("no columns and rows of a product");
  std::string reason;
  std::optional<TilePlan> plan;
  const std::set<int> weights = weights_of(model, sides.columns->index);
  for (const StreamShape& shape : stream_shapes(w.body, w.operands, w.results, w.rule, kAnyRows, reason))
    if (!plan || weights_of(shape) == weights) plan = tile_plan(shape, w.target, reason);
  if (!plan) return refusal(reason);
  TileChoice choice = tile_choice(model, sides);
  const int64_t chunks = (plan->depth + choice.chunk - 1) / choice.chunk, each = (chunks + choice.cluster - 1) / choice.cluster;
  if (!choice.held_tiles) choice.stages = static_cast<int>(std::min<int64_t>(choice.stages, each));
  if (!divide_tile(*plan, choice, w.target, reason)) return refusal(reason);
  plan->passing = choice.held_tiles && std::any_of(model.stages.begin(), model.stages.end(), [](const schedule::Stage& s) {
                    return s.kind == schedule::Stage::Kind::kStore && s.evict_first;
                  });
  plan->cost = estimate(*plan, w.target);
  return attempt_of(*std::move(plan));
}

std::string tile_text(const KernelPlan& k) {
  const TilePlan& p = body_of<TilePlan>(k);
  if (p.turned)
    return fmt::format("tile: {} x {} warpgroups of 64 rows x {} columns, rows first, all of {} at once", p.row_groups, p.column_groups,
                       p.turned, p.depth);
  return fmt::format("tile: {} x {} warpgroups of {} rows, chunk {} x {} stages, cluster {}, {} per SM{}", p.row_groups, p.column_groups,
                     p.group_rows, p.chunk, p.stages, p.cluster, p.blocks_per_sm,
                     p.large ? fmt::format(", large, {} share rows{}", p.sharing,
                                           p.held_tiles ? fmt::format(", blocks stay, {} rows leave at once", 8 * p.held_tiles) : "")
                             : "");
}

Tiling tile_use(const KernelPlan& k, int thrift) {
  const TilePlan& p = body_of<TilePlan>(k);
  const int64_t rows = p.row_blocks > 1 ? p.block_rows() : 0;
  Tiling out{std::max<int64_t>(p.block_columns(), rows), p.chunk, int64_t{p.cluster} * turns(thrift, p.stages, 2)};
  out.by_matrices = p.batch > 1;
  return out;
}

}  // namespace

Strategy tile_strategy() {
  return {.repeats_rows = true,
          .match = match_tile,
          .divisions = all_tiles,
          .like = like_tile,
          .text = tile_text,
          .print = [](const KernelPlan& k) { return fmt::format("tile {}\n", k.name) + print(body_of<TilePlan>(k)); },
          .use = tile_use,
          .program = schedule::tile_program,
          .timeline = tile_timeline};
}

}  // namespace mirage
