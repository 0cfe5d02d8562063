// Reduced shapes: see the header. Which dimensions must stay equal, follow one another or multiply to a third is what the search's
// witnesses know (mirage/search/extents.h).
#include "driver/gate/reduce.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <set>

#include "driver/decide/candidates.h"
#include "driver/gate/gate.h"
#include "mirage/ir/eval.h"
#include "mirage/ir/index_map.h"
#include "mirage/plan/passes.h"
#include "mirage/plan/replan.h"
#include "mirage/plan/strategy.h"
#include "mirage/search/extents.h"
#include "mirage/support/hash.h"

namespace mirage {

namespace {

using search::DimClasses;

/// What one class of dimensions has to hold: tiles of grids and loops, iterations that loops want, elements that the threads of a cluster,
/// or of a block, take of a row at once. is_outer: it counts matrices, wherever it occurs. thrift: see own_tiles. pieces: of the grid, more
/// for calls that stand behind others in one kernel, so that their widths differ.
struct Wish {
  int64_t extent = 0, grid_tile = 0, loop_tile = 0, iterations = 1, pieces = 2;
  bool is_outer = true;
  int thrift = 0;
  int64_t row = 0;
};

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

constexpr int64_t kFewMatrices = 3;   ///< of a batch: a first, a last and one between
/// Where a shape is too large to be emulated else: windows, and what lies between the cuts of a dimension, as small as they can be; then
/// smaller than a line of eight where that leaves lines as they begin, and so what no tile is taken from.
constexpr int kSmallWindows = 3, kLastThrift = 4;

int64_t reduced_extent(const Wish& w, Tails tails) {
  int64_t e = w.extent;
  const auto shrink = [&](int64_t tile, int64_t pieces) {   // that many tiles of the dimension, with its own tail
    if (tile <= 0 || tile >= w.extent) return;
    const int64_t all = (w.extent + tile - 1) / tile, rest = w.extent % tile;
    e = tile * (std::min(all, pieces) - 1) + (rest ? rest : tile);
  };
  if (w.loop_tile > 0) shrink(w.loop_tile, w.iterations);
  else if (w.grid_tile > 0) shrink(w.grid_tile, w.pieces);
  else if (w.is_outer) e = std::min(w.extent, kFewMatrices);
  else if (w.row > 0 && (w.thrift == 0 || w.row == w.extent)) e = std::min(w.extent, w.row + w.row / 4 + w.extent % 64);
  else if (w.thrift > 0 && w.extent > 192) e = 128 + (w.extent % 64 ? w.extent % 64 : 64);
  else if (w.extent > 512) e = 256 + w.extent % 64;
  if (w.grid_tile > 0 && w.loop_tile > 0) e = std::max(e, std::min(w.extent, 2 * w.grid_tile));
  const int64_t tile = w.loop_tile > 0 ? w.loop_tile : w.grid_tile;
  if (tails == Tails::kRaggedEverywhere && tile == 0 && e > 2 && e <= 128) return e % 8 == 0 && e > 32 ? e - 8 : e - 1;
  if (tails != Tails::kOwn && tile > 0 && e % tile == 0 && e > tile) e -= tile > 8 ? std::max<int64_t>(8, tile / 16 * 8) : tile > 1 ? 1 : 0;
  return e;
}

/// Extents of atoms at which every class holds what it has to.
class Atoms {
 public:
  Atoms(const DimClasses& classes, const std::vector<Wish>& wishes, Tails tails)
      : classes_(classes), wishes_(wishes), full_(static_cast<size_t>(classes.atoms)), small_(full_.size()) {
    find_full();
    const int thrift = wishes.empty() ? 0 : wishes[0].thrift;
    const bool is_last = thrift >= kSmallWindows;
    const auto least = [&](int64_t full) {
      const int64_t begun = full % 8;   // of a line of eight
      return thrift >= kLastThrift && begun > 2 ? begun : full > 8 ? 8 + begun : full;
    };
    for (size_t a = 0; a < small_.size(); a++)
      small_[a] = is_last ? least(full_[a]) : full_[a] > 128 ? 64 + full_[a] % 64 : full_[a];
    for (int c = 0; c < classes.count; c++)
      if (is_atom(c) && !classes.is_pinned(c)) {
        const Wish& w = wishes[static_cast<size_t>(c)];
        const bool is_whole = thrift >= kLastThrift && w.grid_tile == 0 && w.loop_tile == 0 && w.row == 0;   // nothing counts its elements
        small_[atom(c)] = is_last && of(c).is_shifted ? least(full_[atom(c)]) : reduced_extent(w, tails);
        if (is_whole) small_[atom(c)] = std::min(small_[atom(c)], least(full_[atom(c)]));
      }
    for (size_t a = 0; a < small_.size(); a++)
      if (classes.pinned[a] > 0) small_[a] = full_[a];
    for (int c = 0; c < classes.count; c++)
      if (!is_atom(c) && !(is_last && of(c).is_shifted)) grow(c, reduced_extent(wishes[static_cast<size_t>(c)], Tails::kOwn));
    for (int c = 0; c < classes.count; c++) if (of(c).segments.size() > 1) align(c);
  }
  const std::vector<int64_t>& extents() const { return small_; }

