// Attention plans as programs: two products with a running softmax between them. Factors that the kernel takes out of its operands are
// taken out of the body first (linear_body), so that the program says what is multiplied.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "mirage/ir/walk.h"
#include "plan/attend/attend_plan.h"
#include "mirage/support/round.h"
#include "plan/attend/attend_internal.h"
#include "plan/program/params.h"

namespace mirage::schedule {
namespace {

/// A body in which Q, K and V are multiplied as they lie in memory: what multiplied their rows multiplies the scores, or the weights, and
/// what multiplied V's columns the result.
struct LinearBody {
  Graph graph;
  std::vector<ValueId> to;   // per value of the plan's body
  ValueId query = -1, share = -1, key_known = -1, value_known = -1;   // operands of the products; products of the factors of K and of V
  ValueId scores = -1;                    // their product, if factors of Q's and K's rows multiply it; -1: none do
  std::vector<ValueId> deferred;          // products whose factors follow the maximum
  std::map<ValueId, ValueId> also;        // of the plan's body: what weights read of a key that scores read, too
};

class LinearBuilder {
 public:
  explicit LinearBuilder(const AttendPlan& p)
      : p_(p), s_(p.shape), g_(p.body), b_(Level::kBlock, p.body.launch()), to_(static_cast<size_t>(g_.num_values()), -1) {}

  LinearBody run() {
    const ValueId product = g_.def(s_.result).operands[0];
    LinearBody out;
    for (NodeId n = 0; n < g_.num_nodes(); n++) {
      const Node& node = g_.node(n);
      const ValueId v = node.first_value;
      if (const Input* in = g_.form<Input>(n)) { at(v) = b_.add_input(in->param, g_.type(v), in->part); continue; }
      if (v >= 0 && v == s_.scores) at(v) = scores(out);
      else if (v >= 0 && v == product) at(v) = values(out);
      else {
        std::vector<ValueId> o;
        for (ValueId x : node.operands) o.push_back(at(x));
        const ValueId made = add(node.op, std::move(o));
        if (v >= 0) at(v) = v == s_.result ? times(made, s_.v.gains) : made;
      }
    }
    for (const auto& [from, core] : s_.peeled) deferred_.push_back(at(from));
    std::vector<ValueId> live;
    out.graph = remove_dead(b_.graph(), &live);
    const auto now = [&](ValueId v) { return v < 0 ? -1 : live[static_cast<size_t>(v)]; };
    for (ValueId v : to_) out.to.push_back(now(v));
    for (ValueId* v : {&out.query, &out.share, &out.key_known, &out.value_known, &out.scores}) *v = now(*v);
    for (ValueId v : deferred_) out.deferred.push_back(now(v));
    for (const auto& [v, to] : also_) out.also[v] = now(to);
    return out;
  }

