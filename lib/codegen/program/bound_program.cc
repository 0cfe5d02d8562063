// See the header.
#include "codegen/program/bound_program.h"

namespace mirage::schedule {

KernelProgram stored_program(const KernelPlan& k) {
  KernelProgram p = program_of(k);
  const std::span<const KernelCall> calls = bound_calls(k);
  const auto store = [](Param& x, const Access& a) { if (x.dtype == DType::kReal) x.dtype = a.dtype; };
  for (size_t i = 0; i < p.params.size(); i++) store(p.params[i], calls[0].operands[i]);
  for (size_t c = 0; c < p.beside.size(); c++)
    for (auto& [i, x] : p.beside[c].params) store(x, calls[c + 1].operands[static_cast<size_t>(i)]);
  return p;
}

}  // namespace mirage::schedule
