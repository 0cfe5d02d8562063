// What tile.cc hands on: tile plans whose rows are wgmma's 64-row operand.
#pragma once
#include "mirage/codegen/module.h"
#include "mirage/plan/tile.h"

namespace mirage {

/// The kernel of a plan with `turned` columns.
KernelText emit_turned_kernel(const KernelPlan& kernel, const TilePlan& plan);

}  // namespace mirage