 private:
  ValueId& at(ValueId v) { return to_[static_cast<size_t>(v)]; }
  ValueId at(ValueId v) const { return to_[static_cast<size_t>(v)]; }
  ValueId add(Op op, std::vector<ValueId> operands) {
    const auto v = b_.try_add(std::move(op), std::move(operands));
    if (!v) throw Undescribed{"factors that do not fit the scores: " + b_.last_error()};
    return *v;
  }
  const Dims& dims(ValueId v) const { return b_.graph().dims(v); }
  ValueId turned(ValueId v) {
    Transpose t;
    const int rank = dims(v).rank();
    for (int d = 0; d < rank; d++) t.perm[static_cast<size_t>(d)] = static_cast<int8_t>(d < rank - 2 ? d : 2 * rank - 3 - d);
    return add(t, {v});
  }
  /// Whether a factor has `axis` along the other dimension than that which is `from_end` from the last.
  bool is_turned(const AttendFactor& f, AttendAxis axis, int from_end) const {
    const auto& of = s_.axes[static_cast<size_t>(f.value)];
    return of[static_cast<size_t>(from_end)] == axis && of[static_cast<size_t>(1 - from_end)] != axis;
  }
  ValueId times(ValueId v, const std::vector<AttendFactor>& all) {
    for (const AttendFactor& f : all) v = add(Map{f.divides ? MapFn::kDiv : MapFn::kMul}, {v, at(f.value)});
    return v;
  }
  ValueId times(ValueId v, const std::vector<AttendFactor>& all, AttendAxis axis, int from_end) {
    for (const AttendFactor& f : all) {
      const MapFn fn = f.divides ? MapFn::kDiv : MapFn::kMul;
      if (!is_turned(f, axis, from_end)) v = add(Map{fn}, {v, at(f.value)});
      else if (is_flat(f)) v = turned(add(Map{fn}, {turned(v), at(f.value)}));
      else v = add(Map{fn}, {v, turned(at(f.value))});
    }
    return v;
  }
  /// Whether a factor of queries has no dimension to turn them into.
  bool is_flat(const AttendFactor& f) const { return is_turned(f, AttendAxis::kQuery, 1) && dims(at(f.value)).rank() < 2; }
  /// One value for all factors, as helpers make it, along the last dimension: 1 / a * b ..., as they stand at rows or at columns.
  ValueId known(const std::vector<AttendFactor>& all) {
    if (all.empty()) return -1;
    const AttendAxis axis = AttendAxis::kKey;
    const bool at_rows = std::all_of(all.begin(), all.end(), [&](const AttendFactor& f) { return is_turned(f, axis, 0); });
    return at_rows ? turned(times(b_.constant(1), all)) : times(b_.constant(1), all, axis, 0);
  }
  /// The operand of the second product once more, where it and the scores have a value of a key in common: each reads one of its own.
  ValueId again(ValueId v) {
    const Node& n = g_.def(v);
    if (v == s_.weights) return at(v);
    if (const auto it = also_.find(v); it != also_.end()) return it->second;
    if (is_known_twice(v)) {
      if (const Input* in = std::get_if<Input>(&n.op)) return also_[v] = b_.add_input(in->param, g_.type(v), in->part);
      std::vector<ValueId> o;
      for (ValueId x : n.operands) o.push_back(at(x));
      return also_[v] = add(n.op, std::move(o));
    }
    if (!find_below(g_, v, [&](ValueId x) { return x == s_.weights ? Look::kPast : is_known_twice(x) ? Look::kFound : Look::kInto; }))
      return at(v);
    std::vector<ValueId> o;
    for (ValueId x : n.operands) o.push_back(again(x));
    return add(n.op, std::move(o));
  }
  bool is_known_twice(ValueId v) const {
    const auto has = [&](const std::vector<ValueId>& all) { return std::find(all.begin(), all.end(), v) != all.end(); };
    return has(p_.key_known) && has(p_.value_known);
  }
  ValueId raw(const AttendTensor& t, bool rows_first) {
    const ValueId v = at(g_.node(t.input).first_value);
    return (t.row_dim == dims(v).rank() - 2) == rows_first ? v : turned(v);
  }
  ValueId scores(LinearBody& out) {
    ValueId q = raw(s_.q, true);
    q = times(q, s_.q.gains, AttendAxis::kFeature, 0);
    q = times(q, s_.k.gains, AttendAxis::kFeature, 0);
    out.query = q;
    ValueId z = add(MatMul{}, {q, raw(s_.k, false)});
    std::vector<AttendFactor> flat, rest;   // the flat ones come last: they turn what they multiply
    for (size_t i = s_.scale.size(); i > s_.peeled.size(); i--) {   // of the operands; the others stand above the scores as it is
      const AttendFactor& f = s_.scale[i - 1];
      if (is_flat(f)) { flat.push_back(f); continue; }
      z = times(z, {f}, AttendAxis::kQuery, 1);
      deferred_.push_back(z);
    }
    for (const AttendFactor& f : s_.q.factors) (is_flat(f) ? flat : rest).push_back(f);
    z = times(z, rest, AttendAxis::kQuery, 1);
    out.key_known = known(s_.k.factors);
    if (out.key_known >= 0) z = add(Map{MapFn::kMul}, {z, out.key_known});
    if (out.key_known >= 0 || !rest.empty()) out.scores = z;
    return times(z, flat, AttendAxis::kQuery, 1);
  }
  ValueId values(LinearBody& out) {
    ValueId x = again(s_.share);
    out.value_known = known(s_.v.factors);
    if (out.value_known >= 0) x = add(Map{MapFn::kMul}, {x, out.value_known});
    out.share = x;
    return add(MatMul{}, {x, raw(s_.v, true)});
  }

