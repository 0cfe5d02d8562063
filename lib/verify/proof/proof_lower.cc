// One rule per form: the element at a position, from the operands' elements at positions that are index arithmetic of it. Mirrors
// ir/eval_impl.h (the meaning of graphs), down to what a clipped tile is.
#include "verify/proof/proof_lower.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "mirage/ir/eval.h"

namespace mirage::verify {
namespace {

/// The algebra that the formulas of maps.def are read with.
struct TermAlgebra {
  using Value = PolyId;
  Terms& t;
  Value constant(double c) { return t.constant(c); }
  Value add(Value x, Value y) { return t.add(x, y); }
  Value sub(Value x, Value y) { return t.sub(x, y); }
  Value mul(Value x, Value y) { return t.mul(x, y); }
  Value div(Value x, Value y) { return t.div(x, y); }
  Value neg(Value x) { return x < 0 ? kPoison : t.neg(x); }
  Value exp(Value x) { return t.exp(x); }
  Value log(Value x) { return t.log(x); }
  Value sqrt(Value x) { return t.power(x, {1, 2}); }
  Value abs(Value x) { return t.max(x, neg(x)); }
  Value tanh(Value x) { return t.tanh(x); }
  Value erf(Value x) { return t.fn(FnTag::kErf, 0, {x}); }
  Value sin(Value x) { return t.fn(FnTag::kSin, 0, {x}); }
  Value cos(Value x) { return t.fn(FnTag::kCos, 0, {x}); }
  Value floor(Value x) { return t.fn(FnTag::kFloor, 0, {x}); }
  Value nearest(Value x) { return t.fn(FnTag::kNearest, 0, {x}); }
  Value max(Value x, Value y) { return t.max(x, y); }
  Value min(Value x, Value y) { return neg(t.max(neg(x), neg(y))); }
  Value pow(Value x, Value y) { return t.pow(x, y); }
  Value equal(Value x, Value y) { return t.equal(x, y); }
  Value less(Value x, Value y) { return t.less(x, y); }
  Value select(Value c, Value x, Value y) { return t.select(c, x, y); }
  Value round(Value x, DType d) { return t.round(x, d); }
};

class Lowering {
 public:
  Lowering(Terms& terms, bool* exact) : t_(terms), exact_(exact) {}

  std::vector<Lowered> kernel(const Graph& g, Cuts* cuts) {
    if (cuts) cuts->elements.assign(static_cast<size_t>(g.num_values()), kPoison);
    std::vector<Lowered> values(static_cast<size_t>(g.num_values())), out(static_cast<size_t>(g.num_results()));
    for (NodeId n = 0; n < g.num_nodes(); n++) {
      const Node& node = g.node(n);
      std::vector<const Lowered*> in;
      for (ValueId v : node.operands) in.push_back(&values[static_cast<size_t>(v)]);
      if (const auto* o = g.form<Output>(n)) {
        out[static_cast<size_t>(o->result)] = *in[0];
      } else if (const auto* c = g.form<Call>(n)) {
        std::vector<Lowered> r = call(*c->body, in);
        for (size_t i = 0; i < r.size(); i++) values[static_cast<size_t>(node.first_value) + i] = std::move(r[i]);
      } else if (const auto* i = g.form<Input>(n)) {
        values[static_cast<size_t>(node.first_value)] = program_input(i->param, g.type(node.first_value));
      } else {
        values[static_cast<size_t>(node.first_value)] = form(node.op, in, g.dims(node.first_value));
      }
      for (int i = 0; cuts && i < node.num_values; i++) {
        const auto v = static_cast<size_t>(node.first_value + i);
        cuts->elements[v] = values[v].element;
        if (cuts->at[v]) values[v].element = t_.cut(values[v].element);
      }
    }
    return out;
  }

 private:
  IdxId at(int dim, int64_t extent) { return t_.idx.of_var(t_.formal(dim, extent)); }
  Lowered plain(PolyId element, const Dims& dims) { return {element, dims, std::vector<Clip>(static_cast<size_t>(dims.rank()))}; }
  Lowered poisoned(const std::string& why, const Dims& dims) { return plain(t_.poison(why), dims); }

