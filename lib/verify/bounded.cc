// Products of bounded numbers; see the header.
#include "verify/bounded.h"

#include <algorithm>
#include <vector>

namespace mirage::verify {

void BoundedAlgebra::gemm(int64_t m, int64_t n, int64_t k, const Bounded* x, const Bounded* y, Bounded* dst) {
  struct Column { double v = 0, size = 0, carried = 0; };
  std::vector<Column> row(static_cast<size_t>(n));
  const auto is_exact_integer = [](const Bounded& b) { return b.e == 0 && b.v == std::nearbyint(b.v); };
  bool integers = true, all_finite = true, any_lost = false;
  const auto look = [&](const Bounded& b) { integers &= is_exact_integer(b), all_finite &= std::isfinite(b.v), any_lost |= lost(b); };
  std::for_each(x, x + m * k, look);
  std::for_each(y, y + k * n, look);
  for (int64_t i = 0; i < m; i++) {
    std::fill(row.begin(), row.end(), Column{});
    for (int64_t l = 0; l < k; l++) {
      const Bounded& a = x[i * k + l];
      const double size = std::fabs(a.v);
      for (int64_t j = 0; j < n; j++) {
        const Bounded& b = y[l * n + j];
        Column& c = row[static_cast<size_t>(j)];
        const double p = a.v * b.v;
        c.v += p;
        c.size += std::fabs(p);
        c.carried += size * b.e + std::fabs(b.v) * a.e + a.e * b.e;
      }
    }
    for (int64_t j = 0; j < n; j++) {
      const Column& c = row[static_cast<size_t>(j)];
      const bool exact = integers && c.size < 0x1p53;
      dst[i * n + j] = made(c.v, c.carried, exact ? 0 : static_cast<double>(k + 1) * kUnit * c.size + kTiny, all_finite || any_lost);
    }
  }
}

}  // namespace mirage::verify
