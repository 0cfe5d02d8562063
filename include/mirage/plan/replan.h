// Plans a graph as another instance of it was planned: the same kernels over other extents. For emulation at reduced shapes
// (driver/gate/reduce): what is emulated is the kernel that ships.
#pragma once
#include "mirage/plan/plan.h"

namespace mirage {

/// `model` is a plan of `program`; `small_graph` has the nodes of model.graph over the extents of `small`. The plan has the model's
/// kernels, one for one: regions with the same values, loops, vectors and threads, calls by the same strategy with the same tiles, warps,
/// stages and clusters. A reason where these numbers do not fit the extents (fewer chunks than warps, ...).
Planned replan(const Program& program, const Plan& model, const Program& small, const Graph& small_graph, const Target& target);

/// The same for kernels of a plan that were taken out of it (driver/gate/plan_parts.h). `own`: what they are as a plan of `program` alone;
/// whether these are the model's kernels the caller has to see.
Planned replan_part(const Program& program, const Plan& model, const Program& small, const Graph& small_graph, const Target& target,
                    std::optional<Plan>& own);

}  // namespace mirage
