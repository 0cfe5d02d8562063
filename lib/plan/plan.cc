// make_plan: from a kernel-level graph to kernels in order and memory. MatMuls become calls, everything else regions (region.h); the
// Planner (planner.h) does the rest.
#include "mirage/plan/plan.h"

#include <algorithm>

#include "mirage/ir/kept.h"
#include "mirage/plan/block.h"
#include "mirage/plan/region.h"
#include "mirage/plan/call_plans.h"
#include "plan/planner.h"
#include "plan/region/region_index.h"
#include "plan/passes/rewrites.h"

namespace mirage {
namespace {

Graph with_result_types(const Graph& body, const std::vector<DType>& types);

/// A matmul as a call of a block graph. A grid has one axis for batches: several batch dimensions above 1 become one, by reshapes, and by
/// repeating an operand that broadcasts along only some of them. How v will lie in memory, if what it is a view of lies row-major.
Dims likely_strides(const Graph& g, ValueId v) {
  const Dims plain = row_major_strides(g.dims(v));
  if (!is_view(g.def(v).op)) return plain;
  const ValueId x = g.def(v).operands[0];
  const Dims from = likely_strides(g, x);
  Dims out = plain;
  if (const auto* t = g.def_form<Transpose>(v)) {
    for (int d = 0; d < out.rank(); d++) out[d] = from[t->perm[static_cast<size_t>(d)]];
  } else if (const auto* s = g.def_form<Slice>(v)) {
    out = from;
    out[s->dim] *= s->step;
  } else {
    out = reshape_strides(g.dims(x), from, g.dims(v)).value_or(plain);
  }
  return out;
}

/// stored: the 16-bit type that the product is rounded to, or kReal.
ValueId add_matmul(Builder& b, ValueId x, ValueId y, DType stored, const Target& target, const ContractRule& rule, CallPlans& known) {
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
  auto call = [&](ValueId u, ValueId v) {
    const Dims strides[] = {likely_strides(b.graph(), u), likely_strides(b.graph(), v)};
    const Type types[] = {b.graph().type(u), b.graph().type(v)};
    std::shared_ptr<const Graph> body =
        known.product(types[0], types[1], strides, [&] { return lower_matmul(types[0], types[1], target, rule, strides); });
    if (is16(stored)) body = std::make_shared<const Graph>(with_result_types(*body, {stored}));
    return b.add(Call{std::move(body)}, {u, v});
  };
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

/// A concatenation of very many as one of concatenations, each in memory: a kernel has room for so many parameters, and compilers take more
/// than their share of time and memory for one with thousands of branches.
constexpr size_t kMostJoined = 40;   ///< more than find_shared() leaves in one kernel

ValueId add_concat(Builder& b, const Concat& concat, std::vector<ValueId> operands) {
  while (operands.size() > kMostJoined) {
    std::vector<ValueId> joined;
    for (size_t at = 0; at < operands.size(); at += kMostJoined) {
      const std::vector<ValueId> some(operands.begin() + static_cast<std::ptrdiff_t>(at),
                                      operands.begin() + static_cast<std::ptrdiff_t>(std::min(at + kMostJoined, operands.size())));
      joined.push_back(some.size() == 1 ? some[0] : b.add(concat, some));
    }
    operands = std::move(joined);
  }
  return b.add(concat, std::move(operands));
}

DType cast_type(const Node& n) {
  const auto* m = std::get_if<Map>(&n.op);
  return !m ? DType::kReal : m->fn == MapFn::kCastF16 ? DType::kF16 : m->fn == MapFn::kCastBF16 ? DType::kBF16 : DType::kReal;
}

/// The body whose results are rounded to these types as they are stored; kReal: as they were.
Graph with_result_types(const Graph& body, const std::vector<DType>& types) {
  Builder b(Level::kBlock, body.launch());
  for (const Node& n : body.nodes()) {   // the same nodes in the same order: ids stay
    if (const auto* in = std::get_if<Input>(&n.op)) { b.add_input(in->param, body.type(n.first_value), in->part); continue; }
    Op op = n.op;
    if (auto* out = std::get_if<Output>(&op); out && is16(types[static_cast<size_t>(out->result)]))
      out->dtype = types[static_cast<size_t>(out->result)];
    b.add(std::move(op), n.operands);
  }
  return std::move(b).finish();
}

/// What a product or call n of g makes that a cast alone reads is rounded as it is stored: the types of its results, kReal: exact.
std::vector<DType> cast_results(const Graph& g, const std::vector<std::vector<NodeId>>& users, const Node& n) {
  std::vector<DType> out;
  for (int i = 0; i < n.num_values; i++) {
    const auto& readers = users[static_cast<size_t>(n.first_value + i)];
    out.push_back(readers.size() == 1 && g.type(n.first_value + i).dtype == DType::kReal ? cast_type(g.node(readers[0])) : DType::kReal);
  }
  return out;
}

}  // namespace

Graph lower_matmuls(const Graph& graph, const Target& target, const ContractRule& rule, CallPlans& known) {
  const Graph g = remove_dead(graph);
  const auto users = g.users();
  Builder b(Level::kKernel);
  std::vector<ValueId> to(static_cast<size_t>(g.num_values()), -1);
  for (const Node& n : g.nodes()) {
    std::vector<ValueId> operands;
    for (ValueId o : n.operands) operands.push_back(to[static_cast<size_t>(o)]);
    ValueId first;
    if (auto* in = std::get_if<Input>(&n.op)) first = b.add_input(in->param, g.type(n.first_value), in->part);
    else if (std::holds_alternative<MatMul>(n.op))
      first = add_matmul(b, operands[0], operands[1], cast_results(g, users, n)[0], target, rule, known);
    else if (auto* call = std::get_if<Call>(&n.op)) {
      const std::vector<DType> types = cast_results(g, users, n);
      first =
          b.add(std::any_of(types.begin(), types.end(), is16) ? Call{std::make_shared<const Graph>(with_result_types(*call->body, types))}
                                                              : *call,
                operands);
    } else if (is16(cast_type(n)) && b.graph().type(operands[0]).dtype == cast_type(n)) first = operands[0];
    else if (auto* concat = std::get_if<Concat>(&n.op)) first = add_concat(b, *concat, operands);
    else first = b.add(n.op, operands);
    for (int i = 0; i < n.num_values; i++) to[static_cast<size_t>(n.first_value + i)] = first + i;
  }
  return std::move(b).finish();
}

namespace {

/// What a plan may take, predicted, of the time of one with fewer kernels, where rows are reduced by a kernel of their own; and none beside
/// generic block kernels, for which the model is off by more: small programs were measured fastest in one kernel
/// (test/laws/small_programs.cc), and few rows before a weight stream within what the model is off by.
constexpr double kMoreKernels = 0.88;
/// the same of one without copies of its operands: what they bring depends on the lines of every operand, of which the model knows little
constexpr double kMoreCopies = 0.8;
constexpr double kSurely = 0.95, kSurelyGeneric = 0.8;   ///< of the time of a plan whose kernels are of other kinds

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
  // while what they pad has a kernel of its own
  for (ValueId v = 0; v < g_.num_values() && is_on(Pass::kInline, target_); v++) if (padded(v) != v) try_inline(v);
  merge();
  for (bool changed = is_on(Pass::kInline, target_); changed;) {
    changed = false;
    for (ValueId v = 0; v < g_.num_values(); v++) changed = try_inline(v) || changed;
    if (changed) merge();
  }
  if (is_on(Pass::kLayouts, target_) && place_layouts()) merge();
  if (is_on(Pass::kSplit, target_)) split_reductions();
  return finish();
}

Planned plan_with_tape(const Program& program, const Graph& graph, const Target& target, Tape& tape, const Plan& model) {
  return Planner(program, remove_dead(graph), target, &tape, &model).run();
}

namespace {

/// The cheapest plan of a graph whose values are exact but where it casts: as it is, and as passes leave it.
class Rewrites {
 public:
  Rewrites(const Program& program, const Graph& graph, const Target& target, CallPlans& known)
      : program_(program), graph_(graph), target_(target), known_(known), calls_(lowered(graph)) {}

