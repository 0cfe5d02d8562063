// --run on the text of a schedule (docs/schedule.md): one kernel, as a person wrote or edited it.
#pragma once
#include "mirage/driver/modes.h"

namespace mirage {

/// Whether a text is a schedule and no graph: its first statement says how a tensor lies or what is counted.
bool is_schedule(const std::string& text);

/// The stage's product: "schedule" its text, "plan" its plan's tables, "emit" the library of this one kernel. Before that the schedule
/// obeys the laws, is proved equal to what its expressions say, and, before emit, passes the gate. Exit codes: kInvalidSpec for what cannot
/// be read, kUnsupported for a broken law or what no strategy runs so, kNotEqual, kCheckFailed for kernels that are wrong on the CPU.
ModeResult run_schedule(const std::string& stage, const Source&, const Options&);

/// --why-not: the law, limit or line that closes a schedule (exit kNothingFound), or where it stands among all divisions of its kernel by
/// predicted time.
ModeResult why_not_schedule(const Source&, const Options&);

}  // namespace mirage
