// Reading specs: JSON or text in, a Program (names, storage facts, reference graph in primitives) out. First stage of the flow; the format
// is written down in docs/spec.md.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>
#include "mirage/ir/program.h"
#include "mirage/support/result.h"

namespace mirage {

/// A spec as text. `name` is what diagnostics print before the line (a path, or "-" for standard input); its stem is the program's name
/// where the spec gives none.
struct Source { std::string name; std::string text; };

/// An axis of the spec that is to be served with several values.
struct VarAxis {
  std::string name;
  std::vector<int64_t> values;   ///< ascending, none twice
  int64_t hint = 0;              ///< one of them: the one that is searched for
  SourceLocation where;
};

/// What the command line says of axes, by name.
struct AxisChoice {
  std::map<std::string, int64_t, std::less<>> bind;                  ///< --bind: the axis is that constant
  std::map<std::string, std::vector<int64_t>, std::less<>> values;   ///< --values: the values of a var axis, ascending
};
/// The words of --bind ("M=16") and --values ("M=1", "8", "64": a list goes on until the next name). Errors: kUsage.
Result<AxisChoice> read_axis_choice(const std::vector<std::string>& bind, const std::vector<std::string>& values);

/// axes: those with several values, in the order of the spec; the program is that of their hints.
struct Parsed { Program program; Diagnostics warnings; std::vector<VarAxis> axes = {}; };

/// Reads a spec. A text whose first character is '{' or '[' is JSON, any other is the text form. Every operator is checked and desugared
/// into primitives; the graph holds no node that no output needs, no two equal nodes, and its nodes stand in an order that does not depend
/// on theirs in the file. Errors: at most 20 diagnostics, ordered by place.
Result<Parsed> read_spec(const Source&, const AxisChoice& = {});

/// The program alone. Errors: as read_spec, and kAxisValues where an axis has several values.
Result<Program> parse_spec(const Source&, const AxisChoice& = {});

/// One combination of values of a spec's var axes, and the program with these.
struct SpecPoint { std::vector<int64_t> values; Program program; };
/// A spec with all that it is to be served with: one point, without values, where no axis varies.
struct Family {
  std::vector<VarAxis> axes;
  std::vector<SpecPoint> points;   ///< the first axis varies slowest
  size_t hint = 0;                 ///< the point of all hints
  Diagnostics warnings;            ///< of that point
};
inline constexpr size_t kMostPoints = 64;
/// Reads a spec at every combination of its axes' values. Errors: as read_spec, with the values at which they come; more than kMostPoints
/// combinations (kLimit); an axis that no input's shape tells (kVarAxis).
Result<Family> read_family(const Source&, const AxisChoice& = {});
/// "M = 16, S = 1024".
std::string point_text(const std::vector<VarAxis>&, const std::vector<int64_t>& values);

/// --einsum: a program of one node from a line such as "mk,kn->mn m=16 k=4096 n=64 f16" (inputs x0, x1, output y; dtype float16 if none is
/// named).
Result<Parsed> read_einsum(const std::string& line);

/// The normal form: JSON with axes resolved, operators in primitives, node names v0, v1, ... It reads back as an equal program and is a
/// fixed point of canonicalize(parse_spec(.)). Description, axis names, node names and node order leave no trace in it; names and order of
/// inputs and outputs do, for they are the ABI.
std::string canonicalize(const Program&);

std::string list_ops();        ///< the operator table for people (--list-ops)
std::string list_ops_json();   ///< the same as JSON
std::string schema();          ///< JSON Schema, draft-07, made from the operator table (--print-schema)

}  // namespace mirage
