// Dimensions that windows are cut from (convolutions, pools): overlapping slices of one extent have no common cuts, but where they begin
// and end at fixed distances from the ends, extents follow one another all the same.
#pragma once
#include <cstdint>
#include <vector>

namespace mirage::search {

/// Class `part` is elements at, at + step, ... of class `whole`, `extent` of them; or one of the parts of concatenation `joined` (else -1).
struct PartOf { int whole = -1, part = -1; int64_t at = 0, extent = 0, step = 1; int joined = -1; };

/// A class whose extent is `times` what its group shares, and `rest` more; group -1: none.
struct Shifted { int group = -1; int64_t times = 1, rest = 0; };

/// Per class; `factors`: what it is joined of, if it is. Of each concatenation and each product in a group the largest part is in it, the
/// others (padding, steps) are in `keep`: they keep their extents. Groups that do not work out (padding that is part of another, steps that
/// contradict one another) are left out.
std::vector<Shifted> shifted_classes(const std::vector<int64_t>& extents, const std::vector<std::vector<int>>& factors,
                                     const std::vector<PartOf>& parts, std::vector<int>& keep);

}  // namespace mirage::search
