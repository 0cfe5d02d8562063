// The last step of compile(): builds the emitted module, and writes it with report, certificate and graph into the output folder.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "driver/toolchain/build.h"
#include "driver/decide/decide.h"
#include "driver/report/report.h"
#include "mirage/codegen/module.h"
#include "mirage/support/file.h"

namespace mirage {

/// What has been decided, for whoever writes it down.
struct ResultFacts {
  const Target& target;
  const Folding& folding;
  const Found& found;
  const Choices& choices;
  const Decision& decision;
  const Plan& straightforward;
  const Measured& measured;
  const CudaModule& module;
  const Remembered* remembered = nullptr;   ///< of a decision that was recalled
};

/// What there is to say of one program's result.
struct Told {
  std::string report, timed_report, certificate, explanation, steps, graph, plan, figure;
  ReportPart part() const { return {report, graph, plan, figure}; }
};   // timed_report: the same with times and measurements
/// not_done: notes for the user; warnings: of the run; measured: the check program's JSON.
Told tell_of(const Options& o, const ResultFacts& facts, const Built& built, const std::vector<std::string>& not_done,
             const Diagnostics& warnings, const Trace& trace, const std::string& measured);

/// For the user: which result an interrupted run has written. files: their number.
std::string what_was_written(const Decision& d, const Options& o, size_t files, bool has_library);

/// The last step: puts the texts of `r` into the folder, beside what was built there, and commits. Files of others are left alone.
/// interrupted(whether there is a library): what to say if the run was interrupted.
CompileResult write_files(CompileResult r, const Options& o, const Source& source, const CudaModule& module, const Built& built,
                          OutputFolder& folder, const Listener& listener,
                          const std::function<std::string(size_t files, bool has_library)>& interrupted);

/// Builds, reports, certifies and writes. r: what is known of the run so far; not_done: notes for the user; folder: none, and nothing is
/// built or written.
CompileResult write_result(CompileResult r, const Options& o, const Source& source, const ResultFacts& facts,
                           std::vector<std::string> not_done, std::optional<OutputFolder>& folder, Trace& trace, const Listener& listener);

/// The best so far, for a run that must end now.
struct BestSoFar {
  const Found& found;
  const Choices& choices;
  Decision decision;
};
/// Writes it as write_result() does, into a staging folder of its own; without compiling, as the listener is interrupted.
CompileResult write_best(const Options& o, const Source& source, const Target& target, const Folding& folding, const Plan& straightforward,
                         const BestSoFar& best, const Listener& listener);

/// r with these diagnostics, the exit code of the worst error among them and a report of the failure.
CompileResult failed(const Diagnostics& all, CompileResult r);

}  // namespace mirage
