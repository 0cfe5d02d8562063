// Verification (OSDI'25 section 5, docs/verification.md): is a graph the same function as the reference? The answer is never a bool.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include "mirage/ir/eval.h"
#include "mirage/ir/graph.h"
#include "mirage/ir/program.h"
#include "mirage/verify/proof.h"

namespace mirage {

/// What supports an Equal, so that it can be checked again.
struct Evidence {
  uint64_t p = 0, q = 0;             ///< primes, q | p-1
  int trials = 0;
  uint64_t seed = 0;                 ///< hash of both graphs and the user's seed
  int64_t degree = 0;                ///< bound on the total degree after clearing denominators, at the size tested; -1: not bounded
  double log2_bound = 0;             ///< log2 of the probability that unequal graphs pass all trials; 0: theory gives no bound
  std::string bound_reason;          ///< which theorem, or why none
  std::vector<std::string> uninterpreted;   ///< functions that were random keyed functions
  bool is_lax = false;
  /// asked for only where the trials leave it open, at the size tested; trials is 0 where it alone is what there is
  Proof proof;
  /// not empty: agreement of the trials settles nothing, because what they draw does not reach every case of a condition. Follows from the
  /// graphs; not kept in certificates
  std::string open;
};
struct Counterexample {
  std::string where;                 ///< "output 0 [3,17]"
  std::string left, right;           ///< the two values
  uint64_t seed = 0;                 ///< replays it
};
struct Verdict {
  enum class Kind : uint8_t { kEqual, kDifferent, kUnknown } kind = Kind::kUnknown;
  Evidence evidence;                 ///< kEqual
  Counterexample counterexample;     ///< kDifferent
  std::string reason;                ///< kUnknown
};
std::string to_string(const Verdict&);   ///< one line

/// How much fp64 looks at: kNone for graphs of which those that are chosen are compared again, kQuick for the many graphs that a search
/// compares, kThorough for a verdict that somebody will believe.
enum class Draws : uint8_t { kNone, kQuick, kThorough };

/// Random testing in Z_p x Z_q; a proof where that finds functions it does not know and real numbers agree. Both are kernel-level graphs
/// (calls allowed) with equal input and result types. At least so many trials; more where few more bring a bound of 2^-40 (not with kNone:
/// there Equal is what the fields say alone, which may invent laws of roots).
Verdict equal(const Graph& a, const Graph& b, uint64_t seed, int trials = 2, Draws draws = Draws::kQuick);

/// The verdict at the graphs' own size: a proof wins over everything; else trials whose draws cover the graphs' conditions; else Unknown,
/// with what was seen. Graphs that are too large to evaluate are compared at sampled elements, where agreement settles nothing and a
/// difference is a counterexample.
/// max_work: scalar operations of one evaluation of both, above which they are too large.
inline constexpr double kMaxEvaluationWork = 2e9;
Verdict settle(const Graph& a, const Graph& b, uint64_t seed, double max_work = kMaxEvaluationWork);

/// Agreement with fp64 when every stored value is rounded as the kernels do. One line per input distribution.
struct NumericCase {
  std::string distribution;
  double error = 0, baseline_error = 0;
  bool nan_agree = true, ok = true;
  bool overflows = false;   ///< node by node, a value is beyond the range of the type that it is kept in
};
struct NumericReport { bool ok = true; std::string reason; std::vector<NumericCase> cases; };
/// Evaluates `candidate` with float32 accumulation and stored values rounded, `reference` in fp64 and node by node in float32; drops a
/// candidate whose relative Frobenius error exceeds
/// 1.25 times the latter's (plus one output rounding). Node by node, values are rounded to what Program::kept says; where it says nothing,
/// each primitive's to the program's 16-bit type. The candidate's are, where it has them. reference: program.graph at other extents, value
/// by value. origin: of the candidate's values (ir/kept.h), or empty. Graphs as for equal(); sizes should be moderate (cost is that of
/// evaluation).
NumericReport check_numerics(const Graph& reference, const Graph& candidate, const Program& program, uint64_t seed,
                             std::span<const ValueId> origin = {});

}  // namespace mirage
