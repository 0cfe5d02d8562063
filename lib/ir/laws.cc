// The laws of muGraphs (OSDI'25 definition 2.1), numbered; asserts, tests and messages cite the numbers.
//   1 nodes are topological, ids dense            2 types are what infer says          3 forms stand at their level
//   4 a path from a value that the loop splits crosses exactly one accumulator, other paths none
//     (a running maximum stands in the loop and does not count; only one of those rescales an accumulator)
//   5 a partition divides its dimension, or leaves one ragged tail and no empty block; every grid axis above 1 splits every output
//   6 bodies are one level down                   7 no dead node                       8 inputs and outputs are numbered densely
#include <algorithm>

#include "mirage/ir/graph.h"
#include "mirage/ir/index_map.h"

namespace mirage {
namespace {

using Broken = std::optional<std::string>;
Broken law(int n, const std::string& text) { return "law " + std::to_string(n) + ": " + text; }
std::string at(NodeId n) { return " (node " + std::to_string(n) + ")"; }

bool allowed(const Op& op, Level level) {
  if (std::holds_alternative<Accum>(op) || std::holds_alternative<Running>(op)) return level == Level::kBlock;
  if (std::holds_alternative<Iota>(op)) return level == Level::kKernel;
  if (std::holds_alternative<Call>(op)) return level != Level::kThread;
  if (std::holds_alternative<MatMul>(op)) return level != Level::kThread;
  return true;
}

Broken check_node(const Graph& g, NodeId n) {
  const Node& node = g.node(n);
  for (ValueId v : node.operands)
    if (v < 0 || v >= g.num_values() || g.value(v).node >= n) return law(1, "operand is not defined before its use" + at(n));
  for (int i = 0; i < node.num_values; i++)
    if (const Value& v = g.value(node.first_value + i); v.node != n || v.index != i) return law(1, "value ids are not dense" + at(n));
  if (!allowed(node.op, g.level()))
    return law(3, std::string(form_name(node.op)) + " does not stand at " + level_name(g.level()) + " level" + at(n));
  if (const auto* c = std::get_if<Call>(&node.op); c && static_cast<int>(c->body->level()) != static_cast<int>(g.level()) + 1)
    return law(6, "a body is not one level down" + at(n));
  const auto part = std::holds_alternative<Input>(node.op)    ? std::get<Input>(node.op).part
                    : std::holds_alternative<Output>(node.op) ? std::get<Output>(node.op).part
                                                              : Partition{};
  if (g.level() != Level::kBlock && !part.is_whole()) return law(5, "partitions stand in block graphs only" + at(n));
  if (std::holds_alternative<Input>(node.op) || std::holds_alternative<Output>(node.op)) {
    const int rank = g.dims(std::holds_alternative<Input>(node.op) ? node.first_value : node.operands[0]).rank();
    // whatever the extent of the axis: who walks axes looks at the dimension that each names
    for (const int d : {part.grid[0], part.grid[1], part.grid[2], part.loop})
      if (d < -1 || d >= rank)
        return law(5, "a partition names dimension " + std::to_string(d) + " of a tensor with " + std::to_string(rank) + at(n));
  }
  if (std::holds_alternative<Input>(node.op)) return std::nullopt;
  std::vector<Type> in;
  for (ValueId v : node.operands) in.push_back(g.type(v));
  Inferred r = infer(node.op, in, g.level());
  if (!r.ok()) return law(2, r.error + at(n));
  if (static_cast<int>(r.types.size()) != node.num_values) return law(2, "wrong number of values" + at(n));
  for (int i = 0; i < node.num_values; i++)
    if (!(r.types[static_cast<size_t>(i)] == g.type(node.first_value + i)))
      return law(
          2, "stored type " + to_string(g.type(node.first_value + i)) + ", inferred " + to_string(r.types[static_cast<size_t>(i)]) + at(n));
  if (const auto* c = std::get_if<Call>(&node.op)) return check_laws(*c->body, in);
  return std::nullopt;
}

Broken check_loop(const Graph& g) {
  std::vector<Phase> phase = phases(g);
  auto of = [&](ValueId v) { return phase[static_cast<size_t>(v)]; };
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    bool loop = false, after = false;
    for (ValueId v : node.operands) { loop |= of(v) == Phase::kLoop; after |= of(v) == Phase::kAfter; }
    if (loop && after) return law(4, "a value of the loop meets one behind an accumulator" + at(n));
    if (g.form<Accum>(n) && !loop) return law(4, "an accumulator of a value that the loop does not split" + at(n));
    if (g.form<Running>(n) && !loop) return law(4, "a running maximum of a value that the loop does not split" + at(n));
    if (const auto* a = g.form<Accum>(n); a && a->degree) {
      if (!g.def_form<Running>(node.operands[1])) return law(4, "an accumulator rescaled by what is not a running maximum" + at(n));
      if (of(node.operands[0]) != Phase::kLoop) return law(4, "an accumulator of a value that the loop does not split" + at(n));
    }
    if (const auto* o = g.form<Output>(n)) {
      if (loop) return law(4, "an output of a value of the loop" + at(n));
      if (o->part.loop >= 0) return law(5, "an output is not split by the loop" + at(n));
    }
  }
  return std::nullopt;
}

Broken check_numbering(const Graph& g) {
  std::vector<NodeId> outs = g.outputs();
  for (size_t i = 0; i < outs.size(); i++)
    if (g.form<Output>(outs[i])->result != static_cast<int>(i)) return law(8, "outputs are not numbered densely");
  std::vector<std::vector<NodeId>> users = g.users();
  for (ValueId v = 0; v < g.num_values(); v++) {
    if (!users[static_cast<size_t>(v)].empty()) continue;
    const NodeId n = g.value(v).node;
    // an unused program input stays in the ABI
    const bool spare = g.node(n).num_values > 1 || (g.form<Input>(n) && g.level() == Level::kKernel);
    if (!spare) return law(7, "value " + std::to_string(v) + " is dead");
  }
  return std::nullopt;
}

Broken check_extent(int64_t extent, int64_t tile, int64_t grid, int64_t loop, const std::string& what) {
  if (tile < 1 || tile * grid * loop < extent)
    return law(5, what + ": tiles of " + std::to_string(tile) + " do not cover extent " + std::to_string(extent));
  if (tile * loop * (grid - 1) >= extent) return law(5, what + ": a whole block is empty");
  if (grid == 1 && tile * (loop - 1) >= extent) return law(5, what + ": a whole iteration is empty");
  return std::nullopt;
}

/// How a dimension of a tile is cut from its tensor: by which axis (1 to 3: of the grid; 4 more: by the loop, too), and the tensor's
/// extent. 0: never shorter than the tile. -1: not known.
struct Cut { int axis = 0; int64_t whole = 0; friend bool operator==(const Cut&, const Cut&) = default; };
using Cuts = std::vector<Cut>;

/// Values of equal tiles that end at different places have no common elements in the last block: law 5. Where a form moves or joins
/// elements along a cut dimension nothing is said of the result.
Broken check_tails(const Graph& g, std::span<const Type> operands) {
  std::vector<Cuts> cuts(static_cast<size_t>(g.num_values()));
  const auto meet = [&](NodeId n, ValueId a, int da, ValueId b, int db) -> Broken {
    if (g.dims(a)[da] != g.dims(b)[db] || g.dims(a)[da] == 1) return std::nullopt;   // broadcast
    const Cut &x = cuts[static_cast<size_t>(a)][static_cast<size_t>(da)], &y = cuts[static_cast<size_t>(b)][static_cast<size_t>(db)];
    if (x == y || x.axis < 0 || y.axis < 0) return std::nullopt;
    return law(5, "operands whose last tiles end at different places" + at(n));
  };
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    if (node.first_value < 0) continue;
    for (int i = 0; i < node.num_values; i++)
      cuts[static_cast<size_t>(node.first_value + i)].assign(static_cast<size_t>(g.dims(node.first_value + i).rank()), Cut{-1, 0});
    Cuts& out = cuts[static_cast<size_t>(node.first_value)];
    const int rank = static_cast<int>(out.size());
    if (const auto* in = g.form<Input>(n)) {
      for (int d = 0; d < rank; d++) {
        const int64_t tile = g.dims(node.first_value)[d], whole = operands[static_cast<size_t>(in->param)].dims[d];
        int axis = 0;
        int64_t pieces = 1;
        for (size_t a = 0; a < 3; a++) if (in->part.grid[a] == d) axis = static_cast<int>(a) + 1, pieces *= g.launch().grid[a];
        if (in->part.loop == d) axis += 4, pieces *= g.launch().loop;
        out[static_cast<size_t>(d)] = tile * pieces == whole || tile == whole ? Cut{} : Cut{axis, whole};
      }
    } else if (g.form<Map>(n) || g.form<MatMul>(n) || g.form<Reduce>(n) || g.form<Transpose>(n)) {
      std::vector<Type> types;
      for (ValueId v : node.operands) types.push_back(g.type(v));
      const IndexMap map = index_map(node.op, types);
      // dimensions of operands that are one index: per dimension of the result; what is summed
      std::vector<std::vector<std::pair<ValueId, int>>> one(static_cast<size_t>(rank) + 1);
      for (size_t k = 0; k < node.operands.size(); k++)
        for (int d = 0; d < g.dims(node.operands[k]).rank(); d++) {
          const DimLink& link = map.operands[k][static_cast<size_t>(d)];
          const bool is_summed = link.kind == DimLink::Kind::kSummed;
          if (!is_summed && link.kind != DimLink::Kind::kAligned) continue;
          auto& list = one[static_cast<size_t>(is_summed ? rank : link.dim)];
          for (const auto& [v, e] : list)
            if (auto broken = meet(n, node.operands[k], d, v, e)) return broken;
          list.emplace_back(node.operands[k], d);
          // of a product the first one's
          if (is_summed || (out[static_cast<size_t>(link.dim)].axis >= 0 && g.form<Map>(n)) || (list.size() > 1 && g.form<MatMul>(n)))
            continue;
          out[static_cast<size_t>(link.dim)] = cuts[static_cast<size_t>(node.operands[k])][static_cast<size_t>(d)];
        }
    // over a dimension that the loop cuts the first iteration is whole, unless the last block has fewer elements than a tile
    } else if (g.form<Accum>(n)) {
      for (int d = 0; d < rank; d++)
        if (const Cut& c = cuts[static_cast<size_t>(node.operands[0])][static_cast<size_t>(d)]; c.axis >= 0)
          out[static_cast<size_t>(d)] = c.axis < 4 ? c : c.axis == 4 ? Cut{} : Cut{c.axis + 8, c.whole};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> check_extents(const Graph& g) {
  std::vector<const Dims*> params(static_cast<size_t>(g.num_params()), nullptr);
  for (NodeId n : g.inputs()) params[static_cast<size_t>(g.form<Input>(n)->param)] = &g.dims(g.node(n).first_value);
  auto check = [&](auto&& self, const Graph& body) -> Broken {
    for (const Node& node : body.nodes()) {
      if (const auto* c = std::get_if<Call>(&node.op))
        if (auto b = self(self, *c->body)) return b;
      const auto* c = std::get_if<Const>(&node.op);
      if (!c || c->extent_of.empty()) continue;
      double product = 1;
      for (auto [param, dim] : c->extent_of) {
        if (param < 0 || static_cast<size_t>(param) >= params.size() || !params[static_cast<size_t>(param)] || dim < 0 ||
            dim >= params[static_cast<size_t>(param)]->rank())
          return "const: there is no dimension " + std::to_string(dim) + " of an input " + std::to_string(param);
        product *= static_cast<double>((*params[static_cast<size_t>(param)])[dim]);
      }
      if (product != c->value)
        return "const " + std::to_string(c->value) + ": the extents that it names multiply to " + std::to_string(product);
    }
    return std::nullopt;
  };
  return check(check, g);
}

std::vector<Phase> phases(const Graph& g) {
  std::vector<Phase> out(static_cast<size_t>(g.num_values()), Phase::kInvariant);
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    Phase p = Phase::kInvariant;
    for (ValueId v : node.operands) p = std::max(p, out[static_cast<size_t>(v)]);
    if (const auto* in = g.form<Input>(n)) p = in->part.loop >= 0 ? Phase::kLoop : Phase::kInvariant;
    if (g.form<Accum>(n)) p = Phase::kAfter;
    for (int i = 0; i < node.num_values; i++) out[static_cast<size_t>(node.first_value + i)] = p;
  }
  return out;
}

std::optional<std::string> check_laws(const Graph& g) {
  for (NodeId n = 0; n < g.num_nodes(); n++)
    if (auto b = check_node(g, n)) return b;
  if (g.level() == Level::kBlock)
    if (auto b = check_loop(g)) return b;
  return check_numbering(g);
}

std::optional<std::string> check_laws(const Graph& body, std::span<const Type> operands) {
  if (auto b = check_laws(body)) return b;
  if (body.level() != Level::kBlock) return std::nullopt;
  std::array<bool, 3> split{};
  std::vector<bool> is_read(operands.size());
  for (NodeId n : body.inputs()) {
    const Input& in = *body.form<Input>(n);
    if (in.param < 0 || static_cast<size_t>(in.param) >= operands.size())
      return law(8, "input of an operand that the call does not have" + at(n));
    is_read[static_cast<size_t>(in.param)] = true;
    const Type& whole = operands[static_cast<size_t>(in.param)];
    const Type& tile = body.type(body.node(n).first_value);
    if (whole.dims.rank() != tile.dims.rank()) return law(5, "a tile has another rank than its tensor" + at(n));
    if (whole.dtype != tile.dtype) return law(2, "a tile has another dtype than its tensor" + at(n));
    for (int d = 0; d < whole.dims.rank(); d++) {
      int64_t grid = 1;
      for (size_t axis = 0; axis < 3; axis++)
        if (in.part.grid[axis] == d) {
          if (grid > 1) return law(5, "two grid axes split one dimension" + at(n));
          grid = body.launch().grid[axis];
          split[axis] = true;
        }
      const int64_t loop = in.part.loop == d ? body.launch().loop : 1;
      if (grid == 1 && loop == 1 && tile.dims[d] != whole.dims[d] &&
          !(in.part.loop == d || in.part.grid[0] == d || in.part.grid[1] == d || in.part.grid[2] == d))
        return law(5, "dimension " + std::to_string(d) + " is not split, yet tile and tensor differ" + at(n));
      if (auto b = check_extent(whole.dims[d], tile.dims[d], grid, loop,
                                "input " + std::to_string(in.param) + " dimension " + std::to_string(d)))
        return b;
    }
  }
  for (size_t i = 0; i < is_read.size(); i++)
    if (!is_read[i]) return law(8, "operand " + std::to_string(i) + " of a call is read by no input of its body");
  for (size_t axis = 0; axis < 3; axis++) {
    if (body.launch().grid[axis] < 1 || body.launch().loop < 1) return law(5, "grid and loop extents are at least 1");
    if (body.launch().grid[axis] == 1) continue;
    if (!split[axis]) return law(5, "a grid axis splits no input");
    for (NodeId n : body.outputs())
      if (body.form<Output>(n)->part.grid[axis] < 0)
        return law(5, "a grid axis does not split an output: blocks would write the same place" + at(n));
  }
  return check_tails(body, operands);
}

}  // namespace mirage
