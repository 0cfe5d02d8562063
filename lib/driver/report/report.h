// What a compilation tells about itself: report.json, report.html, the funnel for --explain. Pure functions of what the stages made; times
// and measurements only where asked for.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>
#include "driver/proof/algebra_steps.h"
#include "driver/decide/candidates.h"
#include "driver/measure/measure.h"
#include "driver/decide/numbers.h"
#include "driver/pieces/partition.h"
#include "driver/evidence/remembered.h"
#include "mirage/codegen/module.h"
#include "mirage/driver/compile.h"

namespace mirage {

inline constexpr int kReportVersion = 1;

/// What the compiler said of one kernel.
struct KernelFacts { int registers = 0; int64_t spill_bytes = 0; int64_t smem_bytes = 0; };

/// Everything that a report speaks of. References live as long as the compilation.
struct ReportData {
  const Program& program;
  const Target& target;
  const Options& options;
  const SearchReport& search;
  const std::vector<Candidate>& candidates;
  const Choices& choices;
  const std::map<size_t, std::string>& refused;      ///< per candidate: why it was not used although it is predicted to be faster
  const Choice* chosen = nullptr;                    ///< nullptr: the straightforward library
  const std::vector<Claim>& claims;                  ///< of what is emitted
  const Verdict& support;                            ///< of what is emitted, at the sizes of the program
  const std::vector<std::string>& gates;             ///< what its kernels passed
  const Plan& plan;                                  ///< of what is emitted
  double straightforward_us = 0;
  size_t straightforward_kernels = 0;
  std::string why;                                   ///< why this result and no other, one sentence
  const CudaModule& module;
  std::map<std::string, KernelFacts> facts;          ///< by kernel name; empty: not compiled
  std::vector<std::string> not_done;                 ///< what was not done, and why
  const Diagnostics& warnings;
  const Partitioned* partition = nullptr;              ///< not nullptr: the program was cut into pieces, or it was tried
  const std::vector<AlgebraStep>& steps;               ///< from the program to the result; may be empty
  const Remembered* remembered = nullptr;              ///< not nullptr: the decision was recalled
  const Measurement* measurement = nullptr;            ///< not nullptr: plans were timed on the device
  const Plan* without_passes = nullptr;                ///< of a straightforward result: its plan if no pass joins or rewrites operators
};

/// `trace` and `measured` (the check program's JSON) add what is not deterministic: for --report only.
std::string report_json(const ReportData&, const Trace* trace = nullptr, const std::string& measured = "");
/// What report.html says of one program: its report.json, the muGraph and the plan as text, the muGraph as a picture
/// (driver/report/figures.h).
struct ReportPart { std::string report, graph, plan, figure; };
/// One page for a program, or for all points of a library; whole: report.json.
std::string report_html(const std::string& whole, const std::vector<ReportPart>& parts);
/// index.html of a corpus: one row per report (report.json, or a failure's), sortable; folders: where each one's files are, relative to the
/// page.
std::string corpus_html(const std::vector<std::string>& reports, const std::vector<std::string>& folders);
std::string explain_search(const SearchReport&);
std::string explain_winner(const ReportData&);         ///< how early the search came to what won; empty if nothing that it found did
std::string explain_support(const ReportData&);        ///< what supports the result: proof, bounds, what the kernels passed, one a line
std::string explain_partition(const Partitioned&);     ///< the pieces of the cheapest cut, one a line
/// The report of a spec that has no result.
std::string failure_report(const std::string& name, ExitCode, const Diagnostics&);

/// What --alternatives wrote, in order: (what, predicted microseconds).
std::string alternatives_list(const std::string& name, const std::vector<std::pair<std::string, double>>& rows);
std::string spec_id(const Program&);                 ///< 16 hex digits: hash of the canonical text
std::string numbers_text(const std::vector<CallNumbers>&);   ///< "grid tiles 16x64, loop tile 128"

}  // namespace mirage
