// Integers rounded up: counts of tiles, and sizes as multiples of tiles and of alignments.
#pragma once
#include <cstdint>

namespace mirage {

/// a / b, rounded up; b > 0, a >= 0.
inline constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// The least multiple of `to` that is at least x; to > 0, x >= 0.
inline constexpr int64_t round_up(int64_t x, int64_t to) { return ceil_div(x, to) * to; }

}  // namespace mirage
