// The muGraph that a program runs. Axes of a reduced index, of whichever kind, are one loop over its chunks; blocks and clusters of the
// other indices are the grid, and what warps, lanes and iterations of these share is one tile.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "mirage/schedule/program.h"
#include "mirage/support/round.h"

namespace mirage::schedule {
namespace {

struct Eraser {
  const KernelProgram& p;
  std::vector<int64_t> tile, grid;     // per index
  std::vector<int> axis;               // per index: of the muGraph's grid, 3: its loop, -1: none
  Launch launch;
  std::string reason;

  bool cut() {
    int next = 0;
    std::map<AxisId, int> grid_of;       // indices that one axis cuts are cut by one axis of the grid
    for (size_t i = 0; i < p.indices.size(); i++) {
      tile.push_back(p.indices[i].extent);
      axis.push_back(-1);
    }
    for (const Split& s : p.splits) {
      const auto i = static_cast<size_t>(s.index);
      if (s.reduced) {
        const int64_t chunks = ceil_div(p.indices[i].extent, s.tile);   // where a part ends within a tile, the muGraph's tile goes on
        if (launch.loop != 1 && launch.loop != chunks) return no("indices are reduced in different numbers of chunks");
        launch.loop = chunks;
        tile[i] = s.tile;
        axis[i] = 3;
        continue;
      }
      int64_t inside = s.tile;
      AxisId cut_by = -1;
      for (AxisId a : s.over) {
        const Axis& x = p.axes[static_cast<size_t>(a)];
        if (x.kind == AxisKind::kGrid || x.kind == AxisKind::kCluster) cut_by = a;
        else inside *= x.extent;
      }
      if (cut_by < 0 || inside >= p.indices[i].extent) continue;
      tile[i] = inside;
      const int64_t blocks = ceil_div(p.indices[i].extent, inside);
      const auto [known, is_new] = grid_of.try_emplace(cut_by, next);
      axis[i] = known->second;
      if (is_new && next == 3) return no("more than three indices are cut by the grid");
      if (!is_new && launch.grid[static_cast<size_t>(axis[i])] != blocks) return no("indices are cut into different numbers of blocks");
      if (is_new) launch.grid[static_cast<size_t>(next++)] = blocks;
    }
    return true;
  }

  bool no(std::string why) {
    if (reason.empty()) reason = std::move(why);
    return false;
  }

  Partition partition(const std::vector<IndexId>& of) const {
    Partition out;
    for (size_t d = 0; d < of.size(); d++) {
      if (of[d] < 0) continue;
      const int a = axis[static_cast<size_t>(of[d])];
      if (a == 3) out.loop = static_cast<int8_t>(d);
      else if (a >= 0) out.grid[static_cast<size_t>(a)] = static_cast<int8_t>(d);
    }
    return out;
  }

  bool is_cut(ValueId v) const {
    return std::any_of(p.index_of[static_cast<size_t>(v)].begin(), p.index_of[static_cast<size_t>(v)].end(),
                       [&](IndexId i) { return i >= 0 && axis[static_cast<size_t>(i)] >= 0; });
  }

  std::optional<Graph> rebuild() {
    Builder b(Level::kBlock, launch);
    const auto indices_of = [&](ValueId v) -> const std::vector<IndexId>& { return p.index_of[static_cast<size_t>(v)]; };
    for (NodeId n = 0; n < p.body.num_nodes(); n++) {
      const Node& node = p.body.node(n);
      if (const Input* in = p.body.form<Input>(n)) {
        Type t = p.body.type(node.first_value);
        const std::vector<IndexId>& of = indices_of(node.first_value);
        for (size_t d = 0; d < of.size(); d++) if (of[d] >= 0) t.dims[static_cast<int>(d)] = tile[static_cast<size_t>(of[d])];
        b.add_input(in->param, t, partition(of));
        continue;
      }
      Op op = node.op;
      if (Output* out = std::get_if<Output>(&op)) {
        out->part = partition(indices_of(node.operands[0]));
        if (out->part.loop >= 0) { no("a result along a reduced index"); return std::nullopt; }
      } else if (!std::holds_alternative<Map>(op) && !std::holds_alternative<MatMul>(op) && !std::holds_alternative<Reduce>(op) &&
                 !std::holds_alternative<Accum>(op) && !std::holds_alternative<Running>(op) && !std::holds_alternative<Transpose>(op) &&
                 !std::holds_alternative<Const>(op)) {
        for (ValueId v : node.operands)
          if (is_cut(v)) {
            no(fmt::format("{} along an index that is cut", form_name(op)));
            return std::nullopt;
          }
      }
      if (!b.try_add(std::move(op), node.operands)) { no(b.last_error()); return std::nullopt; }
    }
    Graph g = b.graph();
    std::vector<Type> operands;
    for (const Param& x : p.params) operands.push_back({x.dtype, x.dims});
    if (auto broken = mirage::check_laws(g, operands)) { no(*broken); return std::nullopt; }
    return g;
  }
};

}  // namespace

Erased erase(const KernelProgram& p) {
  Eraser e{p, {}, {}, {}, {}, {}};
  if (!e.cut()) return {std::nullopt, e.reason};
  std::optional<Graph> g = e.rebuild();
  return {std::move(g), e.reason};
}

}  // namespace mirage::schedule
