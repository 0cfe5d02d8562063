// Text of the prover's normal forms, for people who ask why there is no proof; and the functions that look at a whole form: its size, its
// denominators, its index conditions (proof_terms.h).
#include <algorithm>
#include <bit>
#include <cstdio>

#include "verify/proof/proof_terms.h"

namespace mirage::verify {
namespace {
constexpr size_t kMostText = 400;

std::string decimal(__int128 x) {
  if (x == 0) return "0";
  const bool negative = x < 0;
  std::string out;
  for (; x != 0; x /= 10) out += static_cast<char>('0' + static_cast<int>(x % 10 < 0 ? -(x % 10) : x % 10));
  if (negative) out += '-';
  return {out.rbegin(), out.rend()};
}

std::string fraction(const Rational& r) { return r.d == 1 ? decimal(r.n) : decimal(r.n) + "/" + decimal(r.d); }
}  // namespace

std::string Terms::print(PolyId p) const {
  if (p < 0) return "?";
  std::map<VarId, std::string> names;
  std::string s = print_poly(p, names, false);
  return s.size() <= kMostText ? s : s.substr(0, kMostText) + " ...";
}

std::string Terms::print_poly(PolyId p, std::map<VarId, std::string>& names, bool nested) const {
  const std::vector<Term>& t = terms(p);
  if (t.empty()) return "0";
  std::string out;
  for (const Term& x : t) {
    if (out.size() > kMostText) { out += " + ..."; break; }
    const std::string f = print_factors(factors(x.mono), names);
    const bool negative = x.coef.n < 0;
    const Rational c = negative ? -x.coef : x.coef;
    if (!out.empty()) out += negative ? " - " : " + ";
    else if (negative) out += "-";
    out += f.empty() ? fraction(c) : c.is(1) ? f : fraction(c) + " " + f;
  }
  return nested && t.size() > 1 ? "(" + out + ")" : out;
}

std::string Terms::print_factors(const Factors& f, std::map<VarId, std::string>& names) const {
  std::string out;
  for (const Factor& x : f) {
    if (out.size() > kMostText) return out + " ...";
    out += (out.empty() ? "" : " ") + print_atom(x.atom, names);
    if (!(x.power == Power{1, 1}))
      out += "^" + std::string(x.power.d == 1 && x.power.n > 0 ? "" : "(") + fraction(to_rational(x.power)) +
             (x.power.d == 1 && x.power.n > 0 ? "" : ")");
  }
  return out;
}

std::string Terms::print_atom(AtomId a, std::map<VarId, std::string>& names) const {
  const std::vector<int64_t>& d = data(a);
  for (VarId v : atom_vars(a))   // positions are i0, i1, ... by dimension
    if (idx.var(v).kind == VarKind::kFormal) names[v] = "i" + std::to_string(idx.var(v).a);
  auto below = [&](int64_t p, bool nested = false) { return print_poly(static_cast<PolyId>(p), names, nested); };
  auto bound = [&](size_t first, size_t n) {
    std::string out;
    for (size_t i = first; i < first + n; i++) {
      const auto v = static_cast<VarId>(d[i]);
      names[v] = std::string(1, static_cast<char>('a' + (idx.var(v).a * 5 + idx.var(v).b) % 8)) + std::to_string(idx.var(v).a);
      out += (out.empty() ? "" : ",") + names[v] + "<" + std::to_string(idx.var(v).extent);
    }
    return out;
  };
  switch (kind(a)) {
    case AtomKind::kInput: {
      std::string out = "x" + std::to_string(d[0]) + "[";
      for (size_t i = 1; i < d.size(); i++) out += (i > 1 ? "," : "") + idx.print(static_cast<IdxId>(d[i]), names);
      return out + "]";
    }
    case AtomKind::kLiteral: {
      char text[40];
      std::snprintf(text, sizeof text, "%.17g", std::bit_cast<double>(d[0]));
      return text;
    }
    case AtomKind::kNumber: return std::to_string(d[0]);
    case AtomKind::kIndex: {
      const IdxAtom& s = idx.atom(static_cast<IdxAtomId>(d[0]));
      return s.var >= 0 ? (names.contains(s.var) ? names[s.var] : "v" + std::to_string(s.var))
                        : "(" + idx.print(s.of, names) + " div " + std::to_string(s.by) + ")";
    }
    case AtomKind::kGe0: return "[" + idx.print(static_cast<IdxId>(d[0]), names) + ">=0]";
    case AtomKind::kExp: return "exp(" + below(d[0]) + ")";
    case AtomKind::kBase: return "(" + below(d[0]) + ")";
    case AtomKind::kFn: {
      static constexpr const char* kNames[] = {"log", "tanh", "erf", "sin", "cos", "floor", "nearest", "pow", "negative", "zero", "round"};
      std::string out = kNames[d[0]];
      out += "(";
      for (size_t i = 2; i < d.size(); i++) out += (i > 2 ? ", " : "") + below(d[i]);
      return out + ")";
    }
    case AtomKind::kMaxSet: {
      std::string out = "max(";
      for (size_t i = 0; i < d.size(); i++) out += (i ? ", " : "") + below(d[i]);
      return out + ")";
    }
    case AtomKind::kCut: {
      std::string out = "y" + std::to_string(d[0]) + "[";
      for (size_t i = 2; i < d.size(); i += 2) out += (i > 2 ? "," : "") + idx.print(static_cast<IdxId>(d[i]), names);
      return out + "]";
    }
    case AtomKind::kMask: return "mask(" + below(d[0]) + ")";
    case AtomKind::kMaxOver: {
      const auto n = static_cast<size_t>(d[0]);
      const std::string over = bound(1, n), f = below(d[n + 2]), c = below(d[n + 1]);
      return "max{" + over + (c == "1" ? "" : " | " + c) + "}(" + f + ")";
    }
    case AtomKind::kRunning: {
      const std::string over = bound(0, 1);
      return "shift{" + over + "}(" + below(d[2]) + ")[" + idx.print(static_cast<IdxId>(d[1]), names) + "]";
    }
    case AtomKind::kSum: {
      const auto n = static_cast<size_t>(d[0]);
      const std::string over = bound(1, n);
      Factors f;
      for (size_t i = n + 1; i < d.size(); i += 3)
        f.push_back({static_cast<AtomId>(d[i]), {static_cast<int32_t>(d[i + 1]), static_cast<int32_t>(d[i + 2])}});
      return "sum{" + over + "}(" + print_factors(f, names) + ")";
    }
  }
  return "?";
}

PolyId Terms::clear_denominators(PolyId x) {
  for (int round = 0; round < 8 && x >= 0; round++) {
    std::optional<Factor> worst;
    for (const Term& t : terms(x))
      for (const Factor& f : factors(t.mono)) {
        if (kind(f.atom) != AtomKind::kBase || f.power.n >= 0) continue;
        if (!worst || f.atom < worst->atom || (f.atom == worst->atom && (to_rational(f.power) + -to_rational(worst->power)).n < 0))
          worst = f;
      }
    if (!worst) return x;
    PolyId out = integer(0);
    for (const Term& t : std::vector<Term>(terms(x))) {   // term by term: the factor must meet its inverse before it is multiplied out
      Factors f = factors(t.mono);
      f.push_back({worst->atom, {-worst->power.n, worst->power.d}});
      out = add(out, product(t.coef, std::move(f)));
    }
    x = out;
  }
  return x;
}

PolyId Terms::rewrite(PolyId x, const std::map<AtomId, PolyId>& to) {
  if (x < 0) return kPoison;
  PolyId out = integer(0);
  for (const Term& t : std::vector<Term>(terms(x))) {
    Factors kept;
    PolyId p = number(t.coef);
    for (const Factor& f : Factors(factors(t.mono))) {
      auto it = to.find(f.atom);
      if (it == to.end() || !f.power.is_integer() || f.power.n < 1) kept.push_back(f);
      else p = mul(p, power(it->second, f.power));
    }
    out = add(out, mul(p, product(Rational::of(1), std::move(kept))));
  }
  return out;
}

PolyId Terms::resolve_indicators(PolyId x) {
  if (x < 0) return kPoison;
  std::set<AtomId> conditions;
  for (const Term& t : terms(x))
    for (const Factor& f : factors(t.mono)) if (kind(f.atom) == AtomKind::kGe0) conditions.insert(f.atom);
  std::map<AtomId, PolyId> to;
  for (AtomId a : conditions) {
    const PolyId other = ge0(idx.add(idx.constant(-1), static_cast<IdxId>(data(a)[0]), -1));
    const std::vector<Term>& t = terms(other);
    if (t.size() == 1 && factors(t[0].mono).size() == 1 && factors(t[0].mono)[0].atom < a &&
        conditions.contains(factors(t[0].mono)[0].atom))
      to[a] = sub(integer(1), other);
  }
  return to.empty() ? x : rewrite(x, to);
}

void Terms::size_below(PolyId p, std::set<int64_t>& seen) const {
  if (p < 0 || !seen.insert(p).second) return;
  std::vector<AtomId> todo;
  for (const Term& t : terms(p)) for (const Factor& f : factors(t.mono)) todo.push_back(f.atom);
  while (!todo.empty()) {
    const AtomId a = todo.back();
    todo.pop_back();
    if (!seen.insert(-1 - static_cast<int64_t>(a)).second) continue;
    const std::vector<int64_t>& d = data(a);
    switch (kind(a)) {
      case AtomKind::kExp:
      case AtomKind::kBase:
      case AtomKind::kMask:
      case AtomKind::kCut: size_below(static_cast<PolyId>(d[0]), seen); break;
      case AtomKind::kFn: for (size_t i = 2; i < d.size(); i++) size_below(static_cast<PolyId>(d[i]), seen); break;
      case AtomKind::kMaxSet: for (int64_t q : d) size_below(static_cast<PolyId>(q), seen); break;
      case AtomKind::kMaxOver:
        for (size_t i = static_cast<size_t>(d[0]) + 1; i < d.size(); i++) size_below(static_cast<PolyId>(d[i]), seen);
        break;
      case AtomKind::kRunning: size_below(static_cast<PolyId>(d[2]), seen); break;
      case AtomKind::kSum:
        for (size_t i = static_cast<size_t>(d[0]) + 1; i < d.size(); i += 3) todo.push_back(static_cast<AtomId>(d[i]));
        break;
      default: break;
    }
  }
}

int64_t Terms::size_of(const std::vector<PolyId>& roots) const {
  std::set<int64_t> seen;
  for (PolyId p : roots) size_below(p, seen);
  return static_cast<int64_t>(seen.size());
}

}  // namespace mirage::verify
