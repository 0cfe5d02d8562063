// Shifts exponentials so that they cannot overflow, or takes shifts away (docs/stability.md): before the search maxima go whose
// effect cancels, behind it they come back per tile.
#include "mirage/ir/stabilize.h"

#include <algorithm>
#include <map>

#include "ir/shift_degree.h"
#include "mirage/ir/walk.h"

namespace mirage {
namespace {
using shift::Class;
using shift::Degree;
using shift::dim_at;
using shift::position;

constexpr int kMaxReduced = 4;   // positions a shift may be a maximum over that are tried

/// Copies nodes of g into a builder, with values replaced on the way.
struct Copier {
  const Graph& g;
  Builder b;
  std::vector<ValueId> at;       ///< value of g -> value of b, -1: not yet
  std::vector<bool> done;
  explicit Copier(const Graph& from)
      : g(from),
        b(from.level(), from.launch()),
        at(static_cast<size_t>(from.num_values()), -1),
        done(static_cast<size_t>(from.num_nodes())) {}
  ValueId now(ValueId v) const { return at[static_cast<size_t>(v)]; }
  void copy(NodeId n) {
    const Node& node = g.node(n);
    done[static_cast<size_t>(n)] = true;
    if (const auto* in = g.form<Input>(n)) {
      at[static_cast<size_t>(node.first_value)] = b.add_input(in->param, g.type(node.first_value), in->part);
      return;
    }
    std::vector<ValueId> operands;
    for (ValueId v : node.operands) operands.push_back(now(v));
    add(n, node.op, operands);
  }
  void add(NodeId n, const Op& op, const std::vector<ValueId>& operands) {
    done[static_cast<size_t>(n)] = true;
    const ValueId first = b.add(op, operands);
    for (int i = 0; i < g.node(n).num_values; i++) at[static_cast<size_t>(g.node(n).first_value + i)] = first + i;
  }
  void copy_with_ancestors(ValueId v) {
    const NodeId n = g.value(v).node;
    if (done[static_cast<size_t>(n)]) return;
    for (ValueId o : g.node(n).operands) copy_with_ancestors(o);
    copy(n);
  }
};

/// A result of a block graph that is not complete: the true one is it times e^(degree * result number `maximum`).
struct Partial { int result = 0, degree = 0, maximum = 0; };
struct Stable { Graph graph; std::vector<Partial> partial; };

std::vector<NodeId> exponentials(const Graph& g) {
  std::vector<NodeId> out;
  for (NodeId n = 0; n < g.num_nodes(); n++) if (const auto* m = g.form<Map>(n); m && m->fn == MapFn::kExp) out.push_back(n);
  return out;
}

/// The class of these exponentials with a maximum over these positions; nullopt where their operands have different ranks.
std::optional<Class> make_class(const Graph& g, const std::vector<NodeId>& exps, const std::vector<int>& reduced) {
  Class c;
  c.exps = {exps.begin(), exps.end()};
  c.reduced = reduced;
  const int rank = g.dims(g.node(exps[0]).operands[0]).rank();
  for (NodeId n : exps) if (g.dims(g.node(n).operands[0]).rank() != rank) return std::nullopt;
  for (int p = rank - 1; p >= 0; p--) if (std::find(reduced.begin(), reduced.end(), p) == reduced.end()) c.rows.push_back(p);
  return c;
}

/// Whether m, whose row axes run along c.rows, broadcasts to a value with these rows.
bool is_aligned(const Class& c, const Dims& m, const Dims& v, const Degree& d) {
  if (m.rank() > v.rank()) return false;
  for (size_t a = 0; a < c.rows.size(); a++)
    if (d.rows[a] != c.rows[a] && m[dim_at(m, c.rows[a])] > 1) return false;
  return true;
}

/// The extents of m beside a value with dims `v` and these rows: 1 but along rows. nullopt if the row axes stand in another order, so that
/// no reshape of m gives it.
std::optional<Dims> beside(const Dims& v, const Degree& d) {
  Dims out;
  for (int i = 0; i < v.rank(); i++) out.push_back(std::find(d.rows.begin(), d.rows.end(), position(v, i)) != d.rows.end() ? v[i] : 1);
  int last = v.rank();
  for (int r : d.rows) {
    if (r < 0) continue;
    if (r >= last) return std::nullopt;
    last = r;
  }
  return out;
}

ValueId times_power(Builder& b, ValueId x, ValueId e, int degree) {
  for (int i = 0; i < degree; i++) x = b.map(MapFn::kMul, {x, e});
  return x;
}

/// Whether v has one element along dimension d whatever its tile: nothing splits it there, or it was reduced.
bool is_single(const Graph& g, ValueId v, int d) {
  const auto look = [&](ValueId x, int dim) {
    if (g.dims(x)[dim] > 1) return Look::kFound;
    const auto* in = g.def_form<Input>(x);
    const auto* r = g.def_form<Reduce>(x);
    if (in) return in->part.loop == dim || std::count(in->part.grid.begin(), in->part.grid.end(), dim) ? Look::kFound : Look::kPast;
    if (g.def_form<Const>(x) || (r && r->dim == dim && r->group == 0)) return Look::kPast;
    return r || g.def_form<Map>(x) || g.def_form<Running>(x) || g.def_form<Accum>(x) ? Look::kInto : Look::kFound;
  };
  const auto next = [&](ValueId x, int dim, const auto& push) {
    for (ValueId o : g.def(x).operands)
      if (const int there = dim - g.dims(x).rank() + g.dims(o).rank(); there >= 0) push(o, there);
  };
  return !find_below(v, d, look, next);
}

/// Shifts one class of exponentials of g (a block graph, or a kernel graph, whose results must be complete).
class Shifter {
 public:
  Shifter(const Graph& g, Class c) : g_(g), c_(std::move(c)), degree_(shift::degrees(g, c_)), phase_(phases(g)), copy_(g) {}

