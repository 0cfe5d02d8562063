// Layouts of shared-memory tiles as an optimisation problem: one choice per tile, costs in cycles and bytes, a common capacity. OSDI'25
// section 6.
#pragma once
#include <cstdint>
#include <string>
#include <vector>
#include "plan/block/block_plan.h"

namespace mirage {

/// How the lines of a tile are laid out: as they are, with one 16-byte unit of padding, or with their 16-byte chunks permuted by XOR with
/// the line number.
enum class LayoutKind : uint8_t { kPlain, kPadded, kSwizzled };
/// cost: cycles of one block over the whole loop
struct LayoutOption { LayoutKind kind = LayoutKind::kPlain; int64_t ld = 0; int64_t bytes = 0; int64_t cost = 0; };

/// The options of every tile of a plan, in tile order (one option where nothing is to choose). Conflicts are counted exactly: for ldmatrix,
/// eight lines at a time must fall into different 16-byte columns of the 128-byte bank row; 4-byte operands (TF32) are read by a warp as 8
/// x 8 elements, in pairs along the contraction.
std::vector<std::vector<LayoutOption>> layout_options(const BlockPlan& plan);

/// The elements between lines of an operand tile of tensor cores that is padded but not swizzled: the least whose accesses have no bank
/// conflicts. Extents and direction of the tile are set.
int64_t padded_line(const BlockPlan& plan, int tile);

struct LayoutAssignment { std::vector<size_t> option; int64_t cost = 0; bool optimal = false; };
/// The cheapest choice (cost, then bytes) whose bytes stay within `capacity`: an integer linear program, solved by Z3 with a deterministic
/// resource limit. optimal: Z3 proved it; otherwise the best padded choice is returned. Problems that were solved before in this process
/// are remembered.
LayoutAssignment assign_layouts(const std::vector<std::vector<LayoutOption>>& options, int64_t capacity);

}  // namespace mirage