 private:
  const DimClasses::Class& of(int c) const { return classes_.classes[static_cast<size_t>(c)]; }
  bool is_atom(int c) const { return of(c).factors.empty() && of(c).segments.size() == 1; }
  size_t atom(int c) const { return static_cast<size_t>(of(c).segments[0]); }
  void find_full() {
    for (int c = 0; c < classes_.count; c++) {
      const int64_t extent = wishes_[static_cast<size_t>(c)].extent;
      for (size_t i = 0; i < of(c).segments.size(); i++) {
        const int64_t begin = i == 0 ? 0 : of(c).cuts[i - 1], end = i < of(c).cuts.size() ? of(c).cuts[i] : extent;
        full_[static_cast<size_t>(of(c).segments[i])] = end - begin;
      }
    }
  }
  /// Parts in turn, outermost or first ones first, are made larger until class c has `wanted` elements; none beyond its own extent.
  void grow(int c, int64_t wanted) {
    for (int a : of(c).segments) {
      const int64_t missing = wanted - classes_.extent(c, small_);
      int64_t& e = small_[static_cast<size_t>(a)];
      if (missing > 0) e = std::min(full_[static_cast<size_t>(a)], e + (missing + 63) / 64 * 64);
    }
    for (int f : of(c).factors) {
      const int64_t now = classes_.extent(c, small_), own = classes_.extent(f, small_);
      if (now >= wanted) return;
      const int64_t full = wishes_[static_cast<size_t>(f)].extent;
      int64_t target = std::min((wanted + now / own - 1) / (now / own), full);
      if (now / own % 8 != 0) target += ((full - target) % 8 + 8) % 8;   // lines of the product stay aligned as they are
      if (is_atom(f)) small_[atom(f)] = std::max(own, target);
      else grow(f, target);
    }
  }
  /// Parts behind each other that are whole lines of eight together stay so (channels of two inputs, which a product sums over).
  void align(int c) {
    const auto beyond = [&] { return ((wishes_[static_cast<size_t>(c)].extent - classes_.extent(c, small_)) % 8 + 8) % 8; };
    if (beyond() == 0) return;
    for (int a : of(c).segments) {
      int64_t& e = small_[static_cast<size_t>(a)];
      const int64_t before = e, grown = e + beyond();
      if (classes_.pinned[static_cast<size_t>(a)] > 0 || grown > full_[static_cast<size_t>(a)]) continue;
      e = grown;
      if (beyond() == 0) return;
      e = before;   // it stands in the class twice
    }
  }
  const DimClasses& classes_;
  const std::vector<Wish>& wishes_;
  std::vector<int64_t> full_, small_;
};

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

namespace reducing {
/// Calls of a plan in node order, with the tiles that they were made with and their kernels (null: none of their own).
/// places: among the calls of the kernel
struct Calls { std::vector<CallNumbers> numbers; std::vector<const KernelPlan*> kernels; std::vector<int> places; };

/// Everything about the full plan that reduced shapes are made from.
struct Full {
  Program program;
  const Plan& plan;
  const Target& target;
  DimClasses classes;
  Witness witness;
  std::vector<Type> params;
  Worlds worlds;
  std::vector<CallNumbers> split;
  Calls calls;
};
}  // namespace reducing

namespace {

using reducing::Calls, reducing::Full;

Calls calls_of(const Plan& full) {
  Calls out;
  for (NodeId n = 0; n < full.graph.num_nodes(); n++) {
    const auto* call = full.graph.form<Call>(n);
    if (!call) continue;
    out.numbers.push_back(numbers_of(*call->body));
    const KernelPlan* of = nullptr;
    int place = 0;
    for (const KernelPlan& k : full.kernels)
      if (const auto at = std::find(k.nodes.begin(), k.nodes.end(), n); at != k.nodes.end())
        of = &k, place = strategy_of(k).use(k, 0).side_by_side ? static_cast<int>(at - k.nodes.begin()) : 0;
    out.kernels.push_back(of);
    out.places.push_back(place);
  }
  return out;
}

using InputDim = std::pair<int, int>;   ///< which parameter, which of its dimensions

/// Which dimension of an input a value's dimension is, element for element.
class InputDims {
 public:
  explicit InputDims(const Graph& g) : g_(g) {}

