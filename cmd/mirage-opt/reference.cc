// The reference as Markdown, from options.def, operators.def, diagnostics.def and environment.def. See the header.
#include "reference.h"

#include <map>
#include <sstream>

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
    const std::string value = o.metavar.empty() ? "" : " " + o.metavar;
    for (const std::string& name : o.names) names += (names.empty() ? "`" : ", `") + name + value + "`";
    const bool has_default = !o.metavar.empty() && !defaults[i].empty();
    const std::string fallback = has_default ? "`" + defaults[i] + "`" : "";
    const char* const changes = o.effect == OptionEffect::kResult ? "yes" : "";
    rows[o.group] += fmt::format("| {} | {} | {} | {} |\n", names, fallback, changes, cell(o.help));
  }
  for (const std::string& group : groups)
    out += fmt::format("\n## {}\n| flag | default | changes the result | |\n|---|---|---|---|\n{}", group, rows[group]);
  out +=
      "\n`-h`, `--help`, `--version` and `--version=json` print and end. `@FILE` stands for the words of FILE; behind `--` all words are "
      "specs.\n\n## Exit codes\n| | |\n|---|---|\n";
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
  out += "\nEach message ends with its code in brackets; `mirage-opt --explain-error CODE` prints the line below. W: a warning. "
         "[troubleshooting.md](../troubleshooting.md) goes by symptom.\n\n| code | exit code | |\n|---|---|---|\n";
  for (const auto& [id, code] : rows)
    out += fmt::format("| {} | {} | {} |\n", code, static_cast<int>(exit_code_of(id)), cell(code_help(id)));
  return out;
}

std::string environment_chapter() {
  std::string out = title("Environment variables", "environment");
  out += "\nNone is needed.\n\n| variable | read by | |\n|---|---|---|\n";
  for (const Variable& v : environment()) out += fmt::format("| `{}` | {} | {} |\n", v.name, v.reader, cell(v.help));
  return out;
}

/// "    axis (integer, default -1): the axis" of --list-ops as a row of a table.
std::string attribute_row(const std::string& line) {
  const size_t name = line.find_first_not_of(' '), kind = line.find(" (", name), end = line.find("): ", kind);
  if (end == std::string::npos) return "";
  return fmt::format("| `{}` | {} | {} |\n", line.substr(name, kind - name), cell(line.substr(kind + 2, end - kind - 2)),
                     cell(line.substr(end + 3)));
}

/// --list-ops has a line per operator, one for what it computes, and one per attribute.
std::string operators_chapter() {
  std::string out = title("Operators of specs", "operators");
  out += "\nAs `--list-ops` prints them. What a spec is stands in [spec.md](../spec.md); `--list-ops=json` has the same for programs.\n";
  std::istringstream lines(spec_operators(false));
  enum class Next { kHelp, kFirstAttribute, kAttribute } next = Next::kHelp;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(' ')) {
      out += fmt::format("\n## {}\n`{}`: ", line.substr(0, line.find('(')), line);
      next = Next::kHelp;
    } else if (next == Next::kHelp) {
      out += cell(line.substr(4)) + "\n";
      next = Next::kFirstAttribute;
    } else {
      if (next == Next::kFirstAttribute) out += "\n| attribute | kind and default | |\n|---|---|---|\n";
      out += attribute_row(line);
      next = Next::kAttribute;
    }
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
  if (topic == "options") return options_chapter();
  if (topic == "operators") return operators_chapter();
  return topic == "errors" ? errors_chapter() : environment_chapter();
}

std::string version_json(const std::string& version) {
  nlohmann::ordered_json out{{"name", "mirage-opt"}, {"version", version}, {"spec_version", "1.0"}, {"report_schema_version", 1}};
  out["targets"] = target_names();
  out["machines"] = machine_names();
  out["emits"] = emitted_kinds();
  return out.dump(2) + "\n";
}

}  // namespace mirage
