// Puts numbers into a structure: real extents, tiles, grids and loops. Called by the search itself for the ragged witness and by whoever
// chooses numbers for a verified structure.
#include <algorithm>
#include <map>

#include "mirage/support/round.h"
#include "search/problem/witness.h"

namespace mirage {
namespace {

/// Tiles of one call's inputs and the launch that they need.
struct Sizes { Launch launch; std::vector<Dims> tiles; };

/// The extents that axes and loop split, 0 where nothing is split; nullopt if one axis would split two extents.
std::optional<CallNumbers> extents_of(const Graph& body, const std::vector<Type>& operands) {
  CallNumbers out;
  auto merge = [](int64_t& to, int64_t e) { const bool same = to == 0 || to == e; to = e; return same; };
  for (NodeId n : body.inputs()) {
    const Input& in = *body.form<Input>(n);
    if (static_cast<size_t>(in.param) >= operands.size()) return std::nullopt;
    const Dims& whole = operands[static_cast<size_t>(in.param)].dims;
    for (size_t a = 0; a < 3; a++)
      if (in.part.grid[a] >= 0 && (in.part.grid[a] >= whole.rank() || !merge(out.grid_tile[a], whole[in.part.grid[a]])))
        return std::nullopt;
    if (in.part.loop >= 0 && (in.part.loop >= whole.rank() || !merge(out.loop_tile, whole[in.part.loop]))) return std::nullopt;
    for (int a = 0; a < 3; a++) if (in.part.loop >= 0 && in.part.grid[static_cast<size_t>(a)] == in.part.loop) out.chunk_axis = a;
  }
  return out;
}

std::optional<Sizes> sizes_of(const Graph& body, const std::vector<Type>& operands, CallNumbers numbers) {
  const auto extents = extents_of(body, operands);
  if (!extents) return std::nullopt;
  Sizes s;
  auto settle = [](int64_t& tile, int64_t extent) { tile = tile <= 0 ? extent : std::min(tile, extent); };
  for (size_t a = 0; a < 3; a++)
    if (const int64_t e = extents->grid_tile[a]; e > 0) {
      settle(numbers.grid_tile[a], e);
      s.launch.grid[a] = ceil_div(e, numbers.grid_tile[a]);
    }
  bool loop_in_chunk = false;   // a dimension that axis a splits too: the loop walks through the block's chunk of it
  for (NodeId n : body.inputs()) {
    const Partition& p = body.form<Input>(n)->part;
    if (p.loop < 0) continue;
    int64_t walked = extents->loop_tile;
    for (size_t a = 0; a < 3; a++) if (p.grid[a] == p.loop) { walked = numbers.grid_tile[a]; loop_in_chunk = true; }
    settle(numbers.loop_tile, walked);
    if (loop_in_chunk && walked % numbers.loop_tile != 0) return std::nullopt;   // a chunk is a whole number of tiles
    const int64_t loop = ceil_div(walked, numbers.loop_tile);
    if (s.launch.loop != 1 && s.launch.loop != loop) return std::nullopt;
    s.launch.loop = loop;
  }
  for (NodeId n : body.inputs()) {
    const Input& in = *body.form<Input>(n);
    Dims tile = operands[static_cast<size_t>(in.param)].dims;
    for (size_t a = 0; a < 3; a++) if (in.part.grid[a] >= 0) tile[in.part.grid[a]] = numbers.grid_tile[a];
    if (in.part.loop >= 0) tile[in.part.loop] = numbers.loop_tile;
    s.tiles.push_back(tile);
  }
  return s;
}

/// Dtypes aside: a piece of a larger program is searched with intermediates in the type that they would be stored in.
bool same_extents(const std::vector<Type>& a, const std::vector<Type>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Type& x, const Type& y) { return x.dims == y.dims; });
}

