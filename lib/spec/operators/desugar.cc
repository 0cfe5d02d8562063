// How operators are made of primitives (see operators.def for the formulas). einsum stands in einsum.cc.
#include "spec/operators/desugar.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <fmt/format.h>

namespace mirage::spec {

const AttrValue* NodeContext::attr(std::string_view name) const {
  auto it = attrs.find(name);
  return it == attrs.end() ? nullptr : &it->second;
}

void NodeContext::fail(DiagCode code, Span place, std::string text) const { throw BuildError{code, place, std::move(text), {}}; }

void NodeContext::fail_attr(std::string_view name, std::string text) const {
  const AttrValue* a = attr(name);
  fail(DiagCode::kAttribute, a && a->where.length ? a->where : where, std::move(text));
}

void NodeContext::fail_operand(size_t index, DiagCode code, std::string text) const { fail(code, operand_where[index], std::move(text)); }

std::vector<int> NodeContext::axes(int rank) const {
  std::vector<int> out;
  const AttrValue* a = attr("axis");
  if (!a) {
    out.resize(static_cast<size_t>(rank));
    std::iota(out.begin(), out.end(), 0);
    return out;
  }
  for (size_t i = 0; i < a->list.size(); ++i) {
    int64_t axis = a->list[i];
    Span place = i < a->list_where.size() ? a->list_where[i] : a->where.length ? a->where : where;
    if (axis < -rank || axis >= rank) fail(DiagCode::kAttribute, place, fmt::format("axis {} of a tensor of rank {}", axis, rank));
    int d = static_cast<int>(axis < 0 ? axis + rank : axis);
    if (std::find(out.begin(), out.end(), d) != out.end()) fail(DiagCode::kAttribute, place, fmt::format("axis {} is named twice", axis));
    out.push_back(d);
  }
  std::sort(out.begin(), out.end());
  return out;
}

int NodeContext::axis(int rank) const {
  const AttrValue* a = attr("axis");
  if (a->integer < -rank || a->integer >= rank) fail_attr("axis", fmt::format("axis {} of a tensor of rank {}", a->integer, rank));
  return static_cast<int>(a->integer < 0 ? a->integer + rank : a->integer);
}

void NodeContext::need_rank(int at_least) const {
  int r = emit.rank(x());
  if (r < at_least) fail_operand(0, DiagCode::kShape, fmt::format("needs a tensor of rank {} or more, got rank {}", at_least, r));
}

ValueId NodeContext::reduced(ValueId v, const std::vector<int>& axes) const { return attr("keepdim")->flag ? v : emit.drop(v, axes); }

namespace {

/// A gain, bias or statistic of normalised axes: one extent per axis in `axes`, or a scalar, or a shape of x's rank that broadcasts to x.
/// Returned so that NumPy broadcasting puts it in place.
ValueId along_axes(NodeContext& node, size_t operand, ValueId x, const std::vector<int>& axes) {
  Emitter& e = node.emit;
  ValueId v = node.operands[operand];
  const Dims& d = e.dims(v);
  const Dims& xd = e.dims(x);
  auto refuse = [&] {
    node.fail_operand(operand, DiagCode::kShape,
                      fmt::format("shape {} does not fit the normalised axes of {}", to_string(d), to_string(xd)));
  };
  if (d.rank() == 0) return v;
  if (d.rank() == static_cast<int>(axes.size())) {
    Dims placed;
    for (int i = axes.front(), k = 0; i < xd.rank(); ++i) {
      bool is_axis = k < d.rank() && axes[static_cast<size_t>(k)] == i;
      if (is_axis && d[k] != xd[i]) refuse();
      placed.push_back(is_axis ? d[k] : 1);
      k += is_axis;
    }
    return e.reshape(v, placed);
  }
  auto all = broadcast(d, xd);
  if (d.rank() != xd.rank() || !all || !(*all == xd)) refuse();
  return v;
}

ValueId add_eps(NodeContext& node, ValueId v) {
  double eps = node.attr("eps")->number;
  return eps == 0 ? v : node.emit.map(MapFn::kAdd, {v, node.emit.constant(eps)});
}

/// [* gain] [+ bias], operands `first` and `first` + 1 where given.
ValueId gain_and_bias(NodeContext& node, ValueId y, size_t first, ValueId x, const std::vector<int>& axes) {
  if (node.operands.size() > first) y = node.emit.map(MapFn::kMul, {y, along_axes(node, first, x, axes)});
  if (node.operands.size() > first + 1) y = node.emit.map(MapFn::kAdd, {y, along_axes(node, first + 1, x, axes)});
  return y;
}

/// (x - mean) / sqrt(variance + eps)
ValueId centred(NodeContext& node, ValueId x, const std::vector<int>& axes) {
  Emitter& e = node.emit;
  ValueId d = e.map(MapFn::kSub, {x, e.mean(x, axes)});
  ValueId variance = e.mean(e.map(MapFn::kSquare, {d}), axes);
  return e.map(MapFn::kDiv, {d, e.map(MapFn::kSqrt, {add_eps(node, variance)})});
}

/// What a product whose inner dimensions differ may have meant: the operand to turn, or their order.
std::vector<Note> meant_product(const Dims& a, const Dims& b) {
  const int64_t inner = a.back(), rows = a[a.rank() - 2], columns = b.back(), other = b[b.rank() - 2];
  if (inner == columns)
    return {{{},
             fmt::format("with the second operand transposed they fit: 'transpose_b': true gives {} x {}, and so does linear, whose weight "
                         "is (out, in)",
                         to_string(Dims{rows, inner}), to_string(Dims{columns, other}))}};
  if (rows == other) return {{{}, "with the first operand transposed they fit: 'transpose_a': true"}};
  if (columns == rows) return {{{}, "in the other order they fit"}};
  return {};
}

}  // namespace

ValueId build_matmul(NodeContext& node) {
  Emitter& e = node.emit;
  ValueId sides[2] = {node.operands[0], node.operands[1]};
  bool was_vector[2];
  const char* flags[2] = {"transpose_a", "transpose_b"};
  for (size_t i = 0; i < 2; ++i) {
    int r = e.rank(sides[i]);
    if (r == 0) node.fail_operand(i, DiagCode::kShape, "matmul of a scalar; use mul");
    was_vector[i] = r == 1;
    if (node.attr(flags[i])->flag) {
      if (r == 1) node.fail_attr(flags[i], "a 1-D operand cannot be transposed");
      std::vector<int> perm(static_cast<size_t>(r));
      std::iota(perm.begin(), perm.end(), 0);
      std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
      sides[i] = e.transpose(sides[i], perm);
    }
    int64_t n = e.dims(sides[i]).back();
    if (r == 1) sides[i] = e.reshape(sides[i], i == 0 ? Dims{1, n} : Dims{n, 1});
  }
  const Dims a = e.dims(sides[0]), b = e.dims(sides[1]);
  int ra = a.rank(), rb = b.rank();
  if (a[ra - 1] != b[rb - 2])
    throw BuildError{DiagCode::kShape, node.operand_where[1], fmt::format("inner dimensions differ: {} x {}", to_string(a), to_string(b)),
                     meant_product(a, b)};
  for (int i = 1; i <= std::min(ra, rb) - 2; ++i) {
    int64_t m = a[ra - 2 - i], n = b[rb - 2 - i];
    if (m != n && m != 1 && n != 1)
      node.fail(DiagCode::kShape, node.operand_where[1],
                fmt::format("batch dimensions do not broadcast: {} x {}", to_string(a), to_string(b)));
  }
  ValueId y = e.matmul(sides[0], sides[1]);
  std::vector<int> extra;
  if (was_vector[0]) extra.push_back(e.rank(y) - 2);
  if (was_vector[1]) extra.push_back(e.rank(y) - 1);
  return extra.empty() ? y : e.drop(y, extra);
}

ValueId build_linear(NodeContext& node) {
  node.need_rank(1);
  Emitter& e = node.emit;
  ValueId x = node.x(), w = node.operands[1];
  const Dims d = e.dims(w), xd = e.dims(x);
  if (d.rank() != 2) node.fail_operand(1, DiagCode::kShape, fmt::format("the weights {} are not of rank 2, (out, in)", to_string(d)));
  if (d[1] != xd.back()) {
    const char* hint =
        d[0] == xd.back() ? "; weights are (out, in): these look like (in, out), which matmul takes" : "; weights are (out, in)";
    node.fail_operand(1, DiagCode::kShape,
                      fmt::format("the last extents of x {} and of the weights {} differ{}", to_string(xd), to_string(d), hint));
  }
  ValueId rows = xd.rank() == 1 ? e.reshape(x, {1, xd[0]}) : x;
  ValueId y = e.matmul(rows, e.transpose(w, {1, 0}));
  if (xd.rank() == 1) y = e.drop(y, {0});
  if (node.operands.size() < 3) return y;
  const Dims b = e.dims(node.operands[2]);
  if (b.rank() != 1 || b[0] != d[0])
    node.fail_operand(2, DiagCode::kShape, fmt::format("the bias has shape {}, not [{}]", to_string(b), d[0]));
  return e.map(MapFn::kAdd, {y, node.operands[2]});
}

ValueId build_pow(NodeContext& node) {
  Emitter& e = node.emit;
  const AttrValue* exponent = node.attr("exponent");
  bool has_second = node.operands.size() == 2;
  if (has_second && exponent) node.fail_attr("exponent", "the exponent is given twice, as an input and as an attribute");
  if (!has_second && !exponent) node.fail_attr("exponent", "needs the attribute 'exponent' or a second input");
  ValueId x = e.number(node.x());
  ValueId y = has_second ? node.operands[1] : e.constant(exponent->number);
  return e.map(MapFn::kPow, {x, y});
}

ValueId build_gelu(NodeContext& node) {
  return node.emit.map(node.attr("approximate")->text == "tanh" ? MapFn::kGeluTanh : MapFn::kGelu, {node.x()});
}

ValueId build_clamp(NodeContext& node) {
  Emitter& e = node.emit;
  const AttrValue *low = node.attr("min"), *high = node.attr("max");
  if (node.operands.size() == 2) node.fail_operand(1, DiagCode::kArity, "one limit as an input; use maximum or minimum, or give both");
  if (node.operands.size() == 3 && (low || high))
    node.fail_attr(low ? "min" : "max", "the limits are given twice, as inputs and as attributes");
  if (node.operands.size() == 3) return e.map(MapFn::kClamp, node.operands);
  if (!low && !high) node.fail(DiagCode::kAttribute, node.where, "needs the attribute 'min', 'max' or both");
  if (low && high && low->number > high->number)
    node.fail_attr("max", fmt::format("max {} is less than min {}", high->number, low->number));
  if (!high) return e.map(MapFn::kMax, {node.x(), e.constant(low->number)});
  if (!low) return e.map(MapFn::kMin, {node.x(), e.constant(high->number)});
  ValueId l = e.constant(low->number), h = e.constant(high->number);
  return e.map(MapFn::kClamp, {node.x(), l, h});
}

ValueId build_sum(NodeContext& node) {
  auto axes = node.axes(node.emit.rank(node.x()));
  return node.reduced(node.emit.reduce(ReduceFn::kSum, node.x(), axes), axes);
}

ValueId build_mean(NodeContext& node) {
  auto axes = node.axes(node.emit.rank(node.x()));
  return node.reduced(node.emit.mean(node.emit.number(node.x()), axes), axes);
}

ValueId build_max(NodeContext& node) {
  auto axes = node.axes(node.emit.rank(node.x()));
  return node.reduced(node.emit.reduce(ReduceFn::kMax, node.x(), axes), axes);
}

ValueId build_softmax(NodeContext& node) {
  node.need_rank(1);
  return node.emit.softmax(node.x(), node.axes(node.emit.rank(node.x())));
}

ValueId build_rms_norm(NodeContext& node) {
  node.need_rank(1);
  Emitter& e = node.emit;
  ValueId x = e.number(node.x());
  auto axes = node.axes(e.rank(x));
  ValueId size = e.map(MapFn::kSqrt, {add_eps(node, e.mean(e.map(MapFn::kSquare, {x}), axes))});
  return gain_and_bias(node, e.map(MapFn::kDiv, {x, size}), 1, x, axes);
}

ValueId build_layer_norm(NodeContext& node) {
  node.need_rank(1);
  ValueId x = node.emit.number(node.x());
  auto axes = node.axes(node.emit.rank(x));
  return gain_and_bias(node, centred(node, x, axes), 1, x, axes);
}

ValueId build_group_norm(NodeContext& node) {
  node.need_rank(2);
  Emitter& e = node.emit;
  ValueId x = e.number(node.x());
  const Dims d = e.dims(x);
  int64_t groups = node.attr("groups")->integer;
  if (groups < 1 || d[1] % groups != 0) node.fail_attr("groups", fmt::format("{} groups do not divide {} channels", groups, d[1]));
  // Channels become groups and channels of a group, everything behind stays: dimensions are split here and joined at the end, never both at
  // once, so that any layout and the search can follow.
  const auto split = [&](const Dims& of) {
    Dims out{of[0]};
    out.push_back(of[1] == 1 ? 1 : groups);
    out.push_back(of[1] == 1 ? 1 : of[1] / groups);
    for (int i = 2; i < of.rank(); ++i) {
      if (out.rank() == kMaxRank) out[kMaxRank - 1] *= of[i];
      else out.push_back(of[i]);
    }
    return out;
  };
  ValueId xs = e.reshape(x, split(d));
  std::vector<int> axes(static_cast<size_t>(e.rank(xs) - 2));
  std::iota(axes.begin(), axes.end(), 2);
  ValueId y = centred(node, xs, axes);
  for (size_t i = 1; i < node.operands.size(); ++i) {
    ValueId v = along_axes(node, i, x, {1});
    Dims vd = e.dims(v);   // () or with x's last dimensions
    if (vd.rank() == d.rank() - 1) vd = [&] { Dims all{1}; for (int k = 0; k < vd.rank(); ++k) all.push_back(vd[k]); return all; }();
    y = e.map(i == 1 ? MapFn::kMul : MapFn::kAdd, {y, vd.rank() == 0 ? v : e.reshape(v, split(vd))});
  }
  return e.reshape(y, d);
}

ValueId build_batch_norm(NodeContext& node) {
  node.need_rank(2);
  Emitter& e = node.emit;
  ValueId x = e.number(node.x());
  ValueId mean = along_axes(node, 1, x, {1}), variance = along_axes(node, 2, x, {1});
  ValueId d = e.map(MapFn::kSub, {x, mean});
  ValueId y = e.map(MapFn::kDiv, {d, e.map(MapFn::kSqrt, {add_eps(node, variance)})});
  return gain_and_bias(node, y, 3, x, {1});
}

ValueId build_l2_norm(NodeContext& node) {
  node.need_rank(1);
  Emitter& e = node.emit;
  ValueId x = e.number(node.x());
  ValueId length = e.map(MapFn::kSqrt, {e.reduce(ReduceFn::kSum, e.map(MapFn::kSquare, {x}), node.axes(e.rank(x)))});
  double eps = node.attr("eps")->number;
  if (eps != 0) length = e.map(MapFn::kMax, {length, e.constant(eps)});
  return e.map(MapFn::kDiv, {x, length});
}

ValueId build_transpose(NodeContext& node) {
  int r = node.emit.rank(node.x());
  const AttrValue* given = node.attr("perm");
  std::vector<int> perm;
  for (int i = 0; i < r && !given; ++i) perm.push_back(r - 1 - i);
  if (given) {
    if (static_cast<int>(given->list.size()) != r)
      node.fail_attr("perm", fmt::format("perm has {} entries for a tensor of rank {}", given->list.size(), r));
    for (int64_t p : given->list) {
      if (p < -r || p >= r) node.fail_attr("perm", fmt::format("axis {} of a tensor of rank {}", p, r));
      int q = static_cast<int>(p < 0 ? p + r : p);
      if (std::find(perm.begin(), perm.end(), q) != perm.end()) node.fail_attr("perm", fmt::format("axis {} is named twice", p));
      perm.push_back(q);
    }
  }
  return node.emit.transpose(node.x(), perm);
}

ValueId build_reshape(NodeContext& node) {
  const Dims& from = node.emit.dims(node.x());
  int64_t elements = from.elements(), known = 1;
  int open = -1;
  Dims to;
  for (int64_t d : node.attr("shape")->list) {
    if (d == -1 && open >= 0) node.fail_attr("shape", "only one extent may be -1");
    if (d == -1) open = to.rank();
    to.push_back(d == -1 ? 1 : d);
    if (to[to.rank() - 1] > kMaxElements / known) node.fail_attr("shape", "the shape has more than 2^40 elements");
    known *= to[to.rank() - 1];
  }
  if (open >= 0 && elements % known == 0) to[open] = elements / known;
  if (open >= 0 ? elements % known != 0 : known != elements) {
    node.fail(DiagCode::kShape, node.attr("shape")->where,
              fmt::format("{} has {} elements, the new shape {}{}", to_string(from), elements, open >= 0 ? "a multiple of " : "", known));
  }
  return node.emit.reshape(node.x(), to);
}

ValueId build_repeat(NodeContext& node) {
  node.need_rank(1);
  int axis = node.axis(node.emit.rank(node.x()));
  int64_t count = node.attr("count")->integer;
  if (count < 1 || count > kMaxElements / node.emit.dims(node.x()).elements())
    node.fail_attr("count", fmt::format("count {} is out of range", count));
  return node.emit.repeat(node.x(), axis, count);
}

ValueId build_concat(NodeContext& node) {
  node.need_rank(1);
  const Dims& first = node.emit.dims(node.x());
  int axis = node.axis(first.rank());
  for (size_t i = 1; i < node.operands.size(); ++i) {
    const Dims& d = node.emit.dims(node.operands[i]);
    bool fits = d.rank() == first.rank();
    for (int k = 0; fits && k < d.rank(); ++k) fits = k == axis || d[k] == first[k];
    if (!fits)
      node.fail_operand(i, DiagCode::kShape, fmt::format("shapes {} and {} differ outside axis {}", to_string(first), to_string(d), axis));
  }
  return node.emit.concat(node.operands, axis);
}

ValueId build_slice(NodeContext& node) {
  node.need_rank(1);
  int axis = node.axis(node.emit.rank(node.x()));
  int64_t n = node.emit.dims(node.x())[axis];
  auto place = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n); };   // as Python does
  int64_t start = place(node.attr("start")->integer), stop = node.attr("stop") ? place(node.attr("stop")->integer) : n,
          step = node.attr("step")->integer;
  if (step < 1) node.fail_attr("step", fmt::format("step {} is not positive", step));
  if (start >= stop) node.fail(DiagCode::kShape, node.where, fmt::format("the slice {}:{} of extent {} is empty", start, stop, n));
  return node.emit.slice(node.x(), axis, start, stop, std::min(step, n));
}

