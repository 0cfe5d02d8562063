// Units, and the state graph of cuts over them. See the header; docs/partition.md gives the example of a decoder layer.
#include "driver/cuts.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "driver/reduced.h"

namespace mirage {

namespace {

using Bits = std::vector<bool>;

/// Units by number; sets of thousands of them are joined thousands of times.
class UnitSet {
 public:
  bool has(int u) const { return static_cast<size_t>(u) / 64 < words_.size() && (words_[static_cast<size_t>(u) / 64] >> (u % 64) & 1); }
  void add(int u) {
    if (words_.size() <= static_cast<size_t>(u) / 64) words_.resize(static_cast<size_t>(u) / 64 + 1);
    words_[static_cast<size_t>(u) / 64] |= uint64_t{1} << (u % 64);
  }
  void remove(int u) { if (has(u)) words_[static_cast<size_t>(u) / 64] &= ~(uint64_t{1} << (u % 64)); }
  void add(const UnitSet& o) {
    if (words_.size() < o.words_.size()) words_.resize(o.words_.size());
    for (size_t i = 0; i < o.words_.size(); i++) words_[i] |= o.words_[i];
  }
 private:
  std::vector<uint64_t> words_;
};

/// Grows units along the nodes of a graph.
class Units {
 public:
  explicit Units(const Graph& g) : g_(g), of_(static_cast<size_t>(g.num_nodes()), -1), constant_(of_.size()), free_(of_.size()), behind_(of_.size()) {}

  Cuts run() {
    for (NodeId n = 0; n < g_.num_nodes(); n++) classify(n);
    split_at_results();
    return finish();
  }

 private:
  NodeId def(ValueId v) const { return g_.value(v).node; }
  bool is(const Bits& b, NodeId n) const { return b[static_cast<size_t>(n)]; }
  int& unit(NodeId n) { return of_[static_cast<size_t>(n)]; }

  void classify(NodeId n) {
    const Node& node = g_.node(n);
    if (g_.form<Output>(n)) return;
    auto all = [&](const Bits& b) { return std::all_of(node.operands.begin(), node.operands.end(), [&](ValueId v) { return is(b, def(v)); }); };
    if (g_.form<Const>(n) || (g_.form<Map>(n) && all(constant_))) constant_[static_cast<size_t>(n)] = true;
    else if (g_.form<Input>(n) || (is_view(node.op) && is_searchable(g_, n) && all(free_))) free_[static_cast<size_t>(n)] = true;
    else if (is_searchable(g_, n)) place(n);
    // Which units a node needs, transitively.
    UnitSet& needs = behind_[static_cast<size_t>(n)];
    for (ValueId v : node.operands) {
      if (const int w = unit(def(v)); w >= 0) needs.add(w), needs.add(before_[static_cast<size_t>(w)]);
      else needs.add(behind_[static_cast<size_t>(def(v))]);
    }
    if (const int u = unit(n); u >= 0) {
      needs.remove(u);
      before_[static_cast<size_t>(u)].add(needs);
      const UnitSet before = before_[static_cast<size_t>(u)];
      for (UnitSet& other : before_)
        if (other.has(u)) other.add(before);
    }
  }

  /// A light node joins the last light unit that it reads and that none of its other operands depends on. A transpose stays apart: a piece that ended behind it would store its order, one that begins before it
  /// reads what is stored in the order of its own (keys, transposed for a product).
  void place(NodeId n) {
    const Node& node = g_.node(n);
    const bool contracts = g_.form<MatMul>(n) != nullptr;
    std::set<int> read;
    for (ValueId v : node.operands)
      if (unit(def(v)) >= 0) read.insert(unit(def(v)));
    for (auto u = read.rbegin(); u != read.rend() && !contracts && !g_.form<Transpose>(n) && unit(n) < 0; ++u) {
      if (contracts_[static_cast<size_t>(*u)]) continue;
      const bool is_behind = std::any_of(node.operands.begin(), node.operands.end(), [&](ValueId v) {
        const int w = unit(def(v));
        return w != *u && (w >= 0 ? before_[static_cast<size_t>(w)] : behind_[static_cast<size_t>(def(v))]).has(*u);
      });
      if (!is_behind) unit(n) = *u;
    }
    if (unit(n) >= 0) return;
    unit(n) = static_cast<int>(contracts_.size());
    contracts_.push_back(contracts);
    before_.emplace_back();
  }

