// Trace: nested times, products on demand only, counts, JSON.
#include <catch2/catch.hpp>
#include "mirage/support/trace.h"

using namespace mirage;

TEST_CASE("products are printed only where somebody looks") {
  std::string shown;
  int printed = 0;
  auto print = [&] { printed++; return std::string("graph"); };
  Trace trace({{"plan"}, false, true, [&](const std::string& s) { shown += s; }});
  trace.product("parse", "x.graph", print);
  CHECK(printed == 0);
  trace.product("plan", "x.plan", print, [] { return std::nullopt; });
  CHECK(shown == "// after plan: x.plan\ngraph\n");
  CHECK(trace.products().empty());
  Trace keeping({{}, true, true, {}});
  keeping.product("parse", "x.graph", print);
  keeping.product("plan", "x.plan", print);
  REQUIRE(keeping.products().size() == 2);
  CHECK(keeping.products()[1].first == "02-plan.x.plan");
}

TEST_CASE("stages return what the work returns, nest and add up") {
  Trace trace;
  const int x = trace.stage("outer", [&] { return trace.stage("inner", [] { return 20; }) + trace.stage("inner", [] { return 22; }); });
  CHECK(x == 42);
  CHECK(trace.seconds("inner") <= trace.seconds("outer"));
  const std::string table = trace.print_times();
  CHECK(table.find("outer") < table.find("  inner"));
  const std::string json = trace.chrome_json("a\"b");
  CHECK(json.find("a\\\"b") != std::string::npos);
  CHECK(json.find("\"name\": \"inner\"") != std::string::npos);
}

TEST_CASE("counts") {
  Trace trace;
  trace.count(Stat::kPlans);
  trace.count(Stat::kPlans, 4);
  CHECK(trace.counted(Stat::kPlans) == 5);
  CHECK(trace.print_stats().find("             5  choose.plans") != std::string::npos);
}
