// The operator table as data, attribute values, and what a builder sees of one node.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include "spec/operators/emitter.h"
#include "spec/report.h"

namespace mirage::spec {

enum class AttrKind : uint8_t { kInt, kInts, kAxes, kNumber, kEpsilon, kBool, kText, kChoice, kDType, kShape, kExtents };

struct AttrSpec {
  std::string name;
  AttrKind kind;
  std::string fallback;   ///< default as JSON text; "": may be left out; "required"; "all": every axis
  std::string help;
  std::vector<std::string> choices = {};   ///< kChoice: its values
  bool is_required() const { return fallback == "required"; }
};

/// A value of an attribute, already of the right kind. Places are kept so that a builder can point at it.
struct AttrValue {
  Span where;
  int64_t integer = 0;                 ///< kInt
  double number = 0;                   ///< kNumber, kEpsilon
  bool flag = false;                   ///< kBool
  bool plain = false;                  ///< kText: byte i of text is byte where.offset + 1 + i of the source
  std::string text;                    ///< kText, kChoice
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
  int num_results = 1;                                   ///< names that the node gives to results
  std::vector<std::pair<ValueId, int64_t>> places = {};  ///< operands that are indices, and of how many elements: set by the builder
  const AttrValue* attr(std::string_view name) const;    ///< nullptr: left out and without default
  ValueId x() const { return operands[0]; }
  /// The attribute "axis" as sorted non-negative dimensions of a tensor of this rank; all of them if it is left out.
  std::vector<int> axes(int rank) const;
  int axis(int rank) const;
  /// The first operand has this rank or a higher one.
  void need_rank(int at_least) const;
  /// A reduced value (extents of 1 along axes), without these axes unless the attribute "keepdim" is true.
  ValueId reduced(ValueId, const std::vector<int>& axes) const;
  [[noreturn]] void fail(DiagCode, Span, std::string text) const;
  [[noreturn]] void fail_attr(std::string_view attr, std::string text) const;
  [[noreturn]] void fail_operand(size_t index, DiagCode, std::string text) const;
};

/// How an operator is built: with one result, or with several (as many as the node names).
struct BuildFn {
  ValueId (*one)(NodeContext&) = nullptr;
  std::vector<ValueId> (*many)(NodeContext&) = nullptr;
  BuildFn(ValueId (*build)(NodeContext&)) : one(build) {}
  BuildFn(std::vector<ValueId> (*build)(NodeContext&)) : many(build) {}
  std::vector<ValueId> operator()(NodeContext& node) const { return one ? std::vector<ValueId>{one(node)} : many(node); }
};

inline constexpr int kAny = 1 << 20;
inline constexpr int kMaxInts = 4096;   ///< entries of a list of integers

struct OpInfo {
  std::string name;
  int min_inputs, max_inputs;
  std::string inputs;
  BuildFn build;           ///< build.many: a node has one result or more
  std::string help;
  std::vector<AttrSpec> attrs;
  const AttrSpec* find_attr(std::string_view name) const;
};

const std::vector<OpInfo>& operators();              ///< in the order of operators.def
const OpInfo* find_operator(std::string_view name);
std::vector<std::string> operator_names();
/// A name elsewhere of an operator here; op "": there is none, and text says why.
struct OtherName { const char *name, *op, *text; };
const std::vector<OtherName>& other_names();         ///< in the order of other_names.def
/// Notes about a name that no operator has: the operator here of that meaning (other_names.def), the reason why there is none, or the
/// nearest spelling.
std::vector<Note> meant_operator(const std::string& word, const Report&);

}  // namespace mirage::spec
