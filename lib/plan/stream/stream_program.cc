// Stream plans as programs: weights through rings of tensor copies (or straight to registers) into tensor cores, everything else
// elementwise around them.
#include <algorithm>

#include <fmt/format.h>

#include "mirage/ir/walk.h"
#include "plan/stream/stream_plan.h"
#include "mirage/support/round.h"
#include "plan/program/params.h"
#include "plan/stream/shape_names.h"
#include "plan/stream/stream_body.h"
#include "plan/stream/stream_internal.h"

namespace mirage::schedule {
namespace {

struct StreamDescriber {
  Writer w;
  const StreamPlan p;   // as its kernel adds up
  int ring = -1, received = -1, statistics = -1, early = -1, prepared = -1;
  AxisId loop = -1, cluster = -1, warps = -1;

  const Graph& g() const { return p.body; }
  int64_t rows() const { return int64_t{8} * p.row_tiles; }
  DType dtype_of(NodeId n) const { return p.operands[static_cast<size_t>(g().form<Input>(n)->param)].dtype; }

  void axes() {
    const IndexId n = w.find("n"), k = w.find("k"), b = w.find("b");
    if (n >= 0) w.split(n, p.columns, {{"x", AxisKind::kGrid, ceil_div(p.cols, p.columns)}}, false);
    if (b >= 0) w.split(b, 1, {{"y", AxisKind::kGrid, p.batch}}, false);
    std::vector<Axis> over;
    const int64_t chunks = ceil_div(p.depth, p.chunk), workers = int64_t{p.warps} * p.cluster;
    if (!p.registers) over.push_back({"i", AxisKind::kLoop, ceil_div(chunks, workers)});
    if (p.cluster > 1) over.push_back({"c", AxisKind::kCluster, p.cluster});
    over.push_back({"v", AxisKind::kWarp, p.warps});
    if (k < 0) throw Undescribed{"a reduction of one element"};
    AxisId a = w.split(k, p.chunk, over, true);
    w.p.splits.back().rotated = p.staggered;
    if (p.group) w.p.splits.back().outer = w.find("g");
    if (p.second) {
      w.split(w.find("l"), p.chunk, {}, true);
      w.p.splits.back().behind = k;
    }
    if (!p.registers) loop = a++;
    if (p.cluster > 1) cluster = a++;
    warps = a;
    w.p.per_sm = p.blocks_per_sm;
    w.role("all", p.warps);
    w.assume_at_most(w.find("m"), rows());
    w.assume_divides(n, p.columns);
    if (p.group) {   // chunks begin and end with groups, or within one
      w.assume_divides(k, std::min<int64_t>(p.chunk, p.group));
      w.assume_divides(w.find("g"), std::max<int64_t>(1, p.chunk * workers / p.group));
      return;
    }
    w.assume_divides(k, p.chunk);
    if (p.second) w.assume_divides(w.find("l"), p.chunk);
    else w.assume_divides(k, p.chunk * workers);
  }

  void sections() {
    const bool any_fold = !p.sums.empty();
    if (p.registers) { if (any_fold) ring = w.section({"own", 1, 1, 16, 0, false}); }
    else ring = w.section({"ring", p.warps, p.stages, 1024, 0, false});
    if (p.cluster > 1) received = w.section({"received", 1, 1, 16, 0, false});
    if (!p.statistics.empty()) statistics = w.section({"statistics", 1, 1, 4, 0, false});
    if (!p.early.empty()) early = w.section({"early", 1, 1, 4, 0, false});
    if (!p.registers) {   // all are set aside; those of copies that are counted by groups, and that of a meeting of one block, are not used
      int used = p.cluster > 1 ? 1 : 0;
      if (!p.uneven() || std::any_of(p.weights.begin(), p.weights.end(), [](const StreamWeight& x) { return !x.uneven; }))
        used += p.warps * p.stages;
      w.section({"barriers", 1, 1, 8, int64_t{8} * (p.warps * p.stages + 1 - used), true});
    }
    if (!p.prepared) return;
    prepared = w.section({"prepared", 1, 1, 128, 0, false});
    w.section({"scales", 1, 1, 4, rows() * 4, false});
  }

