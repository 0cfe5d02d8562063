// Convolutions and pools. Paddings that differ at the two ends are a pad in front.
#include <algorithm>
#include <cmath>
#include "spec/onnx/importer.h"

namespace mirage::onnx {

namespace {

using Results = std::vector<Value>;

struct Window {
  Shape kernel, stride, dilation, before, after;
};

Shape per_axis(const OpCall& c, const char* name, int64_t axes, int64_t otherwise) {
  Shape s = c.integers(name).value_or(Shape{});
  if (s.empty()) s.assign(static_cast<size_t>(axes), otherwise);
  if (static_cast<int64_t>(s.size()) != axes)
    c.invalid(std::string(name) + " has another number of entries than the tensor has spatial axes");
  return s;
}

Window window(const OpCall& c, const Shape& kernel) {
  const auto axes = c.rank() - 2;
  if (axes < 1 || static_cast<int64_t>(kernel.size()) != axes)
    c.invalid("x has a batch axis, channels and one axis per entry of the kernel");
  Window w{kernel, per_axis(c, "strides", axes, 1), per_axis(c, "dilations", axes, 1), {}, {}};
  const Shape pads = per_axis(c, "pads", 2 * axes, 0);
  const std::string automatic = c.text("auto_pad", "NOTSET");
  for (size_t i = 0; i < static_cast<size_t>(axes); ++i) {
    int64_t before = pads[i], after = pads[i + static_cast<size_t>(axes)];
    if (before < 0 || after < 0 || w.stride[i] < 1 || w.dilation[i] < 1) c.invalid("a stride, dilation or pad is out of range");
    if (automatic.starts_with("SAME")) {
      const int64_t x = c.dims()[i + 2], count = (x + w.stride[i] - 1) / w.stride[i];
      const int64_t all = std::max<int64_t>(0, (count - 1) * w.stride[i] + (kernel[i] - 1) * w.dilation[i] + 1 - x);
      before = automatic == "SAME_UPPER" ? all / 2 : all - all / 2;
      after = all - before;
    }
    w.before.push_back(before);
    w.after.push_back(after);
  }
  return w;
}

/// x with what of the padding the operator of the spec cannot say: w's paddings are equal afterwards.
Value padded(const OpCall& c, Value x, Window& w, double value, bool all) {
  if (w.before == w.after && !all) return x;
  Shape before(2, 0), after(2, 0);
  before.insert(before.end(), w.before.begin(), w.before.end());
  after.insert(after.end(), w.after.begin(), w.after.end());
  std::fill(w.before.begin(), w.before.end(), 0);
  w.after = w.before;
  return c.op("pad", {x}, {{"before", before}, {"after", after}, {"value", value}});
}

Shape kernel_of(const OpCall& c) {
  const Shape& w = c.dims(1);
  if (w.size() < 3) c.invalid("the filters have rank 3 to 5");
  return Shape(w.begin() + 2, w.end());
}

Results conv(const OpCall& c) {
  Window w = window(c, kernel_of(c));
  const Value x = padded(c, c.in(0), w, 0, false);
  std::vector<Value> operands = {x, c.in(1)};
  if (c.has(2)) operands.push_back(c.in(2));
  return {
      c.op("conv", operands, {{"stride", w.stride}, {"padding", w.before}, {"dilation", w.dilation}, {"groups", c.integer("group", 1)}})};
}

Results conv_transposed(const OpCall& c) {
  Window w = window(c, kernel_of(c));
  if (c.has_attr("output_shape") || c.text("auto_pad", "NOTSET") != "NOTSET" || w.before != w.after)
    c.refuse("a transposed convolution with uneven padding or a given result");
  const Shape more = per_axis(c, "output_padding", c.rank() - 2, 0);
  std::vector<Value> operands = {c.in(0), c.in(1)};
  if (c.has(2)) operands.push_back(c.in(2));
  return {c.op("conv", operands,
               {{"stride", w.stride}, {"padding", w.before}, {"dilation", w.dilation}, {"groups", c.integer("group", 1)},
                {"transposed", true},
                {"output_padding", more}})};
}

bool fits_half(const Window& w) {
  for (size_t i = 0; i < w.kernel.size(); ++i)
    if (2 * w.before[i] > w.kernel[i]) return false;
  return true;
}

Results max_pool(const OpCall& c) {
  if (c.node().outputs.size() > 1 && !c.node().outputs[1].empty()) c.refuse("the places of a pool's largest elements");
  Window w = window(c, c.integers("kernel_shape").value_or(Shape{}));
  const Value x = padded(c, c.in(0), w, -HUGE_VAL, !fits_half(w));
  return {c.op("max_pool", {x},
               {{"kernel", w.kernel},
                {"stride", w.stride}, {"padding", w.before}, {"dilation", w.dilation},
                {"ceil_mode", c.integer("ceil_mode", 0) != 0}})};
}

Results avg_pool(const OpCall& c) {
  Window w = window(c, c.integers("kernel_shape").value_or(Shape{}));
  if (std::any_of(w.dilation.begin(), w.dilation.end(), [](int64_t d) { return d != 1; })) c.refuse("a mean of elements apart");
  const bool count = c.integer("count_include_pad", 0) != 0;
  if ((w.before != w.after || !fits_half(w)) && !count) c.refuse("a mean over windows of uneven padding that does not count");
  // ONNX and PyTorch count what is behind the padding differently.
  for (size_t i = 0; count && c.integer("ceil_mode", 0) && i < w.kernel.size(); ++i)
    if ((c.dims()[i + 2] + w.before[i] + w.after[i] - w.kernel[i]) % w.stride[i])
      c.refuse("a mean over windows that reach behind the padding");
  const Value x = padded(c, c.in(0), w, 0, !fits_half(w));
  return {c.op("avg_pool", {x},
               {{"kernel", w.kernel},
                {"stride", w.stride}, {"padding", w.before},
                {"ceil_mode", c.integer("ceil_mode", 0) != 0},
                {"count_include_pad", count}})};
}

Results global_pool(const OpCall& c, const char* name) {
  Shape axes;
  for (int64_t i = 2; i < c.rank(); ++i) axes.push_back(i);
  if (axes.empty()) c.invalid("x has a batch axis, channels and at least one spatial axis");
  return {c.op(name, {c.in(0)}, {{"axis", axes}, {"keepdim", true}})};
}

}  // namespace

const Rows& window_rows() {
  static const Rows rows = {{"Conv", conv},
                            {"ConvTranspose", conv_transposed},
                            {"MaxPool", max_pool},
                            {"AveragePool", avg_pool},
                            {"GlobalAveragePool", [](const OpCall& c) { return global_pool(c, "mean"); }},
                            {"GlobalMaxPool", [](const OpCall& c) { return global_pool(c, "max"); }}};
  return rows;
}

}  // namespace mirage::onnx
