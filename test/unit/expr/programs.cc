// The expression gate on real programs: every step of the known fused forms passes, and of everything else that could be built from the
// same operators little does.
#include <catch2/catch.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <set>
#include "mirage/expr/expr.h"

using namespace mirage;

namespace {

using Ids = std::vector<ExprId>;
using Extents = std::vector<int>;

/// A pool, and the list of everything built in it, which is what a search would have asked about.
struct Program {
  ExprPool p;
  Ids built;
  ExprId keep(ExprId e) { built.push_back(e); return e; }
  ExprId in(int i) { return keep(p.input(i)); }
  ExprId c(double v) { return keep(p.constant(v)); }
  ExprId n(const Extents& s) { return keep(p.extent(s)); }
  ExprId f(MapFn fn, ExprId x) { return keep(p.map(fn, Ids{x})); }
  ExprId f(MapFn fn, ExprId x, ExprId y) { return keep(p.map(fn, Ids{x, y})); }
  ExprId add(ExprId x, ExprId y) { return f(MapFn::kAdd, x, y); }
  ExprId sub(ExprId x, ExprId y) { return f(MapFn::kSub, x, y); }
  ExprId mul(ExprId x, ExprId y) { return f(MapFn::kMul, x, y); }
  ExprId div(ExprId x, ExprId y) { return f(MapFn::kDiv, x, y); }
  ExprId sum(const Extents& s, ExprId x) { return keep(p.sum(x, s)); }
  ExprId max(const Extents& s, ExprId x) { return keep(p.max(x, s)); }
  ExprId mm(const Extents& s, ExprId x, ExprId y) { return keep(p.matmul(x, y, s)); }

  /// The fused form ends in the reference's expression, and each of its steps is inside.
  void check_fused(ExprId fused, ExprId reference) {
    CHECK(p.print(fused) == p.print(reference));
    REQUIRE(fused == reference);
    for (ExprId e : built) {
      INFO(p.print(e) << "  in  " << p.print(reference));
      CHECK(p.subexpr(e, reference));
    }
    CHECK(p.num_capped() == 0);
  }
  bool no(ExprId e, ExprId reference) {
    const bool yes = p.subexpr(e, reference);
    if (yes) UNSCOPED_INFO(p.print(e) << "  in  " << p.print(reference));
    return !yes;
  }

  struct Power { int64_t asked = 0, accepted = 0, unpruned = 0; };
  /// Distinct expressions that `levels` rounds of the given operators build from accepted ones only (`accepted`), of those tried (`asked`);
  /// `unpruned`: what they build without the gate.
  Power power(const Ids& leaves, const std::vector<MapFn>& fns, const std::vector<Extents>& reductions,
              const std::vector<Extents>& contractions, const Ids& goals, int levels, size_t most) {
    Power r;
    for (bool gate : {true, false}) {
      Ids have = leaves;
      std::set<ExprId> seen(leaves.begin(), leaves.end());
      std::set<ExprId> kept(leaves.begin(), leaves.end());
      for (int l = 0; l < levels; ++l) {
        const Ids old = have;
        const auto meet = [&](ExprId e) {
          if (have.size() >= most || !seen.insert(e).second) return;
          if (gate && std::none_of(goals.begin(), goals.end(), [&](ExprId g) { return p.subexpr(e, g); })) return;
          have.push_back(e);
        };
        for (ExprId x : old) {
          if (have.size() >= most) break;
          for (const Extents& s : reductions) meet(p.sum(x, s));
          for (MapFn fn : fns)
            if (map_info(fn).arity == 1) meet(p.map(fn, Ids{x}));
            else
              for (ExprId y : old) meet(p.map(fn, Ids{x, y}));
          for (const Extents& s : contractions)
            for (ExprId y : old) meet(p.matmul(x, y, s));
        }
      }
      if (gate) r.asked = static_cast<int64_t>(seen.size()), r.accepted = static_cast<int64_t>(have.size());
      else r.unpruned = static_cast<int64_t>(seen.size());
    }
    return r;
  }
};

constexpr int kI = 0, kT = 1;            // iterations and tile of the reduced dimension
const Extents kIT{kI, kT};

/// x @ w / sqrt(mean(x^2) + eps), and its fused form in one loop.
struct RmsNorm : Program {
  ExprId x = in(0), w = in(1), eps = c(1e-5), count = n(kIT);
  ExprId rms(ExprId xx_sum) { return f(MapFn::kSqrt, add(div(xx_sum, count), eps)); }
};

}  // namespace

