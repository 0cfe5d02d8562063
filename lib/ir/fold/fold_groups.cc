// Union-find over pairs of neighbours; see the header. Pairs that an operator ties together are one class, and an operator that needs to
// tell two neighbours apart closes their class.
#include "ir/fold/fold_groups.h"

#include <algorithm>
#include <array>
#include <utility>

#include "mirage/ir/index_map.h"
#include "mirage/support/round.h"

namespace mirage::folding {
namespace {

/// of a joined dimension: most kernels count places along one in an int (docs/decisions.md)
constexpr int64_t kMaxExtent = int64_t{1} << 30;
/// times as long as what is repeated for it: a product's operand
constexpr int64_t kFewElements = 32;
/// of a product whose grid has to have parts of what is summed
constexpr int64_t kFewRows = 16;
/// rows of a product's tile, and how much of the tiles' work has to be saved
constexpr int64_t kTileRows = 64;
constexpr double kEmptyRows = 1.25;

bool is_full(const Graph& g, const Reduce& r, ValueId x) { return r.group == 0 || r.group == g.dims(x)[r.dim]; }

/// Which neighbours are joined. A value's dimensions of extent above 1 are its axes; pair i of a value is between axes i and i+1.
class Pairs {
 public:
  /// may_widen: elementwise operands that have one dimension of a pair could be repeated along the other.
  Pairs(const Program& p, const Chains& chains, bool may_widen) : p_(p), g_(p.graph), chains_(chains), may_widen_(may_widen) {
    for (ValueId v = 0; v < g_.num_values(); v++) {
      axes_.emplace_back();
      for (int d = 0; d < g_.dims(v).rank(); d++) if (g_.dims(v)[d] > 1) axes_.back().push_back(d);
      first_.push_back(static_cast<int>(parent_.size()));
      for (size_t i = 0; i + 1 < axes_.back().size(); i++) parent_.push_back(static_cast<int>(parent_.size()));
    }
    closed_.resize(parent_.size());
    for (NodeId n = 0; n < g_.num_nodes(); n++) constrain(n);
    weigh();
    limit();
  }

  /// Per value: runs of axes that are one dimension.
  std::vector<std::vector<std::vector<int>>> groups() {
    std::vector<std::vector<std::vector<int>>> out;
    for (ValueId v = 0; v < g_.num_values(); v++) out.push_back(groups(v));
    return out;
  }
  /// Elementwise operators of whose operands some lack dimensions of joined pairs, and those dimensions of their results.
  std::map<NodeId, std::set<int>> partial() {
    std::map<NodeId, std::set<int>> out;
    for (const Partial& p : partial_)
      if (p.map >= 0 && is_joined(p.pair)) out[p.map].insert(p.dims.begin(), p.dims.end());
    return out;
  }
  Ties ties() {
    for (size_t i = 0; i < parent_.size(); i++) ties_.of_class.push_back(find(static_cast<int>(i)));
    const auto users = g_.users();
    mark_inside(users);
    for (NodeId n = 0; n < g_.num_nodes(); n++) {
      if (g_.form<MatMul>(n)) rows(n);
      if (!g_.form<Reshape>(n) || !is_product(g_.node(n).operands[0])) continue;
      const auto& readers = users[static_cast<size_t>(g_.node(n).first_value)];
      if (std::any_of(readers.begin(), readers.end(), [&](NodeId u) { return g_.form<Map>(u) != nullptr; })) parts(n);
    }
    return ties_;
  }

 private:
  /// A pair that is joined only if something is repeated along one of its dimensions. map: whose operand it is, -1: a repetition of the
  /// program's. elements: once it is repeated.
  struct Partial { int pair = 0; NodeId map = -1; std::array<int, 2> dims{}; int64_t elements = 0; };

