// Inputs on which two graphs are compared: masks with structure, and numbers of every size that a condition in the graphs may ask about
// (docs/verification.md, "Draws").
#pragma once
#include <cstdint>
#include <vector>

#include "mirage/ir/eval.h"
#include "mirage/ir/graph.h"
#include "mirage/support/hash.h"

namespace mirage::verify {

inline constexpr int kMaskPatterns = 19;
/// Bits of a mask: pattern 0 to 3 independent bits (half, mostly true, nearly all true, mostly false), then all, none, one true, one false,
/// prefixes, suffixes, bands, triangles, blocks, stripes; by row, or alike for all rows.
std::vector<uint8_t> draw_mask(const Dims& dims, int pattern, Rng& rng);

/// Sizes that conditions may ask about: the finite constants of both graphs, their products and quotients two at a time, squares and roots.
/// Positive, sorted, each once, at most 128.
std::vector<double> threshold_sizes(const Graph& a, const Graph& b);

inline constexpr int kQuickKinds = 6, kAllKinds = 20;
/// Values of one input. kinds below kQuickKinds are independent values of moderate size; the others have magnitudes on both sides of every
/// threshold, offsets by row and by tensor, ties, zeros, orders, and the ends of the type's range.
void draw_reals(std::vector<double>& out, const Type& type, int kind, const std::vector<double>& sizes, Rng& rng);

}  // namespace mirage::verify
