// Abstract expressions (OSDI'25 section 4.3): what a value is made of, without saying which element. They prune the search: a prefix whose expression is no sub-expression of the
// program's can never become the program. Unlike the paper we decide the question on a normal form instead of asking a solver (docs/search.md).
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>
#include "mirage/ir/graph.h"
#include "mirage/ir/op.h"

namespace mirage {

using ExprId = int32_t;   ///< index into one pool; equal expressions (by the axioms) have equal ids

/// Hash-consed expressions in normal form. One pool per thread; ids of different pools do not compare.
/// Reduction extents are multisets of symbols (small ints chosen by the caller): sum over an index of extent s1*s2 is sum(x, {s1, s2}).
class ExprPool {
 public:
  ExprPool();
  ~ExprPool();
  ExprPool(ExprPool&&) noexcept;
  ExprPool& operator=(ExprPool&&) noexcept;

  ExprId input(int tensor);                                       ///< the plain variable of a program input
  ExprId constant(double value);                                  ///< a literal; +-1 and 0 follow the axioms that hold for them (no cancellation)
  ExprId extent(std::span<const int> symbols);                    ///< a constant that is the product of extents (a mean's divisor)
  ExprId map(MapFn fn, std::span<const ExprId> operands);         ///< kLax functions by the axioms of axioms.def, kAtomic ones as one uninterpreted symbol
  ExprId sum(ExprId x, std::span<const int> extents);             ///< Reduce.sum, Accum.sum
  ExprId max(ExprId x, std::span<const int> extents);             ///< Reduce.max, Accum.max: an uninterpreted symbol of x; nested maxima merge their extents
  ExprId matmul(ExprId x, ExprId y, std::span<const int> extents) { const ExprId p[] = {x, y}; return sum(map(MapFn::kMul, p), extents); }
  ExprId concat(std::span<const ExprId> parts);                   ///< an uninterpreted symbol of its parts

  /// Whether e can occur inside a graph whose output is t: the axioms entail subexpr(e, t). Over the size cap: true, counted in num_capped().
  bool subexpr(ExprId e, ExprId t);
  int64_t num_capped() const;
  int size() const;
  std::string print(ExprId) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Expressions of every value of a kernel-level graph (nested calls are inlined: values of bodies are not listed). `symbols_of(param, dim)` names the extents of program inputs' dimensions.
/// Used for the reference; the search builds its own step by step.
struct DimSymbols { std::vector<std::vector<std::vector<int>>> of_value; };   ///< [value][dim] -> symbols

}  // namespace mirage
