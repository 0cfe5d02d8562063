// What tile.cc hands on: tile kernels whose rows are wgmma's 64-row operand.
#pragma once
#include "mirage/codegen/module.h"
#include "mirage/plan/bound.h"
#include "mirage/schedule/program.h"

namespace mirage {

/// The kernel of a program whose one role copies and multiplies.
KernelText emit_turned_kernel(const KernelPlan&, const schedule::KernelProgram&, const schedule::Derived&, const KernelCall&);

}  // namespace mirage
