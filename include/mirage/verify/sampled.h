// Graphs too large to evaluate whole, at their own size: some elements of their results, and what these need (docs/verification.md).
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "mirage/ir/graph.h"
#include "mirage/verify/verify.h"

namespace mirage {

/// One element of a result, row-major.
struct Sample { int result = 0; int64_t element = 0; };

/// Of one evaluation. Counts, so that an answer does not depend on the machine.
struct SampleLimits {
  double work = 2e9;    ///< scalar operations
  double bytes = 1e9;   ///< of intermediate values and their positions
};

/// What comparing sampled elements showed. It refutes, and never shows equality.
struct SampledComparison {
  std::optional<Counterexample> difference;
  int elements = 0;        ///< compared for each draw
  double work = 0;         ///< scalar operations of one draw, both graphs
  std::string refusal;     ///< not compared: why
};

/// Evaluates elements of the results at the sizes given, both graphs on the same random inputs: in doubles (several kinds of draws), and in
/// a finite field where nothing uninterpreted takes part. First and last elements, tile ends and random places, as many of at most
/// `elements` as the limits allow. Kernel-level graphs with equal input and result types.
SampledComparison sampled_difference(const Graph& a, const Graph& b, uint64_t seed, int elements = 32, const SampleLimits& limits = {});

}  // namespace mirage
