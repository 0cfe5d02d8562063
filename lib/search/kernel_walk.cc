// Walking one kernel through the engine; see kernel_walk.h.
#include "search/kernel_walk.h"
#include <algorithm>
#include <map>

namespace mirage::search {

struct KernelWalk::Engine {   // as SplitSearch has them
  Engine(const Reference& ref, const Kernel& k, const Split& split, const SearchOptions& o, const std::vector<ValueId>& outputs,
         int max_block_ops)
      : meter(o.stop, {}),
        expressions(o.expression_gate ? reference_expressions(ref, k.problem, pool)
                                      : std::vector<ExprId>(static_cast<size_t>(ref.graph().num_values()), -1)),
        values(ref, k.problem, split, pool, expressions, o.expression_gate, meter),
        universe(values, k.problem.targets.size(), INT64_MAX, meter),
        search(ref, k.problem, split, values, o, stored_dtypes(ref.graph(), outputs, k.problem), max_block_ops, meter) {}
  Meter meter;
  ExprPool pool;
  std::vector<ExprId> expressions;
  BlockValues values;
  Universe universe;
  BlockSearch search;
};

namespace {

constexpr int64_t kMostEffort = 200'000'000;   // of the closure that a kernel needs; the published structures take under a million
constexpr size_t kMostTails = 256;             // ways to put parts together that are compared with the given one

/// g's node as text, for messages.
std::string node_text(const Graph& g, NodeId n) {
  const Node& node = g.node(n);
  std::string s = "%" + std::to_string(node.first_value) + " = " + form_name(node.op);
  if (const auto* m = std::get_if<Map>(&node.op)) s = "%" + std::to_string(node.first_value) + " = " + map_info(m->fn).name;
  for (ValueId v : node.operands) s += " %" + std::to_string(v);
  return s;
}

int operators(const Graph& body) {
  int n = 0;
  for (const Node& node : body.nodes())
    n += !std::holds_alternative<Input>(node.op) && !std::holds_alternative<Output>(node.op) && !std::holds_alternative<Const>(node.op) &&
         !std::holds_alternative<Concat>(node.op);
  return n;
}

std::string closed_text(const SearchReport& r) {
  std::string out;
  for (size_t g = 0; g < r.gates.size(); g++)
    if (r.gates[g].closed > 0)
      out += std::string("    gate ") + gate_name(static_cast<Gate>(g)) + ", " + std::to_string(r.gates[g].closed) +
             " times; first: " + r.gates[g].first_example + "\n";
  return out;
}

std::string closing_gate(const SearchReport& before, const SearchReport& after) {
  for (size_t g = 0; g < after.gates.size(); g++)
    if (after.gates[g].closed > before.gates[g].closed)
      return std::string(" by gate ") + gate_name(static_cast<Gate>(g)) + ": " + gate_help(static_cast<Gate>(g));
  return " by gate type: kernels use the operators that the program has (and with a quotient the product)";
}

bool has_tile(const BlockValue& v, const Dims& dims) {
  if (static_cast<int>(v.tags.size()) != dims.rank()) return false;
  for (int d = 0; d < dims.rank(); d++) if (v.data.dims[v.data.dims.rank() - dims.rank() + d] != dims[d]) return false;
  return true;
}

/// Also puts the halves in the order in which the closure has them.
int concat_value(BlockValues& values, std::vector<int>& x) {
  int matmul = -1, add = -1;
  for (size_t op = 0; op < values.operators().size(); op++) {
    const BlockOp& o = values.operators()[op];
    if (std::holds_alternative<MatMul>(o.op) && !o.is_concat) matmul = static_cast<int>(op);
    if (const auto* m = std::get_if<Map>(&o.op); m && m->fn == MapFn::kAdd) add = static_cast<int>(op);
  }
  if (matmul < 0 || add < 0) return -1;
  const int a = values.apply(matmul, std::array{x[0], x[2]}), b = values.apply(matmul, std::array{x[1], x[3]});
  if (a > b) { std::swap(x[0], x[1]); std::swap(x[2], x[3]); }
  return a < 0 || b < 0 ? -1 : values.apply(add, std::array{std::min(a, b), std::max(a, b)});
}

Partition renamed(const Partition& p, const std::array<int, 3>& axis) {
  Partition q;
  q.loop = p.loop;
  for (size_t a = 0; a < 3; a++) q.grid[static_cast<size_t>(axis[a])] = p.grid[a];
  return q;
}

const char* way_text(int way) {
  static const char* const kWays[] = {"", ", one tensor under two partitions", ", values computed again for each use"};
  return kWays[way];
}

/// Loads that are no one's, or the load for each input node of the body under these names of the axes; nullopt if an input has none.
std::optional<std::vector<size_t>> loads_of(const Kernel& k, const Split& split, const std::array<int, 3>& axis, std::vector<bool>& used) {
  std::vector<size_t> out;
  used.assign(split.loads.size(), false);
  for (NodeId n : k.body->inputs()) {
    const Input& in = *k.body->form<Input>(n);
    const Partition part = renamed(in.part, axis);
    const auto& leaves = k.leaves[static_cast<size_t>(in.param)];
    size_t l = 0;
    while (l < split.loads.size() && !(split.loads[l].part == part && std::count(leaves.begin(), leaves.end(), split.loads[l].leaf))) l++;
    if (l == split.loads.size()) return std::nullopt;
    used[l] = true;
    out.push_back(l);
  }
  return out;
}

}  // namespace

KernelWalk::KernelWalk(const Reference& ref, const Target& target, const SearchOptions& options, const std::vector<ValueId>& outputs,
                       SplitOptions which)
    : ref_(ref), target_(target), options_(options), loose_(options), outputs_(outputs), which_(std::move(which)) {
  loose_.merge = loose_.dominance = false;
}

/// The ways in which the enumerator tries splits, in its order: plain, one tensor under two partitions, values computed again.
Splits KernelWalk::splits(const Kernel& k, int way) const {
  SplitOptions which = which_;
  which.recompute = way == 2;
  which.apart = way == 1;
  return enumerate_splits(ref_.graph(), ref_.classes, k.problem, which);
}

Answer KernelWalk::explain(const Kernel& k) {
  std::string none;
  for (int way = 0; way < 3; way++) {
    const Splits all = splits(k, way);
    if (none.empty() && all.index_closed > 0) none = all.index_example;
    for (size_t i = 0; i < all.all.size(); i++) {
      std::vector<size_t> load_of;
      if (!matches(k, all.all[i], load_of)) continue;
      Answer v = under(k, all.all[i], load_of);
      v.text = "  split " + std::to_string(i + 1) + " of " + std::to_string(all.all.size()) + way_text(way) +
               (all.all[i].is_poor ? ", poor: searched where nothing better is verified" : "") + "\n" + v.text;
      return v;
    }
  }
  return {false, false,
          "  closed by gate index: no split of the program's indices loads and stores so" + (none.empty() ? "" : " (" + none + ")") + "\n"};
}

/// Whether the split has the loads and stores of the body, up to the names of its axes; load_of: by input node of the body, the load.
bool KernelWalk::matches(const Kernel& k, const Split& split, std::vector<size_t>& load_of) const {
  std::array<int, 3> axis{0, 1, 2};
  do {
    std::vector<bool> used;
    const auto loads = loads_of(k, split, axis, used);
    bool same = split.partial_axis < 0 && loads && !std::count(used.begin(), used.end(), false);
    const std::vector<NodeId> outputs = k.body->outputs();
    for (size_t r = 0; same && r < outputs.size(); r++) same = renamed(k.body->form<Output>(outputs[r])->part, axis) == split.stores[r];
    if (!same) continue;
    load_of = *loads;
    return true;
  } while (std::next_permutation(axis.begin(), axis.end()));
  return false;
}

Answer KernelWalk::under(const Kernel& k, const Split& split, const std::vector<size_t>& load_of) {
  if (!fits_memory(ref_.graph(), split, target_))
    return {false, false, "  closed by gate memory: tiles of at least " + std::to_string(least_bytes(ref_.graph(), split)) + " bytes\n"};
  const int max_block_ops = std::max(options_.max_block_ops, block_ops_needed(ref_.graph(), k.problem, split));
  Engine e(ref_, k, split, options_, outputs_, max_block_ops);
  if (!e.values.fits()) return {false, false, "  closed by gate type: more than 8 dimensions with blocks and iterations\n"};
  e.meter.begin({});
  std::string text;
  Walked walked;
  if (!walk(k, e, load_of, walked, text)) return {false, false, text};
  const auto& steps = walked.steps;   // no structured binding: a lambda below takes it, which clang 14 refuses
  const auto& targets = walked.results;
  for (size_t t = 0; t < targets.size(); t++)
    if (e.values.target_of(targets[t]) != static_cast<int>(t))
      return {false, false,
              text + "  closed by gate fingerprint: result " + std::to_string(t) + " is not the program's, stored as the split says\n"};
  int ideas = 0;
  for (const Derivation& d : steps) ideas += e.values.is_idea(d.op, d.result);
  if (ideas > options_.max_ideas)
    return {false, false,
            "  closed by gate budget: " + std::to_string(ideas) + " ideas, --max-ideas is " + std::to_string(options_.max_ideas) + "\n"};
  // The closure has every step, and the growth restricted to them comes to the graph: no rank, bound or law is in its way.
  e.meter.begin({kMostEffort, options_.max_bytes > 0 ? options_.max_bytes : kNoLimit});
  for (int i = 0; i <= ideas; i++) e.universe.close_to(i);
  if (e.meter.end() != End::kWhole)
    return {false, false, "  not decided: the closure with " + std::to_string(ideas) + " ideas is too large\n"};
  const std::vector<Derivation> useful = e.universe.useful();
  for (const Derivation& d : steps) {
    const auto same = [&](const Derivation& o) { return o.op == d.op && o.operands == d.operands && o.result == d.result; };
    if (std::none_of(useful.begin(), useful.end(), same))
      return {false, false,
              "  closed by gate budget: " + e.values.describe(d.op, d.operands) + " is not on a way to the results with " +
                  std::to_string(ideas) + " ideas\n"};
  }
  const bool concat = std::any_of(steps.begin(), steps.end(),
                                  [&](const Derivation& d) { return e.values.operators()[static_cast<size_t>(d.op)].is_concat; });
  e.meter.begin({});
  const std::vector<BlockCandidate> grown = e.search.run_on(steps, targets, ideas, false, concat, 16);
  const auto whole = std::find_if(grown.begin(), grown.end(),
                                  [&](const BlockCandidate& c) { return operators(c.body) == static_cast<int>(steps.size()); });
  if (whole == grown.end())
    return {false, false, "  closed: the growth of exactly these operators does not come to a graph\n" + closed_text(e.meter.report)};
  text += "  in the space: " + std::to_string(ideas) + (ideas == 1 ? " idea, " : " ideas, ") +
          std::to_string(count_block_ops(whole->body)) + " of " + std::to_string(max_block_ops) + " block operators; no gate closes it\n";
  if (!options_.dominance) return {true, false, text};
  return against_others(e, *whole, ideas, concat, text);
}

namespace {

/// The axis whose blocks lie side by side along the leading dimension of all results, -1: there is none.
int axis_of_parts(const Graph& body) {
  int axis = -1;
  for (NodeId n : body.outputs()) {
    const Partition& p = body.form<Output>(n)->part;
    for (int a = 0; a < 3; a++) {
      if (p.grid[static_cast<size_t>(a)] != 0) continue;
      if (axis >= 0 && a != axis) return -1;
      axis = a;
    }
  }
  return axis;
}

std::optional<Dims> without_first(const Dims& dims) {
  if (dims.rank() == 0 || dims[0] != 1) return std::nullopt;
  Dims out;
  for (int d = 1; d < dims.rank(); d++) out.push_back(dims[d]);
  return out;
}

Partition without_first(Partition p) {
  for (int8_t& d : p.grid) if (d >= 0) d--;
  if (p.loop >= 0) p.loop--;
  return p;
}

/// The body without the leading dimension of its operands and results; nullopt if it uses that for anything but to lay parts side by side.
std::optional<Graph> without_first(const Graph& body) {
  Builder b(Level::kBlock, body.launch());
  for (NodeId n = 0; n < body.num_nodes(); n++) {
    const Node& node = body.node(n);
    Op op = node.op;
    if (const auto* in = body.form<Input>(n)) {
      const auto dims = without_first(body.dims(node.first_value));
      if (!dims || in->part.loop == 0 || std::count(in->part.grid.begin(), in->part.grid.end(), 0)) return std::nullopt;
      b.add_input(in->param, {body.type(node.first_value).dtype, *dims}, without_first(in->part));
      continue;
    }
    if (auto* r = std::get_if<Reduce>(&op)) { if (r->dim-- == 0) return std::nullopt; }
    if (auto* c = std::get_if<Concat>(&op)) { if (c->dim-- == 0) return std::nullopt; }
    if (auto* o = std::get_if<Output>(&op)) o->part = without_first(o->part);
    if (auto* r = std::get_if<Reshape>(&op)) {
      const auto dims = without_first(r->dims);
      if (!dims) return std::nullopt;
      r->dims = *dims;
    }
    if (auto* t = std::get_if<Transpose>(&op)) {
      Transpose moved;
      if (t->perm[0] != 0) return std::nullopt;
      for (size_t i = 0; i + 1 < kMaxRank; i++) moved.perm[i] = static_cast<int8_t>(std::max(t->perm[i + 1] - 1, 0));
      op = moved;
    }
    if (!b.try_add(std::move(op), node.operands)) return std::nullopt;
  }
  return b.graph();
}

}  // namespace

Answer KernelWalk::explain_parts(const Kernel& k, const std::vector<FieldTensor>& results, const AskSecond& second) {
  if (!which_.partial)
    return {false, false, "  closed: sums are split over blocks where the two kernels are the whole; without dominance anywhere\n"};
  const int axis = axis_of_parts(*k.body);
  const auto body = axis < 0 ? std::nullopt : without_first(*k.body);
  if (!body)
    return {false, false,
            "  closed: its results are no values of the program, whole, and no parts of sums as the search writes them: one leading "
            "dimension of 1 in all operands, along which one axis of the grid lays results side by side\n"};
  Kernel plain = k;
  plain.body = &*body;
  Answer first{false, false, "  closed by gate index: no split of the program's indices with parts of sums loads so\n"};
  bool is_first = true;
  for (int way = 0; way < 3; way++) {
    const Splits all = splits(plain, way);
    for (size_t i = 0; i < all.all.size(); i++) {
      std::vector<size_t> load_of;
      if (!matches_parts(plain, axis, all.all[i], load_of)) continue;
      Answer a = under_parts(plain, all.all[i], load_of, results, second);
      a.text = "  split " + std::to_string(i + 1) + " of " + std::to_string(all.all.size()) + way_text(way) + ", sums split over blocks" +
               (all.all[i].is_poor ? ", poor: searched where nothing better is verified" : "") + "\n" + a.text;
      if (a.is_open) return a;
      if (is_first) first = std::move(a);   // others may load the same and differ in what the second kernel loads
      is_first = false;
    }
  }
  return first;
}

/// As matches(), for a kernel before sums over blocks: what the split loads for the other kernel is none of its own.
bool KernelWalk::matches_parts(const Kernel& k, int axis_of_parts, const Split& split, std::vector<size_t>& load_of) const {
  if (split.partial_axis < 0) return false;
  std::array<int, 3> axis{0, 1, 2};
  do {
    std::vector<bool> used;
    const auto loads = loads_of(k, split, axis, used);
    if (!loads || axis[static_cast<size_t>(axis_of_parts)] != split.partial_axis) continue;
    load_of = *loads;
    return true;
  } while (std::next_permutation(axis.begin(), axis.end()));
  return false;
}

Answer KernelWalk::under_parts(const Kernel& k, const Split& split, const std::vector<size_t>& load_of,
                               const std::vector<FieldTensor>& results, const AskSecond& second) {
  if (!fits_memory(ref_.graph(), split, target_))
    return {false, false, "  closed by gate memory: tiles of at least " + std::to_string(least_bytes(ref_.graph(), split)) + " bytes\n"};
  const int max_block_ops = std::max(options_.max_block_ops, block_ops_needed(ref_.graph(), k.problem, split));
  Engine e(ref_, k, split, loose_, outputs_, max_block_ops);
  if (!e.values.fits()) return {false, false, "  closed by gate type: more than 8 dimensions with blocks and iterations\n"};
  e.meter.begin({});
  std::string text;
  Walked walked;
  if (!walk(k, e, load_of, walked, text)) return {false, false, text};
  Answer last{false, false,
              "  closed by gate budget: with " + std::to_string(options_.max_ideas) + " ideas the results cannot be made of these parts\n"};
  e.meter.begin({kMostEffort, options_.max_bytes > 0 ? options_.max_bytes : kNoLimit});
  for (int ideas = 0; ideas <= options_.max_ideas; ideas++) {
    const bool reached = e.universe.close_to(ideas);
    if (e.meter.end() != End::kWhole)
      return {false, false, "  not decided: the closure with " + std::to_string(ideas) + " ideas is too large\n"};
    if (!reached) continue;
    // Its own operators, and all that may stand behind sums over blocks: what the second kernel is asked to do follows from the values that
    // are summed, not from its operators.
    std::vector<Derivation> steps = walked.steps;
    for (Derivation& d : e.universe.useful()) {
      const auto same = [&](const Derivation& o) { return o.op == d.op && o.operands == d.operands; };
      if (e.values.value(d.result).blocks != BlocksPhase::kPart && std::none_of(walked.steps.begin(), walked.steps.end(), same))
        steps.push_back(std::move(d));
    }
    std::vector<int> targets;
    for (size_t t = 0; t < k.problem.targets.size(); t++) targets.push_back(e.universe.target(t));
    const auto grown = e.search.run_on(steps, targets, ideas, false, false, kMostTails);
    for (const BlockCandidate& c : grown) {
      std::vector<size_t> order;
      if (!c.tail || operators(c.body) != static_cast<int>(walked.steps.size()) || !same_results(c, results, order)) continue;
      Answer a = second(*c.tail, order);
      const std::string mine = "  in the space: " + std::to_string(ideas) + (ideas == 1 ? " idea" : " ideas") +
                               " with what is behind its sums, " + std::to_string(count_block_ops(c.body)) + " of " +
                               std::to_string(max_block_ops) + " block operators; no gate closes it\n";
      a.text = text + mine + a.text;
      if (!a.is_open) { last = std::move(a); continue; }
      a.is_found &= options_.dominance && is_among_best(k, split, c, ideas, max_block_ops, a.text);
      return a;
    }
  }
  return last;
}

/// Whether the candidate leaves these results, order: by part of its tail, the number of the result.
bool KernelWalk::same_results(const BlockCandidate& c, const std::vector<FieldTensor>& results, std::vector<size_t>& order) const {
  std::vector<FieldTensor> operands;
  for (ValueId v : c.operands) {
    operands.push_back(ref_.values[static_cast<size_t>(v)]);
    Dims dims{1};
    for (int64_t e : operands.back().dims) dims.push_back(e);
    operands.back().dims = dims;
  }
  std::vector<const FieldTensor*> args;
  for (const FieldTensor& t : operands) args.push_back(&t);
  FieldAlgebra algebra = ref_.algebra;
  const std::vector<FieldTensor> made = evaluate_call(c.body, std::span<const FieldTensor* const>(args), algebra);
  if (made.size() != results.size()) return false;
  for (const FieldTensor& m : made) {
    const auto it = std::find_if(results.begin(), results.end(), [&](const FieldTensor& r) { return same_tensor(r, m); });
    if (it == results.end() || std::count(order.begin(), order.end(), static_cast<size_t>(it - results.begin()))) return false;
    order.push_back(static_cast<size_t>(it - results.begin()));
  }
  return true;
}

/// What merging and dominance make of a kernel before sums over blocks, together with what is behind them.
bool KernelWalk::is_among_best(const Kernel& k, const Split& split, const BlockCandidate& mine, int ideas, int max_block_ops,
                               std::string& text) const {
  Engine e(ref_, k, split, options_, outputs_, max_block_ops);
  e.meter.begin({kMostEffort, kNoLimit});
  for (int fewer = 0; fewer <= ideas; fewer++) {
    if (!e.universe.close_to(fewer)) continue;
    const std::vector<BlockCandidate> best = e.search.run(e.universe, fewer, true, false, SIZE_MAX);
    if (std::any_of(best.begin(), best.end(), [&](const BlockCandidate& c) {
          return c.body == mine.body && c.tail && c.tail->program.canonical == mine.tail->program.canonical;
        })) {
      text += "  found: no other graph beats the two\n";
      return true;
    }
    for (const BlockCandidate& c : best) {
      if (!c.beats(mine)) continue;
      text += "  dominance: at the witness the two take work " + std::to_string(mine.work) + " and memory " + std::to_string(mine.memory) +
              ", others " + std::to_string(c.work) + " and " + std::to_string(c.memory) + ":\n" + print(c.body, "better");
      return false;
    }
    if (fewer < ideas && !best.empty()) {
      text += "  dominance: with " + std::to_string(fewer) +
              " ideas there are graphs already; more ideas are tried where none of them is verified\n";
      return false;
    }
  }
  text += "  merge: the same values were reached by other operators at no more work\n";
  return false;
}

/// What merging and dominance make of it.
Answer KernelWalk::against_others(Engine& e, const BlockCandidate& mine, int ideas, bool concat, std::string text) {
  if (concat)
    return {true, false,
            text +
                "  dominance: products of concatenations are handed out without dominance only, a planner has no concatenation inside a "
                "block\n"};
  for (int fewer = 0; fewer <= ideas; fewer++) {
    e.meter.begin({kMostEffort, kNoLimit});
    if (!e.universe.close_to(fewer)) continue;
    const std::vector<BlockCandidate> best = e.search.run(e.universe, fewer, true, false, SIZE_MAX);
    if (std::any_of(best.begin(), best.end(), [&](const BlockCandidate& c) { return c.body == mine.body; }))
      return {true, true, text + "  found: no other graph beats it\n"};
    for (const BlockCandidate& c : best)
      if (c.beats(mine))
        return {true, false,
                text + "  dominance: at the witness it takes work " + std::to_string(mine.work) + " and memory " +
                    std::to_string(mine.memory) + ", this one " + std::to_string(c.work) + " and " + std::to_string(c.memory) + ":\n" +
                    print(c.body, "better")};
    if (fewer < ideas && !best.empty())
      return {true, false,
              text + "  dominance: with " + std::to_string(fewer) +
                  " ideas there are graphs already; more ideas are tried where none of them is verified\n"};
  }
  return {true, false, text + "  merge: the same values were reached by other operators at no more work\n"};
}

/// Every node of the body as a step on values; false, and why, at the first that a gate closes.
bool KernelWalk::walk(const Kernel& k, Engine& e, const std::vector<size_t>& load_of, Walked& out, std::string& text) {
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
        if (c->extent_of.empty() ? own->extent_of.empty() && own->value == c->value : own->extent_of == c->extent_of)
          ids[static_cast<size_t>(node.first_value)] = {id};
      }
      if (ids[static_cast<size_t>(node.first_value)].empty()) {
        text += "  closed by gate type: the program has no constant " + std::to_string(c->value) + " here\n";
        return false;
      }
      continue;
    }
    std::vector<int> operands;
    for (ValueId v : node.operands) operands.insert(operands.end(), ids[static_cast<size_t>(v)].begin(), ids[static_cast<size_t>(v)].end());
    if (b.form<Concat>(n)) { ids[static_cast<size_t>(node.first_value)] = operands; continue; }
    const SearchReport before = e.meter.report;
    const int id = step(e, b, n, operands, out.steps);
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
  for (NodeId n : b.outputs()) out.results.push_back(ids[static_cast<size_t>(b.node(n).operands[0])][0]);
  return true;
}

/// The value of node n, and the step that makes it; -1 if a gate closes it.
int KernelWalk::step(Engine& e, const Graph& b, NodeId n, std::vector<int> operands, std::vector<Derivation>& steps) {
  const Node& node = b.node(n);
  const auto& ops = e.values.operators();
  for (size_t op = 0; op < ops.size(); op++) {
    const bool view = is_view(node.op);
    if (static_cast<size_t>(ops[op].arity) != operands.size() || ops[op].over_blocks) continue;
    if (view ? ops[op].op.index() != node.op.index() : !(ops[op].op == node.op)) continue;
    if (ops[op].commutative) std::sort(operands.begin(), operands.end());
    // A product of concatenations is the sum of two products: that value is known by making it so.
    const int id = ops[op].is_concat ? concat_value(e.values, operands) : e.values.apply(static_cast<int>(op), operands);
    if (id < 0 && !view) return -1;
    if (id < 0) continue;
    if (view && !has_tile(e.values.value(id), b.dims(node.first_value))) continue;
    if (std::count(operands.begin(), operands.end(), id)) return id;   // changes nothing; the caller calls it a duplicate
    steps.push_back({static_cast<int>(op), operands, id});
    return id;
  }
  return -1;
}

}  // namespace mirage::search
