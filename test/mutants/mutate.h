// Every change of one operator, operand, partition, accumulator, launch extent or constant of a block graph, and an opinion of doubles on
// what came of it: for tests that let the verifier judge mutants.
#pragma once
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mirage/ir/eval.h"
#include "mirage/ir/graph.h"
#include "mirage/support/hash.h"

namespace mirage::test {

inline bool loses_input(const Graph& g) {
  std::vector<bool> live(static_cast<size_t>(g.num_nodes()));
  for (NodeId n = g.num_nodes() - 1; n >= 0; n--) {
    if (g.form<Output>(n)) live[static_cast<size_t>(n)] = true;
    if (!live[static_cast<size_t>(n)]) { if (g.form<Input>(n)) return true; continue; }
    for (ValueId v : g.node(n).operands) live[static_cast<size_t>(g.value(v).node)] = true;
  }
  return false;
}

/// g with node `at` replaced by `op` on `operands`; nullopt if no graph comes of it. Dead nodes are dropped, as a search would never build
/// them.
inline std::optional<Graph> with_node(const Graph& g, NodeId at, const Op& op, const std::vector<ValueId>& operands, const Launch& launch) {
  Builder b(g.level(), launch);
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    const Op& now = n == at ? op : node.op;
    const std::vector<ValueId>& in = n == at ? operands : node.operands;
    if (const auto* i = std::get_if<Input>(&now)) { b.add_input(i->param, g.type(node.first_value), i->part); continue; }
    if (!b.try_add(now, in)) return std::nullopt;
  }
  const Graph raw = b.graph();
  const std::optional<std::string> broken = check_laws(raw);
  if (!broken) return raw;
  if (broken->compare(0, 6, "law 7:") != 0 || loses_input(raw)) return std::nullopt;
  return remove_dead(raw);
}

/// g with fn put between operand i of node `at` and where it came from.
inline std::optional<Graph> with_inserted(const Graph& g, NodeId at, size_t i, MapFn fn) {
  Builder b(g.level(), g.launch());
  std::vector<ValueId> now;   // value of g -> value of b
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    std::vector<ValueId> in;
    for (ValueId v : node.operands) in.push_back(now[static_cast<size_t>(v)]);
    if (const auto* p = g.form<Input>(n)) { now.push_back(b.add_input(p->param, g.type(node.first_value), p->part)); continue; }
    if (n == at) {
      const auto f = b.try_add(Map{fn}, {in[i]});
      if (!f) return std::nullopt;
      in[i] = *f;
    }
    const auto v = b.try_add(node.op, in);
    if (!v) return std::nullopt;
    if (node.num_values) now.push_back(*v);
  }
  if (check_laws(b.graph())) return std::nullopt;
  return b.graph();
}

using Sink = std::function<void(const Graph& body, const std::string& what)>;

inline void mutate_operators(const Graph& g, NodeId n, const Sink& sink) {
  const Node& node = g.node(n);
  auto emit = [&](const Op& op, const std::vector<ValueId>& in, const std::string& what) {
    if (auto m = with_node(g, n, op, in, g.launch())) sink(*m, "node " + std::to_string(n) + ": " + what);
  };
  if (const auto* m = g.form<Map>(n))
    for (int f = 0; f < num_map_fns(); f++)
      if (const auto fn = static_cast<MapFn>(f); fn != m->fn && map_info(fn).arity == map_info(m->fn).arity)
        emit(Map{fn}, node.operands, std::string(map_info(m->fn).name) + " becomes " + map_info(fn).name);
  if (const auto* r = g.form<Reduce>(n)) {
    emit(Reduce{r->fn == ReduceFn::kSum ? ReduceFn::kMax : ReduceFn::kSum, r->dim, r->group}, node.operands, "other reduction");
    for (int d = 0; d < g.dims(node.operands[0]).rank(); d++)
      if (d != r->dim) emit(Reduce{r->fn, d, r->group}, node.operands, "other dimension");
  }
  if (const auto* a = g.form<Accum>(n); a && !a->degree)
    emit(Accum{a->fn == ReduceFn::kSum ? ReduceFn::kMax : ReduceFn::kSum}, node.operands, "other accumulator");
  if (const auto* a = g.form<Accum>(n); a && a->degree) {
    for (int d : {a->degree + 1, a->degree * 2, a->degree - 1})
      if (d > 0) emit(Accum{a->fn, d}, node.operands, "degree " + std::to_string(d));
    emit(Accum{a->fn}, {node.operands[0]}, "no rescaling");
  }
  if (const auto* c = g.form<Const>(n))
    for (double v : {c->value * 2, c->value + 1, -c->value, 0.0, 1.0})
      if (v != c->value) emit(Const{v, {}}, {}, "constant " + std::to_string(v));
  for (size_t i = 0; i < node.operands.size(); i++) {
    for (int f = 0; f < num_map_fns(); f++)
      if (const auto fn = static_cast<MapFn>(f); map_info(fn).arity == 1)
        if (auto m = with_inserted(g, n, i, fn))
          sink(*m, "node " + std::to_string(n) + ": " + map_info(fn).name + " of operand " + std::to_string(i));
    for (size_t j = i + 1; j < node.operands.size(); j++) {
      auto in = node.operands;
      std::swap(in[i], in[j]);
      if (in != node.operands) emit(node.op, in, "operands swapped");
    }
    for (ValueId v = 0; v < g.num_values() && g.value(v).node < n; v++) {
      auto in = node.operands;
      if (in[i] == v) continue;
      in[i] = v;
      emit(node.op, in, "operand " + std::to_string(i) + " becomes value " + std::to_string(v));
    }
  }
}

