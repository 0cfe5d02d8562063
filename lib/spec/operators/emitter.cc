// Puts primitives into the reference graph; see emitter.h.
#include "spec/operators/emitter.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include "mirage/ir/eval.h"
#include "mirage/support/hash.h"

namespace mirage::spec {
namespace {

constexpr DType kMachineTypes[] = {DType::kF16, DType::kBF16, DType::kF32};
constexpr uint8_t bit(DType t) { return static_cast<uint8_t>(1u << static_cast<unsigned>(t)); }
constexpr uint8_t kAllTypes = bit(DType::kF16) | bit(DType::kBF16) | bit(DType::kF32);
constexpr size_t kMaxFactors = 8;   // of a traced extent; longer products are not worth the memory

uint8_t exact_types(DType t) {
  switch (t) {
    case DType::kF16: return bit(DType::kF16) | bit(DType::kF32);
    case DType::kBF16: return bit(DType::kBF16) | bit(DType::kF32);
    case DType::kF32: return bit(DType::kF32);
    case DType::kBool: return kAllTypes;
    case DType::kReal: case DType::kI32: case DType::kI64: return 0;
  }
  return 0;
}

uint64_t hash_op(const Op& op, const std::vector<ValueId>& operands) {
  uint64_t h = hash_combine(1, op.index());
  for (ValueId v : operands) h = hash_combine(h, static_cast<uint64_t>(v));
  if (const auto* c = std::get_if<Const>(&op)) h = hash_combine(h, std::bit_cast<uint64_t>(c->value));
  if (const auto* m = std::get_if<Map>(&op)) h = hash_combine(h, static_cast<uint64_t>(m->fn));
  if (const auto* r = std::get_if<Reduce>(&op)) h = hash_combine(h, static_cast<uint64_t>(r->dim));
  if (const auto* s = std::get_if<Slice>(&op))
    h = hash_combine(h, hash_combine(static_cast<uint64_t>(s->start), static_cast<uint64_t>(s->stop)));
  return h;   // other fields are left to ==
}

[[noreturn]] void fail(DiagCode code, std::string text) { throw BuildError{code, {}, std::move(text), {}}; }

/// Without leading ones: what broadcasting sees of a shape.
Dims significant(const Dims& d) {
  Dims out;
  int first = 0;
  while (first < d.rank() && d[first] == 1) ++first;
  for (int i = first; i < d.rank(); ++i) out.push_back(d[i]);
  return out;
}

}  // namespace

std::optional<int64_t> count_elements(const Dims& d) {
  int64_t n = 1;
  for (int64_t x : d) {
    if (x > kMaxElements / n) return std::nullopt;
    n *= x;
  }
  return n;
}

std::optional<double> Emitter::constant_of(ValueId v) const {
  const auto* c = graph().def_form<Const>(v);
  if (!c || !c->extent_of.empty()) return std::nullopt;
  return c->value;
}

ValueId Emitter::add(Op op, std::vector<ValueId> operands) {
  std::vector<NodeId>& bucket = shared_[hash_op(op, operands)];
  for (NodeId n : bucket) {
    const Node& node = graph().node(n);
    if (node.operands != operands || !(node.op == op)) continue;
    touched_.push_back(node.first_value);
    return node.first_value;
  }
  std::vector<Type> types;
  for (ValueId v : operands) types.push_back(graph().type(v));
  Inferred inferred = infer(op, types, Level::kKernel);
  if (!inferred.ok()) fail(DiagCode::kShape, inferred.error);
  const Dims result = inferred.types[0].dims;
  if (!count_elements(result)) fail(DiagCode::kLimit, fmt::format("the result {} has more than 2^40 elements", to_string(result)));
  Facts known = facts_of(op, operands, result);
  bucket.push_back(graph().num_nodes());
  ValueId v = builder_.add(std::move(op), std::move(operands));
  facts_.push_back(std::move(known));
  touched_.push_back(v);
  return v;
}

ValueId Emitter::input(int param, const Type& type) {
  ValueId v = builder_.add_input(param, type);
  Facts known{mirage::is_whole(type.dtype), mirage::is_whole(type.dtype), exact_types(type.dtype), {}};
  for (int d = 0; d < type.dims.rank(); ++d) known.extents.push_back(ExtentOf{{param, d}});
  facts_.push_back(std::move(known));
  return v;
}

// -0 is 0: the meaning is over real numbers
ValueId Emitter::constant(double value) { return add(Const{value == 0 ? 0.0 : value, {}}, {}); }

ValueId Emitter::extent(ExtentOf of, double value) { return add(Const{value, std::move(of)}, {}); }

ValueId Emitter::iota(int dim, const Dims& d) { return add(Iota{dim, d}, {}); }

/// Reshapes that only add or drop leading ones do nothing for broadcasting: the operand before them serves as well, if the result keeps its
/// shape.
ValueId Emitter::strip_reshape(ValueId v, const std::vector<ValueId>& all) const {
  const Node& node = graph().def(v);
  if (!std::holds_alternative<Reshape>(node.op)) return v;
  ValueId before = node.operands[0];
  if (!(significant(dims(before)) == significant(dims(v)))) return v;
  int rank_with = 0, rank_without = rank(before);
  for (ValueId other : all) {
    rank_with = std::max(rank_with, rank(other));
    if (other != v) rank_without = std::max(rank_without, rank(other));
  }
  return rank_with == rank_without ? before : v;
}

// By squares and products.
ValueId Emitter::whole_power(ValueId x, int n) {
  if (n == 1) return x;
  const ValueId half = map(MapFn::kSquare, {whole_power(x, n / 2)});
  return n % 2 ? map(MapFn::kMul, {half, x}) : half;
}

ValueId Emitter::map(MapFn fn, std::vector<ValueId> operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    bool is_condition = fn == MapFn::kWhere && i == 0;
    if (!is_condition) operands[i] = number(operands[i]);
  }
  if (fn == MapFn::kWhere && !is_bool(operands[0]))
    fail(DiagCode::kDtype, "the condition must be a bool, such as the result of less, greater or equal");
  Dims all;
  for (ValueId v : operands) {
    auto both = broadcast(all, dims(v));
    if (!both) fail(DiagCode::kShape, fmt::format("shapes {} and {} do not broadcast", to_string(all), to_string(dims(v))));
    all = *both;
  }
  if (fn == MapFn::kPow) {   // exponents with an operator of their own, which all stages know better than pow
    auto p = constant_of(operands[1]);
    if (p == 1.0) return operands[0];
    if (p && std::abs(*p) >= 2 && std::abs(*p) <= 8 && *p == std::floor(*p)) {
      const ValueId x = whole_power(operands[0], static_cast<int>(std::abs(*p)));
      return *p > 0 ? x : map(MapFn::kDiv, {constant(1), x});
    }
    if (p == 0.5) return map(MapFn::kSqrt, {operands[0]});
    if (p == -0.5) return map(MapFn::kRsqrt, {operands[0]});
    if (p == -1.0) return map(MapFn::kDiv, {constant(1), operands[0]});
  }
  for (ValueId& v : operands) v = strip_reshape(v, operands);
  return add(Map{fn}, std::move(operands));
}

