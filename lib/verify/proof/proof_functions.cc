// Functions over the prover's normal forms (proof_terms.h): literals, exponentials, maxima, conditions, casts, and substitution of indices.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "mirage/ir/eval.h"
#include "verify/proof/proof_terms.h"

namespace mirage::verify {

PolyId Terms::constant(double c) {
  if (std::isnan(c) || c == INFINITY) return poison("a constant is not a real number");
  if (std::isinf(c)) return masked(integer(0), integer(0));
  int exponent;
  const double m = std::frexp(std::fabs(c), &exponent);
  int bits = 53;
  auto whole = static_cast<int64_t>(std::ldexp(m, 53));
  while (whole && whole % 2 == 0) { whole /= 2; bits--; }
  const int shift = exponent - bits;   // |c| = whole * 2^shift
  if (c == 0) return integer(0);
  if (shift >= 0 && exponent <= 60) return number(Rational::of(static_cast<int64_t>(c)));
  if (shift < 0 && shift >= -20 && bits <= 30) return number(Rational::of(c < 0 ? -whole : whole, __int128{1} << -shift));
  return product(Rational::of(c < 0 ? -1 : 1), {{atom(AtomKind::kLiteral, {std::bit_cast<int64_t>(std::fabs(c))}), {1, 1}}});
}

PolyId Terms::exp(PolyId x) {
  if (x < 0) return kPoison;
  if (is_masked(x)) {
    const Split s = split(x);
    return mul(s.condition, exp(s.finite));
  }
  Factors out;
  PolyId plain = integer(1);   // e^(k log x) = x^k where x is above 0
  for (const Term& t : std::vector<Term>(terms(x))) {
    if (const auto p = power_in_exp(t)) { plain = mul(plain, power(parts_of(factors(t.mono)[0].atom)[0], *p)); continue; }
    constexpr __int128 kMost = 1 << 20;
    const bool is_small = t.coef.n < kMost && t.coef.n > -kMost && t.coef.d < kMost;
    const PolyId of = poly({{t.mono, is_small ? Rational::of(1) : t.coef}});
    out.push_back(
        {atom(AtomKind::kExp, {of}), is_small ? Power{static_cast<int32_t>(t.coef.n), static_cast<int32_t>(t.coef.d)} : Power{1, 1}});
  }
  return mul(plain, product(Rational::of(1), std::move(out)));
}

PolyId Terms::positive_content(const std::vector<PolyId>& of, const std::vector<VarId>& without) {
  bool is_first = true;
  Rational number_part = Rational::of(1);
  Factors common;
  for (PolyId p : of)
    for (const Term& t : terms(p)) {
      const __int128 n = t.coef.n < 0 ? -t.coef.n : t.coef.n;
      if (is_first) {
        number_part = Rational::of(n, t.coef.d);
        for (const Factor& f : factors(t.mono)) {
          const auto& v = atom_vars(f.atom);
          if (is_nonnegative(f.atom) && !is_bool(f.atom) && kind(f.atom) != AtomKind::kMask &&
              std::none_of(without.begin(), without.end(), [&](VarId w) { return std::binary_search(v.begin(), v.end(), w); }))
            common.push_back(f);
        }
        is_first = false;
        continue;
      }
      // gcd(a/b, c/d) = gcd(ad, cb) / bd
      __int128 x = number_part.n * t.coef.d, y = n * number_part.d;
      while (y != 0) { const __int128 r = x % y; x = y; y = r; }
      number_part = Rational::of(x, number_part.d * t.coef.d);
      for (Factor& c : common) {
        Rational have = Rational::of(0);
        for (const Factor& f : factors(t.mono)) if (f.atom == c.atom) have = to_rational(f.power);
        if ((have + -to_rational(c.power)).n < 0) c.power = {static_cast<int32_t>(have.n), static_cast<int32_t>(have.d)};
      }
    }
  std::erase_if(common, [](const Factor& f) { return f.power.n == 0; });
  return is_first ? integer(1) : product(number_part, std::move(common));
}

PolyId Terms::max(PolyId x, PolyId y) {
  if (x < 0 || y < 0) return kPoison;
  std::vector<PolyId> args;
  for (PolyId p : {x, y}) {
    const std::vector<Term>& t = terms(p);
    if (t.size() == 1 && t[0].coef.is(1) && factors(t[0].mono).size() == 1 && factors(t[0].mono)[0].power == Power{1, 1} &&
        kind(factors(t[0].mono)[0].atom) == AtomKind::kMaxSet) {
      for (int64_t a : data(factors(t[0].mono)[0].atom)) args.push_back(static_cast<PolyId>(a));
    } else if (is_masked(p)) {
      if (auto c = as_number(split(p).condition); !c || !c->is_zero()) args.push_back(p);   // the largest of x and minus infinity is x
    } else {
      args.push_back(p);
    }
  }
  std::sort(args.begin(), args.end());
  args.erase(std::unique(args.begin(), args.end()), args.end());
  if (args.empty()) return x;
  const bool has_mask = std::any_of(args.begin(), args.end(), [&](PolyId p) { return is_masked(p); });
  if (!has_mask && args.size() <= 8) {   // what is never the largest goes
    for (size_t i = 0; i < args.size();) {
      // Against what is still there: two that are below each other (radicands of both graphs, each the other's negative) do not both go.
      const bool loses = std::any_of(args.begin(), args.end(), [&](PolyId other) {
        if (other == args[i]) return false;
        const PolyId d = sub(other, args[i]);
        return (d >= 0 && poly_at(d).nonnegative) || is_below(args[i], other);
      });
      if (loses) args.erase(args.begin() + static_cast<int64_t>(i));
      else i++;
    }
  }
  if (args.size() == 1) return args[0];
  PolyId outside = integer(1);
  const Unwatched unwatched(*this);
  if (!has_mask) {
    outside = positive_content(args, {});
    const PolyId inverse = power(outside, {-1, 1});
    for (PolyId& p : args) p = mul(p, inverse);
    if (std::any_of(args.begin(), args.end(), [](PolyId p) { return p < 0; })) return kPoison;
    std::sort(args.begin(), args.end());
  }
  return mul(outside, single(atom(AtomKind::kMaxSet, std::vector<int64_t>(args.begin(), args.end()))));
}

PolyId Terms::fn(FnTag tag, int64_t attribute, std::vector<PolyId> args) {
  for (PolyId& p : args) {
    if (p < 0) return kPoison;
    if (!is_masked(p)) continue;
    if (tag != FnTag::kTanh && tag != FnTag::kErf) return poison("a function of an infinity");
    const Split s = split(p);   // -1 at minus infinity
    return select(s.condition, fn(tag, attribute, {s.finite}), integer(-1));
  }
  const PolyId x = args[0];
  if (tag == FnTag::kTanh || tag == FnTag::kErf || tag == FnTag::kSin) {   // odd
    if (terms(x).empty()) return x;
    if (terms(x)[0].coef.n < 0) return neg(fn(tag, attribute, {neg(x)}));
  }
  if (tag == FnTag::kCos) {   // even
    if (terms(x).empty()) return integer(1);
    if (terms(x)[0].coef.n < 0) return fn(tag, attribute, {neg(x)});
  }
  if (tag == FnTag::kFloor || tag == FnTag::kNearest)
    if (auto c = as_number(x); c && c->is_integer()) return x;
  if (tag == FnTag::kLog && as_number(x) && as_number(x)->is(1)) return integer(0);
  if (tag == FnTag::kNegative || tag == FnTag::kZero) {
    if (auto c = as_number(x)) return integer(tag == FnTag::kZero ? c->is_zero() : c->n < 0);
    if (tag == FnTag::kNegative && poly_at(x).nonnegative) return integer(0);
    PolyId by = positive_content({x}, {});
    for (const Factor& f : factors(terms(by)[0].mono))   // only what is certainly not 0 may leave a comparison
      if (kind(f.atom) != AtomKind::kExp && kind(f.atom) != AtomKind::kLiteral && kind(f.atom) != AtomKind::kNumber) {
        by = number(terms(by)[0].coef);
        break;
      }
    if (tag == FnTag::kZero && terms(x)[0].coef.n < 0) by = neg(by);
    args[0] = div(x, by);
    if (args[0] < 0) return kPoison;
  }
  std::vector<int64_t> words{static_cast<int64_t>(tag), attribute};
  words.insert(words.end(), args.begin(), args.end());
  return single(atom(AtomKind::kFn, std::move(words)));
}

std::optional<IdxId> Terms::as_index(PolyId p) {
  IdxId out = idx.constant(0);
  for (const Term& t : terms(p)) {
    const Factors& f = factors(t.mono);
    constexpr __int128 kMost = __int128{1} << 50;
    if (!t.coef.is_integer() || t.coef.n > kMost || t.coef.n < -kMost || f.size() > 1) return std::nullopt;
    const auto c = static_cast<int64_t>(t.coef.n);
    if (f.empty()) { out = idx.add(out, idx.constant(c)); continue; }
    if (kind(f[0].atom) != AtomKind::kIndex || !(f[0].power == Power{1, 1})) return std::nullopt;
    out = idx.add(out, idx.of_atom(static_cast<IdxAtomId>(data(f[0].atom)[0])), c);
  }
  return out;
}

PolyId Terms::less(PolyId x, PolyId y) {
  if (x < 0 || y < 0) return kPoison;
  if (is_masked(x) || is_masked(y)) return poison("a comparison with an infinity");
  const PolyId d = sub(x, y);
  if (d < 0) return kPoison;
  if (auto i = as_index(d)) return ge0(idx.add(idx.constant(-1), *i, -1));
  return fn(FnTag::kNegative, 0, {d});
}

PolyId Terms::equal(PolyId x, PolyId y) {
  if (x < 0 || y < 0) return kPoison;
  if (is_masked(x) || is_masked(y)) return poison("a comparison with an infinity");
  const PolyId d = sub(x, y);
  if (d < 0) return kPoison;
  if (auto i = as_index(d)) return mul(ge0(*i), ge0(idx.scale(*i, -1)));
  return fn(FnTag::kZero, 0, {d});
}

PolyId Terms::complement(PolyId condition) {
  if (condition < 0) return kPoison;
  const std::vector<Term>& t = terms(condition);
  if (t.size() == 1 && t[0].coef.is(1) && factors(t[0].mono).size() == 1 && kind(factors(t[0].mono)[0].atom) == AtomKind::kGe0)
    return ge0(idx.add(idx.constant(-1), static_cast<IdxId>(data(factors(t[0].mono)[0].atom)[0]), -1));
  return sub(integer(1), condition);
}

PolyId Terms::select(PolyId c, PolyId x, PolyId y) {
  if (c < 0 || x < 0 || y < 0) return kPoison;
  if (auto n = as_number(c)) return n->is_zero() ? y : x;
  if (x == y) return x;
  // where(x < 0, 0, sqrt(x)) is defined where its branch is not, and where(x == 0, 0, y / x) at the one point that the condition is about.
  if (watching_) lost_domain_ |= may_fail(x) || may_fail(y) || (compares(c) && (divides(x) || divides(y)));
  const PolyId other = complement(c);
  const Split a = split(x), b = split(y);
  const PolyId finite = add(mul(c, a.finite), mul(other, b.finite));
  if (a.condition == b.condition) return masked(finite, a.condition);
  return masked(finite, add(mul(c, a.condition), mul(other, b.condition)));
}

/// The double that p is, if it is one exactly.
std::optional<double> Terms::as_literal(PolyId p) const {
  const std::vector<Term>& t = terms(p);
  if (auto c = as_number(p)) {
    const bool is_short = c->n < (int64_t{1} << 53) && c->n > -(int64_t{1} << 53) && (c->d & (c->d - 1)) == 0 && c->d < (__int128{1} << 60);
    return is_short ? std::optional(static_cast<double>(c->n) / static_cast<double>(c->d)) : std::nullopt;
  }
  if (t.size() != 1 || factors(t[0].mono).size() != 1 || !(t[0].coef.is(1) || t[0].coef.is(-1))) return std::nullopt;
  const Factor f = factors(t[0].mono)[0];
  if (kind(f.atom) != AtomKind::kLiteral || !(f.power == Power{1, 1})) return std::nullopt;
  return std::bit_cast<double>(data(f.atom)[0]) * (t[0].coef.n < 0 ? -1 : 1);
}

bool Terms::is_small(PolyId x) const { return terms(x).empty() || (terms(x).size() == 1 && factors(terms(x)[0].mono).size() <= 1); }

PolyId Terms::cut(PolyId x) {
  if (x < 0 || is_masked(x) || is_small(x)) return x;
  std::vector<int64_t> data{x};
  for (VarId v : vars(x)) data.insert(data.end(), {v, idx.of_var(v)});
  return single(atom(AtomKind::kCut, std::move(data)));
}

void Terms::free_uses(AtomId a, std::map<IdxId, std::vector<int64_t>>& where, std::set<AtomId>& seen) const {
  if (!seen.insert(a).second) return;
  const std::vector<int64_t>& d = data(a);
  const auto use = [&](IdxId i, int64_t of, size_t place) {
    const auto& free = idx.vars(i);
    if (free.empty() || std::any_of(free.begin(), free.end(), [&](VarId v) { return idx.var(v).kind == VarKind::kBound; })) return;
    std::vector<int64_t>& at = where[i];
    at.insert(at.end(), {static_cast<int64_t>(kind(a)), of, static_cast<int64_t>(place)});
  };
  switch (kind(a)) {
    case AtomKind::kInput: for (size_t i = 1; i < d.size(); i++) use(static_cast<IdxId>(d[i]), d[0], i); break;
    case AtomKind::kCut: for (size_t i = 2; i < d.size(); i += 2) use(static_cast<IdxId>(d[i]), d[0], i); break;
    case AtomKind::kGe0: use(static_cast<IdxId>(d[0]), 0, 0); break;
    case AtomKind::kSum:
      for (size_t i = static_cast<size_t>(d[0]) + 1; i < d.size(); i += 3) free_uses(static_cast<AtomId>(d[i]), where, seen);
      break;
    default:
      for (PolyId p : parts_of(a))
        for (const Term& t : terms(p))
          for (const Factor& f : factors(t.mono)) free_uses(f.atom, where, seen);
  }
}

PolyId Terms::named(PolyId x) {
  if (!limits_.name || x < 0 || is_masked(x) || is_small(x)) return x;
  std::map<IdxId, std::vector<int64_t>> where;
  std::set<AtomId> seen;
  for (const Term& t : terms(x))
    for (const Factor& f : factors(t.mono)) free_uses(f.atom, where, seen);
  constexpr int64_t kAnyExtent = int64_t{1} << 31;   // what is true of an index below it is true of one that ends earlier
  std::erase_if(where, [&](const auto& use) { return idx.range(use.first).first < 0 || idx.range(use.first).second >= kAnyExtent; });
  std::vector<std::pair<std::vector<int64_t>, IdxId>> uses;
  VarMap same;
  for (auto& [index, at] : where) {
    std::sort(at.begin(), at.end());
    uses.emplace_back(at, index);
    for (VarId v : idx.vars(index)) same[v] = idx.of_var(v);
  }
  std::sort(uses.begin(), uses.end());
  std::map<VarId, IdxId> arguments;
  for (size_t i = 0; i < uses.size(); i++) {
    const VarId place = idx.make_var(VarKind::kTemp, -1 - static_cast<int32_t>(i), 0, kAnyExtent);
    places_[uses[i].second] = idx.of_var(place);
    arguments[place] = uses[i].second;
  }
  const PolyId definition = subst(x, same);
  places_.clear();
  if (definition < 0) return kPoison;
  std::vector<int64_t> data{definition};
  for (VarId v : vars(definition)) data.insert(data.end(), {v, arguments.contains(v) ? arguments.at(v) : idx.of_var(v)});
  return single(atom(AtomKind::kCut, std::move(data)));
}

// ---- domains

std::vector<PolyId> Terms::parts_of(AtomId a) const {
  const std::vector<int64_t> d = data(a);
  auto polys = [&](size_t from, size_t to) {
    std::vector<PolyId> out;
    for (size_t i = from; i < to; i++) out.push_back(static_cast<PolyId>(d[i]));
    return out;
  };
  switch (kind(a)) {
    case AtomKind::kExp: case AtomKind::kBase: case AtomKind::kMask: case AtomKind::kCut: return polys(0, 1);
    case AtomKind::kFn: return polys(2, d.size());
    case AtomKind::kMaxSet: return polys(0, d.size());
    case AtomKind::kMaxOver: return polys(static_cast<size_t>(d[0]) + 1, d.size());
    case AtomKind::kRunning: return polys(2, 3);
    default: return {};
  }
}

bool Terms::may_fail(PolyId p) {
  if (p < 0) return false;
  for (const Term& t : std::vector<Term>(terms(p)))
    for (const Factor& f : Factors(factors(t.mono)))
      if (may_fail(f)) return true;
  return false;
}

bool Terms::may_fail(const Factor& f) {
  if (f.power.d % 2 == 0 && !is_nonnegative(f.atom) && !(kind(f.atom) == AtomKind::kBase && is_known(static_cast<PolyId>(data(f.atom)[0]))))
    return true;
  return atom_may_fail(f.atom) || (f.power.n < 0 && atom_may_vanish(f.atom));
}

bool Terms::atom_may_fail(AtomId a) {
  if (auto it = fails_.find(a); it != fails_.end()) return it->second;
  bool out = kind(a) == AtomKind::kFn && ((static_cast<FnTag>(data(a)[0]) == FnTag::kLog && !is_positive(parts_of(a)[0])) ||
                                          static_cast<FnTag>(data(a)[0]) == FnTag::kPow);
  for (PolyId p : parts_of(a)) out = out || may_fail(p);
  if (kind(a) == AtomKind::kSum) {
    const std::vector<int64_t> d = data(a);
    for (size_t i = static_cast<size_t>(d[0]) + 1; i < d.size(); i += 3)
      out = out || may_fail(Factor{static_cast<AtomId>(d[i]), {static_cast<int32_t>(d[i + 1]), static_cast<int32_t>(d[i + 2])}});
  }
  fails_[a] = out;
  return out;
}

bool Terms::same_divisors(PolyId x, PolyId y) {
  auto of = [&](PolyId p) {
    std::set<AtomId> out;
    for (const Term& t : std::vector<Term>(terms(p)))
      for (const Factor& f : Factors(factors(t.mono)))
        if (f.power.n < 0 && atom_may_vanish(f.atom)) out.insert(f.atom);
    return out;
  };
  return of(x) == of(y);
}

void Terms::failures_below(PolyId p, std::set<std::pair<AtomId, int32_t>>& out, std::set<PolyId>& seen) {
  if (p < 0 || !seen.insert(p).second || !may_fail(p)) return;
  std::vector<Factor> todo;
  for (const Term& t : terms(p)) todo.insert(todo.end(), factors(t.mono).begin(), factors(t.mono).end());
  while (!todo.empty()) {
    const Factor f = todo.back();
    todo.pop_back();
    const bool is_root = f.power.d % 2 == 0 && !is_nonnegative(f.atom);
    const bool is_partial = kind(f.atom) == AtomKind::kFn &&
                            (static_cast<FnTag>(data(f.atom)[0]) == FnTag::kLog || static_cast<FnTag>(data(f.atom)[0]) == FnTag::kPow);
    if ((is_root || is_partial) && may_fail(f)) out.insert({f.atom, is_root ? f.power.d : 1});
    for (PolyId q : parts_of(f.atom)) failures_below(q, out, seen);
    if (kind(f.atom) != AtomKind::kSum) continue;
    const std::vector<int64_t> d = data(f.atom);
    for (size_t i = static_cast<size_t>(d[0]) + 1; i < d.size(); i += 3)
      todo.push_back({static_cast<AtomId>(d[i]), {static_cast<int32_t>(d[i + 1]), static_cast<int32_t>(d[i + 2])}});
  }
}

bool Terms::same_failures(PolyId x, PolyId y) {
  std::set<std::pair<AtomId, int32_t>> a, b;
  std::set<PolyId> seen_a, seen_b;
  failures_below(x, a, seen_a);
  failures_below(y, b, seen_b);
  return a == b;
}

bool Terms::compares(PolyId condition) {
  for (const Term& t : terms(condition))
    for (const Factor& f : factors(t.mono))
      if (kind(f.atom) == AtomKind::kFn) return true;
  return false;
}

bool Terms::divides(PolyId p) {
  if (auto it = divides_.find(p); it != divides_.end()) return it->second;
  const bool out = finds_divisor(p);
  divides_[p] = out;
  return out;
}

bool Terms::finds_divisor(PolyId p) {
  for (const Term& t : std::vector<Term>(terms(p)))
    for (const Factor& f : Factors(factors(t.mono))) {
      const bool is_safe =
          atoms_[static_cast<size_t>(f.atom)].positive || (kind(f.atom) == AtomKind::kBase && is_positive(parts_of(f.atom)[0]));
      if (f.power.n < 0 && !is_safe) return true;
      for (PolyId q : parts_of(f.atom)) if (divides(q)) return true;
      if (kind(f.atom) != AtomKind::kSum) continue;
      const std::vector<int64_t> d = data(f.atom);
      for (size_t i = static_cast<size_t>(d[0]) + 1; i < d.size(); i += 3)
        if (divides(of_factor(static_cast<AtomId>(d[i]), {static_cast<int32_t>(d[i + 1]), static_cast<int32_t>(d[i + 2])}))) return true;
    }
  return false;
}

bool Terms::may_vanish(PolyId p) {
  if (is_positive(p)) return false;
  const bool is_difference = terms(p).size() > 1;   // max(x, y) - x
  for (const Term& t : std::vector<Term>(terms(p)))
    for (const Factor& f : Factors(factors(t.mono)))
      if (f.power.n > 0 &&
          (atom_may_vanish(f.atom) || (is_difference && (kind(f.atom) == AtomKind::kMaxSet || kind(f.atom) == AtomKind::kMaxOver))))
        return true;
  return false;
}

bool Terms::atom_may_vanish(AtomId a) {
  if (auto it = vanishes_.find(a); it != vanishes_.end()) return it->second;
  bool out = is_bool(a) || kind(a) == AtomKind::kIndex;
  switch (kind(a)) {
    case AtomKind::kFn: {
      const auto tag = static_cast<FnTag>(data(a)[0]);
      out = out || tag == FnTag::kRound || tag == FnTag::kFloor || tag == FnTag::kNearest || may_vanish(parts_of(a)[0]);
      break;
    }
    case AtomKind::kMaxSet: case AtomKind::kMaxOver: case AtomKind::kBase: case AtomKind::kCut:
      for (PolyId p : parts_of(a)) out = out || may_vanish(p) || (kind(a) == AtomKind::kMaxSet && as_number(p) && as_number(p)->is_zero());
      break;
    case AtomKind::kSum: {
      const std::vector<int64_t> d = data(a);
      for (size_t i = static_cast<size_t>(d[0]) + 1; i < d.size(); i += 3)
        out = out || (d[i + 1] > 0 && atom_may_vanish(static_cast<AtomId>(d[i])));
      break;
    }
    default: break;
  }
  vanishes_[a] = out;
  return out;
}

// ---- substitution: everything is built anew, so that what the new indices allow happens

PolyId Terms::subst(PolyId x, const VarMap& map) {
  Memo memo;
  return subst(x, map, memo);
}

PolyId Terms::subst(PolyId x, const VarMap& map, Memo& memo) {
  if (x < 0) return kPoison;
  const std::vector<VarId>& free = vars(x);
  if (std::none_of(free.begin(), free.end(), [&](VarId v) { return map.contains(v); })) return x;
  if (auto it = memo.find(x); it != memo.end()) return it->second;
  PolyId out = integer(0);
  if (is_masked(x)) {
    const Split s = split(x);
    out = masked(subst(s.finite, map, memo), subst(s.condition, map, memo));
  } else {
    std::vector<PolyId> sum;
    for (const Term& t : std::vector<Term>(terms(x))) {
      PolyId p = number(t.coef);
      Factors untouched;
      std::vector<PolyId> touched;
      for (const Factor& f : Factors(factors(t.mono))) {
        const auto& v = atom_vars(f.atom);
        if (std::any_of(v.begin(), v.end(), [&](VarId w) { return map.contains(w); }))
          touched.push_back(subst_atom(f.atom, f.power, map, memo));
        else untouched.push_back(f);
      }
      p = mul(p, product(Rational::of(1), std::move(untouched)));
      for (PolyId q : touched) p = mul(p, q);
      sum.push_back(p);
    }
    out = add_all(sum);
  }
  known(out, is_known(x), is_positive(x));
  memo[x] = out;
  return out;
}

PolyId Terms::subst_binder(AtomKind k, const std::vector<int64_t>& d, const VarMap& map) {
  std::vector<VarId> temps;
  Memo fresh;
  auto opened = [&](size_t first, size_t count) {   // the bound indices get fresh names
    VarMap inner = map;
    for (size_t i = first; i < first + count; i++) {
      const auto v = static_cast<VarId>(d[i]);
      temps.push_back(temp(idx.var(v).extent));
      inner[v] = idx.of_var(temps.back());
    }
    return inner;
  };
  if (k == AtomKind::kMaxOver) {
    const auto n = static_cast<size_t>(d[0]);
    const VarMap inner = opened(1, n);
    const PolyId condition = subst(static_cast<PolyId>(d[n + 1]), inner, fresh);
    return max_over(subst(static_cast<PolyId>(d[n + 2]), inner, fresh), condition, temps);
  }
  if (k == AtomKind::kRunning) {
    const VarMap inner = opened(0, 1);
    return running(subst(static_cast<PolyId>(d[2]), inner, fresh), temps[0], index_in(static_cast<IdxId>(d[1]), map));
  }
  const auto n = static_cast<size_t>(d[0]);
  const VarMap inner = opened(1, n);
  PolyId out = integer(1);
  for (size_t i = n + 1; i < d.size(); i += 3) {
    const Power p{static_cast<int32_t>(d[i + 1]), static_cast<int32_t>(d[i + 2])};
    const auto a = static_cast<AtomId>(d[i]);
    const auto& v = atom_vars(a);
    const bool touched = std::any_of(v.begin(), v.end(), [&](VarId w) { return inner.contains(w); });
    out = mul(out, touched ? subst_atom(a, p, inner, fresh) : of_factor(a, p));
  }
  return sum(out, temps);
}

PolyId Terms::subst_atom(AtomId id, Power power_of, const VarMap& map, Memo& memo) {
  if (!spend()) return kPoison;
  const AtomKind k = kind(id);
  const std::vector<int64_t> d = data(id);
  auto below = [&](int64_t p) { return subst(static_cast<PolyId>(p), map, memo); };
  auto index = [&](int64_t x) { return index_in(static_cast<IdxId>(x), map); };
  PolyId out = kPoison;
  switch (k) {
    case AtomKind::kInput: {
      std::vector<IdxId> at;
      for (size_t i = 1; i < d.size(); i++) at.push_back(index(d[i]));
      out = input(static_cast<int>(d[0]), at);
      break;
    }
    case AtomKind::kIndex: out = index_value(index(idx.of_atom(static_cast<IdxAtomId>(d[0])))); break;
    case AtomKind::kGe0: out = ge0(index(d[0])); break;
    case AtomKind::kExp: out = exp(below(d[0])); break;
    case AtomKind::kCut: {
      std::vector<int64_t> data = d;
      for (size_t i = 2; i < data.size(); i += 2) data[i] = index(data[i]);
      out = single(atom(AtomKind::kCut, std::move(data)));
      break;
    }
    case AtomKind::kBase: out = below(d[0]); break;
    case AtomKind::kFn: {
      std::vector<PolyId> args;
      for (size_t i = 2; i < d.size(); i++) args.push_back(below(d[i]));
      const auto tag = static_cast<FnTag>(d[0]);
      if (args[0] < 0) return kPoison;
      out = tag == FnTag::kRound      ? round(args[0], static_cast<DType>(d[1]))
            : tag == FnTag::kNegative ? less(args[0], integer(0))
            : tag == FnTag::kZero     ? equal(args[0], integer(0))
            : tag == FnTag::kPow      ? pow(args[0], args[1])
            : tag == FnTag::kLog      ? log(args[0])
            : tag == FnTag::kTanh     ? tanh(args[0])
                                      : fn(tag, d[1], args);
      break;
    }
    case AtomKind::kMaxSet:
      out = below(d[0]);
      for (size_t i = 1; i < d.size(); i++) out = max(out, below(d[i]));
      break;
    case AtomKind::kMaxOver: case AtomKind::kRunning: case AtomKind::kSum: out = subst_binder(k, d, map); break;
    case AtomKind::kLiteral: case AtomKind::kNumber: case AtomKind::kMask: break;   // no indices, or split off before
  }
  return power(out, power_of);
}

}  // namespace mirage::verify
