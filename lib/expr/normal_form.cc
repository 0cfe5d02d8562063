// Arithmetic on normal forms (docs/pruning.md): sums merge, products multiply out, quotients are found by leading terms. Theory: OSDI'25
// section 4.3, decided instead of asked.
#include "expr/normal_form.h"
#include <bit>
#include <cmath>

namespace mirage::expr_internal {
namespace {

uint64_t bloom(int32_t tag, uint64_t x) { return uint64_t{1} << (hash_combine(static_cast<uint64_t>(tag), x) >> 58); }
constexpr int32_t kTagSum = 100, kTagExp = 101, kTagSqrt = 102, kTagDiv = 103, kTagMax = 104, kTagFactor = 105;

}  // namespace

NormalForms::NormalForms() {
  seqs_.intern({});
  intern_mono({});
  intern_poly({});
  const MonoId unit = kUnit;
  intern_poly({&unit, 1});
  const int32_t key[] = {static_cast<int32_t>(FactorKind::kMinusOne), 0, 0, 0};
  minus_one_ = factors_.intern(key);
  factor_info_.push_back({1, bloom(kTagFactor, static_cast<uint64_t>(minus_one_))});
}

Factor NormalForms::factor(FactorId f) const {
  const std::span<const int32_t> s = factors_[f];
  return {static_cast<FactorKind>(s[0]),
          static_cast<uint64_t>(static_cast<uint32_t>(s[1])) | static_cast<uint64_t>(static_cast<uint32_t>(s[2])) << 32, s[3],
          s.subspan(4)};
}

// ---- interning

MonoId NormalForms::intern_mono(const Monomial& m) {
  const int32_t key[] = {m.k, m.f, m.e, m.q, m.d};
  const MonoId id = mono_keys_.intern(key);
  if (id < static_cast<MonoId>(monos_.size())) return id;
  MonoInfo info{1, 0};
  for (int32_t s : seqs_[m.k]) { ++info.weight; info.signature |= bloom(kTagSum, static_cast<uint64_t>(s)); }
  for (FactorId f : seqs_[m.f]) {
    info.weight += factor_info_[static_cast<size_t>(f)].weight;
    info.signature |= factor_info_[static_cast<size_t>(f)].signature;
  }
  const auto nested = [&](PolyId p, PolyId absent, int32_t tag) {
    if (p == absent) return;
    info.weight += poly_info_[static_cast<size_t>(p)].weight;
    info.signature |= poly_info_[static_cast<size_t>(p)].signature | bloom(tag, 0);
  };
  nested(m.e, kZero, kTagExp);
  nested(m.q, kOne, kTagSqrt);
  nested(m.d, kOne, kTagDiv);
  monos_.push_back(m);
  mono_info_.push_back(info);
  return id;
}

PolyId NormalForms::intern_poly(std::span<const MonoId> sorted) {
  if (sorted.size() > kMaxMonomials) return kNone;
  PolyInfo info{0, 0};
  for (MonoId m : sorted) {
    info.weight += mono_info_[static_cast<size_t>(m)].weight;
    info.signature |= mono_info_[static_cast<size_t>(m)].signature;
    if (info.weight > kMaxWeight) return kNone;
  }
  const PolyId id = polys_.intern(sorted);
  if (id == static_cast<PolyId>(poly_info_.size())) poly_info_.push_back(info);
  return id;
}

bool NormalForms::single_factor(PolyId p, FactorId* f) const {
  const std::span<const MonoId> ms = polys_[p];
  if (ms.size() != 1) return false;
  const Monomial& m = monomial(ms[0]);
  if (m.k != 0 || m.e != kZero || m.q != kOne || m.d != kOne || seqs_[m.f].size() != 1) return false;
  *f = seqs_[m.f][0];
  return true;
}

// ---- multisets, stored descending

SeqId NormalForms::merge(SeqId a, SeqId b) {
  if (a == 0 || b == 0) return a + b;
  const auto x = seqs_[a], y = seqs_[b];
  std::vector<int32_t> out(x.size() + y.size());
  std::merge(x.begin(), x.end(), y.begin(), y.end(), out.begin(), std::greater<>());
  return seqs_.intern(out);
}

SeqId NormalForms::difference(SeqId a, SeqId b) {
  if (b == 0) return a;
  if (a == b) return 0;
  const auto x = seqs_[a], y = seqs_[b];
  if (y.size() >= x.size()) return kNone;
  std::vector<int32_t> out;
  size_t j = 0;
  for (int32_t v : x)
    if (j < y.size() && y[j] == v) ++j;
    else out.push_back(v);
  return j == y.size() ? seqs_.intern(out) : kNone;
}

PolyId NormalForms::poly_difference(PolyId a, PolyId b) {
  if (b == kZero) return a;
  if (a == b) return kZero;
  const auto x = polys_[a], y = polys_[b];
  if (y.size() >= x.size()) return kNone;
  std::vector<MonoId> out;
  size_t j = 0;
  for (MonoId m : x)
    if (j < y.size() && y[j] == m) ++j;
    else out.push_back(m);
  return j == y.size() ? intern_poly(out) : kNone;
}

// ---- the order. Lexicographic over the parts; multisets and polynomials by their first difference, leading first, a proper prefix being
// smaller. On polynomials this is "the difference has a positive leading coefficient", which sums and products with a polynomial preserve.

int NormalForms::compare_seq(SeqId a, SeqId b) const {
  if (a == b) return 0;
  const auto x = seqs_[a], y = seqs_[b];
  return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end()) ? -1 : 1;
}

