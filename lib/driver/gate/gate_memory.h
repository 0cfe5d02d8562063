// Gates that kernels have passed, in the folder of --cache: the same kernels of the same program need not be emulated again by the same
// build of this tool. Only what passed is kept, with what was run; what failed or could not run is tried again.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include "driver/gate/gate.h"
#include "mirage/support/options.h"

namespace mirage {

/// Everything that a verdict rests on, as a key of the cache: program, plan, kernels' texts, draws, compiler, and this build of the tool.
/// "": nothing is kept (no cache, or a build that cannot be told).
std::string gate_memory_key(const Program&, const Plan&, const Target&, const std::string& compiler, uint64_t seed, const Options&);
/// What passed under the key; only from a file that is ours and that nobody else may write: nothing else checks it.
std::optional<GateResult> passed_before(const Options&, const std::string& key);
/// Keeps it where it passed.
void keep_passed(const Options&, const std::string& key, const GateResult&);

}  // namespace mirage
