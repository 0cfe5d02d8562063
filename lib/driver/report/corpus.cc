// What belongs to a run of many specs: which part of them is a shard's, what is done already, one report of all, the index page. Pure
// functions of reports, but for the files that they name.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "driver/output/family_files.h"
#include "driver/output/outputs.h"
#include "driver/output/own_files.h"
#include "driver/report/report.h"
#include "driver/toolchain/toolchain.h"
#include "mirage/driver/compile.h"
#include "mirage/driver/modes.h"
#include "mirage/spec/json_text.h"
#include "mirage/support/file.h"
#include "mirage/support/hash.h"

#ifndef MIRAGE_VERSION
#define MIRAGE_VERSION "0.1.0"
#endif

namespace mirage {

namespace {

namespace fs = std::filesystem;
using CorpusJson = nlohmann::ordered_json;

constexpr int kCorpusVersion = 1;

bool by_folder(const SpecOutcome& a, const SpecOutcome& b) { return std::pair(a.folder, a.name) < std::pair(b.folder, b.name); }

/// The spec as it is identified in reports; "" if it is invalid.
std::string id_of(const Source& source, const Options& o) {
  const auto choice = read_axis_choice(o.bind, o.values);
  if (!choice) return "";
  const auto family = read_family(source, *choice);
  if (!family) return "";
  std::vector<std::string> canonical;
  for (const SpecPoint& p : family->points) canonical.push_back(p.program.canonical);
  return family->axes.empty() ? fmt::format("{:016x}", hash_text(canonical.front())) : family_id(family->axes, canonical);
}

std::string text_of(const CorpusJson& j, const char* key) {
  return j.is_object() && j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : "";
}

SpecOutcome outcome_of(const CorpusJson& report, const std::string& folder) {
  SpecOutcome out;
  out.name = text_of(report, "name");
  out.folder = folder;
  out.exit = report.contains("exit_code") && report["exit_code"].is_number_integer() ? static_cast<ExitCode>(report["exit_code"].get<int>())
                                                                                     : ExitCode::kOk;
  if (report.contains("result")) out.summary = out.name + ": " + text_of(report["result"], "why");
  if (report.contains("errors") && report["errors"].is_array())
    for (const CorpusJson& e : report["errors"]) out.errors += text_of(e, "text") + " [" + text_of(e, "code") + "]\n";
  if (report.contains("elapsed_seconds") && report["elapsed_seconds"].is_number()) out.seconds = report["elapsed_seconds"].get<double>();
  CorpusJson own = report;
  own.erase("folder"), own.erase("elapsed_seconds");
  out.report = out.timed_report = own.dump(2) + "\n";
  return out;
}

}  // namespace

std::string corpus_report(std::vector<SpecOutcome> outcomes) {
  std::sort(outcomes.begin(), outcomes.end(), by_folder);
  ExitCode exit = ExitCode::kOk;
  CorpusJson specs = CorpusJson::array();
  for (const SpecOutcome& o : outcomes) {
    exit = more_severe(exit, o.exit);
    CorpusJson report = own_json(o.timed_report.empty() ? failure_report(o.name, o.exit, {}) : o.timed_report);
    report["folder"] = o.folder;
    report["elapsed_seconds"] = std::round(o.seconds * 1000) / 1000;
    specs.push_back(std::move(report));
  }
  const CorpusJson out = {
      {"schema_version", kCorpusVersion}, {"tool", "mirage-opt"}, {"exit_code", static_cast<int>(exit)}, {"specs", specs}};
  return out.dump(1, ' ', false, CorpusJson::error_handler_t::replace) + "\n";
}

Result<std::vector<SpecOutcome>> read_corpus_reports(const std::vector<Source>& reports) {
  std::vector<SpecOutcome> out;
  std::set<std::string> seen;
  for (const Source& source : reports) {
    const auto read = read_json_text(source.text, source.name, DiagCode::kBaseline);
    if (!read) return read.errors();
    const bool is_corpus = read->is_object() && read->contains("specs") && (*read)["specs"].is_array();
    if (!is_corpus && text_of(*read, "tool") != "mirage-opt")
      return Diagnostic{Severity::kError, DiagCode::kBaseline, {source.name, 0, 0, 1}, "the file is no report of mirage-opt", {}};
    for (const CorpusJson& one : is_corpus ? (*read)["specs"] : CorpusJson::array({*read})) {
      const std::string folder = text_of(one, "folder").empty() ? text_of(one, "name") : text_of(one, "folder");
      if (!one.is_object() || (folder.empty() && !one.contains("exit_code")))
        return Diagnostic{Severity::kError, DiagCode::kBaseline, {source.name, 0, 0, 1}, "the file is no report of mirage-opt", {}};
      if (!folder.empty() && !seen.insert(folder).second)
        return Diagnostic{Severity::kError,
                          DiagCode::kUsage,
                          {source.name, 0, 0, 1},
                          "two reports have a result for '" + folder + "'",
                          {{{}, "give each part of a corpus once"}}};
      out.push_back(outcome_of(one, folder));
    }
  }
  std::sort(out.begin(), out.end(), by_folder);
  return out;
}

Diagnostics write_corpus_index(const std::string& folder, std::vector<SpecOutcome> outcomes) {
  const std::string path = (fs::path(folder) / "index.html").string();
  if (!is_own_file(path, "")) return {};
  std::sort(outcomes.begin(), outcomes.end(), by_folder);
  std::vector<std::string> reports, folders;
  for (const SpecOutcome& o : outcomes) {
    reports.push_back(!o.report.empty() ? o.report : !o.timed_report.empty() ? o.timed_report : failure_report(o.name, o.exit, {}));
    folders.push_back(o.folder);
  }
  std::error_code ignored;   // the write says it
  fs::create_directories(folder, ignored);
  return write_file(path, corpus_html(reports, folders));
}

Result<Source> baseline_of_folder(const std::string& folder) {
  const auto unreadable = [&](const std::string& why) {
    return Diagnostic{Severity::kError, DiagCode::kFileMissing, {folder, 0, 0, 1}, why, {}};
  };
  std::error_code error;
  std::vector<std::string> found;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().filename() == "report.json") found.push_back(at->path().string());
  if (error) return unreadable("cannot read the folder: " + error.message());
  if (found.empty()) return unreadable("no report.json of an earlier run is in the folder");
  std::sort(found.begin(), found.end());
  CorpusJson specs = CorpusJson::array();
  for (const std::string& path : found) {
    auto one = read_json_file(path, DiagCode::kBaseline);
    if (!one) return one.errors();
    if (!one->is_object()) continue;
    if (const std::string at = fs::path(path).parent_path().lexically_relative(folder).generic_string(); at != ".") (*one)["folder"] = at;
    specs.push_back(std::move(*one));
  }
  return Source{folder, CorpusJson{{"schema_version", kCorpusVersion}, {"specs", specs}}.dump()};
}