  std::optional<Stable> run() {
    if (!is_possible()) return std::nullopt;
    if (!make_maximum()) return std::nullopt;
    for (NodeId n = 0; n < g_.num_nodes(); n++) {
      if (copy_.done[static_cast<size_t>(n)]) continue;
      const Node& node = g_.node(n);
      if (c_.exps.contains(n)) copy_.add(n, Map{MapFn::kExp}, {copy_.b.map(MapFn::kSub, {copy_.now(node.operands[0]), m_})});
      else if (const auto* a = g_.form<Accum>(n); a && is_running_ && of(node.operands[0]).degree) accumulate(n);
      else copy_.copy(n);
    }
    Stable out;
    if (!add_partials(out)) return std::nullopt;
    if (check_laws(copy_.b.graph())) return std::nullopt;
    out.graph = copy_.b.graph();
    return out;
  }

 private:
  const Degree& of(ValueId v) const { return degree_[static_cast<size_t>(v)]; }
  Phase phase_of(ValueId v) const { return phase_[static_cast<size_t>(v)]; }
  ValueId argument(NodeId exp) const { return g_.node(exp).operands[0]; }

  bool is_possible() {
    const bool in_loop = g_.level() == Level::kBlock &&
                         std::any_of(c_.exps.begin(), c_.exps.end(), [&](NodeId n) { return phase_of(argument(n)) == Phase::kLoop; });
    for (NodeId n = 0; n < g_.num_nodes(); n++) {
      const Node& node = g_.node(n);
      if (const auto* a = g_.form<Accum>(n)) {
        const Degree& d = of(node.operands[0]);
        // rescaled by another maximum, which stands for no sum of these
        if (!d.known || (a->degree && (d.degree || in_loop))) return false;
        if (d.degree == 0 || !in_loop) continue;
        if (d.degree < 1 || d.degree > kMaxDegree || a->fn != ReduceFn::kSum) return false;
        is_running_ = true;
      }
      if (g_.form<Output>(n)) {
        const Degree& d = of(node.operands[0]);
        if (!d.known || (d.degree != 0 && g_.level() != Level::kBlock)) return false;
      }
    }
    return true;
  }

  void accumulate(NodeId n) {
    const Node& node = g_.node(n);
    const int degree = of(node.operands[0]).degree;
    copy_.add(n, Accum{ReduceFn::kSum, degree}, {copy_.now(node.operands[0]), m_});
    if (!c_.completes) return;
    if (completing_ < 0) completing_ = copy_.b.map(MapFn::kExp, {last()});
    copy_.at[static_cast<size_t>(node.first_value)] = times_power(copy_.b, copy_.now(node.first_value), completing_, degree);
  }

  /// The maximum behind the loop.
  ValueId last() {
    if (last_ < 0) last_ = is_running_ ? copy_.b.add(Accum{ReduceFn::kMax}, {m_}) : m_;
    return last_;
  }

