// What one launch of an attention plan takes: waves of blocks, each a start, its chunks and an end. A multiprocessor's time for 64 queries
// times a chunk is the largest of what L2 delivers and what its warps can issue, times how badly the warps of that division overlap.
// Constants were fitted on an H200; docs/measurements/attention.md shows the variants they must rank.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "plan/attend/attend_internal.h"

namespace mirage {
namespace {

constexpr double kStartUs = 2.3;              // barriers, first copies, first scores; sums and stores at the end
constexpr double kWarpStartUs = 1.5;          // the same where warps have rings of their own
constexpr double kFirstShare = 0.25;          // of a group's first chunk, which nothing overlaps with
// of 64 x 64 results more in the exchange of a cluster: with 128 columns and 128 queries clusters of two lost 2 us (192 and 128 wide, 512 x
// 512)
constexpr double kExchangeUs = 0.8;
// of a line that ends within 32 bytes (40 features): tensor copies of 64 x 128 take 0.46 instead of 0.25
constexpr double kRowUs = 3.6e-3;
constexpr double kPartUs = 0.05;              // one more block of a cluster in the exchange
constexpr double kMergeUs = 0.15;             // groups of a block through shared memory, each doubling; of warpgroups per 64 columns
constexpr double kStatisticCycles = 0.065;    // of one element of a row whose norm is taken, by the warp that needs it
constexpr double kHelpedCycles = 0.033;       // the same by four helper warps, one per scheduler
constexpr double kElementCycles = 4.0 / 128;  // of one more thing done to a score

// Many features (runtime/67_attend_wide.cuh)
constexpr double kWideStartUs = 0.1;          // barriers, the first copies; stores at the end
constexpr double kWideChunkUs = 1.0;          // a chain of products, three barriers, a row's maximum: 1.14 of 32 keys, 1.23 of 64
// of a column beyond 64 that blocks of clusters that meet post (2 of a cluster took 1.2 to 1.6 us more than 8, 4 took 0.5)
constexpr double kWidePostedUs = 0.0065;
constexpr double kWideColdShare = 0.3;        // of what device memory takes for all that is asked for first, among which first chunks queue
constexpr double kWideValuesUs = 0.4;         // of a further chunk whose values have boxes of their own
constexpr double kWideElementUs = 2.5e-6;     // of one key times one feature or column

// Blocks without a cluster that meet (attend_share)
constexpr double kShareUs = 0.1;              // a slot or two of each thread
constexpr double kShareItemUs = 0.9;          // of each further one
// of the time that the body takes: measured (mha 0.3, one query per head 1.1), the reason is not known
constexpr double kShareBody = 0.035;
constexpr double kQueuedUs = 0.25;   // bytes in flight over all multiprocessors beyond this only queue: for each time as many
constexpr double kHalfUs = 0.3;               // half of the multiprocessors reach what all do, but later

/// How many cycles more than the best division of its kind one takes per chunk: too few warps leave gaps, warps in step want the same unit
/// at once.
double gaps(const AttendPlan& p, double together) {
  const int groups = p.query_groups * p.key_groups;
  if (p.chunk == 64) return groups >= 4 ? (p.query_groups == 1 ? 0.96 : 1.0) : groups == 1 && together < 2 ? 1.3 : 1.2;
  if (p.query_groups == 2) return 1.14;
  return groups == 1 ? (together < 2 ? 1.25 : 1.0) : p.turns ? 1.0 : 1.03;
}

/// Many features: a chain of waits in each block. A chunk is loaded, scored, exponentiated and multiplied with barriers in between; further
/// stages hide the loads.
Cost estimate_wide(const AttendPlan& p, const Target& target) {
  const AttendShape& s = p.shape;
  const int shared_columns = p.value_boxes == 0 ? p.columns : 0;   // V's columns that are K's come once
  double bytes = 0;
  for (const Access& a : p.operands) if (a.position < 0) bytes += static_cast<double>(a.dims.elements() * dtype_bytes(a.dtype));
  for (const Access& a : p.results) bytes += static_cast<double>(a.dims.elements() * dtype_bytes(a.dtype));
  bytes -= static_cast<double>(s.batch.elements() * s.keys * std::min<int64_t>(shared_columns, s.columns) * 2);
  const double width = p.features + p.columns, chunks = static_cast<double>(p.chunks_per_block), boxes = p.features / 64 + p.value_boxes,
               chunk_bytes = boxes * p.chunk * 128;
  const double waves = std::ceil(static_cast<double>(p.blocks()) / target.num_sms);
  const double work = kWideChunkUs + kWideElementUs * p.chunk * width, load = chunk_bytes / target.attend_sm_bytes_per_us;
  const double first = target.latency_us + (chunk_bytes + p.features * 32) / target.attend_sm_bytes_per_us;
  const double later =
      p.stages > 1 ? std::max(work, std::max(load, (target.latency_us + load) / p.stages)) : work + target.latency_us + load;
  const double t_dram = bytes / target.wide_dram_bytes_per_us,
               t_first = std::min(bytes, chunk_bytes * p.stages * static_cast<double>(p.blocks())) / target.wide_dram_bytes_per_us,
               t_sm = first + work + (chunks - 1) * (later + (p.value_boxes > 0 ? kWideValuesUs : 0));
  Cost c;
  c.us = target.launch_us + (kWideStartUs + std::max(t_sm, t_dram + target.latency_us) + kWideColdShare * std::min(t_sm, t_first)) * waves +
         (p.cluster > 1 ? target.wide_cluster_us + kPartUs * p.cluster : 0) +
         (p.meets > 1 ? target.meet_us + target.meet_source_us * p.meets + kWidePostedUs * std::max(0, p.columns / p.cluster - 64) : 0) +
         1e-3 * p.stages;
  c.bytes = static_cast<int64_t>(bytes);
  c.flops = 2.0 * static_cast<double>(s.batch.elements()) * static_cast<double>(s.queries * s.keys * (s.features + s.columns));
  c.why =
      fmt::format("attention bound by its chain of steps: {:.1f} MB, {:.2f} Gflop, {} blocks of {} threads, cluster {}, {} cluster(s) meet",
                  bytes / 1e6, c.flops / 1e9, p.blocks(), p.threads, p.cluster, p.meets);
  return c;
}

}  // namespace

Cost estimate_attend(const AttendPlan& p, const Target& target) {
  if (p.wide) return estimate_wide(p, target);
  const AttendShape& s = p.shape;
  double bytes = 0;
  for (const Access& a : p.operands) if (a.position < 0) bytes += static_cast<double>(a.dims.elements() * dtype_bytes(a.dtype));
  for (const Access& a : p.results) bytes += static_cast<double>(a.dims.elements() * dtype_bytes(a.dtype));
  const double blocks = static_cast<double>(p.blocks()), width = p.used_features() + p.used_columns(), chunk_bytes = p.chunk * width * 2;
  // Clusters lie within groups of multiprocessors of odd sizes: before all are in use, some have the blocks of two clusters, and these end
  // last. Under a mask by positions those are the tiles with the fewest chunks.
  const bool limited = s.last || s.first;
  const bool crowded = !limited && p.cluster > 1 && p.blocks() / p.cluster > clusters_that_fit(p.cluster, target);
  const double waves = std::ceil(blocks / (target.num_sms * p.blocks_per_sm)),
               together = crowded ? p.blocks_per_sm : std::min<double>(p.blocks_per_sm, std::ceil(blocks / target.num_sms));
  const double sms = std::min<double>(std::ceil(blocks / together), target.num_sms);
  const double statistics = (p.warp_rings ? kStatisticCycles : kHelpedCycles) * p.chunk *
                            ((p.key_known.empty() ? 0 : p.used_features()) + (p.value_known.empty() ? 0 : p.used_columns()));
  // Masks by positions: the last tile of a causal mask has all chunks, the mean tile fewer; the logit is evaluated near the mask's edge
  // only.
  const double tile_rows = p.group_rows() * p.query_groups, keys = static_cast<double>(s.keys);
  // no tile has more
  const double window =
      s.first && s.last ? std::clamp((static_cast<double>(*s.last - *s.first) + tile_rows + p.chunk) / keys, 0.02, 1.0) : 1.0;
  const double mean =
      s.last && *s.last < s.keys
          ? std::min(window, std::clamp((static_cast<double>(s.queries) / 2 + static_cast<double>(*s.last) + tile_rows) / keys, 0.1, 1.0))
          : window;
  const double part = waves > 1 ? mean : window;
  // Blocks that share a multiprocessor in one wave: tiles with many chunks start first, and find ones with few beside them; half of what
  // that could bring was measured (500 x 500 x 128, 24 heads: 11.6).
  const double beside = waves > 1 ? together : std::max(1.0, together * (1 + mean) / 2);
  const double chunks = static_cast<double>(p.chunks_per_block) * part;
  // In one wave the tile counts that has all chunks: those at the mask's edge are evaluated score by score.
  const double edge = waves > 1 ? 2.0 * p.chunk / static_cast<double>(s.keys)
                                : std::ceil(static_cast<double>(p.group_rows() * p.query_groups) / p.chunk) / chunks;
  const double rows = p.group_rows(), elements = kElementCycles * rows * p.chunk *
                                                 ((s.plain                   ? 0
                                                   : s.only_masks && limited ? 2 * std::min(1.0, edge)
                                                                             : 2) +
                                                  (s.share == s.weights ? 0 : 1));
  // cycles of a multiprocessor for a chunk and one group's queries; of one group for its chunks, from the first to the last
  double issue, own;
  if (p.warp_rings) {
    own = std::ceil(chunks / p.key_groups) * (100 + 0.1 * p.chunk * width + statistics + elements);
    issue = 0.025 * p.chunk * width + statistics / 4;   // four schedulers
  } else {
    issue =
        gaps(p, together) * std::max(p.chunk * (3.5 + 0.0367 * width),
                                     chunk_bytes / p.query_groups / std::min(target.sm_bytes_per_clock, target.l2_bytes_per_clock / sms)) +
        statistics / p.query_groups + elements;
    // values of keys are there the later, the later a stage is filled again
    if (p.helpers && p.producer && p.key_groups == 1) issue *= p.stages < 3 ? 1.04 : 1.0;
    own = 0;
  }
  // A stage that is worked on is not in flight, except that its keys are free before its values.
  const double free_stages = p.warp_rings ? std::min<double>(p.stages * p.key_groups, chunks)
                             : p.producer ? std::max(0.5, p.stages - p.key_groups + 0.5)
                                          : p.stages;
  const double in_flight = free_stages * chunk_bytes * together;
  const double feed = chunks * chunk_bytes * beside / std::min(in_flight / target.latency_us, target.attend_sm_bytes_per_us) +
                      kRowUs * chunks * p.chunk * beside * ((s.features % 16 != 0) + (s.columns % 16 != 0));
  const double busy = std::max(chunks * p.query_groups * issue * beside, own) / target.clock_per_us, t_sm = std::max(busy, feed) * waves,
               t_dram = bytes / target.attend_dram_bytes_per_us;
  const double body = std::max(t_sm, t_dram) + 0.05 * std::min(t_sm, t_dram) +
                      (p.warp_rings    ? (free_stages * chunk_bytes * p.blocks_per_sm > 140e3 ? 1.2 : 0)
                       : t_dram > t_sm ? 0.6
                                       : 0) +
                      // more than 128 KB in flight only queue; a warpgroup's last chunk comes late and takes its time
                      (!p.warp_rings ? kFirstShare * busy * p.key_groups / chunks : 0);
  double share = 0;
  if (p.warp_rings && t_dram > t_sm && sms < 0.6 * target.num_sms) share += kHalfUs;
  if (p.cluster == 1 && p.meets > 1)
    share += kShareUs + kShareItemUs * (static_cast<double>(rows * p.columns) / (p.narrow_parts ? 4 : 2) / p.threads - 1) +
             kShareBody * body + kQueuedUs * std::max(0.0, free_stages * chunk_bytes * blocks / target.queued_bytes - 1);
  const double exchanged =
      p.cluster == 1 || p.warp_rings
          ? 0
          : kExchangeUs * std::max(0.0, std::min<double>(static_cast<double>(s.queries), rows * p.query_groups) * p.columns / 4096 - 1);
  Cost c;
  c.us =
      target.launch_us + share + exchanged + (p.warp_rings ? kWarpStartUs : kStartUs) * waves +
      (p.cluster > 1 ? target.attend_cluster_us + kPartUs * p.cluster : 0) +
      (p.meets > 1 && p.cluster > 1 ? target.meet_us + target.meet_source_us * p.meets : 0) +
      kMergeUs * waves * (p.warp_rings ? 1 : p.columns / 64.0) * (std::log2(p.key_groups) + (!p.warp_rings && p.key_groups == 4 ? 1 : 0)) +
      body + 1e-3 * (p.stages + 2 * p.blocks_per_sm);
  c.bytes = static_cast<int64_t>(bytes);
  c.flops = 2.0 * static_cast<double>(s.batch.elements()) * static_cast<double>(s.queries * s.keys * (s.features + s.columns));
  const char* bound = t_dram > t_sm ? "device memory" : feed > busy ? "bytes in flight" : "arithmetic and L2";
  c.why = fmt::format("attention bound by {}: {:.1f} MB, {:.2f} Gflop, {} blocks of {} threads, cluster {}, {} wave(s)", bound, bytes / 1e6,
                      c.flops / 1e9, p.blocks(), p.threads, p.cluster, static_cast<int>(waves));
  return c;
}

}  // namespace mirage
