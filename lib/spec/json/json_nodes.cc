// Reads the nodes of a JSON spec: operator, inputs, output and attributes, the last by the kinds that the operator table gives.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include "spec/json/json_reader.h"

namespace mirage::spec {

AstNode JsonReader::read_node(const JsonValue& v) {
  AstNode node;
  node.where = v.span;
  if (!expect(v, JsonKind::kObject, "a node")) {
    node.ok = false;
    return node;
  }
  check_keys(v, {"op", "inputs", "output", "outputs", "attrs", "name", "description", "exact"}, "a node");
  read_outputs(v, node);
  const JsonMember* op = v.find("op");
  if (!op) {
    report_.error(DiagCode::kMissingKey, v.span, "a node needs the key 'op'");
  } else if (expect(op->value, JsonKind::kString, "op")) {
    node.where = op->value.span;
    node.op = find_operator(op->value.text);
    if (!node.op)
      report_.error(DiagCode::kUnknownOp, node.where, fmt::format("there is no operator '{}'", op->value.text.substr(0, 80)),
                    meant_operator(op->value.text, report_));
  }
  if (!node.op) node.ok = false;
  check_output_count(v, node);
  read_inputs(v, node);
  if (const JsonMember* e = v.find("exact"); e && expect(e->value, JsonKind::kBool, "exact")) node.exact = e->value.flag;
  if (node.op) read_attrs(v, node);
  return node;
}

void JsonReader::read_inputs(const JsonValue& v, AstNode& node) {
  const JsonMember* m = v.find("inputs");
  size_t count = 0;
  if (m && expect(m->value, JsonKind::kArray, "inputs")) {
    count = m->value.items.size();
    for (const JsonValue& item : m->value.items) {
      AstArg arg;
      arg.where = item.span;
      bool is_infinity = item.kind == JsonKind::kString && (item.text == "-inf" || item.text == "+inf");
      if (item.kind == JsonKind::kInt || item.kind == JsonKind::kFloat || is_infinity) {
        arg.number = expect_number(item, "a constant");
        if (!arg.number) {
          node.ok = false;
          continue;
        }
      } else if (item.kind == JsonKind::kString) {
        arg.name = item.text;
      } else {
        report_.error(DiagCode::kWrongKind, item.span,
                      fmt::format("an input of a node is a name or a number, not {}", kind_name(item.kind)));
        node.ok = false;
        continue;
      }
      node.inputs.push_back(std::move(arg));
    }
  } else if (m) {
    node.ok = false;
    return;
  }
  if (!node.op) return;
  int n = static_cast<int>(count), low = node.op->min_inputs, high = node.op->max_inputs;
  if (n >= low && n <= high) return;
  std::string wanted = low == high       ? std::to_string(low)
                       : high == kAny    ? fmt::format("{} or more", low)
                       : high == low + 1 ? fmt::format("{} or {}", low, high)
                                         : fmt::format("{} to {}", low, high);
  report_.error(DiagCode::kArity, m ? m->key_span : node.where,
                fmt::format("{} takes {} input{} ({}), not {}", node.op->name, wanted, wanted == "1" ? "" : "s", node.op->inputs, n));
  node.ok = false;
}

void JsonReader::read_outputs(const JsonValue& v, AstNode& node) {
  const JsonMember *one = v.find("output"), *many = v.find("outputs");
  if (one && many) report_.error(DiagCode::kArity, many->key_span, "a node has either 'output' or 'outputs'");
  if (!one && !many) report_.error(DiagCode::kMissingKey, v.span, "a node needs the key 'output'");
  std::vector<const JsonValue*> names;
  if (one) names.push_back(&one->value);
  else if (many && expect(many->value, JsonKind::kArray, "outputs")) for (const JsonValue& name : many->value.items) names.push_back(&name);
  if (many && names.size() > static_cast<size_t>(kMaxNodes)) {
    report_.error(DiagCode::kLimit, many->key_span, fmt::format("{} outputs; at most {} are allowed", names.size(), kMaxNodes));
    names.clear();
  }
  for (const JsonValue* name : names) {
    if (!expect(*name, JsonKind::kString, "output")) {
      node.outputs.clear();
      break;
    }
    check_name(name->text, name->span, "name of a value");
    node.outputs.push_back({name->text, name->span});
  }
  if (node.outputs.empty()) node.ok = false;
}

/// Most operators have one result.
void JsonReader::check_output_count(const JsonValue& v, AstNode& node) {
  const JsonMember* many = v.find("outputs");
  if (!many || many->value.kind != JsonKind::kArray) return;
  const size_t n = many->value.items.size();
  if (n == 0 || (node.op && !node.op->build.many && n > 1)) {
    report_.error(DiagCode::kArity, many->key_span,
                  n == 0 ? "a node has at least one output" : fmt::format("the operator has 1 output, not {}", n));
    node.ok = false;
  }
}

void JsonReader::read_attrs(const JsonValue& v, AstNode& node) {
  const JsonMember* m = v.find("attrs");
  if (m && (m->value.kind == JsonKind::kNull || !expect(m->value, JsonKind::kObject, "attrs"))) m = nullptr;
  if (m) {
    for (const JsonMember& a : m->value.members) {
      if (a.key.starts_with("x-")) continue;
      const AttrSpec* spec = node.op->find_attr(a.key);
      if (!spec) {
        std::vector<std::string> names;
        for (const AttrSpec& s : node.op->attrs) names.push_back(s.name);
        auto notes = report_.hint(a.key, names);
        if (notes.empty() && !names.empty()) notes.push_back({{}, fmt::format("its attributes: {}", fmt::join(names, ", "))});
        report_.error(DiagCode::kAttribute, a.key_span, fmt::format("{} has no attribute '{}'", node.op->name, a.key.substr(0, 80)),
                      std::move(notes));
        node.ok = false;
        continue;
      }
      if (a.value.kind == JsonKind::kNull && !spec->is_required()) continue;   // as if it were left out
      auto value = read_attr(*spec, node.op->name, a.value);
      if (value) node.attrs[a.key] = std::move(*value);
      else node.ok = false;
    }
  }
  for (const AttrSpec& spec : node.op->attrs) {
    if (node.attrs.count(spec.name)) continue;
    bool given = m && m->value.find(spec.name);
    if (spec.is_required()) {
      if (!given)
        report_.error(DiagCode::kAttribute, node.where,
                      fmt::format("{} needs the attribute '{}': {}", node.op->name, spec.name, spec.help));
      node.ok = false;
    } else if (!spec.fallback.empty() && spec.fallback != "all") {
      Report ignored("", "");
      auto tree = read_json(spec.fallback, ignored);
      MIRAGE_ASSERT(tree) << "default of " << spec.name;
      auto value = read_attr(spec, node.op->name, *tree);
      MIRAGE_ASSERT(value) << "default of " << spec.name;
      value->where = {};
      value->list_where.clear();
      node.attrs[spec.name] = std::move(*value);
    }
  }
}

std::optional<AttrValue> JsonReader::read_attr(const AttrSpec& spec, const std::string& op, const JsonValue& v) {
  AttrValue out;
  out.where = v.span;
  std::string what = fmt::format("attribute '{}'", spec.name);
  auto wrong = [&](const std::string& text) -> std::optional<AttrValue> {
    report_.error(DiagCode::kAttribute, v.span, fmt::format("{} of {} {}", what, op, text));
    return std::nullopt;
  };
  switch (spec.kind) {
    case AttrKind::kInt: {
      auto i = read_int(v, what);
      if (!i) return std::nullopt;
      out.integer = *i;
      return out;
    }
    case AttrKind::kAxes:
      if (v.kind != JsonKind::kArray) {
        auto i = expect_int(v, what);
        if (!i) return std::nullopt;
        out.list = {*i};
        return out;
      }
      return read_attr_list(spec, v, std::move(out));
    case AttrKind::kInts: case AttrKind::kShape: return read_attr_list(spec, v, std::move(out));
    case AttrKind::kNumber: case AttrKind::kEpsilon: {
      auto x = expect_number(v, what);
      if (!x) return std::nullopt;
      if (spec.kind == AttrKind::kEpsilon && !(*x >= 0 && *x < 1e300)) return wrong("must be finite and not negative");
      warn_no_float(*x, v.span, report_);
      out.number = *x;
      return out;
    }
    case AttrKind::kBool:
      if (!expect(v, JsonKind::kBool, what)) return std::nullopt;
      out.flag = v.flag;
      return out;
    case AttrKind::kText: case AttrKind::kChoice:
      if (!expect(v, JsonKind::kString, what)) return std::nullopt;
      if (spec.kind == AttrKind::kChoice && std::find(spec.choices.begin(), spec.choices.end(), v.text) == spec.choices.end())
        return wrong(fmt::format("must be \"{}\"", fmt::join(spec.choices, "\" or \"")));
      out.text = v.text;
      out.plain = v.plain;
      return out;
    case AttrKind::kDType: {
      auto t = dtype_of(v);
      if (!t) return std::nullopt;
      out.dtype = *t;
      return out;
    }
    case AttrKind::kExtents:
      if (!read_extents(v, out)) return wrong("must be a list of pairs [input's place, axis]");
      return out;
  }
  return std::nullopt;
}

/// An integer, or an expression of axes such as "K/2". nullopt: an error was reported, or an axis is unknown.
std::optional<int64_t> JsonReader::read_int(const JsonValue& v, std::string_view what) {
  if (v.kind != JsonKind::kString) return expect_int(v, what);
  ShapeResult r = eval_shape_expr(v.text, v.span, v.plain, axes_, report_, false);
  if (r.ok && !r.value) unknown_axis_ = true;
  return r.value;
}

std::optional<AttrValue> JsonReader::read_attr_list(const AttrSpec& spec, const JsonValue& v, AttrValue out) {
  if (spec.kind == AttrKind::kShape) {
    auto d = read_dims(v, fmt::format("attribute '{}'", spec.name), true);
    if (!d) return std::nullopt;
    out.list.assign(d->begin(), d->end());
    return out;
  }
  if (v.kind != JsonKind::kArray && spec.kind == AttrKind::kInts) {   // one number for all axes
    auto i = read_int(v, fmt::format("attribute '{}'", spec.name));
    if (!i) return std::nullopt;
    out.list = {*i};
    return out;
  }
  if (!expect(v, JsonKind::kArray, fmt::format("attribute '{}'", spec.name))) return std::nullopt;
  if (const int most = spec.kind == AttrKind::kInts ? kMaxInts : kMaxRank; v.items.size() > static_cast<size_t>(most)) {
    const char* why = spec.kind == AttrKind::kInts ? "" : "; tensors have at most 8 axes";
    report_.error(DiagCode::kAttribute, v.span,
                  fmt::format("attribute '{}' has {} entries, more than {}{}", spec.name, v.items.size(), most, why));
    return std::nullopt;
  }
  if (spec.kind == AttrKind::kAxes && v.items.empty()) {
    report_.error(DiagCode::kAttribute, v.span, fmt::format("attribute '{}' names no axis", spec.name));
    return std::nullopt;
  }
  for (const JsonValue& item : v.items) {
    auto i = spec.kind == AttrKind::kInts ? read_int(item, fmt::format("an entry of '{}'", spec.name))
                                          : expect_int(item, fmt::format("an entry of '{}'", spec.name));
    if (!i) return std::nullopt;
    out.list.push_back(*i);
    out.list_where.push_back(item.span);
  }
  return out;
}

bool JsonReader::read_extents(const JsonValue& v, AttrValue& out) {
  if (v.kind != JsonKind::kArray || v.items.size() > 64) return false;
  for (const JsonValue& pair : v.items) {
    if (pair.kind != JsonKind::kArray || pair.items.size() != 2) return false;
    for (const JsonValue& i : pair.items) {
      if (i.kind != JsonKind::kInt || i.integer < 0 || i.integer > (1 << 20)) return false;
    }
    out.extents.emplace_back(static_cast<int>(pair.items[0].integer), static_cast<int>(pair.items[1].integer));
  }
  return true;
}

}  // namespace mirage::spec