TEST_CASE("rms norm and linear, with gain, bias and residual") {
  for (int variant = 0; variant < 8; ++variant) {
    RmsNorm s;
    const bool gain = variant & 1, bias = variant & 2, residual = variant & 4;
    const ExprId g = gain ? s.in(2) : -1, b = bias ? s.in(3) : -1, r = residual ? s.in(4) : -1;
    // reference: normalise, scale, multiply, add
    ExprId y = s.div(s.x, s.rms(s.sum(kIT, s.f(MapFn::kSquare, s.x))));
    if (gain) y = s.mul(y, g);
    y = s.mm(kIT, y, s.w);
    if (bias) y = s.add(y, b);
    if (residual) y = s.add(y, r);
    s.built.clear();
    // fused: the division after the loop
    const ExprId xg = gain ? s.mul(s.x, g) : s.x;
    const ExprId product = s.sum({kI}, s.mm({kT}, xg, s.w));
    const ExprId squares = s.sum({kI}, s.sum({kT}, s.mul(s.x, s.x)));
    ExprId z = s.div(product, s.rms(squares));
    if (bias) z = s.add(z, b);
    if (residual) z = s.add(r, z);
    s.check_fused(z, y);
    // rsqrt instead of the division
    ExprId v = s.mul(product, s.f(MapFn::kRsqrt, s.add(s.div(squares, s.count), s.eps)));
    if (bias) v = s.add(v, b);
    if (residual) v = s.add(v, r);
    s.check_fused(v, y);
    // not part of it
    CHECK(s.no(s.p.map(MapFn::kExp, Ids{s.x}), y));
    CHECK(s.no(s.p.map(MapFn::kMul, Ids{s.w, s.w}), y));
    CHECK(s.no(s.p.map(MapFn::kDiv, Ids{s.w, s.x}), y));
    CHECK(s.no(s.p.map(MapFn::kAdd, Ids{s.x, s.w}), y));
    CHECK(s.no(s.p.matmul(squares, s.w, Extents{}), y));
    CHECK(s.no(s.p.sum(product, Extents{kI}), y));
    CHECK(s.no(s.p.map(MapFn::kSqrt, Ids{squares}), y));
    if (gain) CHECK(s.no(s.p.map(MapFn::kMul, Ids{xg, g}), y));
    if (bias) CHECK(s.no(s.p.map(MapFn::kMul, Ids{product, b}), y));
    if (residual) CHECK(s.no(s.p.map(MapFn::kDiv, Ids{r, s.rms(squares)}), y));
    Ids leaves{s.x, s.w, s.eps, s.count};
    for (ExprId e : {g, b, r})
      if (e >= 0) leaves.push_back(e);
    const Program::Power p = s.power(leaves, {MapFn::kSquare, MapFn::kSqrt, MapFn::kAdd, MapFn::kMul, MapFn::kDiv}, {{kI}, {kT}},
                                     {{kI}, {kT}, {kI, kT}}, {y}, 3, 3000);
    INFO("variant " << variant << ": " << p.accepted << " of " << p.asked << " accepted; " << p.unpruned << " without the gate");
    CHECK(p.accepted < 60);
    CHECK(p.asked > 30 * p.accepted);
    CHECK(p.unpruned >= 3000);
  }
}