  const std::vector<int>& axes(ValueId v) const { return axes_[static_cast<size_t>(v)]; }
  int pairs(ValueId v) const { return std::max(0, static_cast<int>(axes(v).size()) - 1); }
  int id(ValueId v, int pair) const { return first_[static_cast<size_t>(v)] + pair; }
  int find(int x) {
    while (parent_[static_cast<size_t>(x)] != x)
      x = parent_[static_cast<size_t>(x)] = parent_[static_cast<size_t>(parent_[static_cast<size_t>(x)])];
    return x;
  }
  void tie(int a, int b) {
    const int x = find(a), y = find(b);
    if (x == y) return;
    closed_[static_cast<size_t>(x)] = closed_[static_cast<size_t>(x)] || closed_[static_cast<size_t>(y)];
    parent_[static_cast<size_t>(y)] = x;
  }
  void close(int a) {
    closed_[static_cast<size_t>(find(a))] = true;
    ties_.apart.push_back(a);
  }
  /// Pair i of x, which `reader` reads, and pair j of r.
  void tie(ValueId x, int i, ValueId r, int j, NodeId reader) {
    tie(id(x, i), id(r, j));
    ties_.ties.push_back({id(x, i), id(r, j), reader, x, axes(x)[static_cast<size_t>(i)]});
  }
  /// Pair i of x, by what reads it: a pair of the reader's own, which is apart.
  void close(ValueId x, int i, NodeId reader) {
    const int own = static_cast<int>(parent_.size());
    parent_.push_back(own);
    closed_.push_back(false);
    tie(id(x, i), own);
    ties_.ties.push_back({id(x, i), own, reader, x, axes(x)[static_cast<size_t>(i)]});
    close(own);
  }
  bool is_joined(int pair) { return !closed_[static_cast<size_t>(find(pair))]; }
  bool is_joined(ValueId v, int pair) { return is_joined(id(v, pair)); }

  std::vector<std::vector<int>> groups(ValueId v) {
    std::vector<std::vector<int>> out;
    for (size_t i = 0; i < axes(v).size(); i++) {
      if (i == 0 || !is_joined(v, static_cast<int>(i) - 1)) out.emplace_back();
      out.back().push_back(axes(v)[i]);
    }
    return out;
  }

  /// Pairs of x and r, one computed from the other. to: per dimension of x the one of r that it becomes, -1: none, -2: none, and its
  /// neighbours of this kind may be joined with it as they like. A pair that is one in both is joined in both or neither; one that has no
  /// counterpart as a whole but in part stays apart. reader: the operator that reads x. node: where something may be repeated for it, the
  /// elementwise operator or the repetition that makes r.
  void relate(ValueId x, ValueId r, const std::vector<int>& to, NodeId reader, NodeId node = -1) {
    std::vector<int> from(static_cast<size_t>(g_.dims(r).rank()), -1);
    for (int d : axes(x))
      if (to[static_cast<size_t>(d)] >= 0 && g_.dims(r)[to[static_cast<size_t>(d)]] > 1)
        from[static_cast<size_t>(to[static_cast<size_t>(d)])] = d;
    auto place = [&](ValueId v, int dim) { return static_cast<int>(std::find(axes(v).begin(), axes(v).end(), dim) - axes(v).begin()); };
    for (int i = 0; i < pairs(x); i++) {
      const int a = to[static_cast<size_t>(axes(x)[static_cast<size_t>(i)])],
                b = to[static_cast<size_t>(axes(x)[static_cast<size_t>(i) + 1])];
      if (a == -2 && b == -2) continue;
      const int at = a < 0 || b < 0 ? -1 : place(r, a);
      if (at >= 0 && at < pairs(r) && axes(r)[static_cast<size_t>(at)] == a && axes(r)[static_cast<size_t>(at) + 1] == b)
        tie(x, i, r, at, reader);
      else close(x, i, reader);
    }
    for (int i = 0; i < pairs(r); i++) {
      const int a = from[static_cast<size_t>(axes(r)[static_cast<size_t>(i)])],
                b = from[static_cast<size_t>(axes(r)[static_cast<size_t>(i) + 1])];
      if (a < 0 && b < 0) continue;
      const int at = a < 0 || b < 0 ? -1 : place(x, a);
      if (at >= 0 && at < pairs(x) && axes(x)[static_cast<size_t>(at) + 1] == b) continue;
      const std::array dims{axes(r)[static_cast<size_t>(i)], axes(r)[static_cast<size_t>(i) + 1]};
      const bool is_map = node >= 0 && g_.form<Map>(node);
      int64_t elements = 0;
      if (is_map && (a < 0 || b < 0)) elements = widened_elements(x, std::max(a, b)) * g_.dims(r)[a < 0 ? dims[0] : dims[1]];
      else if (node >= 0 && !is_map) elements = g_.dims(r).elements();
      if (elements > 0) partial_.push_back({id(r, i), is_map ? node : -1, dims, elements});
      else close(id(r, i));
    }
  }