ValueId Emitter::number(ValueId v) {
  if (!is_bool(v)) return v;
  ValueId one = constant(1), zero = constant(0);
  return add(Map{MapFn::kWhere}, {v, one, zero});
}

ValueId Emitter::boolean(ValueId v) {
  if (is_bool(v)) return v;
  ValueId size = map(MapFn::kAbs, {v});
  return map(MapFn::kGreater, {size, constant(0)});
}

ValueId Emitter::cast(ValueId v, DType to) {
  if (to == DType::kBool) return boolean(v);
  if (is_bool(v)) return number(v);
  if (mirage::is_whole(to)) {
    if (is_integral(v)) return v;
    ValueId up = map(MapFn::kCeil, {v}), down = map(MapFn::kFloor, {v});
    return map(MapFn::kWhere, {map(MapFn::kLess, {v, constant(0)}), up, down});
  }
  if (facts(v).exact_in & bit(to)) return v;
  return add(Map{to == DType::kF16 ? MapFn::kCastF16 : to == DType::kBF16 ? MapFn::kCastBF16 : MapFn::kCastF32}, {v});
}

ValueId Emitter::matmul(ValueId a, ValueId b) {
  a = number(a);
  b = number(b);
  int r = std::max(rank(a), rank(b));
  auto lift = [&](ValueId v) {
    Dims d;
    for (int i = rank(v); i < r; ++i) d.push_back(1);
    for (int64_t x : dims(v)) d.push_back(x);
    return reshape(v, d);
  };
  return add(MatMul{}, {lift(a), lift(b)});
}

