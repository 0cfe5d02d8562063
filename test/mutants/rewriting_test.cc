// Graphs made from programs by laws of algebra, in any place and direction: none is ever called different, and how many are proved is
// counted.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "mirage/support/hash.h"
#include "mirage/verify/proof.h"
#include "unit/verify/graphs.h"

using namespace mirage;
using namespace mirage::test;

namespace {

/// Copies a graph; one node is built by a law instead.
class Rewriter {
 public:
  Rewriter(const Graph& g, Rng& rng) : g_(g), rng_(rng) {}

  /// The graph after one law at node `at`; nullopt if none fits there.
  std::optional<Graph> at(NodeId at) {
    Builder b(Level::kKernel);
    std::vector<ValueId> to(static_cast<size_t>(g_.num_values()), -1);
    bool done = false;
    for (NodeId n = 0; n < g_.num_nodes(); n++) {
      const Node& node = g_.node(n);
      std::vector<ValueId> in;
      for (ValueId v : node.operands) in.push_back(to[static_cast<size_t>(v)]);
      if (const auto* i = g_.form<Input>(n)) {
        to[static_cast<size_t>(node.first_value)] = b.add_input(i->param, g_.type(node.first_value));
        continue;
      }
      if (const auto* o = g_.form<Output>(n)) { b.add_output(o->result, in[0], o->dtype); continue; }
      ValueId v = -1;
      if (n == at) {
        const auto mark = b.mark();
        v = law(b, n, in).value_or(-1);
        if (v >= 0 && !(b.graph().dims(v) == g_.dims(node.first_value))) v = -1;
        if (v >= 0) done = true;
        else b.rollback(mark);
      }
      if (v < 0) v = b.try_add(node.op, in).value_or(-1);
      if (v < 0) return std::nullopt;
      to[static_cast<size_t>(node.first_value)] = v;
    }
    if (!done) return std::nullopt;
    return remove_dead(b.graph());
  }

 private:
  const Map* map_of(const Builder& b, ValueId v, MapFn fn) const {
    const auto* m = b.graph().def_form<Map>(v);
    return m && m->fn == fn ? m : nullptr;
  }
  static const std::vector<ValueId>& args(const Builder& b, ValueId v) { return b.graph().def(v).operands; }