/// The node's counterpart in the world of `params`: that of the program's node that is the same over the extents of structures. None if it
/// is not clear which: inputs may have the same extents in two worlds by chance, and be cut elsewhere (10 of 16 elements in one, 6 of 16 in
/// the other). built: the operand in that world; of several nodes alike (queries and keys, as long as each other in the program alone) it
/// is one that takes such an operand.
std::optional<Op> look_up(const Graph& g, NodeId n, const Graph& built, const Worlds* worlds, const std::vector<Type>& params) {
  if (!worlds || worlds->all.empty()) return std::nullopt;
  const Graph& here = worlds->all[0].second;
  const Node& node = g.node(n);
  std::optional<Op> out;
  for (const auto& [types, there] : worlds->all) {
    if (!same_extents(types, params)) continue;
    for (NodeId m = 0; m < here.num_nodes(); m++) {
      if (!(here.node(m).op == node.op) || !(node.operands.empty() || here.dims(here.node(m).operands[0]) == g.dims(node.operands[0])))
        continue;
      if (!node.operands.empty() && !(there.dims(there.node(m).operands[0]) == built.dims(node.operands[0]))) continue;
      if (out && !(*out == there.node(m).op)) return std::nullopt;
      out = there.node(m).op;
    }
  }
  return out;
}

/// Dimensions that reshapes of this graph joined: in it, and over the new extents.
using Joined = std::vector<std::pair<Dims, Dims>>;

/// A reshape that the program does not have (products with several batch dimensions become batches of one, plan/plan.cc): what it joins is
/// a product, what it splits are the dimensions that were joined before.
std::optional<Reshape> joins_and_splits(const Dims& from, const Dims& to, const Dims& operand, Joined& joined) {
  const auto runs = search::reshape_runs(from, to);
  if (!runs || from.rank() != operand.rank()) return std::nullopt;
  Dims out = to;   // ones stay
  for (const search::Run& run : *runs) {
    Dims whole, parts;
    if (run.to.size() == 1) {
      int64_t product = 1;
      for (int d : run.from) { product *= operand[d]; whole.push_back(from[d]); parts.push_back(operand[d]); }
      out[run.to[0]] = product;
      if (run.from.size() > 1) joined.emplace_back(whole, parts);
      continue;
    }
    for (int d : run.to) whole.push_back(to[d]);
    std::optional<Dims> found;
    for (const auto& [full, now] : joined) {
      if (!(full == whole) || now.elements() != operand[run.from[0]]) continue;
      if (found && !(*found == now)) return std::nullopt;
      found = now;
    }
    if (!found) return std::nullopt;
    for (size_t i = 0; i < run.to.size(); i++) out[run.to[i]] = (*found)[static_cast<int>(i)];
  }
  return Reshape{out};
}

/// A repetition that the program does not have: one of a product's operands is as often there as the other has batches, in dimensions that
/// were joined before.
std::optional<Repeat> as_often(const Repeat& r, const Joined& joined) {
  std::optional<int64_t> count;
  for (const auto& [full, now] : joined)
    for (int d = 0; d < full.rank(); d++) {
      if (full[d] != r.count) continue;
      if (count && *count != now[d]) return std::nullopt;
      count = now[d];
    }
  return count ? std::optional(Repeat{r.dim, *count}) : std::nullopt;
}

/// The operator of node n over new extents: constants that stand for extents, reshapes that bring or drop ones, and what names extents of
/// the program.
std::optional<Op> follow(const Graph& g, NodeId n, const Graph& built, const std::vector<Type>& params, const Worlds* worlds = nullptr,
                         Joined* joined = nullptr) {
  const std::vector<ValueId>& operands = g.node(n).operands;
  Op out = g.node(n).op;
  if (std::holds_alternative<Slice>(out) || std::holds_alternative<Iota>(out)) return look_up(g, n, built, worlds, params);
  if (const auto* r = std::get_if<Reshape>(&out); r && !search::unit_reshape(g.dims(operands[0]), r->dims, g.dims(operands[0]))) {
    if (auto found = look_up(g, n, built, worlds, params)) return found;
    const auto own = joined ? joins_and_splits(g.dims(operands[0]), r->dims, built.dims(operands[0]), *joined) : std::nullopt;
    return own ? std::optional<Op>(*own) : std::nullopt;
  }
  if (const auto* r = std::get_if<Repeat>(&out); r && joined && worlds && g.dims(operands[0])[r->dim] == 1) {
    if (auto found = look_up(g, n, built, worlds, params)) return found;
    const auto own = as_often(*r, *joined);
    return own ? Op(*own) : out;
  }
  if (auto* c = std::get_if<Const>(&out); c && !c->extent_of.empty()) c->value = search::extent_value(*c, params);
  if (auto* r = std::get_if<Reshape>(&out)) {
    auto d = search::unit_reshape(g.dims(operands[0]), r->dims, built.dims(operands[0]));
    if (!d) return std::nullopt;
    r->dims = *d;
  }
  return out;
}

