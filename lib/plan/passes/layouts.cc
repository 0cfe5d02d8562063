// Results of calls lie in memory in the order in which the kernels behind them read: a projection of pairs to heads, [i, j, head], that a
// softmax reads as [head, i, j], is stored so. Kernels that compute elements of their own already write in their own order; a call stores
// the results that it has at any strides, where its strategy can, and its price says what that takes.
#include <algorithm>
#include <limits>
#include <numeric>

#include "plan/planner.h"

namespace mirage {
namespace {

constexpr double kLeastGainUs = 0.3;   // less is the model's noise

/// Dense strides of dimensions that follow each other, outermost first, in this order.
Dims strides_in(const Dims& dims, const std::vector<int>& order) {
  Dims out = dims;
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) out[order[i]] = stride, stride *= dims[order[i]];
  return out;
}

/// The dimensions by their strides, outermost first.
std::vector<int> order_of(const Dims& dims, const Dims& strides) {
  std::vector<int> order(static_cast<size_t>(dims.rank()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return strides[a] > strides[b]; });
  return order;
}

}  // namespace

bool Planner::may_lie_otherwise(ValueId v) const {
  const auto i = static_cast<size_t>(v);
  if (!form<Call>(v) || !outs_[i].empty() || readers_[i].empty() || views_[i].buffer < 0 || views_[i].run > 0 ||
      views_[i].second.buffer >= 0 || buffers_[static_cast<size_t>(views_[i].buffer)].kind != Buffer::Kind::kWorkspace)
    return false;
  return std::all_of(readers_[i].begin(), readers_[i].end(), [&](int r) {
    const Item& item = items_[static_cast<size_t>(r)];
    return item.call < 0 && item.copies.empty() && item.split.half == RegionSplit::Half::kNone;
  });
}

void Planner::lay(ValueId v, const Dims& strides) {
  buffers_[static_cast<size_t>(views_[static_cast<size_t>(v)].buffer)].strides = strides;
  views_[static_cast<size_t>(v)].strides = strides;
}

double Planner::cost_around(ValueId v) const {
  KernelPlan k;
  Cost call;
  if (!plan_call(g_.value(v).node, k, call).empty()) return std::numeric_limits<double>::infinity();
  double us = call.us;
  for (int r : readers_[static_cast<size_t>(v)]) {
    const auto planned = plan_item(items_[static_cast<size_t>(r)], 1 << 30);
    us += planned ? planned->cost.us : std::numeric_limits<double>::infinity();
  }
  return us;
}

bool Planner::place_layouts() {
  bool changed = false;
  for (ValueId v = 0; v < g_.num_values(); v++) {
    if (!may_lie_otherwise(v)) continue;
    const Dims dims = g_.dims(v), before = views_[static_cast<size_t>(v)].strides;
    Dims best = before;
    if (model_) {
      const View at = static_cast<size_t>(v) < model_->views.size() ? model_->views[static_cast<size_t>(v)] : View{};
      if (at.buffer >= 0 && at.run == 0) best = strides_in(dims, order_of(dims, at.strides));
    } else {
      const int buffer = views_[static_cast<size_t>(v)].buffer;
      if (std::none_of(readers_[static_cast<size_t>(v)].begin(), readers_[static_cast<size_t>(v)].end(), [&](int r) {
            return reads_scattered(items_[static_cast<size_t>(r)].planned->plan, buffer);
          }))
        continue;
      double least = cost_around(v) - kLeastGainUs;
      for (int last = 0; last + 1 < dims.rank(); last++) {
        std::vector<int> order = order_of(dims, before);
        if (dims[last] == 1) continue;
        order.erase(std::find(order.begin(), order.end(), last));
        order.push_back(last);
        lay(v, strides_in(dims, order));
        if (const double us = cost_around(v); us < least) least = us, best = views_[static_cast<size_t>(v)].strides;
      }
    }
    lay(v, best);
    if (best == before) continue;
    changed = true;
    for (int r : readers_[static_cast<size_t>(v)])
      items_[static_cast<size_t>(r)].planned = plan_item(items_[static_cast<size_t>(r)], 1 << 30);
  }
  return changed;
}

}  // namespace mirage
