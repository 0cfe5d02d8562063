// Calls beside each other: linear layers of one input whose widths differ (queries, keys and values of grouped heads) are one stream
// kernel, whose blocks are those of the first call, then those of the next. What differs from call to call is data (tensor maps, pointers,
// widths, strides of results), so the kernel's text is that of one of them. Between planning calls one by one and giving them memory
// (planner_kernels.cc).
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "mirage/plan/describe.h"
#include "mirage/plan/passes.h"
#include "plan/planner.h"
#include "plan/region/region_threads.h"
#include "plan/strategy_internal.h"
#include "plan/stream/stream_internal.h"

namespace mirage {

namespace {

bool same_place(const Access& a, const Access& b) {
  return a.buffer == b.buffer && a.offset == b.offset && a.dims == b.dims && a.strides == b.strides && a.dtype == b.dtype &&
         a.tf32 == b.tf32 && a.position == b.position && a.run == b.run && a.jump == b.jump && a.second == b.second;
}

/// What a result is rounded to before it is stored; none where the store itself does that.
DType rounded_to(const StreamShape& s, const Output& out) {
  return out.dtype == s.results[static_cast<size_t>(out.result)].dtype ? DType::kReal : out.dtype;
}

/// Like each other but for how long dimensions are.
bool same_node(const StreamShape& s, const StreamShape& t, NodeId n) {
  const Graph &x = s.body, &y = t.body;
  const Node &a = x.node(n), &b = y.node(n);
  if (a.op.index() != b.op.index() || a.operands != b.operands || a.first_value != b.first_value) return false;
  if (a.first_value >= 0 &&
      (x.dims(a.first_value).rank() != y.dims(b.first_value).rank() || x.type(a.first_value).dtype != y.type(b.first_value).dtype))
    return false;
  if (const auto* in = std::get_if<Input>(&a.op)) return in->param == std::get<Input>(b.op).param;
  if (const auto* out = std::get_if<Output>(&a.op))
    return out->result == std::get<Output>(b.op).result && rounded_to(s, *out) == rounded_to(t, std::get<Output>(b.op));
  if (const auto* c = std::get_if<Const>(&a.op)) return c->value == std::get<Const>(b.op).value;
  return a.op == b.op;
}

bool has_columns(const StreamShape& s, ValueId v) {
  const auto& axes = s.axes[static_cast<size_t>(v)];
  return std::count(axes.begin(), axes.end(), StreamAxis::kCol) > 0;
}

/// From one column to the next: part of the kernel's text, where the distance of rows is data.
int64_t column_step(const StreamShape& s, ValueId v, const Access& a) {
  const auto& axes = s.axes[static_cast<size_t>(v)];
  for (size_t d = 0; d < axes.size(); d++) if (axes[d] == StreamAxis::kCol) return a.strides[static_cast<int>(d)];
  return 0;
}

}  // namespace

bool stands_beside(const StreamShape& a, const StreamShape& b) {
  const Graph &x = a.body, &y = b.body;
  if (a.rows != b.rows || a.depth != b.depth || a.group != b.group || a.second || b.second || a.batch != 1 || b.batch != 1 ||
      x.num_nodes() != y.num_nodes() || x.num_values() != y.num_values() || a.axes != b.axes || !a.products.empty() || !b.products.empty())
    return false;
  for (NodeId n = 0; n < x.num_nodes(); n++) if (!same_node(a, b, n)) return false;
  if (a.weights.size() != b.weights.size() || a.contractions.size() != b.contractions.size() || a.results.size() != b.results.size())
    return false;
  for (size_t i = 0; i < a.weights.size(); i++) {
    const StreamWeight &v = a.weights[i], &w = b.weights[i];
    if (v.input != w.input || v.free != StreamAxis::kCol || w.free != StreamAxis::kCol || v.depth_major != w.depth_major ||
        v.padded != w.padded || v.packed || w.packed || v.uneven || w.uneven)
      return false;
  }
  for (size_t i = 0; i < a.contractions.size(); i++) {
    const StreamContraction &v = a.contractions[i], &w = b.contractions[i];
    if (v.node != w.node || v.sum != w.sum || v.small != w.small || v.weight != w.weight || v.type != w.type || v.made != w.made ||
        v.factored != w.factored)
      return false;
  }
  for (NodeId n : x.inputs()) {
    const auto param = static_cast<size_t>(x.form<Input>(n)->param);
    const Access &v = a.operands[param], &w = b.operands[param];
    const ValueId of = x.node(n).first_value;
    // a tensor map says how it lies
    const bool is_weight = std::any_of(a.weights.begin(), a.weights.end(), [&](const StreamWeight& g) { return g.input == n; });
    if (has_columns(a, of)
            ? v.dtype != w.dtype || v.position >= 0 || w.position >= 0 || (!is_weight && column_step(a, of, v) != column_step(b, of, w))
            : !same_place(v, w))
      return false;
  }
  for (NodeId n : x.outputs()) {
    const auto r = static_cast<size_t>(x.form<Output>(n)->result);
    const ValueId of = x.node(n).operands[0];
    if (!has_columns(a, of) || a.results[r].dtype != b.results[r].dtype || a.results[r].tf32 != b.results[r].tf32 ||
        column_step(a, of, a.results[r]) != column_step(b, of, b.results[r]) || a.results[r].run != b.results[r].run ||
        a.results[r].jump != b.results[r].jump)
      return false;
  }
  return true;
}

/// The shapes of calls that may be one kernel, in their order; empty where they may not.
std::vector<StreamShape> Planner::shapes_beside(const std::vector<int>& items) const {
  std::vector<StreamShape> out;
  for (int i : items) {
    std::string reason;
    const CallAccess c = accesses_of(items_[static_cast<size_t>(i)].call);
    if (c.computes || std::any_of(c.operands.begin(), c.operands.end(), [](const Access& a) { return a.second.buffer >= 0; })) return {};
    auto shape = match_stream(c.body, c.operands, c.results, contract_rule(program_), kMaxStreamRows, reason);
    if (!shape || (!out.empty() && !stands_beside(out[0], *shape)) || shape->weights.size() * items.size() > kMostWeights) return {};
    out.push_back(std::move(*shape));
  }
  return out;
}

namespace {
/// "", or why there is none.
std::string taken(Attempt a, KernelPlan& k, Cost& cost) {
  if (!a.body) return a.reason;
  k.body = *std::move(a.body);
  cost = std::move(a.cost);
  return "";
}

StreamPlan joined_plan(std::vector<StreamShape> shapes) {
  StreamPlan p = stream_plan(std::move(shapes[0]));
  p.beside.assign(std::make_move_iterator(shapes.begin() + 1), std::make_move_iterator(shapes.end()));
  return p;
}
}  // namespace

std::string Planner::plan_beside(const std::vector<int>& items, KernelPlan& k, Cost& cost) const {
  std::vector<StreamShape> shapes = shapes_beside(items);
  if (shapes.empty()) return "calls of different forms";
  StreamPlan matched = joined_plan(std::move(shapes));
  if (model_ && !tape_->replays) {
    const KernelPlan& of = *model_kernel(items);
    cost.us = of.predicted_us, cost.why = of.why, cost.bytes = of.bytes, cost.flops = of.flops;
    k.body = of.body;
    return "";
  }
  if (model_) {
    std::string reason;
    if (!divide_stream(matched, stream_choice(*program_in(*model_kernel(items))), target_, reason)) return reason;
    matched.cost = estimate(matched, target_);
    return taken(attempt_of(matched), k, cost);
  }
  return taken(attempt(best_stream_division(matched, target_)), k, cost);
}

const KernelPlan* Planner::model_kernel(const std::vector<int>& items) const {
  std::vector<NodeId> nodes;
  for (int i : items) nodes.push_back(items_[static_cast<size_t>(i)].call);
  for (const KernelPlan& m : model_->kernels) if (m.nodes == nodes) return &m;
  return nullptr;
}

/// Calls that are one kernel in the model, or that are faster as one: they read a value that another one reads, and have a body of as many
/// nodes.
void Planner::join_calls() {
  leader_.assign(items_.size(), -1);
  if (!is_on(Pass::kBeside, target_) || !target_.has_tma || !target_.has_cluster || target_.sm != 90) return;
  const auto call = [&](size_t i) -> const Node& { return g_.node(items_[i].call); };
  const auto body = [&](size_t i) -> const Graph& { return *std::get<Call>(call(i).op).body; };
  const auto related = [&](size_t i, size_t j) {
    if (body(i).num_nodes() != body(j).num_nodes() || call(i).operands.size() != call(j).operands.size()) return false;
    return std::any_of(call(i).operands.begin(), call(i).operands.end(),
                       [&](ValueId v) { return std::count(call(j).operands.begin(), call(j).operands.end(), v) > 0; });
  };
  std::vector<std::vector<int>> groups(items_.size());   // by leader
  for (size_t i = 0; i < items_.size(); i++) {
    if (!items_[i].alive || items_[i].call < 0 || leader_[i] >= 0) continue;
    std::vector<int>& group = groups[i];
    group = {static_cast<int>(i)};
    const auto join = [&](size_t j) {
      leader_[i] = leader_[j] = static_cast<int>(i);
      group.push_back(static_cast<int>(j));
      if (!needs_itself(static_cast<int>(i), groups)) return true;
      group.pop_back();
      leader_[j] = -1;   // one needs the other
      return false;
    };
    if (model_) {
      for (const KernelPlan& k : model_->kernels)
        if (k.nodes.size() > 1 && k.nodes[0] == items_[i].call && strategy_id(k) == StrategyId::kStream)
          for (size_t j = i + 1; j < items_.size(); j++)
            if (items_[j].alive && items_[j].call >= 0 && std::count(k.nodes.begin(), k.nodes.end(), items_[j].call)) join(j);
      if (group.size() == 1) leader_[i] = -1, group.clear();
      continue;
    }
    double apart = 0;
    for (size_t j = i + 1, most = kMostWeights; j < items_.size() && group.size() < most; j++) {
      if (!items_[j].alive || items_[j].call < 0 || leader_[j] >= 0 || !related(i, j)) continue;
      const std::vector<StreamShape> shapes = shapes_beside({static_cast<int>(i), static_cast<int>(j)});
      if (!shapes.empty() && join(j)) most = kMostWeights / std::max<size_t>(1, shapes[0].weights.size());
    }
    if (group.size() > 1)
      for (int j : group) {
        KernelPlan k;
        Cost c;
        plan_call(items_[static_cast<size_t>(j)].call, k, c);
        apart += c.us;
      }
    KernelPlan together;
    Cost cost;
    if (group.size() > 1 && plan_beside(group, together, cost).empty() && cost.us < apart) continue;
    for (int j : group) leader_[static_cast<size_t>(j)] = -1;
    group.clear();
  }
}

bool Planner::needs_itself(int step, const std::vector<std::vector<int>>& groups) const {
  const auto first = [&](int i) { return leader_[static_cast<size_t>(i)] < 0 ? i : leader_[static_cast<size_t>(i)]; };
  std::vector<bool> seen(items_.size());
  std::vector<int> work{step};
  const auto visit = [&](int item) {   // false: it is a member of the step
    const int s = first(item);
    if (!seen[static_cast<size_t>(s)]) seen[static_cast<size_t>(s)] = true, work.push_back(s);
    return s != step;
  };
  const auto passes = [&](const Item& item) {
    return std::all_of(item.reads.begin(), item.reads.end(), [&](ValueId v) {
      const int p = producer_[static_cast<size_t>(v)];
      return p < 0 || visit(p);
    }) && (item.after < 0 || visit(item.after));
  };
  while (!work.empty()) {
    const int s = work.back();
    work.pop_back();
    const auto& group = groups[static_cast<size_t>(s)];
    if (group.empty() && !passes(items_[static_cast<size_t>(s)])) return true;
    if (!std::all_of(group.begin(), group.end(), [&](int i) { return passes(items_[static_cast<size_t>(i)]); })) return true;
  }
  return false;
}

namespace {

constexpr int64_t kThreadsBeside = 1024;   // of a multiprocessor, by all regions of one launch: they run at the same time
constexpr double kRegionFixedUs = 1.3;     // of a region's time, besides its launch: what it does not take again beside another one
constexpr double kLeastBesideUs = 0.1;     // that one more region in a launch costs

bool stands_alone(const RegionPlan& p) { return p.cluster == 1 && p.smem_bytes == 0; }

}  // namespace

/// Whether b may stand beside a, with as many threads in a block as a has, or, if a is still alone, both with those of either.
bool Planner::may_join(Item& a, Item& b, bool alone) {
  if (a.call >= 0 || b.call >= 0 || !a.planned || !b.planned) return false;
  RegionPlan &x = a.planned->plan, &y = b.planned->plan;
  if (!stands_alone(x) || !stands_alone(y)) return false;
  if (x.threads == y.threads) return true;
  const bool x_first = alone && x.threads > y.threads;   // small blocks serve small regions better
  if (x_first && take_block(x, y.threads, target_)) return true;
  return take_block(y, x.threads, target_) || (alone && !x_first && take_block(x, y.threads, target_));
}

/// How far from the inputs each step is: steps equally far need nothing of each other, so any of them may be one launch.
void Planner::join_regions() {
  if (!is_on(Pass::kBeside, target_)) return;
  std::vector<int> far(items_.size(), 0);
  const auto first = [&](int i) { return leader_[static_cast<size_t>(i)] < 0 ? i : leader_[static_cast<size_t>(i)]; };
  std::map<int, std::vector<int>> regions;   // by distance
  for (const std::vector<int>& step : order()) {
    int here = 0;
    for (int i : step) {
      const Item& item = items_[static_cast<size_t>(i)];
      for (ValueId v : item.reads)
        if (const int p = producer_[static_cast<size_t>(v)]; p >= 0) here = std::max(here, far[static_cast<size_t>(first(p))] + 1);
      if (item.after >= 0) here = std::max(here, far[static_cast<size_t>(first(item.after))] + 1);
    }
    for (int i : step) far[static_cast<size_t>(i)] = here;
    if (step.size() == 1 && items_[static_cast<size_t>(step[0])].call < 0) regions[here].push_back(step[0]);
  }
  const auto in_model = [&](int i, int j) {
    const auto has = [](const KernelPlan& k, const Item& item) {
      return !item.planned->nodes.empty() && std::count(k.nodes.begin(), k.nodes.end(), item.planned->nodes[0]) > 0;
    };
    return std::any_of(model_->kernels.begin(), model_->kernels.end(), [&](const KernelPlan& k) {
      return has(k, items_[static_cast<size_t>(i)]) && has(k, items_[static_cast<size_t>(j)]);
    });
  };
  for (auto& [distance, list] : regions)
    for (size_t a = 0; a < list.size(); a++) {
      if (leader_[static_cast<size_t>(list[a])] >= 0) continue;
      const RegionPlan& p = items_[static_cast<size_t>(list[a])].planned->plan;
      int64_t threads = p.blocks * p.threads;
      for (size_t b = a + 1; b < list.size(); b++) {
        const int i = list[a], j = list[b];
        Item& item = items_[static_cast<size_t>(j)];
        if (leader_[static_cast<size_t>(j)] >= 0 || !item.planned) continue;
        const int64_t more = item.planned->plan.blocks * item.planned->plan.threads;
        if (model_ ? !in_model(i, j) : threads + more > kThreadsBeside * target_.num_sms) continue;
        if (!may_join(items_[static_cast<size_t>(i)], item, leader_[static_cast<size_t>(i)] < 0)) continue;
        leader_[static_cast<size_t>(i)] = leader_[static_cast<size_t>(j)] = i;
        threads += more;
      }
    }
}

std::shared_ptr<const RegionPlan> Planner::regions_beside(const std::vector<int>& items, KernelPlan& k, Cost& cost) {
  RegionPlanned& one = *items_[static_cast<size_t>(items[0])].planned;
  cost = one.cost;
  k.nodes = one.nodes;
  RegionPlan out = std::move(one.plan);
  for (size_t i = 1; i < items.size(); i++) {
    RegionPlanned& other = *items_[static_cast<size_t>(items[i])].planned;
    const double less = std::min(cost.us, other.cost.us);
    cost.us = std::max(cost.us, other.cost.us) + std::max(kLeastBesideUs, less - target_.launch_us - kRegionFixedUs);
    cost.bytes += other.cost.bytes, cost.flops += other.cost.flops;
    k.nodes.insert(k.nodes.end(), other.nodes.begin(), other.nodes.end());
    out.beside.push_back(std::make_shared<const RegionPlan>(std::move(other.plan)));
  }
  return std::make_shared<const RegionPlan>(std::move(out));
}

}  // namespace mirage
