// The decisions of a planning that costs decide: recorded at one shape and taken again at another (plan/replan.cc), so that two plans have
// the same kernels apart from extents. Private to lib/plan.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>
#include "mirage/plan/block.h"
#include "mirage/plan/region.h"

namespace mirage {

/// What choosing loops and threads of a region leaves.
struct RegionNumbers {
  RegionPlan::Shape shape = RegionPlan::Shape::kPointwise;
  std::vector<int> outer, inner;                     ///< loops in order, before neighbours become one
  int width = 1, threads = 0, team = 1, columns = 1, cluster = 1, kept = 0, own_rows = 0;
  int own_loop = -1;                                 ///< the outer loop along which a thread has own_rows places; -1: the last but one
  bool held = false, unpacked = false, uneven = false, staged = false, by_rows = false, unrolled = false, split_rows = false;
};

/// Decisions by what they are about: values of the graph, which both shapes number alike.
struct Tape {
  bool replays = false;
  std::map<std::vector<int>, RegionNumbers> regions;                                ///< by the region's values
  std::map<std::pair<std::vector<ValueId>, std::vector<ValueId>>, bool> merges;    ///< by the values of both kernels
  std::map<ValueId, std::vector<bool>> inlines;                                    ///< of each value, one question after another
  std::map<ValueId, size_t> asked;
  /// by the kernel's first value: elements of a chunk, 0: not split
  std::map<ValueId, int64_t> splits;
};

/// Plans a graph (calls only, no matmuls) with decisions recorded on the tape or taken from it. Calls keep the model's kernels while it
/// records and get the model's numbers when it replays. plan.cc
Planned plan_with_tape(const Program&, const Graph&, const Target&, Tape&, const Plan& model);

}  // namespace mirage
