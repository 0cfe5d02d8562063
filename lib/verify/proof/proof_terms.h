// Normal forms of the prover (docs/verification.md, "The proof in index notation"): polynomials with rational coefficients over
// powers of atoms, hash-consed. An atom is an element of an input, an exponential, an uninterpreted function, a maximum over indices, an
// indicator of an index condition, or a sum over indices that no factor can leave. Nothing here is shared with lib/expr, whose sums forget
// which index they run over.
#pragma once
#include <array>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "mirage/ir/types.h"
#include "verify/proof/proof_index.h"

namespace mirage::verify {

using AtomId = int32_t;
using MonoId = int32_t;
using PolyId = int32_t;
inline constexpr PolyId kPoison = -1;   ///< no normal form: Terms::reason() says why

/// Exact rational numbers. An overflow sets `bad` and stays.
struct Rational {
  __int128 n = 0, d = 1;
  bool bad = false;
  static Rational of(__int128 n, __int128 d = 1);
  friend Rational operator+(const Rational&, const Rational&);
  friend Rational operator*(const Rational&, const Rational&);
  Rational operator-() const { return {-n, d, bad}; }
  Rational inverse() const { return of(n < 0 ? -d : d, n < 0 ? -n : n); }
  bool is_zero() const { return n == 0; }
  bool is(int64_t v) const { return n == v && d == 1; }
  bool is_integer() const { return d == 1; }
  friend bool operator==(const Rational& a, const Rational& b) { return a.n == b.n && a.d == b.d; }
};

/// What an atom is; its data words are listed in brackets.
enum class AtomKind : uint8_t {
  kInput,     ///< [param, index...] an element of a program input
  kLiteral,   ///< [bits] a positive literal that is not a short fraction
  kNumber,    ///< [n] a square-free integer above 1, for its roots
  kIndex,     ///< [index atom] the value of an index as a number
  kGe0,       ///< [index] 1 if the expression is >= 0, else 0
  kExp,       ///< [polynomial] e to the power of one monomial
  /// [polynomial] a polynomial under a power that cannot be multiplied out; its leading coefficient is 1 or -1, nothing can be factored out
  kBase,
  kFn,        ///< [function, attribute, polynomial...] an uninterpreted function
  kMaxSet,    ///< [polynomial...] the largest of a set
  kMaxOver,   ///< [number of indices, index..., condition, polynomial] the largest over the indices where the condition is 1
  kMask,      ///< [condition] 0 where the condition is 1, minus infinity elsewhere
  /// [index, position, polynomial] a shift that may depend on the polynomial as a function of the index, at a position of that index
  kRunning,
  /// [polynomial, (index, position)...] the polynomial with its indices at these positions, not looked into: a value that both graphs have
  kCut,
  kSum,       ///< [number of indices, index..., (atom, numerator, denominator)...] a sum over the indices of a product
};
/// Uninterpreted functions.
/// kNegative, kZero: 1 if the argument is below, equal to 0
enum class FnTag : uint8_t { kLog, kTanh, kErf, kSin, kCos, kFloor, kNearest, kPow, kNegative, kZero, kRound };

struct Power {
  int32_t n = 1, d = 1;
  bool is_integer() const { return d == 1; }
  friend bool operator==(const Power&, const Power&) = default;
  friend auto operator<=>(const Power&, const Power&) = default;
};
Rational to_rational(Power p);
struct Factor {
  AtomId atom;
  Power power;
  friend bool operator==(const Factor&, const Factor&) = default;
  friend auto operator<=>(const Factor&, const Factor&) = default;
};
using Factors = std::vector<Factor>;                                   ///< by atom
struct Term { MonoId mono; Rational coef; };

/// Limits on the work of one proof, counts so that results do not depend on the machine.
struct ProofLimits {
  int64_t steps = 4'000'000;   ///< interned terms and products
  int terms = 256;             ///< monomials of a product; above it a factor of more than `expand` monomials stays a factor of its own
  int expand = 32;
  size_t indices = 24;         ///< of one sum; above, sums within stay closed
  int depth = 8'000;           ///< of forms within forms, which functions here follow by calling themselves: about 6 MB of stack
  /// tanh as exponentials, running maxima as maxima, functions of conditional values by cases: more is equal, and forms are larger
  bool rewrite = false;
  bool name = false;           ///< what a function returns becomes an atom, a definition at indices
  int64_t bytes = 150'000'000; ///< of all forms that were ever made, counted, not measured: about what they take
};

class Terms {
 public:
  explicit Terms(ProofLimits limits = {}) : limits_(limits) {}
  int64_t steps() const { return steps_; }   ///< taken so far
  Indices idx;

