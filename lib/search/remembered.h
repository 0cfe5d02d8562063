// Steps of the search that an earlier run made (--checkpoint): as text, by keys that say the program, the problem, the split and the step.
// Only steps that found nothing are kept: what found graphs is made again, since its graphs are verified again as well. A step is a pure
// function of its key and limits, so a run that uses them gives the same bytes as one that does not.
#pragma once
#include <optional>
#include <string>
#include "search/growth/split_search.h"

namespace mirage::search {

std::string search_name(uint64_t program, const Problem& problem, const SplitOptions& which, bool poor, size_t split);
std::string step_key(const std::string& search, int ideas, StepKind kind = StepKind::kIdeas);
/// nullopt for steps that are not kept: with graphs, or ended from outside.
std::optional<std::string> write_outcome(const Outcome& o, const Limits& had);
struct ReadOutcome { Outcome outcome; Limits had; };
std::optional<ReadOutcome> read_outcome(const std::string& text);   ///< nullopt if it is not what write_outcome wrote

}  // namespace mirage::search