std::optional<Graph> instantiate_body(const Graph& body, const std::vector<Type>& operands, const std::vector<Type>& params,
                                      const CallNumbers& numbers) {
  const auto sizes = sizes_of(body, operands, numbers);
  if (!sizes) return std::nullopt;
  Builder b(Level::kBlock, sizes->launch);
  size_t next_input = 0;
  for (NodeId n = 0; n < body.num_nodes(); n++) {   // the same nodes in the same order: value ids stay
    const Node& node = body.node(n);
    if (const auto* in = body.form<Input>(n)) {
      b.add_input(in->param, {operands[static_cast<size_t>(in->param)].dtype, sizes->tiles[next_input++]}, in->part);
      continue;
    }
    auto op = follow(body, n, b.graph(), params);
    if (!op || !b.try_add(std::move(*op), node.operands)) return std::nullopt;
  }
  if (check_laws(b.graph(), operands)) return std::nullopt;
  return std::move(b).finish();
}

/// How often Repeats repeat, where the program does not say it: padding is as large as what it is joined with, matrices are as many as
/// those that they meet.
using Counts = std::map<NodeId, int64_t>;

/// The dimensions of a value with more than one element.
std::vector<int> long_dims(const Dims& dims) {
  std::vector<int> out;
  for (int d = 0; d < dims.rank(); d++) if (dims[d] > 1) out.push_back(d);
  return out;
}

/// A constant that is repeated, and reshaped only as to dimensions of one element: its Repeats, with the dimension of v that each makes.
/// None: v is something else.
std::vector<std::pair<NodeId, int>> padding(const Graph& g, ValueId v) {
  std::vector<std::pair<NodeId, int>> out;
  std::vector<int> of;   // which dimension of v each of x is
  for (int d = 0; d < g.dims(v).rank(); d++) of.push_back(d);
  for (ValueId x = v; !g.def_form<Const>(x); x = g.def(x).operands[0]) {
    const auto* r = g.def_form<Repeat>(x);
    if (!r && !g.def_form<Reshape>(x)) return {};
    const Dims &to = g.dims(x), &from = g.dims(g.def(x).operands[0]);
    if (r) {
      if (from[r->dim] != 1) return {};
      out.emplace_back(g.value(x).node, of[static_cast<size_t>(r->dim)]);
      continue;
    }
    const std::vector<int> is = long_dims(to), was = long_dims(from);
    if (is.size() != was.size()) return {};
    std::vector<int> next(static_cast<size_t>(from.rank()), -1);
    for (size_t i = 0; i < is.size(); i++) next[static_cast<size_t>(was[i])] = of[static_cast<size_t>(is[i])];
    of = std::move(next);
  }
  return out;
}

/// Counts for the padding among the operands of a concatenation, which `built` has at other extents than its other operands. Whether there
/// are any that are new.
bool fit_padding(const Graph& g, NodeId n, const Graph& built, Counts& counts) {
  const auto* joins = g.form<Concat>(n);
  if (!joins) return false;
  const std::vector<ValueId>& operands = g.node(n).operands;
  const auto like = std::find_if(operands.begin(), operands.end(), [&](ValueId v) { return padding(g, v).empty(); });
  bool fresh = false;
  for (ValueId v : operands)
    if (like != operands.end())
      for (const auto& [repeat, dim] : padding(g, v))
        if (dim >= 0 && dim != joins->dim && built.dims(v)[dim] != built.dims(*like)[dim])
          fresh = counts.try_emplace(repeat, built.dims(*like)[dim]).second || fresh;
  return fresh;
}

/// What v joins dimensions of; -1: it is no reshape.
ValueId joined_in(const Graph& g, ValueId v) { return g.def_form<Reshape>(v) ? g.def(v).operands[0] : -1; }

