// A product of few results over a long reduction as products of its parts, as many as there are multiprocessors for, and their sum. A
// tile's blocks divide a reduction among the few of a cluster; 256 x 524288 x 256 has work for two or four tiles of them.
#include <algorithm>
#include <optional>

#include "mirage/ir/walk.h"
#include "mirage/support/round.h"
#include "plan/passes/rewrites.h"

namespace mirage {
namespace {

constexpr int64_t kLeastRows = 17;         // up to 16 rows streams divide the reduction
constexpr int64_t kLeastParts = 5;         // what a cluster does not do
constexpr int64_t kLeastPart = 512;        // elements of the reduction
constexpr int64_t kTileRows = 256, kTileColumns = 128;

/// Parts of the reduction that give each multiprocessor a tile; 0: not to be divided.
int64_t parts_of(const Dims& a, const Dims& b, const Target& target) {
  const int r = a.rank();
  for (int d = 0; d + 2 < r; d++) if (a[d] != 1 || b[d] != 1) return 0;
  const int64_t m = a[r - 2], k = a[r - 1], n = b[r - 1];
  if (m < kLeastRows || n < kLeastRows) return 0;
  const int64_t most = target.num_sms / (ceil_div(m, kTileRows) * ceil_div(n, kTileColumns));
  for (int64_t parts = std::min(most, k / kLeastPart); parts >= kLeastParts; parts--)
    if (k % (parts * 64) == 0) return parts;
  return 0;
}

ValueId add_divided(Builder& g, ValueId x, ValueId y, int64_t parts) {
  const Dims a = g.graph().dims(x), b = g.graph().dims(y);
  const int r = a.rank();
  const int64_t m = a[r - 2], k = a[r - 1], n = b[r - 1];
  Transpose turn;
  turn.perm = {1, 0, 2};
  const ValueId rows = g.add(turn, {g.add(Reshape{{m, parts, k / parts}}, {x})});
  const ValueId columns = g.add(Reshape{{parts, k / parts, n}}, {y});
  const ValueId sum = g.add(Reduce{ReduceFn::kSum, 0, 0}, {g.add(MatMul{}, {rows, columns})});
  Dims out = a;
  out[r - 1] = n;
  return g.add(Reshape{out}, {sum});
}

}  // namespace

std::optional<Graph> divide_products(const Graph& g, const Target& target) {
  Builder b(Level::kKernel);
  std::vector<ValueId> to(static_cast<size_t>(g.num_values()), -1);
  bool changed = false;
  for (const Node& n : g.nodes()) {
    std::vector<ValueId> operands;
    for (ValueId o : n.operands) operands.push_back(to[static_cast<size_t>(o)]);
    const int64_t parts =
        std::holds_alternative<MatMul>(n.op) ? parts_of(g.dims(n.operands[0]), g.dims(n.operands[1]), target) : 0;
    const auto* in = std::get_if<Input>(&n.op);
    const ValueId first = in          ? b.add_input(in->param, g.type(n.first_value), in->part)
                          : parts > 0 ? add_divided(b, operands[0], operands[1], parts)
                                      : b.add(n.op, operands);
    changed = changed || parts > 0;
    for (int i = 0; i < n.num_values; i++) to[static_cast<size_t>(n.first_value + i)] = first + i;
  }
  if (!changed) return std::nullopt;
  return std::move(b).finish();
}

}  // namespace mirage
