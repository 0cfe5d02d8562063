// Laws of single functions over the prover's normal forms (proof_terms.h): logarithms, powers, tanh, casts, running maxima. Each holds for
// real numbers and keeps the domain, up to sets of measure zero: a graph that is undefined for many inputs never gets the form of one that
// is defined there.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "mirage/ir/eval.h"
#include "mirage/ir/op.h"
#include "verify/proof/proof_terms.h"

namespace mirage::verify {
namespace {
constexpr int32_t kMostExponent = 1 << 20;
constexpr int32_t kMostExpanded = 64;       // of a value of several terms
constexpr size_t kMostRounded = 8;          // values of a maximum that is rounded one by one
constexpr size_t kMostConditions = 4;       // of a value that is taken by cases
}  // namespace

// ---- logarithms: of a product, the sum over what is not negative in it; what may be negative stays together, since log(xy) is defined
// where both are negative and log(x) + log(y) is not

PolyId Terms::log_of_number(const Rational& r) {
  PolyId out = integer(0);
  for (const bool below : {false, true}) {
    __int128 n = below ? r.d : r.n;
    const auto take = [&](__int128 prime, int64_t times) {
      const PolyId of = number(Rational::of(prime));
      out = add(out, scale(single(atom(AtomKind::kFn, {static_cast<int64_t>(FnTag::kLog), 0, of})), Rational::of(below ? -times : times)));
    };
    for (int64_t q = 2; q < 1000 && q * q <= n; q++) {
      int64_t times = 0;
      while (n % q == 0) { n /= q; times++; }
      if (times) take(q, times);
    }
    if (n > 1) take(n, 1);
  }
  return out;
}

PolyId Terms::log_of_factor(const Factor& f) {
  const std::vector<int64_t> d = data(f.atom);
  const auto times = to_rational(f.power);
  if (kind(f.atom) == AtomKind::kExp) return scale(static_cast<PolyId>(d[0]), times);
  if (kind(f.atom) == AtomKind::kNumber) return scale(log_of_number(Rational::of(d[0])), times);
  const bool by_square = !is_nonnegative(f.atom) && f.power.n % 2 == 0;   // log(x^4) = 2 log(x^2)
  const PolyId of = of_factor(f.atom, {by_square ? 2 : 1, 1});
  if (of < 0) return kPoison;
  return scale(single(atom(AtomKind::kFn, {static_cast<int64_t>(FnTag::kLog), 0, of})), by_square ? times * Rational::of(1, 2) : times);
}

/// x times what it is divided by, which is noted.
PolyId Terms::without_denominators(PolyId x, Factors* below) {
  for (int round = 0; round < 8 && x >= 0 && terms(x).size() > 1; round++) {
    std::optional<Factor> worst;
    for (const Term& t : terms(x))
      for (const Factor& f : factors(t.mono))
        if (kind(f.atom) == AtomKind::kBase && f.power.n < 0 && f.power.is_integer() &&
            (!worst || f.atom < worst->atom || (f.atom == worst->atom && f.power.n < worst->power.n)))
          worst = f;
    if (!worst) break;
    PolyId out = integer(0);
    for (const Term& t : std::vector<Term>(terms(x))) {
      Factors f = factors(t.mono);
      f.push_back({worst->atom, {-worst->power.n, 1}});
      out = add(out, product(t.coef, std::move(f)));
    }
    below->push_back(*worst);
    x = out;
  }
  return x;
}

PolyId Terms::log(PolyId x) {
  if (x < 0) return kPoison;
  if (is_masked(x)) return poison("a function of an infinity");
  if (auto c = as_number(x)) return c->n > 0 ? log_of_number(*c) : poison("the logarithm of a number that is not positive");
  Rational coef = Rational::of(1);
  Factors all;
  {
    const Unwatched unwatched(*this);
    const bool divided = used_division_;
    Factors below;
    x = without_denominators(x, &below);
    if (x < 0) return kPoison;
    // 1/x is one term: what all terms of x share, and the rest as a factor of its own
    const PolyId one_term = terms(x).size() == 1 ? x : power(x, {-1, 1});
    used_division_ = divided;
    if (one_term < 0) return kPoison;
    if (terms(one_term).size() != 1) return poison("a logarithm of what has no common factor");
    const Term t = terms(one_term)[0];
    coef = one_term == x ? t.coef : t.coef.inverse();
    all = factors(t.mono);
    if (one_term != x) for (Factor& f : all) f.power.n = -f.power.n;
    all.insert(all.end(), below.begin(), below.end());
  }
  const bool negative = coef.n < 0;
  PolyId out = log_of_number(negative ? -coef : coef);
  Factors rest;
  const auto may_be_negative = [&](const Factor& f) { return !is_nonnegative(f.atom) && f.power.n % 2 != 0 && f.power.d % 2 != 0; };
  const bool is_known_sign = !negative && std::none_of(all.begin(), all.end(), may_be_negative);
  for (const Factor& f : all) {   // log(relu(x) y) is minus infinity where relu(x) is 0, log(relu(x)) + log(y) undefined
    if (!may_be_negative(f) && (is_known_sign || !atom_may_vanish(f.atom))) out = add(out, log_of_factor(f));
    else rest.push_back(f);
  }
  if (rest.empty()) return negative ? poison("the logarithm of a number that is not positive") : out;
  Rational times = Rational::of(1);
  if (rest.size() == 1 && may_be_negative(rest[0])) {   // an odd power, defined where the value itself is above 0
    times = to_rational(rest[0].power);
    rest[0].power = {1, 1};
  }
  const PolyId of = product(Rational::of(negative ? -1 : 1), rest);
  if (of < 0) return kPoison;
  return add(out, scale(single(atom(AtomKind::kFn, {static_cast<int64_t>(FnTag::kLog), 0, of})), times));
}

PolyId Terms::cancel_logs(PolyId x) {
  struct Group { PolyId above, below; std::vector<size_t> at; Rational unit; bool fits = true; };
  std::map<MonoId, Group> groups;   // by what the logarithm is multiplied by
  const std::vector<Term> t = terms(x);
  for (size_t i = 0; i < t.size(); i++) {
    Factors others = factors(t[i].mono);
    const auto is_log = [&](const Factor& f) {
      return kind(f.atom) == AtomKind::kFn && static_cast<FnTag>(data(f.atom)[0]) == FnTag::kLog && f.power == Power{1, 1} &&
             is_positive(parts_of(f.atom)[0]);
    };
    const auto it = std::find_if(others.begin(), others.end(), is_log);
    if (it == others.end()) continue;
    const PolyId of = parts_of(it->atom)[0];
    others.erase(it);
    if (std::any_of(others.begin(), others.end(), [&](const Factor& f) { return may_fail(f); })) continue;
    auto [entry, is_new] = groups.try_emplace(mono(others), Group{integer(1), integer(1), {}, t[i].coef});
    Group& g = entry->second;
    const Rational times = t[i].coef * g.unit.inverse();
    g.fits = g.fits && !times.bad && times.is_integer() && times.n <= 8 && times.n >= -8;
    if (!g.fits) continue;
    PolyId& side = times.n > 0 ? g.above : g.below;
    side = mul(side, power(of, {static_cast<int32_t>(times.n > 0 ? times.n : -times.n), 1}));
    g.at.push_back(i);
  }
  std::vector<bool> gone(t.size(), false);
  for (const auto& [cofactor, g] : groups) {
    if (!g.fits || g.at.size() < 2 || g.above < 0 || g.below < 0) continue;
    const PolyId d = clear_denominators(sub(g.above, g.below));
    if (d >= 0 && terms(d).empty()) for (size_t i : g.at) gone[i] = true;
  }
  std::vector<Term> left;
  for (size_t i = 0; i < t.size(); i++) if (!gone[i]) left.push_back(t[i]);
  return left.size() == t.size() ? x : poly(std::move(left));
}

// ---- powers

std::optional<Power> Terms::power_in_exp(const Term& t) {
  const Factors& f = factors(t.mono);
  if (f.size() != 1 || !(f[0].power == Power{1, 1}) || kind(f[0].atom) != AtomKind::kFn ||
      static_cast<FnTag>(data(f[0].atom)[0]) != FnTag::kLog)
    return std::nullopt;
  const auto of = static_cast<PolyId>(data(f[0].atom)[2]);
  const __int128 most = terms(of).size() == 1 ? 64 : 8;
  if (!is_positive(of) || t.coef.n > most || t.coef.n < -most || t.coef.d > 16 || (t.coef.d & (t.coef.d - 1)) != 0) return std::nullopt;
  return Power{static_cast<int32_t>(t.coef.n), static_cast<int32_t>(t.coef.d)};
}

/// One term whose coefficient to the power n has few digits.
bool Terms::has_short_power(PolyId x, int32_t n) const {
  if (terms(x).size() != 1) return false;
  const Term& t = terms(x)[0];
  const auto size = static_cast<double>(std::max(t.coef.n < 0 ? -t.coef.n : t.coef.n, t.coef.d));
  return std::fabs(n) * std::log2(size) <= 100 &&
         std::none_of(factors(t.mono).begin(), factors(t.mono).end(), [&](const Factor& f) { return kind(f.atom) == AtomKind::kNumber; });
}

PolyId Terms::pow(PolyId x, PolyId y) {
  if (x < 0 || y < 0) return kPoison;
  const auto e = as_number(y);
  if (e && e->is_integer() && e->n <= kMostExponent && e->n >= -kMostExponent) {
    const auto n = static_cast<int32_t>(e->n);
    if (std::abs(n) <= kMostExpanded || has_short_power(x, n)) return power(x, {n, 1});
  }
  if (e && !e->is_integer() && e->d <= 16 && (e->d & (e->d - 1)) == 0 && e->n <= kMostExpanded * e->d && e->n >= -kMostExpanded * e->d)
    return power(x, {static_cast<int32_t>(e->n), static_cast<int32_t>(e->d)});
  if (auto one = as_number(x); one && one->is(1) && !is_masked(y)) {
    lost_domain_ |= watching_ && may_fail(y);
    return x;
  }
  // x^y = e^(y log x): above 0 always; elsewhere where y is a constant that is not whole, and then neither side is defined below 0.
  const auto literal = as_literal(y);
  const bool is_fraction = (e && !e->is_integer()) || (literal && std::fabs(*literal) < 0x1p52 && *literal != std::trunc(*literal));
  if (!is_masked(x) && !is_masked(y) && (is_positive(x) || (is_fraction && !may_vanish(x)))) return exp(mul(y, log(x)));
  return fn(FnTag::kPow, 0, {x, y});
}

// ---- tanh x = 2 / (1 + e^-2x) - 1

PolyId Terms::tanh(PolyId x) {
  if (x < 0) return kPoison;
  if (!limits_.rewrite || is_masked(x)) return fn(FnTag::kTanh, 0, {x});
  if (terms(x).empty()) return x;
  if (terms(x)[0].coef.n < 0) return neg(tanh(neg(x)));
  const bool divided = used_division_;   // by what is above 1
  const PolyId out = sub(scale(power(add(integer(1), exp(scale(x, Rational::of(-2)))), {-1, 1}), Rational::of(2)), integer(1));
  used_division_ = divided;
  return out;
}

// ---- rounding is odd and monotone, and where a value is chosen its rounding is

PolyId Terms::round(PolyId x, DType t) {
  if (x < 0) return kPoison;
  if (is_masked(x)) {   // minus infinity stays what it is
    const Split s = split(x);
    return masked(round(s.finite, t), s.condition);
  }
  if (auto c = as_number(x); c && c->is_integer() && c->n <= 256 && c->n >= -256) return x;   // integers that every format holds
  if (auto i = as_index(x); i && idx.range(*i).first >= -256 && idx.range(*i).second <= 256) return x;   // positions of a small dimension
  if (auto c = as_literal(x)) return constant(round_to(*c, t));
  const std::vector<Term>& terms_of = terms(x);
  if (terms_of.size() == 1 && terms_of[0].coef.is(1) && factors(terms_of[0].mono).size() == 1 &&
      factors(terms_of[0].mono)[0].power == Power{1, 1}) {
    const AtomId a = factors(terms_of[0].mono)[0].atom;
    auto holds = [t](DType from) {
      return from == t || from == DType::kBool || (t == DType::kF32 && (from == DType::kF16 || from == DType::kBF16));
    };
    if (is_bool(a)) return x;
    if (kind(a) == AtomKind::kInput && static_cast<size_t>(data(a)[0]) < input_types_.size() &&
        holds(input_types_[static_cast<size_t>(data(a)[0])]))
      return x;
    if (kind(a) == AtomKind::kFn && static_cast<FnTag>(data(a)[0]) == FnTag::kRound && holds(static_cast<DType>(data(a)[1]))) return x;
  }
  if (auto c = condition_of(x)) {
    const PolyId yes = single(*c);
    return add(mul(yes, round(given(x, *c, true), t)), mul(complement(yes), round(given(x, *c, false), t)));
  }
  if (auto m = round_of_maximum(x, t)) return *m;
  if (terms(x)[0].coef.n < 0) return neg(round(neg(x), t));
  return fn(FnTag::kRound, static_cast<int64_t>(t), {x});
}

std::optional<PolyId> Terms::round_of_maximum(PolyId x, DType t) {
  std::optional<size_t> at;
  Factor maximum{-1, {1, 1}};
  const std::vector<Term> all = terms(x);
  for (size_t i = 0; i < all.size(); i++)
    for (const Factor& f : factors(all[i].mono)) {
      if (kind(f.atom) != AtomKind::kMaxSet && kind(f.atom) != AtomKind::kMaxOver) continue;
      if (at || !(f.power == Power{1, 1})) return std::nullopt;   // of two maxima neither is what is rounded
      at = i;
      maximum = f;
    }
  if (!at) return std::nullopt;
  Factors beside = factors(all[*at].mono);
  std::erase(beside, maximum);
  if (!std::all_of(beside.begin(), beside.end(),
                   [&](const Factor& f) { return is_nonnegative(f.atom) || f.power.n % 2 == 0 || f.power.d % 2 == 0; }))
    return std::nullopt;
  if (all[*at].coef.n < 0) return neg(round(neg(x), t));
  std::vector<Term> others = all;
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(*at));
  const PolyId by = product(all[*at].coef, beside), addend = poly(others);
  const std::vector<int64_t> d = data(maximum.atom);
  if (kind(maximum.atom) == AtomKind::kMaxSet && d.size() > kMostRounded) return std::nullopt;
  if (kind(maximum.atom) == AtomKind::kMaxSet) {
    PolyId out = kPoison;
    for (size_t i = 0; i < d.size(); i++) {
      const PolyId one = round(add(addend, mul(by, static_cast<PolyId>(d[i]))), t);
      out = i ? max(out, one) : one;
    }
    return out;
  }
  const auto n = static_cast<size_t>(d[0]);
  std::vector<VarId> over;
  VarMap map;
  for (size_t i = 1; i <= n; i++) {
    over.push_back(temp(idx.var(static_cast<VarId>(d[i])).extent));
    map[static_cast<VarId>(d[i])] = idx.of_var(over.back());
  }
  Memo memo;
  const PolyId condition = subst(static_cast<PolyId>(d[n + 1]), map, memo), inside = subst(static_cast<PolyId>(d[n + 2]), map, memo);
  return max_over(round(add(addend, mul(by, inside)), t), condition, over);
}

