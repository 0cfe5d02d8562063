// replan_like: see the header.
#include "mirage/plan/replan.h"

#include <algorithm>

#include "plan/block_internal.h"
#include "plan/stream_internal.h"
#include "plan/tile_internal.h"

namespace mirage {

namespace {

bool replan_tile(const TilePlan& from, KernelPlan& kernel, const Target& target) {
  std::optional<StreamShape> shape;
  std::string reason;
  std::visit([&](const auto& p) {
    if constexpr (requires { p->body; }) shape = match_stream(p->body, p->operands, p->results, from.rule, kAnyRows, reason);
  }, kernel.body);
  std::optional<TilePlan> plan = shape ? tile_plan(*shape, target, reason) : std::nullopt;
  if (!plan) return false;
  const int64_t chunks = (plan->depth + from.chunk - 1) / from.chunk, each = (chunks + from.cluster - 1) / from.cluster;
  if (!divide_tile(*plan, {from.row_groups, from.group_rows, from.chunk, static_cast<int>(std::min<int64_t>(from.stages, each)), from.cluster, from.blocks_per_sm, from.evict_first, from.column_groups}, target, reason)) return false;
  plan->cost = estimate(*plan, target);
  kernel.body = std::make_shared<const TilePlan>(*std::move(plan));
  return true;
}

}  // namespace

bool replan_like(const KernelPlan& model, KernelPlan& kernel, const Target& target) {
  if (const auto* t = std::get_if<std::shared_ptr<const TilePlan>>(&model.body)) return replan_tile(**t, kernel, target);
  const auto* m = std::get_if<std::shared_ptr<const BlockPlan>>(&model.body);
  auto* k = std::get_if<std::shared_ptr<const BlockPlan>>(&kernel.body);
  if (!m || !k) return m == nullptr && k == nullptr;
  const BlockPlan &from = **m, &to = **k;
  std::string reason;
  const int64_t each = (to.body.launch().loop + from.cluster - 1) / from.cluster;
  const int stages = to.body.launch().loop > 1 ? std::min<int>(from.stages, static_cast<int>(std::min<int64_t>(each + 1, 64))) : 1;
  if (from.cluster > to.body.launch().loop) return false;
  std::shared_ptr<BlockPlan> plan = plan_block_as(to.body, to.operands, to.results, target, {from.threads, stages, from.cluster, from.loop_warps > 1}, reason, from.rule);
  if (!plan) return false;
  plan->cost = estimate(*plan, target);
  *k = std::move(plan);
  return true;
}

}  // namespace mirage
