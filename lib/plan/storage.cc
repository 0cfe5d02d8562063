// The type of intermediates in device memory (see the header). A computed operand of a bfloat16 contraction is rounded as it enters the
// tensor cores (ir/contraction.h), so the kernel that makes it may round it as well: half the bytes, and tensor copies can bring it.
// float16 contractions take computed operands as TF32, which has no shorter form, but once it is rounded tensor copies can bring it too.
#include "plan/storage.h"

#include <algorithm>

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

bool rounded_by_readers(const Graph& g, const std::vector<std::vector<NodeId>>& users, ValueId v, const ContractRule& rule,
                        ContractType t) {
  const auto& readers = users[static_cast<size_t>(v)];
  return !readers.empty() && std::all_of(readers.begin(), readers.end(), [&](NodeId n) {
    const Node& node = g.node(n);
    if (g.form<Transpose>(n) || g.form<Reshape>(n) || g.form<Slice>(n)) return rounded_by_readers(g, users, node.first_value, rule, t);
    const auto* call = g.form<Call>(n);
    if (!call) return false;
    const Graph& body = *call->body;
    const auto inner = body.users();
    for (NodeId in : body.inputs())
      if (node.operands[static_cast<size_t>(body.form<Input>(in)->param)] == v &&
          !only_contracted(body, inner, body.node(in).first_value, rule, t))
        return false;
    return true;
  });
}

}  // namespace

StoredType stored_type(const Graph& g, const std::vector<std::vector<NodeId>>& users, ValueId v, const ContractRule& rule) {
  const DType t = g.type(v).dtype;
  if (t != DType::kReal) return {plain(t), false};
  if (rounded_by_readers(g, users, v, rule, ContractType::kBF16)) return {DType::kBF16, false};
  return {DType::kF32, rounded_by_readers(g, users, v, rule, ContractType::kTF32)};
}

}  // namespace mirage
