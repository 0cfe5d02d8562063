// Index arithmetic of region kernels (region_index.h).
#include "plan/region/region_index.h"

#include <algorithm>

namespace mirage {

int64_t Affine::coefficient(int var) const {
  for (const auto& [v, c] : terms)
    if (v == var) return c;
  return 0;
}

Affine operator+(const Affine& a, const Affine& b) {
  Affine out{a.constant + b.constant, {}};
  size_t i = 0, j = 0;
  while (i < a.terms.size() || j < b.terms.size()) {
    if (j == b.terms.size() || (i < a.terms.size() && a.terms[i].first < b.terms[j].first)) out.terms.push_back(a.terms[i++]);
    else if (i == a.terms.size() || b.terms[j].first < a.terms[i].first) out.terms.push_back(b.terms[j++]);
    else {
      const int64_t c = a.terms[i].second + b.terms[j].second;
      if (c) out.terms.push_back({a.terms[i].first, c});
      i++, j++;
    }
  }
  return out;
}

Affine operator*(const Affine& a, int64_t c) {
  if (c == 0) return {};
  Affine out = a;
  out.constant *= c;
  for (auto& t : out.terms) t.second *= c;
  return out;
}

Affine substitute(const Affine& a, const std::vector<Affine>& image) {
  Affine out = affine(a.constant);
  for (const auto& [v, c] : a.terms) out = out + image[static_cast<size_t>(v)] * c;
  return out;
}

int VarTable::add_loop(int64_t extent, IndexVar::Kind kind) {
  IndexVar v;
  v.kind = kind;
  v.extent = extent;
  v.on_lane = kind == IndexVar::Kind::kLane;
  vars.push_back(v);
  return static_cast<int>(vars.size()) - 1;
}

int64_t VarTable::max_of(const Affine& a) const {
  int64_t x = a.constant;
  for (const auto& [v, c] : a.terms)
    if (c > 0) x += c * (vars[static_cast<size_t>(v)].extent - 1);
  return x;
}

int64_t VarTable::min_of(const Affine& a) const {
  int64_t x = a.constant;
  for (const auto& [v, c] : a.terms)
    if (c < 0) x += c * (vars[static_cast<size_t>(v)].extent - 1);
  return x;
}

bool VarTable::on_lane(const Affine& a) const {
  return std::any_of(a.terms.begin(), a.terms.end(), [&](const auto& t) { return vars[static_cast<size_t>(t.first)].on_lane; });
}

std::optional<std::pair<Affine, Affine>> VarTable::split(const Affine& a, int64_t m) const {
  Affine q, r;
  const int64_t low = ((a.constant % m) + m) % m;
  q.constant = a.constant - low;
  r.constant = low;
  for (const auto& t : a.terms) (t.second % m == 0 ? q : r).terms.push_back(t);
  if (min_of(r) < 0 || max_of(r) >= m) return std::nullopt;
  return std::pair{q, r};
}

int VarTable::divmod_var(IndexVar::Kind kind, const Affine& a, int64_t m, int64_t extent) {
  for (size_t i = 0; i < vars.size(); i++)
    if (vars[i].kind == kind && vars[i].divisor == m && vars[i].arg == a) return static_cast<int>(i);
  IndexVar v;
  v.kind = kind;
  v.arg = a;
  v.divisor = m;
  v.extent = kind == IndexVar::Kind::kMod ? std::min(m, extent) : (extent + m - 1) / m;
  v.on_lane = on_lane(a);
  vars.push_back(v);
  return static_cast<int>(vars.size()) - 1;
}

/// The largest divisor of m that divides all but a remainder in [0, divisor): a = g*q + r, so a / m = q / (m/g) and a % m = g * (q % (m/g))
/// + r.
static std::vector<int64_t> divisors_descending(int64_t m) {
  std::vector<int64_t> out;
  for (int64_t d : {8, 4, 2})
    if (m % d == 0 && m > d) out.push_back(d);
  return out;
}

static Affine exact_div(const Affine& a, int64_t m) {
  Affine out{a.constant / m, {}};
  for (const auto& [v, c] : a.terms) out.terms.push_back({v, c / m});
  return out;
}

Affine VarTable::div(const Affine& a, int64_t m, int64_t extent) {
  if (m == 1) return a;
  if (extent <= m) return {};
  if (auto s = split(a, m)) return exact_div(s->first, m);
  for (int64_t g : divisors_descending(m))   // keeps lanes out of the quotient
    if (auto s = split(a, g); s && !s->second.terms.empty())
      return affine_var(divmod_var(IndexVar::Kind::kDiv, exact_div(s->first, g), m / g, (extent + g - 1) / g));
  return affine_var(divmod_var(IndexVar::Kind::kDiv, a, m, extent));
}

Affine VarTable::mod(const Affine& a, int64_t m, int64_t extent) {
  if (m == 1) return {};
  if (extent <= m) return a;
  if (auto s = split(a, m)) return s->second;
  for (int64_t g : divisors_descending(m))
    if (auto s = split(a, g); s && !s->second.terms.empty())
      return affine_var(divmod_var(IndexVar::Kind::kMod, exact_div(s->first, g), m / g, (extent + g - 1) / g)) * g + s->second;
  return affine_var(divmod_var(IndexVar::Kind::kMod, a, m, extent));
}

Affine VarTable::loaded(int access, const Affine& at, int64_t extent) {
  for (size_t i = 0; i < vars.size(); i++)
    if (vars[i].kind == IndexVar::Kind::kLoaded && vars[i].access == access && vars[i].arg == at && vars[i].extent == extent + 1)
      return affine_var(static_cast<int>(i));
  IndexVar v;
  v.kind = IndexVar::Kind::kLoaded;
  v.arg = at;
  v.access = access;
  v.extent = extent + 1;
  v.on_lane = on_lane(at);
  vars.push_back(v);
  return affine_var(static_cast<int>(vars.size()) - 1);
}

Affine VarTable::recombine(Affine a) const {
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& [v, c] : a.terms) {
      const IndexVar& low = vars[static_cast<size_t>(v)];
      if (low.kind != IndexVar::Kind::kMod) continue;
      for (const auto& [w, d] : a.terms) {
        const IndexVar& high = vars[static_cast<size_t>(w)];
        if (high.kind != IndexVar::Kind::kDiv || high.divisor != low.divisor || !(high.arg == low.arg) || d != c * low.divisor) continue;
        Affine rest = a;
        const int mod = v, div = w;
        std::erase_if(rest.terms, [&](const auto& t) { return t.first == mod || t.first == div; });
        a = rest + low.arg * c;
        changed = true;
        break;
      }
      if (changed) break;
    }
  }
  return a;
}