  /// None: it is a part of one, or several.
  std::optional<InputDim> of(ValueId v, int d) {
    if (const auto* in = g_.def_form<Input>(v)) return InputDim{in->param, d};
    const auto [it, fresh] = known_.emplace(std::pair(v, d), std::nullopt);
    if (!fresh) return it->second;
    const NodeId n = g_.value(v).node;
    const auto found = g_.form<Call>(n) ? behind_call(n, static_cast<int>(v - g_.node(n).first_value), d) : behind(n, d);
    return known_[{v, d}] = found;
  }

 private:
  /// The result of a call, whose dimensions its partitions name: what splits this one splits an operand, too.
  std::optional<InputDim> behind_call(NodeId n, int result, int d) {
    const Graph& body = *g_.form<Call>(n)->body;
    for (NodeId o : body.outputs()) {
      const Output& out = *body.form<Output>(o);
      for (size_t a = 0; out.result == result && a < 3; a++)
        for (NodeId i : body.inputs()) {
          const Input& in = *body.form<Input>(i);
          if (out.part.grid[a] != d || in.part.grid[a] < 0) continue;
          if (const auto found = of(g_.node(n).operands[static_cast<size_t>(in.param)], in.part.grid[a])) return found;
        }
    }
    return std::nullopt;
  }
  std::optional<InputDim> behind(NodeId n, int d) {
    const Node& node = g_.node(n);
    std::vector<Type> types;
    for (ValueId o : node.operands) types.push_back(g_.type(o));
    const IndexMap map = index_map(node.op, types);
    for (size_t o = 0; o < node.operands.size(); o++)
      for (int e = 0; e < types[o].dims.rank(); e++) {
        const DimLink& link = map.operands[o][static_cast<size_t>(e)];
        if (!(link.kind == DimLink::Kind::kAligned && link.dim == d) &&
            !(link.kind == DimLink::Kind::kRegrouped &&
              is_alone(types[o].dims, g_.dims(node.first_value), map.runs[static_cast<size_t>(link.dim)], e, d)))
          continue;
        if (const auto found = of(node.operands[o], e)) return found;
      }
    return std::nullopt;
  }
  /// Whether dimension e of a run is d of its result: all others have one element.
  static bool is_alone(const Dims& from, const Dims& to, const DimRun& run, int e, int d) {
    if (d < run.result_first || d >= run.result_first + run.result_count || from[e] != to[d] || from[e] == 1) return false;
    int64_t all = 1;
    for (int i = run.first; i < run.first + run.count; i++) all *= from[i];
    return all == from[e];
  }

