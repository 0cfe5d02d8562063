// Why a muGraph is or is not in the space (--why-not): the graph is walked through the engine itself, kernel by kernel and operator by operator, so that the answer is that of the search and
// no second opinion. Beside the flow; called by driver/.
#include <algorithm>
#include <bit>
#include "search/open_problem.h"
#include "search/split_search.h"

namespace mirage {
namespace search {
namespace {

constexpr int64_t kMostEffort = 200'000'000;   // of the closure that a kernel needs; the published structures take under a million

/// g's node as text, for messages.
std::string node_text(const Graph& g, NodeId n) {
  const Node& node = g.node(n);
  std::string s = "%" + std::to_string(node.first_value) + " = " + form_name(node.op);
  if (const auto* m = std::get_if<Map>(&node.op)) s = "%" + std::to_string(node.first_value) + " = " + map_info(m->fn).name;
  for (ValueId v : node.operands) s += " %" + std::to_string(v);
  return s;
}

/// The body without what stabilisation brought: exp(x - running maximum) is exp(x), rescaled sums are sums. What else reads a maximum stays.
Graph plain_body(const Graph& body) {
  Builder b(Level::kBlock, body.launch());
  std::vector<ValueId> at(static_cast<size_t>(body.num_values()), -1);
  std::vector<bool> running(at.size());
  for (NodeId n = 0; n < body.num_nodes(); n++) {
    const Node& node = body.node(n);
    std::vector<ValueId> operands;
    for (ValueId v : node.operands) operands.push_back(at[static_cast<size_t>(v)]);
    if (const auto* in = body.form<Input>(n)) { at[static_cast<size_t>(node.first_value)] = b.add_input(in->param, body.type(node.first_value), in->part); continue; }
    if (body.form<Running>(n)) running[static_cast<size_t>(node.first_value)] = true;
    const auto* m = body.form<Map>(n);
    if (m && m->fn == MapFn::kSub && running[static_cast<size_t>(node.operands[1])]) { at[static_cast<size_t>(node.first_value)] = operands[0]; continue; }
    const auto* a = body.form<Accum>(n);
    const ValueId v = a && a->degree > 0 ? b.add(Accum{a->fn}, {operands[0]}) : b.add(node.op, operands);
    if (node.first_value >= 0) at[static_cast<size_t>(node.first_value)] = v;
  }
  return remove_dead(b.graph());
}

Graph plain_graph(const Graph& g) {
  Builder b(Level::kKernel);
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    if (const auto* in = g.form<Input>(n)) b.add_input(in->param, g.type(node.first_value));
    else if (const auto* c = g.form<Call>(n)) b.add(Call{std::make_shared<const Graph>(plain_body(*c->body))}, node.operands);
    else b.add(node.op, node.operands);
  }
  return std::move(b).finish();
}

/// One kernel of the graph: what it computes, of what, and where it stands.
struct Kernel {
  const Graph* body = nullptr;
  std::vector<std::vector<ValueId>> leaves;   ///< by param: values of the reference that the operand is
  Problem problem;
};

struct Answer { bool is_open = false; bool is_found = false; std::string text; };   // of one kernel

class KernelWalk {
 public:
  KernelWalk(const Reference& ref, const Target& target, const SearchOptions& options, const std::vector<ValueId>& outputs) : ref_(ref), target_(target), options_(options), outputs_(outputs) {}

  Answer explain(const Kernel& k) {
    std::string none;
    for (int way = 0; way < 3; way++) {   // as the enumerator tries them
      SplitOptions which{way == 2, way == 1, false, {}, target_.smem_per_block + kRegisterBytes, target_.smem_per_block};
      const Splits splits = enumerate_splits(ref_.graph(), ref_.classes, k.problem, which);
      if (none.empty() && splits.index_closed > 0) none = splits.index_example;
      for (size_t i = 0; i < splits.all.size(); i++) {
        std::vector<size_t> load_of;
        if (!matches(k, splits.all[i], load_of)) continue;
        Answer v = under(k, splits.all[i], load_of);
        static const char* const kWays[] = {"", ", one tensor under two partitions", ", values computed again for each use"};
        v.text = "  split " + std::to_string(i + 1) + " of " + std::to_string(splits.all.size()) + kWays[way] + (splits.all[i].is_poor ? ", poor: searched where nothing better is verified" : "") + "\n" + v.text;
        return v;
      }
    }
    return {false, false, "  closed by gate index: no split of the program's indices loads and stores so" + (none.empty() ? "" : " (" + none + ")") + "\n"};
  }

