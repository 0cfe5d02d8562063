// A text spec becomes a program: names from the text, nodes put through the emitter so that equal programs get equal graphs whatever form
// they were written in.
#include "spec/text/text_spec.h"
#include <set>
#include <fmt/format.h>
#include "spec/json/ast.h"
#include "spec/storage_types.h"
#include "spec/text/text_reader.h"

namespace mirage::spec {
namespace {

class TextSpecBuilder {
 public:
  TextSpecBuilder(const Source& source, TextGraph text, Report& report)
      : source_(source),
        text_(std::move(text)),
        report_(report),
        storage_(emit_),
        types_(static_cast<size_t>(text_.graph.num_values()), DType::kReal) {}

  std::optional<Program> build() {
    if (text_.graph.level() != Level::kKernel) {
      report_.error(DiagCode::kSyntax, {0, 1}, fmt::format("a spec is a kernel graph, not a {} graph", level_name(text_.graph.level())));
      return std::nullopt;
    }
    read_inputs();
    for (NodeId n = 0; n < text_.graph.num_nodes() && report_.ok(); ++n) build_node(n);
    if (report_.ok() && text_.outputs.empty()) report_.error(DiagCode::kMissingKey, {0, 1}, "a program needs at least one output");
    if (report_.ok() && text_.inputs.empty()) report_.error(DiagCode::kMissingKey, {0, 1}, "a program needs at least one input");
    if (!report_.ok()) return std::nullopt;
    read_outputs();
    check_size(emit_.graph(), {0, 1}, report_);
    program_.name = text_.name.empty() ? name_of_source(source_.name) : text_.name;
    if (!is_identifier(program_.name) || program_.name.size() > kMaxNameLength)
      report_.error(DiagCode::kBadName, text_.name_where,
                    fmt::format("'{}' is not a name of a spec: names match [A-Za-z_][A-Za-z0-9_]*", program_.name.substr(0, 200)));
    if (!report_.ok()) return std::nullopt;
    std::vector<ValueId> at;
    program_.graph = emit_.finish(roots_, at);
    program_.numerics.exact = text_.exact;
    if (!text_.exact) program_.kept = storage_.kept(program_.graph, at, roots_);
    warn();
    program_.canonical = canonicalize(program_);
    return std::move(program_);
  }

 private:
  /// %x is tensor x; %0 and expressions get a name from their number.
  std::string unique_name(const std::string& wanted, const std::string& fallback) {
    std::string name = is_identifier(wanted) ? wanted : fallback;
    while (!names_.insert(name).second) name += "_";
    return name;
  }

  void read_inputs() {
    for (const auto& [param, port] : text_.inputs) {
      const Type& type = input_type(param);
      if (type.dtype == DType::kReal)
        report_.error(DiagCode::kDtype, port.where, "an input of a spec has a machine dtype: f16, bf16, f32 or bool");
      program_.inputs.push_back({unique_name(port.name, "in" + std::to_string(param)), type, row_major_strides(type.dims), std::nullopt});
      at_[node_value(param)] = emit_.input(param, type);
      types_[static_cast<size_t>(node_value(param))] = type.dtype;
    }
  }
  ValueId node_value(int param) const {
    for (NodeId n : text_.graph.inputs()) if (text_.graph.form<Input>(n)->param == param) return text_.graph.node(n).first_value;
    return -1;
  }
  const Type& input_type(int param) const { return text_.graph.type(node_value(param)); }

  void build_node(NodeId n) {
    const Node& node = text_.graph.node(n);
    if (std::holds_alternative<Input>(node.op) || std::holds_alternative<Output>(node.op)) return;
    std::vector<ValueId> operands;
    std::vector<DType> types;
    for (ValueId v : node.operands) operands.push_back(at_.at(v)), types.push_back(types_[static_cast<size_t>(v)]);
    try {
      storage_.begin(operands);
      at_[node.first_value] = build_op(node.op, operands);
      const auto* m = std::get_if<Map>(&node.op);
      const DType cast_to = !m                          ? DType::kReal
                            : m->fn == MapFn::kCastF16  ? DType::kF16
                            : m->fn == MapFn::kCastBF16 ? DType::kBF16
                            : m->fn == MapFn::kCastF32  ? DType::kF32
                                                        : DType::kReal;
      types_[static_cast<size_t>(node.first_value)] =
          storage_.end(std::span(&at_[node.first_value], 1), types, cast_to, !text_.named.count(node.first_value));
    } catch (BuildError& e) {
      report_.error(e.code, text_.node_where[static_cast<size_t>(n)], e.text, std::move(e.notes));
    }
  }