  Lowered program_input(int param, const Type& type) {
    t_.set_input_type(param, type.dtype);
    std::vector<IdxId> index;
    for (int d = 0; d < type.dims.rank(); d++) index.push_back(at(d, type.dims[d]));
    return plain(t_.input(param, index), type.dims);
  }

  /// x's element at `coords`, one index expression per dimension of x.
  PolyId element_at(const Lowered& x, const std::vector<IdxId>& coords) {
    VarMap map;
    for (int d = 0; d < x.dims.rank(); d++)
      if (x.dims[d] > 1 && coords[static_cast<size_t>(d)] != at(d, x.dims[d]))
        map[t_.formal(d, x.dims[d])] = coords[static_cast<size_t>(d)];
    return map.empty() ? x.element : t_.subst(x.element, map);
  }

  static bool is_clipped(const Lowered& x) { return std::any_of(x.clips.begin(), x.clips.end(), [](const Clip& c) { return c.on; }); }
  /// 1 where position `where` of a dimension exists.
  PolyId exists(const Clip& c, IdxId where) {
    if (!c.on) return t_.integer(1);
    IdxId left = t_.idx.add(t_.idx.constant(c.extent - 1), c.base, -1);
    return t_.ge0(t_.idx.add(left, where, -1));
  }

  // Dimension d of the result has the clip of every operand dimension that is not broadcast into it; false if they disagree.
  static bool join(Clip& to, const Clip& from, bool is_broadcast) {
    if (is_broadcast && !from.on) return true;
    if (to.on && from.on) return to == from;
    if (from.on) to = from;
    return true;
  }

  Lowered map(MapFn fn, const std::vector<const Lowered*>& in, const Dims& dims) {
    Lowered out = plain(kPoison, dims);
    std::vector<PolyId> x(3, t_.integer(0));
    std::vector<int> full(static_cast<size_t>(dims.rank()), 0);   // operands that have the dimension unclipped, and clipped
    for (size_t i = 0; i < in.size(); i++) {
      const int shift = dims.rank() - in[i]->dims.rank();
      std::vector<IdxId> coords;
      for (int d = 0; d < in[i]->dims.rank(); d++) {
        const int64_t extent = in[i]->dims[d];
        coords.push_back(extent == 1 ? t_.idx.constant(0) : at(d + shift, extent));
        const Clip& c = in[i]->clips[static_cast<size_t>(d)];
        if (!join(out.clips[static_cast<size_t>(d + shift)], c, extent == 1))
          return poisoned("tiles that are clipped differently meet", dims);
        if (extent > 1) full[static_cast<size_t>(d + shift)] |= c.on ? 2 : 1;
      }
      x[i] = element_at(*in[i], coords);
      if (x[i] < 0) return plain(kPoison, dims);
    }
    for (int f : full) if (f == 3) return poisoned("a clipped tile meets one that is not", dims);
    TermAlgebra a{t_};
    if (const auto limit = at_minus_infinity(fn); in.size() == 1 && limit && t_.holds_mask(x[0]))
      out.element = t_.select(t_.finite_where(x[0]), apply_map(fn, a, t_.finite_part(x[0]), x[1], x[2]), t_.constant(*limit));
    else
      out.element = apply_map(fn, a, x[0], x[1], x[2]);
    out.element = t_.named(out.element);
    return out;
  }

  /// What a function of one operand makes of minus infinity, by its own formula, where that is a whole number: f(where(c, x, -inf)) is
  /// where(c, f(x), f(-inf)), though a step of the formula (e^-x of a sigmoid) is not finite. relu has a rule of its own, that of maxima.
  static std::optional<double> at_minus_infinity(MapFn fn) {
    if (map_info(fn).arity != 1 || fn == MapFn::kRelu) return std::nullopt;
    DoubleAlgebra d;
    const double y = apply_map(fn, d, -std::numeric_limits<double>::infinity(), 0.0, 0.0);
    return std::isfinite(y) && y == std::floor(y) ? std::optional(y) : std::nullopt;
  }