  std::optional<ValueId> law(Builder& b, NodeId n, const std::vector<ValueId>& x) {
    auto m = [&](MapFn f, std::vector<ValueId> in) { return b.map(f, std::move(in)); };
    const uint64_t coin = rng_.below(4);
    if (const auto* f = g_.form<Map>(n)) switch (f->fn) {
      case MapFn::kAdd:
        if (map_of(b, x[1], MapFn::kAdd) && coin > 1) return m(MapFn::kAdd, {m(MapFn::kAdd, {x[0], args(b, x[1])[0]}), args(b, x[1])[1]});
        return coin ? m(MapFn::kAdd, {x[1], x[0]}) : m(MapFn::kSub, {x[0], m(MapFn::kNeg, {x[1]})});
      case MapFn::kSub: return m(MapFn::kAdd, {x[0], m(MapFn::kNeg, {x[1]})});
      case MapFn::kMul:
        for (int side : {0, 1}) {
          const ValueId sum = x[static_cast<size_t>(side)], other = x[static_cast<size_t>(1 - side)];
          if (map_of(b, sum, MapFn::kAdd) && coin > 0)
            return m(MapFn::kAdd, {m(MapFn::kMul, {args(b, sum)[0], other}), m(MapFn::kMul, {args(b, sum)[1], other})});
          if (map_of(b, sum, MapFn::kSub) && coin > 0)
            return m(MapFn::kSub, {m(MapFn::kMul, {args(b, sum)[0], other}), m(MapFn::kMul, {args(b, sum)[1], other})});
          if (map_of(b, sum, MapFn::kDiv) && coin > 0) return m(MapFn::kDiv, {m(MapFn::kMul, {args(b, sum)[0], other}), args(b, sum)[1]});
        }
        return m(MapFn::kMul, {x[1], x[0]});
      case MapFn::kDiv:
        if (map_of(b, x[0], MapFn::kMul) && coin > 1) return m(MapFn::kMul, {args(b, x[0])[0], m(MapFn::kDiv, {args(b, x[0])[1], x[1]})});
        if (map_of(b, x[0], MapFn::kAdd) && coin > 0)
          return m(MapFn::kAdd, {m(MapFn::kDiv, {args(b, x[0])[0], x[1]}), m(MapFn::kDiv, {args(b, x[0])[1], x[1]})});
        if (map_of(b, x[1], MapFn::kSqrt) && coin > 1) return m(MapFn::kMul, {x[0], m(MapFn::kRsqrt, {args(b, x[1])[0]})});
        return m(MapFn::kMul, {x[0], m(MapFn::kDiv, {b.constant(1), x[1]})});
      case MapFn::kSquare: return m(MapFn::kMul, {x[0], x[0]});
      case MapFn::kNeg: return m(MapFn::kSub, {b.constant(0), x[0]});
      case MapFn::kSilu:
        return coin > 1 ? m(MapFn::kMul, {x[0], m(MapFn::kSigmoid, {x[0]})})
                        : m(MapFn::kDiv, {x[0], m(MapFn::kAdd, {b.constant(1), m(MapFn::kExp, {m(MapFn::kNeg, {x[0]})})})});
      case MapFn::kExp:
        if (map_of(b, x[0], MapFn::kSub)) return m(MapFn::kDiv, {m(MapFn::kExp, {args(b, x[0])[0]}), m(MapFn::kExp, {args(b, x[0])[1]})});
        if (map_of(b, x[0], MapFn::kAdd)) return m(MapFn::kMul, {m(MapFn::kExp, {args(b, x[0])[0]}), m(MapFn::kExp, {args(b, x[0])[1]})});
        return std::nullopt;
      default: return std::nullopt;
    }
    if (g_.form<MatMul>(n)) {
      const int r = b.graph().dims(x[0]).rank();
      for (int side : {0, 1}) {   // a factor or divisor that does not depend on the inner index leaves; sums and differences distribute
        const ValueId v = x[static_cast<size_t>(side)], other = x[static_cast<size_t>(1 - side)];
        auto mm = [&](ValueId u) { return b.try_add(MatMul{}, side ? std::vector<ValueId>{other, u} : std::vector<ValueId>{u, other}); };
        for (MapFn fn : {MapFn::kMul, MapFn::kDiv, MapFn::kAdd, MapFn::kSub}) {
          if (!map_of(b, v, fn)) continue;
          const std::vector<ValueId> a = args(b, v);
          const Dims& d = b.graph().dims(a[1]);
          const bool is_linear = fn == MapFn::kAdd || fn == MapFn::kSub;
          if (is_linear ? b.graph().dims(a[0]) == b.graph().dims(v) && d == b.graph().dims(v)
                        : b.graph().dims(a[0]) == b.graph().dims(v) && (d.rank() == 0 || (d.rank() == r && d[side ? r - 2 : r - 1] == 1))) {
            const auto first = mm(a[0]);
            if (!first) continue;
            if (!is_linear) return m(fn, {*first, a[1]});
            const auto second = mm(a[1]);
            if (second) return m(fn, {*first, *second});
          }
        }
      }
      if (b.graph().def_form<MatMul>(x[0]) && coin > 1) {
        const std::vector<ValueId> a = args(b, x[0]);
        if (const auto right = b.try_add(MatMul{}, {a[1], x[1]})) return b.try_add(MatMul{}, {a[0], *right});
      }
      const int64_t k = b.graph().dims(x[0])[r - 1];
      if (k % 2 == 0 && coin == 0) {   // split the inner dimension
        auto half = [&](int64_t from) {
          return *b.try_add(MatMul{},
                            {b.add(Slice{r - 1, from, from + k / 2, 1}, {x[0]}), b.add(Slice{r - 2, from, from + k / 2, 1}, {x[1]})});
        };
        const ValueId low = half(0), high = half(k / 2);
        return m(MapFn::kAdd, {low, high});
      }
      Transpose t;
      for (int i = 0; i < r; i++) t.perm[static_cast<size_t>(i)] = static_cast<int8_t>(i < r - 2 ? i : 2 * r - 3 - i);
      return b.add(t, {b.add(MatMul{}, {b.add(t, {x[1]}), b.add(t, {x[0]})})});
    }
    if (const auto* red = g_.form<Reduce>(n)) {
      const int64_t extent = b.graph().dims(x[0])[red->dim];
      if (red->group == 0 && extent % 2 == 0 && coin > 0)
        return b.add(Reduce{red->fn, red->dim, 0}, {b.add(Reduce{red->fn, red->dim, extent / 2}, {x[0]})});
      if (red->fn == ReduceFn::kSum && red->group == 0 && map_of(b, x[0], MapFn::kDiv)) {
        const std::vector<ValueId> a = args(b, x[0]);
        if (b.graph().dims(a[1]).rank() == 0 && b.graph().dims(a[0]) == b.graph().dims(x[0]))
          return m(MapFn::kDiv, {b.add(*red, {a[0]}), a[1]});
      }
      return std::nullopt;
    }
    return std::nullopt;
  }