  /// A unit that others read in several places becomes several, each with one result: a residual is a cut point.
  void split_at_results() {
    const auto users = g_.users();
    const int count = static_cast<int>(contracts_.size());
    for (int u = 0; u < count; u++) {
      std::vector<ValueId> results;
      for (ValueId v = 0; v < g_.num_values(); v++) {
        const auto& read = users[static_cast<size_t>(v)];
        if (unit(def(v)) == u && std::any_of(read.begin(), read.end(), [&](NodeId n) { return unit(n) != u; })) results.push_back(v);
      }
      for (size_t r = 0; r + 1 < results.size(); r++) {
        const int fresh = static_cast<int>(contracts_.size());
        contracts_.push_back(false);
        std::function<void(NodeId)> take = [&](NodeId n) {
          if (unit(n) != u) return;
          unit(n) = fresh;
          for (ValueId v : g_.node(n).operands) take(def(v));
        };
        take(def(results[r]));
      }
    }
  }

  Cuts finish() {
    // Units by their last node: operands come first.
    std::vector<std::pair<NodeId, int>> order(contracts_.size(), {-1, -1});
    for (NodeId n = 0; n < g_.num_nodes(); n++)
      if (unit(n) >= 0) order[static_cast<size_t>(unit(n))] = {n, unit(n)};
    std::erase_if(order, [](const auto& o) { return o.first < 0; });
    std::sort(order.begin(), order.end());
    std::vector<int> to(contracts_.size(), -1);
    Cuts out;
    for (const auto& o : order) {
      to[static_cast<size_t>(o.second)] = static_cast<int>(out.units.size());
      out.units.emplace_back().contracts = contracts_[static_cast<size_t>(o.second)];
    }
    out.unit_of.assign(of_.size(), -1);
    for (NodeId n = 0; n < g_.num_nodes(); n++)
      if (unit(n) >= 0) {
        out.unit_of[static_cast<size_t>(n)] = to[static_cast<size_t>(unit(n))];
        out.units[static_cast<size_t>(out.unit_of[static_cast<size_t>(n)])].nodes.push_back(n);
      }
    out.is_constant = constant_;
    out.is_free = free_;
    connect(out);
    return out;
  }

  void connect(Cuts& out) {
    std::vector<std::set<int>> reach(of_.size());   // per node outside units: the units that it needs
    std::vector<std::set<int>> direct(out.units.size()), through(out.units.size()), readers(out.units.size());
    std::vector<bool> leaves(out.units.size());     // read by an output, or by a node that no search takes
    for (NodeId n = 0; n < g_.num_nodes(); n++) {
      const int u = out.unit_of[static_cast<size_t>(n)];
      for (ValueId v : g_.node(n).operands) {
        const int w = out.unit_of[static_cast<size_t>(def(v))];
        if (w == u && u >= 0) continue;
        if (w >= 0 && u < 0) leaves[static_cast<size_t>(w)] = true;
        if (u < 0) {
          if (w >= 0) reach[static_cast<size_t>(n)].insert(w);
          reach[static_cast<size_t>(n)].insert(reach[static_cast<size_t>(def(v))].begin(), reach[static_cast<size_t>(def(v))].end());
        } else if (w >= 0) {
          direct[static_cast<size_t>(u)].insert(w);
          readers[static_cast<size_t>(w)].insert(u);
        } else {
          through[static_cast<size_t>(u)].insert(reach[static_cast<size_t>(def(v))].begin(), reach[static_cast<size_t>(def(v))].end());
        }
      }
    }
    for (size_t u = 0; u < out.units.size(); u++) {
      out.units[u].direct.assign(direct[u].begin(), direct[u].end());
      out.units[u].through.assign(through[u].begin(), through[u].end());
      out.units[u].copyable = !out.units[u].contracts && !leaves[u] && readers[u].size() > 1;
    }
  }

