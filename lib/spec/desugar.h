// Builders: how each operator of operators.def is made of primitives. They check attributes and shapes (throwing BuildError) and return the result's value.
#pragma once
#include "spec/operators.h"

namespace mirage::spec {

template <MapFn fn> ValueId build_map(NodeContext& node) { return node.emit.map(fn, node.operands); }

ValueId build_matmul(NodeContext&);
ValueId build_einsum(NodeContext&);
ValueId build_pow(NodeContext&);
ValueId build_gelu(NodeContext&);
ValueId build_clamp(NodeContext&);
ValueId build_sum(NodeContext&);
ValueId build_mean(NodeContext&);
ValueId build_max(NodeContext&);
ValueId build_softmax(NodeContext&);
ValueId build_rms_norm(NodeContext&);
ValueId build_layer_norm(NodeContext&);
ValueId build_group_norm(NodeContext&);
ValueId build_batch_norm(NodeContext&);
ValueId build_l2_norm(NodeContext&);
ValueId build_transpose(NodeContext&);
ValueId build_reshape(NodeContext&);
ValueId build_repeat(NodeContext&);
ValueId build_concat(NodeContext&);
ValueId build_slice(NodeContext&);
ValueId build_cast(NodeContext&);
ValueId build_causal_mask(NodeContext&);
ValueId build_iota(NodeContext&);
ValueId build_extent(NodeContext&);

}  // namespace mirage::spec
