// Columns and reductions in runs: a projection's columns are heads of queries, keys or values, and an output wants them head by head, [M, H
// * D] as [H, M, D]; the projection behind attention reduces over heads that lie so. No strides describe that, but a kernel that stores
//   columns in pairs or lines, or reads rows eight elements at a time, finds the place of a run as easily. Between planning calls one by
//   one and joining them
// (planner_kernels.cc).
#include <algorithm>
#include <cmath>
#include <limits>

#include "mirage/plan/bound.h"
#include "plan/planner.h"

namespace mirage {
namespace {

constexpr int64_t kRunMultiple = 32;   ///< what a kernel stores or reads at once never belongs to two runs (codegen/program/matrix_text.cc)

struct Extent { int64_t extent, stride; };

/// The extents above 1, outermost first.
std::vector<Extent> extents(const Dims& dims, const Dims& strides) {
  std::vector<Extent> out;
  for (int d = 0; d < dims.rank(); d++) if (dims[d] > 1) out.push_back({dims[d], strides[d]});
  return out;
}

/// The view of a tensor of `dims` whose last dimension is split, as `split` with these strides; nullopt if another one is, or the parts are
/// no runs.
std::optional<View> runs_view(const Dims& dims, int buffer, int64_t offset, const Dims& split_dims, const Dims& strides, int64_t multiple) {
  const std::vector<Extent> whole = extents(dims, dims), split = extents(split_dims, strides);
  if (whole.size() < 2 || split.size() != whole.size() + 1 || dims.back() == 1) return std::nullopt;
  const Extent &outer = split[split.size() - 2], &run = split.back();
  if (whole.back().extent != outer.extent * run.extent || run.stride != 1 || run.extent % kRunMultiple != 0 || outer.stride % multiple != 0)
    return std::nullopt;
  View out{buffer, offset, dims, run.extent, outer.stride};
  size_t next = 0;
  for (int d = 0; d < dims.rank(); d++) {
    const bool last = d + 1 == dims.rank();
    if (dims[d] > 1 && !last && dims[d] != split[next].extent) return std::nullopt;
    out.strides[d] = last ? 1 : dims[d] == 1 ? dims.elements() : split[next++].stride;
  }
  return out;
}

/// Whether a stream of the plan reads rows in runs for that call.
bool reads_runs(const KernelPlan& k, NodeId call) {
  const std::span<const KernelCall> calls = bound_calls(k);
  return !calls.empty() && std::count(k.nodes.begin(), k.nodes.end(), call) &&
         std::any_of(calls[0].operands.begin(), calls[0].operands.end(), [](const Access& a) { return a.run > 0; });
}

}  // namespace

bool Planner::is_copy(ValueId v) const {
  const auto* m = form<Map>(v);
  if (!m) return false;
  const DType t = g_.type(operand(v)).dtype;
  return (m->fn == MapFn::kCastF16 && t == DType::kF16) || (m->fn == MapFn::kCastBF16 && t == DType::kBF16) ||
         (m->fn == MapFn::kCastF32 && t == DType::kF32);
}

std::optional<Planner::Unmoved> Planner::stored_runs(size_t i) const {
  const ValueId moved = items_[i].values[0], c = operand(moved);
  const auto at = static_cast<size_t>(moved);
  if (!form<Call>(c) || g_.def(c).num_values != 1 || outs_[at].size() != 1 || !readers_[at].empty() ||
      readers_[static_cast<size_t>(c)] != std::set<int>{static_cast<int>(i)})
    return std::nullopt;
  const Access& to = outs_[at][0];
  if (buffers_[static_cast<size_t>(views_[static_cast<size_t>(c)].buffer)].kind != Buffer::Kind::kWorkspace ||
      (g_.type(c).dtype != DType::kReal && g_.type(c).dtype != to.dtype))
    return std::nullopt;
  const std::optional<View> view = runs_view(g_.dims(c), to.buffer, to.offset, to.dims, to.strides, 2);
  return view ? std::optional(Unmoved{c, *view, {g_.value(c).node}}) : std::nullopt;
}

std::optional<Planner::Unmoved> Planner::read_runs(size_t i) const {
  const ValueId moved = items_[i].values[0], from = operand(moved);
  const auto at = static_cast<size_t>(moved);
  if (!outs_[at].empty() || readers_[at].empty()) return std::nullopt;
  const std::optional<View> view = view_with(from, false);
  if (!view || view->run > 0) return std::nullopt;
  std::vector<NodeId> calls;
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
  const std::optional<View> runs = runs_view(g_.dims(moved), view->buffer, view->offset, g_.dims(from), view->strides, 8);
  return runs ? std::optional(Unmoved{moved, *runs, std::move(calls)}) : std::nullopt;
}

std::optional<Dims> Planner::other_lines(ValueId moved) const {
  const auto at = static_cast<size_t>(moved);
  const Dims dims = g_.dims(moved);
  const int r = dims.rank();
  const Buffer& buffer = buffers_[static_cast<size_t>(views_[at].buffer)];
  if (r < 2 || dims[r - 1] == 1 || dims[r - 2] == 1 || buffer.kind != Buffer::Kind::kWorkspace) return std::nullopt;
  if (!model_ && dims[r - 2] * dtype_bytes(buffer.dtype) % 16 != 0) return std::nullopt;
  // read by calls, as it is or transposed: not every other view has strides then
  const auto fits = [&](ValueId o) {
    while (o != moved && form<Transpose>(o) && !stored_[static_cast<size_t>(o)]) o = operand(o);
    return o == moved || stored_below(o) != moved;
  };
  for (int x : readers_[at]) {
    const NodeId call = items_[static_cast<size_t>(x)].call;
    if (call < 0 || !std::all_of(g_.node(call).operands.begin(), g_.node(call).operands.end(), fits)) return std::nullopt;
  }
  Dims turned = dims;
  std::swap(turned[r - 2], turned[r - 1]);
  Dims out = row_major_strides(turned);
  std::swap(out[r - 2], out[r - 1]);
  return out;
}

std::optional<Planner::Unmoved> Planner::made_as_read(size_t i, bool across) const {
  const ValueId moved = items_[i].values[0];
  const auto at = static_cast<size_t>(moved);
  if (!outs_[at].empty() || readers_[at].empty()) return std::nullopt;
  const std::optional<Dims> laid = across ? other_lines(moved) : std::nullopt;
  if (across && !laid) return std::nullopt;
  Dims strides = laid ? *laid : views_[at].strides;
  ValueId v = moved;
  if (is_copy(v)) v = operand(v);
  while (v == moved || !stored_[static_cast<size_t>(v)])
    if (!step_back(v, strides)) break;
  const auto c = static_cast<size_t>(v);
  if (!form<Call>(v) || readers_[c] != std::set<int>{static_cast<int>(i)} || views_[c].run > 0 ||
      buffers_[static_cast<size_t>(views_[c].buffer)].kind != Buffer::Kind::kWorkspace ||
      buffers_[static_cast<size_t>(views_[c].buffer)].dtype != buffers_[static_cast<size_t>(views_[at].buffer)].dtype)
    return std::nullopt;
  Unmoved out{v, {views_[at].buffer, views_[at].offset, strides}, {g_.value(v).node}, laid};
  for (int x : readers_[at])   // which may like one better than the other
    if (const NodeId call = items_[static_cast<size_t>(x)].call; call >= 0) out.calls.push_back(call);
  return out;
}

double Planner::cost_of_calls(const std::vector<NodeId>& calls) const {
  double us = 0;
  for (NodeId call : calls) {
    KernelPlan k;
    Cost of;
    us = plan_call(call, k, of).empty() ? us + of.us : std::numeric_limits<double>::infinity();
  }
  return us;
}

double Planner::cost_with(size_t i, const Unmoved& u) {
  const ValueId moved = items_[i].values[0];
  const View before = views_[static_cast<size_t>(u.value)];
  const Dims lines = views_[static_cast<size_t>(moved)].strides;
  if (u.laid) lay(moved, *u.laid);
  views_[static_cast<size_t>(u.value)] = u.view;
  const double us = cost_of_calls(u.calls);
  if (u.laid) lay(moved, lines);
  views_[static_cast<size_t>(u.value)] = before;
  return us;
}

std::optional<Planner::Unmoved> Planner::made_as_read(size_t i) {
  std::optional<Unmoved> as_it_is = made_as_read(i, false), across = made_as_read(i, true);
  if (!as_it_is || !across) return as_it_is ? as_it_is : across;
  if (model_) {
    const Dims& lines = model_->views[static_cast<size_t>(items_[i].values[0])].strides;
    return lines[lines.rank() - 1] < lines[lines.rank() - 2] ? as_it_is : across;
  }
  return cost_with(i, *across) < cost_with(i, *as_it_is) ? across : as_it_is;
}

bool Planner::takes(size_t i, const Unmoved& u) {
  const ValueId moved = items_[i].values[0];
  if (model_) {   // nobody moves the value there (place_runs), and a stream reads it in runs or not
    bool runs = false;
    for (int r : readers_[static_cast<size_t>(moved)])
      runs = runs || std::any_of(model_->kernels.begin(), model_->kernels.end(),
                                 [&](const KernelPlan& k) { return reads_runs(k, items_[static_cast<size_t>(r)].call); });
    if (runs && u.view.run == 0) return false;
  } else {
    const double apart = items_[i].planned->cost.us + cost_of_calls(u.calls);
    if (!std::isfinite(apart) || cost_with(i, u) > apart) return false;
  }
  if (u.laid) lay(moved, *u.laid);
  views_[static_cast<size_t>(u.value)] = u.view;
  return true;
}

void Planner::place_runs() {
  if (!target_.has_tma || target_.sm != 90) return;
  for (size_t i = 0; i < items_.size(); i++) {
    const Item& item = items_[i];
    if (!item.alive || item.call >= 0 || item.values.size() != 1 || !item.copies.empty() || item.split.half != RegionSplit::Half::kNone ||
        !(form<Reshape>(item.values[0]) || form<Transpose>(item.values[0]) || is_copy(item.values[0])))
      continue;
    const ValueId moved = item.values[0];
    const NodeId node = g_.value(moved).node;
    if (model_ && std::any_of(model_->kernels.begin(), model_->kernels.end(),
                              [&](const KernelPlan& k) { return std::count(k.nodes.begin(), k.nodes.end(), node) > 0; }))
      continue;
    for (const std::optional<Unmoved>& u : {stored_runs(i), made_as_read(i), read_runs(i)}) {
      if (!u || !takes(i, *u)) continue;
      for (int r : readers_[static_cast<size_t>(moved)]) {
        std::set<ValueId>& reads = items_[static_cast<size_t>(r)].reads;
        reads.erase(moved);
        reads.insert(item.reads.begin(), item.reads.end());
      }
      items_[i].alive = false;
      index_items();
      break;
    }
  }
}

}  // namespace mirage
