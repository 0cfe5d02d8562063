// Tile plans whose rows are the 64-row operand of wgmma (plan/tile.h, `turned`): for products of a short reduction beside a low rank. The
// low rank is some columns more of the same products, its sum a register fragment that the second factor takes as it is; with the weight as
// the 64-row operand it is added up by mma.sync, goes through shared memory and waits there. Emitted by codegen/kernels/tile_turned.cc.
//
// The whole reduction lies in shared memory: all copies are asked for at once, nothing is refilled. A low rank of plain bytes comes first
// and in one copy, since all blocks ask for the same lines.
#include <algorithm>

#include <fmt/format.h>

#include "mirage/support/round.h"
#include "plan/tile/tile_internal.h"

namespace mirage {
namespace {

constexpr int kChunk = 64;
constexpr int64_t kMostBoxLines = 256;
// by mma.sync; more are worth wgmma, though their copies are narrow (128 x 256 with rank 32 4.43, 100 x 256 with rank 64 3.98)
constexpr int64_t kMostSyncRank = 16;
constexpr int kMostRegisters = 200;   // of a thread: sums and second factors

int registers(const TilePlan& p) {
  int n = 60;
  for (const StreamContraction& c : p.contractions) {
    const StreamWeight& w = p.weights[static_cast<size_t>(c.weight)];
    n += (w.free == StreamAxis::kCol ? p.turned : w.padded * (w.packed ? 2 : 1)) / 2;
  }
  for (const StreamProduct& q : p.products)
    n += p.turned / 8 * p.weights[static_cast<size_t>(p.contractions[static_cast<size_t>(q.contraction)].weight)].padded / 8;
  for (NodeId i : p.body.inputs()) {   // what the tail reads is asked for before the loop
    const auto& axes = p.axes[static_cast<size_t>(p.body.node(i).first_value)];
    const auto along = [&](StreamAxis a) { return std::count(axes.begin(), axes.end(), a) > 0; };
    if (along(StreamAxis::kDepth) || along(StreamAxis::kRank)) continue;
    n += along(StreamAxis::kRow) && along(StreamAxis::kCol) ? p.turned / 2 : along(StreamAxis::kCol) ? p.turned / 4 : 2;
  }
  return n;
}

int64_t batch_stride(const TilePlan& p, NodeId input) {
  const Access& a = p.operands[static_cast<size_t>(p.body.form<Input>(input)->param)];
  const auto& axes = p.axes[static_cast<size_t>(p.body.node(input).first_value)];
  for (size_t d = 0; d < axes.size(); d++) if (axes[d] == StreamAxis::kBatch) return a.strides[static_cast<int>(d)];
  return 0;
}

/// Bytes that the copies of a weight bring, of a chunk or, where its lines lie as plain bytes, of the whole reduction.
int64_t turned_weight_bytes(const TilePlan& p, const StreamWeight& w) {
  if (w.packed) return p.chunks * kChunk * w.extent * 2;
  // lines of 64 of the reduction, or 64 lines of 64 columns
  return (w.free == StreamAxis::kCol ? p.block_columns() : w.depth_major ? w.padded : 64) * int64_t{128};
}
/// Of a second factor.
int64_t turned_factor_bytes(const TilePlan& p, const StreamProduct& q) {
  const StreamWeight& w = p.weights[static_cast<size_t>(p.contractions[static_cast<size_t>(q.contraction)].weight)];
  return w.padded * int64_t{128} * (p.block_columns() / 64);
}

}  // namespace

bool copied_factor(const TilePlan& p, const StreamProduct& q) {
  return q.col_stride == 1 && q.rank_stride % 8 == 0 && batch_stride(p, q.input) % 8 == 0 &&
         p.operands[static_cast<size_t>(p.body.form<Input>(q.input)->param)].offset % 8 == 0;
}

bool divide_turned(TilePlan& p, const TileChoice& choice, const Target& target, std::string& reason) {
  const auto refuse = [&](const char* why) { reason = why; return false; };
  if (p.products.empty()) return refuse("rows first without a low rank");
  if (!p.statistics.empty()) return refuse("statistics of rows that are the 64-row operand");
  for (const TileRows& r : p.small) if (r.input < 0) return refuse("computed rows as the 64-row operand");
  for (const TileRows& r : p.small) if (r.across) return refuse("rows across the reduction as the 64-row operand");
  for (const StreamContraction& c : p.contractions) if (c.type == ContractType::kTF32) return refuse("TF32 with rows first");
  p.row_groups = choice.row_groups;
  p.column_groups = choice.column_groups;
  p.group_rows = 64;
  p.chunk = kChunk;
  p.cluster = p.sharing = 1;
  p.grown = 0;
  p.large = p.overlaid = p.evict_first = false;
  p.chunks = p.chunks_per_block = (p.depth + kChunk - 1) / kChunk;
  p.stages = static_cast<int>(p.chunks);
  p.row_blocks = (p.rows + p.block_rows() - 1) / p.block_rows();
  p.panel = 1;
  int64_t at = 0;
  p.weight_bytes = 0;
  for (StreamWeight& w : p.weights) {
    w.packed = w.packed && w.extent <= kMostSyncRank;
    if (w.packed) continue;
    w.offset = static_cast<int>(at);
    at += turned_weight_bytes(p, w);
    p.weight_bytes += turned_weight_bytes(p, w);
  }
  for (TileRows& r : p.small) {
    r.bytes = int64_t{p.block_rows()} * 128;
    r.offset = at;
    at += r.bytes;
  }
  p.stage_bytes = at;
  at *= p.stages;
  for (StreamWeight& w : p.weights) {
    if (!w.packed) continue;
    if (p.chunks * w.extent > kMostBoxLines) return refuse("a low rank's plain bytes in one copy");
    w.offset = static_cast<int>(at);
    at = round_up(at + turned_weight_bytes(p, w), 1024);
  }
  p.ranks_at = at;
  for (const StreamProduct& q : p.products) if (copied_factor(p, q)) at += turned_factor_bytes(p, q);
  p.computed_at = p.received_at = p.statistics_at = p.barriers_at = at;
  p.computed_bytes = 0;
  p.smem_bytes = at + 8 * (p.stages + 2);
  if (p.smem_bytes > target.smem_per_block) return refuse("shared memory");
  if (registers(p) > kMostRegisters || registers(p) > 65536 / p.threads()) return refuse("registers");
  p.blocks_per_sm = 1;
  return true;
}

std::vector<TileChoice> turned_choices(const TilePlan& matched) {
  std::vector<TileChoice> out;
  for (const auto& [row_groups, column_groups] : {std::pair{1, 1}, {1, 2}, {2, 1}, {2, 2}})
    for (int columns : {64, 128}) {
      if (row_groups > 1 && matched.rows <= 64) continue;
      TileChoice choice;
      choice.row_groups = row_groups;
      choice.column_groups = column_groups;
      choice.turned = columns;
      out.push_back(choice);
    }
  return out;
}

namespace {

// One H200, cold, 4096 columns, rank 16 (docs/measurements/tiles.md): 64 x 64 per block, reductions of 128 and 256: 3.28, 3.58; 64 x 128 of
// 256 rows 4.52; 128 x 64 there 5.04.
constexpr double kStartUs = 2.3;            // until the first bytes are there, and the tail
constexpr double kAreaUs = 0.45, kGroupUs = 0.3;   // beyond 64 x 64 per block; beyond one warpgroup

}  // namespace

Cost estimate_turned(const TilePlan& p, const Target& target, bool explain) {
  double dram = 0, flops = 0;
  for (const Access& a : p.operands) dram += static_cast<double>(a.dims.elements() * dtype_bytes(a.dtype));
  for (const Access& a : p.results) dram += static_cast<double>(a.dims.elements() * dtype_bytes(a.dtype));
  for (const StreamContraction& c : p.contractions)
    flops += 2.0 * static_cast<double>(p.batch * p.rows * p.depth * p.weights[static_cast<size_t>(c.weight)].extent);
  const double blocks = static_cast<double>(p.blocks() * p.batch), rounds = std::ceil(blocks / target.num_sms);
  const double bytes = static_cast<double>(p.smem_bytes);
  Cost c;
  const double area = static_cast<double>(p.block_rows()) * p.block_columns() / 4096 * static_cast<double>(p.sums.size());
  c.us = target.launch_us + kStartUs + std::max(rounds * bytes / target.turned_sm_bytes_per_us, dram / target.dram_bytes_per_us) +
         kAreaUs * (area - 1) + kGroupUs * (p.groups() - 1) + (rounds - 1) * 1.5;
  c.bytes = static_cast<int64_t>(dram);
  c.flops = flops;
  if (explain)
    c.why = fmt::format("rows first: {:.1f} MB, {} blocks of {} threads, {:.0f} KB each at once", dram / 1e6, static_cast<int64_t>(blocks),
                        p.threads(), bytes / 1024);
  return c;
}

}  // namespace mirage
