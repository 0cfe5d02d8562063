// Reduced shapes: see the header. Which dimensions must stay equal is read off the program's witness, whose extents differ wherever dimensions may.
#include "driver/reduce.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>

#include "driver/candidates.h"
#include "mirage/plan/block_plan.h"
#include "mirage/plan/replan.h"
#include "mirage/plan/stream.h"
#include "mirage/plan/tile.h"

namespace mirage {

namespace {

/// What one class of dimensions has to hold: tiles of grids and loops, iterations that loops want.
struct Wish { int64_t extent = 0, grid_tile = 0, loop_tile = 0, iterations = 1; };

/// The tiles that a call's body was made with.
CallNumbers numbers_of(const Graph& body) {
  CallNumbers n;
  for (NodeId i : body.inputs()) {
    const Input& in = *body.form<Input>(i);
    const Dims& tile = body.dims(body.node(i).first_value);
    for (size_t a = 0; a < 3; a++)
      if (in.part.grid[a] >= 0) n.grid_tile[a] = tile[in.part.grid[a]] * (in.part.loop == in.part.grid[a] ? body.launch().loop : 1);
    if (in.part.loop >= 0) n.loop_tile = tile[in.part.loop];
  }
  return n;
}

/// Iterations after which every slot of the kernel's rings was used twice.
int64_t iterations_wanted(const KernelPlan& k) {
  if (const auto* b = std::get_if<std::shared_ptr<const BlockPlan>>(&k.body)) return int64_t{(*b)->cluster} * (*b)->loop_warps * ((*b)->stages + 3);
  if (const auto* t = std::get_if<std::shared_ptr<const TilePlan>>(&k.body)) return int64_t{(*t)->cluster} * ((*t)->stages + 2);
  if (const auto* s = std::get_if<std::shared_ptr<const StreamPlan>>(&k.body)) return int64_t{(*s)->cluster} * (*s)->warps * ((*s)->stages + 2);
  return 4;
}

int64_t reduced_extent(const Wish& w, bool tails) {
  int64_t e = w.extent;
  const auto shrink = [&](int64_t tile, int64_t pieces) {   // that many tiles of the dimension, with its own tail
    if (tile <= 0 || tile >= w.extent) return;
    const int64_t all = (w.extent + tile - 1) / tile, rest = w.extent % tile;
    e = tile * (std::min(all, pieces) - 1) + (rest ? rest : tile);
  };
  if (w.loop_tile > 0) shrink(w.loop_tile, w.iterations);
  else if (w.grid_tile > 0) shrink(w.grid_tile, 2);
  else if (w.extent > 512) e = 256 + w.extent % 64;
  if (w.grid_tile > 0 && w.loop_tile > 0) e = std::max(e, std::min(w.extent, 2 * w.grid_tile));
  const int64_t tile = w.loop_tile > 0 ? w.loop_tile : w.grid_tile;
  if (tails && tile > 0 && e % tile == 0 && e > tile) e -= tile > 8 ? std::max<int64_t>(8, tile / 16 * 8) : tile > 1 ? 1 : 0;
  return e;
}

/// Strides in the order that they have, with the same padding.
Dims reduced_strides(const Dims& dims, const Dims& strides, const Dims& reduced) {
  std::vector<int> order;
  for (int d = 0; d < dims.rank(); d++) order.push_back(d);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return strides[a] < strides[b]; });
  Dims out = strides;
  int64_t was = 1, is = 1;   // of a dense tensor so far
  for (int d : order) {
    const int64_t padding = strides[d] - was;
    out[d] = dims[d] == 1 ? strides[d] : padding >= 0 ? is + padding % std::max<int64_t>(is * 4, 64) : is;
    if (dims[d] == 1) continue;
    was = strides[d] * dims[d];
    is = out[d] * reduced[d];
  }
  return out;
}

}  // namespace

