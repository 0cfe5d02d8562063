// Matches a block graph against the structure of plan/stream.h: gives every dimension its role, finds the weights, the sums over the
// reduction, and checks that all else is elementwise.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "mirage/ir/walk.h"
#include "mirage/ir/whole.h"
#include "plan/buffers.h"
#include "plan/stream/stream_internal.h"

namespace mirage {
namespace {


constexpr int64_t kMaxRank = 64;
constexpr int64_t kMostBatch = 65535;


/// One attempt. Any refusal sets `reason` and ends it.
class StreamMatcher {
 public:
  StreamMatcher(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results, const ContractRule& rule,
                int64_t max_rows, bool narrow)
      : rule_(rule), max_rows_(max_rows), narrow_(narrow) {
    p_.body = body;
    p_.narrow = narrow;
    p_.operands = operands;
    p_.results = results;
    p_.rule = rule;
  }
  bool run() { return extents() && name_axes() && check_inputs() && walk() && find_sums() && check_outputs(); }
  StreamShape take() { return std::move(p_); }
  /// Whether lines of all results that have columns lie along them.
  bool stores_along_columns() const {
    const std::vector<NodeId> all = g().outputs();
    return std::all_of(all.begin(), all.end(), [&](NodeId n) {
      const ValueId v = g().node(n).operands[0];
      const Access& a = p_.results[at(g().form<Output>(n)->result)];
      for (size_t d = 0; d < p_.axes[at(v)].size(); d++) if (p_.axes[at(v)][d] == Axis::kCol) return a.strides[static_cast<int>(d)] == 1;
      return true;
    });
  }
  std::string reason;

 private:
  using Axis = StreamAxis;
  const Graph& g() const { return p_.body; }
  bool refuse(std::string why) { reason = std::move(why); return false; }
  static size_t at(int i) { return static_cast<size_t>(i); }

  // ---- classes of dimensions: union-find over (value, dimension), joined where operators line them up
  int id(ValueId v, int d) const { return base_[at(v)] + d; }
  int find(int x) { while (parent_[at(x)] != x) x = parent_[at(x)] = parent_[at(parent_[at(x)])]; return x; }
  bool join(ValueId v, int d, ValueId w, int e) {
    const int a = find(id(v, d)), b = find(id(w, e));
    if (full_[at(a)] != full_[at(b)]) return false;
    parent_[at(std::max(a, b))] = std::min(a, b);
    return true;
  }
  int64_t full(ValueId v, int d) const { return full_[at(id(v, d))]; }
  void set_full(ValueId v, int d, int64_t x) { full_[at(id(v, d))] = x; }

  bool extents() {
    int total = 0;
    for (ValueId v = 0; v < g().num_values(); v++) { base_.push_back(total); total += g().dims(v).rank(); }
    parent_.resize(at(total));
    std::iota(parent_.begin(), parent_.end(), 0);
    full_.assign(at(total), 1);
    for (NodeId n = 0; n < g().num_nodes(); n++)
      if (g().node(n).first_value >= 0 && !node_extents(n)) return false;
    return true;
  }

  bool node_extents(NodeId n) {
    const Node& node = g().node(n);
    const ValueId v = node.first_value;
    const int rank = g().dims(v).rank();
    auto same = [&](ValueId o, int from, int to) { set_full(v, to, full(o, from)); return join(v, to, o, from); };
    if (const auto* in = g().form<Input>(n)) {
      for (int d = 0; d < rank; d++) set_full(v, d, p_.operands[at(in->param)].dims[d]);
      return true;
    }
    if (g().form<Const>(n)) return true;
    if (g().form<Map>(n)) {
      for (ValueId o : node.operands)
        for (int d = 0, shift = rank - g().dims(o).rank(); d < g().dims(o).rank(); d++)
          set_full(v, d + shift, std::max(full(v, d + shift), full(o, d)));
      for (ValueId o : node.operands)
        for (int d = 0, shift = rank - g().dims(o).rank(); d < g().dims(o).rank(); d++)
          if (full(o, d) > 1 && !join(v, d + shift, o, d)) return refuse("elementwise operands of different extents");
      return true;
    }
    if (g().form<MatMul>(n)) {
      const ValueId x = node.operands[0], y = node.operands[1];
      for (ValueId o : {x, y})
        for (int d = 0; d + 2 < rank; d++) set_full(v, d, std::max(full(v, d), full(o, d)));
      for (ValueId o : {x, y})
        for (int d = 0; d + 2 < rank; d++) if (full(o, d) > 1 && !join(v, d, o, d)) return refuse("a batch of different extents");
      return same(x, rank - 2, rank - 2) && same(y, rank - 1, rank - 1) &&
             (join(x, rank - 1, y, rank - 2) || refuse("a product of different extents"));
    }
    if (const auto* r = g().form<Reduce>(n)) {
      const ValueId o = node.operands[0];
      if (r->group > 0 && r->group != g().dims(o)[r->dim]) return refuse("a grouped reduction");
      for (int d = 0; d < rank; d++) if (d != r->dim && !same(o, d, d)) return false;
      return true;
    }
    if (const auto* t = g().form<Transpose>(n)) {
      for (int d = 0; d < rank; d++) if (!same(node.operands[0], t->perm[at(d)], d)) return false;
      return true;
    }
    if (g().form<Accum>(n)) {
      for (int d = 0; d < rank; d++) if (!same(node.operands[0], d, d)) return false;
      return true;
    }
    return refuse(std::string("no streaming form of ") + form_name(node.op));
  }