inline void mutate_partitions(const Graph& g, NodeId n, const Sink& sink) {
  const Node& node = g.node(n);
  auto each = [&](Partition p, auto&& make) {
    std::vector<Partition> all;
    for (int8_t d = -1; d < 3; d++) {
      Partition q = p, r = p;   // the other grid axes have one block: splitting along them changes nothing
      q.grid[0] = d;
      r.loop = d;
      all.push_back(q);
      all.push_back(r);
    }
    Partition q = p;
    std::swap(q.grid[0], q.loop);
    all.push_back(q);
    for (const Partition& m : all)
      if (!(m == p))
        if (auto out = with_node(g, n, make(m), node.operands, g.launch())) sink(*out, "node " + std::to_string(n) + ": other partition");
  };
  if (const auto* i = g.form<Input>(n)) each(i->part, [&](Partition p) -> Op { return Input{i->param, p}; });
  if (const auto* o = g.form<Output>(n)) each(o->part, [&](Partition p) -> Op { return Output{o->result, p, o->dtype}; });
}

inline void all_mutants(const Graph& g, bool partitions, const Sink& sink) {
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    mutate_operators(g, n, sink);
    if (partitions) mutate_partitions(g, n, sink);
  }
  if (!partitions) return;
  for (int64_t d : {-1, 1}) {
    Launch l = g.launch();
    l.loop += d;
    if (l.loop >= 1) if (auto m = with_node(g, 0, g.node(0).op, g.node(0).operands, l)) sink(*m, "loop");
    for (size_t axis = 0; axis < 3; axis++) {
      l = g.launch();
      l.grid[axis] += d;
      if (l.grid[axis] >= 1) if (auto m = with_node(g, 0, g.node(0).op, g.node(0).operands, l)) sink(*m, "grid");
    }
  }
}

/// An opinion that shares only the evaluator: do the graphs agree on random real inputs, positive and mixed?
inline bool agree_in_doubles(const Graph& a, const Graph& b, const std::vector<Type>& inputs) {
  for (uint64_t round = 0; round < 6; round++) {
    Rng rng(1000 + round);
    std::vector<Tensor<double>> x;
    for (const Type& type : inputs) {
      Tensor<double> t(type.dims, 0.0);
      // as stored: a cast of an input is nothing
      for (double& v : t.data)
        v = type.dtype == DType::kBool ? static_cast<double>(rng.below(4) != 0)
                                       : round_to(round % 2 ? 0.3 + rng.uniform() : 2 * rng.uniform() - 1, type.dtype);
      x.push_back(std::move(t));
    }
    DoubleAlgebra d;
    const auto ra = evaluate<DoubleAlgebra>(a, x, d), rb = evaluate<DoubleAlgebra>(b, x, d);
    for (size_t r = 0; r < ra.size(); r++)
      for (size_t i = 0; i < ra[r].data.size(); i++) {
        const double u = ra[r].data[i], v = rb[r].data[i];
        if (std::isfinite(u) && !(std::fabs(u - v) <= 1e-9 * (1 + std::fabs(u)))) return false;
      }
  }
  return true;
}

}  // namespace mirage::test
