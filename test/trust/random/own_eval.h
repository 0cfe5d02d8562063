// An evaluator of graphs that shares no code with lib/: an operator by its definition (op.h), in the scalar type that is asked for. What
// verdicts and emitted graphs are judged by.
#pragma once
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "mirage/ir/graph.h"
#include "trust/random/noisy.h"

namespace mirage::test {

using Extents = std::vector<int64_t>;

template <class T> struct Array {
  Extents dims;
  std::vector<T> data;
};

inline int64_t count_of(const Extents& d) {
  int64_t n = 1;
  for (int64_t x : d) n *= x;
  return n;
}
inline Extents extents_of(const Dims& d) { return {d.begin(), d.end()}; }

/// The value nearest to x with `digits` binary digits and no digit below 2^lowest, ties to even; beyond `largest` it is infinite.
template <class T> T nearest_of(T x, int digits, int lowest, T largest) {
  if (!std::isfinite(x) || x == 0) return x;
  int e = 0;
  std::frexp(x, &e);
  const T unit = std::ldexp(T{1}, std::max(e - digits, lowest));
  const T r = std::nearbyint(x / unit) * unit;
  return std::fabs(r) > largest ? std::copysign(static_cast<T>(INFINITY), x) : r;
}

template <class T> T stored_as(T x, DType t) {
  switch (t) {
    case DType::kF16: return nearest_of<T>(x, 11, -24, 65504);
    case DType::kBF16: return nearest_of<T>(x, 8, -133, static_cast<T>(0x1.fep127));
    case DType::kF32: return nearest_of<T>(x, 24, -149, static_cast<T>(0x1.fffffep127));
    default: return x;
  }
}

inline Noisy stored_as(const Noisy& x, DType t) {
  const long double v = stored_as(x.v, t);
  return {v, std::max(std::fabs(stored_as(x.v + x.e, t) - v), std::fabs(stored_as(x.v - x.e, t) - v))};
}

inline long double value_of(long double x) { return x; }
inline long double value_of(const Noisy& x) { return x.v; }

/// Evaluates one graph on given inputs (by param).
template <class T> class OwnEvaluator {
 public:
  using A = Array<T>;

  static std::vector<A> run(const Graph& g, const std::vector<A>& inputs) {
    std::vector<A> at(static_cast<size_t>(g.num_values())), out(static_cast<size_t>(g.num_results()));
    for (NodeId n = 0; n < g.num_nodes(); n++) {
      const Node& node = g.node(n);
      if (const auto* i = g.form<Input>(n)) { at[static_cast<size_t>(node.first_value)] = inputs[static_cast<size_t>(i->param)]; continue; }
      std::vector<const A*> in;
      for (ValueId v : node.operands) in.push_back(&at[static_cast<size_t>(v)]);
      if (const auto* o = g.form<Output>(n)) { out[static_cast<size_t>(o->result)] = *in[0]; continue; }
      if (const auto* c = g.form<Call>(n)) {
        std::vector<Extents> whole;
        for (int i = 0; i < node.num_values; i++) whole.push_back(extents_of(g.dims(node.first_value + i)));
        std::vector<A> r = call(*c->body, in, whole);
        for (size_t i = 0; i < r.size(); i++) at[static_cast<size_t>(node.first_value) + i] = std::move(r[i]);
        continue;
      }
      at[static_cast<size_t>(node.first_value)] = apply(node.op, in);
    }
    return out;
  }

 private:
  /// One of two numbers, the second if `second`; which of them errors could turn round, by no more than the larger error.
  static T chosen(const T& a, const T& b, bool second) {
    if (std::isnan(value_of(a)) || std::isnan(value_of(b))) return a + b;
    T r = second ? b : a;
    if constexpr (std::is_same_v<T, Noisy>) r.e = std::max(a.e, b.e);
    return r;
  }
  /// A comparison as a number.
  /// A step function: rounded nowhere, as far off as it grows where x may be.
  template <class F> static T stepped(const T& x, F f) {
    if constexpr (std::is_same_v<T, Noisy>)
      return {f(x.v), x.e == 0 ? 0.0L : std::max(std::fabs(f(x.v + x.e) - f(x.v)), std::fabs(f(x.v - x.e) - f(x.v)))};
    else return f(x);
  }
  static T truth(bool is, const T& a, const T& b) {
    if constexpr (std::is_same_v<T, Noisy>) return compared(is, a, b);
    return is ? 1 : 0;
  }
  static T where(const T& c, const T& x, const T& y) {
    T r = value_of(c) != 0 ? x : y;
    if constexpr (std::is_same_v<T, Noisy>)
      if (c.e > 0) r.e = std::max(x.e, y.e) + std::fabs(x.v - y.v);
    return r;
  }
  /// Offset into x of position p of a result that x is broadcast to.
  static int64_t offset(const A& x, const Extents& out, const Extents& p) {
    int64_t at = 0;
    const size_t shift = out.size() - x.dims.size();
    for (size_t d = 0; d < x.dims.size(); d++) at = at * x.dims[d] + (x.dims[d] == 1 ? 0 : p[d + shift]);
    return at;
  }
  template <class F> static A make(const Extents& dims, F&& value) {
    A r{dims, {}};
    const int64_t n = count_of(dims);
    r.data.reserve(static_cast<size_t>(n));
    Extents p(dims.size(), 0);
    for (int64_t i = 0; i < n; i++) {
      r.data.push_back(value(p));
      for (size_t d = dims.size(); d-- > 0;) {
        if (++p[d] < dims[d]) break;
        p[d] = 0;
      }
    }
    return r;
  }

 public:
  static T larger(T a, T b) { return chosen(a, b, value_of(a) < value_of(b)); }
  static T smaller(T a, T b) { return chosen(a, b, value_of(b) < value_of(a)); }

  static T map(MapFn fn, T x, T y, T z) {
    using std::cos, std::erf, std::exp, std::expm1, std::log1p, std::sin, std::fabs, std::log, std::pow, std::sqrt, std::tanh;
    const T half = static_cast<T>(0.5), root_half = static_cast<T>(0.70710678118654752440);
    switch (fn) {
      case MapFn::kAdd: return x + y;
      case MapFn::kSub: return x - y;
      case MapFn::kMul: return x * y;
      case MapFn::kDiv: return x / y;
      case MapFn::kNeg: return -x;
      case MapFn::kSquare: return x * x;
      case MapFn::kExp: return exp(x);
      case MapFn::kSqrt: return sqrt(x);
      case MapFn::kRsqrt: return 1 / sqrt(x);
      case MapFn::kSigmoid: return 1 / (1 + exp(-x));
      case MapFn::kSilu: return x / (1 + exp(-x));
      case MapFn::kLog: return log(x);
      case MapFn::kLog1p: return log1p(x);
      case MapFn::kExpm1: return expm1(x);
      case MapFn::kErf: return erf(x);
      case MapFn::kSin: return sin(x);
      case MapFn::kCos: return cos(x);
      case MapFn::kFloor: return stepped(x, [](auto t) { return std::floor(t); });
      case MapFn::kCeil: return stepped(x, [](auto t) { return std::ceil(t); });
      case MapFn::kRound: return stepped(x, [](auto t) { return std::nearbyint(t); });
      case MapFn::kSign: return where(truth(value_of(x) > 0, x, T(0)), T(1), where(truth(value_of(x) < 0, x, T(0)), T(-1), T(0)));
      case MapFn::kAbs: return fabs(x);
      case MapFn::kTanh: return tanh(x);
      case MapFn::kRelu: return larger(x, 0);
      case MapFn::kGelu: return half * x * (1 + erf(x * root_half));
      case MapFn::kGeluTanh:
        return half * x * (1 + tanh(static_cast<T>(0.79788456080286535588) * (x + static_cast<T>(0.044715) * x * x * x)));
      case MapFn::kMax: return larger(x, y);
      case MapFn::kMin: return smaller(x, y);
      case MapFn::kClamp: return smaller(larger(x, y), z);
      case MapFn::kPow: return pow(x, y);
      case MapFn::kEqual: return truth(value_of(x) == value_of(y), x, y);
      case MapFn::kLess: return truth(value_of(x) < value_of(y), x, y);
      case MapFn::kGreater: return truth(value_of(x) > value_of(y), x, y);
      case MapFn::kWhere: return where(x, y, z);
      case MapFn::kCastF16: return stored_as(x, DType::kF16);
      case MapFn::kCastBF16: return stored_as(x, DType::kBF16);
      case MapFn::kCastF32: return stored_as(x, DType::kF32);
    }
    return NAN;
  }

 private:
  static A apply(const Op& op, const std::vector<const A*>& in) {
    if (const auto* c = std::get_if<Const>(&op)) return {{}, {static_cast<T>(c->value)}};
    if (const auto* i = std::get_if<Iota>(&op))
      return make(extents_of(i->dims), [&](const Extents& p) { return static_cast<T>(p[static_cast<size_t>(i->dim)]); });
    if (const auto* m = std::get_if<Map>(&op)) return apply_map_of(m->fn, in);
    if (std::holds_alternative<MatMul>(op)) return matmul(*in[0], *in[1]);
    if (const auto* r = std::get_if<Reduce>(&op)) return reduce(*r, *in[0]);
    const A& x = *in[0];
    if (const auto* r = std::get_if<Repeat>(&op)) {
      Extents d = x.dims;
      d[static_cast<size_t>(r->dim)] *= r->count;
      return make(d, [&](Extents p) {
        p[static_cast<size_t>(r->dim)] %= x.dims[static_cast<size_t>(r->dim)];
        return x.data[static_cast<size_t>(offset(x, x.dims, p))];
      });
    }
    if (const auto* r = std::get_if<Reshape>(&op)) {
      Extents d = extents_of(r->dims);
      if (count_of(d) != count_of(x.dims)) {   // a clipped tile: only extents of 1 came or went, and the others keep their order
        Extents left;
        for (size_t i = 0; i < x.dims.size(); i++) if (x.dims[i] != 1) left.push_back(x.dims[i]);
        size_t k = 0;
        for (int64_t& e : d) if (e != 1) e = k < left.size() ? left[k++] : 1;
      }
      return {d, x.data};
    }
    if (const auto* c = std::get_if<Concat>(&op)) {
      const auto dim = static_cast<size_t>(c->dim);
      Extents d = x.dims;
      for (size_t i = 1; i < in.size(); i++) d[dim] += in[i]->dims[dim];
      return make(d, [&](Extents p) {
        size_t k = 0;
        while (p[dim] >= in[k]->dims[dim]) p[dim] -= in[k++]->dims[dim];
        return in[k]->data[static_cast<size_t>(offset(*in[k], in[k]->dims, p))];
      });
    }
    if (const auto* s = std::get_if<Slice>(&op)) {
      const auto dim = static_cast<size_t>(s->dim);
      Extents d = x.dims;
      d[dim] = (std::min(s->stop, x.dims[dim]) - s->start + s->step - 1) / s->step;
      return make(d, [&](Extents p) { p[dim] = s->start + p[dim] * s->step; return x.data[static_cast<size_t>(offset(x, x.dims, p))]; });
    }
    const auto& t = std::get<Transpose>(op);
    Extents d = x.dims;
    for (size_t i = 0; i < d.size(); i++) d[i] = x.dims[static_cast<size_t>(t.perm[i])];
    return make(d, [&](const Extents& p) {
      Extents q(p.size());
      for (size_t i = 0; i < p.size(); i++) q[static_cast<size_t>(t.perm[i])] = p[i];
      return x.data[static_cast<size_t>(offset(x, x.dims, q))];
    });
  }

  static A apply_map_of(MapFn fn, const std::vector<const A*>& in) {
    Extents out;
    for (const A* x : in) {
      if (x->dims.size() > out.size()) out.insert(out.begin(), x->dims.size() - out.size(), 1);
      for (size_t d = 0; d < x->dims.size(); d++) {
        int64_t& o = out[out.size() - x->dims.size() + d];
        if (o == 1) o = x->dims[d];
      }
    }
    bool same = true;
    for (const A* x : in) same = same && (x->dims == out || x->data.size() == 1);
    if (same) {   // the common case without index arithmetic
      A r{out, std::vector<T>(static_cast<size_t>(count_of(out)))};
      auto value = [&](size_t k, size_t i) { return k < in.size() ? in[k]->data[in[k]->data.size() == 1 ? 0 : i] : T{0}; };
      for (size_t i = 0; i < r.data.size(); i++) r.data[i] = map(fn, value(0, i), value(1, i), value(2, i));
      return r;
    }
    return make(out, [&](const Extents& p) {
      std::array<T, 3> v{};
      for (size_t k = 0; k < in.size(); k++) v[k] = in[k]->data[static_cast<size_t>(offset(*in[k], out, p))];
      return map(fn, v[0], v[1], v[2]);
    });
  }

  static A matmul(const A& x, const A& y) {
    const size_t r = x.dims.size();
    Extents d = x.dims;
    for (size_t i = 0; i + 2 < r; i++) d[i] = std::max(x.dims[i], y.dims[i]);
    d[r - 1] = y.dims[r - 1];
    return make(d, [&](const Extents& p) {
      Extents a = p, b = p;
      T sum = 0;
      for (int64_t k = 0; k < x.dims[r - 1]; k++) {
        a[r - 1] = b[r - 2] = k;
        sum += x.data[static_cast<size_t>(offset(x, a, a))] * y.data[static_cast<size_t>(offset(y, b, b))];
      }
      return sum;
    });
  }

  static A reduce(const Reduce& r, const A& x) {
    const auto dim = static_cast<size_t>(r.dim);
    const int64_t extent = x.dims[dim], group = r.group ? std::min(r.group, extent) : extent;
    Extents d = x.dims;
    d[dim] = r.group ? (extent + r.group - 1) / r.group : 1;
    return make(d, [&](const Extents& p) {
      Extents q = p;
      T acc = r.fn == ReduceFn::kSum ? T{0} : static_cast<T>(-INFINITY);
      for (int64_t k = 0; k < group && p[dim] * group + k < extent; k++) {
        q[dim] = p[dim] * group + k;
        const T v = x.data[static_cast<size_t>(offset(x, x.dims, q))];
        acc = r.fn == ReduceFn::kSum ? acc + v : larger(acc, v);
      }
      return acc;
    });
  }

  static A load(const A& x, const Dims& tile, const Partition& part, const std::array<int64_t, 3>& block, int64_t i, int64_t loop) {
    Extents start(x.dims.size(), 0), d(x.dims.size());
    for (size_t k = 0; k < d.size(); k++) {
      const int64_t t = tile[static_cast<int>(k)];
      for (size_t a = 0; a < 3; a++)
        if (part.grid[a] == static_cast<int>(k)) start[k] += block[a] * t * (part.loop == static_cast<int>(k) ? loop : 1);
      if (part.loop == static_cast<int>(k)) start[k] += i * t;
      d[k] = std::max<int64_t>(0, std::min(t, x.dims[k] - start[k]));
    }
    return make(d, [&](Extents p) {
      for (size_t k = 0; k < p.size(); k++) p[k] += start[k];
      return x.data[static_cast<size_t>(offset(x, x.dims, p))];
    });
  }

  static void store(A& whole, const A& t, const Dims& tile, const Partition& part, const std::array<int64_t, 3>& block) {
    Extents p(t.dims.size(), 0);
    for (size_t i = 0; i < t.data.size(); i++) {
      int64_t at = 0;
      bool inside = true;
      for (size_t d = 0; d < p.size(); d++) {
        int64_t e = p[d];
        for (size_t a = 0; a < 3; a++) if (part.grid[a] == static_cast<int>(d)) e += block[a] * tile[static_cast<int>(d)];
        inside = inside && e < whole.dims[d];
        at = at * whole.dims[d] + e;
      }
      if (inside) whole.data[static_cast<size_t>(at)] = t.data[i];
      for (size_t d = p.size(); d-- > 0;) {
        if (++p[d] < t.dims[d]) break;
        p[d] = 0;
      }
    }
  }

  /// What a block holds between the iterations of its loop.
  struct Running { A state, before; };

  static std::vector<A> call(const Graph& body, const std::vector<const A*>& in, const std::vector<Extents>& whole) {
    std::vector<A> out;
    for (const Extents& d : whole) out.push_back({d, std::vector<T>(static_cast<size_t>(count_of(d)), static_cast<T>(NAN))});
    const Launch& l = body.launch();
    std::array<int64_t, 3> b{};
    for (b[0] = 0; b[0] < l.grid[0]; b[0]++)
      for (b[1] = 0; b[1] < l.grid[1]; b[1]++)
        for (b[2] = 0; b[2] < l.grid[2]; b[2]++) {
          std::vector<A> at(static_cast<size_t>(body.num_values()));
          std::vector<Running> running(at.size());
          for (int64_t i = 0; i < l.loop; i++) iterate(body, in, b, i, at, running);
          for (NodeId n : body.outputs()) {
            const Output& o = *body.form<Output>(n);
            const ValueId v = body.node(n).operands[0];
            store(out[static_cast<size_t>(o.result)], at[static_cast<size_t>(v)], body.dims(v), o.part, b);
          }
        }
    return out;
  }

  /// One iteration: every node in order. What comes behind an accumulator is made anew each time; only the last counts.
  static void iterate(const Graph& body, const std::vector<const A*>& in, const std::array<int64_t, 3>& block, int64_t i,
                      std::vector<A>& at, std::vector<Running>& running) {
    for (NodeId n = 0; n < body.num_nodes(); n++) {
      const Node& node = body.node(n);
      if (body.form<Output>(n)) continue;
      const auto to = static_cast<size_t>(node.first_value);
      if (const auto* x = body.form<Input>(n)) {
        at[to] = load(*in[static_cast<size_t>(x->param)], body.dims(node.first_value), x->part, block, i, body.launch().loop);
        continue;
      }
      std::vector<const A*> args;
      for (ValueId v : node.operands) args.push_back(&at[static_cast<size_t>(v)]);
      if (body.form<mirage::Running>(n)) at[to] = step(running[to], *args[0], i == 0);
      else if (const auto* acc = body.form<Accum>(n))
        accumulate(at[to], *acc, args, acc->degree ? &running[static_cast<size_t>(node.operands[1])] : nullptr, i == 0,
                   body.def_form<mirage::Running>(node.operands[0]) ? &running[static_cast<size_t>(node.operands[0])] : nullptr);
      else at[to] = apply(node.op, args);
    }
  }

  static A step(Running& r, const A& x, bool first) {
    if (first) r.state = {x.dims, std::vector<T>(x.data.size(), static_cast<T>(kRunningStart))};
    r.before = r.state;
    A now = make(x.dims, [&](const Extents& p) {
      T& m = r.state.data[static_cast<size_t>(offset(r.state, r.state.dims, p))];
      m = larger(m, x.data[static_cast<size_t>(offset(x, x.dims, p))]);
      return m;
    });
    if (first) r.before = r.state;
    return now;
  }

  static void accumulate(A& acc, const Accum& op, const std::vector<const A*>& args, const Running* shift, bool first,
                         const Running* maximum) {
    const A& x = *args[0];
    if (op.fn == ReduceFn::kMax && maximum) { acc = maximum->state; return; }
    if (first) { acc = x; return; }
    Extents p(acc.dims.size(), 0);
    for (T& v : acc.data) {
      if (shift) {
        const auto m = static_cast<size_t>(offset(shift->state, acc.dims, p));
        v *= map(MapFn::kExp, static_cast<T>(op.degree) * (shift->before.data[m] - shift->state.data[m]), 0, 0);
      }
      bool has = true;
      for (size_t d = 0; d < p.size(); d++) has = has && p[d] < x.dims[d];
      if (has) {
        const T w = x.data[static_cast<size_t>(offset(x, x.dims, p))];
        v = op.fn == ReduceFn::kSum ? v + w : larger(v, w);
      }
      for (size_t d = acc.dims.size(); d-- > 0;) {
        if (++p[d] < acc.dims[d]) break;
        p[d] = 0;
      }
    }
  }
};

}  // namespace mirage::test
