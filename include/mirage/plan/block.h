// The plan of one graph-defined kernel: how a block graph runs on threads, registers and shared memory.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>
#include "mirage/ir/contraction.h"
#include "mirage/plan/plan.h"

namespace mirage {

struct Cost { double us = 0; std::string why; int64_t bytes = 0; double flops = 0; };

struct BlockPlan;   // defined in plan/block_plan.h; other stages use it through the functions below

/// plan empty: reason says what does not fit
struct BlockPlanned { std::shared_ptr<const BlockPlan> plan; Cost cost; std::string reason; };
/// Plans `body` on operands and results as they lie in memory (Access by param and by result, any strides). Searches warps, stages, operand
/// order and keeps the cheapest by the cost model.
/// rule: what the program says about contractions (contract_rule).
BlockPlanned plan_block(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results, const Target& target,
                        const ContractRule& rule = {});

/// `body` with every accumulated linear combination of contractions and sums (of one use each) taken apart: accum(a + b) becomes accum(a) +
/// accum(b), and accum(a · c) becomes accum(a) · c where c is the same in every iteration. The same function of real numbers; planners
/// accumulate the parts in registers. sums.cc
Graph separate_sums(const Graph& body);

/// A block graph for a pre-defined MatMul of these types (batch, M, N on the grid, K in the loop, ragged tails), the candidate whose plan
/// is cheapest.
/// strides: of both operands where they lie; empty: row-major.
Graph lower_matmul(const Type& a, const Type& b, const Target& target, const ContractRule& rule = {}, std::span<const Dims> strides = {});

}  // namespace mirage