  // ---- roles
  void set_axis(int cls, Axis a) { axis_[cls] = a; }
  Axis axis(ValueId v, int d) {
    if (full(v, d) == 1) return Axis::kOne;
    auto it = axis_.find(find(id(v, d)));
    return it == axis_.end() ? Axis::kOne : it->second;
  }
  /// The stored tensor behind v's transposes, if v is nothing but that.
  NodeId stored_input(ValueId v) const {
    while (g().def_form<Transpose>(v)) v = g().def(v).operands[0];
    return g().def_form<Input>(v) ? g().value(v).node : -1;
  }
  bool is_weight(ValueId v) const {
    const NodeId n = stored_input(v);
    return n >= 0 && is16(p_.operands[at(g().form<Input>(n)->param)].dtype) && g().form<Input>(n)->part.loop >= 0;
  }
  /// The one stored 16-bit tensor with all elements of v below elementwise functions of the loop; -1: there is none, or several.
  NodeId weight_below(ValueId v) const {
    NodeId out = -1;
    int found = 0;
    find_below(g(), v, [&](ValueId x) {
      if (!g().def_form<Map>(x) && !g().def_form<Transpose>(x)) {
        const NodeId n = stored_input(x);
        int64_t elements = 1, all = 1;
        for (int d = 0; d < g().dims(x).rank(); d++) elements *= full(x, d);
        for (int d = 0; d < g().dims(v).rank(); d++) all *= full(v, d);
        if (n >= 0 && elements == all && is_weight(x)) out = n, found++;
        return Look::kPast;
      }
      return Look::kInto;
    });
    return found == 1 ? out : -1;
  }
  static bool contracts_loop(const Graph& g, NodeId n, const std::vector<Phase>& phase) {
    return g.form<MatMul>(n) && phase[at(g.node(n).first_value)] == Phase::kLoop;
  }

  /// A loop over groups: products that each sum over a dimension of their own, as many as the loop's dimension has.
  bool name_groups() {
    for (NodeId n = 0; n < g().num_nodes(); n++) {
      if (!contracts_loop(g(), n, phase_)) continue;
      const ValueId x = g().node(n).operands[0];
      const int rank = g().dims(x).rank(), c = find(id(x, rank - 1));
      if (axis_.count(c) || full_[at(c)] == 1) continue;
      bool looped = false;
      for (int d = 0; d + 2 < rank; d++) {
        auto it = axis_.find(find(id(g().node(n).first_value, d)));
        if (it == axis_.end() || it->second != Axis::kDepth) continue;
        it->second = Axis::kGroup;
        looped = true;
      }
      if (!looped) continue;
      set_axis(c, Axis::kDepth);
      p_.group = full_[at(c)];
      p_.depth *= p_.group;
      return p_.group % 32 == 0 || refuse("groups of the reduction that are no multiples of 32");
    }
    return true;
  }

  /// Products in front of the loop that may be added up with those of the loop: a second part of the reduction.
  bool is_second(NodeId n) const {
    const auto* m = g().form<MatMul>(n);
    if (!m || phase_[at(g().node(n).first_value)] != Phase::kInvariant) return false;
    return stored_input(g().node(n).operands[0]) >= 0 && stored_input(g().node(n).operands[1]) >= 0;
  }
  bool name_second() {
    for (NodeId n = 0; n < g().num_nodes(); n++) {
      if (!is_second(n)) continue;
      const ValueId v = g().node(n).first_value, x = g().node(n).operands[0];
      const int rank = g().dims(v).rank(), c = find(id(x, rank - 1));
      if (full_[at(c)] == 1 || (axis(v, rank - 1) != Axis::kCol && axis(v, rank - 2) != Axis::kCol)) continue;
      if (axis_.count(c) && axis_[c] != Axis::kSecond) continue;
      set_axis(c, Axis::kSecond);
      if (p_.second && p_.second != full_[at(c)]) return refuse("reductions of three different extents");
      p_.second = full_[at(c)];
    }
    if (p_.second && (p_.group || p_.batch > 1)) return refuse("a reduction of two parts, in groups or batches");
    p_.depth += p_.second;
    return true;
  }

  /// At most one dimension of products stands beside their two.
  bool name_batch() {
    int batch = -1;
    for (NodeId n = 0; n < g().num_nodes(); n++) {
      if (!g().form<MatMul>(n)) continue;
      const ValueId v = g().node(n).first_value;
      for (int d = 0; d + 2 < g().dims(v).rank(); d++) {
        if (full(v, d) == 1) continue;
        const int c = find(id(v, d));
        if (const auto it = axis_.find(c); it != axis_.end() && it->second == Axis::kGroup) continue;
        if (batch >= 0 && c != batch) return refuse("products of several batch dimensions");
        batch = c;
      }
    }
    if (batch < 0) return true;
    if (axis_.count(batch)) return refuse("a batch that is reduced");
    set_axis(batch, Axis::kBatch);
    p_.batch = full_[at(batch)];
    return p_.batch <= kMostBatch || refuse("a batch beyond a grid's second axis");
  }

  /// Columns of a weight that the loop computes, where they are more than what stands beside them: few rows, though stored, are no weight.
  void name_made_columns(int& cols, int& rows) {
    if (narrow_) return;
    for (NodeId n = 0; n < g().num_nodes(); n++) {
      if (!contracts_loop(g(), n, phase_)) continue;
      const ValueId v = g().node(n).first_value;
      const int r = g().dims(v).rank();
      for (int side = 0; side < 2; side++) {
        const ValueId operand = g().node(n).operands[at(side)];
        if (is_weight(operand) || weight_below(operand) < 0) continue;
        const int free = find(id(v, r - 2 + side)), other = find(id(v, r - 1 - side));
        if (cols < 0 || (cols == other && full_[at(free)] > full_[at(cols)])) cols = free, rows = other;
      }
    }
  }

