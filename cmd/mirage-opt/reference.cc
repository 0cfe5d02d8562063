// The reference as Markdown, from options.def, operators.def, diagnostics.def and environment.def. See the header.
#include "reference.h"

#include <cctype>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "manual.h"
#include "mirage/driver/compile.h"
#include "mirage/driver/modes.h"
#include "mirage/support/diagnostic.h"
#include "mirage/support/options.h"

namespace mirage {

namespace {

/// Text in a cell of a table: a bar would end it, and stars and angle brackets would be taken for marks.
std::string cell(const std::string& text) {
  std::string out;
  for (char c : text)
    if (c == '|' || c == '*' || c == '<' || c == '_' || c == '`') out += std::string("\\") + c;
    else out += c;
  return out;
}

std::string title(const std::string& what, const std::string& topic) {
  return fmt::format("# {}\n\nPrinted by `mirage-opt --print-reference {}`; not written by hand.\n", what, topic);
}

std::string options_chapter() {
  std::string out = title("Command reference", "options");
  out += "\n`mirage-opt [OPTION]... SPEC... -o DIR`. [options.md](../options.md) has more words on those that need them.\n";
  const std::vector<std::string> defaults = option_values(Options());
  std::vector<std::string> groups;
  std::map<std::string, std::string> rows;
  for (size_t i = 0; i < option_table().size(); i++) {
    const OptionInfo& o = option_table()[i];
    if (!rows.contains(o.group)) groups.push_back(o.group);
    std::string names;
    for (const std::string& name : o.names) names += (names.empty() ? "`" : ", `") + name + (o.metavar.empty() ? "" : " " + o.metavar) + "`";
    const bool has_default = !o.metavar.empty() && !defaults[i].empty();
    const std::string fallback = has_default ? "`" + defaults[i] + "`" : "";
    rows[o.group] += fmt::format("| {} | {} | {} | {} |\n", names, fallback, o.effect == OptionEffect::kResult ? "yes" : "", cell(o.help));
  }
  for (const std::string& group : groups) out += fmt::format("\n## {}\n| flag | default | changes the result | |\n|---|---|---|---|\n{}", group, rows[group]);
  out += "\n`-h`, `--help`, `--version` and `--version=json` print and end. `@FILE` stands for the words of FILE; behind `--` all words are specs.\n\n## Exit codes\n| | |\n|---|---|\n";
  for (const auto& [code, meaning] : exit_codes()) out += fmt::format("| {} | {} |\n", code, cell(meaning));
  return out;
}

std::string errors_chapter() {
  static const std::vector<std::pair<DiagCode, std::string>> rows = {
#define DIAGNOSTIC(id, code, exit, help) {DiagCode::id, code},
#include "mirage/support/diagnostics.def"
#undef DIAGNOSTIC
  };
  std::string out = title("Errors and warnings by code", "errors");
  out += "\nEach message ends with its code in brackets; `mirage-opt --explain-error CODE` prints the line below. W: a warning. [troubleshooting.md](../troubleshooting.md) goes by symptom.\n";
  out += "\n| code | exit code | |\n|---|---|---|\n";
  for (const auto& [id, code] : rows) out += fmt::format("| {} | {} | {} |\n", code, static_cast<int>(exit_code_of(id)), cell(code_help(id)));
  return out;
}

std::string environment_chapter() {
  std::string out = title("Environment variables", "environment");
  out += "\nNone is needed.\n\n| variable | read by | |\n|---|---|---|\n";
  for (const Variable& v : environment()) out += fmt::format("| `{}` | {} | {} |\n", v.name, v.reader, cell(v.help));
  return out;
}

/// "x[, gain[, bias]]" as it is, a range of counts where the table has only that.
std::string count_of(const nlohmann::ordered_json& op) {
  const int fewest = op["min_inputs"];
  if (op["max_inputs"].is_null()) return fmt::format("{} or more", fewest);
  const int most = op["max_inputs"];
  return fewest == most ? fmt::format("{}", fewest) : fmt::format("{} to {}", fewest, most);
}

std::string attribute_row(const nlohmann::ordered_json& a) {
  std::string fallback = a["required"].get<bool>() ? "required" : a.contains("default") ? "`" + a["default"].dump() + "`" : "may be left out";
  return fmt::format("| `{}` | {} | {} | {} |\n", a["name"].get<std::string>(), cell(a["kind"].get<std::string>()), fallback, cell(a["help"].get<std::string>()));
}

std::string operators_chapter() {
  const auto operators = nlohmann::ordered_json::parse(spec_operators(true));
  std::string out = title("Operators of specs", "operators");
  out += fmt::format("\n{} operators. What a spec is stands in [spec.md](../spec.md); `--list-ops=json` has the same for programs.\n", operators.size());
  for (const auto& op : operators) {
    const std::string name = op["name"];
    out += fmt::format("\n## {}\n`{}({})`: {}\n\nInputs: {}. Results: {}.", name, name, op["inputs"].get<std::string>(), cell(op["help"].get<std::string>()), count_of(op), op["outputs"].get<std::string>());
    if (!op["other_names"].empty()) {
      std::string others;
      for (const auto& o : op["other_names"]) others += (others.empty() ? "`" : ", `") + o.get<std::string>() + "`";
      out += " Known elsewhere as " + others + ".";
    }
    out += "\n";
    if (op["attributes"].empty()) continue;
    out += "\n| attribute | kind | default | |\n|---|---|---|---|\n";
    for (const auto& a : op["attributes"]) out += attribute_row(a);
  }
  return out;
}

}  // namespace

const std::vector<Variable>& environment() {
  static const std::vector<Variable> table = {
#define ENVIRONMENT(name, reader, help) {name, reader, help},
#include "mirage/support/environment.def"
#undef ENVIRONMENT
  };
  return table;
}

const std::vector<std::string>& reference_topics() {
  static const std::vector<std::string> topics = {"options", "operators", "errors", "environment"};
  return topics;
}

std::string reference(const std::string& topic) {
  return topic == "options" ? options_chapter() : topic == "operators" ? operators_chapter() : topic == "errors" ? errors_chapter() : environment_chapter();
}

std::string version_json(const std::string& version) {
  nlohmann::ordered_json out{{"name", "mirage-opt"}, {"version", version}, {"spec_version", "1.0"}, {"report_schema_version", 1}};
  out["targets"] = target_names();
  out["machines"] = machine_names();
  out["emits"] = emitted_kinds();
  return out.dump(2) + "\n";
}

}  // namespace mirage