Reduced reduce_plan(const Program& program, const Plan& full, const Target& target, bool tails) {
  Reduced out;
  const Witnesses witnesses = make_witnesses(program);
  if (!witnesses.refusal.empty()) { out.refusal = witnesses.refusal; return out; }
  const std::vector<Type>& small = witnesses.variants[0].params;
  const std::vector<Type> params = param_types(program);
  const Structure structure{full.graph, 0, 0};
  const std::vector<CallNumbers> classes = split_extents(structure, small);
  std::vector<CallNumbers> numbers;
  std::vector<const KernelPlan*> kernels;
  for (NodeId n = 0; n < full.graph.num_nodes(); n++) {
    const auto* call = full.graph.form<Call>(n);
    if (!call) continue;
    numbers.push_back(numbers_of(*call->body));
    const KernelPlan* of = nullptr;
    for (const KernelPlan& k : full.kernels) if (std::find(k.nodes.begin(), k.nodes.end(), n) != k.nodes.end()) of = &k;
    kernels.push_back(of);
  }
  if (classes.size() != numbers.size()) { out.refusal = "the plan's calls do not follow a change of extents"; return out; }

  std::map<int64_t, Wish> wishes;   // by witness extent, which names the class
  for (size_t i = 0; i < params.size(); i++)
    for (int d = 0; d < params[i].dims.rank(); d++)
      if (params[i].dims[d] > 1) wishes[small[i].dims[d]].extent = params[i].dims[d];
  for (size_t c = 0; c < numbers.size(); c++) {
    const auto* stream = kernels[c] ? std::get_if<std::shared_ptr<const StreamPlan>>(&kernels[c]->body) : nullptr;
    const auto* tile = kernels[c] ? std::get_if<std::shared_ptr<const TilePlan>>(&kernels[c]->body) : nullptr;
    const int64_t own = stream ? 64 : tile ? std::max<int64_t>((*tile)->block_columns(), (*tile)->row_blocks > 1 ? (*tile)->block_rows() : 0) : 0;   // strategies with tiles of their own
    for (size_t a = 0; a < 3; a++)
      if (auto it = wishes.find(classes[c].grid_tile[a]); it != wishes.end()) it->second.grid_tile = std::max(it->second.grid_tile, own ? own : numbers[c].grid_tile[a]);
    if (auto it = wishes.find(classes[c].loop_tile); it != wishes.end()) {
      it->second.loop_tile = std::max(it->second.loop_tile, stream ? int64_t{(*stream)->chunk} : tile ? int64_t{(*tile)->chunk} : numbers[c].loop_tile);
      it->second.iterations = std::max(it->second.iterations, kernels[c] ? iterations_wanted(*kernels[c]) : 4);
    }
  }
  std::map<int64_t, int64_t> extent;
  for (const auto& [name, w] : wishes) extent[name] = w.extent > 0 ? reduced_extent(w, tails) : 1;

  std::vector<Type> types = params;
  for (size_t i = 0; i < types.size(); i++)
    for (int d = 0; d < types[i].dims.rank(); d++)
      if (types[i].dims[d] > 1) types[i].dims[d] = extent.at(small[i].dims[d]);
  const std::optional<Graph> reference = instantiate(Structure{program.graph, 0, 0}, types, {});
  const std::optional<Graph> graph = instantiate(structure, types, numbers);
  if (!reference || !graph) { out.refusal = "the graph has no instance at a reduced shape"; return out; }
  Program p = program;
  p.graph = *reference;
  for (size_t i = 0; i < p.inputs.size(); i++) {
    p.inputs[i].strides = reduced_strides(p.inputs[i].type.dims, p.inputs[i].strides, types[i].dims);
    p.inputs[i].type = types[i];
  }
  for (NodeId n : p.graph.outputs()) {
    TensorInfo& t = p.outputs[static_cast<size_t>(p.graph.form<Output>(n)->result)];
    const Dims dims = p.graph.dims(p.graph.node(n).operands[0]);
    t.strides = reduced_strides(t.type.dims, t.strides, dims);
    t.type.dims = dims;
  }
  Planned planned = make_plan(p, *graph, target);
  if (!planned.plan) { out.refusal = "the reduced shape has no plan: " + planned.reason; return out; }
  if (planned.plan->kernels.size() == full.kernels.size())   // else regions were grouped otherwise: still the same calls
    for (size_t k = 0; k < full.kernels.size(); k++) replan_like(full.kernels[k], planned.plan->kernels[k], target);
  out.program = std::move(p);
  out.plan = std::move(planned.plan);
  return out;
}

}  // namespace mirage