  bool name_axes() {
    phase_ = phases(g());
    users_ = g().users();
    int64_t depth = 0;
    for (NodeId n : g().inputs()) {
      const Input& in = *g().form<Input>(n);
      if (in.part.loop < 0) continue;
      const ValueId v = g().node(n).first_value;
      if (depth && full(v, in.part.loop) != depth) return refuse("loops over different extents");
      depth = full(v, in.part.loop);
      if (depth > 1) set_axis(find(id(v, in.part.loop)), Axis::kDepth);
    }
    p_.depth = depth;
    if (!name_groups() || p_.depth < 8 || !name_batch()) return reason.empty() ? refuse("a reduction over fewer than 8") : false;
    // Columns: the widest free dimension of a stored operand of a product in the loop; or the narrowest.
    int cols = -1, rows = -1;
    for (NodeId n = 0; n < g().num_nodes(); n++) {
      if (!contracts_loop(g(), n, phase_)) continue;
      const ValueId v = g().node(n).first_value;
      const int r = g().dims(v).rank();
      for (int side = 0; side < 2; side++) {
        if (!is_weight(g().node(n).operands[at(side)])) continue;
        const int free = find(id(v, r - 2 + side)), other = find(id(v, r - 1 - side));
        if (cols < 0 || (narrow_ ? full_[at(free)] < full_[at(cols)] : full_[at(free)] > full_[at(cols)]) ||
            (side == 1 && other == cols && full_[at(free)] == full_[at(cols)]))
          cols = free, rows = other;
      }
    }
    name_made_columns(cols, rows);
    if (cols < 0) return refuse("no product of a stored 16-bit tensor in the loop");
    if (full_[at(cols)] < 8 || axis_.count(cols)) return refuse("no columns");
    set_axis(cols, Axis::kCol);
    p_.cols = full_[at(cols)];
    if (full_[at(rows)] > 1) {
      if (axis_.count(rows)) return refuse("rows that are columns or reduced");
      set_axis(rows, Axis::kRow);
      p_.rows = full_[at(rows)];
    }
    if (!name_second() || p_.rows > max_rows_) return !reason.empty() ? false : refuse("more than " + std::to_string(max_rows_) + " rows");
    // Weights whose products never meet have columns of their own; what one axis of the grid splits alike is alike.
    for (NodeId n : g().inputs()) {
      const Input& in = *g().form<Input>(n);
      for (size_t a = 0; a < 3; a++) {
        if (in.part.grid[a] < 0 || find(id(g().node(n).first_value, in.part.grid[a])) != cols) continue;
        for (NodeId m : g().inputs()) {
          const int8_t d = g().form<Input>(m)->part.grid[a];
          if (d < 0 || full(g().node(m).first_value, d) != p_.cols) continue;
          if (const int c = find(id(g().node(m).first_value, d)); !axis_.count(c)) set_axis(c, Axis::kCol);
        }
      }
    }
    // A low rank: the free dimension of a further product that is neither.
    for (NodeId n = 0; n < g().num_nodes(); n++) {
      if (!contracts_loop(g(), n, phase_)) continue;
      const ValueId v = g().node(n).first_value;
      const int r = g().dims(v).rank();
      for (int d : {r - 2, r - 1}) {
        const int c = find(id(v, d));
        if (full_[at(c)] > 1 && !axis_.count(c)) set_axis(c, Axis::kRank);
      }
    }
    // What an input has besides is reduced before the loop.
    for (NodeId n : g().inputs()) {
      const ValueId v = g().node(n).first_value;
      for (int d = 0; d < g().dims(v).rank(); d++)
        if (const int c = find(id(v, d)); full_[at(c)] > 1 && !axis_.count(c) && full_[at(c)] % 8 == 0) set_axis(c, Axis::kWhole);
    }
    for (ValueId v = 0; v < g().num_values(); v++) {
      std::vector<Axis> a;
      for (int d = 0; d < g().dims(v).rank(); d++) a.push_back(axis(v, d));
      p_.axes.push_back(a);
    }
    return true;
  }

  /// Streams bring lines that begin at any element; tiles do not.
  bool may_be_uneven() const { return max_rows_ == kMaxStreamRows; }
  bool has(ValueId v, Axis a) const { return std::count(p_.axes[at(v)].begin(), p_.axes[at(v)].end(), a) > 0; }
  bool only(ValueId v, std::initializer_list<Axis> allowed) const {
    for (Axis a : p_.axes[at(v)])
      if (a != Axis::kOne && a != Axis::kBatch && std::find(allowed.begin(), allowed.end(), a) == allowed.end()) return false;
    return true;
  }

  /// Every dimension of an input has a role, and the grid splits rows and columns only.
  bool check_inputs() {
    for (NodeId n : g().inputs()) {
      const Input& in = *g().form<Input>(n);
      const ValueId v = g().node(n).first_value;
      std::map<Axis, int> seen;
      for (int d = 0; d < g().dims(v).rank(); d++) {
        const Axis a = p_.axes[at(v)][at(d)];
        if (full(v, d) > 1 && a == Axis::kOne) return refuse("a dimension that is no row, column, reduction or rank");
        if (a != Axis::kOne && ++seen[a] > 1) return refuse("a tensor with two dimensions of one role");
        bool grid = false;
        for (int8_t x : in.part.grid) grid |= x == d;
        if (grid && a != Axis::kRow && a != Axis::kCol && a != Axis::kBatch && full(v, d) > 1) return refuse("a grid over the reduction");
        if ((in.part.loop == d) != (a == (p_.group ? Axis::kGroup : Axis::kDepth))) return refuse("a loop over part of the reductions");
      }
      if (p_.group && has(v, Axis::kDepth) && (!has(v, Axis::kGroup) || stride(n, Axis::kGroup) != p_.group * stride(n, Axis::kDepth)))
        return refuse("groups that do not lie one behind the other");
      if (p_.group && p_.operands[at(in.param)].run != 0) return refuse("groups of a tensor in runs");
      if (p_.operands[at(in.param)].run == 0) continue;
      const Axis last = p_.axes[at(v)].back();
      if ((last != Axis::kDepth && last != Axis::kWhole) || !has(v, Axis::kRow) || has(v, Axis::kCol) || has(v, Axis::kRank))
        return refuse("a tensor in runs that is no row to be reduced");
    }
    return true;
  }

