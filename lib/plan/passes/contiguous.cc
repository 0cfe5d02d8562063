#include "plan/passes/contiguous.h"

#include <algorithm>
#include <map>

#include "mirage/support/round.h"
#include "plan/region/region_index.h"
#include "plan/stream/stream_internal.h"

namespace mirage {
namespace {

/// Strides of a value behind views of what lies in memory; nullopt where a view needs a copy in any case.
std::optional<Dims> strides_of(const Program& program, const Graph& g, ValueId v) {
  const Node& n = g.def(v);
  if (const auto* in = std::get_if<Input>(&n.op)) return program.inputs[static_cast<size_t>(in->param)].strides;
  if (!is_view(n.op)) return row_major_strides(g.dims(v));
  const std::optional<Dims> of = strides_of(program, g, n.operands[0]);
  if (!of) return std::nullopt;
  if (std::holds_alternative<Reshape>(n.op)) return reshape_strides(g.dims(n.operands[0]), *of, g.dims(v));
  Dims out = *of;
  if (const auto* t = std::get_if<Transpose>(&n.op)) {
    for (int i = 0; i < out.rank(); i++) out[i] = (*of)[t->perm[static_cast<size_t>(i)]];
    return out;
  }
  const auto* s = std::get_if<Slice>(&n.op);
  if (!s) return std::nullopt;
  out[s->dim] *= s->step;
  return out;
}

/// Whether a batch dimension has the neighbours that rows or columns of several elements should have.
bool lies_apart(const Dims& dims, const Dims& strides) {
  const int r = dims.rank();
  if (r < 3 || dims[r - 1] == 1 || dims[r - 2] == 1 || strides[r - 1] == 1 || strides[r - 2] == 1) return false;
  for (int d = 0; d < r - 2; d++)
    if (dims[d] > 1 && strides[d] == 1) return true;
  return false;
}

constexpr int64_t kLineBytes = 16;   ///< what copies take at once, and where they begin

/// Whether lines of many elements begin at addresses that are no multiples of 16 bytes, so that nothing copies them as they lie; in 16
/// bits.
bool lies_askew(const Type& t, const Dims& strides) {
  const int r = t.dims.rank();
  if (r < 2 || !is16(t.dtype) || (strides[r - 1] != 1 && strides[r - 2] != 1)) return false;
  const int line = strides[r - 1] == 1 ? r - 1 : r - 2;
  if (t.dims[line] * dtype_bytes(t.dtype) < kLineBytes) return false;
  for (int d = 0; d < r; d++)
    if (d != line && t.dims[d] > 1 && strides[d] * dtype_bytes(t.dtype) % kLineBytes != 0) return true;
  return false;
}

/// Whether a call's results have so few rows that a stream makes them, which takes lines wherever they begin.
bool has_few_rows(const Graph& g, const Node& n) {
  for (int i = 0; i < n.num_values; i++)
    if (const Dims& d = g.dims(n.first_value + i); d.rank() >= 2 && d[d.rank() - 2] > kMaxStreamRows) return false;
  return true;
}

/// Whether operand i of a call is the left one of a product whose two operands both lie across the reduction (A transposed, B as it is), in
/// 16 bits: tensor copies bring the one that has rows along the reduction only.
bool lies_across(const Program& program, const Graph& g, const Node& call, size_t i) {
  const Graph& body = *std::get<Call>(call.op).body;
  const auto loaded = [&](ValueId v) {   // which operand the body's value is, -1: something else
    const auto* in = body.def_form<Input>(v);
    return in ? in->param : -1;
  };
  const auto last_strides = [&](int param) -> std::optional<std::pair<int64_t, int64_t>> {
    const ValueId v = call.operands[static_cast<size_t>(param)];
    if (!is16(g.type(v).dtype) || g.dims(v).rank() < 2) return std::nullopt;
    const std::optional<Dims> s = strides_of(program, g, v);
    const int r = g.dims(v).rank();
    return s ? std::optional(std::pair{(*s)[r - 2], (*s)[r - 1]}) : std::nullopt;
  };
  for (const Node& n : body.nodes()) {
    if (!std::holds_alternative<MatMul>(n.op) || loaded(n.operands[0]) != static_cast<int>(i) || loaded(n.operands[1]) < 0) continue;
    const auto rows = last_strides(static_cast<int>(i)), columns = last_strides(loaded(n.operands[1]));
    if (rows && columns && rows->first == 1 && rows->second > 1 && columns->second == 1 && columns->first > 1) return true;
  }
  return false;
}

std::optional<MapFn> cast_to(DType t) {
  switch (t) {
    case DType::kF16: return MapFn::kCastF16;
    case DType::kBF16: return MapFn::kCastBF16;
    case DType::kF32: return MapFn::kCastF32;
    default: return std::nullopt;
  }
}

}  // namespace

Dims line_strides(const Dims& dims, int64_t element_bytes) {
  Dims out = row_major_strides(dims);
  const int r = dims.rank();
  if (r < 2 || dims[r - 1] * element_bytes < kLineBytes) return out;
  int64_t stride = round_up(dims[r - 1], kLineBytes / element_bytes);
  for (int d = r - 2; d >= 0; d--) {
    out[d] = stride;
    stride *= dims[d];
  }
  return out;
}

std::optional<Graph> order_operands(const Program& program, const Graph& g) {
  Builder b(Level::kKernel);
  std::vector<ValueId> to(static_cast<size_t>(g.num_values()), -1);
  std::map<ValueId, ValueId> ordered;
  const auto copy_of = [&](const Node& call, size_t i, bool streams) {
    const ValueId v = call.operands[i];
    const std::optional<MapFn> cast = cast_to(g.type(v).dtype);
    const std::optional<Dims> strides = is_view(g.def(v).op) || g.def_form<Input>(v) ? strides_of(program, g, v) : std::nullopt;
    if (!cast || !strides ||
        !(lies_apart(g.dims(v), *strides) || (!streams && (lies_askew(g.type(v), *strides) || lies_across(program, g, call, i)))))
      return to[static_cast<size_t>(v)];
    const auto [at, is_new] = ordered.try_emplace(v, -1);
    if (is_new) at->second = b.add(Map{*cast}, {to[static_cast<size_t>(v)]});
    return at->second;
  };
  for (const Node& n : g.nodes()) {
    std::vector<ValueId> operands;
    const bool is_call = std::holds_alternative<Call>(n.op);
    const bool streams = is_call && has_few_rows(g, n);
    for (size_t i = 0; i < n.operands.size(); i++)
      operands.push_back(is_call ? copy_of(n, i, streams) : to[static_cast<size_t>(n.operands[i])]);
    const auto* in = std::get_if<Input>(&n.op);
    const ValueId first = in ? b.add_input(in->param, g.type(n.first_value), in->part) : b.add(n.op, operands);
    for (int i = 0; i < n.num_values; i++) to[static_cast<size_t>(n.first_value + i)] = first + i;
  }
  if (ordered.empty()) return std::nullopt;
  return std::move(b).finish();
}

}  // namespace mirage
