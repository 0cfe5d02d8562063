// A pre-defined MatMul as a block graph: batch, rows and columns on the grid, the contraction in the loop, ragged tails. The candidate
// whose plan is cheapest by the cost model wins.
#include <algorithm>

#include "mirage/plan/block.h"
#include "mirage/plan/strategy.h"
#include "mirage/support/round.h"

namespace mirage {
namespace {

Access row_major(const Type& t) { return {0, 0, t.dims, row_major_strides(t.dims), t.dtype == DType::kReal ? DType::kF32 : t.dtype}; }

constexpr int64_t kLeastLoopRows = 16, kLeastLoop = 16;   // of the other operand; of the reduction
constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;

/// The block graph with these tiles; dims of a: (..., M, K), of b: (..., K, N). A block has one product of a batch, or as many as it takes
/// to launch all blocks at once.
Graph matmul_body(const Type& a, const Type& b, int64_t tm, int64_t tn, int64_t tk) {
  const int r = a.dims.rank();
  const int64_t m = a.dims[r - 2], k = a.dims[r - 1], n = b.dims[r - 1];
  int batch_dim = -1;   // the one batch dimension on grid z; others must be 1 (callers flatten)
  for (int i = 0; i + 2 < r; i++) if (std::max(a.dims[i], b.dims[i]) > 1) batch_dim = i;
  const bool loop = tk < k;
  const int64_t batch = batch_dim < 0 ? 1 : std::max(a.dims[batch_dim], b.dims[batch_dim]);
  int64_t products = 1;
  while (products < batch && ceil_div(batch, products) > kMostBlocks / (ceil_div(n, tn) * ceil_div(m, tm))) products *= 2;
  Launch launch{{ceil_div(n, tn), ceil_div(m, tm), ceil_div(batch, products)}, ceil_div(k, tk)};
  auto grid = [](bool split, int d) { return static_cast<int8_t>(split ? d : -1); };
  auto tile = [&](const Type& t, int64_t rows, int64_t cols) {
    Type out = t;
    for (int i = 0; i + 2 < r; i++) out.dims[i] = std::min(products, out.dims[i]);
    out.dims[r - 2] = rows;
    out.dims[r - 1] = cols;
    return out;
  };
  const bool split_n = launch.grid[0] > 1, split_m = launch.grid[1] > 1;
  Builder g(Level::kBlock, launch);
  const ValueId x = g.add_input(0, tile(a, tm, tk),
                                {{-1, grid(split_m, r - 2), grid(batch_dim >= 0 && a.dims[batch_dim] > 1, batch_dim)}, grid(loop, r - 1)});
  const ValueId y = g.add_input(1, tile(b, tk, tn),
                                {{grid(split_n, r - 1), -1, grid(batch_dim >= 0 && b.dims[batch_dim] > 1, batch_dim)}, grid(loop, r - 2)});
  ValueId v = g.add(MatMul{}, {x, y});
  if (loop) v = g.add(Accum{ReduceFn::kSum}, {v});
  g.add_output(0, v, DType::kReal, {{grid(split_n, r - 1), grid(split_m, r - 2), grid(batch_dim >= 0, batch_dim)}, -1});
  return std::move(g).finish();
}

}  // namespace

/// What a strategy would take for it; nullopt: it has no plan.
static std::optional<double> us_of(StrategyId id, const Work& work) {
  const Attempt a = strategies()[static_cast<size_t>(id)].match(work);
  return a.body ? std::optional(a.cost.us) : std::nullopt;
}

Graph lower_matmul(const Type& a, const Type& b, const Target& target, const ContractRule& rule, std::span<const Dims> strides) {
  Access x = row_major(a), y = row_major(b);
  if (!strides.empty()) x.strides = strides[0], y.strides = strides[1];
  const int r = a.dims.rank();
  const int64_t m = a.dims[r - 2], k = a.dims[r - 1], n = b.dims[r - 1];
  std::optional<Graph> best;
  double best_us = 0;
  for (int64_t tm : {16, 32, 64, 128})
    for (int64_t tn : {16, 32, 64, 128})
      for (int64_t tk : {32, 64, 128, 256}) {
        if ((tm > 16 && tm / 2 >= m) || (tn > 16 && tn / 2 >= n) || (tk > 32 && tk / 2 >= k)) continue;
        Graph body = matmul_body(a, b, std::min(tm, m), std::min(tn, n), std::min(tk, k));
        const Type types[] = {a, b};
        Type result = infer(MatMul{}, types, Level::kKernel).types[0];
        const std::optional<double> us = us_of(StrategyId::kBlock, {body, {x, y}, {row_major(result)}, target, rule});
        if (us && (!best || *us < best_us)) { best = std::move(body); best_us = *us; }
      }
  // Tiles take graphs with a loop, which generic kernels had rather not for so short a reduction (32768 x 32 x 32768: 1734 us predicted,
  // and 621).
  if (best && best->launch().loop == 1 && m > kLeastLoopRows && k > kLeastLoop) {
    Graph looped = matmul_body(a, b, std::min<int64_t>(64, m), std::min<int64_t>(64, n), round_up(k / 2, kLeastLoop));
    const Type types[] = {a, b};
    const std::vector<Access> results{row_major(infer(MatMul{}, types, Level::kKernel).types[0])};
    if (us_of(StrategyId::kTile, {looped, {x, y}, results, target, rule}).value_or(best_us) < best_us) best = std::move(looped);
  }
  MIRAGE_ASSERT(best) << "no block graph for matmul of " << to_string(a) << " and " << to_string(b);
  return *best;
}

}  // namespace mirage
