// See the header.
#include "codegen/program/matrix_text.h"

#include <algorithm>

#include "mirage/ir/walk.h"

namespace mirage::schedule {

int maker(const MatrixStages& m, const std::vector<const Stage*>& of, ValueId v) {
  for (size_t i = 0; i < of.size(); i++) if (m.made(*of[i]) == v) return static_cast<int>(i);
  return -1;
}

std::set<int> MatrixText::pointer_params() const {
  std::set<int> out;
  for (NodeId n : g_.inputs()) if (!mapped(n)) out.insert(param(n));
  return out;
}

int64_t MatrixText::stride_of(const Param& a, ValueId v, IndexId i) const {
  const auto& of = p_.index_of[at(v)];
  for (size_t d = 0; d < of.size(); d++) if (i >= 0 && of[d] == i) return a.strides[static_cast<int>(d)];
  return 0;
}

// ---- products

void MatrixText::declare_gain(size_t i, const std::string& type, int64_t ranks) {
  const MatrixStages::Gained q = gained(i);
  if (q.scale == 1 && q.gains.empty()) return;
  line("{} gain{};", type, i);
  line("gain{}.set({});", i, CudaText().constant(q.scale));
  for (NodeId n : q.gains) line("gain{}.times({}, {}, {});", i, pointer(n), stride(n, m_.free(m_.weight(*q.sum))), ranks);
}

std::string MatrixText::gain(size_t i) const {
  const MatrixStages::Gained q = gained(i);
  return q.scale != 1 || !q.gains.empty() ? fmt::format("gain{}", i) : "NoGain()";
}

void MatrixText::declare_total(size_t i, const std::string& type) {
  std::vector<MatrixStages::Term> own;
  for (const MatrixStages::Term& t : m_.terms(value(*m_.totals()[i]))) if (!t.is_behind) own.push_back(t);
  if (own.size() == 1 && own[0].factor == 1.0 && m_.uses(product(at(own[0].number))) == 1) {
    line("{}& total{} = sum{};", type, i, own[0].number);
    return;
  }
  line("{} total{};", type, i);
  line("total{}.clear();", i);
  for (const MatrixStages::Term& t : own) line("total{}.add_scaled(sum{}, {});", i, t.number, CudaText().constant(t.factor));
}

// ---- elements

bool MatrixText::narrow_results() const {
  return std::all_of(p_.results.begin(), p_.results.end(), [](const Param& a) { return dtype_bytes(a.dtype) == 2; });
}

bool MatrixText::only_multiplied(ValueId v) const {
  if (!is_deep(v)) return false;
  return std::none_of(m_.statistics().begin(), m_.statistics().end(),
                      [&](const Stage* x) { return depends_on(g_, m_.reduced_by(*x), v); });
}

std::string MatrixText::map(ValueId v, const std::function<std::string(ValueId)>& element) const {
  const MapFn fn = g_.def_form<Map>(v)->fn;
  const auto& o = g_.def(v).operands;
  std::vector<std::string> operands;
  for (ValueId x : o) operands.push_back(element(x));
  const bool narrow = narrow_results() || only_multiplied(v);
  if (const int made = fn == MapFn::kDiv ? made_at(o[1]) : -1; made >= 0 && made_[at(made)].inverted)
    return map_text(MapFn::kMul, operands, narrow);
  if (fn != MapFn::kDiv) return map_text(fn, operands, narrow);
  DivisorText y{operands[1], std::nullopt, "", !is_deep(o[1]) && m_.whole(o[1]) < 0 && !has(o[1], m_.columns())};
  if (const auto* c = g_.def_form<Const>(o[1])) y.constant = c->value;
  const auto* root = m_.is_known(o[1]) ? nullptr : g_.def_form<Map>(o[1]);
  if (narrow && root && root->fn == MapFn::kSqrt) y.root_of = element(g_.def(o[1]).operands[0]);
  return quotient_text(operands[0], y, narrow);
}

std::string MatrixText::loop_element(ValueId v, std::string& statements) const {
  std::map<ValueId, std::string> known;
  return loop_element(v, statements, known);
}

std::string MatrixText::loop_element(ValueId v, std::string& statements, std::map<ValueId, std::string>& known) const {
  if (auto it = known.find(v); it != known.end()) return it->second;
  if (g_.def_form<Transpose>(v)) return loop_element(g_.def(v).operands[0], statements, known);
  if (const auto* c = g_.def_form<Const>(v)) return CudaText().constant(c->value);
  if (m_.is_known(v)) return loop_leaf(v);
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

void MatrixText::declare_tail_loads() {
  for (NodeId n : m_.tail_leaves()) {
    const Shape x = shape(value(n));
    if (x == Shape::kScalar) line("const float e{} = load(*({}));", n, pointer(n));
    else if (!loads_late()) line("Pack<{}> e{}[kTail];", x == Shape::kBoth ? 4 : 2, n);
  }
}

std::string MatrixText::tail_loads() {
  std::string text;
  for (NodeId n : m_.tail_leaves()) {
    const Shape x = shape(value(n));
    const int64_t rs = stride(n, m_.rows()), cs = stride(n, m_.columns());
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

void MatrixText::tail_results() {
  std::map<ValueId, std::string> known;
  for (NodeId n : g_.outputs()) {
    const ValueId v = g_.node(n).operands[0];
    const Shape x = shape(v);
    const std::string text = widened(tail_element(v, known), (x == Shape::kRows) != turned(), x == Shape::kScalar, x == Shape::kBoth);
    store_result(n, text);
  }
}

std::string MatrixText::column_place(const Param& a, int64_t stride, const std::string& column) {
  if (a.run > 0) return fmt::format("{0} / {1} * int64_t({2}) + {0} % {1}", column, a.run, a.jump);
  return stride == 1 ? column : fmt::format("{} * int64_t({})", column, stride);
}

std::string MatrixText::result_pointer(NodeId n) const {
  const Param& a = result(n);
  return fmt::format("({}*)out{} + {}{}", cuda_type(a), g_.form<Output>(n)->result, offset(n, a.offset),
                     slice_text(stride_of(a, stored_by(n), m_.batch())));
}

void MatrixText::store_result(NodeId n, const std::string& text) {
  const ValueId v = stored_by(n);
  const Param& a = result(n);
  const int64_t rs = stride_of(a, v, m_.rows()), cs = stride_of(a, v, m_.columns());
  const bool has_rows = has(v, m_.rows()), has_columns = has(v, m_.columns());
  if (column_step() == 1 && cs == 1 && rs % 2 == 0 && a.jump % 2 == 0 && a.offset % 2 == 0 && m_.extent(m_.columns()) % 2 == 0 &&
      has_rows && m_.batch() < 0) {
    line("store_item_pairs({} + m * int64_t({}) + {}, {}, kM - m, kN - c, {});", result_pointer(n), rs, column_place(a, 1, "c"), rs, text);
    return;
  }
  const std::string place = column_place(a, cs, "c");
  if (turned()) {
    line("store_item({} + m * int64_t({}) + {}, {}, {}, {} - c, {} - m, {});", result_pointer(n), rs, place, cs, rs,
         has_columns ? "kN" : "1", has_rows ? "kM" : "1", text);
    return;
  }
  line("{}({} + m * int64_t({}) + {}, {}, {}, {} - m, {} - c, {});", stepped("store_item"), result_pointer(n), row_stride(n, rs), place,
       row_stride(n, rs), cs, has_rows ? "kM" : "1", has_columns ? "kN" : "1", text);
}

int MatrixText::made_at(ValueId v) const {
  for (size_t i = 0; i < made_.size(); i++) if (made_[i].value == v) return static_cast<int>(i);
  return -1;
}

bool MatrixText::has_inverse(ValueId v) const {
  const auto* map = g_.def_form<Map>(v);
  if (!map || map->fn != MapFn::kMax) return map && map->fn == MapFn::kSqrt;   // a reciprocal root, as map() has it
  const auto& o = g_.def(v).operands;
  return std::any_of(o.begin(), o.end(), [&](ValueId x) { const auto* c = g_.def_form<Const>(x); return c && c->value >= 0x1p-100; });
}

std::vector<MatrixText::RowValue> MatrixText::row_values() const {
  std::set<ValueId> of_rows;
  std::map<ValueId, RowValue> read;
  for (NodeId n = 0; n < g_.num_nodes(); n++) {
    const Node& node = g_.node(n);
    const ValueId v = node.first_value;
    const auto* map = std::get_if<Map>(&node.op);
    const bool is_made = map && shape(v) == Shape::kRows && std::all_of(node.operands.begin(), node.operands.end(), [&](ValueId o) {
      return of_rows.contains(o) || g_.def_form<Const>(o);
    });
    if (is_made || (v >= 0 && maker(m_, m_.statistics(), v) >= 0 && shape(v) == Shape::kRows)) { of_rows.insert(v); continue; }
    for (size_t i = 0; i < node.operands.size(); i++)
      if (const ValueId o = node.operands[i]; of_rows.contains(o)) {
        const auto at = read.try_emplace(o, RowValue{o, narrow_results() && has_inverse(o)}).first;
        if (!map || map->fn != MapFn::kDiv || i != 1 || shape(v) != Shape::kBoth) at->second.inverted = false;
      }
  }
  std::vector<RowValue> out;
  bool is_more = false;
  for (const auto& [v, x] : read) out.push_back(x), is_more = is_more || x.inverted || maker(m_, m_.statistics(), v) < 0;
  if (!is_more || out.size() > m_.statistics().size()) out.clear();
  return out;
}

std::string MatrixText::row_text(ValueId v, std::string& statements, std::set<ValueId>& known) const {
  if (const auto* c = g_.def_form<Const>(v)) return CudaText().constant(c->value);
  if (const int i = maker(m_, m_.statistics(), v); i >= 0) return fmt::format("statistic{}", i);
  if (known.insert(v).second) {
    std::vector<std::string> operands;
    for (ValueId o : g_.def(v).operands) operands.push_back(row_text(o, statements, known));
    statements += fmt::format("const float r{} = {}; ", v, map_text(g_.def_form<Map>(v)->fn, operands, narrow_results()));
  }
  return fmt::format("r{}", v);
}

std::string MatrixText::row_value(const RowValue& x, std::string& statements) const {
  std::set<ValueId> known;
  if (!x.inverted) return row_text(x.value, statements, known);
  const auto* map = g_.def_form<Map>(x.value);
  if (map && map->fn == MapFn::kSqrt) return map_text(MapFn::kRsqrt, {row_text(g_.def(x.value).operands[0], statements, known)});
  return map_text(MapFn::kDiv, {CudaText().constant(1.0), row_text(x.value, statements, known)});
}

std::string MatrixText::tail_element(ValueId v, std::map<ValueId, std::string>& known) {
  if (auto it = known.find(v); it != known.end()) return it->second;
  if (const auto* c = g_.def_form<Const>(v)) return CudaText().constant(c->value);
  if (const int i = made_at(v); i >= 0) {
    line("const Pack<2> s{0} = {{{{statistics[{1} * {2} + {3}], statistics[{1} * {2} + {3} + 1]}}}};", v, i, padded_rows(),
         statistic_row());
    return known[v] = fmt::format("s{}", v);
  }
  if (const int i = maker(m_, m_.totals(), v); i >= 0) {
    line("const Pack<4> v{} = {};", v, sum_item(at(i)));
    if (shape(v) == Shape::kBoth) return known[v] = fmt::format("v{}", v);
    line("const Pack<2> c{0} = {{{{v{0}.v[0], v{0}.v[{1}]}}}};", v, turned() ? 1 : 2);   // the same in every row
    return known[v] = shape(v) == Shape::kCols ? fmt::format("c{}", v) : fmt::format("v{}", v);
  }
  if (const int i = maker(m_, m_.statistics(), v); i >= 0) {
    const char* fn = reduce_type(*m_.statistics()[at(i)]);
    line("Pack<2> s{0} = {{{{{1}::identity(), {1}::identity()}}}};", v, fn);
    line(
        "for (int i = 0; i < {0}; i++) for (int e = 0; e < 2; e++) s{1}.v[e] = {2}::combine(s{1}.v[e], statistics[({3} * {0} + i) * {4} + "
        "{5} + e]);",
        statistic_parts(), v, fn, i, padded_rows(), statistic_row());
    return known[v] = shape(v) == Shape::kRows ? fmt::format("s{}", v) : fmt::format("s{}.v[0]", v);
  }
  if (g_.def_form<Transpose>(v)) return tail_element(g_.def(v).operands[0], known);
  if (const int i = maker(m_, m_.early(), v); i >= 0) {
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

bool is_depth_major(const MatrixStages& m, const Stage& weight, const Param& a) {
  const auto& of = m.indices(m.made(weight));
  for (size_t d = 0; d < of.size(); d++) if (of[d] == m.free(weight)) return a.strides[static_cast<int>(d)] != 1;
  return true;
}

TensorMapText weight_map(const MatrixStages& m, const Stage& weight, const Param& a, int64_t extent, int columns, int64_t depth,
                         bool packed) {
  const auto& of = m.indices(m.made(weight));
  const auto stride = [&](IndexId i) {
    for (size_t d = 0; d < of.size(); d++) if (i >= 0 && of[d] == i) return a.strides[static_cast<int>(d)] * dtype_bytes(a.dtype);
    return int64_t{0};
  };
  const bool is_second = m.has(m.made(weight), m.second()), deep = is_depth_major(m, weight, a);
  const int64_t own = is_second ? m.extent(m.second()) : m.extent(m.reduced()) * m.extent(m.group());
  const int64_t line = stride(deep ? m.free(weight) : is_second ? m.second() : m.reduced());
  TensorMapText out;
  out.offset_bytes = a.offset * dtype_bytes(a.dtype);
  out.dtype = a.dtype;
  out.dims = deep ? std::vector<int64_t>{own, extent} : std::vector<int64_t>{extent, own};
  out.strides = {line};
  out.box = deep ? std::vector<int>{64, columns} : std::vector<int>{columns, static_cast<int>(depth)};
  out.swizzle = deep ? 128 : columns * 2;
  if (packed) {
    out.dims = {64, m.depth() * extent / 64};
    out.strides = {128};
    out.box = {64, static_cast<int>(depth * extent / 64)};
    out.swizzle = 128;   // narrow lines eight apart share banks
  }
  if (m.place(weight.to).even_first) {
    out.dims = {own, 4, 2, extent / 8};
    out.strides = {2 * line, line, 8 * line};
    out.box = {64, 4, 2, columns / 8};
  }
  if (const int64_t slice = stride(m.batch())) {
    out.dims.push_back(m.extent(m.batch()));
    out.strides.push_back(slice);
    out.box.push_back(1);
  }
  return out;
}

}  // namespace mirage::schedule