namespace {

struct Digit { Affine value; int64_t extent, stride; };

/// Cuts digits so that none straddles a stride of the target; false if the factors do not nest.
bool refine(VarTable& table, std::vector<Digit>& digits, const std::vector<int64_t>& strides) {
  for (int64_t s : strides) {
    for (size_t i = 0; i < digits.size(); i++) {
      const Digit d = digits[i];
      if (d.stride >= s || d.stride * d.extent <= s) continue;
      if (s % d.stride) return false;
      const int64_t m = s / d.stride;
      digits[i] = {table.div(d.value, m, d.extent), (d.extent + m - 1) / m, s};
      digits.insert(digits.begin() + static_cast<long>(i) + 1, {table.mod(d.value, m, d.extent), m, d.stride});
    }
  }
  return true;
}

}  // namespace

Index VarTable::reshape(const Index& at, const Dims& from, const Dims& to) {
  std::vector<Digit> digits;
  const Dims to_strides = row_major_strides(to), from_strides = row_major_strides(from);
  Affine linear;
  for (int i = 0; i < to.rank(); i++) {
    if (to[i] == 1) continue;
    digits.push_back({at[static_cast<size_t>(i)], to[i], to_strides[i]});
    linear = linear + at[static_cast<size_t>(i)] * to_strides[i];
  }
  std::vector<int64_t> strides;
  for (int d = 0; d < from.rank(); d++)
    if (from[d] > 1) strides.push_back(from_strides[d]);
  std::vector<Digit> cut = digits;
  const size_t before = vars.size();
  bool nested = refine(*this, cut, strides);
  Index out;
  for (int d = 0; d < from.rank() && nested; d++) {
    Affine x;
    for (const Digit& digit : cut) {
      if (from[d] == 1 || digit.stride < from_strides[d] || digit.stride >= from_strides[d] * from[d]) continue;
      nested = nested && digit.stride % from_strides[d] == 0;
      if (nested) x = x + digit.value * (digit.stride / from_strides[d]);
    }
    out.push_back(x);
  }
  if (nested) return out;
  vars.resize(before);
  out.clear();
  const int64_t total = from.elements();
  for (int d = 0; d < from.rank(); d++) {
    const Affine q = div(linear, from_strides[d], total);
    out.push_back(from[d] == 1 ? Affine{} : mod(q, from[d], (total + from_strides[d] - 1) / from_strides[d]));
  }
  return out;
}

std::optional<Dims> reshape_strides(const Dims& from, const Dims& strides, const Dims& to) {
  std::vector<std::pair<int64_t, int64_t>> runs;   // (extent, stride) of maximal contiguous runs, slowest first
  for (int i = 0; i < from.rank(); i++) {
    if (from[i] == 1) continue;
    if (!runs.empty() && runs.back().second == strides[i] * from[i]) runs.back() = {runs.back().first * from[i], strides[i]};
    else runs.push_back({from[i], strides[i]});
  }
  Dims out = to;
  int64_t left = runs.empty() ? 1 : runs.back().first;   // what is left of the current run, from its fast end
  size_t run = runs.size();
  int64_t step = runs.empty() ? 1 : runs.back().second;
  for (int i = to.rank() - 1; i >= 0; i--) {
    if (to[i] == 1) { out[i] = 0; continue; }
    if (left == 1) {
      if (--run == 0) return std::nullopt;
      left = runs[run - 1].first;
      step = runs[run - 1].second;
    }
    if (left % to[i]) return std::nullopt;
    out[i] = step;
    left /= to[i];
    step *= to[i];
  }
  for (int i = to.rank() - 1; i >= 0; i--)   // extents of 1 get a stride as in a dense tensor: emitters may look at it
    if (to[i] == 1) out[i] = i + 1 < to.rank() ? out[i + 1] * to[i + 1] : 1;
  return out;
}

}  // namespace mirage
