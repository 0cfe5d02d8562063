// Data movement, constants and shapes. What a model computes of its shapes is known here.
#include <algorithm>
#include <cmath>
#include "mirage/support/round.h"
#include "spec/onnx/importer.h"

namespace mirage::onnx {

namespace {

using Results = std::vector<Value>;

Value whole(Shape numbers) {
  Constant c{{static_cast<int64_t>(numbers.size())}, {}};
  for (int64_t x : numbers) c.data.push_back(static_cast<double>(x));
  return OpCall::constant(std::move(c), kInt64);
}

Results shape(const OpCall& c) {
  const int64_t rank = c.rank();
  const auto clip = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + rank : i, 0, rank); };
  const int64_t from = clip(c.integer("start", 0)), to = clip(c.integer("end", rank));
  return {whole(from < to ? Shape(c.dims().begin() + from, c.dims().begin() + to) : Shape{})};
}

Results size(const OpCall& c) { return {OpCall::number(static_cast<double>(elements_of(c.dims())), kInt64)}; }

Results reshape(const OpCall& c) {
  Shape to = c.known_integers(1, "extents");
  int64_t rest = elements_of(c.dims());
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i] == 0 && !c.integer("allowzero", 0)) {
      if (i >= c.dims().size()) c.invalid("an extent of 0 copies one that is not there");
      to[i] = c.dims()[i];
    }
    if (to[i] == 0 || to[i] < -1) c.invalid("the shape " + text_of(to));
    if (to[i] > 0) rest = rest % to[i] ? 0 : rest / to[i];
  }
  for (int64_t& d : to)
    if (d == -1) d = rest;
  if (rest == 0 || std::count(to.begin(), to.end(), 0) || elements_of(to) != elements_of(c.dims()))
    c.invalid("the shape " + text_of(c.dims()) + " as " + text_of(to));
  return {c.reshape(c.in(0), to)};
}

Results flatten(const OpCall& c) {
  const int64_t given = c.integer("axis", 1), axis = given < 0 ? given + c.rank() : given;
  if (axis < 0 || axis > c.rank()) c.invalid("the axis is out of range");
  int64_t front = 1, back = 1;
  for (int64_t i = 0; i < c.rank(); ++i) (i < axis ? front : back) *= c.dims()[static_cast<size_t>(i)];
  return {c.reshape(c.in(0), {front, back})};
}

Results unsqueeze(const OpCall& c) {
  Shape axes = c.has(1) ? c.known_integers(1, "axes") : c.integers("axes").value_or(Shape{});
  if (axes.empty()) return {c.in(0)};
  const int64_t rank = c.rank() + static_cast<int64_t>(axes.size());
  for (int64_t& a : axes) a = c.axis(a, rank);
  return {c.op("unsqueeze", {c.in(0)}, {{"axis", axes}})};
}

Results squeeze(const OpCall& c) {
  Shape axes = c.has(1) ? c.known_integers(1, "axes") : c.integers("axes").value_or(Shape{}), dims;
  for (int64_t& a : axes) a = c.axis(a, c.rank());
  for (int64_t i = 0; i < c.rank(); ++i) {
    const int64_t d = c.dims()[static_cast<size_t>(i)];
    const bool goes = axes.empty() ? d == 1 : std::count(axes.begin(), axes.end(), i) > 0;
    if (goes && d != 1) c.invalid("an axis that is squeezed has extent 1");
    if (!goes) dims.push_back(d);
  }
  return {c.reshape(c.in(0), dims)};
}

Results transpose(const OpCall& c) {
  Shape perm = c.integers("perm").value_or(Shape{});
  if (perm.empty())
    for (int64_t i = c.rank(); i-- > 0;) perm.push_back(i);
  return {c.op("transpose", {c.in(0)}, {{"perm", perm}})};
}

Results concat(const OpCall& c) {
  std::vector<Value> parts;
  for (size_t i = 0; i < c.size(); ++i)
    if (elements_of(c.dims(i)) > 0) parts.push_back(c.in(i));
  if (parts.empty()) c.refuse("a tensor without elements");
  return {parts.size() == 1 ? parts[0] : c.op("concat", parts, {{"axis", c.axis(c.integer("axis", 0), c.rank())}})};
}

