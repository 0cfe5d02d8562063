// What cuBLASLt takes for a product, from outside: waves of tiles at the rate of the units or of what feeds them, device memory, and what
// every call costs. The constants are fitted to test/gpu/products.cu (docs/performance.md, "Products by cuBLASLt").
#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include "plan/cublas/cublas_internal.h"

namespace mirage {
namespace {

/// Tiles of one kernel of the library, and which part of the best rate it reaches.
struct CublasTile { double rows, columns, share; };
constexpr std::array<CublasTile, 5> kTensorTiles = {{{128, 256, 1.0}, {128, 128, 0.9}, {64, 128, 0.75}, {64, 64, 0.55}, {64, 32, 0.35}}};
constexpr std::array<CublasTile, 4> kFloatTiles = {{{128, 128, 1.0}, {128, 64, 0.9}, {64, 64, 0.8}, {32, 64, 0.6}}};
constexpr double kSplitUs = 1.2;            // of a reduction in parts: another kernel, or meeting
constexpr double kLeastDepth = 256;         // of a part

/// Waves of tiles, over all ways to divide that the library may take.
double tiles_us(const CublasPlan& p, const Target& t, std::span<const CublasTile> tiles, double rate) {
  const double size = dtype_bytes(p.type), sms = t.num_sms;
  double best = 0;
  for (const CublasTile& tile : tiles)
    for (const bool flip : {false, true})
      for (const double parts : {1.0, 2.0, 4.0, 8.0, 16.0}) {
        const double r = flip ? tile.columns : tile.rows, c = flip ? tile.rows : tile.columns, depth = static_cast<double>(p.depth) / parts;
        if (parts > 1 && depth < kLeastDepth) continue;
        const double count = std::ceil(static_cast<double>(p.rows) / r) * std::ceil(static_cast<double>(p.columns) / c) *
                             static_cast<double>(p.batch) * parts;
        const double multiply = 2 * r * c * depth / (rate * tile.share / sms), feed = (r + c) * depth * size / t.large_sm_bytes_per_us;
        const double sums = static_cast<double>(p.batch * p.rows * p.columns) * 4 * parts * 2;
        const double us = std::ceil(count / sms) * std::max(multiply, feed) + (parts > 1 ? kSplitUs + sums / t.l2_bytes_per_us : 0);
        if (best == 0 || us < best) best = us;
      }
  return best;
}

}  // namespace

Cost estimate(const CublasPlan& p, const Target& t) {
  const auto n = [](int64_t x) { return static_cast<double>(x); };
  Cost c;
  double all = 0;
  for (const auto* list : {&p.operands, &p.results}) for (const Access& a : *list) all += n(a.dims.elements() * dtype_bytes(a.dtype));
  c.bytes = static_cast<int64_t>(all);
  c.flops = 2 * n(p.batch) * n(p.rows) * n(p.columns) * n(p.depth);
  const bool is_float = p.type == DType::kF32;
  const double units = is_float ? tiles_us(p, t, kFloatTiles, t.cublas_f32_flops_per_us)
                                : tiles_us(p, t, kTensorTiles, t.cublas_flops_per_us);
  const double memory = all / t.dram_bytes_per_us;
  c.us = t.launch_us + t.cublas_us + std::max(units, memory);
  c.why = fmt::format("cuBLASLt, as measured of it: {}, {:.3g} GFLOP, {:.1f} MB", units > memory ? "tiles" : "device memory", c.flops / 1e9,
                      all / 1e6);
  return c;
}

}  // namespace mirage
