// Elements of tiles as CUDA text: maps of a block kernel's program (docs/schedule.md) evaluated at (b, r, c), whose leaves are tiles in
// shared memory and constants.
#pragma once
#include <array>
#include <map>
#include <string>
#include <utility>

#include "mirage/plan/block_plan.h"
#include "mirage/schedule/program.h"

namespace mirage::schedule {

using Index3 = std::array<std::string, 3>;

class TileElements {
 public:
  /// Texts of numbers that 16 bits hold in the end are shorter, where all results are stored in 16 bits.
  TileElements(const KernelProgram&, const Derived&);

  /// An element as text: statements that come first, and what it is then. `w` in them: how many neighbours along c are read together.
  struct Text { std::string statements, result; };
  using Known = std::map<std::pair<ValueId, std::string>, std::string>;   ///< values at places, and the variables that have them
  Text text(const Stage& s, ValueId v, const Index3& where, Known known = {}) const;
  /// A function of (w, b, r, c) that returns v there.
  std::string lambda(const Stage& s, ValueId v) const;
  /// Whether evaluating v reads a tile through a transpose, where neighbours along c are no neighbours in the tile: no packs then.
  bool is_turned(const Stage& s, ValueId v) const;
  /// Whether a transpose has columns where its operand has rows.
  bool swaps(const Transpose& t, ValueId v) const;

  /// Which section each value that the stage reads is in. What is in none is evaluated from what its own stage reads.
  std::map<ValueId, int> leaves_of(const Stage& s) const;
  const Stage* maker(PlaceId x) const { return maker_.at(x); }   ///< the stage that makes it
  std::string name(int section) const;                           ///< of a section's tile, behind the letter of what it is

  // ---- values as matrices: how large their tiles are
  int64_t tile_of(IndexId i) const { return i < 0 ? 1 : p_.tile_of(i); }
  Dims tile_dims(ValueId v) const;
  Extent3 extent(ValueId v) const;

 private:
  static size_t at(int i) { return static_cast<size_t>(i); }
  struct Region {
    std::map<ValueId, int> leaves;
    Known known;
    std::string statements = {};
  };
  std::string element(ValueId v, const Index3& index, Region& r) const;
  std::string map(ValueId v, const Index3& i, Region& r) const;

  const KernelProgram& p_;
  const Derived& d_;
  const Graph& g_;
  std::map<PlaceId, const Stage*> maker_;
  bool narrow_ = false;
};

}  // namespace mirage::schedule
