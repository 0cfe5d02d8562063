// Hints of the caller in a plan: eviction of once-read weights (kernels.md R4, R22), programmatic dependent launch (R11; CUDA C++
// programming guide, "Programmatic Dependent Launch").
#include "mirage/plan/hints.h"

#include <algorithm>
#include <set>

#include "mirage/plan/attend.h"
#include "mirage/plan/block_plan.h"
#include "mirage/plan/cublas.h"
#include "mirage/plan/region.h"
#include "mirage/plan/stream.h"
#include "mirage/plan/tile.h"

namespace mirage {

Plan with_hints(Plan plan, const RunHints& hints) {
  plan.pdl = hints.pdl;
  if (hints.pdl) for (KernelPlan& k : plan.kernels) k.early = false;   // all of them are, the first one too
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

/// Buffers of a kernel's weights (of attention: of keys and values), of all calls that stand beside each other; empty if it has none.
static std::vector<int> weights_of(const KernelPlan& k) {
  std::vector<int> out;
  const auto add = [&](const StreamShape& s) {
    for (const StreamWeight& w : s.weights) out.push_back(s.operands[static_cast<size_t>(s.body.form<Input>(w.input)->param)].buffer);
  };
  if (const auto* stream = std::get_if<std::shared_ptr<const StreamPlan>>(&k.body)) {
    add(**stream);
    for (const StreamShape& s : (*stream)->beside) add(s);
  }
  if (const auto* tile = std::get_if<std::shared_ptr<const TilePlan>>(&k.body)) add(**tile);
  if (const auto* attend = std::get_if<std::shared_ptr<const AttendPlan>>(&k.body))
    for (const AttendTensor* t : {&(*attend)->shape.k, &(*attend)->shape.v}) {
      out.push_back((*attend)->operands[static_cast<size_t>((*attend)->body.form<Input>(t->input)->param)].buffer);
      if (t->second.buffer >= 0) out.push_back(t->second.buffer);
    }
  return out;
}

bool weights_early(const KernelPlan& k, const Plan& plan) {
  const std::vector<int> buffers = weights_of(k);
  return !buffers.empty() && std::all_of(buffers.begin(), buffers.end(),
                                         [&](int b) { return plan.buffers[static_cast<size_t>(b)].kind == Buffer::Kind::kInput; });
}

bool reads_early(const KernelPlan& k, const Plan& plan) {
  return plan.pdl && std::holds_alternative<std::shared_ptr<const StreamPlan>>(k.body) && weights_early(k, plan);
}

bool releases(const KernelPlan& k, const Plan& plan) {
  for (size_t i = 0; i + 1 < plan.kernels.size(); i++) if (plan.kernels[i].name == k.name) return plan.kernels[i + 1].early;
  return false;
}

std::vector<int> read_early(const Plan& plan) {
  std::set<int> out;
  for (const KernelPlan& k : plan.kernels) {
    if (!reads_early(k, plan)) continue;
    for (int b : weights_of(k)) out.insert(b);
  }
  return {out.begin(), out.end()};
}

}  // namespace mirage
