// What indices and stages are to the matrix products of a program whose loop multiplies few or many rows by weights that copies bring:
// which index the rows are, which stages multiply, reduce, and add up, in the order in which their nodes stand in the body. Queries of a
// program, in its own terms; text is made elsewhere (matrix_text.h).
#pragma once
#include <set>
#include <utility>
#include <vector>

#include "mirage/schedule/program.h"

namespace mirage::schedule {

class MatrixStages {
 public:
  explicit MatrixStages(const KernelProgram&);

  // ---- indices; -1: there is none
  IndexId rows() const { return rows_; }
  IndexId columns() const { return columns_; }       ///< of the weights: the index that the grid cuts first
  IndexId reduced() const { return reduced_; }       ///< what the loop adds up over, within one element of group()
  IndexId group() const { return group_; }
  IndexId second() const { return second_; }         ///< tiles of it follow those of reduced()
  IndexId batch() const { return batch_; }           ///< a block has one element of it
  int64_t extent(IndexId i) const { return i < 0 ? 1 : p_.indices[at(i)].extent; }
  int64_t depth() const;                             ///< elements that the loop adds up over, those of both parts
  bool has(ValueId v, IndexId i) const;              ///< whether v differs along it; no value does along -1
  /// The index of v that is reduced before the loop.
  IndexId whole(ValueId v) const;

  // ---- stages
  const Place& place(PlaceId x) const { return p_.places[at(x)]; }
  ValueId made(const Stage& s) const { return place(s.to).value; }
  const std::vector<IndexId>& indices(ValueId v) const { return p_.index_of[at(v)]; }
  const std::vector<const Stage*>& weights() const { return weights_; }         ///< copies of what the loop multiplies rows by
  const std::vector<const Stage*>& products() const { return products_; }       ///< accumulated in the loop
  const std::vector<const Stage*>& statistics() const { return statistics_; }   ///< of rows, reduced in the loop
  const std::vector<const Stage*>& early() const { return early_; }             ///< of rows, reduced before it
  const std::vector<NodeId>& second_factors() const { return second_factors_; }   ///< products of what products() leaves, behind the loop
  const std::vector<const Stage*>& totals() const { return totals_; }           ///< matrices that something else than a matrix is made of
  bool is_known(ValueId v) const;                    ///< v is a total, or a reduction of rows
  /// The copy of an input; the fold that closes what a stage made; null: there is none.
  const Stage* copy_of(NodeId input) const;
  const Stage* fold_of(const Stage& made) const;
  /// The number of a stage in one of the lists above; -1: it is not in it.
  static int number(const std::vector<const Stage*>& list, const Stage* s);

  // ---- a product of the loop
  NodeId product(const Stage& s) const;              ///< its node; of two parts that of the first
  const Stage& weight(const Stage& s) const;
  ValueId small(const Stage& s) const;               ///< the operand that is no weight
  ValueId made_weight(const Stage& s) const;         ///< the operand that the loop computes of the weight; -1: it is taken as it is stored
  ValueId scaled_groups(const Stage& s) const;       ///< each group's product times what differs by group and column; -1: as it is
  const Place* operand(const Stage& s, ValueId v) const;   ///< where the stage reads v; null: it does not
  bool is_wide(const Stage& s) const { return has(made(s), columns_); }   ///< of a weight, or of a product: there are columns, no low rank
  IndexId free(const Stage& weight) const;           ///< the weight's columns, or its low rank

  // ---- a product behind the loop: a sum of low rank, times numbers and vectors along the rank, times a stored factor
  struct Gained { const Stage* sum = nullptr; NodeId factor = -1; double scale = 1; std::vector<NodeId> gains; };
  Gained gained(NodeId second_factor) const;

  // ---- what a total is: a linear combination of products of the loop and of those behind it, by number
  struct Term { bool is_behind = false; int number = -1; double factor = 1; };
  std::vector<Term> terms(ValueId total) const;
  int uses(const Stage& product) const;              ///< totals that it is part of

  /// The stored tensor behind v's transposes; -1: v is computed.
  NodeId stored(ValueId v) const;
  void leaves(ValueId v, std::set<NodeId>& out) const;   ///< inputs that the expression v reads, in order
  std::set<NodeId> loop_leaves() const;                  ///< of operands that are no weights, and of statistics
  std::set<NodeId> tail_leaves() const;                  ///< of results
  ValueId reduced_by(const Stage& s) const;              ///< what a statistic reduces
  ReduceFn function(const Stage& s) const;

 private:
  static size_t at(int i) { return static_cast<size_t>(i); }
  const Op& def(const Stage& s) const { return g_.def(made(s)).op; }
  void find_indices();
  void find_products();
  void find_weights();
  void find_totals();
  bool is_summed(IndexId i) const { return i >= 0 && (i == reduced_ || i == group_ || i == second_); }
  const Stage* weight_below(ValueId v) const;
  size_t side(const Stage& s) const;                 ///< of its product's operands the weight's
  const Stage* sum_at(ValueId v) const;              ///< the product of the loop that leaves v; null: none does
  const Stage* gained_sum(ValueId v, Gained& out) const;
  PlaceId order(const Stage& s) const;               ///< by which sums are numbered: where they are folded

  const KernelProgram& p_;
  const Graph& g_;
  IndexId rows_ = -1, columns_ = -1, reduced_ = -1, group_ = -1, second_ = -1, batch_ = -1;
  std::vector<const Stage*> weights_, products_, statistics_, early_, totals_;
  std::vector<NodeId> second_factors_;
};

}  // namespace mirage::schedule