  Lowered matmul(const Lowered& a, const Lowered& b, const Dims& dims) {
    Lowered out = plain(kPoison, dims);
    const int r = dims.rank();
    const int64_t extent = a.dims[r - 1];
    const VarId k = t_.temp(extent);
    std::vector<IdxId> ca, cb;
    for (int d = 0; d < r - 2; d++) {
      ca.push_back(a.dims[d] == 1 ? t_.idx.constant(0) : at(d, a.dims[d]));
      cb.push_back(b.dims[d] == 1 ? t_.idx.constant(0) : at(d, b.dims[d]));
      const Clip &x = a.clips[static_cast<size_t>(d)], &y = b.clips[static_cast<size_t>(d)];
      if (!join(out.clips[static_cast<size_t>(d)], x, a.dims[d] == 1) || !join(out.clips[static_cast<size_t>(d)], y, b.dims[d] == 1) ||
          (a.dims[d] > 1 && b.dims[d] > 1 && x.on != y.on))
        return poisoned("tiles that are clipped differently meet", dims);
    }
    ca.push_back(at(r - 2, a.dims[r - 2]));
    ca.push_back(t_.idx.of_var(k));
    cb.push_back(t_.idx.of_var(k));
    cb.push_back(at(r - 1, b.dims[r - 1]));
    out.clips[static_cast<size_t>(r - 2)] = a.clips[static_cast<size_t>(r - 2)];
    out.clips[static_cast<size_t>(r - 1)] = b.clips[static_cast<size_t>(r - 1)];
    const Clip &x = a.clips[static_cast<size_t>(r - 1)], &y = b.clips[static_cast<size_t>(r - 2)];
    if (!(x == y)) return poisoned("inner dimensions are clipped differently", dims);
    const PolyId product = t_.mul(element_at(a, ca), element_at(b, cb));
    out.element = t_.sum(t_.mul(exists(x, t_.idx.of_var(k)), product), {k});
    return out;
  }

  Lowered reduce(const Reduce& r, const Lowered& x, const Dims& dims) {
    Lowered out{kPoison, dims, x.clips};
    const Clip c = x.clips[static_cast<size_t>(r.dim)];
    out.clips[static_cast<size_t>(r.dim)] = {};
    if (r.group && c.on) return poisoned("groups of a clipped tile", dims);
    const int64_t extent = r.group ? r.group : x.dims[r.dim];
    const VarId k = t_.temp(extent);
    std::vector<IdxId> coords;
    for (int d = 0; d < dims.rank(); d++) coords.push_back(at(d, dims[d]));
    const IdxId inner = r.group ? t_.idx.add(t_.idx.of_var(k), at(r.dim, dims[r.dim]), r.group) : t_.idx.of_var(k);
    coords[static_cast<size_t>(r.dim)] = inner;
    const PolyId e = element_at(x, coords), there = exists(c, inner);
    out.element = r.fn == ReduceFn::kSum ? t_.sum(t_.mul(there, e), {k}) : t_.max_over(e, there, {k});
    return out;
  }

  Lowered reshape(const Lowered& x, const Dims& dims) {
    Lowered out = plain(kPoison, dims);
    // Only ones come or go: the others keep their places in order.
    std::vector<int> from, to;
    for (int d = 0; d < x.dims.rank(); d++) if (x.dims[d] != 1) from.push_back(d);
    for (int d = 0; d < dims.rank(); d++) if (dims[d] != 1) to.push_back(d);
    bool same = from.size() == to.size();
    for (size_t i = 0; same && i < from.size(); i++) same = x.dims[from[i]] == dims[to[i]];
    for (int d = 0; d < x.dims.rank(); d++)
      if (x.clips[static_cast<size_t>(d)].on && (!same || x.dims[d] == 1)) return poisoned("a reshape of a clipped tile", dims);
    std::vector<IdxId> coords(static_cast<size_t>(x.dims.rank()), t_.idx.constant(0));
    if (same) {
      for (size_t i = 0; i < from.size(); i++) {
        coords[static_cast<size_t>(from[i])] = at(to[i], dims[to[i]]);
        out.clips[static_cast<size_t>(to[i])] = x.clips[static_cast<size_t>(from[i])];
      }
    } else {
      IdxId flat = t_.idx.constant(0);
      const Dims s = row_major_strides(dims), u = row_major_strides(x.dims);
      for (int d = 0; d < dims.rank(); d++) flat = t_.idx.add(flat, at(d, dims[d]), s[d]);
      for (int d = 0; d < x.dims.rank(); d++) coords[static_cast<size_t>(d)] = t_.idx.mod(t_.idx.div(flat, u[d]), x.dims[d]);
    }
    out.element = element_at(x, coords);
    return out;
  }

