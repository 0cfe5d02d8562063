// The end of a pass of folding: what it made, without what nothing reads any more, and what became of its values.
#pragma once
#include <utility>
#include <vector>

#include "mirage/ir/graph.h"

namespace mirage {

/// `built` without its dead nodes. made: per value of the graph that was rewritten, the value of `built` in its place, -1: none; beside:
/// further values of `built`, each computed where such a value was. kept (of the old graph, empty or null: unknown) and to are those of the
/// pass, for the result; in kept a pair of `beside` wins.
Graph finished(const Graph& built, const std::vector<ValueId>& made, const std::vector<std::pair<ValueId, ValueId>>& beside,
               std::vector<DType>* kept, std::vector<ValueId>* to);

}  // namespace mirage