  // ---- what comes from device memory
  void weight(size_t i) {
    const StreamWeight& x = p.weights[i];
    Place to;
    to.name = fmt::format("w{}", i);
    to.dtype = dtype_of(x.input);
    const int64_t lines = p.chunk / 64;
    if (p.registers) {
      to.layout = x.free == StreamAxis::kCol ? LayoutId::kSyncA : LayoutId::kSyncB;
      to.box = {p.chunk, x.free == StreamAxis::kCol ? p.columns : x.padded};
      w.copy(x.input, to, PathId::kLd);
      return;
    }
    to.section = ring;
    to.step = x.step;
    if (x.uneven) {
      to.box = x.depth_major ? std::vector<int64_t>{lines, 64, 64} : std::vector<int64_t>{p.chunk, 64};
      to.pitch = kUnevenLine;
    } else {
      to.box = x.depth_major ? std::vector<int64_t>{lines, x.padded, 64} : std::vector<int64_t>{p.chunk, x.padded};
      to.swizzle = x.depth_major ? 128 : x.padded * 2;
      to.even_first = p.even_first(i);
    }
    w.copy(x.input, to, x.uneven ? PathId::kCpAsync : PathId::kTma, p.stages, 0,
           x.free == StreamAxis::kCol && p.evict_first && !p.uneven());
    if (x.instead_of >= 0) lies_instead(x.input, p.weights[static_cast<size_t>(x.instead_of)].input);
  }
  /// What the second part of the reduction has where the first has that.
  void lies_instead(NodeId second, NodeId first) {
    w.wish(g().node(second).first_value).instead = g().node(first).first_value;
  }

  /// Inputs of the loop and of the time before it; the rest is read for the tail, as it is needed.
  void small_inputs() {
    for (NodeId n : g().inputs()) {
      const ValueId v = g().node(n).first_value;
      if (w.has(v) || n == p.second_input) continue;
      small_input(n, v);
    }
    if (p.second_input < 0) return;   // behind the rows of the first part
    small_input(p.second_input, g().node(p.second_input).first_value);
    lies_instead(p.second_input, stored_behind(g(), p.contractions[0].small));
  }
  void small_input(NodeId n, ValueId v) {
    Place to;
    to.dtype = dtype_of(n);
    if (has_axis(p, v, StreamAxis::kWhole)) {
      to.layout = LayoutId::kVec;
      if (p.hold_early) to.box = {has_axis(p, v, StreamAxis::kRow) ? ceil_div(rows(), int64_t{p.warps}) : 1, whole_extent(v)};
      w.copy(n, to, PathId::kLd);
    } else if (has_axis(p, v, StreamAxis::kDepth) || has_axis(p, v, StreamAxis::kSecond)) {
      to.layout = p.prepared ? LayoutId::kVec : LayoutId::kOct;
      const bool is_row = has_axis(p, v, StreamAxis::kRow);
      if (!p.prepared) to.box = {is_row ? rows() : 1, p.chunk};
      else if (!is_row) to.box = {1, p.depth / p.cluster};   // held until the rows are made
      w.copy(n, to, PathId::kLd, p.registers || p.prepared ? 0 : 1, 0, false, false, p.prepared);
    } else {
      w.copy(n, to, PathId::kLd, has_axis(p, v, StreamAxis::kGroup) ? 1 : 0);
    }
  }

  int64_t whole_extent(ValueId v) const {   // of what is reduced before the loop
    for (int dim = 0; dim < g().dims(v).rank(); dim++)
      if (p.axes[static_cast<size_t>(v)][static_cast<size_t>(dim)] == StreamAxis::kWhole)
        return w.p.indices[static_cast<size_t>(w.index_at(v, dim))].extent;
    return 1;
  }