ValueId Emitter::reduce(ReduceFn fn, ValueId x, const std::vector<int>& axes) {
  x = number(x);
  for (int axis : axes) {
    bool is_one = dims(x)[axis] == 1;   // a sum or maximum of one element is that element
    if (!is_one) x = add(Reduce{fn, axis, 0}, {x});
  }
  return x;
}

ValueId Emitter::mean(ValueId x, const std::vector<int>& axes) {
  double count = 1;
  ExtentOf of;
  bool traced = true;
  for (int axis : axes) {
    count *= static_cast<double>(dims(x)[axis]);
    const auto& from = facts(x).extents[static_cast<size_t>(axis)];
    if (from) of.insert(of.end(), from->begin(), from->end());
    else traced = false;
  }
  ValueId sum = reduce(ReduceFn::kSum, x, axes);
  if (count == 1) return sum;
  ValueId divisor = traced && of.size() <= kMaxFactors ? extent(of, count) : constant(count);
  return map(MapFn::kDiv, {sum, divisor});
}

ValueId Emitter::drop(ValueId x, const std::vector<int>& axes) {
  Dims d;
  for (int i = 0; i < rank(x); ++i) {
    if (std::find(axes.begin(), axes.end(), i) == axes.end()) d.push_back(dims(x)[i]);
  }
  return reshape(x, d);
}

ValueId Emitter::reshape(ValueId x, const Dims& d) {
  if (dims(x) == d) return x;
  const Node& node = graph().def(x);
  if (std::holds_alternative<Reshape>(node.op)) {
    ValueId before = node.operands[0];   // only the last of two reshapes counts
    return reshape(before, d);
  }
  return add(Reshape{d}, {x});
}

ValueId Emitter::transpose(ValueId x, const std::vector<int>& perm) {
  Transpose t;
  bool is_identity = true;
  for (size_t i = 0; i < perm.size(); ++i) {
    t.perm[i] = static_cast<int8_t>(perm[i]);
    is_identity = is_identity && perm[i] == static_cast<int>(i);
  }
  if (is_identity) return x;
  if (const auto* before = graph().def_form<Transpose>(x)) {
    std::vector<int> both;
    for (int p : perm) both.push_back(before->perm[static_cast<size_t>(p)]);
    ValueId source = graph().def(x).operands[0];
    return transpose(source, both);
  }
  return add(t, {x});
}

ValueId Emitter::slice(ValueId x, int dim, int64_t start, int64_t stop, int64_t step) {
  int64_t count = (stop - start + step - 1) / step;
  if (count == 1) step = 1;
  stop = start + (count - 1) * step + 1;   // one spelling per set of elements
  if (start == 0 && count == dims(x)[dim]) return x;
  return add(Slice{dim, start, stop, step}, {x});
}

ValueId Emitter::concat(const std::vector<ValueId>& parts, int dim) {
  if (parts.size() == 1) return parts[0];
  bool all_bool = std::all_of(parts.begin(), parts.end(), [&](ValueId v) { return is_bool(v); });
  std::vector<ValueId> operands;
  for (ValueId v : parts) operands.push_back(all_bool ? v : number(v));
  return add(Concat{dim}, std::move(operands));
}

ValueId Emitter::repeat(ValueId x, int dim, int64_t count) {
  if (count == 1) return x;
  return add(Repeat{dim, count}, {x});
}

