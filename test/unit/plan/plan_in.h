// Plans of kernels, which keep no more than their programs: made again from those, with the numbers that they say.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "mirage/plan/describe.h"
#include "plan/attend/attend_internal.h"
#include "plan/block/block_internal.h"
#include "plan/stream/stream_internal.h"
#include "plan/strategy_internal.h"
#include "plan/tile/tile_internal.h"

namespace mirage::test {

template <class P> constexpr StrategyId kStrategyOf = StrategyId::kBlock;
template <> inline constexpr StrategyId kStrategyOf<StreamPlan> = StrategyId::kStream;
template <> inline constexpr StrategyId kStrategyOf<TilePlan> = StrategyId::kTile;
template <> inline constexpr StrategyId kStrategyOf<AttendPlan> = StrategyId::kAttend;

template <class P> bool holds(const KernelBody& body) {
  const auto* p = std::get_if<std::shared_ptr<const ProgramPlan>>(&body);
  return p && (*p)->strategy == kStrategyOf<P>;
}

template <class P> KernelBody body_with(P plan) { return told(std::make_shared<const P>(std::move(plan))); }

/// nullopt: a kernel of another strategy, or one that the target has not.
template <class P>
std::optional<std::shared_ptr<const P>> plan_in(const KernelBody& body, const Target& target = *find_target("sm_90a")) {
  if (!holds<P>(body)) return std::nullopt;
  const ProgramPlan& p = *std::get<std::shared_ptr<const ProgramPlan>>(body);
  const KernelCall& call = p.calls[0];
  const Work work{call.body, call.operands, call.results, target, p.rule};
  std::string reason;
  std::shared_ptr<const P> out;
  if constexpr (std::is_same_v<P, StreamPlan>) {
    if (auto plan = stream_like(p.how->program(), p.calls, p.rule, target, reason)) out = std::make_shared<const P>(*std::move(plan));
  } else if constexpr (std::is_same_v<P, TilePlan>) {
    if (auto plan = tile_like(p.how->program(), work, reason)) out = std::make_shared<const P>(*std::move(plan));
  } else if constexpr (std::is_same_v<P, AttendPlan>) {
    out = plan_attend_as(attend_choice(p.how->program()), call.body, call.operands, call.results, target).plan;
  } else {
    out = block_like(p.how->program(), work, reason);
  }
  return out ? std::optional(std::move(out)) : std::nullopt;
}

}  // namespace mirage::test