  const Graph& g_;
  Rng& rng_;
};

template <class F> Graph net(F&& f) {
  Net n;
  f(n);
  return n.done();
}

std::vector<Graph> programs() {
  std::vector<Graph> out;
  out.push_back(net([](Net& g) {
    auto x = g.in(0, {3, 6}), w = g.in(1, {6, 4});
    g.out(g.mm(g.div(x, g.sqrt(g.add(g.div(g.sum(g.square(x), 1), g.c(6)), g.c(1e-5)))), w));
  }));
  out.push_back(net([](Net& g) {
    auto x = g.in(0, {3, 6}), a = g.in(1, {6, 4}), c = g.in(2, {6, 4}), d = g.in(3, {4, 2});
    g.out(g.mm(g.mul(g.silu(g.mm(x, a)), g.mm(x, c)), d));
  }));
  out.push_back(net([](Net& g) {
    auto x = g.in(0, {3, 6}), w = g.in(1, {6, 4}), a = g.in(2, {6, 2}), c = g.in(3, {2, 4});
    g.out(g.add(g.mm(x, w), g.mm(g.mm(x, a), c)));
  }));
  out.push_back(net([](Net& g) {
    auto q = g.in(0, {3, 4}), k = g.in(1, {4, 6}), v = g.in(2, {6, 4});
    auto s = g.mul(g.mm(q, k), g.c(0.5)), e = g.exp(g.sub(s, g.rmax(s, 1)));
    g.out(g.mm(g.div(e, g.sum(e, 1)), v));
  }));
  out.push_back(net([](Net& g) {
    auto x = g.in(0, {3, 6}), w = g.in(1, {6, 4});
    auto c = g.sub(x, g.div(g.sum(x, 1), g.c(6)));
    g.out(g.mm(g.div(c, g.sqrt(g.add(g.div(g.sum(g.square(c), 1), g.c(6)), g.c(0.25)))), w));
  }));
  out.push_back(net([](Net& g) {
    auto h = g.in(0, {3, 4}), x = g.in(1, {3, 4}), alpha = g.in(2, {4});
    auto y = g.add(x, g.mul(alpha, g.sub(g.div(h, g.sqrt(g.sum(g.square(h), 1))), x)));
    g.out(g.div(y, g.sqrt(g.sum(g.square(y), 1))));
  }));
  out.push_back(net([](Net& g) {
    auto q = g.in(0, {3, 4}), k = g.in(1, {6, 4}), v = g.in(2, {6, 4});
    auto unit = [&](ValueId t) { return g.div(t, g.sqrt(g.add(g.sum(g.square(t), 1), g.c(1e-6)))); };
    auto e = g.exp(g.mm(unit(q), g.swap(unit(k))));
    g.out(g.div(g.mm(e, v), g.sum(e, 1)));
  }));
  out.push_back(net([](Net& g) {   // a causal mask by positions
    auto q = g.in(0, {4, 4}), k = g.in(1, {4, 4}), v = g.in(2, {4, 4});
    auto s = g.where(g.less(g.iota(0, {4, 4}), g.iota(1, {4, 4})), g.c(-INFINITY), g.mul(g.mm(q, k), g.c(0.5))),
         e = g.exp(g.sub(s, g.rmax(s, 1)));
    g.out(g.mm(g.div(e, g.sum(e, 1)), v));
  }));
  out.push_back(net([](Net& g) {   // experts: gates from a softmax, heads in a leading dimension
    auto x = g.in(0, {3, 4}), gate = g.in(1, {4, 2}), w = g.in(2, {2, 4, 6}), down = g.in(3, {2, 6, 4});
    auto e = g.exp(g.mm(x, gate)), p = g.div(e, g.sum(e, 1));
    auto h = g.mm(g.silu(g.mm(g.reshape(x, {1, 3, 4}), w)), down);
    g.out(g.reshape(g.sum(g.mul(g.reshape(g.swap(p), {2, 3, 1}), h), 0), {3, 4}));
  }));
  out.push_back(net([](Net& g) {   // group norm
    auto x = g.in(0, {3, 6}), gain = g.in(1, {6});
    auto y = g.reshape(x, {3, 2, 3}), c = g.sub(y, g.div(g.sum(y, 2), g.c(3)));
    g.out(g.mul(g.reshape(g.div(c, g.sqrt(g.add(g.div(g.sum(g.square(c), 2), g.c(3)), g.c(1e-5)))), {3, 6}), gain));
  }));
  out.push_back(net([](Net& g) {   // latents of which a slice is the value
    auto q = g.in(0, {3, 6}), c = g.in(1, {4, 6});
    auto e = g.exp(g.mm(q, g.swap(c)));
    g.out(g.div(g.mm(e, g.slice(c, 1, 0, 4)), g.sum(e, 1)));
  }));
  out.push_back(net([](Net& g) {   // other functions, a bias, a product of concatenations
    auto x = g.in(0, {3, 4}), a = g.in(1, {4, 6}), b = g.in(2, {6}), w = g.in(3, {12, 4});
    auto h = g.add(g.mm(x, a), b);
    g.out(g.mm(g.concat({g.map(MapFn::kGelu, {h}), g.mul(g.map(MapFn::kTanh, {h}), g.map(MapFn::kSigmoid, {h}))}, 1), w));
  }));
  return out;
}

}  // namespace

