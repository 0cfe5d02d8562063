// Kernels' programs, by their strategies.
#include "mirage/plan/describe.h"

#include <fmt/format.h>

#include "mirage/plan/strategy.h"
#include "mirage/schedule/writer.h"
#include "mirage/support/assert.h"

namespace mirage::schedule {

/// Throws Undescribed.
static KernelProgram program_by_strategy(const KernelPlan& k) {
  const Strategy& s = strategy_of(k);
  if (!s.program) throw Undescribed{fmt::format("kernels of the strategy '{}' have none", s.name)};
  return s.program(k);
}

Described describe(const KernelPlan& k, const Target& target) {
  try {
    KernelProgram p = program_by_strategy(k);
    if (const auto broken = check_laws(p, target)) return {std::nullopt, *broken};
    return {std::move(p), ""};
  } catch (const Undescribed& u) {
    return {std::nullopt, u.why};
  }
}

KernelProgram program_of(const KernelPlan& k) {
  try {
    return program_by_strategy(k);
  } catch (const Undescribed& u) {
    MIRAGE_ASSERT(false) << k.name << " has no program: " << u.why;
    throw;
  }
}

std::string schedule_text(const KernelPlan& k, const Target& target) {
  const Described d = describe(k, target);
  return d.program ? print(*d.program) : fmt::format("# kernel {}: no schedule yet ({})\n", k.name, d.reason);
}

}  // namespace mirage::schedule

namespace mirage {

Attempt plan_like(const KernelPlan& model, const Work& work) {
  const Strategy& s = strategy_of(model);
  if (s.like) return s.like(schedule::program_of(model), work);
  return s.match ? s.match(work) : Attempt{std::nullopt, {}, "a call's kernel is of no kind that can be planned again"};
}

}  // namespace mirage
