// A few short words to write graphs in tests of the verifier.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "mirage/ir/graph.h"
#include "mirage/verify/verify.h"

namespace mirage::test {

/// A graph being written, at kernel or block level.
struct Net {
  Builder b;
  int results = 0;
  explicit Net(Level level = Level::kKernel, Launch launch = {}) : b(level, launch) {}
  ValueId in(int param, Dims dims, DType t = DType::kF16, Partition part = {}) { return b.add_input(param, {t, dims}, part); }
  ValueId c(double v) { return b.constant(v); }
  ValueId map(MapFn fn, std::vector<ValueId> x) { return b.map(fn, std::move(x)); }
  ValueId add(ValueId x, ValueId y) { return map(MapFn::kAdd, {x, y}); }
  ValueId sub(ValueId x, ValueId y) { return map(MapFn::kSub, {x, y}); }
  ValueId mul(ValueId x, ValueId y) { return map(MapFn::kMul, {x, y}); }
  ValueId div(ValueId x, ValueId y) { return map(MapFn::kDiv, {x, y}); }
  ValueId neg(ValueId x) { return map(MapFn::kNeg, {x}); }
  ValueId exp(ValueId x) { return map(MapFn::kExp, {x}); }
  ValueId sqrt(ValueId x) { return map(MapFn::kSqrt, {x}); }
  ValueId square(ValueId x) { return map(MapFn::kSquare, {x}); }
  ValueId silu(ValueId x) { return map(MapFn::kSilu, {x}); }
  ValueId max(ValueId x, ValueId y) { return map(MapFn::kMax, {x, y}); }
  ValueId where(ValueId c, ValueId x, ValueId y) { return map(MapFn::kWhere, {c, x, y}); }
  ValueId less(ValueId x, ValueId y) { return map(MapFn::kLess, {x, y}); }
  ValueId mm(ValueId x, ValueId y) { return b.add(MatMul{}, {x, y}); }
  ValueId sum(ValueId x, int dim, int64_t group = 0) { return b.add(Reduce{ReduceFn::kSum, dim, group}, {x}); }
  ValueId rmax(ValueId x, int dim) { return b.add(Reduce{ReduceFn::kMax, dim, 0}, {x}); }
  ValueId iota(int dim, Dims dims) { return b.add(Iota{dim, dims}, {}); }
  ValueId slice(ValueId x, int dim, int64_t start, int64_t stop, int64_t step = 1) { return b.add(Slice{dim, start, stop, step}, {x}); }
  ValueId reshape(ValueId x, Dims dims) { return b.add(Reshape{dims}, {x}); }
  ValueId concat(std::vector<ValueId> x, int dim) { return b.add(Concat{dim}, std::move(x)); }
  ValueId repeat(ValueId x, int dim, int64_t count) { return b.add(Repeat{dim, count}, {x}); }
  ValueId swap(ValueId x) {   // of the last two dimensions
    Transpose t;
    const int r = b.graph().dims(x).rank();
    for (int i = 0; i < r; i++) t.perm[static_cast<size_t>(i)] = static_cast<int8_t>(i < r - 2 ? i : 2 * r - 3 - i);
    return b.add(t, {x});
  }
  ValueId accum(ValueId x, ReduceFn fn = ReduceFn::kSum) { return b.add(Accum{fn}, {x}); }
  ValueId call(const Graph& body, std::vector<ValueId> x) { return b.add(Call{std::make_shared<const Graph>(body)}, std::move(x)); }
  Net& out(ValueId v, DType t = DType::kF16, Partition part = {}) { b.add_output(results++, v, t, part); return *this; }
  Graph done() { return std::move(b).finish(); }
};

inline Partition part(int8_t x, int8_t y, int8_t z, int8_t loop) { return Partition{{x, y, z}, loop}; }
inline Partition loop_over(int8_t d) { return part(-1, -1, -1, d); }
inline Partition grid_x(int8_t d) { return part(d, -1, -1, -1); }
/// A block-level call as the only operator of a kernel graph over inputs of the given types.
inline Graph kernel_of(const Graph& body, const std::vector<Dims>& inputs, DType t = DType::kF16) {
  Net k;
  std::vector<ValueId> x;
  for (size_t i = 0; i < inputs.size(); i++) x.push_back(k.in(static_cast<int>(i), inputs[i], t));
  const ValueId first = k.call(body, x);
  for (int r = 0; r < body.num_results(); r++) k.out(first + r, k.b.graph().type(first + r).dtype);
  return k.done();
}

constexpr auto kEqual = Verdict::Kind::kEqual;
constexpr auto kDifferent = Verdict::Kind::kDifferent;
constexpr auto kUnknown = Verdict::Kind::kUnknown;

}  // namespace mirage::test

#define CHECK_VERDICT(a, b, expected)                            \
  do {                                                           \
    const ::mirage::Verdict verdict_ = ::mirage::equal(a, b, 7); \
    INFO(::mirage::to_string(verdict_));                         \
    CHECK(verdict_.kind == expected);                            \
  } while (false)
