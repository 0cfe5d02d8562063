// Planner, second part: items, each a call or a group of values that one region computes; groups grow along producer-consumer edges as long
// as the cost model says that one kernel is no slower than two, cheap values are computed again by their readers, and reductions of much
// into little become two kernels.
#include <algorithm>
#include <cmath>
#include <limits>

#include "mirage/plan/passes.h"
#include "mirage/support/round.h"
#include "plan/planner.h"

namespace mirage {
namespace {

constexpr int kMaxStatements = 1200;   ///< statements of a merged kernel
constexpr double kByproduct = 0.9;     ///< of the time with it stored, that computing what a kernel makes besides again may take

}  // namespace

void Planner::make_items() {
  for (NodeId n = 0; n < g_.num_nodes(); n++) {
    const Node& node = g_.node(n);
    if (std::holds_alternative<Call>(node.op)) {
      Item item;
      item.call = n;
      for (ValueId o : node.operands) {
        while (!is_given(o) && !stored_[static_cast<size_t>(o)]) o = operand(o);
        item.reads.insert(o);
      }
      items_.push_back(std::move(item));
    } else if (node.num_values == 1 && stored_[static_cast<size_t>(node.first_value)]) {
      Item item;
      item.values = {node.first_value};
      items_.push_back(std::move(item));
    }
  }
  for (RegionRoot& r : copies_) {
    Item item;
    item.copies = {r};
    items_.push_back(std::move(item));
  }
  for (Item& item : items_)
    if (item.call < 0) item.reads = reads_of(item.values, item.copies);
  index_items();
  for (Item& item : items_)
    if (item.call < 0) {
      item.planned = plan_item(item, 1 << 30);
      MIRAGE_ASSERT(item.planned.has_value()) << "a single value is not a region: " << print(g_);
    }
}

std::set<ValueId> Planner::reads_of(const std::vector<ValueId>& values, const std::vector<RegionRoot>& copies) const {
  std::set<ValueId> reads, seen(values.begin(), values.end());
  std::vector<ValueId> work;
  const auto visit = [&](ValueId v) {
    if (form<Const>(v) || form<Iota>(v)) return;
    if (std::binary_search(values.begin(), values.end(), v)) return;
    if (is_given(v) || stored_[static_cast<size_t>(v)]) reads.insert(v);
    else if (seen.insert(v).second) work.push_back(v);
  };
  const auto visit_operands = [&](ValueId v) {
    auto it = reduces_.find(v);
    if (it != reduces_.end()) visit(it->second.base);
    else for (ValueId o : g_.def(v).operands) visit(o);
  };
  for (ValueId v : values) visit_operands(v);
  for (const RegionRoot& r : copies) reads.insert(r.value);
  while (!work.empty()) {
    const ValueId v = work.back();
    work.pop_back();
    visit_operands(v);
  }
  return reads;
}

void Planner::index_items() {
  producer_.assign(views_.size(), -1);
  readers_.assign(views_.size(), {});
  ranks_.clear();
  for (size_t i = 0; i < items_.size(); i++) {
    if (!items_[i].alive) continue;
    if (items_[i].split.half != RegionSplit::Half::kFirst)   // which leaves parts of its values to the second half
      for (ValueId v : items_[i].values) producer_[static_cast<size_t>(v)] = static_cast<int>(i);
    if (items_[i].call >= 0)
      for (int k = 0; k < g_.node(items_[i].call).num_values; k++)
        producer_[static_cast<size_t>(g_.node(items_[i].call).first_value + k)] = static_cast<int>(i);
    for (ValueId v : items_[i].reads) readers_[static_cast<size_t>(v)].insert(static_cast<int>(i));
  }
}

RegionGroup Planner::group_of(const Item& item, int a, int b) const {
  RegionGroup group;
  group.split = item.split;
  for (ValueId v : item.values) {
    RegionRoot root{v, outs_[static_cast<size_t>(v)]};
    const View& view = views_[static_cast<size_t>(v)];
    bool outside = false;
    for (int r : readers_[static_cast<size_t>(v)]) outside = outside || (r != a && r != b);
    if (outside && buffers_[static_cast<size_t>(view.buffer)].kind == Buffer::Kind::kWorkspace)
      root.stores.push_back({view.buffer, view.offset, g_.dims(v), view.strides, buffers_[static_cast<size_t>(view.buffer)].dtype,
                             buffers_[static_cast<size_t>(view.buffer)].tf32});
    group.roots.push_back(std::move(root));
  }
  for (const RegionRoot& r : item.copies) group.roots.push_back(r);
  // A root with stores comes first: it gives a pointwise kernel its loops.
  std::stable_sort(group.roots.begin(), group.roots.end(),
                   [](const RegionRoot& x, const RegionRoot& y) { return !x.stores.empty() && y.stores.empty(); });
  return group;
}

template <class F> void Planner::for_successors(int i, F&& visit) const {
  const Item& item = items_[static_cast<size_t>(i)];
  for (ValueId v : item.values)
    for (int s : readers_[static_cast<size_t>(v)]) visit(s);
  for (int k = 0; item.call >= 0 && k < g_.node(item.call).num_values; k++)
    for (int s : readers_[static_cast<size_t>(g_.node(item.call).first_value + k)]) visit(s);
}

void Planner::rank_items() {
  if (!ranks_.empty()) return;
  const size_t n = items_.size();
  ranks_.assign(n, -1);
  std::vector<int> waits(n, 0), ready;
  for (size_t i = 0; i < n; i++)
    for (ValueId v : items_[i].reads) waits[i] += items_[i].alive && producer_[static_cast<size_t>(v)] >= 0;
  for (size_t i = 0; i < n; i++)
    if (items_[i].alive && waits[i] == 0) ready.push_back(static_cast<int>(i));
  for (size_t at = 0; at < ready.size(); at++) {
    ranks_[static_cast<size_t>(ready[at])] = static_cast<int>(at);
    for_successors(ready[at], [&](int s) { if (--waits[static_cast<size_t>(s)] == 0) ready.push_back(s); });
  }
  MIRAGE_ASSERT(static_cast<int64_t>(ready.size()) == std::count_if(items_.begin(), items_.end(), [](const Item& i) { return i.alive; }))
      << "items wait for each other: " << print(g_);
}

bool Planner::depends_around(int from, int to) {
  rank_items();
  const int end = ranks_[static_cast<size_t>(to)];
  if (ranks_[static_cast<size_t>(from)] >= end) return false;   // no path at all
  std::vector<bool> seen(items_.size());
  std::vector<int> work;
  bool found = false;
  const auto visit = [&](int s) {
    if (ranks_[static_cast<size_t>(s)] >= end || seen[static_cast<size_t>(s)]) return;
    seen[static_cast<size_t>(s)] = true;
    work.push_back(s);
  };
  for_successors(from, visit);
  while (!found && !work.empty()) {
    const int i = work.back();
    work.pop_back();
    for_successors(i, [&](int s) { found = found || s == to; });
    for_successors(i, visit);
  }
  return found;
}

bool Planner::try_merge(int a, int b) {
  Item &x = items_[static_cast<size_t>(a)], &y = items_[static_cast<size_t>(b)];
  if (!x.alive || !y.alive || x.values.empty() || y.values.empty() || !tried_.insert({x.values, y.values}).second) return false;
  if (x.values.size() + y.values.size() > 64 || depends_around(a, b) || depends_around(b, a)) return false;
  Item item;
  std::merge(x.values.begin(), x.values.end(), y.values.begin(), y.values.end(), std::back_inserter(item.values));
  item.copies = x.copies;
  item.copies.insert(item.copies.end(), y.copies.begin(), y.copies.end());
  item.planned = plan_item(item, kMaxStatements, a, b);
  bool wanted = item.planned && price(*item.planned) <= price(*x.planned) + price(*y.planned);
  if (tape_) {
    bool& told = tape_->merges.try_emplace({x.values, y.values}, wanted).first->second;
    wanted = item.planned && told;
  }
  if (!wanted) return false;
  item.reads = reads_of(item.values, item.copies);
  for (ValueId v : x.reads) readers_[static_cast<size_t>(v)].erase(a);
  for (ValueId v : y.reads) readers_[static_cast<size_t>(v)].erase(b);
  for (ValueId v : item.reads) readers_[static_cast<size_t>(v)].insert(b);
  for (ValueId v : x.values) producer_[static_cast<size_t>(v)] = b;
  int& place = ranks_[static_cast<size_t>(b)];
  place = std::max(place, ranks_[static_cast<size_t>(a)]);
  bool is_ordered = true;   // the later place is behind all that the two read; those that read them may stand ahead of it
  for (int i : {a, b}) for_successors(i, [&](int s) { is_ordered = is_ordered && (s == b || ranks_[static_cast<size_t>(s)] > place); });
  if (!is_ordered) ranks_.clear();
  x.alive = false;
  y = std::move(item);
  return true;
}

void Planner::merge() {
  if (!is_on(Pass::kMerge, target_)) return;
  for (bool changed = true; changed;) {
    changed = false;
    for (int b = 0; b < static_cast<int>(items_.size()); b++) {
      if (!items_[static_cast<size_t>(b)].alive || items_[static_cast<size_t>(b)].call >= 0) continue;
      std::set<int> producers;
      for (ValueId v : items_[static_cast<size_t>(b)].reads)
        if (producer_[static_cast<size_t>(v)] >= 0) producers.insert(producer_[static_cast<size_t>(v)]);
      for (auto a = producers.rbegin(); a != producers.rend(); ++a) changed = try_merge(*a, b) || changed;
    }
    if (changed) continue;
    for (ValueId v = 0; v < g_.num_values() && !changed; v++) {   // kernels that read the same thing
      const std::set<int> readers = readers_[static_cast<size_t>(v)];
      for (auto i = readers.begin(); i != readers.end() && std::next(i) != readers.end(); ++i)
        changed = try_merge(*i, *std::next(i)) || changed;
    }
  }
}

std::optional<bool> Planner::told_inline(ValueId v) {
  if (!tape_ || !tape_->replays) return std::nullopt;
  const auto it = tape_->inlines.find(v);
  const size_t at = tape_->asked[v]++;
  return it != tape_->inlines.end() && at < it->second.size() && it->second[at];
}

bool Planner::try_inline(ValueId v) {
  const auto i = static_cast<size_t>(v);
  const int producer = producer_[i];
  if (!stored_[i] || reduces_.count(v) || !outs_[i].empty() || producer < 0 || items_[static_cast<size_t>(producer)].call >= 0)
    return false;
  const std::set<int> readers = readers_[i];
  Item rest = items_[static_cast<size_t>(producer)];   // what else it makes, which computes v for itself
  std::erase(rest.values, v);
  const bool is_alone = rest.values.empty() && rest.copies.empty();
  const auto us = [&](const RegionPlanned& p) { return is_alone ? p.cost.us : price(p); };
  double before = us(*rest.planned), after = 0;
  if (rest.values.size() + 1 != items_[static_cast<size_t>(producer)].values.size() || rest.split.half != RegionSplit::Half::kNone)
    return false;
  for (int r : readers) {
    if (items_[static_cast<size_t>(r)].call >= 0 || !items_[static_cast<size_t>(r)].copies.empty()) return false;
    before += us(*items_[static_cast<size_t>(r)].planned);
  }
  const View view = views_[i];
  stored_[i] = false;
  views_[i] = {};
  std::vector<RegionPlanned> planned;
  const std::optional<bool> told = told_inline(v);
  const double most = is_alone ? before : kByproduct * before;
  const auto plan_without = [&](const Item& item) {
    auto p = plan_item(item, kMaxStatements);
    if (!p || ((after += us(*p)) > most && !told)) return false;
    planned.push_back(std::move(*p));
    return true;
  };
  std::vector<std::pair<ValueId, int>> also;   // what the others read then, too: the producer may have to store it
  for (int r : readers)
    for (ValueId x : reads_of(items_[static_cast<size_t>(r)].values, {}))
      if (readers_[static_cast<size_t>(x)].insert(r).second) also.emplace_back(x, r);
  bool fits = is_alone || plan_without(rest);
  for (int r : readers) fits = fits && plan_without(items_[static_cast<size_t>(r)]);
  fits = fits && told.value_or(true);
  if (tape_ && !tape_->replays) tape_->inlines[v].push_back(fits);
  if (!fits) {
    for (const auto& [x, r] : also) readers_[static_cast<size_t>(x)].erase(r);
    stored_[i] = true;
    views_[i] = view;
    return false;
  }
  size_t next = 0;
  const auto take = [&](Item& item) {
    item.planned = std::move(planned[next++]);
    item.reads = reads_of(item.values, item.copies);
  };
  items_[static_cast<size_t>(producer)].alive = !is_alone;
  if (!is_alone) take(items_[static_cast<size_t>(producer)] = std::move(rest));
  for (int r : readers) take(items_[static_cast<size_t>(r)]);
  index_items();
  return true;
}

namespace {

/// Reductions in one pass, of which nothing else is stored.
bool may_split(const RegionPlan& p) {
  const auto follows = [](const RegionReduce& r) { return r.leader >= 0; };   // parts would have largest elements of their own
  if (p.passes.size() == 1 && std::any_of(p.passes[0].reduces.begin(), p.passes[0].reduces.end(), follows)) return false;
  return p.passes.size() == 1 && !p.passes[0].reduces.empty() && p.passes[0].stores.empty() && p.shape != RegionPlan::Shape::kPointwise &&
         p.chunk < 0;
}
/// What two kernels would take for them, about; infinite where a thread has little to do.
double two_kernels_us(const RegionPlan& p, const Cost& cost, const Target& t) {
  const int64_t along = p.shape == RegionPlan::Shape::kRow ? p.team : p.threads / p.columns;
  if (!may_split(p) || p.length / along < 16) return std::numeric_limits<double>::infinity();
  return 2 * (t.launch_us + 1.5) + static_cast<double>(cost.bytes) / (t.dram_bytes_per_us * 0.85);
}
constexpr double kTwoKernels = 0.8;   // of one kernel's time, for two of which the prices know less

}  // namespace

double Planner::price(const RegionPlanned& p) const {
  const double one = p.cost.us;
  if (!is_on(Pass::kSplit, target_)) return one;
  const double two = two_kernels_us(p.plan, p.cost, target_);
  return two < kTwoKernels * one ? two : one;
}

void Planner::split_reductions() {
  const size_t count = items_.size();
  for (size_t i = 0; i < count; i++) {
    if (!items_[i].alive || items_[i].call >= 0) continue;
    const RegionPlan& p = items_[i].planned->plan;
    if (tape_ && tape_->replays) { split_as_told(i); continue; }
    const bool row = p.shape == RegionPlan::Shape::kRow;
    const int64_t elements = reduced_elements(items_[i]), most = elements / (row ? 2048 : 256);   // each worth its partial result
    const double one = items_[i].planned->cost.us, two = two_kernels_us(p, items_[i].planned->cost, target_);
    if (std::isinf(two)) continue;
    const auto in_chunks = [&](int64_t chunks) {
      RegionSplit split;
      split.half = RegionSplit::Half::kFirst;
      split.chunk_length = round_up(ceil_div(elements, std::max<int64_t>(1, chunks)), 8);
      split.chunks = ceil_div(elements, split.chunk_length);
      return split;
    };
    RegionSplit best;
    if (p.blocks < target_.num_sms / 2) best = in_chunks(std::min<int64_t>(target_.num_sms * 2 / p.blocks, most));
    else if (two < kTwoKernels * one) {
      double least = kTwoKernels * one;
      for (int64_t chunks = 2; chunks <= std::min<int64_t>(64, most); chunks *= 2)
        if (const RegionSplit split = in_chunks(chunks); split.chunks > 1)
          if (const double us = split_us(i, split); us < least) least = us, best = split;
    }
    if (best.chunks <= 1) continue;
    if (tape_) tape_->splits[items_[i].values[0]] = best.chunk_length;
    split_item(i, best);
  }
}

void Planner::split_as_told(size_t i) {
  const auto it = items_[i].values.empty() ? tape_->splits.end() : tape_->splits.find(items_[i].values[0]);
  if (it == tape_->splits.end()) return;
  const int64_t elements = reduced_elements(items_[i]);
  RegionSplit split;
  split.half = RegionSplit::Half::kFirst;
  split.chunk_length = std::min(it->second, (elements + 15) / 16 * 8);
  split.chunks = (elements + split.chunk_length - 1) / split.chunk_length;
  if (split.chunks > 1) split_item(i, split);
}

int64_t Planner::reduced_elements(const Item& item) const {
  for (ValueId v : item.values)
    if (auto it = reduces_.find(v); it != reduces_.end()) {
      const ReduceInfo& info = it->second;
      int64_t n = info.group ? info.group : 1;
      for (int d = 0; d < g_.dims(info.base).rank() && !info.group; d++)
        if (info.reduced[static_cast<size_t>(d)]) n *= g_.dims(info.base)[d];
      return n;
    }
  return 1;
}

/// What the item stores for its own reductions alone becomes part of them, so that the first half need not wait for the second; false if
/// others read it, too.
bool Planner::inline_for_reductions(Item& item, size_t i) {
  std::vector<ValueId> reductions;
  for (ValueId v : item.values) if (reduces_.count(v)) reductions.push_back(v);
  for (;;) {
    const std::set<ValueId> reads = reads_of(reductions, {});
    const auto own = std::find_if(item.values.begin(), item.values.end(), [&](ValueId v) { return !reduces_.count(v) && reads.count(v); });
    if (own == item.values.end()) return std::none_of(reductions.begin(), reductions.end(), [&](ValueId v) { return reads.count(v) > 0; });
    const auto& readers = readers_[static_cast<size_t>(*own)];
    if (!outs_[static_cast<size_t>(*own)].empty() ||
        std::any_of(readers.begin(), readers.end(), [&](int r) { return r != static_cast<int>(i); }))
      return false;
    stored_[static_cast<size_t>(*own)] = false;
    views_[static_cast<size_t>(*own)] = {};
    item.values.erase(own);
  }
}

std::optional<std::pair<Planner::Item, Planner::Item>> Planner::halves(size_t i, RegionSplit split) {
  Item first, second = items_[i];
  if (!inline_for_reductions(second, i)) return std::nullopt;
  RegionGroup group;
  for (ValueId v : items_[i].values) {
    if (!reduces_.count(v)) continue;
    const int buffer = add_workspace(DType::kF32, {g_.dims(v).elements(), split.chunks});
    split.partial[v] = buffer;
    first.values.push_back(v);
    group.roots.push_back({v, {Access{buffer, 0, {}, {}, DType::kF32}}});
  }
  group.split = first.split = split;
  first.planned = plan_region(context_, group, 1 << 30);
  second.split = split;
  second.split.half = RegionSplit::Half::kSecond;
  second.planned = plan_region(context_, group_of(second, -1, -1), 1 << 30);
  if (!first.planned || !second.planned) return std::nullopt;
  first.reads = reads_of(first.values, {});
  second.reads = items_[i].reads;
  return std::pair{std::move(first), std::move(second)};
}

double Planner::split_us(size_t i, const RegionSplit& split) {
  const auto stored = stored_;
  const auto views = views_;
  const auto two = halves(i, split);
  stored_ = stored, views_ = views;
  return two ? two->first.planned->cost.us + two->second.planned->cost.us : std::numeric_limits<double>::infinity();
}

void Planner::split_item(size_t i, const RegionSplit& split) {
  const auto stored = stored_;
  const auto views = views_;
  auto two = halves(i, split);
  if (!two) {
    stored_ = stored, views_ = views;
    return;
  }
  two->second.after = static_cast<int>(items_.size());
  items_[i] = std::move(two->second);
  items_.push_back(std::move(two->first));
}

}  // namespace mirage