  bool make_maximum() {
    std::optional<ValueId> m;
    for (NodeId e : c_.exps) {
      copy_.copy_with_ancestors(argument(e));
      ValueId x = copy_.now(argument(e));
      const Dims dims = g_.dims(argument(e));
      for (int p : c_.reduced) {
        const int d = dim_at(dims, p);
        x = is_single(g_, argument(e), d) ? x : copy_.b.add(Reduce{ReduceFn::kMax, d, 0}, {x});
      }
      if (m && !(copy_.b.graph().dims(*m) == copy_.b.graph().dims(x))) return false;
      m = m ? copy_.b.map(MapFn::kMax, {*m, x}) : x;
    }
    m_ = *m;
    const Dims dims = copy_.b.graph().dims(m_);
    if (is_running_) {
      for (NodeId n = 0; n < g_.num_nodes(); n++)
        if (g_.form<Accum>(n) && of(g_.node(n).operands[0]).degree &&
            !is_aligned(c_, dims, g_.dims(g_.node(n).operands[0]), of(g_.node(n).operands[0])))
          return false;
      m_ = copy_.b.add(Running{}, {m_});
    } else if (g_.level() == Level::kBlock && has_partials()) {
      // a part of a row may be masked altogether; the whole row then is not
      m_ = copy_.b.map(MapFn::kMax, {m_, copy_.b.constant(kRunningStart)});
    }
    return true;
  }

  bool has_partials() const {
    return std::any_of(g_.nodes().begin(), g_.nodes().end(),
                       [&](const Node& n) { return std::holds_alternative<Output>(n.op) && of(n.operands[0]).degree != 0; });
  }

  bool add_partials(Stable& out) {
    std::map<std::pair<std::vector<int64_t>, std::vector<int>>, int> made;   // extents and partition -> result
    int results = g_.num_results();
    for (NodeId n : g_.outputs()) {
      const Output& o = *g_.form<Output>(n);
      const ValueId v = g_.node(n).operands[0];
      if (of(v).degree == 0) continue;
      const Dims& dims = g_.dims(v);
      const auto extents = beside(dims, of(v));
      if (!extents || o.dtype != DType::kReal || of(v).degree < 1) return false;
      std::vector<int> parts;
      for (int8_t d : o.part.grid) {
        // blocks that divide what m does not have would each have an m of their own
        if (d >= 0 && dims[d] > 1 && (*extents)[d] == 1) return false;
        parts.push_back(d);
      }
      auto [it, fresh] = made.try_emplace({{extents->begin(), extents->end()}, parts}, results);
      if (fresh) {
        ValueId m = last();
        if (!(copy_.b.graph().dims(m) == *extents)) {
          const auto reshaped = copy_.b.try_add(Reshape{*extents}, {m});
          if (!reshaped) return false;
          m = *reshaped;
        }
        copy_.b.add_output(results++, m, DType::kReal, o.part);
      }
      out.partial.push_back({o.result, of(v).degree, it->second});
    }
    return true;
  }

