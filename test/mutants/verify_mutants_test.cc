// Mutants of correct block graphs: every change of one operator, operand, partition, accumulator, launch extent or constant is rejected by
// the verifier, or proved to be the same function, and then it is the same in doubles too.
#include <catch2/catch.hpp>
#include <cstdlib>

#include "mirage/verify/proof.h"
#include "mutants/mutate.h"
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
    auto x = b.in(0, {m, tk}, DType::kF16, loop_over(1)), w1 = b.in(1, {tk, tn}, DType::kF16, weight),
         w2 = b.in(2, {tk, tn}, DType::kF16, weight);
    b.out(b.mul(b.silu(b.accum(b.mm(x, w1))), b.accum(b.mm(x, w2))), DType::kF16, grid_x(1));
    out.push_back({"gated_mlp", net([&](Net& g) {
      auto x = g.in(0, {m, k}), a = g.in(1, {k, n}), c = g.in(2, {k, n});
      g.out(g.mul(g.silu(g.mm(x, a)), g.mm(x, c)));
    }), b.done(), {{m, k}, {k, n}, {k, n}}});
  }
  {
    Net b(Level::kBlock, launch);
    auto x = b.in(0, {m, tk}, DType::kF16, loop_over(1)), w = b.in(1, {tk, tn}, DType::kF16, weight),
         a = b.in(2, {tk, 2}, DType::kF16, loop_over(0)), c = b.in(3, {2, tn}, DType::kF16, grid_x(1));
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
  const int step = std::getenv("MIRAGE_FULL") ? 1 : 2;   // every second one, without
  for (const Subject& s : list) {
    INFO(s.name);
    const Verdict right = equal(s.reference, kernel_of(s.body, s.inputs), 1);
    INFO(to_string(right));
    REQUIRE(right.kind == kEqual);
    std::vector<Type> types;
    for (const Dims& d : s.inputs) types.push_back({DType::kF16, d});
    int tried = 0, different = 0, unknown = 0, same = 0, proved = 0, open = 0, made = 0;
    std::string unproved;
    all_mutants(s.body, partitions, [&](const Graph& body, const std::string& what) {
      if (made++ % step != 0) return;
      const std::optional<Graph> mutant = wrap(body, s);
      if (!mutant) return;
      const Verdict v = equal(s.reference, *mutant, 1);
      const bool agree = agree_in_doubles(s.reference, *mutant, types);
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
    INFO(s.name << (partitions ? "" : " (ragged)") << ": " << tried << " mutants, " << different << " different, " << unknown
                << " unknown, " << same << " equal and the same in doubles, " << proved << " proved, " << open << " equal without a proof\n"
                << unproved);
    CHECK(tried * step >= 50);
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
