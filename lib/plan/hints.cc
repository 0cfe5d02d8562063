// Hints of the caller in a plan: eviction of once-read weights (kernels.md R4, R22), programmatic dependent launch (R11; CUDA C++ programming guide, "Programmatic Dependent Launch").
#include "mirage/plan/hints.h"

#include <algorithm>
#include <set>

#include "mirage/plan/attend.h"
#include "mirage/plan/block_plan.h"
#include "mirage/plan/region.h"
#include "mirage/plan/stream.h"
#include "mirage/plan/tile.h"

namespace mirage {

Plan with_hints(Plan plan, const RunHints& hints) {
  plan.pdl = hints.pdl;
  if (!hints.cold && !hints.warm) return plan;
  for (KernelPlan& k : plan.kernels)
    std::visit([&]<class P>(std::shared_ptr<const P>& body) {
      if constexpr (requires(P p) { p.evict_first; })
        if (body->evict_first != hints.cold) {
          auto p = std::make_shared<P>(*body);
          p->evict_first = hints.cold;
          body = std::move(p);
        }
    }, k.body);
  return plan;
}

/// Buffers of a plan's weights, of all calls that stand beside each other.
static std::vector<int> weights_of(const StreamPlan& p) {
  std::vector<int> out;
  const auto add = [&](const StreamShape& s) { for (const StreamWeight& w : s.weights) out.push_back(s.operands[static_cast<size_t>(s.body.form<Input>(w.input)->param)].buffer); };
  add(p);
  for (const StreamShape& s : p.beside) add(s);
  return out;
}

bool reads_early(const KernelPlan& k, const Plan& plan) {
  const auto* body = std::get_if<std::shared_ptr<const StreamPlan>>(&k.body);
  if (!plan.pdl || !body) return false;
  const std::vector<int> buffers = weights_of(**body);
  return std::all_of(buffers.begin(), buffers.end(), [&](int b) { return plan.buffers[static_cast<size_t>(b)].kind == Buffer::Kind::kInput; });
}

std::vector<int> read_early(const Plan& plan) {
  std::set<int> out;
  for (const KernelPlan& k : plan.kernels) {
    if (!reads_early(k, plan)) continue;
    for (int b : weights_of(*std::get<std::shared_ptr<const StreamPlan>>(k.body))) out.insert(b);
  }
  return {out.begin(), out.end()};
}

}  // namespace mirage
