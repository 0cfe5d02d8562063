// BlockPlanner, first part: every value of a block graph as (batch, row, column), and which of its elements exist where tiles are ragged.
#include <algorithm>

#include "plan/block/block_planner.h"

namespace mirage {

bool BlockPlanner::shapes() {
  if (g().launch().blocks() > ((int64_t{1} << 31) - 1) / p_.cluster) return refuse("more blocks than a grid has");
  phase_ = phases(g());
  p_.extent_of.resize(at(g().num_values()));
  p_.existing.resize(at(g().num_values()));
  p_.tile_of.assign(at(g().num_values()), -1);
  users_ = g().users();
  for (ValueId v = 0; v < g().num_values(); v++) {
    const Dims& d = g().dims(v);
    int batches = 0;
    for (int i = 0; i + 2 < d.rank(); i++) batches += d[i] > 1;
    if (batches > 1) return refuse("a tile has two batch dimensions above 1: " + to_string(d));
    for (int k = 0; k < 3; k++) {
      const int i = dim_of(d, k);
      p_.extent_of[at(v)][static_cast<size_t>(k)] = i < 0 ? 1 : d[i];
    }
  }
  for (NodeId n = 0; n < g().num_nodes(); n++)
    if (!node_existing(n)) return false;
  return true;
}

bool BlockPlanner::node_existing(NodeId n) {
  const Node& node = g().node(n);
  if (node.first_value < 0) return true;
  auto& e = p_.existing[at(node.first_value)];
  const Dims& dims = g().dims(node.first_value);
  if (const auto* in = g().form<Input>(n)) {
    const Dims& whole = p_.operands[static_cast<size_t>(in->param)].dims;
    for (int d = 0; d < dims.rank(); d++) {
      int64_t grid = 1;
      for (size_t a = 0; a < 3; a++) if (in->part.grid[a] == d) grid = g().launch().grid[a];
      const int64_t loop = in->part.loop == d ? g().launch().loop : 1;
      if (dims[d] * grid * loop == whole[d]) continue;
      bool seen = false;
      for (int k = 0; k < 3; k++) if (dim_of(dims, k) == d) { e[static_cast<size_t>(k)] = {n, d}; seen = true; }
      if (!seen) return refuse("a ragged batch dimension");
    }
    return true;
  }
  auto of = [&](size_t i) -> const std::array<Existing, 3>& { return p_.existing[at(node.operands[i])]; };
  if (g().form<Const>(n)) return true;
  if (g().form<Map>(n)) {
    for (size_t i = 0; i < node.operands.size(); i++)
      for (size_t k = 0; k < 3; k++)
        // not what is broadcast; tiles of extent 1 can be empty, too
        if (p_.extent_of[at(node.operands[i])][k] == p_.extent_of[at(node.first_value)][k] && of(i)[k].input >= 0) e[k] = of(i)[k];
    return true;
  }
  if (g().form<MatMul>(n)) {
    e = {Existing{}, of(0)[1], of(1)[2]};
    for (size_t i : {size_t{1}, size_t{0}})
      if (p_.extent_of[at(node.operands[i])][0] == p_.extent_of[at(node.first_value)][0] && of(i)[0].input >= 0) e[0] = of(i)[0];
    return true;
  }
  if (const auto* r = g().form<Reduce>(n)) {
    const int k = index3(g().dims(node.operands[0]), r->dim);
    if (k < 0) return refuse("a reduction over a batch dimension of extent 1");
    const int64_t extent = g().dims(node.operands[0])[r->dim];
    if (r->group > 0 && r->group != extent) return refuse("a grouped reduction inside a block");
    e = of(0);
    e[static_cast<size_t>(k)] = {};
    return true;
  }
  if (g().form<Running>(n)) { e = of(0); return true; }
  if (g().form<Accum>(n)) {
    e = of(0);
    if (node.operands.size() > 1)
      for (const Existing& x : of(1))
        if (x.input >= 0 && g().form<Input>(x.input)->part.loop == x.dim)
          return refuse("a running maximum along a dimension that the loop splits");
    for (Existing& x : e) {   // the first iteration is whole, so the accumulated tile is
      if (x.input < 0 || g().form<Input>(x.input)->part.loop != x.dim) continue;
      const auto& grid = g().form<Input>(x.input)->part.grid;
      // a block's first iteration may be short
      if (std::find(grid.begin(), grid.end(), x.dim) != grid.end())
        return refuse("an accumulator over a ragged dimension that the grid splits too");
      x = {};
    }
    return true;
  }
  if (const auto* t = g().form<Transpose>(n)) {
    const int r = dims.rank();
    for (int i = 0; i + 2 < r; i++)
      if (t->perm[static_cast<size_t>(i)] != i) return refuse("a transpose of batch dimensions inside a block");
    e = of(0);
    if (r >= 2 && t->perm[static_cast<size_t>(r - 1)] != r - 1) std::swap(e[1], e[2]);
    return true;
  }
  return refuse(std::string("no code for ") + form_name(node.op) + " inside a block");
}

int BlockPlanner::index3(const Dims& d, int dim) {
  for (int k = 0; k < 3; k++) if (dim_of(d, k) == dim) return k;
  return -1;
}

}  // namespace mirage
