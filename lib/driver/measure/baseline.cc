// See the header.
#include "driver/measure/baseline.h"

#include <algorithm>
#include <array>
#include <filesystem>
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

/// What a check program printed: the median of its cold times.
std::optional<double> time_of(const ProcessResult& r, bool warm) {
  const size_t at = r.output.find('{');
  if (!r.ok() || at == std::string::npos) return std::nullopt;
  const auto j = read_json_text(std::string_view(r.output).substr(at), "", DiagCode::kDeviceCheck);
  const char* key = warm ? "warm_samples_us" : "cold_samples_us";
  if (!j || !j->is_object() || !j->contains(key) || !(*j)[key].is_array()) return std::nullopt;
  std::vector<double> samples;
  for (const TimesJson& x : (*j)[key]) {
    if (!x.is_number() || !(x.get<double>() > 0)) return std::nullopt;
    samples.push_back(x.get<double>());
  }
  return samples.empty() ? std::nullopt : std::optional(median_of(std::move(samples)));
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

std::optional<TimeRatio> time_in_turn(const std::function<std::optional<double>(bool is_new, int round)>& look, uint64_t seed) {
  std::vector<double> ratios;
  TimeRatio out;
  for (int i = 0; i < kLooks; i++) {
    for (int k = 0; k < kRounds; k++) {
      const int round = static_cast<int>(ratios.size());
      std::array<double, 2> us{};   // earlier, new
      for (int turn = 0; turn < 2; turn++) {
        const bool is_new = (turn + round) % 2 == 1;   // clocks and temperature touch both alike
        const std::optional<double> t = look(is_new, round);
        if (!t) return std::nullopt;
        us[is_new] = *t;
      }
      ratios.push_back(us[1] / us[0]);
    }
    out = judge_ratios(ratios, seed);
    if (out.kind != TimeRatio::Kind::kInconclusive) break;
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
  fs::copy_file(fs::path(to[1]) / (name + "_check"), fs::path(to[0]) / (name + "_check"), error);
  if (error) return std::nullopt;
  const auto look = [&](bool is_new, int round) -> std::optional<double> {
    const DeviceTurn turn(4 * o.tool_timeout, interrupted);
    return time_of(run_process({"./" + name + "_check", "--json", "--quick", "--seed", std::to_string(1 + round)}, to[is_new], limits),
                   o.warm);
  };
  const auto ratio = time_in_turn(look, hash_text(text(*is, "spec_id")));
  if (!ratio) return std::nullopt;
  return TimedAgainst{to_string(*ratio), ratio->kind == TimeRatio::Kind::kSlower};
}

}  // namespace mirage