  Planned run() {
    planned_ = plan(calls_);
    if (const auto ordered = pass(Pass::kOrder, calls_)) consider(*ordered, Kernels::kCopies, {Pass::kOrder});
    rewrite_products(Pass::kDots, Kernels::kFree);
    rewrite_products(Pass::kShort, Kernels::kLess);
    if (!target_.has_tma || target_.sm != 90) return std::move(planned_);   // elsewhere operands are brought through registers in any case
    rewrite_products(Pass::kDivide, Kernels::kPay);
    move_factors();
    store_operands();
    return std::move(planned_);
  }

 private:
  // whether more of them must pay, and, if they do not only copy, no general one be among them
  // kLess: no condition on kernels, but it must be faster by more than prices of other kernels are off
  enum class Kernels { kFree, kCopies, kPay, kLess };

  Graph lowered(const Graph& g) { return lower_matmuls(g, target_, contract_rule(program_), known_); }
  Planned plan(const Graph& calls) { return Planner(program_, calls, target_, nullptr, nullptr, &known_).run(); }
  std::optional<Graph> pass(Pass p, const Graph& g) const { return is_on(p, target_) ? rewrite(p, g, program_) : std::nullopt; }
  /// What calls_ went through, and these.
  std::vector<Pass> with(std::initializer_list<Pass> more) const {
    std::vector<Pass> out = base_;
    out.insert(out.end(), more);
    return out;
  }
  bool consider(const Graph& g, Kernels kernels, std::vector<Pass> passes) {
    Planned other = plan(g);
    if (!other.plan) return false;
    const bool bound = kernels == Kernels::kCopies || kernels == Kernels::kPay;
    if (planned_.plan && bound && other.plan->kernels.size() > planned_.plan->kernels.size() &&
        ((kernels == Kernels::kPay && generic(*other.plan)) ||
         other.plan->predicted_us > (kernels == Kernels::kCopies ? kMoreCopies : kMoreKernels) * planned_.plan->predicted_us))
      return false;
    const double most = kernels != Kernels::kLess ? 1 : generic(*other.plan) ? kSurelyGeneric : kSurely;
    if (planned_.plan && other.plan->predicted_us >= most * planned_.plan->predicted_us) return false;
    planned_ = std::move(other);
    planned_.plan->passes = std::move(passes);
    return true;
  }
  /// A pass over products; what it leaves, if that is faster, is where those over calls begin.
  void rewrite_products(Pass p, Kernels kernels) {
    const auto g = is_on(p, target_) ? rewrite_matmuls(std::span(&p, 1), graph_, target_) : std::nullopt;
    if (!g) return;
    Graph calls = lowered(*g);
    if (consider(calls, kernels, {p})) calls_ = std::move(calls), base_ = {p};
  }
  void move_factors() {
    const auto moved = pass(Pass::kGains, calls_);
    if (!moved) return;
    consider(*moved, Kernels::kLess, with({Pass::kGains}));
    const auto stored = pass(Pass::kHoist, *moved);
    if (!stored) return;
    consider(*stored, Kernels::kPay, with({Pass::kGains, Pass::kHoist}));
    if (const auto narrow = pass(Pass::kNarrow, *stored))
      consider(*narrow, Kernels::kPay, with({Pass::kGains, Pass::kHoist, Pass::kNarrow}));
  }
  void store_operands() {
    const auto hoisted = pass(Pass::kHoist, calls_);
    const bool reduced = hoisted && reductions(*hoisted) > reductions(calls_);
    const auto narrow = pass(Pass::kNarrow, hoisted ? *hoisted : calls_);
    if (hoisted && !(reduced && narrow)) consider(*hoisted, reduced ? Kernels::kPay : Kernels::kFree, with({Pass::kHoist}));
    if (narrow) consider(*narrow, Kernels::kPay, hoisted ? with({Pass::kHoist, Pass::kNarrow}) : with({Pass::kNarrow}));
    // A norm's squares leave with the operand, where they would be read again beside the ring.
    if (const auto normed = hoisted ? pass(Pass::kNorms, calls_) : std::nullopt) {
      consider(*normed, Kernels::kPay, with({Pass::kNorms}));
      if (const auto narrow_normed = pass(Pass::kNarrow, *normed))
        consider(*narrow_normed, Kernels::kPay, with({Pass::kNorms, Pass::kNarrow}));
    }
  }

