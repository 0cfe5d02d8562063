// Plans block graphs with weights and more than a few rows on warpgroups (plan/tile.h): the structure that stream_match.cc finds, with the
// cheapest of some hundred divisions by the cost model (tile_cost.cc).
#include "plan/tile/tile_plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "mirage/ir/walk.h"
#include "mirage/ir/whole.h"
#include "mirage/support/round.h"
#include "plan/buffers.h"
#include "plan/stream/stream_internal.h"
#include "plan/stream/clusters.h"
#include "plan/tile/tile_internal.h"

namespace mirage {
namespace {

constexpr int64_t kLeastRows = 17;       // up to 16 rows the stream strategy pads nothing
constexpr int kMostBlockRows = 256;      // of a box
constexpr int64_t kPanel = 8;            // row blocks beside each other

/// Bytes of a chunk of a weight that its copies bring.
int64_t chunk_bytes(const TilePlan& p, const StreamWeight& w) {
  return int64_t{2} * p.chunk * w.padded * (w.free == StreamAxis::kCol ? p.column_groups : 1);
}

int64_t stride(const StreamShape& s, NodeId input, StreamAxis a) {
  const auto& axes = s.axes[static_cast<size_t>(s.body.node(input).first_value)];
  const Access& x = s.operands[static_cast<size_t>(s.body.form<Input>(input)->param)];
  for (size_t d = 0; d < axes.size(); d++) if (axes[d] == a) return x.strides[static_cast<int>(d)];
  return 0;
}

bool has(const StreamShape& s, ValueId v, StreamAxis a) {
  const auto& x = s.axes[static_cast<size_t>(v)];
  return std::count(x.begin(), x.end(), a) > 0;
}

/// Whether lines of an operand of rows lie across the reduction.
bool lies_across(const StreamShape& s, NodeId input) {
  return has(s, s.body.node(input).first_value, StreamAxis::kDepth) && stride(s, input, StreamAxis::kDepth) != 1;
}

/// The input behind v's transposes if the ring can bring it as it is for a contraction of that type with weights of type t. TF32 comes from
/// intermediates that were rounded to it.
NodeId copied_input(const StreamShape& s, ValueId v, ContractType contraction, DType t) {
  while (s.body.def_form<Transpose>(v)) v = s.body.def(v).operands[0];
  if (!s.body.def_form<Input>(v)) return -1;
  const NodeId n = s.body.value(v).node;
  const Access& a = s.operands[static_cast<size_t>(s.body.form<Input>(n)->param)];
  const int64_t lines = stride(s, n, StreamAxis::kRow);
  const bool tf32 = contraction == ContractType::kTF32;
  const int64_t unit = tf32 ? 4 : 8;   // elements of 16 bytes
  const bool across = lies_across(s, n);
  const int64_t pitch = across ? stride(s, n, StreamAxis::kDepth) : lines;
  return (tf32 ? a.tf32 && !across : a.dtype == t) && (across ? lines == 1 : lines > 0) && pitch % unit == 0 &&
                 a.offset % unit == 0 && stride(s, n, StreamAxis::kBatch) % unit == 0 && has(s, v, StreamAxis::kDepth)
             ? n
             : -1;
}

void leaves(const StreamShape& s, ValueId v, std::vector<NodeId>& out) {
  find_below(s.body, v, [&](ValueId x) {
    if (s.body.def_form<Input>(x)) out.push_back(s.body.value(x).node);
    return Look::kInto;
  });
}

/// Whether something that threads read element by element lies across the reduction.
bool reads_across(const TilePlan& p) {
  std::vector<NodeId> read;
  for (const TileRows& r : p.small) if (r.input < 0) leaves(p, r.value, read);
  for (const StreamStatistic& x : p.statistics) leaves(p, x.of, read);
  return std::any_of(read.begin(), read.end(), [&](NodeId n) { return lies_across(p, n); });
}

/// Words of 32 bits that a thread holds of one chunk of what is read through registers.
int held_words(const TilePlan& p) {
  std::vector<NodeId> deep;
  for (const TileRows& r : p.small) if (r.input < 0) leaves(p, r.value, deep);
  for (const StreamStatistic& x : p.statistics) {
    std::vector<NodeId> l;
    leaves(p, x.of, l);
    const auto in_ring = [&](NodeId n) {
      return std::any_of(p.small.begin(), p.small.end(), [&](const TileRows& r) { return r.input == n; });
    };
    if (!std::all_of(l.begin(), l.end(), [&](NodeId n) { return in_ring(n) || !has(p, p.body.node(n).first_value, StreamAxis::kDepth); }))
      deep.insert(deep.end(), l.begin(), l.end());
  }
  std::sort(deep.begin(), deep.end());
  deep.erase(std::unique(deep.begin(), deep.end()), deep.end());
  int words = 0;
  for (NodeId n : deep)
    if (has(p, p.body.node(n).first_value, StreamAxis::kDepth))
      words += p.chunk / 8 / p.lanes * dtype_bytes(p.operands[static_cast<size_t>(p.body.form<Input>(n)->param)].dtype) * 2;
  return words;
}

/// Registers of a thread of a warpgroup: sums, widened fragments, rows on their way, addresses.
int registers(const TilePlan& p) {
  int n = 48 + held_words(p), widened = 0, sums = 0, tail = 0;
  for (size_t c = 0; c < p.contractions.size(); c++) {
    n += tile_rank(p, c) ? (p.group_rows / 16 + 4 * p.column_groups - 1) / (4 * p.column_groups) *
                               p.weights[static_cast<size_t>(p.contractions[c].weight)].padded / 2 *
                               (p.weights[static_cast<size_t>(p.contractions[c].weight)].padded > 16 ? 1 : 2)
                         : p.group_rows / 2;
    if (p.contractions[c].type == ContractType::kTF32) widened += p.chunk / 16 * 8;
  }
  for (const StreamProduct& q : p.products)
    n += p.weights[static_cast<size_t>(p.contractions[static_cast<size_t>(q.contraction)].weight)].padded / 4 * (q.gained() ? 2 : 1);
  if (p.large && !p.held_tiles) n -= 16;   // a thread that only multiplies
  // Otherwise what the tail reads comes while all sums are still there.
  for (size_t c = 0; c < p.contractions.size(); c++) if (!tile_rank(p, c)) sums += p.group_rows / 2;
  for (NodeId i : p.body.inputs())
    if (const ValueId v = p.body.node(i).first_value; !p.large && has(p, v, StreamAxis::kRow) && has(p, v, StreamAxis::kCol))
      tail += 4 * p.tail_tiles();
  if (tail) n = std::max(n, 32 + sums + tail);
  return n + widened + (p.computes() ? 24 : 0) + (p.statistics.empty() ? 0 : 8);   // too few and ptxas lets wgmma run one by one (C7512)
}

// of a wgmma beside its accumulators, as ptxas counts them against what a thread is launched with
constexpr int kInstructionRegisters = 26;

/// Whether a large plan's warpgroups have the registers that they need, taking those of the copying warps where they must.
bool give_registers(TilePlan& p) {
  // each of the four schedulers has a quarter
  const auto launched = [&] { return std::min(248, 65536 / static_cast<int>(round_up(p.threads() * p.blocks_per_sm, 128)) / 8 * 8); };
  const int needed = registers(p);
  p.grown = 0;
  if (p.group_rows / 2 + kInstructionRegisters > launched()) return false;   // whatever the threads take later (C7602)
  if (needed <= launched()) return true;
  p.grown = 8;   // for threads()
  p.grown = std::min(240, (launched() * p.threads() - kCopyingRegisters * 128) / (128 * p.groups()) / 8 * 8);
  return needed <= p.grown && needed <= launched() + 16;
}

/// Lines of 16-bit pairs along columns, for v of these strides.
bool pairs_along_columns(const StreamShape& s, ValueId v, const Access& a) {
  int64_t rows = 0, columns = 0, slice = 0;
  const auto& axes = s.axes[static_cast<size_t>(v)];
  for (size_t d = 0; d < axes.size(); d++) {
    if (axes[d] == StreamAxis::kBatch) slice = a.strides[static_cast<int>(d)];
    if (axes[d] == StreamAxis::kRow) rows = a.strides[static_cast<int>(d)];
    if (axes[d] == StreamAxis::kCol) columns = a.strides[static_cast<int>(d)];
  }
  return dtype_bytes(a.dtype) == 2 && columns == 1 && rows % 2 == 0 && slice % 2 == 0 && a.offset % 2 == 0 && s.cols % 2 == 0 &&
         has(s, v, StreamAxis::kRow);
}

/// Whether a result, or an operand that the tail reads, has lines of whole 16 bytes along columns: gathered in shared memory as they are.
bool whole_lines(const TilePlan& p, NodeId n) {
  const bool output = p.body.form<Output>(n) != nullptr;
  const ValueId v = output ? p.body.node(n).operands[0] : p.body.node(n).first_value;
  const Access& a = output ? p.results[static_cast<size_t>(p.body.form<Output>(n)->result)]
                           : p.operands[static_cast<size_t>(p.body.form<Input>(n)->param)];
  if (!pairs_along_columns(p, v, a) || p.cols % 8 != 0 || a.offset % 8 != 0 || a.run != 0) return false;
  if (!output && (!has(p, v, StreamAxis::kCol) || has(p, v, StreamAxis::kDepth))) return false;
  const auto& axes = p.axes[static_cast<size_t>(v)];
  for (size_t d = 0; d < axes.size(); d++)
    if ((axes[d] == StreamAxis::kRow || axes[d] == StreamAxis::kBatch) && a.strides[static_cast<int>(d)] % 8 != 0) return false;
  return true;
}

/// Whether a result of 16 bits has its lines along rows, and whether these are of whole 16 bytes.
bool lies_along_rows(const TilePlan& p, NodeId output) {
  const auto* out = p.body.form<Output>(output);
  if (!out) return false;
  const ValueId v = p.body.node(output).operands[0];
  const Access& a = p.results[static_cast<size_t>(out->result)];
  if (dtype_bytes(a.dtype) != 2 || a.run != 0 || !has(p, v, StreamAxis::kRow) || !has(p, v, StreamAxis::kCol)) return false;
  const auto& axes = p.axes[static_cast<size_t>(v)];
  for (size_t d = 0; d < axes.size(); d++) if (axes[d] == StreamAxis::kRow) return a.strides[static_cast<int>(d)] == 1;
  return false;
}
bool whole_columns(const TilePlan& p, NodeId output) {
  if (!lies_along_rows(p, output)) return false;
  const ValueId v = p.body.node(output).operands[0];
  const Access& a = p.results[static_cast<size_t>(p.body.form<Output>(output)->result)];
  const auto& axes = p.axes[static_cast<size_t>(v)];
  for (size_t d = 0; d < axes.size(); d++)
    if (axes[d] != StreamAxis::kRow && axes[d] != StreamAxis::kOne && a.strides[static_cast<int>(d)] % 8 != 0) return false;
  return a.offset % 8 == 0;
}

/// Operands of rows and columns that the tail reads.
std::vector<NodeId> tail_operands(const TilePlan& p) {
  std::vector<NodeId> out;
  for (NodeId n : p.body.inputs())
    if (const ValueId v = p.body.node(n).first_value; has(p, v, StreamAxis::kRow) && has(p, v, StreamAxis::kCol)) out.push_back(n);
  return out;
}

/// Places that a result of blocks that stay has in turn: one is written while what lies in the other leaves. What the tail reads lies where
/// results will, in one.
int held_places(const TilePlan& p) { return tail_operands(p).empty() ? 2 : 1; }

/// Why blocks of this plan cannot stay for several tiles; null if they can. Results must leave, and what the tail reads come, by tensor
/// copies; the latter lies where the former will, so that all of a tile must fit.
const char* cannot_stay(const TilePlan& p) {
  if (!p.large || p.cluster > 1) return "blocks that stay and divide the reduction";
  if (p.group_rows % (8 * p.held_tiles)) return "row tiles that are held";
  if (!p.statistics.empty() || std::any_of(p.small.begin(), p.small.end(), [](const TileRows& r) { return r.input < 0; }))
    return "rows that blocks which stay would compute";
  const std::vector<NodeId> operands = tail_operands(p);
  for (NodeId n : p.body.outputs()) {
    if (whole_lines(p, n)) continue;
    if (!whole_columns(p, n) || p.held_tiles % 8 != 0) return "results that no tensor copy stores";
    if (!operands.empty()) return "results along rows over operands along columns";
  }
  for (NodeId n : operands) if (!whole_lines(p, n)) return "an operand behind the sums that no tensor copy brings";
  if (!operands.empty() && p.group_rows != 8 * p.held_tiles) return "operands behind the sums of part of a tile";
  return nullptr;
}

/// Why a plan with the numbers of that choice is none; null if it is one.
const char* cannot_divide(const TilePlan& p, const TileChoice& choice) {
  if (!p.large && p.sharing > 1) return "rows are shared by large plans";
  if (p.large && !p.products.empty()) return "a low rank of a large plan";
  if (p.held_tiles)
    if (const char* why = cannot_stay(p)) return why;
  if (choice.overlaid && (!p.large || p.cluster == 1)) return "nothing is received over the ring";
  if (p.sharing > 1 && p.cluster > 1) return "blocks that share rows and divide the reduction";
  if (p.large &&
      std::any_of(p.contractions.begin(), p.contractions.end(), [](const StreamContraction& c) { return c.type == ContractType::kTF32; }))
    return "TF32 in a large plan";
  if (std::any_of(p.small.begin(), p.small.end(), [](const TileRows& r) { return r.across; }) &&
      (!p.large || p.group_rows % 64 || p.block_rows() / p.sharing % 64))
    return "rows across the reduction, in boxes of 64";
  if (p.block_rows() % (8 * p.sharing)) return "rows that do not divide among the blocks that share them";
  if (p.group_rows > (p.large ? kMostBlockRows : 128) || p.group_rows % 16 || p.block_rows() > kMostBlockRows)
    return "rows of a warpgroup";
  if (p.large ? p.tail_tiles() * (p.cluster - 1) >= p.tiles() : p.group_rows % (8 * p.cluster) != 0) return "rows of a warpgroup";
  return nullptr;
}

/// How many blocks stay: two tiles each at least, that a reduced shape shows what one leaves to the next.
void keep_blocks(TilePlan& p, const Target& target) {
  const int64_t clusters = p.blocks() * p.batch / p.sharing;
  int64_t results = 0;
  for (const Access& a : p.results) results += a.dims.elements() * dtype_bytes(a.dtype);
  p.passing = results > target.l2_bytes;
  p.resident = std::min<int64_t>(int64_t{target.num_sms} * p.blocks_per_sm / p.sharing, (clusters + 1) / 2) * p.sharing;
}

/// Places in a stage of the ring, and of computed rows behind it.
void place_stage(TilePlan& p) {
  int64_t at = 0;
  p.weight_bytes = 0;
  for (StreamWeight& w : p.weights) {
    w.offset = static_cast<int>(at);
    at += round_up(chunk_bytes(p, w), kBoxAlign);
    p.weight_bytes += chunk_bytes(p, w);
  }
  int64_t computed = 0;
  for (TileRows& r : p.small) {
    r.bytes = int64_t{p.block_rows()} * p.chunk * (r.type == ContractType::kTF32 ? 4 : 2);
    int64_t& place = r.input >= 0 ? at : computed;
    r.offset = place;
    place += r.bytes;
  }
  p.stage_bytes = at;
  p.computed_at = p.stages * p.stage_bytes;
  p.computed_bytes = computed;
}

/// Places in shared memory of what follows the ring and the computed rows.
void place_behind_ring(TilePlan& p) {
  p.held_at = p.computed_at + 2 * p.computed_bytes;
  const size_t operands = p.held_tiles ? tail_operands(p).size() : 0;
  const int64_t held = p.held_tiles ? static_cast<int64_t>(std::max(p.body.outputs().size(), operands)) * held_places(p) * p.staged_bytes()
                                    : 0;
  const int64_t received = (p.cluster - 1) * p.share_bytes(), ring = p.held_at + held;
  p.received_at = p.overlaid ? 0 : ring;
  p.ranks_at = p.overlaid ? std::max(ring, received) : ring + received;
  int64_t ranks = 0;
  for (const StreamContraction& c : p.contractions)
    if (const StreamWeight& w = p.weights[static_cast<size_t>(c.weight)]; w.free == StreamAxis::kRank) ranks += round_up(w.extent, 16);
  p.statistics_at = p.ranks_at + ranks * p.rank_pitch() * p.row_groups * 4;
  p.barriers_at = round_up(p.statistics_at + p.cluster * p.statistics_bytes(), 8);
  p.smem_bytes = p.barriers_at + 8 * (2 * p.stages + 1) + (operands > 0 ? 16 * p.groups() : 0);
}

}  // namespace

std::optional<TilePlan> tile_plan(const StreamShape& shape, const Target& target, std::string& reason) {
  if (shape.second || computes_weights(shape)) {
    reason = "weights that are computed in the loop, or a reduction of two parts";
    return std::nullopt;
  }
  const auto refuse = [&](const char* why) { reason = why; return std::nullopt; };
  if (!target.has_tma || !target.has_cluster || target.sm != 90) return refuse("no warpgroup instructions");
  if (shape.rows < kLeastRows) return refuse("no more than 16 rows");
  if (!shape.early.empty()) return refuse("reductions of whole rows before the loop");
  TilePlan p;
  static_cast<StreamShape&>(p) = shape;
  for (StreamContraction& c : p.contractions) {
    if (!has(p, c.small, StreamAxis::kRow)) return refuse("a product without rows");
    const DType t = p.operands[static_cast<size_t>(p.body.form<Input>(p.weights[static_cast<size_t>(c.weight)].input)->param)].dtype;
    TileRows r{c.small, copied_input(p, c.small, c.type, t), c.type};
    size_t i = 0;
    while (i < p.small.size() && (p.small[i].value != r.value || p.small[i].type != r.type)) i++;
    if (i == p.small.size()) p.small.push_back(r);
    p.small_of.push_back(static_cast<int>(i));
  }
  // Fragments of a weight in TF32 have the reduction in its own order only where lines lie across it; other rows are computed, in the order
  // that fragments have.
  for (size_t c = 0; c < p.contractions.size(); c++)
    if (p.contractions[c].type == ContractType::kTF32 && p.weights[static_cast<size_t>(p.contractions[c].weight)].depth_major)
      p.small[static_cast<size_t>(p.small_of[c])].input = -1;
  for (TileRows& r : p.small) r.across = r.input >= 0 && lies_across(p, r.input);
  if (reads_across(p)) return refuse("computed rows without lines along the reduction");
  const bool all_come =
      std::all_of(p.small.begin(), p.small.end(), [](const TileRows& r) { return r.type != ContractType::kTF32 || r.input >= 0; });
  for (TileRows& r : p.small) if (r.type == ContractType::kTF32 && !all_come) r.input = -1;   // a weight's fragments have one order
  // What copies bring behind the last line's end is zero; what is computed of that need not be.
  const bool is_copied = p.statistics.empty() && std::all_of(p.small.begin(), p.small.end(), [](const TileRows& r) {
                           return r.type != ContractType::kTF32 && r.input >= 0;
                         });
  if (p.depth % 8 && !is_copied) return refuse("a computed operand whose reduction is no multiple of 8");
  for (size_t i = 0; i < p.weights.size(); i++) {
    StreamWeight& w = p.weights[i];
    const auto widened = [&](const StreamContraction& c) { return static_cast<size_t>(c.weight) == i && c.type == ContractType::kTF32; };
    if (w.free == StreamAxis::kCol || std::any_of(p.contractions.begin(), p.contractions.end(), widened)) {
      w.padded = 64;   // a low rank in TF32 is a weight of few columns: what a box has beyond them is zero
      continue;
    }
    // Lines without gaps are copied as lines of 128 bytes: narrow ones are a request of L2 each, which all blocks make alike.
    w.packed = !w.depth_major && w.line == w.extent && w.extent == w.padded && p.depth * w.extent % 64 == 0;
  }
  return p;
}

bool divide_tile(TilePlan& p, const TileChoice& choice, const Target& target, std::string& reason) {
  p.turned = choice.turned;
  p.held_tiles = choice.held_tiles;
  if (p.turned) return divide_turned(p, choice, target, reason);
  const auto refuse = [&](const char* why) { reason = why; return false; };
  p.row_groups = choice.row_groups;
  p.column_groups = choice.column_groups;
  p.group_rows = choice.group_rows;
  p.chunk = choice.chunk;
  p.stages = choice.stages;
  p.cluster = choice.cluster;
  p.blocks_per_sm = choice.blocks_per_sm;
  p.large = choice.large;
  p.sharing = choice.sharing;
  if (const char* why = cannot_divide(p, choice)) return refuse(why);
  p.row_blocks = (p.rows + p.block_rows() - 1) / p.block_rows();
  p.panel = std::min<int64_t>(p.row_blocks, kPanel);
  p.evict_first = choice.evict_first && p.row_blocks == 1;
  p.chunks = (p.depth + p.chunk - 1) / p.chunk;
  p.chunks_per_block = (p.chunks + p.cluster - 1) / p.cluster;
  if (p.chunks_per_block * (p.cluster - 1) >= p.chunks) return refuse("fewer chunks than blocks");
  if (p.stages > p.chunks_per_block && !p.held_tiles) return refuse("more stages than chunks");
  if (p.held_tiles) keep_blocks(p, target);
  p.lanes = 8;
  while (p.lanes > 1 && p.lanes * p.group_rows > p.team()) p.lanes /= 2;
  if (p.lanes * p.group_rows > p.team() &&
      (!p.statistics.empty() || std::any_of(p.small.begin(), p.small.end(), [](const TileRows& r) { return r.input < 0; })))
    return refuse("more rows than threads that read them");
  p.overlaid = choice.overlaid;
  place_stage(p);
  place_behind_ring(p);
  if (p.smem_bytes > target.smem_per_block && p.large && p.cluster > 1 && !p.computes()) {
    p.overlaid = true;   // shared memory is worth more as stages than what one more meeting costs
    place_behind_ring(p);
  }
  if (p.smem_bytes > target.smem_per_block || p.blocks_per_sm * (p.smem_bytes + 1024) > target.smem_per_sm) return refuse("shared memory");
  if (p.large) return give_registers(p) || refuse("registers");
  if (registers(p) > std::min<int>(248, 65536 / (static_cast<int>(round_up(p.threads(), 128)) * p.blocks_per_sm) / 8 * 8))
    return refuse("registers");
  return true;
}

namespace {

/// A division that fits, and its time. Plans are made of those that are wanted: thousands are tried.
struct Division { TileChoice choice; double us = 0; };

/// Tries divisions of one matched plan, whose numbers they overwrite.
struct Divisions {
  TilePlan plan;
  const Target& target;
  std::vector<Division> all;
  std::string reason;
  void consider(const TileChoice& choice) {
    if (divide_tile(plan, choice, target, reason)) all.push_back({choice, estimate(plan, target, false).us});
  }
};

/// Tiles of these rows and columns, too few for all multiprocessors, whose reduction the blocks of a cluster divide.
void divided_candidates(Divisions& d, TileChoice choice) {
  const int64_t block_rows = int64_t{choice.row_groups} * choice.group_rows, block_columns = int64_t{64} * choice.column_groups;
  const int64_t tiles = (d.plan.rows + block_rows - 1) / block_rows * ((d.plan.cols + block_columns - 1) / block_columns) * d.plan.batch;
  for (int cluster : {2, 4}) {
    if (tiles > clusters_that_fit(cluster, d.target) || 2 * tiles * cluster < d.target.num_sms) continue;
    choice.cluster = cluster;
    for (int chunk : {64, 128})
      for (int stages : {3, 4, 5, 6}) {
        choice.chunk = chunk;
        choice.stages = stages;
        d.consider(choice);
      }
  }
}

/// Divisions for the tensor cores' rate: 64 columns per warpgroup, as many rows as registers hold.
void large_candidates(Divisions& d) {
  for (const auto& [row_groups, column_groups] : {std::pair{1, 1}, {1, 2}, {2, 1}, {2, 2}, {1, 3}, {1, 4}})
    for (int rows : {64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256}) {
      if (rows > 64 && row_groups * (rows - 16) >= d.plan.rows) continue;
      if (column_groups > 1 && d.plan.cols <= 64 * (column_groups - 1)) continue;
      divided_candidates(d, {row_groups, rows, 64, 4, 1, 1, true, column_groups, true, 1});
      for (int sharing : {1, 2})
        for (int chunk : {64, 128})
          for (int stages : {3, 4, 6, 8})
            for (int blocks : {1, 2}) d.consider({row_groups, rows, chunk, stages, 1, blocks, true, column_groups, true, sharing});
    }
}

/// Divisions of that kind whose blocks stay, where there are more tiles than multiprocessors.
void staying_candidates(Divisions& d) {
  for (const auto& [row_groups, column_groups] : {std::pair{1, 1}, {1, 2}, {2, 1}, {2, 2}, {1, 4}})
    for (int rows : {64, 96, 128, 160, 192, 224, 256}) {
      if (rows > 64 && row_groups * (rows - 32) >= d.plan.rows) continue;
      if (column_groups > 1 && d.plan.cols <= 64 * (column_groups - 1)) continue;
      const int64_t tiles = (d.plan.rows + row_groups * rows - 1) / (row_groups * rows) *
                            ((d.plan.cols + 64 * column_groups - 1) / (64 * column_groups)) * d.plan.batch;
      for (int held : {rows / 8, rows / 16, rows / 32})
        for (int sharing : {1, 2})
          for (int stages : {2, 3, 4, 6, 8})
            for (int blocks : {1, 2, 3})
              if (rows % (8 * held) == 0 && tiles > int64_t{d.target.num_sms} * blocks)
                d.consider({row_groups, rows, 64, stages, 1, blocks, true, column_groups, true, sharing, false, 0, held});
    }
}

/// All that fit, the cheapest first; empty with the reason.
std::vector<Division> divisions_of(const TilePlan& matched, const Target& target, std::string& reason) {
  Divisions d{matched, target, {}, {}};
  for (const auto& [row_groups, column_groups] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}})
    for (int rows : {16, 32, 48, 64, 80, 96, 112, 128}) {
      if (rows > 16 && row_groups * (rows - 16) >= matched.rows) continue;   // the next smaller ones hold all rows
      if (column_groups > 1 && matched.cols <= 64) continue;
      for (int cluster : {1, 2, 4})
        for (int chunk : {64, 128})
          for (int stages : {1, 2, 3, 4, 5, 6, 8})
            for (int blocks : {1, 2, 3}) d.consider({row_groups, rows, chunk, stages, cluster, blocks, true, column_groups});
    }
  large_candidates(d);
  staying_candidates(d);
  for (const TileChoice& choice : turned_choices(matched)) d.consider(choice);
  if (d.all.empty()) reason = d.reason;
  std::stable_sort(d.all.begin(), d.all.end(), [](const Division& a, const Division& b) { return a.us < b.us; });
  return std::move(d.all);
}

