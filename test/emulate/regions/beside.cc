// Small regions in one launch (plan/passes/beside.cc, "join_regions") on the CPU: rows, elements and columns beside each other, extents
// that no block divides, at the sizes that they have and reduced.
#include <fmt/format.h>

#include "emulate/helpers.h"
#include "emulate/run_all.h"
#include "mirage/plan/region.h"

using namespace mirage;
using namespace mirage::test;

namespace {

/// A program whose nodes read inputs of their own: (operator and attributes, rows, columns).
struct Part { const char* op; int64_t rows, columns; };

std::string spec_of(const std::vector<Part>& parts) {
  std::string inputs, outputs, nodes;
  for (size_t i = 0; i < parts.size(); i++) {
    const char* comma = i ? ", " : "";
    inputs += fmt::format(R"({}"x{}": {{"shape": [{}, {}], "dtype": "float16"}})", comma, i, parts[i].rows, parts[i].columns);
    outputs += fmt::format(R"({}"y{}": {{"dtype": "float16"}})", comma, i);
    nodes += fmt::format(R"({}{{"op": {}, "inputs": ["x{}"], "output": "y{}"}})", comma, fmt::format(fmt::runtime(R"("{}")"), parts[i].op),
                         i, i);
  }
  return fmt::format(R"({{"version": "1.0", "name": "parts", "inputs": {{{}}}, "outputs": {{{}}}, "nodes": [{}]}})", inputs, outputs,
                     nodes);
}

size_t beside(const Plan& plan) {
  size_t out = 0;
  for (const KernelPlan& k : plan.kernels)
    if (const auto* p = std::get_if<std::shared_ptr<const RegionPlan>>(&k.body)) out += (*p)->beside.size();
  return out;
}

}  // namespace

TEST_CASE("small regions in one launch") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> all;
  std::vector<std::string> names;
  const auto add = [&](const std::vector<Part>& parts, size_t joined) {
    const Program program = program_of(spec_of(parts), "parts");
    const Planned planned = make_plan(program, program.graph, target);
    REQUIRE(planned.plan);
    INFO(print(*planned.plan));
    CHECK(planned.plan->kernels.size() == parts.size() - joined);
    CHECK(beside(*planned.plan) == joined);
    const std::string name = fmt::format("{} of {} parts", joined, parts.size());
    if (joined > 0) {   // what fills the device takes minutes here
      all.push_back(case_of(program, *planned.plan, target, fmt::format("p{}_", all.size())));
      names.push_back(name);
    }
    const Reduced small = reduce_plan(program, *planned.plan, target, true);
    INFO(small.refusal << small.differs);
    REQUIRE(small.plan);
    CHECK(beside(*small.plan) == joined);
    all.push_back(case_of(*small.program, *small.plan, target, fmt::format("p{}_", all.size())));
    names.push_back(name + ", reduced");
  };
  add({{"softmax", 16, 128}, {"softmax", 8, 128}}, 1);
  add({{"softmax", 5, 128}, {"rms_norm", 3, 128}, {"softmax", 7, 96}}, 2);
  add({{"tanh", 10, 96}, {"silu", 3, 96}}, 1);
  add({{"softmax", 4096, 4096}, {"softmax", 4096, 4096}}, 0);   // each fills the device
  check_emulations(all, names, compiler, 1.0, false);
}
