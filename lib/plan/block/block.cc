// Plans a block graph: which values lie in shared memory, which warps contract what, in which order with the fewest barriers, and what it
// will cost. OSDI'25 section 6, docs/architecture.md.
#include "mirage/plan/block.h"

#include <fmt/format.h>

#include <algorithm>

#include "mirage/ir/whole.h"
#include "plan/buffers.h"
#include "plan/block/block_planner.h"

namespace mirage {
namespace {

std::shared_ptr<BlockPlan> plan_as(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results,
                                   const Target& target, BlockChoice choice, std::string& reason, const ContractRule& rule) {
  BlockPlanner planner(body, operands, results, target, choice, rule);
  if (!planner.run()) { reason = planner.reason; return nullptr; }
  auto plan = std::make_shared<BlockPlan>(planner.take());
  plan->cost = estimate(*plan, target);
  return plan;
}

/// Why a body has no program (docs/schedule.md): its tiles make up no function of whole tensors. "" if they do.
std::string no_program(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results) {
  if (in_runs(operands, results)) return "a tensor in runs";
  std::vector<Dims> dims;
  for (const Access& a : operands) dims.push_back(a.dims);
  const Whole all = whole(body, dims);
  return all.reason.empty() ? cuts(body, all.index_of).reason : all.reason;
}

/// The plan again with the layouts of the integer program, where that is possible and not slower.
void improve_layouts(BlockPlanned& best, const Target& target) {
  const BlockPlan& p = *best.plan;
  const std::vector<std::vector<LayoutOption>> options = layout_options(p);
  int64_t bytes = 0;
  for (const SmemTile& t : p.tiles) bytes += t.bytes;
  // tiles that share memory count once
  const int64_t capacity = target.smem_per_sm / std::max(1, p.blocks_per_sm) - 1024 - p.smem_bytes + bytes;
  LayoutAssignment a = assign_layouts(options, capacity);
  if (!a.optimal) return;
  std::vector<LayoutOption> chosen;
  for (size_t t = 0; t < options.size(); t++) chosen.push_back(options[t][a.option[t]]);
  const std::shared_ptr<BlockPlan> plan = plan_block_as(p.body, p.operands, p.results, target, choice_of(p), chosen, p.rule);
  if (!plan) return;
  plan->layout_note = fmt::format("layouts: {} cycles of conflicts and swizzling per block, optimal", a.cost);
  if (plan->cost.us <= best.cost.us) { best.cost = plan->cost; best.plan = plan; }
}

}  // namespace

BlockPlanner::BlockPlanner(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results, const Target& target,
                           BlockChoice choice, const ContractRule& rule)
    : target_(target) {
  p_.body = body;
  p_.rule = rule;
  p_.operands = operands;
  p_.results = results;
  p_.threads = choice.threads;
  p_.stages = choice.stages;
  p_.cluster = choice.cluster;
  p_.loop_warps = choice.divide_warps ? choice.threads / 32 : 1;
  if (choice.chain) chain_ = find_chain(body);
}

bool BlockPlanner::run() {
  return shapes() && place() && divides_loop() && pads_and_layouts() && divide_work() && order_steps() && share_memory();
}

int dim_of(const Dims& d, int index3) {
  const int r = d.rank();
  if (index3 == 2) return r >= 1 ? r - 1 : -1;
  if (index3 == 1) return r >= 2 ? r - 2 : -1;
  for (int i = 0; i + 2 < r; i++) if (d[i] > 1) return i;
  return r >= 3 ? 0 : -1;
}

std::shared_ptr<BlockPlan> plan_block_as(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results,
                                         const Target& target, BlockChoice choice, std::string& reason, const ContractRule& rule) {
  if (std::string why = no_program(body, operands, results); !why.empty()) { reason = std::move(why); return nullptr; }
  return plan_as(body, operands, results, target, choice, reason, rule);
}

BlockChoice choice_of(const BlockPlan& p) {
  const bool chain = std::any_of(p.steps.begin(), p.steps.end(), [](const Step& s) { return s.kind == Step::Kind::kChain; });
  return {p.threads, p.stages, p.cluster, p.loop_warps > 1, chain};
}

std::shared_ptr<BlockPlan> plan_block_as(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results,
                                         const Target& target, BlockChoice choice, const std::vector<LayoutOption>& layouts,
                                         const ContractRule& rule) {
  BlockPlanner planner(body, operands, results, target, choice, rule);
  planner.set_layouts(layouts);
  if (!planner.run()) return nullptr;
  auto plan = std::make_shared<BlockPlan>(planner.take());
  if (plan->tiles.size() != layouts.size()) return nullptr;
  plan->cost = estimate(*plan, target);
  return plan;
}

std::vector<BlockChoice> block_choices(const Graph& body, const Target& target, bool chain) {
  std::vector<BlockChoice> out;
  const int loop = static_cast<int>(std::min<int64_t>(body.launch().loop, 1 << 20));
  for (int threads : {128, 256, 512})
    for (int cluster : {1, 2, 4, 8})
      for (bool divide : {false, true})
        for (int stages : {2, 3, 4, 6}) {
          const int each = loop / (cluster * (divide ? threads / 32 : 1));   // iterations that one block or warp runs
          if (cluster > 1 && (!target.has_cluster || each < 2)) continue;
          // Smaller clusters leave no multiprocessor idle; where a block goes through its iterations together, larger ones were slower
          // than predicted (1.1 to 3.6 times: H200, 2026-11-29).
          if (cluster > 2 && (!divide || body.launch().blocks() * (cluster / 2) >= target.num_sms)) continue;
          if (divide && each < 2) continue;
          if (loop == 1 && stages > 2) break;
          out.push_back({threads, loop > 1 ? std::min(stages, each + 1) : 1, cluster, divide, chain});
        }
  return out;
}

BlockPlanned plan_block(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results, const Target& target,
                        const ContractRule& rule) {
  BlockPlanned best;
  best.reason = no_program(body, operands, results);
  if (!best.reason.empty()) return best;
  const bool has_chain = find_chain(body).has_value();
  for (bool chain : {true, false}) {
    if (best.plan || (chain && !has_chain)) continue;
    for (const BlockChoice& choice : block_choices(body, target, chain)) {
      auto plan = plan_as(body, operands, results, target, choice, best.reason, rule);
      if (plan && (!best.plan || plan->cost.us < best.cost.us)) { best.plan = plan; best.cost = plan->cost; }
    }
  }
  if (best.plan) { best.reason.clear(); improve_layouts(best, target); }
  return best;
}

}  // namespace mirage
