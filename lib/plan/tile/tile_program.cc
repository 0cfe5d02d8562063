// Tile plans as programs: one ring per block that warps of their own fill, warpgroups that multiply from it. The weight, transposed, is the
// 64-row operand; in a turned plan the rows are, and nothing is refilled.
#include <algorithm>

#include <fmt/format.h>

#include "plan/tile/tile_plan.h"
#include "mirage/support/round.h"
#include "plan/program/params.h"
#include "plan/stream/shape_names.h"
#include "plan/tile/tile_internal.h"

namespace mirage::schedule {
namespace {

struct TileDescriber {
  const TilePlan& p;
  Writer w;
  int weights_role = 0, rows_role = 0, work = 0;
  int ring = -1, computed = -1, received = -1, ranks = -1, statistics = -1, others = -1, plain = -1, factors = -1;
  std::vector<int> held = {};
  AxisId loop = -1, cluster = -1;

  const Graph& g() const { return p.body; }
  DType dtype_of(NodeId n) const { return p.operands[static_cast<size_t>(g().form<Input>(n)->param)].dtype; }
  const StreamWeight& weight_of(size_t c) const { return p.weights[static_cast<size_t>(p.contractions[c].weight)]; }
  int64_t lines() const { return p.chunk / 64; }
  int64_t rounds() const { return ceil_div(p.blocks() * p.batch, p.launched()); }   // tiles that one block does
  bool refilled() const { return p.chunks_per_block * rounds() > p.stages; }
  /// Operands of rows and columns that blocks which stay have brought where their results will lie.
  std::vector<NodeId> brought() const {
    std::vector<NodeId> out;
    for (NodeId n : g().inputs()) if (p.held_tiles && staged_at(p, n) >= 0) out.push_back(n);
    return out;
  }

  void axes() {
    name_shape(w, p);
    const IndexId n = w.find("n"), m = w.find("m"), k = w.find("k"), b = w.find("b");
    if (k < 0) throw Undescribed{"a reduction of one element"};
    std::vector<Axis> columns{{"x", AxisKind::kGrid, ceil_div(p.column_blocks(), p.sharing)}};
    if (p.sharing > 1) columns.push_back({"e", AxisKind::kCluster, p.sharing});
    if (p.column_groups > 1) columns.push_back({"h", AxisKind::kGroup, p.column_groups});
    if (n >= 0) w.split(n, p.turned ? p.turned : 64, columns, false);
    std::vector<Axis> rows{{"y", AxisKind::kGrid, p.row_blocks}};
    if (p.row_groups > 1) rows.push_back({"g", AxisKind::kGroup, p.row_groups});
    if (m >= 0) w.split(m, p.group_rows, rows, false);
    if (b >= 0) w.split(b, 1, {{"z", AxisKind::kGrid, p.batch}}, false);
    std::vector<Axis> over;
    if (p.cluster > 1) over.push_back({"c", AxisKind::kCluster, p.cluster});
    over.push_back({"i", AxisKind::kLoop, p.chunks_per_block});
    const AxisId first = w.split(k, p.chunk, over, true);
    if (p.cluster > 1) cluster = first;
    loop = first + static_cast<AxisId>(over.size()) - 1;
    w.p.per_sm = p.blocks_per_sm;
    w.p.panel = p.large ? p.panel : p.row_blocks;   // otherwise all row blocks come before the next columns
    w.p.throughput = p.large;
    w.p.stay = p.held_tiles ? p.launched() : 0;
    w.assume_divides(n, p.block_columns());
    w.assume_divides(m, p.block_rows());
    w.assume_divides(k, p.chunk);
    w.assume_divides(k, int64_t{p.chunk} * p.chunks_per_block);
  }

  void roles() {
    const int gives = p.grown > 0 ? kCopyingRegisters : 0;
    if (!p.turned) {
      weights_role = w.role("weights", 1, gives);
      rows_role = w.role("rows", p.grown > 0 ? 3 : 1, gives);   // the last two only give their registers
    }
    work = w.role("work", 4 * p.groups(), p.grown);
    if (p.turned) weights_role = rows_role = work;
    w.loop_layout = LayoutId::kPiece;
  }

