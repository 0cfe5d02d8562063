// Arithmetic on index expressions: quotients are pulled apart as far as ranges allow, ranges follow from the indices' extents. Part of the
// prover (docs/verification.md).
#include "verify/proof/proof_index.h"

#include <algorithm>
#include <numeric>

namespace mirage::verify {

std::vector<VarId> merge_sorted(const std::vector<VarId>& a, const std::vector<VarId>& b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  std::vector<VarId> out;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

VarId Indices::make_var(VarKind kind, int32_t a, int32_t b, int64_t extent) {
  bool fresh;
  const VarId id = var_keys_.intern({static_cast<int64_t>(kind), a, b, extent}, &fresh);
  if (fresh) vars_.push_back({kind, a, b, extent});
  return id;
}

IdxAtomId Indices::intern_atom(const IdxAtom& a) {
  bool fresh;
  const IdxAtomId id = atom_keys_.intern({a.var, a.of, a.by}, &fresh);
  if (fresh) atoms_.push_back(a);
  return id;
}

IdxId Indices::intern(Affine a) {
  std::vector<int64_t> key{a.constant};
  for (auto [t, c] : a.terms) { key.push_back(t); key.push_back(c); }
  bool fresh;
  const IdxId id = affine_keys_.intern(key, &fresh);
  if (!fresh) return id;
  std::vector<VarId> vars;
  for (auto [t, c] : a.terms) {
    const IdxAtom& x = atoms_[static_cast<size_t>(t)];
    vars = merge_sorted(vars, x.var >= 0 ? std::vector<VarId>{x.var} : free_[static_cast<size_t>(x.of)]);
  }
  free_.push_back(std::move(vars));
  ranges_.push_back(range_of(a));
  affines_.push_back(std::move(a));
  return id;
}

IdxId Indices::of_var(VarId v) { return var(v).extent == 1 ? constant(0) : of_atom(intern_atom({v, -1, 0})); }

IdxId Indices::add(IdxId x, IdxId y, int64_t factor) {
  if (factor == 0) return x;
  const Affine &a = affine(x), &b = affine(y);
  Affine out;
  out.constant = a.constant + factor * b.constant;
  size_t i = 0, j = 0;
  while (i < a.terms.size() || j < b.terms.size()) {
    if (j == b.terms.size() || (i < a.terms.size() && a.terms[i].first < b.terms[j].first)) { out.terms.push_back(a.terms[i++]); continue; }
    if (i == a.terms.size() || b.terms[j].first < a.terms[i].first) {
      out.terms.emplace_back(b.terms[j].first, factor * b.terms[j].second);
      j++;
      continue;
    }
    if (const int64_t c = a.terms[i].second + factor * b.terms[j].second) out.terms.emplace_back(a.terms[i].first, c);
    i++, j++;
  }
  return intern(std::move(out));
}

std::pair<int64_t, int64_t> Indices::atom_range(IdxAtomId a) const {
  const IdxAtom& x = atom(a);
  if (x.var >= 0) return {0, var(x.var).extent - 1};
  const auto [lo, hi] = range(x.of);
  return {floor_div(lo, x.by), floor_div(hi, x.by)};
}

std::pair<int64_t, int64_t> Indices::range_of(const Affine& a) const {
  Affine rest = a;
  int64_t lo = a.constant, hi = a.constant;
  // k (E - c (E div c)) is k times a remainder, in [0, c): where both stand there, bound them together.
  for (auto [t, c] : a.terms) {
    const IdxAtom& x = atom(t);
    if (x.var >= 0 || c % x.by != 0) continue;
    const int64_t k = -c / x.by;
    const Affine& inner = affine(x.of);
    auto coef = [&](IdxAtomId id) -> int64_t { for (auto [s, d] : rest.terms) if (s == id) return d; return 0; };
    bool all = !inner.terms.empty();
    for (auto [s, d] : inner.terms) {
      const int64_t have = coef(s), want = k * d;
      all = all && (want > 0 ? have >= want : have <= want);
    }
    if (!all) continue;
    for (auto& [s, d] : rest.terms) {
      if (s == t) { d -= c; continue; }
      for (auto [u, e] : inner.terms) if (u == s) d -= k * e;
    }
    lo -= k * inner.constant;
    hi -= k * inner.constant;
    (k > 0 ? hi : lo) += k * (x.by - 1);
  }
  for (auto [t, c] : rest.terms) {
    if (c == 0) continue;
    const auto [l, h] = atom_range(t);
    lo += c * (c > 0 ? l : h);
    hi += c * (c > 0 ? h : l);
  }
  return {lo, hi};
}

IdxId Indices::div(IdxId x, int64_t by) {
  if (by == 1) return x;
  // What is a multiple of `by` leaves.
  Affine whole, rest;
  const Affine a = affine(x);
  whole.constant = floor_div(a.constant, by);
  rest.constant = a.constant - whole.constant * by;
  for (auto [t, c] : a.terms) {
    const int64_t q = c > 0 ? c / by : -((-c + by - 1) / by), r = c - q * by;   // floor, so that rests are not negative
    if (q) whole.terms.emplace_back(t, q);
    if (r) rest.terms.emplace_back(t, r);
  }
  const IdxId outside = intern(std::move(whole));
  const auto [lo, hi] = range_of(rest);
  if (floor_div(lo, by) == floor_div(hi, by)) return add(outside, constant(floor_div(lo, by)));
  // floor((g H + L) / by) = floor(H / (by / g)) if g divides by and 0 <= L < g.
  std::vector<int64_t> candidates;
  for (auto [t, c] : rest.terms) if (c > 1 && by % c == 0) candidates.push_back(c);
  std::sort(candidates.rbegin(), candidates.rend());
  for (int64_t g : candidates) {
    Affine high, low;
    low.constant = ((rest.constant % g) + g) % g;
    high.constant = (rest.constant - low.constant) / g;
    for (auto [t, c] : rest.terms) (c % g == 0 ? high : low).terms.emplace_back(t, c % g == 0 ? c / g : c);
    const auto [l, h] = range_of(low);
    if (l >= 0 && h < g) return add(outside, div(intern(std::move(high)), by / g));
  }
  if (rest.terms.size() == 1 && rest.terms[0].second == 1 && rest.constant == 0)
    if (const IdxAtom inner = atom(rest.terms[0].first); inner.var < 0 && inner.by < (int64_t{1} << 40) / by)
      return add(outside, div(inner.of, inner.by * by));
  return add(outside, of_atom(intern_atom({-1, intern(std::move(rest)), by})));
}

IdxId Indices::subst(IdxId x, const VarMap& map) {
  const std::vector<VarId>& free = vars(x);
  if (std::none_of(free.begin(), free.end(), [&](VarId v) { return map.contains(v); })) return x;
  const Affine a = affine(x);
  IdxId out = constant(a.constant);
  for (auto [t, c] : a.terms) {
    const IdxAtom s = atom(t);
    if (s.var >= 0) {
      auto it = map.find(s.var);
      out = add(out, it == map.end() ? of_atom(t) : it->second, c);
    } else {
      out = add(out, div(subst(s.of, map), s.by), c);
    }
  }
  return out;
}

IdxId Indices::ge0_form(IdxId x) {
  Affine a = affine(x);
  int64_t g = 0;
  for (auto [t, c] : a.terms) g = std::gcd(g, c);
  if (g <= 1) return x;
  for (auto& [t, c] : a.terms) c /= g;
  a.constant = floor_div(a.constant, g);
  return intern(std::move(a));
}

int64_t Indices::coefficient(IdxId x, VarId v) const {
  for (auto [t, c] : affine(x).terms)
    if (atom(t).var == v) return c;
  return 0;
}

void Indices::collect(IdxId x, std::vector<IdxId>& out) const {
  if (vars(x).empty()) return;
  out.push_back(x);
  for (auto [t, c] : affine(x).terms)
    if (atom(t).var < 0) collect(atom(t).of, out);
}

std::string Indices::print(IdxId x, const std::map<VarId, std::string>& names) const {
  const Affine& a = affine(x);
  std::string out;
  for (auto [t, c] : a.terms) {
    const IdxAtom& s = atom(t);
    auto name = names.find(s.var);
    const std::string text = s.var < 0             ? "(" + print(s.of, names) + " div " + std::to_string(s.by) + ")"
                             : name != names.end() ? name->second
                                                   : "v" + std::to_string(s.var);
    if (!out.empty()) out += c < 0 ? "-" : "+";
    else if (c < 0) out += "-";
    if (c != 1 && c != -1) out += std::to_string(c < 0 ? -c : c) + "*";
    out += text;
  }
  if (out.empty()) return std::to_string(a.constant);
  if (a.constant) out += (a.constant < 0 ? "-" : "+") + std::to_string(a.constant < 0 ? -a.constant : a.constant);
  return out;
}

}  // namespace mirage::verify