  // ---- polynomials. kPoison in, kPoison out.
  PolyId number(const Rational& r);
  PolyId integer(int64_t v) { return number(Rational::of(v)); }
  PolyId constant(double c);
  PolyId input(int param, const std::vector<IdxId>& at);
  PolyId index_value(IdxId x);
  PolyId ge0(IdxId x);
  PolyId add(PolyId x, PolyId y);
  PolyId add_all(const std::vector<PolyId>& x);   ///< as adding one after the other, without what lies between
  PolyId neg(PolyId x) { return scale(x, Rational::of(-1)); }
  PolyId sub(PolyId x, PolyId y) { return add(x, neg(y)); }
  PolyId scale(PolyId x, const Rational& r);
  PolyId mul(PolyId x, PolyId y);
  PolyId div(PolyId x, PolyId y) { return mul(x, power(y, {-1, 1})); }
  PolyId power(PolyId x, Power p);
  Factors common_factors(PolyId x, Power p);   ///< of all terms of x, which leave x^p
  PolyId exp(PolyId x);
  PolyId max(PolyId x, PolyId y);
  PolyId fn(FnTag tag, int64_t attribute, std::vector<PolyId> args);
  PolyId log(PolyId x);
  PolyId tanh(PolyId x);
  PolyId pow(PolyId x, PolyId y);
  PolyId equal(PolyId x, PolyId y);
  PolyId less(PolyId x, PolyId y);
  PolyId select(PolyId c, PolyId x, PolyId y);
  PolyId round(PolyId x, DType t);
  PolyId sum(PolyId x, const std::vector<VarId>& over);
  PolyId max_over(PolyId x, PolyId condition, std::vector<VarId> over);   ///< minus infinity where nothing fulfils the condition
  PolyId masked(PolyId x, PolyId condition);                              ///< x where the condition is 1, else minus infinity
  PolyId running(PolyId x, VarId over, IdxId at);
  PolyId subst(PolyId x, const VarMap& map);
  PolyId cut(PolyId x);                                                   ///< x as one atom; x itself if it is small already
  /// With `name`, x as one atom: a definition over places, at the index expressions that stand in x. So a value of a tile is the
  /// definition that a value of the whole is, at other indices.
  PolyId named(PolyId x);

  /// By extent, where sums over an index of that extent are taken apart: ascending, within it.
  void split_sums(std::map<int64_t, std::set<int64_t>> at) { split_at_ = std::move(at); }
  VarId temp(int64_t extent) { return idx.make_var(VarKind::kTemp, next_temp_++, 0, extent); }
  VarId formal(int dim, int64_t extent) { return idx.make_var(VarKind::kFormal, dim, 0, extent); }
  void set_input_type(int param, DType t);