  const AttendPlan& p_;
  const AttendShape& s_;
  const Graph& g_;
  Builder b_;
  std::vector<ValueId> to_, deferred_;
  std::map<ValueId, ValueId> also_;
};

struct AttendDescriber {
  const AttendPlan& p;
  const AttendShape& s;
  LinearBody linear;
  Writer w;
  int queries = -1, ring = -1, known = -1, received = -1, scores = -1, weights = -1, statistics = -1;
  int copies = 0, helpers = 0, work = 0;
  AxisId loop = -1, groups = -1, cluster = -1, meets = -1, quarters = -1;
  ValueId z = -1;   // the product of Q and K

  AttendDescriber(const AttendPlan& plan, LinearBody body)
      : p(plan), s(plan.shape), linear(std::move(body)), w(writer_of(linear.graph, plan.operands, plan.results)) {}

  const Graph& g() const { return w.body(); }
  ValueId now(ValueId v) const { return linear.to[static_cast<size_t>(v)]; }
  NodeId input(const AttendTensor& t) const { return g().value(now(p.body.node(t.input).first_value)).node; }
  bool warps_own() const { return p.warp_rings; }
  int groups_count() const { return p.query_groups * p.key_groups; }
  bool wide_shares() const { return p.wide && p.value_boxes == 0; }
  int64_t rows() const { return p.group_rows(); }
  LayoutId acc() const { return p.warp_rings || p.wide ? LayoutId::kSyncAcc : LayoutId::kWgmmaAcc; }
  UnitId unit() const { return p.warp_rings || p.wide ? UnitId::kSync16 : UnitId::kWgmma; }

  void name_indices() {
    for (NodeId n = 0; n < g().num_nodes(); n++) {
      const Node& node = g().node(n);
      if (g().form<MatMul>(n) && z < 0) z = node.first_value;
    }
    const ValueId r = g().def(g().form<Accum>(g().value(now_result()).node) ? now_result() : z).operands[0];
    const int rank = g().dims(z).rank();
    const auto give = [&](ValueId v, int d, const char* name) { w.name(w.index_at(v, d), name); };
    for (int d = 0; d + 2 < rank; d++)
      for (ValueId v = 0; v < g().num_values(); v++)
        if (const int at = d + g().dims(v).rank() - rank; at >= 0) give(v, at, fmt::format("b{}", d).c_str());
    give(z, rank - 2, "t");
    give(z, rank - 1, "s");
    give(g().def(z).operands[0], rank - 1, "f");
    give(r, rank - 1, "e");
  }
  ValueId now_result() const {   // the accumulator itself, below V's gains
    ValueId v = now(s.result);
    while (!g().def_form<Accum>(v)) v = g().def(v).operands[0];
    return v;
  }

