// What tile.cc hands on: tile plans whose rows are wgmma's 64-row operand.
#pragma once
#include "mirage/codegen/module.h"
#include "mirage/plan/tile.h"

namespace mirage {

/// The kernel of a plan with `turned` columns.
KernelText emit_turned_kernel(const KernelPlan& kernel, const TilePlan& plan);

/// The map of rows that a tile plan's copies bring (codegen/tile.cc).
TensorMapText tile_rows_map(const TilePlan& plan, const TileRows& rows);

}  // namespace mirage
