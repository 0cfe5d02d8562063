// The row of regions in the table of strategies: they are planned by the planner itself (planner_groups.cc), from values of the kernel
// level.
#include <fmt/format.h>

#include "mirage/plan/region.h"
#include "plan/strategy_internal.h"

namespace mirage {

namespace {

std::vector<KernelPlan> all_regions(const KernelPlan& of, const Target& target) {
  std::vector<KernelPlan> out;
  if (!body_of<RegionPlan>(of).beside.empty()) return out;   // they have their threads in common
  for (auto& [p, cost] : region_alternatives(body_of<RegionPlan>(of), target, of.bytes, of.flops)) {
    out.push_back(of);
    out.back().predicted_us = cost.us;
    out.back().why = cost.why;
    out.back().body = std::make_shared<const RegionPlan>(std::move(p));
  }
  return out;
}

std::string region_text(const KernelPlan& k) {
  const RegionPlan& p = body_of<RegionPlan>(k);
  return fmt::format("region: {} threads, team {}{}, width {}{}, held {}{}{}", p.threads, p.team,
                     p.cluster > 1 ? fmt::format(" in clusters of {}", p.cluster) : "", p.width, p.uneven ? " and edges" : "", p.held,
                     p.staged ? " in shared memory" : "",
                     p.shape == RegionPlan::Shape::kColumn ? fmt::format(", {} columns", p.columns) : "") +
         (p.beside.empty() ? "" : fmt::format(", {} more beside it", p.beside.size()));
}

/// Rows that a cluster shares, or that wait in shared memory: every thread of the row has work, some of them twice; of so long rows, few.
/// Of rows that have a block each, few where the shape is too large else, and those whole. A thread that is emulated takes longer for an
/// operation than a tensor core's do.
Tiling region_use(const KernelPlan& k, int thrift) {
  const RegionPlan& p = body_of<RegionPlan>(k);
  Tiling out;
  out.padding = 5;
  const bool is_shared = p.cluster > 1 || p.staged;
  if (is_shared) out.row = p.lane_extent, out.row_team = int64_t{p.team} * p.width, out.rows = p.rows;
  else if (thrift > 0 && p.shape == RegionPlan::Shape::kRow && p.team == p.threads && p.rows != p.lane_extent)
    out.row = p.lane_extent, out.rows = p.rows;
  return out;
}

std::string print_regions(const KernelPlan& k) {
  const RegionPlan& p = body_of<RegionPlan>(k);
  std::string out = print(p, k.name);
  for (size_t i = 0; i < p.beside.size(); i++) out += print(*p.beside[i], fmt::format("{}, beside it {}", k.name, i + 1));
  return out;
}

}  // namespace

Strategy region_strategy() {
  return {.own_divisions = all_regions, .text = region_text, .print = print_regions, .use = region_use,
          .timeline = region_timeline};
}

}  // namespace mirage
