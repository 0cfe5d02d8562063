// Tiles for the tensor cores' rate (runtime/67_wgmma_wide.cuh, 68_tile.cuh) on the CPU: products that run on over the next chunk, blocks
// that copy rows for each other, batches, rows in TF32 that come by tensor copies; extents that nothing divides.
#include <fmt/format.h>

#include "emulate/helpers.h"
#include "mirage/plan/tile.h"

using namespace mirage;
using namespace mirage::test;

namespace {

std::string tensor(const char* name, const std::string& shape, const char* dtype) {
  return fmt::format(R"("{}": {{"shape": [{}], "dtype": "{}"}})", name, shape, dtype);
}

/// silu(x w1) x w2 (or x w1) plus a residual; x times a gain first if `gain`.
std::string spec(int batch, int m, int k, int n, bool gated, bool gain, const char* dtype) {
  const std::string lead = batch > 1 ? fmt::format("{}, ", batch) : "", out = fmt::format("{}{}, {}", lead, m, n);
  std::string inputs = tensor("x", fmt::format("{}{}, {}", lead, m, k), dtype) + ", " +
                       tensor("w", fmt::format("{}{}, {}", lead, k, n), dtype) + ", " + tensor("r", out, dtype),
              nodes;
  if (gain) inputs += ", " + tensor("g", std::to_string(k), dtype), nodes += R"({"op": "mul", "inputs": ["x", "g"], "output": "u"}, )";
  const char* x = gain ? "u" : "x";
  nodes += fmt::format(R"({{"op": "matmul", "inputs": ["{}", "w"], "output": "a"}}, )", x);
  if (gated) {
    inputs += ", " + tensor("v", fmt::format("{}{}, {}", lead, k, n), dtype);
    nodes += fmt::format(
        R"({{"op": "matmul", "inputs": ["{}", "v"], "output": "b"}}, {{"op": "silu", "inputs": ["a"], "output": "s"}}, )"
        R"({{"op": "mul", "inputs": ["s", "b"], "output": "c"}}, )",
        x);
  }
  nodes += fmt::format(R"({{"op": "add", "inputs": ["{}", "r"], "output": "y"}})", gated ? "c" : "a");
  return fmt::format(R"({{"version": "1.0", "name": "tile", "inputs": {{{}}}, "outputs": {{{}}}, "nodes": [{}]}})", inputs,
                     tensor("y", out, dtype), nodes);
}

struct Wanted { bool large; int column_groups, group_rows, chunk, stages, sharing; };

}  // namespace

TEST_CASE("tiles for the tensor cores' rate are right on the CPU") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  // The straightforward plan; its one product (or all of them, if there are two) divided as wanted.
  const auto add = [&](const std::string& text, const Wanted& want, const char* what) {
    const Program p = program_of(text, what);
    Planned planned = make_plan(p, p.graph, target);
    REQUIRE(planned.plan);
    int divided = 0;
    for (KernelPlan& k : planned.plan->kernels) {
      const auto* tile = std::get_if<std::shared_ptr<const TilePlan>>(&k.body);
      if (!tile) continue;
      const TileCandidates all = tile_candidates((*tile)->body, (*tile)->operands, (*tile)->results, target, contract_rule(p));
      for (const TilePlan& t : all.plans)
        if (t.large == want.large && t.row_groups == 1 && t.column_groups == want.column_groups && t.group_rows == want.group_rows &&
            t.chunk == want.chunk && t.stages == want.stages && t.sharing == want.sharing && t.cluster == 1 && t.blocks_per_sm == 1) {
          k.body = std::make_shared<const TilePlan>(t);
          divided++;
          break;
        }
    }
    INFO(what);
    CHECK(divided > 0);
    cases.push_back(case_of(p, *planned.plan, target, fmt::format("t{}_", cases.size())));
    names.push_back(what);
  };
  add(spec(1, 300, 392, 328, false, false, "bfloat16"), {true, 2, 256, 64, 4, 2}, "two blocks share 256 rows, a ragged third column block");
  add(spec(1, 150, 456, 200, true, false, "float16"), {true, 2, 80, 64, 3, 2}, "two weights, 80 rows of which each block brings 40");
  add(spec(3, 70, 328, 136, false, false, "bfloat16"), {true, 1, 80, 64, 3, 1}, "a batch");
  add(spec(1, 100, 328, 136, false, true, "float16"), {false, 1, 112, 64, 3, 1}, "rows in TF32, made by a kernel of their own");
  std::vector<const EmulationCase*> all;
  for (const EmulationCase& c : cases) all.push_back(&c);
  const EmulationLibrary lib = build_emulation(all, compiler, emulation_folder());
  INFO(lib.error);
  REQUIRE(lib.error.empty());
  for (size_t i = 0; i < cases.size(); i++)
    for (EmulationMode m : {EmulationMode::kField, EmulationMode::kFloat}) {
      const EmulationOutcome o = run_emulation(cases[i], lib.path, m, 1);
      INFO(names[i] << ", " << mode_name(m) << ": " << o.reason);
      CHECK(o.ok);
      CHECK(o.compared * 2 >= o.elements);
    }
}
