// ExprPool: the public face of the normal forms. Map functions are interpreted by their formulas in maps.def over the algebra of normal forms, so an operator's meaning is not repeated here.
#include "mirage/expr/expr.h"
#include <bit>
#include <cstdio>
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

/// sigmoid and silu stay symbols, as in the paper, although their formulas could be expanded: expanded, exp(-x) and 1 + exp(-x) would be sub-expressions of every program that has them.
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
  static PolyId poly(ExprId e) { return e >= kCapped ? kNone : e; }

  ExprTerm term_of(PolyId p) const;
  ExprTerm term_of_mono(MonoId m) const;
  std::string print_poly(PolyId p) const;
  std::string print_mono(MonoId m) const;
  std::string print_factor(FactorId f) const;
  std::string print_args(std::span<const PolyId> args) const;
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

int64_t ExprPool::num_capped() const { return impl_->num_capped; }
int ExprPool::size() const { return impl_->forms.num_polys() + impl_->capped.size(); }
std::string ExprPool::print(ExprId e) const { return e >= kCapped ? "<too large " + std::to_string(e - kCapped) + ">" : impl_->print_poly(e); }

// ---- normal forms as trees

ExprTerm ExprPool::Impl::term_of(PolyId p) const {
  ExprTerm out;
  for (MonoId m : forms.monomials(p)) out = out.op.empty() ? term_of_mono(m) : ExprTerm{"add", 0, {}, {std::move(out), term_of_mono(m)}};
  return out;
}

ExprTerm ExprPool::Impl::term_of_mono(MonoId id) const {
  const Monomial& m = forms.monomial(id);
  ExprTerm out;
  auto times = [&](ExprTerm t) { out = out.op.empty() ? std::move(t) : ExprTerm{"mul", 0, {}, {std::move(out), std::move(t)}}; };
  for (FactorId id_of : forms.sequence(m.f)) {
    const Factor f = forms.factor(id_of);
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
    times(std::move(t));
  }
  if (m.e != kZero) times({"exp", 0, {}, {term_of(m.e)}});
  if (m.q != kOne) times({"sqrt", 0, {}, {term_of(m.q)}});
  if (out.op.empty()) out.op = "one";
  if (m.d != kOne) out = {"div", 0, {}, {std::move(out), term_of(m.d)}};
  if (m.k == 0) return out;
  const auto k = forms.sequence(m.k);
  return {"sum", 0, {k.begin(), k.end()}, {std::move(out)}};
}

// ---- text, for people: "sum{3}(x0*x1)/(sqrt(x0*x0 + 0.5)) + x2". Monomials stand in the pool's own order.

std::string ExprPool::Impl::print_poly(PolyId p) const {
  std::string s;
  for (MonoId m : forms.monomials(p)) s += (s.empty() ? "" : " + ") + print_mono(m);
  return s;
}

std::string ExprPool::Impl::print_args(std::span<const PolyId> args) const {
  std::string s;
  for (PolyId p : args) s += (s.empty() ? "" : ", ") + print_poly(p);
  return s;
}

std::string ExprPool::Impl::print_factor(FactorId id) const {
  const Factor f = forms.factor(id);
  switch (f.kind) {
    case FactorKind::kInput: return "x" + std::to_string(f.payload);
    case FactorKind::kMinusOne: return "-1";
    case FactorKind::kExtent: return "n" + std::to_string(static_cast<int32_t>(f.payload));
    case FactorKind::kMap: return std::string(map_info(static_cast<MapFn>(f.payload)).name) + "(" + print_args(f.args) + ")";
    case FactorKind::kConcat: return "concat(" + print_args(f.args) + ")";
    case FactorKind::kLiteral: {
      char text[40];
      std::snprintf(text, sizeof text, "%.17g", std::bit_cast<double>(f.payload));
      return text;
    }
    case FactorKind::kReduceMax: {
      std::string s = "max{";
      for (int32_t k : forms.sequence(f.extents)) s += (s.back() == '{' ? "" : ",") + std::to_string(k);
      return s + "}(" + print_args(f.args) + ")";
    }
  }
  return "?";
}

std::string ExprPool::Impl::print_mono(MonoId id) const {
  const Monomial& m = forms.monomial(id);
  std::string s;
  const auto times = [&](const std::string& f) { s += (s.empty() ? "" : "*") + f; };
  for (FactorId f : forms.sequence(m.f)) times(print_factor(f));
  if (m.e != kZero) times("exp(" + print_poly(m.e) + ")");
  if (m.q != kOne) times("sqrt(" + print_poly(m.q) + ")");
  if (s.empty()) s = "1";
  if (m.d != kOne) s += "/(" + print_poly(m.d) + ")";
  if (m.k == 0) return s;
  std::string k = "sum{";
  for (int32_t x : forms.sequence(m.k)) k += (k.back() == '{' ? "" : ",") + std::to_string(x);
  return k + "}(" + s + ")";
}

}  // namespace mirage
