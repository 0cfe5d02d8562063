// The muGraph (OSDI'25 section 2): one graph type for kernel, block and thread level. Graphs are values: immutable once finished, indices
// instead of pointers, structural equality.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>
#include "mirage/ir/op.h"
#include "mirage/ir/types.h"

namespace mirage {

enum class Level : uint8_t { kKernel, kBlock, kThread };
const char* level_name(Level);

using ValueId = int32_t;   ///< dense index of a value in its graph; -1: none
using NodeId = int32_t;    ///< dense index of a node in its graph

/// Block level only: how often the body runs. Blocks along x, y, z; for-loop iterations per block (1: there is no loop).
struct Launch {
  std::array<int64_t, 3> grid{1, 1, 1};
  int64_t loop = 1;
  int64_t blocks() const { return grid[0] * grid[1] * grid[2]; }
  friend bool operator==(const Launch&, const Launch&) = default;
};

struct Node {
  Op op;
  std::vector<ValueId> operands;
  ValueId first_value = -1;   ///< -1: the node has no value (Output)
  int num_values = 0;
};

struct Value { NodeId node = -1; int index = 0; Type type; };   ///< the index-th value of `node`

class Graph {
 public:
  Level level() const { return level_; }
  const Launch& launch() const { return launch_; }
  int num_nodes() const { return static_cast<int>(nodes_.size()); }
  int num_values() const { return static_cast<int>(values_.size()); }
  const Node& node(NodeId n) const { return nodes_[static_cast<size_t>(n)]; }
  const Value& value(ValueId v) const { return values_[static_cast<size_t>(v)]; }
  const Type& type(ValueId v) const { return value(v).type; }
  const Dims& dims(ValueId v) const { return value(v).type.dims; }
  const Node& def(ValueId v) const { return node(value(v).node); }
  const std::vector<Node>& nodes() const { return nodes_; }
  template <class F> const F* form(NodeId n) const { return std::get_if<F>(&node(n).op); }
  template <class F> const F* def_form(ValueId v) const { return std::get_if<F>(&def(v).op); }
  std::vector<NodeId> inputs() const;                     ///< Input nodes in node order
  std::vector<NodeId> outputs() const;                    ///< Output nodes ordered by result
  int num_params() const;                                 ///< 1 + the largest param
  int num_results() const;
  std::vector<std::vector<NodeId>> users() const;         ///< per value, the nodes that read it, ascending
  uint64_t hash() const;                                  ///< structural
  friend bool operator==(const Graph&, const Graph&);
 private:
  friend class Builder;
  Level level_ = Level::kKernel;
  Launch launch_;
  std::vector<Node> nodes_;
  std::vector<Value> values_;
};

/// What infer says: the types of an operator's values, or one sentence why there are none.
struct Inferred {
  std::vector<Type> types;
  std::string error;
  bool ok() const { return error.empty(); }
};
/// Types of `op` on operands of the given types at `level`. Shapes and rules stand beside each form in op.h; Map results are kReal (kBool
/// for comparisons, the target for casts). Input, Iota and Const need no operands; an Input's type cannot be inferred and is given to
/// Builder::add_input.
Inferred infer(const Op& op, std::span<const Type> operands, Level level);

/// Grows a graph node by node; can go back to a mark (the search does). Every add checks with infer.
class Builder {
 public:
  explicit Builder(Level level, Launch launch = {});
  explicit Builder(Graph g) : graph_(std::move(g)) {}                             ///< continues a copy of g
  /// An input with its type: the whole tensor at kernel level, the (full, unclipped) tile at block level.
  ValueId add_input(int param, Type type, Partition part = {});
  /// nullopt (and last_error()) if infer refuses. The first value of the node, or -1 for Output.
  std::optional<ValueId> try_add(Op op, std::vector<ValueId> operands);
  ValueId add(Op op, std::vector<ValueId> operands);                              ///< aborts where try_add fails: for callers that know
  ValueId map(MapFn fn, std::vector<ValueId> operands) { return add(Map{fn}, std::move(operands)); }
  ValueId constant(double v) { return add(Const{v, {}}, {}); }
  void add_output(int result, ValueId v, DType dtype, Partition part = {}) { add(Output{result, part, dtype}, {v}); }
  const std::string& last_error() const { return error_; }
  const Graph& graph() const { return graph_; }
  void set_launch(Launch launch) { graph_.launch_ = launch; }
  struct Mark { int nodes, values; };
  Mark mark() const { return {graph_.num_nodes(), graph_.num_values()}; }
  void rollback(Mark);
  Graph finish() &&;                                                              ///< checks the laws in checked builds
 private:
  Graph graph_;
  std::string error_;
};

/// nullopt if g obeys the laws (laws.cc numbers them), else "law 3: ...". `operand_types`: for a block graph, the types of the call's
/// operands (checks partitions).
std::optional<std::string> check_laws(const Graph& g);
std::optional<std::string> check_laws(const Graph& body, std::span<const Type> operand_types);

/// nullopt if every constant of g and of the bodies it calls that names extents (Const::extent_of) names dimensions that g's inputs have,
/// with their product as its value. Readers of text ask.
std::optional<std::string> check_extents(const Graph& g);

/// Block level: which phase each value belongs to. kInvariant: the same in every iteration, before the loop; kLoop: differs by iteration;
/// kAfter: behind an accumulator.
enum class Phase : uint8_t { kInvariant, kLoop, kAfter };
std::vector<Phase> phases(const Graph& body);

/// The type of the whole tensor that a block output writes: tile extents multiplied back, clipped to what the operands' extents say.
/// result_types(body, operand types)[r] is the type of result r.
Inferred result_types(const Graph& body, std::span<const Type> operand_types);

/// g without nodes that no output needs, ids dense again; inputs stay. to: per value of g, its id there; -1: it is gone.
Graph remove_dead(const Graph& g, std::vector<ValueId>* to = nullptr);

std::string print(const Graph&, const std::string& name = "main");   ///< the text form (docs/spec.md); spec/text.h parses it
std::string dot(const Graph&, const std::string& name = "main");     ///< Graphviz, one cluster per level

}  // namespace mirage
