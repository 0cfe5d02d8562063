// ExprPool: the public face of the normal forms. Map functions are interpreted by their formulas in maps.def over the algebra of normal
// forms, so an operator's meaning is not repeated here.
#include "mirage/expr/expr.h"
#include <algorithm>
#include <bit>
#include <cstdio>
#include <functional>
#include <iterator>
#include "expr/normal_form.h"
#include "expr/subexpr.h"

namespace mirage {
namespace {

using namespace expr_internal;

/// Ids from here on are expressions over the size cap: known only by how they were written, equal if written alike.
constexpr ExprId kCapped = 1 << 30;

/// The algebra that interprets kLax formulas. The others never get here: their functions are uninterpreted.
struct ExprAlgebra {
  using Value = PolyId;
  NormalForms& n;
  Value constant(double c) { return n.constant(c); }
  Value add(Value x, Value y) { return n.add(x, y); }
  Value sub(Value x, Value y) { return n.add(x, n.neg(y)); }
  Value mul(Value x, Value y) { return n.mul(x, y); }
  Value div(Value x, Value y) { return n.div(x, y); }
  Value neg(Value x) { return n.neg(x); }
  Value exp(Value x) { return n.exp(x); }
  Value sqrt(Value x) { return n.sqrt(x); }
  Value log(Value) { return never(); }
  Value abs(Value) { return never(); }
  Value tanh(Value) { return never(); }
  Value erf(Value) { return never(); }
  Value sin(Value) { return never(); }
  Value cos(Value) { return never(); }
  Value floor(Value) { return never(); }
  Value nearest(Value) { return never(); }
  Value max(Value, Value) { return never(); }
  Value min(Value, Value) { return never(); }
  Value pow(Value, Value) { return never(); }
  Value equal(Value, Value) { return never(); }
  Value less(Value, Value) { return never(); }
  Value select(Value, Value, Value) { return never(); }
  Value round(Value, DType) { return never(); }
  Value never() {
    MIRAGE_ASSERT(false) << "a lax formula uses an operation without axioms";
    return kNone;
  }
};

/// sigmoid and silu stay symbols, as in the paper, although their formulas could be expanded: expanded, exp(-x) and 1 + exp(-x) would be
/// sub-expressions of every program that has them.
bool is_symbol(MapFn fn) { return map_info(fn).cls == MapClass::kAtomic || fn == MapFn::kSigmoid || fn == MapFn::kSilu; }

}  // namespace

struct ExprPool::Impl {
  NormalForms forms;
  SubexprDecider subexpr{forms};
  Sequences capped;   // how each expression over the cap was written
  int64_t num_capped = 0;
  SubexprJudge judge;
  FlatMap judged;

  /// `p`, or an id for what is too large: its operator code and operands.
  ExprId finish(PolyId p, int32_t code, std::span<const ExprId> operands, std::span<const int> extents = {}) {
    if (p != kNone) return p;
    std::vector<int32_t> key{code, static_cast<int32_t>(operands.size())};
    key.insert(key.end(), operands.begin(), operands.end());
    key.insert(key.end(), extents.begin(), extents.end());
    std::sort(key.end() - static_cast<std::ptrdiff_t>(extents.size()), key.end());
    return kCapped + capped.intern(key);
  }
  static constexpr size_t kMostText = 4000;   // characters of an expression in print
  static PolyId poly(ExprId e) { return e >= kCapped ? kNone : e; }

