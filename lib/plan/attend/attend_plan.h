// AttendPlan: how a block graph runs that is attention (design: kernels.md, strategy "attend"): two contractions with a softmax between
// them, the first one's free axis the second one's reduction. Keys and values stream through a ring of tensor copies into warpgroup matrix
// instructions (sm_90a), running maximum and sums live in registers. Made by plan/attend/attend.cc, told as a program by
// attend_program.cc.
//
// The plan ignores the tiles of the body's grid and loop: it has its own, 64 or 128 queries and `chunk` keys, over the same extents.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>
#include "mirage/plan/block.h"

namespace mirage {

/// The roles of a block graph's last two dimensions, at full extent. kOne: extent 1, or the same for all. kFeature is what the first
/// contraction sums, kColumn what the second one leaves free.
enum class AttendAxis : uint8_t { kOne, kQuery, kKey, kFeature, kColumn };

/// A factor that was taken out of an operand or of the scores: it multiplies or divides.
struct AttendFactor { ValueId value = -1; bool divides = false; };

/// Q, K or V as it lies in memory: an input, times factors that are the same along its features (Q, K) or columns (V), times gains that are
/// the same for all its rows.
struct AttendTensor {
  NodeId input = -1;
  int row_dim = -1, col_dim = -1;        ///< of the tensor: along queries or keys; along features or columns
  bool lines_along_rows = false;         ///< neighbours along row_dim are neighbours in memory (col_dim otherwise)
  std::vector<AttendFactor> factors;
  /// where AttendShape::first_keys is set, of K and V: the keys from there on; where first_features is, of Q and K: the features
  SecondPart second;
  /// per feature: those of K as well as of Q multiply Q, once; per column: those of V multiply what the loop summed
  std::vector<AttendFactor> gains;
};

/// What the graph says, whatever the plan.
struct AttendShape {
  int64_t queries = 1, keys = 1, features = 1, columns = 1;
  /// the keys of the first part, where K and V lie in two (a cache, and what is appended to it); 0: in one
  int64_t first_keys = 0;
  /// the same of features, of Q and K (two products that were added); at most one of both
  int64_t first_features = 0;
  /// Chunks of that many keys: none has keys of both parts.
  int64_t chunks(int64_t chunk) const {
    return first_keys == 0 ? (keys + chunk - 1) / chunk : (first_keys + chunk - 1) / chunk + (keys - first_keys + chunk - 1) / chunk;
  }
  Dims batch;                             ///< leading dimensions at full extent
  DType dtype = DType::kF16;
  AttendTensor q, k, v;
  ValueId scores = -1;                    ///< the first contraction
  ValueId logit = -1;                     ///< what the maximum is taken of
  ValueId running = -1, weights = -1;     ///< the running maximum; exp(logit - running)
  bool plain = false;                     ///< the logit is scale times scores and nothing else
  std::vector<AttendFactor> scale;        ///< positive factors of the logit, per query or constant
  /// products and quotients above scores whose factor moved into scale, and the operand that they stand for then
  std::vector<std::pair<ValueId, ValueId>> peeled;
  ValueId share = -1;                     ///< operand of the second contraction
  ValueId result = -1;                    ///< its accumulator
  ValueId last_maximum = -1;              ///< -1: not used behind the loop
  std::vector<ValueId> sums;              ///< accumulators per query; the first is the sum of weights
  bool parts_bounded = false;             ///< a partial result divided by its own sum fits the operands' type
  // A mask by positions: logits are -inf, whatever the scores, for keys above query + last, or below query + first. Proved from the
  // comparison, for chunks of keys that need not be looked at.
  std::optional<int64_t> last, first;
  /// a key that no such mask removes has its scaled score as logit: chunks without removed keys need not evaluate it
  bool only_masks = false;
  std::vector<std::array<AttendAxis, 2>> axes;   ///< per value
};

struct AttendPlan {
  Graph body;
  std::vector<Access> operands, results;
  AttendShape shape;
  int features = 64, columns = 64;        ///< padded to multiples of 64, each part of them (wide: columns to multiples of 128)
  /// up to 16 queries: a group is one warp with a ring of its own (mma.sync), else a warpgroup (wgmma)
  bool warp_rings = false;
  int query_groups = 1, key_groups = 1;   ///< groups along queries (64 each, or 16) and along keys
  int chunk = 64, stages = 2, cluster = 1;
  /// clusters (or blocks without one) with the same queries; above 1 each owns a part of the results and takes the others' sums of it from
  /// slots in device memory, so all blocks must be resident (cooperative launch)
  int meets = 1;
  int64_t slot_bytes = 0;                 ///< scratch in device memory, all ones before and after every launch
  int blocks_per_sm = 1;
  int helpers = 0;                        ///< warps that prepare per-key values
  bool producer = true;                   ///< warps of their own refill the ring (else all chunks have a stage)
  bool turns = false;                     ///< warpgroups take turns on the tensor cores
  int threads = 0, grow = 0, shrink = 0;  ///< grow: registers per consumer thread by setmaxnreg; 0: as launched
  int64_t chunks_per_block = 1;
  int rows = 0;                           ///< of a tile that a block of the cluster owns at the end
  bool narrow_parts = false;              ///< partial results travel in the operands' type
  int64_t ring_at = 0, known_at = 0, receive_at = 0, barriers_at = 0, smem_bytes = 0;
  int record_pitch = 0, record_bytes = 0; ///< of one row of one block's partial results
  /// per-key values for the logits and for the shares (-1 comes first and is the product of K's or V's factors, if there are any)
  std::vector<ValueId> key_known, value_known;
  // Many features or columns, up to 16 queries (attend_wide.cc): one group of 256 threads, all features of `stages` chunks in shared
  // memory, columns dealt to the warps and to the blocks of the cluster.
  bool wide = false;
  /// V's boxes of 64 columns in the ring; 0: V's columns are columns of K's own rows, from box value_box on
  int value_boxes = 0, value_box = 0;
  int64_t scores_at = 0, weights_at = 0, statistics_at = 0;
  Cost cost;
  /// Float16 weights that are only multiplied by a factor per key: two at a time.
  bool pair_factors() const {
    return shape.dtype == DType::kF16 && shape.share == shape.weights && value_known.size() == 1 && value_known[0] < 0;
  }
  /// Two warps, for keys and for values, where four groups wait for chunks of their own; elsewhere one was as good or better, and helpers
  /// fill the warpgroup that it leaves.
  int producers() const { return !producer ? 0 : helpers == 0 && query_groups * key_groups == 4 ? 2 : 1; }
  /// Behind these a row of Q and K, or of V, is padding that matrix instructions need not multiply; `features` and `columns` are what lies
  /// in shared memory.
  int used_features() const { return wide || shape.first_features > 0 ? features : static_cast<int>((shape.features + 15) / 16 * 16); }
  int used_columns() const { return wide ? columns : static_cast<int>((shape.columns + 15) / 16 * 16); }
  int first_boxes() const { return static_cast<int>((shape.first_features + 63) / 64); }   ///< of 64 features, of the first part
  bool query_gains() const { return !shape.q.gains.empty() || !shape.k.gains.empty(); }
  int group_rows() const { return warp_rings || wide ? 16 : 64; }
  int group_threads() const { return wide ? 256 : warp_rings ? 32 : 128; }
  int64_t tiles() const { return (shape.queries + group_rows() * query_groups - 1) / (group_rows() * query_groups); }
  int64_t blocks() const { return shape.batch.elements() * tiles() * cluster * meets; }
};

/// plan empty: reason says why the graph is not of this kind
struct AttendPlanned { std::shared_ptr<const AttendPlan> plan; Cost cost; std::string reason; };

/// Plans `body` on operands and results as they lie in memory (Access by param and by result), if it is attention on 16-bit tensors. Keeps
/// the cheapest division by its cost model. Needs sm_90a.
AttendPlanned plan_attend(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results, const Target& target);

/// All divisions that fit, the cheapest first; empty with the reason. Measuring and the ranking test read it.
struct AttendCandidates { std::vector<AttendPlan> plans; std::string reason; };
AttendCandidates attend_candidates(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results,
                                   const Target& target);

/// Where a value of the body is computed in the kernel.
enum class AttendWhere : uint8_t { kGain, kQueryRow, kKeyRow, kValueRow, kTile, kLogit, kShare, kAfterRow, kAfter };
/// What a value is there: a name that exists (kConst ... kMaximum), something to compute from its operands (kCompute: maps and transposes;
/// kThrough: its remaining operand), or out of place.
enum class AttendLeaf : uint8_t {
  kRefused,
  kCompute,
  kThrough,
  kConst,
  kScores,
  kWeights,
  kResult,
  kSum,
  kMaximum,
  kRow,
  kKnown,
  kAfterRow,
  kElement,
  kStatistic,
  kTile
};
AttendLeaf attend_leaf(const AttendPlan&, ValueId, AttendWhere);

}  // namespace mirage
