// What cuBLASLt takes for a product, from outside: waves of tiles at the rate of the units or of what feeds them, device memory, and what
// every call costs. The constants are fitted to test/gpu/products.cu (docs/measurements/cublas.md).
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "plan/cublas/cublas_internal.h"

namespace mirage {
namespace {

/// Tiles of one kernel of the library, and which part of the best rate it reaches.
struct CublasTile { double rows, columns, share; };

/// What it does with operands of one kind, as parts of what the device does.
struct CublasUnits {
  std::array<CublasTile, 5> tiles;
  double feed;         ///< bytes into a multiprocessor, of what large tiles of ours bring
  double memory;       ///< of the rate of device memory
  double wave_us;      ///< beginning and end of a tile
  double split_us;     ///< of a reduction in parts: another kernel, or meeting
  double more_us;      ///< beyond cublas_us
};
constexpr CublasUnits kTensorUnits = {{{{128, 256, 1.0}, {128, 128, 1.0}, {64, 128, 0.88}, {64, 64, 0.9}, {64, 32, 0.28}}},
                                      1.42, 0.95, 0.22, 1.76, 0};
// few rows: its kernels read a weight at a quarter of the memory's rate
constexpr CublasUnits kFloatUnits = {{{{128, 128, 1.0}, {128, 64, 0.27}, {64, 64, 0.94}, {32, 64, 0.55}, {32, 32, 1.0}}},
                                     0.78, 0.23, 1.24, 0.88, 2.0};
constexpr double kLeastDepth = 256;         // of a part of a reduction
constexpr int64_t kLeastInBatch = 64;       // rows and columns
constexpr double kUnknown = 2;              // of what was not measured: dear enough that it is only taken where it must be far ahead
constexpr double kHidden = 0.05;            // what of the shorter one of products and memory is not hidden
constexpr double kLongUs = 500, kLongShare = 1.16;   // beyond that the limit of power holds 16-bit products back

/// Waves of tiles, over all ways to divide that the library may take.
double tiles_us(const CublasPlan& p, const Target& t, const CublasUnits& units, double rate) {
  const double size = dtype_bytes(p.type), sms = t.num_sms;
  double best = 0;
  for (const CublasTile& tile : units.tiles)
    for (const bool flip : {false, true})
      for (const double parts : {1.0, 2.0, 4.0, 8.0, 16.0, 32.0}) {
        const double r = flip ? tile.columns : tile.rows, c = flip ? tile.rows : tile.columns, depth = static_cast<double>(p.depth) / parts;
        if (parts > 1 && depth < kLeastDepth) continue;
        const double count = std::ceil(static_cast<double>(p.rows) / r) * std::ceil(static_cast<double>(p.columns) / c) *
                             static_cast<double>(p.batch) * parts;
        const double multiply = 2 * r * c * depth / (rate * tile.share / sms);
        const double feed = (r + c) * depth * size / (units.feed * t.large_sm_bytes_per_us);
        const double sums = static_cast<double>(p.batch * p.rows * p.columns) * 4 * parts * 2;
        const double us = std::ceil(count / sms) * (std::max(multiply, feed) + units.wave_us) +
                          (parts > 1 ? units.split_us + sums / t.l2_bytes_per_us : 0);
        if (best == 0 || us < best) best = us;
      }
  return best;
}

/// Whether products like it were measured: lines that begin at multiples of 16 bytes, and in batches no narrow matrices.
bool is_known(const CublasPlan& p) {
  const auto begins = [](const CublasMatrix& m, DType t) { return m.columns == 1 || m.line * dtype_bytes(t) % 16 == 0; };
  return begins(p.first, p.type) && begins(p.second, p.type) && begins(p.result, p.result_type) &&
         (p.batch == 1 || std::min(p.rows, p.columns) >= kLeastInBatch);
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
  const CublasUnits& u = is_float ? kFloatUnits : kTensorUnits;
  double units = tiles_us(p, t, u, is_float ? t.cublas_f32_flops_per_us : t.cublas_flops_per_us);
  if (!is_float && units > kLongUs) units = kLongUs + (units - kLongUs) * kLongShare;
  const double memory = all / (u.memory * t.dram_bytes_per_us);
  c.us = t.launch_us + t.cublas_us + u.more_us + std::max(units, memory) + kHidden * std::min(units, memory);
  if (!is_known(p)) c.us *= kUnknown;
  c.why = fmt::format("cuBLASLt, as measured of it: {}, {:.3g} GFLOP, {:.1f} MB", units > memory ? "tiles" : "device memory", c.flops / 1e9,
                      all / 1e6);
  return c;
}

}  // namespace mirage
