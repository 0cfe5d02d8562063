// Attention over heads, and the rotation of its queries and keys by positions.
#include <algorithm>
#include <cmath>
#include <limits>
#include <fmt/format.h>
#include "spec/operators/desugar.h"

namespace mirage::spec {
namespace {

const double kInfinity = std::numeric_limits<double>::infinity();

struct Attention {
  ValueId q, k, v, mask = -1, sink = -1;
  int64_t heads = 1, key_heads = 1, rows = 1, keys = 1, depth = 1, width = 1;
  Dims batch;                       ///< before the heads
  bool has_heads = false;           ///< q has rank 3 or more
  int64_t group() const { return heads / key_heads; }
};

/// A shape with these dimensions behind the batch's.
Dims behind(const Dims& batch, std::initializer_list<int64_t> dims) {
  Dims out = batch;
  for (int64_t d : dims) out.push_back(d);
  return out;
}

Attention read_operands(NodeContext& node) {
  Emitter& e = node.emit;
  Attention a;
  const bool has_sink = node.attr("sink")->flag;
  const size_t n = node.operands.size();
  if (has_sink && n < 4) node.fail_attr("sink", "the sink's logits are the last input, behind q, k and v");
  if (!has_sink && n == 5) node.fail_operand(4, DiagCode::kArity, "a fifth input is a sink: say \"sink\": true");
  a.q = e.number(node.operands[0]), a.k = e.number(node.operands[1]), a.v = e.number(node.operands[2]);
  if (has_sink) a.sink = e.number(node.operands[n - 1]);
  if (n - (has_sink ? 1 : 0) == 4) a.mask = node.operands[3];
  const Dims q = e.dims(a.q), k = e.dims(a.k), v = e.dims(a.v);
  const int r = q.rank();
  if (r < 2 || r > kMaxRank - 1)
    node.fail_operand(0, DiagCode::kShape,
                      fmt::format("q has rank {}; it has the axes (..., heads, rows, depth), 2 to {} of them", r, kMaxRank - 1));
  if (k.rank() != r || v.rank() != r)
    node.fail_operand(k.rank() != r ? 1 : 2, DiagCode::kShape,
                      fmt::format("q, k and v have ranks {}, {} and {}; they are equal", r, k.rank(), v.rank()));
  a.rows = q[r - 2], a.depth = q[r - 1], a.keys = k[r - 2], a.width = v[r - 1];
  if (k[r - 1] != a.depth)
    node.fail_operand(1, DiagCode::kShape, fmt::format("the last extents of q {} and k {} differ", to_string(q), to_string(k)));
  if (v[r - 2] != a.keys)
    node.fail_operand(2, DiagCode::kShape, fmt::format("k {} and v {} have different numbers of keys", to_string(k), to_string(v)));
  a.has_heads = r >= 3;
  if (a.has_heads) a.heads = q[r - 3], a.key_heads = k[r - 3];
  if (a.heads % a.key_heads || (a.has_heads && v[r - 3] != a.key_heads))
    node.fail_operand(1, DiagCode::kShape,
                      fmt::format("{} heads of q, {} of k, {} of v: k and v have the same number, which divides q's", a.heads, a.key_heads,
                                  a.has_heads ? v[r - 3] : 1));
  for (int i = 0; i < r - 3; ++i) {
    if (q[i] != k[i] || q[i] != v[i])
      node.fail_operand(q[i] != k[i] ? 1 : 2, DiagCode::kShape,
                        fmt::format("the batch axes of q {}, k {} and v {} differ", to_string(q), to_string(k), to_string(v)));
    a.batch.push_back(q[i]);
  }
  return a;
}

/// Something of shape (..., heads, rows, columns), or one that broadcasts to it, beside logits (batch, key heads, group, rows, keys).
ValueId grouped(Emitter& e, const Attention& a, ValueId v) {
  const Dims d = e.dims(v);
  if (d.rank() < 3 || a.group() == 1) return v;
  Dims out;
  for (int i = 0; i < d.rank() - 3; ++i) out.push_back(d[i]);
  const bool per_head = d[d.rank() - 3] != 1;
  out.push_back(per_head ? a.key_heads : 1), out.push_back(per_head ? a.group() : 1), out.push_back(d[d.rank() - 2]),
      out.push_back(d[d.rank() - 1]);
  return e.reshape(v, out);
}

/// A mask: true, or a number to be added.
ValueId masked(NodeContext& node, const Attention& a, ValueId s, bool merged) {
  Emitter& e = node.emit;
  const Dims d = e.dims(a.mask);
  const Dims logits = a.has_heads ? behind(a.batch, {a.heads, a.rows, a.keys}) : Dims{a.rows, a.keys};
  auto all = broadcast(d, logits);
  if (!all || !(*all == logits))
    node.fail_operand(3, DiagCode::kShape, fmt::format("the mask {} does not broadcast to the logits {}", to_string(d), to_string(logits)));
  ValueId m = a.mask;
  if (merged && d.rank() >= 3) {   // rows of a group's heads, one behind the other
    const bool per_head = d[d.rank() - 3] != 1;
    const int at = d.rank() - 1;   // of the rows, behind the group
    m = grouped(e, a, m);
    if (per_head && d[at - 1] == 1) m = e.repeat(m, at, a.rows);
    Dims out;
    for (int i = 0; i < at - 1; ++i) out.push_back(e.dims(m)[i]);
    out.push_back(e.dims(m)[at - 1] * e.dims(m)[at]), out.push_back(d[at]);
    m = e.reshape(m, out);
  } else {
    m = grouped(e, a, m);
  }
  if (!e.is_bool(m)) return e.map(MapFn::kAdd, {s, m});
  return e.map(MapFn::kWhere, {e.map(MapFn::kEqual, {e.number(m), e.constant(0)}), e.constant(-kInfinity), s});
}

/// Masks by positions: keys behind the row's own, and keys more than a window before it.
ValueId positioned(NodeContext& node, const Attention& a, ValueId s) {
  Emitter& e = node.emit;
  const AttrValue *window = node.attr("window"), *offset = node.attr("offset");
  if (!node.attr("causal")->flag && !window) return s;
  const auto far = [](int64_t i) { return i > kMaxElements || i < -kMaxElements; };
  if (far(offset->integer) || (window && far(window->integer)))
    node.fail_attr(far(offset->integer) ? "offset" : "window", "the position is out of range");
  ValueId row = e.iota(0, {a.rows, 1}), column = e.iota(1, {1, a.keys});
  const auto moved = [&](int64_t by) { return by ? e.map(MapFn::kAdd, {row, e.constant(static_cast<double>(by))}) : row; };
  if (node.attr("causal")->flag)
    s = e.map(MapFn::kWhere, {e.map(MapFn::kGreater, {column, moved(offset->integer)}), e.constant(-kInfinity), s});
  if (!window) return s;
  if (window->integer < 1) node.fail_attr("window", fmt::format("a window of {} keys; it has at least 1", window->integer));
  return e.map(MapFn::kWhere, {e.map(MapFn::kLess, {column, moved(offset->integer - window->integer + 1)}), e.constant(-kInfinity), s});
}

ValueId weights(NodeContext& node, const Attention& a, ValueId s, bool merged) {
  Emitter& e = node.emit;
  const int last = e.rank(s) - 1;
  if (a.sink < 0) return e.softmax(s, {last});
  const Dims d = e.dims(a.sink);   // a logit per head, of a key without a value
  if (d.rank() > 1 || (d.rank() == 1 && d[0] != 1 && d[0] != a.heads))
    node.fail_operand(node.operands.size() - 1, DiagCode::kShape,
                      fmt::format("the sink {} has one logit per head, {}", to_string(d), a.heads));
  ValueId sink = a.sink;
  if (d.rank() == 1 && d[0] == a.heads && a.has_heads) {
    sink = e.reshape(sink, a.group() == 1 ? Dims{a.heads, 1, 1} : Dims{a.key_heads, a.group(), 1, 1});
    if (merged) {
      sink = e.repeat(sink, 2, a.rows);
      sink = e.reshape(sink, {a.key_heads, a.group() * a.rows, 1});
    }
  }
  ValueId largest = e.map(MapFn::kMax, {e.reduce(ReduceFn::kMax, s, {last}), sink});
  ValueId x = e.map(MapFn::kExp, {e.map(MapFn::kSub, {s, largest})});
  ValueId sum = e.map(MapFn::kAdd, {e.reduce(ReduceFn::kSum, x, {last}), e.map(MapFn::kExp, {e.map(MapFn::kSub, {sink, largest})})});
  return e.map(MapFn::kDiv, {x, sum});
}

std::vector<int> swap_last(int rank) {
  std::vector<int> perm;
  for (int i = 0; i < rank; ++i) perm.push_back(i);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return perm;
}

}  // namespace

ValueId build_attention(NodeContext& node) {
  Emitter& e = node.emit;
  const Attention a = read_operands(node);
  // A group of heads that shares keys is one product with more rows, unless rows are masked by their places.
  const bool by_rows =
      node.attr("causal")->flag || node.attr("window") || (a.mask >= 0 && e.rank(a.mask) >= 2 && e.dims(a.mask)[e.rank(a.mask) - 2] != 1);
  const bool grouped_heads = a.group() > 1, merged = grouped_heads && (a.rows == 1 || !by_rows);
  ValueId q = a.q, k = a.k, v = a.v;
  if (merged) {
    q = e.reshape(q, behind(a.batch, {a.key_heads, a.group() * a.rows, a.depth}));
  } else if (grouped_heads) {
    q = e.reshape(q, behind(a.batch, {a.key_heads, a.group(), a.rows, a.depth}));
    k = e.reshape(k, behind(a.batch, {a.key_heads, 1, a.keys, a.depth}));
    v = e.reshape(v, behind(a.batch, {a.key_heads, 1, a.keys, a.width}));
  }
  ValueId s = e.matmul(q, e.transpose(k, swap_last(e.rank(k))));
  const double scale = node.attr("scale") ? node.attr("scale")->number : 1 / std::sqrt(static_cast<double>(a.depth));
  if (scale != 1) s = e.map(MapFn::kMul, {s, e.constant(scale)});
  if (const AttrValue* cap = node.attr("softcap"); cap && cap->number != 0) {
    if (!(cap->number > 0) || !std::isfinite(cap->number)) node.fail_attr("softcap", "must be positive, or 0 for none");
    s = e.map(MapFn::kMul, {e.map(MapFn::kTanh, {e.map(MapFn::kDiv, {s, e.constant(cap->number)})}), e.constant(cap->number)});
  }
  if (a.mask >= 0) s = masked(node, a, s, merged);
  s = positioned(node, a, s);
  ValueId y = e.matmul(weights(node, a, s, merged), v);
  return a.has_heads ? e.reshape(y, behind(a.batch, {a.heads, a.rows, a.width})) : y;
}

ValueId build_rope(NodeContext& node) {
  Emitter& e = node.emit;
  node.need_rank(1);
  ValueId x = e.number(node.x()), cosine = e.number(node.operands[1]), sine = e.number(node.operands[2]);
  const Dims d = e.dims(x);
  const int last = d.rank() - 1;
  const int64_t turned = node.attr("dims") ? node.attr("dims")->integer : d[last];
  if (turned < 2 || turned > d[last] || turned % 2)
    node.fail_attr("dims", fmt::format("{} of {} elements turn: an even number, at least 2", turned, d[last]));
  const bool interleaved = node.attr("interleaved")->flag;
  const int64_t half = turned / 2;
  if (interleaved && d.rank() == kMaxRank)
    node.fail_operand(0, DiagCode::kLimit,
                      fmt::format("interleaved pairs of a tensor of rank {}; at most {} dimensions are allowed", d.rank(), kMaxRank - 1));
  Dims wanted = d;
  wanted[last] = half;
  const auto angles = [&](ValueId v, size_t operand) {   // an angle per pair
    const int r = e.rank(v);
    const int64_t n = r ? e.dims(v)[r - 1] : 0;
    auto all = r ? broadcast(e.dims(e.slice(v, r - 1, 0, std::min(n, half), 1)), wanted) : std::nullopt;
    if ((n != half && n != turned) || !all || !(*all == wanted))
      node.fail_operand(operand, DiagCode::kShape,
                        fmt::format("{} for x {}: the last extent is {} or {}, the others broadcast to x", to_string(e.dims(v)),
                                    to_string(d), half, turned));
    return n == turned;
  };
  const bool both_halves = angles(cosine, 1);
  if (angles(sine, 2) != both_halves) node.fail_operand(2, DiagCode::kShape, "cos and sin have different last extents");
  const auto part = [&](ValueId v, int64_t which) {   // the first or second of each pair
    const int axis = e.rank(v) - 1;
    return interleaved ? e.slice(v, axis, which, turned, 2) : e.slice(v, axis, which * half, (which + 1) * half, 1);
  };
  const auto angle = [&](ValueId v, int64_t which) { return both_halves ? part(v, which) : v; };
  ValueId turning = e.slice(x, last, 0, turned, 1), x0 = part(turning, 0), x1 = part(turning, 1);
  const auto mul = [&](ValueId p, ValueId q) { return e.map(MapFn::kMul, {p, q}); };
  ValueId y0 = e.map(MapFn::kSub, {mul(x0, angle(cosine, 0)), mul(x1, angle(sine, 0))});
  ValueId y1 = e.map(MapFn::kAdd, {mul(x1, angle(cosine, 1)), mul(x0, angle(sine, 1))});
  Dims split = d, joined = d;
  split[last] = half, joined[last] = turned;
  split.push_back(1);
  ValueId y = interleaved ? e.reshape(e.concat({e.reshape(y0, split), e.reshape(y1, split)}, last + 1), joined) : e.concat({y0, y1}, last);
  return turned == d[last] ? y : e.concat({y, e.slice(x, last, turned, d[last], 1)}, last);
}

}  // namespace mirage::spec
