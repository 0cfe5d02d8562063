// One model on its way into a spec. Operators (operators_*.cc) take an OpCall, which knows one node: they ask for its operands and
// attributes, build operators of the spec, and set its results.
#pragma once
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>
#include "mirage/spec/onnx.h"
#include "spec/onnx/model.h"
#include "spec/operators/operators.h"

namespace mirage::onnx {

using Shape = std::vector<int64_t>;
inline constexpr double kSqrt2 = 1.41421356237309504880, kSqrtHalf = 0.70710678118654752440;

std::string text_of(const Shape&);
/// The nearest whole number towards zero, 0 for what is no number: models have whole constants beyond int64 in double.
inline int64_t to_int64(double x) {
  if (x != x) return 0;
  return x >= 9.2e18 ? INT64_MAX : x <= -9.2e18 ? INT64_MIN : static_cast<int64_t>(x);
}
inline bool is_whole_type(int onnx_type) { return onnx_type == kInt32 || onnx_type == kInt64; }
int64_t elements_of(const Shape&);

/// A tensor whose elements are known: shapes, axes, scalars. Whole numbers up to 2^53 are exact.
struct Constant {
  Shape dims;
  std::vector<double> data;
  bool is_uniform() const {
    return !data.empty() && std::all_of(data.begin(), data.end(), [&](double x) { return x == data[0]; });
  }
};

inline constexpr int64_t kMostKnown = 4096;  ///< elements of a constant that is looked into

/// The number that was written before it became one of the type.
double meant(double x, DType type);
/// The elements of a small tensor; `raw`: its bytes, where it has such. nullopt: they do not fit its shape, or its type has none.
std::optional<Constant> read_elements(const TensorData& t, std::string_view raw);

/// A value of the model. `made` >= 0: a tensor of the spec (index into Importer::made_). Constants become tensors where one is asked for.
struct Value {
  int type = kFloat;
  Shape dims;
  std::optional<Constant> known;
  int made = -1;
  int initializer = -1;  ///< index; read, or made an input, when it is used
};

/// An attribute of a spec's operator.
using AttrText = std::variant<bool, int64_t, double, std::string, Shape, DType>;
using Attrs = std::vector<std::pair<std::string, AttrText>>;

/// A node that a spec cannot say: counted, and reported together.
struct Refusal {
  std::string reason;
};
/// A node that is no valid ONNX, or for which an operator of the spec finds a fault.
struct Invalid {
  DiagCode code;
  std::string text;
};

/// What became of a node.
struct Fate {
  enum class Kind : uint8_t { kTaken, kKnown, kLeft } kind = Kind::kLeft;  ///< kKnown: computed while reading (shapes)
  /// operators of the spec among its own that make a kernel worth it: products, reductions
  std::vector<std::string> heavy;
};

class Importer {
 public:
  /// name: of the spec; empty: that of the path.
  Importer(const OnnxModel&, std::string path, const OnnxOptions&, std::string name = "");
  Result<Source> run();
  /// Every node by itself: what becomes of it where results of nodes that are left stand as tensors of the shape that the file gives them.
  Result<std::vector<Fate>> survey();
  std::vector<std::string> refusals() const;  ///< a line per operator and reason

  // For OpCall.
  /// A node of the spec; its result has the rank that the operator gives it.
  Value node(const std::string& op, const std::vector<Value>& operands, const Attrs& attrs, int type, const OnnxNode& from);
  std::vector<Value> nodes(const std::string& op, const std::vector<Value>& operands, const Attrs& attrs, int type, int results,
                           const OnnxNode& from);
  /// The value as a tensor of the spec (a constant of several elements becomes one); scalars that are known stay numbers.
  Value tensor(const Value&, const OnnxNode& from);
  std::optional<Constant> constant(const Value&);
  /// A tensor that stands in a node: known, or, where it is large, an input of the node's name.
  Value literal(const TensorData&, const OnnxNode& from);
  const Value* find(const std::string& name) const;
  int64_t opset(const std::string& domain) const;

 private:
  struct Made {
    std::string name;
    ValueId id;
    bool named = false;
  };
  struct Line {
    std::string op;
    std::vector<std::string> operands;
    std::vector<int> results;
    std::string attrs;
    const OnnxNode* from;
  };  // operands: "#3" a value, else JSON

  void declare_inputs();
  Shape shape_of(const ValueInfo&);
  std::optional<Shape> given_shape(const std::string& value) const;
  void stand_in(const OnnxNode&);
  void take(const OnnxNode&);
  void refuse(const OnnxNode&, const std::string& reason);
  void give(const OnnxNode&, const std::vector<Value>&);
  bool check_opset();
  void finish_outputs();
  std::string write() const;
  std::string fresh(const std::string& wanted);
  int make_input(const std::string& name, int type, const Shape& dims);
  void error(DiagCode, const std::string& text, std::vector<Note> notes = {});
  std::string_view external(const TensorData&);
  Value progression(const Constant&, int type, const OnnxNode& from);

