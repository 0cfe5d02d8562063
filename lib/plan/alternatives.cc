// Every division of a kernel's block graph that some strategy would take, cheapest first (plan/alternatives.h). Behind make_plan in the flow, for measuring.
#include "mirage/plan/alternatives.h"

#include <algorithm>

#include <fmt/format.h>

#include "mirage/plan/attend.h"
#include "mirage/plan/region.h"
#include "mirage/plan/stream.h"
#include "mirage/plan/tile.h"
#include "plan/block_internal.h"
#include "plan/buffers.h"
#include "plan/stream_internal.h"

namespace mirage {

namespace {

template <class P> KernelPlan with_body(const KernelPlan& k, std::shared_ptr<const P> body) {
  KernelPlan out = k;
  out.predicted_us = body->cost.us;
  out.why = body->cost.why;
  out.bytes = body->cost.bytes;
  out.flops = body->cost.flops;
  out.body = std::move(body);
  return out;
}

/// What a kernel was planned from; nullptr for a region.
struct Source { const Graph* body = nullptr; const std::vector<Access>*operands = nullptr, *results = nullptr; };

Source source_of(const KernelPlan& k) {
  return std::visit([](const auto& p) -> Source {
    if constexpr (std::is_same_v<std::decay_t<decltype(*p)>, RegionPlan>) return {};
    else return {&p->body, &p->operands, &p->results};
  }, k.body);
}

/// The cheapest first. The same division twice is one: a chain that is not there, or the kernel's own.
std::vector<KernelPlan> distinct(std::vector<KernelPlan> all, size_t most) {
  std::stable_sort(all.begin(), all.end(), [](const KernelPlan& a, const KernelPlan& b) { return a.predicted_us < b.predicted_us; });
  std::vector<KernelPlan> kept;
  std::vector<std::string> texts;
  for (KernelPlan& a : all) {
    if (kept.size() >= most) break;
    const std::string text = division_text(a);
    if (std::find(texts.begin(), texts.end(), text) != texts.end()) continue;
    texts.push_back(text);
    kept.push_back(std::move(a));
  }
  return kept;
}

/// What the strategies make of a kernel that read all operands from memory.
void add_others(std::vector<KernelPlan>& out, const KernelPlan& k, const Source& s, const Target& target, const ContractRule& rule) {
  for (bool chain : {true, false})
    for (const BlockChoice& choice : block_choices(*s.body, target, chain)) {
      std::string reason;
      if (auto p = plan_block_as(*s.body, *s.operands, *s.results, target, choice, reason, rule)) out.push_back(with_body<BlockPlan>(k, p));
    }
  for (StreamPlan& p : stream_candidates(*s.body, *s.operands, *s.results, target, rule).plans) out.push_back(with_body(k, std::make_shared<const StreamPlan>(std::move(p))));
  for (TilePlan& p : tile_candidates(*s.body, *s.operands, *s.results, target, rule).plans) out.push_back(with_body(k, std::make_shared<const TilePlan>(std::move(p))));
}

}  // namespace

std::vector<KernelPlan> kernel_alternatives(const KernelPlan& k, const Target& target, const ContractRule& rule, size_t most) {
  const Source s = source_of(k);
  std::vector<KernelPlan> out{k};
  if (!s.body) {
    const RegionPlan& region = *std::get<std::shared_ptr<const RegionPlan>>(k.body);
    for (auto& [p, cost] : region_alternatives(region, target, k.bytes, k.flops)) {
      out.push_back(k);
      out.back().predicted_us = cost.us;
      out.back().why = cost.why;
      out.back().body = std::make_shared<const RegionPlan>(std::move(p));
    }
    return distinct(std::move(out), most);
  }
  if (const auto* own = std::get_if<std::shared_ptr<const StreamPlan>>(&k.body); own && !(*own)->beside.empty()) {
    for (StreamPlan& p : stream_divisions(**own, target).plans) out.push_back(with_body(k, std::make_shared<const StreamPlan>(std::move(p))));
    return distinct(std::move(out), most);
  }
  // Positions that are not stored are computed by attention kernels only.
  const bool computes = std::any_of(s.operands->begin(), s.operands->end(), [](const Access& a) { return a.position >= 0; });
  if (!computes) add_others(out, k, s, target, rule);
  // The program's plan has set workspace aside for its own kernel's slots: a division that wants more would write behind them.
  const auto* own = std::get_if<std::shared_ptr<const AttendPlan>>(&k.body);
  for (AttendPlan& p : attend_candidates(*s.body, *s.operands, *s.results, target).plans)
    if (p.slot_bytes <= (own ? (*own)->slot_bytes : 0)) out.push_back(with_body(k, std::make_shared<const AttendPlan>(std::move(p))));
  return distinct(std::move(out), most);
}

Plan with_kernel(const Plan& plan, size_t kernel, const KernelPlan& other) {
  Plan out = plan;
  out.predicted_us += other.predicted_us - plan.kernels[kernel].predicted_us;
  out.kernels[kernel] = other;
  place_slots(out);
  return out;
}

std::string division_text(const KernelPlan& k) {
  if (const auto* b = std::get_if<std::shared_ptr<const BlockPlan>>(&k.body)) {
    const BlockPlan& p = **b;
    const bool chain = std::any_of(p.steps.begin(), p.steps.end(), [](const Step& s) { return s.kind == Step::Kind::kChain; });
    return fmt::format("block: grid {}x{}x{} loop {}, {} threads x {} stages, cluster {}{}{}{}", p.body.launch().grid[0], p.body.launch().grid[1], p.body.launch().grid[2], p.body.launch().loop, p.threads, p.stages,
                       p.cluster, p.loop_warps > 1 ? ", warps divide the loop" : "", chain ? ", chain" : "", p.layout_note.empty() ? "" : ", layouts solved");
  }
  if (const auto* b = std::get_if<std::shared_ptr<const StreamPlan>>(&k.body)) {
    const StreamPlan& p = **b;
    if (p.registers) return fmt::format("stream: {} warps x {} straight to registers, {} columns, {} per SM", p.warps, p.chunk, p.columns, p.blocks_per_sm);
    return fmt::format("stream: {} warps x {} stages x {}, cluster {}, {} per SM{}", p.warps, p.stages, p.chunk, p.cluster, p.blocks_per_sm, p.evict_first ? "" : ", weights kept");
  }
  if (const auto* b = std::get_if<std::shared_ptr<const TilePlan>>(&k.body)) {
    const TilePlan& p = **b;
    if (p.turned) return fmt::format("tile: {} x {} warpgroups of 64 rows x {} columns, rows first, all of {} at once", p.row_groups, p.column_groups, p.turned, p.depth);
    return fmt::format("tile: {} x {} warpgroups of {} rows, chunk {} x {} stages, cluster {}, {} per SM{}", p.row_groups, p.column_groups, p.group_rows, p.chunk, p.stages, p.cluster, p.blocks_per_sm, p.large ? fmt::format(", large, {} share rows", p.sharing) : "");
  }
  if (const auto* b = std::get_if<std::shared_ptr<const AttendPlan>>(&k.body)) {
    const AttendPlan& p = **b;
    if (p.wide) return fmt::format("attend: whole rows, chunk {} x {} stages, cluster {}, {} meet", p.chunk, p.stages, p.cluster, p.meets);
    return fmt::format("attend: {} queries x {} keys{}, chunk {} x {} stages, cluster {}, {} per SM", p.query_groups, p.key_groups, p.warp_rings ? " warps" : " groups", p.chunk, p.stages, p.cluster, p.blocks_per_sm) + (p.meets > 1 ? fmt::format(", {} clusters meet", p.meets) : "");
  }
  const RegionPlan& p = *std::get<std::shared_ptr<const RegionPlan>>(k.body);
  return fmt::format("region: {} threads, team {}{}, width {}{}, held {}{}{}", p.threads, p.team, p.cluster > 1 ? fmt::format(" in clusters of {}", p.cluster) : "", p.width, p.uneven ? " and edges" : "", p.held, p.staged ? " in shared memory" : "", p.shape == RegionPlan::Shape::kColumn ? fmt::format(", {} columns", p.columns) : "");
}

}  // namespace mirage