  const Graph& g_;
  std::map<std::pair<ValueId, int>, std::optional<InputDim>> known_;
};

/// Dimensions of inputs that one axis of a call's grid, or its loop, splits together, themselves or as views and results of them: queries',
/// keys' and values' weights in one call have the same extents only because it has them as one.
search::Alike split_together(const Graph& g) {
  search::Alike out;
  InputDims inputs(g);
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const auto* call = g.form<Call>(n);
    if (!call) continue;
    for (int a = 0; a < 4; a++) {   // three axes and the loop
      std::vector<InputDim> list;
      for (NodeId i : call->body->inputs()) {
        const Input& in = *call->body->form<Input>(i);
        const int d = a < 3 ? in.part.grid[static_cast<size_t>(a)] : in.part.loop;
        if (d < 0) continue;
        const auto of = inputs.of(g.node(n).operands[static_cast<size_t>(in.param)], d);
        if (of && std::find(list.begin(), list.end(), *of) == list.end()) list.push_back(*of);
      }
      if (list.size() > 1) out.push_back(list);
    }
  }
  return out;
}

/// Values that no input is in: padding, as it is made, says nothing of what matrices are.
std::vector<bool> constants_of(const Graph& g) {
  std::vector<bool> out(static_cast<size_t>(g.num_values()));
  for (ValueId v = 0; v < g.num_values(); v++) {
    const Node& node = g.def(v);
    out[static_cast<size_t>(v)] = !g.def_form<Input>(v) && std::all_of(node.operands.begin(), node.operands.end(),
                                                                      [&](ValueId o) { return out[static_cast<size_t>(o)]; });
  }
  return out;
}

/// What every class of the program's dimensions has to hold. `split`: what the calls split, in extents of `witness`, where classes differ.
/// counts: whether a kernel is to have what it wants; null: all are.
std::vector<Wish> wishes_of(const Program& program, const Plan& plan, const DimClasses& classes, const Graph& witness, const Calls& calls,
                            const std::vector<CallNumbers>& split, int thrift,
                            const std::function<bool(const KernelPlan&)>& counts = nullptr) {
  std::vector<Wish> wishes(static_cast<size_t>(classes.count));
  std::map<int64_t, int> named;   // by witness extent
  const std::vector<bool> constant = constants_of(program.graph);
  for (ValueId v = 0; v < program.graph.num_values(); v++)
    for (int d = 0; d < program.graph.dims(v).rank(); d++)
      if (const int c = classes.of[static_cast<size_t>(v)][static_cast<size_t>(d)]; c >= 0) {
        Wish& w = wishes[static_cast<size_t>(c)];
        w.extent = program.graph.dims(v)[d];
        w.is_outer = w.is_outer && (constant[static_cast<size_t>(v)] || d < program.graph.dims(v).rank() - 2);
        w.thrift = thrift;
        named.emplace(witness.dims(v)[d], c);
      }
  for (const KernelPlan& k : plan.kernels)
    if (const Tiling own = strategy_of(k).use(k, thrift); own.rows > 0 && (!counts || counts(k)))
      for (Wish& w : wishes) {
        if (w.extent == own.row) w.row = std::max(w.row, own.row_team > 0 ? own.row_team : own.row);   // every thread has work, some twice
        else if (w.extent == own.rows) w.is_outer = true;                 // of so long rows, few
      }
  for (size_t i = 0; i < split.size(); i++) {
    if (counts && !(calls.kernels[i] && counts(*calls.kernels[i]))) continue;
    const Tiling own = calls.kernels[i] ? strategy_of(*calls.kernels[i]).use(*calls.kernels[i], thrift) : Tiling{};
    for (size_t a = 0; a < 3; a++)
      if (const auto it = named.find(split[i].grid_tile[a]); it != named.end()) {
        Wish& w = wishes[static_cast<size_t>(it->second)];
        const bool is_matrix = w.is_outer && (own.by_matrices || calls.numbers[i].grid_tile[a] == 1),
                   has_own = own.grid_tile > 0 && (own.tiled_extent == 0 || w.extent == own.tiled_extent);
        w.pieces = std::max<int64_t>(w.pieces, 2 + calls.places[i]);
        w.grid_tile = std::max(w.grid_tile, is_matrix ? 1 : has_own ? own.grid_tile : calls.numbers[i].grid_tile[a]);
      }
    if (const auto it = named.find(split[i].loop_tile); it != named.end()) {
      Wish& w = wishes[static_cast<size_t>(it->second)];
      const int64_t tile = own.loop_tile ? own.loop_tile : calls.numbers[i].loop_tile;
      w.iterations =
          std::max((w.iterations * w.loop_tile + std::max(w.loop_tile, tile) - 1) / std::max<int64_t>(1, std::max(w.loop_tile, tile)),
                   own.iterations * tile / std::max<int64_t>(1, std::max(w.loop_tile, tile)));
      w.loop_tile = std::max(w.loop_tile, tile);
    }
  }
  return wishes;
}

/// The program over the reference's extents, with storage as it was.
Program reduced_program(const Program& program, Graph reference, const std::vector<Type>& types) {
  Program p = program;
  p.graph = std::move(reference);
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
  return p;
}

}  // namespace

namespace {

/// A program and its plan's graph at the extents that the wishes ask for, those of them that exist there.
struct Shrunk {
  std::optional<Graph> reference, graph;
  std::vector<Type> types;   ///< of the program's inputs
};
Shrunk shrunk(const Full& full, const std::vector<Wish>& wishes, Tails tails, const std::vector<CallNumbers>& numbers) {
  Shrunk out;
  out.reference = search::with_extents(full.program.graph, full.classes, Atoms(full.classes, wishes, tails).extents());
  if (!out.reference) return out;
  out.types = full.params;
  for (NodeId n : out.reference->inputs())
    out.types[static_cast<size_t>(out.reference->form<Input>(n)->param)] = out.reference->type(out.reference->node(n).first_value);
  auto worlds = std::make_shared<Worlds>(full.worlds);
  worlds->all.emplace_back(out.types, *out.reference);
  out.graph = instantiate({full.plan.graph, 0, 0, true, worlds}, out.types, numbers);
  return out;
}
const char* missing(const Shrunk& i) {
  return i.reference ? "the graph has no instance at a reduced shape" : "the program has no instance at a reduced shape";
}

Reduced reduce_with(const Full& full, Tails tails, int thrift) {
  Reduced out;
  const Program& program = full.program;
  const std::vector<Wish> wishes = wishes_of(program, full.plan, full.classes, full.witness.graph, full.calls, full.split, thrift);
  auto [reference, graph, types] = shrunk(full, wishes, tails, full.calls.numbers);
  if (!graph) { out.refusal = missing({reference, graph, {}}); return out; }
  Program p = reduced_program(program, std::move(*reference), types);
  for (NodeId n : graph->outputs())
    if (!(graph->dims(graph->node(n).operands[0]) == p.outputs[static_cast<size_t>(graph->form<Output>(n)->result)].type.dims)) {
      out.refusal = "the graph's results do not follow a change of extents";
      return out;
    }
  Planned planned = replan(program, full.plan, p, *graph, full.target);
  if (!planned.plan) {
    out.differs = planned.reason;
    planned = make_plan(p, *graph, full.target);
  }
  if (!planned.plan) { out.refusal = "the reduced shape has no plan: " + planned.reason; return out; }
  out.program = std::move(p);
  out.plan = std::move(planned.plan);
  return out;
}

constexpr double kMuchWork = 1e8;   ///< floating point operations: several seconds of emulation
/// What emulating a kernel takes.
double work_of(const KernelPlan& k) { return k.flops * strategy_of(k).use(k, 0).padding; }

/// Whether a shape that was found with this thrift is taken.
bool is_enough(const Reduced& r, int thrift) {
  double work = 0;
  for (const KernelPlan& k : r.plan->kernels) work += work_of(k);
  return (thrift + 1 >= kSmallWindows || work < kMuchWork) && too_large_to_emulate(*r.program, *r.plan).empty();
}

}  // namespace

namespace {

/// What reduced shapes are made from; `refusal`: there are none.
Full full_of(const Program& whole, const Plan& plan, const Target& target, std::string& refusal) {
  Program program = whole;   // with the dimensions that the plan has of it
  if (!plan.passes.empty() && changes_dimensions(plan.passes.front()))
    if (std::optional<Graph> rewritten = rewrite_matmuls(plan.passes, program.graph, target)) program.graph = *std::move(rewritten);
  const search::Alike alike = split_together(plan.graph);
  Full full{program,
            plan,
            target,
            search::dim_classes(program.graph, 0, search::Tied::kPinned, alike),
            make_witness(program, 0, 0, search::Tied::kPinned, alike),
            param_types(program),
            {}, {},
            calls_of(plan)};
  for (const std::string& r : {full.classes.refusal, full.witness.refusal})
    if (!r.empty()) { refusal = r; return full; }
  full.worlds.all = {{full.params, program.graph}, {full.witness.params, full.witness.graph}};
  full.split = split_extents({plan.graph, 0, 0, true, std::make_shared<const Worlds>(full.worlds)}, full.witness.params);
  if (full.split.size() != full.calls.numbers.size()) refusal = "the plan's calls do not follow a change of extents";
  return full;
}

}  // namespace

Reduced reduce_plan(const Program& program, const Plan& plan, const Target& target, Tails tails) {
  Reduced out;
  const Full full = full_of(program, plan, target, out.refusal);
  if (!out.refusal.empty()) return out;
  for (int thrift = 0; thrift <= kLastThrift; thrift++) {
    Reduced r = reduce_with(full, tails, thrift);
    if (thrift > 0 && (!r.plan || !r.differs.empty())) break;   // too few pieces for its numbers
    out = std::move(r);
    if (!out.plan || is_enough(out, thrift)) break;
  }
  return out;
}

struct PartReducer::Impl {
  Impl(const Program& program, const Plan& plan, const Target& target) : full(full_of(program, plan, target, refusal)) {
    if (!refusal.empty()) return;
    witness = instantiate({plan.graph, 0, 0, true, std::make_shared<const Worlds>(full.worlds)}, full.witness.params,
                          std::vector<CallNumbers>(full.calls.numbers.size()));
    if (witness) find_ranges();
  }

