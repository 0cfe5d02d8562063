// Abstract expressions (OSDI'25 section 4.3): what a value is made of, without saying which element. They prune the search: a prefix whose
// expression is no sub-expression of the program's can never become the program. Unlike the paper we decide the question on a normal form
// instead of asking a solver (docs/pruning.md).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>
#include "mirage/ir/op.h"

namespace mirage {

using ExprId = int32_t;   ///< index into one pool; equal expressions (by the axioms) have equal ids

/// An expression written out with the operators of axioms.def: "in", "lit", "ext" (with `id`: tensor, bits, symbol), "one", "minus_one",
/// "add", "mul", "div", "exp", "sqrt", "sum" and "max" (with extents), "concat", and uninterpreted functions by their names; in a context
/// also "hole".
struct ExprTerm { std::string op; int64_t id = 0; std::vector<int> extents; std::vector<ExprTerm> args; };
/// Another answer to "is e a sub-expression of t?" than the decision procedure's. It must say true where it does not know.
using SubexprJudge = std::function<bool(const ExprTerm& e, const ExprTerm& t)>;

/// Hash-consed expressions in normal form. One pool per thread; ids of different pools do not compare.
/// Reduction extents are multisets of symbols (small ints chosen by the caller): sum over an index of extent s1*s2 is sum(x, {s1, s2}).
class ExprPool {
 public:
  ExprPool();
  ~ExprPool();
  ExprPool(ExprPool&&) noexcept;
  ExprPool& operator=(ExprPool&&) noexcept;

  ExprId input(int tensor);                                       ///< the plain variable of a program input, tensor >= 0
  /// a literal, linear like any factor. 1 is the unit of mul and div, negative ones are neg of their magnitude; literals are not computed
  /// with
  ExprId constant(double value);
  ExprId extent(std::span<const int> symbols);                    ///< a constant that is the product of extents (a mean's divisor)
  /// kLax functions by their formulas and axioms.def; kAtomic ones, sigmoid and silu as one uninterpreted symbol (of unordered operands if
  /// the function is commutative).
  ExprId map(MapFn fn, std::span<const ExprId> operands);
  ExprId sum(ExprId x, std::span<const int> extents);             ///< Reduce.sum, Accum.sum. No extents: x itself
  /// Reduce.max, Accum.max: an uninterpreted symbol of x; nested maxima merge their extents. No extents: x itself
  ExprId max(ExprId x, std::span<const int> extents);
  ExprId matmul(ExprId x, ExprId y, std::span<const int> extents) { const ExprId p[] = {x, y}; return sum(map(MapFn::kMul, p), extents); }
  ExprId concat(std::span<const ExprId> parts);                   ///< an uninterpreted symbol of its parts

  /// Whether e can occur inside a graph whose output is t: axioms.def and "an operand is a sub-expression of its result", reflexively and
  /// transitively, entail it. If t is over the size cap (1024 terms, or about a million symbols with nested ones): true, counted in
  /// num_capped().
  bool subexpr(ExprId e, ExprId t);
  /// The certificate of a yes: an expression with one "hole" that is t once e is put in (by the axioms). nullopt if the decision is no.
  /// Requires t under the size cap; judges are not asked.
  std::optional<ExprTerm> context(ExprId e, ExprId t);
  int64_t num_capped() const;
  void set_judge(SubexprJudge judge);   ///< asked instead of deciding, once for each pair; what is over the size cap is not asked
  ExprTerm term(ExprId) const;          ///< requires an expression under the size cap
  int size() const;
  int64_t elements() const;   ///< terms and symbols of all expressions' normal forms: what they cost, in time and memory
  std::string print(ExprId) const;   ///< for people; its first 4000 characters: equal texts are no equal expressions

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mirage
