// Homogeneity: how each value of a graph scales when the exponentials of a set share a factor e^-m that may differ per index
// (docs/stability.md). Read by stabilize.cc.
#pragma once
#include <optional>
#include <set>
#include <vector>

#include "mirage/ir/graph.h"

namespace mirage::shift {

/// A value v scales as v * e^(-degree * m). Positions are dimensions counted from the right, so that broadcasting keeps them.
struct Degree {
  bool known = true;
  bool zero = false;            ///< v is 0: of any degree
  int degree = 0;
  std::vector<int> rows;        ///< degree != 0: per row axis of m the position in v that it runs along; -1: it has extent 1 and is gone
  friend bool operator==(const Degree&, const Degree&) = default;
};

inline int position(const Dims& d, int dim) { return d.rank() - 1 - dim; }
inline int dim_at(const Dims& d, int position) { return d.rank() - 1 - position; }

/// The exponentials of a class and the positions over which their shift is a maximum (shared).
struct Class {
  std::set<NodeId> exps;        ///< Map exp nodes, all with operands of one rank
  std::vector<int> reduced;     ///< positions
  std::vector<int> rows;        ///< the other positions, from the left
  bool completes = false;       ///< what a loop adds up is multiplied by e^(degree * m) behind it: nothing is lacking there
};

/// The degree of every value of g in `c`. Calls and running maxima in g know no degree but 0.
std::vector<Degree> degrees(const Graph& g, const Class& c);

}  // namespace mirage::shift
