// Units, and the state graph of cuts over them. See the header; docs/partition.md gives the example of a decoder layer.
#include "driver/pieces/cuts.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "driver/pieces/reduced.h"

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

/// What v is a view of, through views that every reader has for itself.
ValueId source_of(const Graph& g, const Bits& is_free, ValueId v) {
  while (is_free[static_cast<size_t>(g.value(v).node)] && !g.def_form<Input>(v)) v = g.def(v).operands[0];
  return v;
}

/// Whether v, or such a view of it, is read by a node of which `wanted` says so.
bool is_read(const Graph& g, const Bits& is_free, const std::vector<std::vector<NodeId>>& users, ValueId v,
             const std::function<bool(NodeId)>& wanted) {
  const auto& read = users[static_cast<size_t>(v)];
  return std::any_of(read.begin(), read.end(), [&](NodeId n) {
    return is_free[static_cast<size_t>(n)] ? is_read(g, is_free, users, g.node(n).first_value, wanted) : wanted(n);
  });
}

/// Grows units along the nodes of a graph.
class Units {
 public:
  Units(const Graph& g, Spreading spreading)
      : g_(g),
        spreading_(spreading),
        users_(g.users()),
        of_(static_cast<size_t>(g.num_nodes()), -1),
        constant_(of_.size()),
        free_(of_.size()),
        behind_(of_.size()) {}

  Cuts run() {
    for (NodeId n = 0; n < g_.num_nodes(); n++) classify(n);
    split_at_results();
    split_at_epilogues();
    join_terms();
    return finish();
  }

 private:
  /// The node that makes v, views that are nobody's looked through.
  NodeId def(ValueId v) const { return g_.value(source_of(g_, free_, v)).node; }
  bool is(const Bits& b, NodeId n) const { return b[static_cast<size_t>(n)]; }
  int& unit(NodeId n) { return of_[static_cast<size_t>(n)]; }