Results split(const OpCall& c) {
  const int64_t axis = c.axis(c.integer("axis", 0), c.rank()), n = c.dims()[static_cast<size_t>(axis)];
  const auto parts = static_cast<int64_t>(c.node().outputs.size());
  Shape sizes = c.has(1) ? c.known_integers(1, "sizes") : Shape{};
  if (sizes.empty()) {
    const int64_t each = (n + parts - 1) / parts;
    for (int64_t i = 0; i < parts; ++i) sizes.push_back(std::min(each, n - i * each));
  }
  if (static_cast<int64_t>(sizes.size()) != parts) c.invalid("another number of sizes than of results");
  if (parts == 1) return {c.in(0)};
  return c.many("split", {c.in(0)}, {{"axis", axis}, {"sizes", sizes}}, static_cast<int>(parts));
}

/// One axis of a slice, whose ends are clamped as the standard says.
Value cut(const OpCall& c, const Value& x, int64_t axis, int64_t start, int64_t end, int64_t step) {
  const int64_t n = x.dims[static_cast<size_t>(axis)];
  const auto place = [&](int64_t i) { return i < 0 ? std::max<int64_t>(i, -n - 1) + n : i; };
  if (step == 0) c.invalid("a step of 0");
  if (step < 0) {
    const int64_t first = std::clamp<int64_t>(place(start), 0, n - 1), last = std::clamp<int64_t>(end < -n ? -1 : place(end), -1, n - 1);
    const Value turned = c.op("flip", {x}, {{"axis", axis}});
    return cut(c, turned, axis, n - 1 - first, n - 1 - last, step == INT64_MIN ? INT64_MAX : -step);
  }
  const int64_t first = std::clamp<int64_t>(place(start), 0, n), stop = std::clamp<int64_t>(place(end), 0, n);
  if (first >= stop) c.refuse("a tensor without elements");
  if (first == 0 && stop == n && step == 1) return x;
  Attrs attrs = {{"axis", axis}, {"start", first}, {"stop", stop}};
  if (step != 1) attrs.push_back({"step", std::min(step, n)});
  return c.op("slice", {x}, attrs);
}

Results slice(const OpCall& c) {
  const Shape starts = c.known_integers(1, "places"), ends = c.known_integers(2, "places");
  Shape axes = c.has(3) ? c.known_integers(3, "axes") : Shape{}, steps = c.has(4) ? c.known_integers(4, "steps") : Shape(starts.size(), 1);
  if (axes.empty())
    for (size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    c.invalid("starts, ends, axes and steps have different lengths");
  Value y = c.in(0);
  for (size_t i = 0; i < starts.size(); ++i) y = cut(c, y, c.axis(axes[i], c.rank()), starts[i], ends[i], steps[i]);
  return {y};
}

/// x along an axis at places: one known place or places in equal steps are a slice, others a read by index.
Results gather(const OpCall& c) {
  const int64_t axis = c.axis(c.integer("axis", 0), c.rank()), n = c.dims()[static_cast<size_t>(axis)];
  auto places = c.known(1);
  if (places && !places->data.empty()) {
    for (double& p : places->data) {
      if (p < static_cast<double>(-n) || p >= static_cast<double>(n)) c.invalid("an index outside of the tensor");
      if (p < 0) p += static_cast<double>(n);
    }
    const double first = places->data[0], step = places->data.size() > 1 ? places->data[1] - first : 1;
    bool is_even = step >= 1 && c.dims(1).size() <= 1;
    for (size_t i = 1; i < places->data.size(); ++i) is_even &= places->data[i] - places->data[i - 1] == step;
    if (is_even) {
      const Value y =
          cut(c, c.in(0), axis, static_cast<int64_t>(first), static_cast<int64_t>(places->data.back()) + 1, static_cast<int64_t>(step));
      if (!places->dims.empty()) return {y};
      Shape dims = y.dims;
      dims.erase(dims.begin() + axis);
      return {c.reshape(y, dims)};
    }
  }
  const Value index = places ? c.tensor(OpCall::constant(*places, kInt64)) : c.in(1);
  if (axis == 0 && c.rank() == 2) return {c.typed(c.op("embedding", {index, c.in(0)}), c.type())};
  return {c.op("index_select", {c.in(0), index}, {{"axis", axis}})};
}

Results gather_elements(const OpCall& c) {
  return {c.op("gather", {c.in(0), c.in(1)}, {{"axis", c.axis(c.integer("axis", 0), c.rank())}})};
}

Results expand(const OpCall& c) {
  Shape to = c.known_integers(1, "extents"), x = c.dims();
  while (x.size() < to.size()) x.insert(x.begin(), 1);
  while (to.size() < x.size()) to.insert(to.begin(), 1);
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i] != x[i] && to[i] != 1 && x[i] != 1) c.invalid("the shape " + text_of(c.dims()) + " does not expand to " + text_of(to));
    to[i] = std::max(to[i], x[i]);
  }
  if (to == c.dims()) return {c.in(0)};
  return {c.op("expand", {c.in(0)}, {{"shape", to}})};
}