std::optional<AtomId> Terms::condition_of(PolyId x) {
  std::set<AtomId> found;
  for (const Term& t : terms(x))
    for (const Factor& f : factors(t.mono)) if (is_bool(f.atom) && f.power == Power{1, 1}) found.insert(f.atom);
  if (found.empty() || found.size() > kMostConditions) return std::nullopt;
  return *found.begin();
}

PolyId Terms::given(PolyId x, AtomId condition, bool holds) {
  if (kind(condition) == AtomKind::kGe0) {
    const PolyId c = single(condition);
    PolyId out = integer(0);
    const PolyId facts = holds ? c : complement(c);
    for (const Term& t : std::vector<Term>(terms(x))) {   // the atom itself goes first: what implies it need not be written with it
      Factors f = factors(t.mono);
      const bool is_there = std::erase_if(f, [&](const Factor& y) { return y.atom == condition; }) > 0;
      if (is_there && !holds) continue;
      out = add(out, under(product(t.coef, std::move(f)), facts));
    }
    return out;
  }
  std::vector<Term> kept;
  PolyId out = integer(0);
  for (const Term& t : std::vector<Term>(terms(x))) {
    Factors f = factors(t.mono);
    const bool is_there = std::erase_if(f, [&](const Factor& y) { return y.atom == condition; }) > 0;
    if (!is_there || holds) out = add(out, product(t.coef, std::move(f)));
  }
  return out;
}