  /// Elements of what would be repeated so that x is, which has this dimension: of the inputs and positions that elementwise functions make
  /// it of, the largest one that has it; 0: it is made in another way.
  int64_t widened_elements(ValueId x, int dim) {
    const int from_last = g_.dims(x).rank() - dim;
    const auto known = widened_.find({x, from_last});   // a chain that reads its values twice is not walked once per path
    return known != widened_.end() ? known->second : widened_[{x, from_last}] = widened_of(x, from_last);
  }
  int64_t widened_of(ValueId x, int from_last) {
    const auto has = [&](ValueId v) { return g_.dims(v).rank() >= from_last && g_.dims(v)[g_.dims(v).rank() - from_last] > 1; };
    const Node& node = g_.def(x);
    if (!std::holds_alternative<Map>(node.op)) return is_given(x) ? g_.dims(x).elements() : 0;
    int64_t most = 0;
    for (ValueId o : node.operands) {
      if (!has(o)) continue;
      const int64_t elements = widened_elements(o, g_.dims(o).rank() - from_last);
      if (elements == 0) return 0;
      most = std::max(most, elements);
    }
    return most;
  }
  /// An input or positions, or a view of such.
  bool is_given(ValueId v) const {
    while (is_view(g_.def(v).op)) v = g_.def(v).operands[0];
    return g_.def_form<Input>(v) || g_.def_form<Iota>(v);
  }

  /// What a pair gains by being one: dimensions of a product's batch, which both operands have, or its rows and a batch that the second
  /// operand lacks (queries of heads that share keys). With the longer operand's elements. Not where there are many rows, which give enough
  /// blocks: then two dimensions of the grid are as good.
  void batch(NodeId n) {
    const ValueId r = g_.node(n).first_value;
    if (g_.dims(r)[g_.dims(r).rank() - 2] > kFewRows) return;
    const auto& o = g_.node(n).operands;
    for (int i = 0; i < pairs(r); i++) {
      const int a = axes(r)[static_cast<size_t>(i)], b = axes(r)[static_cast<size_t>(i) + 1];
      const auto has = [&](ValueId v) { return g_.dims(v)[a] > 1 && g_.dims(v)[b] > 1; };
      const bool is_row = b == g_.dims(r).rank() - 2 && g_.dims(o[1])[a] == 1;
      if ((b < g_.dims(r).rank() - 2 && has(o[0]) && has(o[1])) || (is_row && has(o[0])))
        gains_.push_back({id(r, i), std::max(g_.dims(o[0]).elements(), g_.dims(o[1]).elements())});
    }
  }
  /// Rows of a product that fill their tiles better together with the batch that its weights lack, from the rows outwards; one that gains
  /// nothing stays as it is.
  void rows(NodeId n) {
    const ValueId r = g_.node(n).first_value, w = g_.node(n).operands[1];
    int64_t together = g_.dims(r)[g_.dims(r).rank() - 2];   // one row each: begins with the innermost batch
    for (int i = pairs(r) - 1; i >= 0; i--) {
      const int a = axes(r)[static_cast<size_t>(i)], b = axes(r)[static_cast<size_t>(i) + 1];
      if (b == g_.dims(r).rank() - 1) continue;
      if (g_.dims(w)[a] > 1 || (b < g_.dims(r).rank() - 2 && g_.dims(w)[b] > 1)) return;
      if (together == 1) together = g_.dims(r)[b];
      const int64_t outer = g_.dims(r)[a], apart = round_up(together, kTileRows) * outer, joined = round_up(together * outer, kTileRows);
      const bool gains = static_cast<double>(apart) >= kEmptyRows * static_cast<double>(joined);
      if (!is_joined(r, i)) (gains ? ties_.wanted : ties_.apart).push_back(id(r, i));
      if (!is_joined(r, i) && !gains) return;
      together *= outer;
    }
  }
  /// Ties between products that functions, reductions and reshapes alone connect: scores and their softmax, a gated MLP.
  void mark_inside(const std::vector<std::vector<NodeId>>& users) {
    const auto passes = [&](NodeId n) { return g_.form<Map>(n) || g_.form<Reduce>(n) || g_.form<Reshape>(n) || g_.form<Transpose>(n); };
    std::vector<bool> behind(static_cast<size_t>(g_.num_nodes())), ahead(behind.size());   // a product is, or such a way to one
    for (NodeId n = 0; n < g_.num_nodes(); n++) {
      const auto is = [&](ValueId v) { return bool{behind[static_cast<size_t>(g_.value(v).node)]}; };
      const auto& o = g_.node(n).operands;
      behind[static_cast<size_t>(n)] = g_.form<MatMul>(n) || (passes(n) && std::any_of(o.begin(), o.end(), is));
    }
    for (NodeId n = g_.num_nodes() - 1; n >= 0; n--) {
      const auto is = [&](NodeId u) { return bool{ahead[static_cast<size_t>(u)]}; };
      ahead[static_cast<size_t>(n)] = g_.form<MatMul>(n) != nullptr;
      if (!passes(n)) continue;
      const auto& readers = users[static_cast<size_t>(g_.node(n).first_value)];
      ahead[static_cast<size_t>(n)] = std::any_of(readers.begin(), readers.end(), is);
    }
    for (Ties::Tie& t : ties_.ties)
      t.inside = behind[static_cast<size_t>(g_.value(t.value).node)] && ahead[static_cast<size_t>(t.reader)];
  }
  bool is_product(ValueId v) const {
    while (is_view(g_.def(v).op)) v = g_.def(v).operands[0];
    return g_.def_form<MatMul>(v) != nullptr;
  }
  /// What a reshape makes of one dimension of a product's result: functions of it are part of the product while it is one.
  void parts(NodeId n) {
    const ValueId r = g_.node(n).first_value;
    const std::array type{g_.type(g_.node(n).operands[0])};
    const IndexMap map = index_map(g_.node(n).op, type);
    for (const DimRun& run : map.runs)
      for (int i = 0; i < pairs(r) && run.count == 1; i++)
        if (axes(r)[static_cast<size_t>(i)] >= run.result_first &&
            axes(r)[static_cast<size_t>(i) + 1] < run.result_first + run.result_count && !is_joined(r, i))
          ties_.wanted.push_back(id(r, i));
  }
  /// The first of the reductions in a row that n is the last of.
  NodeId first_of(NodeId n) const {
    const ValueId base = chains_.last.at(n).base;
    while (g_.node(n).operands[0] != base) n = g_.value(g_.node(n).operands[0]).node;
    return n;
  }
  /// Repetitions are worth it where products, beside whose operands they are small, gain their batch: several of them, which have one grid
  /// only if their batch is one dimension. A single one has axes of the grid for two.
  void weigh() {
    struct Gain { int products = 0; int64_t elements = 0; };
    std::map<int, Gain> gains;
    for (auto [pair, elements] : gains_) {
      Gain& g = gains[find(pair)];
      g = {g.products + 1, std::max(g.elements, elements)};
    }
    for (const Partial& p : partial_)
      if (const Gain& g = gains[find(p.pair)]; g.products < 2 || p.elements * kFewElements > g.elements) close(p.pair);
  }