  Lowered concat(int dim, const std::vector<const Lowered*>& in, const Dims& dims) {
    Lowered out = plain(kPoison, dims);
    const IdxId e = at(dim, dims[dim]);
    int64_t begin = dims[dim];
    for (size_t i = in.size(); i-- > 0;) {   // from the last: where e is at or beyond the part's begin, and no later part had it
      const Lowered& x = *in[i];
      begin -= x.dims[dim];
      std::vector<IdxId> coords;
      for (int d = 0; d < dims.rank(); d++) {
        coords.push_back(at(d, dims[d]));
        const Clip& c = x.clips[static_cast<size_t>(d)];
        if (d == dim ? c.on : i + 1 < in.size() && !(c == out.clips[static_cast<size_t>(d)]))
          return poisoned("a concat of clipped tiles", dims);
        out.clips[static_cast<size_t>(d)] = c;
      }
      coords[static_cast<size_t>(dim)] = t_.idx.add(e, t_.idx.constant(-begin));
      const PolyId part = element_at(x, coords);
      const bool watched = t_.watch(false);   // a part is defined where its elements are, whatever it would be elsewhere
      out.element =
          i + 1 == in.size() ? part : t_.select(t_.ge0(t_.idx.add(t_.idx.constant(begin + x.dims[dim] - 1), e, -1)), part, out.element);
      t_.watch(watched);
    }
    return out;
  }

  Lowered form(const Op& op, const std::vector<const Lowered*>& in, const Dims& dims) {
    for (const Lowered* x : in) if (x->element < 0) return plain(kPoison, dims);
    if (const auto* c = std::get_if<Const>(&op)) return plain(t_.constant(c->value), dims);
    if (const auto* c = std::get_if<Iota>(&op)) return plain(t_.index_value(at(c->dim, dims[c->dim])), dims);
    if (const auto* m = std::get_if<Map>(&op)) return map(m->fn, in, dims);
    if (std::get_if<MatMul>(&op)) return matmul(*in[0], *in[1], dims);
    const Lowered& x = *in[0];
    if (const auto* r = std::get_if<Reduce>(&op)) return reduce(*r, x, dims);
    if (std::get_if<Reshape>(&op)) return reshape(x, dims);
    if (const auto* c = std::get_if<Concat>(&op)) return concat(c->dim, in, dims);
    Lowered out{kPoison, dims, x.clips};
    std::vector<IdxId> coords;
    for (int d = 0; d < dims.rank(); d++) coords.push_back(at(d, dims[d]));
    if (const auto* r = std::get_if<Repeat>(&op)) {
      if (x.clips[static_cast<size_t>(r->dim)].on) return poisoned("a repeat of a clipped tile", dims);
      coords[static_cast<size_t>(r->dim)] = t_.idx.mod(at(r->dim, dims[r->dim]), x.dims[r->dim]);
    } else if (const auto* s = std::get_if<Slice>(&op)) {
      if (x.clips[static_cast<size_t>(s->dim)].on) return poisoned("a slice of a clipped tile", dims);
      coords[static_cast<size_t>(s->dim)] = t_.idx.add(t_.idx.constant(s->start), at(s->dim, dims[s->dim]), s->step);
    } else if (const auto* p = std::get_if<Transpose>(&op)) {
      for (int i = 0; i < dims.rank(); i++) {
        const auto from = static_cast<size_t>(p->perm[static_cast<size_t>(i)]);
        coords[from] = at(i, dims[i]);
        out.clips[static_cast<size_t>(i)] = x.clips[from];
      }
    } else {
      return poisoned(std::string("the prover has no rule for ") + form_name(op), dims);
    }
    out.element = element_at(x, coords);
    return out;
  }

  struct Place { std::array<VarId, 3> block; VarId iteration; };

