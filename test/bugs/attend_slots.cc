// Attention kernels that an H200 or a reading found wrong. Each once planned or emitted what its test now forbids.
#include <catch2/catch.hpp>

#include "mirage/plan/alternatives.h"
#include "plan/attend/attend_plan.h"
#include "mirage/spec/text.h"
#include "unit/plan/plan_in.h"

using namespace mirage;
using namespace mirage::test;

TEST_CASE("no alternative of a kernel wants more slots than its plan has workspace for", "[bugs]") {
  // mla with sixteen clusters that meet, in the workspace of eight: the slots behind its end were polled before anybody had filled them
  // with ones (relative error 0.02, and a hang could have followed).
  auto g = parse_graph(
      "block grid(1,1,1) loop(64) {\n"
      "  %a = input 0 grid(-,1,-) : f16[1,16,576]  %b = input 1 loop(2) : f16[1,576,64]  %c = input 2 loop(1) : f16[1,64,512]\n"
      "  %x = matmul %a %b\n  %s = mul %x 1\n  %m = running (reduce.max 2 %s)\n  %p = exp (sub %s %m)\n"
      "  %l = accum.sum rescaled 1 (reduce.sum 2 %p) %m\n  %r = accum.sum rescaled 1 (matmul %p %c) %m\n  output 0 (div %r %l) grid(-,1,-) "
      ": f16\n}\n");
  REQUIRE(g);
  const std::vector<Access> operands = {{0, 0, {1, 16, 576}, {16 * 576, 576, 1}, DType::kF16},
                                        {1, 0, {1, 576, 4096}, {4096 * 576, 1, 576}, DType::kF16},
                                        {2, 0, {1, 4096, 512}, {4096 * 512, 512, 1}, DType::kF16}};
  const std::vector<Access> results = {{3, 0, {1, 16, 512}, {16 * 512, 512, 1}, DType::kF16}};
  const Target target = *find_target("sm_90a");
  const std::vector<AttendPlan> plans = attend_candidates(*g, operands, results, target).plans;
  bool asked = false;
  for (const AttendPlan& p : plans) {
    KernelPlan k;
    k.body = body_with<AttendPlan>(p);
    for (const KernelPlan& a : kernel_alternatives(k, target, {}, 64))
      if (const auto other = plan_in<AttendPlan>(a.body)) CHECK((*other)->slot_bytes <= p.slot_bytes);
    asked = asked || p.slot_bytes < plans.front().slot_bytes;
    if (p.meets == 1 && asked) break;
  }
  CHECK(asked);
}
