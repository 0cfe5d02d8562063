// Templates of eval.h: one arm per form.
#pragma once
#include <algorithm>
#include <array>
#include <utility>

namespace mirage {
namespace eval_detail {

/// Walks all index tuples of `dims` in row-major order while up to three strided offsets follow.
template <int N, class F> void walk(const Dims& dims, const std::array<Dims, N>& strides, F&& f) {
  std::array<int64_t, N> at{};
  const int r = dims.rank();
  if (dims.elements() == 0) return;
  std::array<int64_t, kMaxRank> idx{};
  for (;;) {
    f(at);
    int d = r - 1;
    for (; d >= 0; d--) {
      auto& i = idx[static_cast<size_t>(d)];
      if (++i < dims[d]) { for (size_t k = 0; k < N; k++) at[k] += strides[k][d]; break; }
      for (size_t k = 0; k < N; k++) at[k] -= strides[k][d] * (dims[d] - 1);
      i = 0;
    }
    if (d < 0) return;
  }
}

/// Strides of a tensor of `dims` read at the positions of `out` with broadcasting.
inline Dims broadcast_strides(const Dims& dims, const Dims& out) {
  Dims s = row_major_strides(dims), r;
  const int shift = out.rank() - dims.rank();
  for (int i = 0; i < out.rank(); i++) r.push_back(i < shift || dims[i - shift] == 1 ? 0 : s[i - shift]);
  return r;
}

template <class A> Tensor<typename A::Value> eval_map(MapFn fn, std::span<const Tensor<typename A::Value>* const> in, A& a) {
  using V = typename A::Value;
  Dims out;
  for (auto* t : in) {   // clipped tiles: an extent of 0 beside 1 or 0
    auto b = broadcast(out, t->dims);
    MIRAGE_ASSERT(b) << "map on " << to_string(out) << " and " << to_string(t->dims);
    out = *b;
  }
  Tensor<V> r;
  r.dims = out;
  r.data.reserve(static_cast<size_t>(out.elements()));
  static const V none{};
  const V* x = in[0]->data.data();
  const V* y = in.size() > 1 ? in[1]->data.data() : &none;
  const V* z = in.size() > 2 ? in[2]->data.data() : &none;
  Dims flat;
  for (int i = 0; i < out.rank(); i++) flat.push_back(0);
  std::array<Dims, 3> s{broadcast_strides(in[0]->dims, out), in.size() > 1 ? broadcast_strides(in[1]->dims, out) : flat,
                        in.size() > 2 ? broadcast_strides(in[2]->dims, out) : flat};
  walk<3>(out, s, [&](const std::array<int64_t, 3>& i) { r.data.push_back(apply_map(fn, a, x[i[0]], y[i[1]], z[i[2]])); });
  return r;
}

template <class A> Tensor<typename A::Value> eval_matmul(const Tensor<typename A::Value>& x, const Tensor<typename A::Value>& y, A& a) {
  using V = typename A::Value;
  const int r = x.dims.rank();
  const int64_t m = x.dims[r - 2], k = x.dims[r - 1], n = y.dims[r - 1];
  MIRAGE_ASSERT(k == y.dims[r - 2]) << "matmul on " << to_string(x.dims) << " and " << to_string(y.dims);
  Dims batch, bx, by, out;
  for (int i = 0; i < r - 2; i++) { bx.push_back(x.dims[i]); by.push_back(y.dims[i]); }
  batch = *broadcast(bx, by);
  for (int64_t d : batch) out.push_back(d);
  out.push_back(m);
  out.push_back(n);
  Tensor<V> t(out, a.constant(0));
  if (k == 0 || out.elements() == 0) return t;
  std::array<Dims, 2> s{broadcast_strides(bx, batch), broadcast_strides(by, batch)};
  V* dst = t.data.data();
  walk<2>(batch, s, [&](const std::array<int64_t, 2>& b) {
    const V* px = x.data.data() + b[0] * m * k;
    const V* py = y.data.data() + b[1] * k * n;
    if constexpr (requires { a.gemm(m, n, k, px, py, dst); }) {
      a.gemm(m, n, k, px, py, dst);   // an algebra may bring a faster product of (m,k) and (k,n), row-major, into dst
    } else {
      for (int64_t i = 0; i < m; i++)
        for (int64_t l = 0; l < k; l++) {
          const V& w = px[i * k + l];
          const V* row = py + l * n;
          V* o = dst + i * n;
          if (l == 0) for (int64_t j = 0; j < n; j++) o[j] = a.mul(w, row[j]);
          else for (int64_t j = 0; j < n; j++) o[j] = a.add(o[j], a.mul(w, row[j]));
        }
    }
    dst += m * n;
  });
  return t;
}

template <class A>
typename A::Value combine(ReduceFn fn, A& a, const typename A::Value& x, const typename A::Value& y) {
  return fn == ReduceFn::kSum ? a.add(x, y) : a.max(x, y);
}

template <class A> Tensor<typename A::Value> eval_reduce(const Reduce& r, const Tensor<typename A::Value>& x, A& a) {
  using V = typename A::Value;
  const int64_t extent = x.dims[r.dim], group = r.group ? r.group : std::max<int64_t>(extent, 1);
  Dims out = x.dims;
  out[r.dim] = r.group ? extent / group : 1;
  int64_t inner = 1, outer = 1;
  for (int i = 0; i < x.dims.rank(); i++) (i < r.dim ? outer : inner) *= i == r.dim ? 1 : x.dims[i];
  Tensor<V> t(out, a.constant(r.fn == ReduceFn::kSum ? 0.0 : -std::numeric_limits<double>::infinity()));
  const int64_t groups = out[r.dim];
  for (int64_t o = 0; o < outer; o++)
    for (int64_t g = 0; g < groups; g++)
      for (int64_t e = 0; e < std::min(group, extent); e++)
        for (int64_t i = 0; i < inner; i++) {
          V& acc = t.data[static_cast<size_t>((o * groups + g) * inner + i)];
          const V& v = x.data[static_cast<size_t>((o * extent + g * group + e) * inner + i)];
          acc = e == 0 ? v : combine(r.fn, a, acc, v);
        }
  return t;
}

/// Copies x[walk of strides from offset] into a tensor of `out`.
template <class V> Tensor<V> gather(const Tensor<V>& x, const Dims& out, const Dims& strides, int64_t offset) {
  Tensor<V> t;
  t.dims = out;
  t.data.reserve(static_cast<size_t>(out.elements()));
  walk<1>(out, {strides}, [&](const std::array<int64_t, 1>& i) { t.data.push_back(x.data[static_cast<size_t>(offset + i[0])]); });
  return t;
}

template <class V> Tensor<V> concat(std::span<const Tensor<V>* const> in, int dim) {
  Dims out = in[0]->dims;
  for (size_t i = 1; i < in.size(); i++) out[dim] += in[i]->dims[dim];
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < out.rank(); i++) (i < dim ? outer : inner) *= i == dim ? 1 : out[i];
  Tensor<V> t;
  t.dims = out;
  t.data.reserve(static_cast<size_t>(out.elements()));
  for (int64_t o = 0; o < outer; o++)
    for (auto* x : in) {
      const int64_t run = x->dims[dim] * inner;
      t.data.insert(t.data.end(), x->data.begin() + o * run, x->data.begin() + (o + 1) * run);
    }
  return t;
}

/// The box of a tensor of dimensions `whole` that block (bx, by, bz) reads in `iteration`: where it begins, and its extents, clipped. tile:
/// full tile extents.
struct TileBox { Dims first, extent; };
inline TileBox tile_box(const Dims& whole, const Dims& tile, const Partition& p, const std::array<int64_t, 3>& block, int64_t iteration,
                        int64_t loop) {
  TileBox box{tile, tile};
  for (int d = 0; d < tile.rank(); d++) {
    int64_t start = 0;
    for (size_t axis = 0; axis < 3; axis++)
      if (p.grid[axis] == d) start += block[axis] * tile[d] * (p.loop == d ? loop : 1);
    if (p.loop == d) start += iteration * tile[d];
    box.first[d] = start;
    box.extent[d] = std::clamp<int64_t>(whole[d] - start, 0, tile[d]);
  }
  return box;
}

template <class V>
Tensor<V> load_tile(const Tensor<V>& whole, const Dims& tile, const Partition& p, const std::array<int64_t, 3>& block, int64_t iteration,
                    int64_t loop) {
  const TileBox box = tile_box(whole.dims, tile, p, block, iteration, loop);
  const Dims s = row_major_strides(whole.dims);
  int64_t offset = 0;
  for (int d = 0; d < tile.rank(); d++) offset += box.first[d] * s[d];
  return gather(whole, box.extent, s, offset);
}

template <class V>
void store_tile(Tensor<V>& whole, const Tensor<V>& t, const Dims& tile, const Partition& p, const std::array<int64_t, 3>& block) {
  const Dims s = row_major_strides(whole.dims);
  Dims extent = t.dims;
  int64_t offset = 0;
  for (int d = 0; d < tile.rank(); d++) {
    int64_t start = 0;
    for (size_t axis = 0; axis < 3; axis++)
      if (p.grid[axis] == d) start += block[axis] * tile[d];
    extent[d] = std::min(extent[d], std::max<int64_t>(whole.dims[d] - start, 0));
    offset += start * s[d];
  }
  std::array<Dims, 2> strides{s, row_major_strides(t.dims)};
  walk<2>(extent, strides,
          [&](const std::array<int64_t, 2>& i) { whole.data[static_cast<size_t>(offset + i[0])] = t.data[static_cast<size_t>(i[1])]; });
}

/// Extents of a reshape from `tile` to `full`, where only dimensions of extent 1 come or go, of a tile that is clipped: the clipped extents
/// of tile's other dimensions take the places of full's, in order. (The clipped extents alone would not say which of them are 1 by type.)
inline Dims reshape_clipped(const Dims& clipped, const Dims& tile, const Dims& full) {
  if (clipped == tile) return full;
  Dims out = full;
  int from = 0;
  for (int d = 0; d < full.rank(); d++) {
    if (full[d] == 1) continue;
    while (from < tile.rank() && tile[from] == 1) from++;
    MIRAGE_ASSERT(from < tile.rank() && tile[from] == full[d])
        << "reshape of a clipped tile of " << to_string(tile) << " to " << to_string(full);
    out[d] = clipped[from++];
  }
  MIRAGE_ASSERT(out.elements() == clipped.elements())
      << "reshape of the clipped tile " << to_string(clipped) << " of " << to_string(tile) << " to " << to_string(full);
  return out;
}

/// acc := fn(acc, x) elementwise where both exist; the larger of two clipped tiles keeps its surplus.
template <class A> void accumulate(Tensor<typename A::Value>& acc, const Tensor<typename A::Value>& x, ReduceFn fn, A& a) {
  using V = typename A::Value;
  if (x.dims == acc.dims) { for (size_t i = 0; i < acc.data.size(); i++) acc.data[i] = combine(fn, a, acc.data[i], x.data[i]); return; }
  Dims common = acc.dims;
  for (int d = 0; d < common.rank(); d++) common[d] = std::min(common[d], x.dims[d]);
  // later tiles are never larger, but be safe; both functions commute
  if (common == acc.dims) { Tensor<V> y = x; std::swap(acc, y); accumulate(acc, y, fn, a); return; }
  std::array<Dims, 2> strides{row_major_strides(acc.dims), row_major_strides(x.dims)};
  walk<2>(common, strides, [&](const std::array<int64_t, 2>& i) {
    V& v = acc.data[static_cast<size_t>(i[0])];
    v = combine(fn, a, v, x.data[static_cast<size_t>(i[1])]);
  });
}

/// A running maximum over the iterations.
template <class A> struct RunningMax {
  using V = typename A::Value;
  /// of every element met so far: the maximum with this iteration, and the one without it (in the first iteration both are with it)
  Tensor<V> state, before;

  /// Takes this iteration's x; returns the maximum at x's elements.
  Tensor<V> step(const Tensor<V>& x, bool first, A& a) {
    if (first) state = Tensor<V>(x.dims, a.constant(kRunningStart));
    before = state;
    Tensor<V> now = x;
    for (int d = 0; d < x.dims.rank(); d++)
      MIRAGE_ASSERT(x.dims[d] <= state.dims[d]) << "a later tile of " << to_string(x.dims) << " is larger than " << to_string(state.dims);
    std::array<Dims, 2> strides{row_major_strides(x.dims), row_major_strides(state.dims)};
    walk<2>(x.dims, strides, [&](const std::array<int64_t, 2>& i) {
      V &m = state.data[static_cast<size_t>(i[1])], &v = now.data[static_cast<size_t>(i[0])];
      if constexpr (requires { a.arbitrary(); }) m = a.arbitrary();
      else m = a.max(m, v);
      v = m;
    });
    if (first) before = state;
    return now;
  }
};

/// acc := acc * exp(degree * (before - state)), then + x where x exists.
template <class A>
void accumulate_rescaled(Tensor<typename A::Value>& acc, const Tensor<typename A::Value>& x, const RunningMax<A>& m, int degree, A& a) {
  using V = typename A::Value;
  const V k = a.constant(degree);
  std::array<Dims, 2> strides{row_major_strides(acc.dims), broadcast_strides(m.state.dims, acc.dims)};
  walk<2>(acc.dims, strides, [&](const std::array<int64_t, 2>& i) {
    V& v = acc.data[static_cast<size_t>(i[0])];
    const auto e = static_cast<size_t>(i[1]);
    v = a.mul(v, a.exp(a.mul(k, a.sub(m.before.data[e], m.state.data[e]))));
  });
  accumulate(acc, x, ReduceFn::kSum, a);
}

}  // namespace eval_detail

