// From a model to the text of a spec. Every operator of the spec is built here as well, for the shape of its result: there is one
// inference of shapes, that of lib/spec.
#include "spec/onnx/importer.h"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include "mirage/support/file.h"
#include "mirage/support/round.h"
#include "spec/json/ast.h"

namespace mirage::onnx {

namespace fs = std::filesystem;

std::string text_of(const Shape& s) { return fmt::format("[{}]", fmt::join(s, ",")); }

int64_t elements_of(const Shape& s) {
  int64_t n = 1;
  for (int64_t d : s) n *= d;
  return n;
}

namespace {

constexpr int64_t kMostFileBytes = int64_t{1} << 32;

std::string quoted(const std::string& s) { return "\"" + s + "\""; }

std::string number_text(double x) {
  if (std::isinf(x)) return x > 0 ? "\"+inf\"" : "\"-inf\"";
  return fmt::format("{}", x);
}

struct AttrWriter {
  std::string operator()(bool x) const { return x ? "true" : "false"; }
  std::string operator()(int64_t x) const { return std::to_string(x); }
  std::string operator()(double x) const { return number_text(x); }
  std::string operator()(const std::string& x) const { return quoted(x); }
  std::string operator()(const Shape& x) const { return fmt::format("[{}]", fmt::join(x, ", ")); }
  std::string operator()(DType x) const { return quoted(dtype_long_name(x)); }
};

spec::AttrValue attr_value(const AttrText& given) {
  spec::AttrValue v;
  if (const bool* flag = std::get_if<bool>(&given)) v.flag = *flag;
  if (const int64_t* i = std::get_if<int64_t>(&given)) v.integer = *i, v.number = static_cast<double>(*i), v.list = {*i};
  if (const double* x = std::get_if<double>(&given)) v.number = *x;
  if (const std::string* s = std::get_if<std::string>(&given)) v.text = *s;
  if (const Shape* s = std::get_if<Shape>(&given)) v.list = *s;
  if (const DType* t = std::get_if<DType>(&given)) v.dtype = *t;
  return v;
}

/// The default of the operator table (JSON text).
spec::AttrValue fallback_value(const std::string& text) {
  spec::AttrValue v;
  if (text == "true" || text == "false") v.flag = text == "true";
  else if (text.starts_with('"')) v.text = text.substr(1, text.size() - 2);
  else {
    v.number = std::strtod(text.c_str(), nullptr);
    v.integer = whole_number(v.number).value_or(0);
    v.list = {v.integer};
  }
  return v;
}

}  // namespace

Importer::Importer(const OnnxModel& model, std::string path, const OnnxOptions& options, std::string name)
    : model_(model), path_(std::move(path)), name_(std::move(name)), options_(options) {}

void Importer::error(DiagCode code, const std::string& text, std::vector<Note> notes) {
  if (errors_.size() < static_cast<size_t>(spec::kMaxErrors))
    errors_.push_back({Severity::kError, code, {path_, 0, 0, 1}, text, std::move(notes)});
}

int64_t Importer::opset(const std::string& domain) const {
  const auto at = model_.opsets.find(domain);
  return at == model_.opsets.end() ? 0 : at->second;
}

const Value* Importer::find(const std::string& name) const {
  const auto at = values_.find(name);
  return at == values_.end() ? nullptr : &at->second;
}

/// A name of the model as one of a spec that no other has.
std::string Importer::fresh(const std::string& wanted) {
  std::string name;
  for (char c : wanted) name += spec::is_identifier(std::string{'a', c}) ? c : '_';
  name.erase(0, std::min(name.find_first_not_of('_'), name.size()));
  constexpr size_t kLong = 100;
  if (name.size() > kLong) name.resize(kLong);
  if (!spec::is_identifier(name)) name = "t" + (name.empty() ? "" : "_" + name);
  const int again = taken_[name]++;
  return again == 0 ? name : fresh(fmt::format("{}_{}", name, again));
}

int Importer::make_input(const std::string& name, int type, const Shape& dims) {
  Dims d;
  for (int64_t x : dims) d.push_back(x);
  const ValueId id = emit_.input(static_cast<int>(inputs_.size()), {*dtype_of(type), d});
  made_.push_back({fresh(name), id, true});
  inputs_.push_back({static_cast<int>(made_.size()) - 1, type, dims, false});
  return inputs_.back().made;
}

Shape Importer::shape_of(const ValueInfo& v) {
  Shape out;
  if (!v.shape) {
    error(DiagCode::kShape, fmt::format("input '{}' has no shape", v.name));
    return out;
  }
  for (size_t i = 0; i < v.shape->size(); ++i) {
    const ValueInfo::Extent& e = (*v.shape)[i];
    const auto bound = options_.bind.find(e.param);
    if (e.value > 0) out.push_back(e.value);
    else if (e.value < 0 && !e.param.empty() && bound != options_.bind.end()) {
      out.push_back(bound->second);
      axes_[e.param] = bound->second;
    } else if (e.value < 0)
      error(
          DiagCode::kVarAxis,
          fmt::format("dimension {} of input '{}' is {}", i, v.name, e.param.empty() ? "not given" : "'" + e.param + "' and has no value"),
          {{{},
            e.param.empty() ? "export the model with a fixed extent or a name there"
                            : fmt::format("give it one: --bind {0}=16; or several: --values {0}=1,8,64", e.param)}});
    else error(DiagCode::kShape, fmt::format("dimension {} of input '{}' is {}: an extent is at least 1", i, v.name, e.value));
  }
  return out;
}

/// Graph inputs, then initializers: all are inputs of the spec; those initializers that nothing reads are left out in the end.
void Importer::declare_inputs() {
  std::map<std::string, bool> initialized;
  for (const TensorData& t : model_.graph.initializers) initialized[t.name] = true;
  for (const ValueInfo& v : model_.graph.inputs) {
    if (initialized.count(v.name)) continue;  // files of before version 4 list both
    Value x;
    x.type = v.type;
    x.dims = shape_of(v);
    if (!dtype_of(v.type))
      error(DiagCode::kUnsupported, fmt::format("input '{}' is {}: a spec has float16, bfloat16, float32, bool, int32 and int64", v.name,
                                                v.type ? type_name(v.type) : "no tensor"));
    else if (x.dims.size() > static_cast<size_t>(kMaxRank))
      error(DiagCode::kLimit, fmt::format("input '{}' has rank {}; at most {} dimensions are allowed", v.name, x.dims.size(), kMaxRank));
    if (!errors_.empty()) continue;
    x.made = make_input(v.name, v.type, x.dims);
    inputs_.back().used = true;
    values_[v.name] = x;
  }
  for (size_t i = 0; i < model_.graph.initializers.size() && errors_.empty(); ++i) {
    const TensorData& t = model_.graph.initializers[i];
    Value x;
    x.type = t.type;
    x.dims = t.dims;
    x.initializer = static_cast<int>(i);
    const int64_t n = t.elements();
    const bool fits = n > 0 && !t.dims.empty() && t.dims.size() <= static_cast<size_t>(kMaxRank) && dtype_of(t.type);
    if (n < 0) error(DiagCode::kShape, fmt::format("initializer '{}' has the shape {}", t.name, text_of(t.dims)));
    if (fits) {
      make_input(t.name, t.type, t.dims);
      input_of_initializer_.push_back(static_cast<int>(inputs_.size()) - 1);
    } else {
      input_of_initializer_.push_back(-1);
    }
    values_[t.name] = x;
  }
}

/// The bytes of external data. Only files below the model's folder are opened. Throws Invalid.
std::string_view Importer::external(const TensorData& t) {
  const fs::path folder = fs::path(path_).parent_path(), where = fs::path(t.location).lexically_normal();
  if (t.location.empty() || where.is_absolute() || where.begin() == where.end() || *where.begin() == "..")
    throw Invalid{DiagCode::kFileMissing,
                  fmt::format("the data of '{}' lies at '{}', outside of the model's folder: it is not read", t.name, t.location)};
  std::error_code failed;
  const fs::path base = fs::weakly_canonical(folder.empty() ? fs::path(".") : folder, failed),
                 full = fs::weakly_canonical(base / where, failed);
  if (failed || std::mismatch(base.begin(), base.end(), full.begin(), full.end()).first != base.end())
    throw Invalid{DiagCode::kFileMissing,
                  fmt::format("the data of '{}' lies at '{}', which leads out of the model's folder: it is not read", t.name, t.location)};
  auto at = files_.find(t.location);
  if (at == files_.end()) {
    if (!fs::is_regular_file(full, failed))
      throw Invalid{DiagCode::kFileMissing, fmt::format("the data of '{}' should lie in '{}', which is no file", t.name, full.string())};
    auto text = read_file(full.string(), kMostFileBytes);
    if (!text) throw Invalid{DiagCode::kFileMissing, text.errors()[0].text};
    at = files_.emplace(t.location, std::move(*text)).first;
  }
  const std::string_view all = at->second;
  const auto begin = static_cast<size_t>(t.offset);
  if (begin > all.size() || (t.length >= 0 && static_cast<size_t>(t.length) > all.size() - begin))
    throw Invalid{DiagCode::kFileMissing, fmt::format("the data of '{}' ends behind the end of '{}'", t.name, t.location)};
  return all.substr(begin, t.length >= 0 ? static_cast<size_t>(t.length) : std::string_view::npos);
}

std::optional<Constant> Importer::constant(const Value& v) {
  if (v.known) return v.known;
  if (v.initializer < 0) return std::nullopt;
  const TensorData& t = model_.graph.initializers[static_cast<size_t>(v.initializer)];
  if (t.elements() > kMostKnown) return std::nullopt;
  return read_elements(t, t.is_external ? external(t) : t.raw);
}

Value Importer::literal(const TensorData& t, const OnnxNode& from) {
  Value v;
  v.type = t.type;
  v.dims = t.dims;
  constexpr int64_t kSmall = 64;
  if (t.elements() > kSmall && dtype_of(t.type) && t.dims.size() <= static_cast<size_t>(kMaxRank)) {
    v.made = make_input(from.outputs.empty() ? "constant" : from.outputs[0], t.type, t.dims);
    inputs_.back().used = true;
    return v;
  }
  v.known = read_elements(t, t.is_external ? external(t) : t.raw);
  if (!v.known) throw Refusal{"a constant of " + type_name(t.type)};
  return v;
}

/// A known vector of several elements: one number everywhere, equal steps, or one by one.
Value Importer::progression(const Constant& c, int type, const OnnxNode& from) {
  const auto n = static_cast<int64_t>(c.data.size());
  if (c.is_uniform()) return node("expand", {OpCall::number(c.data[0], type)}, {{"shape", c.dims}}, type, from);
  const double step = c.data[1] - c.data[0];
  bool is_even = true;
  for (size_t i = 1; i < c.data.size(); ++i) is_even &= c.data[i] - c.data[i - 1] == step;
  Value v;
  if (is_even) {
    v = node("iota", {}, {{"axis", int64_t{0}}, {"shape", Shape{n}}}, type, from);
    if (step != 1) v = node("mul", {v, OpCall::number(step, type)}, {}, type, from);
    if (c.data[0] != 0) v = node("add", {v, OpCall::number(c.data[0], type)}, {}, type, from);
  } else {
    constexpr int64_t kMostParts = 64;
    if (n > kMostParts) throw Refusal{fmt::format("a constant of {} different numbers inside of the graph: make it an initializer", n)};
    std::vector<Value> parts;
    for (double x : c.data) parts.push_back(node("expand", {OpCall::number(x, type)}, {{"shape", Shape{1}}}, type, from));
    v = node("concat", parts, {{"axis", int64_t{0}}}, type, from);
  }
  return c.dims.size() == 1 ? v : node("reshape", {v}, {{"shape", c.dims}}, type, from);
}

Value Importer::tensor(const Value& v, const OnnxNode& from) {
  if (v.made >= 0) return v;
  if (v.initializer >= 0 && input_of_initializer_[static_cast<size_t>(v.initializer)] >= 0) {
    InputLine& input = inputs_[static_cast<size_t>(input_of_initializer_[static_cast<size_t>(v.initializer)])];
    input.used = true;
    Value out = v;
    out.made = input.made;
    return out;
  }
  const auto c = constant(v);
  if (!c) throw Refusal{fmt::format("a constant of {}", type_name(v.type))};
  if (c->data.empty()) throw Refusal{"a tensor without elements"};
  if (c->dims.empty()) return OpCall::constant(*c, v.type);
  return progression(*c, v.type, from);
}

std::vector<Value> Importer::nodes(const std::string& op, const std::vector<Value>& operands, const Attrs& attrs, int type, int results,
                                   const OnnxNode& from) {
  const spec::OpInfo* info = spec::find_operator(op);
  MIRAGE_ASSERT(info) << op;
  spec::NodeContext context{emit_, {}, {}, {}, {}, static_cast<int>(inputs_.size()), results};
  Line line{op, {}, {}, "", &from};
  for (const Value& given : operands) {
    const Value v = tensor(given, from);
    if (v.made >= 0) {
      context.operands.push_back(made_[static_cast<size_t>(v.made)].id);
      line.operands.push_back(fmt::format("#{}", v.made));
    } else {
      context.operands.push_back(emit_.constant(v.known->data[0]));
      if (std::isnan(v.known->data[0])) throw Refusal{"a constant that is no number"};
      line.operands.push_back(number_text(v.known->data[0]));
    }
    context.operand_where.push_back({});
  }
  for (const auto& [name, value] : attrs) {
    MIRAGE_ASSERT(info->find_attr(name)) << op << " " << name;
    context.attrs[name] = attr_value(value);
    line.attrs += fmt::format("{}{}: {}", line.attrs.empty() ? "" : ", ", quoted(name), std::visit(AttrWriter{}, value));
  }
  for (const spec::AttrSpec& a : info->attrs)
    if (!a.fallback.empty() && a.fallback != "all" && !a.is_required() && !context.attrs.count(a.name))
      context.attrs[a.name] = fallback_value(a.fallback);
  std::vector<ValueId> built;
  try {
    built = info->build(context);
  } catch (const spec::BuildError& e) { throw Invalid{e.code, fmt::format("{}: {}", op, e.text)}; }
  std::vector<Value> out;
  for (ValueId id : built) {
    Value v;
    v.type = type;
    v.dims.assign(emit_.dims(id).begin(), emit_.dims(id).end());
    made_.push_back({fmt::format("v{}", made_.size()), id});
    v.made = static_cast<int>(made_.size()) - 1;
    line.results.push_back(v.made);
    out.push_back(v);
  }
  lines_.push_back(std::move(line));
  if (lines_.size() > static_cast<size_t>(spec::kMaxNodes))
    throw Refusal{fmt::format("over {} nodes: cut the model into parts", spec::kMaxNodes)};
  return out;
}

Value Importer::node(const std::string& op, const std::vector<Value>& operands, const Attrs& attrs, int type, const OnnxNode& from) {
  return nodes(op, operands, attrs, type, 1, from)[0];
}

void Importer::refuse(const OnnxNode& n, const std::string& reason) {
  const std::string op = (n.domain.empty() ? "" : n.domain + "::") + n.op,
                    where = n.name.empty() ? (n.outputs.empty() ? "" : n.outputs[0]) : n.name;
  const auto same = std::find_if(refused_.begin(), refused_.end(), [&](const Why& w) { return w.op == op && w.reason == reason; });
  if (same != refused_.end()) ++same->count;
  else refused_.push_back({op, reason, 1, where});
}

void Importer::give(const OnnxNode& n, const std::vector<Value>& results) {
  for (size_t i = 0; i < n.outputs.size(); ++i) {
    if (n.outputs[i].empty()) continue;
    if (i >= results.size() || (results[i].made < 0 && !results[i].known && results[i].initializer < 0)) {
      broken_[n.outputs[i]] = true;  // a result that is not computed: refused where it is used
      continue;
    }
    if (results[i].made >= 0) {
      Made& m = made_[static_cast<size_t>(results[i].made)];
      if (!m.named) m.name = n.outputs[i], m.named = true;
    }
    if (!values_.emplace(n.outputs[i], results[i]).second)
      throw Invalid{DiagCode::kDuplicateName, fmt::format("the value '{}' is computed twice", n.outputs[i])};
  }
}

void Importer::take(const OnnxNode& n) {
  std::vector<Value> operands;
  bool is_broken = false;
  for (const std::string& name : n.inputs) {
    const Value* v = name.empty() ? nullptr : find(name);
    if (!v && !name.empty() && !broken_.count(name)) {
      error(DiagCode::kUnknownName, fmt::format("node '{}' ({}) reads '{}', which nothing before it computes", n.name, n.op, name));
      is_broken = true;
    }
    is_broken |= !name.empty() && broken_.count(name) && !v;
    operands.push_back(v ? *v : Value{});
  }
  const OpRow* row = n.domain.empty() ? find_row(n.op) : nullptr;
  try {
    if (!row)
      throw Refusal{n.domain.empty()
                        ? "no operator of a spec for it"
                        : "no operator of ONNX itself" + std::string(model_.has_functions ? ": inline the model's functions" : "")};
    if (!is_broken) {
      OpCall call(*this, n, std::move(operands));
      const auto folded = fold_shapes(call);
      give(n, folded ? std::vector<Value>{*folded} : row->build(call));
      return;
    }
  } catch (const Refusal& r) { refuse(n, r.reason); } catch (const Invalid& e) {
    error(e.code, fmt::format("node '{}' ({}): {}", n.name.empty() && !n.outputs.empty() ? n.outputs[0] : n.name, n.op, e.text));
  }
  for (const std::string& name : n.outputs) broken_[name] = true;
}

void Importer::finish_outputs() {
  static const OnnxNode kOutput;
  for (const ValueInfo& o : model_.graph.outputs) {
    const Value* v = find(o.name);
    if (!v) {
      if (!broken_.count(o.name)) error(DiagCode::kUnknownName, fmt::format("nothing computes the output '{}'", o.name));
      continue;
    }
    try {
      Value x = *v;
      const bool is_shared = std::any_of(outputs_.begin(), outputs_.end(), [&](const OutputLine& l) { return l.made == x.made; });
      const bool is_input =
          x.made >= 0 && std::any_of(inputs_.begin(), inputs_.end(), [&](const InputLine& l) { return l.made == x.made; });
      if (x.made < 0 || is_input || is_shared) {
        x = x.dims.empty() && x.known ? node("expand", {x}, {{"shape", Shape{1}}}, x.type, kOutput) : tensor(x, kOutput);
        x = node("reshape", {x}, {{"shape", v->dims}}, v->type, kOutput);
        made_[static_cast<size_t>(x.made)].name = o.name;
        made_[static_cast<size_t>(x.made)].named = true;
      }
      const int type = o.type ? o.type : x.type;
      const ValueId id = made_[static_cast<size_t>(x.made)].id;
      // Whole numbers are computed with as real ones; that the values are whole, or 0 and 1, the model says.
      if ((is_whole_type(type) && !emit_.is_integral(id)) || (type == kBoolean && !emit_.is_bool(id))) {
        x = node("cast", {x}, {{"dtype", *dtype_of(type)}}, type, kOutput);
        made_[static_cast<size_t>(x.made)].name = o.name;
        made_[static_cast<size_t>(x.made)].named = true;
      }
      if (!dtype_of(type))
        error(DiagCode::kUnsupported,
              fmt::format("output '{}' is {}: a spec has float16, bfloat16, float32, bool, int32 and int64", o.name, type_name(type)));
      else outputs_.push_back({x.made, type});
    } catch (const Refusal& r) {
      error(DiagCode::kUnsupported, fmt::format("output '{}': {}", o.name, r.reason));
    } catch (const Invalid& e) { error(e.code, fmt::format("output '{}': {}", o.name, e.text)); }
  }
}

std::string Importer::write() const {
  const auto name = [&](int made) { return quoted(made_[static_cast<size_t>(made)].name); };
  std::vector<std::string> axes, inputs, outputs, nodes;
  for (const auto& [axis, extent] : axes_) axes.push_back(fmt::format("{}: {}", quoted(axis), extent));
  for (const InputLine& i : inputs_)
    if (i.used)
      inputs.push_back(fmt::format("    {}: {{\"shape\": [{}], \"dtype\": \"{}\"}}", name(i.made), fmt::join(i.dims, ", "),
                                   dtype_long_name(*dtype_of(i.type))));
  for (const OutputLine& o : outputs_) {
    const Dims d = emit_.dims(made_[static_cast<size_t>(o.made)].id);
    outputs.push_back(fmt::format("    {}: {{\"shape\": [{}], \"dtype\": \"{}\"}}", name(o.made), fmt::join(d.begin(), d.end(), ", "),
                                  dtype_long_name(*dtype_of(o.type))));
  }
  for (const Line& l : lines_) {
    std::vector<std::string> operands, results;
    for (const std::string& o : l.operands) operands.push_back(o[0] == '#' ? name(std::atoi(o.c_str() + 1)) : o);
    for (int r : l.results) results.push_back(name(r));
    const std::string made =
        results.size() == 1 ? "\"output\": " + results[0] : fmt::format("\"outputs\": [{}]", fmt::join(results, ", "));
    nodes.push_back(fmt::format("    {{\"op\": \"{}\", \"inputs\": [{}], {}{}}}", l.op, fmt::join(operands, ", "), made,
                                l.attrs.empty() ? "" : fmt::format(", \"attrs\": {{{}}}", l.attrs)));
  }
  return fmt::format(
      "{{\n  \"version\": \"1.0\",\n  \"name\": {},\n{}  \"inputs\": {{\n{}\n  }},\n  \"outputs\": {{\n{}\n  }},\n  \"nodes\": [\n{}\n  "
      "]\n}}\n",
      quoted(name_.empty() ? spec::name_of_source(path_) : name_),
      axes.empty() ? "" : fmt::format("  \"axes\": {{{}}},\n", fmt::join(axes, ", ")), fmt::join(inputs, ",\n"), fmt::join(outputs, ",\n"),
      fmt::join(nodes, ",\n"));
}

bool Importer::check_opset() {
  constexpr int64_t kLeast = 13, kMost = 23;
  const int64_t v = opset("");
  if (v >= kLeast && v <= kMost) return true;
  error(DiagCode::kUnsupported, fmt::format("operator set {}: {} to {} are read", v, kLeast, kMost),
        {{{},
          v < kLeast ? "convert it: onnx.version_converter.convert_version(model, 17)"
                     : fmt::format("export it with opset_version={}", kMost)}});
  return false;
}

std::vector<std::string> Importer::refusals() const {
  std::vector<std::string> out;
  for (const Why& w : refused_) out.push_back(fmt::format("{} x{}: {} (first at node '{}')", w.op, w.count, w.reason, w.first));
  return out;
}

Result<Source> Importer::run() {
  if (!check_opset()) return errors_;
  declare_inputs();
  if (!errors_.empty()) return errors_;
  for (const OnnxNode& n : model_.graph.nodes) take(n);
  finish_outputs();
  for (const std::string& line : refusals()) error(DiagCode::kUnsupported, line);
  if (std::none_of(inputs_.begin(), inputs_.end(), [](const InputLine& i) { return i.used; }))
    error(DiagCode::kUnsupported, "the model reads no input: its outputs are constants");
  if (!errors_.empty()) return errors_;
  std::vector<int> used;
  for (const Line& l : lines_)
    for (int r : l.results) used.push_back(r);
  for (const OutputLine& o : outputs_) {  // outputs keep their names
    Made& m = made_[static_cast<size_t>(o.made)];
    m.name = fresh(m.name);
  }
  for (int r : used) {
    const bool is_output = std::any_of(outputs_.begin(), outputs_.end(), [&](const OutputLine& o) { return o.made == r; });
    if (!is_output) made_[static_cast<size_t>(r)].name = fresh(made_[static_cast<size_t>(r)].name);
  }
  return Source{path_, write()};
}

const Value& OpCall::in(size_t i) const {
  if (!has(i)) throw Invalid{DiagCode::kArity, fmt::format("operand {} is missing", i)};
  return operands_[i];
}

int64_t OpCall::integer(std::string_view name, int64_t otherwise) const {
  const Attribute* a = node_.find(name);
  return a ? a->integer : otherwise;
}

double OpCall::real(std::string_view name, double otherwise) const {
  const Attribute* a = node_.find(name);
  return a ? meant(a->real, DType::kF32) : otherwise;
}

std::string OpCall::text(std::string_view name, const std::string& otherwise) const {
  const Attribute* a = node_.find(name);
  return a ? a->text : otherwise;
}

std::optional<Shape> OpCall::integers(std::string_view name) const {
  const Attribute* a = node_.find(name);
  if (!a) return std::nullopt;
  return a->integers;
}

Shape OpCall::known_integers(size_t i, const char* what) const {
  const auto c = known(i);
  if (!c) throw Refusal{fmt::format("{} that are computed from values of tensors", what)};
  Shape out;
  for (double x : c->data) out.push_back(to_int64(x));
  return out;
}

double OpCall::known_number(size_t i, const char* what) const {
  const auto c = known(i);
  if (!c || c->data.size() != 1) throw Refusal{fmt::format("{} that is computed from values of tensors", what)};
  return c->data[0];
}

int64_t OpCall::axis(int64_t given, int64_t rank) const {
  if (given < -rank || given >= rank) throw Invalid{DiagCode::kAttribute, fmt::format("axis {} of a tensor of rank {}", given, rank)};
  return given < 0 ? given + rank : given;
}

Value OpCall::number(double x, int type) { return constant({{}, {x}}, type); }

Value OpCall::literal(const TensorData& t) const { return to_.literal(t, node_); }

Value OpCall::reshape(const Value& x, const Shape& dims) const {
  if (x.dims == dims) return x;
  return op("reshape", {x}, {{"shape", dims}});
}

Value OpCall::cast(const Value& x, int type) const {
  if (x.type == type) return x;
  const auto to = dtype_of(type);
  if (!to) throw Refusal{"a cast to " + type_name(type)};
  if (x.known && x.dims.size() <= 1 && type != kBoolean) {
    Value v = x;
    v.type = type;
    if (type == kInt32 || type == kInt64)
      for (double& d : v.known->data) d = std::trunc(d);
    return v;
  }
  return typed(op("cast", {x}, {{"dtype", *to}}), type);
}

}  // namespace mirage::onnx

namespace mirage {

Result<Source> onnx_spec(std::string_view bytes, const std::string& path, const OnnxOptions& options) {
  auto model = onnx::read_model(bytes, path);
  if (!model) return model.errors();
  return options.values.empty() ? onnx::Importer(*model, path, options).run() : onnx::at_all_values(*model, path, options);
}

}  // namespace mirage
