// The gate tested on itself: kernels of a result with one mistake each (a barrier, a wait or a reset dropped, a buffer swapped, a number or
// a predicate off by one) must not pass it. --self-test.
#pragma once
#include <map>
#include <string>
#include <vector>
#include "driver/gate/mutations.h"
#include "mirage/ir/program.h"
#include "mirage/ir/target.h"
#include "mirage/plan/plan.h"

namespace mirage {

struct SelfTest {
  int mutants = 0, caught = 0, refused = 0;      ///< refused: the compiler finds the mistake (an assertion of the device library)
  /// no mistakes: the compiler makes the same instructions of it at every shape (constants fold, or no kernel of this plan comes there)
  int same_code = 0;
  /// right results at all shapes, and by what argument no harm comes of it: what was done, and where
  std::map<std::string, std::vector<std::string>> harmless;
  std::vector<std::string> survivors;            ///< right results without such an argument
  std::string error;                             ///< not empty: it could not be run
};
/// Mutants of the plan's kernels, half of them in the functions of the device library that they call, against the gate's modes, at reduced
/// shapes with the full shape's tails, with ragged ones, and with every extent ragged: one that is caught at any of them is caught.
SelfTest run_self_test(const Program&, const Plan&, const Target&, const std::string& compiler, size_t mutants, uint64_t seed);
std::string to_string(const SelfTest&);

}  // namespace mirage
