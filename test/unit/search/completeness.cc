// Completeness of the enumeration (shared design, search section 6), against a brute force that shares nothing with it but the alphabet of
// operators: every partition of every input, every set of operators, graphs as sets of terms, so that isomorphic ones, and those that
// differ in the order of commutative operands, are one. With the expression gate on, merging and dominance off, the search must have
// exactly those graphs whose expression equals the program's by the axioms, in which no value is there twice, and which do not apply
// functions between an accumulator and the sum that reduces its tile (x/n summed instead of a sum / n: the same with more work); with
// merging and dominance on, each of them must be matched by a found graph that costs no more.
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include "helpers.h"
#include "search/growth/block_values.h"
#include "search/problem/reference.h"

using namespace mirage;
using namespace mirage::search;
using namespace helpers;

namespace {

std::string text_of(const Op& op) {
  if (const auto* m = std::get_if<Map>(&op)) return map_info(m->fn).name;
  if (const auto* r = std::get_if<Reduce>(&op)) return std::string("reduce.") + reduce_name(r->fn) + std::to_string(r->dim);
  if (const auto* a = std::get_if<Accum>(&op)) return std::string("accum.") + reduce_name(a->fn);
  if (const auto* c = std::get_if<Const>(&op)) {
    std::string s = "const";
    for (auto [p, d] : c->extent_of) s += " " + std::to_string(p) + "." + std::to_string(d);
    return c->extent_of.empty() ? s + std::to_string(c->value) : s;
  }
  return form_name(op);
}

std::string text_of(const Partition& p) { return "[" + std::to_string(p.grid[0]) + "|" + std::to_string(p.loop) + "]"; }

bool is_commuting(const Op& op) {
  const auto* m = std::get_if<Map>(&op);
  return m && is_commutative(m->fn);
}

std::string term_text(const Op& op, std::vector<std::string> operands) {
  if (is_commuting(op)) std::sort(operands.begin(), operands.end());
  std::string s = text_of(op) + "(";
  for (const std::string& o : operands) s += o + ",";
  return s + ")";
}

/// A graph of one kernel without its order and names: the terms of its results, inputs with their partitions, and how results are stored.
std::string canonical(const Graph& g) {
  const Graph& b = body(g);
  std::vector<std::string> text(static_cast<size_t>(b.num_values()));
  std::string out = b.launch().loop > 1 ? "loop " : "";
  for (NodeId n = 0; n < b.num_nodes(); n++) {
    const Node& node = b.node(n);
    std::vector<std::string> in;
    for (ValueId v : node.operands) in.push_back(text[static_cast<size_t>(v)]);
    if (const auto* i = b.form<Input>(n)) text[static_cast<size_t>(node.first_value)] = "in" + std::to_string(i->param) + text_of(i->part);
    else if (const auto* o = b.form<Output>(n)) out += in[0] + " -> " + text_of(o->part);
    else text[static_cast<size_t>(node.first_value)] = std::holds_alternative<Const>(node.op) ? text_of(node.op) : term_text(node.op, in);
  }
  return out;
}

int operators(const Graph& b) {
  int n = 0;
  for (const Node& node : b.nodes())
    n += !std::holds_alternative<Input>(node.op) && !std::holds_alternative<Output>(node.op) && !std::holds_alternative<Const>(node.op);
  return n;
}

/// Everything with one input per parameter, one grid axis and a loop at most, and so many operators.
class BruteForce {
 public:
  /// maps_folded: a function of a tile that an accumulator added up and no sum has reduced yet
  struct Found { Graph graph; bool same_expression = false, has_twice = false, maps_folded = false; };

  BruteForce(const Program& p, int most) : program_(p), ref_(make_reference(p, 0)), most_(most) {
    REQUIRE(ref_.refusal.empty());
    std::vector<ValueId> leaves, targets;
    for (NodeId n : p.graph.inputs()) leaves.push_back(p.graph.node(n).first_value);
    for (NodeId n : p.graph.outputs()) targets.push_back(p.graph.node(n).operands[0]);
    REQUIRE(targets.size() == 1);
    problem_ = make_problem(p.graph, leaves, targets);
    expression_ = reference_expressions(ref_, problem_, pool_)[static_cast<size_t>(targets[0])];
    worlds_ = make_worlds(p);
    choose(0, {});
  }

