// Kernels of a plan as programs of their own: what they read comes in, what they store goes out. The gate emulates long plans so, kernel by
// kernel: each at a shape that it needs, equal ones once (driver/gate/gate.cc).
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>
#include "mirage/codegen/module.h"
#include "mirage/ir/program.h"
#include "mirage/plan/plan.h"

namespace mirage {

/// One kernel of a plan, or several that compute one value in turns (halves of a split reduction).
struct PlanPart {
  std::vector<size_t> kernels;
  std::vector<NodeId> inside;                          ///< nodes of the plan's graph that lead from the leaves to the results, ascending
  std::vector<ValueId> leaves, results;                ///< of the plan's graph
  std::vector<int> leaf_buffers, result_buffers;       ///< of the plan
  /// types of inputs that nobody reads: they come first and say what the whole program's 16-bit types are (ir/contraction.h)
  std::vector<DType> first;
  std::string refusal;                                 ///< not empty: it cannot be a program of its own (why)
};
std::vector<PlanPart> parts_of(const Program&, const Plan&, const std::vector<KernelText>& kernels);
/// These kernels, which follow one another, as one part.
PlanPart part_of(const Program&, const Plan&, const std::vector<KernelText>& kernels, std::vector<size_t> which);

/// The part's graph over the values of `g`, which has the nodes of the plan's graph at the same or at other extents. nodes: if not null,
/// the new number of each node of g, -1: not in it.
Graph part_graph(const Graph& g, const Plan&, const PlanPart&, std::vector<NodeId>* nodes = nullptr);

/// A kernel graph with what its calls compute in their place, whatever their tiles; nullopt where that depends on them.
std::optional<Graph> without_calls(const Graph& g);

/// The part as a program at its own size, with part_graph(plan.graph), and as the plan of that which has the plan's kernels: what
/// replan_part takes as a model.
std::pair<Program, Plan> part_program(const Program&, const Plan&, const PlanPart&);

/// Why the kernels of `own`, the part planned alone at its own size, are not those of the plan: another text, or other buffers as
/// arguments. Empty: they are the same.
std::string part_differs(const Plan& plan, const PlanPart&, const std::vector<KernelText>& kernels, const Plan& own, const Target&);

/// Equal for parts that are the same kernels of the same graph.
std::string part_key(const Program&, const Plan&, const PlanPart&, const std::vector<KernelText>& kernels);

/// Why what a kernel reads of the workspace is not what was stored there for it: not written yet, or overwritten since. Empty: all of it
/// is.
std::string misplaced(const Plan&, const std::vector<KernelText>& kernels);

}  // namespace mirage