  Lowered tile(const Input& in, const Lowered& whole, const Dims& dims, const Launch& launch, const Place& p) {
    Lowered out = plain(kPoison, dims);
    if (whole.element < 0) return out;
    if (is_clipped(whole)) return poisoned("a call on a clipped tile", dims);
    std::vector<IdxId> coords;
    for (int d = 0; d < dims.rank(); d++) {
      IdxId start = t_.idx.constant(0);
      for (size_t axis = 0; axis < 3; axis++)
        if (in.part.grid[axis] == d)
          start = t_.idx.add(start, t_.idx.of_var(p.block[axis]), dims[d] * (in.part.loop == d ? launch.loop : 1));
      if (in.part.loop == d) start = t_.idx.add(start, t_.idx.of_var(p.iteration), dims[d]);
      if (t_.idx.range(start).second + dims[d] > whole.dims[d]) {
        out.clips[static_cast<size_t>(d)] = {true, start, whole.dims[d]};
        *exact_ = false;
      }
      coords.push_back(t_.idx.add(start, at(d, dims[d])));
    }
    // The operand's formals are of the whole's extents, the tile's of its own: all are replaced.
    VarMap map;
    for (int d = 0; d < dims.rank(); d++)
      if (whole.dims[d] > 1) map[t_.formal(d, whole.dims[d])] = coords[static_cast<size_t>(d)];
    out.element = t_.subst(whole.element, map);
    return out;
  }

  /// A shift that may depend on x as a function of the iteration, and on nothing else: what is proved holds whatever its values are (as
  /// long as they are finite, which loose_running asks).
  Lowered running(const Lowered& x, const Place& p) {
    Lowered out{kPoison, x.dims, x.clips};
    if (x.element < 0) return out;
    PolyId there = t_.integer(1);
    for (int d = 0; d < x.dims.rank(); d++) there = t_.mul(there, exists(x.clips[static_cast<size_t>(d)], at(d, x.dims[d])));
    out.element = t_.running(t_.masked(x.element, there), p.iteration, t_.idx.of_var(p.iteration));
    return out;
  }

  /// The same after the last iteration.
  Lowered last(const Lowered& x, const Launch& launch, const Place& p) {
    Lowered out = x;
    for (Clip& c : out.clips) if (c.on) c.base = t_.idx.subst(c.base, {{p.iteration, t_.idx.constant(0)}});
    out.element = t_.subst(x.element, {{p.iteration, t_.idx.constant(launch.loop - 1)}});
    return out;
  }

  /// A_i = A_{i-1} exp(k (m_{i-1} - m_i)) + x_i is the sum of x_i exp(k (m_i - m_last)): the factors telescope.
  Lowered accumulate_rescaled(const Accum& a, Lowered x, const Lowered& m, const Launch& launch, const Place& p) {
    std::vector<IdxId> coords;
    const int shift = x.dims.rank() - m.dims.rank();
    for (int d = 0; d < m.dims.rank(); d++) coords.push_back(m.dims[d] == 1 ? t_.idx.constant(0) : at(d + shift, m.dims[d]));
    const PolyId now = element_at(m, coords), end = element_at(last(m, launch, p), coords);
    if (now < 0 || end < 0) return plain(kPoison, x.dims);
    x.element = t_.mul(x.element, t_.exp(t_.scale(t_.sub(now, end), Rational::of(a.degree))));
    return accumulate({a.fn, 0}, x, p);
  }

  Lowered accumulate(const Accum& a, const Lowered& x, const Place& p) {
    Lowered out{kPoison, x.dims, x.clips};
    if (x.element < 0) return out;
    PolyId there = t_.integer(1);
    for (int d = 0; d < x.dims.rank(); d++) {
      Clip& c = out.clips[static_cast<size_t>(d)];
      if (!c.on) continue;
      const auto& free = t_.idx.vars(c.base);
      if (std::find(free.begin(), free.end(), p.iteration) == free.end()) continue;
      there = t_.mul(there, exists(c, at(d, x.dims[d])));
      c.base = t_.idx.subst(c.base, {{p.iteration, t_.idx.constant(0)}});
    }
    out.element = a.fn == ReduceFn::kSum ? t_.sum(t_.mul(there, x.element), {p.iteration}) : t_.max_over(x.element, there, {p.iteration});
    return out;
  }

