// Moves slices towards the inputs; see the header.
#include "ir/fold/slices.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

namespace mirage {
namespace {

constexpr int64_t kFewRows = 64;   ///< with more, one large product is as good as several, and its parts are read where they lie
constexpr int64_t kVector = 8;     ///< elements that lines of weights are read by

class Slices {
 public:
  explicit Slices(const Graph& g) : g_(g), users_(g.users()), b_(Level::kKernel), at_(static_cast<size_t>(g.num_values()), -1) {}

  bool run() {
    for (NodeId n = 0; n < g_.num_nodes(); n++) {
      const Node& node = g_.node(n);
      if (const auto* in = g_.form<Input>(n))
        at_[static_cast<size_t>(node.first_value)] = b_.add_input(in->param, g_.type(node.first_value));
      else if (const auto* out = g_.form<Output>(n)) b_.add_output(out->result, made(node.operands[0]), out->dtype);
      if (failed_) return false;
    }
    return changed_;
  }
  Graph finish(std::vector<DType>* kept, std::vector<ValueId>* to) const {
    std::vector<ValueId> at;
    Graph out = remove_dead(b_.graph(), &at);
    if (to) {
      to->clear();
      for (ValueId made : at_) to->push_back(made >= 0 ? at[static_cast<size_t>(made)] : -1);
    }
    if (!kept || kept->empty()) return out;
    std::vector<DType> now(static_cast<size_t>(out.num_values()), DType::kReal);
    const auto keep = [&](ValueId v, ValueId made) {
      if (made >= 0 && at[static_cast<size_t>(made)] >= 0)
        now[static_cast<size_t>(at[static_cast<size_t>(made)])] = (*kept)[static_cast<size_t>(v)];
    };
    for (size_t v = 0; v < at_.size(); v++) keep(static_cast<ValueId>(v), at_[v]);
    for (const auto& [key, made] : parts_) keep(std::get<0>(key), made);
    *kept = std::move(now);
    return out;
  }

 private:
  const std::vector<NodeId>& users(ValueId v) const { return users_[static_cast<size_t>(v)]; }

  ValueId add(Op op, const std::vector<ValueId>& operands) {
    const auto v = b_.try_add(std::move(op), operands);
    failed_ = failed_ || !v;
    return v.value_or(0);
  }

  ValueId made(ValueId v) {
    if (at_[static_cast<size_t>(v)] >= 0) return at_[static_cast<size_t>(v)];
    const Node& node = g_.def(v);
    ValueId out;
    if (const auto* s = std::get_if<Slice>(&node.op)) {
      const ValueId x = node.operands[0];
      const bool packed = std::all_of(users(x).begin(), users(x).end(), [&](NodeId u) { return g_.form<Slice>(u); });
      out = s->step == 1 && parts_of(x, s->dim) ? part(x, *s) : slice(made(x), *s);
      if (packed) packed_.insert(at_[static_cast<size_t>(x)]);
    } else if (std::holds_alternative<Reshape>(node.op)) {
      out = reshape(made(node.operands[0]), g_.dims(v));
    } else {
      std::vector<ValueId> operands;
      for (ValueId o : node.operands) operands.push_back(made(o));
      out = add(node.op, operands);
    }
    return at_[static_cast<size_t>(v)] = out;
  }

  // ---- slices of what is computed