TEST_CASE("gated MLP") {
  Program s;
  const ExprId x = s.in(0), w1 = s.in(1), w2 = s.in(2);
  const ExprId reference = s.mul(s.f(MapFn::kSilu, s.mm(kIT, x, w1)), s.mm(kIT, x, w2));
  s.built.clear();
  const ExprId a = s.sum({kI}, s.mm({kT}, x, w1)), b = s.sum({kI}, s.mm({kT}, x, w2));
  s.check_fused(s.mul(s.f(MapFn::kSilu, a), b), reference);
  CHECK(s.no(s.p.map(MapFn::kSilu, Ids{x}), reference));
  CHECK(s.no(s.p.map(MapFn::kSilu, Ids{b}), reference));
  CHECK(s.no(s.p.map(MapFn::kSilu, Ids{s.p.matmul(x, w1, Extents{kT})}), reference));   // of a partial sum
  CHECK(s.no(s.p.map(MapFn::kSigmoid, Ids{a}), reference));
  CHECK(s.no(s.p.map(MapFn::kMul, Ids{a, b}), reference));
  CHECK(s.no(s.p.map(MapFn::kMul, Ids{w1, w2}), reference));
  const Program::Power p = s.power({x, w1, w2}, {MapFn::kSilu, MapFn::kMul}, {{kI}, {kT}}, {{kI}, {kT}, {kI, kT}}, {reference}, 3, 3000);
  INFO(p.accepted << " of " << p.asked << " accepted; " << p.unpruned << " without the gate");
  CHECK(p.accepted < 45);
  CHECK(p.asked > 8 * p.accepted);
  CHECK(p.unpruned >= 3000);
}

TEST_CASE("LoRA, one contraction for two") {
  Program s;
  constexpr int kR = 2;
  const ExprId x = s.in(0), w = s.in(1), a = s.in(2), b = s.in(3);
  const ExprId reference = s.add(s.mm(kIT, x, w), s.mm({kR}, s.mm(kIT, x, a), b));
  s.built.clear();
  const ExprId xa = s.sum({kI}, s.mm({kT}, x, a)), xw = s.sum({kI}, s.mm({kT}, x, w));
  s.check_fused(s.add(xw, s.mm({kR}, xa, b)), reference);
  // concat-matmul inside the loop: (x | x a) (w ; b) is the sum of two contractions per iteration
  s.check_fused(s.sum({kI}, s.add(s.mm({kT}, x, w), s.mm({kR}, s.mm({kT}, x, a), b))), reference);
  CHECK(s.no(s.p.matmul(w, b, Extents{kR}), reference));
  CHECK(s.no(s.p.matmul(x, b, kIT), s.p.matmul(x, w, kIT)));
  CHECK(s.no(s.p.map(MapFn::kAdd, Ids{a, b}), reference));
  const Program::Power p = s.power({x, w, a, b}, {MapFn::kAdd}, {{kI}, {kT}, {kR}}, {{kI}, {kT}, {kI, kT}, {kR}}, {reference}, 3, 3000);
  INFO(p.accepted << " of " << p.asked << " accepted; " << p.unpruned << " without the gate");
  CHECK(p.accepted < 80);
  CHECK(p.asked > 40 * p.accepted);
  CHECK(p.unpruned >= 3000);
}

TEST_CASE("nTrans: normalise, step, normalise") {
  Program s;
  const ExprId x = s.in(0), h = s.in(1), alpha = s.in(2), count = s.n(kIT);
  const auto norm = [&](ExprId v) { return s.div(v, s.f(MapFn::kSqrt, s.div(s.sum(kIT, s.f(MapFn::kSquare, v)), count))); };
  const ExprId reference = norm(s.add(x, s.mul(alpha, s.sub(norm(h), x))));
  s.built.clear();
  const ExprId hh = s.sum({kI}, s.sum({kT}, s.mul(h, h))), root = s.f(MapFn::kSqrt, s.div(hh, count));
  const ExprId step = s.add(x, s.sub(s.div(s.mul(alpha, h), root), s.mul(alpha, x)));
  const ExprId squares = s.sum({kI}, s.sum({kT}, s.f(MapFn::kSquare, step)));
  s.check_fused(s.div(step, s.f(MapFn::kSqrt, s.div(squares, count))), reference);
  CHECK(s.no(s.p.map(MapFn::kMul, Ids{h, h}), s.p.map(MapFn::kMul, Ids{x, alpha})));
  CHECK(s.no(s.p.map(MapFn::kExp, Ids{h}), reference));
  CHECK(s.no(s.p.map(MapFn::kSqrt, Ids{s.p.map(MapFn::kDiv, Ids{s.p.matmul(h, h, Extents{kT}), count})}), norm(h)));   // of a partial sum
  CHECK(s.no(s.p.map(MapFn::kDiv, Ids{x, s.p.map(MapFn::kSqrt, Ids{alpha})}), reference));
}

