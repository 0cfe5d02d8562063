// What the files of the tile planner share.
#pragma once
#include <optional>

#include "plan/tile/tile_plan.h"
#include "mirage/plan/strategy.h"

namespace mirage {

/// A tile plan of that structure, not yet divided; nullopt with a reason if it is nothing for this strategy.
std::optional<TilePlan> tile_plan(const StreamShape& shape, const Target& target, std::string& reason);

/// Warpgroups along rows, the rows of one, elements of the reduction per stage, stages, blocks of a cluster, blocks per SM that are
/// promised to the compiler; warpgroups along columns; a plan for the tensor cores' rate, and the blocks of its cluster that share rows;
/// whether sums are received over the ring, also where there is room beside it; row tiles of a warpgroup whose results are stored at once
/// by blocks that stay.
struct TileChoice {
  int row_groups = 2, group_rows = 32, chunk = 64, stages = 4, cluster = 2, blocks_per_sm = 1;
  bool evict_first = true;
  int column_groups = 1;
  bool large = false;
  int sharing = 1;
  bool overlaid = false;
  int turned = 0;
  int held_tiles = 0;
};
/// The plan of that work with the numbers of a program of this kind, over other extents.
std::optional<TilePlan> tile_like(const schedule::KernelProgram& model, const Work& work, std::string& reason);
/// Gives a matched plan its division and places in shared memory; false with a reason if it does not fit.
bool divide_tile(TilePlan& plan, const TileChoice& choice, const Target& target, std::string& reason);

/// The same for rows on the 64-row side of wgmma, of choice.turned columns; the divisions of that kind that are worth trying
/// (plan/tile/tile_turned.cc).
bool divide_turned(TilePlan& plan, const TileChoice& choice, const Target& target, std::string& reason);
std::vector<TileChoice> turned_choices(const TilePlan& matched);
Cost estimate_turned(const TilePlan& plan, const Target& target, bool explain);

/// The cost model (plan/tile/tile_cost.cc): predicted microseconds of one launch, and, where asked to explain, why.
Cost estimate(const TilePlan& plan, const Target& target, bool explain = true);

/// Its kernel.
KernelBody told(std::shared_ptr<const TilePlan>);

}  // namespace mirage

namespace mirage::schedule {

/// Throws Undescribed.
KernelProgram tile_program(const TilePlan&);

}  // namespace mirage::schedule