TilePlan divided(const TilePlan& matched, const TileChoice& choice, const Target& target) {
  TilePlan p = matched;
  std::string reason;
  MIRAGE_ASSERT(divide_tile(p, choice, target, reason)) << reason;
  p.cost = estimate(p, target);
  return p;
}

std::vector<TilePlan> matched_tiles(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results,
                                    const Target& target, const ContractRule& rule, std::string& reason) {
  if (in_runs(operands, {})) { reason = "rows in runs"; return {}; }   // tensor copies bring them
  std::vector<TilePlan> out;
  for (const StreamShape& shape : stream_shapes(body, operands, results, rule, kAnyRows, reason))
    if (std::optional<TilePlan> p = tile_plan(shape, target, reason)) out.push_back(std::move(*p));
  std::vector<Dims> dims;
  for (const Access& a : operands) dims.push_back(a.dims);
  if (out.empty()) return out;
  if (Whole all = whole(body, dims); !all.reason.empty()) {   // no program says what its kernel would do
    reason = std::move(all.reason);
    out.clear();
  }
  return out;
}

}  // namespace

TileCandidates tile_candidates(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results,
                               const Target& target, const ContractRule& rule) {
  TileCandidates all;
  for (const TilePlan& matched : matched_tiles(body, operands, results, target, rule, all.reason))
    for (const Division& d : divisions_of(matched, target, all.reason)) all.plans.push_back(divided(matched, d.choice, target));
  std::stable_sort(all.plans.begin(), all.plans.end(), [](const TilePlan& a, const TilePlan& b) { return a.cost.us < b.cost.us; });
  return all;
}

