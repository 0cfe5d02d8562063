// Forms for CI: JUnit XML, and the comparison with a baseline report. Pure functions of what compile() returned.
#include <cmath>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "driver/report/drawing.h"
#include "mirage/driver/compile.h"
#include "mirage/spec/json_text.h"

namespace mirage {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kTolerance = 1.01;   // below that is rounding in reports, or noise of a measurement

/// XML 1.0 has no other control characters than the page has; bytes that are no UTF-8 would make the file unreadable.
std::string xml(std::string s) {
  for (char& c : s) if (static_cast<unsigned char>(c) >= 128) c = '?';
  return html_text(s);
}

/// Reports by name: of one spec, or of a corpus, where one has the name of its folder.
void collect(const Json& j, std::map<std::string, Json>& out) {
  if (j.contains("specs") && j["specs"].is_array())
    for (const Json& one : j["specs"]) collect(one, out);
  if (j.contains("points") && j["points"].is_array())   // of a library for several programs: each has a name of its own
    for (const Json& one : j["points"]) collect(one, out);
  if (j.is_object() && j.contains("name") && j["name"].is_string() && j.contains("result") && j["result"].is_object())
    out[j.contains("folder") && j["folder"].is_string() ? j["folder"].get<std::string>() : j["name"].get<std::string>()] = j;
}

/// The text under a key; "" where there is none, or something else: a baseline is a file that anybody may have written.
std::string text(const Json& j, const char* key) {
  const auto at = j.find(key);
  return at != j.end() && at->is_string() ? at->get<std::string>() : "";
}

/// The number at a path of keys.
std::optional<double> number(const Json& j, const std::vector<std::string>& path) {
  const Json* at = &j;
  for (const std::string& key : path) {
    if (!at->is_object() || !at->contains(key)) return std::nullopt;
    at = &(*at)[key];
  }
  return at->is_number() ? std::optional(at->get<double>()) : std::nullopt;
}

}  // namespace

Diagnostics compare_with_baseline(const Source& baseline, const std::vector<std::string>& reports) {
  std::map<std::string, Json> before, now;
  const auto read = read_json_text(baseline.text, baseline.name, DiagCode::kBaseline);
  if (!read) return read.errors();
  collect(*read, before);
  if (before.empty()) return {{Severity::kError, DiagCode::kBaseline, {baseline.name, 0, 0, 1}, "the file is no report of mirage-opt", {}}};
  for (const std::string& r : reports)
    if (const auto report = read_json_text(r, "", DiagCode::kBaseline)) collect(*report, now);
  Diagnostics out;
  for (const auto& [name, report] : now) {
    const auto old = before.find(name);
    if (old == before.end()) continue;   // new in this run
    const bool same = text(report, "target") == text(old->second, "target");
    if (!same) continue;   // another GPU is no comparison
    static const std::vector<std::pair<std::string, std::vector<std::string>>> kNumbers = {{"predicted", {"result", "predicted_us"}},
                                                                                           {"measured", {"measured", "cold_us"}}};
    for (const auto& [what, path] : kNumbers) {
      const auto was = number(old->second, path), is = number(report, path);
      if (!was || !is || *is <= *was * kTolerance) continue;
      out.push_back(
          {Severity::kError,
           DiagCode::kSlower,
           {},
           fmt::format("{}: {:.3f} us {}, {:.3f} us in {} ({:+.1f} %)", name, *is, what, *was, baseline.name, 100 * (*is / *was - 1)),
           {{{}, "now: " + text(report["result"], "why")}, {{}, "then: " + text(old->second["result"], "why")}}});
    }
  }
  return out;
}

std::map<std::string, std::string> slower_by_name(const Diagnostics& slower) {
  std::map<std::string, std::string> out;
  for (const Diagnostic& d : slower)
    if (d.code == DiagCode::kSlower) {
      std::string& text = out[d.text.substr(0, d.text.find(": "))];
      text += (text.empty() ? "" : "\n") + d.text;
    }
  return out;
}

std::string junit_xml(const std::vector<SpecOutcome>& outcomes, const std::map<std::string, std::string>& regressions) {
  size_t failures = 0;
  double seconds = 0;
  std::string cases;
  for (size_t i = 0; i < outcomes.size(); i++) {
    const SpecOutcome& r = outcomes[i];
    const std::string name = !r.folder.empty() ? r.folder : !r.name.empty() ? r.name : fmt::format("spec {}", i + 1);
    seconds += r.seconds;
    cases += fmt::format("  <testcase name=\"{}\" classname=\"mirage-opt\" time=\"{:.3f}\">\n", xml(name), r.seconds);
    const auto slower = regressions.find(name);
    if (r.exit != ExitCode::kOk)
      cases += fmt::format("    <failure message=\"exit code {}\">{}</failure>\n", static_cast<int>(r.exit), xml(r.errors));
    else if (slower != regressions.end())
      cases += fmt::format("    <failure message=\"slower than the baseline\">{}</failure>\n", xml(slower->second));
    else cases += "    <system-out>" + xml(r.summary) + "</system-out>\n";
    failures += r.exit != ExitCode::kOk || slower != regressions.end();
    cases += "  </testcase>\n";
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"mirage-opt\" tests=\"{}\" failures=\"{}\" "
      "time=\"{:.3f}\">\n{}</testsuite>\n",
      outcomes.size(), failures, seconds, cases);
}

}  // namespace mirage