 private:
  /// Whether the split has the loads and stores of the body, up to the names of its axes; load_of: by input node of the body, the load.
  bool matches(const Kernel& k, const Split& split, std::vector<size_t>& load_of) const {
    std::array<int, 3> axis{0, 1, 2};
    do {
      auto renamed = [&](const Partition& p) {
        Partition q;
        q.loop = p.loop;
        for (size_t a = 0; a < 3; a++) q.grid[static_cast<size_t>(axis[a])] = p.grid[a];
        return q;
      };
      load_of.clear();
      std::vector<bool> used(split.loads.size());
      bool same = true;
      for (NodeId n : k.body->inputs()) {
        const Input& in = *k.body->form<Input>(n);
        const Partition part = renamed(in.part);
        size_t l = 0;
        const auto& leaves = k.leaves[static_cast<size_t>(in.param)];
        while (l < split.loads.size() && !(split.loads[l].part == part && std::count(leaves.begin(), leaves.end(), split.loads[l].leaf))) l++;
        same &= l < split.loads.size();
        if (!same) break;
        used[l] = true;
        load_of.push_back(l);
      }
      same = same && !std::count(used.begin(), used.end(), false);
      const std::vector<NodeId> outputs = k.body->outputs();
      for (size_t r = 0; same && r < outputs.size(); r++) same = renamed(k.body->form<Output>(outputs[r])->part) == split.stores[r];
      if (same) return true;
    } while (std::next_permutation(axis.begin(), axis.end()));
    return false;
  }

  struct Engine {   // as SplitSearch has them
    Engine(const Reference& ref, const Kernel& k, const Split& split, const SearchOptions& o, const std::vector<ValueId>& outputs, int max_block_ops)
        : meter(o.stop, {}), expressions(o.expression_gate ? reference_expressions(ref, k.problem, pool) : std::vector<ExprId>(static_cast<size_t>(ref.graph().num_values()), -1)),
          values(ref, k.problem, split, pool, expressions, o.expression_gate, meter), universe(values, k.problem.targets.size(), INT64_MAX, meter),
          search(ref, k.problem, split, values, o, stored_dtypes(ref.graph(), outputs, k.problem), max_block_ops, meter) {}
    Meter meter;
    ExprPool pool;
    std::vector<ExprId> expressions;
    BlockValues values;
    Universe universe;
    BlockSearch search;
  };

  Answer under(const Kernel& k, const Split& split, const std::vector<size_t>& load_of) {
    if (!fits_memory(ref_.graph(), split, target_)) return {false, false, "  closed by gate memory: tiles of at least " + std::to_string(least_bytes(ref_.graph(), split)) + " bytes\n"};
    const int max_block_ops = std::max(options_.max_block_ops, block_ops_needed(ref_.graph(), k.problem, split));
    Engine e(ref_, k, split, options_, outputs_, max_block_ops);
    if (!e.values.fits()) return {false, false, "  closed by gate type: more than 8 dimensions with blocks and iterations\n"};
    e.meter.begin({});
    std::vector<Derivation> steps;
    std::string text;
    std::vector<int> targets;
    if (!walk(k, e, load_of, steps, targets, text)) return {false, false, text};
    int ideas = 0;
    for (const Derivation& d : steps) ideas += e.values.is_idea(d.op, d.result);
    if (ideas > options_.max_ideas) return {false, false, "  closed by gate budget: " + std::to_string(ideas) + " ideas, --max-ideas is " + std::to_string(options_.max_ideas) + "\n"};
    // The closure has every step, and the growth restricted to them comes to the graph: no rank, bound or law is in its way.
    e.meter.begin({kMostEffort, options_.max_bytes > 0 ? options_.max_bytes : kNoLimit});
    for (int i = 0; i <= ideas; i++) e.universe.close_to(i);
    if (e.meter.end() != End::kWhole) return {false, false, "  not decided: the closure with " + std::to_string(ideas) + " ideas is too large\n"};
    const std::vector<Derivation> useful = e.universe.useful();
    for (const Derivation& d : steps) {
      const auto same = [&](const Derivation& o) { return o.op == d.op && o.operands == d.operands && o.result == d.result; };
      if (std::none_of(useful.begin(), useful.end(), same)) return {false, false, "  closed by gate budget: " + e.values.describe(d.op, d.operands) + " is not on a way to the results with " + std::to_string(ideas) + " ideas\n"};
    }
    const bool concat = std::any_of(steps.begin(), steps.end(), [&](const Derivation& d) { return e.values.operators()[static_cast<size_t>(d.op)].is_concat; });
    e.meter.begin({});
    const std::vector<BlockCandidate> grown = e.search.run_on(steps, targets, ideas, false, concat, 16);
    const auto whole = std::find_if(grown.begin(), grown.end(), [&](const BlockCandidate& c) { return operators(c.body) == static_cast<int>(steps.size()); });
    if (whole == grown.end()) return {false, false, "  closed: the growth of exactly these operators does not come to a graph\n" + closed_text(e.meter.report)};
    text += "  in the space: " + std::to_string(ideas) + (ideas == 1 ? " idea, " : " ideas, ") + std::to_string(count_block_ops(whole->body)) + " of " + std::to_string(max_block_ops) + " block operators; no gate closes it\n";
    if (!options_.dominance) return {true, false, text};
    return against_others(e, *whole, ideas, concat, text);
  }

