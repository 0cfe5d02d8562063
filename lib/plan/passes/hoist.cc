// hoist_operands: see the header. A block of a tiled contraction computes the rows that it needs again in every column block: the bytes of
// one more pass over them are often less. Which is cheaper the cost model says.
#include "plan/passes/hoist.h"

#include <algorithm>
#include <map>
#include <set>

namespace mirage {
namespace {

/// One call: which of its values leave it, and the call without them.
class Hoister {
 public:
  Hoister(const Graph& g, const Node& call) : g_(g), call_(call), b_(*std::get<Call>(call.op).body), phase_(phases(b_)) {}

  /// Values of the body that contractions read, ascending, with the partition that a stored tensor in their place has.
  const std::map<ValueId, Partition>& find() {
    for (NodeId n = 0; n < b_.num_nodes(); n++) {
      if (!b_.form<MatMul>(n) || phase_[static_cast<size_t>(b_.node(n).first_value)] != Phase::kLoop) continue;
      for (ValueId v : b_.node(n).operands)
        if (b_.def_form<Map>(v) && phase_[static_cast<size_t>(v)] == Phase::kLoop)
          if (const auto part = partition(v)) found_[v] = *part;
    }
    return found_;
  }
  /// Accumulators of reductions of such values over the whole loop, with the partition that a stored tensor in their place has. After
  /// find(), and only beside what it found.
  const std::map<ValueId, Partition>& find_statistics() {
    for (NodeId n = 0; n < b_.num_nodes() && !found_.empty(); n++) {
      const auto* accum = b_.form<Accum>(n);
      if (!accum || accum->degree != 0) continue;
      const ValueId sum = b_.node(n).operands[0];
      const auto* reduce = b_.def_form<Reduce>(sum);
      if (!reduce || reduce->fn != accum->fn || reduce->group != 0 || phase_[static_cast<size_t>(sum)] != Phase::kLoop) continue;
      auto part = partition(b_.def(sum).operands[0]);
      if (!part || part->loop != reduce->dim || std::count(part->grid.begin(), part->grid.end(), reduce->dim) > 0) continue;
      part->loop = -1;
      statistics_[b_.node(n).first_value] = *part;
    }
    return statistics_;
  }
  std::optional<ValueId> whole_statistic(ValueId accum, Builder& to, const std::vector<ValueId>& operands) {
    const Node& reduce = b_.def(b_.def(accum).operands[0]);
    const auto x = whole(reduce.operands[0], to, operands);
    return x ? to.try_add(reduce.op, {*x}) : std::nullopt;
  }

  /// The value as the kernel level has it: the same maps over whole tensors. nullopt where these do not line up: every block adds the same
  /// four rows to four of its own, say.
  std::optional<ValueId> whole(ValueId v, Builder& to, const std::vector<ValueId>& operands) {
    if (const auto at = whole_.find(v); at != whole_.end()) return at->second;
    if (const auto* in = b_.def_form<Input>(v)) return whole_[v] = operands[static_cast<size_t>(in->param)];
    std::vector<ValueId> o;
    for (ValueId x : b_.def(v).operands) {
      const auto y = whole(x, to, operands);
      if (!y) return std::nullopt;
      o.push_back(*y);
    }
    const auto out = to.try_add(b_.def(v).op, o);
    if (out) whole_[v] = *out;
    return out;
  }

  /// The body that reads what was found, in order, as further inputs; `kept` are the params that it still has, which come first.
  Graph body(std::vector<int>& kept) const {
    std::set<ValueId> live;
    for (NodeId n : b_.outputs()) mark(b_.node(n).operands[0], live);
    Builder out(Level::kBlock, b_.launch());
    std::vector<ValueId> to(static_cast<size_t>(b_.num_values()), -1);
    std::map<ValueId, ValueId> stored;
    for (NodeId n : b_.inputs()) {
      const Input& in = *b_.form<Input>(n);
      const ValueId v = b_.node(n).first_value;
      if (!live.count(v)) continue;
      auto at = std::find(kept.begin(), kept.end(), in.param);
      if (at == kept.end()) at = kept.insert(kept.end(), in.param);
      to[static_cast<size_t>(v)] = out.add_input(static_cast<int>(at - kept.begin()), b_.type(v), in.part);
    }
    int param = static_cast<int>(kept.size());
    for (const auto& [v, part] : found_) stored[v] = out.add_input(param++, b_.type(v), part);
    for (const auto& [v, part] : statistics_) to[static_cast<size_t>(v)] = out.add_input(param++, b_.type(v), part);
    for (NodeId n = 0; n < b_.num_nodes(); n++) {
      const Node& node = b_.node(n);
      if (b_.form<Input>(n) || (node.first_value >= 0 && (!live.count(node.first_value) || statistics_.count(node.first_value)))) continue;
      std::vector<ValueId> o;
      for (ValueId v : node.operands) o.push_back(b_.form<MatMul>(n) && stored.count(v) ? stored.at(v) : to[static_cast<size_t>(v)]);
      const ValueId first = out.add(node.op, o);
      for (int i = 0; i < node.num_values; i++) to[static_cast<size_t>(node.first_value + i)] = first + i;
    }
    return std::move(out).finish();
  }

