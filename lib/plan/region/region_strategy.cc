// The row of regions in the table of strategies: they are planned by the planner itself (planner_groups.cc), from values of the kernel
// level.
#include <algorithm>

#include <fmt/format.h>

#include "mirage/plan/region.h"
#include "plan/strategy_internal.h"

namespace mirage {

namespace {

std::vector<KernelPlan> all_regions(const KernelPlan& of, const Target& target, size_t) {
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

Timeline region_timeline(const KernelPlan& k) {
  const RegionPlan& p = body_of<RegionPlan>(k);
  Timeline t;
  const auto step = [&](std::string text) {
    t.steps.push_back({"", std::move(text)});
    return static_cast<int>(t.steps.size()) - 1;
  };
  const auto place = [&](const char* what, int64_t from, int64_t to, int first, int last) {
    if (to > from) t.shared.push_back({what, from, to - from, first, last});
  };
  const int held = p.held > 0 ? step(p.staged ? "a row is copied into shared memory" : "a row is read into registers") : 0;
  for (size_t i = 0; i < p.passes.size(); i++) {
    const RegionPass& pass = p.passes[i];
    std::string text = p.passes.size() == 1 ? "the elements" : fmt::format("pass {} over the elements", i + 1);
    if (!pass.reduces.empty()) text += fmt::format(": {} reduction{}", pass.reduces.size(), pass.reduces.size() == 1 ? "" : "s");
    if (!pass.stores.empty() || !pass.after_stores.empty()) text += pass.reduces.empty() ? ": computed and stored" : ", results are stored";
    step(text);
  }
  const int last = std::max(static_cast<int>(t.steps.size()) - 1, 0);
  place("parts of the cluster", 0, p.staged ? p.staged_at : p.smem_bytes, held, last);
  if (p.staged) place("rows", p.staged_at, p.smem_bytes, held, last);
  return t;
}

}  // namespace

Strategy region_strategy() {
  return {.own_divisions = all_regions, .text = region_text, .print = print_regions, .use = region_use,
          .timeline = region_timeline};
}

}  // namespace mirage