ValueId Emitter::softmax(ValueId x, const std::vector<int>& axes) {
  x = number(x);
  ValueId largest = reduce(ReduceFn::kMax, x, axes);
  ValueId e = map(MapFn::kExp, {map(MapFn::kSub, {x, largest})});
  return map(MapFn::kDiv, {e, reduce(ReduceFn::kSum, e, axes)});
}

/// Extents through a reshape: runs of source and target dimensions with equal products; inside a run, one target dimension takes the
/// product of the source's, others are unknown.
void Emitter::trace_reshape(ValueId x, const Dims& to, Facts& out) const {
  const Dims& from = dims(x);
  int i = 0, j = 0;
  while (i < from.rank() || j < to.rank()) {
    int i0 = i, j0 = j;
    int64_t a = 1, b = 1;
    if (j < to.rank() && to[j] == 1) { ++j; continue; }       // extent 1: an empty product, set by the caller
    if (i < from.rank() && from[i] == 1) { ++i; continue; }
    a = from[i++];
    b = to[j++];
    while (a != b) {
      if (a < b) a *= from[i++];
      else b *= to[j++];
    }
    int targets = 0, target = -1;
    for (int k = j0; k < j; ++k) if (to[k] != 1) ++targets, target = k;
    if (targets != 1) continue;
    ExtentOf product;
    bool known = true;
    for (int k = i0; k < i; ++k) {
      const auto& e = facts(x).extents[static_cast<size_t>(k)];
      if (from[k] == 1) continue;
      if (e) product.insert(product.end(), e->begin(), e->end());
      else known = false;
    }
    if (known && product.size() <= kMaxFactors) out.extents[static_cast<size_t>(target)] = product;
  }
}

bool Emitter::makes_whole(const Op& op, const std::vector<ValueId>& operands, bool Facts::*fact) const {
  const auto all = [&](size_t first) {
    return std::all_of(operands.begin() + static_cast<std::ptrdiff_t>(first), operands.end(), [&](ValueId v) { return facts(v).*fact; });
  };
  if (const auto* c = std::get_if<Const>(&op)) return std::isfinite(c->value) && c->value == std::floor(c->value);
  if (std::holds_alternative<Iota>(op)) return true;
  if (const auto* m = std::get_if<Map>(&op)) {
    switch (m->fn) {
      case MapFn::kAdd:
      case MapFn::kSub:
      case MapFn::kMul:
      case MapFn::kNeg:
      case MapFn::kSquare:
      case MapFn::kAbs:
      case MapFn::kRelu:
      case MapFn::kMax:
      case MapFn::kMin:
      case MapFn::kClamp: return all(0);
      case MapFn::kFloor: case MapFn::kCeil: case MapFn::kRound: case MapFn::kSign: return fact == &Facts::integral || all(0);
      case MapFn::kWhere: return all(1);
      default: return false;
    }
  }
  return (is_view(op) || std::holds_alternative<Repeat>(op) || std::holds_alternative<Concat>(op) || std::holds_alternative<Reduce>(op)) &&
         all(0);
}

