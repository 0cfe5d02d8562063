// A block graph over whole tensors: what it computes whatever its tiles, which dimensions are one index, and how blocks and iterations cut
// each.
#pragma once
#include <span>
#include <string>
#include <vector>
#include "mirage/ir/graph.h"

namespace mirage {

/// Tiles of an index, along which axis of the grid (-1: every block has all of it), and whether iterations take them.
struct IndexCut {
  int64_t tile = 1;
  int grid = -1;
  bool loop = false;
  friend bool operator==(const IndexCut&, const IndexCut&) = default;
};

struct Whole {
  Graph body;                               ///< of one block and one iteration; what the loop splits stays marked: accumulators close it
  std::vector<std::vector<int>> index_of;   ///< per value, per dimension; -1: one element
  std::vector<int64_t> extents;             ///< per index
  /// Why there is none: what the body computes depends on its tiles.
  std::string reason;
};
/// operands: dimensions of the tensors, by parameter.
Whole whole(const Graph& body, std::span<const Dims> operands);

/// Per index, as the body's inputs are cut (index_of: Whole's); or why not: one is cut in two ways.
struct IndexCuts { std::vector<IndexCut> of; std::string reason; };
IndexCuts cuts(const Graph& body, const std::vector<std::vector<int>>& index_of);

}  // namespace mirage
