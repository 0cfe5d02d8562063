// Reading specs: JSON or text in, a Program (names, storage facts, reference graph in primitives) out. First stage of the flow; the format is written down in docs/spec.md.
#pragma once
#include <string>
#include <string_view>
#include "mirage/ir/program.h"
#include "mirage/support/result.h"

namespace mirage {

/// A spec as text. `name` is what diagnostics print before the line (a path, or "-" for standard input); its stem is the program's name where the spec gives none.
struct Source { std::string name; std::string text; };

struct Parsed { Program program; Diagnostics warnings; };

/// Reads a spec. A text whose first character is '{' or '[' is JSON, any other is the text form. Every operator is checked and desugared into primitives; the graph holds no node that no output
/// needs, no two equal nodes, and its nodes stand in an order that does not depend on theirs in the file. Errors: at most 20 diagnostics, ordered by place.
Result<Parsed> read_spec(const Source&);

/// read_spec without the warnings.
Result<Program> parse_spec(const Source&);

/// --einsum: a program of one node from a line such as "mk,kn->mn m=16 k=4096 n=64 f16" (inputs x0, x1, output y; dtype float16 if none is named).
Result<Parsed> read_einsum(const std::string& line);

/// The normal form: JSON with axes resolved, operators in primitives, node names v0, v1, ... It reads back as an equal program and is a fixed point of canonicalize(parse_spec(.)).
/// Description, axis names, node names and node order leave no trace in it; names and order of inputs and outputs do, for they are the ABI.
std::string canonicalize(const Program&);

std::string list_ops();        ///< the operator table for people (--list-ops)
std::string list_ops_json();   ///< the same as JSON
std::string schema();          ///< JSON Schema, draft-07, made from the operator table (--print-schema)

}  // namespace mirage