  // ---- sums
  /// Rows as a product's unit takes them: 32 elements of the reduction at a time, a whole chunk where they get a power of two.
  Place operand_place(const StreamContraction& c) const {
    Place to;
    to.dtype = c.type == ContractType::kTF32 ? DType::kF32 : dtype_of(p.weights[static_cast<size_t>(c.weight)].input);
    to.scaled = c.scaled;
    to.layout = LayoutId::kOct;
    to.box = {rows(), c.scaled ? p.chunk : 32};
    if (!p.prepared) return to;
    to.section = prepared;
    to.box = {rows(), p.depth / p.cluster};
    to.pitch = p.prepared_pitch;
    return to;
  }
  static bool takes_alike(const StreamContraction& x, const StreamContraction& y) {
    return x.small == y.small && x.type == y.type && x.scaled == y.scaled;
  }
  /// Whether something else is made of a product's rows than products of the same kind.
  bool is_read_elsewhere(const StreamContraction& c) const {
    for (const StreamContraction& x : p.contractions)
      if (!takes_alike(x, c) && depends_on(g(), x.small, c.small)) return true;
    return std::any_of(p.statistics.begin(), p.statistics.end(),
                       [&](const StreamStatistic& x) { return depends_on(g(), x.of, c.small); });
  }
  void operand(const StreamContraction& c) {
    Place to = operand_place(c);
    const NodeId stored = stored_behind(g(), c.small);
    ValueId v = c.small;
    if (stored >= 0) {
      v = g().node(stored).first_value;
      if (!p.prepared && (c.type == ContractType::kTF32 || dtype_of(stored) == to.dtype)) return;
      small_input(stored, v);
    } else if (p.prepared || !is_read_elsewhere(c)) {
      w.compute(v, to, UnitId::kNone, false, p.prepared);
      return;
    } else {
      Place whole = to;   // before it is rounded: eight rows at a time
      whole.dtype = DType::kF32;
      whole.scaled = false;
      if (!c.scaled) whole.box[0] = 8;
      w.compute(v, whole);
      if (c.type == ContractType::kTF32) return;
    }
    const auto first =
        std::find_if(p.contractions.begin(), p.contractions.end(), [&](const StreamContraction& x) { return takes_alike(x, c); });
    if (&*first != &c) return;   // it is there already
    to.name = "rows";
    w.convert(v, to);
  }
  Place sum_place(const StreamWeight& x) const {
    Place to;
    to.layout = LayoutId::kSyncAcc;
    if (x.free == StreamAxis::kCol) to.box = {rows(), p.columns};
    else to.box = {ceil_div(p.row_tiles, 2) * 16, x.padded};
    return to;
  }
  /// A weight that the loop computes: 16 columns of 32 elements of the reduction at a time.
  void made(const StreamContraction& c) {
    if (c.made < 0) return;
    Place to;
    to.dtype = dtype_of(p.weights[static_cast<size_t>(c.weight)].input);
    to.layout = LayoutId::kSyncA;
    to.box = {32, 16};
    w.compute(c.made, to);
  }
  void contractions() {
    for (const StreamContraction& c : p.contractions) {
      operand(c);
      made(c);
      const StreamWeight& x = p.weights[static_cast<size_t>(c.weight)];
      w.compute(c.sum, sum_place(x), c.type == ContractType::kTF32 ? UnitId::kSyncTf32 : UnitId::kSync16, x.free == StreamAxis::kCol);
    }
    for (const StreamProduct& q : p.products) {
      Place to;
      to.dtype = dtype_of(q.input);
      to.layout = LayoutId::kSyncA;
      to.box = {p.weights[static_cast<size_t>(p.contractions[static_cast<size_t>(q.contraction)].weight)].padded, p.columns};
      w.copy(q.input, to, PathId::kLd);
    }
    for (const StreamSum& s : p.sums) {
      if (w.has(s.value)) continue;
      Place to;
      to.layout = LayoutId::kSyncAcc;
      to.box = {rows(), p.columns};
      const bool multiplies = std::any_of(s.products.begin(), s.products.end(), [&](const auto& term) {
        return !w.has(p.products[static_cast<size_t>(term.first)].value);
      });
      w.compute(s.value, to, multiplies ? UnitId::kSyncTf32 : UnitId::kNone, multiplies);
    }
  }