  std::map<std::string, Found> found;
  int64_t graphs = 0;   ///< complete ones that were evaluated

 private:
  /// folded: the loop's tiles were added up
  struct Tag { int cls = -1; bool grid = false, loop = false, folded = false; friend bool operator==(const Tag&, const Tag&) = default; };
  struct Term { Op op; std::vector<int> operands; std::string text; Type type; std::vector<Tag> tags; ExprId expr = -1; };

  void choose(size_t param, std::vector<Partition> parts) {
    if (param == program_.inputs.size()) return search(parts);
    const Dims& dims = ref_.even.params[param].dims;
    for (int8_t g = -1; g < dims.rank(); g++)
      for (int8_t l = -1; l < dims.rank(); l++) {
        if ((g >= 0 && dims[g] % 2) || (l >= 0 && dims[l] % 2) || (g >= 0 && g == l && dims[g] % 4)) continue;
        parts.resize(param);
        Partition p;
        p.grid[0] = g;
        p.loop = l;
        parts.push_back(p);
        choose(param + 1, parts);
      }
  }

  void search(const std::vector<Partition>& parts) {
    launch_ = {};
    loop_classes_.clear();
    terms_.clear();
    by_text_.clear();
    visited_.clear();
    parts_ = parts;
    for (size_t i = 0; i < parts.size(); i++) {
      if (parts[i].grid[0] >= 0) launch_.grid[0] = 2;
      if (parts[i].loop >= 0) launch_.loop = 2;
    }
    const Graph& g = program_.graph;
    std::vector<int> state;
    for (size_t i = 0; i < parts.size(); i++) {
      ValueId v = -1;
      for (NodeId n : g.inputs()) if (g.form<Input>(n)->param == static_cast<int>(i)) v = g.node(n).first_value;
      Term t{Input{static_cast<int>(i), parts[i]}, {}, "in" + std::to_string(i) + text_of(parts[i]), ref_.even.params[i], {},
             pool_.input(static_cast<int>(i))};
      for (int c : ref_.classes.of[static_cast<size_t>(v)]) t.tags.push_back({c});
      if (const int8_t d = parts[i].grid[0]; d >= 0) { t.type.dims[d] /= 2; t.tags[static_cast<size_t>(d)].grid = true; }
      if (const int8_t d = parts[i].loop; d >= 0) {
        t.type.dims[d] /= 2;
        t.tags[static_cast<size_t>(d)].loop = true;
        loop_classes_.insert(t.tags[static_cast<size_t>(d)].cls);
      }
      state.push_back(add(std::move(t)));
    }
    first_constant_ = static_cast<int>(state.size());
    for (NodeId n : problem_.inside)
      if (const auto* c = g.form<Const>(n)) {
        const int id = add({ref_.even.graph.node(n).op,
                            {},
                            text_of(g.node(n).op),
                            ref_.even.graph.type(g.node(n).first_value),
                            {},
                            constant_expression(ref_, *c, pool_)});
        if (!std::count(state.begin(), state.end(), id)) state.push_back(id);
      }
    first_operator_ = static_cast<int>(state.size());
    ops_.clear();
    for (const BlockOp& o : block_operators(ref_, problem_, launch_.loop > 1, false)) if (!o.is_concat) ops_.push_back(o.op);
    grow(state, 0);
  }

  int add(Term t) {
    const auto [it, fresh] = by_text_.emplace(t.text, static_cast<int>(terms_.size()));
    if (fresh) terms_.push_back(std::move(t));
    return it->second;
  }

