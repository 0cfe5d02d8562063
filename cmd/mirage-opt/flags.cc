// Flags from options.def through CLI11, whose error texts and exit codes are replaced by ours.
#include "flags.h"
#include "manual.h"

#include <charconv>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "mirage/support/file.h"

namespace mirage {

namespace {

Diagnostic usage(const std::string& text, const std::string& hint = "") {
  Diagnostic d{Severity::kError, DiagCode::kUsage, {}, text, {}};
  if (!hint.empty()) d.notes.push_back({{}, "did you mean '" + hint + "'?"});
  return d;
}

/// Words of a response file: white space separates, '...' and "..." hold together, \ takes the next character as it is, # starts a comment
/// at the start of a word.
Result<std::vector<std::string>> split_words(const std::string& text, const std::string& file) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); i++) {
    const char c = text[i];
    if (quote) {
      if (c == quote) quote = 0;
      else if (c == '\\' && quote == '"' && i + 1 < text.size()) word += text[++i];
      else word += c;
    } else if (c == '\'' || c == '"') {
      quote = c, in_word = true;
    } else if (std::isspace(static_cast<unsigned char>(c))) {
      if (in_word) words.push_back(word);
      word.clear(), in_word = false;
    } else if (c == '#' && !in_word) {
      while (i + 1 < text.size() && text[i + 1] != '\n') i++;
    } else {
      if (c == '\\' && i + 1 < text.size()) word += text[++i];
      else word += c;
      in_word = true;
    }
  }
  if (quote) return usage("a quote is not closed in response file '" + file + "'");
  if (in_word) words.push_back(word);
  return words;
}

constexpr size_t kMostWords = 100'000, kMostFiles = 1000;   // of all response files: few of them can name each other very often

/// The words of a command line with those of response files in their place. Behind "--" all are specs, as they are written.
struct Words { std::vector<std::string> flags, specs, files; bool ended = false; };

/// Spellings of other compilers, and values of flags that mostly have none, as CLI11 reads them.
const std::map<std::string, std::string>& spellings() {
  static const std::map<std::string, std::string> spellings = {{"-MD", "--write-deps"},
                                                               {"-MF", "--deps-file"},
                                                               {"-MT", "--deps-target"},
                                                               {"-MP", "--deps-phony"}, {"--list-ops=json", "--list-ops-json"},
                                                               {"--version=json", "--version-json"}};
  return spellings;
}

std::string respelt(const std::string& word) {
  const auto at = spellings().find(word);
  return at == spellings().end() ? word : at->second;
}

Diagnostics expand(const std::vector<std::string>& arguments, int depth, Words& out) {
  for (const std::string& a : arguments) {
    if (out.flags.size() + out.specs.size() >= kMostWords)
      return {usage(fmt::format("more than {} words on the command line and in response files", kMostWords))};
    if (out.ended) {
      out.specs.push_back(a);
      continue;
    }
    if (a == "--") {
      out.ended = true;
      continue;
    }
    if (a.size() < 2 || a[0] != '@') {
      out.flags.push_back(respelt(a));
      continue;
    }
    out.files.push_back(a.substr(1));
    if (out.files.size() > kMostFiles) return {usage(fmt::format("more than {} response files", kMostFiles))};
    if (depth >= 16) return {usage("response files are nested deeper than 16")};
    auto text = read_file(a.substr(1), 16 << 20);
    if (!text) return text.errors();
    auto words = split_words(*text, a.substr(1));
    if (!words) return words.errors();
    if (auto errors = expand(*words, depth + 1, out); !errors.empty()) return errors;
  }
  return {};
}

/// CLI11 takes "--x" and "-x"; everything else of a flag comes from the table.
void add_option(CLI::App& app, const OptionInfo& info, bool& field) { app.add_flag(info.flags, field, info.help)->group(info.group); }

template <class T> void add_option(CLI::App& app, const OptionInfo& info, T& field) {
  CLI::Option* option = nullptr;
  if constexpr (std::is_same_v<T, double>) {
    option = app.add_option_function<std::string>(
        info.flags,
        [&field, &info](const std::string& text) {
          auto seconds = parse_duration(text);
          if (!seconds) throw CLI::ValidationError(info.flag, "'" + text + "' is no duration such as 60s, 2m or 500ms");
          if (*seconds < info.low || *seconds > info.high)
            throw CLI::ValidationError(info.flag, fmt::format("'{}' is not between {} s and {} s", text, info.low, info.high));
          field = *seconds;
        },
        info.help);
  } else if constexpr (std::is_same_v<T, int64_t>) {
    option = app.add_option_function<std::string>(
        info.flags,
        [&field, &info](const std::string& text) {
          int64_t n = 0;
          const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
          if (text.empty() || end != text.data() + text.size() || (error != std::errc() && error != std::errc::result_out_of_range))
            throw CLI::ValidationError(info.flag, "'" + text + "' is no whole number");
          if (error != std::errc() || static_cast<double>(n) < info.low || static_cast<double>(n) > info.high)
            throw CLI::ValidationError(info.flag, fmt::format("'{}' is not between {:.0f} and {:.0f}", text, static_cast<double>(info.low),
                                                              static_cast<double>(info.high)));
          field = n;
        },
        info.help);
  } else {
    option = app.add_option(info.flags, field, info.help);
    if constexpr (std::is_same_v<T, std::vector<std::string>>) option->delimiter(',')->allow_extra_args(false);
  }
  option->type_name(info.metavar)->group(info.group);
  if constexpr (!std::is_same_v<T, std::vector<std::string>>) option->take_last();
}

