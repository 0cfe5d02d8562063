// BlockPlan: how one block graph runs. Tiles in shared memory, the loads that fill them, and steps between barriers. Made by
// plan/block/block.cc, told as a program by plan/block/block_program.cc, which is what is emitted.
//
// Values are seen as matrices with at most one batch dimension: (b, r, c) = (the one leading dimension above 1, second last, last). Maps
// are not stored: every consumer evaluates the region of maps above it per element (the thread graphs of OSDI'25 section 4.2), reading
// tiles at its leaves.
#pragma once
#include <array>
#include <string>
#include <vector>
#include "mirage/plan/block.h"

namespace mirage {

/// How many elements of a tile's dimension exist: all (input < 0) or what is left of dimension `dim` of the tensor behind Input node
/// `input` at this block and iteration.
struct Existing { NodeId input = -1; int dim = -1; friend bool operator==(const Existing&, const Existing&) = default; };

struct SmemTile {
  enum class Kind : uint8_t { kInput, kFilled, kParts } kind = Kind::kInput;
  ValueId value = -1;
  DType dtype = DType::kF32;      ///< storage; kParts: f32
  Extent3 extent{1, 1, 1};        ///< padded
  bool col = false;               ///< lines are columns
  int64_t ld = 0;                 ///< elements between lines
  bool swizzle = false;
  bool tf32 = false;              ///< elements (kF32) are rounded to TF32 as they are stored: the tile is an operand of tensor cores
  int stages = 1;                 ///< ring depth of a loop input
  int copies = 1;                 ///< warps that have one each (loop_warps)
  int parts = 1;                  ///< kParts: partial results
  ReduceFn fn = ReduceFn::kSum;   ///< kParts: how they combine
  int64_t bytes = 0;              ///< all copies, stages or parts
  int64_t offset = 0;             ///< in dynamic shared memory
  int first = 0, last = 0;        ///< lifetime in steps; overlapping lifetimes never share memory
};

/// Fills a tile from device memory. unit: bytes per copy (16, 8, 4: asynchronous; 2, 1: element by element along lines); 0: strided,
/// element by element.
struct Load { int tile = -1; NodeId input = -1; int unit = 0; bool in_loop = false; };

struct Step {
  enum class Kind : uint8_t { kContract, kReduce, kFill, kAccumulate, kRunning, kChain, kStore } kind = Kind::kFill;
  /// when it runs; an accumulating contraction or reduction adds in the loop and is finished right behind it
  Phase phase = Phase::kInvariant;
  bool barrier_before = false;
  NodeId node = -1;                  ///< MatMul, Reduce, Accum, Running or Output; -1 for kFill
  ValueId value = -1;                ///< what is made (kStore: what is stored)
  int tile = -1;                     ///< where it goes; -1 for kStore
  bool accumulates = false;
  /// kRunning: the tile that gets e^(previous m - m); where degree > 0: that of the running maximum that rescales what is accumulated
  int factor = -1;
  int degree = 0;                    ///< accumulates, kAccumulate: what is there is multiplied by factor^degree first
  int exchange = -1;                 ///< with a cluster: the kParts tile that collects the sums of all its blocks
  // kChain: a running softmax between two contractions in registers. tile: the result's parts; factor: the maxima's
  int z = -1, sum = -1;              ///< the values' tile; the row sums' parts (-1: not used)
  bool z_transposed = false;
  NodeId scores = -1;                ///< the contraction of x and y
  ValueId logit = -1;                ///< what the maximum is taken of
  // kContract, kChain
  int x = -1, y = -1;                ///< operand tiles
  bool x_transposed = false, y_transposed = false;
  bool tensor = false;               ///< tensor cores, else float32 units
  ContractType type = ContractType::kF32;   ///< in which arithmetic; tensor: not kF32
  bool swap = false;                 ///< computes the transpose: the second operand takes the 16-row side
  int wi = 1, wj = 1, wk = 1;        ///< warps (tensor); wk: teams that divide the terms (float32 units)
  int tj = 32;                       ///< threads along J (float32 units)
  // kReduce
  int dim3 = 2;                      ///< reduced dimension: 0 b, 1 r, 2 c
  int group = 32;                    ///< threads per result
};

struct BlockPlan {
  Graph body;
  std::vector<Access> operands, results;
  ContractRule rule;                      ///< how its contractions may round
  int threads = 128;
  int stages = 1;
  /// blocks (of a thread block cluster) that divide the loop of one block of the graph; they add up through distributed shared memory
  int cluster = 1;
  /// above 1: the warps of a block divide the loop, each with rings of its own, and no barrier stands in the loop
  int loop_warps = 1;
  std::vector<SmemTile> tiles;
  std::vector<int> tile_of;               ///< per value: where it is read, -1: evaluated by its consumers
  std::vector<Extent3> extent_of;         ///< per value, unpadded
  std::vector<std::array<Existing, 3>> existing;
  std::vector<Load> loads;
  std::vector<Step> steps;                ///< in order of execution: invariant, loop, after
  int64_t smem_bytes = 0;
  int blocks_per_sm = 1;
  std::string layout_note;                ///< what the layout program found
  Cost cost;
};

/// plan empty: reason says what does not fit
struct BlockPlanned { std::shared_ptr<const BlockPlan> plan; Cost cost; std::string reason; };
/// Plans `body` on operands and results as they lie in memory (Access by param and by result, any strides). Searches warps, stages, operand
/// order and keeps the cheapest by the cost model.
/// rule: what the program says about contractions (contract_rule).
BlockPlanned plan_block(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results, const Target& target,
                        const ContractRule& rule = {});

}  // namespace mirage