  // ---- looking
  const std::vector<Term>& terms(PolyId p) const { return poly_at(p).terms; }
  const Factors& factors(MonoId m) const { return monos_[static_cast<size_t>(m)].factors; }
  AtomKind kind(AtomId a) const { return atoms_[static_cast<size_t>(a)].kind; }
  const std::vector<int64_t>& data(AtomId a) const { return atoms_[static_cast<size_t>(a)].data; }
  const std::vector<VarId>& vars(PolyId p) const { return poly_at(p).vars; }
  const std::vector<VarId>& atom_vars(AtomId a) const { return atoms_[static_cast<size_t>(a)].vars; }
  std::optional<Rational> as_number(PolyId p) const;
  std::optional<double> as_literal(PolyId p) const;
  bool is_nonnegative(AtomId a) const { return atoms_[static_cast<size_t>(a)].nonnegative; }
  bool is_bool(AtomId a) const;
  bool holds_mask(PolyId p) const { return is_masked(p); }
  PolyId finite_part(PolyId p) { return split(p).finite; }           ///< of a value that may be minus infinity: what it is elsewhere
  PolyId finite_where(PolyId p) { return split(p).condition; }       ///< and where that is
  PolyId of_factors(const Factors& f) { return product(Rational::of(1), f); }
  PolyId of_factor(AtomId a, Power p) { return product(Rational::of(1), {{a, p}}); }
  PolyId clear_denominators(PolyId x);             ///< a multiple of x without denominators, if it can be expanded; x if not
  PolyId cancel_logs(PolyId x);                    ///< without logarithms whose sum is that of a product which is 1; all of positive values
  PolyId resolve_indicators(PolyId x);             ///< with one of each pair of complementary index conditions written as 1 minus the other
  int64_t size_of(const std::vector<PolyId>& roots) const;   ///< different terms below
  std::string print(PolyId p) const;
  bool is_full() const { return bytes_ > limits_.bytes; }   ///< the bytes of a proof are used up
  const std::string& reason() const { return reason_; }
  /// a poisoned form was looked at as if it were one (limits ran out in between): nothing that was found since holds
  bool misread() const { return misread_; }
  bool used_mask() const { return used_mask_; }
  bool used_division() const { return used_division_; }
  bool used_root() const { return used_root_; }
  /// a root of something of unknown sign vanished: the form is defined where the graph is not
  bool lost_root() const { return lost_root_; }
  /// While on (graphs are lowered): what may be undefined for many inputs and vanishes, or stands in a branch that is not always taken, is
  /// noted. Off where laws multiply both sides.
  bool watch(bool on) { return std::exchange(watching_, on); }   ///< what it was before
  /// both divide by the same of what is 0 for many inputs, so that denominators may be cleared
  bool same_divisors(PolyId x, PolyId y);
  bool same_failures(PolyId x, PolyId y);          ///< both take the same roots, logarithms and powers of what may be negative
  bool lost_domain() const { return lost_domain_; }
  PolyId poison(const std::string& why) { if (reason_.empty()) reason_ = why; return kPoison; }

 private:
  struct Atom {
    AtomKind kind;
    std::vector<int64_t> data;
    std::vector<VarId> vars;
    std::vector<IdxId> uses;
    int height = 0, depth = 0;
    bool nonnegative = false, positive = false;
    bool has_number = false;   ///< an index stands in it as a number
  };
  struct Mono { Factors factors; std::vector<VarId> vars; int height = 0; bool nonnegative = false, positive = false, masked = false; };
  /// positive: above 0 for all inputs
  struct Poly { std::vector<Term> terms; std::vector<VarId> vars; int height = 0, depth = 0; bool nonnegative = false, positive = false; };
  struct Split { PolyId finite; PolyId condition; };   ///< a value that may be minus infinity