int NormalForms::compare_mono(MonoId a, MonoId b) const {
  if (a == b) return 0;
  const Monomial &x = monomial(a), &y = monomial(b);
  if (int c = compare_seq(x.f, y.f)) return c;
  if (int c = compare_seq(x.k, y.k)) return c;
  if (int c = compare_poly(x.e, y.e)) return c;
  if (int c = compare_poly(x.q, y.q)) return c;
  return compare_poly(x.d, y.d);
}

int NormalForms::compare_poly(PolyId a, PolyId b) const {
  if (a == b) return 0;
  const auto x = polys_[a], y = polys_[b];
  for (size_t i = 0; i < x.size() && i < y.size(); ++i)
    if (int c = compare_mono(x[i], y[i])) return c;
  return x.size() < y.size() ? -1 : 1;
}

// ---- products and quotients

MonoId NormalForms::mul_mono(MonoId a, MonoId b) {
  if (a == kNone || b == kNone) return kNone;
  if (a == kUnit || b == kUnit) return a + b;
  if (a > b) std::swap(a, b);
  const uint64_t key = pair_key(a, b);
  if (const int32_t* hit = mul_mono_memo_.find(key)) return *hit;
  const Monomial x = monomial(a), y = monomial(b);
  const Monomial m{merge(x.k, y.k), merge(x.f, y.f), add(x.e, y.e), mul(x.q, y.q), mul(x.d, y.d)};
  const MonoId id = m.e == kNone || m.q == kNone || m.d == kNone ? kNone : intern_mono(m);
  mul_mono_memo_.insert(key, id);
  return id;
}

MonoId NormalForms::div_mono(MonoId a, MonoId b) {
  if (b == kUnit) return a;
  if (a == b) return kUnit;
  const uint64_t key = pair_key(a, b);
  if (const int32_t* hit = div_mono_memo_.find(key)) return *hit;
  const Monomial x = monomial(a), y = monomial(b);
  Monomial m;
  MonoId id = kNone;
  // A context that divides by, or takes the root of, sum(i, 1) alone cannot be built: sum() makes that an extent. Without this a whole
  // sum's root would hold the roots of all its partial sums.
  if ((m.k = difference(x.k, y.k)) != kNone && (m.f = difference(x.f, y.f)) != kNone && (m.e = poly_difference(x.e, y.e)) != kNone &&
      (m.q = div_exact(x.q, y.q)) != kNone && (m.d = div_exact(x.d, y.d)) != kNone && !is_count(m.q) && !is_count(m.d))
    id = intern_mono(m);
  div_mono_memo_.insert(key, id);
  return id;
}