  const Graph& g_;
  std::vector<int> of_;
  Bits constant_, free_;
  std::vector<UnitSet> behind_;   // per node: units that it needs, transitively
  std::vector<UnitSet> before_;   // per unit: units that it needs, transitively
  std::vector<bool> contracts_;
};

enum class Mark : char { kOpen, kDone, kCopied };
using State = std::vector<Mark>;

/// Walks states breadth first. The lowest open unit is in the next cut: the order of independent cuts does not matter, so one order is enough.
class CutSearch {
 public:
  CutSearch(const Cuts& cuts, const Graph& g, const CutLimits& limits) : cuts_(cuts), limits_(limits), siblings_(cuts.units.size()), readers_(cuts.units.size()) {
    for (size_t u = 0; u < cuts.units.size(); u++)
      for (int w : cuts.units[u].direct) readers_[static_cast<size_t>(w)].push_back(static_cast<int>(u));
    std::map<ValueId, std::vector<int>> readers;   // units that read one value belong together
    for (size_t u = 0; u < cuts.units.size(); u++)
      for (NodeId n : cuts.units[u].nodes)
        for (ValueId v : g.node(n).operands)
          if (const auto d = static_cast<size_t>(g.value(v).node); cuts.unit_of[d] != static_cast<int>(u) && !cuts.is_constant[d]) readers[v].push_back(static_cast<int>(u));
    for (const auto& [v, list] : readers)
      for (int a : list)
        for (int b : list)
          if (a != b) siblings_[static_cast<size_t>(a)].insert(b);
    for (size_t u = 0; u < cuts.units.size(); u++)
      for (int w : cuts.units[u].direct) siblings_[u].insert(w), siblings_[static_cast<size_t>(w)].insert(static_cast<int>(u));
  }

  CutGraph run() {
    state_number(State(cuts_.units.size(), Mark::kOpen));
    for (size_t s = 0; s < states_.size(); s++) {
      if (static_cast<int>(states_.size()) > limits_.states || static_cast<int>(out_.cuts.size()) > limits_.cuts) return {};
      const State state = states_[s];
      const auto open = std::find(state.begin(), state.end(), Mark::kOpen);
      if (open == state.end()) continue;
      const int u = static_cast<int>(open - state.begin());
      // Not what would be copied in turn: a residual stream would be summed up from all layers again.
      const std::vector<int>& reads = cuts_.units[static_cast<size_t>(u)].direct;
      if (cuts_.units[static_cast<size_t>(u)].copyable && std::none_of(reads.begin(), reads.end(), [&](int w) { return state[static_cast<size_t>(w)] == Mark::kCopied; })) {
        State next = state;
        next[static_cast<size_t>(u)] = Mark::kCopied;
        add_step(s, -1, next);
      }
      for (const std::vector<int>& units : sets_from(state, u)) {
        State next = state;
        for (int x : units) next[static_cast<size_t>(x)] = Mark::kDone;
        add_step(s, cut_number({units, copies_of(state, units)}), next);
      }
    }
    order_states();
    return std::move(out_);
  }

 private:
  /// The number of a state. Copied or stored makes no difference once every reader exists: such states are one.
  size_t state_number(State s) {
    for (size_t u = s.size(); u-- > 0;)
      if (s[u] == Mark::kCopied && std::all_of(readers_[u].begin(), readers_[u].end(), [&](int r) { return s[static_cast<size_t>(r)] == Mark::kDone; })) s[u] = Mark::kDone;
    const auto [at, is_new] = numbers_.try_emplace(s, states_.size());
    if (is_new) states_.push_back(s), out_.steps.emplace_back();
    return at->second;
  }
  int cut_number(const Cut& c) {
    const auto [at, is_new] = cut_numbers_.try_emplace(c, static_cast<int>(out_.cuts.size()));
    if (is_new) out_.cuts.push_back(c);
    return at->second;
  }
  void add_step(size_t from, int cut, const State& to) {
    const auto number = static_cast<int>(state_number(to));
    out_.steps[from].push_back({cut, number});
  }