  AtomId atom(AtomKind kind, std::vector<int64_t> data);
  MonoId mono(Factors f);
  PolyId poly(std::vector<Term> terms);                                   ///< sorted, no zero coefficient
  PolyId single(AtomId a) { return product(Rational::of(1), {{a, {1, 1}}}); }
  bool drop_implied(Factors& factors);   ///< index conditions that others imply go; false where two contradict
  PolyId product(const Rational& c, Factors f);                           ///< factors in any order
  // Domains, up to sets of measure zero: 1/x may fail only where x is 0 for many inputs, as relu(x) or a condition is.
  /// undefined for many inputs: logarithms, roots of what may be negative, quotients by what may vanish within
  bool atom_may_fail(AtomId a);
  bool may_fail(const Factor& f);
  bool may_fail(PolyId p);
  bool atom_may_vanish(AtomId a);                                            ///< 0 for many inputs
  bool may_vanish(PolyId p);
  void failures_below(PolyId p, std::set<std::pair<AtomId, int32_t>>& out, std::set<PolyId>& seen);
  bool compares(PolyId condition);                                        ///< the condition is about values, not indices
  bool divides(PolyId p);                                                 ///< by something that is not known to be positive
  bool finds_divisor(PolyId p);
  std::vector<PolyId> parts_of(AtomId a) const;                           ///< the polynomials in an atom's data; of a sum its product
  struct Unwatched {
    Terms& t;
    bool before;
    explicit Unwatched(Terms& x) : t(x), before(x.watching_) { x.watching_ = false; }
    ~Unwatched() { t.watching_ = before; }
  };
  PolyId power_of_mono(const Term& t, Power p);
  PolyId root_of_number(const Rational& r, Power p);
  bool has_short_power(PolyId x, int32_t n) const;
  std::optional<Power> power_in_exp(const Term& t);                       ///< t is k log(x), x above 0, and e^t is better written x^k
  PolyId log_of_number(const Rational& r);                                ///< r > 0
  PolyId log_of_factor(const Factor& f);
  PolyId without_denominators(PolyId x, Factors* below);
  /// of a maximum, also beside other addends and factors, the maximum of what is rounded
  std::optional<PolyId> round_of_maximum(PolyId x, DType t);
  std::optional<AtomId> condition_of(PolyId x);                           ///< a condition that factors of x are
  PolyId given(PolyId x, AtomId condition, bool holds);                   ///< x where the condition is 1, or 0
  bool is_below(PolyId x, PolyId y);                                      ///< x is a number below all that y can be
  double magnitude(PolyId x);                                             ///< a bound on |x| from the types of inputs; infinity: none
  double magnitude(const Factor& f);
  PolyId mul_plain(PolyId x, PolyId y);
  PolyId expanded(const std::vector<Term>& a, const std::vector<Term>& b);   ///< of the products of all terms, like ones merged
  /// What is known of signs by the way a value was made: a square stays one when it is multiplied out.
  PolyId known(PolyId p, bool nonnegative, bool positive = false) {
    if (p >= 0 && (nonnegative || positive)) polys_[static_cast<size_t>(p)].nonnegative = true;
    if (p >= 0 && positive) polys_[static_cast<size_t>(p)].positive = true;
    return p;
  }
  const Poly& poly_at(PolyId p) const {
    static const Poly kNothing{{{0, {}}}, {}, 0, 0, false, false};
    if (p < 0) misread_ = true;
    return p < 0 ? kNothing : polys_[static_cast<size_t>(p)];
  }
  bool is_known(PolyId p) const { return poly_at(p).nonnegative; }
  bool is_positive(PolyId p) const { return poly_at(p).positive; }
  bool is_masked(PolyId p) const;
  bool is_small(PolyId p) const;                                          ///< one factor, with a coefficient, or nothing
  Split split(PolyId p);
  PolyId under(PolyId x, PolyId condition);                               ///< x, simplified where the condition is 1
  PolyId complement(PolyId condition);
  PolyId positive_content(const std::vector<PolyId>& of, const std::vector<VarId>& without);   ///< a positive monomial that divides all
  std::optional<IdxId> as_index(PolyId p);
  bool spend(int64_t n = 1);
  /// a form is kept, under a key of so many words
  void occupy(size_t words, size_t others) { bytes_ += static_cast<int64_t>(words * sizeof(int64_t) + others); }

