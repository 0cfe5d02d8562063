// A plan at a reduced shape: the same structure, tiles, warps and pipelines over extents of a few tiles, so that emulation takes seconds.
// For the gate and its tests.
#pragma once
#include <optional>
#include <string>
#include <memory>
#include "driver/gate/plan_parts.h"
#include "mirage/codegen/module.h"
#include "mirage/ir/program.h"
#include "mirage/plan/plan.h"

namespace mirage {

struct Reduced {
  std::optional<Program> program;   ///< none: `refusal` says why
  std::optional<Plan> plan;
  std::string refusal;
  std::string differs;              ///< not empty: the plan's numbers do not fit this shape (why), it was planned anew
};

/// `full` is a plan of `program`. The reduced plan has its kernels with their numbers (plan/replan.h). Split dimensions keep two blocks or
/// more, loops as many iterations as their rings need to turn over, alignment its class modulo 64 elements. kOwn: with the tails of the
/// full shape; kRagged: every split dimension that can gets a ragged tail; kRaggedEverywhere: those that are not split get one too, small
/// ones (rows) included.
enum class Tails : uint8_t { kOwn, kRagged, kRaggedEverywhere };
Reduced reduce_plan(const Program& program, const Plan& full, const Target& target, Tails tails);
inline Reduced reduce_plan(const Program& program, const Plan& full, const Target& target, bool tails) {
  return reduce_plan(program, full, target, tails ? Tails::kRagged : Tails::kOwn);
}

/// Parts of a plan (driver/gate/plan_parts.h) at reduced shapes, each at one of its own: what no kernel of the part splits or reads is as
/// small as it can be.
class PartReducer {
 public:
  PartReducer(const Program& program, const Plan& plan, const Target& target);
  ~PartReducer();
  /// Not empty: no part has a reduced shape (why).
  const std::string& refusal() const;
  /// `own`: the part planned alone at its own size (replan_part).
  Reduced reduce(const PlanPart&, Tails, std::optional<Plan>& own) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace mirage
