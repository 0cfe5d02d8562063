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

bool is_on(const Strategy& s, const Target& t) {
  return (t.without_strategies >> (&s - strategies().data()) & 1) == 0 && (!s.is_on || s.is_on(t));
}

/// What a general strategy and regions run, no other does.
static bool may_be_left_out(const Strategy& s) { return s.match && !s.is_general; }

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

const Strategy& strategy_of(const KernelPlan& k) { return strategies()[k.body.index()]; }

Operands operands_of(const KernelPlan& k) {
  return std::visit(
      [](const auto& p) -> Operands {
        if constexpr (requires { p->operands; p->results; }) return {p->operands, p->results};
        else return {};
      },
      k.body);
}

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