  /// Intermediates come in between the least and the largest that they are at a small size, so that roots and logarithms have what they
  /// would have.
  void find_ranges() {
    constexpr int64_t kMostElements = 4'000'000;
    int64_t elements = 0;
    for (ValueId v = 0; v < witness->num_values(); v++) elements += witness->dims(v).elements();
    if (elements > kMostElements) return;
    Builder b(Level::kKernel);
    std::vector<ValueId> stored;
    for (NodeId n = 0; n < witness->num_nodes(); n++) {
      const Node& node = witness->node(n);
      if (const auto* in = witness->form<Input>(n)) b.add_input(in->param, witness->type(node.first_value));
      else if (!witness->form<Output>(n)) b.add(node.op, node.operands);
    }
    for (ValueId v = 0; v < witness->num_values(); v++)
      if (full.plan.views[static_cast<size_t>(v)].buffer >= 0 && !witness->def_form<Input>(v))
        b.add_output(static_cast<int>(stored.size()), v, witness->type(v).dtype == DType::kBool ? DType::kBool : DType::kReal),
            stored.push_back(v);
    Rng rng(17);
    std::vector<Tensor<double>> inputs;
    for (size_t i = 0; i < full.program.inputs.size(); i++) {
      const TensorInfo& t = full.program.inputs[i];
      const auto [low, high] = t.type.dtype == DType::kBool ? std::pair{0.0, 1.0} : t.range.value_or(std::pair{-2.0, 2.0});
      inputs.emplace_back(full.witness.params[i].dims, 0.0);
      for (double& x : inputs.back().data)
        x = t.type.dtype == DType::kBool ? static_cast<double>(rng.below(2)) : low + (high - low) * rng.uniform();
    }
    DoubleAlgebra a;
    const auto values = evaluate(remove_dead(b.graph()), std::span<const Tensor<double>>(inputs), a);
    for (size_t i = 0; i < stored.size(); i++) {
      double low = std::numeric_limits<double>::infinity(), high = -low;
      for (double x : values[i].data)
        if (std::isfinite(x)) low = std::min(low, x), high = std::max(high, x);
      ranges[stored[i]] = {std::clamp(low, -2.0, 1.0), std::clamp(high, -1.0, 2.0)};
    }
  }

