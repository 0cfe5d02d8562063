// make_plan: from a kernel-level graph to kernels in order and memory. MatMuls become calls, everything else regions (region.h), grown along producer-consumer edges as long as the cost
// model says that one kernel is no slower than two.
#include "mirage/plan/plan.h"

#include <algorithm>
#include <functional>
#include <set>

#include <fmt/format.h>

#include "mirage/plan/attend.h"
#include "mirage/plan/block.h"
#include "mirage/plan/replan.h"
#include "mirage/plan/stream.h"
#include "mirage/plan/tile.h"
#include "plan/buffers.h"
#include "plan/hoist.h"
#include "plan/region.h"
#include "plan/storage.h"

namespace mirage {
namespace {

constexpr int kMaxInlined = 150;      ///< statements that one value may cost before it is stored
constexpr int kMaxStatements = 500;   ///< statements of a merged kernel

const char* kind_of(const KernelPlan& k) {
  if (std::holds_alternative<std::shared_ptr<const StreamPlan>>(k.body)) return "stream";
  if (std::holds_alternative<std::shared_ptr<const TilePlan>>(k.body)) return "tile";
  return std::holds_alternative<std::shared_ptr<const AttendPlan>>(k.body) ? "attend" : "block";
}

DType storage(DType t) { return t == DType::kReal ? DType::kF32 : t; }

/// A matmul as a call of a block graph. A grid has one axis for batches: several batch dimensions above 1 become one, by reshapes, and by repeating an operand that broadcasts along only some of them.
ValueId add_matmul(Builder& b, ValueId x, ValueId y, const Target& target, const ContractRule& rule) {
  const int rank = b.graph().dims(x).rank(), batches = rank - 2;
  Dims whole;
  int above = 0;
  bool all_one[2] = {true, true};
  for (int d = 0; d < batches; d++) {
    whole.push_back(std::max(b.graph().dims(x)[d], b.graph().dims(y)[d]));
    above += whole[d] > 1;
    all_one[0] &= b.graph().dims(x)[d] == 1;
    all_one[1] &= b.graph().dims(y)[d] == 1;
  }
  auto call = [&](ValueId u, ValueId v) { return b.add(Call{std::make_shared<const Graph>(lower_matmul(b.graph().type(u), b.graph().type(v), target, rule))}, {u, v}); };
  if (above <= 1) return call(x, y);
  auto flatten = [&](ValueId v, bool one) {
    for (int d = 0; d < batches && !one; d++)
      if (b.graph().dims(v)[d] != whole[d]) v = b.add(Repeat{d, whole[d]}, {v});
    const Dims dims = b.graph().dims(v);
    return b.add(Reshape{{one ? 1 : whole.elements(), dims[rank - 2], dims[rank - 1]}}, {v});
  };
  const ValueId u = flatten(x, all_one[0]), v = flatten(y, all_one[1]), z = call(u, v);
  Dims out = whole;
  out.push_back(b.graph().dims(z)[1]);
  out.push_back(b.graph().dims(z)[2]);
  return b.add(Reshape{out}, {z});
}

Graph lower_matmuls(const Graph& graph, const Target& target, const ContractRule& rule) {
  const Graph g = remove_dead(graph);
  Builder b(Level::kKernel);
  std::vector<ValueId> to(static_cast<size_t>(g.num_values()), -1);
  for (const Node& n : g.nodes()) {
    std::vector<ValueId> operands;
    for (ValueId o : n.operands) operands.push_back(to[static_cast<size_t>(o)]);
    ValueId first;
    if (auto* in = std::get_if<Input>(&n.op)) first = b.add_input(in->param, g.type(n.first_value), in->part);
    else if (std::holds_alternative<MatMul>(n.op)) first = add_matmul(b, operands[0], operands[1], target, rule);
    else first = b.add(n.op, operands);
    for (int i = 0; i < n.num_values; i++) to[static_cast<size_t>(n.first_value + i)] = first + i;
  }
  return std::move(b).finish();
}

std::string identifier(const std::string& name) {
  std::string out;
  for (char c : name) out += (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ? c : '_';
  if (out.empty() || (out[0] >= '0' && out[0] <= '9')) out = "_" + out;
  return out;
}

/// A kernel in the making: a group of values that a region computes, or a call.
struct Item {
  bool alive = true;
  NodeId call = -1;
  std::vector<ValueId> values;   ///< regions: what it computes and stores or keeps; ascending
  std::vector<RegionRoot> copies;   ///< regions: stores of values that are stored elsewhere (an input that is an output)
  std::set<ValueId> reads;       ///< stored values
  RegionSplit split;
  int after = -1;                ///< a further item that must come first (the first half of a split reduction)
  std::optional<RegionPlanned> planned;
};

class Planner {
 public:
  /// tape, model: decisions are recorded or taken again, and calls are planned like the model's.
  Planner(const Program& program, Graph graph, const Target& target, Tape* tape = nullptr, const Plan* model = nullptr)
      : program_(program), g_(std::move(graph)), target_(target), tape_(tape), model_(model), views_(static_cast<size_t>(g_.num_values())), stored_(views_.size()), outs_(views_.size()),
        context_{g_, program_, target_, buffers_, views_, reduces_, tape} {}

  Planned run() {
    place_inputs();
    place_outputs();
    place_operands();
    find_reduces();
    find_shared();
    give_buffers();
    make_items();
    merge();
    for (bool changed = true; changed;) {
      changed = false;
      for (ValueId v = 0; v < g_.num_values(); v++) changed = try_inline(v) || changed;
      if (changed) merge();
    }
    split_reductions();
    return finish();
  }

 private:
  const Op& op_of(ValueId v) const { return g_.def(v).op; }
  template <class F> const F* form(ValueId v) const { return g_.def_form<F>(v); }
  ValueId operand(ValueId v) const { return g_.def(v).operands[0]; }
  bool is_given(ValueId v) const { return form<Input>(v) || form<Call>(v); }   ///< stored without a region's help

  // ---- which values are stored

  void place_inputs() {
    for (size_t i = 0; i < program_.inputs.size(); i++) {
      const TensorInfo& t = program_.inputs[i];
      buffers_.push_back({Buffer::Kind::kInput, static_cast<int>(i), t.type.dtype, t.type.dims, t.strides, 0});
    }
    for (size_t i = 0; i < program_.outputs.size(); i++) {
      const TensorInfo& t = program_.outputs[i];
      buffers_.push_back({Buffer::Kind::kOutput, static_cast<int>(i), t.type.dtype, t.type.dims, t.strides, 0});
    }
    for (NodeId n : g_.inputs()) {
      const int param = g_.form<Input>(n)->param;
      views_[static_cast<size_t>(g_.node(n).first_value)] = {param, 0, program_.inputs[static_cast<size_t>(param)].strides};
    }
  }

  /// Walks an output back through transposes and reshapes: the kernel that makes the value writes it in its final place.
  void place_outputs() {
    const auto users = g_.users();
    for (NodeId n : g_.outputs()) {
      const Output& out = *g_.form<Output>(n);
      ValueId v = g_.node(n).operands[0];
      const int buffer = static_cast<int>(program_.inputs.size()) + out.result;
      Dims strides = buffers_[static_cast<size_t>(buffer)].strides;
      bool alone = true;   // nobody but this output reads the value
      while (true) {
        alone = alone && users[static_cast<size_t>(v)].size() == 1;
        if (auto* t = form<Transpose>(v)) {
          Dims s = strides;
          for (int i = 0; i < s.rank(); i++) s[t->perm[static_cast<size_t>(i)]] = strides[i];
          strides = s;
        } else if (form<Reshape>(v)) {
          auto s = reshape_strides(g_.dims(v), strides, g_.dims(operand(v)));
          if (!s) break;
          strides = *s;
        } else break;
        v = operand(v);
      }
      const DType dtype = buffers_[static_cast<size_t>(buffer)].dtype;
      const Access access{buffer, 0, g_.dims(v), strides, dtype};
      const bool exact = storage(g_.type(v).dtype) == dtype;
      if (form<Call>(v)) {
        const DType body = g_.type(v).dtype;   // rounding to a narrower type must happen before a wider output stores it
        if (views_[static_cast<size_t>(v)].buffer < 0 && (exact || (body == DType::kReal && alone))) views_[static_cast<size_t>(v)] = {buffer, 0, strides};
        else copies_.push_back({v, {access}});
      } else if (form<Input>(v)) {
        copies_.push_back({v, {access}});
      } else {
        stored_[static_cast<size_t>(v)] = true;
        outs_[static_cast<size_t>(v)].push_back(access);
        if (exact && views_[static_cast<size_t>(v)].buffer < 0) views_[static_cast<size_t>(v)] = {buffer, 0, strides};
      }
    }
  }

  /// What a call reads must lie in memory: at best as a view of something that does anyway.
  void place_operands() {
    for (NodeId n = 0; n < g_.num_nodes(); n++) {
      if (!g_.form<Call>(n)) continue;
      for (ValueId o : g_.node(n).operands) {
        ValueId v = o;
        while (is_view(op_of(v)) && !stored_[static_cast<size_t>(v)]) v = operand(v);
        if (is_given(v) || stored_[static_cast<size_t>(v)]) {
          needed_views_.push_back(o);
          continue;
        }
        v = o;   // a region makes it: before transposes and reshapes, so that it writes in its own order
        while ((form<Transpose>(v) || form<Reshape>(v)) && !stored_[static_cast<size_t>(v)]) v = operand(v);
        stored_[static_cast<size_t>(v)] = true;
        needed_views_.push_back(o);
      }
    }
    for (ValueId o : needed_views_)   // reshapes of strided things may need a copy
      if (!can_view(o)) stored_[static_cast<size_t>(o)] = true;
  }

  bool can_view(ValueId v) const { return view_with(v, true).has_value(); }

  /// The view of a value that is stored or a view of something stored. assume: values still without a place will be dense.
  std::optional<View> view_with(ValueId v, bool assume) const {
    if (is_given(v) || stored_[static_cast<size_t>(v)]) {
      const View& at = views_[static_cast<size_t>(v)];
      if (at.buffer < 0) return assume ? std::optional(View{-1, 0, row_major_strides(g_.dims(v))}) : std::nullopt;
      return at;
    }
    if (!is_view(op_of(v))) return std::nullopt;
    auto view = view_with(operand(v), assume);
    if (!view) return std::nullopt;
    View out = *view;
    if (auto* t = form<Transpose>(v)) {
      for (int i = 0; i < out.strides.rank(); i++) out.strides[i] = view->strides[t->perm[static_cast<size_t>(i)]];
    } else if (auto* s = form<Slice>(v)) {
      out.offset += s->start * out.strides[s->dim];
      out.strides[s->dim] *= s->step;
    } else {
      auto strides = reshape_strides(g_.dims(operand(v)), view->strides, g_.dims(v));
      if (!strides) return std::nullopt;
      out.strides = *strides;
    }
    return out;
  }

  void find_reduces() {
    const auto users = g_.users();
    for (ValueId v = 0; v < g_.num_values(); v++) {
      const Reduce* r = form<Reduce>(v);
      if (!r) continue;
      const ValueId x = operand(v);
      ReduceInfo info{r->fn, x, std::vector<bool>(static_cast<size_t>(g_.dims(x).rank())), r->group == g_.dims(x)[r->dim] ? 0 : r->group};
      info.reduced[static_cast<size_t>(r->dim)] = true;
      auto before = reduces_.find(x);
      if (before != reduces_.end() && before->second.fn == r->fn && !before->second.group && !info.group && !stored_[static_cast<size_t>(x)] && users[static_cast<size_t>(x)].size() == 1) {
        info.base = before->second.base;
        for (size_t i = 0; i < info.reduced.size(); i++) info.reduced[i] = info.reduced[i] || before->second.reduced[i];
        reduces_.erase(before);
      }
      reduces_[v] = info;
    }
    for (const auto& [v, info] : reduces_) stored_[static_cast<size_t>(v)] = true;
  }

  /// Stores what several kernels would compute again, and cuts expressions that grow too long.
  void find_shared() {
    const auto users = g_.users();
    std::vector<int> uses(stored_.size());
    for (ValueId v = g_.num_values() - 1; v >= 0; v--)
      for (NodeId n : users[static_cast<size_t>(v)]) {
        const Node& node = g_.node(n);
        if (std::holds_alternative<Output>(node.op)) continue;
        uses[static_cast<size_t>(v)] += is_view(node.op) && !stored_[static_cast<size_t>(node.first_value)] ? uses[static_cast<size_t>(node.first_value)] : 1;
      }
    std::vector<int> length(stored_.size(), 1), loads(stored_.size(), 0);
    std::vector<bool> heavy(stored_.size());
    for (ValueId v = 0; v < g_.num_values(); v++) {
      const auto i = static_cast<size_t>(v);
      if (is_given(v)) { loads[i] = 1; continue; }
      if (form<Reduce>(v)) { loads[i] = 1; continue; }
      length[i] = is_view(op_of(v)) ? 0 : 1;
      for (ValueId o : g_.def(v).operands) {
        length[i] += length[static_cast<size_t>(o)];
        loads[i] += loads[static_cast<size_t>(o)];
        heavy[i] = heavy[i] || heavy[static_cast<size_t>(o)];
      }
      if (auto* m = form<Map>(v)) heavy[i] = heavy[i] || map_info(m->fn).cls == MapClass::kAtomic || m->fn == MapFn::kExp || m->fn == MapFn::kDiv || m->fn == MapFn::kSigmoid || m->fn == MapFn::kSilu;
      const bool light = !loads[i] || (loads[i] == 1 && length[i] <= 4 && !heavy[i]);
      const bool is_computation = form<Map>(v) || form<Concat>(v) || form<Repeat>(v);
      if ((is_computation && uses[i] > 1 && !light) || length[i] > kMaxInlined) stored_[i] = true;
      if (stored_[i]) length[i] = 1, loads[i] = 1, heavy[i] = false;
    }
  }

  void give_buffers() {
    const auto users = g_.users();
    const ContractRule rule = contract_rule(program_);
    for (ValueId v = 0; v < g_.num_values(); v++) {
      View& view = views_[static_cast<size_t>(v)];
      if (view.buffer >= 0 || (!stored_[static_cast<size_t>(v)] && !form<Call>(v))) continue;
      const StoredType stored = stored_type(g_, users, v, rule);
      view = {add_workspace(stored.dtype, g_.dims(v)), 0, row_major_strides(g_.dims(v))};
      buffers_.back().tf32 = stored.tf32;
    }
  }

  int add_workspace(DType dtype, const Dims& dims) {
    buffers_.push_back({Buffer::Kind::kWorkspace, 0, dtype, dims, row_major_strides(dims), 0});
    return static_cast<int>(buffers_.size()) - 1;
  }

  // ---- items

  void make_items() {
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

  /// Stored values that computing `values` reads.
  std::set<ValueId> reads_of(const std::vector<ValueId>& values, const std::vector<RegionRoot>& copies) const {
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

  void index_items() {
    producer_.assign(views_.size(), -1);
    readers_.assign(views_.size(), {});
    for (size_t i = 0; i < items_.size(); i++) {
      if (!items_[i].alive) continue;
      for (ValueId v : items_[i].values) producer_[static_cast<size_t>(v)] = static_cast<int>(i);
      if (items_[i].call >= 0)
        for (int k = 0; k < g_.node(items_[i].call).num_values; k++) producer_[static_cast<size_t>(g_.node(items_[i].call).first_value + k)] = static_cast<int>(i);
      for (ValueId v : items_[i].reads) readers_[static_cast<size_t>(v)].insert(static_cast<int>(i));
    }
  }

  /// The group that an item asks for: values that somebody outside reads (all but items a and b) or that are outputs are stored.
  RegionGroup group_of(const Item& item, int a, int b) const {
    RegionGroup group;
    group.split = item.split;
    for (ValueId v : item.values) {
      RegionRoot root{v, outs_[static_cast<size_t>(v)]};
      const View& view = views_[static_cast<size_t>(v)];
      bool outside = false;
      for (int r : readers_[static_cast<size_t>(v)]) outside = outside || (r != a && r != b);
      if (outside && buffers_[static_cast<size_t>(view.buffer)].kind == Buffer::Kind::kWorkspace)
        root.stores.push_back({view.buffer, view.offset, g_.dims(v), view.strides, buffers_[static_cast<size_t>(view.buffer)].dtype, buffers_[static_cast<size_t>(view.buffer)].tf32});
      group.roots.push_back(std::move(root));
    }
    for (const RegionRoot& r : item.copies) group.roots.push_back(r);
    // A root with stores comes first: it gives a pointwise kernel its loops.
    std::stable_sort(group.roots.begin(), group.roots.end(), [](const RegionRoot& x, const RegionRoot& y) { return !x.stores.empty() && y.stores.empty(); });
    return group;
  }
  std::optional<RegionPlanned> plan_item(const Item& item, int max_statements, int a = -1, int b = -1) const { return plan_region(context_, group_of(item, a, b), max_statements); }

  // ---- merging

  std::vector<int> successors(int i) const {
    std::set<int> out;
    for (ValueId v : items_[static_cast<size_t>(i)].values) out.insert(readers_[static_cast<size_t>(v)].begin(), readers_[static_cast<size_t>(v)].end());
    if (const NodeId call = items_[static_cast<size_t>(i)].call; call >= 0)
      for (int k = 0; k < g_.node(call).num_values; k++) {
        const auto& r = readers_[static_cast<size_t>(g_.node(call).first_value + k)];
        out.insert(r.begin(), r.end());
      }
    return {out.begin(), out.end()};
  }

  /// Whether `to` depends on `from` through at least one other item.
  bool depends_around(int from, int to) const {
    std::set<int> seen;
    std::vector<int> work;
    for (int s : successors(from))
      if (s != to && seen.insert(s).second) work.push_back(s);
    while (!work.empty()) {
      const int i = work.back();
      work.pop_back();
      for (int s : successors(i)) {
        if (s == to) return true;
        if (seen.insert(s).second) work.push_back(s);
      }
    }
    return false;
  }

  /// Makes items a (earlier) and b one kernel if that is one region and no slower.
  bool try_merge(int a, int b) {
    Item &x = items_[static_cast<size_t>(a)], &y = items_[static_cast<size_t>(b)];
    if (!x.alive || !y.alive || x.values.empty() || y.values.empty() || !tried_.insert({x.values, y.values}).second) return false;
    if (x.values.size() + y.values.size() > 64 || depends_around(a, b) || depends_around(b, a)) return false;
    Item item;
    std::merge(x.values.begin(), x.values.end(), y.values.begin(), y.values.end(), std::back_inserter(item.values));
    item.copies = x.copies;
    item.copies.insert(item.copies.end(), y.copies.begin(), y.copies.end());
    auto planned = plan_item(item, kMaxStatements, a, b);
    bool wanted = planned && planned->cost.us <= x.planned->cost.us + y.planned->cost.us;
    if (tape_) {
      bool& told = tape_->merges.try_emplace({x.values, y.values}, wanted).first->second;
      wanted = planned && told;
    }
    if (!wanted) return false;
    item.reads = reads_of(item.values, item.copies);
    item.planned = std::move(planned);
    x.alive = false;
    y = std::move(item);
    index_items();
    return true;
  }

  void merge() {
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
        for (auto i = readers.begin(); i != readers.end() && std::next(i) != readers.end(); ++i) changed = try_merge(*i, *std::next(i)) || changed;
      }
    }
  }

  /// What another planning decided when it asked this as often as this one did.
  std::optional<bool> told_inline(ValueId v) {
    if (!tape_ || !tape_->replays) return std::nullopt;
    const auto it = tape_->inlines.find(v);
    const size_t at = tape_->asked[v]++;
    return it != tape_->inlines.end() && at < it->second.size() && it->second[at];
  }

  /// Computes a stored value again in each kernel that reads it, where that is faster than a kernel that stores it: cheap functions of narrow inputs.
  bool try_inline(ValueId v) {
    const auto i = static_cast<size_t>(v);
    const int producer = producer_[i];
    if (!stored_[i] || reduces_.count(v) || !outs_[i].empty() || producer < 0 || items_[static_cast<size_t>(producer)].values.size() != 1) return false;
    const std::set<int> readers = readers_[i];
    double before = items_[static_cast<size_t>(producer)].planned->cost.us, after = 0;
    for (int r : readers) {
      if (items_[static_cast<size_t>(r)].call >= 0 || !items_[static_cast<size_t>(r)].copies.empty()) return false;
      before += items_[static_cast<size_t>(r)].planned->cost.us;
    }
    const View view = views_[i];
    stored_[i] = false;
    views_[i] = {};
    std::vector<RegionPlanned> planned;
    const std::optional<bool> told = told_inline(v);
    for (int r : readers) {
      auto p = plan_item(items_[static_cast<size_t>(r)], kMaxStatements);
      if (!p || ((after += p->cost.us) > before && !told)) break;
      planned.push_back(std::move(*p));
    }
    const bool fits = planned.size() == readers.size() && told.value_or(true);
    if (tape_ && !tape_->replays) tape_->inlines[v].push_back(fits);
    if (!fits) {
      stored_[i] = true;
      views_[i] = view;
      return false;
    }
    items_[static_cast<size_t>(producer)].alive = false;
    size_t next = 0;
    for (int r : readers) {
      items_[static_cast<size_t>(r)].planned = std::move(planned[next++]);
      items_[static_cast<size_t>(r)].reads = reads_of(items_[static_cast<size_t>(r)].values, {});
    }
    index_items();
    return true;
  }

  /// Reductions of much into little, where too few blocks would work, become two kernels.
  void split_reductions() {
    const size_t count = items_.size();
    for (size_t i = 0; i < count; i++) {
      if (!items_[i].alive || items_[i].call >= 0) continue;
      const RegionPlan& p = items_[i].planned->plan;
      if (tape_ && tape_->replays) { split_as_told(i); continue; }
      if (p.passes.size() != 1 || p.passes[0].reduces.empty() || !p.passes[0].stores.empty() || p.shape == RegionPlan::Shape::kPointwise) continue;
      const bool row = p.shape == RegionPlan::Shape::kRow;
      const int64_t along = row ? p.team : p.threads / p.columns, elements = reduced_elements(items_[i]);
      if (p.blocks >= target_.num_sms / 2 || p.length / along < 16) continue;
      RegionSplit split;
      split.half = RegionSplit::Half::kFirst;
      split.chunks = std::min<int64_t>(target_.num_sms * 2 / p.blocks, elements / (row ? 2048 : 256));   // each long enough to be worth its partial result
      if (split.chunks < 2) continue;
      split.chunk_length = (elements + split.chunks * 8 - 1) / (split.chunks * 8) * 8;
      split.chunks = (elements + split.chunk_length - 1) / split.chunk_length;
      if (split.chunks <= 1) continue;
      if (tape_) tape_->splits[items_[i].values[0]] = split.chunk_length;
      split_item(i, split);
    }
  }
  /// As at the other shape: chunks of the same length, or two shorter ones.
  void split_as_told(size_t i) {
    const auto it = items_[i].values.empty() ? tape_->splits.end() : tape_->splits.find(items_[i].values[0]);
    if (it == tape_->splits.end()) return;
    const int64_t elements = reduced_elements(items_[i]);
    RegionSplit split;
    split.half = RegionSplit::Half::kFirst;
    split.chunk_length = std::min(it->second, (elements + 15) / 16 * 8);
    split.chunks = (elements + split.chunk_length - 1) / split.chunk_length;
    if (split.chunks > 1) split_item(i, split);
  }

  /// How many elements one result of an item's reductions combines.
  int64_t reduced_elements(const Item& item) const {
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

  void split_item(size_t i, RegionSplit split) {
    Item first, second = items_[i];
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
    if (!first.planned || !second.planned) return;
    first.reads = reads_of(first.values, {});
    second.reads.clear();   // what its row statements read stays: found again below
    second.reads = items_[i].reads;
    second.after = static_cast<int>(items_.size());
    items_[i] = std::move(second);
    items_.push_back(std::move(first));
  }

  // ---- order, memory, calls

  /// Items in an order that respects what they read, earliest first by number.
  std::vector<int> order() const {
    std::vector<int> out, waiting(items_.size());
    std::vector<std::set<int>> next(items_.size());
    std::set<int> ready;
    for (size_t i = 0; i < items_.size(); i++) {
      if (!items_[i].alive) continue;
      std::set<int> before;
      for (ValueId v : items_[i].reads)
        if (producer_[static_cast<size_t>(v)] >= 0) before.insert(producer_[static_cast<size_t>(v)]);
      if (items_[i].after >= 0) before.insert(items_[i].after);
      for (int b : before) next[static_cast<size_t>(b)].insert(static_cast<int>(i));
      waiting[i] = static_cast<int>(before.size());
      if (before.empty()) ready.insert(static_cast<int>(i));
    }
    while (!ready.empty()) {
      const int i = *ready.begin();
      ready.erase(ready.begin());
      out.push_back(i);
      for (int n : next[static_cast<size_t>(i)])
        if (--waiting[static_cast<size_t>(n)] == 0) ready.insert(n);
    }
    const auto alive = std::count_if(items_.begin(), items_.end(), [](const Item& i) { return i.alive; });
    MIRAGE_ASSERT(static_cast<long>(out.size()) == alive) << "kernels depend on each other in a circle: " << print(g_);
    return out;
  }

  std::vector<int> buffers_touched(const Item& item) const {
    std::vector<int> out;
    if (item.call < 0) {
      for (const RegionAccess& a : item.planned->plan.accesses) out.push_back(a.buffer);
      return out;
    }
    const Node& n = g_.node(item.call);
    for (ValueId o : n.operands) if (!is_computed(item.call, o)) out.push_back(view_with(o, false)->buffer);
    for (int k = 0; k < n.num_values; k++) out.push_back(views_[static_cast<size_t>(n.first_value + k)].buffer);
    return out;
  }

  /// Drops workspace buffers that no kernel touches, numbers the rest anew and places them.
  int64_t place(const std::vector<int>& sequence) {
    std::vector<Lifetime> lives(buffers_.size(), {-1, -1});
    for (size_t k = 0; k < sequence.size(); k++)
      for (int b : buffers_touched(items_[static_cast<size_t>(sequence[k])])) {
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
        if (v.buffer < 0) v = {};
      }
    for (Item& item : items_)
      if (item.alive && item.call < 0)
        for (RegionAccess& a : item.planned->plan.accesses) a.buffer = to[static_cast<size_t>(a.buffer)];
    return place_buffers(buffers_, kept_lives);
  }

  /// Calls that compute positions (masks) themselves, where that is cheaper than kernels that store them.
  void drop_positions() {
    for (Item& item : items_) {
      if (!item.alive || item.call < 0) continue;
      std::set<ValueId> positions;
      for (ValueId o : g_.node(item.call).operands) if (form<Iota>(o) && stored_[static_cast<size_t>(o)]) positions.insert(o);
      if (positions.empty()) continue;
      if (model_) {
        if (!(computes_[item.call] = model_computes(item.call))) continue;
      } else {
        KernelPlan stored, computed;
        Cost with, without;
        const std::string no = plan_call(item.call, stored, with);
        computes_[item.call] = true;
        if (!plan_call(item.call, computed, without).empty() || (no.empty() && without.us > with.us + target_.launch_us)) { computes_[item.call] = false; continue; }
      }
      for (ValueId v : positions) {
        bool other = false;
        for (ValueId o : g_.node(item.call).operands) {   // through a view of it
          ValueId base = o;
          while (base != v && is_view(op_of(base)) && !stored_[static_cast<size_t>(base)]) base = operand(base);
          other = other || (o != v && base == v);
        }
        if (!other) item.reads.erase(v);
      }
    }
    index_items();
    for (Item& item : items_) {
      bool needed = item.call >= 0 || item.values.empty() || !item.copies.empty();
      for (ValueId v : item.values) needed = needed || !form<Iota>(v) || !readers_[static_cast<size_t>(v)].empty() || !outs_[static_cast<size_t>(v)].empty();
      if (!needed) item.alive = false;
    }
    index_items();
  }
  /// Whether the model's kernel of a call computes positions.
  bool model_computes(NodeId call) const {
    for (const KernelPlan& k : model_->kernels) {
      const auto* attend = std::get_if<std::shared_ptr<const AttendPlan>>(&k.body);
      if (attend && k.nodes == std::vector<NodeId>{call}) return std::any_of((*attend)->operands.begin(), (*attend)->operands.end(), [](const Access& a) { return a.position >= 0; });
    }
    return false;
  }
  bool is_computed(NodeId call, ValueId operand) const {
    const auto at = computes_.find(call);
    return at != computes_.end() && at->second && form<Iota>(operand) && stored_[static_cast<size_t>(operand)];
  }

  Planned finish() {
    drop_positions();
    const std::vector<int> sequence = order();
    Plan plan;
    plan.workspace_bytes = place(sequence);
    const std::string prefix = identifier(program_.name);
    for (int i : sequence) {
      Item& item = items_[static_cast<size_t>(i)];
      KernelPlan k;
      Cost cost;
      if (item.call >= 0) {
        const std::string reason = plan_call(item.call, k, cost);
        if (!reason.empty()) return {std::nullopt, reason};
        k.nodes = {item.call};
        k.name = fmt::format("{}_k{}_{}", prefix, plan.kernels.size(), kind_of(k));
      } else {
        static constexpr const char* kShapes[] = {"map", "row", "column"};
        cost = item.planned->cost;
        k.nodes = item.planned->nodes;
        k.name = fmt::format("{}_k{}_{}", prefix, plan.kernels.size(), kShapes[static_cast<size_t>(item.planned->plan.shape)]);
        k.body = std::make_shared<const RegionPlan>(std::move(item.planned->plan));
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
        if (auto view = view_with(v, false)) pending_.push_back({v, *view});
    for (auto& [v, view] : pending_) views_[static_cast<size_t>(v)] = view;
    plan.buffers = std::move(buffers_);
    plan.views = std::move(views_);
    plan.graph = g_;
    place_slots(plan);
    return {std::move(plan), ""};
  }

  /// Asks every strategy for a call's body and keeps the cheapest plan in k.body; the reason if none fits.
  std::string plan_call(NodeId n, KernelPlan& k, Cost& cost) const {
    const Node& node = g_.node(n);
    const auto access = [&](ValueId v) {
      const View view = *view_with(v, false);
      return Access{view.buffer, view.offset, g_.dims(v), view.strides, buffers_[static_cast<size_t>(view.buffer)].dtype, buffers_[static_cast<size_t>(view.buffer)].tf32};
    };
    std::vector<Access> operands, results;
    bool computes = false;
    for (ValueId o : node.operands) {
      operands.push_back(is_computed(n, o) ? Access{} : access(o));
      if (!is_computed(n, o)) continue;
      Access& a = operands.back();
      a.dims = g_.dims(o);
      a.strides = Dims(a.dims);
      for (int d = 0; d < a.strides.rank(); d++) a.strides[d] = 0;
      a.position = form<Iota>(o)->dim;
      computes = true;
    }
    for (int k = 0; k < node.num_values; k++) results.push_back(access(node.first_value + k));
    const Graph body = separate_sums(*std::get<Call>(node.op).body);
    if (model_) return plan_call_like(n, body, operands, results, k, cost);
    BlockPlanned block;
    StreamPlanned stream;
    TilePlanned tile;
    if (!computes) {
      block = plan_block(body, operands, results, target_, contract_rule(program_));
      stream = plan_stream(body, operands, results, target_, contract_rule(program_));
      tile = plan_tile(body, operands, results, target_, contract_rule(program_));
    }
    AttendPlanned attend = plan_attend(body, operands, results, target_);
    if (!block.plan && !stream.plan && !tile.plan && !attend.plan) return computes ? attend.reason : block.reason;
    bool first = true;
    const auto keep = [&](const auto& planned) {
      if (!planned.plan || (!first && planned.cost.us >= cost.us)) return;
      first = false;
      k.body = planned.plan;
      cost = planned.cost;
    };
    keep(block);
    keep(stream);
    keep(tile);
    keep(attend);
    return "";
  }

  /// The call's kernel of the model: itself while decisions are recorded, else its numbers over this graph's extents.
  std::string plan_call_like(NodeId n, const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results, KernelPlan& k, Cost& cost) const {
    const auto of = std::find_if(model_->kernels.begin(), model_->kernels.end(), [n](const KernelPlan& m) { return m.nodes == std::vector<NodeId>{n}; });
    if (of == model_->kernels.end()) return "the model has no kernel for a call";
    cost.us = of->predicted_us, cost.why = of->why, cost.bytes = of->bytes, cost.flops = of->flops;
    k.body = of->body;
    return tape_->replays ? replan_call(*of, body, operands, results, target_, contract_rule(program_), k, cost) : "";
  }

  const Program& program_;
  Graph g_;
  const Target& target_;
  Tape* tape_ = nullptr;
  const Plan* model_ = nullptr;
  std::vector<Buffer> buffers_;
  std::vector<View> views_;
  std::vector<bool> stored_;                    // by a region; inputs and results of calls are stored anyway
  std::vector<std::vector<Access>> outs_;       // per value, where outputs want it
  std::vector<RegionRoot> copies_;
  std::vector<ValueId> needed_views_;
  std::map<ValueId, ReduceInfo> reduces_;
  std::vector<Item> items_;
  std::vector<int> producer_;                   // per value, the item that stores it
  std::vector<std::set<int>> readers_;
  std::set<std::pair<std::vector<ValueId>, std::vector<ValueId>>> tried_;
  std::vector<std::pair<ValueId, View>> pending_;
  std::map<NodeId, bool> computes_;             // calls whose operands that are positions are not stored
  RegionContext context_;
};

}  // namespace

Planned plan_with_tape(const Program& program, const Graph& graph, const Target& target, Tape& tape, const Plan& model) { return Planner(program, remove_dead(graph), target, &tape, &model).run(); }

Planned make_plan(const Program& program, const Graph& graph, const Target& target) {
  const Graph calls = lower_matmuls(graph, target, contract_rule(program));
  Planned planned = Planner(program, calls, target).run();
  if (!target.has_tma || target.sm != 90) return planned;   // elsewhere operands are brought through registers in any case
  const std::optional<Graph> hoisted = hoist_operands(calls);
  if (!hoisted) return planned;
  Planned other = Planner(program, *hoisted, target).run();
  return other.plan && (!planned.plan || other.plan->predicted_us < planned.plan->predicted_us) ? other : planned;
}

}  // namespace mirage
