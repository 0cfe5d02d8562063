// The type of intermediates in device memory (see the header). A computed operand of a bfloat16 contraction is rounded as it enters the
// tensor cores (ir/contraction.h), so the kernel that makes it may round it as well: half the bytes, and tensor copies can bring it.
// float16 contractions take computed operands as TF32, which has no shorter form, but once it is rounded tensor copies can bring it too.
// Copies of what lies in 16 bits (rows with zeros behind them) lie in 16 bits.
#include "plan/storage.h"

#include <algorithm>
#include <optional>

#include "mirage/ir/eval.h"

namespace mirage {
namespace {

DType plain(DType t) { return t == DType::kReal ? DType::kF32 : t; }

/// Whether all readers of v, a value of a block graph, are contractions in that type.
bool only_contracted(const Graph& body, const std::vector<std::vector<NodeId>>& users, ValueId v, const ContractRule& rule,
                     ContractType t) {
  return std::all_of(users[static_cast<size_t>(v)].begin(), users[static_cast<size_t>(v)].end(), [&](NodeId n) {
    const Node& node = body.node(n);
    if (body.form<Transpose>(n)) return only_contracted(body, users, node.first_value, rule, t);
    return body.form<MatMul>(n) != nullptr &&
           contract_type(body.type(node.operands[0]).dtype, body.type(node.operands[1]).dtype, rule) == t;
  });
}

/// others: what is said of readers that are no block graphs.
bool rounded_by_readers(const Graph& g, const std::vector<std::vector<NodeId>>& users, ValueId v, const ContractRule& rule, ContractType t,
                        bool others = false) {
  const auto& readers = users[static_cast<size_t>(v)];
  return !readers.empty() && std::all_of(readers.begin(), readers.end(), [&](NodeId n) {
    const Node& node = g.node(n);
    if (g.form<Transpose>(n) || g.form<Reshape>(n) || g.form<Slice>(n))
      return rounded_by_readers(g, users, node.first_value, rule, t, others);
    const auto* call = g.form<Call>(n);
    if (!call) return others;
    const Graph& body = *call->body;
    const auto inner = body.users();
    for (NodeId in : body.inputs())
      if (node.operands[static_cast<size_t>(body.form<Input>(in)->param)] == v &&
          !only_contracted(body, inner, body.node(in).first_value, rule, t))
        return false;
    return true;
  });
}

/// Whether what it makes is one of its operands, or the negative of one.
bool chooses(const Node& n) {
  const auto* map = std::get_if<Map>(&n.op);
  return map && (map->fn == MapFn::kMax || map->fn == MapFn::kMin || map->fn == MapFn::kNeg || map->fn == MapFn::kAbs ||
                 map->fn == MapFn::kRelu);
}

/// Whether v is made of constants and of copies of values of one 16-bit type, or of the larger or smaller ones of these. found: that type
/// so far, kReal: none; left: nodes that may still be looked at.
bool lies_in(const Graph& g, ValueId v, DType& found, int& left) {
  if (left-- <= 0) return false;
  const DType t = g.type(v).dtype;
  if (is16(t)) return found == DType::kReal || found == t ? (found = t, true) : false;
  const Node& n = g.def(v);
  if (std::get_if<Const>(&n.op)) return true;   // looked at once the type is known
  if (!is_view(n.op) && !std::get_if<Repeat>(&n.op) && !std::get_if<Concat>(&n.op) && !chooses(n)) return false;
  return std::all_of(n.operands.begin(), n.operands.end(), [&](ValueId o) { return lies_in(g, o, found, left); });
}
bool constants_lie_in(const Graph& g, ValueId v, DType t) {
  if (is16(g.type(v).dtype)) return true;
  if (const Const* c = g.def_form<Const>(v)) return c->extent_of.empty() && round_to(c->value, t) == c->value;
  const auto& operands = g.def(v).operands;
  return std::all_of(operands.begin(), operands.end(), [&](ValueId o) { return constants_lie_in(g, o, t); });
}
/// The 16-bit type that has all elements of v.
std::optional<DType> exact_type(const Graph& g, ValueId v) {
  constexpr int kMostNodes = 64;
  DType found = DType::kReal;
  int left = kMostNodes;
  if (!lies_in(g, v, found, left) || found == DType::kReal || !constants_lie_in(g, v, found)) return std::nullopt;
  return found;
}

}  // namespace

StoredType stored_type(const Graph& g, const std::vector<std::vector<NodeId>>& users, ValueId v, const ContractRule& rule) {
  const DType t = g.type(v).dtype;
  if (t != DType::kReal) return {plain(t), false};
  if (rounded_by_readers(g, users, v, rule, ContractType::kBF16)) return {DType::kBF16, false};
  const auto exact = exact_type(g, v);
  if (exact && rounded_by_readers(g, users, v, rule, ContractType::kBF16, true)) return {*exact, false};
  return {DType::kF32, rounded_by_readers(g, users, v, rule, ContractType::kTF32)};
}

}  // namespace mirage