  /// Warps and blocks meet: matrices through the finished ring, statistics of rows at places of their own.
  void folds() {
    std::vector<AxisId> over{warps};
    if (cluster >= 0) over.insert(over.begin(), cluster);
    const WayId way = p.cluster > 1 ? WayId::kStAsync : WayId::kShared;
    ValueId last = -1;   // matrices are added up before any of them is folded
    for (const StreamSum& s : p.sums) last = std::max(last, s.value);
    for (size_t i = 0; i < p.sums.size(); i++) {
      Place items;
      items.name = fmt::format("items{}", i);
      items.section = ring;
      items.over = !p.registers;
      items.box = {p.warps, rows(), p.columns};
      std::vector<PlaceId> through{w.spare_place(items)};
      if (p.cluster > 1) {
        items.name = fmt::format("received{}", i);
        items.section = received;
        items.over = false;
        items.box = {rows(), p.columns};
        through.push_back(w.spare_place(items));
      }
      w.fold({p.sums[i].value}, over, way, through, last);
    }
    std::vector<AxisId> lanes = over;
    lanes.insert(lanes.begin(), kLanes);
    for (size_t i = 0; i < p.statistics.size(); i++) {
      Place parts;
      parts.name = fmt::format("parts{}", i);
      parts.section = statistics;
      parts.box = {int64_t{p.cluster} * p.warps, rows()};
      w.fold({p.statistics[i].result}, lanes, way, {w.spare_place(parts)});
    }
    for (size_t i = 0; i < p.early.size(); i++) {
      Place all;
      all.name = fmt::format("early{}", i);
      all.section = early;
      all.box = {rows()};
      w.compute(p.early[i].result, {});
      w.fold({p.early[i].result}, {kLanes}, WayId::kLanes, {w.spare_place(all)});
    }
  }

  /// What calls beside the first one have of their own: tensors with columns.
  void beside() {
    const IndexId n = w.find("n");
    for (const StreamShape& other : p.beside) {
      if (n < 0) throw Undescribed{"calls beside each other of one column"};
      Beside to{n, other.cols, {}, {}};
      const auto add = [&](size_t i, ValueId v, const Access& a, std::vector<std::pair<int, Param>>& out) {
        const auto& of = w.p.index_of[static_cast<size_t>(v)];
        if (std::find(of.begin(), of.end(), n) != of.end()) out.emplace_back(static_cast<int>(i), param_of(a));
      };
      for (NodeId x : g().inputs()) {
        const auto i = static_cast<size_t>(g().form<Input>(x)->param);
        add(i, g().node(x).first_value, other.operands[i], to.params);
        if (!to.params.empty()) to.params.back().second.dtype = w.p.params[static_cast<size_t>(to.params.back().first)].dtype;
      }
      for (NodeId x : g().outputs()) {
        const auto i = static_cast<size_t>(g().form<Output>(x)->result);
        add(i, g().node(x).operands[0], other.results[i], to.results);
      }
      w.p.beside.push_back(std::move(to));
    }
  }

  KernelProgram run() {
    axes();
    sections();
    for (const StreamAxis kind : {StreamAxis::kCol, StreamAxis::kRank})
      for (const bool second : {false, true})
        for (size_t i = 0; i < p.weights.size(); i++)
          if (p.weights[i].free == kind && (p.weights[i].instead_of >= 0) == second) weight(i);
    contractions();
    for (const StreamStatistic& s : p.statistics) w.compute(s.result, {});
    folds();
    small_inputs();
    beside();
    return w.finish({loop}, 0);
  }
};

}  // namespace

KernelProgram stream_program(const StreamPlan& p) {
  Writer w = writer_of(p.body, p.operands, p.results);
  name_shape(w, p);
  StreamPlan joined = with_joined_sums(w, p);
  return StreamDescriber{std::move(w), std::move(joined)}.run();
}

}  // namespace mirage::schedule
