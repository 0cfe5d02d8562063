// See the header.
#include "mirage/plan/describe.h"

#include <fmt/format.h>

#include "mirage/plan/strategy.h"
#include "mirage/schedule/writer.h"
#include "mirage/support/assert.h"
#include "plan/strategy_internal.h"

namespace mirage {

static const ProgramPlan* plan_in(const KernelPlan& k) {
  const auto* p = std::get_if<std::shared_ptr<const ProgramPlan>>(&k.body);
  return p ? p->get() : nullptr;
}

const schedule::KernelProgram* program_in(const KernelPlan& k) { return plan_in(k) ? &plan_in(k)->how->program() : nullptr; }
const schedule::Derived* derived_in(const KernelPlan& k) { return plan_in(k) ? &plan_in(k)->how->derived() : nullptr; }

const LazyProgram::Known& LazyProgram::known() const {
  std::call_once(once_, [&] {
    schedule::KernelProgram p = make_();
    schedule::Derived d = derive(p);
    known_ = Known{std::move(p), std::move(d)};
    make_ = nullptr;
  });
  return *known_;
}

std::string unsaid(const KernelBody& body) {
  const auto* p = std::get_if<std::shared_ptr<const ProgramPlan>>(&body);
  try {
    if (p) (*p)->how->program();
    return "";
  } catch (const schedule::Undescribed& u) {
    return u.why;
  }
}

Attempt plan_like(const KernelPlan& model, const Work& work) {
  const Strategy& s = strategy_of(model);
  if (s.like) return s.like(*program_in(model), work);
  return s.match ? s.match(work) : Attempt{std::nullopt, {}, "a call's kernel is of no kind that can be planned again"};
}

}  // namespace mirage

namespace mirage::schedule {

KernelProgram program_of(const KernelPlan& k) {
  MIRAGE_ASSERT(program_in(k)) << k.name << " has no program";
  KernelProgram p = *program_in(k);
  p.name = k.name;
  return p;
}

Described describe(const KernelPlan& k, const Target& target) {
  if (!program_in(k)) return {std::nullopt, fmt::format("kernels of the strategy '{}' have none", strategy_of(k).name)};
  if (const auto broken = check_laws(*program_in(k), target)) return {std::nullopt, *broken};
  return {program_of(k), ""};
}

std::string schedule_text(const KernelPlan& k, const Target& target) {
  const Described d = describe(k, target);
  return d.program ? print(*d.program) : fmt::format("# kernel {}: no schedule yet ({})\n", k.name, d.reason);
}

}  // namespace mirage::schedule
