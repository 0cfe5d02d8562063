// The row of cuBLASLt's products in the table of strategies.
#include <fmt/format.h>

#include "plan/cublas/cublas_internal.h"
#include "plan/strategy_internal.h"

namespace mirage {

namespace {

/// The model is of another's kernels, which it knows by their times only.
constexpr double kLead = 1.05;

Attempt match_cublas(const Work& w) {
  std::string reason;
  std::optional<CublasPlan> plan = cublas_plan(w, reason);
  if (!plan) return refusal(reason);
  plan->cost = estimate(*plan, w.target);
  return attempt_of(*plan);
}

std::vector<KernelPlan> cublas_divisions(const KernelPlan& of, const Work& w, size_t) {
  std::string reason;
  std::optional<CublasPlan> plan = cublas_plan(w, reason);
  if (!plan) return {};
  plan->cost = estimate(*plan, w.target);
  std::vector<KernelPlan> out;
  out.push_back(with_body(of, *plan));
  return out;
}

std::string cublas_text(const KernelPlan& k) {
  const CublasPlan& p = body_of<CublasPlan>(k);
  return fmt::format("cublas: {} x {} x {}{}, {}", p.rows, p.columns, p.depth, p.batch > 1 ? fmt::format(", {} of them", p.batch) : "",
                     dtype_name(p.type));
}

}  // namespace

Strategy cublas_strategy() {
  return {.lead = kLead,
          .is_on = [](const Target& t) { return t.allow_cublas; },
          .match = match_cublas,
          .divisions = cublas_divisions,
          .text = cublas_text,
          .print = [](const KernelPlan& k) { return fmt::format("cublas {}\n", k.name) + print(body_of<CublasPlan>(k)); },
          .use = [](const KernelPlan&, int) { return Tiling{}; },
          .timeline = [](const KernelPlan&) { return Timeline{{{"", "cuBLASLt, whose kernels are its own"}}, {}}; }};
}

}  // namespace mirage
