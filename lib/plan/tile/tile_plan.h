// TilePlan: how a block graph runs that has the structure of plan/stream.h but more rows (design: kernels.md, strategy "tile", rules R19 to
// R23). One ring of tensor copies per block carries weights and rows to warpgroups (wgmma); the weight, transposed, is the 64-row operand,
// so that no row is padded beyond a multiple of 16. Made by plan/tile/tile.cc, told as a program by plan/tile/tile_program.cc.
//
// A block has 64 to 256 columns and up to 256 rows. The blocks of a cluster divide the reduction (a few large tiles divided so bring fewer
// bytes to each multiprocessor than many small ones); or, where the tensor cores are the limit, they have neighbouring columns and bring
// each other's rows. Warpgroups divide rows and columns and hold all matrices, so that what follows the sums never leaves registers.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "plan/stream/stream_plan.h"

namespace mirage {

/// The other operand of contractions: an input that the ring brings as it is, or an expression that the warpgroups compute chunk by chunk
/// into shared memory.
struct TileRows {
  ValueId value = -1;
  NodeId input = -1;                        ///< copied by the ring; -1: computed
  ContractType type = ContractType::kF16;   ///< as the units take it: kTF32 only where computed
  int64_t offset = 0;                       ///< in a stage, or in one of the two buffers of computed rows
  int64_t bytes = 0;                        ///< of one chunk of all rows of a block
  bool across = false;                      ///< copied, from lines that lie across the reduction: boxes of 64 rows; of large plans
};

constexpr int kCopyingRegisters = 40;       ///< that copying warps of a large plan keep

struct TilePlan : StreamShape {
  std::vector<TileRows> small;              ///< distinct values
  std::vector<int> small_of;                ///< per contraction: index into small
  int row_groups = 2, column_groups = 1;    ///< warpgroups that divide a block's rows and its columns, 64 each
  /// rows of one, a multiple of 16 and of 8 times the cluster, at most 128; in a large plan up to 256, and of 16 only
  int group_rows = 32;
  int chunk = 64, stages = 4, cluster = 2, blocks_per_sm = 1;
  int64_t row_blocks = 1;                   ///< of the grid
  int64_t chunks = 1, chunks_per_block = 1; ///< of the reduction; of one block of the cluster
  /// for the tensor cores' rate: products of one chunk run on while the next ones are issued, copying warps give their registers to the
  /// others, what the tail reads is read there
  bool large = false;
  /// large: registers of a warpgroup's thread once the copying warps, four of them then, have given theirs; 0: all keep what they are
  /// launched with
  int grown = 0;
  /// large: blocks of a cluster that have neighbouring columns of the same rows, each of which copies its part of the rows to all
  int sharing = 1;
  /// row blocks that are walked through before the next columns: what blocks at work at the same time read is found in L2
  int64_t panel = 1;
  /// large: what other blocks send of their sums lies over the finished ring, once all blocks of the cluster have finished theirs
  bool overlaid = false;
  /// columns of a warpgroup where its 64 rows are wgmma's 64-row operand (plan/tile/tile_turned.cc); 0: 64 columns of the weight are
  int turned = 0;
  /// large: blocks that stay, each finishing tile after tile (launched() of them): while a tile's results leave through shared memory of
  /// their own, the copies of the next are under way. Row tiles of a warpgroup whose results lie there at once; 0: a block per tile
  int held_tiles = 0;
  int64_t resident = 0;                     ///< such blocks
  bool passing = false;                     ///< their results are more than L2 holds, and leave it first
  bool evict_first = true;
  int lanes = 4;                            ///< threads that share a row where rows are read element by element
  int64_t stage_bytes = 0, weight_bytes = 0;   ///< of one stage; of its weights
  int64_t computed_at = 0, computed_bytes = 0; ///< computed rows: two buffers of computed_bytes each
  int64_t held_at = 0;                      ///< results on their way
  int64_t received_at = 0, ranks_at = 0, statistics_at = 0, barriers_at = 0, smem_bytes = 0;
  Cost cost;
  int groups() const { return row_groups * column_groups; }
  int block_rows() const { return row_groups * group_rows; }
  int block_columns() const { return column_groups * (turned ? turned : 64); }
  int team() const { return 128 * column_groups; }           ///< threads that share rows
  int tiles() const { return group_rows / 8; }               ///< groups of 8 rows of a warpgroup
  /// of a warpgroup, finished by each block of the cluster; by the last one what is left
  int tail_tiles() const { return (tiles() + cluster - 1) / cluster; }
  int rank_pitch() const { return group_rows + 8; }          ///< elements from one rank to the next in shared memory
  /// of sums, from one other block
  int64_t share_bytes() const { return static_cast<int64_t>(sums.size()) * groups() * tail_tiles() * 128 * 16; }
  /// of one result of 16 bits, where its lines are gathered before they are stored (held_tiles: that many row tiles at a time)
  int64_t staged_bytes() const { return int64_t{groups()} * (held_tiles ? held_tiles : tail_tiles()) * 1024; }
  /// the same of row statistics
  int64_t statistics_bytes() const { return static_cast<int64_t>(statistics.size()) * block_rows() * 4; }
  bool computes() const { return computed_bytes > 0; }
  int threads() const { return 128 * groups() + (turned ? 0 : grown > 0 ? 128 : 64); }
  int blocks_together() const { return cluster * sharing; }                           ///< of a cluster
  int64_t column_blocks() const { return (cols + block_columns() - 1) / block_columns(); }
  int64_t blocks() const { return (column_blocks() + sharing - 1) / sharing * sharing * row_blocks * cluster; }
  int64_t launched() const { return held_tiles ? resident : blocks() * batch; }       ///< of the grid
};

/// plan empty: reason says why the graph is not of this kind
struct TilePlanned { std::shared_ptr<const TilePlan> plan; Cost cost; std::string reason; };

/// Plans `body` on operands and results as they lie in memory, if it is of the structure of plan/stream.h with more than 16 rows and
/// nothing to be reduced before the loop. Keeps the cheapest division by its cost model. Needs sm_90a. rule: what the program says about
/// contractions.
TilePlanned plan_tile(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results, const Target& target,
                      const ContractRule& rule = {});

/// All divisions that fit, the cheapest first; empty with the reason. Measuring and the ranking test read it.
struct TileCandidates { std::vector<TilePlan> plans; std::string reason; };
TileCandidates tile_candidates(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results,
                               const Target& target, const ContractRule& rule = {});

/// Whether a contraction is a low rank that warps add up beside wgmma (mma.sync, rows on its 16-row side); in TF32 it is a weight of few
/// columns instead.
bool tile_rank(const TilePlan&, size_t contraction);

/// Rows first (`turned`): whether the second factor of a low rank comes by tensor copies, too.
bool copied_factor(const TilePlan&, const StreamProduct&);

/// Where a result (an Output) or an operand of rows and columns that the tail reads (an Input) is gathered in shared memory, over the
/// finished ring, so that whole lines are stored or read at once; -1: threads store and read their own elements. Large plans.
int64_t staged_at(const TilePlan&, NodeId);

/// Whether the lines in which a result is gathered there lie along rows; kUneven: they begin at any element.
enum class ByColumns : uint8_t { kNo, kWhole, kUneven };
ByColumns staged_by_columns(const TilePlan&, NodeId output);

}  // namespace mirage
