// Operands whose lines lie apart in memory, as transposed batches do (channels innermost), brought into order by a kernel of their own.
#pragma once
#include <optional>

#include "mirage/ir/graph.h"
#include "mirage/ir/program.h"

namespace mirage {

/// `graph` (calls, no pre-defined products) with a copy in front of every operand of a call of which neither rows nor columns are neighbours in memory; the same function. nullopt: there is no such operand.
/// Copies are casts to the type that the value has, which change nothing.
std::optional<Graph> order_operands(const Program& program, const Graph& graph);

}  // namespace mirage