  /// Whether nothing reads the term.
  std::vector<int> unread(const std::vector<int>& state) const {
    std::vector<int> out;
    for (int id : state) {
      if (id >= first_constant_ && id < first_operator_) continue;
      if (std::none_of(state.begin(), state.end(), [&](int o) {
            return std::count(terms_[static_cast<size_t>(o)].operands.begin(), terms_[static_cast<size_t>(o)].operands.end(), id) > 0;
          }))
        out.push_back(id);
    }
    return out;
  }

  void grow(const std::vector<int>& state, int count) {
    std::vector<int> key = state;
    std::sort(key.begin(), key.end());
    if (!visited_.insert(key).second) return;
    const std::vector<int> open = unread(state);
    if (count > 0 && open.size() == 1) complete(state, open[0]);
    if (count == most_ || static_cast<int>(open.size()) - 1 > most_ - count) return;   // an operator joins two values at most
    for (const Op& op : ops_) {
      const bool two = std::holds_alternative<MatMul>(op) || (std::holds_alternative<Map>(op) && map_info(std::get<Map>(op).fn).arity == 2);
      for (size_t i = 0; i < state.size(); i++) {
        if (!two) { step(state, count, op, {state[i]}); continue; }
        for (size_t j = is_commuting(op) ? i : 0; j < state.size(); j++) step(state, count, op, {state[i], state[j]});
      }
    }
  }

  void step(const std::vector<int>& state, int count, const Op& op, std::vector<int> operands) {
    std::vector<std::string> texts;
    for (int id : operands) texts.push_back(terms_[static_cast<size_t>(id)].text);
    Term t{op, operands, term_text(op, texts), {}, {}, -1};
    int id = -1;
    if (const auto it = by_text_.find(t.text); it != by_text_.end()) {
      id = it->second;
    } else {
      std::vector<Type> types;
      for (int o : operands) types.push_back(terms_[static_cast<size_t>(o)].type);
      const Inferred inferred = infer(op, types, Level::kBlock);
      if (!inferred.ok()) return;
      t.type = inferred.types[0];
      describe(t);
      id = add(std::move(t));
    }
    if (std::count(state.begin(), state.end(), id)) return;
    std::vector<int> next = state;
    next.push_back(id);
    grow(next, count + 1);
  }

  /// Tags and expression of a new term; no expression if it joins dimensions that are split otherwise.
  void describe(Term& t) {
    const Term& a = terms_[static_cast<size_t>(t.operands[0])];
    bool known = a.expr >= 0;
    std::vector<ExprId> x;
    for (int o : t.operands) { x.push_back(terms_[static_cast<size_t>(o)].expr); known &= x.back() >= 0; }
    auto extents = [](Tag tag) {
      std::vector<int> s;
      if (tag.cls < 0) return s;
      s.push_back(extent_symbol(tag.cls, Part::kTile));
      if (!tag.loop && !tag.folded) s.push_back(extent_symbol(tag.cls, Part::kLoop));
      if (!tag.grid) s.push_back(extent_symbol(tag.cls, Part::kGrid));
      return s;
    };
    t.tags = a.tags;
    if (const auto* m = std::get_if<Map>(&t.op)) {
      t.tags.assign(static_cast<size_t>(t.type.dims.rank()), {});
      for (int o : t.operands) {
        const std::vector<Tag>& tags = terms_[static_cast<size_t>(o)].tags;
        for (size_t d = 0; d < tags.size(); d++) {
          Tag& to = t.tags[d + t.tags.size() - tags.size()];
          if (tags[d].cls < 0) continue;
          if (to.cls >= 0) known &= to == tags[d];
          to = tags[d];
        }
      }
      if (known) t.expr = pool_.map(m->fn, x);
    } else if (std::holds_alternative<MatMul>(t.op)) {
      const Term& b = terms_[static_cast<size_t>(t.operands[1])];
      const size_t r = a.tags.size();
      known &= a.tags[r - 1] == b.tags[r - 2];
      for (size_t d = 0; d + 2 < r; d++) {
        if (a.tags[d].cls >= 0 && b.tags[d].cls >= 0) known &= a.tags[d] == b.tags[d];
        t.tags[d] = a.tags[d].cls < 0 ? b.tags[d] : a.tags[d];
      }
      t.tags[r - 1] = b.tags[r - 1];
      if (known) t.expr = pool_.matmul(x[0], x[1], extents(a.tags[r - 1]));
    } else if (const auto* r = std::get_if<Reduce>(&t.op)) {
      if (known)
        t.expr = r->fn == ReduceFn::kSum ? pool_.sum(x[0], extents(a.tags[static_cast<size_t>(r->dim)]))
                                         : pool_.max(x[0], extents(a.tags[static_cast<size_t>(r->dim)]));
      t.tags[static_cast<size_t>(r->dim)] = {};
    } else if (const auto* acc = std::get_if<Accum>(&t.op)) {
      known &= loop_classes_.size() == 1;
      const int s[] = {loop_classes_.empty() ? 0 : extent_symbol(*loop_classes_.begin(), Part::kLoop)};
      if (known) t.expr = acc->fn == ReduceFn::kSum ? pool_.sum(x[0], s) : pool_.max(x[0], s);
      for (Tag& tag : t.tags) tag.folded |= std::exchange(tag.loop, false);
    }
  }