TEST_CASE("attention with normalised queries and keys, and the traps beside it") {
  Program s;
  constexpr int kD = 3;   // head dimension; kI, kT run over keys
  const ExprId q = s.in(0), k = s.in(1), v = s.in(2), count = s.n({kD});
  const auto norm = [&](ExprId a) { return s.div(a, s.f(MapFn::kSqrt, s.div(s.sum({kD}, s.f(MapFn::kSquare, a)), count))); };
  const ExprId e = s.f(MapFn::kExp, s.mm({kD}, norm(q), norm(k)));
  const ExprId reference = s.mm(kIT, s.div(e, s.sum(kIT, e)), v);
  s.built.clear();
  const ExprId nq = norm(q), nk = norm(k), scores = s.mm({kD}, nq, nk), ex = s.f(MapFn::kExp, scores);
  s.check_fused(s.div(s.sum({kI}, s.mm({kT}, ex, v)), s.sum({kI}, s.sum({kT}, ex))), reference);
  s.check_fused(
      s.div(s.sum({kI}, s.mm({kT},
                             s.f(MapFn::kExp, s.div(s.div(s.mm({kD}, q, k), s.f(MapFn::kSqrt, s.div(s.sum({kD}, s.mul(q, q)), count))),
                                                    s.f(MapFn::kSqrt, s.div(s.sum({kD}, s.mul(k, k)), count)))),
                             v)),
            s.sum(kIT, e)),
      reference);
  const auto map = [&](MapFn fn, ExprId a) { return s.p.map(fn, Ids{a}); };
  CHECK(s.no(map(MapFn::kExp, s.p.matmul(q, k, Extents{kD})), reference));           // exp before the normalisation
  CHECK(s.no(map(MapFn::kExp, s.p.matmul(nq, k, Extents{kD})), reference));          // one of the two
  CHECK(s.no(map(MapFn::kExp, s.p.matmul(nk, nk, Extents{kD})), reference));
  CHECK(s.no(s.p.matmul(q, q, Extents{kI}), reference));                             // the mean over the wrong index
  CHECK(s.no(s.p.matmul(nq, v, Extents{kD}), map(MapFn::kExp, scores)));
  CHECK(s.no(norm(v), reference));                                                   // the published graphs normalised V instead of K
  CHECK(s.no(norm(nq), reference));
  CHECK(s.no(s.p.map(MapFn::kMul, Ids{ex, ex}), reference));
  CHECK(s.no(s.p.sum(ex, Extents{kI, kI}), reference));
}

