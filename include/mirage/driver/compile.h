// compile(): a spec in, a folder with the best verified library out. The whole flow (OSDI'25 figure 1) in one function; the last stage that
// cmd/ knows.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <optional>
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
/// Writes sources and report of what is best so far into the output folder; nothing is compiled. For another thread, while compile() works
/// or hangs.
using WriteBest = std::function<CompileResult(const Listener&)>;

/// What compile() tells while it works. Every function may be empty; `interrupted` may be null.
struct Listener {
  std::function<void(const std::string&)> progress;   ///< a phase has ended: one line
  std::function<void(const std::string&)> live;       ///< where the phase is
  std::function<void(const std::string&)> print;      ///< --print-after
  const std::atomic<bool>* interrupted = nullptr;     ///< set from a signal handler: end soon with the best so far
  /// there is a better result than before: the way to write it, good until compile() returns
  std::function<void(WriteBest)> best;
  /// the output folder is about to change: returns if compile() is the one to do it, does not return if another thread is
  std::function<void()> before_writing;
};

struct CompileResult {
  ExitCode exit = ExitCode::kOk;
  std::string name;                          ///< the program's name; "" if it could not be read
  Diagnostics diagnostics;                   ///< errors and warnings, places in the source given
  std::vector<std::string> notes;            ///< what was not done, and why
  std::string summary;                       ///< one line: what was found and what it costs
  std::string explanation;                   ///< --explain: the search funnel as a table
  std::map<std::string, std::string> files;  ///< texts by name; what was written if options.output is not empty
  std::string steps;                         ///< --explain-result: from the program to the result
  std::string certificate;                   ///< what supports the result, without the hash of a source
  std::vector<std::string> certificates;     ///< of a library for several programs: each one's
  std::string report;                        ///< report.json as written
  std::string timed_report;                  ///< --report: the same with times and measurements
  std::string interrupted;                   ///< what a run that was interrupted has written; "": it was not
};

/// Reads, searches, verifies, chooses numbers, emits, builds and writes into options.output (nothing is written if it is empty). The
/// straightforward library is always a result, and what is written is never worse than it by the cost model. options.target may be
/// "native". Errors are in `diagnostics`, `exit` is the process's exit code for this spec.
CompileResult compile(const Options& options, const Source& source, Trace& trace, const Listener& listener = {});

/// The target of that name on the machine that it stands for; "native": this machine's GPU, of which the NVIDIA driver is asked. Errors:
/// kUnknownTarget (with a suggestion).
Result<Target> resolve_target(const std::string& name);
/// What options.target, machine, disable_pass and disable_strategy ask for together. Errors: kUnknownTarget, and kUsage for a name that is
/// none.
Result<Target> resolve_target(const Options&);
/// The options with the target that their machine implies, where none was asked for.
Options with_implied_target(Options);

/// kOk if `emit` has only known names, else a kUsage diagnostic with a suggestion. Names of files by kind: emitted_kinds().
Diagnostics check_emit_list(const std::vector<std::string>& emit);
const std::vector<std::string>& emitted_kinds();
const std::vector<std::string>& stage_names();          ///< the stages of a compilation
/// what --print-after knows: stages, and pass:NAME for what a rewrite of the plan left
const std::vector<std::string>& printed_stages();

/// What became of one spec of a run, wherever it was compiled.
struct SpecOutcome {
  ExitCode exit = ExitCode::kOk;
  std::string name, folder;                  ///< folder: of its files, relative to the output folder: "attention/gqa"; one spec alone: ""
  std::string summary, errors;               ///< errors as they were printed
  std::string report, timed_report;          ///< report.json; what --report has of it
  double seconds = 0;
};

/// --report of a corpus: the reports in the order of their folders, with these and the seconds beside them.
std::string corpus_report(std::vector<SpecOutcome> outcomes);
/// --merge-reports: what corpus_report() wrote, of parts of a corpus, as one. Errors: kBaseline for what is no such report, kUsage where
/// two reports have a result for one folder.
Result<std::vector<SpecOutcome>> read_corpus_reports(const std::vector<Source>& reports);
/// index.html of a corpus, into the output folder; a file of that name that mirage-opt did not make is left alone. Errors: kFileUnwritable.
Diagnostics write_corpus_index(const std::string& folder, std::vector<SpecOutcome> outcomes);
/// The reports below a folder of earlier results as one baseline, folders relative to it. Errors: kFileMissing, kBaseline.
Result<Source> baseline_of_folder(const std::string& folder);
/// --baseline DIR with a GPU: the library of an earlier run and this one's, timed in turn. nullopt: it cannot be (no GPU, no nvcc, no such
/// library, another program), and predicted times are compared.
struct TimedAgainst { std::string text; bool is_slower = false; };
std::optional<TimedAgainst> time_against(const std::string& earlier_folder, const std::string& folder, const Options&,
                                         const std::atomic<bool>* interrupted);

/// Which part of a corpus a spec belongs to, 1 to parts: by its id, so that neither order nor paths matter; an invalid spec's by its text.
int shard_of(const Source&, const Options&, int parts);
/// The report.json of a complete result of this spec, version and options in `o.output`; nullopt: it is to be made. For --resume.
std::optional<std::string> finished_report(const Options& o, const Source&);

/// What --baseline says of new reports: kSlower per result that is over 1 % slower than the one of its name in the earlier report
/// (predicted, or measured where both are), kBaseline if that is no report.
Diagnostics compare_with_baseline(const Source& baseline, const std::vector<std::string>& reports);
/// --junit: one test case per spec with its time; an error, and a regression against the baseline (by name), is a failure with its words.
std::string junit_xml(const std::vector<SpecOutcome>&, const std::map<std::string, std::string>& regressions);
/// Reports by the names under which a baseline has them: the folder in a corpus, else the name.
std::map<std::string, std::string> slower_by_name(const Diagnostics& slower);

/// The worse of two exit codes, for several specs in one run.
ExitCode more_severe(ExitCode, ExitCode);

}  // namespace mirage
