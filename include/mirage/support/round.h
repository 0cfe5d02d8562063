// Integers rounded up (counts of tiles, and sizes as multiples of tiles and of alignments), and numbers that are integers.
#pragma once
#include <cmath>
#include <cstdint>
#include <optional>

namespace mirage {

/// a / b, rounded up; b > 0, a >= 0.
inline constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// The least multiple of `to` that is at least x; to > 0, x >= 0.
inline constexpr int64_t round_up(int64_t x, int64_t to) { return ceil_div(x, to) * to; }

/// x, if it is a whole number that int64_t has; not so infinities, NaN and 2^63, whose conversion is undefined.
inline std::optional<int64_t> whole_number(double x) {
  if (!(x >= -0x1p63 && x < 0x1p63 && x == std::trunc(x))) return std::nullopt;
  return static_cast<int64_t>(x);
}

}  // namespace mirage
