// Softmaxes without overflow (docs/stability.md): the search and the algebra work on exp(x), kernels on exp(x - m). Stands on
// both sides of the search: unshift() before it, stabilize() behind it.
#pragma once
#include <optional>

#include "mirage/ir/graph.h"

namespace mirage {

/// g with exp(x - m), m a maximum of x along some dimensions, replaced by exp(x) wherever the shift cancels out of every result (softmax
/// and its like). The same function of real numbers.
/// g: kernel level, primitives only.
Graph unshift(const Graph& g);

/// g (kernel level, with calls) with exponentials shifted: in a block graph exp(x) becomes exp(x - m), m a row maximum or, over the loop, a
/// running one that rescales the accumulators; where partial results leave a kernel, m leaves with them as a further result and whoever
/// combines them brings them to a common maximum. nullopt if no exponential can be shifted. The same function of real numbers by
/// construction; callers verify it all the same.
///
/// An exponential is shifted only if every accumulator is homogeneous of a known degree >= 0 in the exponentials that share the shift,
/// independently per index of m, and every result of the program has degree 0.
std::optional<Graph> stabilize(const Graph& g);

}  // namespace mirage
