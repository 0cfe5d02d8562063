// Which strategies' plans have programs.
#include "mirage/schedule/describe.h"

#include <fmt/format.h>

#include "mirage/plan/strategy.h"
#include "schedule/writer.h"

namespace mirage::schedule {
namespace {

struct Describe {
  const KernelPlan& k;
  KernelProgram operator()(const std::shared_ptr<const StreamPlan>&) const { return describe_stream(k); }
  KernelProgram operator()(const std::shared_ptr<const TilePlan>&) const { return describe_tile(k); }
  template <class P> KernelProgram operator()(const std::shared_ptr<const P>&) const { throw Undescribed{fmt::format("{} kernels", strategy_of(k).name)}; }
};

}  // namespace

Described describe(const KernelPlan& k) {
  try {
    return {std::visit(Describe{k}, k.body), ""};
  } catch (const Undescribed& u) {
    return {std::nullopt, u.why};
  }
}

std::string print_schedules(const Plan& plan) {
  std::string out;
  for (const KernelPlan& k : plan.kernels) {
    const Described d = describe(k);
    out += d.program ? print(*d.program) : fmt::format("# kernel {}: no schedule yet, {}\n", k.name, d.reason);
  }
  return out;
}

}  // namespace mirage::schedule
