// Plans as programs: what a strategy decided, in the language of schedules. Read only; emitters still read the plans.
#pragma once
#include <optional>
#include <string>

#include "mirage/plan/plan.h"
#include "mirage/schedule/program.h"

namespace mirage::schedule {

/// The program of a kernel's plan, or one sentence why the language has no program for it yet.
struct Described { std::optional<KernelProgram> program; std::string reason; };
Described describe(const KernelPlan&);

/// The text of all kernels of a plan, in launch order; a kernel without a program is named with the reason.
std::string print_schedules(const Plan&);

}  // namespace mirage::schedule