Emitter::Facts Emitter::facts_of(const Op& op, const std::vector<ValueId>& operands, const Dims& result) const {
  Facts out;
  out.whole = makes_whole(op, operands, &Facts::whole);
  out.integral = makes_whole(op, operands, &Facts::integral);
  out.extents.resize(static_cast<size_t>(result.rank()));
  auto take = [&](int to, ValueId v, int from) {
    auto& slot = out.extents[static_cast<size_t>(to)];
    if (!slot && from >= 0 && dims(v)[from] == result[to]) slot = facts(v).extents[static_cast<size_t>(from)];
  };
  auto all_exact = [&](size_t first) {
    uint8_t e = kAllTypes;
    for (size_t i = first; i < operands.size(); ++i) e &= facts(operands[i]).exact_in;
    return e;
  };
  if (const auto* c = std::get_if<Const>(&op)) {
    for (DType t : kMachineTypes) if (round_to(c->value, t) == c->value) out.exact_in |= bit(t);
  } else if (const auto* m = std::get_if<Map>(&op)) {
    for (ValueId v : operands) for (int d = 0; d < result.rank(); ++d) take(d, v, d - (result.rank() - rank(v)));
    switch (m->fn) {
      case MapFn::kNeg:
      case MapFn::kAbs:
      case MapFn::kRelu:
      case MapFn::kMax:
      case MapFn::kMin:
      case MapFn::kClamp: out.exact_in = all_exact(0); break;
      case MapFn::kWhere: out.exact_in = all_exact(1); break;
      case MapFn::kEqual: case MapFn::kLess: case MapFn::kGreater: out.exact_in = kAllTypes; break;
      case MapFn::kCastF16: out.exact_in = exact_types(DType::kF16); break;
      case MapFn::kCastBF16: out.exact_in = exact_types(DType::kBF16); break;
      case MapFn::kCastF32: out.exact_in = exact_types(DType::kF32); break;
      default: break;
    }
  } else if (std::holds_alternative<MatMul>(op)) {
    int r = result.rank();
    for (int d = 0; d < r - 2; ++d) for (ValueId v : operands) take(d, v, d);
    take(r - 2, operands[0], r - 2);
    take(r - 1, operands[1], r - 1);
  } else if (const auto* rd = std::get_if<Reduce>(&op)) {
    for (int d = 0; d < result.rank(); ++d) if (d != rd->dim) take(d, operands[0], d);
    if (rd->fn == ReduceFn::kMax) out.exact_in = all_exact(0);
  } else if (const auto* t = std::get_if<Transpose>(&op)) {
    for (int d = 0; d < result.rank(); ++d) take(d, operands[0], t->perm[static_cast<size_t>(d)]);
    out.exact_in = all_exact(0);
  } else if (std::holds_alternative<Reshape>(op)) {
    trace_reshape(operands[0], result, out);
    out.exact_in = all_exact(0);
  } else if (std::holds_alternative<Slice>(op) || std::holds_alternative<Concat>(op) || std::holds_alternative<Repeat>(op)) {
    int along = std::holds_alternative<Slice>(op)    ? std::get<Slice>(op).dim
                : std::holds_alternative<Concat>(op) ? std::get<Concat>(op).dim
                                                     : std::get<Repeat>(op).dim;
    for (int d = 0; d < result.rank(); ++d) if (d != along) take(d, operands[0], d);
    out.exact_in = all_exact(0);
  }
  for (int d = 0; d < result.rank(); ++d) {   // an extent of 1 is the empty product unless an input's own dimension is meant
    if (result[d] == 1 && !out.extents[static_cast<size_t>(d)]) out.extents[static_cast<size_t>(d)] = ExtentOf{};
  }
  return out;
}

Graph Emitter::finish(const std::vector<std::pair<ValueId, DType>>& outputs, std::vector<ValueId>& at) const {
  Builder out(Level::kKernel);
  at.assign(static_cast<size_t>(graph().num_values()), -1);
  for (NodeId n : graph().inputs())
    at[static_cast<size_t>(graph().node(n).first_value)] =
        out.add_input(graph().form<Input>(n)->param, graph().type(graph().node(n).first_value));
  for (const auto& [root, dtype] : outputs) {
    std::vector<std::pair<NodeId, size_t>> stack{{graph().value(root).node, 0}};   // an explicit stack: chains are as long as the spec
    while (!stack.empty()) {
      auto& [n, next] = stack.back();
      const Node& node = graph().node(n);
      if (at[static_cast<size_t>(node.first_value)] >= 0) {
        stack.pop_back();
      } else if (next < node.operands.size()) {
        stack.push_back({graph().value(node.operands[next++]).node, 0});
      } else {
        std::vector<ValueId> operands;
        for (ValueId v : node.operands) operands.push_back(at[static_cast<size_t>(v)]);
        at[static_cast<size_t>(node.first_value)] = out.add(node.op, std::move(operands));
        stack.pop_back();
      }
    }
  }
  for (size_t r = 0; r < outputs.size(); ++r)
    out.add_output(static_cast<int>(r), at[static_cast<size_t>(outputs[r].first)], outputs[r].second);
  return std::move(out).finish();
}

}  // namespace mirage::spec