  static int operators(const Graph& body) {
    int n = 0;
    for (const Node& node : body.nodes()) n += !std::holds_alternative<Input>(node.op) && !std::holds_alternative<Output>(node.op) && !std::holds_alternative<Const>(node.op) && !std::holds_alternative<Concat>(node.op);
    return n;
  }

  static std::string closed_text(const SearchReport& r) {
    std::string out;
    for (size_t g = 0; g < r.gates.size(); g++)
      if (r.gates[g].closed > 0) out += std::string("    gate ") + gate_name(static_cast<Gate>(g)) + ", " + std::to_string(r.gates[g].closed) + " times; first: " + r.gates[g].first_example + "\n";
    return out;
  }

  /// What merging and dominance make of it.
  Answer against_others(Engine& e, const BlockCandidate& mine, int ideas, bool concat, std::string text) {
    if (concat) return {true, false, text + "  dominance: products of concatenations are handed out without dominance only, a planner has no concatenation inside a block\n"};
    for (int fewer = 0; fewer <= ideas; fewer++) {
      e.meter.begin({kMostEffort, kNoLimit});
      if (!e.universe.close_to(fewer)) continue;
      const std::vector<BlockCandidate> best = e.search.run(e.universe, fewer, true, false, SIZE_MAX);
      if (std::any_of(best.begin(), best.end(), [&](const BlockCandidate& c) { return c.body == mine.body; })) return {true, true, text + "  found: no other graph beats it\n"};
      for (const BlockCandidate& c : best)
        if (c.beats(mine))
          return {true, false, text + "  dominance: at the witness it takes work " + std::to_string(mine.work) + " and memory " + std::to_string(mine.memory) + ", this one " + std::to_string(c.work) + " and " + std::to_string(c.memory) + ":\n" + print(c.body, "better")};
      if (fewer < ideas && !best.empty()) return {true, false, text + "  dominance: with " + std::to_string(fewer) + " ideas there are graphs already; more ideas are tried where none of them is verified\n"};
    }
    return {true, false, text + "  merge: the same values were reached by other operators at no more work\n"};
  }

  /// Every node of the body as a step on values; false, and why, at the first that a gate closes.
  bool walk(const Kernel& k, Engine& e, const std::vector<size_t>& load_of, std::vector<Derivation>& steps, std::vector<int>& targets, std::string& text) {
    const Graph& b = *k.body;
    std::vector<std::vector<int>> ids(static_cast<size_t>(b.num_values()));   // a concatenation is the list of its parts
    size_t next_input = 0;
    std::vector<int> made;
    for (NodeId n = 0; n < b.num_nodes(); n++) {
      const Node& node = b.node(n);
      if (b.form<Input>(n)) { ids[static_cast<size_t>(node.first_value)] = {e.values.loads()[load_of[next_input++]]}; continue; }
      if (b.form<Output>(n)) continue;
      if (const auto* c = b.form<Const>(n)) {
        for (int id : e.values.constants()) {
          const auto* own = ref_.graph().form<Const>(e.values.constant_node(id));
          if (c->extent_of.empty() ? own->extent_of.empty() && own->value == c->value : own->extent_of == c->extent_of) ids[static_cast<size_t>(node.first_value)] = {id};
        }
        if (ids[static_cast<size_t>(node.first_value)].empty()) { text += "  closed by gate type: the program has no constant " + std::to_string(c->value) + " here\n"; return false; }
        continue;
      }
      std::vector<int> operands;
      for (ValueId v : node.operands) operands.insert(operands.end(), ids[static_cast<size_t>(v)].begin(), ids[static_cast<size_t>(v)].end());
      if (b.form<Concat>(n)) { ids[static_cast<size_t>(node.first_value)] = operands; continue; }
      const SearchReport before = e.meter.report;
      const int id = step(e, b, n, operands, steps);
      if (id < 0) {
        text += "  closed at " + node_text(b, n) + closing_gate(before, e.meter.report) + "\n";
        return false;
      }
      if (std::count(made.begin(), made.end(), id) || std::count(e.values.loads().begin(), e.values.loads().end(), id)) {
        text += "  closed at " + node_text(b, n) + " by gate duplicate: an equal value is there already\n";
        return false;
      }
      made.push_back(id);
      ids[static_cast<size_t>(node.first_value)] = {id};
    }
    for (NodeId n : b.outputs()) targets.push_back(ids[static_cast<size_t>(b.node(n).operands[0])][0]);
    for (size_t t = 0; t < targets.size(); t++)
      if (e.values.target_of(targets[t]) != static_cast<int>(t)) { text += "  closed by gate fingerprint: result " + std::to_string(t) + " is not the program's, stored as the split says\n"; return false; }
    return true;
  }

