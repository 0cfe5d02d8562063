// Linear layers as block graphs and the divisions of them that were measured on an H200 (cold, microseconds; docs/measurements/streams.md):
// what the tests of the cost models rank, and whose emitted text test/golden/texts.cc keeps.
#pragma once
#include <utility>
#include <vector>

#include "plan/stream/stream_internal.h"
#include "plan/tile/tile_internal.h"

namespace mirage::test {

struct LinearCase { Graph body; std::vector<Access> operands, results; };

/// silu(x w1) x w2 (or x w1), of x times a gain if `gain`, divided by the rows' norm if `rms`, plus (x a) b of `rank`, in tiles of 32
/// columns and 16 of the reduction.
struct Linear {
  int64_t rows = 8, depth = 512, cols = 1024;
  int weights = 1;
  bool rms = false, gain = false;
  int64_t rank = 0;
  DType t = DType::kF16;
};

inline LinearCase linear_case(const Linear& l) {
  const DType t = l.t;
  Builder b(Level::kBlock, {{l.cols / 32, 1, 1}, l.depth / 16});
  LinearCase c;
  const auto row_major = [](int buffer, Type type) { return Access{buffer, 0, type.dims, row_major_strides(type.dims), type.dtype}; };
  const auto operand = [&](Dims dims) {
    c.operands.push_back(row_major(static_cast<int>(c.operands.size()), {t, dims}));
    return static_cast<int>(c.operands.size()) - 1;
  };
  const ValueId stored = b.add_input(operand({l.rows, l.depth}), {t, {l.rows, 16}}, {{-1, -1, -1}, 1});
  ValueId x = stored, y = -1;
  if (l.gain) x = b.map(MapFn::kMul, {x, b.add_input(operand({1, l.depth}), {t, {1, 16}}, {{-1, -1, -1}, 1})});
  for (int i = 0; i < l.weights; i++) {
    const ValueId s = b.add(Accum{}, {b.add(MatMul{}, {x, b.add_input(operand({l.depth, l.cols}), {t, {16, 32}}, {{1, -1, -1}, 0})})});
    y = y < 0 ? s : b.map(MapFn::kMul, {b.map(MapFn::kSilu, {y}), s});
  }
  if (l.rank) {
    const ValueId a = b.add_input(operand({l.depth, l.rank}), {t, {16, l.rank}}, {{-1, -1, -1}, 0}),
                  f = b.add_input(operand({l.rank, l.cols}), {t, {l.rank, 32}}, {{1, -1, -1}, -1});
    y = b.map(MapFn::kAdd, {y, b.add(MatMul{}, {b.add(Accum{}, {b.add(MatMul{}, {x, a})}), f})});
  }
  if (l.rms)
    y = b.map(MapFn::kDiv,
              {y, b.map(MapFn::kSqrt, {b.add(Accum{}, {b.add(Reduce{ReduceFn::kSum, 1, 0}, {b.map(MapFn::kSquare, {stored})})})})});
  b.add_output(0, y, t, {{1, -1, -1}, -1});
  c.results = {row_major(static_cast<int>(c.operands.size()), {t, {l.rows, l.cols}})};
  c.body = std::move(b).finish();
  return c;
}

template <class Choice> struct MeasuredLinear { Linear of; std::vector<std::pair<Choice, double>> rows; };

inline std::vector<MeasuredLinear<StreamChoice>> measured_streams() {
  return {
      {{.rows = 8, .depth = 4096, .cols = 4096, .weights = 2}, {{{8, 2, 64, 2, 1, true}, 17.37}, {{4, 3, 128, 2, 1, true}, 17.16},
        {{4, 2, 128, 2, 1, true}, 17.26}, {{8, 3, 64, 2, 1, true}, 17.46}, {{8, 4, 32, 2, 1, true}, 18.1}, {{4, 4, 64, 2, 1, true}, 17.8},
        {{8, 1, 128, 2, 1, true}, 17.7}, {{8, 2, 64, 1, 1, true}, 18.0}, {{4, 2, 64, 4, 2, true}, 18.5}, {{16, 2, 32, 2, 1, true}, 17.6}}},
      {{.rows = 16, .depth = 4096, .cols = 6144, .rms = true}, {{{4, 2, 64, 2, 2, true}, 14.42}, {{4, 3, 64, 2, 2, true}, 15.48},
        {{8, 2, 32, 2, 2, true}, 14.73}, {{8, 1, 64, 2, 2, true}, 15.45}, {{8, 2, 64, 2, 1, true}, 18.76},
        {{4, 2, 64, 2, 2, false}, 14.6}}},
      {{.rows = 16, .depth = 256, .cols = 4096, .rank = 16},
       {{{4, 1, 64, 1, 1, true}, 2.98}, {{4, 2, 32, 1, 1, true}, 3.13}, {{8, 1, 32, 1, 1, true}, 3.43}, {{4, 1, 32, 2, 1, true}, 3.27}}},
      {{.rows = 8, .depth = 4096, .cols = 4096, .rank = 16}, {{{4, 2, 128, 2, 1, true}, 10.45}, {{8, 2, 64, 2, 1, true}, 10.66},
        {{8, 1, 128, 2, 1, true}, 11.15}, {{8, 3, 32, 2, 1, true}, 11.1}, {{4, 4, 64, 2, 1, true}, 11.2}}},
      // blocks of 32 and 16 columns; with a bias
      {{.rows = 1, .depth = 2048, .cols = 2048}, {{{4, 2, 128, 2, 1, true}, 4.34}, {{8, 2, 128, 1, 1, true, false, 32}, 3.96}}},
      {{.rows = 16, .depth = 4096, .cols = 1024}, {{{4, 2, 64, 8, 2, true}, 4.90}, {{8, 2, 128, 2, 1, true, false, 32}, 5.09},
        {{8, 2, 64, 2, 1, true, false, 16}, 5.90}}},
  };
}

/// Blocks that stay: warpgroups along rows, rows of one, warpgroups along columns, stages, blocks that share rows, row tiles held.
inline TileChoice staying(int row_groups, int rows, int column_groups, int stages, int sharing, int held) {
  return {row_groups, rows, 64, stages, 1, 1, true, column_groups, true, sharing, false, 0, held};
}

inline std::vector<MeasuredLinear<TileChoice>> measured_tiles() {
  TileChoice one{1, 64, 64, 4, 1, 1}, wide = one, tall = one;
  one.turned = wide.turned = tall.turned = 64;
  wide.turned = 128;
  tall.row_groups = 2;
  return {
      {{.rows = 64, .depth = 4096, .cols = 4096, .weights = 2}, {{{2, 32, 64, 4, 2, 1}, 19.04}, {{2, 32, 64, 5, 2, 1}, 19.04},
        {{2, 32, 64, 3, 2, 1}, 20.20}, {{2, 32, 64, 6, 2, 1}, 19.22}, {{1, 64, 64, 4, 2, 1}, 19.37}}},
      {{.rows = 128, .depth = 4096, .cols = 4096, .weights = 2},
       {{{2, 64, 64, 4, 2, 1}, 19.80}, {{2, 64, 64, 3, 2, 1}, 22.66}, {{2, 64, 64, 5, 2, 1}, 20.68}}},
      {{.rows = 32, .depth = 4096, .cols = 6144, .rms = true}, {{{1, 32, 128, 3, 2, 2}, 14.95}, {{1, 32, 64, 4, 2, 2}, 14.82},
        {{1, 32, 64, 6, 2, 2}, 15.49}, {{1, 32, 128, 2, 2, 2}, 15.47}, {{2, 16, 128, 3, 2, 2}, 14.96}}},
      {{.rows = 4096, .depth = 4096, .cols = 4096}, {{{1, 256, 64, 4, 1, 1, true, 2, true}, 198.84},
        {{2, 128, 64, 4, 1, 1, true, 2, true}, 203.10}, {{1, 128, 64, 3, 1, 2, true, 2, true}, 222.66},
        {{1, 128, 64, 4, 1, 1, true, 4, true}, 202.05}}},
      {{.rows = 4096, .depth = 4096, .cols = 4096, .t = DType::kBF16}, {{staying(1, 256, 2, 4, 1, 8), 178.9},
        {staying(1, 256, 2, 4, 2, 8), 179.4}, {{1, 128, 64, 4, 1, 1, true, 4, true}, 189.0}, {{2, 128, 64, 4, 1, 1, true, 2, true}, 194.7},
        {{1, 256, 64, 4, 1, 1, true, 2, true}, 201.7}, {staying(1, 256, 2, 2, 2, 32), 325.8}}},
      {{.rows = 1 << 20, .depth = 256, .cols = 768, .t = DType::kBF16}, {{staying(1, 256, 2, 4, 1, 8), 722.9},
        {staying(1, 256, 2, 4, 2, 8), 819.4}, {staying(1, 128, 2, 4, 1, 8), 890.9}, {staying(1, 256, 2, 2, 1, 32), 1053.2}}},
      {{.rows = 2048, .depth = 2048, .cols = 2048}, {{{1, 256, 64, 4, 1, 1, true, 2, true}, 26.57},
        {{2, 128, 64, 4, 1, 1, true, 2, true}, 26.83}, {{1, 128, 64, 3, 1, 2, true, 2, true}, 28.42},
        {{1, 192, 64, 4, 1, 1, true, 3, true}, 29.43}}},
      {{.rows = 384, .depth = 4096, .cols = 4096}, {{{1, 96, 64, 8, 1, 1, true, 2, true}, 19.74},
        {{1, 192, 64, 4, 2, 1, true, 2, true}, 21.33}, {{1, 192, 64, 3, 2, 1, true, 2, true}, 24.3}}},
      {{.rows = 384, .depth = 4096, .cols = 2048}, {{{2, 96, 64, 6, 2, 1, true, 1, true}, 12.84},
        {{1, 96, 64, 6, 2, 1, true, 2, true}, 15.42}, {{1, 112, 64, 8, 1, 1, true, 1, true}, 17.63}}},
      {{.rows = 200, .depth = 2048, .cols = 3072}, {{{1, 112, 64, 6, 2, 1, true, 2, true}, 9.23},
        {{1, 64, 64, 8, 1, 1, true, 2, true}, 9.17}, {{1, 112, 128, 4, 1, 1, true, 1, true}, 9.24},
        {{1, 128, 64, 6, 2, 1, true, 2, true}, 10.61}, {{2, 112, 64, 3, 2, 1}, 11.0}}},
      {{.rows = 1000, .depth = 1000, .cols = 3000}, {{{1, 208, 64, 4, 1, 1, true, 2, true, 2}, 13.91},
        {{1, 128, 64, 4, 1, 1, true, 3, true, 2}, 14.94}, {{1, 208, 64, 4, 1, 1, true, 2, true}, 16.40},
        {{1, 128, 64, 4, 1, 1, true, 3, true}, 16.17}, {{1, 96, 64, 4, 1, 1, true, 4, true}, 17.47}}},
      {{.rows = 128, .depth = 256, .cols = 4096, .rank = 16}, {{one, 3.58}, {{1, 32, 64, 4, 1, 2}, 4.38}}},
      {{.rows = 256, .depth = 256, .cols = 4096, .rank = 16}, {{wide, 4.52}, {tall, 5.04}}},
  };
}

}  // namespace mirage::test
