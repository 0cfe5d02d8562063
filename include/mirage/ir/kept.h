// The freedom of node-by-node evaluation (docs/spec.md, "Meaning"): which values of a graph may be kept in 16 bits because they are results
// of the spec's nodes, and the graph that keeps them so. Verification and proofs are about real numbers and never see it; plans and the
// rounding check do.
#pragma once
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "mirage/ir/graph.h"

namespace mirage {

/// Finds the values of a program in graphs that compute the same: a value is one of the program's where the same operators make it of the
/// same inputs, at kernel level or tile by tile in a block graph. What only moves elements of such values (and of inputs in 16 bits, and
/// constants of that type) may be kept as they may: padding, windows.
class KeptValues {
 public:
  /// reference, kept: a program's graph and Program::kept (or the graph over other extents, value by value). Copies what it needs.
  KeptValues(const Graph& reference, std::span<const DType> kept);
  KeptValues(KeptValues&&) noexcept;
  ~KeptValues();
  bool empty() const;   ///< nothing may be kept

  /// Per value of g (kernel level), the type in which it may be kept; kReal: none. origin: per value of g, the value of the reference that
  /// it is known to be (a piece's leaves and results), -1: not known; or empty.
  std::vector<DType> of(const Graph& g, std::span<const ValueId> origin = {}) const;

  enum class Where : uint8_t {
    kOperands,          ///< what a product or a call reads
    kMemory,            ///< what lies in memory: what a product or a call makes or reads, or what waits for one
    kMemoryAndBodies,   ///< and in calls' bodies the operands of float16 products (bfloat16 products round theirs in any case)
    kShared,            ///< what lies in memory, and what several nodes read (a sum over it, and what divides it by that)
  };
  /// g (kernel level) with a cast behind every value that may be kept and lies there, read by all that read the value. nullopt if there are
  /// none. origin: as above.
  /// also: further values, as meanings_of() names them.
  std::optional<Graph> rounded(const Graph& g, Where where, std::span<const ValueId> origin = {}, const std::set<int>& also = {}) const;
  /// Names, the same in every graph, of the values of g (kernel level; casts to a type in which a value may be kept are that value) that
  /// `chosen` has (one per value of g) and that may be kept; where one may not, of what functions make of it, element by element, and what
  /// nothing else reads.
  std::set<int> meanings_of(const Graph& g, const std::vector<bool>& chosen) const;

 private:
  std::vector<DType> types_of(const Graph& g, std::span<const int> numbers) const;   ///< as of()
  struct Table;
  std::unique_ptr<Table> table_;
};

}  // namespace mirage
