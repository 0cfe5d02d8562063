// Operators that make indices or read by them. A read by index is a sum over all places of which at most one counts: an index outside of
// the tensor reads 0, and never memory. The planner makes a load of it.
#include <algorithm>
#include <numeric>
#include <fmt/format.h>
#include "spec/operators/desugar.h"

namespace mirage::spec {
namespace {

/// The first place of the largest element along an axis, or along all of them in row-major order.
ValueId first_largest(NodeContext& node, ValueId x) {
  Emitter& e = node.emit;
  if (e.rank(x) == 0) return e.constant(0);
  const bool along_all = !node.attr("axis");
  const Dims whole = e.dims(x);
  if (along_all) x = e.reshape(x, {whole.elements()});
  const int axis = along_all ? 0 : node.axis(e.rank(x));
  Dims line;
  for (int i = 0; i < e.rank(x); ++i) line.push_back(i == axis ? e.dims(x)[i] : 1);
  ValueId before = e.map(MapFn::kNeg, {e.iota(axis, line)}), behind = e.constant(-static_cast<double>(e.dims(x)[axis]));
  ValueId is_largest = e.map(MapFn::kEqual, {x, e.reduce(ReduceFn::kMax, x, {axis})});
  ValueId place = e.map(MapFn::kNeg, {e.reduce(ReduceFn::kMax, e.map(MapFn::kWhere, {is_largest, before, behind}), {axis})});
  if (!along_all) return node.reduced(place, {axis});
  Dims ones;
  for (int i = 0; i < whole.rank(); ++i) ones.push_back(1);
  return e.reshape(place, node.attr("keepdim")->flag ? ones : Dims{});
}

void need_index(NodeContext& node, size_t operand, int64_t extent) {
  if (!node.emit.is_integral(node.operands[operand]))
    node.fail_operand(operand, DiagCode::kDtype, "an index is a tensor of int32 or int64, or computed of such");
  node.places.emplace_back(node.operands[operand], extent);
}

/// The sum over axis k of x where k is the index, which broadcasts with x.
ValueId read_at(Emitter& e, ValueId x, ValueId index, int k) {
  Dims line;
  for (int i = 0; i < e.rank(x); ++i) line.push_back(i == k ? e.dims(x)[i] : 1);
  ValueId here = e.map(MapFn::kEqual, {e.iota(k, line), index});
  return e.reduce(ReduceFn::kSum, e.map(MapFn::kWhere, {here, x, e.constant(0)}), {k});
}

}  // namespace

ValueId read_places(NodeContext& node, ValueId x, ValueId index, int axis) {
  Emitter& e = node.emit;
  const Dims d = e.dims(x), places = e.dims(index);
  if (d.rank() + places.rank() - 1 > kMaxRank)
    node.fail(DiagCode::kLimit, node.where,
              fmt::format("the result has rank {}; at most {} dimensions are allowed", d.rank() + places.rank() - 1, kMaxRank));
  int64_t before = 1, behind = 1;
  Dims result;
  for (int i = 0; i < axis; ++i) before *= d[i], result.push_back(d[i]);
  for (int64_t n : places) result.push_back(n);
  for (int i = axis + 1; i < d.rank(); ++i) behind *= d[i], result.push_back(d[i]);
  // One dimension each, so that the places of a kernel's elements are simple: (before, places, extent, behind).
  ValueId rows = e.reshape(index, {1, places.elements(), 1, 1});
  return e.reshape(read_at(e, e.reshape(x, {before, 1, d[axis], behind}), rows, 2), result);
}

ValueId build_argmax(NodeContext& node) { return first_largest(node, node.emit.number(node.x())); }
ValueId build_argmin(NodeContext& node) { return first_largest(node, node.emit.map(MapFn::kNeg, {node.x()})); }

ValueId build_embedding(NodeContext& node) {
  Emitter& e = node.emit;
  if (e.rank(node.operands[1]) != 2)
    node.fail_operand(1, DiagCode::kShape, fmt::format("the table {} is not of rank 2", to_string(e.dims(node.operands[1]))));
  need_index(node, 0, e.dims(node.operands[1])[0]);
  return read_places(node, e.number(node.operands[1]), node.x(), 0);
}

ValueId build_index_select(NodeContext& node) {
  node.need_rank(1);
  Emitter& e = node.emit;
  const int axis = node.axis(e.rank(node.x()));
  need_index(node, 1, e.dims(node.x())[axis]);
  return read_places(node, e.number(node.x()), node.operands[1], axis);
}

ValueId build_gather(NodeContext& node) {
  node.need_rank(1);
  Emitter& e = node.emit;
  ValueId x = e.number(node.x());
  const Dims d = e.dims(x), places = e.dims(node.operands[1]);
  const int axis = node.axis(d.rank());
  if (places.rank() != d.rank())
    node.fail_operand(1, DiagCode::kShape,
                      fmt::format("x {} and the index {} have different ranks; index_select takes any", to_string(d), to_string(places)));
  if (d.rank() == kMaxRank) node.fail_operand(0, DiagCode::kLimit, fmt::format("rank {}; at most {} are allowed", kMaxRank, kMaxRank - 1));
  for (int i = 0; i < d.rank(); ++i)
    if (i != axis && places[i] > d[i])
      node.fail_operand(1, DiagCode::kShape,
                        fmt::format("axis {} of the index {} is longer than x's {}", i, to_string(places), to_string(d)));
  need_index(node, 1, d[axis]);
  Dims apart, rows;
  for (int i = 0; i < d.rank(); ++i) {
    if (i == axis) apart.push_back(1), apart.push_back(d[i]);
    else x = e.slice(x, i, 0, places[i], 1), apart.push_back(places[i]);
    rows.push_back(places[i]);
    if (i == axis) rows.push_back(1);
  }
  return e.drop(read_at(e, e.reshape(x, apart), e.reshape(node.operands[1], rows), axis + 1), {axis + 1});
}

}  // namespace mirage::spec