  /// Which classes the part's values have; all, where that is not known.
  std::vector<bool> classes_in(const PlanPart& part) const {
    std::vector<bool> out(static_cast<size_t>(full.classes.count), !witness);
    std::set<int64_t> extents;
    const auto add = [&](ValueId v) { for (int d = 0; witness && d < witness->dims(v).rank(); d++) extents.insert(witness->dims(v)[d]); };
    for (ValueId v : part.leaves) add(v);
    for (NodeId n : part.inside)
      for (int i = 0; i < full.plan.graph.node(n).num_values; i++) add(full.plan.graph.node(n).first_value + i);
    for (ValueId v = 0; witness && v < full.witness.graph.num_values(); v++)
      for (int d = 0; d < full.witness.graph.dims(v).rank(); d++)
        if (const int c = full.classes.of[static_cast<size_t>(v)][static_cast<size_t>(d)];
            c >= 0 && extents.count(full.witness.graph.dims(v)[d]))
          mark(out, c);
    return out;
  }
  /// A product is as large as its factors make it.
  void mark(std::vector<bool>& out, int c) const {
    if (out[static_cast<size_t>(c)]) return;
    out[static_cast<size_t>(c)] = true;
    for (int f : full.classes.classes[static_cast<size_t>(c)].factors) mark(out, f);
  }

