// In which type an intermediate of the kernel level lies in the workspace. Private to lib/plan; asked by plan.cc when it gives values their
// buffers.
#pragma once
#include <vector>

#include "mirage/ir/contraction.h"
#include "mirage/ir/graph.h"

namespace mirage {

struct StoredType { DType dtype = DType::kF32; bool tf32 = false; };

/// float32, or bool for a kBool, or the value's own 16-bit type; bfloat16 where every reader would round it to that before anything else,
/// and float32 rounded to TF32 likewise: nothing is rounded twice, or earlier than the kernels that read it do anyway. Where all elements
/// are those of 16-bit values, or constants which that type has, it is that type, unless block graphs read v otherwise than as operands of
/// products in it.
/// users: g.users().
StoredType stored_type(const Graph& g, const std::vector<std::vector<NodeId>>& users, ValueId v, const ContractRule& rule);

}  // namespace mirage
