// Program: a spec after reading. Names and storage facts of inputs and outputs, and the reference graph, in primitives, that says what is
// computed.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>
#include "mirage/ir/graph.h"

namespace mirage {

struct TensorInfo {
  std::string name;                                  ///< as in the spec; generated code may mangle it
  Type type;                                         ///< never kReal
  Dims strides;                                      ///< elements, one per dimension; row-major unless the spec says otherwise
  std::optional<std::pair<double, double>> range;    ///< values that the user promises, inputs only
  bool by_value = false;                             ///< a scalar that callers pass by value ("shape": null); inputs of rank 0 only
};

struct Numerics {
  std::optional<double> rtol, atol;
  bool tf32 = false;
  bool exact = false;   ///< "intermediates": "exact": no value between nodes is kept in 16 bits unless the program casts it
};

struct Program {
  std::string name;
  std::string description;
  std::vector<TensorInfo> inputs;    ///< ABI order; input i is param i of the graph
  std::vector<TensorInfo> outputs;   ///< ABI order; output i is result i
  Numerics numerics;
  Graph graph;                       ///< kernel level, primitives only (no Call)
  /// per value of graph, the 16-bit type in which it may be kept because the spec's node-by-node evaluation keeps it so; kReal: it is exact
  /// (ir/kept.h). Empty: all are
  std::vector<DType> kept;
  std::string canonical;             ///< the canonical spec text; its hash is the spec id
};

}  // namespace mirage