Results tile(const OpCall& c) {
  const Shape counts = c.known_integers(1, "counts");
  if (counts.size() != c.dims().size()) c.invalid("another number of counts than axes");
  Value y = c.in(0);
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] < 1) c.refuse("a tensor without elements");
    if (counts[i] > 1) y = c.op("repeat", {y}, {{"axis", static_cast<int64_t>(i)}, {"count", counts[i]}});
  }
  return {y};
}

Results pad(const OpCall& c) {
  static const std::map<std::string, std::string> modes = {
      {"constant", "constant"}, {"reflect", "reflect"}, {"edge", "replicate"}, {"wrap", "circular"}};
  const auto mode = modes.find(c.text("mode", "constant"));
  if (mode == modes.end()) c.refuse("this mode of padding");
  const Shape pads = c.known_integers(1, "paddings");
  Shape axes = c.has(3) ? c.known_integers(3, "axes") : Shape{};
  if (axes.empty())
    for (int64_t i = 0; i < c.rank(); ++i) axes.push_back(i);
  if (pads.size() != 2 * axes.size()) c.invalid("another number of paddings than axes");
  Shape before(c.dims().size(), 0), after = before;
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto a = static_cast<size_t>(c.axis(axes[i], c.rank()));
    before[a] = pads[i];
    after[a] = pads[i + axes.size()];
  }
  return {c.op("pad", {c.in(0)},
               {{"before", before}, {"after", after}, {"value", c.has(2) ? c.known_number(2, "a border") : 0.0}, {"mode", mode->second}})};
}

/// The upper or lower triangle, 0 elsewhere.
Results triangle(const OpCall& c) {
  if (c.rank() < 2) c.invalid("x has rank 2 or more");
  const double k = c.has(1) ? c.known_number(1, "a diagonal") : 0;
  const int64_t rows = c.dims()[c.dims().size() - 2], columns = c.dims().back();
  const Value row = c.op("iota", {}, {{"axis", int64_t{0}}, {"shape", Shape{rows, 1}}}),
              column = c.op("iota", {}, {{"axis", int64_t{1}}, {"shape", Shape{1, columns}}});
  const Value edge = k == 0 ? row : c.op("add", {row, OpCall::number(k)});
  const Value kept = c.op(c.integer("upper", 1) ? "greater_equal" : "less_equal", {column, edge});
  if (c.type() == kBoolean) return {c.typed(c.op("and", {c.in(0), kept}), kBoolean)};
  return {c.typed(c.op("where", {kept, c.in(0), OpCall::number(0)}), c.type())};
}

Value blocks(const OpCall& c, const Value& x, const Shape& apart, const Shape& perm, const Shape& result) {
  return c.reshape(c.op("transpose", {c.reshape(x, apart)}, {{"perm", perm}}), result);
}

