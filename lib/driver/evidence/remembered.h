// What a decision keeps besides itself: why it was made, what was searched and what lost, so that the report of a run that recalls it is
// that of the run that made it.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace mirage {

struct Remembered {
  std::string from;               ///< "the cache", "the lock"
  nlohmann::ordered_json told;    ///< of told_of(); null: the decision was kept without it
  enum class Gate { kNotRun, kPassed, kPassedEarlier } gate = Gate::kNotRun;   ///< the emulation gate, in this run or an earlier one
};

/// What of a report (report.json) a recalled decision cannot say anew, with the notes of the decision.
nlohmann::ordered_json told_of(const nlohmann::ordered_json& report, const std::vector<std::string>& not_done);

/// Whether `told` has the form that told_of() gives it: it comes from a file that anybody may have written.
bool is_told(const nlohmann::ordered_json& told);

/// Puts it into the report of a run that recalled the decision, which says so under "remembered".
void put_remembered(nlohmann::ordered_json& report, const Remembered&);

}  // namespace mirage