  void strides(ValueId v, const TensorInfo& t) {
    for (int i = 0; i < pairs(v); i++) {
      const int a = axes(v)[static_cast<size_t>(i)], b = axes(v)[static_cast<size_t>(i) + 1];
      if (t.strides[a] != t.strides[b] * t.type.dims[b]) close(id(v, i));
    }
  }

  /// Pairs at a border that both shapes have stay together; within what is split or joined all is free.
  void reshape(ValueId x, ValueId r, const std::vector<DimRun>& runs, NodeId reader) {
    size_t i = 0, j = 0;
    for (const DimRun& run : runs) {
      while (i < axes(x).size() && axes(x)[i] < run.first + run.count) i++;
      while (j < axes(r).size() && axes(r)[j] < run.result_first + run.result_count) j++;
      if (i > 0 && j > 0 && i < axes(x).size() && j < axes(r).size()) tie(x, static_cast<int>(i) - 1, r, static_cast<int>(j) - 1, reader);
    }
  }

  /// Dimensions that are the result's as they are; the others become none of it. special: dimensions of another kind.
  void same(ValueId x, ValueId r, const std::vector<DimLink>& links, NodeId reader, const std::vector<int>& special, int kind) {
    relate(x, r, targets(links, special, kind), reader);
  }
  static std::vector<int> targets(const std::vector<DimLink>& links, const std::vector<int>& special = {}, int kind = -1) {
    std::vector<int> to;
    for (const DimLink& l : links) to.push_back(l.kind == DimLink::Kind::kAligned || l.kind == DimLink::Kind::kBroadcast ? l.dim : -1);
    for (int d : special) to[static_cast<size_t>(d)] = kind;
    return to;
  }

