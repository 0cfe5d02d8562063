// The values that block graphs under one split can have: each once, with its field value over all blocks and iterations, its abstract
// expression, and whether it is a value that the program has too. Applying an operator to values costs one evaluation at the witness, the
// first time.
#pragma once
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>
#include "search/growth/meter.h"
#include "search/problem/reference.h"
#include "search/problem/splits.h"

namespace mirage::search {

/// Which class of dimensions a tile's dimension has, and what splits it.
struct DimTag {
  int8_t cls = -1;      ///< -1: extent 1
  uint8_t split = 0;    ///< bit a < 3: grid axis a; kLoopBit; kFoldedBit
  friend bool operator==(const DimTag&, const DimTag&) = default;
};
/// along a split's partial axis: the same in every block; its part of a sum; behind the sum over blocks
enum class BlocksPhase : uint8_t { kAlike, kPart, kTotal };
// folded: an accumulator added the loop's tiles up; it must be reduced
inline constexpr uint8_t kGridBits = 7, kLoopBit = 8, kFoldedBit = 16;

struct BlockValue {
  std::vector<DimTag> tags;          ///< one per tile dimension
  Phase phase = Phase::kInvariant;
  BlocksPhase blocks = BlocksPhase::kAlike;
  bool is_bool = false, is_constant = false, is_folded = false;
  FieldTensor data;                  ///< [axes..., loop, ones up to the common rank, tile]: extent 1 where it does not depend on the axis
  ExprId expr = -1;
  int exponentials = 0;
  std::vector<ValueId> same_as;      ///< values of the reference that it is a tile of, or sums up to over the loop
  bool is_load = false;
  bool is_known() const { return is_load || !same_as.empty(); }
  bool is_partial = false;           ///< same_as holds after the loop, or the sum over blocks, only
};

/// An operator with its attributes, as block graphs under a problem may use it.
struct BlockOp {
  Op op;
  int arity = 1;
  bool commutative = false;
  /// (W, X, Y, Z) -> [W X] [Y; Z], which is W Y + X Z: two concatenations, which cost nothing in shared memory, and one matmul (OSDI'25
  /// section 8.1)
  bool is_concat = false;
  bool over_blocks = false;   ///< an accumulator that adds up the parts that blocks along the partial axis have
};

/// Functions and forms that the problem's part of the reference has; with a quotient also the product and the other way round (rewriting
/// needs the pair). Reductions along every dimension.
std::vector<BlockOp> block_operators(const Reference& ref, const Problem& problem, bool loop, bool partial);

class BlockValues {
 public:
  BlockValues(const Reference& ref, const Problem& problem, const Split& split, ExprPool& pool, const std::vector<ExprId>& expressions,
              bool expression_gate, Meter& meter);
  /// False if the witness of this split would need more than 8 dimensions.
  bool fits() const { return fits_; }
  const std::vector<BlockOp>& operators() const { return ops_; }
  const BlockValue& value(int id) const { return values_[static_cast<size_t>(id)]; }
  int size() const { return static_cast<int>(values_.size()); }
  const std::vector<int>& loads() const { return loads_; }           ///< one per load of the split
  const std::vector<int>& constants() const { return constants_; }
  NodeId constant_node(int id) const { return constant_nodes_.at(id); }   ///< of the reference
  /// The value of an operator, or -1 and the gate that closed it (counted in the meter's report), or the meter has no memory for it.
  int apply(int op, std::span<const int> operands);
  /// The target that the value is, stored as the split says, or -1.
  int target_of(int id) const;
  /// Whether a step brings a value that the program does not have. What closes the loop on such a value is no further idea.
  bool is_idea(int op, int result) const {
    return !value(result).is_known() && !std::holds_alternative<Accum>(ops_[static_cast<size_t>(op)].op);
  }
  /// Element operations of a step at the witness, over the iterations that it runs in.
  int64_t work(int op, std::span<const int> operands, int result) const;
  int64_t tile_elements(int id) const;
  std::string describe(int op, std::span<const int> operands) const;

 private:
  int close(Gate gate, int op, std::span<const int> operands);
  std::optional<Gate> infer_tags(const BlockOp& op, std::span<const int> operands, BlockValue& out) const;
  std::optional<Gate> map_tags(const Map& m, std::span<const int> operands, BlockValue& out) const;
  std::optional<Gate> matmul_tags(std::span<const int> operands, BlockValue& out) const;
  std::optional<Gate> unary_tags(const BlockOp& op, const BlockValue& x, BlockValue& out) const;
  ExprId expression(const BlockOp& op, std::span<const int> operands);
  static int64_t effort_of(const Op& op, const FieldTensor& result, const FieldTensor& first, const FieldTensor& last);
  FieldTensor evaluate(const BlockOp& op, std::span<const int> operands);
  int intern(BlockValue v);
  void recognise(BlockValue& v);
  uint8_t partial_bit() const { return split_.partial_axis < 0 ? uint8_t{0} : static_cast<uint8_t>(1u << split_.partial_axis); }
  std::vector<ValueId> matches(const BlockValue& v, ReduceFn parts);
  void add_load(const Load& load);
  const Reference& ref_;
  FieldAlgebra algebra_;                                     ///< a copy: it notes zero denominators in itself
  const Problem& problem_;
  const Split& split_;
  ExprPool& pool_;
  const std::vector<ExprId>& expressions_;
  bool expression_gate_, fits_ = true, has_max_ = false;
  Meter& meter_;
  std::vector<BlockOp> ops_;
  std::vector<BlockValue> values_;
  std::vector<int> loads_, constants_;
  std::map<int, NodeId> constant_nodes_;
  std::unordered_map<uint64_t, int> by_content_;            ///< looked up only
  std::unordered_map<uint64_t, std::vector<ValueId>> reference_by_content_;
  int stack_ = 0, rank_ = 0, max_exponentials_ = 0;
};

}  // namespace mirage::search
