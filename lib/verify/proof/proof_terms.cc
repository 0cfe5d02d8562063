// Arithmetic on the prover's normal forms (proof_terms.h): sums, products, powers, exponentials. Every rule is a law of real numbers where
// both sides are defined: denominators not zero, radicands not negative. A law that is missing here costs an "unknown", never a wrong
// proof.
#include "verify/proof/proof_terms.h"

#include <algorithm>
#include <cmath>

namespace mirage::verify {
namespace {

using Wide = __int128;

/// Bad where it has too many digits.
Rational power_of_number(const Rational& r, int32_t n) {
  Rational out = Rational::of(1), step = n < 0 ? r.inverse() : r;
  for (int64_t left = std::abs(static_cast<int64_t>(n)); left > 0; left /= 2) {
    if (left % 2) out = out * step;
    if (left > 1) step = step * step;
  }
  return out;
}

std::optional<Power> small_power(const Rational& r) {
  constexpr Wide kMost = 1 << 30;
  if (r.bad || r.n > kMost || r.n < -kMost || r.d > kMost) return std::nullopt;
  return Power{static_cast<int32_t>(r.n), static_cast<int32_t>(r.d)};
}

}  // namespace

// ---- sums and products

PolyId Terms::number(const Rational& r) {
  if (r.is_zero() && !r.bad) return poly({});
  return poly({{mono({}), r}});
}

std::optional<Rational> Terms::as_number(PolyId p) const {
  const std::vector<Term>& t = terms(p);
  if (t.empty()) return Rational::of(0);
  if (t.size() == 1 && factors(t[0].mono).empty()) return t[0].coef;
  return std::nullopt;
}

PolyId Terms::input(int param, const std::vector<IdxId>& at) {
  std::vector<int64_t> data{param};
  data.insert(data.end(), at.begin(), at.end());
  return single(atom(AtomKind::kInput, std::move(data)));
}

PolyId Terms::index_value(IdxId x) {
  const Affine a = idx.affine(x);
  PolyId out = integer(a.constant);
  for (auto [t, c] : a.terms) out = add(out, scale(single(atom(AtomKind::kIndex, {t})), Rational::of(c)));
  return out;
}

PolyId Terms::ge0(IdxId x) {
  x = idx.ge0_form(x);
  const auto [lo, hi] = idx.range(x);
  if (lo >= 0) return integer(1);
  if (hi < 0) return integer(0);
  return single(atom(AtomKind::kGe0, {x}));
}

PolyId Terms::add(PolyId x, PolyId y) {
  if (x < 0 || y < 0) return kPoison;
  if (is_masked(x) || is_masked(y)) {
    const Split a = split(x), b = split(y);
    return masked(add(a.finite, b.finite), mul(a.condition, b.condition));
  }
  const std::vector<Term>&a = terms(x), &b = terms(y);
  std::vector<Term> out;
  std::vector<MonoId> cancelled;
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    if (j == b.size() || (i < a.size() && a[i].mono < b[j].mono)) { out.push_back(a[i++]); continue; }
    if (i == a.size() || b[j].mono < a[i].mono) { out.push_back(b[j++]); continue; }
    const Rational c = a[i].coef + b[j].coef;
    if (c.bad || !c.is_zero()) out.push_back({a[i].mono, c});
    else if (watching_) cancelled.push_back(a[i].mono);
    i++, j++;
  }
  for (MonoId m : cancelled)
    for (const Factor& f : Factors(factors(m))) lost_domain_ |= may_fail(f);   // log(x) - log(x) is 0 only where x > 0
  return known(poly(std::move(out)), is_known(x) && is_known(y), (is_positive(x) && is_known(y)) || (is_known(x) && is_positive(y)));
}