  void constrain(NodeId n) {
    const Node& node = g_.node(n);
    const ValueId r = node.first_value;
    if (const auto* in = g_.form<Input>(n)) strides(r, p_.inputs[static_cast<size_t>(in->param)]);
    else if (const auto* out = g_.form<Output>(n)) strides(node.operands[0], p_.outputs[static_cast<size_t>(out->result)]);
    else if (const auto* c = g_.form<Const>(n)) extents(*c);
    else if (const auto* at = g_.form<Iota>(n)) {
      for (int i = 0; i < pairs(r); i++)
        if (axes(r)[static_cast<size_t>(i)] == at->dim || axes(r)[static_cast<size_t>(i) + 1] == at->dim) close(id(r, i));
    } else if (g_.form<Reduce>(n) && chains_.is_inner[static_cast<size_t>(n)]) {
      return;
    // several reductions: their dimensions are one as they like
    } else if (auto chain = chains_.last.find(n); chain != chains_.last.end()) {
      const int rank = g_.dims(r).rank();
      std::vector<DimLink> links;
      for (int d = 0; d < rank; d++) links.push_back({DimLink::Kind::kAligned, d});
      same(chain->second.base, r, links, first_of(n), chain->second.dims, -2);
    } else {
      MIRAGE_ASSERT(!g_.form<Call>(n) && !g_.form<Running>(n) && !g_.form<Accum>(n))
          << "a program has primitives only, not " << form_name(node.op);
      std::vector<Type> types;
      for (ValueId x : node.operands) types.push_back(g_.type(x));
      const IndexMap map = index_map(node.op, types);
      const auto* repeat = g_.form<Repeat>(n);
      const bool may_repeat = (repeat && g_.dims(node.operands[0])[repeat->dim] == 1) || (g_.form<Map>(n) && may_widen_);
      for (size_t k = 0; k < node.operands.size(); k++) {
        if (g_.form<Reshape>(n)) reshape(node.operands[k], r, map.runs, n);
        else relate(node.operands[k], r, targets(map.operands[k]), n, may_repeat ? n : -1);
      }
      if (g_.form<MatMul>(n)) batch(n);
    }
  }

  /// A constant that is a product of extents must name all of a joined dimension or none.
  void extents(const Const& c) {
    for (NodeId n : g_.inputs()) {
      const ValueId v = g_.node(n).first_value;
      auto named = [&](int dim) { return std::count(c.extent_of.begin(), c.extent_of.end(), std::pair{g_.form<Input>(n)->param, dim}); };
      for (int i = 0; i < pairs(v); i++)
        if (named(axes(v)[static_cast<size_t>(i)]) != named(axes(v)[static_cast<size_t>(i) + 1])) close(id(v, i));
    }
  }

  /// Nothing becomes longer than kernels can count.
  void limit() {
    for (bool changed = true; changed;) {
      changed = false;
      for (ValueId v = 0; v < g_.num_values(); v++) {
        int64_t extent = 1;
        for (size_t i = 0; i < axes(v).size(); i++) {
          const bool joins = i > 0 && is_joined(v, static_cast<int>(i) - 1);
          extent = (joins ? extent : 1) * g_.dims(v)[axes(v)[i]];   // at most 2^30 times 2^40
          if (!joins || extent <= kMaxExtent) continue;
          close(id(v, static_cast<int>(i) - 1));
          changed = true;
          extent = g_.dims(v)[axes(v)[i]];
        }
      }
    }
  }

  const Program& p_;
  const Graph& g_;
  const Chains& chains_;
  const bool may_widen_;
  std::vector<std::vector<int>> axes_;
  std::vector<int> first_, parent_;
  std::vector<bool> closed_;
  std::vector<Partial> partial_;
  std::vector<std::pair<int, int64_t>> gains_;
  std::map<std::pair<ValueId, int>, int64_t> widened_;
  Ties ties_;
};

}  // namespace

Chains::Chains(const Graph& g) : is_inner(static_cast<size_t>(g.num_nodes())) {
  const auto users = g.users();
  auto full = [&](NodeId n) { const auto* r = g.form<Reduce>(n); return r && is_full(g, *r, g.node(n).operands[0]) ? r : nullptr; };
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Reduce* r = full(n);
    if (!r) continue;
    const auto& readers = users[static_cast<size_t>(g.node(n).first_value)];
    const Reduce* next = readers.size() == 1 ? full(readers[0]) : nullptr;
    is_inner[static_cast<size_t>(n)] = next && next->fn == r->fn && next->dim != r->dim;
  }
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    if (!full(n) || is_inner[static_cast<size_t>(n)]) continue;
    Chain c{g.node(n).operands[0], {full(n)->dim}};
    while (full(g.value(c.base).node) && is_inner[static_cast<size_t>(g.value(c.base).node)]) {
      c.dims.insert(c.dims.begin(), full(g.value(c.base).node)->dim);
      c.base = g.def(c.base).operands[0];
    }
    last.emplace(n, std::move(c));
  }
}

Groups find_groups(const Program& p, const Chains& chains) { return Pairs(p, chains, false).groups(); }

Ties find_ties(const Program& p, const Chains& chains) { return Pairs(p, chains, false).ties(); }

std::map<NodeId, std::set<int>> find_partial(const Program& p, const Chains& chains) { return Pairs(p, chains, true).partial(); }

}  // namespace mirage::folding