  void axes() {
    const int rank = g().dims(z).rank();
    int64_t batches = 1;
    for (int d = 0; d + 2 < rank; d++) {
      const IndexId b = w.find(fmt::format("b{}", d));
      if (b < 0) continue;
      w.split(b, 1, {{fmt::format("x{}", d), AxisKind::kGrid, w.p.indices[static_cast<size_t>(b)].extent}}, false);
      batches *= w.p.indices[static_cast<size_t>(b)].extent;
    }
    if (batches != s.batch.elements()) throw Undescribed{"a batch that is no dimension of the scores"};
    if (const IndexId t = w.find("t"); t >= 0) {
      std::vector<Axis> over{{"y", AxisKind::kGrid, p.tiles()}};
      if (p.query_groups > 1) over.push_back({"h", AxisKind::kGroup, p.query_groups});
      w.split(t, rows(), over, false);
      w.assume_divides(t, rows() * p.query_groups);
    }
    const IndexId keys = w.find("s");
    if (keys >= 0) w.p.indices[static_cast<size_t>(keys)].first = s.first_keys;
    if (const IndexId f = w.find("f"); f >= 0) w.p.indices[static_cast<size_t>(f)].first = s.first_features;
    std::vector<Axis> over;
    int64_t each = p.chunks_per_block;
    if (p.cluster > 1) over.push_back({"c", AxisKind::kCluster, p.cluster, each}), each *= p.cluster;
    if (p.meets > 1) over.insert(over.begin(), {"u", AxisKind::kGrid, p.meets, each});
    over.push_back({"i", AxisKind::kLoop, ceil_div(p.chunks_per_block, p.key_groups)});
    if (p.key_groups > 1) over.push_back({"g", warps_own() ? AxisKind::kWarp : AxisKind::kGroup, p.key_groups});
    AxisId a = w.split(keys, p.chunk, over, true);
    w.p.splits.back().live = !p.wide && (s.last || s.first);
    if (p.meets > 1) meets = a++;
    if (p.cluster > 1) cluster = a++;
    loop = a++;
    if (p.key_groups > 1) groups = a;
    if (const IndexId f = w.find("f"); p.wide && f >= 0) quarters = w.split(f, p.features / 4, {{"q", AxisKind::kWarp, 4}}, false);
    w.assume_divides(keys, p.chunk);
    w.assume_divides(keys, p.chunk * p.chunks_per_block);
    w.p.per_sm = p.blocks_per_sm;
    w.p.cooperative = p.meets > 1;
  }

  void roles() {
    const int total = p.threads / 32, workers = p.group_threads() / 32 * groups_count();
    int others = total - workers;
    if (p.producer)
      copies = helpers = w.role("copies", p.producers() + p.helpers, p.shrink), others -= p.producers() + p.helpers;
    else if (p.helpers) {
      copies = w.role("copies", 0);   // issued by threads of those who work
      helpers = w.role("helpers", p.helpers, p.shrink);
      others -= p.helpers;
    }
    if (others > 0) w.role("idle", others, p.shrink);   // they only give their registers
    work = w.role("work", workers, p.grow);
    w.p.roles.back().turns = p.turns;
    if (!p.producer && !p.helpers) copies = work;
    if (!p.helpers) helpers = work;
    w.loop_layout = acc();
  }

  void sections() {
    queries = w.section({"queries", 1, 1, 1024, 0, false});
    ring = w.section({"ring", warps_own() ? groups_count() : 1, p.stages, 1024, 0, false});
    if (p.wide) return wide_sections();
    if (!p.key_known.empty() || !p.value_known.empty())
      known = w.section({"known", warps_own() ? groups_count() : 1, p.stages, 128, 0, false});
    if (p.cluster > 1) received = w.section({"received", 1, 1, 8, 0, false});
    const int slots = p.stages * (warps_own() ? groups_count() : 1), made = (!p.key_known.empty()) + (!p.value_known.empty());
    const int used = slots * (2 + (p.producer ? 2 : 0) + (p.helpers ? made : 0)) + 1 + (p.cluster > 1 ? 1 : 0);
    const int all = (warps_own() ? 2 * groups_count() : 6) * p.stages + 2;
    w.section({"barriers", 1, 1, p.cluster > 1 ? 8 : 128, int64_t{8} * (all - used), true});
  }
  void wide_sections() {
    scores = w.section({"scores", 1, 1, 16, 0, false});
    weights = w.section({"weights", 1, 1, 16, 0, false});
    statistics = w.section({"statistics", 1, 1, 4, 16 * 4, false});   // and what this chunk's maximum changes
    if (p.cluster > 1) received = w.section({"received", 1, 1, 8, 0, false});
    w.section({"barriers", 1, 1, 16, p.cluster > 1 ? 0 : 8, true});
  }

