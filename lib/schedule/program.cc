// Tables of units, paths, ways and layouts, and questions about a program.
#include "mirage/schedule/program.h"

#include <algorithm>

#include "mirage/ir/index_map.h"
#include "mirage/support/round.h"
#include "mirage/schedule/words.h"

namespace mirage::schedule {

const UnitInfo& unit_info(UnitId u) {
  static const UnitInfo rows[] = {
#define MIRAGE_UNIT(id, name, reduced, shared, dtypes, help) {#name, reduced, shared, dtypes, help},
#include "mirage/schedule/units.def"
  };
  return rows[static_cast<size_t>(u)];
}

const PathInfo& path_info(PathId p) {
  static const PathInfo rows[] = {
#define MIRAGE_PATH(id, name, tracked, help) {#name, tracked, help},
#include "mirage/schedule/paths.def"
  };
  return rows[static_cast<size_t>(p)];
}

const WayInfo& way_info(WayId w) {
  static const WayInfo rows[] = {
#define MIRAGE_WAY(id, name, lanes, block, cluster, grid, help) {#name, lanes, block, cluster, grid, help},
#include "mirage/schedule/ways.def"
  };
  return rows[static_cast<size_t>(w)];
}

const LayoutInfo& layout_info(LayoutId l) {
  static const LayoutInfo rows[] = {
#define MIRAGE_LAYOUT(id, name, open, help) {#name, open, help},
#include "mirage/schedule/layouts.def"
  };
  return rows[static_cast<size_t>(l)];
}

int64_t Place::elements() const {
  int64_t n = box.empty() ? 0 : 1;
  for (int64_t e : box) n *= e;
  return n;
}

int64_t Place::bytes() const {
  int64_t lines = 1;
  for (size_t i = 0; i + 1 < box.size(); i++) lines *= box[i];
  if (box.empty()) return 0;
  return lines * (pitch ? pitch : box.back() * dtype_bytes(dtype));
}

int64_t Index::tiles(int64_t tile) const { return (first > 0 ? ceil_div(first, tile) : 0) + ceil_div(extent - first, tile); }

KernelProgram alone(const KernelProgram& p, const Beside& other) {
  KernelProgram out = p;
  out.beside.clear();
  out.indices[at(other.index)].extent = other.extent;
  for (const auto& [i, x] : other.params) out.params[at(i)] = x;
  for (const auto& [i, x] : other.results) out.results[at(i)] = x;
  std::erase_if(out.assumes, [&](const Assumption& a) { return a.index == other.index; });
  for (const Split& s : out.splits) {
    if (s.index != other.index || s.over.empty()) continue;
    int64_t inside = s.tile;
    for (size_t i = 1; i < s.over.size(); i++) inside *= out.axes[at(s.over[i])].extent;
    out.axes[at(s.over[0])].extent = ceil_div(other.extent, inside);
  }
  Builder b(Level::kBlock, p.body.launch());
  for (NodeId n = 0; n < p.body.num_nodes(); n++) {
    const Node& node = p.body.node(n);
    if (const Input* in = p.body.form<Input>(n))
      b.add_input(in->param, {p.body.type(node.first_value).dtype, out.params[at(in->param)].dims}, in->part);
    else if (!b.try_add(node.op, node.operands)) { out.body = Graph(); return out; }   // then it breaks the first law
  }
  out.body = b.graph();
  return out;
}

int64_t KernelProgram::parts(AxisKind kind) const {
  int64_t n = 1;
  for (const Axis& a : axes) if (a.kind == kind) n *= a.extent;
  return n;
}

constexpr int64_t kMostParts = 1 << 20;   // in texts that people write

int KernelProgram::parts(const Split& s, AxisKind kind) const {
  int64_t n = 1;
  for (AxisId a : s.over) if (axes[at(a)].kind == kind) n = std::min(n * axes[at(a)].extent, kMostParts);
  return static_cast<int>(n);
}

const Split* KernelProgram::reduced() const {
  const auto at = std::find_if(splits.begin(), splits.end(), [](const Split& s) { return s.reduced && s.behind < 0; });
  return at == splits.end() ? nullptr : &*at;
}

int KernelProgram::slots() const {
  int most = 1;
  for (const Role& r : roles)
    for (const Item& i : r.items)
      for (StageId s : i.body)
        if (const Stage& x = stages[at(s)]; x.kind == Stage::Kind::kCopy && places[at(x.to)].section >= 0)
          most = std::max(most, sections[at(places[at(x.to)].section)].slots);
  return most;
}

int64_t KernelProgram::blocks() const { return parts(AxisKind::kGrid) * parts(AxisKind::kCluster); }

int64_t KernelProgram::rounds() const { return stay > 0 ? ceil_div(blocks(), stay) : 1; }

int64_t KernelProgram::tile_of(IndexId i) const {
  const Split* s = split_of(i);
  if (!s) return indices[at(i)].extent;
  if (s->outer < 0) return s->tile;
  const int64_t inner = indices[at(s->index)].extent;
  return i == s->outer ? std::max<int64_t>(1, s->tile / inner) : std::min(s->tile, inner);
}

int64_t KernelProgram::chunks(const Split& s) const {
  if (s.outer >= 0) return ceil_div(indices[at(s.index)].extent * indices[at(s.outer)].extent, s.tile);
  int64_t n = indices[at(s.index)].tiles(s.tile);
  for (const Split& x : splits) if (x.behind == s.index) n += indices[at(x.index)].tiles(x.tile);
  return n;
}

const Split* KernelProgram::split_of(IndexId i) const {
  const auto at = std::find_if(splits.begin(), splits.end(), [&](const Split& s) { return s.index == i || (i >= 0 && s.outer == i); });
  return at == splits.end() ? nullptr : &*at;
}

const Split* KernelProgram::split_of_axis(AxisId a) const {
  const auto at = std::find_if(splits.begin(), splits.end(),
                               [&](const Split& s) { return std::find(s.over.begin(), s.over.end(), a) != s.over.end(); });
  return at == splits.end() ? nullptr : &*at;
}

std::vector<IndexId> result_indices(const Op& op, std::span<const Type> operands, std::span<const std::vector<IndexId>> of, int rank) {
  std::vector<IndexId> out(static_cast<size_t>(rank), -1);
  const IndexMap map = index_map(op, operands);
  for (size_t k = 0; k < map.operands.size() && k < of.size(); k++)
    for (size_t d = 0; d < map.operands[k].size(); d++) {
      const DimLink& link = map.operands[k][d];
      if (link.kind == DimLink::Kind::kAligned && of[k][d] >= 0) out[static_cast<size_t>(link.dim)] = of[k][d];
    }
  return out;
}

}  // namespace mirage::schedule
