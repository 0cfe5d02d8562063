// Why no verified graph has a plan, and what would change it: for the sentence that says why the straightforward kernels are the result.
#pragma once
#include <string>

#include "driver/decide/numbers.h"

namespace mirage {

/// Which limit of which graph: of the graph with the fewest kernels, what the strategy that takes most graphs said of most of its plans,
/// and what would change that (fit_limits.def). Alternatives of `choices` have no plan.
std::string why_none_fits(const Choices& choices);

/// What would change a limit, by the reason that a strategy gave; general advice for one that the table does not know.
std::string advice_for_limit(const std::string& reason);

}  // namespace mirage
