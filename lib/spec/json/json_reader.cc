// Reads one JSON spec key by key: top level, axes, tensors. Nodes are in json_nodes.cc.
#include "spec/json/json_reader.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include "mirage/ir/reserved_names.h"
#include "spec/json/definition.h"

namespace mirage::spec {

bool is_identifier(std::string_view s) {
  auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  if (s.empty() || !letter(s[0])) return false;
  return std::all_of(s.begin(), s.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

std::string name_of_source(const std::string& source_name) {
  size_t slash = source_name.find_last_of('/');
  std::string stem = slash == std::string::npos ? source_name : source_name.substr(slash + 1);
  if (size_t dot = stem.rfind('.'); dot != std::string::npos && dot > 0) stem.resize(dot);
  for (char& c : stem) {
    if (!is_identifier(std::string{'a', c})) c = '_';
  }
  if (stem.size() > kMaxNameLength) stem.resize(kMaxNameLength);
  if (stem.find_first_not_of('_') == std::string::npos) return "program";
  return is_identifier(stem) ? stem : "p" + stem.substr(0, kMaxNameLength - 1);
}

bool JsonReader::expect(const JsonValue& v, JsonKind kind, std::string_view what) {
  if (v.kind == kind) return true;
  report_.error(DiagCode::kWrongKind, v.span, fmt::format("{} must be {}, not {}", what, kind_name(kind), kind_name(v.kind)));
  return false;
}

std::optional<int64_t> JsonReader::expect_int(const JsonValue& v, std::string_view what) {
  if (v.kind == JsonKind::kInt) return v.integer;
  if (v.kind == JsonKind::kFloat) {
    report_.error(DiagCode::kBadNumber, v.span, fmt::format("{} must be an integer, written without '.' and exponent", what));
  } else {
    expect(v, JsonKind::kInt, what);
  }
  return std::nullopt;
}

std::optional<double> JsonReader::expect_number(const JsonValue& v, std::string_view what) {
  if (v.kind == JsonKind::kString && (v.text == "-inf" || v.text == "+inf")) return v.text[0] == '-' ? -INFINITY : INFINITY;
  if (v.kind != JsonKind::kInt)
    return v.kind == JsonKind::kFloat || expect(v, JsonKind::kFloat, what) ? std::optional(v.number) : std::nullopt;
  constexpr int64_t kExact = int64_t{1} << 53;
  if (v.integer >= -kExact && v.integer <= kExact) return v.number;
  report_.error(DiagCode::kBadNumber, v.span,
                fmt::format("{} is an integer beyond 2^53, which double precision does not hold exactly", what));
  return std::nullopt;
}

void JsonReader::check_keys(const JsonValue& object, const std::vector<std::string>& known, std::string_view where) {
  for (const JsonMember& m : object.members) {
    if (m.key.starts_with("x-") || std::find(known.begin(), known.end(), m.key) != known.end()) continue;
    report_.error(DiagCode::kUnknownKey, m.key_span, fmt::format("unknown key '{}' in {}", m.key.substr(0, 200), where),
                  report_.hint(m.key, known));
  }
}

bool JsonReader::check_name(const std::string& name, Span where, std::string_view what) {
  if (name.size() > kMaxNameLength) {
    report_.error(DiagCode::kLimit, where, fmt::format("the {} has {} letters; {} are allowed", what, name.size(), kMaxNameLength));
    return false;
  }
  if (is_identifier(name)) return true;
  report_.error(DiagCode::kBadName, where, fmt::format("'{}' is not a {}: names match [A-Za-z_][A-Za-z0-9_]*", name, what));
  return false;
}

Ast JsonReader::read(const JsonValue& root, const std::string& default_name) {
  if (!expect(root, JsonKind::kObject, "a spec")) return std::move(ast_);
  check_keys(root,
             {"$schema", "version", "name", "description", "tags", "op_type", "axes", "constraints", "inputs", "outputs", "nodes",
              "numerics", "reference"},
             "a spec");
  read_version(root.find("version"));
  read_name(root.find("name"), default_name);
  if (const JsonMember* m = root.find("description");
      m && m->value.kind != JsonKind::kNull && expect(m->value, JsonKind::kString, "description"))
    ast_.description = m->value.text;
  read_axes(root.find("axes"));
  read_constraints(root.find("constraints"));
  read_numerics(root.find("numerics"));
  ast_.inputs = read_tensors(root, "inputs", true);
  ast_.outputs = read_tensors(root, "outputs", false);
  read_nodes(root);
  return std::move(ast_);
}

void JsonReader::read_version(const JsonMember* m) {
  if (!m || !expect(m->value, JsonKind::kString, "version")) return;
  const std::string& v = m->value.text;
  size_t dot = v.find('.');
  auto is_number = [](std::string_view s) {
    return !s.empty() && s.size() < 6 && std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  if (dot == std::string::npos || !is_number(v.substr(0, dot)) || !is_number(v.substr(dot + 1))) {
    report_.error(DiagCode::kVersion, m->value.span, fmt::format("version '{}' is not of the form \"1.0\"", v.substr(0, 40)));
  } else if (v.substr(0, dot) != "1") {
    report_.error(DiagCode::kVersion, m->value.span, fmt::format("version {} cannot be read; this mirage-opt reads 1.0", v));
  } else if (v.find_first_not_of('0', dot + 1) != std::string::npos) {
    report_.warn(DiagCode::kVersion, m->value.span, fmt::format("version {} is newer than 1.0; what it adds is not known here", v));
  }
}

void JsonReader::read_name(const JsonMember* m, const std::string& default_name) {
  ast_.name = default_name;
  if (!m || !expect(m->value, JsonKind::kString, "name")) return;
  ast_.name_where = m->value.span;
  if (check_name(m->value.text, m->value.span, "name of a spec")) ast_.name = m->value.text;
}

/// FlashInfer-Bench writes conditions between axes as Python text. Those over axes we know are checked; others speak of tensors' contents
/// and are the caller's business.
void JsonReader::read_constraints(const JsonMember* m) {
  if (!m || m->value.kind == JsonKind::kNull || !expect(m->value, JsonKind::kArray, "constraints")) return;
  for (const JsonValue& c : m->value.items) {
    if (!expect(c, JsonKind::kString, "a constraint")) continue;
    for (std::string_view op : {"==", "!=", "<=", ">=", "<", ">"}) {
      size_t at = c.text.find(op);
      if (at == std::string::npos) continue;
      auto a = try_shape_expr(std::string_view(c.text).substr(0, at), axes_),
           b = try_shape_expr(std::string_view(c.text).substr(at + op.size()), axes_);
      if (!a || !b) break;
      bool holds = op == "=="   ? *a == *b
                   : op == "!=" ? *a != *b
                   : op == "<=" ? *a <= *b
                   : op == ">=" ? *a >= *b
                   : op == "<"  ? *a < *b
                                : *a > *b;
      if (!holds) report_.error(DiagCode::kShapeExpression, c.span, fmt::format("the constraint does not hold: {} {} {}", *a, op, *b));
      break;
    }
  }
}

void JsonReader::read_numerics(const JsonMember* m) {
  if (!m || !expect(m->value, JsonKind::kObject, "numerics")) return;
  check_keys(m->value, {"rtol", "atol", "tf32", "intermediates"}, "numerics");
  auto tolerance = [&](const char* key) -> std::optional<double> {
    const JsonMember* t = m->value.find(key);
    if (!t) return std::nullopt;
    auto v = expect_number(t->value, key);
    if (v && !(*v >= 0 && std::isfinite(*v)))
      report_.error(DiagCode::kBadNumber, t->value.span, fmt::format("{} must be finite and not negative", key));
    return v;
  };
  ast_.numerics.rtol = tolerance("rtol");
  ast_.numerics.atol = tolerance("atol");
  if (const JsonMember* t = m->value.find("tf32"); t && expect(t->value, JsonKind::kBool, "tf32")) ast_.numerics.tf32 = t->value.flag;
  const JsonMember* i = m->value.find("intermediates");
  if (!i || !expect(i->value, JsonKind::kString, "intermediates")) return;
  if (i->value.text != "exact" && i->value.text != "stored")
    report_.error(DiagCode::kAttribute, i->value.span,
                  fmt::format("intermediates are \"stored\" (in the tensors' type, the default) or \"exact\", not \"{}\"",
                              i->value.text.substr(0, 80)),
                  report_.hint(i->value.text, {"exact", "stored"}));
  ast_.numerics.exact = i->value.text == "exact";
}

std::vector<AstTensor> JsonReader::read_tensors(const JsonValue& root, const char* key, bool is_input) {
  std::vector<AstTensor> out;
  const JsonMember* m = root.find(key);
  if (!m) {
    report_.error(DiagCode::kMissingKey, root.span, fmt::format("a spec needs the key '{}'", key));
    return out;
  }
  if (m->value.kind == JsonKind::kArray) {   // a list of tensors with names inside
    for (const JsonValue& t : m->value.items) {
      if (out.size() > static_cast<size_t>(kMaxTensors)) break;
      if (!expect(t, JsonKind::kObject, "a tensor")) continue;
      const JsonMember* name = t.find("name");
      if (!name) report_.error(DiagCode::kMissingKey, t.span, "a tensor in a list needs the key 'name'");
      else if (expect(name->value, JsonKind::kString, "name")) out.push_back(read_tensor(name->value.text, name->value.span, t, is_input));
    }
  } else if (expect(m->value, JsonKind::kObject, key)) {
    for (const JsonMember& t : m->value.members) {
      if (out.size() > static_cast<size_t>(kMaxTensors)) break;
      out.push_back(read_tensor(t.key, t.key_span, t.value, is_input));
    }
  }
  if (out.size() > static_cast<size_t>(kMaxTensors))
    report_.error(DiagCode::kLimit, out.back().where, fmt::format("more than {} {}", kMaxTensors, key));
  if (m->value.items.empty() && m->value.members.empty() && (m->value.kind == JsonKind::kArray || m->value.kind == JsonKind::kObject)) {
    report_.error(DiagCode::kMissingKey, m->key_span, fmt::format("a program needs at least one {}", is_input ? "input" : "output"));
  }
  return out;
}

AstTensor JsonReader::read_tensor(const std::string& name, Span where, const JsonValue& v, bool is_input) {
  AstTensor t;
  t.name = name;
  t.where = where;
  t.shape_where = t.dtype_where = t.strides_where = where;
  check_name(name, where, "name of a tensor");
  if (!expect(v, JsonKind::kObject, "a tensor")) {
    t.ok = false;
    return t;
  }
  std::vector<std::string> known{"name", "shape", "dtype", "strides", "description"};
  if (is_input) known.push_back("range");
  check_keys(v, known, is_input ? "an input" : "an output");
  auto missing = [&](const char* key) {
    report_.error(DiagCode::kMissingKey, where, fmt::format("tensor '{}' has no '{}'", name, key));
    t.ok = false;
  };
  if (const JsonMember* m = v.find("dtype")) read_dtype(*m, t);
  else missing("dtype");
  if (const JsonMember* m = v.find("shape")) read_shape(*m, t, is_input);
  else if (is_input) missing("shape");
  if (const JsonMember* m = v.find("strides")) read_strides(*m, t);
  if (const JsonMember* m = v.find("range"); m && is_input) read_range(*m, t);
  return t;
}

/// A list of extents: integers or expressions; -1 if allow_free. nullopt: an error was reported, or an axis is unknown.
std::optional<Dims> JsonReader::read_dims(const JsonValue& list, std::string_view what, bool allow_free) {
  if (!expect(list, JsonKind::kArray, what)) return std::nullopt;
  if (list.items.size() > static_cast<size_t>(kMaxRank)) {
    report_.error(DiagCode::kLimit, list.items[kMaxRank].span,
                  fmt::format("rank {}; at most {} dimensions are allowed", list.items.size(), kMaxRank));
    return std::nullopt;
  }
  Dims d;
  bool ok = true;
  for (const JsonValue& entry : list.items) {
    std::optional<int64_t> n;
    if (entry.kind == JsonKind::kString) {
      ShapeResult r = eval_shape_expr(entry.text, entry.span, entry.plain, axes_, report_);
      if (r.ok && !r.value) unknown_axis_ = true;
      n = r.value;
    } else if (entry.kind == JsonKind::kInt) {
      n = entry.integer;
      if (!(*n >= 1 || (allow_free && *n == -1))) {
        report_.error(DiagCode::kShapeExpression, entry.span, fmt::format("the extent is {}; extents are positive", *n));
        n.reset();
      }
    } else if (entry.kind == JsonKind::kFloat) {
      expect_int(entry, "an extent");
    } else {
      report_.error(DiagCode::kWrongKind, entry.span,
                    fmt::format("an extent is an integer or a string such as \"M\" or \"2*H\", not {}", kind_name(entry.kind)));
    }
    if (n && *n > kMaxElements) {
      report_.error(DiagCode::kLimit, entry.span, "the extent is larger than 2^40");
      n.reset();
    }
    if (!n) ok = false;
    d.push_back(n ? *n : 1);
  }
  if (!ok) return std::nullopt;
  return d;
}

void JsonReader::read_shape(const JsonMember& m, AstTensor& t, bool is_input) {
  t.shape_where = m.value.span;
  if (m.value.kind == JsonKind::kNull) {
    t.dims = Dims{};
    t.by_value = is_input;
    t.ok = is_input && t.ok;
    if (!is_input)
      report_.error(
          DiagCode::kShape, m.value.span,
          fmt::format("output '{}' has the shape null: only inputs are passed by value; a result of one element has shape []", t.name));
    return;
  }
  t.dims = read_dims(m.value, "shape", false);
  if (t.dims && !count_elements(*t.dims)) {
    report_.error(DiagCode::kLimit, m.value.span, fmt::format("tensor '{}' has more than 2^40 elements", t.name));
    t.dims.reset();
  }
  if (!t.dims) t.ok = false;
}

std::optional<DType> JsonReader::dtype_of(const JsonValue& v) {
  if (!expect(v, JsonKind::kString, "dtype")) return std::nullopt;
  auto t = parse_dtype(v.text);
  if (t && *t != DType::kReal) return t;
  static const std::vector<std::string> later{"float8_e4m3fn", "float8_e5m2", "float4_e2m1", "float64", "int8", "uint8", "int16"};
  if (std::find(later.begin(), later.end(), v.text) != later.end()) {
    report_.error(DiagCode::kUnsupported, v.span,
                  fmt::format("dtype {} is not supported yet; there are float16, bfloat16, float32, bool, int32 and int64", v.text),
                  {{{},
                    v.text == "float64"           ? "declare float32: kernels compute in it"
                    : v.text.starts_with("float") ? "widen it before the program, to float16 say"
                                                  : "convert it before the program, to int32 say"}});
    return std::nullopt;
  }
  static const std::map<std::string, std::string, std::less<>> other_names{
      {"half", "float16"},   {"fp16", "float16"},          {"torch.float16", "float16"},   {"float", "float32"},   {"fp32", "float32"},
      {"single", "float32"}, {"torch.float32", "float32"}, {"torch.bfloat16", "bfloat16"}, {"torch.bool", "bool"}, {"int", "int32"},
      {"long", "int64"},     {"torch.int32", "int32"},     {"torch.int64", "int64"}};
  auto other = other_names.find(v.text);
  std::vector<Note> notes;
  if (other != other_names.end()) {
    notes.push_back({{}, "did you mean '" + other->second + "'?"});
  } else {
    notes = report_.hint(v.text, {"float16", "bfloat16", "float32", "bool", "f16", "bf16", "f32", "int32", "int64"});
  }
  report_.error(DiagCode::kDtype, v.span, fmt::format("there is no dtype '{}'", v.text.substr(0, 40)), std::move(notes));
  return std::nullopt;
}

void JsonReader::read_dtype(const JsonMember& m, AstTensor& t) {
  t.dtype_where = m.value.span;
  if (auto d = dtype_of(m.value)) t.dtype = *d;
  else t.ok = false;
}

void JsonReader::read_strides(const JsonMember& m, AstTensor& t) {
  t.strides_where = m.value.span;
  if (m.value.kind == JsonKind::kNull) return;
  if (!expect(m.value, JsonKind::kArray, "strides")) return;
  if (m.value.items.size() > static_cast<size_t>(kMaxRank)) {
    report_.error(DiagCode::kStrides, m.value.span,
                  fmt::format("{} strides; at most {} dimensions are allowed", m.value.items.size(), kMaxRank));
    return;
  }
  Dims d;
  for (const JsonValue& entry : m.value.items) {
    std::optional<int64_t> n;
    if (entry.kind == JsonKind::kString) n = eval_shape_expr(entry.text, entry.span, entry.plain, axes_, report_).value;
    else n = expect_int(entry, "a stride");
    if (!n) return;
    if (*n < 1 || *n > kMaxElements) {
      report_.error(DiagCode::kStrides, entry.span, fmt::format("the stride is {}; strides are positive numbers of elements", *n));
      return;
    }
    d.push_back(*n);
  }
  t.strides = d;
}

void JsonReader::read_range(const JsonMember& m, AstTensor& t) {
  if (!expect(m.value, JsonKind::kArray, "range")) return;
  if (m.value.items.size() != 2) {
    report_.error(DiagCode::kWrongKind, m.value.span, "a range is a list of two numbers, [lowest, highest]");
    return;
  }
  auto lo = expect_number(m.value.items[0], "the range's lower end"), hi = expect_number(m.value.items[1], "the range's upper end");
  if (!lo || !hi) return;
  if (*lo > *hi)
    report_.error(DiagCode::kBadNumber, m.value.items[1].span, fmt::format("the range is empty: {} is less than {}", *hi, *lo));
  for (size_t i = 0; i < 2; i++)
    if (!check_range_end(i == 0 ? *lo : *hi, m.value.items[i].span, t.dtype)) return;
  t.range = std::pair(*lo, *hi);
}

/// Inputs are drawn from the range, here and on the device, so both ends are values of the type.
bool JsonReader::check_range_end(double x, Span where, DType dtype) {
  const double largest = type_info(dtype).largest;
  if (std::fabs(x) <= largest || dtype == DType::kBool) return true;
  const bool is_finite = std::isfinite(x);
  std::vector<Note> notes = {
      {{},
       fmt::format("write the lowest and the highest value that occur, at most {:.6g} for {}, or leave the range out", largest,
                   dtype_name(dtype))}};
  report_.error(
      DiagCode::kBadNumber, where,
      is_finite ? fmt::format("the range ends at {}, which {} does not have", x, dtype_name(dtype)) : "the ends of a range are finite",
      std::move(notes));
  return false;
}

/// Nodes that only give an output its name, as the normal form does: they are not counted.
size_t JsonReader::count_output_names(const JsonValue& nodes) const {
  std::set<std::string_view> outputs;
  for (const AstTensor& t : ast_.outputs) outputs.insert(t.name);
  size_t out = 0;
  for (const JsonValue& node : nodes.items) {
    const JsonMember *op = node.find("op"), *name = node.find("output");
    out += op && name && op->value.text == "reshape" && outputs.contains(name->value.text);
  }
  return out;
}

void JsonReader::read_nodes(const JsonValue& root) {
  const JsonMember* m = root.find("nodes");
  if (!m) {
    std::vector<Note> notes;
    const JsonMember* reference = root.find("reference");
    if (reference && reference->value.kind == JsonKind::kString) {
      ast_.nodes = nodes_of_reference(ast_, reference->value.text, reference->value.span);
      ast_.nodes_where = reference->key_span;
      if (!ast_.nodes.empty()) return;
    }
    if (reference)
      notes.push_back({{},
                       "of a 'reference' in Python only the published gemm, rmsnorm and fused_add_rmsnorm are read; `python -m mirage_opt "
                       "import FILE` writes any that PyTorch can export as nodes"});
    report_.error(DiagCode::kMissingKey, root.span, "a spec needs the key 'nodes'", std::move(notes));
  }
  ast_.complete = m && expect(m->value, JsonKind::kArray, "nodes");
  if (!m || m->value.kind != JsonKind::kArray) return;
  ast_.nodes_where = m->key_span;
  const size_t nodes = m->value.items.size() - count_output_names(m->value);
  if (nodes > static_cast<size_t>(kMaxNodes)) {
    ast_.complete = false;
    report_.error(DiagCode::kLimit, m->value.items[kMaxNodes].span, fmt::format("{} nodes; at most {} are allowed", nodes, kMaxNodes));
    return;
  }
  for (const JsonValue& node : m->value.items) {
    ast_.nodes.push_back(read_node(node));
    if (ast_.nodes.back().outputs.empty()) ast_.complete = false;
  }
}

std::optional<Ast> read_ast(const Source& source, const AxisChoice& choice, Report& report) {
  auto tree = read_json(source.text, report);
  if (!tree) return std::nullopt;
  return JsonReader(choice, report).read(*tree, name_of_source(source.name));
}

}  // namespace mirage::spec
