// The table of strategies (plan/strategies.def).
#include "plan/strategy_internal.h"

#include <algorithm>

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

const Strategy& strategy_of(const KernelPlan& k) { return strategies()[k.body.index()]; }

}  // namespace mirage
