// certificate.json: what supports the equivalence of the emitted graph with the spec, complete enough to be tested again from the spec
// alone.
#pragma once
#include <string>
#include <vector>
#include <nlohmann/json_fwd.hpp>
#include "driver/decide/candidates.h"
#include "driver/pieces/partition.h"
#include "mirage/driver/compile.h"

namespace mirage {

inline constexpr int kCertificateVersion = 2;

/// What was decided, and what supports it. The graph is over the inputs and outputs of the spec (Folded::unfold); structures, numbers,
/// claims and pieces are of the folded program, which whoever checks makes again from the spec. Neither structure nor pieces: the
/// straightforward library, whose graph is the program's own.
struct Certified {
  const Structure* structure = nullptr;
  std::vector<CallNumbers> numbers;
  const std::vector<Replaced>* pieces = nullptr;   ///< by their values in the program's graph
  const Graph& graph;
  const std::vector<Claim>& claims;                ///< at small sizes
  const Verdict& support;                          ///< at the program's own size
  std::vector<std::string> divisions;              ///< of the kernels (division_text), where measuring found others faster than the model's
  std::vector<std::string> gates;                  ///< what the emitted kernels passed, one sentence each
};
std::string write_certificate(const Program&, const Options&, const Certified&);
/// The certificate of files among which are binaries: with what they were built.
std::string with_compiler(const std::string& certificate, const std::string& compiler);

/// What is said of a certificate or lock that cannot be used: kCertificate, at the file.
Diagnostic broken_certificate(const std::string& file, const std::string& text);

/// What a certificate decides, as read: the graphs parse and obey the laws. All else in it follows from this and is compared, not read
/// (first_difference).
struct CertificateFile {
  uint64_t program_hash = 0;
  Options options;                         ///< those that change the result
  bool is_searched = false;
  bool is_partitioned = false;
  std::vector<Replaced> pieces;            ///< is_partitioned; their graphs are not kept
  Structure structure;
  std::vector<CallNumbers> numbers;
  std::vector<std::string> divisions;
  Graph graph;
  std::vector<std::string> gates;          ///< as recorded
  std::string built_with;                  ///< "": no binaries
};
/// Errors: kCertificate (not JSON, a missing part, another version, a graph that does not parse).
Result<CertificateFile> read_certificate(const Source&);

/// Target and options of a certificate's JSON. Errors: kCertificate.
Result<Options> certificate_options(const nlohmann::ordered_json&, const std::string& file);

/// The first field of a certificate that is another one in `fresh`, which was written anew from the same decision: "/claims/0/evidence/p";
/// "": none is. Gates and the compiler are not compared.
std::string first_difference(const std::string& recorded, const std::string& fresh, const std::string& file);

}  // namespace mirage
