// The cost model of tile plans: launch, first latency, the bytes at the rate that the stages in flight sustain or the products at the rate
// of the tensor cores, and the meeting of the cluster's blocks. Constants are fitted to the variants measured on an H200
// (docs/measurements/tiles.md); test/unit/plan/tile.cc holds their order.
#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "plan/stream/clusters.h"
#include "plan/tile/tile_internal.h"

namespace mirage {
namespace {

constexpr double kPrologueUs = 0.7;        // barriers, first copy issued until its bytes are there
constexpr double kTailUs = 0.45;           // the fused tail and its stores
// fragments of a weight for TF32, per 16 of the reduction: nothing of the same warpgroup runs beside
constexpr double kWidenClocks = 40;
// a low rank beside wgmma: per 16 rows of a warp, 16 ranks and 16 of the reduction; per chunk
constexpr double kRankClocks = 15, kRankTurnClocks = 110;
constexpr double kOneShotRankUs = 0.3;     // its products where few chunks come behind them
constexpr double kReuseUs = 0.85;          // until a stage that was let go holds its next chunk
constexpr double kErfFunctions = 1.5;
constexpr double kFunctionUs = 0.06;       // 8 rows of a warpgroup's tail, per function of many instructions

double soft_max(double a, double b) { return std::pow(std::pow(a, 6) + std::pow(b, 6), 1.0 / 6); }
/// Where one hardly waits for the other.
double harder_max(double a, double b) { return std::max(a, b) * std::pow(1 + std::pow(std::min(a, b) / std::max(a, b), 16), 1.0 / 16); }

/// What v is computed from in the loop: `words` of 32 bits of rows, and `heavy` functions of many instructions, per eight elements of a
/// row.
struct Reading { double words = 0, heavy = 0; bool apart = false; };   // apart: some of it is not in the ring
Reading reading(const TilePlan& p, ValueId value) {
  Reading r;
  std::vector<ValueId> open{value};
  std::vector<bool> seen(static_cast<size_t>(p.body.num_values()), false);
  while (!open.empty()) {
    const ValueId v = open.back();
    open.pop_back();
    if (seen[static_cast<size_t>(v)]) continue;
    seen[static_cast<size_t>(v)] = true;
    const auto& axes = p.axes[static_cast<size_t>(v)];
    const auto along = [&](StreamAxis a) { return std::count(axes.begin(), axes.end(), a) > 0; };
    if (const auto* in = p.body.def_form<Input>(v)) {
      if (along(StreamAxis::kRow)) r.words += dtype_bytes(p.operands[static_cast<size_t>(in->param)].dtype) * 2;
      r.apart = r.apart || (along(StreamAxis::kDepth) && std::none_of(p.small.begin(), p.small.end(),
                                                                      [&](const TileRows& x) { return x.input == p.body.value(v).node; }));
    }
    if (const auto* m = p.body.def_form<Map>(v))
      r.heavy += m->fn != MapFn::kAdd && m->fn != MapFn::kSub && m->fn != MapFn::kMul && m->fn != MapFn::kNeg && m->fn != MapFn::kMax &&
                         m->fn != MapFn::kMin
                     ? 1
                     : 0.05;
    for (ValueId o : p.body.def(v).operands) open.push_back(o);
  }
  return r;
}

/// Functions of many instructions behind the loop; erf is more than the others (exact, behind 4096 cubed, 5 to 9 us of a tile's 44).
double tail_functions(const TilePlan& p) {
  double n = 0;
  for (NodeId o : p.body.outputs()) n += reading(p, p.body.node(o).operands[0]).heavy;
  for (const TileRows& r : p.small) n -= reading(p, r.value).heavy;
  if (p.large)
    for (const Node& x : p.body.nodes())
      if (const auto* m = std::get_if<Map>(&x.op); m && (m->fn == MapFn::kErf || m->fn == MapFn::kGelu)) n += kErfFunctions - 1;
  return std::max(0.0, n);
}

/// Clocks of a warpgroup to compute its share of a chunk of rows: asked of L2 one chunk ahead only, so that more than a few words wait for
/// it; functions of many instructions count by themselves.
double computing(const TilePlan& p, ValueId rows) {
  const Reading r = reading(p, rows);
  return 500 + static_cast<double>(p.chunk) / 8 / p.lanes * (55 * r.words + 700 * r.heavy);
}

/// The same for statistics. Those of rows in the ring read them there; others have rows of their own come through registers, in each chunk
/// as late as a load from L2 is (200 x 2000 rows, 64 at a time: 0.86 us a chunk; 48 rows of 4096, half of them in a block: 0.83; both
/// halves of a cluster of two: 1.4).
double statistics(const TilePlan& p) {
  double clocks = p.statistics.empty() ? 0.0 : 60.0, apart = 0;
  // rows come that way in any case, and are counted with what is computed from them
  if (std::any_of(p.small.begin(), p.small.end(), [](const TileRows& r) { return r.input < 0; })) return clocks;
  for (const StreamStatistic& s : p.statistics)
    if (const Reading r = reading(p, s.of); r.apart) apart += static_cast<double>(p.chunk) / 8 / p.lanes * (80 * r.words + 700 * r.heavy);
  return clocks + (apart > 0 ? 900 + apart : 0.0);
}

/// Bytes of all tensors once.
double all_bytes(const TilePlan& p) {
  double n = 0;
  for (const Access& a : p.operands) n += static_cast<double>(a.dims.elements() * dtype_bytes(a.dtype));
  for (const Access& a : p.results) n += static_cast<double>(a.dims.elements() * dtype_bytes(a.dtype));
  return n;
}
double all_flops(const TilePlan& p) {
  double n = 0;
  for (const StreamContraction& x : p.contractions)
    n += 2.0 * static_cast<double>(p.batch * p.rows * p.depth * p.weights[static_cast<size_t>(x.weight)].extent);
  return n;
}

/// How much dearer a tensor's boxes are whose lines do not begin with a sector of 32 bytes.
double misaligned(const TilePlan& p, NodeId input) {
  const Access& a = p.operands[static_cast<size_t>(p.body.form<Input>(input)->param)];
  for (int d = 0; d < a.dims.rank(); d++) if (a.dims[d] > 1 && a.strides[d] > 1 && a.strides[d] * dtype_bytes(a.dtype) % 32) return 2;
  return a.offset * dtype_bytes(a.dtype) % 32 ? 2 : 1;
}

// Large plans. The clock is what is left of it under such a load, for minutes (power); few rows at once ask more of shared memory per
// product than it gives.
constexpr double kShortFlops = 3e9;   // a few microseconds of work do not reach the limit of power
constexpr double kStartUs = 1.0;           // barriers, tensor maps, the first bytes
constexpr double kIssueClocks = 60;        // of one warpgroup alone, per chunk
constexpr double kSharedUs = 0.11, kSharedStartUs = 0.35;
// of bytes a nanosecond, with warpgroups of several columns, and with three or four of them in a divided plan
constexpr double kBesideRate = 0.8, kThreeBesideRate = 0.65;
// of the first stages, whose bytes come while the first chunk is waited for; less where they are most of the chunks
constexpr double kAhead = 0.35;
/// Columns that are not neighbours in memory: each element is a sector of its own, or eight rows are one (2.1 million of 16 bits: 27 us
/// more than in lines).
double scattered_us(const TilePlan& p) {
  constexpr double kSector = 32, kBytesPerUs = 2.5e6;
  double sectors = 0;
  for (NodeId n : p.body.outputs()) {
    if (staged_by_columns(p, n) != ByColumns::kNo) continue;
    const ValueId v = p.body.node(n).operands[0];
    const Access& a = p.results[static_cast<size_t>(p.body.form<Output>(n)->result)];
    int64_t row = 0, column = 1;
    for (size_t d = 0; d < p.axes[static_cast<size_t>(v)].size(); d++) {
      if (p.axes[static_cast<size_t>(v)][d] == StreamAxis::kRow) row = a.strides[static_cast<int>(d)];
      if (p.axes[static_cast<size_t>(v)][d] == StreamAxis::kCol) column = a.strides[static_cast<int>(d)];
    }
    if (column != 1)
      sectors += static_cast<double>(p.rows * p.cols * p.batch) / (row == 1 ? std::min(8.0, kSector / dtype_bytes(a.dtype)) : 1.0);
  }
  return sectors * kSector / kBytesPerUs;
}

// of a cluster whose blocks divide the reduction: launch and waiting, and more of it for each block beyond two; what a block sends and
// receives; one more barrier
constexpr double kMeetingMoreUs = 0.2, kOverlaidUs = 0.3;
constexpr double kStoreUs = 0.07;          // 8 rows of a warpgroup's tail: whole lines at a time
// of blocks that stay: a tile's end, more of it where rows are shared, each time that results wait for others to have left, 8 rows of a
// warpgroup, the last results
constexpr double kStayUs = 0.25, kSharedTailUs = 0.45, kHeldUs = 0.05, kStageUs = 0.0125, kLastUs = 1.0;
// the clock that those measured had; all that L2 gives them; how much slower than reads results are written, by blocks of one warpgroup's
// columns, and for each row; what a block's tail takes of another's time
constexpr double kStayClock = 1.09, kL2Share = 1.35, kWritten = 1.1, kNarrowWritten = 0.06, kTallWritten = 8e-4, kCrowdedTail = 0.7;

/// Of one chunk of a block of a large plan: clocks of the tensor cores for a warpgroup's products, of that warpgroup besides, bytes.
/// rows: of the bytes, those of rows that are shared.
struct LargeChunk { double clocks = 0, turn = 0, computed = 0, bytes = 0, rows = 0; };
LargeChunk large_chunk(const TilePlan& p, const Target& target) {
  LargeChunk x;
  // Of one instruction, over 16 of the reduction: its products, or its operands from shared memory.
  const double instruction = std::max(1.03 * p.group_rows / 2.0, (2048 + 32.0 * p.group_rows) / target.operand_bytes_per_clock);
  for (const StreamContraction& c : p.contractions) x.clocks += instruction * (p.chunk / 16) * (c.type == ContractType::kTF32 ? 2.0 : 1.0);
  x.turn = kIssueClocks + statistics(p);
  double rows_bytes = 0, weight_bytes = 0;
  for (const StreamWeight& w : p.weights)
    weight_bytes += (w.free == StreamAxis::kCol ? p.block_columns() : 64.0) * p.chunk * 2 * misaligned(p, w.input);
  for (const TileRows& r : p.small) {
    // A block whose rows do not all exist holds up those that read the same weights (112 rows of 384: 17.6 us; 96: 13.1).
    const double last = static_cast<double>(p.rows - (p.row_blocks - 1) * p.block_rows()), outside = p.block_rows() - last;
    rows_bytes += static_cast<double>(r.bytes) * (1 + std::min(outside, last) / p.block_rows()) / p.sharing *
                  (r.input >= 0 ? misaligned(p, r.input) : 1.0);
    if (r.input < 0) x.computed += computing(p, r.value);
  }
  x.bytes = weight_bytes + rows_bytes;
  x.rows = rows_bytes;
  return x;
}
double large_clock(const TilePlan& p, const Target& target) {
  return target.loaded_clock_per_us +
         (target.short_clock_per_us - target.loaded_clock_per_us) * std::exp(-std::pow(all_flops(p) / kShortFlops, 2));
}

/// Blocks that stay: copies run on over the ends of tiles, results leave while the next products run. What a warpgroup does behind its sums
/// is exposed unless another block of the multiprocessor multiplies.
Cost estimate_staying(const TilePlan& p, const Target& target, bool explain) {
  const LargeChunk x = large_chunk(p, target);
  const double clock = kStayClock * large_clock(p, target), chunks = static_cast<double>(p.chunks);
  const double tiles = static_cast<double>(p.blocks() * p.batch), at_once = p.blocks_per_sm,
               rounds = std::ceil(tiles / static_cast<double>(p.launched()));
  // What lies beyond the reduction is not read; rows that are shared are no fewer to L2 (236 us, as 128 x 128 without).
  const double bytes = (x.bytes + x.rows * (p.sharing - 1)) * std::min(1.0, static_cast<double>(p.depth) / (chunks * p.chunk));
  const double rate = std::min((p.column_groups == 1 ? 1.0 : kBesideRate) * target.large_sm_bytes_per_us,
                               kL2Share * target.l2_bytes_per_us / std::min<double>(static_cast<double>(p.launched()), target.num_sms));
  const double cores = x.clocks * p.groups() * at_once / clock, own = (x.clocks + x.turn) / clock;
  // A stage is asked for again behind its own products and the next ones (4096 cubed with two stages: 320 us).
  const double t_sm = std::max(bytes * at_once / rate, (target.large_latency_us + 2 * cores) / p.stages);
  const double times = static_cast<double>(p.tiles()) / p.held_tiles;
  const double tail = kStayUs + kHeldUs * (times - 1) + kStageUs * p.tiles() * p.groups() * static_cast<double>(p.body.outputs().size()) +
                      kFunctionUs * p.tiles() * tail_functions(p) + (p.sharing > 1 ? kSharedTailUs : 0.0);
  const double beside = at_once > 1 ? kCrowdedTail * at_once * tail : 0.0;   // another block's tail in the way
  const double one = std::max({own, cores / at_once, t_sm / at_once});       // block
  const double work = rounds * std::max({chunks * cores + beside, chunks * one + tail, chunks * t_sm + beside});
  // Results are written at a lower rate, lower still many lines at a time and short ones.
  double written = 0;
  for (const Access& a : p.results) written += static_cast<double>(a.dims.elements() * dtype_bytes(a.dtype));
  const double lines = kWritten + kTallWritten * p.block_rows() + (p.column_groups == 1 ? kNarrowWritten : 0.0);
  const double dram = all_bytes(p), t_dram = ((dram - written) * 1.05 + written * lines) / target.dram_bytes_per_us;
  Cost c;
  c.us = target.launch_us + 0.4 + kStartUs + (p.sharing > 1 ? kSharedStartUs : 0.0) + kLastUs + harder_max(work, t_dram) +
         0.02 * p.blocks_per_sm + 0.01 * (8 - std::min(8, p.stages));
  c.bytes = static_cast<int64_t>(dram);
  c.flops = all_flops(p);
  if (explain)
    c.why = fmt::format("bound by {}: {:.1f} GFLOP, {:.1f} MB, {} tiles by {} blocks of {} threads that stay, {} per SM, {} round(s)",
                        t_dram > work                                ? "device memory"
                        : chunks * t_sm > chunks * own + tail        ? "bytes in flight"
                                                                     : "tensor cores",
                        c.flops / 1e9, dram / 1e6, static_cast<int64_t>(tiles), p.launched(), p.threads(), p.blocks_per_sm,
                        static_cast<int>(rounds));
  return c;
}

Cost estimate_large(const TilePlan& p, const Target& target, bool explain) {
  const LargeChunk x = large_chunk(p, target);
  const double blocks = static_cast<double>(p.blocks() * p.batch), per_sm = std::ceil(blocks / target.num_sms),
               at_once = std::min<double>(p.blocks_per_sm, per_sm), rounds = std::ceil(per_sm / at_once);
  const double chunks = static_cast<double>(p.chunks_per_block);
  // Of the blocks at work together on one SM, per chunk of each: the tensor cores; one warpgroup's own turn.
  const double turn_us = std::max(x.clocks * p.groups() * at_once, x.clocks + x.turn + x.computed) / large_clock(p, target);
  // Blocks that divide the reduction read nothing alike, so that no request of neighbours is answered together; blocks that share rows wait
  // for each other once per stage. Warpgroups beside each other have copies of their own, which come at a lower rate: 384 x 4096 x 2048
  // divided in two took 12.8 us in tiles of 192 x 64, 15.4 in tiles of 96 x 128.
  const double beside = p.column_groups == 1 ? 1.0 : p.cluster > 1 && p.column_groups > 2 ? kThreeBesideRate : kBesideRate;
  const double rate = beside * (p.cluster > 1 ? std::min(target.divided_sm_bytes_per_us,
                                                         target.divided_bytes_per_us / std::min<double>(blocks, target.num_sms))
                                              : target.large_sm_bytes_per_us);
  // a stage is in use until the next chunk's products run
  const double t_sm = soft_max(x.bytes * at_once / rate, target.large_latency_us / std::max(p.stages - 1.3, 0.5)) +
                      (p.sharing > 1 ? kSharedUs : 0.0);
  const double tail =
      0.15 + kStoreUs * p.tail_tiles() * at_once * (1 + 0.5 * static_cast<double>(p.sums.size() - 1)) * (p.groups() > 2 ? 1.5 : 1.0) +
      kFunctionUs * p.tail_tiles() * tail_functions(p);
  const double dram = all_bytes(p), t_dram = dram / target.dram_bytes_per_us * 1.05;
  const double work = rounds * ((chunks - kAhead * std::min<double>(p.stages, 0.6 * chunks)) * soft_max(turn_us, t_sm) + tail);
  const double meeting = p.cluster > 1 ? target.meeting_us + kMeetingMoreUs * (p.cluster - 2) +
                                             static_cast<double>((p.cluster - 1) * p.share_bytes()) / target.exchange_bytes_per_us +
                                             (p.overlaid ? kOverlaidUs : 0.0)
                                       : 0.0;
  const double start = kStartUs + (p.sharing > 1 ? kSharedStartUs : 0.0);
  Cost c;
  c.us = target.launch_us + 0.4 + start + meeting + soft_max(work, t_dram) + scattered_us(p) + 0.02 * (p.blocks_per_sm - at_once) +
         0.01 * (8 - std::min(8, p.stages));
  c.bytes = static_cast<int64_t>(dram);
  c.flops = all_flops(p);
  if (explain)
    c.why = fmt::format("bound by {}: {:.1f} GFLOP, {:.1f} MB, {} blocks of {} threads, {} per SM, {} round(s)",
                        t_dram > work    ? "device memory"
                        : t_sm > turn_us ? "bytes in flight"
                                         : "tensor cores",
                        c.flops / 1e9, dram / 1e6, static_cast<int64_t>(blocks), p.threads(), p.blocks_per_sm, static_cast<int>(rounds));
  return c;
}

}  // namespace

Cost estimate(const TilePlan& p, const Target& target, bool explain) {
  if (p.turned) return estimate_turned(p, target, explain);
  if (p.large) return p.held_tiles ? estimate_staying(p, target, explain) : estimate_large(p, target, explain);
  const double dram = all_bytes(p);
  const double clusters = std::ceil(static_cast<double>(p.cols) / p.block_columns()) * static_cast<double>(p.row_blocks * p.batch),
               blocks = clusters * p.cluster;
  const double resident = static_cast<double>(std::max<int64_t>(1, resident_clusters(p.cluster, p.blocks_per_sm, target)));
  const double waves = std::ceil(clusters / resident);
  const double active = std::min<double>(target.num_sms, blocks), at_once = std::min<double>(p.blocks_per_sm, std::ceil(blocks / active));
  const double chunks = static_cast<double>(p.chunks_per_block);
  // One block: bytes and products of a chunk.
  double rows_bytes = 0;   // of computed rows the source is read as stored
  for (const TileRows& r : p.small) rows_bytes += static_cast<double>(r.bytes) * (r.input >= 0 ? misaligned(p, r.input) : 1.0);
  const double chunk_bytes = static_cast<double>(p.weight_bytes) + rows_bytes;
  // of the tensor cores, per block and chunk; few rows wait for the weight's 2 KB from shared memory, 128 bytes a clock
  double clocks = 0;
  for (size_t i = 0; i < p.contractions.size(); i++) {
    const StreamContraction& c = p.contractions[i];
    if (tile_rank(p, i)) {   // added up once for all rows, beside the warpgroups' own products
      clocks +=
          static_cast<double>(p.block_rows()) * p.weights[static_cast<size_t>(c.weight)].padded * p.chunk * 2 / target.sync_flops_per_clock;
      continue;
    }
    clocks +=
        p.groups() * std::max(p.group_rows / 2.0, 16 + p.group_rows / 4.0) * (p.chunk / 16) * (c.type == ContractType::kTF32 ? 2.0 : 1.0);
  }
  // A warpgroup waits for its own products before it lets a stage go: few of them leave gaps.
  double turn = 130.0 + statistics(p);
  for (const TileRows& r : p.small) if (r.input < 0) turn += computing(p, r.value);
  double shared = 0;   // clocks of shared memory: what wgmma reads, and what warps read for low ranks
  for (size_t i = 0; i < p.contractions.size(); i++) {
    if (!tile_rank(p, i)) { shared += p.groups() * (16 + p.group_rows / 4.0) * (p.chunk / 16); continue; }
    const int ranks = p.weights[static_cast<size_t>(p.contractions[i].weight)].padded, tiles = p.group_rows / 16,
              warps = 4 * p.column_groups;
    turn += kRankTurnClocks + kRankClocks * (p.chunk / 16) * ((tiles + warps - 1) / warps) * (ranks / 16);
    shared += p.row_groups * tiles * (p.chunk / 16) * (4 + ranks / 16 * 4.0);
  }
  for (const StreamContraction& c : p.contractions) if (c.type == ContractType::kTF32) turn += kWidenClocks * (p.chunk / 16);
  const double per_block = std::max({clocks, shared, clocks / p.groups() + turn}) * chunks / target.clock_per_us;
  const double rounds = std::ceil(blocks / (active * at_once));   // of blocks that follow each other on one SM
  // many products: the clock sinks
  const double t_mma = soft_max(per_block, clocks * at_once * chunks / target.clock_per_us) * rounds * (p.row_blocks > 1 ? 1.17 : 1.0);
  const double in_flight = static_cast<double>(p.stages) * chunk_bytes * at_once;
  const double sm_rate = std::min(target.tile_sm_bytes_per_us, in_flight / target.tile_latency_us);
  // A stage that is waited for is asked for again when its products have been: of two stages, one is under way.
  const double t_reuse = p.stages < p.chunks_per_block ? kReuseUs / std::max(p.stages - 1.0, 0.5) * chunks * rounds : 0.0;
  const double t_sm = std::max(t_reuse, chunk_bytes * chunks * at_once * rounds / sm_rate);
  const double t_dram = dram / target.dram_bytes_per_us * (p.row_blocks > 1 ? 1.05 : 1.0);
  // Beyond some 72 KB of weights in flight per SM.
  const double crowded = 0.9 * std::pow(std::max(0.0, static_cast<double>(p.stages * p.weight_bytes) * at_once / (72 << 10) - 1), 1.2);
  const double t_l2 = chunk_bytes * chunks * blocks / target.l2_bytes_per_us * 0.03;
  const double meeting = (p.cluster == 1   ? 0.0
                          : p.cluster == 2 ? 0.6 + 0.8 * (p.column_groups - 1)
                                           : 1.1 + 0.6 * p.column_groups) +
                         0.004 * static_cast<double>(p.sums.size()) * p.block_rows() * p.column_groups * (p.cluster > 1 ? 1.0 : 0.5) +
                         (0.5 + (p.chunks_per_block <= 8 ? kOneShotRankUs : 0.0)) * static_cast<double>(p.products.size());
  const double last = clocks / target.clock_per_us + (p.chunk > 64 ? 0.1 : 0.0);
  const double functions = kFunctionUs * p.tail_tiles() * tail_functions(p);
  Cost c;
  c.us = target.launch_us + kPrologueUs + functions + kTailUs * (at_once > 1 ? 0.7 : 1.0) + meeting + last +
         soft_max(soft_max(t_dram, t_sm), t_mma) + scattered_us(p) + t_l2 + crowded + (rounds - 1) * 2.0 +
         (waves - 1) * (p.cluster > 2 ? 4.0 : 0.5) + 0.02 * (p.blocks_per_sm - at_once);
  if (!p.evict_first && p.row_blocks == 1) c.us += 0.1 + 0.012 * static_cast<double>(std::min<int64_t>(p.rows, 160));
  c.bytes = static_cast<int64_t>(dram);
  c.flops = all_flops(p);
  if (explain)
    c.why = fmt::format(
        "bound by {}: {:.1f} MB, {} blocks of {} threads in clusters of {}, {} per SM, {:.0f} KB in flight per SM, {} wave(s)",
        t_mma > std::max(t_dram, t_sm) ? "tensor cores"
        : t_dram >= t_sm               ? "device memory"
                                       : "bytes in flight",
        dram / 1e6, static_cast<int64_t>(blocks), p.threads(), p.cluster, p.blocks_per_sm, in_flight / 1024, static_cast<int>(waves));
  return c;
}

}  // namespace mirage
