// What the files of the stream planner share.
#pragma once
#include "mirage/plan/stream.h"

namespace mirage {

/// The structure part of a plan (everything that does not depend on the division), or nullopt with one sentence why the graph is not of this kind.
std::optional<StreamPlan> match_stream(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results, const ContractRule& rule, std::string& reason);

/// warps and blocks of a cluster divide the reduction; stages: ring depth; chunk: elements of the reduction per copy; blocks_per_sm: promised to the compiler.
struct StreamChoice { int warps = 8, stages = 2, chunk = 64, cluster = 2, blocks_per_sm = 1; bool evict_first = true; };
/// Gives a matched plan its division and places in shared memory; false with a reason if it does not fit.
bool divide_stream(StreamPlan& plan, const StreamChoice& choice, const Target& target, std::string& reason);

/// The cost model (plan/stream_cost.cc): predicted microseconds of one launch, and why.
Cost estimate(const StreamPlan& plan, const Target& target);

}  // namespace mirage
