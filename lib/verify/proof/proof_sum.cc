// Sums and maxima over indices (proof_terms.h): bound indices are named by a canonical order, parts of an index merge, a factor leaves a
// sum if it is free of all its indices and of all indices that it is tied to. This is where it matters which index a sum runs over; sum(i)
// a * sum(j) b never becomes sum(i) ab.
#include <algorithm>
#include <numeric>

#include "verify/proof/proof_terms.h"

namespace mirage::verify {
namespace {
constexpr size_t kMostOrders = 720;       // orders of indices that look alike
constexpr size_t kMostFactors = 256;      // of one sum; above, sums within stay closed

bool meets(const std::vector<VarId>& sorted, const std::vector<VarId>& over) {
  return std::any_of(over.begin(), over.end(), [&](VarId v) { return std::binary_search(sorted.begin(), sorted.end(), v); });
}
}  // namespace

std::vector<IdxId> Terms::uses_of(const std::vector<PolyId>& parts) const {
  std::vector<IdxId> out;
  for (PolyId p : parts)
    for (const Term& t : terms(p))
      for (const Factor& f : factors(t.mono)) {
        const auto& u = atoms_[static_cast<size_t>(f.atom)].uses;
        out.insert(out.end(), u.begin(), u.end());
      }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

bool Terms::has_number(PolyId p) const {
  return std::any_of(terms(p).begin(), terms(p).end(), [&](const Term& t) {
    const Factors& f = factors(t.mono);
    return std::any_of(f.begin(), f.end(), [&](const Factor& x) { return atoms_[static_cast<size_t>(x.atom)].has_number; });
  });
}

PolyId Terms::sum(PolyId x, const std::vector<VarId>& over) {
  if (x < 0) return kPoison;
  if (is_masked(x)) return poison("a sum over an infinity");
  PolyId out = integer(0);
  for (VarId v : over) {   // in the pieces that slices cut its index into
    const auto cut = split_at_.find(idx.var(v).extent);
    if (cut == split_at_.end() || !std::binary_search(vars(x).begin(), vars(x).end(), v)) continue;
    int64_t from = 0;
    std::vector<int64_t> ends(cut->second.begin(), cut->second.end());
    ends.push_back(idx.var(v).extent);
    for (int64_t to : ends) {
      std::vector<VarId> left = over;
      std::erase(left, v);
      const VarId n = temp(to - from);
      if (to - from > 1) left.push_back(n);
      out = add(out, sum(subst(x, {{v, idx.add(idx.of_var(n), idx.constant(from))}}), left));
      if (out < 0) return kPoison;
      from = to;
    }
    return known(out, is_known(x), is_positive(x));
  }
  std::vector<PolyId> parts;
  for (const Term& t : std::vector<Term>(terms(x))) {
    parts.push_back(sum_mono(t, over));
    if (parts.back() < 0) return kPoison;
  }
  out = add_all(parts);
  return known(out, is_known(x), is_positive(x));
}

/// A condition bounds an index, by what the others may be at most: a tail behind the diagonal of a causal mask is no part of the sum.
std::optional<std::pair<std::vector<VarId>, VarMap>> Terms::bounded_index(const std::vector<VarId>& over, const Factors& inside,
                                                                          bool* empty) {
  for (VarId v : over) {
    int64_t lo = 0, hi = idx.var(v).extent - 1;
    for (const Factor& f : inside) {
      if (kind(f.atom) != AtomKind::kGe0 || !(f.power == Power{1, 1})) continue;
      const auto x = static_cast<IdxId>(data(f.atom)[0]);
      const int64_t c = idx.coefficient(x, v);
      if (c == 0) continue;
      const IdxId rest = idx.add(x, idx.of_var(v), -c);
      if (std::binary_search(idx.vars(rest).begin(), idx.vars(rest).end(), v)) continue;   // in a quotient
      const int64_t most = idx.range(rest).second;
      if (c > 0) lo = std::max(lo, -floor_div(most, c));
      else hi = std::min(hi, floor_div(most, -c));
    }
    if (hi < lo) { *empty = true; return std::nullopt; }
    if (lo == 0 && hi == idx.var(v).extent - 1) continue;
    const VarId n = temp(hi - lo + 1);
    std::vector<VarId> left = over;
    std::erase(left, v);
    if (hi > lo) left.push_back(n);
    return std::pair{left, VarMap{{v, idx.add(idx.of_var(n), idx.constant(lo))}}};
  }
  return std::nullopt;
}

/// One simplification of the indices summed over: new indices and what the old ones become; nullopt if there is none. `inside`: the
/// factors, whose conditions may bound an index.
std::optional<std::pair<std::vector<VarId>, VarMap>> Terms::index_step(const std::vector<VarId>& over, const std::vector<IdxId>& uses,
                                                                       const Factors& inside, bool* empty) {
  *empty = false;
  auto without = [&](std::initializer_list<VarId> gone) {
    std::vector<VarId> out;
    for (VarId v : over) if (std::find(gone.begin(), gone.end(), v) == gone.end()) out.push_back(v);
    return out;
  };
  if (auto bounded = bounded_index(over, inside, empty); bounded || *empty) return bounded;
  // T v + t with t < T everywhere: one index.
  for (VarId v : over)
    for (VarId t : over) {
      if (v == t) continue;
      const int64_t extent = idx.var(t).extent;
      bool tied = false, fits = true;
      for (IdxId u : uses) {
        const int64_t a = idx.coefficient(u, v), b = idx.coefficient(u, t);
        tied |= b != 0;
        if (a != extent * b) { fits = false; break; }
      }
      if (!tied || !fits) continue;
      const VarId n = temp(idx.var(v).extent * extent);
      std::vector<VarId> left = without({v, t});
      left.push_back(n);
      return std::pair{left, VarMap{{v, idx.constant(0)}, {t, idx.of_var(n)}}};
    }
  // v div c: two indices, if c divides the extent.
  for (IdxId u : uses)
    for (auto [s, coef] : idx.affine(u).terms) {
      const IdxAtom a = idx.atom(s);
      if (a.var >= 0) continue;
      const Affine& of = idx.affine(a.of);
      if (of.constant != 0 || of.terms.size() != 1 || of.terms[0].second != 1) continue;
      const VarId v = idx.atom(of.terms[0].first).var;
      if (v < 0 || std::find(over.begin(), over.end(), v) == over.end() || idx.var(v).extent % a.by != 0) continue;
      const VarId high = temp(idx.var(v).extent / a.by), low = temp(a.by);
      std::vector<VarId> left = without({v});
      for (VarId w : {high, low}) if (idx.var(w).extent > 1) left.push_back(w);
      return std::pair{left, VarMap{{v, idx.add(idx.of_var(low), idx.of_var(high), a.by)}}};
    }
  return std::nullopt;
}

/// An index as a number (a position times a slope in an exponent) is the sum of its parts, each an atom of its own: that these are parts of
/// one index is seen by putting them back.
std::optional<std::pair<std::vector<VarId>, VarMap>> Terms::joined_number(const std::vector<VarId>& over,
                                                                          const std::vector<PolyId>& parts) {
  if (std::none_of(parts.begin(), parts.end(), [&](PolyId p) { return has_number(p); })) return std::nullopt;
  const std::vector<IdxId> uses = uses_of(parts);
  const auto is_number = [&](VarId v) { return std::binary_search(uses.begin(), uses.end(), idx.of_var(v)); };
  const Unwatched unwatched(*this);
  for (VarId v : over)
    for (VarId t : over) {
      if (v == t || !is_number(v) || !is_number(t)) continue;
      const int64_t extent = idx.var(t).extent;
      const bool fits = std::all_of(uses.begin(), uses.end(), [&](IdxId u) {
        return u == idx.of_var(v) || u == idx.of_var(t) || idx.coefficient(u, v) == extent * idx.coefficient(u, t);
      });
      if (!fits) continue;
      PolyId body = integer(1);
      for (PolyId p : parts) body = mul(body, p);
      const VarId n = temp(idx.var(v).extent * extent);
      const VarMap as_one{{v, idx.constant(0)}, {t, idx.of_var(n)}};
      if (body < 0 || subst(subst(body, as_one), {{n, idx.add(idx.of_var(t), idx.of_var(v), extent)}}) != body) continue;
      std::vector<VarId> left{n};
      std::copy_if(over.begin(), over.end(), std::back_inserter(left), [&](VarId w) { return w != v && w != t; });
      return std::pair{left, as_one};
    }
  return std::nullopt;
}

std::optional<PolyId> Terms::joined_sums(const Factors& inside, const std::vector<VarId>& vars) {
  std::vector<VarId> joined = vars;
  const auto opens = [&](const Factor& f) {
    const bool is_sum = kind(f.atom) == AtomKind::kSum && f.power.is_integer() && f.power.n > 0 && f.power.n <= 4;
    return is_sum && joined.size() + static_cast<size_t>(data(f.atom)[0] * f.power.n) <= limits_.indices;
  };
  if (inside.size() > kMostFactors || std::none_of(inside.begin(), inside.end(), opens)) return std::nullopt;
  PolyId body = integer(1);
  for (const Factor& f : inside) {
    if (!opens(f)) {
      body = mul(body, of_factor(f.atom, f.power));
      continue;
    }
    const std::vector<int64_t> d = data(f.atom);
    for (int32_t copy = 0; copy < f.power.n; copy++) {
      VarMap map;
      const auto n = static_cast<size_t>(d[0]);
      for (size_t i = 1; i <= n; i++) {
        joined.push_back(temp(idx.var(static_cast<VarId>(d[i])).extent));
        map[static_cast<VarId>(d[i])] = idx.of_var(joined.back());
      }
      Memo memo;
      for (size_t i = n + 1; i < d.size(); i += 3)
        body =
            mul(body, subst_atom(static_cast<AtomId>(d[i]), {static_cast<int32_t>(d[i + 1]), static_cast<int32_t>(d[i + 2])}, map, memo));
    }
  }
  return sum(body, joined);
}

PolyId Terms::sum_mono(const Term& t, const std::vector<VarId>& over) {
  if (!spend()) return kPoison;
  Factors outside, inside;
  std::vector<VarId> used;
  for (const Factor& f : factors(t.mono)) {
    (meets(atom_vars(f.atom), over) ? inside : outside).push_back(f);
    used = merge_sorted(used, atom_vars(f.atom));
  }
  Rational coef = t.coef;
  std::vector<VarId> vars;
  for (VarId v : over) {
    if (std::binary_search(used.begin(), used.end(), v)) vars.push_back(v);
    else coef = coef * Rational::of(idx.var(v).extent);
  }
  const PolyId out = product(coef, outside);
  if (inside.empty()) return out;

  if (const auto joined = joined_sums(inside, vars)) return mul(out, *joined);
  PolyId body = integer(1);
  std::vector<PolyId> parts;
  for (const Factor& f : inside) {
    parts.push_back(of_factor(f.atom, f.power));
    if (parts.back() < 0) return kPoison;
  }
  bool empty;
  auto step = index_step(vars, uses_of(parts), inside, &empty);
  if (!step && !empty) step = joined_number(vars, parts);
  if (step) {
    Memo memo;
    for (PolyId p : parts) body = mul(body, subst(p, step->second, memo));
    return mul(out, sum(body, step->first));
  }
  if (empty) return integer(0);

  // Connected components: factors that share an index.
  std::vector<size_t> group(vars.size());
  std::iota(group.begin(), group.end(), size_t{0});
  for (const Factor& f : inside) {
    size_t first = vars.size();
    for (size_t i = 0; i < vars.size(); i++) {
      if (!std::binary_search(atom_vars(f.atom).begin(), atom_vars(f.atom).end(), vars[i])) continue;
      if (first == vars.size()) { first = group[i]; continue; }
      const size_t from = group[i];
      for (size_t& g : group) if (g == from) g = first;
    }
  }
  PolyId result = out;
  for (size_t g = 0; g < vars.size(); g++) {
    std::vector<VarId> mine;
    for (size_t i = 0; i < vars.size(); i++) if (group[i] == g) mine.push_back(vars[i]);
    if (mine.empty()) continue;
    Factors f;
    for (const Factor& x : inside) if (meets(atom_vars(x.atom), mine)) f.push_back(x);
    result = mul(result, canonical_sum(mine, f));
  }
  return result;
}

VarMap Terms::bound_names(const std::vector<VarId>& order, int height, std::vector<VarId>* names) {
  VarMap map;
  names->clear();
  for (size_t i = 0; i < order.size(); i++) {
    names->push_back(idx.make_var(VarKind::kBound, height, static_cast<int32_t>(i), idx.var(order[i]).extent));
    map[order[i]] = idx.of_var(names->back());
  }
  return map;
}

PolyId Terms::canonical_sum(const std::vector<VarId>& over, const Factors& inside) {
  int height = 0;
  std::vector<PolyId> parts;
  for (const Factor& f : inside) {
    height = std::max(height, atoms_[static_cast<size_t>(f.atom)].height);
    parts.push_back(of_factor(f.atom, f.power));
    if (parts.back() < 0) return kPoison;
  }
  std::optional<std::pair<std::vector<int64_t>, Rational>> best;
  for (const std::vector<VarId>& order : canonical_orders(over, parts)) {
    std::vector<VarId> names;
    const VarMap map = bound_names(order, height + 1, &names);
    Memo memo;
    PolyId p = integer(1);
    for (PolyId q : parts) p = mul(p, subst(q, map, memo));
    if (p < 0) return kPoison;
    if (terms(p).size() != 1) return poison("a sum changes its form when its indices are renamed");
    std::vector<int64_t> d{static_cast<int64_t>(names.size())};
    d.insert(d.end(), names.begin(), names.end());
    for (const Factor& f : factors(terms(p)[0].mono)) d.insert(d.end(), {f.atom, f.power.n, f.power.d});
    if (!best || d < best->first) best = {std::move(d), terms(p)[0].coef};
  }
  return scale(single(atom(AtomKind::kSum, std::move(best->first))), best->second);
}

std::optional<PolyId> Terms::max_in_pieces(PolyId x, PolyId condition, const std::vector<VarId>& over) {
  for (VarId v : over) {
    const auto cut = split_at_.find(idx.var(v).extent);
    if (cut == split_at_.end()) continue;
    PolyId out = kPoison;
    std::vector<int64_t> ends(cut->second.begin(), cut->second.end());
    ends.push_back(idx.var(v).extent);
    std::vector<VarId> left = over;
    std::erase(left, v);
    for (int64_t from = 0; int64_t to : ends) {
      const VarId n = temp(to - from);
      std::vector<VarId> inner = left;
      if (to - from > 1) inner.push_back(n);
      const VarMap map{{v, idx.add(idx.of_var(n), idx.constant(from))}};
      const PolyId piece = max_over(subst(x, map), subst(condition, map), inner);
      out = from == 0 ? piece : max(out, piece);
      if (out < 0) return kPoison;
      from = to;
    }
    return out;
  }
  return std::nullopt;
}

PolyId Terms::max_over(PolyId x, PolyId condition, std::vector<VarId> over) {
  if (x < 0 || condition < 0) return kPoison;
  if (const auto in_pieces = max_in_pieces(x, condition, over)) return *in_pieces;
  PolyId f = x, c = condition;
  for (;;) {
    if (f < 0 || c < 0 || !spend()) return kPoison;
    const Split s = split(f);
    c = mul(c, s.condition);
    f = under(s.finite, c);
    if (f < 0 || c < 0) return kPoison;
    if (auto n = as_number(c); n && n->is_zero()) return masked(integer(0), integer(0));
    const std::vector<VarId> free = merge_sorted(vars(f), vars(c));
    std::erase_if(over, [&](VarId v) { return !std::binary_search(free.begin(), free.end(), v); });
    if (over.empty()) return masked(f, c);
    const std::vector<Term> t = terms(f);
    if (t.size() == 1 && t[0].coef.is(1) && factors(t[0].mono).size() == 1) {   // a maximum of maxima
      const Factor top = factors(t[0].mono)[0];
      if (kind(top.atom) == AtomKind::kMaxOver && top.power == Power{1, 1}) {
        const std::vector<int64_t> d = data(top.atom);
        const auto n = static_cast<size_t>(d[0]);
        VarMap map;
        for (size_t i = 1; i <= n; i++) {
          over.push_back(temp(idx.var(static_cast<VarId>(d[i])).extent));
          map[static_cast<VarId>(d[i])] = idx.of_var(over.back());
        }
        Memo memo;
        c = mul(c, subst(static_cast<PolyId>(d[n + 1]), map, memo));
        f = subst(static_cast<PolyId>(d[n + 2]), map, memo);
        continue;
      }
    }
    if (auto fewer = without_free_choice(f, c, over)) {
      c = *fewer;
      continue;
    }
    Factors inside;
    if (terms(c).size() == 1) inside = factors(terms(c)[0].mono);
    bool empty;
    auto step = index_step(over, uses_of({f, c}), inside, &empty);
    if (empty) return masked(integer(0), integer(0));
    if (!step) break;
    Memo memo;
    f = subst(f, step->second, memo);
    c = subst(c, step->second, memo);
    over = step->first;
  }
  // What does not depend on the indices leaves: addends, and positive factors.
  std::vector<Term> fixed, varying;
  for (const Term& t : terms(f)) (meets(monos_[static_cast<size_t>(t.mono)].vars, over) ? varying : fixed).push_back(t);
  const PolyId addend = poly(fixed);
  f = poly(varying);
  const PolyId by = positive_content({f}, over);
  {
    const Unwatched unwatched(*this);
    f = div(f, by);
  }
  if (f < 0) return kPoison;
  if (auto m = max_over_set(f, c, over)) return add(addend, mul(by, *m));
  const PolyId largest = canonical_max(f, c, over);
  return largest < 0 ? kPoison : add(addend, mul(by, largest));
}

PolyId Terms::canonical_max(PolyId f, PolyId c, const std::vector<VarId>& over) {
  const int height = 1 + std::max(poly_at(f).height, poly_at(c).height);
  std::optional<std::vector<int64_t>> best;
  for (const std::vector<VarId>& order : canonical_orders(over, {f, c})) {
    std::vector<VarId> names;
    const VarMap map = bound_names(order, height, &names);
    Memo memo;
    std::vector<int64_t> d{static_cast<int64_t>(names.size())};
    d.insert(d.end(), names.begin(), names.end());
    const PolyId cc = subst(c, map, memo), ff = subst(f, map, memo);
    if (cc < 0 || ff < 0) return kPoison;
    d.push_back(cc);
    d.push_back(ff);
    if (!best || d < *best) best = std::move(d);
  }
  return single(atom(AtomKind::kMaxOver, std::move(*best)));
}

/// The largest over indices of the larger of several values is the largest of their largest.
std::optional<PolyId> Terms::max_over_set(PolyId f, PolyId c, const std::vector<VarId>& over) {
  const std::vector<Term> t = terms(f);
  if (t.size() != 1 || t[0].coef.n < 0) return std::nullopt;
  Factors beside = factors(t[0].mono);
  const auto it = std::find_if(beside.begin(), beside.end(), [&](const Factor& x) {
    return kind(x.atom) == AtomKind::kMaxSet && x.power == Power{1, 1};
  });
  if (it == beside.end()) return std::nullopt;
  const std::vector<int64_t> args = data(it->atom);
  beside.erase(it);
  if (!std::all_of(beside.begin(), beside.end(), [&](const Factor& x) { return is_nonnegative(x.atom); })) return std::nullopt;
  const PolyId by = product(t[0].coef, beside);
  PolyId out = kPoison;
  for (size_t i = 0; i < args.size(); i++) {
    const PolyId one = max_over(mul(by, static_cast<PolyId>(args[i])), c, over);
    out = i ? max(out, one) : one;
    if (out < 0) return kPoison;
  }
  return out;
}

/// c without an index that only conditions have, each with a factor of 1 or -1: some value of it fulfils all if every lower bound is at
/// most every upper one.
std::optional<PolyId> Terms::without_free_choice(PolyId f, PolyId c, const std::vector<VarId>& over) {
  if (terms(c).size() != 1 || !terms(c)[0].coef.is(1)) return std::nullopt;
  const Factors all = factors(terms(c)[0].mono);
  for (VarId v : over) {
    if (std::binary_search(vars(f).begin(), vars(f).end(), v)) continue;
    std::vector<IdxId> lower{idx.constant(0)}, upper{idx.constant(idx.var(v).extent - 1)};
    Factors kept;
    bool fits = true;
    for (const Factor& x : all) {
      if (!std::binary_search(atom_vars(x.atom).begin(), atom_vars(x.atom).end(), v)) { kept.push_back(x); continue; }
      const IdxId e = kind(x.atom) == AtomKind::kGe0 && x.power == Power{1, 1} ? static_cast<IdxId>(data(x.atom)[0]) : idx.constant(0);
      const int64_t k = idx.coefficient(e, v);
      const IdxId rest = idx.add(e, idx.of_var(v), -k);
      fits = fits && (k == 1 || k == -1) && !std::binary_search(idx.vars(rest).begin(), idx.vars(rest).end(), v);
      if (!fits) break;
      if (k == 1) lower.push_back(idx.scale(rest, -1));   // v >= -rest
      else upper.push_back(rest);                         // v <= rest
    }
    if (!fits || kept.size() == all.size()) continue;
    PolyId out = of_factors(kept);
    for (IdxId l : lower)
      for (IdxId u : upper) out = mul(out, ge0(idx.add(u, l, -1)));
    return out;
  }
  return std::nullopt;
}

// ---- the canonical order of summed indices: by colour refinement; those that still look alike are tried in every order

uint64_t Terms::shape_index(IdxId x, const std::map<VarId, uint64_t>& colours) const {
  const std::vector<VarId>& free = idx.vars(x);
  if (std::none_of(free.begin(), free.end(), [&](VarId v) { return colours.contains(v); }))
    return hash_combine(1, static_cast<uint64_t>(x));
  const Affine& a = idx.affine(x);
  uint64_t h = mix64(static_cast<uint64_t>(a.constant) ^ 2);
  for (auto [t, c] : a.terms) {
    const IdxAtom& s = idx.atom(t);
    auto it = colours.find(s.var);
    const uint64_t of = s.var < 0             ? hash_combine(hash_combine(3, static_cast<uint64_t>(s.by)), shape_index(s.of, colours))
                        : it != colours.end() ? it->second
                                              : hash_combine(4, static_cast<uint64_t>(s.var));
    h += hash_combine(of, static_cast<uint64_t>(c));   // a sum: the order of terms says nothing
  }
  return mix64(h);
}

uint64_t Terms::shape_atom(AtomId id, const std::map<VarId, uint64_t>& colours, std::map<int64_t, uint64_t>& memo) const {
  const Atom& a = atoms_[static_cast<size_t>(id)];
  if (std::none_of(a.vars.begin(), a.vars.end(), [&](VarId v) { return colours.contains(v); }))
    return hash_combine(11, static_cast<uint64_t>(id));
  const int64_t key = -1 - static_cast<int64_t>(id);
  if (auto it = memo.find(key); it != memo.end()) return it->second;
  uint64_t h = mix64(20 + static_cast<uint64_t>(a.kind));
  auto ordered = [&](uint64_t x) { h = hash_combine(h, x); };
  auto index = [&](int64_t x) { return shape_index(static_cast<IdxId>(x), colours); };
  auto below = [&](int64_t x) { return shape(static_cast<PolyId>(x), colours, memo); };
  const std::vector<int64_t>& d = a.data;
  switch (a.kind) {
    case AtomKind::kInput:
      ordered(static_cast<uint64_t>(d[0]));
      for (size_t i = 1; i < d.size(); i++) ordered(index(d[i]));
      break;
    case AtomKind::kIndex: {
      const IdxAtom& s = idx.atom(static_cast<IdxAtomId>(d[0]));
      ordered(s.var >= 0 ? colours.at(s.var) : hash_combine(static_cast<uint64_t>(s.by), shape_index(s.of, colours)));
      break;
    }
    case AtomKind::kGe0: ordered(index(d[0])); break;
    case AtomKind::kExp: case AtomKind::kBase: case AtomKind::kMask: ordered(below(d[0])); break;
    case AtomKind::kCut:
      ordered(static_cast<uint64_t>(d[0]));
      for (size_t i = 2; i < d.size(); i += 2) ordered(index(d[i]));
      break;
    case AtomKind::kFn:
      ordered(static_cast<uint64_t>(d[0]));
      ordered(static_cast<uint64_t>(d[1]));
      for (size_t i = 2; i < d.size(); i++) ordered(below(d[i]));
      break;
    case AtomKind::kMaxSet: { uint64_t s = 0; for (int64_t x : d) s += mix64(below(x)); ordered(s); break; }
    case AtomKind::kMaxOver: case AtomKind::kRunning: case AtomKind::kSum: {
      // Bound indices of inner terms: only their extents are told; a coarser shape costs orders to try, nothing else.
      std::map<VarId, uint64_t> inner = colours;
      const size_t n = a.kind == AtomKind::kRunning ? 1 : static_cast<size_t>(d[0]), first = a.kind == AtomKind::kRunning ? 0 : 1;
      for (size_t i = first; i < first + n; i++)
        inner[static_cast<VarId>(d[i])] = hash_combine(77, static_cast<uint64_t>(idx.var(static_cast<VarId>(d[i])).extent));
      std::map<int64_t, uint64_t> fresh;
      if (a.kind == AtomKind::kSum) {
        uint64_t s = 0;
        for (size_t i = n + 1; i < d.size(); i += 3)
          s += hash_combine(hash_combine(shape_atom(static_cast<AtomId>(d[i]), inner, fresh), static_cast<uint64_t>(d[i + 1])),
                            static_cast<uint64_t>(d[i + 2]));
        ordered(s);
      } else if (a.kind == AtomKind::kMaxOver) {
        ordered(shape(static_cast<PolyId>(d[n + 1]), inner, fresh));
        ordered(shape(static_cast<PolyId>(d[n + 2]), inner, fresh));
      } else {
        ordered(index(d[1]));
        ordered(shape(static_cast<PolyId>(d[2]), inner, fresh));
      }
      break;
    }
    case AtomKind::kLiteral: case AtomKind::kNumber: break;
  }
  memo[key] = h;
  return h;
}

uint64_t Terms::shape(PolyId p, const std::map<VarId, uint64_t>& colours, std::map<int64_t, uint64_t>& memo) const {
  const Poly& x = poly_at(p);
  if (std::none_of(x.vars.begin(), x.vars.end(), [&](VarId v) { return colours.contains(v); }))
    return hash_combine(12, static_cast<uint64_t>(p));
  if (auto it = memo.find(p); it != memo.end()) return it->second;
  uint64_t h = 0;
  for (const Term& t : x.terms) {
    uint64_t m = 31;   // coefficients are left out: bases are normalised by the order of ids, which renaming changes
    for (const Factor& f : factors(t.mono))
      m +=
          hash_combine(shape_atom(f.atom, colours, memo), hash_combine(static_cast<uint64_t>(f.power.n), static_cast<uint64_t>(f.power.d)));
    h += mix64(m);
  }
  h = mix64(h);
  memo[p] = h;
  return h;
}

std::vector<std::vector<VarId>> Terms::canonical_orders(const std::vector<VarId>& over, const std::vector<PolyId>& parts) {
  std::map<VarId, uint64_t> colours;
  for (VarId v : over) colours[v] = hash_combine(5, static_cast<uint64_t>(idx.var(v).extent));
  if (over.size() > 1) {
    for (int round = 0; round < 3; round++) {
      std::map<VarId, uint64_t> next;
      for (VarId v : over) {
        std::map<VarId, uint64_t> marked = colours;
        marked[v] = hash_combine(colours[v], 0x6D61726B);
        std::map<int64_t, uint64_t> memo;
        uint64_t h = colours[v];
        for (PolyId p : parts) h += mix64(shape(p, marked, memo));   // parts of a product have no order; of a maximum they are of two kinds
        next[v] = mix64(h);
      }
      colours = std::move(next);
    }
  }
  std::vector<VarId> order = over;
  std::sort(order.begin(), order.end(), [&](VarId a, VarId b) { return colours[a] != colours[b] ? colours[a] < colours[b] : a < b; });
  size_t count = 1;
  for (size_t i = 0, run = 1; i + 1 < order.size(); i++) {
    run = colours[order[i]] == colours[order[i + 1]] ? run + 1 : 1;
    count = std::min(count * run, kMostOrders + 1);
  }
  std::vector<std::vector<VarId>> out{order};
  if (count == 1 || count > kMostOrders) return out;
  // Next permutation within runs of equal colour, as an odometer.
  for (;;) {
    size_t first = 0;
    bool more = false;
    while (first < order.size()) {
      size_t last = first + 1;
      while (last < order.size() && colours[order[last]] == colours[order[first]]) last++;
      const auto begin = order.begin() + static_cast<std::ptrdiff_t>(first), end = order.begin() + static_cast<std::ptrdiff_t>(last);
      if (std::next_permutation(begin, end)) { more = true; break; }
      first = last;
    }
    if (!more) return out;
    out.push_back(order);
  }
}

}  // namespace mirage::verify
