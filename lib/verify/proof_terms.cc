// Arithmetic on the prover's normal forms (proof_terms.h): sums, products, powers, exponentials. Every rule is a law of real numbers where both sides are defined: denominators not zero, radicands not
// negative. A law that is missing here costs an "unknown", never a wrong proof.
#include "verify/proof_terms.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace mirage::verify {
namespace {

using Wide = __int128;
Wide gcd(Wide a, Wide b) {
  if (a < 0) a = -a;
  if (b < 0) b = -b;
  while (b != 0) { const Wide t = a % b; a = b; b = t; }
  return a;
}

std::optional<Power> small_power(const Rational& r) {
  constexpr Wide kMost = 1 << 30;
  if (r.bad || r.n > kMost || r.n < -kMost || r.d > kMost) return std::nullopt;
  return Power{static_cast<int32_t>(r.n), static_cast<int32_t>(r.d)};
}

}  // namespace

Rational to_rational(Power p) { return Rational::of(p.n, p.d); }

Rational Rational::of(Wide n, Wide d) {
  Rational r;
  if (d == 0) { r.bad = true; return r; }
  const Wide g = gcd(n, d) * (d < 0 ? -1 : 1);
  r.n = g == 0 ? 0 : n / g;
  r.d = g == 0 ? 1 : d / g;
  return r;
}

Rational operator+(const Rational& a, const Rational& b) {
  Wide x, y, n, d;
  if (__builtin_mul_overflow(a.n, b.d, &x) || __builtin_mul_overflow(b.n, a.d, &y) || __builtin_add_overflow(x, y, &n) || __builtin_mul_overflow(a.d, b.d, &d)) return {0, 1, true};
  Rational r = Rational::of(n, d);
  r.bad |= a.bad || b.bad;
  return r;
}

Rational operator*(const Rational& a, const Rational& b) {
  const Wide g = gcd(a.n, b.d), h = gcd(b.n, a.d);
  Wide n, d;
  if (__builtin_mul_overflow(g ? a.n / g : a.n, h ? b.n / h : b.n, &n) || __builtin_mul_overflow(h ? a.d / h : a.d, g ? b.d / g : b.d, &d)) return {0, 1, true};
  Rational r = Rational::of(n, d);
  r.bad |= a.bad || b.bad;
  return r;
}

bool Terms::spend(int64_t n) {
  steps_ += n;
  if (steps_ <= limits_.steps) return true;
  poison("the normal form needs more than " + std::to_string(limits_.steps) + " steps");
  return false;
}

// ---- interning

