// Elements of tiles as CUDA text: maps of a block kernel's program (docs/schedule.md) evaluated at (b, r, c), whose leaves are tiles in
// shared memory and constants.
#pragma once
#include <array>
#include <map>
#include <string>
#include <utility>

#include "mirage/plan/block.h"
#include "mirage/schedule/program.h"

namespace mirage::schedule {

using Index3 = std::array<std::string, 3>;

class TileElements {
 public:
  /// Texts of numbers that 16 bits hold in the end are shorter: where all results are stored in 16 bits, or what a stage makes.
  TileElements(const KernelProgram&, const Derived&);

  /// Values at places, and the variables that have them.
  using Known = std::map<std::pair<ValueId, std::string>, std::string>;
  /// An element as text: statements that come first, and what it is then. `w` in them: how many neighbours are read together, along the
  /// index whose text is `packed`. known: with what the statements have made.
  struct Text { std::string statements, result; Known known; };
  Text text(const Stage& s, ValueId v, const Index3& where, const std::string& packed = "c", Known known = {}) const;
  /// A function of (w, b, r, c) that returns v there, or, turned, of (w, b, c, r).
  std::string lambda(const Stage& s, ValueId v, bool turned = false) const;
  /// Whether evaluating v reads a tile whose lines lie along c (0) or along r (1); what is the same for all of either lies in none.
  std::array<bool, 2> lines_of(const Stage& s, ValueId v) const;
  /// Whether lines of all matrices that evaluating v reads lie along r: then elements are computed along it.
  bool is_turned(const Stage& s, ValueId v) const { const auto [along, down] = lines_of(s, v); return down && !along; }
  /// Whether all that the stage computes is rounded to 16 bits in the end.
  bool is_narrow(const Stage& s) const;
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
    std::string packed;
    bool narrow = false;
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
