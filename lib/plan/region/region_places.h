// Loops over the places of an image: rows and columns, several rows to a thread. Private to lib/plan.
#pragma once
#include "plan/region/region_index.h"

namespace mirage {

/// The last loop as one over rows and one over columns, where it is divided by the length of a row anywhere; false: it is not. Lanes of a
/// vector lie in one row then, and what stands before its first column concerns one of them.
bool split_rows(RegionPlan&);

/// An elementwise kernel's threads work on so many neighbouring rows each, so that what windows of these share is read once; false: rows do
/// not come in as many.
bool take_rows(RegionPlan&, int64_t rows);
/// The same along the outer loop in place `at`, which is not the last.
bool take_places(RegionPlan&, size_t at, int64_t places);

/// Whether windows of some of so many neighbours along the loop ahead of the last read the same elements. For plans with a width.
bool shares_rows(const RegionPlan&, int64_t rows);

}  // namespace mirage
