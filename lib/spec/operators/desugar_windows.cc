// Operators over windows of neighbouring elements: convolutions, pools, running sums. Windows are strided slices; the search sees products,
// sums and maxima.
#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <fmt/format.h>
#include "spec/operators/desugar.h"

namespace mirage::spec {
namespace {

/// The windows along one axis. Extents and places fit int64 because attributes are bounded by kMaxElements.
struct Window {
  int axis = 0;
  /// after: may be less than `before`, or negative
  int64_t extent = 1, size = 1, stride = 1, before = 0, after = 0, dilation = 1, count = 1;
  int64_t reach() const { return dilation * (size - 1) + 1; }
};

/// An entry of a list attribute with one entry, or with one per spatial axis; `low` and kMaxWindow bound it.
constexpr int64_t kMaxWindow = int64_t{1} << 20;
int64_t entry(NodeContext& node, const char* name, size_t i, size_t axes, int64_t low, int64_t fallback) {
  const AttrValue* a = node.attr(name);
  if (!a) return fallback;
  if (a->list.size() != 1 && a->list.size() != axes)
    node.fail_attr(name, fmt::format("'{}' has {} entries for {} spatial ax{}", name, a->list.size(), axes, axes == 1 ? "is" : "es"));
  const int64_t v = a->list[a->list.size() == 1 ? 0 : i];
  if (v < low || v > kMaxWindow) node.fail_attr(name, fmt::format("the {} {} is out of range: it is at least {}", name, v, low));
  return v;
}

void need_spatial(NodeContext& node) {
  const int r = node.emit.rank(node.x());
  if (r < 3 || r > 5)
    node.fail_operand(0, DiagCode::kShape,
                      fmt::format("needs a tensor of rank 3 to 5 (batch, channels, 1 to 3 spatial axes), got rank {}", r));
}

ValueId windows_of(Emitter& e, ValueId padded, const Window& w, int64_t tap) {
  const int64_t start = tap * w.dilation;
  return e.slice(padded, w.axis, start, start + (w.count - 1) * w.stride + 1, w.stride);
}

constexpr ValueId kNothing = -1;

/// x with `value` around it along the window's axis, so that every window lies inside; kNothing: none meets an element of x.
ValueId padded(Emitter& e, ValueId x, const Window& w, double value) {
  const int64_t last = (w.count - 1) * w.stride + w.reach() - w.before;   // one behind what is read of x
  const int64_t begin = std::max<int64_t>(-w.before, 0), end = std::min(last, w.extent);
  if (begin >= end) return kNothing;
  return pad_constant(e, e.slice(x, w.axis, begin, end, 1), w.axis, std::max<int64_t>(w.before, 0), std::max<int64_t>(last - w.extent, 0),
                      value);
}

// ---- pools

std::vector<Window> pool_windows(NodeContext& node) {
  need_spatial(node);
  const Dims d = node.emit.dims(node.x());
  const auto n = static_cast<size_t>(d.rank() - 2);
  std::vector<Window> out;
  for (size_t i = 0; i < n; ++i) {
    Window w;
    w.axis = static_cast<int>(i) + 2;
    w.extent = d[w.axis];
    w.size = entry(node, "kernel", i, n, 1, 1);
    w.stride = entry(node, "stride", i, n, 1, w.size);
    w.before = w.after = entry(node, "padding", i, n, 0, 0);
    w.dilation = entry(node, "dilation", i, n, 1, 1);
    if (2 * w.before > w.size) node.fail_attr("padding", fmt::format("padding {} is more than half of the kernel, {}", w.before, w.size));
    const int64_t room = w.extent + 2 * w.before - w.reach();
    if (room < 0)
      node.fail_attr("kernel", fmt::format("the window reaches over {} elements, the padded axis {} has {}", w.reach(), w.axis,
                                           w.extent + 2 * w.before));
    w.count = room / w.stride + 1;
    // a window that begins inside
    if (node.attr("ceil_mode")->flag && room % w.stride && w.count * w.stride < w.extent + w.before) ++w.count;
    out.push_back(w);
  }
  return out;
}

/// Windows that do not overlap are dimensions of their own.
bool apart(const Window& w) { return w.stride == w.size && w.dilation == 1; }

/// Combines the elements of windows that do not overlap, along all their axes at once: an element is read once.
ValueId pool_apart(Emitter& e, ValueId x, const std::vector<Window>& windows, ReduceFn fn) {
  Dims split, joined = e.dims(x);
  std::vector<int> within;
  for (int i = 0; i < joined.rank(); ++i) {
    const auto w = std::find_if(windows.begin(), windows.end(), [&](const Window& v) { return v.axis == i; });
    split.push_back(w == windows.end() ? joined[i] : w->count);
    if (w == windows.end()) continue;
    within.push_back(split.rank());
    split.push_back(w->size);
  }
  for (const Window& w : windows) joined[w.axis] = w.count;
  return e.reshape(e.reduce(fn, e.reshape(x, split), within), joined);
}

/// Combines the elements of each window: those of overlapping windows axis after axis, when the others have left fewer elements.
ValueId pool(Emitter& e, ValueId x, const std::vector<Window>& windows, ReduceFn fn) {
  const double neutral = fn == ReduceFn::kSum ? 0 : -std::numeric_limits<double>::infinity();
  std::vector<Window> separate;
  for (const Window& w : windows)
    if (apart(w) && w.size > 1) x = padded(e, x, w, neutral), separate.push_back(w);
  if (!separate.empty()) x = pool_apart(e, x, separate, fn);
  for (const Window& w : windows) {
    if (apart(w)) continue;
    ValueId source = padded(e, x, w, neutral);
    x = windows_of(e, source, w, 0);
    for (int64_t tap = 1; tap < w.size; ++tap)
      x = e.map(fn == ReduceFn::kSum ? MapFn::kAdd : MapFn::kMax, {x, windows_of(e, source, w, tap)});
  }
  return x;
}

/// How many elements each window along an axis has: of the padded axis, or of x only.
ValueId window_counts(Emitter& e, const Window& w, int rank, bool with_padding) {
  Dims line;
  for (int i = 0; i < rank; ++i) line.push_back(i == w.axis ? w.count : 1);
  ValueId first = e.map(MapFn::kSub, {e.map(MapFn::kMul, {e.iota(w.axis, line), e.constant(static_cast<double>(w.stride))}),
                                      e.constant(static_cast<double>(w.before))});
  ValueId end = e.map(MapFn::kAdd, {first, e.constant(static_cast<double>(w.size))});
  end = e.map(MapFn::kMin, {end, e.constant(static_cast<double>(w.extent + (with_padding ? w.before : 0)))});
  if (!with_padding) first = e.map(MapFn::kMax, {first, e.constant(0)});
  return e.map(MapFn::kSub, {end, first});
}

// ---- convolutions

struct Convolution {
  ValueId x, w;
  std::vector<Window> windows;
  std::vector<int64_t> kernel;
  int64_t batch = 1, groups = 1, in = 1, out = 1;   ///< in, out: channels of a group
  bool flipped = false;                             ///< taps in the opposite order: of a transposed convolution
  int64_t taps() const { return std::accumulate(kernel.begin(), kernel.end(), int64_t{1}, std::multiplies<>()); }
};

/// The elements that tap `index` of the kernel (row-major) meets: (batch, groups, in, positions).
ValueId met(Emitter& e, const Convolution& c, ValueId source, int64_t index) {
  for (size_t i = c.windows.size(); i-- > 0;) {
    const int64_t tap = index % c.kernel[i];
    index /= c.kernel[i];
    source = windows_of(e, source, c.windows[i], c.flipped ? c.kernel[i] - 1 - tap : tap);
  }
  return e.reshape(source, {c.batch, c.groups, c.in, e.dims(source).elements() / (c.batch * c.groups * c.in)});
}

/// (batch, groups, out, positions)
ValueId product(Emitter& e, const Convolution& c, ValueId source) {
  const int64_t taps = c.taps();
  if (c.in == 1 && taps > 1) {   // each tap is one factor: nothing for a matrix product to sum
    ValueId sum = 0;
    for (int64_t t = 0; t < taps; ++t) {
      ValueId factor = e.reshape(e.slice(e.reshape(c.w, {c.groups * c.out, taps}), 1, t, t + 1, 1), {1, c.groups, c.out, 1});
      ValueId term = e.map(MapFn::kMul, {met(e, c, source, t), factor});
      sum = t == 0 ? term : e.map(MapFn::kAdd, {sum, term});
    }
    return sum;
  }
  std::vector<ValueId> parts;
  for (int64_t t = 0; t < taps; ++t) {
    ValueId v = met(e, c, source, t);
    const int64_t positions = e.dims(v)[3];
    parts.push_back(e.reshape(v, {c.batch, c.groups, c.in, 1, positions}));
  }
  ValueId columns = e.concat(parts, 3);
  const int64_t positions = e.dims(columns)[4];
  if (c.groups == 1)
    return e.reshape(e.matmul(e.reshape(c.w, {c.out, c.in * taps}), e.reshape(columns, {c.batch, c.in * taps, positions})),
                     {c.batch, 1, c.out, positions});
  return e.matmul(e.reshape(c.w, {1, c.groups, c.out, c.in * taps}), e.reshape(columns, {c.batch, c.groups, c.in * taps, positions}));
}

/// x with stride - 1 zeros between neighbours along an axis.
ValueId spread(Emitter& e, ValueId x, int axis, int64_t stride) {
  if (stride == 1) return x;
  const Dims d = e.dims(x);
  Dims split, joined = d;
  for (int i = 0; i < d.rank(); ++i) {
    split.push_back(d[i]);
    if (i == axis) split.push_back(1);
  }
  joined[axis] = d[axis] * stride;
  ValueId v = e.reshape(pad_constant(e, e.reshape(x, split), axis + 1, 0, stride - 1, 0), joined);
  return e.slice(v, axis, 0, (d[axis] - 1) * stride + 1, 1);
}

/// The weights of a transposed convolution, (in of all groups, out, kernel...), as those of the convolution that it is: (out of all groups,
/// in, kernel...).
ValueId turned(Emitter& e, ValueId w, int64_t groups) {
  const Dims d = e.dims(w);
  Dims split{groups, d[0] / groups}, result{groups * d[1], d[0] / groups};
  std::vector<int> perm{0, 2, 1};
  for (int i = 1; i < d.rank(); ++i) split.push_back(d[i]);
  for (int i = 2; i < d.rank(); ++i) result.push_back(d[i]), perm.push_back(i + 1);
  return e.reshape(e.transpose(e.reshape(w, split), perm), result);
}

Window conv_window(NodeContext& node, int64_t extent, int64_t size, size_t i, size_t axes, bool transposed) {
  Window w;
  w.axis = static_cast<int>(i) + 2;
  w.extent = extent;
  w.size = size;
  w.dilation = entry(node, "dilation", i, axes, 1, 1);
  const int64_t stride = entry(node, "stride", i, axes, 1, 1), padding = entry(node, "padding", i, axes, 0, 0),
                more = entry(node, "output_padding", i, axes, 0, 0);
  if (more > 0 && !transposed) node.fail_attr("output_padding", "only a transposed convolution has it");
  if (more > 0 && more >= std::max(stride, w.dilation))
    node.fail_attr("output_padding", fmt::format("the output_padding {} is not less than stride and dilation", more));
  w.stride = transposed ? 1 : stride;
  w.before = transposed ? w.reach() - 1 - padding : padding;
  if (transposed) w.extent = (extent - 1) * stride + 1;
  const int64_t room = w.extent + w.before + (transposed ? w.before + more : w.before) - w.reach();
  if (room < 0)
    node.fail_attr("padding", fmt::format("axis {} of the result has no element: the window reaches over {} of {}", w.axis, w.reach(),
                                          room + w.reach()));
  w.count = room / w.stride + 1;
  return w;
}

Convolution convolution(NodeContext& node) {
  Emitter& e = node.emit;
  need_spatial(node);
  Convolution c;
  c.x = e.number(node.x());
  c.w = e.number(node.operands[1]);
  const Dims d = e.dims(c.x), k = e.dims(c.w);
  if (k.rank() != d.rank())
    node.fail_operand(1, DiagCode::kShape, fmt::format("weights {} for a tensor {}: both have the same rank", to_string(k), to_string(d)));
  const bool transposed = c.flipped = node.attr("transposed")->flag;
  c.batch = d[0];
  c.groups = node.attr("groups")->integer;
  if (c.groups < 1 || d[1] % c.groups || k[0] % c.groups)
    node.fail_attr("groups", fmt::format("{} groups do not divide {} channels and {} filters", c.groups, d[1], k[0]));
  c.in = d[1] / c.groups;
  if (transposed ? k[0] != d[1] : k[1] != c.in)
    node.fail_operand(1, DiagCode::kShape,
                      transposed ? fmt::format("weights {} of a transposed convolution begin with the {} channels of x", to_string(k), d[1])
                                 : fmt::format("weights {} for {} channels in {} group{}: their second extent is {}", to_string(k), d[1],
                                               c.groups, c.groups == 1 ? "" : "s", c.in));
  c.out = transposed ? k[1] : k[0] / c.groups;
  if (transposed) c.w = turned(e, c.w, c.groups);
  const auto axes = static_cast<size_t>(d.rank() - 2);
  for (size_t i = 0; i < axes; ++i) {
    const int axis = static_cast<int>(i) + 2;
    if (transposed) c.x = spread(e, c.x, axis, entry(node, "stride", i, axes, 1, 1));
    c.windows.push_back(conv_window(node, d[axis], k[axis], i, axes, transposed));
    c.kernel.push_back(k[axis]);
  }
  constexpr int64_t kMaxTaps = 2048;
  if (c.taps() > kMaxTaps)
    node.fail_operand(1, DiagCode::kLimit, fmt::format("a kernel of {} taps; at most {} are allowed", c.taps(), kMaxTaps));
  return c;
}

// ---- running sums

/// 1 where a summand (row) belongs to a sum (column), else 0. Of that rank: what multiplies by it needs no reshape.
ValueId triangle(Emitter& e, int rank, int64_t n, bool reverse, bool exclusive) {
  Dims rows, columns;
  for (int i = 0; i < rank; ++i) rows.push_back(i == rank - 2 ? n : 1), columns.push_back(i == rank - 1 ? n : 1);
  ValueId row = e.iota(rank - 2, rows), column = e.iota(rank - 1, columns);
  if (reverse) std::swap(row, column);
  ValueId belongs =
      exclusive ? e.map(MapFn::kLess, {row, column}) : e.map(MapFn::kLess, {row, e.map(MapFn::kAdd, {column, e.constant(1)})});
  return e.number(belongs);
}

/// Running sums along the last axis: products with a triangle, of blocks first where the axis is long.
ValueId running_sum(Emitter& e, ValueId x, bool reverse, bool exclusive) {
  constexpr int64_t kBlock = 128, kLeast = 16;
  const Dims d = e.dims(x);
  const int last = d.rank() - 1;
  const int64_t n = d[last];
  if (n <= kBlock) return e.matmul(x, triangle(e, d.rank(), n, reverse, exclusive));
  int64_t block = kBlock;
  while (n % block) --block;
  const bool deeper = block < kBlock / 2 && n / block > kBlock;   // more blocks than there need be, and blocks of these
  if (block < kLeast || deeper) {   // zeros behind the sums that are asked for, and cut off again
    const int64_t more = (n + kBlock - 1) / kBlock * kBlock - n;
    ValueId all = running_sum(e, pad_constant(e, x, last, reverse ? more : 0, reverse ? 0 : more, 0), reverse, exclusive);
    return e.slice(all, last, reverse ? more : 0, reverse ? n + more : n, 1);
  }
  Dims split, blocks;
  for (int i = 0; i < last; ++i) split.push_back(d[i]), blocks.push_back(d[i]);
  split.push_back(n / block), split.push_back(block), blocks.push_back(n / block);
  ValueId parts = e.reshape(x, split);
  ValueId before = running_sum(e, e.reshape(e.reduce(ReduceFn::kSum, parts, {last + 1}), blocks), reverse, true);
  blocks.push_back(1);
  ValueId within = e.matmul(parts, triangle(e, d.rank() + 1, block, reverse, exclusive));
  return e.reshape(e.map(MapFn::kAdd, {within, e.reshape(before, blocks)}), d);
}

}  // namespace

ValueId build_max_pool(NodeContext& node) {
  const std::vector<Window> windows = pool_windows(node);
  return pool(node.emit, node.emit.number(node.x()), windows, ReduceFn::kMax);
}

ValueId build_avg_pool(NodeContext& node) {
  Emitter& e = node.emit;
  const std::vector<Window> windows = pool_windows(node);
  const bool with_padding = node.attr("count_include_pad")->flag;
  ValueId y = pool(e, e.number(node.x()), windows, ReduceFn::kSum);
  double whole = 1;
  for (const Window& w : windows) {
    const bool even = (w.before == 0 || with_padding) && (w.count - 1) * w.stride + w.size - w.before <= w.extent + w.before;
    if (even) whole *= static_cast<double>(w.size);
    else y = e.map(MapFn::kDiv, {y, window_counts(e, w, e.rank(y), with_padding)});
  }
  return whole == 1 ? y : e.map(MapFn::kDiv, {y, e.constant(whole)});
}

ValueId build_conv(NodeContext& node) {
  Emitter& e = node.emit;
  Convolution c = convolution(node);
  ValueId source = c.x;
  Dims result{c.batch, c.groups * c.out};
  for (const Window& w : c.windows) {
    result.push_back(w.count);
    source = source == kNothing ? kNothing : padded(e, source, w, 0);
  }
  if (source == kNothing) node.fail_attr("padding", "no window meets an element of x");
  ValueId y = e.reshape(product(e, c, source), result);
  if (node.operands.size() < 3) return y;
  const Dims b = e.dims(node.operands[2]);
  if (b.rank() != 1 || b[0] != result[1])
    node.fail_operand(2, DiagCode::kShape, fmt::format("the bias has shape {}, not [{}]", to_string(b), result[1]));
  Dims placed{1, b[0]};
  while (placed.rank() < result.rank()) placed.push_back(1);
  return e.map(MapFn::kAdd, {y, e.reshape(e.number(node.operands[2]), placed)});
}

ValueId build_cumsum(NodeContext& node) {
  node.need_rank(1);
  Emitter& e = node.emit;
  ValueId x = e.number(node.x());
  const int rank = e.rank(x), axis = node.axis(rank);
  std::vector<int> perm(static_cast<size_t>(rank));
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[static_cast<size_t>(axis)], perm.back());
  const bool is_line = rank == 1;
  if (is_line) x = e.reshape(x, {1, e.dims(x)[0]});
  else x = e.transpose(x, perm);
  ValueId y = running_sum(e, x, node.attr("reverse")->flag, node.attr("exclusive")->flag);
  return is_line ? e.drop(y, {0}) : e.transpose(y, perm);
}

}  // namespace mirage::spec