template <class A> Tensor<typename A::Value> evaluate_op(const Op& op, std::span<const Tensor<typename A::Value>* const> in, A& a) {
  using V = typename A::Value;
  using namespace eval_detail;
  if (const auto* c = std::get_if<Const>(&op)) return Tensor<V>({}, a.constant(c->value));
  if (const auto* c = std::get_if<Iota>(&op)) {
    Tensor<V> t(c->dims, a.constant(0));
    int64_t inner = 1;
    for (int i = c->dims.rank() - 1; i > c->dim; i--) inner *= c->dims[i];
    for (size_t i = 0; i < t.data.size(); i++)
      t.data[i] = a.constant(static_cast<double>(static_cast<int64_t>(i) / inner % c->dims[c->dim]));
    return t;
  }
  if (const auto* m = std::get_if<Map>(&op)) return eval_map(m->fn, in, a);
  if (std::get_if<MatMul>(&op)) return eval_matmul(*in[0], *in[1], a);
  if (const auto* r = std::get_if<Reduce>(&op)) return eval_reduce(*r, *in[0], a);
  const Tensor<V>& x = *in[0];
  if (const auto* r = std::get_if<Repeat>(&op)) {
    std::vector<const Tensor<V>*> copies(static_cast<size_t>(r->count), &x);
    return concat<V>(copies, r->dim);
  }
  if (const auto* r = std::get_if<Reshape>(&op)) {
    Tensor<V> t = x;
    MIRAGE_ASSERT(r->dims.elements() == x.dims.elements()) << "reshape of " << to_string(x.dims) << " to " << to_string(r->dims);
    t.dims = r->dims;
    return t;
  }
  if (const auto* c = std::get_if<Concat>(&op)) return concat<V>(in, c->dim);
  const Dims s = row_major_strides(x.dims);
  if (const auto* c = std::get_if<Slice>(&op)) {
    Dims out = x.dims, stride = s;
    out[c->dim] = (c->stop - c->start + c->step - 1) / c->step;
    stride[c->dim] *= c->step;
    return gather(x, out, stride, c->start * s[c->dim]);
  }
  if (const auto* t = std::get_if<Transpose>(&op)) {
    Dims out = x.dims, stride = s;
    for (int i = 0; i < out.rank(); i++) {
      out[i] = x.dims[t->perm[static_cast<size_t>(i)]];
      stride[i] = s[t->perm[static_cast<size_t>(i)]];
    }
    return gather(x, out, stride, 0);
  }
  MIRAGE_ASSERT(false) << "evaluate_op on " << form_name(op);
  return {};
}

