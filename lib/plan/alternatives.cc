// Every division of a kernel's block graph that some strategy would take, cheapest first (plan/alternatives.h). Behind make_plan in the
// flow, for measuring.
#include "mirage/plan/alternatives.h"

#include <algorithm>

#include "mirage/plan/bound.h"
#include "plan/buffers.h"
#include "plan/strategy_internal.h"

namespace mirage {

namespace {

/// The cheapest first. The same division twice is one: a chain that is not there, or the kernel's own.
std::vector<KernelPlan> distinct(std::vector<KernelPlan> all, size_t most) {
  std::stable_sort(all.begin(), all.end(), [](const KernelPlan& a, const KernelPlan& b) { return a.predicted_us < b.predicted_us; });
  std::vector<KernelPlan> kept;
  std::vector<std::string> texts;
  for (KernelPlan& a : all) {
    if (kept.size() >= most) break;
    const std::string text = division_text(a);
    if (std::find(texts.begin(), texts.end(), text) != texts.end()) continue;
    texts.push_back(text);
    kept.push_back(std::move(a));
  }
  return kept;
}

/// What a kernel was planned from; nullopt for a region.
std::optional<Work> work_of(const KernelPlan& k, const Target& target, const ContractRule& rule) {
  const std::span<const KernelCall> calls = bound_calls(k);
  if (calls.empty()) return std::nullopt;
  const auto& [body, operands, results] = calls[0];
  const bool positions = std::any_of(operands.begin(), operands.end(), [](const Access& a) { return a.position >= 0; });
  return Work{body, operands, results, target, rule, positions};
}

}  // namespace

std::vector<KernelPlan> kernel_alternatives(const KernelPlan& k, const Target& target, const ContractRule& rule, size_t most,
                                            bool only_own) {
  const Strategy& own = strategy_of(k);
  if (own.own_divisions)
    if (std::vector<KernelPlan> only = own.own_divisions(k, target, most); !only.empty()) {
      only.insert(only.begin(), k);
      return distinct(std::move(only), most);
    }
  std::vector<KernelPlan> out{k};
  const std::optional<Work> work = work_of(k, target, rule);
  for (const Strategy& s : strategies()) {
    if (!is_on(s, target) || (only_own && &s != &own)) continue;
    if (!work || !s.divisions || (work->positions && !s.reads_positions) || (work->has_parts() && !s.reads_parts)) continue;
    std::vector<KernelPlan> all = s.divisions(k, *work, most);
    out.insert(out.end(), std::make_move_iterator(all.begin()), std::make_move_iterator(all.end()));
  }
  return distinct(std::move(out), most);
}

Plan with_kernel(const Plan& plan, size_t kernel, const KernelPlan& other) {
  Plan out = plan;
  out.predicted_us += other.predicted_us - plan.kernels[kernel].predicted_us;
  out.kernels[kernel] = other;
  place_slots(out);
  return out;
}

std::string division_text(const KernelPlan& k) { return strategy_of(k).text(k); }

}  // namespace mirage