  /// Whether v is computed for its slices along `dim` alone, of which none needs what another one does, and is better computed part by
  /// part: columns of a product by weights, or rows of weights times something larger (channels ahead of places).
  bool parts_of(ValueId v, int dim) {
    const int back = g_.dims(v).rank() - 1 - dim;
    if (back > 1 || !moves(v, back)) return false;
    std::vector<std::pair<int64_t, int64_t>> parts;
    bool elementwise = true;
    for (NodeId n : users(v)) {
      const auto* s = g_.form<Slice>(n);
      if (!s || s->dim != dim || s->step != 1 || s->start % kVector || (s->stop - s->start) % kVector) return false;
      parts.push_back({s->start, s->stop});
      for (NodeId u : users(g_.node(n).first_value)) elementwise = elementwise && g_.form<Map>(u);
    }
    std::sort(parts.begin(), parts.end());
    bool alike = true;
    for (size_t i = 0; i < parts.size(); i++) {
      if (i > 0 && parts[i].first < parts[i - 1].second) return false;
      alike = alike && parts[i].second - parts[i].first == parts[0].second - parts[0].first;
    }
    const Dims& d = g_.dims(v);
    const bool few = d.elements() / d[dim] <= kFewRows;
    bool shared = false;
    const int n = products(v, back, shared);
    // Of a batch that shares its weights, and of rows of weights, only what is worth a tile's while: few rows are no streams.
    if (back == 1 || shared) return parts.size() > 1 && n == 1 && !few && alike && elementwise;
    return parts.size() > 1 && (n == 1 ? few || (alike && elementwise) : n == 2 && few && alike && elementwise);
  }
  /// Products that v is a function of, none of another one, each counted once: each would be as many as there are parts (the gates of a
  /// recurrent cell: two products and a map are 13 us, eight and a map 36). Two of 16-bit weights are one pass over both where their parts
  /// are only put together elementwise (plan/stream.h); others count as many.
  // shared: weights of one of them have dimensions added that a batch shares
  int products(ValueId v, int back, bool& shared) const {
    std::set<ValueId> seen = {v};
    std::vector<ValueId> next = {v};
    int n = 0;
    bool narrow = true;
    while (!next.empty()) {
      const ValueId at = next.back();
      next.pop_back();
      if (g_.def_form<MatMul>(at)) {
        n++, narrow = narrow && is16(g_.type(weights(at, back)).dtype);
        for (ValueId w = weights(at, back); g_.def_form<Transpose>(w) || only_ones(w); w = g_.def(w).operands[0])
          shared = shared || only_ones(w);
      }
      if (!g_.def_form<Map>(at)) continue;
      for (ValueId o : g_.def(at).operands)
        if (is_part(o, back) && seen.insert(o).second) next.push_back(o);
    }
    return n == 1 || narrow ? n : 3;
  }
  /// The operand of a product that a slice of its columns (back 0: the last dimension) or rows (1: the last but one) is a slice of.
  ValueId weights(ValueId v, int back) const { return g_.def(v).operands[back == 0 ? 1 : 0]; }
  /// Whether a slice of that dimension of v is a product by a slice of a weight, or a function of one that nothing else reads.
  bool moves(ValueId v, int back) {
    const auto key = std::pair(v, back);
    if (const auto known = moves_.find(key); known != moves_.end()) return known->second;
    return moves_[key] = back_moves(v, back);
  }
  bool back_moves(ValueId v, int back) {
    if (g_.def_form<MatMul>(v)) {
      const ValueId w = weights(v, back), x = weights(v, 1 - back);
      return is_given(w) && (back == 0 || g_.dims(w).elements() <= g_.dims(x).elements());
    }
    if (!g_.def_form<Map>(v)) return false;
    bool any = false;
    for (ValueId o : g_.def(v).operands) {
      if (!is_part(o, back)) continue;
      if (users(o).size() != 1 || !moves(o, back)) return false;
      any = true;
    }
    return any;
  }
  /// Whether o has more than one element along the dimension that is `back` from its last.
  bool has(ValueId o, int back) const {
    const Dims& e = g_.dims(o);
    return e.rank() > back && e[e.rank() - 1 - back] > 1;
  }
  /// Whether a slice of what reads o along that dimension needs a slice of o that has to be computed.
  bool is_part(ValueId o, int back) const { return has(o, back) && !is_given(o); }
  /// Whether dimensions of one element are all that a reshape adds or takes away.
  bool only_ones(ValueId v) const {
    if (!g_.def_form<Reshape>(v)) return false;
    const auto others = [](const Dims& d) {
      Dims out;
      for (int64_t x : d) if (x != 1) out.push_back(x);
      return out;
    };
    return others(g_.dims(v)) == others(g_.dims(g_.def(v).operands[0]));
  }
  /// An input, or a view of one.
  bool is_given(ValueId v) const {
    while (g_.def_form<Transpose>(v) || only_ones(v)) v = g_.def(v).operands[0];
    return g_.def_form<Input>(v) != nullptr;
  }
  ValueId part(ValueId v, Slice s) {
    const auto key = std::make_tuple(v, s.dim, s.start, s.stop);   // a reader may read it twice
    if (const auto known = parts_.find(key); known != parts_.end()) return known->second;
    return parts_[key] = make_part(v, s);
  }
  ValueId make_part(ValueId v, Slice s) {
    changed_ = true;
    const Node& node = g_.def(v);
    const int back = g_.dims(v).rank() - 1 - s.dim;
    const auto of = [&](ValueId o) {
      if (!has(o, back)) return made(o);
      Slice own = s;
      own.dim = g_.dims(o).rank() - 1 - back;
      return is_given(o) ? view(o, own) : part(o, own);
    };
    if (std::holds_alternative<MatMul>(node.op)) {
      const ValueId x = node.operands[0], y = node.operands[1];
      return back == 0 ? add(MatMul{}, {made(x), of(y)}) : add(MatMul{}, {of(x), made(y)});
    }
    std::vector<ValueId> operands;
    for (ValueId o : node.operands) operands.push_back(of(o));
    return add(node.op, operands);
  }
  /// The slice of an input; of a view of one, its slice's view.
  ValueId view(ValueId v, Slice s) {
    if (only_ones(v)) {
      const ValueId from = g_.def(v).operands[0];
      Dims dims = g_.dims(v);
      Slice own = s;
      int left = 0;   // dimensions of more elements ahead of it
      for (int d = 0; d < s.dim; d++) left += dims[d] != 1;
      for (own.dim = 0; left > 0 || g_.dims(from)[own.dim] == 1; own.dim++) left -= g_.dims(from)[own.dim] != 1;
      dims[s.dim] = s.stop - s.start;
      return add(Reshape{dims}, {view(from, own)});
    }
    const auto* t = g_.def_form<Transpose>(v);
    if (!t) return add(s, {made(v)});
    s.dim = t->perm[static_cast<size_t>(s.dim)];
    return add(*t, {view(g_.def(v).operands[0], s)});
  }

