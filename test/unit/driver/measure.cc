// The measured choice without a device: what is timed, when the first look ends, who may win.
#include <catch2/catch.hpp>

#include "driver/measure/measure.h"
#include "mirage/ir/target.h"
#include "mirage/spec/spec.h"

using namespace mirage;

namespace {

/// Cases with predicted times 10, 11, 12 ...; the last one is straightforward.
std::vector<MeasureCase> cases(size_t n) {
  std::vector<MeasureCase> out;
  for (size_t i = 0; i < n; i++) {
    MeasureCase c;
    c.what = "case " + std::to_string(i);
    c.choice = i + 1 == n ? kStraightforward : static_cast<int>(i);
    c.plan.predicted_us = 10.0 + static_cast<double>(i);
    out.push_back(c);
  }
  return out;
}

Samples timed(double us) { return {true, "", {us, us * 1.01, us * 0.99}, {us * 0.5}}; }
double no_time() { return 0; }

}  // namespace

TEST_CASE("the fastest of the finalists wins, timed afresh") {
  // At the first look case 2 seems best; in the rounds case 1 is.
  const std::vector<double> first = {10, 9.1, 9.0, 30, 12}, later = {10, 8.0, 9.2, 30, 12};
  std::vector<int> rounds(5, 0);
  const Measurement m = run_measurement(
      cases(5), false, {},
      [&](size_t i, int round) {
        rounds[i] += round > 0;
        return timed(round == 0 ? first[i] : later[i]);
      },
      no_time);
  REQUIRE(m.order.size() == 2);
  CHECK(m.order[0] == 1);
  CHECK(m.rows[1].final_us == Approx(8.0));
  CHECK(rounds[1] == 3);
  CHECK(rounds[3] == 0);
  CHECK(m.rows[1].cold.size() == 12);   // every sample is kept: the first look and three rounds
  CHECK(m.rows[3].cold.size() == 3);
}

TEST_CASE("a wrong result never wins and is reported, whenever it shows") {
  const Measurement m = run_measurement(cases(4), false, {}, [&](size_t i, int round) {
    if (i == 0) return Samples{false, "its result is wrong", {}, {}};
    if (i == 1 && round == 2) return Samples{false, "bits differ", {}, {}};
    return timed(i == 1 ? 5 : 5.1);
  }, no_time);
  REQUIRE(!m.order.empty());
  CHECK(m.order[0] != 0);
  CHECK(m.order[0] != 1);
  CHECK(!m.rows[0].ok);
  CHECK(m.rows[0].reason == "its result is wrong");
  CHECK(!m.rows[1].ok);
  CHECK(m.rows[1].reason == "bits differ");
}

TEST_CASE("the first look ends when nothing better comes, but never before the straightforward plan") {
  size_t looked = 0;
  const Measurement m = run_measurement(
      cases(30), false, {},
      [&](size_t i, int round) {
        looked += round == 0;
        return timed(i == 0 ? 5 : 10);
      },
      no_time);
  CHECK(looked == 10);   // the best, eight that are slower, the straightforward one
  CHECK(!m.stopped.empty());
  CHECK(m.rows[29].ok);
  CHECK(m.rows[20].reason == "not timed");
}

TEST_CASE("time ends it with what is there") {
  double now = 0;
  const Measurement m = run_measurement(
      cases(30), false, {},
      [&](size_t i, int) {
        now += 10;
        return timed(100.0 - static_cast<double>(i));
      },
      [&] { return now; });
  CHECK(m.stopped == "time");
  REQUIRE(!m.order.empty());
  CHECK(m.rows[29].ok);
}

TEST_CASE("warm judges by warm samples") {
  const Measurement m = run_measurement(
      cases(2), true, {},
      [&](size_t i, int) {
        return i == 0 ? Samples{true, "", {5}, {4}} : Samples{true, "", {6}, {3}};
      },
      no_time);
  REQUIRE(!m.order.empty());
  CHECK(m.order[0] == 1);
}

TEST_CASE("cases are divisions of the same kernels, the straightforward plan among them") {
  const auto parsed =
      read_spec({"x", R"(kernel two { %x = input 0 : f16[16,256] %w = input 1 : f16[256,512] output 0 (relu (matmul %x %w)) : f16 })"});
  REQUIRE(parsed);
  const Target target = *find_target("sm_90a");
  const Planned plan = make_plan(parsed->program, parsed->program.graph, target);
  REQUIRE(plan.plan);
  const auto all = measure_cases({}, *plan.plan, nullptr, parsed->program, target, 12);
  REQUIRE(all.size() > 2);
  CHECK(all.size() <= 12);
  size_t straightforward = 0;
  for (size_t i = 0; i < all.size(); i++) {
    straightforward += all[i].plan.predicted_us == Approx(plan.plan->predicted_us);
    CHECK(all[i].plan.kernels.size() == plan.plan->kernels.size());
    CHECK((i == 0 || all[i].plan.predicted_us >= all[i - 1].plan.predicted_us));
  }
  CHECK(straightforward >= 1);
}
