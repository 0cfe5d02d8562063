// StorageTypes: see the header.
#include "spec/storage_types.h"
#include <algorithm>

namespace mirage::spec {
namespace {

/// The type of what tensors of these types make: theirs if it is one; kReal if they differ, kBool if there are none. kBool is no type here:
/// numbers, bools and indices make no difference.
DType common(std::span<const DType> types) {
  DType out = DType::kBool;
  for (DType t : types) {
    if (t == DType::kBool || t == out || is_whole(t)) continue;
    if (out != DType::kBool) return DType::kReal;
    out = t;
  }
  return out;
}

bool shows_its_operand(const Op& op) { return std::holds_alternative<Reshape>(op) || std::holds_alternative<Transpose>(op); }

DType cast_type(const Op& op) {
  const auto* m = std::get_if<Map>(&op);
  if (!m) return DType::kReal;
  return m->fn == MapFn::kCastF16    ? DType::kF16
         : m->fn == MapFn::kCastBF16 ? DType::kBF16
         : m->fn == MapFn::kCastF32  ? DType::kF32
                                     : DType::kReal;
}

DType own_type(const Graph& g, ValueId v, std::span<const DType> operand_types, DType cast_to) {
  if (g.type(v).dtype == DType::kBool || g.def_form<Const>(v)) return DType::kBool;
  if (g.def_form<Iota>(v)) return DType::kReal;
  return cast_to != DType::kReal ? cast_to : common(operand_types);
}

}  // namespace

ValueId StorageTypes::base(ValueId v) const {
  const Graph& g = emit_.graph();
  while (shows_its_operand(g.def(v).op)) v = g.def(v).operands[0];
  return v;
}

void StorageTypes::begin(const std::vector<ValueId>& operands) {
  emit_.take_touched();
  operands_.clear();
  for (ValueId v : operands) operands_.push_back(base(v));
}

DType StorageTypes::end(std::span<const ValueId> results, std::span<const DType> operand_types, DType cast_to, bool exact) {
  const Graph& g = emit_.graph();
  result_.resize(static_cast<size_t>(g.num_values()), DType::kReal);
  inside_.resize(static_cast<size_t>(g.num_values()));
  std::vector<ValueId> made;
  for (ValueId v : results) made.push_back(base(v));
  const DType type = own_type(g, results[0], operand_types, cast_to);
  for (ValueId v : emit_.take_touched()) {
    const ValueId b = base(v);
    if (std::find(operands_.begin(), operands_.end(), b) != operands_.end()) continue;   // a view of an operand
    const auto i = static_cast<size_t>(b);
    if (std::find(made.begin(), made.end(), b) == made.end() || exact || !is16(type)) inside_[i] = true;
    else result_[i] = type;
  }
  return type;
}

std::vector<DType> StorageTypes::types_in_primitives(const Graph& g) {
  std::vector<DType> out(static_cast<size_t>(g.num_values()), DType::kReal), of;
  for (ValueId v = 0; v < g.num_values(); v++) {
    if (g.def_form<Input>(v)) { out[static_cast<size_t>(v)] = g.type(v).dtype; continue; }
    of.clear();
    for (ValueId o : g.def(v).operands) of.push_back(out[static_cast<size_t>(o)]);
    out[static_cast<size_t>(v)] = own_type(g, v, of, cast_type(g.def(v).op));
  }
  return out;
}

std::vector<DType> StorageTypes::kept(const Graph& finished, const std::vector<ValueId>& at,
                                      const std::vector<std::pair<ValueId, DType>>& outputs) const {
  std::vector<DType> out(static_cast<size_t>(finished.num_values()), DType::kReal);
  const std::vector<DType> types = types_in_primitives(finished);
  for (size_t v = 0; v < result_.size(); v++) {
    if (at[v] < 0 || inside_[v] || !is16(result_[v])) continue;
    if (const auto i = static_cast<size_t>(at[v]); types[i] == result_[v] && finished.type(at[v]).dtype == DType::kReal)
      out[i] = result_[v];
  }
  for (const auto& [v, declared] : outputs)
    if (const ValueId b = at[static_cast<size_t>(base(v))]; b >= 0 && out[static_cast<size_t>(b)] != declared)
      out[static_cast<size_t>(b)] = DType::kReal;
  return std::any_of(out.begin(), out.end(), is16) ? out : std::vector<DType>{};
}

}  // namespace mirage::spec