PolyId Terms::add_all(const std::vector<PolyId>& x) {
  if (std::any_of(x.begin(), x.end(), [](PolyId p) { return p < 0; })) return kPoison;
  if (x.size() <= 2 || std::any_of(x.begin(), x.end(), [&](PolyId p) { return is_masked(p); })) {
    PolyId out = integer(0);
    for (PolyId p : x) out = add(out, p);
    return out;
  }
  std::vector<Term> all;
  bool known_all = true, positive = false;
  for (PolyId p : x) {
    all.insert(all.end(), terms(p).begin(), terms(p).end());
    known_all = known_all && is_known(p);
    positive = positive || is_positive(p);
  }
  if (!spend(static_cast<int64_t>(all.size()) / 16)) return kPoison;
  std::stable_sort(all.begin(), all.end(), [](const Term& s, const Term& t) { return s.mono < t.mono; });
  std::vector<Term> merged;
  for (const Term& t : all) {
    if (!merged.empty() && merged.back().mono == t.mono) merged.back().coef = merged.back().coef + t.coef;
    else merged.push_back(t);
  }
  std::vector<MonoId> cancelled;
  for (const Term& t : merged) if (watching_ && t.coef.is_zero() && !t.coef.bad) cancelled.push_back(t.mono);
  std::erase_if(merged, [](const Term& t) { return t.coef.is_zero() && !t.coef.bad; });
  for (MonoId m : cancelled)
    for (const Factor& f : Factors(factors(m))) lost_domain_ |= may_fail(f);
  return known(poly(std::move(merged)), known_all, known_all && positive);
}

PolyId Terms::scale(PolyId x, const Rational& r) {
  if (x < 0) return kPoison;
  if (r.is(1)) return x;
  if (r.is_zero() && !is_masked(x)) {
    lost_domain_ |= watching_ && may_fail(x);
    return integer(0);
  }
  if (is_masked(x)) {
    if (r.n <= 0) return poison("an infinity is multiplied by a number that is not positive");
    const Split s = split(x);
    return masked(scale(s.finite, r), s.condition);
  }
  std::vector<Term> out = terms(x);
  for (Term& t : out) t.coef = t.coef * r;
  return known(poly(std::move(out)), r.n >= 0 && is_known(x), r.n > 0 && is_positive(x));
}

PolyId Terms::mul(PolyId x, PolyId y) {
  if (x < 0 || y < 0) return kPoison;
  return known(mul_plain(x, y), x == y || (is_known(x) && is_known(y)), is_positive(x) && is_positive(y));
}

PolyId Terms::mul_plain(PolyId x, PolyId y) {
  if (auto c = as_number(x)) return scale(y, *c);
  if (auto c = as_number(y)) return scale(x, *c);
  if (is_masked(x) || is_masked(y)) {
    if (is_masked(x)) std::swap(x, y);
    if (is_masked(x) || !poly_at(x).nonnegative) return poison("an infinity is multiplied by a value of unknown sign");
    const Split s = split(y);
    return masked(mul(x, s.finite), s.condition);
  }
  const std::vector<Term> a = terms(x), b = terms(y);
  if (a.size() * b.size() > static_cast<size_t>(limits_.terms)) {
    const auto expand = static_cast<size_t>(limits_.expand);
    const bool keep_a = a.size() > expand && a.size() > 1 && b.size() > 1, keep_b = b.size() > expand && a.size() > 1 && b.size() > 1;
    const Unwatched unwatched(*this);
    auto kept = [&](PolyId p) -> std::pair<PolyId, Factor> {   // p = monomial * (what is left)
      const PolyId inverse = power(p, {-1, 1});
      if (inverse < 0 || terms(inverse).size() != 1) return {kPoison, {}};
      const Term t = terms(inverse)[0];
      Factors rest;
      Factor base{-1, {}};
      for (const Factor& f : factors(t.mono)) {
        if (kind(f.atom) == AtomKind::kBase && f.power == Power{-1, 1} && terms(static_cast<PolyId>(data(f.atom)[0])).size() > expand)
          base = f;
        else rest.push_back(f);
      }
      const PolyId outside = power(product(t.coef, rest), {-1, 1});
      return {outside, {base.atom, {1, 1}}};
    };
    if (keep_a || keep_b) {
      auto [outside, factor] = kept(keep_a ? x : y);
      if (outside >= 0 && factor.atom >= 0) {
        const PolyId other = mul(outside, keep_a ? y : x);
        if (other < 0) return kPoison;
        std::vector<PolyId> out;
        for (const Term& t : std::vector<Term>(terms(other))) {
          Factors f = factors(t.mono);
          f.push_back(factor);
          out.push_back(product(t.coef, std::move(f)));
        }
        return add_all(out);
      }
    }
  }
  std::vector<Term> flat;
  std::vector<PolyId> rest;
  for (const Term& t : a)
    for (const Term& u : b) {
      Factors f = factors(t.mono);
      const Factors& g = factors(u.mono);
      f.insert(f.end(), g.begin(), g.end());
      const PolyId p = product(t.coef * u.coef, std::move(f));
      if (p < 0) return kPoison;
      if (terms(p).size() == 1) flat.push_back(terms(p)[0]);
      else rest.push_back(p);
    }
  std::stable_sort(flat.begin(), flat.end(), [](const Term& s, const Term& t) { return s.mono < t.mono; });
  std::vector<Term> merged;
  for (const Term& t : flat) {
    if (!merged.empty() && merged.back().mono == t.mono) merged.back().coef = merged.back().coef + t.coef;
    else merged.push_back(t);
  }
  std::erase_if(merged, [](const Term& t) { return t.coef.is_zero() && !t.coef.bad; });
  rest.push_back(poly(std::move(merged)));
  return add_all(rest);
}