// ---- running maxima

bool Terms::is_below(PolyId x, PolyId y) {
  const auto c = as_literal(x);
  return c && *c <= -65504.0 && magnitude(y) <= -*c;
}

double Terms::magnitude(const Factor& f) {
  const std::vector<int64_t> d = data(f.atom);
  double out = std::numeric_limits<double>::infinity();
  switch (kind(f.atom)) {
    case AtomKind::kInput: {
      const DType t = static_cast<size_t>(d[0]) < input_types_.size() ? input_types_[static_cast<size_t>(d[0])] : DType::kReal;
      out = t == DType::kF32 ? -kRunningStart : t == DType::kReal ? out : type_info(t).largest;
      break;
    }
    case AtomKind::kLiteral: out = std::bit_cast<double>(d[0]); break;
    case AtomKind::kNumber: out = static_cast<double>(d[0]); break;
    case AtomKind::kGe0: out = 1; break;
    case AtomKind::kIndex: {
      const auto [lo, hi] = idx.range(idx.of_atom(static_cast<IdxAtomId>(d[0])));
      out = std::max(std::fabs(static_cast<double>(lo)), std::fabs(static_cast<double>(hi)));
      break;
    }
    case AtomKind::kFn:
      if (static_cast<FnTag>(d[0]) == FnTag::kTanh || static_cast<FnTag>(d[0]) == FnTag::kErf || static_cast<FnTag>(d[0]) == FnTag::kSin ||
          static_cast<FnTag>(d[0]) == FnTag::kCos || is_bool(f.atom))
        out = 1;
      if (static_cast<FnTag>(d[0]) == FnTag::kRound) out = 2 * magnitude(static_cast<PolyId>(d[2]));
      break;
    case AtomKind::kBase: out = magnitude(static_cast<PolyId>(d[0])); break;
    case AtomKind::kMaxSet:
      out = 0;
      for (int64_t p : d) out = std::max(out, magnitude(static_cast<PolyId>(p)));
      break;
    case AtomKind::kMaxOver: {   // if it is never empty: if there is something at the first of all indices
      const auto n = static_cast<size_t>(d[0]);
      VarMap first;
      for (size_t i = 1; i <= n; i++) first[static_cast<VarId>(d[i])] = idx.constant(0);
      const PolyId there = subst(static_cast<PolyId>(d[n + 1]), first);
      if (there >= 0 && as_number(there) && as_number(there)->is(1)) out = magnitude(static_cast<PolyId>(d[n + 2]));
      break;
    }
    case AtomKind::kSum: {
      out = 1;
      for (size_t i = 1; i <= static_cast<size_t>(d[0]); i++) out *= static_cast<double>(idx.var(static_cast<VarId>(d[i])).extent);
      for (size_t i = static_cast<size_t>(d[0]) + 1; i < d.size(); i += 3)
        out *= magnitude(Factor{static_cast<AtomId>(d[i]), {static_cast<int32_t>(d[i + 1]), static_cast<int32_t>(d[i + 2])}});
      break;
    }
    default: break;
  }
  if (f.power.n < 0 || std::isnan(out)) return std::numeric_limits<double>::infinity();
  return std::pow(out, static_cast<double>(f.power.n) / f.power.d) * (1 + 1e-9);
}

