// The row of attention in the table of strategies.
#include <algorithm>

#include <fmt/format.h>

#include "mirage/plan/describe.h"
#include "mirage/schedule/words.h"
#include "mirage/support/round.h"
#include "plan/attend/attend_internal.h"
#include "plan/attend/factored.h"
#include "plan/program/params.h"
#include "plan/strategy_internal.h"

namespace mirage {

namespace {

Attempt match_attention(const Work& w) { return attempt(plan_attend(w.body, w.operands, w.results, w.target)); }

/// The program's plan has set workspace aside for its own kernel's slots: a division that wants more would write behind them.
std::vector<KernelPlan> all_attentions(const KernelPlan& of, const Work& w, size_t most) {
  const int64_t own = derived_in(of) ? derived_in(of)->slots_bytes : 0;
  std::vector<AttendPlan> plans = attend_candidates(w.body, w.operands, w.results, w.target).plans;
  std::erase_if(plans, [&](const AttendPlan& p) { return p.slot_bytes > own; });
  return with_bodies<AttendPlan>(of, plans, most);
}

Attempt like_attention(const schedule::KernelProgram& model, const Work& w) {
  if (!model.reduced()) return refusal("nothing is added up in a loop");
  return attempt(plan_attend_as(attend_choice(model), w.body, w.operands, w.results, w.target));
}

std::string attend_text(const KernelPlan& k) {
  const AttendChoice c = attend_choice(*program_in(k));
  if (c.wide) return fmt::format("attend: whole rows, chunk {} x {} stages, cluster {}, {} meet", c.chunk, c.stages, c.cluster, c.meets);
  const std::string meets = c.meets > 1 ? fmt::format(", {} clusters meet", c.meets) : "";
  return fmt::format("attend: {} queries x {} keys{}, chunk {} x {} stages, cluster {}, {} per SM", c.query_groups, c.key_groups,
                     c.warp_rings ? " warps" : " groups", c.chunk, c.stages, c.cluster, c.blocks_per_sm) +
         meets;
}

/// Its blocks have one matrix of a batch and tiles of their own, whatever the body says; whole tiles of queries are computed.
Tiling attend_use(const KernelPlan& k, int thrift) {
  const schedule::KernelProgram& p = *program_in(k);
  const AttendChoice c = attend_choice(p);
  const int64_t tile = int64_t{c.warp_rings || c.wide ? 16 : 64} * c.query_groups;
  Tiling out;
  out.grid_tile = thrift == 0 ? tile : 0;
  out.loop_tile = c.chunk;
  out.by_matrices = true;
  for (const schedule::Split& s : p.splits)   // queries; of a batch a block has one element, and warps divide features
    if (!s.reduced && s.tile > 1 && p.parts(s, schedule::AxisKind::kWarp) == 1) out.tiled_extent = p.indices[schedule::at(s.index)].extent;
  out.tiled_extent = std::max<int64_t>(out.tiled_extent, 1);
  out.padding = static_cast<double>(round_up(out.tiled_extent, tile)) / static_cast<double>(out.tiled_extent);
  const int64_t parts = int64_t{c.cluster} * c.meets, each_block = ceil_div(p.chunks(*p.reduced()), parts);
  const int64_t ring = c.warp_rings ? int64_t{c.key_groups} * std::max<int64_t>(c.stages, turns(thrift, c.stages, 2))
                       : c.producer ? std::max<int64_t>(turns(thrift, c.stages, 2), c.stages + c.key_groups)
                                    : each_block;
  const int64_t each = c.wide ? turns(thrift, c.stages, 1) : ring;
  out.iterations = parts * std::min<int64_t>(each, each_block);
  return out;
}

std::vector<int> attend_weights(const schedule::KernelProgram& p) { return schedule::streamed_params(p); }

}  // namespace

KernelBody told(std::shared_ptr<const AttendPlan> p) {
  return program_body(StrategyId::kAttend, p, {{p->body, p->operands, p->results}}, {}, schedule::attend_program);
}

AttendChoice attend_choice(const schedule::KernelProgram& p) {
  using namespace schedule;
  const Split& keys = *p.reduced();
  AttendChoice c;
  c.chunk = static_cast<int>(std::min<int64_t>(keys.tile, 1 << 20));
  c.stages = p.slots();
  c.cluster = p.parts(keys, AxisKind::kCluster);
  c.meets = p.parts(keys, AxisKind::kGrid);
  c.blocks_per_sm = p.per_sm;
  for (const Split& s : p.splits) {
    if (s.reduced) continue;
    c.wide |= p.parts(s, AxisKind::kWarp) > 1;   // that divide the features
    c.query_groups = std::max(c.query_groups, p.parts(s, AxisKind::kGroup));
  }
  c.warp_rings = p.parts(keys, AxisKind::kWarp) > 1;
  c.key_groups = std::max(p.parts(keys, AxisKind::kWarp), p.parts(keys, AxisKind::kGroup));
  c.turns = std::any_of(p.roles.begin(), p.roles.end(), [](const Role& r) { return r.turns; });
  // Whoever asks for keys, in a role that is not the last one's: warps of its own, helpers among them, or a thread of those who work.
  const auto does = [&](const Role& r, const auto& what) {
    return std::any_of(r.items.begin(), r.items.end(), [&](const Item& i) {
      return (i.stage >= 0 && what(p.stages[at(i.stage)])) ||
             std::any_of(i.body.begin(), i.body.end(), [&](StageId s) { return what(p.stages[at(s)]); });
    });
  };
  for (const Role& r : p.roles) {
    if (&r == &p.roles.back() || r.warps == 0) continue;
    const bool copies = does(r, [](const Stage& s) { return s.kind == Stage::Kind::kCopy && s.path == PathId::kTma; });
    const bool helps = does(r, [](const Stage& s) { return s.kind != Stage::Kind::kCopy || s.path != PathId::kTma; });
    c.producer |= copies;
    if (helps) c.helpers = r.warps - copies;
  }
  return c;
}

Strategy attend_strategy() {
  return {.reads_positions = true,
          .reads_parts = true,
          .match = match_attention,
          .divisions = all_attentions,
          .like = like_attention,
          .matched = schedule::with_factors_on_operands,
          .weights = attend_weights,
          .text = attend_text,
          .print = print_program,
          .use = attend_use,
          .timeline = program_timeline};
}

}  // namespace mirage
