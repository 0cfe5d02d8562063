// make_plan: from a kernel-level graph to kernels in order and memory. MatMuls become calls, everything else regions (region.h); the Planner (planner.h) does the rest.
#include "mirage/plan/plan.h"

#include <algorithm>

#include "mirage/plan/block.h"
#include "plan/planner.h"
#include "plan/rewrites.h"

namespace mirage {
namespace {

/// A matmul as a call of a block graph. A grid has one axis for batches: several batch dimensions above 1 become one, by reshapes, and by repeating an operand that broadcasts along only some of them.
ValueId add_matmul(Builder& b, ValueId x, ValueId y, const Target& target, const ContractRule& rule) {
  const int rank = b.graph().dims(x).rank(), batches = rank - 2;
  Dims whole;
  int above = 0;
  bool all_one[2] = {true, true};
  for (int d = 0; d < batches; d++) {
    whole.push_back(std::max(b.graph().dims(x)[d], b.graph().dims(y)[d]));
    above += whole[d] > 1;
    all_one[0] &= b.graph().dims(x)[d] == 1;
    all_one[1] &= b.graph().dims(y)[d] == 1;
  }
  auto call = [&](ValueId u, ValueId v) { return b.add(Call{std::make_shared<const Graph>(lower_matmul(b.graph().type(u), b.graph().type(v), target, rule))}, {u, v}); };
  if (above <= 1) return call(x, y);
  auto flatten = [&](ValueId v, bool one) {
    for (int d = 0; d < batches && !one; d++)
      if (b.graph().dims(v)[d] != whole[d]) v = b.add(Repeat{d, whole[d]}, {v});
    const Dims dims = b.graph().dims(v);
    return b.add(Reshape{{one ? 1 : whole.elements(), dims[rank - 2], dims[rank - 1]}}, {v});
  };
  const ValueId u = flatten(x, all_one[0]), v = flatten(y, all_one[1]), z = call(u, v);
  Dims out = whole;
  out.push_back(b.graph().dims(z)[1]);
  out.push_back(b.graph().dims(z)[2]);
  return b.add(Reshape{out}, {z});
}

/// A concatenation of very many as one of concatenations, each in memory: a kernel has room for so many parameters, and compilers take more than their share of time and memory for one with thousands of branches.
constexpr size_t kMostJoined = 40;   ///< more than find_shared() leaves in one kernel

ValueId add_concat(Builder& b, const Concat& concat, std::vector<ValueId> operands) {
  while (operands.size() > kMostJoined) {
    std::vector<ValueId> joined;
    for (size_t at = 0; at < operands.size(); at += kMostJoined) {
      const std::vector<ValueId> some(operands.begin() + static_cast<std::ptrdiff_t>(at), operands.begin() + static_cast<std::ptrdiff_t>(std::min(at + kMostJoined, operands.size())));
      joined.push_back(some.size() == 1 ? some[0] : b.add(concat, some));
    }
    operands = std::move(joined);
  }
  return b.add(concat, std::move(operands));
}

}  // namespace

Graph lower_matmuls(const Graph& graph, const Target& target, const ContractRule& rule) {
  const Graph g = remove_dead(graph);
  Builder b(Level::kKernel);
  std::vector<ValueId> to(static_cast<size_t>(g.num_values()), -1);
  for (const Node& n : g.nodes()) {
    std::vector<ValueId> operands;
    for (ValueId o : n.operands) operands.push_back(to[static_cast<size_t>(o)]);
    ValueId first;
    if (auto* in = std::get_if<Input>(&n.op)) first = b.add_input(in->param, g.type(n.first_value), in->part);
    else if (std::holds_alternative<MatMul>(n.op)) first = add_matmul(b, operands[0], operands[1], target, rule);
    else if (auto* concat = std::get_if<Concat>(&n.op)) first = add_concat(b, *concat, operands);
    else first = b.add(n.op, operands);
    for (int i = 0; i < n.num_values; i++) to[static_cast<size_t>(n.first_value + i)] = first + i;
  }
  return std::move(b).finish();
}

namespace {

/// What a plan may take, predicted, of the time of one with fewer kernels, where rows are reduced by a kernel of their own; and none beside generic block kernels, for which the model is off by more: small programs were
/// measured fastest in one kernel (test/laws/small_programs.cc), and few rows before a weight stream within what the model is off by.
constexpr double kMoreKernels = 0.88;

bool generic(const Plan& p) {
  return std::any_of(p.kernels.begin(), p.kernels.end(), [](const KernelPlan& k) { return strategy_of(k).is_general; });
}

int64_t reductions(const Graph& g) {
  return std::count_if(g.nodes().begin(), g.nodes().end(), [](const Node& n) { return std::holds_alternative<Reduce>(n.op); });
}

}  // namespace

Planned Planner::run() {
  place_inputs();
  place_outputs();
  place_operands();
  find_reduces();
  find_shared();
  give_buffers();
  make_items();
  merge();
  for (bool changed = is_on(Pass::kInline, target_); changed;) {
    changed = false;
    for (ValueId v = 0; v < g_.num_values(); v++) changed = try_inline(v) || changed;
    if (changed) merge();
  }
  if (is_on(Pass::kSplit, target_)) split_reductions();
  return finish();
}

Planned plan_with_tape(const Program& program, const Graph& graph, const Target& target, Tape& tape, const Plan& model) { return Planner(program, remove_dead(graph), target, &tape, &model).run(); }

Planned make_plan(const Program& program, const Graph& graph, const Target& target) {
  const Graph calls = lower_matmuls(graph, target, contract_rule(program));
  Planned planned = Planner(program, calls, target).run();
  if (!target.has_tma || target.sm != 90) return planned;   // elsewhere operands are brought through registers in any case
  const ContractRule rule = contract_rule(program);
  const auto pass = [&](Pass p, const Graph& g) { return is_on(p, target) ? rewrite(p, g, rule) : std::nullopt; };
  const auto consider = [&](const Graph& g, bool new_kernels_must_pay, std::vector<Pass> passes) {
    Planned other = Planner(program, g, target).run();
    if (!other.plan) return;
    if (planned.plan && new_kernels_must_pay && other.plan->kernels.size() > planned.plan->kernels.size() && (generic(*other.plan) || other.plan->predicted_us > kMoreKernels * planned.plan->predicted_us)) return;
    if (planned.plan && other.plan->predicted_us >= planned.plan->predicted_us) return;
    planned = std::move(other);
    planned.plan->passes = std::move(passes);
  };
  const std::optional<Graph> hoisted = pass(Pass::kHoist, calls);
  const bool reduced = hoisted && reductions(*hoisted) > reductions(calls);
  const std::optional<Graph> narrow = pass(Pass::kNarrow, hoisted ? *hoisted : calls);
  if (hoisted && !(reduced && narrow)) consider(*hoisted, reduced, {Pass::kHoist});
  if (narrow) consider(*narrow, true, hoisted ? std::vector{Pass::kHoist, Pass::kNarrow} : std::vector{Pass::kNarrow});
  // A norm's squares leave with the operand, where they would be read again beside the ring.
  if (const std::optional<Graph> normed = hoisted ? pass(Pass::kNorms, calls) : std::nullopt) {
    consider(*normed, true, {Pass::kNorms});
    if (const std::optional<Graph> narrow_normed = pass(Pass::kNarrow, *normed)) consider(*narrow_normed, true, {Pass::kNorms, Pass::kNarrow});
  }
  return planned;
}

}  // namespace mirage
