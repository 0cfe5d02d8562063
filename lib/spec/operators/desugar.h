// Builders: how each operator of operators.def is made of primitives. They check attributes and shapes (throwing BuildError) and return the
// result's value.
#pragma once
#include "spec/operators/operators.h"

namespace mirage::spec {

template <MapFn fn> ValueId build_map(NodeContext& node) { return node.emit.map(fn, node.operands); }

/// x read along an axis at the places of index (whole numbers), whose dimensions stand in the axis' place; outside: 0.
ValueId read_places(NodeContext&, ValueId x, ValueId index, int axis);
/// x with `before` and `after` elements of a value around it along a dimension.
ValueId pad_constant(Emitter&, ValueId x, int dim, int64_t before, int64_t after, double value);

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

ValueId build_linear(NodeContext&);
ValueId build_not_equal(NodeContext&);
ValueId build_less_equal(NodeContext&);
ValueId build_greater_equal(NodeContext&);
ValueId build_and(NodeContext&);
ValueId build_or(NodeContext&);
ValueId build_not(NodeContext&);
ValueId build_reciprocal(NodeContext&);
ValueId build_leaky_relu(NodeContext&);
ValueId build_elu(NodeContext&);
ValueId build_softplus(NodeContext&);
ValueId build_hardtanh(NodeContext&);
ValueId build_hardswish(NodeContext&);
ValueId build_mish(NodeContext&);
ValueId build_swiglu(NodeContext&);
ValueId build_geglu(NodeContext&);
ValueId build_min(NodeContext&);
ValueId build_prod(NodeContext&);
ValueId build_var(NodeContext&);
ValueId build_std(NodeContext&);
ValueId build_logsumexp(NodeContext&);
ValueId build_log_softmax(NodeContext&);
ValueId build_unsqueeze(NodeContext&);
ValueId build_squeeze(NodeContext&);
ValueId build_expand(NodeContext&);
ValueId build_stack(NodeContext&);
ValueId build_pad(NodeContext&);
ValueId build_flip(NodeContext&);
ValueId build_max_pool(NodeContext&);
ValueId build_avg_pool(NodeContext&);
ValueId build_conv(NodeContext&);
ValueId build_cumsum(NodeContext&);
ValueId build_argmax(NodeContext&);
ValueId build_argmin(NodeContext&);
ValueId build_embedding(NodeContext&);
ValueId build_gather(NodeContext&);
ValueId build_index_select(NodeContext&);
ValueId build_attention(NodeContext&);
ValueId build_rope(NodeContext&);
std::vector<ValueId> build_split(NodeContext&);

}  // namespace mirage::spec
