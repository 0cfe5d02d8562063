// replan: see the header. Decisions that costs made are recorded while the model is planned once more and taken again at the other extents
// (tape.h); calls get the model's numbers.
#include "mirage/plan/replan.h"

#include "plan/tape.h"

namespace mirage {

Planned replan(const Program& program, const Plan& model, const Program& small, const Graph& small_graph, const Target& target) {
  const auto same_kernels = [&](const Planned& p) {
    bool same = p.plan && p.plan->kernels.size() == model.kernels.size();
    for (size_t k = 0; same && k < model.kernels.size(); k++) same = p.plan->kernels[k].nodes == model.kernels[k].nodes;
    return same;
  };
  Tape tape;
  if (!same_kernels(plan_with_tape(program, model.graph, target, tape, model))) return {std::nullopt, "the model was planned otherwise"};
  tape.replays = true;
  Planned out = plan_with_tape(small, small_graph, target, tape, model);
  if (!out.plan) return out;
  if (!same_kernels(out)) return {std::nullopt, "kernels do not follow a change of extents"};
  return out;
}

Planned replan_part(const Program& program, const Plan& model, const Program& small, const Graph& small_graph, const Target& target,
                    std::optional<Plan>& own) {
  Tape tape;
  Planned recorded = plan_with_tape(program, model.graph, target, tape, model);
  if (!recorded.plan) return {std::nullopt, "alone it has no plan: " + recorded.reason};
  if (recorded.plan->kernels.size() != model.kernels.size()) return {std::nullopt, "alone it is planned otherwise"};
  const auto replayed = [&](const Program& p, const Graph& g) {
    Tape again = tape;
    again.replays = true;
    return plan_with_tape(p, g, target, again, model);
  };
  Planned full = replayed(program, model.graph), out = replayed(small, small_graph);
  if (!full.plan) return full;
  if (!out.plan) return out;
  bool same = out.plan->kernels.size() == full.plan->kernels.size();
  for (size_t k = 0; same && k < full.plan->kernels.size(); k++) same = out.plan->kernels[k].nodes == full.plan->kernels[k].nodes;
  if (!same) return {std::nullopt, "kernels do not follow a change of extents"};
  own = std::move(full.plan);
  return out;
}

}  // namespace mirage