  // ---- operators, in order
  bool walk() {
    for (NodeId n = 0; n < g().num_nodes(); n++) {
      const Node& node = g().node(n);
      const ValueId v = node.first_value;
      if (v < 0 || g().form<Input>(n) || g().form<Const>(n) || g().form<Transpose>(n)) continue;
      if (g().form<Map>(n)) {
        // product(), contraction() and statistic() say what else can be
        if (phase_[at(v)] == Phase::kLoop && !only(v, {Axis::kRow, Axis::kDepth, Axis::kGroup}) &&
            !only(v, {Axis::kCol, Axis::kDepth, Axis::kGroup}) && !(p_.group && only(v, {Axis::kRow, Axis::kCol, Axis::kGroup})))
          return refuse("elementwise work on the weights");
        const bool early = phase_[at(v)] == Phase::kInvariant && only(v, {Axis::kRow, Axis::kWhole});
        // product() says whether it can be
        const bool gained =
            (g().form<Map>(n)->fn == MapFn::kMul || g().form<Map>(n)->fn == MapFn::kNeg) && only(v, {Axis::kRow, Axis::kRank});
        if (phase_[at(v)] != Phase::kLoop && !early && !gained && !only(v, {Axis::kRow, Axis::kCol}))
          return refuse("elementwise work on a low-rank sum");
        continue;
      }
      if (g().form<Accum>(n)) {
        const ValueId o = node.operands[0];
        // (one whose groups are summed behind the loop is a contraction's, or leads to no result)
        if (!g().def_form<MatMul>(o) && !g().def_form<Reduce>(o) && !p_.group) return refuse("an elementwise accumulator");
        continue;
      }
      if (g().form<Reduce>(n)) { if (!statistic(n)) return false; continue; }
      const bool fits = phase_[at(v)] == Phase::kLoop ? contraction(n) : p_.second && is_second(n) ? second(n) : product(n);
      if (!fits) return false;
    }
    if (p_.contractions.empty()) return refuse("no contraction");
    // All columns come in one way: a place of the ring that tensor copies and threads wrote in turn would need a fence between the two (PTX
    // ISA, async proxy).
    if (p_.uneven())
      for (StreamWeight& w : p_.weights) w.uneven = w.free == Axis::kCol;
    return true;
  }

  /// The accumulator that is the one use of v.
  ValueId accumulator(ValueId v, ReduceFn fn) const {
    const auto& u = users_[at(v)];
    if (u.size() != 1) return -1;
    const auto* a = g().form<Accum>(u[0]);
    return a && a->fn == fn && a->degree == 0 ? g().node(u[0]).first_value : -1;   // not one that follows a running maximum
  }

  bool statistic(NodeId n) {
    const Node& node = g().node(n);
    const Reduce& r = *g().form<Reduce>(n);
    const ValueId o = node.operands[0];
    if (p_.axes[at(o)][at(r.dim)] == Axis::kGroup) return sum_of_groups(n);
    const ValueId sum =
        p_.group && phase_[at(o)] == Phase::kLoop ? over_groups(node.first_value, r.fn) : accumulator(node.first_value, r.fn);
    if (p_.axes[at(o)][at(r.dim)] == Axis::kWhole && phase_[at(o)] == Phase::kInvariant && only(o, {Axis::kRow, Axis::kWhole})) {
      if (!small_leaves(o)) return false;
      p_.early.push_back({node.first_value, o, r.fn});
      return true;
    }
    if (p_.axes[at(o)][at(r.dim)] != Axis::kDepth || phase_[at(o)] != Phase::kLoop) return refuse("a reduction along something else");
    if (sum < 0) return refuse("a reduction whose result is used inside the loop");
    if (!only(o, {Axis::kRow, Axis::kDepth, Axis::kGroup}) || !small_leaves(o))
      return reason.empty() ? refuse("a reduction of the weights") : false;
    p_.statistics.push_back({sum, o, r.fn});
    return true;
  }

  int64_t stride(NodeId input, Axis a) const {
    const ValueId v = g().node(input).first_value;
    const Access& x = p_.operands[at(g().form<Input>(input)->param)];
    for (size_t d = 0; d < p_.axes[at(v)].size(); d++) if (p_.axes[at(v)][d] == a) return x.strides[static_cast<int>(d)];
    return 0;
  }
  const Access& access(NodeId input) const { return p_.operands[at(g().form<Input>(input)->param)]; }

