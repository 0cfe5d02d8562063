// The sub-expression decision (docs/pruning.md). subexpr(e, t) holds exactly if e * q is included, as a multiset, in t or in a polynomial inside t for some monomial q: adding, multiplying, dividing and
// summing around e only ever leads to supersets of e * q, and every other operator puts its operand inside.
#include "expr/subexpr.h"

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
  const PolyInfo& a = forms_.info(e);
  for (PolyId u : in.polys) {
    const PolyInfo& b = forms_.info(u);
    if ((a.signature & ~b.signature) == 0 && a.weight <= b.weight && included(e, u)) return true;
  }
  // max({i, j}, x) = max({i}, max({j}, x)): a maximum over fewer extents lies inside without being written there.
  FactorId f;
  if (!forms_.single_factor(e, &f) || forms_.factor(f).kind != FactorKind::kReduceMax) return false;
  const Factor small = forms_.factor(f);
  for (FactorId g : in.maxima) {
    const Factor big = forms_.factor(g);
    const auto s = forms_.sequence(small.extents), b = forms_.sequence(big.extents);
    if (big.args[0] == small.args[0] && std::includes(b.begin(), b.end(), s.begin(), s.end(), std::greater<>())) return true;
  }
  return false;
}

bool SubexprDecider::included(PolyId e, PolyId u) {
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
    if (j == small.size()) return true;
  }
  return false;
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
