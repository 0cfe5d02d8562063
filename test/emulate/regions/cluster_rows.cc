// Rows that the blocks of a cluster share, and columns that are held in registers, on the CPU: every division of a few programs.
#include "emulate/regions/rows.h"

using namespace mirage;
using namespace mirage::test;

namespace {

struct Rows { const char* name; const char* shape; const char* type; const char* op; };

Program program(const Rows& r, const std::string& result) {
  return program_of(
      fmt::format(
          R"({{"version": "1.0", "name": "rows", "inputs": {{"x": {{"shape": [{0}], "dtype": "{1}"}}}}, )"
          R"("outputs": {{"y": {{"shape": [{3}], "dtype": "{1}"}}}}, "nodes": [{{{2}, "inputs": ["x"], "output": "y"}}]}})",
          r.shape, r.type, r.op, result),
      "rows");
}

}  // namespace

TEST_CASE("rows that the blocks of a cluster share") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  Divisions cases;
  const auto add = [&](const Rows& r, const std::string& result) {
    const Program p = program(r, result);
    const Plan plan = cases.plan(p, r.name);
    CHECK(region(plan.kernels[0]).cluster > 1);   // the plan itself has few long rows in clusters
    for (bool tails : {false, true}) {   // what the gate emulates, too
      const Reduced small = reduce_plan(p, plan, cases.target, tails);
      INFO(r.name << ": " << small.refusal << small.differs);
      REQUIRE(small.plan);
      CHECK(region(small.plan->kernels[0]).cluster == region(plan.kernels[0]).cluster);
    }
    cases.divide(p, plan, r.name, [](const RegionPlan& q) {
      return q.cluster > 1 ? fmt::format("clusters of {}, {} threads{}", q.cluster, q.threads, q.staged ? ", in shared memory" : "") : "";
    });
  };
  add({"softmax of an odd length", "3, 20001", "float16", R"("op": "softmax", "attrs": {"axis": -1})"}, "3, 20001");
  add({"softmax of whole vectors", "2, 16392", "bfloat16", R"("op": "softmax", "attrs": {"axis": -1})"}, "2, 16392");
  add({"layer norm", "2, 12288", "float16", R"("op": "layer_norm")"}, "2, 12288");
  add({"l2 norm", "1, 10000", "float32", R"("op": "l2_norm", "attrs": {"axis": -1})"}, "1, 10000");
  CHECK(cases.all.size() >= 24);
  check_emulations(cases.all, cases.names, compiler, 1.0, false);
}

TEST_CASE("columns that are held in registers") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  Divisions cases;
  int held = 0;
  const auto kind = [&](const RegionPlan& q) {
    CHECK(q.shape == RegionPlan::Shape::kColumn);
    held += q.held > 0;
    return fmt::format("{} columns, {} threads, {} held", q.columns, q.threads, q.held);
  };
  for (const Rows& r : {Rows{"a multiple of everything", "2, 64, 64", "float16", R"("op": "softmax", "attrs": {"axis": 1})"},
                        Rows{"ragged", "3, 37, 50", "bfloat16", R"("op": "softmax", "attrs": {"axis": 1})"},
                        Rows{"odd", "1, 129, 27", "float32", R"("op": "softmax", "attrs": {"axis": 1})"}}) {
    const Program p = program(r, r.shape);
    cases.divide(p, cases.plan(p, r.name), r.name, kind);
  }
  CHECK(held > 20);
  check_emulations(cases.all, cases.names, compiler, 1.0, false);
}
