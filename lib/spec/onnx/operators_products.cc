// Products: matrix products, attention, rotary embeddings.
#include <cmath>
#include "spec/onnx/importer.h"

namespace mirage::onnx {

namespace {

using Results = std::vector<Value>;

Results matmul(const OpCall& c) { return {c.op("matmul", {c.in(0), c.in(1)})}; }

/// alpha a b + beta c.
Results gemm(const OpCall& c) {
  const double alpha = c.real("alpha", 1), beta = c.real("beta", 1);
  const bool a = c.integer("transA", 0) != 0, b = c.integer("transB", 0) != 0;
  Attrs attrs;
  if (a) attrs.push_back({"transpose_a", true});
  if (b) attrs.push_back({"transpose_b", true});
  Value y = !a && b ? c.op("linear", {c.in(0), c.in(1)}) : c.op("matmul", {c.in(0), c.in(1)}, attrs);
  if (alpha != 1) y = c.op("mul", {y, OpCall::number(alpha)});
  if (!c.has(2)) return {y};
  return {c.op("add", {y, beta == 1 ? c.in(2) : c.op("mul", {c.in(2), OpCall::number(beta)})})};
}

Results einsum(const OpCall& c) {
  std::string equation;
  for (char letter : c.text("equation", ""))
    if (letter != ' ') equation += letter;
  if (c.size() > 2) c.refuse("an einsum of over two operands");
  std::vector<Value> operands;
  for (size_t i = 0; i < c.size(); ++i) operands.push_back(c.in(i));
  return {c.op("einsum", operands, {{"equation", equation}})};
}

/// (batch, rows, heads * depth) as (batch, heads, rows, depth).
Value in_heads(const OpCall& c, const Value& x, int64_t heads) {
  if (x.dims.size() == 4) return x;
  if (x.dims.size() != 3 || heads < 1 || x.dims[2] % heads)
    c.invalid("q, k and v have rank 4, or rank 3 and a number of heads that divides their last axis");
  return c.op("transpose", {c.reshape(x, {x.dims[0], x.dims[1], heads, x.dims[2] / heads})}, {{"perm", Shape{0, 2, 1, 3}}});
}

/// Attention of version 23. Its present keys and values are inputs and results: the cache in front of the new ones.
Results attention(const OpCall& c) {
  if (c.integer("qk_matmul_output_mode", 0) != 0 || (c.node().outputs.size() > 3 && !c.node().outputs[3].empty()))
    c.refuse("the logits of an attention as a result");
  const Value q = in_heads(c, c.in(0), c.integer("q_num_heads", 0));
  Value k = in_heads(c, c.in(1), c.integer("kv_num_heads", 0)), v = in_heads(c, c.in(2), c.integer("kv_num_heads", 0));
  int64_t offset = 0;
  if (c.has(4)) {
    offset = c.dims(4)[2];
    k = c.op("concat", {c.in(4), k}, {{"axis", int64_t{2}}});
    v = c.op("concat", {c.in(5), v}, {{"axis", int64_t{2}}});
  }
  if (c.has(6)) c.refuse("a padded cache with a count of its keys");
  std::vector<Value> operands = {q, k, v};
  Attrs attrs;
  if (c.has_attr("scale") && c.real("scale", 0) != 0) {
    const double scale = c.real("scale", 1);
    if (static_cast<float>(scale) != static_cast<float>(1 / std::sqrt(static_cast<double>(q.dims[3])))) attrs.push_back({"scale", scale});
  }
  if (c.integer("is_causal", 0)) attrs.push_back({"causal", true}), attrs.push_back({"offset", offset});
  if (const double cap = c.real("softcap", 0); cap != 0) attrs.push_back({"softcap", cap});
  if (c.has(3)) {
    Value mask = c.in(3);
    if (mask.dims.back() < k.dims[2]) c.refuse("a mask over fewer keys than there are");
    operands.push_back(mask);
  }
  Value y = c.op("attention", operands, attrs);
  if (c.rank(0) == 3) y = c.reshape(c.op("transpose", {y}, {{"perm", Shape{0, 2, 1, 3}}}), {y.dims[0], y.dims[2], y.dims[1] * y.dims[3]});
  return {y, k, v};
}

/// cos and sin of each position: of the whole cache by position_ids, or given as they are.
Value angles(const OpCall& c, const Value& table, bool by_heads) {
  Value t = c.has(3) ? c.op("index_select", {table, c.in(3)}, {{"axis", int64_t{0}}}) : table;
  if (t.dims.size() != 3) c.invalid("cos and sin have rank 3 (batch, positions, half), or rank 2 with position_ids");
  return c.typed(c.op("unsqueeze", {t}, {{"axis", Shape{by_heads ? 1 : 2}}}), table.type);
}

/// RotaryEmbedding of version 23: x (batch, heads, rows, depth), or (batch, rows, heads * depth) with num_heads.
Results rotary(const OpCall& c) {
  Value x = c.in(0);
  const bool by_heads = x.dims.size() == 4;
  if (!by_heads) {
    const int64_t heads = c.integer("num_heads", 0);
    if (x.dims.size() != 3 || heads < 1 || x.dims[2] % heads)
      c.invalid("x has rank 4, or rank 3 and a num_heads that divides its last axis");
    x = c.reshape(x, {x.dims[0], x.dims[1], heads, x.dims[2] / heads});
  }
  Attrs attrs;
  if (c.integer("interleaved", 0)) attrs.push_back({"interleaved", true});
  if (const int64_t turned = c.integer("rotary_embedding_dim", 0); turned > 0) attrs.push_back({"dims", turned});
  const Value y = c.op("rope", {x, angles(c, c.in(1), by_heads), angles(c, c.in(2), by_heads)}, attrs);
  return {by_heads ? y : c.reshape(y, c.dims(0))};
}

}  // namespace

const Rows& product_rows() {
  static const Rows rows = {{"MatMul", matmul}, {"Gemm", gemm}, {"Einsum", einsum}, {"Attention", attention}, {"RotaryEmbedding", rotary}};
  return rows;
}

}  // namespace mirage::onnx
