// The muGraph that a program runs. Axes of a reduced index, of whichever kind, are one loop over its chunks; blocks and clusters of the
// other indices are the grid, and what warps, lanes and iterations of these share is one tile.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "mirage/ir/walk.h"
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
      if (s.reduced && s.behind >= 0) continue;   // what is added up of it is a product in front of the loop
      if (s.reduced) {
        // An index that others are within is cut between its elements; where a part ends within a tile, the muGraph's tile goes on.
        const auto cut = static_cast<size_t>(s.outer < 0 ? s.index : s.outer);
        tile[cut] = p.tile_of(static_cast<IndexId>(cut));
        const int64_t chunks = ceil_div(p.indices[cut].extent, tile[cut]);
        if (launch.loop != 1 && launch.loop != chunks) return no("indices are reduced in different numbers of chunks");
        launch.loop = chunks;
        axis[cut] = 3;
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

  /// Whether v is made of something along an index that `is` says yes to.
  template <class F> bool is_along(ValueId v, F&& is) const {
    return find_below(p.body, v, [&](ValueId x) {
      const auto& of = p.index_of[static_cast<size_t>(x)];
      const bool is_input = std::holds_alternative<Input>(p.body.def(x).op);
      return is_input && std::any_of(of.begin(), of.end(), [&](IndexId i) { return i >= 0 && is(i); }) ? Look::kFound : Look::kInto;
    });
  }
  bool is_looped(ValueId v) const { return is_along(v, [&](IndexId i) { return axis[static_cast<size_t>(i)] == 3; }); }
  bool is_behind(ValueId v) const { return is_along(v, [&](IndexId i) { return p.split_of(i) && p.split_of(i)->behind >= 0; }); }
  /// The sum of v over the loop's chunks and those behind them: terms of the latter are whole products, which nothing is added to.
  ValueId accumulated(Builder& b, const Accum& a, ValueId v, const std::vector<ValueId>& to, std::map<ValueId, ValueId>& known) const {
    if (const auto it = known.find(v); it != known.end()) return it->second;
    const Node& n = p.body.def(v);
    const auto* m = std::get_if<Map>(&n.op);
    ValueId made = to[static_cast<size_t>(v)];
    if (m && m->fn == MapFn::kAdd && is_looped(v) && is_behind(v)) {
      std::vector<ValueId> terms;
      for (ValueId o : n.operands) terms.push_back(accumulated(b, a, o, to, known));
      made = b.map(MapFn::kAdd, std::move(terms));
    } else if (is_looped(v)) {
      made = b.add(a, {made});
    }
    return known[v] = made;
  }

  std::optional<Graph> rebuild() {
    Builder b(Level::kBlock, launch);
    const bool has_second = std::any_of(p.splits.begin(), p.splits.end(), [](const Split& s) { return s.behind >= 0; });
    std::vector<ValueId> to(static_cast<size_t>(p.body.num_values()), -1);
    const auto indices_of = [&](ValueId v) -> const std::vector<IndexId>& { return p.index_of[static_cast<size_t>(v)]; };
    for (NodeId n = 0; n < p.body.num_nodes(); n++) {
      const Node& node = p.body.node(n);
      if (const Input* in = p.body.form<Input>(n)) {
        Type t = p.body.type(node.first_value);
        const std::vector<IndexId>& of = indices_of(node.first_value);
        for (size_t d = 0; d < of.size(); d++) if (of[d] >= 0) t.dims[static_cast<int>(d)] = tile[static_cast<size_t>(of[d])];
        to[static_cast<size_t>(node.first_value)] = b.add_input(in->param, t, partition(of));
        continue;
      }
      Op op = node.op;
      if (const auto* a = std::get_if<Accum>(&op); a && has_second && a->degree == 0) {
        std::map<ValueId, ValueId> sums;
        to[static_cast<size_t>(node.first_value)] = accumulated(b, *a, node.operands[0], to, sums);
        continue;
      }
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
      std::vector<ValueId> operands;
      for (ValueId v : node.operands) operands.push_back(to[static_cast<size_t>(v)]);
      const auto made = b.try_add(std::move(op), operands);
      if (!made) { no(b.last_error()); return std::nullopt; }
      for (int i = 0; i < node.num_values; i++) to[static_cast<size_t>(node.first_value + i)] = *made + i;
    }
    Graph g = has_second ? remove_dead(b.graph()) : b.graph();   // sums of both
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