  void sections() {
    ring = w.section({"ring", 1, p.stages, 1024, 0, false});
    if (p.computes()) computed = w.section({"computed", 1, 2, 1024, 0, false});
    if (p.turned) {
      if (std::any_of(p.weights.begin(), p.weights.end(), [](const StreamWeight& x) { return x.packed; }))
        plain = w.section({"plain", 1, 1, 1024, 0, false});
      if (std::any_of(p.products.begin(), p.products.end(), [&](const StreamProduct& q) { return copied_factor(p, q); }))
        factors = w.section({"factors", 1, 1, 1024, 0, false});
      w.section({"barriers", 1, 1, plain >= 0 ? 1024 : 8, int64_t{8} * ((plain < 0) + (factors < 0)), true});
      return;
    }
    for (size_t i = 0; p.held_tiles && i < std::max(g().outputs().size(), brought().size()); i++)   // in turn, if nothing is brought there
      held.push_back(w.section({fmt::format("held{}", i), 1, brought().empty() ? 2 : 1, 1024, 0, false}));
    if (p.cluster > 1) received = p.overlaid ? ring : w.section({"received", 1, 1, 16, 0, false});
    for (size_t c = 0; c < p.contractions.size(); c++)
      if (weight_of(c).free == StreamAxis::kRank && ranks < 0) ranks = w.section({"ranks", 1, 1, 4, 0, false});
    if (!p.statistics.empty()) statistics = w.section({"statistics", 1, 1, 4, 0, false});
    if (!p.statistics.empty() && p.cluster > 1) others = w.section({"others", 1, 1, 4, 0, false});
    const int tails = brought().empty() ? 0 : p.groups();
    const int used = p.stages * (refilled() ? 2 : 1) + (p.cluster > 1 ? 1 : 0) + tails * (rounds() > 1 ? 2 : 1);
    w.section({"barriers", 1, 1, 8, int64_t{8} * (2 * p.stages + 1 + 2 * tails - used), true});
  }

