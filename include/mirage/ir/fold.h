// Folding: adjacent dimensions that every operator treats alike become one. Stands between reading a spec and the search, which has three
// grid axes and small examples of every value: attention over [batch, heads, group, queries, features] is attention over [batch*heads,
// group*queries, features]. The caller's tensors keep their shapes; unfold() puts a found graph between reshapes.
#pragma once
#include <optional>
#include <vector>

#include "mirage/ir/program.h"

namespace mirage {

/// A program and its folded form. Inputs and outputs correspond by number; element i of one is element i of the other, at the same address.
struct Folded {
  /// the folded one. Its `canonical` is that of the program that it was made from, whose identity it has
  Program program;
  Program whole;                                         ///< what it was made from
  bool folds = false;                                    ///< false: nothing could be joined, and both are the same
  /// per input and folded dimension: the dimensions of the whole's input that it joins, outermost first; none for extents of 1
  std::vector<std::vector<std::vector<int>>> factors;

  /// per value of the whole's graph, the value of the folded one that is made in its place: the same elements in the same order where there
  /// are as many; -1: there is none. Empty: not known
  std::vector<ValueId> to;

  /// A kernel-level graph over the folded inputs and outputs as one over those of the whole: reshapes first and last, and constants that
  /// name extents name those of the whole.
  Graph unfold(const Graph& g) const;
  /// What unfold() made `g` of; nullopt if g reads its inputs or makes its results in another way.
  std::optional<Graph> refold(const Graph& g) const;
};

/// Joins dimensions p and p+1 of a value (extents of 1 between them are left out) where every operator that makes or reads the value
/// permits it: elementwise functions if each operand has both or neither, contractions for batch dimensions, and for a batch dimension and
/// the rows where the other operand lacks it; reductions over both (in a row) or neither; reshapes as long as they keep or drop the border;
/// inputs and outputs whose strides allow it. No operator that names one dimension (slice, concatenation, repetition, index, sum over
/// groups) may name one of them. A small operand made of inputs and positions that has one of the two (a length for each batch, a slope for
/// each head) is repeated along the other, where that makes the batch of several products one dimension, or it and their rows
/// (lib/ir/fold/widened.h). What tells two dimensions apart does so up to a border: where products gain, a value is reshaped and back, and
/// behind it they are joined (lib/ir/fold/borders.h). Requires primitives only; where there are calls nothing is folded.
Folded fold(const Program& program);

}  // namespace mirage
