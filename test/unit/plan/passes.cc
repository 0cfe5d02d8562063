// The named rewrites of a plan: which there are, that each can be left out, and what they left on the way.
#include <catch2/catch.hpp>
#include <set>

#include "mirage/plan/passes.h"
#include "mirage/plan/strategy.h"
#include "unit/plan/programs.h"

using namespace mirage;
using namespace mirage::test;

namespace {

/// silu(x) g times a wide weight, of so many rows that float16 operands pay: hoisted and narrowed.
Program gated(int64_t rows) {
  Sketch s;
  const ValueId x = s.input(DType::kF16, {rows, 2048}), g = s.input(DType::kF16, {rows, 2048}), w = s.input(DType::kF16, {2048, 4096});
  s.output(s.b.add(MatMul{}, {s.b.map(MapFn::kMul, {s.b.map(MapFn::kSilu, {x}), g}), w}), DType::kF16);
  return s.finish();
}

std::vector<std::string> steps(const Program& p, const Target& t) {
  const Planned planned = make_plan(p, p.graph, t);
  REQUIRE(planned.plan);
  std::vector<std::string> out;
  for (const PassStep& s : pass_steps(p, p.graph, t, *planned.plan)) {
    INFO(s.name);
    CHECK(!check_laws(s.graph));
    out.push_back(s.name);
  }
  return out;
}

bool has(const std::vector<std::string>& all, const std::string& name) { return std::find(all.begin(), all.end(), name) != all.end(); }

}  // namespace

TEST_CASE("passes have names of their own") {
  std::set<std::string> names;
  for (const PassInfo& p : pass_table()) {
    CHECK(names.insert(p.name).second);
    CHECK(p.help.size() > 10);
    REQUIRE(find_pass(p.name));
    const Target t = *find_target("sm_90a"), other = without(t, *find_pass(p.name));
    CHECK(is_on(*find_pass(p.name), t));
    CHECK(!is_on(*find_pass(p.name), other));
  }
  CHECK(pass_table().size() == static_cast<size_t>(Pass::kNumPasses));
  CHECK(!find_pass("nonesuch"));
}

TEST_CASE("a plan says which rewrites led to it, and does without those that are switched off") {
  const Target t = *find_target("sm_90a");
  const Program p = gated(512);
  const auto all = steps(p, t), none = steps(p, without(t, Pass::kNarrow));
  CHECK(all.front() == "lower");
  CHECK(has(all, "narrow"));
  CHECK(!has(none, "narrow"));
  const Planned with = make_plan(p, p.graph, t), without_it = make_plan(p, p.graph, without(t, Pass::kNarrow));
  CHECK(with.plan->predicted_us < without_it.plan->predicted_us);
}

TEST_CASE("a product of few results over a long reduction is divided among the multiprocessors") {
  const Target t = *find_target("sm_90a");
  test::Sketch s;
  const ValueId x = s.input(DType::kBF16, {256, 65536}), w = s.input(DType::kBF16, {65536, 256});
  s.output(s.b.add(MatMul{}, {x, w}), DType::kBF16);
  const Program p = s.finish();
  const Planned with = make_plan(p, p.graph, t), without_it = make_plan(p, p.graph, without(t, Pass::kDivide));
  REQUIRE((with.plan && without_it.plan));
  CHECK(with.plan->predicted_us < 0.7 * without_it.plan->predicted_us);
  CHECK(steps(p, t).front() == "divide");
  const auto divided = divide_products(p.graph, t);
  REQUIRE(divided);
  CHECK(!check_laws(*divided));
  CHECK(!divide_products(*divided, t));
  CHECK(!divide_products(gated(512).graph, t));   // tiles enough
}

TEST_CASE("a recurrent cell updates its state and reads it in one kernel") {
  const Target t = *find_target("sm_90a");
  for (const bool by_rows : {false, true}) {   // the state is read along its lines, or across them
    test::Sketch s;
    const ValueId state = s.input(DType::kF32, {64, 128, 128}), decay = s.input(DType::kF32, {64, 1, 1});
    const ValueId column = s.input(DType::kBF16, {64, 128, 1}), row = s.input(DType::kBF16, {64, 1, 128});
    const ValueId kept = s.b.map(MapFn::kMul, {state, decay});
    const ValueId read = by_rows ? s.b.add(MatMul{}, {kept, column}) : s.b.add(MatMul{}, {row, kept});
    const ValueId next = s.b.map(MapFn::kAdd, {kept, s.b.map(MapFn::kMul, {by_rows ? row : column, read})});   // a delta rule
    s.output(next, DType::kF32);
    s.output(by_rows ? s.b.add(MatMul{}, {next, column}) : s.b.add(MatMul{}, {row, next}), DType::kBF16);
    const Program p = s.finish();
    const Planned with = make_plan(p, p.graph, t), without_it = make_plan(p, p.graph, without(t, Pass::kDots));
    REQUIRE((with.plan && without_it.plan));
    CHECK(with.plan->kernels.size() == 1);
    CHECK(with.plan->predicted_us < without_it.plan->predicted_us);
    CHECK(steps(p, t).front() == "dots");
  }
  const Program p = gated(512);
  Sketch s;   // a product alone is none
  s.output(s.b.add(MatMul{}, {s.input(DType::kBF16, {1, 4096}), s.input(DType::kBF16, {4096, 4096})}), DType::kBF16);
  const Program alone = s.finish();
  for (const Program* q : {&p, &alone}) CHECK(!has(steps(*q, t), "dots"));
}

TEST_CASE("every pass can be left out, and something is planned all the same") {
  const Target t = *find_target("sm_90a");
  for (uint64_t seed = 0; seed < 4; seed++) {
    const Program p = random_program(seed, 12);
    for (const PassInfo& pass : pass_table()) {
      INFO(pass.name << ", program " << seed);
      CHECK(make_plan(p, p.graph, without(t, *find_pass(pass.name))).plan);
    }
    const Planned apart = make_plan(p, p.graph, without(without(t, Pass::kMerge), Pass::kInline)), together = make_plan(p, p.graph, t);
    CHECK(apart.plan->kernels.size() >= together.plan->kernels.size());
  }
}
