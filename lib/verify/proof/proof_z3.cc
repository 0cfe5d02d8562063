// Normal forms as terms of Z3. Maxima are if-then-else, conditions are 0 or 1, roots are numbers whose powers are known; every other atom
// is a real number of its own. What differs at random points is not asked: most forms that are not equal are found out so in microseconds,
// where Z3 takes up to a second.
#include "verify/proof/proof_z3.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <z3++.h>

#include "mirage/support/hash.h"

namespace mirage::verify {
namespace {

constexpr unsigned kResources = 2'000'000;   // of Z3's own unit, a count: about a second
constexpr int kMostAtoms = 400;
constexpr int kMostProducts = 4000;          // factors of all terms that it is given
// in real variables: what is decided of nonlinear forms takes its time outside the resource limit, and its clean-up as much again
constexpr int kMostDegree = 3;

struct TooLarge {};

class Encoder {
 public:
  /// linear: products are numbers of their own, which proves less and is always decided quickly.
  Encoder(z3::context& c, z3::solver& s, Terms& t, bool linear) : c_(c), solver_(s), t_(t), linear_(linear) {}
  bool is_piecewise = false;

  z3::expr poly(PolyId p) {
    z3::expr out = c_.real_val(0);
    for (const Term& t : t_.terms(p)) {
      const Factors& f = t_.factors(t.mono);
      if (linear_ && (f.size() > 1 || (f.size() == 1 && !(f[0].power == Power{1, 1})))) {
        out = out + number(t.coef) * product(t.mono);
        continue;
      }
      z3::expr m = number(t.coef);
      for (const Factor& x : f) m = m * power(x);
      out = out + m;
    }
    return out;
  }

 private:
  static std::string decimal(__int128 x) {
    std::string s;
    const bool negative = x < 0;
    do { s += static_cast<char>('0' + static_cast<int>(x % 10 < 0 ? -(x % 10) : x % 10)); x /= 10; } while (x != 0);
    if (negative) s += '-';
    return {s.rbegin(), s.rend()};
  }
  z3::expr number(const Rational& r) { return c_.real_val((decimal(r.n) + "/" + decimal(r.d)).c_str()); }

  z3::expr fresh(const char* kind) {
    if (++made_ > kMostAtoms) throw TooLarge();
    return c_.real_const((std::string(kind) + std::to_string(made_)).c_str());
  }

  z3::expr product(MonoId m) {
    const auto [it, is_new] = products_.try_emplace(m, product_values_.size());
    if (is_new) product_values_.push_back(fresh("p"));
    return product_values_[it->second];
  }

  z3::expr index(IdxId x) {
    const Affine& a = t_.idx.affine(x);
    z3::expr out = c_.int_val(a.constant);
    for (auto [s, coef] : a.terms) out = out + c_.int_val(coef) * index_atom(s);
    return out;
  }
  z3::expr index_atom(IdxAtomId s) {
    const auto [lo, hi] = t_.idx.range(t_.idx.of_atom(s));
    const z3::expr v = c_.int_const(("i" + std::to_string(s)).c_str());
    if (bounded_.insert(s).second) solver_.add(v >= c_.int_val(lo) && v <= c_.int_val(hi));
    return v;
  }

  z3::expr power(const Factor& f) {
    const z3::expr one = c_.real_val(1);
    z3::expr base = one;
    if (f.power.d == 1) {
      base = atom(f.atom);
    } else {   // the root is the number whose power is the atom
      auto [it, is_new] = roots_.try_emplace({f.atom, f.power.d}, roots_.size());
      if (is_new) {
        root_values_.push_back(fresh("r"));
        z3::expr back = one;
        for (int32_t i = 0; i < f.power.d; i++) back = back * root_values_.back();
        if (f.power.d > 4) throw TooLarge();
        const z3::expr of = atom(f.atom);   // of a negative number: anything
        solver_.add(z3::implies(of >= 0, root_values_.back() >= 0 && back == of));
      }
      base = root_values_[it->second];
    }
    const int32_t n = f.power.n < 0 ? -f.power.n : f.power.n;
    if (n > 16) throw TooLarge();
    z3::expr out = base;
    for (int32_t i = 1; i < n; i++) out = out * base;
    if (f.power.n > 0) return out;
    return one / out;   // by 0: anything, as Z3 has it. Nothing is assumed of a domain, so what a branch keeps out stays out
  }

  z3::expr atom(AtomId a) {
    if (auto it = atoms_.find(a); it != atoms_.end()) return values_[it->second];
    const z3::expr v = make(a);
    atoms_[a] = values_.size();
    values_.push_back(v);
    return v;
  }