  // ---- what comes from device memory
  void weight(size_t i) {
    const StreamWeight& x = p.weights[i];
    const bool wide = x.free == StreamAxis::kCol;
    Place to;
    to.name = fmt::format("w{}", i);
    to.dtype = dtype_of(x.input);
    to.section = ring;
    to.swizzle = 128;
    if (p.turned && x.packed) {
      to.section = plain;
      to.box = {p.chunks * p.chunk * x.extent / 64, 64};
    } else if (p.turned) {
      to.box = wide ? std::vector<int64_t>{p.block_columns() / 64, 64, 64} : std::vector<int64_t>{x.depth_major ? x.padded : 64, 64};
    } else if (x.packed) {
      to.box = {p.chunk * x.padded / 64, 64};
    } else {
      to.box = x.depth_major ? std::vector<int64_t>{lines(), x.padded, 64} : std::vector<int64_t>{p.chunk, x.padded};
      if (!x.depth_major) to.swizzle = x.padded * 2;
      if (wide) to.box.insert(to.box.begin(), p.column_groups);
    }
    w.copy(x.input, to, PathId::kTma, p.turned ? 0 : p.stages, weights_role, wide && p.evict_first, false, p.turned && x.packed);
  }
  void rows() {
    for (size_t i = 0; i < p.small.size(); i++) {
      const TileRows& r = p.small[i];
      const int64_t along = r.type == ContractType::kTF32 ? 32 : 64;   // elements of a line
      Place to;
      to.name = fmt::format("rows{}", i);
      to.box = {p.chunk / along, p.block_rows(), along};
      to.swizzle = 128;
      if (r.input >= 0) {
        to.dtype = dtype_of(r.input);
        to.section = ring;
        if (r.across) {
          to.box = {p.block_rows() / 64, p.chunk, 64};
          to.columns = p.axes[static_cast<size_t>(g().node(r.input).first_value)].back() != StreamAxis::kRow;
        }
        w.copy(r.input, to, PathId::kTma, p.turned ? 0 : p.stages, rows_role, false, p.sharing > 1);
        continue;
      }
      to.dtype = r.type == ContractType::kTF32 ? DType::kF32 : r.type == ContractType::kF16 ? DType::kF16 : DType::kBF16;
      to.section = computed;
      place_computed(r, to);
    }
  }
  /// Rows that threads read, perhaps convert, and put where wgmma takes them.
  void place_computed(const TileRows& r, const Place& to) {
    if (stored_behind(g(), r.value) < 0) {
      if (w.has(r.value)) w.convert(r.value, to);   // in another type, too
      else w.compute(r.value, to);
      return;
    }
    const NodeId n = stored_behind(g(), r.value);
    Place held;
    held.dtype = dtype_of(n);
    held.layout = LayoutId::kPiece;
    w.copy(n, held, PathId::kLd, 1, work);
    w.convert(g().node(n).first_value, to);
  }
  /// Where lines of a tile of a result, or of an operand, are gathered over the finished ring.
  Place gathered_place(const std::string& name, DType t) const {
    Place to;
    to.name = name;
    to.dtype = t;
    to.section = ring;
    to.over = true;
    to.box = {p.groups(), 8 * p.tail_tiles(), 64};
    to.swizzle = 128;
    return to;
  }
  /// A tile of a result, or of an operand, that leaves or comes whole.
  Place held_place(const char* name, size_t i, DType t) const {
    Place to;
    to.name = fmt::format("{}{}", name, i);
    to.dtype = t;
    to.section = held[i];
    to.box = {p.groups(), 8 * p.held_tiles, 64};
    to.swizzle = 128;
    return to;
  }
  void other_inputs() {
    for (size_t i = 0; i < brought().size(); i++) {
      const NodeId n = brought()[i];
      Place to = held_place("tail", i, dtype_of(n));
      to.apart = p.groups();
      w.copy(n, to, PathId::kTma, 0, rows_role);
      w.wish(g().node(n).first_value).stage.rides = i > 0;
    }
    for (NodeId n : g().inputs()) {
      const ValueId v = g().node(n).first_value;
      if (w.has(v)) continue;
      Place to;
      to.dtype = dtype_of(n);
      const bool deep = has_axis(p, v, StreamAxis::kDepth);
      if (deep) to.layout = LayoutId::kPiece;
      const bool gathered = !p.held_tiles && staged_at(p, n) >= 0;
      if (gathered) to = gathered_place("", to.dtype);
      w.copy(n, to, PathId::kLd, deep ? 1 : 0, work);
      // beside the sums a thread has no room for all that it will need of rows
      w.wish(v).late = p.large && !deep && has_axis(p, v, StreamAxis::kRow);
    }
  }

