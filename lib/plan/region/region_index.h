// Index arithmetic of region kernels: affine forms over loop variables, with divisions and remainders as further variables, simplified by
// ranges. Private to lib/plan.
#pragma once
#include <optional>
#include <vector>
#include "mirage/plan/region.h"

namespace mirage {

Affine operator+(const Affine& a, const Affine& b);
Affine operator*(const Affine& a, int64_t c);
inline Affine affine(int64_t c) { return {c, {}}; }
inline Affine affine_var(int v) { return {0, {{v, 1}}}; }

using Index = std::vector<Affine>;   ///< one affine form per dimension of a value

/// The variables of a kernel while it is built.
class VarTable {
 public:
  std::vector<IndexVar> vars;
  int add_loop(int64_t extent, IndexVar::Kind kind = IndexVar::Kind::kLoop);
  /// a / m and a % m for 0 <= a < extent (known from where a stands; the range of the form itself may be wider).
  Affine div(const Affine& a, int64_t m, int64_t extent);
  Affine mod(const Affine& a, int64_t m, int64_t extent);
  /// The index at element `at` of an access, of a dimension of `extent` elements; `extent` where it is none of them.
  Affine loaded(int access, const Affine& at, int64_t extent);
  /// Writes c*m*(x / m) + c*(x % m) as c*x, wherever a form has such a pair.
  Affine recombine(Affine a) const;
  /// Largest and smallest value of a form when its variables range freely.
  int64_t max_of(const Affine& a) const;
  int64_t min_of(const Affine& a) const;
  bool on_lane(const Affine& a) const;
  /// The index of an element of the operand of a Reshape from `from` to `to`, given its index in the result.
  Index reshape(const Index& at, const Dims& from, const Dims& to);

 private:
  int divmod_var(IndexVar::Kind kind, const Affine& a, int64_t m, int64_t extent);
  /// a = q + r with q a multiple of m and 0 <= r < m for all values of the variables; nullopt if the form does not split so.
  std::optional<std::pair<Affine, Affine>> split(const Affine& a, int64_t m) const;
};

/// Replaces every variable of a form by its image.
Affine substitute(const Affine& a, const std::vector<Affine>& image);

/// A plan in a new table of variables. `table` holds the new loops; image[v] is set for the old loops. In region.cc.
void rebuild(RegionPlan&, VarTable table, std::vector<Affine> image);

/// Strides of a tensor of shape `to` that is the reshape of one of shape `from` with `strides`; nullopt if no strides describe it.
std::optional<Dims> reshape_strides(const Dims& from, const Dims& strides, const Dims& to);

}  // namespace mirage
