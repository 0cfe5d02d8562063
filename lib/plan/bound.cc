// See the header.
#include "mirage/plan/bound.h"

#include "mirage/plan/attend.h"
#include "mirage/plan/block_plan.h"
#include "mirage/plan/cublas.h"
#include "mirage/plan/region.h"
#include "mirage/plan/stream.h"
#include "mirage/plan/tile.h"

namespace mirage {

std::vector<BoundCall> bound_calls(const KernelPlan& k) {
  return std::visit(
      [](const auto& p) {
        std::vector<BoundCall> out;
        if constexpr (requires { p->body; p->operands; p->results; }) {
          out.push_back({p->operands, p->results});
          if constexpr (requires { p->beside; }) for (const auto& other : p->beside) out.push_back({other.operands, other.results});
        }
        return out;
      },
      k.body);
}

}  // namespace mirage
