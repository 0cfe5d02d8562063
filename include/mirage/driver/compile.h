// compile(): a spec in, a folder with the best verified library out. The whole flow (OSDI'25 figure 1) in one function; the last stage that cmd/ knows.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <vector>
#include "mirage/ir/target.h"
#include "mirage/spec/spec.h"
#include "mirage/support/options.h"
#include "mirage/support/result.h"
#include "mirage/support/trace.h"

namespace mirage {

struct CompileResult;
struct Listener;
/// Writes sources and report of what is best so far into the output folder; nothing is compiled. For another thread, while compile() works or hangs.
using WriteBest = std::function<CompileResult(const Listener&)>;

/// What compile() tells while it works. Every function may be empty; `interrupted` may be null.
struct Listener {
  std::function<void(const std::string&)> progress;   ///< a phase has ended: one line
  std::function<void(const std::string&)> live;       ///< where the phase is
  std::function<void(const std::string&)> print;      ///< --print-after
  const std::atomic<bool>* interrupted = nullptr;     ///< set from a signal handler: end soon with the best so far
  std::function<void(WriteBest)> best;                ///< there is a better result than before: the way to write it, good until compile() returns
  std::function<void()> before_writing;               ///< the output folder is about to change: returns if compile() is the one to do it, does not return if another thread is
};

struct CompileResult {
  ExitCode exit = ExitCode::kOk;
  std::string name;                          ///< the program's name; "" if it could not be read
  Diagnostics diagnostics;                   ///< errors and warnings, places in the source given
  std::vector<std::string> notes;            ///< what was not done, and why
  std::string summary;                       ///< one line: what was found and what it costs
  std::string explanation;                   ///< --explain: the search funnel as a table
  std::map<std::string, std::string> files;  ///< texts by name; what was written if options.output is not empty
  std::string certificate;                   ///< what supports the result, without the hash of a source
  std::vector<std::string> certificates;     ///< of a library for several programs: each one's
  std::string report;                        ///< report.json as written
  std::string timed_report;                  ///< --report: the same with times and measurements
  std::string interrupted;                   ///< what a run that was interrupted has written; "": it was not
};

/// Reads, searches, verifies, chooses numbers, emits, builds and writes into options.output (nothing is written if it is empty). The straightforward library is always a result, and what is
/// written is never worse than it by the cost model. options.target may be "native". Errors are in `diagnostics`, `exit` is the process's exit code for this spec.
CompileResult compile(const Options& options, const Source& source, Trace& trace, const Listener& listener = {});

/// The target of that name on the machine that it stands for; "native": this machine's GPU, of which the NVIDIA driver is asked. Errors: kUnknownTarget (with a suggestion).
Result<Target> resolve_target(const std::string& name);
/// What options.target, machine and disable_pass ask for together. Errors: kUnknownTarget, and kUsage for a pass that there is not.
Result<Target> resolve_target(const Options&);

/// kOk if `emit` has only known names, else a kUsage diagnostic with a suggestion. Names of files by kind: emitted_kinds().
Diagnostics check_emit_list(const std::vector<std::string>& emit);
const std::vector<std::string>& emitted_kinds();
const std::vector<std::string>& stage_names();          ///< the stages of a compilation
const std::vector<std::string>& printed_stages();       ///< what --print-after knows: stages, and pass:NAME for what a rewrite of the plan left

/// What --baseline says of new reports: kSlower per result that is over 1 % slower than the one of its name in the earlier report (predicted, or measured where both are), kBaseline if that is no report.
Diagnostics compare_with_baseline(const Source& baseline, const std::vector<std::string>& reports);
/// --junit: one test case per result; a result with an error is a failure with its words.
std::string junit_xml(const std::vector<CompileResult>&);

/// The worse of two exit codes, for several specs in one run.
ExitCode more_severe(ExitCode, ExitCode);

}  // namespace mirage
