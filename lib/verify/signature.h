// What two graphs must share before anybody compares what they compute.
#pragma once
#include <string>

#include "mirage/ir/graph.h"

namespace mirage::verify {

/// The reason why two graphs cannot be compared (level, inputs, results), or "".
std::string signature_mismatch(const Graph& a, const Graph& b);

/// The fields take any value for a running maximum, so they cannot see that it might be undefined (the root of a negative number) where the
/// program is not. It cannot if it is the maximum of values whose distance to it is used. The reason why that is not so, or "".
std::string loose_running(const Graph& g);

/// g with a cast behind every result of a call that is stored in a machine type (Output::dtype of its body) and read by more than outputs
/// of that very type (through views, too): evaluation and the prover know no other rounding.
Graph say_roundings(const Graph& g);

}  // namespace mirage::verify
