// Other plans of the same kernels: what --measure times and the ranking test compares. Stands beside make_plan, which keeps the cheapest by
// the cost model.
#pragma once
#include <vector>
#include "mirage/ir/contraction.h"
#include "mirage/plan/plan.h"

namespace mirage {

/// Every way that a strategy has to divide this kernel's block graph over the same operands and results, in the order of predicted time,
/// the kernel's own plan included where it is among the first `most`. A region has no alternatives: the result is the kernel itself. rule:
/// contract_rule of the program. Names, nodes and accesses are the kernel's.
std::vector<KernelPlan> kernel_alternatives(const KernelPlan&, const Target&, const ContractRule& rule, size_t most, bool only_own = false);

/// `plan` with one of its kernels divided in another way (of kernel_alternatives): predicted time and workspace follow.
Plan with_kernel(const Plan& plan, size_t kernel, const KernelPlan& other);

/// One line that tells plans of a kernel apart: "stream: 8 warps x 2 stages x 64, cluster 2, 1 per SM".
std::string division_text(const KernelPlan&);

}  // namespace mirage