bool NormalForms::is_count(PolyId p) const {
  const std::span<const MonoId> ms = polys_[p];
  if (ms.size() != 1 || ms[0] == kUnit) return false;
  const Monomial& m = monomial(ms[0]);
  return m.f == 0 && m.e == kZero && m.q == kOne && m.d == kOne;
}

PolyId NormalForms::times(PolyId p, MonoId m) {
  if (p == kNone || m == kNone) return kNone;
  if (m == kUnit) return p;
  const auto x = polys_[p];
  std::vector<MonoId> out(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    if ((out[i] = mul_mono(x[i], m)) == kNone) return kNone;
  return intern_poly(out);
}

PolyId NormalForms::add(PolyId x, PolyId y) {
  if (x == kNone || y == kNone) return kNone;
  if (x == kZero || y == kZero) return x + y;
  if (x > y) std::swap(x, y);
  const uint64_t key = pair_key(x, y);
  if (const int32_t* hit = add_memo_.find(key)) return *hit;
  const auto a = polys_[x], b = polys_[y];
  std::vector<MonoId> out(a.size() + b.size());
  std::merge(a.begin(), a.end(), b.begin(), b.end(), out.begin(), [this](MonoId m, MonoId n) { return compare_mono(m, n) > 0; });
  const PolyId id = intern_poly(out);
  add_memo_.insert(key, id);
  return id;
}

PolyId NormalForms::mul(PolyId x, PolyId y) {
  if (x == kNone || y == kNone) return kNone;
  if (x == kOne) return y;
  if (y == kOne) return x;
  if (x > y) std::swap(x, y);
  const uint64_t key = pair_key(x, y);
  if (const int32_t* hit = mul_memo_.find(key)) return *hit;
  const PolyId id = mul_slow(x, y);
  mul_memo_.insert(key, id);
  return id;
}

PolyId NormalForms::mul_slow(PolyId x, PolyId y) {
  const auto a = polys_[x], b = polys_[y];
  if (a.size() * b.size() > kMaxMonomials) return kNone;
  if (b.size() == 1) return times(x, b[0]);
  if (a.size() == 1) return times(y, a[0]);
  std::vector<MonoId> out;
  out.reserve(a.size() * b.size());
  for (MonoId m : a)
    for (MonoId n : b) {
      const MonoId p = mul_mono(m, n);
      if (p == kNone) return kNone;
      out.push_back(p);
    }
  std::sort(out.begin(), out.end(), [this](MonoId m, MonoId n) { return compare_mono(m, n) > 0; });
  return intern_poly(out);
}

PolyId NormalForms::div_exact(PolyId p, PolyId d) {
  if (d == kOne) return p;
  if (p == d) return kOne;
  const size_t n = polys_[p].size(), k = polys_[d].size();
  // |p| = |d| |r|: nothing cancels
  if (k == 0 || n % k != 0 || info(d).weight > info(p).weight || (info(d).signature & ~info(p).signature) != 0) return kNone;
  const uint64_t key = pair_key(p, d);
  if (const int32_t* hit = div_memo_.find(key)) return *hit;
  const PolyId id = div_slow(p, d);
  div_memo_.insert(key, id);
  return id;
}

PolyId NormalForms::div_slow(PolyId p, PolyId d) {
  const auto divisor = polys_[d];
  std::vector<MonoId> rest(polys_[p].begin(), polys_[p].end()), quotient, next;
  while (!rest.empty()) {
    const MonoId lead = div_mono(rest[0], divisor[0]);
    if (lead == kNone) return kNone;
    quotient.push_back(lead);
    next.clear();
    size_t j = 0;   // divisor * lead is descending like rest, so what is subtracted is met in order
    MonoId want = rest[0];
    for (MonoId m : rest)
      if (j < divisor.size() && m == want) want = ++j < divisor.size() ? mul_mono(divisor[j], lead) : kNone;
      else next.push_back(m);
    if (j < divisor.size()) return kNone;
    rest.swap(next);
  }
  return intern_poly(quotient);
}

// ---- expressions

PolyId NormalForms::symbol(FactorKind kind, uint64_t payload, std::span<const int> extents, std::span<const PolyId> args) {
  std::vector<int32_t> sorted(extents.begin(), extents.end());
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  std::vector<int32_t> key{static_cast<int32_t>(kind), static_cast<int32_t>(payload), static_cast<int32_t>(payload >> 32),
                           seqs_.intern(sorted)};
  MonoInfo info{1 + static_cast<int>(sorted.size()), 0};
  for (PolyId p : args) {
    if (p == kNone) return kNone;
    key.push_back(p);
    info.weight += poly_info_[static_cast<size_t>(p)].weight;
    info.signature |= poly_info_[static_cast<size_t>(p)].signature;
    if (info.weight > kMaxWeight) return kNone;
  }
  const FactorId f = factors_.intern(key);
  if (f == static_cast<FactorId>(factor_info_.size())) {
    if (kind == FactorKind::kReduceMax)   // max({j}, x) lies within max({i, j}, x), so the factor's own identity may not count
      for (int s : sorted) info.signature |= bloom(kTagMax, static_cast<uint64_t>(s));
    else
      info.signature |= bloom(kTagFactor, static_cast<uint64_t>(f));
    factor_info_.push_back(info);
  }
  return single(intern_mono({0, seqs_.intern({&f, 1}), kZero, kOne, kOne}));
}

PolyId NormalForms::div(PolyId x, PolyId y) { return y == kNone ? kNone : times(x, intern_mono({0, 0, kZero, kOne, y})); }
PolyId NormalForms::neg(PolyId x) { return times(x, intern_mono({0, seqs_.intern({&minus_one_, 1}), kZero, kOne, kOne})); }
PolyId NormalForms::exp(PolyId x) { return x == kNone ? kNone : single(intern_mono({0, 0, x, kOne, kOne})); }
PolyId NormalForms::sqrt(PolyId x) { return x == kNone ? kNone : single(intern_mono({0, 0, kZero, x, kOne})); }

PolyId NormalForms::constant(double c) {
  if (std::isnan(c)) return symbol(FactorKind::kLiteral, 0x7ff8000000000000ull, {}, {});
  const double a = std::fabs(c);
  const PolyId p = a == 1 ? kOne : symbol(FactorKind::kLiteral, std::bit_cast<uint64_t>(a), {}, {});
  return c < 0 ? neg(p) : p;
}

PolyId NormalForms::extent(std::span<const int> symbols) {
  PolyId p = kOne;
  for (int s : symbols) p = mul(p, symbol(FactorKind::kExtent, static_cast<uint64_t>(static_cast<int64_t>(s)), {}, {}));
  return p;
}

PolyId NormalForms::sum(PolyId x, std::span<const int> extents) {
  if (x == kOne) return extent(extents);
  std::vector<int32_t> sorted(extents.begin(), extents.end());
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  return times(x, intern_mono({seqs_.intern(sorted), 0, kZero, kOne, kOne}));
}

PolyId NormalForms::reduce_max(PolyId x, std::span<const int> extents) {
  if (x == kNone || extents.empty()) return x;
  std::vector<int> all(extents.begin(), extents.end());
  FactorId inner;
  if (single_factor(x, &inner)) {
    const Factor f = factor(inner);
    if (f.kind == FactorKind::kReduceMax) {
      const auto more = seqs_[f.extents];
      all.insert(all.end(), more.begin(), more.end());
      x = f.args[0];
    }
  }
  const PolyId args[] = {x};
  return symbol(FactorKind::kReduceMax, 0, all, args);
}

}  // namespace mirage::expr_internal