  bool is_ready(const State& s, const std::vector<int>& units, int u) const {
    const Unit& unit = cuts_.units[static_cast<size_t>(u)];
    return std::all_of(unit.direct.begin(), unit.direct.end(), [&](int w) { return s[static_cast<size_t>(w)] != Mark::kOpen || std::count(units.begin(), units.end(), w); }) &&
           std::all_of(unit.through.begin(), unit.through.end(), [&](int w) { return s[static_cast<size_t>(w)] == Mark::kDone; });
  }

  /// Copied units that these read, and what those read in turn.
  std::vector<int> copies_of(const State& s, const std::vector<int>& units) const {
    std::set<int> out;
    std::vector<int> work = units;
    while (!work.empty()) {
      const int u = work.back();
      work.pop_back();
      for (int w : cuts_.units[static_cast<size_t>(u)].direct)
        if (s[static_cast<size_t>(w)] == Mark::kCopied && out.insert(w).second) work.push_back(w);
    }
    return {out.begin(), out.end()};
  }

  /// Connected sets of ready units that hold u, within the limits.
  std::vector<std::vector<int>> sets_from(const State& s, int u) const {
    std::set<std::vector<int>> seen{{u}};
    std::vector<std::vector<int>> all{{u}};
    for (size_t i = 0; i < all.size(); i++) {
      const std::vector<int> set = all[i];
      if (static_cast<int>(set.size()) >= limits_.units) continue;
      std::set<int> near;
      for (int x : set) near.insert(siblings_[static_cast<size_t>(x)].begin(), siblings_[static_cast<size_t>(x)].end());
      for (int c : copies_of(s, set)) near.insert(siblings_[static_cast<size_t>(c)].begin(), siblings_[static_cast<size_t>(c)].end());
      for (int x : near) {
        if (s[static_cast<size_t>(x)] != Mark::kOpen || std::count(set.begin(), set.end(), x) || !is_ready(s, set, x)) continue;
        std::vector<int> more = set;
        more.insert(std::upper_bound(more.begin(), more.end(), x), x);
        const auto contractions = std::count_if(more.begin(), more.end(), [&](int y) { return cuts_.units[static_cast<size_t>(y)].contracts; });
        if (contractions <= limits_.contractions && seen.insert(more).second) all.push_back(more);
      }
    }
    return all;
  }

  /// States numbered so that steps lead upwards: by how many units exist.
  void order_states() {
    std::vector<size_t> order(states_.size());
    for (size_t i = 0; i < order.size(); i++) order[i] = i;
    auto decided = [&](size_t s) { return std::count_if(states_[s].begin(), states_[s].end(), [](Mark m) { return m != Mark::kOpen; }); };
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return decided(a) < decided(b); });
    std::vector<int> to(order.size());
    for (size_t i = 0; i < order.size(); i++) to[order[i]] = static_cast<int>(i);
    // Copied or stored is decided by then: all full states are one end.
    std::vector<std::vector<CutStep>> steps(order.size());
    for (size_t i = 0; i < order.size(); i++) {
      steps[i] = std::move(out_.steps[order[i]]);
      for (CutStep& s : steps[i]) s.to = to[static_cast<size_t>(s.to)];
    }
    const auto full = static_cast<long>(cuts_.units.size());
    int first_full = static_cast<int>(order.size());
    for (size_t i = order.size(); i-- > 0 && decided(order[i]) == full;) first_full = static_cast<int>(i);
    for (auto& list : steps)
      for (CutStep& s : list) s.to = std::min(s.to, first_full);
    steps.resize(static_cast<size_t>(first_full) + 1);
    out_.steps = std::move(steps);
    out_.end = first_full;
  }

  const Cuts& cuts_;
  CutLimits limits_;
  std::vector<std::set<int>> siblings_;
  std::vector<std::vector<int>> readers_;
  std::vector<State> states_;
  std::map<State, size_t> numbers_;
  std::map<Cut, int> cut_numbers_;
  CutGraph out_;
};

}  // namespace