AtomId Terms::atom(AtomKind kind, std::vector<int64_t> data) {
  std::vector<int64_t> key = data;
  key.push_back(static_cast<int64_t>(kind));
  bool fresh;
  const AtomId id = atom_keys_.intern(key, &fresh);
  if (!fresh) return id;
  Atom a{kind, std::move(data), {}, {}, 0, false};
  auto index = [&](int64_t x) {
    a.vars = merge_sorted(a.vars, idx.vars(static_cast<IdxId>(x)));
    idx.collect(static_cast<IdxId>(x), a.uses);
  };
  auto part = [&](const std::vector<VarId>& vars, const std::vector<IdxId>& uses, int height) {
    a.vars = merge_sorted(a.vars, vars);
    a.uses.insert(a.uses.end(), uses.begin(), uses.end());
    a.height = std::max(a.height, height);
  };
  auto below = [&](int64_t x) {
    const Poly& p = polys_[static_cast<size_t>(x)];
    part(p.vars, uses_of({static_cast<PolyId>(x)}), p.height);
  };
  auto bind = [&](size_t first, size_t count) {
    for (size_t i = first; i < first + count; i++) std::erase(a.vars, static_cast<VarId>(a.data[i]));
    a.height++;
  };
  const std::vector<int64_t>& d = a.data;
  switch (kind) {
    case AtomKind::kInput:
      for (size_t i = 1; i < d.size(); i++) index(d[i]);
      a.nonnegative = static_cast<size_t>(d[0]) < input_types_.size() && input_types_[static_cast<size_t>(d[0])] == DType::kBool;
      break;
    case AtomKind::kLiteral: case AtomKind::kNumber: a.nonnegative = true; break;
    case AtomKind::kIndex: index(idx.of_atom(static_cast<IdxAtomId>(d[0]))); a.nonnegative = idx.range(idx.of_atom(static_cast<IdxAtomId>(d[0]))).first >= 0; break;
    case AtomKind::kGe0: index(d[0]); a.nonnegative = true; break;
    case AtomKind::kExp: below(d[0]); a.nonnegative = true; break;
    case AtomKind::kBase: below(d[0]); a.nonnegative = polys_[static_cast<size_t>(d[0])].nonnegative; break;
    case AtomKind::kFn:
      for (size_t i = 2; i < d.size(); i++) below(d[i]);
      a.nonnegative = static_cast<FnTag>(d[0]) == FnTag::kNegative || static_cast<FnTag>(d[0]) == FnTag::kZero;
      break;
    case AtomKind::kMaxSet:
      for (int64_t x : d) { below(x); a.nonnegative |= polys_[static_cast<size_t>(x)].nonnegative; }
      break;
    case AtomKind::kMask: below(d[0]); break;
    case AtomKind::kCut:
      for (size_t i = 2; i < d.size(); i += 2) index(d[i]);
      a.nonnegative = polys_[static_cast<size_t>(d[0])].nonnegative;
      break;
    case AtomKind::kMaxOver: {
      const auto n = static_cast<size_t>(d[0]);
      below(d[n + 1]);
      below(d[n + 2]);
      a.nonnegative = polys_[static_cast<size_t>(d[n + 2])].nonnegative;
      bind(1, n);
      break;
    }
    case AtomKind::kRunning:
      below(d[2]);
      bind(0, 1);
      index(d[1]);
      break;
    case AtomKind::kSum: {
      const auto n = static_cast<size_t>(d[0]);
      a.nonnegative = true;
      for (size_t i = n + 1; i < d.size(); i += 3) {
        const Atom& f = atoms_[static_cast<size_t>(d[i])];
        part(f.vars, f.uses, f.height);
        a.nonnegative &= f.nonnegative || d[i + 1] % 2 == 0 || d[i + 2] % 2 == 0;
      }
      bind(1, n);
      break;
    }
  }
  std::sort(a.uses.begin(), a.uses.end());
  a.uses.erase(std::unique(a.uses.begin(), a.uses.end()), a.uses.end());
  steps_ += static_cast<int64_t>(a.uses.size()) / 8;
  atoms_.push_back(std::move(a));
  return id;
}

MonoId Terms::mono(Factors f) {
  std::vector<int64_t> key;
  for (const Factor& x : f) key.insert(key.end(), {x.atom, x.power.n, x.power.d});
  bool fresh;
  const MonoId id = mono_keys_.intern(key, &fresh);
  if (!fresh) return id;
  Mono m{std::move(f), {}, 0, true, false};
  for (const Factor& x : m.factors) {
    const Atom& a = atoms_[static_cast<size_t>(x.atom)];
    m.vars = merge_sorted(m.vars, a.vars);
    m.height = std::max(m.height, a.height);
    m.nonnegative &= a.nonnegative || x.power.n % 2 == 0 || x.power.d % 2 == 0;
    m.masked |= a.kind == AtomKind::kMask;
  }
  monos_.push_back(std::move(m));
  return id;
}

