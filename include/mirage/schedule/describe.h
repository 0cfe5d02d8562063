// Plans as programs: what a strategy decided, in the language of schedules. Read only; emitters still read the plans.
#pragma once
#include <optional>
#include <string>

#include "mirage/plan/plan.h"
#include "mirage/schedule/program.h"

namespace mirage::schedule {

/// The program of a kernel's plan, which obeys the laws, or one sentence why the language has none for it yet.
struct Described { std::optional<KernelProgram> program; std::string reason; };
Described describe(const KernelPlan&, const Target&);

/// Its text, or a comment with the reason.
std::string schedule_text(const KernelPlan&, const Target&);

}  // namespace mirage::schedule
