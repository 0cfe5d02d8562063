// The planner of one block graph with given threads and stages; its steps in three files. block_shapes.cc: what every value is inside a
// tile; block_tiles.cc: tiles, loads and steps; block_work.cc: warps, order, barriers and shared memory. OSDI'25 section 6.
#pragma once
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/block/block_plan.h"
#include "plan/block/block_internal.h"
#include "plan/block/chain.h"
#include "plan/block/layout.h"

namespace mirage {

/// One attempt with fixed threads and stages. Any refusal sets `reason` and ends it.
class BlockPlanner {
 public:
  BlockPlanner(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results, const Target& target,
               BlockChoice choice, const ContractRule& rule);
  bool run();
  /// Takes these layouts (one per tile, as layout_options lists the tiles) instead of padding.
  void set_layouts(std::vector<LayoutOption> layouts) { layouts_ = std::move(layouts); }
  BlockPlan take() { return std::move(p_); }
  std::string reason;

 private:
  const Graph& g() const { return p_.body; }
  bool refuse(std::string why) { reason = std::move(why); return false; }
  size_t at(ValueId v) const { return static_cast<size_t>(v); }

  /// Only sums and maxima in registers are added up over blocks and warps, and only those that have no maximum of their own.
  bool divides_loop();

  // ---- shapes: every value as (b, r, c), and which of its elements exist
  bool shapes();
  bool node_existing(NodeId n);
  static int index3(const Dims& d, int dim);

  // ---- places: tiles for inputs, contraction operands, results of contractions, reductions and accumulators
  int add_tile(SmemTile t) { p_.tiles.push_back(t); return static_cast<int>(p_.tiles.size()) - 1; }

  bool place();
  Step step(Step::Kind kind, Phase phase, NodeId node, ValueId value, int tile);
  void place_input(NodeId n, const Input& in);

  /// The largest copy unit that every address and length of the load allows; 0 where lines are not contiguous.
  int unit_of(NodeId n, const Input& in, const Access& a, const SmemTile& t) const;

  /// The value behind transposes, and whether an odd number of them swaps r and c.
  std::pair<ValueId, bool> behind_transposes(ValueId v) const;
  bool place_contract(NodeId n);

  /// A tile that holds v for a contraction of this type: the input's own, or one that a fill step makes. TF32 takes stored numbers as they
  /// are: it holds 16-bit ones, and rounds float32 as it reads them.
  int operand_tile(ValueId v, ContractType type);

  /// Whether v's one use is an accumulator of the same function, so that it can stay in registers over the loop.
  bool only_accumulated(ValueId v, ReduceFn fn) const;
  void place_reduce(NodeId n);

  /// Contractions of stored tiles of one 16-bit type, one batch: what mma.sync takes from registers.
  bool place_chain();

  /// Warps along rows and keys, as many as there are.
  bool divide_chain(Step& s, int warps);

  /// The step accumulates into what node n, an Accum, is.
  void rescale(Step& s, NodeId n);
  void place_running(NodeId n);
  void place_accum(NodeId n);

  // ---- padding: tensor-core extents; line lengths so that ldmatrix rows fall into different banks
  void pad(int tile, int k3, int64_t to);

  bool pads_and_layouts();
  Extent3 view(int tile, bool transposed) const;

  /// Whether every warp runs the step alone, on tiles of its own.
  bool own_warp(const Step& s) const { return p_.loop_warps > 1 && s.phase == Phase::kLoop; }

  // ---- division of work: warps over contractions, threads over reductions
  bool divide_work();
  /// Threads over a contraction of `terms` on the float32 units, with at most so many results each.
  bool divide_float(Step& s, int64_t terms, int64_t most);

  /// Whether lines of the tiles that evaluating v reads lie along r, all of them.
  bool is_turned(ValueId v) const;
  /// Whether a tile is filled in one walk with the reduction s of v.
  bool is_walked(const Step& s, ValueId v) const;
  /// Threads over a reduction of `in`.
  bool divide_reduction(Step& s, const Extent3& in);

  /// The split of warps over i, j, k tiles with the fewest shared-memory reads whose accumulators fit; splitting k costs nothing in the
  /// loop.
  static bool choose_warps(Step& s, int warps, int64_t batches, int64_t i, int64_t j, int64_t k, int64_t registers);

  // ---- order and barriers
  /// Tiles that evaluating v per element reads.
  void leaves(ValueId v, std::vector<int>& out) const;
  std::vector<int> reads(const Step& s) const;
  std::vector<int> writes(const Step& s) const;
  bool order_steps();

  // ---- memory: lifetimes in steps, first fit. Time 0 is the prologue; the loop is one moment; accumulators appear behind it.
  bool share_memory();
  int count(Phase ph) const {
    return static_cast<int>(std::count_if(p_.steps.begin(), p_.steps.end(), [&](const Step& s) { return s.phase == ph; }));
  }

  bool overlap(int a, int b) const;

  /// A barrier stands before a step that reads what was written, or overwrites what was read or written, since the last one. Phases begin
  /// behind a barrier (codegen/kernels/block.cc).
  void barriers();

  const Target& target_;
  BlockPlan p_;
  std::vector<Phase> phase_;
  std::vector<std::vector<NodeId>> users_;
  std::optional<Chain> chain_;
  std::map<size_t, int> factor_of_;   // per running maximum, its factor's tile
  std::vector<LayoutOption> layouts_;
};

}  // namespace mirage
