// What the rewrites of a plan left, step by step: shown where it is asked for, and each compared with the one before it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "mirage/plan/passes.h"
#include "mirage/support/trace.h"

namespace mirage {

/// Products "pass:NAME" of the plan that was made of `graph`, in order.
void show_passes(const Program&, const Graph& graph, const Plan&, const Target&, uint64_t seed, Trace&);

/// What is wrong with a step, behind the graph before it: a broken law, or in checked builds another function (as far as a proof, small
/// graphs and sampled elements tell); nullopt: nothing is known to be.
std::optional<std::string> broken_step(const Graph& before, const PassStep&, uint64_t seed);

}  // namespace mirage