  ValueId build_op(const Op& op, const std::vector<ValueId>& v) {
    if (const auto* m = std::get_if<Map>(&op)) {
      if (m->fn == MapFn::kCastF16) return emit_.cast(v[0], DType::kF16);
      if (m->fn == MapFn::kCastBF16) return emit_.cast(v[0], DType::kBF16);
      if (m->fn == MapFn::kCastF32) return emit_.cast(v[0], DType::kF32);
      return emit_.map(m->fn, v);
    }
    if (const auto* c = std::get_if<Const>(&op)) return c->extent_of.empty() ? emit_.constant(c->value) : build_extent(*c);
    if (const auto* r = std::get_if<Reduce>(&op)) return build_reduce(*r, v[0]);
    if (const auto* r = std::get_if<Repeat>(&op)) return emit_.repeat(v[0], r->dim, r->count);
    if (const auto* r = std::get_if<Reshape>(&op)) return emit_.reshape(v[0], r->dims);
    if (const auto* c = std::get_if<Concat>(&op)) return emit_.concat(v, c->dim);
    if (const auto* s = std::get_if<Slice>(&op)) return emit_.slice(v[0], s->dim, s->start, s->stop, s->step);
    if (const auto* t = std::get_if<Transpose>(&op)) return emit_.transpose(v[0], {t->perm.begin(), t->perm.begin() + emit_.rank(v[0])});
    if (std::holds_alternative<Call>(op))
      throw BuildError{DiagCode::kUnsupported, {}, "a spec says what to compute, in primitives; calls of graphs are for results", {}};
    return emit_.add(op, v);
  }

  ValueId build_extent(const Const& c) {
    double product = 1;
    for (auto [param, dim] : c.extent_of) {
      bool exists = param < static_cast<int>(program_.inputs.size()) && dim < program_.inputs[static_cast<size_t>(param)].type.dims.rank();
      if (!exists) throw BuildError{DiagCode::kShape, {}, fmt::format("const: input {} has no dimension {}", param, dim), {}};
      product *= static_cast<double>(program_.inputs[static_cast<size_t>(param)].type.dims[dim]);
    }
    if (product != c.value)
      throw BuildError{DiagCode::kShape, {}, fmt::format("const {}: the extents' product is {}", c.value, product), {}};
    return emit_.extent(c.extent_of, c.value);
  }

  /// A reduction over groups is one over a dimension of its own.
  ValueId build_reduce(const Reduce& r, ValueId x) {
    const Dims d = emit_.dims(x);
    if (r.group == 0 || r.group == d[r.dim]) return emit_.reduce(r.fn, x, {r.dim});
    Dims result = d;
    result[r.dim] = d[r.dim] / r.group;
    int64_t before = 1, behind = 1;
    for (int i = 0; i < r.dim; ++i) before *= d[i];
    for (int i = r.dim + 1; i < d.rank(); ++i) behind *= d[i];
    ValueId split = emit_.reshape(x, {before * result[r.dim], r.group, behind});
    return emit_.reshape(emit_.reduce(r.fn, split, {1}), result);
  }

  void read_outputs() {
    for (NodeId n : text_.graph.outputs()) {
      const Output& out = *text_.graph.form<Output>(n);
      const TextGraph::Port& port = text_.outputs.at(out.result);
      if (out.dtype == DType::kReal)
        report_.error(
            DiagCode::kDtype, port.where,
            fmt::format("output {} of a spec has a machine dtype: write ': f16', ': bf16', ': f32' or ': bool' behind it", out.result));
      ValueId v = at_.at(text_.graph.node(n).operands[0]);
      Dims d = emit_.dims(v);
      program_.outputs.push_back(
          {unique_name(port.name, "out" + std::to_string(out.result)), {out.dtype, d}, row_major_strides(d), std::nullopt});
      roots_.emplace_back(v, out.dtype);
    }
  }

  void warn() {
    std::vector<std::pair<std::string, Span>> inputs;
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      Span where = text_.inputs.at(static_cast<int>(i)).where;
      inputs.emplace_back(program_.inputs[i].name, where);
      warn_mangled("input name", program_.inputs[i].name, where, report_);
    }
    for (size_t i = 0; i < program_.outputs.size(); ++i)
      warn_mangled("output name", program_.outputs[i].name, text_.outputs.at(static_cast<int>(i)).where, report_);
    warn_mangled("name", program_.name, text_.name_where, report_);
    for (NodeId n = 0; n < text_.graph.num_nodes(); ++n)
      if (const auto* c = text_.graph.form<Const>(n)) warn_no_float(c->value, text_.node_where[static_cast<size_t>(n)], report_);
    warn_unused_inputs(program_.graph, inputs, report_);
  }

  const Source& source_;
  TextGraph text_;
  Report& report_;
  Emitter emit_;
  Program program_;
  StorageTypes storage_;
  std::vector<DType> types_;         // of text values, for those that read them
  std::map<ValueId, ValueId> at_;    // text value -> emitted value
  std::set<std::string> names_;
  std::vector<std::pair<ValueId, DType>> roots_;
};

}  // namespace

std::optional<Program> read_text_spec(const Source& source, Report& report) {
  auto text = TextReader(source.text, report).read();
  if (!text) return std::nullopt;
  return TextSpecBuilder(source, std::move(*text), report).build();
}

}  // namespace mirage::spec