/// Dimensions of a program's inputs as dimensions of these leaves; empty if one is not among them.
static std::vector<std::pair<int, int>> extents_here(const Graph& g, const Const& c, const std::vector<ValueId>& leaves, const std::vector<std::vector<int>>& classes) {
  std::vector<std::pair<int, int>> out;
  for (auto [param, dim] : c.extent_of) {
    int wanted = -1;
    for (NodeId n : g.inputs())
      if (g.form<Input>(n)->param == param && !classes.empty()) wanted = classes[static_cast<size_t>(g.node(n).first_value)][static_cast<size_t>(dim)];
    std::optional<std::pair<int, int>> found;
    for (size_t i = 0; i < leaves.size() && !found && wanted >= 0; i++)
      for (int d = 0; d < g.dims(leaves[i]).rank() && !found; d++)
        if (classes[static_cast<size_t>(leaves[i])][static_cast<size_t>(d)] == wanted && g.dims(leaves[i])[d] != 1) found = {static_cast<int>(i), d};
    if (!found) return {};
    out.push_back(*found);
  }
  return out;
}

Cuts find_cuts(const Graph& graph) { return Units(graph).run(); }

CutGraph enumerate_cuts(const Cuts& cuts, const Graph& graph, const CutLimits& limits) { return CutSearch(cuts, graph, limits).run(); }

Piece make_piece(const Cuts& cuts, const Cut& cut, const Graph& g, const std::vector<std::vector<int>>& classes) {
  Piece piece;
  std::vector<bool> own(static_cast<size_t>(g.num_nodes())), inside(own.size());   // own: adds to what there is
  for (int u : cut.units)
    for (NodeId n : cuts.units[static_cast<size_t>(u)].nodes) own[static_cast<size_t>(n)] = inside[static_cast<size_t>(n)] = true;
  for (int u : cut.copies)
    for (NodeId n : cuts.units[static_cast<size_t>(u)].nodes) inside[static_cast<size_t>(n)] = true;
  const auto users = g.users();
  for (ValueId v = 0; v < g.num_values(); v++) {
    if (!own[static_cast<size_t>(g.value(v).node)]) continue;
    const auto& read = users[static_cast<size_t>(v)];
    if (std::any_of(read.begin(), read.end(), [&](NodeId n) { return !own[static_cast<size_t>(n)]; })) piece.results.push_back(v);
  }
  // From the results down: the piece's text does not depend on what else stands in the program.
  Builder b(Level::kKernel);
  std::map<ValueId, ValueId> to;
  std::set<NodeId> nodes;
  std::function<void(ValueId)> collect = [&](ValueId v) {
    const NodeId n = g.value(v).node;
    const auto i = static_cast<size_t>(n);
    if (to.count(v)) return;
    if (!g.form<Input>(n) && (inside[i] || cuts.is_constant[i] || cuts.is_free[i])) {
      to[v] = -1;
      nodes.insert(n);
      for (ValueId o : g.node(n).operands) collect(o);
      return;
    }
    to[v] = b.add_input(static_cast<int>(piece.leaves.size()), g.type(v));
    piece.leaves.push_back(v);
  };
  for (ValueId r : piece.results) collect(r);
  std::function<ValueId(ValueId)> make = [&](ValueId v) {
    if (to.at(v) >= 0) return to.at(v);
    const Node& node = g.node(g.value(v).node);
    std::vector<ValueId> operands;
    for (ValueId o : node.operands) operands.push_back(make(o));
    Op op = node.op;
    if (auto* c = std::get_if<Const>(&op)) c->extent_of = extents_here(g, *c, piece.leaves, classes);
    return to[v] = b.add(std::move(op), operands);
  };
  for (ValueId r : piece.results) make(r);
  for (size_t r = 0; r < piece.results.size(); r++) {
    const ValueId v = piece.results[r];
    DType dtype = g.type(v).dtype;
    if (const auto& read = users[static_cast<size_t>(v)]; read.size() == 1)   // rounded where nobody else reads it exactly
      if (const auto* out = g.form<Output>(read[0])) dtype = out->dtype;
    b.add_output(static_cast<int>(r), to.at(v), dtype);
  }
  piece.nodes.assign(nodes.begin(), nodes.end());
  piece.graph = std::move(b).finish();
  return piece;
}

}  // namespace mirage
