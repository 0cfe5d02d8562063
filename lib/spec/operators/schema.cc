// What the operator table says to people and to editors: --list-ops, and the JSON Schema of specs.
#include <nlohmann/json.hpp>
#include <fmt/format.h>
#include "mirage/spec/json_text.h"
#include "mirage/spec/spec.h"
#include "spec/json/ast.h"
#include "spec/json/json_tree.h"
#include "spec/operators/operators.h"

namespace mirage {
namespace {

using Json = nlohmann::ordered_json;
using spec::AttrKind;
using spec::AttrSpec;
using spec::kMaxInts;
using spec::OpInfo;

const char* kind_text(AttrKind kind) {
  switch (kind) {
    case AttrKind::kInt: return "integer";
    case AttrKind::kInts: return "integer or list";
    case AttrKind::kAxes: return "integer or list";
    case AttrKind::kNumber: case AttrKind::kEpsilon: return "number";
    case AttrKind::kBool: return "boolean";
    case AttrKind::kText: case AttrKind::kChoice: return "string";
    case AttrKind::kDType: return "dtype";
    case AttrKind::kShape: return "shape";
    case AttrKind::kExtents: return "list of pairs";
  }
  return "";
}

Json number_schema() { return {{"anyOf", {{{"type", "number"}}, {{"enum", {"-inf", "+inf"}}}}}}; }
Json shape_schema() {
  return {{"type", "array"}, {"maxItems", kMaxRank}, {"items", {{"anyOf", {{{"type", "integer"}}, {{"type", "string"}}}}}}};
}
Json int_schema() { return {{"type", {"integer", "string"}}}; }   // a string: an expression of axes
Json dtype_schema() { return {{"enum", {"float16", "bfloat16", "float32", "bool", "f16", "bf16", "f32", "int32", "int64", "i32", "i64"}}}; }
Json name_schema() { return {{"type", "string"}, {"pattern", "^[A-Za-z_][A-Za-z0-9_]*$"}, {"maxLength", spec::kMaxNameLength}}; }

Json attr_schema(const AttrSpec& a) {
  Json s;
  switch (a.kind) {
    case AttrKind::kInt: s = int_schema(); break;
    case AttrKind::kInts: s["anyOf"] = {int_schema(), {{"type", "array"}, {"maxItems", kMaxInts}, {"items", int_schema()}}}; break;
    case AttrKind::kAxes:
      s["anyOf"] = {{{"type", "integer"}}, {{"type", "array"}, {"minItems", 1}, {"maxItems", kMaxRank}, {"items", {{"type", "integer"}}}}};
      break;
    case AttrKind::kNumber: s = number_schema(); break;
    case AttrKind::kEpsilon: s = {{"type", "number"}, {"minimum", 0}}; break;
    case AttrKind::kBool: s["type"] = "boolean"; break;
    case AttrKind::kText: s["type"] = "string"; break;
    case AttrKind::kChoice: s["enum"] = a.choices; break;
    case AttrKind::kDType: s = dtype_schema(); break;
    case AttrKind::kShape: s = shape_schema(); break;
    case AttrKind::kExtents:
      s = {{"type", "array"}, {"items", {{"type", "array"}, {"minItems", 2}, {"maxItems", 2}, {"items", {{"type", "integer"}}}}}};
      break;
  }
  Json out;
  out["description"] = a.help;
  bool has_default = !a.fallback.empty() && a.fallback != "required" && a.fallback != "all";
  if (has_default) out["default"] = own_json(a.fallback);
  if (a.is_required()) out.update(s);
  else out["anyOf"] = {s, {{"type", "null"}}};
  return out;
}

Json op_schema(const OpInfo& op) {
  Json attrs{{"type", "object"}, {"additionalProperties", false}, {"patternProperties", {{"^x-", Json::object()}}}};
  attrs["properties"] = Json::object();
  Json required = Json::array();
  for (const AttrSpec& a : op.attrs) {
    attrs["properties"][a.name] = attr_schema(a);
    if (a.is_required()) required.push_back(a.name);
  }
  bool needs_attrs = !required.empty();
  if (needs_attrs) attrs["required"] = required;
  Json inputs{{"minItems", op.min_inputs}};
  if (op.max_inputs != spec::kAny) inputs["maxItems"] = op.max_inputs;
  Json then{{"properties", {{"inputs", inputs}, {"attrs", needs_attrs ? attrs : Json{{"anyOf", {attrs, {{"type", "null"}}}}}}}}};
  if (!op.build.many) then["properties"]["outputs"] = {{"maxItems", 1}};
  Json needed = Json::array();
  if (op.min_inputs > 0) needed.push_back("inputs");
  if (needs_attrs) needed.push_back("attrs");
  if (!needed.empty()) then["required"] = needed;
  Json rule;
  rule["if"] = {{"properties", {{"op", {{"const", op.name}}}}}};
  rule["then"] = then;
  return rule;
}

Json node_schema() {
  Json names = Json::array(), rules = Json::array();
  for (const OpInfo& op : spec::operators()) {
    names.push_back(op.name);
    rules.push_back(op_schema(op));
  }
  Json node{{"type", "object"}, {"additionalProperties", false}, {"patternProperties", {{"^x-", Json::object()}}}, {"required", {"op"}}};
  node["properties"] = {{"op", {{"enum", names}}},
                        {"inputs", {{"type", "array"}, {"items", {{"anyOf", {{{"type", "string"}}, {{"type", "number"}}}}}}}},
                        {"output", name_schema()},
                        {"outputs", {{"type", "array"}, {"minItems", 1}, {"items", name_schema()}}},
                        {"attrs", {{"type", {"object", "null"}}}},
                        {"name", {{"type", "string"}}},
                        {"exact", {{"type", "boolean"}, {"description", "true: the result is not kept in 16 bits"}}},
                        {"description", {{"type", "string"}}}};
  node["oneOf"] = {{{"required", {"output"}}}, {{"required", {"outputs"}}}};
  node["allOf"] = rules;
  return node;
}

Json tensor_schema(bool is_input, bool in_list) {
  Json t{{"type", "object"}, {"additionalProperties", false}, {"patternProperties", {{"^x-", Json::object()}}}};
  Json shape = shape_schema();
  shape["description"] = "extents: integers, axis names, or + - * / of these";
  if (is_input) shape = {{"anyOf", {shape, {{"type", "null"}, {"description", "a scalar that callers pass by value"}}}}};
  t["properties"] = {{"name", name_schema()}, {"shape", shape}, {"dtype", dtype_schema()}, {"description", {{"type", "string"}}}};
  Json strides = shape_schema();
  strides["description"] = "elements between neighbours, one per dimension; row-major if left out";
  t["properties"]["strides"] = {{"anyOf", {strides, {{"type", "null"}}}}};
  if (is_input)
    t["properties"]["range"] = {
        {"type", "array"}, {"minItems", 2}, {"maxItems", 2}, {"items", {{"type", "number"}}}, {"description", "lowest and highest value"}};
  Json required{"dtype"};
  if (is_input) required.push_back("shape");
  if (in_list) required.push_back("name");
  t["required"] = required;
  return t;
}

Json tensors_schema(bool is_input) {
  Json object{
      {"type", "object"}, {"minProperties", 1}, {"propertyNames", name_schema()}, {"additionalProperties", tensor_schema(is_input, false)}};
  Json list{{"type", "array"}, {"minItems", 1}, {"items", tensor_schema(is_input, true)}};
  return {{"description", is_input ? "tensors read, in the order of the C ABI" : "tensors written, in the order of the C ABI"},
          {"anyOf", {object, list}}};
}

Json axis_schema() {
  Json constant{
      {"type", "object"}, {"additionalProperties", false}, {"patternProperties", {{"^x-", Json::object()}}}, {"required", {"value"}}};
  Json extent{{"type", "integer"}, {"minimum", 1}, {"maximum", spec::kMaxElements}};
  Json any_int{{"type", "integer"}};
  constant["properties"] = {{"type", {{"const", "const"}}}, {"value", extent}, {"description", {{"type", "string"}}}, {"min", any_int},
                            {"max", any_int}, {"hint", any_int}, {"multiple_of", any_int}, {"parent", {{"type", "string"}}}};
  Json var = constant;   // its values may come from the command line
  var["required"] = {"type"};
  var["properties"].erase("value");
  var["properties"]["type"] = {{"const", "var"}};
  var["properties"]["values"] = {{"type", "array"},     {"minItems", 1},   {"maxItems", kMostPoints},
                                 {"uniqueItems", true}, {"items", extent}, {"description", "each is served with a plan of its own"}};
  return {{"anyOf", {extent, constant, var}}};
}

std::string default_text(const AttrSpec& a) {
  if (a.is_required()) return "required";
  if (a.fallback.empty()) return "optional";
  return "default " + a.fallback;
}

}  // namespace

std::string list_ops() {
  std::string out;
  for (const OpInfo& op : spec::operators()) {
    out += fmt::format("{}({})\n    {}\n", op.name, op.inputs, op.help);
    for (const AttrSpec& a : op.attrs) out += fmt::format("    {} ({}, {}): {}\n", a.name, kind_text(a.kind), default_text(a), a.help);
  }
  return out;
}

std::string list_ops_json() {
  Json out = Json::array();
  for (const OpInfo& op : spec::operators()) {
    Json row{{"name", op.name}, {"inputs", op.inputs}, {"min_inputs", op.min_inputs}};
    row["max_inputs"] = op.max_inputs == spec::kAny ? Json() : Json(op.max_inputs);
    row["outputs"] = op.build.many ? "one or more" : "one";
    row["help"] = op.help;
    row["attributes"] = Json::array();
    for (const AttrSpec& a : op.attrs) {
      Json attr{{"name", a.name}, {"kind", kind_text(a.kind)}, {"required", a.is_required()}};
      if (!a.fallback.empty() && !a.is_required()) attr["default"] = a.fallback == "all" ? Json("all") : own_json(a.fallback);
      if (!a.choices.empty()) attr["choices"] = a.choices;
      attr["help"] = a.help;
      row["attributes"].push_back(attr);
    }
    row["other_names"] = Json::array();
    for (const spec::OtherName& o : spec::other_names()) if (op.name == o.op) row["other_names"].push_back(o.name);
    out.push_back(row);
  }
  return out.dump(2) + "\n";
}

std::string schema() {
  Json s{{"$schema", "http://json-schema.org/draft-07/schema#"},
         {"title", "mirage-opt spec"}, {"type", "object"}, {"additionalProperties", false}};
  s["patternProperties"] = {{"^x-", Json::object()}};
  s["required"] = {"inputs", "outputs", "nodes"};
  s["properties"] = {{"$schema", {{"type", "string"}}},
                     {"version", {{"type", "string"}, {"pattern", "^1\\.[0-9]{1,5}$"}}},
                     {"name", name_schema()},
                     {"description", {{"type", {"string", "null"}}}},
                     {"tags", Json::object()},
                     {"op_type", Json::object()},
                     {"reference", Json::object()},
                     {"axes", {{"type", "object"}, {"propertyNames", name_schema()}, {"additionalProperties", axis_schema()}}},
                     {"constraints", {{"type", {"array", "null"}}, {"items", {{"type", "string"}}}}}};
  s["properties"]["inputs"] = tensors_schema(true);
  s["properties"]["outputs"] = tensors_schema(false);
  s["properties"]["nodes"] = {{"type", "array"}, {"maxItems", spec::kMaxNodes}, {"items", node_schema()}};
  Json tolerance{{"type", "number"}, {"minimum", 0}};
  s["properties"]["numerics"] = {
      {"type", "object"}, {"additionalProperties", false}, {"patternProperties", {{"^x-", Json::object()}}},
      {"properties",
       {{"rtol", tolerance}, {"atol", tolerance}, {"tf32", {{"type", "boolean"}}}, {"intermediates", {{"enum", {"stored", "exact"}}}}}}};
  return s.dump(2) + "\n";
}

}  // namespace mirage
