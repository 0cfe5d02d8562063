// Rows that the blocks of a cluster share, and columns that are held in registers, on the CPU: every division of a few programs.
#include <set>
#include <variant>

#include <fmt/format.h>

#include "emulate/run_all.h"
#include "mirage/plan/alternatives.h"
#include "mirage/plan/region.h"

using namespace mirage;
using namespace mirage::test;

namespace {

struct Rows { const char* name; const char* shape; const char* type; const char* op; };

Program program(const Rows& r, const std::string& result) {
  return program_of(fmt::format(R"({{"version": "1.0", "name": "rows", "inputs": {{"x": {{"shape": [{0}], "dtype": "{1}"}}}}, "outputs": {{"y": {{"shape": [{3}], "dtype": "{1}"}}}}, "nodes": [{{{2}, "inputs": ["x"], "output": "y"}}]}})", r.shape, r.type, r.op, result), "rows");
}

const RegionPlan* region(const KernelPlan& k) {
  const auto* r = std::get_if<std::shared_ptr<const RegionPlan>>(&k.body);
  return r ? r->get() : nullptr;
}

/// The straightforward plan with each other division of its only kernel of which `wanted` says a new name.
template <class F> void divide(const Program& p, const Target& target, const std::string& what, F wanted, std::vector<EmulationCase>& cases, std::vector<std::string>& names) {
  const Planned planned = make_plan(p, p.graph, target);
  INFO(what);
  REQUIRE(planned.plan);
  REQUIRE(planned.plan->kernels.size() == 1);
  std::set<std::string> seen;
  for (const KernelPlan& a : kernel_alternatives(planned.plan->kernels[0], target, contract_rule(p), 100)) {
    REQUIRE(region(a));
    const std::string kind = wanted(*region(a));
    if (kind.empty() || !seen.insert(kind).second) continue;
    Plan plan = *planned.plan;
    plan.kernels[0].body = a.body;
    cases.push_back(case_of(p, plan, target, fmt::format("c{}_", cases.size())));
    names.push_back(what + ", " + kind);
  }
}

}  // namespace

TEST_CASE("rows that the blocks of a cluster share") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  const auto add = [&](const Rows& r, const std::string& result) {
    const Program p = program(r, result);
    const Planned planned = make_plan(p, p.graph, target);
    REQUIRE(planned.plan);
    REQUIRE(region(planned.plan->kernels[0]));
    CHECK(region(planned.plan->kernels[0])->cluster > 1);   // the plan itself has few long rows in clusters
    for (bool tails : {false, true}) {   // what the gate emulates, too
      const Reduced small = reduce_plan(p, *planned.plan, target, tails);
      INFO(r.name << ": " << small.refusal << small.differs);
      REQUIRE(small.plan);
      CHECK(region(small.plan->kernels[0])->cluster == region(planned.plan->kernels[0])->cluster);
    }
    divide(p, target, r.name, [](const RegionPlan& q) { return q.cluster > 1 ? fmt::format("clusters of {}, {} threads", q.cluster, q.threads) : ""; }, cases, names);
  };
  add({"softmax of an odd length", "3, 20001", "float16", R"("op": "softmax", "attrs": {"axis": -1})"}, "3, 20001");
  add({"softmax of whole vectors", "2, 16392", "bfloat16", R"("op": "softmax", "attrs": {"axis": -1})"}, "2, 16392");
  add({"layer norm", "2, 12288", "float16", R"("op": "layer_norm")"}, "2, 12288");
  add({"l2 norm", "1, 10000", "float32", R"("op": "l2_norm", "attrs": {"axis": -1})"}, "1, 10000");
  CHECK(cases.size() >= 24);
  check_emulations(cases, names, compiler, 1.0, false);
}

TEST_CASE("columns that are held in registers") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  int held = 0;
  const auto kind = [&](const RegionPlan& q) {
    CHECK(q.shape == RegionPlan::Shape::kColumn);
    held += q.held > 0;
    return fmt::format("{} columns, {} threads, {} held", q.columns, q.threads, q.held);
  };
  for (const Rows& r : {Rows{"a multiple of everything", "2, 64, 64", "float16", R"("op": "softmax", "attrs": {"axis": 1})"}, Rows{"ragged", "3, 37, 50", "bfloat16", R"("op": "softmax", "attrs": {"axis": 1})"},
                        Rows{"odd", "1, 129, 27", "float32", R"("op": "softmax", "attrs": {"axis": 1})"}}) divide(program(r, r.shape), target, r.name, kind, cases, names);
  CHECK(held > 20);
  check_emulations(cases, names, compiler, 1.0, false);
}
