// The table of strategies (plan/strategies.def).
#include "plan/strategy_internal.h"

#include <algorithm>
#include <type_traits>

#include "mirage/ir/contraction.h"
#include "mirage/plan/attend.h"
#include "mirage/plan/block_plan.h"
#include "mirage/plan/cublas.h"
#include "mirage/plan/region.h"
#include "mirage/plan/stream.h"
#include "mirage/plan/tile.h"

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

bool on_float_units(const KernelPlan& k) {
  return std::visit(
      [](const auto& p) {
        if constexpr (std::is_same_v<std::decay_t<decltype(*p)>, CublasPlan>) return p->type == DType::kF32;
        if constexpr (requires { p->body; p->rule; }) {
          const Graph& g = p->body;
          for (const Node& n : g.nodes())
            if (std::holds_alternative<MatMul>(n.op) &&
                contract_type(g.type(n.operands[0]).dtype, g.type(n.operands[1]).dtype, p->rule) != ContractType::kF32)
              return false;
          return true;
        }
        return std::is_same_v<std::decay_t<decltype(*p)>, RegionPlan>;
      },
      k.body);
}

}  // namespace mirage
