// A spec as it was written, checked key by key but not yet against each other: between the JSON reader and build_program.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>
#include "mirage/ir/program.h"
#include "mirage/spec/spec.h"
#include "spec/operators/operators.h"
#include "spec/report.h"

namespace mirage::spec {

struct AstTensor {
  std::string name;
  Span where;                               ///< the name
  std::optional<Dims> dims;                 ///< outputs: nullopt where the shape is not declared
  Span shape_where;
  DType dtype = DType::kF16;
  Span dtype_where;
  std::optional<Dims> strides;
  Span strides_where;
  std::optional<std::pair<double, double>> range;
  bool by_value = false;                    ///< "shape": null
  bool ok = true;                           ///< false: shape or dtype had errors, so nothing is checked against it
};

struct AstArg {
  std::optional<double> number;             ///< a literal; else `name`
  std::string name;
  Span where;
};

struct AstNode {
  const OpInfo* op = nullptr;               ///< nullptr: unknown operator, already reported
  Span where;                               ///< the operator's name
  std::vector<AstArg> inputs;
  struct Result { std::string name; Span where; };
  std::vector<Result> outputs;              ///< empty: an error was reported
  std::map<std::string, AttrValue, std::less<>> attrs;
  bool exact = false;                       ///< the result is not kept in 16 bits
  bool ok = true;                           ///< false: an error was reported; results are not built, but names count as defined
};

struct Ast {
  std::string name, description;
  Span name_where;
  std::vector<AstTensor> inputs, outputs;
  std::vector<AstNode> nodes;
  Span nodes_where;                         ///< their key
  Numerics numerics;
  std::vector<VarAxis> axes;                ///< those with several values
  bool complete = true;                     ///< false: some node could not be read, so a missing name may be its result
};

inline constexpr int kMaxNodes = 4096;
inline constexpr int kMaxTensors = 4096;     ///< inputs, and outputs
inline constexpr int kMaxOperands = 65536;   ///< of all nodes together
inline constexpr size_t kMaxNameLength = 128;

bool is_identifier(std::string_view);
/// The stem of a path as an identifier: "specs/my-op.json" gives "my_op", "-" gives "program".
std::string name_of_source(const std::string& source_name);

/// Reads JSON text; nullopt if it is not JSON. Other errors are in the report, and the Ast holds what could be read.
std::optional<Ast> read_ast(const Source&, const AxisChoice&, Report&);

/// Names resolved, cycles found, operators built, outputs checked. nullopt if there were errors.
std::optional<Program> build_program(const Ast&, Report&);

/// The program's checks that do not depend on the form of the spec: strides, unused inputs, names that will be mangled.
void check_strides(const AstTensor&, const Dims&, Report&);
void warn_unused_inputs(const Graph&, const std::vector<std::pair<std::string, Span>>& inputs, Report&);
/// The limit on nodes holds for primitives too, so that the normal form can be read back.
void check_size(const Graph&, Span where, Report&);
/// Kernels compute in float32: a constant that is finite, not 0, and infinite or 0 there.
void warn_no_float(double constant, Span, Report&);
void warn_mangled(const std::string& what, const std::string& name, Span, Report&);

}  // namespace mirage::spec
