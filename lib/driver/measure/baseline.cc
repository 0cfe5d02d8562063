// See the header.
#include "driver/measure/baseline.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "driver/measure/device_turn.h"
#include "driver/toolchain/toolchain.h"
#include "mirage/driver/compile.h"
#include "mirage/spec/json_text.h"
#include "mirage/support/file.h"
#include "mirage/support/hash.h"
#include "mirage/support/warden.h"

namespace mirage {

namespace {

namespace fs = std::filesystem;
using TimesJson = nlohmann::ordered_json;

constexpr int kRounds = 15, kLooks = 3, kResamples = 2000;

double median_of(std::vector<double> v) {
  const size_t half = v.size() / 2;
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(half), v.end());
  if (v.size() % 2 == 1) return v[half];
  return (v[half] + *std::max_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(half))) / 2;
}

std::vector<double> positive_numbers(const TimesJson& j, const char* key) {
  std::vector<double> out;
  if (!j.contains(key) || !j[key].is_array()) return out;
  for (const TimesJson& x : j[key]) {
    if (!x.is_number() || !(x.get<double>() > 0)) return {};
    out.push_back(x.get<double>());
  }
  return out;
}

}  // namespace

TimeRatio judge_ratios(const std::vector<double>& ratios, uint64_t seed) {
  TimeRatio out;
  out.rounds = static_cast<int>(ratios.size());
  out.median = median_of(ratios);
  Rng rng(seed);
  std::vector<double> medians, drawn(ratios.size());
  for (int i = 0; i < kResamples; i++) {
    for (double& x : drawn) x = ratios[rng.below(ratios.size())];
    medians.push_back(median_of(drawn));
  }
  std::sort(medians.begin(), medians.end());
  out.low = medians[static_cast<size_t>(0.025 * kResamples)];
  out.high = medians[static_cast<size_t>(0.975 * kResamples) - 1];
  out.kind = out.low > kSlowerRatio     ? TimeRatio::Kind::kSlower
             : out.high <= kSlowerRatio ? TimeRatio::Kind::kNotSlower
                                        : TimeRatio::Kind::kInconclusive;
  return out;
}

std::optional<RatiosOf> ratios_in(const std::string& output) {
  RatiosOf out;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("{")) continue;
    const auto j = read_json_text(line, "", DiagCode::kDeviceCheck);
    if (!j || !j->is_object() || !j->contains("name") || !(*j)["name"].is_string()) return std::nullopt;
    const std::vector<double> earlier = positive_numbers(*j, "earlier_rounds_us"), now = positive_numbers(*j, "rounds_us");
    if (earlier.empty() || earlier.size() != now.size()) return std::nullopt;
    std::vector<double>& ratios = out[(*j)["name"].get<std::string>()];
    for (size_t i = 0; i < now.size(); i++) ratios.push_back(now[i] / earlier[i]);
  }
  return out.empty() ? std::nullopt : std::optional(std::move(out));
}

std::optional<std::map<std::string, TimeRatio>> time_in_turn(const std::function<std::optional<RatiosOf>(int)>& look, uint64_t seed) {
  RatiosOf all;
  std::map<std::string, TimeRatio> out;
  for (int i = 0; i < kLooks; i++) {
    const std::optional<RatiosOf> more = look(i);
    if (!more || more->empty()) return std::nullopt;
    bool is_open = false;
    for (const auto& [what, ratios] : *more) {
      std::vector<double>& mine = all[what];
      mine.insert(mine.end(), ratios.begin(), ratios.end());
      out[what] = judge_ratios(mine, seed);
      is_open |= out[what].kind == TimeRatio::Kind::kInconclusive;
    }
    if (!is_open) break;
  }
  return out;
}

std::string to_string(const TimeRatio& r) {
  const char* what = r.kind == TimeRatio::Kind::kSlower ? "slower" : r.kind == TimeRatio::Kind::kNotSlower ? "not slower" : "inconclusive";
  return fmt::format("{:.3f} times the earlier library's time (95 % interval {:.3f} to {:.3f}, {} rounds): {}", r.median, r.low, r.high,
                     r.rounds, what);
}

std::optional<TimedAgainst> time_against(const std::string& earlier_folder, const std::string& folder, const Options& o,
                                         const std::atomic<bool>* interrupted) {
  const Toolchain tools = find_toolchain();
  const auto was = read_json_file((fs::path(earlier_folder) / "report.json").string(), DiagCode::kBaseline),
             is = read_json_file((fs::path(folder) / "report.json").string(), DiagCode::kBaseline);
  const auto text = [](const TimesJson& j, const char* key) {
    return j.is_object() && j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : std::string();
  };
  if (!tools.has_nvcc() || !was || !is || !detect_device().device) return std::nullopt;
  const std::string name = text(*is, "name");
  for (const char* key : {"name", "spec_id", "target"}) if (text(*was, key) != text(*is, key)) return std::nullopt;
  const std::optional<Target> target = find_target(text(*is, "target"));
  const std::string library = "lib" + name + ".so";
  const TemporaryFolder place;
  if (!target || place.path().empty()) return std::nullopt;
  std::error_code error;
  const std::array<std::string, 2> from = {earlier_folder, folder}, to = {place.path() + "/earlier", place.path() + "/new"};
  for (size_t i = 0; i < 2; i++) {
    fs::create_directory(to[i], error);
    fs::copy_file(fs::path(from[i]) / library, fs::path(to[i]) / library, error);
    if (error) return std::nullopt;
  }
  for (const char* suffix : {".h", "_check.cu"})
    fs::copy_file(fs::path(folder) / (name + suffix), fs::path(to[1]) / (name + suffix), error);
  ProcessLimits limits;
  limits.interrupted = interrupted;
  limits.timeout_s = o.tool_timeout;
  if (error || !build_check(tools, name, *target, to[1], limits)) return std::nullopt;
  const auto look = [&](int number) -> std::optional<RatiosOf> {
    const DeviceTurn turn(4 * o.tool_timeout, interrupted);
    std::vector<std::string> words = {"./" + name + "_check", "--json", "--quick", "--seed", std::to_string(1 + number)};
    for (const std::string& word : {std::string("--rounds"), std::to_string(kRounds), std::string("--against"), to[0] + "/" + library})
      words.push_back(word);
    if (o.warm) words.push_back("--warm");
    const ProcessResult r = run_process(words, to[1], limits);
    return r.ok() ? ratios_in(r.output) : std::nullopt;
  };
  const auto ratios = time_in_turn(look, hash_text(text(*is, "spec_id")));
  if (!ratios) return std::nullopt;
  TimedAgainst out{"", false};
  for (const auto& [what, ratio] : *ratios) {
    out.text += (out.text.empty() ? "" : "; ") + (ratios->size() > 1 ? what + ": " : std::string()) + to_string(ratio);
    out.is_slower |= ratio.kind == TimeRatio::Kind::kSlower;
  }
  return out;
}

}  // namespace mirage