TilePlanned plan_tile(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results, const Target& target,
                      const ContractRule& rule) {
  TilePlanned best;
  for (const TilePlan& matched : matched_tiles(body, operands, results, target, rule, best.reason)) {
    const std::vector<Division> all = divisions_of(matched, target, best.reason);
    if (all.empty() || (best.plan && all.front().us >= best.cost.us)) continue;
    best.plan = std::make_shared<const TilePlan>(divided(matched, all.front().choice, target));
    best.cost = best.plan->cost;
  }
  return best;
}

bool tile_rank(const TilePlan& p, size_t contraction) {
  const int weight = p.contractions[contraction].weight;
  return p.weights[static_cast<size_t>(weight)].free == StreamAxis::kRank &&
         std::none_of(p.contractions.begin(), p.contractions.end(),
                      [&](const StreamContraction& c) { return c.weight == weight && c.type == ContractType::kTF32; });
}

int64_t staged_at(const TilePlan& p, NodeId node) {
  if (!p.large) return -1;
  if (p.held_tiles) {   // an operand lies where a result will
    const std::vector<NodeId> of = p.body.form<Output>(node) ? p.body.outputs() : tail_operands(p);
    const auto it = std::find(of.begin(), of.end(), node);
    return it == of.end() ? -1 : p.held_at + (it - of.begin()) * held_places(p) * p.staged_bytes();
  }
  int64_t at = p.overlaid ? (p.cluster - 1) * p.share_bytes() : 0;
  std::vector<NodeId> all = p.body.outputs();
  for (NodeId n : p.body.inputs()) all.push_back(n);
  for (NodeId n : all) {
    const bool fits = (whole_lines(p, n) || lies_along_rows(p, n)) && at + p.staged_bytes() <= p.computed_at;
    if (n == node) return fits ? at : -1;
    if (fits) at += p.staged_bytes();
  }
  return -1;
}

ByColumns staged_by_columns(const TilePlan& p, NodeId output) {
  if (staged_at(p, output) < 0 || whole_lines(p, output) || !lies_along_rows(p, output)) return ByColumns::kNo;
  return whole_columns(p, output) ? ByColumns::kWhole : ByColumns::kUneven;
}

}  // namespace mirage
