// The report as a page for people: report.json's own contents, drawn, so that both say the same. One file without anything from elsewhere,
// light or dark as the reader has it. Stands at the end of the flow, after report.cc.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "driver/report/drawing.h"
#include "driver/report/figures.h"
#include "driver/report/page.h"
#include "driver/report/report.h"
#include "mirage/spec/json_text.h"

namespace mirage {

namespace {

using PageJson = nlohmann::ordered_json;

constexpr size_t kRowsShown = 12;   // of the alternatives: the rest is folded

std::string cell(const PageJson& v) {
  return html_text(v.is_string() ? v.get<std::string>() : v.is_boolean() ? (v.get<bool>() ? "yes" : "no") : v.dump());
}
std::string value_of(const PageJson& j, const char* key) { return j.contains(key) ? cell(j[key]) : ""; }
double number_in(const PageJson& j, const char* key) { return j.contains(key) && j[key].is_number() ? j[key].get<double>() : 0; }

struct Column { const char* key; const char* title; };

/// Objects as rows. Columns that no row has are left out.
std::string html_table(const PageJson& rows, const std::vector<Column>& columns, size_t from = 0, size_t to = SIZE_MAX) {
  std::vector<Column> used;
  for (const Column& c : columns)
    if (std::any_of(rows.begin(), rows.end(), [&](const PageJson& r) { return r.contains(c.key); })) used.push_back(c);
  std::string out = "<div class=\"wide\"><table><thead><tr>";
  for (const Column& c : used) out += "<th>" + html_text(c.title) + "</th>";
  out += "</tr></thead><tbody>\n";
  for (size_t i = from; i < std::min(to, rows.size()); i++) {
    const bool is_chosen = rows[i].contains("chosen") && rows[i]["chosen"] == true;
    out += is_chosen ? "<tr class=\"best\">" : "<tr>";
    for (const Column& c : used)
      if (rows[i].contains(c.key))
        out += fmt::format("<td{} data-h=\"{}\">{}</td>", rows[i][c.key].is_number() ? " class=\"n\"" : "", html_text(c.title),
                           value_of(rows[i], c.key));
      else out += "<td></td>";
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string html_list(const PageJson& lines) {
  std::string out = "<ul>\n";
  for (const PageJson& n : lines) out += "<li>" + cell(n) + "</li>\n";
  return out + "</ul>\n";
}

std::string folded(const std::string& title, const std::string& body, bool is_open = false) {
  return fmt::format("<details{}><summary>{}</summary>\n{}</details>\n", is_open ? " open" : "", title, body);
}

std::string pre(const std::string& text) { return "<pre>" + html_text(text) + "</pre>\n"; }

std::string card(const std::string& value, const std::string& what) {
  return "<div class=\"card\"><b>" + value + "</b><span>" + what + "</span></div>";
}

std::string cards(const PageJson& result, const PageJson& report) {
  const double us = number_in(result, "predicted_us"), plain = number_in(result, "straightforward_us"),
               roof = number_in(result, "roofline_us");
  std::string out = "<div class=\"cards\">" + card(fmt::format("{:.2f} µs", us), "predicted") +
                    card(fmt::format("{:.2f} µs", plain), "the straightforward kernels");
  if (us > 0) out += card(fmt::format("{:.2f} ×", plain / us), "faster, predicted");
  if (result.contains("kernels"))
    out += card(fmt::format("{}", result["kernels"].size()), result["kernels"].size() == 1 ? "kernel" : "kernels");
  if (roof > 0 && us > 0) out += card(fmt::format("{:.0f} %", 100 * roof / us), fmt::format("of the roofline's rate ({:.2f} µs)", roof));
  return out + card(value_of(report, "target"), fmt::format("target ({})", value_of(report, "machine"))) + "</div>\n";
}

std::string one_kernel(const PageJson& k, size_t number, bool is_open) {
  std::string body = "<p>" + value_of(k, "why") + "</p>\n";
  const auto told = [](const char* title, const std::string& text) { return fmt::format("<span><i>{}</i> {}</span>", title, text); };
  const auto fact = [&](const char* key, const char* title) { return k.contains(key) ? told(title, value_of(k, key)) : std::string(); };
  body += "<p class=\"facts\">" + told("moved", bytes_text(number_in(k, "bytes"))) +
          told("operations", operations_text(number_in(k, "flops"))) + fact("roofline_us", "roofline, µs") +
          fact("library", "computed by") + fact("grid", "grid") + fact("threads", "threads") +
          (k.contains("shared_bytes") ? told("shared memory", bytes_text(number_in(k, "shared_bytes"))) : "") +
          fact("registers", "registers") + fact("spill_bytes", "spilled bytes") + "</p>\n";
  if (k.contains("timeline")) {
    const PageJson& steps = k["timeline"]["steps"];
    if (const std::string figure = shared_figure(k); !figure.empty()) body += "<h4>Shared memory, step by step</h4>\n" + figure;
    std::string list = "<ol>\n";
    for (const PageJson& s : steps)
      list += "<li>" + (s["phase"] == "loop" ? std::string("<em>in the loop</em> ") : "") + value_of(s, "text") + "</li>\n";
    body += folded(fmt::format("The schedule: {} step{}", steps.size(), steps.size() == 1 ? "" : "s"), list + "</ol>\n", steps.size() <= 8);
  }
  if (k.contains("other_strategies"))
    body += folded("Other strategies for this kernel",
                   html_table(k["other_strategies"], {{"strategy", "strategy"}, {"predicted_us", "predicted, µs"}, {"reason", "why not"}}));
  return folded(fmt::format("<b>kernel {}</b> {}, {} µs", number, value_of(k, "strategy"), value_of(k, "predicted_us")),
                "<p class=\"name\">" + value_of(k, "name") + "</p>\n" + body, is_open);
}

/// What the kernels' own times are more than the result's.
std::string overlap_text(const PageJson& result) {
  double all = -number_in(result, "predicted_us");
  for (const PageJson& k : result["kernels"]) all += number_in(k, "predicted_us");
  return all < 0.05 ? "" : fmt::format(" Together they take {:.2f} µs less: some begin while the one ahead of them still runs.", all);
}

std::string kernels_section(const PageJson& r) {
  const PageJson& kernels = r["result"]["kernels"];
  std::string out =
      "<h2>Time and schedule</h2>\n<p>Each kernel's predicted time, in launch order; the stronger colour is what device memory or the "
      "units that compute take at their full rates (the roofline)." + overlap_text(r["result"]) + "</p>\n" +
      schedule_figure(r["result"]);
  if (const std::string roof = roofline_figure(r); !roof.empty())
    out += folded("Roofline", roof + "<p>The line is the machine's; a point is a kernel as predicted.</p>\n", kernels.size() <= 6);
  for (size_t i = 0; i < kernels.size(); i++) out += one_kernel(kernels[i], i, kernels.size() <= 2);
  return out;
}

std::string measured_section(const PageJson& r) {
  if (!r.contains("measurement")) return "";
  return "<h2>Measured</h2>\n" + html_table(r["measurement"]["cases"], {{"what", "plan"}, {"predicted_us", "predicted, µs"},
                                                                        {"final_us", "measured, µs"}, {"first_us", "first look, µs"},
                                                                        {"reason", "why not used"}});
}

std::string steps_section(const PageJson& r) {
  if (!r.contains("steps") || r["steps"].empty()) return "";
  PageJson rows = r["steps"];
  const auto unbroken = [](std::string text) { return text.replace(text.find(' '), 1, "\u00a0"); };
  for (PageJson& row : rows) {
    row["bytes"] = unbroken(bytes_text(number_in(row, "bytes"))), row["flops"] = unbroken(operations_text(number_in(row, "flops")));
    const std::string change = row.contains("saves") ? row["saves"].get<std::string>() : "adds";
    if (!change.starts_with("adds")) row["saves"] = "saves " + change;
  }
  return "<h2>From the spec to the µGraph</h2>\n<p>Step by step; what each leaves when every operator that stays apart is a kernel of its "
         "own. What several blocks of a µGraph compute alike counts as one operation.</p>\n" +
         html_table(rows,
                    {{"what", "step"}, {"kernels", "kernels"}, {"bytes", "bytes"}, {"flops", "operations"}, {"saves", "change"}});
}

std::string search_section(const PageJson& r) {
  const PageJson& s = r["search"];
  if (!s.contains("states")) return "";
  std::string out = fmt::format("<h2>Search</h2>\n<p>{} states, {} candidates: {} verified, {} rejected, {} unknown. Ended: {}.</p>\n",
                                value_of(s, "states"), value_of(s, "candidates"), value_of(s, "verified"), value_of(s, "rejected"),
                                value_of(s, "unknown"), value_of(s, "stop_reason"));
  return out + funnel_figure(s) +
         folded(
             "Gates, with the first branch that each closed",
             html_table(s["gates"], {{"gate", "gate"}, {"closed", "closed"}, {"meaning", "meaning"}, {"first_example", "first example"}}));
}

std::string evidence_section(const PageJson& r) {
  std::string out = "<h2>Evidence</h2>\n" + html_list(r["supported_by"]);
  if (r["evidence"].empty()) return out;
  out += folded("Trials in finite fields", html_table(r["evidence"], {{"variant", "sizes"}, {"trials", "trials"}, {"degree", "degree"},
                                                                      {"log2_bound", "log2 of the bound"}, {"bound_reason", "bound"},
                                                                      {"uninterpreted", "uninterpreted"}, {"p", "p"}, {"q", "q"}}));
  std::string numerics;
  for (const PageJson& e : r["evidence"])
    if (e.contains("numerics") && !e["numerics"].empty())
      numerics += "<p>" + value_of(e, "variant") + " sizes</p>\n" +
                  html_table(e["numerics"], {{"distribution", "inputs"}, {"relative_error", "relative error"},
                                             {"node_by_node", "node by node"}, {"nan_agree", "NaN agree"}});
  return numerics.empty() ? out : out + folded("Rounding, beside the program evaluated node by node", numerics);
}

std::string alternatives_section(const PageJson& r) {
  PageJson rows = r["alternatives"];
  std::stable_sort(rows.begin(), rows.end(), [](const PageJson& a, const PageJson& b) {
    const auto key = [](const PageJson& x) {
      return std::pair(x["chosen"] != true, x.contains("predicted_us") ? x["predicted_us"].get<double>() : 1e300);
    };
    return key(a) < key(b);
  });
  static const std::vector<Column> columns = {
      {"what", "what"},   {"rank", "rank"},     {"kernels", "kernels"}, {"predicted_us", "predicted, µs"},
      {"plans", "plans"}, {"chosen", "chosen"}, {"lost", "why it lost"}};
  std::string out = "<h2>Alternatives</h2>\n" + html_table(rows, columns, 0, kRowsShown);
  if (rows.size() > kRowsShown) out += folded(fmt::format("{} more", rows.size() - kRowsShown), html_table(rows, columns, kRowsShown));
  return out;
}

std::string pieces_section(const PageJson& r) {
  if (!r.contains("partition") || r["partition"]["pieces"].empty()) return "";
  return "<h2>Pieces</h2>\n" + html_table(r["partition"]["pieces"], {{"operators", "operators"}, {"kernels", "kernels"},
                                                                     {"straightforward_us", "straightforward, µs"},
                                                                     {"predicted_us", "predicted, µs"}, {"searched", "searched"},
                                                                     {"states", "states"}, {"verified", "verified"}});
}

std::string legend() {
  std::string out = "<p class=\"legend\">";
  static constexpr std::pair<const char*, const char*> kKinds[] = {
      {"in", "inputs"},   {"mm", "matrix products"}, {"rd", "sums and maxima"}, {"ew", "elementwise, in registers where they are used"},
      {"mv", "movement"}, {"out", "outputs"}};
  for (const auto& [cls, text] : kKinds)
    out += fmt::format("<span><span class=\"k {}\"></span>{}</span> ", cls, text);
  return out + "</p>\n";
}

std::string one_program(const ReportPart& part) {
  const PageJson r = own_json(part.report);
  std::string out = "<p class=\"why\">" + value_of(r["result"], "why") + "</p>\n" + cards(r["result"], r);
  out += "<h2>µGraph</h2>\n" + (part.figure.empty() ? std::string() : part.figure +
         legend());
  out += steps_section(r) + kernels_section(r) + measured_section(r) + evidence_section(r) + search_section(r) + alternatives_section(r) +
         pieces_section(r);
  if (!r["not_done"].empty()) out += "<h2>Not done</h2>\n" + html_list(r["not_done"]);
  if (r.contains("remembered")) out += "<h2>Remembered</h2>\n<p>" + value_of(r["remembered"], "what") + "</p>\n";
  return out + "<h2>Raw</h2>\n" + folded("µGraph as text", pre(part.graph)) + folded("Plan as text", pre(part.plan)) +
         folded("report.json", pre(r.dump(1)));
}

std::string about(const PageJson& r) {
  return fmt::format("<p class=\"about\">spec {}, mirage-opt {}{}</p>\n", value_of(r, "spec_id"), value_of(r, "version"),
                     value_of(r, "options").empty() ? "" : ", " + value_of(r, "options"));
}

}  // namespace

std::string report_html(const std::string& whole, const std::vector<ReportPart>& parts) {
  const PageJson r = own_json(whole);
  const std::string title = value_of(r, "name");
  std::string out = page_begin(title, "") + "<h1>" + title + "</h1>\n" + about(r);
  if (!r.contains("points")) return out + one_program(parts.front()) + page_end();
  out += "<p class=\"why\">" + value_of(r["result"], "why") + "</p>\n";
  for (const ReportPart& part : parts) {
    const PageJson p = own_json(part.report);
    out += folded(fmt::format("<b>{}</b> {} µs predicted", value_of(p, "name"), value_of(p["result"], "predicted_us")), one_program(part),
                  parts.size() == 1);
  }
  if (!r["not_done"].empty()) out += "<h2>Not done</h2>\n" + html_list(r["not_done"]);
  return out + page_end();
}

namespace {

/// "proved"; of a library for several sizes, if it is at each.
std::string evidence_in_short(const PageJson& r) {
  const auto is_proved = [](const PageJson& x) { return x.contains("proof") && x["proof"]["proved"] == true; };
  if (!r.contains("points")) return !r.contains("proof") ? "" : is_proved(r) ? "proved" : "not proved";
  return std::all_of(r["points"].begin(), r["points"].end(), is_proved) ? "proved at each size" : "not proved at each size";
}

}  // namespace

std::string corpus_html(const std::vector<std::string>& reports, const std::vector<std::string>& folders) {
  std::string rows;
  size_t failed_specs = 0;
  double worth = 0;
  size_t counted = 0;
  for (size_t i = 0; i < reports.size(); i++) {
    const PageJson r = own_json(reports[i]);
    const bool failed = !r.contains("result");
    const std::string folder = html_text(i < folders.size() ? folders[i] : "");
    const std::string name = value_of(r, "name").empty() ? folder : value_of(r, "name");
    failed_specs += failed;
    if (failed) {
      const std::string why = r.contains("errors") && !r["errors"].empty() ? value_of(r["errors"][0], "text") : "";
      rows += fmt::format(
          "<tr class=\"bad\"><td data-h=\"spec\">{}</td><td data-h=\"result\">exit {}</td><td></td><td></td><td></td><td></td><td "
          "data-h=\"evidence\">{}</td></tr>\n",
          name, value_of(r, "exit_code"), why);
      continue;
    }
    const PageJson& result = r["result"];
    const double us = number_in(result, "predicted_us"), plain = number_in(result, "straightforward_us");
    const size_t kernels =
        result.contains("kernels") ? result["kernels"].size() : static_cast<size_t>(number_in(result, "distinct_kernels"));
    if (us > 0 && plain > 0) worth += std::log(plain / us), counted++;
    rows += fmt::format(
        "<tr><td data-h=\"spec\"><a href=\"{}/report.html\">{}</a></td><td data-h=\"result\">{}</td><td class=\"n\" "
        "data-h=\"kernels\">{}</td><td class=\"n\" data-h=\"predicted, µs\">{:.2f}</td>"
        "<td class=\"n\" data-h=\"straightforward, µs\">{:.2f}</td><td class=\"n\" data-h=\"faster, ×\">{:.2f}</td><td "
        "data-h=\"evidence\">{}</td></tr>\n",
        folder, name, value_of(result, "kind"), kernels, us, plain, us > 0 ? plain / us : 0,
        evidence_in_short(r));
  }
  std::string out = page_begin("mirage-opt: " + std::to_string(reports.size()) + " specs", sort_script()) +
                    fmt::format("<h1>{} specs</h1>\n<div class=\"cards\">", reports.size());
  if (counted > 0)
    out += card(fmt::format("{:.2f} ×", std::exp(worth / static_cast<double>(counted))),
                "faster than the straightforward kernels, predicted, geometric mean");
  out += card(fmt::format("{}", reports.size() - failed_specs), "results") + card(fmt::format("{}", failed_specs), "without a result") +
         "</div>\n";
  out += "<p>A column's head sorts by it.</p>\n<div class=\"wide\"><table class=\"sort\"><thead><tr>";
  for (const char* head : {"spec", "result", "kernels", "predicted, µs", "straightforward, µs", "faster, ×", "evidence"})
    out += fmt::format("<th><button type=\"button\">{}</button></th>", head);
  return out + "</tr></thead><tbody>\n" + rows + "</tbody></table></div>\n" + page_end();
}

}  // namespace mirage
