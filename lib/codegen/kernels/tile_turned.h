// What tile.cc hands on: tile plans whose rows are wgmma's 64-row operand.
#pragma once
#include <set>
#include <string>

#include "mirage/codegen/module.h"
#include "mirage/plan/tile.h"

namespace mirage {

/// The kernel of a plan with `turned` columns.
KernelText emit_turned_kernel(const KernelPlan& kernel, const TilePlan& plan);

/// The map of rows that a tile plan's copies bring (codegen/kernels/tile.cc).
TensorMapText tile_rows_map(const TilePlan& plan, const TileRows& rows);

/// Parameters, launch and source of a tile kernel whose name and maps `k` has already (codegen/kernels/tile.cc); `pointers`: operands that
/// are read through one.
void assemble_tile_kernel(KernelText& k, const KernelPlan& kernel, const TilePlan& plan, const std::set<int>& pointers,
                          const std::string& body);

}  // namespace mirage