  void complete(const std::vector<int>& state, int last) {
    const Dims& whole = ref_.even.graph.dims(problem_.targets[0]);
    const Type& type = terms_[static_cast<size_t>(last)].type;
    if (type.dims.rank() != whole.rank()) return;
    for (int8_t d = launch_.grid[0] > 1 ? 0 : -1; d < (launch_.grid[0] > 1 ? whole.rank() : 0); d++) {
      Dims dims = type.dims;
      if (d >= 0) dims[d] *= 2;
      if (dims == whole) evaluate_graph(state, last, d);
    }
  }

  void evaluate_graph(const std::vector<int>& state, int last, int8_t stored) {
    Builder b(Level::kBlock, launch_);
    std::map<int, ValueId> at;
    bool has_twice = false, maps_folded = false;
    std::set<std::pair<std::string, ExprId>> seen;
    for (int id : state) {
      const Term& t = terms_[static_cast<size_t>(id)];
      if (id >= first_constant_ && id < first_operator_) {
        if (std::none_of(state.begin(), state.end(), [&](int o) {
              const auto& in = terms_[static_cast<size_t>(o)].operands;
              return std::count(in.begin(), in.end(), id) > 0;
            }))
          continue;
      }
      if (const auto* in = std::get_if<Input>(&t.op)) { at[id] = b.add_input(in->param, t.type, in->part); }
      else {
        std::vector<ValueId> operands;
        for (int o : t.operands) operands.push_back(at[o]);
        const auto v = b.try_add(t.op, operands);
        if (!v) return;
        at[id] = *v;
      }
    }
    const DType stored_type = program_.graph.form<Output>(program_.graph.outputs()[0])->dtype;
    Partition part;
    part.grid[0] = stored;
    b.add_output(0, at[last], stored_type, part);
    if (check_laws(b.graph())) return;
    const Graph block = std::move(b).finish();
    const std::vector<Phase> phase = phases(block);
    for (const auto& [id, v] : at) {
      const Term& t = terms_[static_cast<size_t>(id)];
      for (int o : t.operands)
        for (const Tag& tag : terms_[static_cast<size_t>(o)].tags) maps_folded |= tag.folded && std::holds_alternative<Map>(t.op);
      if (t.expr < 0) continue;
      std::string where = std::to_string(static_cast<int>(phase[static_cast<size_t>(v)]));
      for (const Tag& tag : t.tags)
        where += " " + std::to_string(tag.cls) + (tag.grid ? "g" : "") + (tag.loop ? "l" : "") + (tag.folded ? "f" : "");
      has_twice |= !seen.insert({where, t.expr}).second;
    }
    Builder k(Level::kKernel);
    std::vector<ValueId> params;
    for (size_t i = 0; i < ref_.even.params.size(); i++) params.push_back(k.add_input(static_cast<int>(i), ref_.even.params[i]));
    const auto result = k.try_add(Call{std::make_shared<const Graph>(block)}, params);
    if (!result) return;
    k.add_output(0, *result, stored_type);
    if (check_laws(k.graph())) return;
    graphs++;
    std::vector<FieldTensor> inputs;
    for (NodeId n : program_.graph.inputs()) inputs.push_back(ref_.values[static_cast<size_t>(program_.graph.node(n).first_value)]);
    const auto out = evaluate(k.graph(), std::span<const FieldTensor>(inputs), ref_.algebra);
    const bool zero = ref_.algebra.zero_division();
    ref_.algebra.clear_zero_division();
    if (zero || out[0].data != ref_.values[static_cast<size_t>(problem_.targets[0])].data) return;
    const Structure s{k.graph(), 0, 1, true, worlds_};
    const auto ragged = instantiate(s, ref_.ragged.params, halve(split_extents(s, ref_.ragged.params)));
    if (!ragged) return;
    const auto odd = evaluate(*ragged, std::span<const FieldTensor>(ref_.params_ragged), ref_.algebra);
    ref_.algebra.clear_zero_division();
    if (odd[0].data != ref_.results_ragged[0].data) return;
    found.emplace(canonical(k.graph()), Found{k.graph(), terms_[static_cast<size_t>(last)].expr == expression_, has_twice, maps_folded});
  }

