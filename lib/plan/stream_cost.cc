// The cost model of stream plans: launch, first latency, the bytes at the rate that the copies in flight sustain, and the meeting of warps and blocks at the end. Constants are fitted to the
// variants measured on an H200 (docs/planning.md); test/unit/plan/stream.cc holds their order.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "plan/stream_internal.h"

namespace mirage {
namespace {

constexpr double kPrologueUs = 1.0;          // barriers, first copy issued until its bytes are there
constexpr double kEpilogueUs = 0.4;          // sums to shared memory, one barrier, the fused tail
constexpr double kSmBytesPerUs = 55e3;       // what one SM takes
constexpr double kLatencyUs = 1.0;           // of a copy under load

/// Clusters of a size that the whole device holds at one block per SM (measured for 2, 4 and 16).
double resident_clusters(int cluster, const Target& t) {
  const double whole = static_cast<double>(t.num_sms) / cluster;
  return cluster <= 2 ? whole : cluster == 4 ? std::floor(whole * 0.92) : std::floor(whole * 0.88);
}

}  // namespace

Cost estimate(const StreamPlan& p, const Target& target) {
  double dram = 0, small = 0;
  for (const Access& a : p.operands) dram += static_cast<double>(a.dims.elements() * dtype_bytes(a.dtype));
  for (const Access& a : p.results) dram += static_cast<double>(a.dims.elements() * dtype_bytes(a.dtype));
  const double tiles = std::ceil(static_cast<double>(p.cols) / 64), blocks = tiles * p.cluster;
  const double resident = std::max(1.0, resident_clusters(p.cluster, target)) * p.blocks_per_sm, waves = std::ceil(tiles / resident);
  double streamed = 0;   // by one block
  for (const StreamWeight& w : p.weights) {
    const double bytes = static_cast<double>(w.padded) * static_cast<double>(p.depth) * 2 / p.cluster;
    streamed += bytes;
    if (w.free == StreamAxis::kRank) small += bytes * blocks;
  }
  small += static_cast<double>(p.rows * p.depth) * 2 * tiles;
  const double active = std::min<double>(target.num_sms, blocks), per_sm = std::ceil(blocks / active / waves);
  const double in_flight = static_cast<double>(p.stages * p.stage_bytes) * p.warps * std::min<double>(p.blocks_per_sm, per_sm);
  const double sm_rate = std::min(kSmBytesPerUs, in_flight / kLatencyUs);
  const double crowded = 1 + 0.15 * std::max(0.0, in_flight / (128 << 10) - 1);
  const double t_dram = dram / target.dram_bytes_per_us * crowded;
  const double t_sm = streamed * per_sm * waves / sm_rate;
  const double t_small = small / target.l2_bytes_per_us * 0.3;   // shared by all blocks: from L2, beside the stream
  const double body = std::max(t_dram, t_sm) + t_small;
  const double drain = p.stages * static_cast<double>(p.stage_bytes) * p.warps / kSmBytesPerUs * 0.1 / p.stages;   // the last copy of each warp is not overlapped
  const double meeting = (p.cluster > 1 ? 0.3 : 0) + (p.cluster > 2 ? 0.2 : 0) + 0.02 * p.warps + 0.1 * static_cast<double>(p.sums.size() * static_cast<size_t>(p.row_tiles));
  Cost c;
  c.us = target.launch_us + kPrologueUs + kEpilogueUs + meeting + body + drain + (waves - 1) * 2.0;
  c.bytes = static_cast<int64_t>(dram);
  for (const StreamContraction& x : p.contractions) c.flops += 2.0 * static_cast<double>(p.rows * p.depth * p.weights[static_cast<size_t>(x.weight)].extent);
  c.why = fmt::format("bound by {}: {:.1f} MB, {} blocks of {} threads in clusters of {}, {} per SM, {:.0f} KB in flight per SM, {} wave(s)", t_dram >= t_sm ? "device memory" : "bytes in flight", dram / 1e6,
                      static_cast<int64_t>(blocks), p.warps * 32, p.cluster, p.blocks_per_sm, in_flight / 1024, static_cast<int>(waves));
  return c;
}

}  // namespace mirage
