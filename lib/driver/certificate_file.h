// certificate.json: what supports the equivalence of the emitted graph with the spec, complete enough to be tested again from the spec alone.
#pragma once
#include <string>
#include <vector>
#include "driver/candidates.h"
#include "mirage/driver/compile.h"

namespace mirage {

/// `structure` is nullptr for the straightforward library (its graph is the reference itself, and there are no claims).
std::string write_certificate(const Program&, const Structure* structure, const std::vector<CallNumbers>& numbers, const Graph& graph, const std::vector<Claim>& claims, const Proof& proof,
                              const std::vector<std::string>& gates = {});   ///< gates: what the emitted kernels passed, one sentence each

/// A certificate as read: the graphs parse and obey the laws.
struct CertificateFile {
  uint64_t program_hash = 0;
  bool is_searched = false;
  Structure structure;
  std::vector<CallNumbers> numbers;
  Graph graph;
  std::vector<Claim> claims;
  Proof proof;                                      ///< of the emitted graph at its own size, if there is one
};
/// Errors: kCertificate (not JSON, a missing part, another version, a graph that does not parse).
Result<CertificateFile> read_certificate(const Source&);

/// Everything again, from the program: its hash, that the emitted graph is this structure with these numbers, that every claim speaks of the program's witness and of the structure scaled down with the
/// same tails, and each recorded trial. Errors: kCertificate, kNotEqual.
Diagnostics check_certificate(const CertificateFile&, const Program&, const std::string& file);

}  // namespace mirage
