// The row of attention in the table of strategies.
#include <algorithm>

#include <fmt/format.h>

#include "mirage/schedule/words.h"
#include "plan/attend/attend_internal.h"
#include "plan/attend/factored.h"
#include "plan/strategy_internal.h"

namespace mirage {

namespace {

Attempt match_attention(const Work& w) { return attempt(plan_attend(w.body, w.operands, w.results, w.target)); }

/// The program's plan has set workspace aside for its own kernel's slots: a division that wants more would write behind them.
std::vector<KernelPlan> all_attentions(const KernelPlan& of, const Work& w) {
  const auto* own = std::get_if<std::shared_ptr<const AttendPlan>>(&of.body);
  std::vector<KernelPlan> out;
  for (AttendPlan& p : attend_candidates(w.body, w.operands, w.results, w.target).plans)
    if (p.slot_bytes <= (own ? (*own)->slot_bytes : 0)) out.push_back(with_body(of, std::move(p)));
  return out;
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

Attempt like_attention(const schedule::KernelProgram& model, const Work& w) {
  if (!model.reduced()) return refusal("nothing is added up in a loop");
  return attempt(plan_attend_as(attend_choice(model), w.body, w.operands, w.results, w.target));
}

std::string attend_text(const KernelPlan& k) {
  const AttendPlan& p = body_of<AttendPlan>(k);
  if (p.wide) return fmt::format("attend: whole rows, chunk {} x {} stages, cluster {}, {} meet", p.chunk, p.stages, p.cluster, p.meets);
  const std::string meets = p.meets > 1 ? fmt::format(", {} clusters meet", p.meets) : "";
  return fmt::format("attend: {} queries x {} keys{}, chunk {} x {} stages, cluster {}, {} per SM", p.query_groups, p.key_groups,
                     p.warp_rings ? " warps" : " groups", p.chunk, p.stages, p.cluster, p.blocks_per_sm) +
         meets;
}

/// Its blocks have one matrix of a batch and tiles of their own, whatever the body says; whole tiles of queries are computed.
Tiling attend_use(const KernelPlan& k, int thrift) {
  const AttendPlan& p = body_of<AttendPlan>(k);
  Tiling out;
  out.grid_tile = thrift == 0 ? int64_t{p.group_rows()} * p.query_groups : 0;
  out.loop_tile = p.chunk;
  out.by_matrices = true;
  out.tiled_extent = p.shape.queries;
  out.padding = static_cast<double>(p.tiles() * p.group_rows() * p.query_groups) / static_cast<double>(p.shape.queries);
  const int64_t ring = p.warp_rings ? int64_t{p.key_groups} * std::max<int64_t>(p.stages, turns(thrift, p.stages, 2))
                       : p.producer ? std::max<int64_t>(turns(thrift, p.stages, 2), p.stages + p.key_groups)
                                    : p.chunks_per_block;
  const int64_t each = p.wide ? turns(thrift, p.stages, 1) : ring;
  out.iterations = int64_t{p.cluster} * p.meets * std::min<int64_t>(each, p.chunks_per_block);
  return out;
}

}  // namespace

Strategy attend_strategy() {
  return {.reads_positions = true,
          .reads_parts = true,
          .match = match_attention,
          .divisions = all_attentions,
          .like = like_attention,
          .matched = schedule::with_factors_on_operands,
          .text = attend_text,
          .print = [](const KernelPlan& k) { return fmt::format("attend {}\n", k.name) + print(body_of<AttendPlan>(k)); },
          .use = attend_use,
          .program = schedule::attend_program,
          .timeline = attend_timeline};
}

}  // namespace mirage