  // ---- sums
  UnitId unit_of(size_t c) const {
    const bool tf32 = p.contractions[c].type == ContractType::kTF32;
    if ((tile_rank(p, c) && !p.turned) || (p.turned && weight_of(c).packed)) return UnitId::kSync16;
    return tf32 ? UnitId::kWgmmaTf32 : UnitId::kWgmma;
  }
  Place sum_place(size_t c) const {
    const StreamWeight& x = weight_of(c);
    Place to;
    to.layout = LayoutId::kWgmmaAcc;
    to.box = {p.group_rows, 64};
    if (p.turned) to.box = {64, x.free == StreamAxis::kCol ? p.turned : x.padded};
    else if (tile_rank(p, c)) {
      to.layout = LayoutId::kSyncAcc;
      to.box = {ceil_div(p.group_rows / 16, 4 * p.column_groups) * 16, x.padded};
    }
    return to;
  }
  void sums() {
    for (size_t c = 0; c < p.contractions.size(); c++) {
      const StreamWeight& x = weight_of(c);
      w.compute(p.contractions[c].sum, sum_place(c), unit_of(c), !p.turned && !tile_rank(p, c));
      if (p.turned || x.free != StreamAxis::kRank) continue;
      Place shared;   // where the second factor takes it from
      shared.name = fmt::format("ranks{}", c);
      shared.section = ranks;
      shared.box = {p.row_groups, round_up(x.extent, 16), p.group_rows};
      shared.pitch = int64_t{p.rank_pitch()} * 4;
      w.convert(p.contractions[c].sum, shared);
    }
    for (const StreamProduct& q : p.products) factor(q);
    for (const StreamSum& s : p.sums) {
      if (w.has(s.value)) continue;
      Place to;
      to.layout = LayoutId::kWgmmaAcc;
      to.box = {p.group_rows, p.turned ? p.turned : 64};
      w.compute(s.value, to, s.products.empty() ? UnitId::kNone : UnitId::kSyncTf32, !s.products.empty() && !p.turned);
    }
    for (const StreamStatistic& s : p.statistics) w.compute(s.result, {});
  }
  void factor(const StreamProduct& q) {
    Place to;
    to.dtype = dtype_of(q.input);
    const int padded = p.weights[static_cast<size_t>(p.contractions[static_cast<size_t>(q.contraction)].weight)].padded;
    if (p.turned && copied_factor(p, q)) {
      to.section = factors;
      to.swizzle = 128;
      to.box = {p.block_columns() / 64, padded, 64};
      w.copy(q.input, to, PathId::kTma, 0, work);
      return;
    }
    to.layout = p.turned ? LayoutId::kSyncB : LayoutId::kSyncA;
    w.copy(q.input, to, PathId::kLd, 0, work);
  }

  /// Blocks of a cluster meet: each finishes some rows of every warpgroup.
  void folds() {
    if (p.cluster > 1)
      for (size_t i = 0; i < p.sums.size(); i++) {
        Place parts;
        parts.name = fmt::format("received{}", i);
        parts.section = received;
        parts.over = p.overlaid;
        parts.box = {p.cluster - 1, int64_t{p.groups()} * p.tail_tiles(), 8, 64};
        w.fold({p.sums[i].value}, {cluster}, WayId::kStAsync, {w.spare_place(parts)});
      }
    for (size_t i = 0; i < p.statistics.size(); i++) {
      Place parts;
      parts.name = fmt::format("parts{}", i);
      parts.section = statistics;
      parts.box = {p.block_rows()};
      std::vector<AxisId> over{kLanes};
      std::vector<PlaceId> through{w.spare_place(parts)};
      if (p.cluster > 1) {
        over.push_back(cluster);
        parts.section = others;
        parts.box.insert(parts.box.begin(), p.cluster - 1);
        through.push_back(w.spare_place(parts));
      }
      w.fold({p.statistics[i].result}, over, p.cluster > 1 ? WayId::kStAsync : WayId::kShared, through);
    }
    size_t next = 0;
    for (NodeId n : g().outputs()) {
      const int result = g().form<Output>(n)->result;
      if (!p.held_tiles) {
        if (staged_at(p, n) < 0) continue;
        Place to = gathered_place(fmt::format("out{}", result), p.results[static_cast<size_t>(result)].dtype);
        to.columns = staged_by_columns(p, n) != ByColumns::kNo;
        w.store_by(result, WayId::kLines, to);
        continue;
      }
      Place to = held_place("held_result", next++, p.results[static_cast<size_t>(result)].dtype);
      to.over = !brought().empty();
      to.columns = staged_by_columns(p, n) != ByColumns::kNo;
      w.store_by(result, WayId::kTma, to, p.passing);
    }
  }

  KernelProgram run() {
    axes();
    roles();
    sections();
    for (size_t i = 0; i < p.weights.size(); i++) weight(i);
    rows();
    sums();
    folds();
    other_inputs();
    return w.finish(std::vector<AxisId>(w.p.roles.size(), loop), work);
  }
};

}  // namespace

KernelProgram tile_program(const TilePlan& p) {
  return TileDescriber{p, writer_of(p.body, p.operands, p.results)}.run();
}

}  // namespace mirage::schedule