  const Program& program_;
  Reference ref_;
  ExprPool pool_;
  Problem problem_;
  ExprId expression_ = -1;
  std::shared_ptr<const Worlds> worlds_;
  int most_;
  std::vector<Partition> parts_;
  Launch launch_;
  std::set<int> loop_classes_;
  std::vector<Term> terms_;
  std::map<std::string, int> by_text_;
  std::set<std::vector<int>> visited_;
  std::vector<Op> ops_;
  int first_constant_ = 0, first_operator_ = 0;
};

/// The key with no grid axis in any partition.
std::string without_axes(std::string key) {
  for (size_t i = 0; (i = key.find('[', i)) != std::string::npos; i++) {
    const size_t bar = key.find('|', i);
    key.replace(i + 1, bar - i - 1, "-1");
  }
  return key;
}

/// What a graph with one kernel costs: elements loaded by all blocks, element operations, elements that a block holds.
struct Cost {
  int64_t traffic = 0, work = 0, memory = 0;
  bool within(const Cost& o) const { return traffic <= o.traffic && work <= o.work && memory <= o.memory; }
};
Cost cost_of(const Graph& g) {
  const Graph& b = body(g);
  const std::vector<Phase> phase = phases(b);
  Cost c;
  for (NodeId n = 0; n < b.num_nodes(); n++) {
    const Node& node = b.node(n);
    if (node.first_value < 0 || b.form<Const>(n) || (b.form<Accum>(n) && b.launch().loop == 1)) continue;   // one iteration adds nothing up
    const int64_t elements = b.dims(node.first_value).elements(), blocks = b.launch().blocks();
    const auto times = [&](ValueId v) { return phase[static_cast<size_t>(v)] == Phase::kLoop ? b.launch().loop : 1; };
    if (b.form<Input>(n)) { c.traffic += blocks * times(node.first_value) * elements; c.memory += elements; continue; }
    int64_t each = b.form<Reduce>(n) || b.form<Accum>(n) ? b.dims(node.operands[0]).elements() : elements;
    if (b.form<MatMul>(n)) each *= b.dims(node.operands[0])[b.dims(node.operands[0]).rank() - 1];
    c.work += blocks * times(node.operands[0]) * each;
    if (b.form<Accum>(n)) c.memory += elements;
  }
  return c;
}

/// Whether one of `best`, with as many blocks and iterations as `s` has or fewer, costs no more at the even witness.
bool is_matched(const Program& p, const Structure& s, const std::map<std::string, Structure>& best) {
  const std::vector<Type> params = make_witness(p, 0).params;
  const Cost mine = cost_of(s.graph);
  for (const auto& [key, b] : best) {
    const std::vector<CallNumbers> halves = halve(split_extents(b, params)), whole = split_extents(b, params);
    for (int bits = 0; bits < 16; bits++) {   // each axis and the loop in halves or whole
      std::vector<CallNumbers> n = halves;
      for (size_t a = 0; a < 3; a++) if (bits >> a & 1) n[0].grid_tile[a] = whole[0].grid_tile[a];
      if (bits & 8) n[0].loop_tile = whole[0].loop_tile;
      const auto g = instantiate(b, params, n);
      if (g && cost_of(*g).within(mine)) return true;
    }
  }
  return false;
}

}  // namespace

