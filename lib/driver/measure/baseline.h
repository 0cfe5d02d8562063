// --baseline DIR with a GPU: two libraries of one program timed in turn, and what their ratio says. The statistics know nothing of devices:
// `look` may be a simulation.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
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

/// Ratios of rounds, by what was timed: the library, or its sizes where it has several ("gated M=16").
using RatiosOf = std::map<std::string, std::vector<double>>;

/// What a check program printed with --against: a line of JSON for each. nullopt: not that, or no times.
std::optional<RatiosOf> ratios_in(const std::string& output);

/// Judges the rounds of a look (15, of one process), and of a second and third with them where something is open until then.
/// `look(number)`: nullopt if it could not be timed, which ends all.
std::optional<std::map<std::string, TimeRatio>> time_in_turn(const std::function<std::optional<RatiosOf>(int)>& look, uint64_t seed);

/// "1.002 times the earlier library's time (95 % interval 0.998 to 1.006, 15 rounds): not slower".
std::string to_string(const TimeRatio&);

}  // namespace mirage
