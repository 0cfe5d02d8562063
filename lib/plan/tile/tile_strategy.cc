// The row of tiles on warpgroups in the table of strategies.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "mirage/plan/describe.h"
#include "mirage/schedule/words.h"
#include "plan/program/params.h"
#include "plan/strategy_internal.h"
#include "plan/stream/stream_internal.h"
#include "plan/tile/tile_internal.h"

namespace mirage {

namespace {

Attempt match_tile(const Work& w) { return attempt(plan_tile(w.body, w.operands, w.results, w.target, w.rule)); }

std::vector<KernelPlan> all_tiles(const KernelPlan& of, const Work& w, size_t most) {
  return with_bodies<TilePlan>(of, tile_candidates(w.body, w.operands, w.results, w.target, w.rule).plans, most);
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
  std::string reason;
  const std::optional<TilePlan> plan = tile_like(model, w, reason);
  return plan ? attempt_of(*plan) : refusal(reason);
}

std::string tile_text(const KernelPlan& k) {
  const schedule::KernelProgram& p = *program_in(k);
  const TileChoice c = tile_choice(p, sides_of(p));
  if (c.turned)
    return fmt::format("tile: {} x {} warpgroups of 64 rows x {} columns, rows first, all of {} at once", c.row_groups, c.column_groups,
                       c.turned, p.indices[schedule::at(p.reduced()->index)].extent);
  return fmt::format("tile: {} x {} warpgroups of {} rows, chunk {} x {} stages, cluster {}, {} per SM{}", c.row_groups, c.column_groups,
                     c.group_rows, c.chunk, c.stages, c.cluster, c.blocks_per_sm,
                     c.large ? fmt::format(", large, {} share rows{}", c.sharing,
                                           c.held_tiles ? fmt::format(", blocks stay, {} rows leave at once", 8 * c.held_tiles) : "")
                             : "");
}

Tiling tile_use(const KernelPlan& k, int thrift) {
  const schedule::KernelProgram& p = *program_in(k);
  const Sides sides = sides_of(p);
  const TileChoice c = tile_choice(p, sides);
  const int64_t rows = p.parts(*sides.rows, schedule::AxisKind::kGrid) > 1 ? int64_t{c.row_groups} * c.group_rows : 0;
  Tiling out{std::max(c.column_groups * sides.columns->tile, rows), c.chunk, int64_t{c.cluster} * turns(thrift, c.stages, 2)};
  out.by_matrices = std::any_of(p.splits.begin(), p.splits.end(), [](const schedule::Split& s) { return !s.reduced && s.tile == 1; });
  return out;
}

std::vector<int> tile_weights(const schedule::KernelProgram& p) { return schedule::streamed_params(p, sides_of(p).rows->index); }

}  // namespace

std::optional<TilePlan> tile_like(const schedule::KernelProgram& model, const Work& w, std::string& reason) {
  const Sides sides = sides_of(model);
  if (!model.reduced() || !sides.rows) { reason = "no columns and rows of a product"; return std::nullopt; }
  std::optional<TilePlan> plan;
  const std::set<int> weights = weights_of(model, sides.columns->index);
  for (const StreamShape& shape : stream_shapes(w.body, w.operands, w.results, w.rule, kAnyRows, reason))
    if (!plan || weights_of(shape) == weights) plan = tile_plan(shape, w.target, reason);
  if (!plan) return std::nullopt;
  TileChoice choice = tile_choice(model, sides);
  const int64_t chunks = (plan->depth + choice.chunk - 1) / choice.chunk, each = (chunks + choice.cluster - 1) / choice.cluster;
  if (!choice.held_tiles) choice.stages = static_cast<int>(std::min<int64_t>(choice.stages, each));
  if (!divide_tile(*plan, choice, w.target, reason)) return std::nullopt;
  plan->passing = choice.held_tiles && std::any_of(model.stages.begin(), model.stages.end(), [](const schedule::Stage& s) {
                    return s.kind == schedule::Stage::Kind::kStore && s.evict_first;
                  });
  plan->cost = estimate(*plan, w.target);
  return plan;
}

KernelBody told(std::shared_ptr<const TilePlan> p) {
  return program_body(StrategyId::kTile, p, {{p->body, p->operands, p->results}}, p->rule, schedule::tile_program);
}

Strategy tile_strategy() {
  return {.repeats_rows = true,
          .match = match_tile,
          .divisions = all_tiles,
          .like = like_tile,
          .weights = tile_weights,
          .keep = schedule::keep_streamed,
          .text = tile_text,
          .print = print_program,
          .use = tile_use,
          .timeline = program_timeline};
}

}  // namespace mirage
