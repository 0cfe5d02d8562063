// Which values of a program may be kept in 16 bits (docs/spec.md, "Meaning"): the results of nodes as the spec writes them, where tensors
// of one 16-bit dtype make them, as PyTorch keeps them. What an operator is made of (a softmax's exponentials, a norm's squares) stays
// exact. Built beside the graph while nodes become primitives.
#pragma once
#include <span>
#include <utility>
#include <vector>
#include "spec/operators/emitter.h"

namespace mirage::spec {

class StorageTypes {
 public:
  explicit StorageTypes(Emitter& emit) : emit_(emit) {}

  /// Before a node is built; its operands' values.
  void begin(const std::vector<ValueId>& operands);
  /// The node's results. operand_types: as given by the spec and by this call for other nodes; kBool for numbers. cast_to: of a cast, kReal
  /// otherwise. Returns the result's type for nodes that read it.
  DType end(std::span<const ValueId> results, std::span<const DType> operand_types, DType cast_to, bool exact);

  /// Program::kept for the finished graph, of which value at[v] is the emitter's v (-1: it is not there). outputs: an output that declares
  /// another type than its value would be kept in wants it exact.
  std::vector<DType> kept(const Graph& finished, const std::vector<ValueId>& at,
                          const std::vector<std::pair<ValueId, DType>>& outputs) const;

  /// The type that reading the normal form again gives each value of a graph in primitives (kBool: it has no say), which is the most that
  /// `kept` can say of it.
  static std::vector<DType> types_in_primitives(const Graph&);

 private:
  /// What v shows: v without reshapes and transpositions.
  ValueId base(ValueId v) const;

  Emitter& emit_;
  std::vector<ValueId> operands_;
  std::vector<DType> result_;        ///< by emitter value: as a node's result
  std::vector<bool> inside_;         ///< by emitter value: of an operator's own
};

}  // namespace mirage::spec
