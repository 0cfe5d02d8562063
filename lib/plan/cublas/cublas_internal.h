// What the files of the planner of cuBLASLt's products share.
#pragma once
#include <optional>
#include <string>

#include "mirage/plan/cublas.h"
#include "mirage/plan/strategy.h"

namespace mirage {

/// The call for a body that is nothing but a product; nullopt with a reason otherwise. Its cost is not known yet.
std::optional<CublasPlan> cublas_plan(const Work& work, std::string& reason);

inline KernelBody told(std::shared_ptr<const CublasPlan> plan) { return plan; }

/// The cost model (plan/cublas/cublas_cost.cc).
Cost estimate(const CublasPlan& plan, const Target& target);

}  // namespace mirage