/// Counts for the operands of a call that are repeated because another has more matrices (plan/plan.cc), in a dimension that both join with
/// those beside it: as often as the other has it in `built`. Whether there are any that are new.
bool fit_batches(const Graph& g, NodeId n, const Graph& built, Counts& counts) {
  bool fresh = false;
  for (ValueId v : g.node(n).operands)
    for (ValueId u : g.node(n).operands) {
      const ValueId from = joined_in(g, v), like = joined_in(g, u);
      const auto* r = from < 0 || like < 0 || from == like ? nullptr : g.def_form<Repeat>(from);
      if (!r || g.def_form<Repeat>(like) || g.dims(from).rank() != g.dims(like).rank() || g.dims(g.def(from).operands[0])[r->dim] != 1 ||
          g.dims(like)[r->dim] != r->count || built.dims(like)[r->dim] == built.dims(from)[r->dim])
        continue;
      fresh = counts.try_emplace(g.value(from).node, built.dims(like)[r->dim]).second || fresh;
    }
  return fresh;
}

/// Walks the kernel level; `start` gives, at every beginning, what gives a call's body over its operands' types.
template <class F> std::optional<Graph> walk_kernel(const Structure& s, const std::vector<Type>& params, F&& start) {
  const Graph& g = s.graph;
  Counts counts;
  const auto walk = [&](auto&& on_call, bool& again) -> std::optional<Graph> {
    Builder b(Level::kKernel);
    Joined joined;
    for (NodeId n = 0; n < g.num_nodes(); n++) {
      const Node& node = g.node(n);
      if (const auto* in = g.form<Input>(n)) {
        if (static_cast<size_t>(in->param) >= params.size()) return std::nullopt;
        b.add_input(in->param, params[static_cast<size_t>(in->param)]);
        continue;
      }
      if (const auto* c = g.form<Call>(n)) {
        std::vector<Type> types;
        for (ValueId v : node.operands) types.push_back(b.graph().type(v));
        std::optional<Graph> body = on_call(*c->body, types);
        if (body && b.try_add(Call{std::make_shared<const Graph>(std::move(*body))}, node.operands)) continue;
        again = fit_batches(g, n, b.graph(), counts);
        return std::nullopt;
      }
      auto op = follow(g, n, b.graph(), params, s.worlds.get(), &joined);
      if (const auto own = counts.find(n); op && own != counts.end()) std::get<Repeat>(*op).count = own->second;
      if (op && b.try_add(std::move(*op), node.operands)) continue;
      again = op && fit_padding(g, n, b.graph(), counts);
      return std::nullopt;
    }
    if (check_laws(b.graph())) return std::nullopt;
    return std::move(b).finish();
  };
  for (NodeId known = 0; known <= g.num_nodes(); known++) {   // every walk finds the count of one Repeat more, or is the last
    bool again = false;
    std::optional<Graph> out = walk(start(), again);
    if (!again) return out;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Graph> instantiate(const Structure& s, const std::vector<Type>& params, const std::vector<CallNumbers>& numbers) {
  return walk_kernel(s, params, [&] {
    return [&, next = size_t{0}](const Graph& body, const std::vector<Type>& types) mutable -> std::optional<Graph> {
      if (next >= numbers.size()) return std::nullopt;
      return instantiate_body(body, types, params, numbers[next++]);
    };
  });
}

std::vector<CallNumbers> halve(std::vector<CallNumbers> extents) {
  for (CallNumbers& n : extents) {
    for (int64_t& t : n.grid_tile) t = (t + 1) / 2;
    n.loop_tile = (n.loop_tile + 1) / 2;
    if (n.chunk_axis < 0) continue;
    int64_t& chunk = n.grid_tile[static_cast<size_t>(n.chunk_axis)];
    if (chunk > 1) chunk += chunk % 2;
    n.loop_tile = (chunk + 1) / 2;
  }
  return extents;
}

std::vector<CallNumbers> split_extents(const Structure& s, const std::vector<Type>& params) {
  std::vector<CallNumbers> out;
  walk_kernel(s, params, [&] {
    out.clear();
    return [&](const Graph& body, const std::vector<Type>& types) -> std::optional<Graph> {
      auto e = extents_of(body, types);
      out.push_back(e.value_or(CallNumbers{}));
      return instantiate_body(body, types, params, CallNumbers{});   // one block, one iteration: results' types are those at any numbers
    };
  });
  return out;
}

}  // namespace mirage