PolyId Terms::product(const Rational& c, Factors f) {
  if (!spend(1 + static_cast<int64_t>(f.size()))) return kPoison;
  if (c.bad) return poison("a coefficient has too many digits");
  if (c.is_zero()) return integer(0);
  std::sort(f.begin(), f.end(), [](const Factor& a, const Factor& b) { return a.atom < b.atom; });
  Factors out;
  for (const Factor& x : f) {
    if (out.empty() || out.back().atom != x.atom) { out.push_back(x); continue; }
    const auto sum = small_power(to_rational(out.back().power) + to_rational(x.power));
    if (!sum) return poison("an exponent has too many digits");
    const bool root = out.back().power.d % 2 == 0 || x.power.d % 2 == 0;
    // sqrt(x)^2 = x only where x >= 0
    if (root && sum->d % 2 != 0 && !is_nonnegative(x.atom) &&
        !(kind(x.atom) == AtomKind::kBase && is_known(static_cast<PolyId>(data(x.atom)[0]))))
      lost_root_ = true;
    // relu(x) / relu(x) is 1 for half of all x
    if (watching_ && (out.back().power.n < 0) != (x.power.n < 0) && atom_may_vanish(x.atom)) lost_domain_ = true;
    // exp(log(x)) exp(-log(x)), a shift that is a root
    if (watching_ && sum->n == 0 && atom_may_fail(x.atom)) lost_domain_ = true;
    out.back().power = *sum;
  }
  for (Factor& x : out) if (is_bool(x.atom) && x.power.n > 0) x.power = {1, 1};
  std::erase_if(out, [](const Factor& x) { return x.power.n == 0; });
  // Index conditions: contradictions give 0, what another implies goes.
  std::vector<Factor> conditions;
  for (const Factor& x : out) if (kind(x.atom) == AtomKind::kGe0 && x.power == Power{1, 1}) conditions.push_back(x);
  if (conditions.size() > 1) {
    std::set<AtomId> implied;
    for (size_t i = 0; i < conditions.size(); i++)
      for (size_t j = 0; j < conditions.size(); j++) {
        if (i == j) continue;
        const auto a = static_cast<IdxId>(data(conditions[i].atom)[0]), b = static_cast<IdxId>(data(conditions[j].atom)[0]);
        if (i < j && idx.range(idx.add(a, b)).second < 0) return integer(0);
        // a >= b >= 0
        if (!implied.contains(conditions[j].atom) && idx.range(idx.add(a, b, -1)).first >= 0) implied.insert(conditions[i].atom);
      }
    std::erase_if(out, [&](const Factor& x) { return implied.contains(x.atom); });
  }
  for (size_t i = 0; i < out.size(); i++) {
    const Factor x = out[i];
    const AtomKind k = kind(x.atom);
    if (k == AtomKind::kMask && (out.size() > 1 || !(x.power == Power{1, 1}) || !c.is(1))) return poison("an infinity is multiplied");
    const int32_t whole = static_cast<int32_t>(floor_div(x.power.n, x.power.d));
    // |x|^2 = x^2
    if (k == AtomKind::kMaxSet && x.power.is_integer() && x.power.n >= 2 && x.power.n % 2 == 0 && x.power.n <= 8 &&
        data(x.atom).size() == 2) {
      const auto u = static_cast<PolyId>(data(x.atom)[0]), v = static_cast<PolyId>(data(x.atom)[1]);
      if (!is_masked(u) && !is_masked(v) && neg(u) == v) {
        out.erase(out.begin() + static_cast<std::ptrdiff_t>(i));
        return mul(product(c, out), power(u, {x.power.n, 1}));
      }
    }
    if (k == AtomKind::kNumber && (whole >= 1 || whole < 0)) {
      Rational r = c;
      const Rational n = whole > 0 ? Rational::of(data(x.atom)[0]) : Rational::of(1, data(x.atom)[0]);
      for (int32_t j = 0; j < std::abs(whole); j++) r = r * n;
      out[i].power = {x.power.n - whole * x.power.d, x.power.d};
      return product(r, out);
    }
    if (k == AtomKind::kBase && whole >= 1 && terms(static_cast<PolyId>(data(x.atom)[0])).size() <= static_cast<size_t>(limits_.expand) &&
        whole <= 8) {
      const auto base = static_cast<PolyId>(data(x.atom)[0]);
      out[i].power = {x.power.n - whole * x.power.d, x.power.d};
      PolyId p = product(c, out);
      for (int32_t j = 0; j < whole; j++) p = mul(p, base);
      return p;
    }
  }
  const MonoId m = mono(std::move(out));   // before the braces: the order of interning is the order of ids
  return poly({{m, c}});
}

