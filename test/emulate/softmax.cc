// Stable attention kernels of the block planner on the CPU, whole and with tails: a running softmax in registers, and split keys whose
// maxima travel to the kernel that combines them.
#include <algorithm>
#include <variant>

#include <fmt/format.h>

#include "emulate/run_all.h"
#include "plan/block/block_plan.h"
#include "unit/plan/plan_in.h"

using namespace mirage;
using namespace mirage::test;

TEST_CASE("stable attention is right on the CPU") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_80");
  std::vector<EmulationCase> cases;
  int chains = 0;
  for (const char* name : {"softmax_attention", "gqa_bf16", "mqa"}) {
    const std::string file = std::string(MIRAGE_SOURCE_DIR) + "/specs/" + name + ".json";
    const Program p = program_of(*read_file(file), file);
    for (const NamedPlan& n : plans_of(p, target, 300'000, 0, true)) {
      if (n.name != std::string("searched")) continue;
      for (const KernelPlan& k : n.plan.kernels)
        if (const auto b = plan_in<BlockPlan>(k.body))
          chains += static_cast<int>(
              std::count_if((*b)->steps.begin(), (*b)->steps.end(), [](const Step& s) { return s.kind == Step::Kind::kChain; }));
      for (bool tails : {false, true}) {
        const Reduced r = reduce_plan(p, n.plan, target, tails);
        INFO(name << ": " << r.refusal);
        REQUIRE(r.plan);
        cases.push_back(case_of(*r.program, *r.plan, target, fmt::format("c{}_", cases.size())));
      }
    }
  }
  CHECK(cases.size() == 6);
  CHECK(chains >= 3);
  check_emulations(cases, {}, compiler, 0.5, true);
}