  Reduced reduce(const PlanPart& part, Tails tails, int thrift, std::optional<Plan>& own) const;
  /// The same with only those dimensions equal that the part itself needs to be: the rest of the program ties others.
  Reduced reduce_alone(const PlanPart& part, Tails tails, int thrift, std::optional<Plan>& own) const;
  /// A part at a reduced shape, with its kernels' numbers; own: at its own.
  Reduced replanned(const Program& program, const Plan& model, Program small, std::optional<Plan>& own) const {
    Reduced out;
    Planned planned = replan_part(program, model, small, small.graph, full.target, own);
    if (!planned.plan) { out.refusal = planned.reason; return out; }
    out.program = std::move(small);
    out.plan = std::move(planned.plan);
    return out;
  }
  std::pair<Program, Plan> program_of(const PlanPart& part) const {
    std::pair<Program, Plan> out = part_program(full.program, full.plan, part);
    for (size_t i = 0; i < part.leaves.size(); i++)
      if (const auto range = ranges.find(part.leaves[i]); range != ranges.end() && range->second.first < range->second.second)
        out.first.inputs[part.first.size() + i].range = range->second;
    return out;
  }

  std::string refusal;
  reducing::Full full;
  std::optional<Graph> witness;                               ///< the plan's graph there
  std::map<ValueId, std::pair<double, double>> ranges;        ///< of what the plan stores
};

Reduced PartReducer::Impl::reduce(const PlanPart& part, Tails tails, int thrift, std::optional<Plan>& own) const {
  Reduced out;
  const std::set<size_t> mine(part.kernels.begin(), part.kernels.end());
  const auto counts = [&](const KernelPlan& k) { return mine.count(static_cast<size_t>(&k - full.plan.kernels.data())) > 0; };
  std::vector<Wish> wishes = wishes_of(full.program, full.plan, full.classes, full.witness.graph, full.calls, full.split, thrift, counts);
  const std::vector<bool> in = classes_in(part);
  for (size_t c = 0; c < wishes.size(); c++)
    if (!in[c]) wishes[c].is_outer = true;   // as few as there can be
  std::vector<CallNumbers> numbers = full.calls.numbers;
  Shrunk at = shrunk(full, wishes, tails, numbers);
  if (at.reference && !at.graph) {
    for (size_t i = 0; i < numbers.size(); i++)
      if (!(full.calls.kernels[i] && counts(*full.calls.kernels[i]))) numbers[i] = {};   // other kernels' tiles do not matter
    at = shrunk(full, wishes, tails, numbers);
  }
  if (!at.graph) { out.refusal = missing(at); return out; }
  auto [program, model] = program_of(part);
  std::vector<Type> leaf_types = param_types(program);
  for (size_t i = 0; i < part.leaves.size(); i++) leaf_types[part.first.size() + i].dims = at.graph->dims(part.leaves[i]);
  return replanned(program, model, reduced_program(program, part_graph(*at.graph, full.plan, part), leaf_types), own);
}

Reduced PartReducer::Impl::reduce_alone(const PlanPart& part, Tails tails, int thrift, std::optional<Plan>& own) const {
  Reduced out;
  const auto [program, model] = program_of(part);
  std::optional<Graph> primitives = without_calls(program.graph);
  if (!primitives) { out.refusal = "what a call computes depends on its tiles"; return out; }
  Program alone = program;
  alone.graph = *std::move(primitives);
  const Full mine = full_of(alone, model, full.target, out.refusal);
  if (!out.refusal.empty()) return out;
  const std::vector<Wish> wishes = wishes_of(alone, model, mine.classes, mine.witness.graph, mine.calls, mine.split, thrift);
  Shrunk at = shrunk(mine, wishes, tails, mine.calls.numbers);
  if (!at.graph) { out.refusal = missing(at); return out; }
  return replanned(program, model, reduced_program(program, *std::move(at.graph), at.types), own);
}

PartReducer::PartReducer(const Program& program, const Plan& plan, const Target& target)
    : impl_(std::make_unique<const Impl>(program, plan, target)) {}
PartReducer::~PartReducer() = default;
const std::string& PartReducer::refusal() const { return impl_->refusal; }

Reduced PartReducer::reduce(const PlanPart& part, Tails tails, std::optional<Plan>& own) const {
  Reduced out;
  for (const auto reduce : {&Impl::reduce_alone, &Impl::reduce}) {
    const bool was_found = out.plan.has_value();   // too large, but smaller than what the whole program's dimensions leave
    for (int thrift = 0; thrift <= kLastThrift; thrift++) {
      std::optional<Plan> its_own;
      Reduced r = (*impl_.*reduce)(part, tails, thrift, its_own);
      const bool enough = r.plan && is_enough(r, thrift);
      if (!r.plan && (thrift > 0 || was_found)) break;
      if (enough || !was_found) out = std::move(r), own = std::move(its_own);
      if (enough) return out;
    }
  }
  return out;
}

}  // namespace mirage
