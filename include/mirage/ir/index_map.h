// Where elements go: what each operator form does to the dimensions of its operands, in one place. Folding and the law of tails read it;
// whoever asks which index of a result is which of an operand asks here.
#pragma once
#include <optional>
#include <span>
#include <vector>
#include "mirage/ir/op.h"

namespace mirage {

/// What becomes of one dimension of an operand. i counts its elements, j those of the result along `dim`.
struct DimLink {
  enum class Kind : uint8_t {
    kAligned,     ///< i = j
    kBroadcast,   ///< one element, which is every j
    kSummed,      ///< no dimension of the result has it; those of all operands are one index
    kGrouped,     ///< runs of `step` elements are one of the result's
    kPart,        ///< i = begin + step j
    kPlaced,      ///< j = begin + i
    kTiled,       ///< i = j mod the extent
    kRegrouped,   ///< of IndexMap::runs[dim]: elements keep their row-major order among the run's dimensions
  } kind = Kind::kAligned;
  int dim = -1;
  int64_t begin = 0, step = 1;
  friend bool operator==(const DimLink&, const DimLink&) = default;
};

/// Dimensions of an operand, and of the result, that have as many elements together: neighbours from `first` on. As short as they can be;
/// dimensions of extent 1 belong to the run before them.
struct DimRun { int first = 0, count = 0, result_first = 0, result_count = 0; };

struct IndexMap {
  std::vector<std::vector<DimLink>> operands;   ///< per operand, per dimension
  std::vector<DimRun> runs;                     ///< reshapes only
};

/// Of a form whose operands have these types, as infer accepts them. Leaves have no operands; a Call's are what its body's partitions say,
/// and not told here.
IndexMap index_map(const Op& op, std::span<const Type> operands);

/// Where the operand has the element that element `at` of the result is made of, or the first of those that it combines (kSummed,
/// kGrouped); nullopt: nowhere (another part of a concatenation).
std::optional<Dims> element_of(const IndexMap&, size_t operand, const Dims& operand_dims, const Dims& result_dims, const Dims& at);

}  // namespace mirage