  const Graph& g_;
  Class c_;
  std::vector<Degree> degree_;
  std::vector<Phase> phase_;
  Copier copy_;
  ValueId m_ = -1, last_ = -1, completing_ = -1;   ///< completing: e to the last maximum
  bool is_running_ = false;
};

/// The subsets of {0 .. n-1} that are not empty, the smallest first.
std::vector<std::vector<int>> subsets(int n) {
  std::vector<std::vector<int>> out;
  for (int mask = 1; mask < 1 << n; mask++) {
    std::vector<int> s;
    for (int i = 0; i < n; i++) if (mask >> i & 1) s.push_back(i);
    out.push_back(s);
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  return out;
}

/// Shifts these exponentials together: complete results if there is a way, else partial ones. completes: Class::completes.
std::optional<Stable> shift_together(const Graph& g, const std::vector<NodeId>& exps, bool completes = false) {
  std::optional<Stable> partial;
  const int rank = std::min(g.dims(g.node(exps[0]).operands[0]).rank(), kMaxReduced);
  for (const std::vector<int>& reduced : subsets(rank)) {
    auto c = make_class(g, exps, reduced);
    if (!c) return std::nullopt;
    c->completes = completes;
    auto s = Shifter(g, *c).run();
    if (!s) continue;
    if (s->partial.empty()) return s;
    if (!partial) partial = std::move(s);
  }
  return partial;
}

/// Whether the exponential's argument is a difference with a maximum of what it is subtracted from: shifted already.
bool is_maximum(const Graph& g, ValueId top) {
  const auto look = [&](ValueId m) {
    const auto* r = g.def_form<Reduce>(m);
    const auto* a = g.def_form<Accum>(m);
    if (g.def_form<Running>(m) || (r && r->fn == ReduceFn::kMax) || (a && a->fn == ReduceFn::kMax)) return Look::kFound;
    const auto* f = g.def_form<Map>(m);
    return is_view(g.def(m).op) || (f && f->fn == MapFn::kMax) ? Look::kInto : Look::kPast;
  };
  return find_below(g, top, look);
}

bool is_shifted(const Graph& g, NodeId exp) {
  const auto* sub = g.def_form<Map>(g.node(exp).operands[0]);
  if (!sub || sub->fn != MapFn::kSub) return false;
  const auto& o = g.def(g.node(exp).operands[0]).operands;
  return o[0] == o[1] || is_maximum(g, o[1]);   // of one element the maximum is itself
}

std::vector<NodeId> open_exponentials(const Graph& g) {
  std::vector<NodeId> out = exponentials(g);
  std::erase_if(out, [&](NodeId n) { return is_shifted(g, n); });
  return out;
}

/// A loop's exponential whose sum meets others behind the loop (a sink beside the keys): with a running maximum m there, what it adds up
/// times e^m behind the loop, and that exponential shifted together with the others. nullopt where that leaves an exponential as it is.
std::optional<Stable> shift_where_they_meet(const Graph& g) {
  if (g.level() != Level::kBlock) return std::nullopt;
  const std::vector<Phase> phase = phases(g);
  for (NodeId n : open_exponentials(g)) {
    if (phase[static_cast<size_t>(g.node(n).first_value)] != Phase::kLoop) continue;
    const std::optional<Stable> loop = shift_together(g, {n}, true);
    if (!loop || !loop->partial.empty()) continue;
    std::optional<Stable> out = shift_together(loop->graph, open_exponentials(loop->graph));
    if (out && open_exponentials(out->graph).empty()) return out;
  }
  return std::nullopt;
}

/// Shifts what can be shifted: each exponential by itself, then those that are left together. The partial results of at most one class
/// leave a graph (two shifts of one result would need two maxima).
std::optional<Stable> shift_all(const Graph& g) {
  Stable out{g, {}};
  bool any = false;
  auto take = [&](std::optional<Stable> s) {
    if (!s || (!s->partial.empty() && !out.partial.empty())) return false;
    out.graph = std::move(s->graph);
    if (!s->partial.empty()) out.partial = std::move(s->partial);
    return any = true;
  };
  bool again = true;
  for (size_t left = open_exponentials(g).size(); again && left > 0; left--) {   // each of them once
    again = false;
    for (NodeId n : open_exponentials(out.graph))
      if (take(shift_together(out.graph, {n}))) { again = true; break; }
  }
  if (const auto left = open_exponentials(out.graph); left.size() > 1) take(shift_together(out.graph, left));
  if (auto met = shift_where_they_meet(out.graph); met && out.partial.empty()) take(std::move(met));
  if (!any) return std::nullopt;
  return out;
}

/// What a value of the kernel graph lacks: it is to be multiplied by e^(degree * maximum).
struct Lack { int degree = 0; ValueId maximum = -1; };

/// The body of a call whose operand `param` lacks a factor: it takes the maximum as a further operand and multiplies. `from`: operands of
/// the call, which grow.
Graph complete_operands(const Graph& body, std::vector<ValueId>& operands, const std::map<ValueId, Lack>& lacks, const Graph& kernel) {
  Copier copy(body);
  std::map<std::pair<ValueId, std::string>, ValueId> exps;
  for (NodeId n = 0; n < body.num_nodes(); n++) {
    copy.copy(n);
    const auto* in = body.form<Input>(n);
    if (!in) continue;
    const auto it = lacks.find(operands[static_cast<size_t>(in->param)]);
    if (it == lacks.end()) continue;
    const ValueId v = body.node(n).first_value;
    Dims tile = body.dims(v);
    Partition part = in->part;
    const Dims& m = kernel.dims(it->second.maximum);
    for (int d = 0; d < tile.rank(); d++) {
      if (m[d] != 1) continue;
      tile[d] = 1;
      if (kernel.dims(it->first)[d] == 1) continue;   // both have extent 1 here, and may both be split
      for (int8_t& axis : part.grid) if (axis == d) axis = -1;
      if (part.loop == d) part.loop = -1;
    }
    std::string key = to_string(tile);
    for (int8_t axis : part.grid) key += "," + std::to_string(axis);
    auto [e, fresh] = exps.try_emplace({it->second.maximum, key + "," + std::to_string(part.loop)}, -1);
    if (fresh) {
      operands.push_back(it->second.maximum);
      e->second = copy.b.map(MapFn::kExp, {copy.b.add_input(static_cast<int>(operands.size()) - 1, {DType::kReal, tile}, part)});
    }
    copy.at[static_cast<size_t>(v)] = times_power(copy.b, copy.now(v), e->second, it->second.degree);
  }
  return copy.b.graph();
}

}  // namespace

std::optional<Graph> stabilize(const Graph& g) {
  Copier copy(g);
  std::map<ValueId, Lack> lacks;      // by value of the new graph
  std::map<ValueId, ValueId> exps;    // of maxima, at kernel level
  bool any = false;
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    std::vector<ValueId> operands;
    for (ValueId v : node.operands) operands.push_back(copy.now(v));
    const bool is_open = std::any_of(operands.begin(), operands.end(), [&](ValueId v) { return lacks.contains(v); });
    const auto* c = g.form<Call>(n);
    if (!c && is_open) {
      for (ValueId& v : operands) {
        const auto it = lacks.find(v);
        if (it == lacks.end()) continue;
        auto [e, fresh] = exps.try_emplace(it->second.maximum, -1);
        if (fresh) e->second = copy.b.map(MapFn::kExp, {it->second.maximum});
        v = times_power(copy.b, v, e->second, it->second.degree);
      }
      copy.add(n, node.op, operands);
      continue;
    }
    if (!c || c->body->level() != Level::kBlock) { copy.copy(n); continue; }
    Graph body = is_open ? complete_operands(*c->body, operands, lacks, copy.b.graph()) : *c->body;
    std::optional<Stable> s = shift_all(body);
    if (!s && is_open) return std::nullopt;   // partial results meet nobody who can combine them
    if (s) any = true, body = std::move(s->graph);
    copy.add(n, Call{std::make_shared<const Graph>(std::move(body))}, operands);
    if (!s) continue;
    const ValueId first = copy.now(node.first_value);
    for (const Partial& p : s->partial) lacks[first + p.result] = {p.degree, first + p.maximum};
  }
  Graph out = copy.b.graph();
  if (std::optional<Stable> s = shift_all(out)) any = true, out = std::move(s->graph);
  if (!exps.empty() && !open_exponentials(out).empty()) return std::nullopt;   // e^m would overflow where e^x did
  if (!any) return std::nullopt;
  out = remove_dead(out);
  if (check_laws(out)) return std::nullopt;
  return out;
}

/// x of the difference x - m, in the difference's shape: m may have more dimensions, of extent 1.
static ValueId unshifted(const Graph& g, Copier& copy, ValueId difference) {
  const ValueId x = g.def(difference).operands[0];
  const Dims &from = g.dims(x), &to = g.dims(difference);
  return from == to ? copy.now(x) : copy.b.add(Reshape{to}, {copy.now(x)});
}

Graph unshift(const Graph& g) {
  std::map<ValueId, std::vector<NodeId>> by_maximum;
  for (NodeId n : exponentials(g))
    if (is_shifted(g, n)) by_maximum[g.def(g.node(n).operands[0]).operands[1]].push_back(n);
  for (const auto& [m, exps] : by_maximum) {
    const Dims& x = g.dims(g.node(exps[0]).operands[0]);
    std::vector<int> reduced;
    for (int p = 0; p < x.rank(); p++)
      if (p >= g.dims(m).rank() || (g.dims(m)[dim_at(g.dims(m), p)] == 1 && x[dim_at(x, p)] > 1)) reduced.push_back(p);
    const auto c = make_class(g, exps, reduced);
    if (!c) continue;
    const std::vector<Degree> degree = shift::degrees(g, *c);
    const bool cancels = std::all_of(g.nodes().begin(), g.nodes().end(), [&](const Node& n) {
      return !std::holds_alternative<Output>(n.op) ||
             (degree[static_cast<size_t>(n.operands[0])].known && degree[static_cast<size_t>(n.operands[0])].degree == 0);
    });
    const bool has_all = std::all_of(exps.begin(), exps.end(), [&](NodeId n) {
      const ValueId d = g.node(n).operands[0];
      return g.dims(g.def(d).operands[0]).elements() == g.dims(d).elements();
    });
    if (!cancels || !has_all) continue;
    Copier copy(g);
    for (NodeId n = 0; n < g.num_nodes(); n++) {
      if (c->exps.contains(n)) copy.add(n, Map{MapFn::kExp}, {unshifted(g, copy, g.node(n).operands[0])});
      else copy.copy(n);
    }
    return unshift(remove_dead(copy.b.graph()));   // ids have changed
  }
  return g;
}

}  // namespace mirage
