// What the driver does with what the search hands out: verify at both witness sizes, check the rounding, keep the evidence. Stands between
// search/ and verify/, which do not know each other.
#pragma once
#include <string>
#include <utility>
#include <vector>
#include "mirage/search/search.h"
#include "mirage/verify/verify.h"

namespace mirage {

/// The program over small extents, in both variants (0: even splits, 1: ragged tails).
struct Witnesses {
  std::vector<Witness> variants;
  std::string refusal;                              ///< not empty: there are none, and why
};
Witnesses make_witnesses(const Program&);

/// One comparison at a small size that supports a candidate: both graphs, the verdict, the rounding.
struct Claim {
  int variant = 0;
  std::vector<CallNumbers> numbers;                 ///< tiles at this size
  Graph reference, candidate;
  Verdict verdict;
  NumericReport numerics;
};

/// Where the draws of a claim's rounding check begin: what is recorded gives them, so that the check can be repeated.
uint64_t rounding_seed(const Evidence&);

/// A structure that was found equal at both witness sizes.
struct Candidate {
  Structure structure;
  std::vector<Claim> claims;
  double seconds = 0;                               ///< from the start of the search until it was verified; for --report only
};

/// The outcome for one structure: kept if every claim is Equal and the rounding is no worse than that of the reference computed node by
/// node.
struct Examined { SinkVerdict verdict = SinkVerdict::kUnknown; std::string reason; bool numeric = false; Candidate candidate; };
Examined examine(const Structure&, const Program&, const Witnesses&, uint64_t seed);

/// The same for a structure as the search finds it, whose exponentials have no shift: its stable form (mirage/ir/stabilize.h) if that
/// holds, else itself.
Examined examine_stable(const Structure&, const Program&, const Witnesses&, uint64_t seed);

/// What a search of many pieces asks of each of its graphs, of which few are chosen: one trial at the ragged witness. What is chosen must
/// be examined whole (verify_instance). The stable form, where there is one.
Examined examine_quickly(const Structure&, const Witnesses&, uint64_t seed);

/// Small numbers with the same tail classes as `numbers` has over `extents`: an axis that is split stays split, a ragged tail stays ragged
/// where the small extent allows it.
std::vector<CallNumbers> shrink_numbers(const std::vector<CallNumbers>& extents, const std::vector<CallNumbers>& numbers,
                                        const std::vector<CallNumbers>& small_extents);

/// Verifies once more what is about to be emitted: the structure with these numbers, scaled down to both witness sizes with the same tails.
/// The claims, or why it must not be used.
struct Instance { std::vector<Claim> claims; std::string refusal; };
Instance verify_instance(const Structure&, const std::vector<CallNumbers>& numbers, const Program&, const Witnesses&, uint64_t seed);

std::vector<Type> param_types(const Program&);

}  // namespace mirage
