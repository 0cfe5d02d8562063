// See the header.
#include "driver/evidence/remembered.h"

#include <algorithm>
#include <vector>

namespace mirage {

using ReportJson = nlohmann::ordered_json;

ReportJson told_of(const ReportJson& report, const std::vector<std::string>& not_done) {
  ReportJson out = {
      {"why", report["result"]["why"]}, {"search", report["search"]}, {"alternatives", report["alternatives"]}, {"not_done", not_done}};
  out["search"].erase("seconds");   // of a report with times
  if (out["search"].contains("winner")) out["search"]["winner"].erase("seconds");
  if (report.contains("partition")) out["partition"] = report["partition"];
  return out;
}

bool is_told(const ReportJson& told) {
  const auto has = [&](const char* key, bool (ReportJson::*is)() const noexcept) { return told.contains(key) && (told[key].*is)(); };
  if (!told.is_object() || !has("why", &ReportJson::is_string) || !has("search", &ReportJson::is_object) ||
      !has("alternatives", &ReportJson::is_array) || !has("not_done", &ReportJson::is_array))
    return false;
  for (const char* key : {"states", "candidates", "verified", "rejected", "unknown"})
    if (!told["search"].contains(key) || !told["search"][key].is_number()) return false;
  for (const char* key : {"stop_reason"}) if (!told["search"].contains(key) || !told["search"][key].is_string()) return false;
  if (!told["search"].contains("gates") || !told["search"]["gates"].is_array()) return false;
  for (const ReportJson& g : told["search"]["gates"]) if (!g.is_object() || !g.contains("gate") || !g["gate"].is_string()) return false;
  for (const ReportJson& a : told["alternatives"])
    if (!a.is_object() || !a.contains("chosen") || !a["chosen"].is_boolean() ||
        (a.contains("predicted_us") && !a["predicted_us"].is_number()))
      return false;
  if (told.contains("partition") &&
      (!told["partition"].is_object() || !told["partition"].contains("pieces") || !told["partition"]["pieces"].is_array()))
    return false;
  return std::all_of(told["not_done"].begin(), told["not_done"].end(), [](const ReportJson& n) { return n.is_string(); });
}

void put_remembered(ReportJson& report, const Remembered& r) {
  if (!r.told.is_null()) {
    report["result"]["why"] = r.told["why"];
    report["search"] = r.told["search"];
    report["alternatives"] = r.told["alternatives"];
    const bool has_pieces = r.told.contains("partition");
    if (has_pieces && report.contains("partition")) {
      report["partition"] = r.told["partition"];
    } else if (has_pieces) {   // where it stands in a report: behind the alternatives
      ReportJson all = ReportJson::object();
      for (const auto& [key, value] : report.items()) {
        all[key] = value;
        if (key == "alternatives") all["partition"] = r.told["partition"];
      }
      report = std::move(all);
    } else {
      report.erase("partition");
    }
  }
  std::string again = r.gate == Remembered::Gate::kPassed ? "verified, proved and emulated again" : "verified and proved again";
  again += " in this run, without a search";
  if (r.gate == Remembered::Gate::kPassedEarlier) again += "; that its kernels passed the emulation gate is known of an earlier run";
  report["remembered"] = {{"from", r.from}, {"what", "decided before, by " + r.from + "; " + again}};
}

}  // namespace mirage
