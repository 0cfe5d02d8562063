// The way from a spec's program to the muGraph that was found, as named algebraic steps: each a rewriting of the whole program that brings
// it nearer to what the muGraph computes. For people: what makes a result right is its proof and its trials, not this.
#pragma once
#include <string>
#include <vector>

#include "mirage/ir/program.h"
#include "mirage/plan/plan.h"

namespace mirage {

/// What a step leaves: kernels, device memory traffic, operations. Up to "neighbours share kernels" every operator that computes is a
/// kernel that reads and writes memory.
struct AlgebraStep {
  std::string what;
  int64_t kernels = 0, bytes = 0;
  double flops = 0;
};

/// From the program operator by operator to `result`, the plan that is emitted for `found`. The first is the program, the last the result;
/// steps without a name of their own are said to be so.
std::vector<AlgebraStep> algebra_steps(const Program& program, const Graph& found, const Plan& result, const Target& target);

/// The steps as a table, with what each saves; for --explain-result.
std::string to_string(const std::vector<AlgebraStep>&);
/// "2 kernels, 0.1 MB; adds 0.5 Mflop": what b has less than a, and more; "" where they are equal.
std::string saved_by(const AlgebraStep& a, const AlgebraStep& b);

}  // namespace mirage