  // ---- Q, K, V
  void tensors() {
    Place to;
    to.dtype = s.dtype;
    to.swizzle = 128;
    to.name = "q";
    to.section = queries;
    to.box = {p.query_groups, p.features / 64, rows(), 64};
    w.copy(input(s.q), to, PathId::kTma, 0, p.helpers ? copies : work);
    w.wish(g().node(input(s.q)).first_value).stage.rides = p.wide;
    to.section = ring;
    to.name = "k";
    to.box = {p.features / 64, p.chunk, 64};
    to.apart = p.wide ? p.features / 64 : 1;
    const bool once = p.tiles() == 1;   // every key is read by one block
    w.copy(input(s.k), to, PathId::kTma, p.stages, copies, once);
    to.name = "v";
    to.box = {p.columns / 64, p.chunk, 64};
    to.apart = p.wide ? p.columns / 64 : 1;
    if (wide_shares()) to.box.clear(), to.apart = 0;
    w.copy(input(s.v), to, wide_shares() ? PathId::kSame : PathId::kTma, wide_shares() ? 0 : p.stages, copies, once && !wide_shares());
    const ValueId q = linear.query;
    if (g().def_form<Input>(q) || g().def_form<Transpose>(q)) return;
    Place fragment;
    fragment.dtype = s.dtype;
    fragment.layout = LayoutId::kSyncA;
    w.compute(q, fragment);
  }

  /// What depends on one key alone, by helper warps where there are some: for the scores, then for the weights.
  void known_values() {
    const auto put = [&](ValueId v, const char* name, bool in_pairs) {
      Place to;
      to.name = name;
      to.section = known;
      to.box = {p.chunk};
      to.apart = p.helpers ? 1 : 0;
      if (in_pairs) to.dtype = s.dtype, to.pitch = 4 * p.chunk;
      if (g().def_form<Input>(v)) w.copy(g().value(v).node, to, PathId::kLd, 0, helpers);
      else w.compute(v, to), w.wish(v).role = helpers;
      w.first.push_back(v);
      return v;
    };
    for (size_t i = 0; i < p.key_known.size(); i++) {
      const ValueId v = p.key_known[i];
      w.wish(put(v < 0 ? linear.key_known : now(v), "by_key", false)).stage.rides = p.helpers && i > 0;   // one barrier tells of all
    }
    for (size_t i = 0; i < p.value_known.size(); i++) {
      const ValueId v = p.value_known[i];
      const auto also = linear.also.find(v);
      const ValueId own = v < 0 ? linear.value_known : also != linear.also.end() ? also->second : now(v);
      w.wish(put(own, "by_value", p.pair_factors())).stage.rides = p.helpers && i > 0;
    }
  }

  /// The row maximum of a chunk is known to all lanes of a row before it is used.
  void softmax() {
    const ValueId running = now(s.running), most = g().def(running).operands[0];
    Place at_once;
    at_once.layout = acc();
    at_once.box = p.wide ? std::vector<int64_t>{16, p.chunk / 2} : std::vector<int64_t>{rows(), p.chunk};
    at_once.name = "z";
    w.compute(z, at_once, unit());
    if (p.wide) {
      Place parts;
      parts.name = "z_parts";
      parts.section = scores;
      parts.box = {4, 16, p.chunk};
      parts.pitch = (p.chunk + 8) * 4;
      w.fold_in_loop(z, {quarters}, WayId::kShared, {w.spare_place(parts)});
    }
    scores_with_factors();
    w.compute(most, {});
    w.fold_in_loop(most, {kLanes}, WayId::kLanes, {});
    Place state;
    state.name = "m";
    if (p.wide) state.section = statistics, state.box = {16};
    w.compute(running, state);
    state.name = "l";
    w.compute(now(s.sums[0]), state);
    Place result;
    result.name = "a";
    result.layout = acc();
    result.box = {rows(), p.wide ? p.columns / 8 : p.columns};
    w.compute(now_result(), result, unit());
    Place rounded;
    rounded.name = "p16";
    rounded.dtype = s.dtype;
    rounded.layout = acc();
    if (p.wide) rounded.section = weights, rounded.box = {16, p.chunk}, rounded.pitch = p.chunk * 2 + 16;
    if (linear.value_known >= 0) {   // multiplied as they are rounded
      w.compute(g().def(linear.share).operands[0], weights_place());
      w.compute(linear.share, rounded);
      w.late.push_back(linear.share);
      return;
    }
    if (!w.has(linear.share)) w.compute(linear.share, weights_place());
    w.convert(linear.share, rounded);
  }
  void scores_with_factors() {
    Place x;
    x.layout = acc();
    x.deferred = true;
    for (ValueId v : linear.deferred) w.compute(v, x);
    x.deferred = false;
    if (linear.scores >= 0) w.compute(linear.scores, x);
  }
  Place weights_place() const {
    Place x;
    x.name = "p";
    x.layout = acc();
    return x;
  }

