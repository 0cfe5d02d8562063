// Reads one JSON spec key by key into an Ast.
#pragma once
#include <set>
#include "spec/json/ast.h"
#include "spec/json/json_tree.h"
#include "spec/shape_expr.h"

namespace mirage::spec {

class JsonReader {
 public:
  JsonReader(const AxisChoice& choice, Report& report) : choice_(choice), report_(report) {}
  Ast read(const JsonValue& root, const std::string& default_name);

 private:
  // json_reader.cc: the parts of a spec
  void read_version(const JsonMember*);
  void read_name(const JsonMember*, const std::string& default_name);
  void read_constraints(const JsonMember*);
  void read_numerics(const JsonMember*);
  std::vector<AstTensor> read_tensors(const JsonValue& root, const char* key, bool is_input);
  AstTensor read_tensor(const std::string& name, Span where, const JsonValue&, bool is_input);
  void read_shape(const JsonMember&, AstTensor&, bool is_input);
  void read_dtype(const JsonMember&, AstTensor&);
  void read_strides(const JsonMember&, AstTensor&);
  void read_range(const JsonMember&, AstTensor&);
  bool check_range_end(double x, Span, DType);
  size_t count_output_names(const JsonValue& nodes) const;
  void read_nodes(const JsonValue& root);
  // json_axes.cc: axes, and what the command line says of them
  void read_axes(const JsonMember*);
  void read_axis(const JsonMember&);
  std::optional<int64_t> axis_value(const JsonMember& axis, const JsonValue&);
  void read_var_axis(const JsonMember& axis);
  std::vector<int64_t> read_axis_values(const JsonMember& axis);
  bool check_axis_values(const JsonMember& axis, const std::vector<int64_t>& values);
  void read_hint(const JsonMember& axis, VarAxis& out);
  void check_choice();
  // json_nodes.cc: nodes and their attributes
  AstNode read_node(const JsonValue&);
  void read_inputs(const JsonValue& node, AstNode&);
  void read_outputs(const JsonValue& node, AstNode&);
  void check_output_count(const JsonValue& node, AstNode&);
  void read_attrs(const JsonValue& node, AstNode&);
  std::optional<AttrValue> read_attr(const AttrSpec&, const std::string& op, const JsonValue&);
  std::optional<AttrValue> read_attr_list(const AttrSpec&, const JsonValue&, AttrValue);
  bool read_extents(const JsonValue&, AttrValue&);
  std::optional<DType> dtype_of(const JsonValue&);
  // helpers
  bool expect(const JsonValue&, JsonKind, std::string_view what);
  std::optional<int64_t> expect_int(const JsonValue&, std::string_view what);
  std::optional<int64_t> read_int(const JsonValue&, std::string_view what);
  std::optional<double> expect_number(const JsonValue&, std::string_view what);
  std::optional<Dims> read_dims(const JsonValue&, std::string_view what, bool allow_free);
  void check_keys(const JsonValue& object, const std::vector<std::string>& known, std::string_view where);
  bool check_name(const std::string&, Span, std::string_view what);

  const AxisChoice& choice_;
  Report& report_;
  Ast ast_;
  Axes axes_;
  bool unknown_axis_ = false;
};

}  // namespace mirage::spec