  Lowered result(const Output& o, const Lowered& x, const Dims& whole, const Launch& launch, const Place& p) {
    Lowered out = plain(kPoison, whole);
    if (x.element < 0) return out;
    VarMap map;
    std::vector<IdxId> coords(static_cast<size_t>(whole.rank()));
    for (int d = 0; d < whole.rank(); d++) coords[static_cast<size_t>(d)] = at(d, whole[d]);
    for (size_t axis = 0; axis < 3; axis++) {
      if (launch.grid[axis] == 1) continue;
      const int d = o.part.grid[axis];
      if (d < 0) return poisoned("several blocks write the same place", whole);
      for (size_t other = 0; other < axis; other++)
        if (o.part.grid[other] == d && launch.grid[other] > 1) return poisoned("two grid axes split one dimension of a result", whole);
      const IdxId e = at(d, whole[d]);
      map[p.block[axis]] = t_.idx.div(e, x.dims[d]);
      coords[static_cast<size_t>(d)] = t_.idx.mod(e, x.dims[d]);
      if (t_.idx.range(map[p.block[axis]]).second >= launch.grid[axis])
        return poisoned("a result is larger than the blocks that write it", whole);
    }
    for (int d = 0; d < whole.rank(); d++)
      if (x.dims[d] > 1) map[t_.formal(d, x.dims[d])] = coords[static_cast<size_t>(d)];
      else if (x.dims[d] < whole[d] && coords[static_cast<size_t>(d)] == at(d, whole[d]))
        return poisoned("a result is larger than the tiles that make it", whole);
    for (int d = 0; d < whole.rank(); d++) {
      const Clip& c = x.clips[static_cast<size_t>(d)];
      if (!c.on) continue;
      const PolyId there = exists({true, t_.idx.subst(c.base, map), c.extent}, coords[static_cast<size_t>(d)]);
      if (auto n = t_.as_number(there); !n || !n->is(1)) return poisoned("not every element of a result is written", whole);
    }
    out.element = t_.subst(x.element, map);
    return out;
  }

  std::vector<Lowered> call(const Graph& body, const std::vector<const Lowered*>& operands) {
    const Launch& launch = body.launch();
    Place p{{t_.temp(launch.grid[0]), t_.temp(launch.grid[1]), t_.temp(launch.grid[2])}, t_.temp(launch.loop)};
    std::vector<Type> types;
    for (const Lowered* x : operands) types.push_back({DType::kReal, x->dims});
    const std::vector<Type> whole = result_types(body, types).types;
    std::vector<Lowered> values(static_cast<size_t>(body.num_values())), out(whole.size());
    for (size_t r = 0; r < whole.size(); r++) out[r] = plain(kPoison, whole[r].dims);
    for (NodeId n = 0; n < body.num_nodes(); n++) {
      const Node& node = body.node(n);
      std::vector<const Lowered*> in;
      for (ValueId v : node.operands) in.push_back(&values[static_cast<size_t>(v)]);
      if (const auto* o = body.form<Output>(n)) {
        out[static_cast<size_t>(o->result)] = result(*o, *in[0], whole[static_cast<size_t>(o->result)].dims, launch, p);
        continue;
      }
      Lowered& dst = values[static_cast<size_t>(node.first_value)];
      if (const auto* i = body.form<Input>(n)) {
        dst = tile(*i, *operands[static_cast<size_t>(i->param)], body.dims(node.first_value), launch, p);
      } else if (const auto* a = body.form<Accum>(n)) {
        const bool is_last = a->fn == ReduceFn::kMax && body.def_form<Running>(node.operands[0]);
        dst = is_last     ? last(*in[0], launch, p)
              : a->degree ? accumulate_rescaled(*a, *in[0], *in[1], launch, p)
                          : accumulate(*a, *in[0], p);
      } else if (body.form<Running>(n)) {
        dst = running(*in[0], p);
      } else if (const auto* c = body.form<Call>(n)) {
        std::vector<Lowered> r = call(*c->body, in);
        for (size_t i = 0; i < r.size(); i++) values[static_cast<size_t>(node.first_value) + i] = std::move(r[i]);
      } else {
        dst = form(node.op, in, body.dims(node.first_value));
      }
    }
    return out;
  }

  Terms& t_;
  bool* exact_;
};

}  // namespace

std::vector<Lowered> lower(const Graph& g, Terms& terms, bool* exact, Cuts* cuts) { return Lowering(terms, exact).kernel(g, cuts); }

}  // namespace mirage::verify
