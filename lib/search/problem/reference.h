// The reference as the search sees it: witness extents, the field value and the abstract expression of every node. Computed once per
// program.
#pragma once
#include <optional>
#include <string>
#include <vector>
#include "mirage/expr/expr.h"
#include "mirage/ir/eval.h"
#include "mirage/search/search.h"
#include "search/problem/field.h"
#include "search/problem/splits.h"
#include "search/problem/witness.h"

namespace mirage::search {

using FieldTensor = Tensor<FieldAlgebra::Value>;

/// Reduction extents are symbols: a class of dimensions has a part that the grid splits, one that the loop splits, and the tile. A full
/// reduction sums over all three.
enum class Part : int { kGrid = 0, kLoop = 1, kTile = 2 };
inline int extent_symbol(int cls, Part part) { return 3 * cls + static_cast<int>(part); }
std::vector<int> extent_symbols(int cls);   ///< all three; none for class -1

struct Reference {
  const Program* program = nullptr;
  DimClasses classes;
  Witness even, ragged;                      ///< variants 0 and 1
  std::vector<FieldTensor> params_ragged;    ///< inputs at the ragged witness
  std::vector<FieldTensor> results_ragged;
  std::vector<FieldTensor> values;           ///< by value, at the even witness
  std::vector<int> exponentials;             ///< by value: the most on a path from an input
  FieldAlgebra algebra{0};
  std::string refusal;
  const Graph& graph() const { return program->graph; }
  int64_t class_extent(int cls) const;       ///< of the program itself
};
/// refusal is set if the program has no witness form. Redraws inputs (boundedly) if a denominator is zero.
Reference make_reference(const Program& program, uint64_t seed, int parts = 0);   ///< parts: as dim_classes has it

/// Expressions of the values inside a problem: leaves that are inputs, or views of them, are plain variables; other leaves are variables of
/// their own.
std::vector<ExprId> reference_expressions(const Reference& ref, const Problem& problem, ExprPool& pool);
ExprId constant_expression(const Reference& ref, const Const& c, ExprPool& pool);

/// Exponentials in one application of fn.
int exponentials_of(MapFn fn);

}  // namespace mirage::search
