// Row and column kernels of programs of one kernel, by every division: what tests of them share.
#pragma once
#include <set>
#include <variant>

#include <fmt/format.h>

#include "emulate/run_all.h"
#include "mirage/plan/alternatives.h"
#include "mirage/plan/region.h"

namespace mirage::test {

inline const RegionPlan& region(const KernelPlan& k) {
  const auto* r = std::get_if<std::shared_ptr<const RegionPlan>>(&k.body);
  REQUIRE(r);
  return **r;
}

struct Divisions {
  Target target = *find_target("sm_90a");
  std::vector<EmulationCase> all;
  std::vector<std::string> names;

  void add(const Program& p, const Plan& plan, const std::string& name) {
    all.push_back(case_of(p, plan, target, fmt::format("c{}_", all.size())));
    names.push_back(name);
  }
  /// The straightforward plan of a program of one kernel.
  Plan plan(const Program& p, const std::string& what) {
    const Planned planned = make_plan(p, p.graph, target);
    INFO(what << ": " << planned.reason);
    REQUIRE(planned.plan);
    REQUIRE(planned.plan->kernels.size() == 1);
    return *planned.plan;
  }
  /// Each division of its kernel for which `wanted` has a new name; how many.
  template <class F> int divide(const Program& p, const Plan& plan, const std::string& what, F wanted) {
    std::set<std::string> seen;
    for (const KernelPlan& a : kernel_alternatives(plan.kernels[0], target, contract_rule(p), 200)) {
      const std::string kind = wanted(region(a));
      if (kind.empty() || !seen.insert(kind).second) continue;
      Plan other = plan;
      other.kernels[0].body = a.body;
      add(p, other, what + ", " + kind);
    }
    return static_cast<int>(seen.size());
  }
};

}  // namespace mirage::test
