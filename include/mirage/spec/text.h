// The text form of graphs: what ir's print() writes, read back. Goldens, dumps, inline test graphs and text specs use it; the grammar
// stands in docs/spec.md.
#pragma once
#include <string>
#include <string_view>
#include "mirage/ir/graph.h"
#include "mirage/support/result.h"

namespace mirage {

/// Reads one graph of any level: parse_graph(print(g, name)) equals g. `file` is the name that diagnostics print. Expressions may be
/// nested: `div %c (sqrt %d)`. Nodes get ids in the order of the text, those of nested expressions before the node that holds them.
Result<Graph> parse_graph(std::string_view text, const std::string& file = "<graph>");

/// A graph with the names it was written with.
struct NamedGraph { std::string name; Graph graph; };
Result<NamedGraph> parse_named_graph(std::string_view text, const std::string& file = "<graph>");

}  // namespace mirage
