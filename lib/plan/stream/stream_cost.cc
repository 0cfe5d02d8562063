// The cost model of stream plans: launch, first latency, the bytes at the rate that the copies in flight sustain, and the meeting of warps
// and blocks at the end. Constants are fitted to the variants measured on an H200 (docs/measurements/streams.md); test/unit/plan/stream.cc
// holds their order.
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include <fmt/format.h>

#include "mirage/ir/walk.h"
#include "plan/stream/clusters.h"
#include "plan/stream/stream_internal.h"

namespace mirage {
namespace {

constexpr double kPrologueUs = 0.7;          // barriers, first copy issued until its bytes are there
constexpr double kTailUs = 0.35;             // sums to shared memory, one barrier, the fused tail
constexpr double kSmallBoxUs = 0.006;        // one copy of less than kBox bytes: issue, barrier, turn of the loop
constexpr double kBox = 8192;
constexpr double kOneShotUs = 0.35;          // of copies that are all under way at once, over the bytes at the rate of device memory
constexpr double kOneShotRankUs = 0.6;       // a low rank there: its copy, its second factor and its products have nothing to hide behind
// weights straight to registers: their one wave of loads over the bytes' time, sums to shared memory, the fused tail
constexpr double kRegisterTailUs = 0.7;
// per element of the reduction and eight rows beyond the first eight that are reduced before the loop and whose operand the loop computes:
// 16 x 3000 with a layer norm took 13.4, predicted 10.2 without
constexpr double kLateRowsUs = 1.07e-3;
// of the loop's elementwise work: the rest is issued while products wait (batch norm of 16 x 4096 before a product: 12.25, predicted 14.0
// without)
constexpr double kBesideProducts = 0.6;
// Rows of a chunk made float16 before its products (StreamContraction::scaled): instructions of a unit, by the chunk, for eight warps on a
// multiprocessor; and a loop unrolled to more than two rounds, fetched cold. 16 x 4096 with a gain before 6144 columns 15.6, 15.1 and 16.2
// (chunks of 64 and 128, three stages of 64), batch norm of 16 x 4096 before 4096 columns 12.1, 11.7, 13.7 and 12.3 (64, 32, four warps of
// 64, three stages of 32).
constexpr double kScaledInstructions = 150, kLongLoopUs = 0.4;
// Where a stream is short, but more than a few copies, computed rows are what it waits for: 3 x 2048 with a layer norm before 2056 columns
// 5.2 and 5.0 with chunks of 128, 6.4 with two stages of 64, 5.9 with four, predicted 4.6 to 4.8 without these; 16 x 1024 with a gain and a
// low rank before 4096 columns 7.4 in one round of 64, 8.0 in two of 32, predicted 5.8 and 5.7.
constexpr double kShortUs = 3.5, kShortScaledUs = 1.4, kShortPreparedUs = 0.3, kShortRoundsUs = 1.0;
// A reduction of two parts in clusters of four and eight: four gates of 32 x (512 + 1024) x 1024 took 9.6, predicted 7.2 without; in
// clusters of two, blocks of 16 columns, 7.3, predicted 7.1.
constexpr double kTwoPartsUs = 2.5;
// A stage more of copies that are as short as the time that one thread takes to issue them. There, warps x stages: 6 x 4 took 7.3, 6 x 8
// 8.4, 4 x 8 7.9, 4 x 12 8.7.
constexpr double kShortBox = 2048, kShortBoxStageUs = 0.2;
// Blocks of fewer columns, for 64 KB of the small operand that each of them reads: 16 x 4096 x 1024 in blocks of 32 columns 5.1, predicted
// 4.65 without; 1 x 2048 x 2048 4.0, predicted 4.0.
constexpr double kNarrowRowsUs = 0.45;
constexpr double kTileUs = 0.0265;           // one SM: 32 x 64 elements of a weight times eight rows

// Lines that begin anywhere: 32 x 64 elements of a weight take nine copies a lane and are read in halves (64 reads a lane, 32 joins;
// counted in the source, not measured).
constexpr double kUnevenClocks = 170;
// By so much such a stream must be ahead of the generic kernel by prediction: lines of weights; rows that are read in pieces; what is no
// stream to speak of, where generic kernels were measured.
constexpr double kUnevenMargin = 1.25, kPiecesMargin = 1.1, kSmallStream = 1 << 20, kSmallStreamUs = 2.0;

/// Instructions per element of a map, roughly.
double instructions(MapFn fn) {
  switch (map_info(fn).cls) {
    case MapClass::kAtomic: return 16;
    default:
      return fn == MapFn::kDiv || fn == MapFn::kSqrt || fn == MapFn::kRsqrt                       ? 4
             : fn == MapFn::kExp || fn == MapFn::kExpm1 || fn == MapFn::kLog || fn == MapFn::kPow ? 16
             : fn == MapFn::kSigmoid || fn == MapFn::kSilu                                        ? 24
                                                                                                  : 1;
  }
}

/// Instructions of one lane for a unit's weights that the loop computes (its 64 elements are widened, and rounded in pairs), and for sums
/// of groups that are scaled; what they are scaled by is read and widened once a chunk.
double factor_instructions(const StreamPlan& p) {
  double n = 0;
  const double units = static_cast<double>(p.group ? std::min<int64_t>(p.chunk, p.group) : p.chunk) / 32;
  for (const StreamContraction& c : p.contractions) {
    double maps = 0;
    if (c.made >= 0)
      find_below(p.body, c.made, [&](ValueId x) {
        const auto* m = p.body.def_form<Map>(x);
        const auto& axes = p.axes[static_cast<size_t>(x)];
        if (m && std::count(axes.begin(), axes.end(), StreamAxis::kDepth)) maps += instructions(m->fn);
        return Look::kInto;
      });
    if (c.made >= 0) n += 64 * (1.5 + maps);
    if (c.factored >= 0) n += p.columns / 4.0 * (p.row_tiles + 1) / units;
  }
  for (NodeId i : stream_factors(p)) n += differs_by_group(p, i) ? p.columns / 8.0 * 4 / units : 0;
  return n;
}

/// Elementwise instructions of one lane for its eight elements of a unit, all rows: what is computed for the products and statistics of the
/// loop, each value once per use.
double loop_instructions(const StreamPlan& p) {
  const auto has_rows = [&](ValueId v) {
    const auto& axes = p.axes[static_cast<size_t>(v)];
    return std::count(axes.begin(), axes.end(), StreamAxis::kRow) > 0;
  };
  const std::function<double(ValueId, std::set<ValueId>&)> count = [&](ValueId v, std::set<ValueId>& seen) -> double {
    const auto& axes = p.axes[static_cast<size_t>(v)];
    if (!seen.insert(v).second || std::count(axes.begin(), axes.end(), StreamAxis::kDepth) == 0) return 0;
    const double times = std::count(axes.begin(), axes.end(), StreamAxis::kRow) ? p.row_tiles : 1;
    if (p.body.def_form<Input>(v)) return times;   // widened to float32
    const auto* m = p.body.def_form<Map>(v);
    // A quotient by what is the same for all rows is a product by its reciprocal.
    const bool shared_divisor = m && m->fn == MapFn::kDiv && !has_rows(p.body.def(v).operands[1]);
    double n = m ? times * (shared_divisor ? 1 : instructions(m->fn)) : 0;
    for (ValueId o : p.body.def(v).operands) n += count(o, seen);
    return n;
  };
  double n = 0;
  for (const StreamContraction& c : p.contractions) {
    std::set<ValueId> seen;
    const double each = count(c.small, seen);
    // rounded to the operand's type; stored operands are taken as they are
    n += each > p.row_tiles || c.type == ContractType::kTF32 || c.scaled ? each + p.row_tiles * (c.scaled && !p.prepared ? 2.5 : 1.0) : 0;
  }
  for (const StreamStatistic& s : p.statistics) {
    std::set<ValueId> seen;
    n += count(s.of, seen) + p.row_tiles;
  }
  return 8 * n + factor_instructions(p);
}

/// Clocks of one multiprocessor for a unit's rows that are read in pieces: their lines begin or end within eight elements.
double uneven_rows_clocks(const StreamPlan& p) {
  double clocks = 0;
  for (NodeId n : p.body.inputs()) {
    const int64_t unit = stream_row_unit(p, n);
    if (unit < 8) clocks += 8.0 / static_cast<double>(unit) * p.row_tiles * 3;
  }
  return clocks;
}

/// Like the larger of two, a little above where they are near each other.
double soft_max(double a, double b) { return std::pow(std::pow(a, 8) + std::pow(b, 8), 1.0 / 8); }

/// Of the part of the reduction that a weight belongs to.
double depth_of(const StreamPlan& p, const StreamWeight& w) {
  return static_cast<double>(w.instead_of >= 0 ? p.second : p.depth - p.second);
}

/// A thread issues a copy in about 130 cycles, and the first are issued before anything else happens; but rows that wait for theirs, too.
double issue_us(const StreamPlan& p, bool tf32) {
  const double box = static_cast<double>(p.stage_bytes);
  return (box > kShortBox ? 0.05 : kShortBoxStageUs) * (p.stages - 1) * (tf32 && p.prepared ? std::min(1.0, box / kBox) : 1.0);
}

/// Blocks of fewer columns read the small operand oftener.
double narrow_us(const StreamPlan& p) {
  return p.columns == 64 ? 0.0 : kNarrowRowsUs * static_cast<double>(p.rows * p.depth) * 2 / p.cluster / (64 << 10);
}

/// Lines along the reduction that are read two at a time from the same banks (StreamPlan::even_first), where copies of all are under way at
/// once; of blocks of fewer columns where a block streams more than 64 KB.
double deep_us(const StreamPlan& p, double streamed) {
  bool is_deep = false;
  for (size_t i = 0; i < p.weights.size(); i++) is_deep = is_deep || (p.weights[i].depth_major && !p.even_first(i));
  if (!is_deep) return 0;
  return p.columns == 64 ? 0.4 : 0.8 * std::clamp(streamed / (64 << 10) - 1, 0.0, 1.0);
}

double flops_of(const StreamPlan& p) {
  double n = 0;
  for (const StreamShape& s : p.beside)
    for (const StreamContraction& x : s.contractions)
      n += 2.0 * static_cast<double>(s.rows * s.depth * s.weights[static_cast<size_t>(x.weight)].extent);
  for (const StreamContraction& x : p.contractions)
    n += 2.0 * static_cast<double>(p.batch * p.rows * p.depth * p.weights[static_cast<size_t>(x.weight)].extent);
  return n;
}

/// Weights straight to registers: everything is asked for in the first moment, arrives once, and is added up once.
Cost estimate_registers(const StreamPlan& p, const Target& target, bool explain) {
  double dram = 0, shared = 0, slice = 0, products = 0;
  for (const Access& a : p.operands) dram += static_cast<double>(a.dims.elements() * dtype_bytes(a.dtype));
  for (const Access& a : p.results) dram += static_cast<double>(a.dims.elements() * dtype_bytes(a.dtype));
  const double blocks = std::ceil(static_cast<double>(p.cols) / p.columns),
               resident = static_cast<double>(p.blocks_per_sm * target.num_sms), waves = std::ceil(blocks / resident);
  for (const StreamWeight& w : p.weights) {
    const double bytes = static_cast<double>(w.free == StreamAxis::kCol ? p.columns : w.padded) * static_cast<double>(p.depth) * 2;
    slice += bytes;
    if (w.free == StreamAxis::kRank) shared += bytes * blocks;
  }
  shared += static_cast<double>(p.rows * p.depth) * 2 * blocks;
  for (const StreamContraction& x : p.contractions)
    products += (p.weights[static_cast<size_t>(x.weight)].free == StreamAxis::kCol ? p.columns / 64.0 : 0.25) * p.row_tiles *
                (x.type == ContractType::kTF32 ? 2.5 : 1.0);
  const double per_sm = std::ceil(blocks / target.num_sms);
  const double t_dram = dram / target.dram_bytes_per_us,
               t_sm = (slice + static_cast<double>(p.rows * p.depth) * 2) * per_sm / target.register_sm_bytes_per_us;
  const double t_mma = kTileUs * products * static_cast<double>(p.depth) / 32 * per_sm / 4;
  const double t_shared = shared / target.l2_bytes_per_us * 0.25;
  Cost c;
  c.us = target.launch_us + kPrologueUs + kRegisterTailUs + 0.035 * p.warps + 0.1 * std::max(0, p.chunk / 32 - 2) +
         0.03 * static_cast<double>(p.sums.size()) * p.row_tiles + soft_max(t_dram, t_sm) + t_mma + t_shared +
         (p.weights[0].depth_major ? -0.2 : 0.0) + (waves - 1) * 1.0 + 0.02 * (p.blocks_per_sm - std::min<double>(p.blocks_per_sm, per_sm));
  c.bytes = static_cast<int64_t>(dram);
  c.flops = flops_of(p);
  if (explain)
    c.why = fmt::format(
        "bound by latency: {:.1f} MB, {} blocks of {} threads, weights straight to registers, {:.0f} KB in flight per SM, {} wave(s)",
        dram / 1e6, static_cast<int64_t>(blocks), p.warps * 32, slice * std::min<double>(per_sm, p.blocks_per_sm) / 1024,
        static_cast<int>(waves));
  return c;
}

}  // namespace

Cost estimate(const StreamPlan& p, const Target& target, bool explain) {
  if (p.registers) return estimate_registers(p, target, explain);
  double dram = 0, shared = 0, streamed = 0;   // bytes: of all tensors once; of what all blocks read alike; of what one block streams
  for (const Access& a : p.operands) dram += static_cast<double>(a.dims.elements() * dtype_bytes(a.dtype));
  for (const Access& a : p.results) dram += static_cast<double>(a.dims.elements() * dtype_bytes(a.dtype));
  for (const StreamShape& s : p.beside) {   // the rows are read already
    for (const StreamWeight& w : s.weights) dram += static_cast<double>(w.extent * s.depth) * 2;
    for (const Access& a : s.results) dram += static_cast<double>(a.dims.elements() * dtype_bytes(a.dtype));
  }
  const double tiles = static_cast<double>(p.column_blocks() * p.batch), blocks = tiles * p.cluster;
  const double waves = std::ceil(tiles / static_cast<double>(std::max<int64_t>(1, resident_clusters(p.cluster, p.blocks_per_sm, target))));
  for (const StreamWeight& w : p.weights) {
    const double bytes = static_cast<double>(w.padded) * depth_of(p, w) * 2 / p.cluster;
    streamed += bytes;
    if (w.free == StreamAxis::kRank) shared += bytes * blocks;
  }
  shared += static_cast<double>(p.rows * p.depth) * 2 * tiles;
  const double active = std::min<double>(target.num_sms, blocks), at_once = std::min<double>(p.blocks_per_sm, std::ceil(blocks / active)),
               per_sm = std::ceil(blocks / active);
  const double warps = p.warps * at_once, in_flight = static_cast<double>(p.stages * p.stage_bytes) * warps;
  const double sm_rate = std::min(target.stream_sm_bytes_per_us, in_flight / target.stream_latency_us);
  const double box = static_cast<double>(p.stage_bytes), copies = streamed * per_sm / box;   // of one SM
  const double t_dram = dram / target.dram_bytes_per_us * (1 + 0.06 * std::max(0.0, in_flight / (128 << 10) - 1));
  const double rounds = std::ceil(static_cast<double>(p.depth) / (p.chunk * p.warps * p.cluster)) * p.steps;
  const bool one_shot = rounds <= p.stages && waves == 1 && per_sm <= p.blocks_per_sm;   // nothing waits for a place in a ring
  double t_copies = soft_max(t_dram, streamed * per_sm / sm_rate);
  if (one_shot) {
    const bool ranked = std::any_of(p.weights.begin(), p.weights.end(), [](const StreamWeight& w) { return w.free == StreamAxis::kRank; });
    t_copies = std::min(t_copies, soft_max(t_dram + kOneShotUs, streamed * per_sm / target.stream_sm_bytes_per_us)) +
               (ranked ? kOneShotRankUs : 0.0) + deep_us(p, streamed);
  }
  double products = 0;   // of 16 x 8 x 16 per unit of 32 x 64, by their latency in mma.sync
  for (const StreamContraction& x : p.contractions)
    products += (p.weights[static_cast<size_t>(x.weight)].free == StreamAxis::kCol ? p.columns / 64.0 : 0.25) * p.row_tiles *
                (x.type == ContractType::kTF32 ? 2.5 : 1.0);
  const double t_mma = kTileUs * products * static_cast<double>(p.depth) / 32 / p.cluster * per_sm;
  // Elementwise work of the loop: a scheduler issues from its warps, and a few of them leave gaps.
  const double units = static_cast<double>(p.depth) / 32 / p.cluster * per_sm, issuing = std::min(1.0, 0.35 * std::max(1.0, warps / 4));
  const double t_elements = loop_instructions(p) * units / (4 * issuing * target.stream_clock_per_us);
  double uneven = 0;   // clocks of one multiprocessor per unit of the reduction
  for (const StreamWeight& w : p.weights) uneven += w.uneven ? kUnevenClocks : 0;
  uneven += uneven_rows_clocks(p);
  const double t_uneven = uneven * units / (issuing * target.stream_clock_per_us);
  const double t_shared = shared / target.l2_bytes_per_us * 0.25;   // from L2, beside the stream
  // (TF32 takes longer than issuing them.)
  const bool tf32 =
      std::any_of(p.contractions.begin(), p.contractions.end(), [](const StreamContraction& c) { return c.type == ContractType::kTF32; });
  const double t_boxes = box < kBox && !(tf32 && p.prepared) ? kSmallBoxUs * copies * (1 - box / (2 * kBox)) : 0;
  // Little to overlap with: one place per warp stands still while it is read; few warps leave tensor cores waiting for shared memory.
  const double few = 0.3 * std::max(0.0, 4 - warps);
  const double alone = rounds > p.stages ? (p.stages == 1 ? 0.5 : 0.0) + (warps < 8 && p.chunk < 128 ? 0.05 * (8 - warps) : 0.0) +
                                               (p.cluster == 1 && p.depth > 512 ? 0.25 : 0.0) + few
                                         : 0.0;
  // The last chunk of each warp is computed when everything has arrived; then warps and blocks add up.
  const double last = 0.02 * p.chunk / 32 * (1 + 0.5 * p.row_tiles) * std::max(1.0, warps / 8);
  const double meeting = (p.cluster == 1   ? 0.0
                          : p.cluster == 2 ? 0.3
                                           : 0.9) +
                         0.015 * p.warps + 0.05 * static_cast<double>(p.sums.size()) * p.row_tiles;
  // Rows read whole before the loop: in registers before the weights, or two walks per warp and row at the latency of L2, partly under the
  // first weights.
  const double warp_rows = std::ceil(8.0 * p.row_tiles / p.warps);
  const double early = p.early.empty() ? 0.0
                       : p.hold_early  ? 0.2 + 0.05 * static_cast<double>(p.early.size()) * warp_rows
                                      : 0.8 + 0.7 * static_cast<double>(p.early.size()) * std::ceil(static_cast<double>(p.rows) / p.warps) +
                                            static_cast<double>(p.rows * p.depth) * 2 * at_once / target.stream_sm_bytes_per_us;
  const double late = !p.early.empty() && !p.prepared ? kLateRowsUs * static_cast<double>(p.depth) * (p.row_tiles - 1) : 0.0;
  const bool scaled =
      !p.prepared && std::any_of(p.contractions.begin(), p.contractions.end(), [](const StreamContraction& c) { return c.scaled; });
  const bool long_loop = rounds > 4 * p.steps && p.stages > 2 * p.steps;
  const double t_scaled = !scaled ? 0.0
                                  : ((p.chunk <= 32   ? 0.85
                                      : p.chunk <= 64 ? 1.3
                                                      : 0.5) *
                                         loop_instructions(p) / kScaledInstructions * 8 / std::min(8.0, warps) +
                                     (long_loop ? kLongLoopUs : 0.0)) *
                                        std::min(1.0, streamed * per_sm / (32 * kBox));
  const double t_short =
      t_copies < kShortUs && (scaled || p.prepared)
          ? ((scaled ? kShortScaledUs : kShortPreparedUs) + (one_shot && rounds > 1 && p.chunk <= 64 ? kShortRoundsUs : 0.0)) *
                std::clamp(streamed * per_sm / (48 << 10) - 1, 0.0, 1.0)
          : 0.0;
  Cost c;
  c.us = t_short + t_scaled + early + late + target.launch_us + kPrologueUs + kTailUs + meeting + issue_us(p, tf32) + last +
         soft_max(t_copies, t_mma + kBesideProducts * t_elements + t_uneven) + t_shared + t_boxes + alone +
         (waves - 1) * (p.batch > 1 && p.blocks_per_sm > 1 ? 1.0 : 4.0) + 0.02 * (p.blocks_per_sm - at_once);
  c.us += (p.evict_first ? 0.0 : 0.1) + (p.second && p.cluster > 2 ? kTwoPartsUs : 0.0) + narrow_us(p);
  if (p.uneven()) c.us *= kUnevenMargin;
  else if (uneven > 0) c.us *= kPiecesMargin;
  if (uneven > 0 && dram < kSmallStream) c.us += kSmallStreamUs;
  c.bytes = static_cast<int64_t>(dram);
  c.flops = flops_of(p);
  if (explain)
    c.why = fmt::format(
        "bound by {}: {:.1f} MB, {} blocks of {} threads in clusters of {}, {} per SM, {:.0f} KB in flight per SM, {} wave(s)",
        t_mma + t_elements > t_copies           ? t_mma > t_elements ? "tensor cores" : "elementwise work"
        : t_dram >= streamed * per_sm / sm_rate ? "device memory"
                                                : "bytes in flight",
        dram / 1e6, static_cast<int64_t>(blocks), p.warps * 32, p.cluster, p.blocks_per_sm, in_flight / 1024, static_cast<int>(waves));
  return c;
}

}  // namespace mirage
