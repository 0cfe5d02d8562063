// Which strategies' plans have programs.
#include "mirage/schedule/describe.h"

#include <fmt/format.h>

#include "mirage/plan/strategy.h"
#include "mirage/support/assert.h"
#include "schedule/writer.h"

namespace mirage::schedule {
namespace {

struct Describe {
  const KernelPlan& k;
  KernelProgram operator()(const std::shared_ptr<const BlockPlan>&) const { return describe_block(k); }
  KernelProgram operator()(const std::shared_ptr<const StreamPlan>&) const { return describe_stream(k); }
  KernelProgram operator()(const std::shared_ptr<const TilePlan>&) const { return describe_tile(k); }
  KernelProgram operator()(const std::shared_ptr<const AttendPlan>&) const { return describe_attend(k); }
  KernelProgram operator()(const std::shared_ptr<const CublasPlan>&) const { throw Undescribed{"cuBLASLt's kernels are its own"}; }
  KernelProgram operator()(const std::shared_ptr<const RegionPlan>&) const {
    throw Undescribed{"index arithmetic over values of the kernel level, no block graph"};
  }
};

}  // namespace

Described describe(const KernelPlan& k, const Target& target) {
  try {
    KernelProgram p = std::visit(Describe{k}, k.body);
    if (const auto broken = check_laws(p, target)) return {std::nullopt, *broken};
    return {std::move(p), ""};
  } catch (const Undescribed& u) {
    return {std::nullopt, u.why};
  }
}

KernelProgram program_of(const KernelPlan& k) {
  try {
    return std::visit(Describe{k}, k.body);
  } catch (const Undescribed& u) {
    MIRAGE_ASSERT(false) << k.name << " has no program: " << u.why;
    throw;
  }
}

std::string schedule_text(const KernelPlan& k, const Target& target) {
  const Described d = describe(k, target);
  return d.program ? print(*d.program) : fmt::format("# kernel {}: no schedule yet ({})\n", k.name, d.reason);
}

}  // namespace mirage::schedule