PolyId Terms::poly(std::vector<Term> terms) {
  std::vector<int64_t> key;
  for (const Term& t : terms) {
    if (t.coef.bad) return poison("a coefficient has too many digits");
    key.insert(key.end(), {t.mono, static_cast<int64_t>(t.coef.n), static_cast<int64_t>(t.coef.n >> 64), static_cast<int64_t>(t.coef.d), static_cast<int64_t>(t.coef.d >> 64)});
  }
  bool fresh;
  const PolyId id = poly_keys_.intern(key, &fresh);
  if (!fresh) return id;
  Poly p{std::move(terms), {}, 0, true};
  for (const Term& t : p.terms) {
    const Mono& m = monos_[static_cast<size_t>(t.mono)];
    p.vars = merge_sorted(p.vars, m.vars);
    p.height = std::max(p.height, m.height);
    p.nonnegative &= m.nonnegative && t.coef.n >= 0;
  }
  steps_ += static_cast<int64_t>(p.terms.size()) / 4;
  polys_.push_back(std::move(p));
  return id;
}

bool Terms::is_bool(AtomId a) const {
  const Atom& x = atoms_[static_cast<size_t>(a)];
  if (x.kind == AtomKind::kGe0) return true;
  if (x.kind == AtomKind::kInput) return x.nonnegative;
  return x.kind == AtomKind::kFn && (static_cast<FnTag>(x.data[0]) == FnTag::kNegative || static_cast<FnTag>(x.data[0]) == FnTag::kZero);
}

void Terms::set_input_type(int param, DType t) {
  if (input_types_.size() <= static_cast<size_t>(param)) input_types_.resize(static_cast<size_t>(param) + 1, DType::kReal);
  input_types_[static_cast<size_t>(param)] = t;
}

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
  return known(poly(std::move(out)), is_known(x) && is_known(y));
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
  return known(poly(std::move(out)), r.n >= 0 && is_known(x));
}

PolyId Terms::mul(PolyId x, PolyId y) {
  if (x < 0 || y < 0) return kPoison;
  return known(mul_plain(x, y), x == y || (is_known(x) && is_known(y)));
}

