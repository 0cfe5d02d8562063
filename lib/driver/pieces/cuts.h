// Where a large program may be cut (docs/partition.md): its nodes as units, and the convex connected sets of units that one search can
// take. First half of partitioning; knows no cost.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>
#include "mirage/ir/program.h"

namespace mirage {

/// Nodes that are never cut apart: a contraction, or elementwise functions and reductions between cut points.
struct Unit {
  std::vector<NodeId> nodes;        ///< ascending
  bool contracts = false;
  bool copyable = false;            ///< cheap, read by several units and by nothing else: each reader may compute it again
  bool is_view = false;             ///< how what it views is stored: costs nothing
  bool is_stored = false;           ///< a result of the program, or read by a node that no search takes
  int64_t elements = 0;             ///< of what others read
  std::vector<int> direct;          ///< units whose values it reads
  std::vector<int> through;         ///< units whose values it reads behind a node that no search takes (a reshape that splits, a slice)
};

struct Cuts {
  std::vector<Unit> units;          ///< in an order that respects what they read
  std::vector<int> unit_of;         ///< per node; -1: inputs, constants, views, nodes that no search takes
  std::vector<bool> is_constant;    ///< per node: made of constants alone; every piece that reads it has its own
  /// per node: an input, or a view that a search takes: every piece that reads it has its own, of what is stored
  std::vector<bool> is_free;
};
/// Whether what spreads a unit's sum over a tensor that the unit does not know is a unit of its own, or one with it: the former makes more
/// cuts, the latter leaves room for more in a piece.
enum class Spreading : uint8_t { kApart, kJoined };
Cuts find_cuts(const Graph& graph, Spreading spreading = Spreading::kApart);

/// A set of units that is planned and searched alone, and those that it computes again for itself.
struct Cut {
  std::vector<int> units;           ///< ascending: what it adds to what there is
  std::vector<int> copies;          ///< ascending
  friend bool operator==(const Cut&, const Cut&) = default;
  friend auto operator<=>(const Cut&, const Cut&) = default;
};

/// What may follow what: states are sets of units that exist (or are decided to be copied), steps are cuts.
struct CutStep { int cut = -1; int to = -1; };   ///< cut -1: the next unit is left to its readers
struct CutGraph {
  std::vector<Cut> cuts;                        ///< every cut once
  std::vector<std::vector<CutStep>> steps;      ///< per state, from state 0 (nothing exists); steps lead to higher numbers
  int end = -1;                                 ///< the state in which everything exists
};
/// sets: the most that lead on from one state, the lowest unit alone and those that keep most inside; halved until states and cuts keep to
/// their limits.
struct CutLimits { int units = 6, contractions = 3, states = 10'000, cuts = 4'000, sets = 64; };
CutGraph enumerate_cuts(const Cuts& cuts, const Graph& graph, const CutLimits& limits);

/// One cut as a graph of its own.
struct Piece {
  std::vector<NodeId> nodes;        ///< of the program, ascending; constants and free views included
  std::vector<ValueId> leaves;      ///< param i is this value of the program
  std::vector<ValueId> results;     ///< result i is this value of the program
  Graph graph;                      ///< primitives; inputs have the program's types, what no output of the program alone reads stays real
};
/// `classes`: extent_classes(graph). Constants that stand for extents name dimensions of the piece's own inputs where one is always as
/// long; elsewhere they become literals, which hold at the real size.
Piece make_piece(const Cuts& cuts, const Cut& cut, const Graph& graph, const std::vector<std::vector<int>>& classes);

/// The piece between these values, as make_piece made it: what a certificate's piece stands for. nullopt if the results need other values
/// than the leaves.
std::optional<Piece> piece_between(const Graph& graph, const std::vector<ValueId>& leaves, const std::vector<ValueId>& results,
                                   const std::vector<std::vector<int>>& classes);

}  // namespace mirage