  z3::expr make(AtomId a) {
    const std::vector<int64_t> d = t_.data(a);
    const z3::expr zero = c_.real_val(0), one = c_.real_val(1);
    switch (t_.kind(a)) {
      case AtomKind::kMaxSet: {
        is_piecewise = true;
        z3::expr m = poly(static_cast<PolyId>(d[0]));
        for (size_t i = 1; i < d.size(); i++) {
          const z3::expr x = poly(static_cast<PolyId>(d[i]));
          m = z3::ite(m < x, x, m);
        }
        return m;
      }
      case AtomKind::kFn:
        if (static_cast<FnTag>(d[0]) == FnTag::kNegative) {
          is_piecewise = true;
          return z3::ite(poly(static_cast<PolyId>(d[2])) < 0, one, zero);
        }
        if (static_cast<FnTag>(d[0]) == FnTag::kZero) {
          is_piecewise = true;
          return z3::ite(poly(static_cast<PolyId>(d[2])) == 0, one, zero);
        }
        break;
      case AtomKind::kGe0: is_piecewise = true; return z3::ite(index(static_cast<IdxId>(d[0])) >= 0, one, zero);
      case AtomKind::kIndex: return z3::to_real(index_atom(static_cast<IdxAtomId>(d[0])));
      case AtomKind::kBase: return poly(static_cast<PolyId>(d[0]));
      case AtomKind::kNumber: return c_.real_val(std::to_string(d[0]).c_str());
      case AtomKind::kLiteral: {   // exactly m * 2^e
        int e;
        const double m = std::frexp(std::bit_cast<double>(d[0]), &e);
        if (e < -60 || e > 60) break;
        const z3::expr whole = c_.real_val(std::to_string(static_cast<int64_t>(std::ldexp(m, 53))).c_str());
        z3::expr two = one;
        for (int i = 0; i < std::abs(e - 53); i++) two = two * c_.real_val(2);
        return (e >= 53 ? whole * two : whole / two).simplify();
      }
      default: break;
    }
    const z3::expr v = fresh("x");
    if (t_.is_bool(a)) { is_piecewise = true; solver_.add(v == 0 || v == 1); }
    else if (t_.kind(a) == AtomKind::kExp) solver_.add(v > 0);
    else if (t_.is_nonnegative(a)) solver_.add(v >= 0);
    return v;
  }

  z3::context& c_;
  z3::solver& solver_;
  Terms& t_;
  bool linear_;
  int made_ = 0;
  std::map<MonoId, size_t> products_;
  std::vector<z3::expr> product_values_;
  std::map<AtomId, size_t> atoms_;
  std::vector<z3::expr> values_, root_values_;
  std::map<std::pair<AtomId, int32_t>, size_t> roots_;
  std::set<IdxAtomId> bounded_;
};

/// How large a question would be, counted before anything of it is built.
class Extent {
 public:
  explicit Extent(Terms& t) : t_(t) {}
  enum class Size { kSmall, kLinear, kTooLarge };   ///< kLinear: small if products are taken for numbers of their own
  Size of(PolyId x, PolyId y) {
    const int degree = std::max(poly(x), poly(y));
    return products_ > kMostProducts ? Size::kTooLarge : degree <= kMostDegree ? Size::kSmall : Size::kLinear;
  }

 private:
  static constexpr int kTooLarge = 1 << 20;

  int poly(PolyId p) {
    if (auto it = polys_.find(p); it != polys_.end()) return it->second;
    int out = 0;
    for (const Term& t : std::vector<Term>(t_.terms(p))) {
      int degree = 0;
      for (const Factor& f : Factors(t_.factors(t.mono))) {
        if (++products_ > kMostProducts) return kTooLarge;
        degree += std::min(std::abs(f.power.n), 64) * std::max(atom(f.atom), 1);
      }
      out = std::max(out, degree);
    }
    return polys_[p] = std::min(out, kTooLarge);
  }
  int atom(AtomId a) {
    const std::vector<int64_t> d = t_.data(a);
    int out = 1;
    if (t_.kind(a) == AtomKind::kMaxSet) for (int64_t p : d) out = std::max(out, poly(static_cast<PolyId>(p)));
    if (t_.kind(a) == AtomKind::kBase) out = poly(static_cast<PolyId>(d[0]));
    if (t_.kind(a) == AtomKind::kFn && (static_cast<FnTag>(d[0]) == FnTag::kNegative || static_cast<FnTag>(d[0]) == FnTag::kZero))
      out = poly(static_cast<PolyId>(d[2]));
    return out;
  }

  Terms& t_;
  std::map<PolyId, int> polys_;
  int products_ = 0;
};

/// The value of forms at one random point, where atoms mean what Encoder says.
class Point {
 public:
  Point(Terms& t, uint64_t seed) : t_(t), rng_(seed) {}
  bool fails = false;         ///< something is divided by (almost) nothing here
  bool is_poisoned = false;   ///< a form that has none is read, deep within another: nothing can be said

  /// Whether x and y differ by far more than rounding.
  bool differs(PolyId x, PolyId y) {
    const Value u = poly(x), v = poly(y);
    const long double gap = std::fabs(u.value - v.value);
    return !fails && std::isfinite(gap) && gap > 1e-7L * (u.size + v.size);
  }

 private:
  struct Value { long double value = 0, size = 0; };   ///< size: of the terms without their signs