PolyId Terms::mul_plain(PolyId x, PolyId y) {
  if (auto c = as_number(x)) return scale(y, *c);
  if (auto c = as_number(y)) return scale(x, *c);
  if (is_masked(x) || is_masked(y)) {
    if (is_masked(x)) std::swap(x, y);
    if (is_masked(x) || !polys_[static_cast<size_t>(x)].nonnegative) return poison("an infinity is multiplied by a value of unknown sign");
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
        if (kind(f.atom) == AtomKind::kBase && f.power == Power{-1, 1} && terms(static_cast<PolyId>(data(f.atom)[0])).size() > expand) base = f;
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
        const std::vector<Term> o = terms(other);
        PolyId out = integer(0);
        for (const Term& t : o) {
          Factors f = factors(t.mono);
          f.push_back(factor);
          out = add(out, product(t.coef, std::move(f)));
        }
        return out;
      }
    }
  }
  std::vector<Term> flat;
  PolyId rest = integer(0);
  for (const Term& t : a)
    for (const Term& u : b) {
      Factors f = factors(t.mono);
      const Factors& g = factors(u.mono);
      f.insert(f.end(), g.begin(), g.end());
      const PolyId p = product(t.coef * u.coef, std::move(f));
      if (p < 0) return kPoison;
      if (terms(p).size() == 1) flat.push_back(terms(p)[0]);
      else rest = add(rest, p);
    }
  std::stable_sort(flat.begin(), flat.end(), [](const Term& s, const Term& t) { return s.mono < t.mono; });
  std::vector<Term> merged;
  for (const Term& t : flat) {
    if (!merged.empty() && merged.back().mono == t.mono) merged.back().coef = merged.back().coef + t.coef;
    else merged.push_back(t);
  }
  std::erase_if(merged, [](const Term& t) { return t.coef.is_zero() && !t.coef.bad; });
  return add(poly(std::move(merged)), rest);
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
    if (root && sum->d % 2 != 0 && !is_nonnegative(x.atom) && !(kind(x.atom) == AtomKind::kBase && is_known(static_cast<PolyId>(data(x.atom)[0])))) lost_root_ = true;   // sqrt(x)^2 = x only where x >= 0
    if (watching_ && (out.back().power.n < 0) != (x.power.n < 0) && atom_may_vanish(x.atom)) lost_domain_ = true;   // relu(x) / relu(x) is 1 for half of all x
    if (watching_ && sum->n == 0 && atom_may_fail(x.atom)) lost_domain_ = true;                                     // exp(log(x)) exp(-log(x)), a shift that is a root
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
        if (!implied.contains(conditions[j].atom) && idx.range(idx.add(a, b, -1)).first >= 0) implied.insert(conditions[i].atom);   // a >= b >= 0
      }
    std::erase_if(out, [&](const Factor& x) { return implied.contains(x.atom); });
  }
  for (size_t i = 0; i < out.size(); i++) {
    const Factor x = out[i];
    const AtomKind k = kind(x.atom);
    if (k == AtomKind::kMask && (out.size() > 1 || !(x.power == Power{1, 1}) || !c.is(1))) return poison("an infinity is multiplied");
    const int32_t whole = static_cast<int32_t>(floor_div(x.power.n, x.power.d));
    if (k == AtomKind::kMaxSet && x.power.is_integer() && x.power.n >= 2 && x.power.n % 2 == 0 && x.power.n <= 8 && data(x.atom).size() == 2) {   // |x|^2 = x^2
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
    if (k == AtomKind::kBase && whole >= 1 && terms(static_cast<PolyId>(data(x.atom)[0])).size() <= static_cast<size_t>(limits_.expand) && whole <= 8) {
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
  for (const Factor& f : factors(t.mono)) {
    const auto q = small_power(to_rational(f.power) * to_rational(p));
    if (!q) return poison("an exponent has too many digits");
    if (p.is_integer() || is_nonnegative(f.atom) || f.power.d % 2 == 0) outside.push_back({f.atom, *q});
    else inside.push_back(f);
  }
  if (p.is_integer()) {
    Rational c = Rational::of(1);
    const Rational step = p.n < 0 ? t.coef.inverse() : t.coef;
    if (std::abs(p.n) > 64 && !step.is(1)) return poison("a power above 64");
    for (int32_t i = 0; i < std::abs(p.n) && !step.is(1); i++) c = c * step;
    return product(c, std::move(outside));
  }
  used_root_ = true;
  const bool negative = t.coef.n < 0;
  PolyId out = mul(root_of_number(negative ? -t.coef : t.coef, p), product(Rational::of(1), std::move(outside)));
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
    auto is_large = [&](AtomId a, const Rational& r) { return kind(a) == AtomKind::kBase && (limits_.expand < 32 || below(r, Rational::of(-2))); };
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
    if (r.n != 0 && (p.is_integer() || is_nonnegative(a)) && !(is_bool(a) && r.n < 0))
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
    if (std::all_of(common.begin(), common.end(), [&](const Factor& f) { return is_nonnegative(f.atom); })) known(rest, is_known(x));
    return mul(power(product(Rational::of(1), common), p), power(rest, p));
  }
  Rational lead = t[0].coef;   // of a constant term if there is one: an epsilon stays itself, and no factor 1/4096 is carried from layer to layer
  for (const Term& u : t) {
    const Factors& f = factors(u.mono);
    if (std::any_of(f.begin(), f.end(), [&](const Factor& x) { return kind(x.atom) != AtomKind::kLiteral && kind(x.atom) != AtomKind::kNumber; })) continue;
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
      std::erase_if(g, [&](const Factor& y) { return std::any_of(facts.begin(), facts.end(), [&](const Factor& z) { return z.atom == y.atom; }); });
      out = add(out, product(u.coef, std::move(g)));
    }
  }
  return out;
}

}  // namespace mirage::verify
