// The option table as data, and how options print. Stands behind cmd/'s flags and the header comment of emitted files.
#include "mirage/support/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace mirage {

namespace {

std::vector<std::string> names_of(const std::string& flags) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= flags.size();) {
    const size_t end = std::min(flags.find(',', at), flags.size());
    out.push_back(flags.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::string long_flag(const std::string& flags) {
  for (const std::string& name : names_of(flags))
    if (name.starts_with("--")) return name;
  return flags;
}

std::string text_of(bool x) { return x ? "true" : "false"; }
std::string text_of(int64_t x) { return std::to_string(x); }
std::string text_of(double x) { return fmt::format("{}s", x); }
std::string text_of(const std::string& x) { return x; }
std::string text_of(const std::vector<std::string>& x) { return fmt::format("{}", fmt::join(x, ",")); }

// The inverse, within the option's range.
bool read_value(const std::string& text, const OptionInfo&, bool& x) {
  x = text == "true";
  return x || text == "false";
}
bool read_value(const std::string& text, const OptionInfo& info, int64_t& x) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  return error == std::errc() && end == text.data() + text.size() && static_cast<double>(x) >= info.low &&
         static_cast<double>(x) <= info.high;
}
bool read_value(const std::string& text, const OptionInfo& info, double& x) {
  const std::optional<double> seconds = parse_duration(text);
  x = seconds.value_or(0);
  return seconds && x >= info.low && x <= info.high;
}
bool read_value(const std::string& text, const OptionInfo&, std::string& x) {
  x = text;
  return true;
}
bool read_value(const std::string& text, const OptionInfo&, std::vector<std::string>& x) {
  x.clear();
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    x.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return true;
}

/// A value as a shell reads it back.
std::string quoted(const std::string& s) {
  bool is_plain = !s.empty();
  for (char c : s)
    is_plain = is_plain && (std::isalnum(static_cast<unsigned char>(c)) || std::string_view("_-./,:=+").find(c) != std::string_view::npos);
  if (is_plain) return s;
  std::string out = "'";
  for (char c : s) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

std::vector<std::string> option_values(const Options& o) {
  std::vector<std::string> out;
  for_each_option(o, [&](const OptionInfo&, const auto& value) { out.push_back(text_of(value)); });
  return out;
}

const std::vector<OptionInfo>& option_table() {
  static const std::vector<OptionInfo> table = [] {
    std::vector<OptionInfo> rows;
#define OPTION(field, flags, kind, fallback, low, high, changes, group, metavar, help)                                   \
  rows.push_back({#field, flags, long_flag(flags), names_of(flags), static_cast<double>(low), static_cast<double>(high), \
                  OptionEffect::changes, group, metavar, help});
#include "mirage/support/options.def"
#undef OPTION
    return rows;
  }();
  return table;
}

std::optional<double> parse_duration(std::string_view text) {
  double x = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (error != std::errc() || !std::isfinite(x) || std::signbit(x)) return std::nullopt;
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  double scale = unit.empty() || unit == "s" ? 1 : unit == "ms" ? 1e-3 : unit == "m" || unit == "min" ? 60 : unit == "h" ? 3600 : -1;
  if (scale < 0) return std::nullopt;
  return x * scale;
}

std::string print_config(const Options& o) {
  const std::vector<std::string> values = option_values(o), defaults = option_values(Options{});
  std::string out;
  for (size_t i = 0; i < values.size(); i++) {
    const OptionInfo& info = option_table()[i];
    out += fmt::format(
        "{} = {}{}{}\n", info.field, values[i].empty() ? "\"\"" : values[i], values[i] == defaults[i] ? "  # default" : "",
        info.effect == OptionEffect::kResult ? (values[i] == defaults[i] ? ", changes the result" : "  # changes the result") : "");
  }
  for (const std::string& s : o.specs) out += fmt::format("spec = {}\n", s);
  return out;
}

std::vector<std::pair<std::string, std::string>> result_options(const Options& o) {
  const std::vector<std::string> values = option_values(o), defaults = option_values(Options{});
  std::vector<std::pair<std::string, std::string>> out;
  for (size_t i = 0; i < values.size(); i++)
    if (option_table()[i].effect == OptionEffect::kResult && values[i] != defaults[i]) out.emplace_back(option_table()[i].field, values[i]);
  return out;
}

std::optional<Options> options_of(const std::vector<std::pair<std::string, std::string>>& values) {
  Options o;
  for (const auto& value_of_field : values) {
    const std::string &field = value_of_field.first, &text = value_of_field.second;   // clang 14 captures no structured bindings
    bool known = false;
    for_each_option(o, [&](const OptionInfo& info, auto& value) {
      if (info.field == field && info.effect == OptionEffect::kResult) known = read_value(text, info, value);
    });
    if (!known) return std::nullopt;
  }
  return o;
}

std::string result_options_line(const Options& o) {
  const Options fallback;
  const std::vector<std::string> values = option_values(o), defaults = option_values(fallback);
  std::string out;
  for (size_t i = 0; i < values.size(); i++) {
    const OptionInfo& info = option_table()[i];
    if (info.effect != OptionEffect::kResult || values[i] == defaults[i]) continue;
    out += (out.empty() ? "" : " ") + info.flag + (values[i] == "true" ? "" : " " + quoted(values[i]));
  }
  return out;
}

}  // namespace mirage
