// The terminal's side of things, for cmd/ only: progress, notes and diagnostics on standard error through spdlog. Library code never
// prints.
#pragma once
#include <string>
#include "mirage/support/diagnostic.h"

namespace mirage {

/// quiet: no progress, no notes, no warnings. Colour and a live progress line only on a terminal without NO_COLOR and TERM=dumb.
void init_log(bool quiet);
void log_progress(const std::string& line);      ///< a finished phase: one line
void log_live(const std::string& line);          ///< where we are: replaces the last live line on a terminal, nothing elsewhere
void log_note(const std::string& text);
void log_text(const std::string& text);          ///< as it is, also with --quiet: what the user asked to see (--print-after, --stats)
void log_diagnostic(const Diagnostic&, const std::string& source);   ///< errors always, warnings and notes unless quiet

}  // namespace mirage
