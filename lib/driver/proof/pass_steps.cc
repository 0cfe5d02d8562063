// Rewrites of a plan, shown and compared: see the header.
#include "driver/proof/pass_steps.h"

#include <fmt/format.h>

#include "mirage/verify/verify.h"

namespace mirage {

namespace {
#ifdef MIRAGE_CHECKED
constexpr double kMostWork = 2e5;   ///< of one evaluation, in a compilation of seconds: larger graphs are compared at sampled elements
constexpr int kMostNodes = 48;      ///< beyond these, not even there
#endif
}  // namespace

std::optional<std::string> broken_step(const Graph& before, const PassStep& step, uint64_t seed) {
  if (auto law = check_laws(step.graph)) return law;
#ifdef MIRAGE_CHECKED
  if (step.graph.num_nodes() > kMostNodes) return std::nullopt;
  if (const Verdict v = settle(before, step.graph, seed, kMostWork); v.kind == Verdict::Kind::kDifferent)
    return fmt::format("another function than before: {}", to_string(v));
#endif
  return std::nullopt;
}

void show_passes(const Program& program, const Graph& graph, const Plan& plan, const Target& target, uint64_t seed, Trace& trace) {
  Graph before = plan.kept ? *plan.kept : graph;
  for (PassStep& step : pass_steps(program, graph, target, plan)) {
    trace.product(
        "pass:" + step.name, program.name + ".graph", [&] { return print(step.graph, program.name); },
        [&] { return broken_step(before, step, seed); });
    before = std::move(step.graph);
  }
}

}  // namespace mirage
