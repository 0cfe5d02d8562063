// Data movement that is made of slices, concatenations, reshapes and repetitions (operators.def says which).
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include "spec/operators/desugar.h"

namespace mirage::spec {
namespace {

/// A constant as a tensor.
ValueId filled(Emitter& e, double value, const Dims& dims) {
  Dims ones;
  for (int i = 0; i < dims.rank(); ++i) ones.push_back(1);
  ValueId v = e.reshape(e.constant(value), ones);
  for (int i = 0; i < dims.rank(); ++i) v = e.repeat(v, i, dims[i]);
  return v;
}

/// Sorted places along which the result has extents of 1 that x lacks.
std::vector<int> new_axes(NodeContext& node, int rank) {
  const int result_rank = rank + static_cast<int>(node.attr("axis")->list.size());
  if (result_rank > kMaxRank)
    node.fail_attr("axis", fmt::format("the result has rank {}; at most {} dimensions are allowed", result_rank, kMaxRank));
  return node.axes(result_rank);
}

ValueId with_ones(Emitter& e, ValueId x, const std::vector<int>& at) {
  Dims d;
  const Dims from = e.dims(x);
  for (int i = 0, k = 0; i < from.rank() + static_cast<int>(at.size()); ++i) {
    const bool is_new = std::find(at.begin(), at.end(), i) != at.end();
    d.push_back(is_new ? 1 : from[k++]);
  }
  return e.reshape(x, d);
}

/// One entry of a list attribute per axis of x.
std::vector<int64_t> per_axis(NodeContext& node, const char* name, int rank) {
  const AttrValue* a = node.attr(name);
  if (!a) return std::vector<int64_t>(static_cast<size_t>(rank), 0);
  if (static_cast<int>(a->list.size()) != rank)
    node.fail_attr(name, fmt::format("'{}' has {} entries for a tensor of rank {}", name, a->list.size(), rank));
  return a->list;
}

/// x from its last element along an axis to its first. Where a choice among all its elements would be too large, an extent of two factors
/// is turned in each.
ValueId reversed(NodeContext& node, ValueId x, int axis) {
  Emitter& e = node.emit;
  const Dims d = e.dims(x);
  const int64_t n = d[axis];
  int64_t inner = static_cast<int64_t>(std::sqrt(static_cast<double>(n)));
  while (n % inner) inner--;
  if (inner > 1 && d.elements() > kMaxElements / n && d.rank() < kMaxRank) {
    Dims split;
    for (int i = 0; i < d.rank(); ++i) {
      split.push_back(i == axis ? n / inner : d[i]);
      if (i == axis) split.push_back(inner);
    }
    return e.reshape(reversed(node, reversed(node, e.reshape(x, split), axis), axis + 1), d);
  }
  return n == 1 ? x : read_places(node, x, e.map(MapFn::kSub, {e.constant(static_cast<double>(n - 1)), e.iota(0, {n})}), axis);
}

/// Elements in front of x, or behind it, that are x's own.
ValueId border(NodeContext& node, ValueId x, int axis, int64_t count, bool in_front) {
  Emitter& e = node.emit;
  const std::string& mode = node.attr("mode")->text;
  const int64_t n = e.dims(x)[axis], most = mode == "reflect" ? n - 1 : n;
  if (mode != "replicate" && count > most)
    node.fail_attr(in_front ? "before" : "after",
                   fmt::format("{} elements of axis {}, extent {}: {} has at most {}", count, axis, n, mode, most));
  if (mode == "replicate") return e.repeat(in_front ? e.slice(x, axis, 0, 1, 1) : e.slice(x, axis, n - 1, n, 1), axis, count);
  if (mode == "circular") return in_front ? e.slice(x, axis, n - count, n, 1) : e.slice(x, axis, 0, count, 1);
  return reversed(node, in_front ? e.slice(x, axis, 1, count + 1, 1) : e.slice(x, axis, n - 1 - count, n - 1, 1), axis);
}

}  // namespace

ValueId build_flip(NodeContext& node) {
  ValueId x = node.x();
  for (int axis : node.axes(node.emit.rank(x))) x = reversed(node, x, axis);
  return x;
}

ValueId pad_constant(Emitter& e, ValueId x, int dim, int64_t before, int64_t after, double value) {
  std::vector<ValueId> parts;
  const auto block = [&](int64_t n) {
    Dims d = e.dims(x);
    d[dim] = n;
    if (n > 0) parts.push_back(filled(e, value, d));
  };
  block(before);
  parts.push_back(x);
  block(after);
  return e.concat(parts, dim);
}

ValueId build_unsqueeze(NodeContext& node) {
  Emitter& e = node.emit;
  return with_ones(e, node.x(), new_axes(node, e.rank(node.x())));
}

ValueId build_squeeze(NodeContext& node) {
  Emitter& e = node.emit;
  const Dims d = e.dims(node.x());
  std::vector<int> gone;
  for (int axis : node.axes(d.rank())) {
    if (d[axis] == 1) gone.push_back(axis);
    else if (node.attr("axis")) node.fail_attr("axis", fmt::format("axis {} of {} has extent {}, not 1", axis, to_string(d), d[axis]));
  }
  return e.drop(node.x(), gone);
}

ValueId build_expand(NodeContext& node) {
  Emitter& e = node.emit;
  const std::vector<int64_t>& to = node.attr("shape")->list;
  const Dims from = e.dims(node.x());
  const int more = static_cast<int>(to.size()) - from.rank();
  if (more < 0) node.fail_attr("shape", fmt::format("{} has rank {}, the new shape {}", to_string(from), from.rank(), to.size()));
  Dims result, placed;
  for (int i = 0; i < static_cast<int>(to.size()); ++i) {
    const int64_t have = i < more ? 1 : from[i - more], want = to[static_cast<size_t>(i)] == -1 ? have : to[static_cast<size_t>(i)];
    if (i < more && to[static_cast<size_t>(i)] == -1) node.fail_attr("shape", "a new axis needs an extent, not -1");
    if (have != 1 && have != want)
      node.fail_attr("shape", fmt::format("axis {} has extent {}, which does not become {}", i - more, have, want));
    placed.push_back(have);
    result.push_back(want);
  }
  if (!count_elements(result)) node.fail_attr("shape", "the shape has more than 2^40 elements");
  ValueId v = e.reshape(node.x(), placed);
  for (int i = 0; i < result.rank(); ++i) if (placed[i] != result[i]) v = e.repeat(v, i, result[i]);
  return v;
}

ValueId build_stack(NodeContext& node) {
  Emitter& e = node.emit;
  const Dims first = e.dims(node.x());
  if (first.rank() == kMaxRank)
    node.fail_operand(0, DiagCode::kLimit,
                      fmt::format("the result has rank {}; at most {} dimensions are allowed", kMaxRank + 1, kMaxRank));
  const int axis = node.axis(first.rank() + 1);
  std::vector<ValueId> parts;
  for (size_t i = 0; i < node.operands.size(); ++i) {
    if (!(e.dims(node.operands[i]) == first))
      node.fail_operand(i, DiagCode::kShape, fmt::format("shapes {} and {} differ", to_string(first), to_string(e.dims(node.operands[i]))));
    parts.push_back(with_ones(e, node.operands[i], {axis}));
  }
  return e.concat(parts, axis);
}

std::vector<ValueId> build_split(NodeContext& node) {
  node.need_rank(1);
  Emitter& e = node.emit;
  const int axis = node.axis(e.rank(node.x()));
  const int64_t n = e.dims(node.x())[axis], parts = node.num_results;
  const AttrValue* given = node.attr("sizes");
  if (!given && n % parts)
    node.fail(DiagCode::kShape, node.where, fmt::format("extent {} does not split into {} equal parts; give their 'sizes'", n, parts));
  std::vector<int64_t> sizes = given ? given->list : std::vector<int64_t>(static_cast<size_t>(parts), n / parts);
  if (static_cast<int64_t>(sizes.size()) != parts)
    node.fail_attr("sizes", fmt::format("{} sizes for {} output{}", sizes.size(), parts, parts == 1 ? "" : "s"));
  int64_t at = 0;
  for (int64_t size : sizes) {
    if (size < 1) node.fail_attr("sizes", fmt::format("the size {} is not positive", size));
    if (size > n - at) node.fail_attr("sizes", fmt::format("the sizes are more than extent {} together", n));
    at += size;
  }
  if (at != n) node.fail_attr("sizes", fmt::format("the sizes are {} together, not extent {}", at, n));
  std::vector<ValueId> out;
  at = 0;
  for (int64_t size : sizes) {
    out.push_back(e.slice(node.x(), axis, at, at + size, 1));
    at += size;
  }
  return out;
}

ValueId build_pad(NodeContext& node) {
  Emitter& e = node.emit;
  const int rank = e.rank(node.x());
  const auto before = per_axis(node, "before", rank), after = per_axis(node, "after", rank);
  ValueId x = node.x();
  for (int i = 0; i < rank; ++i) {
    const auto k = static_cast<size_t>(i);
    const int64_t n = e.dims(x)[i], cut_before = std::max<int64_t>(-before[k], 0), cut_after = std::max<int64_t>(-after[k], 0);
    if (before[k] > kMaxElements || after[k] > kMaxElements)
      node.fail_attr(before[k] > kMaxElements ? "before" : "after", "more than 2^40 elements");
    if (cut_before >= n || cut_after >= n - cut_before)
      node.fail_attr(before[k] < 0 ? "before" : "after", fmt::format("nothing is left of axis {}, extent {}", i, n));
    x = e.slice(x, i, cut_before, n - cut_after, 1);
    if (node.attr("mode")->text == "constant") {
      x = pad_constant(e, x, i, std::max<int64_t>(before[k], 0), std::max<int64_t>(after[k], 0), node.attr("value")->number);
      continue;
    }
    std::vector<ValueId> parts{x};
    if (before[k] > 0) parts.insert(parts.begin(), border(node, x, i, before[k], true));
    if (after[k] > 0) parts.push_back(border(node, x, i, after[k], false));
    x = e.concat(parts, i);
  }
  return x;
}

}  // namespace mirage::spec
