// What is kept with a winner so that anybody can check the verdict again (docs/verification.md). Plain data: the driver writes and reads it as JSON.
#pragma once
#include <string>
#include <vector>
#include "mirage/verify/verify.h"

namespace mirage {

inline constexpr int kCertificateVersion = 1;

struct Certificate {
  int version = kCertificateVersion;
  uint64_t program_hash = 0;             ///< hash of Program::canonical
  std::string reference;                 ///< text form of the reference graph at the size tested
  std::string candidate;                 ///< text form of the candidate at the same size
  Evidence evidence;                     ///< primes, seed, trials, bound, reason, uninterpreted functions
  NumericReport numerics;
};
/// Fills a certificate from an Equal. Requires verdict.kind == kEqual.
Certificate make_certificate(const Program& program, const Graph& reference, const Graph& candidate, const Verdict& verdict, NumericReport numerics);

/// Runs the recorded trials again with the recorded primes and seed. Equal only if all pass and what the evidence claims (degree, bound, uninterpreted functions, is_lax) is what comes out, and trials
/// with fresh primes pass too; Unknown if the evidence is not valid (primes, trials, a claim that does not hold). The graphs need not obey the laws: that is checked first.
Verdict recheck(const Graph& reference, const Graph& candidate, const Evidence& evidence);

}  // namespace mirage
