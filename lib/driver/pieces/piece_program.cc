// PiecePrograms: see the header.
#include "driver/pieces/piece_program.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace mirage {
namespace {

/// The type of a program's first 16-bit input.
DType narrow_type(const Program& p) {
  for (const TensorInfo& t : p.inputs)
    if (is16(t.type.dtype)) return t.type.dtype;
  return DType::kF32;
}

/// Whether products alone read v, through views, each with another operand of type `as` that makes it a product in `as` once v is stored
/// so.
bool only_multiplied(const Graph& g, const std::vector<std::vector<NodeId>>& users, ValueId v, DType as, const ContractRule& rule) {
  const auto& readers = users[static_cast<size_t>(v)];
  return !readers.empty() && std::all_of(readers.begin(), readers.end(), [&](NodeId n) {
    const Node& node = g.node(n);
    if (is_view(node.op)) return only_multiplied(g, users, node.first_value, as, rule);
    if (!std::holds_alternative<MatMul>(node.op)) return false;
    const ValueId other = node.operands[node.operands[0] == v ? 1 : 0];
    return other != v && g.type(other).dtype == as &&
           contract_type(as, as, rule) == (as == DType::kBF16 ? ContractType::kBF16 : ContractType::kF16);
  });
}

/// Whether v is made by a function of rows as a whole, as a norm is: no product can make it on its way, so a kernel for rows does. seen:
/// values known not to be.
bool needs_rows(const Graph& g, ValueId v, std::set<ValueId>& seen) {
  const Node& n = g.def(v);
  if (std::holds_alternative<Reduce>(n.op)) return true;
  if ((!std::holds_alternative<Map>(n.op) && !is_view(n.op)) || !seen.insert(v).second) return false;
  return std::any_of(n.operands.begin(), n.operands.end(), [&](ValueId o) { return needs_rows(g, o, seen); });
}

}  // namespace

PiecePrograms::PiecePrograms(const Program& whole)
    : whole_(whole),
      values_(whole.graph, whole.kept),
      kept_(values_.of(whole.graph)),
      users_(whole.graph.users()),
      rule_(contract_rule(whole)) {}

/// An exact intermediate (plan/storage.h, plan/passes/narrow.h): in bfloat16 where products in bfloat16 alone read it, near enough in
/// float16 where products in float16 alone read what a norm makes (each line with a factor), else as float32.
DType PiecePrograms::stored_as(ValueId v) const {
  if (only_multiplied(whole_.graph, users_, v, DType::kBF16, rule_)) return DType::kBF16;
  std::set<ValueId> seen;
  if (only_multiplied(whole_.graph, users_, v, DType::kF16, rule_) && needs_rows(whole_.graph, v, seen)) return DType::kF16;
  return DType::kReal;
}

DType PiecePrograms::leaf_type(ValueId v, bool narrow) const {
  if (is16(kept_[static_cast<size_t>(v)])) return kept_[static_cast<size_t>(v)];
  return narrow ? narrow_type(whole_) : stored_as(v);
}

Program PiecePrograms::of(const Piece& piece, bool narrow) const {
  Program p;
  p.name = "piece";
  p.numerics = whole_.numerics;
  std::vector<ValueId> origin(static_cast<size_t>(piece.graph.num_values()), -1);
  Builder b(Level::kKernel);
  for (const Node& n : piece.graph.nodes()) {
    if (const auto* in = std::get_if<Input>(&n.op)) {
      const ValueId leaf = piece.leaves[static_cast<size_t>(in->param)];
      Type t = piece.graph.type(n.first_value);
      if (t.dtype == DType::kReal) t.dtype = leaf_type(leaf, narrow);
      origin[static_cast<size_t>(b.add_input(in->param, t))] = leaf;
      continue;
    }
    b.add(n.op, n.operands);
  }
  p.graph = std::move(b).finish();
  p.kept = values_.of(p.graph, origin);
  p.canonical = print(p.graph, p.name);
  for (size_t i = 0; i < piece.leaves.size(); i++) {
    const ValueId v = piece.leaves[i];
    TensorInfo t{fmt::format("in{}", i), whole_.graph.type(v), {}, {}};
    if (const auto* in = whole_.graph.def_form<Input>(v)) {
      const TensorInfo& own = whole_.inputs[static_cast<size_t>(in->param)];
      t.strides = own.strides, t.range = own.range, t.by_value = own.by_value;
    } else {
      t.strides = row_major_strides(t.type.dims);
      if (const DType as = t.type.dtype == DType::kReal ? leaf_type(v, narrow) : t.type.dtype; t.type.dtype == DType::kReal)
        t.type.dtype = as == DType::kReal ? DType::kF32 : as;
    }
    p.canonical += (t.by_value ? "value " : "") + to_string(t.type) + to_string(t.strides) +
                   (t.range ? fmt::format("{} {}", t.range->first, t.range->second) : "");
    p.inputs.push_back(std::move(t));
  }
  for (DType t : p.kept) p.canonical += dtype_name(t)[0];
  const std::vector<NodeId> outputs = p.graph.outputs();
  for (size_t r = 0; r < outputs.size(); r++) {
    const Type t{p.graph.form<Output>(outputs[r])->dtype, p.graph.dims(p.graph.node(outputs[r]).operands[0])};
    // in memory only: a structure that rounds it would not be the program's
    const DType kept = kept_[static_cast<size_t>(piece.results[r])];
    p.outputs.push_back({fmt::format("out{}", r),
                         {t.dtype != DType::kReal ? t.dtype
                          : is16(kept)            ? kept
                                                  : DType::kF32,
                          t.dims},
                         row_major_strides(t.dims),
                         {}});
  }
  return p;
}

}  // namespace mirage