// ---- powers

PolyId Terms::root_of_number(const Rational& r, Power p) {
  if (r.is(1)) return number(r);
  // r^(n/2) for r > 0: (a/b)^(1/2) = sqrt(ab)/b, square factors leave the root.
  const int32_t whole = static_cast<int32_t>(floor_div(p.n, p.d));
  Rational out = Rational::of(1);
  const Rational step = whole < 0 ? r.inverse() : r;
  for (int32_t i = 0; i < std::abs(whole); i++) out = out * step;
  const int32_t left = p.n - whole * p.d;
  if (left == 0) return number(out);
  Wide ab;
  if (p.d != 2 || __builtin_mul_overflow(r.n, r.d, &ab) || ab > (Wide{1} << 62)) {
    const AtomId base = atom(AtomKind::kBase, {number(r)});
    return product(out, {{base, {left, p.d}}});
  }
  out = out * Rational::of(1, r.d);
  auto n = static_cast<int64_t>(ab);
  const auto exact = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(n))));
  if (exact * exact == n) return number(out * Rational::of(exact));
  for (int64_t q = 2; q < 2000 && q * q <= n; q++)
    while (n % (q * q) == 0) { n /= q * q; out = out * Rational::of(q); }
  return product(out, {{atom(AtomKind::kNumber, {n}), {1, 2}}});
}

PolyId Terms::power_of_mono(const Term& t, Power p) {
  Factors outside, inside;
  // sqrt(relu(x) y) is defined where relu(x) is 0, sqrt(relu(x)) sqrt(y) is not: beside what may be negative it stays. A condition on
  // positions may leave: where it is 0 there is no element.
  const auto stays = [&](const Factor& f) {
    return f.power.d % 2 != 0 && (!is_nonnegative(f.atom) || (kind(f.atom) != AtomKind::kGe0 && atom_may_vanish(f.atom)));
  };
  const auto may_be_negative = [&](const Factor& f) { return f.power.d % 2 != 0 && f.power.n % 2 != 0 && !is_nonnegative(f.atom); };
  const Factors all = factors(t.mono);
  const bool is_known_sign = t.coef.n > 0 && std::none_of(all.begin(), all.end(), may_be_negative);
  for (const Factor& f : all) {
    const auto q = small_power(to_rational(f.power) * to_rational(p));
    if (!q) return poison("an exponent has too many digits");
    if (p.is_integer() || f.power.d % 2 == 0 || (is_nonnegative(f.atom) && (is_known_sign || !stays(f)))) {
      // sqrt(x)^2
      if (f.power.d % 2 == 0 && q->d % 2 != 0 && !is_nonnegative(f.atom) &&
          !(kind(f.atom) == AtomKind::kBase && is_known(static_cast<PolyId>(data(f.atom)[0]))))
        lost_root_ = true;
      outside.push_back({f.atom, *q});
    } else {
      inside.push_back(f);
    }
  }
  if (p.is_integer()) {
    return product(power_of_number(t.coef, p.n), std::move(outside));
  }
  used_root_ = true;
  const bool negative = t.coef.n < 0;
  PolyId out = mul(root_of_number(negative ? -t.coef : t.coef, p), product(Rational::of(1), std::move(outside)));
  if (p.d % 2 == 0 && inside.size() > 1) {   // sqrt(x^2 y) = |x| sqrt(y): y decides alone, if x is not 0 for many inputs
    for (const Factor& f : inside) {
      if (f.power.d != 1 || f.power.n % 2 != 0 || atom_may_vanish(f.atom)) continue;
      const auto q = small_power(to_rational(f.power) * to_rational(p) * Rational::of(1, 2));
      if (!q) return poison("an exponent has too many digits");
      out = mul(out, product(Rational::of(1), {{atom(AtomKind::kBase, {product(Rational::of(1), {{f.atom, {2, 1}}})}), *q}}));
    }
    std::erase_if(inside, [&](const Factor& f) { return f.power.d == 1 && f.power.n % 2 == 0 && !atom_may_vanish(f.atom); });
  }
  if (inside.empty()) return negative ? poison("the root of a negative number") : out;
  const int32_t sign = p.n < 0 ? -1 : 1;
  if (p.d == 2) {   // x^(-3/2) = x^(-1) (x^(-1))^(1/2)
    for (Factor& f : inside) f.power.n *= sign;
    const PolyId base = product(Rational::of(negative ? -1 : 1), inside);
    const AtomId root = atom(AtomKind::kBase, {base});
    out = mul(out, product(Rational::of(1), {{root, {1, 2}}}));
    return mul(out, power(base, {(std::abs(p.n) - 1) / 2, 1}));
  }
  const PolyId base = product(Rational::of(negative ? -1 : 1), inside);
  return mul(out, product(Rational::of(1), {{atom(AtomKind::kBase, {base}), p}}));
}

