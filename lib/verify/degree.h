// Degrees of what a graph computes, for the probability that unequal graphs agree by chance (OSDI'25 theorem 2; Schwartz-Zippel where there
// is no exponential).
#pragma once
#include <string>

#include "mirage/ir/graph.h"
#include "verify/modulus.h"

namespace mirage::verify {

/// Every element of a value is (sum of `top` terms f*exp(g)) / (sum of `bottom` terms f*exp(g)) in the inputs and in the results of keyed
/// functions as variables of their own.
struct Degree {
  double num = 0, den = 0;      ///< degrees of the f above and below
  double exponent = 0;          ///< degree of the g, cleared of denominators; 0: no exponential
  double top = 1, bottom = 1;   ///< numbers of terms
};

struct GraphDegree {
  Degree worst;                 ///< over all results
  double keyed_calls = 0;       ///< evaluations of keyed functions
  Degree keyed_argument;        ///< the worst of their arguments
  bool is_lax = true;           ///< no keyed function but sqrt, at most one exponential on a path
};

/// g: a kernel-level graph that obeys the laws.
GraphDegree degree_of(const Graph& g);

struct Bound { double log2 = 0; double degree = -1; std::string reason; };
/// Probability that one trial with equal results comes from unequal a and b, as log2, 0 where theory says nothing.
Bound bound_of_trial(const GraphDegree& a, const GraphDegree& b, Primes primes, bool sqrt_power, bool bits);

}  // namespace mirage::verify
