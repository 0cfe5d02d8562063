// The row of generic block kernels in the table of strategies.
#include <algorithm>

#include <fmt/format.h>

#include "plan/block/block_plan.h"
#include "mirage/plan/describe.h"
#include "mirage/schedule/words.h"
#include "mirage/support/round.h"
#include "plan/block/block_internal.h"
#include "plan/strategy_internal.h"

namespace mirage {

namespace {

Attempt match_block(const Work& w) { return attempt(plan_block(w.body, w.operands, w.results, w.target, w.rule)); }

std::vector<KernelPlan> block_divisions(const KernelPlan& of, const Work& w, size_t most) {
  std::vector<BlockPlan> plans;
  std::string reason;
  for (bool chain : {true, false})
    for (const BlockChoice& choice : block_choices(w.body, w.target, chain))
      if (const auto p = plan_block_as(w.body, w.operands, w.results, w.target, choice, reason, w.rule)) plans.push_back(*p);
  std::stable_sort(plans.begin(), plans.end(), [](const BlockPlan& a, const BlockPlan& b) { return a.cost.us < b.cost.us; });
  return with_bodies<BlockPlan>(of, plans, most);
}

/// How the lines of each section lie.
std::vector<LayoutKind> layout_kinds(const schedule::KernelProgram& p) {
  std::vector<LayoutKind> out(p.sections.size(), LayoutKind::kPlain);
  for (const schedule::Place& x : p.places)
    if (x.section >= 0 && !x.box.empty())
      out[schedule::at(x.section)] = x.swizzle                                                       ? LayoutKind::kSwizzled
                                     : x.pitch > round_up(x.box.back() * dtype_bytes(x.dtype), 16) ? LayoutKind::kPadded
                                                                                                      : LayoutKind::kPlain;
  return out;
}

/// Sections, which are tiles, in the order in which stages name places of them.
std::vector<int> sections_of(const schedule::KernelProgram& p) {
  std::vector<int> out;
  const auto add = [&](schedule::PlaceId x) {
    const int s = x < 0 ? -1 : p.places[schedule::at(x)].section;
    if (s >= 0 && std::find(out.begin(), out.end(), s) == out.end()) out.push_back(s);
  };
  const auto stage = [&](schedule::StageId s) {
    if (s < 0) return;
    add(p.stages[schedule::at(s)].to);
    for (schedule::PlaceId x : p.stages[schedule::at(s)].through) add(x);
  };
  for (const schedule::Item& i : p.roles[0].items) {
    stage(i.stage);
    for (schedule::StageId s : i.body) stage(s);
  }
  return out;
}

/// Tile by tile the kind of layout that the model's has, where this one can have it; empty: they lie so already.
std::vector<LayoutOption> like_layouts(const schedule::KernelProgram& model, const std::shared_ptr<const BlockPlan>& plan) {
  const schedule::KernelProgram own = schedule::block_program(*plan);
  const std::vector<int> from = sections_of(model), to = sections_of(own);
  const std::vector<LayoutKind> wanted = layout_kinds(model);
  std::vector<LayoutKind> kinds = layout_kinds(own);   // in the order of the tiles that need memory
  bool same = true;
  for (size_t i = 0; i < std::min(from.size(), to.size()); i++) {
    LayoutKind& kind = kinds[schedule::at(to[i])];
    same &= kind == wanted[schedule::at(from[i])];
    kind = wanted[schedule::at(from[i])];
  }
  std::vector<LayoutOption> out;
  if (same || from.size() != to.size()) return out;
  const std::vector<std::vector<LayoutOption>> options = layout_options(*plan);
  size_t next = 0;
  for (size_t t = 0; t < options.size(); t++) {
    out.push_back(options[t].front());
    if (plan->tiles[t].bytes == 0) continue;
    for (const LayoutOption& o : options[t]) if (o.kind == kinds[next]) out.back() = o;
    next++;
  }
  return out;
}

BlockChoice block_choice(const schedule::KernelProgram& p) {
  using namespace schedule;
  BlockChoice c;
  c.threads = static_cast<int>(std::min<int64_t>(p.roles.back().warps, 64)) * 32;
  c.stages = p.slots();
  if (const Split* k = p.reduced()) c.cluster = p.parts(*k, AxisKind::kCluster), c.divide_warps = p.parts(*k, AxisKind::kWarp) > 1;
  c.chain = std::any_of(p.places.begin(), p.places.end(), [&](const Place& x) {
    return x.section < 0 && x.value >= 0 && p.body.def_form<Running>(x.value);
  });
  return c;
}

Attempt like_block(const schedule::KernelProgram& model, const Work& w) {
  std::string reason;
  const std::shared_ptr<const BlockPlan> plan = block_like(model, w, reason);
  return plan ? attempt_of(plan) : refusal(reason);
}

std::string block_text(const KernelPlan& k) {
  const auto& plan = *std::get<std::shared_ptr<const ProgramPlan>>(k.body);
  const BlockChoice c = block_choice(plan.how->program());
  const Launch& l = plan.calls[0].body.launch();
  return fmt::format("block: grid {}x{}x{} loop {}, {} threads x {} stages, cluster {}{}{}{}", l.grid[0], l.grid[1], l.grid[2], l.loop,
                     c.threads, c.stages, c.cluster, c.divide_warps ? ", warps divide the loop" : "", c.chain ? ", chain" : "",
                     plan.note.empty() ? "" : ", layouts solved");
}

Tiling block_use(const KernelPlan& k, int thrift) {
  const BlockChoice c = block_choice(*program_in(k));
  Tiling out;
  out.iterations = int64_t{c.cluster} * (c.divide_warps ? c.threads / 32 : 1) * std::max<int64_t>(c.stages, turns(thrift, c.stages, 3));
  return out;
}

}  // namespace

std::shared_ptr<const BlockPlan> block_like(const schedule::KernelProgram& model, const Work& w, std::string& reason) {
  if (model.roles.size() != 1) { reason = "warps that do different things"; return nullptr; }
  BlockChoice choice = block_choice(model);
  const int64_t loop = w.body.launch().loop, each = (loop + choice.cluster - 1) / choice.cluster;
  if (choice.cluster > loop) { reason = "fewer iterations than blocks of a cluster"; return nullptr; }
  choice.stages = loop > 1 ? static_cast<int>(std::min<int64_t>(choice.stages, std::min<int64_t>(each + 1, 64))) : 1;
  std::shared_ptr<BlockPlan> plan = plan_block_as(w.body, w.operands, w.results, w.target, choice, reason, w.rule);
  if (!plan) return nullptr;
  if (const std::vector<LayoutOption> layouts = like_layouts(model, plan); !layouts.empty())
    if (auto laid_out = plan_block_as(w.body, w.operands, w.results, w.target, choice, layouts, w.rule)) plan = std::move(laid_out);
  plan->cost = estimate(*plan, w.target);
  return plan;
}

KernelBody told(std::shared_ptr<const BlockPlan> p) {
  return program_body(StrategyId::kBlock, p, {{p->body, p->operands, p->results}}, p->rule, schedule::block_program, p->layout_note);
}

Strategy block_strategy() {
  return {.is_general = true,
          .match = match_block,
          .divisions = block_divisions,
          .like = like_block,
          .text = block_text,
          .print = print_program,
          .use = block_use,
          .shared = program_places,
          .timeline = program_timeline};
}

}  // namespace mirage