PolyId Terms::power(PolyId x, Power p) {
  if (x < 0) return kPoison;
  if (p.n == 0) return integer(1);
  if (p == Power{1, 1}) return x;
  if (is_masked(x)) return poison("a power of an infinity");
  const std::vector<Term> t = terms(x);
  if (t.empty()) return p.n > 0 ? x : poison("a division by 0");
  if (p.n < 0 && !as_number(x)) used_division_ = true;
  if (t.size() == 1) return power_of_mono(t[0], p);
  if (p.is_integer() && p.n > 0) {
    if (p.n > 64) return poison("a power above 64");
    PolyId out = power(x, {p.n / 2, 1});
    out = mul(out, out);
    return p.n % 2 ? mul(out, x) : out;
  }
  // What all terms share leaves the power.
  std::map<AtomId, Rational> least;
  for (size_t i = 0; i < t.size(); i++) {
    std::map<AtomId, Rational> here;
    for (const Factor& f : factors(t[i].mono)) here[f.atom] = to_rational(f.power);
    auto below = [](const Rational& a, const Rational& b) { return (a + -b).n < 0; };
    // A common denominator multiplies the other terms. Of many terms, or to a high power, it leaves only as far as all have it.
    auto is_large = [&](AtomId a, const Rational& r) {
      return kind(a) == AtomKind::kBase && (limits_.expand < 32 || below(r, Rational::of(-2)));
    };
    for (auto& [a, r] : least) {
      const Rational mine = here.contains(a) ? here[a] : Rational::of(0);
      if (r.n < 0 && mine.n <= 0 && (is_large(a, r) || is_large(a, mine))) { if (below(r, mine)) r = mine; }
      else if (below(mine, r)) r = is_large(a, mine) && mine.n < 0 ? Rational::of(0) : mine;
    }
    for (auto& [a, r] : here)
      if (!least.contains(a)) least[a] = i == 0 || (r.n < 0 && !is_large(a, r)) ? r : Rational::of(0);
  }
  Factors common;
  for (auto& [a, r] : least)
    if (r.n != 0 && (p.is_integer() || (is_nonnegative(a) && (is_known(x) || kind(a) == AtomKind::kGe0 || !atom_may_vanish(a)))) &&
        !(is_bool(a) && r.n < 0))
      if (auto q = small_power(r)) common.push_back({a, *q});
  if (!common.empty()) {
    Factors inverse = common;
    for (Factor& f : inverse) f.power.n = -f.power.n;
    const Unwatched unwatched(*this);
    // Boolean factors are removed, not divided by: a condition times itself is itself.
    PolyId rest = integer(0);
    for (const Term& u : t) {
      Factors f = factors(u.mono);
      for (const Factor& c : common)
        if (is_bool(c.atom)) std::erase_if(f, [&](const Factor& g) { return g.atom == c.atom; });
      for (const Factor& c : inverse)
        if (!is_bool(c.atom)) f.push_back(c);
      rest = add(rest, product(u.coef, std::move(f)));
    }
    if (std::all_of(common.begin(), common.end(), [&](const Factor& f) { return is_nonnegative(f.atom); }))
      known(rest, is_known(x), is_positive(x) && std::all_of(common.begin(), common.end(), [&](const Factor& f) {
                                 return atoms_[static_cast<size_t>(f.atom)].positive;
                               }));
    return mul(power(product(Rational::of(1), common), p), power(rest, p));
  }
  // of a constant term if there is one: an epsilon stays itself, and no factor 1/4096 is carried from layer to layer
  Rational lead = t[0].coef;
  for (const Term& u : t) {
    const Factors& f = factors(u.mono);
    if (std::any_of(f.begin(), f.end(),
                    [&](const Factor& x) { return kind(x.atom) != AtomKind::kLiteral && kind(x.atom) != AtomKind::kNumber; }))
      continue;
    lead = u.coef;
    break;
  }
  if (!p.is_integer() && lead.n < 0) lead = -lead;
  if (!p.is_integer()) used_root_ = true;
  const PolyId base = scale(x, lead.inverse());
  if (base < 0) return kPoison;
  const PolyId factor = product(Rational::of(1), {{atom(AtomKind::kBase, {base}), p}});
  const PolyId outside = p.is_integer() ? power(number(lead), p) : root_of_number(lead, p);
  return mul(outside, factor);
}

