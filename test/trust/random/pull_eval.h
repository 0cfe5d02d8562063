// Single elements of a kernel-level graph without calls, asked for one by one: what graphs too large to evaluate are judged by. Shares no
// code with lib/.
#pragma once
#include <functional>
#include <unordered_map>
#include <utility>

#include "mirage/support/hash.h"
#include "trust/random/own_eval.h"

namespace mirage::test {

/// Elements are remembered per graph; what they need is counted, and beyond `limit` the answer is NaN.
template <class T> class PullEvaluator {
 public:
  using InputAt = std::function<double(int param, const Type&, int64_t offset)>;
  PullEvaluator(const Graph& g, InputAt input, int64_t limit) : g_(g), input_(std::move(input)), limit_(limit) {}

  T result(int which, const Extents& at) { return pull(g_.node(g_.outputs()[static_cast<size_t>(which)]).operands[0], at); }
  bool is_over() const { return steps_ > limit_; }

 private:
  static int64_t flat(const Dims& d, const Extents& at) {
    int64_t o = 0;
    for (int i = 0; i < d.rank(); i++) o = o * d[i] + at[static_cast<size_t>(i)];
    return o;
  }
  static Extents position(const Dims& d, int64_t o) {
    Extents at(static_cast<size_t>(d.rank()));
    for (int i = d.rank() - 1; i >= 0; i--) at[static_cast<size_t>(i)] = o % d[i], o /= d[i];
    return at;
  }
  /// Where an operand of shape d is read at position `at` of what it is broadcast to.
  static Extents within(const Dims& d, const Extents& at) {
    Extents p(at.end() - d.rank(), at.end());
    for (int i = 0; i < d.rank(); i++) if (d[i] == 1) p[static_cast<size_t>(i)] = 0;
    return p;
  }

  T pull(ValueId v, const Extents& at) {
    const Dims& dims = g_.dims(v);
    const uint64_t key = (static_cast<uint64_t>(v) << 44) ^ static_cast<uint64_t>(flat(dims, at));
    if (const auto it = known_.find(key); it != known_.end()) return it->second;
    if (++steps_ > limit_) return NAN;
    return known_[key] = compute(v, at);
  }

  T compute(ValueId v, const Extents& at) {
    const Node& node = g_.def(v);
    const auto operand = [&](size_t i) -> ValueId { return node.operands[i]; };
    if (const auto* i = std::get_if<Input>(&node.op)) return static_cast<T>(input_(i->param, g_.type(v), flat(g_.dims(v), at)));
    if (const auto* c = std::get_if<Const>(&node.op)) return static_cast<T>(c->value);
    if (const auto* i = std::get_if<Iota>(&node.op)) return static_cast<T>(at[static_cast<size_t>(i->dim)]);
    if (const auto* m = std::get_if<Map>(&node.op)) {
      std::array<T, 3> x{};
      for (size_t k = 0; k < node.operands.size(); k++) x[k] = pull(operand(k), within(g_.dims(operand(k)), at));
      return OwnEvaluator<T>::map(m->fn, x[0], x[1], x[2]);
    }
    if (std::holds_alternative<MatMul>(node.op)) {
      const size_t r = at.size();
      Extents a = within(g_.dims(operand(0)), at), b = within(g_.dims(operand(1)), at);
      a[r - 2] = at[r - 2], b[r - 1] = at[r - 1];
      T sum = 0;
      for (int64_t k = 0; k < g_.dims(operand(0)).back() && !is_over(); k++) {
        a[r - 1] = b[r - 2] = k;
        sum += pull(operand(0), a) * pull(operand(1), b);
      }
      return sum;
    }
    if (const auto* r = std::get_if<Reduce>(&node.op)) {
      const auto d = static_cast<size_t>(r->dim);
      const int64_t extent = g_.dims(operand(0))[r->dim], group = r->group ? r->group : extent;
      T acc = r->fn == ReduceFn::kSum ? T{0} : static_cast<T>(-INFINITY);
      Extents p = at;
      for (int64_t k = 0; k < group && !is_over(); k++) {
        p[d] = at[d] * group + k;
        const T x = pull(operand(0), p);
        acc = r->fn == ReduceFn::kSum ? acc + x : OwnEvaluator<T>::larger(acc, x);
      }
      return acc;
    }
    return moved(node, at);
  }

  T moved(const Node& node, Extents at) {
    const ValueId x = node.operands[0];
    if (const auto* r = std::get_if<Repeat>(&node.op)) return at[static_cast<size_t>(r->dim)] %= g_.dims(x)[r->dim], pull(x, at);
    if (const auto* r = std::get_if<Reshape>(&node.op)) return pull(x, position(g_.dims(x), flat(r->dims, at)));
    if (const auto* s = std::get_if<Slice>(&node.op))
      return at[static_cast<size_t>(s->dim)] = s->start + at[static_cast<size_t>(s->dim)] * s->step, pull(x, at);
    if (const auto* c = std::get_if<Concat>(&node.op)) {
      size_t k = 0;
      int64_t& i = at[static_cast<size_t>(c->dim)];
      while (i >= g_.dims(node.operands[k])[c->dim]) i -= g_.dims(node.operands[k++])[c->dim];
      return pull(node.operands[k], at);
    }
    if (const auto* t = std::get_if<Transpose>(&node.op)) {
      Extents p(at.size());
      for (size_t i = 0; i < at.size(); i++) p[static_cast<size_t>(t->perm[i])] = at[i];
      return pull(x, p);
    }
    return NAN;   // a call
  }

  const Graph& g_;
  InputAt input_;
  int64_t limit_, steps_ = 0;
  std::unordered_map<uint64_t, T> known_;
};

}  // namespace mirage::test