int shard_of(const Source& source, const Options& o, int parts) {
  const std::string id = id_of(source, o);
  return 1 + static_cast<int>(hash_text(id.empty() ? source.text : id) % static_cast<uint64_t>(parts));
}

std::optional<std::string> finished_report(const Options& given, const Source& source) {
  const Result<Target> target = resolve_target(given);
  if (!target) return std::nullopt;
  Options o = given;
  o.target = target->name;
  o.machine = target->machine == find_target(target->name)->machine ? "" : target->machine;
  if (o.gate == "device") o.measure = true;   // as compile() has it
  const fs::path folder(o.output);
  std::error_code ignored;
  if (!fs::is_regular_file(folder / "certificate.json", ignored)) return std::nullopt;   // written last
  const auto text = read_file((folder / "report.json").string(), JsonLimits().bytes);
  if (!text) return std::nullopt;
  const auto report = read_json_text(*text, "", DiagCode::kBaseline);
  if (!report || !report->is_object() || !report->contains("result")) return std::nullopt;
  const std::string id = id_of(source, o);
  if (id.empty() || text_of(*report, "spec_id") != id || text_of(*report, "version") != MIRAGE_VERSION ||
      text_of(*report, "target") != target->name || text_of(*report, "machine") != target->machine)
    return std::nullopt;
  if (!report->contains("axes")) o.bind.clear(), o.values.clear();   // the same
  if (text_of(*report, "options") != result_options_line(o)) return std::nullopt;
  const bool has_library = fs::is_regular_file(folder / ("lib" + text_of(*report, "name") + ".so"), ignored);
  if (wanted_outputs(o).contains(Emit::kSo) && !has_library && find_toolchain().has_nvcc()) return std::nullopt;
  return *text;
}

}  // namespace mirage
