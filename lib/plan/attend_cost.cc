// What one launch of an attention plan takes. A multiprocessor's time for a chunk is the largest of what tensor cores, exponentials and L2 need, plus what its warpgroups do not overlap; constants from kernels.md section 2
// and our own measurements (docs/planning.md).
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "plan/attend_internal.h"

namespace mirage {
namespace {

constexpr double kClock = 1755;             // cycles per microsecond
constexpr double kStartUs = 1.9;            // barriers, first copies, first scores
constexpr double kEndUs = 0.7;              // sums, stores
constexpr double kClusterUs = 0.7;          // starting a cluster, parts to their owners
constexpr double kPartUs = 0.06;            // one more block of a cluster in the exchange
constexpr double kMergeUs = 0.15;           // warpgroups through shared memory, each beyond the first
constexpr double kExpPerCycle = 16;
constexpr double kSmBytesPerCycle = 42;     // from L2, all multiprocessors at it
constexpr double kTensorPerCycle = 4096;    // multiply-adds of 16-bit operands

}  // namespace

Cost estimate_attend(const AttendPlan& p, const Target& target) {
  const AttendShape& s = p.shape;
  double bytes = 0;
  for (const Access& a : p.operands) bytes += static_cast<double>(a.dims.elements() * dtype_bytes(a.dtype));
  for (const Access& a : p.results) bytes += static_cast<double>(a.dims.elements() * dtype_bytes(a.dtype));
  const double blocks = static_cast<double>(p.blocks()), sms = std::min<double>(blocks, target.num_sms), waves = std::ceil(blocks / (target.num_sms * p.blocks_per_sm)), together = std::min<double>(p.blocks_per_sm, std::ceil(blocks / target.num_sms));
  const int groups = p.query_groups * p.key_groups;
  const double width = p.features + p.columns;
  // One 64-query chunk on one warpgroup, alone.
  const double live = std::min(1.0, static_cast<double>((s.queries + 15) / 16 * 16) / 64.0);
  const double tensor = 64.0 * p.chunk * width / kTensorPerCycle, exps = 64.0 * p.chunk * live / kExpPerCycle;
  const double plain = s.plain ? 0 : 64.0 * p.chunk * live * 4 / 128, shares = p.value_known.empty() && s.share == s.weights ? 0 : 64.0 * p.chunk * live * 3 / 128;
  const double elementwise = 64.0 * p.chunk * live * 6 / 128 + plain + shares;     // maximum, scale, sum, pack: four schedulers of 32 lanes
  const double alone = tensor * 1.6 + exps + elementwise + 350;                   // latencies of a wgmma group, shuffles, barriers
  // All chunks of a block: units of 64 queries x one chunk.
  const double units = static_cast<double>(p.chunks_per_block) * p.query_groups;
  const double chunk_bytes = p.chunk * width * 2;
  const double shared = std::max({tensor * 1.25, exps + elementwise * 0.5, chunk_bytes / p.query_groups / kSmBytesPerCycle});
  const double serial = std::ceil(static_cast<double>(p.chunks_per_block) / p.key_groups) * alone;   // of one warpgroup
  const double in_flight = static_cast<double>(std::min<int64_t>(p.stages, p.chunks_per_block)) * chunk_bytes * together;
  const double feed = static_cast<double>(p.chunks_per_block) * chunk_bytes / std::min(in_flight / 1.1 / kClock, 55e3 / kClock);
  const double cycles = std::max({units * shared * together, serial, feed * together});
  const double t_sm = cycles / kClock * waves;
  const double t_dram = bytes / target.dram_bytes_per_us * (sms < target.num_sms * 0.8 ? std::max(1.0, 60.0 / sms) : 1.0);
  const double body = std::max(t_sm, t_dram) + 0.15 * std::min(t_sm, t_dram);
  Cost c;
  c.us = target.launch_us + kStartUs + kEndUs + (p.cluster > 1 ? kClusterUs + kPartUs * p.cluster : 0) + kMergeUs * (p.key_groups - 1) + body - (p.turns ? 0.04 * t_sm : 0) + 0.02 * groups;
  c.bytes = static_cast<int64_t>(bytes);
  c.flops = 2.0 * static_cast<double>(s.batch.elements()) * static_cast<double>(s.queries * s.keys * (s.features + s.columns));
  const char* bound = t_dram > t_sm ? "device memory" : cycles == serial ? "one warpgroup's chunks" : cycles == feed ? "bytes in flight" : shared == tensor * 1.25 ? "tensor cores" : shared == exps + elementwise * 0.5 ? "exponentials" : "L2";
  c.why = fmt::format("attention bound by {}: {:.1f} MB, {:.2f} Gflop, {} blocks of {} threads, cluster {}, {} wave(s)", bound, bytes / 1e6, c.flops / 1e9, p.blocks(), p.threads, p.cluster, static_cast<int>(waves));
  return c;
}

}  // namespace mirage