/// Two modes that were asked for at once; one would win silently.
std::optional<std::pair<std::string, std::string>> two_modes(const Options& o) {
  const std::vector<std::pair<bool, const char*>> modes = {{o.check, "--check"}, {o.canonicalize, "--canonicalize"}, {o.parts, "--parts"},
                                                           {o.verify, "--verify"}, {!o.certificate.empty(), "--check-certificate"},
                                                           {!o.why_not.empty(), "--why-not"},
                                                           {!o.run.empty(), "--run"}, {o.list_ops, "--list-ops"},
                                                           {o.list_ops_json, "--list-ops=json"}, {o.list_targets, "--list-targets"},
                                                           {o.print_schema, "--print-schema"},
                                                           {o.print_config, "--print-config"},
                                                           {!o.print_completion.empty(), "--print-completion"},
                                                           {o.print_man, "--print-man"}, {o.print_name, "--print-name"},
                                                           {!o.print_reference.empty(), "--print-reference"},
                                                           {!o.explain_error.empty(), "--explain-error"},
                                                           {!o.merge_reports.empty(), "--merge-reports"}};
  const char* first = nullptr;
  for (const auto& [is_on, flag] : modes) {
    if (is_on && first) return std::pair<std::string, std::string>(first, flag);
    if (is_on) first = flag;
  }
  return std::nullopt;
}

/// The unknown flag among the words and what it may have meant.
Diagnostic unknown_flag(const std::vector<std::string>& extras) {
  std::vector<std::string> known = {"--help", "--version"};
  for (const OptionInfo& o : option_table()) known.insert(known.end(), o.names.begin(), o.names.end());
  for (const std::string& word : extras) {
    if (word.size() < 2 || word[0] != '-') continue;
    const std::string flag = word.substr(0, word.find('='));
    return usage("unknown flag '" + flag + "'", nearest(flag, known));
  }
  return usage(fmt::format("unexpected argument '{}'", fmt::join(extras, " ")));
}

/// What stands behind a flag that takes no value, or none of that kind; else what CLI11 says.
Diagnostic unreadable(const CLI::App& app, const std::vector<std::string>& words, const CLI::ParseError& error) {
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || dynamic_cast<const CLI::ConversionError*>(&error) == nullptr) continue;
    const std::string flag = word.substr(0, equals), value = word.substr(equals + 1);
    const CLI::Option* option = app.get_option_no_throw(flag);
    if (option == nullptr || option->get_items_expected_min() != 0 || value == "true" || value == "false") continue;
    const bool json = spellings().count(flag + "=json") != 0;
    return usage(fmt::format("{}: there is no form '{}'", flag, value), json ? flag + "=json" : flag);
  }
  return usage(error.what());
}

}  // namespace

Result<CommandLine> parse_command_line(const std::vector<std::string>& arguments) {
  Words words;
  if (auto errors = expand(arguments, 0, words); !errors.empty()) return errors;

  CommandLine line;
  CLI::App app("mirage-opt: from a tensor program to a verified CUDA library.\n", "mirage-opt");
  app.set_help_flag();
  app.add_flag("-h,--help", line.help, "print this")->group("Modes");
  app.add_flag("--version", line.version, "print the version")->group("Modes");
  app.add_flag("--version-json", line.version_json,
               "(also --version=json) print it as JSON, with what this mirage-opt can read, write and compile for")
      ->group("Modes");
  app.add_option("SPEC", line.options.specs, "specs (.json or text), folders of specs, or - for standard input")->group("");
  for_each_option(line.options, [&](const OptionInfo& info, auto& field) { add_option(app, info, field); });
  app.allow_extras();
  std::string codes;
  for (const auto& [code, meaning] : exit_codes()) codes += fmt::format("{}{} {}", codes.empty() ? "" : "; ", code, meaning);
  app.footer(std::string("\nSPEC: specs (JSON or text), folders of specs, or - for standard input; behind -- all words are specs. @FILE "
                         "inserts the words of FILE.\n") +
             "Exit codes: " + codes + ".");
  app.get_formatter()->column_width(34);
  try {
    std::vector<std::string> reversed(words.flags.rbegin(), words.flags.rend());   // CLI11 wants them last to first
    app.parse(reversed);
  } catch (const CLI::ParseError& e) {
    return unreadable(app, words.flags, e);
  }
  if (auto extras = app.remaining(); !extras.empty()) return unknown_flag(extras);
  line.options.response_files = words.files;
  line.options.specs.insert(line.options.specs.end(), words.specs.begin(), words.specs.end());
  if (auto both = two_modes(line.options)) return usage(fmt::format("{} and {} exclude each other", both->first, both->second));
  if (line.options.measure && line.options.no_measure) return usage("--measure and --no-measure exclude each other");
  if (line.help) {
    line.help_text = app.help();
    // The positional's place in CLI11's usage line.
    if (auto at = line.help_text.find("[OPTIONS]"); at != std::string::npos)
      line.help_text = "Usage: mirage-opt [OPTIONS] SPEC..." + line.help_text.substr(line.help_text.find('\n', at));
  }
  return line;
}

}  // namespace mirage