  /// Inputs behind an elementwise expression of the loop: eight neighbours along the reduction are one or two 16-byte words.
  bool is_early(ValueId v) const {
    return std::any_of(p_.early.begin(), p_.early.end(), [&](const StreamStatistic& s) { return s.result == v; });
  }
  bool small_leaves(ValueId v) {
    return !find_below(g(), v, [&](ValueId x) {
      if (is_early(x)) return Look::kPast;
      const auto* in = g().def_form<Input>(x);
      return !in || small_input(x, *in) ? Look::kInto : Look::kFound;
    });
  }
  bool small_input(ValueId v, const Input& in) {
    const NodeId n = g().value(v).node;
    const Access& a = p_.operands[at(in.param)];
    if (a.dtype == DType::kBool) return refuse("bools in the loop");
    if (has(v, Axis::kGroup) && !has(v, Axis::kDepth)) return refuse("rows scaled by group");
    const Axis along = has(v, Axis::kDepth) ? Axis::kDepth : Axis::kWhole;
    if (!has(v, along)) return true;
    // Lines across the reduction: tiles take an operand so that is multiplied as it is (plan/tile/tile.cc).
    const bool across = n == multiplied_ && !may_be_uneven() && along == Axis::kDepth && is16(a.dtype) && a.run == 0 &&
                        stride(n, Axis::kRow) == 1 && stride(n, along) % 8 == 0 && stride(n, Axis::kBatch) % 8 == 0 && a.offset % 8 == 0;
    if (across) return true;
    if (stride(n, along) != 1) return refuse("a small operand without lines along the reduction");
    const bool even = a.offset % 8 == 0 && stride(n, Axis::kRow) % 8 == 0 && stride(n, Axis::kBatch) % 8 == 0;
    if (!even && (!may_be_uneven() || along == Axis::kWhole)) return refuse("a small operand without aligned lines along the reduction");
    if (a.run != 0 && (!even || p_.depth % 8)) return refuse("a small operand in runs that would be read in pieces");
    return true;
  }

  // ---- groups: sums of what is summed in each
  /// What adds v, one number for each group, up over all of them, in the loop or behind it.
  ValueId over_groups(ValueId v, ReduceFn fn) const {
    const auto reduced = [&](ValueId x) -> ValueId {  // the one reader of x, if it reduces groups
      if (users_[at(x)].size() != 1) return -1;
      const NodeId u = users_[at(x)][0];
      const auto* r = g().form<Reduce>(u);
      return r && r->fn == fn && p_.axes[at(x)][at(r->dim)] == Axis::kGroup ? g().node(u).first_value : -1;
    };
    if (const ValueId in = reduced(v); in >= 0) return accumulator(in, fn);
    const ValueId sum = accumulator(v, fn);
    return sum >= 0 ? reduced(sum) : -1;
  }
  /// A reduction over groups: right if it is what a statistic or a contraction ends in.
  bool sum_of_groups(NodeId n) {
    const ValueId v = g().node(n).first_value, sum = accumulator(v, g().form<Reduce>(n)->fn);
    const auto is = [&](ValueId x) { return x >= 0 && (x == v || x == sum); };
    return std::any_of(p_.statistics.begin(), p_.statistics.end(), [&](const StreamStatistic& s) { return is(s.result); }) ||
           std::any_of(p_.contractions.begin(), p_.contractions.end(), [&](const StreamContraction& c) { return is(c.sum); }) ||
           refuse("a reduction of groups that nothing was reduced in");
  }
  /// Inputs, in the loop, that differ by column and group.
  bool is_factor(ValueId v) {
    return !find_below(g(), v, [&](ValueId x) {
      const auto* in = g().def_form<Input>(x);
      if (!in) return g().def_form<Map>(x) || g().def_form<Transpose>(x) || g().def_form<Const>(x) ? Look::kInto : Look::kFound;
      return only(x, {Axis::kCol, Axis::kGroup}) && p_.operands[at(in->param)].dtype != DType::kBool ? Look::kPast : Look::kFound;
    });
  }
  /// The accumulator of the product c.node: of its own elements, or of each group's times what is_factor() says.
  bool find_sum(StreamContraction& c) {
    const ValueId product = g().node(c.node).first_value;
    if (!p_.group) {
      c.sum = accumulator(product, ReduceFn::kSum);
      return c.sum >= 0 || refuse("a product that is used inside the loop");
    }
    ValueId v = product;
    while (users_[at(v)].size() == 1) {
      const NodeId u = users_[at(v)][0];
      const auto* m = g().form<Map>(u);
      if (!m && !g().form<Transpose>(u)) break;
      if (m && m->fn != MapFn::kMul && m->fn != MapFn::kDiv && m->fn != MapFn::kNeg) return refuse("a product whose groups are not scaled");
      const auto& o = g().node(u).operands;
      if (m && o.size() == 2 && (o[0] == o[1] || (m->fn == MapFn::kDiv && o[0] != v) || !is_factor(o[0] == v ? o[1] : o[0])))
        return refuse("a product whose groups are scaled by something else than columns");
      v = g().node(u).first_value;
    }
    if (v != product) c.factored = v;
    c.sum = over_groups(v, ReduceFn::kSum);
    return c.sum >= 0 || refuse("a product that is used inside the loop");
  }
  /// The weight's operand, if it is computed: of what and in which type.
  bool find_made(StreamContraction& c, ValueId operand) {
    if (stored_input(operand) >= 0) return true;
    c.made = operand;
    const NodeId stored = p_.weights[at(c.weight)].input;
    const bool known = !find_below(g(), operand, [&](ValueId x) {
      if (g().def_form<Map>(x) || g().def_form<Transpose>(x) || g().def_form<Const>(x)) return Look::kInto;
      const bool factor = g().def_form<Input>(x) && is_factor(x);
      return factor || (g().def_form<Input>(x) && g().value(x).node == stored) ? Look::kPast : Look::kFound;
    });
    if (!known) return refuse("weights computed of something else than columns");
    if (p_.weights[at(c.weight)].uneven) return refuse("computed weights whose lines begin anywhere");
    return c.type != ContractType::kTF32 || refuse("computed weights in TF32");
  }

