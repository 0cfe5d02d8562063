// See the header.
#include "mirage/plan/bound.h"

#include "mirage/plan/cublas.h"

namespace mirage {

std::span<const KernelCall> bound_calls(const KernelPlan& k) {
  if (const auto* p = std::get_if<std::shared_ptr<const ProgramPlan>>(&k.body)) return (*p)->calls;
  const auto* product = std::get_if<std::shared_ptr<const CublasPlan>>(&k.body);
  const KernelCall* call = product ? product->get() : nullptr;
  return {call, call ? size_t{1} : size_t{0}};
}

}  // namespace mirage
