// The gate tested on itself: kernels of a result with one mistake each (a barrier, a wait or a reset dropped, a buffer swapped, a number or a predicate off by one) must not pass it. --self-test.
#pragma once
#include <map>
#include <string>
#include <vector>
#include "mirage/ir/program.h"
#include "mirage/ir/target.h"
#include "mirage/plan/plan.h"

namespace mirage {

/// One mistake: what was done to which line of a kernel's text.
struct KernelMutant { size_t kernel = 0; std::string what, line, source; int64_t number = 0; int nth = 0; };   ///< number: of the line; nth: of its kind on that line
/// All mistakes that are known for a kernel's text.
std::vector<KernelMutant> all_mutants(const std::string& source, size_t kernel);
/// Mistakes in a kernel's text, at most `count`, chosen by `seed` among all that are known, every kind in turn.
std::vector<KernelMutant> mutate_kernel(const std::string& source, size_t kernel, size_t count, uint64_t seed);

struct SelfTest {
  int mutants = 0, caught = 0, refused = 0;      ///< refused: the compiler finds the mistake (an assertion of the device library)
  std::map<std::string, std::vector<std::string>> harmless;   ///< right results at all shapes, and by what argument no harm comes of it: what was done, and where
  std::vector<std::string> survivors;            ///< right results without such an argument
  std::string error;                             ///< not empty: it could not be run
};
/// Mutants of the plan's kernels against the gate's modes, at reduced shapes with the full shape's tails, with ragged ones, and with every extent ragged: one that is caught at any of them is caught.
SelfTest run_self_test(const Program&, const Plan&, const Target&, const std::string& compiler, size_t mutants, uint64_t seed);
std::string to_string(const SelfTest&);

}  // namespace mirage