Results depth_to_space(const OpCall& c) {
  if (c.rank() != 4) c.invalid("x has rank 4");
  const int64_t b = c.integer("blocksize", 1), n = c.dims()[0], ch = c.dims()[1], h = c.dims()[2], w = c.dims()[3];
  if (b < 1 || ch % (b * b)) c.invalid("the block size does not fit the channels");
  const Shape result = {n, ch / (b * b), h * b, w * b};
  if (c.text("mode", "DCR") == "DCR") return {blocks(c, c.in(0), {n, b, b, ch / (b * b), h, w}, {0, 3, 4, 1, 5, 2}, result)};
  return {blocks(c, c.in(0), {n, ch / (b * b), b, b, h, w}, {0, 1, 4, 2, 5, 3}, result)};
}

Results space_to_depth(const OpCall& c) {
  if (c.rank() != 4) c.invalid("x has rank 4");
  const int64_t b = c.integer("blocksize", 1), n = c.dims()[0], ch = c.dims()[1], h = c.dims()[2], w = c.dims()[3];
  if (b < 1 || h % b || w % b) c.invalid("the block size does not fit the extents");
  return {blocks(c, c.in(0), {n, ch, h / b, b, w / b, b}, {0, 3, 5, 1, 2, 4}, {n, ch * b * b, h / b, w / b})};
}

/// Nearest neighbours by whole factors: every element several times.
Results resize(const OpCall& c) {
  if (c.text("mode", "nearest") != "nearest") c.refuse("an interpolation that is not by nearest neighbours");
  const std::string places = c.text("coordinate_transformation_mode", "half_pixel"),
                    nearest = c.text("nearest_mode", "round_prefer_floor");
  if (!(places == "asymmetric" && nearest == "floor") && !(places == "half_pixel" && nearest == "round_prefer_floor"))
    c.refuse("this choice of nearest neighbours");
  Shape times;
  const auto scales = c.known(2);
  if (scales && !scales->data.empty())
    for (double s : scales->data) times.push_back(s >= 1 && s <= INT32_MAX ? whole_number(s).value_or(0) : 0);
  else if (c.has(3)) {
    const Shape to = c.known_integers(3, "extents");
    for (size_t i = 0; i < to.size() && i < c.dims().size(); ++i) times.push_back(to[i] % c.dims()[i] ? 0 : to[i] / c.dims()[i]);
  }
  if (times.size() != c.dims().size() || std::count(times.begin(), times.end(), 0)) c.refuse("a resize by no whole factor per axis");
  Value y = c.in(0);
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i] == 1) continue;
    Shape apart = y.dims, wide, dims = y.dims;
    apart.insert(apart.begin() + static_cast<int64_t>(i) + 1, 1);
    wide = apart;
    wide[i + 1] = times[i];
    dims[i] *= times[i];
    y = c.reshape(c.op("expand", {c.reshape(y, apart)}, {{"shape", wide}}), dims);
  }
  return {y};
}

Results constant(const OpCall& c) {
  const Attribute* a = nullptr;
  for (const char* name : {"value", "value_float", "value_int", "value_floats", "value_ints"}) a = a ? a : c.node().find(name);
  if (!a) c.refuse("a constant of text or with gaps");
  const auto list = [](std::vector<double> x) { return Constant{{static_cast<int64_t>(x.size())}, std::move(x)}; };
  if (a->name == "value_float") return {OpCall::number(c.real("value_float", 0))};
  if (a->name == "value_int") return {OpCall::number(static_cast<double>(a->integer), kInt64)};
  if (a->name == "value_floats") return {OpCall::constant(list(a->reals), kFloat)};
  if (a->name == "value_ints") return {OpCall::constant(list({a->integers.begin(), a->integers.end()}), kInt64)};
  if (!a->tensor) c.invalid("it has no value");
  return {c.literal(*a->tensor)};
}

Results filled(const OpCall& c) {
  const Shape to = c.known_integers(0, "extents");
  Value v = OpCall::number(0);
  if (const Attribute* a = c.node().find("value"); a && a->tensor) {
    v = c.literal(*a->tensor);
    v = OpCall::number(v.known->data.empty() ? 0 : v.known->data[0], v.type);
  }
  if (to.size() <= 1 && elements_of(to) <= 64)
    return {OpCall::constant({to, std::vector<double>(static_cast<size_t>(elements_of(to)), v.known->data[0])}, v.type)};
  return {c.op("expand", {v}, {{"shape", to}})};
}

