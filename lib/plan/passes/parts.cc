// Keys and values in two parts: a step of decoding appends what it computed to a cache, and attends to both. A kernel that stores the
// concatenation reads and writes the whole cache for a few new keys; attention reads two tensors as easily as one
// (codegen/kernels/attend.cc). Between planning calls one by one and joining them (planner_kernels.cc), as runs.cc.
#include <algorithm>
#include <cmath>
#include <limits>

#include "mirage/plan/bound.h"
#include "plan/planner.h"
#include "plan/storage.h"

namespace mirage {

bool Planner::shows(ValueId o, ValueId v) const {
  while (o != v && is_view(op_of(o)) && !stored_[static_cast<size_t>(o)]) o = operand(o);
  return o == v;
}

bool Planner::model_has_parts(ValueId v) const {
  for (int r : readers_[static_cast<size_t>(v)]) {
    const NodeId call = items_[static_cast<size_t>(r)].call;
    for (const KernelPlan& k : model_->kernels) {
      const std::span<const KernelCall> calls = bound_calls(k);
      if (calls.empty() || call < 0 || k.nodes != std::vector<NodeId>{call}) continue;
      const std::vector<ValueId>& operands = g_.node(call).operands;
      for (size_t o = 0; o < operands.size(); o++) if (shows(operands[o], v) && calls[0].operands[o].second.buffer >= 0) return true;
    }
  }
  return false;
}

std::optional<View> Planner::view_in_parts(ValueId v, std::optional<ValueId>& stored) {
  std::vector<ValueId> through;   // from v down to the concatenation
  ValueId joined = v;
  const auto is_own = [&](ValueId x) { return x == v || !stored_[static_cast<size_t>(x)]; };
  while ((is_view(op_of(joined)) || form<Repeat>(joined)) && is_own(joined)) through.push_back(joined), joined = operand(joined);
  const auto* concat = form<Concat>(joined);
  if (!concat || g_.def(joined).operands.size() != 2 || !is_own(joined)) return std::nullopt;
  const DType dtype = buffers_[static_cast<size_t>(views_[static_cast<size_t>(v)].buffer)].dtype;
  std::optional<View> parts[2];
  for (size_t i = 0; i < 2; i++) {
    const ValueId of = g_.def(joined).operands[i];
    ValueId base = of;
    while (is_view(op_of(base)) && !stored_[static_cast<size_t>(base)]) base = operand(base);
    if (!is_given(base) && !stored_[static_cast<size_t>(base)]) {   // it was computed where it is appended
      if (stored || !(form<Map>(base) || form<Concat>(base))) return std::nullopt;
      if (stored_type(g_, g_.users(), base, contract_rule(program_)).dtype != dtype) return std::nullopt;
      stored = base;
      stored_[static_cast<size_t>(base)] = true;
      views_[static_cast<size_t>(base)] = {add_workspace(dtype, g_.dims(base)), 0, row_major_strides(g_.dims(base))};
    }
    parts[i] = view_with(of, false);
    if (!parts[i] || parts[i]->buffer < 0 || parts[i]->run > 0 || parts[i]->second.buffer >= 0) return std::nullopt;
    if (buffers_[static_cast<size_t>(parts[i]->buffer)].dtype != dtype) return std::nullopt;
  }
  const int64_t first = g_.dims(g_.def(joined).operands[0])[concat->dim];
  std::optional<View> out = parts[0];
  out->second = {parts[1]->buffer, parts[1]->offset, parts[1]->strides, concat->dim, first};
  for (auto at = through.rbegin(); out && at != through.rend(); ++at) out = seen_through(*at, *out);
  return out;
}

bool Planner::try_parts(size_t i, ValueId v) {
  const auto at = static_cast<size_t>(v);
  const std::set<int> readers = readers_[at];
  if (!outs_[at].empty() || readers.empty()) return false;
  if (buffers_[static_cast<size_t>(views_[at].buffer)].kind != Buffer::Kind::kWorkspace) return false;
  if (std::any_of(readers.begin(), readers.end(), [&](int r) { return items_[static_cast<size_t>(r)].call < 0; })) return false;
  if (model_ && !model_has_parts(v)) return false;
  const auto cost = [&](const Item& item) {
    double us = item.alive ? item.planned->cost.us : 0;
    for (int r : readers) {
      KernelPlan k;
      Cost of;
      us = plan_call(items_[static_cast<size_t>(r)].call, k, of).empty() ? us + of.us : std::numeric_limits<double>::infinity();
    }
    return us;
  };
  const double apart = model_ ? 0 : cost(items_[i]);
  const Item before = items_[i];
  const View whole = views_[at];
  std::map<int, std::set<ValueId>> reads;
  for (int r : readers) reads[r] = items_[static_cast<size_t>(r)].reads;
  std::optional<ValueId> stored;
  const std::optional<View> parts = view_in_parts(v, stored);
  const auto take_back = [&] {
    views_[at] = whole;
    items_[i] = before;
    for (const auto& [r, list] : reads) items_[static_cast<size_t>(r)].reads = list;
    if (stored) stored_[static_cast<size_t>(*stored)] = false, views_[static_cast<size_t>(*stored)] = {};
    index_items();
    return false;
  };
  if (!parts) return take_back();
  views_[at] = *parts;
  Item& item = items_[i];
  std::erase(item.values, v);
  if (stored) item.values.insert(std::lower_bound(item.values.begin(), item.values.end(), *stored), *stored);
  item.alive = !item.values.empty() || !item.copies.empty();
  const std::set<ValueId> of_parts = reads_of({v}, {});
  for (int r : readers) {
    const Item& reader = items_[static_cast<size_t>(r)];
    for (ValueId o : g_.node(reader.call).operands) if (shows(o, v) && !view_with(o, false)) return take_back();
    items_[static_cast<size_t>(r)].reads.erase(v);
    items_[static_cast<size_t>(r)].reads.insert(of_parts.begin(), of_parts.end());
  }
  index_items();
  if (item.alive) {
    item.planned = plan_item(item, 1 << 30);
    if (!item.planned) return take_back();
    item.reads = reads_of(item.values, item.copies);
    index_items();
  }
  if (model_) return true;
  const double together = cost(item);
  return (std::isfinite(apart) && together < apart) || take_back();
}

void Planner::place_parts() {
  if (!target_.has_tma || target_.sm != 90) return;
  for (size_t i = 0; i < items_.size(); i++) {
    if (!items_[i].alive || items_[i].call >= 0 || items_[i].split.half != RegionSplit::Half::kNone) continue;
    const std::vector<ValueId> values = items_[i].values;
    for (ValueId v : values)
      if (items_[i].alive) try_parts(i, v);
  }
}

}  // namespace mirage
