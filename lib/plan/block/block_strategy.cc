// The row of generic block kernels in the table of strategies.
#include <algorithm>

#include <fmt/format.h>

#include "mirage/plan/block_plan.h"
#include "plan/block/block_internal.h"
#include "plan/strategy_internal.h"

namespace mirage {

namespace {

Attempt match_block(const Work& w) { return attempt(plan_block(w.body, w.operands, w.results, w.target, w.rule)); }

std::vector<KernelPlan> block_divisions(const KernelPlan& of, const Work& w) {
  std::vector<KernelPlan> out;
  std::string reason;
  for (bool chain : {true, false})
    for (const BlockChoice& choice : block_choices(w.body, w.target, chain))
      if (const auto p = plan_block_as(w.body, w.operands, w.results, w.target, choice, reason, w.rule))
        out.push_back(with_body<BlockPlan>(of, *p));
  return out;
}

/// Tile by tile the kind of layout that the model's tile has, where this one can have it.
std::vector<LayoutOption> like_layouts(const BlockPlan& from, const BlockPlan& plan) {
  std::vector<LayoutOption> out;
  const std::vector<std::vector<LayoutOption>> options = layout_options(plan);
  for (size_t t = 0; t < options.size(); t++) {
    LayoutOption chosen = options[t].front();
    for (const LayoutOption& o : options[t]) {
      if (t >= from.tiles.size()) break;
      const SmemTile& m = from.tiles[t];
      const int64_t per = 16 / dtype_bytes(m.dtype), length = ((m.col ? m.extent[1] : m.extent[2]) + per - 1) / per * per;
      const LayoutKind kind = m.swizzle ? LayoutKind::kSwizzled : m.ld > length ? LayoutKind::kPadded : LayoutKind::kPlain;
      if (o.kind == kind) chosen = o;
    }
    out.push_back(chosen);
  }
  return out;
}

Attempt like_block(const KernelPlan& model, const Work& w) {
  const BlockPlan& from = body_of<BlockPlan>(model);
  const int64_t loop = w.body.launch().loop, each = (loop + from.cluster - 1) / from.cluster;
  if (from.cluster > loop) return refusal("fewer iterations than blocks of a cluster");
  const int stages = loop > 1 ? static_cast<int>(std::min<int64_t>(from.stages, std::min<int64_t>(each + 1, 64))) : 1;
  std::string reason;
  BlockChoice choice = choice_of(from);
  choice.stages = stages;
  std::shared_ptr<BlockPlan> plan = plan_block_as(w.body, w.operands, w.results, w.target, choice, reason, w.rule);
  if (!plan) return refusal(reason);
  if (!from.layout_note.empty())
    if (auto laid_out = plan_block_as(w.body, w.operands, w.results, w.target, choice, like_layouts(from, *plan), w.rule)) {
      laid_out->layout_note = from.layout_note;
      plan = std::move(laid_out);
    }
  plan->cost = estimate(*plan, w.target);
  return attempt_of<BlockPlan>(std::move(*plan));
}

std::string block_text(const KernelPlan& k) {
  const BlockPlan& p = body_of<BlockPlan>(k);
  const bool chain = std::any_of(p.steps.begin(), p.steps.end(), [](const Step& s) { return s.kind == Step::Kind::kChain; });
  const Launch& l = p.body.launch();
  return fmt::format("block: grid {}x{}x{} loop {}, {} threads x {} stages, cluster {}{}{}{}", l.grid[0], l.grid[1], l.grid[2], l.loop,
                     p.threads, p.stages, p.cluster, p.loop_warps > 1 ? ", warps divide the loop" : "", chain ? ", chain" : "",
                     p.layout_note.empty() ? "" : ", layouts solved");
}

Tiling block_use(const KernelPlan& k, int thrift) {
  const BlockPlan& p = body_of<BlockPlan>(k);
  Tiling out;
  out.iterations = int64_t{p.cluster} * p.loop_warps * std::max<int64_t>(p.stages, turns(thrift, p.stages, 3));
  return out;
}

std::vector<SharedPlace> block_shared(const KernelPlan& k) {
  const BlockPlan& p = body_of<BlockPlan>(k);
  std::vector<SharedPlace> out;
  for (const SmemTile& t : p.tiles)
    out.push_back({t.offset, t.bytes, fmt::format("%{} = {}", t.value, form_name(p.body.def(t.value).op)),
                   t.swizzle ? 0 : t.ld * dtype_bytes(t.dtype), t.extent[t.col ? 1 : 2] * dtype_bytes(t.dtype)});
  return out;
}

}  // namespace

Strategy block_strategy() {
  return {.is_general = true,
          .match = match_block,
          .divisions = block_divisions,
          .like = like_block,
          .text = block_text,
          .print = [](const KernelPlan& k) { return fmt::format("block {}\n", k.name) + print(body_of<BlockPlan>(k)); },
          .use = block_use,
          .shared = block_shared,
          .program = schedule::block_program,
          .timeline = block_timeline};
}

}  // namespace mirage
