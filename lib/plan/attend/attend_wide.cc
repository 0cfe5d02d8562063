// Numbers of an attention kernel with many features or columns and up to 16 queries per key set (latent attention): a block holds whole
// rows of some keys, blocks of a cluster and clusters that meet in device memory divide the keys. Design: kernels.md section 7, R24 to R28;
// the kernel is runtime/67_attend_wide.cuh.
#include <algorithm>

#include "plan/attend/attend_internal.h"

namespace mirage {
namespace {

int64_t up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

/// The column of K's rows at which V's begin, if V is a slice of K's very rows; else -1.
int64_t shared_from(const AttendPlan& p) {
  const AttendTensor &k = p.shape.k, &v = p.shape.v;
  const auto access = [&](const AttendTensor& t) -> const Access& {
    return p.operands[static_cast<size_t>(p.body.form<Input>(t.input)->param)];
  };
  const Access &a = access(k), &b = access(v);
  const auto rank = a.dims.rank();
  if (a.buffer != b.buffer || rank != b.dims.rank() || a.strides[k.row_dim] != b.strides[v.row_dim]) return -1;
  for (int d = 0; d < rank - 2; d++) if (a.dims[d] != b.dims[d] || (a.dims[d] > 1 && a.strides[d] != b.strides[d])) return -1;
  const int64_t from = b.offset - a.offset, end = p.shape.first_features > 0 ? 64 * p.first_boxes() : p.features;
  if (p.shape.first_keys > 0) {   // and so in the second part
    const SecondPart &c = k.second, &d = v.second;
    if (c.buffer != d.buffer || c.strides != d.strides || d.offset - c.offset != from) return -1;
  }
  return from >= 0 && from % 64 == 0 && from + p.columns <= end ? from : -1;
}

bool place_memory(AttendPlan& p, const Target& t) {
  const int64_t boxes = p.features / 64 + p.value_boxes;
  p.ring_at = p.features / 64 * 2048;
  p.scores_at = p.ring_at + p.stages * boxes * p.chunk * 128;
  p.weights_at = p.scores_at + 4 * 16 * (p.chunk + 8) * 4;
  p.statistics_at = p.weights_at + 16 * (p.chunk * 2 + 16);
  p.receive_at = p.statistics_at + 3 * 16 * 4;
  const int64_t received = p.cluster > 1 ? int64_t{16} * p.columns * (p.narrow_parts ? 2 : 4) + int64_t{p.cluster} * 16 * 8 : 0;
  p.barriers_at = p.receive_at + up(received, 16);
  p.smem_bytes = p.barriers_at + 8 * (p.stages * boxes + 1);
  return p.smem_bytes <= t.smem_per_block;
}

}  // namespace

void add_wide_plans(const AttendPlan& base, const Target& target, std::vector<AttendPlan>& plans) {
  const AttendShape& s = base.shape;
  if (s.k.lines_along_rows || s.v.lines_along_rows || !s.k.factors.empty() || !s.v.factors.empty() || base.query_gains()) return;
  AttendPlan p = base;
  p.key_known.clear();   // nobody computes what is known of a key ahead: who needs it does
  p.value_known.clear();
  if (!check_regions(p).empty()) return;
  p.wide = true;
  p.warp_rings = false;
  p.producer = false;
  p.helpers = 0;
  p.query_groups = p.key_groups = 1;
  p.columns = static_cast<int>(up(s.columns, 128));
  if (p.columns > 1024 || p.features > 1024) return;
  const int64_t shared = shared_from(p);
  p.value_box = shared < 0 ? 0 : static_cast<int>(shared / 64);
  p.value_boxes = shared < 0 ? p.columns / 64 : 0;
  p.threads = 256;
  for (int chunk : {32, 64, 128})
    for (int cluster : {1, 2, 4, 8})
      for (int meets : {1, 2, 4, 8, 16})
        for (int stages : {1, 2, 3, 4}) {
          if ((meets > 1 && cluster == 1) || p.columns / cluster % 8 != 0) continue;
          p.chunk = chunk;
          p.cluster = cluster;
          p.meets = meets;
          p.stages = stages;
          const int64_t chunks = s.chunks(chunk), parts = int64_t{cluster} * meets;
          p.chunks_per_block = up(chunks, parts) / parts;
          if (p.chunks_per_block * (parts - 1) >= chunks || stages > p.chunks_per_block) continue;   // every block has work
          if (meets > 1 && p.blocks() / cluster > clusters_that_fit(cluster, target)) continue;     // all are resident
          if (!place_memory(p, target)) continue;
          p.slot_bytes = s.batch.elements() * p.tiles() * (meets - 1) * 4 * p.columns * (p.narrow_parts ? 1 : 2) * 16;
          p.cost = estimate_attend(p, target);
          plans.push_back(p);
        }
}

}  // namespace mirage
