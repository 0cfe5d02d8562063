// The prover's numbers, and how its normal forms are interned (proof_terms.h): each atom, product and sum once, under an id, in an order
// that depends on nothing but what was asked before.
#include "verify/proof/proof_terms.h"

#include <algorithm>

namespace mirage::verify {
namespace {

using Wide = __int128;
constexpr size_t kEntryBytes = 96;   // of a table of words: the node, its place, and what the allocator adds
Wide gcd(Wide a, Wide b) {
  if (a < 0) a = -a;
  if (b < 0) b = -b;
  while (b != 0) { const Wide t = a % b; a = b; b = t; }
  return a;
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
  if (__builtin_mul_overflow(a.n, b.d, &x) || __builtin_mul_overflow(b.n, a.d, &y) || __builtin_add_overflow(x, y, &n) ||
      __builtin_mul_overflow(a.d, b.d, &d))
    return {0, 1, true};
  Rational r = Rational::of(n, d);
  r.bad |= a.bad || b.bad;
  return r;
}

Rational operator*(const Rational& a, const Rational& b) {
  const Wide g = gcd(a.n, b.d), h = gcd(b.n, a.d);
  Wide n, d;
  if (__builtin_mul_overflow(g ? a.n / g : a.n, h ? b.n / h : b.n, &n) || __builtin_mul_overflow(h ? a.d / h : a.d, g ? b.d / g : b.d, &d))
    return {0, 1, true};
  Rational r = Rational::of(n, d);
  r.bad |= a.bad || b.bad;
  return r;
}

bool Terms::spend(int64_t n) {
  steps_ += n;
  if (bytes_ > limits_.bytes) {
    poison("the normal form needs more than " + std::to_string(limits_.bytes / 1'000'000) + " MB");
    return false;
  }
  if (steps_ <= limits_.steps) return true;
  poison("the normal form needs more than " + std::to_string(limits_.steps) + " steps");
  return false;
}

AtomId Terms::atom(AtomKind kind, std::vector<int64_t> data) {
  std::vector<int64_t> key = data;
  key.push_back(static_cast<int64_t>(kind));
  bool fresh;
  const AtomId id = atom_keys_.intern(key, &fresh);
  if (!fresh) return id;
  Atom a{kind, std::move(data), {}, {}, 0, 0, false, false, kind == AtomKind::kIndex};
  auto index = [&](int64_t x) {
    a.vars = merge_sorted(a.vars, idx.vars(static_cast<IdxId>(x)));
    idx.collect(static_cast<IdxId>(x), a.uses);
  };
  auto part = [&](const std::vector<VarId>& vars, const std::vector<IdxId>& uses, int height, int depth, bool has_number) {
    a.depth = std::max(a.depth, depth + 1), a.has_number |= has_number;
    a.vars = merge_sorted(a.vars, vars);
    a.uses.insert(a.uses.end(), uses.begin(), uses.end());
    a.height = std::max(a.height, height);
  };
  auto below = [&](int64_t x) {
    const Poly& p = poly_at(x);
    part(p.vars, uses_of({static_cast<PolyId>(x)}), p.height, p.depth, has_number(static_cast<PolyId>(x)));
  };
  auto bind = [&](size_t first, size_t count) {
    for (size_t i = first; i < first + count; i++) std::erase(a.vars, static_cast<VarId>(a.data[i]));
    a.height++;
    a.depth += 5;   // sums and maxima over indices are walked through by more functions
  };
  const std::vector<int64_t>& d = a.data;
  switch (kind) {
    case AtomKind::kInput:
      for (size_t i = 1; i < d.size(); i++) index(d[i]);
      a.nonnegative = static_cast<size_t>(d[0]) < input_types_.size() && input_types_[static_cast<size_t>(d[0])] == DType::kBool;
      break;
    case AtomKind::kLiteral: case AtomKind::kNumber: a.nonnegative = a.positive = true; break;
    case AtomKind::kIndex:
      index(idx.of_atom(static_cast<IdxAtomId>(d[0])));
      a.nonnegative = idx.range(idx.of_atom(static_cast<IdxAtomId>(d[0]))).first >= 0;
      break;
    case AtomKind::kGe0: index(d[0]); a.nonnegative = true; break;
    case AtomKind::kExp: below(d[0]); a.nonnegative = a.positive = true; break;
    case AtomKind::kBase: below(d[0]); a.nonnegative = poly_at(d[0]).nonnegative; a.positive = poly_at(d[0]).positive; break;
    case AtomKind::kFn:
      for (size_t i = 2; i < d.size(); i++) below(d[i]);
      a.nonnegative = static_cast<FnTag>(d[0]) == FnTag::kNegative || static_cast<FnTag>(d[0]) == FnTag::kZero;
      break;
    case AtomKind::kMaxSet:
      for (int64_t x : d) { below(x); a.nonnegative |= poly_at(x).nonnegative; a.positive |= poly_at(x).positive; }
      break;
    case AtomKind::kMask: below(d[0]); break;
    case AtomKind::kCut:
      for (size_t i = 2; i < d.size(); i += 2) index(d[i]);
      a.nonnegative = poly_at(d[0]).nonnegative;
      a.positive = poly_at(d[0]).positive;
      break;
    case AtomKind::kMaxOver: {
      const auto n = static_cast<size_t>(d[0]);
      below(d[n + 1]);
      below(d[n + 2]);
      a.nonnegative = poly_at(d[n + 2]).nonnegative;
      a.positive =
          poly_at(d[n + 2]).positive && as_number(static_cast<PolyId>(d[n + 1])) && as_number(static_cast<PolyId>(d[n + 1]))->is(1);
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
      a.nonnegative = a.positive = true;   // extents are at least 1, and a condition is not positive
      for (size_t i = n + 1; i < d.size(); i += 3) {
        const Atom& f = atoms_[static_cast<size_t>(d[i])];
        part(f.vars, f.uses, f.height, f.depth, f.has_number);
        a.nonnegative &= f.nonnegative || d[i + 1] % 2 == 0 || d[i + 2] % 2 == 0;
        a.positive &= f.positive;
      }
      bind(1, n);
      break;
    }
  }
  if (a.depth > limits_.depth) {
    poison("a normal form is nested deeper than " + std::to_string(limits_.depth));
    steps_ = limits_.steps + 1;   // nothing more is made
  }
  std::sort(a.uses.begin(), a.uses.end());
  a.uses.erase(std::unique(a.uses.begin(), a.uses.end()), a.uses.end());
  steps_ += static_cast<int64_t>(a.uses.size()) / 8;
  occupy(key.size() + a.data.size(), kEntryBytes + sizeof(Atom) + 4 * (a.vars.size() + a.uses.size()));
  atoms_.push_back(std::move(a));
  return id;
}

MonoId Terms::mono(Factors f) {
  std::vector<int64_t> key;
  for (const Factor& x : f) key.insert(key.end(), {x.atom, x.power.n, x.power.d});
  bool fresh;
  const MonoId id = mono_keys_.intern(key, &fresh);
  if (!fresh) return id;
  Mono m{std::move(f), {}, 0, true, true, false};
  for (const Factor& x : m.factors) {
    const Atom& a = atoms_[static_cast<size_t>(x.atom)];
    m.vars = merge_sorted(m.vars, a.vars);
    m.height = std::max(m.height, a.height);
    m.nonnegative &= a.nonnegative || x.power.n % 2 == 0 || x.power.d % 2 == 0;
    m.positive &= a.positive;
    m.masked |= a.kind == AtomKind::kMask;
  }
  occupy(key.size(), kEntryBytes + sizeof(Mono) + sizeof(Factor) * m.factors.size() + 4 * m.vars.size());
  monos_.push_back(std::move(m));
  return id;
}

PolyId Terms::poly(std::vector<Term> terms) {
  if (!spend(0)) return kPoison;   // nothing is made beyond the limits
  std::vector<int64_t> key;
  for (const Term& t : terms) {
    if (t.coef.bad) return poison("a coefficient has too many digits");
    key.insert(key.end(), {t.mono, static_cast<int64_t>(t.coef.n), static_cast<int64_t>(t.coef.n >> 64), static_cast<int64_t>(t.coef.d),
                           static_cast<int64_t>(t.coef.d >> 64)});
  }
  bool fresh;
  const PolyId id = poly_keys_.intern(key, &fresh);
  if (!fresh) return id;
  Poly p{std::move(terms), {}, 0, 0, true, false};
  for (const Term& t : p.terms) {
    const Mono& m = monos_[static_cast<size_t>(t.mono)];
    p.vars = merge_sorted(p.vars, m.vars);
    p.height = std::max(p.height, m.height);
    for (const Factor& f : m.factors) p.depth = std::max(p.depth, atoms_[static_cast<size_t>(f.atom)].depth);
    p.nonnegative &= m.nonnegative && t.coef.n >= 0;
    p.positive |= m.positive && t.coef.n > 0;
  }
  p.positive &= p.nonnegative;
  steps_ += static_cast<int64_t>(p.terms.size()) / 4;
  occupy(key.size(), kEntryBytes + sizeof(Poly) + sizeof(Term) * p.terms.size() + 4 * p.vars.size());
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

}  // namespace mirage::verify
