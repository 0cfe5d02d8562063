// Every division of a kernel's block graph that some strategy would take, cheapest first (plan/alternatives.h). Behind make_plan in the
// flow, for measuring.
#include "mirage/plan/alternatives.h"

#include <algorithm>

#include "mirage/plan/attend.h"
#include "mirage/plan/block_plan.h"
#include "mirage/plan/cublas.h"
#include "mirage/plan/region.h"
#include "mirage/plan/stream.h"
#include "mirage/plan/tile.h"
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
  return std::visit([&](const auto& p) -> std::optional<Work> {
    if constexpr (requires { p->body; }) {
      const bool positions = std::any_of(p->operands.begin(), p->operands.end(), [](const Access& a) { return a.position >= 0; });
      return Work{p->body, p->operands, p->results, target, rule, positions};
    } else {
      return std::nullopt;
    }
  }, k.body);
}

}  // namespace

std::vector<KernelPlan> kernel_alternatives(const KernelPlan& k, const Target& target, const ContractRule& rule, size_t most) {
  const Strategy& own = strategy_of(k);
  if (own.own_divisions)
    if (std::vector<KernelPlan> only = own.own_divisions(k, target); !only.empty()) {
      only.insert(only.begin(), k);
      return distinct(std::move(only), most);
    }
  std::vector<KernelPlan> out{k};
  const std::optional<Work> work = work_of(k, target, rule);
  for (const Strategy& s : strategies()) {
    if (!is_on(s, target)) continue;
    if (!work || !s.divisions || (work->positions && !s.reads_positions) || (work->has_parts() && !s.reads_parts)) continue;
    std::vector<KernelPlan> all = s.divisions(k, *work);
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
