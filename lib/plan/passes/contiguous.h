// Operands whose lines lie apart in memory, as transposed batches do (channels innermost), or at odd addresses, brought into order by a
// kernel of their own.
#pragma once
#include <optional>

#include "mirage/ir/graph.h"
#include "mirage/ir/program.h"

namespace mirage {

/// Row-major strides, in elements, with a gap behind each line (the last dimension) so that lines begin at multiples of 16 bytes.
Dims line_strides(const Dims& dims, int64_t element_bytes);

/// `graph` (calls, no pre-defined products) with a copy in front of every operand of a call of which neither rows nor columns are
/// neighbours in memory, or whose lines, of 16 bits each element, begin anywhere, and of the left operand of a product where both lie
/// across the reduction; the same function. nullopt: there is no such operand.
/// Copies are casts to the type that the value has, which change nothing.
std::optional<Graph> order_operands(const Program& program, const Graph& graph);

}  // namespace mirage
