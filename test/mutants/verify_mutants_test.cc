// Mutants of correct block graphs: every change of one operator, operand, partition, accumulator, launch extent or constant is rejected by the verifier, or proved to be
// the same function, and then it is the same in doubles too.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "mirage/support/hash.h"
#include "mirage/verify/proof.h"
#include "unit/verify/graphs.h"

using namespace mirage;
using namespace mirage::test;

namespace {

struct Subject {
  const char* name;
  Graph reference;
  Graph body;
  std::vector<Dims> inputs;
};

bool loses_input(const Graph& g) {
  std::vector<bool> live(static_cast<size_t>(g.num_nodes()));
  for (NodeId n = g.num_nodes() - 1; n >= 0; n--) {
    if (g.form<Output>(n)) live[static_cast<size_t>(n)] = true;
    if (!live[static_cast<size_t>(n)]) { if (g.form<Input>(n)) return true; continue; }
    for (ValueId v : g.node(n).operands) live[static_cast<size_t>(g.value(v).node)] = true;
  }
  return false;
}

/// g with node `at` replaced by `op` on `operands`; nullopt if no graph comes of it. Dead nodes are dropped, as a search would never build them.
std::optional<Graph> with_node(const Graph& g, NodeId at, const Op& op, const std::vector<ValueId>& operands, const Launch& launch) {
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
std::optional<Graph> with_inserted(const Graph& g, NodeId at, size_t i, MapFn fn) {
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

/// The kernel graph that calls body, if it is legal on these inputs and gives results of the reference's types.
std::optional<Graph> wrap(const Graph& body, const Subject& s) {
  std::vector<Type> types;
  for (const Dims& d : s.inputs) types.push_back({DType::kF16, d});
  if (body.num_params() != static_cast<int>(types.size()) || check_laws(body, types)) return std::nullopt;
  const Inferred r = result_types(body, types);
  if (!r.ok() || static_cast<int>(r.types.size()) != s.reference.num_results()) return std::nullopt;
  const std::vector<NodeId> outs = s.reference.outputs();
  for (size_t i = 0; i < r.types.size(); i++)
    if (!(r.types[i].dims == s.reference.dims(s.reference.node(outs[i]).operands[0]))) return std::nullopt;
  return kernel_of(body, s.inputs);
}

using Sink = std::function<void(const Graph& body, const std::string& what)>;

void mutate_operators(const Graph& g, NodeId n, const Sink& sink) {
  const Node& node = g.node(n);
  auto emit = [&](const Op& op, const std::vector<ValueId>& in, const std::string& what) {
    if (auto m = with_node(g, n, op, in, g.launch())) sink(*m, "node " + std::to_string(n) + ": " + what);
  };
  if (const auto* m = g.form<Map>(n))
    for (int f = 0; f < num_map_fns(); f++)
      if (const auto fn = static_cast<MapFn>(f); fn != m->fn && map_info(fn).arity == map_info(m->fn).arity) emit(Map{fn}, node.operands, std::string(map_info(m->fn).name) + " becomes " + map_info(fn).name);
  if (const auto* r = g.form<Reduce>(n)) {
    emit(Reduce{r->fn == ReduceFn::kSum ? ReduceFn::kMax : ReduceFn::kSum, r->dim, r->group}, node.operands, "other reduction");
    for (int d = 0; d < g.dims(node.operands[0]).rank(); d++) if (d != r->dim) emit(Reduce{r->fn, d, r->group}, node.operands, "other dimension");
  }
  if (const auto* a = g.form<Accum>(n); a && !a->degree) emit(Accum{a->fn == ReduceFn::kSum ? ReduceFn::kMax : ReduceFn::kSum}, node.operands, "other accumulator");
  if (const auto* a = g.form<Accum>(n); a && a->degree) {
    for (int d : {a->degree + 1, a->degree * 2, a->degree - 1}) if (d > 0) emit(Accum{a->fn, d}, node.operands, "degree " + std::to_string(d));
    emit(Accum{a->fn}, {node.operands[0]}, "no rescaling");
  }
  if (const auto* c = g.form<Const>(n))
    for (double v : {c->value * 2, c->value + 1, -c->value, 0.0, 1.0}) if (v != c->value) emit(Const{v, {}}, {}, "constant " + std::to_string(v));
  for (size_t i = 0; i < node.operands.size(); i++) {
    for (int f = 0; f < num_map_fns(); f++)
      if (const auto fn = static_cast<MapFn>(f); map_info(fn).arity == 1)
        if (auto m = with_inserted(g, n, i, fn)) sink(*m, "node " + std::to_string(n) + ": " + map_info(fn).name + " of operand " + std::to_string(i));
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

void mutate_partitions(const Graph& g, NodeId n, const Sink& sink) {
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

void all_mutants(const Graph& g, bool partitions, const Sink& sink) {
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
bool agree_in_doubles(const Graph& a, const Graph& b, const std::vector<Dims>& inputs) {
  for (uint64_t round = 0; round < 6; round++) {
    Rng rng(1000 + round);
    std::vector<Tensor<double>> x;
    for (const Dims& d : inputs) {
      Tensor<double> t(d, 0.0);
      for (double& v : t.data) v = round_to(round % 2 ? 0.3 + rng.uniform() : 2 * rng.uniform() - 1, DType::kF16);   // as stored: a cast of an input is nothing
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

template <class F> Graph net(F&& f) {
  Net n;
  f(n);
  return n.done();
}

/// Sizes: k = loop * tk - short of the last tile, n likewise over the grid.
std::vector<Subject> subjects(int64_t m, int64_t k, int64_t n, int64_t tk, int64_t tn) {
  const Launch launch{{(n + tn - 1) / tn, 1, 1}, (k + tk - 1) / tk};
  const auto weight = part(1, -1, -1, 0);
  std::vector<Subject> out;
  {
    Net b(Level::kBlock, launch);
    auto x = b.in(0, {m, tk}, DType::kF16, loop_over(1)), w = b.in(1, {tk, tn}, DType::kF16, weight);
    auto y = b.accum(b.mm(x, w)), s = b.accum(b.sum(b.square(x), 1));
    b.out(b.div(y, b.sqrt(b.add(b.div(s, b.c(static_cast<double>(k))), b.c(1e-5)))), DType::kF16, grid_x(1));
    out.push_back({"rms_norm_linear", net([&](Net& g) {
      auto x = g.in(0, {m, k}), w = g.in(1, {k, n});
      g.out(g.mm(g.div(x, g.sqrt(g.add(g.div(g.sum(g.square(x), 1), g.c(static_cast<double>(k))), g.c(1e-5)))), w));
    }), b.done(), {{m, k}, {k, n}}});
  }
  {
    Net b(Level::kBlock, launch);
    auto x = b.in(0, {m, tk}, DType::kF16, loop_over(1)), w1 = b.in(1, {tk, tn}, DType::kF16, weight), w2 = b.in(2, {tk, tn}, DType::kF16, weight);
    b.out(b.mul(b.silu(b.accum(b.mm(x, w1))), b.accum(b.mm(x, w2))), DType::kF16, grid_x(1));
    out.push_back({"gated_mlp", net([&](Net& g) {
      auto x = g.in(0, {m, k}), a = g.in(1, {k, n}), c = g.in(2, {k, n});
      g.out(g.mul(g.silu(g.mm(x, a)), g.mm(x, c)));
    }), b.done(), {{m, k}, {k, n}, {k, n}}});
  }
  {
    Net b(Level::kBlock, launch);
    auto x = b.in(0, {m, tk}, DType::kF16, loop_over(1)), w = b.in(1, {tk, tn}, DType::kF16, weight), a = b.in(2, {tk, 2}, DType::kF16, loop_over(0)), c = b.in(3, {2, tn}, DType::kF16, grid_x(1));
    b.out(b.add(b.accum(b.mm(x, w)), b.mm(b.accum(b.mm(x, a)), c)), DType::kF16, grid_x(1));
    out.push_back({"lora", net([&](Net& g) {
      auto x = g.in(0, {m, k}), w = g.in(1, {k, n}), a = g.in(2, {k, 2}), c = g.in(3, {2, n});
      g.out(g.add(g.mm(x, w), g.mm(g.mm(x, a), c)));
    }), b.done(), {{m, k}, {k, n}, {k, 2}, {2, n}}});
  }
  {
    Net b(Level::kBlock, {{1, 1, 1}, (n + tn - 1) / tn});
    auto q = b.in(0, {m, k}), key = b.in(1, {k, tn}, DType::kF16, loop_over(1)), v = b.in(2, {tn, k}, DType::kF16, loop_over(0));
    auto e = b.exp(b.mul(b.mm(q, key), b.c(0.5)));
    b.out(b.div(b.accum(b.mm(e, v)), b.accum(b.sum(e, 1))));
    out.push_back({"attention", net([&](Net& g) {
      auto q = g.in(0, {m, k}), key = g.in(1, {k, n}), v = g.in(2, {n, k});
      auto s = g.mul(g.mm(q, key), g.c(0.5));
      auto e = g.exp(g.sub(s, g.rmax(s, 1)));
      g.out(g.mm(g.div(e, g.sum(e, 1)), v));
    }), b.done(), {{m, k}, {k, n}, {n, k}}});
  }
  {
    Net b(Level::kBlock, {{1, 1, 1}, (n + tn - 1) / tn});
    auto q = b.in(0, {m, k}), key = b.in(1, {k, tn}, DType::kF16, loop_over(1)), v = b.in(2, {tn, k}, DType::kF16, loop_over(0));
    auto s = b.mm(q, key), max = b.b.add(Running{}, {b.rmax(s, 1)}), e = b.exp(b.sub(s, max));
    b.out(b.div(b.b.add(Accum{ReduceFn::kSum, 1}, {b.mm(e, v), max}), b.b.add(Accum{ReduceFn::kSum, 1}, {b.sum(e, 1), max})));
    out.push_back({"stable attention", net([&](Net& g) {
      auto q = g.in(0, {m, k}), key = g.in(1, {k, n}), v = g.in(2, {n, k});
      auto s = g.mm(q, key), e = g.exp(g.sub(s, g.rmax(s, 1)));
      g.out(g.mm(g.div(e, g.sum(e, 1)), v));
    }), b.done(), {{m, k}, {k, n}, {n, k}}});
  }
  {
    Net b(Level::kBlock, {{2, 1, 1}, 1});
    const int64_t tm = (m + 1) / 2;
    auto h = b.in(0, {tm, k}, DType::kF16, grid_x(0)), x = b.in(1, {tm, k}, DType::kF16, grid_x(0)), alpha = b.in(2, {k});
    auto y = b.add(x, b.mul(alpha, b.sub(b.div(h, b.sqrt(b.sum(b.square(h), 1))), x)));
    b.out(b.div(y, b.sqrt(b.sum(b.square(y), 1))), DType::kF16, grid_x(0));
    out.push_back({"n_trans", net([&](Net& g) {
      auto h = g.in(0, {m, k}), x = g.in(1, {m, k}), alpha = g.in(2, {k});
      auto y = g.add(g.sub(x, g.mul(alpha, x)), g.mul(alpha, g.div(h, g.sqrt(g.sum(g.square(h), 1)))));
      g.out(g.div(y, g.sqrt(g.sum(g.square(y), 1))));
    }), b.done(), {{m, k}, {m, k}, {k}}});
  }
  return out;
}

void try_all(const std::vector<Subject>& list, bool partitions) {
  for (const Subject& s : list) {
    INFO(s.name);
    const Verdict right = equal(s.reference, kernel_of(s.body, s.inputs), 1);
    INFO(to_string(right));
    REQUIRE(right.kind == kEqual);
    int tried = 0, different = 0, unknown = 0, same = 0, proved = 0, open = 0;
    std::string unproved;
    all_mutants(s.body, partitions, [&](const Graph& body, const std::string& what) {
      const std::optional<Graph> mutant = wrap(body, s);
      if (!mutant) return;
      const Verdict v = equal(s.reference, *mutant, 1);
      const bool agree = agree_in_doubles(s.reference, *mutant, s.inputs);
      tried++;
      (v.kind == kEqual ? same : v.kind == kDifferent ? different : unknown)++;
      if (v.kind == kEqual && !agree) { INFO(what); INFO(print(body)); CHECK(agree); }
      const Proof proof = prove(s.reference, *mutant);
      INFO(what << "\n" << print(body) << to_string(v) << "\n" << to_string(proof));
      CHECK(!(proof.proved && v.kind == kDifferent));
      CHECK(!(proof.proved && !agree));
      proved += proof.proved;
      if (v.kind == kEqual && !proof.proved) { open++; unproved += what + "\n"; }
    });
    INFO(s.name << (partitions ? "" : " (ragged)") << ": " << tried << " mutants, " << different << " different, " << unknown << " unknown, " << same << " equal and the same in doubles, " << proved << " proved, " << open << " equal without a proof\n" << unproved);
    CHECK(tried >= 50);
    CHECK(different >= tried * 2 / 3);
    CHECK(different + unknown + same == tried);
    CHECK(proved >= same);   // what random testing calls equal has a proof as well
    CHECK(open == 0);
  }
}

}  // namespace

TEST_CASE("mutants at sizes that tiles divide, with partitions and launch") { try_all(subjects(4, 6, 8, 3, 4), true); }
TEST_CASE("mutants where all extents are equal") { try_all(subjects(4, 4, 4, 2, 2), true); }
TEST_CASE("mutants at ragged sizes") { try_all(subjects(3, 5, 7, 3, 4), false); }
