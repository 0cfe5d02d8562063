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

bool reads_early(const KernelPlan& k, const Plan& plan) {
  const auto* body = std::get_if<std::shared_ptr<const StreamPlan>>(&k.body);
  if (!plan.pdl || !body) return false;
  const StreamPlan& p = **body;
  return std::all_of(p.weights.begin(), p.weights.end(), [&](const StreamWeight& w) {
    const Access& a = p.operands[static_cast<size_t>(p.body.form<Input>(w.input)->param)];
    return plan.buffers[static_cast<size_t>(a.buffer)].kind == Buffer::Kind::kInput;
  });
}

std::vector<int> read_early(const Plan& plan) {
  std::set<int> out;
  for (const KernelPlan& k : plan.kernels) {
    if (!reads_early(k, plan)) continue;
    const StreamPlan& p = *std::get<std::shared_ptr<const StreamPlan>>(k.body);
    for (const StreamWeight& w : p.weights) out.insert(p.operands[static_cast<size_t>(p.body.form<Input>(w.input)->param)].buffer);
  }
  return {out.begin(), out.end()};
}

}  // namespace mirage
