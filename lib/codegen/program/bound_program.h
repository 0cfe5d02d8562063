// A kernel's program with the types that its tensors have in memory: where emitters begin (docs/schedule.md).
#pragma once
#include "mirage/plan/bound.h"
#include "mirage/plan/describe.h"

namespace mirage::schedule {

/// A number that 16 bits hold exactly is a real one to the graph, and lies in 16 bits.
KernelProgram stored_program(const KernelPlan&);

}  // namespace mirage::schedule