  bool contraction(NodeId n) {
    const Node& node = g().node(n);
    const ValueId v = node.first_value;
    const int rank = g().dims(v).rank();
    StreamContraction c;
    c.node = n;
    if (!find_sum(c)) return false;
    if (p_.group && !has(v, Axis::kGroup)) return refuse("a product of one group beside products of all");
    if (p_.axes[at(node.operands[0])][at(rank - 1)] != Axis::kDepth) return refuse("a product over something else inside the loop");
    int side = -1;   // of the weight
    for (int s = 0; s < 2; s++) {
      const Axis a = p_.axes[at(v)][at(rank - 2 + s)];
      if ((a == Axis::kCol || a == Axis::kRank) && is_weight(node.operands[at(s)])) side = s;
    }
    for (int s = 0; s < 2 && side < 0; s++)
      if (p_.axes[at(v)][at(rank - 2 + s)] == Axis::kCol && weight_below(node.operands[at(s)]) >= 0) side = s;
    if (side < 0) return refuse("a product without a weight");
    const Axis free = p_.axes[at(v)][at(rank - 2 + side)], other = p_.axes[at(v)][at(rank - 1 - side)];
    if (other != Axis::kRow && other != Axis::kOne) return refuse("a product of two weights");
    const ValueId operand = node.operands[at(side)];
    c.small = node.operands[at(1 - side)];
    c.weight = weight(is_weight(operand) ? stored_input(operand) : weight_below(operand), free);
    if (c.weight < 0) return false;
    multiplied_ = stored_input(c.small);
    const bool is_small = only(c.small, {Axis::kRow, Axis::kDepth, Axis::kGroup}) && small_leaves(c.small);
    multiplied_ = -1;
    if (!is_small)
      return reason.empty() ? refuse("a product of two weights") : false;
    c.type = contract_type(g().type(c.small).dtype, g().type(node.operands[at(side)]).dtype, rule_);
    if (c.type == ContractType::kF32) return refuse("a product in float32");
    if (c.type != ContractType::kTF32 &&
        access(p_.weights[at(c.weight)].input).dtype != (c.type == ContractType::kF16 ? DType::kF16 : DType::kBF16))
      return refuse("a weight that would be rounded");
    if (!find_made(c, operand)) return false;
    p_.contractions.push_back(c);
    return true;
  }

  /// A product of the reduction's second part.
  bool second(NodeId n) {
    const Node& node = g().node(n);
    const ValueId v = node.first_value;
    const int rank = g().dims(v).rank(), side = p_.axes[at(v)][at(rank - 1)] == Axis::kCol ? 1 : 0;
    const Axis other = p_.axes[at(v)][at(rank - 1 - side)];
    const NodeId rows = stored_input(node.operands[at(1 - side)]), columns = stored_input(node.operands[at(side)]);
    if (p_.axes[at(v)][at(rank - 2 + side)] != Axis::kCol || (other != Axis::kRow && other != Axis::kOne))
      return refuse("a product in front of the loop of something else than rows and columns");
    const Access &x = access(rows), &w = access(columns);
    if (!is16(x.dtype) || x.dtype != w.dtype) return refuse("a second part of the reduction in other types");
    if (stride(rows, Axis::kSecond) != 1 || x.offset % 8 || stride(rows, Axis::kRow) % 8 || x.run != 0)
      return refuse("a second part of the reduction without aligned lines");
    if (p_.second_input >= 0 && p_.second_input != rows) return refuse("a second part of the reduction with different rows");
    p_.second_input = rows;
    StreamContraction c;
    c.node = n;
    c.sum = v;
    c.weight = weight(columns, Axis::kCol, Axis::kSecond);
    if (c.weight < 0) return false;
    seconds_.push_back(c);
    return true;
  }
  /// What is added up of both parts has one sum; the products of the second part go.
  bool join_parts(std::map<std::pair<bool, int>, double>& t) {
    int first = -1, other = -1;
    for (const auto& [k, f] : t) {
      if (k.first) return refuse("low ranks beside a reduction of two parts");
      int& which = k.second < kSeconds ? first : other;
      if (which >= 0) return refuse("several products of one part of a reduction in one sum");
      which = k.second;
    }
    if (first < 0 || other < 0 || t[{false, first}] != t[{false, other}]) return refuse("parts of a reduction that are not added up");
    StreamWeight& w = p_.weights[at(seconds_[at(other - kSeconds)].weight)];
    const StreamContraction& c = p_.contractions[at(first)];
    const StreamWeight& of = p_.weights[at(c.weight)];
    const NodeId rows = stored_input(c.small);
    if (w.instead_of >= 0 || w.depth_major != of.depth_major || of.free != Axis::kCol || w.uneven || of.uneven ||
        c.type == ContractType::kTF32 || rows < 0 || access(rows).dtype != access(w.input).dtype || access(rows).run != 0 ||
        stored_input(p_.contractions[0].small) != rows || stream_row_unit(p_, rows) != 8)
      return refuse("parts of a reduction that lie in different ways");
    w.instead_of = c.weight;
    t.erase({false, other});
    return true;
  }
  /// Every product of one part has one of the other.
  bool parts_fit() {
    if (!p_.second) return true;
    if (p_.contractions.size() != seconds_.size() || p_.weights.size() != 2 * seconds_.size() || !p_.statistics.empty() ||
        !p_.early.empty())
      return refuse("a reduction of two parts beside others");
    return true;
  }

