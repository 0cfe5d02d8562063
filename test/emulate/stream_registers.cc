// Weights straight to registers (runtime/42_stream_registers.cuh) on the CPU, in every division that fits: ragged rows, columns and
// reductions, weights in both orders, both types, computed operands, low ranks.
#include <variant>

#include <fmt/format.h>

#include "emulate/helpers.h"
#include "plan/stream/stream_plan.h"
#include "unit/plan/plan_in.h"

using namespace mirage;
using namespace mirage::test;

namespace {

std::string spec(const std::string& dtype, const std::string& inputs, const std::string& nodes, int m, int n) {
  return fmt::format(
      R"({{"version": "1.0", "name": "direct", "inputs": {{{}}}, "outputs": {{"y": {{"shape": [{}, {}], "dtype": "{}"}}}}, )"
      R"("nodes": [{}]}})",
      inputs, m, n, dtype, nodes);
}
std::string tensor(const std::string& name, const std::string& dims, const std::string& dtype) {
  return fmt::format(R"("{}": {{"shape": [{}], "dtype": "{}"}})", name, dims, dtype);
}

struct Direct { std::string name, text; bool rank = false; };

std::vector<Direct> programs() {
  const std::string h = "float16", b = "bfloat16";
  return {
      {"low rank",
       spec(
           h, tensor("x", "5, 88", h) + "," + tensor("w", "88, 72", h) + "," + tensor("a", "88, 24", h) + "," + tensor("b", "24, 72", h),
           R"({"op": "matmul", "inputs": ["x", "w"], "output": "p"}, {"op": "matmul", "inputs": ["x", "a"], "output": "d"}, {"op": "matmul", "inputs": ["d", "b"], "output": "u"},
                           {"op": "add", "inputs": ["p", "u"], "output": "y"})",
           5, 72),
       true},
      {"bias and residual",
       spec(
           h, tensor("x", "5, 88", h) + "," + tensor("w", "88, 72", h) + "," + tensor("c", "72", h) + "," + tensor("r", "5, 72", h),
           R"({"op": "matmul", "inputs": ["x", "w"], "output": "p"}, {"op": "add", "inputs": ["p", "c"], "output": "t"}, )"
           R"({"op": "add", "inputs": ["t", "r"], "output": "y"})",
           5, 72)},
      {"two weights with lines along the reduction",
       spec(
           b, tensor("x", "11, 104", b) + "," + tensor("v", "40, 104", b) + "," + tensor("w", "40, 104", b),
           R"({"op": "matmul", "inputs": ["x", "v"], "output": "p", "attrs": {"transpose_b": true}}, {"op": "matmul", "inputs": ["x", "w"], "output": "q", "attrs": {"transpose_b": true}},
                                 {"op": "silu", "inputs": ["p"], "output": "s"}, {"op": "mul", "inputs": ["s", "q"], "output": "y"})",
           11, 40)},
      {"lines along the reduction",
       spec(
           b, tensor("x", "11, 104", b) + "," + tensor("v", "40, 104", b),
           R"({"op": "matmul", "inputs": ["x", "v"], "output": "p", "attrs": {"transpose_b": true}}, )"
           R"({"op": "silu", "inputs": ["p"], "output": "y"})",
           11, 40)},
      {"norm with gain",
       spec(
           h, tensor("x", "17, 128", h) + "," + tensor("g", "128", h) + "," + tensor("w", "128, 104", h),
           R"({"op": "rms_norm", "inputs": ["x", "g"], "output": "n", "attrs": {"axis": -1, "eps": 1e-5}}, )"
           R"({"op": "matmul", "inputs": ["n", "w"], "output": "y"})",
           17, 104)},
      {"one row", spec(b, tensor("x", "1, 64", b) + "," + tensor("w", "64, 96", b),
                       R"({"op": "matmul", "inputs": ["x", "w"], "output": "p"}, {"op": "relu", "inputs": ["p"], "output": "y"})", 1, 96)},
  };
}

}  // namespace

TEST_CASE("weights straight to registers are right on the CPU") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  for (const Direct& d : programs()) {
    const Program p = program_of(d.text, "direct");
    size_t before = cases.size();
    bool ranked = false;
    for (const NamedPlan& n : plans_of(p, target, 20000))
      for (size_t i = 0; i < n.plan.kernels.size(); i++) {
        const std::shared_ptr<const StreamPlan> body = plan_in<StreamPlan>(n.plan.kernels[i].body).value_or(nullptr);
        if (!body || !body->beside.empty()) continue;   // the candidates below are of one call (calls beside each other: beside.cc)
        std::vector<std::tuple<int, int, int>> seen;
        for (const StreamPlan& c : stream_candidates(body->body, body->operands, body->results, target, body->rule).plans) {
          const std::tuple<int, int, int> key{c.warps, c.chunk, c.columns};
          if (!c.registers || std::find(seen.begin(), seen.end(), key) != seen.end()) continue;
          seen.push_back(key);
          ranked |= !c.products.empty();
          Plan plan = n.plan;
          plan.kernels[i].body = body_with<StreamPlan>(c);
          names.push_back(fmt::format("{}, {}: {} warps x {}, {} columns", d.name, n.name, c.warps, c.chunk, c.columns));
          cases.push_back(case_of(p, plan, target, fmt::format("d{}_", cases.size())));
        }
      }
    INFO(d.name);
    CHECK(cases.size() > before);
    CHECK(ranked == d.rank);
  }
  CHECK(cases.size() >= 30);
  std::vector<const EmulationCase*> all;
  for (const EmulationCase& c : cases) all.push_back(&c);
  const EmulationLibrary library = build_emulation(all, compiler, emulation_folder());
  INFO(library.error);
  REQUIRE(library.error.empty());
  for (size_t i = 0; i < cases.size(); i++)
    for (EmulationMode mode : {EmulationMode::kField, EmulationMode::kFloat}) {
      const EmulationOutcome o = run_emulation(cases[i], library.path, mode, 3, {});
      INFO(names[i] << ", " << mode_name(mode) << ": " << o.reason << (o.findings.empty() ? "" : "; " + o.findings.front().kind));
      CHECK(o.ok);
    }
}