namespace eval_detail {

/// One block graph, block by block: what its values are after the last iteration of the block that ran last.
template <class A> class BlockRun {
 public:
  using V = typename A::Value;
  BlockRun(const Graph& body, A& a)
      : body_(body), a_(a), phase_(phases(body)), values_(static_cast<size_t>(body.num_values())), running_(values_.size()) {}
  const Tensor<V>& value(ValueId v) const { return values_[static_cast<size_t>(v)]; }

  /// Runs one block. load(input, tile extents, block, iteration): the clipped tile of the operand that the Input reads.
  template <class Load> void run(const std::array<int64_t, 3>& block, Load&& load) {
    const auto is_in = [&](NodeId n, Phase p) {
      return body_.node(n).first_value >= 0 && phase_[static_cast<size_t>(body_.node(n).first_value)] == p;
    };
    for (NodeId n = 0; n < body_.num_nodes(); n++)
      if (is_in(n, Phase::kInvariant)) step(n, block, 0, load);
    for (int64_t it = 0; it < body_.launch().loop; it++)
      for (NodeId n = 0; n < body_.num_nodes(); n++) {
        if (body_.form<Accum>(n)) accumulate_node(n, it);
        else if (body_.form<Running>(n))
          at(body_.node(n).first_value) =
              running_[static_cast<size_t>(body_.node(n).first_value)].step(value(body_.node(n).operands[0]), it == 0, a_);
        else if (is_in(n, Phase::kLoop)) step(n, block, it, load);
      }
    for (NodeId n = 0; n < body_.num_nodes(); n++)
      if (is_in(n, Phase::kAfter) && !body_.form<Accum>(n)) step(n, block, 0, load);
  }

 private:
  Tensor<V>& at(ValueId v) { return values_[static_cast<size_t>(v)]; }

  template <class Load> void step(NodeId n, const std::array<int64_t, 3>& block, int64_t iteration, Load& load) {
    const Node& node = body_.node(n);
    if (const auto* in = body_.form<Input>(n)) { at(node.first_value) = load(*in, body_.dims(node.first_value), block, iteration); return; }
    std::vector<const Tensor<V>*> args;
    for (ValueId v : node.operands) args.push_back(&value(v));
    if (const auto* c = body_.form<Call>(n)) {
      std::vector<Tensor<V>> r = evaluate_call(*c->body, std::span<const Tensor<V>* const>(args), a_);
      for (size_t i = 0; i < r.size(); i++) at(node.first_value + static_cast<ValueId>(i)) = std::move(r[i]);
    } else if (const auto* r = body_.form<Reshape>(n)) {
      Tensor<V> t = *args[0];
      t.dims = reshape_clipped(args[0]->dims, body_.dims(node.operands[0]), r->dims);
      at(node.first_value) = std::move(t);
    } else {
      at(node.first_value) = evaluate_op(node.op, std::span<const Tensor<V>* const>(args), a_);
    }
  }

  void accumulate_node(NodeId n, int64_t it) {
    const Node& node = body_.node(n);
    const auto& acc = *body_.form<Accum>(n);
    const Tensor<V>& x = value(node.operands[0]);
    Tensor<V>& sum = at(node.first_value);
    // of a running maximum only the last value counts
    const bool last = acc.fn == ReduceFn::kMax && body_.def_form<Running>(node.operands[0]);
    if (last) sum = running_[static_cast<size_t>(node.operands[0])].state;
    else if (it > 0 && acc.degree) accumulate_rescaled(sum, x, running_[static_cast<size_t>(node.operands[1])], acc.degree, a_);
    else if (it == 0) sum = x;
    else accumulate(sum, x, acc.fn, a_);
  }

  const Graph& body_;
  A& a_;
  std::vector<Phase> phase_;
  std::vector<Tensor<V>> values_;
  std::vector<RunningMax<A>> running_;
};

}  // namespace eval_detail

