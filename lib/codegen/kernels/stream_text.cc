// The text that stream and tile kernels share: see the header.
#include "codegen/kernels/stream_text.h"

#include <algorithm>

#include "mirage/codegen/module.h"
#include "mirage/ir/walk.h"

namespace mirage {

std::set<int> StreamText::pointer_params() const {
  std::set<int> out;
  for (NodeId n : g_.inputs()) if (!mapped(n)) out.insert(param(n));
  return out;
}

void StreamText::declare_gain(size_t i, const std::string& type, int64_t ranks) {
  const StreamProduct& q = s_.products[i];
  if (!q.gained()) return;
  line("{} gain{};", type, i);
  line("gain{}.set({});", i, CudaText().constant(q.scale));
  for (NodeId n : q.gains) line("gain{}.times({}, {}, {});", i, pointer(n), stride(n, Axis::kRank), ranks);
}

bool StreamText::is_weight(NodeId n) const {
  return std::any_of(s_.weights.begin(), s_.weights.end(), [&](const StreamWeight& w) { return w.input == n; });
}

bool StreamText::has(ValueId v, Axis a) const {
  const auto& x = s_.axes[at(v)];
  return std::count(x.begin(), x.end(), a) > 0;
}

int64_t StreamText::stride_of(const Access& a, const std::vector<Axis>& axes, Axis which) {
  for (size_t d = 0; d < axes.size(); d++) if (axes[d] == which) return a.strides[static_cast<int>(d)];
  return 0;
}

NodeId StreamText::stored_input(ValueId v) const {
  while (g_.def_form<Transpose>(v)) v = g_.def(v).operands[0];
  return g_.def_form<Input>(v) ? g_.value(v).node : -1;
}

void StreamText::leaves(ValueId v, std::set<NodeId>& out) const {
  find_below(g_, v, [&](ValueId x) {
    if (g_.def_form<Input>(x)) out.insert(g_.value(x).node);
    return is_known(x) ? Look::kPast : Look::kInto;
  });
}

bool StreamText::is_known(ValueId v) const { 
  for (const StreamSum& s : s_.sums) if (s.value == v) return true;
  for (const StreamStatistic& s : s_.statistics) if (s.result == v) return true;
  for (const StreamStatistic& s : s_.early) if (s.result == v) return true;
  return false;
}

std::set<NodeId> StreamText::loop_leaves() const {
  std::set<NodeId> out;
  for (const StreamContraction& c : s_.contractions) leaves(c.small, out);
  for (const StreamStatistic& s : s_.statistics) leaves(s.of, out);
  return out;
}

std::set<NodeId> StreamText::tail_leaves() const {
  std::set<NodeId> out;
  for (NodeId n : g_.outputs()) leaves(g_.node(n).operands[0], out);
  return out;
}

int StreamText::uses(int contraction) const {
  int n = 0;
  for (const StreamSum& s : s_.sums) for (auto [c, f] : s.contractions) n += c == contraction;
  return n;
}

bool StreamText::narrow_results() const {
  return std::all_of(s_.results.begin(), s_.results.end(), [](const Access& a) { return dtype_bytes(a.dtype) == 2; });
}

bool StreamText::only_multiplied(ValueId v) const {
  if (!has(v, Axis::kDepth)) return false;
  return std::none_of(s_.statistics.begin(), s_.statistics.end(), [&](const StreamStatistic& x) { return depends_on(g_, x.of, v); });
}

std::string StreamText::map(ValueId v, const std::function<std::string(ValueId)>& element) const {
  const MapFn fn = g_.def_form<Map>(v)->fn;
  const auto& o = g_.def(v).operands;
  std::vector<std::string> operands;
  for (ValueId x : o) operands.push_back(element(x));
  const bool narrow = narrow_results() || only_multiplied(v);
  if (const int made = fn == MapFn::kDiv ? made_at(o[1]) : -1; made >= 0 && made_[at(made)].inverted)
    return map_text(MapFn::kMul, operands, narrow);
  if (fn != MapFn::kDiv) return map_text(fn, operands, narrow);
  DivisorText y{operands[1], std::nullopt, "", !has(o[1], Axis::kDepth) && !has(o[1], Axis::kWhole) && !has(o[1], Axis::kCol)};
  if (const auto* c = g_.def_form<Const>(o[1])) y.constant = c->value;
  const auto* root = is_known(o[1]) ? nullptr : g_.def_form<Map>(o[1]);
  if (narrow && root && root->fn == MapFn::kSqrt) y.root_of = element(g_.def(o[1]).operands[0]);
  return quotient_text(operands[0], y, narrow);
}

std::string StreamText::loop_element(ValueId v, std::string& statements) const {
  std::map<ValueId, std::string> known;
  return loop_element(v, statements, known);
}

std::string StreamText::loop_element(ValueId v, std::string& statements, std::map<ValueId, std::string>& known) const {
  if (auto it = known.find(v); it != known.end()) return it->second;
  if (g_.def_form<Transpose>(v)) return loop_element(g_.def(v).operands[0], statements, known);
  if (const auto* c = g_.def_form<Const>(v)) return CudaText().constant(c->value);
  if (is_known(v)) return loop_leaf(v);
  std::string text;
  if (g_.def_form<Input>(v)) text = loop_leaf(v);
  else text = map(v, [&](ValueId o) { return loop_element(o, statements, known); });
  statements += fmt::format("const auto v{} = {}; ", v, text);
  return known[v] = fmt::format("v{}", v);
}

namespace {

/// rows: the pair stands for an item's neighbours, not for its two others.
std::string widened(const std::string& text, bool rows, bool scalar, bool same) {
  return same || scalar ? text : fmt::format("{}({})", rows ? "along_rows" : "along_columns", text);
}

}  // namespace

void StreamText::declare_tail_loads() {
  for (NodeId n : tail_leaves()) {
    const Shape x = shape(value(n));
    if (x == Shape::kScalar) line("const float e{} = load(*({}));", n, pointer(n));
    else if (!loads_late()) line("Pack<{}> e{}[kTail];", x == Shape::kBoth ? 4 : 2, n);
  }
}

std::string StreamText::tail_loads() {
  std::string text;
  for (NodeId n : tail_leaves()) {
    const Shape x = shape(value(n));
    const int64_t rs = stride(n, Axis::kRow), cs = stride(n, Axis::kCol);
    if (turned() && x == Shape::kBoth)
      text += fmt::format("e{}[t] = load_item({} + m * int64_t({}) + c * int64_t({}), {}, {}, kN - c, kM - m); ", n, pointer(n), rs, cs, cs,
                          rs);
    else if (turned() && x == Shape::kRows)
      text += fmt::format("e{}[t] = load_two({} + m * int64_t({}), {}, 8, kM - m); ", n, pointer(n), rs, rs);
    else if (turned() && x == Shape::kCols)
      text += fmt::format("e{}[t] = load_two({} + c * int64_t({}), {}, 1, kN - c); ", n, pointer(n), cs, cs);
    else if (x == Shape::kBoth)
      text += fmt::format("e{}[t] = {}({} + m * int64_t({}) + c * int64_t({}), {}, {}, kM - m, kN - c); ", n, stepped("load_item"),
                          pointer(n), row_stride(n, rs), cs, row_stride(n, rs), cs);
    else if (x == Shape::kRows) text += fmt::format("e{}[t] = load_two({} + m * int64_t({}), {}, 1, kM - m); ", n, pointer(n), rs, rs);
    else if (x == Shape::kCols)
      text += fmt::format("e{}[t] = load_two({} + c * int64_t({}), {}, {}, kN - c); ", n, pointer(n), cs, cs, column_step());
  }
  return text;
}

void StreamText::tail_results() {
  std::map<ValueId, std::string> known;
  for (NodeId n : g_.outputs()) {
    const ValueId v = g_.node(n).operands[0];
    const Shape x = shape(v);
    const std::string text = widened(tail_element(v, known), (x == Shape::kRows) != turned(), x == Shape::kScalar, x == Shape::kBoth);
    store_result(n, text);
  }
}

std::string StreamText::column_place(const Access& a, int64_t stride, const std::string& column) {
  if (a.run > 0) return fmt::format("{0} / {1} * int64_t({2}) + {0} % {1}", column, a.run, a.jump);
  return stride == 1 ? column : fmt::format("{} * int64_t({})", column, stride);
}

std::string StreamText::result_pointer(NodeId n) const {
  const Access& a = s_.results[at(g_.form<Output>(n)->result)];
  return fmt::format("({}*)out{} + {}{}", cuda_type(a), g_.form<Output>(n)->result, offset(n, a.offset),
                     slice_text(stride_of(a, s_.axes[at(g_.node(n).operands[0])], Axis::kBatch)));
}

void StreamText::store_result(NodeId n, const std::string& text) {
  const ValueId v = g_.node(n).operands[0];
  const Access& a = s_.results[at(g_.form<Output>(n)->result)];
  const int64_t rs = stride_of(a, s_.axes[at(v)], Axis::kRow), cs = stride_of(a, s_.axes[at(v)], Axis::kCol);
  if (column_step() == 1 && cs == 1 && rs % 2 == 0 && a.jump % 2 == 0 && a.offset % 2 == 0 && s_.cols % 2 == 0 && has(v, Axis::kRow) &&
      s_.batch == 1) {
    line("store_item_pairs({} + m * int64_t({}) + {}, {}, kM - m, kN - c, {});", result_pointer(n), rs, column_place(a, 1, "c"), rs, text);
    return;
  }
  const std::string place = column_place(a, cs, "c");
  if (turned()) {
    line("store_item({} + m * int64_t({}) + {}, {}, {}, {} - c, {} - m, {});", result_pointer(n), rs, place, cs, rs,
         has(v, Axis::kCol) ? "kN" : "1", has(v, Axis::kRow) ? "kM" : "1", text);
    return;
  }
  line("{}({} + m * int64_t({}) + {}, {}, {}, {} - m, {} - c, {});", stepped("store_item"), result_pointer(n), row_stride(n, rs), place,
       row_stride(n, rs), cs, has(v, Axis::kRow) ? "kM" : "1", has(v, Axis::kCol) ? "kN" : "1", text);
}

int StreamText::statistic_of(ValueId v) const {
  for (size_t i = 0; i < s_.statistics.size(); i++) if (s_.statistics[i].result == v) return static_cast<int>(i);
  return -1;
}

int StreamText::made_at(ValueId v) const {
  for (size_t i = 0; i < made_.size(); i++) if (made_[i].value == v) return static_cast<int>(i);
  return -1;
}

bool StreamText::has_inverse(ValueId v) const {
  const auto* map = g_.def_form<Map>(v);
  if (!map || map->fn != MapFn::kMax) return map && map->fn == MapFn::kSqrt;   // a reciprocal root, as map() has it
  const auto& o = g_.def(v).operands;
  return std::any_of(o.begin(), o.end(), [&](ValueId x) { const auto* c = g_.def_form<Const>(x); return c && c->value >= 0x1p-100; });
}

std::vector<StreamText::RowValue> StreamText::row_values() const {
  std::set<ValueId> of_rows;
  std::map<ValueId, RowValue> read;
  for (NodeId n = 0; n < g_.num_nodes(); n++) {
    const Node& node = g_.node(n);
    const ValueId v = node.first_value;
    const auto* map = std::get_if<Map>(&node.op);
    const bool is_made = map && shape(v) == Shape::kRows && std::all_of(node.operands.begin(), node.operands.end(), [&](ValueId o) {
      return of_rows.contains(o) || g_.def_form<Const>(o);
    });
    if (is_made || (v >= 0 && statistic_of(v) >= 0 && shape(v) == Shape::kRows)) { of_rows.insert(v); continue; }
    for (size_t i = 0; i < node.operands.size(); i++)
      if (const ValueId o = node.operands[i]; of_rows.contains(o)) {
        const auto at = read.try_emplace(o, RowValue{o, narrow_results() && has_inverse(o)}).first;
        if (!map || map->fn != MapFn::kDiv || i != 1 || shape(v) != Shape::kBoth) at->second.inverted = false;
      }
  }
  std::vector<RowValue> out;
  bool is_more = false;
  for (const auto& [v, x] : read) out.push_back(x), is_more = is_more || x.inverted || statistic_of(v) < 0;
  if (!is_more || out.size() > s_.statistics.size()) out.clear();
  return out;
}

std::string StreamText::row_text(ValueId v, std::string& statements, std::set<ValueId>& known) const {
  if (const auto* c = g_.def_form<Const>(v)) return CudaText().constant(c->value);
  if (const int i = statistic_of(v); i >= 0) return fmt::format("statistic{}", i);
  if (known.insert(v).second) {
    std::vector<std::string> operands;
    for (ValueId o : g_.def(v).operands) operands.push_back(row_text(o, statements, known));
    statements += fmt::format("const float r{} = {}; ", v, map_text(g_.def_form<Map>(v)->fn, operands, narrow_results()));
  }
  return fmt::format("r{}", v);
}

std::string StreamText::row_value(const RowValue& x, std::string& statements) const {
  std::set<ValueId> known;
  if (!x.inverted) return row_text(x.value, statements, known);
  const auto* map = g_.def_form<Map>(x.value);
  if (map && map->fn == MapFn::kSqrt) return map_text(MapFn::kRsqrt, {row_text(g_.def(x.value).operands[0], statements, known)});
  return map_text(MapFn::kDiv, {CudaText().constant(1.0), row_text(x.value, statements, known)});
}

std::string StreamText::tail_element(ValueId v, std::map<ValueId, std::string>& known) {
  if (auto it = known.find(v); it != known.end()) return it->second;
  if (const auto* c = g_.def_form<Const>(v)) return CudaText().constant(c->value);
  if (const int i = made_at(v); i >= 0) {
    line("const Pack<2> s{0} = {{{{statistics[{1} * {2} + {3}], statistics[{1} * {2} + {3} + 1]}}}};", v, i, padded_rows(),
         statistic_row());
    return known[v] = fmt::format("s{}", v);
  }
  for (size_t i = 0; i < s_.sums.size(); i++) {
    if (s_.sums[i].value != v) continue;
    line("const Pack<4> v{} = {};", v, sum_item(i));
    if (shape(v) == Shape::kBoth) return known[v] = fmt::format("v{}", v);
    line("const Pack<2> c{0} = {{{{v{0}.v[0], v{0}.v[{1}]}}}};", v, turned() ? 1 : 2);   // the same in every row
    return known[v] = shape(v) == Shape::kCols ? fmt::format("c{}", v) : fmt::format("v{}", v);
  }
  for (size_t i = 0; i < s_.statistics.size(); i++) {
    if (s_.statistics[i].result != v) continue;
    line("Pack<2> s{0} = {{{{{1}::identity(), {1}::identity()}}}};", v, reduce_type(s_.statistics[i].fn));
    line(
        "for (int i = 0; i < {0}; i++) for (int e = 0; e < 2; e++) s{1}.v[e] = {2}::combine(s{1}.v[e], statistics[({3} * {0} + i) * {4} + "
        "{5} + e]);",
        statistic_parts(), v, reduce_type(s_.statistics[i].fn), i, padded_rows(), statistic_row());
    return known[v] = shape(v) == Shape::kRows ? fmt::format("s{}", v) : fmt::format("s{}.v[0]", v);
  }
  if (g_.def_form<Transpose>(v)) return tail_element(g_.def(v).operands[0], known);
  for (size_t i = 0; i < s_.early.size(); i++) {
    if (s_.early[i].result != v) continue;
    line("const Pack<2> w{0} = {{{{early[{1} * kRows + m], early[{1} * kRows + m + 1]}}}};", v, 8 * i);
    return known[v] = shape(v) == Shape::kRows ? fmt::format("w{}", v) : fmt::format("w{}.v[0]", v);
  }
  if (g_.def_form<Input>(v)) {
    const NodeId n = g_.value(v).node;
    return known[v] = shape(v) == Shape::kScalar || loads_late() ? fmt::format("e{}", n) : fmt::format("e{}[t]", n);
  }
  const Shape to = shape(v);
  int number = 0;
  const std::string text = map(v, [&](ValueId o) {
    const Shape from = g_.def_form<Const>(o) ? Shape::kScalar : shape(o);
    const std::string x = widened(tail_element(o, known), (from == Shape::kRows) != turned(), from == Shape::kScalar, from == to);
    if (!x.starts_with("along_")) return x;
    line("const auto v{}_{} = {};", v, number, x);   // formulas may name an operand several times
    return fmt::format("v{}_{}", v, number++);
  });
  line("const auto v{} = {};", v, text);
  return known[v] = fmt::format("v{}", v);
}

TensorMapText stream_weight_map(const StreamShape& p, const StreamWeight& w, int columns, int depth, bool even_first) {
  const Access& a = p.operands[static_cast<size_t>(p.body.form<Input>(w.input)->param)];
  TensorMapText m;
  m.buffer = a.buffer;
  m.offset_bytes = a.offset * dtype_bytes(a.dtype);
  m.dtype = a.dtype;
  const int64_t own = w.instead_of >= 0 ? p.second : p.depth - p.second;
  m.dims = w.depth_major ? std::vector<int64_t>{own, w.extent} : std::vector<int64_t>{w.extent, own};
  m.strides = {w.line * dtype_bytes(a.dtype)};
  m.box = w.depth_major ? std::vector<int>{64, columns} : std::vector<int>{columns, depth};
  m.swizzle = w.depth_major ? 128 : columns * 2;
  if (w.packed) {   // the same bytes in lines of 128
    m.dims = {64, p.depth * w.extent / 64};
    m.strides = {128};
    m.box = {64, static_cast<int>(depth * w.extent / 64)};
    m.swizzle = 128;   // narrow lines eight apart share banks
  }
  if (even_first) {   // of each eight columns the even ones, then the others
    const int64_t line = m.strides[0];
    m.dims = {own, 4, 2, w.extent / 8};
    m.strides = {2 * line, line, 8 * line};
    m.box = {64, 4, 2, columns / 8};
  }
  if (w.slice) {
    m.dims.push_back(p.batch);
    m.strides.push_back(w.slice * dtype_bytes(a.dtype));
    m.box.push_back(1);
  }
  return m;
}

}  // namespace mirage
