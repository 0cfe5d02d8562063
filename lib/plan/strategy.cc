// The table of strategies (plan/strategies.def).
#include "plan/strategy_internal.h"

#include <algorithm>

#include "mirage/plan/cublas.h"
#include "mirage/plan/describe.h"

namespace mirage {

bool Work::has_parts() const {
  return std::any_of(operands.begin(), operands.end(), [](const Access& a) { return a.second.buffer >= 0; });
}

std::span<const Strategy> strategies() {
  static const std::vector<Strategy> kTable = [] {
    std::vector<Strategy> out;
#define MIRAGE_STRATEGY(Name, strategy, what) \
  out.push_back(strategy##_strategy());       \
  out.back().name = #strategy;                \
  out.back().help = what;
#include "mirage/plan/strategies.def"
    return out;
  }();
  return kTable;
}

bool is_on(const Strategy& s, const Target& t) {
  return (t.without_strategies >> (&s - strategies().data()) & 1) == 0 && (!s.is_on || s.is_on(t));
}

bool ignores_numbers(const Strategy& s) { return s.match && !s.is_general; }

/// What a general strategy and regions run, no other does.
static bool may_be_left_out(const Strategy& s) { return ignores_numbers(s); }

std::optional<Target> without_strategy(Target t, std::string_view name) {
  for (const Strategy& s : strategies()) {
    if (name != s.name || !may_be_left_out(s)) continue;
    t.without_strategies |= 1u << (&s - strategies().data());
    return t;
  }
  return std::nullopt;
}

std::vector<std::string> strategies_to_leave_out() {
  std::vector<std::string> out;
  for (const Strategy& s : strategies()) if (may_be_left_out(s)) out.push_back(s.name);
  return out;
}

StrategyId strategy_id(const KernelPlan& k) {
  if (const auto* p = std::get_if<std::shared_ptr<const ProgramPlan>>(&k.body)) return (*p)->strategy;
  return std::holds_alternative<std::shared_ptr<const RegionPlan>>(k.body) ? StrategyId::kRegion : StrategyId::kCublas;
}

const Strategy& strategy_of(const KernelPlan& k) { return strategies()[static_cast<size_t>(strategy_id(k))]; }

bool on_float_units(const KernelPlan& k) {
  if (const auto* p = std::get_if<std::shared_ptr<const CublasPlan>>(&k.body)) return (*p)->type == DType::kF32;
  const schedule::KernelProgram* p = program_in(k);
  return !p || std::all_of(p->stages.begin(), p->stages.end(), [](const schedule::Stage& s) {
    return s.unit == schedule::UnitId::kNone || s.unit == schedule::UnitId::kFma;
  });
}

}  // namespace mirage
