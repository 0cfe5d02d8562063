// Graph passes as functions. Private to lib/plan.
#pragma once
#include <optional>

#include "mirage/ir/contraction.h"
#include "mirage/plan/call_plans.h"
#include "mirage/plan/passes.h"

namespace mirage {

/// What a graph pass makes of a graph (kernel level, contractions are calls); nullopt: nothing to do, or a pass that is none of graphs.
std::optional<Graph> rewrite(Pass, const Graph&, const Program&);

/// What Pass::kDots makes of a graph whose matmuls are matmuls; nullopt: nothing to do.
std::optional<Graph> dot_products(const Graph&);
/// What Pass::kShort makes of it.
std::optional<Graph> short_products(const Graph&);

/// What Pass::kGains makes of a graph whose matmuls are calls; nullopt: nothing to do. gains.cc
std::optional<Graph> move_gains(const Graph&);

/// Every call's body as the strategies take it (separate_sums, mirage/plan/block.h).
std::optional<Graph> with_separate_sums(const Graph&);

/// Matmuls become calls of block graphs, very long concatenations some of concatenations. plan.cc
Graph lower_matmuls(const Graph&, const Target&, const ContractRule&, CallPlans& known);

}  // namespace mirage