  static std::string closing_gate(const SearchReport& before, const SearchReport& after) {
    for (size_t g = 0; g < after.gates.size(); g++)
      if (after.gates[g].closed > before.gates[g].closed) return std::string(" by gate ") + gate_name(static_cast<Gate>(g)) + ": " + gate_help(static_cast<Gate>(g));
    return " by gate type: kernels use the operators that the program has (and with a quotient the product)";
  }

  /// The value of node n, and the step that makes it; -1 if a gate closes it.
  int step(Engine& e, const Graph& b, NodeId n, std::vector<int> operands, std::vector<Derivation>& steps) {
    const Node& node = b.node(n);
    const auto& ops = e.values.operators();
    for (size_t op = 0; op < ops.size(); op++) {
      const bool view = is_view(node.op);
      if (static_cast<size_t>(ops[op].arity) != operands.size() || ops[op].over_blocks) continue;
      if (view ? ops[op].op.index() != node.op.index() : !(ops[op].op == node.op)) continue;
      if (ops[op].commutative) std::sort(operands.begin(), operands.end());
      // A product of concatenations is the sum of two products: that value is known by making it so.
      const int id = ops[op].is_concat ? concat_value(e, operands) : e.values.apply(static_cast<int>(op), operands);
      if (id < 0 && !view) return -1;
      if (id < 0) continue;
      if (view && !same_tile(e, id, b.dims(node.first_value))) continue;
      if (std::count(operands.begin(), operands.end(), id)) return id;   // changes nothing; the caller calls it a duplicate
      steps.push_back({static_cast<int>(op), operands, id});
      return id;
    }
    return -1;
  }

  static bool same_tile(const Engine& e, int id, const Dims& dims) {
    const BlockValue& v = e.values.value(id);
    if (static_cast<int>(v.tags.size()) != dims.rank()) return false;
    for (int d = 0; d < dims.rank(); d++) if (v.data.dims[v.data.dims.rank() - dims.rank() + d] != dims[d]) return false;
    return true;
  }

  /// Also puts the halves in the order in which the closure has them.
  static int concat_value(Engine& e, std::vector<int>& x) {
    int matmul = -1, add = -1;
    for (size_t op = 0; op < e.values.operators().size(); op++) {
      const BlockOp& o = e.values.operators()[op];
      if (std::holds_alternative<MatMul>(o.op) && !o.is_concat) matmul = static_cast<int>(op);
      if (const auto* m = std::get_if<Map>(&o.op); m && m->fn == MapFn::kAdd) add = static_cast<int>(op);
    }
    if (matmul < 0 || add < 0) return -1;
    const int a = e.values.apply(matmul, std::array{x[0], x[2]}), b = e.values.apply(matmul, std::array{x[1], x[3]});
    if (a > b) { std::swap(x[0], x[1]); std::swap(x[2], x[3]); }
    return a < 0 || b < 0 ? -1 : e.values.apply(add, std::array{std::min(a, b), std::max(a, b)});
  }

  const Reference& ref_;
  const Target& target_;
  const SearchOptions& options_;
  const std::vector<ValueId>& outputs_;
};

bool same_tensor(const FieldTensor& a, const FieldTensor& b) { return a.dims == b.dims && a.data == b.data; }

}  // namespace
}  // namespace search

