// See the header.
#include "driver/decide/fit_limits.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "mirage/plan/strategy.h"

namespace mirage {

std::string advice_for_limit(const std::string& reason) {
  static constexpr std::pair<const char*, const char*> kLimits[] = {
#define FIT_LIMIT(words, advice) {words, advice},
#include "driver/decide/fit_limits.def"
  };
  for (const auto& [words, advice] : kLimits)
    if (reason.find(words) != std::string::npos) return advice;
  return "other extents or layouts of the inputs; report.json has what each strategy said of each graph under \"alternatives\"";
}

std::string why_none_fits(const Choices& choices) {
  const Alternative* first = nullptr;   // of those that were planned, the fewest kernels
  for (const Alternative& a : choices.alternatives)
    if (a.plans > 0 && (!first || a.kernels < first->kernels)) first = &a;
  if (!first) return "none was planned";
  // What the general strategy says is the graph's own limit: the others take graphs of one form only.
  std::pair<std::string, std::string> limit = {"", first->reason};
  int64_t plans = 0;
  for (const auto& counted : first->refusals) {
    const auto& refusal = counted.first;
    const int64_t n = counted.second;
    const auto all = strategies();
    const bool is_general =
        std::any_of(all.begin(), all.end(), [&](const Strategy& s) { return std::string_view(s.name) == refusal.first && s.is_general; });
    if (is_general && n > plans) limit = refusal, plans = n;
  }
  const std::string where = limit.first.empty() ? limit.second : fmt::format("{} ({})", limit.second, limit.first);
  return fmt::format("graph {} of {} kernel{}: {}{}; what would change it: {}", first->rank, first->kernels, first->kernels == 1 ? "" : "s",
                     where, plans > 0 ? fmt::format(", at {} of its {} plans", plans, first->plans) : "", advice_for_limit(limit.second));
}

}  // namespace mirage