template <class A>
std::vector<Tensor<typename A::Value>> evaluate_call(const Graph& body, std::span<const Tensor<typename A::Value>* const> operands, A& a) {
  using V = typename A::Value;
  using namespace eval_detail;
  std::vector<Type> types;
  for (auto* t : operands) types.push_back({DType::kReal, t->dims});
  std::vector<Type> result = result_types(body, types).types;
  std::vector<Tensor<V>> out;
  for (const Type& t : result) out.emplace_back(t.dims, a.constant(0));
  const Launch& launch = body.launch();
  const std::vector<NodeId> outputs = body.outputs();
  BlockRun<A> run(body, a);
  const auto load = [&](const Input& in, const Dims& tile, const std::array<int64_t, 3>& block, int64_t it) {
    return load_tile(*operands[static_cast<size_t>(in.param)], tile, in.part, block, it, launch.loop);
  };
  std::array<int64_t, 3> block{};
  for (block[2] = 0; block[2] < launch.grid[2]; block[2]++)
    for (block[1] = 0; block[1] < launch.grid[1]; block[1]++)
      for (block[0] = 0; block[0] < launch.grid[0]; block[0]++) {
        run.run(block, load);
        for (NodeId n : outputs) {
          const ValueId v = body.node(n).operands[0];
          const Output& o = *body.form<Output>(n);
          store_tile(out[static_cast<size_t>(o.result)], run.value(v), body.dims(v), o.part, block);
        }
      }
  return out;
}