  /// The ring's entry for an input, made at its first use.
  int weight(NodeId n, Axis free, Axis depth = Axis::kDepth) {
    for (size_t i = 0; i < p_.weights.size(); i++) if (p_.weights[i].input == n) return static_cast<int>(i);
    if (p_.weights.size() >= kMostWeights) { refuse("more weights than a kernel's parameters have room for"); return -1; }
    const Access& a = access(n);
    StreamWeight w;
    w.input = n;
    w.free = free;
    w.extent = free == Axis::kCol ? p_.cols : 0;
    const ValueId v = g().node(n).first_value;
    for (int d = 0; d < g().dims(v).rank(); d++) if (p_.axes[at(v)][at(d)] == free) w.extent = full(v, d);
    w.depth_major = stride(n, free) != 1;
    w.line = stride(n, w.depth_major ? free : depth);
    if (w.depth_major && stride(n, depth) != 1) {
      refuse("a weight without contiguous lines");
      return -1;
    }
    w.slice = stride(n, Axis::kBatch);
    if (w.line <= 0) { refuse("a weight without lines"); return -1; }
    w.uneven = w.line % 8 || a.offset % 8 || w.slice % 8;
    if (w.uneven && (!may_be_uneven() || free != Axis::kCol)) { refuse("a weight whose lines are no multiples of 16 bytes"); return -1; }
    if (free == Axis::kRank) {
      if (w.extent > kMaxRank) { refuse("a rank over " + std::to_string(kMaxRank)); return -1; }
      w.padded = w.extent <= 16 ? 16 : w.extent <= 32 ? 32 : 64;
    }
    p_.weights.push_back(w);
    return static_cast<int>(p_.weights.size()) - 1;
  }

  int contraction_of(ValueId sum) const {
    for (size_t i = 0; i < p_.contractions.size(); i++) if (p_.contractions[i].sum == sum) return static_cast<int>(i);
    return -1;
  }

  /// The low-rank sum behind transposes and factors that do not depend on the row, which go to q; -1: v is something else.
  int gained_sum(ValueId v, StreamProduct& q) const {
    for (;;) {
      if (const int c = contraction_of(v); c >= 0) return c;
      const auto& o = g().def(v).operands;
      if (g().def_form<Transpose>(v)) { v = o[0]; continue; }
      const auto* m = g().def_form<Map>(v);
      if (!m) return -1;
      if (m->fn == MapFn::kNeg) { q.scale = -q.scale; v = o[0]; continue; }
      if (m->fn != MapFn::kMul) return -1;
      size_t factor = 2;
      for (size_t i = 0; i < 2 && factor == 2; i++) {
        if (const auto x = constant(o[i])) {
          if (std::abs(q.scale) != 1) return -1;   // the product of two would be rounded
          q.scale *= *x;
          factor = i;
        } else if (const NodeId n = stored_input(o[i]);
                   n >= 0 && only(o[i], {Axis::kRank}) && access(n).dtype != DType::kBool && g().form<Input>(n)->part.loop < 0) {
          q.gains.push_back(n);
          factor = i;
        }
      }
      if (factor == 2) return -1;
      v = o[1 - factor];
    }
  }

  /// A product behind the loop: a low-rank sum times a stored second factor.
  bool product(NodeId n) {
    const Node& node = g().node(n);
    const int rank = g().dims(node.first_value).rank();
    for (int side = 0; side < 2; side++) {
      StreamProduct q;
      const int c = gained_sum(node.operands[at(side)], q);
      const NodeId b = stored_input(node.operands[at(1 - side)]);
      if (c < 0 || b < 0) continue;
      if (p_.weights[at(p_.contractions[at(c)].weight)].free != Axis::kRank) continue;
      if (p_.axes[at(node.first_value)][at(rank - 1 - side)] != Axis::kCol ||
          p_.axes[at(node.operands[at(side)])][at(side == 0 ? rank - 1 : rank - 2)] != Axis::kRank)
        continue;
      if (!is16(access(b).dtype)) return refuse("a second factor of a low-rank product that is not 16-bit");
      q.value = node.first_value;
      q.contraction = c;
      q.input = b;
      q.rank_stride = stride(b, Axis::kRank);
      q.col_stride = stride(b, Axis::kCol);
      p_.products.push_back(std::move(q));
      return true;
    }
    return refuse("a product behind the loop that is not of low rank");
  }

  // ---- what is added up: maximal linear combinations of contractions and products
  using Terms = std::map<std::pair<bool, int>, double>;   // (is a product, index) -> factor
  std::optional<double> constant(ValueId v) const {
    const auto* c = g().def_form<Const>(v);
    return c ? std::optional(c->value) : std::nullopt;
  }
  /// What is linear, per value, with operands first: fills linear_.
  void find_linear() {
    linear_.clear();
    for (ValueId v = 0; v < g().num_values(); v++) linear_.push_back(combined(v));
  }
  const std::optional<Terms>& linear(ValueId v) const { return linear_[at(v)]; }
  std::optional<Terms> combined(ValueId v) const {
    const int c = contraction_of(v);
    if (c >= 0) return has(v, Axis::kCol) ? std::optional(Terms{{{false, c}, 1.0}}) : std::nullopt;
    for (size_t i = 0; i < seconds_.size(); i++)
      if (seconds_[i].sum == v) return Terms{{{false, kSeconds + static_cast<int>(i)}, 1.0}};
    for (size_t i = 0; i < p_.products.size(); i++) if (p_.products[i].value == v) return Terms{{{true, static_cast<int>(i)}, 1.0}};
    const auto* m = g().def_form<Map>(v);
    if (!m) return std::nullopt;
    const auto& o = g().def(v).operands;
    auto scaled = [](Terms t, double f) { for (auto& [k, x] : t) x *= f; return t; };
    if (m->fn == MapFn::kNeg) { auto t = linear(o[0]); return t ? std::optional(scaled(*t, -1)) : t; }
    if (m->fn == MapFn::kAdd || m->fn == MapFn::kSub) {
      auto x = linear(o[0]), y = linear(o[1]);
      if (!x || !y) return std::nullopt;
      for (auto [k, f] : *y) (*x)[k] += m->fn == MapFn::kSub ? -f : f;
      return x;
    }
    if (m->fn == MapFn::kMul) {
      if (auto c0 = constant(o[0])) { auto t = linear(o[1]); return t ? std::optional(scaled(*t, *c0)) : t; }
      if (auto c1 = constant(o[1])) { auto t = linear(o[0]); return t ? std::optional(scaled(*t, *c1)) : t; }
    }
    return std::nullopt;
  }
  std::vector<bool> reached() const {   // what outputs need
    std::vector<bool> out(at(g().num_values()));
    for (NodeId n : g().outputs())
      find_below(g(), g().node(n).operands[0], [&](ValueId v) { return out[at(v)] ? Look::kPast : (out[at(v)] = true, Look::kInto); });
    return out;
  }