TEST_CASE("completeness: exactly the graphs of a brute force whose expression is the program's") {
  std::string table;
  struct Small { const char* name; int most; const char* text; };
  for (
      const Small& c : {
          Small{
              "linear", 3,
              R"("inputs": {"x": {"shape": [16, 32], "dtype": "float16"}, "w": {"shape": [32, 64], "dtype": "float16"}}, )"
              R"("outputs": {"o": {"shape": [16, 64], "dtype": "float16"}}, "nodes": [{"op": "matmul", "inputs": ["x", "w"], )"
              R"("output": "o"}])"},
          Small{
              "sum of exponentials", 4,
              R"("inputs": {"x": {"shape": [16, 32], "dtype": "float16"}}, "outputs": {"o": {"shape": [16, 1], "dtype": "float16"}}, )"
              R"("nodes": [{"op": "exp", "inputs": ["x"], "output": "e"}, {"op": "sum", "inputs": ["e"], )"
              R"("output": "o", "attrs": {"axis": 1, "keepdim": true}}])"},
          Small{
              "softmax", 4,
              R"("inputs": {"x": {"shape": [16, 32], "dtype": "float16"}}, "outputs": {"o": {"shape": [16, 32], "dtype": "float16"}}, )"
              R"("nodes": [{"op": "exp", "inputs": ["x"], "output": "e"}, {"op": "sum", "inputs": ["e"], )"
              R"("output": "l", "attrs": {"axis": 1, "keepdim": true}}, {"op": "div", "inputs": ["e", "l"], "output": "o"}])"},
          Small{
              "gate", 3,
              R"("inputs": {"x": {"shape": [16, 32], "dtype": "float16"}, "y": {"shape": [16, 32], "dtype": "float16"}}, )"
              R"("outputs": {"o": {"shape": [16, 32], "dtype": "float16"}}, "nodes": [{"op": "silu", "inputs": ["x"], "output": "s"}, )"
              R"({"op": "mul", "inputs": ["s", "y"], "output": "o"}])"},
          Small{
              "scaled linear", 3,
              R"("inputs": {"x": {"shape": [16, 32], "dtype": "float16"}, "d": {"shape": [16, 1], "dtype": "float16"}, )"
              R"("w": {"shape": [32, 64], "dtype": "float16"}}, "outputs": {"o": {"shape": [16, 64], "dtype": "float16"}}, )"
              R"("nodes": [{"op": "div", "inputs": ["x", "d"], "output": "n"}, {"op": "matmul", "inputs": ["n", "w"], "output": "o"}])"},
          Small{
              "mean of squares", 4,
              R"("inputs": {"x": {"shape": [16, 32], "dtype": "float16"}}, "outputs": {"o": {"shape": [16, 1], "dtype": "float16"}}, )"
              R"("nodes": [{"op": "square", "inputs": ["x"], "output": "s"}, {"op": "mean", "inputs": ["s"], )"
              R"("output": "o", "attrs": {"axis": 1, "keepdim": true}}])"},
          Small{
              "largest of products", 4,
              R"("inputs": {"x": {"shape": [16, 32], "dtype": "float16"}, "w": {"shape": [32, 64], "dtype": "float16"}}, )"
              R"("outputs": {"o": {"shape": [16, 1], "dtype": "float16"}}, "nodes": [{"op": "matmul", "inputs": ["x", "w"], )"
              R"("output": "p"}, {"op": "max", "inputs": ["p"], "output": "o", "attrs": {"axis": 1, "keepdim": true}}])"},
          Small{
              "distance", 4,
              R"("inputs": {"x": {"shape": [16, 32], "dtype": "float16"}, "y": {"shape": [16, 32], "dtype": "float16"}}, )"
              R"("outputs": {"o": {"shape": [16, 1], "dtype": "float16"}}, "nodes": [{"op": "sub", "inputs": ["x", "y"], "output": "d"}, )"
              R"({"op": "square", "inputs": ["d"], "output": "s"}, {"op": "sum", "inputs": ["s"], )"
              R"("output": "o", "attrs": {"axis": 1, "keepdim": true}}])"},
      }) {
    const Program p = parse(R"({"version": "1.0", "name": "t", )" + std::string(c.text) + "}");
    const BruteForce brute(p, c.most);
    auto searched = [&](bool all) {
      SearchOptions o;
      o.merge = o.dominance = !all;
      o.max_ideas = 6;
      o.max_kernel_ops = 1;
      o.max_candidates = 1'000'000;
      std::map<std::string, Structure> out;
      const Found f = find(p, o);
      CHECK(f.report.complete);
      for (const Structure& s : f.structures)   // dominance may leave graphs with more axes, which have those with fewer as instances
        if (s.kernels == 1 &&
            (!all || body(s.graph).launch().grid[1] == 1 && count<Input>(body(s.graph)) == static_cast<int>(p.inputs.size()) &&
                         operators(body(s.graph)) <= c.most))
          out.emplace(canonical(s.graph), s);
      return out;
    };
    const auto all = searched(true), best = searched(false);
    std::set<std::string> axis_free;   // what a search's graph is with one block
    for (const auto& [key, s] : all) axis_free.insert(without_axes(key));
    std::map<std::string, std::pair<int, std::string>> causes;
    std::string wrong;
    for (const auto& [key, s] : all) if (!brute.found.count(key)) wrong += "the brute force has not: " + key + "\n";
    int exact = 0;
    for (const auto& [key, f] : brute.found) {
      const bool is_there = all.count(key) > 0, is_wanted = f.same_expression && !f.has_twice && !f.maps_folded;
      // Without a grid axis it is one with an axis of one block; the split is not searched for itself.
      const bool is_instance = is_wanted && !is_there && body(f.graph).launch().grid[0] == 1 && axis_free.count(key) > 0;
      if (is_there && !is_wanted) wrong += "the search has, though it should not: " + key + "\n";
      if (is_wanted && !is_there && !is_instance) wrong += "the search has not: " + key + "\n";
      exact += is_there;
      if (is_there) continue;
      auto& [n, example] = causes[is_instance          ? "one block along an axis"
                                  : !f.same_expression ? "another expression"
                                  : f.has_twice        ? "a value twice"
                                                       : "a function of what the loop added up, before it is reduced"];
      if (n++ == 0) example = key;
    }
    // Dominance ends with the fewest ideas that gave a graph under a split: dividing behind the product is one more than the program has,
    // and less work where a block has fewer columns than the contraction is long.
    static const std::set<std::string> kMoreIdeas = {"div(matmul(in0[-1|-1],in2[1|-1],),in1[-1|-1],) -> [1|-1]",
                                                     "loop div(accum.sum(matmul(in0[-1|1],in2[1|0],),),in1[-1|-1],) -> [1|-1]"};
    for (const auto& [key, s] : all)
      if (is_matched(p, s, best) == (kMoreIdeas.count(key) > 0))
        wrong += "no graph that dominance leaves costs as little as: " + key + "\n";
    std::string text = std::string(c.name) + ": " + std::to_string(exact) + " in both, " + std::to_string(best.size()) +
                       " with dominance; " + std::to_string(brute.graphs) + " graphs evaluated\n";
    for (const auto& [cause, n] : causes) text += "  " + cause + ": " + std::to_string(n.first) + ", " + n.second + "\n";
    table += text;
    INFO(text << wrong);
    CHECK(exact > 0);
    CHECK(wrong.empty());
  }
  if (std::getenv("MIRAGE_FULL")) WARN(table);
}
