// The plan of one graph-defined kernel: how a block graph runs on threads, registers and shared memory.
#pragma once
#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>
#include "mirage/ir/contraction.h"
#include "mirage/plan/plan.h"

namespace mirage {

struct Cost { double us = 0; std::string why; int64_t bytes = 0; double flops = 0; };

/// Values of block graphs as matrices with at most one batch dimension.
using Extent3 = std::array<int64_t, 3>;   ///< b, r, c
/// The dimension of a value of rank `rank` behind b, r or c (0, 1, 2); for b the leading dimension whose extent is above 1; -1: none.
int dim_of(const Dims& dims, int index3);

/// `body` with every accumulated linear combination of contractions and sums (of one use each) taken apart: accum(a + b) becomes accum(a) +
/// accum(b), and accum(a · c) becomes accum(a) · c where c is the same in every iteration. The same function of real numbers; planners
/// accumulate the parts in registers. sums.cc
Graph separate_sums(const Graph& body);

/// A block graph for a pre-defined MatMul of these types (batch, M, N on the grid, K in the loop, ragged tails), the candidate whose plan
/// is cheapest.
/// strides: of both operands where they lie; empty: row-major.
Graph lower_matmul(const Type& a, const Type& b, const Target& target, const ContractRule& rule = {}, std::span<const Dims> strides = {});

}  // namespace mirage