  bool find_sums() {
    if (!parts_fit()) return false;
    find_linear();
    const std::vector<bool> needed = reached();
    std::vector<StreamSum> roots;
    for (ValueId v = 0; v < g().num_values(); v++) {
      const auto& t = linear(v);
      if (!t || !needed[at(v)]) continue;
      bool maximal = false;   // somebody needs it who is not linear
      for (NodeId u : users_[at(v)]) maximal |= g().node(u).first_value < 0 || !linear(g().node(u).first_value);
      if (!maximal) continue;
      StreamSum s;
      s.value = v;
      Terms terms = *t;
      if (p_.second && !join_parts(terms)) return false;
      for (auto [k, f] : terms) (k.first ? s.products : s.contractions).push_back({k.second, f});
      roots.push_back(std::move(s));
    }
    size_t parts = p_.products.size();
    for (const StreamContraction& c : p_.contractions) parts += has(c.sum, Axis::kCol);
    if (p_.second && roots.size() != p_.contractions.size()) return refuse("parts of a reduction that are added up in several ways");
    if (roots.size() <= parts) { p_.sums = std::move(roots); }
    else {   // combinations would add up more than there is
      for (size_t i = 0; i < p_.contractions.size(); i++)
        if (has(p_.contractions[i].sum, Axis::kCol)) p_.sums.push_back({p_.contractions[i].sum, {{static_cast<int>(i), 1.0}}, {}});
      for (size_t i = 0; i < p_.products.size(); i++) p_.sums.push_back({p_.products[i].value, {}, {{static_cast<int>(i), 1.0}}});
    }
    if (p_.sums.empty()) return refuse("no sum along columns");
    return true;
  }

  bool check_outputs() {
    for (NodeId n : g().outputs()) {
      const ValueId v = g().node(n).operands[0];
      if (!only(v, {Axis::kRow, Axis::kCol})) return refuse("a result along something else than rows and columns");
      if (p_.results[at(g().form<Output>(n)->result)].run > 0 && p_.axes[at(v)].back() != Axis::kCol)
        return refuse("a result in runs of rows");
      if (!leaves_known(v)) return false;
    }
    return true;
  }
  /// Everything behind the loop ends at sums, statistics, inputs and constants.
  bool leaves_known(ValueId v) {
    return !find_below(g(), v, [&](ValueId x) {
      for (const StreamSum& s : p_.sums) if (s.value == x) return Look::kPast;
      for (const StreamStatistic& s : p_.statistics) if (s.result == x) return Look::kPast;
      if (is_early(x) || g().def_form<Const>(x)) return Look::kPast;
      if (const auto* in = g().def_form<Input>(x)) return in->part.loop < 0 || refuse("a result of the loop") ? Look::kPast : Look::kFound;
      if (!g().def_form<Map>(x) && !g().def_form<Transpose>(x))
        return refuse(std::string("a result of ") + form_name(g().def(x).op)), Look::kFound;
      return Look::kInto;
    });
  }

  const ContractRule& rule_;
  const int64_t max_rows_;
  NodeId multiplied_ = -1;   ///< the operand of rows of the product that is looked at, if it is taken as it is stored
  const bool narrow_;
  static constexpr int kSeconds = 1 << 20;  // terms of sums: from here on products of the reduction's second part
  StreamShape p_;
  std::vector<StreamContraction> seconds_;
  std::vector<Phase> phase_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<int> base_, parent_;
  std::vector<int64_t> full_;
  std::map<int, Axis> axis_;
  std::vector<std::optional<Terms>> linear_;
};

}  // namespace

std::vector<StreamShape> stream_shapes(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results,
                                       const ContractRule& rule, int64_t max_rows, std::string& reason) {
  if (!has_int_places(operands, results)) { reason = "dimensions beyond 32-bit places"; return {}; }
  StreamMatcher wide(body, operands, results, rule, max_rows, false), narrow(body, operands, results, rule, max_rows, true);
  std::vector<StreamShape> out;
  const bool is_wide = wide.run();
  // a product of two stored operands with more rows than columns, say, whose columns only lie as a weight's may, or lie in lines
  if (!(is_wide && wide.stores_along_columns()) && narrow.run() && (!is_wide || narrow.stores_along_columns()))
    out.push_back(narrow.take());
  if (is_wide) out.push_back(wide.take());
  if (out.empty()) reason = wide.reason.empty() ? "extents that do not line up" : wide.reason;
  if (out.empty()) return out;
  std::vector<Dims> dims;
  for (const Access& a : operands) dims.push_back(a.dims);
  reason = whole(body, dims).reason;   // without a meaning at full extents there is no program to emit (docs/schedule.md)
  if (!reason.empty()) out.clear();
  return out;
}

std::optional<StreamShape> match_stream(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results,
                                        const ContractRule& rule, int64_t max_rows, std::string& reason) {
  std::vector<StreamShape> all = stream_shapes(body, operands, results, rule, max_rows, reason);
  return all.empty() ? std::nullopt : std::optional(std::move(all.front()));
}

}  // namespace mirage
