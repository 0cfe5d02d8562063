// Attention plans as programs: two products with a running softmax between them. Factors that the kernel takes out of its operands are
// taken out of the body first (linear_body), so that the program says what is multiplied.
#include <algorithm>

#include <fmt/format.h>

#include "mirage/plan/attend.h"
#include "mirage/support/round.h"
#include "schedule/writer.h"

namespace mirage::schedule {
namespace {

/// A body in which Q, K and V are multiplied as they lie in memory: what multiplied their rows multiplies the scores, or the weights, and
/// what multiplied V's columns the result.
struct LinearBody {
  Graph graph;
  std::vector<ValueId> to;   // per value of the plan's body
  ValueId query = -1, share = -1, key_known = -1, value_known = -1;   // operands of the products; products of the factors of K and of V
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
        if (v >= 0) at(v) = v == s_.result ? times(made, s_.v.gains, -1, 0) : made;
      }
    }
    std::vector<ValueId> live;
    out.graph = remove_dead(b_.graph(), &live);
    for (ValueId v : to_) out.to.push_back(v < 0 ? -1 : live[static_cast<size_t>(v)]);
    for (ValueId* v : {&out.query, &out.share, &out.key_known, &out.value_known}) if (*v >= 0) *v = live[static_cast<size_t>(*v)];
    return out;
  }

 private:
  ValueId& at(ValueId v) { return to_[static_cast<size_t>(v)]; }
  ValueId add(Op op, std::vector<ValueId> operands) {
    const auto v = b_.try_add(std::move(op), std::move(operands));
    if (!v) throw Undescribed{"factors that do not fit the scores: " + b_.last_error()};
    return *v;
  }
  const Dims& dims(ValueId v) const { return b_.graph().dims(v); }
  ValueId turned(ValueId v) {
    Transpose t;
    const int rank = dims(v).rank();
    if (rank < 2) throw Undescribed{"a factor of fewer dimensions"};
    for (int d = 0; d < rank; d++) t.perm[static_cast<size_t>(d)] = static_cast<int8_t>(d < rank - 2 ? d : 2 * rank - 3 - d);
    return add(t, {v});
  }
  /// The value of a factor, with `axis` along the dimension that is `from_end` from the last.
  ValueId factor(const AttendFactor& f, AttendAxis axis, int from_end) {
    const auto& of = s_.axes[static_cast<size_t>(f.value)];
    const ValueId v = at(f.value);
    const bool there = of[static_cast<size_t>(1 - from_end)] == axis, elsewhere = of[static_cast<size_t>(from_end)] == axis;
    return elsewhere && !there ? turned(v) : v;
  }
  ValueId times(ValueId v, const std::vector<AttendFactor>& all, int axis, int from_end) {
    for (const AttendFactor& f : all)
      v = add(Map{f.divides ? MapFn::kDiv : MapFn::kMul}, {v, axis < 0 ? at(f.value) : factor(f, static_cast<AttendAxis>(axis), from_end)});
    return v;
  }
  /// One value for all factors, as helpers make it: (1 / a) * b ... in the place of its axis.
  ValueId known(const std::vector<AttendFactor>& all, AttendAxis axis) {
    ValueId v = -1;
    for (const AttendFactor& f : all) {
      const ValueId x = factor(f, axis, 0);
      if (v < 0) v = f.divides ? add(Map{MapFn::kDiv}, {b_.constant(1), x}) : x;
      else v = add(Map{f.divides ? MapFn::kDiv : MapFn::kMul}, {v, x});
    }
    return v;
  }
  ValueId raw(const AttendTensor& t, bool rows_first) {
    const ValueId v = at(g_.node(t.input).first_value);
    return (t.row_dim == dims(v).rank() - 2) == rows_first ? v : turned(v);
  }
  ValueId scores(LinearBody& out) {
    ValueId q = raw(s_.q, true);
    q = times(q, s_.q.gains, static_cast<int>(AttendAxis::kFeature), 0);
    q = times(q, s_.k.gains, static_cast<int>(AttendAxis::kFeature), 0);
    out.query = q;
    ValueId z = add(MatMul{}, {q, raw(s_.k, false)});
    const std::vector<AttendFactor> scale(s_.scale.begin() + static_cast<std::ptrdiff_t>(s_.peeled.size()),
                                          s_.scale.end());  // of the operands; the others stand above the scores as it is
    z = times(z, scale, static_cast<int>(AttendAxis::kQuery), 1);
    z = times(z, s_.q.factors, static_cast<int>(AttendAxis::kQuery), 1);
    out.key_known = known(s_.k.factors, AttendAxis::kKey);
    return out.key_known < 0 ? z : add(Map{MapFn::kMul}, {z, out.key_known});
  }
  ValueId values(LinearBody& out) {
    ValueId x = at(s_.share);
    out.value_known = known(s_.v.factors, AttendAxis::kKey);
    if (out.value_known >= 0) x = add(Map{MapFn::kMul}, {x, out.value_known});
    out.share = x;
    return add(MatMul{}, {x, raw(s_.v, true)});
  }

  const AttendPlan& p_;
  const AttendShape& s_;
  const Graph& g_;
  Builder b_;
  std::vector<ValueId> to_;
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

  AttendDescriber(const AttendPlan& plan, const std::string& name, LinearBody body)
      : p(plan), s(plan.shape), linear(std::move(body)), w(name, linear.graph, plan.operands, plan.results) {}

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
    for (int d = 0; d + 2 < rank; d++) for (ValueId v : {z, r}) give(v, d, fmt::format("b{}", d).c_str());
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
      copies = helpers = w.role("copies", p.helpers ? p.producers() + p.helpers : others, p.shrink),
      others = p.helpers ? others - p.producers() - p.helpers : 0;
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
    w.copy(input(s.k), to, PathId::kTma, p.stages, copies);
    to.name = "v";
    to.box = {p.columns / 64, p.chunk, 64};
    to.apart = p.wide ? p.columns / 64 : 1;
    if (wide_shares()) to.box.clear(), to.apart = 0;
    w.copy(input(s.v), to, wide_shares() ? PathId::kSame : PathId::kTma, wide_shares() ? 0 : p.stages, copies);
    const ValueId q = linear.query;
    if (g().def_form<Input>(q) || g().def_form<Transpose>(q)) return;
    Place fragment;
    fragment.dtype = s.dtype;
    fragment.layout = LayoutId::kSyncA;
    w.compute(q, fragment);
  }

  /// What depends on one key alone, by helper warps where there are some.
  void known_values() {
    const auto put = [&](ValueId v, const char* name) {
      if (v < 0 || w.has(v) || g().def_form<Input>(v)) { if (v >= 0 && g().def_form<Input>(v)) input_known(v, name); return; }
      Place to;
      to.name = name;
      to.section = known;
      to.box = {p.chunk};
      to.apart = p.helpers ? 1 : 0;
      w.compute(v, to);
      w.wish(v).role = helpers;
    };
    for (ValueId v : p.key_known) put(v < 0 ? linear.key_known : now(v), "by_key");
    for (ValueId v : p.value_known) put(v < 0 ? linear.value_known : now(v), "by_value");
  }
  void input_known(ValueId v, const char* name) {
    if (w.has(v)) return;
    Place held;
    held.name = fmt::format("{}_line", name);
    w.copy(g().value(v).node, held, PathId::kLd, 0, helpers);
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
    if (!w.has(linear.share)) w.compute(linear.share, weights_place());
    w.convert(linear.share, rounded);
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
    x.box = {p.slot_bytes / 4};
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

KernelProgram describe_attend(const KernelPlan& k) {
  const AttendPlan& p = *std::get<std::shared_ptr<const AttendPlan>>(k.body);
  return AttendDescriber(p, k.name, LinearBuilder(p).run()).run();
}

}  // namespace mirage::schedule