  // ---- groups, blocks and clusters meet
  void folds() {
    std::vector<ValueId> all{now(s.running)};
    if (s.last_maximum >= 0) all.push_back(now(s.last_maximum));
    const ValueId sum = now(s.sums[0]);
    all.push_back(sum);
    all.push_back(now_result());
    w.fold({sum}, {kLanes}, WayId::kLanes, {});
    const int64_t n = groups_count();
    Place x;
    if (groups >= 0) {
      x.section = ring;
      x.over = true;
      x.name = "states";
      x.box = {n, rows(), 8};
      std::vector<PlaceId> through{w.spare_place(x)};
      x.name = "results";
      x.box = {n, rows(), p.columns};
      through.push_back(w.spare_place(x));
      w.fold(all, {groups}, WayId::kShared, through);
    }
    x = {};
    if (cluster >= 0) {
      x.section = received;
      x.name = "parts";
      x.dtype = p.narrow_parts ? s.dtype : DType::kF32;
      std::vector<PlaceId> through;
      if (p.wide) {
        Place states;
        states.name = "states";
        states.section = received;
        states.box = {p.cluster, 16, 2};
        x.box = {16, p.columns};
        through.push_back(w.spare_place(x));
        x = states;
      } else {
        x.box = {p.cluster, p.rows, p.columns};
        x.pitch = p.record_pitch;
        through.push_back(w.spare_place(x));
        x.name = "states";   // behind each row
        x.dtype = DType::kF32;
        x.box.back() = 2;
        x.gap = true;
      }
      through.push_back(w.spare_place(x));
      w.fold(all, {cluster}, WayId::kStAsync, through);
    }
    if (meets < 0) return;
    x = {};
    x.name = "posted";
    x.in_slots = true;
    x.dtype = p.narrow_parts && cluster < 0 ? s.dtype : DType::kF32;
    x.box = {p.slot_bytes / dtype_bytes(x.dtype)};
    w.fold(all, {meets}, WayId::kSlots, {w.spare_place(x)});
  }

  /// Row sums and maxima that come before or behind the loop are the lanes' of a row together.
  void other_statistics() {
    for (NodeId n = 0; n < g().num_nodes(); n++) {
      const ValueId v = g().node(n).first_value;
      const Reduce* r = g().form<Reduce>(n);
      if (!r || w.has(v) || g().def(now(s.sums[0])).operands[0] == v) continue;
      const IndexId along = w.index_at(g().node(n).operands[0], r->dim);
      const auto& of = w.p.index_of[static_cast<size_t>(g().node(n).operands[0])];
      w.compute(v, {});
      if (std::find(of.begin(), of.end(), w.find("s")) != of.end()) w.wish(v).role = helpers, w.wish(v).place.layout = LayoutId::kLine;
      else if (along >= 0) w.fold({v}, {kLanes}, WayId::kLanes, {});
    }
  }

  KernelProgram run() {
    name_indices();
    axes();
    roles();
    sections();
    tensors();
    known_values();
    softmax();
    other_statistics();
    folds();
    std::vector<AxisId> loops(w.p.roles.size(), loop);
    return w.finish(loops, work);
  }
};

}  // namespace

KernelProgram attend_program(const AttendPlan& p) {
  return AttendDescriber(p, LinearBuilder(p).run()).run();
}

}  // namespace mirage::schedule