template <class A>
std::vector<Tensor<typename A::Value>> evaluate(const Graph& g, std::span<const Tensor<typename A::Value>> params, A& a,
                                                bool round_outputs) {
  using V = typename A::Value;
  // A value goes when its last reader has had it, and inputs are read where they are: a graph of thousands of nodes takes what is alive,
  // not the sum of all.
  std::vector<Tensor<V>> values(static_cast<size_t>(g.num_values()));
  std::vector<const Tensor<V>*> at(values.size());
  std::vector<int64_t> readers(values.size(), 0);
  std::vector<Tensor<V>> out(static_cast<size_t>(g.num_results()));
  for (NodeId n = 0; n < g.num_nodes(); n++)
    for (ValueId v : g.node(n).operands) readers[static_cast<size_t>(v)]++;
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    if (const auto* in = g.form<Input>(n)) {
      at[static_cast<size_t>(node.first_value)] = &params[static_cast<size_t>(in->param)];
      continue;
    }
    std::vector<const Tensor<V>*> args;
    for (ValueId v : node.operands) args.push_back(at[static_cast<size_t>(v)]);
    std::span<const Tensor<V>* const> view(args);
    if (const auto* o = g.form<Output>(n)) {
      Tensor<V>& own = values[static_cast<size_t>(node.operands[0])];
      Tensor<V> t = args[0] == &own && readers[static_cast<size_t>(node.operands[0])] == 1 ? std::move(own) : *args[0];
      if (round_outputs && rounds(o->dtype)) for (V& x : t.data) x = a.round(x, o->dtype);
      out[static_cast<size_t>(o->result)] = std::move(t);
    } else if (const auto* c = g.form<Call>(n)) {
      std::vector<Tensor<V>> r = evaluate_call(*c->body, view, a);
      for (size_t i = 0; i < r.size(); i++) values[static_cast<size_t>(node.first_value) + i] = std::move(r[i]);
    } else {
      values[static_cast<size_t>(node.first_value)] = evaluate_op(node.op, view, a);
    }
    for (auto v = static_cast<size_t>(node.first_value), end = v + static_cast<size_t>(node.num_values); v < end; v++) at[v] = &values[v];
    for (ValueId v : node.operands)
      if (--readers[static_cast<size_t>(v)] == 0) values[static_cast<size_t>(v)] = {};
  }
  return out;
}

}  // namespace mirage