ValueId build_cast(NodeContext& node) { return node.emit.cast(node.x(), node.attr("dtype")->dtype); }

ValueId build_causal_mask(NodeContext& node) {
  node.need_rank(2);
  Emitter& e = node.emit;
  ValueId x = e.number(node.x());
  int r = e.rank(x);
  int64_t offset = node.attr("offset")->integer;
  if (offset > kMaxElements || offset < -kMaxElements) node.fail_attr("offset", fmt::format("offset {} is out of range", offset));
  // they broadcast: what a kernel reads of them is one line each
  ValueId row = e.iota(0, {e.dims(x)[r - 2], 1}), column = e.iota(1, {1, e.dims(x)[r - 1]});
  if (offset != 0) row = e.map(MapFn::kAdd, {row, e.constant(static_cast<double>(offset))});
  ValueId hidden = e.map(MapFn::kGreater, {column, row});
  return e.map(MapFn::kWhere, {hidden, e.constant(-std::numeric_limits<double>::infinity()), x});
}

ValueId build_iota(NodeContext& node) {
  Dims d;
  for (int64_t n : node.attr("shape")->list) {
    if (n < 1) node.fail_attr("shape", "extents must be positive");
    d.push_back(n);
  }
  if (!count_elements(d)) node.fail_attr("shape", "the shape has more than 2^40 elements");
  if (d.empty()) node.fail_attr("shape", "needs rank 1 or more");
  return node.emit.iota(node.axis(d.rank()), d);
}

ValueId build_extent(NodeContext& node) {
  Emitter& e = node.emit;
  double product = 1;
  const ExtentOf& of = node.attr("of")->extents;
  if (of.empty()) node.fail_attr("of", "the list is empty");
  for (auto [param, dim] : of) {
    if (param < 0 || param >= node.num_params) node.fail_attr("of", fmt::format("there is no input {}", param));
    const Dims& d = e.dims(param);   // input i is value i
    if (dim < 0 || dim >= d.rank()) node.fail_attr("of", fmt::format("axis {} of a tensor of rank {}", dim, d.rank()));
    product *= static_cast<double>(d[dim]);
  }
  return e.extent(of, product);
}

}  // namespace mirage::spec
