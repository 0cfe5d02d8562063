// The sub-expression decision (docs/pruning.md). subexpr(e, t) holds exactly if e * q is included, as a multiset, in t or in a polynomial
// inside t for some monomial q: adding, multiplying, dividing and summing around e only ever leads to supersets of e * q, and every other
// operator puts its operand inside.
#include "expr/subexpr.h"

#include <algorithm>
#include <functional>

namespace mirage::expr_internal {

bool SubexprDecider::operator()(PolyId e, PolyId t) {
  if (e == t || e == kOne) return true;
  const PolyInfo &a = forms_.info(e), &b = forms_.info(t);
  if ((a.signature & ~b.signature) != 0 || a.weight > b.weight) return false;
  const uint64_t key = pair_key(e, t);
  if (const int32_t* hit = memo_.find(key)) return *hit != 0;
  const bool yes = decide(e, t);
  memo_.insert(key, yes);
  return yes;
}

bool SubexprDecider::decide(PolyId e, PolyId t) {
  const Inside& in = inside(t);
  const PolyInfo a = forms_.info(e);   // a copy: what is asked below makes new polynomials, and their table moves
  for (PolyId u : in.polys) {
    const PolyInfo& b = forms_.info(u);
    if ((a.signature & ~b.signature) == 0 && a.weight <= b.weight && included(e, u)) return true;
  }
  // max({i, j}, x) = max({i}, max({j}, x)): a maximum over fewer extents lies inside without being written there.
  FactorId f;
  if (!forms_.single_factor(e, &f) || forms_.factor(f).kind != FactorKind::kReduceMax) return false;
  return std::any_of(in.maxima.begin(), in.maxima.end(), [&](FactorId g) { return within(f, g); });
}

bool SubexprDecider::within(FactorId small, FactorId big) const {
  const Factor x = forms_.factor(small), y = forms_.factor(big);
  const auto s = forms_.sequence(x.extents), b = forms_.sequence(y.extents);
  return y.kind == FactorKind::kReduceMax && y.args[0] == x.args[0] &&
         std::includes(b.begin(), b.end(), s.begin(), s.end(), std::greater<>());
}

bool SubexprDecider::included(PolyId e, PolyId u, Surroundings* how) {
  const auto small = forms_.monomials(e), big = forms_.monomials(u);
  // The order is kept by products, so e * q is met in u from left to right, its leading monomial first.
  for (size_t first = 0; first + small.size() <= big.size(); ++first) {
    if (first > 0 && big[first] == big[first - 1]) continue;
    const MonoId q = forms_.div_mono(big[first], small[0]);
    if (q == kNone) continue;
    size_t i = first + 1, j = 1;
    while (j < small.size()) {
      const MonoId want = forms_.mul_mono(small[j], q);
      while (i < big.size() && big[i] != want) ++i;
      if (i == big.size()) break;
      ++i, ++j;
    }
    if (j < small.size()) continue;
    if (!how) return true;
    how->q = q;
    how->taken = {static_cast<int>(first)};
    for (size_t k = first + 1, n = 1; n < small.size(); ++k)
      if (big[k] == forms_.mul_mono(small[n], q)) { how->taken.push_back(static_cast<int>(k)); ++n; }
    return true;
  }
  return false;
}

std::optional<Surroundings> SubexprDecider::explain(PolyId e, PolyId t) {
  struct Place { PolyId poly; int parent; Surroundings::Descent by; };
  std::vector<Place> places{{t, -1, {}}};
  FlatMap seen;
  seen.insert(static_cast<uint64_t>(t), 1);
  FactorId max_of_e = kNone;
  if (FactorId f; forms_.single_factor(e, &f) && forms_.factor(f).kind == FactorKind::kReduceMax) max_of_e = f;
  Surroundings how;
  const auto finish = [&](size_t place) {
    how.u = places[place].poly;
    for (int i = static_cast<int>(place); places[static_cast<size_t>(i)].parent >= 0; i = places[static_cast<size_t>(i)].parent)
      how.path.insert(how.path.begin(), places[static_cast<size_t>(i)].by);
    return how;
  };
  for (size_t i = 0; i < places.size(); ++i) {
    const PolyId u = places[i].poly;
    if (included(e, u, &how)) return finish(i);
    const auto visit = [&](PolyId p, Surroundings::Descent by) {
      if (p == kZero || p == kOne || seen.find(static_cast<uint64_t>(p))) return;
      seen.insert(static_cast<uint64_t>(p), 1);
      places.push_back({p, static_cast<int>(i), by});
    };
    const auto monos = forms_.monomials(u);
    for (int k = 0; k < static_cast<int>(monos.size()); ++k) {
      const Monomial m = forms_.monomial(monos[static_cast<size_t>(k)]);
      visit(m.e, {u, k, Surroundings::Part::kExponent});
      visit(m.q, {u, k, Surroundings::Part::kRadicand});
      visit(m.d, {u, k, Surroundings::Part::kDenominator});
      const auto fs = forms_.sequence(m.f);
      for (int f = 0; f < static_cast<int>(fs.size()); ++f) {
        if (max_of_e != kNone && within(max_of_e, fs[static_cast<size_t>(f)])) {
          how.in_maximum = true;
          how.mono = k;
          how.factor = f;
          return finish(i);
        }
        const Factor factor = forms_.factor(fs[static_cast<size_t>(f)]);
        for (int a = 0; a < static_cast<int>(factor.args.size()); ++a)
          visit(factor.args[static_cast<size_t>(a)], {u, k, Surroundings::Part::kArgument, f, a});
      }
    }
  }
  return std::nullopt;
}

const SubexprDecider::Inside& SubexprDecider::inside(PolyId t) {
  if (const int32_t* hit = inside_index_.find(static_cast<uint64_t>(t))) return inside_[static_cast<size_t>(*hit)];
  Inside in;
  FlatMap seen;
  const auto visit = [&](PolyId p) {
    if (p == kZero || p == kOne || seen.find(static_cast<uint64_t>(p))) return;
    seen.insert(static_cast<uint64_t>(p), 1);
    in.polys.push_back(p);
  };
  visit(t);
  for (size_t i = 0; i < in.polys.size(); ++i)
    for (MonoId id : forms_.monomials(in.polys[i])) {
      const Monomial& m = forms_.monomial(id);
      visit(m.e);
      visit(m.q);
      visit(m.d);
      for (FactorId f : forms_.sequence(m.f)) {
        const Factor factor = forms_.factor(f);
        for (PolyId arg : factor.args) visit(arg);
        if (factor.kind == FactorKind::kReduceMax) in.maxima.push_back(f);
      }
    }
  inside_index_.insert(static_cast<uint64_t>(t), static_cast<int32_t>(inside_.size()));
  inside_.push_back(std::move(in));
  return inside_.back();
}

}  // namespace mirage::expr_internal
