#include "plan/contiguous.h"

#include <algorithm>
#include <map>

#include "plan/region_index.h"

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

std::optional<MapFn> cast_to(DType t) {
  switch (t) {
    case DType::kF16: return MapFn::kCastF16;
    case DType::kBF16: return MapFn::kCastBF16;
    case DType::kF32: return MapFn::kCastF32;
    default: return std::nullopt;
  }
}

}  // namespace

std::optional<Graph> order_operands(const Program& program, const Graph& g) {
  Builder b(Level::kKernel);
  std::vector<ValueId> to(static_cast<size_t>(g.num_values()), -1);
  std::map<ValueId, ValueId> ordered;
  const auto copy_of = [&](ValueId v) {
    const std::optional<MapFn> cast = cast_to(g.type(v).dtype);
    const std::optional<Dims> strides = is_view(g.def(v).op) ? strides_of(program, g, v) : std::nullopt;
    if (!cast || !strides || !lies_apart(g.dims(v), *strides)) return to[static_cast<size_t>(v)];
    const auto [at, is_new] = ordered.try_emplace(v, -1);
    if (is_new) at->second = b.add(Map{*cast}, {to[static_cast<size_t>(v)]});
    return at->second;
  };
  for (const Node& n : g.nodes()) {
    std::vector<ValueId> operands;
    const bool is_call = std::holds_alternative<Call>(n.op);
    for (ValueId o : n.operands) operands.push_back(is_call ? copy_of(o) : to[static_cast<size_t>(o)]);
    const auto* in = std::get_if<Input>(&n.op);
    const ValueId first = in ? b.add_input(in->param, g.type(n.first_value), in->part) : b.add(n.op, operands);
    for (int i = 0; i < n.num_values; i++) to[static_cast<size_t>(n.first_value + i)] = first + i;
  }
  if (ordered.empty()) return std::nullopt;
  return std::move(b).finish();
}

}  // namespace mirage
