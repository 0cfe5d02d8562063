// Axes of a JSON spec: constants, and var axes with their values; --bind and --values have the last word.
#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include "spec/json/json_reader.h"

namespace mirage {
namespace spec {
namespace {

std::string list_text(const std::vector<int64_t>& values) { return fmt::format("[{}]", fmt::join(values, ", ")); }

/// Values that a range may have meant: multiples of `step`, doubling (or more, so that there are few), with both ends.
std::vector<int64_t> suggested_values(int64_t low, int64_t high, int64_t step) {
  constexpr size_t kFew = 8;
  step = std::max<int64_t>(step, 1);
  low = (std::max<int64_t>(low, 1) + step - 1) / step * step;
  high = std::max(high / step * step, low);
  for (int64_t factor = 2;; factor *= 2) {
    std::vector<int64_t> out;
    for (int64_t v = low; v < high; v = v > high / factor ? high : v * factor) out.push_back(v);
    out.push_back(high);
    if (out.size() <= kFew) return out;
  }
}

/// How the axis is written with values.
std::vector<Note> values_note(const std::string& axis, const std::vector<int64_t>& v) {
  return {{{}, fmt::format("list its values: {{\"type\": \"var\", \"values\": {}, \"hint\": {}}}", list_text(v), v[v.size() / 2])},
          {{},
           fmt::format("or on the command line: --values {0}={1}, or --bind {0}={2} for one constant", axis, fmt::join(v, ","),
                       v[v.size() / 2])}};
}

int64_t integer_of(const JsonValue& axis, const char* key, int64_t fallback) {
  const JsonMember* m = axis.find(key);
  return m && m->value.kind == JsonKind::kInt ? m->value.integer : fallback;
}

}  // namespace

void JsonReader::read_axes(const JsonMember* m) {
  if (m && expect(m->value, JsonKind::kObject, "axes"))
    for (const JsonMember& axis : m->value.members) read_axis(axis);
  check_choice();
}

/// An extent that was written; nullopt: an error was reported.
std::optional<int64_t> JsonReader::axis_value(const JsonMember& axis, const JsonValue& v) {
  const auto n = expect_int(v, "the value of an axis");
  if (!n || (*n >= 1 && *n <= kMaxElements)) return n;
  report_.error(DiagCode::kBadNumber, v.span, fmt::format("the value of axis '{}' must be between 1 and 2^40", axis.key));
  return std::nullopt;
}

void JsonReader::read_axis(const JsonMember& axis) {
  check_name(axis.key, axis.key_span, "name of an axis");
  std::optional<int64_t>& extent = axes_[axis.key] = std::nullopt;
  const JsonMember* type = nullptr;
  const bool is_short = axis.value.kind == JsonKind::kInt;   // "M": 16
  if (!is_short) {
    if (!expect(axis.value, JsonKind::kObject, "an axis")) return;
    check_keys(axis.value, {"type", "value", "values", "min", "max", "hint", "multiple_of", "description", "parent"}, "an axis");
    type = axis.value.find("type");
    if (type && !expect(type->value, JsonKind::kString, "type")) return;
    if (type && type->value.text == "var") return read_var_axis(axis);
    if (type && type->value.text != "const") {
      report_.error(DiagCode::kWrongKind, type->value.span,
                    fmt::format("the type of an axis is \"const\" or \"var\", not \"{}\"", type->value.text.substr(0, 40)));
      return;
    }
    if (const JsonMember* values = axis.value.find("values")) {
      report_.error(DiagCode::kUnknownKey, values->key_span,
                    fmt::format("axis '{}' is a constant: only an axis of \"type\": \"var\" has 'values'", axis.key));
      return;
    }
    if (!axis.value.find("value")) {
      report_.error(DiagCode::kMissingKey, axis.key_span, fmt::format("axis '{}' has no 'value'", axis.key));
      return;
    }
  }
  extent = axis_value(axis, is_short ? axis.value : axis.value.find("value")->value);
  if (choice_.values.count(axis.key))
    report_.error(DiagCode::kUsage, axis.key_span, fmt::format("--values: axis '{}' is a constant", axis.key),
                  {{{}, fmt::format("write {{\"type\": \"var\"}} in the spec, or --bind {}=N for another constant", axis.key)}});
  if (const auto bound = choice_.bind.find(axis.key); bound != choice_.bind.end()) extent = bound->second;
}

void JsonReader::read_var_axis(const JsonMember& axis) {
  if (const JsonMember* value = axis.value.find("value")) {
    report_.error(DiagCode::kUnknownKey, value->key_span,
                  fmt::format("axis '{}' is variable and has no 'value': it has 'values', a list", axis.key));
    return;
  }
  const auto given = choice_.values.find(axis.key);
  VarAxis out{axis.key, given != choice_.values.end() ? given->second : read_axis_values(axis), 0, report_.at(axis.key_span)};
  if (const auto bound = choice_.bind.find(axis.key); bound != choice_.bind.end()) {
    axes_[axis.key] = bound->second;
    return;
  }
  if (!out.values.empty() && !check_axis_values(axis, out.values)) return;
  if (out.values.empty()) {
    if (axis.value.find("values")) return;   // its errors were reported
    const bool ranged = axis.value.find("min") || axis.value.find("max");
    const int64_t low = integer_of(axis.value, "min", 1), high = integer_of(axis.value, "max", std::max<int64_t>(64, low));
    report_.error(
        DiagCode::kVarAxis, axis.value.find("type")->value.span,
        ranged ? fmt::format("axis '{}' is variable with a range: every value of a range in one library is not supported yet", axis.key)
               : fmt::format("axis '{}' is variable, and nothing says which values it takes", axis.key),
        values_note(axis.key, suggested_values(low, high, integer_of(axis.value, "multiple_of", 1))));
    return;
  }
  read_hint(axis, out);
  axes_[axis.key] = out.hint;
  ast_.axes.push_back(std::move(out));
}

/// 'values', ascending; empty: there are none, or errors were reported.
std::vector<int64_t> JsonReader::read_axis_values(const JsonMember& axis) {
  const JsonMember* m = axis.value.find("values");
  if (!m || !expect(m->value, JsonKind::kArray, "values")) return {};
  std::vector<int64_t> out;
  bool ok = true;
  for (const JsonValue& v : m->value.items) {
    const auto n = axis_value(axis, v);
    if (n && std::find(out.begin(), out.end(), *n) != out.end())
      report_.error(DiagCode::kBadNumber, v.span, fmt::format("axis '{}' has the value {} twice", axis.key, *n));
    else if (n && out.size() == kMostPoints)
      report_.error(
          DiagCode::kLimit, v.span,
          fmt::format("axis '{}' has {} values; one library serves at most {} combinations", axis.key, m->value.items.size(), kMostPoints));
    else if (n) {
      out.push_back(*n);
      continue;
    }
    ok = false;
    if (n && out.size() == kMostPoints) break;
  }
  if (m->value.items.empty())
    report_.error(DiagCode::kMissingKey, m->key_span, fmt::format("axis '{}' needs at least one value", axis.key));
  if (!ok) return {};
  std::sort(out.begin(), out.end());
  return out;
}

/// A range beside the values holds for them, and for those of the command line, too.
bool JsonReader::check_axis_values(const JsonMember& axis, const std::vector<int64_t>& values) {
  const int64_t low = integer_of(axis.value, "min", 1), high = integer_of(axis.value, "max", kMaxElements),
                step = std::max<int64_t>(1, integer_of(axis.value, "multiple_of", 1));
  for (int64_t v : values) {
    if (v >= low && v <= high && v % step == 0) continue;
    report_.error(DiagCode::kBadNumber, axis.key_span,
                  fmt::format("axis '{}' cannot be {}: {}", axis.key, v,
                              v < low    ? fmt::format("its min is {}", low)
                              : v > high ? fmt::format("its max is {}", high)
                                         : fmt::format("it is a multiple of {}", step)));
    return false;
  }
  return true;
}

void JsonReader::read_hint(const JsonMember& axis, VarAxis& out) {
  out.hint = out.values[out.values.size() / 2];
  const JsonMember* hint = axis.value.find("hint");
  if (!hint) return;
  const auto n = expect_int(hint->value, "the hint of an axis");
  if (!n) return;
  const bool is_one = std::find(out.values.begin(), out.values.end(), *n) != out.values.end();
  if (is_one) out.hint = *n;
  else if (!choice_.values.count(axis.key))
    report_.error(DiagCode::kBadNumber, hint->value.span,
                  fmt::format("the hint of axis '{}' is {}, which is none of its values {}", axis.key, *n, list_text(out.values)));
}

/// Names of --bind and --values that no axis has.
void JsonReader::check_choice() {
  std::vector<std::string> known;
  for (const auto& [name, extent] : axes_) known.push_back(name);
  const auto check = [&](const char* flag, const std::string& name) {
    if (axes_.find(name) == axes_.end())
      report_.error(DiagCode::kUsage, {},
                    fmt::format("{}: the spec has no axis '{}'{}", flag, name.substr(0, kMaxNameLength),
                                known.empty() ? "" : fmt::format("; it has {}", fmt::join(known, ", "))),
                    report_.hint(name, known));
  };
  for (const auto& [name, value] : choice_.bind) check("--bind", name);
  for (const auto& [name, values] : choice_.values) check("--values", name);
}

}  // namespace spec

namespace {

Diagnostic axis_usage(const std::string& text) { return {Severity::kError, DiagCode::kUsage, {}, text, {}}; }

std::optional<int64_t> extent_of(std::string_view text) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < 1 || n > spec::kMaxElements) return std::nullopt;
  return n;
}

}  // namespace

