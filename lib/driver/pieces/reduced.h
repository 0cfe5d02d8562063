// A program over small extents, reshapes that split or join dimensions included: what a partitioned program is verified at as a whole. The
// search's own witnesses (search/problem/witness.cc) leave such reshapes out, because splits of a joined dimension have no structure of
// their own; here nothing is searched, only evaluated. Slices and concatenations take the search's own extents.
#pragma once
#include <optional>
#include <string>
#include <vector>
#include "mirage/ir/program.h"

namespace mirage {

/// The program's graph, node by node and value by value, over small extents; or why there is none.
struct ReducedProgram {
  Graph graph;
  std::string refusal;
};

/// Dimensions that broadcasting, contractions and reshapes force equal stay equal; one that a reshape splits is the product of its parts.
/// variant 0: even extents, 1: odd ones. `alike`: lists of values whose equal real shapes stay equal (results of one kernel).
ReducedProgram reduce_extents(const Graph& graph, int variant, const std::vector<std::vector<ValueId>>& alike = {});

/// Per value and dimension a number; equal numbers, equal extents at every size. Empty where there are no small extents.
std::vector<std::vector<int>> extent_classes(const Graph& graph);

/// Whether the search's witnesses can follow this node: no slice, concatenation, repetition, index, reduction over groups, or reshape that
/// splits or joins.
bool is_searchable(const Graph& graph, NodeId node);

}  // namespace mirage
