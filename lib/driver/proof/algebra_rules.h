// Rules of algebra as rewritings of kernel-level graphs, and the terms by which algebra_steps.cc sees how near two graphs are.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mirage/ir/graph.h"

namespace mirage {

/// Terms of values, extents and tiling forgotten (as abstract expressions have it, OSDI'25 section 4.3): a sum over a tile and over the
/// loop is one sum, views are their operand. Equal numbers: equal terms.
class Terms {
 public:
  /// Per value of a graph, calls looked into; `inside`: the terms of values in called graphs are added.
  std::vector<int> of(const Graph& g, std::vector<int>* inside = nullptr);

 private:
  std::vector<int> of_body(const Graph& g, const std::vector<int>& operands, std::vector<int>& results, std::vector<int>* inside);
  int of_node(const Node& n, const std::vector<int>& term, const std::vector<int>& operands);
  int map_term(MapFn fn, std::vector<int> args);
  int make(const std::string& head, std::vector<int> args);
  std::map<std::pair<std::string, std::vector<int>>, int> known_;
  std::vector<std::pair<std::string, std::vector<int>>> parts_;
};

/// One application of a rule.
struct Rewriting { const char* name; Graph graph; };

/// Every way to apply a rule once to g, in the order of its nodes.
std::vector<Rewriting> rewritings(const Graph& g);

}  // namespace mirage