Result<AxisChoice> read_axis_choice(const std::vector<std::string>& bind, const std::vector<std::string>& values) {
  AxisChoice out;
  for (const std::string& word : bind) {
    const size_t equals = word.find('=');
    const auto n = equals == std::string::npos ? std::nullopt : extent_of(std::string_view(word).substr(equals + 1));
    if (!n || equals == 0)
      return axis_usage(fmt::format("--bind: '{}' is no axis with a value such as M=16 (between 1 and 2^40)", word.substr(0, 200)));
    if (!out.bind.emplace(word.substr(0, equals), *n).second)
      return axis_usage(fmt::format("--bind: axis '{}' is given twice", word.substr(0, equals)));
  }
  std::string axis;
  for (const std::string& word : values) {
    const size_t equals = word.find('=');
    if (equals != std::string::npos) {
      axis = word.substr(0, equals);
      if (!axis.empty() && !out.values.emplace(axis, std::vector<int64_t>{}).second)
        return axis_usage(fmt::format("--values: axis '{}' is given twice", axis));
    }
    const auto n = extent_of(std::string_view(word).substr(equals == std::string::npos ? 0 : equals + 1));
    if (axis.empty() || !n)
      return axis_usage(
          fmt::format("--values: '{}' is no list of values of an axis such as M=1,8,64 (each between 1 and 2^40)", word.substr(0, 200)));
    std::vector<int64_t>& list = out.values[axis];
    if (std::find(list.begin(), list.end(), *n) != list.end()) return axis_usage(fmt::format("--values: axis '{}' has {} twice", axis, *n));
    list.push_back(*n);
  }
  for (auto& [name, list] : out.values) std::sort(list.begin(), list.end());
  for (const auto& [name, n] : out.bind)
    if (out.values.count(name)) return axis_usage(fmt::format("axis '{}' is given by --bind and by --values", name));
  return out;
}

}  // namespace mirage
