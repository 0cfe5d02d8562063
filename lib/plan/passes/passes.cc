// Names of passes, and a plan's passes once more, step by step: for --print-after and for the comparison of each step with the one before
// it (driver/proof/pass_steps.cc).
#include "mirage/plan/passes.h"

#include <algorithm>

#include "mirage/plan/block.h"
#include "plan/passes/contiguous.h"
#include "plan/passes/hoist.h"
#include "plan/passes/narrow.h"
#include "plan/passes/rewrites.h"

namespace mirage {

const std::vector<PassInfo>& pass_table() {
  static const std::vector<PassInfo> kTable = {
#define MIRAGE_PASS(id, name, help) {#name, help},
#include "mirage/plan/passes.def"
  };
  return kTable;
}

std::optional<Pass> find_pass(const std::string& name) {
  for (size_t i = 0; i < pass_table().size(); i++)
    if (pass_table()[i].name == name) return static_cast<Pass>(i);
  return std::nullopt;
}

Target without(Target t, Pass p) {
  t.without_passes |= 1u << static_cast<unsigned>(p);
  return t;
}

Target without_passes(Target t) {
  t.without_passes = (1u << static_cast<unsigned>(Pass::kNumPasses)) - 1;
  return t;
}

std::optional<Graph> rewrite(Pass p, const Graph& g, const Program& program) {
  switch (p) {
    case Pass::kOrder: return order_operands(program, g);
    case Pass::kGains: return move_gains(g);
    case Pass::kHoist: return hoist_operands(g);
    case Pass::kNorms: return hoist_operands(g, true);
    case Pass::kNarrow: return narrow_operands(g, contract_rule(program));
    case Pass::kSums: return with_separate_sums(g);
    default: return std::nullopt;
  }
}

bool changes_dimensions(Pass p) { return p == Pass::kDivide || p == Pass::kShort; }

std::optional<Graph> rewrite_matmuls(std::span<const Pass> passes, const Graph& g, const Target& target) {
  if (passes.empty()) return std::nullopt;
  switch (passes.front()) {
    case Pass::kDivide: return divide_products(g, target);
    case Pass::kDots: return dot_products(g);
    case Pass::kShort: return short_products(g);
    default: return std::nullopt;
  }
}

std::optional<Graph> with_separate_sums(const Graph& g) {
  bool changed = false;
  Builder b(g.level());
  for (const Node& n : g.nodes()) {   // every node has the values that it had
    if (const auto* in = std::get_if<Input>(&n.op)) b.add_input(in->param, g.type(n.first_value), in->part);
    else if (const auto* call = std::get_if<Call>(&n.op)) {
      Graph body = separate_sums(*call->body);
      changed = changed || !(body == *call->body);
      b.add(Call{std::make_shared<const Graph>(std::move(body))}, n.operands);
    } else {
      b.add(n.op, n.operands);
    }
  }
  return changed ? std::optional(std::move(b).finish()) : std::nullopt;
}

std::vector<PassStep> pass_steps(const Program& program, const Graph& graph, const Target& target, const Plan& plan) {
  std::vector<PassStep> out;
  const Graph& given = plan.kept ? *plan.kept : graph;
  const std::optional<Graph> divided = rewrite_matmuls(plan.passes, given, target);
  const Graph& from = divided ? *divided : given;
  CallPlans known;
  Graph g = lower_matmuls(from, target, contract_rule(program), known);
  const auto step = [&](const std::string& name, std::optional<Graph> next) {
    if (!next) return;
    g = std::move(*next);
    out.push_back({name, g});
  };
  if (divided) out.push_back({pass_table()[static_cast<size_t>(plan.passes.front())].name, *divided});
  if (!(g == from)) out.push_back({"lower", g});
  for (Pass p : plan.passes) step(pass_table()[static_cast<size_t>(p)].name, rewrite(p, g, program));
  if (is_on(Pass::kSums, target)) step("sums", with_separate_sums(g));
  return out;
}

}  // namespace mirage
