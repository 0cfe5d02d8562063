// The gate before a candidate may win: its emitted kernels are run on the CPU at reduced shapes of its plan (driver/gate/reduce,
// lib/emulate) and must make what the muGraph says.
#pragma once
#include <string>
#include "mirage/ir/program.h"
#include "mirage/ir/target.h"
#include "mirage/plan/plan.h"

namespace mirage {

struct GateResult {
  enum class Kind : uint8_t { kPassed, kFailed, kNotRun } kind = Kind::kNotRun;
  std::string text;     ///< what was run; what is wrong; why it was not run
  bool earlier = false; ///< it passed in an earlier run, of which the cache knows
};

/// `compiler`: find_host_compiler(). Libraries are kept in emulation_cache() by the hash of their text. `jobs`: threads; the result does
/// not depend on it.
GateResult emulation_gate(const Program&, const Plan&, const Target&, const std::string& compiler, uint64_t seed, int jobs = 1);

/// Why a shape is not emulated as it is: not reduced, or with dimensions that keep their extents, it may be any size. Empty: it is.
/// `most_flops`: of one run; 0: the most that any run may have.
std::string too_large_to_emulate(const Program&, const Plan&, double most_flops = 0);

/// A text that two plans share only if they are the same kernels of the same graph, so that what one passed holds for the other.
/// print(Plan) leaves out what steps compute.
std::string gate_key(const Program&, const Plan&, const Target&);

/// $MIRAGE_CACHE, or mirage-opt below $XDG_CACHE_HOME or ~/.cache, made if need be, or a folder of our own in it where others may write it;
/// below the temporary one if none can be written. Nobody else may write what it names. "": there is none.
std::string emulation_cache();

}  // namespace mirage
