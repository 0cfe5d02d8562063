// The prover is never stuck: what grows without bound is given up, said so, and costs counted work and memory; nested forms do not end on
// the stack.
#include <catch2/catch.hpp>
#include <sys/resource.h>

#include "mirage/verify/proof.h"
#include "unit/verify/graphs.h"

using namespace mirage;
using namespace mirage::test;

namespace {

// Sanitizers take several times the stack and the time.
#ifdef __SANITIZE_ADDRESS__
constexpr int kSlower = 16;
#else
constexpr int kSlower = 1;
#endif

double processor_seconds() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  return static_cast<double>(u.ru_utime.tv_sec) + 1e-6 * static_cast<double>(u.ru_utime.tv_usec);
}

/// x after n steps, over two inputs; the second time transposed before and after, so that indices are substituted in the whole form.
template <class F> std::pair<Graph, Graph> chains(int n, F&& step) {
  const auto make = [&](bool turned) {
    Net g;
    ValueId v = g.in(0, {6, 5}), w = g.in(1, {6, 5});
    if (turned) v = g.swap(v), w = g.swap(w);
    for (int i = 0; i < n; i++) v = step(g, v, w);
    g.out(turned ? g.swap(v) : v);
    return remove_dead(g.b.graph());   // the second input need not be used
  };
  return {make(false), make(true)};
}

template <class F> Proof prove_chain(int n, F&& step, double seconds = 10) {
  const auto [a, b] = chains(n, step);
  const double before = processor_seconds();
  const Proof p = prove(a, b);
  INFO(to_string(p) << ", " << processor_seconds() - before << " s");
  CHECK(processor_seconds() - before < kSlower * seconds);
  CHECK((p.proved || p.gave_up || p.reason.find("output") != std::string::npos));
  return p;
}

}  // namespace

TEST_CASE("bounds: squares of sums, eighty nodes: proved step by step, else given up within the bytes of a proof") {
  const auto square = [](Net& g, ValueId v, ValueId w) { return g.square(g.add(v, w)); };
  CHECK(prove_chain(40, square).proved);
  // z = x + 3w for x, (x + w)^2 = z^2 - 4zw + 4w^2: no value of the one is one of the other
  Net g;
  const ValueId w = g.in(1, {6, 5}), w3 = g.mul(g.c(3), w), rest = g.add(g.mul(g.c(4), g.square(w)), w3);
  ValueId z = g.add(g.in(0, {6, 5}), w3);
  for (int i = 0; i < 40; i++) z = g.add(g.sub(g.square(z), g.mul(g.c(4), g.mul(z, w))), rest);
  const Graph moved = g.out(g.sub(z, w3)).done();
  const double before = processor_seconds();
  const Proof p = prove(chains(40, square).first, moved);
  INFO(to_string(p));
  CHECK(processor_seconds() - before < kSlower * 20);
  CHECK_FALSE(p.proved);
  CHECK((p.reason.find("MB") != std::string::npos || p.reason.find("steps") != std::string::npos ||
         p.reason.find("digits") != std::string::npos));
}

TEST_CASE("bounds: functions of functions that grow when they are multiplied out are proved step by step, also in tiles") {
  // of one or two inputs, in a grid of blocks with a tail if 64 is not a multiple of the tile; `other` changes one step
  const auto body = [](int n, int64_t tile, int other) {
    const int64_t blocks = (64 + tile - 1) / tile;
    Net g(Level::kBlock, Launch{{blocks, 1, 1}, 1});
    ValueId v = g.in(0, {tile}, DType::kF16, grid_x(0)), w = g.in(1, {tile}, DType::kF16, grid_x(0));
    for (int i = 0; i < n; i++) v = g.add(g.map(i == other ? MapFn::kSilu : MapFn::kGelu, {g.sub(v, g.mul(v, w))}), w);
    return g.out(v, DType::kF16, grid_x(0)).done();
  };
  const auto in_tiles = [&](int n, int64_t tile, int other) {
    Net g;
    const ValueId v = g.reshape(g.in(0, {4, 16}), {64}), w = g.reshape(g.in(1, {4, 16}), {64});
    return g.out(g.reshape(g.call(body(n, tile, other), {v, w}), {4, 16})).done();
  };
  const auto whole = [](int n) {
    Net g;
    ValueId v = g.in(0, {4, 16}), w = g.in(1, {4, 16});
    for (int i = 0; i < n; i++) v = g.add(g.map(MapFn::kGelu, {g.sub(v, g.mul(v, w))}), w);
    return g.out(v).done();
  };
  for (int n : {3, 40, 1000 / kSlower})
    for (int64_t tile : {16, 24}) {
      INFO(n << " steps in tiles of " << tile);
      const double before = processor_seconds();
      const Proof same = prove(whole(n), in_tiles(n, tile, -1));
      INFO(to_string(same));
      CHECK(same.proved);
      CHECK_FALSE(prove(whole(n), in_tiles(n, tile, n / 2)).proved);
      CHECK(processor_seconds() - before < kSlower * 20);
    }
}

