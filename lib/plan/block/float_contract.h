// How threads share a contraction on the float32 units, and what that takes: the twin of runtime/30_contract.cuh's FloatContract.
#pragma once
#include <cstdint>

namespace mirage {

/// rows x columns results (per batch) of `inner` terms. along: lines of that operand run along the contraction; wide: its elements are
/// float32.
struct FloatWork {
  int64_t batches = 1, rows = 1, columns = 1;
  bool x_along = true, y_along = false, x_wide = true, y_wide = true;
};

struct FloatDivision {
  int tj = 32;             ///< threads along the columns, a power of two
  int64_t each = 0;        ///< results of one thread
  double clocks = 0;       ///< of a multiprocessor, per term of the contraction, for the whole team, where enough warps hide latency
};

/// Results a thread may hold where blocks of at most 256 threads have a multiprocessor's registers to themselves, and above which they do.
constexpr int64_t kWideResults = 128, kNarrowResults = 80;

/// The division over `team` threads (a multiple of 32) that takes the fewest clocks with at most `registers` results a thread; each == 0:
/// there is none.
FloatDivision divide_float_contract(const FloatWork& w, int team, int64_t registers);

/// A product by itself of `inner` terms: `teams` of threads / teams threads divide them, and put their sums beside each other.
struct FloatTeams { FloatDivision division; int teams = 1; };
FloatTeams divide_float_terms(const FloatWork& w, int64_t inner, int threads, int64_t registers);

/// divide_float_contract for a given tj.
FloatDivision float_division(const FloatWork& w, int team, int tj);

}  // namespace mirage
