// The operator table as data, attribute values, and what a builder sees of one node.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include "spec/emitter.h"
#include "spec/report.h"

namespace mirage::spec {

enum class AttrKind : uint8_t { kInt, kInts, kAxes, kNumber, kEpsilon, kBool, kText, kGelu, kDType, kShape, kExtents };

struct AttrSpec {
  std::string name;
  AttrKind kind;
  std::string fallback;   ///< default as JSON text; "": may be left out; "required"; "all": every axis
  std::string help;
  bool is_required() const { return fallback == "required"; }
};

/// A value of an attribute, already of the right kind. Places are kept so that a builder can point at it.
struct AttrValue {
  Span where;
  int64_t integer = 0;                 ///< kInt
  double number = 0;                   ///< kNumber, kEpsilon
  bool flag = false;                   ///< kBool
  bool plain = false;                  ///< kText: byte i of text is byte where.offset + 1 + i of the source
  std::string text;                    ///< kText, kGelu
  DType dtype = DType::kReal;          ///< kDType
  std::vector<int64_t> list;           ///< kInts, kAxes, kShape (one may be -1)
  std::vector<Span> list_where;        ///< places of its entries
  ExtentOf extents;                    ///< kExtents
};

/// One node while it is built. Throws BuildError.
struct NodeContext {
  Emitter& emit;
  std::vector<ValueId> operands;
  std::vector<Span> operand_where;
  std::map<std::string, AttrValue, std::less<>> attrs;   ///< given ones and defaults
  Span where;                                            ///< the operator's name
  int num_params = 0;                                    ///< inputs of the program
  const AttrValue* attr(std::string_view name) const;    ///< nullptr: left out and without default
  ValueId x() const { return operands[0]; }
  /// The attribute "axis" as sorted non-negative dimensions of a tensor of this rank; all of them if it is left out.
  std::vector<int> axes(int rank) const;
  int axis(int rank) const;
  [[noreturn]] void fail(DiagCode, Span, std::string text) const;
  [[noreturn]] void fail_attr(std::string_view attr, std::string text) const;
  [[noreturn]] void fail_operand(size_t index, DiagCode, std::string text) const;
};

using BuildFn = ValueId (*)(NodeContext&);

inline constexpr int kAny = 1 << 20;

struct OpInfo {
  std::string name;
  int min_inputs, max_inputs;
  std::string inputs;
  BuildFn build;
  std::string help;
  std::vector<AttrSpec> attrs;
  const AttrSpec* find_attr(std::string_view name) const;
};

const std::vector<OpInfo>& operators();              ///< in the order of operators.def
const OpInfo* find_operator(std::string_view name);
std::vector<std::string> operator_names();

}  // namespace mirage::spec