TEST_CASE("softmax with its maximum, and layer norm") {
  Program s;
  const ExprId x = s.in(0), v = s.in(1);
  const ExprId e = s.f(MapFn::kExp, s.sub(x, s.max(kIT, x)));
  const ExprId soft = s.mm(kIT, s.div(e, s.sum(kIT, e)), v);
  s.built.clear();
  const ExprId m = s.max({kI}, s.max({kT}, x)), ex = s.f(MapFn::kExp, s.sub(x, m));
  s.check_fused(s.div(s.sum({kI}, s.mm({kT}, ex, v)), s.sum({kI}, s.sum({kT}, ex))), soft);
  CHECK(s.no(s.p.max(ex, Extents{kT}), soft));
  CHECK(s.no(s.p.map(MapFn::kDiv, Ids{ex, s.p.sum(ex, Extents{kT})}), soft));        // by a partial sum
  CHECK(s.no(s.p.map(MapFn::kDiv, Ids{v, s.p.sum(ex, Extents{kI})}), soft));
  CHECK(s.no(s.p.map(MapFn::kMul, Ids{m, m}), soft));

  Program l;
  const ExprId y = l.in(0), w = l.in(1), g = l.in(2), b = l.in(3), eps = l.c(1e-5), count = l.n(kIT);
  const ExprId c = l.sub(y, l.div(l.sum(kIT, y), count));
  const ExprId root = l.f(MapFn::kSqrt, l.add(l.div(l.sum(kIT, l.mul(c, c)), count), eps));
  const ExprId linear = l.mm(kIT, l.add(l.mul(l.div(c, root), g), b), w);
  l.built.clear();
  // The mean moved behind the contraction: sum(y g w) - mean(y) sum(g w), over the root, plus sum(b w).
  const ExprId gw = l.mul(g, w), mean = l.div(l.sum({kI}, l.sum({kT}, y)), count);
  const ExprId top = l.sub(l.sum({kI}, l.mm({kT}, y, gw)), l.mul(mean, l.sum({kI}, l.sum({kT}, gw))));
  l.check_fused(l.add(l.div(top, root), l.sum({kI}, l.mm({kT}, b, w))), linear);
  CHECK(l.no(l.p.map(MapFn::kMul, Ids{g, g}), linear));
  CHECK(l.no(l.p.map(MapFn::kMul, Ids{b, g}), linear));
}

TEST_CASE("two normalised linear layers with residuals are under the cap, a third is over it and prunes nothing") {
  Program s;
  ExprId x = s.in(0);
  const ExprId count = s.n(kIT), eps = s.c(1e-5);
  for (int layer = 0; layer < 3; ++layer) {
    const ExprId c = s.sub(x, s.div(s.sum(kIT, x), count));
    const ExprId root = s.f(MapFn::kSqrt, s.add(s.div(s.sum(kIT, s.f(MapFn::kSquare, c)), count), eps));
    x = s.add(x, s.mm(kIT, s.add(s.mul(s.div(c, root), s.in(10 + layer)), s.in(20 + layer)), s.in(30 + layer)));
    for (ExprId e : s.built) CHECK(s.p.subexpr(e, x));
    CHECK((s.p.num_capped() > 0) == (layer == 2));
    CHECK(s.p.subexpr(s.p.map(MapFn::kExp, Ids{x}), x) == (layer == 2));
  }
}

TEST_CASE("speed of the decision", "[.bench]") {
  using Clock = std::chrono::steady_clock;
  RmsNorm s;
  const ExprId y = s.mm(kIT, s.div(s.x, s.rms(s.sum(kIT, s.f(MapFn::kSquare, s.x)))), s.w);
  Clock::time_point start = Clock::now();
  const Program::Power p = s.power({s.x, s.w, s.eps, s.count}, {MapFn::kSquare, MapFn::kSqrt, MapFn::kAdd, MapFn::kMul, MapFn::kDiv},
                                   {{kI}, {kT}}, {{kI}, {kT}, {kI, kT}}, {y}, 3, 30000);
  std::cout << p.asked << " distinct asked, " << p.accepted << " accepted, " << p.unpruned << " built without the gate, pool of "
            << s.p.size() << ": " << std::chrono::duration<double>(Clock::now() - start).count() << " s\n";
  Ids ids;
  for (ExprId e = 2; e < s.p.size() && ids.size() < 100000; ++e) ids.push_back(e);
  for (int round = 0; round < 2; ++round) {
    start = Clock::now();
    int64_t yes = 0;
    for (ExprId e : ids) yes += s.p.subexpr(e, y);
    std::cout << (round ? "again " : "first ")
              << 1e9 * std::chrono::duration<double>(Clock::now() - start).count() / static_cast<double>(ids.size()) << " ns per query, "
              << yes << " yes\n";
    start = Clock::now();
    for (ExprId e : ids) yes += s.p.map(MapFn::kMul, Ids{e, s.x});
    std::cout << (round ? "again " : "first ")
              << 1e9 * std::chrono::duration<double>(Clock::now() - start).count() / static_cast<double>(ids.size()) << " ns per product ("
              << yes % 10 << ")\n";
  }
}
