// StreamPlan: how a block graph runs whose weights are read once and dwarf everything else (design: kernels.md, strategy "stream"). Weights
// flow through rings of tensor copies into tensor cores as the 16-row operand; the few rows of the other operand, their row statistics,
// low-rank side products and everything behind the sums ride along in registers. Made by plan/stream/stream.cc from the structure of the
// graph, told as a program by plan/stream/stream_program.cc, which is what is emitted.
//
// The plan ignores the tiles of the body's grid and loop: it has its own, 64 columns or fewer and `chunk` elements of the reduction, over
// the same extents.
#pragma once
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>
#include "mirage/plan/block.h"

namespace mirage {

/// The roles of a block graph's dimensions, at full extent: rows of the small operand, columns of the weights, the reduction, a low rank
/// between two products, what is reduced before the loop; products that stand beside each other; groups of the reduction; its
/// second part. kOne: extent 1.
enum class StreamAxis : uint8_t { kOne, kRow, kCol, kDepth, kRank, kWhole, kBatch, kGroup, kSecond };

constexpr int kUnevenLine = 144;        ///< bytes of the vectors that hold 64 elements of a line which begins anywhere

/// An input that flows through the ring: one box per chunk.
struct StreamWeight {
  NodeId input = -1;
  StreamAxis free = StreamAxis::kCol;   ///< kCol: `columns` per block; kRank: all of it
  bool depth_major = false;             ///< neighbours along the reduction are neighbours in memory
  int64_t extent = 0;                   ///< columns or rank
  int padded = 64;                      ///< columns of the box: `columns`, or the rank rounded up to 16, 32 or 64
  int64_t line = 0;                     ///< elements between lines in memory
  int64_t slice = 0;                    ///< elements from one product of the batch to the next; 0: the same for all
  /// its lines begin at any element: brought as the whole vectors that hold them, without tensor copies (runtime/45_stream_uneven.cuh)
  bool uneven = false;
  /// kRank, lines across the reduction without gaps between them: brought in lines of 128 bytes, which lie in shared memory as they do in
  /// memory, with the swizzle of a tensor copy
  bool packed = false;
  /// of the reduction's second part: the weight whose place it takes there; -1: it is of the first
  int instead_of = -1;
  int step = 0;                         ///< which ring step of a chunk brings it
  int offset = 0;                       ///< bytes from the start of its place in the ring
};

/// A product in the loop: a function of the small inputs times a weight, summed over the reduction in registers.
struct StreamContraction {
  NodeId node = -1;
  ValueId sum = -1;        ///< the accumulator
  ValueId small = -1;      ///< the other operand: a map of inputs along rows and reduction
  int weight = -1;
  ValueId made = -1;  ///< the operand that the loop computes of the weight and of what differs by column or group; -1: as stored
  /// what is added up over groups: the product of each group times factors that differ by column and group; -1: the product itself
  ValueId factored = -1;
  ContractType type = ContractType::kF16;   ///< in which arithmetic (ir/contraction.h); not kF32
  /// StreamPlan: instead of TF32, whose partner is float16, in float16 times a power of two per row (docs/decisions.md, "Computed operands
  /// in float16, scaled by line")
  bool scaled = false;
};

/// A sum or maximum over the reduction of a function of the small inputs, for every row (the same for all, if the function knows no rows).
struct StreamStatistic { ValueId result = -1, of = -1; ReduceFn fn = ReduceFn::kSum; };

/// A low-rank sum, times `scale` and vectors along the rank, times its second factor, columns as the 16-row operand. Linear, so each warp
/// multiplies its own partial sum.
struct StreamProduct {
  ValueId value = -1;
  int contraction = -1;
  NodeId input = -1;             ///< the second factor
  int64_t rank_stride = 0, col_stride = 0;
  double scale = 1;
  std::vector<NodeId> gains;     ///< inputs with one element per rank
  bool gained() const { return scale != 1 || !gains.empty(); }
};

/// What is added up over warps and blocks: a linear combination of contractions and products.
struct StreamSum {
  ValueId value = -1;
  std::vector<std::pair<int, double>> contractions, products;   ///< (index, factor)
};

/// What the graph says, whatever the plan: shared by the strategies that run it (StreamPlan; TilePlan, plan/tile.h).
struct StreamShape {
  Graph body;
  std::vector<Access> operands, results;
  ContractRule rule;                             ///< how contractions may round
  int64_t rows = 1, cols = 1, depth = 1;
  /// elements of the reduction in a group (weights with a scale for each 128 of the reduction): it is over two dimensions, groups and what
  /// is in one, that lie one behind the other; `depth` counts both. 0: no groups
  int64_t group = 0;
  /// x w + h u: one reduction of two parts, the elements of h and u behind those of x and w. `second`: elements of the second part, which
  /// `depth` counts, too; 0: there is none. second_input: its rows
  int64_t second = 0;
  NodeId second_input = -1;
  int64_t batch = 1;                             ///< the same over other slices of the tensors, along the second axis of the kernel's grid
  std::vector<std::vector<StreamAxis>> axes;     ///< per value, per dimension
  std::vector<StreamWeight> weights;
  std::vector<StreamContraction> contractions;
  std::vector<StreamStatistic> statistics;
  /// reductions of whole rows before the loop, while the first weights are under way; each may use those before it
  std::vector<StreamStatistic> early;
  std::vector<StreamProduct> products;
  std::vector<StreamSum> sums;
  bool narrow = false;                           ///< the operand with fewer columns is the weight
  /// Whether weights come without tensor copies: all that have columns, or none.
  bool uneven() const { return std::any_of(weights.begin(), weights.end(), [](const StreamWeight& w) { return w.uneven; }); }
};

struct StreamPlan : StreamShape {
  int warps = 8, stages = 2, chunk = 64, cluster = 2, blocks_per_sm = 1;
  bool evict_first = true;
  /// weights go straight to registers, without ring, copies or barriers: a warp's whole part fits there (warps x chunk cover the reduction,
  /// no cluster)
  bool registers = false;
  int columns = 64;                              ///< of a block: 64, 32 or 16
  /// what `early` reduces fits a warp's registers until all of it is known: asked for before the weights, behind which it would wait for
  /// device memory
  bool hold_early = false;
  /// held rows become the products' operand once, in shared memory, as soon as their reductions are known; the loop reads nothing else
  bool prepared = false;
  int64_t prepared_at = 0, prepared_pitch = 0;   ///< bytes: where, from one row to the next
  /// further calls of this form over the same rows, each with columns of its own (a linear layer of another width): their blocks follow in
  /// the grid (plan/passes/beside.cc)
  std::vector<StreamShape> beside;
  /// blocks start at different chunks: a low-rank factor is the same for all, and its lines of L2 would be asked by all at once
  bool staggered = false;
  int row_tiles = 1;                             ///< groups of 8 rows
  int steps = 1;                                 ///< ring steps per chunk
  int64_t stage_bytes = 0, ring_bytes = 0;       ///< of one warp
  int64_t received_at = 0, statistics_at = 0, early_at = 0, barriers_at = 0, smem_bytes = 0;   ///< places in shared memory
  Cost cost;
  /// Whether of each eight lines of weight i, which lie along the reduction, those of even columns come first in the ring: eight lanes read
  /// two neighbouring columns at once, which would share banks. Columns come in eights then, in all calls.
  bool even_first(size_t i) const;
  int64_t column_blocks() const {
    int64_t n = (cols + columns - 1) / columns;
    for (const StreamShape& s : beside) n += (s.cols + columns - 1) / columns;
    return n;
  }
};

/// plan empty: reason says why the graph is not of this kind
struct StreamPlanned { std::shared_ptr<const StreamPlan> plan; Cost cost; std::string reason; };

/// Plans `body` on operands and results as they lie in memory (Access by param and by result), if it is of this kind: few rows, 16-bit
/// weights with contiguous lines, everything else elementwise. Keeps the cheapest division by its cost model. Needs a target with tensor
/// copies and clusters. rule: what the program says about contractions.
StreamPlanned plan_stream(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results, const Target& target,
                          const ContractRule& rule = {});

/// All divisions that fit, the cheapest first; empty with the reason. Measuring and the ranking test read it.
struct StreamCandidates { std::vector<StreamPlan> plans; std::string reason; };
StreamCandidates stream_candidates(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results,
                                   const Target& target, const ContractRule& rule = {});

/// Elements at a time in which an input of the loop that differs along the reduction can be read: its lines begin and end at multiples of
/// them. 8: whole vectors (also of what is no such input).
int64_t stream_row_unit(const StreamShape&, NodeId input);

/// Inputs that weights or their products are scaled by in the loop (StreamContraction::made, factored), each once.
std::vector<NodeId> stream_factors(const StreamShape&);
/// Whether the loop computes weights, or scales their products by group, before it adds them up.
bool computes_weights(const StreamShape&);
bool differs_by_group(const StreamShape&, NodeId input);
int groups_of_chunk(const StreamPlan&);  ///< of the reduction: in one chunk, or one that chunks are parts of

/// Which of the inputs `whole` (reduced before the loop, over the whole reduction) reads the same elements as input `deep` of the loop; -1:
/// none.
NodeId held_input(const StreamShape&, NodeId deep, const std::set<NodeId>& whole);

}  // namespace mirage
