// Why a muGraph is or is not in the space (--why-not): the graph is walked through the engine itself, kernel by kernel and operator by
// operator, so that the answer is that of the search and no second opinion. Beside the flow; called by driver/.
#include <algorithm>
#include <functional>
#include <map>
#include "search/kernel_walk.h"

namespace mirage {
namespace search {
namespace {

/// Values that are a maximum: a running one, or, where the program has no maximum of its own, any that a reduction or an accumulator makes.
bool is_maximum(const Graph& g, ValueId v, bool program_has_maxima) {
  if (g.def_form<Running>(v)) return true;
  if (program_has_maxima) return false;
  if (const auto* r = g.def_form<Reduce>(v)) return r->fn == ReduceFn::kMax;
  const auto* a = g.def_form<Accum>(v);
  return a && a->fn == ReduceFn::kMax;
}

/// The body without what stabilisation brought: exp(x - maximum) is exp(x), rescaled sums are sums. What else reads a maximum stays.
Graph plain_body(const Graph& body, bool program_has_maxima) {
  Builder b(Level::kBlock, body.launch());
  std::vector<ValueId> at(static_cast<size_t>(body.num_values()), -1);
  for (NodeId n = 0; n < body.num_nodes(); n++) {
    const Node& node = body.node(n);
    std::vector<ValueId> operands;
    for (ValueId v : node.operands) operands.push_back(at[static_cast<size_t>(v)]);
    if (const auto* in = body.form<Input>(n)) {
      at[static_cast<size_t>(node.first_value)] = b.add_input(in->param, body.type(node.first_value), in->part);
      continue;
    }
    const auto* m = body.form<Map>(n);
    if (m && m->fn == MapFn::kSub && is_maximum(body, node.operands[1], program_has_maxima) &&
        body.dims(node.operands[0]) == body.dims(node.first_value)) {
      at[static_cast<size_t>(node.first_value)] = operands[0];
      continue;
    }
    const auto* a = body.form<Accum>(n);
    const ValueId v = a && a->degree > 0 ? b.add(Accum{a->fn}, {operands[0]}) : b.add(node.op, operands);
    if (node.first_value >= 0) at[static_cast<size_t>(node.first_value)] = v;
  }
  return remove_dead(b.graph());
}

int calls_of(const Graph& g) {
  int n = 0;
  for (const Node& node : g.nodes()) n += std::holds_alternative<Call>(node.op);
  return n;
}

Graph plain_graph(const Graph& g, const Graph& program) {
  const bool maxima = std::any_of(program.nodes().begin(), program.nodes().end(), [](const Node& n) {
    const auto* r = std::get_if<Reduce>(&n.op);
    return r && r->fn == ReduceFn::kMax;
  });
  Builder b(Level::kKernel);
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    if (const auto* in = g.form<Input>(n)) b.add_input(in->param, g.type(node.first_value));
    else if (const auto* c = g.form<Call>(n)) b.add(Call{std::make_shared<const Graph>(plain_body(*c->body, maxima))}, node.operands);
    else b.add(node.op, node.operands);
  }
  return std::move(b).finish();
}

/// A muGraph at the even witness of a program, kernel by kernel.
class GraphWalk {
 public:
  /// parts: as the enumerator has it, the program's last inputs that are parts of sums; 0: a program of its own.
  GraphWalk(const Program& program, const Target& target, const SearchOptions& options, int parts)
      : program_(program),
        target_(target),
        options_(options),
        parts_(parts),
        ref_(make_reference(program, options.seed, parts)),
        outputs_(stored_values(program.graph)) {}
  const Reference& reference() const { return ref_; }
  /// s: over any extents of the program.
  Answer explain(const Structure& s);