  // ---- slices of inputs, on the new graph

  bool is_input(ValueId v) const {
    while (b_.graph().def_form<Reshape>(v)) v = b_.graph().def(v).operands[0];
    return b_.graph().def_form<Input>(v) != nullptr;
  }
  ValueId shaped(ValueId v, const Dims& dims) {
    while (!(b_.graph().dims(v) == dims) && b_.graph().def_form<Reshape>(v)) v = b_.graph().def(v).operands[0];
    return b_.graph().dims(v) == dims ? v : add(Reshape{dims}, {v});
  }
  /// One of several elements, along a dimension: of it and the next one together that is no single element.
  ValueId slice(ValueId x, Slice s) {
    const Dims d = b_.graph().dims(x);
    const int next = s.dim + 1;
    if (s.step != 1 || s.stop - s.start != 1 || d[s.dim] == 1 || next >= d.rank() || d[next] == 1 || !is_input(x)) return add(s, {x});
    changed_ = true;
    Dims joined, kept;
    for (int i = 0; i < d.rank(); i++) {
      kept.push_back(i == s.dim ? 1 : d[i]);
      if (i == next) continue;
      joined.push_back(i == s.dim ? d[i] * d[next] : d[i]);
    }
    const ValueId cut = add(Slice{s.dim, s.start * d[next], s.stop * d[next], 1}, {shaped(x, joined)});
    return failed_ ? cut : shaped(cut, kept);
  }
  /// A slice's reshape as the slice of a reshape, where the dimension that is cut is taken apart at a border of all pieces.
  ValueId reshape(ValueId x, const Dims& dims) {
    if (failed_) return x;
    while (b_.graph().def_form<Reshape>(x)) x = b_.graph().def(x).operands[0];
    const auto* s = b_.graph().def_form<Slice>(x);
    const ValueId base = s ? b_.graph().def(x).operands[0] : -1;
    if (!s || s->step != 1 || (!is_input(base) && !packed_.count(base))) return shaped(x, dims);
    const Dims d = b_.graph().dims(x), whole = b_.graph().dims(base);
    int64_t before = 1, outer = 1;   // elements of dimensions ahead of the cut one; of the result's
    for (int i = 0; i < s->dim; i++) before *= d[i];
    int at = 0;
    while (at < dims.rank() && outer < before) outer *= dims[at++];
    while (at < dims.rank() && dims[at] == 1 && outer == before) at++;
    if (outer != before || at == dims.rank()) return shaped(x, dims);
    int64_t inner = 1, product = dims[at];
    for (int i = at + 1; i < dims.rank() && product < d[s->dim]; i++) product *= dims[i], inner *= dims[i];
    if (product != d[s->dim] || inner == 1 || s->start % inner || whole[s->dim] % inner) return shaped(x, dims);
    changed_ = true;
    Dims open = dims;
    open[at] = whole[s->dim] / inner;
    const Slice cut{at, s->start / inner, s->stop / inner, 1};
    const ValueId from = shaped(base, open);
    return failed_ ? from : add(cut, {from});
  }

  const Graph& g_;
  const std::vector<std::vector<NodeId>> users_;
  Builder b_;
  std::vector<ValueId> at_;
  std::set<ValueId> packed_;   ///< new values that nothing but slices read
  std::map<std::pair<ValueId, int>, bool> moves_;
  std::map<std::tuple<ValueId, int, int64_t, int64_t>, ValueId> parts_;   ///< by value, dimension, start and stop
  bool changed_ = false, failed_ = false;
};

}  // namespace

std::optional<Graph> settled_slices(const Graph& g, std::vector<DType>* kept, std::vector<ValueId>* to) {
  if (std::none_of(g.nodes().begin(), g.nodes().end(), [](const Node& n) { return std::holds_alternative<Slice>(n.op); }))
    return std::nullopt;
  Slices s(g);
  if (!s.run()) return std::nullopt;
  return s.finish(kept, to);
}

}  // namespace mirage
