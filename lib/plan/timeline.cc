// What kernels do in what order, and what lies in shared memory meanwhile: the schedule that report.html draws. Stands behind the
// strategies' plans, whose places it only reads.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "mirage/plan/attend.h"
#include "mirage/plan/block_plan.h"
#include "mirage/plan/region.h"
#include "mirage/plan/tile.h"
#include "plan/strategy_internal.h"

namespace mirage {

namespace {

/// Grows a timeline; step() gives the number of the step that was added.
struct TimelineBuilder {
  Timeline out;
  int step(const char* phase, std::string text) {
    out.steps.push_back({phase, std::move(text)});
    return static_cast<int>(out.steps.size()) - 1;
  }
  /// From one offset to another, from one step to another; nothing where it is empty.
  void place(std::string what, int64_t from, int64_t to, int first, int last) {
    if (to > from && last >= first) out.shared.push_back({std::move(what), from, to - from, first, last});
  }
};

const char* phase_text(Phase p) { return p == Phase::kInvariant ? "before" : p == Phase::kLoop ? "loop" : "after"; }

std::string block_step(const BlockPlan& p, const Step& s) {
  const auto tile = [](int t) { return fmt::format("t{}", t); };
  switch (s.kind) {
    case Step::Kind::kContract:
      return fmt::format("%{} = {} x {} on {}", s.value, tile(s.x), tile(s.y), s.tensor ? "tensor cores" : "float32 units");
    case Step::Kind::kReduce: return fmt::format("%{} = {} over a tile", s.value, reduce_name(p.body.form<Reduce>(s.node)->fn));
    case Step::Kind::kFill: return fmt::format("%{} is evaluated", s.value);
    case Step::Kind::kAccumulate: return fmt::format("%{} is added up over iterations", s.value);
    case Step::Kind::kChain: return fmt::format("%{} = softmax({} x {}) x {} in registers", s.value, tile(s.x), tile(s.y), tile(s.z));
    case Step::Kind::kRunning: return fmt::format("%{} = the running maximum", s.value);
    case Step::Kind::kStore: return fmt::format("result {} is stored", p.body.form<Output>(s.node)->result);
  }
  return "";
}

std::string low_ranks(const StreamShape& s) {
  return s.products.empty() ? "" : fmt::format(", and {} low-rank product{}", s.products.size(), s.products.size() == 1 ? "" : "s");
}

std::string products_text(const StreamShape& s) {
  const size_t n = s.contractions.size();
  return fmt::format(
      "{} product{} of a chunk on tensor cores{}", n, n == 1 ? "" : "s",
      s.statistics.empty() ? "" : fmt::format(", {} sum{} of rows beside them", s.statistics.size(), s.statistics.size() == 1 ? "" : "s"));
}

}  // namespace

Timeline block_timeline(const KernelPlan& k) {
  const BlockPlan& p = body_of<BlockPlan>(k);
  TimelineBuilder t;
  for (const Step& s : p.steps)
    t.step(phase_text(s.phase),
           block_step(p, s) + (s.tile >= 0 ? fmt::format(" -> t{}", s.tile) : "") + (s.barrier_before ? ", behind a barrier" : ""));
  const int last = static_cast<int>(p.steps.size()) - 1;
  for (size_t i = 0; i < p.tiles.size(); i++) {
    const SmemTile& tile = p.tiles[i];
    const std::string kind = tile.kind == SmemTile::Kind::kInput    ? "input"
                             : tile.kind == SmemTile::Kind::kFilled ? "computed"
                                                                    : "partial sums";
    const std::string more = tile.stages > 1 ? fmt::format(" x {}", tile.stages) : "";
    t.place(fmt::format("t{} = %{}, {}{}", i, tile.value, kind, more), tile.offset, tile.offset + tile.bytes,
            std::clamp(tile.first, 0, std::max(last, 0)), std::clamp(tile.last, 0, std::max(last, 0)));
  }
  return std::move(t.out);
}

Timeline stream_timeline(const KernelPlan& k) {
  const StreamPlan& p = body_of<StreamPlan>(k);
  TimelineBuilder t;
  const int fill = t.step(
      "before", p.registers ? "the warps ask for their weights, straight to registers"
                            : fmt::format("{} warps fill their rings: {} stages of {} along the reduction", p.warps, p.stages, p.chunk));
  const int early = p.early.empty()
                        ? fill
                        : t.step("before", fmt::format("{} reduction{} of whole rows", p.early.size(), p.early.size() == 1 ? "" : "s"));
  const int ready = p.prepared ? t.step("before", "rows become the products' operand, once") : early;
  const int loop = t.step("loop", products_text(p) + low_ranks(p));
  const int warps = t.step("after", fmt::format("sums of {} warps are added up{}", p.warps, p.registers ? "" : ", in the finished rings"));
  const int cluster = p.cluster > 1 ? t.step("after", fmt::format("{} blocks of a cluster send each other their sums", p.cluster)) : warps;
  const int end = t.step("after", "what stands behind the sums, and results are stored");
  const int64_t rings = p.warps * p.ring_bytes;
  if (!p.registers) t.place("rings of weights", 0, rings, fill, loop);
  t.place("sums of the warps", 0, rings, warps, cluster);
  t.place("sums of the cluster", p.received_at, p.statistics_at, warps, end);
  t.place("row statistics", p.statistics_at, p.early_at, loop, end);
  t.place("reductions of whole rows", p.early_at, p.early.empty() ? p.early_at : p.barriers_at, early, end);
  if (!p.registers) t.place("barriers", p.barriers_at, p.barriers_at + 8 * (p.warps * p.stages + 1), fill, end);
  if (p.prepared) t.place("prepared rows", p.prepared_at, p.smem_bytes, ready, end);
  return std::move(t.out);
}

Timeline tile_timeline(const KernelPlan& k) {
  const TilePlan& p = body_of<TilePlan>(k);
  TimelineBuilder t;
  const int fill = t.step("before", p.turned ? "rows and the whole of the weights are copied"
                                             : fmt::format("the ring is filled: {} stages of {} along the reduction", p.stages, p.chunk));
  const int computed = p.computes() ? t.step("loop", "rows are computed into shared memory, a chunk ahead") : fill;
  const int loop = t.step("loop", products_text(p) + fmt::format(", by {} warpgroup{}", p.groups(), p.groups() == 1 ? "" : "s"));
  const int sums = p.cluster > 1 ? t.step("after", fmt::format("{} blocks of a cluster send each other their sums", p.cluster)) : loop;
  const int ranks = p.products.empty() ? sums : t.step("after", "low-rank sums times their second factors");
  const int end = t.step("after", "what stands behind the sums, and results are stored");
  t.place(p.turned ? "rows and weights" : "ring of weights and rows", 0, p.turned ? p.ranks_at : p.computed_at, fill, loop);
  if (p.computes()) t.place("computed rows, two buffers", p.computed_at, p.computed_at + 2 * p.computed_bytes, computed, loop);
  if (p.held_tiles) t.place("results on their way", p.held_at, p.ranks_at, fill, end);
  t.place("sums of the cluster", p.received_at, p.received_at + (p.cluster - 1) * p.share_bytes(), sums, end);
  t.place(p.turned ? "second factors of low ranks" : "low-rank sums", p.ranks_at, p.statistics_at, p.turned ? fill : ranks, end);
  t.place("row statistics", p.statistics_at, p.statistics_at + p.cluster * p.statistics_bytes(), loop, end);
  t.place("barriers", p.barriers_at, p.smem_bytes, fill, end);
  return std::move(t.out);
}

Timeline attend_timeline(const KernelPlan& k) {
  const AttendPlan& p = body_of<AttendPlan>(k);
  TimelineBuilder t;
  const int fill = t.step("before", fmt::format("queries are copied, and {} chunk{} of {} keys and values asked for", p.stages,
                                                p.stages == 1 ? "" : "s", p.chunk));
  const int scores = t.step("loop", "scores of a chunk, and the running maximum");
  const int values = t.step("loop", "weights of a chunk times its values; what was added before is brought to the new maximum");
  const int groups = p.key_groups > 1 ? t.step("after", fmt::format("{} groups along the keys add up", p.key_groups)) : values;
  const int cluster =
      p.cluster > 1 ? t.step("after", fmt::format("{} blocks of a cluster send each other their parts", p.cluster)) : groups;
  if (p.meets > 1) t.step("after", fmt::format("{} clusters meet through device memory", p.meets));
  const int end = t.step("after", "division by the sums, and results are stored");
  t.place("queries", 0, p.ring_at, fill, values);
  if (p.wide) {
    t.place("ring of keys and values", p.ring_at, p.scores_at, fill, values);
    t.place("scores of the warps", p.scores_at, p.weights_at, scores, scores);
    t.place("weights", p.weights_at, p.statistics_at, scores, values);
    t.place("maxima and sums", p.statistics_at, p.receive_at, scores, end);
  } else {
    t.place("ring of keys and values", p.ring_at, p.known_at, fill, values);
    if (p.key_groups > 1) t.place("parts of the groups", p.ring_at, p.known_at, groups, groups);
    t.place("per-key values", p.known_at, p.receive_at, fill, values);
  }
  t.place("parts of the cluster", p.receive_at, p.barriers_at, cluster, end);
  t.place("barriers", p.barriers_at, p.smem_bytes, fill, end);
  return std::move(t.out);
}

Timeline cublas_timeline(const KernelPlan&) {
  TimelineBuilder t;
  t.step("", "cuBLASLt, whose kernels are its own");
  return std::move(t.out);
}

Timeline region_timeline(const KernelPlan& k) {
  const RegionPlan& p = body_of<RegionPlan>(k);
  TimelineBuilder t;
  const int held = p.held > 0 ? t.step("", p.staged ? "a row is copied into shared memory" : "a row is read into registers") : 0;
  for (size_t i = 0; i < p.passes.size(); i++) {
    const RegionPass& pass = p.passes[i];
    std::string text = p.passes.size() == 1 ? "the elements" : fmt::format("pass {} over the elements", i + 1);
    if (!pass.reduces.empty()) text += fmt::format(": {} reduction{}", pass.reduces.size(), pass.reduces.size() == 1 ? "" : "s");
    if (!pass.stores.empty() || !pass.after_stores.empty()) text += pass.reduces.empty() ? ": computed and stored" : ", results are stored";
    t.step("", text);
  }
  const int last = std::max(static_cast<int>(t.out.steps.size()) - 1, 0);
  t.place("parts of the cluster", 0, p.staged ? p.staged_at : p.smem_bytes, held, last);
  if (p.staged) t.place("rows", p.staged_at, p.smem_bytes, held, last);
  return std::move(t.out);
}

}  // namespace mirage
