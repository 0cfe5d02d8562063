// The modes of the command line that are not a compilation: each takes texts and returns what to print and the exit code. Called by cmd/
// only.
#pragma once
#include <string>
#include <vector>
#include "mirage/driver/compile.h"

namespace mirage {

/// What a mode leaves: `text` goes to standard output.
struct ModeResult {
  ExitCode exit = ExitCode::kOk;
  std::string text;
  Diagnostics diagnostics;
};

ModeResult check_spec(const Source&, const Options& = {});                                                             ///< --check
ModeResult canonicalize_spec(const Source&, const Options& = {});                                                      ///< --canonicalize
/// --verify: specs or text graphs of equal input and result types
ModeResult verify_two(const Source& a, const Source& b, const Options&);
/// --check-certificate: verdict again, from the spec and the graph in the certificate
ModeResult check_certificate(const Source& certificate, const std::vector<Source>& specs, const Options&);
ModeResult run_stage(const std::string& stage, const Source&, const Options&, const Listener&);   ///< --run=STAGE
/// --why-not: exit kOk if the graph is in the search space, else kNothingFound
ModeResult why_not_graph(const Source& graph, const std::vector<Source>& specs, const Options&, const Listener&);
ModeResult print_targets();                                                                       ///< --list-targets
std::vector<std::string> target_names();                                                          ///< without "native"
std::vector<std::string> machine_names();                                                         ///< as --machine has them
/// --print-name: what CudaModule::name will be
ModeResult print_result_name(const Source&, const Options& = {});
Result<Source> einsum_source(const std::string& line);                                            ///< --einsum as a spec
ModeResult explain_error(const std::string& code);                                                ///< --explain-error
/// the name the result will have; "" if the spec is invalid
std::string program_name(const Source&, const Options& = {});
std::string spec_operators(bool as_json);                                                         ///< --list-ops, --list-ops=json
std::string spec_schema();                                                                        ///< --print-schema

}  // namespace mirage
