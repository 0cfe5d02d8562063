// replan_like: see the header.
#include "mirage/plan/replan.h"

#include "plan/block_internal.h"

namespace mirage {

bool replan_like(const KernelPlan& model, KernelPlan& kernel, const Target& target) {
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