  struct InputLine {
    int made;
    int type;
    Shape dims;
    bool used;
  };
  struct OutputLine {
    int made;
    int type;
  };
  struct Why {
    std::string op, reason;
    int count;
    std::string first;
  };

  const OnnxModel& model_;
  std::string path_, name_;
  const OnnxOptions& options_;
  spec::Emitter emit_;
  std::vector<Made> made_;
  std::vector<InputLine> inputs_;
  std::vector<int> input_of_initializer_;
  std::vector<Line> lines_;
  std::vector<OutputLine> outputs_;
  std::map<std::string, Value> values_;
  std::map<std::string, bool> broken_;  // results of nodes with errors
  std::map<std::string, int> taken_;
  std::map<std::string, std::string> files_;  // external data that was read
  std::map<std::string, int64_t> axes_;       // named dimensions with the extents that --bind gives them
  std::vector<Why> refused_;
  Diagnostics errors_;
};

/// One node while it is read. Throws Refusal and Invalid.
class OpCall {
 public:
  OpCall(Importer& to, const OnnxNode& node, std::vector<Value> operands)
      : to_(to), node_(node), operands_(std::move(operands)), given_(operands_.size(), true) {
    for (size_t i = 0; i < operands_.size(); ++i) given_[i] = !node.inputs[i].empty();
  }
  const OnnxNode& node() const { return node_; }
  int64_t opset() const { return to_.opset(node_.domain); }
  size_t size() const { return operands_.size(); }
  bool has(size_t i) const { return i < operands_.size() && given_[i]; }
  const Value& in(size_t i) const;  ///< throws where it is left out
  int type() const { return in(0).type; }
  const Shape& dims(size_t i = 0) const { return in(i).dims; }
  int64_t rank(size_t i = 0) const { return static_cast<int64_t>(dims(i).size()); }

  int64_t integer(std::string_view name, int64_t otherwise) const;
  double real(std::string_view name, double otherwise) const;
  std::string text(std::string_view name, const std::string& otherwise) const;
  std::optional<Shape> integers(std::string_view name) const;
  bool has_attr(std::string_view name) const { return node_.find(name) != nullptr; }
  std::optional<Constant> known(size_t i) const { return has(i) ? to_.constant(in(i)) : std::nullopt; }
  /// An operand that must be known; `what` names it in the refusal.
  Shape known_integers(size_t i, const char* what) const;
  double known_number(size_t i, const char* what) const;
  /// An axis as 0 .. rank - 1. Throws Invalid.
  int64_t axis(int64_t given, int64_t rank) const;

  Value op(const std::string& name, const std::vector<Value>& operands, const Attrs& attrs = {}) const {
    return to_.node(name, operands, attrs, operands.empty() ? int{kFloat} : operands[0].type, node_);
  }
  Value typed(Value v, int type) const {
    v.type = type;
    return v;
  }
  std::vector<Value> many(const std::string& name, const std::vector<Value>& operands, const Attrs& attrs, int results) const {
    return to_.nodes(name, operands, attrs, operands[0].type, results, node_);
  }
  Value tensor(const Value& v) const { return to_.tensor(v, node_); }
  Value reshape(const Value& x, const Shape& dims) const;
  Value cast(const Value& x, int type) const;
  Value literal(const TensorData&) const;  ///< a Constant's tensor
  static Value number(double x, int type = kFloat);
  static Value constant(Constant c, int type) {
    Value v;
    v.type = type;
    v.dims = c.dims;
    v.known = std::move(c);
    return v;
  }

  [[noreturn]] void refuse(std::string reason) const { throw Refusal{std::move(reason)}; }
  [[noreturn]] void invalid(std::string text) const { throw Invalid{DiagCode::kShape, std::move(text)}; }

 private:
  Importer& to_;
  const OnnxNode& node_;
  std::vector<Value> operands_;
  std::vector<bool> given_;
};

/// A row of the operator table: what a node of this operator becomes. Results that are left out of the vector are not computed.
struct OpRow {
  const char* name;
  std::vector<Value> (*build)(const OpCall&);
};
const OpRow* find_row(std::string_view op);
/// Folds a node whose operands are all known (whole numbers, of rank 0 or 1): shape arithmetic. nullopt: it is none.
std::optional<Value> fold_shapes(const OpCall&);

/// values.cc: one spec for all extents of named dimensions.
Result<Source> at_all_values(const OnnxModel&, const std::string& path, const OnnxOptions&);

// Rows, by file.
using Rows = std::vector<OpRow>;
const Rows& elementwise_rows();
const Rows& product_rows();
const Rows& norm_rows();
const Rows& move_rows();
const Rows& window_rows();

}  // namespace mirage::onnx
