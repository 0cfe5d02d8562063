// Tile plans whose rows are the 64-row operand of wgmma (plan/tile.h, `turned`): for products of a short reduction beside a low rank. The low rank is some columns more of the same products, its sum a register fragment that
// the second factor takes as it is; with the weight as the 64-row operand it is added up by mma.sync, goes through shared memory and waits there. Emitted by codegen/tile_turned.cc.
//
// The whole reduction lies in shared memory: all copies are asked for at once, nothing is refilled.
#include <algorithm>

#include <fmt/format.h>

#include "plan/tile_internal.h"

namespace mirage {
namespace {

constexpr int kChunk = 64;
constexpr int kMostRegisters = 200;   // of a thread: sums and second factors

int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

/// Bytes of a chunk of a weight in shared memory.
int64_t chunk_bytes(const TilePlan& p, const StreamWeight& w) {
  if (w.packed) return round_up(int64_t{kChunk} * w.extent * 2, 1024);
  const int64_t columns = w.free == StreamAxis::kCol ? p.block_columns() : w.padded;
  return w.depth_major ? columns * 128 : (columns + 63) / 64 * kChunk * 128;
}

int registers(const TilePlan& p) {
  int n = 60;
  for (const StreamContraction& c : p.contractions) {
    const StreamWeight& w = p.weights[static_cast<size_t>(c.weight)];
    n += (w.free == StreamAxis::kCol ? p.turned : w.padded * (w.packed ? 2 : 1)) / 2;
  }
  for (const StreamProduct& q : p.products) n += p.turned / 8 * p.weights[static_cast<size_t>(p.contractions[static_cast<size_t>(q.contraction)].weight)].padded / 8;
  for (NodeId i : p.body.inputs()) {   // what the tail reads is asked for before the loop
    const auto& axes = p.axes[static_cast<size_t>(p.body.node(i).first_value)];
    const auto along = [&](StreamAxis a) { return std::count(axes.begin(), axes.end(), a) > 0; };
    if (along(StreamAxis::kDepth) || along(StreamAxis::kRank)) continue;
    n += along(StreamAxis::kRow) && along(StreamAxis::kCol) ? p.turned / 2 : along(StreamAxis::kCol) ? p.turned / 4 : 2;
  }
  return n;
}

}  // namespace

bool divide_turned(TilePlan& p, const TileChoice& choice, const Target& target, std::string& reason) {
  const auto refuse = [&](const char* why) { reason = why; return false; };
  if (p.products.empty()) return refuse("rows first without a low rank");
  if (!p.statistics.empty()) return refuse("statistics of rows that are the 64-row operand");
  for (const TileRows& r : p.small) if (r.input < 0) return refuse("computed rows as the 64-row operand");
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
    w.offset = static_cast<int>(at);
    at += chunk_bytes(p, w);
    p.weight_bytes += chunk_bytes(p, w);
  }
  for (TileRows& r : p.small) {
    r.bytes = int64_t{p.block_rows()} * 128;
    r.offset = at;
    at += r.bytes;
  }
  p.stage_bytes = at;
  p.smem_bytes = p.computed_at = p.received_at = p.ranks_at = p.statistics_at = p.barriers_at = at * p.stages;
  p.computed_bytes = 0;
  if (p.smem_bytes > target.smem_per_block) return refuse("shared memory");
  if (registers(p) > kMostRegisters || registers(p) > 65536 / p.threads()) return refuse("registers");
  p.blocks_per_sm = 1;
  return true;
}

std::vector<TileChoice> turned_choices(const TilePlan& matched) {
  std::vector<TileChoice> out;
  for (const auto& [row_groups, column_groups] : {std::pair{1, 1}, {1, 2}, {2, 1}, {2, 2}})
    for (int columns : {32, 64, 96, 128}) {
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

constexpr double kStartUs = 1.75;           // until the first bytes are there
constexpr double kTailUs = 0.35;
constexpr double kSmBytesPerUs = 75e3;      // what one multiprocessor takes by cp.async
constexpr double kHotLineUs = 0.0045;       // a line of L2 that all blocks ask for, per block
constexpr double kProductClocks = 1750;

}  // namespace

Cost estimate_turned(const TilePlan& p, const Target& target, bool explain) {
  double dram = 0, flops = 0;
  for (const Access& a : p.operands) dram += static_cast<double>(a.dims.elements() * dtype_bytes(a.dtype));
  for (const Access& a : p.results) dram += static_cast<double>(a.dims.elements() * dtype_bytes(a.dtype));
  for (const StreamContraction& c : p.contractions) flops += 2.0 * static_cast<double>(p.batch * p.rows * p.depth * p.weights[static_cast<size_t>(c.weight)].extent);
  const double blocks = static_cast<double>(p.blocks() * p.batch), rounds = std::ceil(blocks / target.num_sms);
  const double bytes = static_cast<double>(p.smem_bytes);
  const double products = static_cast<double>(p.chunks * p.groups()) * (kChunk / 16) * p.turned / 2 / kProductClocks;
  Cost c;
  c.us = target.launch_us + kStartUs + kTailUs + rounds * (bytes / kSmBytesPerUs + 0.3 * products) + kHotLineUs * blocks + (rounds - 1) * 2.0 + std::max(0.0, dram / target.dram_bytes_per_us - bytes / kSmBytesPerUs);
  c.bytes = static_cast<int64_t>(dram);
  c.flops = flops;
  if (explain) c.why = fmt::format("rows first: {:.1f} MB, {} blocks of {} threads, {:.0f} KB each at once", dram / 1e6, static_cast<int64_t>(blocks), p.threads(), bytes / 1024);
  return c;
}

}  // namespace mirage
