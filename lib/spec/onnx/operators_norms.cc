// Norms. Gains and biases of a layer have the shape of the normalized axes, those of a channel one entry per channel.
#include "spec/onnx/importer.h"

namespace mirage::onnx {

namespace {

using Results = std::vector<Value>;

/// The axes from `axis` on.
Shape behind(const OpCall& c) {
  Shape axes;
  for (int64_t a = c.axis(c.integer("axis", -1), c.rank()); a < c.rank(); ++a) axes.push_back(a);
  return axes;
}

/// Computed in float32 where the model says so (stash_type 1) and x is narrower: the result alone is rounded.
Results layer_norm(const OpCall& c) {
  const Shape axes = behind(c);
  const double eps = c.real("epsilon", 1e-5);
  std::vector<Value> operands = {c.in(0), c.in(1)};
  if (c.has(2)) operands.push_back(c.in(2));
  Results y = {c.op("layer_norm", operands, {{"axis", axes}, {"eps", eps}})};
  const auto wants = [&](size_t i) { return c.node().outputs.size() > i && !c.node().outputs[i].empty(); };
  if (wants(1) || wants(2)) {
    const Value mean = c.op("mean", {c.in(0)}, {{"axis", axes}, {"keepdim", true}}), d = c.op("sub", {c.in(0), mean});
    y.push_back(c.typed(mean, kFloat));
    y.push_back(c.typed(
        c.op("rsqrt", {c.op("add", {c.op("mean", {c.op("square", {d})}, {{"axis", axes}, {"keepdim", true}}), OpCall::number(eps)})}),
        kFloat));
  }
  return y;
}

Results rms_norm(const OpCall& c) {
  return {c.op("rms_norm", {c.in(0), c.in(1)}, {{"axis", behind(c)}, {"eps", c.real("epsilon", 1e-5)}})};
}

Results batch_norm(const OpCall& c) {
  if (c.integer("training_mode", 0)) c.refuse("a batch norm of training");
  return {c.op("batch_norm", {c.in(0), c.in(3), c.in(4), c.in(1), c.in(2)}, {{"eps", c.real("epsilon", 1e-5)}})};
}

Results instance_norm(const OpCall& c) {
  return {c.op("group_norm", {c.in(0), c.in(1), c.in(2)}, {{"groups", c.dims()[1]}, {"eps", c.real("epsilon", 1e-5)}})};
}

/// Before version 21 the gain and the bias are those of groups.
Results group_norm(const OpCall& c) {
  const int64_t groups = c.integer("num_groups", 1), channels = c.dims()[1];
  if (groups < 1 || channels % groups) c.invalid("num_groups does not divide the channels");
  const auto per_channel = [&](const Value& v) {
    if (c.opset() >= 21 || v.dims != Shape{groups} || groups == channels) return v;
    return c.reshape(c.op("expand", {c.reshape(v, {groups, 1})}, {{"shape", Shape{groups, channels / groups}}}), {channels});
  };
  return {
      c.op("group_norm", {c.in(0), per_channel(c.in(1)), per_channel(c.in(2))}, {{"groups", groups}, {"eps", c.real("epsilon", 1e-5)}})};
}

Results lp_norm(const OpCall& c) {
  const int64_t axis = c.axis(c.integer("axis", -1), c.rank());
  const bool squares = c.integer("p", 2) == 2;
  const Value all = c.op("sum", {c.op(squares ? "square" : "abs", {c.in(0)})}, {{"axis", axis}, {"keepdim", true}});
  const Value safe = c.op("where", {c.op("equal", {all, OpCall::number(0)}), OpCall::number(1), all});  // 0 stays 0
  return {c.op("div", {c.in(0), squares ? c.op("sqrt", {safe}) : safe})};
}

/// (x - mean) / sqrt(variance), over the batch and all places.
Results mean_variance(const OpCall& c) {
  const Shape axes = c.integers("axes").value_or(Shape{0, 2, 3});
  return {c.op("layer_norm", {c.in(0)}, {{"axis", axes}, {"eps", 1e-9}})};
}

}  // namespace

const Rows& norm_rows() {
  static const Rows rows = {{"LayerNormalization", layer_norm},          {"RMSNormalization", rms_norm},
                            {"BatchNormalization", batch_norm},          {"InstanceNormalization", instance_norm},
                            {"GroupNormalization", group_norm},          {"LpNormalization", lp_norm},
                            {"MeanVarianceNormalization", mean_variance}};
  return rows;
}

}  // namespace mirage::onnx
