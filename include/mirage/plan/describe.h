// Plans as programs: what a strategy decided, in the language of schedules.
#pragma once
#include <optional>
#include <string>

#include "mirage/ir/contraction.h"
#include "mirage/plan/plan.h"
#include "mirage/schedule/program.h"

namespace mirage {

/// Of a kernel that has one, under no name; null: none.
const schedule::KernelProgram* program_in(const KernelPlan&);
const schedule::Derived* derived_in(const KernelPlan&);

}  // namespace mirage

namespace mirage::schedule {

/// The program of a kernel, where it obeys the laws, or one sentence why the language has none for it yet.
struct Described { std::optional<KernelProgram> program; std::string reason; };
Described describe(const KernelPlan&, const Target&);

/// The same of a kernel that is emitted from its program, whether or not its text could be read back.
KernelProgram program_of(const KernelPlan&);

/// The plan that a program describes: describe(*plan.plan) is the program, but for names. Its operands are in buffers of their own, those
/// of params first, in their order, then second parts, then those of results. Or why there is none: the law that the program breaks, what
/// strategies say to its numbers, or `line`, the first line of print(program) that the nearest strategy has otherwise, namely as `has`.
/// rule: what the program may say of its contractions, so that their units are these.
struct PlanOf { std::optional<KernelPlan> plan; std::string line, has, reason; ContractRule rule; };
PlanOf plan_of(const KernelProgram&, const Target&);

/// Its text, or a comment with the reason.
std::string schedule_text(const KernelPlan&, const Target&);

}  // namespace mirage::schedule
