// --why-not: where a muGraph stands in the search space of a spec (search/search.h, why_not). A mode of the command line; called by cmd/
// only.
#include <fmt/format.h>

#include "driver/schedule_mode.h"
#include "driver/proof/folding.h"
#include "driver/decide/search_options.h"
#include "mirage/driver/modes.h"
#include "mirage/ir/stabilize.h"
#include "mirage/plan/strategy.h"
#include "mirage/spec/spec.h"
#include "mirage/spec/text.h"

namespace mirage {

namespace {

/// How the graph would run: every kernel's strategy, and what the others said of it.
std::string planned_text(const Program& program, const Graph& g, const Target& target) {
  const auto said = [](const std::vector<Refusal>& all) {
    std::string out;
    for (const Refusal& r : all)
      out += r.us > 0 ? fmt::format("  {}: {:.2f} us predicted\n", r.strategy, r.us) : fmt::format("  {}: no, {}\n", r.strategy, r.reason);
    return out;
  };
  const Planned planned = make_plan(program, g, target);
  if (!planned.plan) return fmt::format("no plan for {}: {}\n", target.name, planned.reason) + said(planned.refusals);
  std::string out = fmt::format("planned for {}: {:.2f} us predicted\n", target.name, planned.plan->predicted_us);
  for (const KernelPlan& k : planned.plan->kernels)
    out += fmt::format("kernel {}: {}, {:.2f} us predicted\n", k.name, strategy_of(k).name, k.predicted_us) + said(k.others);
  return out;
}

}  // namespace

ModeResult why_not_graph(const Source& graph, const std::vector<Source>& specs, const Options& o, const Listener& listener) {
  if (is_schedule(graph.text)) return why_not_schedule(graph, o);
  ModeResult r;
  auto failed = [&](Diagnostics errors) {
    for (const Diagnostic& d : errors) r.exit = more_severe(r.exit, exit_code_of(d.code));
    r.diagnostics = std::move(errors);
    return r;
  };
  if (specs.size() != 1)
    return failed({Diagnostic{Severity::kError, DiagCode::kUsage, {}, "--why-not needs the spec of the graph as well: give one spec", {}}});
  const auto choice = read_axis_choice(o.bind, o.values);
  if (!choice) return failed(choice.errors());
  auto program = parse_spec(specs[0], *choice);
  if (!program) return failed(program.errors());
  auto g = parse_graph(graph.text, graph.name);
  if (!g) return failed(g.errors());
  auto bad = [&](const std::string& text) {
    return failed({Diagnostic{Severity::kError, DiagCode::kShape, {graph.name, 0, 0, 1}, text, {}}});
  };
  if (g->level() != Level::kKernel) return bad("a graph of kernel level is needed here");
  if (auto law = check_laws(*g)) return bad(*law);
  if (auto wrong = check_extents(*g)) return bad(*wrong);
  if (g->num_params() > static_cast<int>(program->inputs.size()) || g->num_results() != program->graph.num_results())
    return bad("the graph has other inputs or results than the spec");
  auto target = resolve_target(o);
  if (!target) return failed(target.errors());
  const Folding folded = fold_verified(*program);   // as it is searched; a graph of the folded program's own shapes is taken as it is
  Program searched = folded.program;
  searched.graph = unshift(searched.graph);
  const WhyNot w = why_not(searched, *target, search_options(o, listener), folded.refold(*g).value_or(*g));
  r.text = w.text + (!w.in_space      ? "not in the space\n"
                     : w.is_found     ? "in the space, and among the graphs that no other beats\n"
                     : o.no_dominance ? "in the space\n"
                                      : "in the space, but not among the graphs that are handed out\n");
  r.text += planned_text(*program, *g, *target);
  r.exit = w.in_space ? ExitCode::kOk : ExitCode::kNothingFound;
  return r;
}

}  // namespace mirage
