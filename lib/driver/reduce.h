// A plan at a reduced shape: the same structure, tiles, warps and pipelines over extents of a few tiles, so that emulation takes seconds. For the gate and its tests.
#pragma once
#include <optional>
#include <string>
#include "mirage/codegen/module.h"
#include "mirage/ir/program.h"
#include "mirage/plan/plan.h"

namespace mirage {

struct Reduced {
  std::optional<Program> program;   ///< none: `refusal` says why
  std::optional<Plan> plan;
  std::string refusal;
};

/// `full` is a plan of `program`. Split dimensions keep two blocks or more, loops as many iterations as their rings need to turn over, alignment its class modulo 64 elements. tails: every split
/// dimension that can gets a ragged tail, else tails are those of the full shape.
Reduced reduce_plan(const Program& program, const Plan& full, const Target& target, bool tails);

}  // namespace mirage
