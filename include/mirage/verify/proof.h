// Proof in index notation (docs/verification.md): do two graphs compute the same function, by algebra on their
// elements, at any size? The second answer beside random testing.
#pragma once
#include <cstdint>
#include <string>
#include <vector>
#include "mirage/ir/graph.h"

namespace mirage {

/// What a proof says and under which conditions; or that there is none, which refutes nothing.
struct Proof {
  bool proved = false;
  std::vector<std::string> conditions;   ///< what the laws used ask for: "denominators are not 0", ...
  int64_t size = 0;                      ///< different terms in the normal forms of both graphs
  std::string method;                    ///< "normal forms", or "normal forms and Z3"
  std::string reason;                    ///< not proved: the first place where the normal forms differ, or why there are none
  bool gave_up = false;                  ///< not proved: there is no normal form, so nothing was compared
  /// not proved: the forms are equal, but one graph takes a root, a logarithm or a quotient where the other need not, so it may be
  /// undefined where the other is not
  bool may_be_undefined = false;
  friend bool operator==(const Proof&, const Proof&) = default;
};
std::string to_string(const Proof&);     ///< one line

/// Steps (terms made, products) of all tries of a proof together: of a winner, and of one among many candidates.
constexpr int64_t kProofSteps = 24'000'000, kQuickProofSteps = 250'000;

/// Kernel-level graphs (calls allowed) that obey the laws, with equal input and result types. The time depends on the number of operators,
/// not on extents. Deterministic: limits are counts.
Proof prove(const Graph& a, const Graph& b, int64_t steps = kProofSteps);

}  // namespace mirage
