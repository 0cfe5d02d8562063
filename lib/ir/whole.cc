// See the header.
#include "mirage/ir/whole.h"

#include <algorithm>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "mirage/ir/index_map.h"

namespace mirage {
namespace {

size_t place(int i) { return static_cast<size_t>(i); }

std::string at_full_extents(const Graph& body, std::span<const Dims> operands, Graph& out) {
  Builder b(Level::kBlock, Launch{});
  for (NodeId n = 0; n < body.num_nodes(); n++) {
    const Node& node = body.node(n);
    if (const Input* in = body.form<Input>(n)) {
      const Dims& dims = operands[place(in->param)];
      if (body.dims(node.first_value).rank() != dims.rank()) return "an operand of other dimensions than its tensor";
      b.add_input(in->param, {body.type(node.first_value).dtype, dims}, {{-1, -1, -1}, in->part.loop});
      continue;
    }
    Op op = node.op;
    if (Output* o = std::get_if<Output>(&op)) o->part = {};
    if (Const* c = std::get_if<Const>(&op)) c->extent_of.clear();   // sizes are numbers here
    if (Reduce* r = std::get_if<Reduce>(&op); r && (r->group == b.graph().dims(node.operands[0])[r->dim] ||
                                                    r->group == body.dims(node.operands[0])[r->dim])) r->group = 0;   // all that a tile has
    const bool known = std::holds_alternative<Map>(op) || std::holds_alternative<MatMul>(op) || std::holds_alternative<Accum>(op) ||
                       std::holds_alternative<Running>(op) || std::holds_alternative<Transpose>(op) || std::holds_alternative<Const>(op) ||
                       std::holds_alternative<Output>(op) || (std::holds_alternative<Reduce>(op) && std::get<Reduce>(op).group == 0);
    if (!known) return fmt::format("{} in the body", form_name(op));
    if (!b.try_add(std::move(op), node.operands)) return "a body that depends on its tiles: " + b.last_error();
  }
  if (auto broken = check_laws(b.graph())) return "a body that depends on its tiles: " + *broken;
  out = std::move(b).finish();
  return "";
}

/// Dimensions that are one index, joined over the whole body.
void label(Whole& w) {
  const Graph& g = w.body;
  std::vector<int> first(place(g.num_values()) + 1, 0);
  for (ValueId v = 0; v < g.num_values(); v++) first[place(v) + 1] = first[place(v)] + g.dims(v).rank();
  std::vector<int> parent(place(first.back()));
  std::iota(parent.begin(), parent.end(), 0);
  const auto root = [&](int x) { while (parent[place(x)] != x) x = parent[place(x)] = parent[place(parent[place(x)])]; return x; };
  const auto join = [&](int x, int y) { parent[place(root(x))] = root(y); };
  for (const Node& node : g.nodes()) {
    if (node.first_value < 0) continue;
    std::vector<Type> types;
    for (ValueId v : node.operands) types.push_back(g.type(v));
    const IndexMap map = index_map(node.op, types);
    int summed = -1;
    for (size_t k = 0; k < map.operands.size(); k++)
      for (size_t d = 0; d < map.operands[k].size(); d++) {
        const DimLink& link = map.operands[k][d];
        const int here = first[place(node.operands[k])] + static_cast<int>(d);
        if (link.kind == DimLink::Kind::kAligned) join(here, first[place(node.first_value)] + link.dim);
        if (link.kind != DimLink::Kind::kSummed) continue;
        if (summed >= 0) join(here, summed);
        summed = here;
      }
  }
  std::map<int, int> ids;
  for (ValueId v = 0; v < g.num_values(); v++) {
    std::vector<int> of;
    for (int d = 0; d < g.dims(v).rank(); d++) {
      const int64_t extent = g.dims(v)[d];
      if (extent == 1) { of.push_back(-1); continue; }
      const auto [it, is_new] = ids.try_emplace(root(first[place(v)] + d), static_cast<int>(w.extents.size()));
      if (is_new) w.extents.push_back(extent);
      of.push_back(it->second);
    }
    w.index_of.push_back(std::move(of));
  }
}

}  // namespace

Whole whole(const Graph& body, std::span<const Dims> operands) {
  Whole w;
  w.reason = at_full_extents(body, operands, w.body);
  if (w.reason.empty()) label(w);
  return w;
}

IndexCuts cuts(const Graph& body, const std::vector<std::vector<int>>& index_of) {
  IndexCuts out;
  std::vector<bool> known;
  for (const auto& of : index_of) for (int i : of) known.resize(std::max(known.size(), place(i + 1)), false);
  out.of.resize(known.size());
  const Launch& launch = body.launch();
  for (NodeId n : body.inputs()) {
    const Input& in = *body.form<Input>(n);
    const ValueId v = body.node(n).first_value;
    for (int d = 0; d < body.dims(v).rank(); d++) {
      const int i = index_of[place(v)][place(d)];
      if (i < 0) continue;
      IndexCut cut{body.dims(v)[d], -1, in.part.loop == d};
      for (int a = 0; a < 3; a++) if (in.part.grid[place(a)] == d && launch.grid[place(a)] > 1) cut.grid = a;
      if (known[place(i)] && !(out.of[place(i)] == cut)) out.reason = "an index that is cut in two ways";
      out.of[place(i)] = cut;
      known[place(i)] = true;
    }
  }
  return out;
}

}  // namespace mirage
