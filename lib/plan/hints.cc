// Hints of the caller in a plan: eviction of once-read weights (kernels.md R4, R22), programmatic dependent launch (R11; CUDA C++
// programming guide, "Programmatic Dependent Launch").
#include "mirage/plan/hints.h"

#include <algorithm>
#include <set>

#include "mirage/plan/bound.h"
#include "mirage/plan/describe.h"
#include "mirage/plan/strategy.h"

namespace mirage {

Plan with_hints(Plan plan, const RunHints& hints) {
  plan.pdl = hints.pdl;
  if (hints.pdl) for (KernelPlan& k : plan.kernels) k.early = false;   // all of them are, the first one too
  if (!hints.cold && !hints.warm) return plan;
  for (KernelPlan& k : plan.kernels)
    if (auto* p = std::get_if<std::shared_ptr<const ProgramPlan>>(&k.body); p && strategy_of(k).keep) {
      auto other = std::make_shared<ProgramPlan>(**p);
      other->how = std::make_shared<const LazyProgram>([how = (*p)->how, keep = strategy_of(k).keep, cold = hints.cold] {
        schedule::KernelProgram program = how->program();
        keep(program, !cold);
        return program;
      });
      *p = std::move(other);
    }
  return plan;
}

/// Buffers of a kernel's weights (of attention: of keys and values), of all calls that stand beside each other; empty if it has none.
static std::vector<int> weights_of(const KernelPlan& k) {
  std::vector<int> out;
  if (const auto weights = strategy_of(k).weights)
    for (const KernelCall& call : bound_calls(k))
      for (int param : weights(*program_in(k))) {
        const Access& a = call.operands[static_cast<size_t>(param)];
        out.push_back(a.buffer);
        if (a.second.buffer >= 0) out.push_back(a.second.buffer);
      }
  return out;
}

bool weights_early(const KernelPlan& k, const Plan& plan) {
  const std::vector<int> buffers = weights_of(k);
  return !buffers.empty() && std::all_of(buffers.begin(), buffers.end(),
                                         [&](int b) { return plan.buffers[static_cast<size_t>(b)].kind == Buffer::Kind::kInput; });
}

bool reads_early(const KernelPlan& k, const Plan& plan) {
  return plan.pdl && strategy_id(k) == StrategyId::kStream && weights_early(k, plan);
}

bool releases(const KernelPlan& k, const Plan& plan) {
  for (size_t i = 0; i + 1 < plan.kernels.size(); i++) if (plan.kernels[i].name == k.name) return plan.kernels[i + 1].early;
  return false;
}

std::vector<int> read_early(const Plan& plan) {
  std::set<int> out;
  for (const KernelPlan& k : plan.kernels) {
    if (!reads_early(k, plan)) continue;
    for (int b : weights_of(k)) out.insert(b);
  }
  return {out.begin(), out.end()};
}

}  // namespace mirage