WhyNot why_not(const Program& program, const Target& target, const SearchOptions& options, const Graph& given) {
  using namespace search;
  Reference ref = make_reference(program, options.seed);
  if (!ref.refusal.empty()) return {false, "not searched: " + ref.refusal + "\n"};
  auto worlds = std::make_shared<Worlds>(*make_worlds(program));
  std::vector<Type> types(program.inputs.size());
  for (NodeId n : given.inputs())
    if (const auto p = static_cast<size_t>(given.form<Input>(n)->param); p < types.size()) types[p] = given.type(given.node(n).first_value);
  const auto own = std::find_if(worlds->all.begin(), worlds->all.end(), [&](const auto& w) { return w.first == types; });
  if (own == worlds->all.end()) return {false, "the graph's inputs are not the program's, at its own sizes or at those of the search\n"};
  std::rotate(worlds->all.begin(), own, own + 1);
  Structure s{plain_graph(given), 0, 0, true, worlds};
  const auto even = instantiate(s, ref.even.params, halve(split_extents(s, ref.even.params)));
  if (!even) return {false, "the graph has no instance at the small sizes of the search: an extent that it names, or a law\n"};
  std::vector<ValueId> outputs = stored_values(program.graph);
  const Graph& g = *even;
  std::vector<FieldTensor> values(static_cast<size_t>(g.num_values()));
  std::vector<std::vector<ValueId>> is(values.size());   // the program's values that each is
  std::vector<ValueId> available;
  for (ValueId v = 0; v < program.graph.num_values(); v++) if (is_free(program.graph, v)) available.push_back(v);
  KernelWalk walk(ref, target, options, outputs);
  WhyNot out{true, ""};
  int kernels = 0;
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    if (node.first_value < 0) continue;
    std::vector<const FieldTensor*> args;
    for (ValueId v : node.operands) args.push_back(&values[static_cast<size_t>(v)]);
    std::vector<FieldTensor> made;
    const auto* call = g.form<Call>(n);
    if (const auto* in = g.form<Input>(n)) {
      for (NodeId m : program.graph.inputs()) if (program.graph.form<Input>(m)->param == in->param) made.push_back(ref.values[static_cast<size_t>(program.graph.node(m).first_value)]);
    } else if (call) {
      made = evaluate_call(*call->body, std::span<const FieldTensor* const>(args), ref.algebra);
    } else {
      made.push_back(evaluate_op(node.op, std::span<const FieldTensor* const>(args), ref.algebra));
    }
    for (int i = 0; i < node.num_values; i++) {
      auto& mine = is[static_cast<size_t>(node.first_value + i)];
      values[static_cast<size_t>(node.first_value + i)] = std::move(made[static_cast<size_t>(i)]);
      for (ValueId v = 0; v < program.graph.num_values(); v++) if (same_tensor(ref.values[static_cast<size_t>(v)], values[static_cast<size_t>(node.first_value + i)])) mine.push_back(v);
    }
    if (!call) continue;
    kernels++;
    out.text += "kernel " + std::to_string(kernels) + ":\n";
    Kernel k{call->body.get(), {}, {}};
    for (ValueId v : node.operands) k.leaves.push_back(is[static_cast<size_t>(v)]);
    std::vector<ValueId> targets;
    for (int i = 0; i < node.num_values; i++) {
      const auto& mine = is[static_cast<size_t>(node.first_value + i)];
      const auto wanted = std::find_if(mine.begin(), mine.end(), [&](ValueId v) { return !std::count(available.begin(), available.end(), v); });
      if (wanted == mine.end()) {
        out.in_space = false;
        out.text += "  closed: its result " + std::to_string(i) + " is no value of the program, whole; kernels end at values of the program, or at sums over blocks (structures with these are not walked through)\n";
        return out;
      }
      targets.push_back(*wanted);
    }
    k.problem = make_problem(program.graph, available, targets);
    const Answer v = walk.explain(k);
    out.text += v.text;
    out.in_space &= v.is_open;
    out.is_found = (kernels == 1 || out.is_found) && v.is_found;
    if (!v.is_open) return out;
    available.insert(available.end(), targets.begin(), targets.end());
    std::sort(available.begin(), available.end());
  }
  for (NodeId n : g.outputs()) {
    const auto& mine = is[static_cast<size_t>(g.node(n).operands[0])];
    if (std::count(mine.begin(), mine.end(), program.graph.node(program.graph.outputs()[static_cast<size_t>(g.form<Output>(n)->result)]).operands[0])) continue;
    out.in_space = false;
    out.text += "closed by gate fingerprint: result " + std::to_string(g.form<Output>(n)->result) + " is not the program's\n";
  }
  if (kernels > kMaxCutKernels || kernels > options.max_kernel_ops) {
    out.in_space = false;
    out.text += "closed by gate budget: " + std::to_string(kernels) + " graph-defined operators, at most " + std::to_string(std::min(kMaxCutKernels, options.max_kernel_ops)) + "\n";
  }
  if (kernels == 0) return {false, "the graph has no graph-defined operator: nothing that the search makes\n"};
  return out;
}

}  // namespace mirage