double Terms::magnitude(PolyId x) {
  if (x < 0 || is_masked(x) || !spend()) return std::numeric_limits<double>::infinity();
  double out = 0;
  for (const Term& t : std::vector<Term>(terms(x))) {
    double m = std::fabs(static_cast<double>(t.coef.n) / static_cast<double>(t.coef.d));
    for (const Factor& f : Factors(factors(t.mono))) m *= magnitude(f);
    out += m;
  }
  return std::isnan(out) ? std::numeric_limits<double>::infinity() : out;
}

PolyId Terms::running(PolyId x, VarId over, IdxId at) {
  if (x < 0) return kPoison;
  if (limits_.rewrite) {   // the largest up to `at`, and not below where it starts
    const VarId v = temp(idx.var(over).extent);
    const PolyId then = subst(x, {{over, idx.of_var(v)}});
    if (then < 0) return kPoison;
    const Split s = split(then);
    const PolyId so_far = max_over(s.finite, mul(s.condition, ge0(idx.add(at, idx.of_var(v), -1))), {v});
    if (so_far < 0) return kPoison;
    return max(so_far, constant(kRunningStart));
  }
  const int height = poly_at(x).height + 1;
  const VarId name = idx.make_var(VarKind::kBound, height, 0, idx.var(over).extent);
  const PolyId inside = subst(x, {{over, idx.of_var(name)}});
  return inside < 0 ? kPoison : single(atom(AtomKind::kRunning, {name, at, inside}));
}

}  // namespace mirage::verify
