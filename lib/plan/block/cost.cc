// The cost model: what one launch of a block plan takes, from bytes, arithmetic, latency and waves. Rates are the target's; shape factors
// were fitted on an H200 (docs/measurements/blocks.md).
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include <fmt/format.h>

#include "plan/block/block_internal.h"
#include "plan/region/region.h"

namespace mirage {
namespace {

constexpr double kIterationUs = 0.06;      // address arithmetic, waits and the barrier of one loop iteration
// one step of a running softmax behind the last one: its barrier, shared memory there and back (measured: 1.6 to 2.7 us per iteration of
// four such steps)
constexpr double kChainUs = 0.6;
// A step behind products or sums of its own iteration, without a running maximum: by elements of a thread, few of which hide nothing of
// each other (measured: 2.5 us per iteration of four such steps with 1.75 elements, 4.8 with 3.5). A quarter more than measured: nothing
// else was ever fitted to such loops, and a kernel whose price is uncertain must not displace one that is known.
constexpr double kResultUs = 0.08, kResultElementUs = 0.40, kMostResultUs = 1.5;
constexpr double kChainElementUs = 0.03;   // and per element of one thread
constexpr double kChainIssue = 0.6;        // share of its time that a warp with a softmax in registers keeps its scheduler busy
constexpr double kPrologueUs = 1.1;        // first load until first use
// a reduction, fill or contraction outside the loop: its barrier, shared memory there and back, parts added up; nothing overlaps with it
constexpr double kStepUs = 0.7;
constexpr double kWaitUs = 0.6;            // a reduction before the loop waits for its loads, and the loop for it
constexpr double kLoopFillUs = 0.2;        // a fill of the loop, every iteration
constexpr double kEpilogueUs = 0.5;        // accumulators through shared memory, stores
constexpr double kGapUs = 0.0012;          // one element of a loop's tiles, one thread
constexpr double kElementLatencyUs = 0.02; // one element of one thread, nothing else going on
// Functions of elements that are stored, of one multiprocessor: few elements and operations are in the other measurements. A batch norm and
// silu of 27 thousand elements, 32 operations each, behind a product took 14 us (H200).
constexpr double kUsualElements = 8192, kUsualOperations = 8, kOperationUs = 2.5e-5;
constexpr double kSlowLoadUs = 0.11;       // one element loaded by itself, eight in flight
// a warp's instructions wait for each other; others of its scheduler fill that (docs/planning.md, "Rows")
constexpr double kFewWarps = 5.3;
// an element that is added to what lies in shared memory, in instructions (measured: sums of 64 columns by tile 26 us slower than in
// registers)
constexpr double kAccumulate = 40;
constexpr double kFloatUnits = 256;        // floating-point operations of one multiprocessor in a clock, multiply and add
constexpr double kFloatIssue = 0.5;        // instructions that one warp of a scheduler issues in a clock

/// Registers of a thread: bounded by the accumulators that the planner allowed.
int registers_of(const BlockPlan& p) {
  int64_t accumulated = 0, most = 0;
  for (const Step& s : p.steps) {
    if (s.kind != Step::Kind::kContract || s.tensor) continue;
    const int64_t each = float_division(float_work(p, s), float_team(p, s), s.tj).each;
    if (s.accumulates) accumulated += each;
    most = std::max({most, each, accumulated});
  }
  return p.threads > 256 ? 96 : most > kNarrowResults ? 250 : 120;
}

/// One iteration of a running softmax in registers: scores per thread, matrix instructions per warp.
double chain_iteration(double scores, double instructions) { return 0.25 + 0.016 * scores + 0.009 * instructions; }

int64_t extent_elements(const Extent3& e) { return e[0] * e[1] * e[2]; }

/// Bytes: of all tensors once; of every tile load; of the loads of one loop iteration that are in flight. Elements: loaded one by one;
/// loaded in the loop.
struct Traffic { double dram = 0, l2 = 0, ring = 0, segment_penalty = 1, slow_elements = 0, loop_elements = 0; };
/// Every tensor comes once from device memory, every tile load from L2.
Traffic traffic_of(const BlockPlan& p, double blocks, double loop) {
  Traffic t;
  for (const Access& a : p.operands) t.dram += static_cast<double>(a.dims.elements() * dtype_bytes(a.dtype));
  for (const Access& a : p.results) t.dram += static_cast<double>(a.dims.elements() * dtype_bytes(a.dtype));
  for (const Load& l : p.loads) {
    const SmemTile& tile = p.tiles[static_cast<size_t>(l.tile)];
    const Extent3& extent = p.extent_of[static_cast<size_t>(tile.value)];
    const int64_t line = extent[tile.col ? 1 : 2] * dtype_bytes(tile.dtype);
    // L2 moves sectors of 32 bytes: short or unaligned lines drag neighbours along.
    const double sectors = l.unit == 0 ? 32.0 * static_cast<double>(extent[tile.col ? 1 : 2])
                                       : static_cast<double>((line + 31) / 32 * 32 + (l.unit < 16 && line > 32 ? 32 : 0));
    const bool lines_touch = extent[0] * extent[1] * extent[2] == extent[tile.col ? 1 : 2];
    const double bytes = lines_touch ? std::max(32.0, static_cast<double>(line))
                                     : sectors * static_cast<double>(extent_elements(extent) / extent[tile.col ? 1 : 2]);
    const double times = l.in_loop ? loop : 1;
    t.l2 += bytes * times * blocks;
    if (l.in_loop) t.loop_elements += static_cast<double>(extent_elements(extent)) * times;
    if (l.in_loop) t.ring += bytes * std::max(1, tile.stages - 1) * p.loop_warps;
    else t.ring += bytes / loop;
    if (l.unit < 4) t.slow_elements += static_cast<double>(extent_elements(extent)) * times;
    if (bytes * times * blocks > 0.3 * t.dram) t.segment_penalty = std::max(t.segment_penalty, line >= 128 ? 1.0 : line >= 64 ? 1.12 : 1.5);
  }
  return t;
}

/// What one block does: operations, bytes of shared memory, elements touched by elementwise work and reductions, and of these outside the
/// loop; microseconds of a softmax in registers. Clocks of a multiprocessor for contractions on the float32 units.
struct Issue {
  double flops = 0, float_flops = 0, float_clocks = 0, shared = 0, elements = 0, serial_elements = 0, chain = 0;
  double issued = 0;                   ///< instructions of elements that tiles are filled with, or that are reduced
  double stored = 0, operations = 0;   ///< elements that are stored; operations of each, beyond the usual ones, at most
};
/// Whether all results are stored in 16 bits.
bool stores_narrow(const BlockPlan& p) {
  return std::all_of(p.results.begin(), p.results.end(), [](const Access& a) { return dtype_bytes(a.dtype) == 2; });
}
/// Instructions of one element of v behind what lies in tiles, each value once.
double instructions_behind(const BlockPlan& p, ValueId v, bool narrow, std::set<ValueId>& seen) {
  if (!seen.insert(v).second || p.tile_of[static_cast<size_t>(v)] >= 0) return 0;
  const Node& n = p.body.def(v);
  const auto* map = std::get_if<Map>(&n.op);
  double sum = map ? instructions_of(map->fn, narrow) : 0;
  for (ValueId o : n.operands) sum += instructions_behind(p, o, narrow, seen);
  return sum;
}
/// Instructions of all elements that fills and reductions of a phase compute: what both need of an element is computed once, where they can
/// go through it together.
double issued_of(const BlockPlan& p, double loop) {
  const bool narrow = stores_narrow(p);
  std::map<Phase, std::set<ValueId>> seen;
  double sum = 0;
  for (const Step& s : p.steps) {
    const bool fill = s.kind == Step::Kind::kFill, reduce = s.kind == Step::Kind::kReduce, accumulate = s.kind == Step::Kind::kAccumulate;
    if (!fill && !reduce && !accumulate) continue;
    const ValueId v = reduce ? p.body.node(s.node).operands[0] : s.value;
    const bool short_result = narrow || (fill && p.tiles[static_cast<size_t>(s.tile)].dtype != DType::kF32);
    std::set<ValueId> alone;
    const double each = instructions_behind(p, v, short_result, accumulate ? alone : seen[s.phase]) + (accumulate ? kAccumulate : 0);
    sum += each * static_cast<double>(extent_elements(p.extent_of[static_cast<size_t>(v)])) * (s.phase == Phase::kLoop ? loop : 1);
  }
  return sum;
}

/// Operations of what is computed where v is stored.
double operations_behind(const BlockPlan& p, ValueId v) {
  const bool narrow = stores_narrow(p);
  std::set<ValueId> seen;
  const std::function<double(ValueId)> of = [&](ValueId x) -> double {
    if (!seen.insert(x).second || p.tile_of[static_cast<size_t>(x)] >= 0) return 0;
    const Node& n = p.body.def(x);
    const auto* map = std::get_if<Map>(&n.op);
    double sum = !map ? 0 : narrow ? instructions_of(map->fn, true) : operations_of(map->fn);
    for (ValueId o : n.operands) sum += of(o);
    return sum;
  };
  return of(v);
}
Issue work_of(const BlockPlan& p, double loop) {
  Issue w;
  for (const Step& s : p.steps) {
    const double times = s.phase == Phase::kLoop ? loop : 1;
    if (s.kind == Step::Kind::kContract) {
      const SmemTile &x = p.tiles[static_cast<size_t>(s.x)], &y = p.tiles[static_cast<size_t>(s.y)];
      const double out = static_cast<double>(extent_elements(p.tiles[static_cast<size_t>(s.tile)].extent)),
                   k = static_cast<double>(x.extent[s.x_transposed ? 1 : 2]);
      if (!s.tensor) {
        w.float_flops += 2 * out * k * times;
        w.float_clocks += k * times * float_division(float_work(p, s), float_team(p, s), s.tj).clocks;
        continue;
      }
      w.flops += 2 * out * k * times * (s.type == ContractType::kTF32 ? 2.0 : 1.0);
      const double rx = s.swap ? s.wi : s.wj, ry = s.swap ? s.wj : s.wi;
      w.shared += times * (rx * static_cast<double>(extent_elements(x.extent) * dtype_bytes(x.dtype)) +
                           ry * static_cast<double>(extent_elements(y.extent) * dtype_bytes(y.dtype)));
    } else if (s.kind == Step::Kind::kChain) {
      const Extent3 x = p.tiles[static_cast<size_t>(s.x)].extent, y = p.tiles[static_cast<size_t>(s.y)].extent,
                    out = p.tiles[static_cast<size_t>(s.tile)].extent;
      const double keys = static_cast<double>(y[s.y_transposed ? 1 : 2]), features = static_cast<double>(x[s.x_transposed ? 1 : 2]),
                   rows = static_cast<double>(out[1]), columns = static_cast<double>(out[2]);
      w.flops += 2 * rows * keys * (features + columns) * times;
      w.shared += times * 2 * (rows * features * s.wk + s.wi * keys * (features + columns));
      w.chain += times * chain_iteration(rows * keys / p.threads, (features / 16 * keys / s.wk / 8) + (keys / s.wk / 16 * columns / 8));
    } else if (s.kind == Step::Kind::kReduce) {
      w.elements += times * static_cast<double>(extent_elements(p.extent_of[static_cast<size_t>(p.body.node(s.node).operands[0])]));
    } else {
      w.elements += times * static_cast<double>(extent_elements(p.extent_of[static_cast<size_t>(s.value)]));
    }
  }
  w.issued = issued_of(p, loop);
  for (const Step& s : p.steps) {   // phases outside the loop overlap with nothing
    if (s.phase == Phase::kLoop || s.kind == Step::Kind::kContract) continue;   // (a chain is of the loop)
    const auto elements = static_cast<double>(
        extent_elements(p.extent_of[static_cast<size_t>(s.kind == Step::Kind::kReduce ? p.body.node(s.node).operands[0] : s.value)]));
    w.serial_elements += elements;
    if (s.kind != Step::Kind::kStore) continue;
    w.stored += elements;
    w.operations = std::max(w.operations, operations_behind(p, s.value) - kUsualOperations);
  }
  return w;
}

/// Steps that nothing overlaps with, of one block.
double steps_us(const BlockPlan& p, double loop) {
  double t_steps = 0;
  bool waits = false;
  for (const Step& s : p.steps) {
    const bool reduce = s.kind == Step::Kind::kReduce, fill = s.kind == Step::Kind::kFill;
    // a reduction of the loop is finished like a step
    if (s.phase == Phase::kLoop)
      t_steps += (reduce && s.accumulates ? kStepUs : 0.0) + (fill ? kLoopFillUs * std::ceil(loop / p.loop_warps) : 0.0);
    else if (reduce || fill || s.kind == Step::Kind::kContract) t_steps += kStepUs;
    waits = waits || (s.phase == Phase::kInvariant && (reduce || fill));
  }
  if (waits) t_steps += kWaitUs;
  return t_steps;
}

/// Whether a step of the loop waits for sums or products that another step of the same iteration has just written, which nothing overlaps
/// with; what only a fill has written is counted by kLoopFillUs.
bool waits_for_results(const BlockPlan& p, const Step& s) {
  if (s.phase != Phase::kLoop || !s.barrier_before) return false;
  return std::any_of(p.steps.begin(), p.steps.end(), [&](const Step& made) {
    return made.phase == Phase::kLoop && !made.accumulates && (made.kind == Step::Kind::kContract || made.kind == Step::Kind::kReduce);
  });
}

/// What the steps of an iteration wait for each other: `chain` for a softmax in registers, and each step behind a barrier where there is a
/// running maximum or a result within the iteration.
double chain_us(const BlockPlan& p, double chain, double loop, double per_sm, double waves) {
  // A warp's chain waits for itself; warps and blocks of one multiprocessor fill each other's gaps up to what the schedulers issue.
  const double warps_per_scheduler = p.threads / 128.0 * std::min(per_sm, static_cast<double>(p.blocks_per_sm));
  // a running maximum makes every step of an iteration wait for the one before
  double t_chain = chain * std::max(1.0, kChainIssue * warps_per_scheduler) * waves;
  const bool running = std::any_of(p.steps.begin(), p.steps.end(), [](const Step& s) { return s.kind == Step::Kind::kRunning; });
  for (const Step& s : p.steps) {
    if (running ? s.phase != Phase::kLoop || !s.barrier_before : !waits_for_results(p, s)) continue;
    const Extent3& e = p.extent_of[static_cast<size_t>(
        s.kind == Step::Kind::kContract || s.kind == Step::Kind::kReduce ? p.body.node(s.node).operands[0] : s.value)];
    const double elements = static_cast<double>(extent_elements(e)) / (p.loop_warps > 1 ? 32 : p.threads),
                 more = kChainElementUs * elements;
    t_chain +=
        loop / p.loop_warps * (running ? kChainUs + more : std::min(kResultUs + kResultElementUs * elements, kMostResultUs + more)) * waves;
  }
  return t_chain;
}

/// Partial results are written, then read once.
double parts_bytes(const BlockPlan& p) {
  double bytes = 0;
  for (const SmemTile& tile : p.tiles) if (tile.kind == SmemTile::Kind::kParts) bytes += 2.0 * static_cast<double>(tile.bytes);
  return bytes;
}

/// once: one wave of blocks without a loop; loops: they have one. beside: blocks of a multiprocessor at one time; body: the longest of the
/// transfers and computes.
struct Phases { bool once, loops; double beside, body, transfers, computes, dram; };
/// Phases that do not overlap with the body; of how many blocks each is on its own in what it does behind barriers.
struct Rest { double us = 0, alone = 1; };
/// Without a loop, blocks that share a multiprocessor ask for all they need at once: while one computes, the others' tiles arrive. Where
/// each byte is read once and little is computed, that is (H200, 2026-11-29: a recurrent state 6.55 us, 6.88 predicted; three programs
/// whose blocks read the same or compute more were slower by 6 to 20 % for it).
Rest rest_of(const Traffic& t, const Issue& w, const Phases& x) {
  const bool hides = x.once && x.beside >= 2 && x.body == x.dram && t.l2 <= 1.1 * t.dram && w.flops == 0 && x.computes <= 0.5 * x.body;
  if (hides) return {0.12 * (x.transfers - x.body) + 0.5 * x.computes / x.beside, x.beside};
  return {(x.loops ? 0.12 : 0.5) * (x.transfers + x.computes - x.body), 1};
}

}  // namespace

Cost estimate(BlockPlan& p, const Target& target) {
  const Launch& launch = p.body.launch();
  const double blocks = static_cast<double>(launch.blocks() * p.cluster);   // thread blocks; a cluster shares one block of the graph
  const double loop = static_cast<double>(launch.loop) / p.cluster;
  // Occupancy: shared memory, threads and registers.
  const int64_t smem = p.smem_bytes + 1024;
  p.blocks_per_sm = static_cast<int>(std::clamp<int64_t>(
      std::min<int64_t>(target.smem_per_sm / std::max<int64_t>(smem, 1), 65536 / (p.threads * registers_of(p))), 1, 16));
  const double waves = std::ceil(blocks / (static_cast<double>(p.blocks_per_sm) * target.num_sms));
  const double active_sms = std::min<double>(blocks, target.num_sms);
  const Traffic t = traffic_of(p, blocks, loop);
  const Issue w = work_of(p, loop);
  const double t_steps = steps_us(p, loop);
  const auto barriers = static_cast<int>(std::count_if(p.steps.begin(), p.steps.end(), [](const Step& s) { return s.barrier_before; }));
  // One SM works on its resident blocks together.
  const double per_sm = blocks / active_sms;   // blocks that one SM runs in all
  const double beside = std::min(per_sm, static_cast<double>(p.blocks_per_sm)), in_flight = t.ring * beside;
  int depth = 1;
  for (const Load& l : p.loads) if (l.in_loop) depth = std::max(depth, p.tiles[static_cast<size_t>(l.tile)].stages - 1);
  // A stage arrives a latency after it was asked for, and takes its transfer: with one stage in flight nothing overlaps.
  const double sm_rate =
      std::min(in_flight / (target.latency_us + in_flight / depth / target.block_sm_bytes_per_us), target.block_sm_bytes_per_us);
  const double balance = std::ceil(per_sm) / per_sm;   // the SM with the most blocks ends last
  const double t_sm = t.l2 / active_sms / std::max(sm_rate, 1.0) * balance;
  const double t_dram = t.dram * t.segment_penalty / target.dram_bytes_per_us * (1 + 0.25 * (std::min(balance, 2.0) - 1));
  const double t_l2 = t.l2 / target.l2_bytes_per_us;
  const double t_flops = w.flops * blocks / (target.tensor_flops_per_us * 0.5) * (target.num_sms / active_sms);
  // Each scheduler issues what one warp has ready: a few warps leave gaps behind every read of shared memory.
  const double float_warps = p.threads / 128.0 * beside;
  const double t_float =
      w.float_clocks * per_sm * target.num_sms * kFloatUnits / target.f32_flops_per_us / std::min(1.0, kFloatIssue * float_warps);
  const double t_shared = w.shared * per_sm / target.shared_bytes_per_us;
  const double t_elements = w.elements * per_sm / target.element_ops_per_us +
                            w.issued * per_sm / (128 * target.clock_per_us) * (1 + kFewWarps * 32 / (beside * p.threads));
  const double t_serial = (w.serial_elements * kElementLatencyUs + t.slow_elements * kSlowLoadUs) * waves / p.threads +
                          parts_bytes(p) / target.shared_bytes_per_us * waves +
                          std::max(0.0, w.stored * per_sm - kUsualElements) * w.operations * kOperationUs;
  const double t_iterations =
      chain_us(p, w.chain, loop, per_sm, waves) + loop / p.loop_warps * (kIterationUs + target.barrier_us * barriers) * waves;
  const double body = std::max({t_dram, t_l2, t_sm, t_flops, t_float, t_iterations, t_shared + t_elements});
  // Between barriers a block computes while nothing new is asked for; warps with loops of their own fill each other's gaps.
  const double t_gaps = t.loop_elements * kGapUs * (p.loop_warps > 1 ? 0.2 : 1.0) * waves / p.threads;
  const Rest rest = rest_of(t, w, {launch.loop == 1 && waves == 1, launch.loop > 1, beside, body, t_dram + t_l2 + t_sm,
                                   t_flops + t_float + t_iterations + t_shared + t_elements, t_dram});
  Cost c;
  c.us = target.launch_us + kPrologueUs + kEpilogueUs + (p.cluster > 1 ? target.cluster_us : 0) +
         body * (waves / std::max(1.0, blocks / (static_cast<double>(p.blocks_per_sm) * target.num_sms)) * 0.3 + 0.7) + rest.us +
         (t_serial + t_steps * waves) / rest.alone + t_gaps;
  c.bytes = static_cast<int64_t>(t.dram);
  c.flops = (w.flops + w.float_flops) * blocks;
  const char* bound = body == t_dram         ? "device memory"
                      : body == t_l2         ? "L2"
                      : body == t_sm         ? "bytes in flight"
                      : body == t_flops      ? "tensor cores"
                      : body == t_float      ? "float32 units"
                      : body == t_iterations ? "iterations"
                                             : "shared memory and elementwise work";
  c.why = fmt::format("bound by {}: {:.1f} MB, {} blocks of {} threads, {} per SM, {:.0f} KB in flight per SM, {} wave(s)", bound,
                      t.dram / 1e6, static_cast<int64_t>(blocks), p.threads, p.blocks_per_sm, in_flight / 1024, static_cast<int>(waves));
  return c;
}

}  // namespace mirage