Results range(const OpCall& c) {
  const double from = c.known_number(0, "a range"), to = c.known_number(1, "a range"), step = c.known_number(2, "a range");
  const double count = step == 0 ? 0 : std::ceil((to - from) / step);
  if (!(count >= 1 && count <= 1e9)) c.refuse("a tensor without elements");
  Value v = c.op("iota", {}, {{"axis", int64_t{0}}, {"shape", Shape{static_cast<int64_t>(count)}}});
  if (step != 1) v = c.op("mul", {v, OpCall::number(step)});
  if (from != 0) v = c.op("add", {v, OpCall::number(from)});
  return {c.typed(v, c.type())};
}

#define REFUSED(onnx, why)                                   \
  {                                                          \
#onnx, [](const OpCall& c) -> Results { c.refuse(why); } \
  }

}  // namespace

const Rows& move_rows() {
  static const Rows rows = {
      {"Shape", shape},
      {"Size", size},
      {"Reshape", reshape},
      {"Flatten", flatten},
      {"Unsqueeze", unsqueeze},
      {"Squeeze", squeeze},
      {"Transpose", transpose},
      {"Concat", concat},
      {"Split", split},
      {"Slice", slice},
      {"Gather", gather},
      {"GatherElements", gather_elements},
      {"Expand", expand},
      {"Tile", tile},
      {"Pad", pad},
      {"Trilu", triangle},
      {"DepthToSpace", depth_to_space},
      {"SpaceToDepth", space_to_depth},
      {"Resize", resize},
      {"Constant", constant},
      {"ConstantOfShape", filled},
      {"Range", range},
      REFUSED(TopK, "sorting"),
      REFUSED(Unique, "sorting"),
      REFUSED(NonZero, "a shape that depends on values"),
      REFUSED(Compress, "a shape that depends on values"),
      REFUSED(NonMaxSuppression, "a shape that depends on values"),
      REFUSED(ScatterElements, "writes to places that depend on values"),
      REFUSED(ScatterND, "writes to places that depend on values"),
      REFUSED(TensorScatter, "writes to places that depend on values"),
      REFUSED(RandomNormal, "random numbers"),
      REFUSED(RandomNormalLike, "random numbers"),
      REFUSED(RandomUniform, "random numbers"),
      REFUSED(RandomUniformLike, "random numbers"),
      REFUSED(Bernoulli, "random numbers"),
      REFUSED(Multinomial, "random numbers"),
      REFUSED(If, "control flow"),
      REFUSED(Loop, "control flow"),
      REFUSED(Scan, "control flow"),
      REFUSED(LSTM, "a recurrence: unroll it"),
      REFUSED(GRU, "a recurrence: unroll it"),
      REFUSED(RNN, "a recurrence: unroll it"),
      REFUSED(QuantizeLinear, "quantized numbers"),
      REFUSED(DequantizeLinear, "quantized numbers"),
      REFUSED(DynamicQuantizeLinear, "quantized numbers"),
      REFUSED(MatMulInteger, "quantized numbers"),
      REFUSED(QLinearMatMul, "quantized numbers"),
      REFUSED(QLinearConv, "quantized numbers"),
      REFUSED(ConvInteger, "quantized numbers"),
      REFUSED(DFT, "complex numbers"),
      REFUSED(STFT, "complex numbers"),
      REFUSED(Acos, "inverse trigonometric functions"),
      REFUSED(Asin, "inverse trigonometric functions"),
      REFUSED(Atan, "inverse trigonometric functions"),
  };
  return rows;
}

const OpRow* find_row(std::string_view op) {
  for (const Rows* rows : {&elementwise_rows(), &product_rows(), &norm_rows(), &move_rows(), &window_rows()})
    for (const OpRow& row : *rows)
      if (op == row.name) return &row;
  return nullptr;
}

}  // namespace mirage::onnx