  // proof_sum.cc
  /// Sums among the factors, opened: their indices join those of the sum around them; nullopt where none may be.
  std::optional<PolyId> joined_sums(const Factors& inside, const std::vector<VarId>& vars);
  PolyId sum_mono(const Term& t, const std::vector<VarId>& over);
  std::optional<std::pair<std::vector<VarId>, VarMap>> bounded_index(const std::vector<VarId>& over, const Factors& inside, bool* empty);
  std::optional<std::pair<std::vector<VarId>, VarMap>> index_step(const std::vector<VarId>& over, const std::vector<IdxId>& uses,
                                                                  const Factors& inside, bool* empty);
  std::optional<std::pair<std::vector<VarId>, VarMap>> joined_number(const std::vector<VarId>& over, const std::vector<PolyId>& parts);
  std::optional<PolyId> max_over_set(PolyId f, PolyId c, const std::vector<VarId>& over);
  std::optional<PolyId> without_free_choice(PolyId f, PolyId c, const std::vector<VarId>& over);
  std::optional<PolyId> max_in_pieces(PolyId x, PolyId condition, const std::vector<VarId>& over);   ///< that slices cut an index into
  PolyId canonical_max(PolyId f, PolyId c, const std::vector<VarId>& over);
  PolyId canonical_sum(const std::vector<VarId>& over, const Factors& inside);
  std::vector<std::vector<VarId>> canonical_orders(const std::vector<VarId>& over, const std::vector<PolyId>& parts);
  uint64_t shape(PolyId p, const std::map<VarId, uint64_t>& colours, std::map<int64_t, uint64_t>& memo) const;
  uint64_t shape_atom(AtomId a, const std::map<VarId, uint64_t>& colours, std::map<int64_t, uint64_t>& memo) const;
  uint64_t shape_index(IdxId x, const std::map<VarId, uint64_t>& colours) const;
  std::vector<IdxId> uses_of(const std::vector<PolyId>& parts) const;
  bool has_number(PolyId p) const;
  VarMap bound_names(const std::vector<VarId>& order, int height, std::vector<VarId>* names);

  // substitution of one call
  using Memo = std::map<int64_t, PolyId>;
  PolyId subst(PolyId x, const VarMap& map, Memo& memo);
  PolyId subst_binder(AtomKind k, const std::vector<int64_t>& d, const VarMap& map);   ///< kMaxOver, kRunning, kSum
  PolyId subst_atom(AtomId a, Power p, const VarMap& map, Memo& memo);
  /// Index expressions where they are used, without bound indices, each with where: ordered as the same uses are in any form.
  void free_uses(AtomId a, std::map<IdxId, std::vector<int64_t>>& where, std::set<AtomId>& seen) const;
  IdxId index_in(IdxId x, const VarMap& map) {
    if (const auto place = places_.find(x); place != places_.end()) return place->second;
    return idx.subst(x, map);
  }

  /// factors of the top level with positive integer powers replaced
  PolyId rewrite(PolyId x, const std::map<AtomId, PolyId>& to);
  void size_below(PolyId p, std::set<int64_t>& seen) const;
  std::string print_binder(AtomId a, std::map<VarId, std::string>& names) const;
  std::string print_atom(AtomId a, std::map<VarId, std::string>& names) const;
  std::string print_poly(PolyId p, std::map<VarId, std::string>& names, bool nested) const;
  std::string print_factors(const Factors& f, std::map<VarId, std::string>& names) const;

  ProofLimits limits_;
  Interner atom_keys_, mono_keys_, poly_keys_;
  std::vector<Atom> atoms_;
  std::vector<Mono> monos_;
  std::vector<Poly> polys_;
  mutable bool misread_ = false;
  std::vector<DType> input_types_;
  int32_t next_temp_ = 0;
  int64_t steps_ = 0, bytes_ = 0;
  std::string reason_;
  bool used_mask_ = false, used_division_ = false, used_root_ = false, lost_root_ = false, lost_domain_ = false, watching_ = false;
  std::map<AtomId, bool> fails_, vanishes_;
  std::map<PolyId, bool> divides_;
  std::map<int64_t, std::set<int64_t>> split_at_;
  std::map<IdxId, IdxId> places_;   ///< while a definition is made: the places that stand for index expressions
};

}  // namespace mirage::verify
