// Planner, third part: items in an order that respects what they read, workspace placed by lifetimes, and every call planned by the
// strategy that is cheapest for it.
#include <algorithm>

#include <fmt/format.h>

#include "mirage/plan/bound.h"
#include "mirage/plan/passes.h"
#include "mirage/plan/replan.h"
#include "mirage/plan/strategy.h"
#include "plan/buffers.h"
#include "plan/overlap.h"
#include "plan/passes/positions.h"
#include "plan/planner.h"

namespace mirage {
namespace {

std::string identifier(const std::string& name) {
  std::string out;
  for (char c : name) out += (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ? c : '_';
  if (out.empty() || (out[0] >= '0' && out[0] <= '9')) out = "_" + out;
  return out;
}

}  // namespace

std::vector<std::vector<int>> Planner::order() const {
  const auto first = [&](int i) { return leader_.empty() || leader_[static_cast<size_t>(i)] < 0 ? i : leader_[static_cast<size_t>(i)]; };
  std::vector<std::vector<int>> out, together(items_.size());
  std::vector<std::set<int>> before(items_.size());
  std::vector<int> waiting(items_.size());
  std::vector<std::set<int>> next(items_.size());
  std::set<int> ready;
  for (size_t i = 0; i < items_.size(); i++) {
    if (!items_[i].alive) continue;
    const int step = first(static_cast<int>(i));
    together[static_cast<size_t>(step)].push_back(static_cast<int>(i));
    for (ValueId v : items_[i].reads)
      if (producer_[static_cast<size_t>(v)] >= 0) before[static_cast<size_t>(step)].insert(first(producer_[static_cast<size_t>(v)]));
    if (items_[i].after >= 0) before[static_cast<size_t>(step)].insert(first(items_[i].after));
  }
  size_t steps = 0;
  for (size_t i = 0; i < items_.size(); i++) {
    if (together[i].empty()) continue;
    steps++;
    for (int b : before[i]) next[static_cast<size_t>(b)].insert(static_cast<int>(i));
    waiting[i] = static_cast<int>(before[i].size());
    if (before[i].empty()) ready.insert(static_cast<int>(i));
  }
  while (!ready.empty()) {
    const int i = *ready.begin();
    ready.erase(ready.begin());
    out.push_back(together[static_cast<size_t>(i)]);
    for (int n : next[static_cast<size_t>(i)])
      if (--waiting[static_cast<size_t>(n)] == 0) ready.insert(n);
  }
  return out.size() == steps ? out : std::vector<std::vector<int>>{};
}

std::vector<int> Planner::buffers_touched(const Item& item) const {
  std::vector<int> out;
  if (item.call < 0) {
    for (const RegionAccess& a : item.planned->plan.accesses) out.push_back(a.buffer);
    return out;
  }
  const Node& n = g_.node(item.call);
  for (ValueId o : n.operands) {
    if (is_computed(item.call, o)) continue;
    const View view = *view_with(o, false);
    out.push_back(view.buffer);
    if (view.second.buffer >= 0) out.push_back(view.second.buffer);
  }
  for (int k = 0; k < n.num_values; k++) out.push_back(views_[static_cast<size_t>(n.first_value + k)].buffer);
  return out;
}

int64_t Planner::place(const std::vector<std::vector<int>>& sequence) {
  std::vector<Lifetime> lives(buffers_.size(), {-1, -1});
  for (size_t k = 0; k < sequence.size(); k++)
    for (int item : sequence[k])
      for (int b : buffers_touched(items_[static_cast<size_t>(item)])) {
        Lifetime& life = lives[static_cast<size_t>(b)];
        if (life.first < 0) life.first = static_cast<int>(k);
        life.last = static_cast<int>(k);
      }
  std::vector<Buffer> kept;
  std::vector<Lifetime> kept_lives;
  std::vector<int> to(buffers_.size(), -1);
  for (size_t b = 0; b < buffers_.size(); b++) {
    if (buffers_[b].kind == Buffer::Kind::kWorkspace && lives[b].first < 0) continue;
    to[b] = static_cast<int>(kept.size());
    kept.push_back(buffers_[b]);
    kept_lives.push_back(lives[b]);
  }
  buffers_ = std::move(kept);
  for (View& v : views_)
    if (v.buffer >= 0) {
      v.buffer = to[static_cast<size_t>(v.buffer)];
      if (v.second.buffer >= 0) v.second.buffer = to[static_cast<size_t>(v.second.buffer)];
      if (v.buffer < 0) v = {};
    }
  for (Item& item : items_)
    if (item.alive && item.call < 0)
      for (RegionAccess& a : item.planned->plan.accesses) a.buffer = to[static_cast<size_t>(a.buffer)];
  return place_buffers(buffers_, kept_lives);
}

double Planner::without_positions(const Item& call, const std::set<ValueId>& positions) const {
  const int reader = static_cast<int>(&call - items_.data());
  const auto is_only_its = [&](ValueId v) {
    return positions.count(v) > 0 && outs_[static_cast<size_t>(v)].empty() && readers_[static_cast<size_t>(v)] == std::set<int>{reader};
  };
  double us = target_.launch_us;
  for (const Item& item : items_) {
    const bool goes = item.alive && item.call < 0 && item.planned && item.copies.empty() && !item.values.empty() &&
                      std::all_of(item.values.begin(), item.values.end(), is_only_its);
    if (goes) us = std::max(us, item.planned->cost.us);
  }
  return us;
}

void Planner::drop_positions() {
  for (Item& item : items_) {
    if (!item.alive || item.call < 0) continue;
    std::set<ValueId> positions;
    for (ValueId o : g_.node(item.call).operands) if (is_position(o)) positions.insert(stored_below(o));
    if (positions.empty()) continue;
    if (model_) {
      if (!(computes_[item.call] = model_computes(item.call))) continue;
    } else {
      KernelPlan stored, computed;
      Cost with, without;
      const std::string no = plan_call(item.call, stored, with);
      computes_[item.call] = true;
      if (!plan_call(item.call, computed, without).empty() || (no.empty() && without.us > with.us + without_positions(item, positions))) {
        computes_[item.call] = false;
        continue;
      }
    }
    for (ValueId v : positions) {
      bool other = false;
      for (ValueId o : g_.node(item.call).operands) other = other || (!is_position(o) && stored_below(o) == v);   // as numbers in memory
      if (!other) item.reads.erase(v);
    }
  }
  index_items();
  for (Item& item : items_) {
    bool needed = item.call >= 0 || item.values.empty() || !item.copies.empty();
    for (ValueId v : item.values)
      needed = needed || !position_of(g_, v) || !readers_[static_cast<size_t>(v)].empty() || !outs_[static_cast<size_t>(v)].empty();
    if (!needed) item.alive = false;
  }
  index_items();
}

bool Planner::model_computes(NodeId call) const {
  for (const KernelPlan& k : model_->kernels) {
    const std::span<const KernelCall> calls = bound_calls(k);
    if (!calls.empty() && k.nodes == std::vector<NodeId>{call})
      return std::any_of(calls[0].operands.begin(), calls[0].operands.end(), [](const Access& a) { return a.position >= 0; });
  }
  return false;
}

bool Planner::is_computed(NodeId call, ValueId operand) const {
  const auto at = computes_.find(call);
  return at != computes_.end() && at->second && is_position(operand);
}

ValueId Planner::stored_below(ValueId v) const {
  while (is_view(op_of(v)) && !stored_[static_cast<size_t>(v)]) v = operand(v);
  return v;
}

bool Planner::is_position(ValueId v) const {
  return stored_[static_cast<size_t>(stored_below(v))] && position_of(g_, v) && g_.dims(v).rank() > 0;
}

Planned Planner::finish() {
  if (is_on(Pass::kPositions, target_)) drop_positions();
  if (is_on(Pass::kRuns, target_)) place_runs();
  if (is_on(Pass::kParts, target_)) place_parts();
  join_calls();
  join_regions();
  const std::vector<std::vector<int>> sequence = order();
  MIRAGE_ASSERT(!sequence.empty() || std::none_of(items_.begin(), items_.end(), [](const Item& i) { return i.alive; }))
      << "kernels depend on each other in a circle: " << print(g_);
  Plan plan;
  plan.workspace_bytes = place(sequence);
  const std::string prefix = identifier(program_.name);
  for (const std::vector<int>& step : sequence) {
    Item& item = items_[static_cast<size_t>(step[0])];
    KernelPlan k;
    Cost cost;
    if (item.call >= 0) {
      const std::string reason = step.size() > 1 ? plan_beside(step, k, cost) : plan_call(item.call, k, cost);
      if (!reason.empty()) return {std::nullopt, reason, std::move(k.others)};
      for (int i : step) k.nodes.push_back(items_[static_cast<size_t>(i)].call);
      k.name = fmt::format("{}_k{}_{}", prefix, plan.kernels.size(), strategy_of(k).name);
    } else {
      static constexpr const char* kShapes[] = {"map", "row", "column"};
      k.name = fmt::format("{}_k{}_{}", prefix, plan.kernels.size(), kShapes[static_cast<size_t>(item.planned->plan.shape)]);
      k.body = regions_beside(step, k, cost);
    }
    k.predicted_us = cost.us;
    k.why = cost.why;
    k.bytes = cost.bytes;
    k.flops = cost.flops;
    plan.predicted_us += cost.us;
    plan.kernels.push_back(std::move(k));
  }
  for (ValueId v = 0; v < g_.num_values(); v++)
    if (views_[static_cast<size_t>(v)].buffer < 0 && is_view(op_of(v)))
      if (auto view = view_with(v, false); view && view->second.buffer < 0) pending_.push_back({v, *view});
  for (auto& [v, view] : pending_) views_[static_cast<size_t>(v)] = view;
  for (View& view : views_) if (view.second.buffer >= 0) view = {};   // nobody stores it: what it is made of is stored
  plan.buffers = std::move(buffers_);
  plan.views = std::move(views_);
  plan.graph = g_;
  place_slots(plan);
  if (is_on(Pass::kEarly, target_)) {
    if (!model_) make_room(plan, target_, contract_rule(program_));
    start_early(plan, target_);
  }
  return {std::move(plan), ""};
}

Planner::CallAccess Planner::accesses_of(NodeId n) const {
  const Node& node = g_.node(n);
  CallAccess out;
  const auto access = [&](ValueId v) {
    const View view = *view_with(v, false);
    const Buffer& b = buffers_[static_cast<size_t>(view.buffer)];
    return Access{view.buffer, view.offset, g_.dims(v), view.strides, b.dtype, b.tf32, -1, view.run, view.jump, b.by_value, view.second};
  };
  for (ValueId o : node.operands) {
    out.operands.push_back(is_computed(n, o) ? Access{} : access(o));
    if (!is_computed(n, o)) continue;
    Access& a = out.operands.back();
    a.dims = g_.dims(o);
    a.strides = Dims(a.dims);
    for (int d = 0; d < a.strides.rank(); d++) a.strides[d] = 0;
    const Position p = *position_of(g_, o);
    a.position = p.dim;
    a.position_div = p.div;
    a.position_period = p.period;
    out.computes = true;
  }
  for (int k = 0; k < node.num_values; k++) out.results.push_back(access(node.first_value + k));
  const Graph& body = *std::get<Call>(node.op).body;
  out.body = is_on(Pass::kSums, target_) ? separate_sums(body) : body;
  return out;
}

std::string Planner::plan_call(NodeId n, KernelPlan& k, Cost& cost) const {
  const auto [body, operands, results, computes] = accesses_of(n);
  const Work work{body, operands, results, target_, contract_rule(program_), computes};
  if (model_) return plan_call_like(n, work, k, cost);
  std::optional<CallPlan> made = known_ ? known_->find(body, operands, results) : std::nullopt;
  if (!made) {
    made = plan_work(work);
    if (known_) known_->keep(body, operands, results, *made);
  }
  k.others = std::move(made->others);
  if (!made->body) return made->reason;
  k.body = *std::move(made->body);
  cost = std::move(made->cost);
  return "";
}

CallPlan Planner::plan_work(const Work& work) {
  CallPlan out;
  size_t taken = 0;
  for (const Strategy& s : strategies()) {
    if (!s.match || !is_on(s, work.target)) continue;
    const bool can_read = (!work.positions || s.reads_positions) && (!work.has_parts() || s.reads_parts);
    Attempt a =
        can_read
            ? s.match(work)
            : Attempt{std::nullopt, {}, work.positions && !s.reads_positions ? "positions that are not stored" : "an operand in two parts"};
    if (!a.body && out.reason.empty() && can_read) out.reason = a.reason;
    out.others.push_back({s.name, a.reason, a.body ? a.cost.us : 0});
    if (!a.body || (out.body && a.cost.us * s.lead >= out.cost.us)) continue;
    taken = out.others.size() - 1;
    out.body = std::move(a.body);
    out.cost = std::move(a.cost);
  }
  if (out.body) out.others.erase(out.others.begin() + static_cast<std::ptrdiff_t>(taken));
  else if (out.reason.empty()) out.reason = out.others.empty() ? "no strategy takes calls" : out.others[0].reason;
  return out;
}

std::string Planner::plan_call_like(NodeId n, const Work& work, KernelPlan& k, Cost& cost) const {
  const auto of =
      std::find_if(model_->kernels.begin(), model_->kernels.end(), [n](const KernelPlan& m) { return m.nodes == std::vector<NodeId>{n}; });
  if (of == model_->kernels.end()) return "the model has no kernel for a call";
  cost.us = of->predicted_us, cost.why = of->why, cost.bytes = of->bytes, cost.flops = of->flops;
  k.body = of->body;
  if (!tape_->replays) return "";
  Attempt a = plan_like(*of, work);
  if (!a.body) return a.reason;
  k.body = *std::move(a.body);
  cost = std::move(a.cost);
  return "";
}

}  // namespace mirage
