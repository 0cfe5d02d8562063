// The row of tiles on warpgroups in the table of strategies.
#include <algorithm>

#include <fmt/format.h>

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

Attempt like_tile(const KernelPlan& model, const Work& w) {
  const TilePlan& from = body_of<TilePlan>(model);
  std::string reason;
  std::optional<TilePlan> plan;
  for (const StreamShape& shape : stream_shapes(w.body, w.operands, w.results, w.rule, kAnyRows, reason))
    if (!plan || shape.narrow == from.narrow) plan = tile_plan(shape, w.target, reason);
  if (!plan) return refusal(reason);
  const int64_t chunks = (plan->depth + from.chunk - 1) / from.chunk, each = (chunks + from.cluster - 1) / from.cluster;
  const int stages = from.held_tiles ? from.stages : static_cast<int>(std::min<int64_t>(from.stages, each));
  const TileChoice choice{from.row_groups,  from.group_rows,    from.chunk, stages,       from.cluster,  from.blocks_per_sm,
                          from.evict_first, from.column_groups, from.large, from.sharing, from.overlaid, from.turned,
                          from.held_tiles};
  if (!divide_tile(*plan, choice, w.target, reason)) return refusal(reason);
  plan->passing = from.passing;
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
