// emit_module: the figure of code generation. Every kernel of the plan becomes text through the emitter of its kind, then the module is assembled around them.
#include "mirage/codegen/module.h"
#include "codegen/module_parts.h"

namespace mirage {

CudaModule emit_module(const Program& program, const Plan& plan, const Target& target, const ModuleOptions& options) {
  std::vector<KernelText> kernels;
  for (const KernelPlan& k : plan.kernels) {
    const bool is_block = std::holds_alternative<std::shared_ptr<const BlockPlan>>(k.body);
    kernels.push_back(is_block ? emit_block_kernel(k, plan, target) : emit_region_kernel(k, plan, target));
  }
  return assemble_module(program, plan, target, options, std::move(kernels));
}

}  // namespace mirage
