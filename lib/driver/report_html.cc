// The report as a page for people: report.json's own contents as tables, so that both say the same. Stands at the end of the flow, after report.cc.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "driver/report.h"
#include "mirage/spec/json_text.h"

namespace mirage {

namespace {

using Json = nlohmann::ordered_json;

std::string escaped(const std::string& s) {
  std::string out;
  for (char c : s) out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
  return out;
}

std::string cell(const Json& v) { return escaped(v.is_string() ? v.get<std::string>() : v.dump()); }

/// Objects with the columns of the first; keys become the head.
std::string html_table(const Json& rows, const std::vector<std::string>& columns) {
  std::string out = "<table><tr>";
  for (const std::string& c : columns) out += "<th>" + escaped(c) + "</th>";
  out += "</tr>\n";
  for (const Json& row : rows) {
    out += "<tr>";
    for (const std::string& c : columns) out += "<td>" + (row.contains(c) ? cell(row[c]) : "") + "</td>";
    out += "</tr>\n";
  }
  return out + "</table>\n";
}

std::string html_list(const Json& lines) {
  std::string out = "<ul>\n";
  for (const Json& n : lines) out += "<li>" + cell(n) + "</li>\n";
  return out + "</ul>\n";
}

}  // namespace

std::string report_html(const std::string& report, const std::string& graph, const std::string& plan) {
  const Json r = own_json(report);
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"generator\" content=\"mirage-opt\"><title>" + cell(r["name"]) +
      "</title>\n<style>body{font:15px/1.5 sans-serif;max-width:70em;margin:2em auto;padding:0 1em;color:#222}table{border-collapse:collapse;margin:.5em 0}"
      "td,th{border:1px solid #ccc;padding:.2em .6em;text-align:left;vertical-align:top}th{background:#f2f2f2}pre{background:#f7f7f7;padding:1em;overflow:auto}</style></head><body>\n";
  const Json& result = r["result"];
  out += "<h1>" + cell(r["name"]) + "</h1>\n<p>" + cell(result["why"]) + "</p>\n";
  out += fmt::format("<p>Target {}, spec {}, mirage-opt {}. Predicted {} µs; the straightforward kernels: {} µs.</p>\n", cell(r["target"]), cell(r["spec_id"]), cell(r["version"]),
                     cell(result["predicted_us"]), cell(result["straightforward_us"]));
  out += "<h2>Kernels</h2>\n" + html_table(result["kernels"], {"name", "kind", "predicted_us", "bytes", "why", "grid", "threads", "shared_bytes", "registers", "spill_bytes"});
  const Json& s = r["search"];
  out += fmt::format("<h2>Search</h2>\n<p>{} states, {} candidates: {} verified, {} rejected, {} unknown. Ended: {}.</p>\n", cell(s["states"]), cell(s["candidates"]), cell(s["verified"]),
                     cell(s["rejected"]), cell(s["unknown"]), cell(s["stop_reason"]));
  out += html_table(s["gates"], {"gate", "closed", "meaning", "first_example"});
  out += "<h2>Evidence</h2>\n" + html_list(r["supported_by"]) + html_table(r["evidence"], {"variant", "trials", "p", "q", "degree", "log2_bound", "bound_reason", "uninterpreted"});
  out += "<h2>Alternatives</h2>\n" + html_table(r["alternatives"], {"what", "rank", "kernels", "predicted_us", "plans", "reason", "chosen"});
  if (r.contains("partition") && !r["partition"]["pieces"].empty())
    out += "<h2>Pieces</h2>\n" + html_table(r["partition"]["pieces"], {"operators", "kernels", "straightforward_us", "predicted_us", "searched", "states", "verified"});
  if (!r["not_done"].empty()) out += "<h2>Not done</h2>\n" + html_list(r["not_done"]);
  out += "<h2>µGraph</h2>\n<pre>" + escaped(graph) + "</pre>\n<h2>Plan</h2>\n<pre>" + escaped(plan) + "</pre>\n</body></html>\n";
  return out;
}

}  // namespace mirage