  void classify(NodeId n) {
    const Node& node = g_.node(n);
    if (g_.form<Output>(n)) return;
    const bool of_constants = std::all_of(node.operands.begin(), node.operands.end(), [&](ValueId v) { return is(constant_, def(v)); });
    if (g_.form<Const>(n) || ((g_.form<Map>(n) || is_view(node.op)) && of_constants && is_searchable(g_, n)))
      constant_[static_cast<size_t>(n)] = true;
    else if (g_.form<Input>(n) || (is_view(node.op) && is_searchable(g_, n) && !is_stored_so(n))) free_[static_cast<size_t>(n)] = true;
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

  /// Whether a view is how what it views is best stored: nobody else reads that, and behind the view stands what reads memory as it lies (a
  /// result of the program, a reshape that joins).
  bool is_stored_so(NodeId n) const {
    const ValueId v = g_.node(n).operands[0];
    const NodeId of = g_.value(v).node;
    return of_[static_cast<size_t>(of)] >= 0 && users_[static_cast<size_t>(v)].size() == 1 && leads_to_memory(g_.node(n).first_value);
  }
  bool leads_to_memory(ValueId v) const {
    const auto& read = users_[static_cast<size_t>(v)];
    return std::any_of(read.begin(), read.end(), [&](NodeId n) {
      if (g_.form<Output>(n) || !is_searchable(g_, n)) return true;
      return is_view(g_.node(n).op) && read.size() == 1 && leads_to_memory(g_.node(n).first_value);
    });
  }

  /// Whether n spreads what unit u has reduced over a tensor that u does not know: the sum of all keys over queries. That is no step of u's
  /// work, as a row's scale is of its norm.
  bool spreads(NodeId n, int u) const {
    const Node& node = g_.node(n);
    const auto size = [&](ValueId v) { return g_.dims(v).elements(); };
    const int64_t all = size(node.first_value);
    bool reads_small = false, reads_other = false;
    for (ValueId v : node.operands) {
      const int w = unit_at(def(v));
      if (w == u && size(v) == all) return false;
      reads_small = reads_small || w == u;
      // (what scales the result of a product is its epilogue, wherever it is from)
      reads_other = reads_other || (size(v) == all && w != u && (w < 0 || !contracts_[static_cast<size_t>(w)]) && !is(constant_, def(v)));
      if (size(v) == all && w != u && knows(u, source_of(g_, free_, v))) return false;
    }
    if (!reads_small || !reads_other) return false;
    for (NodeId m = 0; m < n; m++) if (unit_at(m) == u && g_.form<Reduce>(m)) return true;
    return false;
  }
  /// Whether a node of unit u reads v, or what v is made of reads what u reads.
  bool knows(int u, ValueId v) const {
    const NodeId made = g_.value(v).node;
    for (NodeId m = 0; m < g_.num_nodes(); m++) {
      if (unit_at(m) != u) continue;
      for (ValueId o : g_.node(m).operands) {
        const ValueId x = source_of(g_, free_, o);
        if (x == v || (unit_at(g_.value(x).node) >= 0 && unit_at(g_.value(x).node) == unit_at(made))) return true;
        const auto& reads = g_.node(made).operands;
        if (!g_.form<Input>(made) &&
            std::any_of(reads.begin(), reads.end(), [&](ValueId r) { return !is(constant_, def(r)) && source_of(g_, free_, r) == x; }))
          return true;
      }
    }
    return false;
  }
  int unit_at(NodeId n) const { return of_[static_cast<size_t>(n)]; }

  /// A light node joins the last light unit that it reads and that none of its other operands depends on.
  void place(NodeId n) {
    const Node& node = g_.node(n);
    const bool contracts = g_.form<MatMul>(n) != nullptr;
    std::set<int> read;
    for (ValueId v : node.operands)
      if (unit(def(v)) >= 0) read.insert(unit(def(v)));
    for (auto u = read.rbegin(); u != read.rend() && !contracts && unit(n) < 0; ++u) {
      if (contracts_[static_cast<size_t>(*u)]) continue;
      const bool is_behind = std::any_of(node.operands.begin(), node.operands.end(), [&](ValueId v) {
        const int w = unit(def(v));
        return w != *u && (w >= 0 ? before_[static_cast<size_t>(w)] : behind_[static_cast<size_t>(def(v))]).has(*u);
      });
      if (!is_behind && (spreading_ == Spreading::kJoined || !spreads(n, *u))) unit(n) = *u;
    }
    if (unit(n) >= 0) return;
    unit(n) = static_cast<int>(contracts_.size());
    contracts_.push_back(contracts);
    before_.emplace_back();
  }

  /// A unit that others read in several places becomes several, each with one result: a residual is a cut point.
  void split_at_results() {
    const int count = static_cast<int>(contracts_.size());
    for (int u = 0; u < count; u++) {
      std::vector<ValueId> results;
      for (ValueId v = 0; v < g_.num_values(); v++) {
        if (unit(g_.value(v).node) == u && is_read(g_, free_, users_, v, [&](NodeId n) { return unit(n) != u; })) results.push_back(v);
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

  /// What elementwise functions make of a contraction's result is a cut point where a reduction reads it, alone or among others: the kernel
  /// that contracts may store that instead.
  void split_at_epilogues() {
    const int count = static_cast<int>(contracts_.size());
    for (int u = 0; u < count; u++) {
      if (contracts_[static_cast<size_t>(u)]) continue;
      std::set<NodeId> epilogue;
      std::set<ValueId> read_behind;   // values of the epilogue
      bool is_contracted = false;
      size_t nodes = 0;
      for (NodeId n = 0; n < g_.num_nodes(); n++) {
        if (unit(n) != u) continue;
        nodes++;
        const Node& node = g_.node(n);
        const bool inside = g_.form<Map>(n) && !(is_reduced(node.first_value) && reads_shared(node)) &&
                            std::all_of(node.operands.begin(), node.operands.end(),
                                        [&](ValueId v) { return unit(def(v)) != u || epilogue.count(def(v)) > 0; });
        if (inside) epilogue.insert(n);
        for (ValueId v : node.operands) {
          const int w = unit(def(v));
          is_contracted = is_contracted || (inside && w >= 0 && contracts_[static_cast<size_t>(w)] &&
                                            g_.dims(v).elements() == g_.dims(node.first_value).elements());
          if (!inside && w == u && epilogue.count(def(v))) read_behind.insert(source_of(g_, free_, v));
        }
      }
      if (!is_contracted || epilogue.size() == nodes || read_behind.size() != 1) continue;
      const ValueId v = *read_behind.begin();
      const auto& readers = users_[static_cast<size_t>(v)];
      if (readers.empty() || (readers.size() == 1 && !g_.form<Reduce>(readers[0])) ||
          std::none_of(readers.begin(), readers.end(), [&](NodeId n) { return g_.form<Reduce>(n) || is_reduced(g_.node(n).first_value); }))
        continue;
      const int fresh = static_cast<int>(contracts_.size());
      contracts_.push_back(false);
      for (NodeId n : epilogue) unit(n) = fresh;
    }
  }
  /// Whether it reads what others of its unit read, too: not the square of a sum that is stored, but that.
  bool reads_shared(const Node& n) const {
    return std::any_of(n.operands.begin(), n.operands.end(), [&](ValueId v) {
      return users_[static_cast<size_t>(v)].size() > 1 && g_.dims(v).elements() == g_.dims(n.first_value).elements();
    });
  }
  /// Whether a reduction reads v, and nobody else.
  bool is_reduced(ValueId v) const {
    const auto& readers = users_[static_cast<size_t>(v)];
    return readers.size() == 1 &&
           (g_.form<Reduce>(readers[0]) || (g_.form<Map>(readers[0]) && is_reduced(g_.node(readers[0]).first_value)));
  }

  /// Elementwise functions of inputs that only further elementwise functions read are theirs: the taps of a depthwise convolution are one
  /// sum, not fifty cut points, which would leave the rest of the program one way through the states.
  void join_terms() {
    std::vector<std::set<int>> readers(contracts_.size());   // -1: a result, or what no search takes
    Bits is_term(contracts_.size(), true), is_elementwise(contracts_.size(), true);
    for (NodeId n = 0; n < g_.num_nodes(); n++) {
      const int u = unit(n);
      if (is(free_, n)) continue;
      if (u >= 0 && !g_.form<Map>(n)) is_term[static_cast<size_t>(u)] = is_elementwise[static_cast<size_t>(u)] = false;
      for (ValueId v : g_.node(n).operands) {
        const int w = unit(def(v));
        if (w < 0 || w == u) continue;
        readers[static_cast<size_t>(w)].insert(u);
        if (u >= 0 && contracts_[static_cast<size_t>(w)]) is_term[static_cast<size_t>(u)] = false;
      }
    }
    std::vector<int> to(contracts_.size());   // where a unit went; its reader may have gone on
    for (size_t u = 0; u < to.size(); u++) {
      const int reader = readers[u].size() == 1 ? *readers[u].begin() : -1;
      to[u] = is_term[u] && reader >= 0 && is_elementwise[static_cast<size_t>(reader)] ? reader : static_cast<int>(u);
    }
    for (int& u : of_)
      while (u >= 0 && to[static_cast<size_t>(u)] != u) u = to[static_cast<size_t>(u)];
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
    const auto waits = [&](const Unit& u) { return !u.direct.empty() && !u.through.empty() && u.direct.front() < u.through.back(); };
    return std::any_of(out.units.begin(), out.units.end(), waits) ? renumbered(out) : out;
  }

  /// What a unit reads behind a node that no search takes is made before what it can be one piece with: the values of attention before its
  /// scores. Numbers say what is cut first (CutSearch).
  static Cuts renumbered(const Cuts& c) {
    std::vector<int> order, to(c.units.size(), -1);
    const std::function<void(int)> visit = [&](int u) {
      int& at = to[static_cast<size_t>(u)];
      if (at != -1) return;
      at = -2;
      for (int w : c.units[static_cast<size_t>(u)].through) visit(w);
      for (int w : c.units[static_cast<size_t>(u)].direct) visit(w);
      to[static_cast<size_t>(u)] = static_cast<int>(order.size());
      order.push_back(u);
    };
    std::vector<bool> is_read(c.units.size());
    for (const Unit& u : c.units)
      for (const auto* list : {&u.direct, &u.through})
        for (int w : *list) is_read[static_cast<size_t>(w)] = true;
    for (int u = 0; u < static_cast<int>(c.units.size()); u++)
      if (!is_read[static_cast<size_t>(u)]) visit(u);
    Cuts out = c;
    for (int& u : out.unit_of) u = u >= 0 ? to[static_cast<size_t>(u)] : u;
    for (size_t u = 0; u < order.size(); u++) {
      out.units[u] = c.units[static_cast<size_t>(order[u])];
      for (auto* list : {&out.units[u].direct, &out.units[u].through}) {
        for (int& w : *list) w = to[static_cast<size_t>(w)];
        std::sort(list->begin(), list->end());
      }
    }
    return out;
  }

  void connect(Cuts& out) {
    std::vector<std::set<int>> reach(of_.size());   // per node outside units: the units that it needs
    std::vector<std::set<int>> direct(out.units.size()), through(out.units.size()), readers(out.units.size());
    std::vector<bool> leaves(out.units.size());     // read by an output, or by a node that no search takes
    for (NodeId n = 0; n < g_.num_nodes(); n++) {
      const int u = out.unit_of[static_cast<size_t>(n)];
      if (is(free_, n)) continue;
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
      out.units[u].is_stored = leaves[u];
      out.units[u].is_view =
          std::all_of(out.units[u].nodes.begin(), out.units[u].nodes.end(), [&](NodeId n) { return mirage::is_view(g_.node(n).op); });
      for (NodeId n : out.units[u].nodes)
        if (is_read(g_, free_, users_, g_.node(n).first_value,
                    [&](NodeId m) { return out.unit_of[static_cast<size_t>(m)] != static_cast<int>(u); }))
          out.units[u].elements += g_.dims(g_.node(n).first_value).elements();
    }
  }

  const Graph& g_;
  const Spreading spreading_;
  const std::vector<std::vector<NodeId>> users_;
  std::vector<int> of_;
  Bits constant_, free_;
  std::vector<UnitSet> behind_;   // per node: units that it needs, transitively
  std::vector<UnitSet> before_;   // per unit: units that it needs, transitively
  std::vector<bool> contracts_;
};

constexpr size_t kMostSets = 256;   // that are looked at from one state
constexpr size_t kMostNear = 512;   // units that read one value and are looked at beside one of them

void sort_unique(std::vector<int>& v) {
  std::sort(v.begin(), v.end());
  v.erase(std::unique(v.begin(), v.end()), v.end());
}

enum class Mark : char { kOpen, kDone, kCopied };
using State = std::vector<Mark>;

/// Walks states breadth first. The lowest open unit is in the next cut: the order of independent cuts does not matter, so one order is
/// enough.
class CutSearch {
 public:
  CutSearch(const Cuts& cuts, const Graph& g, const CutLimits& limits)
      : cuts_(cuts), limits_(limits), siblings_(cuts.units.size()), readers_(cuts.units.size()) {
    const auto link = [&](int a, int b) {
      siblings_[static_cast<size_t>(a)].push_back(b);
      siblings_[static_cast<size_t>(b)].push_back(a);
    };
    for (size_t u = 0; u < cuts.units.size(); u++)
      for (int w : cuts.units[u].direct) readers_[static_cast<size_t>(w)].push_back(static_cast<int>(u));
    std::map<ValueId, std::vector<int>> readers;   // units that read one value belong together
    for (size_t u = 0; u < cuts.units.size(); u++)
      for (NodeId n : cuts.units[u].nodes)
        for (ValueId o : g.node(n).operands) {
          const ValueId v = source_of(g, cuts.is_free, o);
          if (const auto d = static_cast<size_t>(g.value(v).node); cuts.unit_of[d] != static_cast<int>(u) && !cuts.is_constant[d])
            readers[v].push_back(static_cast<int>(u));
        }
    for (auto& [v, list] : readers) {
      sort_unique(list);
      for (size_t a = 0; a < list.size(); a++)
        for (size_t b = a + 1; b < std::min(list.size(), a + 1 + kMostNear); b++) link(list[a], list[b]);
    }
    for (size_t u = 0; u < cuts.units.size(); u++)
      for (int w : cuts.units[u].direct) link(static_cast<int>(u), w);
    for (std::vector<int>& s : siblings_) sort_unique(s);
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
      if (limits_.sets > 1 && cuts_.units[static_cast<size_t>(u)].copyable &&
          std::none_of(reads.begin(), reads.end(), [&](int w) { return state[static_cast<size_t>(w)] == Mark::kCopied; })) {
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
      if (s[u] == Mark::kCopied &&
          std::all_of(readers_[u].begin(), readers_[u].end(), [&](int r) { return s[static_cast<size_t>(r)] == Mark::kDone; }))
        s[u] = Mark::kDone;
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

  /// The set with u and with what u needs and nobody has made (the other operand of a second product); nullopt: that is too much, or stands
  /// behind a node that no search takes.
  std::optional<std::vector<int>> with_needs(const State& s, const std::vector<int>& set, int u) const {
    std::vector<int> out = set, work{u};
    int units = 0, contractions = 0;
    while (!work.empty()) {
      const int x = work.back();
      work.pop_back();
      const auto at = std::lower_bound(out.begin(), out.end(), x);
      if (at != out.end() && *at == x) continue;
      out.insert(at, x);
      if (static_cast<int>(out.size()) > 2 * limits_.units) return std::nullopt;
      const Unit& unit = cuts_.units[static_cast<size_t>(x)];
      if (std::any_of(unit.through.begin(), unit.through.end(), [&](int w) { return s[static_cast<size_t>(w)] != Mark::kDone; }))
        return std::nullopt;
      for (int w : unit.direct)
        if (s[static_cast<size_t>(w)] == Mark::kOpen) work.push_back(w);
    }
    for (int x : out) contractions += cuts_.units[static_cast<size_t>(x)].contracts, units += !cuts_.units[static_cast<size_t>(x)].is_view;
    return units <= limits_.units && contractions <= limits_.contractions ? std::optional(out) : std::nullopt;
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

  /// Connected sets of units that hold u and are ready together, within the limits; smaller ones first.
  std::vector<std::vector<int>> sets_from(const State& s, int u) const {
    std::set<std::vector<int>> seen{{u}};
    std::vector<std::vector<int>> all{{u}};
    for (size_t i = 0; i < all.size() && all.size() < kMostSets && limits_.sets > 1; i++) {
      const std::vector<int> set = all[i];
      std::vector<int> near;
      const auto add = [&](int x) {
        const std::vector<int>& siblings = siblings_[static_cast<size_t>(x)];
        near.insert(near.end(), siblings.begin(), siblings.end());
      };
      for (int x : set) add(x);
      for (int c : copies_of(s, set)) add(c);
      sort_unique(near);
      for (int x : near) {
        if (s[static_cast<size_t>(x)] != Mark::kOpen || std::count(set.begin(), set.end(), x)) continue;
        std::optional<std::vector<int>> more = with_needs(s, set, x);
        if (more && seen.insert(*more).second) all.push_back(std::move(*more));
      }
    }
    return best_of(std::move(all));
  }

  /// The first, which is u alone, and of the others those that keep most inside, in their order.
  std::vector<std::vector<int>> best_of(std::vector<std::vector<int>> all) const {
    const auto most = static_cast<size_t>(limits_.sets);
    if (all.size() <= most) return all;
    std::vector<std::pair<int64_t, size_t>> order;   // what is kept inside, negative; position
    for (size_t i = 0; i < all.size(); i++) order.emplace_back(i == 0 ? std::numeric_limits<int64_t>::min() : -kept_inside(all[i]), i);
    std::sort(order.begin(), order.end());
    order.resize(most);
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    std::vector<std::vector<int>> out;
    for (const auto& [kept, i] : order) out.push_back(std::move(all[i]));
    return out;
  }
  /// Elements that nobody outside the set reads.
  int64_t kept_inside(const std::vector<int>& set) const {
    int64_t kept = 0;
    for (int u : set) {
      const auto& readers = readers_[static_cast<size_t>(u)];
      const bool inside = !cuts_.units[static_cast<size_t>(u)].is_stored &&
                          std::all_of(readers.begin(), readers.end(), [&](int r) { return std::binary_search(set.begin(), set.end(), r); });
      if (inside) kept += cuts_.units[static_cast<size_t>(u)].elements;
    }
    return kept;
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
  std::vector<std::vector<int>> siblings_;
  std::vector<std::vector<int>> readers_;
  std::vector<State> states_;
  std::map<State, size_t> numbers_;
  std::map<Cut, int> cut_numbers_;
  CutGraph out_;
};

}  // namespace

/// Dimensions of a program's inputs as dimensions of these leaves; empty if one is not among them.
static std::vector<std::pair<int, int>> extents_here(const Graph& g, const Const& c, const std::vector<ValueId>& leaves,
                                                     const std::vector<std::vector<int>>& classes) {
  std::vector<std::pair<int, int>> out;
  for (auto [param, dim] : c.extent_of) {
    int wanted = -1;
    for (NodeId n : g.inputs())
      if (g.form<Input>(n)->param == param && !classes.empty())
        wanted = classes[static_cast<size_t>(g.node(n).first_value)][static_cast<size_t>(dim)];
    std::optional<std::pair<int, int>> found;
    for (size_t i = 0; i < leaves.size() && !found && wanted >= 0; i++)
      for (int d = 0; d < g.dims(leaves[i]).rank() && !found; d++)
        if (classes[static_cast<size_t>(leaves[i])][static_cast<size_t>(d)] == wanted && g.dims(leaves[i])[d] != 1)
          found = {static_cast<int>(i), d};
    if (!found) return {};
    out.push_back(*found);
  }
  return out;
}

namespace {

/// A piece from its results down: its text does not depend on what else stands in the program. Leaves are numbered as they are met.
class Collector {
 public:
  Collector(const Graph& g, const std::vector<std::vector<int>>& classes, std::function<bool(ValueId)> is_leaf)
      : g_(g), classes_(classes), is_leaf_(std::move(is_leaf)), b_(Level::kKernel) {}

  /// leaves: those that come first, whether they are met or not.
  Piece run(const std::vector<ValueId>& leaves, std::vector<ValueId> results, const std::vector<std::vector<NodeId>>& users) {
    for (ValueId v : leaves) add_leaf(v);
    piece_.results = std::move(results);
    for (ValueId r : piece_.results) collect(r);
    for (ValueId r : piece_.results) make(r);
    for (size_t r = 0; r < piece_.results.size(); r++) {
      const ValueId v = piece_.results[r];
      DType dtype = g_.type(v).dtype;
      if (const auto& read = users[static_cast<size_t>(v)]; read.size() == 1)   // rounded where nobody else reads it exactly
        if (const auto* out = g_.form<Output>(read[0])) dtype = out->dtype;
      b_.add_output(static_cast<int>(r), to_.at(v), dtype);
    }
    piece_.nodes.assign(nodes_.begin(), nodes_.end());
    piece_.graph = std::move(b_).finish();
    return std::move(piece_);
  }

 private:
  void collect(ValueId v) {
    if (to_.count(v)) return;
    const NodeId n = g_.value(v).node;
    if (!is_leaf_(v) && !g_.form<Input>(n)) {
      to_[v] = -1;
      nodes_.insert(n);
      for (ValueId o : g_.node(n).operands) collect(o);
      return;
    }
    add_leaf(v);
  }
  void add_leaf(ValueId v) {
    to_[v] = b_.add_input(static_cast<int>(piece_.leaves.size()), g_.type(v));
    piece_.leaves.push_back(v);
  }
  ValueId make(ValueId v) {
    if (to_.at(v) >= 0) return to_.at(v);
    const Node& node = g_.node(g_.value(v).node);
    std::vector<ValueId> operands;
    for (ValueId o : node.operands) operands.push_back(make(o));
    Op op = node.op;
    if (auto* c = std::get_if<Const>(&op)) c->extent_of = extents_here(g_, *c, piece_.leaves, classes_);
    return to_[v] = b_.add(std::move(op), operands);
  }

  const Graph& g_;
  const std::vector<std::vector<int>>& classes_;
  std::function<bool(ValueId)> is_leaf_;
  Builder b_;
  Piece piece_;
  std::map<ValueId, ValueId> to_;
  std::set<NodeId> nodes_;
};

}  // namespace

Cuts find_cuts(const Graph& graph, Spreading spreading) { return Units(graph, spreading).run(); }

CutGraph enumerate_cuts(const Cuts& cuts, const Graph& graph, const CutLimits& limits) {
  // with one set a state, the lowest unit alone, there are as many states as units: always an end
  for (CutLimits now = limits;; now.sets /= 2) {
    if (now.sets <= 1) now.sets = 1, now.states = now.cuts = std::numeric_limits<int>::max();
    CutGraph out = CutSearch(cuts, graph, now).run();
    if (out.end >= 0) return out;
  }
}

Piece make_piece(const Cuts& cuts, const Cut& cut, const Graph& g, const std::vector<std::vector<int>>& classes) {
  Piece piece;
  std::vector<bool> own(static_cast<size_t>(g.num_nodes())), inside(own.size());   // own: adds to what there is
  for (int u : cut.units)
    for (NodeId n : cuts.units[static_cast<size_t>(u)].nodes) own[static_cast<size_t>(n)] = inside[static_cast<size_t>(n)] = true;
  for (int u : cut.copies)
    for (NodeId n : cuts.units[static_cast<size_t>(u)].nodes) inside[static_cast<size_t>(n)] = true;
  const auto users = g.users();
  std::vector<ValueId> results;
  for (ValueId v = 0; v < g.num_values(); v++) {
    if (!own[static_cast<size_t>(g.value(v).node)]) continue;
    if (is_read(g, cuts.is_free, users, v, [&](NodeId n) { return !own[static_cast<size_t>(n)]; })) results.push_back(v);
  }
  const auto is_leaf = [&](ValueId v) {
    const NodeId n = g.value(v).node;
    const auto i = static_cast<size_t>(n);
    return g.form<Input>(n) || !(inside[i] || cuts.is_constant[i] || cuts.is_free[i]);
  };
  return Collector(g, classes, is_leaf).run({}, std::move(results), users);
}

std::optional<Piece> piece_between(const Graph& g, const std::vector<ValueId>& leaves, const std::vector<ValueId>& results,
                                   const std::vector<std::vector<int>>& classes) {
  const std::set<ValueId> given(leaves.begin(), leaves.end());
  const auto is_leaf = [&](ValueId v) { return given.contains(v); };
  if (given.size() != leaves.size() || std::any_of(results.begin(), results.end(), is_leaf)) return std::nullopt;
  Piece piece = Collector(g, classes, is_leaf).run(leaves, results, g.users());
  if (piece.leaves.size() != leaves.size()) return std::nullopt;   // an input of the program that nobody named
  return piece;
}

}  // namespace mirage
