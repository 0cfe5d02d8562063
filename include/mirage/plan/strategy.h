// Strategies: ways to run a kernel (strategies.def), each a row of functions. The planner, replanning, measuring, reduced shapes, the
// emulator's findings and reports go through this table and name none of them.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mirage/plan/block.h"
#include "mirage/schedule/program.h"

namespace mirage {

/// A block graph on operands and results as they lie in memory (Access by param and by result). positions: an operand is a position that is
/// not stored.
struct Work {
  const Graph& body;
  const std::vector<Access>&operands, &results;
  const Target& target;
  ContractRule rule;
  bool positions = false;
  /// Whether an operand lies in two parts.
  bool has_parts() const;
};

/// What a strategy makes of it: a body with its cost, or one sentence why it does not fit.
struct Attempt {
  std::optional<KernelBody> body;
  Cost cost;
  std::string reason;
};

/// Into what a kernel's numbers divide its extents: reduced shapes keep these (driver/gate/reduce.cc). 0: nothing of its own.
struct Tiling {
  /// instead of the tiles of the body; iterations that use every slot of its rings twice
  int64_t grid_tile = 0, loop_tile = 0, iterations = 4;
  bool by_matrices = false;                               ///< a block has one matrix of a batch, whatever the body's grid says
  int64_t tiled_extent = 0;                               ///< the only extent that grid_tile divides; 0: any
  bool side_by_side = false;                              ///< its calls stand beside each other, each behind the blocks of those before it
  /// regions whose rows are shared: elements of a row, those that its threads take at once, how many such rows there are. row_team 0:
  /// rows are not shared, and stay whole
  int64_t row = 0, row_team = 0, rows = 0;
  double padding = 1;                                     ///< what emulating it takes, of its own flops: some tiles are computed whole
};

/// A part of shared memory and what lies there, for findings of the emulator. Of every `line` bytes the first `used` hold elements; line 0:
/// all do.
struct SharedPlace {
  int64_t offset = 0, bytes = 0;
  std::string what;
  int64_t line = 0, used = 0;
};

/// What a kernel does and what lies in its shared memory meanwhile, for people: steps in their order, each in a phase ("before", "loop",
/// "after" the loop; "" where there is none), and places with the first and last step that needs them. Places whose lifetimes overlap do
/// not.
struct TimelineStep { std::string phase, text; };
struct SharedLife { std::string what; int64_t offset = 0, bytes = 0; int first = 0, last = 0; };
struct Timeline { std::vector<TimelineStep> steps; std::vector<SharedLife> shared; };

struct Strategy {
  const char* name = "";
  const char* help = "";
  bool is_general = false;        ///< takes what the others leave, and is priced less exactly
  bool repeats_rows = false;      ///< rows that a product prepares are prepared again for each block of its columns
  bool reads_positions = false;   ///< computes positions that are not stored itself
  bool reads_parts = false;       ///< operands may lie in two parts (Access::second)
  double lead = 1;                ///< it gets a call only where its cost times this is less than what the others ask
  /// Null: for every target.
  bool (*is_on)(const Target&) = nullptr;
  /// The cheapest plan by its cost model. Null: takes no block graphs.
  Attempt (*match)(const Work&) = nullptr;
  /// Plans that it has for that work, the cheapest first and no more than `most`, under the names, nodes and workspace of kernel `of`.
  std::vector<KernelPlan> (*divisions)(const KernelPlan& of, const Work&, size_t most) = nullptr;
  /// The same of a kernel that no other strategy can run; empty: others can. Null: always.
  std::vector<KernelPlan> (*own_divisions)(const KernelPlan&, const Target&, size_t most) = nullptr;
  /// The plan of that work whose program has the numbers of one of its own over other extents: into what axes divide indices, slots, roles.
  Attempt (*like)(const schedule::KernelProgram& model, const Work&) = nullptr;
  /// The body that it takes for a program which erases to that one. Null: that one.
  Graph (*matched)(const schedule::KernelProgram&, const Graph& erased) = nullptr;
  /// Of its programs: the params that the loop brings chunk by chunk (weights; of attention, keys and values), which no kernel ahead writes
  /// where they are the caller's. Null: none.
  std::vector<int> (*weights)(const schedule::KernelProgram&) = nullptr;
  /// Whether lines of weights, which are read once, stay in L2 as long as others, or leave it first. Null: its plans say nothing of that.
  void (*keep)(schedule::KernelProgram&, bool) = nullptr;
  /// One line that tells plans of a kernel apart: "stream: 8 warps x 2 stages x 64, cluster 2, 1 per SM".
  std::string (*text)(const KernelPlan&) = nullptr;
  /// Tables of one plan, headed by the kernel's name.
  std::string (*print)(const KernelPlan&) = nullptr;
  /// thrift 1: one slot only is used twice; 2: every warp has two pieces of work.
  Tiling (*use)(const KernelPlan&, int thrift) = nullptr;
  /// Null: it does not say.
  std::vector<SharedPlace> (*shared)(const KernelPlan&) = nullptr;
  /// Its schedule and the lifetimes of its shared memory.
  Timeline (*timeline)(const KernelPlan&) = nullptr;
};

/// A kernel of the model's strategy and numbers (Strategy::like) for other work.
Attempt plan_like(const KernelPlan& model, const Work&);

/// All of them, in the order of strategies.def.
std::span<const Strategy> strategies();
/// That of a kernel.
StrategyId strategy_id(const KernelPlan&);
const Strategy& strategy_of(const KernelPlan&);
/// Whether a target's plans may have kernels of it: it is made for the target, and not left out.
bool is_on(const Strategy&, const Target&);
/// The target whose plans go without kernels of that name; nullopt: there is no such strategy, or nothing does what it does.
std::optional<Target> without_strategy(Target, std::string_view name);
std::vector<std::string> strategies_to_leave_out();   ///< names
/// Whether it divides block graphs by numbers of its own, whatever tiles the graph has.
bool ignores_numbers(const Strategy&);
/// Whether float32 units compute all of it, and not tensor cores.
bool on_float_units(const KernelPlan&);

}  // namespace mirage