 private:
  /// What an output needs when contractions read stored values.
  void mark(ValueId v, std::set<ValueId>& live) const {
    const Node& node = b_.def(v);
    for (int i = 0; i < node.num_values; i++) live.insert(node.first_value + i);
    if (statistics_.count(v)) return;
    for (ValueId o : node.operands)
      if (!(std::holds_alternative<MatMul>(node.op) && found_.count(o)) && !live.count(o)) mark(o, live);
  }

  /// How a tensor in the place of v is cut; nullopt if v is no elementwise function of inputs and constants, or they are cut unlike each
  /// other.
  std::optional<Partition> partition(ValueId v) const {
    Partition part;
    bool tensors = false;
    std::set<std::pair<ValueId, std::set<int>>> seen;
    return cut_alike(v, v, {}, part, tensors, seen) && tensors ? std::optional(part) : std::nullopt;
  }
  /// `gone`: dimensions, counted from the last, along which what lies between v and the root is reduced, whole, before the loop.
  bool cut_alike(ValueId v, ValueId root, std::set<int> gone, Partition& part, bool& tensors,
                 std::set<std::pair<ValueId, std::set<int>>>& seen) const {
    if (b_.def_form<Const>(v) || !seen.insert({v, gone}).second) return true;   // one that is cut unlike the others has ended the walk
    if (b_.def_form<Map>(v))
      return std::all_of(b_.def(v).operands.begin(), b_.def(v).operands.end(),
                         [&](ValueId o) { return cut_alike(o, root, gone, part, tensors, seen); });
    if (const auto* r = b_.def_form<Reduce>(v); r && r->group == 0 && phase_[static_cast<size_t>(v)] == Phase::kInvariant) {
      gone.insert(b_.dims(v).rank() - r->dim);
      return cut_alike(b_.def(v).operands[0], root, gone, part, tensors, seen);
    }
    const auto* in = b_.def_form<Input>(v);
    if (!in) return false;
    tensors = true;
    const Dims &tile = b_.dims(v), &all = g_.dims(call_.operands[static_cast<size_t>(in->param)]), &wanted = b_.dims(root);
    const int shift = wanted.rank() - tile.rank();
    for (int d = 0; d < tile.rank(); d++) {
      if (gone.count(tile.rank() - d)) {
        if (tile[d] != all[d]) return false;   // a part of what is reduced
        continue;
      }
      if (all[d] > 1 && tile[d] != wanted[d + shift]) return false;   // a piece of one element is no broadcast
    }
    const auto joined = [&](int8_t& to, int8_t from) {
      if (from < 0) return true;
      const int8_t d = static_cast<int8_t>(from + shift);
      const bool fits = to < 0 || to == d;
      to = d;
      return fits;
    };
    for (size_t a = 0; a < part.grid.size(); a++) if (!joined(part.grid[a], in->part.grid[a])) return false;
    return joined(part.loop, in->part.loop);
  }

  const Graph& g_;
  const Node& call_;
  const Graph& b_;
  std::vector<Phase> phase_;
  std::map<ValueId, Partition> found_, statistics_;
  std::map<ValueId, ValueId> whole_;
};

}  // namespace

std::optional<Graph> hoist_operands(const Graph& g, bool statistics) {
  Builder b(Level::kKernel);
  bool any = false, added_up = false;
  std::vector<ValueId> to(static_cast<size_t>(g.num_values()), -1);
  for (const Node& n : g.nodes()) {
    std::vector<ValueId> operands;
    for (ValueId o : n.operands) operands.push_back(to[static_cast<size_t>(o)]);
    ValueId first = -1;
    if (const auto* in = std::get_if<Input>(&n.op)) first = b.add_input(in->param, g.type(n.first_value), in->part);
    else if (std::holds_alternative<Call>(n.op)) {
      Hoister h(g, n);
      const auto& found = h.find();
      static const std::map<ValueId, Partition> kNone;
      const auto& sums = statistics ? h.find_statistics() : kNone;
      added_up = added_up || !sums.empty();
      std::vector<int> kept;
      Op op = n.op;
      std::vector<ValueId> read = operands;
      if (!found.empty()) {
        op = Call{std::make_shared<const Graph>(h.body(kept))};
        read.clear();
        for (int p : kept) read.push_back(operands[static_cast<size_t>(p)]);
        for (const auto& [v, part] : found) {
          const auto stored = h.whole(v, b, operands);
          if (!stored) return std::nullopt;
          read.push_back(*stored);
        }
        for (const auto& [v, part] : sums) {
          const auto stored = h.whole_statistic(v, b, operands);
          if (!stored) return std::nullopt;
          read.push_back(*stored);
        }
        any = true;
      }
      const auto added = b.try_add(op, read);
      if (!added) return std::nullopt;
      first = *added;
    } else first = b.add(n.op, operands);
    for (int i = 0; i < n.num_values; i++) to[static_cast<size_t>(n.first_value + i)] = first + i;
  }
  return any && (added_up || !statistics) ? std::optional(std::move(b).finish()) : std::nullopt;
}

}  // namespace mirage
