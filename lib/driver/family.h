// A library that serves several programs: those of a spec at each combination of its var axes' values. Each is decided as one program is;
// what was searched for the hints is not searched again; the plans become one module.
#pragma once
#include <optional>

#include "driver/decide/decide_program.h"
#include "mirage/spec/spec.h"
#include "mirage/support/file.h"

namespace mirage {

/// The rest of compile() behind the reader, for a family of more than one program. Errors: as compile(), and kUsage for options that work
/// with one program only.
CompileResult compile_family(const Family& family, const DecideRun& run, const Source& source, std::optional<OutputFolder>& folder,
                             CompileResult result, Trace& trace, const Listener& listener);

}  // namespace mirage
