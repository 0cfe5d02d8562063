// What a block graph may load and how: the part of the reference that one graph-defined operator computes, the indices of einsum notation
// in it, and every way to put them on grid axes and the loop (docs/search.md). Numbers play no part: an index is on an axis or it
// is not.
#pragma once
#include <array>
#include <cstdint>
#include <vector>
#include "mirage/ir/graph.h"
#include "search/problem/witness.h"

namespace mirage::search {

/// What one graph-defined operator has to compute: `targets` from `leaves`, values of the reference.
struct Problem {
  std::vector<ValueId> leaves, targets;
  std::vector<NodeId> inside;          ///< nodes that the reference needs for it, ascending, Outputs left out
};
/// nullopt-like: `inside` is empty if a target is a leaf or nothing is to be done.
Problem make_problem(const Graph& reference, std::vector<ValueId> leaves, std::vector<ValueId> targets);

/// A tile load: a leaf under one partition. Two uses of one leaf share a load if they are split alike.
struct Load {
  ValueId leaf = -1;
  Partition part;
  friend bool operator==(const Load&, const Load&) = default;
};

/// One choice of what the grid and the loop split.
struct Split {
  std::vector<Load> loads;             ///< ordered by leaf, then as they were met
  int axes = 0;
  std::array<int, 3> axis_class{-1, -1, -1};   ///< class of dimensions on x, y, z
  /// the axis (the last one) that splits a summed index: blocks along it have parts of sums, which another kernel puts together
  int partial_axis = -1;
  int loop_class = -1;                 ///< -1: no loop
  std::vector<Partition> stores;       ///< per target; the partial axis splits none
  unsigned axis_mask = 0;              ///< the other axes, as bits of the problem's candidates
  int loop_group = -1, partial_group = -1;   ///< numbers of the indices on the loop and on the partial axis, -1: none
  /// no part of it waits for a better one: plausible tiles fit shared memory, little work is done twice, there are enough blocks, and no
  /// other kernel adds up
  bool is_good = false;
  /// an estimate from below, in nanoseconds, of what any graph under it takes: what it loads, its products, parts that it stores; without a
  /// loop on as many multiprocessors as it has blocks
  int64_t cost = 1;
  /// at plausible tiles it does several times the program's work, stores far more, or does not fit: searched where nothing else is found
  bool is_poor = false;
  /// Whether o is this split with more axes, or a loop: what o computes with one block along these, or one iteration, is what this split
  /// computes.
  bool is_instance_of(const Split& o) const {
    return (loop_group == o.loop_group || loop_group < 0) && partial_group == o.partial_group && (axis_mask & ~o.axis_mask) == 0 &&
           loads.size() == o.loads.size();
  }
  /// An instance by fewer axes alone: the same values, in fewer blocks.
  bool is_coarser_than(const Split& o) const { return axis_mask != o.axis_mask && loop_group == o.loop_group && is_instance_of(o); }
};

struct Splits {
  std::vector<Split> all;              ///< in the order in which they are searched
  int64_t index_closed = 0;            ///< choices that would lose an index
  std::string index_example;
};
/// Sound limits for one kernel: an index that a target has and that no operator sums away may be split by the grid; one that is summed away
/// and that no target has may be split by the loop; one that is both (a normalised row) must be whole in a block.
struct SplitOptions {
  /// each use of an intermediate value brings indices of its own too, as if it were computed again: what is summed for one use may be split
  /// for another
  bool recompute = false;
  /// only splits that loop over some of the summed indices of one extent and hold the others whole (a tensor that is loaded twice, under
  /// two partitions)
  bool apart = false;
  bool partial = false;     ///< also splits with a grid axis on a summed index
  std::vector<int> whole;   ///< classes that the grid does not split
  bool loops_over_whole = false;   ///< but the loop may
  /// bytes that a block may hold, and those of them in shared memory, for judging what is poor or good
  int64_t memory = 480'000, shared = 230'000;
  int64_t multiprocessors = 132;
  double bytes_per_us = 4.3e6, flops_per_us = 790e6, launch_us = 0.6;   ///< of the whole device, for costs
};
/// Empty if recomputing makes more than a few hundred uses.
Splits enumerate_splits(const Graph& reference, const DimClasses& classes, const Problem& problem, const SplitOptions& options = {});

}  // namespace mirage::search
