// Columns and reductions in runs: a projection's columns are heads of queries, keys or values, and an output wants them head by head, [M, H * D] as [H, M, D]; the projection behind attention reduces over heads that lie so.
// No strides describe that, but a kernel that stores columns in pairs or lines, or reads rows eight elements at a time, finds the place of a run as easily. Between planning calls one by one and joining them
// (planner_kernels.cc).
#include <algorithm>

#include "mirage/plan/tile.h"
#include "plan/planner.h"

namespace mirage {
namespace {

constexpr int64_t kRunMultiple = 32;   ///< what a kernel stores or reads at once never belongs to two runs (codegen/stream_text.cc)

struct Extent { int64_t extent, stride; };

/// The extents above 1, outermost first.
std::vector<Extent> extents(const Dims& dims, const Dims& strides) {
  std::vector<Extent> out;
  for (int d = 0; d < dims.rank(); d++) if (dims[d] > 1) out.push_back({dims[d], strides[d]});
  return out;
}

/// The view of a tensor of `dims` whose last dimension is split, as `split` with these strides; nullopt if another one is, or the parts are no runs.
std::optional<View> runs_view(const Dims& dims, int buffer, int64_t offset, const Dims& split_dims, const Dims& strides, int64_t multiple) {
  const std::vector<Extent> whole = extents(dims, dims), split = extents(split_dims, strides);
  if (whole.size() < 2 || split.size() != whole.size() + 1 || dims.back() == 1) return std::nullopt;
  const Extent &outer = split[split.size() - 2], &run = split.back();
  if (whole.back().extent != outer.extent * run.extent || run.stride != 1 || run.extent % kRunMultiple != 0 || outer.stride % multiple != 0) return std::nullopt;
  View out{buffer, offset, dims, run.extent, outer.stride};
  size_t next = 0;
  for (int d = 0; d < dims.rank(); d++) {
    const bool last = d + 1 == dims.rank();
    if (dims[d] > 1 && !last && dims[d] != split[next].extent) return std::nullopt;
    out.strides[d] = last ? 1 : dims[d] == 1 ? dims.elements() : split[next++].stride;
  }
  return out;
}

const std::vector<Access>* accesses(const KernelPlan& k, bool results) {
  if (const auto* s = std::get_if<std::shared_ptr<const StreamPlan>>(&k.body)) return results ? &(*s)->results : &(*s)->operands;
  if (const auto* t = std::get_if<std::shared_ptr<const TilePlan>>(&k.body)) return results ? &(*t)->results : &(*t)->operands;
  return nullptr;
}

}  // namespace

std::optional<View> Planner::stored_runs(size_t i, std::vector<NodeId>& calls) const {
  const ValueId moved = items_[i].values[0], c = operand(moved);
  const auto at = static_cast<size_t>(moved);
  if (!form<Call>(c) || g_.def(c).num_values != 1 || outs_[at].size() != 1 || !readers_[at].empty() || readers_[static_cast<size_t>(c)] != std::set<int>{static_cast<int>(i)}) return std::nullopt;
  const Access& to = outs_[at][0];
  if (buffers_[static_cast<size_t>(views_[static_cast<size_t>(c)].buffer)].kind != Buffer::Kind::kWorkspace || (g_.type(c).dtype != DType::kReal && g_.type(c).dtype != to.dtype)) return std::nullopt;
  calls = {g_.value(c).node};
  return runs_view(g_.dims(c), to.buffer, to.offset, to.dims, to.strides, 2);
}

std::optional<View> Planner::read_runs(size_t i, std::vector<NodeId>& calls) const {
  const ValueId moved = items_[i].values[0], from = operand(moved);
  const auto at = static_cast<size_t>(moved);
  if (!outs_[at].empty() || readers_[at].empty()) return std::nullopt;
  const std::optional<View> view = view_with(from, false);
  if (!view || view->run > 0) return std::nullopt;
  for (int r : readers_[at]) {
    const NodeId call = items_[static_cast<size_t>(r)].call;
    if (call < 0) return std::nullopt;
    for (ValueId o : g_.node(call).operands) {
      ValueId base = o;
      while (base != moved && is_view(op_of(base)) && !stored_[static_cast<size_t>(base)]) base = operand(base);
      if (o != moved && base == moved) return std::nullopt;   // through a view of it
    }
    calls.push_back(call);
  }
  return runs_view(g_.dims(moved), view->buffer, view->offset, g_.dims(from), view->strides, 8);
}

std::optional<View> Planner::made_as_read(size_t i, std::vector<NodeId>& calls) const {
  const ValueId moved = items_[i].values[0];
  const auto at = static_cast<size_t>(moved);
  if (!outs_[at].empty() || readers_[at].empty()) return std::nullopt;
  Dims strides = views_[at].strides;
  ValueId v = moved;
  while (form<Transpose>(v) || form<Reshape>(v)) {
    if (v != moved && stored_[static_cast<size_t>(v)]) return std::nullopt;
    if (const auto* t = form<Transpose>(v)) {
      Dims s = strides;
      for (int d = 0; d < s.rank(); d++) s[t->perm[static_cast<size_t>(d)]] = strides[d];
      strides = s;
    } else {
      const auto s = reshape_strides(g_.dims(v), strides, g_.dims(operand(v)));
      if (!s) return std::nullopt;
      strides = *s;
    }
    v = operand(v);
  }
  const auto c = static_cast<size_t>(v);
  if (!form<Call>(v) || readers_[c] != std::set<int>{static_cast<int>(i)} || views_[c].run > 0 || buffers_[static_cast<size_t>(views_[c].buffer)].kind != Buffer::Kind::kWorkspace) return std::nullopt;
  calls = {g_.value(v).node};
  return View{views_[at].buffer, views_[at].offset, strides};
}

bool Planner::runs_pay(size_t i, ValueId v, const View& runs, const std::vector<NodeId>& calls, bool results) {
  View& view = views_[static_cast<size_t>(v)];
  if (model_) {
    if (runs.run == 0) {   // made_as_read: nobody moves the value, and nobody reads it in runs
      const NodeId moved = g_.value(items_[i].values[0]).node;
      bool found = false;
      for (const KernelPlan& k : model_->kernels) {
        if (std::count(k.nodes.begin(), k.nodes.end(), moved)) return false;
        const std::vector<Access>* a = accesses(k, false);
        for (int r : readers_[static_cast<size_t>(items_[i].values[0])]) {
          const bool reads = std::count(k.nodes.begin(), k.nodes.end(), items_[static_cast<size_t>(r)].call);
          found = found || reads;
          if (reads && a && std::any_of(a->begin(), a->end(), [](const Access& x) { return x.run > 0; })) return false;
        }
      }
      if (found) view = runs;
      return found;
    }
    for (NodeId call : calls)
      for (const KernelPlan& k : model_->kernels) {
        const std::vector<Access>* a = std::count(k.nodes.begin(), k.nodes.end(), call) ? accesses(k, results) : nullptr;
        if (a && std::any_of(a->begin(), a->end(), [](const Access& x) { return x.run > 0; })) { view = runs; return true; }
      }
    return false;
  }
  double apart = items_[i].planned->cost.us, together = 0;
  const auto sum = [&](double& us) {
    for (NodeId call : calls) {
      KernelPlan k;
      Cost cost;
      if (!plan_call(call, k, cost).empty()) return false;
      us += cost.us;
    }
    return true;
  };
  const View before = view;
  if (!sum(apart)) return false;
  view = runs;
  if (sum(together) && together <= apart) return true;
  view = before;
  return false;
}

void Planner::place_runs() {
  if (!target_.has_tma || target_.sm != 90) return;
  for (size_t i = 0; i < items_.size(); i++) {
    const Item& item = items_[i];
    if (!item.alive || item.call >= 0 || item.values.size() != 1 || !item.copies.empty() || item.split.half != RegionSplit::Half::kNone || !form<Reshape>(item.values[0])) continue;
    const ValueId moved = item.values[0];
    std::vector<NodeId> calls;
    if (const std::optional<View> runs = stored_runs(i, calls)) {
      if (!runs_pay(i, operand(moved), *runs, calls, true)) continue;
    } else {
      calls.clear();
      const std::optional<View> made = made_as_read(i, calls);
      ValueId source = moved;
      while (made && !form<Call>(source)) source = operand(source);
      if (!made || !runs_pay(i, source, *made, calls, true)) {
        calls.clear();
        const std::optional<View> read = read_runs(i, calls);
        if (!read || !runs_pay(i, moved, *read, calls, false)) continue;
      }
      for (int r : readers_[static_cast<size_t>(moved)]) {
        std::set<ValueId>& reads = items_[static_cast<size_t>(r)].reads;
        reads.erase(moved);
        reads.insert(item.reads.begin(), item.reads.end());
      }
    }
    items_[i].alive = false;
    index_items();
  }
}

}  // namespace mirage