  Value poly(PolyId p) {
    if (auto it = polys_.find(p); it != polys_.end()) return it->second;
    Value out;
    if (p < 0) {
      is_poisoned = true;
      return out;
    }
    for (const Term& t : std::vector<Term>(t_.terms(p))) {
      long double m = static_cast<long double>(t.coef.n) / static_cast<long double>(t.coef.d);
      for (const Factor& f : Factors(t_.factors(t.mono))) m *= power(f);
      out.value += m;
      out.size += std::fabs(m);
    }
    return polys_[p] = out;
  }

  long double power(const Factor& f) {
    long double base = atom(f.atom);
    if (f.power.d != 1) {
      const auto [it, is_new] = roots_.try_emplace({f.atom, f.power.d}, 0.0L);
      // of a negative number: anything
      if (is_new) it->second = base >= 0 ? std::pow(base, 1.0L / static_cast<long double>(f.power.d)) : any();
      base = it->second;
    }
    fails = fails || (f.power.n < 0 && std::fabs(base) < 1e-9L);
    return std::pow(base, static_cast<long double>(f.power.n));
  }

  long double index_atom(IdxAtomId s) {
    const auto [lo, hi] = t_.idx.range(t_.idx.of_atom(s));
    const auto [it, is_new] = indices_.try_emplace(s, 0);
    if (is_new) it->second = lo + static_cast<int64_t>(rng_.below(static_cast<uint64_t>(std::max<int64_t>(hi - lo, 0)) + 1));
    return static_cast<long double>(it->second);
  }
  long double index(IdxId x) {
    const Affine a = t_.idx.affine(x);
    auto out = static_cast<long double>(a.constant);
    for (auto [s, coef] : a.terms) out += static_cast<long double>(coef) * index_atom(s);
    return out;
  }

  long double atom(AtomId a) {
    if (auto it = atoms_.find(a); it != atoms_.end()) return it->second;
    const long double v = make(a);
    return atoms_[a] = v;
  }
  long double make(AtomId a) {
    const std::vector<int64_t> d = t_.data(a);
    switch (t_.kind(a)) {
      case AtomKind::kMaxSet: {
        long double m = poly(static_cast<PolyId>(d[0])).value;
        for (size_t i = 1; i < d.size(); i++) m = std::max(m, poly(static_cast<PolyId>(d[i])).value);
        return m;
      }
      case AtomKind::kFn:
        if (static_cast<FnTag>(d[0]) == FnTag::kNegative) return poly(static_cast<PolyId>(d[2])).value < 0 ? 1 : 0;
        if (static_cast<FnTag>(d[0]) == FnTag::kZero) return poly(static_cast<PolyId>(d[2])).value == 0 ? 1 : 0;
        break;
      case AtomKind::kGe0: return index(static_cast<IdxId>(d[0])) >= 0 ? 1 : 0;
      case AtomKind::kIndex: return index_atom(static_cast<IdxAtomId>(d[0]));
      case AtomKind::kBase: return poly(static_cast<PolyId>(d[0])).value;
      case AtomKind::kNumber: return static_cast<long double>(d[0]);
      case AtomKind::kLiteral: return std::bit_cast<double>(d[0]);
      default: break;
    }
    if (t_.is_bool(a)) return static_cast<long double>(rng_.below(2));
    return t_.kind(a) == AtomKind::kExp || t_.is_nonnegative(a) ? std::fabs(any()) : any();
  }
  long double any() { return (rng_.below(2) ? 1 : -1) * (0.1L + 2 * static_cast<long double>(rng_.uniform())); }

  Terms& t_;
  Rng rng_;
  std::map<PolyId, Value> polys_;
  std::map<AtomId, long double> atoms_;
  std::map<std::pair<AtomId, int32_t>, long double> roots_;
  std::map<IdxAtomId, int64_t> indices_;
};

/// Whether x and y differ at two of a few random points (at one alone it might be rounding after all), or cannot be read.
bool differs_somewhere(Terms& terms, PolyId x, PolyId y) {
  int found = 0;
  for (uint64_t i = 0; i < 8 && found < 2; i++) {
    Point point(terms, i);
    found += point.differs(x, y);
    if (point.is_poisoned) return true;
  }
  return found == 2;
}

}  // namespace

bool z3_equal(Terms& terms, PolyId x, PolyId y) {
  if (x < 0 || y < 0 || terms.holds_mask(x) || terms.holds_mask(y) || !terms.same_failures(x, y) || differs_somewhere(terms, x, y))
    return false;
  const Extent::Size size = Extent(terms).of(x, y);
  if (size == Extent::Size::kTooLarge) return false;
  try {
    z3::context c;
    z3::solver solver(c);
    z3::params params(c);
    params.set("rlimit", kResources);
    solver.set(params);
    Encoder e(c, solver, terms, size == Extent::Size::kLinear);
    const z3::expr differ = e.poly(x) != e.poly(y);
    if (!e.is_piecewise) return false;
    solver.add(differ);
    return solver.check() == z3::unsat;
  } catch (const TooLarge&) {
    return false;
  } catch (const z3::exception&) {
    return false;
  }
}

}  // namespace mirage::verify
