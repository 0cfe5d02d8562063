// start_early: which kernels of a plan are started while the kernel ahead of them still runs (CUDA C++ programming guide, "Programmatic
// Dependent Launch"). Last step of Planner::finish; codegen/module.cc writes it.
//
// Nothing is asked of the caller: the first kernel is launched as any, behind all that is ahead of it on the stream, and each of the others
// waits for the one before it, which has waited itself. What a kernel gains is its launch, its barriers and the first bytes of its weights
// (docs/planning.md, "Kernels that start early").
#include "plan/overlap.h"

#include "mirage/plan/alternatives.h"
#include "mirage/plan/describe.h"
#include "mirage/plan/region.h"
#include "mirage/plan/strategy.h"

namespace mirage {
namespace {

bool is(StrategyId id, const KernelPlan& k) { return strategy_id(k) == id; }

constexpr double kCrowdedShare = 0.1, kCrowdedGainUs = 2.5;
// that a kernel behind rows gains; rows behind another kernel; a product behind a product
constexpr double kBehindRowsUs = 0.5, kRowsUs = 0.6, kProductsUs = 0.8, kAttendUs = 0.8, kBehindAttendUs = 0.8;

/// Whether two blocks of it can stand on one multiprocessor.
bool stacks(const KernelPlan& k, const Target& target) {
  const auto* region = std::get_if<std::shared_ptr<const RegionPlan>>(&k.body);
  const int64_t smem = region ? (*region)->smem_bytes : derived_in(k) ? derived_in(k)->smem_bytes : 0;
  return 2 * (smem + 1024) <= target.smem_per_sm;
}

/// Blocks of a product, of tiles that do not stay those of one matrix of a batch; 0: of another kind.
int64_t blocks_of(const KernelPlan& k) {
  if (!is(StrategyId::kStream, k) && !is(StrategyId::kTile, k)) return 0;
  const schedule::KernelProgram& p = *program_in(k);
  int64_t blocks = derived_in(k)->blocks;
  for (const schedule::Split& s : p.splits)
    if (is(StrategyId::kTile, k) && p.stay == 0 && !s.reduced && s.tile == 1) blocks /= p.parts(s, schedule::AxisKind::kGrid);
  return blocks;
}

/// While a kernel holds its multiprocessors, blocks that can stand beside each other all go to the few that are free, and stay there.
bool crowds(const KernelPlan& running, const KernelPlan& k, const Target& target) {
  // a multiprocessor for each block of both
  const bool room = blocks_of(running) > 0 && blocks_of(k) > 0 && blocks_of(running) + blocks_of(k) <= target.num_sms;
  return stacks(k, target) && !room;
}

/// Attention whose blocks stand on a multiprocessor each, and that waits for no other block of its own: more would hold what the kernel
/// behind it needs (chains of mha: 11.9 us per call, 7.8 as any launch).
bool leaves_room(const KernelPlan& k, const Target& target) {
  return !is(StrategyId::kAttend, k) || (derived_in(k)->blocks <= target.num_sms && !program_in(k)->cooperative);
}

/// What kernel k gains if it is started early behind `ahead`; 0: it is launched as any.
double gain(const KernelPlan& ahead, const KernelPlan& k, const Target& target) {
  if (is(StrategyId::kCublas, ahead) || is(StrategyId::kCublas, k)) return 0;   // neither waits nor lets go
  if (!leaves_room(ahead, target) || !leaves_room(k, target)) return 0;
  if (is(StrategyId::kAttend, k)) return kAttendUs;
  if (is(StrategyId::kAttend, ahead)) return is(StrategyId::kBlock, k) ? 0 : kBehindAttendUs;
  if (is(StrategyId::kRegion, k)) return is(StrategyId::kRegion, ahead) ? kBehindRowsUs : kRowsUs;
  if (is(StrategyId::kBlock, k)) return 0;   // not measured
  if (is(StrategyId::kRegion, ahead)) return kBehindRowsUs;
  return crowds(ahead, k, target) ? 0 : kProductsUs;
}

/// Rows that were started early themselves let go of what is behind them while the product ahead of them still runs. Crowded blocks take a
/// tenth longer (a layer of one token, 235 MB of weights in 55 us: 126 us in all, 120 without), which a long kernel loses and a short one
/// gains back (18 us behind 64 rows: 41.6, without 43.3).
bool loses_by_crowding(const Plan& plan, size_t i, const Target& target) {
  const KernelPlan& k = plan.kernels[i];
  if (blocks_of(k) == 0 || kCrowdedShare * k.predicted_us < kCrowdedGainUs) return false;
  for (size_t a = i - 1; a > 0 && plan.kernels[a].early && is(StrategyId::kRegion, plan.kernels[a]); a--)
    if (blocks_of(plan.kernels[a - 1]) > 0 && crowds(plan.kernels[a - 1], k, target)) return true;
  return false;
}

/// What the kernel in place i and the one behind it gain.
double gain_around(const std::vector<KernelPlan>& kernels, size_t i, const KernelPlan& k, const Target& target) {
  return (i > 0 ? gain(kernels[i - 1], k, target) : 0) + (i + 1 < kernels.size() ? gain(k, kernels[i + 1], target) : 0);
}

}  // namespace

void make_room(Plan& plan, const Target& target, const ContractRule& rule) {
  constexpr size_t kMost = 64;
  if (target.sm < 90 || plan.kernels.size() < 2) return;
  for (size_t i = 0; i < plan.kernels.size(); i++) {
    KernelPlan& k = plan.kernels[i];
    const bool late = i > 0 && is(StrategyId::kStream, k) && gain(plan.kernels[i - 1], k, target) == 0;
    if (leaves_room(k, target) && !late) continue;
    const KernelPlan* best = nullptr;
    const std::vector<KernelPlan> others = kernel_alternatives(k, target, rule, kMost, true);
    double least = k.predicted_us - gain_around(plan.kernels, i, k, target);
    for (const KernelPlan& o : others) {
      if (!leaves_room(o, target)) continue;
      if (const double us = o.predicted_us - gain_around(plan.kernels, i, o, target); us < least) least = us, best = &o;
    }
    if (!best) continue;
    plan.predicted_us += best->predicted_us - k.predicted_us;
    k = *best;
  }
}

void start_early(Plan& plan, const Target& target) {
  if (target.sm < 90) return;
  for (size_t i = 1; i < plan.kernels.size(); i++) {
    double us = gain(plan.kernels[i - 1], plan.kernels[i], target);
    if (i > 1 && loses_by_crowding(plan, i, target)) us = 0;
    plan.kernels[i].early = us > 0;
    plan.predicted_us -= us;
  }
}

}  // namespace mirage
