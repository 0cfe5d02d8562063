// The table of strategies, and what each says of a call that another one gets, or none.
#include <catch2/catch.hpp>
#include <set>

#include "mirage/plan/strategy.h"
#include "unit/plan/programs.h"

using namespace mirage;
using namespace mirage::test;

namespace {

Program product(int64_t rows) {
  Sketch s;
  const ValueId x = s.input(DType::kBF16, {rows, 512}), w = s.input(DType::kBF16, {512, 1024});
  s.output(s.b.add(MatMul{}, {x, w}), DType::kBF16);
  return s.finish();
}

}  // namespace

TEST_CASE("every strategy has a row of its own, and says what it does") {
  std::set<std::string> names;
  for (const Strategy& s : strategies()) {
    INFO(s.name);
    CHECK(names.insert(s.name).second);
    CHECK(std::string(s.help).size() > 10);
    CHECK((s.text && s.print && s.use));
    if (s.like) CHECK(s.match != nullptr);
    CHECK((s.divisions || s.own_divisions));
  }
}

TEST_CASE("a kernel keeps what the other strategies said") {
  const Program p = product(8), q = product(100);
  const Planned few = make_plan(p, p.graph, *find_target("sm_90a")), many = make_plan(q, q.graph, *find_target("sm_90a"));
  REQUIRE((few.plan && many.plan));
  for (const Plan* plan : {&*few.plan, &*many.plan}) {
    const KernelPlan& k = plan->kernels[0];
    CHECK(std::string(strategy_of(k).name) == (plan == &*few.plan ? "stream" : "tile"));
    CHECK(strategy_of(k).text(k).starts_with(strategy_of(k).name));
    REQUIRE(k.others.size() == 3);
    std::set<std::string> asked{strategy_of(k).name};
    for (const Refusal& r : k.others) {
      CHECK(asked.insert(r.strategy).second);
      CHECK(r.reason.empty() == (r.us > 0));
      if (r.us > 0) CHECK(r.us >= k.predicted_us);
    }
  }
}

TEST_CASE("where no strategy takes a call, all reasons are there") {
  const Program p = product(100);
  Target tiny = *find_target("sm_80");
  const Planned ordinary = make_plan(p, p.graph, tiny);
  REQUIRE(ordinary.plan);
  tiny.smem_per_block = 256;
  const Planned none = make_plan(p, ordinary.plan->graph, tiny);
  REQUIRE(!none.plan);
  REQUIRE(none.refusals.size() == 4);
  for (const Refusal& r : none.refusals) {
    INFO(r.strategy);
    CHECK(!r.reason.empty());
    CHECK(r.us == 0);
  }
  CHECK(none.reason == none.refusals[0].reason);
}

TEST_CASE("what a strategy that is left out would run, others do") {
  const Target t = *find_target("sm_90a");
  CHECK(strategies_to_leave_out() == std::vector<std::string>{"stream", "tile", "attend", "cublas"});
  for (const char* name : {"block", "region", "nonesuch"}) CHECK(!without_strategy(t, name));
  struct Case { const char* name; int64_t rows; };
  for (const Case& c : {Case{"stream", 4}, Case{"tile", 2048}}) {
    Sketch s;
    s.output(s.b.add(MatMul{}, {s.input(DType::kBF16, {c.rows, 4096}), s.input(DType::kBF16, {4096, 4096})}), DType::kBF16);
    const Program p = s.finish();
    const Planned with = make_plan(p, p.graph, t), without_it = make_plan(p, p.graph, *without_strategy(t, c.name));
    REQUIRE((with.plan && without_it.plan));
    const auto has = [&](const Plan& plan) {
      return std::any_of(plan.kernels.begin(), plan.kernels.end(),
                         [&](const KernelPlan& k) { return strategy_of(k).name == std::string(c.name); });
    };
    CHECK(has(*with.plan));
    CHECK(!has(*without_it.plan));
    CHECK(with.plan->predicted_us < without_it.plan->predicted_us);
  }
}
