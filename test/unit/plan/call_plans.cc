// What planning keeps of calls.
#include "mirage/plan/call_plans.h"

#include <catch2/catch.hpp>

#include "mirage/plan/region.h"
#include "plan/region/region_plans.h"
#include "unit/plan/programs.h"

using namespace mirage;

namespace {

Graph block_of(int64_t rows) {
  Builder b(Level::kBlock, Launch{});
  const ValueId x = b.add_input(0, {DType::kF16, {rows, 16}}, {{-1, -1, -1}, -1});
  b.add_output(0, x, DType::kReal, {{-1, -1, -1}, -1});
  return std::move(b).finish();
}

}  // namespace

TEST_CASE("a product of the same types and strides is made once") {
  CallPlans known;
  const Type x{DType::kF16, {32, 64}}, y{DType::kF16, {64, 16}}, wide{DType::kF32, {64, 16}};
  const Dims rows[] = {{64, 1}, {16, 1}}, turned[] = {{64, 1}, {1, 64}};
  int made = 0;
  const auto ask = [&](const Type& a, const Type& b, std::span<const Dims> strides) {
    return known.product(a, b, strides, [&] { return block_of(++made); });
  };
  const auto first = ask(x, y, rows);
  CHECK(ask(x, y, rows) == first);
  CHECK(made == 1);
  CHECK(ask(x, y, turned) != first);
  CHECK(ask(x, wide, rows) != first);
  CHECK(ask(y, x, rows) != first);
  CHECK(made == 4);
  CHECK(ask(x, y, turned)->dims(0)[0] == 2);
}

namespace {

/// All of a plan that is made of regions.
std::string text_of(const Plan& p) {
  std::string out = print(p.graph, "p") + " " + std::to_string(p.predicted_us) + "\n";
  for (const KernelPlan& k : p.kernels)
    if (const auto* r = std::get_if<std::shared_ptr<const RegionPlan>>(&k.body)) {
      out += print(**r, "k") + std::to_string((*r)->kept) + " " + std::to_string((*r)->blocks);
      for (const RegionAccess& a : (*r)->accesses) out += " " + std::to_string(a.buffer);
      for (NodeId n : k.nodes) out += " n" + std::to_string(n);
      out += "\n";
    }
  return out;
}

}  // namespace

TEST_CASE("regions that other plans had are what planning them anew gives") {
  const Target target = *find_target("sm_90a");
  CallPlans shared;
  size_t kept = 0;
  for (uint64_t seed = 0; seed < 300; seed++) {
    INFO(seed);
    const Program p = test::random_program(seed, 1 + static_cast<int>(seed % 9));   // those of a few steps are alike
    CallPlans own;
    const Planned anew = make_plan(p, p.graph, target, {}, own), known = make_plan(p, p.graph, target, {}, shared);
    REQUIRE(anew.plan.has_value() == known.plan.has_value());
    if (anew.plan) CHECK(text_of(*anew.plan) == text_of(*known.plan));
    kept += own.regions().size();
  }
  CHECK(shared.regions().size() > 200);
  CHECK(shared.regions().size() < kept);
}
