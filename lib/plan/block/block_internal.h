// What the files of the block planner share.
#pragma once
#include "plan/block/block_plan.h"
#include "mirage/plan/strategy.h"
#include "plan/block/float_contract.h"
#include "plan/block/layout.h"

namespace mirage {

/// chain: a running softmax between two contractions is one step where the graph has one.
/// stages: ring depth (1 for a loop of one iteration). cluster: blocks that divide the loop. divide_warps: the warps of a block divide it
/// too.
struct BlockChoice { int threads = 128, stages = 1, cluster = 1; bool divide_warps = false; bool chain = true; };
/// The choices that plan_block tries, chain or not.
std::vector<BlockChoice> block_choices(const Graph& body, const Target& target, bool chain);
/// One plan with given numbers; null with the reason where it does not fit.
std::shared_ptr<BlockPlan> plan_block_as(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results,
                                         const Target& target, BlockChoice choice, std::string& reason, const ContractRule& rule = {});
/// The same with a layout per tile; null where these tiles and layouts do not go together.
std::shared_ptr<BlockPlan> plan_block_as(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results,
                                         const Target& target, BlockChoice choice, const std::vector<LayoutOption>& layouts,
                                         const ContractRule& rule);
/// The choice that a plan was made with.
BlockChoice choice_of(const BlockPlan& plan);
/// The plan of that work with the numbers and layouts of a program of this kind, over other extents; null with the reason.
std::shared_ptr<const BlockPlan> block_like(const schedule::KernelProgram& model, const Work& work, std::string& reason);

/// A contraction on the float32 units, as its operands' tiles lie.
FloatWork float_work(const BlockPlan& plan, const Step& step);
/// Threads that work on one of its terms.
int float_team(const BlockPlan& plan, const Step& step);

/// The cost model (plan/block/cost.cc): predicted microseconds of one launch and why. Fills plan.blocks_per_sm.
Cost estimate(BlockPlan& plan, const Target& target);

/// Its kernel.
KernelBody told(std::shared_ptr<const BlockPlan>);

}  // namespace mirage

namespace mirage::schedule {

/// Throws Undescribed.
KernelProgram block_program(const BlockPlan&);

}  // namespace mirage::schedule
