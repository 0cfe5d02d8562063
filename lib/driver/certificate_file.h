// certificate.json: what supports the equivalence of the emitted graph with the spec, complete enough to be tested again from the spec alone.
#pragma once
#include <string>
#include <vector>
#include "driver/candidates.h"
#include "driver/partition.h"
#include "mirage/driver/compile.h"

namespace mirage {

/// Graphs are over the inputs and outputs of the spec (Folded::unfold); structures, numbers, claims and pieces are of the folded program, which whoever checks makes again from the spec.
/// `structure` is nullptr for the straightforward library (its graph is the reference itself, and there are no claims).
std::string write_certificate(const Program&, const Structure* structure, const std::vector<CallNumbers>& numbers, const Graph& graph, const std::vector<Claim>& claims, const Proof& proof,
                              const std::vector<std::string>& gates = {});   ///< gates: what the emitted kernels passed, one sentence each

/// Of a program that was cut into pieces: its pieces by their nodes in the reference graph, their structures and numbers, and the claims of the whole.
std::string write_certificate(const Program&, const Stitched&, const std::vector<std::string>& gates = {});

/// The certificate with the hash of the source file that it was written with.
std::string with_source(const std::string& certificate, const std::string& file, const std::string& text);
/// Whether the source that the certificate names lies beside it unchanged. Errors: kCertificate. A file that is not there is no error: `text` of the answer says what was looked at.
struct SourceCheck { Diagnostics errors; std::string text; };
SourceCheck check_source(const Source& certificate);

/// What is said of a certificate or lock that cannot be used: kCertificate, at the file.
Diagnostic broken_certificate(const std::string& file, const std::string& text);

/// A certificate as read: the graphs parse and obey the laws.
struct CertificateFile {
  uint64_t program_hash = 0;
  bool is_searched = false;
  bool is_partitioned = false;
  std::vector<Replaced> pieces;            ///< is_partitioned; their graphs are not kept
  Structure structure;
  std::vector<CallNumbers> numbers;
  Graph graph;
  std::vector<Claim> claims;                        ///< without their rounding errors, which are
  std::vector<std::string> rounding;                ///< per claim, as recorded
  Proof proof;                                      ///< of the emitted graph at its own size, if there is one
};
/// Errors: kCertificate (not JSON, a missing part, another version, a graph that does not parse).
Result<CertificateFile> read_certificate(const Source&);

/// Everything again, from the program: its hash, that the emitted graph is this structure with these numbers, that every claim speaks of the program's witness and of the structure scaled down with the
/// same tails, and each recorded trial and rounding error. Errors: kCertificate, kNotEqual.
Diagnostics check_certificate(const CertificateFile&, const Program&, const std::string& file);

}  // namespace mirage