TEST_CASE("bounds: chains of thousands of nodes, proved or given up, on an ordinary stack") {
  CHECK(prove_chain(4000 / kSlower, [](Net& g, ValueId v, ValueId) { return g.map(MapFn::kTanh, {v}); }).proved);
  CHECK(prove_chain(2000 / kSlower, [](Net& g, ValueId v, ValueId) { return g.map(MapFn::kSigmoid, {v}); }).proved);
  // each cast goes into all maxima within, up to a number of them
  CHECK(
      prove_chain(500 / kSlower, [](Net& g, ValueId v, ValueId w) { return g.map(MapFn::kCastF16, {g.max(g.mul(v, g.c(2)), w)}); }).proved);
  CHECK(prove_chain(300 / kSlower, [](Net& g, ValueId v, ValueId w) { return g.add(v, g.map(MapFn::kTanh, {g.mul(v, w)})); }).proved);
  if (kSlower > 1) return;   // deeper ones want the stack that they are bounded for
  const Proof deep =
      prove_chain(6000, [](Net& g, ValueId v, ValueId w) { return g.map(MapFn::kCastF16, {g.max(g.map(MapFn::kTanh, {v}), w)}); });
  CHECK(deep.gave_up);
  CHECK(deep.reason.find("nested deeper") != std::string::npos);
  prove_chain(20, [](Net& g, ValueId v, ValueId w) { return g.silu(g.add(v, w)); });
  prove_chain(6, [](Net& g, ValueId v, ValueId w) { return g.div(v, g.sum(g.exp(g.add(v, w)), 1)); });
  prove_chain(6, [](Net& g, ValueId v, ValueId w) { return g.sub(v, g.rmax(g.mul(v, w), 1)); });
  prove_chain(5, [](Net& g, ValueId v, ValueId w) { return g.mm(v, g.mm(g.swap(v), w)); });
}

TEST_CASE("bounds: conditions within conditions, maxima of products: Z3 is given what it can end") {
  prove_chain(12, [](Net& g, ValueId v, ValueId w) { return g.where(g.less(v, w), g.mul(v, w), v); });
  prove_chain(12, [](Net& g, ValueId v, ValueId w) { return g.max(g.mul(v, w), g.sub(g.square(v), w)); });
  prove_chain(12, [](Net& g, ValueId v, ValueId w) { return g.map(MapFn::kRelu, {g.sub(g.mul(v, v), g.mul(w, v))}); });
  const auto compare = [](auto&& f, auto&& h) {
    const double before = processor_seconds();
    Net a, b;
    a.out(f(a, a.in(0, {4}), a.in(1, {4}), a.in(2, {4})));
    b.out(h(b, b.in(0, {4}), b.in(1, {4}), b.in(2, {4})));
    const Proof p = prove(a.done(), b.done());
    INFO(to_string(p));
    CHECK(processor_seconds() - before < 10 * kSlower);
    return p.proved;
  };
  // Equal, but of degree 24 with eight maxima: not for Z3.
  const auto tower = [](Net& g, ValueId x, ValueId y, ValueId z, bool swapped) {
    for (int i = 0; i < 8; i++) {
      const ValueId p = g.mul(g.mul(x, x), x), q = g.add(g.mul(y, z), x);
      x = swapped ? g.sub(g.add(p, q), g.map(MapFn::kMin, {p, q})) : g.max(p, q);
    }
    return x;
  };
  compare([&](Net& g, ValueId x, ValueId y, ValueId z) { return tower(g, x, y, z, false); },
          [&](Net& g, ValueId x, ValueId y, ValueId z) { return tower(g, x, y, z, true); });
}