TEST_CASE("no graph made by laws of algebra is rejected") {
  const int wanted = std::getenv("MIRAGE_REWRITES") ? std::atoi(std::getenv("MIRAGE_REWRITES")) : 1000;
  const std::vector<Graph> start = programs();
  Rng rng(42);
  int made = 0, equal_count = 0, unknown = 0, proved = 0, steps = 0;
  std::string open;
  while (made < wanted) {
    const size_t which = rng.below(start.size());
    Graph g = start[which];
    for (uint64_t n = 1 + rng.below(10); n > 0; n--) {
      auto next = Rewriter(g, rng).at(static_cast<NodeId>(rng.below(static_cast<uint64_t>(g.num_nodes()))));
      if (next && next->num_nodes() <= 60) { g = std::move(*next); steps++; }
    }
    if (g == start[which]) continue;
    made++;
    INFO(print(start[which]) << print(g));
    REQUIRE_FALSE(check_laws(g));
    const Verdict v = equal(start[which], g, static_cast<uint64_t>(made), 1);
    INFO(to_string(v));
    REQUIRE(v.kind != kDifferent);
    const Proof p = prove(start[which], g);
    (v.kind == kEqual ? equal_count : unknown)++;
    proved += p.proved;
    if (!p.proved && open.size() < 4000) open += to_string(p) + "\n" + print(g);
  }
  if (std::getenv("MIRAGE_REWRITES"))
    WARN(made << " graphs, " << steps << " steps: " << equal_count << " equal, " << unknown << " unknown, " << proved << " proved\n"
              << open);
  INFO(made << " graphs, " << steps << " steps: " << equal_count << " equal, " << unknown << " unknown, " << proved << " proved\n" << open);
  CHECK(steps > 2 * made);
  CHECK(unknown == 0);
  CHECK(proved * 100 >= made * 98);
}