// ---- infinities of masks

bool Terms::is_masked(PolyId p) const {
  for (const Term& t : terms(p)) if (monos_[static_cast<size_t>(t.mono)].masked) return true;
  return false;
}

Terms::Split Terms::split(PolyId p) {
  std::vector<Term> finite;
  PolyId condition = integer(1);
  for (const Term& t : terms(p)) {
    if (monos_[static_cast<size_t>(t.mono)].masked) condition = static_cast<PolyId>(data(factors(t.mono)[0].atom)[0]);
    else finite.push_back(t);
  }
  const PolyId f = poly(std::move(finite));
  return {f, condition};
}

PolyId Terms::masked(PolyId x, PolyId condition) {
  if (x < 0 || condition < 0) return kPoison;
  const Split s = split(x);
  condition = mul(condition, s.condition);
  if (condition < 0) return kPoison;
  if (auto c = as_number(condition); c && c->is(1)) return s.finite;
  used_mask_ = true;
  const PolyId finite = under(s.finite, condition);
  if (finite < 0) return kPoison;
  std::vector<Term> out = terms(finite);
  const AtomId a = atom(AtomKind::kMask, {condition});
  out.push_back({mono({{a, {1, 1}}}), Rational::of(1)});
  std::sort(out.begin(), out.end(), [](const Term& t, const Term& u) { return t.mono < u.mono; });
  return poly(std::move(out));
}

PolyId Terms::under(PolyId x, PolyId condition) {
  if (x < 0 || condition < 0) return kPoison;
  if (auto c = as_number(condition)) return c->is_zero() ? integer(0) : x;
  const std::vector<Term> c = terms(condition);
  if (c.size() != 1 || !c[0].coef.is(1)) return x;
  const Factors facts = factors(c[0].mono);
  for (const Factor& f : facts) if (!is_bool(f.atom) || !(f.power == Power{1, 1})) return x;
  PolyId out = integer(0);
  for (const Term& t : std::vector<Term>(terms(x))) {
    Factors f = factors(t.mono);
    f.insert(f.end(), facts.begin(), facts.end());
    const PolyId both = product(t.coef, std::move(f));   // 0 if it contradicts the condition
    if (both < 0) return kPoison;
    for (const Term& u : std::vector<Term>(terms(both))) {
      Factors g = factors(u.mono);
      std::erase_if(
          g, [&](const Factor& y) { return std::any_of(facts.begin(), facts.end(), [&](const Factor& z) { return z.atom == y.atom; }); });
      out = add(out, product(u.coef, std::move(g)));
    }
  }
  return out;
}

}  // namespace mirage::verify