  ExprTerm term_of(PolyId p) const;
  ExprTerm term_of_mono(MonoId m) const;
  /// What stands in the place of one part of a monomial.
  struct Placed { Surroundings::Part part; int factor, arg; const ExprTerm* term; };
  ExprTerm term_of_mono(const Monomial& m, const Placed* placed) const;
  ExprTerm term_of_factor(FactorId f) const;
  ExprTerm around(PolyId e, const Surroundings& s) const;
  void print_poly(PolyId p, std::string& out) const;
  void print_mono(MonoId m, std::string& out) const;
  void print_factor(FactorId f, std::string& out) const;
  void print_call(const char* name, std::span<const PolyId> args, std::string& out) const;
};

ExprPool::ExprPool() : impl_(std::make_unique<Impl>()) {}
ExprPool::~ExprPool() = default;
ExprPool::ExprPool(ExprPool&&) noexcept = default;
ExprPool& ExprPool::operator=(ExprPool&&) noexcept = default;

ExprId ExprPool::input(int tensor) { return impl_->forms.symbol(FactorKind::kInput, static_cast<uint32_t>(tensor), {}, {}); }
ExprId ExprPool::constant(double value) { return impl_->forms.constant(value); }
ExprId ExprPool::extent(std::span<const int> symbols) { return impl_->finish(impl_->forms.extent(symbols), -1, {}, symbols); }

ExprId ExprPool::map(MapFn fn, std::span<const ExprId> operands) {
  const int arity = map_info(fn).arity;
  MIRAGE_ASSERT(static_cast<int>(operands.size()) == arity) << map_info(fn).name << " takes " << arity << " operands";
  ExprId sorted[3] = {0, 0, 0};
  for (int i = 0; i < arity; ++i) sorted[i] = operands[static_cast<size_t>(i)];
  if (is_commutative(fn) && sorted[0] > sorted[1]) std::swap(sorted[0], sorted[1]);
  PolyId x[3];
  for (int i = 0; i < 3; ++i) x[i] = Impl::poly(sorted[i]);
  const std::span<const ExprId> used(sorted, static_cast<size_t>(arity));
  PolyId p;
  if (is_symbol(fn)) {
    p = impl_->forms.symbol(FactorKind::kMap, static_cast<uint64_t>(fn), {}, {x, static_cast<size_t>(arity)});
  } else {
    ExprAlgebra algebra{impl_->forms};
    p = apply_map(fn, algebra, x[0], x[1], x[2]);
  }
  return p != kNone ? p : impl_->finish(p, static_cast<int32_t>(fn), used);
}

ExprId ExprPool::sum(ExprId x, std::span<const int> extents) {
  if (extents.empty()) return x;
  return impl_->finish(impl_->forms.sum(Impl::poly(x), extents), -2, {&x, 1}, extents);
}

ExprId ExprPool::max(ExprId x, std::span<const int> extents) {
  if (extents.empty()) return x;
  return impl_->finish(impl_->forms.reduce_max(Impl::poly(x), extents), -3, {&x, 1}, extents);
}

ExprId ExprPool::concat(std::span<const ExprId> parts) {
  MIRAGE_ASSERT(!parts.empty()) << "concat of nothing";
  if (parts.size() == 1) return parts[0];
  std::vector<PolyId> args;
  for (ExprId e : parts) args.push_back(Impl::poly(e));
  return impl_->finish(impl_->forms.symbol(FactorKind::kConcat, 0, {}, args), -4, parts);
}

bool ExprPool::subexpr(ExprId e, ExprId t) {
  if (e == t) return true;
  if (t >= kCapped) {
    ++impl_->num_capped;
    return true;
  }
  if (e >= kCapped) return false;   // whatever has a sub-expression over the cap is over it itself
  if (!impl_->judge) return impl_->subexpr(e, t);
  const uint64_t key = pair_key(e, t);
  if (const int32_t* hit = impl_->judged.find(key)) return *hit != 0;
  const bool yes = impl_->judge(term(e), term(t));
  impl_->judged.insert(key, yes);
  return yes;
}

void ExprPool::set_judge(SubexprJudge judge) {
  impl_->judge = std::move(judge);
  impl_->judged = {};
}

ExprTerm ExprPool::term(ExprId e) const {
  MIRAGE_ASSERT(e < kCapped) << "an expression over the size cap has no term";
  return impl_->term_of(e);
}

std::optional<ExprTerm> ExprPool::context(ExprId e, ExprId t) {
  MIRAGE_ASSERT(t < kCapped) << "an expression over the size cap has no term";
  const ExprTerm hole{"hole", 0, {}, {}};
  if (e == t) return hole;
  if (e >= kCapped || !impl_->subexpr(e, t)) return std::nullopt;
  if (e == kOne) return ExprTerm{"mul", 0, {}, {hole, term(t)}};
  const std::optional<Surroundings> s = impl_->subexpr.explain(e, t);
  MIRAGE_ASSERT(s) << "a sub-expression without surroundings";
  return impl_->around(e, *s);
}

int64_t ExprPool::num_capped() const { return impl_->num_capped; }
int64_t ExprPool::elements() const { return impl_->forms.elements(); }
int ExprPool::size() const { return impl_->forms.num_polys() + impl_->capped.size(); }
std::string ExprPool::print(ExprId e) const {
  if (e >= kCapped) return "<too large " + std::to_string(e - kCapped) + ">";
  std::string out;
  impl_->print_poly(e, out);
  return out.size() < Impl::kMostText ? out : out.substr(0, Impl::kMostText) + " ...";
}

// ---- normal forms as trees

ExprTerm ExprPool::Impl::term_of(PolyId p) const {
  ExprTerm out;
  for (MonoId m : forms.monomials(p)) out = out.op.empty() ? term_of_mono(m) : ExprTerm{"add", 0, {}, {std::move(out), term_of_mono(m)}};
  return out;
}

ExprTerm ExprPool::Impl::term_of_mono(MonoId id) const { return term_of_mono(forms.monomial(id), nullptr); }

ExprTerm ExprPool::Impl::term_of_factor(FactorId id) const {
  const Factor f = forms.factor(id);
  ExprTerm t;
  t.id = static_cast<int64_t>(f.payload);
  for (PolyId a : f.args) t.args.push_back(term_of(a));
  switch (f.kind) {
    case FactorKind::kInput: t.op = "in"; break;
    case FactorKind::kMinusOne: t.op = "minus_one"; break;
    case FactorKind::kExtent: t.op = "ext"; break;
    case FactorKind::kLiteral: t.op = "lit"; break;
    case FactorKind::kConcat: t.op = "concat"; break;
    case FactorKind::kMap: t.op = map_info(static_cast<MapFn>(f.payload)).name; break;
    case FactorKind::kReduceMax: {
      t.op = "max";
      const auto s = forms.sequence(f.extents);
      t.extents.assign(s.begin(), s.end());
      break;
    }
  }
  return t;
}

ExprTerm ExprPool::Impl::term_of_mono(const Monomial& m, const Placed* placed) const {
  using Part = Surroundings::Part;
  const auto is_here = [&](Part part) { return placed && placed->part == part; };
  ExprTerm out;
  auto times = [&](ExprTerm t) { out = out.op.empty() ? std::move(t) : ExprTerm{"mul", 0, {}, {std::move(out), std::move(t)}}; };
  const auto fs = forms.sequence(m.f);
  for (int i = 0; i < static_cast<int>(fs.size()); ++i) {
    ExprTerm t = term_of_factor(fs[static_cast<size_t>(i)]);
    if (is_here(Part::kArgument) && placed->factor == i) {
      if (placed->arg < 0) t = *placed->term;
      else t.args[static_cast<size_t>(placed->arg)] = *placed->term;
    }
    times(std::move(t));
  }
  if (m.e != kZero) times({"exp", 0, {}, {is_here(Part::kExponent) ? *placed->term : term_of(m.e)}});
  if (m.q != kOne) times({"sqrt", 0, {}, {is_here(Part::kRadicand) ? *placed->term : term_of(m.q)}});
  if (out.op.empty()) out.op = "one";
  if (m.d != kOne) out = {"div", 0, {}, {std::move(out), is_here(Part::kDenominator) ? *placed->term : term_of(m.d)}};
  if (m.k == 0) return out;
  const auto k = forms.sequence(m.k);
  return {"sum", 0, {k.begin(), k.end()}, {std::move(out)}};
}

ExprTerm ExprPool::Impl::around(PolyId e, const Surroundings& s) const {
  ExprTerm out{"hole", 0, {}, {}};
  const auto plus = [](ExprTerm x, ExprTerm y) { return ExprTerm{"add", 0, {}, {std::move(x), std::move(y)}}; };
  const auto monos = forms.monomials(s.u);
  if (s.in_maximum) {   // max(IJ, x) = max(I, max(J, x))
    FactorId of_e;
    MIRAGE_ASSERT(forms.single_factor(e, &of_e)) << "a maximum is one factor";
    const Monomial m = forms.monomial(monos[static_cast<size_t>(s.mono)]);
    const auto big = forms.sequence(forms.factor(forms.sequence(m.f)[static_cast<size_t>(s.factor)]).extents),
               small = forms.sequence(forms.factor(of_e).extents);
    ExprTerm outer{"max", 0, {}, {out}};
    std::set_difference(big.begin(), big.end(), small.begin(), small.end(), std::back_inserter(outer.extents), std::greater<>());
    const Placed placed{Surroundings::Part::kArgument, s.factor, -1, &outer};
    out = term_of_mono(m, &placed);
    for (int i = 0; i < static_cast<int>(monos.size()); ++i)
      if (i != s.mono) out = plus(std::move(out), term_of_mono(monos[static_cast<size_t>(i)]));
  } else {
    Monomial q = forms.monomial(s.q);
    const auto k = forms.sequence(q.k);
    q.k = 0;
    if (q.f != 0 || q.e != kZero || q.q != kOne || q.d != kOne) out = {"mul", 0, {}, {std::move(out), term_of_mono(q, nullptr)}};
    if (!k.empty()) out = {"sum", 0, {k.begin(), k.end()}, {std::move(out)}};
    for (int i = 0; i < static_cast<int>(monos.size()); ++i)
      if (std::find(s.taken.begin(), s.taken.end(), i) == s.taken.end())
        out = plus(std::move(out), term_of_mono(monos[static_cast<size_t>(i)]));
  }
  for (size_t n = s.path.size(); n-- > 0;) {
    const Surroundings::Descent& d = s.path[n];
    const auto in = forms.monomials(d.from);
    const Placed placed{d.part, d.factor, d.arg, &out};
    out = term_of_mono(forms.monomial(in[static_cast<size_t>(d.mono)]), &placed);
    for (int i = 0; i < static_cast<int>(in.size()); ++i)
      if (i != d.mono) out = plus(std::move(out), term_of_mono(in[static_cast<size_t>(i)]));
  }
  return out;
}

// ---- text, for people: "sum{3}(x0*x1)/(sqrt(x0*x0 + 0.5)) + x2". Monomials stand in the pool's own order.

// Terms are shared: written out as trees they have 2^n parts, so nothing is added behind kMostText characters.

void ExprPool::Impl::print_poly(PolyId p, std::string& out) const {
  bool is_first = true;
  for (MonoId m : forms.monomials(p)) {
    if (out.size() >= kMostText) return;
    if (!is_first) out += " + ";
    is_first = false;
    print_mono(m, out);
  }
}

void ExprPool::Impl::print_call(const char* name, std::span<const PolyId> args, std::string& out) const {
  out += name;
  out += "(";
  for (size_t i = 0; i < args.size(); i++) {
    if (out.size() >= kMostText) return;
    if (i > 0) out += ", ";
    print_poly(args[i], out);
  }
  out += ")";
}

void ExprPool::Impl::print_factor(FactorId id, std::string& out) const {
  const Factor f = forms.factor(id);
  switch (f.kind) {
    case FactorKind::kInput: out += "x" + std::to_string(f.payload); return;
    case FactorKind::kMinusOne: out += "-1"; return;
    case FactorKind::kExtent: out += "n" + std::to_string(static_cast<int32_t>(f.payload)); return;
    case FactorKind::kMap: return print_call(map_info(static_cast<MapFn>(f.payload)).name, f.args, out);
    case FactorKind::kConcat: return print_call("concat", f.args, out);
    case FactorKind::kLiteral: {
      char text[40];
      std::snprintf(text, sizeof text, "%.17g", std::bit_cast<double>(f.payload));
      out += text;
      return;
    }
    case FactorKind::kReduceMax: {
      out += "max{";
      for (int32_t k : forms.sequence(f.extents)) out += (out.back() == '{' ? "" : ",") + std::to_string(k);
      return print_call("}", f.args, out);
    }
  }
}

void ExprPool::Impl::print_mono(MonoId id, std::string& out) const {
  const Monomial& m = forms.monomial(id);
  if (m.k != 0) {
    out += "sum{";
    for (int32_t x : forms.sequence(m.k)) out += (out.back() == '{' ? "" : ",") + std::to_string(x);
    out += "}(";
  }
  const size_t begin = out.size();
  const auto times = [&] { if (out.size() > begin) out += "*"; };
  for (FactorId f : forms.sequence(m.f)) {
    if (out.size() >= kMostText) return;
    times();
    print_factor(f, out);
  }
  const auto call = [&](const char* name, PolyId p) { print_call(name, std::span(&p, 1), out); };
  if (m.e != kZero) times(), call("exp", m.e);
  if (m.q != kOne) times(), call("sqrt", m.q);
  if (out.size() == begin) out += "1";
  if (m.d != kOne) call("/", m.d);
  if (m.k != 0) out += ")";
}

}  // namespace mirage
