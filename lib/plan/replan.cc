// replan: see the header. Decisions that costs made are recorded while the model is planned once more and taken again at the other extents (tape.h); calls get the model's numbers.
#include "mirage/plan/replan.h"

#include "mirage/plan/attend.h"
#include "mirage/plan/stream.h"
#include "plan/attend_internal.h"
#include "plan/block_internal.h"
#include "plan/stream_internal.h"
#include "plan/tape.h"
#include "plan/tile_internal.h"

namespace mirage {
namespace {

using Accesses = std::vector<Access>;

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

std::string like_block(const BlockPlan& from, const Graph& body, const Accesses& operands, const Accesses& results, const Target& target, const ContractRule& rule, KernelPlan& k, Cost& cost) {
  const int64_t loop = body.launch().loop, each = (loop + from.cluster - 1) / from.cluster;
  if (from.cluster > loop) return "fewer iterations than blocks of a cluster";
  const int stages = loop > 1 ? static_cast<int>(std::min<int64_t>(from.stages, std::min<int64_t>(each + 1, 64))) : 1;
  std::string reason;
  BlockChoice choice = choice_of(from);
  choice.stages = stages;
  std::shared_ptr<BlockPlan> plan = plan_block_as(body, operands, results, target, choice, reason, rule);
  if (!plan) return reason;
  if (!from.layout_note.empty())
    if (auto laid_out = plan_block_as(body, operands, results, target, choice, like_layouts(from, *plan), rule)) {
      laid_out->layout_note = from.layout_note;
      plan = std::move(laid_out);
    }
  cost = plan->cost = estimate(*plan, target);
  k.body = std::shared_ptr<const BlockPlan>(std::move(plan));
  return "";
}

std::string like_stream(const StreamPlan& from, const Graph& body, const Accesses& operands, const Accesses& results, const Target& target, const ContractRule& rule, KernelPlan& k, Cost& cost) {
  std::string reason;
  std::optional<StreamShape> shape = match_stream(body, operands, results, rule, kMaxStreamRows, reason);
  if (!shape) return reason;
  StreamPlan plan = stream_plan(std::move(*shape));
  if (!divide_stream(plan, {from.warps, from.stages, from.chunk, from.cluster, from.blocks_per_sm, from.evict_first, from.registers, from.columns}, target, reason)) return reason;
  cost = plan.cost = estimate(plan, target);
  k.body = std::make_shared<const StreamPlan>(std::move(plan));
  return "";
}

std::string like_tile(const TilePlan& from, const Graph& body, const Accesses& operands, const Accesses& results, const Target& target, const ContractRule& rule, KernelPlan& k, Cost& cost) {
  std::string reason;
  std::optional<StreamShape> shape = match_stream(body, operands, results, rule, kAnyRows, reason);
  std::optional<TilePlan> plan = shape ? tile_plan(*shape, target, reason) : std::nullopt;
  if (!plan) return reason;
  const int64_t chunks = (plan->depth + from.chunk - 1) / from.chunk, each = (chunks + from.cluster - 1) / from.cluster;
  if (!divide_tile(*plan, {from.row_groups, from.group_rows, from.chunk, static_cast<int>(std::min<int64_t>(from.stages, each)), from.cluster, from.blocks_per_sm, from.evict_first, from.column_groups, from.large, from.sharing, from.overlaid, from.turned}, target, reason)) return reason;
  cost = plan->cost = estimate(*plan, target);
  k.body = std::make_shared<const TilePlan>(*std::move(plan));
  return "";
}

}  // namespace

std::string replan_call(const KernelPlan& model, const Graph& body, const Accesses& operands, const Accesses& results, const Target& target, const ContractRule& rule, KernelPlan& k, Cost& cost) {
  if (const auto* b = std::get_if<std::shared_ptr<const BlockPlan>>(&model.body)) return like_block(**b, body, operands, results, target, rule, k, cost);
  if (const auto* s = std::get_if<std::shared_ptr<const StreamPlan>>(&model.body)) return like_stream(**s, body, operands, results, target, rule, k, cost);
  if (const auto* t = std::get_if<std::shared_ptr<const TilePlan>>(&model.body)) return like_tile(**t, body, operands, results, target, rule, k, cost);
  if (const auto* a = std::get_if<std::shared_ptr<const AttendPlan>>(&model.body)) {
    AttendPlanned like = plan_attend_like(**a, body, operands, results, target);
    k.body = like.plan;
    cost = like.cost;
    return like.plan ? "" : like.reason;
  }
  return "a call's kernel is of no kind that can be planned again";
}

Planned replan(const Program& program, const Plan& model, const Program& small, const Graph& small_graph, const Target& target) {
  const auto same_kernels = [&](const Planned& p) {
    bool same = p.plan && p.plan->kernels.size() == model.kernels.size();
    for (size_t k = 0; same && k < model.kernels.size(); k++) same = p.plan->kernels[k].nodes == model.kernels[k].nodes;
    return same;
  };
  Tape tape;
  if (!same_kernels(plan_with_tape(program, model.graph, target, tape, model))) return {std::nullopt, "the model was planned otherwise"};
  tape.replays = true;
  Planned out = plan_with_tape(small, small_graph, target, tape, model);
  if (!out.plan) return out;
  if (!same_kernels(out)) return {std::nullopt, "kernels do not follow a change of extents"};
  return out;
}

}  // namespace mirage