  const Program& program_;
  const Graph& graph_;
  const Target& target_;
  CallPlans& known_;
  Graph calls_;
  std::vector<Pass> base_;
  Planned planned_;
};

}  // namespace

/// Per value of the plan's graph: whether it lies in memory with more than 16 bits, and is no result of the program.
static std::vector<bool> stored_wide(const Plan& plan) {
  std::vector<bool> out(static_cast<size_t>(plan.graph.num_values()));
  for (size_t v = 0; v < out.size(); v++) {
    const int buffer = plan.views[v].buffer;
    out[v] = buffer >= 0 && plan.buffers[static_cast<size_t>(buffer)].kind == Buffer::Kind::kWorkspace &&
             plan.graph.type(static_cast<ValueId>(v)).dtype == DType::kReal;
  }
  return out;
}

Planned make_plan(const Program& program, const Graph& graph, const Target& target, std::span<const ValueId> origin) {
  CallPlans known;
  return make_plan(program, graph, target, origin, known);
}

Planned make_plan(const Program& program, const Graph& graph, const Target& target, std::span<const ValueId> origin, CallPlans& known) {
  using Where = KeptValues::Where;
  const KeptValues kept(program.graph, program.kept);
  std::vector<Graph> tried;
  Planned best;
  std::optional<Where> rounds;   // where the best one does
  const auto consider = [&](const Graph& g, std::optional<Where> where) {
    if (std::find(tried.begin(), tried.end(), g) != tried.end()) return;
    tried.push_back(g);
    Planned p = Rewrites(program, g, target, known).run();
    if (p.plan && where) p.plan->kept = std::make_shared<const Graph>(g);
    if (!best.plan || (p.plan && p.plan->predicted_us < best.plan->predicted_us)) best = std::move(p), rounds = where;
  };
  const auto keep = [&](Where where, const std::set<int>& also = {}) {
    if (const auto g = kept.empty() ? std::nullopt : kept.rounded(graph, where, origin, also)) consider(*g, where);
  };
  keep(Where::kMemory);
  keep(Where::kMemoryAndBodies);
  // Kernels that work on rows may take longer for 16 bits: rows that begin anywhere have edges. A cast within a body may be what no
  // strategy but the general one takes.
  const bool has_rows = best.plan && std::any_of(best.plan->kernels.begin(), best.plan->kernels.end(), [](const KernelPlan& k) {
                          return std::holds_alternative<std::shared_ptr<const RegionPlan>>(k.body);
                        });
  if (has_rows) keep(Where::kOperands), keep(Where::kShared);
  if (has_rows || !best.plan || generic(*best.plan)) consider(graph, std::nullopt);
  if (best.plan && !kept.empty())   // what this plan stores nevertheless
    if (const std::set<int> wide = kept.meanings_of(best.plan->graph, stored_wide(*best.plan)); !wide.empty())
      keep(rounds.value_or(Where::kOperands), wide);
  return best;
}

}  // namespace mirage