 private:
  struct Walk;
  std::vector<FieldTensor> evaluate_node(const Walk& w, NodeId n);
  bool visit_call(Walk& w, NodeId n);
  bool visit_parts(Walk& w, NodeId n);
  bool visit_operator(Walk& w, NodeId n);
  std::vector<ValueId> same_but_for_a_one(const FieldTensor& x) const;
  Answer ask_second(const Walk& w, NodeId first, const std::vector<ValueId>& ends, const Tail& tail, const std::vector<size_t>& order);
  SplitOptions splits_of(int kernels) const;
  const Program& program_;
  const Target& target_;
  const SearchOptions& options_;
  const int parts_;
  Reference ref_;
  const std::vector<ValueId> outputs_;
};

struct GraphWalk::Walk {
  const Graph& g;
  std::vector<FieldTensor> values;
  std::vector<std::vector<ValueId>> is;    ///< by value: the program's values that it is
  std::vector<bool> in_tail;               ///< by value: made of parts, and no value of the program yet
  std::vector<ValueId> available;
  int kernels = 0;                         ///< those behind sums over blocks not counted
  Answer answer{true, true, ""};
};

SplitOptions GraphWalk::splits_of(int kernels) const {
  std::vector<int> whole;
  const int params = static_cast<int>(program_.inputs.size());
  for (NodeId n : program_.graph.inputs())
    if (program_.graph.form<Input>(n)->param >= params - parts_)
      whole.push_back(ref_.classes.of[static_cast<size_t>(program_.graph.node(n).first_value)][0]);
  return split_options(options_, target_, parts_ > 0, kernels, whole);
}

std::vector<FieldTensor> GraphWalk::evaluate_node(const Walk& w, NodeId n) {
  if (const auto* in = w.g.form<Input>(n)) {
    for (NodeId m : program_.graph.inputs())
      if (program_.graph.form<Input>(m)->param == in->param) return {ref_.values[static_cast<size_t>(program_.graph.node(m).first_value)]};
    return {FieldTensor(w.g.dims(w.g.node(n).first_value), {})};   // an input that the program does not read
  }
  std::vector<const FieldTensor*> args;
  for (ValueId v : w.g.node(n).operands) args.push_back(&w.values[static_cast<size_t>(v)]);
  if (const auto* call = w.g.form<Call>(n)) return evaluate_call(*call->body, std::span<const FieldTensor* const>(args), ref_.algebra);
  return {evaluate_op(w.g.node(n).op, std::span<const FieldTensor* const>(args), ref_.algebra)};
}

Answer GraphWalk::explain(const Structure& s) {
  if (!ref_.refusal.empty()) return {false, false, "not searched: " + ref_.refusal + "\n"};
  const auto even = instantiate(s, ref_.even.params, halve(split_extents(s, ref_.even.params)));
  if (!even) return {false, false, "the graph has no instance at the small sizes of the search: an extent that it names, or a law\n"};
  const Graph& g = *even;
  Walk w{g,
         std::vector<FieldTensor>(static_cast<size_t>(g.num_values())),
         std::vector<std::vector<ValueId>>(static_cast<size_t>(g.num_values())),
         std::vector<bool>(static_cast<size_t>(g.num_values())),
         {}};
  for (ValueId v = 0; v < program_.graph.num_values(); v++) if (is_free(program_.graph, v)) w.available.push_back(v);
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    if (node.first_value < 0) continue;
    std::vector<FieldTensor> made = evaluate_node(w, n);
    const bool from_parts =
        std::any_of(node.operands.begin(), node.operands.end(), [&](ValueId v) { return w.in_tail[static_cast<size_t>(v)]; });
    for (int i = 0; i < node.num_values; i++) {
      const auto at = static_cast<size_t>(node.first_value + i);
      w.values[at] = std::move(made[static_cast<size_t>(i)]);
      for (ValueId v = 0; v < program_.graph.num_values(); v++)
        if (same_tensor(ref_.values[static_cast<size_t>(v)], w.values[at])) w.is[at].push_back(v);
      w.in_tail[at] = from_parts && w.is[at].empty();
    }
    if (from_parts) continue;   // it was asked about with the kernel that made the parts
    const bool good = g.form<Call>(n) ? visit_call(w, n)
                                      : is_view(node.op) || g.form<Input>(n) || g.form<Const>(n) || g.form<Iota>(n) || visit_operator(w, n);
    if (!good) return w.answer;
  }
  for (NodeId n : g.outputs()) {
    const auto& mine = w.is[static_cast<size_t>(g.node(n).operands[0])];
    if (std::count(mine.begin(), mine.end(),
                   program_.graph.node(program_.graph.outputs()[static_cast<size_t>(g.form<Output>(n)->result)]).operands[0]))
      continue;
    w.answer.is_open = false;
    w.answer.text += "closed by gate fingerprint: result " + std::to_string(g.form<Output>(n)->result) + " is not the program's\n";
  }
  const int most = most_kernels(options_, parts_ > 0);
  if (w.kernels > most) {
    w.answer.is_open = false;
    w.answer.text += "closed by gate budget: " + std::to_string(w.kernels) + " graph-defined operators, at most " + std::to_string(most) +
                     (options_.dominance ? " (more without dominance)" : "") + "\n";
  }
  if (w.kernels == 0) return {false, false, "the graph has no graph-defined operator: nothing that the search makes\n"};
  w.answer.is_found &= w.answer.is_open;
  return w.answer;
}

/// A kernel of the graph. False: it is closed, and that ends the walk.
bool GraphWalk::visit_call(Walk& w, NodeId n) {
  const Node& node = w.g.node(n);
  std::vector<ValueId> targets;
  for (int i = 0; i < node.num_values; i++) {
    const auto& mine = w.is[static_cast<size_t>(node.first_value + i)];
    const auto wanted =
        std::find_if(mine.begin(), mine.end(), [&](ValueId v) { return !std::count(w.available.begin(), w.available.end(), v); });
    if (wanted == mine.end()) return visit_parts(w, n);
    targets.push_back(*wanted);
  }
  w.kernels++;
  Kernel k{w.g.form<Call>(n)->body.get(), {}, make_problem(program_.graph, w.available, targets)};
  for (ValueId v : node.operands) k.leaves.push_back(w.is[static_cast<size_t>(v)]);
  const Answer v = KernelWalk(ref_, target_, options_, outputs_, splits_of(calls_of(w.g))).explain(k);
  w.answer = {v.is_open, w.answer.is_found && v.is_found, w.answer.text + "kernel " + std::to_string(w.kernels) + ":\n" + v.text};
  w.available.insert(w.available.end(), targets.begin(), targets.end());
  std::sort(w.available.begin(), w.available.end());
  return v.is_open;
}

/// A kernel whose results are no values of the program: parts of sums, with what puts them together.
bool GraphWalk::visit_parts(Walk& w, NodeId n) {
  const Node& node = w.g.node(n);
  w.kernels++;
  w.answer.text += "kernel " + std::to_string(w.kernels) + ":\n";
  // What is made of them, until it is a value of the program.
  Walk ahead = w;
  std::vector<ValueId> ends, targets;   // values of g, and of the program
  for (int i = 0; i < node.num_values; i++) ahead.in_tail[static_cast<size_t>(node.first_value + i)] = true;
  for (NodeId m = n + 1; m < w.g.num_nodes(); m++) {
    const Node& next = w.g.node(m);
    if (next.first_value < 0) continue;
    const bool from_parts =
        std::any_of(next.operands.begin(), next.operands.end(), [&](ValueId v) { return ahead.in_tail[static_cast<size_t>(v)]; });
    std::vector<FieldTensor> made = evaluate_node(ahead, m);
    for (int i = 0; i < next.num_values; i++) {
      const auto at = static_cast<size_t>(next.first_value + i);
      ahead.values[at] = std::move(made[static_cast<size_t>(i)]);
      ahead.in_tail[at] = from_parts;
      if (!from_parts) continue;
      for (ValueId v = 0; v < program_.graph.num_values(); v++) {
        if (!same_tensor(ref_.values[static_cast<size_t>(v)], ahead.values[at]) || std::count(w.available.begin(), w.available.end(), v))
          continue;
        ahead.in_tail[at] = false;
        ends.push_back(static_cast<ValueId>(at));
        targets.push_back(v);
        break;
      }
    }
  }
  std::vector<size_t> by_target(targets.size());
  for (size_t t = 0; t < targets.size(); t++) by_target[t] = t;
  auto place = [&](size_t t) { return std::pair{std::find(outputs_.begin(), outputs_.end(), targets[t]) - outputs_.begin(), targets[t]}; };
  std::sort(by_target.begin(), by_target.end(), [&](size_t a, size_t b) { return place(a) < place(b); });
  std::vector<ValueId> sorted_ends, sorted;
  for (size_t t : by_target) { sorted_ends.push_back(ends[t]); sorted.push_back(targets[t]); }
  if (sorted.empty()) {
    w.answer = {false, false,
                w.answer.text + "  closed: a result is no value of the program, whole, and nothing that is made of it is one\n"};
    return false;
  }
  Kernel k{w.g.form<Call>(n)->body.get(), {}, make_problem(program_.graph, w.available, sorted)};
  for (ValueId v : node.operands) k.leaves.push_back(same_but_for_a_one(w.values[static_cast<size_t>(v)]));
  std::vector<FieldTensor> results;
  for (int i = 0; i < node.num_values; i++) results.push_back(w.values[static_cast<size_t>(node.first_value + i)]);
  KernelWalk walk(ref_, target_, options_, outputs_, splits_of(calls_of(w.g) - 1));
  const Answer v = walk.explain_parts(
      k, results, [&](const Tail& tail, const std::vector<size_t>& order) { return ask_second(w, n, sorted_ends, tail, order); });
  w.answer = {v.is_open, w.answer.is_found && v.is_found, w.answer.text + v.text};
  for (int i = 0; i < node.num_values; i++) w.in_tail[static_cast<size_t>(node.first_value + i)] = true;
  w.available.insert(w.available.end(), sorted.begin(), sorted.end());
  std::sort(w.available.begin(), w.available.end());
  return v.is_open;
}

/// Values of the program with these elements, a leading dimension of 1 not looked at.
std::vector<ValueId> GraphWalk::same_but_for_a_one(const FieldTensor& x) const {
  std::vector<ValueId> out;
  for (ValueId v = 0; v < program_.graph.num_values(); v++) {
    const FieldTensor& y = ref_.values[static_cast<size_t>(v)];
    Dims dims{1};
    for (int64_t e : y.dims) dims.push_back(e);
    if (y.data == x.data && (x.dims == dims || x.dims == y.dims)) out.push_back(v);
  }
  return out;
}

/// What the rest of the graph makes of the results of kernel `first`, as a graph of the program that is left to do behind sums over blocks;
/// it has one kernel.
Answer GraphWalk::ask_second(const Walk& w, NodeId first, const std::vector<ValueId>& ends, const Tail& tail,
                             const std::vector<size_t>& order) {
  Builder b(Level::kKernel);
  std::vector<ValueId> inputs, leaves;
  for (const Type& t : ref_.even.params) inputs.push_back(b.add_input(static_cast<int>(inputs.size()), t));
  const int params = static_cast<int>(inputs.size());
  for (ValueId v : tail.leaves) leaves.push_back(b.add_input(params + static_cast<int>(leaves.size()), ref_.even.graph.type(v)));
  std::map<ValueId, ValueId> at;   // by value of the graph
  for (size_t i = 0; i < order.size(); i++) {
    const ValueId part = w.g.node(first).first_value + static_cast<ValueId>(order[i]);
    at[part] = b.add_input(params + static_cast<int>(leaves.size() + i), w.g.type(part));
  }
  std::function<bool(ValueId)> copy = [&](ValueId v) {
    if (at.count(v)) return true;
    const NodeId n = w.g.value(v).node;
    if (const auto* in = w.g.form<Input>(n)) { at[v] = inputs[static_cast<size_t>(in->param)]; return true; }
    for (size_t l = 0; l < leaves.size(); l++)
      if (std::count(w.is[static_cast<size_t>(v)].begin(), w.is[static_cast<size_t>(v)].end(), tail.leaves[l])) {
        at[v] = leaves[l];
        return true;
      }
    if (w.g.form<Call>(n) && n <= first) return false;   // what the parts were made of, and no leaf
    std::vector<ValueId> operands;
    for (ValueId o : w.g.node(n).operands) {
      if (!copy(o)) return false;
      operands.push_back(at[o]);
    }
    const auto made = b.try_add(w.g.node(n).op, operands);
    for (int i = 0; made && i < w.g.node(n).num_values; i++) at[w.g.node(n).first_value + i] = *made + i;
    return made.has_value();
  };
  const Graph& wanted = tail.program.graph;
  for (size_t t = 0; t < ends.size(); t++) {
    if (!copy(ends[t])) return {false, false, "  closed: what puts the parts together reads a value that these two kernels do not have\n"};
    b.add_output(static_cast<int>(t), at[ends[t]], wanted.form<Output>(wanted.outputs()[t])->dtype);
  }
  Answer a = GraphWalk(tail.program, target_, options_, static_cast<int>(tail.parts.size()))
                 .explain({b.graph(), 0, 0, true, make_worlds(tail.program, static_cast<int>(tail.parts.size()))});
  a.text = "what puts its parts together:\n" + a.text;
  return a;
}

/// A pre-defined operator at kernel level: here, a graph-defined one with it alone.
bool GraphWalk::visit_operator(Walk& w, NodeId n) {
  const ValueId v = w.g.node(n).first_value;
  w.kernels++;
  const auto& mine = w.is[static_cast<size_t>(v)];
  w.answer.text += "kernel " + std::to_string(w.kernels) + ": a pre-defined operator, " + std::string(form_name(w.g.node(n).op)) + "\n";
  const auto wanted =
      std::find_if(mine.begin(), mine.end(), [&](ValueId x) { return !std::count(w.available.begin(), w.available.end(), x); });
  const auto closed = [&](const std::string& why) { w.answer = {false, false, w.answer.text + why}; return false; };
  if (wanted == mine.end()) return closed("  closed: its result is no value of the program that is still to be computed\n");
  const Problem p = make_problem(program_.graph, w.available, {*wanted});
  const auto operators = std::count_if(p.inside.begin(), p.inside.end(),
                                       [&](NodeId m) { return !program_.graph.form<Const>(m) && !is_view(program_.graph.node(m).op); });
  const size_t splits = enumerate_splits(ref_.graph(), ref_.classes, p, splits_of(calls_of(w.g))).all.size();
  if (operators != 1 || splits == 0)
    return closed("  closed: the search makes kernels of graph-defined operators only, and none of this operator alone\n");
  w.answer.text += "  in the space, as a graph-defined operator of it alone, under any of " + std::to_string(splits) + " splits\n";
  w.answer.is_found = false;   // beside what is fused
  w.available.push_back(*wanted);
  std::sort(w.available.begin(), w.available.end());
  return true;
}

}  // namespace
}  // namespace search

WhyNot why_not(const Program& program, const Target& target, const SearchOptions& options, const Graph& given) {
  using namespace search;
  const auto own_worlds = make_worlds(program);
  if (!own_worlds) {
    const Reference ref = make_reference(program, options.seed);
    return {false, "not searched: " + ref.refusal + "\n"};
  }
  auto worlds = std::make_shared<Worlds>(*own_worlds);
  std::vector<Type> types(program.inputs.size());
  for (NodeId n : given.inputs())
    if (const auto p = static_cast<size_t>(given.form<Input>(n)->param); p < types.size()) types[p] = given.type(given.node(n).first_value);
  const auto own = std::find_if(worlds->all.begin(), worlds->all.end(), [&](const auto& w) { return w.first == types; });
  if (own == worlds->all.end()) return {false, "the graph's inputs are not the program's, at its own sizes or at those of the search\n"};
  std::rotate(worlds->all.begin(), own, own + 1);
  const Answer a = GraphWalk(program, target, options, 0).explain({plain_graph(given, program.graph), 0, 0, true, worlds});
  return {a.is_open, a.text, a.is_open && a.is_found};
}

}  // namespace mirage
