// --baseline DIR with a GPU: two libraries of one program timed in turn, and what their ratio says. The statistics know nothing of devices:
// `look` may be a simulation.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace mirage {

constexpr double kSlowerRatio = 1.01;   ///< a library is slower if all of the interval is above

/// The ratio of this library's time to the earlier one's: its median and a 95 % bootstrap interval of that.
struct TimeRatio {
  enum class Kind : uint8_t { kSlower, kNotSlower, kInconclusive } kind = Kind::kInconclusive;
  double median = 0, low = 0, high = 0;
  int rounds = 0;
};

/// Of the ratios of rounds, at least one. Percentile bootstrap of the median, 2000 resamples drawn from `seed`.
TimeRatio judge_ratios(const std::vector<double>& ratios, uint64_t seed);

/// Times both in turn, who comes first alternating, and judges: after 15 rounds, and after 30 and 45 if it is open until then.
/// `look(is_new, round)`: microseconds; nullopt: it could not be timed, which ends all.
std::optional<TimeRatio> time_in_turn(const std::function<std::optional<double>(bool is_new, int round)>& look, uint64_t seed);

/// "1.002 times the earlier library's time (95 % interval 0.998 to 1.006, 15 rounds): not slower".
std::string to_string(const TimeRatio&);

}  // namespace mirage
